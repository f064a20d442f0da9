"""The less common functions beside PyTorch: values, first and second gradients, dtypes and errors.

A case is an expression that both libraries evaluate, over named inputs. Complex numbers, which the generic matrix in test_ops_matrix.py leaves out, are checked here too, with difference quotients.
"""

import math

import numpy as np
import pytest
from _compare import to_numpy

import autograd_nb as ours
from autograd_nb.graph.node import tensor_like
from autograd_nb.graph.apply import as_array
from autograd_nb.graph.op import REGISTRY, N

needs_torch = pytest.mark.needs("torch")


def rng(seed=0):
    return np.random.default_rng(seed)


def well(*shape):
    return rng(3).standard_normal(shape) + 3 * np.eye(shape[-1])


def definite(*shape):
    a = rng(4).standard_normal(shape)
    return a @ a.swapaxes(-1, -2) + np.eye(shape[-1])


INPUTS = {  # name -> array (float64); tests take what their expression mentions
    "x": rng(0).standard_normal((3, 4)), "y": rng(1).standard_normal((3, 4)), "v": rng(2).standard_normal(4), "w": rng(5).standard_normal(3),
    "p": rng(6).uniform(0.5, 2.0, (3, 4)), "r": rng(7).uniform(0.5, 2.0, (3, 4)), "u": rng(8).uniform(-0.9, 0.9, (3, 4)), "q": rng(9).uniform(0.1, 0.9, (3, 4)),
    "t": rng(10).standard_normal((2, 3, 4)), "s": rng(11).standard_normal(()), "S": well(3, 3), "B": well(2, 3, 3), "P": definite(3, 3), "Q": definite(2, 3, 3),
    "tall": rng(12).standard_normal((4, 2)), "wide": rng(13).standard_normal((2, 4)), "b": rng(14).standard_normal((3, 2)), "big": rng(15).uniform(2.5, 6.0, (3, 4)),
    "empty": np.zeros((0, 4)), "img": rng(16).standard_normal((1, 2, 4, 5)), "l": rng(17).standard_normal(6), "m3": rng(18).standard_normal((2, 3)),
}

DIFFERENTIABLE = """
T.asinh(x) | T.acosh(p + 1) | T.atanh(u) | T.deg2rad(x) | T.rad2deg(x) | T.frac(x) | T.sinc(x) | T.hypot(x, y) | T.hypot(x, v) | T.copysign(x, y) | T.copysign(x, -2.0) | T.fmax(x, y) | T.fmin(x, v) | T.float_power(p, 2.5)
T.float_power(p, r) | T.ldexp(x, T.tensor([1, 2, 3, 4])) | T.frexp(x).mantissa | T.logaddexp(x, y) | T.logaddexp2(x, v) | T.xlogy(x, p) | T.xlogy(x, 2.0) | T.logit(q) | T.logit(q, 0.2) | T.erfc(x) | T.erfinv(u) | T.lgamma(p)
T.digamma(p) | T.polygamma(1, p) | T.polygamma(2, p) | T.mvlgamma(big, 2) | T.i0(x) | T.special.i0e(x) | T.special.i1(x) | T.special.i1e(x) | T.special.erfcx(x) | T.special.ndtr(x) | T.special.ndtri(q) | T.special.log_ndtr(x)
T.special.entr(p) | T.special.xlog1py(x, p) | T.special.expit(x) | T.special.gammaln(p) | T.special.psi(p) | T.special.round(x, decimals=1) | T.igamma(T.tensor(2.0, dtype=T.float64), p) | T.special.gammaincc(T.tensor(0.5, dtype=T.float64), p)
T.special.zeta(T.tensor(2.5, dtype=T.float64), p) | T.nan_to_num(x) | T.clamp_min(x, 0.1) | T.clamp_max(x, 0.1) | T.positive(x) | T.sgn(x) | T.hardshrink(x) | T.hardshrink(x, 0.1) | T.celu(x, 1.3) | T.selu(x) | T.threshold(x, 0.1, 2.0) | T.prelu(x, v)
T.prelu(x, v[:1]) | x.sum_to_size(1, 4) | x.adjoint() | x.ravel() | T.atleast_2d(v) | T.atleast_3d(x) | T.atleast_1d(s) | T.column_stack([x, w]) | T.dstack([x, y]) | T.row_stack([x, v]) | T.hsplit(x, 2)[1] | T.vsplit(x, 3)[2] | T.dsplit(t, [1, 3])[1]
T.fliplr(x) | T.flipud(x) | T.rot90(x) | T.rot90(x, 2) | T.rot90(t, -1, (1, 2)) | T.diagflat(x) | T.diagflat(v, -1) | x.unfold(1, 2, 1) | x.unfold(0, 2, 1) | t.unfold(-1, 3, 1) | x.split_with_sizes([1, 3], 1)[1] | T.narrow_copy(x, 1, 1, 2)
T.permute_copy(x, (1, 0)) | T.constant_pad_nd(x, (1, 2, 0, 1), 1.5) | T.constant_pad_nd(x, (-1, 1)) | T.block_diag(x, w, s) | T.as_strided(x, (2, 2), (1, 3), 1) | T.as_strided(x, (3, 3), (1, 1)) | T.index_fill(x, 1, T.tensor([0, 2]), 1.5)
T.index_copy(x, 0, T.tensor([2, 0]), y[:2]) | T.index_put(x, (T.tensor([0, 1]), T.tensor([2, 3])), w[:2]) | T.index_put(x, (T.tensor([0, 0]),), y[:2], accumulate=True) | x.put(T.tensor([1, 5]), w[:2]) | x.put(T.tensor([1, 1]), w[:2], accumulate=True)
T.index_reduce(x, 0, T.tensor([0, 2, 0]), y, 'amax') | T.index_reduce(x, 0, T.tensor([0, 2, 0]), y, 'prod') | T.index_reduce(x, 0, T.tensor([0, 2, 0]), y, 'mean', include_self=False)
T.scatter_reduce(x, 1, T.tensor([[0, 0, 1], [3, 2, 2]]), y[:2, :3], 'sum') | T.scatter_reduce(x, 1, T.tensor([[0, 0, 1], [3, 2, 2]]), y[:2, :3], 'amin') | T.scatter_reduce(x, 1, T.tensor([[0, 0, 1], [3, 2, 2]]), y[:2, :3], 'amax', include_self=False)
T.scatter_reduce(x, 1, T.tensor([[0, 0, 1], [3, 2, 2]]), y[:2, :3], 'prod') | T.scatter_reduce(x, 1, T.tensor([[0, 0, 1], [3, 2, 2]]), y[:2, :3], 'mean') | T.scatter_reduce(x, 0, T.tensor([[0, 0, 1, 2]]), y[:1], 'mean', include_self=False)
T.masked_scatter(x, x > 0, y) | T.select_scatter(x, v, 0, 1) | T.slice_scatter(x, y[:, :2], 1, 1, 3) | T.diagonal_scatter(x, w, 0) | T.diagonal_scatter(x, w, 1) | T.kthvalue(x, 2).values | T.kthvalue(x, 3, 0, True).values
T.mode(x, 0).values | T.msort(x) | T.cummax(x, 1).values | T.cummin(x, 0).values | T.logcumsumexp(x, 1) | T.logcumsumexp(t, 0) | T.nansum(x) | T.nansum(x, 1) | T.nanmean(x, 0, keepdim=True) | T.nanmedian(x) | T.nanmedian(x, 1).values
T.quantile(x, 0.3) | T.quantile(x, 0.3, dim=1) | T.quantile(x, T.tensor([0.1, 0.5, 1.0], dtype=T.float64), dim=0) | T.quantile(t, T.tensor([0.2, 0.7], dtype=T.float64), dim=1, keepdim=True) | T.quantile(x, 0.4, interpolation='midpoint') | T.quantile(x, 0.4, dim=1, interpolation='lower')
T.quantile(x, 0.4, dim=1, interpolation='nearest') | T.nanquantile(x, 0.6, dim=1) | T.quantile(x, 0.5, keepdim=True) | T.diff(x) | T.diff(x, 2, 0) | T.diff(x, prepend=x[:, :1]) | T.gradient(v)[0] | T.gradient(x)[1] | T.gradient(x, spacing=0.5, dim=1)[0]
T.gradient(l, spacing=2.0, edge_order=2)[0] | T.gradient(v, spacing=(T.tensor([0.0, 1.0, 3.0, 4.5], dtype=T.float64),))[0] | T.gradient(v, spacing=(T.tensor([0.0, 1.0, 3.0, 4.5], dtype=T.float64),), edge_order=2)[0] | T.trapezoid(x) | T.trapezoid(x, dx=0.5, dim=0)
T.trapezoid(x, v) | T.trapezoid(x, p.cumsum(1)) | T.cumulative_trapezoid(x, dim=1) | T.cumulative_trapezoid(x, v) | T.tensordot(x, y.T, 1) | T.tensordot(t, t, ([0, 2], [0, 2])) | T.tensordot(x, y) | T.inner(x, y) | T.inner(t, v) | T.vdot(v, v * 2)
T.kron(x, S) | T.kron(v, S) | T.addr(x, w, v) | T.addr(x, w, v, beta=0.5, alpha=2.0) | T.addbmm(S, B, B, beta=0.5) | T.chain_matmul(S, S, x) | T.cross(S, S.T, dim=1) | T.cross(S, S * S) | T.cartesian_prod(v, w) | T.combinations(v) | T.combinations(v, 3, True)
T.dist(x, y) | T.dist(x, y, 3) | T.cdist(x, y) | T.cdist(t, t + 1, p=1.0) | T.cdist(x, y, p=3.0) | T.pdist(x) | T.pairwise_distance(x, y) | T.cosine_similarity(x, y) | T.renorm(x, 2, 0, 1.0) | T.cov(x) | T.cov(x, correction=0)
T.cov(x, fweights=T.tensor([1, 2, 1, 3])) | T.cov(x, aweights=T.tensor([0.5, 1.0, 2.0, 1.0], dtype=T.float64)) | T.corrcoef(x) | T.cov(v) | T.det(S) | T.det(B) | T.logdet(P) | T.slogdet(S)[1] | T.linalg.slogdet(B).logabsdet | T.inverse(S) | T.linalg.inv(B)
T.linalg.inv_ex(S).inverse | T.linalg.solve(S, b) | T.linalg.solve(S, w) | T.linalg.solve(B, b) | T.linalg.solve(S, b.T, left=False) | T.linalg.solve_triangular(S, b, upper=True) | T.linalg.solve_triangular(S, b.T, upper=False, left=False) | T.linalg.solve_triangular(B, b, upper=False, unitriangular=True)
T.linalg.cholesky(P) | T.linalg.cholesky(Q, upper=True) | T.cholesky(P) | T.cholesky_solve(b, T.linalg.cholesky(P)) | T.cholesky_solve(b, T.linalg.cholesky(P).mT, upper=True) | T.cholesky_inverse(T.linalg.cholesky(P)) | T.linalg.qr(S).R.abs() | T.linalg.qr(tall).Q.abs() | T.linalg.qr(wide).R.abs()
T.linalg.eigvalsh(P) | T.linalg.eigh(P).eigenvectors.abs() | T.linalg.eigh(Q, 'U').eigenvalues | T.linalg.svdvals(x) | T.linalg.svd(tall, full_matrices=False).U.abs() | T.svd(wide).V.abs() | T.linalg.pinv(tall) | T.linalg.pinv(wide) | T.pinverse(x) | T.linalg.lstsq(x.T, x.T[:, :2]).solution
T.linalg.matrix_exp(S / 3) | T.matrix_exp(B / 2) | T.matrix_power(S, 3) | T.linalg.matrix_power(S, -2) | T.linalg.multi_dot([v, x.T, S, S]) | T.linalg.vecdot(x, y) | T.linalg.vander(v) | T.linalg.tensorinv(S, ind=1) | T.linalg.tensorsolve(S, w)
T.linalg.lu(S).U | T.linalg.lu(S).L | T.linalg.lu_solve(*T.linalg.lu_factor(S), b) | T.lu_solve(b, *T.linalg.lu_factor(S)) | T.linalg.lu_solve(*T.linalg.lu_factor(S), b, adjoint=True) | T.linalg.lu_solve(*T.linalg.lu_factor(S), b.T, left=False) | T.triangular_solve(b, S)[0] | T.triangular_solve(b, S, upper=False, transpose=True)[0]
T.linalg.vector_norm(x) | T.linalg.vector_norm(x, 3, dim=1) | T.linalg.vector_norm(x, 1.5) | T.linalg.vector_norm(x, float('inf'), dim=0) | T.linalg.norm(x) | T.linalg.norm(S, 2) | T.linalg.norm(S, 'nuc') | T.linalg.norm(v, 1) | T.linalg.matrix_norm(x, 1) | T.linalg.matrix_norm(t, float('-inf'), keepdim=True)
T.linalg.cond(S) | T.linalg.cross(S, S.T) | T.linalg.diagonal(B) | T.linalg.householder_product(tall, tall[0] / 5) | T.special.legendre_polynomial_p(u, T.tensor(3)).detach() * x | T.sinc(s) | T.cov(m3) | T.index_fill(x, 0, T.tensor([], dtype=T.int64), 1.0) | T.fill(T.zeros(3, dtype=T.float64), s)
T.view_as_real(T.fft.fft(x)) | T.view_as_real(T.fft.ifft(x, 6, 0).resolve_conj()) | T.view_as_real(T.fft.rfft(x, 3)) | T.fft.irfft(T.complex(x, y)) | T.fft.irfft(T.complex(x, y), 7, norm='ortho') | T.view_as_real(T.fft.fft2(t, norm='forward')) | T.view_as_real(T.fft.fftn(T.complex(x, y)))
T.view_as_real(T.fft.rfft2(t)) | T.fft.irfft2(T.complex(x, y)) | T.fft.irfftn(T.complex(x, y), (4, 5)) | T.fft.hfft(T.complex(x, y)) | T.view_as_real(T.fft.ihfft(x).resolve_conj()) | T.fft.fftshift(x) | T.fft.ifftshift(x, 1) | T.fft.fftshift(x, (1, 1)) | T.fft.ifftshift(x, (0, 0)) | T.view_as_real(T.fft.ifftn(t, (3, 3), (0, 2)))
T.special.logsumexp(x, 1) | T.where(x > 0, x, y) | x.where(x > 0, 0.0) | T.logcumsumexp(s, 0) | T.diagonal_copy(x) | T.polar(p, x).real | T.view_as_real(T.polar(p, x)) | T.view_as_complex(tall).abs() | T.complex(x, y).imag | T.complex(x, y).angle()
"""

VALUES = """
T.heaviside(x, y) | T.gcd(T.tensor([12, 18]), T.tensor([8, 27])) | T.lcm(T.tensor([4, 6]), T.tensor([6, 9])) | T.nextafter(x, y) | T.signbit(x) | T.isposinf(x / 0) | T.isneginf(x / 0) | T.isreal(x) | T.bitwise_left_shift(T.tensor([1, 2]), T.tensor([3, 1]))
T.tensor([8, 5]) >> 1 | T.tensor([1, 3]) << T.tensor([2, 2]) | T.isin(T.tensor([1, 2, 3]), T.tensor([2, 5])) | T.isin(T.tensor([1, 2, 3]), 2, invert=True) | T.argwhere(x > 0) | T.nonzero_static(x > 0, size=3) | T.unravel_index(T.tensor([3, 7]), (3, 4))[1]
T.kthvalue(x, 2).indices | T.cummax(x, 1).indices | T.cummin(x, 0).indices | T.cummax(T.tensor([1.0, 3.0, 3.0, 2.0]), 0).indices | T.mode(T.tensor([[1, 2, 2, 3], [3, 3, 1, 1]])).values | T.mode(T.tensor([1, 2, 2, 3])).indices
T.unique_consecutive(T.tensor([1, 1, 2, 2, 3, 1])) | T.unique_consecutive(T.tensor([1, 1, 2, 2, 3, 1]), return_inverse=True, return_counts=True)[2] | T.unique_consecutive(T.tensor([[1, 1], [1, 1], [2, 1]]), dim=0) | T.searchsorted(v.sort().values, x) | T.searchsorted(x.sort(1).values, y, right=True)
T.bucketize(x, T.tensor([-1.0, 0.0, 1.0], dtype=T.float64)) | T.bucketize(x, T.tensor([-1.0, 0.0, 1.0], dtype=T.float64), right=True, out_int32=True) | T.histc(x, 5) | T.histc(x, 4, -1, 1) | T.histc(x, 4, 0.5, 0.5) | T.histc(x.round(decimals=1), 20, -1, 1) | T.histc(x.float(), 7, -0.3, 0.9) | T.histogram(x, 4).hist | T.histogram(x, T.tensor([-1.0, 0.0, 2.0], dtype=T.float64), density=True).hist
T.hann_window(5) | T.hann_window(5, periodic=False) | T.hamming_window(6) | T.hamming_window(6, True, 0.5, 0.5) | T.blackman_window(7) | T.bartlett_window(5) | T.kaiser_window(5) | T.kaiser_window(6, False, 4.0) | T.hann_window(1) | T.range(1, 2.5, 0.5)
T.tensor(T.broadcast_shapes((3, 1), (4,), (2, 1, 1))) | T.linalg.matrix_rank(x) | T.linalg.matrix_rank(x[:, :1] @ x[:1]) | T.linalg.lu_factor(S).LU | T.linalg.lu_factor(B).pivots | T.linalg.lu(x).P | T.linalg.inv_ex(S * 0).info | T.linalg.cholesky_ex(-P).info | T.linalg.cholesky_ex(P).info
T.linalg.lstsq(x.T, x.T[:, :2]).rank | T.linalg.lstsq(tall, l[:4]).residuals | T.linalg.lstsq(tall, l[:4], driver='gelsd').residuals | T.linalg.eigvals(P).real.sort().values | T.linalg.svd(x).Vh.abs() | T.linalg.qr(tall, 'complete').Q.abs() | T.linalg.qr(tall, 'r').R.abs() | T.lu(S)[1] | T.lu_unpack(*T.linalg.lu_factor(S))[1] | T.frexp(x).exponent
T.special.chebyshev_polynomial_t(u, T.tensor(4)) | T.special.chebyshev_polynomial_u(u, 3) | T.special.chebyshev_polynomial_v(u, 3) | T.special.chebyshev_polynomial_w(u, 3) | T.special.hermite_polynomial_h(x, 4) | T.special.hermite_polynomial_he(x, 4) | T.special.laguerre_polynomial_l(x, 4) | T.special.legendre_polynomial_p(u, T.tensor([0, 1, 2, 3]))
T.special.shifted_chebyshev_polynomial_t(u, 3) | T.special.shifted_chebyshev_polynomial_u(u, 3) | T.special.shifted_chebyshev_polynomial_v(u, 3) | T.special.shifted_chebyshev_polynomial_w(u, 3) | T.sgn(T.complex(x, y)) | T.angle(x) | T.angle(T.complex(x, y)) | T.imag(T.complex(x, y)) | T.conj(T.complex(x, y)).resolve_conj()
T.nansum(T.tensor([1.0, math.nan, 2.0])) | T.nanmean(T.tensor([[1.0, math.nan], [2.0, 3.0]]), 1) | T.nanmedian(T.tensor([1.0, math.nan, 2.0, 5.0])) | T.nanmedian(T.tensor([[1.0, math.nan, 2.0]]), 1).values | T.nanquantile(T.tensor([1.0, math.nan, 2.0, 4.0]), 0.5) | T.quantile(T.tensor([1.0, math.nan]), 0.5)
T.nan_to_num(T.tensor([math.nan, math.inf, -math.inf, 1.0])) | T.nan_to_num(T.tensor([math.nan, math.inf, -math.inf]), 1.0, 2.0, 3.0) | T.xlogy(T.tensor([0.0, 0.0, 2.0]), T.tensor([0.0, math.nan, 0.0])) | T.lgamma(T.tensor([-1.0, 0.0, -0.5, 1e-3, 50.0, math.inf])) | T.digamma(T.tensor([-0.5, 0.0, -1.0, 1e-3, 100.0]))
T.erfinv(T.tensor([-1.0, 1.0, 0.0, 2.0, 0.999])) | T.logit(T.tensor([0.0, 1.0, -1.0, 0.5])) | T.special.ndtri(T.tensor([0.0, 1.0, 0.5, 1e-10, 2.0], dtype=T.float64)) | T.special.log_ndtr(T.tensor([-50.0, -5.0, 0.0, 5.0, 40.0], dtype=T.float64)) | T.erfc(T.tensor([-6.0, 0.3, 5.0, 12.0, 27.0], dtype=T.float64))
T.igamma(T.tensor([0.0, 1.0, 2.0, 100.0, 5.0]), T.tensor([1.0, 0.0, math.inf, 95.0, 30.0])) | T.igammac(T.tensor([0.0, 1.0, 2.0, 100.0, 5.0]), T.tensor([1.0, 0.0, math.inf, 95.0, 30.0])) | T.special.zeta(T.tensor([2.0, 1.0, 3.0, 2.0]), T.tensor([1.0, 2.0, -0.5, -1.0])) | T.polygamma(2, T.tensor([-0.5, 1.0, 30.0]))
T.special.i1(T.tensor([-40.0, 0.0, 29.0, 31.0, 80.0], dtype=T.float64)) | T.special.i0e(T.tensor([-700.0, 0.0, 500.0], dtype=T.float64)) | T.special.entr(T.tensor([-1.0, 0.0, 2.0])) | T.special.erfcx(T.tensor([-3.0, 0.0, 30.0, 1e8], dtype=T.float64)) | T.sinc(T.tensor([0.0, 0.5, 1.0]))
T.lgamma(T.tensor([1, 2, 5])) | T.erfc(T.tensor([0, 1])) | T.hypot(T.tensor([3.0]), T.tensor([4.0], dtype=T.float64)) | T.xlogy(T.tensor([1, 2]), T.tensor([1, 2])) | T.float_power(T.tensor([2, 3]), 2) | T.logit(T.tensor([0, 1])) | T.deg2rad(T.tensor([180, 90])) | T.copysign(T.tensor([1, 2]), T.tensor([-1.0, 1.0])) | T.sinc(T.tensor([0, 1]))
T.cov(T.tensor([[1, 2, 3], [3, 2, 1]])) | T.diff(T.tensor([True, False, True])) | T.kron(T.tensor([1, 2]), T.tensor([3, 4])) | T.scatter_reduce(T.tensor([1, 2, 3]), 0, T.tensor([0, 0, 2]), T.tensor([5, 6, 7]), 'amax') | T.scatter_reduce(T.tensor([1, 2, 3]), 0, T.tensor([0, 0, 2]), T.tensor([5, 6, 7]), 'mean') | T.nansum(T.tensor([1, 2]))
T.vander(v) | T.vander(v, 3, True) | T.linalg.vector_norm(x, 0) | T.linalg.cond(S, 1) | T.linalg.cond(S, 'fro')
T.fft.fftfreq(5) | T.fft.rfftfreq(6, 0.5) | T.fft.fft(T.tensor([1, 2, 3])).abs() | T.is_nonzero(s) | T.can_cast(T.float64, T.int32) | T.can_cast(T.int32, T.float16) | T.is_signed(T.tensor([1], dtype=T.uint8)) | T.asinh(empty) | T.logcumsumexp(empty, 0) | T.diff(empty) | T.linalg.vector_norm(empty) | T.det(T.zeros(0, 0)) | T.linalg.inv(T.zeros(2, 0, 0)) | T.cdist(empty, x) | T.nansum(empty, 0) | T.block_diag(T.tensor([[1.0]]), T.tensor(2.0))
x.new_zeros(2).sgn_() | T.zeros(3, 3).fill_diagonal_(2.0) | x.clone().clamp_min_(0.0) | x.clone().index_fill_(1, T.tensor([1]), 3.0) | x.clone().index_copy_(0, T.tensor([1]), y[:1]) | x.clone().masked_scatter_(x > 0, y) | x.clone().cumsum_(1) | x.clone().addmm_(S, x) | x.clone().scatter_reduce_(0, T.tensor([[0, 0, 1, 2]]), y, 'sum')
x.clone().index_put_((T.tensor([0]), T.tensor([1])), s) | x.clone().erfinv_().isnan() | x.clone().hypot_(y) | T.relu_(x.clone()) | x.clone().nan_to_num_() | x.clone().copysign_(y) | x.clone().renorm_(2, 0, 1.0) | x.clone().put_(T.tensor([0]), s.reshape(1)) | x.is_same_size(y) | T.zeros(2).new(3).shape[0] | x.dim_order() | x.mH | T.asinh(x, out=T.zeros(3, 4, dtype=T.float64)) | T.quantile(x, 0.5, out=T.zeros((), dtype=T.float64))
"""

ERRORS = """
T.linalg.inv(T.zeros(2, 2)) | T.linalg.inv(T.zeros(3, 2, 2)) | T.linalg.inv(T.zeros(2, 3)) | T.linalg.inv(T.zeros(2)) | T.linalg.inv(T.eye(2).long()) | T.linalg.inv(T.eye(2).half()) | T.linalg.solve(T.ones(2, 2), T.ones(2)) | T.linalg.solve(T.eye(2), T.ones(3)) | T.linalg.solve(T.eye(2), T.ones(2).double())
T.linalg.cholesky(-T.eye(2)) | T.linalg.cholesky(-T.eye(2).expand(3, 2, 2)) | T.linalg.cholesky(T.tensor([[1.0, 2.0], [2.0, 1.0]])) | T.linalg.svd(T.ones(3)) | T.linalg.eigh(T.ones(2, 3)) | T.linalg.eigh(T.ones(2, 2), 'X') | T.linalg.det(T.ones(2, 3)) | T.det(T.eye(2).long()) | T.linalg.slogdet(T.ones(2, 3)) | T.linalg.qr(T.ones(3))
T.linalg.qr(T.ones(3, 3), 'x') | T.linalg.matrix_power(T.ones(2, 3), 2) | T.linalg.lstsq(T.ones(3), T.ones(3)) | T.linalg.vector_norm(T.ones(3).long()) | T.linalg.norm(T.ones(3, 3), 'abc') | T.linalg.solve_triangular(T.ones(2, 3), T.ones(2, 2), upper=True) | T.cholesky_solve(T.ones(2), T.eye(2)) | T.linalg.matrix_exp(T.ones(2, 3)) | T.linalg.pinv(T.ones(3)) | T.linalg.eig(T.ones(3))
T.linalg.matrix_norm(T.ones(3)) | T.cross(T.ones(2), T.ones(2), dim=0) | T.ones(3).unfold(0, 4, 1) | T.ones(3).unfold(0, 2, 0) | T.quantile(T.ones(3), 1.5) | T.quantile(T.ones(3).long(), 0.5) | T.quantile(T.ones(0), 0.5) | T.quantile(T.ones(3), 0.5, interpolation='x') | T.kthvalue(T.ones(3), 4) | T.kthvalue(T.ones(3), 0) | T.cdist(T.ones(3), T.ones(3)) | T.cdist(T.ones(2, 3), T.ones(2, 4))
T.tensordot(T.ones(2, 3), T.ones(2, 3), 1) | T.tensordot(T.ones(2), T.ones(2), 3) | T.index_copy(T.ones(3), 0, T.tensor([5]), T.ones(1)) | T.index_copy(T.ones(3), 0, T.tensor([0, 1]), T.ones(1)) | T.scatter_reduce(T.ones(3), 0, T.tensor([0]), T.ones(1), 'x') | T.masked_scatter(T.ones(3), T.ones(3).bool(), T.ones(2)) | T.select_scatter(T.ones(3, 2), T.ones(3), 0, 0) | T.fliplr(T.ones(3))
T.rot90(T.ones(2, 2), 1, (0, 0)) | T.hsplit(T.ones(3), 2) | T.vsplit(T.ones(3), 3) | T.broadcast_shapes((2,), (3,)) | T.histc(T.ones(3), 0) | T.histc(T.ones(3), 2, 3, 1) | T.polygamma(-1, T.ones(2)) | T.mvlgamma(T.ones(2), 0) | T.view_as_complex(T.ones(3)) | T.view_as_real(T.ones(3)) | T.imag(T.ones(3)) | T.ones(2).sum_to_size(3) | T.diff(T.tensor(1.0)) | T.gradient(T.ones(1)) | T.cummax(T.ones(3), 2)
T.logcumsumexp(T.ones(3), 1) | T.combinations(T.ones(2, 2)) | T.renorm(T.ones(3), 2, 0, 1.0) | T.pdist(T.ones(3)) | T.cov(T.ones(2, 2, 2)) | T.ones(3).adjoint() | T.nanmean(T.ones(3).long()) | T.constant_pad_nd(T.ones(3), (-2, -2)) | T.celu(T.ones(2), 0.0) | T.addr(T.ones(2, 2), T.ones(2, 2), T.ones(2)) | T.inner(T.ones(3), T.ones(4)) | T.linalg.multi_dot([T.ones(2)])
T.fft.fft(T.ones(3), 0) | T.fft.rfft(T.ones(3) * 1j) | T.fft.fft(T.ones(3), norm='x') | T.fft.fftn(T.ones(2, 2), dim=(0, 0)) | T.asinh('a') | T.lgamma(3.0) | T.unravel_index(T.tensor([3]), (2, 2)).shape | T.linalg.tensorinv(T.ones(2, 3), ind=1) | T.linalg.tensorinv(T.ones(2, 2), ind=0) | T.bucketize(T.ones(2), T.ones(2, 2)) | T.index_reduce(T.ones(3), 0, T.tensor([0]), T.ones(1), 'sum') | T.ones(3).put(T.tensor([1]), T.ones(2))
"""


NO_SECOND = ("T.cdist", "T.pdist")  # PyTorch cannot differentiate these twice; ours can

# What PyTorch has an operation for and we compose of several, or the other way round: the last node has another name.
COMPOSED = set("""
T.copysign(x,-2.0) T.ldexp T.frexp T.xlogy(x,2.0) T.special.ndtr T.special.round T.clamp_min T.clamp_max T.atleast_2d T.hsplit T.vsplit T.dsplit T.rot90 x.split_with_sizes T.narrow_copy T.permute_copy T.block_diag T.index_fill T.index_copy x.put
T.index_reduce T.scatter_reduce T.select_scatter T.slice_scatter T.diagonal_scatter T.nansum T.nanmedian T.quantile T.nanquantile T.trapezoid T.cumulative_trapezoid T.vdot T.kron T.addr T.addbmm T.chain_matmul T.combinations T.vander T.dist T.cdist
T.pdist T.pairwise_distance T.renorm T.cov T.corrcoef T.linalg.solve T.linalg.solve_triangular T.linalg.cholesky T.cholesky T.cholesky_solve T.cholesky_inverse T.linalg.lstsq T.linalg.multi_dot T.linalg.lu_solve T.lu_solve T.triangular_solve T.linalg.matrix_norm
T.linalg.cond T.linalg.tensorinv T.linalg.householder_product T.fill T.diagonal_copy T.polar T.complex T.fft.irfft T.fft.irfft2 T.fft.irfftn T.fft.hfft T.view_as_real
""".split())


def split(text):
    return [e.strip() for line in text.strip().splitlines() for e in line.split(" | ")]


def evaluate(expression, torch, dtype, grad):
    "The expression's result, and the inputs that it mentions as leaves."
    used = {n: torch.from_numpy(a.copy()).to(getattr(torch, dtype)) for n, a in INPUTS.items() if n in compile(expression, "", "eval").co_names}
    for tensor in used.values():
        tensor.requires_grad_(grad)
    return eval(expression, {"T": torch, "math": math, **used}), list(used.values())


def same(a, b, rtol, atol):
    assert str(a.dtype) == str(b.dtype)
    a, b = to_numpy(a), b.detach().resolve_conj().resolve_neg().numpy(force=True)
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@needs_torch
@pytest.mark.parametrize("expression", split(DIFFERENTIABLE))
def test_values_and_gradients(expression):
    "Value, gradient and the gradient of a scalar made of the gradients, in float64."
    import torch

    found = []
    for T in (ours, torch):
        out, leaves = evaluate(expression, T, "float64", True)
        outs = [out]
        start = T.from_numpy(np.asarray(rng(20).standard_normal(tuple(out.shape))).astype(to_numpy(out).dtype))
        first = T.autograd.grad(out, leaves, start, create_graph=True, allow_unused=True)
        outs += [g for g in first if g is not None]
        total = sum((g * g * (k + 1)).sum() for k, g in enumerate(first) if g is not None)
        if T is torch and expression.startswith(NO_SECOND):
            with pytest.raises((NotImplementedError, RuntimeError)):  # when this fails, PyTorch has learnt it: shorten the list
                T.autograd.grad(total, leaves, allow_unused=True)
            found[0] = found[0][: len(outs)]
        elif getattr(total, "requires_grad", False):
            outs += [T.zeros_like(x) if g is None else g for g, x in zip(T.autograd.grad(total, leaves, allow_unused=True), leaves)]
        else:
            outs += [T.zeros_like(x) for x in leaves]
        found.append(outs)
    assert len(found[0]) == len(found[1]), "not the same inputs have gradients"
    for a, b in zip(*found):
        same(a, b, 1e-7, 1e-8)


@needs_torch
@pytest.mark.parametrize("expression", split(DIFFERENTIABLE) + split(VALUES))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(expression, dtype):
    import torch

    if "dtype=T.float64" in expression and dtype == "float32":
        return  # the constants of these expressions are float64
    with np.errstate(all="ignore"):
        a, b = (evaluate(expression, T, dtype, False)[0] for T in (ours, torch))
    if not hasattr(b, "detach"):
        assert a == b or tuple(a) == tuple(b)
        return
    same(a, b, *((3e-4, 3e-5) if str(b.dtype) in ("torch.float32", "torch.complex64") else (1e-9, 1e-12)))


@needs_torch
@pytest.mark.parametrize("expression", split(DIFFERENTIABLE))
def test_node_names(expression):
    "The last node has PyTorch's name."
    import torch

    if COMPOSED & {expression.replace(" ", ""), expression.split("(")[0]}:
        return
    mine, theirs = (evaluate(expression, T, "float64", True)[0].grad_fn for T in (ours, torch))
    assert (mine and mine.name()) == (theirs and theirs.name())


@needs_torch
@pytest.mark.parametrize("expression", split(ERRORS))
def test_errors(expression):
    "The same kind of error, and its first words."
    import torch

    found = []
    for T in (ours, torch):
        try:
            eval(expression, {"T": T})
            found.append(None)
        except Exception as error:
            found.append(error)
    mine, theirs = found
    if theirs is None:
        assert mine is None
        return
    assert mine is not None, f"no error; PyTorch: {theirs}"
    family = next(c for c in type(theirs).__mro__ if c.__module__ == "builtins")
    assert isinstance(mine, family), f"{type(mine).__name__}: {mine}; PyTorch: {type(theirs).__name__}: {theirs}"
    assert str(mine)[:25] == str(theirs)[:25], f"{mine}\nPyTorch: {theirs}"


# Complex numbers ------------------------------------------------------------------------------------------------


def complex_cases():
    found = []
    for op in REGISTRY.values():
        for k, sample in enumerate(op.samples):
            inputs = [s for s in sample if not isinstance(s, dict)]
            statics = next((s for s in sample if isinstance(s, dict)), {})
            arrays = [s(rng()) for s in inputs]
            out = op.kernel(*arrays, **{**op.statics, **statics}) if op.rules else None
            outs = out if op.outputs != 1 else [out]
            if op.rules and any(np.iscomplexobj(a) for a in [*arrays, *outs]):
                found.append(pytest.param(op, inputs, statics, id=f"{op.name}-{k}"))
    return found


def inner(a, b):
    return float(np.real(np.sum(np.conj(a) * b)))


def draw(r, like):
    return np.asarray(r.standard_normal(like.shape) + (1j * r.standard_normal(like.shape) if like.dtype.kind == "c" else 0))


@pytest.mark.parametrize("op, inputs, statics", complex_cases())
def test_complex_derivatives(op, inputs, statics):
    "Gradient, second derivative, tangent and batching rule of operations on complex numbers, against difference quotients along random directions."
    r = rng(1)
    values = [s(r) for s in inputs]
    chosen = [i for i, s in enumerate(inputs) if isinstance(s, N)]

    def kernel(at):
        out = op.kernel(*at, **{**op.statics, **statics})
        outs = [as_array(o) for o in (out if op.outputs != 1 else [out])]
        return outs if op.differentiable is None else [outs[i] for i in op.differentiable]

    starts = [draw(r, o) for o in kernel(values)]
    along, weights = ([draw(r, values[i]) for i in chosen] for _ in range(2))

    def moved(h):
        at = list(values)
        for i, d in zip(chosen, along):
            at[i] = at[i] + h * d
        return at

    def gradients(at):
        xs = [ours.from_numpy(np.array(a)).requires_grad_(i in chosen) for i, a in enumerate(at)]
        outs = op.general(*xs, **statics)
        outs = [o for o in (outs if isinstance(outs, tuple) else (outs,)) if o.requires_grad]
        return xs, ours.autograd.grad(outs, [xs[i] for i in chosen], [tensor_like(s) for s in starts], create_graph=True)

    def weighted(at):
        xs, grads = gradients(at)
        total = 0
        for w, g in zip(weights, grads):
            part = (tensor_like(np.conj(w)) * g).sum()
            total = total + (part.real if part.is_complex() else part)
        return xs, total

    h = 1e-6
    xs, grads = gradients(values)
    for i, g in zip(chosen, grads):
        assert g._array.dtype == values[i].dtype and g._array.shape == values[i].shape
    plus, minus = kernel(moved(h)), kernel(moved(-h))
    assert math.isclose(sum(inner(g._array, d) for g, d in zip(grads, along)), sum(inner(s, (p - m) / (2 * h)) for s, p, m in zip(starts, plus, minus)), rel_tol=1e-5, abs_tol=1e-6)

    xs, total = weighted(values)
    second = ours.autograd.grad(total, [xs[i] for i in chosen], allow_unused=True) if total.requires_grad else [None] * len(chosen)
    expected = (weighted(moved(h))[1].item() - weighted(moved(-h))[1].item()) / (2 * h)
    assert math.isclose(sum(inner(g._array, d) for g, d in zip(second, along) if g is not None), expected, rel_tol=1e-4, abs_tol=1e-5)

    tangents = [None] * len(values)
    for i, d in zip(chosen, along):
        tangents[i] = d
    out = op.kernel(*values, **{**op.statics, **statics})
    found = op.tangent(tangents, values, out, statics)
    found = [np.asarray(f) for f in (found if op.outputs != 1 else [found])]
    for f, p, m in zip(found if op.differentiable is None else [found[i] for i in op.differentiable], plus, minus):
        np.testing.assert_allclose(f, (p - m) / (2 * h), rtol=1e-4, atol=1e-5)

    if op.batch is not None:
        many = [np.stack([v, v * 1.01, v * 0.98]) if i in chosen else v for i, v in enumerate(values)]
        got = op.batched(many, [i in chosen for i in range(len(values))], statics)
        got = [np.asarray(g) for g in (got if op.outputs != 1 else [got])]
        for k in range(3):
            one = op.kernel(*[m[k] if i in chosen else m for i, m in enumerate(many)], **{**op.statics, **statics})
            for g, w in zip(got, one if op.outputs != 1 else [one]):
                np.testing.assert_allclose(g[k], w, rtol=1e-9, atol=1e-10)
