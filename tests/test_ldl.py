"""The factorisation of symmetric indefinite matrices: what LAPACK gives, pivots included, and the equations it is for."""

import numpy as np
import pytest

import autograd_nb as torch

CASES = [(n, hard, hermitian, weak) for n in (1, 2, 3, 5, 8, 40) for hard in (False, True) for hermitian in (False, True) for weak in (False, True)]


def matrices(n, hard, hermitian, weak):
    "Three symmetric (Hermitian) matrices; `weak`: with small diagonals, which forces pivots of size two."
    rng = np.random.default_rng(n)
    a = rng.standard_normal((3, n, n)) + (1j * rng.standard_normal((3, n, n)) if hard else 0)
    a = a + (a.conj() if hermitian else a).swapaxes(-1, -2)
    if weak:
        a[:, np.arange(n), np.arange(n)] *= 0.01
    return a, rng.standard_normal((3, n, 2)).astype(a.dtype)


@pytest.mark.parametrize("n, hard, hermitian, weak", CASES)
def test_the_factors_solve_equations(n, hard, hermitian, weak):
    a, b = matrices(n, hard, hermitian, weak)
    LD, pivots = torch.linalg.ldl_factor(torch.from_numpy(a), hermitian=hermitian)
    x = torch.linalg.ldl_solve(LD, pivots, torch.from_numpy(b), hermitian=hermitian).numpy()
    np.testing.assert_allclose(a @ x, b, atol=1e-8)
    assert (pivots.numpy() < 0).any() or not weak or n == 1


@pytest.mark.needs("torch")
@pytest.mark.parametrize("n, hard, hermitian, weak", CASES)
def test_factors_and_pivots_are_lapacks(n, hard, hermitian, weak):
    import torch as reference

    a, _ = matrices(n, hard, hermitian, weak)
    ours, theirs = torch.linalg.ldl_factor_ex(torch.from_numpy(a), hermitian=hermitian), reference.linalg.ldl_factor_ex(reference.from_numpy(a), hermitian=hermitian)
    for x, y in zip(ours, theirs):
        assert x.numpy().dtype == y.numpy().dtype
        np.testing.assert_allclose(x.numpy(), y.numpy(), atol=1e-10)


def test_singular_matrices_are_named():
    zero = torch.zeros(2, 2)
    assert torch.linalg.ldl_factor_ex(zero).info.item() == 1
    with pytest.raises(RuntimeError, match=r"U\[1,1\] is zero and using it on ldl_solve would result in a division by zero"):
        torch.linalg.ldl_factor_ex(zero, check_errors=True)
