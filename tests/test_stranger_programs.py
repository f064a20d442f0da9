"""Programs and single calls as strangers write them, right and wrong: values, names, words of errors and warnings are PyTorch's.

`programs/strangers.txt` holds programs, each below a line `### its name`; `programs/stranger_calls.txt` calls, one a line, in groups headed by such a
line and the lines up to `---` that prepare them. What an error says begins with PyTorch's first sentence; what follows it here is the remedy.
"""

import contextlib
import io
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from _compare import NUMBER

import autograd_nb

pytestmark = pytest.mark.needs("torch")
LEAST = 60  # so many characters of a long error message have to be PyTorch's


def parts(name):
    "The parts of a file of programs by their names."
    text = (Path(__file__).parent / "programs" / name).read_text()
    return dict(part.split("\n", 1) for part in text.removeprefix("### ").split("\n### "))


PROGRAMS, CALLS = parts("strangers.txt"), parts("stranger_calls.txt")


def attempt(function, *args, **kwargs):
    "Print what `function` returns or how it fails, and return the former."
    try:
        result = function(*args, **kwargs)
        print("->", result)
        return result
    except Exception as error:
        print("!!", type(error).__name__ + ":", str(error).strip().split("\n")[0])


def warned(function, *args, **kwargs):
    "Call `function` and print what was warned about, but for NumPy's warnings, which the package silences."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    for w in said:
        if w.category is not RuntimeWarning:
            print("W", w.category.__name__, str(w.message).split(" (Triggered")[0].split("\n")[0])
    return result


def numbers(library, *shape, seed=0, rg=False, dtype=np.float32):
    "A tensor of normal numbers."
    return library.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype), requires_grad=rg)


def names_for(torch):
    "What a program finds besides what it imports."
    made = dict(torch=torch, np=np, nn=torch.nn, F=torch.nn.functional, attempt=attempt, warned=warned, warnings=warnings, __name__="program")
    return made | {"T": lambda *shape, **options: numbers(torch, *shape, **options)}


def run(torch, source, body):
    "The lines that `body(names)` prints after `source` has run."
    source = re.sub(r"\b(from|import) torch(?=[. ])", rf"\1 {torch.__name__}", source)
    names, printed = names_for(torch), io.StringIO()
    torch.manual_seed(0)
    np.random.seed(0)
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(source, "program", "exec"), names)
            body(names)
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_printoptions(profile="default")
    return printed.getvalue().split("\n")


def run_both(source, body=lambda names: None):
    "What both libraries print."
    import torch

    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # PyTorch speaks once, Python once for each line
    try:
        return run(torch, source, body), run(autograd_nb, source, body)
    finally:
        torch.set_warn_always(always)


def plain(line):
    "A line without what belongs to the process: addresses, and the module that a class comes from."
    line = re.sub(r"(<class '|<function |<bound method |<)(?:\w+\.)+(\w+)", r"\1\2", line.replace("autograd_nb", "torch"))
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+", "0x", line))


def same(expected, found):
    "Whether two lines say the same."
    a, b = plain(expected), plain(found)
    if a == b:
        return True
    for mark in ("!! ", "W "):
        if a.startswith(mark) and b.startswith(mark):
            kind = len(re.split(r"[: ]", a[len(mark):])[0]) + len(mark) + 1
            common = len(os.path.commonprefix([a, b])) - kind
            return common >= min(LEAST, (len(a) - kind) / 2)
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    return all(abs(float(x) - float(y)) <= 2e-4 * max(1, abs(float(x))) for x, y in zip(NUMBER.findall(a), NUMBER.findall(b)))


def differences(expected, found):
    "The lines that differ, as text; empty if none do."
    if len(expected) != len(found):
        return "\n".join(["PyTorch:", *expected, "autograd_nb:", *found])
    return "\n".join(f"PyTorch:     {a}\nautograd_nb: {b}" for a, b in zip(expected, found) if not same(a, b))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    assert not differences(*run_both(PROGRAMS[name]))


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    setup, calls = CALLS[name].split("---\n", 1)

    def body(names):
        for call in calls.strip().split("\n"):
            print("#", call)
            warned(attempt, eval, call, names)

    assert not differences(*run_both(setup, body))
