"""Leaks injected by hand are found: the chain from a variable to the tensor, its bytes, its line, and what to do."""

import gc
import warnings
import weakref
from collections import deque

import pytest
from _pace import within

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.autograd.memory import find_leaks, graph_bytes, memory_report, why_alive

pytestmark = pytest.mark.usefixtures("small_heap")


def chain_of(answer, n=0):
    "The words of one chain."
    return [f"{how} {what}" for how, what in answer.chains[n]]


def test_nothing_but_the_variable():
    x = torch.ones(3)
    answer = why_alive(x)
    assert answer.asked and not answer.garbage and answer.bytes == 12
    assert "`x`, a variable of test_nothing_but_the_variable()" in chain_of(answer)[0]


def test_losses_in_a_list():
    w = torch.ones(1000, requires_grad=True)
    losses = [(w * i).exp().sum() for i in range(3)]
    answer = why_alive(losses[1])
    first, holder, last = chain_of(answer)
    assert "`losses`" in first and holder == "is list of 3" and last.startswith("[1] tensor float32[]") and "SumBackward0" in last
    assert "test_why_alive.py:" in last and "loss.item()" in answer.advice[0]
    assert answer.bytes == 4008 and answer.nodes == 3  # the sum, what exp saved, and the number that mul saved; w is a leaf and lives anyway


@pytest.mark.parametrize(
    "wrap",
    [lambda t: {"k": [t]}, lambda t: deque([(1, t)]), lambda t: ([[t]],), lambda t: {"a": {"b": {"c": t}}}],
    ids=["dict", "deque", "tuple", "deep dict"],
)
def test_collections(wrap):
    kept = wrap(torch.ones(3, requires_grad=True).exp())
    found = next(
        t
        for t in gc.get_objects()
        if isinstance(t, torch.Tensor) and t.grad_fn is not None and type(t.grad_fn).__name__ == "ExpBackward0" and t.shape == (3,)
    )
    answer = why_alive(found)
    assert kept and any("`kept`" in chain_of(answer, i)[0] for i in range(len(answer.chains)))


def test_outputs_kept_by_a_module_hook():
    net = nn.Linear(4, 2)

    def collect():
        outputs = []
        net.register_forward_hook(lambda module, args, out: outputs.append(out))
        net(torch.ones(3, 4))
        return weakref.ref(outputs[0])

    ref = collect()
    answer = why_alive(ref())
    text = str(answer)
    assert "_forward_hooks" in text and "closure variable `outputs`" in text and "handle.remove()" in text


def test_a_tensor_hook_that_captures_its_tensor():
    x = torch.ones(3, requires_grad=True)

    def hang(y):
        y.register_hook(lambda g: y)
        return weakref.ref(y), y.grad_fn

    ref, node = hang(x * 2)
    text = str(why_alive(ref()))
    assert "the hooks of a node" in text and "closure variable `y`" in text and "A hook keeps it" in text
    assert node is not None


def test_retain_graph_in_a_loop():
    w, h = torch.ones(50, requires_grad=True), torch.zeros(50)
    for _ in range(40):
        h = (h * w).tanh()
        h.sum().backward(retain_graph=True)
    answer = why_alive(h)
    assert answer.nodes == 80 and answer.bytes >= 40 * 200 and "h = h.detach()" in answer.note
    old = h.grad_fn
    for _ in range(60):
        old = old.next_functions[0][0]
    ref = weakref.ref(old)
    del old
    answer = why_alive(ref())
    assert "`h`" in chain_of(answer)[0] and any("more nodes of the graph" in step for step in chain_of(answer))


def test_a_saved_value_is_found_through_its_node():
    x = torch.ones(300, requires_grad=True)
    y = x.exp() * 2
    array = weakref.ref(y.grad_fn.next_functions[0][0].saved[0][1])
    text = str(why_alive(array()))
    assert "`y`" in text and "saved 'out'" in text


def test_a_chain_of_a_hundred_thousand_nodes_takes_seconds():
    x = torch.ones((), requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    n = y.grad_fn
    for _ in range(99_998):
        n = n.next_functions[0][0]
    ref = weakref.ref(n)
    del n
    with within(20):
        answer = why_alive(ref())
    assert len(answer.chains[0]) < 12 and "99,99" in str(answer)


def test_attributes_closures_generators_and_class_attributes():
    class Logger:
        pass

    log = Logger()
    log.last = torch.ones(2, requires_grad=True).exp()
    ref = weakref.ref(log.last)
    assert [s.split(" ")[0] for s in chain_of(why_alive(ref()))][-1] == ".last"

    def generate():
        v = torch.ones(4, requires_grad=True).exp()
        yield weakref.ref(v)
        yield v

    generator = generate()
    assert "its variable `v`" in str(why_alive(next(generator)()))

    def outer():
        captured = torch.ones(6, requires_grad=True).exp()
        return weakref.ref(captured), lambda: captured

    ref, function = outer()
    assert "closure variable `captured`" in str(why_alive(ref())) and function is not None
    Logger.shared = torch.ones(5)
    ref = weakref.ref(Logger.shared)
    assert "class" in str(why_alive(ref())) and "Logger" in str(why_alive(ref()))


def test_exceptions_keep_variables():
    def fails():
        big = torch.ones(9, requires_grad=True).exp()
        raise ValueError(weakref.ref(big))

    try:
        fails()
    except ValueError as error:
        kept = error
    ref = kept.args[0]
    assert "traceback" in str(why_alive(ref()))


def test_a_cycle_is_told_from_a_leak():
    class Pair:
        pass

    gc.disable()
    try:
        pair = Pair()
        pair.me, pair.t = pair, torch.ones(3)
        ref = weakref.ref(pair.t)
        del pair
        answer = why_alive(ref())
    finally:
        gc.enable()
    assert answer.garbage and "cycle" in str(answer)


def test_gradients_with_graphs():
    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x**2).sum().backward(create_graph=True)
    ref = weakref.ref(x.grad)
    assert "create_graph=True" in str(why_alive(ref()))


def test_asking_keeps_nothing_alive():
    gc.collect()
    x = torch.ones(3, requires_grad=True).exp()
    ref = weakref.ref(x)
    gc.disable()
    try:
        str(why_alive(x))
        find_leaks()
        del x
        assert ref() is None
    finally:
        gc.enable()


def test_find_leaks_with_a_step():
    net = nn.Linear(4, 1)
    log = []

    def clean():
        net.zero_grad()
        loss = net(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        log.append(loss.item())

    def leaky():
        net.zero_grad()
        loss = net(torch.ones(2, 4)).pow(2).mean()
        loss.backward()
        log.append(loss)

    assert not find_leaks(clean)
    (leak,) = find_leaks(leaky)
    assert leak.count == 3 and leak.bytes > 0 and "log" in str(leak) and "item()" in leak.advice


def test_find_leaks_sees_a_graph_that_grows():
    state = {"h": torch.zeros(10)}
    w = torch.ones(10, requires_grad=True)

    def step():
        state["h"] = (state["h"] * w).tanh()
        state["h"].sum().backward(retain_graph=True)

    (leak,) = find_leaks(step)
    assert leak.count == 1 and leak.example.nodes == 8

    def mended():
        state["h"] = (state["h"].detach() * w).tanh()
        state["h"].sum().backward()

    assert not find_leaks(mended)


def test_the_report_adds_up():
    gc.collect()
    x = torch.ones(100, requires_grad=True)
    y = x.exp()
    view = y.view(10, 10)
    (y * 2).sum().backward()
    report = memory_report()
    assert sum(s.bytes for s in report) == torch.cpu.memory_allocated()
    kinds = {s.kind for s in report if s.shape in ((100,), (10, 10))}
    assert {"leaf", "gradient"} <= kinds and view is not None
    assert graph_bytes(y)[0] == 400


def test_proxies_of_what_is_gone_are_no_tensors():
    x = torch.ones(3, requires_grad=True)
    proxy = weakref.proxy(x * 2)
    find_leaks(lambda: (x * 2).sum().backward())
    memory_report()
    assert why_alive(x).asked
    with pytest.raises(ReferenceError):
        str(proxy)
