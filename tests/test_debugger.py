"The debugger runs the engine itself: without edits its gradients are those of backward(), and every edit arrives where it was sent."

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.viz.debugger import Debugger, breakpoint_for
from autograd_nb.widgets import debug


def network(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.randn(4, 3)
    return net, lambda: net(x).softmax(-1).log().mean() + net[0].weight.square().sum()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["step", "step", "step", "back", "run"]), max_size=30), st.integers(0, 1000))
def test_any_walk_that_finishes_without_edits_is_backward(moves, seed):
    net, loss = network(seed)
    loss().backward()
    expected = [p.grad.numpy().tobytes() for p in net.parameters()]
    net.zero_grad()
    d = Debugger(loss(), retain_graph=True, names={"net": net}).stop_at("relu", "norm > 0.5")
    for move in moves:
        getattr(d, move)()
    d.finish()
    assert [p.grad.numpy().tobytes() for p in net.parameters()] == expected


def test_back_restores_what_leaves_held():
    x = torch.tensor(2.0, requires_grad=True)
    x.grad = torch.tensor(7.0)
    d = Debugger(x * x * 3, names={"x": x})
    while d.step() is not None and not hasattr(d.at.node, "variable"):
        pass
    assert x.grad.item() == 7 + 12
    d.back()
    assert x.grad.item() == 7
    d.finish()
    assert x.grad.item() == 19


def test_edits_travel():
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    d = Debugger((x * w).sum(), names={"x": x, "w": w}).stop_at("MulBackward0")
    d.run()
    assert np.array_equal(d.at.outgoing[0], [3, 4])
    d.edit(0, [10.0, 20.0]).edit(1, 0.5).finish()
    assert x.grad.tolist() == [10, 20] and w.grad.tolist() == [0.5, 0.5]


def test_what_cannot_be_edited():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    d = Debugger((x * 2).sum())
    with pytest.raises(RuntimeError, match="take a step first"):
        d.edit(0, 1.0)
    d.step()
    d.step()
    with pytest.raises(ValueError, match="no gradient goes to input 1"):
        d.edit(1, 1.0)
    with pytest.raises(ValueError, match=r"shape \(2,\), the new one \(3,\)"):
        d.edit(0, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "what, node",
    [("mean", "MeanBackward0"), ("LogBackward0", "LogBackward0"), ("3", "ReluBackward0"), ("max > 1.5", None), ("not finite", None)],
)
def test_breakpoints(what, node):
    net, loss = network(1)
    d = Debugger(loss(), names={"net": net}).stop_at(what)
    stop = d.run()
    if node is None:
        assert stop is None or stop.largest > 1.5
    else:
        assert stop.node.name() == node and d.reason == f"stopped at {what}"


def test_breakpoints_of_other_kinds():
    x = torch.tensor(2.0, requires_grad=True)
    y = x.exp()
    z = y * 3
    d = Debugger(z).stop_at(y.grad_fn)
    assert d.run().node is y.grad_fn and d.reason == "stopped at a breakpoint"
    d = Debugger((x.exp() * 3)).stop_at(lambda stop: stop.number == 2)
    assert d.run().number == 2
    nan = torch.tensor(0.0, requires_grad=True)
    assert Debugger(nan.sqrt() * 0).stop_at("not finite").run().node.name() == "SqrtBackward0"
    for bad in ("norm >", "two words", 3):
        with pytest.raises(ValueError):
            breakpoint_for(bad)


def test_the_graph_is_freed_or_kept_as_asked():
    x = torch.tensor(2.0, requires_grad=True)
    y = x.exp()
    Debugger(y).finish()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    y = x.exp()
    d = Debugger(y, retain_graph=True).finish()
    d.back()
    d.finish()
    y.backward()
    d = Debugger(x.exp()).finish()
    with pytest.raises(RuntimeError, match="graph is freed"):
        d.back()


def test_errors_of_backward():
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        Debugger(torch.ones(3, requires_grad=True) * 2).step()
    with pytest.raises(TypeError):
        Debugger(3.0)


def test_pictures_of_large_graphs_show_what_is_near():
    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(300):
        y = y * 1.01
    d = Debugger(y)
    for _ in range(5):
        d.step()
    assert "around the present one" in d.svg() and len(d.svg()) < 40_000


def test_the_panel_does_what_its_buttons_say():
    net, loss = network(2)
    p = debug(loss(), "tanh", names={"net": net})
    p.buttons["run"].click()
    assert "TanhBackward0" in p.words.value and "stopped at tanh" in p.words.value
    p.amount.value = 0.0
    p.apply.click()
    p.buttons["finish"].click()
    assert net[0].bias.grad.abs().sum() == 0 and "The pass is over" in p.words.value
    assert p.buttons["step"].disabled and p.buttons["back"].disabled
    q = debug(loss(), names={"net": net})
    q.apply.click()
    q.buttons["step"].click()
    q.buttons["abandon"].click()
    assert q.debugger.done
