"""Formulas are read off definitions, and the loops made from them give what array code gives."""

import os
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from strict_arrays import COMPILER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograd_nb.graph.op import REGISTRY
from autograd_nb.ops import compiled
from autograd_nb.ops.kernels import compiler
from autograd_nb.ops.kernels.expressions import ALPHABET, MASK, Expression, Opaque, RowSymbol, Symbol, trace

F4, F8 = np.dtype("f4"), np.dtype("f8")
HARD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 88.0, 89.0, -88.0, -104.0, 1e30, -1e30, 0.5, -0.5, 1.0, -1.0, 3.0], np.float32)
EXACT = [f for f, letter in ALPHABET.items() if letter.exact and isinstance(f, np.ufunc) and f not in (np.bitwise_and, np.bitwise_or, np.invert)]
HEAVY = [np.exp, np.expm1, np.log, np.log1p, np.tanh, np.logaddexp, REGISTRY["erf"].definition]
needs_numba = pytest.mark.skipif(not compiled.AVAILABLE, reason="numba is not installed")


def numbers(n, seed, dtype=F4):
    x = np.random.default_rng(seed).standard_normal(n).astype(dtype) * 3
    x[: min(n, HARD.size)] = np.random.default_rng(seed + 1).permutation(HARD)[:n]
    return x


def computed(expression, arrays, wait):
    outs = [np.empty(max(a.size for a in arrays), expression.dtype_of(o)) for o in expression.outputs]
    kernel = compiler.kernel_of(expression)
    with np.errstate(all="ignore"):
        kernel(arrays, outs, kernel.values(expression.constants), wait)
    if wait and kernel.can:
        assert any(loop.ready is not None for loop in kernel.loops.values()), "the loop was not compiled"
    return outs


def written_out(expression, arrays):
    "What NumPy gives, line by line on whole arrays."
    values, dtype = list(arrays), next(d for d in expression.inputs if d != MASK)
    n = max(a.size for a in arrays)
    with np.errstate(all="ignore"):
        for f, operands, _ in expression.lines:
            values.append(f(*[values[o] if o >= 0 else dtype.type(expression.constants[~o]) for o in operands]))
    return [np.broadcast_to(values[o], n) for o in expression.outputs]


@st.composite
def formulas(draw, functions):
    "A function of arrays, made of random lines."
    count = draw(st.integers(1, 3))
    steps = draw(st.lists(st.tuples(st.sampled_from(functions), *[st.integers(0, 30)] * 2, st.sampled_from([None, 0.5, -2.0, 0.0])), min_size=1, max_size=9))

    def formula(*arrays):
        values, masks = [*arrays], []
        for f, i, j, constant in steps:
            if f in (np.logical_and, np.logical_or, np.logical_not):
                if not masks: continue
                made = f(*[masks[k % len(masks)] for k in (i, j)[: f.nin]])
            else:
                operands = [values[k % len(values)] for k in (i, j)[: getattr(f, "nin", 1)]]
                if constant is not None and len(operands) == 2: operands[1] = constant
                made = f(*operands)
            if made.dtype == MASK:
                masks.append(made)
                values.append(np.where(made, values[i % len(values)], values[j % len(values)]))
                values.append(values[i % len(values)] * made)
            else:
                values.append(made)
        return values[-1], values[len(values) // 2]

    return count, formula


@settings(max_examples=60, deadline=None)
@given(formulas(EXACT), st.integers(0, 99), st.sampled_from([F4, F8]))
def test_random_formulas_as_array_code_to_the_bit(found, seed, dtype):
    count, formula = found
    arrays = [numbers(97, seed + k, dtype) for k in range(count)]
    e = trace(formula, [((97,), dtype)] * count)
    assert e is not None
    if not e.lines: return
    for a, b in zip(computed(e, arrays, False), written_out(e, arrays)):
        np.testing.assert_array_equal(a, b)


@needs_numba
@settings(max_examples=8, deadline=None)
@given(formulas(EXACT), st.integers(0, 99), st.sampled_from([F4, F8]))
def test_random_formulas_as_loops_to_the_bit(found, seed, dtype):
    count, formula = found
    arrays = [numbers(97, seed + k, dtype) for k in range(count)]
    if count > 1: arrays[-1] = arrays[-1][20:21]  # one number for all
    e = trace(formula, [((97,), dtype)] * count)
    if not e.lines: return
    for a, b in zip(computed(e, arrays, True), written_out(e, arrays)):
        np.testing.assert_array_equal(a, b)


@needs_numba
@pytest.mark.parametrize("function", HEAVY, ids=lambda f: f.__name__)
def test_functions_of_their_own(function):
    "Within two units in the last place of the true value, and alike where formulas break."
    n = getattr(function, "nin", 1)
    x = np.concatenate([HARD, np.linspace(-20, 20, 20001, dtype=np.float32), np.geomspace(1e-30, 80, 2000, dtype=np.float32)])
    arrays = [x, x[::-1].copy()][:n]
    e = trace(lambda *a: function(*a) if isinstance(function, np.ufunc) else a[0].applied(function, a), [((x.size,), F4)] * n)
    (got,) = computed(e, arrays, True)
    with np.errstate(all="ignore"): want = function(*[a.astype("f8") for a in arrays]).astype("f4").astype("f8")
    tiny = np.abs(want) < 1e-37  # denormal results may be zero
    np.testing.assert_allclose(np.where(tiny, 0, got), np.where(tiny, 0, want), rtol=6e-7, atol=6e-7 if function is HEAVY[-1] else 2e-7 if n == 2 else 1e-37)


def test_what_is_no_formula():
    column = (5,), F4
    for formula in (lambda x: x[0], lambda x: x if x.any() else -x, lambda x: x.reshape(1, 5), lambda x: x + np.float64(1), lambda x: x.astype("f8"), np.sin, lambda x: x + 1 if x > 0 else x, lambda x: np.add.reduce(x), lambda x: 3.0, float, len, list):
        assert trace(formula, [column]) is None
    assert trace(lambda x: x * 1j, [((5,), np.dtype("c8"))]) is None and trace(lambda x: x + 1, [((5,), np.dtype("i8"))]) is None
    with pytest.raises(Opaque): bool(Symbol(None, 0, (5,), F4))


def test_lines_are_written_once_and_constants_apart():
    column = (5,), F4
    e = trace(lambda x: np.where(x > 2, x * 2, 0.0) + np.where(x > 2, 1.0, x * 2), [column])
    assert len(e.lines) == 5
    one, other = (trace(lambda x, c: x * c + 1, [column], dict(c=c)) for c in (3.0, 4.0))
    assert one == other and hash(one) == hash(other) and one.constants != other.constants and compiler.kernel_of(one) is compiler.kernel_of(other)
    signs = trace(lambda x: np.maximum(x, 0.0) / np.where(x > 1, -0.0, x), [column])
    assert [str(c) for c in signs.constants] == ["0.0", "1.0", "-0.0"]


def test_rows():
    e = trace(REGISTRY["softmax"].definition, [((4, 5), F4)], dict(dim=1), RowSymbol)
    assert [f if isinstance(f, tuple) else f.__name__ for f, _, _ in e.lines] == [("max", "row"), "subtract", "exp", ("sum", "row"), "divide"]
    assert not e.exact and isinstance(e, Expression) and "sum(" in repr(e)


@pytest.mark.parametrize("over", [{}, {0: 0}, {1: 0}, {0: 1, 1: 0}], ids=str)
@pytest.mark.parametrize("formula", [lambda x, y: (x + y, x - y), lambda x, y: (np.exp(-x) * y, x + y * 0.5)], ids=["exact", "heavy"])
@pytest.mark.parametrize("wait", [False, pytest.param(True, marks=needs_numba)])
def test_results_in_the_memory_of_inputs(wait, formula, over):
    e = trace(formula, [((5,), F4)] * 2)
    kernel = compiler.kernel_of(e)
    constants, (x, y) = kernel.values(e.constants), (numbers(200_000, k) for k in (1, 3))
    want = [np.empty_like(x), np.empty_like(x)]
    # array code throughout, or the loop: their exponentials differ where results nearly vanish
    with np.errstate(all="ignore"), nullcontext() if wait else compiled.plain():
        kernel([x, y], want, constants, wait)
        # told of it or not: in the second case the compiler has to find out for itself
        for told in (over, {}):
            given = [x.copy(), y.copy()]
            outs = [np.empty_like(x), np.empty_like(x)]
            for i, j in over.items(): outs[j] = given[i]
            kernel(given, outs, constants, wait, told)
            for got, expected in zip(outs, want): np.testing.assert_allclose(got, expected, rtol=3e-7)


@needs_numba
def test_a_loop_over_its_input_has_one_array_for_both():
    e = trace(lambda x, y: np.exp(x) * y, [((5,), F4)] * 2)
    text = compiler.flat_text(e, (0, compiler.FULL))
    assert "A0[i] = t" in text and "B0" not in text and text.startswith("def NAME(lo, hi, A0, A1):")


@needs_numba
def test_compiled_by_and_by_and_by_several_threads(monkeypatch):
    e = trace(lambda x: x * 0.25 + x * x - 0.125, [((5,), F4)])
    kernel = compiler.Kernel(e)
    x = numbers(300_000, 0)
    first = np.empty_like(x)
    for _ in range(compiler.ONCE + 1): kernel([x], [first], kernel.values(e.constants))
    assert compiler.workshop.wait(120)
    assert all(loop.state == "ready" for loop in kernel.loops.values())
    monkeypatch.setattr(compiled.thread_pool, "size", 3)
    monkeypatch.setattr(compiled.thread_pool, "least", 0)
    second = np.empty_like(x)
    x.flags.writeable = False
    kernel([x], [second], kernel.values(e.constants))
    np.testing.assert_array_equal(first, second)


def test_a_loop_that_does_not_compile_is_given_up(monkeypatch):
    monkeypatch.setattr(compiler, "machine_code", lambda *a: 1 / 0)
    e = trace(lambda x: x * 2.5 + 1, [((5,), F4)])
    kernel, x = compiler.Kernel(e), numbers(50, 0)
    for wait in (True, False):
        out = np.empty_like(x)
        kernel([x], [out], kernel.values(e.constants), wait)
        np.testing.assert_array_equal(out, x * np.float32(2.5) + 1)
    if kernel.can: assert [loop.state for loop in kernel.loops.values()] == ["failed"]


@needs_numba
def test_loops_are_kept_on_disk(tmp_path):
    code = """
import time, numpy as np
from autograd_nb.ops.kernels import compiler, expressions
e = expressions.trace(lambda x: np.exp(x * 0.7) + x, [((5,), np.dtype('f4'))])
k, x, out = compiler.kernel_of(e), np.ones(50, 'f4'), np.empty(50, 'f4')
k([x], [out], k.values(e.constants), True)
loop, = k.loops.values()
assert loop.ready.signatures and np.allclose(out, np.exp(0.7) + 1)
print(sum(loop.ready.stats.cache_hits.values()))
"""
    env = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path))
    hits = [subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert [h.strip() for h in hits] == ["0", "1"]


@needs_numba
def test_nothing_is_compiled_when_switched_off():
    e = trace(lambda x: x * 3.5 - 7, [((5,), F4)])
    kernel, x = compiler.Kernel(e), numbers(50, 0)
    with compiled.plain():
        kernel([x], [np.empty_like(x)], kernel.values(e.constants))
    assert not kernel.loops


def on_device(monkeypatch, expression, arrays):
    import strict_arrays as strict

    from autograd_nb.ops.kernels import cuda

    monkeypatch.setattr(cuda.Device, "library", strict.library)
    found = cuda.device_kernel(expression)(*map(strict.ndarray, arrays))
    return [strict.bare(a) for a in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=formulas(EXACT), seed=st.integers(0, 99), dtype=st.sampled_from([F4, F8]))
def test_random_formulas_as_kernels_of_a_device(monkeypatch, found, seed, dtype):
    "The text that CuPy would be given, compiled as C++ with CuPy's loop around it."
    count, formula = found
    arrays = [numbers(97, seed + k, dtype) for k in range(count)]
    e = trace(formula, [((97,), dtype)] * count)
    if not e.lines or e.outputs[0] == e.outputs[1]: return
    for a, b in zip(on_device(monkeypatch, e, arrays), written_out(e, arrays)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["gelu", "mish", "elu", "softplus", "logsigmoid", "silu", "leaky_relu", "masked_fill", "where"])
def test_operations_as_kernels_of_a_device(monkeypatch, name):
    op = REGISTRY[name]
    statics = {**op.statics, **next((s[-1] for s in op.samples if isinstance(s[-1], dict)), {})}
    arrays = [numbers(90, k)[HARD.size :] > 0 if p in op.keep else numbers(90, k)[HARD.size :] for k, p in enumerate(op.params)]
    for function, keep in ((op.definition, statics), (op.rules[0].function, {s: statics[s] for s in op.rules[0].statics})):
        if function is not op.definition: arrays = [numbers(90, 9)[HARD.size :], *arrays[: len(op.rules[0].positional)]] if name != "where" else [numbers(90, 9)[HARD.size :], arrays[2]]
        e = trace(function, [(a.shape, a.dtype) for a in arrays], keep)
        if e is None: continue  # the rule of masked_fill asks for a shape
        (got,) = on_device(monkeypatch, e, arrays)
        want = function(*arrays, **keep)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
        assert got.dtype == want.dtype


def test_softmax_can_be_read_as_a_formula_over_rows():
    "Whatever its definition calls on the way has to serve symbols as it serves arrays."
    import numpy as np

    from autograd_nb.graph.op import REGISTRY
    from autograd_nb.ops.kernels.expressions import RowSymbol, trace

    for name in ("softmax", "log_softmax"):
        rows = trace(REGISTRY[name].definition, [((4, 5), np.dtype("f4"))], dict(dim=1), RowSymbol)
        assert rows is not None and len(rows.lines) == (5 if name == "softmax" else len(rows.lines))
