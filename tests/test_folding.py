"Graphs folded by module: every node has exactly one home, nothing is lost, and a copy or another thread's module claims nothing."

import copy

import pytest
from _pace import within

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.viz import draw, fold
from autograd_nb.viz.modules import Calls
from autograd_nb.viz.style import number
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
    "All levels of a twelve-layer transformer: two seconds on a free machine, and ample slack for a loaded one."
    model = transformer(12)
    loss = model(torch.randn(2, 4, 8)).mean()
    draw(loss, names={})  # Graphviz itself starts once per process
    with within(8):
        graph = draw(loss, names={"model": model})
        page = graph._repr_html_()
    assert page.count('type="radio"') == len(graph.numbers) > 40 and "TransformerEncoder" in page


def test_draw_folds_what_is_too_large_where_it_knows_the_modules():
    model = transformer(12)
    loss = model(torch.randn(2, 4, 8)).mean()
    graph = draw(loss, names={"model": model})
    assert [n.name for n in graph.records.nodes if n.call is not None] == ["0", "1", "2"], "it opens past the one call that holds everything"
    assert "summarised" in draw(loss, names={}).text
    small = transformer(1)
    assert not hasattr(draw(small(torch.randn(2, 4, 8)).mean(), names={"small": small}), "folded")


def test_looking_into_a_call_by_name():
    model = transformer(2)
    loss = model(torch.randn(2, 4, 8)).mean()
    graph = unfold(loss, names={"model": model, "loss": loss})
    assert "self_attn" in graph.look("1.layers.1").text and "from 1.layers.0" in graph.look("1.layers.1").svg
    assert graph.look("1.layers.1") is graph.look(next(r[0] for r in graph.folded.tree if r[2] == "1.layers.1"))
    with pytest.raises(KeyError, match="there are model"):
        graph.look("nowhere")
    with pytest.raises(TypeError):
        unfold("no tensor")
    with pytest.raises(TypeError, match="at least one"):
        unfold()


def test_only_so_many_calls_open():
    model = transformer(6)
    loss = model(torch.randn(2, 4, 8)).mean()
    graph = unfold(loss, names={"model": model}, most=5)
    assert len(graph.numbers) == 5 and graph.left_out > 0
    assert "stay closed" in graph._repr_html_() and graph.look("1.layers.3.self_attn").records.nodes


def test_gradients_at_every_node_change_nothing():
    model = transformer(1)
    loss = model(torch.randn(2, 4, 8)).mean()
    weight = model[0].weight
    weight.grad = torch.full_like(weight, 7.0)
    graph = unfold(loss, names={"model": model}, gradients=True)
    shown = [n for n in graph.folded.live.graph.nodes if n.kind in ("leaf", "op", "output")]
    known = [n for n in shown if n.grad is not None]
    assert (weight.grad == 7).all() and len(known) > 0.8 * len(shown)
    weight.grad = None
    loss.backward()  # the graph is still there
    found = next(n for n in shown if n.kind == "leaf" and n.name == "model.0.weight")
    assert found.grad.norm == pytest.approx(weight.grad.norm().item(), rel=1e-5)


@pytest.mark.needs("browser")
def test_a_saved_model_unfolds_on_a_click_without_kernel_or_network(browser_page, tmp_path):
    model = transformer(2)
    loss = model(torch.randn(2, 4, 8)).mean()
    graph = unfold(loss, names={"model": model, "loss": loss}, title="Two layers", gradients=True)
    file = graph.save(tmp_path / "model.html")
    assert " src=" not in file.read_text(encoding="utf-8")
    browser_page.context.set_offline(True)
    browser_page.goto(file.as_uri())
    level = browser_page.locator(".ag-level:visible")

    def texts():
        return level.locator("svg text").all_text_contents()

    def open_card(name):
        level.get_by_text(f"look into {name}").locator("xpath=..").click()

    def trail():
        return level.locator(".ag-trail").text_content()

    assert trail().startswith("the whole graph ▸ model Sequential") and "TransformerEncoder" in texts()
    open_card("1")
    open_card("layers.1") if level.get_by_text("look into layers.1").count() else open_card("1")
    assert "1.layers.1" in trail().replace("1 ▸ layers", "1.layers") and "self_attn" in texts()
    open_card("self_attn")
    engine = {n.symbol for n in graph.look("1.layers.1.self_attn").records.nodes if n.kind == "op"}
    assert engine and engine <= set(texts()), "the cards are the nodes of the call"
    norms = [n.grad.norm for n in graph.look("1.layers.1.self_attn").records.nodes if n.grad is not None and n.grad.data is None]
    assert norms and all(f"norm {number(v, 3)}" in texts() for v in norms), "with the engine's gradients"
    level.locator(".ag-trail label").first.click()
    assert trail().startswith("the whole graph")
    browser_page.keyboard.press("ArrowDown")
    assert "▸ model" in trail()
    assert browser_page.locator("input:checked").get_attribute("aria-label").startswith("model (Sequential), ")
    assert not browser_page.errors and len(browser_page.requests) == 1
