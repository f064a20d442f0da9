"""Well-known small programs, written tersely, trained in both libraries from the same seed: the same losses, step by step.

They lie in `programs/training.txt`, each below a line `### its name`, and put their losses into the list `losses`.
"""

import contextlib
import importlib
import io
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from _rounding import assert_same_numbers

import autograd_nb

pytestmark = pytest.mark.needs("torch")
PROGRAMS = dict(part.split("\n", 1) for part in (Path(__file__).parent / "programs" / "training.txt").read_text().removeprefix("### ").split("\n### "))


def run(library, source):
    "The losses of a program and what it prints."
    source = re.sub(r"^from torch(?=[. ])", f"from {library.__name__}", source, flags=re.MULTILINE)
    names = {name: importlib.import_module(f"{library.__name__}.{path}") for name, path in dict(nn="nn", F="nn.functional", optim="optim", lr_scheduler="optim.lr_scheduler", data="utils.data", distributions="distributions").items()}
    names |= dict(torch=library, np=np, math=math, random=random, losses=[], __name__="program")
    library.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(source, names)
    finally:
        library.set_default_dtype(library.float32)
    return names["losses"], printed.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_losses(name):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)            # on a busy machine PyTorch's threads wait for each other
    try:
        expected, said = run(torch, PROGRAMS[name])
    finally:
        torch.set_num_threads(threads)
    found, ours = run(autograd_nb, PROGRAMS[name])
    assert len(found) == len(expected) >= 10
    assert_same_numbers(found, expected, lambda: run(torch, PROGRAMS[name])[0])
    assert ours == said
