"""Every differentiable operation in PyTorch's own table, captured: replayed with other numbers it gives what it gives otherwise, or it is refused; it is never wrong."""

import warnings

import _op_samples
import pytest
from test_op_samples import NOT_COMPARED

import autograd_nb as torch
from autograd_nb.graph.pytree import tree_flatten
from autograd_nb.utils.capture import CaptureError, capture

pytestmark = [pytest.mark.needs("torch")]

# What depends on the numbers in a way that no list of operations tells: sizes of results, draws, paths.
REFUSED = {
    "_segment_reduce:lengths",
    "_segment_reduce:offsets",
    "bernoulli",
    "cov",
    "gradient",
    "index_put",
    "index_reduce:prod",
    "linalg.pinv",
    "masked_select",
    "narrow",
    "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.ctc_loss",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.rrelu",
    "normal",
    "normal:number_mean",
    "pca_lowrank",
    "repeat_interleave",
    "scatter_reduce:prod",
    "svd_lowrank",
    "take_along_dim",
    "tensor_split",
}


PARTS = 16


def operations(part):
    "Every sixteenth of the operations that we have: title, entry of the table, our function."
    import torch as original

    for title, info in [*_op_samples.table().items()][part::PARTS]:
        if title in NOT_COMPARED or not info.supports_autograd or original.float64 not in info.dtypes:
            continue
        try:
            yield title, info, _op_samples.counterpart(info, torch)
        except AttributeError:
            continue


def differentiable(values):
    return [t for t in tree_flatten(values)[0] if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()]


def step_of(function, given, leaves, second):
    "A step that brings gradients to the leaves: of the results, or of the squares of their gradients."

    def step():
        outs = differentiable(function(*given[0], **given[1]))
        loss = sum((o * o).sum() + o.sum() for o in outs)
        if second:
            grads = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
            grads = [g for g in grads if g is not None and g.requires_grad]
            loss = sum((g * g).sum() for g in grads) if grads else loss
        for x in leaves:
            x.grad = None
        loss.backward()
        return loss

    return step


def outcome(step, leaves):
    torch.manual_seed(1)
    loss = step().detach().clone()
    return [loss, *[None if x.grad is None else x.grad.clone() for x in leaves]]


def same(one, other):
    if one is None or other is None:
        return one is other
    return torch.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True)


def ready(function, sample, second):
    "A step for a sample and its leaves; None for a sample that we do not have, that has no gradient, or that is an error."
    convert = _op_samples.Converter(torch)
    try:
        given = [convert(sample.input), *map(convert, sample.args)], {k: convert(v) for k, v in sample.kwargs.items()}
        leaves = differentiable(given)
        step = step_of(function, given, leaves, second)
        outcome(step, leaves)
    except Exception:
        return None
    return step, leaves


def chosen(info):
    "The first, the middle and the last of an operation's samples."
    import torch as original

    original.manual_seed(1)
    samples = list(info.sample_inputs("cpu", original.float64, requires_grad=True))
    return [samples[i] for i in sorted({0, len(samples) // 2, len(samples) - 1})]


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("part", range(PARTS))
def test_replayed_with_other_numbers(part, second):
    compared = 0
    with warnings.catch_warnings(action="ignore"):
        for title, info, function in operations(part):
            for sample in chosen(info):
                made = ready(function, sample, second)
                if made is None:
                    continue
                step, leaves = made
                captured = capture(step)
                try:
                    captured()
                    captured()
                except CaptureError as error:
                    assert title in REFUSED, f"{title}: {error}"
                    continue
                for x in leaves:
                    x.data.mul_(0.93)
                found, expected = outcome(captured, leaves), outcome(step, leaves)
                assert all(map(same, found, expected)), f"{title}: {sample}"
                compared += 1
    assert compared > 40
