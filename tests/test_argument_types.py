"""What functions refuse: arguments that are no tensors, and dtypes that PyTorch has no kernel for."""

import itertools
import operator
import warnings

import _op_samples
import numpy as np
import pytest
from _compare import every_warning
from _sampled import some

import autograd_nb as ours
from autograd_nb.argument_types import Told
from autograd_nb.graph.op import REGISTRY

pytestmark = pytest.mark.needs("torch")
OTHERS = {  # what is asked otherwise, and why
    "item": "a method",
    "__": "an operator",
    "masked.": "functions of Python, which fail as they come",
    "nn.functional.": "partly functions of Python, which fail as they come",
    "linspace": "takes numbers, too",
    "logspace": "takes numbers, too",
    "cauchy": "a method",
    "exponential": "a method",
    "geometric": "a method",
    "log_normal": "a method",
    "normal": "a method",
    "uniform": "a method",
    "index_reduce": "warns, and a frame in between would be what the warning names",
    "cross": "likewise",
    "istft": "likewise",
    "stft": "likewise",
    "gradient": "likewise",
    "meshgrid": "takes lists, too",
    "block_diag": "takes lists, too",
    "broadcast_tensors": "takes lists, too",
    "cartesian_prod": "takes lists, too",
    "atleast": "takes lists, too",
    "unsafe_": "takes any arguments, and hands them on",
    "_segment_reduce": "handed on by name",
    "cdouble": "a method",
    "cfloat": "a method",
    "where": "takes numbers, too",
}


def sampled(count):
    "As many of PyTorch's operations, those of them that we have, with our function."
    for title, info in some(_op_samples.table().items(), count):
        try:
            yield title, info, _op_samples.counterpart(info, ours)
        except (AttributeError, TypeError):
            continue


def first_sample(info, dtype):
    import torch

    torch.manual_seed(1)
    return next(iter(info.sample_inputs("cpu", dtype, requires_grad=False)), None)


def outcome(function, args, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*args, **kwargs)
        except Exception as error:
            return error
    return None


CALLS = {  # kinds of wrong arguments, by what PyTorch says about them
    "the name in the call": ["m.linalg.inv(2)", "m.linalg.det(2)", "m.linalg.svd(2)"],
    "sizes in a row": ["m.tile(x, 2.0)", "m.flip(x, 0.0)", "m.tile(x, 'a')", "x.sum_to_size(2.0)"],
    "tensors in a row": ["m.broadcast_tensors(x, 2)", "m.block_diag(x, 'a')", "m.atleast_2d(x, 2)"],
    "tensors in a list": ["m.hstack(2)", "m.vstack(('a', x))", "m.linalg.multi_dot([x, 2])"],
    "an element": ["m.tile(x, (2.0,))", "m.flip(x, (0.0,))", "m.flip(x, (0, 1.0))"],
}


@pytest.mark.parametrize("call", sum(CALLS.values(), []))
def test_the_sentence_is_pytorchs(call):
    import torch

    said = []
    for library in (torch, ours):
        with pytest.raises(TypeError) as caught:
            eval(call, {"m": library, "x": library.ones(3)})
        said.append(str(caught.value).splitlines()[0].split(". Make it one")[0])
    assert said[0] == said[1]


def test_what_is_no_tensor():
    "A TypeError that names the argument, as PyTorch's does."
    import torch

    found = []
    for title, info, function in sampled(400):
        dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if d in info.dtypes), None)
        if dtype is None or title.startswith(tuple(OTHERS)):
            continue
        sample = first_sample(info, dtype)
        if sample is None or not isinstance(sample.input, torch.Tensor):
            continue
        for wrong in (None, "a"):
            convert = _op_samples.Converter(ours)
            expected = outcome(info.op, (wrong, *sample.args), sample.kwargs)
            try:
                mine = outcome(function, (wrong, *convert(sample.args)), convert(sample.kwargs))
            except NotImplementedError:  # a layout that we do not have
                continue
            if isinstance(expected, TypeError) and not isinstance(mine, TypeError):
                found.append(f"{title}({wrong!r}): {expected}  |  {mine!r}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("call", ["flip(None, (0,))", "fft.fft(2)", "kthvalue(torch.ones(3), 2.5)", "dot(torch.ones(2), None)", "special.polygamma(1, None)", "masked_select(torch.ones(2), None)", "squeeze(None)", "max(None)", "nn.functional.pairwise_distance(2, torch.ones(2))", "select(torch.ones(2), 0, 1.5)", "diff(torch.ones(3), 1.5)", "topk(torch.ones(3), 'a')", "clone(3)", "abs(torch.ones(2), 1, 2)", "exp(torch.ones(2), nonsense=1)", "fft.fft(torch.ones(3), n='a')", "Tensor.cummax(torch.ones(2), 'a')", "eq(2, torch.ones(2))", "special.zeta(1, 2)", "fmod(1, torch.ones(2))", "maximum(1, torch.ones(2))", "resolve_conj(None)"])
def test_words(call):
    import torch

    errors = [outcome(eval, (f"torch.{call}", {"torch": lib}), {}) for lib in (torch, ours)]
    assert type(errors[0]) is TypeError and isinstance(errors[1], TypeError)
    assert str(errors[1]).startswith(str(errors[0]).split("\n")[0][:60])


FILLS = ["'1'", "[1]", "None", "torch.ones(2)", "torch.tensor(3)", "torch.tensor(3.0, requires_grad=True)", "np.float64(2)", "True", "1j"]


@pytest.mark.parametrize("call", ["torch.full((2,), {})", "torch.ones(2).new_full((2,), {})"])
@pytest.mark.parametrize("fill", FILLS)
def test_what_fills_a_new_tensor(call, fill):
    import torch

    def made(library):
        try:
            return eval(call.format(fill), dict(torch=library, np=np)).tolist()
        except (TypeError, RuntimeError) as error:
            return type(error), str(error).split(". Take")[0].split("\n")[0]

    assert made(ours) == made(torch)


FACTORS = ["'1'", "[1]", "None", "torch.ones(2)", "torch.ones(1)", "torch.tensor(3)", "torch.tensor(1.5)", "torch.tensor(True)", "torch.tensor(1.0, requires_grad=True)", "np.array(1)", "np.float32(1.5)", "np.bool_(True)", "1j", "2", "1.5", "True"]
MULTIPLIED = ["torch.add(x, x, alpha={})", "x.sub(x, alpha={})", "torch.rsub(x, x, alpha={})", "x.add_(x, alpha={})", "x.addcmul(x, x, value={})", "x.addcdiv_(x.clone(), x.clone(), value={})", "torch.addcmul(x, x, x, value={})",
              "torch.addmm(x, x, x, beta={})", "x.addmm(x, x, alpha={})", "torch.addmv(x[0], x, x[0], alpha={})", "torch.addr(x, x[0], x[0], beta={})", "torch.baddbmm(x[None], x[None], x[None], beta={})"]


@pytest.mark.parametrize("call", MULTIPLIED)
@pytest.mark.parametrize("factor", FACTORS)
def test_what_operands_are_multiplied_by(call, factor):
    "Numbers, and those in tensors without dimensions."
    import torch

    for whole in (False, True):
        answers = []
        for lib in (torch, ours):
            x = lib.tensor([[1.0, 2.0], [4.0, 5.0]])
            try:
                out = eval(call.format(factor), {"torch": lib, "np": np, "x": x.long() if whole else x})
                answers.append((str(out.dtype), out.tolist()))
            except Exception as error:
                answers.append((type(error).__mro__[-4:], str(error).split("\n")[0].split(" - got")[0]))
        assert answers[1] == answers[0] or whole and factor == "1j"


UNORDERED = ["torch.isclose(x, x, atol=nan)", "torch.allclose(x, x, rtol=nan)", "x.clone().normal_(0, nan)", "torch.normal(0.0, nan, (2,))", "x.clone().exponential_(nan)", "x.clone().log_normal_(0, nan)", "x.renorm(nan, 0, 1.0)", "x.renorm(2, 0, nan)",
             "F.huber_loss(x, x, delta=nan)", "F.smooth_l1_loss(x, x, beta=nan)", *[f"F.softshrink(x.to(torch.{d}), {v})" for d in ("float32", "float64", "float16", "bfloat16") for v in ("nan", "-1", "float('inf')", "1e39", "0.5")]]


@pytest.mark.parametrize("call", UNORDERED)
def test_nan_is_in_no_range(call):
    import torch

    found = []
    for lib in (torch, ours):
        try:
            found.append(eval(call, dict(torch=lib, F=lib.nn.functional, x=lib.ones(2, 2), nan=float("nan"))).tolist())
        except RuntimeError as error:
            found.append(str(error).split("\n")[0])
    assert found[0] == found[1]


@pytest.mark.parametrize("make", ["tensor", "as_tensor", "asarray", "from_numpy", "FloatTensor"])
def test_arrays_that_run_backwards_are_refused(make):
    import torch

    told = []
    for library in (torch, ours):
        with pytest.raises(ValueError, match="At least one stride in the given numpy array is negative") as error:
            getattr(library, make)(np.arange(4.0, dtype="f4")[::-1])
        told.append(str(error.value).split("\n")[0].strip())
    assert told[0] == told[1]


def test_errors_inside_are_not_disguised():
    "What fails for another reason says so."
    from autograd_nb.argument_types import explained

    def broken(input, dim):
        return input.nothing

    with pytest.raises(AttributeError, match="nothing"):
        explained(broken)(ours.ones(2), 0)
    with pytest.raises(TypeError, match="must be Tensor, not int"):
        explained(broken)(3, 0)


REFUSED = {  # an operation -> how it is called
    "maximum": lambda t, x: t.maximum(x, x),
    "lt": lambda t, x: x < x,
    "clamp": lambda t, x: x.clamp(0, 1),
    "relu": lambda t, x: x.relu(),
    "softmax": lambda t, x: x.softmax(0),
    "mm": lambda t, x: x @ x,
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, (2,)),
    "amax": lambda t, x: x.amax(0),
    "argsort": lambda t, x: x.argsort(),
    "erf": lambda t, x: x.erf(),
    "mse_loss": lambda t, x: t.nn.functional.mse_loss(x, x),
    "frac": lambda t, x: x.frac(),
    "zeta": lambda t, x: t.special.zeta(x, x),
    "unique": lambda t, x: t.unique(x),
    "trace": lambda t, x: t.trace(x),
    "cosine_similarity": lambda t, x: t.nn.functional.cosine_similarity(x, x),
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
    "median": lambda t, x: x.median(),
    "exponential_": lambda t, x: x.clone().exponential_(),
    "chebyshev_polynomial_t": lambda t, x: t.special.chebyshev_polynomial_t(x, x),
    "unfold": lambda t, x: t.nn.functional.unfold(x[None, None], 2),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x[None], 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_dtypes(name, dtype):
    import torch

    errors = [outcome(REFUSED[name], (lib, lib.ones(2, 2).to(getattr(lib, dtype))), {}) for lib in (torch, ours)]
    assert (errors[0] is None) == (errors[1] is None), errors
    if errors[0] is not None:
        assert isinstance(errors[1], type(errors[0])) and str(errors[1]).strip()[:8] == str(errors[0]).strip()[:8]


def test_results_of_lapack_stand_in_columns():
    import torch

    for name, args in itertools.product(("inv", "cholesky", "eigh", "qr", "svd", "lu_factor", "eig"), ((3,), (2, 3))):
        strides = []
        for lib in (torch, ours):
            x = lib.eye(3, dtype=lib.float64).expand(*args[:-1], 3, 3) * 2
            out = getattr(lib.linalg, name)(x)
            strides.append([t.stride() for t in (out if isinstance(out, tuple) else (out,))])
        assert strides[0] == strides[1], name


def test_layers_of_images_keep_channels_last():
    import torch

    ways = dict(
        conv2d=lambda t, x, w: t.nn.functional.conv2d(x, w),
        by_the_filter=lambda t, x, w: t.nn.functional.conv2d(x.contiguous(), w.contiguous(memory_format=t.channels_last)),
        conv_transpose2d=lambda t, x, w: t.nn.functional.conv_transpose2d(x, w.transpose(0, 1)),
        max_pool2d=lambda t, x, w: t.nn.functional.max_pool2d(x, 2),
        avg_pool2d=lambda t, x, w: t.nn.functional.avg_pool2d(x, 2),
        adaptive_avg_pool2d=lambda t, x, w: t.nn.functional.adaptive_avg_pool2d(x, 2),
        nearest=lambda t, x, w: t.nn.functional.interpolate(x, scale_factor=2),
        bilinear=lambda t, x, w: t.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        replicate=lambda t, x, w: t.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate"),
        relu=lambda t, x, w: x.relu(),
    )
    for name, way in ways.items():
        strides = []
        for lib in (torch, ours):
            x = lib.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4).contiguous(memory_format=lib.channels_last)
            strides.append(way(lib, x, lib.ones(5, 3, 2, 2)).stride())
        assert strides[0] == strides[1], name


def test_orders_in_memory():
    "Results lie as in PyTorch, whatever lies how."
    import torch

    def calls(lib):
        x = lib.arange(60.0).reshape(3, 4, 5) / 60 + 1
        for y in (x, x.permute(2, 1, 0), x[:, ::2]):
            yield from ((name, getattr(lib.fft, name)(y, dim=dim)) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for dim in (0, 1, 2))
            yield from ((name, getattr(lib.fft, name)(y)) for name in ("fftn", "rfftn", "irfftn", "fft2"))
            yield from ((name, getattr(y, name)(1)) for name in ("std", "var"))
            yield from ((f"rot90 {k}", lib.rot90(y, k, (0, 2))) for k in range(4))
            yield "sort", y.sort(0).values
            yield "argsort", y.argsort(0)
            yield "polygamma", lib.polygamma(2, y)
            yield "igamma", lib.igamma(y, y)
            yield "complex", lib.complex(y, y)
            yield "masked_fill", y.masked_fill(y > 1.5, 0)
            yield "addcmul", lib.addcmul(y, y, y)
            if y is x:
                yield "index_put", lib.select_scatter(y, y.select(0, 0), 0, 1)

    for (name, theirs), (_, mine) in zip(calls(torch), calls(ours)):
        assert mine.stride() == theirs.stride(), (name, theirs.stride(), mine.stride())


def test_random_numbers_take_the_dtype_of_their_means():
    import torch

    for dtype in ("float16", "float32", "float64", "bfloat16"):
        for args in (lambda x: (x, 1.0), lambda x: (0.0, x + 1), lambda x: (x, x + 1)):
            drawn = [lib.normal(*args(lib.zeros(2, dtype=getattr(lib, dtype)))) for lib in (torch, ours)]
            assert str(drawn[1].dtype) == str(drawn[0].dtype)
    assert ours.multinomial(ours.ones(3), 2, out=ours.zeros(0, dtype=ours.int64)).shape == (2,)


def said(function, args, kwargs):
    "The kind of the error and its first line, without our remedy; None if there is no TypeError."
    error = outcome(function, args, kwargs)
    return type(error).__name__, str(error).split(". Make it one")[0].split("\n")[0].strip()


@pytest.mark.parametrize("home", ["", "linalg", "special", "fft"])
def test_what_is_declared_first(home):
    "Every function, called with a number where a tensor belongs, says whose argument that is, whatever else is missing."
    import torch

    from autograd_nb.argument_types import UNEXPLAINED

    theirs, mine = (getattr(lib, home) if home else lib for lib in (torch, ours))
    found, count = [], 0
    for name in sorted(dir(theirs)):
        function = getattr(mine, name, None)
        # operations that bear PyTorch's name explain themselves, when all their arguments are there
        if name.startswith("_") or not callable(function) or not hasattr(function, "__wrapped__") or name in UNEXPLAINED or hasattr(function, "warns"):
            continue
        for given in ((3.0,), (3.0, 1)):
            words = said(getattr(theirs, name), given, {})
            if words[0] == "TypeError" and "(position 1) must be Tensor, " in words[1]:
                count += 1
                if said(function, given, {}) != words:
                    found.append(f"{name}{given}: {words[1]}  |  {said(function, given, {})}")
    assert count > 20
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "call",
    """m.diag(x, 1, 2, 3)
m.diag(x, nonsense=1)
m.narrow(x, 0)
m.kthvalue(x, 1, diagonal=2)
m.gather(x, 0)
x.kthvalue(1.5)
x.index_add(0, 2, x)
x.diag(1, 2)
x.diag('a')
m.amax(x, 0, False, 1)
m.squeeze(x, 'a')
m.any(x, keepdim=True, dim='a')
m.fft.fft(x, 1, 0, 'ortho', 2)
m.special.erf(x, 1)
m.special.zeta(x, 'a')
m.linalg.inv()
m.absolute(3)""".splitlines(),
)
def test_the_call_does_not_fit(call):
    import torch

    words = [said(eval, (call, {"m": lib, "x": lib.ones(3)}), {}) for lib in (torch, ours)]
    assert words[0][0] == "TypeError"
    assert words[1] == words[0]


# of calls that would go well, one argument that PyTorch does not take
LOOSE = """m.topk(x, 2, sorted=1)
m.topk(x, True)
m.topk(x, 1.0)
m.argsort(x, stable=None)
m.sort(x, descending=1)
m.logsumexp(x, 0, keepdim=0)
m.flip(x, [0.0])
m.flip(x, [True])
m.roll(x, 1.0)
m.renorm(x, 2, 0, None)
m.nanmedian(x, 0, keepdim=1)
m.quantile(x, 0.5, keepdim=1)
m.diff(x, prepend=2.0)
m.rot90(x, True)
m.linalg.svd(x, full_matrices=1)
m.linalg.qr(x, mode=None)
m.linalg.vector_norm(x, 2, None, 1)
m.fft.fft(x, 2.0)
m.fft.fft(x, dim=True)
m.special.logsumexp(x, 0.0)
m.special.polygamma(1.5, x)
m.nn.functional.avg_pool2d(x[None], 2, ceil_mode=1)
m.nn.functional.avg_pool2d(x[None], 2.0)
m.nn.functional.avg_pool2d(x[None], [1.0, 1.0])
m.nn.functional.adaptive_avg_pool2d(x[None], 2.5)
m.nn.functional.celu(x, 'a')
x.topk(2, sorted=1)
x.kthvalue(True)
x.unfold(0, 1.0, 1)
x.scatter_reduce(0, x.long() * 0, x, 'sum', include_self=1)
x.put(x.long() * 0, x, accumulate=1)
x.triu(True)""".splitlines()


@pytest.mark.parametrize("call", LOOSE)
def test_the_types_are_looked_at_in_advance(call):
    "Whatever was called before, and however often."
    import torch

    words = said(eval, (call, {"m": torch, "x": torch.ones(3, 3)}), {})
    assert words[0] in ("TypeError", "RuntimeError"), words
    for _ in range(2):
        assert said(eval, (call, {"m": ours, "x": ours.ones(3, 3)}), {})[0] == words[0]
        for good in ("m.topk(x, 2, sorted=True)", "m.flip(x, [0])", "m.topk(x, m.tensor(2))", "m.nn.functional.avg_pool2d(x[None], [2, 2], ceil_mode=True)", "x.kthvalue(2)"):
            eval(good, {"m": ours, "x": ours.ones(3, 3)})


def test_a_number_in_a_tensor_says_nothing_of_a_longer_one():
    x = ours.ones(3, 3)
    for _ in range(2):
        ours.topk(x, ours.tensor(2))
        with pytest.raises(TypeError, match="must be int, not Tensor"):
            ours.topk(x, ours.ones(2))


def test_no_declaration_is_out_of_date():
    "The table says what PyTorch says about a call with too many arguments."
    import torch

    from autograd_nb.argument_types import refused
    from autograd_nb.signatures import _lines

    many, found, count = (object(),) * 60, [], 0
    for name in _lines():
        home, _, rest = name.partition("_")
        function = getattr(getattr(torch, home), rest, None) if home in ("linalg", "special", "fft") else getattr(torch, name, None)
        if type(function).__name__ != "builtin_function_or_method":
            continue
        error = outcome(function, many, {})
        if type(error) is TypeError and ("takes" in str(error) or "invalid combination" in str(error)):
            count += 1
            if str(refused(name, many, {})).strip() != str(error).strip():
                found.append(f"{name}: {error}  |  {refused(name, many, {})}")
    assert count > 400
    assert not found, "\n".join(found)


# what was computed with another number, or in another type, than the caller wrote
COUNTED = """F.conv1d(x, x, stride=1.5)
F.conv1d(x, x, stride=True)
F.conv2d(x[None], x[None], padding=[1.0, 1])
F.conv2d(x[None], x[None], dilation='a')
F.conv_transpose1d(x, x, stride=2.0)
F.max_pool2d(x, 2.5)
F.max_pool2d(x, 2, stride=1.0)
F.max_pool1d(x, (2.0,))
F.avg_pool2d(x, 2, padding=0.5)
F.unfold(x[None], 2, dilation=1.5)
F.max_unpool1d(x, x.long(), 2.0)
m.unique(x, sorted=1)
m.unique(x, return_inverse=2)
m.unique_consecutive(x, return_counts='a')
F.dropout(x, training=1)
F.alpha_dropout(x, training=1)
F.grid_sample(x[None], m.zeros(1, 1, 1, 2), align_corners=1)
F.huber_loss(x, x, delta=m.ones(1))
F.smooth_l1_loss(x, x, beta=m.tensor(1.0, requires_grad=True))
F.celu(x, None)
F.threshold(x, 1, None)
F.leaky_relu(x, negative_slope=None)
F.instance_norm(x, eps=None)
m.zeros(2, requires_grad=1)
m.randn(2, requires_grad='a')
m.eye(2, requires_grad=2.0)
m.scalar_tensor(2.0, requires_grad=1)
x.to(object())
x.to([1])""".splitlines()

TYPES = """m.cholesky_solve(e.double(), e)
m.linalg.lu_solve(*m.linalg.lu_factor(e), e.double())
m.linalg.lu_solve(e, m.ones(2), e)
m.linalg.householder_product(e, e[0].double())
m.ormqr(e, e[0].double(), e)
m.ormqr(e, e[0], e.double())
F.prelu(e, e[0].double())
m.cdist(e, e.double())
m.cdist(e.double(), e, p=1)
m.cdist(e, e.long())
F.bilinear(e, e, m.ones(1, 2, 2).double())
F.instance_norm(x, weight=m.ones(3).double())
F.instance_norm(x, weight=m.ones(3), bias=m.ones(3).double())
F.instance_norm(x, m.ones(3), m.ones(3).double())
F.instance_norm(x, m.ones(3))
F.instance_norm(x.double(), m.ones(3), m.ones(3), m.ones(3), m.ones(3))""".splitlines()


@pytest.mark.parametrize("call", COUNTED + TYPES)
def test_nothing_is_computed_with_something_else(call):
    import torch

    kinds = []
    for lib in (torch, ours):
        names = {"m": lib, "F": lib.nn.functional, "x": lib.ones(2, 3, 4), "e": lib.eye(2)}
        error = outcome(eval, (call, names), {})
        kinds.append((type(error).__name__, str(error)[: 20 * (call in TYPES and "bilinear" not in call)]))
    assert kinds[1] == kinds[0] and kinds[0][0] in ("TypeError", "RuntimeError", "ValueError")


def test_whole_numbers_of_every_kind_are_counted():
    import numpy as np

    x = ours.ones(1, 1, 6)
    for two in (2, np.int64(2), ours.tensor(2), (2,), [np.int32(2)], (ours.tensor(2),)):
        assert ours.nn.functional.conv1d(x, ours.ones(1, 1, 2), stride=two).shape == (1, 1, 3)
        assert ours.nn.functional.max_pool1d(x, two).shape == (1, 1, 3)


NUMBERS_IN_FRONT = (
    "torch.add(x, 2, y)", "x.add(2, y)", "x.add_(2, y)", "x.add_(2., 3.)", "torch.sub(x, 2, y)", "x.sub_(2, y)", "torch.addcmul(x, 2, y, y)", "x.addcmul_(.5, y, y)", "x.addcdiv(2, y, y)",
    "x.addcdiv_(-1, y, y)", "torch.addmm(1, m, 2, n, n)", "torch.addmm(3, m, n, n)", "m.addmm(3, 2, n, n)", "m.addmm(3, n, n)", "m.addmm_(3, 2, n, n)", "m.addmm_(3, n, n)", "torch.addmv(3, x, 2, m, y)",
    "x.addmv(3, m, y)", "x.addmv_(3, 2, m, y)", "torch.addr(3, m, 2, x, y)", "m.addr(3, x, y)", "m.addr_(3, 2, x, y)", "torch.baddbmm(3, b, 2, c, c)", "b.baddbmm(3, c, c)", "b.baddbmm_(3, 2, c, c)",
    "torch.addbmm(3, m, 2, b, c)", "m.addbmm(3, b, c)", "m.addbmm_(3, 2, b, c)", "torch.add(x, 2, y, out=torch.empty(2))", "torch.add(x, y, y)", "x.add_(y, y)", "torch.addcmul(x, y, y, 2)", "m.addmm_(n, n, 2)",
    "torch.addmm(m, n, 2, n)",
)  # fmt: skip


@pytest.mark.parametrize("call", NUMBERS_IN_FRONT)
def test_numbers_stand_in_front_as_in_programs_of_old(call):
    torch = pytest.importorskip("torch")

    def attempt(library):
        draw = np.random.default_rng(0).standard_normal
        names = {name: library.tensor(draw(shape).tolist()) for name, shape in dict(x=2, y=2, m=(2, 2), n=(2, 2), b=(1, 2, 2), c=(1, 2, 2)).items()}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                result = eval(call, names | {"torch": library}).tolist()
            except TypeError as error:
                result = str(error)[:60]
        return result, [str(each.message).split(" (Triggered")[0].split("\n")[0] for each in told]

    with every_warning(torch, ours):
        (wanted, told), (found, said) = attempt(torch), attempt(ours)
    assert said == told and (found == wanted if isinstance(wanted, str) else np.allclose(found, wanted, atol=1e-6)), (found, wanted)
    assert bool(told) != isinstance(wanted, str)
    assert attempt(ours)[1] == []  # once in a process


def by_traits():
    "Calls that go wrong, for each trait that says how an error words it."
    for op in REGISTRY.values():
        if op.symbol and op.name != "rsub": yield f"x {op.symbol} None"
        if op.overloaded: yield f"torch.{op.name}(1, 2)"
        if op.refusal and op.name in ("floor", "ceil", "trunc", "relu", "gelu"): yield f"torch.nn.functional.{op.name}(x > 0)" if op.name == "gelu" else f"torch.{op.name}(x > 0)"
        if op.refusal and "shift" in op.name: yield f"torch.{op.name}(x > 0, x > 0)"


@pytest.mark.parametrize("call", by_traits())
def test_errors_say_of_an_operation_what_pytorchs_do(call):
    import torch

    found = []
    for library in (torch, ours):
        with pytest.raises(Exception) as raised: eval(call, {"torch": library, "x": library.ones(2)})
        found.append(str(raised.value).splitlines()[0])
    assert found[1].startswith(found[0].rstrip(".")), found


WRITES_OF_WRONG_TYPES = (
    "x.addcdiv_(y, 2.)", "x.addcdiv_(2., y)", "x.addcdiv(y, 2.)", "x.addcdiv(2., y)", "x.addcmul_(y, 2.)", "x.addcmul_(y, 2., value=3)", "x.addcmul(2., y)", "x.addcmul_(y, y, value='a')", "x.addcdiv_(y)",
    "x.lerp_(2., .5)", "x.lerp(2., .5)", "x.lerp_(y, 'a')", "x.lerp_(y, None)", "x.add_('a')", "x.mul_(None)", "x.sub_([1])", "x.div_('a')", "x.clamp_('a')", "x.clamp_(y, 'b')", "x.pow_('a')",
    "x.masked_fill_(1, 1.)", "x.fill_('a')", "x.fill_(None)",
)  # fmt: skip


@pytest.mark.parametrize("how", ("eager", "with history", "captured"))
@pytest.mark.parametrize("call", WRITES_OF_WRONG_TYPES)
def test_a_write_of_a_wrong_type_is_refused_as_by_pytorch(call, how):
    import torch

    from autograd_nb.capturing.capture import capture

    found = []
    for library in (torch, ours):
        function = lambda x, y: eval(call, {"x": x, "y": y})
        if how == "captured" and library is ours: function = capture(function)
        x, y = library.ones(3), library.ones(3, requires_grad=how == "with history")
        with pytest.raises(TypeError) as raised: function(x, y)
        found.append(str(raised.value).splitlines()[0])
        assert x.tolist() == [1.0] * 3
    assert found[1].startswith(found[0]), found


ANSWERED = (
    "add(o, 1)", "add(t, o)", "mean(o)", "sum(o, 1)", "matmul(o, t)", "cat([t, o])", "stack([o, o], dim=1)", "where(t > 0, o, t)", "einsum('ij->i', o)", "meshgrid(o)", "tensordot(o, t)", "reshape(o, (3, 2))", "zeros(o)",
    "nn.functional.linear(o, t)", "nn.functional.relu(o)", "nn.functional.softmax(o, dim=1)", "nn.functional.mse_loss(t, o)", "nn.functional.cross_entropy(o, t)", "nn.functional.interpolate(o, size=3)",
)  # fmt: skip


@pytest.mark.parametrize("tensor", (False, True))
@pytest.mark.parametrize("call", ANSWERED)
def test_whoever_answers_is_told_the_very_function_that_was_called(call, tensor):
    "Programs look it up: `HANDLED[func]`."
    import torch

    if tensor and call.startswith("zeros"): pytest.skip("a tensor is no size")
    for library in (torch, ours):

        class Own(*([library.Tensor] if tensor else [])):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None): return func

        own = library.ones(2, 3).as_subclass(Own) if tensor else Own()
        function, given = call.split("(", 1)
        called = eval(f"torch.{function}", {"torch": library})
        assert eval(f"f({given}", {"f": called, "o": own, "t": library.ones(2, 3)}) is called


@pytest.mark.parametrize("call", (
    "torch.meshgrid(x, x)", "torch.cross(x, x)", "x.cross(x)", "F.mse_loss(x, x[:1])", "F.mse_loss(x, x, reduce=True)", "F.softmax(x)",
    "F.upsample(x[None, None], 4)", "F.affine_grid(x.reshape(1, 1, 3).expand(1, 2, 3), (1, 1, 2, 2))",
))  # fmt: skip
def test_a_warning_names_the_line_of_the_call(call):
    with every_warning(ours), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        eval(call, {"torch": ours, "F": ours.nn.functional, "x": ours.ones(3)})
    assert seen and {w.filename for w in seen} == {"<string>"}


ONCE = (
    "torch.cholesky(m)", "torch.qr(m)", "m.qr()", "torch.lu(m)", "torch.lu_solve(m, *torch.linalg.lu_factor(m))", "torch.triangular_solve(m, m)", "torch.chain_matmul(m, m)", "torch.cross(m, m)",
    "m.index_reduce(0, torch.arange(3), m, 'amax')", "torch.meshgrid(x, x)", "torch.where(m.byte(), m, m)", "torch.stft(x, 4, return_complex=True)", "torch.stft(x, 4, return_complex=False)",
    "torch.istft(torch.ones(3, 2, dtype=torch.complex64), 4)", "F.conv1d(x.view(1, 1, -1), x[:2].view(1, 1, -1), padding='same')", "torch.nn.Conv1d(1, 1, 4, padding='same')(x.view(1, 1, -1))",
    "torch.searchsorted(x[::2], x[::2])", "torch.bucketize(x, x[::2])", "torch.frombuffer(b'12345678', dtype=torch.float32)", "torch.tensor([np.ones(2)])", "torch.as_tensor([np.ones(2)])",
    "torch.set_default_tensor_type('torch.FloatTensor')", "x.reshape(2, 2, 2).T", "torch.zeros(2).copy_(torch.ones(2) * 1j)", "x[0].H", "x[0].mT",
)  # fmt: skip


@pytest.mark.parametrize("call", ONCE)
def test_warnings_that_come_once_in_a_process(call, monkeypatch):
    import torch

    monkeypatch.setattr(Told, "kinds", set())
    told = []
    for library, times in ((torch, 1), (ours, 1), (ours, 2)):
        with every_warning(*(library,) * (times == 1)), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(times):
                x = library.arange(8.0)
                try: eval(call, {"torch": library, "F": library.nn.functional, "np": np, "x": x, "m": library.eye(3)})
                except RuntimeError: pass
        told.append([str(w.message).partition(" (Triggered")[0].replace("autograd_nb", "torch") for w in seen])
        Told.kinds.clear()
    assert told[0] and told[0] == told[1] == told[2]


@pytest.mark.parametrize("call", ("x.polygamma(1)", "x.polygamma(n=1)", "x.clone().polygamma_(n=2)", "torch.polygamma(n=1, input=x)", "torch.polygamma(1, x)", "torch.polygamma(x, 1)", "x.polygamma(input=1)", "x.polygamma()"))
def test_the_number_before_the_tensor_is_named_in_methods(call):
    found = []
    for library in (pytest.importorskip("torch"), ours):
        try: found.append(eval(call, {"torch": library, "x": library.tensor([0.5, 1.0])}).tolist())
        except TypeError as error: found.append(str(error).splitlines()[0])
    assert found[1] == (found[0] if isinstance(found[0], str) else pytest.approx(found[0], rel=1e-6))


@pytest.mark.parametrize("call", (
    "torch.stft(x, 4., return_complex=True)", "torch.stft(x, 4, pad_mode=1, return_complex=True, window=x[:4])", "torch.istft(x + 0j, 4.)", "F.interpolate(i, 2.5)", "F.interpolate(i, scale_factor=(2, 'a'))",
    "F.interpolate(i, scale_factor=torch.tensor(2.))", "F.interpolate(i, 2, mode='bilinear', align_corners=1)", "F.interpolate(i, 2., mode='area')", "torch.cat(3)", "torch.matmul(x, 3)", "torch.where(x, 3, 'a')",
    "torch.nn.Conv2d(1, 1, 3, padding='same')(i.double())", "torch.nn.ConvTranspose2d(1, 1, 3)(i.double())",
))  # fmt: skip
def test_functions_looked_at_late_refuse_in_pytorchs_words(call):
    import torch

    found = []
    for library in (torch, ours):
        with pytest.raises(Exception) as raised:
            eval(call, {"torch": library, "F": library.nn.functional, "x": library.arange(32.0), "i": library.ones(1, 1, 4, 4)})
        found.append((raised.type, str(raised.value).splitlines()[0]))
    assert found[0][0] is found[1][0] and found[1][1].startswith(found[0][1]), found


# Gradients of complex numbers that PyTorch does not have ------------------------------------------------------

COMPLEX_GRADIENTS = (
    "torch.select_scatter({}, c[0], 0, 0)", "torch.select_scatter(c, {}[0], 0, 0)", "torch.slice_scatter({}, c[:1], 0, 0, 1)", "torch.slice_scatter(c, {}[:1], 0, 0, 1)",
    "torch.scatter_reduce({}, 0, i, c, 'sum')", "c.scatter_reduce(0, i, {}, 'mean')", "F.bilinear({}[:, :2], c[:, :2], w)", "F.bilinear(c, c, {}[None])", "F.embedding(i, {})",
    "torch.mode({}[0, 0])", "torch.cummax({}[0, 0], 0)", "torch.normal({}, 1.0)",
)  # fmt: skip


@pytest.mark.parametrize("call", COMPLEX_GRADIENTS)
def test_complex_gradients_that_pytorch_does_not_have(call):
    torch = pytest.importorskip("torch")
    found = []
    for library in (torch, ours):
        c = library.ones(2, 2) * (1 + 2j)
        names = dict(torch=library, F=library.nn.functional, c=c, g=c.clone().requires_grad_(), w=library.ones(1, 2, 2) * 1j, i=library.zeros((2, 2), dtype=library.int64))
        with pytest.raises(RuntimeError) as raised:
            eval(call.format("g"), names)
        library.manual_seed(0)
        made = [eval(call.format("c"), names)]
        with library.no_grad():
            library.manual_seed(0)
            made.append(eval(call.format("g"), names))
        found.append((str(raised.value).splitlines()[0], [(v[0] if isinstance(v, tuple) else v).tolist() for v in made]))
    assert found[0] == found[1] or isinstance(found[0], type) and issubclass(found[1], found[0])


# Numbers and arrays of NumPy beside signs ---------------------------------------------------------------------

BESIDE_SIGNS = (
    "np.float32(2) - w", "np.float32(2) / w", "np.float32(2) ** w", "np.int64(2) * w", "np.int64(2) - k", "np.int64(7) // x", "np.float32(7) % x", "np.bool_(True) + k", "k - np.bool_(True)",
    "np.bool_(True) - k", "np.bool_(True) * m", "np.modf(x)", "np.frexp(x)", "np.divmod(x, n)", "divmod(x, n)", "x * n.astype('>f4')", "x / np.array(['a', 'b', 'c'])", "x + n.astype(object)",
    "x + np.array([None])", "np.array([None]) - x", "x * np.str_('a')", "x == np.str_('a')", "x + np.datetime64('2020')", "x.mul(np.array(['a']))", "torch.from_numpy(n.astype(object))",
    "n * x", "n + x", "n - x", "n / x", "n ** x", "n // x", "n % x", "n @ x", "n == x", "n != x", "n < x", "np.array([1, 2, 4]) | k", "np.array(2.0) * x", "n.astype('f4') / x",
    "x * n", "x + n", "x - n", "x / n", "x ** n", "x // n", "x % n", "x @ n", "x == n", "x != n", "x < n", "k | np.array([1, 2, 4])", "k << np.array([1, 2, 4])", "x * np.array(2.0)",
    "k / np.array([2, 2, 2])", "k // np.array([2, 2, 2])", "m | np.array([True, False])", "x[0] * n", "x == n[:2]", "k == n", "x == n.astype('c8')",
    "w * n[:2]", "n[:2] * w", "w / n[:2]", "n[:2] / w", "w ** n[:2]", "w @ n[:2]", "w == n[:2]", "n[:2] == w", "w.detach() * n[:2]",
    "operator.iadd(n.copy(), x)", "operator.imul(n.copy(), x)", "operator.imatmul(n.copy(), x)", "operator.iadd(x, n)", "operator.imul(x, n)", "operator.ifloordiv(x, n)", "operator.imul(w, n[:2])",
    "np.add(x, x)", "np.add(x, n)", "np.add(n, x)", "np.sin(x)", "np.sin(w)", "np.add(w, w)", "np.add(w, n[:2])", "np.isnan(x)", "np.maximum(x, n)", "np.add.reduce(x)", "np.sin(x, out=np.zeros(3))",
    "np.float64(2) * w", "np.float64(2) < x", "np.float64(2) == x", "np.float32(2) * k", "np.int64(2) & k", "x.__array_wrap__(np.array([True]))", "hasattr(x, '__array_ufunc__')",
    "torch.add(x, n)", "x.add(n)", "x.sub(n)", "x.mul(n)", "x.div(n)", "x.add_(n)", "x.mul_(n)", "torch.pow(x, n)", "torch.pow(n, x)", "torch.maximum(x, n)", "torch.eq(x, n)",
    "torch.where(x > 1, x, n)", "torch.where(x > 1, np.array(2.0), x)", "x.lerp(x, np.array(0.5))",
    *(f"torch.{f}({n}, {x})" for f in ("add", "sub", "div", "floor_divide", "mul", "eq") for n in ("np.float32(2)", "np.int64(2)") for x in ("x", "w", "k + 1", "2", "np.float64(3)")),
    *(f"torch.{f}(k, np.bool_(True))" for f in ("add", "mul", "sub", "div", "eq", "pow", "floor_divide", "remainder", "bitwise_and", "clamp_min", "result_type")),
    "torch.full((2,), np.bool_(True))", "torch.where(k > 1, k, np.bool_(True))", "k.clamp(max=np.bool_(True))", "m.mul(np.bool_(True))", "m & np.bool_(True)", "k ** np.bool_(True)",
    "torch.tensor(np.bool_(True))", "torch.tensor([np.bool_(True)])", "k.lerp(k, np.float32(0.5))", "k.lerp(k, np.bool_(True))", "x.lerp(x, np.float64(0.5))", "w.lerp(w, np.float32(0.5))",
)  # fmt: skip


@pytest.mark.parametrize("call", BESIDE_SIGNS)
def test_numbers_and_arrays_of_numpy_beside_signs(call):
    torch = pytest.importorskip("torch")

    def seen(value):
        if isinstance(value, tuple):
            return [seen(each) for each in value]
        if not hasattr(value, "grad_fn"):
            return repr(value)
        return str(value.dtype).split(".")[-1], value.tolist(), value.grad_fn and value.grad_fn.name()

    def attempt(library):
        names = dict(x=library.tensor([1.0, 2.0, 3.0]), w=library.tensor([1.0, 2.0], requires_grad=True), k=library.arange(3), m=library.tensor([True, False]))
        try:
            return seen(eval(call, names | {"torch": library, "np": np, "operator": operator, "n": np.array([1.0, 4.0, 2.0])}))
        except (TypeError, RuntimeError) as error:
            return type(error).__name__, str(error)[:25]

    assert attempt(ours) == attempt(torch)


METHODS = sorted({n for op in REGISTRY.values() if "method" in (op.forms or "").split() for n in (op.names or op.name).split()})


@pytest.mark.parametrize("name", METHODS)
def test_the_method_of_an_operation_refuses_in_pytorchs_words(name):
    "It counts its arguments without the tensor before the dot, and takes no `out`."
    import torch

    wrong = ["()", "(None)", "('a')", "([1])", "(x, x)", "(x, x, x)", "(x, out=x)"]
    for call in wrong:
        found = []
        for library in (torch, ours):
            x = library.tensor([[1.0, 2.0], [3.0, 4.0]])
            try: eval(f"x.{name}{call}", {"x": x})
            except Exception as error: found.append((type(error).__name__, str(error).splitlines()[0].removeprefix("TensorBase.")))
            else: found.append((None, ""))
        (kind, words), (our_kind, our_words) = found
        assert our_kind == kind, (call, found)
        if "out=" not in call: assert our_words.startswith(words.rstrip(".")), (call, found)


@pytest.mark.parametrize("call", ("x.mul(2)", "x.exp()", "x.arctan()", "torch.mul(x, 2)", "torch.exp(x)", "torch.atan2(x, x)"))
def test_a_class_is_told_whether_a_method_or_a_function_was_called(call):
    for library in (__import__("torch"), ours):

        class Own(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None): return func

        place, name = (library.Tensor if call[0] == "x" else library), call.split("(")[0].split(".")[1]
        assert eval(call, {"torch": library, "x": library.ones(2).as_subclass(Own)}) is getattr(place, name)


@pytest.mark.parametrize("call", (
    "mul(p, b, out=z)", "mul(a, b, out=g)", "exp(p, out=i)", "add(p, b, out=z)", "sum(p, 3, out=z)", "mm(m, b, out=z)", "cat([p, m], out=z)", "gather(p, 1, i, out=z)", "clamp(p, out=z)",
    "log_softmax(p, 2, out=z)", "gt(p, b, out=z)", "mul(a, b, out=z)", "add(p, 'a', out=z)", "mul(p, 'a', out=z)", "argmax(p, 3, out=i)",
))  # fmt: skip
def test_a_history_is_told_of_before_shapes_and_after_types(call):
    found = []
    for library in (__import__("torch"), ours):
        given = dict(a=library.ones(3), b=library.ones(2), z=library.zeros(3), i=library.zeros(3, dtype=library.int64))
        given |= dict(p=library.ones(3, requires_grad=True), g=library.zeros(3, requires_grad=True), m=library.ones(3, 3, requires_grad=True))
        with pytest.raises((RuntimeError, TypeError, IndexError)) as caught: eval(f"torch.{call}", {"torch": library, **given})
        found.append((caught.type.__name__, str(caught.value).splitlines()[0]))
    assert found[1][0] == found[0][0] and found[1][1].startswith(found[0][1]), found


# kinds of calls that do not fit, of functions and methods that are looked at when they fail only
UNFIT = """m.mul(x)
m.mul()
m.exp()
m.exp(out=x)
m.exp(x, 1)
m.eq(x)
m.atan2(x)
m.abs(np.ones(2))
m.exp(m.strided)
m.add()
m.add(dim=7)
m.addcmul(out=x, value=1)
m.can_cast(1, 2)
m.arange(2, None)
m.range(3)
m.full((2,), None, dtype=m.complex64)
m.rand_like(x, memory_format=m.strided, nonsense=1)
m.nn.functional.dropout2d(nonsense=1)
x.float(nonsense=1)
x.is_contiguous(nonsense=1)
x.cholesky_inverse('a')
x.normal_('a')
x.uniform_(0, 1, 2)
x.resize_('a')
x.is_set_to(1)
x.sum(True)
x.amax(True)
x[[m.tensor([0, 1])],]
x[[m.tensor(1.5)],]
x[np.array(['a'])]""".splitlines()


@pytest.mark.parametrize("call", UNFIT)
def test_what_does_not_fit_is_told_as_by_pytorch(call):
    import torch

    words = [said(eval, (call, {"m": lib, "np": np, "x": lib.ones(3, 3)}), {}) for lib in (torch, ours)]
    assert words[0][0] == "TypeError"
    assert words[1] == words[0]


@pytest.mark.parametrize("name", "bool byte char cpu double float half int is_contiguous long short".split())
def test_a_memory_format_is_given_by_name(name):
    import torch

    for lib in (torch, ours):
        with pytest.raises(TypeError):
            getattr(lib.ones(2), name)(lib.contiguous_format)


MAKERS = """m.zeros_like(x) m.ones_like(x) m.empty_like(x) m.full_like(x,1) m.rand_like(x) m.randn_like(x) m.randint_like(x,5) m.arange(3) m.linspace(0,1,3)
m.logspace(0,1,3) m.eye(2) m.full((2,),1) m.randperm(3) m.randint(5,(2,)) m.scalar_tensor(1) m.tril_indices(2,2) m.triu_indices(2,2)""".split()
GIVEN = ["pin_memory=False", "pin_memory=None", "layout=m.strided", "requires_grad=None", "device='cpu'", "requires_grad=True", "dtype=float"]


@pytest.mark.parametrize("option", GIVEN)
@pytest.mark.parametrize("call", MAKERS)
def test_what_makes_tensors_takes_all_options(call, option):
    import torch

    found = []
    for lib in (torch, ours):
        try:
            made = eval(f"{call[:-1]}, {option})", {"m": lib, "x": lib.ones(2)})
            found.append((str(made.dtype), tuple(made.shape), made.requires_grad))
        except Exception as error:
            found.append(type(error))
    assert found[0] == found[1] or isinstance(found[0], type) and issubclass(found[1], found[0])
