# ruff: noqa: B023 (functions are called where they are made)
"""Programs that go wrong in one process: the test says which, and how the job has to end. Argument: what goes wrong."""

import os
import signal
import sys
import time
from datetime import timedelta

import autograd_nb as torch
import autograd_nb.distributed as dist

kind = sys.argv[1]
if kind == "raises before it starts" and os.environ["RANK"] == "1":
    raise ValueError("not even started")
dist.init_process_group("gloo", timeout=timedelta(seconds=3))
rank = dist.get_rank()
x = torch.ones(3)
dist.all_reduce(x)


def lost():
    while True:
        time.sleep(0.1)  # stuck here


if kind == "raises" and rank == 1:
    raise ValueError("an error of its own")
if kind == "leaves" and rank == 1:
    sys.exit(0)
if kind == "leaves with a code" and rank == 1:
    sys.exit(3)
if kind == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if kind in ("hangs", "hangs at the end") and rank == 1:
    lost()
if kind == "hangs at the end":
    sys.exit(0)
if kind == "stopped" and rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
if kind == "other sizes":
    dist.all_reduce(torch.ones(3 + rank))
if kind == "other sizes, large":
    dist.all_reduce(torch.ones(300000 + 7 * rank))
if kind == "other dtypes":
    dist.all_reduce(torch.ones(4).to(torch.float64 if rank else torch.float32))
if kind == "other operations":
    dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
if kind == "other calls":
    dist.broadcast(x, 0) if rank else dist.all_reduce(x)
if kind == "other roots":
    dist.broadcast(x, rank)
if kind == "another message":
    dist.send(torch.ones(5), 1) if rank == 0 else dist.recv(torch.ones(4), 0)
if kind == "no message" and rank == 1:
    dist.recv(x, 0)
if kind == "a message nobody takes" and rank == 0:
    dist.send(torch.ones(1 << 22), 1)
if kind == "a message nobody takes" and rank == 1:
    time.sleep(1.5)  # so that it is not the first to run out of time
if kind in ("other model", "fewer parameters"):
    from autograd_nb.nn.parallel import DistributedDataParallel as DDP

    DDP(torch.nn.Linear(2, 3 + rank) if kind == "other model" else torch.nn.Linear(2, 3, bias=rank == 0))
if kind == "monitored" and rank == 0:
    dist.monitored_barrier(timeout=timedelta(seconds=1))
if kind == "monitored" and rank == 1:
    lost()
if kind == "unlike a tensor":
    dist.broadcast_object_list([lambda: 1], 0)
dist.all_reduce(x)
print("came to the end")
