// Sphinx takes this up into its search: chapters first, then what users look up, then the library's own notebooks.
var Scorer = {
  score: result => {
    const [document, , , , score] = result;
    const chapter = /^book\/(?:(\d+)(b?))?/.exec(document);  // of equals the earlier comes first
    if (chapter) return score + 12 - (chapter[1] ? Number(chapter[1]) + (chapter[2] ? 0.5 : 0) : 99) / 1000;
    if (/^(index|yours|glossary|cheatsheet|mistakes|reference\/)/.test(document)) return score + 6;
    if (/^(changelog|contributing|library\/)/.test(document)) return score - 6;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
