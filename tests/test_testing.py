"""`testing`: what assert_close says, and what make_tensor draws, beside PyTorch where it is installed."""

import gc
import unittest
import warnings

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.testing import assert_allclose, assert_close, make_tensor
from autograd_nb.testing._internal import common_device_type as devices, common_dtype as kinds, common_utils as utils

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


# Test cases, as PyTorch's own test files use them ---------------------------------------------------------------


def outcome_of(case):
    found = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    names, result = sorted(t._testMethodName for t in found), unittest.TestResult()
    found.run(result)
    return names, result


ONE = torch.ones(2)
PAIRS = [
    (1, 1.0, True), (1.0, 1 + 1e-9, True), (1.0, 1.1, False), (True, 1, True), (1, "1", False), (None, None, True), (None, 1, False), (NAN, NAN, True), (1 + 1j, 1 + 1j, True),
    (ONE, [1, 1], True), (ONE, ONE.double(), False), (ONE, torch.ones(3), False), (torch.tensor([2.0]), 2, True), (2, torch.tensor(2.0), True), (torch.tensor(NAN), torch.tensor(NAN), True), (torch.tensor(True), True, True),
    (ONE, np.ones(2, np.float32), True), (np.ones(2), np.ones(2), True), ((1,), [1], True), ([1, ONE], [1, ONE], True), ([1], [1, 2], False), ({"a": ONE}, {"a": ONE}, True), ({"a": 1}, {"b": 1}, False),
    ({1, 2}, {2, 1}, True), (torch.Size([1, 2]), (1, 2), True), (torch.float32, torch.float64, False), ("a", "b", False), (torch.device("cpu"), torch.device("cpu"), True),
]


@pytest.mark.parametrize("x, y, equal", PAIRS, ids=range(len(PAIRS)))
def test_a_test_case_compares(x, y, equal):
    case = utils.TestCase()
    if equal:
        case.assertEqual(x, y)
        with pytest.raises(AssertionError):
            case.assertNotEqual(x, y)
    else:
        case.assertNotEqual(x, y)
        with pytest.raises(AssertionError, match="because"):
            case.assertEqual(x, y, "because")


def test_tolerances_of_a_test_case():
    case = utils.TestCase()
    case.assertEqual(ONE, ONE + 0.1, atol=0.2, rtol=0)
    case.assertEqual(ONE, ONE.double(), exact_dtype=False)
    case.precision = 0.2
    case.assertEqual(ONE, ONE + 0.1)
    case.assertNotWarn(lambda: None)
    with case.assertWarnsOnceRegex(UserWarning, "ri.e"):
        warnings.warn("ripe", UserWarning, stacklevel=1)
    with pytest.raises(AssertionError):
        case.assertNotWarn(lambda: warnings.warn("ripe", UserWarning, stacklevel=1))


def test_parametrized_tests():
    seen = []

    class Case(utils.TestCase):
        @utils.parametrize("a", [1, 2.5, "x", torch.float32, None])
        @utils.parametrize("b,c", [(1, 2), utils.subtest((3, 4), name="sub"), utils.subtest((5, 6), decorators=[unittest.skip("no")])])
        def test_p(self, a, b, c):
            seen.append((a, b, c))

        @utils.parametrize("f", [torch.sin], name_fn=lambda f: "named")
        def test_q(self, f):
            self.fail("on purpose")

    names, result = outcome_of(utils.instantiate_parametrized_tests(Case))
    assert len(names) == 16 and {"test_p_a_1_b_1_c_2", "test_p_a_2_5_sub", "test_p_float32_sub", "test_p_a4_b_5_c_6", "test_q_named"} <= set(names)
    assert len(result.skipped) == 5 and len(result.failures) == 1 and len(seen) == 10 and (2.5, 3, 4) in seen
    with pytest.raises(RuntimeError, match="two tests are called"):
        utils.instantiate_parametrized_tests(type("Twice", (utils.TestCase,), dict(test_p=utils.parametrize("a", [1, 1])(lambda self, a: None))))


def test_tests_for_each_device():
    seen = []

    class Case(utils.TestCase):
        @devices.dtypes(torch.float32, torch.complex64)
        @devices.dtypesIfCPU(torch.float64)
        def test_kind(self, device, dtype):
            seen.append((device, dtype))

        @devices.precisionOverride({torch.float32: 0.2})
        @devices.dtypes(torch.float32, torch.int64)
        def test_precision(self, device, dtype):
            seen.append(self.precision)

        @devices.toleranceOverride({torch.float32: devices.tol(atol=0.5, rtol=0.25)})
        @devices.dtypes(torch.float32)
        def test_tolerance(self, device, dtype):
            seen.append((self.precision, self.rel_tol))

        @devices.onlyCUDA
        def test_far(self, device):
            self.fail("no GPU is asked for")

        @devices.dtypes((torch.float32, torch.int64))
        def test_pairs(self, device, dtypes):
            seen.append(dtypes)

        @utils.parametrize("k", [1, 2])
        @devices.dtypes(*kinds.floating_types_and(torch.half))
        def test_both(self, device, dtype, k):
            seen.append((dtype, k))

        @devices.deviceCountAtLeast(2)
        def test_many(self, devices):
            self.fail("there is one")

    scope = {"Case": Case}
    devices.instantiate_device_type_tests(Case, scope, only_for="cpu")
    assert list(scope) == ["CaseCPU"]
    names, result = outcome_of(scope["CaseCPU"])
    assert names == ["test_both_k_1_cpu_float16", "test_both_k_1_cpu_float32", "test_both_k_1_cpu_float64", "test_both_k_2_cpu_float16", "test_both_k_2_cpu_float32", "test_both_k_2_cpu_float64", "test_far_cpu", "test_kind_cpu_float64",
                     "test_many_cpu", "test_pairs_cpu_float32_int64", "test_precision_cpu_float32", "test_precision_cpu_int64", "test_tolerance_cpu_float32"]
    assert not result.failures and not result.errors and len(result.skipped) == 2
    assert ("cpu", torch.float64) in seen and 0.2 in seen and 0 in seen and (0.5, 0.25) in seen and (torch.half, 2) in seen


def test_states_for_a_while():
    torch.manual_seed(1)
    with utils.freeze_rng_state():
        first = torch.rand(2)
    assert torch.equal(first, torch.rand(2))
    with utils.set_default_dtype(torch.float64):
        assert torch.rand(1).dtype is torch.float64
    with utils.disable_gc():
        assert not gc.isenabled()
    assert torch.rand(1).dtype is torch.float32 and gc.isenabled()
    for x in (torch.rand(2, 3, requires_grad=True), torch.rand(4, requires_grad=True)):
        y = utils.noncontiguous_like(x)
        assert torch.equal(x, y) and not y.is_contiguous() and y.requires_grad and y.is_leaf
