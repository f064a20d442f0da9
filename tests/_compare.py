"""Helpers of the core's tests: run one program under PyTorch and under autograd_nb, and compare numbers and texts."""

import contextlib
import io
import re
import warnings
from pathlib import Path

import _rounding
import numpy as np

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?")
MESSAGE_START = 36  # so many characters of an error message have to be PyTorch's


def short(error: Exception) -> str:
    "An exception as its type and the first characters of its message."
    return f"{type(error).__name__}: {str(error).strip()[:MESSAGE_START]}"


def attempt(function, *args, **kwargs):
    "Print what `function` returns or how it fails."
    try:
        print(function(*args, **kwargs))
    except Exception as error:
        print(short(error))


def node_name(node) -> str:
    return "None" if node is None else node.name().split("::")[-1]


def graph(tensor) -> str:
    "The names of all nodes behind a tensor, as an expression: Mul(Add(Leaf, None), Leaf)."

    def text(node):
        below = [text(next_node) for next_node, _ in node.next_functions] if node is not None else []
        return node_name(node) + (f"({', '.join(below)})" if below else "")

    return text(tensor.grad_fn)


def run_program(source: str, torch) -> str:
    "What a program prints, with its last words if it fails."
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            exec(compile(source, "<program>", "exec"), {"torch": torch, "np": np, "attempt": attempt, "graph": graph, "node_name": node_name})
        except Exception as error:
            print(short(error))
    return out.getvalue()


@contextlib.contextmanager
def every_warning(*libraries):
    "Warnings that come once in a process come every time meanwhile, whatever ran before in it."
    before = [library.is_warn_always_enabled() for library in libraries]
    try:
        for library in libraries:
            library.set_warn_always(True)
        yield
    finally:
        for library, always in zip(libraries, before):
            library.set_warn_always(always)


def same_text(a: str, b: str, tolerance: float = 2e-4, shaken=lambda: ()) -> bool:
    """Equal texts; numbers with a decimal point may differ by `tolerance`, relative or absolute.

    Where they differ by more, `shaken()` gives what the program of `a` prints when its rounding is shaken, and a number has the room that it takes there.
    """
    if a == b:
        return True
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    numbers, found = NUMBER.findall(a), NUMBER.findall(b)
    differ = [i for i, (x, y) in enumerate(zip(numbers, found)) if x != y]
    if any("." not in numbers[i] for i in differ):
        return False
    far = [i for i in differ if abs(float(numbers[i]) - float(found[i])) > tolerance * max(1.0, abs(float(numbers[i])))]
    others = [NUMBER.findall(text) for text in shaken() if NUMBER.sub("#", text) == NUMBER.sub("#", a)] if far else []
    return all(abs(float(numbers[i]) - float(found[i])) <= _rounding.ROOM * max((abs(float(other[i]) - float(numbers[i])) for other in others), default=0) for i in far)


def assert_same_output(source: str) -> str:
    "Assert that a program prints the same under PyTorch and under autograd_nb; returns what it prints."
    import torch

    import autograd_nb

    expected, found = run_program(source, torch), run_program(source, autograd_nb)
    shaken = lambda: [_rounding.shaken(lambda: run_program(source, torch), seed) for seed in range(_rounding.RUNS)]
    assert same_text(expected, found, shaken=shaken), f"\nPyTorch:\n{expected}\nautograd_nb:\n{found}"
    return expected


def programs(name: str) -> dict:
    "The programs in the file programs/`name`.txt, each headed by a line '### title': {title: source}. What stands before the first is put before each."
    setup, *parts = re.split(r"^### (.*)\n", (Path(__file__).parent / "programs" / f"{name}.txt").read_text(), flags=re.M)
    return {title: setup + source for title, source in zip(parts[::2], parts[1::2])}


def usual_processor() -> bool:
    "Whether PyTorch runs its code for AVX2, whose polynomials and fused multiplications ours follow to the bit; its other code has other last digits."
    import torch

    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def same_draws(found, expected, err_msg=""):
    "Assert that two arrays of random numbers are the same: bit for bit where PyTorch computes logarithms and sines as ours do."
    if usual_processor() and found.dtype != np.float64:
        np.testing.assert_array_equal(found, expected, err_msg=err_msg)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=err_msg)


def to_numpy(value):
    "A tensor of either library as a NumPy array (bfloat16 as float32)."
    value = value.detach()
    if str(value.dtype) == "torch.bfloat16":
        value = value.float()
    return np.asarray(value.numpy())


def close(a, b, rtol=1e-4, atol=1e-5):
    "Assert that two tensors or arrays agree in shape and numbers; NaN equals NaN."
    a, b = (to_numpy(v) if hasattr(v, "detach") else np.asarray(v) for v in (a, b))
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def assert_same(a, b, what):
    "Compare nested lists of numbers and texts: `a` is PyTorch's."
    if isinstance(a, dict):
        assert isinstance(b, dict) and sorted(map(str, b)) == sorted(map(str, a)), what
        for k in a:
            assert_same(a[k], b[k], f"{what}: {k}")
    elif isinstance(a, (list, tuple)):
        assert type(b) is type(a) and len(b) == len(a), what
        for k, (x, y) in enumerate(zip(a, b)):
            assert_same(x, y, f"{what}: {k}")
    elif isinstance(a, (float, np.ndarray)):
        np.testing.assert_allclose(b, a, 1e-4, 1e-6, err_msg=what)
    else:
        assert b == a, what
