"""The suite's own machinery: what an everyday run leaves out and says about it, and the order of tests."""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import _changed
import _compare
import _pace
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
    for name in ("conftest.py", "_changed.py", "_pace.py", "_sampling.py"):
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
    assert "left out: 363 tests and cases that sample 7 did not take, 1 slow tests, 2 tests of the site, which is not built; --all runs them" in first
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


def item(name, case="", function=None):
    return SimpleNamespace(nodeid=f"tests/{name}" + (f"[{case}]" if case else ""), get_closest_marker=lambda _: None, function=function, **({"callspec": SimpleNamespace(id=case)} if case else {}))


def test_an_allowance_is_what_fits_when_all_have_the_same():
    assert _sampling.allowance([1, 2, 3], 6) == float("inf")
    assert _sampling.allowance([1, 2, 30], 9) == 6 and _sampling.allowance([5, 5, 5, 5], 10) == 2.5
    needs = [random.Random(0).random() ** 4 * 50 for _ in range(1000)]
    room = _sampling.allowance(needs, 300)
    assert sum(min(need, room) for need in needs) == pytest.approx(300)


def test_a_sample_costs_what_a_day_may_cost_and_holds_something_of_every_file():
    "Whatever tests take: quick ones run as they are, of slow ones some cases, and of those whose one case is too much each now and then."
    rng, items, seconds = random.Random(0), [], {}
    for number in range(600):
        test, count = f"test_{number % 40}.py::test_{number}", rng.choice([1, 1, 3, 15, 400])
        seconds[f"tests/{test}"] = rng.random() ** 8 * 20
        items += [item(test, f"op{k}-{k % 4}") for k in range(count)]
    price = lambda taken: sum(seconds[name.partition("[")[0]] + _sampling.HANDLING for name in taken)
    whole, often = price(_sampling.chosen(items, 0, seconds=seconds)), set()
    for seed in range(20):
        taken = _sampling.chosen(items, seed, whole / 3, seconds)
        assert price(taken) == pytest.approx(whole / 3, rel=0.1)
        assert {name.partition("::")[0] for name in taken} == {_sampling.file_of(each) for each in items}
        often |= {name.partition("[")[0] for name in taken}
    assert len(often) > 0.98 * 600
    quick = [each for each in items if seconds[_sampling.test_of(each)] < 1e-3]
    assert {_sampling.test_of(each) for each in quick} <= {name.partition("[")[0] for name in taken}


def test_what_concerns_a_change_runs_whole_within_half_of_the_time():
    items = [item(f"test_{file}.py::test_{number}", f"op{k}") for file in "abc" for number in range(5) for k in range(200)]
    seconds = dict.fromkeys(map(_sampling.test_of, items), 0.09)  # with what pytest takes for it a tenth of a second
    taken = _sampling.chosen(items, 1, 60, seconds, concerned=lambda each: each.nodeid.endswith("[op7]"))
    assert {each.nodeid for each in items if each.nodeid.endswith("[op7]")} <= taken and len(taken) == 15 * (1 + 19)
    taken = _sampling.chosen(items, 1, 60, seconds, concerned=lambda each: "test_b" in each.nodeid)
    assert len([name for name in taken if "test_b" in name]) == 5 * (60 + 140 // 10) and len(taken) == 370 + 10 * 20


def test_durations_are_measured_and_kept(run, tmp_path):
    "In processor time, also of programs that a test starts; those of a part beside those of the others."
    busy = "import subprocess, sys\ndef test_busy(): subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 1: pass'])\n"
    (tmp_path / "tests" / "test_busy.py").write_text(busy + "def test_asleep():\n    import time\n    time.sleep(1)\n")
    run("-n", "2", "--all", "--note-durations")
    found = json.loads((tmp_path / "tests" / "durations.json").read_text())
    assert len(found) == 8 and found["tests/test_busy.py::test_busy"] >= 1 and found["tests/test_busy.py::test_asleep"] < 0.5
    (tmp_path / "tests" / "durations.json").write_text(json.dumps(found | {"tests/test_gone.py::test_gone": 2, "tests/test_busy.py::test_busy": 9}))
    run("--note-durations", "tests/test_busy.py")
    found = json.loads((tmp_path / "tests" / "durations.json").read_text())
    assert found["tests/test_busy.py::test_busy"] < 9 and len(found) == 9
    run("--note-durations", "--all")
    assert "tests/test_gone.py::test_gone" not in json.loads((tmp_path / "tests" / "durations.json").read_text())


@pytest.mark.parametrize("slower", [1, 9])
def test_a_limit_of_time_is_one_of_the_machine(monkeypatch, slower):
    "In processor time, so that waiting is free; and a slower machine has longer."
    monkeypatch.setattr(_pace, "loop", lambda: slower * _pace.LOOP)
    with _pace.within(0.05):
        time.sleep(0.1)
    with pytest.raises(AssertionError, match="where 0.05 were expected") if slower == 1 else contextlib.nullcontext(), _pace.within(0.05):
        busy = time.process_time() + 0.1
        while time.process_time() < busy: pass


def test_every_test_that_exists_no_more_is_gone_from_the_durations():
    "So that the file does not grow; tests without a duration are new, and are taken to be quick."
    for test in _sampling.durations():
        path, _, name = test.partition("::")
        assert (ROOT / path).exists() and f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text(encoding="utf-8"), test


@pytest.fixture
def clone(tmp_path):
    "A small project under git, on a branch that left main: `clone(path, text)` writes a file."
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True, capture_output=True)

    def write(path, text, commit=False):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        if commit:
            git("add", "-A")
            git("commit", "-q", "-m", path)

    git("init", "-q", "-b", "main")
    write("autograd_nb/ops/pointwise.py", "a = 1\n\n@op(\n    1)\ndef exp(x):\n    return x\n\ndef log(x):\n    return x\n\nclass Kept:\n    def one(self): pass\n\n    def two(self): pass\n", commit=True)
    git("checkout", "-q", "-b", "work")
    return write


def test_changes_are_what_git_says(clone, tmp_path):
    "With the functions they lie in, committed or not; in a fresh clone there are none, and without git neither."
    assert _changed.changes(tmp_path) == {}
    text = (tmp_path / "autograd_nb" / "ops" / "pointwise.py").read_text()
    clone("autograd_nb/ops/pointwise.py", text.replace("    1)", "    2)"), commit=True)
    assert _changed.changes(tmp_path) == {"autograd_nb/ops/pointwise.py": ["exp"]}
    clone("autograd_nb/ops/pointwise.py", text.replace("a = 1", "a = 2").replace("two(self)", "two(me)"))
    clone("nbs/book/01_why.ipynb", "{}")
    assert _changed.changes(tmp_path) == {"autograd_nb/ops/pointwise.py": ["Kept", "two"], "nbs/book/01_why.ipynb": []}
    shutil.rmtree(tmp_path / ".git")
    assert _changed.changes(tmp_path) == {}


def test_what_concerns_a_change(tmp_path):
    (tmp_path / "tests").mkdir()
    for name, text in (("a", "import torch\n"), ("b", "from autograd_nb.ops import reduce, pointwise\n"), ("c", "import players\n"), ("d", "import autograd_nb.ops.pointwise_more\n")):
        (tmp_path / "tests" / f"test_{name}.py").write_text(text)

    def concerned(changed):
        concerns = _changed.Concerns(changed, tmp_path)
        return {name for name, each in cases.items() if concerns(each)}

    uses = lambda: [x.exp() for x in ()]
    cases = {"case": item("test_a.py::test_value", "exp-0-float32"), "other": item("test_a.py::test_value", "expm1-0"), "name": item("test_a.py::test_log_of_exp_is_it"), "code": item("test_a.py::test_x", function=uses),
             "file": item("test_b.py::test_y"), "docs": item("test_c.py::test_z"), "near": item("test_d.py::test_z"), "notebook": item("test_a.py::test_notebook_runs", "book/01_why.ipynb"), "chapter": item("test_a.py::test_stills", "01_why")}
    assert concerned({}) == concerned({"CHANGELOG.md": []}) == set()
    assert concerned({"autograd_nb/ops/pointwise.py": ["exp"]}) == {"case", "name", "code", "file"}
    assert concerned({"autograd_nb/ops/pointwise.py": []}) == {"file"}
    assert concerned({"docs/players.py": ["test"]}) == {"docs"} and concerned({"tests/test_d.py": []}) == {"near"}
    assert concerned({"nbs/book/01_why.ipynb": []}) == {"notebook", "chapter"}


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
