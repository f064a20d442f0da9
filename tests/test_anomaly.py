"""Anomaly detection: which errors carry which stacks, what is searched for NaN, and that nothing remains of it when it is off."""

import subprocess
import sys
import threading
import warnings

import pytest
from _compare import assert_same_output, programs

import autograd_nb as torch
from autograd_nb.autograd.anomaly_mode import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_anomaly_enabled,
    set_detect_anomaly,
)
from autograd_nb.graph.modes import SWITCH

grad = torch.autograd.grad


@pytest.fixture(autouse=True)
def off_again():
    busy = SWITCH.busy      # not 0 in a process that has seen bfloat16
    yield
    assert not is_anomaly_enabled() and SWITCH.busy == busy, "a test left anomaly detection on"


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        raise KeyError("in backward")


class Nan(torch.autograd.Function):
    which = 0

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        out = [g.clone(), g.clone()]
        out[Nan.which][0] = float("nan")
        return tuple(out)


def caught(action, expected=RuntimeError):
    "The error that `action` raises, and the texts of the warnings before it."
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(expected) as error:
            action()
    return error.value, [str(w.message) for w in seen if w.category is UserWarning]      # NumPy warns of divisions too


def leaf():
    return torch.ones(2, requires_grad=True)


def the_guilty_line(x):
    return Fails.apply(x)


def test_error_carries_the_stack_of_the_forward_call():
    with set_detect_anomaly(True):
        y = the_guilty_line(leaf() * 2).sum()
        error, (warning,) = caught(y.backward, KeyError)
    for text in (warning, error.__notes__[0]):
        assert text.startswith("Error detected in FailsBackward. Traceback of forward call that caused the error:\n")
        assert text.rstrip().endswith("return Fails.apply(x)") and "in the_guilty_line" in text and "in test_error_carries" in text
        assert "autograd_nb/" not in text.split("Fails.apply")[-1]


def test_warning_points_to_the_backward_call():
    with set_detect_anomaly(True):
        y = Fails.apply(leaf()).sum()
        with warnings.catch_warnings(record=True) as seen, pytest.raises(KeyError):
            warnings.simplefilter("always")
            y.backward()
    assert seen[0].filename == __file__ and seen[0].category is UserWarning


@pytest.mark.parametrize("which", [0, 1])
def test_nan_is_found_where_it_is_made(which):
    Nan.which = which
    with set_detect_anomaly(True):
        y = Nan.apply(leaf(), leaf()).sum()
        error, texts = caught(y.backward)
    assert str(error).startswith(f"Function 'NanBackward' returned nan values in its {which}th output.")
    assert "free of NaN" in str(error) and "Nan.apply" in texts[0]


def test_nan_that_arrives_is_told_from_nan_that_is_made():
    x = leaf()
    with set_detect_anomaly(True):
        y = x * 2
        error, _ = caught(lambda: y.backward(torch.tensor([float("nan"), 1.0])))
    assert "had NaN in it already" in str(error)


@pytest.mark.parametrize("make", [lambda x: (x * 0).sqrt() * 0, lambda x: x * 0 / (x * 0), lambda x: torch.cat([x, (x * 0).sqrt() * 0]), lambda x: torch.where(x > 5, (x * 0) ** 0.5 * 0, (x * 0) ** 0.5 * 0)])
def test_nan_in_ordinary_operations(make):
    with set_detect_anomaly(True):
        error, texts = caught(make(leaf()).sum().backward)
        assert "returned nan values in its" in str(error)
        assert "Traceback of forward call" in texts[0] and "test_anomaly.py" in texts[0]
        x = leaf()
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]


def test_check_nan_can_be_left_out():
    x = leaf()
    with set_detect_anomaly(True, check_nan=False):
        assert is_anomaly_enabled() and not is_anomaly_check_nan_enabled()
        ((x * 0).sqrt() * 0).sum().backward()
    assert x.grad.isnan().all() and is_anomaly_check_nan_enabled()


def test_parents_under_create_graph():
    with set_detect_anomaly(True):
        x = torch.zeros(1, requires_grad=True)
        y = x**1.5
        (slope,) = grad(y, x, torch.ones(1), create_graph=True)
        assert slope.grad_fn.metadata["parent_"] is y.grad_fn
        error, texts = caught((slope * 0).sum().backward)
    assert texts[0].startswith("Error detected in Pow")
    assert texts[1].startswith("\n\nPrevious calculation was induced by PowBackward0. Traceback of forward call that induced the previous calculation:\n")
    assert "grad(y, x" in texts[0] and "y = x**1.5" in texts[1]
    assert len(error.__notes__) == 2


def test_graph_recorded_without_it():
    y = Fails.apply(leaf()).sum()
    with set_detect_anomaly(True):
        error, (text,) = caught(y.backward, KeyError)
    assert text == "Error detected in FailsBackward. No forward pass information available. Enable detect anomaly during forward pass for more information."


def test_hooks_and_second_passes():
    def fail(g):
        raise KeyError("in a hook")

    with set_detect_anomaly(True):
        m = leaf() * 2
        m.register_hook(fail)
        error, (text,) = caught(m.sum().backward, KeyError)
        assert "Error detected in MulBackward0" in text and "m = leaf() * 2" in text
        y = leaf().exp().sum()
        y.backward()
        error, texts = caught(y.backward)
        assert "second time" in str(error) and "leaf().exp()" in texts[0]
        a = leaf() * 1
        z = (a * a).sum()
        a.zero_()
        error, texts = caught(z.backward)
        assert "modified by an inplace operation" in str(error) and "z = (a * a).sum()" in texts[0]


def test_writes_through_views():
    with set_detect_anomaly(True):
        a = leaf() * 1
        a[0].mul_(a[1].clone())
        assert "a[0].mul_" in "".join(a.grad_fn.metadata["traceback_"])
        a.sum().backward()


def test_detect_anomaly_warns_and_restores():
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        mode = detect_anomaly()
    assert not is_anomaly_enabled()
    with mode:
        assert is_anomaly_enabled() and is_anomaly_check_nan_enabled()
        with set_detect_anomaly(False):
            assert not is_anomaly_enabled()
        assert is_anomaly_enabled()
    with pytest.raises(KeyError), mode:
        raise KeyError


def test_at_once_and_nested():
    set_detect_anomaly(True)
    assert is_anomaly_enabled()
    with set_detect_anomaly(True, False):
        assert not is_anomaly_check_nan_enabled()
    assert is_anomaly_enabled() and is_anomaly_check_nan_enabled()
    set_detect_anomaly(False)
    set_anomaly_enabled(True)
    set_anomaly_enabled(True)
    set_anomaly_enabled(False)


def test_all_threads():
    results = []

    def work():
        y = Fails.apply(leaf() * 2).sum()
        try:
            y.backward()
        except KeyError as error:
            results.append(error.__notes__[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with set_detect_anomaly(True):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert "Traceback of forward call" in results[0] and "Fails.apply(leaf() * 2)" in results[0]


def test_nothing_is_kept_when_off():
    y = leaf() * 2
    assert y.grad_fn.hooks is None
    error, texts = caught(Fails.apply(leaf()).sum().backward, KeyError)
    assert not texts and not getattr(error, "__notes__", [])


def test_usual_names():
    assert torch.autograd.detect_anomaly is detect_anomaly and torch.autograd.set_detect_anomaly is set_detect_anomaly


# The same programs under PyTorch -------------------------------------------------------------------------------

SETUP = """
import warnings
x = torch.zeros(2, requires_grad=True)
def told(f):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('always')
        try: f()
        except Exception as error: print(type(error).__name__, ' '.join(str(error).split()[:8]))
    for w in seen:
        if w.category is RuntimeWarning: continue
        lines = str(w.message).split('(Triggered')[0].strip().splitlines()
        print(w.category.__name__, lines[0].strip())
"""
PROGRAMS = {
    "nan": "with torch.autograd.set_detect_anomaly(True):\n    y = (x.sqrt() * 0).sum()\n    told(y.backward)",
    "nan in the second output": "with torch.autograd.set_detect_anomaly(True):\n    y = (x / x).sum()\n    told(y.backward)",
    "no stack": "y = (x.sqrt() * 0).sum()\nwith torch.autograd.set_detect_anomaly(True): told(y.backward)",
    "no check": "with torch.autograd.set_detect_anomaly(True, check_nan=False):\n    y = (x.sqrt() * 0).sum()\n    told(y.backward)\nprint(x.grad)",
    "second time": "with torch.autograd.set_detect_anomaly(True):\n    y = x.exp().sum()\n    y.backward()\n    told(y.backward)",
    "enabled": "told(torch.autograd.detect_anomaly)",
    "parent": "with torch.autograd.set_detect_anomaly(True):\n    y = x ** 1.5\n    g, = torch.autograd.grad(y.sum(), x, create_graph=True)\n    told((g * 0).sum().backward)",
}
PROGRAMS = {name: SETUP + program for name, program in PROGRAMS.items()} | programs("anomaly")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_tell_the_same(program):
    assert assert_same_output(program)


def test_infinity_is_no_reason_to_warn():
    "PyTorch passes infinity and NaN on in silence; NumPy's warnings about a user's own arrays stay."
    program = "import numpy as np, autograd_nb as torch\nx = torch.zeros(2, requires_grad=True)\n(x.sqrt() + 1 / x + (x + 1000).exp() * 0).sum().backward()\nprint(x.grad)\nnp.log(np.zeros(1))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0 and run.stdout.startswith("tensor([")
    assert run.stderr.count("RuntimeWarning") == 1 and "encountered in log" in run.stderr


def test_numpy_stays_silent_however_a_program_filters_warnings():
    "NumPy's warnings about a user's own arrays come as before: with their words, from their line, and as errors where the filters say so."
    program = """
import warnings
import numpy as np
import autograd_nb as torch

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter('always')
    x = torch.zeros(2, requires_grad=True)
    (x.log() + 1 / x + (x + 1e4).exp() * 0).sum().backward()
    torch.linalg.inv(torch.full((2, 2), float('nan')))
    (torch.ones(3) * 1e30).half()
    print(len(seen))
    np.log(np.zeros(1))
    np.float64(1) / np.float64(0)
    np.array([np.nan, 1]).astype(int)
print(*((w.lineno, w.category.__name__, str(w.message)) for w in seen), sep='\\n')
warnings.simplefilter('error')
x.detach().log()
try: np.exp(np.full(1, 1e4))
except RuntimeWarning as error: print(error)
with np.errstate(all='raise'):
    try: np.log(np.zeros(1))
    except FloatingPointError as error: print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert run.stdout.splitlines() == [
        "0",
        "(13, 'RuntimeWarning', 'divide by zero encountered in log')",
        "(14, 'RuntimeWarning', 'divide by zero encountered in scalar divide')",
        "(15, 'RuntimeWarning', 'invalid value encountered in cast')",
        "overflow encountered in exp",
        "divide by zero encountered in log",
    ], run.stderr
