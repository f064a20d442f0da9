"""A few eigenvalues of large symmetric matrices, as PyTorch's iteration finds them."""

import numpy as np
import pytest

import autograd_nb as torch


def problem(generalised):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 2, 12, 12))
    return a + a.swapaxes(-1, -2), b @ b.swapaxes(-1, -2) + np.eye(12) if generalised else None


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("generalised", [False, True])
def test_eigenpairs(generalised, largest):
    a, b = problem(generalised)
    B = None if b is None else torch.from_numpy(b)
    e, v = (t.numpy() for t in torch.lobpcg(torch.from_numpy(a), 3, B=B, largest=largest))
    np.testing.assert_allclose(a @ v, (v if b is None else b @ v) * e[:, None], atol=1e-9)
    every = np.linalg.eigvals(a if b is None else np.linalg.solve(b, a)).real
    np.testing.assert_allclose(e, np.sort(every, -1)[:, ::-1][:, :3] if largest else np.sort(every, -1)[:, :3], atol=1e-9)


def test_derivative_and_batches():
    a, _ = problem(False)
    assert torch.autograd.gradcheck(lambda x: torch.lobpcg(x + x.mT, 2)[0], torch.from_numpy(a[0].copy()).requires_grad_(), check_forward_ad=True)
    x = torch.from_numpy(a)
    np.testing.assert_allclose(torch.func.vmap(lambda x: torch.lobpcg(x, 2)[0])(x).numpy(), torch.lobpcg(x, 2)[0].numpy())


def test_too_small():
    with pytest.raises(ValueError, match=r"LOBPCG algorithm is not applicable when the number of A rows \(=4\) is smaller than 3 x the number of requested eigenpairs \(=2\)"):
        torch.lobpcg(torch.eye(4), 2)
