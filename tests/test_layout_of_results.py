"""How the dimensions of results lie in memory, beside PyTorch: which of them `view` can be called on depends on it."""

import itertools
import random

import numpy as np
import pytest

import autograd_nb as ours
from autograd_nb.arrays.numpy_backend import dimension_order, like_operands

pytestmark = pytest.mark.needs("torch")
SAMPLES = 200
LYING = {
    "turned": lambda lib: lib.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "reversed": lambda lib: lib.arange(24.0).reshape(2, 3, 4).permute(2, 1, 0),
    "with gaps": lambda lib: lib.arange(48.0).reshape(2, 6, 4)[:, ::2],
    "repeated": lambda lib: lib.arange(12.0).reshape(3, 4).t().expand(2, 4, 3),
    "repeated within": lambda lib: lib.arange(12.0).reshape(3, 4).t()[:, :1].unsqueeze(2).expand(4, 3, 2),
}
ALONG = "sum mean prod amax amin all any var std norm nansum nanmean median count_nonzero max min argmax".split()
COPIES = "clone() double() to(torch.int64) digamma() lgamma() i0() erf() exp()".split()
LIKE = "zeros_like ones_like empty_like rand_like".split()


def strides(lib, line, lying):
    x = LYING[lying](lib)
    made = eval(line, dict(torch=lib, x=x))
    return [t.stride() for t in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("name", ALONG)
def test_results_along_a_dimension_lie_in_rows(name, lying):
    import torch

    for dim in range(3):
        line = f"torch.{name}(x, dim={dim})"
        assert strides(ours, line, lying) == strides(torch, line, lying), line


@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("line", [*(f"x.{c}" for c in COPIES), *(f"torch.{n}(x)" for n in LIKE)])
def test_copies_lie_as_what_they_copy(line, lying):
    import torch

    assert strides(ours, line, lying) == strides(torch, line, lying)


def shuffled(lib, draw, shape):
    order = list(range(len(shape)))
    draw.shuffle(order)
    return lib.zeros([shape[k] for k in order]).permute([order.index(k) for k in range(len(shape))])


@pytest.mark.parametrize("operands", [1, 2, 3])
def test_the_first_operand_decides(operands):
    "The rule itself, beside what PyTorch makes of operands that lie, and are repeated, in many ways."
    import torch

    for seed in range(SAMPLES):
        draw = random.Random(seed)
        shape = [draw.choice((2, 3, 4)) for _ in range(draw.choice((2, 3, 4)))]
        sizes = [shape, *([s if draw.random() < 0.75 else 1 for s in shape] for _ in range(operands - 1))]
        given = [shuffled(torch, draw, size) for size in sizes]
        draw.shuffle(given)
        expected = (torch.neg, torch.atan2, torch.addcmul)[operands - 1](*given)
        found = like_operands(np.zeros(tuple(expected.shape), np.float32), [t.numpy() for t in given])
        assert found.strides == tuple(4 * s for s in expected.stride()), [(t.shape, t.stride()) for t in given]


PAIRS = "x + y|x - y|x * y|x / y|x ** y|torch.maximum(x, y)|torch.atan2(x, y)|torch.hypot(x, y)|torch.add(x, y, alpha=2)|torch.where(x > 1, x, y)".split("|")


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("line", PAIRS)
def test_the_first_of_two_operands_decides(line, recorded):
    "In every way in which an operation is applied: recorded or not, by the short path and with hooks for what is saved."
    import torch

    for seed in range(SAMPLES // 4):
        found = []
        for lib in (torch, ours):
            draw = random.Random(seed)
            shape = [draw.choice((2, 3, 4)) for _ in range(draw.choice((2, 3, 4)))]
            pair = [shuffled(lib, draw, shape) + 1, shuffled(lib, draw, shape if draw.random() < 0.75 else shape[1:]) + 2]
            draw.shuffle(pair)
            if pair[0].ndim < pair[1].ndim == 2 or draw.random() < 0.1:
                pair[1] = 2.5 if "torch" not in line else pair[1]
            given = dict(torch=lib, x=pair[0].requires_grad_(recorded), y=pair[1])
            with lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t) if seed % 4 == 0 else lib.autograd.set_grad_enabled(True):
                found.append(eval(line, given))
        assert found[0].stride() == found[1].stride(), (seed, pair[0].stride(), getattr(pair[1], "stride", int)())
        np.testing.assert_allclose(found[0].detach().numpy(), found[1].detach().numpy(), rtol=1e-6)


ENTRIES = "slice(None) slice(0,2) t([1,0]) t([[0],[1]]) t([True,True]) 0 ...".split()


@pytest.mark.parametrize("seed", range(SAMPLES // 4))
def test_what_is_read_lies_as_the_rest_of_the_tensor(seed):
    import torch

    draw, found = random.Random(seed), []
    picks = [tuple(draw.choice(ENTRIES) for _ in range(n)) for n in (1, 2, 2, 3, 3, 3)]
    for lib in (torch, ours):
        draw = random.Random(seed)
        x = shuffled(lib, draw, [2, 2, 2, 2])
        found.append([])
        for pick in picks:
            if pick.count("...") > 1:
                continue
            y = x[tuple(eval(p, dict(t=lib.tensor)) for p in pick)]
            found[-1].append((pick, tuple(y.shape), [s for s, n in zip(y.stride(), y.shape) if n > 1]))
    assert found[0] == found[1]


# p: turned, g: turned and with a gradient, e: repeated rows, n: the negative of every second number
KEPT = """
g // 2, g // g, torch.floor_divide(g, 2), torch.heaviside(g, g), torch.nextafter(g, g)
torch.special.bessel_j0(e), torch.special.bessel_y0(e), torch.special.modified_bessel_i0(e), torch.special.airy_ai(e), torch.special.spherical_bessel_j0(e)
torch.erf(e), torch.fill(e, 2), torch.erf(e[None].expand(2, 3, 4)), torch.fill(e.t(), 2), torch.fill(p, 2), torch.erf(p), torch.erf(g)
torch.cdist(p, p), torch.cdist(p, p, 1.0)
attend(p, p, p), attend(g, g, g), attend(p[0].t(), p[0].t(), p[0].t()), attend(p, p, p, is_causal=True)
n.contiguous(), n.clone(), n.ravel(), n.flatten(), n.t().contiguous(), n[:1].contiguous()
"""


@pytest.mark.parametrize("line", KEPT.strip().splitlines())
def test_results_lie_as_in_pytorch(line):
    import torch

    found = []
    for lib in (torch, ours):
        p = LYING["turned"](lib)
        given = {"torch": lib, "p": p, "g": p.clone().requires_grad_(), "e": lib.arange(4.0).expand(3, 4)}
        given |= {"n": lib.complex(lib.ones(3, 4), lib.ones(3, 4)).conj().imag, "attend": lib.nn.functional.scaled_dot_product_attention}
        found.append([(y.stride(), y.is_contiguous(), y.is_neg()) for y in eval(line, given)])
    assert found[1] == found[0]


def test_sums_of_turned_tensors_can_be_viewed():
    x = ours.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    assert x.sum(-1).view(-1).tolist() == x.contiguous().sum(-1).flatten().tolist()
    repeated = ours.arange(6.0).reshape(1, 2, 3).expand(4, 2, 3)
    assert repeated.double().view(8, 3).tolist() == ours.zeros_like(repeated).view(8, 3).add(ours.arange(6.0).reshape(2, 3).repeat(4, 1)).tolist()


def test_the_order_of_dimensions():
    assert dimension_order((2, 3), (24, 8)) == (0, 1)
    assert dimension_order((3, 2), (8, 24), (16, 8)) == (1, 0)  # the first decides
    assert dimension_order((3, 2), (8, 0), (16, 8)) == (0, 1)  # it is repeated: the second does
    for order in itertools.permutations(range(3)):
        a = np.zeros((2, 3, 4)).transpose(order)
        assert a.transpose(dimension_order(a.shape, a.strides)).flags.c_contiguous


# x: three rows of four, t: turned, s: every second column; i: two places
OF_ONE_PLACE = """
t.unsqueeze(0), t.unsqueeze(1), t.unsqueeze(2), s.unsqueeze(-1), s[0].unsqueeze(1)
t[None], t[:, None], t[..., None], s[:, None, 1:], x[None, ::2], s[0][None], x[:0][None], x[:0].T[:, None]
t.expand(1, 4, 3), t[None].expand(1, 4, 3), x[:, :1].T.expand(1, 3), s[0].expand(1, 2), s[0].expand(1, 3, 2), x[0].expand(1, 4)
x[:1].bfloat16().expand(3, 4).clone(), x[:1].bfloat16().expand(3, 4).exp(), x[:1].bfloat16().expand(2, 3, 4) + 1
x[None, i], x[None, i, None], x[None, i, :, None], x[None, i, i], x[0, None, i], t[None, i], t[None, i, :], t[:, None, i], x[None, :, i]
torch.cholesky(q, out=e), torch.cholesky_solve(q, q, out=e.new_empty(0)), q.matrix_power(-1), torch.linalg.matrix_power(q, -1, out=e.new_empty(0))
torch.linalg.tensorinv(torch.eye(6).reshape(6, 2, 3), 1, out=torch.empty(0)), torch.unique_consecutive(x, dim=1), torch.unique_consecutive(t, dim=1)
"""


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", OF_ONE_PLACE.strip().splitlines())
def test_dimensions_of_one_place_have_strides_as_in_pytorch(line):
    import torch as theirs

    found = []
    for lib in (theirs, ours):
        x = lib.arange(12.0).reshape(3, 4)
        q = lib.tensor([[4.0, 1], [1, 3]])
        given = {"torch": lib, "x": x, "t": x.T, "s": x[:, ::2], "i": lib.tensor([0, 1]), "q": q, "e": lib.empty(0)}
        found.append([(tuple(y.shape), y.stride()) for y in eval(line, given)])
    assert found[1] == found[0]


LEAVES = [*LYING, "channels last"]
PASSES = "x.exp() x.sum(0)**2 x.sum() x.reshape(-1)**2 x.contiguous()*2 x.cumsum(0) (x*1).movedim(0,-1).contiguous()*3 x@torch.ones(x.shape[-1],5)".split()


@pytest.mark.parametrize("lying", LEAVES)
def test_gradients_of_leaves_lie_as_the_leaves_do(lying):
    "Unless these have gaps; and stay so when more is added."
    import torch

    def gradients(lib, line):
        images = lib.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=lib.channels_last)
        x = (LYING[lying](lib) if lying in LYING else images).detach().requires_grad_()
        found = []
        for _ in range(2):
            eval(line, dict(torch=lib, x=x)).sum().backward()
            found.append((x.grad.stride(), x.grad.flatten().tolist()))
        return found

    for line in PASSES:
        for (a, p), (b, q) in zip(gradients(ours, line), gradients(torch, line)):
            assert a == b and np.allclose(p, q, rtol=1e-5), line


# x: numbers with their channels last, c: the same in the usual order, w: filters, v: filters with their channels last, m: a number for each channel
OF_IMAGES = """
F.avg_pool{n}d(x, 2), F.adaptive_avg_pool{n}d(x, 2), F.adaptive_max_pool{n}d(x, 2), F.lp_pool{n}d(x, 2, 2)
F.conv{n}d(x, w), F.conv{n}d(x, v), F.conv{n}d(c, v), F.conv_transpose{n}d(x, w), F.interpolate(x, size=x.shape[2:])
F.pad(x, (1, 1) * {n}), F.pad(x, (-1, 1)), F.pad(x, (1, 1) * {n}, mode="circular"), F.pad(x, (1, 1) * {n}, mode="replicate"), F.pad(x, (1, 1) * {n}, mode="reflect")
F.pad(x, (-1, -1) * {n}, mode="replicate"), F.pad(c, (-1, -1) * {n}, mode="replicate"), F.logsigmoid(x), F.group_norm(x, 2)
torch.cat([x, x], 1), torch.cat([x, x]), torch.cat([x, c], 1), torch.cat([c, x], 1), torch.stack([x, x]), torch.stack([x, c]), torch.stack([x, x], 1), x.roll(1, 2), x.roll((1, 1), (1, 2))
F.mse_loss(x, c, reduction="none"), F.smooth_l1_loss(x, c, reduction="none"), F.huber_loss(x, c, reduction="none"), F.binary_cross_entropy(x, c, reduction="none")
F.binary_cross_entropy_with_logits(x, c, reduction="none"), F.binary_cross_entropy_with_logits(c, x, reduction="none")
torch.lerp(x, c, 0.5), torch.lerp(c, x, 0.5), torch.lerp(x, c, c), torch.xlogy(x, c), torch.xlogy(c, x)
F.channel_shuffle(x, 2), F.pixel_shuffle(x, 2) if {n} == 2 else x, F.pixel_unshuffle(x, 2) if {n} == 2 else x, F.max_unpool{n}d(*F.max_pool{n}d(x, 2, return_indices=True), 2)
"""


@pytest.mark.parametrize("dims, cut", [(1, False), (2, False), (2, True), (3, False)])
@pytest.mark.parametrize("line", OF_IMAGES.strip().splitlines())
def test_channels_that_come_last_stay_last(line, dims, cut):
    "From function to function, also where the images are a part of others' channels."
    import torch as theirs

    def last(lib, shape):
        x = lib.rand(shape[0], *shape[2:], 2 * shape[1] if cut else shape[1])[..., : shape[1]]
        return x.movedim(-1, 1)

    found = []
    for lib in (theirs, ours):
        lib.manual_seed(0)
        x = last(lib, (2, 4, 6, 4, 4)[: dims + 2])
        w, v = lib.ones(4, 4, *[2] * dims), last(lib, (4, 4, *[2] * dims))
        made = eval(line.replace("{n}", str(dims)), dict(torch=lib, F=lib.nn.functional, x=x, c=x.contiguous(), w=w, v=v))
        found.append([(tuple(y.shape), y.stride(), y.storage_offset()) for y in made])
    assert found[1] == found[0]


@pytest.mark.parametrize("line", ["qr(a)", "inv(s)", "cholesky(s)", "eigh(s)", "svd(a)", "solve(s, a)", "solve(s, b)", "matrix_power(s, -1)"])
def test_matrices_of_an_empty_batch_lie_in_columns(line):
    import torch as theirs

    found = []
    for lib in (theirs, ours):
        made = eval("linalg." + line, dict(linalg=lib.linalg, s=lib.empty(0, 3, 3), a=lib.empty(0, 3, 4), b=lib.empty(0, 3, 1)))
        found.append([(tuple(y.shape), y.stride()) for y in (made if isinstance(made, tuple) else [made])])
    assert found[1] == found[0]


def test_results_hold_no_more_memory_than_theirs():
    for x in (ours.arange(15.0), ours.arange(15), ours.tensor([ours.nan, 1.0])):
        assert x.median().untyped_storage().nbytes() == x.itemsize
    assert ours.bmm(ours.rand(2, 1, 5).mT, ours.rand(4, 2, 1).movedim(0, -1)).is_contiguous()
