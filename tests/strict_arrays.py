"""A stand-in for CuPy that needs no GPU and forgives nothing.

Its arrays hold NumPy's, but are none: there is no way from one to the other that is not asked for by name, and those that are get counted in `transfers`. What exists, and with which arguments, was read from CuPy itself
(`cupy14.json`): code that passes here names nothing that CuPy 14 lacks, mixes no arrays of two libraries, and copies nothing to the host behind anyone's back.

Where CuPy behaves otherwise than NumPy the stand-in does, too: functions that look at numbers to know the size of their result (`nonzero`, masks, `bincount`) are counted as copies to the host, since they wait for the
device; `add.at` and its relatives refuse the dtypes that CUDA has no atomic operation for; ufuncs compute on the dtypes that CuPy's have; factorisations that fail return NaN unless `strictx.errstate(linalg="raise")` says otherwise.

`devices` devices are pretended; as in CuPy, arrays are computed with on the device they live on, and that must be the current one.
"""

import contextlib
import ctypes
import functools
import json
import math
import operator
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np

FACTS = json.loads((Path(__file__).parent / "cupy14.json").read_text())
devices = 2
_current = [0]


class OutOfMemoryError(MemoryError):
    "CuPy's error of that name."


class Block:
    "Memory of the pool; returned when nobody holds it any more."

    def __init__(self, size, pool):
        self.size, self.device_id, self.pool = size, _current[0], pool
        pool.used += size
        pool.total = max(pool.total, pool.used)

    def __del__(self):
        self.pool.used -= self.size


class MemoryPool:
    __slots__ = ("used", "total", "limit")  # as CuPy's, nothing can refer to it weakly

    def __init__(self):
        self.used = self.total = 0
        self.limit = None

    def malloc(self, size):
        if self.used + size > (self.limit or 1 << 34):
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        return Block(size, self)

    def used_bytes(self):
        return self.used

    def total_bytes(self):
        return self.total

    def free_bytes(self):
        return self.total - self.used

    def free_all_blocks(self):
        self.total = self.used

    def set_limit(self, size=None):
        self.limit = size



# Captured streams: CUDA records the work and does not do it ------------------------------------------------------


class CUDARuntimeError(RuntimeError):
    "CuPy's error of that name."


class Graph:
    """What was recorded: calls, which a replay makes again, writing their results where the first ones were. At the end of the capture everything is as if nothing had been done: what was there before has its old contents, what is new has none."""

    def __init__(self):
        self.calls, self.before = [], {}

    def keep(self, values):
        "Remember the contents of arrays that a call might write to."
        for a in arrays_in(values):
            owner = root(a._a)
            if id(owner) not in self.before and not any(owner is o for o in self.new()):
                self.before[id(owner)] = owner, owner.copy()

    def new(self):
        return (root(a._a) for _, _, _, out in self.calls for a in arrays_in(out) if a.base is None)

    def undo(self):
        for owner in self.new():
            if owner.dtype.kind in "fc":
                owner[...] = np.nan
        for owner, old in self.before.values():
            owner[...] = old

    def launch(self, stream=None):
        for function, args, kwargs, out in self.calls:
            if getattr(function, "idle", False):
                continue
            for old, new in zip(arrays_in(out), arrays_in(function(*args, **kwargs)), strict=True):
                if old is not new and root(old._a) is not root(new._a) and old.base is None:
                    old._a[...] = new._a

    def debug_dot_str(self, flags=0):
        return "digraph {}"


_capturing = [None, False]  # the graph; whether a call is being recorded


def arrays_in(value):
    if value.__class__ is ndarray:
        return [value]
    if isinstance(value, dict):
        return arrays_in(list(value.values()))
    return [a for v in value for a in arrays_in(v)] if isinstance(value, (list, tuple)) else []


def recorded(function):
    "`function`, which a captured stream records."

    @functools.wraps(function)
    def call(*args, **kwargs):
        if _capturing[0] is None or _capturing[1]:
            return function(*args, **kwargs)
        _capturing[0].keep((args, kwargs))
        _capturing[1] = True
        try:
            with np.errstate(all="ignore"):  # what lies in new memory means nothing yet
                out = function(*args, **kwargs)
        finally:
            _capturing[1] = False
        _capturing[0].calls.append((function, args, kwargs, out))
        return out

    return call


def refuse_while_capturing():
    if _capturing[0] is not None:
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


class Transfers(Counter):
    "Counts; no number enters or leaves the device while its stream is captured."

    def __setitem__(self, key, value):
        if value > self[key]:
            refuse_while_capturing()
        super().__setitem__(key, value)


transfers = Transfers()  # 'to_host', 'to_device' -> how often

pool = MemoryPool()
_allocator = [pool.malloc]


def root(a):
    "The NumPy array that owns the memory."
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


def bare(v):
    "The contents of what a function of CuPy's was given. Raises TypeError for NumPy's arrays and for tensors."
    if v.__class__ is ndarray:
        if v._device != _current[0]:
            raise ValueError(f"Array device must be same as the current device: array device = {v._device} while current = {_current[0]}")
        return v._a
    if isinstance(v, (np.ndarray, np.memmap)):
        raise TypeError(f"Unsupported type {type(v)}")
    if isinstance(v, (list, tuple)):
        return type(v)(map(bare, v)) if not hasattr(v, "_fields") else tuple(map(bare, v))
    if isinstance(v, dict):
        return {k: bare(x) for k, x in v.items()}
    if isinstance(v, slice):
        return v
    if v is None or v is Ellipsis or isinstance(v, (bool, int, float, complex, str, np.generic, np.dtype, type)) or hasattr(v, "__index__") and not hasattr(v, "_array"):
        return v
    raise TypeError(f"Unsupported type {type(v)}")


def waits():
    "Called where CuPy looks at a number on the device to go on, and waits for it."
    transfers["to_host"] += 1


def has_mask(index):
    return any(i.__class__ is ndarray and i.dtype.kind == "b" for i in (index if isinstance(index, tuple) else (index,)))


def wrapped(r, *sources):
    "A result as CuPy gives it: arrays, also where NumPy gives numbers. `sources`: arrays that it may be a view of."
    if isinstance(r, np.ndarray):
        if not any(s == 0 for s in r.strides) and not r.flags.writeable:
            r = r.copy()
        owner = root(r)
        for s in sources:
            if s.__class__ is ndarray and root(s._a) is owner:
                return ndarray(r, s if s.base is None else s.base)
        return ndarray(r)
    if isinstance(r, np.generic):
        return ndarray(np.asarray(r))
    if isinstance(r, (tuple, list)):
        made = [wrapped(v, *sources) for v in r]
        return made if isinstance(r, list) else tuple(made)
    return r


class Flags:
    def __init__(self, a):
        self.c_contiguous, self.f_contiguous, self.owndata = a.flags.c_contiguous, a.flags.f_contiguous, a.base is None


class Device:
    def __init__(self, device=None):
        self.id = _current[0] if device is None else int(device)

    def __enter__(self):
        self.outer, _current[0] = _current[0], self.id
        return self

    def __exit__(self, *exc):
        _current[0] = self.outer

    def use(self):
        _current[0] = self.id

    def synchronize(self):
        refuse_while_capturing()

    compute_capability = "90"
    attributes = {"MultiProcessorCount": 4}

    @property
    def mem_info(self):
        total = pool.limit or 1 << 34
        return total - pool.used, total


class Address(int):
    "An address that keeps alive what lies there, as the pool of a recorded graph does."

    def __new__(cls, array):
        made = int.__new__(cls, array.__array_interface__["data"][0])
        made.array = array
        return made



class ndarray:
    __slots__ = ("_a", "base", "_block", "_device", "__weakref__")
    __array_priority__ = 100
    __hash__ = None

    def __new__(cls, shape, base=None, dtype=None):
        if isinstance(shape, ndarray):  # a copy, on the current device
            return ndarray(shape._a.copy())
        self = object.__new__(cls)
        self._a, self.base = shape if isinstance(shape, np.ndarray) else np.empty(shape, dtype), base
        self._device = _current[0] if base is None else base._device
        self._block = None if base is not None else _allocator[0](root(self._a).nbytes)
        return self

    def __init__(self, *args, **kwargs):
        pass

    shape, dtype, ndim, size = (property(lambda s, n=n: getattr(s._a, n)) for n in ("shape", "dtype", "ndim", "size"))
    itemsize, nbytes, strides = (property(lambda s, n=n: getattr(s._a, n)) for n in ("itemsize", "nbytes", "strides"))
    T, mT = (property(lambda s, n=n: wrapped(getattr(s._a, n), s)) for n in ("T", "mT"))
    real, imag = (property(lambda s, n=n: wrapped(getattr(s._a, n), s), lambda s, v, n=n: setattr(s._a, n, bare(v))) for n in ("real", "imag"))
    flags = property(lambda s: Flags(s._a))
    device = property(lambda s: Device(s._device))
    data = property(lambda s: SimpleNamespace(ptr=Address(s._a), mem=(s if s.base is None else s.base)._block))
    flat = property(lambda s: wrapped(s._a.reshape(-1).copy()))
    __cuda_array_interface__ = property(lambda s: s._a.__array_interface__)

    # numbers leave the device only here
    def get(self, stream=None, order="C", out=None, blocking=True):
        transfers["to_host"] += 1
        if out is None:
            return self._a.copy()
        out[...] = self._a
        return out

    def item(self):
        transfers["to_host"] += 1
        return self._a.item()

    def tolist(self):
        transfers["to_host"] += 1
        return self._a.tolist()

    def __bool__(self):
        transfers["to_host"] += 1
        return bool(self._a)

    def __int__(self):
        transfers["to_host"] += 1
        return int(self._a)

    def __float__(self):
        transfers["to_host"] += 1
        return float(self._a)

    def __complex__(self):
        transfers["to_host"] += 1
        return complex(self._a)

    def __index__(self):
        transfers["to_host"] += 1
        return self._a.__index__()

    @recorded
    def set(self, arr, stream=None):
        transfers["to_device"] += 1
        self._a[...] = arr

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        "NumPy's ufuncs hand over to those of this library, as with CuPy."
        if method != "__call__" or FACTS["functions"].get(ufunc.__name__) != "ufunc":
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return getattr(library, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, function, types, args, kwargs):
        "NumPy's functions hand over to those of this library, as with CuPy."
        module = library
        for part in function.__module__.split(".")[1:]:
            module = getattr(module, part, None)
        found = getattr(module, function.__name__, None)
        if found is None or not all(t is ndarray for t in types):
            return NotImplemented
        return found(*args, **kwargs)

    def __dlpack__(self, **kwargs):
        return self._a.__dlpack__()

    def __dlpack_device__(self):
        return (2, self._device)

    def __len__(self):
        return len(self._a)

    def __iter__(self):
        return iter([self[i] for i in range(len(self._a))])

    @recorded
    def __getitem__(self, index):
        if has_mask(index):
            waits()
        return wrapped(self._a[place(index)], self)

    @recorded
    def __setitem__(self, index, value):
        if has_mask(index) and getattr(value, "ndim", 0):
            waits()
        self._a[place(index)] = bare(value)

    def __repr__(self):
        return f"strict.array({self._a!r})"

    def __reduce__(self):
        return _restored, (self.get(),)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    @recorded
    def reshape(self, *shape, order="C", copy=None):
        return wrapped(self._a.reshape(*bare(shape), order=order), self)

    def transpose(self, *axes):
        return wrapped(self._a.transpose(*axes), self)

    @recorded
    def copy(self, order="C"):
        "A copy on the current device, wherever the array lives."
        return ndarray(self._a.copy(order))

    @recorded
    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        return wrapped(self._a.astype(dtype, order=order, copy=copy), self) if copy or self._a.dtype != dtype or order == "C" and not self._a.flags.c_contiguous else self

    def view(self, dtype=None, type=None):
        return wrapped(self._a.view(dtype) if dtype is not None else self._a.view(), self)

    @recorded
    def scatter_add(self, slices, value):
        np.add.at(self._a, place(slices), bare(value))


def diagonal(a, offset=0, axis1=0, axis2=1):
    view = np.diagonal(bare(a), offset, axis1, axis2)
    view.flags.writeable = root(view).flags.writeable
    return wrapped(view, a)


def _restored(a):
    return library.asarray(a)


def place(index):
    "An index; those that CuPy would have to send to the device first are refused."
    if isinstance(index, tuple):
        return tuple(map(place, index))
    if isinstance(index, (list, np.ndarray)):
        raise TypeError(f"an index of type {type(index).__name__} would be sent to the device silently")
    return bare(index)


def _operator(function, reflected=False):
    def method(self, other):
        if not isinstance(other, (bool, int, float, complex, np.generic, ndarray)):
            if isinstance(other, np.ndarray):
                raise TypeError(f"Unsupported type {type(other)}")
            return NotImplemented
        return wrapped(function(bare(other), bare(self)) if reflected else function(bare(self), bare(other)))

    return recorded(method)


def _in_place(function):
    def method(self, other):
        function(self._a, bare(other))
        return self

    return recorded(method)


for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    _f = getattr(operator, f"__{_name}__")
    setattr(ndarray, f"__{_name}__", _operator(_f))
    setattr(ndarray, f"__r{_name}__", _operator(_f, True))
    if _name != "matmul":
        setattr(ndarray, f"__i{_name}__", _in_place(getattr(operator, f"__i{_name}__")))
for _name in "eq ne lt le gt ge".split():
    setattr(ndarray, f"__{_name}__", _operator(getattr(operator, f"__{_name}__")))
for _name in "neg pos abs invert".split():
    setattr(ndarray, f"__{_name}__", recorded(lambda s, f=getattr(operator, f"__{_name}__"): wrapped(f(s._a))))


def checked(name, parameters, function):
    "`function`, which refuses arguments that CuPy's function of that name does not have."

    @functools.wraps(function)
    def call(*args, **kwargs):
        if parameters is not None:
            unknown = [k for k in kwargs if k not in parameters]
            if unknown or len(args) > len(parameters):
                raise TypeError(f"cupy.{name}() got an unexpected argument {unknown or args[len(parameters) :]}")
        return function(*args, **kwargs)

    return call


def in_single(function):
    "A sum, a product or a mean, as CuPy forms it: numbers of sixteen bits are joined in float32, and the result is rounded."

    def joined(a, axis=None, dtype=None, out=None, keepdims=False):
        if dtype is None and a.dtype.name in ("float16", "bfloat16"):
            return function(a.astype(np.float32), axis=axis, keepdims=keepdims).astype(a.dtype)
        return function(a, axis=axis, dtype=dtype, keepdims=keepdims)

    return joined


_JOINING = {name: in_single(getattr(np, name)) for name in ("sum", "prod", "mean")}


def _method(name, parameters):
    function = _JOINING.get(name) or (lambda a, *args, **kwargs: getattr(a, name)(*args, **kwargs))

    def method(self, *args, **kwargs):
        out = kwargs.pop("out", None)
        kwargs = {k: bare(v) for k, v in kwargs.items() if v is not None}
        r = wrapped(function(bare(self), *bare(args), **kwargs), self)
        if out is None:
            return r
        out._a[...] = r._a
        return out

    checked_ = checked(f"ndarray.{name}", None if parameters is None else parameters, lambda *a, **k: None)

    def call(self, *args, **kwargs):
        checked_(*args, **kwargs)
        return method(self, *args, **kwargs)

    call.__name__ = name
    return recorded(call)


for _name, _parameters in FACTS["methods"].items():
    if not hasattr(ndarray, _name) and hasattr(np.ndarray, _name):
        setattr(ndarray, _name, _method(_name, _parameters))


class ufunc:
    "A ufunc with the methods that CuPy's has."
    _REDUCE = {"add", "multiply"}
    _WIDE = "int32 int64 uint32 uint64"
    _AT = {"add": _WIDE + " float16 float32 float64", "subtract": "int32 uint32", "maximum": _WIDE + " float32 float64", "minimum": _WIDE + " float32 float64", **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), _WIDE)}

    def __init__(self, of, types):
        self.of, self.name, self.nin, self.nout = of, "cupy_" + of.__name__, of.nin, of.nout
        self.types = [[tuple(map(dtype_of, side)) for side in t.split("->")] for t in types]

    def _loop(self, args, result):
        "Refuse what CuPy has no loop for, and results of another dtype than its own."
        kinds = [a.dtype if isinstance(a, (np.ndarray, np.generic)) else type(a) for a in args]
        if any(kind in (bool, int, float, complex) for kind in kinds) or any(k.kind in "OUSmM" for k in kinds):
            return
        for ins, outs in self.types:
            if all(np.can_cast(k, t) for k, t in zip(kinds, ins)):
                found = [r.dtype for r in (result if isinstance(result, tuple) else (result,))]
                assert found == list(outs), f"{self.name} of {kinds} gives {outs} in CuPy, {found} in NumPy"
                return
        raise TypeError(f"Wrong type ({kinds}) of arguments for {self.name}")

    @recorded
    def __call__(self, *args, out=None, dtype=None, casting="same_kind"):
        args, outs = list(args), out
        if len(args) > self.nin:
            outs, args = args[self.nin], args[: self.nin]
        given = {} if outs is None else {"out": bare(outs)}
        if dtype is not None:
            given["dtype"] = dtype
        args = list(map(bare, args))
        r = self.of(*args, **given)
        if not given:
            self._loop(args, r)
        return outs if outs is not None else wrapped(r)

    def _only(self, names, method):
        if self.of.__name__ not in names:
            raise NotImplementedError(f"`{self.name}.{method}` is not supported yet")

    @recorded
    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        self._only(self._REDUCE, "reduce")
        return wrapped(in_single(self.of.reduce)(bare(array), axis=axis, dtype=dtype, keepdims=keepdims))

    @recorded
    def accumulate(self, array, axis=0, dtype=None, out=None):
        self._only(self._REDUCE, "accumulate")
        return wrapped(self.of.accumulate(bare(array), axis, dtype))

    @recorded
    def at(self, a, indices, b=None):
        self._only(self._AT, "at")
        if a.dtype.name not in self._AT[self.of.__name__].split():
            raise TypeError(f"cupy.{self.of.__name__}.at only supports {', '.join(self._AT[self.of.__name__].split())} as data type")
        b = bare(b)
        if self.of in (np.maximum, np.minimum) and a.dtype == np.float64:  # CuPy's kernels call fmaxf
            b = np.asarray(b, np.float32).astype(np.float64)
        self.of.at(bare(a), place(indices), b)

    @recorded
    def reduceat(self, array, indices, axis=0, dtype=None, out=None):
        self._only({"add"}, "reduceat")
        return wrapped(self.of.reduceat(bare(array), bare(indices), axis))


_WAITING = {"nonzero", "flatnonzero", "argwhere", "unique", "unique_values", "bincount", "unravel_index", "histogram", "extract", "compress", "trim_zeros", "digitize", "isin", "in1d", "intersect1d", "setdiff1d", "union1d"}


def _function(name, of, parameters):
    of = _JOINING.get(name, of)

    def refuse(args):
        first = args[0] if args else None
        if name in ("nonzero", "flatnonzero", "argwhere", "sort", "argsort") and first.__class__ is ndarray and not first.ndim and name != "argsort":
            raise ValueError(f"{name} of arrays without dimensions is not allowed")
        if name == "repeat" and len(args) > 1 and args[1].__class__ is ndarray:
            raise TypeError("`repeats` should be int or sequence")
        if name in _WAITING or name == "where" and len(args) == 1:
            waits()

    def call(*args, **kwargs):
        out = kwargs.pop("out", None)
        flat = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,))]
        refuse(args)
        try:
            r = wrapped(of(*map(bare, args), **{k: bare(v) for k, v in kwargs.items()}), *flat)
        except OutOfMemoryError:
            raise
        except MemoryError:  # NumPy has no room for what the device has none for either
            _allocator[0](1 << 44)
            raise
        if out is not None:
            out._a[...] = r._a
            return out
        return r

    call.idle = name in ("empty", "empty_like")
    return checked(name, parameters, recorded(call))


@recorded
def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    if a.__class__ is ndarray:
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)
    transfers["to_device"] += isinstance(a, np.ndarray)
    return ndarray(np.array(_inside(a), dtype, order=order or "C"))


def _inside(a):
    return type(a)(map(_inside, a)) if isinstance(a, (list, tuple)) else a._a if a.__class__ is ndarray else a


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    return a.get(out=out) if a.__class__ is ndarray else np.asarray(a)


def array_equal(a1, a2, equal_nan=False):
    return ndarray(np.asarray(np.array_equal(bare(a1), bare(a2), equal_nan)))


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    return ndarray(np.asarray(np.allclose(bare(a), bare(b), rtol, atol, equal_nan)))


def may_share_memory(a, b, max_work=None):
    return np.may_share_memory(bare(a), bare(b))


@recorded
def ascontiguousarray(a, dtype=None):
    if a.__class__ is not ndarray:
        return asarray(a, dtype)
    return a if a.flags.c_contiguous and (dtype is None or a.dtype == dtype) else ndarray(np.array(bare(a), dtype, order="C"))


@recorded
def asarray_copy(a, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    return asarray(a, dtype).copy() if a.__class__ is ndarray else asarray(a, dtype)


def from_dlpack(a):
    return ndarray(np.from_dlpack(a._a if a.__class__ is ndarray else a))


def as_strided(x, shape=None, strides=None):
    return wrapped(np.lib.stride_tricks.as_strided(bare(x), shape, strides), x)


# Kernels in C++ ------------------------------------------------------------------------------------------------

COMPILER = shutil.which("g++") or shutil.which("clang++")
_C = {"float16": "float", "float32": "float", "float64": "double", "uint64": "unsigned long", "int64": "long", "bool": "bool"}
_OF = {"float": np.float32, "double": np.float64, "unsigned long": np.uint64, "long": np.int64, "bool": np.bool_}
_built = {}


def build(source):
    "The function `run` of a C++ source."
    if source not in _built:
        folder = Path(tempfile.mkdtemp())
        (folder / "k.cpp").write_text("#include <cmath>\nusing namespace std;\n" + source)
        subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.cpp"], check=True, capture_output=True)
        _built[source] = ctypes.CDLL(str(folder / "k.so")).run
        shutil.rmtree(folder)
    return _built[source]


def parameters_of(text):
    return [tuple(p.strip().rsplit(None, 1)) for p in text.split(",")]


class ElementwiseKernel:
    "The loop that CuPy would write around the code, compiled for the CPU. Half precision is computed in single."

    def __init__(self, in_params, out_params, operation, name="kernel"):
        self.ins, self.outs, self.code = parameters_of(in_params), parameters_of(out_params), operation
        self.raw = [n for t, n in self.ins if t.startswith("raw ")]  # given as they are, to be read at any index
        self.ins = [(t.removeprefix("raw "), n) for t, n in self.ins]
        pointers = ", ".join(f"{_C[t]}* {n}_" for t, n in self.ins + self.outs)
        reads = " ".join(f"const {_C[t]}* {n} = {n}_;" if n in self.raw else f"const {_C[t]} {n} = {n}_[i];" for t, n in self.ins) + " ".join(f" {_C[t]}& {n} = {n}_[i];" for t, n in self.outs)
        self.source = f'extern "C" void run(long count, {pointers}) {{ for (long i = 0; i < count; i++) {{ {reads} {operation} }} }}'

    def shape(self, args):
        "The shape over which the loop goes."
        return np.broadcast_shapes(*[np.shape(bare(a)) for a, (_, n) in zip(args, self.ins + self.outs) if n not in self.raw])

    @recorded
    def __call__(self, *args):
        given, outs = args[: len(self.ins)], args[len(self.ins) :]
        assert len(given) == len(self.ins) and len(outs) in (0, len(self.outs))
        for a, (t, _) in zip(args, self.ins + self.outs):
            assert a.__class__ is ndarray and a.dtype == t or isinstance(a, np.generic), f"{a!r} given for {t}"
        c = lambda t: _OF[_C[t]]
        shape = self.shape(args)
        values = [np.ascontiguousarray(bare(a) if n in self.raw else np.broadcast_to(bare(a), shape), c(t)) for a, (t, n) in zip(given, self.ins)]
        results = [np.array(bare(o), c(t)) for o, (t, _) in zip(outs, self.outs)] or [np.empty(shape, c(t)) for t, _ in self.outs]
        build(self.source)(ctypes.c_long(math.prod(shape)), *[ctypes.c_void_p(v.ctypes.data) for v in values + results])
        if outs:
            for o, r in zip(outs, results):
                o._a[...] = r
            return outs[0] if len(outs) == 1 else outs
        made = [ndarray(r.astype(t)) for r, (t, _) in zip(results, self.outs)]
        return made[0] if len(made) == 1 else tuple(made)


class ReductionKernel:
    "The map, by the loop above, and a sum."

    def __init__(self, in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name="kernel"):
        assert reduce_expr == "a + b" and identity == "0" and post_map_expr == f"{out_params.split()[1]} = a", "the stand-in knows sums only"
        self.out = out_params.split()
        self.map = ElementwiseKernel(in_params, f"{self.out[0]} mapped_", f"mapped_ = {map_expr};")

    def __call__(self, *arrays, axis=None, keepdims=False):
        return self.map(*arrays).sum(axis, None, None, keepdims)


class RawKernel:
    "A kernel of one block a row, compiled for the CPU as if a block had one thread."

    def __init__(self, code, name, options=()):
        code = code.replace("#include <cupy/float16.cuh>", "typedef float float16;").replace("__global__", "").replace("__device__", "")
        header, self.name = code.partition(f"void {name}(")[2].partition(")")[0], name
        self.types = [p.rsplit(None, 1)[0].removeprefix("const ") for p in header.split(",")]
        names = [f"a{k}" for k in range(len(self.types))]
        values = ", ".join(f"({t}){n}" if "*" in t else f"*({t}*){n}" for t, n in zip(self.types, names))
        self.source = f"struct Index {{ unsigned x; }} blockIdx, threadIdx = {{0}}, blockDim = {{1}}, gridDim = {{1}};\n{code}\n" \
            f'extern "C" void run(long rows, {", ".join("void* " + n for n in names)}) {{ gridDim.x = rows; for (blockIdx.x = 0; blockIdx.x < rows; blockIdx.x++) {name}({values}); }}'

    def compile(self):
        build(self.source)

    @recorded
    def __call__(self, grid, block, args):
        assert len(grid) == len(block) == 1 and 32 <= block[0] <= 1024 and not block[0] & (block[0] - 1) and len(args) == len(self.types)
        held, halves = [], []
        for a, t in zip(args, self.types):
            assert (a.__class__ is ndarray and a._a.flags.c_contiguous) == ("*" in t), f"{a!r} given for {t}"
            value = np.array(bare(a))
            if value.dtype == np.float16:  # computed in single
                value = value.astype(np.float32)
                halves.append((a, value))
            held.append(value if "*" not in t or value.dtype == np.float32 and a.dtype == np.float16 else bare(a))
        build(self.source)(ctypes.c_long(grid[0]), *[ctypes.c_void_p(v.ctypes.data) for v in held])
        for a, value in halves:
            bare(a)[...] = value


# The module ----------------------------------------------------------------------------------------------------

library = ModuleType("strict")
_OWN = dict(diagonal=diagonal, asarray=asarray, array=asarray_copy, asnumpy=asnumpy, array_equal=array_equal, allclose=allclose, may_share_memory=may_share_memory, ascontiguousarray=ascontiguousarray, from_dlpack=from_dlpack)


def dtype_of(char):
    "The dtype that a letter means among a ufunc's types; `E` is bfloat16."
    if char == "E":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(char)


def _fill(module, facts, of, prefix=""):
    for name, parameters in facts.items():
        if name in _OWN and not prefix:
            setattr(module, name, _OWN[name])
        elif hasattr(of, name):
            found = getattr(of, name)
            setattr(module, name, ufunc(found, FACTS["types"][name]) if isinstance(found, np.ufunc) and parameters == "ufunc" else _function(prefix + name, found, None if parameters == "ufunc" else parameters))


_fill(library, FACTS["functions"], np)
for _part in ("linalg", "fft"):
    _module = ModuleType(f"strict.{_part}")
    _fill(_module, FACTS[_part], getattr(np, _part), _part + ".")
    setattr(library, _part, _module)
library.linalg.LinAlgError = np.linalg.LinAlgError


# Factorisations: CuPy does not look at whether they succeeded, since that would wait, unless it is told to.

extras = ModuleType("strictx")
_linalg = ["ignore"]


@contextlib.contextmanager
def _errstate(*, divide=None, over=None, under=None, invalid=None, linalg=None):
    before, _linalg[0] = _linalg[0], linalg or _linalg[0]
    try:
        yield
    finally:
        _linalg[0] = before


extras.errstate = _errstate


@contextlib.contextmanager
def _allow_synchronize(allow):
    before = transfers["to_host"]
    yield
    if not allow and transfers["to_host"] > before:
        raise RuntimeError("the device was waited for")


extras.allow_synchronize = _allow_synchronize


def _failing(name, of):
    def call(*args, **kwargs):
        if _linalg[0] == "raise":
            waits()
        try:
            return of(*args, **kwargs)
        except np.linalg.LinAlgError:
            if _linalg[0] == "raise":
                raise
        nothing = lambda shape: ndarray(np.full(shape, np.nan, args[0].dtype))
        a = args[0]
        return {"cholesky": lambda: nothing(a.shape), "inv": lambda: nothing(a.shape), "solve": lambda: nothing(args[1].shape), "eigvalsh": lambda: nothing(a.shape[:-1]), "eigh": lambda: (nothing(a.shape[:-1]), nothing(a.shape)), "svd": lambda: nothing(a.shape)}[name]()

    return call


for _name in ("cholesky", "inv", "solve", "eigh", "eigvalsh", "svd"):
    setattr(library.linalg, _name, _failing(_name, getattr(library.linalg, _name)))


def _solve(a, b, of=library.linalg.solve):
    if a.shape[:-1] != b.shape[: a.ndim - 1] or a.ndim != b.ndim and b.ndim != 1:
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
    return of(a, b)


library.linalg.solve = _solve
for _name in ("eig", "eigvals"):  # complex, always

    def _complex(a, of=getattr(library.linalg, _name)):
        widened = lambda r: r if r.dtype.kind == "c" else r.astype(np.result_type(r.dtype, np.complex64))
        out = of(a)
        return tuple(map(widened, out)) if isinstance(out, tuple) else widened(out)

    setattr(library.linalg, _name, _complex)


def _own_dtype(function):
    "Products of bfloat16 matrices are bfloat16, as in CuPy, which has none of stacks; NumPy has them in float32."

    def product(a, b):
        if _capturing[0] is not None:
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        if a.dtype.name == "bfloat16" and max(a.ndim, b.ndim) > 2:
            raise TypeError("data type 'E' not understood")
        r = function(a, b)
        return r.astype(a.dtype) if a.dtype == b.dtype and r.dtype != a.dtype else r

    return product


library.matmul, ndarray.__matmul__ = _own_dtype(library.matmul), _own_dtype(ndarray.__matmul__)
sys.modules.setdefault("strictx", extras)
library.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
library.r_ = SimpleNamespace()
library.ogrid = type("ogrid", (), {"__getitem__": lambda s, i: wrapped(np.ogrid[i])})()
library.ndarray, library.ufunc = ndarray, ufunc
library.ElementwiseKernel, library.ReductionKernel, library.RawKernel = ElementwiseKernel, ReductionKernel, RawKernel
library.get_default_memory_pool = lambda: pool
library.float32, library.float64, library.int64, library.bool_ = np.float32, np.float64, np.int64, np.bool_


class Stream:
    null = None
    ptr = 0

    def begin_capture(self, mode=None):
        _capturing[0] = Graph()

    def end_capture(self):
        graph, _capturing[0] = _capturing[0], None
        graph.undo()
        return graph

    def is_capturing(self):
        return _capturing[0] is not None

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.waited = []

    def __enter__(self):
        _streams.append(self)
        return self

    def __exit__(self, *exc):
        _streams.pop()

    def use(self):
        _streams[-1] = self

    def synchronize(self):
        pass

    done = True

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.waited.append(event)


Stream.null = Stream()
_streams = [Stream.null]


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.time = None

    done = True

    def record(self, stream=None):
        import time

        self.time = time.perf_counter()

    def synchronize(self):
        pass


def _set_allocator(allocator=None):
    _allocator[0] = allocator or pool.malloc


library.cuda = SimpleNamespace(
    Device=Device, MemoryPool=MemoryPool, Graph=Graph, Stream=Stream, Event=Event, set_allocator=_set_allocator, get_current_stream=lambda: _streams[-1], get_elapsed_time=lambda a, b: (b.time - a.time) * 1000,
    alloc_pinned_memory=lambda n: bytearray(n), memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=SimpleNamespace(getDeviceCount=lambda: devices, getDevice=lambda: _current[0], setDevice=lambda i: _current.__setitem__(0, i), getDeviceProperties=lambda i: dict(name=b"Strict stand-in", totalGlobalMem=1 << 34, multiProcessorCount=4, major=9, minor=0),
                            CUDARuntimeError=lambda code: CUDARuntimeError(f'error {code}'), runtimeGetVersion=lambda: 12090, deviceCanAccessPeer=lambda a, b: 0))
sys.modules.setdefault("strict", library)


class Cublas:
    """A stand-in for cuBLAS that computes in NumPy at the addresses it is given; `calls` are the arguments of its products, without the handle."""

    TYPES = {0: "f4", 1: "f8", 2: "f2", 4: "c8", 5: "c16", 14: "bfloat16"}

    def __init__(self):
        self.handles, self.calls = 0, []

    def cublasCreate_v2(self, made):
        refuse_while_capturing()
        self.handles += 1
        made._obj.value = self.handles
        return 0

    def cublasSetStream_v2(self, handle, stream):
        return 0 if 0 < handle.value <= self.handles else 1

    def cublasGemmStridedBatchedEx(self, handle, *arguments):
        if not 0 < handle.value <= self.handles:
            return 1
        self.calls.append(arguments)
        return _strided_products(*arguments)


@recorded
def _strided_products(a_turned, b_turned, m, n, k, alpha, a, a_type, a_down, a_step, b, b_type, b_down, b_step, beta, c, c_type, c_down, c_step, count, adding, algorithm):
    "What cuBLAS's function does, which counts columns first."
    dtype = np.dtype(getattr(ml_dtypes, "bfloat16", None) if Cublas.TYPES[a_type] == "bfloat16" else Cublas.TYPES[a_type])
    scale = ctypes.c_double if adding == 70 else ctypes.c_float
    one, zero = (scale.from_address(v).value for v in (alpha, beta))
    if not a_type == b_type == c_type or (one, zero) != (1, 0) or not a_down >= (k if a_turned else m) or not b_down >= (n if b_turned else k) or c_down < m:
        return 7

    def seen(address, rows, columns, turned, down, step):
        "A stack of matrices, each read column by column."
        rows, columns = (columns, rows) if turned else (rows, columns)
        size = dtype.itemsize
        memory = np.frombuffer((ctypes.c_char * (((count - 1) * step + (columns - 1) * down + rows) * size)).from_address(address), dtype)
        stack = np.lib.stride_tricks.as_strided(memory, (count, rows, columns), (step * size, size, down * size))
        return stack.swapaxes(1, 2) if turned else stack

    wide = np.float32 if dtype.itemsize == 2 else dtype
    seen(c, m, n, 0, c_down, c_step)[...] = (seen(a, m, k, a_turned, a_down, a_step).astype(wide) @ seen(b, k, n, b_turned, b_down, b_step).astype(wide)).astype(dtype)
    return 0


cublas = Cublas()
