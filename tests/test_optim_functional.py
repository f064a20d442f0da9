"""The steps of optimisers as functions: what they do to lists of tensors, and refuse, is PyTorch's."""

import importlib
import inspect
import re

import numpy as np
import pytest
from _compare import run_program, same_text

import autograd_nb
from autograd_nb.optim.rules import Elementwise

pytestmark = pytest.mark.needs("torch")

NAMES = "sgd adam adamw rmsprop adagrad adadelta adamax nadam radam asgd rprop".split()
ADAM = "amsgrad=False, beta1=0.9, beta2=0.99, lr=0.01, weight_decay=0.0, eps=1e-8, maximize=False"
# how states begin: one number for all parameters, None for a buffer that the first step makes, () for a list that is not used
CALLS = f"""
sgd(p, g, [None, None, None, None], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False, maximize=False)
sgd(p, g, [None, None, None, None], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.5, nesterov=False, maximize=True)
sgd(p, g, s(0.5), weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True, maximize=False)
sgd(p, g, [None, None, None, None], fused=True, weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.5, nesterov=False, maximize=True)
sgd(p, g, s(0.5), fused=True, grad_scale=t(4.0), found_inf=t(0.0), weight_decay=0.0, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False, maximize=False)
adam(p, g, s(0.0), s(0.0), [], c(0.0), {ADAM})
adam(p, g, s(0.1), s(0.2), s(0.3), c(4.0), {ADAM.replace('amsgrad=False', 'amsgrad=True').replace('weight_decay=0.0', 'weight_decay=0.1')})
adam(p, g, s(0.1), s(0.2), [], c(4.0), None, False, False, None, None, None, True, True, {ADAM.replace('maximize=False', 'maximize=True').replace('weight_decay=0.0', 'weight_decay=0.1')})
adam(p, g, s(0.0), s(0.0), [], c(0.0), foreach=True, {ADAM})
adam(p, g, s(0.0), s(0.0), [], c(0.0), fused=True, {ADAM})
adam(p, g, s(0.0), s(0.0), [], c(0.0), fused=True, grad_scale=t(4.0), found_inf=t(0.0), {ADAM})
adam(p, g, s(0.0), s(0.0), [], c(2.0), fused=True, grad_scale=t(4.0), found_inf=t(1.0), {ADAM})
adam(p, g, s(0.0), s(0.0), [], c(0.0), differentiable=True, {ADAM})
adam(p, g, s(0.0), s(0.0), [], c(0.0), {ADAM.replace('lr=0.01', 'lr=t(0.01)')})
adamw(p, g, s(0.0), s(0.0), [], c(0.0), {ADAM.replace('weight_decay=0.0', 'weight_decay=0.1')})
adamw(p, g, s(0.1), s(0.2), s(0.3), c(4.0), fused=True, grad_scale=t(4.0), found_inf=t(0.0), {ADAM.replace('amsgrad=False', 'amsgrad=True')})
rmsprop(p, g, s(0.0), [], [], c(0.0), lr=0.01, alpha=0.9, eps=1e-8, weight_decay=0.0, momentum=0, centered=False)
rmsprop(p, g, s(1.0), s(0.1), s(0.2), c(3.0), maximize=True, lr=0.01, alpha=0.9, eps=1e-8, weight_decay=0.1, momentum=0.8, centered=True)
rmsprop(p, g, s(1.0), [], s(0.2), c(3.0), foreach=True, lr=0.01, alpha=0.9, eps=1e-8, weight_decay=0.1, momentum=0.8, centered=False)
adagrad(p, g, s(0.0), c(0.0), lr=0.1, weight_decay=0.0, lr_decay=0.0, eps=1e-10, maximize=False)
adagrad(p, g, s(0.5), c(3.0), lr=0.1, weight_decay=0.1, lr_decay=0.1, eps=1e-10, maximize=True)
adagrad(p, g, s(0.5), c(3.0), fused=True, grad_scale=t(4.0), found_inf=t(0.0), lr=0.1, weight_decay=0.0, lr_decay=0.1, eps=1e-10, maximize=False)
adadelta(p, g, s(0.0), s(0.0), c(0.0), lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False)
adadelta(p, g, s(0.5), s(0.1), c(2.0), foreach=True, lr=0.5, rho=0.8, eps=1e-6, weight_decay=0.1, maximize=True)
adamax(p, g, s(0.0), s(0.0), c(0.0), eps=1e-8, beta1=0.9, beta2=0.99, lr=0.01, weight_decay=0.0)
adamax(p, g, s(0.1), s(0.2), c(5.0), maximize=True, eps=1e-3, beta1=0.8, beta2=0.9, lr=0.01, weight_decay=0.1)
nadam(p, g, s(0.0), s(0.0), c(1.0), c(0.0), beta1=0.9, beta2=0.99, lr=0.01, weight_decay=0.0, momentum_decay=4e-3, eps=1e-8)
nadam(p, g, s(0.1), s(0.2), c(0.8), c(4.0), True, maximize=True, beta1=0.9, beta2=0.99, lr=0.01, weight_decay=0.1, momentum_decay=0.01, eps=1e-8)
radam(p, g, s(0.0), s(0.0), c(0.0), beta1=0.9, beta2=0.99, lr=0.01, weight_decay=0.0, eps=1e-8)
radam(p, g, s(0.1), s(0.2), c(9.0), True, maximize=True, beta1=0.9, beta2=0.99, lr=0.01, weight_decay=0.1, eps=1e-8)
asgd(p, g, s(0.0), c(1.0), c(0.05), c(0.0), lambd=1e-4, lr=0.05, t0=1e6, alpha=0.75, weight_decay=0.0)
asgd(p, g, s(0.3), c(0.5), c(0.05), c(3.0), maximize=True, lambd=0.1, lr=0.05, t0=2, alpha=0.5, weight_decay=0.1)
rprop(p, g, s(0.0), s(0.01), c(0.0), step_size_min=1e-6, step_size_max=50, etaminus=0.5, etaplus=1.2)
rprop(p, g, s(0.1), s(0.01), c(2.0), maximize=True, step_size_min=1e-3, step_size_max=0.02, etaminus=0.3, etaplus=1.5)
""".strip().split("\n")


def function(library, name):
    return getattr(importlib.import_module(f"{library.__name__}.optim.{name}"), name)


def after_steps(library, call, dtype="float32", steps=4):
    "Parameters, gradients, states and counts after some steps of a function, as arrays, by the place of their list among the arguments."
    rng, lists = np.random.default_rng(0), []
    dtype = getattr(library, dtype)

    def take(*arguments, **options):
        lists.extend(a for a in arguments if isinstance(a, list))
        for _ in range(steps):
            for gradient in arguments[1]: gradient.copy_(drawn(gradient.shape))
            name(*arguments, **options)

    def drawn(shape):
        return library.tensor((rng.normal(size=shape) + 1j * rng.normal(size=shape) if dtype.is_complex else rng.normal(size=shape)).tolist(), dtype=dtype)

    shapes, name = [(4, 3), (), (5,), (3, 2)], function(library, call.split("(")[0])
    values = dict(
        p=[drawn(shape) for shape in shapes[:-1]] + [drawn((2, 3)).t()],
        # PyTorch's fused steps walk along the memory, whatever the layouts are
        g=[drawn(shape) for shape in shapes[:-1]] + [drawn((2, 3)).t() if "fused" in call else drawn((3, 2))],
        t=library.tensor, c=lambda value: [library.tensor(value) for _ in shapes],
        s=lambda value: [drawn(shape).abs().to(dtype) + value if value else library.zeros(shape, dtype=dtype) for shape in shapes[:-1]]
        + [library.full((2, 3), value, dtype=dtype).t()],
        take=take,
    )
    with library.no_grad():
        eval("take(" + call.split("(", 1)[1], values)
    return [[None if v is None else v.numpy() for v in part] for part in lists]


def assert_same(ours, theirs, **room):
    for mine, their in zip(ours, theirs, strict=True):
        for a, b in zip(mine, their, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b, **room)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lists_after_steps(call, dtype):
    import torch

    room = dict(rtol=2e-5, atol=2e-6) if dtype == "float32" else dict(rtol=1e-6, atol=1e-7)
    assert_same(after_steps(autograd_nb, call, dtype), after_steps(torch, call, dtype), **room)


@pytest.mark.parametrize("call", [c for c in CALLS if "fused" not in c])
def test_complex_numbers(call):
    import torch

    call = call.replace("foreach=True", "foreach=True, has_complex=True")  # without it PyTorch takes complex squares
    assert_same(after_steps(autograd_nb, call, "complex64"), after_steps(torch, call, "complex64"), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_arguments(name):
    import torch

    ours, theirs = (
        [(p.name, p.kind, p.default) for p in inspect.signature(function(library, name)).parameters.values()] for library in (autograd_nb, torch)
    )
    assert ours == theirs


def test_modules_have_classes_and_functions():
    import torch

    for name in NAMES:
        ours, theirs = (importlib.import_module(f"{library.__name__}.optim.{name}") for library in (autograd_nb, torch))
        kinds = [n for n in vars(theirs) if inspect.isclass(vars(theirs)[n]) and n.lower() == name]
        assert all(issubclass(getattr(ours, n), Elementwise) for n in kinds) and len(kinds) == 1
        assert getattr(importlib.import_module("autograd_nb.optim._functional"), name) is getattr(ours, name)


@pytest.mark.parametrize("kind, name", [("SGD", "sgd"), ("Adam", "adam"), ("RMSprop", "rmsprop"), ("Adagrad", "adagrad")])
def test_the_state_of_an_optimiser_can_be_given(kind, name):
    "A step of the optimiser, and one by the function on what it holds, are two steps of the optimiser."
    found = []
    for by_hand in (False, True):
        w = autograd_nb.linspace(-1, 1, 5, requires_grad=True)
        optimizer = getattr(autograd_nb.optim, kind)([w], lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
        for step in range(4):
            w.grad = w.detach().cos()
            if step == 2 and by_hand:
                held = {k: [v] for k, v in optimizer.state[w].items()}
                lists = [held.pop("momentum_buffer", None)] if kind == "SGD" else [held.get(k, []) for k in {
                    "Adam": ("exp_avg", "exp_avg_sq", "max", "step"), "RMSprop": ("square_avg", "a", "b", "step"), "Adagrad": ("sum", "step")}[kind]]
                parameters = inspect.signature(function(autograd_nb, name)).parameters.values()
                group = optimizer.param_groups[0] | dict(zip(("beta1", "beta2"), optimizer.param_groups[0].get("betas", ())))
                with autograd_nb.no_grad():
                    function(autograd_nb, name)([w], [w.grad], *lists, **{p.name: group[p.name] for p in parameters if p.kind == p.KEYWORD_ONLY})
            else:
                optimizer.step()
        found.append(w.detach().numpy())
    np.testing.assert_array_equal(*found)


PROGRAM = f"""
from TORCH.optim.adam import adam
from TORCH.optim.sgd import sgd
from TORCH.optim import _functional as functions
one = lambda: [torch.ones(2)]
options = dict({ADAM})
def call(p=None, g=None, steps=None, **more): adam(p or one(), g or one(), one(), one(), [], steps or [torch.zeros(())], **options | more)
attempt(lambda: call(steps=[1]))
attempt(lambda: call(fused=True, differentiable=True))
attempt(lambda: call(capturable=True))
attempt(lambda: call(grad_scale=torch.tensor(2.)))
attempt(lambda: call(foreach=True, lr=torch.tensor(2.)))
attempt(lambda: call(p=one() * 2))
attempt(lambda: call(p=[torch.ones(2, requires_grad=True)]))
attempt(lambda: adam(one(), one()))
attempt(lambda: adam(one(), one(), one(), one(), [], [torch.zeros(())], lr=1))
attempt(lambda: functions.nadam(one(), one(), one(), one(), [1.], [torch.zeros(())], beta1=.9, beta2=.9, lr=1., weight_decay=0., momentum_decay=0., eps=1e-8))
p = torch.ones(2, requires_grad=True); q = p * 1; before = q._version
adam([q], [p * 3], one(), one(), [], [torch.zeros(())], **options)
print(q._version > before, q.requires_grad); q.sum().backward(); print(p.grad)
lr = torch.tensor(0.5, requires_grad=True); q = torch.ones(2).clone()
p = torch.ones(2, requires_grad=True); buffers = [None]
q = p * p
sgd([q], [p.sin()], buffers, weight_decay=0.1, momentum=.9, lr=.1, dampening=0., nesterov=False, maximize=False)
print(buffers, buffers[0].requires_grad)
q.sum().backward(); print(p.grad)
w = torch.ones(2); seen = w[:1]; b = [torch.zeros(2)]
sgd([w], [torch.ones(2)], b, weight_decay=0., momentum=.9, lr=.1, dampening=0., nesterov=False, maximize=False)
print(w, seen, b)
x = torch.ones(2, requires_grad=True); y = (x * w).sum()
sgd([w], [torch.ones(2)], b, weight_decay=0., momentum=.9, lr=.1, dampening=0., nesterov=False, maximize=False)
attempt(y.backward)
"""


def test_steps_taken_together_are_not_recorded():
    import torch

    for library in (torch, autograd_nb):
        lists = [[library.ones(2)] for _ in range(4)]
        with pytest.raises(AssertionError, match="^_foreach ops don't support autograd"):
            function(library, "adamax")(
                *lists, [library.zeros(())], foreach=True, differentiable=True, eps=1e-8, beta1=0.9, beta2=0.9, lr=0.1, weight_decay=0.0
            )


def test_nothing_flows_through_the_first_buffer():
    "What SGD puts where there was no buffer is a value without a history, as in PyTorch."
    import torch

    for library in (torch, autograd_nb):
        x = library.ones(2, requires_grad=True)
        w = x.clone()
        optimizer = library.optim.SGD([library.zeros(2, requires_grad=True)], lr=0.1, momentum=0.9, differentiable=True)
        optimizer.param_groups[0]["params"] = [w]
        w.grad = x.sin()
        optimizer.step()
        assert library.autograd.grad(w.sum(), x)[0].tolist() == [1.0, 1.0]


def test_in_a_compiled_step():
    found = []
    for compiled in (False, True):
        w, buffers = autograd_nb.ones(3, requires_grad=True), [None]

        def step(x, w=w, buffers=buffers):
            loss = ((w * x) ** 2).sum()
            gradients = autograd_nb.autograd.grad(loss, w)
            with autograd_nb.no_grad():
                function(autograd_nb, "sgd")(
                    [w], list(gradients), buffers, weight_decay=0.0, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False, maximize=False
                )
            return loss

        if compiled: step = autograd_nb.compile(step)
        found.append([step(autograd_nb.tensor([1.0, 0.5, 0.2 * i])).item() for i in range(6)] + w.tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("name", ["Adam", "SGD", "Rprop"])
def test_optimisers_of_one_complex_number(name):
    import torch

    found = []
    for library in (torch, autograd_nb):
        w = library.tensor(1 + 2j, requires_grad=True)
        optimizer = getattr(library.optim, name)([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (w * w.conj()).real.backward()
            optimizer.step()
        found.append(w.item())
    assert abs(found[0] - found[1]) < 1e-5


def test_what_is_refused_recorded_and_seen():
    import torch

    printed = [run_program(re.sub("TORCH", library.__name__, PROGRAM), library) for library in (torch, autograd_nb)]
    assert same_text(*printed), "\n".join(printed)
