"""Random models and the programs that train them, under both libraries: what they print, losses, gradients, states, what is left after saving and copying.

A seed gives a program: a kind of input, layers that fit each other, a loss, an optimiser, perhaps a schedule, and one of many ways to take a step. All of it runs in double precision, so that what
differs is no rounding; where a program amplifies even that (a choice of experts, LBFGS), PyTorch runs it again from parameters shaken in their last digits, and is given the room that those runs take.

As a script: `python tests/_random_models.py --count 1000 --seed 0`.
"""

import argparse
import importlib
import random
import sys
import time
import traceback
import warnings

import numpy as np

PRELUDE = """
import collections, copy, functools, io, math
nn, F, optim, schedules = torch.nn, torch.nn.functional, torch.optim, torch.optim.lr_scheduler
norms, older = nn.utils.parametrizations, nn.utils

class Residual(nn.Module):
    def __init__(self, *body):
        super().__init__()
        self.body = nn.Sequential(*body)
    def forward(self, x): return x + self.body(x)

class Gated(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = a, b
    def forward(self, x): return self.a(x) * torch.sigmoid(self.b(x))

class Both(nn.Module):
    def __init__(self, parts, dim):
        super().__init__()
        self.parts, self.dim = nn.ModuleList(parts), dim
    def forward(self, x): return torch.cat([p(x) for p in self.parts], self.dim)

class Call(nn.Module):
    def __init__(self, f, *args, **kwargs):
        super().__init__()
        self.f, self.args, self.kwargs = f, args, kwargs
    def forward(self, x): return self.f(x, *self.args, **self.kwargs)
    def extra_repr(self): return self.f.__name__

class First(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m
    def forward(self, x): return self.m(x)[0]

class SelfAttention(nn.Module):
    def __init__(self, d, h, causal=False, **options):
        super().__init__()
        self.m, self.causal = nn.MultiheadAttention(d, h, batch_first=True, **options), causal
    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return self.m(x, x, x, attn_mask=mask, need_weights=False)[0]

class Heads(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.h)
        a = a.masked_fill(torch.ones(t, t).tril() == 0, float('-inf')).softmax(-1)
        return self.out((a @ v).transpose(1, 2).reshape(n, t, d))

class Rotary(nn.Module):
    def forward(self, x):
        n, t, d = x.shape
        f = torch.outer(torch.arange(t), 1.0 / 100 ** (torch.arange(0, d, 2) / d))
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * f.cos() - b * f.sin(), a * f.sin() + b * f.cos()], -1).flatten(-2)

class Positions(nn.Module):
    def __init__(self, t, d):
        super().__init__()
        self.e = nn.Parameter(torch.randn(1, t, d) * 0.02)
        self.register_buffer('seen', torch.zeros((), dtype=torch.long))
    def forward(self, x):
        self.seen += 1
        return x + self.e[:, :x.shape[1]]

class Loop(nn.Module):
    def __init__(self, cell, size):
        super().__init__()
        self.cell, self.size = cell, size
    def forward(self, x):
        h, out = x.new_zeros(x.shape[0], self.size), []
        if isinstance(self.cell, nn.LSTMCell): h = (h, h.clone())
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            out.append(h[0] if isinstance(h, tuple) else h)
        return torch.stack(out, 1)

class SqueezeExcite(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self.fc = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, r, 1), nn.ReLU(), nn.Conv2d(r, c, 1), nn.Hardsigmoid())
    def forward(self, x): return x * self.fc(x)

class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))
    def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g

class Experts(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.gate, self.parts = nn.Linear(d, n), nn.ModuleList(nn.Linear(d, d) for _ in range(n))
    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for k, part in enumerate(self.parts):
            at = chosen == k
            rows = at.any(-1)
            if rows.any(): out[rows] = out[rows] + part(x[rows]) * (weights * at).sum(-1)[rows].unsqueeze(-1)
        return out
"""

ACTIVATIONS = """ReLU() ReLU(inplace=True) GELU() GELU(approximate='tanh') SiLU() SiLU(inplace=True) Tanh() Sigmoid() LeakyReLU(0.2) LeakyReLU(0.1,inplace=True) ELU() ELU(inplace=True) SELU() CELU(0.5)
Softplus(beta=2) Hardswish() Hardswish(inplace=True) Hardtanh(-1.5,1) Mish() PReLU() RReLU() Softsign() Tanhshrink() LogSigmoid() ReLU6() Threshold(0.1,0.0) Softshrink(0.1) Hardshrink(0.1)""".split()
FUNCTIONS = "torch.sin|torch.clamp, min=-1|F.relu|torch.tanh|F.softplus|torch.square|F.silu".split("|")

LOSSES = {  # what it compares with: (how that is made, of n examples and o numbers; losses)
    "classes": (
        "torch.randint(0, {o}, ({n},))",
        "nn.CrossEntropyLoss()|nn.CrossEntropyLoss(label_smoothing=0.1)|nn.CrossEntropyLoss(weight=torch.arange(1.0, {o} + 1))|nn.CrossEntropyLoss(ignore_index=1, reduction='sum')|F.cross_entropy"
        "|lambda a, b: F.nll_loss(F.log_softmax(a, 1), b)|nn.MultiMarginLoss()|nn.MultiMarginLoss(p=2, margin=0.5)",
    ),
    "shares": (
        "torch.rand({n}, {o}).softmax(1)",
        "lambda a, b: F.kl_div(F.log_softmax(a, 1), b, reduction='batchmean')|nn.CrossEntropyLoss()|lambda a, b: nn.KLDivLoss(reduction='sum', log_target=True)(a.log_softmax(1), b.log())|nn.PoissonNLLLoss()"
        "|nn.PoissonNLLLoss(full=True)",
    ),
    "numbers": (
        "torch.randn({n}, {o})",
        "nn.MSELoss()|nn.MSELoss(reduction='sum')|lambda a, b: ((a - b) ** 2).mean()|nn.L1Loss()|nn.SmoothL1Loss(beta=0.5)|nn.HuberLoss(delta=0.7)|torch.dist|lambda a, b: 1 - F.cosine_similarity(a, b).mean()"
        "|lambda a, b: F.cosine_embedding_loss(a, b, torch.ones(len(a)))|lambda a, b: F.triplet_margin_loss(a, b, b.roll(1, 0))|lambda a, b: F.margin_ranking_loss(a, b, torch.ones_like(b))"
        "|lambda a, b: F.gaussian_nll_loss(a, b, F.softplus(a) + 0.1)",
    ),
    "yes or no": (
        "torch.randint(0, 2, ({n}, {o})).double()",
        "nn.BCEWithLogitsLoss()|nn.BCEWithLogitsLoss(pos_weight=torch.full(({o},), 2.0))|lambda a, b: F.binary_cross_entropy(a.sigmoid(), b)|nn.SoftMarginLoss()|nn.HingeEmbeddingLoss()|nn.MultiLabelSoftMarginLoss()",
    ),
}

OPTIMISERS = """SGD(*, lr=0.05)|SGD(*, lr=0.05, momentum=0.9)|SGD(*, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)|SGD(*, lr=0.05, momentum=0.5, dampening=0.1, maximize=True)|SGD(*, lr=0.02, foreach=True)
Adam(*, lr=0.01)|Adam(*, lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)|Adam(*, lr=0.01, amsgrad=True)|Adam(*, foreach=False)|AdamW(*, lr=0.01)|AdamW(*, lr=torch.tensor(0.01))|AdamW(*, fused=True)|NAdam(*)
RAdam(*, lr=0.01)|Adamax(*)|RMSprop(*, lr=0.01)|RMSprop(*, lr=0.01, centered=True, momentum=0.5)|Adagrad(*, lr=0.05)|Adadelta(*)|ASGD(*, lr=0.05)|Rprop(*)|Adafactor(*)|LBFGS(list(model.parameters()), lr=0.1, max_iter=4)"""
OPTIMISERS = OPTIMISERS.replace("\n", "|").split("|")

PARAMETERS = """model.parameters()|[p for p in model.parameters() if p.requires_grad]|model.named_parameters()
[{'params': [p for p in model.parameters() if p.ndim > 1]}, {'params': [p for p in model.parameters() if p.ndim <= 1], 'weight_decay': 0.0}]""".replace("\n", "|").split("|")

SCHEDULES = """StepLR(optimizer, 2)|CosineAnnealingLR(optimizer, 4)|OneCycleLR(optimizer, 0.1, total_steps=8, cycle_momentum=False)|LambdaLR(optimizer, lambda e: 0.9 ** e)|ExponentialLR(optimizer, 0.8)
LinearLR(optimizer, total_iters=3)|ReduceLROnPlateau(optimizer, patience=0, factor=0.5)|SequentialLR(optimizer, [schedules.ConstantLR(optimizer, 0.1, 2), schedules.ExponentialLR(optimizer, 0.9)], [2])
ChainedScheduler([schedules.ConstantLR(optimizer, 0.1, 2), schedules.ExponentialLR(optimizer, 0.9)])|CosineAnnealingWarmRestarts(optimizer, 2)|MultiStepLR(optimizer, [1, 3])|PolynomialLR(optimizer, 4)"""
SCHEDULES = SCHEDULES.replace("\n", "|").split("|")

CLIPS = """log(nn.utils.clip_grad_norm_(model.parameters(), 0.5))|nn.utils.clip_grad_value_(model.parameters(), 0.1)|log(nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=float('inf')))
log(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))""".replace("\n", "|").split("|")

# ways to take a step; CLIP may stand for what is done to gradients. Those of FLOATING differentiate by the input.
WAYS = {
    "plain": "optimizer.zero_grad()\nloss = criterion(model(x), y)\nloss.backward()\nCLIP\noptimizer.step()",
    "in parts": "optimizer.zero_grad(set_to_none=False)\nfor part in range(2):\n    loss = criterion(model(x), y) / 2\n    loss.backward()\nCLIP\noptimizer.step()",
    "closure": "def closure():\n    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n    loss.backward()\n    return loss\nloss = optimizer.step(closure)",
    "checkpointed": "optimizer.zero_grad()\nloss = criterion(torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False), y)\nloss.backward()\nCLIP\noptimizer.step()",
    "twice": "optimizer.zero_grad()\nout = model(x)\nout.retain_grad()\nloss = criterion(out, y)\nloss.backward(retain_graph=True)\nloss.backward()\nlog(out.grad)\nCLIP\noptimizer.step()",
    "functional": "optimizer.zero_grad()\nvalues = {k: v.detach().clone() for k, v in model.named_parameters()}\n"
    "gs, loss = torch.func.grad_and_value(lambda values: criterion(torch.func.functional_call(model, values, (x,)), y))(values)\nlog(gs)\n"
    "for k, p in model.named_parameters():\n    if p.requires_grad: p.grad = gs[k]\nCLIP\noptimizer.step()",
    "each example": "optimizer.zero_grad()\nmodel.eval()\nvalues = {k: v.detach() for k, v in model.named_parameters()}\n"
    "one = lambda values, a: torch.func.functional_call(model, values, (a.unsqueeze(0),)).sum()\nlog(torch.func.vmap(torch.func.grad(one), in_dims=(None, 0), randomness='different')(values, x))\n"
    "model.train()\nloss = criterion(model(x), y)\nloss.backward()\nCLIP\noptimizer.step()",
    "scaled": "optimizer.zero_grad()\nloss = criterion(model(x), y)\nscaler.scale(loss).backward()\nscaler.unscale_(optimizer)\nCLIP\nscaler.step(optimizer)\nscaler.update()\nlog(scaler.get_scale())",
    "loader": "for xb, yb in loader:\n    optimizer.zero_grad()\n    loss = criterion(model(xb), yb)\n    loss.backward()\n    CLIP\n    optimizer.step()",
    "anomaly": "optimizer.zero_grad()\nwith torch.autograd.detect_anomaly():\n    loss = criterion(model(x), y)\n    loss.backward()\nCLIP\noptimizer.step()",
    "penalty": "optimizer.zero_grad()\nxs = x.clone().requires_grad_()\nloss = criterion(model(xs), y)\ng, = torch.autograd.grad(loss, xs, create_graph=True)\nloss = loss + 0.1 * g.pow(2).sum()\nloss.backward()\nCLIP\noptimizer.step()",
    "tangents": "optimizer.zero_grad()\nmodel.eval()\nlog(torch.func.jvp(model, (x,), (torch.ones_like(x),)))\nmodel.train()\nloss = criterion(model(x), y)\nloss.backward()\nCLIP\noptimizer.step()",
}
FLOATING = {"penalty", "tangents"}
BEFORE = {
    "scaled": "scaler = torch.amp.GradScaler('cpu', init_scale=4.0)",
    "loader": "loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x), shuffle=True)",
}

AFTER = [
    "model.eval()\nwith torch.no_grad(): log(model(x))",
    "model.eval()\nlog(copy.deepcopy(model)(x))",
    "f = io.BytesIO()\ntorch.save(model.state_dict(), f)\nf.seek(0)\nlog(model.load_state_dict(torch.load(f)))\nmodel.eval()\nlog(model(x))",
    "log(repr(optimizer))\nlog(sum(p.numel() for p in model.parameters()))\nlog([name for name, _ in model.named_modules()])",
    "log(nn.utils.parameters_to_vector(model.parameters()))",
    "log(torch.autograd.functional.jacobian(model.eval(), x[:1]))",
]


class Layers:
    "Layers that fit each other, and the shapes between them."

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *options):
        return self.random.choice(options)

    def chance(self, p):
        return self.random.random() < p

    def activation(self):
        return f"Call({self.pick(*FUNCTIONS)})" if self.chance(0.2) else "nn." + self.pick(*ACTIVATIONS)

    def normed(self, layer):
        "A layer, or its weight in other parameters."
        return self.pick("norms.weight_norm", "norms.spectral_norm", "older.weight_norm", "older.spectral_norm") + f"({layer})" if self.chance(0.12) else layer

    def linear(self, a, b):
        return self.normed(f"nn.Linear({a}, {b}{self.pick('', '', ', bias=False')})")

    def vectors(self, f, depth):
        "Layers for (examples, f), and the width of their result."
        out = []
        for _ in range(depth):
            kind = self.pick("linear", "linear", "linear", "activation", "activation", "norm", "drop", "residual", "gate", "both", "shares", "fold", "experts")
            if kind == "linear":
                out.append(self.linear(f, g := self.pick(4, 6, 8)))
                f = g
            elif kind == "activation":
                out.append(self.activation())
            elif kind == "norm":
                out.append(self.pick(*(
                    f"nn.BatchNorm1d({f})|nn.BatchNorm1d({f}, momentum=None)|nn.BatchNorm1d({f}, affine=False)|nn.BatchNorm1d({f}, track_running_stats=False)|nn.LayerNorm({f})"
                    f"|nn.LayerNorm({f}, elementwise_affine=False)|nn.LayerNorm({f}, bias=False)|nn.RMSNorm({f})|RMS({f})|nn.GroupNorm(2, {f})").split("|")))
            elif kind == "drop":
                out.append(self.pick("nn.Dropout(0.3)", "nn.AlphaDropout(0.2)", "nn.Dropout(0.5, inplace=True)", "nn.FeatureAlphaDropout(0.2)", "nn.Identity()"))
            elif kind == "residual":
                out.append(f"Residual({self.linear(f, f)}, {self.activation()}, nn.Linear({f}, {f}))")
            elif kind == "gate":
                out.append(f"Gated(nn.Linear({f}, {f}), nn.Linear({f}, {f}))")
            elif kind == "both":
                out.append(f"Both([nn.Linear({f}, 3), nn.Sequential(nn.Linear({f}, 3), {self.activation()})], 1)")
                f = 6
            elif kind == "shares":
                out.append(self.pick("nn.Softmax(dim=1)", "nn.LogSoftmax(dim=-1)", "nn.Softmin(dim=1)", "Call(F.normalize, dim=1)", "nn.GLU()"))
                if "GLU" in out[-1]:
                    f //= 2
            elif kind == "fold" and f % 2 == 0:
                out += [f"nn.Unflatten(1, (2, {f // 2}))", "nn.Flatten()"]
            elif kind == "experts":
                out.append(f"Experts({f}, 3)")
            if f % 2:
                out.append(f"nn.Linear({f}, 4)")
                f = 4
        return out, f

    def convolution(self, dims, c, s):
        "A convolution or its transpose, with its channels and places; None if no window fits."
        o, k, stride, pad, dilation = self.pick(1, 2, 3, 4, 6), self.pick(1, 2, 3), self.pick(1, 1, 2), self.pick(0, 1, 2), self.pick(1, 1, 2)
        groups = self.pick(*[g for g in range(1, 7) if c % g == 0 and o % g == 0])
        how = f"{c}, {o}, {k}, stride={stride}, padding={pad}, dilation={dilation}, groups={groups}"
        if s <= 6 and self.chance(0.25):
            size = (s - 1) * stride - 2 * pad + dilation * (k - 1) + 1
            return (f"nn.ConvTranspose{dims}d({how})", o, size) if size > 0 else None
        size = (s + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        if size < 1:
            return None
        modes = ["", ", bias=False", ", padding_mode='replicate'"] + [", padding_mode='reflect'"] * (pad < s and dims < 3) + [", padding_mode='circular'"] * (pad <= s)
        return self.normed(f"nn.Conv{dims}d({how}{self.pick(*modes)})"), o, size

    def grids(self, dims, c, s, depth):
        "Layers for (examples, c, s, … s): lines, images or volumes."
        out, d = [], dims
        for _ in range(depth):
            kind = self.pick("convolution", "convolution", "convolution", "activation", "activation", "norm", "pool", "pad", "drop", "residual", "excite", "larger", "depthwise", "both", "shuffle")
            if kind == "convolution":
                found = self.convolution(d, c, s)
                if found and found[2] ** d < 1200:
                    out.append(found[0])
                    _, c, s = found
            elif kind == "activation":
                out.append(self.activation())
            elif kind == "norm":
                each = f"|nn.InstanceNorm{d}d({c})|nn.InstanceNorm{d}d({c}, affine=True, track_running_stats=True)" if s > 1 else ""
                out.append(self.pick(*(
                    f"nn.BatchNorm{d}d({c})|nn.BatchNorm{d}d({c}, eps=1e-3, momentum=0.5)|nn.GroupNorm({2 - c % 2}, {c})|nn.GroupNorm(1, {c}, affine=False)|nn.LayerNorm([{c}{f', {s}' * d}])"
                    f"|nn.LocalResponseNorm(2){each}").split("|")))
            elif kind == "pool" and s >= 3:
                half, pad = s // 2, (s - 1) // 2 + 1
                name, s = self.pick((f"MaxPool{d}d(2)", half), (f"AvgPool{d}d(2)", half), (f"MaxPool{d}d(3, 2, 1)", pad), (f"AvgPool{d}d(3, 2, 1, count_include_pad=False)", pad),
                                    (f"AdaptiveAvgPool{d}d(2)", 2), (f"AdaptiveMaxPool{d}d(3)", 3), (f"LPPool{d}d(2, 2)", half), (f"MaxPool{d}d(2, ceil_mode=True)", -(-s // 2)))
                out.append("nn." + name)
            elif kind == "pad" and s > 1:
                out.append(f"nn.{self.pick('ZeroPad', 'ReflectionPad', 'ReplicationPad', 'CircularPad')}{d}d(1)")
                s += 2
            elif kind == "drop":
                out.append(self.pick(f"nn.Dropout{d}d(0.3)", "nn.Dropout(0.2)", "nn.FeatureAlphaDropout(0.2)"))
            elif kind == "residual":
                out.append(f"Residual(nn.Conv{d}d({c}, {c}, 3, padding=1, bias=False), nn.BatchNorm{d}d({c}), {self.activation()}, nn.Conv{d}d({c}, {c}, 1))")
            elif kind == "excite" and d == 2:
                out.append(f"SqueezeExcite({c}, 2)")
            elif kind == "larger" and s <= 5:
                smooth = {1: "linear", 2: "bilinear", 3: "trilinear"}[d]
                out.append(f"nn.Upsample(scale_factor=2{self.pick('', f', mode={smooth!r}', f', mode={smooth!r}, align_corners=True')})")
                s *= 2
            elif kind == "depthwise" and c < 6:
                out.append(f"nn.Conv{d}d({c}, {2 * c}, 3, padding='same', groups={c})")
                c *= 2
            elif kind == "both":
                out.append(f"Both([nn.Conv{d}d({c}, 2, 1), nn.Sequential(nn.Conv{d}d({c}, 2, 3, padding=1), {self.activation()})], 1)")
                c = 4
            elif kind == "shuffle" and d == 2:
                if c % 4 == 0 and s <= 6:
                    out.append("nn.PixelShuffle(2)")
                    c, s = c // 4, s * 2
                elif s % 2 == 0 and c < 5:
                    out.append("nn.PixelUnshuffle(2)")
                    c, s = c * 4, s // 2
                elif c % 2 == 0:
                    out.append("nn.ChannelShuffle(2)")
        return out, c, s

    def turned(self, *layers):
        return f"nn.Sequential(Call(torch.transpose, 1, 2), {', '.join(layers)}, Call(torch.transpose, 1, 2))"

    def sequences(self, t, d, depth):
        "Layers for (examples, t, d), and the width of their result."
        out = []
        for _ in range(depth):
            kind = self.pick("recurrent", "recurrent", "attention", "heads", "encoder", "linear", "norm", "convolution", "loop", "rotary", "drop", "activation", "positions", "experts")
            if kind == "recurrent":
                cell, h, both = self.pick("RNN", "LSTM", "GRU"), self.pick(4, 6), self.chance(0.3)
                more = self.pick("", ", nonlinearity='relu'" if cell == "RNN" else "", ", num_layers=2", ", num_layers=2, dropout=0.2", ", bias=False", ", proj_size=2" if cell == "LSTM" else "")
                out.append(f"First(nn.{cell}({d}, {h}, batch_first=True{more}{', bidirectional=True' * both}))")
                d = (2 if "proj" in more else h) * (1 + both)
            elif kind == "attention":
                layer = f"SelfAttention({d}, 2{self.pick('', ', bias=False', ', dropout=0.1', ', add_bias_kv=True', ', add_zero_attn=True', ', causal=True')})"
                out.append(f"Residual({layer})" if self.chance(0.5) else layer)
            elif kind == "heads":
                out.append(f"Residual(nn.LayerNorm({d}), Heads({d}, 2))")
            elif kind == "encoder":
                more = self.pick("", ", norm_first=True", ", activation='gelu'", ", bias=False")
                out.append(f"nn.TransformerEncoderLayer({d}, 2, 8, dropout={self.pick(0.0, 0.1)}, batch_first=True{more})")
            elif kind == "linear":
                out.append(self.linear(d, g := self.pick(4, 6, 8)))
                d = g
            elif kind == "norm":
                out.append(self.pick(f"nn.LayerNorm({d})", f"nn.RMSNorm({d})", f"RMS({d})", self.turned(f"nn.BatchNorm1d({d})")))
            elif kind == "convolution":
                out.append(self.turned(f"nn.Conv1d({d}, {(o := self.pick(4, 6))}, 3, padding=1)", self.activation()))
                d = o
            elif kind == "loop":
                out.append(f"Loop(nn.{self.pick('RNN', 'LSTM', 'GRU')}Cell({d}, {(h := self.pick(4, 6))}), {h})")
                d = h
            elif kind == "rotary":
                out.append("Rotary()")
            elif kind == "drop":
                out.append(self.pick("nn.Dropout(0.2)", "nn.Dropout1d(0.2)"))
            elif kind == "activation":
                out.append(self.activation())
            elif kind == "positions":
                out.append(f"Positions({t}, {d})")
            elif kind == "experts":
                out.append(f"Experts({d}, 3)")
        return out, d


class Model(Layers):
    "A whole program."

    def body(self, n):
        "The input of n examples and the layers that make vectors of it, with their width."
        kind, depth = self.pick("vectors", "images", "images", "sequences", "words", "lines", "volumes"), self.random.randint(2, 6)
        if kind == "vectors":
            f = self.pick(4, 6)
            return f"torch.randn({n}, {f})", *self.vectors(f, depth)
        if kind in ("sequences", "words"):
            t, d = self.pick(3, 5), self.pick(4, 6)
            start = [f"nn.Embedding(9, {d}{self.pick('', ', padding_idx=0', ', max_norm=1.0', ', scale_grad_by_freq=True', ', padding_idx=3, norm_type=1.0')})"] if kind == "words" else []
            layers, f = self.sequences(t, d, depth)
            end, f = self.pick(("Call(torch.select, 1, -1)", f), ("Call(torch.mean, dim=1)", f), ("Call(torch.amax, dim=1)", f), ("nn.Flatten()", t * f))
            return f"torch.randint(0, 9, ({n}, {t}))" if kind == "words" else f"torch.randn({n}, {t}, {d})", [*start, *layers, end], f
        dims, c, s = {"images": 2, "lines": 1, "volumes": 3}[kind], self.pick(1, 2, 3, 4), self.pick(5, 6, 8)
        if dims == 3:
            s, depth = self.pick(3, 4), min(depth, 4)
        shape = f"{n}, {c}{f', {s}' * dims}"
        layers, c, s = self.grids(dims, c, s, depth)
        if s**dims * c > 600 or self.chance(0.5):
            return f"torch.randn({shape})", [*layers, f"nn.AdaptiveAvgPool{dims}d(1)", "nn.Flatten()"], c
        return f"torch.randn({shape})", [*layers, "nn.Flatten()"], c * s**dims

    def definition(self, layers):
        "The model of these layers, in one of the forms in which people write it."
        form = self.pick("sequence", "sequence", "names", "class")
        if form == "sequence":
            return f"model = nn.Sequential({', '.join(layers)})"
        if form == "names":
            return f"model = nn.Sequential(collections.OrderedDict([{', '.join(f'({chr(39)}l{i}{chr(39)}, {m})' for i, m in enumerate(layers))}]))"
        made = "".join(f"        self.m{i} = {m}\n" for i, m in enumerate(layers))
        used = "".join(f"        x = self.m{i}(x)\n" for i in range(len(layers)))
        return f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}    def forward(self, x):\n{used}        return x\nmodel = Net()"

    def write(self):
        "The text of the program."
        n = self.pick(2, 3, 5)
        x, layers, f = self.body(n)
        if self.chance(0.3):
            more, f = self.vectors(f, 2) if f % 2 == 0 else ([], f)
            layers += more
        against, o = self.pick(*LOSSES), self.pick(2, 3, 4)
        target, losses = LOSSES[against]
        floating = "randn" in x
        layers.append(f"nn.LazyLinear({o})" if floating and self.chance(0.05) else f"nn.Linear({f}, {o})")
        lines = [f"torch.manual_seed({self.random.randrange(1000)})", self.definition(layers), f"x = {x}"]
        if "Lazy" in layers[-1]:
            lines.append("with torch.no_grad(): model(x)")
        if x.count(",") == 3 and self.chance(0.2) and "GroupNorm" not in str(layers):  # PyTorch's may crash there
            lines.append("model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)")
        lines += ["shake(model)", "log(repr(model), {k: v.detach().clone() for k, v in model.state_dict().items()})"]
        lines += [f"y = {target.format(n=n, o=o)}", f"criterion = {self.pick(*losses.split('|')).format(n=n, o=o)}"]
        if self.chance(0.1):
            lines.append("for p in list(model.parameters())[:1]: p.requires_grad_(False)")
        if self.chance(0.1):
            fill = self.pick("xavier_uniform_(m.weight)", "kaiming_normal_(m.weight)", "normal_(m.weight, std=0.02)", "trunc_normal_(m.weight, std=0.1)", "orthogonal_(m.weight)")
            lines.append(f"for m in model.modules():\n    if type(m) is nn.Linear: nn.init.{fill}")
        optimiser, way = self.pick(*OPTIMISERS), self.pick("plain", "plain", *[w for w in WAYS if floating or w not in FLOATING])
        if "LBFGS" in optimiser:
            way = "closure"
        lines.append(f"optimizer = optim.{optimiser.replace('*', self.pick(*PARAMETERS))}")
        schedule = self.pick(*SCHEDULES) if self.chance(0.7) else None
        if schedule:
            lines.append(f"scheduler = schedules.{schedule}")
        average = self.chance(0.1) and "older" not in str(layers) and "Lazy" not in layers[-1]
        if average:
            lines.append(f"ema = optim.swa_utils.AveragedModel(model{self.pick('', ', multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9)')})")
        if self.chance(0.1):
            lines.append("for name, m in model.named_modules():\n    m.register_forward_hook(functools.partial(lambda name, m, i, o: log(name, type(m).__name__, o.shape if hasattr(o, 'shape') else None), name))")
        if self.chance(0.06):
            lines.append("for m in model.modules():\n    if isinstance(m, (nn.Linear, nn.Conv2d)): m.register_full_backward_hook(lambda m, gi, go: log([None if g is None else g.clone() for g in gi], [g.clone() for g in go]))")
        if way in BEFORE:
            lines.append(BEFORE[way])
        step = [WAYS[way].replace("CLIP", self.pick(*CLIPS) if self.chance(0.3) else "pass"), "log(loss.detach())"]
        if schedule:
            step += ["scheduler.step(loss.item())" if "Plateau" in schedule else "scheduler.step()", "log(scheduler.get_last_lr())"]
        if average:
            step.append("ema.update_parameters(model)")
        lines.append(f"for step in range({self.random.randint(2, 4)}):\n    " + "\n".join(step).replace("\n", "\n    "))
        lines.append("log(dict(model.state_dict()), [(k, p.grad) for k, p in model.named_parameters()], optimizer.state_dict())")
        if average:
            lines.append("log(ema.state_dict())")
        lines.append(self.pick(*(AFTER if floating else AFTER[:-1])))
        return "\n".join(lines) + "\n"


def run(library, text, noise=None):
    "What the program logs, its error and its warnings; `noise` (a NumPy generator) shakes the first parameters."
    torch = importlib.import_module(library)
    for module in ("utils.checkpoint", "utils.data", "optim.swa_utils"):
        importlib.import_module(f"{library}.{module}")
    found, error = [], None

    def shake(model):
        for p in model.parameters() if noise is not None else ():
            p.data.mul_(torch.from_numpy(1 + 6e-16 * noise.uniform(-1, 1, tuple(p.shape))))

    space = dict(torch=torch, log=lambda *values: found.extend(values), shake=shake, __name__="program")
    torch.set_default_dtype(torch.float64)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            exec(compile(PRELUDE + text, "program", "exec"), space)
        except Exception as e:
            error = e
        finally:
            torch.set_default_dtype(torch.float32)
    return found, error, {(w.category.__name__, str(w.message)[:60]) for w in told if not any(k in str(w.message) for k in HUSHED)}


# PyTorch's warnings of things that are otherwise here
HUSHED = ("oneDNN", "performance drop", "torch.jit")
# what PyTorch itself refuses, or gets wrong, where nothing stands in the way here
REFUSED = ("not implemented", "do not yet support", "does not support", "view size is not", "vmap", "doesn't match the broadcast", "captured Tensor")


def leaves(value, path=""):
    "Everything in what was logged, as (path, array or plain value)."
    if isinstance(value, dict):
        yield path + " keys", [str(k) for k in value]
        for k in value:
            yield from leaves(value[k], f"{path}.{k}")
    elif type(value) in (list, tuple):
        yield path + " len", len(value)
        for i, v in enumerate(value):
            yield from leaves(v, f"{path}[{i}]")
    elif hasattr(value, "grad_fn"):
        yield path + " kind", (str(value.dtype), value.requires_grad, type(value).__name__)
        yield path, value.detach().numpy()
    elif isinstance(value, (float, int, str, type(None))):
        yield path, value
    else:
        yield path, str(value) if not callable(value) else "callable"


def close(a, b, room=0.0, tolerance=1e-6):
    "Whether two leaves agree."
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype.kind == "f":
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        scale = np.max(np.abs(b), initial=0, where=np.isfinite(b))
        with np.errstate(invalid="ignore"):
            return bool(np.all((a == b) | (np.abs(a - b) <= tolerance * (np.abs(b) + scale + 1e-3) + 30 * room) | (np.isnan(a) & np.isnan(b))))
    if isinstance(a, float) and isinstance(b, float):
        return close(np.array(a), np.array(b), room)
    return type(a) is type(b) and (np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b)


def room_for(text, path, value):
    "How far a number of PyTorch's strays when its first parameters are shaken."
    shaken = [dict(leaves(run("torch", text, np.random.default_rng(seed))[0])).get(path, value) for seed in range(6)]
    if not isinstance(value, (np.ndarray, float)) or any(np.shape(s) != np.shape(value) for s in shaken):
        return 0.0
    with np.errstate(invalid="ignore"):
        return np.max([np.abs(np.asarray(s) - value) for s in shaken], 0)


def difference(text):
    "In what the libraries differ on a program: a sentence, or None."
    expected, refusal, warned = run("torch", text)
    if refusal is not None and any(k in str(refusal) for k in REFUSED):
        return None
    found, error, told = run("autograd_nb", text)
    if (error is None) != (refusal is None) or error is not None and not (isinstance(error, type(refusal)) and str(error)[:50] == str(refusal)[:50]):
        where = "".join(traceback.format_exception(error)[-5:]) if refusal is None else ""
        return f"error\nours    {error!r:.300}\nPyTorch {refusal!r:.300}\n{where}"
    if told != warned:
        return f"warnings\nours    {told - warned}\nPyTorch {warned - told}"
    ours, theirs = list(leaves(found)), list(leaves(expected))
    for (path, a), (other, b) in zip(ours, theirs):
        if path != other:
            return f"structure: {path} and {other}"
        if not close(a, b) and not close(a, b, room_for(text, path, b)):
            return f"{path}\nours    {a!r:.300}\nPyTorch {b!r:.300}"
    return None if len(ours) == len(theirs) else f"length: {len(ours)} and {len(theirs)}"


def main():
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    began, differ = time.time(), 0
    for seed in range(options.seed, options.seed + options.count):
        text = Model(seed).write()
        found = difference(text)
        if found is not None:
            differ += 1
            print(f"# seed {seed}\n{text}# " + found.replace("\n", "\n# ") + "\n", flush=True)
    print(f"{differ} of {options.count} programs differ ({time.time() - began:.0f} s)")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
