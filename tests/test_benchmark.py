"""The benchmark runs, measures what it says, and writes figures that a later run can read."""

import functools
import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "run.py"


def load():
    "The benchmark as a module."
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(SCRIPT.parent))


def run(*options, timeout=300):
    return subprocess.run([sys.executable, SCRIPT, *map(str, options)], capture_output=True, text=True, timeout=timeout)


@pytest.mark.slow
def test_a_quick_run_writes_figures_and_compares_them(tmp_path):
    file = tmp_path / "figures.json"
    found = run("--quick", "--only", "shape ()", "--threads", 1, "--json", file)
    assert found.returncode == 0, found.stderr
    figures = json.loads(file.read_text(encoding="utf-8"))
    (rows,) = figures["workloads"].values()
    assert rows["autograd_nb"]["ms"] > 0 and figures["engines"][0] == "autograd_nb"
    assert figures["machine"]["versions"]["numpy"] and figures["machine"]["threads"] == 1
    assert "autograd_nb" in found.stdout
    if "PyTorch" in figures["engines"]:
        again = run("--quick", "--only", "shape ()", "--threads", 1, "--compare", file)
        assert "->" in again.stdout, again.stderr


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_small_operations_stay_ahead_of_pytorch(tmp_path):
    "Measured at a third of PyTorch's time; the bound leaves room for any machine."
    file = tmp_path / "figures.json"
    found = run("--quick", "--only", "shape (8,)", "MLP 64", "--threads", 1, "--json", file)
    assert found.returncode == 0, found.stderr
    for name, rows in json.loads(file.read_text(encoding="utf-8"))["workloads"].items():
        assert rows["autograd_nb"]["ratio"] < 0.9, (name, rows)


@pytest.mark.slow
def test_peak_memory_is_measured_in_a_process_of_its_own():
    benchmark = load()
    peak = benchmark.peak("ten pointwise ops on 10^6", "autograd_nb", 1)
    assert peak is None or 20 < peak < 400          # ten results of 4 MB each are alive at once


@pytest.mark.slow
def test_every_workload_runs_on_pytorch_like_engines():
    "The small ones; the large ones are the same models with larger numbers."
    benchmark = load()
    ours = benchmark.engine("autograd_nb", 1)
    for name, workload in benchmark.WORKLOADS.items():
        if name not in benchmark.SLOW:
            workload(ours)()


def test_an_unknown_workload_is_refused():
    found = run("--only", "nonsense")
    assert found.returncode == 2 and "no workload contains" in found.stderr


def test_rounds_are_interleaved_and_ratios_are_taken_within_a_round():
    benchmark, order = load(), []
    def clock(name):
        return lambda times: order.append(name) or 1e-3

    taken = benchmark.measure({"a": clock("a"), "b": clock("b")}, rounds=4, budget=1e-2)
    assert [len(v) for v in taken.values()] == [4, 4]
    assert sum(x != y for x, y in zip(order, order[1:])) >= 4
    rows = benchmark.summary({"a": [2.0, 4.0, 6.0], "b": [1.0, 2.0, 3.0]}, "b")
    assert rows["a"]["ratio"] == 2.0 and rows["b"]["ratio"] == 1.0


def test_a_slow_engine_takes_part_in_fewer_rounds():
    benchmark = load()
    taken = benchmark.measure({"slow": lambda times: .02, "quick": lambda times: 1e-6}, rounds=9, budget=.08)
    assert 3 <= len(taken["slow"]) < 9 and len(taken["quick"]) == 9
    assert set(benchmark.summary(taken, "quick")["slow"]) == {"ms", "ratio", "low", "high"}


def test_an_engine_in_a_process_of_its_own_is_asked_as_one_in_this():
    benchmark, name = load(), "chain of 200 ops, shape ()"
    alone = benchmark.Alone("autograd_nb", 1)
    try:
        assert alone.build(name) and 0 < alone.seconds(name, 3) < 1
        with pytest.raises(RuntimeError, match="KeyError: 'nonsense'"):
            alone.build("nonsense")
        alone.drop(name)
    finally:
        alone.leave()
    assert alone.process.returncode == 0
    with pytest.raises(RuntimeError, match="it finds no GPU|KeyError"):
        benchmark.Alone("no such engine", 1)


def test_a_gpu_that_is_not_there_is_refused():
    found = run("--device", "cuda", "--quick")
    if found.returncode == 0:
        pytest.skip("there is a GPU")
    assert found.returncode == 2 and "--device cuda: CuPy" in found.stderr and "install" in found.stderr and "Traceback" not in found.stderr


def test_device_workloads_on_the_stand_in(tmp_path, capsys, monkeypatch):
    "Everything that a GPU is timed with, except the GPU: tensors live on the device, times come from events, memory from the pool."
    import strict_arrays as strict

    import autograd_nb as torch
    from autograd_nb.arrays import cupy_backend as backend

    benchmark, file, found = load(), tmp_path / "figures.json", list(backend.library._found)
    for library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB"):  # the benchmark sets them; afterwards they are as they were
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    strict.devices = 1
    backend.use(strict.library, fused=False)
    try:
        assert benchmark.main(["--device", "cuda", "--quick", "--only", "shape (8,)", "MLP 64", "--without", "PyTorch", "--json", str(file)], benchmark.Here) == 0
    finally:
        torch.set_default_device(None)
        backend.use(None)
        backend.library._found[:] = found
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["machine"]["gpu"] == "Strict stand-in" and "on Strict stand-in" in capsys.readouterr().out
    rows = figures["workloads"]["MLP 64-64-10, batch 32, Adam"]["autograd_nb"]
    assert rows["ms"] > 0 and 0 < rows["mib"] < 10


# Programs that nobody tuned the library for ----------------------------------------------------------------------


def script(name):
    "A script of the benchmarks as a module; other tests know another module named `run`."
    sys.path.insert(0, str(SCRIPT.parent))
    other = sys.modules.pop("run", None)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPT.parent))
        sys.modules.pop("run", None)
        if other is not None:
            sys.modules["run"] = other


PROGRAMS = script("programs").PROGRAMS


@pytest.mark.sample(6)
@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_strangers_compute_what_they_compute_under_pytorch(program):
    "Three steps each, with first weights, dropout and noise drawn by either engine."
    import torch

    import autograd_nb

    found = []
    for engine in (torch, autograd_nb):
        engine.manual_seed(0)
        step = PROGRAMS[program](engine)
        found.append([float(step().detach().double().sum()) for _ in range(3)])
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-3)


def test_programs_are_measured_in_parts_and_told(tmp_path, capsys, monkeypatch):
    "A later part adds to the file; what an engine refuses is stored with its reason."
    strangers, file = script("strangers"), tmp_path / "figures.json"
    assert len(PROGRAMS) >= 30

    def worker(name, threads):
        return strangers.Here(name, threads)

    monkeypatch.setattr(strangers, "measured", functools.partial(strangers.measured, hire=worker))
    monkeypatch.setattr(strangers, "installed", lambda module: False)
    for words in ("single numbers", "L-BFGS"):
        assert strangers.main(["--only", words, "--threads", "1", "--rounds", "3", "--seconds", ".05", "--json", str(file)]) == 0
    figures = json.loads(file.read_text(encoding="utf-8"))
    rows = figures["threads"]["1"]
    assert list(rows) == [name for name in PROGRAMS if "single numbers" in name or "L-BFGS" in name]
    assert all(row["autograd_nb"]["ms"] > 0 for row in rows.values())
    assert figures["machine"]["blas"]["numpy"] and figures["machine"]["processor"]
    assert "refused" in rows["logistic regression by L-BFGS"]["autograd_nb, captured"]
    assert "logistic regression" in capsys.readouterr().out
    assert strangers.main(["--only", "nonsense"]) == 2
