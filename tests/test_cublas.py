"""Products by cuBLAS, called directly: with a library that computes in NumPy at the addresses it is given. On a GPU `test_device.py` multiplies with the real one."""

import threading

import numpy as np
import pytest
import strict_arrays as strict
from test_device import device, host, stand_in  # noqa: F401

import autograd_nb as torch
from autograd_nb.arrays import cublas
from autograd_nb.graph.node import tensor_like

F = torch.nn.functional


def drawn(*shape, dtype=torch.float64):
    numbers = np.random.default_rng(len(shape)).standard_normal(shape)
    return torch.tensor(numbers).to(dtype)


def placed(tensor):
    "On the device, in the same layout."
    return tensor_like(strict.wrapped(tensor.numpy()))


# what is multiplied: two tensors, and how many of them have to be copied
x, y, z = drawn(3, 4, 5), drawn(5, 6), drawn(2, 3, 5, 4)
PRODUCTS = {
    "matrices": (x[0], y, 0),
    "a stack and a matrix": (x, y, 0),
    "two stacks": (x, z[0], 0),
    "stacks that broadcast": (z, x, 1),
    "turned on the left": (y.T, y, 0),
    "turned on the right": (y, y.T, 0),
    "turned stack": (x.mT, x, 0),
    "a vector on the left": (x[0, 0], y, 0),
    "a vector on the right": (x, y[:, 0], 0),
    "one matrix for all": (x[:1].expand(3, 4, 5), z[1], 0),
    "wider rows": (x[..., :3], y[:3], 0),
    "part of a stack": (z[:, :2], x[:2], 2),
    "gaps in the rows": (x[..., ::2], z[0][..., ::2, :], 1),
    "two leading dimensions, turned": (z.mT, drawn(2, 3, 5, 2), 0),
    "rows of two numbers": (x[..., :2], drawn(3, 2, 4), 0),
}


def test_products(device):  # noqa: F811
    "Every pair of shapes and layouts is one call, and only what does not fit is copied."
    for name, (a, b, _) in PRODUCTS.items():
        there = [placed(v) for v in (a, b)]
        before = len(strict.cublas.calls)
        found = there[0] @ there[1]
        assert len(strict.cublas.calls) == before + 1, name
        np.testing.assert_allclose(host(found), (a @ b).numpy(), atol=1e-12, err_msg=name)


def test_what_is_copied(device):  # noqa: F811
    "Views are taken as they lie, as long as rows or columns are without gaps and the matrices equally far apart."
    for name, (a, b, copies) in PRODUCTS.items():
        if 1 in (a.dim(), b.dim()):
            continue
        arrays = [placed(v)._array for v in (a, b)]
        lead = np.broadcast_shapes(*(v.shape[:-2] for v in arrays))
        taken = [cublas.as_stack(v, lead)[0] for v in arrays] if b.dim() > 2 else arrays
        assert sum(t is not v for t, v in zip(taken, arrays)) == copies, name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str)
def test_dtypes(dtype, device):  # noqa: F811
    "Each dtype is multiplied as it is, forward and backward, added up in the type that is meant for it."

    def both(place):
        a, b = (v.detach().clone().to(dtype).to(place).requires_grad_() for v in (x, z[0]))
        out = a @ b
        return [out, *torch.autograd.grad(out, (a, b), torch.ones_like(out))]

    wanted = both("cpu")
    strict.cublas.calls.clear()
    for a, b in zip(wanted, both(device), strict=True):
        wide = np.complex128 if dtype.is_complex else float
        np.testing.assert_allclose(host(b).astype(wide), a.detach()._array.astype(wide), rtol=3e-2 if dtype.itemsize == 2 else 1e-5, atol=3e-2 if dtype.itemsize == 2 else 1e-5)
    kinds = {(c[7], c[11], c[-2]) for c in strict.cublas.calls}
    number, adding, _ = cublas.KINDS[dtype.numpy]
    assert kinds == {(number, number, adding)}


def test_a_layer_in_bfloat16(device):  # noqa: F811
    "Nothing is brought to float32 first: the tensor cores do that."
    strict.cublas.calls.clear()
    a, w, b = (drawn(*s).bfloat16().to(device).requires_grad_() for s in ((3, 4, 8), (8, 8), (8,)))
    F.linear(a, w, b).sum().backward()
    assert len(strict.cublas.calls) == 3 and {c[7] for c in strict.cublas.calls} == {14}


def test_tensorfloat32(device):  # noqa: F811
    "Where it is allowed, float32 is multiplied in it, and nothing else is."
    pairs = [(drawn(4, 5, dtype=d).to(device), drawn(5, 4, dtype=d).to(device)) for d in (torch.float32, torch.complex64, torch.float64, torch.float16)]
    strict.cublas.calls.clear()
    torch.set_float32_matmul_precision("high")
    try:
        for a, b in pairs:
            a @ b
    finally:
        torch.set_float32_matmul_precision("highest")
    assert [c[-2] for c in strict.cublas.calls] == [77, 77, 70, 68]


def test_whole_numbers_are_left_to_cupy(device):  # noqa: F811
    strict.cublas.calls.clear()
    a = torch.arange(6).reshape(2, 3)
    assert torch.equal((a.to(device) @ a.T.to(device)).cpu(), a @ a.T) and not strict.cublas.calls


def test_what_cublas_refuses(device, monkeypatch):  # noqa: F811
    "What it does not support is CuPy's, and what goes wrong is said in PyTorch's words."
    a, b = x[0].to(device), y.to(device)
    monkeypatch.setattr(strict.Cublas, "cublasGemmStridedBatchedEx", lambda *arguments: cublas.UNSUPPORTED)
    np.testing.assert_allclose(host(a @ b), (x[0] @ y).numpy())
    monkeypatch.setattr(strict.Cublas, "cublasGemmStridedBatchedEx", lambda *arguments: 13)
    with pytest.raises(RuntimeError, match="CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmStridedBatchedEx"):
        a @ b


def test_each_thread_has_its_handle(device):  # noqa: F811
    a = x[0].to(device)
    a @ a.T
    before = strict.cublas.handles
    a @ a.T
    assert strict.cublas.handles == before
    other = threading.Thread(target=lambda: a @ a.T)
    other.start(), other.join()
    assert strict.cublas.handles == before + 1


def test_products_are_recorded(device):  # noqa: F811
    "A CUDA graph holds products too; the handle is there before it begins."
    cublas._mine.handles.clear()
    a, b = x[0].to(device), y.to(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = a @ b
    a.mul_(2)
    graph.replay()
    np.testing.assert_allclose(host(out), (2 * x[0] @ y).numpy())


def test_without_the_library(device):  # noqa: F811
    "Where cuBLAS is not found, CuPy multiplies; stacks of bfloat16, of which it has none, in float32."
    kept = list(cublas._found)
    cublas._found[:] = [None]
    try:
        for dtype in (torch.float32, torch.bfloat16):
            found = x.to(dtype).to(device) @ z[0].to(dtype).to(device)
            assert found.dtype == dtype
            np.testing.assert_allclose(host(found).astype(float), (x @ z[0]).numpy(), rtol=5e-2, atol=5e-2)
    finally:
        cublas._found[:] = kept
