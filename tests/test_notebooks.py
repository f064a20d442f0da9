"""Every notebook runs from top to bottom: the library's, whose cells assert what their prose claims, and the book's."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
from execute import notebook_paths  # noqa: E402

NOTEBOOKS = notebook_paths()
TIMEOUT = 600

# nbdev's runner: the cells in one IPython, without cells marked `#| eval: false` or `#| notest`. Each notebook gets a
# process of its own, so that none sees what another left behind.
RUNNER = """
import sys
from fastcore.xtras import Path
from nbdev.config import get_config
from nbdev.test import test_nb
passed, _ = test_nb(Path(sys.argv[1]), skip_flags=get_config().tst_flags.split())
sys.exit(not passed)
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT / "nbs").as_posix())
def test_notebook_runs(path, tmp_path):
    done = run(path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def run(path):
    env = dict(os.environ, MPLBACKEND="agg", PYTHONHASHSEED="0")
    return subprocess.run([sys.executable, "-c", RUNNER, str(path)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT)


def test_all_notebooks_are_among_them():
    "Counted in another way than `notebook_paths` does, so that a mistake there cannot hide a notebook."
    found = [os.path.join(folder, name) for folder, _, names in os.walk(ROOT / "nbs") for name in names
             if name.endswith(".ipynb") and ".ipynb_checkpoints" not in folder]
    assert sorted(found) == [str(path) for path in NOTEBOOKS] and found


def test_a_failing_cell_fails(tmp_path):
    import nbformat

    path = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2, 'as it should'")]), path)
    done = run(path)
    assert done.returncode != 0 and "as it should" in done.stderr
