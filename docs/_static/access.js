// Names for screen readers, and a way in by keyboard, for what the theme and the widgets' library leave without.
(() => {
  const ICONS = { "fa-play": "Play or pause", "fa-pause": "Play or pause", "fa-stop": "Stop and go back to the start", "fa-repeat": "Repeat", "fa-retweet": "Repeat", "fa-step-backward": "Back", "fa-step-forward": "On" };
  const SCROLLS = "[style*='overflow'], .ag-code, .widget-html-content, .output.text_html, .output.text_plain pre, .output.stream pre, .highlight pre, .pst-scrollable-table-container, div.math";

  const name = (element, text) => { if (text && !element.getAttribute("aria-label")) element.setAttribute("aria-label", text); };
  const words = element => element?.textContent.trim() || "";

  // The words nearest to a control without a label of its own: those of its row, or of the widget that holds it.
  const nearby = element => {
    for (let box = element.parentElement; box && !box.matches(".widget-subarea, article"); box = box.parentElement) {
      const label = [...box.querySelectorAll(".widget-label")].find(each => words(each) && getComputedStyle(each).display !== "none");
      if (label) return words(label);
    }
    return "value";
  };

  const repair = () => {
    for (const button of document.querySelectorAll("button.jupyter-button:not([aria-label])")) {
      if (words(button)) continue;
      const icon = Object.keys(ICONS).find(each => button.querySelector("." + each));
      name(button, ICONS[icon] || button.title || "Button");
    }
    for (const handle of document.querySelectorAll(".noUi-handle:not([aria-label])")) name(handle, nearby(handle));
    for (const input of document.querySelectorAll(".jupyter-widgets :is(input, select, textarea):not([aria-label])")) {
      const label = [...(input.labels || [])].find(each => words(each) && getComputedStyle(each).display !== "none");
      if (!label) name(input, input.title || nearby(input));
    }
    for (const box of document.querySelectorAll(SCROLLS)) {
      const wide = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
      if (wide && !box.hasAttribute("tabindex") && /auto|scroll/.test(getComputedStyle(box).overflow)) box.tabIndex = 0;
    }
  };

  // Each line of code an element of its own, which knows how far it is indented: on a narrow screen site.css lets it go on below.
  const lines = () => {
    for (const code of document.querySelectorAll("div.cell_input .highlight pre, .highlight-python pre, .highlight-ipython3 pre, .highlight-sh pre, .highlight-default pre")) {
      if (code.querySelector(".code-line")) continue;
      const parts = code.innerHTML.split("\n");
      if (!parts.at(-1)) parts.pop();
      if (parts.some(part => (part.match(/<span/g) || []).length !== (part.match(/<\/span/g) || []).length)) continue;  // a token that runs over several lines
      code.innerHTML = parts.map(part => `<span class="code-line" style="--in:${part.replace(/<[^>]*>/g, "").match(/^ */)[0].length}">${part}\n</span>`).join("");
    }
  };

  // Buttons above a player: no kernel runs here, but what they do to the scenes at hand is known; `data-moves` says which scene each of them leads to.
  const pressed = event => {
    const button = event.target.closest?.(".jupyter-widgets-disconnected.jupyter-button");
    if (!button || button.closest(".widget-play, .widget-toggle-buttons")) return;
    let box = button.closest(".widget-vbox");
    while (box && !box.querySelector("[data-moves]")) box = box.parentElement?.closest(".widget-vbox");
    const handle = box?.querySelector(".noUi-handle");
    if (!handle) return;
    const moves = JSON.parse(box.querySelector("[data-moves]").dataset.moves), from = Math.round(handle.getAttribute("aria-valuenow")), to = moves[from]?.[words(button)];
    let said = box.querySelector(".not-here");
    if (!said) {
      said = box.querySelector("[data-moves]").insertAdjacentElement("afterend", document.createElement("p"));
      said.className = "not-here";
      said.setAttribute("role", "status");
    }
    said.textContent = to === undefined ? `For “${words(button)}” at this point a kernel has to run. From here the page knows: ${Object.keys(moves[from] || {}).join(", ")}.` : "";
    if (to !== undefined) handle.closest(".noUi-target").noUiSlider.set(to);  // everything linked to the slider follows
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.addEventListener("click", pressed);
    lines();
    for (const summary of document.querySelectorAll(".bd-sidenav summary")) name(summary, "Pages of " + words(summary.closest("li").querySelector("a")));
    let waiting = null;
    const soon = () => { waiting ??= setTimeout(() => { waiting = null; repair(); }, 100); };
    soon();
    window.addEventListener("resize", soon);
    const article = document.querySelector("article") || document.body;
    new MutationObserver(soon).observe(article, { childList: true, subtree: true });
    article.addEventListener("toggle", soon, true);
  });
})();
