"""The documentation site: every page is there, every link leads somewhere, and a browser shows it without a kernel or a network."""

import functools
import html
import json
import os
import re
import subprocess
import sys
import urllib.parse
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from _pace import within
from conftest import ROOT, Page, required

sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
import assets  # noqa: E402
import mathematics  # noqa: E402
import own  # noqa: E402
import pages as site_pages  # noqa: E402
import players  # noqa: E402
import reference  # noqa: E402
import speed  # noqa: E402
from execute import notebook_paths  # noqa: E402

import run  # noqa: E402


class Links(HTMLParser):
    "What a page refers to, and the places on it that can be referred to."

    def __init__(self, page: Path):
        super().__init__()
        self.targets, self.places = [], set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.places |= {attributes.get("id"), attributes.get("name")} - {None}
        wanted = {"a": "href", "link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}.get(tag)
        if wanted and attributes.get(wanted):
            self.targets.append(attributes[wanted])


def pages(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)


@functools.cache
def text_of(page: Path) -> str:
    "The page, without the marks where a long name may go on below."
    return page.read_text(encoding="utf-8").replace("<wbr>", "")


def test_every_notebook_has_its_page(built_site):
    missing = [path for path in notebook_paths()
               if not (built_site / path.relative_to(ROOT / "nbs").with_suffix(".html")).exists()]
    assert not missing


def test_no_internal_link_is_broken(built_site):
    links = {page: Links(page) for page in pages(built_site)}
    broken = []
    for page, found in links.items():
        for target in found.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            fragment = urllib.parse.unquote(parts.fragment)
            if not file.exists():
                broken.append(f"{page.relative_to(built_site)}: {target}")
            elif fragment and file in links and fragment not in links[file].places and page.name not in ("search.html",):
                broken.append(f"{page.relative_to(built_site)}: no such place: {target}")
    assert not broken, "\n".join(broken)


def test_prose_links_to_the_reference(built_site):
    "At least one name in backticks became a link to an entry on another page."
    assert any('class="reference internal"' in text and "#autograd_nb." in text
               for text in (page.read_text(encoding="utf-8") for page in pages(built_site)))


# Whatever text is on the page has to stand out from what is behind it. WCAG asks for 4.5, and 3 for large or inactive text.
CONTRAST = """() => {
  const channels = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = rgb => rgb.slice(0, 3).map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
      .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = element => {  // layers of half-transparent grounds, down to the first solid one
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = channels(getComputedStyle(e).backgroundColor);
      layers.push([r, g, b, a]);
      if (a === 1) break;
    }
    return layers.reduceRight((under, [r, g, b, a]) => [r, g, b].map((c, i) => a * c + (1 - a) * under[i]), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.querySelector('.bd-article') || document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const e = node.parentElement;
    if (!node.data.trim() || e.closest('svg, script, style, mjx-container, .headerlink, .math')) continue;
    if (!e.checkVisibility({ opacityProperty: true })) continue;
    const style = getComputedStyle(e);
    if (!style.color.startsWith('rgb')) continue;
    const [a, b] = [luminance(channels(style.color)), luminance(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 3) found.push(`${ratio.toFixed(1)}: ${node.data.trim().slice(0, 40)} (${e.className || e.tagName})`);
  }
  return [...new Set(found)];
}"""


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_every_page_opens_without_errors(built_site, site, browser_page, width, scheme):
    "No error, no word on the console, readable text, nothing wider than the screen, and nothing fetched from elsewhere (where npm made that possible)."
    said = []
    browser_page.page.on("console", lambda message: said.append(message.text))
    browser_page.emulate_media(color_scheme=scheme)
    browser_page.set_viewport_size({"width": width, "height": 900})
    offline = served_alone(built_site)
    assert offline or "npm" not in required(), "the JavaScript that npm fetches is not in the site"
    faults = []
    for path in pages(built_site):
        name = path.relative_to(built_site).as_posix()
        browser_page.errors.clear()
        browser_page.requests.clear()
        browser_page.goto(f"{site}/{name}", wait_until="load")
        browser_page.wait_for_timeout(200 if browser_page.locator(".demo").count() else 50)
        # Without npm's files pages ask for public copies, which this machine may not be able to reach.
        faults += [f"{name}: {error}" for error in browser_page.errors if offline or site in error]
        faults += [f"{name}: says {text!r} on the console" for text in said if offline]
        said.clear()
        if browser_page.evaluate("document.documentElement.dataset.theme") != scheme:
            faults.append(f"{name}: is not {scheme}")
        faults += [f"{name}: contrast {text}" for text in browser_page.evaluate(CONTRAST)]
        wide = browser_page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 1:
            faults.append(f"{name}: {wide} pixels wider than a screen of {width}")
        if offline:
            faults += [f"{name}: fetches {url}" for url in browser_page.requests if not url.startswith((site, "data:", "blob:"))]
    assert not faults, "\n".join(faults)


def served_alone(built_site) -> bool:
    "Whether npm's files are in the site: then it needs nothing from elsewhere."
    return own.runtime() is not None and (built_site / "_static" / "python" / "pyodide.asm.wasm").exists()


def test_demos_replay_without_a_kernel(built_site, site, browser_page):
    "On every page with a player, in all of them: slider, buttons and Play change what is shown, and the slider says which step that is."
    with_player = [path for path in pages(built_site) if 'class="jupyter-widgets widget-play"' in text_of(path)]
    assert len(with_player) > 10
    for path in with_player:
        name = path.relative_to(built_site).as_posix()
        browser_page.errors.clear()
        browser_page.goto(f"{site}/{name}", wait_until="load")
        for demo in browser_page.locator(".demo[data-demo]:has(.widget-play)").all():
            demo.scroll_into_view_if_needed()
            stack, slider = demo.locator(".widget-stack").first, demo.locator(".widget-slider input").first
            changed = "([element, before]) => element.innerHTML !== before"
            for way in ("button", "key"):
                element, before = stack.element_handle(), stack.evaluate("e => e.innerHTML")
                at, first, last = slider.input_value(), slider.get_attribute("min"), slider.get_attribute("max")
                if way == "button":
                    demo.locator(".demo-back" if at == last else ".demo-on").first.click()
                else:
                    slider.press("Home" if at != first else "End")
                browser_page.wait_for_function(changed, arg=[element, before], timeout=30_000)
                shown = demo.locator(".widget-readout").all_inner_texts()  # none where the slider moves an input, whose value the caption tells
                assert shown in ([], [f"{slider.input_value()} / {last}"]), f"{name}: the slider stands at {slider.input_value()} and reads {shown}"
        play = browser_page.locator(".demo-play").first
        stack = browser_page.locator(".demo[data-demo]:has(.widget-play) .widget-stack").first
        element, before = stack.element_handle(), stack.evaluate("e => e.innerHTML")
        play.click()
        browser_page.wait_for_function(changed, arg=[element, before], timeout=30_000)
        assert not browser_page.errors, f"{name}: {browser_page.errors}"


# What a demo says at each of its steps: the words of its caption, the numbers of its picture, and where its slider stands.
SAYS = r"""async root => {
  const slider = root.querySelector('.widget-slider input'), found = [];
  const sees = e => e.checkVisibility() && getComputedStyle(e).visibility === 'visible';
  const told = query => [...root.querySelectorAll(query)].filter(sees).map(e => e.textContent.trim());
  const stack = () => [...root.querySelectorAll('.widget-stack')].at(-1);  // the innermost: a choice has the others
  for (let k = +slider.min; k <= +slider.max; k++) {
    slider.value = k;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    for (let waited = 0; +stack().dataset.at !== k && waited < 400; waited++) await new Promise(next => setTimeout(next, 5));
    found.push({ k, at: +stack().dataset.at, slider: +slider.value, last: +slider.max, readout: root.querySelector('.widget-readout')?.textContent, label: root.querySelector('.widget-slider .widget-label').textContent, caption: told('.ag-caption').join(' '), drawn: told('svg.agnb text, td'),
                 graph: Boolean(root.querySelector('svg.agnb .ag-num, td')) });
  }
  return found;
}"""
NUMBER = r"−?(?:\d+(?:\.\d+)?(?:e[−+]?\d+)?|∞)"
FACT = re.compile(rf"(?<![\w.])([A-Za-z_][\w./]*) = ({NUMBER})(?![\w.]*[\d\w(·×])")
SUM = re.compile(rf"(?<![·×+^/(−-] )(?<![\w.(−])({NUMBER}) ([×·+−]) ({NUMBER}) = ({NUMBER})(?![\d\w.])")


def contradictions(frames: list[dict]) -> list[str]:
    "What these steps say in two ways: a number that the caption gives to a name and the graph does not show, a sum that is none, a slider that stands elsewhere."
    found = []
    for frame in frames:
        here = f"step {frame['k']}"
        if not frame["at"] == frame["slider"] == frame["k"] or frame.get("readout") != (f"{frame['k']} / {frame['last']}" if frame["label"] == "step" else None):
            found.append(f"{here}: the slider reads {frame.get('readout')!r} as {frame['label']}, and frame {frame['at']} is shown")
        numbers = set(re.findall(NUMBER, " ".join(frame["drawn"])))
        if frame["graph"]:
            found += [f"{here}: the caption says {name} = {number}, and the graph shows it nowhere" for name, number in FACT.findall(frame["caption"]) if number not in numbers]
        for a, sign, b, result in SUM.findall(frame["caption"]):
            a_, b_, shown = (float(text.replace("−", "-").replace("∞", "inf")) for text in (a, b, result))
            computed = {"+": a_ + b_, "−": a_ - b_}.get(sign, a_ * b_)
            if abs(computed - shown) > 2e-3 * max(abs(a_), abs(b_), abs(shown)):
                found.append(f"{here}: the caption says {a} {sign} {b} = {result}")
    return found


def test_contradictions_are_found():
    frame = {"k": 1, "at": 1, "slider": 1, "last": 3, "readout": "1 / 3", "label": "step", "caption": "incoming 10 × local 3 = 30: x.grad = 30, 2 × 3 = 6, 1 + 2 × 3 = 7", "drawn": ["x", "30", "10 = 10"], "graph": True}
    assert not contradictions([frame])
    for change, words in (({"drawn": ["x", "31"]}, "x.grad = 30"), ({"at": 2}, "frame 2"), ({"readout": "2 / 3"}, "'2 / 3'"), ({"label": "x"}, "as x"), ({"caption": "2 × 3 = 7"}, "2 × 3 = 7"), ({"caption": "it is −1 + 3 = −2"}, "−1 + 3")):
        assert words in " ".join(contradictions([frame | change])), change


def test_no_demo_contradicts_itself(built_site, site, browser_page):
    "In every frame of every demo: captions, formulas, graphs, tables and sliders say the same numbers."
    faults, frames = [], 0
    for path in pages(built_site):
        if 'class="jupyter-widgets widget-play"' not in text_of(path):
            continue
        name = path.relative_to(built_site).as_posix()
        browser_page.goto(f"{site}/{name}", wait_until="load")
        for number, demo in enumerate(browser_page.locator(".demo[data-demo]:has(.widget-play)").all()):
            demo.scroll_into_view_if_needed()
            said = demo.evaluate(SAYS)
            frames += len(said)
            faults += [f"{name}, demo {number}, {fault}" for fault in contradictions(said)]
    assert frames > 300
    assert not faults, "\n".join(faults)


SMALL_LETTERS = """() => {
  const found = {};
  for (const text of document.querySelectorAll('.bd-article svg text')) {
    const matrix = text.closest('mjx-container, .math') || !text.checkVisibility() ? null : text.getScreenCTM();
    const size = matrix && parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b);
    if (matrix && size < 10.9) found[text.closest('svg').getAttribute('aria-label')] = size.toFixed(1);
  }
  return Object.entries(found).map(([name, size]) => `${name}: ${size}`);
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_letters_in_pictures_are_large_enough(built_site, site, browser_page, width):
    "At least eleven pixels on every page: a picture scrolls rather than shrink further."
    browser_page.set_viewport_size({"width": width, "height": 844})
    faults, looked = [], 0
    for path in pages(built_site):
        if "<svg" in text_of(path):
            name = path.relative_to(built_site).as_posix()
            browser_page.goto(f"{site}/{name}", wait_until="load")
            browser_page.add_style_tag(content="* { content-visibility: visible !important }")
            faults += [f"{name}: {fault}" for fault in browser_page.evaluate(SMALL_LETTERS)]
            looked += 1
    assert looked > 40 and not faults, "\n".join(faults)


# How high a demo is at each step, when all of them have been seen once, and how far below its top its drawing begins from the start.
HEIGHTS = """async root => {
  const slider = root.querySelector('.widget-slider input:not([disabled])'), found = [];
  const stack = () => [...root.querySelectorAll('.widget-stack')].at(-1);
  for (let waited = 0; !root.style.getPropertyValue('--caption') && waited < 400; waited++) await new Promise(next => setTimeout(next, 5));  // the frames come
  for (const round of [0, 1]) for (let k = +slider.min; k <= +slider.max; k++) {
    slider.value = k;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    for (let waited = 0; +stack().dataset.at !== k && waited < 400; waited++) await new Promise(next => setTimeout(next, 5));
    const caption = root.querySelector('.ag-caption')?.offsetHeight ?? 0;
    if (round) found.push(root.offsetHeight, caption); else found.push(null, caption);
  }
  return found;
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_moves_while_a_demo_plays(built_site, site, browser_page, width):
    "Captions are as high at every step, so that the drawing below stays where it is, and nor does what stands below the demo come up again."
    browser_page.set_viewport_size({"width": width, "height": 844})
    faults, demos = [], 0
    for name in ("index", "gallery", "book/01_why_autodiff", "book/02_computation_graph", "book/04_backward_pass", "book/07_custom_functions", "book/11_checkpointing"):
        browser_page.goto(f"{site}/{name}.html", wait_until="load")
        for number, demo in enumerate(browser_page.locator(".demo[data-demo]:has(.widget-play)").all()):
            demo.scroll_into_view_if_needed()
            said = demo.evaluate(HEIGHTS)
            heights, captions = set(said[0::2]) - {None}, set(said[1::2])
            demos += 1
            if max(heights) - min(heights) > 2 or len(captions) > 1:
                faults.append(f"{name}, demo {number}: heights {sorted(heights)}, captions {sorted(captions)}")
    assert demos > 15 and not faults, "\n".join(faults)


COVERED = """() => [...document.querySelectorAll('.graph-open')].filter(e => e.checkVisibility()).flatMap(open => {
  open.scrollIntoView({ block: 'center' });
  const a = open.getBoundingClientRect();
  return [...open.closest('.demo, .cell_output').querySelectorAll('button, input, textarea, .ag-heading, svg.agnb text')].filter(e => e !== open && e.checkVisibility()).filter(e => {
    const b = e.getBoundingClientRect();
    return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  }).map(e => e.textContent.trim() || e.className);
})"""


@pytest.mark.parametrize("width", [390, 1210])  # at 1280 most graphs fit
def test_the_button_for_the_whole_screen_covers_nothing(built_site, site, browser_page, width):
    browser_page.set_viewport_size({"width": width, "height": 844})
    seen = 0
    for name in ("gallery", "book/01_why_autodiff", "book/02_computation_graph", "viz/08_picture"):
        browser_page.goto(f"{site}/{name}.html", wait_until="load")
        for place in browser_page.locator(".demo, .cell_output").all():
            place.scroll_into_view_if_needed()
        browser_page.wait_for_timeout(200)
        seen += browser_page.locator(".graph-open:visible").count()
        assert not browser_page.evaluate(COVERED), name
    assert seen > 5


def test_buttons_that_nothing_follows_are_off(site, browser_page):
    "Such as the choices of the debugger, which ask a kernel; each says why."
    browser_page.goto(f"{site}/gallery.html", wait_until="load")
    choices = browser_page.locator(".demo .widget-toggle-buttons button", has_text="clip norm to")
    assert choices.count() and all(choice.is_disabled() and choice.get_attribute("title") for choice in choices.all())
    assert browser_page.locator(".demo .widget-toggle-buttons button", has_text="clamp(−1, 1)").first.is_enabled()


def test_a_function_of_a_chapter_is_computed_in_the_page(built_site, site, browser_page):
    "Not only expressions: a short `def` whose source the notebook kept."
    if not served_alone(built_site):
        pytest.skip("Python is not in the site")
    browser_page.goto(f"{site}/book/02_computation_graph.html", wait_until="load")
    demo = browser_page.locator(".demo-own", has_text="Drag x: each run makes a new graph")
    slider = demo.locator(".own-sliders input")
    slider.evaluate("e => { e.value = 3; e.dispatchEvent(new Event('input', { bubbles: true })) }")
    browser_page.wait_for_function("e => e.textContent.includes('f = 0.75')", arg=demo.locator(".own-line").element_handle(), timeout=60_000)
    assert "d/dx = 0.25" in demo.locator(".own-line").inner_text() and not browser_page.errors


def test_a_graph_opens_on_the_whole_screen(site, browser, tmp_path):
    "Where it is larger than its place: dragged by one finger, enlarged by two, searched, saved as a file that needs no page, closed by a key."
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{site}/gallery.html", wait_until="load")
    open_it = page.locator(".graph-open").first
    open_it.tap()
    stage, paper = page.locator(".graph-stage"), page.locator(".graph-paper")

    def place():
        return [float(number) for number in re.findall(r"-?[\d.]+", paper.get_attribute("style"))]

    fingers = context.new_cdp_session(page)

    def touch(*moments):
        for kind, points in zip(("touchStart", *["touchMove"] * (len(moments) - 1), "touchEnd"), (*moments, ())):
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)]})

    x, y, scale = place()
    touch([(200, 400)], [(230, 440)], [(240, 460)])
    assert place() == pytest.approx([x + 40, y + 60, scale], abs=1)
    touch([(150, 400), (250, 400)], [(140, 400), (260, 400)], [(100, 400), (300, 400)])
    assert place()[2] == pytest.approx(2 * scale, rel=0.05)
    page.get_by_role("button", name="Show all of it").tap()
    box, view = paper.bounding_box(), stage.bounding_box()
    assert view["x"] <= box["x"] and box["x"] + box["width"] <= view["x"] + view["width"] == 390
    page.get_by_role("searchbox", name="Find a node").last.fill("MulBackward")
    assert page.locator(".graph-told").inner_text() == "1 of 1"
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").tap()
    download.value.save_as(tmp_path / "graph.svg")
    saved = (tmp_path / "graph.svg").read_text(encoding="utf-8")
    assert "MulBackward0" in saved and "var(" not in saved and "<style" not in saved and ElementTree.fromstring(saved).get("width")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a page of its own").tap()
    download.value.save_as(tmp_path / "graph.html")
    page.keyboard.press("Escape")
    page.locator("dialog.graph-view").wait_for(state="detached")  # the browser tells of a closed dialog a moment later
    context.close()
    alone = Page(browser.new_context(viewport={"width": 900, "height": 600}))
    for name in ("graph.html", "again.html"):  # the page that it saves is one that can do the same
        alone.goto((tmp_path / name).as_uri())
        alone.get_by_role("searchbox", name="Find a node").fill("MulBackward")
        assert alone.locator(".graph-told").inner_text() == "1 of 1"
        with alone.expect_download() as download:
            alone.get_by_role("button", name="Save as a page of its own").click()
        download.value.save_as(tmp_path / "again.html")
    assert not alone.errors and all(url.startswith(("file:", "blob:", "data:")) for url in alone.requests)
    alone.context.close()


def test_search_ranks_chapters_first(site, browser_page):
    "And shows of a page what it says, not what stands on its buttons."
    browser_page.goto(f"{site}/search.html?q=gradient+accumulation")
    browser_page.locator("#search-results li a").first.wait_for()
    browser_page.locator("#search-results li p.context").nth(2).wait_for()
    assert not [text for text in browser_page.locator("#search-results p.context").all_inner_texts() if re.match(r"\W*Contents\b", text)]
    icon, field = browser_page.locator(".bd-search-container .bd-search i").bounding_box(), browser_page.locator(".bd-search-container input")
    assert field.evaluate("e => e.getBoundingClientRect().left + parseFloat(getComputedStyle(e).paddingLeft)") >= icon["x"] + icon["width"] - 3
    found = [a.get_attribute("href") for a in browser_page.locator("#search-results li a").all()[:3]]
    # a word that the glossary explains is answered there first
    assert all("book/" in address or address.startswith("glossary.html#term-") for address in found), found
    shown = " ".join(browser_page.locator("#search-results li p.context").all_inner_texts())
    assert "Show the" not in shown and "JupyterLab" not in shown


def test_of_chapters_that_answer_equally_the_earlier_comes_first(site, browser_page):
    browser_page.goto(f"{site}/search.html")
    ranked = browser_page.evaluate("""() => ['04_backward', '04b_layers', '12_higher', 'recipes', '02_graph']
        .map(name => [Scorer.score([`book/${name}`, '', '', '', 5, '']), name]).sort((a, b) => b[0] - a[0]).map(each => each[1])""")
    assert ranked == ["02_graph", "04_backward", "04b_layers", "12_higher", "recipes"]


def test_what_is_found_fits_a_phone(site, browser_page):
    "Signatures and long names in what is shown of a page go on below; the gallery is no answer before the chapters."
    browser_page.set_viewport_size({"width": 390, "height": 844})
    for words in ("broadcasting", "zero_grad"):
        browser_page.goto(f"{site}/search.html?q={words}")
        browser_page.locator("#search-results li p.context").nth(25).wait_for()
        assert browser_page.evaluate("document.documentElement.scrollWidth") <= 390, words
    found = [a.get_attribute("href") for a in browser_page.locator("#search-results li > a").all()[:5]]
    # a word that the glossary explains is answered there first
    assert all("book/" in address or address.startswith("glossary.html#term-") for address in found), found


def test_a_chapter_has_a_card_of_its_own(built_site):
    "What other places show beside a link."
    cards = {}
    for path in notebook_paths():
        if path.parent.name == "book":
            image = re.search(r'property="og:image" content="([^"]+)"', text_of(built_site / "book" / f"{path.stem}.html"))[1]
            cards[path.stem] = (built_site / image[image.index("_static/"):]).read_bytes()
    assert len(set(cards.values())) == len(cards) and all(card.startswith(b"\x89PNG") for card in cards.values())


def test_the_library_tells_which_room_is_which(built_site):
    text = text_of(built_site / "library" / "index.html")
    rooms = {path.parent.relative_to(ROOT / "nbs").as_posix() for path in notebook_paths()} - {"book", "."}
    assert not [room for room in rooms if f">{room}<" not in text]
    said = re.sub("<[^>]+>", "", text)
    assert not [room for room in rooms if not re.search(rf"^{room} \(\d+ notebooks?\): .{{10,}}\.$", said, re.M)], "a room without a sentence"


def test_the_core_is_read_unfolded(built_site):
    "In its rooms the code is the story; elsewhere it is folded below its entry. Links lead to the code."
    for path in notebook_paths():
        room = path.parent.name
        if room in ("graph", "layers"):
            text = text_of(built_site / path.relative_to(ROOT / "nbs").with_suffix(".html"))
            assert "Show the source" not in text, path
    engine = text_of(built_site / "graph" / "07_engine.html")
    place = engine.index('id="autograd_nb.graph.engine.Plan"')
    code = re.sub("<[^>]+>", "", engine[place:])
    assert "class Plan(Limits):" in code[:1500]
    assert "Show the source" in text_of(built_site / "optim" / "optimizer" / "01_base.html")


def test_words_become_links_only_where_they_are_the_name():
    "A word that a page uses for a variable of its own stays a word."
    notebooks = [site_pages.read(path) for path in notebook_paths()]
    names = site_pages.Names(notebooks)
    here = next(n for n in notebooks if n.document == "book/03_chain_rule")
    for word in ("extra", "tensor", "undo", *sorted(here.variables)[:20]):
        assert site_pages.linked(f"The `{word}` here", names, here) == f"The `{word}` here"
    for word in ("forward", "state_dict()", "parameters()", "remove()", "timeline()", "graph", "round"):
        assert "py:obj" not in site_pages.linked(f"The `{word}` here", names, here), f"{word} is a method, and the function of that name something else"
    assert "py:obj" in site_pages.linked("Call `gradcheck()` here, `vmap` and `clone()`", names, here)
    engine = next(n for n in notebooks if n.document == "book/08_build_an_engine")
    assert "py:obj" not in site_pages.linked("made of nothing but your `Value`", names, engine), "the page has a class of that name"
    assert "py:obj" in site_pages.linked("Call `gradcheck()` here", names, here)
    link = "the [`gradcheck`](06_testing.ipynb), and [all of `gradcheck` there](06_testing.ipynb)"
    assert site_pages.linked(link, names, here) == link


def test_one_page_is_built_in_seconds(tmp_path):
    "The page of one notebook that has run, at the second time."
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--only", "book/03_chain_rule"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with within(15):  # 3 to 5 on a quiet machine
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    page = Path(re.search(r"The page is (.+)", done.stdout)[1])
    assert "<svg" in page.read_text(encoding="utf-8")
    wrong = subprocess.run([*command[:-1], "no_such_page"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 1 and "no notebook" in wrong.stderr


def test_a_changed_configuration_makes_all_pages_anew(tmp_path):
    "Also pages whose own text stayed: what a function in conf.py adds to each of them is no value that Sphinx compares."
    source, site = tmp_path / "source", tmp_path / "site"
    (source / "_static").mkdir(parents=True)
    for name in ("access.js", "site.css", "icon.svg", "scorer.js"):
        (source / "_static" / name).write_bytes((ROOT / "docs" / "_static" / name).read_bytes())
    (source / "index.md").write_text("# One\n\n```{toctree}\ntwo\n```\n", encoding="utf-8")
    (source / "two.md").write_text("# Two\n\nText.\n", encoding="utf-8")
    conf = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    for word in ("first.js", "second.js"):
        (source / "conf.py").write_text(conf.replace('body = context.get("body", "")', f'body = context.get("body", "")\n    app.add_js_file("{word}")', 1), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(site)], env={**os.environ, "AUTOGRAD_NB_ROOT": str(ROOT)}, check=True, capture_output=True)
        for name in ("index", "two"):
            assert f"_static/{word}" in (site / f"{name}.html").read_text(encoding="utf-8"), (name, word)
    assert "first.js" not in (site / "two.html").read_text(encoding="utf-8")


# What belongs to the whole site ----------------------------------------------------------------------------------


def test_no_page_is_heavy(built_site):
    "At most 1.5 MB with its pictures; scripts and styles are shared by all pages."
    heavy = {}
    for page in pages(built_site):
        pictures = {(page.parent / target).resolve() for target in re.findall(r'<img[^>]*src="([^":]+)"', text_of(page))}
        size = page.stat().st_size + sum(path.stat().st_size for path in pictures if path.is_file())
        if size > 1.5e6:
            heavy[page.relative_to(built_site).as_posix()] = size
    assert not heavy


def test_chapters_are_listed_in_reading_order(built_site):
    "Whatever chapters there are; nobody lists them by hand."
    chapters = [path.stem for path in notebook_paths() if path.parent.name == "book"]
    listed = re.findall(r'class="chapters.*?</ul>', text_of(built_site / "book" / "index.html"), re.S)
    numbered = [name for name in chapters if name[0].isdigit()]
    assert re.findall(r'<li><p><a class="reference internal" href="(\w+)\.html"', listed[0]) == sorted(numbered)
    for name, following in zip(numbered, numbered[1:]):
        assert re.search(rf'class="right-next"\s+href="{following}\.html"', text_of(built_site / "book" / f"{name}.html")), f"{name} does not lead on to {following}"
    for name in set(chapters) - set(numbered):
        assert f'href="{name}.html"' in text_of(built_site / "book" / "index.html")


def test_every_notebook_can_be_opened_live(built_site):
    "With the repository's one address; the file to take along is the notebook itself."
    repository = site_pages.REPOSITORY.removeprefix("https://github.com/")
    for path in notebook_paths():
        name = path.relative_to(ROOT / "nbs")
        text = text_of(built_site / name.with_suffix(".html"))
        assert (built_site / "notebooks" / name).read_bytes() == path.read_bytes()
        if name.as_posix() == "index.ipynb":
            continue
        branch = site_pages.settings["branch"]
        assert f"https://mybinder.org/v2/gh/{repository}/{branch}?urlpath=lab/tree/nbs/{name.as_posix()}" in text
        assert f"https://colab.research.google.com/github/{repository}/blob/{branch}/nbs/{name.as_posix()}" in text
        assert f"python run.py tutorial {name.as_posix()}" in text and run.chosen_notebook(name.as_posix()) == name.as_posix()
    assert run.chosen_notebook("03_chain_rule") == run.chosen_notebook("nbs/book/03_chain_rule.ipynb") == "book/03_chain_rule.ipynb" and run.chosen_notebook(None) is None
    with pytest.raises(run.Problem, match="no notebook nowhere"):
        run.chosen_notebook("nowhere")


def test_links_lead_to_where_the_project_is():
    "To the fork that a clone comes from, else where settings.ini says, and nowhere if it does not say."
    here = {"git_url": "https://github.com/somebody/autograd_nb", "user": "somebody"}
    for origin in ("https://github.com/fork/autograd_nb.git\n", "git@github.com:fork/autograd_nb.git", "ssh://git@github.com/fork/autograd_nb", "https://github.com/fork/autograd_nb/"):
        assert site_pages.repository(origin, here) == "https://github.com/fork/autograd_nb"
    for origin in ("", "/home/me/autograd_nb", "https://example.org/fork/autograd_nb.git"):
        assert site_pages.repository(origin, here) == here["git_url"] and site_pages.repository(origin, here | {"user": ""}) == ""
    notebook = site_pages.read(ROOT / "nbs" / "gallery.ipynb")
    everything, alone = site_pages.live_links(notebook, here["git_url"]), site_pages.live_links(notebook, "")
    assert "mybinder.org/v2/gh/somebody/autograd_nb/" in everything and "colab" in everything
    assert "binder" not in alone and "colab" not in alone and "run.py tutorial gallery.ipynb" in alone and "download" in alone


def test_links_look_well_elsewhere(built_site):
    "Every page has a title, a description and a picture for other places to show."
    address, pictures = site_pages.settings["doc_host"] + site_pages.settings["doc_baseurl"] + "/", set()
    for page in pages(built_site):
        found = dict(re.findall(r'<meta property="og:([\w:]+)" content="([^"]*)"', text_of(page)))
        name = page.relative_to(built_site).as_posix()
        assert found["title"] and found["description"] and found["url"] == address + name, name
        assert found["image"].startswith(address + "_static/"), name
        pictures.add(found["image"].removeprefix(address))
    for picture in pictures:
        start = (built_site / picture).read_bytes()[:24]
        assert start[:8] == b"\x89PNG\r\n\x1a\n" and (int.from_bytes(start[16:20]), int.from_bytes(start[20:24])) == (1200, 630), picture


def test_the_reference_lists_every_public_name(built_site):
    import autograd_nb as torch

    shown = html.unescape(re.sub("<[^>]+>", " ", text_of(built_site / "reference" / "torch.html")))
    assert not [name for name in reference.public("") if not re.search(rf"\b{name}\b", shown)]
    shown = html.unescape(re.sub("<[^>]+>", " ", text_of(built_site / "reference" / "tensor.html")))
    assert not [name for name in dir(torch.Tensor) if not name.startswith("_") and not re.search(rf"\b{name}\b", shown)]
    links = [target for name in reference.PAGES for target in Links(built_site / "reference" / f"{name}.html").targets if "#autograd_nb." in target]
    assert len(links) > 500


def test_the_index_lists_what_readers_can_call(built_site):
    "Not the classes that modules keep for each other (`#| exporti`): those have no entry."
    shown = html.unescape(re.sub("<[^>]+>", "", text_of(built_site / "genindex.html")))
    assert "Beside" not in shown
    assert "gradcheck() (in module" in shown


def test_terms_lead_to_the_glossary(built_site):
    "In every chapter, and each term once."
    for path in notebook_paths():
        if path.parent.name == "book":
            found = re.findall(r'href="\.\./glossary\.html(#term-[\w-]+)"><span class="xref std std-term"', text_of(built_site / "book" / f"{path.stem}.html"))
            assert found and len(found) == len(set(found)), path.stem


def test_terms_are_found_in_prose_alone():
    left = site_pages.terms()
    line = site_pages.explained("Every leaf, `leaf`, $leaf$ and [leaf](x.md) but not cloverleaf; leaves again.", left)
    assert line == "Every {term}`leaf <leaf>`, `leaf`, $leaf$ and [leaf](x.md) but not cloverleaf; leaves again."
    assert "leaf" not in left and "node" in left
    everyday = "It leaves the sharp edges out of view."
    assert site_pages.explained(everyday, site_pages.terms()) == everyday


def test_the_gallery_holds_every_demo(built_site):
    "All of the widgets that a reader can call, with what each teaches and the chapter it belongs to."
    from autograd_nb import widgets

    source = (ROOT / "nbs" / "gallery.ipynb").read_text(encoding="utf-8")
    demos = {name for name in widgets.__all__ if name[0].islower()} - {"check", "quiz", "player"}
    assert not [name for name in demos if not re.search(rf"\b{name}\(", source)]
    cells = json.loads(source)["cells"]
    lessons = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"][1:]
    assert all(re.fullmatch(r"## .+\n\n.+\*Chapter:\* \[.+\]\(book/.+\.ipynb\)\.", text, re.S) for text in lessons), "a demo without a chapter"
    assert len(lessons) >= 15


# Speed -----------------------------------------------------------------------------------------------------------


def row(ms: float, ratio: float) -> dict:
    return {"ms": ms, "ratio": ratio, "low": ratio * 0.9, "high": ratio * 1.2}


@pytest.fixture
def figures(tmp_path, monkeypatch):
    "Results of a made-up benchmark, in the form that benchmarks/run.py stores."
    results = {"machine": {"processor": "Abacus 3000", "cores": 2, "threads": 2, "python": "3.11.7", "system": "Linux", "versions": {"numpy": "2.1"}}, "engines": ["autograd_nb", "PyTorch", "Other"],
               "workloads": {"small <things>": {"autograd_nb": row(1, 0.5), "PyTorch": row(2, 1), "Other": row(4, 2)}, "large things": {"autograd_nb": row(30, 3) | {"mib": 5.}, "PyTorch": row(10, 1)}}}
    monkeypatch.setattr(speed, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(speed, "STRANGERS", tmp_path / "strangers.json")
    speed.RESULTS.write_text(json.dumps(results))
    return results


def test_benchmarks_are_told_as_they_are(figures):
    "Machine, every workload, where we lose as well as where we win, and a plot that says the same in words."
    text = speed.page()
    assert "Abacus 3000, 2 cores" in text and "| small <things> | 1 ms · **0.50** | 2 ms | 4 ms · 2.00 |" in text and "| large things | 30 ms · **3.00** | 10 ms | – |" in text
    assert "faster than PyTorch in 1 of 2" in text and "*large things*, where PyTorch is 3.0 times as fast" in text and "1.2 times as slow as PyTorch (2 workloads) and 4.0 times as fast as Other (1 workload)" in text
    assert "small &lt;things&gt;: autograd_nb 0.50, Other 2.00; large things: autograd_nb 3.00." in text and text.count('class="spread"') == 6 and "| large things | 5 MiB |" in text
    assert "Abacus 3000" in speed.summary() and "**3.00**" in speed.summary()


def test_no_column_is_empty(figures):
    "A choice of workloads has no column for an engine that ran none of them."
    assert "| Other |" in speed.table(figures) and "Other" not in speed.table(figures, {"large things"})


def test_no_name_in_the_plot_is_cut(figures):
    "A long name has a wider margin, or, on a phone, a second line."
    name = "an uncommonly large model of 96 layers, d=12288, heads=96, T=2048, B=64, all checkpointed"
    figures["workloads"][name] = figures["workloads"]["large things"]
    broad, narrow = (re.findall('<text class="name" x="([0-9]+)"[^>]*>([^<]*)<', speed.plot(figures, narrow=narrow)) for narrow in (False, True))
    assert name in [shown for _, shown in broad] and int(broad[0][0]) > 6.5 * len(name)
    assert name in " ".join(shown for _, shown in narrow) and max(len(shown) for _, shown in narrow) <= 44


def test_the_second_set_is_told_beside_the_first(figures):
    "Both numbers of threads, the worst program by name, the library of products, and a dash for what was refused."
    assert "nobody tuned" not in speed.page() + speed.summary()
    rows = {"a flow": {"autograd_nb": row(1, 0.5), "PyTorch": row(2, 1)},
            "a graph": {"autograd_nb": row(4, 2), "PyTorch": row(2, 1), "autograd_nb, captured": {"refused": "a look at a number"}}}
    rows["a flow"]["autograd_nb, captured"] = row(0.5, 0.25)
    machine = figures["machine"] | {"blas": {"numpy": "OpenBLAS 1", "torch": "MKL 2"}}
    speed.STRANGERS.write_text(json.dumps({"machine": machine, "engines": ["autograd_nb", "autograd_nb, captured", "PyTorch"], "threads": {"2": rows, "1": rows}}))
    for text in (speed.summary(), speed.page()):
        assert "on 2 threads autograd_nb takes 1.00 of PyTorch's time (2 programs; the worst, *a graph*, 2.00), captured 0.25 of" in text
        assert "on 1 thread autograd_nb" in text and "OpenBLAS 1 under numpy, MKL 2 under torch" in text
    assert "| a graph | 4 ms · **2.00** | – | 4 ms · **2.00** | – |" in speed.page()


def test_on_a_phone_the_benchmarks_fit(site, browser_page):
    "Every mark is in view, and names stand above the marks instead of in their place."
    browser_page.set_viewport_size({"width": 390, "height": 844})
    browser_page.goto(f"{site}/benchmarks.html")
    plots = browser_page.locator("svg.bench-plot")
    assert [plot.is_visible() for plot in plots.all()] == [False, True]
    box = plots.nth(1).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    marks = plots.nth(1).locator("[class^=engine-]").evaluate_all("all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])")
    assert marks and all(0 <= left and right <= 390 for left, right in marks)
    assert min(plots.nth(1).locator("text").evaluate_all("(all) => all.map(e => parseFloat(getComputedStyle(e).fontSize) * e.getCTM().a)")) >= 11


def test_without_results_the_page_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "RESULTS", tmp_path / "none.json")
    monkeypatch.setattr(speed, "STRANGERS", tmp_path / "none.json")
    assert speed.COMMAND in speed.page() and speed.COMMAND in speed.summary()


def test_page_and_readme_show_the_stored_results(built_site):
    "One file holds the figures."
    readme, results = (ROOT / "README.md").read_text(encoding="utf-8"), speed.load()
    assert speed.MARK not in readme and speed.summary() in readme
    if results:
        shown = html.unescape(re.sub("<[^>]+>", "", text_of(built_site / "benchmarks.html")))
        for name, rows in results["workloads"].items():
            assert name in shown and speed.milliseconds(rows["autograd_nb"]["ms"]) in shown
        assert results["machine"]["processor"] in shown
    assert "](nbs/images/" in readme[:900], "no picture on README's first screen"


# Start page, cheat sheet, quizzes: in the browser ----------------------------------------------------------------


def model(kind, **state):
    return {"model_name": kind + "Model", "state": state}


def a_player():
    return {"box": model("VBox", children=["IPY_MODEL_play", "IPY_MODEL_slider", "IPY_MODEL_stack", "IPY_MODEL_go", "IPY_MODEL_base"]), "play": model("Play", interval=700, max=1, value=1),
            "slider": model("IntSlider", description="step", max=1, value=1), "stack": model("Stack", children=["IPY_MODEL_a", "IPY_MODEL_b"], selected_index=1),
            "a": model("HTML", value="<p>first</p>"), "b": model("HTML", value="<p>second</p>"), "base": model("HTML", value="<svg></svg>"), "go": model("Button", description="go <on>"),
            "link": model("Link", source=["IPY_MODEL_slider", "value"], target=["IPY_MODEL_stack", "selected_index"]),
            "other": model("Link", source=["IPY_MODEL_slider", "value"], target=["IPY_MODEL_elsewhere", "value"])}


def test_a_player_becomes_plain_html():
    "The frame it starts with stands in the page, all others in the file beside it, and what a kernel would have to do is switched off and says so."
    demo = players.Demo("book/x/0", "box", a_player())
    assert "<p>second</p>" in demo.html and "<p>first</p>" not in demo.html and "<noscript>" in demo.html and "<svg></svg>" in demo.html
    assert re.search(r"<button [^>]*disabled title=[^>]*>go &lt;on&gt;</button>", demo.html) and 'href="#run-it"' in demo.html
    data = json.loads(re.fullmatch(r'agDemo\("book/x/0", (.*)\);\n', demo.data, re.S)[1])
    (stack, frames), = data["stacks"].items()
    assert "<p>first</p>" in frames[0] and "<p>second</p>" in frames[1]
    assert [link[2] for link in data["links"]] == [int(stack)], "links to other demos are left out"
    with pytest.raises(SystemExit, match="does not know the widget Globe"):
        players.Demo("x", "globe", {"globe": model("Globe")})


@pytest.mark.parametrize("width, scheme", [(1440, "light"), (390, "dark")])
def test_the_start_page_shows_what_this_is(built_site, browser_page, width, scheme):
    "From a file, without a server or a network: the graph is on the first screen and steps, and the commands and what to read next are there."
    browser_page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    browser_page.set_viewport_size({"width": width, "height": 900})
    browser_page.goto((built_site / "index.html").as_uri(), wait_until="load")
    player = browser_page.locator(".demo[data-demo]").first
    box = player.locator("svg").last.bounding_box()
    assert box["y"] + box["height"] <= 900, "the graph is below the first screen"
    stack = player.locator(".widget-stack")
    said = [stack.inner_text()]
    for _ in range(9):
        before = said[-1]
        player.locator(".demo-on").click()
        browser_page.wait_for_function("before => document.querySelector('.demo .widget-stack').innerText !== before", arg=before, timeout=30_000)
        said.append(stack.inner_text())
    assert len(set(said)) == 10 and "48" in "".join(said[-2:])
    player.locator(".widget-slider input").focus()
    browser_page.keyboard.press("Home")
    browser_page.wait_for_function("first => document.querySelector('.demo .widget-stack').innerText === first", arg=said[0], timeout=30_000)
    player.locator(".demo-play").click()
    browser_page.wait_for_function("before => document.querySelector('.demo .widget-stack').innerText !== before", arg=said[0], timeout=60_000)
    assert browser_page.locator("ul.cards > li").count() == 3 and browser_page.get_by_text("python run.py tutorial").count() == 1
    assert not browser_page.errors


@pytest.mark.needs("npm")
def test_pages_work_from_files(built_site, browser_page):
    "No server, no network: widgets draw and move, formulas are set, search finds."
    if not served_alone(built_site) and "npm" not in required():
        pytest.skip("npm could not fetch what the site needs")
    browser_page.context.set_offline(True)
    browser_page.goto((built_site / "book" / "03_chain_rule.html").as_uri(), wait_until="load")
    demo = browser_page.locator(".demo:has(.widget-play)").first
    before = demo.locator(".widget-stack").inner_text()
    demo.locator(".demo-on").click()
    browser_page.wait_for_function("([demo, before]) => demo.querySelector('.widget-stack').innerText !== before", arg=[demo.element_handle(), before])
    browser_page.locator("mjx-container svg").first.wait_for()
    assert not browser_page.errors
    browser_page.goto((built_site / "search.html").as_uri() + "?q=gradient", wait_until="load")
    browser_page.locator("#search-results li a").first.wait_for()


def test_formulas_in_quizzes_are_marked():
    "Between dollar signs, but neither in code nor where the dollar is money."
    from autograd_nb.widgets import quiz

    question = quiz("How much is $x^2$, and what does `$5` buy?", {"$4$": "Because $2 \\cdot 2 = 4$.", "nothing": "it costs $3 or $4 today"}, "$4$")
    text = mathematics.marked(question._repr_html_())
    assert text.count('class="math') == 3 and r"\(x^2\)" in text and r"\(2 \cdot 2 = 4\)" in text and "<code>$5</code>" in text and "$3 or $4 today" in text


@pytest.mark.needs("npm")
def test_formulas_are_set_when_the_site_is_built():
    "As pictures that share their glyphs, with the source of the formula for those who cannot see it."
    setter = mathematics.Setter()
    if not setter.ready and "npm" not in required():
        pytest.skip("npm could not fetch MathJax")
    formula = '<span class="math notranslate nohighlight">\\(a^2 + a &lt; 3\\)</span>'
    output = '<div class="output text_latex math notranslate nohighlight">\n\\[a^2\\]</div>'  # of a cell
    page = f'<html><head><script async="async" src="https://example.org/mathjax@4/tex-mml-chtml.js"></script></head><body>{formula}{formula}{output}</body></html>'
    setter.learn({("a^2 + a < 3", False), ("a^2", True)})
    text = setter.page(page)
    assert text.count("<mjx-container") == 3 and '<div class="output text_latex math notranslate nohighlight"><mjx-container' in text and 'aria-label="a^2 + a &lt; 3"' in text and "mathjax@4" not in text and "\\(" not in text and "\\[" not in text
    defined = re.findall(r'<path id="([^"]+)"', text)
    assert len(defined) == len(set(defined)) and set(re.findall(r'xlink:href="#([^"]+)"', text)) == set(defined)


@pytest.mark.needs("npm")
def test_no_formula_is_left_as_its_source(built_site):
    "In prose, in quizzes, and where a cell prints one."
    if not mathematics.Setter().ready and "npm" not in required():
        pytest.skip("npm could not fetch MathJax")
    for page in pages(built_site):
        assert not re.search(r'class="[^"]*\bmath notranslate nohighlight"[^>]*>\s*\\[(\[]', text_of(page)), page


def cheat_sheet_programs() -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "cheatsheet.md").read_text(encoding="utf-8"), re.S | re.M))


def test_the_cheat_sheet_is_true():
    "Its lines run, from top to bottom, and what they claim holds."
    program = "import autograd_nb as torch\n" + cheat_sheet_programs() + "\nassert torch.equal(gg, 6 * x) and torch.autograd.gradcheck(Cube.apply, d)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_the_cheat_sheet_is_one_page_of_paper(built_site, browser_page, paper):
    browser_page.goto((built_site / "cheatsheet.html").as_uri(), wait_until="load")
    printed = browser_page.pdf(format=paper, prefer_css_page_size=False)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


# Barriers --------------------------------------------------------------------------------------------------------

# The checker looks at every element for long, so pages are thinned out: one code token of each class and a few formulas say as much as thousands,
# and contrast depends on nothing but colours and sizes, so two elements of each combination, on whatever page, stand for the rest.
THIN_OUT = """() => {
  const seen = new Set();
  for (const span of document.querySelectorAll('.highlight pre span:not(.code-line)')) {
    const kind = span.className + (span.closest('.cell_input, .cell_output, details, .literal-block-wrapper')?.className || '');
    if (seen.has(kind) && !span.querySelector('a')) span.replaceWith(...span.childNodes); else seen.add(kind);
  }
  for (const pre of document.querySelectorAll('.highlight pre')) pre.normalize();
  for (const formula of [...document.querySelectorAll('mjx-container')].slice(5)) formula.remove();
}"""
REACHED = """() => [...document.querySelectorAll('article *')].every(box => box.tabIndex === 0 || !box.checkVisibility()
  || (box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight) || !/auto|scroll/.test(getComputedStyle(box).overflow)
  || box.querySelector('a, button, input, summary, [tabindex]'))"""
SUMMARY = """found => found.violations.filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => `${each.id} (${each.impact}): ${each.nodes.length} times, such as ${each.nodes[0].html.slice(0, 150)}`)"""
BARRIERS = f"""() => axe.run(document, {{ resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'],
  rules: {{ 'color-contrast': {{ enabled: false }} }} }}).then({SUMMARY})"""
COLOURS = f"""async seen => {{
  const clear = colour => /, 0\\)$|transparent/.test(colour), count = new Map(Object.entries(seen)), sample = [];
  for (const element of document.body.querySelectorAll('*')) {{
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()) || element.closest('mjx-container, script, style, template')) continue;
    if (!element.checkVisibility({{ opacityProperty: true, visibilityProperty: true }})) continue;
    const style = getComputedStyle(element), grounds = [];
    for (let e = element; e; e = e.parentElement) {{
      const ground = getComputedStyle(e);
      if (!clear(ground.backgroundColor)) grounds.push(ground.backgroundColor);
      if (ground.opacity !== '1') grounds.push(ground.opacity);
    }}
    const kind = [element.tagName, style.color, style.fill, style.fontSize, style.fontWeight, ...grounds].join();
    count.set(kind, (count.get(kind) || 0) + 1);
    if (count.get(kind) <= 2) sample.push(element);
  }}
  const rule = {{ resultTypes: ['violations'], runOnly: {{ type: 'rule', values: ['color-contrast'] }} }};
  return [sample.length ? await axe.run({{ include: sample }}, rule).then({SUMMARY}) : [], Object.fromEntries(count)];
}}"""
ONE_OF_EACH_KIND = ("index", "gallery", "cheatsheet", "glossary", "benchmarks", "mistakes", "book/index", "book/03_chain_rule", "reference/index", "reference/functional", "library/index",
                    "ops/99_table", "graph/07_engine", "contributing", "search")


def look_for_barriers(built_site, site, page, names):
    "axe-core on the pages: all rules, and those about colours in light and in dark."
    from playwright.sync_api import TimeoutError

    folder = assets.fetch(ROOT / ".cache" / "axe", assets.CHECKER)
    if folder is None and "npm" not in required():
        pytest.skip("npm could not fetch axe-core")
    checker = (folder / "axe.min.js").read_text(encoding="utf-8")
    faults, seen = [], {}

    def colours():
        nonlocal seen
        found, seen = page.evaluate(COLOURS, seen)
        return found

    page.set_default_timeout(180_000)
    for name in names:
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.goto(f"{site}/{name}.html", wait_until="load")
        whole = page.add_style_tag(content="* { content-visibility: visible !important }")  # as if it had been read to the end
        page.evaluate(THIN_OUT)
        page.evaluate(checker + ";undefined")
        page.evaluate("window.dispatchEvent(new Event('resize'))")
        with suppress(TimeoutError):  # axe says which; it is asked last, as nothing may move between this and axe
            page.wait_for_function(REACHED, polling=500, timeout=150_000)  # asked at each frame, it would leave no time to get there
        whole.evaluate("style => style.remove()")  # what is out of sight costs axe nothing
        faults += [f"{name}: {fault}" for fault in page.evaluate(BARRIERS) + colours()]
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        page.wait_for_timeout(400)  # colours fade over
        faults += [f"{name} in the dark: {fault}" for fault in colours()]
    assert not faults, "\n".join(faults)


@pytest.mark.needs("npm")
def test_a_page_of_each_kind_has_no_barrier(built_site, site, browser_page):
    look_for_barriers(built_site, site, browser_page, ONE_OF_EACH_KIND)


@pytest.mark.slow
@pytest.mark.needs("npm")
def test_no_page_has_a_barrier(built_site, site, browser_page):
    names = [page.relative_to(built_site).with_suffix("").as_posix() for page in pages(built_site)]
    look_for_barriers(built_site, site, browser_page, [name for name in names if name not in ONE_OF_EACH_KIND])
