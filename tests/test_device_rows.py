"""Kernels for whole rows on a device, compiled for the CPU: they agree with the operations in array language."""

import numpy as np
import pytest
import strict_arrays as strict
from test_device import compiler, device, host, plain_and_fused, stand_in, use  # noqa: F401

import autograd_nb as torch

F = torch.nn.functional


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


SPECIAL = torch.tensor([[1.0, float("nan"), 2.0, 3.0], [float("-inf")] * 4, [float("inf"), 1.0, float("inf"), 0.0], [2.0, 2.0, -1.0, 2.0]])
SEEN = torch.tensor(np.random.default_rng(1).random((2, 3, 5, 5)) < 0.7)
CALLS = {
    "softmax": lambda x: x.softmax(-1),
    "softmax of all": lambda x: x.reshape(-1).softmax(0),
    "log_softmax": lambda x: x.log_softmax(2),
    "softmax of columns": lambda x: x.softmax(1),
    "softmax of a view": lambda x: x.mT.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (7,), eps=1e-3),
    "layer_norm of planes": lambda x: F.layer_norm(x, (5, 7)),
    "group_norm": lambda x: F.group_norm(x[:, :4], 2),
    "var": lambda x: x.var(-1),
    "var of all": lambda x: x.var(correction=0),
    "std": lambda x: x.std((1, 2), keepdim=True),
    "std of one number": lambda x: x[..., :1].contiguous().std(-1, correction=0),
    "argmax": lambda x: x.argmax(-1),
    "argmin of all": lambda x: x.argmin(),
    "argmin": lambda x: x.argmin(2, keepdim=True),
    "max": lambda x: x.max(-1)[0],
    "min of columns": lambda x: x.min(1)[0],
    "gather": lambda x: x.gather(1, torch.tensor([[[4] * 7, [0] * 7]] * 3, device=x.device)),
    "gather along rows": lambda x: x.gather(2, torch.tensor([[[6, 0, 3]] * 5] * 3, device=x.device)),
    "a smaller index": lambda x: x.gather(1, torch.tensor([[[4, 1]]], device=x.device)),
    "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(3, 1)[0],
}


@compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_rows(name, dtype, device):  # noqa: F811
    "Values, gradients and second derivatives."

    def computed():
        x = drawn(3, 5, 7, dtype=dtype).to(device).requires_grad_()
        out = CALLS[name](x)
        results = [out]
        if out.requires_grad:
            starts = drawn(*out.shape, dtype=dtype, seed=2).to(device)
            (g,) = torch.autograd.grad(out, x, starts, create_graph=True)
            results.append(g)
            if g.requires_grad:
                results.append(torch.autograd.grad((g * g).sum(), x)[0])
        return [host(r.detach()).copy() for r in results]

    tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-12}[dtype.itemsize]
    for a, b in plain_and_fused(computed):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(b.astype(float), a.astype(float), rtol=tolerance, atol=tolerance)


@compiler
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "argmax", "argmin", "var"])
def test_rows_with_special_numbers(name, device):  # noqa: F811
    "NaN and infinities come out as on the CPU; of equal numbers the first counts."
    function = dict(softmax=lambda x: x.softmax(-1), log_softmax=lambda x: x.log_softmax(-1), argmax=lambda x: x.argmax(-1), argmin=lambda x: x.argmin(-1), var=lambda x: x.var(-1))[name]
    wanted = function(SPECIAL).numpy()
    for found in plain_and_fused(lambda: [host(function(SPECIAL.to(device))).copy()])[0]:
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@compiler
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, masked, device):  # noqa: F811
    "Scores that nobody may see count for nothing, and a row of only these is zero."
    if causal and masked:
        return
    mask = SEEN.clone()
    mask[0, 0, 2] = False

    def computed():
        q, k, v = (drawn(2, 3, 5, 4, seed=s).to(device).requires_grad_() for s in range(3))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(device) if masked else None, is_causal=causal)
        return [host(t.detach()).copy() for t in (out, *torch.autograd.grad(out.square().sum(), (q, k, v)))]

    for a, b in plain_and_fused(computed):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@compiler
def test_what_takes_one_launch(device, monkeypatch):  # noqa: F811
    "Rows without gaps take the kernel for rows, everything else goes the other way."
    launched = []
    run = strict.RawKernel.__call__
    monkeypatch.setattr(strict.RawKernel, "__call__", lambda self, *args: launched.append(self.name.removeprefix("autograd_nb_")) or run(self, *args))

    def names(function):
        launched.clear()
        plain_and_fused(lambda: [function(drawn(3, 5, 7).to(device))])
        return launched[:]

    assert names(CALLS["softmax"]) == ["softmax"] and names(CALLS["layer_norm of planes"]) == ["normalise"]
    assert names(CALLS["std"]) == ["std"] and names(CALLS["max"]) == ["argmax"]
    assert names(CALLS["softmax of columns"]) == names(CALLS["softmax of a view"]) == names(CALLS["min of columns"]) == []


@compiler
def test_places_wrap_around(device):  # noqa: F811
    "A place that is none is not looked for, as that would wait; it reads inside the array."

    use(strict.library, True, 1)
    try:
        found = torch.arange(6.0, device=device).gather(0, torch.tensor([7, -1, 5], device=device))
    finally:
        use(strict.library, False, 1)
    np.testing.assert_array_equal(host(found), [1, 5, 5])
