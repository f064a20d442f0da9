"""A captured step does, to the bit, what the step does; and where it could not, it says so."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autograd_nb as torch
import autograd_nb.nn.functional as F
from autograd_nb import nn
from autograd_nb.layers.observers import observe
from autograd_nb.graph.pytree import tree_leaves
from autograd_nb.ops import compiled
from autograd_nb.utils.capture import CaptureError, capture
from autograd_nb.utils.checkpoint import checkpoint

STEPS = 7


def mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))


def pairs(batch=8, features=12, classes=4, seed=3):
    torch.manual_seed(seed)
    return [(torch.randn(batch, features), torch.randint(0, classes, (batch,))) for _ in range(STEPS)]


def classifier(make=mlp, optimizer=lambda ps: torch.optim.Adam(ps, 1e-2), loss=F.cross_entropy, data=pairs, after=None):
    "A program: returns a step, the batches, and what holds its state."
    def build():
        model = make()
        opt = optimizer(list(model.parameters()))
        extra = after(model, opt) if after else None

        def step(x, y):
            opt.zero_grad()
            out = loss(model(x), y)
            out.backward()
            if extra: extra()
            opt.step()
            return out
        return step, data(), model
    return build


PROGRAMS = {
    "adam": classifier(),
    "sgd with momentum": classifier(optimizer=lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=1e-3, nesterov=True)),
    "adamw, clipped": classifier(optimizer=lambda ps: torch.optim.AdamW(ps, 1e-2), after=lambda model, opt: lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.3)),
    "rmsprop, clipped values": classifier(optimizer=torch.optim.RMSprop, after=lambda model, opt: lambda: nn.utils.clip_grad_value_(model.parameters(), 0.01)),
    "mean squared error": classifier(loss=lambda out, y: F.mse_loss(out[:, 0], y.float())),
    "soft functions": classifier(lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 16), nn.ELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Sigmoid())),
    "dropout": classifier(lambda: nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 4))),
    "batch norm": classifier(lambda: nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.1), nn.Linear(16, 4))),
    "convolutions": classifier(lambda: nn.Sequential(nn.Unflatten(1, (1, 12)), nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(24, 4))),
    "double precision": classifier(lambda: mlp().double(), data=lambda: [(x.double(), y) for x, y in pairs()]),
    "large": classifier(lambda: nn.Sequential(nn.Linear(12, 700), nn.Tanh(), nn.Linear(700, 4)), data=lambda: pairs(64)),
}


def program(build):
    PROGRAMS[build.__name__.replace("_", " ")] = build
    return build


@program
def lines_in_a_row():
    w = torch.randn(300, 300, requires_grad=True)

    def step(x):
        w.grad = None
        y = (w * x + 1).tanh() * 0.5 - x
        y = (y.exp() - w).sin() * y / (x * x + 2)
        loss = torch.where(y > 0, y, -y * 0.1).sum() + (w ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad * 1e-2)
        return loss, y.mean()
    return step, [(torch.randn(300, 300),) for _ in range(STEPS)], w


@program
def schedule_inside():
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.7)

    def step(x, y):
        opt.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        schedule.step()
        return loss
    return step, pairs(), model


@program
def by_hand():
    "The training loop of many a first lesson."
    torch.manual_seed(2)
    w, b = torch.randn(12, 1, requires_grad=True), torch.zeros(1, requires_grad=True)

    def step(x, y):
        loss = ((x @ w + b - y.float()[:, None]) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w.data -= 0.1 * w.grad
            b.sub_(0.1 * b.grad)
            w.grad.zero_()
            b.grad = None
        return loss
    return step, pairs(), [w, b]


@program
def accumulation_of_parts():
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def step(x, y):
        total = 0
        for a, b in zip(x.chunk(4), y.chunk(4)):
            loss = F.cross_entropy(model(a), b) / 4
            loss.backward()
            total = total + loss.detach()
        opt.step()
        opt.zero_grad()
        return {"loss": total}
    return step, pairs(), model


@program
def gradient_penalty():
    critic = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.Adam(critic.parameters(), 1e-2)

    def step(x, y):
        opt.zero_grad()
        x = (x * 1.5).requires_grad_()
        out = critic(x)
        g, = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = out.mean() + ((g.norm(2, dim=1) - 1) ** 2).mean()
        loss.backward()
        opt.step()
        return loss, g
    return step, pairs(), critic


@program
def two_networks():
    "A small generative adversarial network."
    torch.manual_seed(4)
    G, D = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 12)), nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    of_g, of_d = torch.optim.Adam(G.parameters(), 1e-2), torch.optim.Adam(D.parameters(), 1e-2)

    def step(x, y):
        fake = G(torch.randn(8, 3))
        of_d.zero_grad()
        d = F.binary_cross_entropy_with_logits(D(x), torch.ones(8, 1)) + F.binary_cross_entropy_with_logits(D(fake.detach()), torch.zeros(8, 1))
        d.backward()
        of_d.step()
        of_g.zero_grad()
        g = F.binary_cross_entropy_with_logits(D(fake), torch.ones(8, 1))
        g.backward()
        of_g.step()
        return d, g
    return step, pairs(), nn.ModuleList([G, D])


@program
def recurrent():
    torch.manual_seed(6)
    model = nn.ModuleDict(dict(table=nn.Embedding(4, 8), cell=nn.LSTM(8, 8, batch_first=True), head=nn.Linear(8, 4)))
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def step(x, y):
        opt.zero_grad()
        h, _ = model["cell"](model["table"](y.reshape(2, 4)))
        loss = F.cross_entropy(model["head"](h).reshape(-1, 4), y)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


@program
def transformer():
    torch.manual_seed(7)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.qkv, self.out = nn.LayerNorm(16), nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
            self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

        def forward(self, x):
            q, k, v = self.qkv(self.n1(x)).split(16, -1)
            q, k, v = (t.view(2, 4, 2, 8).transpose(1, 2) for t in (q, k, v))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 4, 16))
            return x + self.mlp(self.n2(x))

    model = nn.ModuleDict(dict(words=nn.Embedding(4, 16), places=nn.Embedding(4, 16), one=Block(), two=Block(), head=nn.Linear(16, 4)))
    opt = torch.optim.AdamW(model.parameters(), 1e-2)

    def step(x, y):
        y = y.reshape(2, 4)
        h = model["words"](y) + model["places"](torch.arange(4))
        loss = F.cross_entropy(model["head"](model["two"](model["one"](h))).reshape(-1, 4), y.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


@program
def views_written_in_place():
    w = torch.randn(8, 12, requires_grad=True)

    def step(x, y):
        w.grad = None
        out = torch.zeros(8, 12)
        for i in range(3):
            out = torch.cat([out[:, 4:], torch.sigmoid(x[:, 4 * i:4 * i + 4] * w[:, 4 * i:4 * i + 4])], 1)
        h = out * 2
        h.mul_(w)
        h.relu_()
        loss = h.sum() + out[:, y % 3].mean()
        loss.backward()
        with torch.no_grad():
            w.add_(w.grad, alpha=-0.1)
            w[0].clamp_(-1, 1)
        return loss
    return step, pairs(), w


@program
def own_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 3 * x * x

    model = nn.Linear(12, 4)
    opt = torch.optim.SGD(model.parameters(), 1e-3)

    def step(x, y):
        opt.zero_grad()
        h = model(x)
        loss = F.cross_entropy(Cube.apply(h) + h, y)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


@program
def half_precision():
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def step(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


@program
def moving_average_of_weights():
    model = mlp()
    target = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def step(x, y):
        with torch.no_grad():
            goal = target(x)
        loss = F.mse_loss(model(x), goal + y[:, None])
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), target.parameters()):
                q.mul_(0.9).add_(p, alpha=0.1)
        return loss
    return step, pairs(), nn.ModuleList([model, target])


@program
def cells_of_recurrent_layers():
    lstm, gru, head = nn.LSTMCell(12, 20), nn.GRUCell(20, 20), nn.Linear(20, 4)
    model = nn.ModuleList([lstm, gru, head])
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        opt.zero_grad()
        h, c = lstm(x)
        h, c = lstm(x.flip(1), (h, c))
        loss = F.cross_entropy(head(gru(h, c)), y)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


@program
def hooks_on_gradients():
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    model[0].weight.register_hook(lambda g: g * 0.5)
    model[0].weight.register_hook(lambda g: g.clamp(-0.01, 0.01) + model[0].weight.detach() * 1e-3)
    largest = torch.zeros(())

    def watch(g):
        largest.copy_(torch.maximum(largest, g.abs().max()))
    model[4].bias.register_hook(watch)

    def step(x, y):
        opt.zero_grad()
        h = model[:3](x)
        h.register_hook(lambda g: g * (g.norm() < 10) / (1 + g.abs().mean()))
        k = h * 2
        k.retain_grad()
        a, b = k.chunk(2, 1)
        a.register_hook(lambda g: g.sin())
        loss = F.cross_entropy(model[3:](torch.cat([a, b], 1) + model[0].weight.sum()), y)
        loss.backward()
        opt.step()
        return loss, k.grad
    return step, pairs(), [*model.parameters(), largest]


@program
def hooks_after_accumulation():
    "Each parameter is updated as soon as its gradient is there, and the gradient is let go."
    model = mlp()
    optimizers = {p: torch.optim.Adam([p], 1e-2) for p in model[2:].parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    def by_hand(p):
        p.grad.clamp_(-0.1, 0.1)
        p.data.add_(p.grad, alpha=-0.1)
        p.grad = None
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update if p in optimizers else by_hand)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    return step, pairs(), model


@program
def hooks_and_gradients_from_before():
    model = mlp()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    model[2].weight.register_hook(lambda g: g * 2)

    def shrink(p):
        p.grad.mul_(0.9)
    model[2].bias.register_post_accumulate_grad_hook(shrink)

    def step(x, y):
        loss = F.cross_entropy(model(x) + model[2].weight.mean(), y)
        loss.backward()
        g, = torch.autograd.grad(model(x).sum(), model[2].weight)
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 0.01)
        return loss, g
    return step, pairs(), model


class Again(torch.autograd.Function):
    "A function whose backward pass runs one of its own."

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.enable_grad()
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        return torch.autograd.grad(x.sin(), x, g)[0]


class Kept(torch.autograd.Function):
    "A function that keeps a graph, through which its backward pass goes."

    @staticmethod
    @torch.enable_grad()
    def forward(ctx, x):
        ctx.x = x.detach().requires_grad_()
        ctx.out = ctx.x.tanh()
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, g):
        torch.autograd.backward(ctx.out, g)
        return ctx.x.grad


@program
def passes_within_others():
    "A fixed point with its implicit gradient, functions that differentiate, reentrant checkpoints."
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        opt.zero_grad()
        z = torch.tanh(model[0](x))
        at = z.detach().clone().requires_grad_()
        value = torch.tanh(at * 0.3)

        def implicit(g):
            v = g
            for _ in range(3):
                v = torch.autograd.grad(value, at, v, retain_graph=True)[0] + g
            return v

        @torch.enable_grad()
        def curved(g):
            q = torch.ones_like(g).requires_grad_()
            d, = torch.autograd.grad((q ** 3 * g.detach()).sum(), q, create_graph=True)
            return g + torch.autograd.grad(d.sum(), q)[0]
        z.register_hook(implicit)
        h = checkpoint(lambda h: Kept.apply(Again.apply(h)), z, use_reentrant=True)
        h.register_hook(curved)
        loss = F.cross_entropy(model[1:](h), y)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


def checkpointed(early_stop=True, **options):
    "Blocks that are computed again, with dropout, running statistics, and one inside another."
    torch.manual_seed(7)
    blocks = nn.ModuleList([nn.Linear(12, 16), *(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.3)) for _ in range(2)), nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh())])
    head = nn.Linear(16, 4)
    opt = torch.optim.Adam([*blocks.parameters(), *head.parameters()], 1e-2)

    def recomputed(f, x):
        return checkpoint(f, x, use_reentrant=False, early_stop=early_stop, **options)

    def step(x, y):
        opt.zero_grad()
        h = recomputed(blocks[0], x).relu()
        h = h + recomputed(lambda h: blocks[2](recomputed(blocks[1], h * 2)).sigmoid(), h)
        loss = F.cross_entropy(head(recomputed(blocks[3], F.dropout(h, 0.1))), y)
        loss.backward()
        opt.step()
        return loss, torch.rand(2)
    return step, pairs(), [blocks, head]


@program
def checkpoints():
    return checkpointed()


@program
def checkpoints_of_the_older_kind():
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def again(f, x):
        return checkpoint(f, x, use_reentrant=True)

    def step(x, y):
        opt.zero_grad()
        h = model[0](x)
        h = h + again(lambda h: model[2](again(lambda h: F.dropout(h, 0.3).exp(), h * 0.1)), h)
        loss = F.cross_entropy(again(model[3:], h), y)
        loss.backward()
        opt.step()
        return loss, torch.rand(2)
    return step, pairs(), model


@program
def checkpoints_to_the_end():
    return checkpointed(early_stop=False)


@program
def checkpoints_that_throw_dice_anew():
    return checkpointed(preserve_rng_state=False)


@program
def selective_checkpoints():
    from autograd_nb.utils.checkpoint import create_selective_checkpoint_contexts
    keep = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
    return checkpointed(context_fn=lambda: create_selective_checkpoint_contexts(keep))


@program
def hooks_for_saved_values():
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 16), nn.Softmax(-1), nn.Linear(16, 4))
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def step(x, y):
        opt.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t * 2, t.dtype), lambda kept: (kept[0] * 0.5).to(kept[1]) if kept[1].is_floating_point else kept[0] // 2):
            h = model[:4](x)
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = F.cross_entropy(model[4](h.exp()), y)
        loss.backward()
        opt.step()
        return loss
    return step, pairs(), model


@program
def inference_only():
    model = mlp().eval()

    def step(x, y):
        with torch.no_grad():
            return model(x).softmax(-1), {"best": model(x).argmax(-1)}
    return step, pairs(), model


def numbers(tree):
    "All numbers in a tree of tensors, modules and optimisers' parameters, as bytes."
    if isinstance(tree, nn.Module):
        return [numbers(v) for v in tree.state_dict().values()]
    if isinstance(tree, (list, tuple)):
        return [numbers(v) for v in tree]
    if isinstance(tree, dict):
        return [numbers(v) for v in tree.values()]
    return tree.detach().numpy().tobytes() if isinstance(tree, torch.Tensor) else tree


def run(build, wrap):
    "What the steps of a program return, its state after them, and the next random numbers."
    torch.manual_seed(1)
    step, data, state = build()
    step = wrap(step)
    torch.manual_seed(9)
    results = [step(*batch) for batch in data]
    if wrap is capture:
        assert step.program is not None, "it was never replayed"
    return results, state, torch.rand(3).tolist()


def watched(step):
    "The step without the fast paths that recording does not take either."
    def under_observation(*batch):
        with observe(lambda applied: None):
            return step(*batch)
    return under_observation


def as_recorded(build):
    "What makes a step run as it is recorded: under observation, except where a layer stays one line that is none under observation."
    return (lambda step: step) if build is PROGRAMS["recurrent"] else watched


@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_same_bits(build):
    "Results, parameters and buffers are those of the step itself, and so is the stream of random numbers."
    with compiled.plain():
        expected, found = run(build, as_recorded(build)), run(build, capture)
    assert [numbers(v) for v in expected] == [numbers(v) for v in found]


@pytest.mark.skipif(not compiled.AVAILABLE, reason="numba is not installed")
@pytest.mark.parametrize("build", PROGRAMS.values(), ids=PROGRAMS)
def test_same_numbers_by_compiled_loops(build):
    expected, found = run(build, as_recorded(build)), run(build, capture)
    for a, b in zip(tree_leaves(expected[0]), tree_leaves(found[0])):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert expected[2] == found[2]


# What cannot be replayed ------------------------------------------------------------------------------------------


def refused(step, *batches, **options):
    "The message with which a step is refused at one of these batches."
    captured = capture(step, **options)
    with pytest.raises(CaptureError) as caught:
        for batch in batches:
            captured(*batch)
    return str(caught.value)


X = (torch.ones(3, 4),)


def test_looking_at_numbers():
    w = torch.ones(4, requires_grad=True)
    for look in (lambda t: t.item(), float, bool, lambda t: t.tolist(), lambda t: t.detach().numpy(), lambda t: range(t.long())):
        def step(x, look=look):
            loss = (x * w).sum()
            look(loss)
            return loss
        message = refused(step, X)
        assert "looks at the numbers" in message and "test_capture.py" in message and "torch.where" in message


def test_another_way_the_second_time():
    count = []

    def step(x):
        count.append(1)
        return x * 2 if len(count) % 2 else x + 3
    message = refused(step, X, X)
    assert "does not do the same every time" in message and "mul" in message and "add" in message


def test_numbers_of_python_that_change():
    rate = [0.1]

    def step(x):
        rate[0] *= 0.9
        return x * rate[0]
    assert "0.09" in refused(step, X, X)


def test_longer_the_second_time():
    length = []

    def step(x):
        length.append(1)
        for _ in length:
            x = x.tanh()
        return x
    assert "it went on to" in refused(step, X, X)


def test_other_shapes():
    message = refused(lambda x: x * 2, X, X, X, (torch.ones(5, 4),))
    assert "[3, 4]" in message and "[5, 4]" in message and "dynamic=True" in message


def test_each_shape_by_itself():
    step = capture(dynamic=True)(lambda x, scale=1.: (x * scale).tanh())
    for n in (2, 5, 2, 5, 2, 5, 7):
        x = torch.randn(n, 3)
        for scale in (1., 2.):
            assert torch.equal(step(x, scale=scale), (x * scale).tanh())
    assert repr(step).count("calls") == 4


def test_hooks_that_only_look():
    seen = []
    for attach in (lambda w, y: w.register_hook(lambda g: print("seen")), lambda w, y: y.register_hook(seen.append), lambda w, y: w.register_post_accumulate_grad_hook(lambda w: seen.append(w.grad.sum())),
                   lambda w, y: y.register_hook(lambda g: seen.append(g * 2))):
        w = torch.ones(4, requires_grad=True)

        def step(x, w=w, attach=attach):
            y = x * w
            attach(w, y)
            y.sum().backward()
        message = refused(step, X)
        assert "looks on" in message and "return what is to be seen" in message


def test_hooks_that_write_to_what_they_are_shown():
    w = torch.ones(4, requires_grad=True)
    w.register_hook(lambda g: g.mul_(2))
    assert "writes to the gradient that it is shown" in refused(lambda x: (x * w).sum().backward(), X)


def test_a_pass_that_fails():
    w = torch.ones(4, requires_grad=True)

    def fails(g):
        raise ValueError

    def step(x):
        y = x * w
        y.register_hook(fails)
        try:
            y.sum().backward()
        except ValueError:
            (x * w).sum().backward()
        return w.grad
    assert "a backward pass fails half-way" in refused(step, X)


def test_hooks_of_nodes():
    w = torch.ones(4, requires_grad=True)

    def step(x):
        y = x * w
        y.grad_fn.register_hook(lambda gi, go: None)
        y.sum().backward()
    assert "a hook of the node MulBackward0" in refused(step, X)


def test_shapes_that_depend_on_numbers():
    assert "depends on the numbers" in refused(lambda x: x[x > 0].mean(), X)
    assert "nonzero(), whose size they decide" in refused(lambda x: x * torch.nonzero(x).sum(), X, X)
    assert "index of one number" in refused(lambda x: x.index_put((x[:, 0].argmax(),), x[0]), X)


def test_views_that_start_where_a_tensor_says():
    w = torch.ones(3, 4, requires_grad=True)

    def into_a_history(x):
        z = w * 2
        z[x[:, 0].argmax()] = x[0]
        z.sum().backward()
    for step in (into_a_history, lambda x: x[x[:, 0].argmax()].storage_offset()):
        assert "where in memory a view starts" in refused(step, X, X)


def test_arrays_that_python_makes_anew():
    assert "anew" in refused(lambda x: x * torch.from_numpy(np.random.rand(4).astype("float32")), X, X)


def test_saved_values_that_leave_the_tensors():
    w = torch.ones(4, requires_grad=True)

    def step(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
            y = (x * w).exp()
        y.sum().backward()
    assert "looks at the numbers" in refused(step, X, X)


def test_gradients_with_a_history():
    w = torch.ones(4, requires_grad=True)

    def step(x):
        (x * w).exp().sum().backward(create_graph=True)
    with pytest.warns(UserWarning):
        assert "create_graph" in refused(step, X)


# Around it --------------------------------------------------------------------------------------------------------


def test_results_are_the_callers():
    "A later replay does not write to what an earlier one returned."
    step = capture(lambda x: (x * 2 + 1).tanh())
    kept = [(x, step(x)) for x in (torch.randn(64, 64) for _ in range(6))]
    for x, y in kept:
        torch.testing.assert_close(y, (x * 2 + 1).tanh())


def test_parameters_that_were_replaced():
    model = nn.Linear(4, 2)
    step = capture(lambda x: model(x).sum())
    for _ in range(4):
        step(*X)
    model.weight.data = torch.zeros(2, 4)
    model.bias.data = torch.ones(2)
    assert step(*X).item() == 6
    model.load_state_dict({"weight": torch.ones(2, 4), "bias": torch.zeros(2)})
    assert step(*X).item() == 24


def test_gradients_that_were_there_before():
    w = torch.ones(4, requires_grad=True)

    def step(x):
        (x * w).sum().backward()
    captured = capture(step)
    for i in range(6):
        captured(*X)
        assert w.grad.tolist() == [3. * (i + 1)] * 4
    w.grad = None
    captured(*X)
    assert w.grad.tolist() == [3.] * 4


def test_views_of_gradients_see_the_next_pass():
    "What is computed after a backward pass is not drawn together with what was computed before it."
    w = torch.ones(5, requires_grad=True)

    def step(x):
        w.grad = None
        (w * x).sum().backward()
        g = w.grad.view(5)
        before = g * 3
        (w * x * 2).sum().backward()
        return before, g * 2
    captured = capture(step)
    for i in range(1, 6):
        before, after = captured(torch.full((5,), float(i)))
        assert before.tolist() == [3. * i] * 5 and after.tolist() == [6. * i] * 5


def test_gradient_of_an_argument():
    step = capture(lambda x: (x * x).sum().backward())
    for i in range(5):
        x = torch.full((3,), float(i), requires_grad=True)
        step(x)
        assert x.grad.tolist() == [2. * i] * 3


def test_watchers_see_the_step_itself():
    step, seen = capture(lambda x: (x * 2).tanh()), []
    for _ in range(3):
        step(*X)
    with observe(lambda applied: seen.append(applied.op)):
        step(*X)
    assert seen == ["mul", "tanh"]


def test_threads_share_a_captured_step():
    import threading
    step = capture(lambda x: (x * 2 + 1).tanh().sum())
    x = [torch.randn(50, 50) for _ in range(4)]
    step(x[0]), step(x[0])
    wrong = []

    def work(v):
        expected = (v * 2 + 1).tanh().sum().item()
        wrong.extend(1 for _ in range(50) if abs(step(v).item() - expected) > 1e-2)
    threads = [threading.Thread(target=work, args=(v,)) for v in x]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_the_program_names_operations_and_lines():
    step = capture(lambda x: (x @ x.T).relu().sum())
    for _ in range(2):
        step(*X)
    assert step.program.startswith("def replay(") and "relu" in step.program and "test_capture.py" in step.program
    step.renew()
    assert step.program is None


def test_an_error_in_a_step_leaves_nothing_behind():
    step = capture(lambda x: x.reshape(7))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            step(*X)
    assert (torch.ones(3) * 2).tolist() == [2, 2, 2]


# Memory -----------------------------------------------------------------------------------------------------------


def test_what_others_keep_is_not_written_to_again():
    "Gradients that the step assigns, memory that it hands to a tensor, views of either."
    w, p = torch.ones(4, 3, requires_grad=True), torch.zeros(3, 4)

    def step(x):
        w.grad = (x * w * 2).detach()
        p.data = ((x + w) * 2).detach().T
    captured = capture(step)
    kept = []
    for i in range(6):
        captured(torch.full((4, 3), float(i)))
        kept.append((w.grad, p.data))
    assert [g[0, 0].item() for g, _ in kept] == [2. * i for i in range(6)]
    assert [v[0, 0].item() for _, v in kept] == [2. * (i + 1) for i in range(6)]


def convolutional():
    return nn.Sequential(nn.Unflatten(1, (1, 12)), nn.Conv1d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(192, 4))


def residual():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.inner = nn.LayerNorm(64), nn.Linear(64, 64)

        def forward(self, x):
            return x + self.inner(self.norm(x)).tanh() * 0.5
    return nn.Sequential(nn.Linear(12, 64), *(Block() for _ in range(6)), nn.Linear(64, 4))


@pytest.mark.parametrize("make", [mlp, convolutional, residual])
@pytest.mark.parametrize("loops", [False, True])
def test_no_more_memory_than_the_step_itself(make, loops):
    from contextlib import nullcontext
    from autograd_nb.cpu import track_memory
    if loops and not compiled.AVAILABLE: pytest.skip("numba is not installed")

    def peak(wrap):
        step, data, _ = classifier(make, data=lambda: pairs(256))()
        step = wrap(step)
        for batch in data[:4]:
            step(*batch)
        with track_memory() as trace:
            step(*data[4])
        return trace.added, step
    with nullcontext() if loops else compiled.plain():
        (own, _), (replayed, step) = peak(watched), peak(capture)
    known, = step.known.values()
    assert replayed + known.compiler.held <= own * 1.05 + 8192


def test_chains_share_memory():
    "A long chain of small arrays needs as many at once as it saves, and backward the same ones again."
    w = torch.randn(16, 16, requires_grad=True)

    def step(x):
        w.grad = None
        y = w
        for _ in range(100):
            y = (y * x + 0.1).tanh() * 1.01
        y.sum().backward()
    with compiled.plain():
        step = capture(step)
        for _ in range(3):
            step(torch.ones(16, 16))
    known, = step.known.values()
    assert known.compiler.held <= 110 * w.numel() * 4


@pytest.mark.skipif(not compiled.AVAILABLE, reason="numba is not installed")
def test_large_loops_write_over_what_nobody_needs():
    "Also where somebody else refers to it after all."
    w = torch.randn(300, 200, requires_grad=True)

    def step(x):
        w.grad = None
        y = (w * x).sigmoid()
        z = y.view(-1)
        loss = (y * y * 2 + x).mean() + z.relu().mean()
        loss.backward()
        return loss, z
    captured, kept = capture(step), []
    for _ in range(6):
        x = torch.randn(300, 200)
        loss, z = captured(x)
        kept.append((z, z.clone()))
        found = w.grad
        expected, _ = step(x)
        torch.testing.assert_close(loss, expected.detach())
        torch.testing.assert_close(found, w.grad)
    assert "mine(" in captured.program
    assert all(torch.equal(z, then) for z, then in kept)


@pytest.mark.skipif(not compiled.AVAILABLE, reason="numba is not installed")
def test_large_chains_are_two_loops():
    "One forward, one backward."
    x, y = (torch.randn(300000, requires_grad=True) for _ in range(2))

    def step():
        x.grad = y.grad = None
        z = torch.tanh(x * y + x) * 0.5 + y
        z = torch.exp(z * 0.1) - x
        (z * z).sum().backward()
    step = capture(step)
    for _ in range(3):
        step()
    assert sum("together:" in line for line in step.program.splitlines()) == 2


def rows(a):
    return a - a.mean(1, keepdim=True)


def written(a, b):
    "In place, also through a view."
    c = a * 1.5
    c.mul_(b.sigmoid())
    c[0] = b[-1]
    c.t()[1].add_(0.5)
    return c


INSTRUCTIONS = {
    "add": lambda a, b: (a + b) * 0.6, "subtract": lambda a, b: a - b * 0.5, "multiply": lambda a, b: a * b.clamp(-1, 1), "tanh": lambda a, b: a.tanh(), "bounded exp": lambda a, b: (-a.abs()).exp(), "relu": lambda a, b: a.relu(),
    "where": lambda a, b: torch.where(a > b, a, b * 0.5), "transposed": lambda a, b: a.t(), "reshaped": lambda a, b: a.reshape(-1).view(a.shape), "cut and joined": lambda a, b: torch.cat([a[1:], b[:1]]),
    "product": lambda a, b: (a @ b).tanh(), "softmax": lambda a, b: a.softmax(-1), "rows": lambda a, b: rows(a), "column": lambda a, b: a + b[:, :1], "detached": lambda a, b: a.detach(), "written": written,
    "several": lambda a, b: a.chunk(2)[0].repeat(2, 1) + 1, "gelu": lambda a, b: F.gelu(a), "own layout": lambda a, b: (a.t() * 2 + b.t()).tanh(), "one number": lambda a, b: a * b.mean().tanh(),
}      # fmt: skip
VIEWS = "transposed", "reshaped", "detached"        # these may show parameters, which change


@given(
    size=st.sampled_from([4, 40, 140]), state=st.integers(0, 3), more=st.booleans(), precise=st.booleans(),
    text=st.lists(st.tuples(st.sampled_from(sorted(INSTRUCTIONS)), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=14), returned=st.lists(st.integers(0, 99), max_size=3),
)      # fmt: skip
@settings(deadline=None, max_examples=60)
def test_random_programs(size, state, more, precise, text, returned):
    "Whatever memory results go to: what is returned stays, and gradients, parameters and statistics are those of the step itself."
    dtype = torch.float64 if precise else torch.float32

    def build():
        torch.manual_seed(3)
        w, v = (torch.randn(size, size, dtype=dtype).requires_grad_() for _ in range(2))
        statistics = torch.zeros(size, size, dtype=dtype)
        if more: w.grad, v.grad = torch.ones_like(w), torch.ones_like(v)

        def step(x):
            if not more:
                w.grad = v.grad = None
            values = [x, w, v]
            for name, i, j in text:
                values.append(INSTRUCTIONS[name](values[-1 - i % len(values)], values[-1 - j % len(values)]))
            loss = (values[-1] * values[-2]).mean() + (w * values[-1].detach()).mean() + (v * w).mean()
            loss.backward()
            with torch.no_grad():
                w.sub_(w.grad * 0.1)
                v.add_(v.grad, alpha=-0.1)
                statistics.mul_(0.9).add_(values[-1].detach() * 0.1)
            if state == 1: v.grad = (values[-1] * 2).detach()
            if state == 2: w.grad.mul_(0.5)
            made = [v for v, (name, _, _) in zip(values[3:], text) if name not in VIEWS]
            return loss, [made[i % len(made)].detach() for i in returned if made]
        return step, [torch.randn(size, size, dtype=dtype) for _ in range(5)], [w, v, statistics]

    def run(wrap):
        step, data, held = build()
        step = wrap(step)
        out, gradients = [], []
        for x in data:
            out.append(step(x))
            gradients.append([t.grad for t in held[:2]])
        assert wrap is not capture or step.program is not None
        return numbers([out, held, gradients if state == 1 and not more else gradients[-1]])

    with compiled.plain():
        expected, found = run(watched), run(capture)
    if not more:
        assert expected == found
    for a, b in zip(tree_leaves(expected), tree_leaves(found)):        # gradients are added to what was there in another order in passes that somebody watches, as in recordings
        np.testing.assert_allclose(*(np.frombuffer(v, "f8" if precise else "f4") for v in (a, b)), rtol=1e-4, atol=1e-4)


def test_long_steps_have_room_for_calls():
    """However deep in Python's stack a long step is replayed, its calls find room there."""
    resource = pytest.importorskip('resource')
    x = torch.ones(3, 3)

    @capture
    def step():
        y = x
        for _ in range(300):
            y = y.roll(1, 0)
        return y

    for _ in range(4):
        step()

    def faults(depth):
        if depth:
            return faults(depth - 1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    for depth in range(120):
        assert min(faults(depth) for _ in range(3)) < 100, depth
