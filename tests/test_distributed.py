"""Programs in several processes, started by a real `mpiexec`: results beside PyTorch's and one process's, and jobs that go wrong."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autograd_nb.distributed.launch import RanksFailed, run_ranks, translate
from tests._compare import same_text

PROGRAMS = Path(__file__).parent / "distributed"
pytestmark = pytest.mark.needs("mpi")


def program(name: str, n: int, *arguments, timeout=200) -> list[str]:
    "What each rank of a program in tests/distributed prints."
    start = f"import os, runpy, sys\nsys.argv = [{str(PROGRAMS / name)!r}, *{list(arguments)!r}]\n"
    if name != "failures.py":
        start += f"sys.argv += ['autograd_nb', os.environ['RANK'], '{n}', '-']\n"
    return run_ranks(start + "runpy.run_path(sys.argv[0], run_name='__main__')", n, timeout=timeout)


def under_torch(name: str, n: int, folder: Path) -> list[str]:
    "What each rank prints when the same program runs under PyTorch, in processes of its own that meet at a file."
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(rank):
        done = subprocess.run([sys.executable, str(PROGRAMS / name), "torch", str(rank), str(n), str(folder / "meet")],
                              capture_output=True, text=True, timeout=300, env=environment)
        assert not done.returncode, done.stderr
        return done.stdout

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name, n", [*((name, n) for name in ("collectives.py", "data_parallel.py") for n in (1, 2, 3, 4)), ("meshes.py", 4)])
def test_prints_what_pytorch_prints(name, n, tmp_path):
    ours, theirs = program(name, n), under_torch(name, n, tmp_path)
    for rank in range(n):
        assert len(theirs[rank]) > 1000
        for mine, other in zip(ours[rank].splitlines(), theirs[rank].splitlines(), strict=True):
            assert same_text(mine, other), f"rank {rank}:\n{mine}\n{other}"


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_training_in_parts_is_training_on_the_whole_batch(n):
    "Trained weights beside one process; with 1 and 2 processes bit for bit where every weight is used once, as sums of two come out the same in any order."
    for lines in program("data_parallel.py", n):
        results = dict(line.split(" -> ") for line in lines.splitlines() if " -> " in line)
        for kind in ("plain", "small buckets", "bucket view", "static", "search for unused", "checkpoint False", "checkpoint True"):
            assert results[kind].endswith("True, True)"), (kind, results[kind])
        assert results["the same bits"] == "True"


FAILURES = {  # what goes wrong -> words that have to be in what is printed
    "raises": ["[rank1]: ValueError: an error of its own"],
    "raises before it starts": ["[rank1]: ValueError: not even started"],
    "leaves": ["rank 1 has left after 1 calls in this group", "failures.py:"],
    "leaves with a code": ["rank 1 has left after 1 calls in this group"],
    "hangs": ["[rank1]: rank 0 waits for this process, which is here:", "# stuck here", "Timed out waiting 3000ms for all_reduce(SUM) of float32[3]",
              "rank 1 has not come to it and is at", "in lost"],
    "hangs at the end": ["[rank0]: has come to its end and waited 3 s for the others", "in lost"],
    "stopped": ["Timed out waiting 3000ms", "rank 1 does not answer"],
    "other sizes": ["Detected mismatch between collectives on ranks", "float32[3] at", "float32[4] at"],
    "other sizes, large": ["Detected mismatch between collectives on ranks", "float32[300000]", "float32[300007]"],
    "other dtypes": ["Detected mismatch between collectives on ranks", "float32[4]", "float64[4]"],
    "other operations": ["Detected mismatch between collectives on ranks", "all_reduce(SUM)", "all_reduce(MAX)"],
    "other calls": ["Detected mismatch between collectives on ranks", "broadcast(from 0)", "all_reduce(SUM)"],
    "other roots": ["Detected mismatch between collectives on ranks", "broadcast(from 0)", "broadcast(from 1)"],
    "another message": ["Detected mismatch between send and recv", "recv(from 0) of float32[4]", "float32[5]"],
    "no message": ["Timed out waiting 3000ms for recv(from 0)"],
    "a message nobody takes": ["Timed out waiting 3000ms for send(to 1)"],
    "other model": ["appears not to match sizes of the same param in process 0"],
    "fewer parameters": ["DDP expects same model across all ranks, but Rank"],
    "monitored": ["Rank 1 failed to pass monitoredBarrier in 1000 ms", "in lost"],
    "killed": ["Killed"],
    "unlike a tensor": ["cannot send an object of type builtins.function"],
}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_on_gpus(n):
    "Collectives over NCCL and training there, on stand-ins for both, give what the CPU gives."
    source = f"import runpy\nrunpy.run_path({str(PROGRAMS / 'on_gpus.py')!r}, run_name='__main__')"
    for lines in run_ranks(source, n, timeout=200):
        assert lines.endswith("trained\n") and lines.count("->") >= 45


@pytest.mark.parametrize("kind", FAILURES)
def test_a_job_that_goes_wrong_ends_soon_and_says_why(kind):
    with pytest.raises(RanksFailed) as failed:  # a job that only ends when its time is up says "still running"
        program("failures.py", 2, kind)
    errors = failed.value.errors
    assert "still running" not in errors
    for words in FAILURES[kind]:
        assert words in errors, errors
    assert not any("came to the end" in out for out in failed.value.output)


def test_the_innocent_do_not_speak_first():
    with pytest.raises(RanksFailed) as failed:
        program("failures.py", 3, "raises")
    assert failed.value.errors.lstrip().startswith("[rank1]: Traceback (most recent call last):")


def test_variables_of_the_environment():
    "Programs written for torchrun read these, under the names that other starters of MPI use too."
    out = run_ranks("import os\nimport autograd_nb\nprint(*(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE')), 'MASTER_ADDR' in os.environ)", 2)
    assert out == ["0 2 0 2 True\n", "1 2 1 2 True\n"]
    kept = {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "PMI_RANK": "0", "PMI_SIZE": "2"}
    assert translate(kept) and kept["RANK"] == "5"


def test_alone_without_mpiexec():
    "A program that is not started by mpiexec is a group of one; told that there are more, it says how to start them."
    source = "import autograd_nb as torch, autograd_nb.distributed as d\nd.init_process_group('gloo')\nx = torch.ones(2)\nd.all_reduce(x)\nprint(d.get_world_size(), x.tolist())"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "MPI"))}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=600, env=clean)
    assert done.stdout == "1 [1.0, 1.0]\n", done.stderr
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=600, env={**clean, "WORLD_SIZE": "4", "RANK": "0"})
    assert "start the program with mpiexec -n 4 python program.py" in done.stderr


def test_without_mpi_it_says_what_to_install():
    source = ("import sys\nsys.modules['mpi4py'] = None\nimport autograd_nb.distributed as d\n"
              "try: d.init_process_group('gloo')\nexcept RuntimeError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("Distributed package doesn't have MPI built in. Install it: pip install mpich mpi4py") and done.stdout.count("\n") == 1


def test_importing_costs_nothing():
    done = subprocess.run([sys.executable, "-c", "import sys, autograd_nb, autograd_nb.distributed, autograd_nb.nn\nprint('mpi4py' in sys.modules)\n"
                           "import autograd_nb as t\nt.nn.parallel.DistributedDataParallel\nprint('mpi4py' in sys.modules)"], capture_output=True, text=True, timeout=100)
    assert done.stdout == "False\nFalse\n", done.stderr


TOGETHER = """
import autograd_nb as torch, autograd_nb.distributed as dist
from autograd_nb import nn
from autograd_nb.nn.parallel import DistributedDataParallel as DDP
from autograd_nb.viz import doctor
dist.init_process_group('gloo')
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.randn(4 * size, 3, generator=torch.Generator().manual_seed(0))
y = x.sum(1, keepdim=True)
"""


def test_gradients_sent_in_bfloat16():
    out = run_ranks(TOGETHER + """
from autograd_nb.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
torch.manual_seed(0)
model = DDP(nn.Linear(3, 1))
model.register_comm_hook(None, bf16_compress_hook)
plain = nn.Linear(3, 1)
plain.load_state_dict(model.module.state_dict())
(model(x[rank::size]) - y[rank::size]).square().mean().backward()
parts = []
for r in range(size):
    plain.zero_grad()
    (plain(x[r::size]) - y[r::size]).square().mean().backward()
    parts.append(plain.weight.grad.to(torch.bfloat16) / size)
print(model.module.weight.grad.dtype, torch.allclose(model.module.weight.grad, sum(parts).float(), rtol=0.01))
""", 2)
    assert out == ["torch.float32 True\n".replace("torch.", "autograd_nb.")] * 2 or out == ["torch.float32 True\n"] * 2


def test_batch_norm_by_the_statistics_of_all_processes():
    out = run_ranks(TOGETHER + """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
alone = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
alone.load_state_dict(net.state_dict())
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))
for m, a, b in ((model, x[rank::size], y[rank::size]), (alone, x, y)):
    for _ in range(2): ((m(a) - b) ** 2).mean().backward()
pairs = [*zip(model.parameters(), alone.parameters()), *zip(model.buffers(), alone.buffers())]
print(all(torch.allclose(a, b, atol=1e-5) for a, b in pairs), all(torch.allclose(a.grad, b.grad, atol=1e-5) for a, b in zip(model.parameters(), alone.parameters())))
""", 3)
    assert out == ["True True\n"] * 3


def test_the_doctor_compares_processes():
    out = run_ranks(TOGETHER + """
def examine(make, a, b, call=lambda m: m):
    torch.manual_seed(1 + rank)
    model = make()
    optimiser = torch.optim.SGD(model.parameters(), lr=.01)
    def step():
        optimiser.zero_grad()
        loss = ((call(model)(a) - b) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss
    found = doctor(model, step)
    print(found.kinds)
    return found
mine = x[rank::size], y[rank::size]
def seeded():
    torch.manual_seed(0)
    return nn.Linear(3, 1)
examine(lambda: DDP(nn.Linear(3, 1)), *mine)
examine(lambda: nn.Linear(3, 1), *mine)
examine(seeded, *mine)
examine(lambda: DDP(nn.Linear(3, 1)), *mine, call=lambda m: m.module)
found = examine(lambda: DDP(nn.Linear(3, 1)), x, y)
assert 'DistributedSampler' in str(found)
""", 2)
    expected = ["[]", "['diverged', 'unreduced']", "['unreduced']", "['unreduced']", "['same_data']"]
    assert out == ["\n".join(expected) + "\n"] * 2


SPAWNED = """
import os, sys
import autograd_nb as torch, autograd_nb.distributed as dist, autograd_nb.multiprocessing as mp

def train(rank, size, failing=None):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    if rank == failing: raise ValueError("an error of its own")
    x = torch.tensor([float(rank + 1)])
    dist.all_reduce(x)
    assert x.item() == sum(range(1, size + 1))
    if rank == 0: print("sum", x.item(), flush=True)
    dist.destroy_process_group()

def put(rank, queue): queue.put(rank)
def leave(rank): sys.exit(3)

if __name__ == "__main__":
    mp.spawn(train, args=(3,), nprocs=3, join=True)
    try: mp.spawn(train, args=(2, 1), nprocs=2)
    except mp.ProcessRaisedException as error:
        print(error.error_index, "Process 1 terminated with the following error" in str(error), str(error).strip().splitlines()[-1])
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(put, args=(queue,), nprocs=2, join=False)
    print(sorted([queue.get(), queue.get()]), context.join(), len(context.pids()))
    for n in (1, 2):
        try: mp.spawn(leave, nprocs=n)
        except mp.ProcessExitedException as error: print(error, error.exit_code)
"""


def test_processes_started_from_a_program(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNED)
    done = subprocess.run([sys.executable, str(tmp_path / "train.py")], capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1])})
    assert done.stdout.splitlines() == ["sum 6.0", "1 True ValueError: an error of its own", "[0, 1] True 2", *["process 0 terminated with exit code 3 3"] * 2], done.stderr
