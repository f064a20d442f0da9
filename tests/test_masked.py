"""Masked reductions, windows and copies of views: values, gradients, dtypes and errors are PyTorch's."""

import itertools

import numpy as np
import pytest

import autograd_nb as t

pytestmark = pytest.mark.needs("torch")


def told(library, call):
    "What `call(library)` gives: dtype, shape and numbers, or the error."
    try:
        out = call(library)
    except Exception as error:
        return type(error).__name__, str(error)[:60]
    return str(out.dtype), tuple(out.shape), np.asarray(out.detach().tolist())


def agree(call, note=None):
    import torch

    theirs, ours = told(torch, call), told(t, call)
    assert theirs[:2] == ours[:2], (note, theirs, ours)
    if len(theirs) == 3:
        np.testing.assert_allclose(ours[2], theirs[2], rtol=2e-5, atol=1e-6, err_msg=str(note))


# Masks ------------------------------------------------------------------------------------------------------------

X = [[0.5, -1.25, 2.0, -0.75], [3.0, 0.1, -2.0, 1.5], [-0.3, 0.7, 4.0, -5.0]]
MASKS = {
    "none": None, "some": [[True, False, True, True], [True, True, False, True], [False, True, True, False]], "a row": [True, False, True, True],
    "a row without any": [[True, True, True, True], [False, False, False, False], [True, False, False, False]], "as numbers": [[1, 0, 2, 1]], "too many dimensions": [[[True] * 4] * 3],
}  # fmt: skip
REDUCTIONS = "sum prod mean amax amin argmax argmin norm var std logsumexp median".split()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, mask):
    for dim, keepdim, dtype in itertools.product((None, 0, -1, (0, 1), (), 5), (False, True), ("float32", "float64", "int32", "uint8")):
        if dim is None and name == "median" or isinstance(dim, tuple) and name in ("argmax", "argmin", "median"):
            continue
        if dtype == "uint8" and name in ("var", "std", "norm", "logsumexp"):
            continue
        if mask == "too many dimensions" and dim == 5:
            continue  # which of two mistakes is told first

        def call(torch, dim=dim, keepdim=keepdim, dtype=dtype):
            x = torch.tensor(X).to(getattr(torch, dtype)) if dtype != "uint8" else torch.tensor(X).abs().to(torch.uint8)
            where = None if MASKS[mask] is None else torch.tensor(MASKS[mask])
            return getattr(torch.masked, name)(x, dim=dim, keepdim=keepdim, mask=where)

        agree(call, (dim, keepdim, dtype))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin", "cumsum", "cumprod", "normalize"])
def test_functions_of_the_same_shape(name, mask):
    for dim, dtype in itertools.product((0, -1, 3), (None, "float64")):

        def call(torch, dim=dim, dtype=dtype):
            where = None if MASKS[mask] is None else torch.tensor(MASKS[mask])
            options = dict(mask=where, dtype=dtype and getattr(torch, dtype))
            if name == "normalize":
                return torch.masked.normalize(torch.tensor(X), 3.0, dim, **options)
            return getattr(torch.masked, name)(torch.tensor(X), dim, **options)

        agree(call, (dim, dtype))


def test_other_arguments():
    some = MASKS["some"]
    for order in (1, 0, 3.0, float("inf"), float("-inf")):
        agree(lambda torch, order=order: torch.masked.norm(torch.tensor(X), order, 1, mask=torch.tensor(some)))
    for options in (dict(unbiased=False), dict(correction=2), dict(correction=0), dict(unbiased=True, correction=1), dict(correction=9)):
        agree(lambda torch, options=options: torch.masked.var(torch.tensor(X), 1, mask=torch.tensor(some), **options), options)
        agree(lambda torch, options=options: torch.masked.std(torch.tensor(X, dtype=torch.float64), **options), options)
    agree(lambda torch: torch.masked.logaddexp(torch.tensor(X), -torch.tensor(X), input_mask=torch.tensor(some), other_mask=torch.tensor(MASKS["a row"])))
    agree(lambda torch: torch.masked.mean(torch.tensor([1, 2]), mask=torch.tensor([True, False])))
    agree(lambda torch: torch.masked.sum(torch.tensor([True, True, False]), dtype=torch.float64, mask=torch.tensor([True, False, True])))
    for name in ("logsumexp", "var", "mean", "norm"):
        agree(lambda torch, name=name: abs(getattr(torch.masked, name)(torch.tensor([1 + 1j, 2.0, 3j]), 0, mask=torch.tensor([True, False, True]))), name)


@pytest.mark.parametrize("name", "sum prod mean amax amin norm var std logsumexp median softmax log_softmax softmin cumsum cumprod normalize".split())
def test_gradients_stay_inside_the_mask(name):
    import torch

    grads = []
    for lib in (torch, t):
        x = lib.tensor(X, dtype=lib.float64)
        mask = lib.tensor(MASKS["some"])
        x = x.masked_fill(~mask, 1e3).requires_grad_()
        out = lib.masked.normalize(x, 2.0, 1, mask=mask) if name == "normalize" else getattr(lib.masked, name)(x, dim=1, mask=mask)
        out = lib.where(out.isfinite(), out, 0.0)
        (out * lib.arange(1.0, out.numel() + 1).reshape(out.shape).sin()).sum().backward()
        grads.append(np.asarray(x.grad.tolist()))
        assert (x.grad[~mask] == 0).all()
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5, atol=1e-6)


# Windows ----------------------------------------------------------------------------------------------------------

WINDOWS = {
    "bartlett": [{}], "blackman": [{}], "cosine": [{}], "exponential": [{}, {"tau": 3.0}, {"center": 1.0, "tau": 2.0}, {"tau": 0}], "gaussian": [{}, {"std": 2.5}, {"std": -1}],
    "general_cosine": [{"a": [0.5, 0.3, 0.2]}, {"a": []}, {"a": 3}, {"a": (1.0,)}], "general_hamming": [{}, {"alpha": 0.3}], "hamming": [{}], "hann": [{}], "kaiser": [{}, {"beta": 5.0}, {"beta": -1}], "nuttall": [{}],
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name):
    for options, M, sym, dtype in itertools.product(WINDOWS[name], (0, 1, 2, 3, 8, 17, -2), (True, False), (None, "float32", "float64", "int64", "float16")):
        agree(lambda torch: getattr(torch.signal.windows, name)(M, sym=sym, dtype=dtype and getattr(torch, dtype), **options), (options, M, sym, dtype))  # noqa: B023
    import torch

    for library in (torch, t):
        options = {"a": [0.5, 0.5]} if name == "general_cosine" else {}
        assert getattr(library.signal.windows, name)(5, requires_grad=True, **options).requires_grad
        with pytest.raises(TypeError):
            getattr(library.signal.windows, name)(5, True)
    assert set(t.signal.windows.__all__) == set(torch.signal.windows.__all__)


# Copies, layouts and operators in place ---------------------------------------------------------------------------

COPIES = {
    "alias_copy": (), "as_strided_copy": ((2, 2), (1, 3), 1), "detach_copy": (), "diagonal_copy": (), "expand_copy": ((2, 3, 4),), "permute_copy": ((1, 0),), "select_copy": (0, 1), "slice_copy": (1, 1, 4, 2), "split_copy": (2, 1), "split_with_sizes_copy": ([1, 3], 1),
    "squeeze_copy": (0,), "t_copy": (), "transpose_copy": (0, 1), "unbind_copy": (1,), "unfold_copy": (1, 2, 1), "unsqueeze_copy": (0,), "view_copy": ((4, 3),), "view_as_real_copy": (), "view_as_complex_copy": (),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_views(name):
    import torch

    found = []
    for library in (torch, t):
        x = library.arange(12.0).reshape(3, 4)
        x = library.complex(x, -x) if name == "view_as_real_copy" else x.reshape(3, 2, 2) if name == "view_as_complex_copy" else x
        before = x.tolist()
        differentiable = name not in ("detach_copy", "view_as_complex_copy")  # of these PyTorch has no derivative
        x.requires_grad_(differentiable)
        out = getattr(library, name)(x, *COPIES[name])
        outs = out if isinstance(out, (tuple, list)) else [out]
        if differentiable:
            sum(abs(o).sum() for o in outs).backward()
        found.append([(o.tolist(), o.requires_grad) for o in outs] + [x.grad is not None and x.grad.tolist()])
        with library.no_grad():
            for o in outs:
                o.fill_(7.0)
        assert x.tolist() == before
    assert found[0] == found[1]
    views = {n for n in dir(torch) if n.endswith("_copy") and not n.startswith("_")} - {"values_copy", "indices_copy", "index_copy"}
    assert all(hasattr(t, n) for n in views if "indices" not in n)


def test_out_of_copies():
    import torch

    for library in (torch, t):
        x, out = library.arange(6.0).reshape(2, 3), library.empty(3, 2)
        assert library.permute_copy(x, (1, 0), out=out) is out and out.tolist() == x.T.tolist()
        parts = [library.empty(2, 1), library.empty(2, 2)]
        library.split_with_sizes_copy(x, [1, 2], 1, out=parts)
        assert parts[1].tolist() == x[:, 1:].tolist()


def test_empty_permuted():
    for size, order in (((2, 3, 4), (0, 2, 1)), ((2, 3, 4), (2, 1, 0)), ((), ()), ((2, 0, 3), (2, 1, 0)), ((2, 3), (0,)), ((2, 3), (0, 2)), ((2, 3), (0, 0)), ((2, 3), (0, -1)), ((-2,), (0,))):
        agree(lambda torch: torch.tensor(torch.empty_permuted(size, order).stride()), (size, order))  # noqa: B023
        agree(lambda torch: torch.empty_permuted(size, order, dtype=torch.int64).mul(0), (size, order))  # noqa: B023


@pytest.mark.parametrize("operator", ["&=", "|=", "^=", "<<=", ">>=", "%="])
def test_operators_in_place_reach_every_name(operator):
    import torch

    for left, right in itertools.product(([6, 5], [True, False], [2.5, -1.0]), ("3", "torch.tensor([2, 1])", "torch.tensor(True)", "2.0")):
        results = []
        for library in (torch, t):
            names = {"a": library.tensor(left), "torch": library}
            names["b"] = names["a"]
            try:
                exec(f"b {operator} {right}", names)
                results.append((names["a"].tolist(), names["a"] is names["b"]))
            except (RuntimeError, NotImplementedError, TypeError):
                results.append("refused")
        assert results[0] == results[1], (left, right)


def test_other_operators():
    for call in (lambda t: t.tensor([2.0, 4.0]).__rdiv__(8), lambda t: t.tensor([1, 2]).__rlshift__(3), lambda t: t.tensor([1, 2]).__rrshift__(8), lambda t: 3 << t.tensor([1, 2]), lambda t: t.tensor([3, 2]).__div__(2), lambda t: t.tensor([1.0]).__delitem__(0)):
        agree(call)
    assert t.tensor([1]).__nonzero__() is True and t.tensor(3.7).__long__() == 3 and t.get_device(t.ones(1)) == -1


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 1, 1), (1, 4), (3, 3), (4, 1), (2,)])
def test_values_assigned_at_a_mask_may_have_leading_dimensions_of_one(shape):
    "What does not fit has PyTorch's words, not NumPy's."

    def assigned(lib):
        x = lib.zeros(2, 3)
        x[lib.tensor([[True, False, True], [False, True, True]])] = lib.ones(shape)
        return x

    agree(assigned, shape)
