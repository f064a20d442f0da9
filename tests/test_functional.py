"""autograd.functional: shapes and values of all six, and the same numbers and error words as PyTorch for a table of programs."""

from functools import partial

import numpy as np
import pytest
from _compare import assert_same_output, close

import autograd_nb as torch
from autograd_nb.autograd import functional
from autograd_nb.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

MODES = [{}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}]


def draw(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).tolist(), dtype=torch.float64)


@pytest.mark.parametrize("mode", MODES, ids=["rows", "vectorized", "columns"])
def test_jacobian_of_several_inputs_and_outputs(mode):
    a, b = draw(2, 3), draw(3, seed=1)
    got = jacobian(lambda a, b: (a * b, a.sum(0), b.exp().sum()), (a, b), **mode)
    assert [[tuple(j.shape) for j in row] for row in got] == [[(2, 3, 2, 3), (2, 3, 3)], [(3, 2, 3), (3, 3)], [(2, 3), (3,)]]
    eye = np.eye(3)
    close(got[0][0], np.einsum("ik,jl,j->ijkl", np.eye(2), eye, b.numpy()))
    close(got[0][1], np.einsum("ij,jl->ijl", a.numpy(), eye))
    close(got[1][0], np.broadcast_to(eye[:, None, :], (3, 2, 3)))
    assert (got[1][1].numpy() == 0).all() and (got[2][0].numpy() == 0).all()
    close(got[2][1], np.exp(b.numpy()))
    assert not any(j.requires_grad for row in got for j in row)


def test_results_have_the_form_of_inputs_and_outputs():
    x = draw(2)
    assert isinstance(jacobian(lambda x: x, x), torch.Tensor)
    assert isinstance(jacobian(lambda x: x, (x,)), tuple)
    assert isinstance(jacobian(lambda x: (x,), x), tuple)
    one = jacobian(lambda x: (x,), (x,))
    assert isinstance(one, tuple) and isinstance(one[0], tuple)
    assert isinstance(hessian(lambda x: x.sum(), x), torch.Tensor)
    assert isinstance(hessian(lambda x: x.sum(), (x,))[0], tuple)
    out, product = vjp(lambda x: (x,), (x,), (x,))
    assert isinstance(out, tuple) and isinstance(product, tuple)
    out, product = jvp(lambda x: x, (x,), (x,))
    assert isinstance(out, torch.Tensor) and isinstance(product, torch.Tensor)


def test_products_agree_with_the_matrices():
    x, v, w = draw(3), draw(3, seed=1), draw(2, seed=2)
    f = lambda x: (x.exp() * x.sum())[:2]
    J = jacobian(f, x).numpy()
    close(vjp(f, x, w)[1], w.numpy() @ J)
    close(jvp(f, x, v)[1], J @ v.numpy())
    g = lambda x: (x.exp() * x.sum()).sum()
    H = hessian(g, x).numpy()
    close(H, H.T)
    for product in (vhp, hvp):
        out, got = product(g, x, v)
        close(out, g(x))
        close(got, H @ v.numpy())
    close(hessian(g, x, vectorize=True), H)
    close(hessian(g, x, vectorize=True, outer_jacobian_strategy="forward-mode"), H)


def test_hessian_blocks():
    a, b = draw(2), draw(3, seed=1)
    H = hessian(lambda a, b: (a[:, None] * b).exp().sum(), (a, b))
    assert [[tuple(h.shape) for h in row] for row in H] == [[(2, 2), (2, 3)], [(3, 2), (3, 3)]]
    close(H[0][1], H[1][0].numpy().T)


def test_create_graph_makes_results_differentiable():
    x = draw(3).requires_grad_()
    J = jacobian(lambda x: x**3, x, create_graph=True)
    assert J.requires_grad
    close(torch.autograd.grad(J.sum(), x)[0], 6 * x.detach().numpy())
    for product in (vjp, jvp):
        out, r = product(lambda x: x**3, x, torch.ones(3, dtype=torch.float64), create_graph=True)
        assert out.requires_grad
        close(torch.autograd.grad(r.sum(), x)[0], 6 * x.detach().numpy())
    for product in (vhp, hvp):
        _, r = product(lambda x: (x**3).sum(), x, torch.ones(3, dtype=torch.float64), create_graph=True)
        close(torch.autograd.grad(r.sum(), x)[0], np.full(3, 6.0))
    close(torch.autograd.grad(hessian(lambda x: (x**4).sum(), x, create_graph=True).sum(), x)[0], 24 * x.detach().numpy())
    assert x.grad is None


def test_works_under_no_grad_and_leaves_inputs_alone():
    x = draw(2)
    with torch.no_grad():
        close(jacobian(lambda x: x * x, x), 2 * np.diag(x.numpy()))
        close(hvp(lambda x: (x**3).sum(), x, torch.ones(2, dtype=torch.float64))[1], 6 * x.numpy())
    assert not x.requires_grad and x.grad is None


def test_what_the_function_captures_does_not_count():
    x = draw(2).requires_grad_()
    close(jacobian(lambda y: x * y, x), np.diag(x.detach().numpy()))


def test_empty_tensors():
    assert jacobian(lambda x: x[:0], draw(2)).shape == (0, 2)
    assert jacobian(lambda x: x[:0], draw(2), vectorize=True).shape == (0, 2)
    assert jacobian(lambda x: x * 2, draw(0)).shape == (0, 0)
    assert jacobian(lambda x: x.sum(), draw(0), vectorize=True, strategy="forward-mode").shape == (0,)


def test_the_module_is_reachable_under_its_usual_name():
    assert torch.autograd.functional is functional


# The same programs under PyTorch -------------------------------------------------------------------------------

SETUP = """
F = torch.autograd.functional
x, y = torch.tensor([0.5, -1., 2.]), torch.tensor([[1., 2., 3.], [0.5, 0.25, -1.]])
ones = torch.ones
"""
PROGRAMS = {
    "jacobian": "print(F.jacobian(lambda x: x.exp() * x.sum(), x))",
    "jacobian of two": "print(F.jacobian(lambda x, y: (x * y).sum(1), (x, y)))",
    "jacobian, vectorized": "print(F.jacobian(lambda x, y: ((x * y).sum(1), y.sin()), (x, y), vectorize=True))",
    "jacobian, columns": "print(F.jacobian(lambda x, y: ((x * y).sum(1), y.sin()), (x, y), vectorize=True, strategy='forward-mode')[0][1])",
    "jacobian of a constant": "print(F.jacobian(lambda x: x.detach() * 2, x))",
    "jacobian, zero-dimensional": "print(F.jacobian(lambda x: x ** 2, torch.tensor(3.)))",
    "hessian": "print(F.hessian(lambda x: (x ** 3).sum() * x[0], x))",
    "hessian of two": "print(F.hessian(lambda x, y: (x * y).exp().sum(), (x, y)))",
    "hessian, vectorized": "print(F.hessian(lambda x, y: (x * y).exp().sum(), (x, y), vectorize=True))",
    "hessian, outer columns": "print(F.hessian(lambda x: (x ** 3).sum() * x[0], x, vectorize=True, outer_jacobian_strategy='forward-mode').detach())",
    "hessian of a linear function": "print(F.hessian(lambda x: x.sum(), x))",
    "hessian of one entry": "print(F.hessian(lambda x: (x ** 3).sum().reshape(1, 1), x))",
    "vjp": "print(F.vjp(lambda x: x.exp(), x, ones(3)))",
    "vjp of two": "print(F.vjp(lambda x, y: (x * y, x.sum()), (x, y), (ones(2, 3), torch.tensor(2.))))",
    "vjp without v": "print(F.vjp(lambda x: x.sum(), x))",
    "vjp differentiable": "x.requires_grad_(); out = F.vjp(lambda x: x ** 3, x, ones(3), create_graph=True); print(out[1].requires_grad, out[0].requires_grad)",
    "jvp": "print(F.jvp(lambda x: x.exp() * x.sum(), x, ones(3)))",
    "jvp of two": "print(F.jvp(lambda x, y: (x * y, y.sum()), (x, y), (ones(3), ones(2, 3))))",
    "jvp without v": "print(F.jvp(lambda x: torch.stack([x, x * x]), torch.tensor(3.)))",
    "vhp": "print(F.vhp(lambda x: (x ** 3).sum() * x[1], x, ones(3)))",
    "hvp": "print(F.hvp(lambda x: (x ** 3).sum() * x[1], x, ones(3)))",
    "hvp of two": "print(F.hvp(lambda x, y: (x * y).exp().sum(), (x, y), (ones(3), ones(2, 3))))",
    "vhp of a linear function": "print(F.vhp(lambda x: x.sum(), x, ones(3)))",
    "hvp, third derivative": "x.requires_grad_(); F.hvp(lambda x: (x ** 3).sum(), x, ones(3), create_graph=True)[1].sum().backward(); print(x.grad)",
}
# name -> program that raises
FAULTS = {
    "input not a tensor": "F.jacobian(lambda x: x, 3.0)",
    "one input not a tensor": "F.jacobian(lambda x, y: x, (x, 3.0))",
    "output not a tensor": "F.vjp(lambda x: 3.0, x)",
    "outputs in a list": "F.jvp(lambda x: [x, x], x, ones(3))",
    "v missing": "F.vjp(lambda x: x, x)",
    "v missing, jvp": "F.jvp(lambda x: x, x)",
    "v missing, hvp": "F.hvp(lambda x: x.sum(), x)",
    "v too short": "F.vjp(lambda x: x, x, ones(2))",
    "v too few": "F.jvp(lambda x, y: x, (x, y), (ones(3),))",
    "v too many": "F.vjp(lambda x: x, x, (ones(3), ones(3)))",
    "one v too short": "F.jvp(lambda x, y: x, (x, y), (ones(3), ones(2)))",
    "hessian of several": "F.hessian(lambda x: (x.sum(), x.sum()), x)",
    "hessian of many entries": "F.hessian(lambda x: x, x)",
    "vhp of many entries": "F.vhp(lambda x: x, x, ones(3))",
    "hvp of several": "F.hvp(lambda x: (x.sum(), x.sum()), x, ones(3))",
    "strict, constant": "F.jacobian(lambda x: x.detach(), x, strict=True)",
    "strict, vjp constant": "F.vjp(lambda x: x.detach(), x, ones(3), strict=True)",
    "strict, independent input": "F.jacobian(lambda x, y: x * 2, (x, y), strict=True)",
    "strict, vjp independent input": "F.vjp(lambda x, y: x * 2, (x, y), ones(3), strict=True)",
    "strict, jvp independent input": "F.jvp(lambda x, y: x * 2, (x, y), (ones(3), ones(2, 3)), strict=True)",
    "strict, linear, create_graph": "F.jacobian(lambda x: x * 2, x.requires_grad_(), strict=True, create_graph=True)",
    "strict, vjp linear, create_graph": "F.vjp(lambda x: x * 2, x.requires_grad_(), ones(3), strict=True, create_graph=True)",
    "strict, hessian linear": "F.hessian(lambda x: x.sum(), x, strict=True)",
    "strict, vhp linear": "F.vhp(lambda x: x.sum(), x, ones(3), strict=True)",
    "strict, hvp linear": "F.hvp(lambda x: x.sum(), x, ones(3), strict=True)",
    "strict, vhp independent": "F.vhp(lambda x, y: (x ** 2).sum(), (x, y), (ones(3), ones(2, 3)), strict=True)",
    "strict and vectorize": "F.jacobian(lambda x: x * 2, x, strict=True, vectorize=True)",
    "strategy unknown": "F.jacobian(lambda x: x, x, strategy='sideways')",
    "columns, strict": "F.jacobian(lambda x: x, x, strict=True, vectorize=True, strategy='forward-mode')",
    "columns, create_graph": "F.jacobian(lambda x: x, x, create_graph=True, strategy='forward-mode')",
    "columns, one by one": "F.jacobian(lambda x: x, x, strategy='forward-mode')",
    "outer strategy unknown": "F.hessian(lambda x: x.sum(), x, outer_jacobian_strategy='sideways')",
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_print_the_same(program):
    printed = assert_same_output(SETUP + program)
    assert printed and "Error" not in printed


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", FAULTS.values(), ids=FAULTS)
def test_faults_have_the_same_words(program):
    import torch as reference

    def fault(lib):
        try:
            exec(SETUP + program, {"torch": lib})
        except Exception as error:
            return type(error).__name__, str(error)
        return None

    ours, theirs = fault(torch), fault(reference)
    assert theirs is not None, "PyTorch raises"
    assert ours is not None, "we raise too"
    assert ours[0] == theirs[0]
    words = lambda text: text.replace("torch.Size(", "").replace("autograd_nb.tensor.", "").split()[:7]
    assert words(ours[1]) == words(theirs[1])


COLUMNS = {
    "of an input that requires grad": "F.jacobian(lambda v: v * v * w, x)",
    "of an input that does not": "F.jacobian(lambda v: (v ** 3).sum() * w[0], x.detach())",
    "of two, in a tuple": "F.jacobian(lambda v, u: (v * u, u.sum()), (x, w))",
    "past an inner no_grad": "F.jacobian(torch.no_grad()(lambda v: v * v), x)",
    "past an inner inference_mode": "F.jacobian(torch.inference_mode()(lambda v: v * v), x.detach())",
    "within no_grad": "torch.no_grad()(lambda: F.jacobian(lambda v: v * v, x))()",
    "tangents switched off": "off(lambda: F.jacobian(lambda v: v * v, x))",
    "tangents switched off inside": "F.jacobian(lambda v: off(lambda: v * v), x)",
    "random numbers": "F.jacobian(lambda v: v * torch.rand(3), x)",
    "forward mode inside": "F.jacobian(lambda v: torch.func.jvp(torch.sin, (v,), (v,))[1], x)",
    "through layers": "F.jacobian(lambda v: torch.nn.functional.layer_norm(v, (3,), w).softmax(0), x)",
    "a constant": "F.jacobian(lambda v: w * 1, x)",
}
COLUMNS |= {
    "outer, of an input that requires grad": "F.hessian(lambda v: (v ** 3).sum() * w[0], x, vectorize=True, outer_jacobian_strategy='forward-mode')",
    "outer, of two": "F.hessian(lambda v, u: (v * u).exp().sum(), (x, w), vectorize=True, outer_jacobian_strategy='forward-mode')",
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", COLUMNS.values(), ids=COLUMNS)
def test_columns_are_forward_mode(call):
    "Modes, history and refusals are those of dual tensors under `vmap`."
    import torch as reference

    def outcome(torch):
        def off(function):
            with torch.autograd.forward_ad._set_fwd_grad_enabled(False):
                return function()

        functional, F = torch.autograd.functional, type("F", (), {})
        F.jacobian, F.hessian = partial(functional.jacobian, vectorize=True, strategy="forward-mode"), functional.hessian
        x, w = (torch.tensor(v, requires_grad=True) for v in ([0.5, -1.0, 2.0], [1.0, 2.0, 0.25]))
        try:
            found = eval(call, dict(torch=torch, F=F, x=x, w=w, off=off))
        except RuntimeError as error:
            return str(error)[:6]
        rows = found if isinstance(found, (tuple, list)) else (found,)
        flat = [t for row in rows for t in (row if isinstance(row, (tuple, list)) else (row,))]
        whole = sum(t.sum() for t in flat)
        if whole.requires_grad:
            whole.backward()
        return [(t.requires_grad, t.shape, [round(v, 4) for v in t.flatten().tolist()]) for t in flat], [None if t.grad is None else [round(v, 4) for v in t.grad.tolist()] for t in (x, w)]

    assert outcome(torch) == outcome(reference)
