"""Convolutions by cuDNN: everything around its plans, with a package that computes in NumPy at the addresses it is given; at the end, marked `gpu`, the real one beside matrix products."""

import ctypes
import itertools
import sys
import threading
import warnings
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import strict_arrays as strict
from test_device import gpu, host, stand_in, use  # noqa: F401

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.arrays import cudnn_backend
from autograd_nb.arrays import cupy_backend as backend

F = nn.functional


# A package that knows how cuDNN's is called --------------------------------------------------------------------------


class NotSupported(RuntimeError):
    "cuDNN's error of that name."


class Tensor:
    def __init__(self, dim=None, stride=None, data_type=None):
        self.dim, self.stride, self.data_type, self.uid, self.output = dim, stride, data_type, None, False

    def set_output(self, value):
        self.output = value
        return self

    def set_data_type(self, value):
        self.data_type = value
        return self

    def set_dim(self, value):
        assert isinstance(value, list) and all(isinstance(n, int) for n in value)
        self.dim = value
        return self

    def set_stride(self, value):
        assert isinstance(value, list) and all(isinstance(n, int) for n in value)
        self.stride = value
        return self

    def set_uid(self, value):
        self.uid = value

    def at(self, address):
        "The array that lies there."
        dtype = {"FLOAT": np.dtype("f4"), "HALF": np.dtype("f2"), "BFLOAT16": np.dtype(ml_dtypes.bfloat16)}[self.data_type]
        count = 1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride))
        memory = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(memory, self.dim, [s * dtype.itemsize for s in self.stride])


def seen(x, entry, outs, stride, dilation):
    return x[(..., *(slice(e * d, e * d + (o - 1) * s + 1, s) for e, o, s, d in zip(entry, outs, stride, dilation)))]


def computed(kind, a, b, shape, padding, stride, dilation):
    "The three convolutions from their definitions, in double precision, entry of the window by entry."
    a, b, out = a.astype(np.float64), b.astype(np.float64), np.zeros(shape)
    image, filters, result = dict(conv_fprop=(a, b, out), conv_dgrad=(out, b, a), conv_wgrad=(a, out, b))[kind]
    wide = [(0, 0), (0, 0), *((p, p) for p in padding)]
    groups, of = image.shape[1] // filters.shape[1], len(filters[0])
    each = len(filters) // groups
    padded = np.pad(image, wide)
    for g, entry in itertools.product(range(groups), itertools.product(*map(range, filters.shape[2:]))):
        c, f = slice(g * of, (g + 1) * of), slice(g * each, (g + 1) * each)
        part, weight, y = seen(padded[:, c], entry, result.shape[2:], stride, dilation), filters[(f, slice(None), *entry)], result[:, f]
        if kind == "conv_fprop":
            y += np.einsum("nc...,fc->nf...", part, weight)
        elif kind == "conv_dgrad":
            part += np.einsum("nf...,fc->nc...", y, weight)
        else:
            weight += np.einsum("nfp,ncp->fc", y.reshape(*y.shape[:2], -1), part.reshape(*part.shape[:2], -1))
    if kind == "conv_dgrad":
        return padded[(..., *(slice(p, padded.shape[i + 2] - p) for i, p in enumerate(padding)))]
    return out


class Package(ModuleType):
    """What `import cudnn` gives. `log` holds the methods of graphs in the order of their calls, `graphs` those that were built, `runs` (kind, stream, handle) of each execution; `refuses(graph)` says for which there is no plan; `wrong`: what results
    are multiplied with; `workspace`: bytes that plans want."""

    def __init__(self):
        super().__init__("cudnn")
        self.graphs, self.runs, self.handles, self.wrong, self.workspace, self.refuses = [], [], [], 1.0, 64, lambda graph: False
        self.data_type = SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16")
        self.numerical_note = SimpleNamespace(TENSOR_CORE="TENSOR_CORE", DOWN_CONVERT_INPUTS="DOWN_CONVERT_INPUTS", NONDETERMINISTIC="NONDETERMINISTIC")
        self.heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
        package = self

        class pygraph:
            def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle):
                assert handle in package.handles and handle.thread is threading.current_thread() and compute_data_type == intermediate_data_type == "FLOAT"
                self.io, self.log, self.unwanted = io_data_type, [], []

            def tensor(self, dim, stride, data_type):
                return Tensor(dim, stride, data_type)

            def _operation(self, kind, a, b, padding, stride, dilation):
                assert all(isinstance(v, list) and len(v) == len(a.dim) - 2 >= 2 for v in (padding, stride, dilation))
                self.kind, self.operands, self.result, self.geometry = kind, (a, b), Tensor(), (padding, stride, dilation)
                return self.result

            def conv_fprop(self, image, weight, padding, stride, dilation):
                return self._operation("conv_fprop", image, weight, padding, stride, dilation)

            def conv_dgrad(self, loss, filter, padding, stride, dilation):
                return self._operation("conv_dgrad", loss, filter, padding, stride, dilation)

            def conv_wgrad(self, image, loss, padding, stride, dilation):
                return self._operation("conv_wgrad", image, loss, padding, stride, dilation)

            def deselect_numeric_notes(self, notes):
                assert self.log[-1] == "create_execution_plans"  # before there are plans cuDNN would forget it
                self.unwanted += notes

            def build_plans(self):
                assert self.log == ["validate", "build_operation_graph", "create_execution_plans", "check_support"]
                assert self.result.output and {t.data_type for t in (*self.operands, self.result)} == {self.io}
                package.graphs.append(self)

            def create_execution_plans(self, modes):
                assert modes == ["A", "FALLBACK"]
                self.log.append("create_execution_plans")

            def check_support(self):
                self.log.append("check_support")
                if package.refuses(self):
                    raise NotSupported("no plan")

            def validate(self):
                self.log.append("validate")

            def build_operation_graph(self):
                self.log.append("build_operation_graph")

            def get_workspace_size(self):
                return package.workspace

            def execute(self, tensors, workspace, handle):
                assert handle.thread is threading.current_thread() and handle.device == strict._current[0]
                if package.workspace:
                    ctypes.memset(workspace, 0xFF, package.workspace)
                a, b, out = (t.at(tensors[t.uid]) for t in (*self.operands, self.result))
                out[...] = (computed(self.kind, a, b, self.result.dim, *self.geometry) * package.wrong).astype(out.dtype)
                package.runs.append((self.kind, handle.stream, handle))

        self.pygraph = pygraph

    def backend_version(self):
        return 92800

    def create_handle(self):
        self.handles.append(SimpleNamespace(stream=0, thread=threading.current_thread(), device=strict._current[0]))
        return self.handles[-1]

    def set_stream(self, handle, stream):
        handle.stream = stream


@pytest.fixture
def cudnn(stand_in, monkeypatch):  # noqa: F811
    "The package above, on the stand-in's arrays."
    package = Package()
    monkeypatch.setitem(sys.modules, "cudnn", package)
    use(strict.library, True, 2)
    with warnings.catch_warnings(), torch.backends.cudnn.flags(enabled=True):
        warnings.simplefilter("error")
        yield package
    use(strict.library, False, 1)


def convolved(device, x, w, bias, dtype=torch.float32, function="conv", **options):
    "A convolution and its three gradients."
    values = [torch.tensor(v).to(dtype).to(device).requires_grad_() for v in (x, w, bias)]
    name = f"{function}{x.ndim - 2}d" if function == "conv" else f"conv_transpose{x.ndim - 2}d"
    out = getattr(F, name)(*values, **options)
    start = torch.tensor(np.cos(np.arange(out.numel())).reshape(out.shape)).to(dtype).to(device)
    return [out, *torch.autograd.grad(out, values, start)]


def drawn(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def same(found, wanted, tolerance=1e-4):
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        b = b.detach()._array.astype(np.float32)
        np.testing.assert_allclose(host(a).astype(np.float32), b, atol=tolerance * abs(b).max(initial=1), rtol=0)


GEOMETRIES = {
    "plain": (((2, 3, 6, 5), (4, 3, 3, 3), (4,)), {}),
    "strided": (((2, 3, 9, 8), (4, 3, 3, 2), (4,)), dict(stride=(2, 3), padding=(1, 0))),
    "dilated": (((2, 2, 9, 8), (4, 2, 3, 2), (4,)), dict(dilation=(2, 3), padding=(2, 1))),
    "groups": (((2, 6, 5, 5), (4, 3, 3, 3), (4,)), dict(groups=2, padding=1)),
    "depthwise": (((2, 3, 5, 5), (6, 1, 3, 3), (6,)), dict(groups=3)),
    "one dimension": (((2, 3, 9), (4, 3, 3), (4,)), dict(stride=2, padding=1)),
    "three dimensions": (((2, 2, 4, 5, 3), (3, 2, 2, 3, 2), (3,)), dict(padding=(1, 0, 1))),
    "one entry": (((2, 3, 4, 4), (5, 3, 1, 1), (5,)), {}),
}
TRANSPOSED = {
    "plain": (((2, 4, 3, 4), (4, 3, 3, 2), (3,)), dict(stride=2, padding=1)),
    "groups": (((2, 4, 3, 4), (4, 2, 3, 2), (4,)), dict(stride=(1, 2), groups=2)),
    "one dimension": (((2, 4, 5), (4, 3, 3), (3,)), dict(stride=3, dilation=2)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_convolution_and_its_gradients(name, dtype, cudnn):
    shapes, options = GEOMETRIES[name]
    values = drawn(*shapes)
    for _ in range(2):  # the first is compared with the other way, the second is not
        same(convolved("cuda", *values, dtype, **options), convolved("cpu", *values, dtype, **options), {torch.float32: 1e-4, torch.float16: 1e-2}.get(dtype, 6e-2))
    assert [r[0] for r in cudnn.runs] == ["conv_fprop", "conv_dgrad", "conv_wgrad"] * 2
    assert len(cudnn.graphs) == 3 and {g.io for g in cudnn.graphs} == {{"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}[str(dtype)[6:]]}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name, cudnn):
    shapes, options = TRANSPOSED[name]
    values = drawn(*shapes)
    same(convolved("cuda", *values, function="transposed", **options), convolved("cpu", *values, function="transposed", **options))
    assert [r[0] for r in cudnn.runs] == ["conv_dgrad", "conv_fprop", "conv_wgrad"]


def test_output_padding_that_makes_room_for_more_windows(cudnn):
    "cuDNN wants the image and the result to fit each other: it does not get the two that do not. The gradient of the input does (and is cut afterwards)."
    values = drawn((2, 4, 3, 4), (4, 3, 2, 2), (3,))
    options = dict(stride=2, dilation=3, output_padding=2)
    same(convolved("cuda", *values, function="transposed", **options), convolved("cpu", *values, function="transposed", **options))
    assert [r[0] for r in cudnn.runs] == ["conv_fprop"]


@pytest.mark.skipif(strict.COMPILER is None, reason="no C++ compiler to build the kernels for the CPU")
def test_second_derivatives(cudnn):
    def twice(device):
        x, w = (torch.tensor(v).to(device).requires_grad_() for v in drawn((2, 3, 5, 5), (4, 3, 3, 3)))
        gx, gw = torch.autograd.grad(F.conv2d(x, w, padding=1).square().sum(), (x, w), create_graph=True)
        return torch.autograd.grad(gx.square().sum() + gw.square().sum(), (x, w))

    same(twice("cuda"), twice("cpu"), 1e-3)
    assert len(cudnn.runs) > 3


def test_plans_are_kept(cudnn):
    x, w, b = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    for batch in (2, 2, 1, 2):
        convolved("cuda", x[:batch], w, b)
    assert len(cudnn.graphs) == 6 and len(cudnn.runs) == 12
    convolved("cuda", x, w, b, padding=1)
    assert len(cudnn.graphs) == 9


def test_no_more_plans_than_room(cudnn, monkeypatch):
    monkeypatch.setattr(cudnn_backend, "KEPT", 2)
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    for _ in range(2):
        convolved("cuda", *values)
    assert len(cudnn.graphs) == 6 and len(cudnn_backend._mine.plans) == 2


def test_channels_last(cudnn):
    "Images whose channels lie last are used as they are, and so is the result; filters are brought into that order."
    x, w = drawn((2, 3, 6, 5), (4, 3, 3, 3))
    far = torch.tensor(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).cuda().permute(0, 3, 1, 2)
    out = F.conv2d(far, torch.tensor(w).cuda())
    assert out.permute(0, 2, 3, 1).is_contiguous() and not out.is_contiguous()
    same([out], [F.conv2d(torch.tensor(x), torch.tensor(w))])
    (graph,) = cudnn.graphs
    assert [t.stride for t in (*graph.operands, graph.result)] == [[90, 1, 15, 3], [27, 1, 9, 3], [48, 1, 12, 4]]


def test_views_are_made_dense(cudnn):
    x, w = drawn((2, 3, 6, 10), (4, 3, 3, 3))
    same([F.conv2d(torch.tensor(x).cuda()[..., ::2], torch.tensor(w).cuda())], [F.conv2d(torch.tensor(x)[..., ::2], torch.tensor(w))])
    assert len(cudnn.runs) == 1


def test_no_plan_no_error(cudnn):
    "What cuDNN has no plan for is asked for once."
    cudnn.refuses, asked = lambda graph: asked.append(graph) or graph.kind == "conv_wgrad", []
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    for _ in range(3):
        same(convolved("cuda", *values), convolved("cpu", *values))
    assert len(asked) == 3 and [r[0] for r in cudnn.runs] == ["conv_fprop", "conv_dgrad"] * 3


def test_what_goes_the_other_way(cudnn):
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    same(convolved("cuda", *values, torch.float64), convolved("cpu", *values, torch.float64))
    same(convolved("cuda", values[0][:0], *values[1:]), convolved("cpu", values[0][:0], *values[1:]))
    with torch.backends.cudnn.flags(enabled=False):
        same(convolved("cuda", *values), convolved("cpu", *values))
    convolved("cpu", *values)
    assert not cudnn.runs and not cudnn.handles


@pytest.mark.parametrize("wrong", [0.0, 1.2, float("nan")])
def test_a_wrong_result_dismisses_it(wrong, cudnn):
    "One warning, right numbers, and the other way from then on."
    cudnn.wrong = wrong
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    with pytest.warns(UserWarning, match="cuDNN 92800 computed a convolution otherwise than matrix products do") as caught:
        found = convolved("cuda", *values)
    assert len(caught) == 1 and len(cudnn.runs) == 1
    same(found, convolved("cpu", *values))
    same(convolved("cuda", *values), convolved("cpu", *values))
    assert len(cudnn.runs) == 1


def test_each_kind_is_compared_once(cudnn):
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    convolved("cuda", *values), convolved("cuda", *values, torch.float16)
    assert len(cudnn_backend._passed) == 6
    strict.transfers.clear()
    out = F.conv2d(*(torch.tensor(v).cuda() for v in values))
    assert not strict.transfers["to_host"] and out.is_cuda
    cudnn.wrong = 2.0  # nobody looks any more: that is what one comparison means
    np.testing.assert_allclose(host(F.conv2d(*(torch.tensor(v).cuda() for v in values[:2]))), 2 * host(out - torch.tensor(values[2]).cuda()[:, None, None]), rtol=1e-5)


def test_zeros_and_infinities_prove_nothing(cudnn):
    x, w, _ = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    for empty in (np.zeros_like(x), np.full_like(x, np.inf)):
        with np.errstate(invalid="ignore"):
            F.conv2d(torch.tensor(empty).cuda(), torch.tensor(w).cuda())
    assert not cudnn_backend._passed and len(cudnn.runs) == 2
    F.conv2d(torch.tensor(x).cuda(), torch.tensor(w).cuda())
    assert len(cudnn_backend._passed) == 1


def test_precision(cudnn):
    switches, values = torch.backends.cudnn, drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))

    def unwanted(dtype=torch.float32, count=3):
        before = len(cudnn.graphs)
        convolved("cuda", *values, dtype)
        assert len(cudnn.graphs) == before + count
        return {tuple(g.unwanted) for g in cudnn.graphs[before:]}

    assert switches.allow_tf32 and unwanted() == {("DOWN_CONVERT_INPUTS",)}
    with switches.flags(enabled=True, allow_tf32=False):
        assert not switches.allow_tf32 and unwanted() == {("DOWN_CONVERT_INPUTS", "TENSOR_CORE")}
        assert unwanted(torch.float16) == {("DOWN_CONVERT_INPUTS",)}
    with switches.flags(enabled=True, deterministic=True):
        assert unwanted() == {("DOWN_CONVERT_INPUTS", "NONDETERMINISTIC")}
    torch.use_deterministic_algorithms(True)
    try:
        unwanted(count=0)  # the same plans
    finally:
        torch.use_deterministic_algorithms(False)
    for name in ("conv", "cudnn", "backends"):
        where = dict(conv=switches.conv, cudnn=switches, backends=torch.backends)[name]
        with switches.flags(enabled=True):
            switches.conv.fp32_precision = switches.rnn.fp32_precision = "none"
            where.fp32_precision = "ieee"
            try:
                assert switches.conv.fp32_precision == "ieee"
                unwanted(count=0)
                where.fp32_precision = "tf32"
                assert switches.conv.fp32_precision == "tf32"
            finally:
                torch.backends.fp32_precision = "none"
    with switches.flags(enabled=True):
        switches.conv.fp32_precision = "ieee"
        with pytest.raises(RuntimeError, match="different TF32 flags"):
            _ = switches.allow_tf32
    for wrong, words in (("bad", "Unknown precision: bad"), ("bf16", "backend 'cuda' does not support precision 'bf16'")):
        with pytest.raises(RuntimeError, match=words):
            switches.conv.fp32_precision = wrong


def test_questions(cudnn, monkeypatch):
    b = torch.backends.cudnn
    assert b.is_available() and b.version() == 92800
    x = torch.ones(1, device="cuda")
    assert b.is_acceptable(x) and b.is_acceptable(x.half()) and not b.is_acceptable(x.cpu()) and not b.is_acceptable(x.long())
    with b.flags(enabled=False):
        assert not b.is_acceptable(x) and b.is_available()
    monkeypatch.setattr(cudnn, "backend_version", lambda: 1 / 0)  # the package without the library
    cudnn_backend.forget()
    assert not b.is_available() and b.version() is None and not b.is_acceptable(x)


def test_memory_of_a_plan(cudnn):
    "The workspace lives as long as the call; where there is no room for it, the other way goes piece by piece."
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3), (4,))
    cudnn.workspace = 1 << 20
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    convolved("cuda", *values)
    assert torch.cuda.max_memory_allocated() >= before + (1 << 20) and torch.cuda.memory_allocated() == before
    cudnn_backend.forget()
    cudnn.runs.clear()
    cudnn.workspace = 1 << 50
    same(convolved("cuda", *values), convolved("cpu", *values))
    assert not cudnn.runs


def test_streams_threads_and_devices(cudnn, monkeypatch):
    values = drawn((2, 3, 6, 5), (4, 3, 3, 3))
    side = torch.cuda.Stream()
    monkeypatch.setattr(side.stream, "ptr", 7, raising=False)
    far = [torch.tensor(v).cuda() for v in values]
    F.conv2d(*far)
    with torch.cuda.stream(side):
        F.conv2d(*far)
    F.conv2d(*far)
    assert [r[1] for r in cudnn.runs] == [0, 7, 0] and len(cudnn.handles) == 1
    F.conv2d(*(v.to("cuda:1") for v in far))
    assert [h.device for h in cudnn.handles] == [0, 1]
    other = threading.Thread(target=lambda: F.conv2d(*far))
    other.start(), other.join()
    assert len(cudnn.handles) == 3 and len(cudnn.runs) == 5


def test_captured_graphs_take_the_other_way_for_what_is_new(cudnn):
    x, w = (torch.tensor(v).cuda() for v in drawn((2, 3, 6, 5), (4, 3, 3, 3)))
    with torch.no_grad():
        wanted = F.conv2d(x.cpu(), w.cpu())
        for warm in (False, True):
            if warm:
                F.conv2d(x[:1], w)  # of this kind, but for another shape
            runs = len(cudnn.runs)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                out = F.conv2d(x, w)
            g.replay()
            same([out], [wanted])
            assert len(cudnn.runs) == runs


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*GEOMETRIES, *(f"transposed, {n}" for n in TRANSPOSED)])
def test_cudnn_on_gpu(name, dtype, last, tf32, gpu):  # noqa: F811
    "cuDNN beside the matrix products, in double precision on the CPU: both are near it."
    if not torch.backends.cudnn.is_available():
        pytest.skip("cuDNN or its Python package is missing: pip install 'autograd_nb[cudnn12]' (or [cudnn13])")
    function, (shapes, options) = ("transposed", TRANSPOSED[name.partition(", ")[2]]) if ", " in name else ("conv", GEOMETRIES[name])
    shapes = [shapes[0], *shapes[1:]]
    values = drawn(*shapes)
    if last and len(shapes[0]) == 4:
        values[0] = np.ascontiguousarray(values[0].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    rounded = [torch.tensor(v).to(dtype).double().numpy() for v in values]
    wanted = convolved("cpu", *rounded, torch.float64, function, **options)
    bound = {torch.float32: 1e-2 if tf32 else 1e-5, torch.float16: 1e-2}.get(dtype, 8e-2)
    assert backend.Capture.now is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a dismissal
        for enabled in (True, True, False):
            with torch.backends.cudnn.flags(enabled=enabled, allow_tf32=tf32):
                for a, b in zip(convolved(gpu, *values, dtype, function, **options), wanted, strict=True):
                    assert (a.detach().cpu().double() - b.detach()).abs().max() <= bound * b.abs().max()
    assert not cudnn_backend._dismissed and any(plan is not None for plan in cudnn_backend._mine.plans.values())
