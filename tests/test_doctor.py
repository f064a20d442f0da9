"Every illness, injected by hand, is found and named with its line; sound trainings of many kinds are healthy; everything is put back."

import copy
import random

import numpy as np
import pytest

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.nn import functional as F
from autograd_nb.viz import doctor

pytestmark = pytest.mark.usefixtures("small_heap")
torch.manual_seed(0)
X, Y = torch.randn(32, 4), torch.randn(32, 1)
LABELS = torch.arange(32) % 3


def mlp(out=1, act=nn.Tanh):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 16), act(), nn.Linear(16, out))


def trained(model, loss, make=lambda p: torch.optim.SGD(p, lr=0.01), **order):
    "A sound training step."
    optimizer = make(model.parameters())

    def step():
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        optimizer.step()
        return value

    return step


def mse(model):
    return F.mse_loss(model(X), Y)


# Illnesses --------------------------------------------------------------------------------------------------------


def test_missing_zero_grad():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        mse(model).backward()
        optimizer.step()

    told = doctor(model, step)
    assert told.kinds == ["zero_grad"] and "zero_grad()" in told["zero_grad"].remedy and "0.weight" in told["zero_grad"].seen


def test_missing_zero_grad_in_a_loop_without_optimizer():
    w = torch.zeros(4, 1, requires_grad=True)

    def step(forget):
        ((X @ w - Y) ** 2).mean().backward()
        with torch.no_grad():
            w.sub_(w.grad * 0.01)
        if not forget:
            w.grad = None

    assert doctor([w], lambda: step(True)).kinds == ["zero_grad"]
    assert doctor([w], lambda: step(False)).healthy


def test_training_under_no_grad_that_raises():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        with torch.no_grad():
            loss = mse(model)
        loss.backward()
        optimizer.step()

    told = doctor(model, step)
    assert told.kinds == ["no_grad"] and "mse" in "".join(told["no_grad"].where)


def test_part_of_the_model_under_no_grad():
    model = mlp()

    def loss(model):
        with torch.no_grad():
            h = model[0](X)  # here
        return F.mse_loss(model[2](h.tanh()), Y)

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["no_grad"]
    assert "0.weight, 0.bias" in told["no_grad"].seen and "# here" in told["no_grad"].where[0]


def test_losses_kept_in_a_list():
    model, log = mlp(), []
    sound = trained(model, mse)

    def step():
        log.append(sound())

    told = doctor(model, step)
    assert told.kinds == ["kept"]
    finding = told["kept"]
    assert "`log`" in finding.seen and "item()" in finding.remedy and any("list of" in d for d in finding.details) and ("KiB" in finding.seen or "B in all" in finding.seen)
    log.clear()
    assert doctor(model, lambda: log.append(sound().item())).healthy


def test_detached_parameters():
    model = mlp()

    def loss(model):
        h = model[0](X).detach()
        return F.mse_loss(model[2](h), Y)

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["detached"] and "0.weight" in told["detached"].seen and ".detach()" in told["detached"].where[0]


def test_a_loss_that_was_cut_off():
    model = mlp(3)

    def loss(model):
        return (model(X).argmax(1) != LABELS).float().mean()

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["detached"] and "argmax" in told["detached"].seen


def test_frozen_parameters():
    model = mlp()
    model[0].requires_grad_(False)
    told = doctor(model, trained(model, mse))
    assert told.kinds == ["frozen"] and "the optimiser holds" in told["frozen"].seen
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def step():
        optimizer.zero_grad()
        mse(model).backward()
        optimizer.step()

    told = doctor(model, step)
    assert told.healthy and "frozen" in told.notes[0].seen  # on purpose: said, but no illness
    model.requires_grad_(False)
    assert doctor(model, lambda: mse(model).backward()).kinds == ["frozen"]


def test_unused_parameters():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x):
            return self.used(x)

    model = Net()
    told = doctor(model, trained(model, mse))
    assert told.kinds == ["unused"] and "spare.weight" in told["unused"].seen


def test_parameters_that_no_optimizer_holds():
    model = mlp()
    told = doctor(model, trained(model, mse, lambda p: torch.optim.SGD(model[2].parameters(), lr=0.01)))
    assert told.kinds == ["optimizer"] and "0.weight" in told["optimizer"].seen


def test_an_optimizer_of_another_model():
    model, other = mlp(), mlp()
    told = doctor(model, trained(model, mse, lambda p: torch.optim.SGD(other.parameters(), lr=0.01)))
    assert "optimizer" in told and "none of the parameters" in told["optimizer"].seen


def test_layers_in_a_plain_list():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = [nn.Linear(4, 4)], nn.Linear(4, 1)

        def forward(self, x):
            return self.head(self.layers[0](x))

    model = Net()
    told = doctor(model, trained(model, mse))
    assert told.kinds == ["unregistered"] and "ModuleList" in told["unregistered"].remedy


def test_gradients_cleared_before_the_step():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        mse(model).backward()
        optimizer.zero_grad()
        optimizer.step()

    assert doctor(model, step).kinds == ["order"]


def test_nothing_is_updated():
    model = mlp()
    told = doctor(model, lambda: (model.zero_grad(), mse(model).backward()))
    assert told.kinds == ["no_update"]
    assert doctor(model, trained(model, mse, lambda p: torch.optim.SGD(p, lr=0.0))).kinds == ["no_update"]
    assert doctor(model, lambda: mse(model)).kinds == ["no_update"]


def test_dead_relus():
    model = mlp(act=nn.ReLU)
    with torch.no_grad():
        model[0].bias[:12] = -100.0
    told = doctor(model, trained(model, mse))
    assert told.kinds == ["dead_relu"]
    count = int(told["dead_relu"].seen.split(" of ")[0])
    assert 12 <= count <= 16 and "of 16 units" in told["dead_relu"].seen and "LeakyReLU" in told["dead_relu"].remedy


def test_dead_channels_of_a_convolution():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 36, 2))
    with torch.no_grad():
        model[0].bias[:6] = -100.0
    images = torch.randn(8, 1, 8, 8)
    told = doctor(model, trained(model, lambda m: F.cross_entropy(m(images), torch.arange(8) % 2)))
    assert told.kinds == ["dead_relu"] and "6 of 8 units" in told["dead_relu"].seen


def _trained_while_evaluating(*layers):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 16), *layers, nn.ReLU(), nn.Linear(16, 3)).eval()


@pytest.mark.parametrize("layers, said", [((nn.Dropout(0.5),), "dropout (1)"), ((nn.BatchNorm1d(16),), "batch normalisation (1)"), ((nn.BatchNorm1d(16), nn.Dropout(0.1)), "batch normalisation and dropout (1, 2)")])
def test_training_in_evaluation_mode(layers, said):
    model = _trained_while_evaluating(*copy.deepcopy(layers))
    step = trained(model, lambda m: F.cross_entropy(m(X), LABELS))
    told = doctor(model, step)
    assert told.kinds == ["evaluating"] and said in told["evaluating"].seen and "model.train()" in told["evaluating"].remedy
    assert "test_doctor.py" in told["evaluating"].where[0] and not model.training
    model.train()
    assert doctor(model, step).healthy


def test_evaluation_mode_that_lasts_from_the_first_evaluation():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    sound = trained(model, lambda m: F.cross_entropy(m(X), LABELS))

    def step():
        sound()
        model.eval()
        with torch.no_grad():
            model(X)

    assert doctor(model, step).kinds == ["evaluating"]


@pytest.mark.parametrize("form", ["function", "module", "view", "sequence", "log_softmax", "in the model"])
def test_softmax_in_front_of_cross_entropy(form):
    model = mlp(3)
    if form == "in the model":
        model.append(nn.Softmax(dim=1))
    loss = {
        "function": lambda m: F.cross_entropy(F.softmax(m(X), dim=1), LABELS),
        "module": lambda m: nn.CrossEntropyLoss()(nn.Softmax(dim=-1)(m(X)), LABELS),
        "view": lambda m: F.cross_entropy(m(X).softmax(1).view(-1, 3), LABELS),
        "sequence": lambda m: F.cross_entropy(m(X).view(4, 8, 3).softmax(-1).transpose(1, 2), LABELS.view(4, 8)),
        "log_softmax": lambda m: F.nll_loss(F.log_softmax(torch.softmax(m(X), 1), 1), LABELS),
        "in the model": lambda m: F.cross_entropy(m(X), LABELS),
    }[form]
    told = doctor(model, trained(model, loss))
    assert told.kinds == ["squashed"] and "softmax" in told["squashed"].seen and "logits" in told["squashed"].remedy
    assert "test_doctor.py" in told["squashed"].where[0]


def test_sigmoid_in_front_of_a_loss_with_logits():
    model = mlp()
    told = doctor(model, trained(model, lambda m: F.binary_cross_entropy_with_logits(m(X).sigmoid(), (Y > 0).float())))
    assert told.kinds == ["squashed"] and "sigmoid" in told["squashed"].seen


def test_vanishing_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(14) for m in (nn.Linear(8, 8), nn.Sigmoid())], nn.Linear(8, 1))
    x = torch.randn(32, 8)
    told = doctor(model, trained(model, lambda m: F.mse_loss(m(x), Y)))
    assert told.kinds == ["vanishing"] and "0.weight" in told["vanishing"].seen and told.layers[0].rms < told.layers[-1].rms


def test_weak_weights_let_the_signal_fade_although_all_weights_get_equal_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(32, 32, bias=False), nn.ReLU())], nn.Linear(32, 1))
    with torch.no_grad():
        for p in model.parameters():
            nn.init.normal_(p, std=0.5 / 32**0.5) if p.ndim > 1 else p.zero_()
    x = torch.randn(32, 32)
    assert doctor(model, trained(model, lambda m: F.mse_loss(m(x), Y))).kinds == ["vanishing"]


def test_exploding_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)], nn.Linear(8, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(12)
    x = torch.randn(32, 8)
    assert "exploding" in doctor(model, trained(model, lambda m: F.mse_loss(m(x), Y), lambda p: torch.optim.SGD(p, lr=1e-20)))


def test_a_learning_rate_that_makes_the_loss_grow():
    model = nn.Linear(4, 1)
    told = doctor(model, trained(model, lambda m: F.mse_loss(m(X * 10), Y), lambda p: torch.optim.SGD(p, lr=1.0)))
    assert told.kinds == ["exploding"] and "learning rate" in told["exploding"].remedy


def test_in_place_damage_that_raises():
    model = mlp()

    def loss(model):
        h = model[0](X).exp()
        h += 1  # culprit
        return model[2](h).mean()

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["in_place"] and "modified by an inplace operation" in told["in_place"].seen and "culprit" in str(told)


def test_in_place_damage_past_the_eyes_of_autograd():
    model = mlp()

    def loss(model):
        h = model[0](X).tanh()  # saved
        h.data.mul_(2)
        return F.mse_loss(model[2](h), Y)

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["in_place"] and "# saved" in told["in_place"].where[0]

    def through_numpy(model):
        h = model[0](X).tanh()
        value = F.mse_loss(model[2](h), Y)
        h.detach().numpy()[:] = 0
        return value

    assert doctor(model, trained(model, through_numpy)).kinds == ["in_place"]


def test_origin_of_a_nan_in_the_forward_pass():
    model = mlp()

    def loss(model):
        p = model(X).clamp(0, 1)
        return -(Y.sign() * p.log()).mean() + 0 * model(X).sum()  # logarithm of zero

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["nan"] and "log" in told["nan"].seen and "logarithm of zero" in told["nan"].where[0] and "log_softmax" in told["nan"].remedy


def test_origin_of_a_nan_in_the_backward_pass():
    model = mlp()

    def loss(model):
        h = model(X)
        return torch.where(h > 0, h.sqrt(), torch.zeros(()))  .mean()

    told = doctor(model, trained(model, loss))
    assert told.kinds == ["nan"] and "SqrtBackward0" in told["nan"].seen and "h.sqrt()" in told["nan"].where[0] and "where(" in told["nan"].remedy


def test_nan_in_the_data():
    model, x = mlp(), X.clone()
    x[3, 2] = float("nan")
    told = doctor(model, trained(model, lambda m: F.mse_loss(m(x), Y)))
    assert told.kinds == ["nan"] and "from the start" in told["nan"].seen and "(32, 4)" in told["nan"].seen


def test_overflow():
    model = mlp()
    told = doctor(model, trained(model, lambda m: (m(X) + 100).exp().mean()))
    assert "nan" in told and "exp" in told["nan"].seen and "logsumexp" in told["nan"].remedy


@pytest.mark.parametrize("form", ["mse", "by hand", "l1"])
def test_silent_broadcasting_in_a_loss(form):
    model, target = mlp(), Y[:, 0]
    losses = {"mse": lambda m: F.mse_loss(m(X), target), "by hand": lambda m: ((m(X) - target) ** 2).mean(), "l1": lambda m: F.l1_loss(m(X), target)}
    told = doctor(model, trained(model, losses[form]))
    assert told.kinds == ["broadcast"] and "(32, 1)" in told["broadcast"].seen and "(32, 32)" in told["broadcast"].seen and told["broadcast"].where
    good = {"mse": lambda m: F.mse_loss(m(X)[:, 0], target), "by hand": lambda m: ((m(X)[:, 0] - target) ** 2).mean(), "l1": lambda m: F.l1_loss(m(X), Y)}
    assert doctor(model, trained(model, good[form])).healthy


def test_several_illnesses_at_once():
    model, log = mlp(), []
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)

    def step():
        loss = F.mse_loss(model(X), Y[:, 0])
        loss.backward()
        optimizer.step()
        log.append(loss)

    assert set(doctor(model, step).kinds) == {"zero_grad", "optimizer", "broadcast", "kept"}


def test_an_error_of_another_kind_is_told():
    model = mlp()
    told = doctor(model, trained(model, lambda m: m(torch.randn(2, 5)).sum()))
    assert told.kinds == ["error"] and "shapes cannot be multiplied" in str(told)


# Health -----------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.head = kind(4, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(11, 16), nn.Parameter(torch.randn(6, 16) * 0.02)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 11)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.layers(self.embed(x) + self.place, mask=mask))


def _recurrent(kind):
    model, x = Recurrent(kind), torch.randn(16, 5, 4)
    return model, trained(model, lambda m: F.mse_loss(m(x), Y[:16]), torch.optim.Adam)


def _transformer():
    model, x = Transformer(), torch.randint(0, 11, (8, 7))
    return model, trained(model, lambda m: F.cross_entropy(m(x[:, :-1]).reshape(-1, 11), x[:, 1:].reshape(-1)), torch.optim.AdamW)


def _convolution():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(72, 3))
    x = torch.randn(32, 1, 8, 8)
    return model, trained(model, lambda m: F.cross_entropy(m(x), LABELS), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def _gan():
    maker, judge = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4)), nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    a, b = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    loss = nn.BCEWithLogitsLoss()

    def step():
        fake = maker(torch.randn(32, 2))
        b.zero_grad()
        (loss(judge(X), torch.ones(32, 1)) + loss(judge(fake.detach()), torch.zeros(32, 1))).backward()
        b.step()
        a.zero_grad()
        loss(judge(fake), torch.ones(32, 1)).backward()
        a.step()

    return nn.ModuleList([maker, judge]), step


def _accumulation():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        for part in range(4):
            (F.mse_loss(model(X[part::4]), Y[part::4]) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


def _by_hand():
    w, b = torch.zeros(4, 1, requires_grad=True), torch.zeros(1, requires_grad=True)

    def step():
        loss = ((X @ w + b - Y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad.zero_()
        return loss

    return {"w": w, "b": b}, step


def _functional():
    model = mlp()
    names = dict(model.named_parameters())

    def step():
        grads = torch.autograd.grad(mse(model), list(names.values()))
        with torch.no_grad():
            for p, g in zip(names.values(), grads):
                p.sub_(0.01 * g)

    return model, step


def _transforms():
    w = torch.randn(4, 1, requires_grad=True)
    slope = torch.func.grad(lambda w: ((X @ w - Y) ** 2).mean())

    def step():
        with torch.no_grad():
            w.sub_(0.01 * slope(w))

    return [w], step


def _penalty():
    model = mlp(act=nn.Softplus)

    def loss(m):
        x = X.clone().requires_grad_()
        out = m(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.mse_loss(out, Y) + 0.1 * (slope.norm(dim=1) - 1).pow(2).mean()

    return model, trained(model, loss)


def _checkpointed():
    model = mlp(act=nn.ReLU)
    from autograd_nb.utils.checkpoint import checkpoint

    return model, trained(model, lambda m: F.mse_loss(checkpoint(m, X, use_reentrant=False), Y))


def _mixed_precision():
    model = mlp()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = mse(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return model, step


def _closure():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = mse(model)
        loss.backward()
        return loss

    return model, lambda: optimizer.step(closure)


def _tied():
    model = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 9, bias=False))
    model[1].weight = model[0].weight
    x = torch.arange(9)
    return model, trained(model, lambda m: F.cross_entropy(m(x), x), torch.optim.Adam)


def _evaluating():
    model = mlp(3, nn.ReLU)
    sound = trained(model, lambda m: F.cross_entropy(m(X), LABELS))

    def step():
        loss = sound()
        model.eval()
        with torch.no_grad():
            accuracy = (model(X).argmax(1) == LABELS).float().mean().item()
        model.train()
        return loss.item(), accuracy

    return model, step


def _deep(depth=30):
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU())]
    model, x = nn.Sequential(*layers, nn.Linear(16, 1)), torch.randn(32, 16)
    return model, trained(model, lambda m: F.mse_loss(m(x), Y), torch.optim.Adam)


def _adapter():
    "A frozen layer with a low-rank correction that starts at zero."
    base, a, b = nn.Linear(4, 4).requires_grad_(False), nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(4, 2))
    optimizer = torch.optim.Adam([a, b], lr=0.01)

    def step():
        optimizer.zero_grad()
        F.mse_loss(base(X) + X @ a.T @ b.T, X).backward()
        optimizer.step()

    return {"weight": base.weight, "a": a, "b": b}, step


def _hidden_state():
    rnn, head = nn.RNNCell(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.01)
    held = [torch.zeros(32, 8)]

    def step():
        optimizer.zero_grad()
        h = rnn(X, held[0])
        F.mse_loss(head(h), Y).backward()
        optimizer.step()
        held[0] = h.detach()

    return nn.ModuleList([rnn, head]), step


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.mean, self.spread, self.write = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 2), nn.Linear(2, 4)

    def forward(self, x):
        h = self.read(x).relu()
        q = torch.distributions.Normal(self.mean(h), self.spread(h).exp())
        return self.write(q.rsample()), q


def _variational():
    model = Autoencoder()

    def loss(model):
        out, q = model(X)
        prior = torch.distributions.Normal(torch.zeros(32, 2), torch.ones(32, 2))
        return F.mse_loss(out, X) + torch.distributions.kl_divergence(q, prior).sum(1).mean()

    return model, trained(model, loss, torch.optim.Adam)


def _target_network():
    model = mlp(3, nn.ReLU)
    slow, actions = copy.deepcopy(model), LABELS[:, None]

    def loss(model):
        with torch.no_grad():
            goal = Y[:, 0] + 0.9 * slow(X).max(1).values
        return F.smooth_l1_loss(model(X).gather(1, actions)[:, 0], goal)

    sound = trained(model, loss, torch.optim.RMSprop)

    def step():
        sound()
        with torch.no_grad():
            for a, b in zip(slow.parameters(), model.parameters()):
                a.lerp_(b, 0.01)

    return model, step


def _all_pairs():
    "Distances of every point to every centre, as many of the one as of the other: broadcasting that is meant."
    centres, weights, at = nn.Parameter(torch.linspace(-1, 1, 32)), nn.Parameter(torch.zeros(32)), torch.linspace(-1, 1, 32)
    optimizer = torch.optim.Adam([centres, weights])

    def step():
        optimizer.zero_grad()
        near = (-((at[:, None] - centres[None, :]) ** 2) * 10).exp()
        ((near @ weights - at.sin()) ** 2).mean().backward()
        optimizer.step()

    return {"centres": centres, "weights": weights}, step


def _meta_learning():
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss(model):
        values, x = dict(model.named_parameters()), torch.rand(16, 1)
        grads = torch.autograd.grad(F.mse_loss(torch.func.functional_call(model, values, (x,)), x.sin()), list(values.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(values.items(), grads)}
        return F.mse_loss(torch.func.functional_call(model, fast, (x,)), x.sin())

    return model, trained(model, loss, torch.optim.Adam)


def _accumulation_across_steps():
    model, calls = nn.Linear(4, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        calls.append(1)
        (mse(model) / 2).backward()
        if len(calls) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return model, step


def _small_gan(judged=True, made=True, noise=1):
    "One number is to be drawn from a distribution: real and made-up numbers go through the judge on different lines."
    maker = nn.Sequential(nn.Linear(noise, 8), nn.ReLU(), nn.Linear(8, 1))
    judge = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():  # half of the judge's units see only real numbers, the others only made-up ones
        judge[0].weight.copy_(torch.tensor([1.0, 1, 1, 1, 1, -1, -1, -1])[:, None])
        judge[0].bias.copy_(torch.tensor([-2.0, -2, -2, -2, -2, 1, 1, 1]))
        maker[2].bias.fill_(-1.0)
    a, b = torch.optim.Adam(maker.parameters(), lr=1e-3), torch.optim.Adam(judge.parameters(), lr=1e-3)
    loss = nn.BCEWithLogitsLoss()

    def step():
        real, fake = torch.randn(16, 1) * 0.5 + 4, maker(torch.randn(16, noise))
        b.zero_grad()
        of_real = loss(judge(real), torch.ones(16, 1))
        of_fake = loss(judge(fake.detach()), torch.zeros(16, 1))
        (of_real + of_fake).backward()
        b.step()
        a.zero_grad()
        loss(judge(fake), torch.ones(16, 1)).backward()
        a.step()

    return nn.ModuleList(([maker] if made else []) + ([judge] if judged else [])), step


def _shared_activation():
    "One ReLU for two layers of the same size, the model called from two lines, once on each half of the numbers."

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act, self.head = nn.Linear(1, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)

        def forward(self, x):
            return self.head(self.act(self.b(self.act(self.a(x)))))

    model = Two()
    with torch.no_grad():
        model.a.weight.copy_(torch.tensor([1.0, 1, 1, 1, 1, -1, -1, -1])[:, None])
        model.a.bias.zero_()

    def loss(m):
        low = m(-torch.rand(32, 1) - 0.1)
        high = m(torch.rand(32, 1) + 0.1)
        return (low + 1).pow(2).mean() + (high - 1).pow(2).mean()

    return model, trained(model, loss)


def _frozen_norms():
    "Fine-tuning: the statistics of batch norm stay as they are, by intention; a frozen teacher runs in evaluation mode."
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    model[1].eval()
    teacher = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval().requires_grad_(False)
    return model, trained(model, lambda m: F.kl_div(F.log_softmax(m(X), 1), F.softmax(teacher(X), 1), reduction="batchmean"))


def _attack():
    "The input is what is learnt, and the model is only asked."
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval(), X.clone().requires_grad_()
    optimizer = torch.optim.SGD([x], lr=0.1)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), LABELS).backward()
        optimizer.step()

    return [x], step


def _soft_targets():
    "Softmax as the target, in attention and in an entropy: none of it is a mistake."
    model, keys = mlp(3), torch.randn(5, 3)

    def loss(m):
        logits = m(X)
        p = logits.softmax(1)
        seen = (logits @ keys.T).softmax(-1) @ keys
        return F.cross_entropy(logits + seen, Y.expand(32, 3).softmax(1)) + 0.01 * (p * p.log()).sum(1).mean()

    return model, trained(model, loss)


HEALTHY = {
    "mlp": lambda: (m := mlp(), trained(m, mse)), "relu": lambda: (m := mlp(3, nn.ReLU), trained(m, lambda m: F.cross_entropy(m(X), LABELS))), "one weight": lambda: (m := nn.Linear(4, 1), trained(m, mse)),
    "rnn": lambda: _recurrent(nn.RNN), "lstm": lambda: _recurrent(nn.LSTM), "gru": lambda: _recurrent(nn.GRU), "transformer": _transformer, "convolution": _convolution, "gan": _gan, "accumulation": _accumulation,
    "by hand": _by_hand, "autograd.grad": _functional, "func.grad": _transforms, "gradient penalty": _penalty, "checkpoint": _checkpointed, "mixed precision": _mixed_precision, "closure": _closure, "tied weights": _tied,
    "evaluation": _evaluating, "deep": _deep, "adapter": _adapter, "hidden state": _hidden_state,
    "variational": _variational, "target network": _target_network, "all pairs": _all_pairs, "meta-learning": _meta_learning, "accumulation across steps": _accumulation_across_steps,
    "small gan": _small_gan, "a gan's judge": lambda: _small_gan(made=False), "a gan's maker": lambda: _small_gan(judged=False), "shared activation": _shared_activation, "frozen norms": _frozen_norms, "attack": _attack, "soft targets": _soft_targets}


@pytest.mark.parametrize("kind", HEALTHY)
def test_sound_trainings_are_healthy(kind):
    torch.manual_seed(2)
    model, step = HEALTHY[kind]()
    told = doctor(model, step)
    assert told.healthy, str(told)
    assert str(told).startswith("Healthy") and told.steps == 4 and len(told.layers)


# Putting back -------------------------------------------------------------------------------------------------------


def test_everything_is_as_it_was():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step():
        model.train()
        optimizer.zero_grad()
        F.mse_loss(model(X), Y).backward()
        optimizer.step()
        schedule.step()
        random.random(), np.random.rand()

    step()
    model.eval()
    kept = {n: t.clone() for n, t in model.state_dict().items()}
    grads = [(p.grad, p.grad.clone()) for p in model.parameters()]
    state = {k: {n: v.clone() for n, v in s.items()} for k, s in optimizer.state_dict()["state"].items()}
    rng, python, numpy_, epoch = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy(), schedule.last_epoch
    parameters = list(model.parameters())
    assert doctor(model, step).healthy
    assert all(torch.equal(t, kept[n]) for n, t in model.state_dict().items())
    assert all(a is b for a, b in zip(parameters, model.parameters())) and not model.training
    assert all(p.grad is g and torch.equal(g, old) for p, (g, old) in zip(model.parameters(), grads))
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(after[k][n], v) for k, s in state.items() for n, v in s.items())
    assert torch.equal(torch.get_rng_state(), rng) and random.getstate() == python and np.array_equal(np.random.get_state()[1], numpy_)
    assert schedule.last_epoch == epoch and optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_training_goes_on_as_if_nobody_had_looked():
    def run(look):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
        step = trained(model, mse, torch.optim.Adam)
        for i in range(6):
            if i == 3 and look:
                assert doctor(model, step).healthy
            step()
        return [p.detach().numpy().tobytes() for p in model.parameters()]

    assert run(False) == run(True)


def test_after_an_error_too():
    model = mlp()
    values = [p.clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runs = []

    def step():
        mse(model).backward()
        optimizer.step()
        runs.append(1)
        if len(runs) == 2:
            raise ValueError("out of data")

    told = doctor(model, step)
    assert "error" in told and "out of data" in str(told) and len(runs) == 2
    assert all(torch.equal(p, v) for p, v in zip(model.parameters(), values)) and all(p.grad is None for p in model.parameters())
    with pytest.raises(KeyboardInterrupt):
        doctor(model, lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert mlp()(X).requires_grad


def test_no_hooks_and_no_memory_stay():
    import gc
    import weakref

    model = mlp()
    step = trained(model, mse)
    told = doctor(model, step)
    assert not model._forward_hooks and not told.findings
    ghost = weakref.ref(model)
    del model, step
    gc.collect()
    assert ghost() is None


# The report ---------------------------------------------------------------------------------------------------------


def test_the_report_reads_the_same_as_text_and_as_html():
    import html
    import re

    model, log = mlp(), []
    sound = trained(model, mse)
    told = doctor(model, lambda: log.append(sound()))
    page = html.unescape(told._repr_html_())
    for f in told.findings:
        assert f.title in page and f.seen.replace("`", "") in re.sub("</?code>", "", page) and all(d in page for d in f.details)
        assert f.title in str(told) and f.remedy in str(told)
    assert 'role="group"' in page and "<h4>" in page and 'scope="col"' in page
    assert "0.weight" in page and "It ran 4 times" in page


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="without arguments"):
        doctor(mlp(), 3)
    with pytest.raises(ValueError, match="without parameters"):
        doctor(nn.ReLU(), lambda: None)
