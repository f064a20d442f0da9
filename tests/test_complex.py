"""Gradients through complex numbers that an operation makes of real ones, also when they are the first that the program meets."""

import numpy as np
import pytest

import autograd_nb
from autograd_nb.layers.complex import CONJUGATES

WAYS = r"""
torch.view_as_complex(x)
torch.complex(x[..., 0], x[..., 1])
torch.polar(x[..., 0].abs(), x[..., 1])
x[..., 0].to(torch.complex64)
x[..., 0].cfloat()
x[..., 0] * (1 + 2j)
1j - x[..., 0]
torch.fft.fft(x[..., 0])
torch.fft.ifft(torch.fft.fft(x[..., 1]))
torch.fft.rfft(x, dim=0, n=4)[:, 0]
torch.linalg.eigvals(x @ x.T + torch.diag(torch.arange(3.)))
torch.einsum('ij,jk->ik', x.to(torch.complex64), torch.complex(torch.ones(2, 1), -torch.ones(2, 1)))[:, 0]
torch.zeros(3, dtype=torch.complex64).index_put((torch.arange(3),), x[..., 0].to(torch.complex64))
torch.cat([x[:2, 0] * 1j, x[2:, 1].cfloat()])
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("way", [line for line in WAYS.strip().splitlines()])
def test_the_first_complex_numbers(way):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.tensor([[0.3, 0.7], [-0.4, 0.9], [1.1, -0.6]], requires_grad=True)
        turn = t.view_as_complex(t.tensor([[0.5, 1.0], [0.2, -1.0], [1.0, 0.7]]))
        CONJUGATES.alive.clear()  # as in a program that has not met one
        CONJUGATES.fade()
        out = t.view_as_real(eval(way, {"torch": t, "x": x}) * turn)
        (out * t.arange(1.0, 7.0).reshape(3, 2)).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_the_first_bfloat16():
    "A cast announces the first short numbers too: from then on products are summed in single precision."
    import subprocess
    import sys

    program = "import autograd_nb as t; from autograd_nb.layers.half import HALF; assert not HALF.on; x = t.full((300,), 1.0).bfloat16(); assert HALF.on and x.sum().item() == 300 and (x @ x).item() == 300"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("symbol", "+-*/")
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 1)), ((), (2,)), ((), ())], ids=str)
@pytest.mark.parametrize("wide", [False, True])
def test_real_and_complex_operands(symbol, shapes, wide):
    "A real and a complex tensor go together as they are, in either order; the real one's gradient is real."
    import torch

    draw = np.random.default_rng(0)
    real, turned = draw.standard_normal(shapes[0]) + 2, draw.standard_normal(shapes[1]) + 1j * draw.standard_normal(shapes[1]) + 2
    for swap in (False, True):
        found = []
        for t in (torch, autograd_nb):
            x, z = t.tensor(real, dtype=t.float64 if wide else t.float32, requires_grad=True), t.tensor(turned, dtype=t.complex128 if wide else t.complex64, requires_grad=True)
            a, b = (z, x) if swap else (x, z)
            out = eval(f"a {symbol} b") * 2 + 1
            out.abs().sum().backward(retain_graph=True)
            (second,) = t.autograd.grad(t.autograd.grad(out.abs().sum(), x, create_graph=True)[0].sum(), z, allow_unused=True)
            found.append([out.detach().numpy(), x.grad.numpy(), z.grad.numpy(), *([] if second is None else [second.numpy()])])
        for e, a in zip(*found, strict=True):
            assert e.dtype == a.dtype and e.shape == a.shape
            np.testing.assert_allclose(a, e, rtol=2e-4, atol=1e-5)


def calls_in(function):
    "The Python functions that `function` calls."
    import sys

    met = []
    sys.setprofile(lambda frame, event, arg: met.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return met[1:]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("symbol", "+-*/")
@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_complex_numbers_beside_tensors(symbol, kind, shape, first, grad):
    "A complex number is an operand like another, and takes the short way."
    import torch

    text = f"z {symbol} x" if first else f"x {symbol} z"
    found = []
    for t in (torch, autograd_nb):
        x = t.linspace(1, 2, int(np.prod(shape))).reshape(shape).to(getattr(t, kind)).requires_grad_(grad)
        way = lambda x=x: eval(text, {"x": x, "z": 2 - 3j})
        y = way()
        found.append([str(y.dtype).split(".")[-1], y.detach().numpy()])
        if not grad: continue
        (y * (1 + 2j)).abs().sum().backward()
        found[-1] += [type(y.grad_fn).__name__, str(x.grad.dtype).split(".")[-1], x.grad.numpy()]
    for theirs, ours in zip(*found):
        if isinstance(theirs, str): assert ours == theirs
        else: np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    if not (first and symbol in "-/"): assert "plainly" not in calls_in(way)


@pytest.mark.parametrize("text", ["c / r", "r / c", "c / 2", "c.exp()", "c * k", "k * c", "c + n", "c * i"])
def test_complex_tensors_are_not_sent_the_long_way(text):
    c = autograd_nb.ones(2, 3, dtype=autograd_nb.complex64)
    names = {"c": c, "r": c.real.clone(), "k": c.real > 0, "n": c.real.long(), "i": 1j}
    eval(text, names)
    assert "plainly" not in calls_in(lambda: eval(text, names))


WHOLE = [(text, kind) for text in ("r * n", "n / r", "c + n", "n * c") for kind in ("uint8", "int8", "int16", "int32", "int64", "bool")]


@pytest.mark.parametrize("text, kind", [*WHOLE, *[(text, kind) for text in ("n == 3", "n * 2", "1 + n") for kind in ("int32", "int64")]])
def test_whole_numbers_are_not_sent_the_long_way(text, kind):
    "Beside floating and complex tensors, and those of 32 and 64 bits beside numbers."
    r = autograd_nb.ones(2, 3)
    names = {"r": r, "c": r.cfloat(), "n": r.to(getattr(autograd_nb, kind))}
    eval(text, names)
    assert "plainly" not in calls_in(lambda: eval(text, names))
