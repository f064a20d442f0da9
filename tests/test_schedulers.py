"""Schedules and averaged weights: the same rates, states, errors and warnings as PyTorch's, epoch by epoch."""

import copy
import warnings

import numpy as np
import pytest

import autograd_nb

pytestmark = pytest.mark.needs("torch")

SCHEDULES = r"""
StepLR(o, 3)
StepLR(o, step_size=2, gamma=0.5)
MultiStepLR(o, [2, 5, 5, 9], gamma=0.3)
ConstantLR(o, factor=0.25, total_iters=4)
LinearLR(o, start_factor=0.2, end_factor=0.9, total_iters=5)
ExponentialLR(o, 0.8)
PolynomialLR(o, total_iters=6, power=0.9)
CosineAnnealingLR(o, T_max=5, eta_min=0.01)
CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.01)
CyclicLR(o, 0.1, 0.5, step_size_up=3, step_size_down=2)
CyclicLR(o, [0.1, 0.2], [0.5, 0.6], step_size_up=3, mode='triangular2', base_momentum=[0.5, 0.6])
CyclicLR(o, 0.1, 0.5, step_size_up=2, mode='exp_range', gamma=0.9)
CyclicLR(o, 0.1, 0.5, step_size_up=4, scale_fn=lambda k: 1 / (5 * k + 1), scale_mode='iterations', cycle_momentum=False)
OneCycleLR(o, max_lr=0.5, total_steps=21)
OneCycleLR(o, max_lr=[0.5, 0.6], epochs=3, steps_per_epoch=7, anneal_strategy='linear', pct_start=0.4)
OneCycleLR(o, max_lr=0.5, total_steps=21, three_phase=True, cycle_momentum=False)
LambdaLR(o, lambda e: 0.9 ** e)
LambdaLR(o, [lambda e: 0.9 ** e, lambda e: 1 / (e + 1)])
MultiplicativeLR(o, lambda e: 0.95)
SequentialLR(o, [ConstantLR(o, 0.1, 3), ExponentialLR(o, 0.9)], milestones=[4])
SequentialLR(o, [LinearLR(o, 0.1, total_iters=3), CosineAnnealingLR(o, 6), StepLR(o, 2)], milestones=[3, 9])
SequentialLR(o, [ChainedScheduler([ConstantLR(o, 0.1, 3), StepLR(o, 2)]), ExponentialLR(o, 0.9)], milestones=[5])
ChainedScheduler([ConstantLR(o, factor=0.1, total_iters=4), ExponentialLR(o, gamma=0.9)])
ChainedScheduler([StepLR(o, 3), MultiStepLR(o, [2, 4]), CosineAnnealingLR(o, 5)], optimizer=o)
SWALR(o, swa_lr=0.05, anneal_epochs=4)
SWALR(o, swa_lr=[0.05, 0.01], anneal_epochs=5, anneal_strategy='linear')
SWALR(o, swa_lr=0.05, anneal_epochs=0)
"""


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def optimizer_of(t, tensor_rates=False, kind="SGD"):
    groups = [{"params": [t.ones(2, requires_grad=True)], "lr": 0.3}, {"params": [t.ones(1, requires_grad=True)], "lr": 0.7}]
    if tensor_rates:
        for g in groups:
            g["lr"] = t.tensor(g["lr"])
    return getattr(t.optim, kind)(groups, lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))


def names(t, o):
    return {"o": o, "torch": t, **vars(t.optim.lr_scheduler), "SWALR": t.optim.swa_utils.SWALR}


def plain(value):
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def momenta(o):
    return [g["betas"][0] if "betas" in g else g.get("momentum", 0) for g in o.param_groups]


def walk(t, make, epochs=20, stop=None, **options):
    "Rates and momenta of each epoch; with `stop`, state is carried over into a fresh schedule after that many."
    o = optimizer_of(t, **options)
    s = eval(make, names(t, o))
    out = []
    for epoch in range(epochs):
        if epoch == stop:
            held, rates = copy.deepcopy(s.state_dict()), copy.deepcopy(o.state_dict())
            o = optimizer_of(t, **options)
            s = eval(make, names(t, o))
            o.load_state_dict(rates)
            s.load_state_dict(held)
        assert plain(s.get_last_lr()) == pytest.approx([plain(g["lr"]) for g in o.param_groups])
        out.append([*plain([g["lr"] for g in o.param_groups]), *plain(momenta(o))])
        o.step()
        s.step()
    return out, s


@pytest.mark.parametrize("make", lines(SCHEDULES))
def test_rates(make):
    import torch

    found, schedule = walk(autograd_nb, make)
    expected, theirs = walk(torch, make)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(walk(autograd_nb, make, stop=7)[0], expected, rtol=1e-9, atol=1e-12)
    state, ours = theirs.state_dict(), schedule.state_dict()
    assert set(state) <= set(ours) | {"anneal_func", "_anneal_func_type", "_scale_fn_ref"}
    told = ("_step_count", "_is_initial", "_get_lr_called_within_step", "last_epoch")
    assert [ours.get(k) for k in told] == [state.get(k) for k in told]


@pytest.mark.parametrize("make", [m for m in lines(SCHEDULES) if "SWALR" not in m])
@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_rates_held_in_tensors(make, kind):
    "The tensors stay the same objects, and change in place."
    import torch

    o = optimizer_of(autograd_nb, True, kind)
    held = [g["lr"] for g in o.param_groups]
    s = eval(make, names(autograd_nb, o))
    for _ in range(4):
        o.step()
        s.step()
    assert all(a is g["lr"] for a, g in zip(held, o.param_groups))
    assert all(a is not b for a, b in zip(s.get_last_lr(), held))
    np.testing.assert_allclose(walk(autograd_nb, make, tensor_rates=True, kind=kind)[0], walk(torch, make, tensor_rates=True, kind=kind)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [m for m in lines(SCHEDULES) if m.startswith(("StepLR", "MultiStep", "Constant", "Linear", "Exponential", "Polynomial", "CosineAnnealingLR"))])
def test_closed_forms(make):
    import torch

    out = []
    for t in (autograd_nb, torch):
        o = optimizer_of(t)
        s = eval(make, names(t, o))
        o.step()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            rates = []
            for epoch in (1, 4, 2, 7):
                s.step(epoch)
                rates.append(s.get_last_lr())
        out.append((rates, sorted({str(w.message) for w in said})))
    np.testing.assert_allclose(out[0][0], out[1][0], rtol=1e-9)
    assert out[0][1] == out[1][1]


@pytest.mark.parametrize("options", [{}, dict(mode="max", factor=0.5, patience=1), dict(patience=0, cooldown=2, min_lr=[0.01, 0.2]), dict(patience=1, threshold=0.1, threshold_mode="abs"), dict(patience=2, threshold=0.05, factor=0.3, eps=0.1)])
def test_plateau(options):
    import torch

    measures = [1.0, 0.9, 0.9, 0.91, 0.85, 0.85, 0.85, 0.86, 0.84, 0.5, 0.5, 0.5, 0.5, 0.49, 0.49, 0.49, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    out = []
    for t in (autograd_nb, torch):
        o = optimizer_of(t)
        s = t.optim.lr_scheduler.ReduceLROnPlateau(o, **options)
        rates = []
        for i, m in enumerate(measures):
            if i == 9:
                held, s = s.state_dict(), t.optim.lr_scheduler.ReduceLROnPlateau(o, **options)
                s.load_state_dict(held)
            o.step()
            s.step(t.tensor(m) if i % 2 else m)
            rates.append([*s.get_last_lr(), s.num_bad_epochs, s.best, s.last_epoch])
        out.append(rates)
    np.testing.assert_allclose(out[0], out[1], rtol=1e-6)


REFUSED = r"""
StepLR(None, 3)
ReduceLROnPlateau(object())
ReduceLROnPlateau(o, factor=1.)
ReduceLROnPlateau(o, mode='least')
ReduceLROnPlateau(o, threshold_mode='x')
ReduceLROnPlateau(o, min_lr=[0.1])
ConstantLR(o, factor=1.5)
LinearLR(o, start_factor=0)
LinearLR(o, end_factor=2)
CosineAnnealingWarmRestarts(o, T_0=-1)
CosineAnnealingWarmRestarts(o, T_0=2, T_mult=0)
CosineAnnealingWarmRestarts(o, T_0=2).step(-1)
CyclicLR(o, [0.1], 0.5)
CyclicLR(o, 0.1, 0.5, mode='square')
CyclicLR(rmsprop, 0.1, 0.5)
CyclicLR(adagrad, 0.1, 0.5)
OneCycleLR(adagrad, 0.1, total_steps=3)
OneCycleLR(o, 0.1)
OneCycleLR(o, 0.1, total_steps=0)
OneCycleLR(o, 0.1, epochs=-1, steps_per_epoch=2)
OneCycleLR(o, 0.1, total_steps=3, pct_start=1.5)
OneCycleLR(o, 0.1, total_steps=3, anneal_strategy='x')
OneCycleLR(o, [0.1, 0.2, 0.3], total_steps=3)
LambdaLR(o, [lambda e: 1])
StepLR(o, 3, last_epoch=2)
SequentialLR(o, [], [])
SequentialLR(o, [StepLR(o, 3)], [3])
SequentialLR(o, [ReduceLROnPlateau(o)], [])
ChainedScheduler([])
ChainedScheduler([ReduceLROnPlateau(o)])
ChainedScheduler([object()], o)
SWALR(o, 0.1, anneal_strategy='x')
SWALR(o, 0.1, anneal_epochs=-1)
SWALR(o, 0.1, anneal_epochs=1.5)
SWALR(o, [0.1])
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_refused(line):
    import torch

    said = []
    for t in (torch, autograd_nb):
        extra = {"rmsprop": t.optim.RMSprop([t.ones(1, requires_grad=True)]), "adagrad": t.optim.Adagrad([t.ones(1, requires_grad=True)])}
        try:
            eval(line, {**names(t, optimizer_of(t)), **extra})
        except Exception as error:
            said.append((type(error).__name__, str(error)))
        else:
            said.append(None)
    assert said[0] == said[1]


PATTERNS = {
    "old order": "s = StepLR(o, 3)\nfor _ in range(3):\n    s.step(); o.step()",
    "right order": "s = StepLR(o, 3)\nfor _ in range(3):\n    o.step(); s.step()",
    "never stepped": "s = StepLR(o, 3)\nfor _ in range(3):\n    s.step()",
    "overridden after": "s = StepLR(o, 3)\nold = o.step\no.step = types.MethodType(lambda self: old(), o)\nfor _ in range(2):\n    o.step(); s.step()",
    "overridden before": "old = o.step\no.step = types.MethodType(lambda self: None, o)\ns = StepLR(o, 3)\nfor _ in range(2):\n    o.step(); s.step()",
    "overridden before, old order": "old = o.step\no.step = types.MethodType(lambda self: None, o)\ns = StepLR(o, 3)\nfor _ in range(2):\n    s.step(); o.step()",
    "two schedules": "s = StepLR(o, 3); r = ExponentialLR(o, 0.5)\nfor _ in range(2):\n    o.step(); s.step(); r.step()",
    "get_lr by hand": "s = ExponentialLR(o, 0.5)\ns.get_lr()",
    "resumed": "s = StepLR(o, 3)\nfor _ in range(3):\n    o.step(); s.step()\nr = StepLR(o, 3, last_epoch=2)\nfor _ in range(2):\n    r.step(); o.step()",
    "too far": "s = OneCycleLR(o, 0.1, total_steps=3)\nfor _ in range(5):\n    o.step(); s.step()",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_warnings(pattern):
    import types

    import torch

    said = []
    for t in (torch, autograd_nb):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                exec(PATTERNS[pattern], {**names(t, optimizer_of(t)), "types": types})
            except ValueError as error:
                warnings.warn(str(error), stacklevel=1)
        said.append([(w.category.__name__, str(w.message)) for w in caught])
    assert said[0] == said[1]


def test_a_schedule_of_ones_own():
    "Subclasses define `get_lr` and find what PyTorch's have."
    import torch

    out = []
    for t in (torch, autograd_nb):

        class Halving(t.optim.lr_scheduler.LRScheduler):
            def get_lr(self):
                assert self._get_lr_called_within_step
                return [base * 0.5**self.last_epoch for base in self.base_lrs]

        o = optimizer_of(t)
        s = Halving(o)
        for _ in range(3):
            o.step()
            s.step()
        out.append(s.get_last_lr())
    assert out[0] == out[1]


@pytest.mark.parametrize("how", ["AveragedModel(net)", "AveragedModel(net, use_buffers=True)", "AveragedModel(net, avg_fn=lambda a, p, n: 0.9 * a + 0.1 * p)", "AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))",
                                 "AveragedModel(net, avg_fn=get_ema_avg_fn(0.8))", "AveragedModel(net, multi_avg_fn=get_swa_multi_avg_fn())", "AveragedModel(net, avg_fn=get_swa_avg_fn())"])
def test_averaged_models(how):
    import torch

    out = []
    for t in (torch, autograd_nb):
        t.manual_seed(0)
        net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.ReLU(), t.nn.Linear(4, 2))
        averaged = eval(how, {"net": net, **vars(t.optim.swa_utils)})
        o = t.optim.SGD(net.parameters(), lr=0.1)
        x = t.randn(16, 3)
        for _ in range(5):
            o.zero_grad()
            (net(x) ** 2).mean().backward()
            o.step()
            averaged.update_parameters(net)
        t.optim.swa_utils.update_bn([x[:8], x[8:]], averaged)
        state = averaged.state_dict()
        out.append((list(state), [np.asarray(v.numpy(), float) for v in state.values()], averaged(x).detach().numpy(), averaged.training))
    assert out[0][0] == out[1][0] and out[0][3] == out[1][3]
    for a, b in zip(out[0][1] + [out[0][2]], out[1][1] + [out[1][2]]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_averaging_refuses():
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn should be provided"):
        autograd_nb.optim.swa_utils.AveragedModel(autograd_nb.nn.Linear(1, 1), avg_fn=abs, multi_avg_fn=abs)
    with pytest.raises(ValueError, match="Invalid decay value 2"):
        autograd_nb.optim.swa_utils.get_ema_avg_fn(2)


def test_former_name_is_a_class_of_its_own():
    "Classes derived from `_LRScheduler` are schedulers; those of this library are not derived from it."
    schedules = autograd_nb.optim.lr_scheduler
    assert issubclass(schedules._LRScheduler, schedules.LRScheduler)
    assert not issubclass(schedules.StepLR, schedules._LRScheduler)
    assert schedules._LRScheduler.__name__ == "_LRScheduler"


GROWN = """
StepLR(o, 2)
MultiStepLR(o, [1])
ExponentialLR(o, 0.9)
CosineAnnealingWarmRestarts(o, 2)
LinearLR(o)
ConstantLR(o)
PolynomialLR(o)
LambdaLR(o, lambda e: 0.9)
MultiplicativeLR(o, lambda e: 0.9)
CyclicLR(o, 0.01, 0.1, cycle_momentum=False)
ReduceLROnPlateau(o)
"""


@pytest.mark.parametrize("make", lines(GROWN))
def test_groups_added_after_the_schedule(make):
    import torch

    def told(t):
        o = optimizer_of(t)
        s = eval(make, names(t, o))
        o.add_param_group({"params": [t.ones(2, requires_grad=True)], "lr": 0.2})
        try:
            s.step(*([1.0] if "Plateau" in make else []))
        except ValueError as error:
            return str(error)
        return [round(g["lr"], 6) for g in o.param_groups]

    assert told(autograd_nb) == told(torch)


@pytest.mark.parametrize("make", [m for m in lines(SCHEDULES) if "SWALR" not in m])
def test_states_list_their_entries_in_the_same_order(make):
    import torch

    ours, theirs = (list(eval(make, names(t, optimizer_of(t))).state_dict()) for t in (autograd_nb, torch))
    assert ours == theirs


def test_a_step_that_fails_was_called():
    "The schedule does not say that it was stepped first."

    def fail():
        raise KeyError("closure")

    o = autograd_nb.optim.LBFGS([autograd_nb.ones(1, requires_grad=True)])
    schedule = autograd_nb.optim.lr_scheduler.ExponentialLR(o, 0.5)
    with pytest.raises(KeyError):
        o.step(fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()


def test_functions_of_many_averages_get_one_dtype_at_a_time():
    import torch

    def asked(t):
        log = []

        def average(averages, nows, n):
            log.append((sorted({str(a.dtype).split(".")[1] for a in (*averages, *nows)}), len(averages), int(n)))

        net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.Linear(4, 2).double())
        averaged = t.optim.swa_utils.AveragedModel(net, multi_avg_fn=average, use_buffers=True)
        for _ in range(3):
            averaged.update_parameters(net)
        return sorted(log)

    assert asked(autograd_nb) == asked(torch)
