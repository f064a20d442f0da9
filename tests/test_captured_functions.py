"""Captured, a function of tensors gives what it gives otherwise, for other numbers too; or it is refused. It is never wrong."""

import warnings

import numpy as np
import pytest
import test_ops_matrix as matrix

import autograd_nb as torch
import autograd_nb.nn.functional as F
from autograd_nb import nn
from autograd_nb.capturing.recording import Sign
from autograd_nb.graph.node import SCOPES
from autograd_nb.graph.op import REGISTRY
from autograd_nb.layers.codegen import growing
from autograd_nb.ops import compiled
from autograd_nb.utils.capture import CaptureError, capture

R = torch.randn


def ints(n, *shape):
    return torch.randint(0, n, shape)


def assigned(x, y):
    z = torch.zeros(6, 3)
    z[y] = x[:4] * 2
    z[:, 0] = 1
    z[0] += x[1]
    return (z * x).sum()


def masked(x):
    z = x * 1
    z[z > 0] = 0
    return (z * x).sum()


def unpooled(x):
    out, index = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(out, index, 2).pow(2).sum()


def policy(x):
    d = torch.distributions.Categorical(logits=x)
    return -(d.log_prob(d.sample()) * x.sum(1)).mean() - d.entropy().mean()


def drawn_of(x, families):
    drawn = [d.rsample() if d.has_rsample else d.sample() for d in families(torch.distributions, x.exp() + 0.1)]
    return sum((v * v * x).sum() for v in drawn)


# What package code computes on bare arrays: the second recording meets other arrays, and says so.
REFUSED = {
    "ctc",
    "mask mean",
    "unique",
    "repint",
}
PROGRAMS = {
    "ce weight ignore": (lambda x, y: F.cross_entropy(x, y, weight=torch.tensor([1.0, 2.0, 3.0]), ignore_index=1), lambda: (R(6, 3), ints(3, 6))),
    "ce smoothing": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), lambda: (R(6, 3), ints(3, 6))),
    "ce smoothing ignore": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=1), lambda: (R(6, 3), ints(3, 6))),
    "ce soft": (lambda x, y: F.cross_entropy(x, y.softmax(-1)), lambda: (R(6, 3), R(6, 3))),
    "nll 2d": (lambda x, y: F.nll_loss(x.log_softmax(1), y), lambda: (R(2, 3, 4, 4), ints(3, 2, 4, 4))),
    "multi margin": (lambda x, y: F.multi_margin_loss(x, y), lambda: (R(6, 3), ints(3, 6))),
    "multilabel margin": (lambda x, y: F.multilabel_margin_loss(x, y), lambda: (R(6, 3), torch.stack([torch.randperm(3) for _ in range(6)]))),
    "triplet": (lambda x, y: F.triplet_margin_loss(x, y, x * y), lambda: (R(6, 3), R(6, 3))),
    "cosine emb": (lambda x, y: F.cosine_embedding_loss(x, y, (x[:, 0] > 0).float() * 2 - 1), lambda: (R(6, 3), R(6, 3))),
    "ctc": (lambda x, y: F.ctc_loss(x.log_softmax(2), y, (8, 8), (3, 3)), lambda: (R(8, 2, 5), ints(4, 2, 3) + 1)),
    "gaussian nll": (lambda x, y: F.gaussian_nll_loss(x, y, x * x + 0.1), lambda: (R(6, 3), R(6, 3))),
    "poisson": (lambda x, y: F.poisson_nll_loss(x, y.abs(), full=True), lambda: (R(6, 3), R(6, 3))),
    "kl": (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), lambda: (R(6, 3), R(6, 3))),
    "one_hot": (lambda x, y: (F.one_hot(y, 3) * x).sum(), lambda: (R(6, 3), ints(3, 6))),
    "gumbel": (lambda x: (F.gumbel_softmax(x, hard=True) * x).sum(), lambda: (R(6, 3),)),
    "rrelu": (lambda x: F.rrelu(x, training=True).sum(), lambda: (R(6, 3),)),
    "embedding bag": (lambda x, y: F.embedding_bag(y.reshape(2, 3), x).sum(), lambda: (R(6, 3), ints(6, 6))),
    "embedding pad": (lambda x, y: F.embedding(y, x, padding_idx=2).pow(2).sum(), lambda: (R(6, 3), ints(6, 6))),
    "embedding norm": (lambda x, y: F.embedding(y, x, max_norm=1.0).pow(2).sum(), lambda: (R(6, 3), ints(6, 6))),
    "gather": (lambda x, y: x.gather(1, y[:, None]).sum(), lambda: (R(6, 3), ints(3, 6))),
    "index": (lambda x, y: x[y].pow(2).sum(), lambda: (R(6, 3), ints(6, 4))),
    "index mixed": (lambda x, y: x[y, 1:].pow(2).sum(), lambda: (R(6, 3), ints(6, 4))),
    "neg index": (lambda x, y: x[y - 6].pow(2).sum(), lambda: (R(6, 3), ints(6, 4))),
    "index assign": (lambda x, y: torch.zeros(6, 3).index_put((y,), x[:4]).pow(2).sum(), lambda: (R(6, 3), ints(6, 4))),
    "setitem": (lambda x, y: assigned(x, y), lambda: (R(6, 3), ints(6, 4))),
    "mask fill": (lambda x: x.masked_fill(x > 0, 0.0).pow(2).sum(), lambda: (R(6, 3),)),
    "mask mean": (lambda x: x[x > 0].mean(), lambda: (R(6, 3),)),
    "mask set": (lambda x: masked(x), lambda: (R(6, 3),)),
    "sort": (lambda x: x.sort(1)[0][:, 0].sum() + x.topk(2, 1)[0].pow(2).sum(), lambda: (R(6, 3),)),
    "max idx": (lambda x: x.max(1)[0].pow(2).sum() + x.median(), lambda: (R(6, 3),)),
    "argmax use": (lambda x: x[torch.arange(6), x.argmax(1)].pow(2).sum(), lambda: (R(6, 3),)),
    "cummax": (lambda x: x.cummax(0)[0].pow(2).sum() + x.cumprod(1).sum(), lambda: (R(6, 3),)),
    "unique": (lambda x, y: y.unique().sum() * x.sum(), lambda: (R(6, 3), ints(6, 4))),
    "bincount": (lambda x, y: (torch.bincount(y, minlength=6) * x[:, 0]).sum(), lambda: (R(6, 3), ints(6, 4))),
    "norm": (lambda x: x.norm() + x.norm(1, dim=1).sum() + F.normalize(x).sum(), lambda: (R(6, 3),)),
    "std": (lambda x: x.std() + x.var(0).sum(), lambda: (R(6, 3),)),
    "logsumexp": (lambda x: x.logsumexp(1).sum(), lambda: (R(6, 3),)),
    "linalg": (lambda x: torch.linalg.inv(x.T @ x + torch.eye(3)).sum() + torch.linalg.svdvals(x).sum(), lambda: (R(6, 3),)),
    "conv2d": (lambda x: F.conv2d(x, x[:1, :, :3, :3]).pow(2).sum(), lambda: (R(2, 3, 8, 8),)),
    "convT": (lambda x: F.conv_transpose2d(x, x[:1, :, :3, :3].transpose(0, 1), stride=2).pow(2).sum(), lambda: (R(2, 3, 4, 4),)),
    "pool": (
        lambda x: F.max_pool2d(x, 2).pow(2).sum() + F.avg_pool2d(x, 2).pow(2).sum() + F.adaptive_avg_pool2d(x, 3).pow(2).sum() + F.adaptive_max_pool2d(x, 3).sum(),
        lambda: (R(2, 3, 8, 8),),
    ),
    "maxunpool": (lambda x: unpooled(x), lambda: (R(2, 3, 8, 8),)),
    "fracpool": (lambda x: F.fractional_max_pool2d(x, 2, output_size=3).pow(2).sum(), lambda: (R(2, 3, 8, 8),)),
    "interp": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear").pow(2).sum(), lambda: (R(2, 3, 4, 4),)),
    "grid": (lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False).pow(2).sum(), lambda: (R(2, 3, 4, 4),)),
    "dropouts": (lambda x: F.dropout2d(x, 0.3).sum() + F.alpha_dropout(x, 0.3, True).pow(2).sum() + F.feature_alpha_dropout(x, 0.2, True).sum(), lambda: (R(2, 3, 4, 4),)),
    "norms": (
        lambda x: (
            F.group_norm(x, 3).pow(3).sum() + F.instance_norm(x).pow(3).sum() + F.layer_norm(x, (4, 4)).pow(3).sum() + F.local_response_norm(x, 2).sum() + F.rms_norm(x, (4,)).sum()
        ),
        lambda: (R(2, 3, 4, 4),),
    ),
    "bernoulli": (lambda x: (torch.bernoulli(x.detach().sigmoid()) * x).sum(), lambda: (R(6, 3),)),
    "bernoulli_": (lambda x: (torch.empty(6, 3).bernoulli_(0.4) * x).sum(), lambda: (R(6, 3),)),
    "normal": (lambda x: (torch.normal(x.detach(), 1.0) * x).sum(), lambda: (R(6, 3),)),
    "multinomial": (lambda x: (torch.multinomial(x.softmax(1), 1) * x).sum(), lambda: (R(6, 3),)),
    "randperm": (lambda x: x[torch.randperm(6)][:3].pow(2).sum(), lambda: (R(6, 3),)),
    "rand_like": (lambda x: (torch.rand_like(x) * x).sum() + (torch.randn(3) * x).sum() + (x * torch.randint(0, 5, (3,))).sum(), lambda: (R(6, 3),)),
    "noise_": (lambda x: (x + torch.zeros(6, 3).normal_().uniform_()).pow(2).sum(), lambda: (R(6, 3),)),
    "Normal.rsample": (lambda x: torch.distributions.Normal(x, 1.0).rsample().pow(2).sum(), lambda: (R(6, 3),)),
    "Categorical": (lambda x: policy(x), lambda: (R(6, 3),)),
    "Gamma": (lambda x: torch.distributions.Gamma(x.exp(), 1.0).rsample().sum(), lambda: (R(6, 3),)),
    "Dirichlet, Beta": (lambda x: drawn_of(x, lambda d, p: [d.Dirichlet(p), d.Beta(p, p + 1)]), lambda: (R(6, 3),)),
    "gamma's kin": (lambda x: drawn_of(x, lambda d, p: [d.Chi2(p), d.StudentT(p + 2), d.InverseGamma(p + 1, p), d.FisherSnedecor(p, p)]), lambda: (R(6, 3),)),
    "uniform's kin": (
        lambda x: drawn_of(x, lambda d, p: [d.Exponential(p), d.Cauchy(p, p), d.HalfCauchy(p), d.Weibull(p, p), d.Pareto(p, p), d.Geometric(x.sigmoid())]),
        lambda: (R(6, 3),),
    ),
    "counts": (lambda x: drawn_of(x, lambda d, p: [d.Poisson(p), d.Binomial(5, x.sigmoid()), d.NegativeBinomial(p, x.sigmoid())]), lambda: (R(6, 3),)),
    "VonMises": (lambda x: drawn_of(x, lambda d, p: [d.VonMises(x, p)]), lambda: (R(6, 3),)),
    "draws in place": (
        lambda x: sum((torch.empty(6, 3).exponential_(2.0) * x, torch.empty(6, 3).cauchy_() * x, torch.empty(6, 3).log_normal_() * x, torch.empty(6, 3).geometric_(0.3) * x)).sum(),
        lambda: (R(6, 3),),
    ),
    "poisson draws": (lambda x: (torch.poisson(x.exp()) * x).sum() + (torch.binomial(x.detach() * 0 + 5, x.detach().sigmoid()) * x).sum(), lambda: (R(6, 3),)),
    "clamp_": (lambda x: (x * 2).clamp_(-1, 0.5).pow(2).sum() + (x * 2).clip_(x.detach().mean()).sum() + x.clone().clamp_(max=0.1).exp().sum(), lambda: (R(6, 3),)),
    "where of numbers": (lambda x: (torch.where(x > 0, 1.0, -1.0) * x).sum() + (torch.where(x > x.mean(), 3, 1) * x * x).sum(), lambda: (R(6, 3),)),
    "renorm_": (lambda x: (x * 2).renorm_(2, 0, 1.0).pow(3).sum(), lambda: (R(6, 3),)),
    "fill_diagonal_": (lambda x: (x @ x.T).fill_diagonal_(0.5).pow(2).sum() + (x * 1).fill_diagonal_(2.0, wrap=True).sum(), lambda: (R(6, 3),)),
    "triangles": (lambda x: x[tuple(torch.tril_indices(6, 3))].sum() + x[tuple(torch.triu_indices(6, 3))].exp().sum() + torch.linalg.vander(x[:, 0]).sum(), lambda: (R(6, 3),)),
    "questions": (
        lambda x, y: (torch.isin(y, y[:2]) * x[:4, 0]).sum() + (torch.isclose(x, x.round(), atol=0.1) * x).sum() + (torch.histc(x.detach(), 3, -1, 1) * x).sum(),
        lambda: (R(6, 3), ints(6, 4)),
    ),
    "weighed bins": (lambda x, y: (torch.bincount(y, x.detach()[:4, 0], minlength=6) * x[:, 0]).sum(), lambda: (R(6, 3), ints(6, 4))),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x).sum(), lambda: (R(6, 3),)),
    "vmap": (lambda x: torch.vmap(lambda v: (v * v).sum())(x).sum(), lambda: (R(6, 3),)),
    "func.grad": (lambda x: (torch.func.grad(lambda v: (v**3).sum())(x) * x).sum(), lambda: (R(6, 3),)),
    "where3": (lambda x: torch.where(x > 0, x, x.exp()).sum(), lambda: (R(6, 3),)),
    "clamp tensors": (lambda x: x.clamp(-x.abs().mean(), x.abs().mean()).pow(2).sum(), lambda: (R(6, 3),)),
    "mha": (
        lambda x: F.multi_head_attention_forward(x, x, x, 4, 2, torch.ones(12, 4) * 0.1, torch.zeros(12), None, None, False, 0.0, torch.eye(4), torch.zeros(4))[0].pow(2).sum(),
        lambda: (R(5, 2, 4),),
    ),
    "sdpa mask": (lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=(x @ x.transpose(1, 2)) > 0).pow(2).sum(), lambda: (R(2, 5, 4),)),
    "complex": (lambda x: torch.fft.fft(x).abs().pow(2).sum() + torch.view_as_complex(x[:, :2].contiguous()).abs().sum(), lambda: (R(6, 3),)),
    "cdist": (lambda x: torch.cdist(x, x * 2).sum() + F.pdist(x).sum() + F.cosine_similarity(x, x * x).sum(), lambda: (R(6, 3),)),
    "roll flip": (lambda x: (x.roll(1, 0) * x.flip(1) * x.tril()).sum(), lambda: (R(6, 3),)),
    "quantile": (lambda x: x.quantile(0.3) + x.kthvalue(2, 0)[0].sum() + x.mode(0)[0].sum(), lambda: (R(6, 3),)),
    "searchsorted": (lambda x: (torch.searchsorted(torch.arange(5.0), x) * x).sum() + (torch.bucketize(x, torch.arange(5.0)) * x).sum(), lambda: (R(6, 3),)),
    "pack": (lambda x: nn.utils.rnn.pack_padded_sequence(x, [4, 2]).data.pow(2).sum(), lambda: (R(4, 2, 3),)),
    "pad seq": (lambda x: nn.utils.rnn.pad_sequence([x[0], x[1, :2]]).pow(2).sum(), lambda: (R(4, 3),)),
    "unfold": (lambda x: F.unfold(x, 2).pow(2).sum() + x.unfold(2, 2, 1).pow(2).sum(), lambda: (R(2, 3, 4, 4),)),
    "prelu": (
        lambda x: F.prelu(x, x.mean(1)[:1].detach().abs()).sum() + F.hardswish(x).sum() + F.mish(x).sum() + F.glu(x.T.reshape(3, 6)).sum() + F.softshrink(x).sum(),
        lambda: (R(6, 3),),
    ),
    "stft": (lambda x: torch.stft(x, 8, return_complex=True, window=torch.hann_window(8)).abs().sum(), lambda: (R(32),)),
    "scatter": (
        lambda x, y: torch.zeros(6, 3).scatter_add(0, y[:, None].expand(6, 3), x).pow(2).sum() + torch.zeros(6, 3).scatter_reduce(0, y[:, None].expand(6, 3), x, "amax").sum(),
        lambda: (R(6, 3), ints(6, 6)),
    ),
    "index_add": (
        lambda x, y: torch.zeros(6, 3).index_add(0, y, x).pow(2).sum() + x.index_select(0, y).sum() + x.take(y).sum() + x.repeat_interleave(2, 0).sum(),
        lambda: (R(6, 3), ints(6, 6)),
    ),
    "repint": (lambda x, y: x.repeat_interleave(y, 0).pow(2).mean(), lambda: (R(6, 3), ints(3, 6) + 1)),
}


def outcome(step, batches):
    "What a step returns and which gradients it leaves, batch by batch."
    torch.manual_seed(5)
    out = []
    for batch in batches:
        batch = [t.clone().requires_grad_(t.requires_grad or t.is_floating_point()) for t in batch]
        loss = step(*batch)
        out.append([loss.detach().numpy(), *[t.grad.numpy().copy() for t in batch if t.grad is not None]])
    return out


def compare(expected, found):
    assert all(len(a) == len(b) for a, b in zip(expected, found))
    for a, b in zip(sum(expected, []), sum(found, [])):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions(name):
    function, draw = PROGRAMS[name]
    torch.manual_seed(0)
    batches = [draw() for _ in range(6)]

    def step(*batch):
        loss = function(*batch)
        loss.backward()
        return loss

    with compiled.plain(), warnings.catch_warnings(action="ignore"):
        expected = outcome(step, batches)
        if name in REFUSED:
            with pytest.raises(CaptureError):
                outcome(capture(step), batches)
        else:
            compare(expected, outcome(capture(step), batches))


def test_bins_that_do_not_suffice():
    count = capture(lambda y: torch.bincount(y, minlength=4) * 2)
    for _ in range(4):
        y = ints(4, 9)
        assert torch.equal(count(y), torch.bincount(y, minlength=4) * 2)
    with pytest.raises(RuntimeError, match="larger minlength"):
        count(torch.tensor([0, 7, 1, 1, 1, 1, 1, 1, 1]))
    with pytest.raises(CaptureError):
        step = capture(lambda y: torch.bincount(y) * 2)
        for _ in range(4): step(torch.arange(9))


@pytest.mark.parametrize("case", matrix.cases(matrix.differentiable))
def test_operations(case):
    rng = np.random.default_rng(1)
    first = case.draw(np.float32)
    batches = [[np.asarray(a * rng.uniform(0.9, 1.1, a.shape)).astype(a.dtype) if a.dtype.kind == "f" else a for a in first] for _ in range(5)]

    def step(*xs):
        outs = [o for o in case.outputs(*xs) if o.requires_grad]
        loss = sum((o.abs() * 1.5).sum() if o.is_complex() else (o * o * 0.5 + o).sum() for o in outs)
        loss.backward()
        return loss

    def run(step):
        out = []
        for arrays in batches:
            xs = case.tensors(arrays)
            out.append([step(*xs).detach().numpy(), *[x.grad.numpy().copy() for x in xs if x.grad is not None]])
        return out

    with compiled.plain(), warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        expected = run(step)
        compare(expected, run(capture(step)))


def elementwise():
    "Operations of one formula, with the numbers of their operands."
    for name, op in REGISTRY.items():
        if op.pointwise and not op.statics and op.rules: yield pytest.param(op, id=name)


@pytest.mark.parametrize("op", elementwise())
def test_an_operation_is_written_down_at_its_first_use_as_at_any_later_one(op):
    "A rule is taken apart by running it on what stands for arrays. Whether an operation has been compiled by then changes nothing."
    written = []

    def write(function, operands, shape, dtype):
        written.append((function, *operands))
        return f"v{len(written)}"

    scopes = len(SCOPES)
    function = growing(op, False, op.general)  # as rules call it
    found = []
    for _ in range(2):
        written.clear()
        out = function(*[Sign(write, name, (3,), np.dtype("f4")) for name in "ab"[:len(op.params)]])
        found.append((type(out), out.name, list(written)))
    del SCOPES[scopes:]
    assert found[0] == found[1] and found[0][0] is Sign and written


# Numbers of tensors that decide something outside of operations: a place, a size, a truth.
LEAVING = """
x[t] | x[t, 0] | x[:, t] | x[..., t] | x[v[0], v] | x[v, 0] | x[[v[0], v[1]]] | x[v] | x[v > 0] | x[:t] | x[t:] | x[t[None]][0]
x.select(0, t) | x.narrow(0, t, 1) | x.index_select(0, t) | x.take(t) | x.roll(t, 0) | x.repeat(t, 1) | x.split(t + 1)[0] | x.chunk(t + 1)[0] | x.diagonal(t) | x.tril(t)
x.repeat_interleave(t + 1) | x.repeat_interleave(v + 1, 0) | torch.repeat_interleave(v) | x.masked_select((v > 0)[:, None]) | x.masked_select(x > t)
torch.full((2,), t) | torch.arange(t) | torch.zeros((t, 2)) | torch.linspace(t, 5, 3) | torch.tensor(t) | torch.tensor(v) | torch.tensor([t, 1]) | x.new_tensor(v) | torch.as_tensor(v)
torch.clamp(x, t, t + 1) | torch.where(x > 4, x, t) | torch.add(x, x, alpha=t) | x**t | x.masked_fill(x > 4, t) | x.index_fill(0, v, t) | (x * 1).fill_(t) | F.pad(x, (1, 1), value=t)
x.sum(t % 2) | x.softmax(t % 2) | x.transpose(t % 2, 1) | x.topk(t + 1)[0] | x.quantile(t / 2.0) | x.round(decimals=t) | x.norm(t + 1) | x.expand(t + 1, 3, 4) | x.unfold(1, t + 1, 1)
torch.nonzero(v) | torch.nonzero(v).shape[0] * x | torch.where(v > 0)[0] | torch.argwhere(v > 1) | torch.unique(v) | len(torch.unique(v)) * x | torch.unique_consecutive(v) | len(torch.unique_consecutive(v)) * x
torch.bincount(v) | F.one_hot(v) | F.one_hot(v, 4) | torch.equal(v, first) * x | torch.allclose(v, first) * x | (v == first).all() * x | bool((v == first).all()) * x | (2 in v) * x | x[0] * len(v.tolist())
max(v) * x | sorted(v)[0] * x | float(t) * x | [1.0, 2.0, 3.0][t] * x | (x if t > 1 else x * 3) | x * v.numpy()[:, None]
F.embedding_bag(v, x, torch.tensor([0, 1])) | F.cross_entropy(x, v) | F.multi_margin_loss(x, v) | torch.cov(x, fweights=torch.arange(4) + v[0]) | torch.linalg.matrix_rank(x * v[:, None])
nn.utils.rnn.pack_padded_sequence(x[:, :, None], v.sort(descending=True)[0] + 1, batch_first=True)[0] | torch.tensor_split(x, v.sort()[0])[1] | torch.unravel_index(v, (2, 2))[0] | torch.nonzero_static(v, size=2)
"""


@pytest.mark.parametrize("text", [text.strip() for text in LEAVING.replace("\n", "|").split("|") if text.strip()])
def test_no_number_of_a_recording_stays_in_a_replay(text):
    function = eval(f"lambda x, v, t: ({text}).clone() * 2")
    first, second = torch.tensor([0, 2, 1]), torch.tensor([2, 0, 0])
    x, compiled = torch.arange(12.0).reshape(3, 4) + 1, torch.compile(function)
    globals().update(first=first)
    with warnings.catch_warnings(action="ignore"):
        for v, t in [(first, 1)] * 4 + [(second, 1), (first, 2), (second, 0), (first, 1)]:
            given = x, v.clone(), torch.tensor(t)
            assert torch.equal(compiled(*given), function(*given)), (v, t)


TABLE = torch.arange(20.).reshape(5, 4).requires_grad_()


def table_of_values(x, t):
    Q = x.clone()
    Q[t, t - 1] += .5 * (1 + Q[t].max() - Q[t, t - 1])
    return Q


def counted_up(x, t):
    i, rows = t.clone(), []
    for _ in range(3):
        rows.append(x[i])
        i.add_(1).remainder_(5)
    return torch.stack(rows)


def differentiated(x, t):
    TABLE.grad, s = None, t.clone()
    y = TABLE[s] * x[0] + TABLE[s - 1, t]
    s.zero_()
    y.sum().backward()
    return TABLE.grad.clone()


def parts_of_a_row(x, t):
    z = x * 2
    row = z[t]
    row[1:].mul_(3)
    row.detach()[0] = 9
    return z, z[:, t, None] + row[1], z[torch.tensor([0, 2]), t], z[-t].clone()


@pytest.mark.parametrize("step", [table_of_values, counted_up, differentiated, parts_of_a_row])
@pytest.mark.parametrize("how", [capture, torch.compile])
def test_places_that_a_tensor_of_one_number_says(how, step):
    "Read again at each replay, when the step has come there: x[t] is the view that it is otherwise."
    def same(x, t): return step(x, t)
    made = how(same)
    for t in (2, 2, 2, 1, 3):
        x = R(5, 4)
        expected, found = step(x, torch.tensor(t)), made(x, torch.tensor(t))
        for a, b in zip(*((r if r.__class__ is tuple else (r,)) for r in (expected, found)), strict=True):
            np.testing.assert_allclose(b.detach(), a.detach(), rtol=1e-5)
    if how is torch.compile: assert "1 kinds of calls are replayed" in made.explain()


def test_a_place_outside_is_refused_by_a_replay():
    step = capture(lambda x, t: x[t] * 2)
    for t in (1, 2, 0): step(R(3, 2), torch.tensor(t))
    with pytest.raises(IndexError, match='index 3 is out of bounds for dimension 0 with size'): step(R(3, 2), torch.tensor(3))


def test_a_place_written_to_is_that_of_the_call():
    def write(x, t):
        y = x * 1
        y[t, 0] = 5.0
        return y

    compiled = torch.compile(write)
    x = torch.arange(6.0).reshape(3, 2)
    for t in (0, 0, 0, 0, 2, 1, 0):
        assert torch.equal(compiled(x, torch.tensor(t)), write(x, torch.tensor(t)))
