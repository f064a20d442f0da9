"""The figures of memory are exact: by operation, line, module, phase and saved value; and cost nothing while nobody asks."""

import gc
import threading
import time
import tracemalloc

import numpy as np
import psutil
import pytest
from _pace import pace

import autograd_nb as torch
from autograd_nb import cpu, nn
from autograd_nb.arrays import memory
from autograd_nb.arrays.memory import (
    METER,
    Row,
    census,
    held,
    size,
    stop_memory_stats,
    track_memory,
)
from autograd_nb.autograd.memory import memory_report
from autograd_nb.utils.checkpoint import checkpoint

NUMPY_DOMAIN = 389047  # where tracemalloc books NumPy's array data


@pytest.fixture(autouse=True)
def quiet(small_heap):
    "What other tests have left behind is gone before, and not in the middle."
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    stop_memory_stats()
    assert not METER.on


def test_allocated_is_what_tensors_hold():
    before = cpu.memory_allocated()
    x = torch.zeros(1000)
    view, same = x[10:].view(9, 110), x.detach()
    assert cpu.memory_allocated() - before == 4000
    del x, view
    assert cpu.memory_allocated() - before == 4000
    del same
    assert cpu.memory_allocated() == before


def test_counting_and_looking_agree():
    "The meter's running sum and a census of living objects are two ways to the same number."
    cpu.reset_peak_memory_stats()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(7, 20), torch.randn(7, 5)
    for _ in range(3):
        loss = (model(x) - y).pow(2).mean()
        assert METER.current == sum(a.nbytes for a in census())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert METER.current == sum(a.nbytes for a in census())
    del loss, optimizer, model
    gc.collect()
    assert METER.current == sum(a.nbytes for a in census())


@pytest.mark.usefixtures("nothing_is_compiled")
def test_it_agrees_with_tracemalloc():
    def numpy_bytes():
        return sum(t.size for t in tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY_DOMAIN)]).traces)

    w = torch.randn(50, 50, requires_grad=True)
    (w @ w).tanh().exp().sum().backward()
    def told():
        "The bytes of a forward and of a backward pass: by tracemalloc, and as they are counted here."
        w.grad = None
        tracemalloc.start()
        try:
            before, mine = numpy_bytes(), held()
            y = (w @ w).tanh().exp()
            forward = numpy_bytes() - before, held() - mine
            y.sum().backward()
            return forward, (numpy_bytes() - before, held() - mine)
        finally:
            tracemalloc.stop()

    # a thread in the background may load a loop meanwhile, which takes memory of its own
    assert any(a == (20_000, 20_000) and b[0] == b[1] for a, b in (told() for _ in range(5)))


def test_peak():
    cpu.reset_peak_memory_stats()
    start = cpu.memory_allocated()
    a = torch.zeros(1000)
    b = a + a
    c = b.sin()
    del b
    assert cpu.max_memory_allocated() - start == 12_000 and cpu.memory_allocated() - start == 8000
    cpu.reset_peak_memory_stats()
    assert cpu.max_memory_allocated() - start == 8000
    del a, c
    stats = cpu.memory_stats()
    assert (
        stats["allocated_bytes.all.current"] == start
        and stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 12_000
    )
    assert stats["allocation.all.allocated"] == 3 and stats["allocated_bytes.all.peak"] - start == 8000
    assert "peak" in cpu.memory_summary() and size(stats["allocated_bytes.all.peak"]) in cpu.memory_summary()


def test_temporaries_inside_a_kernel_count():
    x = torch.zeros(1000)
    with track_memory() as trace:
        torch.special.logit(x, eps=0.1)
    assert trace.peak - trace.base >= 4000


def test_by_operation_line_and_phase():
    x = torch.ones(256, requires_grad=True)
    with track_memory() as trace:
        y = x.exp()
        z = y.sin()
        z.sum().backward()
    at_peak = trace.by_op()
    assert sum(r.bytes for r in at_peak) == trace.added
    assert {"exp", "sin"} <= {r.key for r in at_peak}
    lines = {r.key.rpartition(":")[2]: r.bytes for r in trace.by_line("total")}
    first = test_by_operation_line_and_phase.__code__.co_firstlineno
    assert str(first + 3) in lines and str(first + 4) in lines and all(":" in r.key for r in trace.by_line())
    phases = {r.key for r in trace.by_phase("total")}
    assert phases == {"forward", "backward"}
    # what a node allocates in backward is booked under the line that made the node
    backward = trace.table(lambda s: (s.phase, s.line.rpartition(":")[2]), "total")
    assert any(r.key == ("backward", str(first + 4)) for r in backward)
    assert (
        trace.timeline()[0][1] == trace.base
        and max(m for _, m, _ in trace.timeline()) == trace.peak
        and trace.timeline()[-1][1] == trace.end
    )


def test_by_module():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    with track_memory(model) as trace:
        model(torch.ones(10, 8))
    rows = {r.key: r.bytes for r in trace.by_module("total")}
    assert rows["0"] >= 640 and rows["1"] >= 640 and rows["2"] >= 160 and "Sequential" not in rows


def test_recomputation_is_a_phase_of_its_own():
    x = torch.ones(256, requires_grad=True)
    out = checkpoint(lambda t: t.sin().exp().tanh(), x, use_reentrant=False).sum()
    with track_memory() as trace:
        out.backward()
    rows = {r.key: r for r in trace.by_phase("total")}
    assert set(rows) == {"recompute", "backward"} and rows["recompute"].bytes >= 3 * 1024


def test_custom_functions_have_their_name():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin() + x

        @staticmethod
        def backward(ctx, g):
            return g.cos() * 2

    x = torch.ones(100, requires_grad=True)
    with track_memory() as trace:
        Twice.apply(x).sum().backward()
    assert {"sin", "add"} <= {r.key for r in trace.by_op("total")}


def test_saved_values_are_reported_one_by_one():
    x = torch.ones(100, requires_grad=True)
    y = x.exp() * x
    rows = {(s.holder, s.bytes) for s in memory_report() if s.kind == "saved"}
    assert ("ExpBackward0 saved out", 400) in rows or any("saved" in h and b == 400 for h, b in rows)
    assert sum(s.bytes for s in memory_report()) == cpu.memory_allocated() and y is not None


def test_what_the_program_allocates_itself_is_not_counted():
    with track_memory() as trace:
        mine = np.ones(1000)
        shared = torch.from_numpy(mine)
    assert trace.added == 0 and shared.numel() == 1000


def test_memory_from_before_is_seen_to_go():
    x = torch.zeros(1000)
    with track_memory() as trace:
        del x
    assert trace.end - trace.base == -4000


def test_other_threads_are_counted():
    kept = []
    with track_memory() as trace:
        thread = threading.Thread(target=lambda: kept.append(torch.zeros(1000)))
        thread.start()
        thread.join()
    assert trace.end - trace.base == 4000 and kept


def test_sessions_nest():
    with track_memory() as outer:
        a = torch.zeros(100)
        with track_memory() as inner:
            b = torch.zeros(100)
        c = torch.zeros(100)
    assert inner.added == 400 and outer.added == 1200 and len({id(a), id(b), id(c)}) == 3
    assert inner.by_op("end") == [Row("creation", 400, 1)]


def test_arrays_survive_the_end_of_counting():
    with track_memory():
        kept = [torch.full((100,), float(i)) for i in range(50)]
    gc.collect()
    assert [int(t[0].item()) for t in kept] == list(range(50))
    with track_memory():
        del kept
    grown = np.arange(10)
    with track_memory():
        grown.resize(10_000, refcheck=False)
    assert grown[9] == 9 and grown.sum() == 45


def test_an_exception_ends_the_session():
    with pytest.raises(ZeroDivisionError), track_memory():
        torch.zeros(10)
        raise ZeroDivisionError
    assert not METER.on


def test_nothing_is_paid_while_nobody_asks():
    "The table of allocation functions is NumPy's own before, between and after."
    from autograd_nb.arrays import memory

    with track_memory():
        inside = memory._made["table"].malloc
    assert memory._made["table"].malloc == memory._made["old"]["malloc"] != inside


def test_asking_is_cheap_enough():
    x = torch.zeros(64, 64)

    def work():
        began = time.process_time()
        for _ in range(2000):
            x + x
        return time.process_time() - began

    work()
    plain = min(work() for _ in range(3))
    with track_memory():
        counted = min(work() for _ in range(3))
    assert counted - plain < 2000 * 150e-6 * pace()


def test_cpu_answers_what_programs_ask():
    assert cpu.is_available() and cpu.device_count() == 1 and cpu.current_device() == "cpu"
    cpu.synchronize()
    with cpu.stream(cpu.Stream()):
        assert cpu.current_stream() is not None
    assert torch.cuda.memory_allocated() == 0 == torch.cuda.max_memory_allocated()


def test_exceptions_survive_arrays_that_die_on_the_way():
    "A block freed while an exception passes through the interpreter must not lose it."

    def fails():
        raise ValueError("the real reason")

    with track_memory() as trace:
        for expression in (lambda: [torch.ones(100), fails()], lambda: torch.ones(1000) + fails(), lambda: (torch.ones(3), torch.ones(5).exp(), fails()), lambda: max(torch.ones(7), key=lambda _: fails())):
            with pytest.raises(ValueError, match="the real reason"):
                expression()
    assert sum(n for _, n, _ in trace.events) == 0


def test_sorting_is_counted():
    "NumPy's sorts free address 0 when they needed no copy."
    with track_memory():
        x = torch.randn(4, 6)
        assert torch.equal(x.sort(-1).values, x.flip(-1).sort(-1).values) and x.topk(2, -1).indices.shape == (4, 2)


@pytest.mark.slow
def test_counting_survives_collections_threads_and_many_switches():
    "What is written down about dead blocks is no list of objects: the collector must not see it, and every block comes back."
    assert memory._hooks()["bins"], "the ordinary function is in use; CPython should do better"

    def work():
        for k in range(300):
            a = torch.ones(k % 50 + 1)
            b = (a * 2 + a).sum()
            del a, b
            if k % 50 == 0:
                gc.collect()

    work()  # the constants that it computes with are kept
    resident = []
    for _turn in range(6):
        with track_memory() as trace:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for _ in range(20):
                torch.ones(1 << 20)
        assert sum(n for _, n, site in trace.events if site is not None) == 0 and not METER.on
        resident.append(psutil.Process().memory_info().rss)
    assert resident[-1] - resident[1] < 40 << 20, "blocks that died were not given back"
