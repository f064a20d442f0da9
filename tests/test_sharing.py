"""Which results share memory with which inputs, and what a write into a result does to them: every public function and method on several layouts, as PyTorch has it.

Calls are generated: each function with each of a few dozen argument lists, of which PyTorch accepts some. A few thousand of them run always; AUTOGRAD_NB_EXHAUSTIVE=1 runs all, and PyTorch's own samples, which takes an hour."""

import os
import random
import warnings

import numpy as np
import pytest
from _op_samples import op_db
from _sharing import LAYOUTS, Call, Named, calls, differences, mapped

import autograd_nb as ours
from autograd_nb.arrays.numpy_backend import storage_of
from autograd_nb.graph.op import REGISTRY

EXHAUSTIVE = os.environ.get("AUTOGRAD_NB_EXHAUSTIVE")
MODES = [(layout, None) for layout in LAYOUTS] + [("contiguous", "leaf"), ("contiguous", "intermediate")]

# Where the two differ on purpose: name -> why.
DIFFERENT = {
    "dropout1d": "with p=0 PyTorch returns a view of the input, here it is the input",
    "dropout3d": "likewise",
    "conj_physical_": "of real numbers PyTorch counts the write twice",
    "heaviside_": "PyTorch goes on with a node that has no derivative, here the tensor has no history",
    "batch_norm": "PyTorch does not count the update of running statistics as a write; here a backward pass that needs what was overwritten is refused",
    "native_batch_norm": "likewise",
    "as_strided_scatter": "its gradient has a test of its own",
}


def complaints(chosen):
    "What differs in the calls `chosen`, triples (call, layout, grad), as one text."
    out = []
    for call, layout, grad in chosen:
        lines = differences(call, layout, grad)
        if lines and call.where.lstrip(".") not in DIFFERENT:
            out.append(f"{call}, {layout}{', ' + grad if grad else ''}\n    " + "\n    ".join(lines))
    return "\n".join(out)


@pytest.mark.needs("torch")
def test_results_share_memory_as_in_pytorch():
    rng = random.Random(0)
    chosen = [(call, *rng.choice(MODES)) for call in calls() if rng.random() < 0.02]
    text = complaints(chosen)
    assert not text, text


if EXHAUSTIVE:  # see above

    @pytest.mark.needs("torch")
    @pytest.mark.parametrize("layout, grad", MODES)
    def test_every_result_shares_memory_as_in_pytorch(layout, grad):
        text = complaints((call, layout, grad) for call in calls())
        assert not text, text


def samples():
    "The calls that PyTorch's own tests make of its operators."
    import torch

    class Other(Exception):
        pass

    def plain(v):
        if isinstance(v, torch.Tensor):
            if v.layout is not torch.strided or v.dtype is torch.bfloat16:
                raise Other
            return v.detach().resolve_conj().resolve_neg().numpy().copy()
        if isinstance(v, (torch.dtype, torch.memory_format)):
            return Named(str(v)[6:])
        if isinstance(v, torch.device):
            return v.type
        if v is None or isinstance(v, (bool, int, float, complex, str, slice, type(...), np.ndarray)):
            return v
        if isinstance(v, torch.Size):
            return tuple(v)
        raise Other

    for op in op_db():
        for dtype in [d for d in (torch.float32, torch.int64, torch.complex64) if d in op.dtypes][:1]:
            try:
                given = [(mapped((s.input, *s.args), plain), mapped(dict(s.kwargs), plain)) for s in op.sample_inputs("cpu", dtype, requires_grad=False)]
            except (Other, StopIteration):
                continue
            for args, kwargs in given[:40]:
                yield Call(op.name, args, kwargs)
                if isinstance(args[0], np.ndarray):
                    yield Call("." + op.name, args, kwargs)


if EXHAUSTIVE:  # see above

    @pytest.mark.needs("torch")
    @pytest.mark.parametrize("layout, grad", MODES)
    def test_pytorchs_samples(layout, grad):
        text = complaints((call, layout, grad) for call in samples())
        assert not text, text


@pytest.mark.parametrize("op", [op for op in REGISTRY.values() if op.samples and op.name != "unsafe_view"], ids=lambda op: op.name)
def test_kernels_own_their_results(op):
    "An operation that is not declared a view gives memory of its own, on bare arrays too."
    if op.view:
        return
    for sample in op.samples:
        statics = {**op.statics, **(sample[-1] if isinstance(sample[-1], dict) else {})}
        drawn = [np.asarray(s(np.random.default_rng(0))) for s in sample if not isinstance(s, dict)]
        for layout in LAYOUTS.values():
            arrays = [layout(a) for a in drawn]
            out = op.kernel(*arrays, **statics)
            for o in out if op.outputs != 1 else [out]:
                o = np.asarray(o)
                assert o.flags.writeable and not any(storage_of(o) is storage_of(a) for a in arrays)


@pytest.mark.needs("torch")
def test_writes_into_expanded_tensors():
    "Those that PyTorch allows reach the one place in memory; those that it refuses are refused with its words."
    import torch

    from _compare import close

    def ways(lib):
        mask = lib.tensor([[True, False, False], [False, True, False], [False, False, False]])
        return dict(
            row=lambda v: v.__setitem__(0, lib.tensor([7.0, 8.0, 9.0])), index=lambda v: v.__setitem__([1], 5.0), index_put=lambda v: v.index_put_((lib.tensor([0]),), lib.tensor(4.0)), mask=lambda v: v.__setitem__(mask, 6.0),
            masked_fill=lambda v: v.masked_fill_(mask, 2.0), index_fill=lambda v: v.index_fill_(1, lib.tensor([2]), 3.0), fill=lambda v: v.fill_(1.0), zero=lambda v: v.zero_(), mul=lambda v: v.mul_(2), copy=lambda v: v.copy_(lib.ones(3, 3)), add=lambda v: v.add_(v))

    for name in ways(ours):
        seen = []
        for lib in (torch, ours):
            x = lib.arange(3.0)
            v = x.expand(3, 3)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    ways(lib)[name](v)
                    error = None
                except RuntimeError as e:
                    error = str(e)[:100]
            seen.append((x, error, bool(said), x._version))
        (x, *facts), (y, *found) = seen
        close(x, y)
        assert found == facts, name


@pytest.mark.needs("torch")
def test_lists_of_tensors():
    "What `tensor` makes of nested lists that hold tensors and NumPy's numbers: one number each, in their common dtype."
    import torch

    def lists(lib):
        one, zero, two = lib.ones(1), lib.tensor(2.0), lib.ones(2)
        return [
            [one, one], [one, zero], [zero, one], [lib.ones(1, 1), one], [[one], [one]], [[one, 2.0], [lib.tensor(3), 4]], [1.0, one], [two, two], [[two], [two]], [1.0, two], [lib.ones(0), 1.0], [[1.0, 2.0], two], [two, [1.0, 2.0]], [one, [1.0]],
            [lib.tensor(1), zero], [zero.double(), zero], [zero.half(), 2], [zero.bfloat16(), zero.bfloat16()], [lib.tensor(True), lib.tensor(2)], [lib.tensor(1, dtype=lib.int32)] * 2, [lib.tensor(1, dtype=lib.uint8), 3], [lib.tensor(1 + 2j), 2.0], [lib.tensor(1 + 0j), 2.0], [np.complex64(1 + 2j), 2.0],
            [lib.ones(1, requires_grad=True), zero], [np.float32(1), zero], [np.float32(1), 2.0], [np.ones(2), np.ones(2)], (one, one), list(lib.arange(3.0)), list(lib.arange(3.0).reshape(3, 1)), list(lib.arange(4.0).reshape(2, 2)), [None, 1.0]]

    def made(lib, data, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                out = lib.tensor(data, **kwargs)
            except Exception as error:
                return type(error).__name__, str(error).splitlines()[0][:60]
        return str(out.dtype), tuple(out.shape), out.tolist(), out.requires_grad

    for theirs, mine in zip(lists(torch), lists(ours)):
        assert made(ours, mine) == made(torch, theirs)
        for dtype in ("float64", "float16", "complex64", "int64", "bool"):
            if not any(v is None for v in theirs):
                assert made(ours, mine, dtype=getattr(ours, dtype)) == made(torch, theirs, dtype=getattr(torch, dtype)), (theirs, dtype)


@pytest.mark.needs("torch")
def test_memory_formats():
    "Copies in another memory format have PyTorch's strides, and are made when PyTorch makes them."
    import torch

    def facts(lib):
        x = lib.arange(48.0).reshape(2, 3, 2, 4)
        y = x.contiguous(memory_format=lib.channels_last)
        for t in (x, y, x.transpose(1, 2)):
            for form in (lib.contiguous_format, lib.channels_last):
                for made in (t.contiguous(memory_format=form), t.clone(memory_format=form), t.to(memory_format=form), t.float(memory_format=form), t.double(memory_format=form)):
                    yield made is t, made.stride(), made.is_contiguous(memory_format=form), made.sum().item()
        for refused in (lambda: lib.ones(3).contiguous(memory_format=lib.channels_last), lambda: x.mT.contiguous(memory_format=lib.preserve_format)):
            with pytest.raises(RuntimeError) as error:
                refused()
            yield str(error.value).splitlines()[0]

    assert list(facts(ours)) == list(facts(torch))


@pytest.mark.needs("torch")
def test_writes_into_one_of_several_results_are_noticed():
    "A backward pass that needs a result of an operation with several is refused once it was overwritten, and only then."
    import torch

    ways = dict(max_pool=lambda lib, x: lib.nn.functional.max_pool2d(x.reshape(1, 1, 4, 4), 2, return_indices=True), adaptive=lambda lib, x: lib.nn.functional.adaptive_max_pool2d(x.reshape(1, 1, 4, 4), 2, return_indices=True), svd=lambda lib, x: lib.linalg.svd(x), qr=lambda lib, x: lib.linalg.qr(x), eigh=lambda lib, x: lib.linalg.eigh(x + x.mT))
    for name, way in ways.items():
        for number in range(2):
            fates = []
            for lib in (torch, ours):
                x = lib.from_numpy(np.random.default_rng(0).standard_normal((4, 4))).requires_grad_()
                results = way(lib, x)
                results[number].mul_(1)
                try:
                    sum(r.abs().sum() for r in results if r.requires_grad).backward()
                    fates.append("fine")
                except RuntimeError as error:
                    fates.append(str(error)[:60])
            assert fates[0] == fates[1], (name, number)


@pytest.mark.needs("torch")
def test_comparisons_in_place_go_on_with_a_gradient_of_zero():
    import torch

    for name in ("eq_", "ne_", "lt_", "le_", "gt_", "ge_", "logical_and_", "logical_or_", "logical_xor_", "logical_not_"):
        for other in (1.5, "tensor"):
            seen = []
            for lib in (torch, ours):
                x = lib.tensor([1.0, 2.0], requires_grad=True)
                y = x * 1
                given = () if name == "logical_not_" else (lib.tensor([1.0, 1.0]),) if other == "tensor" or name.startswith("logical") else (other,)
                getattr(y, name)(*given)
                y.sum().backward()
                seen.append((y.tolist(), y.grad_fn.name(), x.grad.tolist()))
            assert seen[0] == seen[1], name


def test_attributes_that_were_not_looked_at():
    "Attributes of the class are defined once, and tell what is so."
    x = ours.ones(3)
    assert x.is_cpu and not x.is_cuda and not x.is_pinned()
    with pytest.raises(TypeError, match="defined twice"):
        from autograd_nb.forms import hang

        hang(ours.Tensor, "exp", lambda self: self)
    infinite = ours.complex(ours.tensor([float("inf")]), ours.tensor([1.0]))
    assert infinite.real.item() == float("inf") and infinite.imag.item() == 1
    assert len(ours.histogram(ours.arange(10.0)).hist) == 100
