"Graphs folded by module: every node has exactly one home, nothing is lost, and a copy or another thread's module claims nothing."

import copy
import time

import pytest

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.viz import fold
from autograd_nb.viz.modules import Calls
from autograd_nb.widgets import unfold


def transformer(layers=3):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), layers), nn.Linear(16, 1)
    )


def test_every_level_shows_each_of_its_nodes_once():
    model = transformer()
    loss = model(torch.randn(2, 4, 8)).mean()
    f = fold(loss, names={"model": model})
    ops = {n.id for n in f.live.graph.nodes if n.kind in ("op", "output")}

    def below(focus):
        view = f.view(focus)
        own = [n.id for n in view.nodes if n.kind in ("op", "output")]
        inner = f.inside(focus)
        assert sorted(n.count for n in view.nodes if n.kind == "group") == sorted(row[4] for row in inner)
        return own + [i for row in inner for i in below(row[0])]

    found = below(None)
    assert len(found) == len(set(found)) and set(found) == ops


def test_counts_bytes_and_names_of_calls():
    model = transformer(2)
    f = fold(model(torch.randn(2, 4, 8)).mean(), names={"model": model})
    names = [row[2] for row in f.tree]
    assert names[:4] == ["model", "0", "1", "1.layers.0"] and "1.layers.1.self_attn" in names
    whole = f.tree[0]
    assert whole[5] == sum(s.nbytes for n in f.live.graph.nodes for s in n.saved if n.node != "MeanBackward0")
    assert "from 0" in f.picture(next(r[0] for r in f.tree if r[2] == "1.layers.0")).svg


def test_a_module_called_twice_has_two_calls():
    cell = nn.Tanh()
    x = torch.ones(2, requires_grad=True)
    y = cell(cell(x) * 2).sum()
    f = fold(y, names={"cell": cell, "x": x})
    assert [row[2] for row in f.tree] == ["cell", "cell"] and [n.kind for n in f.view().nodes].count("group") == 2


def test_copies_and_other_modules_claim_nothing():
    net = nn.Linear(2, 2)
    y = net(torch.ones(2)).sum()
    assert len(Calls({"twin": copy.deepcopy(net)})) == 0
    assert Calls({"net": net}).of(y.grad_fn) == ()
    assert Calls({"net": net}).of(y.grad_fn.next_functions[0][0]) == (("net", "Linear"),)
    assert len(Calls({"_hidden": net, "number": 3})) == 0


def test_twelve_layers_open_quickly():
    model = transformer(12)
    loss = model(torch.randn(2, 4, 8)).mean()
    unfold(loss, names={"model": model}, ahead=1)  # Graphviz itself starts once per process
    begun = time.perf_counter()
    u = unfold(loss, names={"model": model}, ahead=1)
    assert time.perf_counter() - begun < 10
    assert "TransformerEncoder" in str(u) and "<svg" in u.stack.children[0].value


def test_opening_calls_by_name_and_by_button():
    model = transformer(2)
    loss = model(torch.randn(2, 4, 8)).mean()
    u = unfold(loss, names={"model": model, "loss": loss}, ahead=1)
    u.look("1.layers.1")
    shown = u.stack.children[u.stack.selected_index].value
    assert "self_attn" in shown and "from layers.0" in shown.replace("1.layers", "layers")
    assert [b.description for b in u.buttons.children][:2] == ["▴ out", "▸ self_attn"]
    u.buttons.children[0].click()
    assert "layers.0" in u.stack.children[u.stack.selected_index].value or "0" in [b.description[2:] for b in u.buttons.children]
    with pytest.raises(KeyError, match="there are model"):
        u.look("nowhere")
    with pytest.raises(TypeError):
        unfold("no tensor")
