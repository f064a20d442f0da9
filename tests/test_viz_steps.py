"Recordings of forward and backward passes: every number shown is the engine's."

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from _custom import Square

import autograd_nb as torch
from autograd_nb.viz import backward_table, draw
from autograd_nb.viz.formulas import local_value
from autograd_nb.viz.steps import Frames, record_function, record_tensor
from autograd_nb.viz.style import inline, number, val

SVG = "{http://www.w3.org/2000/svg}"


def branching(a, b):
    c = a * b
    d = c + a
    return torch.tanh(d) * c


CASES = {
    "chain": (lambda x: (3 * x + 2) ** 2, dict(x=1.0)),
    "branching": (branching, dict(a=0.5, b=-2.0)),
    "deep": (lambda x: torch.sin(torch.exp(x ** 2)), dict(x=0.5)),
    "matrix": (lambda w, x, b: torch.tanh(w @ x + b).sum(), dict(w=[[1.0, -1.0], [0.5, 2.0]], x=[1.0, 2.0], b=[0.0, 0.0])),
    "divisions": (lambda x, y: (x / y - 1 / x).log().sqrt(), dict(x=3.0, y=1.5)),
    "layer": (lambda w: torch.relu(torch.ones(32, 20) @ w).mean(), dict(w=np.linspace(-1, 1, 200).reshape(20, 10))),
    "several outputs": (lambda v: sum(p * p for p in v.unbind()), dict(v=[1.0, 2.0, 3.0])),
}


def plain_gradients(f, inputs):
    leaves = {k: torch.tensor(np.asarray(v, np.float32), requires_grad=True) for k, v in inputs.items()}
    out = f(**leaves)
    out.backward()
    return out.item(), {k: v.grad.numpy() for k, v in leaves.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_recording_agrees_with_a_plain_backward(name):
    f, inputs = CASES[name]
    rec = record_function(f, inputs)
    result, grads = plain_gradients(f, inputs)
    assert rec.result == np.float32(result)
    for k in inputs:
        assert np.array_equal(rec.grads[k], grads[k]), k


@pytest.mark.parametrize("name", CASES)
def test_every_frame_is_a_picture_of_its_own(name):
    frames = Frames(record_function(*CASES[name]))
    kinds = [f.phase for f in frames.frames]
    assert kinds == sorted(kinds, key=["start", "forward", "backward", "end"].index) and {"start", "forward", "backward", "end"} == set(kinds)
    for k in range(len(frames)):
        root = ET.fromstring(frames.svg(k))
        assert frames[k].caption and root.find(f"{SVG}desc").text


@pytest.mark.parametrize("name", CASES)
def test_nothing_moves_and_nothing_overlaps(name):
    frames = Frames(record_function(*CASES[name]))
    boxes = list(frames.drawing.layout.boxes.values())
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    bare = {re.sub(r"<style>\.agnb\.ag.*?</style>|class=\"agnb [^\"]*\"", "", frames.svg(k)) for k in range(len(frames))}
    assert len(bare) == 1, "frames differ in their style only"


def test_values_appear_forward_and_gradients_backward():
    frames = Frames(record_function(*CASES["chain"]))
    x = frames.rec.graph.named("x").id
    op = {n.node: n.id for n in frames.rec.graph.nodes}
    assert frames.visible(0) == {x: {"value": "1"}}
    assert frames.visible(3)[op["PowBackward0"]] == {"value": "25"} and "grad" not in frames.visible(3)[x]
    assert frames.visible(5)[op["AddBackward0"]]["grad"] == "10" and "grad" not in frames.visible(5)[op["MulBackward0"]]
    assert frames.visible(len(frames) - 1)[x] == {"value": "1", "grad": "30"}


def test_the_sentence_spells_the_product_out():
    texts = [s.text for s in record_function(*CASES["chain"]).steps]
    assert "3·x = 3·1 = 3" in texts and "(3·x + 2)² = 5² = 25" in texts
    assert any("incoming 1 × local (2·5 = 10) = 10" in t for t in texts)
    assert any("incoming 10 × local 3 = 30 → x" in t for t in texts)


def test_local_variables_lend_their_names():
    texts = " | ".join(s.text for s in record_function(*CASES["branching"]).steps)
    assert "c = a·b = 0.5·(−2) = −1" in texts and "d = c + a" in texts


def test_two_paths_are_summed_in_sight():
    rec = record_function(lambda x: x * x + x, dict(x=3.0))
    last = next(s for s in rec.steps if s.title == "AccumulateGrad")
    assert last.text.startswith("x.grad = ") and last.text.count("+") == 2 and last.text.endswith("= 7")


@pytest.mark.parametrize("name", [n for n in CASES if n != "layer"])
def test_incoming_times_local_is_outgoing(name):
    rec = record_function(*CASES[name])
    checked = 0
    for s in rec.steps:
        for p in s.passed:
            if s.incoming is not None and p.local is not None and p.out.data is not None and p.local.data.shape == p.out.data.shape == s.incoming.data.shape:
                assert np.allclose(s.incoming.data * p.local.data, p.out.data, rtol=1e-5)
                checked += 1
    assert checked


@pytest.mark.parametrize("formula", ["x * y", "x / y", "x - y", "x ** 3", "x ** -1.5", "x.exp()", "x.log()", "x.sin()", "x.cos()", "x.tanh()", "x.sqrt()", "x.sigmoid()", "-x", "x ** y"])
def test_local_numbers_are_the_derivative(formula):
    out = eval(formula, dict(x=torch.tensor(1.7, requires_grad=True), y=torch.tensor(-0.6, requires_grad=True)))
    got = local_value(out.grad_fn)
    out.backward()
    for slot, (node, _) in enumerate(out.grad_fn.next_functions):
        if node is not None:
            assert np.allclose(got[slot], node.variable.grad.numpy(), rtol=1e-5), (formula, slot)


def test_inputs_are_copied_and_foreign_leaves_keep_their_gradient():
    w = torch.tensor(2.0, requires_grad=True)
    w.grad = torch.tensor(99.0)
    x = torch.tensor(3.0, requires_grad=True)
    rec = record_function(lambda x: w * x, dict(x=x))
    assert rec.grads["w"] == 3 and rec.grads["x"] == 2
    assert w.grad.item() == 99 and x.grad is None


def test_a_constant_stays_a_constant():
    rec = record_function(lambda x, c: x * c, dict(x=2.0, c=torch.tensor(5.0)))
    assert "c" not in rec.grads and rec.graph.named("c").kind == "const"


def test_an_existing_tensor_keeps_its_graph():
    x = torch.tensor(1.0, requires_grad=True)
    out = (3 * x + 2) ** 2
    assert record_tensor(out, dict(x=x), restore=True).grads["x"] == 30
    assert x.grad is None
    out.backward()
    assert x.grad.item() == 30


def test_the_table_is_a_real_backward_pass():
    x = torch.tensor(1.0, requires_grad=True)
    y = 3 * x
    out = (y + 2) ** 2
    table = backward_table(out)
    assert x.grad.item() == 30
    assert [(r.node, r.incoming, r.outgoing) for r in table.rows] == [
        ("PowBackward0", "1", ["10"]), ("AddBackward0", "10", ["10"]), ("MulBackward0", "10", ["30"]), ("AccumulateGrad", "30", [])]
    assert table[2].name == "y" and table[2].value == "3" and table[3].into == "x.grad = 30"
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        backward_table(out)


def test_the_table_shows_accumulation():
    x = torch.tensor(1.0, requires_grad=True)
    (x * 4).backward()
    assert backward_table(x * 3)[-1].into == "x.grad = 7"


def test_retain_graph_and_gradient_are_passed_on():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    table = backward_table(y, torch.tensor([1.0, 10.0]), retain_graph=True)
    assert table[0].incoming == "[1, 10]" and x.grad.tolist() == [2, 40]
    backward_table(y, torch.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [4, 80]


def test_the_html_table_is_well_formed_and_complete():
    x, w = torch.tensor(0.5, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    table = backward_table(torch.sin(w * x) + w)
    html = table._repr_html_()
    root = ET.fromstring(html.replace("<br>", "<br/>"))
    rows = root.findall(".//tbody/tr")
    assert len(rows) == len(table.rows) and len(root.findall(".//th")) == 6
    assert [c.get("colspan") for r, row in zip(rows, table.rows) for c in r if row.into][4::5] == ["2", "2"]
    for row, r in zip(rows, table.rows):
        text = "".join(row.itertext())
        assert r.node in text and r.incoming in text and all(o in text for o in r.outgoing)


def test_a_failing_function_fails_as_it_would_elsewhere():
    with pytest.raises(ZeroDivisionError):
        record_function(lambda x: x * (1 / 0), dict(x=1.0))


@pytest.mark.parametrize(("f", "inputs", "error", "words"), [
    (lambda x: x * 2, dict(x=[1.0, 2.0]), RuntimeError, "grad can be implicitly created only for scalar outputs"),
    (lambda x: x.detach(), dict(x=1.0), RuntimeError, "does not require grad"),
    (lambda x: 3.0, dict(x=1.0), TypeError, "must return a tensor"),
    (lambda x: x, dict(x="one"), TypeError, "must be a number, list, array or tensor"),
])
def test_what_cannot_be_stepped_through_says_why(f, inputs, error, words):
    with pytest.raises(error, match=re.escape(words)):
        record_function(f, inputs)


def test_too_many_steps_are_refused_with_an_alternative():
    def long(x):
        kinds = np.random.default_rng(0).integers(0, 4, 400)
        for k in kinds:
            x = (x * 1.01, x + 0.1, x.sin(), x.tanh())[k]
        return x
    with pytest.raises(ValueError, match="draw()"):
        record_function(long, dict(x=1.0))


def test_a_hundred_frames_cost_little():
    def f(x):
        for _ in range(25):
            x = (x * 1.1).sin()
        return x
    frames = Frames(record_function(f, dict(x=0.5)))
    assert len(frames) > 100
    assert sum(len(frames.style(k)) for k in range(len(frames))) < 150_000 and len(frames.base) < 120_000


def test_step_through_leaves_no_mode_behind():
    record_function(*CASES["chain"])
    assert torch.is_grad_enabled()
    with torch.no_grad():
        record_function(*CASES["chain"])
        assert not torch.is_grad_enabled()


def test_drawing_right_after_recording_is_unharmed():
    x = torch.tensor(1.0, requires_grad=True)
    out = (3 * x + 2) ** 2
    record_tensor(out, dict(x=x), restore=True)
    assert inline(val(draw(out).records.named("x").value)) == number(1.0)


def in_place(x):
    y = x * 2
    y += 1
    y[0] = y[1] * 3
    return y.sum()


@pytest.mark.parametrize(("f", "inputs"), [
    (in_place, dict(x=[1.0, 2.0])),
    (lambda x: Square.apply(x) + x, dict(x=3.0)),
    (lambda x: x, dict(x=1.0)),
    (lambda x: x.detach() * x, dict(x=3.0)),
    (lambda a, b: torch.cat([a, b]).max(), dict(a=[1.0, 2.0], b=[3.0])),
    (lambda x, n: x ** n, dict(x=2.0, n=3.0)),
])
def test_unusual_graphs(f, inputs):
    rec = record_function(f, inputs)
    result, grads = plain_gradients(f, inputs)
    assert rec.result == np.float32(result) and all(np.array_equal(rec.grads[k], grads[k]) for k in inputs)
    frames = Frames(rec)
    for k in range(len(frames)):
        ET.fromstring(frames.svg(k))


def test_complex_numbers():
    rec = record_function(lambda x: (x * torch.tensor(1 + 2j)).abs(), dict(x=1.0))
    assert np.allclose(rec.grads["x"], 5 ** 0.5) and any("(1+2j)·x" in s.text for s in rec.steps)


def test_a_gradient_that_was_there_is_named():
    x = torch.tensor(1.0, requires_grad=True)
    (x * 4).backward()
    held = x.grad
    rec = record_tensor(x * 3, dict(x=x))
    last = next(s for s in rec.steps if s.title == "AccumulateGrad")
    assert last.text == "x.grad = 4 (already there) + 3 = 7" and held.item() == 7


def test_a_whole_network_is_shown_by_its_shapes():
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    X, y = torch.randn(8, 20), torch.arange(8)
    loss = torch.nn.functional.cross_entropy(model(X), y)
    rec = record_tensor(loss, dict(model=model, X=X), restore=True)
    assert {"model.0.weight", "model.0.bias", "model.2.weight", "model.2.bias"} == set(rec.grads)
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    for k, p in model.named_parameters():
        assert np.array_equal(rec.grads[f"model.{k}"], p.grad.numpy())
    assert rec.graph.named("X").kind == "const" and rec.graph.named("model.0.weight").shape == (16, 20)


def test_a_loop_of_three_hundred_steps_is_one_card():
    "Its two steps hold the numbers of the pass without pictures."
    def f(x):
        y = x
        for _ in range(300):
            y = (y * 0.999).sin()
        return y * x

    rec = record_function(f, dict(x=0.5))
    x = torch.tensor(0.5, requires_grad=True)
    out = f(x)
    out.backward()
    assert rec.grads["x"] == pytest.approx(x.grad.item()) and rec.result == pytest.approx(out.item())
    card = next(n for n in rec.graph.nodes if n.kind == "group")
    assert card.symbol == "300 × (× → sin)" and card.count == 900 and len(rec.graph.nodes) == 3
    y = next(k for k, s in enumerate(rec.steps) if s.id == card.id and s.phase == "backward")
    assert "0.5 comes in" in rec.steps[y].text
    shown = Frames(rec).visible(len(rec.steps) - 1)
    assert float(shown[card.id]["value"]) == pytest.approx(out.item() / 0.5, rel=1e-3) and shown[card.id]["grad"] == "0.5"
    assert [s.phase for s in rec.steps] == ["start", "forward", "forward", "backward", "backward", "backward", "backward", "end"]


def test_a_model_of_a_hundred_layers_is_a_readable_picture():
    layers = [m for _ in range(100) for m in (torch.nn.Linear(4, 4), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers)
    picture = draw(net(torch.ones(2, 4)).sum())
    assert [n.symbol for n in picture.records.nodes if n.kind == "group"] == ["100 × (Linear → ReLU)"]
    assert picture.drawing.width < 800 and picture.drawing.height < 800
    opened = picture.look("0")  # one layer, by its name
    assert opened.records.nodes
