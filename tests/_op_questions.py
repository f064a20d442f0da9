"""Questions that PyTorch's own tests ask of every operation: what it does with `out=`, in place, in other layouts of memory, in forward mode and under `vmap`.

A question is a function of a library, one of its functions, and arguments; what it gives (or raises) under PyTorch and under our library is compared."""

import functools
import warnings

import _op_samples
import numpy as np

# ---- answers


def told(function):
    "What a function gives, and the first words of its warnings."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = function()
    return made, sorted({(w.category.__name__, str(w.message)[:24]) for w in caught if w.category is UserWarning})


def answer(question, lib, function, args, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return question(lib, function, args, kwargs)
        except Exception as error:
            return error


# ---- the parts of a call


def outputs(lib, made):
    return _op_samples.leaves(made, lib.Tensor)


def replaced(lib, value, change):
    "Nested arguments with every tensor changed; the same tensor becomes the same."
    seen = {}

    def walk(v):
        if isinstance(v, lib.Tensor):
            if id(v) not in seen:
                seen[id(v)] = change(v), v
            return seen[id(v)][0]
        if type(v) in (list, tuple):
            return type(v)(map(walk, v))
        if isinstance(v, dict):
            return {k: walk(w) for k, w in v.items()}
        return v

    return walk(value)


def numbers_like(lib, tensor, seed):
    return lib.from_numpy(np.asarray(_op_samples.weights(tensor, seed))).to(tensor.dtype)


def as_function(lib, function, args, kwargs, wanted=lambda t: t.requires_grad):
    "A call as a function of some of its tensors alone, and these tensors; it gives a tuple of its results in floating point."
    chosen = []
    for t in _op_samples.leaves([args, kwargs], lib.Tensor):
        if wanted(t) and not any(t is c for c in chosen):
            chosen.append(t)
    places = {id(t): k for k, t in enumerate(chosen)}
    fixed = {}

    def called(*given):
        def take(t):
            return given[places[id(t)]] if id(t) in places else fixed.setdefault(id(t), t.detach())

        made = function(*replaced(lib, args, take), **replaced(lib, kwargs, take))
        return tuple(t for t in outputs(lib, made) if t.is_floating_point() or t.is_complex())

    return called, [t.detach().clone() for t in chosen]


def as_number(lib, called):
    def number(*given):
        made = called(*given)
        total = [(t * numbers_like(lib, t, k)).sum() for k, t in enumerate(made)]
        return sum(t.real if t.is_complex() else t for t in total)

    return number


# ---- out=


def empty_of(lib, t, shape=None, dtype=None):
    return lib.full(tuple(t.shape) if shape is None else shape, 7, dtype=t.dtype if dtype is None else dtype)


def spaced(lib, t):
    return lib.full((*t.shape, 2), 7, dtype=t.dtype)[..., 0]


def turned(lib, t):
    return lib.full(tuple(t.shape)[::-1], 7, dtype=t.dtype).permute(tuple(range(t.ndim))[::-1])


OUTS = {
    "of the right size": empty_of,
    "empty": lambda lib, t: lib.empty(0, dtype=t.dtype),
    "with gaps": spaced,
    "turned": turned,
    "of a wrong size": lambda lib, t: empty_of(lib, t, tuple(n + 1 for n in t.shape) or (2,)),
    "with a dimension more": lambda lib, t: empty_of(lib, t, (1, *t.shape)),
    "wrong size with gaps": lambda lib, t: spaced(lib, empty_of(lib, t, tuple(n + 1 for n in t.shape) or (2,))),
    "whole": lambda lib, t: empty_of(lib, t, dtype=lib.int64),
    "single": lambda lib, t: empty_of(lib, t, dtype=lib.float32),
    "complex": lambda lib, t: empty_of(lib, t, dtype=lib.complex128),
    "truth": lambda lib, t: empty_of(lib, t, dtype=lib.bool),
    "recorded": lambda lib, t: empty_of(lib, t).requires_grad_(t.is_floating_point() or t.is_complex()),
}


KEPT = "of the right size", "with gaps", "turned"  # no other memory is needed


def into(how, lib, function, args, kwargs):
    args, kwargs = (replaced(lib, v, lambda t: t.detach()) for v in (args, kwargs))
    made = function(*args, **kwargs)
    if not outputs(lib, made):
        return None
    outs = [OUTS[how](lib, t) for t in outputs(lib, made)]
    one = isinstance(made, lib.Tensor)
    given, warned = told(lambda: function(*args, **kwargs, out=outs[0] if one else tuple(outs)))
    kept = [t.stride() for t in outs if t.numel() > 1] if how in KEPT else None
    return outs, kept, [a is b for a, b in zip(outputs(lib, given), outs)], [w for w in warned if "resized" in w[1] or "output" in w[1]]


def into_an_input(lib, function, args, kwargs):
    args, kwargs = (replaced(lib, v, lambda t: t.detach()) for v in (args, kwargs))
    made = function(*args, **kwargs)
    if not isinstance(made, lib.Tensor) or not isinstance(args[0], lib.Tensor) or made.shape != args[0].shape or made.dtype != args[0].dtype:
        return None
    return function(*args, **kwargs, out=args[0])


def into_with_history(lib, function, args, kwargs):
    made = function(*args, **kwargs)
    if not outputs(lib, made) or not any(t.requires_grad for t in _op_samples.leaves([args, kwargs], lib.Tensor)):
        return None
    outs = [empty_of(lib, t) for t in outputs(lib, made)]
    return function(*args, **kwargs, out=outs[0] if isinstance(made, lib.Tensor) else tuple(outs))


# ---- in place


def spread_out(lib, t):
    return lib.stack([t, t], -1)[..., 0]


def repeated(lib, t):
    return t[:1].expand(tuple(t.shape)) if t.ndim else t.expand(2)


SELVES = {
    "itself": lambda lib, t: t.clone(),
    "with gaps": spread_out,
    "turned": lambda lib, t: t.permute(tuple(range(t.ndim))[::-1]).contiguous().permute(tuple(range(t.ndim))[::-1]),
    "repeated": repeated,
    "of one element": lambda lib, t: t.reshape(-1)[:1].clone() if t.numel() else t,
    "one number": lambda lib, t: t.reshape(-1)[0].clone() if t.numel() else t,
    "a part": lambda lib, t: lib.cat([t, t])[: t.shape[0]] if t.ndim else t.expand(2)[0],
    "a leaf": lambda lib, t: t.clone().requires_grad_(t.is_floating_point() or t.is_complex()),
    "a view of a leaf": lambda lib, t: t.clone().requires_grad_(t.is_floating_point() or t.is_complex()).view(t.shape),
}


def in_place(how, lib, method, args, kwargs):
    args, kwargs = (replaced(lib, v, lambda t: t.detach()) for v in (args, kwargs))
    first = SELVES[how](lib, args[0])
    stride, version = first.stride(), first._version
    made = method(first, *args[1:], **kwargs)
    return made, made is first, stride == first.stride(), first._version > version


def method_form(lib, method, args, kwargs):
    return method(*args, **kwargs)


# ---- layouts of memory


LAYOUTS = {
    "as it is": lambda lib, t: t,
    "turned": SELVES["turned"],
    "with gaps": spread_out,
    "expanded": lambda lib, t: t[:1].expand(tuple(t.shape)) if t.ndim and t.shape[0] else t,
    "channels last": lambda lib, t: t.contiguous(memory_format=lib.channels_last) if t.ndim == 4 else t.contiguous(memory_format=lib.channels_last_3d) if t.ndim == 5 else t,
    "two exchanged": lambda lib, t: t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 2 else t,
    "backwards": lambda lib, t: t.movedim(0, -1).contiguous().movedim(-1, 0) if t.ndim > 2 else t,
}


def laid_out(how, lib, function, args, kwargs):
    args, kwargs = (replaced(lib, v, lambda t: LAYOUTS[how](lib, t.detach())) for v in (args, kwargs))
    return outputs(lib, function(*args, **kwargs))


def left_alone(how, lib, function, args, kwargs):
    "Whether each input keeps its numbers, or is told to have been written to."
    args, kwargs = (replaced(lib, v, lambda t: LAYOUTS[how](lib, t.detach())) for v in (args, kwargs))
    inputs = _op_samples.leaves([args, kwargs], lib.Tensor)
    before = [(_op_samples.numbers(t).copy(), t._version) for t in inputs]
    function(*args, **kwargs)
    return [t._version > version or np.array_equal(_op_samples.numbers(t), a, equal_nan=a.dtype.kind in "fc") for t, (a, version) in zip(inputs, before)]


def lazily(lib, function, args, kwargs, negative=False):
    "Inputs that are conjugate, or negative, in name only."

    def change(t):
        if not (t.is_complex() if not negative else t.dtype in (lib.float64, lib.float32)):
            return t
        return lib.complex(lib.zeros_like(t), -t).conj().imag if negative else t.conj().clone().conj() if not t.is_conj() else t

    args, kwargs = (replaced(lib, v, lambda t: change(t.detach())) for v in (args, kwargs))
    made = outputs(lib, function(*args, **kwargs))
    return made, [t.is_conj() for t in made]


def lazily_negative(lib, function, args, kwargs):
    return lazily(lib, function, args, kwargs, True)


def shared(lib, function, args, kwargs):
    "Which results are views, of what, and whose memory they share."
    inputs = _op_samples.leaves([args, kwargs], lib.Tensor)
    made = outputs(lib, function(*args, **kwargs))
    where = [[t.untyped_storage().data_ptr() == u.untyped_storage().data_ptr() and t.numel() > 0 for u in inputs] for t in made]
    bases = [[t._base is u for u in inputs] if t._is_view() else None for t in made]
    return where, bases, [t.storage_offset() for t in made if t._is_view()], [t.is_leaf for t in made], [[t is u for u in inputs] for t in made]


# ---- forward mode and vmap


def forward(lib, function, args, kwargs):
    called, given = as_function(lib, function, args, kwargs)
    if not given:
        return None
    return lib.func.jvp(called, tuple(given), tuple(numbers_like(lib, t, k) for k, t in enumerate(given)))


def forward_in_place(lib, method, args, kwargs):
    def function(first, *rest, **named):
        return method(first.clone(), *rest, **named)

    return forward(lib, function, args, kwargs)


def forward_over_reverse(lib, function, args, kwargs):
    called, given = as_function(lib, function, args, kwargs)
    if not given or not any(t.requires_grad for t in outputs(lib, function(*args, **kwargs))):
        return None
    slope = lib.func.grad(as_number(lib, called), argnums=tuple(range(len(given))))
    return lib.func.jvp(slope, tuple(given), tuple(numbers_like(lib, t, k) for k, t in enumerate(given)))


def reverse_over_forward(lib, function, args, kwargs):
    called, given = as_function(lib, function, args, kwargs)
    if not given or not any(t.requires_grad for t in outputs(lib, function(*args, **kwargs))):
        return None
    along = tuple(numbers_like(lib, t, k) for k, t in enumerate(given))
    return lib.func.grad(as_number(lib, lambda *given: lib.func.jvp(called, given, along)[1]), argnums=tuple(range(len(given))))(*given)


def examples(lib, t, where):
    if t.dtype is lib.bool or not (t.is_floating_point() or t.is_complex()):
        return lib.stack([t, t, t], where)
    return lib.stack([t, t + 0.01, t - 0.01], where)


def batched(where, number, lib, function, args, kwargs, nested=False):
    "`number`: which tensor alone has several examples (None: all)."

    def everything(*a, **k):
        made = outputs(lib, function(*a, **k))
        return made

    inputs = []
    for t in _op_samples.leaves([args, kwargs], lib.Tensor):
        if not any(t is u for u in inputs):
            inputs.append(t)
    if not inputs or number is not None and (number >= len(inputs) or len(inputs) == 1 and number == 0):
        return None
    places = {id(t): k for k, t in enumerate(inputs)}

    def called(*given):
        def take(t):
            return given[places[id(t)]]

        return tuple(everything(*replaced(lib, args, take), **replaced(lib, kwargs, take)))

    if number is not None and number < 0:
        number += len(inputs)
    has = [number in (None, k) for k in range(len(inputs))]
    at = [where if t.ndim or where == -1 else 0 for t in inputs]
    given = [examples(lib, t.detach(), d) if h else t.detach() for t, h, d in zip(inputs, has, at)]
    dims = tuple(d if h else None for h, d in zip(has, at))
    run = lib.func.vmap(called, in_dims=dims)
    if nested:
        given = [lib.stack([t, t]) if h else t for t, h in zip(given, has)]
        run = lib.func.vmap(run, in_dims=tuple(0 if h else None for h in has))
    return run(*given)


def batched_slope(lib, function, args, kwargs):
    called, given = as_function(lib, function, args, kwargs)
    if not given or not any(t.requires_grad for t in outputs(lib, function(*args, **kwargs))):
        return None
    slope = lib.func.grad(as_number(lib, called), argnums=tuple(range(len(given))))
    return lib.func.vmap(slope)(*(examples(lib, t, 0) for t in given))


def batched_forward(lib, function, args, kwargs):
    called, given = as_function(lib, function, args, kwargs)
    if not given:
        return None

    def along(given, tangents):
        return lib.func.jvp(called, given, tangents)

    stacks = tuple(examples(lib, t, 0) for t in given)
    return lib.func.vmap(along)(stacks, tuple(numbers_like(lib, t, k) for k, t in enumerate(stacks)))


def batched_tangents(lib, function, args, kwargs):
    "Several tangents of one point."
    called, given = as_function(lib, function, args, kwargs)
    if not given:
        return None
    stacks = tuple(numbers_like(lib, examples(lib, t, 0), k) for k, t in enumerate(given))
    return lib.func.vmap(lambda *along: lib.func.jvp(called, tuple(given), along))(*stacks)


QUESTIONS = {
    **{f"out {how}": functools.partial(into, how) for how in OUTS},
    "out is an input": into_an_input,
    "out of recorded inputs": into_with_history,
    **{f"in place on {how}": functools.partial(in_place, how) for how in SELVES},
    "method": method_form,
    **{f"layout {how}": functools.partial(laid_out, how) for how in LAYOUTS},
    **{f"left alone {how}": functools.partial(left_alone, how) for how in LAYOUTS},
    "conjugate in name only": lazily,
    "negative in name only": lazily_negative,
    "views": shared,
    "forward": forward,
    "forward in place": forward_in_place,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "vmap of all at 0": functools.partial(batched, 0, None),
    "vmap of all at 1": functools.partial(batched, 1, None),
    "vmap of all at -1": functools.partial(batched, -1, None),
    "vmap of the first": functools.partial(batched, 0, 0),
    "vmap of the last at -1": functools.partial(batched, -1, -1),
    "vmap of the second at 1": functools.partial(batched, 1, 1),
    "vmap in vmap": functools.partial(batched, 1, None, nested=True),
    "vmap of grad": batched_slope,
    "vmap of jvp": batched_forward,
    "vmap of tangents": batched_tangents,
}
