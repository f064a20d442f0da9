"""What a program does again and again costs the same each time: a turn of a loop leaves nothing in memory."""

import gc
import tracemalloc
import warnings
import weakref

import numpy as np
import pytest
from _custom import Square

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.ops.kernels.compiler import workshop
from autograd_nb.utils.capture import capture
from autograd_nb.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("small_heap")

X, NUMBERS = torch.ones(3, 4), np.ones((3, 4), np.float32)
W, BASE = torch.ones(4, 4, requires_grad=True), torch.ones(8, 4)
LAYER = nn.Linear(4, 4)
ADAM = torch.optim.Adam(LAYER.parameters(), 1e-3)
STATE = torch.ones(3, 4)
TURNS = {}


def turn(f):
    TURNS[f.__name__] = f
    return f


def backward(y):
    y.sum().backward()
    W.grad = None


@turn
def inputs_detached_anew():
    x = X.detach().requires_grad_()
    backward(x * 2)


@turn
def a_state_detached_twice():
    global STATE
    STATE = (STATE * 0.5).detach()
    STATE = STATE.detach()


@turn
def parts_detached():
    x = BASE[0:2].detach().requires_grad_()
    backward(x[:] * 2)


@turn
def data_assigned():
    W.data = W.data - 0.1
    with torch.no_grad(): W.mul_(0.9)


@turn
def views_written():
    with torch.no_grad(): W[0].mul_(0.5)
    BASE[1].add_(1)
    y = W * 1
    y[0] = 2.0
    y[1].mul_(3.0)
    backward(y)


@turn
def hooks_that_go():
    handles = [W.register_hook(lambda g: g * 2), W.register_post_accumulate_grad_hook(lambda p: None)]
    handles += [torch.autograd.graph.register_multi_grad_hook([W], lambda g: None)]
    backward(W * 2)
    for h in handles: h.remove()


@turn
def hooks_of_modules_that_go():
    handles = [LAYER.register_forward_hook(lambda m, i, o: None), LAYER.register_full_backward_hook(lambda *a: None)]
    backward(LAYER(X))
    for h in handles: h.remove()


@turn
def hooks_of_nodes():
    y = W * 2
    y.retain_grad()
    y.grad_fn.register_hook(lambda a, b: None)
    y.grad_fn.register_prehook(lambda a: None)
    backward(y)


@turn
def training():
    ADAM.zero_grad()
    LAYER(X).square().sum().backward()
    nn.utils.clip_grad_norm_(LAYER.parameters(), 1.0)
    ADAM.step()


@turn
def gradients_of_gradients():
    backward(torch.autograd.grad((W**2).sum(), W, create_graph=True)[0])


@turn
def transforms():
    torch.vmap(torch.func.grad(lambda x: (x**2).sum()))(X)
    torch.func.jacrev(lambda x: x**2)(X[0])
    torch.func.jvp(torch.sin, (X,), (X,))
    torch.func.functional_call(LAYER, dict(LAYER.named_parameters()), (X,))


@turn
def custom_functions(): backward(Square.apply(W))


@turn
def checkpoints():
    backward(checkpoint(LAYER, X, use_reentrant=False))
    backward(checkpoint(LAYER, torch.ones(3, 4, requires_grad=True), use_reentrant=True))


@turn
def saved_tensors():
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x): backward(W * W)
    with torch.autograd.graph.save_on_cpu(): backward(W * W)


@turn
def modes():
    with torch.inference_mode(): y = LAYER(X).add_(1)
    y.clone() + 1
    with torch.autocast("cpu", dtype=torch.bfloat16): backward(LAYER(X).float())
    with torch.autograd.detect_anomaly(check_nan=False): backward(W * 2)


@turn
def parameters_that_rest():
    LAYER.weight.requires_grad_(False)
    LAYER(X)
    LAYER.weight.requires_grad_(True)
    backward(LAYER(X))


@turn
def memory_of_numpy():
    torch.from_numpy(NUMBERS).add_(0)
    torch.as_tensor(NUMBERS).mul_(1).numpy()
    np.asarray(X)


@turn
def graphs_walked():
    rest = [(W * 2).sum().grad_fn]
    while rest:
        rest += [n for n, _ in rest.pop().next_functions if n is not None]


@turn
def functions_compiled():
    f = torch.compile(lambda x: (x * 2).sum() + x.std() + x.cumsum(0).prod())
    for _ in range(4): f(X)


@pytest.mark.parametrize("name", TURNS)
def test_a_turn_leaves_nothing(name):
    turn = TURNS[name]

    def taken():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    turns, blocks = 30, []
    with warnings.catch_warnings(action="ignore"):
        for _ in range(40): turn()
        workshop.wait(120)  # what is compiled in the background takes memory, too
        tracemalloc.start()
        try:
            for _ in range(12):
                before = taken()
                for _ in range(turns): turn()
                blocks.append(taken() - before)
                # what is left behind grows in every block; Python's and NumPy's own stores now and then
                if blocks[-1] < 48 * turns: break
            else: pytest.fail(f"bytes in each block: {blocks}")
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("wrap", [lambda step: step, torch.compile, capture], ids=["plain", "compile", "capture"])
def test_a_model_goes_with_its_compiled_step(wrap):
    def trained():
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Softmax(-1), nn.Linear(8, 2))
        opt = torch.optim.Adam(model.parameters())

        def step(x):
            opt.zero_grad()
            y = model(x)
            loss = (y**2).mean() + y.std() + y.logsumexp(1).sum() + y.cumsum(0).prod()
            loss.backward()
            opt.step()
            return loss

        wrapped = wrap(step)
        for _ in range(5): wrapped(torch.ones(3, 4))
        return weakref.ref(model), *map(weakref.ref, model.parameters())

    known = trained()
    gc.collect()
    assert all(ref() is None for ref in known)
