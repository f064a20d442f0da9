"""Compiled loops give what the definitions beside them give: on large arrays of many shapes, at the places where formulas break, in whole training steps, from several threads."""

import itertools
import math
import os
import subprocess
import sys
import threading
import timeit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_nb as torch
from autograd_nb.arrays import numpy_backend, random
from autograd_nb.graph.op import REGISTRY
from autograd_nb.ops import compiled, thread_pool
from autograd_nb.ops.kernels import formulas
from autograd_nb.ops.kernels import compiler, convolution, pooling, products, rows, sixteen_bits

pytestmark = pytest.mark.skipif(not thread_pool.AVAILABLE, reason="numba is not installed, or switched off")
QUICK = settings(max_examples=25, deadline=None)


def quick(name, rule=None):
    return REGISTRY[name].kernel if rule is None else compiled.FAST_KERNELS[name][rule]


def agree(a, b, rtol=2e-5, atol=2e-6):
    if isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            agree(x, y, rtol, atol)
    else:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol * max(1, np.nanmax(np.abs(b[np.isfinite(b)]), initial=0)))


@pytest.mark.parametrize("k", range(len(list(compiled.examples()))), ids=[f"{name}-{rule or 'value'}-{k}" for k, (name, rule, *_) in enumerate(compiled.examples())])
def test_examples(k):
    name, rule, args, statics = list(compiled.examples())[k]
    kept = [np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
    agree(quick(name, rule)(*args, **statics), compiled.definition(name, rule)(*args, **statics))
    assert all(not isinstance(a, np.ndarray) or np.array_equal(a, b) for a, b in zip(args, kept)), "an input was written"


@pytest.mark.parametrize("k", range(len(list(compiled.examples()))))
def test_examples_shared_by_three(k, monkeypatch):
    monkeypatch.setattr(compiled.thread_pool, "size", 3)
    monkeypatch.setattr(compiled.thread_pool, "least", 0)
    name, rule, args, statics = list(compiled.examples())[k]
    for _ in range(3):      # helpers that sleep, and helpers that wait
        agree(quick(name, rule)(*args, **statics), compiled.definition(name, rule)(*args, **statics))


LYING = {
    "by columns": np.asfortranarray,
    "backward": lambda a: a[..., ::-1].copy()[..., ::-1],
    "with gaps": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "one for all of a dimension": lambda a: np.broadcast_to(a[:1], a.shape),
    "one for all of the second": lambda a: np.broadcast_to(a[:, :1] if a.ndim > 1 else a, a.shape),
    "one number a row": lambda a: np.broadcast_to(a[..., :1], a.shape),
}


@pytest.mark.parametrize("k", range(len(list(compiled.examples()))))
def test_examples_whose_operands_lie_otherwise(k):
    name, rule, args, statics = list(compiled.examples())[k]
    for lie, (i, a) in itertools.product(LYING, enumerate(args)):
        if not isinstance(a, np.ndarray) or not a.ndim or not a.size: continue
        if lie.startswith("one ") and (rule or a.dtype.kind != "f"): continue  # a rule is given results that its operands have
        other = [*args[:i], LYING[lie](a), *args[i + 1:]]
        agree(quick(name, rule)(*other, **statics), compiled.definition(name, rule)(*other, **statics))


@pytest.mark.parametrize("shared", ["query", "key", "value"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_attention_of_what_an_expanded_dimension_repeats(shared, dim):
    "Its gradients are of the whole shape, in memory of their own."
    given = dict(zip(("query", "key", "value"), torch.randn(3, 2, 4, 9, 8, generator=torch.Generator().manual_seed(0))))
    given[shared] = given[shared].narrow(dim, 0, 1)

    def result():
        leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
        out = torch.nn.functional.scaled_dot_product_attention(*(x.expand(2, 4, 9, 8) for x in leaves.values()))
        (out * torch.arange(out.numel()).view(out.shape).cos()).sum().backward()
        return out.detach().numpy(), *(x.grad.numpy() for x in leaves.values())

    found = result()
    with compiled.plain(): wanted = result()
    agree(found, wanted, 1e-4, 1e-5)


LAYOUTS = {
    "one channel of several": lambda x: x[:, 1:2],
    "turned": lambda x: x.transpose(2, 3),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every second row": lambda x: x[:, :, ::2],
    "without examples": lambda x: x[1, :2],
}


@pytest.mark.parametrize("pool", [torch.nn.functional.max_pool2d, torch.nn.functional.avg_pool2d])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pools_of_images_that_do_not_lie_in_order(layout, pool):
    x = torch.randn(3, 4, 12, 12, generator=torch.Generator().manual_seed(0))

    def result():
        leaf = x.clone().requires_grad_()
        out = pool(LAYOUTS[layout](leaf), 3, 2, 1)
        out.square().sum().backward()
        return out, leaf.grad

    found = result()
    with compiled.plain(): wanted = result()
    for a, b in zip(found, wanted):
        assert a.stride() == b.stride()
        agree(a.detach().numpy(), b.detach().numpy())


SCATTERED = {
    "scatter_add": lambda x, i: x.scatter_add(1, i, x * 2),
    "scatter_add into dim 0": lambda x, i: x.scatter_add(0, i % x.shape[0], x * 2),
    "index_add": lambda x, i: x.index_add(1, i[0], x * 3),
    "index_add of rows": lambda x, i: x.index_add(0, i[:, 0] % x.shape[0], x * 3),
    "gather": lambda x, i: x.gather(1, i) * x,
    "largest": lambda x, i: x.max(1)[0] * x[:, 0] + x.topk(2, 1)[0].sum(1),
    "picked": lambda x, i: x[:, i[0]] * x,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(2, 3), (4, 50), (300, 7)], ids=str)
@pytest.mark.parametrize("kind", SCATTERED)
def test_what_is_added_at_places_has_the_bits_of_array_code(kind, sizes, dtype):
    torch.manual_seed(0)
    x, i = torch.randn(sizes, dtype=dtype), torch.randint(0, sizes[1], sizes)

    def result():
        leaf = x.clone().requires_grad_()
        out = SCATTERED[kind](leaf, i)
        out.square().sum().backward()
        return out.detach().numpy(), leaf.grad.numpy()

    found = result()
    with compiled.plain(): wanted = result()
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted))


SMALL_POOLS = {
    "apart": dict(kernel_size=2),
    "overlapping": dict(kernel_size=3, stride=1, padding=1),
    "to the last number": dict(kernel_size=2, stride=3, ceil_mode=True),
    "over the whole": dict(kernel_size=(4, 5)),
}


@pytest.mark.parametrize("sizes", [(1, 1, 4, 5), (1, 1, 4, 7), (1, 5, 6)], ids=str)
@pytest.mark.parametrize("kind", SMALL_POOLS)
def test_pools_of_few_numbers_have_the_bits_of_array_code(kind, sizes):
    thread_pool.loops()     # few numbers take the loops only where these are there
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0))

    def result():
        leaf = x.clone().requires_grad_()
        out, places = torch.nn.functional.max_pool2d(leaf, **SMALL_POOLS[kind], return_indices=True)
        out.square().sum().backward()
        return out.detach().numpy(), places.numpy(), leaf.grad.numpy()

    found = result()
    with compiled.plain(): wanted = result()
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("count", [1, 32, 33, 5000])
@pytest.mark.parametrize("wrong", [-1, 7])
def test_places_outside_are_found_among_few_and_among_many(count, wrong):
    table, good = torch.zeros(7, 2), torch.arange(count) % 7
    bad = good.clone()
    bad[count // 2] = wrong
    for call in (lambda i: table.index_select(0, i), lambda i: torch.nn.functional.embedding(i, table), lambda i: table.gather(0, i[:, None]), lambda i: table.index_add(0, i, torch.ones(count, 2))):
        call(good)
        with pytest.raises((IndexError, RuntimeError), match="out of"): call(bad)


@pytest.mark.parametrize("options", [dict(), dict(dim=1), dict(dim=-1, keepdim=True), dict(dim=(1,), correction=0), dict(keepdim=True), dict(dim=1, correction=9), dict(dim=0)], ids=str)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_spreads_of_rows(options):
    x = torch.randn(12, 9, generator=torch.Generator().manual_seed(0)) * 3 + 100
    for name in ("var", "std"):
        found = getattr(torch, name)(x, **options)
        with compiled.plain(): wanted = getattr(torch, name)(x, **options)
        assert found.shape == wanted.shape and found.dtype is wanted.dtype
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4)
    assert torch.tensor([[float("nan"), 1.0] * 20, [float("inf"), 1.0] * 20]).var(1).isnan().all()


def test_every_function_beside_a_definition_has_an_example():
    covered = {(name, rule or "kernel") for name, rule, *_ in compiled.examples()}
    assert covered == {(name, key) for name, functions in compiled.FAST_KERNELS.items() for key in functions}


def test_stored_code_is_as_old_as_any_file_that_it_may_come_from():
    from pathlib import Path
    loops = compiled.loops()
    names = {name for name, *_ in loops.SOURCES}
    assert names == {p.name for p in Path(loops.__file__).parent.glob("*.py")}
    assert loops.softmax._cache._cache_file._source_stamp == loops.sources()


@pytest.mark.slow
def test_warm_up_compiles_all():
    assert compiled.warm_up()
    from numba.core.registry import CPUDispatcher
    all_loops = [v for v in vars(compiled.loops()).values() if isinstance(v, CPUDispatcher)]
    loops = [v for v in all_loops if not v.targetoptions.get("inline") and type(v._cache).__name__ != "NullCache"]          # not the parts that only other loops call
    loops = [v for v in loops if v is not compiled.loops().serve or thread_pool.thread_pool.size > 1]          # helpers wait in it, if there are any
    assert len(loops) > 15 and all(v.signatures or compiled.loops().for_threads(v).signatures for v in loops)


@pytest.mark.parametrize("kind, options, first", [("SGD", {}, 1), ("SGD", dict(momentum=.9), 2), ("Adam", {}, 1), ("AdamW", {}, 1)], ids=str)
def test_warm_up_has_the_loops_of_steps(kind, options, first):
    "As soon as the rule has been read (with momentum the first step is another rule) its loop is there."
    compiled.warm_up()
    p = torch.nn.Parameter(torch.zeros(3000))
    optimizer = getattr(torch.optim, kind)([p], **options)
    for _ in range(first):
        p.grad = torch.ones(3000)
        optimizer.step()
    assert all(run.loop.loop.state == "ready" for *_, runs in optimizer._plans.values() for run in runs)


HARD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 88.0, 89.0, -87.0, -88.0, -104.0, 1e30, -1e30, 5.0, -5.0, 12.0, -12.0], np.float32)


def test_hard_numbers():
    x = np.tile(HARD, 300)
    g = np.ones_like(x)
    with np.errstate(all="ignore"):
        agree(quick("gelu")(x), compiled.definition("gelu")(x))
        agree(quick("gelu", "x")(g, x, approximate="none"), compiled.definition("gelu", "x")(g, x, approximate="none"))
        agree(quick("relu", "x")(g, np.maximum(x, 0)), compiled.definition("relu", "x")(g, np.maximum(x, 0)))
        agree(quick("relu", "x")(x, np.maximum(x, 0)), compiled.definition("relu", "x")(x, np.maximum(x, 0)))


ONE_NUMBER = [np.exp, np.expm1, np.exp2, np.log, np.log1p, np.log2, np.log10, np.arctan, np.arcsin, np.arccos, np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh]
EDGES = [0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39, 1e-30, -1e-30, 1.0, -1.0, 1.0000001, 0.99999994, 88.7, 88.8, 89.4, -87.3, -87.4, -90.0, -103.0, -104.0, -150.0, 127.9, 128.0, -126.5, -149.0, -151.0, 8.0, 1000.0, 3e38, -3e38, np.inf, -np.inf, np.nan]


def in_a_loop(ufunc, x):
    "What the loop gives that can stand beside a function of NumPy, whether or not it does on this processor."
    return formulas.Formula(ufunc, 0)(x)


@pytest.mark.parametrize("ufunc", ONE_NUMBER, ids=lambda f: f.__name__)
def test_functions_of_one_number(ufunc):
    draw = np.random.default_rng(0)
    x = np.concatenate([draw.standard_normal(2000), draw.uniform(-100, 100, 2000), np.exp(draw.uniform(-80, 80, 2000)), -np.exp(draw.uniform(-80, 80, 2000)), 1 + 1e-3 * draw.standard_normal(500)]).astype(np.float32)
    with np.errstate(all="ignore"):
        found, exact = in_a_loop(ufunc, x), ufunc(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        there = np.isfinite(rounded)
        assert np.array_equal(np.isnan(found), np.isnan(rounded)) and np.array_equal(np.isinf(found), np.isinf(rounded))
        assert np.max(np.abs(found[there] - exact[there]) / np.spacing(np.abs(rounded[there]))) < 4  # units of the last digit


@pytest.mark.parametrize("ufunc", ONE_NUMBER, ids=lambda f: f.__name__)
def test_edges_of_functions_of_one_number(ufunc):
    x = np.array(EDGES, np.float32)
    with np.errstate(all="ignore"):
        found, exact = in_a_loop(ufunc, x), ufunc(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, exact, rtol=5e-7, atol=3e-45)
    zero = (x == 0) & (exact == exact)
    assert np.array_equal(np.signbit(found[zero]), np.signbit(exact[zero]))


def test_powers_have_exact_logarithms():
    n = np.arange(-37, 39)
    assert np.array_equal(in_a_loop(np.log2, np.ldexp(np.float32(1), n)), n)
    assert np.array_equal(in_a_loop(np.exp2, n.astype(np.float32)), np.ldexp(np.float32(1), n))
    assert np.array_equal(in_a_loop(np.log10, np.float32([1, 10, 100, 1000, 1e4, 1e5, 1e6, 1e7, 1e8])), np.arange(9))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("row", [[1.0, np.nan, 2.0], [np.inf, 1.0, 2.0], [-np.inf, 0.0, 1.0], [-np.inf] * 3, [200.0, 0.0, -200.0], [-1e30, 1e30, 0.0]], ids=str)
def test_hard_rows(name, row):
    x = np.tile(np.array(row, np.float32), (2000, 1))
    with np.errstate(all="ignore"):
        agree(quick(name)(x, dim=1), compiled.definition(name)(x, dim=1))


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize("shape", [(400, 70), (70, 400), (2, 50, 67), (9, 300, 3), (2000, 5), (1, 5000)], ids=str)
def test_extremes_of_hard_numbers(name, shape):
    draw = np.random.default_rng(0)
    x = draw.integers(-4, 5, shape).astype(np.float32)      # many of them equal
    for value, share in ((np.inf, 0.01), (-np.inf, 0.3), (np.nan, 0.003)): x[draw.random(shape) < share] = value
    for dim in range(len(shape)):
        for keepdim in (False, True):
            found, wanted = (f(x, dim=dim, keepdim=keepdim) for f in (quick(name), compiled.definition(name)))
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(1,), (5,), (64,), (10, 10), (4, 300), (300, 4), (3, 5, 7), (2, 1, 3)], ids=str)
def test_few_extremes_and_their_places(shape, monkeypatch):
    """Of few numbers both come from one loop: the first of equal ones, NaN before all others."""
    thread_pool.loops()
    looped = []
    monkeypatch.setattr(rows, "flat", lambda a: looped.append(a) or a.reshape(-1))
    draw = np.random.default_rng(1)
    for hard in (0.0, 0.1, 0.5):
        x = draw.integers(-4, 5, shape).astype(np.float32)
        for value in (np.inf, -np.inf, np.nan, -0.0): x[draw.random(shape) < hard] = value
        for dim, keepdim, largest in itertools.product(range(-1, len(shape)), (False, True), (False, True)):
            how = dict(dim=dim, keepdim=keepdim, largest=largest)
            for found, wanted in zip(quick("extreme")(x, **how), compiled.definition("extreme")(x, **how), strict=True):
                assert found.dtype == wanted.dtype and found.shape == wanted.shape
                np.testing.assert_array_equal(found, wanted)
                assert not found.dtype.kind == "f" or np.array_equal(np.signbit(found), np.signbit(wanted))
    assert looped


@QUICK
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.tuples(st.integers(3, 14), st.integers(3, 40)), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 3)] * 2),
       st.tuples(*[st.integers(0, 4)] * 2), st.tuples(*[st.integers(1, 2)] * 2), st.booleans())
def test_convolutions(n, groups, channels, filters, size, window, stride, padding, dilation, bias):
    compare_convolutions(n, groups, channels, filters, size, window, stride, padding, dilation, bias)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_groups_of_few_channels_and_filters(groups):
    for channels, filters, window, stride, padding in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2), (0, 1)):
        compare_convolutions(2, groups, channels, filters, (5, 6), (window,) * 2, (stride,) * 2, (padding,) * 2, (1, 1), False)


def compare_convolutions(n, groups, channels, filters, size, window, stride, padding, dilation, bias):
    "The three operations on images in groups of so many channels, with so many filters for each, beside their definitions."
    draw = np.random.default_rng(0)
    s = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    if min(convolution.out_sizes(size, window, stride, padding, dilation)) < 1: return
    x, w = draw.standard_normal((n, groups * channels, *size), np.float32), draw.standard_normal((groups * filters, channels, *window), np.float32)
    b = draw.standard_normal(len(w)).astype(np.float32) if bias else None
    expected = convolution.convolution_plain(x, w, b, **s)
    agree(convolution.convolution(x, w, b, **s), expected)
    agree(convolution.conv_weight(expected, x, window=window, **s), convolution.weight_plain(expected, x, window=window, **s), atol=1e-4)
    agree(convolution.conv_transpose(expected, w, None, size=size, **s), convolution.transpose_plain(expected, w, None, size=size, **s))


@QUICK
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 5), st.tuples(*[st.integers(4, 8)] * 3), st.tuples(*[st.integers(1, 3)] * 3), st.tuples(*[st.integers(1, 3)] * 3), st.tuples(*[st.integers(0, 3)] * 3), st.tuples(*[st.integers(1, 2)] * 3), st.booleans())
def test_convolutions_of_volumes(groups, channels, filters, size, window, stride, padding, dilation, bias):
    draw = np.random.default_rng(0)
    s = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    if min(convolution.out_sizes(size, window, stride, padding, dilation)) < 1: return
    x, w = draw.standard_normal((2, groups * channels, *size), np.float32), draw.standard_normal((groups * filters, channels, *window), np.float32)
    b = draw.standard_normal(len(w)).astype(np.float32) if bias else None
    expected = convolution.convolution_plain(x, w, b, **s)
    agree(convolution.convolution(x, w, b, **s), expected)
    agree(convolution.conv_weight(expected, x, window=window, **s), convolution.weight_plain(expected, x, window=window, **s), atol=1e-4)
    agree(convolution.conv_transpose(expected, w, None, size=size, **s), convolution.transpose_plain(expected, w, None, size=size, **s), atol=1e-4)


@QUICK
@given(st.tuples(st.integers(8, 14), st.integers(9, 40)), st.tuples(*[st.integers(2, 4)] * 2), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(0, 1)] * 2), st.booleans(), st.booleans())
def test_pools(size, window, stride, padding, ceil_mode, holes):
    draw = np.random.default_rng(0)
    x = np.round(draw.standard_normal((9, 8, *size), np.float32) * 2)       # with ties
    if holes:
        x[draw.random(x.shape) < .05] = np.nan
        x[draw.random(x.shape) < .3] = -np.inf
    s = dict(window=window, stride=stride, padding=padding, dilation=(1, 1), ceil_mode=ceil_mode)
    out, index = pooling.max_pool(x, **s)
    expected, places = pooling.pool_plain(x, **s)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(index, places)
    g = draw.standard_normal(out.shape, np.float32)
    agree(pooling.scatter_planes(g, index, size=size, unique=False), pooling.scatter_plain(g, index, size=size, unique=False))


@pytest.mark.parametrize("length", [9, 40, 700])
@pytest.mark.parametrize("window, stride, padding, ceil_mode", [(2, 2, 0, False), (3, 1, 1, False), (4, 3, 2, True), (9, 7, 0, True), (1, 1, 0, False), (20, 20, 0, True), (16, 16, 5, True)])
@pytest.mark.parametrize("holes", [False, True])
def test_pools_of_lines(length, window, stride, padding, ceil_mode, holes):
    thread_pool.loops()
    draw = np.random.default_rng(0)
    x = np.round(draw.standard_normal((2, 3, length), np.float32) * 2)       # with ties
    if holes:
        x[draw.random(x.shape) < .05] = np.nan
        x[draw.random(x.shape) < .3] = -np.inf
    s = dict(window=(window,), stride=(stride,), padding=(padding,), dilation=(1,), ceil_mode=ceil_mode)
    (out, index), (wanted, places) = pooling.max_pool(x, **s), pooling.pool_plain(x, **s)
    np.testing.assert_array_equal(out, wanted, strict=True)
    np.testing.assert_array_equal(index, places, strict=True)
    zero = wanted == 0      # of 0 and -0 the first one
    np.testing.assert_array_equal(np.signbit(out[zero]), np.signbit(wanted[zero]))


@pytest.mark.parametrize("options", [{}, dict(weight_decay=.1), dict(weight_decay=.1, betas=(.5, .9), eps=1e-3)], ids=str)
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_adam(kind, options):
    def trained():
        torch.manual_seed(0)
        p = [torch.nn.Parameter(torch.randn(90, 70)), torch.nn.Parameter(torch.randn(70))]
        optimizer = getattr(torch.optim, kind)(p, lr=.01, **options)
        for _ in range(5):
            optimizer.zero_grad()
            (p[0] @ p[1]).sin().sum().backward()
            optimizer.step()
        return [q.detach().numpy().copy() for q in p]

    fast = trained()
    with compiled.plain():
        slow = trained()
    for a, b in zip(fast, slow):
        agree(a, b, rtol=1e-4, atol=1e-5)


RULES = [
    ("SGD", {}), ("SGD", dict(momentum=.9)), ("SGD", dict(momentum=.9, nesterov=True)), ("SGD", dict(momentum=.9, dampening=.5)),
    ("Adam", {}), ("Adam", dict(amsgrad=True)), ("AdamW", {}), ("RMSprop", {}), ("RMSprop", dict(momentum=.9, centered=True)), ("Adagrad", dict(lr_decay=.1)), ("Adadelta", {}),
    ("Adamax", {}), ("NAdam", {}), ("NAdam", dict(decoupled_weight_decay=True)), ("RAdam", {}), ("ASGD", dict(t0=3)), ("Rprop", {}),
]


@pytest.mark.parametrize("kind, options", RULES, ids=str)
def test_loops_read_from_rules_round_as_array_code(kind, options):
    "Whatever options change on the way, and when state is loaded."
    def steps(number, p, optimizer, change):
        for _ in range(number):
            for q in p: q.grad = torch.randn_like(q)
            optimizer.step()
            compiler.workshop.wait(120)
        for group in optimizer.param_groups:
            for name, value in change.items():
                if name in group: group[name] = value

    def trained():
        torch.manual_seed(0)
        p = [torch.nn.Parameter(torch.randn(s)) for s in ((90, 70), (5,), (), (300, 100), (64,))]
        make = lambda: getattr(torch.optim, kind)([dict(params=p[:2]), dict(params=p[2:], lr=.02)], lr=.01, **options)
        first = make()
        steps(4, p, first, dict(weight_decay=.1, lr=.03))
        steps(4, p, first, dict(maximize=True))
        steps(3, p, first, dict(maximize=False, weight_decay=.2))
        used.extend(r.loop and r.loop.ready for *_, runs in first._plans.values() for r in runs if r.size > 1000)
        second = make()
        second.load_state_dict(first.state_dict())
        steps(3, p, second, {})
        state = [np.asarray(v) for held in second.state.values() for v in held.values() if v is not None]
        return [q.detach().numpy().copy() for q in p] + state

    used = []
    fast = trained()
    assert len(used) == 2 and all(used), "no loop was used"
    with compiled.plain():
        slow = trained()
    for a, b in zip(fast, slow, strict=True): np.testing.assert_array_equal(a, b)


def test_a_rule_of_ones_own_becomes_a_loop():
    class Signed(torch.optim.optimizer.Elementwise):
        def __init__(self, params, lr=.1, cautious=False): super().__init__(params, dict(lr=lr, cautious=cautious))

        def remembered(self, group): return ("mean",)

        def numbers(self, group, step): return group["lr"], 1 / step

        def update(self, group, n, p, g, states, t, u, fresh):
            lr, new = n[:2]
            np.add(states[0], np.multiply(np.subtract(g, states[0], t), new, t), states[0])
            np.subtract(p, np.multiply(states[0], lr, t), p)

    p = torch.nn.Parameter(torch.zeros(3000))
    optimizer, total = Signed([p]), 0
    for k in range(5):
        p.grad = torch.full((3000,), float(k))
        optimizer.step()
        compiler.workshop.wait(120)
        total -= .1 * np.mean(range(k + 1))
    np.testing.assert_allclose(p.detach().numpy(), total, rtol=1e-5)
    assert all(r.loop.ready for *_, runs in optimizer._plans.values() for r in runs)


def test_a_rule_that_looks_at_the_value_of_an_option_sees_schedules():
    "A loop would keep the value that it was read with."
    class Plain(torch.optim.optimizer.Elementwise):
        def __init__(self, params, lr): super().__init__(params, dict(lr=lr))

        def numbers(self, group, step): return step,

        def update(self, group, n, p, g, states, t, u, fresh): np.subtract(p, np.multiply(g, group["lr"], t), p)

    p = torch.nn.Parameter(torch.zeros(3000))
    optimizer = Plain([p], 1.)
    p.grad = torch.ones(3000)
    for k in range(6):
        optimizer.param_groups[0]["lr"] = float(k)
        optimizer.step()
        compiler.workshop.wait(120)
    assert p[0].item() == -15


@pytest.mark.parametrize("options", [{}, dict(momentum=.9), dict(momentum=.9, nesterov=True), dict(momentum=.5, dampening=.3), None], ids=str)
@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD"])
def test_optimisers_find_arrays_where_they_lie(kind, options):
    "However parameters and gradients lie in memory, of whatever size and precision, and with several threads."
    if kind != "SGD" and options: return
    def trained():
        torch.manual_seed(0)
        turned, cut = torch.randn(70, 90).t(), torch.randn(60, 30)[:, :20]
        p = [torch.nn.Parameter(torch.randn(s)) for s in ((90, 70), (5,), (), (300, 100), (0, 3), (700, 500), (64,))]
        p += [turned.requires_grad_(), cut.requires_grad_(), torch.nn.Parameter(torch.randn(40, dtype=torch.float64)), torch.nn.Parameter(torch.randn(40, dtype=torch.complex64))]
        optimizer = getattr(torch.optim, kind)(p, lr=.01, **dict(weight_decay=.1) if options is None else options)
        views = [q.detach() for q in p]
        for i in range(4):
            for k, q in enumerate(p):
                q.grad = torch.randn_like(q) * (k + 1)
                if q.ndim == 2 and i % 2: q.grad = torch.randn(*q.shape[::-1]).t()
                if k == 1 and i > 1: q.grad = None
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(p, views))
        return [q.detach().numpy().copy() for q in p]

    fast = trained()
    with compiled.plain():
        slow = trained()
    for a, b in zip(fast, slow):
        agree(a, b, rtol=1e-4, atol=1e-5)


def model_step():
    torch.manual_seed(0)
    F = torch.nn.functional
    conv, norm, out = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.LayerNorm(14), torch.nn.Linear(8 * 14 * 14, 10)
    x, y = torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
    h = F.gelu(norm(F.max_pool2d(F.relu(conv(x)), 2)))
    loss = F.cross_entropy(out(h.flatten(1)), y)
    loss.backward()
    return [loss.detach().numpy(), *(p.grad.numpy() for m in (conv, norm, out) for p in m.parameters())]


def test_whole_step_and_switch():
    fast = model_step()
    with compiled.plain():
        slow = model_step()
    for a, b in zip(fast, slow):
        agree(a, b, rtol=1e-3, atol=1e-4)


def test_higher_order_and_transforms_use_the_rules():
    x = torch.randn(70, 70, requires_grad=True)
    first, = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x, create_graph=True)
    second, = torch.autograd.grad(first.sum(), x)
    h = 1e-2
    with torch.no_grad():
        slope = lambda v: torch.func.grad(lambda t: torch.nn.functional.gelu(t).sum())(v)
        numeric = (slope(x + h) - slope(x - h)) / (2 * h)
    assert (second - numeric).abs().max() < 1e-3


def test_threads_share_and_agree(monkeypatch):
    "Several threads at once: each is right, whether it was helped or not."
    monkeypatch.setattr(compiled.thread_pool, "size", 3)
    x = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    expected, wrong = compiled.definition("softmax")(x, dim=1), []

    def work():
        for _ in range(10):
            if not np.allclose(rows.softmax(x, dim=1), expected, rtol=1e-4, atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def laid(a, how):
    "The same matrix, otherwise in memory."
    if how == "turned":
        return np.asfortranarray(a)
    if how == "part":
        wide = np.zeros((a.shape[0] + 3, a.shape[1] + 5), np.float32)
        wide[1:-2, 2:-3] = a
        return wide[1:-2, 2:-3]
    return a


@pytest.mark.skipif(not products.GEMM, reason="another matrix library")
@pytest.mark.parametrize("size", [2, 3, 40])
@pytest.mark.parametrize("m, k, n", [(40, 7, 33), (33, 64, 100), (200, 50, 17), (1, 5, 64)])
def test_shared_products(monkeypatch, m, k, n, size):
    "Each product several times, so that helpers are asleep at first and awake later."
    monkeypatch.setattr(compiled.thread_pool, "size", size)
    draw = np.random.default_rng(0)
    x, y, bias = (draw.standard_normal(s, np.float32) for s in ((m, k), (k, n), n))
    expected, shared = x.astype("f8") @ y, 0
    for a in ("", "turned", "part"):
        for b in ("", "turned", "part"):
            for z in (None, bias):
                for _ in range(3):
                    out = laid(np.full((m, n), np.nan, np.float32), "part")
                    if products.shared(laid(x, a), laid(y, b), out, z):
                        shared += 1
                        np.testing.assert_allclose(out, expected if z is None else expected + z, rtol=1e-4, atol=1e-4)
    assert shared == 54


@pytest.mark.skipif(not products.GEMM, reason="another matrix library")
@pytest.mark.parametrize("size", [1, 3])
def test_shared_stacks(monkeypatch, size):
    monkeypatch.setattr(compiled.thread_pool, "size", size)
    draw = np.random.default_rng(0)
    x, y, wide = draw.standard_normal((7, 30, 40), np.float32), draw.standard_normal((7, 40, 20), np.float32), draw.standard_normal((7, 80, 40), np.float32)
    out = np.empty((7, 30, 20), np.float32)
    for a, b in ((x, y), (x, y[::-1]), (wide[:, ::2][:, :30], y), (x, np.ascontiguousarray(y.swapaxes(1, 2)).swapaxes(1, 2)), (np.broadcast_to(x[0], x.shape), y)):
        assert products.shared_stack(a, b, out)
        np.testing.assert_allclose(out, np.matmul(a, b), rtol=1e-4, atol=1e-4)
    assert not products.shared_stack(x[:, :, ::2], y[:, ::2, ::3], np.empty((7, 30, 7), np.float32)) and not products.shared_stack(x.astype("f8"), y.astype("f8"), out)


@pytest.mark.skipif(not products.GEMM, reason="another matrix library")
def test_products_of_several_threads(monkeypatch):
    monkeypatch.setattr(compiled.thread_pool, "size", 3)
    monkeypatch.setattr(products, "LIBRARY", (lambda: 2, lambda n: None, products.GEMM))
    draw, wrong = np.random.default_rng(0), []
    pairs = [(draw.standard_normal((a, b), np.float32), draw.standard_normal((b, c), np.float32)) for a, b, c in ((200, 100, 300), (64, 64, 64), (70, 300, 90), (100, 200, 300))]
    pairs.append((draw.standard_normal((5, 90, 80), np.float32), draw.standard_normal((5, 80, 70), np.float32)))

    def work(x, y):
        for _ in range(20):
            if not np.allclose(products.matmul(x, y), x @ y, atol=1e-3):
                wrong.append(x.shape)

    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_products_that_are_not_shared(monkeypatch):
    monkeypatch.setattr(products, "LIBRARY", (lambda: 2, lambda n: None, products.LIBRARY and products.LIBRARY[2]))
    draw = np.random.default_rng(0)
    x, y, z = draw.standard_normal((3, 120, 120), np.float32)
    for a, b in ((x, y), (x.astype("f8"), y), (x.astype(int), y.astype(int)), (x[::2, ::3], y[::3]), (x, y[0]), (x[None], y[None])):
        np.testing.assert_allclose(products.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    expected = x @ y
    assert products.matmul(x, y, z) is z and np.allclose(z, expected, atol=1e-4)
    assert np.allclose(products.matmul(x, y, x), expected, atol=1e-4)  # over one of its own factors
    with pytest.raises(ValueError):
        products.matmul(x, y[:100])


def test_a_loop_that_fails_in_a_helper(monkeypatch):
    "Compiled loops may run out of memory."
    import numba

    @numba.njit(nogil=True)
    def loop(lo, hi, first, out):
        if lo >= first:
            raise MemoryError
        out[lo:hi] = 1

    monkeypatch.setattr(compiled.thread_pool, "size", 3)
    out = np.zeros(9)
    for first in (0, 1, 6):
        for _ in range(3):
            with pytest.raises(MemoryError, match="no memory for loop"):
                compiled.thread_pool.run(loop, 9, thread_pool.SHARED, first, out)
    compiled.thread_pool.run(loop, 9, thread_pool.SHARED, 9, out)
    assert out.all()


def test_errors_of_helpers_arrive(monkeypatch):
    monkeypatch.setattr(compiled.thread_pool, "size", 2)

    def loop(lo, hi):
        if lo:
            raise ValueError("from a helper")

    with pytest.raises(ValueError, match="from a helper"):
        compiled.thread_pool.run(loop, 10, thread_pool.WAKING)
    compiled.thread_pool.run(lambda lo, hi: None, 10, thread_pool.WAKING)


def test_nothing_is_imported_before_it_is_needed():
    code = "import sys, autograd_nb as t; x = t.randn(4, 7); t.nn.functional.gelu(x); assert 'numba' not in sys.modules; t.nn.functional.gelu(t.randn(100, 100)); assert 'numba' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_switched_off_by_the_environment():
    code = "import sys, autograd_nb as t; t.nn.functional.gelu(t.randn(100, 100)); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600, env=dict(os.environ, AUTOGRAD_NB_NUMBA="0"))


@pytest.mark.parametrize("n", [1, 16, 17, 4096, 70003])
def test_random_numbers_to_the_bit(n):
    "Loops and definitions draw the same numbers, whole and in parts of several threads."
    compiled.warm_up()

    def draws():
        torch.manual_seed(n)
        return torch.randn(n), torch.empty(n).normal_(0.3, 0.02), torch.randperm(n), torch.randn(n, dtype=torch.float16)

    found = draws()
    with compiled.plain():
        expected = draws()
    for x, y in zip(found, expected):
        assert x.dtype == y.dtype and np.array_equal(x.numpy(), y.numpy())


@pytest.mark.parametrize("frames, examples, letters", [(1, 2, 3), (6, 3, 1), (40, 3, 12), (60, 17, 9)])
def test_sequences_without_alignment(frames, examples, letters):
    draw = np.random.default_rng(0)
    x = 2 * draw.standard_normal((frames, examples, 7)).astype(np.float32)
    targets, long, count = draw.integers(1, 7, (examples, letters)), draw.integers(max(1, frames - 4), frames + 1, examples), draw.integers(1, letters + 1, examples)

    def trained():
        said = torch.tensor(x, requires_grad=True)
        loss = torch.nn.functional.ctc_loss(said.log_softmax(2), *map(torch.tensor, (targets, long, count)), reduction="none", zero_infinity=True)
        loss.sum().backward()
        return loss.detach().numpy(), said.grad.numpy()

    fast = trained()
    with compiled.plain():
        slow = trained()
    for a, b in zip(fast, slow):
        agree(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grids(padding_mode, align_corners):
    draw = np.random.default_rng(0)
    image, grid = draw.standard_normal((2, 3, 5, 7), np.float32), 2 * draw.standard_normal((2, 8, 9, 2)).astype(np.float32)
    grid[0, 0, :3] = [[-1, 1], [1, -1], [3e9, -np.inf if padding_mode == "border" else 1e9]]

    def seen(needs):
        x, g = (torch.tensor(a, requires_grad=n) for a, n in zip((image, grid), needs))
        out = torch.nn.functional.grid_sample(x, g, padding_mode=padding_mode, align_corners=align_corners)
        out.backward(torch.tensor(draw2.standard_normal(out.shape, np.float32)))
        return [out.detach().numpy(), *(v.grad.numpy() for v in (x, g) if v.requires_grad)]

    for needs in ((True, True), (True, False), (False, True)):
        draw2 = np.random.default_rng(1)
        fast = seen(needs)
        draw2 = np.random.default_rng(1)
        with compiled.plain():
            slow = seen(needs)
        for a, b in zip(fast, slow):
            keep = np.isfinite(b)
            agree(a[keep], b[keep], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("laid", ["images expanded", "images turned", "places turned", "gradients expanded"])
def test_grids_over_what_is_not_in_one_piece(laid, monkeypatch):
    draw = np.random.default_rng(0)
    image, grid = draw.standard_normal((4, 3, 9, 12), np.float32), draw.standard_normal((4, 10, 11, 2), np.float32)

    def seen():
        x, g = torch.tensor(image, requires_grad=True), torch.tensor(grid, requires_grad=True)
        if laid == "images expanded": a, b = x[:1].expand(4, 3, 9, 12), g
        elif laid == "images turned": a, b = x.permute(0, 1, 3, 2), g
        elif laid == "places turned": a, b = x, g.permute(0, 2, 1, 3)
        else: a, b = x, g
        out = torch.nn.functional.grid_sample(a, b, align_corners=False)
        (out.sum() if laid == "gradients expanded" else out.pow(2).sum()).backward()
        return [v.detach().numpy() for v in (out, x.grad, g.grad)]

    with compiled.plain():
        slow = seen()
    for name in ("grid_plain", "grid_rules", "grid_image_rule", "grid_place_rule"):
        monkeypatch.delattr(pooling, name)
    for a, b in zip(seen(), slow): agree(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin", "gelu", "silu", "relu", "sigmoid", "batch_norm", "group_norm", "max_pool2d", "avg_pool2d"])
def test_results_lie_in_memory_as_those_of_definitions(name):
    "Images of whichever order: `view` and `stride` must not depend on whether loops are there."
    more = dict.fromkeys(("softmax", "log_softmax", "softmin"), (1,)) | {"batch_norm": (torch.zeros(8), torch.ones(8)), "group_norm": (4,)} | dict.fromkeys(("max_pool2d", "avg_pool2d"), (2,))

    def strides(order):
        x = torch.ones(2, 8, 16, 16).permute(order).contiguous().permute(np.argsort(order).tolist())
        return getattr(torch.nn.functional, name)(x, *more.get(name, ())).stride()

    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (0, 1, 3, 2), (3, 2, 1, 0)):
        found = strides(order)
        with compiled.plain():
            assert found == strides(order), order


BURNS = """
import sys, time
import autograd_nb as torch
nn, F = torch.nn, torch.nn.functional
large, numbers, x = torch.randn(288, 4000), torch.randn(1_000_000), torch.randn(12, 24, 96)
weight = torch.ones(1000, 1000).requires_grad_()
weight.grad = torch.ones(1000, 1000)
layers = [kind(96, 96, batch_first=True) for kind in (nn.RNN, nn.LSTM, nn.GRU)]
CALLS = {
    "recurrent layers": lambda: [layer(x)[0].sum().backward() for layer in layers],
    "a matrix and a vector": lambda: large @ large[0],
    "sums": lambda: (large.sum(), large.mean(), large.sum(0), large.sum(1), numbers.norm()),
    "products": lambda: (large @ large.T, F.linear(large, large), numbers @ numbers),
    "norms": lambda: F.layer_norm(large.clone().requires_grad_(), (4000,)).sum().backward(),
    "clipping": lambda: nn.utils.clip_grad_norm_([weight], 1.0),
    "losses": lambda: F.mse_loss(large.clone().requires_grad_(), large).backward(),
}
for name, call in CALLS.items():
    for _ in range(3): call()
    time.sleep(0.02)    # the helpers of the thread pool go to sleep
    began = time.process_time()
    time.sleep(0.15)
    print(name, round(1000 * (time.process_time() - began), 1), sep=":")
"""


@pytest.mark.skipif(products.LIBRARY is None or thread_pool.cores() < 2, reason="needs OpenBLAS and two cores")
def test_no_thread_of_the_matrix_library_waits_on_a_core_that_helpers_need():
    two = dict(os.environ, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    ran = subprocess.run([sys.executable, "-c", BURNS], env=two, capture_output=True, text=True, check=True)
    burnt = dict(line.split(":") for line in ran.stdout.splitlines())
    assert len(burnt) == 7 and {name: ms for name, ms in burnt.items() if float(ms) > 5} == {}, "milliseconds of processor time after a call"


# What gives the bits of array code -----------------------------------------------------------------------------


HARD = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, -65520, 2.0**-14, 2.0**-14 * 0.9999, 2.0**-24, 2.0**-25, 1e-45, 1 / 3, 1.00390625, 3e38]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conversions_to_and_from_sixteen_bits(dtype):
    dtype = getattr(torch, dtype)
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array(HARD * 20, np.float32), np.random.default_rng(1).standard_normal(9999, np.float32)])
    short = torch.from_numpy(x).to(dtype)
    with np.errstate(all="ignore"):
        expected = x.astype(short._array.dtype)
    known = x == x
    np.testing.assert_array_equal(short._array.view(np.uint16)[known], expected.view(np.uint16)[known])
    assert np.isnan(short.float().numpy()[~known]).all()
    every = np.arange(1 << 16, dtype=np.uint16).view(short._array.dtype)
    np.testing.assert_array_equal(torch.tensor(every.astype(np.float32)).to(dtype).float().numpy(), every.astype(np.float32))


SHORT = """x + y
x * y
x / y
x - 2.3
x * 2.3
-x
x.abs()
x.square()
(x.abs() + 1).reciprocal()
(x.abs() + 1).rsqrt()
x.relu()
x.clamp(-0.5, 1)
F.gelu(x)
F.silu(x)
F.leaky_relu(x)
F.hardtanh(x)
torch.addcmul(x, x, y)
x.to(torch.float64)
x.to(torch.int32)
x.float()
x + y.sum()
x.tanh()
x.T * y.T
(x * 2).expand(2, *x.shape) + x"""


def in_short(lib, line, dtype, n):
    rng = np.random.default_rng(0)
    given = [lib.tensor(rng.standard_normal((n, 11)).astype(np.float32)).to(getattr(lib, dtype)).requires_grad_() for _ in range(2)]
    out = eval(line, dict(x=given[0], y=given[1], torch=lib, F=lib.nn.functional))
    if out.requires_grad:
        out.backward(lib.tensor(rng.standard_normal(tuple(out.shape)).astype(np.float32)).to(out.dtype))
    return [np.array(v.detach().double().tolist()) for v in (out, *(t.grad for t in given)) if v is not None]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("line", SHORT.split("\n"))
def test_loops_over_sixteen_bits_give_what_float32_gives(line, dtype):
    "The bits of computing in float32 and rounding, whether a loop is there or not."
    loops = sixteen_bits.ShortFormula
    for n in (30, 500):
        found = in_short(torch, line, dtype, n)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loops, "__call__", lambda *arrays, **statics: None)
            steps = in_short(torch, line, dtype, n)
        for a, b in zip(found, steps, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "mul", "neg", "relu", "gelu", "addcmul", "leaky_relu"])
def test_arithmetic_on_sixteen_bits_is_one_loop(name, dtype):
    op = formulas.REGISTRY[name]
    loop, x = sixteen_bits.ShortFormula(op.definition, 96), np.linspace(-3, 3, 5000, dtype=np.float32)
    x = sixteen_bits.converted(x, getattr(torch, dtype).numpy)
    given = [x] * len(op.params)
    assert loop(*given, **op.statics).dtype == x.dtype and [key[0] for key in loop.made] == [x.dtype.char]
    assert loop(*[a[:9] for a in given], **op.statics) is None
    assert loop(*[a.reshape(2, -1).T for a in given], **op.statics) is None


def test_functions_on_sixteen_bits_stay_steps():
    loop = sixteen_bits.ShortFormula(formulas.REGISTRY["exp"].definition)
    assert loop(np.ones(5000, np.float16)) is None and not any(made for made, *_ in loop.made.values()) and loop.least == np.inf


@pytest.mark.parametrize("how", ["computed", "hardware"])
def test_ways_to_convert_float16(how):
    import numba

    def each(convert):
        @numba.njit
        def loop(x, out):
            for i in range(x.size):
                out[i] = convert(x[i])

        return loop

    loops = sixteen_bits.loops()
    if how == "hardware" and not loops.in_hardware():
        pytest.skip("the processor has no such instruction")
    bits, value = getattr(loops, f"{how}_bits"), getattr(loops, f"{how}_value")
    to, back = each(bits), each(value)
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = np.empty(every.size, np.float32)
    back(every, wide)
    np.testing.assert_array_equal(wide, every.view(np.float16).astype(np.float32))
    x = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    short = np.empty(x.size, np.uint16)
    to(x, short)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(short.view(np.float16), x.astype(np.float16))


DOUBLE = ["softshrink", "hardshrink", "leaky_relu", "hardswish", "hardsigmoid", "threshold", "relu", "rsqrt", "clamp", "hardtanh", "sign", "lerp", "addcmul", "addcdiv"]


@pytest.mark.parametrize("name", DOUBLE)
def test_arithmetic_in_double_precision_is_one_loop(name):
    op, options = formulas.REGISTRY[name], (formulas.OPTIONS.get(name) or [{}])[0]
    x, y, z = np.random.default_rng(0).standard_normal((3, 20_000))
    given = [abs(x) if name == "rsqrt" else x, y, z + 9][: max(1, len(op.params))]
    statics, kernel = {**op.statics, **options}, formulas.Formula(op.definition, 1)
    np.testing.assert_array_equal(kernel(*given, **statics), op.definition(*given, **statics))
    assert [key[0] for key in kernel.made] == ["d"]
    np.testing.assert_array_equal(op.kernel(*given, **statics), op.definition(*given, **statics))


@pytest.mark.parametrize("name", ["gelu", "softplus"])
def test_functions_in_double_precision_stay_array_code(name):
    op, x = formulas.REGISTRY[name], np.random.default_rng(0).standard_normal(2000)
    kernel = formulas.Formula(op.definition, 1)
    np.testing.assert_array_equal(kernel(x, **op.statics), op.definition(x, **op.statics))
    assert not any(loop for loop, *_ in kernel.made.values())


WIDE = {  # long doubles
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x))),
    "logsigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-abs(x))),
    "mish": lambda x: x * np.tanh(WIDE["softplus"](x)),
    "erf": lambda x: np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape),
}


@pytest.mark.parametrize("name", WIDE)
def test_functions_in_double_precision_take_vectors_or_a_loop(name, monkeypatch):
    op = formulas.REGISTRY[name]
    x = np.concatenate([4 * np.random.default_rng(0).standard_normal(5000), [np.nan, np.inf, 0.0, -0.0, -700.0, 800.0, 1e-300, 36.5]])
    for some in (x[:7], x[-30:], x, x[:5000].reshape(50, 100)[:, ::2]):
        if some.size > 1000:  # which NumPy takes number by number
            monkeypatch.setattr(numpy_backend.xp, "logaddexp", None, raising=False)
        found, expected = op.kernel(some, **op.statics), WIDE[name](some.astype(np.longdouble))
        np.testing.assert_allclose(found, expected.astype(np.float64), rtol=1e-15, atol=0)
    if name == "erf":
        np.testing.assert_array_equal(op.kernel(x), WIDE[name](x))


@pytest.mark.parametrize("order", [1, 2, 3, 7, 30])
def test_derivatives_of_digamma_take_as_many_terms_as_they_need(order):
    x = np.random.default_rng(0).uniform(0.01, 30, 5000)
    polygamma, digamma = (formulas.REGISTRY[name].kernel for name in ("polygamma", "digamma"))
    np.testing.assert_allclose(polygamma(x, order=order), compiled.definition("polygamma")(x, order=order), rtol=1e-13)
    if order > 7:
        return
    pairs = [[timeit.timeit(call, number=1) for call in (lambda: digamma(x), lambda: polygamma(x, order=order))] for _ in range(60)]
    times = [min(column) for column in zip(*pairs, strict=True)]  # taken in turns, as other programs run too
    assert times[1] < 5 * times[0]


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
@pytest.mark.parametrize("divisor", [1.5, -0.1, 1e-30, 0.0, np.inf, None], ids=str)
def test_remainders_have_the_bits_of_array_code(name, divisor):
    draw = np.random.default_rng(0)
    x, y = [(np.exp(6 * draw.standard_normal(6000)) * draw.choice([-1, 1], 6000)).astype(np.float32) for _ in "xy"]
    x[:17], y[17:34], x[100:200] = HARD, HARD, 3 * y[100:200]
    if divisor is not None:
        y = np.array(divisor, np.float32)
    with np.errstate(all="ignore"):
        found, expected = quick(name)(x, y), compiled.definition(name)(x, y)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


def test_running_totals_in_double_precision(monkeypatch):
    asked, draw = [], np.random.default_rng(0)
    run = thread_pool.thread_pool.run
    monkeypatch.setattr(rows.thread_pool, "run", lambda loop, *more: asked.append(loop.__name__) or run(loop, *more))
    for shape, dim in (((90, 50), 0), ((90, 50), 1), ((4500,), 0), ((3, 30, 50), 1)):
        x, g = draw.standard_normal((2, *shape))
        for name in ("cumsum", "cumprod"):
            out = compiled.definition(name)(x, dim=dim)
            np.testing.assert_array_equal(quick(name)(x, dim=dim), out)
            given = (x, out) if name == "cumprod" else ()
            np.testing.assert_allclose(REGISTRY[name].rules[0].fast_rule(g, *given, dim=dim), REGISTRY[name].rules[0].function(g, *given, dim=dim), rtol=1e-9, atol=1e-12)
    assert len(asked) >= 16


@pytest.mark.parametrize("shape", [(50, 90), (5, 60, 20), (4500, 1)], ids=str)
@pytest.mark.parametrize("name, statics", [("cumsum", {}), ("cumprod", {}), ("running_place", dict(better="max")), ("running_place", dict(better="min"))], ids=str)
def test_running_totals_have_the_bits_of_array_code(name, statics, shape):
    x = np.random.default_rng(0).choice([-1.5, -0.0, 0.0, 1.0, 1.25, np.nan, np.inf], shape, p=[.3, .1, .1, .2, .28, .01, .01]).astype(np.float32)
    for dim in range(len(shape)):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(quick(name)(x, dim=dim, **statics), compiled.definition(name)(x, dim=dim, **statics))


def test_bounds_that_change_at_each_step_are_forgotten():
    x, kernel = np.linspace(-1, 1, 5000, dtype=np.float32), formulas.Formula(compiled.definition("at_least"), 1)
    for k in range(formulas.HELD + 5):
        np.testing.assert_array_equal(kernel(x, limit=k / 1000), np.maximum(x, np.float32(k / 1000)))
    assert len(kernel.asked) <= formulas.HELD


@pytest.mark.parametrize("shape", [(90, 70), (70, 90), (3, 40, 50), (5000, 2)], ids=str)
@pytest.mark.parametrize("diagonal", [0, 1, -3, 80, -200])
def test_triangles_of_large_matrices(shape, diagonal):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    for name in ("triu", "tril"):
        np.testing.assert_array_equal(quick(name)(x, diagonal=diagonal), getattr(np, name)(x, diagonal))


WITH_SHORT_ROWS = {
    "one row": [(3001, 3), (3,)],
    "one row first": [(5,), (700, 5)],
    "points beside points": [(60, 1, 2), (1, 70, 2)],
    "in stacks": [(7, 30, 1, 3), (7, 1, 40, 3)],
    "one row in a stack": [(1, 1, 3), (4, 300, 3)],
    "a column": [(3000, 4), (3000, 1)],
    "out of order": [(3, 3000), (3,)],
}


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "atan2", "remainder"])
@pytest.mark.parametrize("kind", WITH_SHORT_ROWS)
def test_short_rows_that_repeat(kind, name):
    a, b = (np.random.default_rng(k).standard_normal(shape).astype("f") for k, shape in enumerate(WITH_SHORT_ROWS[kind]))
    if kind == "out of order": a = a.T
    expected = REGISTRY[name].definition(a, b)
    for dtype in (np.float32, np.float64):
        x, y = (torch.tensor(v.astype(dtype), requires_grad=True) for v in (a, b))
        for out in (getattr(torch, name)(x, y), getattr(torch, name)(x.detach(), y.detach())):
            assert out.shape == expected.shape and out.detach().numpy().dtype == dtype
            np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
def test_remainders_of_far_numbers_among_near_ones(name):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(6000).astype("f")
    for k, rare in enumerate([1e30, -1e30, np.nan, np.inf, -np.inf, 0.0, -0.0]): x[700 * k + 3] = rare
    far = x * np.float32(10) ** rng.integers(-30, 30, x.size).astype("f")
    for v in (x, far):
        for y in (1.5, -0.7, np.inf, 1e-20, 0.0, np.nan, far[::-1].copy()):
            with np.errstate(all="ignore"): expected = REGISTRY[name].definition(v, np.asarray(y, "f"))
            np.testing.assert_array_equal(getattr(torch, name)(torch.tensor(v), torch.tensor(y) if isinstance(y, np.ndarray) else y).numpy(), expected)


ALONG = [((300, 20), 1), ((300, 20), 0), ((6, 50, 7), 1), ((6, 50, 7), 0), ((2000,), 0)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("shape,dim", ALONG)
def test_at_an_index_along_a_dimension(shape, dim, dtype):
    rng, sizes = np.random.default_rng(0), list(shape)
    sizes[dim] = sizes[dim] // 2 + 300
    x, src = ((10 * rng.standard_normal(s)).astype(dtype) for s in (shape, sizes))
    if dtype != "i8": src[(0,) * len(shape)] = np.nan
    x, src, index = torch.tensor(x), torch.tensor(src), torch.tensor(rng.integers(0, shape[dim], sizes))
    calls = [lambda: x.gather(dim, index), lambda: x.scatter_add(dim, index, src)]
    for how in ("amax", "amin", "sum", "prod"):
        for own in (True, False): calls.append(lambda how=how, own=own: x.scatter_reduce(dim, index, src, how, include_self=own))
    for call in calls:
        with compiled.plain(): expected = call().numpy()
        np.testing.assert_array_equal(call().numpy(), expected)
    for call in (lambda bad: x.gather(dim, bad), lambda bad: x.scatter_add(dim, bad, src)):
        for wrong in (-1, shape[dim]):
            bad = index.clone()
            bad.view(-1)[-1] = wrong
            with pytest.raises(RuntimeError, match="out of bounds"): call(bad)


LOOKING_AHEAD = {
    "poisson": lambda p, g: torch.poisson(p, generator=g),
    "gamma": lambda p, g: torch.tensor(random.gamma(p.double().numpy(), g)),
    "binomial": lambda p, g: torch.binomial(torch.full_like(p, 20.0), p / 10, generator=g),
}


@pytest.mark.parametrize("draw", LOOKING_AHEAD.values(), ids=LOOKING_AHEAD)
def test_draws_that_look_ahead_go_back_in_memory(draw, monkeypatch):
    "They give the numbers that they gave, and neither read nor write the whole state as a dictionary."
    rates = torch.linspace(0.1, 9.0, 200)
    g = torch.Generator().manual_seed(3)
    found = [draw(rates, g).tolist(), torch.rand(3, generator=g).tolist()]
    g.manual_seed(3)

    class Watched:
        def __getattr__(self, name):
            assert name != "state"
            return getattr(bits, name)

        def __setattr__(self, name, value): raise AssertionError(name)

    if g.memory() is False: pytest.skip("the state is not found in memory")
    bits = g._bits
    monkeypatch.setattr(g, "_bits", Watched())
    assert [draw(rates, g).tolist(), torch.rand(3, generator=g).tolist()] == found
