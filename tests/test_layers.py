"""Layers: each can be taken away, any two work together, and what they did ends with them."""

import subprocess
import sys
from itertools import combinations

import pytest
from conftest import ROOT

import autograd_nb as torch
import autograd_nb.utils.capture  # noqa: F401 (plugs its layer in)
from autograd_nb.graph.modes import LAYERS, LOCAL, SWITCH, Layer, at_work
from autograd_nb.layers.dispatch import Computing
from autograd_nb.layers.observers import observe
from autograd_nb.layers.order import ORDER
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
    "arguments": {"codegen", "device"}, "codegen": {"device"}, "extras": {"inference"}, "fast": {"codegen", "device"}, "forward": {"device"},
    "hooks": {"anomaly", "saved", "lazy"}, "names": {"formal"}, "source_lines": {"versions", "anomaly", "saved"}, "versions": {"saved"},
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


def test_nothing_sticks():
    "After modes, hooks and a device's absence, an operation is again its generated code and nothing else."
    before = SWITCH.busy
    for make in MODES.values():
        with make(): torch.ones(2) * 3
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: g).remove()
    assert SWITCH.busy == before and not LOCAL.modes.special and not LOCAL.modes.stack().close
