"""Timer, Measurement and Compare: what they compute and print is what PyTorch's print; times are only asked for what must be true of any clock."""

import random

import pytest

import autograd_nb as torch
from autograd_nb.utils import benchmark

SPECS = dict(stmt=["f(x)", "g(\nx)"], setup=["pass", "x=1", "a=1\nb=2"], sub_label=["n=1", "n=22", "m"], description=["add", "mul", "a long description"], num_threads=[1, 1, 2, 8])


def told(library, seed):
    "What a random set of measurements prints, without addresses."
    r, out, found = random.Random(seed), [], []
    labels, envs = r.sample(["Ops", "Other thing", "x"], r.randint(1, 2)), r.choice([[None], ["a", "bbb"]])
    size = 10 ** r.uniform(-7, 0)
    for _ in range(r.randint(1, 9)):
        typical = size * 10 ** r.uniform(0, 3) * r.choice([1, 1.02, 1.3, 3])
        times = [typical * (1 + r.random() * r.choice([0.001, 0.05, 0.5])) for _ in range(r.randint(1, 9))]
        spec = {name: r.choice(values) for name, values in SPECS.items()} | dict(label=r.choice(labels), env=r.choice(envs))
        found.append(library.Measurement(r.choice([1, 10]), times, library.TaskSpec(**spec)))
    for m in found:
        out += repr(m).split("\n")[1:] + [m.median, m.iqr, m.significant_figures, m.has_warnings, m.title, m.as_row_name, m.times]
    table = library.Compare(found)
    for change in (None, "trim_significant_figures", "highlight_warnings", "colorize"):
        if change is not None and r.random() < 0.6:
            getattr(table, change)(**(dict(rowwise=r.random() < 0.5) if change == "colorize" else {}))
        out.append(str(table))
    return out


@pytest.mark.needs("torch")
@pytest.mark.parametrize("seed", range(60))
def test_what_is_printed(seed):
    import torch.utils.benchmark as theirs

    assert told(benchmark, seed) == told(theirs, seed)


@pytest.mark.needs("torch")
def test_units():
    import torch.utils.benchmark as theirs

    r = random.Random(0)
    for seconds in (10 ** r.uniform(-10, 4) for _ in range(100)):
        assert benchmark.select_unit(seconds) == theirs.select_unit(seconds)
    assert benchmark.unit_to_english("us") == theirs.unit_to_english("us") and benchmark.ordered_unique([2, 1, 2]) == theirs.ordered_unique([2, 1, 2])
    assert benchmark.trim_sigfig(1234.5, 2) == theirs.trim_sigfig(1234.5, 2)


def test_a_timer_runs_its_statement_as_often_as_it_says():
    calls = []
    m = benchmark.Timer("calls.append(y)", "y = torch.ones(2).sum()", globals={"calls": calls}, label="sums", sub_label="two").timeit(50)
    assert len(calls) == 52 and m.number_per_run == 50 and len(m.times) == 1 and float(calls[0]) == 2
    assert 0 < m.median < 1 and m.title == "sums: two" and "1 measurement, 50 runs , 1 thread" in repr(m)


def test_blocks_fill_the_time_that_was_asked_for():
    heard = []
    m = benchmark.Timer("x + 1", "x = 1").blocked_autorange(callback=lambda number, seconds: heard.append((number, seconds)), min_run_time=0.02)
    assert sum(m.raw_times) >= 0.02 and m.number_per_run >= 10 and heard == [(m.number_per_run, t) for t in m.raw_times]
    m = benchmark.Timer("x + 1", "x = 1").adaptive_autorange(threshold=1e9, max_run_time=1)
    assert len(m.times) > 3 and m.meets_confidence(1e9)


def test_a_slow_statement_is_measured_once():
    m = benchmark.Timer("time.sleep(.03)", "import time").blocked_autorange(min_run_time=0.02)
    assert m.number_per_run == 1 and len(m.times) == 1 and m.median >= 0.03


def test_threads_are_set_while_it_runs():
    before, seen = torch.get_num_threads(), []
    benchmark.Timer("seen.append(torch.get_num_threads())", globals={"seen": seen}, num_threads=before + 2).timeit(1)
    assert set(seen) == {before + 2} and torch.get_num_threads() == before


@pytest.mark.parametrize("make, error, words", [
    (lambda: benchmark.Timer(lambda: 1), ValueError, "Currently only a `str` stmt is supported"),
    (lambda: benchmark.Timer("1", language="c++"), ValueError, "Invalid language"),
    (lambda: benchmark.Timer("1", global_setup="x"), ValueError, "global_setup is C\\+\\+ only"),
    (lambda: benchmark.Timer("undefined_name").timeit(1), NameError, "undefined_name"),
    (lambda: benchmark.Timer("1").repeat(), NotImplementedError, "blocked_autorange"),
    (lambda: benchmark.Compare([1]), ValueError, "Expected an instance of `Measurement`"),
])
def test_mistakes(make, error, words):
    with pytest.raises(error, match=words):
        make()
