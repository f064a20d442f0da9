"""What communication between processes costs, and what it would cost with more of them.

    python benchmarks/distributed.py [--json benchmarks/distributed.json]

Measures the time of collectives against their size in two processes, fits latency and bandwidth, times training steps in one
and two processes (and PyTorch's on gloo with the same model, where PyTorch is installed), and predicts the efficiency of
up to 1,024 processes on three networks from the usual model of a ring, whose assumptions are stored beside the figures.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

COLLECTIVES = """
import json, time
import autograd_nb as torch, autograd_nb.distributed as dist
dist.init_process_group('gloo')
out = {}
for name, call in dict(all_reduce=dist.all_reduce, broadcast=lambda t: dist.broadcast(t, 0)).items():
    for k in range(0, 23, 2):
        t = torch.ones(1 << k)
        times = []
        for _ in range(40 if k < 16 else 12):
            dist.barrier()
            began = time.perf_counter()
            call(t)
            times.append(time.perf_counter() - began)
        out.setdefault(name, []).append([4 << k, sorted(times)[len(times) // 2]])
if dist.get_rank() == 0: print(json.dumps(out))
"""

STEP = """
import importlib, json, sys, time
lib, rank, size, where, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
torch = importlib.import_module(lib)
dist = importlib.import_module(lib + '.distributed')
DDP = importlib.import_module(lib + '.nn.parallel').DistributedDataParallel
if lib == 'torch':
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + where, rank=rank, world_size=size)
else: dist.init_process_group('gloo')
nn = torch.nn
torch.manual_seed(0)
width = 1024
net = nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, 10))
model = DDP(net)
optimiser = torch.optim.SGD(model.parameters(), lr=.01)
batch = 64 if kind == 'weak' else 128 // size
x, y = torch.randn(batch, width), torch.zeros(batch, dtype=torch.int64)
loss = nn.CrossEntropyLoss()
times = []
for _ in range(25):
    dist.barrier()
    began = time.perf_counter()
    optimiser.zero_grad()
    loss(model(x), y).backward()
    optimiser.step()
    times.append(time.perf_counter() - began)
events = list(model.reducer.events) if hasattr(getattr(model, 'reducer', None), 'events') else []
if rank == 0: print(json.dumps(dict(step=sorted(times)[len(times) // 2], fastest=min(times), events=events)))
dist.destroy_process_group()
"""

# bytes per parameter 4; seconds of one process's step without communication, on the hardware named
MODELS = {
    "ResNet-50": {"parameters": 25.6e6, "step": 0.10, "buckets": 4, "on": "32 images on one GPU of 2020"},
    "BERT-large": {"parameters": 336e6, "step": 0.35, "buckets": 52, "on": "8 texts of 512 tokens on one GPU of 2020"},
    "GPT of 1.5 thousand million": {"parameters": 1.5e9, "step": 1.6, "buckets": 229, "on": "4 texts of 1,024 tokens on one GPU of 2020"},
}
NETWORKS = {  # latency of one message in seconds, bandwidth of one link in bytes per second
    "Ethernet, 10 Gbit/s": (30e-6, 1.1e9),
    "Ethernet, 100 Gbit/s": (15e-6, 11e9),
    "InfiniBand, 400 Gbit/s": (3e-6, 45e9),
}
ASSUMPTIONS = [
    "One process per machine, all equal; compute does not get slower with more of them (weak scaling).",
    "Sums go around a ring: 2 (p - 1) messages of 1/p of a bucket each, so 2 (p - 1) (latency + bytes / (p bandwidth)) per bucket.",
    "Buckets follow each other without gaps; two thirds of the step are backward, and all but the last bucket may hide behind it.",
    "No jitter: real machines wait for the slowest, which costs more the more there are. Efficiency is an upper bound.",
]


def ring(p, size, latency, bandwidth):
    "Seconds for the sum of `size` bytes over `p` processes in a ring."
    return 2 * (p - 1) * (latency + size / (p * bandwidth))


def efficiency(model, p, latency, bandwidth):
    "The share of a step that is compute, with as much communication hidden behind backward as fits."
    size = 4 * model["parameters"] / model["buckets"]
    one = ring(p, size, latency, bandwidth)
    hidden = min(one * (model["buckets"] - 1), model["step"] * 2 / 3)
    return model["step"] / (model["step"] + one * model["buckets"] - hidden)


def fit(points):
    "Latency and bandwidth of `time = latency + size / bandwidth`, by least squares of relative errors."
    import numpy as np

    sizes, times = np.array(points).T
    a = np.stack([1 / times, sizes / times], 1)
    latency, slope = np.linalg.lstsq(a, np.ones(len(times)), rcond=None)[0]
    return {"latency": float(max(latency, 0)), "bandwidth": float(1 / slope)}


def step(n, kind):
    from autograd_nb.distributed.launch import run_ranks

    head = "import os, sys\n" + f"sys.argv[1:] = ['autograd_nb', os.environ.get('RANK', '0'), '{n}', '-', '{kind}']\n"
    return json.loads(run_ranks(head + STEP, n, timeout=300)[0])


def step_of_torch(n, kind):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", STEP, "torch"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        runs = [subprocess.Popen([*command, str(r), str(n), f"{folder}/meet", kind], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
                for r in range(n)]
        return json.loads([run.communicate(timeout=300)[0] for run in runs][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="store the figures there")
    arguments = parser.parse_args()
    from autograd_nb.distributed.launch import run_ranks

    collectives = json.loads(run_ranks(COLLECTIVES, 2, timeout=300)[0])
    results = {"machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None},
               "collectives": {name: {"seconds by bytes": points, **fit(points)} for name, points in collectives.items()}}
    for name, found in results["collectives"].items():
        print(f"{name}: {found['latency'] * 1e6:.0f} µs + bytes / {found['bandwidth'] / 1e9:.2f} GB/s")
    libraries = {"autograd_nb": step, **({"torch": step_of_torch} if importlib.util.find_spec("torch") else {})}
    results["steps"] = {}
    for kind in ("weak", "strong"):
        for n in (1, 2):
            for name, run in libraries.items():
                found = results["steps"][f"{name} {kind} {n}"] = run(n, kind)
                print(f"{name}, {kind} scaling, {n} processes: {found['step'] * 1e3:.1f} ms a step (fastest {found['fastest'] * 1e3:.1f})", flush=True)
    results["model"] = {"assumptions": ASSUMPTIONS, "models": MODELS, "networks": NETWORKS, "efficiency": {
        model: {network: {p: round(efficiency(MODELS[model], p, *NETWORKS[network]), 3) for p in (2, 8, 64, 256, 1024)} for network in NETWORKS} for model in MODELS}}
    for model, by_network in results["model"]["efficiency"].items():
        for network, row in by_network.items():
            print(f"{model} on {network}: " + ", ".join(f"{p}: {e:.0%}" for p, e in row.items()))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
