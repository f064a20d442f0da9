"""Large elementwise gradients are put off and computed together: to the same bits, in less memory, and with everything else a backward pass promises."""

import gc
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_nb as torch
from autograd_nb.graph.modes import LAYERS
from autograd_nb.layers.lazy import Fusible
from autograd_nb.ops import compiled, together

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="needs numba, whose loops compute what was put off")
N = Fusible.numbers


def numbers(*shape, seed=0, low=0.5, high=2.0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32))


def gradients(f, inputs, *grads):
    inputs = [x.detach().requires_grad_() for x in inputs]
    f(*inputs).backward(*grads)
    return [x.grad for x in inputs]


@contextmanager
def at_once():
    "Within this block no gradient is put off."
    evaluator, Fusible.evaluator = Fusible.evaluator, None
    try: yield
    finally: Fusible.evaluator = evaluator


def same(f, *inputs, grads=(), bits=True):
    "The gradients, which must be those of one operation after another: to the bit, unless sums on the way are added up in another order."
    got = gradients(f, inputs, *grads)
    with at_once():
        want = gradients(f, inputs, *grads)
    for a, b in zip(got, want):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
            if bits:
                same_bytes = a.numpy().tobytes() == b.numpy().tobytes()  # with a name, so that a failure does not print megabytes
                assert same_bytes
            else:
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6 * float(b.abs().max()))
    return got


@pytest.fixture
def drawn(monkeypatch):
    "The lengths of the expressions that are carried out, as in a process that has seen no complex numbers, bfloat16 or hooks: those are looked for at every node."
    looking = [name for name in ("conjugates", "half", "leaf_hooks") if LAYERS.plugged[name].on]
    for name in looking: LAYERS.switch(name, False)
    lengths = []
    expression_of = together.expression_of

    def noting(lines, read, wanted):
        lengths.append(len(lines))
        return expression_of(lines, read, wanted)

    monkeypatch.setattr(together, "expression_of", noting)
    yield lengths
    for name in looking: LAYERS.switch(name, True)


UNARY = ("neg", "exp", "tanh", "sin", "sqrt", "log", "sigmoid", "relu", "abs", "square", "reciprocal")
BINARY = (torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.atan2)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_programs_to_the_bit(data):
    inputs = [numbers(N + 3, seed=k) for k in range(data.draw(st.integers(1, 3)))]
    steps = data.draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.sampled_from((0.5, 2, -1.25, 3))), min_size=1, max_size=14))

    def program(*inputs):
        known = [*inputs]
        for kind, i, j, c in steps:
            a, b = known[i % len(known)], known[j % len(known)]
            if kind % 3 == 0:
                known.append(getattr(a, UNARY[kind % len(UNARY)])())
            elif kind % 3 == 1:
                known.append(BINARY[kind % len(BINARY)](a, b))
            else:
                known.append((a + c, a * c, c - a, a / c)[kind % 4])
        return sum(k.sum() for k in known[-2:])

    same(program, *inputs)


def test_a_chain_is_one_program(drawn):
    def chain(x, y):
        z = (x * y + x).tanh() * 0.5 + y
        return ((z * 0.1).exp() - x).square().sum()

    x, y = numbers(N, seed=1), numbers(N, seed=2)
    same(lambda x, y: (((x * y + x).tanh() * 0.5 + y) * 0.1 - x).sum(), x, y)
    assert len(drawn) == 1 and drawn[0] >= 8
    same(chain, x, y)


def test_small_arrays_and_other_dtypes_are_left_alone(drawn):
    same(lambda x: (x * 2 + 1).tanh().sum(), numbers(N - 1))
    same(lambda x: (x * 2 + 1).tanh().sum(), numbers(N).double())
    assert drawn == []


def test_long_chains_are_cut(drawn):
    def long(x, y):
        for _ in range(90):
            x = x * y + 0.01
        return x.sum()

    same(long, numbers(N, low=0.9, high=1.0), numbers(N, seed=1, low=0.9, high=1.0))
    assert len(drawn) > 3 and max(drawn) <= 2 * together.LONGEST


def test_many_inputs_are_more_than_one_program(drawn):
    inputs = [numbers(N, seed=k) for k in range(24)]
    same(lambda *xs: sum((x * y).tanh() for x, y in zip(xs, xs[1:])).sum(), *inputs)
    assert len(drawn) > 1


def test_one_gradient_for_several_leaves():
    x, y, z = (numbers(N, seed=k).requires_grad_() for k in range(3))
    ((x + y + z) * 3.0).sum().backward()
    assert float(x.grad[0]) == 3
    x.grad.zero_()
    assert float(y.grad[0]) == float(z.grad[5]) == 3  # memory of their own


def test_accumulation_adds_to_what_is_there():
    x = numbers(N).requires_grad_()
    for k in range(1, 4):
        (x * 2 + x).sum().backward()
        assert float(x.grad[7]) == 3 * k
    g = x.grad
    (x * 2).sum().backward()
    assert x.grad is g and float(g[0]) == 11


def test_a_leaf_that_gets_gradients_of_both_kinds():
    w = numbers(1024, 512)
    same(lambda w, v: ((w * v).tanh() + w).sum() + (w @ w.t()).sum() + (w * 3).sum(), w, numbers(1024, 512, seed=1))


def test_broadcasting_and_reductions_between():
    x, b = numbers(1024, 600), numbers(600, seed=1)
    same(lambda x, b: ((x + b) * (x / (x.sum(1, keepdim=True) + 1))).tanh().mean(), x, b, bits=False)
    same(lambda x, b: ((x * b).exp() * 0.5).logsumexp(0).sum(), x, b, bits=False)
    same(lambda x, b: (x.t() * 2 + x.t().tanh()).sum(), x, b)


def test_a_gradient_from_outside():
    x = numbers(1024, 600)
    same(lambda x: (x * x).tanh() * 3, x, grads=(numbers(1024, 600, seed=3),))
    same(lambda x: (x * x).tanh() * 3, x, grads=(numbers(600, 1024, seed=3).t(),))
    same(lambda x: x * 2, x, grads=(torch.ones(()).expand(1024, 600),))


def test_the_graph_can_be_kept():
    x = numbers(N).requires_grad_()
    y = ((x * x).tanh() * 0.5).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, first * 2)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_hooks_see_what_they_always_saw():
    def run(draw):
        x = numbers(N).requires_grad_()
        seen = []
        a = x * 2
        b = a.tanh()
        a.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        b.retain_grad()
        c = b * x
        c.grad_fn.register_hook(lambda gi, go: seen.append(go[0].clone()))
        c.sum().backward()
        return [x.grad, b.grad, *seen]

    got = run(True)
    with at_once():
        want = run(False)
    assert len(got) == len(want) == 4 and all(torch.equal(a, b) for a, b in zip(got, want))


def test_an_overwritten_value_is_found():
    x = numbers(N).requires_grad_()
    y = (x * 2).exp()
    z = y * 3
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (z * y).sum().backward()


def test_higher_order_and_chosen_inputs():
    x = numbers(N)
    leaf = x.clone().requires_grad_()
    (g,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), leaf)
    assert torch.allclose(h, 6 * x)
    other = numbers(N, seed=1).requires_grad_()
    (leaf * other).sum().backward(inputs=[other])
    assert leaf.grad is None and torch.equal(other.grad, x)


def test_steps_of_the_walk_give_the_same_bits():
    x, y = numbers(N).requires_grad_(), numbers(N, seed=1).requires_grad_()

    def loss():
        return ((x * y + x).tanh() * (y - 0.25)).sum()

    loss().backward()
    want = x.grad, y.grad
    x.grad = y.grad = None
    from autograd_nb.graph.engine import walk

    assert len(list(walk(loss()))) > 5
    assert all(torch.equal(a, b) for a, b in zip(want, (x.grad, y.grad)))


def test_nothing_is_left_behind():
    gc.disable()
    try:
        x = numbers(N).requires_grad_()
        y = (x * 2).tanh()
        saved = weakref.ref(y._array)
        (y * y).sum().backward()
        del y
        assert saved() is None
        y = (x * 2).tanh()
        saved = weakref.ref(y._array)
        loss = (y * y.detach().requires_grad_() * Failing.apply(y)).sum()
        with pytest.raises(ValueError, match="no"):
            loss.backward()
        del y, loss
        assert saved() is None
    finally:
        gc.enable()


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no")


def test_less_memory_than_one_after_another():
    from autograd_nb.arrays.memory import track_memory

    def peak():
        x = numbers(N).requires_grad_()
        y = x
        for _ in range(6):
            y = (y * x + 1) * 0.5
        loss = y.sum()
        with track_memory() as trace:
            loss.backward()
        return trace.added

    drawn = peak()
    with at_once():
        plain = peak()
    assert drawn <= plain + 4 * N


# Passes that fail ----------------------------------------------------------------------------------------------


class Refusing(torch.autograd.Function):
    "Fails on the way back."

    @staticmethod
    def forward(ctx, x): return x * 2

    @staticmethod
    def backward(ctx, g): raise ArithmeticError


def overwritten(x):
    y = (x * 1).exp()
    y.detach().mul_(2)
    return y


def freed(x):
    y = (x * 1).exp()
    y.sum().backward()
    return y


def hooked(x):
    y = x * 1
    y.register_hook(lambda g: 1 / 0)
    return y * 1


FAILING = dict(function=lambda x, y: Refusing.apply(x * 1), behind=lambda x, y: Refusing.apply(x * y), overwritten=lambda x, y: overwritten(x), freed=lambda x, y: freed(x), hooked=lambda x, y: hooked(x))


@pytest.mark.parametrize("held", [False, True], ids=["", "gradients are there"])
@pytest.mark.parametrize("fail", FAILING.values(), ids=FAILING)
def test_what_leaves_hold_after_a_pass_that_fails(fail, held):
    "Those that were to get no more have got all, as with small arrays, and the others nothing; the next pass adds to that."

    def seen(size):
        a, b, c = (torch.ones(size, requires_grad=True) for _ in range(3))
        if held:
            for leaf in (a, b, c): leaf.grad = torch.ones(size)
        h, found = fail(a, b), []
        y = (h * b * 3 + b.sin() + c.exp() + c.cos()).sum()
        for _ in range(2):
            with pytest.raises((ArithmeticError, RuntimeError)): y.backward(retain_graph=True)
            found += [None if leaf.grad is None else leaf.grad[0].item() for leaf in (a, b, c)]
        return found

    for large, small in zip(seen(N), seen(4), strict=True):
        assert large == (small if small is None else pytest.approx(small, rel=1e-6))
