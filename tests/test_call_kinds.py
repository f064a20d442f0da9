"""Calls of kinds that PyTorch's own tests try on many functions, tried on both libraries: results that go to empty views, places of empty parts, ends of ranges,
mixed dtypes, and sizes that do not fit."""

import itertools

import pytest
from _sampled import some
from test_operator_table import outcome, values_differ

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")


def names_of(lib):
    made = dict(m=lib.arange(6.0).reshape(2, 3), s=lib.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 5.0]]), b=lib.tensor([[True, False, True]] * 2))
    return dict(made, torch=lib, t=lib.tensor, x=lib.arange(24.0).reshape(2, 3, 4), nan=float("nan"), inf=float("inf"))


def tried(lib, line):
    return outcome(eval, line, names_of(lib))


VIEWS = "torch.full((20,), 7.)[4:4] torch.full((9,2),7.)[:,1][2:2] torch.full((40,),7.)[20:].narrow(0,10,0) torch.full((5,8),7.)[1:1,2:]".replace(", ", ",").split()
WRITTEN = """
torch.exp(m|torch.add(m, 1|torch.sum(m, 0|torch.mean(m, 1|torch.cat([m, m]|torch.stack([m[0], m[0]]|torch.mm(m, m.t()|torch.arange(6.|torch.full((2, 3), 1.|torch.zeros(2, 3
torch.eye(3|torch.index_select(m, 0, t([0, 1])|torch.masked_select(m, b|torch.where(b, m, m|torch.cumsum(m, 0|torch.amax(m, 0|torch.outer(m[0], m[1]|torch.linalg.inv(s
torch.linalg.matrix_norm(s|torch.fft.fftfreq(6|torch.fft.rfftfreq(6|torch.range(0, 5|torch.quantile(m, .5, 0|torch.msort(m|torch.tril(s|torch.hypot(m, m
"""


def test_results_in_empty_views():
    "They begin where the view was cut, and leave what lies before it alone."
    import torch

    found = []
    for call, view in some(itertools.product(WRITTEN.strip().replace("\n", "|").split("|"), VIEWS), 30, "views"):
        answers = []
        for lib in (torch, ours):
            out = tried(lib, view)
            made = outcome(eval, f"{call}, out=out)", dict(names_of(lib), out=out))
            answers.append(made if isinstance(made, Exception) else [made, out._base, lib.tensor(out.storage_offset())])
        line = values_differ(*answers)
        if line:
            found.append(f"{call}, out={view}): {line}")
    assert not found, "\n".join(found)


PARTS = "0:0 1:1 2:2 5: 2:1 ::2 :1 1: ... None 0 -1 1:1:2".split()
TENSORS = "x x.transpose(0,2) x[:,::2] x[:1].expand(2,3,4)".split()


def test_where_empty_parts_lie():
    import torch

    found = []
    for tensor, *index in some(itertools.product(TENSORS, PARTS, PARTS), 300, "parts"):
        line = f"{tensor}[{', '.join(index)}]"
        made = tried(torch, line)
        if isinstance(made, torch.Tensor) and not made.numel():
            mine = tried(ours, line)
            if (made.shape, made.storage_offset(), mine._base is not None) != (tuple(mine.shape), mine.storage_offset(), made._base is not None):
                found.append(f"{line}: {tuple(made.shape)} from {made.storage_offset()}  |  {tuple(mine.shape)} from {mine.storage_offset()}")
    assert not found, "\n".join(found)


CALLS = """
torch.any(m, dim=())
torch.all(m.to(torch.uint8), dim=())
torch.any(t(2.0), dim=[], keepdim=True)
torch.median(t([], dtype=torch.int32))
torch.median(t([], dtype=torch.uint8))
torch.median(t([]))
torch.ones(3).index_add(0, t([3]), torch.ones(1))
torch.ones(3, 2).index_add(1, t([2]), torch.ones(3, 1))
torch.arange(0, 1 + 0j, 0.5)
torch.arange(0, 1, 0.5 + 0j)
torch.arange(3 + 0j)
torch.arange(0, 1 + 2j)
torch.range(0, 2 + 0j)
torch.lcm(t([2**31 - 1], dtype=torch.int32), t([2], dtype=torch.int32))
torch.linalg.lu_factor(torch.empty(0, 3))
torch.linalg.lu_factor(torch.empty(2, 0, 0))
torch.logspace(t(0.0), 2, 3, t(2))
torch.logspace(t(2.5), 0, 3, 2, dtype=torch.int64)
torch.arange(0, 3, nan)
torch.arange(1, inf, nan)
torch.arange(1j, 3)
torch.arange(0, 3, 1j)
torch.range(0, 3, out=torch.empty(4))
torch.range(0, 3, out=torch.empty(2, 2))
torch.range(t(0), 3, t(1))
torch.range(1, 3, dtype=torch.complex64)
torch.searchsorted(t([False, True]), t([1.0]).half())
torch.searchsorted(t([1, 2, 3]), t([1.5]), right=True)
torch.searchsorted(torch.empty(3, 0), torch.ones(3, 2))
torch.bucketize(t([1j]), t([1.0]))
torch.bucketize(t([1.0]), t([True]))
torch.isin(t([1.0, 2.0]).bfloat16(), t([2, 3]))
torch.isin(t([1, 2]), t([2.0, 3.5]))
torch.special.zeta(t(2.0).half(), t(2.0).bfloat16())
torch.special.zeta(t(2.0).half(), t(2.0).half())
torch.special.gammaincc(t(2), t(2.0))
torch.special.gammaincc(t([2]), t(2))
torch.igamma(t([2]), t([2.0]).half())
torch.quantile(m.half(), 2.0)
torch.quantile(torch.ones(0), 2.0)
torch.quantile(m.half(), t([[0.5]]))
torch.quantile(m, 0.5, 5, interpolation='x')
torch.nanquantile(torch.ones(0, 3), 0.5, 1)
torch.nanquantile(m.half(), 0.5)
torch.var_mean(t([1]))
torch.std_mean(t([1]), 0)
torch.std(t([1]))
torch.addmm(t(0.0), x, m)
torch.addmm(m, m, x)
torch.linalg.multi_dot([m, x, m])
torch.linalg.multi_dot([x, m])
torch.linalg.multi_dot([t(1.0), m])
torch.linalg.multi_dot([m, s, m])
torch.chain_matmul(m, x)
torch.chain_matmul(m[0])
torch.linalg.householder_product(m, m[0])
torch.linalg.householder_product(s, torch.ones(4))
torch.linalg.householder_product(s, s)
torch.linalg.householder_product(torch.ones(2, 3, 3), torch.ones(4, 3))
m.index_put((t([0]),), torch.ones(2, 3, 4))
m.index_put((t([0, 1]), t([1, 2])), torch.ones(5))
m.index_put((b,), torch.ones(3))
m.index_put((b,), torch.tensor(5))
m.index_put((b,), torch.tensor([5.5], dtype=torch.float64))
m.index_put((b,), torch.tensor([[True]]))
m.index_put((b,), torch.tensor(5), accumulate=True)
m.index_put((t([0]),), torch.tensor(5))
m.long().index_put((b,), torch.tensor(5.7))
torch.fft.fftfreq(4, out=torch.empty(4, dtype=torch.float64))
torch.linalg.lu_factor(torch.ones(2, 2))
torch.linalg.lu_factor(torch.stack([s, torch.ones(3, 3)]))
torch.linalg.svd(m, driver="gesvd")
torch.linalg.lstsq(m, m, driver="other")
torch.where(b, m)
torch.ones(4)[1:3].view(torch.float64)
b.add(True, alpha=False)
setattr(m * 1j, "real", 1j)
setattr(m * 1j, "imag", None)
m[[0, 9], [0, 1, 1]]
torch.ones(0, 3).half().index_put((t([0, 0]),), torch.ones(3))
m.half().index_put((t([0, 9]),), torch.ones(2))
m.half().index_put((t([True, False, True]),), torch.ones(3))
torch.Size([1.5])
m.shape + (1, "a")
t(torch.Size([t(2), True]))
torch.Tensor(None)
torch.Tensor(True)
m[0].expand(4, 3).add_(torch.ones(2))
m[0].expand(4, 3).copy_(torch.ones(2))
m[0].expand(4, 3).scatter_(0, t([[9]]), 1.0)
m[0].expand(4, 3).add_("a")
m[0].expand(4, 3).masked_fill_(b[0, :2], 1.0)
torch.nn.functional.binary_cross_entropy(m.sigmoid(), m.sigmoid(), weight=m.requires_grad_())
torch.nn.functional.binary_cross_entropy_with_logits(m, m.sigmoid(), weight=m.detach().requires_grad_())
torch.nn.functional.binary_cross_entropy_with_logits(m, m.sigmoid(), pos_weight=m[0].detach().requires_grad_())
torch.func.grad(lambda w: torch.nn.functional.binary_cross_entropy(m.sigmoid(), m.sigmoid(), w))(m)
torch.lerp(m, m, m, out=torch.empty(0, dtype=torch.int64))
torch.diff(m, n=0, out=torch.empty(0, dtype=torch.int64))
torch.nansum(m, 0, out=torch.empty(0, dtype=torch.int64))
torch.nanmean(m, 0, out=torch.empty(0, dtype=torch.int64))
torch.nanquantile(m, 0.5, out=torch.empty(0, dtype=torch.int64))
torch.frexp(m, out=(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32)))
torch.lu_unpack(s, t([1, 2, 3], dtype=torch.int32), out=(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64).clone(), torch.empty(0, dtype=torch.int64).clone()))
torch.randperm(3, out=torch.empty(0, dtype=torch.int64)).sort()[0]
torch.lerp(m, m, m, out=torch.empty(0, dtype=torch.complex64))
torch.diff(m, n=0, out=torch.empty(0, dtype=torch.complex64))
torch.nansum(m, 0, out=torch.empty(0, dtype=torch.complex64))
torch.nanmean(m, 0, out=torch.empty(0, dtype=torch.complex64))
torch.nanquantile(m, 0.5, out=torch.empty(0, dtype=torch.complex64))
torch.frexp(m, out=(torch.empty(0, dtype=torch.complex64), torch.empty(0, dtype=torch.int32)))
torch.lu_unpack(s, t([1, 2, 3], dtype=torch.int32), out=(torch.empty(0, dtype=torch.complex64), torch.empty(0, dtype=torch.complex64).clone(), torch.empty(0, dtype=torch.complex64).clone()))
torch.randperm(3, out=torch.empty(0, dtype=torch.complex64)).sort()[0]
torch.lerp(m, m, m, out=torch.empty(0, dtype=torch.float64))
torch.diff(m, n=0, out=torch.empty(0, dtype=torch.float64))
torch.nansum(m, 0, out=torch.empty(0, dtype=torch.float64))
torch.nanmean(m, 0, out=torch.empty(0, dtype=torch.float64))
torch.nanquantile(m, 0.5, out=torch.empty(0, dtype=torch.float64))
torch.frexp(m, out=(torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int32)))
torch.lu_unpack(s, t([1, 2, 3], dtype=torch.int32), out=(torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64).clone(), torch.empty(0, dtype=torch.float64).clone()))
torch.randperm(3, out=torch.empty(0, dtype=torch.float64)).sort()[0]
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).half(), 2)
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).half(), 1)
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).half(), (2, 3, 4))
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).half(), (1, 3, 2))
torch.nn.functional.interpolate(torch.arange(48.0).reshape(1, 2, 2, 3, 4).half(), size=(1, 3, 2), mode='area')
torch.nn.functional.avg_pool3d(torch.ones(1, 2, 2, 3, 4).half(), 2)
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).bfloat16(), 2)
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).bfloat16(), 1)
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).bfloat16(), (2, 3, 4))
torch.nn.functional.adaptive_avg_pool3d(torch.arange(48.0).reshape(1, 2, 2, 3, 4).bfloat16(), (1, 3, 2))
torch.nn.functional.interpolate(torch.arange(48.0).reshape(1, 2, 2, 3, 4).bfloat16(), size=(1, 3, 2), mode='area')
torch.nn.functional.avg_pool3d(torch.ones(1, 2, 2, 3, 4).bfloat16(), 2)
torch.native_group_norm(torch.arange(24.0).reshape(2, 4, 3), torch.ones(4), torch.zeros(4), 2, 4, 3, 2, 1e-5)
"""


@pytest.mark.parametrize("line", CALLS.strip().splitlines())
def test_calls(line):
    import torch

    assert values_differ(tried(torch, line), tried(ours, line)) is None
