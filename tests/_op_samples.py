"""PyTorch's own table of operations with its sample inputs, run under both libraries: results, first and second gradients, flags and errors are compared."""

import functools
import sys
import types
import unittest.mock
import warnings

import numpy as np

MESSAGE_START = 24


@functools.cache
def op_db():
    """PyTorch's own list of operations. The module that holds it imports a library for expected texts, which it does not use here and which may be missing,
    and would freeze the flags of PyTorch's backends for the rest of the process."""
    import torch

    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ImportError:
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase, stand_in.assert_expected_inline = unittest.TestCase, None
            sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings(), unittest.mock.patch.object(torch.backends, "disable_global_flags", lambda: None):
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db as found
    return found


@functools.cache
def table():
    "PyTorch's operations and their samples, {title: OpInfo}."
    return {info.name + (f":{info.variant_test_name}" if info.variant_test_name else ""): info for info in op_db()}


def translated(function, ours):
    "A function of PyTorch's test files that calls `torch` by that name, bound to our library."
    import torch

    known = {id(torch): ours, id(torch.nn.functional): ours.nn.functional, id(torch.linalg): ours.linalg}
    scope = dict(function.__globals__)
    for name, value in list(scope.items()):
        if id(value) in known:
            scope[name] = known[id(value)]
        elif isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__ and name in function.__code__.co_names:
            scope[name] = translated(value, ours)
    cells = tuple(types.CellType(translated(c.cell_contents, ours) if _is_test_function(c.cell_contents) else c.cell_contents) for c in function.__closure__ or ())
    made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _is_test_function(value):
    return isinstance(value, types.FunctionType) and "torch.testing" in value.__module__


def counterpart(info, ours):
    "Our function for one of the table's operations; AttributeError if we have none."
    function = info.op
    if isinstance(function, functools.partial):
        inner = counterpart(types.SimpleNamespace(op=function.func, name=info.name), ours)
        return functools.partial(inner, *function.args, **function.keywords)
    if _is_test_function(function):
        return translated(function, ours)
    kind = type(function).__name__
    if kind in ("method_descriptor", "wrapper_descriptor") or info.name.startswith("__"):
        return getattr(ours.Tensor, function.__name__)
    if kind in ("OpOverload", "OpOverloadPacket"):
        return functools.reduce(getattr, str(function).split("."), ours.ops)
    found = ours
    try:
        return functools.reduce(getattr, info.name.split("."), found)
    except AttributeError:
        if info.name.startswith(("masked.", "sparse.")):
            raise
        return getattr(ours, function.__name__)


class Converter:
    "Arguments of PyTorch as ours; the same tensor becomes the same tensor."

    def __init__(self, ours):
        self.ours, self.seen = ours, {}

    def __call__(self, value):
        import torch

        if isinstance(value, torch.Tensor):
            if id(value) not in self.seen:
                if value.layout is not torch.strided:
                    raise NotImplementedError("layout")
                made = self.ours.from_numpy(value.detach().clone().resolve_conj().resolve_neg().numpy()) if value.dtype != torch.bfloat16 else self.ours.from_numpy(value.detach().float().numpy()).bfloat16()
                self.seen[id(value)] = made.requires_grad_(value.requires_grad), value
            return self.seen[id(value)][0]
        if isinstance(value, torch.Size):
            return self.ours.Size(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(self.ours, str(value).partition(".")[2])
        if isinstance(value, torch.device):
            return self.ours.device(str(value))
        if isinstance(value, torch.Generator):
            raise NotImplementedError("generator")
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        if _is_test_function(value):
            return translated(value, self.ours)
        if isinstance(value, torch.nn.Module):
            return getattr(self.ours.nn, type(value).__name__)()
        return value


def leaves(value, kind):
    "The tensors in nested arguments or results, in order."
    if isinstance(value, kind):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in leaves(v, kind)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in leaves(v, kind)]
    return []


def weights(tensor, seed, dtype=None):
    "Fixed numbers in a tensor's shape."
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(tuple(tensor.shape))
    if tensor.is_complex():
        values = values + 1j * rng.standard_normal(tuple(tensor.shape))
    return values


def numbers(tensor):
    tensor = tensor.detach()
    if tensor.dtype.itemsize == 2 and tensor.dtype.is_floating_point:
        tensor = tensor.float()
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy(force=True))


class Observed:
    "What one call does under one library: a list of (what, value) in the order of the steps."

    def __init__(self, torch, function, args, kwargs, process=None, gauge=False, second=True, leaf_starts=False):
        self.facts, self.leaf_starts = [], leaf_starts
        inputs = []
        for t in leaves([args, kwargs], torch.Tensor):
            if t.requires_grad and not any(t is u for u in inputs):
                inputs.append(t)
        self.second = second
        try:
            out = function(*args, **kwargs)
            if gauge:
                out = process(out)
        except Exception as error:
            self.fail("call", error)
            return
        results = leaves(out, torch.Tensor)
        self.note("results", len(results))
        for i, r in enumerate(results):
            self.note(f"result {i}", (tuple(r.shape), str(r.dtype).replace("autograd_nb", "torch"), r.requires_grad))
            self.note(f"value {i}", r)
        if process is not None and not gauge:
            try:
                results = leaves(process(out), torch.Tensor)
            except Exception as error:
                self.fail("processing", error)
                return
        wanted = [r for r in results if r.requires_grad]
        if not wanted or not inputs:
            return
        first = self.differentiate(torch, "first", wanted, inputs, second)
        if not second or first is None:
            return
        again = [g for g in first if g is not None and g.requires_grad]
        if again:
            self.leaf_starts = False
            self.differentiate(torch, "second", again, inputs + [s for s in self.starts if s.requires_grad], False)

    def differentiate(self, torch, order, results, inputs, create_graph):
        starts = self.starts = [torch.from_numpy(np.asarray(weights(r, k))).to(r).requires_grad_(self.leaf_starts) for k, r in enumerate(results)]
        try:
            gradients = torch.autograd.grad(results, inputs, starts, create_graph=create_graph, allow_unused=True)
        except Exception as error:
            self.fail(order, error)
            return None
        for i, g in enumerate(gradients):
            self.note(f"{order} gradient {i}", None if g is None else (tuple(g.shape), str(g.dtype).replace("autograd_nb", "torch"), g.requires_grad))
            if g is not None:
                self.note(f"{order} value {i}", g)
        return gradients

    def note(self, what, value):
        self.facts.append((what, numbers(value) if hasattr(value, "detach") else value))

    def without_values(self):
        return types.SimpleNamespace(facts=[f for f in self.facts if " value " not in f" {f[0]}"])

    def fail(self, what, error):
        self.facts.append((what, error))


def same(a, b, rtol, atol):
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind not in "fc":
            return np.array_equal(a, b)
        if a.dtype.itemsize < 8 * (2 if a.dtype.kind == "c" else 1):
            rtol, atol = max(rtol, 1e-4), max(atol, 1e-4)
        finite = np.abs(a[np.isfinite(a)])
        return np.allclose(a, b, rtol=rtol, atol=atol * max(1.0, finite.max(initial=0.0)), equal_nan=True)
    if isinstance(a, Exception) and isinstance(b, Exception):
        start = str(a).strip()[:MESSAGE_START]
        return type(a).__name__.strip("_") == type(b).__name__.strip("_") and str(b).strip().startswith(start)
    if isinstance(a, Exception) or isinstance(b, Exception):
        return False
    return a == b


def short(value):
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {str(value).strip()[:140]}"
    if isinstance(value, np.ndarray):
        return np.array2string(value.reshape(-1)[:6], precision=5).replace("\n", " ") + str(value.shape) + str(value.dtype)
    return str(value)


def first_difference(expected, found, rtol=1e-6, atol=1e-7):
    "None, or a line about the first step where two runs differ."
    for (what, a), (what_b, b) in zip(expected.facts, found.facts):
        if what != what_b:
            return f"{what}: {short(a)}  |  {what_b}: {short(b)}"
        if not same(a, b, rtol, atol):
            return f"{what}: {short(a)}  |  {short(b)}"
    if len(expected.facts) != len(found.facts):
        longer = max(expected.facts, found.facts, key=len)
        what, value = longer[min(len(expected.facts), len(found.facts))]
        return f"{'only PyTorch' if longer is expected.facts else 'only we'}: {what} {short(value)}"
    return None


def mapped(value, kind, change):
    "Nested arguments with `change(tensor)` in the place of each tensor of this `kind`; sizes stay as they are."
    if isinstance(value, kind):
        return change(value)
    if type(value).__name__ == "Size":
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, kind, change) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, kind, change) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, kind, change) for k, v in value.items()}
    return value


def fresh(value, memo):
    "Arguments of PyTorch anew, as leaves; the same tensor becomes the same tensor."
    import torch

    def anew(t):
        if id(t) not in memo:
            if t.layout is not torch.strided:
                raise NotImplementedError("layout")
            memo[id(t)] = t.detach().clone().requires_grad_(t.requires_grad), t
        return memo[id(t)][0]

    return mapped(value, torch.Tensor, anew)


def draws(function):
    "Whether a function of PyTorch's test files seeds the generator of random numbers for itself."
    return "wrapper_set_seed" in getattr(getattr(function, "__code__", None), "co_names", ())


def identity(function):
    "Whether a function gives back what it gets."
    code = getattr(function, "__code__", None)
    return code is None or len(code.co_code) <= 12 and not code.co_names


def compare(info, sample, ours, function=None, second=True, leaf_starts=False):
    "None if both libraries agree on one sample, else what differs. `leaf_starts`: what the first gradients start from can be differentiated too."
    import torch

    memo, convert = {}, Converter(ours)
    args, kwargs = fresh([sample.input, *sample.args], memo), fresh(sample.kwargs, memo)
    our_args, our_kwargs = convert(args), convert(kwargs)
    process = sample.output_process_fn_grad
    plain = identity(process)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = Observed(torch, info.op, args, kwargs, None if plain else process, not plain, second, leaf_starts)
        found = Observed(ours, function or counterpart(info, ours), our_args, our_kwargs, None if plain else translated(process, ours), not plain, second, leaf_starts)
        line = first_difference(expected, found)
        if line is not None and draws(info.op):
            return first_difference(expected.without_values(), found.without_values())
        if line is not None and "value" in line.partition(":")[0]:  # is it drawn at random, or does it show uninitialised memory?
            again = Observed(torch, info.op, args, kwargs, None if plain else process, not plain, second, leaf_starts)
            if first_difference(expected, again) is not None:
                line = first_difference(expected.without_values(), found.without_values())
    return line
