"""PyTorch's own table of modules: copies, files, hooks, second derivatives, empty batches and dtypes agree under both libraries.

Outputs, gradients and orders of memory are compared in `test_nn_samples.py`.
"""

import copy
import functools
import io
import pickle
import re
import warnings

import pytest
from _compare import assert_same
from _op_samples import Converter, leaves, numbers, table, weights
from _sampled import some

import autograd_nb

pytestmark = pytest.mark.needs("torch")


@functools.cache
def modules():
    try:
        table()
        from torch.testing._internal.common_modules import module_db
    except ImportError:
        return {}
    return {info.module_cls.__name__: info for info in module_db if info.module_cls.__name__ != "LinearCrossEntropyLoss"}  # it takes minutes


@functools.cache
def cases(name, training):
    "What PyTorch's table makes of a module: (arguments of the constructor, arguments of the call)."
    import torch

    torch.manual_seed(0)
    info = modules()[name]
    found = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
    pairs = [(case.constructor_input, case.forward_input) for case in found]
    return [(made, given) for made, given in pairs if given is not None and not leaves([made.args, made.kwargs], torch.nn.Module)]


def in_library(library, value):
    "PyTorch's arguments as the library takes them, as new leaves."
    if library is autograd_nb:
        value = functions_in(library, Converter(library)(value))
    return changed(library, value, lambda t: t.clone())


def functions_in(library, value):
    if isinstance(value, (list, tuple)):
        return type(value)(functions_in(library, v) for v in value)
    if isinstance(value, dict):
        return {k: functions_in(library, v) for k, v in value.items()}
    return getattr(library.nn.functional, getattr(value, "__name__", ""), value) if callable(value) else value


def changed(library, value, change):
    if isinstance(value, library.Tensor):
        return change(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(changed(library, v, change) for v in value)
    if isinstance(value, dict):
        return {k: changed(library, v, change) for k, v in value.items()}
    return value


class Case:
    "A module of one library, and what it is called with."

    def __init__(self, library, name, training, number):
        self.library, (made, given) = library, cases(name, training)[number]
        self.kind, self.training = getattr(library.nn, name), training
        self.options = in_library(library, [made.args, made.kwargs])
        self.args, self.kwargs = in_library(library, [given.args, given.kwargs])

    def module(self, dtype="float64", **more):
        self.library.manual_seed(1)
        args, kwargs = self.options
        made = self.kind(*args, **kwargs, **more).train(self.training)
        return made.to(getattr(self.library, dtype)) if dtype else made

    def run(self, module, change=lambda t: t):
        self.library.manual_seed(3)
        self.given = changed(self.library, [self.args, self.kwargs], change)
        return leaves(module(*self.given[0], **self.given[1]), self.library.Tensor)

    def slopes(self, outs, inputs, **options):
        "Gradients of the inputs, for fixed gradients of those outputs that have one."
        wanted = [t for t in outs if t is not None and t.requires_grad]
        if not wanted or not inputs:
            return []
        starts = [self.library.from_numpy(weights(t, k)).to(t.dtype) for k, t in enumerate(wanted)]
        return self.library.autograd.grad(wanted, inputs, starts, allow_unused=True, **options)

    def inputs(self, module):
        return [t for t in leaves(self.given, self.library.Tensor) if t.requires_grad] + [*module.parameters()]


def state(module):
    return {k: facts(v) for k, v in module.state_dict().items()}


def copied(case):
    module = case.module()
    case.run(module)
    twins = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    return [(repr(m), m.training, state(m), [type(p).__name__ for p in m.parameters()], case.run(m)) for m in twins]


def saved(case):
    module, file = case.module(), io.BytesIO()
    case.run(module)
    case.library.save(module.state_dict(), file)
    file.seek(0)
    other = case.module()
    with case.library.no_grad():
        for p in other.parameters():
            p.zero_() if not hasattr(p, "materialize") else None
    told = other.load_state_dict(case.library.load(file, weights_only=True))
    return str(told), state(other), case.run(other)


def loaded_with_another_key(case):
    module = case.module()
    kept = module.state_dict()
    kept["another"] = case.library.ones(1)
    return str(module.load_state_dict(kept, strict=False)), module.load_state_dict(kept)


def named(case):
    module = case.library.nn.Sequential(case.module())
    case.run(module[0])
    lists = module.named_parameters, module.named_buffers, module.named_modules, module.named_children
    return repr(module), [[name for name, _ in each()] for each in lists], [*module.state_dict()]


def in_dtype(case, dtype):
    "A module that was cast, called with inputs that were."
    wanted = getattr(case.library, dtype)
    module = case.module(dtype)
    outs = case.run(module, lambda t: t.to(wanted) if t.is_floating_point() else t)
    slopes = case.slopes(outs, case.inputs(module))
    shown = [None if t is None else (str(t.dtype)[-8:], tuple(t.shape)) for t in [*outs, *slopes]]
    return shown if dtype != "float32" else [shown, outs]


def made_in(case, **options):
    dtype = options.get("dtype")
    if dtype:
        options["dtype"] = getattr(case.library, dtype)
    return [(k, str(v.dtype)[-8:], str(v.device)) for k, v in case.module(None, **options).state_dict().items()]


def second_derivatives(case):
    module = case.module()
    outs = case.run(module)
    inputs = case.inputs(module)
    first = case.slopes(outs, inputs, create_graph=True)
    second = [t for t in case.slopes(first, inputs) if t is not None]  # what is constant may have none
    return [t.detach() for t in [*first, *second] if t is not None]


def hooked(case):
    module, log = case.module(), []

    def sizes(value):
        return [tuple(t.shape) for t in leaves(value, case.library.Tensor)]

    handles = [
        module.register_forward_pre_hook(lambda m, args: log.append(("before", sizes(args)))),
        module.register_forward_pre_hook(lambda m, args, kwargs: log.append(("before", sizes(args), [*kwargs])), with_kwargs=True, prepend=True),
        module.register_forward_hook(lambda m, args, out: log.append(("after", sizes(args), sizes(out)))),
        module.register_full_backward_pre_hook(lambda m, grads: log.append(("gradients of outputs", sizes(grads)))),
        module.register_full_backward_hook(lambda m, grads, outs: log.append(("gradients of inputs", sizes(grads), sizes(outs)))),
    ]
    for _ in range(2):
        outs = case.run(module)
        slopes = case.slopes(outs, case.inputs(module))
        for handle in handles:
            handle.remove()
    return log, outs, slopes


def empty_batch(case):
    module = case.module()
    outs = case.run(module, lambda t: t[:0] if t.dim() else t)
    return outs, [None if t is None else tuple(t.shape) for t in case.slopes(outs, case.inputs(module))]


def other_mode(case):
    module = case.module()
    case.run(module)
    module.train(not case.training)
    outs = case.run(module)
    return module.training, outs, state(module), [t.requires_grad for t in outs]


def unrecorded(case):
    module = case.module()
    with case.library.no_grad():
        first = [t.requires_grad for t in case.run(module)]
    with case.library.inference_mode():
        second = [(t.requires_grad, t.is_inference()) for t in case.run(module)]
    module = case.module()
    case.run(module)  # a lazy one has its weights now
    module.requires_grad_(False)
    return first, second, [t.requires_grad for t in case.run(module)], [p.requires_grad for p in module.parameters()]


# There PyTorch reads memory that nobody wrote, or takes the batch for a sequence
NO_BATCH = {"MultiMarginLoss", "MultiLabelMarginLoss", "LazyConv1d", "LazyConv2d", "LazyConv3d"}
# PyTorch's has no kernel for these
NO_KERNEL = "NotImplementedError", "RuntimeError: derivative for"

WAYS = {
    "copied": copied,
    "saved": saved,
    "loaded with another key": loaded_with_another_key,
    "named": named,
    **{f"in {dtype}": functools.partial(in_dtype, dtype=dtype) for dtype in ("float32", "bfloat16", "float16")},
    **{f"made in {dtype}": functools.partial(made_in, dtype=dtype) for dtype in ("float64", "bfloat16", "complex64", "int64")},
    "made on the host": functools.partial(made_in, device="cpu"),
    "second derivatives": second_derivatives,
    "hooked": hooked,
    "empty batch": empty_batch,
    "in the other mode": other_mode,
    "unrecorded": unrecorded,
}


def facts(value):
    "A result as nested lists of numbers, dtypes and texts."
    if isinstance(value, (list, tuple)):
        return [facts(v) for v in value]
    if isinstance(value, dict):
        return {k: facts(v) for k, v in value.items()}
    if hasattr(value, "requires_grad"):
        return ("uninitialized",) if hasattr(value, "materialize") else (str(value.dtype).rpartition(".")[2], tuple(value.shape), numbers(value))
    return value


def outcome(library, name, training, number, way):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return facts(WAYS[way](Case(library, name, training, number)))
        except Exception as error:
            words = re.sub(r"autograd_nb|\b\w+(?=[.](__init__|forward)\(\))", "torch", str(error))
            return f"{type(error).__name__}: {words[:36]}"


def all_titles():
    titles = [(name, training, number, way) for name in modules() for training in (True, False) for number in range(len(cases(name, training))) for way in WAYS]
    return [title for title in titles if not (title[0] in NO_BATCH and title[3] == "empty batch")]


def refused_by_pytorch(expected, way):
    return isinstance(expected, str) and (expected.startswith(NO_KERNEL) or way == "empty batch")


@pytest.mark.parametrize("name, training, number, way", some(all_titles(), 200, "modules"))
def test_modules(name, training, number, way):
    import torch

    expected, found = (outcome(library, name, training, number, way) for library in (torch, autograd_nb))
    if not refused_by_pytorch(expected, way):
        assert_same(expected, found, f"{name} {number}, {way}")
