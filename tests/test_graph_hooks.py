"""Hooks on tensors, nodes and modules, hooks that take charge of saved values, hooks for several tensors, edges; in the end the same programs under PyTorch."""

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
from _compare import assert_same_output, programs

import autograd_nb as torch
from autograd_nb.autograd.graph import (
    GradientEdge,
    Node,
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    get_gradient_edge,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from autograd_nb.graph.modes import LOCAL

grad = torch.autograd.grad


def leaf(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).uniform(0.5, 1.5, shape).tolist(), dtype=torch.float64, requires_grad=True)


def same(t):
    return t.detach().clone()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x**3
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * 3 * y / x


FUNCTIONS = {
    "product": lambda x, w: x * w,
    "product with a number": lambda x, w: x * 3.0 * w,
    "broadcast": lambda x, w: x * w[0],
    "matrix product": lambda x, w: x @ w,
    "result saved": lambda x, w: x.exp() + w.tanh(),
    "number saved": lambda x, w: x**3 + w,
    "variadic": lambda x, w: torch.cat([x * w, w]),
    "several outputs": lambda x, w: sum(t.sum() for t in torch.linalg.qr(x)) + w.sum() if hasattr(torch, "linalg") else x * w,
    "mixed dtypes": lambda x, w: x.float() * w,
    "indices": lambda x, w: x[torch.tensor([0, 1])] * w,
    "maximum": lambda x, w: (x * w).max(0)[0],
    "in place": lambda x, w: x.clone().mul_(w),
    "in place, result saved": lambda x, w: (x * w).exp_(),
    "in place on itself": lambda x, w: (lambda a: a.add_(a) * w)(x.clone()),
    "through a view": lambda x, w: (lambda a: (a[0].mul_(w[0]), a)[1])(x.clone()),
    "custom function": lambda x, w: Cube.apply(x * w),
    "one input only": lambda x, w: x * w.detach() + w * x.detach(),
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients_are_those_without_hooks(f):
    x, w = leaf(2, 2), leaf(2, 2, seed=1)
    expected = grad(f(x, w).sum(), (x, w))
    packed, unpacked = [], []

    def pack(t):
        packed.append(t)
        return [t.detach().numpy().copy()]

    def unpack(held):
        unpacked.append(held)
        return torch.tensor(held[0].tolist(), dtype={"float64": torch.float64, "float32": torch.float32}.get(str(held[0].dtype), torch.int64))

    with saved_tensors_hooks(pack, unpack):
        y = f(x, w).sum()
    assert all(isinstance(t, torch.Tensor) for t in packed)
    for a, b in zip(grad(y, (x, w), retain_graph=True), expected):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    first = grad(y, (x, w), create_graph=True)
    for a, b in zip(first, expected):
        np.testing.assert_allclose(a.detach().numpy(), b.numpy(), rtol=1e-6)
    plain = grad(sum(g.sum() for g in grad(f(x, w).sum(), (x, w), create_graph=True)), (x, w), allow_unused=True, materialize_grads=True) if any(g.requires_grad for g in first) else ()
    if plain:
        for a, b in zip(grad(sum(g.sum() for g in first), (x, w), allow_unused=True, materialize_grads=True), plain):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    if packed:
        assert unpacked
    for a, b in zip(grad(f(x, w).sum(), w), expected[1:]):
        np.testing.assert_allclose(a.numpy(), b.numpy())


def test_values_are_freed_after_backward_and_kept_with_retain_graph():
    x = leaf(3)
    with saved_tensors_hooks(same, lambda t: t):
        y = (x.exp() * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert y.grad_fn.next_functions[0][0].freed
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_the_graph_lets_go_of_the_original():
    x = leaf(3)
    with saved_tensors_hooks(lambda t: t.detach().numpy().tolist(), lambda v: torch.tensor(v, dtype=torch.float64)):
        a = x * 2
        y = a * a
    ref = weakref.ref(a._array)
    del a
    gc.collect()
    assert ref() is None
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 8 * x.detach().numpy())


def test_nothing_is_packed_where_nothing_is_saved():
    calls = []
    x = leaf(2)
    with saved_tensors_hooks(calls.append, lambda v: v):
        x + x
        with torch.no_grad():
            x * x
        x.detach() * 2
        Cube.apply(x.detach())
    assert not calls


def test_innermost_pair_applies_and_the_outer_returns():
    seen = []
    x = leaf(2)
    mark = lambda name: saved_tensors_hooks(lambda t: (seen.append(name), t.detach())[1], lambda t: t)
    with mark("outer"):
        x.exp()
        with mark("inner"):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["outer", "inner", "outer"]
    assert LOCAL.modes.saving is None and not LOCAL.modes.counted


def test_hooks_as_decorator():
    seen = []
    x = leaf(2)

    @saved_tensors_hooks(lambda t: (seen.append(1), t.detach())[1], lambda t: t)
    def f(x):
        return x.exp()

    f(x).sum().backward()
    x.exp()
    assert seen == [1]


def test_hooks_of_one_thread_do_not_touch_another():
    seen, x = [], leaf(2)
    with saved_tensors_hooks(lambda t: seen.append(t), lambda t: t):
        thread = threading.Thread(target=lambda: x.exp())
        thread.start()
        thread.join()
    assert not seen


def test_faulty_hooks_leave_a_usable_state():
    x = leaf(2)

    def fail(_):
        raise KeyError("from the hook")

    with pytest.raises(KeyError), saved_tensors_hooks(fail, same):
        x.exp()
    assert LOCAL.modes.saving is None and LOCAL.modes.grad and not LOCAL.modes.counted
    with saved_tensors_hooks(same, fail):
        y = x.exp().sum()
    for _ in range(2):
        with pytest.raises(KeyError):
            y.backward()
    assert x.grad is None and LOCAL.modes.grad and not LOCAL.modes.counted
    with saved_tensors_hooks(lambda t: 1, lambda v: v):
        y = x.exp().sum()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor but got result of type int"):
        y.backward()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        y.grad_fn.next_functions[0][0]._saved_result
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"), saved_tensors_hooks(lambda t: t.mul_(2), same):
        (x * 1).exp()
    x.exp().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.detach().numpy()))


def test_what_hooks_compute_is_not_recorded():
    x, depth = leaf(2), []

    def pack(t):
        depth.append(1)
        assert not (t * t).requires_grad
        return t * 1

    with saved_tensors_hooks(pack, lambda t: t):
        y = x.exp()
    assert depth == [1]
    y.sum().backward()


def test_hooks_on_one_saved_value():
    x = leaf(2)
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.detach() * 2, lambda t: t)
    np.testing.assert_allclose(y.grad_fn._saved_result.detach().numpy(), 2 * np.exp(x.detach().numpy()))
    with pytest.raises(RuntimeError, match="whose hooks have already been set"):
        y.grad_fn._raw_saved_result.register_hooks(same, same)
    raw = y.grad_fn._raw_saved_result
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(x.detach().numpy()))
    with pytest.raises(RuntimeError, match="after it has been freed"):
        raw.register_hooks(same, same)
    with pytest.raises(TypeError):
        x.exp().grad_fn._raw_saved_result.register_hooks(1, same)

    z = Cube.apply(x)
    z.grad_fn._raw_saved_tensors[1].register_hooks(lambda t: t.detach() * 3, lambda t: t)
    np.testing.assert_allclose(grad(z.sum(), x)[0].numpy(), 9 * x.detach().numpy() ** 2)


def test_save_on_cpu():
    for pin in (False, True):
        x = leaf(2)
        with save_on_cpu(pin_memory=pin):
            y = (x * x).sum()
        y.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_disabled_hooks():
    with disable_saved_tensors_hooks("outer"):
        with pytest.raises(RuntimeError, match="outer"), saved_tensors_hooks(same, same):
            pass
        with disable_saved_tensors_hooks("inner"):
            with pytest.raises(RuntimeError, match="inner"), save_on_cpu():
                pass
        with pytest.raises(RuntimeError, match="outer"), save_on_cpu():
            pass
    with saved_tensors_hooks(same, same):
        with pytest.raises(RuntimeError, match="too late"), disable_saved_tensors_hooks("too late"):
            pass
    with save_on_cpu():
        pass


def test_mutation_of_saved_tensors():
    x = leaf(2)
    a = x * 1
    y = (a * a).sum()
    a.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    x.grad = None
    with allow_mutation_on_saved_tensors() as context:
        a = x * 1
        y = (a * a).sum()
        a.zero_()
        assert len(context.cloned) == 1
        with pytest.raises(RuntimeError, match="cannot be nested"), allow_mutation_on_saved_tensors():
            pass
        y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_tensors_with_hooks_may_go_at_any_moment_of_a_pass():
    "The collector is let loose at each of the first objects that a pass makes, in turn."
    a, thresholds = leaf(2), gc.get_threshold()
    a.register_hook(lambda g: g)
    for after in range(60):
        y = (a * 1).sum()
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                gone = leaf(2)
                gone.register_hook(lambda g: g)
                gone.itself = gone
            del gone
            gc.set_threshold(gc.get_count()[0] + after)
            gc.enable()
            y.backward()
        finally:
            gc.set_threshold(*thresholds)
            gc.enable()
    assert a.grad.tolist() == [60.0, 60.0]


# Several tensors -----------------------------------------------------------------------------------------------


def test_multi_grad_hook_all():
    a, b, c = leaf(2), leaf(2, seed=1), leaf(2, seed=2)
    m = a * b
    calls = []
    handle = register_multi_grad_hook((a, b, c, m), calls.append)
    (m * 2).sum().backward()
    assert [g is None for g in calls[0]] == [False, False, True, False]
    np.testing.assert_allclose(calls[0][0].numpy(), 2 * b.detach().numpy())
    ((a + b) * c).sum().backward()
    assert [g is None for g in calls[1]] == [False, False, False, True]
    grad((a * c).sum(), c)
    assert len(calls) == 3 and [g is None for g in calls[2]] == [True, True, False, True]
    handle.remove()
    (a * b).sum().backward()
    assert len(calls) == 3


def test_multi_grad_hook_any():
    a, b = leaf(2), leaf(2, seed=1)
    calls = []
    with register_multi_grad_hook((a, b, torch.ones(2)), calls.append, mode="any"):
        for k in range(1, 4):
            (a * b).sum().backward()
            assert len(calls) == k
        b.sum().backward()
        assert len(calls) == 4
    (a * b).sum().backward()
    assert len(calls) == 4
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        register_multi_grad_hook((a,), calls.append, mode="some")


def test_multi_grad_hook_after_a_failed_pass():
    a, b = leaf(2), leaf(2, seed=1)
    calls = []
    register_multi_grad_hook((a, b), calls.append)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise KeyError("in backward")

    late = Fails.apply(b)
    with pytest.raises(KeyError):
        (a.sum() + late.sum()).backward()
    (a * b).sum().backward()
    assert len(calls) == 1 and all(g is not None for g in calls[0])


def test_multi_grad_hook_in_nested_passes_and_threads():
    a, b = leaf(2), leaf(2, seed=1)
    calls = []
    register_multi_grad_hook((a, b), calls.append)

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                (a * b).sum().backward()
            return g

    (a.sum() + Nested.apply(b).sum()).backward()
    assert len(calls) == 2
    calls.clear()
    threads = [threading.Thread(target=lambda: [(a * b).sum().backward() for _ in range(20)]) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(calls) == 60 and all(g is not None for gs in calls for g in gs)


def test_edges_and_nodes():
    x = leaf(2)
    y = x * 2
    edge = get_gradient_edge(y)
    assert isinstance(edge, GradientEdge) and edge.node is y.grad_fn and edge.output_nr == 0
    assert isinstance(y.grad_fn, Node) and issubclass(type(y.grad_fn), Node)
    assert get_gradient_edge(torch.stack([x, x]).unbind()[1]).output_nr == 1
    with pytest.raises(RuntimeError, match="not possible to get the gradient edge"):
        get_gradient_edge(torch.ones(1))
    assert torch.autograd.graph.saved_tensors_hooks is saved_tensors_hooks


# The same programs under PyTorch -------------------------------------------------------------------------------

SETUP = """
graph = torch.autograd.graph
x = torch.tensor([1., 2.], requires_grad=True)
w = torch.tensor([3., 4.], requires_grad=True)
log = []
def noting(pack=lambda t: t.detach(), unpack=lambda t: t):
    def p(t):
        log.append(('pack', t.tolist(), t.requires_grad, t.is_leaf))
        return pack(t)
    def u(v):
        log.append('unpack')
        return unpack(v)
    return graph.saved_tensors_hooks(p, u)
"""
PROGRAMS = {
    "a square": "with noting(): y = x * x\ny.sum().backward(); print(log, x.grad)",
    "result saved": "with noting(): y = x.exp()\ny.sum().backward(); print(log, x.grad)",
    "changed values": "with noting(lambda t: t * 2): y = x.exp()\ny.sum().backward(); print(x.grad)",
    "power": "with noting(): y = x ** 3\nprint(log); y.sum().backward(); print(log, x.grad)",
    "matrix": "with noting(): y = torch.outer(x, w) @ w\nprint(len(log)); y.sum().backward(); print(x.grad, w.grad)",
    "a number is not packed": "with noting(): y = x * 2\nprint(log)",
    "second derivative": "with noting(): y = (x ** 3).sum()\ng, = torch.autograd.grad(y, x, create_graph=True); print(g.detach(), torch.autograd.grad(g.sum(), x))",
    "saved attribute": "with noting(lambda t: t.detach() * 10): y = x.exp()\nprint(y.grad_fn._saved_result)",
    "nested": "with noting(lambda t: t * 2):\n    with noting(lambda t: t * 3): a = x.exp()\n    b = x.exp()\n(a + b).sum().backward(); print(x.grad)",
    "disabled": "def f():\n    with graph.disable_saved_tensors_hooks('none today'):\n        with graph.save_on_cpu(): pass\nattempt(f)",
    "not a tensor": "with noting(unpack=lambda v: 3): y = x.exp()\nattempt(y.sum().backward)",
    "pack writes": "def f():\n    with noting(lambda t: t.add_(1)): (x * 1).exp()\nattempt(f)",
    "multi, all": "graph.register_multi_grad_hook((x, w), lambda gs: print(gs)); (x * w).sum().backward(); x.sum().backward()",
    "multi, any": "graph.register_multi_grad_hook((x, w), lambda g: print(g), mode='any'); (x + w).sum().backward(); x.sum().backward()",
    "multi, mode": "attempt(lambda: graph.register_multi_grad_hook((x, w), print, mode='most'))",
    "what hooks keep stays, leaf": "x.register_hook(log.append); (x * w).sum().backward(); x.sum().backward(); print(log, x.grad)",
    "what hooks keep stays, all": "graph.register_multi_grad_hook((x, w), log.append); (x * w).sum().backward(); x.sum().backward(); print(log, x.grad)",
    "what hooks keep stays, any": "graph.register_multi_grad_hook((x, w), log.append, mode='any'); (x * w).sum().backward(); x.sum().backward(); print(log, x.grad)",
    "what hooks keep stays, node": "node = x.expand_as(x).grad_fn.next_functions[0][0]; node.register_prehook(log.append); (x * w).sum().backward(); x.sum().backward(); print(log, x.grad)",
    "raw saved": "y = x.exp(); y.grad_fn._raw_saved_result.register_hooks(lambda t: t * 2, lambda t: t); y.sum().backward(); print(x.grad)",
    "raw saved twice": "y = x.exp(); r = y.grad_fn._raw_saved_result; r.register_hooks(lambda t: t * 2, lambda t: t); attempt(lambda: r.register_hooks(lambda t: t, lambda t: t))",
    "raw saved, freed": "y = x.exp(); r = y.grad_fn._raw_saved_result; y.sum().backward(); attempt(lambda: r.register_hooks(lambda t: t, lambda t: t))",
}
PROGRAMS = {name: SETUP + program for name, program in PROGRAMS.items()} | programs("hooks") | programs("gradients_and_hooks") | programs("saved_tensors") | programs("mutation") | programs("module_hooks")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_print_the_same(program):
    assert assert_same_output(program)


def test_edges_stand_for_tensors():
    x = leaf(3)
    y = x * 2
    parts = torch.stack([y, y * 3]).unbind()
    z = (parts[0] * parts[1]).sum()
    for t in (x, y, *parts):
        np.testing.assert_allclose(grad(z, get_gradient_edge(t), retain_graph=True)[0].numpy(), grad(z, t, retain_graph=True)[0].numpy())
    start = torch.ones(3, dtype=torch.float64)
    np.testing.assert_allclose(grad(get_gradient_edge(y), x, start, retain_graph=True)[0].numpy(), 2 * np.ones(3))
    torch.autograd.backward(get_gradient_edge(parts[1]), start, inputs=get_gradient_edge(x))
    np.testing.assert_allclose(x.grad.numpy(), 6 * np.ones(3))


# What lies behind a node -----------------------------------------------------------------------------------------


def _drawn(node, leaves):
    "A graph as text: names of nodes, and of leaves, in the order of `next_functions`."
    if node is None:
        return "-"
    if node.name().endswith("AccumulateGrad"):
        return next(name for name, t in leaves.items() if t is node.variable)
    return f"{node.name()}({', '.join(_drawn(n, leaves) for n, _ in node.next_functions)})"


SHAPES = """
F.linear(x, w); F.linear(x, w, b); F.linear(x[None], w); F.linear(x[None], w, b); F.linear(b, w); F.linear(b, w, b); F.linear(x.detach(), w, b); F.linear(x, w.detach(), b); F.linear(x, w, b.detach()); F.linear(x[None].detach(), w, b)
x[None] @ w[None]; F.rrelu(x, training=True); F.max_pool1d(x[None], 1); F.avg_pool1d(x[None], 1); torch.triangular_solve(x, w)[0]; x.clamp(min=w); torch.complex(b, b).imag; torch.complex(b, b).real; torch.complex(b, b).conj(); F.cross_entropy(x, w.softmax(-1))
"""


@pytest.mark.parametrize("call", [c.strip() for line in SHAPES.strip().splitlines() for c in line.split(";")])
def test_the_graph_is_seen_as_pytorch_s(call):
    pytorch = pytest.importorskip("torch")

    def tried(lib):
        leaves = {name: lib.tensor(v, requires_grad=True) for name, v in dict(x=[[1.0, 2.0], [3.0, 5.0]], w=[[2.0, 1.0], [0.5, 3.0]], b=[0.3, 0.4]).items()}
        out = eval(call, dict(torch=lib, F=lib.nn.functional, **leaves))
        return _drawn(out.grad_fn, leaves), out.grad_fn.next_functions[0][0] is out.grad_fn.next_functions[0][0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tried(torch) == tried(pytorch)


# call -> the shapes of its leaves
ORDERS = {
    "F.linear(a, b, c)": [(4, 3), (2, 3), (2,)], "F.linear(a, b)": [(4, 3), (2, 3)], "F.linear(F.relu(F.linear(a, b, c)), d, e)": [(4, 3), (2, 3), (2,), (2, 2), (2,)], "torch.addmm(a, b, c)": [(2, 2), (2, 3), (3, 2)], "a @ b + c": [(2, 3), (3, 2), (2,)],
    "c + a @ b": [(2, 3), (3, 2), (2,)], "torch.addmv(a, b, c)": [(2,), (2, 3), (3,)], "torch.baddbmm(a, b, c)": [(1, 2, 2), (1, 2, 3), (1, 3, 2)], "F.conv1d(a, b, c)": [(1, 2, 5), (3, 2, 2), (3,)], "F.conv_transpose2d(a, b, c)": [(1, 2, 5, 5), (2, 3, 2, 2), (3,)],
    "F.rms_norm(a, (3,), b)": [(4, 3), (3,)], "a * b + c * a": [(2,), (2,), (2,)], "torch.lerp(a, b, c)": [(2,), (2,), (2,)], "torch.where(a > 0.4, b, c)": [(2,), (2,), (2,)], "torch.stack([a, b, c])": [(2,), (2,), (2,)], "F.mse_loss(a, b)": [(2,), (2,)],
    "F.bilinear(a, b, c, d)": [(2, 3), (2, 3), (2, 3, 3), (2,)], "F.scaled_dot_product_attention(a, b, c)": [(1, 1, 2, 2)] * 3, "torch.linalg.solve(a, b)": [(2, 2), (2, 2)], "torch.cdist(a, b)": [(2, 3), (2, 3)], "F.prelu(a, b)": [(2, 3), (1,)],
    "torch.rnn_tanh_cell(a, b, c, d, e, f)": [(2, 3), (2, 2), (2, 3), (2, 2), (2,), (2,)], "torch.gru_cell(a, b, c, d, e, f)": [(2, 3), (2, 2), (6, 3), (6, 2), (6,), (6,)], "torch.lstm_cell(a, (b, b), c, d, e, f)[0]": [(2, 3), (2, 2), (8, 3), (8, 2), (8,), (8,)],
}


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("call", ORDERS)
def test_hooks_of_leaves_run_in_pytorch_s_order(call, kind):
    pytorch = pytest.importorskip("torch")

    def ran(lib):
        leaves, log = {n: (lib.arange(float(np.prod(s))).view(s) + 1).div_(10).requires_grad_() for n, s in zip("abcdef", ORDERS[call])}, []
        for name, t in leaves.items():
            getattr(t, kind)(lambda g, name=name: log.append(name))
        eval(call, dict(torch=lib, F=lib.nn.functional, **leaves)).sum().backward()
        return "".join(log)

    assert ran(torch) == ran(pytorch)


def test_hooks_of_linear_get_their_gradients_in_the_order_of_next_functions():
    x, w, b = torch.ones(1, 2, requires_grad=True), torch.ones(3, 2, requires_grad=True), torch.ones(3, requires_grad=True)
    node, seen = torch.nn.functional.linear(x, w, b).grad_fn, []
    handle = node.register_hook(lambda given, got: seen.append([tuple(g.shape) for g in given]))
    out = torch.nn.functional.linear(x, w, b)
    handle.remove()
    out.grad_fn.register_hook(lambda given, got: (given[0] * 2, given[1] * 3, given[2] * 5))
    out.grad_fn.register_hook(lambda given, got: seen.append([tuple(g.shape) for g in given]))
    out.sum().backward()
    assert seen == [[(3,), (1, 2), (3, 2)]]
    assert b.grad.tolist() == [2.0] * 3 and x.grad.tolist() == [[9.0, 9.0]] and w.grad.tolist() == [[5.0, 5.0]] * 3
    with pytest.raises(NotImplementedError, match="no gradient passes through it"):
        out.grad_fn.next_functions[2][0].register_hook(print)


def test_nodes_called_by_hand_give_the_gradients():
    "As an engine of one's own does, which goes along `next_functions`."
    layers, x = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)), torch.ones(4, 2)

    def pushed(node, g):
        if hasattr(node, "variable"):
            found[node.variable] = found.get(node.variable, 0) + g
            return
        out = node(g)
        for (below, _), part in zip(node.next_functions, out if isinstance(out, tuple) else (out,)):
            if below is not None:
                pushed(below, part)

    found, loss = {}, torch.nn.functional.layer_norm(layers(x), (2,)).square().sum()
    pushed(loss.grad_fn, torch.ones(()))
    loss.backward()
    for p in layers.parameters():
        assert torch.allclose(found[p], p.grad)
