"""Whole programs on a GPU, proven on the stand-in: models are trained there as on the CPU, to the last bits, and nothing is copied between host and device that nobody asked for."""

import copy
import io
import math

import numpy as np
import pytest
import strict_arrays as strict
from test_device import CASES, host, stand_in, waits  # noqa: F401
from test_ops_matrix import several, subsets

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.func import functional_call, grad, jvp, stack_module_state, vjp, vmap
from autograd_nb.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from autograd_nb.utils.checkpoint import checkpoint

F = nn.functional
pytestmark = pytest.mark.usefixtures("stand_in")

# Models ------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.first(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.second(x))


class Writer(nn.Module):
    "A small GPT; its last layer shares the table of its first."

    def __init__(self, words=11, d=8, steps=8):
        super().__init__()
        self.words, self.places, self.steps = nn.Embedding(words, d), nn.Embedding(steps, d), steps
        self.blocks, self.norm, self.head = nn.ModuleList([Block(d, 2) for _ in range(2)]), nn.LayerNorm(d), nn.Linear(d, words, bias=False)
        self.head.weight = self.words.weight

    def logits(self, x):
        h = self.words(x) + self.places(torch.arange(x.size(1), device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))

    def forward(self, x, y):
        return F.cross_entropy(self.logits(x).flatten(0, 1), y.flatten(), ignore_index=-1)

    @torch.no_grad()
    def write(self, x, count):
        for _ in range(count):
            logits = self.logits(x[:, -self.steps :])[:, -1]
            best, _ = torch.topk(logits, 3)
            logits[logits < best[:, [-1]]] = -math.inf
            x = torch.cat([x, torch.multinomial(F.softmax(logits, -1), 1)], 1)
        return x


class Reader(nn.Module):
    "An encoder of padded sentences, with places from a buffer."

    def __init__(self, words=11, d=8):
        super().__init__()
        self.words = nn.Embedding(words, d, padding_idx=0)
        at, rate = torch.arange(16.0).unsqueeze(1), torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
        self.register_buffer("places", torch.stack([torch.sin(at * rate), torch.cos(at * rate)], -1).flatten(1))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 2, 16, dropout=0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(d, 3)

    def forward(self, x, y):
        padding = x == 0
        h = self.encoder(self.words(x) * math.sqrt(8) + self.places[: x.size(1)], src_key_padding_mask=padding)
        h = h.masked_fill(padding.unsqueeze(-1), 0).sum(1) / (~padding).sum(1, keepdim=True)
        return F.cross_entropy(self.head(h), y, label_smoothing=0.1)


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.side, self.main = (
            nn.Conv2d(4, 8, 1, 2),
            nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 1, 1)),
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x, y):
        h = self.first(x)
        h = F.relu(self.main(h) + self.side(h))
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(h, 1).flatten(1)), y)


class Sequences(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words, self.layer, self.head = (
            nn.Embedding(11, 6),
            getattr(nn, kind)(6, 5, 2, batch_first=True, bidirectional=True),
            nn.Linear(10, 11),
        )

    def forward(self, x, y):
        return F.cross_entropy(self.head(self.layer(self.words(x))[0]).transpose(1, 2), y)


class Steps(nn.Module):
    "Cells in a loop, whose states begin as zeros where the input is."

    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.gru, self.head = nn.Embedding(11, 6), nn.LSTMCell(6, 5), nn.GRUCell(5, 5), nn.Linear(5, 3)

    def forward(self, x, y):
        h = torch.zeros(x.size(0), 5, device=x.device, dtype=self.head.weight.dtype)
        c, g = torch.zeros_like(h), h.new_full((x.size(0), 5), 0.5)
        for t in range(x.size(1)):
            h, c = self.lstm(self.words(x[:, t]), (h, c))
            g = self.gru(h, g)
        return F.cross_entropy(self.head(g), y)


class Oddities(nn.Module):
    "Parameters of all sorts, a counter among the buffers, parametrizations, products by einsum, gathering and scattering."

    def __init__(self):
        super().__init__()
        self.weights, self.scale = nn.Parameter(torch.randn(2, 6, 6) / 4), nn.Parameter(torch.tensor(1.5))
        self.list, self.dict = (
            nn.ParameterList([nn.Parameter(torch.ones(6)) for _ in range(2)]),
            nn.ParameterDict({"shift": nn.Parameter(torch.zeros(6))}),
        )
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0]))
        self.register_buffer("count", torch.tensor(0))
        self.words, self.pair = nn.Embedding(11, 6), nn.Bilinear(6, 6, 3)
        self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))

    def forward(self, x, y):
        self.count = self.count + 1
        h = torch.einsum("btd,hde->bhte", self.words(x), self.weights) * self.mask
        h = self.norm(F.normalize(sum(h[:, i] * p for i, p in enumerate(self.list)) + self.dict["shift"], dim=-1) * self.scale)
        best = torch.argmax(h.norm(dim=-1), 1)
        g = torch.gather(h, 1, best[:, None, None].expand(-1, 1, 6)).squeeze(1)
        kept = F.one_hot(best, x.size(1)).sum(1, keepdim=True) * g
        r = torch.zeros_like(g).scatter_add(
            1, (torch.arange(6, device=x.device) % 3).expand(x.size(0), 6), torch.where(g > 0, g, g.exp() - 1)
        )
        kept, r = kept.to(self.pair.weight.dtype), r.to(self.pair.weight.dtype)  # which autocast leaves alone on the CPU
        return F.cross_entropy(self.pair(kept, r), y) + torch.log1p(torch.cdist(g, r).square()).mean()


def sentences(classes):
    return lambda: (torch.randint(1, 11, (4, 6)), torch.randint(0, classes, (4, 6) if classes > 3 else (4,)))


def drawn():
    return torch.randn(4, 1, 8, 8), torch.tensor([0, 2, 1, 1])


MODELS = {
    "gpt": (Writer, sentences(11)),
    "encoder": (Reader, sentences(3)),
    "pictures": (Pictures, drawn),
    **{kind.lower(): (lambda kind=kind: Sequences(kind), sentences(11)) for kind in ("LSTM", "GRU", "RNN")},
    "cells": (Steps, sentences(3)),
    "oddities": (Oddities, sentences(3)),
}


def made(name, place, dtype=torch.float64):
    make, draw = MODELS[name]
    torch.manual_seed(0)
    model, batch = make(), draw()
    return model.to(place, dtype), [t.to(place, dtype if t.is_floating_point() else t.dtype) for t in batch]


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for r in (result.values() if isinstance(result, dict) else result) for t in flat(r)]


def agree(program, name, tolerance, copies=()):
    "A program's results on the stand-in are those of the CPU; `copies`: how often numbers enter and leave the device."
    expected = flat(program(*made(name, "cpu"), "cpu"))
    model, batch = made(name, "cuda")
    strict.transfers.clear()
    found = flat(program(model, batch, "cuda"))
    assert +strict.transfers == dict(copies), strict.transfers
    for a, b in zip(expected, found, strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(host(b.detach()), a.detach()._array, rtol=tolerance, atol=tolerance)


# Programs ----------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "adamw": (lambda ps: torch.optim.AdamW([dict(params=[p for p in ps if p.dim() > 1]), dict(params=[p for p in ps if p.dim() < 2], weight_decay=0.0, lr=0.02)], lr=0.01), lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.02, total_steps=8)),
    "sgd": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 6)),
}  # fmt: skip


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_training(name, kind):
    "Losses, norms of gradients, and at the end all parameters and buffers."

    def program(model, batch, place):
        make, plan = OPTIMIZERS[kind]
        optimizer = make(list(model.parameters()))
        schedule, seen = plan(optimizer), []
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(*batch)
            loss.backward()
            seen += [loss.detach(), nn.utils.clip_grad_norm_(model.parameters(), 1.0)]
            optimizer.step(), schedule.step()
        return seen, model.state_dict()

    agree(program, name, 1e-7)


def gradients(model, batch, place):
    model(*batch).backward()
    return {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


def per_example(model, batch, place):
    parameters, buffers = {k: p.detach() for k, p in model.named_parameters()}, dict(model.eval().named_buffers())
    loss = lambda p, *each: functional_call(model, (p, buffers), tuple(t.unsqueeze(0) for t in each))
    return vmap(grad(loss), (None, *[0] * len(batch)))(parameters, *batch)


def ensemble(model, batch, place):
    parameters, buffers = stack_module_state([copy.deepcopy(model) for _ in range(2)])
    base = copy.deepcopy(model).eval()
    return vmap(lambda p, b: functional_call(base, (p, b), tuple(batch)))(parameters, buffers)


def forward_mode(model, batch, place):
    parameters = {k: p.detach() for k, p in model.named_parameters()}

    def run(p):
        buffers = {k: b.clone() for k, b in model.named_buffers()}  # those of the model itself may not be written to here
        return functional_call(model, (p, buffers), tuple(batch))

    return jvp(run, (parameters,), ({k: torch.ones_like(p) for k, p in parameters.items()},))


def twice(model, batch, place):
    ps = list(model.parameters())
    first = torch.autograd.grad(model(*batch), ps, create_graph=True, materialize_grads=True)
    return torch.autograd.grad(sum(g.square().sum() for g in first), ps, materialize_grads=True)


def checkpointed(model, batch, place):
    checkpoint(model, *batch, use_reentrant=False).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def copied(model, batch, place):
    return gradients(copy.deepcopy(model), batch, place), model.state_dict()


def averaged(model, batch, place):
    mean, optimizer = (
        AveragedModel(model, device=place, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )
    for _ in range(2):
        optimizer.zero_grad(), model(*batch).backward(), optimizer.step()
        mean.update_parameters(model)
    return list(mean.parameters())


def watched(model, batch, place):
    seen = []
    for module in model.modules():
        module.register_forward_hook(
            lambda module, given, out: seen.append(out.detach().abs().mean()) if isinstance(out, torch.Tensor) else None
        )
    gradients(model, batch, place)
    return seen, nn.utils.parameters_to_vector(model.parameters())


def inferred(model, batch, place):
    with torch.inference_mode():
        return model.eval()(*batch)


COPIES = {"averaged": {"to_device": 1, "to_host": 2}}  # the counter is sent, and looked at once per update, as in PyTorch
PROGRAMS = {
    f.__name__: f for f in (gradients, per_example, ensemble, forward_mode, twice, checkpointed, copied, averaged, watched, inferred)
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", MODELS)
def test_program(name, program):
    agree(PROGRAMS[program], name, 1e-8, COPIES.get(program, {}))


@pytest.mark.parametrize("name", MODELS)
def test_mixed_precision(name):
    "Half precision with scaled losses: the scaler asks once per step whether numbers overflowed."

    def program(model, batch, place):
        optimizer, scaler, seen = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler(place), []
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast(place, dtype=torch.float16):
                loss = model(*batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer), nn.utils.clip_grad_norm_(model.parameters(), 1.0), scaler.step(optimizer), scaler.update()
            seen.append(loss.detach().float())
        return seen

    expected = program(*made(name, "cpu", torch.float32), "cpu")
    model, batch = made(name, "cuda", torch.float32)
    strict.transfers.clear()
    found = program(model, batch, "cuda")
    assert strict.transfers["to_host"] == 2
    for a, b in zip(expected, found):
        assert abs(a._array - host(b)) < 0.02


def test_checkpoint_files():
    "Training goes on from a file as if it had never stopped, wherever the file is read."
    model, batch = made("gpt", "cuda")
    optimizer = torch.optim.Adam(model.parameters())
    model(*batch).backward(), optimizer.step()
    file = io.BytesIO()
    torch.save(
        dict(
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            chance=torch.get_rng_state(),
            far=torch.cuda.get_rng_state(),
            epoch=3,
        ),
        file,
    )
    optimizer.zero_grad(), model(*batch).backward(), optimizer.step()
    for place in (None, "cpu", "cuda", torch.device("cuda:0"), {"cuda:0": "cpu"}, lambda storage, where: storage):
        file.seek(0)
        kept = torch.load(file, map_location=place)
        again = Writer().double().cuda()
        again.load_state_dict(kept["model"])
        other = torch.optim.Adam(again.parameters())
        other.load_state_dict(kept["optimizer"])
        again(*batch).backward(), other.step()
        assert (
            all(torch.equal(p, q) and q.is_cuda for p, q in zip(model.parameters(), again.parameters(), strict=True))
            and again.head.weight is again.words.weight
        )
        torch.set_rng_state(kept["chance"].cpu()), torch.cuda.set_rng_state(kept["far"].cpu())


def test_writing():
    model, (x, _) = made("gpt", "cuda")
    out = model.eval().write(x[:, :2], 9)
    assert out.is_cuda and out.shape == (4, 11) and 0 <= host(out).min() and host(out).max() < 11


def test_loader_and_loop():
    "The loop of a tutorial: pinned batches, copies that do not wait, accuracy counted on the device."
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(20, 1, 8, 8), torch.randint(0, 3, (20,)))
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True, pin_memory=True, drop_last=False)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    strict.transfers.clear()
    for x, y in loader:
        x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert not strict.transfers["to_host"]
    model.eval()
    with torch.no_grad():
        right = sum((model(x.cuda()).argmax(1) == y.cuda()).sum() for x, y in loader)
    assert 0 <= right.item() <= 20


# Every operation under every transform -----------------------------------------------------------------------


def results(case, program):
    "A program on both places; its numbers agree, and none leaves the device where the operation does not ask."
    try:
        expected = program("cpu")
    except (RuntimeError, NotImplementedError):
        return  # no such derivative: the CPU's tests look at that
    strict.transfers.clear()
    found = program("cuda")
    copies = strict.transfers["to_host"]
    for a, b in zip(expected, found, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        np.testing.assert_allclose(host(b), a._array, rtol=1e-7, atol=1e-9)
    assert not copies or waits(case)


def split(case, xs):
    "The operation as a function of the inputs that it differentiates; its results that have derivatives."

    def function(*wanted):
        given = iter(wanted)
        outs = several(case.op.general(*[next(given) if i in case.wanted else x for i, x in enumerate(xs)], **case.statics))
        return tuple(
            o
            for k, o in enumerate(outs)
            if (case.op.outputs == 1 or case.op.differentiable is None or k in case.op.differentiable)
            and (o.is_floating_point() or o.is_complex())
        )

    return function, [xs[i] for i in case.wanted]


@pytest.mark.parametrize("case", CASES)
def test_operation_under_transforms(case):
    "`vmap` with every choice of batched inputs, and derivatives through it; forward mode; gradients per example; several gradients at once."
    draws = case.examples()
    places = range(len(case.inputs))

    def batched(chosen):
        values = [np.stack([d[i] for d in draws]) if i in chosen else draws[0][i] for i in places]

        def program(place):
            xs = [x.detach().to(place).requires_grad_(x.requires_grad) for x in case.tensors(values)]
            outs = several(vmap(lambda *a: case.op.general(*a, **case.statics), tuple(0 if i in chosen else None for i in places))(*xs))
            ends = [o for o in outs if o.requires_grad]
            gradients = (
                torch.autograd.grad(
                    ends, [xs[i] for i in case.wanted], [s.to(place) for s in case.cotangents(ends)], materialize_grads=True
                )
                if ends
                else ()
            )
            return [t.detach() for t in (*outs, *gradients)]

        return program

    for chosen in subsets(places):
        if chosen:
            results(case, batched(chosen))
    if not case.wanted:
        return

    def forward(place):
        function, xs = split(case, [x.detach().to(place) for x in case.tensors(case.draw())])
        outs, tangents = jvp(function, tuple(xs), tuple(t.to(place) for t in case.cotangents(xs)))
        return [*outs, *tangents]

    def each(place):
        def one(*xs):
            function, wanted = split(case, xs)
            outs, pull = vjp(function, *wanted)
            return (*outs, *pull(tuple(torch.ones_like(o) for o in outs)))

        return list(vmap(one)(*[torch.from_numpy(np.stack([d[i] for d in draws])).to(place) for i in places]))

    def at_once(place):
        xs = [x.detach().to(place).requires_grad_(x.requires_grad) for x in case.tensors(case.draw())]
        outs = [o for o in case.outputs(*xs) if o.requires_grad]
        return list(
            torch.autograd.grad(
                outs,
                [xs[i] for i in case.wanted],
                [torch.stack([s, 2 * s]).to(place) for s in case.cotangents(outs)],
                is_grads_batched=True,
            )
        )

    for program in (forward, each, at_once):
        results(case, program)
