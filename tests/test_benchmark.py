"""The benchmark runs, measures what it says, and writes figures that a later run can read."""

import importlib.util
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "run.py"


def load():
    "The benchmark as a module."
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_quick_run_writes_its_figures(tmp_path):
    file = tmp_path / "figures.json"
    run = subprocess.run([sys.executable, SCRIPT, "--quick", "--only", "shape ()", "--json", file], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    figures = json.loads(file.read_text(encoding="utf-8"))
    (rows,) = figures["results"].values()
    assert rows["autograd_nb"]["milliseconds"] > 0
    assert figures["machine"]["versions"]["numpy"]
    assert "autograd_nb" in run.stdout


def test_an_unknown_workload_is_refused():
    run = subprocess.run([sys.executable, SCRIPT, "--only", "nonsense"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 2 and "no workload contains" in run.stderr


def test_rounds_are_interleaved_and_ratios_are_taken_within_a_round():
    benchmark, order = load(), []
    taken = benchmark.measure({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=4, budget=1e-6)
    assert [len(v) for v in taken.values()] == [4, 4]
    changes = sum(x != y for x, y in zip(order, order[1:]))
    assert changes >= 4
    rows = benchmark.summary({"a": [2.0, 4.0, 6.0], "b": [1.0, 2.0, 3.0]}, "b")
    assert rows["a"]["ratio"] == 2.0 and rows["b"]["ratio"] == 1.0
