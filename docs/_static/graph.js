// Graphs that are larger than their place on the page: a button opens them on the whole screen, to be dragged, enlarged
// (two fingers, the wheel, keys), searched and saved.
(() => {
  const NODE = "g[class*='ag-n']", LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "visibility", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "letter-spacing"];
  const drawing = place => [...place.querySelectorAll("svg.agnb:not(.graph-view svg)")].find(svg => svg.querySelector(NODE) && svg.checkVisibility?.() !== false);
  const size = svg => [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
  const make = (tag, set = {}, ...inside) => { const made = Object.assign(document.createElement(tag), set); made.append(...inside); return made; };
  const button = (text, title, act) => { const made = make("button", { type: "button", textContent: text, title, onclick: act }); made.setAttribute("aria-label", title); return made; };

  // A copy that needs no style sheet: what each element looks like now is written into it.
  function alone(svg) {
    const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((each, k) => {
      const look = getComputedStyle(from[k]);
      if (each instanceof SVGElement && !/^(style|title|desc|defs)$/.test(each.tagName)) each.setAttribute("style", LOOK.map(name => `${name}:${look.getPropertyValue(name)}`).join(";"));
    });
    copy.querySelectorAll("style").forEach(each => each.remove());
    const [width, height] = size(svg), ground = document.createElementNS("http://www.w3.org/2000/svg", "rect"), { x, y } = svg.viewBox.baseVal;
    for (const [name, value] of Object.entries({ x, y, width, height, fill: getComputedStyle(document.body).backgroundColor })) ground.setAttribute(name, value);
    copy.prepend(ground);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    return new XMLSerializer().serializeToString(copy);
  }

  function save(blob, name) {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function picture(svg) {
    const [width, height] = size(svg), sharp = Math.min(2, 8000 / Math.max(width, height)), image = new Image(), canvas = make("canvas", { width: width * sharp, height: height * sharp });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(alone(svg))}`;
    await image.decode();
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => save(blob, "graph.png"), "image/png");
  }

  class View {
    constructor(svg) {
      const copy = svg.cloneNode(true), [width, height] = size(svg);
      // rules for a step hold inside of elements with certain names
      const names = new Set(["agnb"]);
      for (let up = svg.parentElement; up && !up.matches(".demo, .cell_output"); up = up.parentElement) up.classList.forEach(name => names.add(name));
      Object.assign(this, { svg: copy, width, height, at: 0, found: [], fingers: new Map() });
      copy.removeAttribute("style");
      copy.setAttribute("width", width);
      copy.setAttribute("height", height);
      this.paper = make("div", { className: `graph-paper ${[...names].filter(name => /^ag/.test(name) && name !== "ag-stage" && name !== "ag-field").join(" ")}` }, copy);
      this.stage = make("div", { className: "graph-stage", tabIndex: 0 }, this.paper);
      this.stage.setAttribute("role", "application");
      this.stage.setAttribute("aria-label", `${svg.getAttribute("aria-label") || "Graph"}: arrow keys move it, + and − change its size, 0 shows all of it`);
      this.search = make("input", { type: "search", placeholder: "Find a node", oninput: () => this.find(), onkeydown: event => { if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1); } });
      this.search.setAttribute("aria-label", "Find a node");
      this.told = make("span", { className: "graph-told" });
      this.told.setAttribute("role", "status");
      this.dialog = make("dialog", { className: "graph-view", onclose: () => this.dialog.remove() },
        make("div", { className: "graph-tools" }, this.search, this.told, button("✕", "Close", () => this.dialog.close()), button("−", "Smaller", () => this.zoom(1 / 1.3)), button("+", "Larger", () => this.zoom(1.3)), button("Fit", "Show all of it", () => this.fit()),
          button("SVG", "Save as SVG", () => save(new Blob([alone(copy)], { type: "image/svg+xml" }), "graph.svg")), button("PNG", "Save as PNG", () => picture(copy))),
        this.stage);
      this.dialog.setAttribute("aria-label", "Graph on the whole screen");
      const stage = this.stage;
      stage.addEventListener("wheel", event => { event.preventDefault(); this.zoom(Math.exp(-event.deltaY / 400), event); }, { passive: false });
      stage.addEventListener("pointerdown", event => { stage.setPointerCapture(event.pointerId); this.fingers.set(event.pointerId, event); });
      for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, event => this.fingers.delete(event.pointerId));
      stage.addEventListener("pointermove", event => this.dragged(event));
      stage.addEventListener("keydown", event => this.pressed(event));
      document.body.append(this.dialog);
      this.dialog.showModal();
      this.fit(true);
      stage.focus();
    }

    move(x, y, scale = this.scale) {
      const { clientWidth, clientHeight } = this.stage, keep = 60;  // a corner of it stays in view
      this.scale = scale;
      this.x = Math.max(keep - this.width * scale, Math.min(clientWidth - keep, x));
      this.y = Math.max(keep - this.height * scale, Math.min(clientHeight - keep, y));
      this.paper.style.transform = `translate(${this.x}px, ${this.y}px) scale(${scale})`;
    }

    // All of it; at first no smaller than can be read, from its beginning.
    fit(legible = false) {
      const { clientWidth, clientHeight } = this.stage, scale = Math.min(1.5, (clientWidth - 16) / this.width, (clientHeight - 16) / this.height), used = legible ? Math.max(scale, 0.6) : scale;
      this.move(Math.max(8, (clientWidth - this.width * used) / 2), Math.max(8, (clientHeight - this.height * used) / 2), used);
    }

    // The point under the pointer stays where it is.
    zoom(factor, at = null) {
      const box = this.stage.getBoundingClientRect(), x = at ? at.clientX - box.left : box.width / 2, y = at ? at.clientY - box.top : box.height / 2;
      const scale = Math.max(0.05, Math.min(6, this.scale * factor));
      this.move(x - (x - this.x) * scale / this.scale, y - (y - this.y) * scale / this.scale, scale);
    }

    dragged(event) {
      const before = this.fingers.get(event.pointerId);
      if (!before) return;
      const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
      this.fingers.set(event.pointerId, event);
      if (!other) return this.move(this.x + event.clientX - before.clientX, this.y + event.clientY - before.clientY);
      const apart = finger => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      const middle = { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 };
      this.move(this.x + (event.clientX - before.clientX) / 2, this.y + (event.clientY - before.clientY) / 2);
      this.zoom(apart(event) / Math.max(1, apart(before)), middle);
    }

    pressed(event) {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (step) this.move(this.x + step[0], this.y + step[1]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    }

    find() {
      const wanted = this.search.value.trim().toLowerCase(), nodes = [...this.svg.querySelectorAll(NODE)];
      this.found = wanted ? nodes.filter(node => [...node.querySelectorAll("text")].some(text => text.textContent.toLowerCase().includes(wanted))) : [];
      for (const node of nodes) node.classList.toggle("graph-found", this.found.includes(node));
      this.paper.classList.toggle("graph-searched", Boolean(wanted));
      this.at = -1;
      if (this.found.length) this.next(1); else this.told.textContent = wanted ? "none" : "";
    }

    next(by) {
      if (!this.found.length) return;
      this.at = (this.at + by + this.found.length) % this.found.length;
      this.told.textContent = `${this.at + 1} of ${this.found.length}`;
      if (this.scale < 0.6) this.move(this.x, this.y, 0.8);
      const stage = this.stage.getBoundingClientRect(), box = this.found[this.at].getBoundingClientRect();
      this.move(this.x + stage.left + stage.width / 2 - box.left - box.width / 2, this.y + stage.top + stage.height / 2 - box.top - box.height / 2);
    }
  }

  const offer = (place, width) => {
    const svg = drawing(place), known = place.querySelector(":scope > .graph-open");
    if (!svg) return;
    const [wide, high] = size(svg);
    if (wide <= width && high <= 0.8 * innerHeight) { known?.remove(); return; }
    if (known) return;
    const open = button("⤢", "Open the graph on the whole screen", () => { const now = drawing(place); if (now) new View(now); });
    open.className = "graph-open";
    place.classList.add("graph-place");
    place.append(open);
  };

  // Each place is looked at when it comes near, and again when another frame or picture is in it.
  const near = new IntersectionObserver(seen => { for (const { target, isIntersecting, boundingClientRect } of seen) if (isIntersecting) offer(target, boundingClientRect.width); }, { rootMargin: "200px" });
  const again = event => { const place = event.target.closest(".demo"); if (place) { near.unobserve(place); near.observe(place); } };
  const begin = () => {
    for (const place of document.querySelectorAll(".demo, .cell_output")) if (!place.querySelector(".demo")) near.observe(place);
    document.addEventListener("agframe", again);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin); else begin();
})();
