"""What small programs are made of, fast and right: operations with several results or any number of inputs, cells, sums over short stretches, gather and scatter, CTC, gradients of given inputs."""

import numpy as np
import pytest

import autograd_nb as torch
import autograd_nb.nn.functional as F
from autograd_nb import nn
from autograd_nb.arrays.numpy_backend import add_up
from autograd_nb.graph.apply import apply
from autograd_nb.nn.ctc import alignments
from autograd_nb.ops.gathering import at, counted
from autograd_nb.ops.indexing import scatter_into


@pytest.mark.parametrize("shape", [(600,), (300, 3), (40, 5, 7), (8, 10, 9, 4), (2, 1, 700), (1, 1024)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums(shape, dtype, keepdims):
    rng = np.random.default_rng(0)
    for order in {tuple(range(len(shape))), tuple(reversed(range(len(shape)))), tuple(rng.permutation(len(shape)).tolist())}:
        x = rng.standard_normal(shape).astype(dtype).transpose(order)
        for first in range(x.ndim):
            for last in range(first + 1, x.ndim + 1):
                axis = tuple(range(first, last))
                out = add_up(x, axis, keepdims)
                wanted = np.add.reduce(x.astype(np.float64), axis=axis, keepdims=keepdims)
                assert out.shape == wanted.shape and out.dtype == dtype
                np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4 if dtype is np.float32 else 1e-10)


def test_sums_of_what_is_not_finite():
    x = np.ones((30, 40), np.float32)
    x[3, 5], x[4, 6], x[5, 7], x[5, 8] = np.nan, np.inf, np.inf, -np.inf
    np.testing.assert_array_equal(add_up(x, (1,)), x.sum(1))
    np.testing.assert_array_equal(add_up(x, (0,)), x.sum(0))


@pytest.mark.parametrize("shape,taken,dim", [((4, 5), (4, 3), 1), ((4, 5), (2, 5), 0), ((4, 5), (1, 2), 1), ((3, 4, 5), (3, 2, 5), 1), ((3, 4, 5), (2, 7, 3), -2), ((6,), (9,), 0)])
def test_counted_places(shape, taken, dim):
    rng = np.random.default_rng(1)
    x, index = rng.standard_normal(shape), rng.integers(0, shape[dim], taken)
    np.testing.assert_array_equal(x.reshape(-1)[counted(index, dim, shape)], x[at(index, dim)])
    np.testing.assert_array_equal(x.reshape(-1)[counted(index.astype(np.int32), dim, shape)], x[at(index, dim)])


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.complex128])
def test_scatter(dim, count, dtype):
    rng = np.random.default_rng(2)
    out = (rng.standard_normal((6, 7, 8)) * 9).astype(dtype)
    where = (slice(None),) * dim + (rng.integers(-out.shape[dim], out.shape[dim], count),)
    values = (rng.standard_normal(out[where].shape) * 9).astype(dtype)
    wanted = out.copy()
    np.add.at(wanted, where, values)
    np.testing.assert_allclose(scatter_into(out, where, values), wanted, rtol=1e-5, atol=1e-5)
    for wrong in (out.shape[dim], -out.shape[dim] - 1):
        where[dim][0] = wrong
        with pytest.raises(IndexError):
            scatter_into(out, where, values)


@pytest.mark.parametrize("size", [(5, 20, 30), (4, 300, 400), (48, 60, 70), (3, 400, 300), (49, 100, 100), (7, 256, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_of_few_rows(size, bias):
    rows, inputs, outputs = size
    rng = np.random.default_rng(3)
    x, w, b = rng.standard_normal((rows, inputs)), rng.standard_normal((outputs, inputs)), rng.standard_normal(outputs)
    out = F.linear(torch.tensor(x), torch.tensor(w), torch.tensor(b) if bias else None)
    np.testing.assert_allclose(out.numpy(), x @ w.T + b * bias)
    assert out.is_contiguous()


def test_several_results_and_any_number_of_inputs_take_the_fast_path(monkeypatch):
    slow = []
    def watched(op, args, statics):
        slow.append(op.name)
        return apply(op, args, statics)
    monkeypatch.setattr("autograd_nb.graph.op.apply", watched)
    x = torch.randn(6, 4, requires_grad=True)
    a, b = x.chunk(2)
    rows = x.unbind(0)
    out = torch.cat([a, b, torch.stack(rows)]).sum() + torch.var_mean(x)[0] + nn.LSTMCell(4, 3)(x)[0].sum() + nn.GRUCell(4, 3)(x).sum()
    out.backward()
    assert (torch.arange(6) % 2 == 0).tolist() == [True, False] * 3
    assert not slow
    assert a.grad_fn.name() == "SplitBackward0" and a.grad_fn is b.grad_fn and not a.is_leaf
    with pytest.raises(RuntimeError, match="multiple views"):
        a.add_(1)
    with torch.no_grad():
        assert x.chunk(2)[0].grad_fn is None
    with torch.inference_mode():
        assert torch.cat([x, x]).is_inference() and not any(r.is_inference() for r in x.unbind(0))


@pytest.mark.parametrize("cell,memories", [(nn.LSTMCell, 2), (nn.GRUCell, 1)])
@pytest.mark.parametrize("batch", [2, 40])
def test_cells_alone_and_as_a_layer(cell, memories, batch):
    torch.manual_seed(0)
    one, layer = cell(5, 16), {nn.LSTMCell: nn.LSTM, nn.GRUCell: nn.GRU}[cell](5, 16)
    for name, p in one.named_parameters():
        getattr(layer, name + "_l0").data.copy_(p.data)
    x = torch.randn(4, batch, 5)
    state = tuple(torch.zeros(batch, 16) for _ in range(memories))
    said = []
    for step in x:
        new = one(step, state if memories == 2 else state[0])
        state = new if memories == 2 else (new,)
        said.append(state[0])
    whole = layer(x)[0]
    torch.testing.assert_close(torch.stack(said), whole)
    torch.stack(said).pow(2).sum().backward()
    whole.pow(2).sum().backward()
    for name, p in one.named_parameters():
        torch.testing.assert_close(p.grad, getattr(layer, name + "_l0").grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_ctc_at_once_and_by_operations(seed):
    rng = np.random.default_rng(seed)
    frames, batch, letters = int(rng.integers(1, 9)), int(rng.integers(1, 5)), rng.integers(0, 4, 5)[:4]
    letters = letters[:batch] if len(letters) >= batch else np.resize(letters, batch)
    long = rng.integers(0, frames + 1, batch)
    width = 2 * int(letters.max()) + 1
    leap = rng.random((batch, width)) < 0.4
    leap[:, :2] = False
    given = rng.standard_normal((frames, batch, width))
    from autograd_nb.nn.ctc import Alignments
    results = []
    for function in (Alignments.apply, alignments):
        said = torch.tensor(given, requires_grad=True)
        loss = function(said, leap, long, letters)
        likely = loss.detach() < 1e20
        (loss * likely).sum().backward()
        results.append((loss.detach(), said.grad))
    torch.testing.assert_close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])


def test_second_derivative_of_ctc():
    torch.manual_seed(1)
    x = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1, 2], [3, 3]])
    def loss(x): return F.ctc_loss(F.log_softmax(x, -1), targets, torch.tensor([5, 4]), torch.tensor([2, 2]))
    assert torch.autograd.gradcheck(loss, (x,)) and torch.autograd.gradgradcheck(loss, (x,))


def test_gradients_of_given_inputs():
    torch.manual_seed(2)
    x, w, b = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    def program():
        h = torch.tanh(x @ w + b)
        return h, (h * x).sum() + torch.cat([h, w]).pow(2).sum()
    _, loss = program()
    loss.backward()
    for wanted in ((x, w, b), (x,), (w,), (b, x)):
        for got, p in zip(torch.autograd.grad(program()[1], wanted), wanted, strict=True):
            torch.testing.assert_close(got, p.grad)
    h, loss = program()
    inner, outer = torch.autograd.grad(loss, (h, x))
    torch.testing.assert_close(outer, x.grad)
    torch.testing.assert_close(inner, x.detach() + 2 * h.detach())
