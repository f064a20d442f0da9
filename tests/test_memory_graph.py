"""Nothing outlives its use: no reference cycles, no hidden copies."""

import gc
import tracemalloc
import weakref

import pytest

import autograd_nb as torch
from autograd_nb.autograd import grad
from autograd_nb.graph.engine import walk
from autograd_nb.layers.versions import JOURNAL

NUMPY_DOMAIN = 389047  # where tracemalloc books NumPy's array data


@pytest.fixture(autouse=True)
def no_collector():
    "Reference counting alone has to return all memory."
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x * 2
        ctx.save_for_backward(x, out)
        ctx.note = "kept"
        return out

    @staticmethod
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        return g * 2 + 0 * x + 0 * out


def in_place(x):
    y = x * 1
    v = y[1:]
    v.mul_(2)
    y[0] = v[0] * 3
    return y


def hooked(x):
    y = x.exp()
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.grad_fn.metadata["note"] = 1
    y.grad_fn.register_hook(lambda a, b: None)
    return y


def stepped(x):
    y = x.exp() * x
    list(walk(y.sum(), retain_graph=True))
    return y


def second_order(x):
    (g,) = grad((x**3).sum(), x, create_graph=True)
    return g * x.exp()


# name -> a function of a leaf that builds a graph in some way
BUILDERS = {
    "pointwise": lambda x: (x.exp() * x + x.tanh()).relu(),
    "views": lambda x: x.view(2, 2).T.reshape(-1)[1:3],
    "several outputs": lambda x: (lambda a, b: a * b)(*x.chunk(2)),
    "indexing": lambda x: x[[0, 0, 1]] * x[x > 0].sum(),
    "products": lambda x: x.view(2, 2) @ x.view(2, 2),
    "custom function": Double.apply,
    "in place": in_place,
    "hooked": hooked,
    "stepped": stepped,
    "second order": second_order,
    "concatenation": lambda x: torch.cat([x, torch.stack([x, x]).sum(0)]),
    "same node twice": lambda x: (lambda y: y * y + y)(x.exp()),
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize("use", ["drop", "backward", "retained backward", "failed backward", "grad with create_graph"])
def test_all_memory_returns_without_the_collector(build, use):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = build(x)
    watched = [weakref.ref(x), weakref.ref(y), weakref.ref(y.grad_fn), weakref.ref(x._array), weakref.ref(y._array)]
    if use == "backward":
        y.sum().backward()
    elif use == "retained backward":
        y.sum().backward(retain_graph=True)
        y.sum().backward()
    elif use == "failed backward":
        y.sum().backward()
        with pytest.raises(RuntimeError):
            y.backward()
    elif use == "grad with create_graph":
        (g,) = grad((y * y).sum(), x, create_graph=True)
        watched += [weakref.ref(g), weakref.ref(g.grad_fn)] if g.grad_fn else []
        del g
    gradient = weakref.ref(x.grad) if x.grad is not None else None
    del x, y
    assert [w() for w in watched] == [None] * len(watched)
    assert gradient is None or gradient() is None


def test_backward_with_create_graph_makes_the_cycle_that_pytorch_warns_of_and_none_once_the_grad_is_dropped():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    watched = weakref.ref(x._array)
    x.grad = None
    del x
    assert watched() is None


def test_an_intermediate_that_no_rule_needs_dies_at_once():
    x = torch.ones(5, requires_grad=True)
    y = x * 2
    array = weakref.ref(y._array)
    z = y + 1
    del y
    assert array() is None and z.requires_grad


def test_saved_values_die_in_backward():
    x = torch.ones(5, requires_grad=True)
    y = x.exp()
    saved = weakref.ref(y.grad_fn.saved[0][1])
    z = (y * 2).sum()
    del y
    assert saved() is not None
    z.backward()
    assert saved() is None and z.grad_fn is not None


def test_views_do_not_pile_up_in_their_base():
    base = torch.zeros(4)
    for _ in range(10_000):
        base[1:].add_(1)
    views = base._meta.views
    assert views is None or len(views) < 1000
    assert base[1].item() == 10_000


def test_the_journal_forgets_dead_storages():
    before = len(JOURNAL.by_storage)
    for _ in range(100):
        torch.zeros(3).add_(1)
    assert len(JOURNAL.by_storage) <= before + 1


def test_a_reused_address_does_not_inherit_writes():
    "Arrays come and go at the same addresses: a write to a dead one must not spoil a living one."
    for _ in range(1000):
        t = torch.zeros(3)
        t.add_(1)
        del t
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        assert y._version == 0
        y.sum().backward()


@pytest.mark.usefixtures("nothing_is_compiled")
def test_training_does_not_grow():
    torch.manual_seed(0)
    w = torch.randn(50, 50, requires_grad=True)
    x = torch.randn(20, 50)

    def step():
        loss = torch.tanh(x @ w).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
            w.grad = None

    def living():
        "Objects that the collector knows, and bytes of array data."
        numbers = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY_DOMAIN)])
        return len(gc.get_objects()), sum(trace.size for trace in numbers.traces)

    tracemalloc.start()
    try:
        for _ in range(20):
            step()
        before = living()
        for _ in range(200):
            step()
        after = living()
    finally:
        tracemalloc.stop()
    assert after[0] - before[0] < 50 and after[1] <= before[1]


def test_accumulation_adds_in_place():
    "The second backward needs no second gradient array."
    x = torch.ones(1000, requires_grad=True)
    (x * 2).sum().backward()
    address = x.grad.data_ptr()
    for _ in range(3):
        (x * 2).sum().backward()
    assert x.grad.data_ptr() == address
