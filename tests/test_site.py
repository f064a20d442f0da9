"""The documentation site: every page is there, every link leads somewhere, and a browser shows it without a kernel or a network."""

import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import ROOT, required

sys.path.insert(0, str(ROOT / "docs"))
from execute import notebook_paths  # noqa: E402

pytestmark = pytest.mark.xdist_group("browser")  # one worker builds the site, and shows it


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
    "No error, readable text, nothing wider than the screen, and nothing fetched from elsewhere (where npm made that possible)."
    browser_page.emulate_media(color_scheme=scheme)
    browser_page.set_viewport_size({"width": width, "height": 900})
    offline = (built_site / "_static" / "embed-amd.js").exists()
    assert offline or "npm" not in required(), "the JavaScript that npm fetches is not in the site"
    faults = []
    for path in pages(built_site):
        name = path.relative_to(built_site).as_posix()
        browser_page.errors.clear()
        browser_page.requests.clear()
        browser_page.goto(f"{site}/{name}", wait_until="load")
        browser_page.wait_for_timeout(400 if browser_page.locator("script[type*='widget-view']").count() else 50)
        # Without npm's files pages ask for public copies, which this machine may not be able to reach.
        faults += [f"{name}: {error}" for error in browser_page.errors if offline or site in error]
        if browser_page.evaluate("document.documentElement.dataset.theme") != scheme:
            faults.append(f"{name}: is not {scheme}")
        faults += [f"{name}: contrast {text}" for text in browser_page.evaluate(CONTRAST)]
        wide = browser_page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 1:
            faults.append(f"{name}: {wide} pixels wider than a screen of {width}")
        if offline:
            faults += [f"{name}: fetches {url}" for url in browser_page.requests if not url.startswith((site, "data:", "blob:"))]
    assert not faults, "\n".join(faults)


@pytest.mark.needs("npm")
def test_players_replay_without_a_kernel(built_site, site, browser_page):
    "On every page with a player: the slider and the Play button change what is shown."
    if not (built_site / "_static" / "embed-amd.js").exists() and "npm" not in required():
        pytest.skip("npm could not fetch what draws widgets")
    with_player = [path for path in pages(built_site) if '"PlayModel"' in path.read_text(encoding="utf-8")]
    if not with_player:
        pytest.skip("no page has a player")
    for path in with_player:
        name = path.relative_to(built_site).as_posix()
        browser_page.errors.clear()
        browser_page.goto(f"{site}/{name}", wait_until="load")
        output = browser_page.locator("div.cell_output", has=browser_page.locator(".widget-play")).first
        output.locator(".widget-play").first.wait_for()
        changes = "([element, before]) => element.innerText + element.querySelectorAll('svg').length + element.innerHTML.length !== before"
        state = "element => element.innerText + element.querySelectorAll('svg').length + element.innerHTML.length"
        element = output.element_handle()
        before = element.evaluate(state)
        handle = output.locator(".noUi-handle").first
        if handle.count():
            handle.focus()
            handle.press("ArrowRight")
            browser_page.wait_for_function(changes, arg=[element, before], timeout=10_000)
            before = element.evaluate(state)
        output.locator(".widget-play button").first.click()
        browser_page.wait_for_function(changes, arg=[element, before], timeout=10_000)
        assert not browser_page.errors, f"{name}: {browser_page.errors}"


def test_search_finds_pages(site, browser_page):
    browser_page.goto(f"{site}/search.html?q=gradient")
    browser_page.locator("#search-results li a").first.wait_for()
    assert browser_page.locator("#search-results li a").count() >= 1
