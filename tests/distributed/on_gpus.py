"""Collectives and training on GPUs, over NCCL, proven without either: arrays are those of `strict_arrays.py`, and a stand-in
for CuPy's NCCL carries the bytes at the addresses it is given by MPI. Every result has to be that of the CPU.
"""

import ctypes
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).parents[1]))
import strict_arrays as strict  # noqa: E402
from mpi4py import MPI  # noqa: E402

import autograd_nb as torch  # noqa: E402
import autograd_nb.distributed as dist  # noqa: E402
from autograd_nb import nn  # noqa: E402
from autograd_nb.arrays import cupy_backend  # noqa: E402
from autograd_nb.nn.parallel import DistributedDataParallel as DDP  # noqa: E402

# What CuPy 14 calls them, and NCCL's numbers.
DTYPES = {"INT8": 0, "UINT8": 1, "INT32": 2, "UINT32": 3, "INT64": 4, "UINT64": 5, "FLOAT16": 6, "FLOAT32": 7, "FLOAT64": 8, "BFLOAT16": 9}
NUMPY = {0: "i1", 1: "u1", 2: "i4", 3: "u4", 4: "i8", 5: "u8", 6: "f2", 7: "f4", 8: "f8", 9: torch.bfloat16.numpy}
OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3, "AVG": 4}
UFUNCS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}


def memory(address, count, datatype):
    "The numbers at an address, as NumPy sees them."
    dtype = np.dtype(NUMPY[datatype])
    bytes_ = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(bytes_, np.uint8).view(dtype)


class NcclCommunicator:
    "CuPy's methods, with its arguments. Messages inside a group start together."

    def __init__(self, ndev, commId, rank):
        assert isinstance(commId, bytes) and len(commId) == 128
        self.comm = MPI.COMM_WORLD.Dup()
        assert (ndev, rank) == (self.comm.Get_size(), self.comm.Get_rank())

    def _reduced(self, sendbuf, count, datatype, op):
        parts = self.comm.allgather(memory(sendbuf, count, datatype).tobytes())
        parts = [np.frombuffer(p, np.dtype(NUMPY[datatype])) for p in parts]
        return UFUNCS[op].reduce(np.stack(parts)) if count else parts[0]

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        memory(recvbuf, count, datatype)[...] = self._reduced(sendbuf, count, datatype, op)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        total = self._reduced(sendbuf, count, datatype, op)
        if self.comm.Get_rank() == root:
            memory(recvbuf, count, datatype)[...] = total

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        sent = self.comm.bcast(memory(sendbuff, count, datatype).tobytes(), root)
        memory(recvbuff, count, datatype)[...] = np.frombuffer(sent, np.dtype(NUMPY[datatype]))

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        parts = self.comm.allgather(memory(sendbuf, count, datatype).tobytes())
        memory(recvbuf, count * len(parts), datatype)[...] = np.frombuffer(b"".join(parts), np.dtype(NUMPY[datatype]))

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        size, rank = self.comm.Get_size(), self.comm.Get_rank()
        total = self._reduced(sendbuf, recvcount * size, datatype, op)
        memory(recvbuf, recvcount, datatype)[...] = total[rank * recvcount : (rank + 1) * recvcount]

    def send(self, sendbuf, count, datatype, peer, stream):
        started.append(self.comm.Isend(memory(sendbuf, count, datatype).view(np.uint8), peer))
        if not grouped[0]:
            finish()

    def recv(self, recvbuf, count, datatype, peer, stream):
        started.append(self.comm.Irecv(memory(recvbuf, count, datatype).view(np.uint8), peer))
        if not grouped[0]:
            finish()


started, grouped = [], [0]


def finish():
    MPI.Request.Waitall(started)
    started.clear()


def group(step):
    grouped[0] += step
    if not grouped[0]:
        finish()


strict.library.cuda.nccl = SimpleNamespace(
    available=True, get_unique_id=lambda: bytes(range(128)), NcclCommunicator=NcclCommunicator, groupStart=lambda: group(1), groupEnd=lambda: group(-1),
    **{f"NCCL_{name}": number for name, number in {**DTYPES, **OPS}.items()})
strict.devices = 1
cupy_backend.use(strict.library, fused=False)

dist.init_process_group("cpu:gloo,cuda:nccl")
rank, size = dist.get_rank(), dist.get_world_size()


def same(name, program):
    "What a program gives on both devices; also printed, for whoever looks."
    here, there = program("cpu"), program("cuda")
    here, there = ([t.cpu() for t in (r if isinstance(r, (list, tuple)) else [r])] for r in (here, there))
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(here, there, strict=True)), (name, here, there)
    print(name, "->", [t.tolist() for t in here])


R = dist.ReduceOp


def after(call, x, *arguments, **options):
    call(x, *arguments, **options)
    return x


def numbers(dtype, device, n=4):
    return (torch.arange(n) + rank).to(dtype).to(device)


def filled(call, outs, *arguments, **options):
    call(outs, *arguments, **options)
    return outs


for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64):
    same(f"sum {dtype}", lambda d: after(dist.all_reduce, numbers(dtype, d)))  # noqa: B023
    same(f"broadcast {dtype}", lambda d: after(dist.broadcast, numbers(dtype, d), size - 1))  # noqa: B023
    same(f"all_gather {dtype}", lambda d: filled(dist.all_gather, [torch.zeros_like(numbers(dtype, d)) for _ in range(size)], numbers(dtype, d)))  # noqa: B023
for op in (R.SUM, R.AVG, R.PRODUCT, R.MIN, R.MAX):
    same(f"all_reduce {op}", lambda d: after(dist.all_reduce, numbers(torch.float32, d), op))  # noqa: B023
    same(f"reduce_scatter {op}", lambda d: after(dist.reduce_scatter_tensor, torch.zeros(3, device=d), numbers(torch.float32, d, 3 * size), op))  # noqa: B023
same("reduce", lambda d: after(dist.reduce, numbers(torch.float32, d), 0) if rank == 0 else [dist.reduce(numbers(torch.float32, d), 0), torch.ones(1)][1])
same("all_gather_into_tensor", lambda d: after(dist.all_gather_into_tensor, torch.zeros(4 * size, device=d), numbers(torch.float32, d)))
same("gather", lambda d: filled(lambda outs: dist.gather(numbers(torch.float32, d), outs if rank == 0 else None, 0), [torch.zeros(4, device=d) for _ in range(size)]))
same("scatter", lambda d: after(dist.scatter, torch.zeros(4, device=d), [numbers(torch.float32, d) * (i + 1) for i in range(size)] if rank == 0 else None, 0))
same("all_to_all", lambda d: after(dist.all_to_all_single, torch.zeros(2 * size, device=d), numbers(torch.float32, d, 2 * size)))
if size > 1:

    def ring(d):
        x, y = numbers(torch.float32, d), torch.zeros(4, device=d)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, y, (rank - 1) % size)])
        for work in works:
            work.wait()
        return y

    same("ring", ring)


def trained(device):
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).to(device), bucket_cap_mb=0.0001)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        x = torch.randn(6 * size, 4, generator=torch.Generator().manual_seed(step))[rank::size].to(device)
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
    return [p.detach() for p in model.parameters()]


on_cpu, on_gpu = trained("cpu"), trained("cuda")
assert all(torch.allclose(a, b.cpu(), atol=1e-6) for a, b in zip(on_cpu, on_gpu))
print("trained")
dist.destroy_process_group()
