"""Several threads at once, each with its modes, on graphs of its own or on shared leaves, without lost gradients; and backward passes within backward passes."""

import contextlib
import contextvars
import gc
import sys
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from _compare import assert_same_output, programs

import autograd_nb as torch
from autograd_nb.autograd import grad


@pytest.fixture(autouse=True)
def switch_often():
    "Let the interpreter change threads as often as it can."
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(function, n=4):
    "Run `function(number)` in n threads that start at the same moment; the first failure is raised here."
    barrier, failures, results = threading.Barrier(n), [], [None] * n

    def run(k):
        try:
            barrier.wait()
            results[k] = function(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if failures:
        raise failures[0]
    return results


def test_separate_graphs():
    def work(k):
        x = torch.full((10,), float(k + 1), dtype=torch.float64, requires_grad=True)
        for _ in range(100):
            x.grad = None
            y = x
            for _ in range(10):
                y = (y * x).tanh() + x
            (y.sum() * 0 + (x**3).sum()).backward()
            np.testing.assert_allclose(x.grad.numpy(), 3 * (k + 1.0) ** 2)

    together(work)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("size", [1, 1000])
def test_shared_leaf_loses_no_gradient(hooked, size):
    w = torch.ones(size, dtype=torch.float64, requires_grad=True)
    if hooked:
        w.register_hook(lambda g: g * 1)

    def work(k):
        for _ in range(300):
            (w * 2).sum().backward()

    together(work)
    assert w.grad.numpy().tolist() == [4 * 300 * 2] * size


def test_shared_leaf_read_while_it_grows():
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def work(k):
        for _ in range(300):
            (w * 1).sum().backward()
            assert w.grad is not None

    together(work)
    assert w.grad.numpy().tolist() == [1200.0] * 3


def test_same_graph_walked_by_several_threads():
    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(50):
        y = y * 1.0 + x * 0.1

    def work(k):
        return [grad(y, x, retain_graph=True)[0].item() for _ in range(20)]

    for found in together(work):
        assert found == pytest.approx([6.0] * 20)


def test_graph_of_one_thread_is_walked_by_another():
    x = torch.tensor([3.0], requires_grad=True)
    y = (x * x).sum()
    together(lambda k: y.backward(), n=1)
    assert x.grad.item() == 6


def test_modes_belong_to_their_thread():
    x = torch.ones(2, requires_grad=True)
    steps = threading.Barrier(2)

    def work(k):
        if k == 0:
            with torch.no_grad():
                steps.wait()
                quiet = (x * 2).requires_grad
                steps.wait()
            return quiet, (x * 2).requires_grad
        steps.wait()
        seen = torch.is_grad_enabled(), (x * 2).requires_grad, (x.exp() * 2).requires_grad
        steps.wait()
        return seen

    assert together(work, n=2) == [(False, True), (True, True, True)]


def test_new_threads_start_in_the_default_modes():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert together(lambda k: (x * 2).requires_grad and torch.is_grad_enabled(), n=2) == [True, True]
    with torch.inference_mode():
        assert together(lambda k: torch.is_inference_mode_enabled(), n=1) == [False]


def test_a_thread_that_dies_inside_a_mode_disturbs_nobody():
    x = torch.ones(2, requires_grad=True)

    def work(k):
        torch.set_grad_enabled(False)
        mode = torch.no_grad()
        mode.__enter__()

    together(work)
    assert torch.is_grad_enabled() and (x * 2).requires_grad


def test_one_mode_instance_in_several_threads():
    mode = torch.no_grad()
    x = torch.ones(2, requires_grad=True)

    @torch.no_grad()
    def quiet():
        return (x * 2).requires_grad

    def work(k):
        for _ in range(200):
            with mode:
                assert not (x * 2).requires_grad
            assert (x * 2).requires_grad and not quiet()

    together(work)
    assert torch.is_grad_enabled()


def test_in_place_writes_and_versions():
    "Writes into separate storages from several threads: every count is exact."

    def work(k):
        t = torch.zeros(3)
        for _ in range(500):
            t.add_(1)
        return t._version, t.tolist()

    assert together(work) == [(500, [500.0] * 3)] * 4


def test_training_data_parallel_by_hand():
    "Each thread takes a part of the batch; the sum of gradients is that of the whole batch."
    torch.manual_seed(0)
    x, w = torch.randn(40, 5, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    (torch.tanh(x @ w) ** 2).sum().backward()
    whole, w.grad = w.grad, None
    for _ in range(20):
        together(lambda k: (torch.tanh(x[k * 10 : k * 10 + 10] @ w) ** 2).sum().backward())
        np.testing.assert_allclose(w.grad.numpy(), whole.numpy(), rtol=1e-12)
        w.grad = None


def test_default_generator_is_shared_without_repeats():
    torch.manual_seed(0)
    drawn = together(lambda k: [torch.rand(4).tolist() for _ in range(100)])
    rows = [tuple(r) for part in drawn for r in part]
    assert len(set(rows)) == len(rows)


def test_custom_functions_and_hooks_in_threads():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            ctx.save_for_backward(x)
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k + 0 * ctx.saved_tensors[0], None

    def work(k):
        x = torch.ones(2, requires_grad=True)
        seen = []
        for _ in range(100):
            y = Scale.apply(x, float(k))
            y.register_hook(lambda g: seen.append(g[0].item()))
            y.sum().backward()
        return x.grad[0].item(), len(seen)

    assert together(work) == [(100.0 * k, 100) for k in range(4)]


def test_failures_stay_in_their_thread():
    def work(k):
        x = torch.ones(2, requires_grad=True)
        for _ in range(50):
            y = x.exp()
            if k % 2:
                y.add_(1)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    y.sum().backward()
            else:
                y.sum().backward()
            assert torch.is_grad_enabled()

    together(work)


def test_hooks_of_a_shared_leaf_run_for_every_pass():
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)
    seen, after = [], []
    w.register_hook(lambda g: seen.append(threading.get_ident()))
    w.register_post_accumulate_grad_hook(lambda t: after.append(threading.get_ident()))
    idents = together(lambda k: ([(w * 2).sum().backward() for _ in range(100)], threading.get_ident())[1])
    assert sorted(seen) == sorted(after) == sorted(100 * idents)
    assert w.grad.numpy().tolist() == [800.0, 800.0]


def test_hooks_come_and_go_while_others_run():
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)

    def work(k):
        for _ in range(200):
            if k % 2:
                with w.register_hook(lambda g: g * 1):
                    pass
            else:
                (w * 1).sum().backward()

    together(work)
    assert w.grad.numpy().tolist() == [400.0, 400.0]


def test_accumulating_with_create_graph_from_several_threads():
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)

    @torch.no_grad()
    def clear():
        w.grad = None

    together(lambda k: [(w * w).sum().backward(create_graph=True) for _ in range(50)])
    assert w.grad.detach().numpy().tolist() == [400.0, 400.0]
    clear()


def test_threads_within_backward():
    "A thread started by a custom function's backward runs passes of its own, also over leaves of the outer pass."
    w = torch.ones(2, dtype=torch.float64, requires_grad=True)

    class Starts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            assert not torch.is_grad_enabled()
            together(lambda k: (w * 3).sum().backward(), 2)
            return g

    Starts.apply(w * 1).sum().backward()
    assert w.grad.numpy().tolist() == [7.0, 7.0]


def test_anomaly_detection_is_seen_by_all_threads():
    x = torch.zeros(2, requires_grad=True)

    def work(k):
        y = (x.sqrt() * 0).sum()
        with pytest.warns(UserWarning) if k == 0 else contextlib.nullcontext(), pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
            y.backward()

    with np.errstate(all="ignore"), torch.autograd.set_detect_anomaly(True):
        together(work, 1)


def test_an_error_keeps_the_line_that_raised_it():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ValueError("something")

    def work(k):
        try:
            Fails.apply(torch.ones(2, requires_grad=True)).sum().backward()
        except ValueError:
            return traceback.format_exc()

    assert all('raise ValueError("something")' in text for text in together(work))


# Backward within backward --------------------------------------------------------------------------------------


class Deeper(torch.autograd.Function):
    """The identity; its backward pass runs another one, and so on, as many as the number says."""

    at_the_bottom = staticmethod(lambda: None)

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx, g):
        if ctx.x < 0:
            Deeper.at_the_bottom()
            return g
        with torch.enable_grad():
            Deeper.apply(ctx.x).sum().backward()
        return g


@pytest.mark.parametrize("depth", [1000, 5000])
def test_deep_nesting_does_not_exhaust_the_stack(depth):
    limit, threads = sys.getrecursionlimit(), threading.active_count()
    for n in (depth, depth / 10):
        x = torch.tensor(float(n), requires_grad=True)
        Deeper.apply(x).backward()
        assert x.grad.item() == 1
    assert sys.getrecursionlimit() == limit and threading.active_count() == threads


def test_an_error_comes_up_from_the_depth(monkeypatch):
    def fail():
        raise KeyError("from below")

    monkeypatch.setattr(Deeper, "at_the_bottom", staticmethod(fail))
    x = torch.tensor(600.0, requires_grad=True)
    with pytest.raises(KeyError, match="from below") as caught:
        Deeper.apply(x).backward()
    assert x.grad is None and torch.is_grad_enabled()
    assert any(line.name == "fail" for line in caught.traceback)
    (x * 2).backward()
    assert x.grad.item() == 2


def test_the_depth_has_the_modes_and_context_of_the_surface(monkeypatch):
    seen, variable = [], contextvars.ContextVar("variable", default="default")
    monkeypatch.setattr(Deeper, "at_the_bottom", staticmethod(lambda: seen.append((threading.get_ident(), torch.is_grad_enabled(), variable.get(), (leaf * 2).requires_grad))))
    leaf, packed = torch.ones(1, requires_grad=True), []
    token = variable.set("set")
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t):
            Deeper.apply(torch.tensor(500.0, requires_grad=True)).backward()
            leaf.exp()
    finally:
        variable.reset(token)
    assert seen[0][1:] == (False, "set", False) and seen[0][0] != threading.get_ident()
    assert packed and torch.is_grad_enabled()


def test_deep_nesting_in_several_threads():
    def work(k):
        x = torch.tensor(300.0 + k, requires_grad=True)
        Deeper.apply(x).backward()
        return x.grad.item()

    assert together(work) == [1.0] * 4


def test_deep_nesting_leaves_nothing_behind():
    gc.collect()
    gc.disable()
    try:
        x = torch.tensor(300.0, requires_grad=True)
        y = Deeper.apply(x)
        ends = [weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.x), weakref.ref(x)]
        y.backward()
        del x, y
        assert [end() for end in ends] == [None] * 3
    finally:
        gc.enable()


PROGRAMS = programs("nested_backward") | programs("engine_state") | programs("threads_and_leaks")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_print_the_same(program):
    with ThreadPoolExecutor(1) as thread:  # what a program sets in its thread ends with it
        assert thread.submit(assert_same_output, program).result()
