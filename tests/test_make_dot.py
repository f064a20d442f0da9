"""make_dot draws what torchviz draws: the same boxes and arrows in the same order, and the same table of saved fields."""

import json
import re
import shutil
import weakref
from pathlib import Path

import graphviz
import pytest
from _custom import Square

import autograd_nb as torch
from autograd_nb.viz import make_dot, make_dot_from_trace
from autograd_nb.viz.dot import resize_graph

# What torchviz 0.0.3 drew of each program under PyTorch 2.13: its lines, with addresses replaced by n0, n1, … in the order in which they occur.
EXPECTED = json.loads(Path(__file__).with_name("torchviz_graphs.json").read_text(encoding="utf-8"))


def lines(dot):
    "The lines of a graph, with addresses numbered, and its size."
    numbers = {}
    return [re.sub(r"\b\d{9,}\b", lambda m: f"n{numbers.setdefault(m[0], len(numbers))}", line.strip()) for line in dot.body] + [dot.graph_attr["size"]]


def run(program):
    names = {"torch": torch}
    exec(program, names)
    return names["out"], names["params"]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_drawing_is_torchvizs(name):
    assert lines(make_dot(*run(EXPECTED[name]["program"]))) == EXPECTED[name]["lines"]


def test_saved_fields_are_listed_below_the_name_and_drawn_in_orange():
    x = torch.ones(3).requires_grad_()
    dot = make_dot((x**2).exp().sum(), {"x": x}, show_attrs=True, show_saved=True)
    text = "\n".join(lines(dot))
    assert "PowBackward0\n" + "-" * 24 + "\nexponent:              2\nself    : [saved tensor]" in text
    assert 'label="result\n (3)" fillcolor=orange' in text and 'label="x\n (3)" fillcolor=lightblue' in text and re.search(r"n\d -> n\d \[dir=none\]", text)
    short = "\n".join(lines(make_dot((x**2).sum(), show_attrs=True, max_attr_chars=5)))
    assert "self    : [s..." in short and "fillcolor=orange" not in short


def test_saved_tensors_of_custom_functions_are_always_drawn():
    y = Square.apply(torch.ones(2).requires_grad_())
    assert "fillcolor=orange" in make_dot(y).source
    y.sum().backward()
    assert "SquareBackward" in make_dot(y).source            # what was saved is gone, the picture is not
    z = torch.ones(2).requires_grad_().exp()
    z.sum().backward()
    assert "[freed]" in make_dot(z, show_attrs=True, show_saved=True).source


def test_the_size_grows_with_the_graph_which_may_be_deep():
    x = torch.ones(1).requires_grad_()
    y = x
    for _ in range(20_000):
        y = y + 1
    dot = make_dot(y)
    assert len(dot.body) == 40_005 and dot.graph_attr["size"] == "6000.75,6000.75"
    small = graphviz.Digraph()
    resize_graph(small, min_size=3)
    assert small.graph_attr["size"] == "3,3"


def test_wrong_arguments():
    with pytest.raises(TypeError, match="needs tensors"):
        make_dot(3)
    with pytest.raises(TypeError, match="needs tensors"):
        make_dot(torch.ones(2), params={"w": "no"})
    with pytest.raises(NotImplementedError, match="moved to pytorch core"):
        make_dot_from_trace(None)


def test_nothing_of_the_graph_is_kept():
    x = torch.ones(2).requires_grad_()
    y = x.exp()
    node = weakref.ref(y.grad_fn)
    dot = make_dot(y, show_saved=True)
    del x, y
    import gc
    gc.collect()
    assert node() is None and "ExpBackward0" in dot.source


# Without the program ---------------------------------------------------------------------------------------------


@pytest.fixture
def no_program(monkeypatch):
    "A machine on which `dot` is not to be found."
    monkeypatch.setenv("PATH", "")
    assert shutil.which("dot") is None


def graph():
    w = torch.ones(2, 2).requires_grad_()
    return make_dot((w @ torch.ones(2)).tanh().sum(), {"w": w})


def test_it_is_a_digraph_with_a_text():
    dot = graph()
    assert isinstance(dot, graphviz.Digraph) and dot.source.startswith("digraph {") and "TanhBackward0" in dot.source


def test_svg_is_drawn_without_the_program(no_program, tmp_path):
    dot = graph()
    assert "TanhBackward0" in dot.pipe(format="svg", encoding="utf-8") and dot.pipe(format="svg").lstrip().startswith(b"<")
    shown = dot._repr_mimebundle_()
    assert "<svg" in shown["image/svg+xml"]
    path = dot.render(tmp_path / "graph", format="svg")
    assert path == str(tmp_path / "graph.svg") and "<svg" in Path(path).read_text() and (tmp_path / "graph").read_text().startswith("digraph")
    other = dot.render(outfile=tmp_path / "other.svg", cleanup=True)
    assert Path(other).exists() and "<svg" in Path(other).read_text()


def test_what_cannot_be_drawn_without_the_program_says_so(no_program):
    with pytest.raises(RuntimeError, match='Use format="svg", or install Graphviz'):
        graph().pipe(format="png")


@pytest.mark.needs("dot")
def test_the_program_draws_bitmaps(tmp_path):
    assert graph().pipe(format="png").startswith(b"\x89PNG")
    assert Path(graph().render(tmp_path / "graph", format="png")).exists()
