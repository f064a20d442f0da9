"""Every notebook runs from top to bottom: the library's, whose cells assert what their prose claims, and the book's."""

import ast
import os
import sys
from xml.etree import ElementTree

import nbformat
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import executed  # noqa: E402
from execute import STILL, WIDGET, clean, directives, notebook_paths  # noqa: E402

NOTEBOOKS = notebook_paths()


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT / "nbs").as_posix())
def test_notebook_runs(path):
    "In a kernel of its own, without cells marked `#| eval: false`. One that ran for the site, as it is now and with this package, has run."
    error = executed.ensure(path)
    assert error is None, error[-6000:]
    assert executed.copy_of(path).exists()


def test_all_notebooks_are_among_them():
    "Counted in another way than `notebook_paths` does, so that a mistake there cannot hide a notebook."
    found = [os.path.join(folder, name) for folder, _, names in os.walk(ROOT / "nbs") for name in names
             if name.endswith(".ipynb") and ".ipynb_checkpoints" not in folder]
    assert sorted(found) == [str(path) for path in NOTEBOOKS] and found


def notebook(path, *sources):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, id=f"cell{i}") for i, source in enumerate(sources)]), path)
    return path


def test_a_failing_cell_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(executed, "FOLDER", tmp_path)
    assert "as it should" in executed.ensure(notebook(tmp_path / "wrong.ipynb", "assert 1 == 2, 'as it should'"))


def test_a_notebook_runs_once_until_its_code_changes(tmp_path, monkeypatch):
    "Prose may change: the copy's outputs stand beside the new words."
    monkeypatch.setattr(executed, "FOLDER", tmp_path / "kept")
    program = f"open({str(tmp_path / 'ran')!r}, 'a').write('x'); print('out')"
    path = notebook(tmp_path / "right.ipynb", program)
    assert [executed.ensure(path), executed.ensure(path)] == [None, None] and (tmp_path / "ran").read_text() == "x"
    changed = nbformat.read(path, 4)
    changed.cells.insert(0, nbformat.v4.new_markdown_cell("New words."))
    nbformat.write(changed, path)
    assert executed.ensure(path) is None and (tmp_path / "ran").read_text() == "x"
    shown = executed.notebook(path)
    assert shown.cells[0].source == "New words." and shown.cells[1].outputs[0].text == "out\n"
    notebook(path, program, "")
    assert executed.ensure(path) is None and (tmp_path / "ran").read_text() == "xx"


def test_a_notebook_runs_again_when_what_it_imports_changes(tmp_path, monkeypatch):
    "At whatever distance; and not when another file of the package changes."
    package = tmp_path / "autograd_nb"
    package.mkdir()
    for name, text in (("__init__", ""), ("near", "from .far import n"), ("far", "n = 1"), ("other", "")):
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(executed, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(executed, "ROOT", tmp_path)
    monkeypatch.setattr(executed, "digest_of", lambda file: file.read_text() if file.exists() else "")
    path = notebook(tmp_path / "uses.ipynb", f"import sys; sys.path.insert(0, {str(tmp_path)!r})", "import autograd_nb.near", f"open({str(tmp_path / 'ran')!r}, 'a').write('x')")
    for text, runs in (("n = 1", "x"), ("n = 2", "xx"), ("n = 2", "xx")):
        (package / "far.py").write_text(text)
        assert executed.ensure(path) is None and (tmp_path / "ran").read_text() == runs
    (package / "other.py").write_text("changed = True")
    assert executed.is_fresh(path)
    (package / "near.py").unlink()
    assert not executed.is_fresh(path)


MOVING = {"bucket", "chain_slider", "checkpoint_memory", "debug", "explore", "gradcheck_view", "grow", "player", "playground", "replay", "scalar_engine", "stepper",
          "switches", "trace", "watch", "zero_grad_race"}


def shown_names(cell):
    "The names that the cell's last line calls or shows, and what `display` is called with."
    if directives(cell.source).get("output") == "false":
        return []
    body = ast.parse("\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))).body
    if not body or not isinstance(body[-1], ast.Expr):
        return []
    last = body[-1].value
    shown = last.args if isinstance(last, ast.Call) and getattr(last.func, "id", "") == "display" else [last]
    return [getattr(getattr(e, "func", e), "id", "") for e in shown]


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.parent.name in ("book", "nbs") and p.parent.parent.name in ("nbs", ROOT.name)], ids=lambda p: p.stem)
def test_every_widget_has_a_still(path):
    "Where nothing runs, a cell with a widget shows a picture of it, and a line on how to bring it to life."
    live = set()
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type != "code" or directives(cell.source).get("eval") == "false":
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") in MOVING | {"LivePlot"}:
                live |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        if set(shown_names(cell)) & (MOVING | live):
            stills = [o.data[STILL] for o in cell.outputs if STILL in o.get("data", {})]
            assert stills, f"no still for {cell.source[:80]!r}: run the notebook with docs/execute.py"
            for still in stills:
                assert ElementTree.fromstring(still).tag.endswith("svg") and "run the cell" in still and len(still) < 80_000


def test_a_widget_is_stored_as_its_still_alone():
    for extra, kept in (({STILL: "<svg/>"}, [{STILL, "text/plain"}]), ({}, [])):
        output = nbformat.v4.new_output("display_data", {"text/plain": "Player()", WIDGET: {"model_id": "1"}, **extra})
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[output])])
        assert [set(o.data) for o in clean(notebook).cells[0].outputs] == kept
