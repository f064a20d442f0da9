"""The profiler: which events there are, how they nest and add up, its tables and files, and that it costs nothing while it is off."""

import gzip
import json
import re
import sys
import threading
import time
import warnings

import pytest

import autograd_nb as torch
from autograd_nb.autograd import _profiler_enabled, kineto_available
from autograd_nb.autograd.profiler import emit_itt, emit_nvtx, profile, record_function
from autograd_nb.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg, _format_memory, _format_time
from autograd_nb.profiler import ProfilerAction, ProfilerActivity, schedule, supported_activities, tensorboard_trace_handler


def names(prof):
    return [e.name for e in prof.function_events]


# Events -----------------------------------------------------------------------------------------------------------


def test_operations_are_listed_in_order_and_the_profiler_knows_that_it_is_on():
    x = torch.randn(10, 10)
    with profile(use_kineto=kineto_available()) as prof:
        assert _profiler_enabled()
        x * 2 + 4
    assert not _profiler_enabled()
    assert names(prof) == ["aten::mul", "aten::add"]


def test_a_recorded_operation_and_its_node_share_a_sequence_number():
    with profile() as prof:
        x = torch.randn(10, 10, requires_grad=True)
        y = torch.randn(10, 10, requires_grad=True)
        (x + y).sum(dim=None).backward()
    for forward, backward in ("aten::add", "AddBackward0"), ("aten::sum", "SumBackward"):
        found = [e for e in prof.function_events if e.name == forward or backward in e.name]
        assert [e.name.rstrip("01") for e in found] == [forward, f"autograd::engine::evaluate_function: {backward}".rstrip("01"), backward.rstrip("01")]
        assert found[0].sequence_nr >= 0 and len({e.sequence_nr for e in found}) == 1
        assert found[0].fwd_thread == 0 and found[1].fwd_thread == found[2].fwd_thread == found[0].thread
        assert found[2].cpu_parent is found[1] and (found[0].scope, found[2].scope) == (0, 1)
    empty = [e for e in prof.function_events if e.name == "aten::empty"]
    assert len(empty) == 2 and all(e.sequence_nr == -1 and e.cpu_parent.name == "aten::randn" for e in empty)
    assert sum(e.name == "torch::autograd::AccumulateGrad" for e in prof.function_events) == 2


def test_results_are_the_same_with_and_without_the_profiler():
    def step():
        torch.manual_seed(3)
        x = torch.randn(4, 4, requires_grad=True)
        w = torch.rand(4, requires_grad=True)
        h = (x @ x.T).tanh() * w
        h.add_(1)
        (h.var() + torch.cat([h, x]).mean()).backward()
        return x.grad, w.grad, torch.randn(3)

    plain = step()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True):
        timed = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, timed))


def test_ranges_have_names_and_contain_what_happens_in_them():
    def forward(x):
        with record_function("outer"):
            y = x * 2 + 4
            with record_function("inner"):
                y = y - 1
        return y / 1

    forward(torch.randn(10, 10))                            # without a profiler: nothing
    with profile() as prof:
        forward(torch.randn(10, 10))
    wanted = iter(names(prof))
    assert all(name in wanted for name in ("outer", "aten::mul", "aten::add", "inner", "aten::sub", "aten::div"))
    by_name = {e.name: e for e in prof.function_events}
    assert by_name["aten::sub"].cpu_parent is by_name["inner"] and by_name["inner"].cpu_parent is by_name["outer"] and by_name["aten::div"].cpu_parent is None
    assert by_name["outer"].is_user_annotation and by_name["outer"].count == 1

    @record_function("my_func")
    def f(x, y):
        return x + y

    with profile() as prof:
        assert f(1, 2) == 3
    assert "my_func" in str(prof)


def test_ranges_may_end_in_any_order():
    outer = record_function("outer")
    outer.__enter__()
    with record_function("inner"):
        outer.__exit__(None, None, None)
    with record_function("inner"):
        outer.__enter__()
    outer.__exit__(None, None, None)
    with profile() as prof:
        outer.__enter__()
        with record_function("inner"):
            outer.__exit__(None, None, None)
        torch.ones(2) * 2
    assert names(prof) == ["outer", "inner", "aten::mul"] and all(e.cpu_time_total >= 0 for e in prof.function_events)


def test_in_place_operations_and_functions_have_their_own_names():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(3, requires_grad=True)
    with profile() as prof:
        y = Twice.apply(x)
        y.sum().backward()
        with torch.no_grad():
            x.mul_(3)
            x += 1
    found = names(prof)
    assert found.count("Twice") == 1 and "TwiceBackward" in found and "aten::mul_" in found and "aten::add_" in found
    by_name = {e.name: e for e in prof.function_events}
    assert by_name["aten::mul"].cpu_parent is not None and by_name["Twice"].sequence_nr == by_name["TwiceBackward"].sequence_nr >= 0


def test_create_graph_and_gradients_of_gradients_are_timed_too():
    x = torch.tensor(2.0, requires_grad=True)
    with profile() as prof:
        (g,) = torch.autograd.grad(x**3, x, create_graph=True)
        g.backward()
    assert x.grad.item() == 12
    found = names(prof)
    assert found.count("PowBackward0") >= 2
    inside = [e for e in prof.function_events if e.cpu_parent is not None and e.cpu_parent.name == "PowBackward0"]
    assert any(e.name.startswith("aten::") for e in inside)


def test_times_nest_and_add_up():
    with profile() as prof:
        with record_function("sleep"):
            time.sleep(0.02)
            torch.ones(100, 100) @ torch.ones(100, 100)
    sleep = next(e for e in prof.function_events if e.name == "sleep")
    assert sleep.cpu_time_total >= 20_000 and sleep.self_cpu_time_total == pytest.approx(sleep.cpu_time_total - sum(c.cpu_time_total for c in sleep.cpu_children))
    assert prof.self_cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in prof.function_events if e.cpu_parent is None))
    total = prof.total_average()
    assert total.key == "Total" and total.count == len(prof.function_events) and total.self_cpu_time_total == pytest.approx(prof.self_cpu_time_total)


def test_shapes_of_a_models_layers():
    first, second = torch.nn.Linear(20, 30), torch.nn.Linear(30, 40)
    x = torch.randn(128, 20)
    with profile(record_shapes=True) as prof:
        second(first(x))
    shapes = [e.input_shapes for e in prof.function_events if e.name == "aten::linear"]
    assert shapes == [[[128, 20], [30, 20], [30]], [[128, 30], [40, 30], [40]]]
    by_shape = [a for a in prof.key_averages(group_by_input_shape=True) if a.key == "aten::linear"]
    assert len(by_shape) == 2 and "[[128, 20], [30, 20], [30]]" in prof.key_averages(group_by_input_shape=True).table()
    assert len([a for a in prof.key_averages() if a.key == "aten::linear"]) == 1


def test_memory_is_what_was_allocated_less_what_was_freed():
    with profile(profile_memory=True) as prof:
        with record_function("keep"):
            kept = torch.ones(1000) * 2
        with record_function("drop"):
            (torch.ones(1000) * 2).sum()
        del kept
    by_name = {a.key: a for a in prof.key_averages()}
    assert by_name["keep"].cpu_memory_usage >= 4000 and by_name["drop"].cpu_memory_usage < 1000
    assert by_name["[memory]"].cpu_memory_usage <= -4000
    table = prof.key_averages().table(sort_by="self_cpu_memory_usage")
    assert "CPU Mem" in table and "KB" in table


def test_flops():
    a, b = torch.ones(4, 5), torch.ones(5, 6)
    with profile(with_flops=True) as prof:
        (a @ b) * 2
        a - a
    flops = {e.name: e.flops for e in prof.function_events}
    assert not flops["aten::sub"]  # nobody counts it, as in PyTorch
    assert flops["aten::matmul" if "aten::matmul" in flops else "aten::mm"] == 2 * 4 * 5 * 6 and flops["aten::mul"] == 24
    assert "FLOPs" in prof.key_averages().table()


def test_stacks_of_forward_and_backward_events_name_the_forward_line(tmp_path):
    x = torch.ones(200, 200, requires_grad=True)
    with profile(with_stack=True) as prof:
        y = (x @ x).exp(); line = sys._getframe().f_lineno
        y.sum().backward()
    by_name = {e.name: e for e in prof.function_events}
    for name in ("aten::exp", "ExpBackward0"):
        assert by_name[name].stack[0].startswith(f"{__file__}({line}): test_stacks_of"), name
    grouped = prof.key_averages(group_by_stack_n=1)
    assert "Source Location" in grouped.table()
    prof.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"\S+ \d+", text) for text in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(tmp_path / "stacks.txt", "nonsense")


# Lists and tables -----------------------------------------------------------------------------------------------------


def test_partly_overlapping_events_are_no_ones_children():
    events, number = EventList(), 0
    for thread, ranges in ((1, ((0, 1), (1, 2))), (0, ((0, 2), (1, 2), (1, 3)))):
        for start, end in ranges:
            number += 1
            events.append(FunctionEvent(id=number, node_id=0, name="", thread=thread, start_us=start, end_us=end))
    events._populate_cpu_children()
    assert [[c.id for c in e.cpu_children] for e in events] == [[], [], [], [], [4]]


def test_sums_of_events():
    total = FunctionEventAvg()
    total.add(FunctionEvent(id=0, node_id=0, name="foo", thread=0, start_us=10, end_us=15))
    total.add(FunctionEvent(id=1, node_id=0, name="foo", thread=0, start_us=20, end_us=30))
    total.add(total)
    assert (total.key, total.count, total.cpu_time_total, total.self_cpu_time_total, total.device_time_total, total.cpu_time) == ("foo", 4, 30, 30, 0, 7.5)
    with pytest.raises(AssertionError, match="Expected keys to match"):
        total.add(FunctionEvent(id=2, name="bar", thread=0, start_us=0, end_us=1))


@pytest.mark.parametrize("time_us, text", [(0, "0.000us"), (999.5, "999.500us"), (1000, "1.000ms"), (1e6, "1.000s"), (2.5e7, "25.000s")])
def test_times_as_text(time_us, text):
    assert _format_time(time_us) == text


@pytest.mark.parametrize("nbytes, text", [(0, "0 B"), (1023, "1023 B"), (-1024, "-1.00 KB"), (3 << 20, "3.00 MB"), (5 << 30, "5.00 GB")])
def test_memory_as_text(nbytes, text):
    assert _format_memory(nbytes) == text


def test_the_printed_profiler_is_its_table():
    with profile() as prof:
        torch.einsum("i->", torch.randn(1024))
        assert str(prof) == "<unfinished torch.autograd.profile>"
        with pytest.raises(RuntimeError, match="Profiler didn't finish running"):
            prof.table()
    assert str(prof) == prof.table() and prof.table().splitlines()[1].split()[:4] == ["Name", "Self", "CPU", "%"]


def test_tables_sort_limit_and_head():
    rnn = torch.nn.LSTM(10, 20, 2)
    with profile(record_shapes=True) as prof:
        for _ in range(2):
            rnn(torch.randn(5, 3, 10), (torch.randn(2, 3, 20), torch.randn(2, 3, 20)))
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=3, header="TEST", time_unit="us")
    rows = table.splitlines()
    assert rows[0].startswith("===") and rows[1] == "TEST" and len(rows) == 2 + 3 + 3 + 2 and rows[-1].startswith("Self CPU time total: ") and rows[-1].endswith("us")
    averages = prof.key_averages()
    order = [line.split()[0] for line in averages.table(sort_by="count", row_limit=-1, max_name_column_width=None).splitlines()[3:-2]]
    counts = {a.key: a.count for a in averages}
    assert [counts[name] for name in order] == sorted(counts.values(), reverse=True)
    top = prof.table(top_level_events_only=True, row_limit=-1)
    assert "top-level ops" in top and len(top.splitlines()) - 7 == sum(e.cpu_parent is None for e in prof.function_events)
    assert EventList().table() == ""


@pytest.mark.needs("torch")
def test_tables_look_as_pytorchs_do():
    import torch as pytorch
    from torch.autograd import profiler_util as theirs

    def tables(util, stacks, **asked):
        events = util.EventList([util.FunctionEvent(id=0, name="outer", thread=1, start_us=0, end_us=1234.5, input_shapes=[[2, 3]], cpu_memory_usage=4096, flops=0, stack=["a.py(1): f", "b.py(2): g"][:stacks], overload_name=""),
                                 util.FunctionEvent(id=1, name="aten::a_very_long_name_of_an_operation_that_does_not_fit_into_the_column", thread=1, start_us=5, end_us=40, input_shapes=[[2, 3], []], cpu_memory_usage=12, flops=5000, stack=["a.py(1): f"][:stacks], overload_name=""),
                                 util.FunctionEvent(id=2, name="aten::mul", thread=1, start_us=50, end_us=60.25, input_shapes=[], flops=200000, stack=[], overload_name="")], **asked)
        events._build_tree()
        for settings in (dict(), dict(sort_by="self_cpu_time_total", row_limit=2), dict(header="H", top_level_events_only=True), dict(time_unit="ms", max_name_column_width=20, max_shapes_column_width=10, max_src_column_width=8)):
            yield events.table(**settings)
            yield events.key_averages(group_by_input_shapes=True, group_by_stack_n=1).table(**settings)
            yield events.key_averages().table(**settings)
        yield repr(events.total_average())

    from autograd_nb.autograd import profiler_util as ours
    for stacks, asked in (2, dict(profile_memory=True)), (0, dict(with_flops=True)), (0, dict()):
        for mine, other in zip(tables(ours, stacks, **asked), tables(theirs, stacks, **asked), strict=True):
            assert [line.rstrip() for line in mine.splitlines()] == [line.rstrip() for line in other.splitlines()]
    assert pytorch.__version__


# Files -----------------------------------------------------------------------------------------------------------------


def test_trace_files(tmp_path):
    x = torch.ones(3, requires_grad=True)
    with profile(record_shapes=True, profile_memory=True) as prof:
        with record_function("mine"):
            (x * 2).sum().backward()
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    spans = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
    assert {"mine", "aten::mul", "MulBackward0", "torch::autograd::AccumulateGrad"} <= set(spans)
    assert spans["mine"]["cat"] == "user_annotation" and spans["aten::mul"]["args"]["Input Dims"] == [[3], []] and spans["aten::mul"]["dur"] > 0
    assert [e["ph"] for e in trace["traceEvents"] if e.get("cat") == "fwdbwd"].count("s") == 2
    prof.function_events.export_chrome_trace(tmp_path / "list.json")
    assert {e["name"] for e in json.loads((tmp_path / "list.json").read_text())} >= {"mine", "aten::mul"}


# torch.profiler ---------------------------------------------------------------------------------------------------------


def test_the_schedule_goes_round():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    none, warm, record, save = ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
    assert [plan(i) for i in range(11)] == [none, none, warm, record, save, none, warm, record, save, none, none]
    assert schedule(wait=2, warmup=1, active=1, skip_first=3, skip_first_wait=1)(3) is warm
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=-1, warmup=0, active=1)
    with pytest.warns(UserWarning, match="won't be using warmup"):
        schedule(wait=1, warmup=0, active=1)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("settings", [dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=1, active=1, repeat=3, skip_first=2), dict(wait=2, warmup=2, active=3, repeat=1), dict(wait=3, warmup=1, active=1, skip_first=2, skip_first_wait=1)])
def test_the_schedule_is_pytorchs(settings):
    from torch.profiler import schedule as theirs
    mine, other = schedule(**settings), theirs(**settings)
    assert [mine(i).name for i in range(40)] == [other(i).name for i in range(40)]


def test_a_training_loop_hands_over_each_round(tmp_path):
    x, rounds = torch.ones(3), []
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda p: rounds.append((p.step_num, [e.name for e in p.events()]))) as prof:
        for _ in range(10):
            x * 2
            prof.step()
    assert rounds == [(4, ["ProfilerStep#2", "aten::mul", "ProfilerStep#3", "aten::mul"]), (8, ["ProfilerStep#6", "aten::mul", "ProfilerStep#7", "aten::mul"])]
    handler = tensorboard_trace_handler(str(tmp_path / "log"), worker_name="me", use_gzip=True)
    with torch.profiler.profile(on_trace_ready=handler, record_shapes=True) as prof:
        prof.add_metadata("run", "first")
        prof.add_metadata_json("sizes", "[1, 2]")
        x * 2
    (file,) = (tmp_path / "log").iterdir()
    assert re.fullmatch(r"me\.\d+\.pt\.trace\.json\.gz", file.name)
    trace = json.loads(gzip.open(file, "rt").read())
    assert trace["run"] == "first" and trace["sizes"] == [1, 2] and trace["record_shapes"] == 1 and any(e["name"] == "aten::mul" for e in trace["traceEvents"])
    assert "aten::mul" in prof.key_averages().table(sort_by="cpu_time_total", row_limit=10)


def test_rounds_can_be_kept():
    x = torch.ones(3)
    for keep, count in ((False, 1), (True, 3)):
        with torch.profiler.profile(schedule=schedule(wait=0, warmup=1, active=1), acc_events=keep) as prof:
            for _ in range(6):
                x * 2
                prof.step()
        assert [a.count for a in prof.key_averages() if a.key == "aten::mul"] == [count]


def test_start_and_stop_without_a_block():
    prof = torch.profiler.profile()
    with pytest.raises(AssertionError):
        prof.events()
    prof.start()
    torch.ones(2) * 2
    prof.stop()
    assert [e.name for e in prof.events()] == ["aten::mul"] and supported_activities() == {ProfilerActivity.CPU}


# When it is off, when it fails, in threads ---------------------------------------------------------------------------------


def test_a_disabled_profiler_and_wrong_use():
    with profile(enabled=False) as prof:
        torch.ones(2) * 2
    assert prof is None
    outer = profile()
    with outer:
        with pytest.raises(RuntimeError, match="not reentrant"):
            outer.__enter__()
        with pytest.raises(RuntimeError, match="already enabled on this thread"):
            with profile():
                pass
    assert not _profiler_enabled()
    for emit in (emit_nvtx, emit_itt):
        with emit(enabled=False):
            pass
        with pytest.raises(RuntimeError, match="not available"):
            with emit():
                pass


def test_an_exception_ends_the_profile_and_keeps_what_was_seen():
    x = torch.ones(2, requires_grad=True)
    prof = profile()
    with pytest.raises(RuntimeError, match="must match the size"):
        with prof:
            x * 2 + torch.ones(3)
    assert not _profiler_enabled() and names(prof) == ["aten::mul", "aten::add"]
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        with profile() as prof:
            (x * 2).sum().backward()
    assert "MulBackward0" in names(prof)


def test_each_thread_has_its_own_profiler():
    found, barrier = {}, threading.Barrier(3)

    def work(k):
        x = torch.ones(4, requires_grad=True)
        barrier.wait()
        if k == 0:
            (x * 2).sum().backward()                       # no profiler here
            return
        with profile() as prof:
            for _ in range(20):
                y = x * 2 if k == 1 else x.exp()
                y.sum().backward()
        found[k] = {a.key: a.count for a in prof.key_averages()}

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found[1]["aten::mul"] == found[1]["MulBackward0"] == 20 and "aten::exp" not in found[1]
    assert found[2]["aten::exp"] == found[2]["ExpBackward0"] == 20 and "aten::mul" not in found[2] and not _profiler_enabled()


def test_nothing_listens_after_the_end():
    from autograd_nb.graph.modes import LOCAL, SWITCH
    busy = SWITCH.busy
    with profile():
        assert LOCAL.modes.general and not SWITCH.plain
    assert LOCAL.modes.profiler is None and not LOCAL.modes.general and SWITCH.busy == busy


def test_other_modes_work_inside():
    x = torch.ones(3, requires_grad=True)
    with profile() as prof, torch.no_grad():
        y = x * 2
    assert not y.requires_grad and names(prof) == ["aten::mul"]
    with profile() as prof:
        per_example = torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(torch.ones(2, 3))
    assert per_example.tolist() == [[2.0] * 3] * 2 and "aten::mul" in names(prof)
