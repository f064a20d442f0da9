"""Grad mode, inference mode and their kin: as context managers and decorators, per thread, and what they leave on tensors; in the end the same programs under PyTorch."""

import gc
import threading
import weakref

import pytest
from _compare import assert_same_output, programs

import autograd_nb as torch
from autograd_nb.autograd import grad_mode
from autograd_nb.graph.modes import LOCAL, SWITCH
from autograd_nb.layers.observers import observe


@pytest.fixture(autouse=True)
def modes_are_left_as_found():
    yield
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not LOCAL.modes.general


# Context managers and decorators ---------------------------------------------------------------------------------

MODES = {
    "no_grad": (lambda: torch.no_grad(), False, False),
    "enable_grad": (lambda: torch.enable_grad(), True, False),
    "set_grad_enabled": (lambda: torch.set_grad_enabled(False), False, False),
    "inference_mode": (lambda: torch.inference_mode(), False, True),
    "inference_mode off": (lambda: torch.inference_mode(False), True, False),
}


def state():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@pytest.mark.parametrize("make, recording, inference", MODES.values(), ids=MODES)
def test_a_mode_holds_inside_and_ends(make, recording, inference):
    with make():
        assert state() == (recording, inference)
    assert state() == (True, False)
    with pytest.raises(KeyError), make():
        raise KeyError
    assert state() == (True, False)


@pytest.mark.parametrize("make, recording, inference", MODES.values(), ids=MODES)
def test_a_decorated_function_runs_in_the_mode_each_time(make, recording, inference):
    @make()
    def nested(depth):
        "Says what it sees."
        return [state()] + (nested(depth - 1) if depth else [])

    assert state() == (True, False), "decorating changes nothing by itself"
    assert nested(2) == [(recording, inference)] * 3
    assert nested.__name__ == "nested" and nested.__doc__ == "Says what it sees."
    assert state() == (True, False)


@pytest.mark.parametrize("make, recording, inference", MODES.values(), ids=MODES)
def test_a_generator_holds_the_mode_only_while_it_runs(make, recording, inference):
    @make()
    def counting():
        seen = []
        try:
            got = yield state()
            while True:
                seen.append((got, state()))
                try:
                    got = yield state()
                except LookupError:
                    return seen
        finally:
            seen.append(state())

    run = counting()
    assert next(run) == (recording, inference) and state() == (True, False)
    assert run.send("a") == (recording, inference) and state() == (True, False)
    with pytest.raises(StopIteration) as stop:
        run.throw(KeyError())
    assert stop.value.value == [("a", (recording, inference)), (recording, inference)]
    other = counting()
    next(other)
    other.close()
    assert state() == (True, False)


def test_a_decorated_class_is_a_function_that_makes_objects_in_the_mode():
    class Thing:
        def __init__(self):
            self.recording = torch.is_grad_enabled()

    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        make = torch.no_grad()(Thing)
    assert not isinstance(make, type) and isinstance(make(), Thing) and make().recording is False


def test_one_instance_can_be_entered_while_it_is_active():
    mode = torch.no_grad()
    with mode:
        with torch.enable_grad():
            with mode:
                assert not torch.is_grad_enabled()
            assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_modes_belong_to_their_thread_and_end_with_it():
    seen = []

    def other():
        seen.append(state())
        torch.set_grad_enabled(False)

    with torch.inference_mode():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    del thread
    gc.collect()
    assert seen == [(True, False)] and state() == (True, False)


def test_the_fast_path_is_free_again_when_all_modes_have_ended():
    plain = SWITCH.plain
    with torch.no_grad(), torch.inference_mode(), observe(lambda applied: None):
        assert not SWITCH.plain
    assert SWITCH.plain == plain


# Inference tensors -----------------------------------------------------------------------------------------------


def made_in_inference_mode(values=(1.0, 2.0), **options):
    with torch.inference_mode():
        return torch.tensor(list(values), **options)


def test_inference_tensors_refuse_the_graph_and_say_what_to_do():
    y = made_in_inference_mode()
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"(?s)Inference tensors cannot be saved for backward.*clone\(\)"):
        x * y
    with pytest.raises(RuntimeError, match=r"(?s)Inplace update to inference tensor outside InferenceMode.*clone\(\)"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode"):
        y.requires_grad_()
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        y._version
    assert y.tolist() == [1.0, 2.0], "nothing was written"
    (x + y).sum().backward()
    (x * y.clone()).sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]


def test_an_inference_leaf_takes_part_where_nothing_of_it_is_saved():
    y = made_in_inference_mode(requires_grad=True)
    x = torch.ones(2, requires_grad=True)
    assert not (y * y).requires_grad and not (y * y).is_inference()
    (x + y).sum().backward()
    assert y.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        x * y
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        y * x


@pytest.mark.parametrize("mode, words", [(torch.no_grad, "A view was created in no_grad mode"), (torch.inference_mode, "A view was created in inference mode")])
def test_a_view_whose_making_was_not_recorded_cannot_be_written_to_or_followed(mode, words):
    x = torch.ones(4, requires_grad=True)
    y = x.clone()
    with mode():
        view = y.view(2, 2)
        assert view.is_leaf and view.grad_fn is None
        view.mul_(3)
    assert y.tolist() == [3.0] * 4 and not view.is_inference() and view.requires_grad
    with pytest.raises(RuntimeError, match=words + " and is being modified inplace"):
        view.add_(1)
    with pytest.raises(RuntimeError, match=words + " and its base or another view of its base has been modified inplace"):
        view.is_leaf
    y.add_(1)
    with pytest.raises(RuntimeError, match=words + " and its base or another view of its base has been modified inplace"):
        view.grad_fn
    assert "grad_fn=<Invalid>" in repr(view)
    y.sum().backward()
    assert x.grad.tolist() == [1.0] * 4


def test_inference_mode_keeps_nothing_alive():
    gc.disable()
    try:
        with torch.inference_mode():
            x = torch.ones(3)
            y = x.view(3) * 2
        watched = [weakref.ref(x), weakref.ref(y)]
        del x, y
        assert [w() for w in watched] == [None, None]
    finally:
        gc.enable()


# The rarer switches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("switch, ask", [(grad_mode._force_original_view_tracking, torch.autograd.is_view_replay_enabled), (torch.autograd.set_multithreading_enabled, torch.autograd.is_multithreading_enabled)])
def test_switches_act_at_once_and_return(switch, ask):
    before = ask()
    with switch(not before):
        assert ask() is not before
        with switch(before):
            assert ask() is before
        assert ask() is not before
    assert ask() is before
    switch(not before)
    assert ask() is not before
    switch(before)

    @switch(not before)
    def asking():
        return ask()

    assert ask() is before and asking() is not before and ask() is before


def test_hidden_writes_are_not_noticed():
    x = torch.tensor([2.0], requires_grad=True)
    y = x.clone()
    z = y * y
    with grad_mode._unsafe_preserve_version_counter(y), torch.no_grad():
        y.add_(1)
    assert y._version == 0
    z.backward()
    assert x.grad.item() == 6.0


# The same programs under PyTorch ---------------------------------------------------------------------------------

PROGRAMS = programs("modes") | programs("lost_views")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_modes_do_what_pytorch_does(program):
    assert_same_output(program)


# What is computed where nothing is recorded ------------------------------------------------------------------------

PRODUCTS = {
    "stack of stacks": (lambda x, y: x @ y.transpose(-2, -1), (2, 3, 4, 5), (2, 3, 6, 5)),
    "stack by matrix": (lambda x, y: x @ y, (2, 3, 4), (4, 5)),
    "matrix by stack": (lambda x, y: x @ y, (3, 4), (2, 4, 5)),
    "broadcast": (lambda x, y: x @ y, (2, 1, 3, 4), (5, 4, 2)),
    "stack by vector": (lambda x, y: x @ y, (2, 3, 4), (4,)),
    "vector by stack": (lambda x, y: x @ y, (3,), (2, 3, 4)),
    "einsum": (lambda x, y: torch.einsum("bhqd,bhkd->bqhk", x, y), (2, 3, 4, 5), (2, 3, 6, 5)),
    "einsum with sums": (lambda x, y: torch.einsum("abc,cd->db", x, y), (2, 3, 4), (4, 5)),
    "einsum with dots": (lambda x, y: torch.einsum("...j,jk", x, y), (2, 3, 4), (4, 5)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_are_not_recorded_are_the_recorded_ones(name):
    product, *shapes = PRODUCTS[name]
    torch.manual_seed(0)
    x, y = (torch.randn(s, requires_grad=True) for s in shapes)
    recorded = product(x, y)
    with torch.no_grad():
        plain = product(x, y)
    assert recorded.grad_fn is not None and plain.grad_fn is None and plain._is_view() == name.startswith("einsum")
    assert torch.equal(plain, recorded) and plain.stride() == recorded.stride()
    assert torch.equal(product(x.detach(), y.detach()), plain)
    with torch.inference_mode():
        assert product(x, y).is_inference()


def test_einsum_refuses_each_time_what_does_not_fit():
    x, y = torch.ones(2, 3), torch.ones(4, 5)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="does not broadcast"):
            torch.einsum("ij,jk->ik", x, y)
        with pytest.raises(RuntimeError, match="number of subscripts"):
            torch.einsum("ijk,jk->ik", x, y)
