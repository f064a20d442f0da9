"""Views, versions and in-place writes: memory is shared, history is kept right, and forbidden writes are refused."""

import copy
import gc
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from _custom import square

import autograd_nb as torch
from autograd_nb.autograd import grad


def grid():
    return torch.tensor(np.arange(12.0).reshape(3, 4))


# name -> view of a (3, 4) tensor
VIEWS = {
    "row": lambda t: t[1],
    "element": lambda t: t[1, 2],
    "slice": lambda t: t[1:, ::2],
    "negative": lambda t: t[-1, -2:],
    "column": lambda t: t[:, 1],
    "ellipsis": lambda t: t[..., 0],
    "none": lambda t: t[None, 1:],
    "zero-d of a row": lambda t: t[2][3],
    "select": lambda t: t.select(1, 2),
    "narrow": lambda t: t.narrow(0, 1, 2),
    "view": lambda t: t.view(2, 6),
    "reshape": lambda t: t.reshape(-1),
    "flatten": lambda t: t.flatten(),
    "transpose": lambda t: t.transpose(0, 1),
    "T": lambda t: t.T,
    "mT": lambda t: t.mT,
    "t()": lambda t: t.t(),
    "permute": lambda t: t.permute(1, 0),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t[:1].squeeze(),
    "diagonal": lambda t: t.diagonal(),
    "unflatten": lambda t: t.unflatten(1, (2, 2)),
    "movedim": lambda t: t.movedim(0, 1),
    "view of a view of a view": lambda t: t.T[1:].T[0],
}
SEVERAL = {
    "unbind": lambda t: t.unbind(1)[2],
    "split": lambda t: t.split(2, 1)[1],
    "chunk": lambda t: t.chunk(2)[0],
    "iteration": lambda t: list(t)[1],
}


@pytest.mark.parametrize("view", [*VIEWS.values(), *SEVERAL.values()], ids=[*VIEWS, *SEVERAL])
def test_a_view_shares_memory(view):
    t = grid()
    v = view(t)
    assert v._base is t and v._is_view() and np.shares_memory(v.numpy(), t.numpy())
    places = view(grid())
    v.mul_(-1)
    assert t._version == v._version == 1
    assert sorted(t.numpy()[t.numpy() < 0]) == sorted(-places.numpy().ravel()[places.numpy().ravel() > 0])
    t.fill_(5)
    assert (v.numpy() == 5).all() and v._version == 2


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_history_of_a_write_through_a_view(view):
    "`v *= 3` through a view of x * 1: the result is that of masked multiplication."
    mask = torch.ones(3, 4, dtype=torch.float64)
    view(mask).mul_(3)
    x = grid().requires_grad_()
    y = x * 1
    view(y).mul_(3)
    assert torch.equal(y.detach(), x.detach() * mask) and y.grad_fn.name() == "torch::autograd::CopySlices"
    (y * y).sum().backward()
    assert np.array_equal(x.grad.numpy(), (2 * x.detach() * mask * mask).numpy())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_history_of_a_view_after_a_write_to_its_base(view):
    x = grid().requires_grad_()
    y = x * 1
    v = view(y)
    y.mul_(2)
    view(y).add_(v.detach() * 0)
    (g,) = grad(v.sum(), x)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    view(expected).fill_(2)
    assert np.array_equal(g.numpy(), expected.numpy())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_second_derivative_through_a_write(view):
    x = (grid() + 1).requires_grad_()
    y = x * x
    view(y).mul_(view(x))
    (g,) = grad(y.sum(), x, create_graph=True)
    (h,) = grad(g.sum(), x)
    expected = torch.full((3, 4), 2.0, dtype=torch.float64)
    view(expected).copy_(6 * view(x.detach()))
    assert np.allclose(h.numpy(), expected.numpy())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_writes_to_leaves_and_their_views_are_refused(view):
    x = grid().requires_grad_()
    for write in (lambda: x.add_(1), lambda: view(x).mul_(2), lambda: x.__setitem__(0, 1.0), lambda: view(x).fill_(3)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
            write()
    assert x._version == 0 and torch.equal(x.detach(), grid())
    with torch.no_grad():
        x.add_(1)
        x[0] = 7
    assert x.is_leaf and x.requires_grad and x[0, 0].item() == 7


def test_value_written_is_differentiated():
    x, v = grid().requires_grad_(), torch.ones(4, dtype=torch.float64, requires_grad=True)
    y = x * 1
    y[1] = v * 5
    y[:, 0] = v[0] * 2
    y[[0, 2], [3, 3]] = v[:2]
    y[y > 1e9] = 0
    y.sum().backward()
    assert v.grad.numpy().tolist() == [3 * 2 + 1, 5 + 1, 5, 5]
    expected = np.ones((3, 4))
    expected[1], expected[:, 0], expected[[0, 2], 3] = 0, 0, 0
    assert np.array_equal(x.grad.numpy(), expected)


def test_write_into_a_tensor_without_history():
    out = torch.zeros(3)
    w = torch.tensor(2.0, requires_grad=True)
    for i in range(3):
        out[i] = w**i
    assert out.requires_grad and not out.is_leaf
    out.sum().backward()
    assert w.grad.item() == 0 + 1 + 4


def test_copy_keeps_the_source_apart():
    x = torch.ones(2, requires_grad=True)
    y = torch.zeros(2)
    y.copy_(x)
    assert not y.is_leaf and y.grad_fn is not None and y.requires_grad
    y.mul_(3)
    y.sum().backward()
    assert x.grad.numpy().tolist() == [3, 3] and x.detach().numpy().tolist() == [1, 1]


def test_versions():
    t = torch.zeros(3)
    d, c = t.detach(), t.clone()
    apart = t.data
    t.add_(1)
    t[0] = 5
    d.mul_(2)
    assert t._version == d._version == 3 and c._version == 0
    apart.add_(1)
    assert apart._version == 1 and t._version == 3 and t[1].item() == 3
    t += 1
    assert t._version == 4
    t = t + 1
    assert t._version == 0


def test_data_hides_writes_and_detach_does_not():
    for hide, fails in ((lambda t: t.data, False), (lambda t: t.detach(), True)):
        x = torch.ones(2, requires_grad=True)
        y = (x * x).sum()
        hide(x).mul_(10)
        if fails:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.backward()
        else:
            y.backward()
            assert x.grad.numpy().tolist() == [20, 20]


def test_in_place_write_that_uses_its_own_old_value():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1
    y[0] = y[1].clone() * y[2].clone()
    y[1:] += y[:2].clone()
    (g,) = grad((y * y).sum(), x)
    assert y.detach().numpy().tolist() == [6, 8, 5]
    assert g.numpy().tolist() == [0, 2 * (6 * 3 + 8 * 4 + 5), 2 * (6 * 2 + 8 * 2 + 5)]


def test_hooks_belong_to_the_value_before_a_write():
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(g[0].item()))
    y.mul_(3)
    y.sum().backward()
    assert seen == [3.0]


def test_swap_needs_no_clone_of_the_graph():
    x = torch.arange(4.0, requires_grad=True)
    y = x * 1
    y[0], y[3] = y[3].clone(), y[0].clone()
    (y * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.numpy().tolist() == [4, 2, 3, 1]


def test_numpy_shares_memory_and_is_refused_with_grad():
    t = torch.zeros(3)
    t.numpy()[1] = 4
    assert t[1].item() == 4
    a = np.zeros(2)
    s = torch.from_numpy(a)
    s.add_(1)
    assert a.tolist() == [1, 1] and torch.tensor(a).numpy() is not a
    with pytest.raises(RuntimeError, match="Can't call numpy\\(\\) on Tensor that requires grad"):
        t.requires_grad_().numpy()


def test_copies_are_copies():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.requires_grad and y.is_leaf and not np.shares_memory(y.detach().numpy(), x.detach().numpy())
    assert copy.deepcopy(x).grad.numpy().tolist() == [3, 3]


def test_inference_tensors():
    with torch.inference_mode():
        y = torch.ones(2) * 2
        y.add_(1)
        assert y.is_inference() and not y.requires_grad
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        y * x
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"):
        y.requires_grad_()
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        y._version
    assert (y + x).requires_grad and not y.clone().is_inference()


def test_integers_cannot_require_grad():
    for make in (lambda: torch.tensor([1, 2], requires_grad=True), lambda: torch.arange(3).requires_grad_(), lambda: torch.zeros(2, dtype=torch.bool, requires_grad=True)):
        with pytest.raises(RuntimeError, match="nly Tensors of floating point"):
            make()
    x = torch.ones(2, requires_grad=True)
    for t in (x.long(), x > 0, x.argmax(), x.to(torch.int32), x.bool(), x.sort().indices):
        assert not t.requires_grad and t.grad_fn is None


def test_a_leaf_that_is_a_view_is_still_a_leaf():
    for write in (lambda x: x.add_(1), lambda x: x[0].mul_(2), lambda x: x.__setitem__(0, 1.0), lambda x: x.view(-1).zero_()):
        x = torch.arange(4.0).reshape(2, 2).requires_grad_()
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place operation"):
            write(x)
        with torch.no_grad():
            write(x)
        assert x.is_leaf
        (x * 3).sum().backward()
        assert x.grad.numpy().tolist() == [[3, 3], [3, 3]]


def test_retained_gradient_follows_an_in_place_write_and_hooks_do_not():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    seen = []
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g[0].item()))
    y.mul_(3)
    y.sum().backward()
    assert y.grad.numpy().tolist() == [1, 1] and seen == [3] and y.retains_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.complex64])
def test_views_share_memory_in_every_dtype(dtype):
    t = torch.ones(4, 6).to(dtype)
    for view in (t[1:, ::2], t.split(3, dim=1)[1], t.unbind(0)[2], t.chunk(2, 1)[0], t.transpose(0, 1), t[:, None].expand(4, 2, 6)):
        assert view.data_ptr() >= t.data_ptr() and view._base is t
    part = t.split(3, dim=1)[0]
    assert part.stride() == (6, 1)
    part.zero_()
    assert t.abs().sum().item() == 12


@pytest.mark.parametrize("base", [lambda x: x * 1, lambda x: (x * 1).T.clone(), lambda x: x.T * 1, lambda x: (x * torch.ones(2, 3, 4))[1] * 1], ids=["in order", "turned", "turned in memory", "of more dimensions"])
def test_a_row_of_writes_through_slices(base):
    "Each write is one `CopySlices`, and what was added through a slice passes on untouched."
    x = grid().requires_grad_()

    def write(y):
        y[1:] += y[:-1] * 2
        y[:, ::2] *= 3
        y[:, 1] = y[:, 0]
        y[0, 1:] -= 1
        return (y * y).sum()

    write(base(x)).backward()
    numbers = x.detach().numpy().astype(np.float64)
    for i in np.ndindex(numbers.shape):
        step = np.zeros_like(numbers)
        step[i] = 1e-4
        high, low = (write(base(torch.tensor(numbers + s, dtype=torch.float64))).item() for s in (step, -step))
        assert abs((high - low) / 2e-4 - x.grad[i].item()) < 1e-2 * max(1, abs(x.grad[i].item()))


# name -> what is written into x in place, with y of the same shape or one that broadcasts, and what x is to be then
WRITES = {
    "add_": (lambda x, y: x.add_(y), lambda x, y: x + y),
    "add_ alpha": (lambda x, y: x.add_(y, alpha=3), lambda x, y: x + 3 * y),
    "add_ number": (lambda x, y: x.add_(2), lambda x, y: x + 2),
    "sub_": (lambda x, y: x.sub_(y, alpha=2), lambda x, y: x - 2 * y),
    "mul_": (lambda x, y: x.mul_(y), lambda x, y: x * y),
    "clamp_": (lambda x, y: x.clamp_(-1, 2), lambda x, y: x.clamp(-1, 2)),
    "zero_": (lambda x, y: x.zero_(), lambda x, y: x * 0),
    "fill_": (lambda x, y: x.fill_(3), lambda x, y: x * 0 + 3),
    "setitem": (lambda x, y: x.__setitem__(..., y), lambda x, y: x * 0 + y),
    "setitem number": (lambda x, y: x.__setitem__(..., 4), lambda x, y: x * 0 + 4),
}
FLOATING = {
    "div_": (lambda x, y: x.div_(y), lambda x, y: x / y),
    "mul_ number": (lambda x, y: x.mul_(0.9), lambda x, y: x * 0.9),
    "lerp_": (lambda x, y: x.lerp_(y, 0.25), lambda x, y: x.lerp(y, 0.25)),
    "addcmul_": (lambda x, y: x.addcmul_(y, y, value=0.5), lambda x, y: x.addcmul(y, y, value=0.5)),
    "addcdiv_": (lambda x, y: x.addcdiv_(y, y + 3, value=0.5), lambda x, y: x.addcdiv(y, y + 3, value=0.5)),
    "copy_": (lambda x, y: x.copy_(y), lambda x, y: x * 0 + y),
}


@pytest.mark.parametrize("where", ["whole", "row", "column", "turned", "0-d", "empty"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
def test_a_write_without_history_is_the_result_of_the_operation(dtype, where):
    for name, (write, expected) in {**WRITES, **(FLOATING if dtype != "int64" else {})}.items():
        for other in ("same", "broadcast", "itself")[: 2 if name == "copy_" else 3]:
            base = torch.arange(1, 13).reshape(3, 4).to(getattr(torch, dtype))
            x = dict(zip(("whole", "row", "column", "turned", "0-d", "empty"), (base, base[1], base[:, 2], base.t(), base[1, 1], base[:, :0])))[where]
            y = x if other == "itself" else x.clone() + 4 if other == "same" else torch.tensor(3).to(x.dtype)
            want = expected(x.clone(), y.clone())
            before = x._version
            for block in (torch.no_grad(), torch.enable_grad()):
                with block:
                    x.copy_(x.clone())
                    version = x._version
                    kept = x.clone()
                    write(x, y)
                assert x._version == base._version == version + 1 > before, name
                assert x.dtype is want.dtype and x.tolist() == want.tolist(), (name, other)
                x.copy_(kept)


def test_writes_without_history_refuse_what_others_do():
    x, wide = torch.zeros(3), torch.zeros(1).expand(3)
    for write in (lambda t: t.add_(1), lambda t: t.zero_(), lambda t: t.fill_(2.0), lambda t: t.copy_(x), lambda t: t.__setitem__(0, 1.0)):
        fixed = np.zeros(3, np.float32)
        fixed.flags.writeable = False
        with pytest.raises((RuntimeError, ValueError)):
            write(torch.from_numpy(fixed))
        assert fixed.tolist() == [0, 0, 0]
        with torch.inference_mode():
            made = torch.zeros(3)
        with pytest.raises(RuntimeError, match="inference"):
            write(made)
    for write in (lambda t: t.add_(1), lambda t: t.copy_(x), lambda t: t.clamp_(0, 1)):
        with pytest.raises(RuntimeError, match="single memory location"):
            write(wide)
    with pytest.raises(RuntimeError, match="some elements"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError):
        x.add_(torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="result type"):
        torch.zeros(3, dtype=torch.int64).add_(0.5)
    with pytest.raises(IndexError):
        x[5] = 1.0
    x[torch.tensor([0, 2])] = 1.0
    x[torch.tensor([False, True, False])] = torch.tensor([7.0])
    assert x.tolist() == [1, 7, 1]
    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.zero_()
    with torch.no_grad():
        leaf.mul_(2).add_(1, alpha=2)
        leaf[0] = 0
    assert leaf.tolist() == [0, 4, 4] and leaf.requires_grad and leaf._version == 3


OF_TURNED = """
x.cumsum(1)
x.cumprod(0)
x.cummax(2).values
x.logcumsumexp(1)
torch.stack([x, x], 1)
x.roll(2, 0)
x.tile(2, 1, 1)
x.repeat_interleave(2, 1)
x.tril()
x.triu(1)
x[[0, 1]]
x[:, [1, 0]]
x.index_select(0, torch.tensor([0, 1]))
x.topk(2, 0).indices
x.kthvalue(2, 1).indices
torch.nn.functional.layer_norm(x, (4,))
torch.nn.functional.instance_norm(x)
torch.fft.fft(x)
torch.fft.rfft(x, dim=1)
torch.linalg.cross(x[..., :3], x[..., :3], dim=-1)
torch.expand_copy(x, (2, 3, 4))
torch.narrow_copy(x, 1, 0, 2)
x * 2
x.clone()
x.exp()
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("line", OF_TURNED.strip().splitlines())
def test_results_of_turned_tensors_lie_as_in_pytorch(line):
    "Where PyTorch's result can be viewed in another shape, so can ours."
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        x = lib.arange(24.0).reshape(2, 4, 3).transpose(1, 2)
        found.append(eval(line, {"torch": lib, "x": x}).is_contiguous())
    assert found[1] >= found[0]


@pytest.mark.usefixtures("nothing_is_compiled")
def test_new_data_again_and_again_takes_no_memory():
    w = torch.ones(3, requires_grad=True)

    def steps(n):
        for _ in range(n):
            w.data = w.data - 0.1
            with torch.no_grad(): w.mul_(0.9)

    def taken():
        gc.collect()  # which empties Python's store of tuples, too
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        steps(10)
        before = taken()
        steps(1000)
        grown = taken() - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000  # twenty bytes a step, where one tuple takes fifty


@pytest.mark.parametrize("lend", [lambda: np.frombuffer(bytearray(48)), lambda: np.asarray(memoryview(bytearray(48)).cast("d"))])
def test_memory_that_belongs_to_something_else_is_one_storage(lend):
    x = torch.from_numpy(lend())
    part = x[2:]
    assert part.untyped_storage() == x.untyped_storage() and part.untyped_storage().data_ptr() == x.data_ptr()
    assert part.storage_offset() == 2 and part.untyped_storage().nbytes() == 48
    assert part.as_strided((2,), (1,), 0).data_ptr() == x.data_ptr()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (-1, 0), (2, 0), (1, 2)])
def test_matrices_of_diagonals_lie_in_order(dims):
    import torch as theirs

    a, b = (lib.diag_embed(lib.arange(6.0).view(2, 3), 1, *dims) for lib in (theirs, torch))
    assert a.stride() == b.stride() and a.tolist() == b.tolist()


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "line",
    """
x.masked_fill(x > 0, t.tensor(1j))
x.masked_fill(x > 0, t.tensor(1 + 0j))
x.masked_fill_(x > 0, t.tensor(1j))
x.index_fill(0, t.tensor([0]), 1j)
x.index_fill_(0, t.tensor([0]), t.tensor(1j))
x.put_(t.tensor([0]), t.tensor([1]))
x.put(t.tensor([0]), t.tensor([1.0], dtype=t.float64))
x.put_(t.tensor([0], dtype=t.int32), t.tensor([1.0]))
t.arange(0, 1, 0.5, dtype=t.int64)
""".strip().splitlines(),
)
def test_values_that_do_not_fit_are_refused_as_in_pytorch(line):
    import torch as theirs

    found = []
    for t in (theirs, torch):
        try:
            found.append(eval(line, dict(t=t, x=t.tensor([1.0, 2.0]))).tolist())
        except (RuntimeError, ValueError) as error:
            found.append((type(error).__name__, str(error)[:60]))
    assert found[0] == found[1]


# given other memory between the two passes -> what the gradient is made of
MOVED = """
y = a.sin(); a.data = n
b = a * 1; y = b.sin(); b.data = n
b = a * 1; y = b.exp(); y.data = n
b = a.view(-1); y = b.sin(); a.data = n
y = a * a; a.data = n
y = a.sin(); a.data = n; a.data = a.detach() * 2
y = Square.apply(a); a.data = n
b = a * 1; y = Square.apply(b); b.data = n
y = a.sin(); a.data = n; graph.increment_version(a)
y = a.sin(); c = a.detach(); a.data = n; graph.increment_version(c)
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("twice", [False, True], ids=["once", "create_graph"])
@pytest.mark.parametrize("line", MOVED.strip().splitlines())
def test_rules_read_the_memory_that_a_saved_tensor_was_given(line, twice):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        a = lib.tensor([0.5, -1.5], dtype=lib.float64, requires_grad=True)
        names = dict(a=a, n=lib.tensor([2.0, 0.25], dtype=lib.float64), Square=square(lib))
        names["graph"] = lib.autograd.graph
        exec(line, names)
        try:
            (g,) = lib.autograd.grad(names["y"].sum(), a, create_graph=twice)
            found.append([round(v, 12) for v in g.tolist()])
        except RuntimeError as error:
            found.append(str(error)[:60])
    assert found[0] == found[1]


# products of operands, each of which is given other memory in turn: a transposed weight is a view, and keeps its own
PRODUCTS = {
    "F.linear(a, b, c)": [(4, 3), (5, 3), (5,)],
    "F.linear(a, b, c) ": [(2, 4, 3), (5, 3), (5,)],
    "F.linear(a, b, c)  ": [(3,), (5, 3), (5,)],
    "F.linear(a, b)": [(4, 3), (5, 3)],
    "F.linear(a, b) ": [(2, 4, 3), (5, 3)],
    "F.linear(a, b)  ": [(3,), (5, 3)],
    "F.relu(F.linear(a, b))": [(4, 3), (5, 3)],
    "F.gelu(F.linear(a, b, c))": [(4, 3), (5, 3), (5,)],
    "a @ b": [(4, 3), (3, 5)],
    "a @ b ": [(2, 4, 3), (3, 5)],
    "a @ b  ": [(2, 4, 3), (2, 3, 5)],
    "a @ b   ": [(4, 3), (3,)],
    "torch.bmm(a, b)": [(2, 4, 3), (2, 3, 5)],
    "torch.addmm(a, b, c)": [(5,), (4, 3), (3, 5)],
    "torch.einsum('ij,jk->ik', a, b)": [(4, 3), (3, 5)],
    "torch.einsum('bij,bjk->bik', a, b)": [(2, 4, 3), (2, 3, 5)],
    "torch.einsum('ij,ij->i', a, b)": [(4, 3), (4, 3)],
    "torch.rnn_tanh_cell(a, b, c, d)": [(2, 3), (2, 4), (4, 3), (4, 4)],
    "torch.lstm_cell(a, (b, c), d, e)[0]": [(2, 3), (2, 4), (2, 4), (16, 3), (16, 4)],
    "F.conv2d(a, b)": [(2, 3, 6, 6), (4, 3, 2, 2)],
    "F.conv1d(a, b)": [(2, 3, 6), (4, 3, 2)],
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("twice", [False, True], ids=["once", "create_graph"])
@pytest.mark.parametrize("line, which", [(line, k) for line, shapes in PRODUCTS.items() for k in range(len(shapes))])
def test_a_view_that_was_saved_keeps_its_memory(line, which, twice):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        values = [lib.arange(math.prod(s) + 0.5 * k, dtype=lib.float64)[: math.prod(s)].reshape(s) for k, s in enumerate(PRODUCTS[line])]
        operands = [(x * 1.7 + k).sin().requires_grad_() for k, x in enumerate(values)]
        y = eval(line, dict(zip("abcde", operands)), dict(torch=lib, F=lib.nn.functional))
        operands[which].data = operands[which].detach() * 3 + 1
        grads = lib.autograd.grad(y.square().sum(), operands, create_graph=twice)
        found.append([g.detach().numpy() for g in grads])
    for ours, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "line",
    """
b = a * 1; c = b[:1]; graph.increment_version(b)
c = a[:1]; graph.increment_version(a)
b = a * 1; c = b.expand(2, 2, 2); graph.increment_version(c)
b = a * 1; c = b[:1]; graph.increment_version(b.detach())
b = a * 1; c = b[...]; d = b[None]; d.swapdims_(0, -1)
b = a * 1; c = b[:1]; d = b[...]; d.unsqueeze_(0)
b = a * 1; c = b.chunk(2)[0]; d = b[:1]; d.unsqueeze_(0)
""".strip().splitlines(),
)
def test_views_start_anew_after_changes_that_no_history_tells(line):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        names = dict(a=lib.ones(2, 2, requires_grad=True), graph=lib.autograd.graph)
        exec(line, names)
        try:
            found.append(names["c"].grad_fn.name())
        except RuntimeError as error:
            found.append(str(error)[:60])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "line",
    """
x[1] += 1; x[0, 2] *= 3; x[:, 1] -= x[:, 0]
x[0] = x[1]; x[:, 0] = x[:, 3]; x[0:2] = x[1:3]
x[1:] = x[:-1]
x[:] = x
x[0] = x[2, 1]; x[0, 0] = x[1, 1]; x[...] = x[0, 0]
x[0:1] = x[1]; x[2] = x[0:1]; x[None, 0] = x[1]
x[0] = x[1, :2]
y = x.T; y[0] += y[1]; x[0] = y[:3, 2].repeat(2)[:4]
y = x.detach(); x[0] = y[2]; y[1] += 5
n = x.long(); n[torch.tensor(2)] += 1; n[0] = n[torch.tensor(1)]; x = n
x[::2] = x[:2]
""".strip().splitlines(),
)
def test_parts_are_written_into_the_same_tensor(line):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        names = dict(x=lib.arange(12.0).reshape(3, 4), torch=lib)
        try:
            exec(line, names)
            found.append((names["x"].tolist(), names["x"]._version))
        except RuntimeError as error:
            found.append(str(error)[:60])
    assert found[0] == found[1]


@pytest.mark.parametrize("line", ["t[:, k]", "t[k]", "t[::2][k]", "t.flip(0)[k]", "t[k > 1]", "t[:, k > 0]"])
@pytest.mark.parametrize("sizes", [(4, 3), (1, 3), (4, 1), (0, 3)])
def test_lines_of_a_turned_matrix_lie_in_rows(line, sizes):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        t = lib.arange(math.prod(sizes) * 1.0).reshape(sizes).T
        rows = "t[:, k" in line
        k = lib.tensor([0, 0] if t.shape[rows] else [], dtype=lib.int64)
        if ">" in line:
            k = lib.arange(t.shape[rows])
        if "::2" in line and not len(t):
            continue
        got = eval(line, dict(t=t, k=k))
        found.append((got.tolist(), got.stride() if got.numel() else None))
    assert found[0] == found[1]


@pytest.mark.parametrize("write", ["exp_", "sqrt_", "sigmoid_", "tanh_", "reciprocal_", "rsqrt_"])
@pytest.mark.parametrize("view", ["b[:]", "b[1:]", "b.view(1, 3)", "b.expand(1, 3)[0]"])
def test_second_derivatives_of_a_write_that_saves_its_result(write, view):
    "The result leads to the write's own node, which the second pass reaches after that of the base; the third pass finds nothing."
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        w = lib.tensor([0.5, 0.7, 0.9], dtype=lib.float64, requires_grad=True)
        b = w * 1
        getattr(eval(view, dict(b=b)), write)()
        (first,) = lib.autograd.grad((b**3).sum(), w, create_graph=True)
        (second,) = lib.autograd.grad((first**2).sum(), w, create_graph=True)
        (third,) = lib.autograd.grad((second**2).sum(), w)
        found.append([b, first, second, third])
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            lib.autograd.grad((second**2).sum(), w)
    for theirs_, mine in zip(*found):
        np.testing.assert_allclose(mine.detach().numpy(), theirs_.detach().numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "write",
    """
v.put_(torch.tensor([1]), torch.tensor([2.0], dtype=torch.float64))
v.view(1, 3).put_(torch.tensor([-1]), torch.tensor([2.0], dtype=torch.float64))
v.view(1, 3).renorm_(2, 0, 0.5)
v.mul_(2)
v.view(3, 1).mul_(3).exp_()
v.clamp_(0, 1)
v.mul_(2); v.put_(torch.tensor([0]), torch.tensor([2.0], dtype=torch.float64))
""".strip().splitlines(),
)
@pytest.mark.parametrize("hooked", ["v", "b"])
def test_a_write_passes_the_hooks_of_a_view_by(write, hooked):
    "Of several operations too: they are those of a value that is not there any more. Hooks of the base hear of its old value."
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        x = lib.tensor([[1.5, -0.5, 2.0], [1.0, 3.0, -2.0], [0.5, 1.0, 4.0]], dtype=lib.float64, requires_grad=True)
        names = dict(b=(b := x * 1), v=b[0], torch=lib)
        names[hooked].register_hook(lambda g: g * 3)
        exec(write, names)
        (b**2).sum().backward()
        found.append([b, names["v"], x.grad])
    for theirs_, mine in zip(*found):
        np.testing.assert_allclose(mine.detach().numpy(), theirs_.detach().numpy(), rtol=1e-10, atol=1e-7)


def test_a_write_that_fails_leaves_a_view_its_hooks():
    seen, x = [], torch.ones(2, 2, requires_grad=True)
    v = (x * 1)[0]
    v.register_hook(lambda g: seen.append(g.tolist()))
    v.retain_grad()
    with pytest.raises(IndexError):
        v.put_(torch.tensor([5]), torch.tensor([2.0]))
    v.sum().backward()
    assert seen == [[1, 1]] and v.grad.tolist() == [1, 1]


@pytest.mark.parametrize("have, want", [((3, 1), (3, 3)), ((1, 3), (5, 3)), ((1, 4), (3, 4)), ((4, 1), (4, 2)), ((3, 1, 3), (3, 3, 3))])
@pytest.mark.parametrize("wrap", [False, True])
def test_a_diagonal_of_an_expanded_tensor_is_written_everywhere(have, want, wrap):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        x = lib.arange(math.prod(have) * 1.0).reshape(have).requires_grad_()
        y = (x * 1).expand(want)
        y.fill_diagonal_(2.0, wrap)
        (y**2 * lib.arange(math.prod(want) * 1.0).reshape(want)).sum().backward()
        found.append((y.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


STORAGES = """
s = torch.UntypedStorage(4).fill_(1); s[0] = 5; r = len(s), s.nbytes(), s.tolist(), s[1:3].tolist(), s.element_size(), s.is_cuda, s.filename
s = torch.UntypedStorage([1, 2, 3, 4]); s.byteswap(torch.int16); r = s.tolist(), s.clone().tolist(), s.cpu() is s
s = torch.UntypedStorage(4).copy_(torch.UntypedStorage([1, 2, 3, 4])); r = s.resize_(6).nbytes(), s[:4].tolist(), s.resize_(2).tolist()
r = torch.UntypedStorage(4).copy_(torch.UntypedStorage(3))
r = torch.UntypedStorage("a")
r = torch.UntypedStorage(2.5)
s = torch.TypedStorage([1.0, 2.0], dtype=torch.float64); r = s.tolist(), s.dtype, s.size(), s.nbytes(), s.half().tolist(), s.long().dtype, s.complex_float().dtype
s = torch.TypedStorage(wrap_storage=torch.UntypedStorage(8), dtype=torch.int32); r = s.size(), s.fill_(3).tolist(), s.pickle_storage_type()
r = torch.TypedStorage(wrap_storage=torch.UntypedStorage(8))
r = torch.TypedStorage(wrap_storage=3, dtype=torch.int32)
s = torch.FloatStorage([1, 2]); r = s.tolist(), isinstance(s, torch.FloatStorage), isinstance(s, torch.LongStorage), torch.is_storage(s), torch.LongStorage.dtype
r = torch.FloatStorage(2.5)
r = torch.FloatStorage(2, 3)
r = torch.BoolStorage([1, 0]).tolist(), torch.HalfStorage(2).nbytes(), torch.ones(2).storage().dtype, isinstance(torch.ones(1).storage(), torch.FloatStorage)
r = torch.arange(2).set_(torch.ones(3))
r = torch.arange(2).set_(torch.FloatStorage(2))
r = torch.ones(1).set_(torch.FloatStorage([1, 2]), 0, (2,)).tolist()
r = torch.from_file(path, size=4).tolist(), torch.UntypedStorage.from_file(path, False, 16).nbytes(), torch.FloatStorage.from_file(path, False, 2).tolist()
x = torch.from_file(path, shared=True, size=6); x[5] = 7.0; r = torch.from_file(path, size=6).tolist()
x = torch.from_file(path, size=4); x[0] = 7.0; r = torch.from_file(path, size=4, dtype=torch.int32).tolist()
r = torch.from_file(path, size=400)
r = torch.from_file(path + "/missing", size=4)
""".strip()


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", STORAGES.splitlines())
def test_storages_made_without_a_tensor(line, tmp_path):
    import torch as theirs

    def outcome(lib):
        path = tmp_path / "numbers"
        path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
        scope = {"torch": lib, "path": str(path)}
        try:
            exec(line, scope)
        except Exception as error:
            return type(error).__name__, str(error).split("\n")[0][:40]
        return str(scope["r"])

    assert outcome(torch) == outcome(theirs)


def test_overlapping_windows_are_added_in_few_steps():
    "As many as windows share a place, not as many as places are in one."
    import sys

    g, met = torch.ones(5, 200), []
    x = torch.zeros(400, requires_grad=True)
    frames = x.unfold(0, 200, 50)
    frames.backward(g)
    assert x.grad.tolist() == [min(i // 50, 3, 7 - i // 50) + 1.0 for i in range(400)]
    frames = x.unfold(0, 200, 50)
    sys.setprofile(lambda frame, event, arg: met.append(event) if "call" in event else None)
    try:
        frames.backward(g)
    finally:
        sys.setprofile(None)
    assert len(met) < 150


INDICES = (
    np.s_[1:], np.s_[1], np.s_[1:, 2], np.s_[:, 1:-1], np.s_[1, :, 1:], np.s_[-1, 2], np.s_[::2, ::-1][:1], np.s_[0:3, 1:], np.s_[1:-1, :2, 0],
    np.s_[None, 1], np.s_[..., 1], np.s_[2:2, 1:], np.s_[1:2, 3:9, 0:1], np.s_[:, :, :], np.s_[1, 1, 1],
    None, np.s_[:, None], np.s_[..., None], np.s_[1, :, None], np.s_[:, None, 1:], np.s_[..., 1:, 0], np.s_[None, ..., None, 2], np.s_[1:, None, None, 0],
)  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_has_the_same_nodes_whoever_looks_on(index):
    "Node by node and as a single view; values and gradients are PyTorch's."
    pt = pytest.importorskip("torch")
    found = []
    for library in (torch, torch, pt):
        x = library.arange(36.0).reshape(3, 4, 3).requires_grad_()
        if found and library is torch:
            with torch.autograd.detect_anomaly(check_nan=False): y = (x * 2)[index]
        else:
            y = (x * 2)[index]
        nodes, node = [], y.grad_fn
        while node is not None:
            nodes.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        (y * y).sum().backward()
        found.append((y.tolist(), x.grad.tolist(), nodes, y._is_view(), y.stride() if y.numel() else None))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_writes_to_parts_of_every_kind(index):
    "Empty ones too: a part that is written to, other views of it from before, and what comes back."
    pt = pytest.importorskip("torch")
    found = []
    for library in (torch, pt):
        x = library.arange(36.0).reshape(3, 4, 3).requires_grad_()
        y = x * 2
        before, part = y[1:], y[index]
        y[index] = part.clone() * 3
        y[index] = x.mean()
        y.mul_(2)
        (y * y + before.sum()).sum().backward()
        found.append((y.tolist(), x.grad.tolist(), before.tolist(), before.grad_fn.name(), part.grad_fn.name()))
    assert found[0] == found[1]
