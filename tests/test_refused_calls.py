"""Calls that cannot be answered: what PyTorch refuses is refused at the call, with its words first."""

from math import inf, nan

import numpy as np
import pytest

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")

# m: two rows of three, z: a single number
CALLS = """
torch.cov(m, fweights=torch.tensor([[1, 2, 3]]))
torch.cov(m, aweights=torch.tensor([[1.0, 2, 3]]))
torch.cov(m, fweights=torch.tensor([1.0, 2, 3]))
torch.cov(m, aweights=torch.tensor([1, 2, 3]))
torch.cov(m, fweights=torch.tensor([1, 2]))
torch.cov(m, aweights=torch.tensor([1.0, 2]))
torch.cov(m, fweights=torch.tensor([1, -2, 3]))
torch.cov(m, aweights=torch.tensor([1.0, -2, 3]))
torch.cov(torch.ones(2, 2, 2))
torch.cov(m, fweights=torch.tensor([1, 1, 1]), aweights=torch.tensor([1.0, 2.0]))
torch.cov(m > 1)
torch.isclose(m, m, rtol=-1)
torch.isclose(m, m, atol=-1)
torch.isclose(m, 1)
torch.isclose(m, m.double())
torch.allclose(m, m, rtol=-1.0)
torch.allclose(m, 1)
torch.trace(torch.ones(2, 2, 2))
torch.trace(torch.ones(2))
torch.promote_types(1, torch.int)
torch.promote_types(torch.int, None)
torch.promote_types(torch.uint16, torch.int8)
format(torch.nn.Parameter(torch.tensor(1.5)), ".2f")
torch.ones(2, 3).int().trace()
torch.hstack([])
torch.vstack([])
torch.dstack([])
torch.cat([])
torch.stack([])
torch.diag_embed(m, 0, 1, 1)
torch.diagonal(m, 0, 1, 1)
torch.linalg.diagonal(torch.ones(2, 2, 2), dim1=1, dim2=1)
torch.gradient(m, dim=(1, 1))
torch.gradient(m, spacing=[1.0, 2.0, 3.0])
torch.gradient(m[:1], dim=0)
torch.gradient(m, edge_order=3)
torch.fft.fft(z)
torch.fft.rfft(z)
torch.fft.fftn(z)
torch.fft.fft2(z)
torch.fft.ifft(m, n=0)
torch.fft.fft(m, norm="x")
torch.fft.fft2(m[0])
torch.fft.fftn(m, s=(2, 2), dim=(0,))
torch.fft.fftn(m, dim=(0, 0))
torch.fft.hfft(z)
torch.fft.irfft(z)
torch.fft.ihfft(z)
torch.fft.fft2(m, s=(1, 2, 3))
torch.linspace(0, 1, 2.5)
torch.linspace(torch.ones(1), torch.ones(1), 2)
torch.logspace(0, 1, -1)
torch.zeros(2.0)
torch.zeros("a")
torch.full(2, 3)
torch.rand_like(torch.ones(2).long())
torch.randn(2, dtype=torch.int32)
torch.ones(2).long().normal_()
torch.ones(2).long().uniform_()
torch.ones(2).normal_(0, -1)
torch.ones(2).random_(5, 2)
torch.normal(torch.zeros(2), -torch.ones(2))
torch.tensor(2**63)
torch.tensor([2**70])
torch.tensor([1, "a"])
torch.tensor(["a", 1])
torch.Tensor(2.0)
torch.LongTensor(torch.ones(2))
torch.device("cuda:a")
torch.device("cpu", -1)
torch.Generator("abc")
torch.from_numpy(np.ones(3)[::-1])
torch.meshgrid(z, indexing="ab")
torch.meshgrid(torch.ones(2), torch.ones(2).double(), indexing="ij")
torch.meshgrid(m, indexing="ij")
torch.bincount(m)
torch.bincount(torch.tensor([-1]))
torch.sort(torch.ones(2, dtype=torch.complex64))
torch.tensor([]).argmax()
torch.tensor([]).amax()
torch.einsum("ij->iz", m)
torch.einsum("i1", m)
torch.einsum("ij->ijj", m)
m.norm("abc")
m.gather(0, torch.tensor([[0, 1, 0, 0]]))
m.scatter(1, torch.tensor([[0], [1]]), torch.ones(1, 1))
m.stride(7)
m.view(torch.float64)
m.t().view(torch.int16)
z.view(torch.int16)
"a" in m
m[0:1:0]
m < None
m >= "a"
(m > 1).abs()
(m > 1).floor()
m.requires_grad_().apply_(lambda a: a)
torch.addmm(torch.ones(3), m, m.T)
torch.nn.functional.linear(m, torch.ones(4, 3), torch.ones(2))
torch.nn.functional.one_hot(torch.tensor([], dtype=torch.long))
torch.nn.functional.gumbel_softmax(m.int())
torch.nn.functional.binary_cross_entropy(torch.ones(2), torch.ones(2).long())
torch.nn.functional.binary_cross_entropy_with_logits(m, m, pos_weight=torch.ones(2))
torch.nn.functional.pad(m, (1, 1), mode="reflect", value=1)
torch.nn.LazyLinear(2).weight.share_memory_()
torch.save(m, "/nowhere/at/all.pt")
torch.nn.functional.dropout(m.long())
torch.nn.functional.cross_entropy(m.long(), torch.tensor([0, 1]))
torch.nn.functional.mse_loss(m.long(), m.long())
torch.nn.functional.binary_cross_entropy_with_logits(m, m.long())
torch.nn.functional.elu(m.long())
torch.nn.functional.leaky_relu(m.long())
torch.nn.functional.relu(m > 1)
torch.nn.functional.layer_norm(m, 3)
torch.compile(3)
torch.linspace(0, 1, True)
torch.logspace(torch.ones(1), 1, 2)
torch.linspace(0, 1, torch.tensor(3))
torch.arange(0, inf)
torch.arange(0, 5, 0)
torch.arange(0, 5, -1)
torch.arange(nan, 1)
torch.arange(0, 5, 0.0)
torch.narrow_copy(m, 1, 0, -1)
m.narrow(1, 0, -1)
m.narrow(1, 2, 5)
torch.aminmax(torch.zeros(3, 0))
torch.aminmax(torch.zeros(3, 0), dim=1)
torch.nn.functional.conv1d(torch.ones(1, 1, 4).int(), torch.ones(1, 1, 2).int(), dilation=2)
torch.nn.functional.conv3d(torch.ones(1, 1, 2, 2, 2).bool(), torch.ones(1, 1, 2, 2, 2).bool())
torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4).int(), torch.ones(1, 1, 2, 2).int()).sum()
torch.nn.functional.conv2d(torch.ones(0, 1, 4, 4).bool(), torch.ones(1, 1, 2, 2).bool())
torch.nn.functional.conv_transpose2d(torch.ones(1, 1, 4, 4).int(), torch.ones(1, 1, 2, 2).int())
torch.nn.functional.conv_transpose3d(torch.ones(1, 1, 2, 2, 2).int(), torch.ones(1, 1, 2, 2, 2).int())
torch.nn.functional.avg_pool3d(torch.ones(1, 1, 2, 2, 2).int(), 2)
torch.nn.functional.max_pool3d(torch.ones(1, 1, 2, 2, 2).bool(), 2)
torch.nn.functional.linear(torch.ones(2, 3).bool(), torch.ones(4, 3).bool())
torch.nn.functional.linear(torch.ones(0, 3).bool(), torch.ones(4, 3).bool())
torch.mm(torch.ones(2, 0).bool(), torch.ones(0, 4).bool())
torch.bmm(torch.ones(0, 2, 3).bool(), torch.ones(0, 3, 4).bool())
torch.softmax(torch.ones(2, 0, dtype=torch.complex64), 1)
torch.ones(0, 2).bool().median()
torch.aminmax(torch.ones(2, dtype=torch.complex64))
torch.cummin(torch.ones(2, dtype=torch.complex64), 0)
torch.nn.functional.embedding(torch.tensor([1]), torch.ones(3, 2, dtype=torch.int64), max_norm=1.0)
torch.nn.functional.gaussian_nll_loss(torch.ones(3), torch.ones(3), torch.ones(3, dtype=torch.int64))
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]), ignore_index=1.5)
torch.zeros(0).max()
torch.zeros(3, 0).max(1)
torch.zeros(3, 0).argmax(1)
torch.zeros(0).median()
torch.complex(m, 1)
torch.complex(1, m)
torch.complex(m, m.double())
torch.complex(m.int(), m.int())
torch.polar(m, m.double())
m.int().mean()
m.int().std()
torch.multinomial(torch.tensor([-1.0, 2.0]), 1)
torch.multinomial(torch.tensor([1.0, 2.0]), 3)
torch.multinomial(torch.tensor([0.0, 0.0]), 1)
torch.bernoulli(torch.tensor([2.0]))
torch.normal(0.0, -1.0, (2,))
torch.randperm(-1)
torch.randint(5, 5, (2,))
m.scatter(0, torch.tensor([0]), 1.0)
m.gather(0, torch.tensor([0]))
m.gather(0, torch.tensor([[5, 0, 0]]))
m.index_select(0, torch.tensor([5]))
torch.tensor(3.0).index_select(0, torch.tensor([5]))
torch.tensor(3.0).index_select(0, torch.tensor([-1]))
m.index_select(0, torch.tensor([[0]]))
m.index_select(0, torch.tensor([0.0]))
m.take(torch.tensor([10]))
m.unflatten(1, (2, 2))
m.view(4, -1)
m.reshape(4, -1)
m.repeat(2)
m.expand(3, 3)
m.unsqueeze(5)
m.transpose(0, 2)
m.permute(0, 0)
m.permute(0)
m.flip(0, 0)
m.roll((1, 2), 0)
m.chunk(0)
m.split(-1)
m.split([1, 1], 1)
m.tensor_split(0)
m.kthvalue(7)
m.topk(7)
m.sort(5)
m.cumsum(3)
m.unfold(1, 5, 1)
torch.renorm(m, 2, 0, -1.0)
torch.mm(m, m)
torch.dot(m, m)
torch.outer(m, m)
torch.addmm(m, m, m)
torch.einsum("ij,jk", m, m)
torch.linalg.cross(m, torch.ones(2, 2))
torch.inverse(m)
torch.det(m)
torch.linalg.cholesky(-torch.eye(2))
torch.linalg.solve(torch.zeros(2, 2), torch.ones(2))
torch.linalg.eigh(m)
torch.linalg.inv(torch.zeros(2, 2))
torch.linalg.qr(m, mode="x")
torch.linalg.norm(m, ord="x")
m & m
m << 1
~m
-(m > 1)
(m > 1) - (m > 1)
torch.eye(-1)
torch.zeros(-1)
torch.tensor([[1], [1, 2]])
torch.tensor("a")
m.item()
bool(m)
float(m)
m[5]
m[0, 0, 0]
m["a"]
m[1.5]
m[[0, 1], [0, 1, 2]]
m[torch.tensor([True, False, True])]
m.requires_grad_().numpy()
torch.linspace(0, 1)
torch.logspace(0, 1)
torch.randint(3, (-1,))
torch.randint(0, 3, (2, -1))
m.mean(dtype=torch.int32)
m.mean(0, dtype=torch.int64)
m.int().norm()
(m > 1).clamp(True, True)
(m > 1).clamp(min=True)
torch.ldexp(m, 2)
torch.ldexp(2.0, m)
torch.dist(m, 2.0)
torch.dist(2.0, m)
torch.gather(torch.ones(1, 1), 1, torch.ones(2, 2).long())
torch.gather(m, 1, torch.zeros(5, 2).long())
torch.gather(m, 1, torch.zeros(2).long())
torch.scatter(m, 0, torch.zeros(2, 2).long(), torch.ones(2, 5, 2))
torch.scatter(m, 0, torch.zeros(2, 2).long(), torch.ones(1, 1))
torch.scatter(m, 0, torch.zeros(2, 4).long(), 1.0)
torch.scatter_add(m, 0, torch.zeros(2, 2).long(), torch.ones(2, 5, 2))
torch.multinomial(torch.ones(1, 2, 3), 2)
torch.multinomial(torch.ones(1, 2).long(), 2)
torch.multinomial(torch.ones(2), 0)
torch.multinomial(torch.tensor([1.0, -1.0, 1.0]), 2, True)
torch.multinomial(torch.tensor([1.0, inf, 1.0]), 2, True)
torch.zeros(3).normal_(0, -1)
torch.narrow(m, 1, torch.ones(3).int(), 2)
torch.narrow(m, 1, torch.tensor(True), 2)
torch.roll(z, 0, 0)
torch.rot90(torch.ones(5))
torch.amax(torch.ones(5, 0, 5))
torch.amin(torch.ones(0))
torch.ones(2, 2).float_power_(2)
torch.ones(2, 2).addmm_(m, torch.ones(3, 4))
torch.ones(1).addmm_(m, torch.ones(3, 4))
torch.ones(1).baddbmm_(torch.ones(2, 2, 3), torch.ones(2, 3, 4))
torch.addmm(torch.ones(2, 2), m, torch.ones(3, 4))
(m + 1j).abs_()
m.prod(None)
m.reshape((2.0, 3))
m.reshape((6.0,))
m.repeat(2.0)
m.roll(1.0)
m.cumsum(0.0)
torch.zeros(2.0)
torch.ones((2, "a"))
torch.randn(2.0)
torch.sort(2)
torch.median(2)
torch.addcmul(2, m, m)
torch.nn.functional.kl_div(2, m)
torch.nn.functional.softplus(2)
torch.nn.functional.one_hot(2)
m.requires_grad_().backward([])
m.requires_grad_().backward([None])
m.requires_grad_().backward([2.0])
m.requires_grad_().backward(2.0)
m.__setitem__(0, m.numpy())
m.__setitem__(torch.tensor([0]), m.numpy())
m.__setitem__(0, m.numpy()[0, 0])
m.__setitem__(0, {})
m.__setitem__(9, [1.0])
m.half().__setitem__(0, 1j)
m[m.numpy()[0, 0] > 1]
m[1.0:]
m[:, ::-1, 0]
m[torch.tensor([0.5]), 0, 0]
m[torch.zeros(0, dtype=torch.bool)]
m[:, torch.zeros(0, dtype=torch.bool)]
m[torch.tensor([True, True]), torch.tensor([0, 1, 2])]
m[["a"]]
m[[0, None]]
torch.tensor([m.numpy()[0, 0] > 1, 2])
torch.tensor([[2], [m.numpy()[0, 0] > 1]])
torch.geqrf(m, out=(torch.empty(0),))
torch.geqrf(m, out=(torch.empty(0), torch.empty(0), torch.empty(0)))
torch.sort(m, out=(torch.empty(0).double(),))
torch.add(m, m, out=(torch.empty(0),))
m.view_as(3)
m.expand_as((2, 3))
m.reshape_as(3)
m.type_as(3)
m.split([3, -1])
m.slice_scatter(m, step=0)
z.slice_scatter(z)
torch.median(m > 1, 0)
torch.scatter(z.long(), 0, torch.tensor(2), 3)
torch.gather(z, 0, torch.tensor(1))
m.scatter_reduce(0, torch.tensor([[-1]]), m, "prod")
m.scatter_reduce(0, torch.tensor([[-1]]), m, "amax")
m.masked_fill(m, 1.0)
torch.index_reduce(m, 0, torch.tensor([0]), 2, "prod")
torch.index_reduce(m, True, torch.tensor([0]), m, "prod")
torch.unique(torch.ones(2, 0, 3), dim=2)
torch.searchsorted(m[0], m, sorter=torch.tensor([0, 1]))
torch.searchsorted(m[0], m, sorter=torch.tensor([0, 1, 9]))
torch.searchsorted(m[0], m, sorter=torch.tensor([0, 1, 2]).int())
torch.searchsorted(z, m)
torch.searchsorted(z, 1)
torch.searchsorted(m, 1)
torch.hypot(m, torch.ones(2, dtype=torch.complex64))
torch.ones(2, dtype=torch.complex64) > m
torch.nn.functional.huber_loss(m, torch.ones(2, dtype=torch.complex64))
torch.atan2(m, m + 1j)
torch.bitwise_and(m, m + 1j)
m.scatter_(0, torch.zeros(2, 3).long(), m)
m.index_add_(0, torch.tensor([0, 1]), m)
m.index_put_((torch.tensor([0, 1]),), m)
m.__setitem__(torch.tensor([1, 0]), m)
(i := torch.tensor([0, 1])).put_(i, torch.tensor([1, 0]))
m.__setitem__(torch.tensor([0]), m[0, 0])
(i := torch.tensor([0, 1])).index_put_((i[:1],), torch.tensor([1]))
(i := torch.tensor([0, 1])).__setitem__(i, 3)
(m.index_put_((torch.tensor([True, False]),), m[0, 1]), m)
(m.index_put_((m > 2,), m[0, 1]), m)
(m.__setitem__(torch.tensor([True, False]), m[1, 1]), m)
(m.masked_fill_(m > 2, m[0, 1]), m)
(m.masked_scatter_(m > 2, m[:1]), m)
(m.index_fill_(0, torch.tensor([1]), m[0, 1]), m)
torch.vmap(lambda v: v.flip(-1))(torch.ones(2))
torch.nan_to_num(torch.ones(2, dtype=torch.complex64, requires_grad=True))
torch.autograd.grad((2 * (c := torch.tensor([1 + 1j, 2j], requires_grad=True))).nan_to_num_().abs().sum(), c)[0].real
torch.autograd.grad(torch.nn.functional.silu(2 * (c := torch.tensor([1 + 1j, 2j], requires_grad=True)), inplace=True).real.sum(), c)[0].detach().real.round(decimals=3)
m[[[0, 1], [0]]]
m[0, [slice(0, 1)]]
m[0, [...]]
m[10**30]
z[1]
z[-1]
z.size(0)
m.index_select(0, [1])
m.__setitem__(torch.tensor([1, 0], dtype=torch.uint8), 3)
m.__setitem__(torch.tensor(True), torch.ones(1, dtype=torch.float64))
m.__setitem__((torch.tensor([0], dtype=torch.int16), slice("a")), 1j)
m.__setitem__(False, "a")
m @ torch.ones(2, 3, dtype=torch.float64)
m @ torch.ones(2, dtype=torch.float64)
m @ torch.ones(3, dtype=torch.float64)
m[0] @ torch.ones(2, dtype=torch.float64)
m[0] @ torch.ones(3, 2, dtype=torch.float64)
m[None] @ torch.ones(1, 3, 2, dtype=torch.float64)
z @ m.double()
torch.bmm(m[None], m[None].double())
torch.nn.functional.linear(m, torch.ones(2, 2, dtype=torch.float64))
m.eq(None)
torch.lt(m, "a")
m.shape + [1]
"a" + m.shape
[1] + m.shape
torch.full((2,), m[0, 0].clone().requires_grad_())
torch.arange(m[0, 1].clone().requires_grad_())
m + 10**20
m.fill_(10**20)
m.clamp(10**20)
pow(m, 2, 3)
z[(0,)]
z[1.5]
z[:,]
z["a"]
m[0, ..., 5]
torch.zeros(2, 3, 4)[..., 9, :]
m[[0, None]]
m[[[0, None], [1, 1]]]
m.masked_select(torch.tensor([True, False]))
torch.zeros(0).put(torch.tensor([0]), torch.ones(1))
m.index_fill(0, torch.tensor([[0]]), 1.0)
m.index_reduce(0, torch.tensor([0], dtype=torch.uint8), m[:1], "prod")
torch.einsum("ij->ji", None)
torch.tensor([torch.arange(2), torch.arange(2)])
torch.tensor([torch.arange(2), 1.5])
torch.tensor([torch.arange(2), None])
True @ m
m.to(str)
m.copy_([1, 2])
m.copy_(None)
z.chunk(0)
m[0].outer(m)
torch.ones(4) in m
torch.gradient(m, spacing=[1.0, 2.0, 3.0])
torch.gradient(m, spacing=[1.0], dim=(0, 1))
torch.nonzero_static(m, size=-1)
m.repeat_interleave(torch.tensor([1, 2]), 0, output_size=5)
torch.device("cuda:0", 1)
torch.device("cuda:01")
torch.device("cuda:")
torch.distributions.constraints.independent(torch.distributions.constraints.real, -1)
torch.distributions.constraints.dependent.event_dim
torch.distributions.constraints.dependent.is_discrete
torch.linalg.norm(m, 2, ())
torch.linalg.norm(m, dim=(0, 1, 0))
torch.linalg.norm(m, "fro", 0)
torch.linalg.norm(m[None], "nuc")
torch.linalg.matrix_norm(m, 0, (0, 0))
torch.linalg.matrix_norm(m, dtype=torch.float16)
torch.linalg.matrix_norm(m, dtype=torch.complex64)
torch.linalg.matrix_norm(m.half(), "nuc")
torch.norm(m, dtype=torch.complex64)
torch.norm(m.to(torch.complex64), dtype=torch.float64)
torch.linalg.cond(torch.zeros(2, 2), 3)
torch.linalg.solve(torch.eye(3), m[0], left=False)
torch.linalg.solve(torch.eye(3), z)
torch.linalg.lstsq(m, z)
torch.linalg.lstsq(m, m.double())
torch.cholesky_solve(torch.ones(4, 2), torch.eye(3))
torch.cholesky_solve(m, m)
torch.linalg.ldl_solve(torch.eye(3), torch.ones(3).int(), m)
torch.linalg.lu_solve(torch.eye(3), torch.ones(3).int(), m)
torch.linalg.lu_solve(torch.eye(3), torch.ones(3).int(), m[0])
torch.linalg.lu_solve(torch.eye(3), torch.ones(2).int(), m.t())
torch.lu_unpack(torch.eye(3), torch.ones(3))
torch.linalg.lu(m, pivot=False)
torch.linalg.pinv(m, rtol=torch.tensor(1j))
torch.linalg.matrix_rank(m, torch.tensor(1j))
torch.linalg.vander(z)
torch.linalg.tensorinv(m, 0)
torch.linalg.multi_dot([m, torch.ones(3, 2).double()])
torch.chain_matmul()
torch.ormqr(torch.ones(2, 3, 2), torch.ones(2, 2), torch.ones(3, 2))
torch.tensordot(m, m, "a")
torch.tensordot(m, m, ([0, 0], [0, 0]))
torch.einsum("ii", m)
torch.einsum("ij->ij.", m)
torch.einsum("ij->i...j...", m)
torch.einsum("i.j", m)
torch.einsum("i...j...", m)
torch.fft.fft(m, -1)
torch.fft.irfft(m, -1)
torch.fft.fftn(m, (2, 2, 2))
torch.fft.rfftn(m, dim=())
torch.fft.irfftn(m, dim=())
torch.fft.fftfreq(-1)
torch.fft.fftfreq(2.5)
torch.fft.fftfreq(4, dtype=torch.int64)
torch.fft.rfftfreq(4, dtype=torch.complex64)
torch.randperm(3000, dtype=torch.float16)
torch.tensor(np.array([1, 2], dtype=">i4"))
m.uniform_(nan, 1)
m.uniform_(-3e38, 3e38)
torch.relu(m, out=m)
torch.isnan(m, out=m.bool())
torch.isfinite(m, out=m.bool())
torch.promote_types(torch.bool, torch.uint32)
torch.promote_types(torch.complex64, torch.uint16)
torch.finfo(1)
torch.iinfo("int8")
hash(torch.iinfo(torch.int8))
m.map2_(m, m.int(), lambda x, y, z: x)
torch.nanmean(m, dtype=torch.int64)
torch.diff(m[0], prepend=m)
torch.diff(m, prepend=torch.ones(1, 1))
torch.histogram(m, 0)
torch.histogram(m, 2, range=(1.0, 0.0))
torch.histogram(m, 2, weight=m[0])
torch.histogram(m, 2, weight=m.double())
torch.histogram(m, torch.ones(1, 1))
torch.histogram(m, torch.ones(2).double())
torch.histogramdd(m, [2, 2, 0])
torch.unique(z, dim=0)
torch.unique_consecutive(z, dim=0)
m.new_zeros(-1)
m.new_ones((2, -3))
torch.diag_embed(z)
torch.diag_embed(z, 1, 0, -1)
torch.gradient(z, dim=0)
torch.trapezoid(z)
torch.trapezoid(z, dx=0.5, dim=0)
torch.cumulative_trapezoid(z)
torch.cross(z, z, dim=0)
torch.linalg.cross(z, z)
z.unflatten(0, (1, -1))
torch.repeat_interleave(z, torch.tensor([2]), -1)
torch.constant_pad_nd(z, (1, 1))
torch.cummax(z, 1)
torch.cummin(z, -2)
+(m > 1)
torch.corrcoef(torch.ones(2, 2, 2))
torch.frobenius_norm(m.int(), (0,))
m.int().softmax(0)
m.int().softmax(-1)
m.int().log_softmax(0)
""".strip().splitlines()


def outcome(torch, call):
    "The error's type and first line; what comes out, if nothing is wrong."
    try:
        return "none", str(eval(call, {"torch": torch, "m": torch.arange(6.0).reshape(2, 3), "z": torch.tensor(1.0), "inf": inf, "nan": nan, "np": np}))
    except Exception as error:
        return error, str(error).split("\n")[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_refused_as_in_pytorch(call):
    import torch

    expected, words = outcome(torch, call)
    found, said = outcome(ours, call)
    assert type(expected).__name__ in [c.__name__ for c in type(found).__mro__], f"{expected!r}, not {found!r}"
    assert said[:40] == words[:40]


# functions of two tensors; the method counts its arguments without the tensor before the dot
OF_TWO_TENSORS = "maximum minimum atan2 fmax fmin hypot logaddexp logaddexp2 logical_and logical_or logical_xor lcm gcd nextafter igamma igammac ldexp dist"


@pytest.mark.parametrize("name", OF_TWO_TENSORS.split())
def test_a_number_is_no_tensor(name):
    import torch

    for number in (2, 2.0):
        for dtype in ("float32", "int64"):
            words = []
            for lib in (torch, ours):
                x = lib.ones(2, dtype=getattr(lib, dtype))
                for call, args in ((getattr(lib, name), (x, number)), (getattr(x, name), (number,))):
                    with pytest.raises(TypeError) as error:
                        call(*args)
                    words.append(str(error.value).split(". ")[0].replace("(position 1)", "(position 2)"))
            assert words[:2] == words[2:]


@pytest.mark.parametrize(
    "name",
    "add sub subtract mul multiply div divide true_divide floor_divide rsub remainder fmod pow float_power eq lt atan2 "
    "maximum bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift xlogy logical_and copysign".split(),
)
@pytest.mark.parametrize("values", [[1.0, 3.0], [1, 3]], ids=["floating", "whole"])
def test_a_number_first(name, values):
    "A few functions take a number as first operand, too; the others refuse it."
    import torch

    found = []
    for t in (torch, ours):
        x = t.tensor(values, requires_grad=isinstance(values[0], float))
        try:
            y = getattr(t, name)(2, x)
            if y.requires_grad and name not in ("floor_divide", "remainder"): y.sum().backward()
            found.append((y.tolist(), str(y.dtype), None if x.grad is None else x.grad.tolist()))
        except (TypeError, RuntimeError, NotImplementedError) as error:
            found.append(type(error).__name__)
    assert found[0] == found[1]


def test_a_gradient_in_a_sequence():
    import torch

    for lib in (torch, ours):
        for given in ([lib.ones(2)], (lib.ones(2),), [lib.ones(2), lib.zeros(2)]):
            x = lib.ones(2, requires_grad=True)
            (x * 3).backward(given)
            assert x.grad.tolist() == [3.0, 3.0]


# what was let through, or came out in another dtype
MIXED = """
t.addmm(x, x.bfloat16(), x)
t.addmm(x.double(), x, x)
t.addmm(3, x, x)
t.addmv(x[0].double(), x, x[0])
t.addbmm(x.double(), x[None], x[None])
t.baddbmm(x.double(), x[None], x[None])
t.linalg.vecdot(x.double(), x)
t.linalg.cross(t.ones(3).double(), t.ones(3))
t.cross(t.ones(3), t.ones(3).long(), 0)
t.diagonal_scatter(x, t.ones(2).double())
t.diagonal_scatter(x.long(), t.tensor([2.5, 1.5]))
t.scatter(t.ones(5), 0, t.tensor([1]), t.ones(1, 1), reduce='add')
t.scatter_reduce(t.ones(5), 0, t.tensor([1]), t.ones(1, 1), 'sum')
t.scatter_reduce(t.ones(5), 0, t.tensor([1]).byte(), t.ones(1), 'sum')
t.cov(t.tensor([1.0, 2.0]), correction=2, aweights=t.tensor([1.0, 2.0]))
t.nn.functional.cosine_similarity(t.tensor([[1.0, 20.0]]), t.tensor([[100, 200]]).byte())
t.special.hermite_polynomial_h(t.tensor([1, 2]), t.tensor([1.0, 2.0], dtype=t.float64))
t.special.chebyshev_polynomial_t(t.tensor([0.5]).half(), t.tensor([1.0, 2.0]))
t.round(t.tensor([1, 2]), decimals=2)
t.round(t.tensor([True]), decimals=0)
t.isin(t.tensor([True]), t.tensor([1]))
t.isin(t.tensor([1.0]), t.tensor([1j]))
t.isin('a', t.tensor([1]))
t.isin(1, t.tensor([1]))
t.fill(x, None)
t.fft.fftn(x, 2)
t.linalg.cond(t.ones(2, 5, 0))
t.linalg.pinv(t.ones(2, 5, 0), hermitian=True)
t.cumulative_trapezoid(t.ones(0))
t.autograd.grad(t.linalg.cholesky(e).sum(), e)[0]
t.linalg.solve_triangular(e.detach(), t.ones(2, 0, 3), upper=True)
t.block_diag(t.tensor(1.5, dtype=t.float64), x)
t.block_diag(t.tensor(1.5, dtype=t.float64), t.ones(2).long())
t.block_diag(x, t.tensor(1j))
t.block_diag(x, x[None])
t.reshape(x, shape=(4,))
x.reshape(shape=(1, 4))
t.reshape(x, 1, 4)
t.reshape(x, 4)
x ** None
x ** 'a'
'a' ** x
x ** [1]
t.pow(x, None)
t.pow(x, True)
t.nn.functional.conv1d(t.ones(1, 0, 4), t.ones(2, 0, 2), t.ones(2))
t.nn.functional.conv2d(t.ones(0, 4, 4), t.ones(2, 0, 2, 2))
t.nn.functional.silu(t.tensor([1j], requires_grad=True))
t.nn.functional.silu(t.tensor([1j]))
t.nn.functional.rms_norm(x.long(), (2,))
t.nn.functional.instance_norm(x.long()[None])
t.func.grad(lambda v: (v * 1j).sum())(x)
t.func.grad(lambda v: (v.detach() * 1j).sum())(x)
t.fft.rfft(x * 1j)
t.fft.rfft2(x * 1j)
t.ones(2, requires_grad=True).sum(dtype=t.int64)
t.ones(2, requires_grad=True).prod(0, dtype=t.bool)
t.ones(2, requires_grad=True).cumsum(0, dtype=t.int32)
t.ones(2, requires_grad=True).detach().sum(dtype=t.int64)
t.tensor(1j).median(0).values
(x * 1j).median(0).values
t.histc(t.tensor([float('nan')]))
t.cdist(x[0], x * 1j)
t.cdist(x, t.ones(2, 3).double())
t.cdist(x, x.double(), p=-1)
"""


@pytest.mark.parametrize("line", MIXED.strip().splitlines())
def test_numbers_of_several_dtypes_and_of_none(line):
    import torch

    found = []
    for t in (torch, ours):
        try:
            y = eval(line, dict(t=t, x=t.ones(2, 2), e=t.ones(2, 0, 0, requires_grad=True)))
            found.append((str(y.dtype).partition(".")[2], tuple(y.shape), y.tolist()))
        except (TypeError, RuntimeError, NotImplementedError) as error:
            found.append((type(error).__name__, str(error)[:60]))
    assert found[0][:2] == found[1][:2]
    if len(found[0]) == 3: np.testing.assert_allclose(found[1][2], found[0][2], rtol=1e-6)


def test_a_refused_dimension_spoils_no_later_call():
    x = ours.ones(2, 3, 5, 4)
    for wrong, right, shape in (((3.0, 1), (3, 1), (2, 5)), ((0.0, 2.0), (0, 2), (3, 4))):
        for _ in range(2):
            with pytest.raises(TypeError): x.sum(wrong)
            assert tuple(x.sum(right).shape) == shape


MATRIX_CALLS = (
    "linalg.cholesky(e) linalg.cholesky_ex(e) linalg.lu(e) linalg.lu_factor(e) linalg.lu_factor_ex(e) linalg.solve(e,e) linalg.solve_ex(e,e) linalg.det(e) linalg.ldl_factor(e) linalg.ldl_factor_ex(e)"
    " linalg.eigh(e) linalg.eigvalsh(e) linalg.svd(e) linalg.svdvals(e) linalg.qr(e) linalg.householder_product(e,e[0]) linalg.solve_triangular(e,e,upper=True) linalg.inv(e) linalg.inv_ex(e)"
).split()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
@pytest.mark.parametrize("call", MATRIX_CALLS)
def test_kernels_of_matrices_that_refuse_a_dtype_are_named(call, dtype):
    import torch

    found = []
    for lib in (torch, ours):
        with pytest.raises(Exception) as error: eval(f"lib.{call}", {"lib": lib, "e": lib.eye(3).to(getattr(lib, dtype))})
        found.append((error.type, str(error.value).split("\n")[0].split(" Convert")[0][:55]))
    assert found[1] == found[0]


SIGNS = "+= -= *= /= //= **= %= &= |= ^= <<= >>=".split()


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("other", ["[1]", "'a'", "None", "{}", "(1, 2)"])
def test_a_sign_that_writes_leaves_a_foreign_operand_to_python(sign, other):
    "Before it asks whether the tensor may be written into; an element, a view and a leaf that requires grad alike."
    import torch

    for target in ("k", "k[0]", "w"):
        words = []
        for lib in (torch, ours):
            with pytest.raises(TypeError) as error:
                exec(f"{target} {sign} {other}", dict(k=lib.arange(3), w=lib.ones(2, requires_grad=True)))
            words.append(str(error.value))
        assert words[0] == words[1] and words[0].startswith("unsupported operand type(s) for")


def test_a_sign_that_writes_asks_the_other_side():
    class Ledger:
        def __radd__(self, x): return "added", x

    for lib in (pytest.importorskip("torch"), ours):
        names = dict(x=lib.ones(2), other=Ledger())
        before = names["x"]
        exec("x += other", names)
        assert names["x"][0] == "added" and names["x"][1] is before


@pytest.mark.parametrize("name", "shape ndim dtype device is_leaf grad_fn T mT layout itemsize nbytes is_cuda _version output_nr retains_grad is_sparse is_meta name".split())
def test_what_cannot_be_written(name):
    import torch

    words = []
    for lib in (torch, ours):
        with pytest.raises(AttributeError) as error:
            setattr(lib.ones(2, 2), name, 3)
        words.append(str(error.value))
    assert words[0] == words[1]


def test_a_number_modulo_a_tensor_has_no_derivative():
    import torch

    for lib in (torch, ours):
        x = lib.tensor([2.0, -3.0], requires_grad=True)
        y = 7.0 % x
        assert y.tolist() == [1.0, -2.0] and y.grad_fn.name().endswith("NotImplemented")
        with pytest.raises(RuntimeError, match="derivative for aten::remainder is not implemented"):
            y.sum().backward()


@pytest.mark.parametrize(
    "call",
    ["torch.linspace(0, 3, 0, dtype=torch.bool)", "torch.linspace(2, 3, 1, dtype=torch.bool)", "torch.linspace(0, 3, 2, dtype=torch.bool)", "torch.logspace(0, 3, 1, dtype=torch.bool)", "torch.logspace(0, 3, 2, dtype=torch.bool)",
     "torch.nn.functional.avg_pool3d(torch.ones(1, 1, 2, 2, 2).half(), 2)", "torch.nn.functional.avg_pool3d(torch.ones(1, 1, 2, 2, 2).bfloat16(), 2)", "torch.nn.functional.adaptive_avg_pool3d(torch.ones(1, 1, 2, 2, 2).half(), 1)",
     "torch.add(torch.empty(0), None)", "torch.sub(torch.empty(0), None)", "torch.div(torch.ones(2), None)"],
)  # fmt: skip
def test_small_and_short_cases_are_taken_and_refused_as_in_pytorch(call):
    import torch

    expected, words = outcome(torch, call)
    found, said = outcome(ours, call)
    assert type(expected).__name__ == type(found).__name__
    assert said[:60] == words[:60]
