"""Modules and functions of `nn` agree with PyTorch on its own tables of inputs, correct and wrong ones."""

import functools
import inspect
import re
import warnings

import numpy as np
import pytest
from _compare import assert_same_output, programs
from _op_samples import Converter, leaves, numbers, table, weights

import autograd_nb

pytestmark = pytest.mark.needs("torch")

# Type and shape checks, hooks, clipping, state dicts: programs whose output is compared -----------------------------

CHECKS = programs("nn_checks")


@pytest.mark.parametrize("title", CHECKS)
def test_checks(title):
    assert assert_same_output(CHECKS[title])


# Modules: PyTorch's inputs for each of them ---------------------------------------------------------------------------


def modules():
    try:
        table()
        from torch.testing._internal.common_modules import module_db
    except ImportError:
        return {}
    return {info.module_cls.__name__: info for info in module_db}


MODULES = modules()


def functions_of_ours(value):
    "PyTorch's functions among arguments, such as an activation, as ours."
    if isinstance(value, (list, tuple)):
        return type(value)(map(functions_of_ours, value))
    if isinstance(value, dict):
        return {k: functions_of_ours(v) for k, v in value.items()}
    return getattr(autograd_nb.nn.functional, getattr(value, "__name__", ""), value) if callable(value) else value


def call(function):
    "The result of a function, or its error."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function()
        except Exception as error:
            return error


def assert_same_error(expected, found, what):
    assert type(found).__name__ == type(expected).__name__, f"{what}: {expected!r} and {found!r}"
    assert str(found)[:36] == str(expected)[:36], f"{what}: {expected!r} and {found!r}"


def assert_close(a, b, what):
    a, b = numbers(a), numbers(b)
    assert a.shape == b.shape and a.dtype == b.dtype, what
    np.testing.assert_allclose(b, a, 1e-6, 1e-8, err_msg=what)


def results(torch, module, args, kwargs):
    "Outputs, and the gradients of inputs and parameters."
    torch.manual_seed(3)
    outs = [t for t in leaves(module(*args, **kwargs), torch.Tensor)]
    inputs = [t for t in leaves([args, kwargs], torch.Tensor) if t.requires_grad] + [*module.parameters()]
    wanted = [t for t in outs if t.requires_grad]
    if not wanted or not inputs:
        return outs, []
    starts = [torch.from_numpy(weights(t, k)).to(t.dtype) for k, t in enumerate(wanted)]
    return outs, torch.autograd.grad(wanted, inputs, starts, allow_unused=True)


def compare_module(name, case, training):
    import torch

    made, given = case.constructor_input, case.forward_input
    if leaves([made.args, made.kwargs], torch.nn.Module):
        return
    theirs, ours = MODULES[name].module_cls, getattr(autograd_nb.nn, name)
    options = dict(made.kwargs, dtype=torch.float64) if "dtype" in inspect.signature(theirs.__init__).parameters else made.kwargs
    if issubclass(theirs, torch.nn.RNNBase):
        options = dict(options, dtype=torch.float64)
    convert = Converter(autograd_nb)
    pair = []
    for library, kind, args, kwargs in ((torch, theirs, made.args, options), (autograd_nb, ours, *functions_of_ours([convert(made.args), convert(options)]))):
        library.manual_seed(1)
        pair.append(kind(*args, **kwargs).train(training))
    a, b = pair
    what = f"{a}, {case.desc}"
    assert repr(b) == repr(a)
    assert [*b.state_dict()] == [*a.state_dict()]
    if given is None:
        return
    args, kwargs = convert(given.args), convert(given.kwargs)
    expected, found = call(lambda: results(torch, a, given.args, given.kwargs)), call(lambda: results(autograd_nb, b, args, kwargs))
    if isinstance(expected, Exception) or isinstance(found, Exception):
        return assert_same_error(expected, found, what)
    for part, values, others in zip(("output", "gradient"), expected, found):
        assert len(values) == len(others), what
        for k, (x, y) in enumerate(zip(values, others)):
            assert (x is None) == (y is None), f"{what}: {part} {k}"
            if x is not None:
                assert_close(x, y, f"{what}: {part} {k}")
    for (key, x), y in zip(a.state_dict().items(), b.state_dict().values()):
        assert_close(x, y, f"{what}: {key} afterwards")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, training):
    import torch

    info = MODULES[name]
    torch.manual_seed(0)
    for case in info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training):
        compare_module(name, case, training)


# The same inputs as other people hold them: not in order, channels last, of other dtypes; and what no module takes ----


def changed(value, torch, change):
    "Arguments with a function applied to each tensor; leaves stay leaves that require grad."
    if isinstance(value, torch.Tensor):
        return change(value.detach(), torch).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(changed(v, torch, change) for v in value)
    if isinstance(value, dict):
        return {k: changed(v, torch, change) for k, v in value.items()}
    return value


def strided(t, torch):
    room = torch.empty(*t.shape, 2, dtype=t.dtype)
    room[..., 0] = t
    return room[..., 0]


def channels_last(t, torch):
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim(), torch.contiguous_format)
    return t.contiguous(memory_format=order)


FORMS = {"strided": strided, "channels last": channels_last}
# PyTorch keeps channels last in these as well, and ours do not
OTHER_ORDER = {
    "PixelShuffle", "PixelUnshuffle", "ChannelShuffle", "LocalResponseNorm", "RMSNorm", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad2d", "ZeroPad3d", "ConstantPad2d", "ConstantPad3d", "CircularPad2d", "CircularPad3d",
}  # fmt: skip
# PyTorch refuses integers in these, and ours computes or says it in other words; linear cross-entropy takes minutes
INTEGERS_TAKEN = {
    "GLU", "GroupNorm", "Hardshrink", "Hardswish", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LogSoftmax", "Mish", "RMSNorm", "SELU",
    "Softmax2d", "Softmin", "Softshrink", "LinearCrossEntropyLoss",
}  # fmt: skip


def pair_of(name, case):
    "PyTorch's module and ours with the same parameters; None if it is made of modules."
    import torch

    made, convert = case.constructor_input, Converter(autograd_nb)
    if leaves([made.args, made.kwargs], torch.nn.Module):
        return None
    pair = []
    for library, kind, args, kwargs in ((torch, MODULES[name].module_cls, made.args, made.kwargs), (autograd_nb, getattr(autograd_nb.nn, name), *functions_of_ours([convert(made.args), convert(made.kwargs)]))):
        library.manual_seed(1)
        pair.append(kind(*args, **kwargs))
    return pair


def cases_of(name):
    import torch

    info = MODULES[name]
    torch.manual_seed(0)
    for case in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True):
        pair = pair_of(name, case)
        if pair and case.forward_input is not None:
            convert = Converter(autograd_nb)
            given = case.forward_input
            yield f"{pair[0]}, {case.desc}", pair, (given.args, given.kwargs), (convert(given.args), convert(given.kwargs))


def compare_orders(name, form, what, pair, given, ours):
    import torch

    a, b = pair
    if form == "channels last":
        call(lambda: a.to(memory_format=torch.channels_last))  # not of filters in one or three dimensions
        call(lambda: b.to(memory_format=autograd_nb.channels_last))
    expected = call(lambda: results(torch, a, *changed(given, torch, FORMS[form])))
    found = call(lambda: results(autograd_nb, b, *changed(ours, autograd_nb, FORMS[form])))
    assert isinstance(found, tuple) or isinstance(expected, Exception), f"{what}: {found!r}"
    if isinstance(expected, Exception):
        return
    for values, others in zip(expected, found):
        for x, y in zip(values, others):
            if x is not None:
                np.testing.assert_allclose(numbers(y), numbers(x), 2e-4, 1e-4, err_msg=what)
    if form == "channels last" and name not in OTHER_ORDER:
        # where a dimension holds one number, its stride says nothing
        orders = [[[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in outs if t.dim() == 4 and t.numel()] for outs in (expected[0], found[0])]
        assert orders[1] == orders[0], what


# PyTorch's own CTC loss reads targets as if they lay in order, and ends the process where they do not
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in MODULES if name != "CTCLoss"])
def test_inputs_in_other_orders(name, form):
    "Values and gradients, and with channels last the order of the result."
    for case in cases_of(name):
        compare_orders(name, form, *case)


def compare_integers(what, pair, given, ours):
    import torch

    def whole(t):
        return t.long() if t.is_floating_point() else t

    expected = call(lambda: pair[0](*changed_to(given[0], torch, whole), **given[1]))
    found = call(lambda: pair[1](*changed_to(ours[0], autograd_nb, whole), **ours[1]))
    if isinstance(expected, NotImplementedError):
        assert_same_error(expected, found, what)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in INTEGERS_TAKEN])
def test_integers(name):
    "A layer that has no meaning for integers refuses them in PyTorch's words."
    for case in cases_of(name):
        compare_integers(*case)


def changed_to(args, torch, change):
    return tuple(change(t.detach()) if isinstance(t, torch.Tensor) else t for t in args)


@pytest.mark.parametrize("name", [name for name, info in MODULES.items() if info.module_error_inputs_func])
def test_wrong_modules(name):
    import torch

    info, convert = MODULES[name], Converter(autograd_nb)
    for case in info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True):
        made, given = case.module_error_input.constructor_input, case.module_error_input.forward_input

        def run(kind, change, made=made, given=given, at_call=case.error_on.name == "FORWARD_ERROR"):
            module = kind(*change(made.args), **change(made.kwargs))
            return module(*change(given.args), **change(given.kwargs)) if at_call else module

        expected, found = call(lambda: run(info.module_cls, lambda v: v)), call(lambda: run(getattr(autograd_nb.nn, name), convert))
        assert type(found).__name__ == type(expected).__name__, f"{made} {given}: {expected!r} and {found!r}"
        if isinstance(expected, Exception) and not re.search(case.error_regex, str(found)):
            assert_same_error(expected, found, f"{made} {given}")


# Functions: PyTorch's wrong inputs -------------------------------------------------------------------------------------


def wrong_functions():
    try:
        return {name: info for name, info in table().items() if name.startswith("nn.functional.") and info.error_inputs_func is not None}
    except ImportError:
        return {}


WRONG = wrong_functions()


@pytest.mark.parametrize("title", WRONG)
def test_wrong_functions(title):
    import torch

    info = WRONG[title]
    name = info.name.rpartition(".")[2]
    for case in info.error_inputs("cpu"):
        sample, convert = case.sample_input, Converter(autograd_nb)
        args = (sample.input, *sample.args)
        expected = call(functools.partial(getattr(torch.nn.functional, name), *args, **sample.kwargs))
        found = call(functools.partial(getattr(autograd_nb.nn.functional, name), *convert(args), **convert(sample.kwargs)))
        if not isinstance(expected, Exception):
            continue
        assert type(found).__name__ == type(expected).__name__, f"{args} {sample.kwargs}: {expected!r} and {found!r}"
        if not re.search(case.error_regex, str(found)):
            assert_same_error(expected, found, f"{args} {sample.kwargs}")
