"""Tensors on a GPU, proven without one: the stand-in of `strict_arrays.py` takes CuPy's place, so that any silent copy to the host, any mixture of libraries and any function that CuPy lacks is an error.

Tests marked `gpu`, at the end, run the same programs on the real thing where there is one.
"""

import copy
import importlib
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import strict_arrays as strict
from test_ops_matrix import Case

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.arrays import cublas
from autograd_nb.arrays import cupy_backend as backend
from autograd_nb.layers.device import FUSED, FUSED_RULES
from autograd_nb.ops.kernels.device import SPECIAL
from autograd_nb.graph.modes import SWITCH
from autograd_nb.graph.apply import Call, plainly
from autograd_nb.graph.op import REGISTRY
from autograd_nb.layers.device import where_it_lives

F = nn.functional

# Operations that wait for numbers of the device, in the forward or the backward pass, and why. PyTorch waits in most of these, too.
WAITS = {
    **dict.fromkeys(("inv", "cofactor", "slogdet", "cholesky", "cholesky_solve", "cholesky_inverse", "det", "solve", "pinv", "eig", "eigvals", "eigh", "eigvalsh", "svd", "svdvals"), "a factorisation that fails must raise"),
    "matrix_exp": "the number of squarings depends on the norm",
    **dict.fromkeys(("digamma", "polygamma", "zeta", "igamma", "igammac"), "series of as many terms as the numbers need (on CuPy a kernel of its own takes their place where there is one)"),
    "scatter_product": "places that repeat are multiplied round by round",
    **dict.fromkeys(("masked_scatter", "masked_gather"), "the number of places is asked"),
    **dict.fromkeys(("ldl", "ldl_solved", "failing_minor"), "computed on the CPU, and documented so: one decision after another"),
}


def waits(case):
    "Whether an operation may wait for numbers of the device: it is one of `WAITS`, or reads at a mask, whose places must be counted."
    index = case.statics.get("index", ())
    return case.op.name in WAITS or isinstance(index, tuple) and any(isinstance(i, np.ndarray) and i.dtype.kind == "b" for i in index)


def use(library, fused, count):
    strict.devices = count
    backend.use(library, fused=fused)
    if library is not None:
        cublas._found[:] = [strict.cublas]


def plain_and_fused(results):
    "Pairs of what `results()` gives without and with fused kernels."
    plain = results()
    use(strict.library, True, 1)
    try:
        return list(zip(plain, results(), strict=True))
    finally:
        use(strict.library, False, 1)


@pytest.fixture(scope="module")
def stand_in():
    "The stand-in as the device library, without compiled kernels; after the tests there is no device, and the fast path is as it was."
    found = list(backend.library._found)
    use(strict.library, False, 1)
    yield strict
    use(None, False, 0)
    backend.library._found[:] = found
    assert "device" not in SWITCH.guards


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
    kernel = backend.rebind_to_device(lambda x: np.asarray(x))
    assert kernel(np.ones(2)).__class__ is np.ndarray  # a function of this file is not translated
    with pytest.raises(TypeError, match="Implicit conversion"):
        kernel(strict.library.asarray([1.0]))


def test_sums_of_sixteen_bits_on_the_device(device):
    "CuPy adds such numbers up in float32, and so does its stand-in: sums, products and means, by every name."
    ones = strict.library.asarray(np.ones(4096, np.float16))
    for short in (np.dtype("float16"), torch.bfloat16.numpy):
        a = ones.astype(short)
        for found in (a.sum(), a.sum(0, None, None, True), strict.library.sum(a), strict.library.sum(a.reshape(4096, 1), axis=0), strict.library.add.reduce(a)):
            assert found.dtype == short and float(found.reshape(())) == 4096
        assert float(a.mean()) == 1 and float((a * a).prod()) == 1


# Every operation ---------------------------------------------------------------------------------------------

CASES = [pytest.param(Case(op, k, sample), id=f"{op.name}-{k}") for op in REGISTRY.values() for k, sample in enumerate(op.samples) if op.name != "moved"]


def test_numbers_of_numpy_are_the_same_for_kernels_of_the_device(device):
    numbers = {name: value for name, value in vars(np).items() if isinstance(value, float)}
    assert {"pi", "e", "inf", "nan", "euler_gamma"} <= set(numbers)
    assert {name: getattr(backend.device_xp, name) for name in numbers} == numbers


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
    slow = where_it_lives(Call(case.op, ys, case.statics), plainly)  # not by the code that is compiled for the device
    for a, b, c in zip(outs, found, slow if isinstance(slow, tuple) else (slow,), strict=True):
        same(a, b), same(a, c)
        assert (b.grad_fn and b.grad_fn.name()) == (c.grad_fn and c.grad_fn.name()) == (a.grad_fn and a.grad_fn.name())
    if starts:
        for a, b in zip(torch.autograd.grad([o for o in outs if o.requires_grad], [xs[i] for i in case.wanted], starts), gradients, strict=True):
            same(a, b)
    if not waits(case):
        assert copies == 0, f"{copies} copies to the host"


def second_derivatives(case, place):
    "The derivative of the gradient along random directions."
    xs = [x.detach().to(place).requires_grad_(x.requires_grad) for x in case.tensors(case.draw())]
    outs = [o for o in case.outputs(*xs) if o.requires_grad]
    first = torch.autograd.grad(outs, [xs[i] for i in case.wanted], [s.to(place) for s in case.cotangents(outs)], create_graph=True)
    along = [u.to(place) for u in case.cotangents(first, seed=2)]
    total = sum((g * u).sum() for g, u in zip(first, along))
    total = total.real if total.is_complex() else total
    return torch.autograd.grad(total, [xs[i] for i in case.wanted], materialize_grads=True) if total.requires_grad else ()


TWICE = [c for c in CASES if c.values[0].op.rules and c.values[0].op.name not in {*WAITS, "hardsigmoid"}]  # whose second derivative PyTorch refuses, too


@pytest.mark.parametrize("case", TWICE)
def test_second_derivative(case, device):
    for a, b in zip(second_derivatives(case, "cpu"), second_derivatives(case, device), strict=True):
        same(a, b)


def settled(case, outs):
    "The results of an operation; of vectors that are determined up to a factor of size 1, their absolute values."
    return [o.abs() if o.dim() > 1 and case.op.name in ("eig", "eigh", "svd") else o for o in outs]


def in_single(case, place):
    "An operation and its gradients, computed on `place` in single precision."
    single = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    xs = [x.detach().to(single.get(x.dtype, x.dtype)).to(place).requires_grad_(x.requires_grad) for x in case.tensors(case.draw())]
    outs = settled(case, case.outputs(*xs))
    ends = [o for o in outs if o.requires_grad]
    starts = [s.to(e.dtype).to(place) for s, e in zip(case.cotangents(ends), ends)]
    return (*outs, *(torch.autograd.grad(ends, [xs[i] for i in case.wanted], starts) if ends else ()))


@pytest.mark.parametrize("case", CASES)
def test_operation_in_single_precision(case, device):
    "Dtypes are those of the CPU: nothing becomes double on the way, forward or backward."
    for a, b in zip(in_single(case, "cpu"), in_single(case, device), strict=True):
        same(a, b, 2e-2)


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
    loss_agrees(name, device, lambda a, b: same(a, b, 1e-5))


def loss_agrees(name, device, near):
    loss, kind = LOSSES[name]
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    y = {"classes": torch.tensor([0, 2, 1, 1]), "numbers": torch.randn(4, 3), "chances": torch.rand(4, 3)}[kind]
    a, b = x.clone().requires_grad_(), x.to(device).requires_grad_()
    here, there = loss(a, y), loss(b, y.to(device))
    here.backward(), there.backward()
    near(here, there), near(a.grad, b.grad)


STEPS = {name: (lambda ps, kind=getattr(torch.optim, name): kind(ps, lr=0.01)) for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS", "Adafactor")}
STEPS |= {
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1), "damped": lambda ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9, dampening=0.2, maximize=True), "amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True, weight_decay=0.1),
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


@pytest.mark.parametrize("kind", [2.0, 1.0, 0.0, 0.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_total_norms(kind, dtype, device):
    "The dtype is that of the numbers, whose squares may be too large for it."
    values = [torch.tensor([300.0, -4.0, 0.5] * 100).to(getattr(torch, dtype)), torch.tensor([[0.25]]).to(getattr(torch, dtype))]
    expected = nn.utils.get_total_norm(values, kind)
    strict.transfers.clear()
    found = nn.utils.get_total_norm([v.to(device) for v in values], kind)
    assert strict.transfers["to_host"] == 0
    same(expected, found, 1e-2 if dtype == "bfloat16" else 2e-3 if dtype == "float16" else 1e-9)


# Where tensors live ------------------------------------------------------------------------------------------


CREATED = {
    "zeros": (3,), "ones": (3,), "eye": (3,), "arange": (5,), "range": (0, 4), "linspace": (0, 1, 5), "logspace": (0, 1, 5), "rand": (3,), "randn": (3,), "randperm": (5,), "full": ((3,), 2.0), "randint": (0, 5, (3,)),
}


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("name", CREATED)
def test_new_numbers_in_memory_that_is_given(name, device):
    "They are made where `out` lives; another device than that is refused."
    make, args = getattr(torch, name), CREATED[name]
    out = torch.empty(0, dtype=torch.int64 if name in ("randperm", "randint") else torch.float32, device=device)
    assert make(*args, out=out) is out and out.is_cuda
    if name[:4] != "rand":
        same(make(*args, dtype=out.dtype), out, 1e-6)
    for elsewhere, there in (("cpu", out), (device, torch.empty(0, dtype=out.dtype))):
        with pytest.raises(RuntimeError, match="does not match device type of out parameter"):
            make(*args, out=there, device=elsewhere)


def test_a_number_of_the_cpu_in_the_place_of_numbers(device):
    "It is taken along, and so is its gradient back; what has dimensions is not."
    x, mask = torch.arange(6.0, device=device).reshape(2, 3), torch.tensor([[True, False, True], [False, True, False]], device=device)
    index = torch.tensor([1], device=device)
    for fill in (lambda x, v: x.masked_fill(mask.to(x.device), v), lambda x, v: x.clone().fill_(v), lambda x, v: x.index_fill(0, index.to(x.device), v), lambda x, v: x.clone().masked_fill_(mask.to(x.device), v)):
        one, other = (torch.tensor(5.0, requires_grad=True) for _ in range(2))
        expected, found = fill(x.cpu(), one), fill(x, other)
        same(expected, found)
        expected.sum().backward(), found.sum().backward()
        assert other.grad.device.type == "cpu" and torch.equal(one.grad, other.grad)
    with pytest.raises(RuntimeError):
        x.masked_fill(mask, torch.tensor([5.0]))


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



LARGE = """
fft.fft(x) fft.ifft(x) fft.rfft(x) fft.fft2(x) fft.fftn(x) fft.irfft(fft.rfft(x)) fft.irfft2(fft.rfft2(x)) x.cumsum(1) x.cumsum(0) x.cumprod(1) x.cummax(1)[0]
x.cummin(0)[0] x.triu() x.tril(-1) x.half() x.bfloat16() x.half().float() x.bfloat16().float() x.clamp(-0.5,0.5) x.clamp(min=0) x%0.3 x.detach()//0.3 fmod(x,0.3) remainder(x,x+3)
x.flip(1) x.flip(0) x.nan_to_num() histc(x) x.median() x.median(1)[0] x.kthvalue(3)[0] x.nanmedian(0)[0] x.sort(1)[0] x.topk(40)[0] x.topk(3,0)[0] x.sum(0) x.sum(1) x.mean(1) x.std(1) x.var(0)
x.amax(1) x.amin(0) x.prod(1) x.norm() x.norm(dim=1) x.logsumexp(1) x.softmax(1) x.log_softmax(0) x@x x.T@x x.roll(3,1) cat((x,x),1) stack((x,x),1) x.argsort(1) x[x>0]
x.gather(1,(x>0).long()) zeros_like(x).scatter_add(1,(x>0).long(),x) zeros_like(x).index_add(0,arange(96,device=x.device),x) x.repeat_interleave(2,1) x.renorm(2,0,1.0) x.cov() x.diff() x.logcumsumexp(1)
nn.functional.gelu(x) nn.functional.softplus(x) nn.functional.layer_norm(x,(96,)) nn.functional.group_norm(x,4) nn.functional.pad(x[None],(3,3),mode="reflect") nn.functional.pad(x,(3,3)) cdist(x,x+1)
nn.functional.avg_pool1d(x[None],3) nn.functional.max_pool1d(x[None],3) nn.functional.embedding((x>0).long(),x) nn.functional.one_hot((x>0).long()) nn.functional.scaled_dot_product_attention(x[None],x[None],x[None])
nn.functional.cross_entropy(x,(x[0]>0).long()) nn.functional.mse_loss(x,x.flip(0)) isin(x,x[0]) searchsorted(x[0].sort()[0],x) bucketize(x,x[0].sort()[0]) bincount((x>0).long().reshape(-1)) linalg.inv(x) linalg.det(x)
""".split()


@pytest.mark.parametrize("call", LARGE)
def test_large_arrays(call, device):
    "From some thousand numbers on the host has other ways, which must not be taken for the device."
    torch.manual_seed(0)
    x = torch.rand(96, 96) * 2 - 1
    results, gradients = [], []
    for place in ("cpu", device):
        there = x.detach().to(place).requires_grad_()
        made = eval(call, vars(torch) | {"x": there})
        results.append(made.detach())
        if made.requires_grad:
            (made * made.conj()).real.sum().backward()
            gradients.append(there.grad)
    same(*results, tolerance=2e-3 if "inv" in call or results[0].element_size() == 2 else 2e-4)
    if gradients: same(*gradients, tolerance=1e-2 if "inv" in call else 2e-3)

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


@pytest.fixture
def two_devices(stand_in):
    use(strict.library, False, 2)
    yield
    use(strict.library, False, 1)


def test_training_on_another_device(two_devices):
    "Nothing depends on which device is the current one."

    def trained(place):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).to(place, torch.float64)
        optimizer, scaler, x = torch.optim.AdamW(model.parameters(), lr=0.01), torch.amp.GradScaler(place.split(":")[0], init_scale=2.0), torch.arange(15.0, dtype=torch.float64).reshape(5, 3).to(place)
        for _ in range(3):
            scaler.scale(model(x).square().mean()).backward()
            scaler.unscale_(optimizer), nn.utils.clip_grad_norm_(model.parameters(), 1.0), scaler.step(optimizer), scaler.update()
            optimizer.zero_grad()
            with torch.no_grad():
                model[0].weight.mul_(0.99).clamp_(-1, 1)
        for _ in range(2):
            model(x).sum().backward()
        assert all(t.device == p.device for p in model.parameters() for t in (p.grad, *(v for v in optimizer.state[p].values() if v.dim())))
        return model.cpu()

    assert torch.cuda.current_device() == 0
    here, there = trained("cpu"), trained("cuda:1")
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)
    first, second = nn.Linear(3, 4).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")  # a network across two devices
    second(first(torch.ones(2, 3, device="cuda:0")).to("cuda:1")).sum().backward()
    grads = [p.grad.cpu() for p in (*first.parameters(), *second.parameters())]
    norm = nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 0.1)
    assert abs(norm.item() - sum(g.square().sum() for g in grads).sqrt().item()) < 1e-5 and first.weight.grad.device.index == 0 and second.weight.grad.device.index == 1


def test_data_parallel(two_devices):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model, x = nn.DataParallel(copy.deepcopy(plain).cuda()), torch.randn(5, 3).double()
    assert model.device_ids == [0, 1] and list(model.state_dict())[0] == "module.0.weight"
    a, b = plain(x), model(x)
    a.square().sum().backward(), b.square().sum().backward()
    assert b.device == torch.device("cuda", 0)
    same(a, b)
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        same(p.grad, q.grad)
        assert q.grad.device.index == 0
    assert model(x[:1]).shape == (1, 2) and nn.DataParallel(copy.deepcopy(plain), ["cuda:1"])(x).device.index == 1

    class Many(nn.Module):
        def forward(self, a, factor=1.0, more=None):
            return {"y": a * factor, "z": (a.sum(), None)}

    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        out = nn.DataParallel(Many())(x, factor=2.0, more=[x])
    assert out["y"].shape == (5, 3) and out["z"][0].shape == (2,) and out["z"][1] is None
    with pytest.raises(RuntimeError, match="module must have its parameters and buffers on device cuda:0"):
        nn.DataParallel(nn.Linear(3, 2))(torch.ones(2, 3))
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(plain)


# The functions of `cuda` -------------------------------------------------------------------------------------


def test_cuda_functions(device):
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.get_device_name() == "Strict stand-in" and torch.cuda.get_device_capability() == (9, 0)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(), end.record(), end.synchronize()
    assert start.elapsed_time(end) >= 0
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.cuda.Event().elapsed_time(end)
    with pytest.raises(RuntimeError, match="Both events must be recorded before calculating elapsed time."):
        start.elapsed_time(torch.cuda.Event(enable_timing=True))
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(5)
    with pytest.raises(torch.cuda.CudaError, match="2"):
        torch.cuda.check_error(2)
    torch.cuda.check_error(0)
    x = torch.ones(1000, device=device)
    assert torch.cuda.memory_snapshot()[0]["size"] >= x.nbytes and torch.cuda.host_memory_stats()["segment.current"] >= 0
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


# Functions above the operations ------------------------------------------------------------------------------


def f64(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def places(*rows):
    return torch.tensor(rows[0] if len(rows) == 1 else rows)


def causal(x):
    "A transformer that recognises a causal mask by looking at it."
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2).double().to(x.device)
    return encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64).to(x.device))


def orthogonal(x):
    layer = nn.Linear(4, 4, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(f64(4, 4, seed=3))
    return nn.utils.parametrizations.orthogonal(layer.to(x.device))(x)


# name -> (function of a device's tensors, the tensors it is given); those in double precision are differentiated.
PROGRAMS = {
    **{f"grid_sample {mode} {pad}": (lambda x, g, mode=mode, pad=pad: F.grid_sample(x, g, mode, pad, align_corners=False), lambda: (f64(2, 2, 4, 5), f64(2, 3, 3, 2, seed=1) / 2)) for mode in ("bilinear", "nearest", "bicubic") for pad in ("zeros", "border", "reflection")},
    "grid_sample of volumes": (lambda x, g: F.grid_sample(x, g, align_corners=True), lambda: (f64(1, 2, 3, 4, 3), f64(1, 2, 2, 2, 3, seed=1) / 2)),
    **{f"ctc_loss {r}": (lambda x, t, r=r: F.ctc_loss(x.log_softmax(2), t, (6, 5), (3, 2), reduction=r, zero_infinity=True), lambda: (f64(6, 2, 4), places([1, 2, 2], [3, 1, 0]))) for r in ("none", "mean", "sum")},
    "ctc_loss of targets in a row": (lambda x, t: F.ctc_loss(x.log_softmax(2), t, (6, 5), (3, 2)), lambda: (f64(6, 2, 4), places([1, 2, 2, 3, 1]))),
    **{f"embedding_bag {mode}": (lambda i, w, o, mode=mode: F.embedding_bag(i, w, o, mode=mode), lambda: (places([1, 0, 2, 2, 4]), f64(5, 3), places([0, 2, 2]))) for mode in ("sum", "mean", "max")},
    "embedding_bag padded": (lambda i, w: F.embedding_bag(i, w, mode="mean", padding_idx=2), lambda: (places([1, 2], [2, 2]), f64(5, 3))),
    "embedding_bag weighed": (lambda i, w, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s, include_last_offset=True), lambda: (places([1, 0, 2, 2]), f64(5, 3), places([0, 1, 4]), f64(4, seed=1))),
    "embedding, by frequency": (lambda i, w: F.embedding(i, w, scale_grad_by_freq=True, padding_idx=0), lambda: (places([1, 0, 2, 2]), f64(5, 3))),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a, b, driver="gels"), lambda: (f64(5, 3), f64(5, 2, seed=1))),
    "matrix_rank": (lambda a: torch.linalg.matrix_rank(torch.cat([a, a])), lambda: (f64(2, 4),)),
    "solve, broadcast": (lambda a, b: torch.linalg.solve(a + 4 * torch.eye(3, device=a.device), b), lambda: (f64(3, 3), f64(2, 3, 2, seed=1))),
    "solve_triangular": (lambda a, b: torch.linalg.solve_triangular(a + 4 * torch.eye(3, device=a.device), b, upper=True), lambda: (f64(2, 3, 3), f64(3, 2, seed=1))),
    "householder_product": (torch.linalg.householder_product, lambda: (f64(4, 3), f64(3, seed=1))),
    "cholesky_inverse": (lambda a: torch.cholesky_inverse(a.tril() + 2 * torch.eye(3, device=a.device)), lambda: (f64(3, 3),)),
    "fractional pooling": (lambda x, u: F.fractional_max_pool2d(x, 2, output_size=3, _random_samples=u), lambda: (f64(2, 2, 6, 6), torch.tensor([[[0.1, 0.7], [0.4, 0.9]], [[0.2, 0.5], [0.6, 0.3]]], dtype=torch.float64))),
    "unpooling": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), lambda: (f64(1, 2, 4, 4),)),
    "adaptive pooling": (lambda x: F.adaptive_max_pool2d(x, 3), lambda: (f64(2, 2, 5, 7),)),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic") + F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), lambda: (f64(1, 2, 3, 4),)),
    "margins": (lambda x, t: F.multilabel_margin_loss(x, t), lambda: (f64(2, 4), places([3, 0, -1, 1], [1, -1, 0, 0]))),
    "smoothed, ignoring": (lambda x, t: F.cross_entropy(x, t, ignore_index=1, label_smoothing=0.2), lambda: (f64(4, 3), places([0, 1, 2, 1]))),
    "smoothed, weighed": (lambda x, t, w: F.cross_entropy(x, t, w.detach().abs(), label_smoothing=0.2), lambda: (f64(4, 3), places([0, 1, 2, 1]), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))),
    "gaussian": (lambda x, t, v: F.gaussian_nll_loss(x, t, v.abs()), lambda: (f64(3, 2), f64(3, 2, seed=1), f64(3, 2, seed=2))),
    "polynomials": (lambda x, n: torch.special.chebyshev_polynomial_t(x, n) + torch.special.hermite_polynomial_h(x, n) + torch.special.legendre_polynomial_p(x, n), lambda: (f64(4), places([0, 1, 2, 3]))),
    "isin": (torch.isin, lambda: (places([1, 2, 3, 4]), places([2, 4]))),
    "runs": (lambda t: torch.unique_consecutive(t, return_inverse=True, return_counts=True), lambda: (places([1, 1, 2, 3, 3, 3, 1]),)),
    "places": (lambda t: (*torch.unravel_index(t, (2, 3)), torch.nonzero_static(t, size=5), torch.bincount(t)), lambda: (places([0, 5, 2, 2]),)),
    "histograms": (lambda x: (torch.histc(x, 4, -2, 2), *torch.histogram(x, 4, range=(-2.0, 2.0))), lambda: (torch.linspace(-1.9, 1.9, 9),)),
    "slopes": (lambda x, t: torch.gradient(x, spacing=(t,), dim=(0,))[0], lambda: (f64(5, 2), torch.tensor([0.0, 1.0, 3.0, 4.0, 7.0], dtype=torch.float64))),
    "diagonals": (lambda x, d: torch.diagonal_scatter(x, d) + x.clone().fill_diagonal_(2.0), lambda: (f64(3, 3), f64(3, seed=1))),
    "quantiles": (lambda x: torch.quantile(x, torch.tensor([0.2, 0.5], dtype=torch.float64, device=x.device), dim=1), lambda: (f64(3, 5),)),
    "complex sums": (lambda x, i: torch.zeros(3, 2, dtype=torch.complex128, device=x.device).index_add(0, i, x), lambda: (torch.complex(f64(4, 2), f64(4, 2, seed=1)), places([0, 2, 0, 2]))),
    "extremes in half precision": (lambda x, i: torch.zeros(3, device=x.device, dtype=x.dtype).scatter_reduce(0, i, x, "amax"), lambda: (torch.tensor([1.0, 3.0, 2.0], dtype=torch.float16), places([0, 0, 2]))),
    "sums of small integers": (lambda x, i: torch.zeros(3, device=x.device, dtype=x.dtype).scatter_add(0, i, x), lambda: (torch.tensor([1, 3, 2], dtype=torch.int8), places([0, 0, 2]))),
    "modes": (lambda x: torch.mode(x, 1), lambda: (torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]]),)),
    "triangles of Hermitian matrices": (lambda z: torch.linalg.cholesky(z @ z.mH + torch.eye(3, device=z.device) + z.triu(1) * 1e-3), lambda: (torch.complex(f64(3, 3), f64(3, 3, seed=1)),)),
    "packed sequences": (lambda x: nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(x, [3, 5], batch_first=True, enforce_sorted=False), batch_first=True)[0], lambda: (f64(2, 5, 3),)),
    "causal masks": (lambda x: causal(x), lambda: (f64(2, 5, 8),)),
    "orthogonal parameters": (lambda x: orthogonal(x), lambda: (f64(2, 4),)),
    "spectra": (lambda x: torch.stft(x, 8, return_complex=True, window=torch.hann_window(8, device=x.device, dtype=x.dtype)), lambda: (f64(32),)),
}  # fmt: skip


def compared(name, place, near):
    "Runs a program on the CPU and on `place`; `near(a, b)` compares the results and, for inputs in double precision, the gradients."
    function, make = PROGRAMS[name]

    def run(place):
        xs = [x.to(place).requires_grad_(x.dtype in (torch.float64, torch.complex128)) for x in make()]
        out = function(*xs)
        outs = [o for o in (out if isinstance(out, tuple) else (out,))]
        ends = [o for o in outs if o.requires_grad]
        return outs, torch.autograd.grad(ends, [x for x in xs if x.requires_grad], [torch.ones_like(o) for o in ends], materialize_grads=True) if ends else ()

    (outs, gradients), (found, claimed) = run("cpu"), run(place)
    sized = [(a, b) for a, b in zip(outs, found, strict=True) if a.numel() or b.numel()]
    for a, b in [*sized, *zip(gradients, claimed, strict=True)]:
        near(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, device):
    compared(name, device, lambda a, b: same(a, b, 1e-7))


def test_lengths_are_on_the_cpu(device):
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"):
        nn.utils.rnn.pack_padded_sequence(torch.ones(2, 5, 3, device=device), torch.tensor([5, 3], device=device), batch_first=True)


def test_lstsq_knows_one_driver(device):
    with pytest.raises(RuntimeError, match="`driver` other than `gels` is not supported on CUDA"):
        torch.linalg.lstsq(torch.ones(3, 2, device=device), torch.ones(3, 1, device=device), driver="gelsd")


def test_failed_factorisations_raise(device):
    "CuPy does not look; we do, and say which matrix it was."
    wrong = torch.stack([torch.eye(2), torch.zeros(2, 2)]).to(device)
    for f, words in ((torch.linalg.inv, r"Batch element 1\): The diagonal element 1 is zero"), (torch.linalg.cholesky, "leading minor of order 1 is not positive-definite"), (lambda a: torch.linalg.solve(a, a), "input matrix is singular")):
        with pytest.raises(torch.linalg.LinAlgError, match=words):
            f(wrong)
    assert torch.linalg.inv_ex(wrong).info.tolist() == [0, 1] and torch.linalg.cholesky_ex(wrong).info.tolist() == [0, 1]


def test_orthogonal_and_lazy(device):
    w = nn.init.orthogonal_(torch.empty(4, 6, device=device))
    np.testing.assert_allclose(host(w) @ host(w).T, np.eye(4), atol=1e-6)
    model = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d()).to(device)
    model(torch.randn(2, 3, 5, 5, device=device)).sum().backward()
    assert all(t.is_cuda for t in (*model.parameters(), *model.buffers())) and model[0].weight.grad.is_cuda


def test_gradcheck_on_the_device(device):
    x = torch.randn(3, device=device, dtype=torch.float64, requires_grad=True)
    z = torch.randn(2, device=device, dtype=torch.complex128, requires_grad=True)
    for fast in (False, True):
        assert torch.autograd.gradcheck(lambda x: x.sin() * x, x, fast_mode=fast, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
        assert torch.autograd.gradcheck(lambda z: z.abs().square(), z, fast_mode=fast) and torch.autograd.gradgradcheck(lambda x: x**3, x, fast_mode=fast)
    wrong = type("Wrong", (torch.autograd.Function,), dict(forward=staticmethod(lambda ctx, x: x * 2), backward=staticmethod(lambda ctx, g: g * 3)))
    with pytest.raises(torch.autograd.gradcheck.GradcheckError if hasattr(torch.autograd.gradcheck, "GradcheckError") else RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(wrong.apply, x)


D = torch.distributions
DRAWS = {  # name -> (distribution, from its parameters' device)
    "Normal": lambda p: D.Normal(torch.tensor(1.0, device=p), 2.0), "Uniform": lambda p: D.Uniform(torch.tensor(-1.0, device=p), 3.0), "Exponential": lambda p: D.Exponential(torch.tensor(2.0, device=p)),
    "Gamma": lambda p: D.Gamma(torch.tensor(3.0, device=p), 2.0), "small Gamma": lambda p: D.Gamma(torch.tensor(0.4, device=p), 1.0), "Beta": lambda p: D.Beta(torch.tensor(2.0, device=p), 3.0), "Chi2": lambda p: D.Chi2(torch.tensor(3.0, device=p)),
    "StudentT": lambda p: D.StudentT(torch.tensor(9.0, device=p)), "Poisson": lambda p: D.Poisson(torch.tensor(3.0, device=p)), "large Poisson": lambda p: D.Poisson(torch.tensor(40.0, device=p)), "Binomial": lambda p: D.Binomial(9, torch.tensor(0.3, device=p)),
    "large Binomial": lambda p: D.Binomial(200, torch.tensor(0.7, device=p)), "Bernoulli": lambda p: D.Bernoulli(torch.tensor(0.3, device=p)), "Geometric": lambda p: D.Geometric(torch.tensor(0.3, device=p)), "Laplace": lambda p: D.Laplace(torch.tensor(1.0, device=p), 0.5),
    "Gumbel": lambda p: D.Gumbel(torch.tensor(1.0, device=p), 0.5), "HalfNormal": lambda p: D.HalfNormal(torch.tensor(1.5, device=p)), "LogNormal": lambda p: D.LogNormal(torch.tensor(0.0, device=p), 0.3),
}  # fmt: skip


def draws_are_right(name, place):
    "The mean and the variance of many draws are those of the distribution; draws and log-probabilities live on the device."
    torch.manual_seed(5)
    d = DRAWS[name](place)
    x, n = d.sample((4000,)), 4000
    assert x.is_cuda and d.log_prob(x).is_cuda and (not d.has_rsample or d.rsample((2,)).is_cuda)
    mean, variance = d.mean.item(), d.variance.item()
    x = x.cpu().double()
    assert abs(x.mean().item() - mean) < 6 * (variance / n) ** 0.5, (x.mean(), mean)
    assert abs(x.var().item() / variance - 1) < 0.35, (x.var(), variance)


@pytest.mark.parametrize("name", DRAWS)
def test_draws(name, device):
    draws_are_right(name, device)


def test_log_factorial(device):
    import math

    k = np.arange(0.0, 60.0)
    found = backend.DeviceGenerator._log_factorial(strict.library.asarray(k.tolist()))
    np.testing.assert_allclose(found._a, [math.lgamma(v + 1) for v in k], rtol=1e-11, atol=1e-11)


def test_draws_of_matrices(device):
    d = D.MultivariateNormal(torch.zeros(2, device=device), torch.tensor([[2.0, 0.5], [0.5, 1.0]], device=device))
    assert d.rsample((3,)).is_cuda and d.log_prob(d.sample()).is_cuda and D.Dirichlet(torch.ones(3, device=device)).sample().is_cuda and D.Multinomial(5, torch.ones(3, device=device) / 3).sample().is_cuda
    assert D.Categorical(torch.ones(3, device=device)).sample((4,)).is_cuda and D.RelaxedBernoulli(torch.tensor(0.5, device=device), torch.tensor(0.3, device=device)).rsample().is_cuda


def test_generator_of_a_device(device):
    g = torch.Generator(device=device).manual_seed(3)
    assert g.device == torch.device("cuda", 0) and torch.Generator().device == torch.device("cpu")
    first = torch.randn(4, device=device, generator=g)
    assert torch.equal(first, torch.randn(4, device=device, generator=g.manual_seed(3))) and torch.equal(torch.zeros(4, device=device).normal_(generator=g.manual_seed(3)), first)
    states = torch.cuda.get_rng_state_all()
    first = torch.rand(3, device=device)
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(first, torch.rand(3, device=device)) and states[0].dtype is torch.uint8 and not states[0].is_cuda


# Where tensors are made --------------------------------------------------------------------------------------


def test_default_device(device):
    def made():
        return torch.zeros(1), torch.tensor([1.0]), torch.as_tensor([1]), torch.randn(2), torch.randperm(3), torch.arange(3), torch.full((1,), 2.0), torch.eye(2), torch.linspace(0, 1, 2), torch.tril_indices(2, 2), torch.hann_window(3), torch.fft.fftfreq(3), nn.Linear(2, 2).weight, torch.asarray([1.0])

    torch.set_default_device(device)
    try:
        assert torch.get_default_device() == torch.device("cuda", 0) and all(t.is_cuda for t in made()) and not torch.ones(1, device="cpu").is_cuda
        with torch.device("cpu"):
            assert not any(t.is_cuda for t in made()) and torch.get_default_device() == torch.device("cpu")
        assert not torch.from_numpy(np.ones(1)).is_cuda and not torch.zeros_like(torch.ones(1, device="cpu")).is_cuda
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu") and not any(t.is_cuda for t in made())
    with torch.device("cuda"):
        assert all(t.is_cuda for t in made())
    assert torch.device("cuda")(made)()[0].is_cuda and not torch.zeros(1).is_cuda


def test_default_device_belongs_to_the_thread(device):
    import threading

    seen = []
    torch.set_default_device(device)
    try:
        thread = threading.Thread(target=lambda: seen.append(torch.zeros(1).is_cuda))
        thread.start(), thread.join()
    finally:
        torch.set_default_device(None)
    assert seen == [False]


def test_memory_order_survives_the_trip(device):
    x = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    y = x.to(device)
    assert y.stride() == x.stride() == y.cpu().stride() and torch.equal(y.cpu(), x) and x[::2].to(device).is_contiguous()


def test_names_of_types(device):
    x = torch.ones(2, device=device)
    assert x.type() == "torch.cuda.FloatTensor" and x.type("torch.DoubleTensor").device.type == "cpu" and torch.ones(1).type("torch.cuda.LongTensor").dtype is torch.int64
    assert torch.ones(1).type_as(x).is_cuda and x.__cuda_array_interface__["shape"] == (2,)
    with pytest.raises(AttributeError, match="Can't get __cuda_array_interface__ on non-CUDA tensor type: torch.FloatTensor"):
        torch.ones(1).__cuda_array_interface__
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"):
        torch.ones(3)[torch.tensor([0], device=device)]
    for settings in (dict(foreach=True), dict(fused=True), dict(capturable=True)):
        p = nn.Parameter(torch.ones(2, device=device))
        p.sum().backward()
        torch.optim.Adam([p], **settings).step()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_again(reentrant, device):
    "A recomputed dropout drops what it dropped before, on the device too; what is drawn afterwards is not disturbed."
    from autograd_nb.utils.checkpoint import checkpoint, get_device_states, set_device_states

    x = torch.ones(200, device=device, requires_grad=True)
    out = checkpoint(lambda t: F.dropout(t * 1, 0.5), x, use_reentrant=reentrant)
    torch.cuda.manual_seed(1)
    first = torch.rand(3, device=device)
    torch.cuda.manual_seed(1)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach()) and torch.equal(first, torch.rand(3, device=device))
    with torch.random.fork_rng():
        first = torch.rand(3, device=device)
    assert torch.equal(first, torch.rand(3, device=device))
    numbers, states = get_device_states(x)
    first = torch.rand(3, device=device)
    set_device_states(numbers, states)
    assert numbers == [0] and torch.equal(first, torch.rand(3, device=device))


def test_record_stream(device):
    "Memory that another stream uses is given back once that stream is done."
    torch.cuda.empty_cache()
    before, side = torch.cuda.memory_allocated(), torch.cuda.Stream()
    x = torch.ones(1000, device=device)
    x.record_stream(side), x[10:].record_stream(side)
    assert len(backend.Pool.shared) == 1
    side.stream.record = lambda event=None: busy
    busy = strict.Event()
    busy.done = False
    del x
    torch.zeros(1, device=device)
    assert torch.cuda.memory_allocated() == before + 4000  # the stream has not finished
    busy.done = True
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == before and not backend.Pool.shared
    with pytest.raises(NotImplementedError, match="record_stream"):
        torch.ones(1).record_stream(side)


def test_loader_pins(device):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3)), 2, pin_memory=True)
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned() and x.to(device, non_blocking=True).is_cuda


def test_constant_matrices_are_sent_once(device):
    x, layer = torch.randn(1, 1, 4, 4, device=device, requires_grad=True), nn.AdaptiveAvgPool2d(3)
    layer(x).sum().backward()
    strict.transfers.clear()
    layer(x).sum().backward()
    assert strict.transfers["to_device"] == 0


def test_cuda_has_what_programs_ask(device):
    assert torch.cuda.is_tf32_supported() and torch.cuda.get_arch_list() == ["sm_90"] and torch.cuda.get_gencode_flags() == "-gencode compute=compute_90,code=sm_90"
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    strict.pool.set_limit(None)
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == torch.cuda.memory_allocated() == torch.cuda.memory.memory_allocated()
    assert list(torch.cuda.memory_stats()) == sorted(torch.cuda.memory_stats())
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.cuda.memory_cached() == torch.cuda.memory_reserved()
    assert torch.cuda.random.get_rng_state is torch.cuda.get_rng_state and torch.cuda.current_stream().device == torch.device("cuda", 0)
    with pytest.raises(AttributeError, match="torch.cuda.MemPool is not supported here"):
        torch.cuda.MemPool
    assert len(torch.cuda.default_generators) == 1


def test_modules_about_devices(device):
    assert torch.get_device_module("cuda:0") is torch.get_device_module() is torch.cuda and torch.get_device_module(torch.device("cpu")) is torch.cpu
    assert torch.version.__version__ == torch.__version__ and torch.version.hip is None
    with pytest.raises(RuntimeError, match="Invalid device_module 'xla'"):
        torch.get_device_module("xla")


def test_marks(device, monkeypatch):
    "`nvtx` calls CuPy's side of NVTX: ranges nest."
    import sys
    from types import SimpleNamespace

    calls = []
    monkeypatch.setitem(sys.modules, "strict.cuda", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "strict.cuda.nvtx", SimpleNamespace(RangePush=lambda m: calls.append(m), RangePop=lambda: calls.append("pop"), Mark=lambda m: calls.append("!" + m)))
    with torch.cuda.nvtx.range("step {}", 3):
        torch.cuda.nvtx.mark("here")
    assert calls == ["step 3", "!here", "pop"]


# The stand-in is as strict as CuPy ----------------------------------------------------------------------------


def test_stand_in_behaves_as_cupy_where_numpy_does_not(device):
    lib = strict.library
    a, i = lib.asarray([1.0, 2.0, 3.0]), lib.asarray([0, 2])
    for waiting in (lambda: lib.nonzero(a), lambda: a[a > 1], lambda: lib.bincount(i), lambda: lib.unravel_index(i, (2, 2)), lambda: lib.unique(a), lambda: lib.where(a > 1)):
        strict.transfers.clear()
        waiting()
        assert strict.transfers["to_host"] == 1
    for name, dtype in (("add", np.complex128), ("add", np.int8), ("maximum", np.float16), ("subtract", np.float32)):
        with pytest.raises(TypeError, match="only supports"):
            getattr(lib, name).at(lib.zeros(3, dtype), i, lib.ones(2, dtype))
    assert np.isnan(lib.linalg.inv(lib.zeros((2, 2)))._a).all()
    with strict.extras.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
        lib.linalg.inv(lib.zeros((2, 2)))
    with pytest.raises(ValueError, match="multidimensional b"):
        lib.linalg.solve(lib.eye(2), lib.ones((3, 2, 1)))
    with pytest.raises(TypeError, match="repeats"):
        lib.repeat(a, i)
    with pytest.raises(ValueError, match="not allowed"):
        lib.nonzero(lib.asarray(1.0))


def test_the_stand_in_knows_what_cupy_has():
    "Where CuPy is installed, with or without a GPU, it must still have every function that the stand-in offers, with these arguments and on these dtypes."
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed; it can be imported without a GPU")
    import cupy_facts

    now = cupy_facts.facts()
    if cupy.__version__ == strict.FACTS["version"]:
        assert now == strict.FACTS
    for group in ("functions", "linalg", "fft", "methods", "types"):
        for name, known in strict.FACTS[group].items():
            assert name in now[group], f"CuPy {cupy.__version__} has no {group} {name}"
            assert not isinstance(known, list) or now[group][name] is None or set(known) <= set(now[group][name]), f"{name} has lost {set(known) - set(now[group][name])}"
    import cupyx
    from cupyx.scipy import special

    assert all(hasattr(special, name) for name in SPECIAL.values()) and hasattr(cupyx, "errstate")
    assert hasattr(cupy.RawKernel, "compile")
    cuda = cupy.cuda
    for name in "Device Graph MemoryPool Stream ExternalStream Event set_allocator get_current_stream get_elapsed_time alloc_pinned_memory get_cublas_handle".split():
        assert hasattr(cuda, name), name
    for name in "getDeviceCount getDevice setDevice getDeviceProperties deviceCanAccessPeer".split():
        assert hasattr(cuda.runtime, name), name
    assert all(hasattr(cuda.MemoryPool, name) for name in "malloc used_bytes total_bytes free_bytes free_all_blocks set_limit".split())
    assert all(hasattr(cuda.Stream, name) for name in "synchronize done record wait_event use null begin_capture end_capture is_capturing".split()) and hasattr(cuda.Graph, "launch") and hasattr(cuda.Graph, "debug_dot_str") and cuda.Stream.null.ptr == 0


def test_every_name_of_ours_exists(stand_in):
    "What the code of the backend looks up in the device library exists in CuPy."
    import ast

    names = set()
    for node in (n for part in Path(backend.__file__).parent.glob("*.py") for n in ast.walk(ast.parse(part.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Attribute) and (isinstance(node.value, ast.Name) and node.value.id == "lib" or isinstance(node.value, ast.Attribute) and node.value.attr == "library"):
            names.add(node.attr)
    known = {*strict.FACTS["functions"], "cuda", "linalg", "ndarray", "ElementwiseKernel", "ReductionKernel", "RawKernel", "__name__"} | {"unchecked"}
    assert len(names) > 30 and names - known <= {"errstate", "solve"}, names - known


# Fused kernels -----------------------------------------------------------------------------------------------

compiler = pytest.mark.skipif(strict.COMPILER is None, reason="no C++ compiler to build the kernels for the CPU")


APART = {"convolution", "conv_transpose", "conv_weight", "max_pool", "nll_loss", "nll_spread", "normalise", "attention_weights", "lstm_cell", "gru_cell", "div", "argmax", "argmin", "var", "std", "gather", "picked", "extreme"}  # the first three: test_cudnn.py; the last seven: test_device_rows.py; the others below
_targets = [2, 0, -100, 3, 1, 3]
FUSED_FUNCTIONS = {
    "layer norm": ((6, 5), lambda x: F.layer_norm(x, (5,), x[0].detach(), x[1].detach(), eps=1e-3)), "layer norm over two": ((3, 2, 5), lambda x: F.layer_norm(x, (2, 5))),
    "batch norm": ((4, 3, 2, 2), lambda x: F.batch_norm(x, None, None, training=True)), "tracking": ((4, 3, 2, 2), lambda x: F.batch_norm(x, *(torch.zeros(3, dtype=torch.float64 if x.dtype is torch.float64 else torch.float32, device=x.device) for _ in range(2)), training=True)), "group norm": ((2, 4, 3), lambda x: F.group_norm(x, 2)),
    "max pool": ((2, 3, 6, 7), lambda x: F.max_pool2d(x, 2)), "padded max pool": ((2, 3, 6, 7), lambda x: F.max_pool2d(x, (3, 2), stride=(2, 1), padding=(1, 1))), "dilated max pool": ((1, 2, 9, 8), lambda x: F.max_pool2d(x, 3, stride=2, dilation=2, ceil_mode=True)),
    "max pool of a line": ((2, 3, 9), lambda x: F.max_pool1d(x, 3, stride=2, padding=1)), "max pool of NaN": ((1, 1, 4, 4), lambda x: F.max_pool2d(torch.where(x > 1.5, x * np.nan, x), 2).nan_to_num(7)), "max pool of a view": ((4, 5, 2, 3), lambda x: F.max_pool2d(x.permute(2, 3, 0, 1), 2)),
    **{f"cross entropy, {r}": ((6, 4), lambda x, r=r: F.cross_entropy(x, torch.tensor(_targets, device=x.device), reduction=r)) for r in ("mean", "sum", "none")},
    "likelihood in planes": ((2, 4, 3), lambda x: F.nll_loss(x, torch.tensor([[0, 1, 2], [3, -100, 1]], device=x.device))), "weighted likelihood": ((6, 4), lambda x: F.nll_loss(x, torch.tensor(_targets, device=x.device), weight=x[0].detach())),
    "attention": ((2, 3, 4, 5), lambda x: F.scaled_dot_product_attention(x, x[:, :, :3].cos(), x[:, :, :3].sin())), "causal attention": ((2, 4, 5), lambda x: F.scaled_dot_product_attention(x, x.cos(), x.sin(), is_causal=True, scale=3.0)),
    "masked attention": ((2, 3, 3, 5), lambda x: F.scaled_dot_product_attention(x, x.cos(), x.sin(), attn_mask=torch.tensor([[True, False, True], [False, False, False], [True, True, True]], device=x.device))),
    "cell of an LSTM": ((3, 8), lambda x: torch.cat(REGISTRY["lstm_cell"](x, x[:, :2].sin()), 1)), "cell of a GRU": ((2, 3, 9), lambda x: torch.cat(REGISTRY["gru_cell"](x, x.cos(), x[..., :3].sin()), 2)),
    "division": ((3, 4), lambda x: x.cos() / x), "division by a row": ((3, 4), lambda x: x / (x[0] * x[0] + 1)),
    "scores of one sign": ((3, 4), lambda x: REGISTRY["attention_weights"](x, scale=-50.0, causal=True)),
    "another index to ignore": ((6, 4), lambda x: F.nll_loss(x, torch.tensor([2, 0, 1, 3, 1, 3], device=x.device), ignore_index=1)),
}  # fmt: skip


@compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUSED_FUNCTIONS)
def test_fused_function_is_the_definition(name, dtype, device):
    "Likewise for kernels that need more than one array of numbers, in value, gradient and second derivative."
    shape, function = FUSED_FUNCTIONS[name]

    def computed():
        x = torch.linspace(-2, 2, int(np.prod(shape)), dtype=torch.float64).cos().mul(3).reshape(shape).to(dtype).to(device).requires_grad_()
        out = function(x)
        start = torch.linspace(1, 2, out.numel(), dtype=torch.float64).reshape(out.shape).to(dtype).to(device).requires_grad_()
        (g,) = torch.autograd.grad(out, x, start, create_graph=True)
        (again,) = torch.autograd.grad(g, start, g.detach())
        assert out.dtype is g.dtype is again.dtype is dtype
        return [host(v.detach()).copy() for v in (out, g, again)]

    for a, b in plain_and_fused(computed):
        assert a.shape == b.shape
        np.testing.assert_allclose(b.astype(float), a.astype(float), rtol={2: 2e-2, 4: 2e-5, 8: 1e-11}[a.itemsize], atol={2: 2e-2, 4: 2e-5, 8: 1e-11}[a.itemsize] * max(1, abs(a).max()))


@compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_fused_running_statistics_are_the_definition(dtype, device):
    def both(place):
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(3, momentum=0.3, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
        x = torch.randn(4, 3, 2, 5).to(dtype).to(place)
        norm, versions = norm.to(place), []
        for _ in range(3):
            F.batch_norm(x, norm.running_mean, norm.running_var, training=True, momentum=0.3)
            versions.append(norm.running_var._version)
        return norm.running_mean, norm.running_var, versions

    mean, var, versions = both("cpu")
    use(strict.library, True, 1)
    try:
        found = both(device)
        same(mean, found[0], 1e-2 if dtype is torch.float16 else 1e-5), same(var, found[1], 1e-2 if dtype is torch.float16 else 1e-5)
    finally:
        use(strict.library, False, 1)
    assert np.diff(found[2]).tolist() == np.diff(versions).tolist() == [1, 1]


@compiler
def test_targets_out_of_range_are_seen(device):
    "On the CPU they are an error; a look at them would wait for the device, so there they give NaN, and no gradient."
    use(strict.library, True, 1)
    try:
        x = torch.zeros(2, 3, device=device, requires_grad=True)
        loss = F.nll_loss(x, torch.tensor([1, 7], device=device), reduction="none")
        loss.sum().backward()
        np.testing.assert_array_equal(host(loss.detach()), [0, np.nan])
        np.testing.assert_array_equal(host(x.grad), [[0, -1, 0], [0, 0, 0]])
    finally:
        use(strict.library, False, 1)


@compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted({*FUSED, *(op for op, _ in FUSED_RULES)} - APART))
def test_fused_kernel_is_the_definition(name, dtype, device):
    "The code of a fused kernel, compiled for the CPU, agrees with the operation in array language, in value and gradient."

    def computed():
        results = []
        for statics in [s[-1] if isinstance(s[-1], dict) else {} for s in REGISTRY[name].samples]:
            x = torch.linspace(-4, 4, 24, dtype=torch.float64).reshape(4, 6).to(dtype).to(device).requires_grad_()
            out = REGISTRY[name](x, **({**statics, "dim": 1} if "dim" in statics else statics))
            g = torch.autograd.grad(out, x, torch.linspace(1, 2, 24, dtype=torch.float64).reshape(4, 6).to(dtype).to(device))[0] if out.requires_grad else out
            assert out.dtype is g.dtype is dtype
            results += [host(out).copy(), host(g).copy()]
        return results

    for a, b in plain_and_fused(computed):
        tolerance = {2: 4e-3, 4: 2e-6, 8: 1e-12}[a.itemsize]
        np.testing.assert_allclose(b.astype(float), a.astype(float), rtol=tolerance, atol=tolerance)


@compiler
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 1001])
def test_fused_draws_are_the_definition(n, dtype, device):
    "One launch gives the same uniform numbers as a launch for each line, normal ones to the last digits, and the generator stands where it would."

    def drawn():
        g = backend.DeviceGenerator(0).manual_seed((7 << 32) + 5)
        g.set_offset(4 * ((1 << 32) - 3))  # the counter's upper half moves, too
        out = [g.uniform((n,), dtype), g.normal((n,), dtype), g.normal((n,), dtype, 3, 2), g.uniform((n,), dtype, -1, 4)]
        return [a._a for a in out], g.get_offset()

    plain, at = drawn()
    use(strict.library, True, 1)
    try:
        fused, end = drawn()
    finally:
        use(strict.library, False, 1)
    assert at == end
    for a, b, exact in zip(plain, fused, (True, False, False, True), strict=True):
        assert a.dtype == b.dtype and (not exact or np.array_equal(a, b))
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol={2: 1e-2, 4: 1e-4, 8: 1e-10}[a.itemsize], atol={2: 1e-2, 4: 1e-5, 8: 1e-12}[a.itemsize])


@compiler
@pytest.mark.parametrize("name", ["Adam", "AdamW", "decay", "maximize", "amsgrad", "SGD", "momentum", "damped"])
def test_fused_step_is_the_definition(name, device):
    use(strict.library, True, 1)
    try:
        there, _ = trained(STEPS[name], device)
        for p, q in zip(trained(STEPS[name], "cpu")[0], there, strict=True):
            same(p, q, 1e-6)
    finally:
        use(strict.library, False, 1)


# Products ----------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(backend.library, "_found", [backend.library._problem(ModuleNotFoundError("No module named 'cupy'"))])
    x = torch.ones(2)
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0 and torch.cuda.memory_allocated() == 0 and torch.cuda.memory_stats() == {}
    for wrong, kind, words in ((lambda: x.to("cuda"), RuntimeError, "No CUDA GPUs are available"), (lambda: x.cuda(), AssertionError, "Torch not compiled with CUDA enabled"), (lambda: torch.zeros(1, device="cuda"), RuntimeError, "No CUDA GPUs are available"), (torch.cuda.synchronize, RuntimeError, "Torch not compiled")):
        with pytest.raises(kind, match=words) as caught:
            wrong()
        (line,) = [s for s in str(caught.value).splitlines() if "install" in s]
        assert "pip install 'autograd_nb[cuda12]'" in line
    assert "install the NVIDIA driver" in backend.library._problem(RuntimeError("cudaErrorInsufficientDriver"))


# On a GPU ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu():
    "The real device; CuPy must be installed, and find a GPU. (With AUTOGRAD_NB_REHEARSE_GPU these tests are rehearsed on the stand-in, which proves nothing about a GPU, but that the tests themselves are sound.)"
    if os.environ.get("AUTOGRAD_NB_REHEARSE_GPU"):
        use(strict.library, False, 1)
    else:
        why = backend.find() if backend.Device.library is not strict.library else "the stand-in is in its place"
        if why:
            pytest.skip(why if not os.environ.get("AUTOGRAD_NB_NEEDS_GPU") else pytest.fail(why))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # numbers of ten bits would not agree with the CPU's
        yield "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_operation_on_gpu(case, gpu):
    xs = case.tensors(case.draw())
    outs = settled(case, case.outputs(*xs))
    starts = case.cotangents([o for o in outs if o.requires_grad])
    ys = [x.detach().to(gpu).requires_grad_(x.requires_grad) for x in xs]
    found = settled(case, case.outputs(*ys))
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


@pytest.mark.gpu
@pytest.mark.parametrize("case", TWICE)
def test_second_derivative_on_gpu(case, gpu):
    for a, b in zip(second_derivatives(case, "cpu"), second_derivatives(case, gpu), strict=True):
        torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_operation_in_single_precision_on_gpu(case, gpu):
    for a, b in zip(in_single(case, "cpu"), in_single(case, gpu), strict=True):
        torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_on_gpu(name, gpu):
    compared(name, gpu, lambda a, b: torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-5, atol=1e-6))


@pytest.mark.gpu
@pytest.mark.parametrize("name", DRAWS)
def test_draws_on_gpu(name, gpu):
    draws_are_right(name, gpu)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOSSES)
def test_loss_on_gpu(name, gpu):
    loss_agrees(name, gpu, lambda a, b: torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-4, atol=1e-5))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_dtypes_on_gpu(dtype, gpu):
    x = torch.tensor([[1, 0, 3], [4, 5, 1]]).to(dtype)
    for f in (lambda t: t + t, lambda t: t * 2, lambda t: t == 1, lambda t: t.sum(0), lambda t: t.float() if not t.is_complex() else t, lambda t: torch.cat([t, t]), lambda t: t[:, [0, 2]], lambda t: t.to(torch.complex64), lambda t: torch.where(t == 1, t, t * 0 + 1)):
        a, b = f(x), f(x.to(gpu))
        assert a.dtype is b.dtype
        torch.testing.assert_close(b.cpu(), a, rtol=1e-2, atol=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["perceptron", "convolutions", "transformer", "recurrent"])
def test_training_does_not_wait_on_gpu(name, gpu):
    "A training step queues its work and returns: CuPy, told to refuse waiting, does not complain."
    cupyx = importlib.import_module(backend.Device.library.__name__ + "x")
    model, shape = {
        "perceptron": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4)), (5, 8)),
        "convolutions": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)), (5, 1, 8, 8)),
        "transformer": (nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(24, 4)), (5, 3, 8)),
        "recurrent": (Last(), (5, 3, 8)),
    }[name]
    model, x, y = model.to(gpu), torch.randn(*shape, device=gpu), torch.tensor([0, 1, 2, 3, 0], device=gpu)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    first = step().item()
    with cupyx.allow_synchronize(False):
        for _ in range(20):
            loss = step()
    assert loss.item() < first


class Last(nn.Module):
    "A classifier that reads a sequence."

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


@pytest.mark.gpu
def test_mixed_precision_on_gpu(gpu):
    model, scaler = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(gpu), torch.amp.GradScaler()
    optimizer, x, y = torch.optim.AdamW(model.parameters(), lr=0.01), torch.randn(32, 64, device=gpu), torch.randint(0, 4, (32,), device=gpu)
    losses = []
    for _ in range(40):
        with torch.autocast("cuda"):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer), scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.gpu
def test_running_out_of_memory_on_gpu(gpu):
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        torch.empty(1 << 44, device=gpu)
    assert torch.ones(2, device=gpu).sum().item() == 2.0


@pytest.mark.gpu
def test_streams_on_gpu(gpu):
    side, x = torch.cuda.Stream(), torch.randn(512, 512, device=gpu)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x @ x
        y.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    torch.testing.assert_close(y.cpu(), x.cpu() @ x.cpu(), rtol=1e-3, atol=1e-3)
    p = torch.arange(4.0).pin_memory()
    assert torch.equal(p.to(gpu, non_blocking=True).cpu(), torch.arange(4.0)) and p.is_pinned()


@pytest.mark.gpu
def test_precision_on_gpu(gpu):
    "TensorFloat-32, where the GPU has it, is asked for, and is off otherwise."
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    exact = a.double() @ b.double()
    error = lambda: ((a.to(gpu) @ b.to(gpu)).cpu().double() - exact).abs().max().item()
    plain = error()
    torch.set_float32_matmul_precision("high")
    try:
        fast = error()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert plain < 1e-3 and fast < 0.5 and (fast > plain or not torch.cuda.is_tf32_supported() or backend.Device.library is strict.library)


@pytest.mark.gpu
def test_graph_on_gpu(gpu):
    "A step that was recorded does, when replayed, what the step does; dropout draws other numbers each time."

    def trained(captured):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(gpu)
        optimizer, x, y = torch.optim.Adam(model.parameters(), lr=0.01, capturable=True), torch.arange(40.0).reshape(5, 8).to(gpu) / 40, torch.tensor([0, 1, 2, 3, 0], device=gpu)

        def step():
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                optimizer.zero_grad()
                step()
        torch.cuda.synchronize()
        optimizer.zero_grad()
        if captured:
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                loss = step()
        losses = []
        for k in range(4):
            x.add_(0.1 * k)
            if captured:
                g.replay()
            else:
                optimizer.zero_grad()
                loss = step()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        kept = F.dropout(torch.ones(100, device=gpu))
    g.replay()
    first = kept.tolist()
    g.replay()
    assert first != kept.tolist()
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        kept.sum().item()
    assert torch.ones(2, device=gpu).sum().item() == 2.0
