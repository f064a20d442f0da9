"""Pointwise operations and rules on a device, in one launch over arrays of one shape without gaps: compiled for the CPU, they agree with the operations in array language."""

import numpy as np
import pytest
import strict_arrays as strict
from test_device import compiler, device, host, plain_and_fused, stand_in, use  # noqa: F401

import autograd_nb as torch
from autograd_nb.arrays import cupy_backend as backend

F = torch.nn.functional
FORMULAS = {
    "add": lambda x, y: x + y,
    "times a number": lambda x, y: x * 2.5,
    "a number minus": lambda x, y: 1 - x,
    "div": lambda x, y: x / y,
    "tanh": lambda x, y: x.tanh(),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: y.log(),
    "sqrt": lambda x, y: y.sqrt(),
    "abs": lambda x, y: x.abs(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "relu": lambda x, y: x.relu(),
    "gelu": lambda x, y: F.gelu(x),
    "silu": lambda x, y: F.silu(x),
    "softplus": lambda x, y: F.softplus(x),
    "elu": lambda x, y: F.elu(x),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "square": lambda x, y: x**2,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "masked": lambda x, y: (x > y) * x,
    "maximum": lambda x, y: torch.maximum(x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
}


def drawn(n, dtype, device):  # noqa: F811
    rng = np.random.default_rng(n)
    return [torch.tensor(v).to(dtype).to(device).requires_grad_() for v in (rng.standard_normal((n, 3)), rng.random((n, 3)) + 0.1)]


@compiler
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name, dtype, device):  # noqa: F811
    "Values, gradients and second derivatives, with and without a rest that fills no sixteen bytes."

    def computed():
        results = []
        for n in (1, 4, 7):
            x, y = drawn(n, dtype, device)
            out = FORMULAS[name](x, y)
            first = torch.autograd.grad(out, (x, y), torch.full_like(out, 0.7), create_graph=True, allow_unused=True)
            results += [out, *[g for g in first if g is not None]]
            further = [g for g in first if g is not None and g.requires_grad]
            results += [g for g in torch.autograd.grad(further, (x, y), [g.detach() for g in further], allow_unused=True) if g is not None] if further else []
        return [host(r.detach()).copy() for r in results]

    tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-12}[dtype.itemsize]
    for a, b in plain_and_fused(computed):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(b.astype(float), a.astype(float), rtol=tolerance, atol=tolerance)


@pytest.fixture
def launched(device, monkeypatch):  # noqa: F811
    "With kernels compiled: the names of those that are launched."
    names, run = [], strict.RawKernel.__call__
    monkeypatch.setattr(strict.RawKernel, "__call__", lambda self, *args: names.append(self.name) or run(self, *args))
    use(strict.library, True, 1)
    yield names
    use(strict.library, False, 1)


@compiler
def test_what_is_one_launch(launched):
    "Arrays of one shape without gaps, and numbers beside them; everything else goes the other way, with the same result."
    x, y = (torch.arange(float(n), device="cuda").reshape(4, 3)[:] for n in (12, 12))
    cases = {
        "two arrays": (lambda: x * y, 1), "a number": (lambda: x * 2.5, 1), "whole numbers": (lambda: x.long() * 2, 0), "broadcast": (lambda: x * y[0], 0), "turned": (lambda: x.mT * y.mT, 0), "gaps": (lambda: x[:, ::2] * 2, 0),
        "nothing": (lambda: x[:0] * 2, 0), "an odd start": (lambda: x.reshape(-1)[1:] * 2, 0), "an even start": (lambda: x.reshape(-1)[4:] * 2, 1), "one number": (lambda: x[1, 1].clone() * 2, 1),
    }
    for name, (function, count) in cases.items():
        launched.clear()
        found = function()
        assert launched == ["autograd_nb_flat"] * count, name
        use(strict.library, False, 1)
        np.testing.assert_array_equal(host(found), host(function()), err_msg=name)
        use(strict.library, True, 1)


@compiler
def test_a_kernel_for_each_formula(launched):
    "A formula is compiled once, whatever numbers stand in it, and the numbers are today's."
    from autograd_nb.ops.kernels import cuda

    x = torch.ones(4, device="cuda")
    x.clamp(0, 0.5)
    before = len(cuda._flat)
    assert host(x.clamp(0, 0.25)).tolist() == [0.25] * 4 and host(x.clamp(0, 0.75)).tolist() == [0.75] * 4
    assert len(cuda._flat) == before


@compiler
def test_formulas_forget(launched):
    "Static arguments that differ each time do not pile up."
    from autograd_nb.graph.op import REGISTRY
    from autograd_nb.ops.kernels.cuda import Pointwise

    x, formula = torch.ones(4, device="cuda"), Pointwise(REGISTRY["leaky_relu"].definition)
    for k in range(600):
        formula(x._array, negative_slope=k / 600)
    assert 0 < len(formula.made) <= 256


@compiler
def test_what_does_not_compile_goes_the_other_way(launched, monkeypatch):
    "Whoever has another compiler than we had gets the result all the same, and is told."
    from autograd_nb.ops.kernels import cuda

    def refuse(self):
        raise RuntimeError("first line\nno such thing")

    monkeypatch.setattr(strict.RawKernel, "compile", refuse)
    monkeypatch.setattr(cuda, "_flat", {})
    monkeypatch.setattr(backend.kernels, "_kernels", {})
    use(strict.library, True, 1)
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    with pytest.warns(UserWarning, match="autograd_nb_flat could not be compiled.*no such thing"):
        assert host(x.tanh()).shape == (2, 3)
    with pytest.warns(UserWarning, match="autograd_nb_softmax could not be compiled"):
        np.testing.assert_allclose(host(x.softmax(-1)).sum(1), 1, rtol=1e-6)
    assert not launched
