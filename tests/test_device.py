"""Tensors on a GPU, proven without one: the stand-in of `strict_arrays.py` takes CuPy's place, so that any silent copy to the host, any mixture of libraries and any function that CuPy lacks is an error.

Tests marked `gpu`, at the end, run the same programs on the real thing where there is one.
"""

import copy
import io
import os
import pickle

import numpy as np
import pytest
import strict_arrays as strict
from test_ops_matrix import Case

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.arrays import cupy_backend as backend
from autograd_nb.graph.modes import SWITCH
from autograd_nb.graph.op import REGISTRY

F = nn.functional

# Operations that wait for numbers of the device, in the forward or the backward pass, and why. PyTorch waits in most of these, too.
WAITS = {
    **dict.fromkeys(("inv", "cofactor", "slogdet", "cholesky", "det", "solve", "pinv", "eig", "eigvals", "eigh", "eigvalsh", "svd", "svdvals"), "a factorisation that fails must raise"),
    "matrix_exp": "the number of squarings depends on the norm",
    **dict.fromkeys(("digamma", "polygamma", "zeta", "igamma", "igammac"), "series of as many terms as the numbers need (on CuPy a kernel of its own takes their place where there is one)"),
    "scatter_product": "places that repeat are multiplied round by round",
    **dict.fromkeys(("masked_scatter", "masked_gather"), "the number of places is asked"),
    **dict.fromkeys(("ldl", "ldl_solved"), "computed on the CPU, and documented so: one decision after another"),
}


def waits(case):
    "Whether an operation may wait for numbers of the device: it is one of `WAITS`, or reads at a mask, whose places must be counted."
    index = case.statics.get("index", ())
    return case.op.name in WAITS or isinstance(index, tuple) and any(isinstance(i, np.ndarray) and i.dtype.kind == "b" for i in index)


def use(library, fused, count):
    strict.devices = count
    backend.use(library, fused=fused)


@pytest.fixture(scope="module")
def stand_in():
    "The stand-in as the device library, without compiled kernels; after the tests there is no device, and the fast path is as it was."
    plain, odd, found = SWITCH.busy, SWITCH.odd, list(backend._found)
    use(strict.library, False, 1)
    yield strict
    use(None, False, 0)
    backend._found[:] = found
    SWITCH.odd = odd
    assert SWITCH.busy == plain


@pytest.fixture
def device(stand_in):
    strict.transfers.clear()
    return "cuda"


def host(t):
    "The numbers of a tensor on the stand-in, read behind its back."
    assert t._array.__class__ is strict.ndarray, "this tensor is on the host"
    return t._array._a


def same(on_host, on_device, tolerance=1e-9):
    assert on_host.dtype == on_device.dtype and on_host.shape == on_device.shape
    np.testing.assert_allclose(host(on_device), on_host.detach()._array, rtol=tolerance, atol=tolerance)


# The stand-in is strict --------------------------------------------------------------------------------------


def test_stand_in_refuses_what_cupy_refuses(device):
    a = strict.library.asarray([1.0, 2.0])
    assert strict.transfers["to_device"] == 0
    for wrong in (lambda: np.asarray(a), lambda: a + np.ones(2), lambda: np.ones(2) + a, lambda: np.sqrt(a, out=np.ones(2)), lambda: strict.library.where(a > 0, a, np.ones(2)), lambda: a[np.array([0])], lambda: a.__setitem__(0, np.ones(()))):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(NotImplementedError):
        strict.library.maximum.reduce(a)
    with pytest.raises(TypeError, match="unexpected argument"):
        strict.library.amax(a, initial=0)
    with pytest.raises(AttributeError):
        a.flags.writeable
    with pytest.raises(AttributeError):
        strict.library.vecdot
    assert strict.transfers["to_host"] == 0
    float(a[0])
    assert strict.transfers["to_host"] == 1


def test_a_silent_copy_would_be_noticed(device):
    "A kernel that goes over the host fails the matrix below: here is one."
    kernel = backend.twin(lambda x: np.asarray(x))
    assert kernel(np.ones(2)).__class__ is np.ndarray  # a function of this file is not translated
    with pytest.raises(TypeError, match="Implicit conversion"):
        kernel(strict.library.asarray([1.0]))


# Every operation ---------------------------------------------------------------------------------------------

CASES = [pytest.param(Case(op, k, sample), id=f"{op.name}-{k}") for op in REGISTRY.values() for k, sample in enumerate(op.samples) if op.name != "moved"]


@pytest.mark.parametrize("create_graph", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("case", CASES)
def test_operation(case, create_graph, device):
    "Values and gradients are those of the CPU, on the device, in a pass that is recorded too; nothing is copied to the host except where `WAITS` says so."
    xs = case.tensors(case.draw())
    outs = case.outputs(*xs)
    starts = case.cotangents([o for o in outs if o.requires_grad])
    ys, begun = [x.detach().to(device).requires_grad_(x.requires_grad) for x in xs], [s.to(device) for s in starts]
    strict.transfers.clear()
    found = case.outputs(*ys)
    if starts:
        gradients = torch.autograd.grad([o for o in found if o.requires_grad], [ys[i] for i in case.wanted], begun, create_graph=create_graph)
    copies = strict.transfers["to_host"]
    slow = case.op.slowly(*ys, **case.statics)
    for a, b, c in zip(outs, found, slow if isinstance(slow, tuple) else (slow,), strict=True):
        same(a, b), same(a, c)
        assert (b.grad_fn and b.grad_fn.name()) == (c.grad_fn and c.grad_fn.name()) == (a.grad_fn and a.grad_fn.name())
    if starts:
        for a, b in zip(torch.autograd.grad([o for o in outs if o.requires_grad], [xs[i] for i in case.wanted], starts), gradients, strict=True):
            same(a, b)
    if not waits(case):
        assert copies == 0, f"{copies} copies to the host"


@pytest.mark.parametrize("case", [c for c in CASES if c.values[0].op.rules and c.values[0].op.name not in WAITS])
def test_second_derivative(case, device):
    "The derivative of the gradient, along random directions, is that of the CPU."

    def second(place):
        xs = [x.detach().to(place).requires_grad_(x.requires_grad) for x in case.tensors(case.draw())]
        outs = [o for o in case.outputs(*xs) if o.requires_grad]
        first = torch.autograd.grad(outs, [xs[i] for i in case.wanted], [s.to(place) for s in case.cotangents(outs)], create_graph=True)
        along = [u.to(place) for u in case.cotangents(first, seed=2)]
        total = sum((g * u).sum() for g, u in zip(first, along))
        total = total.real if total.is_complex() else total
        return torch.autograd.grad(total, [xs[i] for i in case.wanted], materialize_grads=True) if total.requires_grad else ()

    for a, b in zip(second("cpu"), second(device), strict=True):
        same(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.complex64], ids=str)
def test_dtypes_and_promotion(dtype, device):
    x = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=dtype)
    y = x.to(device)
    for f in (lambda t: t + 1, lambda t: t * 2.5, lambda t: t + t.to(torch.float64), lambda t: t @ t.mT if dtype is not torch.float16 else t, lambda t: t.sum(0), lambda t: t / 2, lambda t: t == 2, lambda t: t.prod()):
        a, b = f(x), f(y)
        assert a.dtype == b.dtype
        same(a, b, 1e-3)


# Modules, losses, optimisers ---------------------------------------------------------------------------------

LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4)), "conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 2, 6, 5)), "conv2d grouped": (lambda: nn.Conv2d(2, 4, 3, stride=2, groups=2), (2, 2, 6, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), (2, 2, 4, 4)), "conv1d": (lambda: nn.Conv1d(2, 3, 2, dilation=2), (2, 2, 6)), "batch norm": (lambda: nn.BatchNorm2d(2), (3, 2, 4, 4)),
    "layer norm": (lambda: nn.LayerNorm(4), (5, 4)), "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)), "instance norm": (lambda: nn.InstanceNorm2d(2), (3, 2, 4, 4)), "rms norm": (lambda: nn.RMSNorm(4), (5, 4)),
    "max pool": (lambda: nn.MaxPool2d(2, padding=1), (2, 2, 4, 6)), "average pool": (lambda: nn.AvgPool2d(2), (2, 2, 4, 6)), "adaptive": (lambda: nn.AdaptiveAvgPool2d(2), (2, 2, 5, 6)),
    "gelu": (nn.GELU, (3, 4)), "silu": (nn.SiLU, (3, 4)), "softmax": (lambda: nn.Softmax(-1), (3, 4)), "prelu": (nn.PReLU, (3, 4)), "glu": (nn.GLU, (3, 4)),
    "lstm": (lambda: nn.LSTM(4, 3), (5, 2, 4)), "gru": (lambda: nn.GRU(4, 3), (5, 2, 4)), "rnn": (lambda: nn.RNN(4, 3), (5, 2, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 5, 4)), "nearest": (lambda: nn.Upsample(scale_factor=2), (2, 2, 3, 3)),
    "bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 2, 3, 3)), "unfold": (lambda: nn.Unfold(2), (2, 2, 4, 4)), "reflection": (lambda: nn.ReflectionPad2d(1), (2, 2, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_module(name, device):
    "`module.to('cuda')` computes there what it computes on the CPU: results, gradients of inputs and parameters, buffers; without a copy to the host."
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    here, x = make(), torch.randn(*shape, requires_grad=True)
    there, y = copy.deepcopy(here).to(device), x.detach().to(device).requires_grad_()
    strict.transfers.clear()
    a, b = here(x), there(y)
    a, b = (a[0], b[0]) if isinstance(a, tuple) else (a, b)
    a.square().sum().backward(), b.square().sum().backward()
    assert strict.transfers["to_host"] == 0
    same(a, b, 1e-5), same(x.grad, y.grad, 1e-4)
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        same(p.grad, q.grad, 1e-4)
    for p, q in zip(here.buffers(), there.buffers(), strict=True):
        same(p, q, 1e-5)
    assert all(not p.is_cuda for p in there.cpu().parameters())


LOSSES = {
    "cross entropy": (nn.CrossEntropyLoss(), "classes"), "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), "classes"), "nll": (nn.NLLLoss(), "classes"), "margin": (nn.MultiMarginLoss(), "classes"), "mse": (nn.MSELoss(), "numbers"),
    "l1": (nn.L1Loss(), "numbers"), "smooth l1": (nn.SmoothL1Loss(), "numbers"), "huber": (nn.HuberLoss(), "numbers"), "bce": (nn.BCEWithLogitsLoss(), "chances"), "poisson": (nn.PoissonNLLLoss(), "chances"), "kl": (nn.KLDivLoss(reduction="batchmean"), "chances"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, device):
    loss, kind = LOSSES[name]
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    y = {"classes": torch.tensor([0, 2, 1, 1]), "numbers": torch.randn(4, 3), "chances": torch.rand(4, 3)}[kind]
    a, b = x.clone().requires_grad_(), x.to(device).requires_grad_()
    here, there = loss(a, y), loss(b, y.to(device))
    here.backward(), there.backward()
    same(here, there, 1e-5), same(a.grad, b.grad, 1e-5)


STEPS = {name: (lambda ps, kind=getattr(torch.optim, name): kind(ps, lr=0.01)) for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS", "Adafactor")}
STEPS |= {
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1), "amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True, weight_decay=0.1),
    "decay": lambda ps: torch.optim.Adam(ps, lr=0.01, weight_decay=0.1), "maximize": lambda ps: torch.optim.AdamW(ps, lr=0.01, maximize=True),
}  # fmt: skip


def trained(make, place):
    "Two parameters after three steps on `place`, and the optimiser."
    torch.manual_seed(0)
    x, parameters = torch.randn(5, 4), [nn.Parameter(torch.randn(s).to(place)) for s in ((4, 3), (3,))]
    x, optimizer = x.to(place), make(parameters)

    def closure():
        optimizer.zero_grad()
        loss = (x @ parameters[0] + parameters[1]).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return parameters, optimizer


@pytest.mark.parametrize("name", STEPS)
def test_optimizer(name, device):
    here, _ = trained(STEPS[name], "cpu")
    strict.transfers.clear()
    there, optimizer = trained(STEPS[name], device)
    if name not in ("LBFGS", "Adafactor"):  # their steps depend on norms
        assert strict.transfers["to_host"] == 0
    for p, q in zip(here, there, strict=True):
        same(p, q, 1e-5)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert all(v.is_cuda for p in there for k, v in optimizer.state[p].items() if isinstance(v, torch.Tensor) and v.dim())


def test_mixed_precision_step(device):
    model, scaler = nn.Linear(4, 3).to(device), torch.amp.GradScaler(init_scale=4.0, growth_interval=1)
    optimizer, before = torch.optim.SGD(model.parameters(), lr=0.1), model.weight.detach().clone()
    with torch.autocast("cuda"):
        out = model(torch.ones(5, 4, device=device))
        loss = out.float().square().mean()
    assert out.dtype is torch.float16
    scaler.scale(loss).backward()
    scaler.step(optimizer), scaler.update()
    assert model.weight.dtype is torch.float32 and not torch.equal(model.weight, before) and scaler.get_scale() == 8.0
    model.weight.grad = torch.full_like(model.weight, float("inf"))
    before = model.weight.detach().clone()
    scaler.step(optimizer), scaler.update()
    assert torch.equal(model.weight, before) and scaler.get_scale() == 4.0


def test_clipping(device):
    p = nn.Parameter(torch.tensor([3.0, 4.0], device=device))
    (p * torch.tensor([30.0, 40.0], device=device)).sum().backward()
    strict.transfers.clear()
    norm = nn.utils.clip_grad_norm_([p], 1.0)
    assert strict.transfers["to_host"] == 0 and norm.is_cuda and norm.item() == 50.0
    np.testing.assert_allclose(host(p.grad), [0.6, 0.8], rtol=1e-5)


# Where tensors live ------------------------------------------------------------------------------------------


def test_placement(device):
    x = torch.randn(3, requires_grad=True)
    y = x.to(device)
    assert (y.device, y.is_cuda, y.get_device()) == (torch.device("cuda", 0), True, 0) and y.to("cuda:0") is y and x.cpu() is x
    assert x.cuda().device == x.to(0).device == torch.zeros(2, device=torch.device("cuda")).device == y.new_ones(2).device == torch.zeros_like(y).device
    (y * 2).sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [2.0, 2.0, 2.0]
    for made in (torch.ones(2, device=device), torch.full((2,), 3, device=device), torch.eye(2, device=device), torch.arange(3, device=device), torch.linspace(0, 1, 3, device=device), torch.tensor([1, 2], device=device), torch.as_tensor([1.0], device=device)):
        host(made)
    assert y.to("cpu", torch.float64).dtype is torch.float64 and repr(torch.ones(1, device=device)) == "tensor([1.], device='cuda:0')"
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        x.to("cuda:7")


def test_leaving_the_device_is_asked_for(device):
    x = torch.ones(2, device=device)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\\(\\) to copy the tensor to host memory first."):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        np.asarray(x)
    assert x.cpu().numpy().tolist() == x.tolist() == [1.0, 1.0] and x.sum().item() == 2.0


def test_mixed_devices(device):
    words = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    x = torch.ones(2, device=device)
    for wrong in (lambda: x + torch.ones(2), lambda: F.linear(x, torch.ones(3, 2)), lambda: torch.cat([x, torch.ones(2)]), lambda: x @ torch.ones(2)):
        with pytest.raises(RuntimeError, match=words):
            wrong()
    with pytest.raises(RuntimeError, match="found at least two devices, cpu and cuda:0!"):
        torch.ones(2) * x
    s = torch.tensor(2.0, requires_grad=True)  # without dimensions it comes along
    (x * s).sum().backward()
    assert s.grad.device.type == "cpu" and s.grad.item() == 2.0
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device cuda:0 but got cpu"):
        x.clone().requires_grad_().exp().backward(torch.ones(2))


def test_indexing_and_writing(device):
    x = torch.arange(12.0).reshape(3, 4)
    y = x.to(device)
    rows = torch.tensor([0, 2])
    for a, b in ((x[x > 5], y[y > 5]), (x[rows], y[rows.to(device)]), (x[rows], y[rows]), (x[[0, 2], 1], y[[0, 2], 1]), (x[1:, ::2], y[1:, ::2]), (x[..., None], y[..., None])):
        same(a, b)
    for t in (x, y):
        t[0] = 5.0
        t[t > 7] = 0.0
        t[:, 1] = torch.ones(3, device=t.device)
        t[rows.to(t.device), 2] += 1
        t.mul_(2).add_(1)
    same(x, y)
    a = torch.ones(4, requires_grad=True)
    b = torch.ones(4, device=device, requires_grad=True)
    for t in (a, b):
        v = t * 3
        v[1:].mul_(2)
        v.sum().backward()
    same(a.grad, b.grad)
    w = b * 1
    out = w.exp()
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_chance(device):
    torch.manual_seed(3)
    first = torch.randn(1000, device=device)
    torch.manual_seed(3)
    assert torch.equal(first, torch.randn(1000, device=device)) and abs(host(first).mean()) < 0.15 and abs(host(first).std() - 1) < 0.1
    generator = backend.generator_of(0)
    state, u = generator.get_state(), host(torch.rand(5000, device=device, dtype=torch.float64))
    generator.set_state(state)
    assert (host(torch.rand(5000, device=device, dtype=torch.float64)) == u).all() and 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert sorted(host(torch.randperm(50, device=device))) == list(range(50)) and set(host(torch.randint(0, 3, (200,), device=device))) == {0, 1, 2}
    kept = host(F.dropout(torch.ones(4000, device=device), 0.25))
    assert abs((kept > 0).mean() - 0.75) < 0.05 and set(np.round(kept, 5)) == {0.0, np.float32(1.33333)}
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(2, device=device, generator=torch.Generator())


def test_philox_is_the_published_function():
    "The test vector for key and counter zero that comes with Random123 (Salmon and others, 2011)."
    zero = [int(w[0]) for w in backend.philox(0, np.zeros(1, np.uint64), np)]
    assert [hex(w) for w in zero] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_files_and_copies(device):
    model, file = nn.Linear(2, 2).to(device), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    assert torch.load(file)["weight"].is_cuda
    file.seek(0)
    here = torch.load(file, map_location="cpu")["weight"]
    same(here, model.weight)
    again = nn.Linear(2, 2)
    again.load_state_dict(model.state_dict())
    same(again.weight, model.weight)
    assert not again.weight.is_cuda and copy.deepcopy(model).weight.is_cuda and pickle.loads(pickle.dumps(model.weight.detach())).is_cuda


def test_higher_derivatives_and_transforms(device):
    from autograd_nb.utils.checkpoint import checkpoint

    y = torch.randn(3, device=device, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    g.sum().backward()
    np.testing.assert_allclose(host(y.grad), 6 * host(y))
    x = y.detach()
    np.testing.assert_allclose(host(torch.func.jacrev(lambda t: t**2)(x)), np.diag(2 * host(x)))
    np.testing.assert_allclose(host(torch.func.vmap(lambda t: t * 2)(x)), 2 * host(x))
    np.testing.assert_allclose(host(torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]), np.cos(host(x)))
    y.grad = None
    checkpoint(lambda t: t.exp().sin(), y, use_reentrant=False).sum().backward()
    np.testing.assert_allclose(host(y.grad), np.cos(np.exp(host(y))) * np.exp(host(y)))


def test_hooks_and_accumulation(device):
    y, seen = torch.ones(3, device=device, requires_grad=True), []
    z = y * 2
    z.register_hook(lambda g: seen.append(g.is_cuda) or g * 10)
    z.retain_grad()
    (z + z).sum().backward(retain_graph=True)
    (z + z).sum().backward()
    assert seen == [True, True] and host(y.grad).tolist() == [80.0] * 3 and z.grad.is_cuda


def test_several_devices(device):
    "Computing follows the tensors to the device they live on, in both passes."
    use(strict.library, False, 2)
    try:
        x = torch.arange(3.0, requires_grad=True)
        y = x.to("cuda:1")
        out = (y * 2).exp().sum()
        assert str(out.device) == "cuda:1" and torch.cuda.current_device() == 0
        out.backward()
        np.testing.assert_allclose(x.grad._array, 2 * np.exp(2 * np.arange(3.0)), rtol=1e-6)
        with pytest.raises(RuntimeError, match="two devices, cuda:1 and cuda:0!"):
            y + x.to("cuda:0")
        with torch.cuda.device(1):
            assert str(torch.ones(1, device="cuda").device) == "cuda:1"
    finally:
        use(strict.library, False, 1)


# The functions of `cuda` -------------------------------------------------------------------------------------


def test_cuda_functions(device):
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.get_device_name() == "Strict stand-in" and torch.cuda.get_device_capability() == (9, 0)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(), end.record(), end.synchronize()
    assert start.elapsed_time(end) >= 0
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.cuda.Event().elapsed_time(end)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    assert len(side.stream.waited) == 1
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_memory_figures(device):
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1000, device=device)
    assert torch.cuda.memory_allocated() == before + 4000
    y = x + 1
    del y
    assert torch.cuda.memory_allocated() == before + 4000 and torch.cuda.max_memory_allocated() == before + 8000
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before + 4000 and stats["allocated_bytes.all.peak"] == before + 8000
    assert "float32[1000], a tensor" in torch.cuda.memory_summary()


def test_out_of_memory(device):
    "What was asked, what is free, what holds most."
    held = torch.ones(300_000, device=device, requires_grad=True)
    kept = held.exp()
    strict.pool.set_limit(strict.pool.used + 1_000_000)
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.zeros(1_000_000, device=device)
    finally:
        strict.pool.set_limit(None)
    text = str(caught.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 3.8 MiB. GPU 0 has a total capacity of") and "of which 976.6 KiB is free" in text
    assert "float32[300000], saved by ExpBackward0" in text and isinstance(caught.value, RuntimeError) and kept.is_cuda


def test_pinned_memory(device):
    x = torch.arange(4.0).pin_memory()
    assert x.is_pinned() and x.pin_memory() is x and not torch.ones(1).is_pinned() and x[1:].is_pinned()
    y = x.to(device, non_blocking=True)
    torch.cuda.synchronize()
    assert y.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        y.pin_memory()


def test_dlpack(device):
    x = torch.ones(2, device=device)
    assert x.__dlpack_device__() == (2, 0)
    y = torch.from_dlpack(x._array)
    y.add_(1)
    assert x.tolist() == [2.0, 2.0]


# Fused kernels -----------------------------------------------------------------------------------------------

compiler = pytest.mark.skipif(strict.COMPILER is None, reason="no C++ compiler to build the kernels for the CPU")


@compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted({*backend.FUSED, *(op for op, _ in backend.FUSED_RULES)}))
def test_fused_kernel_is_the_definition(name, dtype, device):
    "The code of a fused kernel, compiled for the CPU, agrees with the operation in array language, in value and gradient."

    def both():
        results = []
        for statics in [s[-1] if isinstance(s[-1], dict) else {} for s in REGISTRY[name].samples]:
            x = torch.linspace(-4, 4, 24, dtype=torch.float64).reshape(4, 6).to(dtype).to(device).requires_grad_()
            out = REGISTRY[name](x, **({**statics, "dim": 1} if "dim" in statics else statics))
            g = torch.autograd.grad(out, x, torch.linspace(1, 2, 24, dtype=torch.float64).reshape(4, 6).to(dtype).to(device))[0] if out.requires_grad else out
            assert out.dtype is g.dtype is dtype
            results += [host(out).copy(), host(g).copy()]
        return results

    plain = both()
    use(strict.library, True, 1)
    try:
        fused = both()
    finally:
        use(strict.library, False, 1)
    for a, b in zip(plain, fused, strict=True):
        tolerance = {2: 4e-3, 4: 2e-6, 8: 1e-12}[a.itemsize]
        np.testing.assert_allclose(b.astype(float), a.astype(float), rtol=tolerance, atol=tolerance)


@compiler
@pytest.mark.parametrize("name", ["Adam", "AdamW", "decay", "maximize", "amsgrad"])
def test_fused_step_is_the_definition(name, device):
    use(strict.library, True, 1)
    try:
        there, _ = trained(STEPS[name], device)
        for p, q in zip(trained(STEPS[name], "cpu")[0], there, strict=True):
            same(p, q, 1e-6)
    finally:
        use(strict.library, False, 1)


# Products ----------------------------------------------------------------------------------------------------


def test_half_precision_products(device, monkeypatch):
    "Stacks of half-precision matrices are multiplied as one where they can be, matrix by matrix where they are large."
    rng = np.random.default_rng(0)
    calls, matmul = [], strict.library.matmul
    monkeypatch.setattr(strict.library, "matmul", lambda x, y: calls.append((x.ndim, y.ndim)) or matmul(x, y))
    monkeypatch.setattr(backend, "LARGE", 100)
    a, b, c = (strict.library.asarray(rng.standard_normal(s).astype(np.float16)) for s in ((2, 3, 4, 5), (5, 6), (3, 5, 6)))
    for x, y in ((a, b), (a, c), (c.swapaxes(1, 2), c)):
        calls.clear()
        out = backend.product(x, y)
        np.testing.assert_allclose(out._a.astype(float), x._a.astype(float) @ y._a.astype(float), atol=2e-2)
        assert out.dtype == np.float16 and set(calls) == {(2, 2)}


def test_precision_setting():
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.get_float32_matmul_precision() == "high"
    torch.backends.cuda.matmul.allow_tf32 = False
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(RuntimeError, match="low is not one of 'highest', 'high', or 'medium'"):
        torch.set_float32_matmul_precision("low")
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")


# Without a GPU -----------------------------------------------------------------------------------------------


def test_errors_without_a_gpu(monkeypatch):
    "One line says what to install; questions are answered."
    assert backend.Device.library is None or backend.Device.library is strict.library
    monkeypatch.setattr(backend.Device, "library", None)
    monkeypatch.setattr(backend, "_found", [backend._problem(ModuleNotFoundError("No module named 'cupy'"))])
    x = torch.ones(2)
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0 and torch.cuda.memory_allocated() == 0 and torch.cuda.memory_stats() == {}
    for wrong, kind, words in ((lambda: x.to("cuda"), RuntimeError, "No CUDA GPUs are available"), (lambda: x.cuda(), AssertionError, "Torch not compiled with CUDA enabled"), (lambda: torch.zeros(1, device="cuda"), RuntimeError, "No CUDA GPUs are available"), (torch.cuda.synchronize, RuntimeError, "Torch not compiled")):
        with pytest.raises(kind, match=words) as caught:
            wrong()
        (line,) = [s for s in str(caught.value).splitlines() if "install" in s]
        assert "pip install 'autograd_nb[cuda12]'" in line
    assert "install the NVIDIA driver" in backend._problem(RuntimeError("cudaErrorInsufficientDriver"))


# On a GPU ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu():
    "The real device; CuPy must be installed, and find a GPU."
    why = backend.find() if backend.Device.library is not strict.library else "the stand-in is in its place"
    if why:
        pytest.skip(why if not os.environ.get("AUTOGRAD_NB_NEEDS_GPU") else pytest.fail(why))
    return "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_operation_on_gpu(case, gpu):
    xs = case.tensors(case.draw())
    outs = case.outputs(*xs)
    starts = case.cotangents([o for o in outs if o.requires_grad])
    ys = [x.detach().to(gpu).requires_grad_(x.requires_grad) for x in xs]
    found = case.outputs(*ys)
    for a, b in zip(outs, found, strict=True):
        torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-6, atol=1e-6)
    if starts:
        wanted = torch.autograd.grad([o for o in outs if o.requires_grad], [xs[i] for i in case.wanted], starts)
        for a, b in zip(wanted, torch.autograd.grad([o for o in found if o.requires_grad], [ys[i] for i in case.wanted], [s.to(gpu) for s in starts]), strict=True):
            torch.testing.assert_close(b.cpu(), a, rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LAYERS)
def test_module_on_gpu(name, gpu):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    here, x = make(), torch.randn(*shape, requires_grad=True)
    there, y = copy.deepcopy(here).to(gpu), x.detach().to(gpu).requires_grad_()
    a, b = here(x), there(y)
    a, b = (a[0], b[0]) if isinstance(a, tuple) else (a, b)
    a.square().sum().backward(), b.square().sum().backward()
    torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", STEPS)
def test_optimizer_on_gpu(name, gpu):
    for p, q in zip(trained(STEPS[name], "cpu")[0], trained(STEPS[name], gpu)[0], strict=True):
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_memory_and_time_on_gpu(gpu):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1 << 20, device=gpu)
    assert torch.cuda.memory_allocated() >= before + 4 * (1 << 20) and torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    (x + 1).sum()
    end.record(), end.synchronize()
    assert start.elapsed_time(end) > 0 and torch.cuda.get_device_name()
