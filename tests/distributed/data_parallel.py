# ruff: noqa: B023 (functions are called where they are made)
"""Training with DistributedDataParallel. Runs under PyTorch and under autograd_nb: what it prints has to be the same.

Besides, every training is compared with one process that sees the whole batch. Arguments: as for collectives.py.
"""

import importlib
import sys
import warnings
from datetime import timedelta

warnings.simplefilter("ignore")
torch = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
nn, F = torch.nn, torch.nn.functional
DDP = importlib.import_module(sys.argv[1] + ".nn.parallel").DistributedDataParallel
checkpoint = importlib.import_module(sys.argv[1] + ".utils.checkpoint").checkpoint
hooks = importlib.import_module(sys.argv[1] + ".distributed.algorithms.ddp_comm_hooks.default_hooks")
Zero = importlib.import_module(sys.argv[1] + ".distributed.optim").ZeroRedundancyOptimizer
rank, size = int(sys.argv[2]), int(sys.argv[3])
where = {"init_method": f"file://{sys.argv[4]}", "rank": rank, "world_size": size} if sys.argv[1] == "torch" else {}
dist.init_process_group("gloo", timeout=timedelta(seconds=100), **where)


def show(name, function):
    try:
        out = function()
    except Exception as error:
        out = f"{type(error).__name__}: {str(error).strip()[:60]}"
    print(name, "->", out, flush=True)


class Net(nn.Module):
    "Two layers, one of them used twice, one that is never used and one that is used in every second step."

    def __init__(self, unused=False, ragged=False):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.shared.weight
        if unused:
            self.unused = nn.Linear(4, 4)
        if ragged:
            self.sometimes = nn.Linear(8, 8)
        self.ragged, self.steps = ragged, 0

    def forward(self, x, with_checkpoint=None):
        h = torch.tanh(self.first(x))
        middle = lambda h: torch.tanh(self.shared(h))  # noqa: E731
        h = checkpoint(middle, h, use_reentrant=with_checkpoint) if with_checkpoint is not None else middle(h)
        h = torch.tanh(self.tied(h))
        if self.ragged and (self.steps + rank) % 2 == 0:
            h = h + self.sometimes(h)
        self.steps += 1
        return self.last(h)


def data(n, seed=0):
    "The same in all processes and under both libraries."
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=g), torch.randint(0, 3, (n,), generator=g)


def part(x):
    "This process's share, the last process's possibly smaller."
    return x[rank::size]


def numbers(model):
    return [round(float(p.double().sum()), 4) for p in model.parameters()]


def train(wrap, steps=4, n=12, optimiser=None, **forward):
    torch.manual_seed(1 + rank)  # other weights in each process, which the wrapper has to bring together
    model = wrap()
    optimiser = (optimiser or (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)))(model.parameters())
    for step in range(steps):
        x, y = data(n, step)
        optimiser.zero_grad()
        F.cross_entropy(model(part(x), **forward), part(y)).backward()
        optimiser.step()
    return model


def alone(steps=4, n=12, **net):
    torch.manual_seed(1)
    model = Net(**net)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = data(n, step)
        optimiser.zero_grad()
        loss = sum(F.cross_entropy(model(x[r::size]), y[r::size]) for r in range(size)) / size
        loss.backward()
        optimiser.step()
    return model


def close(model, other):
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(model.parameters(), other.parameters()))


def agree(model):
    "Whether all processes have the same parameters, bit for bit."
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    others = [torch.zeros_like(flat) for _ in range(size)]
    dist.all_gather(others, flat)
    return all(torch.equal(flat, o) for o in others)


reference = alone()
KINDS = {
    "plain": lambda: DDP(Net()),
    "small buckets": lambda: DDP(Net(), bucket_cap_mb=0.0001),
    "bucket view": lambda: DDP(Net(), gradient_as_bucket_view=True),
    "static": lambda: DDP(Net(), static_graph=True),
    "search for unused": lambda: DDP(Net(), find_unused_parameters=True),
}
for kind, wrap in KINDS.items():
    model = train(wrap)
    show(kind, lambda: (numbers(model), close(model.module, reference), agree(model)))
for reentrant in (False, True):
    model = train(lambda: DDP(Net(), bucket_cap_mb=0.0001, static_graph=reentrant), with_checkpoint=reentrant)
    show(f"checkpoint {reentrant}", lambda: (numbers(model), close(model.module, reference), agree(model)))
model = train(lambda: DDP(Net(unused=True), find_unused_parameters=True))
show("unused", lambda: (numbers(model), [p.grad is None for p in model.parameters()]))
model = train(lambda: DDP(Net(unused=True), static_graph=True))
show("unused, static", lambda: (numbers(model), agree(model)))
model = train(lambda: DDP(Net(unused=True)), steps=1)
x, y = data(12)
show("unused, not looked for", lambda: model(part(x)))
model = train(lambda: DDP(Net(ragged=True), find_unused_parameters=True))
show("used here and there", lambda: (numbers(model), agree(model)))
show("uneven batches", lambda: (numbers(train(lambda: DDP(Net()), n=12 * size - 1)),))

# accumulation
model = DDP(Net())
x, y = data(24)
with model.no_sync():
    F.cross_entropy(model(part(x)[: 12 // size]), part(y)[: 12 // size]).backward()
before = model.module.last.bias.grad.clone()
F.cross_entropy(model(part(x)[12 // size :]), part(y)[12 // size :]).backward()
show("accumulated", lambda: [round(float(p.grad.sum()), 4) + 0.0 for p in model.parameters()])
for kind in ("allreduce_hook", "fp16_compress_hook"):

    def hooked():
        model = DDP(Net(), bucket_cap_mb=0.0001)
        model.register_comm_hook(None, getattr(hooks, kind))
        return model

    model = train(hooked)
    show(kind, lambda: ([round(v, 2) for v in numbers(model)], agree(model)))
    show("twice", lambda: model.register_comm_hook(None, hooks.allreduce_hook))
model = train(lambda: DDP(Net()), optimiser=lambda ps: torch.optim.Adam(ps, lr=0.01))
show("Adam", lambda: numbers(model))


def scaled(steps=4, n=12):
    "Training in bfloat16 with a scaler of the loss, one step of which overflows in one process only."
    torch.manual_seed(1 + rank)
    model = DDP(Net())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler, scales = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2), []
    for step in range(steps):
        x, y = data(n, step)
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model(part(x))
        loss = F.cross_entropy(out.float(), part(y))
        scaler.scale(loss * (float("inf") if step == 1 and rank == size - 1 else 1)).backward()
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
        scales.append(scaler.get_scale())
    return [round(v, 1) for v in numbers(model)], scales, agree(model)


show("scaled", scaled)


class Plain(nn.Module):
    "Every weight is used once, so that a sum over two processes has only one order."

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def bits(steps=4, n=12):
    "Whether one or two processes train to the very bits of one process that sees the whole batch."
    models = [DDP(Plain()), Plain()]
    models[1].load_state_dict(models[0].module.state_dict())
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    for step in range(steps):
        x, y = data(n, step)
        for o in optimisers:
            o.zero_grad()
        F.cross_entropy(models[0](part(x)), part(y)).backward()
        sum(F.cross_entropy(models[1](x[r::size]), y[r::size]) / size for r in range(size)).backward()
        for o in optimisers:
            o.step()
    return size > 2 or all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters()))


show("the same bits", bits)
optimisers = []
model = train(lambda: DDP(Net()), optimiser=lambda ps: optimisers.append(Zero(ps, optimizer_class=torch.optim.Adam, lr=0.01)) or optimisers[0])
show("state in parts", lambda: (numbers(model), agree(model)))
show("not brought together", lambda: optimisers[0].state_dict())
optimisers[0].consolidate_state_dict(0)
if rank == 0:
    saved = optimisers[0].state_dict()
    show("brought together", lambda: (sorted(saved), [round(float(s["exp_avg_sq"].sum()), 4) for s in saved["state"].values()], saved["param_groups"][0]["params"]))
total = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
show("clipped", lambda: (round(float(total), 4), agree(model)))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.norm(x))


model = train(lambda: DDP(Normed()))
model(part(data(12)[0]))
buffers = torch.cat([b.double().reshape(-1) for b in model.buffers()])
show("buffers", lambda: [round(v, 4) for v in buffers.tolist()])

from_data = importlib.import_module(sys.argv[1] + ".utils.data")
sampler = from_data.DistributedSampler(list(range(10)), seed=3)
sampler.set_epoch(2)
show("sampler", lambda: (list(sampler), len(sampler), list(from_data.DistributedSampler(list(range(10)), shuffle=False, drop_last=True))))

# uneven numbers of batches
model = DDP(Net())
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
with model.join():
    for step in range(2 + rank):
        x, y = data(4, 100 * rank + step)
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
show("join", lambda: (numbers(model), agree(model)))

# the same model everywhere
show("no parameters", lambda: DDP(nn.ReLU()))
show("two devices", lambda: DDP(nn.Linear(2, 2), device_ids=[0, 1]))
show("a device on the CPU", lambda: DDP(nn.Linear(2, 2), device_ids=[0]))
show("no hook", lambda: DDP(nn.Linear(2, 2)).register_comm_hook(None, 3))
show("empty", lambda: Zero([], optimizer_class=torch.optim.SGD, lr=0.1))
show("names", lambda: [n for n, _ in DDP(nn.Linear(2, 2)).named_parameters()])
show("repr", lambda: DDP(nn.Linear(2, 2)))
frozen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
frozen[0].weight.requires_grad_(False)
model = DDP(frozen)
model(torch.ones(1, 2) * (rank + 1)).sum().backward()
show("frozen", lambda: [None if p.grad is None else p.grad.tolist() for p in model.parameters()])
outputs = DDP(nn.Linear(2, 2))(torch.ones(1, 2))
show("differentiable", lambda: outputs.requires_grad)
with torch.no_grad():
    show("evaluated", lambda: model(torch.ones(1, 2)).requires_grad)

# differentiable collectives
dnn = importlib.import_module(sys.argv[1] + ".distributed.nn")
for name, function in {
    "all_reduce": lambda t: dnn.all_reduce(t),
    "all_gather": lambda t: torch.cat(dnn.all_gather(t)),
    "broadcast": lambda t: dnn.broadcast(t, 0),
    "reduce": lambda t: dnn.reduce(t, 0),
    "scatter": lambda t: dnn.scatter([t * (i + 1) for i in range(size)], 0),
    "gather": lambda t: torch.cat(dnn.gather(t, 0)),
    "all_to_all": lambda t: torch.cat(dnn.all_to_all([torch.zeros(2) for _ in range(size)], [t * (i + 1) for i in range(size)])),
}.items():
    leaf = torch.tensor([1.0, 2.0]) + rank
    leaf.requires_grad_()
    out = function(leaf)
    ((out * out).sum() * (rank + 1)).backward()
    show(f"through {name}", lambda: (out.detach() if name != "reduce" or rank == 0 else None, leaf.grad))
dist.barrier()
dist.destroy_process_group()
