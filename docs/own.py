"""The demo that computes the reader's own function in the page: its controls, its first picture, and the files it loads.

Python is Pyodide's core, and Graphviz its build for WebAssembly; both come from npm when the site is built, and a page
loads them at the first touch. `inpage/` has what Python runs there. The first picture is computed here by the same
modules, so that it is what the page would compute. Without npm the controls are there, switched off.
"""

import functools
import hashlib
import html
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import assets
from execute import ROOT
from executed import CACHE, replace

sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "inpage")]
import pack  # noqa: E402

FOLDER = "_static/python"
RUN = "import json, sys, page; print(json.dumps([page.answer(*asked) for asked in json.load(sys.stdin)]))"
GROW = {"+ 2": "f + 2", "× 3": "f*3", "square": "f**2", "sin": "sin(f)", "exp": "exp(f)", "tanh": "tanh(f)", "relu": "relu(f)", "backward()": "backward", "start again": "again"}


@functools.cache
def runtime() -> Path | None:
    "The folder with Pyodide and Graphviz; None where npm cannot fetch them."
    return assets.fetch(CACHE / "python", assets.PYTHON)


def files() -> dict[str, bytes]:
    "What the site has to hold for pages that compute: name -> content."
    folder = runtime()
    if folder is None:
        return {}
    found = {f"{FOLDER}/{path.name}": path.read_bytes() for path in folder.iterdir() if path.name != "complete"}
    found[f"{FOLDER}/page.zip"] = pack.archive()
    found[f"{FOLDER}/sizes.json"] = json.dumps({Path(name).name: len(content) for name, content in sorted(found.items())}).encode()
    return found


@functools.cache
def answer(expression: str, inputs: tuple, scope: str) -> dict:
    "What the page would show, computed by the modules that it would run; kept for as long as these are the same."
    asked = json.dumps([[expression, dict(inputs), scope]])
    made_of = json.dumps([asked, RUN, sys.version, pack.files()], sort_keys=True)
    kept = CACHE / "answers" / f"{hashlib.sha256(made_of.encode()).hexdigest()[:20]}.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        pack.write(Path(folder))
        done = subprocess.run([sys.executable, "-c", RUN], input=asked, capture_output=True, text=True, cwd=folder,
                              env={**os.environ, "PYTHONPATH": folder, "PYTHONUTF8": "1"})
    if done.returncode:
        raise SystemExit(f"docs/inpage cannot compute {expression!r}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)[0]
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace(kept, json.dumps(found))
    return found


def button(text: str, data: str, value: str, title: str = "") -> str:
    more = f' title="{html.escape(title)}"' if title else ""
    return f'<button type="button" class="jupyter-button" data-{data}="{html.escape(value)}" disabled{more}>{html.escape(text)}</button>'


def first_of(expression: str, sliders: dict) -> tuple[str, dict]:
    "What marks the demo, and its first picture. `sliders`: name -> (low, high, step, value)."
    scope = "agown" + "".join(c for c in f"{expression}{sorted(sliders)}" if c.isalnum())[:24]
    return scope, answer(expression, tuple((name, at) for name, (*_, at) in sliders.items()), scope)


def can(expression: str, sliders: dict) -> bool:
    "Whether a page can compute this itself, from these sliders alone."
    _, first = first_of(expression, sliders)
    return not first["error"] and set(first["names"]) <= set(sliders)


def demo(expression: str, sliders: dict, address: bool = False, title: str = "") -> str:
    "The demo as HTML. `sliders`: name -> (low, high, step, value)."
    scope, first = first_of(expression, sliders)
    if first["error"]:
        raise SystemExit(f"docs/own.py: {expression!r}: {first['error']}")
    kept = first | {"f": expression, "inputs": {name: sliders[name][3] for name in first["names"]}}
    data = json.dumps(kept, ensure_ascii=False).replace("</", "<\\/")
    rows = "".join(f'<label class="widget-slider">{html.escape(name)}<input type="range" name="{html.escape(name)}" min="{low}" max="{high}" step="{step}" value="{at}" '
                   f'aria-label="{html.escape(name)}" disabled><span class="widget-readout">{at:g}</span></label>' for name, (low, high, step, at) in sliders.items())
    last = len(first["captions"]) - 1
    modes = "".join(button(text, "mode", mode) for mode, text in (("explore", "Explore"), ("step", "Step through"), ("grow", "Grow")))
    saves = button("Save SVG", "save", "svg") + button("Save animation", "save", "animated", "An SVG that plays by itself") + button("Copy link", "save", "link")
    heading = f'<div class="agnb ag-heading">{html.escape(title)}</div>' if title else ""
    where = " data-address" if address else ""
    return (f'<div class="demo demo-own widget-subarea" data-scope="{scope}"{where}>{heading}'
            f'<div class="own-modes btn-group" role="group" aria-label="What to do">{modes}</div>'
            f'<label class="widget-text">f = <textarea class="own-f" rows="{min(12, expression.count(chr(10)) + 1)}" aria-label="f: an expression, or def f(x) on several lines" spellcheck="false" autocapitalize="off" autocomplete="off" maxlength="1000" disabled>{html.escape(expression)}</textarea></label>'
            f'<div class="own-grow btn-group" role="group" aria-label="Apply one more operation" hidden>{"".join(button(text, "grow", how) for text, how in GROW.items())}</div>'
            f'<div class="own-sliders">{rows}</div>'
            '<div class="own-steps widget-play" hidden><button type="button" class="jupyter-button demo-play" aria-label="Play" disabled>▶</button>'
            '<button type="button" class="jupyter-button demo-back" aria-label="One step back" disabled>‹</button><button type="button" class="jupyter-button demo-on" aria-label="One step on" disabled>›</button>'
            f'<span class="widget-slider"><input type="range" class="own-at" min="0" max="{last}" value="{last}" aria-label="step" disabled><span class="widget-readout">{last} / {last}</span></span></div>'
            f'<div class="agnb ag-line own-line" role="status">{first["line"]}</div><p class="own-loading not-here" role="status" hidden></p><div class="own-caption" hidden></div>'
            f'<style class="own-look">{first["css"]}{first["styles"][-1]}</style><div class="agnb {scope} own-picture" tabindex="0" role="region" aria-label="Drawing" style="overflow-x:auto">{first["svg"]}</div>'
            f'<div class="own-tools btn-group" role="group" aria-label="Keep it">{saves}</div><p class="own-notice not-here" role="status"></p>'
            + ("" if runtime() else '<p class="demo-note">Switched off here: <a href="#run-it">run it live</a>.</p>')
            + "<noscript><p>This is the demo’s first picture. It computes where JavaScript is allowed.</p></noscript>"
            + f'<script type="application/json">{data}</script></div>')


PAGE = """# Your own function

Type an expression, or a `def` of several lines, and move its inputs: the page differentiates it, forward and backward, and draws what it did. The engine is the one that
[chapter 8](/book/08_build_an_engine.ipynb) builds, plain Python, running in this page; the pictures are those of the notebooks.

```{{raw}} html
{live}
{demo}
```

**Explore** recomputes as the sliders move. **Step through** shows one operation at a time, first the values going forward, then the gradients
coming back. **Grow** applies one more operation with each button; `backward()` lets the gradients come. The address of this page changes with what you
type, so a copied link opens your function.

It knows `+ − * / **`, parentheses, `pi` and `e`, names of your own for up to four inputs, and {functions}. A function of several lines may have assignments,
`if`, `while` and loops over `range` before its `return`; click beside the box, or press Ctrl+Enter, when it is complete:

```python
def f(x, y):
    for k in range(3):
        x = sin(x) * y
    return x + y
```

Matrices and whole networks need the library: [install it](/index.ipynb) or run any chapter live.
"""


def page(live: str) -> str:
    from autograd_nb.viz.expressions import FUNCTIONS  # here, for a page of its own does not need the package

    listed = ", ".join(f"`{name}`" for name in FUNCTIONS)
    return PAGE.format(live=live, demo=demo("sin(x*x)", {"x": (-3, 3, 0.05, 0.5)}, address=True), functions=listed)
