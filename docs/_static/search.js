// On the search page only: what stands on buttons and controls is no part of a page's text.
(() => {
  if (typeof Search === "undefined") return;
  const whole = Search.htmlToText;
  Search.htmlToText = (text, anchor) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const each of page.querySelectorAll("#jb-print-toc, button, summary, noscript, .open-live, .demo, .copybtn, mjx-container, .glyphs")) each.remove();
    return whole(page.documentElement.outerHTML, anchor);
  };
})();
