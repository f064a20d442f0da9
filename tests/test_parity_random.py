"""Random shapes, dims, indices and programs, under PyTorch and under autograd_nb: values, gradients, second gradients, versions, errors."""

import numpy as np
import pytest
from _compare import close, short, to_numpy
from hypothesis import HealthCheck, given, note, settings
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

LINES = """
{new} = {x} * 2
{new} = {x}.sin()
{new} = {x} + {y}
{new} = {x} * {y}
{new} = {x} * {x}
{new} = {x}.tanh() - {y}
{new} = {x}.sum(0)
{new} = torch.stack([{x}, {x}])
{new} = torch.cat([{x}, {y}])
{new} = {x}.clone()
{new} = {x}.reshape(-1)[[0, 0]]
{new} = {x}.softmax(0)
{new} = {x}[0]
{new} = {x}[1:]
{new} = {x}[..., 0]
{new} = {x}[..., 1:]
{new} = {x}[::2]
{new} = {x}.transpose(0, -1)
{new} = {x}.view(-1)
{new} = {x}.flatten()
{new} = {x}.unsqueeze(0)
{new} = {x}.squeeze()
{new} = {x}.diagonal()
{new} = {x}.detach()
{new} = {x}.expand(2, *{x}.shape)
{new} = {x}.narrow(0, 0, 1)
{new} = {x}.select(-1, 0)
{new} = {x}[None, 0]
{x}.add_(1)
{x}.mul_(2)
{x}.mul_({y})
{x}.add_({y})
{x}.sub_({y}, alpha=2)
{x}.div_(3)
{x}.sin_()
{x}.tanh_()
{x}.sigmoid_()
{x}.relu_()
{x}.clamp_(min=0.2)
{x}.copy_({y})
{x}.zero_()
{x}.fill_(0.5)
{x}.masked_fill_({x} > 0.4871, 0.25)
{x}.pow_(2)
{x}[0] = {y}
{x}[0] = 2.0
{x}[..., 1:] *= 2
{x}[1:] = {y}
{x}[..., 0] += {y}
{x}[[0]] = {y}
{x}[{x} > 0.4871] = 0.1
{x} += {y}
{x}.view(-1)[0] = 3.0
{x}[0][0] = {y}.sum()
{x}.detach().mul_(2)
""".strip().splitlines()
START = """
a = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6]], dtype=torch.float64, requires_grad=True)
b = torch.tensor([0.7, -0.8, 0.9], dtype=torch.float64, requires_grad=True)
c = torch.tensor([[1.1, 1.2, 1.3], [-1.4, 1.5, 1.6]], dtype=torch.float64)
d = a * 1
e = d * b
""".strip().splitlines()
NAMES = "abcdefghijklmnopqrs"
# Errors that PyTorch raises to be careful and where ours may compute instead.
CAREFUL = ("refer to a single memory location", "more than one element of the written-to", "is a view and is being modified inplace", "A view was created in no_grad mode",
           "Can't detach views")


def write_program(choices):
    "Lines from numbers: each choice picks a line, its two variables (recent ones rather) and whether it runs under no_grad."
    lines, count = list(START), len(START)
    for kind, x, y, quiet in choices:
        line = LINES[kind % len(LINES)]
        new = "{new}" in line and count < len(NAMES)
        first = NAMES[max(0, count - 1 - x % count)]
        second = [name for name in NAMES[:count] if name != first or new][-1 - y % (count - 1)]
        text = line.format(new=NAMES[count if new else count - 1], x=first, y=second)
        count += new
        lines.append(f"with torch.no_grad(): {text}" if quiet == 0 and not new else text)
    return lines


def step(line, scope):
    "Run one line; the error if it fails."
    try:
        exec(line, scope)
    except Exception as error:
        return error


def facts(scope):
    "What can be seen of each variable."
    out = {}
    for name in NAMES:
        if name in scope:
            t = scope[name]
            out[name] = (tuple(t.shape), t.requires_grad, t.is_leaf, t._version), to_numpy(t)
    return out


def finish(torch, scope):
    "The gradients of the sum of everything, or the error."
    total = 0
    for k, name in enumerate(NAMES):
        if name in scope and scope[name].requires_grad:
            total = total + (scope[name] * (k + 1.5)).sum()
    try:
        total.backward()
    except Exception as error:
        return error, None
    return None, [scope["a"].grad if name == "a" else scope["b"].grad for name in "ab"] if "a" in scope else None


def alike(e, f):
    "Neither failed, or both did and ours is of PyTorch's kind."
    return f is None if e is None else isinstance(f, type(e))


def check_program(lines):
    import warnings

    expected, found = {"torch": torch}, {"torch": ours}
    leaves = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, line in enumerate(lines):
            e, f = step(line, expected), step(line, found)
            if e is not None or f is not None:
                if any(words in str(w) for w in (e, f) for words in CAREFUL):
                    return
                note(f"line {n}: {line}\n  torch: {e!r}\n  ours: {f!r}")
                assert alike(e, f), f"{line}: torch {short(e) if e else 'fine'}, ours {short(f) if f else 'fine'}"
            if n == 1:
                leaves = [(s["a"], s["b"]) for s in (expected, found)]
            for name, (seen, values) in facts(expected).items():
                ours_seen, ours_values = facts(found)[name]
                assert seen == ours_seen, f"after {line!r}: {name} (shape, requires_grad, is_leaf, version): torch {seen}, ours {ours_seen}"
                np.testing.assert_allclose(ours_values, values, rtol=1e-9, atol=1e-12, err_msg=f"after {line!r}: {name}")
        (e, _), (f, _) = finish(torch, expected), finish(ours, found)
        assert alike(e, f), f"backward: torch {short(e) if e else 'fine'}, ours {short(f) if f else 'fine'}"
        if e is not None:
            assert short(e) == short(f)
            return
        for p, q in zip(*leaves):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                close(p.grad, q.grad, rtol=1e-7, atol=1e-9)


@settings(QUICK, max_examples=400)
@given(st.lists(st.tuples(st.integers(0, len(LINES) - 1), st.integers(0, 4), st.integers(0, 7), st.integers(0, 11)), min_size=1, max_size=9))
def test_programs_with_views_and_in_place_writes(choices):
    lines = write_program(choices)
    note("\n".join(lines))
    check_program(lines)
