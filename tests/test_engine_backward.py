"""The backward pass: sums over paths, what is kept and freed, who owns a gradient, hooks, re-entry, and that failures leave no half state."""

import linecache

import numpy as np
import pytest
from _compare import assert_same_output, programs

import autograd_nb as torch
from autograd_nb.autograd import grad
from autograd_nb.graph.engine import walk
from autograd_nb.graph.node import AccumulateGrad


def leaf(*values, dtype=torch.float64):
    return torch.tensor(list(values), dtype=dtype, requires_grad=True)


def number(value):
    return torch.tensor(float(value), dtype=torch.float64, requires_grad=True)


def values(t):
    return t.detach().numpy().tolist()


def is_leaf(node):
    return isinstance(node, AccumulateGrad)


# Sums over paths -----------------------------------------------------------------------------------------------

# name -> (function of x, its derivative)
SHAPES_OF_GRAPHS = {
    "chain": (lambda x: x.sin().exp(), lambda x: np.cos(x) * np.exp(np.sin(x))),
    "leaf itself": (lambda x: x, lambda x: 1),
    "same input twice": (lambda x: x * x, lambda x: 2 * x),
    "sum with itself": (lambda x: x + x, lambda x: 2),
    "diamond": (lambda x: (lambda h: h.sin() * h.cos())(x * 2), lambda x: 2 * np.cos(4 * x)),
    "stacked diamonds": (lambda x: (lambda h: (lambda k: k * k)(h + h * x))(x + x), lambda x: 2 * (2 * x + 2 * x**2) * (2 + 4 * x)),
    "short and long way": (lambda x: x + (x * 2).exp().log().neg().neg(), lambda x: 3),
    "long fan": (lambda x: sum((x * k for k in range(50)), x * 0), lambda x: sum(range(50))),
    "result used as input of itself's use": (lambda x: (lambda y: y * x + y)(x * x), lambda x: 3 * x**2 + 2 * x),
}


@pytest.mark.parametrize("function, derivative", SHAPES_OF_GRAPHS.values(), ids=SHAPES_OF_GRAPHS)
def test_sum_over_all_paths(function, derivative):
    x = number(0.7)
    function(x).backward()
    assert x.grad.item() == pytest.approx(derivative(0.7))
    function(x).backward()
    assert x.grad.item() == pytest.approx(2 * derivative(0.7)), "a second pass adds"
    assert grad(function(x), x)[0].item() == pytest.approx(derivative(0.7))
    assert grad(function(x), x, create_graph=True)[0].item() == pytest.approx(derivative(0.7))


# What happens within a graph of numbers, whose gradients need no arrays on the way -------------------------------

def hooked(seen):
    def with_hook(h):
        h.register_hook(lambda g: (seen.append(g), g * 1)[1])
        return h

    return with_hook


def retained(seen):
    def with_gradient(h):
        h.retain_grad()
        seen.append(lambda: h.grad)
        return h

    return with_gradient


def on_node(seen):
    def with_hook(h):
        h.grad_fn.register_hook(lambda grads, outputs: seen.extend([*grads, *outputs]))
        return h

    return with_hook


def packed(seen):
    def with_packed(h):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            return h * 1.5

    return with_packed


WITHIN_NUMBERS = {
    "nothing": lambda seen: lambda h: h,
    "hook": hooked,
    "retained gradient": retained,
    "hook of the node": on_node,
    "packed values": packed,
    "a vector": lambda seen: lambda h: (h * torch.ones(3, dtype=h.dtype)).sum() / 3 + h.expand(2).prod(),
    "shared by several": lambda seen: lambda h: h.sin() * h + h.exp() - h / (h + 2),
    "another precision": lambda seen: lambda h: (h.to(torch.float32).exp() * 2).to(h.dtype),
    "several outputs": lambda seen: lambda h: sum(t.squeeze() for t in torch.stack([h, h * h]).unbind()),
    "activations": lambda seen: lambda h: torch.nn.functional.softplus(h).sigmoid() * h.relu() + torch.nn.functional.gelu(h),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("within", WITHIN_NUMBERS)
def test_graphs_of_numbers_have_the_gradients_of_vectors_of_one(within, dtype):
    def gradients(shape):
        seen = []
        x, y = (torch.full(shape, v, dtype=dtype, requires_grad=True) for v in (0.7, 1.3))
        h = WITHIN_NUMBERS[within](seen)((x * y).tanh().squeeze())
        (h * h.exp() + x.squeeze() * y.squeeze()).squeeze().backward()
        seen = [s() if callable(s) else s for s in seen]
        assert all(isinstance(s, torch.Tensor) and s.dtype is dtype for s in [*seen, x.grad, y.grad])
        x.grad.add_(1)  # it can be written to, and is nobody else's
        return [v.item() for v in (x.grad, y.grad, *seen)]

    assert gradients(()) == pytest.approx(gradients((1,)), rel=1e-6)


def test_exponentially_many_paths_take_linear_time():
    x = number(1)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60


def test_several_roots_one_above_the_other():
    x = number(3)
    y = x * x
    z = y * x
    torch.autograd.backward([z, y, x])
    assert x.grad.item() == 27 + 6 + 1


def test_same_root_twice():
    x = number(3)
    y = x * x
    torch.autograd.backward([y, y])
    assert x.grad.item() == 12


def test_order_is_latest_first():
    x = number(2)
    a = x * 2
    b = x * 3
    c = a + b
    d = c * a
    order = [step.node for step in walk(d) if not is_leaf(step.node)]
    assert order == [d.grad_fn, c.grad_fn, b.grad_fn, a.grad_fn]
    assert [n.seq for n in order] == sorted((n.seq for n in order), reverse=True)


# What is freed -------------------------------------------------------------------------------------------------

SECOND_TIME = "Trying to backward through the graph a second time"


def test_second_backward_is_refused():
    x = leaf(1.0, 2.0)
    y = (x.exp() * x).sum()
    y.backward()
    before = values(x.grad)
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        y.backward()
    assert values(x.grad) == before, "a refused pass changes no gradient"


def test_retain_graph():
    x = leaf(1.0, 2.0)
    y = x.exp().sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    y.backward()
    assert x.grad.numpy() == pytest.approx(4 * np.exp([1.0, 2.0]))
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        y.backward()


def test_create_graph_retains_unless_told_otherwise():
    x = leaf(1.0)
    y = x.exp().sum()
    grad(y, x, create_graph=True)
    grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        grad(y, x)


def test_only_the_part_that_ran_is_freed():
    x = leaf(1.0)
    w = leaf(2.0)
    a, b = x.exp(), w.exp()
    y = a * b
    grad(y.sum(), x, retain_graph=False)
    assert a.grad_fn.freed and not b.grad_fn.freed
    b.sum().backward()
    assert w.grad.item() == pytest.approx(np.exp(2))


def test_saved_of_a_freed_node():
    x = leaf(1.0)
    y = x.exp()
    node = y.grad_fn
    assert not node.freed and [name for name, _ in node.saved] == ["out"]
    y.sum().backward()
    assert node.freed and node.saved == []
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        node._saved_result


def test_shared_part_freed_by_one_root():
    x = leaf(2.0)
    h = x * x
    a, b = (h * 3).sum(), (h * 4).sum()
    a.backward()
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        b.backward()


# Who owns a gradient -------------------------------------------------------------------------------------------


def shares(a, b):
    return np.shares_memory(a.detach().numpy(), b.detach().numpy())


# name -> result of two leaves
HAND_THROUGH = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - (-b),
    "add of views": lambda a, b: a.view(3) + b.reshape(3),
    "cat": lambda a, b: torch.cat([a, b])[:3] + torch.cat([a, b])[3:],
    "stack": lambda a, b: torch.stack([a, b]),
    "clone": lambda a, b: a.clone() + b.clone(),
    "where": lambda a, b: torch.where(torch.tensor([True, False, True]), a, b),
    "expand": lambda a, b: a.expand(2, 3) + b.expand(2, 3),
}


@pytest.mark.parametrize("function", HAND_THROUGH.values(), ids=HAND_THROUGH)
@pytest.mark.parametrize("start", ["given", "sum", "expanded"])
def test_gradients_do_not_share_memory(function, start):
    "What is visible as .grad is nobody else's: neither another leaf's, nor the `gradient` argument, nor a constant."
    a, b = leaf(1.0, 2.0, 3.0), leaf(4.0, 5.0, 6.0)
    out = function(a, b)
    given = torch.ones_like(out.detach()) if start == "given" else torch.ones((), dtype=torch.float64).expand(out.shape)
    out.sum().backward() if start == "sum" else out.backward(given)
    assert not shares(a.grad, b.grad)
    assert not shares(a.grad, given) and not shares(b.grad, given)
    expected = values(b.grad)
    a.grad.zero_()
    a.grad[0] = 7.0
    assert values(b.grad) == expected and (values(given) == np.ones(given.shape)).all()
    function(a, b).sum().backward()
    assert b.grad.numpy() == pytest.approx(2 * np.array(expected))


def test_single_leaf_does_not_take_the_given_gradient():
    x, given = leaf(1.0, 2.0), torch.ones(2, dtype=torch.float64)
    (x + 0).backward(given)
    x.backward(given)
    x.grad.mul_(5)
    assert values(given) == [1, 1] and values(x.grad) == [10, 10]


def test_gradient_that_the_user_holds_is_not_changed_by_grad():
    x = leaf(1.0, 2.0)
    y = (x * 3).sum()
    y.backward()
    held = x.grad
    (g,) = grad((x * 3).sum(), x)
    g.zero_()
    assert x.grad is held and values(held) == [3, 3]
    (x * 3).sum().backward()
    assert x.grad is held and values(held) == [6, 6], "accumulation adds into the tensor that is there, as in PyTorch"


def test_grad_of_the_same_input_twice():
    a = leaf(1.0, 2.0)
    ga, again = grad((a * 2).sum(), (a, a))
    assert values(ga) == values(again) == [2, 2]


def test_hooked_and_retained_gradients_do_not_share_memory_with_grad():
    x = leaf(1.0, 2.0)
    seen = []
    y = x + 0
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g))
    x.register_hook(lambda g: seen.append(g))
    y.sum().backward()
    x.grad.mul_(100)
    assert values(y.grad) == [1, 1]
    (x * 1).sum().backward()
    assert values(y.grad) == [1, 1]


def test_saved_value_is_not_taken_for_a_gradient():
    "The gradient of `a * b` for a is g * b: with g = 1 a lazy engine might hand out b itself."
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (a * b).sum().backward()
    a.grad.zero_()
    assert values(b) == [3, 4] and values(b.grad) == [1, 2]


def test_accumulation_is_noticed_by_graphs_that_saved_the_gradient():
    x, w = leaf(1.0, 2.0), leaf(1.0, 1.0)
    (x * 2).sum().backward()
    y = (w * x.grad).sum()
    (x * 2).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# grad ----------------------------------------------------------------------------------------------------------


def test_unused_inputs():
    x, unused = leaf(1.0, 2.0), leaf(5.0)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        grad((x * 2).sum(), [x, unused])
    gx, gu = grad((x * 2).sum(), [x, unused], allow_unused=True)
    assert values(gx) == [2, 2] and gu is None
    gx, gu = grad((x * 2).sum(), [x, unused], materialize_grads=True)
    assert values(gu) == [0] and gu.dtype == torch.float64
    assert x.grad is None and unused.grad is None


def test_grad_with_respect_to_inner_values():
    x = leaf(2.0)
    y = x * x
    z = y * y
    assert [g.item() for g in grad(z.sum(), (z, y, x))] == [1, 8, 32]
    y2 = x * 3
    a, b = y2 * 2, y2 * 5
    assert grad([a, b], [a, y2, b], [torch.ones(1, dtype=torch.float64)] * 2)[1].item() == 7


def test_grad_does_not_run_what_leads_nowhere():
    x, w = leaf(2.0), leaf(3.0)
    ran = []
    a, b = x * 2, w * 2
    b.register_hook(lambda g: ran.append("b"))
    a.register_hook(lambda g: ran.append("a"))
    w.register_hook(lambda g: ran.append("w"))
    x.register_hook(lambda g: ran.append("x"))
    (g,) = grad((a * b).sum(), x)
    assert g.item() == 12 and ran == ["a", "x"]


def test_backward_with_inputs():
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    z = y * 2
    z.sum().backward(inputs=[x, y])
    assert x.grad.item() == 6 and w.grad is None and y.grad.item() == 2
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * w).sum().backward(inputs=[])


def test_output_of_many_results():
    x = leaf(1.0, 2.0, 3.0)
    a, b, c = x.unbind()
    (a * b).backward()
    assert values(x.grad) == [2, 1, 0]
    a, b, c = x.unbind()
    ga, gc = grad(a * 2 + b * 3, (a, c), allow_unused=True)
    assert ga.item() == 2 and gc is None


def test_dtype_of_given_gradient():
    x = torch.ones(2, requires_grad=True)
    (x * 2).backward(torch.ones(2, dtype=torch.float64))
    assert x.grad.dtype == torch.float32


# Hooks ---------------------------------------------------------------------------------------------------------


def test_order_of_hooks():
    x = leaf(1.0)
    log = []

    def note(name, result=None):
        return lambda *args: log.append(name) or result

    y = x * 2
    y.register_hook(note("y"))
    y.grad_fn.register_prehook(note("pre"))
    y.grad_fn.register_hook(note("post"))
    x.register_hook(note("x"))
    x.register_post_accumulate_grad_hook(lambda t: log.append(f"after {t.grad.item():.0f}"))
    y.sum().backward()
    assert log == ["y", "pre", "post", "x", "after 2"]


def test_hook_sees_the_complete_gradient_once():
    x = leaf(1.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    h = x * 1
    h.register_hook(lambda g: seen.append(-g.item()))
    (h * 2 + h * 3 + x * 4).sum().backward()
    assert seen == [-5, 9]


def test_hook_replaces_and_is_removed():
    x = leaf(1.0)
    handle = x.register_hook(lambda g: g * 10)
    (x * 2).sum().backward()
    assert x.grad.item() == 20
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.item() == 2


def test_hook_on_one_of_several_outputs():
    x = leaf(1.0, 2.0)
    a, b = x.unbind()
    b.register_hook(lambda g: g * 10)
    (a + b).backward()
    assert values(x.grad) == [1, 10]


def test_hooks_run_for_grad_too():
    x = leaf(1.0)
    x.register_hook(lambda g: g * 10)
    after = []
    x.register_post_accumulate_grad_hook(lambda t: after.append(t))
    assert grad((x * 2).sum(), x)[0].item() == 20 and not after


def test_node_hook_replaces_what_it_passes_on():
    x, w = leaf(1.0), leaf(2.0)
    y = x * w
    y.grad_fn.register_hook(lambda grads_in, grads_out: (grads_in[0] * 3, None))
    y.sum().backward()
    assert x.grad.item() == 6 and w.grad is None


def test_hook_under_create_graph_is_recorded():
    x = leaf(3.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = grad(y.sum(), x, create_graph=True)
    assert g.item() == 18 and grad(g, x)[0].item() == 12


def test_hook_that_removes_itself():
    x = leaf(1.0)
    handles = []

    def once(g):
        handles[0].remove()
        return g * 5

    handles.append(x.register_hook(once))
    x.register_hook(lambda g: g + 1)
    (x * 1).sum().backward()
    (x * 1).sum().backward()
    assert x.grad.item() == 6 + 2


def test_retained_gradient_is_seen_after_hooks():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert y.grad.item() == 10 and x.grad.item() == 20


# Re-entry and failures -----------------------------------------------------------------------------------------


def test_backward_inside_a_hook():
    x, w = leaf(1.0), leaf(1.0)
    y = x * 2

    def hook(g):
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            (w * 3).sum().backward()
            (x * 100).sum().backward()

    y.register_hook(hook)
    y.sum().backward()
    assert w.grad.item() == 3 and x.grad.item() == 102


def test_backward_inside_a_custom_function_many_levels_deep():
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.save_for_backward(x)
            ctx.depth = depth
            return x * 2

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                inner = ctx.saved_tensors[0].detach().requires_grad_()
                y = Nested.apply(inner, ctx.depth - 1) if ctx.depth else inner * 2
            y.backward(g)
            return inner.grad, None

    x = leaf(1.0)
    Nested.apply(x, 40).sum().backward()
    assert x.grad.item() == 2


class Failure(Exception):
    pass


def failing_hook(g):
    raise Failure


class FailingRule(torch.autograd.Function):
    fail = True

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        if FailingRule.fail:
            raise Failure
        return g


@pytest.mark.parametrize("how", ["tensor hook", "leaf hook", "node hook", "prehook", "after accumulation", "rule"])
def test_a_failure_leaves_a_usable_state(how):
    "The user's own exception arrives, modes are as before, other graphs work, and the same computation made again gives the right gradient."
    x, other = leaf(2.0), leaf(1.0)
    FailingRule.fail = how == "rule"
    handles = []

    def build():
        y = FailingRule.apply(x * x)
        z = y * 3
        if how == "tensor hook":
            handles.append(y.register_hook(failing_hook))
        if how == "node hook":
            handles.append(z.grad_fn.register_hook(lambda *a: failing_hook(a)))
        if how == "prehook":
            handles.append(z.grad_fn.register_prehook(failing_hook))
        return z

    if how == "leaf hook":
        handles.append(x.register_hook(failing_hook))
    if how == "after accumulation":
        handles.append(x.register_post_accumulate_grad_hook(failing_hook))
    with pytest.raises(Failure):
        build().sum().backward()
    assert torch.is_grad_enabled()
    (other * 2).sum().backward()
    assert other.grad.item() == 2
    FailingRule.fail = False
    z = build()
    for handle in handles:
        handle.remove()
    x.grad = None
    z.sum().backward()
    assert x.grad.item() == 12


def test_an_attribute_error_of_a_rule_or_hook_is_shown_as_it_is():
    x = leaf(1.0)
    y = x.exp()
    y.register_hook(lambda g: g.no_such_attribute)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        y.sum().backward()
    x.register_hook(lambda g: None.another_one)
    with pytest.raises(AttributeError, match="another_one"):
        (x * x).sum().backward()


def test_errors_raised_before_the_walk_change_nothing():
    x = leaf(1.0, 2.0)
    y = x * x
    for call in (lambda: y.backward(), lambda: y.backward(torch.ones(3)), lambda: torch.autograd.backward([y.sum(), torch.ones(1)])):
        with pytest.raises(RuntimeError):
            call()
    assert x.grad is None and not y.grad_fn.freed
    y.sum().backward()
    assert values(x.grad) == [2, 4]


# walk: the same pass, step by step -----------------------------------------------------------------------------


def network():
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    parameters = [torch.randn(3, 5, requires_grad=True), torch.randn(5, requires_grad=True), torch.randn(5, 2, requires_grad=True)]
    a, b, c = parameters
    h = torch.tanh(x @ a + b)
    u, v = (h @ c).unbind(1)
    return ((u * v + h.sum(1)).softmax(0) * u.exp()).mean() + (a * a).sum(), parameters


@pytest.mark.parametrize("how", ["backward", "walk", "hooked", "create_graph"])
def test_walk_is_backward_bit_for_bit(how):
    loss, parameters = network()
    expected, reference = network()
    expected.backward()
    if how == "walk":
        for step in walk(loss):
            assert len(step.grads_out) == len(step.node.next_functions)
    else:
        if how == "hooked":
            parameters[0].register_hook(lambda g: None)
        loss.backward(create_graph=how == "create_graph")
    for p, q in zip(parameters, reference):
        assert p.grad.detach().numpy().tobytes() == q.grad.numpy().tobytes()


def test_steps():
    x, w = number(2), number(3)
    y = x * w
    steps = list(walk(y * y))
    assert [type(s.node).__name__ for s in steps] == ["MulBackward0", "MulBackward0", "AccumulateGrad", "AccumulateGrad"]
    assert [float(g) for s in steps for g in s.grads_in] == [1, 12, 36, 24]
    assert [[float(g) for g in s.grads_out] for s in steps] == [[6, 6], [36, 24], [], []]
    assert {s.node.variable for s in steps[2:]} == {x, w} and x.grad.item() == 36


def test_edited_step_changes_what_follows():
    x, w = number(2), number(3)
    steps = walk(x * w * 5)
    for step in steps:
        if step.node.next_functions and step.node.next_functions[-1][0] is not None:
            step.grads_out[0] = step.grads_out[0] * 10
            step.grads_out[1] = None
    assert x.grad.item() == 150 and w.grad is None


def test_abandoned_walk_leaves_the_modes_alone():
    x = number(2)
    steps = walk((x * x).exp())
    next(steps)
    assert torch.is_grad_enabled()
    steps.close()
    assert torch.is_grad_enabled() and x.grad is None
    (x * x).backward()
    assert x.grad.item() == 4


def test_walk_with_inputs_touches_no_grad():
    x, w = number(2), number(3)
    assert [s.node.name() for s in walk(x * w, inputs=[x]) if not is_leaf(s.node)] == ["MulBackward0"]
    assert x.grad is None and w.grad is None


def test_two_walks_side_by_side():
    x, w = number(2), number(3)
    one, two = walk(x.exp() * x), walk(w.exp() * w)
    for _ in range(10):
        next(one, None), next(two, None)
    assert x.grad.item() == pytest.approx(3 * np.exp(2)) and w.grad.item() == pytest.approx(4 * np.exp(3))


# Where a node comes from ---------------------------------------------------------------------------------------

# Each line makes one node; the test finds the line by its node.
SOURCES = """
import autograd_nb as torch
x = torch.ones(3, requires_grad=True)
made = [
    x + 1,
    2 * x,
    torch.exp(x),
    x.sum(),
    x.mean(dim=0),
    x[1:],
    x.max(dim=0).values,
    torch.cat([x, x]),
    torch.stack([x, x]),
    x.unbind()[1],
    torch.softmax(x, 0),
    x @ x,
    torch.einsum('i,i->', x, x),
    x.var(),
    x.reshape(3, 1),
    torch.where(x > 0, x, 0.),
    x.clone().add_(1),
    x ** 2,
    x.to(torch.float64),
]
"""


def test_nodes_know_the_line_that_made_them(tmp_path):
    file = tmp_path / "lesson.py"
    file.write_text(SOURCES)
    for _ in range(2):  # the second time every operation is already compiled
        scope = {}
        exec(compile(SOURCES, str(file), "exec"), scope)
        for number, made in enumerate(scope["made"], 5):
            assert made.grad_fn.source == f"{file}:{number}", linecache.getline(str(file), number)


def test_overwritten_value_error_names_both_lines():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    here = y.grad_fn.source
    y.mul_(2)
    with pytest.raises(RuntimeError) as error:
        y.sum().backward()
    file, _, line = here.rpartition(":")
    words = str(error.value)
    assert f"{file}:{line}" in words and f"{file}:{int(line) + 2}" in words and "ExpBackward0" in words and "mul_" in words


# Only what is wanted ---------------------------------------------------------------------------------------------


def test_a_gradient_that_the_user_passes_stays_the_users():
    w, g = leaf(1, 1), torch.ones(2, dtype=torch.float64)
    w.backward(g)
    g.add_(1)
    assert values(w.grad) == [1, 1]


def test_second_derivatives_reach_inputs_whose_own_first_derivative_was_not_asked_for():
    x, w = leaf(1, 1, 1), leaf(2, 2, 2)
    for y in (x * w, (x.reshape(1, 3) * w.reshape(3, 1)).sum(0), x.clone().mul_(w)):
        (g,) = grad((y * y).sum(), x, create_graph=True)
        assert grad(g.sum(), w, retain_graph=True)[0].abs().sum() > 0
        (both, _) = grad((y * y).sum(), (x, w), create_graph=True)
        assert torch.equal(grad(g.sum(), w, retain_graph=True)[0], grad(both.sum(), w)[0])


def test_saved_values_that_no_wanted_input_needs_are_not_unpacked():
    unpacked = []
    x, w = leaf(1, 2), leaf(3, 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(values(t)) or t):
        y = x * w
        z = x.clone()
        z[:1].mul_(w[:1])
    assert values(grad(y.sum(), x, retain_graph=True)[0]) == [3, 4] and unpacked == [[3, 4]]
    unpacked.clear()
    assert values(grad(z.sum(), x)[0]) == [3, 1] and unpacked == [[3]]


def test_a_part_of_a_freed_node_says_so():
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * w
    grad(y.sum(), x)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        grad(y.sum(), w)


def test_gradients_in_another_dtype():
    x = leaf(1, 2, dtype=torch.float32)
    x.grad_dtype = torch.float64
    (x * 2).sum().backward()
    assert x.grad.dtype == torch.float64 and x.grad_dtype == torch.float64
    with pytest.raises(RuntimeError, match="there is already a gradient with dtype"):
        x.grad_dtype = torch.float32
    x.grad = None
    x.grad_dtype = None
    x.grad = torch.ones(2, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="can only be accessed on leaf tensors"):
        (x * 2).grad_dtype
    y = leaf(1, 2)
    with pytest.raises(RuntimeError, match="attempting to assign a gradient with dtype"):
        y.grad = torch.ones(2)


def test_batched_gradients_go_through_the_graph_once():
    passes = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            passes.append(tuple(g.shape))
            return g * 2

    x = leaf(1, 2, 3)
    (jacobian,) = grad(Watched.apply(x) * x, x, torch.eye(3, dtype=torch.float64), is_grads_batched=True)
    assert passes == [(3,)] and values(jacobian) == [[4, 0, 0], [0, 8, 0], [0, 0, 12]]


# The same programs under PyTorch ---------------------------------------------------------------------------------

PROGRAMS = programs("gradients")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_do_what_pytorch_does(program):
    assert_same_output(program)


# Passes that fail ----------------------------------------------------------------------------------------------


def _twice(x):
    y = x.exp() + x
    y.sum().backward()
    return y


def _overwritten(x):
    h = x.exp()
    y = h + x
    with torch.no_grad():
        h.zero_()
    return y


def _refused(x):
    h = x * 2
    h.register_hook(lambda g: 1 / 0)
    return h + x


@pytest.mark.parametrize("size", [(), (3,), (70_000,)], ids=str)
@pytest.mark.parametrize("state", ["no gradient", "a gradient", "a gradient that was seen"])
@pytest.mark.parametrize("fails", [_twice, _overwritten, _refused])
def test_a_leaf_keeps_its_gradient_where_a_pass_fails_before_the_leaf_has_all(fails, state, size):
    x, b = (torch.full(size, 0.5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = fails(x) + b
    x.grad = None
    if state != "no gradient":
        (x * 3).sum().backward()
    seen = x.grad if "seen" in state else None
    with pytest.raises((RuntimeError, ZeroDivisionError)):
        y.sum().backward()
    assert (x.grad is None) == (state == "no gradient")
    assert x.grad is None or (x.grad == 3).all()
    assert seen is None or x.grad is seen
    assert (b.grad == 1).all(), "what is complete is there"


# name -> (function with several results, which of them is used, where the rule for another one is not finite)
PARTLY_USED = {
    "var_mean": ("torch.var_mean(x * 1, 0)[1]", [[1.0, 2.0], [float("nan"), 3.0], [0.5, 1.0]]),
    "std_mean": ("torch.std_mean(x * 1, 1)[1]", [[1.0, float("inf")], [2.0, 3.0]]),
    "eigh": ("torch.linalg.eigh(x * 1)[0]", [[2.0, 0.0], [0.0, 2.0]]),
    "eig": ("torch.linalg.eig(x * 1)[0].real", [[2.0, 0.0], [0.0, 2.0]]),
    "svd": ("torch.linalg.svd(x * 1)[1]", [[2.0, 0.0], [0.0, 2.0]]),
    "svd of wide matrices": ("torch.linalg.svd(x * 1)[1]", [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", PARTLY_USED)
def test_a_result_that_was_not_used_has_no_part_in_the_gradient(name, graph):
    import torch as pytorch

    call, numbers = PARTLY_USED[name]
    found = []
    for t in (pytorch, torch):
        x = t.tensor(numbers, dtype=t.float64, requires_grad=True)
        (g,) = t.autograd.grad(eval(call, {"torch": t, "x": x}).sum(), x, create_graph=graph)
        found.append(g.tolist())
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("write", ["x[...] = y", "x[0] = y[0]", "x.copy_(y)", "x[0, 0] = y[0, 0]"])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_no_gradient_passes_through_whole_numbers_that_are_written(write, dtype):
    import torch as pytorch

    found = []
    for t in (pytorch, torch):
        x, y = t.zeros(2, 2, dtype=getattr(t, dtype)), t.tensor([[1.5, 0.0], [2.5, 1.0]], requires_grad=True)
        exec(write, {"x": x, "y": y})
        found.append((x.requires_grad, x.tolist()))
    assert found[1] == found[0]
