"""What CuPy offers, read from CuPy itself, which can be imported without a GPU.

`python tests/cupy_facts.py` (where CuPy is installed) writes `cupy14.json`, from which the stand-in of `strict_arrays.py` learns what exists, which arguments it takes, and on which dtypes a ufunc computes.
"""

import inspect
import json
from pathlib import Path

FILE = Path(__file__).parent / "cupy14.json"


def parameters(function):
    "The names of a function's parameters, None if they cannot be told."
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return None if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found.values()) else list(found)


def functions(module, ufunc):
    "The public functions of a module with their parameters; 'ufunc' for a ufunc."
    out = {}
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(value) or isinstance(value, type):
            continue
        if isinstance(value, ufunc):
            out[name] = "ufunc"
        elif callable(value):
            out[name] = parameters(value)
    return out


def method(ndarray, name):
    "The parameters of a method of arrays, from the first line of its documentation."
    head = (getattr(ndarray, name).__doc__ or "").split("\n")[0]
    if "(" not in head or "->" in head.split("(")[0]:
        return None
    inner = head[head.index("(") + 1 :].rpartition(")")[0].split(")")[0]
    parts = [p.strip() for p in inner.split(",")]
    if any(p.startswith("*") for p in parts):
        return None
    return [p.split("=")[0].split(":")[0].split()[-1] for p in parts if p and p != "self"]


def facts():
    "All of it, as `cupy14.json` holds it."
    import cupy

    array = cupy.ndarray
    return dict(
        version=cupy.__version__,
        functions=functions(cupy, cupy.ufunc),
        types={n: list(getattr(cupy, n).types) for n in sorted(dir(cupy)) if isinstance(getattr(cupy, n), cupy.ufunc)},
        linalg=functions(cupy.linalg, cupy.ufunc),
        fft=functions(cupy.fft, cupy.ufunc),
        stride_tricks=["as_strided"],
        methods={n: method(array, n) for n in sorted(dir(array)) if n[0] != "_" and callable(getattr(array, n))},
        attributes=[n for n in sorted(dir(array)) if n[0] != "_" and not callable(getattr(array, n))],
    )


if __name__ == "__main__":
    FILE.write_text(json.dumps(facts(), indent=0) + "\n")
