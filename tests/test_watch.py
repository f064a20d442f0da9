"Watching a training run: what is recorded is what the engine and the optimiser did, at a price that is kept, with and without a notebook."

import contextlib
import math
import time

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb import nn, optim
from autograd_nb.viz.flow import Flow, flow_html, layer_groups
from autograd_nb.widgets import replay, watch


def model_and_data(width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1)), torch.randn(32, 4)


def train(run, net, opt, x, steps):
    for _ in run(range(steps)):
        loss = (net(x) - x[:, :1]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        run.step(loss)


def norm(tensors):
    return math.sqrt(sum(float((t.detach() ** 2).sum()) for t in tensors))


def test_lengths_are_those_of_the_optimisers_step(capsys):
    net, x = model_and_data()
    opt = optim.SGD(net.parameters(), lr=0.5)
    before = [p.detach().clone() for p in net.parameters()]
    with watch(net, opt, show=False) as run:
        loss = (net(x) - x[:, :1]).square().mean()
        loss.backward()
        grads = [p.grad.clone() for p in net.parameters()]
        opt.step()
        opt.zero_grad()  # gone before step() is called: the lengths were taken in the optimiser's step
        assert run.step(loss)
    assert run.record.losses == [(0, pytest.approx(loss.item()))]
    (at, row), = run.record.samples
    assert at == 0 and list(row) == ["0", "2"]
    for k, name in enumerate(row):
        part = slice(2 * k, 2 * k + 2)
        g, w, u = row[name]
        assert g == pytest.approx(norm(grads[part]), rel=1e-5)
        assert w == pytest.approx(norm(before[part]), rel=1e-5)
        assert u == pytest.approx(0.5 * norm(grads[part]), rel=1e-4)
    assert not opt._optimizer_step_pre_hooks and not opt._optimizer_step_post_hooks
    assert "update / weight" in capsys.readouterr().out


def test_the_same_training_with_and_without():
    results = []
    for watched in (False, True):
        net, x = model_and_data()
        opt = optim.Adam(net.parameters(), lr=1e-2)
        if watched:
            with watch(net, opt, show=True) as run:
                train(run, net, opt, x, 50)
        else:
            train_plain = type("Plain", (), {"__call__": lambda self, r: r, "step": lambda self, loss: True})()
            train(train_plain, net, opt, x, 50)
        results.append([p.detach().numpy().tobytes() for p in net.parameters()])
    assert results[0] == results[1] and run.record.steps == 50 and run.record.total == 50


def test_watching_keeps_to_its_budget(capsys):
    net, x = model_and_data(200)
    opt = optim.Adam(net.parameters())
    with watch(net, opt, total=10**6, show=False) as run:
        for _ in run(range(10**6)):
            loss = (net(x) - x[:, :1]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            run.step(loss)
            if run.record.seconds > 4:
                break
    assert run.record.cost < 0.03 * run.record.seconds, "less than three hundredths of the loop's time, on its own clock"
    assert len(run.record.samples) >= 3
    assert capsys.readouterr().out.count("step ") >= 2


def test_watching_many_tiny_steps_takes_at_most_twice_the_time(monkeypatch):
    "Drawn in a notebook, with the replay at the end."
    import IPython.display

    monkeypatch.setattr(IPython.display, "display", lambda *_, **__: None)
    net, x = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(8, 2)
    opt = optim.SGD(net.parameters(), lr=0.01)

    def train(run=None):
        since = time.perf_counter()
        with run or contextlib.nullcontext():
            for _ in range(2000):
                loss = (net(x) - x[:, :1]).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                if run:
                    run.step(loss)
        return time.perf_counter() - since

    train()
    parts = []
    for _ in range(4):  # a machine that is busy at one moment is quiet at another
        run = watch(net, opt, total=2000, show=True)
        parts.append(train(run) / train())
        assert run.record.steps == 2000 and len(run._box.children) > 2
    assert min(parts) <= 2, parts


def test_without_an_optimiser_and_with_odd_layers(capsys):
    net, x = model_and_data()
    net[2].weight.requires_grad_(False)
    net[2].bias.requires_grad_(False)
    with watch(net, show=False) as run:
        net(x).sum().backward()
        run.step(1.0)
    row = run.record.samples[0][1]
    assert row["0"][0] > 0 and row["0"][2] is None and row["2"][0] is None
    assert run.record.remarks() == {"2": "no gradient"}
    with pytest.raises(ValueError, match="no parameters"):
        watch(nn.Tanh())
    with pytest.raises(RuntimeError, match="inside `with watch"):
        watch(net).step(1.0)
    with pytest.raises(ValueError, match="nothing was recorded"):
        replay(Flow())


def test_stopping_and_failing(capsys):
    net, x = model_and_data()
    opt = optim.SGD(net.parameters(), lr=0.1)
    with watch(net, opt, show=True) as run:
        for i in run(range(10)):
            run.step(1.0)
            if i == 2:
                run._button.stop()
    assert run.record.steps == 3 and run.stopped and run.record.end == "stopped"
    with watch(net, opt, show=False) as run:
        run.step(1.0)
        raise KeyboardInterrupt
    assert run.record.end == "stopped"
    with pytest.raises(ZeroDivisionError), watch(net, opt, show=False) as run:
        run.step(1.0)
        raise ZeroDivisionError
    assert run.record.end == "ZeroDivisionError" and "ZeroDivisionError" in capsys.readouterr().out


def test_the_page_and_its_replay():
    flow = Flow([(i, 2.0**-i) for i in range(30)], [(i, {f"layer{k}": (10.0**-k, 1.0, 1e-3) for k in range(8)}) for i in range(0, 30, 3)], total=40, seconds=3.0)
    page = flow_html(flow, title="A run")
    assert page.count("ag-broad\"") == page.count("ag-slim\"") == 3 and page.count("<tr>") == 9 and 'aria-valuenow="30"' in page
    assert flow.shown() == ["layer0", "layer2", "layer4", "layer5", "layer7"]
    series = flow.series("ratio", ["layer3"])["layer3"]
    assert np.allclose(series[1], 1e-3) and series[0].tolist() == list(range(0, 30, 3))
    player = replay(flow, 6)
    assert [p.steps for p in player.frames][-1] == 30 and len(player.frames) == 6
    sizes = {w.value.count("<svg") for w in player.stack.children}
    assert sizes == {6}, "the same charts in every frame, each for broad and for narrow pages"


def test_layers_of_deep_models_are_put_together():
    names = [f"blocks.{i}.{part}.{w}" for i in range(40) for part in ("a", "b") for w in ("weight", "bias")]
    assert len(layer_groups(names)) <= 24 and sum(map(len, layer_groups(names).values())) == len(names)
    assert layer_groups(["weight"]) == {"weight": ["weight"]}
