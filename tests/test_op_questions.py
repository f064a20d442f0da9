"""What PyTorch's own tests ask of every operation in its table (see `_op_questions`), asked of both libraries.

A fixed number of operations and samples runs always (AUTOGRAD_NB_SEED=… or =fresh takes others); AUTOGRAD_NB_EXHAUSTIVE=1 asks every operation everything."""

import itertools
import os
import random
import re
import warnings

import _op_questions
import _op_samples
import numpy as np
import pytest
from test_op_samples import EXHAUSTIVE
from test_operator_table import operations, values_differ

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")
OPERATIONS, SAMPLES = 16, 2
RANDOM = "rand normal dropout bernoulli multinomial uniform geometric exponential cauchy poisson fractional svd_lowrank pca_lowrank multi_head scaled_dot".split()
BY_PYTORCH_ALONE = {  # (question, operation): what PyTorch gets wrong, or does with other numbers each time
    ("out .*", "lu_unpack|nn.functional.*pool.*"): "writes beyond memory",
    ("reverse over forward", "linalg.solve(_ex)?|linalg.tensorsolve"): "differs from differences of its own tangents",
    ("reverse over forward", "native_batch_norm|native_layer_norm|nn.functional.(batch|layer|instance)_norm"): "differs from differences of its own tangents",
    (".*", "linalg.(eig|eigh|svd|lstsq.*)|svd|(linalg.)?cholesky(_ex)?|cholesky_inverse|cholesky_solve|resize_.*"): "determined up to a factor, or of what a failure leaves",
    (".* expanded", "kthvalue|mode|median|masked.median|native_group_norm|linalg.*"): "ties, singular matrices, and memory that is read as if it had no gaps",
    ("left alone .*", "(nn.functional.|native_)(batch|instance)_norm"): "does not count what it writes to running statistics",
    ("forward.*|vmap of (jvp|tangents)", "(linalg.)?cholesky(_ex)?"): "takes tangents for symmetric",
    ("in place on repeated", "index_put"): "adds to one number several times",
}


def excused(question, title):
    return any(re.fullmatch(q, question) and re.fullmatch(t, title) for q, t in BY_PYTORCH_ALONE)


def chosen(question):
    "The operations that are asked: title, OpInfo, our function."
    found = [(title, *rest) for title, *rest in operations() if not any(word in title for word in RANDOM) and not excused(question, title)]
    if EXHAUSTIVE:
        return found
    seed = os.environ.get("AUTOGRAD_NB_SEED", "1")
    return random.Random(question + (str(random.random()) if seed == "fresh" else seed)).sample(found, OPERATIONS)


def variants(question, info, function):
    "What is called under PyTorch and under our library; None where there is no such variant."
    if question.startswith("out") and not info.supports_out:
        return None
    if not question.startswith(("in place", "forward in place", "method")):
        return info.op, function
    theirs = info.method_variant if question == "method" else info.inplace_variant
    mine = getattr(ours.Tensor, getattr(theirs, "__name__", "?"), None)
    return None if mine is None else (theirs, mine)


def differ(expected, found):
    import torch

    if isinstance(expected, (Exception, torch.Tensor)) or isinstance(found, (Exception, ours.Tensor)):
        line = values_differ(expected, found)
        return line or (isinstance(expected, torch.Tensor) and expected.requires_grad != found.requires_grad and "requires_grad") or None
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return f"{expected}  |  {found}"
        return next(filter(None, map(differ, expected, found)), None)
    return None if expected == found else f"{expected}  |  {found}"


def differences(question, dtype="float64"):
    import torch

    kind, ask = getattr(torch, dtype), _op_questions.QUESTIONS[question]
    for title, info, function in chosen(question):
        called = variants(question, info, function)
        if called is None or kind not in info.dtypes:
            continue
        torch.manual_seed(3)
        np.random.seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(itertools.islice(info.sample_inputs("cpu", kind, requires_grad=info.supports_autograd and kind.is_floating_point), 24))
        for number in range(0, len(samples), 1 if EXHAUSTIVE else max(1, len(samples) // SAMPLES)):
            sample, convert = samples[number], _op_samples.Converter(ours)
            if not isinstance(sample.input, torch.Tensor) and called[0] is not info.op:
                continue
            try:
                args, kwargs = _op_samples.fresh([[sample.input, *sample.args], sample.kwargs], {})
                our_args, our_kwargs = convert([args, kwargs])
            except NotImplementedError:  # as in `test_op_samples`
                continue
            expected = _op_questions.answer(ask, torch, called[0], args, kwargs)
            if question.startswith(("forward", "reverse", "vmap")) and isinstance(expected, Exception):
                continue
            line = differ(expected, _op_questions.answer(ask, ours, called[1], our_args, our_kwargs))
            if line:
                yield f"{title}, sample {number}: {line}"


@pytest.mark.parametrize("question", _op_questions.QUESTIONS)
def test_questions(question):
    found = list(differences(question))
    assert not found, "\n".join(found)
