"""Losses of an input and a target of two types of number: what PyTorch makes of them, computes or refuses, ours does too."""

import itertools

import numpy as np
import pytest

import autograd_nb

LOSSES_OF_TWO = (
    "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits"
    " binary_cross_entropy kl_div poisson_nll_loss multilabel_soft_margin_loss"
).split()


@pytest.mark.parametrize("wants", ["input", "target"])
@pytest.mark.parametrize("types", itertools.permutations(["float32", "float64", "int64", "float16"], 2), ids="-".join)
@pytest.mark.parametrize("name", LOSSES_OF_TWO)
@pytest.mark.filterwarnings("ignore")
def test_losses_of_numbers_of_two_types(name, types, wants):
    """A loss has PyTorch's type, and goes back where PyTorch's does."""
    torch = pytest.importorskip("torch")
    found = []
    for library in (torch, autograd_nb):
        pair = dict(zip(("input", "target"), ((library.arange(6).reshape(3, 2) / 7).to(getattr(library, t)) for t in types)))
        if pair[wants].is_floating_point(): pair[wants].requires_grad_()
        try:
            loss = getattr(library.nn.functional, name)(**pair)
            seen = [str(loss.dtype)]
            if loss.requires_grad: loss.backward()
            grad = pair[wants].grad
            found.append((seen, grad if grad is None else grad.double().numpy(), ""))
        except (RuntimeError, NotImplementedError) as error:
            found.append((type(error).__name__, None, str(error).split("\n")[0]))
    (seen, grad, words), (ours, our_grad, our_words) = found
    assert ours == seen and our_words.startswith(words)
    assert (our_grad is None) == (grad is None)
    if grad is not None: np.testing.assert_allclose(our_grad, grad, atol=2e-3)
