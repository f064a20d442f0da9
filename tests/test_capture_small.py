"""Captured graphs of small tensors run in one interpreter: to the numbers of the step itself."""

import math
import random

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.ops import compiled
from autograd_nb.utils.capture import capture

F = torch.nn.functional
pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="numba is not installed")

EXACT = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b * 0.5,
    "quotient": lambda a, b: a / (b * b + 1),
    "root": lambda a, b: (a * a + 1).sqrt(),
    "largest": torch.maximum,
    "smallest": torch.minimum,
    "choice": lambda a, b: torch.where(a > b, a, -b),
    "absolute": lambda a, b: a.abs() - b,
    "rectified": lambda a, b: F.relu(a) + b,
}
CURVED = {
    "exp": lambda a, b: (-a * a).exp(),
    "log": lambda a, b: (a * a + 1).log(),
    "tanh": lambda a, b: torch.tanh(a + b),
    "softplus": lambda a, b: F.softplus(a),
    "sine": lambda a, b: a.sin() * b.cos(),
    "sigmoid": lambda a, b: torch.sigmoid(a) * b,
    "power": lambda a, b: (a * a + 1) ** 1.5,
}


def graph(functions, seed, shapes, dtype, count=60):
    "A random graph of small tensors with its leaves, as a step with a backward pass."
    rng = random.Random(seed)
    torch.manual_seed(seed)
    shape = rng.choice(shapes)
    leaves = [torch.randn(shape if rng.random() < 0.7 else (), dtype=dtype).requires_grad_() for _ in range(4)]
    plan = [(rng.choice(list(functions.values())), rng.randrange(4 + i), rng.randrange(4 + i)) for i in range(count)]

    def step(x):
        values = [*leaves]
        values[0] = values[0] * x
        for leaf in leaves:
            leaf.grad = None
        for f, i, j in plan:
            values.append(f(values[i], values[j]) * 0.7)
        loss = sum(v.sum() for v in values[-20:])
        loss.backward()
        return loss, values[-1]

    return step, leaves, [torch.randn((), dtype=dtype) for _ in range(5)]


def compare(functions, seed, shapes, dtype):
    "What the step gives, and what its replays give."
    found = []
    for wrap in (lambda step: step, capture):
        step, leaves, data = graph(functions, seed, shapes, dtype)
        step = wrap(step)
        rows = []
        for x in data:
            loss, last = step(x)
            rows += [loss.detach().numpy().copy(), last.detach().numpy().copy(),
                     *[leaf.grad.numpy().copy() for leaf in leaves if leaf.grad is not None]]
        found.append(rows)
    assert "small lines" in step.program
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("seed", range(8))
def test_arithmetic_gives_the_same_bits(seed, dtype):
    for a, b in zip(*compare(EXACT, seed, [(), (3,), (2, 3)], dtype)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype,rtol", [(torch.float32, 2e-5), (torch.float64, 1e-12)], ids=["single", "double"])
@pytest.mark.parametrize("seed", range(8))
def test_functions_give_the_same_numbers(seed, dtype, rtol):
    for a, b in zip(*compare({**EXACT, **CURVED}, seed, [(), (3,), (2, 3)], dtype)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, 88.8, -104.0, 3e38, 710.0]
ALONE = {
    "exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "log1p": torch.log1p, "expm1": torch.expm1, "sqrt": torch.sqrt,
    "sin": torch.sin, "cos": torch.cos, "abs": torch.abs, "reciprocal": torch.reciprocal, "square": torch.square,
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)), "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "minimum": lambda x: torch.minimum(x, x.flip(0)), "division": lambda x: x / x.flip(0), "power": lambda x: x ** 3.5,
    "where": lambda x: torch.where(x > 0, x, -x), "equal": lambda x: torch.where(x == 0, x, 1 / x),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ALONE)
def test_special_values(name):
    f = ALONE[name]

    def step(x):
        y = x * 1.0
        for _ in range(20):
            y = y * 1.0
        return f(y), y

    captured, x = capture(step), torch.tensor(SPECIAL)
    expected = step(x)[0].numpy()
    for _ in range(3):
        found = captured(x)[0].numpy()
    assert "small lines" in captured.program
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(expected)]))


def test_what_a_caller_keeps_is_not_overwritten():
    @capture
    def step(x):
        y = x
        for _ in range(12):
            y = y * x + 1
        return y, y > 0, y.reshape(3, 1)

    x = torch.tensor([0.5, -0.5, 0.1])
    for _ in range(3):
        kept = step(x)
    before = [t.numpy().copy() for t in kept]
    step(-x)
    for a, t in zip(before, kept):
        np.testing.assert_array_equal(a, t.numpy())
    assert kept[1].dtype is torch.bool


def test_a_loop_of_small_steps():
    "An explicit solver: state, parameters and a loss, trained for a few steps."
    def build():
        torch.manual_seed(0)
        w = torch.randn(3, requires_grad=True)

        def step(x):
            w.grad = None
            state = x
            for _ in range(15):
                state = state + 0.1 * torch.tanh(w * state - 0.3)
            loss = (state ** 2).sum()
            loss.backward()
            with torch.no_grad():
                w.sub_(w.grad * 0.1)
            return loss
        return step, w

    step, w = build()
    again, v = build()
    again = capture(again)
    x = torch.tensor([0.3, -1.0, 2.0])
    for _ in range(8):
        torch.testing.assert_close(again(x), step(x).detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(w.detach(), v.detach(), rtol=1e-5, atol=1e-6)


def test_rules_that_call_operations_are_taken_apart():
    "The derivative of softplus is written with the operations sigmoid and where; both become instructions."
    w = torch.tensor(0.3, requires_grad=True)

    @capture
    def step():
        w.grad = None
        y = w
        for _ in range(30):
            y = F.softplus(y) * 0.9
        y.backward()
        return y

    for _ in range(3):
        step()
    assert "SoftplusBackward0" not in step.program and "small lines" in step.program
