"Every demo in a browser, live with a kernel and replayed without one: each is clicked through by mouse or keyboard, and what it shows is what the engine computes."

import math
import re

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.viz.style import number

pytestmark = pytest.mark.needs("browser")


SLIDER = ":is(.noUi-handle, .widget-slider input[type=range])"  # ipywidgets' own, and that of a page of the site


class Demo:
    "The part of the page that shows one demo: the outermost box around its heading."

    def __init__(self, page, heading):
        self.page = page
        self.box = page.locator(".widget-vbox", has=page.locator(".ag-heading", has_text=re.compile(f"^{re.escape(heading)}$"))).first
        self.box.wait_for()

    def captions(self):
        return " ".join(self.box.locator(".ag-caption:visible").all_text_contents())

    def says(self, text, timeout=20_000):
        "Wait until the caption that is shown contains the text."
        self.box.locator(".ag-caption:visible", has_text=text).first.wait_for(timeout=timeout)

    def press(self, key, times=1):
        handle = self.box.locator(f"{SLIDER}:visible").first
        handle.focus()
        for _ in range(times):
            handle.press(key)

    def texts(self):
        "The texts that can be seen in its pictures."
        return self.box.evaluate("""b => [...b.querySelectorAll('svg text')].filter(t => t.checkVisibility() && getComputedStyle(t).visibility === 'visible').map(t => t.textContent)""")

    def button(self, text):
        return self.box.get_by_role("button", name=text, exact=True)


def slope(f, x):
    leaf = torch.tensor(float(x), requires_grad=True)
    y = f(leaf)
    y.backward()
    return y.item(), leaf.grad.item()


def replays(page):
    "The demos that need no kernel."
    stepper = Demo(page, "Stepper")
    stepper.press("ArrowRight", 3)
    stepper.says("(3·x + 2)² = 5² = 25")
    stepper.press("End")
    y, g = slope(lambda x: (3 * x + 2) ** 2, 1)
    stepper.says(f"df/dx = {number(g)}")
    assert {number(y), number(g)} <= set(stepper.texts())

    grow = Demo(page, "Grow a graph")
    grow.says("no operation yet")
    grow.press("End")
    grow.says("x.grad = 48")
    grow.press("ArrowLeft")
    grow.says("the value is 64")
    grow.press("Home")
    grow.says("no operation yet")

    chain = Demo(page, "Chain rule")
    chain.press("Home")
    y, g = slope(lambda x: (x**2).exp().sin(), -1.2)
    chain.says(f"At x = −1.2 the result is {number(y)}")
    assert chain.captions().endswith(f"= {number(g)}")
    chain.press("ArrowRight", 2)
    y, g = slope(lambda x: (x**2).exp().sin(), -0.72)
    chain.says(f"At x = −0.72 the result is {number(y)}")
    assert chain.captions().endswith(f"= {number(g)}")

    tracer = Demo(page, "Tracer")
    tracer.press("End")
    _, g = slope(lambda x: ((3 * x + 2) ** 2).tanh(), 1)
    tracer.says(f"dx = {number(g)}")
    assert tracer.box.locator(".ag-table tbody tr").count() == 5

    bucket = Demo(page, "Accumulation")
    bucket.press("Home")
    for after in (30, 60, 90, 120):
        bucket.press("ArrowRight")
        bucket.says(f"now {after}")
    bucket.press("ArrowRight")
    bucket.says("empty again")

    race = Demo(page, "With and without zero_grad()")
    race.press("End")
    race.press("ArrowLeft", 2)
    with_zero = 3 * (1 - 0.8**10)
    race.says(f"After step 10: with zero_grad() w = {number(with_zero)}")

    switches = Demo(page, "Switches")
    switches.says("First backward(): x.grad = 54")
    switches.box.locator(".widget-toggle-buttons").nth(2).get_by_text("on", exact=True).click()
    switches.says("Second: x.grad = 108")
    switches.box.locator(".widget-toggle-buttons").nth(1).get_by_text("on", exact=True).click()
    switches.says("First backward(): x.grad = None")

    own = Demo(page, "Gradients of one's own")
    own.box.locator(".widget-toggle-buttons").get_by_text("round, straight through", exact=True).click()
    own.says("round, straight through: f(1) = 1, and backward() multiplies the incoming gradient by 1")
    own.box.locator(".widget-toggle-buttons").get_by_text("round", exact=True).click()
    own.says("round: f(1) = 1, and backward() multiplies the incoming gradient by 0")
    own.press("ArrowLeft", 3)
    own.says("round: f(−0.5) = 0")

    scalar = Demo(page, "The scalar engine")
    scalar.press("End")
    scalar.says("x.grad = 30")

    check = Demo(page, "Measured and claimed derivatives")
    check.says("all 4 entries agree")
    check.press("Home")
    check.says("2 of 4 entries differ")
    memory = Demo(page, "Memory of one training step")
    memory.press("End")
    memory.says("8 blocks")

    watched = page.locator(".widget-vbox", has=page.locator(".ag-flow:visible")).first
    watched.locator(".ag-caption:visible", has_text=re.compile(r"After step (?:[1-9]|1[0-4]):")).wait_for()  # of 40, in 3 to 12 moments: fewer where drawing took long
    watched.locator(SLIDER).first.focus()
    page.keyboard.press("End")
    watched.locator(".ag-caption:visible", has_text="After step 40").wait_for()
    assert watched.locator(".ag-flow:visible svg:visible").count() == 3 and watched.locator(".ag-flow:visible tbody tr").count() == 2

    fold = page.locator(".ag-fold").first
    level = fold.locator(".ag-level:visible")
    level.get_by_text("look into 1", exact=True).locator("xpath=..").click()
    assert "TransformerEncoder" in level.locator(".ag-trail").text_content()
    level.get_by_text(re.compile(r"^look into .*0$")).first.locator("xpath=..").click()
    assert "self_attn" in level.locator("svg").text_content()
    page.keyboard.press("ArrowUp")
    assert "TransformerEncoder ·" in level.locator(".ag-trail").text_content()

    graph = page.locator("svg.agnb", has_text="PowBackward0").first
    assert {"25", "30", "10"} <= set(graph.locator(".ag-num").all_text_contents())
    ledger = page.locator("table", has_text="contribution").first
    assert ledger.locator("tbody tr").last.locator("td").last.text_content().strip() == "8"
    quiz = page.locator(".ag-quiz").last
    quiz.locator("summary").last.focus()
    page.keyboard.press("Enter")
    quiz.get_by_text("✓ Right.").wait_for()


def described(page):
    "What a screen reader meets: every picture has words, every control a name."
    nameless = page.evaluate("""() => [...document.querySelectorAll('svg.agnb')].filter(s => s.checkVisibility() && !s.getAttribute('aria-label') && !(s.querySelector('title, desc') || {}).textContent).length""")
    assert nameless == 0
    assert page.evaluate("""() => [...document.querySelectorAll('.widget-subarea button, .widget-vbox button')].filter(b => b.checkVisibility() && !(b.textContent.trim() || b.title || b.getAttribute('aria-label') || b.closest('.widget-play[title]'))).length""") == 0


def test_every_demo_replays_without_a_kernel(site, browser_page):
    browser_page.goto(f"{site}/widgets/13_demos.html")
    browser_page.locator(".widget-play").last.wait_for()
    replays(browser_page)
    described(browser_page)
    browser_page.locator(".ag-quiz mjx-container").first.wait_for(state="attached")
    assert not browser_page.errors, browser_page.errors
    assert not [r for r in browser_page.requests if not r.startswith((site, "data:", "blob:"))]


def test_every_demo_works_live(voila, browser_page):
    browser_page.set_default_timeout(120_000)
    browser_page.goto(voila("widgets/13_demos.ipynb"))
    browser_page.locator(".ag-quiz").last.wait_for()
    browser_page.set_default_timeout(30_000)
    replays(browser_page)
    described(browser_page)

    grow = Demo(browser_page, "Grow a graph")
    grow.button("start again").click()
    grow.says("no operation yet")
    grow.button("sin").click()
    grow.says(f"the value is {number(float(np.float32(math.sin(2))))}")
    grow.button("backward()").click()
    grow.says(f"x.grad = {number(math.cos(2))}")

    bucket = Demo(browser_page, "Accumulation")
    bucket.button("loss.backward()").click()
    bucket.says("now 30")  # it goes on from the scene that is shown, where it is empty
    bucket.button("zero_grad()").click()
    bucket.says("the buckets are gone")

    explorer = Demo(browser_page, "Explorer")
    explorer.box.locator("input[type=text]").first.fill("sin(x) * exp(x)")
    explorer.box.locator("input[type=text]").first.press("Enter")
    y, g = slope(lambda x: x.sin() * x.exp(), 1)
    explorer.box.locator(".ag-line", has_text=f"f = {number(y, 4)}").wait_for()
    assert f"d/dx = {number(g, 4)}" in explorer.box.locator(".ag-line").text_content()

    debugger = Demo(browser_page, "Debugger")
    debugger.button("run ▸▸").click()
    debugger.box.locator(".ag-debug", has_text="stopped at tanh").wait_for()
    debugger.box.locator("input[type=number]").fill("0")
    debugger.box.locator("input[type=number]").press("Enter")
    debugger.button("change it").click()
    debugger.button("finish").click()
    debugger.box.locator(".ag-debug", has_text="The pass is over").wait_for()
    assert "[0, 0]" in debugger.texts() or "[0, −0]" in debugger.texts() or "[−0, 0]" in debugger.texts(), "the gradient of w, after the change"
