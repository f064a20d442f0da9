"The demos in a browser: replayed on the built site with no kernel anywhere, and recomputed live through Voilà."

import pytest

pytestmark = pytest.mark.needs("browser")

SLIDER = ":is(.noUi-handle, .widget-slider input[type=range])"  # ipywidgets' own, and that of a page of the site
# What a person sees: the texts of an SVG that are not hidden by the frame's rules.
VISIBLE = """svg => [...svg.querySelectorAll('text')].filter(t => getComputedStyle(t).visibility === 'visible').map(t => t.textContent)"""


def opened(page, url):
    page.goto(url)
    page.locator(".widget-play").first.wait_for()
    return page


def player(page, k=0):
    "The k-th player: its slider's handle, its caption and its drawing."
    box = page.locator(".widget-vbox", has=page.locator(".widget-play")).nth(k)
    return box.locator(SLIDER), box.locator(".ag-caption"), box.locator("svg.agnb")


def press(handle, key, times=1):
    handle.focus()
    for _ in range(times):
        handle.press(key)


def test_the_stepper_replays_without_a_kernel(site, browser_page):
    page = opened(browser_page, f"{site}/widgets/01_steppers.html")
    handle, caption, svg = player(page)
    assert "x = 1" in caption.text_content()
    seen = svg.evaluate(VISIBLE)
    assert "3" in seen and "25" not in seen and "30" not in seen
    press(handle, "ArrowRight", 3)
    caption.filter(has_text="(3·x + 2)² = 5² = 25").wait_for()
    seen = svg.evaluate(VISIBLE)
    assert "25" in seen and "grad" not in seen
    press(handle, "ArrowRight", 4)
    caption.filter(has_text="incoming 10 × local 3 = 30 → x").wait_for()
    assert svg.evaluate(VISIBLE).count("grad") == 4
    press(handle, "Home")
    assert "grad" not in svg.evaluate(VISIBLE)
    press(handle, "End")
    assert "df/dx = 30" in caption.text_content() and "30" in svg.evaluate(VISIBLE)
    assert not page.errors, page.errors
    outside = [r for r in page.requests if not r.startswith((site, "data:", "blob:"))]
    assert not outside, outside


def test_play_moves_the_frames_by_itself(site, browser_page):
    page = opened(browser_page, f"{site}/widgets/01_steppers.html")
    _, caption, _ = player(page)
    before = caption.text_content()
    page.locator(".widget-play button").first.click()
    page.wait_for_function("([c, was]) => c.isConnected === false || c.textContent !== was", arg=[caption.element_handle(), before])
    assert caption.text_content() != before


def test_nothing_jumps_between_frames(site, browser_page):
    page = opened(browser_page, f"{site}/widgets/01_steppers.html")
    handle, _, svg = player(page)
    handle.focus()
    places = set()
    for _ in range(9):
        places.add(svg.evaluate("""s => [s, ...s.querySelectorAll('.ag-card')].map(c => c.getBoundingClientRect())
            .map(r => [r.x, r.y + scrollY, r.width, r.height].map(Math.round)).join()"""))
        press(handle, "ArrowRight")
    assert len(places) == 1


def test_the_tracer_highlights_the_current_row(site, browser_page):
    page = opened(browser_page, f"{site}/widgets/01_steppers.html")
    box = page.locator(".widget-vbox", has=page.locator(".ag-table")).last
    handle, rows = box.locator(SLIDER), box.locator(".ag-table tbody tr")
    transparent = rows.nth(0).evaluate("r => getComputedStyle(r).backgroundColor")

    def only_highlighted(k):
        page.wait_for_function(
            "([box, k, t]) => [...box.querySelectorAll('.ag-table tbody tr')].every((row, i) => (getComputedStyle(row).backgroundColor !== t) === (i === k))",
            arg=[box.element_handle(), k, transparent])

    press(handle, "ArrowRight", 2)
    only_highlighted(0)
    press(handle, "ArrowRight")
    only_highlighted(1)


def test_pictures_follow_the_theme_and_the_width(site, browser, browser_page):
    light = opened(browser_page, f"{site}/widgets/01_steppers.html").locator(".ag-card").first.evaluate("c => getComputedStyle(c).fill")
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    try:
        page = context.new_page()
        opened(page, f"{site}/widgets/01_steppers.html")
        assert page.locator(".ag-card").first.evaluate("c => getComputedStyle(c).fill") != light
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the page itself never scrolls sideways"
        page.wait_for_function(  # asked for again if the page settles its theme only now
            "([card, light]) => { document.documentElement.dataset.theme = 'light'; return getComputedStyle(card).fill === light }",
            arg=[page.locator(".ag-card").first.element_handle(), light])
        size = page.locator(".ag-num").first.evaluate("t => t.getBoundingClientRect().height")
        assert size >= 8, "text stays readable on a phone"
    finally:
        context.close()


def test_quiz_and_hints_unfold_with_the_keyboard(site, browser_page):
    page = browser_page
    page.goto(f"{site}/widgets/04_quizzes.html")
    option = page.locator(".ag-quiz details").nth(1)
    answer = option.locator("div")
    assert not answer.is_visible()
    option.locator("summary").focus()
    page.keyboard.press("Enter")
    answer.wait_for(state="visible")
    assert "Right" in answer.text_content()
    page.goto(f"{site}/widgets/05_checks.html")
    hints = page.locator(".ag-quiz").first.locator("details")
    hints.nth(0).locator("summary").first.click()
    hints.nth(1).locator("summary").wait_for(state="visible")


def test_buttons_work_on_the_page_as_far_as_the_scenes_go(site, browser_page):
    page = browser_page
    page.goto(f"{site}/gallery.html")
    pour = page.get_by_role("button", name="loss.backward()", exact=True)
    pour.wait_for()
    box = page.locator(".widget-vbox", has=pour).last
    box.get_by_role("button", name="zero_grad()", exact=True).click()
    page.wait_for_function("c => c.querySelector('.widget-slider input').value === '0'", arg=box.element_handle())
    for total in (30, 60, 90, 120):
        pour.click()
        page.locator(".ag-caption:visible", has_text=f"now {total}").first.wait_for()
    assert pour.is_disabled() and "In a running notebook every button works" in pour.get_attribute("title")
    box.get_by_role("button", name="zero_grad(set_to_none=False)", exact=True).click()
    page.locator(".ag-caption:visible", has_text="is empty again").first.wait_for()
    assert not page.errors, page.errors


def test_the_explorer_recomputes_live(voila, browser_page):
    page = browser_page
    page.goto(voila("widgets/02_explorer.ipynb"))
    box = page.locator(".widget-vbox", has=page.locator("input[type=text]")).first
    box.locator("svg.agnb").wait_for()
    says = box.locator(".ag-line")
    before = says.text_content()
    assert "f = 25" in before and "d/dx = 30" in before
    press(box.locator(".noUi-handle"), "ArrowRight", 5)
    page.wait_for_function("([e, was]) => e.isConnected ? e.textContent !== was : true", arg=[says.element_handle(), before])
    box.locator("input[type=text]").fill("x*x")
    box.locator("input[type=text]").press("Enter")
    page.locator(".ag-line", has_text="f = 1.562").first.wait_for()      # five steps of 0.05 from 1
    box.locator("input[type=text]").fill("__import__('os')")
    box.locator("input[type=text]").press("Enter")
    page.locator(".ag-line", has_text="unknown function").first.wait_for()
    assert box.locator("svg.agnb").count() == 1


def test_a_large_picture_moves_in_its_frame(browser_page):
    "What `large()` puts into a notebook, of a graph and of a demo: moved by keys, searched, with nothing fetched."
    import autograd_nb as torch
    from autograd_nb.viz import draw
    from autograd_nb.widgets import stepper

    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for k in range(2, 14):
        y = torch.sin(y * k)
    for shown in (draw(y), stepper("sin(x)*x + sin(x*2)", 1.0)):
        browser_page.set_content(f"<!DOCTYPE html><body>{shown.large()._repr_html_()}</body>")
        inside = browser_page.frame_locator("iframe")
        paper, stage = inside.locator(".graph-paper"), inside.locator(".graph-stage")
        before = paper.get_attribute("style")
        stage.press("ArrowRight")
        assert paper.get_attribute("style") != before
        stage.press("/")
        browser_page.keyboard.type("sin")
        assert inside.locator(".graph-told").inner_text().startswith("1 of ")
    assert not browser_page.errors and not browser_page.requests
