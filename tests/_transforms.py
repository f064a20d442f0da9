"""The same program under PyTorch and under autograd_nb: the value it leaves in `r` and what it prints must agree, or the error and the first words of its message."""

import contextlib
import importlib
import io
import warnings

import numpy as np

SETUP = """
import copy
from collections import namedtuple, OrderedDict
from functools import partial
F, func, fw = torch.nn.functional, torch.func, torch.autograd.forward_ad
vmap, grad, grad_and_value, vjp, jvp, linearize = func.vmap, func.grad, func.grad_and_value, func.vjp, func.jvp, func.linearize
jacrev, jacfwd, hessian, functional_call, stack_module_state = func.jacrev, func.jacfwd, func.hessian, func.functional_call, func.stack_module_state
def R(*shape, seed=0):
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return torch.tensor(numbers.tolist() if shape else float(numbers), dtype=torch.float64)
"""


def run(library, source):
    "('value', r, printed text), or ('error', type name, message)."
    names, printed = {"torch": library, "np": np, "r": None}, io.StringIO()
    importlib.import_module(f"{library.__name__}.autograd.forward_ad")
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(SETUP + source, names)
    except Exception as error:
        return "error", type(error).__name__, str(error)
    return "value", names["r"], printed.getvalue()


def same(expected, found, tolerance=1e-6):
    "Assert that two trees of tensors and plain values agree."
    if hasattr(expected, "dtype") and hasattr(expected, "requires_grad"):
        assert tuple(expected.shape) == tuple(found.shape)
        assert str(expected.dtype) == str(found.dtype)
        assert expected.requires_grad == found.requires_grad
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().resolve_conj().resolve_neg().numpy(force=True), rtol=tolerance, atol=tolerance)
    elif isinstance(expected, (tuple, list)):
        assert len(expected) == len(found)
        for a, b in zip(expected, found):
            same(a, b, tolerance)
    elif isinstance(expected, dict):
        assert list(expected) == list(found)
        same(list(expected.values()), list(found.values()), tolerance)
    elif isinstance(expected, float):
        assert abs(expected - found) <= tolerance * max(1, abs(expected))
    else:
        assert expected == found or str(expected) == str(found)


def check(source, words=40):
    "Assert that a program does the same under both libraries; of an error the type and the first `words` characters of the message."
    import torch

    import autograd_nb

    expected, found = run(torch, source), run(autograd_nb, source)
    assert expected[0] == found[0], f"\nPyTorch: {expected}\nautograd_nb: {found}"
    if expected[0] == "error":
        assert expected[1] == found[1] and expected[2].strip()[:words] == found[2].strip()[:words], f"\nPyTorch: {expected}\nautograd_nb: {found}"
    else:
        same(expected[1], found[1])
        assert expected[2] == found[2]


def programs(text):
    "The programs in a text, parted by empty lines."
    return [p.strip("\n") for p in text.split("\n\n") if p.strip()]
