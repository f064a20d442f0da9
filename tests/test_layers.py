"""Layers: each can be taken away, any two work together, and what they did ends with them."""

import ast
import contextlib
import copy
import gc
import pickle
import re
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from conftest import ROOT

import autograd_nb as torch
import autograd_nb.utils.capture  # noqa: F401 (plugs its layer in)
from autograd_nb.graph.modes import FIELDS, LAYERS, LOCAL, SWITCH, Layer, at_work
from autograd_nb.graph.op import REGISTRY
from autograd_nb.layers import half
from autograd_nb.layers.costs import calls_of
from autograd_nb.layers.dispatch import Computing
from autograd_nb.layers.observers import observe
from autograd_nb.layers.order import ORDER
from autograd_nb.ops import thread_pool
from autograd_nb.utils._python_dispatch import BaseTorchDispatchMode

CORE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "autograd_nb.layers.{name}": raise ImportError("taken away")
sys.meta_path.insert(0, Blocked())
import types
package = types.ModuleType("autograd_nb")       # the package without its front door, which imports everything
package.__path__ = [{path!r}]
sys.modules["autograd_nb"] = package
layers = types.ModuleType("autograd_nb.layers")
layers.__path__ = [{path!r} + "/layers"]
sys.modules["autograd_nb.layers"] = layers
import importlib
loaded = []
for other in {others!r}:
    try: importlib.import_module("autograd_nb.layers." + other)
    except ImportError as error:
        assert "taken away" in str(error), error
    else: loaded.append(other)
assert "{name}" not in loaded and len(loaded) >= {least}, loaded

import numpy as np
from autograd_nb.graph.engine import run
from autograd_nb.graph.modes import no_grad
from autograd_nb.graph.node import AccumulateGrad, tensor_like
from autograd_nb.graph.op import op

@op(np.multiply, promote="same")
def times(x, y): "Product."
times.vjp(x=lambda g, y: g * y, y=lambda g, x: g * x)
@op(np.exp)
def power(x): "Exponential."
power.vjp(x=lambda g, out: g * out)
@op(outputs=2)
def halves(x):
    "Two halves."
    return [x[:2] * 1, x[2:] * 1]
halves.vjp(x=lambda g: np.concatenate(g))

def backward(tensors, grads): run(tensors, grads, False, False)

def leaf(values, dtype="f8"):
    out = tensor_like(np.array(values, dtype))
    out._node = AccumulateGrad(out)
    return out

for call in ("call", "direct", "general"):
    a, b = leaf([1., 2., 3., 4.]), leaf([5., 6., 7., 8.])
    backward((getattr(power, call)(getattr(times, call)(a, b)),), (tensor_like(np.ones(4)),))
    expected = np.exp(a._array * b._array)
    assert np.allclose(a._node.grad, expected * b._array) and np.allclose(b._node.grad, expected * a._array)
    c = leaf([1., 2., 3., 4.])
    first, second = getattr(halves, call)(c)
    product = times.general(first, second)
    backward((product,), (tensor_like(np.ones(2)),))
    assert c._node.grad.tolist() == [3., 4., 1., 2.]
    wide = times.general(leaf([1., 2.], "f4"), leaf([3., 4.]))         # two dtypes take the definition
    backward((wide,), (tensor_like(np.ones(2)),))
    assert wide._array.dtype == "f8" and wide._node.inputs[0].grad.dtype == "f4"
    with no_grad(): assert getattr(times, call)(a, b)._node is None
    assert times.general(leaf([1., 2.]), 2.)._array.tolist() == [2., 4.]
print("ok")
"""
MODULES = sorted(path.stem for path in (ROOT / "autograd_nb" / "layers").glob("*.py") if path.stem != "__init__")
# rooms that others build upon: these go with them
BELOW = {
    "arguments": {"codegen", "device", "half"}, "codegen": {"device", "half"}, "extras": {"inference"}, "fast": {"codegen", "device", "half"}, "forward": {"device"},
    "hooks": {"anomaly", "saved", "lazy"}, "needed": {"complex", "conjugate_views", "device", "half", "hooks", "inference", "views", "anomaly", "saved", "lazy", "reshaped"}, "names": {"formal"}, "edges": {"hooks", "anomaly", "saved", "lazy"}, "source_lines": {"versions", "anomaly", "conjugate_views", "saved"}, "versions": {"conjugate_views", "saved"},
}


@pytest.mark.parametrize("name", MODULES)
def test_the_core_works_without(name):
    "Nodes, rules and the walk pass their checks though the module of a layer cannot be imported."
    path = torch.__path__[0]
    program = CORE.format(name=name, path=path, others=MODULES, least=len(MODULES) - 1 - len(BELOW.get(name, ())))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "ok", done.stderr[-2000:]


def test_the_order_names_every_layer_once():
    assert len(set(ORDER)) == len(ORDER) and set(LAYERS.plugged) == set(ORDER)
    assert [layer.name for layer in LAYERS.ordered()] == list(ORDER)


def test_the_layer_shown_to_contributors_works_as_it_stands():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S)
    shown = next(b for b in blocks if "(Layer):" in b)
    x = torch.tensor([1., 2.], requires_grad=True)
    scope = {"step": lambda: (x * x * 3).sum().backward()}
    exec(shown, scope)
    counts = scope["products"]
    assert (counts.forward, counts.backward) == (4, 6) and not LOCAL.modes.own


SHOWN = """
import numpy as np
from autograd_nb.graph.op import REGISTRY
from autograd_nb.layers.forward import tangent
from autograd_nb.ops import pointwise
import autograd_nb as torch
scope = {{**vars(pointwise.declaring), **vars(pointwise), "xp": np}}
for block in {blocks!r}: exec(block, scope)
rng = np.random.default_rng(0)
for name, value, slope in (("exp", np.exp, np.exp), ("log1mexp", lambda x: np.log(1 - np.exp(x)), lambda x: np.exp(x) / (np.exp(x) - 1))):
    op = REGISTRY[name]
    for make, in op.samples:
        x = torch.tensor(make(rng), requires_grad=True)
        out = op(x)
        out.sum().backward()
        assert np.allclose(out.detach().numpy(), value(x.detach().numpy())) and np.allclose(x.grad.numpy(), slope(x.detach().numpy())), name
        t = np.ones(x.shape)
        assert np.allclose(tangent(op, (t,), (x.detach().numpy(),), out.detach().numpy(), {{}}), slope(x.detach().numpy())), name
print("ok")
"""


def test_the_operations_shown_to_contributors_work_as_they_stand():
    "In a process of their own, as they define `exp` afresh."
    blocks = re.findall(r"```python\n#\| export\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S)
    assert [b.count(".vjp(") for b in blocks] == [1, 1]
    done = subprocess.run([sys.executable, "-c", SHOWN.format(blocks=blocks)], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "ok", done.stderr[-2000:]


CORE_FIELDS = {"grad", "meta", "task", "own"}


def test_the_core_names_no_field_of_a_layer():
    "Each layer gives the modes the fields that it needs, in its own room; the core reads none of them."
    theirs = set(FIELDS) - CORE_FIELDS
    assert theirs >= {"saving", "observers", "profiler", "tape", "casting", "transforms"}
    for path in (ROOT / "autograd_nb" / "graph").glob("*.py"):
        if path.stem == "errors": continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            read = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("modes", "LOCAL.modes", "self") and node.attr in theirs
            assert not read and not (isinstance(node, ast.keyword) and node.arg in theirs), (path, ast.unparse(node))


def step():
    x = torch.tensor([1., 2., 3.], requires_grad=True)
    w = torch.tensor([.5, -1., 2.], dtype=torch.float64, requires_grad=True)
    ((x * w).exp() + x.sin() * 2).sum().backward()
    return [x.grad.tolist(), w.grad.tolist()]


class Asking(Computing):
    "Asks the next one."


class Functions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None): return func(*args, **(kwargs or {}))


MODES = {
    "observers": lambda: observe(lambda applied: None),
    "saved": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
    "anomaly": lambda: torch.autograd.detect_anomaly(),
    "profiler": lambda: torch.autograd.profiler.profile(),
    "overrides": Functions,
    "dispatch": Asking,
    "visible": BaseTorchDispatchMode,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("pair", [p for a, b in combinations(MODES, 2) for p in ((a, b), (b, a))], ids="-".join)
def test_two_layers_change_nothing(pair):
    "Modes that only look on leave values and gradients as they are, in whatever order they are entered."
    expected, modes = step(), [MODES[name]() for name in pair]
    with modes[0], modes[1]: found = step()
    assert found == expected == step()


def test_layers_act_in_the_order_that_is_stated():
    "Around from the outside in, told of a node from the inside out."
    seen = []

    class Watching(Layer):
        def __init__(self, name): self.name = name
        def around(self, call, inner):
            seen.append(("around", self.name))
            return inner(call)
        def recorded(self, call): seen.append(("recorded", self.name))

    with at_work(Watching("inner")), at_work(Watching("outer")): torch.ones(2) * 3
    assert seen == [("around", "outer"), ("around", "inner"), ("recorded", "inner"), ("recorded", "outer")]
    torch.ones(2) * 3
    assert len(seen) == 4 and not any(isinstance(layer, Watching) for layer in LOCAL.modes.stack().layers)


class Products(Layer):
    "Counts the multiplications of a step."
    close = True  # a look at every node

    def __init__(self): self.forward = self.backward = 0

    def recorded(self, call):
        if call.op.name == "mul": self.forward += call.results[0].size

    def runner(self, run):
        def counted(n, g, task):
            if n.op is not None and n.op.name == "mul": self.backward += len(n.positions) * g.size
            return run(n, g, task)
        return counted


def test_a_layer_of_ones_own():
    x = torch.ones(5, requires_grad=True)
    with at_work(Products()) as products: (x * x * 2.0).sum().backward()
    assert (products.forward, products.backward) == (10, 5 + 10)
    (x * x).sum().backward()
    assert (products.forward, products.backward) == (10, 15)


def settle(collect=True):
    "Let layers notice that nothing needs them any more."
    if collect: gc.collect()
    for _ in range(20): torch.ones(2) * 3
    torch.ones(2, requires_grad=True).sum().backward()


def bfloat16():
    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    (x * x).float().sum().backward()


def cast_to_bfloat16():
    x = torch.ones(3, requires_grad=True)
    x.bfloat16().sum().float().backward()


def complex_numbers():
    z = torch.ones(3, dtype=torch.complex64, requires_grad=True)
    (z * torch.ones(3)).abs().sum().backward()


def made_complex():
    x = torch.ones(4, requires_grad=True)
    (torch.fft.rfft(x) * torch.complex(torch.ones(3), x[:3])).abs().sum().backward()


def leaf_hook():
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda x: None)
    (x * 2).sum().backward()


def node_hook():
    y = torch.ones(3, requires_grad=True) * 2
    y.grad_fn.register_hook(lambda *gs: None)
    y.grad_fn.register_prehook(lambda gs: None)
    y.sum().backward()


def subclass():
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None): return super().__torch_function__(func, types, args, kwargs or {})

    class Computing(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None): raise NotImplementedError

    torch.ones(3).as_subclass(Loud) * 2


def inference():
    with torch.inference_mode():
        x = torch.ones(3) * 2
        leaf = torch.ones(3).requires_grad_()
    leaf + torch.ones(3, requires_grad=True), x + torch.ones(3, requires_grad=True)
    x.data, x[1:]


def stale_view():
    base = torch.ones(3, requires_grad=True) * 2
    with torch.no_grad(): view = base[:2]
    base.mul_(3)
    with pytest.raises(RuntimeError): view * 1


def saved_hooks():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), torch.from_numpy): y = torch.ones(3, requires_grad=True).exp()
    y.sum().backward()


def dual_numbers():
    with torch.autograd.forward_ad.dual_level():
        torch.autograd.forward_ad.unpack_dual(torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3)) * 2)


def transforms():
    torch.func.vmap(torch.func.grad(lambda x: (x * x).sum()))(torch.ones(2, 3))


def renamed():
    torch.ones(2, 3, requires_grad=True).unsafe_split(1)[0].sum().backward()


def one_mode(make):
    def use():
        with make(): step()
    return use


def device():
    sys.path.insert(0, str(ROOT / "tests"))
    import strict_arrays as strict

    from autograd_nb.arrays import cupy_backend as backend

    found, strict.devices = list(backend.library._found), 1
    backend.use(strict.library, fused=False)
    try:
        (torch.ones(3, device="cuda", requires_grad=True) * 2).sum().backward()
        assert "device" in SWITCH.guards
        settle()
        assert SWITCH.plain and not LAYERS.plugged["device"].on  # though the device is there
    finally:
        backend.use(None)
        backend.library._found[:] = found


CONCERNS = {use.__name__: use for use in (bfloat16, cast_to_bfloat16, complex_numbers, made_complex, leaf_hook, node_hook, subclass, inference, stale_view, saved_hooks, dual_numbers, transforms, renamed, device)}
CONCERNS |= {"mode " + name: one_mode(make) for name, make in MODES.items()}
CONCERNS |= {"mode autocast": one_mode(lambda: torch.autocast("cpu", torch.bfloat16)), "mode grad": one_mode(torch.enable_grad)}
EVERY_DAY = ["x * y", "x + 1", "a * b", "-x", "x.sum()", "a.exp()", "x.view(3, 1)", "(a * b).sum().backward()", "(c * 2).sum().backward()"]


def state():
    "Everything that makes an operation or a pass look closer."
    return {
        "plain": SWITCH.plain, "busy": SWITCH.busy, "guards": set(SWITCH.guards), "anomaly": SWITCH.anomaly, "general": LOCAL.modes.general,
        "at work": [layer.name for layer in LAYERS.ordered() if layer.on], "bare": LOCAL.modes.stack().bare,
    }


def frames():
    "How many functions of Python each everyday statement calls."
    x, y = torch.ones(3), torch.ones(3)
    a, b, c = (torch.ones(3, requires_grad=True) for _ in range(3))
    scope = dict(x=x, y=y, a=a, b=b, c=c)
    return {line: calls(compile(line, "everyday", "eval"), scope) for line in EVERY_DAY}


def calls(code, scope):
    eval(code, scope)  # the first time compiles
    found = []
    sys.setprofile(lambda frame, event, arg: found.append(frame.f_code.co_name) if event == "call" else None)
    try: eval(code, scope)
    finally: sys.setprofile(None)
    return found


FEW = {  # statement -> how many functions of Python it may call, its own line among them
    "w.neg_()": 7, "w.sigmoid_()": 9, "w.round_()": 8, "x.unfold(0, 2, 1)": 13, "x.storage_offset()": 3, "x.stride()": 4,
    "torch.nn.functional.gelu(e)": 6, "torch.nn.functional.hardswish(e)": 8, "torch.nn.functional.softshrink(e)": 7, "torch.special.ndtr(e)": 15,
    "torch.linalg.lu_factor(e.view(16, 8)[:8])": 46, "torch.linalg.inv(m)": 13, "torch.linalg.solve(m, m)": 16, "torch.linalg.cholesky(m)": 18,
    "torch.full((3, 4), 2.0)": 15, "torch.full_like(x, 2.0)": 9, "torch.zeros(3, requires_grad=True)": 19, "torch.arange(0, 1, 0.1)": 19,
    "torch.aminmax(x)": 27, "x.logsumexp(0)": 20, "h * h": 11, "h + 1.5": 13, "h.exp()": 12, "h @ h.t()": 33,
    "g.max(0)": 17, "g.var(0)": 19, "g.median(1)": 27, "g[i, :2]": 21, "torch.addcmul(g, g, g)": 14,
    "torch.zeros_like(x)": 8, "torch.zeros(3, dtype=torch.long)": 9, "torch.nn.functional.one_hot(i, 5)": 10, "x.quantile(0.5)": 106,
}


@pytest.mark.parametrize("statement", FEW)
def test_small_calls_take_few_functions(statement):
    pytest.importorskip("numba")
    scope = dict(x=torch.ones(3), w=torch.ones(3), a=torch.ones(3, requires_grad=True), e=torch.rand(128), torch=torch)
    scope.update(m=torch.eye(4) * 2, h=torch.ones(3, 4, dtype=torch.float16), g=torch.rand(10, 10), i=torch.arange(5))
    thread_pool.loops()
    with torch.no_grad():
        code = compile(statement, "small", "eval")
        eval(code, scope)
        found = calls(code, scope)
    assert len(found) <= FEW[statement], found


def sticking(collect=True):
    "The concerns after which, used and dropped, operations and passes are not what they were before."
    found = []
    if not collect: gc.disable()
    for name, use in CONCERNS.items():
        settle()
        before, called = state(), frames()
        assert before["plain"] and before["bare"] is None, before
        use()
        settle(collect)
        if state() != before or frames() != called: found.append((name, before, state()))
    return found


def alone(call):
    "What a function of this file returns in a process of its own: other tests may keep alive what layers look at."
    program = f"import warnings; warnings.simplefilter('ignore'); from test_layers import *; print({call})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests", capture_output=True, text=True)
    return done.stdout.strip() or done.stderr[-2000:]


def test_nothing_sticks(): assert alone("sticking()") == "[]"


def test_nothing_waits_for_the_collector():
    "What is dropped is gone, whatever was raised meanwhile; only a class, which knows itself, is left to Python's collector."
    assert alone("[name for name, *_ in sticking(collect=False)]") == "['subclass']"


ALIVE = {
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "a copy of bfloat16": lambda: copy.deepcopy(torch.ones(3, dtype=torch.bfloat16)),
    "a pickle of bfloat16": lambda: pickle.loads(pickle.dumps(torch.ones(3, dtype=torch.bfloat16))),
    "a view of bfloat16": lambda: torch.ones(3, 2, dtype=torch.bfloat16).t()[1],
    "the data of bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16).data,
    "a parameter": lambda: torch.nn.Linear(3, 1).bfloat16().weight.detach()[0],
}


@pytest.mark.parametrize("kind", ALIVE)
def test_what_is_alive_is_seen(kind):
    "However a tensor of sixteen bits came to be, its sums are of single precision as long as it lives."
    x = ALIVE[kind]()
    gc.collect()
    for _ in range(40): torch.ones(2) * 3
    torch.ones(2, requires_grad=True).sum().backward()
    assert SWITCH.guards and x.new_full((300,), 1).sum().item() == 300
    x = x.repeat(100).fill_(1)
    assert x.sum().item() == 300 and x.exp().dtype == torch.bfloat16


@pytest.mark.parametrize("make", ["x * (1 + 2j)", "torch.fft.rfft(x)[:3] * (1 + 2j)", "torch.complex(x, x) * c", "x * c", "c * x", "torch.view_as_complex(torch.stack([x, x], 1)) * c", "x.to(torch.complex64) * c", "Doubled.apply(x) * c", "torch.linalg.eigvals(torch.diag(x)) * c"])
def test_graphs_of_complex_numbers_keep_their_conjugates(make):
    "A graph whose only complex values are inside of it, though other passes run and find nothing complex alive."
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return torch.from_numpy(x.detach().numpy() * (2 + 1j)).to(torch.complex64)
        @staticmethod
        def backward(ctx, g): return (g * (2 - 1j)).real

    def gradient(others):
        x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
        c = torch.tensor([1 + 2j, -1j, 0.5 - 1j])
        out = torch.view_as_real(eval(make, dict(torch=torch, x=x, c=c, Doubled=Doubled)) + 0).sum(0)
        loss = out[0] * 2 + out[1]
        del c, out
        if others:
            gc.collect()
            for _ in range(3): torch.ones(2, requires_grad=True).sum().backward()
        loss.backward()
        return x.grad.tolist()

    z = torch.ones(1, dtype=torch.complex64, requires_grad=True)  # keeps the layer at work
    expected = gradient(False)
    del z
    assert gradient(True) == expected


def test_operations_that_make_complex_numbers_say_so():
    "An operation whose results are complex though its operands are real has the trait `new_kind`."
    for op in REGISTRY.values():
        for sample in op.samples:
            statics = sample[-1] if isinstance(sample[-1], dict) else {}
            rng = np.random.default_rng(0)
            arrays = [s(rng) if callable(s) else s for s in sample if not isinstance(s, dict)]
            if any(getattr(a, "dtype", np.dtype("f8")).kind == "c" for a in arrays): continue
            found = LAYERS.computed(op, arrays, statics)
            found = found if isinstance(found, (list, tuple)) else [found]
            if any(np.asarray(r).dtype.kind == "c" for r in found): assert op.new_kind, op
    assert {name for name, op in REGISTRY.items() if op.new_kind} >= {"to", "rfft", "eig", "eigvals", "complex_of", "view_as_complex"}


def hooks_again():
    "The gradients that a hook sees which is hung up after another was removed, and whether the first left the layer at work."
    x, seen = torch.ones(3, requires_grad=True), []
    x.register_hook(lambda g: None).remove()
    x.sum().backward()
    at_work = LAYERS.plugged["leaf_hooks"].on
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 2 + x * 3).sum().backward()
    return at_work, seen


def test_hooks_removed_and_hung_up_again():
    "A leaf without hooks needs no plan; hooks that come later see sums again."
    assert alone("hooks_again()") == "(False, [[5.0, 5.0, 5.0]])"


SHORT_CALLS = {
    "signs": lambda x, y: (x + y) * 2.37 - y / 3 - 0.1,
    "one number beside": lambda x, y: x * y[0, 0] + x * 1e5,
    "functions": lambda x, y: torch.exp(x).tanh().relu() + torch.nn.functional.gelu(y),
    "sums": lambda x, y: x.sum(1) + y.mean(1) + x.softmax(1).sum(1),
    "products of matrices": lambda x, y: x @ y.t(),
    "views": lambda x, y: x.t().reshape(-1).view(2, 6)[:, 1:] * y.flatten()[:5],
    "what repeats": lambda x, y: x + y[:1].expand(3, 4),
    "comparisons": lambda x, y: (x < y) | (x == 1),
    "another dtype beside": lambda x, y: x * torch.ones(4) + y * torch.arange(4),
    "parts": lambda x, y: x.chunk(2)[0] * y.split(2)[1] + x.unbind()[0],
    "choices": lambda x, y: torch.where(x > 0, x, y) + x.masked_fill(y > 1, 0.3) + x.clamp(0, 1),
    "several results": lambda x, y: x.max(1)[0] + torch.var_mean(y, 1)[1],
    "joined": lambda x, y: torch.cat([x, y]) + torch.stack([x, y]).reshape(6, 4),
    "converted": lambda x, y: x.float() * y.float() + y.double(),
    "neighbours": lambda x, y: torch.nextafter(x, y) + x ** 2,
}


def on_both_ways(call, dtype, grad):
    "What a call comes to where no layer but that of sixteen bits looks at it, and where an observer does: numbers, layout, node, gradients."
    found = []
    for around in (contextlib.nullcontext(), observe(lambda applied: None)):
        x, y = (torch.linspace(low, 2.9, 12).reshape(3, 4).to(dtype).requires_grad_(grad) for low in (-3, 0.2))
        with around: r = call(x, y)
        if r.requires_grad: r.float().sum().backward()
        grads = [None if v.grad is None else v.grad.float().tolist() for v in (x, y)]
        found.append((str(r.dtype), r.float().tolist(), r.stride(), r._base is None, r.grad_fn and r.grad_fn.name(), grads))
    return found


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("call", SHORT_CALLS.values(), ids=SHORT_CALLS)
def test_the_short_way_of_sixteen_bits_comes_to_the_same(call, dtype, grad):
    short, whole = on_both_ways(call, dtype, grad)
    assert short == whole


SHORT_PRODUCTS = {
    "mm": lambda t, x, y: x @ y.t(), "mv": lambda t, x, y: x @ y[0], "dot": lambda t, x, y: t.dot(x[0], y[0]),
    "linear": lambda t, x, y: t.nn.functional.linear(x, y, x[0, :3]), "bmm": lambda t, x, y: x[None] @ y.t()[None],
    "addmm": lambda t, x, y: t.addmm(y[:, :3], x, y.t()), "many": lambda t, x, y: x.repeat(1, 30) @ y.repeat(1, 30).t(),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("product", SHORT_PRODUCTS)
def test_small_products_of_sixteen_bits_are_multiplied_in_float32(product, dtype, monkeypatch):
    "Forward and backward: NumPy's products of sixteen bits are slow loops, and these have PyTorch's bits, too."
    wide, numbers = [], np.random.default_rng(0).standard_normal((2, 3, 4))
    for name in ("mm", "mv", "dot", "linear", "bmm", "addmm"):
        def kernel(*arrays, kernel=REGISTRY[name].kernel, **options):
            wide.extend(a.dtype for a in arrays if a is not None)
            return kernel(*arrays, **options)
        monkeypatch.setattr(REGISTRY[name], "kernel", kernel)

    def rule(value, widened=half.widened):
        wide.append("in the rule")
        return widened(value)

    def found(t):
        x, y = (t.tensor(v).to(getattr(t, dtype)).requires_grad_() for v in numbers)
        r = SHORT_PRODUCTS[product](t, x, y)
        monkeypatch.setattr(half, "widened", rule)
        r.backward(t.ones_like(r))
        return [v.detach().float().numpy().tolist() for v in (r, x.grad, y.grad)]

    ours = found(torch)
    assert set(wide) == {np.dtype("f4"), "in the rule"}
    assert ours == found(pytest.importorskip("torch"))


COSTS_OF_SHORT_CALLS = {
    "a sign": (lambda x: x * x, 13), "a number beside": (lambda x: x + 1.5, 15), "a function": (lambda x: x.exp(), 12),
    "a sum": (lambda x: x.sum(1), 19), "a view": (lambda x: x.t(), 13), "a conversion": (lambda x: x.float(), 17), "joined": (lambda x: torch.cat([x, x]), 21),
}


@pytest.mark.parametrize("call, most", COSTS_OF_SHORT_CALLS.values(), ids=COSTS_OF_SHORT_CALLS)
def test_recording_sixteen_bits_asks_for_hardly_more_calls(call, most):
    "Functions called for a recorded call of bfloat16: its node is made by generated code, as others are."
    x = torch.ones(3, 4, dtype=torch.bfloat16, requires_grad=True)
    call(x)
    assert calls_of(lambda: call(x)) <= most


def calls_off_the_fast_path():
    "Of a function, a method and a sign; and of the operation, which asks nobody."
    x, y, mul = torch.ones(3), torch.ones(3), REGISTRY["mul"]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return [calls_of(f) for f in (lambda: torch.mul(x, y), lambda: x.mul(y), lambda: x * y, lambda: mul.general(x, y))]


def test_nobody_is_asked_where_nobody_overrides():
    "Off the fast path, a call of a user comes to one function more than the operation does: the generated one."
    function, method, sign, applied = eval(alone("calls_off_the_fast_path()"))
    assert function == method == sign == applied + 1, (function, method, sign, applied)
