"""PyTorch's own tables of custom functions, custom operators and autocast's decisions, run under both libraries."""

import importlib
import re
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from _op_samples import Converter, leaves, numbers, table, weights
from _sampled import some

import autograd_nb

pytestmark = pytest.mark.needs("torch")

# Custom functions and operators: the source of PyTorch's tables, run with our library under its name ------------------


def named_anything(name, **facts):
    "What stands for an `OpInfo` of ours."
    return types.SimpleNamespace(name=name, variant_test_name=facts.pop("variant_test_name", ""), **facts)


def theirs_and_ours(module, name):
    "The entries of one of PyTorch's tables, and what the same source makes of our library, {title: (theirs, ours)}."
    try:
        table()
        theirs = importlib.import_module(f"torch.testing._internal.{module}")
    except ImportError:
        return {}
    source = Path(theirs.__file__).read_text(encoding="utf-8")
    source = re.sub(r"^import torch$", "import autograd_nb as torch", source, flags=re.M)
    source = re.sub(r"^from torch(\.types)? import", r"from autograd_nb\1 import", source, flags=re.M)
    head, listed = source.split(f"\n{name} = [", 1)
    scope = {"__name__": f"{module}_of_ours"}
    exec(compile(head, module, "exec"), scope)
    scope.update(OpInfo=named_anything, all_types_and=lambda *dtypes: dtypes)
    exec(compile(f"{name} = [" + listed.split("\n]\n", 1)[0] + "\n]", module, "exec"), scope)
    pairs = zip(getattr(theirs, name), scope[name])
    return {f"{a.name}{a.variant_test_name and ':' + a.variant_test_name}": (a, b) for a, b in pairs}


TABLES = {
    f"{name}:{title}": pair
    for module, name in (("autograd_function_db", "autograd_function_db"), ("custom_op_db", "custom_op_db"))
    for title, pair in theirs_and_ours(module, name).items()
}


def numbers_of(library, value):
    return [t for t in leaves([value], library.Tensor)]


def gradient(library, f, x, args, kwargs, again=False):
    outs = [t for t in numbers_of(library, f(x, *args, **kwargs)) if t.requires_grad]
    inputs = [t for t in numbers_of(library, [x, args, kwargs]) if t.requires_grad]
    starts = [library.from_numpy(weights(t, k)).to(t.dtype) for k, t in enumerate(outs)]
    found = library.autograd.grad(outs, inputs, starts, allow_unused=True, create_graph=again)
    if not again:
        return found
    second = [t for t in found if t is not None and t.requires_grad]
    starts = [library.from_numpy(weights(t, k)).to(t.dtype) for k, t in enumerate(second)]
    return library.autograd.grad(second, inputs, starts, allow_unused=True)


def forward_mode(library, f, x, args, kwargs):
    flat = [x, *args] if isinstance(x, library.Tensor) else [*x, *args]
    inner = [t.detach() if isinstance(t, library.Tensor) else t for t in flat]
    places = [i for i, t in enumerate(inner) if isinstance(t, library.Tensor) and t.is_floating_point()]

    def of_tensors(*tensors):
        given = list(inner)
        for i, t in zip(places, tensors):
            given[i] = t
        return f(*given, **kwargs) if isinstance(x, library.Tensor) else f(given[: len(x)], *given[len(x) :], **kwargs)

    primals = tuple(inner[i] for i in places)
    return library.func.jvp(of_tensors, primals, tuple(library.ones_like(t) for t in primals))


def vectorised(library, f, x, args, kwargs):
    dims = tuple(0 if isinstance(t, library.Tensor) else None for t in (x, *args))
    both = [library.stack([t.detach(), t.detach() * 2]) if isinstance(t, library.Tensor) else t for t in (x, *args)]
    return library.vmap(lambda *given: f(*given, **kwargs), dims)(*both)


WAYS = {
    "value": lambda library, f, x, args, kwargs: f(x, *args, **kwargs),
    "gradient": gradient,
    "second gradient": lambda *given: gradient(*given, again=True),
    "forward mode": forward_mode,
    "vmap": vectorised,
    "gradient in vmap": lambda library, f, x, args, kwargs: vectorised(library, lambda *g, **k: library.func.grad(lambda *h: sum(t.sum() for t in numbers_of(library, f(*h, **k)) if t.is_floating_point()))(*g), x, args, kwargs),
    "no grad": lambda library, f, x, args, kwargs: library.no_grad()(f)(x, *args, **kwargs),
}  # fmt: skip


def outcome(library, way, f, x, args, kwargs):
    "What a call gives: for each tensor its facts and numbers; or the error's class and how it begins."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = way(library, f, x, args, kwargs)
        except Exception as error:
            return type(error).__name__, re.sub(r"\W+", " ", str(error).replace("autograd_nb", "torch"))[:24]
    return [(str(t.dtype).rpartition(".")[2], tuple(t.shape), t.requires_grad, numbers(t)) for t in numbers_of(library, found)]


# What both may do differently, with the reason: PyTorch's silence or its refusal is no rule for ours
REFUSED_BY_OURS = {
    # PyTorch drops the tangent of an operator without a rule for it and says nothing: its answer is zero, which is wrong
    ("custom_op_db", "forward mode"),
}
REFUSED_BY_BOTH = {
    # PyTorch refuses operators with a rule by `register_autograd` inside of `grad` as a whole; ours at the place that fails
    ("custom_op_db", "gradient in vmap"),
}


def assert_same(a, b, what, kind):
    if kind in REFUSED_BY_OURS and isinstance(b, tuple) or kind in REFUSED_BY_BOTH and isinstance(a, tuple):
        return
    if isinstance(a, tuple) or isinstance(b, tuple):
        assert b == a, what
        return
    assert [x[:3] for x in b] == [x[:3] for x in a], what
    for x, y in zip(a, b):
        np.testing.assert_allclose(y[3], x[3], 1e-5, 1e-6, err_msg=what)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("title", TABLES)
def test_custom_functions(title, way):
    import torch

    theirs, ours = TABLES[title]
    torch.manual_seed(0)
    for sample in theirs.sample_inputs_func(theirs, "cpu", torch.float32, True):
        convert = Converter(autograd_nb)
        given = sample.input, sample.args, sample.kwargs
        expected = outcome(torch, WAYS[way], theirs.op, *given)
        assert_same(expected, outcome(autograd_nb, WAYS[way], ours.op, *map(convert, given)), f"{title}, {way}: {given}", (title.partition(":")[0], way))


def test_changed_input_that_is_zero():
    "What a function returns is the input that it marked as changed, whatever its value."

    class Doubled(autograd_nb.autograd.Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def through_the_input(x):
        changed = x * 3
        assert Doubled.apply(changed) is changed
        return changed * 1

    for value in (0.0, 1.0):
        assert autograd_nb.func.grad(through_the_input)(autograd_nb.tensor(value)).item() == 6


# Autocast: what runs in 16 bits, what in 32, and what takes the wider dtype -------------------------------------------


def autocast_cases():
    "PyTorch's lists for the CPU and for a device with 16-bit floats, {title: (name, arguments, options)}."
    try:
        table()
        import torch
        from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists
    except ImportError:
        return {}
    torch.manual_seed(0)
    found = {}
    for kind in (AutocastCPUTestLists, AutocastTestLists):
        for listed, entries in vars(kind("cpu")).items():
            for name, *rest in entries:
                sets = [part for part in rest if isinstance(part, tuple)]
                options = next((part for part in rest if isinstance(part, dict)), {})
                for k, args in enumerate(sets):
                    found[f"{kind.__name__[8:-9]} {listed} {name} {k}"] = name, args, options
    return found


AUTOCAST = autocast_cases()
# What PyTorch refuses, or decides otherwise on the CPU than on a GPU, for which these lists were made
OTHERWISE = {
    "convolution": "PyTorch casts for `conv2d` on the CPU and not for this, the general form of it",
    "lstm_cell": "PyTorch casts its two products on the CPU and keeps the rest; the module `LSTMCell` agrees",
    "margin_ranking_loss": "without PyTorch's check in `nn.functional`, targets may have another shape; ours is checked everywhere",
    "einsum": "the list of operands comes first: both refuse it",
}
WIDER = {"cat", "stack", "bilinear", "cross", "tensordot"}  # mixed dtypes, which PyTorch refuses on the CPU, and takes on a GPU
PLACES = "", "nn.functional", "_C._nn", "linalg", "Tensor"


def run_under_autocast(library, dtype, name, place, args, options):
    target = library
    for part in filter(None, place.split(".")):
        target = getattr(target, part)
    with warnings.catch_warnings(), library.autocast("cpu", dtype=getattr(library, dtype)):
        warnings.simplefilter("ignore")
        try:
            found = getattr(target, name)(*args, **options)
        except Exception as error:
            return type(error).__name__
    return [(str(t.dtype).rpartition(".")[2], tuple(t.shape)) for t in leaves([found], library.Tensor)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("title", some([title for title, (name, *_) in AUTOCAST.items() if name not in OTHERWISE], 60, "autocast"))
def test_autocast(title, dtype):
    "The dtype of every result is PyTorch's, by each name under which both have the function."
    import torch

    name, args, options = AUTOCAST[title]
    for place in PLACES:
        homes = [torch, autograd_nb]
        for part in filter(None, place.split(".")):
            homes = [getattr(home, part, None) for home in homes]
        if not all(hasattr(home, name) for home in homes):
            continue
        expected = run_under_autocast(torch, dtype, name, place, args, options)
        if expected == "RuntimeError" and name in WIDER:
            continue
        convert = Converter(autograd_nb)
        assert run_under_autocast(autograd_nb, dtype, name, place, convert(args), convert(options)) == expected, f"{place}.{name}"
