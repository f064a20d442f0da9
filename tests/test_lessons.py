"The experiments that a reader can touch: what they show is what the engine computes, for every position, live and replayed."

import ast
import html
import json
import math
import re

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb.viz.lessons import (
    GROWTH,
    Buckets,
    Growing,
    chain_links,
    chain_scenes,
    descent,
    measured,
    playground_scenes,
    race_scenes,
    switch_scene,
)
from autograd_nb.viz.scalar import Value, engine_lines, listing_html, scalar_recording
from autograd_nb.widgets import bucket, chain_slider, grow, playground, scalar_engine, switches, zero_grad_race
from autograd_nb.widgets.stills import visible, words


def test_layers_of_a_bucket_sum_to_its_gradient_bit_for_bit():
    b = Buckets(lambda x, w: (x * w).sin() / 3, dict(x=0.7, w=-1.3))
    for _ in range(7):
        b.press("backward")
    for name, leaf in b.leaves.items():
        total = np.float32(0)
        for part in b.layers[name]:
            total = np.float32(total + np.float32(part))
        assert total == leaf.grad.numpy()
    assert re.search(r"x\.grad was \S+, this call added \S+: now \S+; w\.grad", b.press("backward").text)


def test_emptying_a_bucket_in_both_ways():
    b = Buckets(lambda x: x**3, dict(x=2.0))
    assert "None" in b.scene().svg
    b.press("backward")
    b.press("zero")
    assert b.leaves["x"].grad.item() == 0 and b.layers["x"] == []
    b.press("none")
    assert b.leaves["x"].grad is None
    with pytest.raises(ValueError, match="unknown action"):
        b.press("shake")


def test_buckets_refuse_what_has_no_height():
    with pytest.raises(ValueError, match="single number"):
        bucket(lambda x: x.sum(), x=[1.0, 2.0])
    with pytest.raises(TypeError, match="at least one input"):
        bucket(lambda: torch.tensor(1.0))


def test_the_race_is_gradient_descent():
    def f(w):
        return (w - 3) ** 2

    w, expected = 0.0, [0.0]
    for _ in range(5):
        w -= 0.1 * 2 * (w - 3)
        expected.append(w)
    assert np.allclose(descent(f, 0.0, 0.1, 5, True), expected)
    summed, w, careless = 0.0, 0.0, [0.0]
    for _ in range(5):
        summed += 2 * (w - 3)
        w -= 0.1 * summed
        careless.append(w)
    assert np.allclose(descent(f, 0.0, 0.1, 5, False), careless, rtol=1e-5)
    assert len(race_scenes(f, steps=5)) == 6


@pytest.mark.parametrize("x", [-1.5, -0.1, 0.3, 0.5])
def test_links_of_a_chain_multiply_to_its_derivative(x):
    links, y, slope = chain_links(lambda x: ((3 * x + 2).tanh() / 2).exp(), "x", x)
    t = math.tanh(3 * x + 2)
    assert y == pytest.approx(math.exp(t / 2), rel=1e-5)
    assert slope == pytest.approx(math.exp(t / 2) * (1 - t * t) * 1.5, rel=1e-4, abs=1e-7)
    assert math.prod(d for *_, d in links) == pytest.approx(slope, rel=1e-5)


def test_a_chain_says_where_it_stands_and_refuses_what_is_none():
    scenes = chain_scenes(lambda x: (3 * x + 2) ** 2, "x", -2, 2, 5)
    assert scenes[3].text == "At x = 1 the result is 25 and dy/dx = 10 × 1 × 3 = 30"
    assert "u₂ = u₁ + 2" in scenes[3].svg and "y = u₂²" in scenes[3].svg
    with pytest.raises(ValueError, match="not a chain"):
        chain_slider(lambda x: x * x.sin(), x=(-1, 1))
    with pytest.raises(ValueError, match="must be below"):
        chain_slider(lambda x: x.sin(), x=(1, -1))


def test_the_playground_plots_what_backward_returns():
    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * 7

    assert measured(Loud.apply, 0.5) == (0.5, 7.0)
    assert measured(torch.sign, 0.5) == (1.0, 0.0)
    p = playground({"loud": Loud.apply}, positions=3)
    assert "multiplies the incoming gradient by 7" in p.players["loud"].captions[1]
    assert all(len(s.svg) < 12_000 for s in playground_scenes(torch.relu, "ReLU", count=3))


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("retained", [False, True])
def test_every_setting_of_the_switches_tells_the_truth(silent, detached, retained):
    text = switch_scene(silent, detached, retained).text
    flows = not silent and not detached
    assert f"First backward(): x.grad = {54 if flows else None}." in text
    assert ("Second: Trying to backward through the graph a second time" in text) == (not retained)
    if retained:
        assert f"Second: x.grad = {108 if flows else None}." in text


def test_a_graph_grows_by_every_operation_and_can_be_undone():
    g = Growing(0.5)
    for name, f in GROWTH.items():
        before = g.last.item()
        g.press(name)
        assert g.last.item() == pytest.approx(f(torch.tensor(before)).item())
    assert len(g.lines) == len(GROWTH) + 1
    g.press("backward()")
    assert g.tensors["x"].grad is not None
    for _ in range(len(GROWTH) + 1):
        g.press("undo")
    assert g.lines == ["x = 0.5"] and g.press("undo").text.startswith("x = 0.5")


def test_the_scalar_engine_agrees_with_the_library():
    def f(x, w):
        h = x * w + 2
        return (h * h - h.tanh()).sin() + (h / x).exp() - (1 - w).relu() + (2 / h).log()

    values = {"x": Value(0.7), "w": Value(-0.3)}
    f(**values).backward()
    tensors = {k: torch.tensor(v.data, dtype=torch.float64, requires_grad=True) for k, v in values.items()}
    f(**tensors).backward()
    for k in values:
        assert values[k].grad == pytest.approx(tensors[k].grad.item(), rel=1e-12)
    recording, at = scalar_recording(f, {"x": 0.7, "w": -0.3})
    assert recording.grads == {k: v.grad for k, v in values.items()}
    assert set(at.values()) >= {"__init__", "__add__", "__mul__", "__pow__", "tanh", "sin", "exp", "relu", "log", "order", "backward"}
    page = listing_html(at)
    assert "def backward(self):" in page and all(f"a{k}" in page for k in at)


def test_the_scalar_engine_refuses_what_it_cannot_show():
    with pytest.raises(TypeError, match="must return a Value"):
        scalar_engine(lambda x: 3.0, x=1.0)
    with pytest.raises(ValueError, match="too many"):
        scalar_engine(lambda x: sum((x * i for i in range(40)), x), x=1.0)


@pytest.mark.parametrize(
    "make", [bucket, zero_grad_race, grow, scalar_engine, switches, lambda: chain_slider(positions=5), lambda: playground(positions=3)]
)
def test_every_experiment_is_complete_without_a_kernel(make):
    "Its pictures, captions and links are in the widget's state, which a static page keeps; none of it is computed on demand."
    from ipywidgets.embed import dependency_state

    state = dependency_state([make()])
    names = [m["model_name"] for m in state.values()]
    assert "StackModel" in names and "LinkModel" in names
    html = [m["state"]["value"] for m in state.values() if m["model_name"] == "HTMLModel"]
    assert any("<svg" in h and "<desc>" in h for h in html) and any("ag-caption" in h for h in html)


def test_buttons_know_the_scenes_they_lead_to():
    "So that a page without a kernel can follow them; each move shows what the engine would say."
    panel = bucket()
    for i, moves in enumerate(panel.moves()):
        for text, j in moves.items():
            action = next(a for a, label in panel.labels.items() if label == text)
            fresh = Buckets(lambda x: (3 * x + 2) ** 2, dict(x=1.0))
            for a in panel.done[1 : i + 1]:
                fresh.press(a)
            fresh.press(action)
            assert fresh.state() == panel.states[j]
    assert all("loss.backward()" in moves for moves in panel.moves()[:4])
    garden = grow()
    assert garden.moves()[2] == {"square": 3, "undo": 1, "start again": 0}
    garden.player.slider.value = 4
    garden.press("undo")
    assert garden.moves()[-1]["backward()"] == 4 and "&quot;undo&quot;" in garden.note.value


def test_experiments_open_before_anything_has_happened():
    "The reader predicts first; in print, where nothing can be pressed, the end is shown."
    for panel in (bucket(), grow()):
        assert panel.player.slider.value == panel.player.stack.selected_index == 0
        assert panel.still_at == len(panel.states) - 1
        assert panel.player.captions[-1] in " ".join(words(visible(panel, panel.still_at)[1]))
    race = zero_grad_race(steps=5)
    assert race.slider.value == 0 and race.still_at == 5


def test_a_button_goes_on_from_the_scene_that_is_shown():
    panel = bucket()
    panel.press("backward")  # the story knows what comes of it
    assert panel.player.slider.value == 1 and len(panel.states) == 10
    panel.press("none")  # the story went another way: this is a new one
    assert panel.player.slider.value == 2 and panel.player.slider.max == 2 and panel.states[2] == (("x", None, ()),)
    panel.press("backward")
    assert panel.states[3] == (("x", 30.0, (30.0,)),)
    panel.player.slider.value = 1
    panel.press("zero")
    assert panel.states[1:] == [(("x", 30.0, (30.0,)),), (("x", 0.0, ()),)]


def test_grow_calls_backward_as_its_caption_says():
    "A second call raises what PyTorch raises; the program stays as it was, and can go on."
    panel = grow(2.0, story=("square", "backward()"))
    panel.player.slider.value = 2
    assert panel.press("backward()") is None
    assert "Trying to backward through the graph a second time" in panel.note.value
    assert panel.player.slider.max == 2 and panel.machine.tensors["x"].grad.item() == 4.0


def test_a_growing_graph_stays_where_it_is():
    "One height, one scale, one direction: no card moves when another one comes. And nothing scrolls where nothing is."
    def place(svg):
        _, _, width, height = map(float, re.search(r'viewBox="([^"]+)"', svg)[1].split())
        leaf = re.search(r'<rect class="ag-card" x="([-\d.]+)" y="([-\d.]+)"', svg)
        assert f'width="{width:g}" height="{height:g}"' in svg and f"max-width:none;min-width:{width:g}px" in svg
        cards = re.findall(r'<rect class="ag-card" x="([-\d.]+)" y="[-\d.]+" width="([\d.]+)"', svg)
        assert 0 <= width - max(float(x) + float(w) for x, w in cards) < 40
        return height, float(leaf[1])
    g = Growing(2.0)
    places = [place(g.press(a).svg) for a in ("× 3", "+ 2", "× a new leaf", "square", "backward()")]
    assert all(p == places[0] for p in places), places


def test_the_engine_has_one_number_of_lines():
    "Wherever a page speaks of it."
    from pathlib import Path

    assert engine_lines() == 50
    chapter = json.loads(Path("nbs/book/08_build_an_engine.ipynb").read_text(encoding="utf-8"))["cells"]
    parts = {}
    for cell in chapter:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            for node in ast.parse(source).body:
                if getattr(node, "name", None) in ("Value", "order", "value"):
                    parts[node.name] = ast.get_source_segment(source, node)
            if "__radd__" in source:
                break
    lines = [line for part in parts.values() for line in part.splitlines() if line.strip()]
    assert 45 <= len(lines) <= 50, len(lines)
    for path in [p for room in ("book", "widgets", "viz", ".") for p in Path("nbs", room).glob("*.ipynb")]:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                assert not re.search(r"(thirty|forty|sixty)( short)? lines", "".join(cell["source"]), re.I), path


def test_the_lines_at_work_stand_beside_the_controls():
    panel = scalar_engine(lambda x: x * x + 2, x=3.0)
    frames = [c.value for c in panel.stack.children]
    assert "def __mul__" in html.unescape(frames[1]) and "for v in reversed(self.order())" in html.unescape(frames[-2])
    assert len({re.search(r"min-height:([\d.]+)em\"", f)[1] for f in frames}) == 1, "nothing below moves"
