"""Recurrent layers as single operations: the same numbers, gradients and second derivatives as the steps that define them, whoever computes them and whatever is asked of them."""

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.nn.modules import rnn
from autograd_nb.ops import compiled
from autograd_nb.utils.capture import capture

KINDS = [(kind, reverse, bias, dtype) for kind in ("LSTM", "GRU") for reverse in (False, True) for bias in (True, False) for dtype in (torch.float32, torch.float64)]


def layer(kind, bias, dtype, steps=6, batch=3, features=4, hidden=5):
    torch.manual_seed(0)
    rows = rnn.GATES[kind] * hidden
    x = torch.randn(steps, batch, features, dtype=dtype)
    state = [torch.randn(batch, hidden, dtype=dtype) for _ in range(2 if kind == "LSTM" else 1)]
    weights = [torch.randn(rows, features, dtype=dtype), torch.randn(rows, hidden, dtype=dtype), *(torch.randn(rows, dtype=dtype) if bias else None for _ in range(2))]
    return x, state, weights


def run(kind, x, state, weights, reverse, whole):
    said, last = rnn.run_layer(kind, x, tuple(state), [*weights, None], reverse, whole=whole)
    return [said, *last]


def agree(found, expected, dtype):
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().numpy(), b.detach().numpy()
        np.testing.assert_allclose(a, b, rtol=0, atol=(1e-10 if dtype is torch.float64 else 2e-5) * max(1, np.abs(b).max()))


@pytest.mark.parametrize("sizes", [dict(), dict(steps=3, batch=20, hidden=40), dict(steps=1, batch=1)], ids=str)
@pytest.mark.parametrize("kind,reverse,bias,dtype", KINDS)
def test_whole_layers_are_what_their_steps_are(kind, reverse, bias, dtype, sizes):
    x, state, weights = layer(kind, bias, dtype, **sizes)
    leaves = [t.requires_grad_() for t in (x, *state, *weights) if t is not None]
    found, first, second = [], [], []
    for whole in (True, False):
        out = run(kind, x, state, weights, reverse, whole)
        assert (type(out[0].grad_fn).__name__ == f"{kind}LayerBackward") == whole
        found.append(out)
        total = sum((o * torch.cos(o)).sum() for o in out)
        first.append(torch.autograd.grad(total, leaves, retain_graph=True))
        again = torch.autograd.grad(total, leaves, create_graph=True)
        agree(again, first[-1], dtype)
        second.append(torch.autograd.grad(sum((g**2).sum() for g in again), leaves))
    for a, b in (found, first, second):
        agree(a, b, dtype)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_loops_and_arrays_agree(kind):
    x, state, weights = layer(kind, True, torch.float32, steps=9, batch=7, hidden=33)
    leaves = [t.requires_grad_() for t in (x, *state, *weights)]
    found = []
    for context in (compiled.warm_up, compiled.plain):
        entered = context()
        with entered if hasattr(entered, "__enter__") else torch.enable_grad():
            out = run(kind, 3 * x, state, weights, False, True)
            found.append([*out, *torch.autograd.grad(sum((o**3).sum() for o in out), leaves)])
    agree(found[0], found[1], torch.float32)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_only_some_outputs_and_inputs(kind):
    "Gradients flow from the last memories alone, and to the weights alone."
    torch.manual_seed(0)
    net, x = getattr(torch.nn, kind)(4, 5, 2, batch_first=True, bidirectional=True), torch.randn(3, 6, 4)
    found = []
    for whole in (True, False):
        out, last = net(x) if whole else stepwise(net, x)
        h = last[0] if kind == "LSTM" else last
        found.append(torch.autograd.grad(h[-1].sum() + out.detach().sum(), list(net.parameters()), allow_unused=True))
    for a, b in zip(*found):
        assert (a is None) == (b is None)
        if a is not None:
            agree([a], [b], torch.float32)


def stepwise(net, *args):
    "The layer, step by step: anomaly detection looks at every operation."
    with torch.autograd.set_detect_anomaly(True):
        return net(*args)


def test_outputs_belong_to_the_caller():
    "What a layer says may be overwritten; the graph may be kept and used twice."
    torch.manual_seed(0)
    net, x = torch.nn.LSTM(4, 5), torch.randn(6, 3, 4)
    out, (h, c) = net(x)
    expected = torch.autograd.grad(2 * out.sum() + 2 * h.sum(), list(net.parameters()), retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(2 * out.sum() + 2 * h.sum(), list(net.parameters())), expected))
    out, (h, c) = net(x)
    out.mul_(2)
    h.mul_(2)
    agree(torch.autograd.grad(out.sum() + h.sum(), list(net.parameters())), expected, torch.float32)
    out, _ = net(x)
    with torch.no_grad():
        net.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_other_modes_go_step_by_step():
    torch.manual_seed(0)
    net, x = torch.nn.GRU(4, 5), torch.randn(6, 3, 4)
    plain = net(x)[0]
    with torch.no_grad():
        agree([net(x)[0]], [plain], torch.float32)
    with torch.inference_mode():
        assert net(x)[0].is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.nn.LSTM(4, 5)(x)[0].dtype is torch.bfloat16
    batched = torch.func.vmap(lambda v: net(v[:, None])[0][:, 0], in_dims=1, out_dims=1)(x)
    agree([batched], [plain], torch.float32)
    value, slope = torch.func.jvp(lambda v: net(v)[0], (x,), (torch.ones_like(x),))
    agree([value], [plain], torch.float32)
    h = 1e-3
    np.testing.assert_allclose(slope.detach().numpy(), ((net(x + h)[0] - net(x - h)[0]) / (2 * h)).detach().numpy(), atol=2e-3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        agree([net(x)[0]], [plain], torch.float32)
    assert torch.autograd.gradcheck(lambda v, w: torch.func.functional_call(net.double(), {"weight_hh_l0": w}, (v,))[0], (x.double().requires_grad_(), net.weight_hh_l0.detach().double().requires_grad_()))


def trained(kind, wrap):
    "The losses and weights of a small network, and what its step was made into."
    torch.manual_seed(0)
    net, x = getattr(torch.nn, kind)(4, 5, 2, bidirectional=True), torch.randn(6, 3, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        out, last = net(x)
        loss = (out**2).sum() + sum(h.sum() for h in (last if kind == "LSTM" else [last]))
        loss.backward()
        optimizer.step()
        return loss

    made = wrap(step)
    losses = [made(x * k).item() for k in (1.0, 0.5, 2.0, -1.0, 0.25)]
    return losses, [p.detach().numpy() for p in net.parameters()], made


@pytest.mark.parametrize("compiling", [capture, torch.compile])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_captured_layers_are_one_line_and_train_the_same(kind, compiling):
    "Whole sequences, forth and back, through both directions of two layers."
    losses, weights, _ = trained(kind, lambda step: step)
    found, ours, made = trained(kind, compiling)
    program = made.program() if callable(made.program) else made.program
    assert f"{kind.lower()}_sequence_back" in program
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for a, b in zip(ours, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad], ids=lambda m: m.__name__)
@pytest.mark.parametrize("kind,reverse,bias,dtype", KINDS)
def test_layers_without_a_node_say_the_same(kind, reverse, bias, dtype, mode):
    x, state, weights = layer(kind, bias, dtype)
    leaf = weights[0].requires_grad_()
    recorded = run(kind, x, state, weights, reverse, True)
    leaf.requires_grad_(mode is not torch.enable_grad)  # nothing asks for a gradient
    with mode():
        found = run(kind, x, state, weights, reverse, True)
    for a, b in zip(found, recorded, strict=True):
        assert b.requires_grad and not a.requires_grad and a.is_leaf
        assert a.is_inference() == (mode is torch.inference_mode)
        assert np.array_equal(a.numpy(), b.detach().numpy())


CHECKED = [
    "LSTM(3, 4, proj_size=2).check_forward_args(o(5, 2, 3), (o(1, 2, 3), o(1, 2, 4)), None)",
    "LSTM(3, 4, proj_size=2).check_forward_args(o(5, 2, 3), (o(1, 2, 2), o(1, 2, 2)), None)",
    "LSTM(3, 4, proj_size=2).check_forward_args(o(5, 2, 3), (o(1, 2, 2), o(1, 2, 4)), None)",
    "LSTM(3, 4, 2, bidirectional=True, proj_size=2).get_expected_cell_size(o(5, 2, 3), None)",
    "GRU(3, 4).check_forward_args(o(5, 2, 3), o(1, 2, 3), None)",
    "GRU(3, 4).check_forward_args(o(5, 2, 2), o(1, 2, 4), None)",
    "RNN(3, 4, 2, batch_first=True).get_expected_hidden_size(o(5, 2, 3), None)",
    "RNN(3, 4).check_hidden_size(o(1, 2, 3), (1, 2, 4))",
    "RNN(3, 4).check_hidden_size(o(1, 2, 4), (1, 2, 4), 'wanted {}, got {}')",
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("expression", CHECKED)
def test_sizes_that_a_layer_expects(expression):
    import torch as theirs

    def said(t):
        try:
            return eval(expression, {**vars(t.nn), "o": t.ones})
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    assert said(theirs) == said(torch)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [[3, 2, 1], [2, 3, 1]], ids=["sorted", "unsorted"])
def test_what_comes_out_of_packed_sequences_lies_as_in_pytorch(lengths, batch_first):
    "A view of it that PyTorch allows is allowed, and one that it refuses is refused."
    import torch as theirs

    def told(t):
        rnn = t.nn.utils.rnn
        packed = rnn.pack_padded_sequence(t.ones(3, 3, 3), lengths, batch_first, enforce_sorted=lengths[0] == 3)
        y, h = t.nn.GRU(3, 4, batch_first=batch_first)(packed)
        y, n = rnn.pad_packed_sequence(y, batch_first)
        return y.stride(), y.is_contiguous(), h.stride(), h.grad_fn.name(), t.nn.Linear(4, 2)(y).grad_fn.name(), n.tolist()

    assert told(torch) == told(theirs)
