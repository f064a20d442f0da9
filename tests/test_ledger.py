"The ledger's lines, added in their order, are the gradient bit for bit, whatever happens between and during backward passes."

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_nb as torch
from autograd_nb.viz import ledger


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["keep", "reset", "zero"])), min_size=1, max_size=5), st.integers(0, 10**6))
def test_totals_are_the_gradients_bit_for_bit(calls, seed):
    torch.manual_seed(seed)
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with ledger() as book:
        for terms, after in calls:
            loss = sum(((x * 10.0**k) @ w).sin().sum() + (x * w[k % 4]).exp().mean() for k in range(terms))
            loss.backward()
            grads = {t: t.grad.numpy().tobytes() for t in (x, w)}
            for t in (x, w):
                assert book.total(t).tobytes() == grads[t]
                if after == "reset":
                    t.grad = None
                elif after == "zero":
                    t.grad.zero_()
    assert book.calls == len(calls)


def test_it_changes_no_result():
    def run(watched):
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
        x = torch.randn(6, 5)
        if watched:
            with ledger():
                net(x).pow(2).sum().backward()
        else:
            net(x).pow(2).sum().backward()
        return [p.grad.numpy() for p in net.parameters()]

    for a, b in zip(run(False), run(True)):
        assert np.array_equal(a, b)


def test_lines_name_leaf_node_and_source():
    weight = torch.tensor(2.0, requires_grad=True)
    with ledger() as book:
        (weight * 3).backward()
    (row,) = book.rows()
    assert row[:3] == ("weight", "1", "MulBackward0") and "(weight * 3).backward()" in row[3] and row[4:] == ("3", "3")
    assert "MulBackward0" in str(book) and "<table" in book._repr_html_()
    assert str(ledger()) == "No gradient has been accumulated."


def test_it_hears_only_its_own_thread_and_block():
    x = torch.tensor(1.0, requires_grad=True)
    other = torch.tensor(1.0, requires_grad=True)
    with ledger() as book:
        thread = threading.Thread(target=lambda: (other * 2).backward())
        thread.start()
        thread.join()
    (x * 2).backward()
    assert len(book) == 0 and other.grad.item() == 2


def test_gradients_of_chosen_inputs_and_leaves_that_are_outputs():
    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    with ledger() as book:
        (x * y).backward(inputs=[x])
        y.backward()
        torch.autograd.grad(x * y, x)
    assert book.total(x) == 3 and book.total(y) == 1
    assert [e.node for p in book[y] for e in p.entries] == ["backward()"]


def test_errors_leave_the_mode():
    x = torch.tensor(2.0, requires_grad=True)
    y = x * 2
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        with ledger():
            (y * x).backward()
            (y * x).backward()
            z = x * x
            z.backward()
            z.backward()
    from autograd_nb.graph.modes import modes

    assert modes().watchers == ()
