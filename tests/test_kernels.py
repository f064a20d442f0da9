"""Fused kernels, compiled by NVIDIA's compiler from the source that CuPy would give it: neither needs a GPU, only the packages `cupy-cuda12x`, `nvidia-cuda-nvrtc-cu12` and `nvidia-cuda-runtime-cu12`."""

import ctypes
import functools
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import strict_arrays as strict
from conftest import nvrtc
from test_device import APART, FUSED_FUNCTIONS, STEPS, stand_in, trained, use  # noqa: F401
from test_device_flat import FORMULAS
from test_device_rows import CALLS

import autograd_nb as torch
from autograd_nb.arrays import cupy_backend as backend
from autograd_nb.layers.device import FUSED, FUSED_RULES
from autograd_nb.optim.device import FUSED_STEPS
from autograd_nb.graph.op import REGISTRY

pytestmark = pytest.mark.needs("nvrtc")
ARCHITECTURES = ("compute_80",)


class Captured(Exception):
    "What CuPy would have compiled."


@functools.cache
def library():
    return ctypes.CDLL(str(nvrtc()))


def folders():
    "Where CUDA's headers may lie: in the packages of NVIDIA beside the compiler."
    root = nvrtc().parents[2]
    return [str(p) for p in (root / "cuda_runtime" / "include", nvrtc().parents[1] / "include") if p.exists()]


@functools.cache
def compiled(source, options):
    "PTX code of a CUDA source. Fails with the compiler's words."
    lib, program = library(), ctypes.c_void_p()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    status = lib.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    assert status == 0, f"{log.value.decode()}\n{source[-1500:]}"
    lib.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetPTX(program, ptx)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.value.decode()


def whole(code):
    "The source that CuPy makes of a kernel's code, and its options."
    import cupy._core.core as core
    from cupy.cuda import compiler

    def capture(source, options=(), **more):
        raise Captured(source, options)

    before, compiler._compile_module_with_cache = compiler._compile_module_with_cache, capture
    try:
        core.compile_with_cache(code)
    except Captured as found:
        return found.args
    finally:
        compiler._compile_module_with_cache = before


def check(code, name):
    "Compile the code of a kernel, for each architecture."
    source, options = whole(code)
    for architecture in ARCHITECTURES:
        ptx = compiled(source, (*options, *(f"-I{f}" for f in folders()), "-ftz=true", "--device-as-default-execution-space", f"--gpu-architecture={architecture}"))
        assert f".entry {name}" in ptx


ARRAY, INDEXER, SCALAR = 1, 2, 3  # CuPy's kinds of arguments


class Elementwise(strict.ElementwiseKernel):
    "A kernel of the stand-in that is also made by CuPy and compiled: as for contiguous arrays, for others, and for arrays of more than 2**31 bytes."

    def __init__(self, in_params, out_params, operation, name="kernel"):
        import cupy

        super().__init__(in_params, out_params, operation, name)
        self.real = cupy.ElementwiseKernel(in_params, out_params, operation, name)

    def __call__(self, *args):
        import cupy
        from cupy._core import _carray, _kernel

        kinds = [None if isinstance(a, np.generic) else a.dtype.type for a in args]
        loop = [a for a, (_, n) in zip(args, self.ins + self.outs) if n not in self.raw]
        ins, outs, types = _kernel._decide_params_type(self.real.in_params, self.real.out_params, tuple(kinds[: len(self.ins)]), tuple(kinds[len(self.ins) :]))
        dims = max(np.ndim(strict.bare(a)) for a in loop) or 1
        for ndim, contiguous, short in ((1, True, True), (dims, False, True), (1, True, False)):
            infos = [_kernel._ArgInfo(SCALAR, np.dtype(t).type, np.dtype(t).type, 0, True, True) if k is None else _kernel._ArgInfo(ARRAY, cupy.ndarray, t, ndim, contiguous, short) for k, t in zip((*kinds[: len(self.ins)], *outs), (*ins, *outs), strict=True)]
            infos.append(_kernel._ArgInfo(INDEXER, _carray.Indexer, None, ndim, True, short))
            check(_kernel._get_elementwise_kernel_code(tuple(infos), types, self.real.params, self.real.operation, self.real.name, self.real.preamble), self.real.name)
        kernels.append(self.real.name)
        shape = self.shape(args)
        for out in args[len(self.ins) :]:
            out._a[...] = 0
        made = list(args[len(self.ins) :]) or [strict.ndarray(np.zeros(shape, t)) for t in outs]
        return made[0] if len(made) == 1 else tuple(made)


class Reduction(strict.ReductionKernel):
    "Likewise for a sum."

    def __init__(self, in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name="kernel"):
        import cupy

        super().__init__(in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name)
        self.real, self.ins = cupy.ReductionKernel(in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name), strict.parameters_of(in_params)

    def __call__(self, *arrays, axis=None, keepdims=False):
        import cupy
        from cupy._core import _carray, _kernel, _reduction

        real = self.real
        ins, outs, types = _kernel._decide_params_type(real.in_params, real.out_params, tuple(a.dtype.type for a in arrays), ())
        for ndim, contiguous, index in ((1, True, np.int32), (arrays[0].ndim, False, np.int64)):
            indexed = _kernel._TypeMap((*types._pairs, ("IndexT", index)))
            infos = [_kernel._ArgInfo(ARRAY, cupy.ndarray, t, ndim, contiguous, True) for t in (*ins, *outs)]
            infos += [_kernel._ArgInfo(INDEXER, _carray.Indexer, None, ndim, True, True)] * 2 + [_kernel._ArgInfo(SCALAR, np.int32, np.int32, 0, True, True)]
            code = _reduction._ReductionKernel_get_cached_function_code(real.nin, real.nout, real._params, tuple(infos), indexed, real.name, 256, real.reduce_type, real.identity, real.map_expr, real.reduce_expr, real.post_map_expr, real.preamble, real.options)
            check(code, real.name)
        kernels.append(real.name)
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        return strict.ndarray(np.zeros(backend.namespace._reduced_shape(shape, axis, keepdims), outs[0]))


class Rows(strict.RawKernel):
    "Likewise for a kernel that is a whole function."

    def __init__(self, code, name, options=()):
        super().__init__(code, name, options)
        self.code = code

    def __call__(self, grid, block, args):
        check(self.code, self.name)
        kernels.append(self.name)
        for a in args:
            if a.__class__ is strict.ndarray:
                a._a[...] = 0


kernels = []


@pytest.fixture
def device(stand_in, monkeypatch):  # noqa: F811
    monkeypatch.setattr(strict.library, "ElementwiseKernel", Elementwise)
    monkeypatch.setattr(strict.library, "ReductionKernel", Reduction)
    monkeypatch.setattr(strict.library, "RawKernel", Rows)
    use(strict.library, True, 1)
    kernels.clear()
    yield "cuda"
    use(strict.library, False, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted({*FUSED, *(op for op, _ in FUSED_RULES)} - APART))
def test_kernel_compiles(name, dtype, device):
    for statics in [s[-1] if isinstance(s[-1], dict) else {} for s in REGISTRY[name].samples]:
        x = torch.ones(2, 3, 4, dtype=dtype, device=device, requires_grad=True)
        out = REGISTRY[name](x, **({**statics, "dim": 1} if "dim" in statics else statics))
        if out.requires_grad:
            torch.autograd.grad(out, x, torch.ones_like(out))
    assert any(name in k or k == "autograd_nb_flat" for k in kernels)  # a formula has no name of its own


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUSED_FUNCTIONS)
def test_kernels_of_a_function_compile(name, dtype, device):
    shape, function = FUSED_FUNCTIONS[name]
    x = torch.ones(shape, dtype=dtype, device=device, requires_grad=True)
    function(x).sum().backward()
    assert kernels or name == "weighted likelihood"  # which is left to array language


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_rows_compile(name, dtype, device):
    out = CALLS[name](torch.ones(3, 5, 7, dtype=dtype, device=device, requires_grad=True))
    if out.requires_grad:
        out.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_compile(name, dtype, device):
    x, y = (torch.ones(2, 3, dtype=dtype, device=device, requires_grad=True) for _ in range(2))
    out = FORMULAS[name](x, y)
    out.backward(torch.ones_like(out))
    assert "autograd_nb_flat" in kernels


@pytest.mark.parametrize("masked", [False, True])
def test_attention_compiles(masked, device):
    q = torch.ones(2, 3, 4, device=device, requires_grad=True)
    mask = torch.ones(2, 3, 3, dtype=torch.bool, device=device) if masked else None
    torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
    assert any(k.startswith("autograd_nb_attention_weights") for k in kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted({n for n in STEPS if n in FUSED_STEPS} | {"decay", "maximize", "momentum", "damped"}))
def test_step_compiles(name, dtype, device):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        trained(STEPS[name], device)
    finally:
        torch.set_default_dtype(before)
    assert any(k.startswith(("autograd_nb_adam", "autograd_nb_sgd")) for k in kernels)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_draws_compile(dtype, device):
    generator = backend.DeviceGenerator(0)
    generator.uniform((5,), dtype), generator.normal((5,), dtype)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):  # then the place and the key are arrays
        generator.uniform((5,), dtype), generator.normal((5,), dtype)
    assert kernels == ["autograd_nb_uniform", "autograd_nb_normal"] * 2


def test_the_compiler_refuses_what_is_wrong(device):
    "A test that cannot fail would be none."
    kernel = strict.library.ElementwiseKernel("float32 x", "float32 y", "y = nothing_of_that_name(x)", "wrong")
    with pytest.raises(AssertionError, match='"nothing_of_that_name" is undefined'):
        kernel(strict.library.zeros(3, np.float32))


def test_headers_are_there():
    assert any((Path(f) / "cuda_fp16.h").exists() for f in folders()), "pip install nvidia-cuda-runtime-cu12"
    assert importlib.util.find_spec("cupy")
