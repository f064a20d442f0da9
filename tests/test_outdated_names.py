"""Functions and spellings that PyTorch warns about: the same category and words here, and a result all the same."""

import warnings

import pytest
from _compare import every_warning

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")

# a: three rows of three, positive definite; v: a row
CALLS = """
torch.range(0, 3)
torch.cross(a, a)
torch.cross(a, a, dim=1)
torch.chain_matmul(a, a)
torch.cholesky(a)
torch.linalg.cholesky(a)
torch.qr(a)
a.qr()
torch.triangular_solve(a, a)
torch.lu(a)
torch.lu_solve(a, *torch.linalg.lu_factor(a))
torch.stft(torch.ones(20), 4, return_complex=True)
torch.stft(torch.ones(20), 4, return_complex=True, window=torch.ones(4))
torch.meshgrid(v, v)
torch.meshgrid(v, v, indexing="xy")
a[[[0, 1], [1, 0]]]
a[[0, 1], [1, 0]]
a[[0, 1]]
a[torch.tensor([1, 0, 1], dtype=torch.uint8)]
a[torch.tensor([True, False, True])]
v.index_reduce(0, torch.tensor([0]), torch.ones(1), "prod")
torch.tensor(1.0).std()
torch.ones(1, 3).var(0)
torch.ones(2, 3).var(0, correction=2)
torch.ones(2, 3).std(0)
torch.var_mean(torch.ones(1))
torch.frombuffer(b"abcd", dtype=torch.int32)
torch.frombuffer(bytearray(4), dtype=torch.int32)
"""


def outcome(call, torch):
    a = torch.eye(3) * 2 + 0.1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's
        result = eval(call, {"torch": torch, "a": a, "v": a[0]})
    found = [(w.category, str(w.message).split(" (Triggered")[0]) for w in said]
    return found, [r.tolist() for r in (result if isinstance(result, tuple) else [result])]


@pytest.mark.parametrize("call", CALLS.strip().split("\n"))
def test_warnings(call):
    import torch

    with every_warning(torch, ours):
        (expected, result), (found, our_result) = outcome(call, torch), outcome(call, ours)
    assert found == expected
    assert str(our_result) == str(result) or all(map(lambda x, y: str(ours.allclose(ours.tensor(x), ours.tensor(y), equal_nan=True)) == "True", our_result, result))
