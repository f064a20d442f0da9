"""Triangular systems and LU factors by the routines that NumPy's library carries, compared with PyTorch."""

import itertools

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.arrays import lapack
from autograd_nb.ops import decompositions

pytestmark = pytest.mark.needs("torch")
DTYPES = ("float32", "float64", "complex64", "complex128")
reachable = pytest.mark.skipif(not lapack.ROUTINES, reason="this NumPy carries no LAPACK that can be called by name")


def numbers(seed, *shape, dtype):
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        found = found + 1j * rng.standard_normal(shape)
    return found.astype(dtype)


def tolerance(dtype):
    return dict(rtol=2e-4, atol=2e-4) if dtype in ("float32", "complex64") else dict(rtol=1e-9, atol=1e-9)


@reachable
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [((5, 5), (5, 2)), ((3, 4, 4), (4, 2)), ((4, 4), (2, 3, 4, 1)), ((2, 1, 20, 20), (3, 20, 6)), ((1, 1), (1, 1)), ((1, 1), (2, 1, 130)), ((3, 3), (3, 0)), ((0, 3, 3), (3, 2))])
def test_triangular_systems_in_every_layout(dtype, shapes):
    "Rows, columns, every second row, and reversed rows; either triangle; a diagonal of ones that is not stored; rubbish in the other triangle."
    import torch as real

    n = shapes[0][-1]
    plain = numbers(0, *shapes[0], dtype=dtype) + (3 + n**0.5) * np.eye(n, dtype=dtype)
    layouts = [plain, np.ascontiguousarray(plain.swapaxes(-1, -2)).swapaxes(-1, -2), np.repeat(plain, 2, -2)[..., ::2, :], plain[..., ::-1, ::-1][..., ::-1, ::-1]]
    b = numbers(1, *shapes[1], dtype=dtype)
    for a, upper, unit in itertools.product(layouts, (False, True), (False, True)):
        if unit and n > 5:
            a = a / 20  # substitution through ones grows
        found = lapack.triangular_solve(a, b, upper, unit)
        wanted = real.linalg.solve_triangular(real.tensor(a.copy()), real.tensor(b), upper=upper, unitriangular=unit).numpy()
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, **tolerance(dtype))


@pytest.mark.parametrize("k", [1, 3, 200])
@pytest.mark.parametrize("n", [3, 13])
@pytest.mark.parametrize("matrices, sides, expanded", [((5,), (4, 5), None), ((4, 1), (4, 5), None), ((), (2, 3), None), ((3,), (), (4, 3)), ((2, 1, 3), (4, 1), None), ((1,), (6,), None)])
def test_triangular_systems_of_matrices_that_are_seen_many_times(matrices, sides, expanded, n, k):
    "Broadcast by the call, or expanded before it; few and many columns; the other triangle is not read."
    import torch as real

    a = numbers(5, *matrices, n, n, dtype="float64") + (3 + n) * np.eye(n)
    b = numbers(6, *sides, n, k, dtype="float64")
    for upper in (False, True):
        solved = []
        for engine in (real, torch):
            m = engine.tensor(a)
            m = m if expanded is None else m.expand(*expanded, n, n)
            solved.append(engine.linalg.solve_triangular(m, engine.tensor(b), upper=upper))
        wanted, found = solved
        assert tuple(found.shape) == tuple(wanted.shape)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)


@reachable
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 6), (2, 3, 13, 13), (15, 4), (4, 15), (2, 0, 3), (3, 0), (2, 3, 0), (1, 1)])
def test_factors_are_pytorchs(dtype, shape):
    import torch as real

    x = numbers(2, *shape, dtype=dtype)
    order, low, up = decompositions.lu_arrays(x)
    p, wanted_low, wanted_up = real.linalg.lu(real.tensor(x))
    np.testing.assert_allclose(low, wanted_low.numpy(), **tolerance(dtype))
    np.testing.assert_allclose(up, wanted_up.numpy(), **tolerance(dtype))
    if x.size:
        np.testing.assert_array_equal(np.take_along_axis(x, order[..., None], -2), p.mT.numpy() @ x)


@reachable
def test_a_singular_matrix_factors_without_complaint():
    x = np.zeros((12, 12))
    x[0, 1] = x[3, 3] = 1
    order, low, up = decompositions.lu_arrays(x)
    np.testing.assert_array_equal(low @ up, x[order])
    assert decompositions.pivot(x) == 1


def test_a_zero_on_the_diagonal_divides_by_it():
    import torch as real

    a = np.tril(numbers(3, 13, 13, dtype="float64"))
    a[4, 4] = 0
    b = numbers(4, 13, 2, dtype="float64")
    found = torch.linalg.solve_triangular(torch.tensor(a), torch.tensor(b), upper=False).numpy()
    wanted = real.linalg.solve_triangular(real.tensor(a), real.tensor(b), upper=False).numpy()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))


@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_programs_with_factors_have_pytorchs_gradients(dtype, without, monkeypatch):
    "Cholesky, solutions by a factor, inverses and LU, with the routines and without them."
    import torch as real

    if without:
        monkeypatch.setattr(lapack, "ROUTINES", {})
    x, b = numbers(5, 14, 14, dtype=dtype), numbers(6, 14, 3, dtype=dtype)
    a = x @ x.conj().T / 4 + 3 * np.eye(14, dtype=dtype)
    found = []
    for engine in (torch, real):
        p, q = engine.tensor(a).requires_grad_(), engine.tensor(b).requires_grad_()
        factor = engine.linalg.cholesky(p)
        solved = engine.linalg.solve_triangular(factor.mH, q, upper=True)
        by_factor = engine.cholesky_solve(q, factor) + engine.cholesky_solve(q, factor.mH, upper=True)
        _, low, up = engine.linalg.lu(p)
        loss = solved.abs().sum() + by_factor.abs().sum() + (low @ up * p).abs().sum() + engine.cholesky_inverse(factor).abs().sum()
        loss.backward()
        found.append([loss.detach().numpy(), p.grad.resolve_conj().numpy(), q.grad.resolve_conj().numpy()])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, **{k: 20 * v for k, v in tolerance(dtype).items()})


@pytest.mark.parametrize('n', [3, 30])
@pytest.mark.parametrize('dtype', [np.float32, np.float64, np.complex64, np.complex128])
def test_ufuncs_without_their_wrapping(dtype, n):
    """Sizes on both sides of where single precision is computed as such; failures still raise."""
    rng = np.random.default_rng(n)
    x = (rng.normal(size=(2, n, n)) + 1j * rng.normal(size=(2, n, n))).astype(dtype)
    spd = x @ x.swapaxes(-1, -2).conj() + n * np.eye(n, dtype=dtype)
    close = dict(rtol=1e-3, atol=1e-3)
    for name, plain, given in (
        ('cholesky_lo', np.linalg.cholesky, spd), ('inv', np.linalg.inv, spd),
        ('eigvalsh_lo', np.linalg.eigvalsh, spd), ('det', np.linalg.det, x / n),
    ):
        for a in (given, given[0]):
            found = lapack.routine(name, plain, a)
            assert found.dtype == plain(a).dtype and np.allclose(found, plain(a), **close), name
    for mode in ('reduced', 'complete'):
        for a in (x, x[:, :2], x[:, :, :2]):
            for found, wanted in zip(lapack.qr(a, mode), np.linalg.qr(a, mode)):
                assert found.dtype == wanted.dtype and np.allclose(found, wanted, **close)
    with pytest.raises(np.linalg.LinAlgError):
        lapack.routine('cholesky_lo', np.linalg.cholesky, -spd)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5, 5), (5, 3), (3, 5), (1, 1), (0, 3, 3), (2, 0, 0)])
def test_row_exchanges_are_lapacks(shape):
    import torch as real

    for dtype in DTYPES:
        x = numbers(7, *shape, dtype=dtype)
        for ours, theirs in zip(torch.linalg.lu_factor(torch.tensor(x)), real.linalg.lu_factor(real.tensor(x))):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), **tolerance(dtype))
        for ours, theirs in zip(torch.linalg.lu(torch.tensor(x)), real.linalg.lu(real.tensor(x))):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), **tolerance(dtype))


@pytest.mark.parametrize("call", [
    "cholesky(x)", "cholesky(stack)", "cholesky(-eye)", "cholesky_ex(x).info", "cholesky_ex(stack).info", "cholesky_ex(-stack).info", "svd(x)", "svd(stack)",
    "svd(stack, full_matrices=False)", "svdvals(x)", "svdvals(stack)",
])
def test_matrices_of_what_is_no_number(call):
    "PyTorch's error, or its place of the first minor that has no factor."
    import torch as real

    def told(torch):
        x, eye = torch.tensor([[2.0, 1.0, float("nan")], [1.0, 2.0, 1.0], [float("nan"), 1.0, 2.0]]), torch.eye(3)
        try:
            return eval(f"torch.linalg.{call}", dict(torch=torch, x=x, eye=eye, stack=torch.stack([eye, x]))).tolist()
        except RuntimeError as error:
            return str(error).partition("\n")[0]

    assert told(torch) == told(real)


SQUARES = {
    "regular": lambda a: a,
    "singular": lambda a: a * np.r_[0, np.ones(a.shape[-1] - 1)][:, None],
    "nearly singular": lambda a: a * np.r_[1e-9, np.ones(a.shape[-1] - 1)][:, None],
    "one of several singular": lambda a: np.stack([a, np.zeros_like(a), a + a]),
}


@pytest.mark.parametrize("kind", SQUARES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cofactors(dtype, n, kind):
    "By which a determinant changes; beside the product of factors in double precision, which singular matrices have too."
    a, wide = SQUARES[kind](numbers(n, n, n, dtype=dtype)).astype(dtype), "complex128" if dtype[0] == "c" else "float64"
    found, expected = decompositions.determinants.cofactor_arrays(a), decompositions.determinants.cofactors_by_factors(a.astype(wide))
    assert found.dtype == dtype and found.shape == a.shape
    np.testing.assert_allclose(found, expected, **tolerance(dtype))
