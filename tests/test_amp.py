"""Autocast and loss scaling: the dtypes, the numbers and the errors of PyTorch."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest

import autograd_nb

needs_torch = pytest.mark.needs("torch")
F = autograd_nb.nn.functional

EXPRESSIONS = r"""
x @ w
torch.mm(x, w)
torch.matmul(b, w)
torch.bmm(b, b.transpose(1, 2))
torch.addmm(v, x, w)
torch.einsum('ij,jk->ik', x, w)
F.linear(x, w.T, v)
F.linear(half, w.T, v)
half @ w
F.conv2d(image, kernel, kbias, padding=1)
F.conv2d(image.bfloat16(), kernel, kbias, padding=1)
F.conv_transpose2d(image, kernel.transpose(0, 1))
F.scaled_dot_product_attention(b, b, b)
F.scaled_dot_product_attention(b, b.bfloat16(), b)
x + half
half * 2
half + half
torch.cat([x, half])
torch.stack([half, half])
torch.stack([x, half])
half.exp()
x.exp()
F.softmax(half, -1)
F.log_softmax(half, -1)
F.layer_norm(x, (4,))
F.gelu(half)
half.sum()
half.mean(0)
half.prod()
F.cross_entropy(half, y)
F.nll_loss(F.log_softmax(half, -1), y)
F.mse_loss(half, x)
F.l1_loss(half, x)
F.smooth_l1_loss(half, half)
F.huber_loss(half, half)
F.binary_cross_entropy_with_logits(half, half.sigmoid())
F.binary_cross_entropy(half.sigmoid(), x.sigmoid())
F.kl_div(F.log_softmax(half, -1), F.softmax(half, -1), reduction='batchmean')
F.cosine_embedding_loss(half, half, torch.ones(3))
F.margin_ranking_loss(half, half, torch.ones(3, 4))
F.poisson_nll_loss(half, x.abs())
torch.linalg.inv(half[:, :3] @ half[:, :3].T + torch.eye(3))
torch.linalg.svdvals(half)
x.double() @ w.double()
torch.arange(4).reshape(2, 2) @ torch.arange(4).reshape(2, 2)
net(x)
torch.nn.functional.embedding(y, w)
torch.baddbmm(torch.zeros(2, 3, 3), b, b.transpose(1, 2))
torch.addbmm(torch.zeros(3, 3), b, b.transpose(1, 2))
torch.cdist(half, 2 * half)
F.grid_sample(image.bfloat16(), torch.zeros(len(image), 2, 2, 2).bfloat16(), align_corners=False)
"""


def setting(t):
    t.manual_seed(0)
    x, w, v, b = t.randn(3, 4), t.randn(4, 4), t.randn(4), t.randn(2, 3, 4)
    net = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.LayerNorm(8), t.nn.ReLU(), t.nn.Linear(8, 2))
    return dict(torch=t, F=t.nn.functional, x=x, w=w, v=v, b=b, half=x.bfloat16(), y=t.tensor([0, 2, 1]), image=t.randn(2, 3, 5, 5), kernel=t.randn(4, 3, 3, 3), kbias=t.randn(4), net=net)


@needs_torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("expression", [line for line in EXPRESSIONS.strip().splitlines() if line])
def test_dtypes_and_values(expression, dtype):
    import torch

    out = []
    for t in (torch, autograd_nb):
        names = setting(t)
        names["half"] = names["x"].to(getattr(t, dtype))
        with t.autocast("cpu", dtype=getattr(t, dtype)):
            r = eval(expression, names)
        out.append((str(r.dtype), r.detach().double().numpy()))
    assert out[0][0] == out[1][0]
    np.testing.assert_allclose(out[1][1], out[0][1], rtol=0.03, atol=0.03)


@needs_torch
def test_training_in_mixed_precision():
    "Twenty steps of a small classifier stay near PyTorch's; parameters and gradients are float32."
    import torch

    curves = []
    for t in (torch, autograd_nb):
        t.manual_seed(1)
        net = t.nn.Sequential(t.nn.Linear(10, 32), t.nn.GELU(), t.nn.LayerNorm(32), t.nn.Linear(32, 3))
        x, y = t.randn(64, 10), t.randint(0, 3, (64,))
        optimizer = t.optim.AdamW(net.parameters(), lr=1e-2)
        scaler = t.amp.GradScaler("cpu", init_scale=1024.0)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            with t.autocast("cpu"):
                loss = t.nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            t.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
            assert all(p.dtype is t.float32 and p.grad.dtype is t.float32 for p in net.parameters())
        curves.append(losses)
    np.testing.assert_allclose(curves[1], curves[0], rtol=0.02, atol=0.02)
    assert curves[1][-1] < curves[1][0] / 2


def test_states_nest_and_end():
    t = autograd_nb
    x = t.ones(2, 2)
    assert not t.is_autocast_enabled("cpu") and t.get_autocast_dtype("cpu") is t.bfloat16 and t.get_autocast_dtype("cuda") is t.float16
    with t.autocast("cpu", dtype=t.float16) as mode:
        assert mode.__class__ is t.autocast and t.is_autocast_enabled("cpu") and t.is_autocast_cpu_enabled() and not t.is_autocast_enabled()
        assert (x @ x).dtype is t.float16
        with t.autocast("cpu", dtype=t.bfloat16):
            assert (x @ x).dtype is t.bfloat16
            with t.autocast("cpu", enabled=False):
                assert (x @ x).dtype is t.float32
            assert (x @ x).dtype is t.bfloat16
        assert (x @ x).dtype is t.float16
    assert (x @ x).dtype is t.float32 and t.get_autocast_dtype("cpu") is t.bfloat16
    with pytest.raises(ZeroDivisionError), t.autocast("cpu"):
        raise ZeroDivisionError
    assert (x @ x).dtype is t.float32

    @t.autocast("cpu")
    def decorated(a):
        return a @ a

    assert decorated(x).dtype is t.bfloat16 and decorated.__name__ == "decorated"
    t.set_autocast_enabled("cpu", True)
    try:
        assert (x @ x).dtype is t.bfloat16
    finally:
        t.set_autocast_enabled("cpu", False)
    from autograd_nb.graph.modes import LOCAL

    assert not LOCAL.modes.special and not LOCAL.modes.counted


def test_other_threads_are_left_alone():
    t = autograd_nb
    x, seen = t.ones(2, 2), []
    with t.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert (x @ x).dtype is t.bfloat16
    assert seen == [t.float32]


def test_weights_are_cast_once():
    t = autograd_nb
    w, x = t.ones(3, 3, requires_grad=True), t.ones(2, 3)
    with t.autocast("cpu"):
        a, b = x @ w, x @ w
        casts = [fn for y in (a, b) for fn, _ in y.grad_fn.next_functions if fn is not None]
        assert casts[0] is casts[1] and casts[0].name() == "ToCopyBackward0"
        (a.sum() + b.sum()).backward()
    assert w.grad.dtype is t.float32 and w.grad[0, 0].item() == 4
    with t.autocast("cpu", cache_enabled=False):
        casts = [fn for y in (x @ w, x @ w) for fn, _ in y.grad_fn.next_functions if fn is not None]
    assert casts[0] is not casts[1]
    with t.autocast("cpu"):
        with t.no_grad():
            assert not (x @ w).requires_grad
        assert (x @ w).requires_grad  # the cast made without recording is not used where it should be recorded


def test_values_changed_between_two_autocasts_are_seen():
    t = autograd_nb
    w, x = t.ones(2, 2, requires_grad=True), t.ones(1, 2)
    with t.autocast("cpu"):
        x @ w
    with t.no_grad():
        w += 1
    with t.autocast("cpu"):
        assert (x @ w)[0, 0].item() == 4


def two_functions(t):
    class Plain(t.autograd.Function):
        @staticmethod
        @t.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            assert t.is_autocast_enabled("cpu")
            ctx.save_for_backward(a, b)
            return a.mm(b)

        @staticmethod
        @t.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            assert t.is_autocast_enabled("cpu")
            a, b = ctx.saved_tensors
            return g.mm(b.t()), a.t().mm(g)

    class Cast(t.autograd.Function):
        @staticmethod
        @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)
        def forward(ctx, a, box, extra):
            ctx.dtypes = (a.dtype, box["b"][0].dtype, extra)
            assert not t.is_autocast_enabled("cpu")
            return a * box["b"][0]

        @staticmethod
        @t.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            assert not t.is_autocast_enabled("cpu")
            return g, None, None

    return Plain, Cast


@needs_torch
def test_custom_functions():
    import torch

    out = []
    for t in (torch, autograd_nb):
        Plain, Cast = two_functions(t)
        a = t.ones(2, 2, requires_grad=True)
        with t.autocast("cpu"):
            p = Plain.apply(a, a)
            q = Cast.apply(p, {"b": [p.detach()]}, "word")
        p.sum().backward(retain_graph=True)
        out.append([str(p.dtype), str(q.dtype), a.grad.tolist(), str(a.grad.dtype)])
    assert out[0] == out[1]


SCALER = r"""
GradScaler('cpu', growth_factor=1.0)
GradScaler('cpu', backoff_factor=1.0)
GradScaler('cpu').scale(3)
GradScaler('cpu').step(o)
GradScaler('cpu').update()
GradScaler('cpu').unscale_(o)
s.unscale_(o); s.unscale_(o)
s.step(o); s.step(o)
s.step(o); s.unscale_(o)
s.step(o, closure=lambda: 0)
s.step(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.))
s.update()
s.update(torch.ones(2))
s.update(torch.ones(1, requires_grad=True))
s.load_state_dict({})
h.grad = h.detach(); s.unscale_(torch.optim.SGD([h], lr=1.))
s.unscale_(o); pickle.dumps(s)
torch.autocast(0)
torch.autocast('toaster')
torch.autocast('cpu')(3)
torch.is_autocast_enabled('toaster')
"""


@needs_torch
@pytest.mark.parametrize("line", [line for line in SCALER.strip().splitlines() if line])
def test_refused(line):
    import torch

    said = []
    for t in (torch, autograd_nb):
        w = t.ones(1, requires_grad=True)
        o = t.optim.SGD([w], lr=1.0)
        s = t.amp.GradScaler("cpu")
        s.scale(w.sum()).backward()
        try:
            exec(line, dict(torch=t, GradScaler=t.amp.GradScaler, o=o, s=s, w=w, h=t.ones(1).half().requires_grad_(), pickle=pickle))
        except Exception as error:
            said.append((type(error).__name__, str(error)))
        else:
            said.append(None)
    assert said[0] is not None and said[1] is not None and said[1][0] == said[0][0]
    if "toaster" not in line:
        assert said[1][1].startswith(said[0][1].split("\n")[0][:60])


@needs_torch
def test_scales_grow_and_back_off():
    import torch

    out = []
    for t in (torch, autograd_nb):
        w, u = t.ones(2, requires_grad=True), t.ones(1, requires_grad=True)
        o, p = t.optim.SGD([w], lr=0.1), t.optim.SGD([u], lr=0.1)
        s = t.amp.GradScaler("cpu", init_scale=8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2)
        seen = []
        for i in range(9):
            factor = float("inf") if i == 3 else float("nan") if i == 6 else 1.0
            a, (b, (c,)) = s.scale([w.sum() * factor, ((u * 2).sum(), [u.sum()])])
            o.zero_grad(), p.zero_grad()
            (a + b + c).backward()
            s.unscale_(o)
            s.step(o), s.step(p)
            s.update()
            seen.append([s.get_scale(), s._get_growth_tracker(), *w.tolist(), *u.tolist()])
            if i == 4:
                s = copy.deepcopy(s)
            if i == 5:
                held, s = s.state_dict(), t.amp.GradScaler("cpu")
                s.load_state_dict(held)
        s.scale(w.sum())
        s.update(16.0)
        seen.append([s.get_scale(), s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval(), *s.state_dict().values()])
        out.append(seen)
    for a, b in zip(*out):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@needs_torch
def test_scaler_that_is_switched_off():
    import torch

    for t in (torch, autograd_nb):
        w = t.ones(1, requires_grad=True)
        o = t.optim.SGD([w], lr=0.5)
        s = t.amp.GradScaler("cpu", enabled=False)
        loss = w.sum()
        assert s.scale(loss) is loss and not s.is_enabled() and s.get_scale() == 1.0 and s.state_dict() == {}
        loss.backward()
        s.unscale_(o)
        s.step(o)
        s.update()
        s.load_state_dict({})
        assert w.item() == 0.5


def test_without_a_gpu_gpu_modes_switch_themselves_off():
    t = autograd_nb
    if t.cuda.is_available():
        pytest.skip("there is a GPU")
    from autograd_nb.cuda.amp import GradScaler, autocast

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        scaler = GradScaler()
        with autocast():
            assert (t.ones(2, 2) @ t.ones(2, 2)).dtype is t.float32
    assert not scaler.is_enabled() and any("CUDA is not available" in str(w.message) for w in said)
    w = t.ones(1, requires_grad=True)
    o = t.optim.SGD([w], lr=0.5)
    scaler.scale(w.sum()).backward()
    scaler.step(o)
    scaler.update()
    assert w.item() == 0.5


@needs_torch
def test_unsupported_dtype():
    import torch

    said = []
    for t in (torch, autograd_nb):
        with pytest.warns(UserWarning) as caught, t.autocast("cpu", dtype=t.float32):
            assert not t.is_autocast_enabled("cpu")
        said.append(str(caught[0].message))
    assert said[0] == said[1]
