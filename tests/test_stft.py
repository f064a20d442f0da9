"""The short-time Fourier transform and its inverse: values, gradients and errors as PyTorch's."""

import itertools

import numpy as np
import pytest

import autograd_nb

CASES = list(itertools.product([(60,), (2, 60)], [True, False], [True, False], [None, True, False], [(None, None), (3, 10)], [False, True]))


def both(function, *arrays):
    "For each library the result, and the gradients of a fixed mixture of its absolute values; or the error."
    import torch

    found = []
    for lib in (autograd_nb, torch):
        xs = [lib.from_numpy(a.copy()).requires_grad_() for a in arrays]
        try:
            y = function(lib, *xs)
        except Exception as error:
            found.append((type(error).__name__, str(error).splitlines()[0][:110]))
            continue
        mix = lib.from_numpy(np.random.default_rng(1).standard_normal(tuple(y.shape)))
        gradients = lib.autograd.grad(((y.abs() if y.is_complex() else y) * mix).sum(), xs)
        found.append([t.detach().numpy() for t in (y, *gradients)])
    return found


def same(ours, theirs):
    assert type(ours) is type(theirs), (ours, theirs)
    if isinstance(ours, tuple):
        assert ours == theirs
        return
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("shape, center, normalized, onesided, sizes, windowed", CASES)
def test_stft_and_istft_are_pytorchs(shape, center, normalized, onesided, sizes, windowed):
    import torch

    hop, length = sizes
    x = np.random.default_rng(0).standard_normal(shape)
    window = [np.hanning(length or 16) + 0.1] if windowed else []
    options = dict(center=center, normalized=normalized, onesided=onesided)
    same(*both(lambda lib, x, w=None: lib.stft(x, 16, hop, length, w, return_complex=True, **options), x, *window))
    spectrum = torch.stft(torch.from_numpy(x), 16, hop, length, *map(torch.from_numpy, window), return_complex=True, **options).numpy()
    for samples in (None, 50, 70):
        same(*both(lambda lib, s, w=None, n=samples: lib.istft(s, 16, hop, length, w, length=n, **options), spectrum, *window))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", [
    lambda lib, x: lib.stft(x, 16),
    lambda lib, x: lib.stft(x, 16, return_complex=False),
    lambda lib, x: lib.stft(x, 160, return_complex=True, center=False),
    lambda lib, x: lib.stft(x, 16, -1, return_complex=True),
    lambda lib, x: lib.stft(x, 16, 4, 20, return_complex=True),
    lambda lib, x: lib.stft(x, 16, return_complex=True, window=lib.ones(9)),
    lambda lib, x: lib.istft(x.reshape(6, 10), 16),
    lambda lib, x: x.stft(16, return_complex=True),
])
def test_calls_and_errors_are_pytorchs(call):
    same(*both(call, np.random.default_rng(0).standard_normal(60)))
    same(*both(call, np.random.default_rng(0).standard_normal(60) * (1 + 2j)))


def test_stft_inside_vmap():
    x = autograd_nb.from_numpy(np.random.default_rng(0).standard_normal((3, 60)))
    f = lambda x: autograd_nb.stft(x, 16, window=autograd_nb.hann_window(16, dtype=autograd_nb.float64), return_complex=True)
    np.testing.assert_allclose(autograd_nb.func.vmap(f)(x).numpy(), f(x).numpy(), atol=1e-12)
