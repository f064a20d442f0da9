"""What each operation computes: PyTorch's numbers on every sample, and at the places where formulas break (zeros, infinities, NaN, ties, large and tiny numbers)."""

import importlib.util

import numpy as np
import pytest
from _compare import close
from test_ops_matrix import cases

import autograd_nb as ours
from autograd_nb.ops.bessel import UNDIFFERENTIATED
from autograd_nb.graph.op import REGISTRY

pytestmark = pytest.mark.needs("torch")


def lib():
    import torch

    return torch


def functional(name):
    return lambda *a, **k: getattr(lib().nn.functional, name)(*a, **k)


def places(index):
    return tuple(lib().from_numpy(i) if isinstance(i, np.ndarray) else i for i in index)


def index_with(x, index):
    return x[places(index)]


def put(x, values, index, accumulate):
    "`index_put`, whose indices may also be slices here."
    where = lib().arange(x.numel()).reshape(x.shape)[places(index)]
    return x.put(where, values.expand(where.shape), accumulate)


def convolution(x, weight, bias=None, *, stride, padding, dilation, groups):
    return lib().convolution(x, weight, bias, stride, padding, dilation, False, (0,) * len(stride), groups)


def lstm_cell(x, c):
    "PyTorch's cell multiplies by weights first: by the identity, and by nothing for the state."
    n = c.shape[-1]
    rows, memory, one = x.reshape(-1, 4 * n), c.reshape(-1, n), lib().eye(4 * n, dtype=x.dtype)
    h, new = lib().lstm_cell(rows, (lib().zeros_like(memory), memory), one, lib().zeros_like(one[:, :n]))
    gates = lib().cat([p.tanh() if k == 2 else p.sigmoid() for k, p in enumerate(x.split(n, -1))], -1)
    return h.reshape(c.shape), new.reshape(c.shape), gates


def gru_cell(x, r, h):
    "PyTorch's cell with weights that are the identity for the input, and a memory whose product is `r` by way of the bias; one row at a time, as the bias is one for all."
    n, zeros = h.shape[-1], lib().zeros
    one, rows = lib().eye(3 * n, dtype=x.dtype), [v.reshape(-1, v.shape[-1]) for v in (x, r, h)]
    new = lib().cat([lib().gru_cell(a[None], c[None], one, zeros(3 * n, n, dtype=x.dtype), zeros(3 * n, dtype=x.dtype), b) for a, b, c in zip(*rows)])
    (xr, xz, xn), (rr, rz, rn) = x.split(n, -1), r.split(n, -1)
    reset = (xr + rr).sigmoid()
    return new.reshape(h.shape), lib().cat([reset, (xz + rz).sigmoid(), (xn + reset * rn).tanh()], -1)


def written(like, shape, write):
    out = lib().zeros(shape, dtype=like.dtype)
    write(out)
    return out


def turn(x):
    "Complex numbers as pairs of real ones, pairs of real ones as complex: what `turned=True` sees."
    return lib().view_as_real(x).flatten() if x.is_complex() else lib().view_as_complex(x.reshape(-1, 2))


def strided(x, size, stride, storage_offset, layout, turned=False):
    x = turn(x) if turned else x
    return lib().as_strided(x, size, stride, storage_offset)


def strided_zeros(g, shape, size, stride, storage_offset, layout, turned=False):
    assert not turned  # no sample turns it
    x = lib().zeros(shape, dtype=g.dtype, requires_grad=True)
    return lib().autograd.grad(lib().as_strided(x, size, stride, storage_offset), x, g)[0]


def strided_scatter(x, src, size, stride, storage_offset, layout, turned=False):
    assert not turned  # no sample turns it
    return lib().as_strided_scatter(x, src, size, stride, storage_offset)


def transpose_of_nll(g, target, shape, weight, ignore_index, reduction):
    x = lib().zeros(shape, dtype=g.dtype, requires_grad=True)
    return lib().autograd.grad(nll(x, target, weight, ignore_index, reduction), x, g)[0]


def nll(x, target, weight, ignore_index, reduction):
    weight = None if weight is None else lib().from_numpy(weight)
    return lib().nn.functional.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=reduction)


def take(x, index, dim, keepdim, node=None):
    if keepdim: return x.gather(dim, index)
    return x.gather(dim, index.unsqueeze(dim)).squeeze(dim)


def dim_or_all(name, **fixed):
    "A reduction whose PyTorch form takes no dim for 'all'."
    return lambda x, dim, keepdim, **k: getattr(x, name)(**k) if dim is None and not keepdim else getattr(x, name)(dim=dim, keepdim=keepdim, **k)


# Operations that PyTorch has under another name or signature. The others are torch.<name>(*inputs, **statics).
REFERENCE = {
    "unsafe_view": lambda x, shape: x.reshape(shape),
    "expand": lambda x, size: x.expand(size),
    "repeat": lambda x, sizes: x.repeat(sizes),
    "sum_to_size": lambda x, size: x.sum_to_size(size),
    "squeeze": lambda x, dim: x.squeeze() if dim is None else x.squeeze(dim),
    "pad_dim": lambda x, dim, before, after: lib().nn.functional.pad(x.transpose(dim, -1), (before, after)).transpose(dim, -1),
    "cat": lambda *xs, dim: lib().cat(xs, dim),
    "stack": lambda *xs, dim: lib().stack(xs, dim),
    "split": lambda x, sizes, dim: x.split(sizes, dim),
    "diagonal_scatter": lambda g, shape, **k: lib().zeros(shape, dtype=g.dtype).diagonal_scatter(g, **k),
    "basic_index": lambda x, index: index_with(x, index),
    "index": lambda x, index, node=None, in_rows=False: index_with(x, index),
    "place": lambda g, shape, index: written(g, shape, lambda out: out.__setitem__(index, g)),
    "index_add_zeros": lambda g, shape, index: put(lib().zeros(shape, dtype=g.dtype), g, index, True),
    "gather": lambda x, index, dim: x.gather(dim, index),
    "picked": take,
    "scatter_add_zeros": lambda g, index, shape, dim: written(g, shape, lambda out: out.scatter_add_(dim, index, g)),
    "scatter_add": lambda x, src, index, dim: x.scatter_add(dim, index, src),
    "as_strided": strided,
    "as_strided_zeros": strided_zeros,
    "as_strided_scatter": strided_scatter,
    "index_put": put,
    "index_copy": lambda x, source, index: put(x, source, index, False),
    "index_add": lambda x, source, index, alpha: put(x, alpha * source, index, True),
    "index_fill": lambda x, mask, value: x.masked_fill(mask, value),
    "filled_where": lambda x, value, mask: x.masked_fill(mask, value),
    "put_number": lambda x, index, dim, value: x.scatter(dim, index, value),
    "scatter_mean": lambda x, src, index, dim, include_self: x.scatter_reduce(dim, index, src, "mean", include_self=include_self),
    "at_least": lambda x, limit: x.clamp_min(limit),
    "at_most": lambda x, limit: x.clamp_max(limit),
    "rsub": lambda x, y: y - x,
    "pow": lambda x, exponent: x**exponent,
    "pow_tensor": lambda x, y: x**y,
    "rpow": lambda x, base: base**x,
    "zero": lambda x: x * 0,
    "filled": lambda x, value: lib().full_like(x, value),
    "clone": lambda x, **layout: x.clone(),
    "copied": lambda x, src: src.expand(x.shape).to(x.dtype),
    "where": lambda x, y, condition: lib().where(condition, x, y),
    "to": lambda x, dtype: x.to(getattr(lib(), str(dtype))),
    "sum": dim_or_all("sum"),
    "mean": dim_or_all("mean"),
    "var": lambda x, dim, correction, keepdim: x.var(dim, correction=correction, keepdim=keepdim),
    "std": lambda x, dim, correction, keepdim: x.std(dim, correction=correction, keepdim=keepdim),
    "root_of_sum": lambda x, dim, keepdim: lib().linalg.vector_norm(x, 2, dim, keepdim),
    "amax": lambda x, dim, keepdim: x.max() if dim is None else x.amax(dim, keepdim),
    "amin": lambda x, dim, keepdim: x.min() if dim is None else x.amin(dim, keepdim),
    "median": lambda x, dim, keepdim: x.median() if dim is None else x.median(dim, keepdim).values,
    "nanmedian": lambda x, dim, keepdim: x.nanmedian() if dim is None else x.nanmedian(dim, keepdim).values,
    "prod": dim_or_all("prod"),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: x.cumprod(dim),
    "mv": lambda x, y: x.mv(y),
    "addmm": lambda bias, x, y, beta, alpha: lib().addmm(bias, x, y, beta=beta, alpha=alpha),
    "logsigmoid": functional("logsigmoid"),
    "polygamma": lambda x, order: lib().polygamma(order, x),
    "prelu": lambda x, weight: lib().where(x > 0, x, x * weight),
    "solve": lambda a, b: lib().linalg.solve(a, b),
    "triangular_solve": lambda a, b, **k: lib().linalg.solve_triangular(a, b, **k),
    "qr": lambda x, mode: tuple(lib().linalg.qr(x, mode)),
    "svd": None,  # singular vectors have no sign of their own
    "unfold": lambda x, dim, size, step: x.unfold(dim, size, step),
    "fold": lambda g, shape, dim, size, step: written(g, shape, lambda out: [out.narrow(dim, k * step, size).add_(g.select(dim, k).movedim(-1, dim)) for k in range(g.shape[dim])]),
    "scatter": lambda x, src, index, dim: x.scatter(dim, index, src),
    "masked_scatter": lambda x, source, mask: x.masked_scatter(mask.expand(x.shape), source),
    "nll_loss": nll,
    "nll_spread": transpose_of_nll,
    "convolution": convolution,
    "grid_sample": lambda x, grid, interpolation_mode, padding_mode, align_corners, node=None: lib().grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners),
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    # operations whose arguments come in another order than those of PyTorch's function: tests/test_nn_parity.py compares them
    **dict.fromkeys(("embedding", "binary_cross_entropy", "binary_cross_entropy_with_logits")),
    **{name: functional(name) for name in ("leaky_relu", "elu", "softplus", "silu", "gelu", "linear", "mse_loss")},
}


def reference(name):
    "PyTorch's function for an operation, or None for an operation that only serves another one's derivative."
    if not importlib.util.find_spec("torch") or name in REFERENCE:
        return REFERENCE.get(name)
    if name in UNDIFFERENTIATED:  # more exact than PyTorch's: tests/test_bessel.py
        return None
    places = (lib(), lib().special, lib().nn.functional, lib().linalg)
    return next((getattr(place, name) for place in places if hasattr(place, name)), None)


@pytest.mark.parametrize("case", cases(lambda op: reference(op.name)))
def test_value(case):
    arrays = case.draw()
    statics = {k: v for k, v in case.statics.items() if k != "node"}
    expected = reference(case.op.name)(*map(lib().from_numpy, arrays), **statics)
    expected = case.with_gradients(expected) if isinstance(expected, tuple) else [expected]
    for e, found in zip(expected, case.kernel(arrays), strict=True):
        assert e.shape == found.shape
        close(e, found, rtol=1e-9, atol=1e-12)


# Places where formulas break -----------------------------------------------------------------------------------

GRADIENT_ATOL = 1e-7
INF, NAN = float("inf"), float("nan")
HARD = [-INF, -1e30, -100.0, -30.0, -17.0, -2.5, -1.0, -0.5, -1e-8, -0.0, 0.0, 1e-8, 1e-30, 0.5, 1.0, 1.5, 2.5, 17.0, 30.0, 88.0, 100.0, 1e30, INF, NAN]
UNARY = [op.name for op in REGISTRY.values() if op.params == ("x",) and op.samples and not op.statics and len(op.samples[0]) == 1 and op.__module__.startswith("autograd_nb.ops.pointwise.") and op.jvp == "symmetric" and op.name != "zero" and reference(op.name)]
WITH_STATICS = [("leaky_relu", dict(negative_slope=0.1)), ("elu", dict(alpha=1.5)), ("softplus", dict(beta=1.0, threshold=20.0)), ("softplus", dict(beta=2.0, threshold=20.0)),
                ("gelu", dict(approximate="none")), ("gelu", dict(approximate="tanh")), ("clamp", dict(min=-0.5, max=1.0)), ("clamp", dict(min=None, max=0.5)), ("clamp", dict(min=1.0, max=None)),
                *[("pow", dict(exponent=e)) for e in (0, 1, 2, 3, 4, -1, -2, -3, 1.5, 2.0, 7, 1 / 3)], *[("rpow", dict(base=b)) for b in (1.0, 2.0, 0.5)]]


def derivatives(torch, function, arrays, order=2):
    "Value, first and (summed) second gradients."
    leaves = [torch.tensor(a).requires_grad_() for a in arrays]
    out = function(*leaves)
    first = torch.autograd.grad(out.sum(), leaves, create_graph=True, materialize_grads=True)
    if order == 1:
        return [out, *first]
    total = sum(g.sum() for g in first)
    second = torch.autograd.grad(total, leaves, materialize_grads=True) if total.requires_grad else [torch.zeros_like(x) for x in leaves]
    return [out, *first, *second]


def compare(name, statics, arrays, rtol, atol, order):
    "Compare `name` at the points in `arrays`."
    expected = derivatives(lib(), lambda *x: reference(name)(*x, **statics), arrays, order)
    found = derivatives(ours, lambda *x: REGISTRY[name].general(*x, **statics), arrays, order)
    for what, e, f in zip(("value", *["gradient"] * len(arrays), *["second gradient"] * len(arrays)), expected, found):
        e, f = e.detach().double().numpy(force=True), f.detach().double().numpy()
        wrong = ~np.isclose(f, e, rtol=rtol, atol=atol if what == "value" else GRADIENT_ATOL, equal_nan=True)
        if what != "value":
            wrong &= ~sum(np.isnan(a) for a in arrays).astype(bool)  # a slope at NaN means nothing
        points = [tuple(a[k].item() for a in arrays) for k in np.flatnonzero(wrong)]
        assert not wrong.any(), f"{what} of {name} at {points}: ours {f[wrong]}, PyTorch {e[wrong]}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, statics", [*[(n, {}) for n in UNARY], *WITH_STATICS], ids=lambda v: v if isinstance(v, str) else ",".join(f"{k}={w}" for k, w in v.items()) or "plain")
def test_hard_places_of_functions_of_one_number(name, statics, dtype):
    places = HARD[1:-2] + HARD[-1:] if name == "gelu" else HARD  # PyTorch gives NaN for gelu(inf)
    compare(name, statics, [np.array(places, dtype)], *((2e-5, 1e-30) if dtype == "float32" else (1e-9, 1e-300)), order=1)


@pytest.mark.parametrize("name", UNARY)
def test_second_derivative_at_zero_and_nearby(name):
    compare(name, {}, [np.array([-1.5, -0.5, 0.0, 0.25, 0.5, 2.0])], 1e-7, 1e-12, order=2)


PAIRS = ["add", "sub", "mul", "div", "pow_tensor", "maximum", "minimum", "atan2", "fmod", "remainder"]
FINITE = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("name", PAIRS)
def test_hard_places_of_functions_of_two_numbers(name):
    x, y = (a.ravel() for a in np.meshgrid(FINITE, FINITE))
    compare(name, {}, [x, y], 1e-9, 1e-12, order=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_slopes_of_remainders_where_the_quotient_rounds_to_a_whole_number(name, dtype):
    x, y = (a.ravel() for a in np.meshgrid(np.array([-2, -1, -0.5, 0.5, 1, 2], dtype), np.array([-INF, -0.9, -0.1, 0.1, 0.3, 0.7, INF], dtype)))
    compare(name, {}, [x, y], 1e-6, 1e-6, order=2)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "pow_tensor"])
def test_infinities_and_nan_in_functions_of_two_numbers(name):
    x, y = (a.ravel() for a in np.meshgrid([-INF, -1.0, 0.0, 2.0, INF, NAN], [-INF, -1.0, 0.0, 2.0, INF, NAN]))
    expected = reference(name)(lib().from_numpy(x), lib().from_numpy(y))
    close(expected, REGISTRY[name].kernel(x, y), rtol=1e-12, atol=0)


INTEGERS = np.array([-7, -3, -1, 0, 1, 2, 5, 100])
EXACT = ["eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", "remainder", "fmod", "floor_divide"]


NOT_OF_BOOLS = ("sub", "remainder", "fmod", "floor_divide")


@pytest.mark.parametrize("name, dtype", [(name, dtype) for name in EXACT for dtype in ("int64", "int32", "uint8", "bool") if dtype != "bool" or name not in NOT_OF_BOOLS])
def test_integers(name, dtype):
    x, y = (a.ravel() for a in np.meshgrid(INTEGERS, INTEGERS[INTEGERS != 0]))
    x, y = (np.abs(a) if dtype == "uint8" else a for a in (x, y))
    x, y = x.astype(dtype), y.astype(dtype)
    e, f = getattr(lib(), name)(lib().from_numpy(x), lib().from_numpy(y)), REGISTRY[name].general(ours.from_numpy(x), ours.from_numpy(y))
    assert str(e.dtype) == str(f.dtype) and e.tolist() == f.tolist()


@pytest.mark.parametrize("name", ["neg", "abs", "sign", "square", "exp", "sqrt", "sin", "sigmoid", "floor", "round", "logical_not", "bitwise_not", "isnan", "reciprocal", "relu", "tanh", "rsqrt", "isfinite"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_functions_of_integers(name, dtype):
    x = np.array([0, 1, 2, 5]).astype(dtype)
    try:
        e = getattr(lib(), name)(lib().from_numpy(x))
    except (RuntimeError, NotImplementedError):
        return  # ours may know an answer
    f = getattr(ours, name)(ours.from_numpy(x))
    assert str(e.dtype) == str(f.dtype)
    close(e, f)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "max", "min", "sum", "mean", "logsumexp", "softmax", "log_softmax", "cumsum", "sort", "std", "norm", "any", "all", "median"])
@pytest.mark.parametrize("row", [[1.0, NAN, 2.0], [INF, 1.0, 2.0], [-INF, -INF, -INF], [INF, -INF, 0.0], [2.0, 2.0, 2.0], [-0.0, 0.0, 0.0], [1e30, 1e30, -1e30], [1000.0, 0.0, -1000.0]], ids=str)
def test_reductions_of_hard_rows(name, row):
    def run(torch):
        x = torch.tensor([row], dtype=torch.float64, requires_grad=True)
        out = torch.norm(x, dim=1) if name == "norm" else getattr(torch, name)(x, 1)
        out = out[0] if isinstance(out, tuple) else out
        if out.requires_grad:
            out.sum().backward()
        return [out] + ([x.grad] if x.grad is not None else [])

    for e, f in zip(run(lib()), run(ours), strict=True):
        close(e, f, rtol=1e-9, atol=1e-12)


SELECTIONS = {
    "median": lambda x, d: x.median(d).values, "median of all": lambda x, d: x.median(), "kthvalue": lambda x, d: x.kthvalue(x.shape[d] // 3, d).values, "last": lambda x, d: x.kthvalue(x.shape[d], d).values,
    "topk": lambda x, d: x.topk(20, d).values, "topk of many": lambda x, d: x.topk(100, d).values, "smallest": lambda x, d: x.topk(50, d, largest=False).values,
}


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("kind", ["float32", "float64", "equal", "half zero", "nan", "inf", "int64"])
@pytest.mark.parametrize("shape, dim", [((5000,), 0), ((3, 4500), 1), ((300, 7), 0), ((2, 5000, 2), 1)], ids=str)
def test_selections_from_many_numbers(name, kind, shape, dim):
    x = np.random.default_rng(0).standard_normal(shape).astype("float64" if kind == "float64" else "float32")
    if kind in ("equal", "int64"):
        x = np.round(x * 4).astype("int64" if kind == "int64" else "float32")
    if kind == "half zero":
        x = x.clip(0)
    if kind in ("nan", "inf"):
        x.reshape(-1)[[3, 50, 700]] = NAN if kind == "nan" else INF
    close(SELECTIONS[name](lib().from_numpy(x), dim), SELECTIONS[name](ours.from_numpy(x), dim), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["kthvalue", "median"])
def test_places_of_equal_numbers_are_theirs(name):
    x = ours.from_numpy(np.round(np.random.default_rng(0).standard_normal((3, 500)) * 2))
    values, places = x.kthvalue(200, 1) if name == "kthvalue" else x.median(1)
    assert x.gather(1, places[:, None])[:, 0].tolist() == values.tolist()
    assert places.tolist() == x.argsort(dim=1)[:, 199 if name == "kthvalue" else 249].tolist()


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "prod", "logsumexp", "amax"])
@pytest.mark.parametrize("shape, dims", [((3000, 3), [0]), ((1025, 1), [0, 1]), ((2000, 1, 3), [0, (0, 1)]), ((1, 1, 3000), [-1, (0, 2)]), ((1, 3000, 2), [1]), ((6, 5, 9, 11), [(0, 2, 3), (0, 2), (1, 3)]), ((900, 2), [1]), ((30, 20, 4), [-1])], ids=str)
def test_reductions_of_shapes_with_short_sides(name, shape, dims):
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("float32")
    if name == "prod":
        dims, x = [d for d in dims if d.__class__ is int], x ** 0.01
    for dim in dims:
        for keepdim in (False, True):
            run = [getattr(torch, name)(torch.from_numpy(x), dim=dim, keepdim=keepdim) for torch in (lib(), ours)]
            close(*run, rtol=1e-4, atol=1e-5)


# Warnings ------------------------------------------------------------------------------------------------------


def hard_pairs(ours):
    "Pairs of tensors at which arithmetic leaves the numbers: too large, not a number, divided by zero, empty."
    yield [ours.tensor(v, dtype=ours.float64, requires_grad=True) for v in (HARD, HARD[::-1])]
    yield [ours.full((3, 3), NAN, requires_grad=True) for _ in "xy"]
    yield [ours.zeros(0, 3, requires_grad=True) for _ in "xy"]


@pytest.mark.parametrize("place", ["", "special", "linalg", "nn.functional"])
def test_no_warning_of_numpy_escapes(place):
    "PyTorch computes silently with what is not a number; so does every function here, and the backward pass."
    import operator
    import warnings

    import autograd_nb as ours

    space = operator.attrgetter(place)(ours) if place else ours
    names = [n for n in dir(space) if callable(getattr(space, n)) and not isinstance(getattr(space, n), type) and not n.startswith(("_", "set_", "get_", "manual", "seed", "load", "save", "use_", "compile", "fork", "init", "from_file"))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"autograd_nb(\..*)?$")  # as the package does
        for name in names:
            for x, y in hard_pairs(ours):
                for args in ((x,), (x, y)):
                    try:
                        out = getattr(space, name)(*args)
                        for o in out if isinstance(out, tuple) else (out,):
                            if isinstance(o, ours.Tensor) and o.requires_grad:
                                o.sum().backward()
                    except Exception:
                        continue
    assert not {f"{w.filename}:{w.lineno} {w.message}" for w in caught if issubclass(w.category, RuntimeWarning)}


WHOLE = ["T([1, 2]) // T([0, 1])", "T([1]) // 0", "1 // T([0])", "T([5]).floor_divide_(0)", "T([7, -7]) // T([2, 2])", "T([7.0, -7.0]) // 0", "torch.div(T([1]), T([0]), rounding_mode='trunc')", "torch.div(T([-7]), T([2]), rounding_mode='trunc')",
         "T([1, 2]).var()", "T([1, 2]).std(0)", "T([1.0, 2.0]).var(correction=5)", "T([1.0]).std()", "T([1.0, 2.0, 3.0]).var(correction=2)", "T([]).var()"]


@pytest.mark.parametrize("call", WHOLE)
def test_whole_numbers_and_too_few_numbers(call):
    "Integers divided by zero, and variances of integers or of too few numbers: PyTorch's numbers or its error."
    import autograd_nb as ours

    def tried(torch):
        try:
            return eval(call, dict(torch=torch, T=torch.tensor)).tolist()
        except RuntimeError as error:
            return str(error)[:16]

    assert repr(tried(ours)) == repr(tried(lib()))


def test_zeros_in_a_graph_have_pytorchs_name():
    import autograd_nb as t

    x = t.tensor([1.0, float("inf")], requires_grad=True)
    y = t.ops.aten.zero(x)
    assert y.tolist() == [0.0, 0.0] and y.grad_fn.name() == "ZeroBackward0"
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dims", [None, 0, 1, -1, (0, 1), (1, 1), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("by", [0, 1, -2, 7, -1000])
@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 0, 5), (1, 1, 1)], ids=str)
def test_rolled_by_any_number(shape, by, dims):
    shifts = tuple(by + i for i in range(len(dims))) if isinstance(dims, tuple) else by
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    for turned in (False, True):
        a, b = ours.tensor(x), lib().tensor(x)
        if turned: a, b = a.transpose(0, 2), b.transpose(0, 2)
        found, expected = ours.roll(a, shifts, dims), lib().roll(b, shifts, dims)
        assert np.array_equal(found.numpy(), expected.numpy())
        assert found.is_contiguous() and found.data_ptr() != a.data_ptr() or not x.size


@pytest.mark.parametrize("zero", [0, 0.0, -0.0], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_zero_keeps_its_sign(dtype, zero):
    for apply in (lambda x: x * zero, lambda x: x + zero, lambda x: x - zero, lambda x: x > zero):
        for _ in range(2):
            found, expected = (apply(t.tensor([-0.0, 0.0, 2.0]).to(getattr(t, dtype))) for t in (ours, lib()))
            assert str(found.dtype) == str(expected.dtype)
            assert found.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4), (3, 4)), ((3, 4), (4,), (3, 1)), ((), (), ()), ((4,), (), (3, 4))], ids=str)
def test_both_sides_of_where_have_gradients(shapes, dtype):
    found = []
    for t in (ours, lib()):
        condition = (t.arange(12).reshape(3, 4) % 3 == 0)[tuple(slice(n) for n in shapes[0])] if len(shapes[0]) == 2 else t.tensor([False] * 4)[: 4 if shapes[0] else 1]
        condition = condition.reshape(shapes[0])
        x, y = (t.ones(s, dtype=getattr(t, dtype)).requires_grad_() for s in shapes[1:])
        out = t.where(condition, x, y)
        grads = t.autograd.grad(out, (x, y), t.ones_like(out) * 2)
        found.append([(str(g.dtype), g.shape, g.abs().float().tolist()) for g in grads])
    assert found[0] == found[1]


@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("shape, dim", [(s, d) for s in [(5,), (1, 4), (4, 1), (3, 4), (2, 3, 4), (2, 1, 3, 4), (40, 30, 20)] for d in {0, len(s) - 1, -1}], ids=str)
def test_places_that_lack_their_dimension(shape, dim, order):
    "What `max` and its like pick, from arrays of one dimension to four, small and large, in either order of memory."
    from autograd_nb.ops.gathering import gather, picked

    x = np.asarray(np.random.default_rng(0).standard_normal(shape), order="C" if order == "rows" else "F")
    places = x.argmax(dim)
    found = picked.kernel(x, places, dim=dim % x.ndim, keepdim=False, node="MaxBackward0")
    assert np.array_equal(found, x.max(dim)) and found.shape == places.shape
    kept = np.expand_dims(places, dim)
    for index in (kept, kept.astype("i4"), np.broadcast_to(kept, shape), kept[..., :1]):
        want = np.take_along_axis(x[tuple(slice(n) if d != dim % x.ndim else slice(None) for d, n in enumerate(index.shape))], index, dim)
        assert np.array_equal(gather.kernel(x, index, dim=dim), want)


@pytest.mark.parametrize("count", [0, 1, 33, 4096, 4097])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (2, 7)], ids=str)
def test_sums_at_places_below_zero_and_outside(shape, count):
    from autograd_nb.ops.indexing import scatter_into

    d, draw = len(shape) - 1 if shape[-1] == 7 else 0, np.random.default_rng(0)
    where = (slice(None),) * d + (draw.integers(-7, 7, count),)
    values = draw.standard_normal((*shape[:d], count, *shape[d + 1:])).astype("f4")
    want = np.zeros(shape, "f4")
    np.add.at(want, where, values)
    np.testing.assert_allclose(scatter_into(np.zeros(shape, "f4"), where, values), want, rtol=1e-3, atol=1e-4)
    if count:
        for wrong in (7, -8):
            where[-1][-1] = wrong
            with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis {d} with size 7"):
                scatter_into(np.zeros(shape, "f4"), where, values)


EDGES = {
    "xlogy": "torch.special.xlogy(x, y)",
    "xlog1py": "torch.special.xlog1py(x, y - 1)",
    "logit": "torch.logit(y)",
}


@pytest.mark.parametrize("call", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("gradient", [0.0, 1.0])
def test_gradients_at_and_outside_the_edge_of_a_domain(call, gradient):
    "Of first and second order and forward; where a gradient of zero meets an infinite slope too."
    import torch

    xs = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, -1.0, NAN, 0.0, 0.5, 2.0]
    ys = [0.0, -1.0, 2.0, 0.0, -1.0, 2.0, 0.0, 0.0, NAN, 1.0, 0.3]
    found = []
    for t in (torch, ours):
        f = eval(f"lambda x, y: {call}", {"torch": t})
        x, y = (t.tensor(v, dtype=t.float64, requires_grad=True) for v in (xs, ys))
        first = t.autograd.grad(f(x, y), (x, y), t.full((11,), gradient, dtype=t.float64), allow_unused=True, create_graph=True)
        second = t.autograd.grad(sum(g.sum() for g in first if g is not None), (x, y), allow_unused=True)
        still = [v.detach() for v in (x, y)]
        pushed = t.func.jvp(f, tuple(still), tuple(t.full_like(v, gradient) for v in still))
        found.append([None if v is None else v.tolist() for v in (*first, *second, *pushed)])
    for want, got in zip(*found):
        assert (want is None) == (got is None)
        if want: np.testing.assert_allclose(got, want, rtol=1e-12)


BEYOND = {  # what chooses between numbers, at numbers and with gradients that are not finite
    **{
        name: f"F.{name}(x)"
        for name in "relu relu6 hardtanh elu selu celu leaky_relu hardswish hardsigmoid hardshrink softshrink"
        " softplus silu gelu tanh sigmoid logsigmoid".split()
    },
    "relu_": "F.relu(x * 1, True)",
    "elu_": "F.elu(x * 1, 1.5, True)",
    "threshold": "F.threshold(x, 0.1, 20)",
    "clamp": "x.clamp(-1, 1)",
    "clamp_min": "x.clamp(min=0.1)",
    "clamp_max": "x.clamp(max=1)",
    "clamp by tensors": "torch.clamp(x, torch.zeros(()), torch.ones(()))",
    **{name: f"torch.{name}(x, torch.ones(()))" for name in "maximum minimum fmax fmin".split()},
    "where": "torch.where(x.detach() > 0, x, 1.0)",
    "nan_to_num": "torch.nan_to_num(x)",
    "logit": "torch.logit(x, 1e-3)",
    "hinge": "F.hinge_embedding_loss(x, -torch.ones(10), reduction='none')",
    "margin": "F.margin_ranking_loss(x, torch.zeros(10), torch.ones(10), reduction='none')",
    "root of relu": "torch.sqrt(F.relu(x))",
    "root of clamp": "torch.sqrt(x.clamp(min=0.1) - 0.1)",
    "log of relu": "torch.log(F.relu(x))",
    "smallest of all": "x[:7].min()",
    "largest of all": "x[:7].max()",
    "median of all": "x[:7].median()",
}


@pytest.mark.parametrize("size", [1, 300])  # few numbers, and so many that other loops take them
@pytest.mark.parametrize("gradient", [1.0, float("inf"), -float("inf"), float("nan"), 0.0])
@pytest.mark.parametrize("name", BEYOND)
def test_gradients_at_what_is_not_finite(name, gradient, size):
    def slopes(torch, size, gradient):
        inf, nan = float("inf"), float("nan")
        x = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, nan, inf, -inf]).repeat(size).requires_grad_()
        out = eval(BEYOND[name].replace("10", str(10 * size)), dict(torch=torch, F=torch.nn.functional, x=x))
        out.backward(torch.full_like(out, gradient))
        return x.grad.numpy()

    few, many = slopes(lib(), 1, 1.0), slopes(lib(), 300, 1.0)[:10]
    same = np.tile(np.isclose(few, many, rtol=1e-4, equal_nan=True), size)  # PyTorch's loops differ at NaN
    np.testing.assert_allclose(slopes(ours, size, gradient)[same], slopes(lib(), size, gradient)[same], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("call", ["F.hardtanh(x)", "F.relu6(x)", "F.hardswish(x)", "F.hardsigmoid(x)", "F.elu(x)", "F.celu(x)", "F.selu(x)", "F.hardshrink(x)", "F.softshrink(x)", "F.leaky_relu(x)",
                                  "F.relu(x)", "F.threshold(x, 0.0, 0.0)", "x.clamp(-1, 1)", "F.softplus(x)", "F.logsigmoid(x)", "F.silu(x)", "F.softsign(x)", "F.tanhshrink(x)", "x.abs()"])
def test_slopes_of_activations_at_nan_are_those_of_the_loops_for_many_numbers(call, dtype):
    found = []
    for library in (lib(), ours):
        x = library.tensor([NAN, *HARD[3:-3]] * 64, dtype=getattr(library, dtype)).requires_grad_()
        eval(call, dict(x=x, F=library.nn.functional)).backward(library.ones_like(x))
        found.append(x.grad.tolist())
    assert np.allclose(*found, rtol=1e-5, atol=1e-30, equal_nan=True), [(x, e, f) for x, e, f in zip([NAN, *HARD[3:-3]] * 64, *found) if not np.isclose(e, f, equal_nan=True)]


NARROW = [
    ((4000, 3), (3,)), ((3,), (4000, 3)), ((1537, 2), (1, 2)), ((1536, 20), (20,)), ((2049, 32), (32,)), ((3001, 7), (7,)), ((40, 50, 5), (5,)), ((40, 50, 5), (1, 1, 5)),
    ((40, 1, 5), (1, 60, 5)), ((2000, 4), (2000, 1)), ((2000, 4), (1,)), ((2000, 4), (2000, 4)), ((2000, 1), (4,)), ((2000, 4), ()),
]  # fmt: skip


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtypes", ["ff", "fd", "if"])
@pytest.mark.parametrize("name", ["add", "div", "lt", "atan2"])
def test_a_row_beside_many_short_rows(name, dtypes, recorded):
    "Written out until the inner loop is long: the numbers, dtypes and shapes are NumPy's, in either order, of turned arrays too."
    rng = np.random.default_rng(0)
    for shapes in NARROW:
        arrays = [np.asarray(rng.standard_normal(s) * 9, d) for s, d in zip(shapes, dtypes)]
        arrays = [a if d != "i" else np.where(a == 0, 1, a) for a, d in zip(arrays, dtypes)]
        for turned in (False, True):
            given = [np.asarray(a.T, order="C").T if turned else a for a in arrays]
            x, y = (ours.from_numpy(a).requires_grad_(recorded and a.dtype.kind == "f") for a in given)
            out = getattr(ours, name)(x, y)
            expected = getattr(lib(), name)(*map(lib().from_numpy, given))
            assert out.shape == tuple(expected.shape) and str(out.dtype)[6:] == str(expected.dtype)[6:]
            np.testing.assert_allclose(out.detach().numpy(), expected.numpy(), rtol=2e-6)
