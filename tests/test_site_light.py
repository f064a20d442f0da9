"""What a reader with a phone meets: how heavy pages are, how soon they answer, and that they compute the reader's own function.

Measured in Chromium with a network of 9 Mbps and 150 ms, and a processor four times slower than this machine's.
"""

import functools
import gzip
import html
import http.server
import importlib.util
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

import pytest
from conftest import ROOT, required
from fontTools.pens.boundsPen import BoundsPen
from fontTools.ttLib import TTFont

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs" / "inpage")]
import light  # noqa: E402
import mathematics  # noqa: E402
import own  # noqa: E402
import pack  # noqa: E402
import pages  # noqa: E402
import reference  # noqa: E402

KB = 1000
LIMITS = {"index.html": 250 * KB, "gallery.html": 800 * KB}
CHAPTER = 600 * KB
OBSERVE = """() => {
  window.measured = { shift: 0, blocked: 0 };
  new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) measured.shift += e.value; }).observe({ type: 'layout-shift', buffered: true });
  new PerformanceObserver(list => { for (const e of list.getEntries()) measured.blocked += Math.max(0, e.duration - 50); }).observe({ type: 'longtask', buffered: true });
}"""


def weight(site_folder: Path, address: str, requests: list[str]) -> int:
    "The bytes of these requests as a server sends them: text compressed."
    total = 0
    for url in dict.fromkeys(requests):
        path = site_folder / urllib.parse.unquote(urllib.parse.urlsplit(url).path).lstrip("/")
        content = path.read_bytes()
        total += len(content) if path.suffix in (".png", ".woff2", ".zip", ".wasm") else len(gzip.compress(content, 6))
    return total


def chapters(built_site) -> list[str]:
    return sorted(f"book/{path.name}" for path in (built_site / "book").glob("*.html") if path.name != "index.html")


def test_pages_are_light(built_site, site, browser_page):
    "All that a page fetches by itself, scrolled to its end, so that every demo came into view."
    browser_page.set_viewport_size({"width": 390, "height": 844})
    heavy, elsewhere = {}, []
    for name in [*LIMITS, *chapters(built_site)]:
        browser_page.requests.clear()
        browser_page.goto(f"{site}/{name}", wait_until="load")
        for demo in browser_page.locator(".demo").all():
            demo.scroll_into_view_if_needed()
        browser_page.wait_for_timeout(150)
        elsewhere += [url for url in browser_page.requests if not url.startswith((site, "data:", "blob:"))]
        size = weight(built_site, site, [url for url in browser_page.requests if url.startswith(site)])
        if size > LIMITS.get(name, CHAPTER):
            heavy[name] = size
        assert not [url for url in browser_page.requests if "searchindex" in url or "pyodide" in url], f"{name} loads what nobody asked for"
    assert not heavy
    assert not elsewhere or (own.runtime() is None and "npm" not in required()), elsewhere


class Compressing(http.server.SimpleHTTPRequestHandler):
    "Sends text compressed and keeps connections, as hosts of pages do."

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = Path(self.directory) / urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            return self.send_error(404)
        content, text = path.read_bytes(), path.suffix in (".html", ".css", ".js", ".svg", ".json")
        content = gzip.compress(content, 6) if text else content
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(content)))
        if text:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def compressed_site(built_site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Compressing, directory=str(built_site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


ANSWER = """addEventListener('DOMContentLoaded', () => {  // a control works when a click on it has changed what is shown
  const demo = document.querySelector('.demo[data-demo]:has(.widget-play)');
  if (!demo) { window.answered = performance.now(); return; }
  const stack = demo.querySelector('.widget-stack'), slider = demo.querySelector('.widget-slider input'), before = stack.innerHTML;
  const button = demo.querySelector(slider.value === slider.max ? '.demo-back' : '.demo-on');
  new MutationObserver(() => { if (stack.innerHTML !== before) window.answered ??= performance.now(); }).observe(stack, { childList: true, subtree: true });
  const press = () => { if (!window.answered) { button.click(); setTimeout(press, 100); } };
  press();
})"""


def seen_by_a_phone(browser, address: str) -> dict:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    phone = context.new_cdp_session(page)
    phone.send("Network.enable")
    phone.send("Network.setCacheDisabled", {"cacheDisabled": True})
    phone.send("Network.emulateNetworkConditions", {"offline": False, "latency": 150, "downloadThroughput": 9e6 / 8, "uploadThroughput": 3e6 / 8})
    phone.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.add_init_script(f"({OBSERVE})()")
    page.add_init_script(ANSWER)
    page.goto(address, wait_until="load", timeout=60_000)
    page.wait_for_function("window.answered", timeout=30_000)
    page.wait_for_timeout(1000)
    found = page.evaluate("({ ...measured, answered: answered / 1000 })")
    context.close()
    return found


@pytest.mark.parametrize("name", ["index.html", "gallery.html", "book/04_backward_pass.html", "yours.html"])
def test_a_phone_is_answered_soon(compressed_site, browser, name):
    """The first control works soon, little blocks, and nothing jumps. The aim is 2.5 s, 300 ms and 0.05. A quiet machine
    measures 1.0 to 2.0 s, 60 to 460 ms and 0.000 (`-s` prints it).

    Other work on this machine makes an emulated phone slower still: the best of a few tries counts, and times are
    allowed for by how many processes wait for each core.
    """
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)) if hasattr(os, "getloadavg") else 1.0
    tries = []
    for _ in range(3):
        tries.append(seen_by_a_phone(browser, f"{compressed_site}/{name}"))
        best = {key: min(each[key] for each in tries) for key in tries[0]}
        print(f"{name}: first control after {best['answered']:.2f} s, blocked {best['blocked']:.0f} ms, shift {best['shift']:.3f} (crowd {crowd:.1f})")
        if best["answered"] <= 2.5 and best["blocked"] <= 300 and best["shift"] <= 0.05:
            break
    assert best["shift"] <= 0.05, f"{name}: layout shift {best['shift']:.3f}"
    assert best["answered"] <= 4 * crowd, f"{name}: the first control worked after {best['answered']:.2f} s"
    assert best["blocked"] <= 1200 * crowd**2, f"{name}: blocked for {best['blocked']:.0f} ms"


def test_pages_are_light_in_what_they_draw_with(built_site):
    "One style sheet with the rules that pages use, no script before the text, and none of the theme's that asks every box how wide it is."
    for name in (*LIMITS, "book/04_backward_pass.html", "reference/torch.html"):
        text = (built_site / name).read_text(encoding="utf-8")
        assert len(re.findall(r'rel="stylesheet"', text)) == 1 and "_static/pages.css?v=" in text, name
        assert not re.findall(r"<script (?!defer)[^>]*src=", text), name
        assert "prefers-color-scheme: dark" in text[: text.index("pages.css")], f"{name}: light or dark is settled too late"
    sheet = (built_site / "_static" / "pages.css").read_text(encoding="utf-8")
    assert len(sheet) < 200 * KB and ".bd-article" in sheet and "> .code-line{" in sheet and ".fa-bars" in sheet and "carousel" not in sheet
    assert sheet.count("data:font/woff") == 1 and sheet.count("image/svg+xml") <= 2, "an icon that is a picture takes a phone 20 ms"
    assert not light.SCANS.search((built_site / "_static" / "scripts" / "pydata-sphinx-theme.js").read_text(encoding="utf-8"))


def test_rules_for_what_no_page_has_are_left_out():
    "A selector stays where an element can have all its classes; of a choice, or of what must not be there, none is asked for."
    css = "a{b:c} .here,.gone{d:e} .here .gone{f:g} .here:not(.gone){h:i} :is(.gone,.here){j:k} @media print{.gone{l:m} p{n:o}} @media all{.gone{p:q}} @font-face{r:s} .tooltip{t:u}"
    kept = light.used_rules(light.tinycss2.parse_stylesheet(css, skip_whitespace=True), {"here"})
    assert kept.split("\n") == ["a{b:c}", ".here{d:e}", ".here:not(.gone){h:i}", ":is(.gone,.here){j:k}", "@media print{p{n:o}}", "@font-face{r:s}", ".tooltip{t:u}"]


def test_icons_are_letters_of_a_font():
    font = TTFont(io.BytesIO(light.font({"fa-wide": ("1024", "512", "M0 0h1024v512H0z"), "fa-bar": ("256", "512", "M0 0h256v512H0z")})))
    assert font.getBestCmap() == {0xE000: "fa-wide", 0xE001: "fa-bar"} and font["hmtx"]["fa-bar"][0] == 640
    for name, box in (("fa-wide", (0, 32, 640, 352)), ("fa-bar", (192, -64, 448, 448))):  # as wide as there is room, in the middle
        pen = BoundsPen(None)
        font.getGlyphSet()[name].draw(pen)
        assert pen.bounds == box, name


def test_tokens_in_the_colour_of_all_code_need_no_element():
    css = "\n".join(f'html[data-theme="{theme}"] .highlight{rule}' for theme, ink in (("light", "#111111"), ("dark", "#eeeeee")) for rule in (f" {{ background: #000; color: {ink} }}", f" .n {{ color: {ink} }}", " .k { color: #6730C5 }", f" .b {{ color: {ink}; font-weight: bold }}"))
    tokens = light.plain_tokens(css)
    assert tokens.sub(r"\1", '<span class="k">if</span> <span class="n">x</span> <span class="b">y</span>') == '<span class="k">if</span> x <span class="b">y</span>'
    assert light.plain_tokens("").sub(r"\1", '<span class="n">x</span>') == '<span class="n">x</span>'


def test_each_line_of_code_is_an_element_that_knows_its_indent():
    "Also those of a token that runs over several lines."
    code = '<div class="highlight"><pre><span></span><span class="k">def</span> f():\n    <span class="s">&quot;a\n\n    b&quot;</span>\n</pre>'
    shown = light.CODE.sub(light.lines, code)
    assert re.findall(r'--in:(\d)">(.*)\n', shown) == [("0", '<span class="k">def</span> f():'), ("4", '    <span class="s">&quot;a</span>'), ("0", ""), ("4", '<span class="s">    b&quot;</span>')]
    assert html.unescape(re.sub("<[^>]+>", "", shown)) == html.unescape(re.sub("<[^>]+>", "", code))


def test_pictures_of_formulas_say_nothing_twice():
    svg = '<svg role="img" viewBox="0 0 9 9" xmlns="x"><g stroke="red"><g data-mml-node="math"><g data-mml-node="mi" transform="translate(3,0)"><use data-c="64" xlink:href="#A"></use></g><g transform="translate(4,0)"></g><g><rect x="1"></rect></g></g></g></svg>'
    assert mathematics.slim(svg) == '<svg viewBox="0 0 9 9"><g stroke="red"><use transform="translate(3,0)" xlink:href="#A"/><rect x="1"/></g></svg>'


def test_on_a_phone_nothing_is_cut_off_where_it_is_laid_out_late(built_site, site, browser_page):
    "Parts of a page that are laid out when they come near clip what is wider than they are: nothing is. And they have a height before that."
    browser_page.set_viewport_size({"width": 390, "height": 844})
    for name in [*LIMITS, *chapters(built_site), "mistakes.html", "benchmarks.html", "reference/nn.html"]:
        browser_page.goto(f"{site}/{name}", wait_until="load")
        late = browser_page.evaluate("""() => [...document.querySelectorAll('.bd-article *')].filter(e => getComputedStyle(e).contentVisibility === 'auto')
            .map(e => [e.id || e.className, e.tagName === 'SECTION' ? Math.round(e.getBoundingClientRect().height) : 400, e.scrollWidth - e.clientWidth])""")
        faults = [each for each in late if each[1] < 20 or each[2] > 6]
        assert not faults, f"{name}: {faults}"
        assert late or "<h2" not in (built_site / name).read_text(encoding="utf-8"), name


def test_on_a_phone_names_do_not_break_in_the_middle(site, browser_page):
    "In the lists of the reference each stands on a line of its own, above what it is."
    browser_page.set_viewport_size({"width": 375, "height": 800})
    for name in ("functional", "nn"):
        browser_page.goto(f"{site}/reference/{name}.html", wait_until="load")
        lines = browser_page.evaluate("""() => [...document.querySelectorAll('table.names td:first-child code')].map(e => [e.innerText, new Set([...e.getClientRects()].map(box => Math.round(box.top))).size])""")
        assert len(lines) > 50 and not [each for each in lines if each[1] > 1 and len(each[0]) < 36], name
    for name in ("book/06_controlling_the_graph", "book/09_sharp_edges", "ops/99_table", "contributing", "cheatsheet", "gallery"):
        browser_page.goto(f"{site}/{name}.html", wait_until="load")
        broken = browser_page.evaluate("""() => {
            document.head.insertAdjacentHTML('beforeend', '<style>* { content-visibility: visible !important; }</style>');
            const found = [], range = document.createRange();
            for (const code of document.querySelectorAll('.bd-article td code')) {
                const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
                for (let node; node = walker.nextNode();) for (const word of node.data.matchAll(/[\\w.]+/g)) {
                    range.setStart(node, word.index);
                    range.setEnd(node, word.index + word[0].length);
                    if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(code.textContent);
                }
            }
            return found; }""")
        assert not broken, name


def test_long_names_in_tables_have_joints():
    "Where there is none, the cell says so; what is done twice is done once."
    cells = {"<td><code>torch.optim.CosineAnnealing</code></td>": "<td><code>torch.<wbr>optim.<wbr>Cosine<wbr>Annealing</code></td>",
             '<td class="a"><code>averylongnamewithoutjoint</code></td>': '<td class="a" data-wide><code>averylongnamewithoutjoint</code></td>',
             "<td><code>short_name</code> of_everything_else</td>": "<td><code>short_name</code> of_everything_else</td>"}
    for before, after in cells.items():
        assert light.CELL.sub(light.jointed, before) == light.CELL.sub(light.jointed, after) == after


def test_without_javascript_demos_show_their_first_frame(built_site, site, browser):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(f"{site}/gallery.html")
    demos = page.locator(".demo[data-demo]")
    assert demos.count() > 10
    for demo in demos.all():
        assert demo.locator("svg, table, .ag-flow, .ag-debug, img").count(), demo.inner_text()[:100]
        assert "JavaScript" in demo.inner_text()
    play = page.locator(".demo-play").first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert play not in ("rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"), "without a script no colour is known"
    page.context.close()


def test_the_reference_has_a_heading_for_every_name():
    "Also for what is defined in a part of a notebook that was parted, and for second names."
    book = reference.Reference(set())
    for name in ("torch", "tensor", "nn"):
        text, _ = book.page(name)
        assert f"## {reference.REST}" not in text, text.split(f"## {reference.REST}")[1][:500]


def test_entries_of_classes_say_what_they_are_made_of():
    "Also where a base class takes the arguments."
    for notebook, name, arguments in (("nn/modules/16_pooling", "MaxPool2d", "(kernel_size, stride=None, padding=0"), ("nn/modules/11_dropout", "Dropout1d", "(p=0.5, inplace=False)"), ("nn/modules/23_instancenorm", "InstanceNorm2d", "(num_features, eps=")):
        home = pages.read(ROOT / f"nbs/{notebook}.ipynb")
        assert f"{{py:class}} {name}{arguments}" in pages.entry(home.classes[name], home, str)


def test_the_reference_says_something_of_every_name():
    "One sentence at least, from its documentation or from the table beside; and it lists no class that helps only inside."
    book = reference.Reference(set())
    for name in reference.PAGES:
        text = book.page(name)[0]
        assert not re.findall(r"^\| (.*?) \|\s*\|$", text, re.M), f"{name}: names without a sentence"
        assert "`Beside`" not in text, name


# The reader's own function ------------------------------------------------------------------------------------------

EXPRESSIONS = ["sin(x*x)", "(3*x + 2)**2", "x**y / 2", "log(x) - tanh(y)*3", "maximum(x, y)*sigmoid(x)", "2**x + sqrt(abs(y))", "exp(-x**2)", "relu(x - y)/(1 + y**2)", "cos(tan(x))", "x*x*x", "sinh(x)*cosh(y)",
               "atan(x*y) + asin(x/2)*acos(x)", "log2(x) - log10(y)"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    "What the page computes, by the modules it runs, without NumPy."
    folder = tmp_path_factory.mktemp("inpage")
    pack.write(folder)

    def ask(*questions):
        code = "import json, sys, page; assert not hasattr(sys.modules['numpy'], '__version__'); print(json.dumps([page.answer(*q) for q in json.load(sys.stdin)], allow_nan=False))"
        done = subprocess.run([sys.executable, "-c", code], input=json.dumps(questions), capture_output=True, text=True, cwd=folder, env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_the_page_computes_what_the_library_computes(answers):
    "Values and derivatives of expressions, against the engine that notebooks use."
    import autograd_nb as torch
    from autograd_nb.viz.expressions import parse_expression

    for text, answer in zip(EXPRESSIONS, answers(*[[text, {"x": 0.7, "y": 1.3}] for text in EXPRESSIONS])):
        leaves = {name: torch.tensor(at, dtype=torch.float64, requires_grad=True) for name, at in (("x", 0.7), ("y", 1.3)) if re.search(rf"\b{name}\b", text)}
        y = parse_expression(text, leaves)(**leaves)
        y.backward()
        assert not answer["error"], (text, answer["error"])
        assert math.isclose(answer["result"], y.item(), rel_tol=1e-6), text
        for name, leaf in leaves.items():
            assert math.isclose(answer["grads"][name], leaf.grad.item(), rel_tol=1e-6, abs_tol=1e-9), (text, name)


def test_pictures_without_numpy_are_those_with_it(answers):
    "The same recording, drawn by the package with NumPy and by the page without it: the same letters."
    from autograd_nb.viz.scalar import scalar_recording
    from autograd_nb.viz.steps import Frames

    recording, _ = scalar_recording(lambda x: (x * 3 + 2) * x.tanh(), {"x": 0.5})
    page, = answers(["(x*3 + 2)*tanh(x)", {"x": 0.5}])
    assert page["svg"] == Frames(recording, min_width=104).base


def test_wrong_expressions_are_told_as_in_notebooks(answers):
    from autograd_nb.viz.expressions import ExpressionError, parse_expression

    for text in ("x +", "foo(x)", "sin(x, x)", "x if x else 2", "maximum(x)", ""):
        answer, = answers([text, {"x": 1.0}])
        with pytest.raises(ExpressionError) as told:
            parse_expression(text, ["x"])
        assert str(told.value).rstrip(".") in re.sub(r"&#x27;", "'", answer["error"]), text
    for text, words in {"2(x + 1)": "2 is no function: a product", "x(x + 1)": "x is no function: a product", "(x - 1)(x + 1)": "x - 1 is no function: a product", "f(x)": "unknown function 'f'", "x @ y": "write *"}.items():
        answer, = answers([text, {"x": 1.0}])
        assert words in html.unescape(answer["error"]), (text, answer["error"])
    for text, shown in (("log(-x)", "nan"), ("x/0", "∞"), ("1/0", "divides a number by zero"), ("exp(x*1000)", "∞")):
        answer, = answers([text, {"x": 1.0}])
        assert shown in answer["error"] + answer["line"], (text, answer)


FUNCTIONS = {
    "def f(x, y):\n    for k in range(3):\n        x = sin(x) * y\n    return x + y": lambda torch, x, y: functools.reduce(lambda a, _: a.sin() * y, range(3), x) + y,
    "def f(x):\n    'Horner.'\n    a = 2\n    for k in range(4, 0, -1):\n        a *= x\n        a += k\n    return tanh(a / 9)": lambda torch, x: ((((2 * x + 4) * x + 3) * x + 2) * x + 1).div(9).tanh(),
    "def f(x, y):\n    for i in range(2):\n        for j in range(i + 1):\n            y -= x^2 / (1 + j)\n    return exp(y)": lambda torch, x, y: (y - x**2 - x**2 - x**2 / 2).exp(),
    "def f(x):\n    for k in range(9):\n        return x * 3\n    return x": lambda torch, x: x * 3,
    "def f(x):\n    while x < 30:\n        x = x * 2\n    if 1 < x <= 40: return -x\n    elif x == 44.8: return ln(x)\n    else: x = pi\n    return x": lambda torch, x: (x * 64).log(),
    "def f(x, y):\n    for k in range(280):\n        x = sin(x)*y + k\n    return x": lambda torch, x, y: functools.reduce(lambda a, k: a.sin() * y + k, range(280), x),
}
AS_ON_PAPER = {"f(x) = 2·x² − np.sin(π*x)": "2*x**2 - sin(pi*x)", "lambda x: math.exp(-x)": "exp(-x)", "y = x.tanh() + max(x, 0)": "tanh(x) + maximum(x, 0)", "e^x": "exp(x)", "0**x": "0*x"}


def test_functions_of_several_lines_compute_what_python_computes(answers):
    "Assignments, loops over range, return; values and derivatives against the engine that notebooks use."
    import autograd_nb as torch

    for (text, f), answer in zip(FUNCTIONS.items(), answers(*[[text, {"x": 0.7, "y": 1.3}] for text in FUNCTIONS])):
        leaves = {name: torch.tensor(at, dtype=torch.float64, requires_grad=True) for name, at in (("x", 0.7), ("y", 1.3)) if name in text[: text.index(":")]}
        y = f(torch, **leaves)
        y.backward()
        assert not answer["error"] and answer["names"] == list(leaves), (text, answer["error"])
        assert math.isclose(answer["result"], y.item(), rel_tol=1e-6), text
        for name, leaf in leaves.items():
            assert math.isclose(answer["grads"][name], leaf.grad.item(), rel_tol=1e-6), (text, name)


def test_what_is_written_as_on_paper_is_understood(answers):
    "Constants are no inputs, signs and prefixes are read, and `text` is what buttons go on from."
    for paper, one, other in zip(AS_ON_PAPER, answers(*[[text, {"x": 0.7}] for text in AS_ON_PAPER]), answers(*[[text, {"x": 0.7}] for text in AS_ON_PAPER.values()])):
        assert not one["error"] and one["names"] == ["x"], (paper, one["error"])
        assert math.isclose(one["result"], other["result"], rel_tol=1e-12) and math.isclose(one["grads"]["x"], other["grads"]["x"], rel_tol=1e-12), paper
        assert answers([one["text"], {"x": 0.7}])[0]["result"] == one["result"]


def test_a_long_loop_is_one_card(answers):
    names = "sin cos tan exp tanh abs sigmoid relu square".split()
    distinct = "".join(f"    x = {names[k**3 % 29 % 9]}(x)\n" for k in range(45))
    answer, refused = answers(["def f(x):\n    for k in range(300):\n        x = sin(x)*x\n    return x", {"x": 1.0}], [f"def f(x):\n{distinct}    return x", {"x": 1.0}])
    assert not answer["error"] and "299 × (sin → ×)" in html.unescape(answer["svg"]) and len(answer["captions"]) < 20
    assert "too many for a picture" in refused["error"]
    wide, short = answers(["+".join(f"sin({k}*x)" for k in range(1, 13)), {"x": 0.4}], ["sin(x)", {"x": 0.4}])
    said = re.findall(r'<g class="ag-pill[^>]*>.*?<text[^>]*>([^<]*)<', wide["svg"])
    assert "10 gradients" in said and max(map(len, said)) < 20, "what many rounds send along one edge has no room there"
    assert "the local derivative 0.9211 is remembered" in short["captions"][1]


def test_what_a_function_may_not_do_is_told_with_its_line(answers):
    told = {"def f(x):\n    if x: return 2\n    return x": "line 2: a condition compares numbers", "def f(x):\n    with x: return 2\n    return x": "line 2: 'with x:' is not understood", "def f(x):\n    return q": "line 2: unknown name 'q'", "def f(x):\n    a = x": "returns nothing",
            "def f(x)\n    return x": "line 1: this is not complete Python", "def f(x):\n    for k in range(10**9):\n        x = x*2\n    return x": "line 3: more than 2000 steps",
            "def f(x):\n    for k in range(x):\n        x = 2\n    return x": "line 2: range() takes whole numbers", "def f(x):\n    for k in [1, 2]:\n        x = 2\n    return x": "line 2: a loop goes over range",
            "def f():\n    return 1": "line 1: the inputs", "def f(x, x):\n    return x": "line 1: the inputs", "def f(x):\n    return x\nprint(3)": "line 3: one function alone",
            "def f(x):\n    a, b = x, x\n    return a": "line 2: a value is given to one name", "def f(x):\n    import os\n    return x": "line 2: 'import os'", "def f(x):\n    return x.data": "line 2: only numbers",
            "def f(x):\n    return __import__('os')": "line 2: unknown function", "def f(x):\n    for k in range(1e400):\n        x = 2\n    return x": "line 2: range()"}
    for (text, words), answer in zip(told.items(), answers(*[[text, {"x": 1.0}] for text in told])):
        assert words in html.unescape(answer["error"]), (text, answer["error"])


def agrees(page, demo):
    "What is read out is what is drawn: the line, the sliders and the cards, and the gradient of every input."
    seen = demo.evaluate("""root => {
      const shown = e => e.checkVisibility() && getComputedStyle(e).visibility === 'visible';
      return { line: root.querySelector('.own-line').innerText, numbers: [...root.querySelectorAll('.own-picture svg .ag-num')].filter(shown).map(e => e.textContent),
               sliders: Object.fromEntries([...root.querySelectorAll('.own-sliders input')].map(e => [e.name, [e.value, e.nextElementSibling.textContent]])) }; }""")
    said = [number for number in re.findall(r"= ([−\d.e∞]+)", seen["line"])]
    assert said and set(said) <= set(seen["numbers"]), seen
    for name, (value, shown) in seen["sliders"].items():
        assert float(value) == pytest.approx(float(shown), rel=1e-4)
        assert f"{float(value):.4g}".replace("-", "−") in seen["numbers"], f"{name} = {value} is not in the picture: {seen}"
    return seen


@pytest.mark.needs("npm")
@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_a_link_opens_the_readers_function(built_site, site, browser_page, width, scheme, tmp_path):
    "Expression and inputs from the address; sliders, steps, growing, files; and nothing that contradicts itself."
    if not (built_site / "_static" / "python" / "pyodide.asm.wasm").exists() and "npm" not in required():
        pytest.skip("npm could not fetch Python for pages")
    browser_page.emulate_media(color_scheme=scheme)
    browser_page.set_viewport_size({"width": width, "height": 900})
    browser_page.goto(f"{site}/yours.html?f=sin(x*x)*y&x=0.5&y=2", wait_until="load")
    demo = browser_page.locator(".demo-own")
    idle = "() => document.querySelector('.demo-own').getAttribute('aria-busy') === 'false'"
    browser_page.wait_for_function(f"() => document.querySelector('.own-line').innerText.includes('d/dy') && ({idle})()", timeout=120_000)
    assert demo.locator(".own-f").input_value() == "sin(x*x)*y" and "f = 0.4948" in demo.locator(".own-line").inner_text()
    agrees(browser_page, demo)
    slider = demo.locator(".own-sliders input").first
    slider.focus()
    browser_page.keyboard.press("ArrowRight")
    browser_page.wait_for_function(f"() => location.search.includes('x=0.55') && ({idle})()")
    before = demo.locator(".own-line").inner_text()
    slider.evaluate("e => { e.value = 1.25; e.dispatchEvent(new Event('input', { bubbles: true })); }")
    browser_page.wait_for_function("before => document.querySelector('.own-line').innerText !== before", arg=before)
    browser_page.wait_for_function(idle)
    agrees(browser_page, demo)
    assert "x=1.25" in browser_page.url and "f=sin" in browser_page.url
    box = demo.locator(".own-f")
    box.fill("tanh(z)")
    box.press("Enter")
    browser_page.wait_for_function("() => document.querySelector('.own-line').innerText.includes('d/dz')")
    assert demo.locator(".own-sliders input").count() == 1
    agrees(browser_page, demo)
    box.fill("1/(z - z)")
    box.press("Enter")
    browser_page.wait_for_function("() => /f = ∞.*nan/.test(document.querySelector('.own-line').innerText) && !document.querySelector('.own-wrong')")
    box.fill("nonsense(z)")
    box.press("Enter")
    browser_page.wait_for_function("() => document.querySelector('.own-line').innerText.includes('unknown function')")
    assert box.get_attribute("aria-invalid") == "true"
    box.fill("")
    box.press_sequentially("def f(z):\nfor k in range(2):\nz = sin(z)")  # a new line begins as far in as it has to
    assert box.input_value() == "def f(z):\n    for k in range(2):\n        z = sin(z)" and box.get_attribute("rows") == "3"
    box.fill(box.input_value() + "\n    return z")
    box.press("Control+Enter")
    browser_page.wait_for_function("() => document.querySelector('.own-line').innerText.includes('d/dz') && !document.querySelector('.own-wrong')")
    agrees(browser_page, demo)
    box.fill("tanh(z)*z")
    box.press("Enter")
    browser_page.wait_for_function("() => document.querySelector('.own-f').value === 'tanh(z)*z' && document.querySelector('.demo-own').getAttribute('aria-busy') === 'false'")
    browser_page.wait_for_function("() => document.querySelector('.own-line').innerText.includes('d/dz') && !document.querySelector('.own-wrong')")
    demo.get_by_role("button", name="Step through").click()
    captions = []
    while not captions or captions[-1] != demo.locator(".own-caption").inner_text():
        captions.append(demo.locator(".own-caption").inner_text())
        demo.locator(".demo-on").click()
    assert len(captions) >= 6 and "z.grad" in captions[-1]
    for kind, name in (("Save SVG", "gradient.svg"), ("Save animation", "gradient-animated.svg")):
        with browser_page.expect_download() as download:
            demo.get_by_role("button", name=kind).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.startswith("<svg") and ("step-end infinite" in text) == ("animated" in name)
    demo.get_by_role("button", name="Grow").click()
    back = demo.get_by_role("button", name="backward()", exact=True)
    assert back.is_disabled() and "already" in back.get_attribute("title")
    demo.get_by_role("button", name="square", exact=True).click()
    browser_page.wait_for_function("() => document.querySelector('.own-f').value === '(tanh(z)*z)**2' && !document.querySelector('.own-line').innerText.includes('d/dz')")
    demo.get_by_role("button", name="backward()", exact=True).click()
    browser_page.wait_for_function("() => document.querySelector('.own-line').innerText.includes('d/dz')")
    agrees(browser_page, demo)
    assert not browser_page.errors
    assert not [url for url in browser_page.requests if not url.startswith((site, "data:", "blob:"))]


def test_where_python_cannot_load_inputs_are_off(built_site, site, browser_page):
    "Blocked on the way: nothing can be typed any more, the picture stays, and there is another way to run it."
    browser_page.page.route("**/_static/python/**", lambda route: route.abort())
    browser_page.goto(f"{site}/yours.html", wait_until="load")
    demo = browser_page.locator(".demo-own")
    if demo.locator(".own-f").is_enabled():  # else npm was missing, and it is off from the start
        demo.locator(".own-f").fill("cos(x)")
        demo.locator(".own-f").press("Enter")
        demo.get_by_text("could not be loaded").wait_for()
    assert not demo.locator(":is(input, textarea, button):enabled").count()
    if own.runtime():
        assert not demo.locator(":is(input, textarea, button):not([title])").count(), "off without a reason"
    assert demo.locator(".own-f").input_value() == "sin(x*x)" and demo.get_by_role("link", name=re.compile("run it live", re.I)).count()


def test_the_archive_is_the_package_and_little_more():
    "The modules that draw are the package's own, letter for letter; nothing but the standard library is imported."
    files = pack.files()
    for name in pack.WHOLE:
        assert files[f"autograd_nb/{name}.py"] == (ROOT / "autograd_nb" / f"{name}.py").read_text(encoding="utf-8")
    assert pack.archive() == pack.archive() and len(pack.archive()) < 100 * KB
    assert importlib.util.find_spec("numpy") is not None
