"""Whole numbers, as PyTorch computes with them: divisions by zero, negative exponents, numbers that do not fit, kinds of numbers that an operation is not for."""

# ruff: noqa: B023 (functions made in loops are called at once)
import math
import warnings

import pytest

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "bool", "float32"]
NUMBERS = [0, 0.0, -1, -2, 2, 2.5, True, 3, 300, -300, 70000, 2**31, 3e9, math.nan, -1.5]


def outcome(library, function):
    "What a function gives, or the type and the first line of its error."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = function(library)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    made = made[0] if isinstance(made, (tuple, list)) else made
    return str(made.tolist()).replace("-0.0", "0.0"), str(made.dtype)


def same(function):
    "Both libraries have the same outcome."
    import torch

    assert outcome(ours, function) == outcome(torch, function)


def operand(library, dtype, values=(5, 1)):
    return library.tensor(list(values), dtype=getattr(library, dtype))


DIVISIONS = {
    "%": lambda T, a, b: a % b,
    "//": lambda T, a, b: a // b,
    "fmod": lambda T, a, b: T.fmod(a, b),
    "remainder": lambda T, a, b: T.remainder(a, b),
    "floor": lambda T, a, b: T.div(a, b, rounding_mode="floor"),
    "trunc": lambda T, a, b: T.div(a, b, rounding_mode="trunc"),
    "in place": lambda T, a, b: a.remainder_(b),
    "floor in place": lambda T, a, b: a.floor_divide_(b),
    "out": lambda T, a, b: T.fmod(a, b, out=T.empty(2, dtype=a.dtype)),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions(name):
    divide = DIVISIONS[name]
    for one in DTYPES:
        for other in DTYPES:
            for values in ((0, 2), (3, 2), (-3, 2)):
                if one == "bool" and ("place" in name or name == "out"):  # two reasons to refuse; PyTorch names the dtype
                    continue
                if values[0] < 0 and other in ("uint8", "bool"):
                    continue
                same(lambda T: divide(T, operand(T, one), operand(T, other, values)))
                same(lambda T: divide(T, operand(T, one), operand(T, other, values)[0]))
            same(lambda T: divide(T, operand(T, one)[:0], operand(T, other)[0] * 0))
        for number in (0, 2, -3, 0.0, 2.5):
            if one != "bool":
                same(lambda T: divide(T, operand(T, one), number))


def test_quotients_of_large_numbers_are_exact():
    same(lambda T: T.div(T.tensor([2**62 + 1, -(2**62) - 3]), 3, rounding_mode="trunc"))
    same(lambda T: T.div(T.tensor([2**62 + 1, -(2**62) - 3]), -7, rounding_mode="floor"))


@pytest.mark.parametrize("number", [-3, 0, 7, 2.5])
@pytest.mark.parametrize("name", ["remainder", "pow", "_foreach_pow"])
def test_numbers_first(name, number):
    for dtype in DTYPES:
        if dtype == "bool" and name != "remainder":
            continue
        lists = name.startswith("_foreach")
        for values in ((3, 2), (0, 1)):
            same(lambda T: getattr(T, name)(number, [operand(T, dtype, values)] if lists else operand(T, dtype, values)))


def test_negative_exponents():
    for one in DTYPES[1:5]:
        for other in DTYPES[1:5]:
            for values in ((-1, 0), (-2, 3), (-3, -1)):
                for power in (lambda a, b: a**b, lambda a, b: a.pow_(b)):
                    for base in ((1, -1), (2, 0), (-1, 3)):
                        same(lambda T: power(operand(T, one, base), operand(T, other, values)))
        same(lambda T: operand(T, one) ** -2)
        same(lambda T: 2 ** operand(T, one, (-1, 3)))
        same(lambda T: T._foreach_pow([operand(T, one)], [operand(T, one, (-1, 2))]))


OPERANDS = {
    "+": lambda a, n: a + n,
    "-": lambda a, n: n - a,
    "*": lambda a, n: a * n,
    "<": lambda a, n: a < n,
    "==": lambda a, n: a == n,
    "+=": lambda a, n: a.add_(n) if isinstance(n, int) else a + n,
    "fill": lambda a, n: a.fill_(n),
    "masked_fill": lambda a, n: a.masked_fill(a > 1, n),
    "clamp": lambda a, n: a.clamp(min=n),
    "new_full": lambda a, n: a.new_full((2,), n),
    "setitem": lambda a, n: (a.__setitem__(0, n), a)[1],
    "addcmul": lambda a, n: a.addcmul(a, a, value=n),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_numbers_that_do_not_fit(name):
    for dtype in DTYPES[:5]:
        for number in NUMBERS:
            if number is True and name in ("-", "clamp", "fill"):
                continue
            same(lambda T: OPERANDS[name](operand(T, dtype), number))


@pytest.mark.parametrize("number", [n for n in NUMBERS if n is not True])
def test_tensors_and_choices(number):
    for dtype in DTYPES[:5]:
        same(lambda T: T.where(operand(T, dtype) > 1, operand(T, dtype), number))
        same(lambda T: T.add(operand(T, dtype), operand(T, dtype), alpha=number))
        same(lambda T: T.tensor([number], dtype=getattr(T, dtype)))


BINARY = "hypot nextafter logaddexp logaddexp2 gcd lcm heaviside dist bitwise_left_shift bitwise_and remainder floor_divide".split()


@pytest.mark.parametrize("name", BINARY)
def test_kinds_that_an_operation_is_not_for(name):
    for one in DTYPES:
        for other in DTYPES:
            same(lambda T: getattr(T, name)(operand(T, one), operand(T, other)))
    same(lambda T: operand(T, "int16") & 2.5)


def test_ternary_kinds():
    for dtype in DTYPES:
        same(lambda T: T.lerp(operand(T, dtype), operand(T, dtype), 0.5))
        for weight in (1, 0.5):
            same(lambda T, weight=weight: operand(T, dtype).lerp_(operand(T, dtype), weight))
        same(lambda T: operand(T, dtype).lerp_(operand(T, dtype), operand(T, dtype)))
        same(lambda T: T.addcdiv(operand(T, dtype), operand(T, dtype), operand(T, dtype)))
        same(lambda T: T.lerp(operand(T, "float32"), operand(T, dtype), 0.5))


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8", "float32", "float64", None])
@pytest.mark.parametrize("ends", [(0, 2.5, 1), (5, 0, -1.5), (0.5, 4.2, 1), (1, 10, 2.7), (0, 2.5, 0.5), (2.5,), (2**53, 2**53 + 5)], ids=str)
def test_ranges_are_counted_as_pytorch_counts_them(ends, dtype):
    torch = pytest.importorskip("torch")
    seen = []
    for lib in (torch, ours):
        try: made = lib.arange(*ends, dtype=dtype and getattr(lib, dtype))
        except Exception as error: seen.append((type(error), str(error).split("\n")[0]))
        else: seen.append((str(made.dtype).removeprefix("torch."), made.tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("number", [0, 7, -3, True, 2.75, -2.75, 2**62, math.nan])
@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "float32"])
def test_numbers_that_fill_or_are_chosen(dtype, number):
    mask = lambda T: T.tensor([True, False])
    same(lambda T: operand(T, dtype).fill_(number))
    same(lambda T: T.tensor(operand(T, dtype).fill_(number)._version))
    same(lambda T: T.where(mask(T), number, operand(T, dtype)))
    same(lambda T: T.where(mask(T), operand(T, dtype), number))
    same(lambda T: T.where(mask(T), number, 4))
    same(lambda T: T.where(mask(T), -4, number))
