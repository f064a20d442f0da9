// Moves the demos that docs/players.py writes as plain HTML. The frames of a demo are in a file beside the page,
// fetched when the demo comes into view or is first touched.
(() => {
  const here = new URL("..", document.currentScript.src).href;
  const waiting = new Map();

  // A demo's file calls this.
  window.agDemo = (name, data) => waiting.get(name)?.(data);

  class Demo {
    constructor(root) {
      this.root = root;
      this.values = new Map();
      this.timer = null;
      this.loaded = null;
      this.adopt(root);
      root.addEventListener("click", event => this.clicked(event));
      root.addEventListener("input", event => this.moved(event));
    }

    // The widgets that are in the page now: what they show is their value, unless it is known already.
    adopt(part) {
      for (const each of part.querySelectorAll("[data-m][data-at]")) {
        const number = +each.dataset.m;
        if (this.values.has(number)) this.draw(number, each); else this.values.set(number, +each.dataset.at);
      }
    }

    load() {
      this.loaded ??= new Promise((resolve, reject) => {
        waiting.set(this.root.dataset.demo, data => { this.data = data; resolve(data); });
        const script = document.createElement("script");
        script.src = `${here}demos/${this.root.dataset.demo}.js`;
        script.onerror = () => {
          this.loaded = null;
          this.say("The frames of this demo could not be fetched. Try again when there is a connection.");
          reject(new Error("no frames"));
        };
        document.head.append(script);
      }).then(data => { this.say(""); this.open(); this.level(); return data; });
      return this.loaded;
    }

    // Captions take as many lines as the longest of them, so that nothing below moves.
    level() {
      this.root.style.minHeight = "";
      const all = Object.entries(this.data?.stacks ?? {}).map(([number, frames]) => [this.find(+number), frames]);
      const heights = all.map(([stack, frames]) => {
        const shown = stack?.querySelector(".ag-caption");
        if (!shown?.clientWidth) return 0;
        const probe = document.createElement("div");
        probe.style.cssText = `position:absolute;visibility:hidden;width:${shown.clientWidth}px`;
        probe.innerHTML = frames.map(frame => /<div class="agnb ag-caption".*?<\/div>/s.exec(frame)?.[0] ?? "").join("");
        this.root.style.setProperty("--caption", "0px");
        shown.after(probe);
        const tallest = Math.max(...[...probe.children].map(each => each.offsetHeight));
        probe.remove();
        return tallest;
      });
      this.root.style.setProperty("--caption", `${Math.max(0, ...heights)}px`);
    }

    say(text) {
      let said = this.root.querySelector(":scope > .not-here");
      if (!said && !text) return;
      if (!said) {
        said = document.createElement("p");
        said.className = "not-here";
        said.setAttribute("role", "status");
        this.root.append(said);
      }
      said.textContent = text;
    }

    find(number) { return this.root.querySelector(`[data-m="${number}"]`); }

    // Give a widget another value; what is linked to it follows.
    async set(number, value) {
      await this.load().catch(() => null);
      if (!this.data) return;
      this.root.style.minHeight = `${this.root.offsetHeight}px`;  // what stands below does not come up again
      const todo = [[number, value]], seen = new Set();
      while (todo.length) {
        const [one, now] = todo.pop();
        if (seen.has(one)) continue;
        seen.add(one);
        this.values.set(one, now);
        const element = this.find(one);
        if (element) this.draw(one, element);
        for (const [a, , b] of this.data.links) {
          if (a === one) todo.push([b, now]);
          if (b === one) todo.push([a, now]);
        }
      }
      this.open();
    }

    draw(number, element) {
      const value = this.values.get(number);
      if (element.matches(".widget-stack")) {
        const frames = this.data?.stacks[number];
        if (!frames || +element.dataset.at === value) return;
        element.dataset.at = value;
        element.innerHTML = frames[value];
        this.adopt(element);
        this.root.dispatchEvent(new CustomEvent("agframe", { bubbles: true }));
      } else if (element.matches(".widget-slider")) {
        const input = element.querySelector("input");
        input.value = value;
        this.read(element, value);
      } else if (element.matches(".widget-toggle-buttons")) {
        element.querySelectorAll("button").forEach((button, k) => {
          button.classList.toggle("mod-active", k === value);
          button.setAttribute("aria-pressed", k === value);
        });
      }
    }

    // The number of a step; where a slider stands for something else, the caption says for what.
    read(slider, value) {
      const readout = slider.querySelector(".widget-readout");
      if (readout) readout.textContent = `${value} / ${slider.querySelector("input").max}`;
    }

    moved(event) {
      const slider = event.target.closest(".widget-slider[data-m]");
      if (!slider || event.target.disabled || this.root.dataset.live === "on") return;
      this.pause();
      this.read(slider, event.target.value);
      this.set(+slider.dataset.m, +event.target.value);
    }

    clicked(event) {
      const button = event.target.closest("button");
      if (!button || button.disabled) return;
      const play = button.closest(".widget-play"), toggles = button.closest(".widget-toggle-buttons");
      if (play) {
        const number = +play.dataset.m, at = this.values.get(number), running = this.timer !== null;
        this.pause();
        const to = step => this.set(number, Math.max(+play.dataset.min, Math.min(+play.dataset.max, step)));
        if (button.matches(".demo-back")) to(at - 1);
        else if (button.matches(".demo-on")) to(at + 1);
        else if (!running) this.start(play);
      } else if (toggles) this.set(+toggles.dataset.m, [...toggles.querySelectorAll("button")].indexOf(button));
      else this.pressed(button);
    }

    start(play) {
      const number = +play.dataset.m, last = +play.dataset.max, button = play.querySelector(".demo-play");
      const step = () => {
        const at = this.values.get(number);
        if (at < last) this.set(number, at + 1); else this.pause();
      };
      button.textContent = "❚❚";
      button.setAttribute("aria-label", "Pause");
      this.timer = setInterval(step, +play.dataset.interval);
      if (this.values.get(number) === last) this.set(number, +play.dataset.min); else step();
    }

    pause() {
      clearInterval(this.timer);
      this.timer = null;
      for (const button of this.root.querySelectorAll(".demo-play")) {
        button.textContent = "▶";
        button.setAttribute("aria-label", "Play");
      }
    }

    // Buttons of one's own, such as "sin" of the growing graph: `data-moves` says to which scene each leads from here.
    moves() {
      const known = this.root.querySelector("[data-moves]"), slider = this.root.querySelector(".widget-slider[data-m]");
      return known && slider ? { slider: +slider.dataset.m, from: JSON.parse(known.dataset.moves)[this.values.get(+slider.dataset.m)] || {} } : null;
    }

    pressed(button) {
      const moves = this.moves(), to = moves?.from[button.textContent.trim()];
      if (to !== undefined) { this.pause(); this.set(moves.slider, to); }
    }

    // A button that leads nowhere from here is off, and says why.
    open() {
      const moves = this.moves();
      if (!moves) return;
      const here = this.values.get(moves.slider), ways = Object.keys(moves.from).filter(text => moves.from[text] !== here);
      for (const button of this.root.querySelectorAll("button.jupyter-button[data-m]")) {
        const text = button.textContent.trim(), off = !ways.includes(text);
        button.disabled = off;
        button.title = !off ? "" : moves.from[text] === here ? "This would change nothing here."
          : `From this scene the page knows only: ${ways.join(", ") || "nothing further"}. In a running notebook every button works.`;
      }
    }
  }

  const begin = () => {
    const known = new WeakMap(), all = [], eager = new IntersectionObserver(seen => {
      for (const { target, isIntersecting } of seen) if (isIntersecting) { eager.unobserve(target); known.get(target).load().catch(() => null); }
    }, { rootMargin: "400px" });
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; all.forEach(demo => demo.level()); } });
    for (const [number, root] of document.querySelectorAll(".demo[data-demo]").entries()) {
      const demo = new Demo(root);
      known.set(root, demo);
      all.push(demo);
      if (number) eager.observe(root); else demo.load().catch(() => null);  // nobody waits for the first
      if (root.hasAttribute("data-autoplay") && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
        const play = root.querySelector(".widget-play");
        setTimeout(() => { if (demo.timer === null && !demo.values.get(+play.dataset.m)) demo.start(play); }, 2500);
      }
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin); else begin();
})();
