"Players, explorers, live plots, quizzes and checks, without a browser."

import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import ipywidgets
import numpy as np
import pytest
from _pace import within

import autograd_nb as torch
from autograd_nb.viz import draw, plot
from autograd_nb.viz.expressions import parse_expression
from autograd_nb.viz.svg import css as p_css
from autograd_nb.widgets import (
    ExpressionError,
    LivePlot,
    check,
    explore,
    player,
    quiz,
    stepper,
    trace,
)

VOID = {"br", "path", "rect", "circle", "polygon", "img"}


class Balanced(HTMLParser):
    "Fails on tags that do not nest."

    def __init__(self, html):
        super().__init__()
        self.open = []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, tag


# Players -------------------------------------------------------------------------------------------------------


def test_a_player_is_linked_in_the_browser():
    p = player([draw(torch.tensor(1.0, requires_grad=True) * 2), "<b>two</b>", plot([1, 2])], ["one", "two", "three"])
    assert (p.slider.max, p.play.max) == (2, 2) and len(p.stack.children) == 3 and p.captions == ["one", "two", "three"]
    assert all(type(link).__name__ == "Link" and link._model_module == "@jupyter-widgets/controls" for link in p.links), "jslink, not link"
    assert [l.source[0] for l in p.links] == [p.play, p.slider] and [l.target[0] for l in p.links] == [p.slider, p.stack]
    for c in p.stack.children:
        Balanced(c.value)


@pytest.mark.parametrize("make", [lambda: player([]), lambda: player(["a"], ["x", "y"])])
def test_wrong_players_are_refused(make):
    with pytest.raises(ValueError):
        make()


def test_stepper_shows_the_engine_s_numbers():
    s = stepper(lambda x: (3 * x + 2) ** 2, x=1.0)
    assert s.result == 25 and s.grads == {"x": 30} and len(s.captions) == 10 and s.slider.max == 9
    assert "incoming 10 × local 3 = 30" in s.captions[7] and "30" in str(s)
    Balanced(s.children[-1].value)
    assert s.frames[9].phase == "end" and ET.fromstring(s.frames[4].svg) is not None


def test_stepper_takes_what_explore_takes():
    "Values in order, and the text of an expression."
    def f(x, y): return x * y.sin()
    named = str(stepper(f, x=1.0, y=2.0))
    assert str(stepper(f, 1.0, 2.0)) == str(stepper(f, 1.0, y=2.0)) == named
    assert str(stepper("x*sin(y)", 1.0, 2.0)).splitlines()[-1] == named.splitlines()[-1]
    assert stepper("sin(x)").grads["x"] == pytest.approx(math.cos(1.0)) and stepper("y^2", y=3.0).grads["y"] == 6
    assert repr(explore("sin(x)")) == repr(explore("sin(x)", x=1.0)) and repr(explore("w*x + b", x=2.0)) == repr(explore("w*x + b", w=1.0, x=2.0, b=1.0))
    for demo in (stepper, explore):
        with pytest.raises(ExpressionError, match="not a complete expression"):
            demo("sin(")
    with pytest.raises(TypeError, match="3 values in order where 2 inputs were left"):
        stepper(f, 1.0, 2.0, 3.0)
    with pytest.raises(TypeError, match="needs a function"):
        stepper(3.0)


@pytest.mark.parametrize("square", [lambda x: x.square(), lambda x: x**2, lambda x: torch.pow(x, 2), torch.square])
def test_a_square_is_drawn_alike_everywhere(square):
    x = torch.tensor(3.0, requires_grad=True)
    y = square(x)
    assert draw(y).records.nodes[-1].symbol == "x²"
    assert stepper(square, 3.0).movie.rec.graph.nodes[-1].symbol == "x²"
    y.backward()
    assert draw(y).records.nodes[-1].symbol == "x²", "also when it has been freed"


def test_a_caption_and_its_nodes_point_at_each_other():
    p = stepper(lambda x: (3 * x + 2) ** 2, x=1.0)
    g = p.movie.rec.graph
    for k, step in enumerate(p.movie.rec.steps):
        html = p.stack.children[k].value
        Balanced(html)
        if step.id is not None:
            mark = f"{p.movie.scope}w{step.id}"
            assert f'class="ag-of {mark}">{step.title}<' in html and f":has(.{mark}:hover)" in html
            assert f"ag-n{step.id}\"" in p.movie.base
    arrived = next(k for k, s in enumerate(p.movie.rec.steps) if s.title == "AccumulateGrad")
    assert g[p.movie.rec.steps[arrived].id].name == "x"


def test_movement_is_left_out_for_who_asks_for_less():
    "Arrows run and values appear gradually; all of it under the reader's own setting."
    sheet = p_css()
    calm = re.sub(r"@media\(prefers-reduced-motion:no-preference\)\{(?:[^{}]|\{[^{}]*\})*\}", "", sheet)
    assert "animation:var(--go" in sheet and "animation:" not in calm
    frame = stepper("x^2").movie.style(1)
    assert "--go:ag-there" in frame and "animation" not in frame


def test_stepper_of_a_tensor_leaves_it_alone():
    x = torch.tensor(1.0, requires_grad=True)
    out = x * x
    s = stepper(out)
    assert s.grads == {"x": 2} and x.grad is None
    out.backward()


def test_trace_highlights_one_row_per_step():
    x = torch.tensor(1.0, requires_grad=True)
    out = (3 * x + 2) ** 2
    t = trace(out)
    assert x.grad.item() == 30 and len(t.table.rows) == 4
    base = t.children[-1].value
    Balanced(base)
    for r in t.table.rows:
        assert f'a{r.k}"' in base.replace(' "', '"') and f"tr.a{r.k}{{" in t.stack.children[r.k].value
    assert not any(ord(c) < 9 for c in base)


def test_two_players_do_not_share_a_scope():
    a, b = (stepper(lambda x: x * x, x=1.0) for _ in range(2))
    scopes = {re.search(r'class="agnb (ag\d+)"', p.children[-1].value)[1] for p in (a, b)}
    assert len(scopes) == 2


def test_a_player_is_light():
    def size(p): return sum(len(c.value) for c in p.stack.children) + len(p.children[-1].value)
    assert size(stepper(lambda x: (3 * x + 2) ** 2, x=1.0)) < 27_000
    def f(x):
        for _ in range(25):
            x = (x * 1.1).sin()
        return x
    deep = stepper(f, x=0.5)
    assert len(deep.captions) > 100 and size(deep) < 260_000
    assert len({c.layout.model_id for c in deep.stack.children}) == 1, "frames share one layout"


# Explorer ------------------------------------------------------------------------------------------------------


def test_explorer_recomputes():
    e = explore(lambda x: (3 * x + 2) ** 2, x=(-3, 3, 1))
    assert e.result == 25 and e.grads["x"] == 30
    before = e.picture.value
    e.sliders["x"].value = 2.0
    assert e.result == 64 and e.grads["x"] == 48 and e.picture.value != before and "48" in e.picture.value


@pytest.mark.parametrize("given", [1.0, 0.5, -7.0, (0, 1), (-3, 3, 1), (0, 1, 1 / 3), (-1e-6, 1e-6, 3e-7), (0, 1e6)])
def test_sliders_can_stand_at_the_start(given):
    from autograd_nb.widgets.explorer import slider_range
    low, high, step, start = slider_range("x", given)
    assert low < high and low <= start <= high and 50 <= (high - low) / step <= 250
    assert (start - low) / step == pytest.approx(round((start - low) / step), abs=1e-6)


def test_explorer_keeps_the_picture_when_the_text_is_wrong():
    e = explore("sin(exp(x**2))", x=0.5)
    before = e.picture.value
    e.box.value = "sin(x"
    assert "not a complete expression" in e.error and "Not understood" in e.status.value and e.picture.value == before
    e.box.value = "x*x"
    assert e.error == "" and e.result == 0.25


def test_explorer_survives_what_a_slider_may_reach():
    e = explore("log(x)", x=(-1, 1, 0.5))
    e.sliders["x"].value = -1.0
    assert np.isnan(e.result) and "nan" in e.picture.value


@pytest.mark.parametrize("text", ["__import__('os')", "x.grad", "x[0]", "(lambda: 1)()", "[x]", "y", "open(x)", "x if x else 1", "'a'*9", "x < 1", "sin(x, x)", "x +", "",
                                  "True", "1j", "x" + "*x" * 400, "(" * 200 + "x" + ")" * 200, "sin(*x)", "f'{x}'", "x := 1"])
def test_only_arithmetic_is_read(text):
    with pytest.raises(ExpressionError):
        parse_expression(text, ["x"])


def test_huge_powers_end_with_a_message():
    with within(1), pytest.raises(ExpressionError, match="too large"):
        parse_expression("9**9**9**9", ["x"])(x=torch.tensor(1.0))


@pytest.mark.parametrize(("make", "error"), [(lambda: explore("x*", x=1.0), ExpressionError), (lambda: explore(lambda x: x), TypeError),
                                             (lambda: explore(3, x=1.0), TypeError), (lambda: explore(lambda x: x, x=(2, 1)), ValueError)])
def test_wrong_explorers_are_refused(make, error):
    with pytest.raises(error):
        make()


# Live plot -----------------------------------------------------------------------------------------------------


def test_live_plot_keeps_every_point_and_draws_the_last():
    live = LivePlot(total=100, title="training")
    with live:
        for i in range(100):
            live.add(loss=torch.tensor(1 / (i + 1)))
    xs, ys = live.series["loss"]
    assert len(xs) == 100 and ys[-1] == pytest.approx(0.01) and "100 of 100" in live._line.value and 'aria-valuenow="100"' in live._line.value
    live.text("done <b>")
    assert "done &lt;b&gt;" in live._line.value
    ET.fromstring(f"<div>{live._picture.value}</div>")


def test_live_plot_costs_little():
    live = LivePlot()
    with within(10):
        for i in range(20_000):
            live.add(loss=1.0 / (i + 1))
    assert len(live._picture.value) < 40_000


def test_live_plot_takes_steps_and_several_lines():
    live = LivePlot(logy=True)
    live.add(10, loss=1.0)
    live.add(20, loss=0.0, accuracy=0.5)
    live.draw()
    assert live.series["loss"][0].tolist() == [10, 20] and live.series["accuracy"][1].tolist() == [0.5]


# Quiz ----------------------------------------------------------------------------------------------------------


def test_quiz_needs_no_script():
    q = quiz("What is `1 < 2`?", {"**yes**": "Of course: *one* is less.", "no": "<script>alert(1)</script>"}, answer="**yes**")
    html = q._repr_html_()
    Balanced(re.sub(r"<style>.*?</style>", "", html))
    assert html.count("<details>") == 2 and html.count("✓") == 1 and html.count("✗") == 1
    assert "<code>1 &lt; 2</code>" in html and "<strong>yes</strong>" in html and "<script" not in html and " on" not in re.sub(r"<style>.*?</style>|>[^<]*<", "", html)
    assert "answer: A" in str(q)


def test_quiz_with_several_answers():
    q = quiz("Which?", {"a": "1", "b": "2", "c": "3"}, answer={"a", "c"})
    assert q._repr_html_().count("✓") == 2 and "2 are right" in q._repr_html_() and "answer: A, C" in str(q)


@pytest.mark.parametrize("bad", [dict(options={"a": "", "b": ""}, answer="c"), dict(options={"a": ""}, answer="a"), dict(options={"a": "", "b": ""}, answer=set())])
def test_wrong_quizzes_are_refused(bad):
    with pytest.raises(ValueError):
        quiz("q", **bad)


# Check ---------------------------------------------------------------------------------------------------------

RIGHT = [(30, 30.0), (30.0, 30), (torch.tensor(30.0), 30), ([1, 2], torch.tensor([1.0, 2.0])), (np.float64(0.333333), 1 / 3), ((1, 2), [1, 2]), ("MulBackward0 ", "MulBackward0"), (True, True),
         ({1, 2}, {2, 1}), ([2, 1], {1, 2}), ({"a": 1.0}, {"a": 1}), ([torch.tensor([1.0]), 2.0], [np.array([1.0]), 2.0]), (torch.tensor([3.0]), 3.0), (float("nan"), float("nan")),
         ([("a", 1), ("b", 2)], [("a", 1), ("b", 2)])]


@pytest.mark.parametrize(("answer", "expected"), RIGHT)
def test_right_answers(answer, expected):
    verdict = check(answer, expected)
    assert verdict and "Right" in str(verdict) and "✓" in verdict._repr_html_()


WRONG = [(31, 30.0, "31 is not it"), ("30", 30.0, "is a text"), (len, 30.0, "is a function"), (-30, 30.0, "wrong sign"), (60, 30.0, "exactly twice"), (15, 30.0, "exactly half"), (float("inf"), 30.0, "is ∞"),
         ([1, 2], [1, 2, 3], "3 numbers"), (np.ones((2, 3)), np.ones((3, 2)), "transposed"), (np.arange(4).reshape(2, 2).T, np.arange(4).reshape(2, 2), "transposed"),
         ([1, 2, 4], [1, 2, 3], "at index 2"), (30, "thirty", "should be a text"), ("mulBackward0", "MulBackward0", "capital"), (1, True, "True or False"), (True, 1.0, "should be a number"),
         ({1}, {1, 2}, "missing"), ({1, 5}, {1, 2}, "does not belong"), ({"b": 1}, {"a": 1}, "keys"), (29.9, 30.0, "very near"), ([1], "x", "should be a text"), (object(), 3.0, "should hold numbers"),
         ([("a", 1)], [("a", 1), ("b", 2)], "entries")]


@pytest.mark.parametrize(("answer", "expected", "words"), WRONG)
def test_wrong_answers_say_in_what_way(answer, expected, words):
    verdict = check(answer, expected, hints=["first `hint`", "second"])
    assert not verdict and words in verdict.message and verdict.state == "wrong"
    html = re.sub(r"<style>.*?</style>", "", verdict._repr_html_())
    Balanced(html)
    assert html.count("<details>") == 2 and "Hint 1 of 2" in html


@pytest.mark.parametrize(("answer", "expected"), [(31, 123.456), ([1, 2, 4], [1, 2, 987.5])])
def test_the_solution_is_not_given_away(answer, expected):
    secret = str(np.ravel(expected)[-1])
    assert secret not in str(check(answer, expected)) + check(answer, expected)._repr_html_()
    assert secret in str(check(answer, expected, reveal=True))


@pytest.mark.parametrize("answer", [..., None])
def test_not_answered_yet(answer):
    verdict = check(answer, 30.0, hints=["h"])
    assert not verdict and verdict.state == "open" and "Not answered yet" in verdict._repr_html_() and "✗" not in verdict._repr_html_()


def test_known_mistakes_explain_themselves():
    mistakes = [(10.0, "only the outer derivative"), (lambda a: a < 0, "negative")]
    assert check(10.0, 30.0, mistakes=mistakes).message == "only the outer derivative"
    assert check(-1.0, 30.0, mistakes=mistakes).message == "negative"
    assert check(30.0, 30.0, mistakes=mistakes)


def test_gradients_of_tensors():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert "no backward()" in check(x, grad=[2.0, 4.0]).message
    (x * x).sum().backward()
    assert check(x, grad=[2.0, 4.0])
    assert not check(x, grad=[2.0, 5.0])
    (x * x).sum().backward()
    assert "called twice" in check(x, grad=[2.0, 4.0]).message
    assert "does not require grad" in check(torch.tensor(1.0), grad=1.0).message
    assert "should be a tensor" in check(3.0, grad=1.0).message


def test_functions_are_tried_on_cases():
    assert check(lambda x: x * x, lambda x: x ** 2, cases=[0.0, 1.0, -2.0])
    assert check(lambda a, b: a + b, [3, 7], cases=[(1, 2), (3, 4)])
    assert "your function(2)" in check(lambda x: x * x if x < 2 else 0.0, lambda x: x ** 2, cases=[1.0, 2.0]).message
    assert "raised ZeroDivisionError" in check(lambda x: 1 / 0, lambda x: x, cases=[1.0]).message
    assert "is there a return" in check(lambda x: None, lambda x: x, cases=[1.0]).message
    assert "should be a function" in check(3.0, lambda x: x, cases=[1.0]).message
    assert check(..., lambda x: x, cases=[1.0]).state == "open"


def test_gradients_of_functions():
    right, other = (lambda x: x ** 3), (lambda x: x.detach() * x * x)
    assert check(right, lambda x: x * x * x, cases=[2.0, [1.0, 2.0]], grad=True)
    assert "the gradient of" in check(other, right, cases=[2.0], grad=True).message.lower()
    assert "not a tensor" in check(lambda x: 8.0, right, cases=[2.0], grad=True).message


def test_arguments_are_not_shared_between_calls():
    def spoil(v):
        v.append(1)
        return len(v)
    case = [1, 2]
    assert check(spoil, [3], cases=[(case,)]) and case == [1, 2]


def test_a_wrong_value_is_told_whatever_a_test_would_say():
    "With a value and a test to judge by, the value comes first; the test is tried on right ones alone."
    tried = []
    verdict = check(3.0, 30.0, test=tried.append)
    assert verdict.state == "wrong" and "a tenth of" in verdict.message and not tried
    assert check(30.0, 30.0, test=tried.append) and tried == [30.0]


def test_own_tests():
    assert check([3, 1, 2], test=lambda a: sorted(a) == [1, 2, 3])
    assert check([3, 1], test=lambda a: None if len(a) == 3 else "three entries, please").message == "three entries, please."
    assert "raised TypeError" in check(3, test=lambda a: len(a) == 3).message
    with pytest.raises(TypeError, match="expected="):
        check(3)


def test_everything_is_an_ipywidget_that_should_be():
    assert isinstance(stepper(lambda x: x * x, x=1.0), ipywidgets.Widget) and isinstance(LivePlot(), ipywidgets.Widget)
    assert not isinstance(quiz("q", {"a": "", "b": ""}, "a"), ipywidgets.Widget)
