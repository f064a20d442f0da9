"""The suite's own machinery: what an everyday run leaves out and says about it, and the order of tests."""

import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import _compare
import _rounding
import _sampling
import numpy as np
import pytest
from conftest import ROOT

PROGRAM = """
import pytest

@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("op", [f"op{i}" for i in range(100)])
def test_matrix(op, dtype): pass

@pytest.mark.sample(2)
@pytest.mark.parametrize("i", range(5))
def test_few(i): pass

def test_single(): pass

@pytest.mark.slow
def test_slow(): pass

def test_page(built_site): assert built_site is None

def test_click(built_site): assert built_site is None

@pytest.fixture
def built_site(): pass
"""
MATRIX = 40 + 2 + 1  # how many of those tests an everyday run takes


@pytest.fixture
def run(tmp_path):
    "A small suite of its own under our conftest: `run(*arguments)` gives what pytest printed."
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "_sampling.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_small.py").write_text(PROGRAM)

    def run(*arguments, **env):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *arguments]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "AUTOGRAD_NB_REQUIRE"))}
        done = subprocess.run(command, cwd=tmp_path, env=clean | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def names(text):
    return re.findall(r"(test_\w+(?:\[[^\]]+\])?) PASSED", text)


def test_an_everyday_run_takes_a_sample_and_says_so(run):
    first = run("-v", "--sample", "7")
    assert f" {MATRIX} passed, {409 - MATRIX} deselected" in first.splitlines()[-1]
    assert "left out: 363 cases of matrices that sample 7 did not take, 1 slow tests, 2 tests of the site, which is not built; --all runs them" in first
    assert "test_single" in names(first) and "test_slow" not in names(first)
    assert len([name for name in names(first) if "float32" in name]) == 10
    assert names(run("-v", "--sample", "7")) == names(first) != names(run("-v", "--sample", "8"))


@pytest.mark.parametrize("arguments, passed", [(["--all"], 409), (["--slow"], 409), (["tests/test_small.py"], 408), (["-k", "test_matrix"], 400),
                                               (["tests/test_small.py::test_slow"], 1), (["-m", "slow"], 1)], ids=["all", "slow", "file", "k", "node", "m"])
def test_what_is_asked_for_runs_whole(run, arguments, passed):
    assert re.search(rf"\b{passed} passed", run("-q", *arguments))


def test_workers_take_the_same_sample_and_it_is_counted(run):
    text = run("-n", "2")
    seed = re.search(r"--sample (\d+)", text)[1]
    assert f"sample {seed} did not take" in text and f"{MATRIX} passed, {409 - MATRIX} deselected" in text.splitlines()[-1]


def test_nothing_required_is_left_out(run, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "tests" / "test_small.py"
    path.write_text(path.read_text().replace("@pytest.mark.slow", '@pytest.mark.slow\n@pytest.mark.needs("torch")'))
    assert "test_slow" in names(run("-v", AUTOGRAD_NB_REQUIRE="torch"))


def test_a_random_order_keeps_files_together_and_can_be_repeated():
    items = [SimpleNamespace(nodeid=f"tests/test_{file}.py::test_{i}[{j}]") for file in "abc" for i in range(3) for j in range(3)]
    first = [item.nodeid for item in _sampling.shuffled(items, 1)]
    assert first == [item.nodeid for item in _sampling.shuffled(items, 1)] and sorted(first) == [item.nodeid for item in items]
    assert first != [item.nodeid for item in _sampling.shuffled(items, 2)]
    files = [name[:12] for name in first]
    assert files == sorted(files, key=files.index)


def test_every_operation_and_every_dtype_is_in_each_sample():
    items = []
    for test in ("test_gradient", "test_dtype"):
        for op in range(200):
            for case in range(3):
                for dtype in ("half", "float", "double")[: 3 if test == "test_dtype" else 1]:
                    name = f"op{op}-{case}" + (f"-{dtype}" if test == "test_dtype" else "")
                    items.append(SimpleNamespace(nodeid=f"tests/test_x.py::{test}[{name}]", callspec=SimpleNamespace(id=name), get_closest_marker=lambda _: None))
    for seed in range(5):
        taken = _sampling.chosen(items, seed)
        assert len(taken) == 60 + 180
        found = {label for item in items if item.nodeid in taken for label in _sampling.labels(item)}
        assert {f"op{i}" for i in range(200)} | {"half", "float", "double"} <= found


# Room for rounding ---------------------------------------------------------------------------------------------


def chaos(steps, digit=0.0):
    "A curve that doubles an error in the last digit at every step."
    import torch

    x, curve = torch.tensor(0.3 + digit), []
    for _ in range(steps):
        x = 3.99 * x * (1 - x)
        curve.append(x.item())
    return curve


@pytest.mark.needs("torch")
def test_a_program_has_the_room_that_its_rounding_takes():
    found, expected = chaos(20, 3e-8), chaos(20)
    assert not np.allclose(found, expected, rtol=1e-4)
    _rounding.assert_same_numbers(found, expected, lambda: chaos(20))
    _rounding.assert_same_arrays({"x": found[-1:]}, {"x": expected[-1:]}, lambda: {"x": chaos(20)[-1:]})


@pytest.mark.needs("torch")
def test_what_rounding_does_not_explain_is_no_room():
    expected = chaos(20)
    with pytest.raises(AssertionError, match="more than rounding explains"):
        _rounding.assert_same_numbers(chaos(20, 1e-4), expected, lambda: chaos(20))
    with pytest.raises(AssertionError):
        _rounding.assert_same_arrays({"x": expected[2] + 1e-2}, {"x": expected[2]}, lambda: {"x": chaos(3)[2]})
    with pytest.raises(AssertionError, match="rounding alone decides"):
        _rounding.assert_same_numbers(chaos(200, 3e-8), chaos(200), lambda: chaos(200))
    steady = lambda: [0.5, 0.25]
    with pytest.raises(AssertionError, match="more than rounding explains"):
        _rounding.assert_same_numbers([0.5, 0.2501], steady(), steady)


@pytest.mark.needs("torch")
def test_texts_have_that_room_too():
    program = "x = torch.tensor(0.3)\nfor _ in range(20): x = 3.99 * x * (1 - x)\nprint(x.item(), torch.tensor(0.5).item())"
    import torch

    expected = _compare.run_program(program, torch)
    shaken = lambda: [_rounding.shaken(lambda: _compare.run_program(program, torch), seed) for seed in range(2)]
    x, half = expected.split()
    assert _compare.same_text(expected, f"{float(x) + 3e-3} {half}\n", shaken=shaken) and not _compare.same_text(expected, f"{float(x) + 3e-3} {half}\n")
    assert not _compare.same_text(expected, f"{x} 0.503\n", shaken=shaken)
