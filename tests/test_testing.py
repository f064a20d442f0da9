"""`testing`: what assert_close says, and what make_tensor draws, beside PyTorch where it is installed."""


import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.testing import assert_allclose, assert_close, make_tensor

T = torch.tensor
NAN, INF = float("nan"), float("inf")

CASES = {
    "equal": (lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 2.0])), {}),
    "one differs": (lambda t: (t.tensor([1.0, 2.0, 3.0]), t.tensor([1.0, 2.5, 3.0])), {}),
    "two dimensions": (lambda t: (t.tensor([[1.0, 2.0], [3.0, 4.0]]), t.tensor([[1.0, 2.0], [3.0, 5.0]])), {}),
    "shape": (lambda t: (t.ones(2), t.ones(3)), {}),
    "dtype": (lambda t: (t.ones(2), t.ones(2, dtype=t.float64)), {}),
    "dtype not checked": (lambda t: (t.ones(2), t.ones(2, dtype=t.float64)), dict(check_dtype=False)),
    "stride": (lambda t: (t.ones(2, 3).t(), t.ones(3, 2)), dict(check_stride=True)),
    "numbers": (lambda t: (1.0, 2.0), {}),
    "integers": (lambda t: (1, 2), {}),
    "types of numbers": (lambda t: (1, 1.0), {}),
    "booleans": (lambda t: (True, False), {}),
    "complex": (lambda t: (1j, 2j), {}),
    "complex tensors": (lambda t: (t.tensor([1 + 1j]), t.tensor([1 + 2j])), {}),
    "integer tensors": (lambda t: (t.tensor([1, 2]), t.tensor([1, 3])), {}),
    "unsigned": (lambda t: (t.tensor([1], dtype=t.uint8), t.tensor([3], dtype=t.uint8)), {}),
    "masks": (lambda t: (t.tensor([True]), t.tensor([False])), {}),
    "single": (lambda t: (t.tensor(1.0), t.tensor(2.0)), {}),
    "empty": (lambda t: (t.tensor([]), t.tensor([])), {}),
    "zero expected": (lambda t: (t.tensor([1.0, 2.0]), t.tensor([0.0, 0.0])), {}),
    "infinite": (lambda t: (t.tensor([1.0]), t.tensor([INF])), {}),
    "both infinite": (lambda t: (t.tensor([INF, 1.0]), t.tensor([INF, 2.0])), {}),
    "NaN": (lambda t: (t.tensor([NAN]), t.tensor([NAN])), {}),
    "equal NaN": (lambda t: (t.tensor([NAN]), t.tensor([NAN])), dict(equal_nan=True)),
    "NaN numbers": (lambda t: (NAN, NAN), {}),
    "exact": (lambda t: (t.tensor([1.0, 2.0]), t.tensor([1.0, 3.0])), dict(rtol=0, atol=0)),
    "tolerances": (lambda t: (t.tensor([1.0, 2.0]), t.tensor([2.0, 3.0])), dict(rtol=0.1, atol=0.1)),
    "one tolerance": (lambda t: (t.tensor([1.0]), t.tensor([2.0])), dict(rtol=1)),
    "half precision": (lambda t: (t.tensor([1.0], dtype=t.bfloat16), t.tensor([1.01], dtype=t.bfloat16)), {}),
    "nested": (lambda t: ({"x": [t.tensor(1.0), t.tensor(2.0)]}, {"x": [t.tensor(1.0), t.tensor(5.0)]}), {}),
    "list and tuple": (lambda t: ([1, t.ones(1)], (1, t.ones(1))), {}),
    "lengths": (lambda t: ([1], [1, 2]), {}),
    "keys": (lambda t: ({"a": 1}, {"b": 1}), {}),
    "None": (lambda t: (None, None), {}),
    "strings": (lambda t: ("a", "a"), {}),
    "arrays": (lambda t: (np.ones(2), np.zeros(2)), {}),
    "message": (lambda t: (t.ones(1), t.zeros(1)), dict(msg="hello")),
    "made message": (lambda t: (t.ones(1), t.zeros(1)), dict(msg=lambda m: f"look: {m}")),
}


def outcome(library, case):
    make, options = CASES[case]
    try:
        library.testing.assert_close(*make(library), **options)
    except (AssertionError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)
    return "close", ""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("case", CASES)
def test_assert_close_says_what_pytorch_says(case):
    import torch as reference

    assert outcome(torch, case) == outcome(reference, case)


def test_assert_close_by_itself():
    assert_close([T([1.0]), 2.0], [T([1.0]), 2.0])
    with pytest.raises(AssertionError, match=r"(?s)Mismatched elements: 1 / 2 .*at index \(1,\).*The failure occurred for item \['w'\]\[0\]"):
        assert_close({"w": [T([1.0, 2.0])]}, {"w": [T([1.0, 3.0])]})
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(T([1.0]), [1.0])


def test_assert_allclose_is_lenient_and_deprecated():
    with pytest.warns(FutureWarning, match="assert_close"):
        assert_allclose(T([1.0, NAN]), T([1.0, NAN], dtype=torch.float64))
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="not close"):
        assert_allclose(T([1.0]), [2.0])


SAMPLES = [
    dict(dtype="float32"), dict(dtype="float64"), dict(dtype="int64"), dict(dtype="bool"), dict(dtype="uint8"), dict(dtype="complex64"),
    dict(dtype="float32", low=0, high=1), dict(dtype="float32", noncontiguous=True), dict(dtype="float32", requires_grad=True),
    dict(dtype="int64", low=0.5, high=3.5), dict(dtype="uint8", high=2, exclude_zero=True), dict(dtype="int8", low=0, high=300),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("options", SAMPLES, ids=str)
def test_make_tensor_draws_what_pytorch_draws(options):
    import torch as reference

    found = []
    for library in (torch, reference):
        library.manual_seed(7)
        x = library.testing.make_tensor((3, 2), device="cpu", **{**options, "dtype": getattr(library, options["dtype"])})
        found.append((x.detach(), (x.stride(), x.requires_grad, str(x.dtype).split(".")[-1])))
    (ours, facts), (theirs, expected) = found
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    assert facts == expected


@pytest.mark.parametrize("options, error, words", [
    (dict(low=2, high=1), ValueError, "`low` must be less than `high`"),
    (dict(low=NAN), ValueError, "cannot be NaN"),
    (dict(dtype=torch.int64, requires_grad=True), ValueError, "`requires_grad=True` is not supported for boolean and integral dtypes"),
    (dict(dtype=torch.int8, low=400, high=500), ValueError, "only supports"),
    (dict(noncontiguous=True, memory_format=torch.contiguous_format), ValueError, "mutually exclusive"),
    (dict(dtype=float), TypeError, "not supported"),
])
def test_make_tensor_refuses(options, error, words):
    with pytest.raises(error, match=words):
        make_tensor(2, **{**dict(dtype=torch.float32, device="cpu"), **options})
