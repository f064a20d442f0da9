"""Numbers that a dtype cannot hold: what wraps around, what becomes infinite, and what is an error, compared with PyTorch."""

from math import inf, nan

import numpy
import pytest

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")


def written(tensor, place, value):
    "The tensor after `tensor[place(tensor)] = value`."
    tensor[place(tensor)] = value
    return tensor


# b: bool, x: uint8, i8: int8, h: float16, f: float32
PROGRAMS = """
x == -1
x >= -1
x < 300
x == 300
x * 300
i8 + 200
i8.clone().fill_(200)
x.clone().fill_(300)
x.clone().fill_(-256)
x.clone().fill_(-255)
torch.full((2,), 300, dtype=torch.uint8)
torch.full((2,), -1, dtype=torch.uint8)
torch.full_like(x, -9)
torch.tensor([-1], dtype=torch.uint8)
torch.tensor(300, dtype=torch.uint8)
torch.tensor([300, 1], dtype=torch.uint8)
torch.tensor([1.5, -2.5], dtype=torch.uint8)
torch.tensor([200], dtype=torch.int8)
torch.tensor([-1, 2], dtype=torch.uint8)
torch.tensor(2 ** 40, dtype=torch.int32)
torch.tensor([1e+300], dtype=torch.float32)
torch.tensor([nan], dtype=torch.int64)
torch.tensor([1.7, 2.2], dtype=torch.int64)
f.clone().fill_(1e+60)
torch.full((2,), 1e+60)
f.masked_fill(f > 1, 1e+60)
f * 1e+60
h.clone().fill_(1000000.0)
h.masked_fill(h > 1, -1000000000.0)
h.masked_fill(h > 1, float("-inf"))
h + 1000000.0
x.clamp(-1, 5)
x.clamp(0, 300)
x.masked_fill(x > 1, 300)
x.masked_fill(x > 1, -1)
torch.where(x > 1, x, -1)
torch.where(x > 1, x, 300)
written(x.clone(), lambda y: 0, -1)
written(x.clone(), lambda y: 0, 300)
written(x.clone(), lambda y: 0, 2.7)
written(x.clone(), lambda y: y > 1, 300)
written(b.clone(), lambda y: 0, 7)
written(x.clone(), lambda y: [0], -1)
written(h.clone(), lambda y: 0, 1000000000.0)
written(f.clone(), lambda y: 0, 1e+60)
written(f.clone(), lambda y: y > 1, 1e+60)
torch.where(h > 1, h, -1000000000.0)
torch.where(f > 1, f, 1e+60)
h.clamp(max=1000000000.0)
f.clamp(max=1e+60)
h.clamp_min(-1000000000.0)
h / 1000000000.0
torch.nn.functional.pad(h, (1, 1), value=1000000000.0)
torch.add(h, h, alpha=1000000000.0)
torch.addcmul(h, h, h, value=1000000000.0)
x.index_fill(0, torch.tensor([0]), -1)
x.index_fill(0, torch.tensor([0]), 300)
x.new_full((2,), -1)
x.scatter(0, torch.tensor([0]), -1)
x.scatter(0, torch.tensor([0]), 300)
torch.nn.functional.pad(x, (1, 1), value=-1)
torch.nn.functional.pad(i8, (1, 1), value=300)
torch.ones(2, dtype=torch.uint8) - 3
3 - x
x % -3
x // -3
x ** 2
x & -2
x << 9
torch.addcmul(x, x, x, value=-1)
torch.add(x, x, alpha=-1)
torch.sub(x, x, alpha=3)
x.add(x, alpha=300)
x.index_add(0, torch.tensor([0]), x[:1], alpha=-1)
torch.maximum(x, torch.tensor(-1))
torch.tensor([1]) * 2 ** 63
torch.tensor([1]).fill_(2 ** 63)
b.clone().fill_(2.5)
b * 3
x.clone().fill_(2.9)
torch.tensor([1]).fill_(nan)
torch.arange(-2, 2, dtype=torch.uint8)
torch.tensor([-1.5, 300.7]).to(torch.uint8)
torch.tensor([nan, 10000000000.0]).int()
x.masked_fill(x > 1, 2.9)
torch.tensor([1, 5]).clamp(1.5, 2.5)
x >= 1.5
torch.nn.functional.threshold(x, -1, -2)
f.clone().fill_(1 + 0j)
f.clone().fill_(1j)
f.masked_fill(f > 1, 1j)
x.masked_fill(x > 1, 1j)
x.clone().fill_(-2.5)
""".strip().splitlines()


def outcome(torch, program):
    "The tensor's dtype and numbers, or the error's type and first words."
    names = {
        "torch": torch, "written": written, "inf": inf, "nan": nan,
        "b": torch.tensor([True, False]),
        "x": torch.tensor([1, 255], dtype=torch.uint8),
        "i8": torch.tensor([1, -1], dtype=torch.int8),
        "h": torch.tensor([1.0, 2.0], dtype=torch.float16),
        "f": torch.tensor([1.0, 2.0]),
    }  # fmt: skip
    try:
        out = eval(program, names)
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]
    return str(out.dtype).split(".")[-1], out.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_are_held_as_in_pytorch(program):
    import torch

    assert str(outcome(ours, program)) == str(outcome(torch, program))


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("call", [
    "x.cumsum(0, dtype=d)", "x.cumprod(0, dtype=d)", "x.prod(dtype=d)", "x.sum(dtype=d)", "x.prod(0, dtype=d)",
    "x.cumsum(0)", "x[0].cumsum(0)", "x[0].cumprod(0)", "x.sum_to_size(1)", "x.any()", "x.all()", "x.all(0, keepdim=True)", "x.prod(dtype=torch.bool)",
    "torch.tensordot(x[:1], x.reshape(1, -1), 1)", "torch.addbmm(x, x.reshape(1, 2, 1), x.reshape(1, 1, 2))",
    "x[0].scatter_add(0, torch.tensor([0, 0]), x)", "x[0].scatter(0, torch.tensor([0]), x[:1], reduce='add')",
    "torch.linspace(4.3, -3 if d.is_signed else 50, 50, dtype=d)", "torch.arange(0.5, 7.9, 1.5, dtype=d)", "torch.arange(0.5, 7.9, 1.5, dtype=torch.int64)",
])  # fmt: skip
def test_integers_keep_the_dtype_asked_for(call, dtype):
    import torch

    def found(torch):
        d = getattr(torch, dtype)
        out = eval(call, {"torch": torch, "d": d, "x": torch.tensor([3, 200 if dtype == "uint8" else -7], dtype=d)})
        return str(out.dtype).split(".")[-1], out.tolist()

    assert found(ours) == found(torch)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(4, 4), (9, 7), (6, 3), (1, 12)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_of_bytes(mode, size, align, antialias):
    "Resized as images are, with PyTorch's roundings."
    import torch

    def resized(torch):
        images = torch.tensor([(k * k * 37) % 256 for k in range(2 * 3 * 6 * 6)], dtype=torch.uint8).reshape(2, 3, 6, 6)
        return torch.nn.functional.interpolate(images, size, mode=mode, align_corners=align, antialias=antialias).tolist()

    assert resized(ours) == resized(torch)


@pytest.mark.parametrize("dims, mode", [(1, "linear"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic")])
def test_images_of_integers_are_refused(dims, mode):
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        ours.nn.functional.interpolate(ours.ones(*(1, 1) + (4,) * dims).int(), size=(3,) * dims, mode=mode)


@pytest.mark.parametrize("call", ["x.mean()", "x.var()", "x.std(-1)", "x.norm()", "x.norm(3)", "x.norm(6, -1)", "torch.linalg.vector_norm(x, 5)", "torch.dist(x, -x, 3)", "torch.var_mean(x)[0]"])
def test_sums_of_half_precision_do_not_overflow(call):
    import torch

    for dtype in ("float16", "bfloat16"):
        found = []
        for lib in (torch, ours):
            x = (lib.arange(40.0) * 17 - 111).reshape(4, 10)
            found.append(eval(call, {"torch": lib, "x": x.to(getattr(lib, dtype))}))
        assert found[0].isfinite().all()
        numpy.testing.assert_allclose(found[1].float().numpy(), found[0].float().numpy(), rtol=1e-3 if dtype == "float16" else 1e-2)


SHORT_CALLS = ["x * 0.1", "3.3 * x", "x / 0.3", "x.clone().mul_(0.7)", "x.clone().div_(-0.7)", "x.div(0.3, rounding_mode='floor')", "x.div(3.3, rounding_mode='trunc')", "x.div(y, rounding_mode='trunc')", "x + 0.1", "x.pow(2.5)"]


SHORT_CALLS += ["x * torch.tensor(3.3)", "x / torch.tensor(3.3)", "torch.tensor(3.3) * x", "x * torch.tensor(257)", "torch.add(x, 3.3, alpha=0.7)", "torch.sub(x, y, alpha=0.3)", "torch.rsub(x, y, alpha=0.3)", "torch.rsub(x, 3.3, alpha=0.7)"]
# float16: these numbers are too large for it, or take several steps
LONG_CALLS = ["(x / 1024) * 1e5", "x / 1e5", "(x / 1024) * torch.tensor(1e5)", "(x / 1024).mul_(1e5)", "torch.nn.functional.leaky_relu(-x, 0.3)", "torch.nn.functional.elu(-x)", "torch.nn.functional.softplus(x, 0.7)",
              "torch.nn.functional.softshrink(x, 0.3)", "torch.nn.functional.celu(-x, 0.3)", "3.3 / x"]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("call", SHORT_CALLS)
def test_a_number_beside_sixteen_bits_is_as_precise_as_in_pytorch(call, dtype):
    "A factor or divisor is not rounded to sixteen bits first, a summand and an exponent are."
    import torch

    found = []
    for lib in (torch, ours):
        x = ((lib.arange(1024.0) * 37 % 251 + 1) / 16).to(getattr(lib, dtype))
        found.append(eval(call, {"x": x, "y": x.flip(0), "torch": lib}))
    assert found[1].dtype is getattr(ours, dtype)
    assert found[1].tolist() == found[0].tolist()


@pytest.mark.parametrize("call", LONG_CALLS)
def test_what_takes_several_steps_in_float16_is_rounded_once(call):
    import torch

    found = []
    for lib in (torch, ours):
        x = ((lib.arange(1024.0) * 37 % 251 + 1) / 16).half()
        found.append(eval(call, {"x": x, "torch": lib}))
    assert found[1].dtype is ours.float16
    assert found[1].tolist() == found[0].tolist()


@pytest.mark.parametrize("call", ["(x / 1024) * 5e4", "(x / 1024) * torch.tensor(5e4)", "torch.rsub(x, x, alpha=3.3)", "torch.add(x, 2, alpha=3.3)"])
def test_gradients_of_numbers_beside_float16(call):
    import torch

    found = []
    for lib in (torch, ours):
        x = ((lib.arange(64.0) * 37 % 251 + 1) / 16).half().requires_grad_()
        eval(call, {"x": x, "torch": lib}).float().sum().backward()
        found.append(x.grad)
    assert found[1].dtype is ours.float16
    assert found[1].tolist() == found[0].tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_captured_step_computes_with_numbers_beside_sixteen_bits_as_it_is(dtype):
    x, t = ((ours.arange(64.0) * 37 % 251 + 1) / 16).to(getattr(ours, dtype)), ours.tensor(3.3)

    def step(x):
        return (x / 7.7) * t * 0.3 - ours.nn.functional.elu(-x) / t

    whole = ours.compile(step)
    assert [whole(x).tolist() for _ in range(3)] == [step(x).tolist()] * 3


@pytest.mark.parametrize("call", ["x * 0.1", "x / 0.3", "(x * 0.1) * 0.1", "torch.add(x, x, alpha=0.3)"])
def test_gradients_of_numbers_beside_bfloat16(call):
    import torch

    found = []
    for lib in (torch, ours):
        x = ((lib.arange(64.0) * 37 % 251 + 1) / 16).bfloat16().requires_grad_()
        eval(call, {"x": x, "torch": lib}).sum().backward()
        found.append(x.grad)
    assert found[1].dtype is ours.bfloat16
    assert found[1].tolist() == found[0].tolist()


RAGGED = ["[1.5, [2]]", "[[1, 2], [3, [4]]]", "[True, [2]]", "[1j, [1]]", "[[1], 2.5]", "[[1.], 'a']", "[[1, 2], None]", "[[1], []]", "[[1, 2], (3,)]", "[[1, 2], range(3)]", "[1, (2,)]", "[[[1]], [[2, 3]]]", "[[[1], [2]], [[3]]]", "[[1, 2], 3]",
          "[[1, 2], [3, 'x']]", "[[1], [[2]]]", "[[[2]], [1]]", "[numpy.ones(2), numpy.ones(3)]"]  # fmt: skip
NO_NUMBERS = [*RAGGED, "[1, None]", "[1.5, None]", "[[1], [None]]", "[[None], [1]]", "[object()]", "[[object()]]", "[{}]", "[2**70, None]", "[1, set()]", "None", "object()", "[2**63]", "2**63"]


@pytest.mark.parametrize("data", NO_NUMBERS)
def test_what_is_no_number_is_named(data):
    "The error is PyTorch's, and speaks of the entry that no tensor can hold, whatever stands before it."
    import torch

    with pytest.raises(Exception) as expected: torch.tensor(eval(data))
    with pytest.raises(type(expected.value)) as found: ours.tensor(eval(data))
    assert str(found.value).startswith(str(expected.value).splitlines()[0])


@pytest.mark.parametrize("data", ["[[], [1]]", "[[], 1]", "[[[]], [[1]]]"])
def test_the_sizes_are_those_of_the_first_lists(data):
    import torch

    assert ours.tensor(eval(data)).shape == tuple(torch.tensor(eval(data)).shape)
