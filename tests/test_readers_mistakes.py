"A reader's own function that cannot be shown: each demo says what is wrong with it, and a notebook shows that without the lines of the package."

import math
import re

import pytest

import autograd_nb as torch
from autograd_nb.viz import unfold
from autograd_nb.widgets import (bucket, chain_slider, check, checkpoint_memory, debug, explore, gradcheck_view, playground, scalar_engine, stepper, trace,
                                 zero_grad_race)

DEMOS = {
    "stepper": lambda f: stepper(f, x=1.0), "explore": lambda f: explore(f, x=1.0), "bucket": lambda f: bucket(f, x=1.0), "zero_grad_race": zero_grad_race,
    "chain_slider": lambda f: chain_slider(f, x=(-1, 1)), "playground": lambda f: playground({"mine": f}),
}
WRONG = {  # the function, the error, what it must say
    "no return": (lambda x: None, TypeError, "is there a `return`"), "a pair": (lambda x: (x, x * 2), TypeError, "got tuple. Return one"), "a number": (lambda x: 3.0, TypeError, "without .item()"),
    "the math module": (lambda x: math.sin(x), TypeError, "math module"), "a vector": (lambda x: torch.stack([x, x * 2]), RuntimeError, "implicitly created only for scalar outputs"),
    "complex": (lambda x: x * 1j, RuntimeError, "real scalar outputs"), "a text": (lambda x: "hello", TypeError, "got str"), "a generator": (lambda x: (yield x), TypeError, "in place of `yield`"),
}
FLAT = {"detached": lambda x: (x * 2).detach(), "whole numbers": lambda x: (x * 2).long(), "no_grad": torch.no_grad()(lambda x: x * 2)}


@pytest.mark.parametrize("demo", DEMOS)
@pytest.mark.parametrize("what", WRONG)
def test_a_result_that_is_no_scalar_tensor(demo, what):
    f, kind, words = WRONG[what]
    with pytest.raises(kind, match="(?i)" + re.escape(words)) as caught:
        DEMOS[demo](f)
    assert type(caught.value) is kind


@pytest.mark.parametrize("demo", [d for d in DEMOS if d != "playground"])
@pytest.mark.parametrize("what", FLAT)
def test_a_result_without_a_graph(demo, what):
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn.*no_grad"):
        DEMOS[demo](FLAT[what])


@pytest.mark.parametrize("what", FLAT)
def test_the_playground_shows_that_no_gradient_comes_back(what):
    assert "gradient by 0" in playground({"mine": FLAT[what]}).players["mine"].captions[0]


@pytest.mark.parametrize("demo", DEMOS)
def test_what_a_function_raises_arrives_as_it_is_with_its_line(demo):
    def mine(x): raise KeyError("my own bug")

    with pytest.raises(KeyError, match="my own bug") as caught:
        DEMOS[demo](mine)
    shown = caught.value._render_traceback_()
    assert any("raise KeyError" in line and "of mine" in line for line in shown)
    assert not any("autograd_nb/" in line for line in shown) and shown[0] == f"{demo}() could not be shown."


@pytest.mark.parametrize("f, takes", [(lambda x, y: x * y, "It takes x, y"), (lambda: torch.tensor(1.0), "takes no input"), (torch.nn.Linear(1, 1), "It takes input")])
def test_other_names_for_the_inputs(f, takes):
    for demo in (stepper, bucket, scalar_engine):
        with pytest.raises(TypeError, match=takes):
            demo(f, x=1.0)


@pytest.mark.parametrize("demo", DEMOS)
@pytest.mark.parametrize("f", [lambda x: x * float("nan"), lambda x: torch.log(x - 1e9), lambda x: x * float("inf"), lambda x: (x.half() * 3) ** 2, lambda x: (x.bfloat16() * 3) ** 2, lambda x: x * 1e30 * 1e7, lambda x: x])
def test_unusual_numbers_are_shown(demo, f):
    assert str(DEMOS[demo](f))


@pytest.mark.parametrize("demo", [trace, debug])
def test_tensors_that_cannot_go_backward(demo):
    x = torch.ones(2, requires_grad=True)
    for loss, kind, words in ((x * 2, RuntimeError, "scalar outputs"), ((x * 2).sum().detach(), RuntimeError, "does not require grad"), ((x * 1j).sum(), RuntimeError, "real scalar"), (3.0, TypeError, "expected a tensor")):
        with pytest.raises(kind, match=words):
            demo(loss)
    assert x.grad is None


def test_the_scalar_engine_says_what_a_value_knows():
    for f in (torch.exp, lambda x: math.sin(x), lambda x: x.sigmoid(), lambda x: x > 0):
        with pytest.raises(TypeError, match=r"A Value knows .*exp\(\)"):
            scalar_engine(lambda x, f=f: f(x), x=1.0)
    assert "nan" in str(scalar_engine(lambda x: x * float("nan"), x=1.0))
    def backwards_already(x):
        (x * x).backward()
        return x * 2
    assert scalar_engine(backwards_already, x=1.0).grads["x"] == 2


def test_a_button_says_what_went_wrong():
    calls = []
    def fragile(x):
        calls.append(1)
        if len(calls) > 1: raise KeyError("spent")
        return x * x
    panel = bucket(fragile, story=("backward",), x=1.0)
    panel.player.slider.value = panel.player.slider.max
    assert panel.press("backward") is None and "KeyError" in panel.note.value and "spent" in panel.note.value


def test_the_other_demos():
    with pytest.raises(TypeError, match="pass the tensor that the computation returned"): unfold(3.0)
    with pytest.raises(IndexError, match="no output 0"): gradcheck_view(lambda x: None, (torch.ones(2, dtype=torch.float64, requires_grad=True),))
    with pytest.raises(ZeroDivisionError): checkpoint_memory(lambda: lambda x: x * (1 / 0), torch.randn(4, 4), depths=(2,))
    assert str(unfold(torch.tensor(3.0))) == "the whole graph · 1 node"


def test_checks_notice_what_a_function_does_besides():
    def judge(f):
        x = torch.ones(3)
        got = f(x)
        return None if isinstance(got, torch.Tensor) and got.tolist() == [2.0] * 3 else f"Return a tensor, not {type(got).__name__}"

    assert check(lambda x: x * 2, test=judge, name="twice")
    spoiled = check(lambda x: x.mul_(2), test=judge, name="twice")
    assert not spoiled and "twice writes into argument 1" in spoiled.message
    assert check(lambda x: x.mul_(2), test=judge, name="twice", writes=True)
    assert "Is there a `return`?" in check(lambda x: print(end=""), test=judge).message
    assert "a list" not in check(lambda x: [2.0], test=judge).message and "not list" in check(lambda x: [2.0], test=judge).message
    assert "it is empty" in check([], 3.0).message and "'so' is not it" in check("so", "thus").message
    assert "should be a class" in check(3, test=lambda C: C(), name="Counter").message
    unwritten = check(lambda x: ..., lambda x: x, cases=[1.0], hints=["Return x."])
    assert unwritten.state == "open" and "..." in unwritten.message
    assert check(lambda x: None, lambda x: x, cases=[1.0]).state == "wrong"
