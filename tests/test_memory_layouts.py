"""Where elements lie: new tensors in a memory format, results of factorisations, random numbers, what is empty."""

import itertools

import numpy as np
import pytest

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")


def both(function):
    "What `function` of the library returns, for PyTorch and for ours."
    import torch

    return function(torch), function(ours)


def strides(found):
    return [strides(f) for f in found] if isinstance(found, (tuple, list)) else (tuple(found.shape), found.stride())


SHAPES = [((2, 3, 4, 5), "channels_last"), ((2, 3, 2, 4, 5), "channels_last_3d"), ((2, 3, 4, 5), "contiguous_format"), ((2, 3, 4, 5), "preserve_format"),
          *[(shape, name) for shape in ((2, 1, 3, 3), (2, 3, 1, 1), (1, 4, 1, 3)) for name in ("channels_last", "contiguous_format", "preserve_format")]]


@pytest.mark.parametrize("shape, name", SHAPES)
def test_new_tensors_lie_in_the_format_that_was_asked_for(shape, name):
    def made(t):
        last = t.channels_last if len(shape) == 4 else t.channels_last_3d
        kept = getattr(t, name)
        found = [t.empty(shape, memory_format=kept)] if name != "preserve_format" else []
        for x in (t.zeros(shape), t.zeros(shape).contiguous(memory_format=last), t.zeros(shape[::-1]).permute(*range(len(shape))[::-1])):
            for like in (t.empty_like, t.zeros_like, t.ones_like, t.rand_like, t.randn_like):
                found += [like(x), like(x, memory_format=kept), like(x, memory_format=kept, dtype=t.float64)]
            found += [t.full_like(x, 2.0, memory_format=kept), t.randint_like(x, 5, memory_format=kept)]
        return strides(found)

    expected, found = both(made)
    assert found == expected


def test_formats_that_do_not_fit():
    for call in (lambda t: t.empty(2, 3, memory_format=t.channels_last), lambda t: t.zeros(1, 1, 1, 1, memory_format=t.channels_last)):
        kinds = []
        for t in both(lambda t: t):
            with pytest.raises((RuntimeError, TypeError)) as caught: call(t)
            kinds.append((caught.type, str(caught.value)[:30]))
        assert kinds[0] == kinds[1]


def test_dim_order():
    def orders(t):
        x = t.empty(2, 3, 4, 5, memory_format=t.channels_last)
        yield x.dim_order(), x.transpose(1, 2).dim_order(), x.dim_order(ambiguity_check=True)
        one = t.empty(1, 2, 3, 4)
        yield one.dim_order(), one.dim_order(ambiguity_check=[t.contiguous_format, t.channels_last])
        for wrong in (True, [t.channels_last, t.channels_last_3d], "a", ["a"]):
            with pytest.raises((RuntimeError, TypeError)) as caught: one.dim_order(ambiguity_check=wrong)
            yield caught.type, str(caught.value)

    expected, found = both(lambda t: list(orders(t)))
    assert found == expected


FILLS = dict(normal_=(1, 2), uniform_=(-1, 1), bernoulli_=(), exponential_=(), cauchy_=(), log_normal_=(), geometric_=(0.3,), random_=(1, 9))


@pytest.mark.parametrize("view", ["v", "v.double()", "v.t()", "v.t().double()", "v[:, ::2]", "v[::2].t()", "v[:2, :2].t()", "images", "images.permute(3, 1, 0, 2)"])
def test_random_numbers_come_in_the_order_of_memory(view):
    def drawn(t):
        t.manual_seed(0)
        images = t.zeros(2, 3, 4, 4).contiguous(memory_format=t.channels_last)
        x = eval(view, dict(v=t.zeros(6, 8), images=images))
        found = [like(x) for like in (t.rand_like, t.randn_like)] + [t.randint_like(x, 9), t.bernoulli(x + 0.5), t.normal(x, 1.0)]
        return found + [getattr(t.empty_like(x), name)(*args) for name, args in FILLS.items()]

    for expected, found in zip(*both(drawn)):
        assert found.stride() == expected.stride()
        np.testing.assert_allclose(found.double().numpy(), expected.double().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("k", [1, 2])
def test_solutions_lie_as_lapack_leaves_them(lead, turned, k):
    def calls(t):
        draw = np.random.default_rng(0)
        make = lambda *shape: t.tensor(draw.normal(size=(*lead, *shape)))
        A, B, C = make(3, 3), make(3, k), make(k, 3)
        if turned: A = A.mT
        S, LU = A @ A.mT + 3 * t.eye(3), t.linalg.lu_factor(A)
        yield t.linalg.solve(A, B), t.linalg.solve(A, C, left=False), t.linalg.solve_ex(A, B)[0]
        yield t.linalg.lu_solve(*LU, B), t.linalg.lu_solve(*LU, C, left=False), t.linalg.lu_solve(*LU, B, adjoint=True)
        yield t.cholesky_solve(B, t.linalg.cholesky(S)), t.linalg.cholesky(S, upper=True), t.linalg.lu_factor(make(4, 3))
        yield t.linalg.solve_triangular(A, B, upper=False), t.linalg.solve_triangular(A, C, upper=True, left=False)
        yield t.triangular_solve(B, A), t.linalg.matrix_power(A, 1), t.linalg.matrix_power(A, -1)

    expected, found = both(lambda t: [strides(part) for part in calls(t)])
    assert found == expected


@pytest.mark.parametrize("dim", [(0, 1), (1, 0), (-2, -1), (2,), None], ids=str)
def test_hermitian_transforms_lie_as_in_pytorch(dim):
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    for turn in ((0, 1, 2), (2, 0, 1)):
        expected, found = both(lambda t, turn=turn: t.fft.ihfftn(t.tensor(x).permute(*turn), dim=dim))
        assert found.stride() == expected.stride()
        assert found.is_conj() == expected.is_conj()
        np.testing.assert_allclose(found.resolve_conj().numpy(), expected.resolve_conj().numpy(), atol=1e-12)


def test_what_is_empty_has_strides():
    expected, found = both(lambda t: strides([t.zeros(0), t.tensor(()), t.tensor([[]]), t.zeros(0, 3), t.zeros(3, 0), t.zeros(2, 0, 3) + 1, t.linalg.qr(t.eye(3), mode="r")[0]]))
    assert found == expected


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_places_that_windows_share(dims):
    "A number that several windows found is put back once."
    def back(t, size):
        t.manual_seed(0)
        x = t.randn(2, 3, *[size] * dims, requires_grad=True)
        pooled, places = getattr(t.nn, f"MaxPool{dims}d")(3, 2, return_indices=True)(x)
        out = getattr(t.nn, f"MaxUnpool{dims}d")(3, 2)(pooled, places)
        out.sum().backward()
        return out.detach().numpy(), x.grad.numpy()

    for size in (5, 25):
        for expected, found in zip(*both(lambda t, size=size: back(t, size))):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dim", range(-5, 5))
def test_new_dimensions_of_empty_parts_have_pytorchs_strides(dim):
    expected, found = both(lambda t: t.arange(48).reshape(2, 3, 4, 2)[:, :0].unsqueeze(dim).stride())
    assert found == expected


ENTRIES = [None, ..., 0, slice(None), slice(1, None), slice(0, 1)]
CUT_FROM = {
    "plain": lambda x: x[0],
    "columns": lambda x: x[..., 1],
    "turned": lambda x: x.permute(3, 1, 0, 2)[0],
    "one row": lambda x: x[:1, 0],
    "repeated": lambda x: x[0, 0, 0, :1].expand(5),
    "empty": lambda x: x[:, :0],
    "a number": lambda x: x[0, 0, 0, 0],
}


@pytest.mark.parametrize("kind", CUT_FROM)
def test_new_dimensions_of_an_index_have_pytorchs_strides(kind):
    def read(t):
        x, found = CUT_FROM[kind](t.arange(48).reshape(2, 3, 4, 2)), []
        for index in indices:
            try:
                part = x[index]
            except IndexError:
                found.append(None)
            else:
                found.append((part.tolist(), tuple(part.shape), part.stride(), part.storage_offset(), part._base is not None))
        return found

    indices = [i for n in (1, 2, 3) for i in itertools.product(ENTRIES, repeat=n) if None in i and i.count(...) < 2]
    expected, found = both(read)
    for index, e, f in zip(indices, expected, found):
        assert f == e, index


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "bool", "float64"])
def test_a_part_with_a_new_dimension_shares_the_memory(dtype):
    def written(t):
        x = t.ones(4, 6).to(getattr(t, dtype))
        part = x[:, 2, None]
        part.zero_()
        return x.tolist(), x._version, part.data_ptr() - x.data_ptr(), part.stride()

    expected, found = both(written)
    assert found == expected


def test_several_ellipses():
    def read(t):
        v, mask = t.arange(6.0).reshape(2, 3), t.ones(2, 3).bool()
        return [v[..., ...].tolist(), v[..., None, ...].shape, v[0, ..., ...].tolist(), v[..., mask, ...].tolist(), v[0, ..., 1, ...].tolist()]

    expected, found = both(read)
    assert [str(f) for f in found] == [str(e) for e in expected]
    for t in both(lambda t: t):
        with pytest.raises(IndexError, match="index 0 is out of bounds for dimension 2 with size 0"): t.ones(2, 3)[..., ..., 0]


def test_asarray_leaves_what_it_was_given():
    def made(t):
        leaf = t.ones(3, requires_grad=True)
        found = [t.asarray(x, requires_grad=False) for x in (leaf, leaf + 1)]
        return [(x.requires_grad, x.grad_fn) for x in found] + [leaf.requires_grad]

    expected, found = both(made)
    assert found == expected


def test_closeness_of_sizes_that_do_not_fit():
    for name in ("isclose", "allclose"):
        for t in both(lambda t: t):
            with pytest.raises(RuntimeError, match="The size of tensor a"): getattr(t, name)(t.ones(3, 4), t.ones(5))
