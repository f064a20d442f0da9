"""Every registered operation against every promise that an operation makes, driven by the samples beside its definition.

A case is one sample of one operation. Values are compared with PyTorch (in test_ops_values.py); derivatives with central differences in float64.
"""

import gc
import itertools
import weakref

import ml_dtypes
import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.graph.node import TensorBase
from autograd_nb.graph.op import REGISTRY, Fixed, N
from autograd_nb.graph.rules import FLAVOURS, interpreted, unique


class Case:
    "One sample of an operation: `op`, `inputs` (`N` or `Fixed`), `statics`."

    def __init__(self, op, number, sample):
        self.op, self.name = op, f"{op.name}-{number}"
        self.statics = {**op.statics, **(sample[-1] if isinstance(sample[-1], dict) else {})}
        self.inputs = [s for s in sample if not isinstance(s, dict)]
        self.floating = [i for i, s in enumerate(self.inputs) if isinstance(s, N)]
        self.wanted = [i for i in self.floating if op.variadic or i in op.rules]

    def draw(self, dtype=np.float64, seed=0):
        "The inputs as arrays."
        rng = np.random.default_rng(seed)
        drawn = [s(rng) for s in self.inputs]
        wide = np.result_type(dtype, np.complex64) if dtype != ml_dtypes.bfloat16 else np.complex64
        return [a if isinstance(s, Fixed) else np.asarray(a, wide if np.iscomplexobj(a) else dtype) for s, a in zip(self.inputs, drawn)]

    def examples(self, count=3):
        "Several draws: other numbers, and the given inputs (indices, masks) in another order."
        return [[np.roll(a, k) if isinstance(s, Fixed) else a for s, a in zip(self.inputs, self.draw(seed=k))] for k in range(count)]

    def tensors(self, arrays, grad=None):
        "The arrays as tensors; those in `grad` (all differentiable ones) are leaves that require grad."
        grad = self.wanted if grad is None else grad
        return [torch.from_numpy(a.copy()).requires_grad_(i in grad) for i, a in enumerate(arrays)]

    def outputs(self, *tensors):
        "The results as a list."
        out = self.op.general(*tensors, **self.statics)
        return list(out) if isinstance(out, tuple) else [out]

    def kernel(self, arrays):
        "The results on bare arrays, as a list; of several results those that have gradients."
        return self.with_gradients(self.op.kernel(*arrays, **self.statics))

    def with_gradients(self, out):
        "Those of an operation's results (arrays) that have gradients, as a list."
        if self.op.outputs == 1:
            return [np.asarray(out)]
        return [np.asarray(o) for i, o in enumerate(out) if self.op.differentiable is None or i in self.op.differentiable]

    @property
    def is_complex(self):
        "Whether complex numbers go in or come out: tests/test_function_parity.py looks at these."
        arrays = [s(np.random.default_rng(0)) for s in self.inputs]
        if any(np.iscomplexobj(a) for a in arrays):
            return True
        out = self.op.kernel(*arrays, **self.statics)
        return any(np.iscomplexobj(o) for o in (out if self.op.outputs != 1 else [out]))

    def cotangents(self, outs, seed=1):
        "Random gradients to start from, as tensors."
        rng = np.random.default_rng(seed)
        return [torch.from_numpy(np.asarray(rng.standard_normal(o.shape)).astype(o._array.dtype)) for o in outs]

    def gradients(self, arrays, starts=None, create_graph=False):
        "The gradients of the differentiable inputs, from the public engine."
        xs = self.tensors(arrays)
        outs = [o for o in self.outputs(*xs) if o.requires_grad]
        return torch.autograd.grad(outs, [xs[i] for i in self.wanted], starts or self.cotangents(outs), create_graph=create_graph)


def cases(choose=lambda op: True, complex_too=False):
    every = [Case(op, k, sample) for op in REGISTRY.values() if choose(op) for k, sample in enumerate(op.samples)]
    return [pytest.param(case, id=case.name) for case in every if complex_too or not case.is_complex]


def differentiable(op):
    return bool(op.rules)


def central(function, arrays, i, h=1e-6):
    "The gradient of a number-valued function of arrays with respect to number `i`, by central differences."
    out = np.zeros_like(arrays[i])
    for k in np.ndindex(arrays[i].shape):
        here = [a.copy() for a in arrays]
        here[i][k] += h
        above = function(here)
        here[i][k] -= 2 * h
        out[k] = (above - function(here)) / (2 * h)
    return out


def bits(a):
    "The bytes of a tensor's or an array's numbers, in logical order."
    return np.ascontiguousarray(getattr(a, "_array", a)).tobytes()


def agree(a, b, tolerance=1e-6, what="the result"):
    "Fails with one sentence: what was asked, where it is furthest off, what was expected there and what came."
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, f"{what} has the shape {a.shape}, expected {b.shape}"
    off = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if off.any():
        with np.errstate(invalid="ignore"):
            apart = np.where(off, np.nan_to_num(np.abs(a - b), nan=np.inf), -1.0)
        place = tuple(int(k) for k in np.unravel_index(apart.argmax(), a.shape))
        where = f" at {list(place)}" if place else ""
        pytest.fail(f"{what} is wrong{where}: expected {b[place]:.8g}, got {a[place]:.8g} ({off.sum()} of {off.size} numbers are off).", pytrace=False)


def rule(case, i, arrays):
    "Names a gradient for those who read why it is wrong: the operation, which input's rule, and what the inputs were."
    statics = "".join(f", {k}={v!r}" for k, v in case.statics.items())
    inputs = ", ".join(np.array2string(a, precision=4, threshold=6, separator=", ").replace("\n", " ") for a in arrays[:3])
    of = f"input {i}" if i < len(case.inputs) else f"incoming gradient {i - len(case.inputs)}"
    name = list(case.op.rules)[case.wanted.index(i)] if not case.op.variadic and i in case.wanted and len(case.op.rules) == len(case.wanted) else None
    written = f" (the rule for `{name}`)" if isinstance(name, str) else ""
    return f"{case.name}: the gradient for {of}{written} of {case.op.name}({inputs}{statics})"


def same_bits(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert bits(a) == bits(b)


# Completeness --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in REGISTRY.values() if op.rules and not op.name.startswith("underivable")])
def test_differentiable_operation_is_complete(op):
    "A differentiable operation has samples, a rule for forward mode, a sentence, and a rule for every floating input."
    assert op.samples, "no samples: no generic test looks at it"
    assert op.jvp is not None, "no forward-mode rule"
    assert op.__doc__, "no docstring"
    for case in (Case(op, 0, s) for s in op.samples):
        assert case.wanted == case.floating, "a floating input has no derivative rule"


# Reverse mode --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(differentiable))
def test_gradient_is_the_derivative(case):
    arrays = case.draw()
    starts = case.cotangents([o for o in case.outputs(*case.tensors(arrays)) if o.requires_grad])

    def total(here):
        return sum(float((o * s._array).sum()) for o, s in zip(case.kernel(here), starts))

    for i, g in zip(case.wanted, case.gradients(arrays, starts)):
        assert g.shape == arrays[i].shape
        agree(g._array, central(total, arrays, i), what=rule(case, i, arrays))


@pytest.mark.parametrize("case", cases(differentiable))
def test_recorded_backward_gives_the_same_bits(case):
    arrays = case.draw(np.float32)
    plain, recorded = case.gradients(arrays), case.gradients(arrays, create_graph=True)
    # of bare arrays, sums by products with ones, which some processors round in another order, and quotients where nothing is zero
    if case.op.name in ("normalise", "cumprod"):
        for a, b in zip(recorded, plain, strict=True):
            agree(a.detach(), b.detach())
    else:
        same_bits(recorded, plain)


@pytest.mark.parametrize("case", cases(differentiable))
def test_constant_gradient_without_memory_of_its_own(case):
    "`.sum().backward()` sends a read-only gradient with zero strides."
    arrays = case.draw()
    xs = case.tensors(arrays)
    total = sum(o.sum() for o in case.outputs(*xs) if o.requires_grad)
    total.backward()
    expected = case.gradients(arrays, [torch.ones_like(o) for o in case.outputs(*case.tensors(arrays)) if o.requires_grad])
    for i, g in zip(case.wanted, expected):
        agree(xs[i].grad._array, g._array, 1e-12)


@pytest.mark.parametrize("case", cases(differentiable))
def test_strided_inputs_make_no_difference(case):
    arrays = case.draw()
    strided = [np.repeat(a.T, 2, axis=0)[::2].T if a.ndim else a for a in arrays]
    assert not any(max(a.shape[-1:], default=1) > 1 and s.flags.c_contiguous for a, s in zip(arrays, strided)), "these arrays are not strided"
    for a, b in zip(case.kernel(arrays), case.kernel(strided)):
        agree(a, b, 1e-12)
    xs = [torch.from_numpy(a).requires_grad_(i in case.wanted) for i, a in enumerate(strided)]
    outs = [o for o in case.outputs(*xs) if o.requires_grad]
    for g, expected in zip(torch.autograd.grad(outs, [xs[i] for i in case.wanted], case.cotangents(outs)), case.gradients(arrays)):
        agree(g._array, expected._array, 1e-12)


@pytest.mark.parametrize("case", cases(differentiable))
def test_second_derivative(case):
    "The gradient of <u, gradient>, both for the inputs and for the gradient that came in."
    arrays = case.draw()
    xs = case.tensors(arrays)
    outs = [o for o in case.outputs(*xs) if o.requires_grad]
    starts = [s.requires_grad_() for s in case.cotangents(outs)]
    first = torch.autograd.grad(outs, [xs[i] for i in case.wanted], starts, create_graph=True)
    if not any(g.requires_grad for g in first):  # constant pieces: zeros without a history, as PyTorch gives them
        assert not any(g.any() for g in first)
        return
    along = case.cotangents(first, seed=2)
    total = sum((g * u).sum() for g, u in zip(first, along))
    places = [xs[i] for i in case.wanted] + starts
    words = case.op.formal and case.op.formal[2]
    if words:  # PyTorch has not written that derivative
        with pytest.raises(RuntimeError, match=words):
            torch.autograd.grad(total, places, materialize_grads=True)
        return
    second = torch.autograd.grad(total, places, materialize_grads=True)

    def numeric(here):
        values, given = here[: len(arrays)], [torch.from_numpy(a) for a in here[len(arrays) :]]
        return sum(float((g._array * u._array).sum()) for g, u in zip(case.gradients(values, given), along))

    everything = arrays + [s._array for s in starts]
    for i, g in zip(case.wanted + list(range(len(arrays), len(everything))), second):
        agree(g._array, central(numeric, everything, i), 1e-5, "second derivative, " + rule(case, i, arrays))


# Forward mode and batches --------------------------------------------------------------------------------------


def subsets(items):
    return [set(c) for n in range(1, len(items) + 1) for c in itertools.combinations(items, n)]


def several(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


def tangents_of(case, arrays, tangents):
    "The tangents of the results that have gradients, from arrays or from tensors; `tangents[i]`: the tangent of input i, or None."
    out = case.op.general(*arrays, **case.statics)
    return case.op.tangent(tuple(tangents), tuple(arrays), out, case.statics)


def moving_inputs(case, seed=3):
    "For every choice of inputs that move: (arrays, tangents)."
    arrays = case.draw()
    rng = np.random.default_rng(seed)
    full = [np.asarray(rng.standard_normal(a.shape) + (1j * rng.standard_normal(a.shape) if np.iscomplexobj(a) else 0)) for a in arrays]
    return arrays, [[t if i in chosen else None for i, t in enumerate(full)] for chosen in subsets(case.wanted)]


def inner(a, b):
    "The real inner product of arrays."
    return float(np.real(np.conj(a) * b).sum())


@pytest.mark.parametrize("case", cases(differentiable, complex_too=True))
def test_forward_mode(case):
    "Tangents agree with a difference quotient and with the transpose of the reverse rule, for every choice of moving inputs."
    arrays, choices = moving_inputs(case)
    outs = [o for o in case.outputs(*case.tensors(arrays)) if o.requires_grad]
    rng = np.random.default_rng(1)
    starts = [torch.from_numpy(np.asarray(rng.standard_normal(o.shape) * (1 + 1j if o.is_complex() else 1))) for o in outs]
    back = dict(zip(case.wanted, case.gradients(arrays, starts)))
    for tangents in choices:
        found = case.with_gradients(tangents_of(case, arrays, tangents))
        h = 1e-6
        plus, minus = ([a + s * h * t if t is not None else a for a, t in zip(arrays, tangents)] for s in (1, -1))
        for f, p, m in zip(found, case.kernel(plus), case.kernel(minus)):
            assert f.shape == p.shape and np.iscomplexobj(f) == np.iscomplexobj(p)
            agree(f, (p - m) / (2 * h), 1e-5, f"{case.name}: the forward-mode rule (jvp) of {case.op.name}")
        moved = sum(inner(s._array, f) for f, s in zip(found, starts))
        agree(moved, sum(inner(back[i]._array, t) for i, t in enumerate(tangents) if t is not None), 1e-9,
              f"{case.name}: the forward-mode rule of {case.op.name}, beside its derivative rules,")


@pytest.mark.parametrize("case", cases(differentiable))
def test_forward_rule_differentiates(case):
    "The gradient of <u, tangent>, for the inputs and for the tangents that came in: reverse mode over forward mode."
    arrays, choices = moving_inputs(case)
    tangents = choices[-1]
    moving = [i for i, t in enumerate(tangents) if t is not None]

    def outputs(values, given):
        every = iter(given)
        found = several(tangents_of(case, values, [next(every) if i in moving else None for i in range(len(values))]))
        return [f for i, f in enumerate(found) if case.op.outputs == 1 or case.op.differentiable is None or i in case.op.differentiable]

    xs, ts = case.tensors(arrays), [torch.from_numpy(tangents[i].copy()).requires_grad_() for i in moving]
    found = outputs(xs, ts)
    along = case.cotangents(found, seed=2)
    total = sum((f * u).sum() for f, u in zip(found, along))
    places = [xs[i] for i in case.wanted] + ts
    gradients = torch.autograd.grad(total, places, materialize_grads=True) if total.requires_grad else [torch.zeros_like(p) for p in places]

    def numeric(here):
        return sum(float((np.asarray(f) * u._array).sum()) for f, u in zip(outputs(here[: len(arrays)], here[len(arrays) :]), along))

    everything = arrays + [tangents[i] for i in moving]
    for i, g in zip(case.wanted + list(range(len(arrays), len(everything))), gradients):
        agree(g._array, central(numeric, everything, i), 1e-5, "reverse over forward mode, " + rule(case, i, arrays))


def test_a_wrong_rule_is_told_in_a_sentence():
    "What an author reads: which operation and input, where, what was expected and what came."
    case = next(p.values[0] for p in cases(lambda op: op.name == "mul"))
    arrays = case.draw()
    right = np.ones((2, 2))
    wrong = right + [[0, 0], [0, 0.5]]
    with pytest.raises(pytest.fail.Exception, match=r"mul-0: the gradient for input 1.* of mul\(.*\) is wrong at \[1, 1\]: expected 1, got 1\.5 \(1 of 4 numbers are off\)"):
        agree(wrong, right, what=rule(case, 1, arrays))


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in REGISTRY.values()])
def test_operation_has_a_batching_rule(op):
    assert op.batch is not None


@pytest.mark.parametrize("case", cases(complex_too=True))
def test_batch_rule_is_a_loop(case):
    "For every choice of batched inputs: values, and gradients through the rule."
    draws = case.examples()
    for chosen in subsets(range(len(case.inputs))):
        mixed = [[d[i] if i in chosen else draws[0][i] for i in range(len(case.inputs))] for d in draws]
        expected = [np.stack(r) for r in zip(*(case.kernel(m) for m in mixed))]
        values = [np.stack([d[i] for d in draws]) if i in chosen else draws[0][i] for i in range(len(case.inputs))]
        batched = [i in chosen for i in range(len(case.inputs))]
        found = case.with_gradients(case.op.batched(values, batched, case.statics))
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert np.shape(a) == b.shape and a.dtype == b.dtype
            agree(a, b, 1e-10)
        if not case.wanted:
            continue
        xs = case.tensors(values)
        outs = [o for o in several(case.op.batched(xs, batched, case.statics)) if o.requires_grad]
        starts = case.cotangents(outs)
        gradients = torch.autograd.grad(outs, [xs[i] for i in case.wanted], starts, materialize_grads=True)
        singly = [case.gradients(m, [s[k] for s in starts]) for k, m in enumerate(mixed)]
        for n, (i, g) in enumerate(zip(case.wanted, gradients)):
            each = [one[n]._array for one in singly]
            agree(g._array, np.stack(each) if i in chosen else sum(each), 1e-9)


# What a node keeps ---------------------------------------------------------------------------------------------


def declared(case, grad):
    "The fields that the rules for the inputs in `grad` ask for."
    return set(unique([case.op.rules[0 if case.op.variadic else i] for i in sorted(grad)], ("out", "in")))


@pytest.mark.parametrize("case", cases(differentiable))
def test_node_keeps_what_its_rules_declare_and_nothing_else(case):
    for grad in subsets(case.wanted):
        xs = [x * 1 if x.requires_grad else x for x in case.tensors(case.draw(), grad)]
        outs = case.outputs(*xs)
        node = next(o.grad_fn for o in outs if o.requires_grad)
        fields = declared(case, grad)
        assert {name for name, _ in node.saved} == fields
        kept = {node.links.get(name) for name in fields} if not case.op.variadic else set(range(len(xs))) if fields else set()
        watched = [weakref.ref(t) for t in (*xs, *outs)]
        arrays = [weakref.ref(x._array) for i, x in enumerate(xs) if i not in kept] + ([] if "out" in kept else [weakref.ref(o._array) for o in outs])
        gc.disable()
        try:
            del xs, outs
            assert all(w() is None for w in watched), "the node holds a tensor"
            assert all(a() is None for a in arrays), "the node holds an array that no rule asks for"
        finally:
            gc.enable()
        node.release()
        assert node.saved == [] and node.freed == bool(fields or node.held)


@pytest.mark.parametrize("case", cases(differentiable))
def test_overwritten_saved_values_are_detected(case):
    "Backward fails exactly if a value that the node saved was written in place after the node was made."
    arrays = case.draw()

    def run(write):
        xs = [x * 1 if x.requires_grad else x for x in case.tensors(arrays)]
        outs = case.outputs(*xs)
        node = next(o.grad_fn for o in outs if o.requires_grad)
        links = {node.links.get(f) for f, v in node.saved if hasattr(v, "shape")}
        if case.op.variadic and node.saved:
            links = set(range(len(xs)))
        target = outs[0] if write == "out" else xs[write]
        np_before = target._array.copy()
        with torch.no_grad():
            target.copy_(target + 1) if target.is_floating_point() else target.copy_(target.clone())
        assert target._version == 1
        target._array[...] = np_before  # the numbers are back, the version is not
        starts = case.cotangents([o for o in outs if o.requires_grad])
        try:
            torch.autograd.backward([o for o in outs if o.requires_grad], starts)
        except RuntimeError as error:
            if case.op.view and case.op.outputs != 1 and "a function that returns multiple views" in str(error):
                return True, write == 0
            assert "modified by an inplace operation" in str(error)
            return True, write in links or (case.op.view and write in ("out", 0) and links & {"out", 0})
        return False, write in links

    places = [i for i in range(len(arrays)) if arrays[i].flags.writeable] + ([] if case.op.view or case.op.outputs != 1 else ["out"])
    for write in places:
        found, expected = run(write)
        assert found == bool(expected), f"{write}: error {found}, saved {expected}"


# One operation, several ways to call it ------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(lambda op: op.direct != op.general))
def test_fast_path_is_the_general_path(case):
    "`op.direct` and `op.call`, compiled for the common case, give what `op.general` gives: bits, node names, saved fields, gradients."
    for dtype in (np.float32, np.float64):
        for grad in [set(), *subsets(case.wanted)]:
            results = []
            for path in (case.op.general, case.op.direct, case.op.call):
                xs = case.tensors(case.draw(dtype), grad)
                out = path(*xs, **case.statics)
                if grad:
                    node = out.grad_fn
                    facts = (node.name(), [f for f, _ in node.saved], [f and f.name() for f, _ in node.next_functions], node.shape)
                    gradients = torch.autograd.grad(out, [xs[i] for i in sorted(grad)], case.cotangents([out]))
                else:
                    facts, gradients = out.grad_fn, ()
                results.append((facts, [out, *gradients]))
            for facts, values in results[1:]:
                assert facts == results[0][0]
                same_bits(values, results[0][1])


@pytest.mark.parametrize("case", cases(differentiable))
def test_generated_rules_are_the_interpreted_ones(case):
    "What is written out for a class of nodes gives what the definition of running a node gives: bits under `create_graph`."
    xs = case.tensors(case.draw())
    outs = [o for o in case.outputs(*xs) if o.requires_grad]
    node = outs[0].grad_fn
    positions = node.op.positions if node.op.variadic else node.positions
    rules = interpreted(node.op, node.name(), positions, FLAVOURS[None])
    given = [g._array for g in case.cotangents(case.outputs(*xs))]
    given = given[0] if len(outs) == 1 else given
    recorded = [torch.from_numpy(g) for g in given] if isinstance(given, list) else torch.from_numpy(given)

    def listed(found):
        return [f for f in (found if isinstance(found, tuple) else (found,)) if f is not None]

    same_bits(listed(rules["run_graph"](node, recorded)), listed(node.run_graph(recorded)))
    for found, expected in zip(listed(rules["run"](node, given, True)), listed(node.run(given, True)), strict=True):
        agree(found, expected)
    rules["run"](node, given, False)
    assert not node.fields or node.freed


@pytest.mark.parametrize("case", cases(lambda op: op.direct != op.general))
def test_fast_path_records_nothing_under_no_grad(case):
    for path in (case.op.direct, case.op.call, case.op.general):
        with torch.no_grad():
            out = path(*case.tensors(case.draw()), **case.statics)
        assert out.grad_fn is None and out.is_leaf and (case.op.view or not out.requires_grad)  # as in PyTorch, a view of a tensor that requires grad does so too
        with torch.inference_mode():
            out = path(*case.tensors(case.draw()), **case.statics)
        assert not out.requires_grad and out.is_inference()


TOLERANCE = {"float32": 1e-4, "float64": 1e-12, "float16": 2e-2, "bfloat16": 1e-1}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", cases(lambda op: op.rules and op.name != "to"))
def test_dtype_is_kept(case, dtype):
    "Results and gradients have the dtype of the inputs, and the numbers that float64 gives, as far as the dtype holds them."
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    arrays = case.draw(kind)
    wide = [a.astype(np.float64) if i in case.floating else a for i, a in enumerate(arrays)]
    xs = case.tensors(arrays)
    try:
        outs = case.outputs(*xs)
    except RuntimeError as error:
        words = "Low precision dtypes not supported" in str(error) or f'"{case.op.name}' in str(error) and '_cpu" not implemented for' in str(error)
        assert words and np.dtype(kind).itemsize == 2  # LAPACK, and so PyTorch, does not know them; nor do some special functions
        return
    for out, expected in zip([o for o in outs if o.requires_grad], case.kernel(wide)):
        assert out._array.dtype == kind
        agree(out._array.astype(np.float64), expected, TOLERANCE[dtype])
    starts = [torch.ones_like(o) for o in outs if o.requires_grad]
    expected = case.gradients(wide, [s.double() for s in starts])
    for g, e in zip(torch.autograd.grad([o for o in outs if o.requires_grad], [xs[i] for i in case.wanted], starts), expected):
        assert g._array.dtype == kind and isinstance(g, TensorBase)
        agree(g._array.astype(np.float64), e._array, 4 * TOLERANCE[dtype])


@pytest.mark.parametrize("part", [lambda x: x[2:8], lambda x: x[::2], lambda x: x[3].expand(4), lambda x: x.view(4, 3).T[1:]], ids=["slice", "step", "expanded", "transposed"])
@pytest.mark.parametrize("order", [((2, 2), (1, 2), 3), ((3,), (2,), 2), ((2, 2), (1, 1), 3)])
def test_views_of_memory_around_a_view(part, order):
    "`as_strided` of a tensor that is only a part of its memory: reads all of the memory, and passes gradients to the part."
    size, stride, start = order
    x = torch.arange(12.0, dtype=torch.float64).requires_grad_()
    y = part(x * 1)
    out = torch.as_strided(y, size, stride, start)
    assert out.tolist() == np.lib.stride_tricks.as_strided(np.arange(12.0)[start:], size, [8 * s for s in stride]).tolist()
    inside = np.zeros(12)
    np.put(inside, np.asarray(part(torch.arange(12)).tolist()), 1)
    read = np.zeros(12)
    np.add.at(read, np.asarray(torch.as_strided(torch.arange(12), size, stride, start).tolist()), 1)
    (g,) = torch.autograd.grad(out.sum(), x)
    assert g.tolist() == (inside * read).tolist()
    _, t = torch.func.jvp(lambda x: torch.as_strided(part(x * 1), size, stride, start), (x.detach(),), (torch.ones(12, dtype=torch.float64),))
    assert t.tolist() == inside[np.asarray(torch.as_strided(torch.arange(12), size, stride, start).tolist())].tolist()
