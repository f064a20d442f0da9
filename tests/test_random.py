"""Random numbers are PyTorch's, to the last bit on the processors on which PyTorch computes them alike."""

import numpy as np
import pytest
from _compare import same_draws, to_numpy

import autograd_nb

DRAWS = """
rand(100)
rand(1000, dtype=t.bfloat16)
randn(7)
randn(1000)
randn(17, dtype=t.bfloat16)
randn(33, dtype=t.float16)
rand_like(t.zeros(3, 5))
randn_like(t.zeros(3, 5, dtype=t.float64))
randn_like(t.zeros(5, 3).T)
randn_like(t.nn.Parameter(t.zeros(7)))
randn(100, dtype=t.float64)
normal(1.0, 2.0, (50,))
empty(203).uniform_(-0.1, 0.3)
empty(203).normal_(0.1, 0.02)
empty(9).normal_(0.1, 0.02)
empty(50).exponential_(2)
empty(50).geometric_(0.3)
empty(50).log_normal_()
empty(50).cauchy_()
bernoulli(t.rand(500))
bernoulli(t.rand(500, dtype=t.float64))
bernoulli(t.full((500,), 0.4, dtype=t.float16))
bernoulli(t.full((500,), 0.4, dtype=t.bfloat16))
empty(500).bernoulli_(0.3)
randn(4101)
randn(16389, dtype=t.float64)
randn(20, dtype=t.float16)
rand(16389).uniform_(-2, 5)
randint(-3, 9, (40,))
randint(-3, 1 << 40, (40,))
multinomial(t.rand(5, 9), 4)
poisson(t.rand(300) * 30)
poisson(t.rand(5000, dtype=t.float64) * 12)
randperm(30)
nn.functional.dropout(t.ones(500), 0.3)
nn.init.trunc_normal_(t.empty(30, 20), std=0.02)
nn.init.kaiming_normal_(t.empty(30, 20))
nn.Linear(30, 20).weight.detach()
nn.Linear(30, 20, dtype=t.bfloat16).weight.detach()
nn.LSTM(30, 20).weight_hh_l0.detach()
nn.Embedding(30, 20).weight.detach()
nn.Conv2d(3, 8, 5).weight.detach()
nn.MultiheadAttention(16, 2).in_proj_weight.detach()
"""


def draw(t, expression):
    t.manual_seed(7)
    return to_numpy(eval("t." + expression, {"t": t})), t.rand(1).item()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("expression", DRAWS.strip().splitlines())
def test_the_same_numbers_and_the_same_place_in_the_stream(expression):
    import torch

    expected, then = draw(torch, expression)
    found, now = draw(autograd_nb, expression)
    assert now == then
    same_draws(found, expected)


def test_a_fork_leaves_the_stream_where_it_was():
    autograd_nb.manual_seed(0)
    first = autograd_nb.rand(3)
    autograd_nb.manual_seed(0)
    with autograd_nb.random.fork_rng():
        autograd_nb.randn(40)
    assert autograd_nb.equal(autograd_nb.rand(3), first)


def test_a_mark_is_kept_until_a_number_is_drawn():
    g = autograd_nb.Generator().manual_seed(3)
    for draw in (lambda: g.uniform((5,)), lambda: g.normal((3,)), lambda: g.normal((40,)), lambda: g.exponential((4,)), lambda: g.in_turn(lambda uniform, normal, n: normal(), np.zeros(1))):
        mark = g.mark()
        assert g.mark() is mark
        first = draw()
        assert g.mark() is not mark
        g.back_to(mark)
        assert g.mark() is mark and (draw() == first).all()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make", ["rand_like(x, requires_grad=True)", "randn_like(x, requires_grad=True)", "randint_like(x, 5, requires_grad=True)"])
def test_numbers_made_like_others_may_require_gradients(make):
    import torch

    ours, theirs = (eval("t." + make, {"t": t, "x": t.zeros(3)}) for t in (autograd_nb, torch))
    assert ours.requires_grad and theirs.requires_grad and ours.is_leaf
    assert str(ours.dtype) == str(theirs.dtype) and ours.shape == theirs.shape


@pytest.mark.parametrize("count", [1, 15, 16, 200, 1023, 1024, 5000])
def test_few_numbers_and_many_are_of_one_stream(count, monkeypatch):
    from autograd_nb.arrays import random

    found = []
    for short in (0, 1 << 20):
        monkeypatch.setattr(random, "SHORT", short)
        stream = random.Generator().manual_seed(3)
        found.append((stream.doubles(count), stream.coins((count,), 0.3), stream.words(1)))
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)


FEW = {
    "uniform": lambda g, n: g.uniform((n,)),
    "uniform between": lambda g, n: g.uniform((n,), "f4", -3, 0.7),
    "uniform, double": lambda g, n: g.uniform((n,), "f8"),
    "uniform between, double": lambda g, n: g.uniform((n,), "f8", -3, 0.7),
    "uniform, half": lambda g, n: g.uniform((n,), "f2"),
    "normal": lambda g, n: g.normal((n,)),
    "normal about": lambda g, n: g.normal((n,), "f4", 1.5, 3),
    "normal about, double": lambda g, n: g.normal((n,), "f8", 1.5, 3),
    "normal, complex": lambda g, n: g.normal((n,), "c8"),
    "coins": lambda g, n: g.coins((n,), 0.3),
    "integers": lambda g, n: g.integers(-3, 9, (n,)),
    "wide integers": lambda g, n: g.integers(0, 1 << 40, (n,)),
    "chances": lambda g, n: autograd_nb.bernoulli(autograd_nb.linspace(0, 1, n), generator=g)._array,
    "chances, double": lambda g, n: autograd_nb.bernoulli(autograd_nb.linspace(0, 1, n).double(), generator=g)._array,
    "coins in place": lambda g, n: autograd_nb.empty(n).bernoulli_(0.3, generator=g)._array,
    "integers in place": lambda g, n: autograd_nb.empty(n).random_(3, 70, generator=g)._array,
    "normal in place": lambda g, n: autograd_nb.empty(n, 1).normal_(0.5, 2, generator=g)._array,
    "in a view": lambda g, n: autograd_nb.zeros(2 * n)[n:].uniform_(-1, 2, generator=g)._array,
    "across a view": lambda g, n: autograd_nb.zeros(n, 2).T[1].normal_(-1, 2, generator=g)._array,
}


@pytest.mark.parametrize("kind", FEW)
def test_few_numbers_drawn_by_a_loop_are_those_of_array_code(kind, monkeypatch):
    "Drawn in turn, so that words run out between two draws and within one, and normal numbers are held."
    from autograd_nb.arrays import numpy_backend, random
    from autograd_nb.ops import thread_pool

    if not thread_pool.AVAILABLE:
        pytest.skip("no compiled loops without numba")
    thread_pool.loops()
    ours, theirs = (random.Generator().manual_seed(5) for _ in range(2))
    mark = None
    for n in [1, 2, 3, 15, 16, 17, 5, 40, 700, 1, 33, 1024, 1025, 3]:
        found = FEW[kind](ours, n)
        assert ours.mark() is not mark
        mark = ours.mark()
        with monkeypatch.context() as definitions:
            definitions.setattr(numpy_backend.Switch, "on", False)
            expected = FEW[kind](theirs, n)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert found.tobytes() == expected.tobytes(), n
        assert np.array_equal(ours.packed(), theirs.packed())


def test_impossible_chances_draw_nothing():
    g = autograd_nb.Generator().manual_seed(3)
    before = g.get_state()
    for p in (autograd_nb.tensor([0.5, 1.5]), autograd_nb.tensor([0.5, float("nan")])):
        with pytest.raises(RuntimeError, match="Expected p_in >= 0"):
            autograd_nb.bernoulli(p, generator=g)
    with pytest.raises(RuntimeError, match="expects p to be in"):
        autograd_nb.zeros(3).bernoulli_(1.5, generator=g)
    assert autograd_nb.equal(g.get_state(), before)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("size, kind", [((9,), "float32"), ((50,), "float32"), ((50,), "float64")])
def test_normal_numbers_of_a_size_are_rounded_once(size, kind):
    import torch

    def drawn(t):
        t.manual_seed(3)
        return t.normal(1.5, 3.3, size, dtype=getattr(t, kind))

    def filled(t):
        t.manual_seed(3)
        return t.empty(size, dtype=getattr(t, kind)).normal_(1.5, 3.3)

    for t in (autograd_nb, torch):
        assert t.equal(drawn(t), filled(t))


BOUNDS = [(), (3,), (300,), (-5, 3), (1 << 40,), (0, 2), (0,), (5, 2), (1 << 70,)]
KINDS = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore:.*Due to precision limitations:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_random_draws_what_the_dtype_can_count(kind):
    "`random_` without bounds, and with bounds that a dtype can have or cannot."
    import torch

    def drawn(t, bounds):
        t.manual_seed(3)
        try:
            return t.empty(40, dtype=getattr(t, kind)).random_(*bounds).tolist()
        except Exception as error:
            return type(error).__name__, str(error)[:36]

    for bounds in BOUNDS:
        assert drawn(autograd_nb, bounds) == drawn(torch, bounds), bounds


# where PyTorch goes from 32 random bits to 64, where types run out of digits, and the ends of int64
WIDE = [(0, 1 << b) for b in (8, 11, 24, 27, 28, 30, 31, 32, 40, 53, 62)]
WIDE += [(0, (1 << b) + d) for b in (8, 11, 24, 28, 31, 32) for d in (-1, 1, 5)]
WIDE += [(-(1 << b), 1 << b) for b in (8, 24, 27, 31, 40, 62)] + [(-5, 1 << 31), (-(1 << 40), 5), (-(1 << 26) - 30, -(1 << 26) - 1)]
WIDE += [(0, (1 << 63) - 1), (-(1 << 63), (1 << 63) - 1), (-(1 << 63), 3 - (1 << 63)), (1 << 62, (1 << 63) - 1), ((1 << 26) + 1, (1 << 26) + 3)]


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore:.*Due to precision limitations:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_wide_ranges_of_integers(kind):
    "The same numbers, or the same error, and the same place in the stream afterwards."
    import torch

    def drawn(t, low, high):
        dtype, told = getattr(t, kind), []
        for make in (
            lambda: t.randint(low, high, (3,), dtype=dtype),
            lambda: t.randint(low, high, (1100,), dtype=dtype),
            lambda: t.randint(low, high, (), dtype=dtype),
            lambda: t.randint_like(t.zeros(2, dtype=dtype), low, high),
            lambda: t.zeros(5, dtype=dtype).random_(low, high),
            lambda: t.zeros(5, 2, dtype=dtype)[:, 1].random_(high),
        ):
            t.manual_seed(3)
            try:
                made = make().tolist()
            except Exception as error:
                made = type(error).__name__, str(error)[:40]
            told.append((made, t.rand(2).tolist()))
        return told

    for bounds in WIDE:
        assert drawn(autograd_nb, *bounds) == drawn(torch, *bounds), bounds


def test_floats_warn_where_they_do_not_count_every_integer():
    with pytest.warns(UserWarning, match=r"to - 1 is out of bounds \[-\(2\^24\), 2\^24\]"):
        autograd_nb.randint(0, 1 << 27, (2,), dtype=autograd_nb.float32)


@pytest.mark.parametrize("kind", ["uint16", "uint32", "uint64"])
def test_random_without_bounds_is_refused_for_wide_unsigned_dtypes(kind):
    with pytest.raises(NotImplementedError, match='"random_kernel_cpu" not implemented for \'UInt'):
        autograd_nb.zeros(2, dtype=getattr(autograd_nb, kind)).random_()
