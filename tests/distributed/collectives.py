# ruff: noqa: B023 (functions are called where they are made)
"""Collectives with every kind of number, and errors. Runs under PyTorch and under autograd_nb: what it prints has to be the same.

Arguments: the library, its rank, the number of processes, a file for PyTorch to meet at.
"""

import importlib
import sys
import warnings
from datetime import timedelta

warnings.simplefilter("ignore")
torch = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
rank, size = int(sys.argv[2]), int(sys.argv[3])
where = {"init_method": f"file://{sys.argv[4]}", "rank": rank, "world_size": size} if sys.argv[1] == "torch" else {}
dist.init_process_group("gloo", timeout=timedelta(seconds=100), **where)
assert (dist.get_rank(), dist.get_world_size()) == (rank, size)


def show(name, function):
    try:
        out = function()
    except Exception as error:
        words = str(error).strip().split("<")[0]
        out = f"{type(error).__name__}: {words[:38]}"
    print(name, "->", out, flush=True)


def after(tensor, function, *args, **kwargs):
    function(tensor, *args, **kwargs)
    return tensor


R = dist.ReduceOp
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64]
for dtype in DTYPES:
    x = torch.tensor([1, 0, 1 + rank, 3]).to(dtype)
    show(f"sum {dtype}", lambda: after(x.clone(), dist.all_reduce))
    show(f"broadcast {dtype}", lambda: after(x.clone(), dist.broadcast, size - 1))
    show(f"gather {dtype}", lambda: (lambda out: (dist.all_gather(out, x), out)[1])([torch.zeros_like(x) for _ in range(size)]))
for op in "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split():
    for values in ([1.0, 2.0 + rank, 3.0], [1, 2 + rank, 3], [True, rank == 0, False]):
        if op == "AVG" and not isinstance(values[0], float):
            continue
        show(f"{op} {values}", lambda: after(torch.tensor(values), dist.all_reduce, getattr(R, op)))

show("an array of several dimensions", lambda: after(torch.arange(6.0).reshape(2, 3) + rank, dist.all_reduce))
show("transposed", lambda: after((torch.arange(6.0).reshape(2, 3) + rank).T, dist.all_reduce))
base = torch.zeros(4, 4) + rank
dist.all_reduce(base.view(16)[4:8])
show("a part of a tensor", lambda: base)
show("nothing", lambda: after(torch.ones(0), dist.all_reduce))
show("a number", lambda: after(torch.tensor(2.5), dist.all_reduce))
x = torch.arange(3.0) + rank
dist.reduce(x, 0)
show("reduce", lambda: x if rank == 0 else "elsewhere")
x = [torch.zeros(2) for _ in range(size)] if rank == 1 % size else None
dist.gather(torch.full((2,), float(rank)), x, dst=1 % size)
show("gather", lambda: x)
x = torch.zeros(2)
dist.scatter(x, [torch.full((2,), 10.0 * i) for i in range(size)] if rank == 0 else None, src=0)
show("scatter", lambda: x)
x = torch.zeros(2)
dist.reduce_scatter(x, [torch.full((2,), float(i + rank)) for i in range(size)])
show("reduce_scatter", lambda: x)
x = torch.zeros(2)
dist.reduce_scatter_tensor(x, torch.arange(2.0 * size))
show("reduce_scatter_tensor", lambda: x)
x = torch.zeros(2 * size)
dist.all_gather_into_tensor(x, torch.full((2,), float(rank)))
show("all_gather_into_tensor", lambda: x)
x = [torch.zeros(2) for i in range(size)]
dist.all_to_all(x, [torch.full((2,), 10.0 * rank + i) for i in range(size)])
show("all_to_all", lambda: x)
x = torch.zeros(size)
dist.all_to_all_single(x, torch.arange(float(size)) + 10 * rank)
show("all_to_all_single", lambda: x)
x = torch.zeros(size, 2)
dist.all_to_all_single(x, torch.arange(2.0 * size).reshape(size, 2) + 10 * rank, [1] * size, [1] * size)
show("all_to_all_single in rows", lambda: x)
work = dist.all_reduce(torch.ones(2), async_op=True)
show("work", lambda: (work.wait(), work.is_completed(), work.is_success(), work.result(), work.get_future().value()))
show("future", lambda: dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait())

# messages
if size > 1:
    right, left = (rank + 1) % size, (rank - 1) % size
    sent, got = torch.full((3,), float(rank)), torch.zeros(3)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got, left)])
    for work in works:
        work.wait()
    show("around", lambda: got)
    if rank == 0:
        dist.send(torch.tensor([7]), 1)
        dist.send(torch.tensor([8.5]), 1, tag=3)
    if rank == 1:
        first, second = torch.tensor([0]), torch.tensor([0.0])
        show("from 0", lambda: (dist.recv(first, 0), first))
        show("from anybody", lambda: (dist.recv(second, tag=3), second))
    show("to oneself", lambda: dist.send(torch.ones(2), rank))
    show("message", lambda: dist.P2POp(dist.isend, torch.ones(2), right))
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], 1)
    if rank == 1:
        received = [None, None]
        dist.recv_object_list(received, 0)
        show("objects sent", lambda: received)

# objects
everything = [None] * size
dist.all_gather_object(everything, {"rank": rank, "list": list(range(rank)), "tensor": torch.ones(1 + rank)})
show("objects", lambda: everything)
held = [f"from {rank}", {rank: (rank, 2.5, None)}]
dist.broadcast_object_list(held, 0)
show("broadcast objects", lambda: held)
held = [None] * size if rank == 0 else None
dist.gather_object((rank, "x"), held)
show("gathered objects", lambda: held)
held = [None]
dist.scatter_object_list(held, [f"for {i}" for i in range(size)] if rank == 0 else None)
show("scattered objects", lambda: held)

# groups
dist.barrier()
evens = dist.new_group(list(range(0, size, 2)))
show("not everybody", lambda: (dist.get_rank(evens), dist.get_world_size(evens)))
if rank % 2 == 0:
    show("sum of some", lambda: after(torch.ones(1) * (rank + 1), dist.all_reduce, group=evens))
    show("ranks", lambda: (dist.get_process_group_ranks(evens), dist.get_global_rank(evens, 0), dist.get_group_rank(evens, rank)))
    show("not in it", lambda: dist.get_group_rank(evens, 1))
    x = torch.tensor([float(rank)])
    last = (size - 1) // 2 * 2
    show("broadcast in it", lambda: after(x, dist.broadcast, src=last, group=evens))
mine, groups = dist.new_subgroups(1)
show("subgroups", lambda: (dist.get_world_size(mine), len(groups), after(torch.ones(1), dist.all_reduce, group=mine)))
show("out of range", lambda: dist.new_group([0, size]))
show("twice the same", lambda: dist.new_group([0, 0]))
show("backend", lambda: (dist.get_backend(), dist.is_initialized(), dist.get_node_local_rank(5) >= 0))

# errors
T = torch
show("no tensor", lambda: dist.all_reduce(3))
show("no list", lambda: dist.all_gather(T.ones(2), T.ones(2)))
show("a list of others", lambda: dist.all_gather([1, 2], T.ones(2)))
show("bad root", lambda: dist.broadcast(T.ones(2), size + 3))
show("no root", lambda: dist.broadcast(T.ones(2)))
show("too few", lambda: dist.all_gather([T.ones(2)] * (size + 1), T.ones(2)))
show("other dtypes", lambda: dist.all_gather([T.ones(2)] * (size - 1) + [T.ones(2).int()], T.ones(2)))
if size > 1:
    show("gather without a list", lambda: dist.gather(T.ones(2), dst=rank))
    show("gather with a list", lambda: dist.gather(T.ones(2), [T.ones(2)] * size, dst=(rank + 1) % size))
    show("scatter without a list", lambda: dist.scatter(T.ones(2), src=rank))
    show("scatter with a list", lambda: dist.scatter(T.ones(2), [T.ones(2)] * size, src=(rank + 1) % size))
show("splits", lambda: dist.all_to_all_single(T.ones(size + 1), T.ones(size + 1), [1] * size, [1] * size))
show("no operation", lambda: dist.all_reduce(T.ones(2), "sum"))
show("bits of floats", lambda: dist.reduce(T.ones(2), 0, R.BAND))
show("complex maximum", lambda: dist.all_reduce(T.ones(2) * 1j, R.MAX))
show("again", lambda: dist.init_process_group("gloo"))
show("timeout", lambda: dist.new_group([0], timeout=3))
show("P2POp", lambda: dist.P2POp(dist.broadcast, T.ones(1), 0))
show("coalesced", lambda: dist.all_reduce_coalesced([T.ones(2), T.ones(2).int()]))
show("sizes", lambda: dist.new_subgroups(size + 1))
dist.monitored_barrier()
dist.barrier()
dist.destroy_process_group()
show("destroyed", lambda: (dist.is_initialized(), dist.get_rank()))
