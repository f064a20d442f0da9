"""Choices by masks, masks of dropout and the gradients of padding: to the bit what the plain ways give."""

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.arrays import random
from autograd_nb.arrays.numpy_backend import where
from autograd_nb.nn import functional as F
from autograd_nb.ops import windows

ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, 3.5, -7.25])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["plain", "turned", "broadcast", "small"])
def test_choices_are_numpys_to_the_bit(dtype, layout):
    rng = np.random.default_rng(0)
    shape = (4, 8) if layout == "small" else (64, 80)
    x, y = (rng.choice(ODD, shape).astype(dtype) for _ in range(2))
    mask = rng.random(shape) < 0.6
    if layout == "turned":
        x, mask = x.T.copy().T, mask[::-1]
    if layout == "broadcast":
        x, y = x[:1], y[:, :1]
    kind = x.dtype.type
    others = [y, 0.0, -0.0, 2.5, float("inf"), float("nan"), kind(0), kind(-1e9), np.array(1.5, dtype), 3, np.float64(0.1), np.zeros(shape, np.int64)]
    for other in others:
        for left, right in ((x, other), (other, x)):
            found, wanted = where(mask, left, right), np.where(mask, left, right)
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            assert found.tobytes() == wanted.tobytes()
    assert where(mask, 1.0, 0.0).tobytes() == np.where(mask, 1.0, 0.0).tobytes()
    assert all((a == b).all() for a, b in zip(where(mask), np.where(mask), strict=True))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("n", [3, 16, 1000, 40_000])
@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.5, 1.0])
def test_coins_are_comparisons_of_uniform_numbers(n, p, ordered, monkeypatch):
    "And the stream goes on where it would; also where a compiler puts the first word below the second."
    monkeypatch.setattr(random, "_FIRST_ON_TOP", ordered and random._FIRST_ON_TOP)
    one, two = random.Generator().manual_seed(5), random.Generator().manual_seed(5)
    np.testing.assert_array_equal(one.coins((n,), p), two.uniform((n,), np.dtype("f8")) < p)
    assert one.uniform((4,)).tobytes() == two.uniform((4,)).tobytes()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_draws_what_pytorch_draws(dtype):
    import torch as real

    found = []
    for engine in (torch, real):
        engine.manual_seed(3)
        x = engine.ones(50, 700, dtype=getattr(engine, dtype), requires_grad=True)
        y = engine.nn.functional.dropout(x, 0.3)
        y.sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy(), engine.rand(5).numpy()))
    for ours, theirs in zip(*found, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mode, pads", [("reflect", (3, 2)), ("reflect", (0, 5)), ("reflect", (2, 1, 4, 0)), ("replicate", (3, 2)), ("replicate", (9, 0, 1, 7)), ("replicate", (-1, 2)),
                                        ("circular", (3, 2)), ("circular", (6, 6)), ("circular", (-1, 2, 1, 1))])
def test_gradients_of_padding_are_pytorchs(mode, pads):
    import torch as real

    x = np.random.default_rng(1).standard_normal((2, 3, 6, 6) if len(pads) == 4 else (2, 3, 6))
    found = []
    for engine in (torch, real):
        leaf = engine.tensor(x, requires_grad=True)
        out = engine.nn.functional.pad(leaf, pads, mode=mode)
        (out * out.detach().cos()).sum().backward()
        found.append(leaf.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_runs_cover_each_place_once(mode):
    for n in (1, 2, 3, 7):
        for before in range(n):
            for after in range(n):
                places = windows.places(n, before, after, mode)
                numbered = np.full(len(places), -1)
                for shown, source in windows.runs_of(n, before, after, mode):
                    numbered[shown] = np.arange(n)[source]
                np.testing.assert_array_equal(numbered, places)


def test_masks_choose_without_a_branch_in_programs():
    "`masked_fill` and `hardtanh` on numbers that are not finite."
    x = torch.tensor(np.resize(ODD.astype("f4"), 4096), requires_grad=True)
    mask = torch.tensor(np.random.default_rng(2).random(4096) < 0.5)
    y = x.masked_fill(mask, float("-inf"))
    assert y.detach().numpy().tobytes() == np.where(mask.numpy(), np.float32("-inf"), x.detach().numpy()).tobytes()
    y.backward(torch.full((4096,), float("inf")))
    np.testing.assert_array_equal(x.grad.numpy(), np.where(mask.numpy(), 0, np.inf))
    x.grad = None
    F.hardtanh(x, -3.0, 3.0).backward(torch.full((4096,), float("nan")))
    inside = (x.detach().numpy() > -3) & (x.detach().numpy() < 3)
    np.testing.assert_array_equal(np.isnan(x.grad.numpy()), inside)
