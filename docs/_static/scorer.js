// Sphinx takes this up into its search: chapters first, then what users look up, then the library's own notebooks.
var Scorer = {
  score: result => {
    const [document, , , , score] = result;
    if (document.startsWith("book/")) return score + 12;
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
