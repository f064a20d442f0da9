"""Functions without a derivative: Bessel and Airy functions against exact series and PyTorch, packed QR factors, segments and histograms of points against PyTorch."""

import math
from fractions import Fraction

import numpy as np
import pytest
from _compare import close

import autograd_nb as ours
from autograd_nb.ops.bessel import UNDIFFERENTIATED, airy, bessel, modified_second

TORCH = pytest.mark.needs("torch")


def exact_bessel(n, x):
    "J_n(x) by its series in exact fractions."
    q, term, total = -((Fraction(x) / 2) ** 2), Fraction(1), Fraction(0)
    for k in range(120):
        total += term / (math.factorial(k) * math.factorial(k + n))
        term *= q
    return float(total * (Fraction(x) / 2) ** n)


@pytest.mark.parametrize("n", [0, 1])
def test_first_kind_is_exact(n):
    places = [1e-20, 0.5, 1.99, 2.01, 5.0, 5.5179771, 12.0, 24.99, 25.01, 40.0]
    np.testing.assert_allclose(bessel(np.array(places), n), [exact_bessel(n, x) for x in places], rtol=1e-12, atol=1e-15)


def test_second_kind_fits_the_first():
    x = np.concatenate([10.0 ** np.linspace(-8, 0, 50), np.linspace(1, 80, 500)])
    np.testing.assert_allclose(bessel(x, 1) * bessel(x, 0, True) - bessel(x, 0) * bessel(x, 1, True), 2 / (math.pi * x), rtol=2e-13)
    i0, i1 = (np.exp(np.abs(x)) * np.vectorize(float)(ours.special.__dict__[f"i{n}e"](ours.tensor(x)).numpy()) for n in (0, 1))
    k0, k1 = modified_second(x, 0, False), modified_second(x, 1, False)
    np.testing.assert_allclose(i0 * k1 + i1 * k0, 1 / x, rtol=1e-13)


def test_airy_solves_its_equation():
    x, h = np.linspace(-20, 8, 300), 1e-3
    second = (airy(x + h) - 2 * airy(x) + airy(x - h)) / h**2
    np.testing.assert_allclose(second, x * airy(x), atol=3e-4)
    np.testing.assert_allclose(airy(np.array([-2.338107410459767, -1.0, 0.0, 3.0])), [0, 0.5355608832923522, 0.3550280538878172, 0.006591139357460719], rtol=1e-13, atol=1e-15)


@TORCH
@pytest.mark.parametrize("name", UNDIFFERENTIATED)
def test_like_pytorch(name):
    "PyTorch's own values are right to about six digits."
    import torch

    x = np.concatenate([np.linspace(-30, 60, 500), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, 700.0]])
    expected, found = (getattr(lib.special, name)(lib.tensor(x)) for lib in (torch, ours))
    close(found, expected, rtol=1e-5, atol=2e-5)
    for values in ([1, 2, 3], [True]):
        assert str(getattr(ours.special, name)(ours.tensor(values)).dtype).replace("autograd_nb", "torch") == str(getattr(torch.special, name)(torch.tensor(values)).dtype)
    word = "x" if name.startswith(("airy", "scaled", "spherical")) else "input"
    for lib in (torch, ours):
        assert not getattr(lib.special, name)(lib.ones(2, requires_grad=True)).requires_grad
        with pytest.raises(NotImplementedError, match=f'"{name}_cpu" not implemented for \'Half\''):
            getattr(lib.special, name)(lib.ones(2, dtype=lib.float16))
        with pytest.raises(TypeError, match=rf"special_{name}\(\): argument '{word}'"):
            getattr(lib.special, name)(1.0)


@TORCH
def test_polynomials_have_no_derivative():
    import torch

    for name in (n for n in dir(torch.special) if "polynomial" in n):
        found = [getattr(lib.special, name)(lib.tensor([0.3, 0.6], requires_grad=True), lib.tensor([2.0, 3.0])) for lib in (ours, torch)]
        close(*found)
        assert [f.requires_grad for f in found] == [False, False]


def attempts(lib):
    "Calls whose results, or errors, are compared."
    x = lib.tensor(np.random.default_rng(0).uniform(size=(6, 2)))
    line, three = lib.arange(6.0), lib.tensor([2, 0, 4])
    yield lambda: lib.histogramdd(x, [2, 3])
    yield lambda: lib.histogramdd(x, 4, weight=lib.arange(6.0, dtype=lib.float64), density=True)
    yield lambda: lib.histogramdd(x, [3, 2], range=[0.0, 1.0, 0.2, 0.8])
    yield lambda: lib.histogramdd(x, [lib.tensor([0.0, 0.3, 1.0], dtype=lib.float64)] * 2)
    yield lambda: lib.histogramdd(x, [2])
    yield lambda: lib.histogramdd(x[0], [2, 3])
    yield lambda: lib.histogramdd(x, [2, 3], range=[0.0, 1.0])
    for reduce in ("sum", "mean", "prod", "max", "min"):
        yield lambda r=reduce: lib.segment_reduce(line, r, lengths=three)
        yield lambda r=reduce: lib.segment_reduce(line, r, offsets=lib.tensor([0, 1, 1, 6]), initial=1)
        yield lambda r=reduce: lib.segment_reduce(x.float(), r, lengths=lib.tensor([[1, 1]] * 6), axis=1)
    yield lambda: lib.segment_reduce(line, "sum")
    yield lambda: lib.segment_reduce(line, "median", lengths=three)
    yield lambda: lib.segment_reduce(line, "sum", lengths=lib.tensor([2]))
    yield lambda: lib.segment_reduce(line, "sum", lengths=lib.tensor([7, -1]))
    yield lambda: lib.geqrf(lib.ones(3))
    yield lambda: lib.geqrf(lib.ones(2, 2, dtype=lib.int64))
    yield lambda: lib.ormqr(lib.ones(3, 2), lib.ones(2), lib.ones(4, 2))
    yield lambda: lib.ormqr(lib.ones(3, 2), lib.ones(3), lib.ones(3, 2))


@TORCH
def test_segments_histograms_and_factors():
    import torch

    for number, (call, theirs) in enumerate(zip(attempts(ours), attempts(torch))):
        try:
            expected = theirs()
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                call()
            assert str(caught.value)[:40] == str(error)[:40], number
            continue
        found, tensors = call(), lambda r: [t for part in r for t in ([part] if hasattr(part, "detach") else part)]
        for a, b in zip(tensors(found), tensors(expected)) if isinstance(expected, tuple) else [(found, expected)]:
            close(a, b)


@TORCH
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_packed_factors(kind, left, transpose):
    import torch

    rng = np.random.default_rng(1)
    a, c = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in ((2, 4, 3), (2, 4, 4)))
    results = []
    for lib in (torch, ours):
        dtype = getattr(lib, kind)
        A = lib.tensor(a if kind == "complex128" else a.real).to(dtype)
        packed, tau = lib.geqrf(A)
        with pytest.raises((NotImplementedError, RuntimeError), match="the derivative for 'geqrf' is not implemented|geqrf does not support automatic differentiation"):
            lib.geqrf(A.requires_grad_())[0].sum().backward()
        leaves = [v.detach().requires_grad_() for v in (packed, tau, lib.tensor(c if kind == "complex128" else c.real).to(dtype))]
        out = lib.ormqr(*leaves, left=left, transpose=transpose)
        results.append([packed, tau, out, *lib.autograd.grad((out * out).abs().sum(), leaves)])
    for x, y in zip(*results):
        close(x, y, rtol=1e-8, atol=1e-9)


@TORCH
def test_low_rank():
    rng = np.random.default_rng(2)
    exact = ours.tensor(rng.standard_normal((7, 2)) @ rng.standard_normal((2, 9)))
    U, S, V = ours.svd_lowrank(exact, q=3)
    close(U @ ours.diag(S) @ V.mT, exact, atol=1e-9)
    U, S, V = ours.pca_lowrank(exact, q=3)
    close(U @ ours.diag(S) @ V.mT, exact - exact.mean(-2, True), atol=1e-9)
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than min"):
        ours.pca_lowrank(exact, q=8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["i0", "i1", "i0e", "i1e"])
def test_loops_give_what_the_definitions_give(name, dtype):
    from autograd_nb.ops.compiled import FAST_KERNELS, definition

    x = np.array([*np.linspace(-50, 50, 99), 0.0, -0.0, 29.999, 30.001, 800.0, 5e4, np.inf, -np.inf, np.nan], dtype)
    with np.errstate(all="ignore"): have, want = FAST_KERNELS[name]["kernel"](x), definition(name)(x)
    assert have.dtype == want.dtype and np.array_equal(np.signbit(have), np.signbit(want))
    np.testing.assert_allclose(have, want, rtol=1e-13 if dtype == "float64" else 1e-6)
