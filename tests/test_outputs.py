"""Results written into `out=`: where PyTorch refuses, so does this library; where the memory is free, all is as PyTorch has it."""

import itertools
import warnings

import pytest
from _sampled import some

import autograd_nb

LAYOUTS = {  # a library and twelve numbers -> the input and the tensor for the result
    "same": lambda t, x: (x, x),
    "shifted": lambda t, x: (x.view(-1)[:8].view(2, 4), x.view(-1)[2:10].view(2, 4)),
    "next rows": lambda t, x: (x[:2], x[1:]),
    "free": lambda t, x: (x, t.zeros(3, 4)),
    "another shape": lambda t, x: (x, t.zeros(2, 2)),
    "empty": lambda t, x: (x, t.zeros(0)),
    "a view": lambda t, x: (x, t.zeros(12).view(3, 4)),
    "expanded": lambda t, x: (x[:1], t.zeros(1).expand(1, 4)),
    "whole numbers": lambda t, x: (x, t.zeros(3, 4, dtype=t.int64)),
    "double": lambda t, x: (x, t.zeros(3, 4, dtype=t.float64)),
}
POINTWISE = ("exp", "sqrt", "neg", "abs", "add", "mul", "sub", "div", "pow", "maximum")
FUNCTIONS = {
    **{name: (lambda t, a, b, name=name: getattr(t, name)(a, *{"exp": (), "sqrt": (), "neg": (), "abs": (), "maximum": (a,)}.get(name, (2,)), out=b)) for name in POINTWISE},
    "clamp": lambda t, a, b: t.clamp(a, 0, 5, out=b),
    "cat": lambda t, a, b: t.cat([a, a], out=b),
    "stack": lambda t, a, b: t.stack([a, a], out=b),
    "sum": lambda t, a, b: t.sum(a, 0, out=b),
    "mm": lambda t, a, b: t.mm(a, a.t(), out=b),
}
OVERLAP = ("same", "shifted", "next rows")


def outcome(t, function, layout):
    x = t.arange(12.0).reshape(3, 4) + 1
    a, b = layout(t, x)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = function(t, a, b)
            out = (result is b, tuple(b.shape), [f'{v:.4g}' for v in b.flatten().tolist()], b._version)
        except (RuntimeError, TypeError) as error:
            out = str(error)[:60]
    return out, sorted({str(w.message)[:50] for w in said if w.category is UserWarning})


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("place", LAYOUTS)
def test_into_a_tensor(name, place):
    import torch

    expected, words = outcome(torch, FUNCTIONS[name], LAYOUTS[place])
    found, ours = outcome(autograd_nb, FUNCTIONS[name], LAYOUTS[place])
    if isinstance(expected, str) and not (place == "double" and found[0] is True):     # wider numbers hold them all
        assert isinstance(found, str), found
        assert found.split("\n")[0] == expected or place == "whole numbers"
    elif place == "double" and isinstance(expected, str) or place in OVERLAP and name not in (*POINTWISE, "clamp"):
        pass        # PyTorch reads what it has overwritten: any answer is better, a refusal too
    elif isinstance(found, str):
        assert name in ("mm", "sum") and place == "whole numbers", found
    else:
        assert (found, ours) == (expected, words)


# Every function in PyTorch's table that takes `out=`, with a few of its samples. -------------------------------------

KILLS = "tril", "triu", "lu_unpack", "linalg.lu"  # PyTorch itself writes beyond a tensor of another dtype
RANDOM = "normal", "bernoulli", "multinomial", "randn", "empty"
OPEN = {  # what differs, and why
    "ihfft2": "PyTorch writes nothing",
    "ihfftn": "PyTorch writes nothing",
    "native_batch_norm": "takes no out=",
    "nonzero": "PyTorch refuses a tuple",
    "polynomial": "PyTorch lets the result require grad",
    "bessel": "PyTorch lets the result require grad",
    "airy": "PyTorch lets the result require grad",
    "arange": "PyTorch warns of another size in other words",
    "linear": "PyTorch resizes the result of a vector, with a warning, to one row",
    "matmul": "PyTorch resizes the result of a vector, with a warning, to one row",
    "lu": "PyTorch goes through its composition of other functions",
    "cholesky": "the older function brings its result to the dtype of out=",
    **dict.fromkeys(("diff", "inner"), "PyTorch composes them of functions with rules of their own"),
}
PLACES = {  # shape and dtype of a result, and the library -> a tensor for it
    "exact": lambda t, shape, dtype: t.zeros(shape, dtype=dtype),
    "empty": lambda t, shape, dtype: t.zeros(0, dtype=dtype),
    "larger": lambda t, shape, dtype: t.zeros((*shape, 2), dtype=dtype),
    "transposed": lambda t, shape, dtype: t.zeros(shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1]) if shape else t.zeros(shape, dtype=dtype),
    "whole": lambda t, shape, dtype: t.zeros(shape, dtype=t.int64),
    "double": lambda t, shape, dtype: t.zeros(shape, dtype=t.float64),
}


def put(t, function, args, kwargs, results, place):
    outs = [PLACES[place](t, shape, getattr(t, dtype)) for shape, dtype in results]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            function(*args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs))
        except Exception:
            return "refused", None, None
    return [(tuple(o.shape), str(o.dtype)[-8:]) for o in outs], outs, any("resized" in str(w.message) for w in said)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("place", PLACES)
def test_every_function_with_out(place):
    import torch
    from _op_samples import Converter, counterpart, fresh, numbers, table

    found = []
    for title, info in some(table().items(), 150, place):
        name = info.name.rpartition(".")[2]
        if not info.supports_out or info.name in KILLS or name in RANDOM or name in OPEN or any(word in info.name for word in ("polynomial", "bessel", "airy")) or torch.float32 not in info.dtypes:
            continue
        try:
            function = counterpart(info, autograd_nb)
        except AttributeError:
            continue
        torch.manual_seed(1)
        for number, sample in enumerate(itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=False), 3)):
            args, kwargs, convert = fresh([sample.input, *sample.args], {}), fresh(sample.kwargs, {}), Converter(autograd_nb)
            ours, our_kwargs = convert(args), convert(kwargs)
            try:
                result = info.op(*args, **kwargs)
            except Exception:
                continue
            if isinstance(result, bool):
                continue
            many = [result] if isinstance(result, torch.Tensor) else result
            results = [(tuple(r.shape), str(r.dtype)[6:]) for r in many if isinstance(r, torch.Tensor)]
            a = put(torch, info.op, args, kwargs, results, place)
            b = put(autograd_nb, function, ours, our_kwargs, results, place)
            if a[0] != b[0] or a[2] != b[2]:
                found.append(f"{title}, sample {number}: {a[0]}, resized with a warning: {a[2]}  |  {b[0]}, {b[2]}")
            elif a[1] and place == "exact" and "eig" not in name and name not in ("svd", "qr", "lstsq"):
                for x, y in zip(a[1], b[1]):
                    if not abs(numbers(x).astype(complex) - numbers(y)).max(initial=0) <= 1e-3 * abs(numbers(x)).max(initial=1) and x.isfinite().all():
                        found.append(f"{title}, sample {number}: other values")
    assert not found, "\n".join(found)


# `x` and `y` are numbers, `i` indices, `m` a mask, `one` a single number that stands six times
SHARED = """
t.gather(x, 0, i, out=x)
t.gather(i, 0, i, out=i)
t.take(x, i, out=x)
t.take(i, i, out=i)
t.take_along_dim(x, i, 0, out=x)
t.index_select(x, 0, i, out=x)
t.index_select(x, 0, i, out=x[3:])
t.index_select(x, 0, i, out=one)
t.masked_select(x, m, out=x)
t.masked_select(x, m, out=one)
t.masked_select(m, m, out=m)
t.kthvalue(x, 2, out=(x, i))
t.median(x, 0, keepdim=True, out=(x[:1], i[:1]))
t.median(x, 0, out=(t.zeros(()), t.tensor(0)))
t.median(x, 0, out=(t.tensor(0), t.tensor(0)))
t.median(x, out=t.zeros(()))
t.max(x, 0, keepdim=True, out=(x[:1], i[:1]))
t.sort(x, out=(x[:6], i))
t.scatter(y, 0, i, x, out=x)
t.scatter(x, 0, i, y, out=x)
t.scatter_add(i, 0, i, i, out=i)
t.scatter_reduce(y, 0, i, x, 'sum', out=x)
t.index_copy(y, 0, i, x, out=x)
t.index_add(x, 0, i, y, out=x)
t.nonzero(i, out=i)
t.nonzero(i, out=t.zeros(6, 1))
t.nonzero(i, as_tuple=True, out=i)
t.sum(x, 0, keepdim=True, out=x[:1])
t.amax(x, 0, keepdim=True, out=x[:1])
t.arange(0, 8, 0.5, out=i)
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("line", SHARED.strip().splitlines())
def test_functions_that_read_while_they_write(line):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.arange(6.0)
        names = dict(t=t, x=x, y=t.ones(6), i=t.tensor([2, 1, 0, 5, 3, 4]), m=x > 2, one=t.zeros(1).expand(6))
        try:
            made = eval(line, names)
            found.append([r.tolist() for r in (made if isinstance(made, tuple) else (made,))])
        except (RuntimeError, TypeError, ValueError) as error:
            found.append((type(error).__name__, str(error)[:44]))
    assert found[0] == found[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", ["linspace(0, 5, 6", "linspace(0, 5, 1", "logspace(0, 5, 6", "arange(6.0", "arange(6"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (6, 1), (1, 1), (4,), ()])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
def test_numbers_in_a_row_into_another_shape(call, shape, dtype):
    "A result of as many elements keeps its shape and its strides."
    import torch

    found = []
    for t in (torch, autograd_nb):
        for out in (t.zeros(shape, dtype=getattr(t, dtype)), t.zeros(shape[::-1], dtype=getattr(t, dtype)).mT if len(shape) > 1 else t.zeros(0, dtype=getattr(t, dtype))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    eval(f"t.{call}, out=out)", dict(t=t, out=out))
                    found.append((tuple(out.shape), out.stride(), out.tolist()))
                except RuntimeError as error:
                    found.append(type(error))
    assert found[:2] == found[2:]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["mode", "kthvalue", "nanmedian", "median", "max", "min", "cummax", "cummin", "sort", "topk"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,)])
def test_one_number_and_its_place_into_tensors(name, shape):
    import torch

    found = []
    for t in (torch, autograd_nb):
        out = t.zeros(shape), t.ones(shape, dtype=t.int64)
        given = dict(dim=0) if name not in ("kthvalue", "topk") else dict(k=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(t, name)(t.tensor(3.0), **given, out=out)
        found.append([(tuple(o.shape), o.tolist()) for o in out])
    assert found[0] == found[1]


# what has another dtype than was asked for, another shape, or other words: `o(dtype, *shape)` makes the tensor for the result
SAID = """
t.sum(x, 0, dtype=t.float32, out=o(t.float64, 3))
t.mean(x, 0, dtype=t.float64, out=o(t.float32, 3))
t.mean(x, 0, dtype=t.float64, out=o(t.float64, 3))
t.prod(x, 0, dtype=t.float64, out=o(t.complex128, 3))
t.cumsum(x, 0, dtype=t.float64, out=o(t.float32, 2, 3))
t.cumprod(x, 0, out=o(t.complex64, 2, 3))
t.inner(x, x, out=o(t.float64, 2, 2))
t.linalg.norm(x, out=o(t.float64))
t.linalg.norm(x, 'nuc', out=o(t.float64))
t.linalg.norm(x, 2, 0, out=o(t.float32, 3))
t.linalg.norm(x, out=x[0, 0])
t.fft.rfft(x, out=o(t.float32, 2, 2))
t.fft.irfft(x, out=o(t.int32, 2, 4))
t.fft.hfft(x, out=o(t.int32, 2, 4))
t.fft.hfft2(x, out=o(t.int32, 2, 4))
t.fft.ifft2(x, out=o(t.float32, 2, 3))
t.fft.ihfftn(x, out=o(t.complex128, 2, 2))
t.fft.ihfftn(x, out=o(t.float32, 2, 2))
t.fft.fft(x, dim=0, out=o(t.complex64, 5))
t.fft.irfft2(x, out=o(t.float32, 5))
t.geqrf(x, out=(o(t.float32, 5), o(t.float32, 2)))
t.cholesky_inverse(x[:, :2], out=o(t.float32, 5))
t.rand(2, 3, out=o(t.float32, 5)) > 2
t.randn(2, 3, out=o(t.float32, 5)) > 99
t.normal(0.0, 1.0, (2, 3), out=o(t.float32, 5)) > 99
t.normal(0.0, 1.0, (2, 3), out=o(t.float64, 2, 3), dtype=t.float32)
t.bernoulli(x * 0, out=o(t.float32, 5))
t.randperm(1, out=o(t.int64, 5))
t.arange(3, out=o(t.int64, 5))
t.fft.rfftfreq(5, out=o(t.float32, 5))
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("line", SAID.strip().splitlines())
def test_what_is_said_of_a_tensor_that_does_not_fit(line):
    import torch

    found = []
    for t in (torch, autograd_nb):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                made = eval(line, dict(t=t, x=t.arange(6.0).reshape(2, 3) + 1, o=lambda dtype, *shape, t=t: t.zeros(shape, dtype=dtype)))
                made = made if isinstance(made, tuple) else (made,)
                result = [(str(m.dtype)[-8:], tuple(m.shape), m.stride()) for m in made]
            except (RuntimeError, TypeError) as error:
                result = type(error), str(error).split("\n")[0]
        found.append((result, [str(w.message)[:120] for w in said if w.category is UserWarning]))
    assert found[0] == found[1]


PUT_IN = """
c.remainder_(b)
c.clamp_max_(b + 0j)
c.atan2_(b + 0j)
a.bitwise_and_(b)
a.lcm_(b)
c.ge_(b + 0j)
c.div_(b, rounding_mode='floor')
c.fmod_(2)
c.hypot_(c)
m[0].addcmul_(m, m.T)
a.bitwise_and_(t.ones(7, 2))
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("line", PUT_IN.strip().splitlines())
def test_in_place_the_shape_is_looked_at_before_the_dtype(line):
    import torch

    found = []
    for t in (torch, autograd_nb):
        a = t.ones(5, 1)
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            eval(line, dict(t=t, a=a, c=a + 0j, b=t.ones(5), m=a > 0))
        found.append((caught.type.__name__, str(caught.value).split("\n")[0]))
    assert found[0] == found[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "mean", "nansum"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("given", [False, True])
def test_reductions_refuse_out_for_what_has_a_history(name, dtype, given):
    "Whatever numbers `out` has: in whole numbers there is no history left to be asked for."
    import torch

    found = []
    for t in (torch, autograd_nb):
        out = t.empty(3, dtype=getattr(t, dtype))
        try:
            getattr(t, name)(t.ones(3, 3, requires_grad=True), 0, **(dict(dtype=t.float32) if given else {}), out=out)
        except RuntimeError as error:
            found.append(str(error).split("\n")[0][:80])
    assert len(found) == 2 and found[0] == found[1]


RECORDED = (
    "quantile(x, 0.5, dim=1", "nanquantile(x, 0.5", "tensordot(x, x.T, 1", "inner(x, x", "inner(x[0], x[1]", "linalg.norm(x", "linalg.norm(x, 3, 1", "linalg.norm(x, 'nuc'",
    "linalg.matrix_norm(x, 1", "linalg.cond(x[:, :2]", "linalg.tensorinv(x @ x.T, ind=1", "linalg.tensorsolve(x @ x.T, x[:, 0]",
)  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize("out", (
    "torch.zeros(size)", "torch.empty(0)", "torch.ones((7, *size))", "torch.zeros(size, requires_grad=True)", "torch.zeros(size, requires_grad=True) * 1", "torch.zeros((2, *size))[0]",
    "torch.zeros((2, *size), requires_grad=True)[0]", "torch.zeros(size, dtype=torch.float64)", "torch.zeros(size, dtype=torch.int64)",
))  # fmt: skip
@pytest.mark.parametrize("call", RECORDED)
def test_what_is_copied_into_out_is_recorded(call, out):
    import torch as theirs

    found = []
    for library in (theirs, autograd_nb):
        x = library.tensor([[1.0, 2.0, 3.0], [3.0, 1.5, 2.0]], requires_grad=True)
        space = dict(torch=library, x=x, size=tuple(eval(f"torch.{call})", dict(torch=library, x=x)).shape))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                into = space["into"] = eval(out, space)
                result = eval(f"torch.{call}, out=into)", space)
        except RuntimeError as error:
            found.append(str(error).split("\n")[0][:60])
        else:
            gradient = library.autograd.grad(result.sum(), x)[0]
            numbers = [round(v, 3) for t in (result, gradient) for v in t.flatten().tolist()]
            found.append((result is into, type(result.grad_fn).__name__, tuple(result.shape), result.stride(), into._version, numbers))
    assert found[0] == found[1]
