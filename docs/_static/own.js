// Demos of the reader's own function: expression and inputs go to Python in a worker (python.js), and what comes back is
// shown as a whole, so that line, picture and sliders never say different things.
(() => {
  const folder = new URL(".", document.currentScript.src).href;
  let worker = null, failed = "", count = 0, progress = 0;
  const asked = new Map(), listeners = new Set();
  const told = () => listeners.forEach(each => each());

  const start = () => {
    if (worker || failed) return;
    try { worker = new Worker(`${folder}python.js`); } catch (error) { failed = String(error); told(); return; }
    worker.onerror = event => { failed = event.message || "the worker stopped"; told(); };
    worker.onmessage = ({ data }) => {
      if (data.failed) failed = data.failed;
      if (data.progress) progress = data.progress;
      if (data.id) { asked.get(data.id)?.(data.answer); asked.delete(data.id); }
      told();
    };
  };
  const ask = question => new Promise(resolve => {
    start();
    if (failed) return;
    asked.set(++count, resolve);
    worker.postMessage({ id: count, asked: question });
  });

  const tidy = x => +x.toPrecision(6);

  class Own {
    constructor(root, number) {
      this.root = root;
      this.scope = root.dataset.scope;
      const find = name => root.querySelector(`.own-${name}`);
      Object.assign(this, { box: find("f"), sliders: find("sliders"), line: find("line"), caption: find("caption"), picture: find("picture"), look: find("look"), loading: find("loading"),
                            bar: find("steps"), tools: find("tools"), grow: find("grow") });
      this.step = null;      // null: the last one
      this.mode = "explore";
      this.timer = null;
      this.busy = false;
      this.gradients = true;
      this.inputs = new Map([...this.sliders.querySelectorAll("input")].map(input => [input.name, +input.value]));
      this.answer = JSON.parse(root.querySelector("script[type='application/json']").textContent);
      for (const input of root.querySelectorAll("input, textarea, button")) input.disabled = false;
      root.querySelector(".demo-note")?.remove();
      this.box.addEventListener("change", () => { this.gradients = true; this.run(); });
      this.box.addEventListener("keydown", event => this.typed(event));
      this.box.addEventListener("input", () => this.lines());
      this.sliders.addEventListener("input", event => { this.inputs.set(event.target.name, +event.target.value); this.readouts(); this.run(); });
      root.addEventListener("focusin", start, { once: true });
      root.addEventListener("pointerdown", start, { once: true });
      root.addEventListener("click", event => this.clicked(event));
      find("at").addEventListener("input", event => { this.pause(); this.show(+event.target.value); });
      listeners.add(() => this.state());
      const url = new URLSearchParams(location.search);
      if (number === 0 && url.has("f")) {
        this.box.value = url.get("f");
        this.lines();
        for (const [name, value] of url) if (name !== "f" && name !== "mode" && Number.isFinite(+value)) this.inputs.set(name, +value);
        if (["step", "grow"].includes(url.get("mode"))) this.mode = url.get("mode");
        root.classList.add("own-linked");
        for (const input of this.sliders.querySelectorAll("input")) if (this.inputs.has(input.name)) input.value = this.inputs.get(input.name);
        this.readouts();
        this.run();
      }
      this.modes();
      this.offer();
    }

    // Enter computes; within a `def` it begins another line, as far in as this one or one step further.
    typed(event) {
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (!/^\s*def\b/.test(this.box.value) || event.ctrlKey || event.metaKey) { this.box.blur(); return; }
      const line = this.box.value.slice(0, this.box.selectionStart).split("\n").at(-1);
      this.box.setRangeText(`\n${/^ */.exec(line)[0]}${line.trimEnd().endsWith(":") ? "    " : ""}`, this.box.selectionStart, this.box.selectionEnd, "end");
      this.lines();
    }

    lines() { this.box.rows = Math.min(12, this.box.value.split("\n").length); }

    state() {
      const waiting = this.busy && !failed;
      this.loading.hidden = !waiting && !failed;
      if (failed) {
        this.loading.textContent = "Python could not be loaded here, so this stays a picture. ";
        const link = document.createElement("a");
        link.href = "#run-it";
        link.textContent = "Run it live";
        this.loading.append(link);
        for (const input of this.root.querySelectorAll("input, textarea, button")) { input.disabled = true; input.title = "Python could not be loaded here"; }
        this.box.value = this.answer.f;
        this.lines();
        this.reset();
      } else if (waiting && progress < 1) this.loading.textContent = `Python is on its way into this page, ${Math.round(100 * progress)} % …`;
      else this.loading.hidden = true;
      this.root.setAttribute("aria-busy", waiting);
    }

    // What is shown is what was computed last: nothing else may stand beside it.
    reset() {
      this.inputs = new Map(Object.entries(this.answer.inputs));
      this.knobs();
    }

    readouts() { for (const input of this.sliders.querySelectorAll("input")) input.nextElementSibling.textContent = String(tidy(+input.value)).replace("-", "−"); }

    knobs() {
      const names = this.answer.names, now = [...this.sliders.querySelectorAll("input")].map(input => input.name);
      if (names.join() !== now.join()) {
        this.sliders.replaceChildren(...names.map(name => {
          const row = document.createElement("label"), input = document.createElement("input"), shown = document.createElement("span");
          row.className = "widget-slider";
          row.append(name);
          Object.assign(input, { type: "range", name, min: -3, max: 3, step: 0.05 });
          input.setAttribute("aria-label", name);
          shown.className = "widget-readout";
          row.append(input, shown);
          return row;
        }));
      }
      for (const input of this.sliders.querySelectorAll("input")) {
        const value = this.inputs.get(input.name) ?? 1;
        if (value < +input.min) input.min = value;
        if (value > +input.max) input.max = value;
        if (input !== document.activeElement) {
          const step = +(input.dataset.step ??= input.step), whole = (value - input.min) / step;
          input.step = Math.abs(whole - Math.round(whole)) < 1e-6 ? step : "any";  // a value from elsewhere stands where it is
          input.value = value;
        }
      }
      this.readouts();
    }

    // One question at a time; what changes meanwhile is asked when the answer is there.
    async run() {
      if (this.busy) { this.again = true; return; }
      this.pause();
      this.busy = true;
      this.state();
      do {
        this.again = false;
        const question = { f: this.box.value, inputs: Object.fromEntries(this.inputs), scope: this.scope, forward: !this.gradients };
        const answer = await ask(question);
        if (this.again) continue;
        if (answer.error) {
          this.line.innerHTML = answer.error;
          this.root.classList.add("own-wrong");
          this.box.setAttribute("aria-invalid", "true");
        } else {
          this.root.classList.remove("own-wrong");
          this.box.removeAttribute("aria-invalid");
          for (const name of answer.names) if (!this.inputs.has(name)) this.inputs.set(name, 1);
          this.answer = { ...answer, f: question.f, inputs: Object.fromEntries(answer.names.map(name => [name, this.inputs.get(name)])) };
          this.knobs();
          this.draw();
          this.address();
        }
      } while (this.again);
      this.busy = false;
      this.root.classList.remove("own-linked");
      this.offer();
      this.state();
    }

    // A button that would change nothing is off, and says why.
    offer() {
      const off = { backward: this.gradients && "The gradients are here already: apply an operation first", again: this.answer.text === this.answer.names[0] && "This is the beginning: apply an operation first" };
      for (const [how, why] of Object.entries(off)) {
        const button = this.root.querySelector(`[data-grow="${how}"]`);
        button.disabled = Boolean(why);
        button.title = why || "";
      }
    }

    draw() {
      this.picture.innerHTML = this.answer.svg;
      this.root.dispatchEvent(new CustomEvent("agframe", { bubbles: true }));
      this.line.innerHTML = this.answer.line;
      this.show(this.mode === "step" ? 0 : null);
    }

    last() { return this.answer.captions.length - 1; }

    show(step) {
      this.step = step;
      const at = step ?? this.last(), slider = this.bar.querySelector("input");
      this.look.textContent = this.answer.css + this.answer.styles[at];
      this.caption.innerHTML = this.answer.captions[at];
      slider.max = this.last();
      slider.value = at;
      slider.nextElementSibling.textContent = `${at} / ${this.last()}`;
    }

    modes() {
      this.bar.hidden = this.caption.hidden = this.mode !== "step";
      this.grow.hidden = this.mode !== "grow";
      for (const button of this.root.querySelectorAll("[data-mode]")) {
        button.classList.toggle("mod-active", button.dataset.mode === this.mode);
        button.setAttribute("aria-pressed", button.dataset.mode === this.mode);
      }
    }

    address() {
      const search = new URLSearchParams({ f: this.answer.f, ...this.answer.inputs, ...(this.mode === "explore" ? {} : { mode: this.mode }) });
      if (this.root.dataset.address !== undefined) history.replaceState(null, "", `?${search}`);
      this.shared = `${location.origin}${location.pathname}?${search}`;
    }

    pause() {
      clearInterval(this.timer);
      this.timer = null;
      const play = this.bar.querySelector(".demo-play");
      play.textContent = "▶";
      play.setAttribute("aria-label", "Play");
    }

    play() {
      const button = this.bar.querySelector(".demo-play");
      button.textContent = "❚❚";
      button.setAttribute("aria-label", "Pause");
      if ((this.step ?? this.last()) >= this.last()) this.show(0);
      this.timer = setInterval(() => (this.step < this.last() ? this.show(this.step + 1) : this.pause()), 1200);
    }

    clicked(event) {
      const button = event.target.closest("button");
      if (!button || button.disabled) return;
      const { mode, grow, save } = button.dataset;
      if (mode) {
        this.mode = mode;
        this.pause();
        this.modes();
        if (!this.gradients && mode !== "grow") { this.gradients = true; this.run(); } else this.show(mode === "step" ? 0 : null);
        this.address();
      } else if (grow) this.grown(grow);
      else if (save) this.save(save);
      else if (button.matches(".demo-play")) { if (this.timer) this.pause(); else { this.pause(); this.play(); } }
      else if (button.matches(".demo-back, .demo-on")) {
        this.pause();
        const at = (this.step ?? this.last()) + (button.matches(".demo-on") ? 1 : -1);
        this.show(Math.max(0, Math.min(this.last(), at)));
      }
    }

    // Each button applies one more operation to what is there; `backward()` lets the gradients come.
    grown(how) {
      const f = this.answer.text;
      if (how === "backward") this.gradients = true;
      else {
        this.gradients = false;
        const [, before, last] = /^(\s*def\b[^]*\n *return )([^\n]+)\s*$/.exec(f) || [f, "", f];  // of a `def`, what it returns
        this.box.value = how === "again" ? this.answer.names[0] : before + how.replace("f", how === "f + 2" || /^\w+$|^\w+\([^()]*\)$/.test(last) ? last : `(${last})`).replace(/(\w+)\(\((.*)\)\)$/, "$1($2)");
        this.lines();
      }
      this.run();
    }

    // A picture that stands alone, in the colours of the page; animated: every step for 1.2 s, again and again, by CSS alone.
    picture_file(animated) {
      const svg = this.picture.querySelector("svg").cloneNode(true), scope = this.scope, style = document.createElementNS("http://www.w3.org/2000/svg", "style");
      svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
      svg.classList.add("agnb", scope);
      let look = this.answer.css;
      if (!animated) look += this.answer.styles[this.step ?? this.last()];
      else {
        const all = this.answer.styles.length, seconds = 1.2 * all;
        const names = { t: new Set(), u: new Set(), a: new Set() };
        for (const element of svg.querySelectorAll("[class]")) for (const name of element.classList) { const found = /^([tua])(\d+)$/.exec(name); if (found) names[found[1]].add(+found[2]); }
        const frame = (name, shown) => {
          const stops = [...Array(all).keys()].map(k => `${(100 * k / all).toFixed(3)}%{visibility:${shown(k) ? "visible" : "hidden"}}`).join("");
          look += `@keyframes ${scope}${name}{${stops}100%{visibility:${shown(all - 1) ? "visible" : "hidden"}}}.${scope} .${name}{animation:${scope}${name} ${seconds}s step-end infinite}`;
        };
        for (const i of names.t) frame(`t${i}`, k => k >= i);
        for (const i of names.a) frame(`a${i}`, k => k === i);
        // An element with u disappears again; where it has t as well, both have to hold.
        for (const element of svg.querySelectorAll("[class*='u']")) {
          const u = [...element.classList].map(c => /^u(\d+)$/.exec(c)).find(Boolean), t = [...element.classList].map(c => /^t(\d+)$/.exec(c)).find(Boolean);
          if (!u) continue;
          const name = `${t ? `t${t[1]}` : ""}u${u[1]}`;
          element.classList.remove(...[t?.[0], u[0]].filter(Boolean));
          element.classList.add(name);
          if (!look.includes(`@keyframes ${scope}${name}{`)) frame(name, k => k < +u[1] && (!t || k >= +t[1]));
        }
      }
      style.textContent = look;
      svg.prepend(style);
      return new XMLSerializer().serializeToString(svg);
    }

    save(kind) {
      if (kind === "link") {
        this.address();
        navigator.clipboard?.writeText(this.shared).then(() => this.notice("The link is copied."), () => this.notice(this.shared));
        if (!navigator.clipboard) this.notice(this.shared);
        return;
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([this.picture_file(kind === "animated")], { type: "image/svg+xml" }));
      link.download = kind === "animated" ? "gradient-animated.svg" : "gradient.svg";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    notice(text) {
      const place = this.root.querySelector(".own-notice");
      place.textContent = text;
    }
  }

  const begin = () => document.querySelectorAll(".demo-own").forEach((root, number) => new Own(root, number));
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin); else begin();
})();
