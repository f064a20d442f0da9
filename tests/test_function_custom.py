"""Custom functions: what ctx offers, what is checked, and how they behave among hooks, modes, versions and second derivatives."""

import gc
import weakref

import numpy as np
import pytest
from _compare import assert_same_output, programs

import autograd_nb as torch
from autograd_nb.autograd import Function, grad
from autograd_nb.graph.engine import walk


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64, requires_grad=True)


def function(forward, backward, **members):
    "A Function from two plain functions."
    return type("Custom", (Function,), dict(forward=staticmethod(forward), backward=staticmethod(backward), **{k: staticmethod(v) for k, v in members.items()}))


def save_input(ctx, x):
    ctx.save_for_backward(x)
    return x**3


def cube_rule(ctx, g):
    (x,) = ctx.saved_tensors
    return g * 3 * x**2


Cube = function(save_input, cube_rule)


# The node ------------------------------------------------------------------------------------------------------


def test_node_is_named_after_the_class():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Twice.apply(leaf(1.0))
    assert y.grad_fn.name() == "TwiceBackward" and "grad_fn=<TwiceBackward>" in repr(y)
    assert repr(y.grad_fn).startswith("<torch.autograd.function.TwiceBackward object at ")
    assert not y.is_leaf and y.requires_grad and len(y.grad_fn.next_functions) == 1


def test_no_node_without_grad():
    assert Cube.apply(torch.ones(2)).grad_fn is None
    with torch.no_grad():
        assert Cube.apply(leaf(1.0)).grad_fn is None


def test_gradients_to_third_order():
    x = leaf(2.0)
    y = Cube.apply(x)
    for expected in (12.0, 12.0, 6.0):
        (y,) = grad(y, x, create_graph=True)
        assert y.item() == expected


def test_forward_runs_without_recording_and_backward_records_only_under_create_graph():
    seen = []

    def forward(ctx, x):
        seen.append(torch.is_grad_enabled())
        return x * 2

    def backward(ctx, g):
        seen.append((torch.is_grad_enabled(), g.requires_grad))
        return g * 2

    f, x = function(forward, backward), leaf(1.0)
    f.apply(x).sum().backward()
    start = torch.ones(1, dtype=torch.float64, requires_grad=True)
    grad(f.apply(x), x, start, create_graph=True)
    assert seen == [False, (False, False), False, (True, True)]


def test_attributes_and_needs_input_grad():
    seen = []

    def forward(ctx, a, k, b):
        ctx.k = k
        ctx.extra = {"any": "object"}
        return a * k + b

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        assert ctx.extra == {"any": "object"}
        return g * ctx.k, None, g

    f = function(forward, backward)
    a, b = leaf(2.0), torch.ones(1, dtype=torch.float64)
    f.apply(a, 3.0, b).sum().backward()
    assert a.grad.item() == 3 and b.grad is None and seen == [(True, False, False)]


def test_setup_context():
    class Cubed(Function):
        @staticmethod
        def forward(x, k=3):
            return x**k

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, k = inputs
            ctx.save_for_backward(x, output)
            ctx.k = k

        @staticmethod
        def backward(ctx, g):
            x, out = ctx.saved_tensors
            return g * ctx.k * out / x, None

    x = leaf(2.0)
    y = Cubed.apply(x, 3)
    (g,) = grad(y, x, create_graph=True)
    assert g.item() == 12 and grad(g, x)[0].item() == 12


# Outputs -------------------------------------------------------------------------------------------------------

Split = function(lambda ctx, x: (x * 2, x * 3), lambda ctx, a, b: a * 2 + b * 3)


def test_unused_outputs_arrive_as_zeros():
    x = leaf(1.0, 2.0)
    a, b = Split.apply(x)
    assert a.grad_fn is b.grad_fn and (a.output_nr, b.output_nr) == (0, 1)
    b.sum().backward()
    assert x.grad.numpy().tolist() == [3, 3]


def test_unused_outputs_as_none():
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    seen = []

    def backward(ctx, a, b):
        seen.append((a, b))
        return a * 2

    x = leaf(1.0)
    a, _ = function(forward, backward).apply(x)
    a.sum().backward()
    assert x.grad.item() == 2 and seen[0][1] is None


def test_non_differentiable_output():
    def forward(ctx, x):
        values, order = x.sort()
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return values, order

    f = function(forward, lambda ctx, g, _: torch.zeros_like(g).scatter(0, ctx.saved_tensors[0], g))
    x = leaf(3.0, 1.0, 2.0)
    values, order = f.apply(x)
    assert values.requires_grad and not order.requires_grad and order.grad_fn is None
    (values * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.numpy().tolist() == [3, 1, 2]


def test_integer_output_never_requires_grad():
    f = function(lambda ctx, x: (x * 1, x.argmax()), lambda ctx, g, _: g)
    _, i = f.apply(leaf(1.0, 2.0))
    assert not i.requires_grad and i.item() == 1


def test_input_returned_as_it_is():
    x = leaf(1.0)
    y = function(lambda ctx, x: x, lambda ctx, g: g * 5).apply(x)
    assert y is not x and x.is_leaf and y.grad_fn is not None
    y.sum().backward()
    assert x.grad.item() == 5


def test_view_of_an_input_as_output():
    x = leaf(1.0, 2.0)
    y = function(lambda ctx, x: x.view(2, 1), lambda ctx, g: g.view(2) * 5).apply(x)
    y.sum().backward()
    assert y.shape == (2, 1) and x.grad.numpy().tolist() == [5, 5]


def test_non_tensor_outputs_pass_through():
    y, text, nothing = function(lambda ctx, x: (x * 2, "text", None), lambda ctx, g, *_: g * 2).apply(leaf(1.0))
    assert text == "text" and nothing is None and y.requires_grad


def test_in_place_function():
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    f = function(forward, lambda ctx, g: g * 2)
    a = leaf(1.0)
    b = a * 1
    c = f.apply(b)
    assert c is b and b.item() == 2 and b.grad_fn.name() == "CustomBackward" and b._version > 0
    c.sum().backward()
    assert a.grad.item() == 2
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        f.apply(a)


# Gradients that are wrong --------------------------------------------------------------------------------------

# what backward returns for two tensor inputs -> the words of the error
WRONG_RETURNS = {
    "too few": (lambda g: g, RuntimeError, r"returned an incorrect number of gradients \(expected 2, got 1\)"),
    "too many": (lambda g: (g, g, g), RuntimeError, r"returned an incorrect number of gradients \(expected 2, got 3\)"),
    "wrong shape": (lambda g: (torch.ones(5), g), RuntimeError, r"returned an invalid gradient at index 0 - got \[5\] but expected shape compatible with \[2\]"),
    "a number": (lambda g: (1.0, g), (RuntimeError, TypeError), r"expected Variable or None \(got float\)"),
    "a NumPy array": (lambda g: (np.ones(2), g), (RuntimeError, TypeError), r"expected Variable or None \(got numpy.ndarray|ndarray\)"),
}


@pytest.mark.parametrize("returned, error, words", WRONG_RETURNS.values(), ids=WRONG_RETURNS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_wrong_returns(returned, error, words, create_graph):
    f = function(lambda ctx, a, b: a * b, lambda ctx, g: returned(g))
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with pytest.raises(error, match=words):
        f.apply(a, b).sum().backward(create_graph=create_graph)
    assert a.grad is None and b.grad is None and torch.is_grad_enabled()


def test_trailing_none_is_forgiven_and_other_gradients_for_non_tensors_are_not():
    x = leaf(1.0)
    function(lambda ctx, x: x * 2, lambda ctx, g: (g * 2, None, None)).apply(x).sum().backward()
    assert x.grad.item() == 2
    with pytest.raises(RuntimeError, match="returned a gradient different than None at position 2"):
        function(lambda ctx, x, k: x * k, lambda ctx, g: (g, g)).apply(x, 2.0).sum().backward()


def test_broadcast_gradients_are_reduced():
    a, b = leaf(1.0, 2.0), leaf(3.0)
    function(lambda ctx, a, b: a * b, lambda ctx, g: (g, g)).apply(a, b).sum().backward()
    assert b.grad.numpy().tolist() == [2]


def test_gradient_dtype_is_that_of_the_input():
    x = torch.ones(2, requires_grad=True)
    function(lambda ctx, x: x * 2, lambda ctx, g: g.double()).apply(x).sum().backward()
    assert x.grad.dtype == torch.float32


def test_none_means_no_gradient():
    a, b = leaf(1.0), leaf(2.0)
    y = function(lambda ctx, a, b: a + b, lambda ctx, g: (None, g)).apply(a * 1, b)
    y.sum().backward()
    assert a.grad is None and b.grad.item() == 1


def test_save_for_backward_wants_tensors():
    with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument"):
        function(lambda ctx, x: ctx.save_for_backward(3), None).apply(leaf(1.0))


def test_missing_methods():
    class Empty(Function):
        pass

    class ForwardOnly(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        Empty.apply(leaf(1.0))
    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp method"):
        ForwardOnly.apply(leaf(1.0)).sum().backward()


# Saved values --------------------------------------------------------------------------------------------------


def test_saved_values_are_freed_and_refused_the_second_time():
    y = Cube.apply(leaf(1.0)).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_overwritten_saved_input_is_detected():
    x = leaf(1.0)
    h = x * 2
    y = Cube.apply(h)
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_overwritten_saved_output_is_detected():
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    y = function(forward, lambda ctx, g: g * ctx.saved_tensors[0]).apply(leaf(1.0))
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_tensors_have_their_history():
    seen = []

    def backward(ctx, g):
        seen.extend(ctx.saved_tensors)
        return g

    x = leaf(1.0)
    h = x * 2
    function(save_input, backward).apply(h).sum().backward()
    assert seen[0].grad_fn is h.grad_fn
    function(save_input, backward).apply(x).sum().backward()
    assert seen[1].is_leaf and seen[1].requires_grad


def test_no_cycles_through_saved_values():
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(x, out)
        return out

    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = function(forward, lambda ctx, g: g).apply(x * 1)
        watched = [weakref.ref(y), weakref.ref(y.grad_fn), weakref.ref(y._array)]
        del y
        assert [w() for w in watched] == [None] * 3
    finally:
        gc.enable()


# Among others --------------------------------------------------------------------------------------------------


def test_once_differentiable():
    from autograd_nb.autograd.function import once_differentiable

    f = function(save_input, once_differentiable(cube_rule))
    x = leaf(2.0)
    f.apply(x).sum().backward()
    assert x.grad.item() == 12
    start = torch.ones(1, dtype=torch.float64, requires_grad=True)
    (g,) = grad(f.apply(x), x, start, create_graph=True)
    assert g.item() == 12
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with @once_differentiable"):
        g.sum().backward()


def test_function_in_walk_with_hooks_and_grad_mode():
    x = leaf(2.0)
    y = Cube.apply(x)
    y.register_hook(lambda g: g * 10)
    y.grad_fn.register_hook(lambda grads_in, grads_out: (grads_in[0] + 1,))
    steps = list(walk(y.sum()))
    assert x.grad.item() == 121 and "CustomBackward" in [s.node.name() for s in steps]


def test_backward_may_change_its_incoming_gradient_only_for_itself():
    "A backward that writes into `g` must not change another branch's gradient."
    f = function(lambda ctx, x: x * 1, lambda ctx, g: g.clone().mul_(5))
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (f.apply(x) + w).backward(torch.ones(2, dtype=torch.float64))
    assert x.grad.numpy().tolist() == [5, 5] and w.grad.numpy().tolist() == [1, 1]


def test_apply_of_nested_functions():
    Outer = function(lambda ctx, x: Cube.apply(x) * 2, lambda ctx, g: g)
    x = leaf(1.0)
    Outer.apply(x).sum().backward()
    assert x.grad.item() == 1


# ctx -------------------------------------------------------------------------------------------------------------


def test_attributes_may_have_any_name():
    names = [n for n in dir(type(Cube.apply(leaf(1.0)).grad_fn)) if not n.startswith("__")] + ["anything"]
    wishes = ("to_save", "dirty_tensors", "saved_for_forward", "non_differentiable", "materialize_grads")  # what forward may write there itself
    names = [n for n in names if n not in ("saved_tensors", "save_for_backward", "needs_input_grad", "_materialize_non_diff_grads", *wishes)]

    def forward(ctx, x):
        for name in names:
            setattr(ctx, name, "mine " + name)
        ctx.save_for_backward(x)
        return x**2

    def backward(ctx, g):
        assert {name: getattr(ctx, name) for name in names} == {name: "mine " + name for name in names}
        (x,) = ctx.saved_tensors
        return 2 * x * g

    x = leaf(1.0, 2.0)
    y = function(forward, backward).apply(x)
    assert y.grad_fn.anything == "mine anything" and y.grad_fn.name() == "CustomBackward"
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_ctx_is_the_same_object_while_someone_holds_it():
    seen = []

    def forward(ctx, x):
        seen.append(ctx)
        assert isinstance(ctx, torch.autograd.function.FunctionCtx) and isinstance(ctx, torch.autograd.function.BackwardCFunction)
        return x * 2

    def backward(ctx, g):
        seen.append(ctx)
        return g * 2

    y = function(forward, backward).apply(leaf(1.0))
    y.sum().backward()
    assert seen[0] is seen[1]


def test_saved_inputs_come_back_as_the_objects_they_are():
    x = leaf(1.0)
    p = torch.nn.Parameter(torch.ones(1))
    seen = []

    def backward(ctx, g):
        seen.extend(ctx.saved_tensors)
        return g, g

    def forward(ctx, x, p):
        ctx.save_for_backward(x, p)
        return x * p

    function(forward, backward).apply(x, p).sum().backward()
    assert seen[0] is x and seen[1] is p


# Leaks -----------------------------------------------------------------------------------------------------------


def in_place(ctx, x):
    ctx.mark_dirty(x)
    ctx.save_for_backward(x)
    return x.mul_(2)


def of_a_view(ctx, x):
    return x[:1]


LEAKS = {
    "saves input and output": (lambda ctx, x: (lambda y: (ctx.save_for_backward(x, y), y)[1])(x * 2), lambda y: y.sum().backward()),
    "saves an intermediate": (lambda ctx, x: (lambda t: (ctx.save_for_backward(t), t * 2)[1])(x.sin()), lambda y: y.sum().backward()),
    "never run": (lambda ctx, x: x * 2, lambda y: None),
    "fails": (lambda ctx, x: x * 2, lambda y: pytest.raises(RuntimeError, y.backward, torch.ones(7))),
    "second order": (save_input, lambda y: grad(y.sum(), y, create_graph=True)),
    "in place": (in_place, lambda y: y.sum().backward()),
    "a view": (of_a_view, lambda y: y.sum().backward()),
    "hooked": (lambda ctx, x: x * 2, lambda y: (y.register_hook(lambda g: g * 2), y.retain_grad(), y.sum().backward())),
    "several outputs": (lambda ctx, x: x * 2, lambda y: y.grad_fn.saved_tensors),
}


@pytest.mark.parametrize("forward, use", LEAKS.values(), ids=LEAKS)
def test_nothing_is_kept_alive(forward, use):
    class Thing:
        pass

    watched = []

    def remembering(ctx, x):
        ctx.thing = Thing()
        watched.append(weakref.ref(ctx.thing))
        return forward(ctx, x)

    f = function(remembering, lambda ctx, g: g.sum() * torch.ones(2, dtype=torch.float64))
    gc.collect()
    gc.disable()
    try:
        y = f.apply(leaf(1.0, 2.0).clone())
        watched += [weakref.ref(y), weakref.ref(y.grad_fn)]
        use(y)
        del y
        assert [w() for w in watched] == [None] * len(watched)
    finally:
        gc.enable()


class Square(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * t


@pytest.mark.parametrize("use", [
    lambda x: torch.func.vmap(Square.apply)(x),
    lambda x: torch.func.vmap(torch.func.grad(lambda v: Square.apply(v).sum()))(x),
    lambda x: torch.func.jvp(Square.apply, (x,), (torch.ones_like(x),))[1],
    lambda x: torch.func.jacrev(Square.apply)(x[0]),
    lambda x: torch.func.hessian(lambda v: Square.apply(v).sum())(x[0]),
], ids=["vmap", "vmap grad", "jvp", "jacrev", "hessian"])
def test_transforms_of_functions_keep_nothing_alive(use):
    use(torch.ones(3, 2))
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(3, 2)
        out = use(x)
        watched = [weakref.ref(x), weakref.ref(out)]
        del x, out
        assert [w() for w in watched] == [None, None]
    finally:
        gc.enable()


# The same programs under PyTorch ---------------------------------------------------------------------------------

PROGRAMS = programs("functions")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_custom_functions_do_what_pytorch_does(program):
    assert_same_output(program)


def test_nothing_for_several_leaves():
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, z):
            return x + y + z

        @staticmethod
        def backward(ctx, g):
            return None, None, None

    x, y, z = (torch.ones(2, requires_grad=True) for _ in range(3))
    Nothing.apply(x, y, z).sum().backward()
    assert x.grad is y.grad is z.grad is None


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "call",
    """
f.apply(a, n=b)
f.apply(a.detach(), n=b)
f.apply(a, 2.0, y=b)
f.apply(y=a, x=b, n=a)
f.apply(x=a, n=2.0)
f.apply(a)
f.apply(a, y=b)
f.apply(a, 2.0, n=b)
f.apply(n=b)
f.apply(a, q=b)
f.apply(a, k=b)
""".strip().splitlines(),
)
def test_arguments_given_by_name_have_gradients_as_in_pytorch(call):
    import torch as theirs

    found = []
    for lib in (theirs, torch):

        class Product(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, n=1.0, y=None, *, k=None):
                ctx.save_for_backward(x)
                return x * n if y is None else x * n + y

            @staticmethod
            def backward(ctx, g):
                needed = ctx.needs_input_grad
                return tuple(g * (i + 2) if n else None for i, n in enumerate(needed))

        a, b = (lib.tensor([v, 1.0], requires_grad=True) for v in (3.0, 5.0))
        try:
            y = eval(call, dict(f=Product, a=a, b=b))
            gradients = lib.autograd.grad(y.sum(), (a, b), allow_unused=True)
            found.append((y.tolist(), [g if g is None else g.tolist() for g in gradients]))
        except TypeError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("separate", [False, True], ids=["with ctx", "with setup_context"])
def test_functionalize_refuses_custom_functions_as_pytorch_does(separate):
    import torch as theirs

    found = []
    for lib in (theirs, torch):

        class Doubled(lib.autograd.Function):
            backward = staticmethod(lambda ctx, g: g * 2)
            if separate:
                forward = staticmethod(lambda x: x * 2)
                setup_context = staticmethod(lambda ctx, inputs, output: None)
            else:
                forward = staticmethod(lambda ctx, x: x * 2)

        with pytest.raises(RuntimeError) as caught:
            lib.func.functionalize(Doubled.apply)(lib.ones(2))
        found.append(str(caught.value)[:60])
        assert lib.func.functionalize(lambda v: v * 2)(lib.ones(2)).tolist() == [2.0, 2.0]
        assert Doubled.apply(lib.ones(2)).tolist() == [2.0, 2.0]
    assert found[0] == found[1]
