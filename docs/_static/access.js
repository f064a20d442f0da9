// What the theme leaves out: names for screen readers, a way into wide boxes by keyboard, and its own scripts when the page stands.
(() => {
  const SCROLLS = "pre, .cell_output > .output, [style*='overflow'], .ag-code, .ag-stage, .widget-html-content, .pst-scrollable-table-container, div.math";
  const later = (document.currentScript?.dataset.later || "").split(" ").filter(Boolean);

  const name = (element, text) => { if (text && !element.getAttribute("aria-label")) element.setAttribute("aria-label", text); };
  const words = element => element?.textContent.trim() || "";

  // How wide a box is, is asked a few boxes at a time, while nothing else is to be done: it takes long on a phone. What the
  // browser has not laid out because it is far from view is asked when it comes nearer.
  // A page that is never idle waits half a second for the next few.
  const idle = window.requestIdleCallback
    ? work => requestIdleCallback(work, { timeout: 500 })
    : work => setTimeout(() => work({ timeRemaining: () => 10 }), 50);
  const drawn = box => box.checkVisibility?.({ contentVisibilityAuto: true }) ?? true;
  let waiting = [], busy = false;
  const some = time => {
    const end = performance.now() + (time.didTimeout ? 10 : 0);
    do {
      const box = waiting.pop();
      if (!box?.isConnected || box.hasAttribute("tabindex") || !drawn(box)) continue;
      const wide = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
      if (wide && /auto|scroll/.test(getComputedStyle(box).overflow)) box.tabIndex = 0;
    } while (waiting.length && (time.timeRemaining() > 2 || performance.now() < end));
    busy = waiting.length > 0;
    if (busy) idle(some);
  };
  const repair = () => {
    waiting = [...document.querySelectorAll(SCROLLS)];
    if (!busy) { busy = true; idle(some); }
  };

  // In the order in which they stand there, each when there is time for it.
  const rest = () => {
    const source = later.shift();
    if (!source) return;
    const script = document.createElement("script");
    script.src = source;
    script.async = false;
    document.head.append(script);
    idle(rest);
  };

  const begin = () => {
    for (const summary of document.querySelectorAll(".bd-sidenav summary")) name(summary, "Pages of " + words(summary.closest("li").querySelector("a")));
    let due = null;
    const soon = () => { due ??= setTimeout(() => { due = null; repair(); }, 300); };
    soon();
    window.addEventListener("resize", soon);
    const article = document.querySelector("article") || document.body;
    new MutationObserver(soon).observe(article, { childList: true, subtree: true });
    article.addEventListener("toggle", soon, true);
    article.addEventListener("contentvisibilityautostatechange", soon, true);
    if (document.readyState === "complete") idle(rest); else window.addEventListener("load", () => idle(rest));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin); else begin();
})();
