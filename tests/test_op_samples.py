"""Every differentiable operation in PyTorch's own table, with the samples that PyTorch tests it with, under both libraries: results, first and second gradients, flags and errors.

A few hundred samples of a fixed seed run always (AUTOGRAD_NB_SEED=… or =fresh takes others, and a failure tells which); AUTOGRAD_NB_EXHAUSTIVE=1 compares every sample, which takes a quarter of an hour.
"""

import itertools
import re
import warnings

import _op_samples
import pytest
from _sampled import EXHAUSTIVE, SEED, generator, some

import autograd_nb as ours

pytestmark = [pytest.mark.needs("torch")]

# Where the libraries differ on purpose, or PyTorch's samples cannot be told apart from chance.
NOT_COMPARED = {
    "empty": "shows uninitialised memory",
    "empty_like": "shows uninitialised memory",
    "empty_strided": "shows uninitialised memory",
    "empty_permuted": "shows uninitialised memory",
    "new_empty": "shows uninitialised memory",
    "new_empty_strided": "shows uninitialised memory",
    "chalf": "there are no complex numbers of half precision",
    "to_sparse": "there are no sparse tensors",
    "slice": "an overload of PyTorch's dispatcher",
    "max_pool2d_with_indices_backward": "an overload of PyTorch's dispatcher",
    "as_strided_scatter": "PyTorch gives the gradient of what was overwritten to the input",
    "nn.functional.linear_cross_entropy:chunked": "PyTorch computes the gradient in advance, and cannot differentiate it again",
    "nn.functional.linear_cross_entropy:chunked_none": "PyTorch computes the gradient in advance, and cannot differentiate it again",
}
DIFFERENT = [  # (operation, what may differ): more than PyTorch can, or a defect of PyTorch
    (r".*", r"second: \w+: (the )?derivative for .* is not implemented"),
    (r"native_layer_norm", r"second: RuntimeError: Expected a proper Tensor but got None|first gradient 1: .*True\)  \|  .*False\)"),
    (r"nn.functional.multi(label_)?_?margin_loss", r"(first|second) gradient 0"),
    (r"nn.functional.multilabel_margin_loss", r"(first|second) gradient 0"),
    (r"cdist|nn.functional.pdist", r"first gradient \d: .*True\)  \|  .*False\)"),
    (r"cov", r"second (gradient|value) "),  # open: the second gradient of weights of another dtype comes in the wider one
    (r"masked.logaddexp", r"second value \d: "),
    (r"_segment_reduce.*", r"first gradient 0: .*True\)  \|  .*False\)|second: RuntimeError: derivative for"),
    (r"ormqr", r"first gradient \d: (None|\(\(.*\b0\b)"),
    (r"linalg.lstsq.*", r"second gradient \d: None  \|  \(\(0,\)"),
]


def expected_difference(title, line):
    return any(re.fullmatch(operation, title) and re.match(what, line) for operation, what in DIFFERENT)


def operations(dtype):
    "The table's operations that we have, which can be differentiated for this dtype."
    import torch

    for title, info in _op_samples.table().items():
        if title in NOT_COMPARED or not info.supports_autograd or getattr(torch, dtype) not in info.dtypes:
            continue
        try:
            yield title, info, _op_samples.counterpart(info, ours)
        except AttributeError:
            continue


def differences(title, info, function, dtype, numbers=None, leaf_starts=(False, True)):
    "Lines about the samples (those of the given numbers) on which the libraries differ."
    import numpy as np
    import torch

    torch.manual_seed(1)
    np.random.seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=True)):
            if numbers is not None and number not in numbers:
                continue
            for leaf in leaf_starts:
                try:
                    line = _op_samples.compare(info, sample, ours, function, leaf_starts=leaf)
                except NotImplementedError as error:
                    if str(error) in ("layout", "generator"):
                        continue
                    raise
                if line is not None and not expected_difference(title, line):
                    yield f"{title}, sample {number} of {dtype}, starts {'differentiable' if leaf else 'constant'}: {line}"


if EXHAUSTIVE:  # see above

    @pytest.mark.parametrize("part", range(8))
    @pytest.mark.parametrize("dtype", ["float64", "complex128"])
    def test_every_sample(dtype, part):
        found = []
        for title, info, function in itertools.islice(operations(dtype), part, None, 8):
            found += itertools.islice(differences(title, info, function, dtype), 3)
        assert not found, "\n".join(found)


def test_some_samples():
    rng, found = generator(), []
    dtype = rng.choice(["float64", "float64", "complex128"])
    for title, info, function in some(operations(dtype), 150):
        numbers = set(rng.sample(range(20), 5))
        found += differences(title, info, function, dtype, numbers, [rng.random() < 0.5])
    assert not found, f"AUTOGRAD_NB_SEED={SEED}\n" + "\n".join(found)


def first_gradients(function, sample, number=None):
    """The gradients of a sample, and how many of its tensors need none. `number`: that one of them is overwritten with other numbers before the pass."""
    import numpy as np

    memo, convert = {}, _op_samples.Converter(ours)
    args, kwargs = convert(_op_samples.fresh([sample.input, *sample.args], memo)), convert(_op_samples.fresh(sample.kwargs, memo))
    inputs = _op_samples.leaves([args, kwargs], ours.Tensor)
    fixed = [t for t in inputs if not t.requires_grad]
    ours.manual_seed(0)
    outs = [t for t in _op_samples.leaves(function(*args, **kwargs), ours.Tensor) if t.requires_grad]
    if number is not None:
        fixed[number].copy_(fixed[number].logical_not() if fixed[number].dtype is ours.bool else fixed[number] * 0)
    gradients = ours.autograd.grad(outs, [t for t in inputs if t.requires_grad], [ours.ones_like(t) for t in outs], allow_unused=True) if outs else ()
    return [np.zeros(0) if g is None else _op_samples.numbers(g) for g in gradients], len(fixed)


@pytest.mark.slow
def test_operands_overwritten_before_the_pass():
    "Indices, masks, targets, weights: the pass is refused, or does not look at them; never is a gradient made of the new numbers."
    import itertools

    import numpy as np
    import torch

    spoilt = []
    torch.manual_seed(1)
    np.random.seed(1)
    for title, info, function in operations("float64"):
        for sample in itertools.islice(info.sample_inputs("cpu", torch.float64, requires_grad=True), 3):
            tensors = _op_samples.leaves([sample.input, sample.args, sample.kwargs], torch.Tensor)
            if all(t.requires_grad for t in tensors):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected, count = first_gradients(function, sample)
                except (NotImplementedError, RuntimeError):
                    continue
                for n in range(count):
                    try:
                        found, _ = first_gradients(function, sample, n)
                    except RuntimeError as error:
                        assert "modified by an inplace operation" in str(error) or "a view" in str(error), (title, str(error))
                        continue
                    if not all(np.allclose(a, b, equal_nan=True) for a, b in zip(expected, found)):
                        spoilt.append((title, n))
    assert not spoilt, spoilt


# What PyTorch composes otherwise than we do, so that its last operation is another one.
OTHER_NODES = {
    "sum_to_size": "a sum over no dimensions",
    "stft": "undoes in place what it has done to its input",
    "nn.functional.linear_cross_entropy:chunked": "a custom operation",
    "nn.functional.linear_cross_entropy:chunked_none": "a custom operation",
    "native_layer_norm": "with a weight or a bias alone",
    "einsum": "multiplies matrices where a product of elements does",
    "nn.functional.dropout3d": "squeezes what it has left alone",
    "linalg.matrix_power": "of the inverse",
    "linalg.matrix_norm": "moves dimensions",
    "linalg.tensorinv": "an alias of its own",
    "special.ndtr": "half an error function",
}


def names_of_nodes(function, args, kwargs, kind):
    names = []
    for t in _op_samples.leaves(function(*args, **kwargs), kind):
        node = t.grad_fn
        names.append(t.requires_grad if node is None else (type(node).__name__, node.name()))
    return names


def test_names_of_nodes():
    import torch

    found = []
    chosen = [(title, *rest) for title, *rest in operations("float64") if title not in OTHER_NODES]
    for title, info, function in some(chosen, 300):
        torch.manual_seed(1)
        for number, sample in enumerate(itertools.islice(info.sample_inputs("cpu", torch.float64, requires_grad=True), None if EXHAUSTIVE else 12)):
            memo, convert = {}, _op_samples.Converter(ours)
            try:
                args, kwargs = _op_samples.fresh([sample.input, *sample.args], memo), _op_samples.fresh(sample.kwargs, memo)
                our_args, our_kwargs = convert(args), convert(kwargs)
            except NotImplementedError:  # as in `differences`
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = names_of_nodes(info.op, args, kwargs, torch.Tensor)
                except RuntimeError:  # the other test compares refusals
                    continue
                name = names_of_nodes(function, our_args, our_kwargs, ours.Tensor)
            if expected != name:
                found.append(f"{title}, sample {number}: {expected}  |  {name}")
    assert not found, "\n".join(found)


def test_names_of_products():
    import torch

    shapes = [(4,), (4, 4), (3, 4, 4), (2, 3, 4, 4), (1, 4, 4)]
    for one, two, first, second, across in itertools.product(shapes, shapes, (False, True), (False, True), (False, True)):
        names = []
        for lib in (torch, ours):
            x, y = (lib.ones(*s) for s in (one, two))
            if across:
                x, y = (t.mT if t.ndim > 1 else t for t in (x, y))
            made = x.requires_grad_(first) @ y.requires_grad_(second)
            names.append(made.grad_fn and made.grad_fn.name())
        assert names[0] == names[1], (one, two, first, second, across, names)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (1, 2, 3, 4)])
def test_names_of_layers(shape, bias):
    import torch

    for across in (False, True):
        names = []
        for lib in (torch, ours):
            x = lib.ones(*shape)
            if across and len(shape) > 1:
                x = lib.ones(*shape[:-2], shape[-1], shape[-2]).mT
            names.append(lib.nn.Linear(4, 5, bias=bias)(x).grad_fn.name())
        assert names[0] == names[1], (across, names)


def test_second_pass_through_alpha():
    import torch

    for lib in (torch, ours):
        a, b = (lib.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        total = (lib.add(a, b, alpha=2) + lib.sub(a, b, alpha=3.5)).sum()
        total.backward()
        total.backward()
        assert b.grad.tolist() == [-3.0, -3.0]


def test_the_list_leaves_pytorchs_flags_free():
    import torch

    _op_samples.op_db()
    with torch.backends.cudnn.flags(enabled=False):
        assert not torch.backends.cudnn.enabled
    torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic


INPLACE_DIFFERS = {  # what differs, and why
    "acosh": "PyTorch has no derivative in place",
    "asinh": "PyTorch has no derivative in place",
    "atanh": "PyTorch has no derivative in place",
    "addbmm": "PyTorch resizes the tensor",
    "normal:in_place": "drawn at random",
    "scatter": "open: a single number",
}


def in_place(torch, method, sample, convert):
    "Result and gradients of an operation that writes to a copy of its first input, or the name of its error."
    memo = {}
    args, kwargs = (convert(_op_samples.fresh(v, memo)) for v in ([sample.input, *sample.args], sample.kwargs))
    try:
        made = method(args[0].clone(), *args[1:], **kwargs)
        inputs = [t for t in _op_samples.leaves([args, kwargs], torch.Tensor) if t.requires_grad]
        found = torch.autograd.grad((made * made).abs().sum(), inputs, allow_unused=True) if made.requires_grad and inputs else []
    except Exception as error:
        return type(error).__name__
    return [_op_samples.numbers(t) for t in [made, *found] if t is not None]


def test_in_place_variants():
    import torch

    found = []
    for title, info, _ in some(operations("float64"), 400):
        theirs = info.inplace_variant
        mine = getattr(ours.Tensor, getattr(theirs, "__name__", "?"), None)
        if mine is None or title in INPLACE_DIFFERS:
            continue
        torch.manual_seed(1)
        for number, sample in enumerate(itertools.islice(info.sample_inputs("cpu", torch.float64, requires_grad=True), 8)):
            if not isinstance(sample.input, torch.Tensor):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                convert = _op_samples.Converter(ours)
                expected, got = in_place(torch, theirs, sample, lambda v: v), in_place(ours, mine, sample, convert)
            if isinstance(expected, str) or isinstance(got, str):
                same = type(expected) is type(got) and expected == got
            else:
                same = len(expected) == len(got) and all(_op_samples.same(a, b, 1e-6, 1e-7) for a, b in zip(expected, got))
            if not same:
                found.append(f"{title}, sample {number}: {expected}  |  {got}")
    assert not found, f"AUTOGRAD_NB_SEED={SEED}\n" + "\n".join(found)


@pytest.mark.parametrize("index", [(), (1,), (2,), (0,)])
@pytest.mark.parametrize("name", ["scatter_add", "scatter", "sum", "prod", "mean", "amax", "amin"])
def test_scattering_to_a_single_number(name, index):
    "As many sources count as there are indices; the result is no view, and its node is the function's."
    import torch

    found = []
    for t in (torch, ours):
        x = t.tensor(2.0, requires_grad=True)
        i, lines = t.zeros(index, dtype=t.int64), []
        for shape in (index, (3,) if index else ()):
            source = t.full(shape, 3.0)
            made = getattr(x, name)(0, i, source) if "scatter" in name else x.scatter_reduce(0, i, source, name)
            lines.append((made.item(), made.grad_fn.name(), made._is_view()))
            if shape == index:
                lines.append(t.autograd.grad(made, x)[0].item())
        found.append(lines)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "line",
    [
        *(f"torch.cdist(x[:, :{c}], y[:, :{c}], {p}, '{mode}')" for c in (0, 2) for p in (1.0, 2.0) for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary")),
        "torch.cdist(x, x.repeat(10, 1))",
        "torch.cdist(x.expand(2, 3, 4), x)",
        *(f"torch.nn.functional.nll_loss(x.reshape({shape}), torch.zeros({places}, dtype=torch.int64), reduction='{how}')" for shape, places in (("3, 4", "3"), ("3, 2, 2", "3, 2"), ("3, 2, 2, 1", "3, 2, 1"), ("3, 2, 2, 1, 1", "3, 2, 1, 1")) for how in ("none", "mean")),
        "torch.cov(x)",
        "torch.cov(x[:1])",
        "torch.linalg.matrix_power(x[:, :3], 0)",
        "torch.linalg.matrix_power(x[:, :3] * float('nan'), 0)",
    ],
)
def test_names_of_composed_functions(line):
    "The name of the node, and what the gradient of the gradient would belong to."
    import torch

    found = []
    for t in (torch, ours):
        x, y = (t.arange(n * 4.0).reshape(n, 4) for n in (3, 5))
        made = eval(line, dict(torch=t, x=x.requires_grad_(), y=y))
        (slope,) = t.autograd.grad((made * made.detach()).sum(), x, create_graph=True)
        found.append((made.grad_fn.name(), slope.requires_grad if "power" in line else None))
    assert found[0] == found[1]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("odd", [0.0, float("nan"), float("inf"), -float("inf")])
def test_a_few_of_many(odd, largest, dim):
    "They are found one by one, unless what marks those that were taken is among the numbers."
    import torch

    found = []
    for t in (torch, ours):
        x = t.arange(4000.0).mul(1.3).sin().reshape(10, 400)
        x[3, 5:399] = odd
        x = x if dim else x.t().contiguous()
        values, places = x.topk(8, dim, largest)
        assert x.gather(dim, places).nan_to_num(7.0).tolist() == values.nan_to_num(7.0).tolist()
        found.append(values.nan_to_num(7.0).tolist())
    assert torch.allclose(*map(torch.tensor, found), atol=1e-6)


@pytest.mark.parametrize("index", ["i, 0", "0, i", "k", "k, k", "i, k", "k, i", "1:, i", "i, None, k", "..., k", "k, ..., i", "i, i, i", "i + 9, 0", "i, i", "i,", "i, i + 9", "i, i[:2]", "m", "m,", "m[:4]", "x > 3", "m, i"])
def test_numbers_and_places_in_an_index(index):
    import torch

    found = []
    for t in (torch, ours):
        x, i, k = t.arange(20.0).reshape(5, 4), t.tensor([2, 0, 3]), t.tensor(1)
        m = t.tensor([True, False, True, False, True])
        try:
            found.append(eval(f"x[{index}]", {"x": x, "i": i, "k": k, "m": m}).tolist())
        except IndexError as error:
            found.append(str(error).split("\n")[0])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "write",
    ["x[0] = x[1]", "x[:, 0] = x[:, 1]", "x[1] += 1", "x[-1] = 2", "x[5] = 2", "x[i] = x[:3]", "x[i, i] = i", "x[x[0]] = 7", "x[x[0, :3], i] = 7",
     "x[m] = 7", "x[m,] = x[:3]", "x[m] = x[:2]", "x[x > 3] = 0", "x[b] = 7", "x[b] = x[:3]", "x[i[:1]] = x[:1]"],
)
def test_writes_at_an_index(write):
    import warnings

    import torch

    found = []
    for t in (torch, ours):
        x, i, m = t.arange(20).reshape(5, 4), t.tensor([2, 0, 3]), t.tensor([True, False, True, False, True])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of masks of bytes
                exec(write, {"x": x, "i": i, "m": m, "b": m.to(t.uint8)})
            found.append((x.tolist(), x._version))
        except (IndexError, RuntimeError) as error:
            found.append((isinstance(error, IndexError), x.tolist(), x._version))
    assert found[0] == found[1]
