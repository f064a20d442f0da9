"""Which tensors share memory: one call under PyTorch and under autograd_nb, on the same arrays in the same layout, and what a write into its results does to its inputs.

A call is a `Call`: where the function is found, and its arguments, with arrays in the place of tensors. `differences(call)` runs it under both libraries and says what differs."""

import re
import warnings
from dataclasses import dataclass, field

import numpy as np

import autograd_nb as ours
from autograd_nb.arrays.numpy_backend import storage_of

try:
    import torch
except ImportError:
    torch = None


@dataclass
class Named:
    "Something that each library has under a name of its own: a dtype, a memory format, a device."

    path: str


@dataclass
class Call:
    "`where` is a path such as 'nn.functional.relu', or '.flip' for a method of the first argument."

    where: str
    args: tuple
    kwargs: dict = field(default_factory=dict)

    def __str__(self):
        def text(v):
            if isinstance(v, np.ndarray):
                return f"{v.dtype}{list(v.shape)}" + ("" if v.flags.c_contiguous else f" strides {v.strides}")
            return v.path if isinstance(v, Named) else f"[{', '.join(map(text, v))}]" if isinstance(v, (list, tuple)) else repr(v)

        return f"{self.where}({', '.join([*map(text, self.args), *(f'{k}={text(v)}' for k, v in self.kwargs.items())])})"


def mapped(tree, change):
    "`tree`, lists, tuples and dictionaries, with `change` applied to its leaves."
    if isinstance(tree, dict):
        return {k: mapped(v, change) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)) and type(tree) in (list, tuple):
        return type(tree)(mapped(v, change) for v in tree)
    return change(tree)


def found(lib, where):
    "What stands at the path `where` of a library; raises AttributeError."
    for name in where.split("."):
        lib = getattr(lib, name)
    return lib


# Layouts: the same numbers, elsewhere in memory ------------------------------------------------------------------


def transposed(a):
    return a.T.copy().T


def strided(a):
    "With a gap behind each number."
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype) if a.ndim else np.zeros(3, a.dtype)
    part = wide[..., ::2] if a.ndim else wide[:1].reshape(())
    part[...] = a
    return part


def reversed_(a):
    "From the end of its memory to the front, in the last dimension: an array that PyTorch does not know, and autograd_nb takes."
    return a[..., ::-1].copy()[..., ::-1] if a.ndim else a.copy()


LAYOUTS = {"contiguous": np.copy, "transposed": transposed, "strided": strided, "negative step": reversed_}


# One call under one library --------------------------------------------------------------------------------------


def tensors_in(tree):
    "The tensors in what a function returned, in order."
    if isinstance(tree, (list, tuple)):
        return [t for v in tree for t in tensors_in(v)]
    if isinstance(tree, dict):
        return [t for v in tree.values() for t in tensors_in(v)]
    return [tree] if type(tree).__name__ in ("Tensor", "Parameter") and hasattr(tree, "requires_grad") else []


def storage(t):
    "Something that is equal for tensors that share memory; None where there is no memory."
    if not t.numel():
        return None
    return id(storage_of(t._array)) if isinstance(t, ours.Tensor) else t.untyped_storage().data_ptr()


def numbers(t):
    "The values of a tensor as an array, a copy."
    t = t.detach()
    t = t.float() if str(t.dtype) == "torch.bfloat16" else t
    return np.array(t._array if isinstance(t, ours.Tensor) else t.resolve_conj().resolve_neg().numpy())


def said(error):
    "An error, by its type and the words that count."
    text = str(error)
    for words in ("single memory location", "a leaf Variable that requires grad", "view of a leaf Variable", "multiple views", "no_grad", "can't be cast"):
        if words in text:
            return f"{type(error).__name__}: … {words} …"
    return type(error).__name__


class Seen:
    "One call under one library: its inputs and results, and what is to be compared, as named facts."

    def __init__(self, lib, call, layout="contiguous", grad=None):
        self.lib, self.inputs, self.facts = lib, [], {}

        def made(v):
            if isinstance(v, Named):
                return found(lib, v.path)
            if not isinstance(v, np.ndarray):
                return v
            a = LAYOUTS[layout](v)
            if lib is torch and any(s < 0 for s in a.strides):
                a = a.copy()
            x = lib.from_numpy(a)
            if grad and a.dtype.kind in "fc":
                x.requires_grad_()
                if grad == "intermediate":
                    self.leaves.append(x)
                    x = x.clone()
            self.inputs.append(x)
            return x

        self.leaves = []
        args, kwargs = mapped(call.args, made), mapped(call.kwargs, made)
        self.leaves = self.leaves or self.inputs
        (torch.default_generator if lib is torch else lib).manual_seed(0)
        function = getattr(args[0], call.where[1:]) if call.where.startswith(".") else found(lib, call.where)
        self.results = tensors_in(function(*(args[1:] if call.where.startswith(".") else args), **kwargs))
        self.error = None
        self.look(layout)

    def look(self, layout):
        """Which memory each result lies in, and of whom it says it is a view.

        A view of something that only its function ever saw is as good as a tensor of its own; how PyTorch composes its functions is its own affair."""
        places = [storage(x) for x in self.inputs]
        for k, r in enumerate(self.results):
            here, base = storage(r), r._base
            of = [i for i, x in enumerate(self.inputs) if x is base]
            shared = [i for i, p in enumerate(places) if p == here and here is not None]
            fact = dict(is_input=[i for i, x in enumerate(self.inputs) if x is r], view_of=of, shares_with_inputs=shared)
            if here is not None:
                fact["shares_with_results"] = [i for i, o in enumerate(self.results[:k]) if storage(o) == here]
            if shared and layout != "negative step":
                fact["strides"] = [s for s, n in zip(r.stride(), r.shape) if n > 1]
                fact["offset"] = r.data_ptr() - self.inputs[shared[0]].data_ptr()
            self.facts[f"result {k}"] = fact

    def overlapping(self):
        "The numbers of results, of PyTorch, in which several elements overlap in a way that it does not look at (windows)."
        return {k for k, r in enumerate(self.results) if torch._debug_has_internal_overlap(r) == 2}

    def write(self, grad, leave=()):
        "Write into each result in turn, and note what became of it and of the inputs."
        before = [r._version for r in self.results]
        for k, r in enumerate(self.results):
            if k in leave:
                continue
            try:
                r.mul_(2) if grad else r.fill_(1)
            except Exception as error:
                self.facts[f"write into result {k}"] = said(error)
        for i, x in enumerate(self.inputs):
            self.facts[f"input {i} afterwards"] = dict(version=x._version, requires_grad=x.requires_grad, is_leaf=self.asked(lambda x=x: x.is_leaf), grad_fn=self.asked(lambda x=x: x.grad_fn and x.grad_fn.name().split("::")[-1]))
        for k, r in enumerate(self.results):
            self.facts[f"result {k} afterwards"] = dict(writes=r._version - before[k])
            if self.facts[f"result {k}"]["shares_with_inputs"]:
                self.facts[f"result {k} afterwards"] |= dict(requires_grad=r.requires_grad, is_leaf=self.asked(lambda r=r: r.is_leaf))

    def replace(self):
        "In place of writes: the same computation on results of its own."
        own = {id(r): r * 2 if r.dtype.is_floating_point or r.dtype.is_complex else r for r in self.results}
        self.results, self.inputs = [own[id(r)] for r in self.results], [own.get(id(x), x) for x in self.inputs]

    @staticmethod
    def asked(question):
        try:
            return question()
        except Exception as error:
            return said(error)

    def gradients(self):
        "The gradients of the leaves, from all inputs and results as they are after the writes."
        lib, total = self.lib, 0.0
        for t in [*self.inputs, *self.results]:
            if t.requires_grad and t.numel():
                weights = lib.from_numpy(np.cos(np.arange(t.numel())).reshape(tuple(t.shape))).to(t.dtype)
                part = (t * weights).sum()
                total = total + (part.abs() if part.is_complex() else part)
        if not hasattr(total, "backward"):
            return []
        total.backward()
        return [x.grad for x in self.leaves]


def differences(call, layout="contiguous", grad=None):
    """What differs between the libraries, as lines; None where PyTorch refuses the call or autograd_nb lacks the function.

    Where PyTorch refuses a backward pass because something was overwritten, autograd_nb may find the right gradient: that of the same computation without a write."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = Seen(torch, call, layout, grad)
        except Exception:
            return None
        try:
            mine = Seen(ours, call, layout, grad)
        except Exception:  # what is refused, other tests look at
            return None
        if len(theirs.results) != len(mine.results):
            return None
        if layout == "negative step":
            return leaks(theirs, mine)
        same = all(a.shape == b.shape and str(a.dtype) == str(b.dtype) and near(a, b) for a, b in zip(theirs.results, mine.results))
        leave = theirs.overlapping()
        theirs.write(grad, leave)
        mine.write(grad, leave)
        lines = []
        for name in sorted(theirs.facts.keys() | mine.facts.keys()):
            a, b = theirs.facts.get(name), mine.facts.get(name)
            if isinstance(a, dict) and isinstance(b, dict):
                a, b = ({k: v for k, v in d.items() if k in o and v != o[k]} for d, o in ((a, b), (b, a)))
            if a != b:
                lines.append(f"{name}: {a} in PyTorch, here {b}")
        lines += [f"input {i} afterwards: other numbers" for i, (a, b) in enumerate(zip(theirs.inputs, mine.inputs)) if not (near(a, b) or grad and not same)]
        if grad and same and not lines:
            lines = gradients_differ(theirs, mine, call, layout, grad)
        return lines


def leaks(theirs, mine):
    "For a layout that PyTorch does not have, and may copy away from: what shares memory that does not in PyTorch, or changes its inputs."
    lines = [f"{name} shares memory with inputs {b['shares_with_inputs']}" for name, b in mine.facts.items() if not set(b["shares_with_inputs"]) <= set(theirs.facts[name]["shares_with_inputs"])]
    before = [numbers(x) for x in theirs.inputs]
    theirs.write(None)
    mine.write(None)
    lines += [f"write into {name}: {fact}" for name, fact in mine.facts.items() if isinstance(fact, str) and name not in theirs.facts]
    return lines + [f"input {i} afterwards: other numbers" for i, (a, b, c) in enumerate(zip(theirs.inputs, mine.inputs, before)) if np.array_equal(numbers(a), c, equal_nan=c.dtype.kind in "fc") and not near(a, b)]


def near(a, b):
    return a.shape == b.shape and np.allclose(numbers(a), numbers(b), 1e-3, 1e-4, equal_nan=True)


def gradients_differ(theirs, mine, call, layout, grad):
    "What differs in the gradients after the writes, if both libraries find some."
    if [r.requires_grad for r in theirs.results] != [r.requires_grad for r in mine.results]:
        return []  # of functions that PyTorch does not differentiate
    a, b = (Seen.asked(s.gradients) for s in (theirs, mine))
    if isinstance(a, str) and a.startswith("NotImplemented") or isinstance(a, str) and isinstance(b, str):
        return []
    if isinstance(b, str):
        return []
    if isinstance(a, str):
        if any(fact.get("view_of") for fact in mine.facts.values() if isinstance(fact, dict)):
            return [f"backward: {a} in PyTorch, here fine"]
        anew = Seen(ours, call, layout, grad)
        anew.replace()
        a = anew.gradients()
    return [f"gradient of input {i} differs after the writes" for i, (g, h) in enumerate(zip(a, b)) if (g is None) != (h is None) or g is not None and not near(g, h)]


# Calls, generated ------------------------------------------------------------------------------------------------

# Arguments after the first, which is a tensor: as arrays, numbers and names. `x` is the first.
TAILS = {
    "nothing": lambda x: (),
    "itself": lambda x: (x,),
    "twice itself": lambda x: (x, x),
    "a number": lambda x: (0.5,),
    "dimension 0": lambda x: (0,),
    "dimension -1": lambda x: (-1,),
    "1": lambda x: (1,),
    "2": lambda x: (2,),
    "two dimensions": lambda x: (0, 1),
    "a shape": lambda x: ((-1,),),
    "its shape": lambda x: (x.shape,),
    "a wider shape": lambda x: ((2, *x.shape),),
    "dimensions in a tuple": lambda x: ((0, 1),),
    "one dimension in a tuple": lambda x: ((0,),),
    "dimension, start, length": lambda x: (0, 0, 1),
    "dimension and places": lambda x: (0, np.zeros(1, np.int64)),
    "dimension and as many places": lambda x: (0, np.zeros(x.shape, np.int64)),
    "dimension, places and values": lambda x: (0, np.zeros(x.shape, np.int64), x),
    "dimension, rows and values": lambda x: (0, np.zeros(1, np.int64), x[:1] if x.ndim else x),
    "places": lambda x: (np.zeros(2, np.int64),),
    "one place": lambda x: (np.array(0),),
    "a mask": lambda x: (x > 0.5,),
    "a mask and a number": lambda x: (x > 0.5, 2.0),
    "a mask and itself": lambda x: (x > 0.5, x),
    "a width on each side": lambda x: ((1, 1),),
    "less on each side": lambda x: ((-1, 0),),
    "lowest and highest": lambda x: (0.2, 0.6),
    "a dtype it has": lambda x: (Named("float32"),),
    "another dtype": lambda x: (Named("float64"),),
    "a size": lambda x: (3, 1),
}
SHAPES = {"matrix": (3, 3), "vector": (4,), "size one": (1, 3), "number": (), "empty": (0, 3), "images": (2, 4, 2, 2)}

# Not functions of tensors, or functions that change more than their arguments.
OTHERS = re.compile(r"^(set_|save$|load$|compile$|manual_seed|seed$|share_memory_$|backward$|register_|retain_grad$|requires_grad_$|is_|has_|use_|get_|names$|tolist$|numpy$|item$|storage|untyped_storage|apply_$|map_?2?_?$|from_|as_subclass|typename|vmap$|cond$|while_loop|pin_memory|cuda|xpu|cpu$|to_|autocast|empty|resize_?|module_load|data_ptr|record_stream|set_$|initial_seed|vitals|where$)|mkldnn|sparse|quantize|cudnn|miopen|fbgemm|sym_|dlpack")
MODULES = ("", "nn.functional.", "linalg.", "special.", "fft.")


def names():
    "Every public function of a tensor that both libraries have, and every method: as paths."
    out = []
    for module in MODULES:
        there = found(torch, module[:-1]) if module else torch
        for name in sorted(dir(there)):
            if name.startswith("_") or OTHERS.search(name) or isinstance(getattr(there, name), type) or not callable(getattr(there, name)):
                continue
            try:
                if callable(found(ours, module + name)):
                    out.append(module + name)
            except AttributeError:
                pass
    return out + ["." + n for n in sorted(dir(torch.Tensor)) if not n.startswith("_") and not OTHERS.search(n) and callable(getattr(torch.Tensor, n)) and hasattr(ours.Tensor, n)]


def calls():
    "Every function with every tail, for every shape, whether it takes such arguments or not."
    for where in names():
        for shape in SHAPES.values():
            x = np.random.default_rng(0).uniform(0.1, 0.9, shape).astype(np.float32)
            for tail in TAILS.values():
                try:
                    rest = tail(x)
                except (IndexError, ValueError):
                    continue
                yield Call(where, (x, *rest))
            if not where.startswith("."):
                yield from (Call(where, ([x, x],)), Call(where, ([x, x], 0)), Call(where, ((x, x, x),)))
