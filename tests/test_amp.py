"""Autocast and loss scaling: the dtypes, the numbers and the errors of PyTorch."""

import copy
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from _rounding import assert_same_numbers

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
torch.linalg.lu_solve(*torch.linalg.lu_factor(w), x.T)
torch.lu_solve(x.T, *torch.linalg.lu_factor(w)[:2])
torch.linalg.householder_product(w, v)
torch.orgqr(w, v)
torch.ormqr(w, v, w)
F.rrelu(x, 0.2, 0.2, training=True)
torch.lstm_cell(x, (x, x), torch.cat([w] * 4), torch.cat([w] * 4))[0]
torch.lstm_cell(x, (x, x), torch.cat([w] * 4), torch.cat([w] * 4))[1]
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


DTYPES = r"""
torch.mv(w, v)
w @ v
v @ w
v @ v
torch.dot(v, v)
torch.vdot(v, v)
torch.inner(v, v)
torch.inner(x, w)
torch.outer(v, v)
torch.ger(v, v)
torch.matmul(v, v)
torch.matmul(b, v)
torch.matmul(b, b.mT)
torch.addmv(v, w, v)
torch.addr(w, v, v)
torch.addmm(w, w, w)
torch.addbmm(w[:3,:3], b, b.mT)
torch.baddbmm(torch.zeros(2,3,3), b, b.mT)
torch.einsum('i,i->', v, v)
torch.einsum('ij,j->i', w, v)
torch.einsum('bij,bkj->bik', b, b)
torch.einsum('ij,ij->i', w, w)
torch.tensordot(w, w, 1)
torch.tensordot(x, x)
torch.tensordot(v, v, 1)
torch.polar(half, half)
torch.stft(half.flatten(), 4, window=torch.ones(4), return_complex=True)
torch.chain_matmul(w, w, w)
torch.linalg.multi_dot([w, w, w])
torch.linalg.multi_dot([w, w])
torch.linalg.matmul(w, w)
torch.linalg.vecdot(w, w)
torch.matrix_power(w, 3)
torch.linalg.matrix_power(w, 2)
torch.matrix_exp(w)
torch.kron(w, w)
torch.bilinear(x, x, torch.randn(5, 4, 4), None)
F.bilinear(x, x, torch.randn(5, 4, 4), None)
F.linear(x, w)
F.linear(x, w, v)
F.linear(v, w)
F.conv1d(image[0], torch.randn(4, 5, 3))
F.conv3d(image[:, None], torch.randn(4, 1, 2, 2, 2))
F.conv_transpose1d(image[0], torch.randn(5, 4, 3))
F.prelu(x, torch.ones(1))
F.prelu(half, torch.ones(1))
F.avg_pool2d(image, 2)
F.avg_pool2d(himage, 2)
F.avg_pool3d(himage, 2)
F.adaptive_avg_pool2d(himage, 2)
F.adaptive_avg_pool3d(himage, 2)
F.adaptive_max_pool2d(himage, 2)
F.max_pool2d(himage, 2)
F.avg_pool1d(himage[0], 2)
F.interpolate(himage, scale_factor=2)
F.interpolate(himage, scale_factor=2, mode='bilinear')
F.interpolate(himage, scale_factor=2, mode='bicubic')
F.pad(himage, (1, 1, 1, 1), mode='replicate')
F.pixel_shuffle(torch.randn(1, 4, 2, 2).to(half.dtype), 2)
F.unfold(himage, 2)
F.fold(F.unfold(himage, 2), (5, 5), 2)
F.grid_sample(himage, torch.zeros(2, 2, 2, 2), align_corners=False)
F.batch_norm(himage, torch.zeros(3), torch.ones(3), training=True)
F.batch_norm(image, torch.zeros(3), torch.ones(3), training=True)
F.group_norm(himage, 3)
F.group_norm(himage, 3, torch.ones(3), torch.zeros(3))
F.instance_norm(himage)
F.layer_norm(half, (4,))
F.layer_norm(half, (4,), v, v)
F.rms_norm(half, (4,))
F.rms_norm(half, (4,), v)
F.local_response_norm(himage, 2)
F.normalize(half)
F.cosine_similarity(half, half)
F.pairwise_distance(half, half)
torch.cdist(x, x)
torch.cdist(half, half)
F.embedding(y, w)
F.embedding_bag(y[None], w)
F.dropout(half, .5)
F.relu(half)
F.silu(half)
F.elu(half)
F.softplus(half)
F.softmax(half, 0)
F.softmin(half, 0)
F.log_softmax(half, 0)
F.gumbel_softmax(half)
F.logsigmoid(half)
F.hardswish(half)
F.mish(half)
F.glu(half)
F.tanhshrink(half)
torch.exp(half)
torch.log(half.abs())
torch.pow(half, 2)
half ** 2
2 ** half
torch.sqrt(half.abs())
torch.rsqrt(half.abs())
torch.erfinv(half)
torch.tan(half)
torch.acos(half)
torch.cumsum(half, 0)
torch.cumprod(half, 0)
torch.sum(half)
torch.mean(half)
torch.var(half)
torch.std(half)
torch.norm(half)
torch.linalg.norm(half)
torch.linalg.vector_norm(half)
torch.linalg.matrix_norm(half)
torch.logsumexp(half, 0)
torch.logcumsumexp(half, 0)
torch.prod(half)
torch.median(half)
torch.quantile(half, .5)
torch.nanquantile(half, .5)
torch.dist(half, half)
torch.renorm(half, 2, 0, 1.)
torch.trace(half)
torch.addcmul(x, half, half)
torch.addcdiv(x, half, half)
torch.lerp(half, half, .5)
torch.hstack([x, half])
torch.vstack([x, half])
torch.index_copy(x, 0, torch.tensor([0]), x[:1])
torch.scatter_add(x, 0, torch.zeros(3, 4).long(), x)
torch.cross(half[:, :3], half[:, :3], dim=1)
torch.atan2(half, x)
torch.where(x > 0, x, half)
torch.maximum(half, x)
torch.bmm(b.to(half.dtype), b.mT)
F.multi_head_attention_forward(b, b, b, 4, 1, torch.randn(12, 4), torch.randn(12), None, None, False, 0., torch.randn(4, 4), torch.randn(4))[0]
torch.nn.MultiheadAttention(4, 2)(b, b, b)[0]
torch.nn.TransformerEncoderLayer(4, 2, 8)(b)
torch.nn.GRU(4, 5)(b)[0]
torch.nn.RNN(4, 5)(b)[0]
torch.nn.LSTMCell(4, 5)(x)[0]
torch.nn.GRUCell(4, 5)(x)
torch.nn.RNNCell(4, 5)(x)
torch.nn.Bilinear(4, 4, 3)(x, x)
torch.nn.BatchNorm1d(4)(half)
torch.nn.LayerNorm(4)(half)
F.nll_loss(half, y)
F.mse_loss(half, half)
F.l1_loss(half, half)
F.kl_div(half, half)
F.binary_cross_entropy_with_logits(half, half)
F.binary_cross_entropy(half.sigmoid(), half.sigmoid())
F.poisson_nll_loss(half, half)
F.gaussian_nll_loss(half, half, half.abs())
F.hinge_embedding_loss(half, torch.ones(3, 4))
F.soft_margin_loss(half, torch.ones(3, 4))
F.triplet_margin_loss(half, half, half)
F.triplet_margin_with_distance_loss(half, half, half)
F.multi_margin_loss(half, y)
F.multilabel_margin_loss(half, torch.zeros(3, 4).long())
F.multilabel_soft_margin_loss(half, torch.ones(3, 4))
F.ctc_loss(torch.randn(4, 2, 5).to(half.dtype).log_softmax(-1), torch.ones(2, 2).long(), torch.tensor([4, 4]), torch.tensor([2, 2]))
torch.linalg.inv(w)
torch.linalg.solve(w, w)
torch.linalg.cholesky(w @ w.T + torch.eye(4))
torch.linalg.det(w)
torch.linalg.slogdet(w)[1]
torch.linalg.eigvalsh(w)
torch.linalg.svd(w)[0]
torch.linalg.qr(w)[0]
torch.linalg.lstsq(w, w)[0]
torch.linalg.matrix_rank(w)
torch.linalg.cond(w)
torch.fft.fft(v)
torch.fft.rfft(v)
torch.stft(torch.randn(40), 8, return_complex=True, window=torch.ones(8))
torch.cholesky_solve(w, w.abs() + 5 * torch.eye(4))
torch.triangular_solve(w, w)[0]
torch.special.erf(half)
torch.cov(half)
torch.corrcoef(half)
torch.softmax(half, 0)
half + x
half * x
half - 1
half / 2
x * 2
x.sum()
torch.polar(v, v)
torch.complex(v, v)
torch.view_as_complex(w[:, :2].contiguous())
torch.tril(half)
torch.masked_fill(half, half > 0, 0.)
torch.mean(image)
torch.mm(w, w.to(half.dtype))
torch.mm(w.double(), w.double())
torch.rrelu(half)
torch.celu(half)
torch.histc(x)
torch.bucketize(x, v.sort().values)
torch.nn.functional.linear(x.double(), w.double())
torch.special.logsumexp(half, 0)
F.pad(himage, (1, 1, 1, 1), mode='reflect')
F.pad(himage[:, None], (1,)*6, mode='reflect')
F.pad(himage[0], (1, 1), mode='replicate')
F.pad(himage[:, None], (1,)*6, mode='replicate')
F.pad(himage, (1, 1, 1, 1), mode='circular')
F.pad(himage, (1, 1, 1, 1))
F.interpolate(himage[0], scale_factor=2)
F.interpolate(himage[0], scale_factor=2, mode='linear')
F.interpolate(himage[:, None], scale_factor=2)
F.interpolate(himage[:, None], scale_factor=2, mode='trilinear')
F.adaptive_avg_pool1d(himage[0], 2)
F.max_pool3d(himage[:, None], 2)
F.max_pool1d(himage[0], 2)
F.max_pool1d(himage[0], 2, return_indices=True)[0]
F.adaptive_max_pool3d(himage, 2)
F.adaptive_max_pool1d(himage[0], 2)
F.fractional_max_pool2d(himage, 2, output_size=2)
F.lp_pool2d(himage, 2, 2)
F.softshrink(half)
F.hardtanh(half)
F.one_hot(y)
F.channel_shuffle(himage[:, :2], 2)
F.feature_alpha_dropout(himage, .5)
torch.logaddexp(half, half)
torch.xlogy(half, half)
torch.hypot(half, half)
torch.lgamma(half)
torch.digamma(half)
torch.fft.ifft(torch.fft.fft(half))
torch.fft.fft2(half)
torch.fft.rfft2(half)
torch.fft.irfft(torch.fft.rfft(v))
torch.istft(torch.stft(torch.randn(40), 8, return_complex=True, window=torch.ones(8)), 8, window=torch.ones(8))
torch.histogram(x.flatten(), 3)[0]
torch.linalg.householder_product(w, v)
torch.linalg.ldl_factor(w)[0]
torch.linalg.eig(w)[0]
torch.linalg.eigvals(w)
torch.linalg.eigh(w)[0]
torch.linalg.svdvals(w)
torch.linalg.solve_triangular(w, w, upper=True)
torch.linalg.lu(w)[1]
torch.linalg.lu_factor(w)[0]
torch.linalg.tensorinv(torch.eye(4).reshape(2,2,2,2))
torch.linalg.tensorsolve(torch.eye(4), v)
torch.linalg.inv_ex(w)[0]
torch.linalg.matrix_exp(w)
torch.linalg.cholesky_ex(w)[0]
torch.linalg.solve_ex(w, w)[0]
torch.lu_solve(w, *torch.linalg.lu_factor(w))
torch.cholesky_inverse(w.abs() + 5 * torch.eye(4))
torch.nn.RMSNorm(4)(half)
torch.nn.PReLU()(x)
torch.nn.CosineSimilarity()(half, half)
torch.nn.PairwiseDistance()(half, half)
torch.nn.GroupNorm(1, 3)(himage)
torch.nn.Softmax2d()(himage)
torch.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(half, y)[0]
torch.nn.Transformer(4, 2, 1, 1, 8)(b, b)
torch.nn.TransformerDecoderLayer(4, 2, 8)(b, b)
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1).eval()(b)
torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()(b, b, b)[0]
torch.nn.MultiheadAttention(4, 2, batch_first=True)(b, b, b, need_weights=False)[0]
torch.nn.MultiheadAttention(4, 2)(b, b, b)[1]
torch.nn.EmbeddingBag(4, 4)(y[None])
torch.nn.Linear(4, 4)(x).softmax(-1)
torch.nn.Linear(4, 4)(x).sum()
torch.nn.Linear(4, 4)(x).pow(2).mean()
torch.nn.Conv2d(3, 4, 3)(image).relu().mean((2, 3))
torch.nn.BatchNorm2d(4)(torch.nn.Conv2d(3, 4, 3)(image))
torch.nn.LayerNorm(4)(torch.nn.Linear(4, 4)(x))
torch.nn.Linear(4, 4)(x) + x
torch.scatter_reduce(x, 0, torch.zeros(3, 4).long(), x, 'sum')
torch.masked_scatter(x, x > 0, half)
torch.mean(half, dtype=torch.float32)
torch.sum(half, 0, dtype=torch.float32)
torch.special.entr(half.abs())
torch.special.i0(half)
torch.special.xlog1py(half, half)
"""


@pytest.mark.sample(1)
@needs_torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes_of_everything_else(dtype):
    "Which operations compute in short numbers, which in long ones, and which take what they are given."
    import torch

    different = {}
    for expression in DTYPES.strip().splitlines():
        found = []
        for t in (torch, autograd_nb):
            names = setting(t)
            names["half"], names["himage"] = (names[k].to(getattr(t, dtype)) for k in ("x", "image"))
            with t.autocast("cpu", dtype=getattr(t, dtype)), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found.append(str(eval(expression, names).dtype))
                except (RuntimeError, NotImplementedError) as error:
                    found.append(type(error).__name__)
        if found[0] != found[1]:
            different[expression] = found
    assert not different


@needs_torch
def test_training_in_mixed_precision():
    "Twenty steps of a small classifier stay near PyTorch's; parameters and gradients are float32."
    import torch

    def curve(t):
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
        return losses

    found = curve(autograd_nb)
    assert_same_numbers(found, curve(torch), lambda: curve(torch), rtol=0.02, atol=0.02)
    assert found[-1] < found[0] / 2


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

    assert not LOCAL.modes.general and not LOCAL.modes.counted


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


FIRST_OF_A_PROCESS = """
import autograd_nb as torch
torch.manual_seed(0)
m, x = torch.nn.Linear(12, 8), torch.randn(6, 12)
with torch.autocast("cpu", dtype=torch.bfloat16):
    first, second = m(x), m(x)
assert torch.equal(first, second), (first - second).abs().max()
"""


def test_the_first_half_precision_of_a_process_is_computed_like_the_next():
    "The operands were cast when the layers around the operation were chosen already: its product summed in 16 bits."
    done = subprocess.run([sys.executable, "-c", FIRST_OF_A_PROCESS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_every_name_of_the_tables_means_something():
    "Autocast looks operations and functions up by their names: one that is mistyped would change nothing, in silence."
    from autograd_nb.amp.autocast_mode import LONG, SHORT, WIDEST
    from autograd_nb.graph.op import REGISTRY

    modules = [vars(m) for name, m in list(sys.modules.items()) if name.partition(".")[0] == "autograd_nb"]
    names = set().union(*SHORT.values(), *LONG.values(), *WIDEST.values())
    assert [n for n in sorted(names) if n not in REGISTRY and not any(callable(m.get(n)) for m in modules)] == []


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", "cpu cuda mps xpu hpu xla ipu mtia maia privateuseone meta vulkan".split())
def test_packages_ask_for_kinds_of_devices_that_are_not_here(kind):
    import torch

    def attempt(library):
        try:
            return library.is_autocast_enabled(kind)
        except RuntimeError as error:
            return str(error)[:76]

    assert attempt(autograd_nb) == attempt(torch)


def steps_of_an_optimiser_that_knows_of_scales(t, told, unscale, bad):
    "What an optimiser sees in its step, what the step returns and what the scale is afterwards."
    seen, numbers = [], lambda v: None if v is None else v.tolist()

    class Looks(t.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None):
            seen.append([numbers(self.grad_scale), numbers(self.found_inf), numbers(self.param_groups[0]["params"][0].grad)])
            return "done"

    class Asks(t.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None, *, grad_scaler=None):
            seen.append(grad_scaler.get_scale())
            return "asked"

    w = t.nn.Parameter(t.tensor([1.0, 2.0]))
    optimizer, scaler = (Asks if told else Looks)([w], lr=0.1), t.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale((w * (float("inf") if bad else 3.0)).sum()).backward()
    if unscale:
        scaler.unscale_(optimizer)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        seen.append(scaler.step(optimizer))
    seen.append([(w.category, str(w.message)[:40]) for w in found])
    seen.append([hasattr(optimizer, name) for name in ("grad_scale", "found_inf")])
    if unscale or not told:
        scaler.update()
    return seen, scaler.get_scale()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("bad", [False, True])
def test_optimisers_that_know_of_scales_step_by_themselves(told, unscale, bad):
    import torch

    case = told, unscale, bad
    assert steps_of_an_optimiser_that_knows_of_scales(autograd_nb, *case) == steps_of_an_optimiser_that_knows_of_scales(torch, *case)


PRODUCTS_OUT = {
    "mm": "lib.mm(a, a, out=out)", "matmul": "lib.matmul(a, a, out=out)", "bmm": "lib.bmm(a[None], a[None], out=out)", "addmm": "lib.addmm(a, a, a, out=out)",
    "baddbmm": "lib.baddbmm(a[None], a[None], a[None], out=out)", "addbmm": "lib.addbmm(a, a[None], a[None], out=out)",
}  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", PRODUCTS_OUT)
def test_autocast_leaves_calls_alone_that_say_where_the_result_goes(name):
    import torch

    found = []
    for lib in (torch, autograd_nb):
        a = lib.arange(9.0).reshape(3, 3) / 7
        out = lib.zeros(1, 3, 3) if name in ("bmm", "baddbmm") else lib.zeros(3, 3)
        with lib.autocast("cpu"):
            assert eval(PRODUCTS_OUT[name], {"lib": lib, "a": a, "out": out}) is out
            assert lib.mm(a, a).dtype is lib.bfloat16
        assert out.dtype is lib.float32
        found.append(out.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


ARRIVING = {
    "linear": "F.linear(p[0][:2], p[1], p[2][0])",
    "convolution": "F.conv1d(p[0][None], p[1][..., None], p[2][0])",
    "product": "p[0] @ p[1]",
    "addmm": "lib.addmm(p[0], p[1], p[2])",
    "loss": "F.mse_loss(p[0].bfloat16() * 1, p[1])",
    "attention": "F.scaled_dot_product_attention(p[0][None, None], p[1][None, None], p[2][None, None])",
}


@needs_torch
@pytest.mark.parametrize("call", ARRIVING.values(), ids=ARRIVING)
def test_gradients_of_parameters_arrive_in_the_same_order_under_autocast(call):
    import torch

    def order(lib):
        log = []
        p = [lib.full((3, 3), v, requires_grad=True) for v in (0.5, 0.25, 0.75)]
        for i, q in enumerate(p):
            q.register_hook(lambda g, i=i: log.append(i))
        with lib.autocast("cpu", dtype=lib.bfloat16):
            out = eval(call, {"lib": lib, "F": lib.nn.functional, "p": p})
        out.float().sum().backward()
        return log

    assert order(autograd_nb) == order(torch)
