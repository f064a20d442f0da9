"""What PyTorch's own tests ask of the operations in its table, asked of both libraries: the calls that each has to refuse, the dtypes that it does not take,
functions of lists, and numbers at the edges of what a dtype holds.

A part of a fixed seed runs always (AUTOGRAD_NB_SEED=… or =fresh takes another); AUTOGRAD_NB_EXHAUSTIVE=1 takes all, which takes some minutes.
"""

import itertools
import re
import warnings

import _op_samples
import numpy as np
import pytest
from _sampled import some
from test_op_samples import NOT_COMPARED

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")
DTYPES = "float64 float32 bfloat16 float16 complex64 complex128 uint8 int8 int16 int32 int64 bool".split()
TOLERANCES = {"float64": 1e-7, "float32": 1e-4, "bfloat16": 2e-2, "float16": 3e-3, "complex64": 1e-4, "complex128": 1e-7}


def operations():
    "The table's operations that we have: title, OpInfo, our function."
    for title, info in _op_samples.table().items():
        if title not in NOT_COMPARED:
            try:
                yield title, info, _op_samples.counterpart(info, ours)
            except AttributeError:
                continue


def outcome(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return error


def refusals_differ(expected, found, start=24):
    "A line if one library refuses what the other takes, or in other words."
    if not isinstance(expected, Exception):
        return f"only we refuse: {found}" if isinstance(found, Exception) else None
    if not isinstance(found, Exception):
        return f"only PyTorch refuses: {expected}"
    a, b = str(expected).strip()[:start], str(found).strip()[:start]
    if type(expected).__name__ != type(found).__name__ and not isinstance(found, type(expected)) or a != b:
        return f"{type(expected).__name__} {str(expected)[:90]}  |  {type(found).__name__} {str(found)[:90]}"
    return None


def values_differ(expected, found):
    "A line about the first tensor in two results that differs, or None."
    import torch

    line = refusals_differ(expected, found)
    if line or isinstance(expected, Exception):
        return line
    a, b = _op_samples.leaves(expected, torch.Tensor), _op_samples.leaves(found, ours.Tensor)
    if len(a) != len(b):
        return f"{len(a)} tensors  |  {len(b)}"
    for x, y in zip(a, b):
        kinds = str(x.dtype), str(y.dtype).replace("autograd_nb", "torch")
        if kinds[0] != kinds[1] or tuple(x.shape) != tuple(y.shape):
            return f"{tuple(x.shape)} {kinds[0]}  |  {tuple(y.shape)} {kinds[1]}"
        p, q, tolerance = _op_samples.numbers(x), _op_samples.numbers(y), TOLERANCES.get(kinds[0][6:], 0)
        p, q = (v.astype("c16" if v.dtype.kind == "c" else "f8") if v.dtype.kind in "fc" else v for v in (p, q))
        if not (np.allclose(p, q, tolerance, tolerance, equal_nan=True) if tolerance else np.array_equal(p, q)):
            return f"{p.reshape(-1)[:6]}  |  {q.reshape(-1)[:6]}"
    return None


def anew(value):
    "Arguments for both libraries: PyTorch's, and the same as ours."
    theirs = _op_samples.fresh(value, {})
    return theirs, _op_samples.Converter(ours)(theirs)


OTHER_ERRORS = {
    "__rdiv__": "a method of Python's, called with no tensor",
    "narrow_copy": "PyTorch fails in an assertion of its own",
}


def test_calls_that_the_table_says_are_wrong():
    found = []
    for title, info, function in operations():
        if info.error_inputs_func is None or title in OTHER_ERRORS:
            continue
        for number, wrong in enumerate(info.error_inputs("cpu")):
            sample = wrong.sample_input
            try:
                (args, kwargs), (our_args, our_kwargs) = anew([[sample.input, *sample.args], sample.kwargs])
            except Exception:  # other layouts and devices, and more dimensions than NumPy has
                continue
            if title.startswith("__") and not hasattr(args[0], "shape") or not isinstance(outcome(info.op, *args, **kwargs), Exception):
                continue
            error = outcome(function, *our_args, **our_kwargs)
            if not isinstance(error, wrong.error_type) or not re.search(wrong.error_regex, str(error)):
                found.append(f"{title}, {number}: {wrong.error_regex}  |  {type(error).__name__} {str(error)[:120]}")
    assert not found, "\n".join(found)


def tried(lib, line):
    "What a line gives under a library: x holds numbers, i whole ones, m truth values, c complex ones, h numbers in bfloat16."
    made = dict(x=[1.0, -2.0, 0.5], i=[1, 2, 3], m=[True, False, True], c=[1 + 2j, 0.5 - 1j, 3j])
    names = {name: lib.tensor(values) for name, values in made.items()}
    names["plane"] = lib.arange(16).reshape(1, 1, 4, 4)
    return outcome(eval, line, dict(names, torch=lib, F=lib.nn.functional, h=names["x"].bfloat16(), inf=float("inf"), nan=float("nan")))


CALLS = """
torch.ldexp(h, i)
torch.ldexp(x.double(), i * 300)
torch.ldexp(x * 2.0 ** -140, i * 70)
torch.ldexp(torch.tensor([0.0, inf, nan, 1.0]), torch.tensor([100000, -100000, 3, 100000]))
torch.ldexp(x, m)
torch.ldexp(x, x)
torch.ldexp(i, i)
torch.heaviside(torch.tensor([nan, 0.0, -0.0, inf, -inf]), torch.tensor([2.0] * 5))
torch.i0(torch.tensor([1e38, -1e38, nan, 800.0]))
torch.special.i1(torch.tensor([1e38, -1e38, nan, 800.0]))
torch.logaddexp(torch.tensor([inf + 0j, 1j]), torch.tensor([1.0 + 0j, inf + 0j]))
torch.nan_to_num(torch.tensor([inf, -inf, nan, 1.0]).bfloat16())
torch.nextafter(torch.tensor([1.0, -1.0, 0.0, 3.0, inf, nan]).bfloat16(), torch.tensor(2.0).bfloat16()).double() * 1e3
torch.nextafter(torch.tensor(2.0).bfloat16(), torch.tensor(-inf).bfloat16()).double() * 1e3
torch.nextafter(torch.zeros(2).bfloat16(), torch.tensor([1.0, -1.0]).bfloat16()).double() * 1e43
F.alpha_dropout(m, 1.0, True)
F.feature_alpha_dropout(torch.ones(2, 3, dtype=torch.bool), 1.0, True)
torch.tril(plane, out=torch.zeros(1, 1, 4, 4, dtype=torch.double))
torch.triu(plane, out=torch.zeros(1, 1, 4, 4, dtype=torch.int32))
torch.triu(plane, 1, out=torch.zeros(1, 1, 4, 4, dtype=torch.long))
torch.add(m, m, alpha=3)
torch.add(m, ~m, alpha=0)
torch.add(m, m, alpha=2.5)
torch.add(m, i, alpha=True)
torch.add(x, x, alpha=True)
torch.add(m, i, alpha=3)
torch.lerp(x, x, 1j)
torch.lerp(x, x, True)
torch.lerp(x, x + 1, 0.5 + 0j)
torch.lerp(c, c + 1, 1j)
torch.lerp(x, x, i)
torch.lerp(x, x, x.double())
torch.lerp(x, x + 1, torch.tensor(2))
torch.lerp(i, i, 1)
torch.addcmul(x, x, x, value=1j)
torch.addcmul(i, i, i, value=1j)
torch.addcdiv(x, x, x, value=1j)
torch.addcmul(c, c, c, value=1j)
torch.bitwise_and(2.5, i)
torch.bitwise_or(1j, i)
torch.bitwise_xor(i, 2.5)
torch.bitwise_and(1, x)
torch.ceil(c)
torch.floor(c)
torch.trunc(c)
torch.frexp(c)
torch.max(c)
torch.min(c)
torch.max(c, 0)
torch.min(torch.tensor(1j), 0)
torch.argmax(m)
torch.argmin(m, 0)
torch.max(m, 0)
torch.topk(torch.tensor(1j), 1)
torch.topk(torch.tensor(True), 1)
torch.linalg.vector_norm(x[:0], -1)
torch.linalg.vector_norm(x[:0], inf)
torch.linalg.vector_norm(x[:0], 2)
torch.linalg.vector_norm(x, 2, dtype=torch.int64)
torch.linalg.vector_norm(x, 2, dtype=torch.complex64)
torch.linalg.vector_norm(c, 2, dtype=torch.float32)
torch.linalg.vector_norm(x.double(), 2, dtype=torch.float32)
torch.linalg.vector_norm(h, 2, dtype=torch.float64)
torch.linalg.vander(m)
torch.linalg.vander(h)
torch.gradient(m)
torch.gradient(i.to(torch.uint8))
torch.histc(m)
torch.histc(c)
torch.bernoulli(i)
torch.bernoulli(m)
torch.tril_indices(2, 2, dtype=torch.float32)
torch.triu_indices(2, 2, dtype=torch.uint8)
torch.triu_indices(2, 2, dtype=torch.int32)
torch.logspace(0, 1, 2, dtype=torch.bool)
torch.cumsum(i, 0, dtype=torch.bool)
torch.cumprod(x, 0, dtype=torch.bool)
torch.index_reduce(m, 0, i[:2], m[:2], "prod")
F.avg_pool2d(plane, 2)
F.avg_pool2d(plane.int(), 2)
F.avg_pool2d(plane.to(torch.uint8), 2)
F.pad(plane > 3, (1, 1, 1, 1), "reflect")
F.pad(plane > 3, (1, 1, 1, 1), "replicate")
F.pad(plane > 3, (1, 1, 1, 1), "circular")
F.rrelu(x.half(), training=True)
F.rrelu(i, training=True)
F.dropout(i, 0.0)
F.dropout(i, 0.5)
F.bilinear(i.int(), i.int(), plane[0, :, :3, :3].int())
torch.add(2.0, 3.0)
torch.add(True, True)
torch.add(2, 3, alpha=2.5)
torch.sub(3, 1.5)
torch.mul(2, 3)
torch.mul(2j, True)
torch.div(-7, 2, rounding_mode="floor")
torch.floor_divide(7.5, 2)
torch.remainder(7, 2)
torch.xlogy(-1, i.to(torch.uint8))
torch.special.zeta(-1, i.to(torch.uint8))
torch.special.xlog1py(-1, i.to(torch.uint8))
torch.special.xlog1py(0.1, x.double())
torch.clamp(m, m, m)
torch.clamp(c, c)
torch.heaviside(x, c)
torch.nansum(x, dtype=torch.complex64)
torch.tensordot(x, i, 1)
torch.polar(x.half(), i)
torch.unravel_index(torch.tensor([5, -1, 300]), (2, 3))
torch.unravel_index(i.to(torch.uint8), (300, 2))
torch.unravel_index(x, (2, 2))
torch.unravel_index(i, (-1, 2))
torch.linalg.norm(torch.ones(2, 0), 1)
torch.linalg.norm(torch.ones(0, 2), inf)
torch.linalg.norm(torch.ones(0, 0), 2)
torch.linalg.norm(torch.ones(2, 0), -1)
torch.linalg.matrix_norm(torch.ones(3, 2, 0), 1, keepdim=True)
torch.linalg.cond(torch.ones(0, 0), inf)
i.bitwise_and_(x)
i.remainder_(c)
x.atan2_(c)
x.copysign_(1j)
i.lt_(c)
F.dropout2d(plane, 0.5)
F.dropout3d(plane[..., :0], 0.5)
F.alpha_dropout(i, 0.5, True)
F.alpha_dropout(i, 1.0, True)
torch.lerp(torch.tensor([1.0, inf, 1e20, -inf]), torch.tensor([inf, 1.0, 1.0, 2.0]), 0.7)
torch.lerp(torch.tensor([1.0, inf, 1e20, -inf]), torch.tensor([inf, 1.0, 1.0, 2.0]), 0.4)
torch.lerp(torch.tensor([1.0, inf, 1e20, -inf]), torch.tensor([inf, 1.0, 1.0, 2.0]), torch.tensor([0.4, 0.5, 1.0, 0.0]))
torch.lerp(torch.full((20000,), 1e20), torch.ones(20000), 1.0).sum()
torch.full((20000,), 1e20).lerp_(torch.ones(20000), 1.0).sum()
torch.full((20000,), 2.0).lerp_(torch.ones(20000), 0.25).sum()
torch.full((2,), 1e20).lerp_(torch.ones(2), 1.0)
torch.full((2,), 1e20).lerp_(torch.ones(2), torch.tensor([1.0, 0.25]))
torch.full((2,), 1e4).half().lerp_(torch.ones(2).half(), 1.0)
torch.lerp(c, c + 1, torch.tensor([0.3 + 0.3j, 0.4 + 0.4j, 1 + 0j]))
torch.tensor([1.0, inf]).quantile(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
torch.tensor([-inf, 1.0, inf]).quantile(0.75)
torch.tensor([2.0, 2.0, inf, nan]).nanquantile(0.8)
torch.linspace(5, -5, 3, dtype=torch.uint8)
torch.linspace(300, 10, 3, dtype=torch.uint8)
torch.linspace(-128, 127, 4, dtype=torch.int8)
torch.linspace(1.5, 7.9, 5, dtype=torch.int32)
torch.addmm(plane[0, 0], plane[0, 0], plane[0, 0], beta=1.5)
torch.addmm(plane[0, 0], plane[0, 0], plane[0, 0], beta=2, alpha=-2.7)
torch.addmm(x, x.diag(), x.diag(), alpha=1j)
torch.addmm(x, x.diag(), x.diag(), alpha=2 + 0j)
torch.addmv(x, x.diag(), x, beta=1j)
torch.addr(i.diag(), i, i, beta=1.5)
torch.addr(i.diag(), i, i, alpha=True)
torch.addr(x.diag(), i, i, beta=1.5)
torch.addr(x.diag(), x, x, alpha=1j)
torch.tensor(bytearray(b"ab"))
torch.tensor(memoryview(b"ab"), dtype=torch.half)
torch.tensor(b"ab")
torch.asarray(bytearray(b"abcd"))
torch.asarray(bytearray(b"abcd"), dtype=torch.int16)
torch.asarray(bytearray(b"abc"))
torch.std(x, unbiased=True, correction=1)
torch.var(x, 0, 0)
torch.std_mean(x, 0, True, correction=0)
torch.var_mean(x, unbiased=1)
torch.var(x, None, False)
x.std(correction=None)
x.var(0, True, True)
torch.zeros(2, size=3)
torch.randperm(3, requires_grad=True)
torch.randperm(3, dtype=torch.float, requires_grad=True).requires_grad
x.split(split_size=2)
x.split(split_size=[1, 2], dim=0)
x.split()
"""


@pytest.mark.parametrize("line", CALLS.strip().splitlines())
def test_calls_at_the_edges(line):
    import torch

    assert values_differ(tried(torch, line), tried(ours, line)) is None


LISTS = dict(T="[t([1.0, 2.0]), t([[3.0]])]", I="[t([1, 2]), t([3])]", B="[t([True]), t([False])]", E="[]", H="[t([1.0]).half(), t([2.0]).bfloat16()]", mixed="[t([1.0, 2.0]), t([1, 2]), t([True])]")
BESIDE = "2 0.5 1j True [1,2.0] [1j,2] [1] t(2.0) t(3) [t([1.0,2.0,3.0]),t([1.0])] [t(2.0),t(1)] 'a' None t([1.0,2.0]) T I B E".split()
UNARY = "abs ceil exp frac lgamma log neg reciprocal round sign sqrt trunc".split()


def list_calls():
    for name, kind in itertools.product((*UNARY, "clone", "max", "norm", "powsum", "zero"), (*LISTS, "(T[0],T[1])", "T[0]", "[T[0],1]", "None", "[T[0][:0]]", "[t([1j])]")):
        yield f"torch._foreach_{name}{'_' * (name == 'zero')}({kind})"
        if name in UNARY:
            yield f"torch._foreach_{name}_({kind})"
        if name in ("norm", "powsum"):
            yield from (f"torch._foreach_{name}({kind}, {order})" for order in ("0", "1", "inf", "-1", "2, torch.float64", "1, dtype=torch.float64"))
    for name, kind, other in itertools.product(("add", "sub", "mul", "div", "pow", "maximum", "clamp_max"), LISTS, BESIDE):
        for form in (f"_foreach_{name}", f"_foreach_{name}_"):
            yield f"torch.{form}({kind}, {other})"
            if name in ("add", "sub") and kind in "TIB" and other != "E" and not (name == "sub" and "B" in (kind, other)):
                if not (kind == "B" and other in ("I", "t(3)")):  # which of two mistakes is named first
                    yield f"torch.{form}({kind}, {other}, alpha=2.5)"
                yield f"torch.{form}({kind}, {other}, alpha=3)"
    for other in BESIDE:
        yield from (f"torch._foreach_pow({other}, {kind})" for kind in ("T", "I"))
        for kind in ("T", "I", "B"):
            if other != "E":
                yield f"torch._foreach_copy_({kind}, {other})"
            for form in ("", "_"):
                yield f"torch._foreach_lerp{form}({kind}, T, {other})"
                yield from (f"torch._foreach_{name}{form}({kind}, {rest})" for name in ("addcmul", "addcdiv") for rest in (f"T, T, {other}", f"{other}, T") if not (rest[0] == "T" and (other[:4] == "[t(2" or "j" in other and kind != "T")))
    yield from ("torch._foreach_mm([t([[1.0]])], [t([[2.0]])])", "torch._foreach_mm([], [])", "torch._foreach_mm([t([[1.0]])], [t([[2.0]])] * 2)", "torch._foreach_add(T, scalar=2)")
    yield from ("torch._foreach_add(T, other=T)", "torch._foreach_add(T, scalars=[1, 2])", "torch._foreach_pow(T, exponent=2)", "torch._foreach_addcmul(T, T, T, scalars=t([1.0, 2.0]))")
    yield from (f"torch._foreach_add{form}({given}, alpha={alpha})" for form in ("", "_") for alpha in ("True", "1j") for given in ("I, t(3)", "T, t(3.0)", "I, I", "T, T", "B, B"))


def list_call(lib, line):
    names = {"t": lib.tensor, "torch": lib, "inf": float("inf")}
    names |= {name: eval(source, names) for name, source in LISTS.items()}
    names["given"] = names["T"]
    made = outcome(eval, line, names)
    return made if isinstance(made, Exception) else [type(made), made, names["T"], names["I"], names["B"], names["H"]]


HALF_COMPLEX = "ComplexHalf"  # complex numbers of half precision, which are not offered


def test_functions_of_lists():
    import torch

    found = []
    for line in some(list_calls(), 1200, "lists"):
        expected, got = list_call(torch, line), list_call(ours, line)
        if HALF_COMPLEX in str(expected) or any(v.dtype == torch.complex32 for v in _op_samples.leaves(expected, torch.Tensor)):
            continue
        differs = values_differ(expected, got) or (not isinstance(expected, Exception) and expected[0] is not got[0] and "another type")
        if differs:
            found.append(f"{line}: {differs}")
    assert not found, "\n".join(found)
