"""Demos as plain HTML: a page shows the first frame of each at once, and `_static/demo.js` moves it.

The state of widgets that an executed notebook keeps says all that ipywidgets' own script of 3.5 MB would draw: boxes,
texts, sliders, Play buttons, and which of them are linked. Here the first frame and the controls are written into the
page; all other frames go into a file beside it, which is fetched when the demo comes into view. That file is a script,
not JSON, so that pages work from a folder as well as from a server.
"""

import html
import json
import re

import own

WIDGET = "application/vnd.jupyter.widget-view+json"
NO_SCRIPT = "<noscript><p>This is the demo’s first frame. It moves where JavaScript is allowed.</p></noscript>"
REASON = "Computes anew, so it needs a running notebook"
SOURCE = re.compile(r'class="agnb ag-line"[^>]* data-source="([^"]*)"')  # of a function, where the library says it
SIDE = {"width", "max_width", "min_width", "height", "margin", "display", "flex", "flex_flow", "align_items", "overflow"}


def name_of(reference: str) -> str:
    return reference.removeprefix("IPY_MODEL_")


class Demo:
    "One demo: `html` for the page, `data` for the file beside it."

    def __init__(self, name: str, view_id: str, state: dict):
        self.name, self.state = name, state
        self.numbers: dict[str, int] = {}  # of models, in the order in which the page meets them
        self.stacks: dict[int, list[str]] = {}
        self.waiting = False  # has controls that only a kernel can serve
        ends = [end for model in state.values() if "Link" in model["model_name"] for end in (model["state"]["source"], model["state"]["target"])]
        self.linked = {name_of(end[0]) for end in ends}
        self.moves = any("data-moves" in state[m]["state"].get("value", "") for m in self.below(view_id) if state[m]["model_name"] == "HTMLModel")
        found = self.own(view_id)
        if found:  # the page itself can do what this demo asks a kernel for
            self.html = found
            return
        body = self.element(view_id)
        note = '<p class="demo-note">What is greyed computes anew: <a href="#run-it">run it live</a>.</p>' if self.waiting else ""
        self.html = f'<div class="demo widget-subarea" data-demo="{html.escape(name)}">{body}{note}{NO_SCRIPT}</div>'

    def below(self, model: str) -> list[str]:
        found = [model]
        for child in self.state[model]["state"].get("children", ()):
            found += self.below(name_of(child))
        return found

    def own(self, view_id: str) -> str:
        "The demo that computes in the page, where an expression or a function stands above sliders here, and all that it names has one."
        states = [(self.state[m]["model_name"], self.state[m]["state"]) for m in self.below(view_id)]
        texts = [s["value"] for kind, s in states if kind == "TextModel" and s.get("description") == "f ="]
        texts += [html.unescape(found[1]) for kind, s in states if kind == "HTMLModel" and (found := SOURCE.search(s["value"]))]
        sliders = {s["description"]: (s.get("min", 0), s["max"], s.get("step", 0.1), s["value"]) for kind, s in states if kind == "FloatSliderModel"}
        if not texts or not sliders or not own.can(texts[0], sliders):
            return ""
        heading = next((re.sub("<style.*?</style>|<[^>]+>", "", s["value"], flags=re.S) for kind, s in states if kind == "HTMLModel" and "ag-heading" in s["value"]), "")
        return own.demo(texts[0].rstrip(), sliders, title=html.unescape(heading))

    @property
    def data(self) -> str:
        links = []
        for model in self.state.values():
            if "Link" in model["model_name"]:
                (a, p), (b, q) = ((name_of(end[0]), end[1]) for end in (model["state"]["source"], model["state"]["target"]))
                if a in self.numbers and b in self.numbers:
                    links.append([self.numbers[a], p, self.numbers[b], q])
        frames = {str(number): texts for number, texts in self.stacks.items()}
        return f"agDemo({json.dumps(self.name)}, {json.dumps({'links': sorted(links), 'stacks': frames}, ensure_ascii=False)});\n"

    def element(self, reference: str) -> str:
        model = name_of(reference)
        number = self.numbers.setdefault(model, len(self.numbers))
        kind, values = self.state[model]["model_name"].removesuffix("Model"), self.state[model]["state"]
        draw = getattr(self, f"draw_{kind.lower()}", None)
        if draw is None:
            raise SystemExit(f"docs/players.py does not know the widget {kind}: say there how a page shows it.")
        return draw(number, values)

    def opening(self, number: int, values: dict, tag: str, classes: str, more: str = "") -> str:
        layout = self.state.get(name_of(values.get("layout", "")), {"state": {}})["state"]
        style = "".join(f"{key.replace('_', '-')}:{layout[key]};" for key in sorted(SIDE & layout.keys()) if layout[key])
        classes = " ".join(["jupyter-widgets", classes, *values.get("_dom_classes", ())])
        return f'<{tag} class="{classes}" data-m="{number}"' + (f' style="{html.escape(style)}"' if style else "") + more + ">"

    def label(self, values: dict) -> str:
        text = values.get("description") or ""
        return f'<span class="widget-label">{html.escape(text)}</span>' if text else ""

    def box(self, number: int, values: dict, kind: str) -> str:
        children = "".join(map(self.element, values.get("children", ())))
        return self.opening(number, values, "div", f"widget-box {kind}") + children + "</div>"

    def draw_vbox(self, number: int, values: dict) -> str:
        return self.box(number, values, "widget-vbox")

    def draw_hbox(self, number: int, values: dict) -> str:
        return self.box(number, values, "widget-hbox")

    def draw_html(self, number: int, values: dict) -> str:
        return self.opening(number, values, "div", "widget-html") + f'<div class="widget-html-content">{values.get("value", "")}</div></div>'

    def draw_stack(self, number: int, values: dict) -> str:
        at = values.get("selected_index") or 0
        children = list(map(self.element, values["children"]))
        self.stacks[number] = children
        return self.opening(number, values, "div", "widget-stack", f' data-at="{at}"') + children[at] + "</div>"

    def draw_play(self, number: int, values: dict) -> str:
        title = html.escape(values.get("tooltip") or "Play the steps")
        return (self.opening(number, values, "div", "widget-play", f' data-interval="{values.get("interval", 1200)}" data-min="{values.get("min", 0)}" data-max="{values["max"]}" data-at="{values.get("value", 0)}"')
                + f'<button type="button" class="jupyter-button demo-play" aria-label="Play" title="{title}">▶</button>'
                '<button type="button" class="jupyter-button demo-back" aria-label="One step back">‹</button>'
                '<button type="button" class="jupyter-button demo-on" aria-label="One step on">›</button></div>')

    def draw_intslider(self, number: int, values: dict) -> str:
        return self.slider(number, values, f'{values.get("value", 0)} / {values["max"]}', "")

    def draw_floatslider(self, number: int, values: dict) -> str:
        self.waiting = True
        return self.slider(number, values, f'{values["value"]:.3g}', f' disabled title="{REASON}"')

    def slider(self, number: int, values: dict, shown: str, more: str) -> str:
        low, high, at = values.get("min", 0), values["max"], values.get("value", 0)
        name = html.escape(values.get("description") or "value")
        return (self.opening(number, values, "div", "widget-slider", f' data-at="{at}"') + self.label(values)
                + f'<input type="range" min="{low}" max="{high}" step="{values.get("step", 1)}" value="{at}" aria-label="{name}"{more}>'
                + (f'<span class="widget-readout">{shown}</span>' if values.get("readout", True) else "") + "</div>")

    def draw_togglebuttons(self, number: int, values: dict) -> str:
        at = values.get("index")
        tips = values.get("tooltips") or []
        model = next(name for name, known in self.numbers.items() if known == number)
        alone = model not in self.linked and not self.moves  # nothing here follows it
        self.waiting |= alone
        buttons = "".join(
            f'<button type="button" class="jupyter-button widget-toggle-button{" mod-active" if k == at else ""}" aria-pressed="{str(k == at).lower()}"'
            + (f' disabled title="{REASON}"' if alone else f' title="{html.escape(tips[k])}"' if k < len(tips) else "") + f">{html.escape(text)}</button>"
            for k, text in enumerate(values["_options_labels"]))
        name = html.escape(values.get("description") or "choice")
        return self.opening(number, values, "div", "widget-toggle-buttons", f' data-at="{at}"') + self.label(values) + f'<div class="btn-group" role="group" aria-label="{name}">{buttons}</div></div>'

    def draw_button(self, number: int, values: dict) -> str:
        style = f' mod-{values["button_style"]}' if values.get("button_style") else ""
        more = ' type="button"'
        if not self.moves:
            layout = self.state.get(name_of(values.get("layout", "")), {"state": {}})["state"]
            self.waiting |= layout.get("display") != "none"
            more += f' disabled title="{REASON}"'
        return self.opening(number, values, "button", "jupyter-button" + style, more) + html.escape(values.get("description") or "") + "</button>"

    def draw_text(self, number: int, values: dict, kind: str = "text") -> str:
        self.waiting = True
        name = html.escape(values.get("description") or values.get("placeholder") or "value")
        return (self.opening(number, values, "div", "widget-text") + self.label(values)
                + f'<input type="{kind}" value="{html.escape(str(values.get("value", "")))}" aria-label="{name}" disabled title="{REASON}"></div>')

    def draw_floattext(self, number: int, values: dict) -> str:
        return self.draw_text(number, values, "number")
