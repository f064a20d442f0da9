"""Views that show the conjugate or the negative of their memory: what they show, what is written through them, whose gradient goes where."""

import gc

import numpy as np
import pytest

import autograd_nb
from autograd_nb.layers.conjugate_views import CONJUGATE_VIEWS

VIEWS = r"""
y[0]
y.t()
y.view(4)
y.reshape(-1)
y[:, 1]
y[0, 0]
y.unsqueeze(0)
y.expand(2, 2, 2)
y.diagonal()
y.real
y.imag
y.mH
y.H
y.adjoint()
y.unbind(0)[1]
y.split(1)[1]
y.as_strided((2,), (1,))
y.detach()
y.data
y.permute(1, 0)
y.unfold(0, 2, 1)
y.conj()
y.imag[0]
y.imag.detach()
y.real.real
y.contiguous()
y.clone()
y.resolve_conj()
y.imag.resolve_neg()
y.to(torch.complex128)
y + 1
y[[0, 1]]
y._conj()
y._neg_view()
y._neg_view().conj()
y._neg_view().imag
torch.vmap(lambda row: row.conj())(y)
torch.vmap(lambda row: row * 1j)(y)
"""


def told(x, of):
    "What a tensor shows, and where it lies in the memory of another one."
    away = x.data_ptr() - of.data_ptr()
    return (
        x.is_complex() and x.is_conj(), x.is_neg(), x._is_view(), x._base is of, tuple(x.shape), x.stride(), x.storage_offset(),
        away if 0 <= away < 64 and x.untyped_storage().data_ptr() == of.untyped_storage().data_ptr() else "elsewhere", x.is_contiguous(), str(x.dtype),
    )


@pytest.mark.needs("torch")
@pytest.mark.parametrize("view", VIEWS.strip().splitlines())
def test_views_of_a_conjugate(view):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.tensor([[1 + 2j, 3 - 1j], [2j, -1 + 1j]])
        out = eval(view, {"torch": t, "y": x.conj()})
        before = out.tolist()
        x[0] += 1j  # views show it
        found.append((told(out, x), before, out.tolist(), str(out.resolve_conj().resolve_neg())))
    assert found[0] == found[1]


WRITES = r"""
y[0] = 2j
y[1, 1] = 5 + 1j
y[y.abs() > 2] = 1j
y[[0, 1], [1, 0]] = torch.tensor([1j, 2.])
y *= 2j
y += y
y.mul_(x)
y.copy_(torch.ones(2, 2) * 3j)
y.copy_(x)
x.copy_(y)
y.fill_(1j)
y.zero_()
y.exp_()
y.conj_physical_()
y.imag.add_(1)
y.imag[0] = 5.
y.real.zero_()
y.imag = torch.ones(2)
y.t()[0].mul_(1j)
y.index_fill_(0, torch.tensor([0]), 1j)
y.index_add_(0, torch.tensor([0]), torch.ones(1, 2) * 1j)
y.masked_fill_(torch.tensor([[True, False], [False, True]]), 7j)
y.scatter_(0, torch.tensor([[0]]), 5j)
y.lerp_(y * 2, 0.5)
y.addcmul_(y, y)
y.fill_diagonal_(3j)
y.tril_()
y.clamp_min_(0) if y.is_neg() else y.cumsum_(0)
torch.mul(y, 2j, out=y)
torch.add(x, 1j, out=y)
y.unsqueeze_(0).add_(1j)
y.data.add_(1j)
y.detach().add_(1j)
x.data = y
y.data = x
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("write", WRITES.strip().splitlines())
def test_writes_through_a_conjugate(write, recorded):
    import torch

    found = []
    for t in (torch, autograd_nb):
        leaf = t.tensor([[1 + 2j, 3 - 1j], [2j, -1 + 1j]], requires_grad=recorded)
        x = leaf * 1
        y, other = x.conj(), x.conj()[0]
        scope = {"torch": t, "x": x, "y": y}
        try:
            exec(write, scope)
        except (RuntimeError, TypeError) as error:
            found.append((type(error), str(error)[:40]))
            continue
        x, y = scope["x"], scope["y"]
        out = [x.tolist(), y.tolist(), other.tolist(), x.is_conj(), y.is_conj(), x._version, y._version, y.shape, y.requires_grad]
        gradients = []
        for result in (x, y, other):
            if not result.requires_grad: continue
            leaf.grad = None
            try: (result * t.tensor([1 + 0.5j, 2 - 1j])).imag.sum().backward(retain_graph=True)
            except RuntimeError as error: out.append(str(error)[:40])
            else: gradients.append([0] if leaf.grad is None else leaf.grad.tolist())
        found.append((out, np.array(gradients, object).tolist()))
    assert found[0] == found[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("write", ["y.t_().add_(1j)", "y.unsqueeze_(1).mul_(2)", "x.set_(y)", "y.set_(x)", "y.resize_(2).add_(1)"])
def test_shapes_and_memory_of_a_conjugate_are_changed(write):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.tensor([[1 + 2j, 3 - 1j], [2j, -1 + 1j]])
        y = x.conj()
        eval(write, {"x": x, "y": y})
        found.append((x.tolist(), y.tolist(), x.is_conj(), y.is_conj(), y.shape, y.stride()))
    assert found[0] == found[1]


GRADIENTS = r"""
(z * z.conj()).real.sum()
z.conj().imag.sum()
(z.conj()[0] * 2j).abs().sum()
z.clone().conj().mul_(1j).abs().sum()
(z.mH @ z).abs().sum()
z.conj().real.pow(2).sum() + z.conj().conj().imag.sum()
torch.vdot(z[0], z[1]).abs()
torch.func.vmap(lambda row: (row.conj() * row).real.sum())(z).sum()
torch.linalg.solve(z.mH + 3, z).abs().sum()
torch.stack([z.conj()[0], z[1]]).prod(0).abs().sum()
(z._neg_view() * z.conj().imag).abs().sum()
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("loss", GRADIENTS.strip().splitlines())
def test_gradients_through_a_conjugate(loss):
    "Of first and second order."
    import torch

    found = []
    for t in (torch, autograd_nb):
        z = (t.arange(4., dtype=t.float64).reshape(2, 2) * (1 - 2j) + 1).requires_grad_()
        value = eval(loss, {"torch": t, "z": z})
        (g,) = t.autograd.grad(value, z, create_graph=True)
        second = t.autograd.grad(g.abs().pow(2).sum(), z)[0] if g.requires_grad else g * 0
        found.append((value.item(), g.tolist(), second.tolist()))
    for theirs, ours in zip(*found): np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-7, atol=1e-9)


def after_writes(t, x):
    "Writes through a conjugate of a copy of `x`, under a transform or not."
    x = x.clone()
    view = x.conj()
    view.mul_(2j)
    view[0] = x[1] * 2
    return x


TRANSFORMS = r"""
[v.tolist() for v in F.jvp(lambda z: z.conj() * 2j, (x,), (x * 1j,))]
F.jvp(lambda z: z * 2j, (x.conj(),), (x.conj() * 1j,))[1].tolist()
[v.tolist() for v in F.jvp(f, (x,), (x * 1j,))]
F.vmap(f)(x[:, :, None]).tolist()
F.grad(lambda z: f(z).real.sum())(x).tolist()
F.vjp(f, x)[1](x)[0].tolist()
F.vmap(lambda r: r * 2)(x.conj()).tolist()
t.autograd.functional.jvp(lambda z: z.conj(), x, x)[1].tolist()
t.autograd.functional.vjp(f, x, x)[1].tolist()
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", TRANSFORMS.strip().splitlines())
def test_transforms(call):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.tensor([[1 + 2j, 3j], [1 - 1j, 2.]])
        found.append(eval(call, {"t": t, "F": t.func, "x": x, "f": lambda z, t=t: after_writes(t, z)}))
    assert found[0] == found[1]


@pytest.mark.needs("torch")
def test_tangents_that_are_conjugates():
    import torch

    found = []
    for t in (torch, autograd_nb):
        forward, x = t.autograd.forward_ad, t.tensor([1 + 2j, 3j])
        with forward.dual_level():
            d = forward.make_dual(x.clone(), (x * 1j).conj())
            c = d.conj()
            c.mul_(2j)
            shown = forward.make_dual(x.conj(), x * 1j) * 2
            found.append([v.tolist() for v in (*forward.unpack_dual(d), *forward.unpack_dual(c), *forward.unpack_dual(shown))])
    assert found[0] == found[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("write", ["b.mul_(2)", "y.mul_(2)", "b.data.mul_(2)", "y.imag.add_(1)", "b.add(1)"])
def test_writes_into_what_was_read_are_noticed(write):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.ones(2, dtype=t.complex64, requires_grad=True)
        b = x * 2
        y = b.conj()
        z = y * y
        eval(write, {"b": b, "y": y})
        try: z.abs().sum().backward()
        except RuntimeError as error: found.append(str(error)[:80])
        else: found.append(x.grad is not None)
    assert found[0] == found[1]


AMONG_VIEWS = r"""
torch.sin(x.conj().T, out=x).tolist()
torch.sin(x, out=x.T.conj()).tolist()
torch.mul(x.mH, x, out=x).tolist()
x.conj().is_set_to(x), x.is_set_to(x.conj()), x.is_set_to(x)
torch.func.grad(lambda u: u.clone().conj().mul_(w).conj().sum().real)(x).tolist()
torch.func.grad(lambda u: u.clone()[:1].mul_(w[:1]).sum().real)(x).tolist()
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", AMONG_VIEWS.strip().splitlines())
def test_a_tensor_and_its_conjugate_in_one_call(call):
    import torch

    found = []
    for t in (torch, autograd_nb):
        x = t.tensor([[1 + 2j, 0.5j], [1 - 1j, 2.]])
        w = t.tensor([[1j, 2.], [3., 1 - 1j]], requires_grad=True)
        found.append((eval(call, {"torch": t, "x": x, "w": w}), x.tolist()))
    for theirs, ours in zip(*found): np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-6)


def test_a_parameter_whose_data_is_a_conjugate_can_be_trained():
    torch = autograd_nb
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    p.data = torch.tensor([1 + 2j, 3j]).conj()
    (p * p.conj()).real.sum().backward()
    torch.optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [0, 0]


ERRORS = r"""
y.numpy()
np.asarray(y)
y.imag.numpy()
y.view(torch.float32)
y.view(torch.complex64)
y.imag.view(torch.int32)
torch.view_as_real(y)
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", ERRORS.strip().splitlines())
def test_what_needs_the_memory_is_refused(call):
    import torch

    found = []
    for t in (torch, autograd_nb):
        with pytest.raises(Exception) as caught: eval(call, {"torch": t, "np": np, "y": t.tensor([1 + 2j]).conj()})
        found.append((caught.type, str(caught.value).splitlines()[0][:90]))
    assert found[0] == found[1]


def test_copies_have_memory_of_their_own(tmp_path):
    import copy
    import pickle

    torch = autograd_nb
    x = torch.tensor([1 + 2j, 3j])
    y = x.conj()
    torch.save(y, tmp_path / "y.pt")
    torch.save(y, tmp_path / "y.nb")
    copies = [copy.deepcopy(y), copy.copy(y), pickle.loads(pickle.dumps(y)), torch.nn.Parameter(y), torch.load(tmp_path / "y.nb")]
    class Own(torch.Tensor): pass
    copies.append(y.as_subclass(Own))
    for made in copies:
        assert made.tolist() == y.tolist() and not made.is_conj()
        made.detach().mul_(2)
        assert made.tolist() == [2 - 4j, -6j] and y.tolist() == [1 - 2j, -3j]
    assert type(copies[-1]) is Own and type(copies[-1].conj() + 1) is Own
    read = torch.load(tmp_path / "y.pt")
    assert read.tolist() == y.tolist() and read.is_conj()


def test_numbers_that_were_read_cannot_be_written_to():
    "A write into them would be lost."
    y = autograd_nb.tensor([1 + 2j]).conj()
    with pytest.raises(ValueError): y._array[0] = 1
    assert y.numpy(force=True).tolist() == [1 - 2j]


def test_a_captured_step_refuses_such_views_from_outside():
    torch = autograd_nb
    x = torch.tensor([1 + 2j, 3j])
    y, scale = x.conj(), torch.ones(2)

    @torch.compile
    def step(scale): return (y * scale).abs().sum() + (x.conj() * scale).real.sum()

    for _ in range(6):
        x.mul_(2)
        want = (y * scale).abs().sum() + (x.conj() * scale).real.sum()
        assert step(scale).item() == want.item()


def test_the_layer_rests_when_all_are_gone():
    torch = autograd_nb
    x = torch.tensor([1 + 2j])
    y = x.conj()
    assert CONJUGATE_VIEWS.on
    del y
    gc.collect()
    CONJUGATE_VIEWS.alive.clear()  # those of other tests
    (x.clone().requires_grad_() * 2).abs().sum().backward()
    assert not CONJUGATE_VIEWS.on
