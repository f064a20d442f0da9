"""Optimisers and schedules go where PyTorch's go, step by step, and keep the same state."""

import copy
import math
import warnings

import numpy as np
import pytest
from _compare import assert_same_output
from _rounding import assert_same_arrays, assert_same_numbers
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_nb
from autograd_nb.optim.optimizer import BLOCK, SMALL

needs_torch = pytest.mark.needs("torch")

RULES = r"""
SGD(params, lr=0.1)
SGD(params, lr=0.1, momentum=0.9)
SGD(params, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)
SGD(params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
SGD(params, lr=0.1, maximize=True, weight_decay=0.1)
SGD(params, lr=torch.tensor(0.1), momentum=0.5, maximize=True)
Adam(params, lr=0.01)
Adam(params, lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)
Adam(params, lr=0.01, amsgrad=True, maximize=True)
Adam(params, lr=0.01, decoupled_weight_decay=True, weight_decay=0.1)
AdamW(params, lr=0.01)
AdamW(params, lr=0.01, weight_decay=0.2, amsgrad=True)
RMSprop(params, lr=0.01)
RMSprop(params, lr=0.01, alpha=0.9, momentum=0.8, centered=True, weight_decay=0.1)
RMSprop(params, lr=0.01, centered=True, maximize=True)
Adagrad(params, lr=0.1)
Adagrad(params, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5)
Adadelta(params)
Adadelta(params, lr=0.5, rho=0.8, weight_decay=0.1, maximize=True)
Adamax(params, lr=0.01)
Adamax(params, lr=0.01, weight_decay=0.1, eps=1e-3, maximize=True)
NAdam(params, lr=0.01)
NAdam(params, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, momentum_decay=0.01)
NAdam(params, lr=0.01, weight_decay=0.1, maximize=True)
RAdam(params, lr=0.01)
RAdam(params, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, betas=(0.8, 0.9))
RAdam(params, lr=0.01, weight_decay=0.1, maximize=True)
ASGD(params, lr=0.05)
ASGD(params, lr=0.05, lambd=0.1, alpha=0.5, t0=5, weight_decay=0.1, maximize=True)
Rprop(params, lr=0.01)
Rprop(params, lr=0.01, etas=(0.3, 1.5), step_sizes=(1e-3, 0.02), maximize=True)
Adafactor(params, lr=0.05)
Adafactor(params, lr=0.05, weight_decay=0.1, eps=(1e-3, 1e-2), d=2.0, maximize=True)
"""


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def trained(t, make, sizes=((4, 5), (5,), (), (SMALL + 3,)), steps=20, dtype="float32", unused=None):
    "Parameters after `steps` steps on a bumpy function, the loss at each, and the optimiser."
    rng = np.random.default_rng(0)
    dtype = getattr(t, dtype)
    params = [t.tensor(rng.standard_normal(s).tolist(), dtype=dtype, requires_grad=True) for s in sizes]
    factors = [t.tensor(rng.standard_normal(s).tolist(), dtype=dtype) for s in sizes]
    optimizer = eval(make, {"params": params, "torch": t, **vars(t.optim)})
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = sum(((p * f).sin() + p * p * 0.1).mean() for i, (p, f) in enumerate(zip(params, factors)) if i != unused or step >= 5)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return params, losses, optimizer


def arrays(params):
    return [np.asarray(p.detach().numpy(), np.float64) for p in params]


def agree(a, b, rtol=1e-5, atol=1e-6):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


@needs_torch
@pytest.mark.parametrize("make", lines(RULES))
def test_twenty_steps(make):
    import torch

    theirs, their_losses, their_optimizer = trained(torch, make)
    ours, our_losses, our_optimizer = trained(autograd_nb, make)
    assert_same_numbers(our_losses, their_losses, lambda: trained(torch, make)[1], rtol=1e-5, atol=1e-6)
    held = [held_by(params, optimizer) for params, _, optimizer in ((ours, None, our_optimizer), (theirs, None, their_optimizer))]
    assert_same_arrays(*held, lambda: held_by(*trained(torch, make)[::2]), rtol=2e-5, atol=2e-6)
    expected, found = their_optimizer.state_dict(), our_optimizer.state_dict()
    assert found["param_groups"] == expected["param_groups"] or "tensor" in make
    assert {k: list(v) for k, v in found["state"].items()} == {k: list(v) for k, v in expected["state"].items()}


def held_by(params, optimizer) -> dict:
    "Parameters and the optimiser's state, as arrays by name."
    state = {f"{k} {name}": value.numpy().copy() for k, held in optimizer.state_dict()["state"].items() for name, value in held.items()}
    return {str(k): array for k, array in enumerate(arrays(params))} | state


@needs_torch
@pytest.mark.parametrize("make", lines(RULES))
def test_float64_and_a_parameter_that_joins_later(make):
    import torch

    theirs, _, _ = trained(torch, make, dtype="float64", unused=1, sizes=((3,), (2, 2), (5,)))
    ours, _, optimizer = trained(autograd_nb, make, dtype="float64", unused=1, sizes=((3,), (2, 2), (5,)))
    agree(arrays(ours), arrays(theirs), rtol=1e-10, atol=1e-12)


@needs_torch
@pytest.mark.parametrize("make", lines(RULES))
def test_printed(make):
    import torch

    assert repr(trained(autograd_nb, make, sizes=((2,),), steps=1)[2]) == repr(trained(torch, make, sizes=((2,),), steps=1)[2])


@needs_torch
@pytest.mark.parametrize("make", [m for m in lines(RULES) if "tensor" not in m])
def test_state_travels_both_ways(make):
    "Five steps in one library, the rest in the other, are as good as all in one."
    import torch

    whole = arrays(trained(torch, make, sizes=((3, 2), (4,)))[0])
    for first, second in ((torch, autograd_nb), (autograd_nb, torch)):
        params, _, optimizer = trained(first, make, sizes=((3, 2), (4,)), steps=5)
        moved = [second.tensor(a.tolist(), requires_grad=True) for a in arrays(params)]
        successor = eval(make, {"params": moved, "torch": second, **vars(second.optim)})
        state = optimizer.state_dict()
        if second is torch:
            state = {"param_groups": state["param_groups"], "state": {k: {n: torch.tensor(v.tolist()) for n, v in held.items()} for k, held in state["state"].items()}}
        successor.load_state_dict(state)
        rng = np.random.default_rng(0)
        for s in ((3, 2), (4,)):
            rng.standard_normal(s)
        factors = [second.tensor(rng.standard_normal(s).tolist()) for s in ((3, 2), (4,))]
        for _ in range(15):
            successor.zero_grad()
            sum(((p * f).sin() + p * p * 0.1).mean() for p, f in zip(moved, factors)).backward()
            successor.step()
        agree(arrays(moved), whole, rtol=2e-5, atol=2e-6)


PROGRAMS = r'''
### groups
w = torch.nn.Parameter(torch.ones(2)); b = torch.nn.Parameter(torch.zeros(1)); frozen = torch.zeros(1)
opt = torch.optim.SGD([{'params': [w], 'lr': 0.5}, {'params': b, 'momentum': 0.9}], lr=0.1)
print(opt)
for _ in range(3):
    opt.zero_grad(); ((w * 2).sum() + (b - 1) ** 2).backward(); opt.step()
print(w, b, opt.state_dict())
opt.add_param_group({'params': [torch.nn.Parameter(torch.ones(1))], 'lr': 3.}); print(len(opt.param_groups), opt.param_groups[2]['lr'])
attempt(lambda: opt.add_param_group({'params': [w]})); attempt(lambda: opt.add_param_group([w]))

### named parameters
net = torch.nn.Linear(2, 1); opt = torch.optim.Adam(net.named_parameters(), lr=0.1); print(opt.param_groups[0]['param_names'], opt.state_dict()['param_groups'])

### zero_grad
w = torch.nn.Parameter(torch.ones(2)); opt = torch.optim.SGD([w], lr=0.1); w.sum().backward(); opt.zero_grad(); print(w.grad); w.sum().backward(); opt.zero_grad(set_to_none=False); print(w.grad); opt.step(); print(w)

### closures
w = torch.nn.Parameter(torch.tensor([3.])); opt = torch.optim.SGD([w], lr=0.1)
def closure():
    opt.zero_grad(); loss = (w ** 2).sum(); loss.backward(); return loss
print([round(opt.step(closure).item(), 4) for _ in range(4)])
with torch.no_grad(): print(opt.step(closure))

### bad arguments
w = torch.nn.Parameter(torch.ones(1))
for f in (lambda: torch.optim.SGD([], lr=1), lambda: torch.optim.SGD(w, lr=1), lambda: torch.optim.SGD([w], lr=-1), lambda: torch.optim.SGD([w], lr=1, momentum=-1), lambda: torch.optim.SGD([w], lr=1, nesterov=True), lambda: torch.optim.SGD([w * 2], lr=1),
          lambda: torch.optim.SGD([3.], lr=1), lambda: torch.optim.Adam([w], betas=(1., .9)), lambda: torch.optim.Adam([w], eps=-1), lambda: torch.optim.SGD([w], lr=1, weight_decay=-1), lambda: torch.optim.SGD({w}, lr=1),
          lambda: torch.optim.Adam([w]).load_state_dict({'state': {}, 'param_groups': []}), lambda: torch.optim.RMSprop([w], alpha=-1), lambda: torch.optim.Adagrad([w], lr_decay=-1), lambda: torch.optim.Optimizer([w], {}).step(),
          lambda: torch.optim.Adam([w]).load_state_dict({'state': {}, 'param_groups': [{'params': [0, 1]}]})): attempt(f)

### an optimiser of one's own
class Halver(torch.optim.Optimizer):
    def __init__(self, params, factor=0.5): super().__init__(params, dict(factor=factor))
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None: continue
                state = self.state[p]; state['count'] = state.get('count', 0) + 1
                p.mul_(group['factor'])
w = torch.nn.Parameter(torch.ones(2)); opt = Halver([w]); w.sum().backward(); opt.step(); opt.step(); print(w, opt.state_dict(), opt)
sched = torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD([w], lr=1.), lambda e: 0.5 ** e); print(sched.get_last_lr())

### step hooks
w = torch.nn.Parameter(torch.ones(1)); opt = torch.optim.SGD([w], lr=1.); w.sum().backward()
a = opt.register_step_pre_hook(lambda o, args, kwargs: print('before', type(o).__name__)); b = opt.register_step_post_hook(lambda o, args, kwargs: print('after', w.item())); opt.step(); a.remove(); opt.step()

### step hooks that replace the arguments
w = torch.nn.Parameter(torch.ones(1)); opt = torch.optim.SGD([w], lr=1.); w.sum().backward()
a = opt.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: print('closure') or w.sum()), kwargs)); print(opt.step()); a.remove()
a = opt.register_step_pre_hook(lambda o, args, kwargs: ((lambda: w.sum(),), kwargs))
try: opt.step()
except AttributeError: print('no optimizer')
a.remove(); print(opt.step(), w)
print(callable(opt.profile_hook_step), torch.optim.lr_scheduler.EPOCH_DEPRECATION_WARNING[:40])

### accumulating gradients
net = torch.nn.Linear(3, 1); opt = torch.optim.AdamW(net.parameters(), lr=0.1)
x = torch.randn(8, 3); y = torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    for part in range(4): (torch.nn.functional.mse_loss(net(x[part * 2:part * 2 + 2]), y[part * 2:part * 2 + 2]) / 4).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.step()
print(net.weight, net.bias)

### frozen and unfrozen
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)); net[0].requires_grad_(False); opt = torch.optim.Adam(net.parameters(), lr=0.1)
for i in range(6):
    if i == 3: net[0].requires_grad_(True)
    opt.zero_grad(); net(torch.ones(1, 2)).sum().backward(); opt.step()
print(net[0].weight, net[1].weight, [s['step'].item() for s in opt.state.values()])

### changing options and state between steps
w = torch.nn.Parameter(torch.tensor([1., 2.])); opt = torch.optim.Adam([w], lr=0.1)
for i in range(6):
    opt.zero_grad(); (w ** 2).sum().backward(); opt.step()
    if i == 1: opt.param_groups[0]['lr'] = 0.5
    if i == 2: opt.state[w]['exp_avg'].zero_()
    if i == 3: opt.state[w]['exp_avg_sq'] = torch.ones(2)
    if i == 4: opt.param_groups[0]['weight_decay'] = 0.1
    print(w)

### version counters
w = torch.nn.Parameter(torch.ones(2)); opt = torch.optim.SGD([w], lr=0.1); v = w._version; y = (w * w).sum(); y.backward(); opt.step(); print(w._version > v)
y = (w * w).sum(); (w * 1).sum().backward(); opt.step(); attempt(y.backward)

### views of parameters see the step
w = torch.nn.Parameter(torch.zeros(2, 3)); u = torch.nn.Parameter(torch.zeros(3)); seen = w.detach()[0]; opt = torch.optim.SGD([w, u], lr=1.); (w.sum() + u.sum()).backward(); opt.step(); print(seen, w.data_ptr() == seen.data_ptr())

### half precision and complex
for dtype in (torch.float16, torch.complex64):
    w = torch.nn.Parameter(torch.tensor([1., 2.]).to(dtype)); u = torch.nn.Parameter(torch.ones(2, 2).to(dtype)); opt = torch.optim.Adam([w, u], lr=0.1)
    for _ in range(3): opt.zero_grad(); ((w * w.conj()).real.sum() + (u * u.conj()).real.sum()).backward(); opt.step()
    print(w, u)

### warnings of schedules
import warnings
w = torch.nn.Parameter(torch.ones(1)); opt = torch.optim.SGD([w], lr=1.); s = torch.optim.lr_scheduler.StepLR(opt, 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always'); s.step()
print([str(c.message)[:60] for c in caught])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always'); s.get_lr()
print([str(c.message)[:60] for c in caught])

### schedules saved and loaded
w = torch.nn.Parameter(torch.ones(1)); opt = torch.optim.SGD([w], lr=1.); s = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
for _ in range(4): opt.step(); s.step()
t = torch.optim.lr_scheduler.CosineAnnealingLR(torch.optim.SGD([w], lr=1.), 10); t.load_state_dict(s.state_dict()); t.optimizer.load_state_dict(opt.state_dict()); t.optimizer.step(); t.step(); opt.step(); s.step(); print(t.get_last_lr(), s.get_last_lr(), s.state_dict()['last_epoch'], s.base_lrs)
attempt(lambda: torch.optim.lr_scheduler.StepLR(3, 2)); attempt(lambda: torch.optim.lr_scheduler.LinearLR(opt, start_factor=0)); attempt(lambda: torch.optim.lr_scheduler.OneCycleLR(opt, 1.)); attempt(lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=2.)); attempt(lambda: torch.optim.lr_scheduler.LambdaLR(opt, [1, 2])); attempt(lambda: torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode='best'))
'''


def programs(text):
    for part in text.split("### ")[1:]:
        name, _, source = part.partition("\n")
        yield pytest.param(source, id=name.replace(" ", "-"))


@needs_torch
@pytest.mark.parametrize("source", list(programs(PROGRAMS)))
def test_program_prints_the_same(source):
    assert_same_output(source)


# Schedules ------------------------------------------------------------------------------------------------------

SCHEDULES = r"""
StepLR(opt, 3)
StepLR(opt, 2, gamma=0.5)
MultiStepLR(opt, [2, 5, 5, 9], gamma=0.3)
ExponentialLR(opt, 0.9)
CosineAnnealingLR(opt, 7)
CosineAnnealingLR(opt, 5, eta_min=0.01)
CosineAnnealingWarmRestarts(opt, 4, T_mult=2, eta_min=0.01)
LambdaLR(opt, lambda e: 0.95 ** e)
LambdaLR(opt, [lambda e: 1 / (1 + e), lambda e: 0.5 ** e])
MultiplicativeLR(opt, lambda e: 0.9 + 0.01 * e)
LinearLR(opt)
LinearLR(opt, start_factor=0.1, end_factor=0.7, total_iters=8)
ConstantLR(opt, 0.5, 4)
PolynomialLR(opt, 8, power=2.0)
OneCycleLR(opt, max_lr=1.0, total_steps=20)
OneCycleLR(opt, max_lr=[1.0, 2.0], epochs=4, steps_per_epoch=5, anneal_strategy='linear', three_phase=True, div_factor=10.)
SequentialLR(opt, [LinearLR(opt, 0.25, total_iters=4), CosineAnnealingLR(opt, 12)], [4])
SequentialLR(opt, [ConstantLR(opt, 0.1, 3), ExponentialLR(opt, 0.8), StepLR(opt, 2)], [3, 8])
"""


@needs_torch
@pytest.mark.parametrize("make", lines(SCHEDULES))
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_schedule(make, kind):
    import torch

    runs = []
    for t in (torch, autograd_nb):
        w, b = (t.nn.Parameter(t.zeros(1)) for _ in range(2))
        opt = getattr(t.optim, kind)([{"params": [w]}, {"params": [b], "lr": 0.3}], lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule = eval(make, {"opt": opt, **vars(t.optim.lr_scheduler)})
            found = []
            for _ in range(18):
                found.append([*schedule.get_last_lr(), *[g.get("momentum", g.get("betas", (0,))[0]) for g in opt.param_groups]])
                opt.step()
                schedule.step()
        runs.append(found)
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-9, atol=1e-15)


@needs_torch
@pytest.mark.parametrize("options", [{}, {"mode": "max"}, {"threshold_mode": "abs", "threshold": 0.2}, {"cooldown": 2, "patience": 1, "min_lr": 0.005}])
def test_reduce_on_plateau(options):
    import torch

    losses = [5, 4, 4.01, 4.0, 3.9999, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    runs = []
    for t in (torch, autograd_nb):
        opt = t.optim.SGD([t.nn.Parameter(t.zeros(1))], lr=0.1)
        schedule = t.optim.lr_scheduler.ReduceLROnPlateau(opt, **{"patience": 2, **options})
        found = []
        for v in losses:
            schedule.step(t.tensor(float(v)))
            found.append((opt.param_groups[0]["lr"], schedule.num_bad_epochs, schedule.best))
        runs.append(found)
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-12)


# Memory layout must not matter ----------------------------------------------------------------------------------


def reference_adam(p, grads, lr=0.01, b1=0.9, b2=0.999, eps=1e-8):
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        p = p - lr / (1 - b1**t) * m / (np.sqrt(v) / math.sqrt(1 - b2**t) + eps)
    return p


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 7, 100, SMALL - 1, SMALL, SMALL + 1, 2 * BLOCK, 2 * BLOCK + 5]), min_size=1, max_size=6), st.booleans(), st.integers(0, 99))
def test_adam_is_the_textbooks_for_any_sizes(sizes, turned, seed):
    "Side by side, alone, in blocks, transposed: every number takes the same step."
    rng = np.random.default_rng(seed)
    start = [rng.standard_normal(n if n < 100 else (1, n)) for n in sizes]
    params = [autograd_nb.from_numpy((a.T.copy().T if turned else a.copy())).requires_grad_() for a in start]
    steps = [[rng.standard_normal(a.shape) for a in start] for _ in range(3)]
    optimizer = autograd_nb.optim.Adam(params, lr=0.01)
    for grads in steps:
        for p, g in zip(params, grads):
            p.grad = autograd_nb.from_numpy(np.asfortranarray(g) if turned else g.copy())
        optimizer.step()
    for i, (p, a) in enumerate(zip(params, start)):
        np.testing.assert_allclose(p.detach().numpy(), reference_adam(a, [s[i] for s in steps]), rtol=1e-9, atol=1e-12)


def test_non_contiguous_parameter():
    base = np.arange(12.0).reshape(3, 4)
    for size in (1, 2):
        params = [autograd_nb.from_numpy(base.copy().T).requires_grad_() for _ in range(size)]
        optimizer = autograd_nb.optim.SGD(params, lr=1.0)
        for p in params:
            p.grad = autograd_nb.from_numpy(np.ascontiguousarray(base.T))
        optimizer.step()
        for p in params:
            assert not p.detach().numpy().any() and not p.detach().numpy().flags.c_contiguous


def test_gradients_are_left_as_they_are():
    for kind in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        for sizes in ((3, 4), (SMALL + 1,)):
            params = [autograd_nb.ones(n, requires_grad=True) for n in sizes]
            for p in params:
                p.grad = autograd_nb.ones(p.shape) * 2
            options = {"weight_decay": 0.1, "maximize": True}
            getattr(autograd_nb.optim, kind)(params, lr=0.1, **options).step()
            assert all((p.grad == 2).all() for p in params)


def test_two_optimisers_share_parameters():
    w = autograd_nb.tensor([1.0, 2.0], requires_grad=True)
    first, second = autograd_nb.optim.SGD([w], lr=0.1), autograd_nb.optim.Adam([w], lr=0.1)
    for optimizer in (first, second, first):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    v = np.array([1.0, 2.0])
    v = v - 0.2 * v
    v = v - 0.1 * np.sign(v)
    v = v - 0.2 * v
    np.testing.assert_allclose(w.tolist(), v, rtol=1e-5)


def test_data_and_dtype_replaced_between_steps():
    net = autograd_nb.nn.Linear(2, 2)
    optimizer = autograd_nb.optim.Adam(net.parameters(), lr=0.1)
    x = autograd_nb.ones(1, 2)
    net(x).sum().backward()
    optimizer.step()
    net.weight.data = autograd_nb.zeros(2, 2)
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(net.weight.detach().numpy(), -0.1 * np.ones((2, 2)), rtol=1e-4)


def test_optimiser_can_be_copied():
    w = autograd_nb.tensor([1.0], requires_grad=True)
    optimizer = autograd_nb.optim.Adam([w], lr=0.1)
    (w * w).sum().backward()
    optimizer.step()
    w2, optimizer2 = copy.deepcopy((w, optimizer))
    for p, o in ((w, optimizer), (w2, optimizer2)):
        o.zero_grad()
        (p * p).sum().backward()
        o.step()
    assert w.item() == w2.item() and optimizer2.param_groups[0]["params"][0] is w2


def test_nothing_is_left_behind():
    "A finished optimiser is freed without the garbage collector."
    import gc
    import weakref

    w = autograd_nb.ones(4, requires_grad=True)
    optimizer = autograd_nb.optim.Adam([w], lr=0.1)
    w.sum().backward()
    optimizer.step()
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_step_written_down_for_saved_values():
    "A step between forward and backward is noticed, with the place where it happened."
    w = autograd_nb.ones(2, requires_grad=True)
    optimizer = autograd_nb.optim.SGD([w], lr=0.1)
    loss = (w * w).sum()
    w.grad = autograd_nb.ones(2)
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"(?s)modified by an inplace operation.*test_optim_parity\.py"):
        loss.backward()


DIFFERENTIABLE = r"""
SGD([p], lr=0.3, momentum=0.9, weight_decay=0.1, dampening=0.1, differentiable=True)
SGD([p], lr=0.3, momentum=0.9, nesterov=True, maximize=True, differentiable=True)
Adam([p], lr=0.3, weight_decay=0.1, differentiable=True)
Adam([p], lr=0.3, amsgrad=True, differentiable=True)
AdamW([p], lr=0.3, weight_decay=0.1, maximize=True, differentiable=True)
RMSprop([p], lr=0.3, momentum=0.5, centered=True, weight_decay=0.1, differentiable=True)
Adagrad([p], lr=0.3, lr_decay=0.1, weight_decay=0.1, differentiable=True)
Adadelta([p], lr=0.3, weight_decay=0.1, differentiable=True)
Adamax([p], lr=0.3, weight_decay=0.1, differentiable=True)
NAdam([p], lr=0.3, weight_decay=0.1, differentiable=True)
NAdam([p], lr=0.3, weight_decay=0.1, decoupled_weight_decay=True, differentiable=True)
RAdam([p], lr=0.3, weight_decay=0.1, betas=(0.5, 0.9), differentiable=True)
ASGD([p], lr=0.3, t0=1, weight_decay=0.1, differentiable=True)
Rprop([p], lr=0.3, differentiable=True)
"""


def through_a_step(t, make, complex_numbers=False):
    "Parameter and state after a third step as functions of parameter, gradient and state before it, with their derivatives."
    rng = np.random.default_rng(1)

    def draw(*shape):
        a = rng.standard_normal(shape)
        return t.tensor((a + 1j * rng.standard_normal(shape)).tolist() if complex_numbers else a.tolist(), requires_grad=True, dtype=t.complex128 if complex_numbers else t.float64)

    start, *grads = draw(4), draw(4), draw(4), draw(4)
    plain = eval(make.replace("differentiable=True", "differentiable=False"), {"p": start, "torch": t, **vars(t.optim)})
    for g in grads[:2]:
        start.grad = g
        plain.step()
    held = {k: v.detach().clone().requires_grad_(v.dim() > 0) for k, v in plain.state[start].items()}
    p = start.clone()
    p.grad = grads[2]
    optimizer = eval(make, {"p": p, "torch": t, **vars(t.optim)})
    optimizer.state[p].update({k: v.clone() for k, v in held.items()})
    optimizer.step()
    state = [v for v in optimizer.state[p].values() if isinstance(v, t.Tensor) and v.requires_grad]
    total = sum((v.abs() ** 2).sum() for v in (p, *state))
    found = t.autograd.grad(total, [start, grads[2], *(v for v in held.values() if v.requires_grad)], allow_unused=True)
    return [np.asarray(v.detach().numpy()) for v in (p, *state)] + [np.zeros(4) if v is None else np.asarray(v.detach().numpy()) for v in found]


@needs_torch
@pytest.mark.parametrize("make", lines(DIFFERENTIABLE))
def test_through_a_step(make):
    import torch

    agree_values(through_a_step(autograd_nb, make), through_a_step(torch, make))


@needs_torch
@pytest.mark.parametrize("make", [m for m in lines(DIFFERENTIABLE) if m.startswith(("SGD", "Adam([", "RMSprop", "Adadelta"))])
def test_through_a_step_of_complex_parameters(make):
    import torch

    agree_values(through_a_step(autograd_nb, make, True), through_a_step(torch, make, True))


def agree_values(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # PyTorch's step counts have 32 bits, and so have its corrections


@pytest.mark.parametrize("make", lines(DIFFERENTIABLE))
def test_recorded_steps_are_the_same_steps(make):
    "`differentiable=True` changes nothing but that the steps are recorded."
    rng = np.random.default_rng(2)
    start, grads = rng.standard_normal(5), rng.standard_normal((4, 5))
    ends = []
    for how in (make, make.replace("differentiable=True", "differentiable=False")):
        leaf = autograd_nb.tensor(start, requires_grad=True)
        p = leaf.clone() if how is make else leaf
        optimizer = eval(how, {"p": p, **vars(autograd_nb.optim)})
        for g in grads:
            p.grad = autograd_nb.tensor(g)
            optimizer.step()
        ends.append((p.detach().numpy(), {k: v.detach().numpy() for k, v in optimizer.state[p].items()}))
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-12)
    assert ends[0][1].keys() == ends[1][1].keys()
    for k, v in ends[0][1].items():
        np.testing.assert_allclose(v, ends[1][1][k], rtol=1e-6)


@needs_torch
@pytest.mark.parametrize("make", ["SGD([p], lr=lr, differentiable=True)", "Adam([p], lr=lr, differentiable=True)", "AdamW([p], lr=lr, weight_decay=wd, differentiable=True)", "Adam([p], lr=0.1, betas=(b1, b2), differentiable=True)"])
def test_options_are_differentiated(make):
    import torch

    found = []
    for t in (autograd_nb, torch):
        options = {k: t.tensor(v, requires_grad=True, dtype=t.float64) for k, v in dict(lr=0.1, wd=0.2, b1=0.8, b2=0.9).items()}
        p = t.tensor([1.0, -2.0, 3.0], dtype=t.float64, requires_grad=True).clone()
        optimizer = eval(make, {"p": p, **options, **vars(t.optim)})
        for g in ([1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]):
            p.grad = t.tensor(g, dtype=t.float64)
            optimizer.step()
        found.append([None if g is None else g.item() for g in t.autograd.grad((p * p).sum(), list(options.values()), allow_unused=True)])
    for a, b in zip(*found):
        assert (a is None) == (b is None) and (a is None or a == pytest.approx(b, rel=1e-4))


def test_a_recorded_step_of_a_leaf_is_refused():
    w = autograd_nb.ones(2, requires_grad=True)
    w.grad = autograd_nb.ones(2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        autograd_nb.optim.SGD([w], lr=0.1, differentiable=True).step()


def quasi_newton(t, dtype, steps=3, state_after=None, **options):
    "Losses and parameters of L-BFGS on a bent valley."
    w = t.tensor([-1.2, 1.0, 0.3], dtype=dtype, requires_grad=True)
    v = t.tensor([[0.5, 2.0]], dtype=dtype, requires_grad=True)
    optimizer = t.optim.LBFGS([w, v], **options)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = ((1 - w[0]) ** 2 + 10 * (w[1] - w[0] ** 2) ** 2 + (w[2] - v[0, 0]).cosh() + ((v - 1) ** 4).sum()) / 10
        loss.backward()
        calls.append(loss.item())
        return loss

    for i in range(steps):
        if i == state_after:
            saved = optimizer.state_dict()
            optimizer = t.optim.LBFGS([w, v], **options)
            optimizer.load_state_dict(saved)
        optimizer.step(closure)
    return calls, w.tolist() + v.flatten().tolist(), optimizer


@needs_torch
@pytest.mark.parametrize("options", [dict(lr=0.1), dict(lr=1, max_iter=4), dict(line_search_fn="strong_wolfe"), dict(line_search_fn="strong_wolfe", history_size=2, max_iter=7), dict(lr=0.5, history_size=1, tolerance_change=1e-3)])
def test_lbfgs(options):
    import torch

    expected, ends, their_optimizer = quasi_newton(torch, torch.float64, **options)
    found, our_ends, optimizer = quasi_newton(autograd_nb, autograd_nb.float64, **options)
    n = min(len(expected), 60)
    assert len(found) == len(expected)
    np.testing.assert_allclose(found[:n], expected[:n], rtol=1e-6)
    np.testing.assert_allclose(our_ends, ends, rtol=1e-4, atol=1e-6)
    assert repr(optimizer) == repr(their_optimizer)
    ours, theirs = optimizer.state_dict()["state"][0], their_optimizer.state_dict()["state"][0]
    assert list(ours) == list(theirs) and ours["func_evals"] == theirs["func_evals"] and ours["n_iter"] == theirs["n_iter"]
    assert [v is None for v in ours["al"]] == [v is None for v in theirs["al"]]
    resumed = quasi_newton(autograd_nb, autograd_nb.float64, state_after=1, **options)[0]
    np.testing.assert_allclose(resumed, found, rtol=1e-12)


def test_lbfgs_wants_one_group_and_a_known_search():
    w = autograd_nb.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="LBFGS doesn't support per-parameter options"):
        autograd_nb.optim.LBFGS([{"params": [w]}, {"params": [autograd_nb.ones(1, requires_grad=True)]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        autograd_nb.optim.LBFGS([w], line_search_fn="newton").step(lambda: (w * w).sum())


@needs_torch
@pytest.mark.parametrize("make", ["Muon(params, lr=0.1)", "Muon(params, lr=0.05, nesterov=False, weight_decay=0.3, adjust_lr_fn='match_rms_adamw')"])
def test_muon(make):
    "In bfloat16, so only nearly the same."
    import torch

    theirs, ours = (trained(t, make, sizes=((6, 4), (3, 5)), steps=5) for t in (torch, autograd_nb))
    agree(arrays(ours[0]), arrays(theirs[0]), rtol=0.05, atol=0.02)
    assert repr(ours[2]) == repr(theirs[2])


@needs_torch
def test_refused_options():
    import torch

    refused = """
        Muon([torch.ones(3)])
        Muon([torch.ones(3, 3)], adjust_lr_fn='x')
        Adafactor([w], lr=-1.)
        Adafactor([w], d=0.5)
        Adafactor([w], beta2_decay=0.8)
        Adafactor([w], eps=(-1, 1e-3))
        Adam([w], betas=(1., .9))
        Adam([w], betas=(.9, -1.))
        Adam([w], betas=(torch.tensor(.9), .9))
        Adam([w], lr=torch.tensor([.1, .2]))
        Adam([w], lr=torch.tensor(.1), foreach=True)
        Adam([w], fused=True, foreach=True)
        Adam([w], fused=True, differentiable=True)
        SGD([w], fused=True, differentiable=True)
        SGD([w], lr=0.1, nesterov=True)
        Adagrad([w], fused=True, foreach=True)
        Adadelta([w], rho=1.1)
        Rprop([w], etas=(1., 1.2))
        ASGD([w], weight_decay=-0.5)
        Adamax([w], betas=(0., 1.))
        NAdam([w], momentum_decay=-0.2)
        NAdam([w], lr=torch.tensor([1., 2.]))
        RAdam([w], weight_decay=-1)
        RAdam([w], eps=-1)
        SGD([w, w], lr=.1).add_param_group(dict(params=w))
        SGD([w * 1], lr=.1)
        SGD([[w]], lr=.1)
        SGD(w, lr=.1)
        SGD([], lr=.1)
        SGD([dict(params={w})], lr=.1)
        SGD([z], lr=.1, fused=True).step()
        Adam([z], fused=True).step()
        AdamW([i], fused=True).step()
        AdamW([i]).step()
        Adagrad([z], fused=True).step()
        Adagrad([i]).step()
    """
    for line in filter(None, map(str.strip, refused.splitlines())):
        said = []
        for t in (torch, autograd_nb):
            with pytest.raises(Exception) as caught, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                z, i = t.ones(2, dtype=t.complex64), t.ones(2, dtype=t.int32)
                z.grad, i.grad = t.ones_like(z), t.ones_like(i)
                eval(line, {"w": t.ones(2, requires_grad=True), "z": z, "i": i, "torch": t, **vars(t.optim)})
            said.append((type(caught.value).__name__, str(caught.value)))
        assert said[1][0] == said[0][0] and said[1][1].startswith(said[0][1]), line


@pytest.mark.needs("torch")
def test_sparse_adam():
    "Rows that were not looked up stay where they are, and so do their averages; other gradients are refused."
    import torch

    import autograd_nb

    def trained(t):
        t.manual_seed(0)
        table, bags = t.nn.Embedding(12, 3, sparse=True), t.nn.EmbeddingBag(12, 3, mode="sum", sparse=True)
        optimizer = t.optim.SparseAdam([*table.parameters(), *bags.parameters()], lr=0.1)
        curve = []
        for _ in range(20):
            x = t.randint(0, 9, (4,))
            optimizer.zero_grad()
            loss = table(x).pow(2).sum() + bags(x[None]).pow(2).sum() + table(x + 1).sum()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        state = optimizer.state_dict()["state"][0]
        return curve, {"step": state["step"], "exp_avg_sq": state["exp_avg_sq"].numpy(), "weight": bags.weight.detach().numpy()}

    ours, theirs = trained(autograd_nb), trained(torch)
    assert_same_numbers(ours[0], theirs[0], lambda: trained(torch)[0], rtol=1e-5)
    assert_same_arrays(ours[1], theirs[1], lambda: trained(torch)[1], rtol=1e-4, atol=1e-6)
    for t in (torch, autograd_nb):
        p = t.nn.Parameter(t.ones(2, 2))
        refusing = t.optim.SparseAdam([p], maximize=True)
        p.sum().backward()
        with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
            refusing.step()
        for wrong in (dict(lr=0), dict(eps=0), dict(betas=(1.0, 0.9))):
            with pytest.raises(ValueError, match="Invalid"):
                t.optim.SparseAdam([p], **wrong)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "Rprop"])
def test_state_lies_as_its_parameter(name):
    import torch

    def trained(library):
        start = library.arange(120.0).reshape(2, 3, 4, 5)
        params = [start.contiguous(memory_format=library.channels_last), start[0].permute(2, 0, 1), start[0, 0]]
        params = [(p / 100).requires_grad_() for p in params]
        optimizer = getattr(library.optim, name)(params, lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
        for _ in range(3):
            optimizer.zero_grad()
            sum((p * p + p).sum() for p in params).backward()
            optimizer.step()
        states = [t for held in optimizer.state.values() for t in held.values()]
        return [(tuple(t.stride()), t.tolist()) for t in [*params, *states]]

    for (strides, values), (found_strides, found) in zip(trained(torch), trained(autograd_nb), strict=True):
        assert found_strides == strides
        np.testing.assert_allclose(found, values, 1e-4, 1e-6)


@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam"])
def test_numbers_as_tensors(name):
    tensor, ends = autograd_nb.tensor, []
    plain = {"momentum_decay": .25} if name == "NAdam" else {}
    for options in (
        {"betas": (.5, .75), **plain},
        {"betas": (tensor(.5), tensor(.75)), **{k: tensor(v) for k, v in plain.items()}},
        {"betas": (tensor(.5), .75), **plain},
    ):
        p = autograd_nb.nn.Parameter(autograd_nb.arange(1., 4))
        optimizer = getattr(autograd_nb.optim, name)([p], **options)
        for _ in range(7):
            optimizer.zero_grad()
            (p**2).sum().backward()
            optimizer.step()
        ends.append(p.tolist())
    assert ends[0] == ends[1] == ends[2] != [1, 2, 3]


@pytest.mark.parametrize("name", "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD Rprop Adafactor".split())
@pytest.mark.parametrize("n", (4, 300, 20000))
def test_gradients_that_are_not_finite(name, n):
    "What is no number reaches the parameters as it does in PyTorch: Rprop takes it for no direction at all."
    import torch

    found = []
    for library in (torch, autograd_nb):
        p = library.nn.Parameter(library.ones(n // 4, 4))
        optimizer = getattr(library.optim, name)([p], lr=0.1)
        for g in ([np.nan, 1.0, np.inf, -np.inf], [1.0, np.nan, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0]):
            p.grad = library.tensor(g).repeat(n // 4, 1)
            optimizer.step()
        found.append(p.detach().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@needs_torch
@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("name", "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD Rprop Adafactor".split())
def test_a_parameter_that_is_named_twice_takes_two_steps(name, foreach):
    import torch

    def ends(t):
        a, b = (t.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = getattr(t.optim, name)([a, b, a], lr=0.1, foreach=foreach)
        for _ in range(3):
            a.grad, b.grad = t.tensor([0.5, 2.0]), t.tensor([1.0, -1.0])
            optimizer.step()
        return a.tolist() + b.tolist()

    np.testing.assert_allclose(ends(autograd_nb), ends(torch), rtol=1e-5)


@needs_torch
@pytest.mark.parametrize("copied", (False, True))
@pytest.mark.parametrize("rule", (
    "SGD momentum", "Adam", "Adam amsgrad", "Adam foreach", "Adam fused", "RMSprop centered", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop",
))  # fmt: skip
def test_optimisers_share_the_state_that_one_has_loaded_from_the_other(rule, copied):
    import torch

    name, *option = rule.split()
    options = {option[0]: 0.9 if option[0] == "momentum" else True} if option else {}

    def rows(library):
        params = [[library.nn.Parameter(library.ones(2, 3) * 0.5)] for _ in "ab"]
        one, other = (getattr(library.optim, name)(p, lr=0.01, **options) for p in params)

        def step(optimiser, factor):
            optimiser.zero_grad()
            p = optimiser.param_groups[0]["params"][0]
            (p**2 * library.arange(6.0).reshape(2, 3) * factor).sum().backward()
            optimiser.step()

        step(one, 1)
        saved = one.state_dict()
        other.load_state_dict(copy.deepcopy(saved) if copied else saved)
        for optimiser, factor in ((other, 2), (other, 3), (one, 4), (other, 5)): step(optimiser, factor)
        states = [*saved["state"].values(), *one.state.values(), *other.state.values()]
        return [np.array(v.tolist()) for s in states for v in s.values()] + [np.array(p[0].tolist()) for p in params]

    for ours, theirs in zip(rows(autograd_nb), rows(torch)): np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
