"""Random programs of views, in-place writes, modes, hooks and gradients, run statement by statement under PyTorch and under autograd_nb.

A program is a list of statements over named variables. `write(seed)` makes one: each statement is chosen by what PyTorch has made of those before it, so that most of them mean something. `difference(program)` runs it
under both libraries and says where they first differ: in a value, in what can be seen of a tensor, in what hooks were given, in warnings, or in errors. `shrink` makes a program that differs smaller while it
still does, and `text` prints it as source to be pasted. As a script, this file tries fresh seeds: `python tests/_random_programs.py --count 20000`."""

import argparse
import copy
import functools
import pickle
import random
import re
import sys
import time
import warnings

import numpy as np
from _compare import every_warning

PRELUDE = '''
log = []

def seen(g, depth=1):
    "What a hook was given, as plain data."
    if isinstance(g, (tuple, list)): return tuple(seen(v, depth) for v in g)
    if not isinstance(g, torch.Tensor): return g
    found = tuple(g.shape), g.requires_grad, g.detach().clone().flatten().tolist()
    return (*found, seen(g.grad, 0)) if depth and g.is_leaf and g.grad is not None else found

def noting(name, change=None):
    "A hook that notes what it is given, and may change it."
    def hook(*given):
        log.append((name, torch.is_grad_enabled(), seen(given)))
        if change is not None: return change(given[0])
    return hook

def own(gradients):
    "Gradients in memory of their own: some are views."
    return [None if g is None else g.contiguous() * 1 for g in gradients]

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g

class Same(torch.autograd.Function):
    "Returns its input."
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, g): return g * 3

class Seen(torch.autograd.Function):
    "Returns a view of its input."
    @staticmethod
    def forward(ctx, x): return x.view(-1)
    @staticmethod
    def backward(ctx, g): return g.view(2, -1) if g.numel() > 3 else g

class Written(torch.autograd.Function):
    "Writes to its input."
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x
    @staticmethod
    def backward(ctx, g): return g * 2

class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y
    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h, (g * x + h) if ctx.needs_input_grad[1] else None
'''.strip()

NAMES = "abcdefghijklmnopqrstuvwxyz"
RTOL, ATOL = 1e-6, 1e-8


# Statements ----------------------------------------------------------------------------------------------------


def overlaps(t):
    "Whether elements of a tensor share memory in a way that PyTorch does not look for: what a write leaves there depends on its order."
    steps = sorted((s, n) for s, n in zip(t.stride(), t.shape) if n > 1 and s)
    return any(s <= sum(r * (m - 1) for r, m in steps[:i]) for i, (s, n) in enumerate(steps))


class Writer:
    "Makes statements, by looking at the variables that PyTorch holds."

    more = False  # also statements in which the libraries are known to differ, in names of nodes above all

    def __init__(self, rng, scope, torch):
        self.rng, self.scope, self.torch, self.handles, self.depth = rng, scope, torch, 0, 0

    def tensors(self):
        return [n for n in NAMES if isinstance(self.scope.get(n), self.torch.Tensor)]

    def pick(self, want=None):
        "The name of a variable, a recent one rather; one for which `want(tensor)` holds, if there is one."
        names = self.tensors()
        if want is not None and self.rng.random() < 0.9:
            names = [n for n in names if self.holds(want, n)] or names
        k = min(int(self.rng.expovariate(0.35)), len(names) - 1)
        return names[-1 - k]

    def holds(self, want, name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return want(self.scope[name])
            except Exception:
                return False

    def fresh(self):
        "The name of a new variable; sometimes one that is taken."
        free = [n for n in NAMES if n not in self.scope]
        return free[0] if free and self.rng.random() < 0.93 else self.rng.choice([n for n in NAMES[:12] if n in self.scope] or free)

    def like(self, x):
        "The name of a variable that broadcasts to the shape of `x`, mostly."
        shape = self.scope[x].shape

        def fits(t):
            try:
                return self.torch.broadcast_shapes(t.shape, shape) == shape and t.dtype.is_floating_point
            except RuntimeError:
                return False

        return self.pick(fits)

    def tangled(self, x, y):
        "Whether two variables share memory in a way that PyTorch does not look for: what one leaves in the other depends on the order."
        a, b = self.scope[x], self.scope[y]
        return a is not b and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and not (a.is_contiguous() and b.is_contiguous())

    def any(self, *options):
        return self.rng.choice(options)

    # kinds of statements, each with its weight

    def leaf(self):
        shape = self.any((), (1,), (2,), (3,), (2, 2), (2, 3), (3, 2), (2, 1))
        n = int(np.prod(shape))
        values = np.round(self.rng.uniform(-0.5, 0.5) + np.linspace(-1, 1.2, n) * self.rng.choice([1, -1]), 2).reshape(shape).tolist()
        return f"{self.fresh()} = torch.tensor({values}, dtype=torch.float64{self.any('', ', requires_grad=True', ', requires_grad=True')})"

    def view_of(self, x):
        shape = tuple(self.scope[x].shape)
        d = len(shape)
        dim = self.rng.randrange(-d, d) if d else 0
        n = shape[dim] if d else 1
        options = ["{x}.view(-1)", "{x}.reshape(-1)", "{x}.flatten()", f"{{x}}.unsqueeze({self.any(0, -1)})", "{x}[None]", "{x}[...]", "{x}.squeeze()", "{x}.detach()", "{x}.detach()", "{x}.data", f"{{x}}.view({list(shape)})",
                   "{x}.view_as({x})", f"{{x}}.expand(2, {', '.join(map(str, shape))})", "{x}.T" if d == 2 else "{x}.view(-1)", "{x}.contiguous()", "{x}.double()", "{x}.alias()" if False else "{x}.ravel()", "{x}.reshape({s})".replace("{s}", repr(shape[::-1]))]
        if d:
            options += [f"{{x}}[{self.any(0, -1)}]", "{x}[1:]", "{x}[:1]", "{x}[::2]", "{x}[..., 0]", "{x}[..., 1:]", f"{{x}}.select({dim}, {self.any(0, -1)})", f"{{x}}.narrow({dim}, 0, {max(1, n - 1)})", f"{{x}}.unbind({dim})[{self.any(0, -1)}]",
                        f"{{x}}.split(1, {dim})[{self.any(0, -1)}]", f"{{x}}.chunk(2, {dim})[{self.any(0, -1)}]", "{x}.transpose(0, -1)", "{x}.movedim(0, -1)", f"{{x}}.unfold({dim}, {min(2, n)}, 1)", f"torch.tensor_split({{x}}, 2, {dim})[0]", "{x}[0:0]",
                        f"{{x}}.squeeze({dim})", *([f"{{x}}.as_strided(({max(1, n - 1)},), (1,))"] if self.scope[x].numel() else []), "torch.unbind({x})[0]"]
        if d > 1:
            options += ["{x}.t()", "{x}.mT", "{x}.diagonal()", "{x}[:, 0]", "{x}[:, 1:]", "{x}.permute(1, 0)", "{x}[0][0]", "{x}[0:1, 1:]", "{x}.swapaxes(0, 1)", "{x}.transpose(0, 1).reshape(-1)", "{x}.t().contiguous()"]
        return self.rng.choice(options).format(x=x)

    def view(self):
        return f"{self.fresh()} = {self.view_of(self.pick())}"

    def several(self):
        x = self.pick(lambda t: t.dim() and t.shape[0] > 1)
        t = self.scope[x]
        dim = self.any(*range(t.dim())) if t.dim() else 0
        n = t.shape[dim] if t.dim() else 1
        names = [self.fresh()]
        while len(names) < min(n, 3):
            free = [v for v in NAMES if v not in self.scope and v not in names]
            if not free:
                break
            names.append(free[0])
        call = self.any(f"{x}.unbind({dim})", f"{x}.split(1, {dim})", f"{x}.chunk({n}, {dim})", f"{x}.tensor_split({n}, {dim})", f"torch.split({x}, 1, {dim})", f"torch.unbind({x}, {dim})")
        if len(names) < n:
            call += f"[:{len(names)}]"
        return f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}"

    def out_of_place(self):
        x = self.pick(lambda t: t.dtype.is_floating_point)
        y, d = self.like(x), self.scope[x].dim()
        options = ["{x} * 2", "{x} + 1", "{x} * {y}", "{x} + {y}", "{x} - {y}", "{x} * {x}", "{x} / 2", "{x}.sin()", "{x}.tanh()", "{x}.sigmoid()", "{x}.exp()", "{x}.relu()", "{x}.clone()", "{x}.sum()", "{x}.mean()", "-{x}", "{x} ** 2",
                   "{x}.add({y}, alpha=2)", "{x}.sub({y}, alpha=3)", "torch.add({x}, {y}, alpha=-1)", "1 - {x}", "{x}.add(1, alpha=2)", "{x}.clamp(min=0.1)", "{x}.masked_fill({x} > 0.1, 0.5)", "torch.where({x} > 0, {x}, {y})",
                   "{x}.abs()", "{x}.square()", "torch.stack([{x}, {x}])", "torch.stack([{x}, {y}])", "torch.addcmul({x}, {x}, {y}, value=0.5)", "torch.lerp({x}, {y}, 0.3)", "{x}.max()", "torch.nn.functional.relu({x})",
                   "Twice.apply({x})", *(["Same.apply({x})"] if self.scope[x].requires_grad else []), "Pair.apply({x}, {y})[{i}]", "{x}.norm()", "{x}.to(torch.float32)", "{x}.float().double()", "{x}.pow(3)", "torch.zeros_like({x})",
                   "{x}.rsub({y})", "{x}.expand_as({x}) * 1", "{x}.logsumexp(0)", "{x}.detach() * {x}", "torch.ones_like({x}, requires_grad=True)", "{x}.repeat(2, 1)", "Seen.apply({x})", "torch.cat([{x}.view(-1), {y}.view(-1)])",
                   "torch.where({x} > 0.1, {x}, 0.5)", "torch.where({y} > 0.1, {x}, {y})", "{x}.clamp(-0.5, 0.5)", "torch.maximum({x}, {y})", "torch.stack([{x}, {y}], -1)", "torch.hypot({x}, {y})"]
        options += ["{x}.prod()", "{x}.masked_fill({x} > 0.1, {y}.sum())", "{x}.reciprocal()", "{x}.masked_select({x} > 0)", "{x}.clamp(max=0.2)", "{x}.unique()"]
        if d:
            options += ["{x}.sum(0)", "{x}.sum(-1, keepdim=True)", "{x}.mean(0)", "{x}.softmax(-1)", "torch.cat([{x}, {y}])", "torch.cat([{x}, {x}], -1)", "{x}[[0, 0]]", "{x}[{x} > 0]", "{x}.index_select(0, torch.tensor([0]))", "{x}.cumsum(0)",
                        "{x}.sort(0).values", "{x}.roll(1, 0)", "{x}.amax(0)", "{x}.gather(0, torch.zeros_like({x}, dtype=torch.int64))", "{x}.topk(1).values",
                        "{x}.cumprod(0)", "{x}.sort(0).indices", "{x}.argmax(0)", "{x}.flip(0)", "{x}.tile(2)"]
            options += ["{x}.prod(0)", "{x}.prod(-1, keepdim=True)", "{x}.cummax(0).values", "{x}.cummin(-1).values", "{x}.sort(-1, descending=True).values", "{x}.max(0).values", "{x}.index_add(0, torch.tensor([0]), {x}[:1])",
                        "{x}.index_copy(0, torch.tensor([-1 + {n}]), {y}[:1])", "{x}.index_fill(0, torch.tensor([0]), 0.3)", "{x}.scatter(0, torch.zeros_like({x}, dtype=torch.int64)[:1], 0.5)", "{x}.repeat_interleave(2, 0)",
                        "{x}.scatter_add(0, torch.zeros_like({x}, dtype=torch.int64), {x})", "torch.diff({x}, dim=0)", "{x}.clone().select_scatter({x}[0] * 2, 0, 0)", "{x}.nan_to_num()"]
            options += ["{x}.amin(0)"]
            # of expanded tensors PyTorch reads memory that nobody has written: a result differs from run to run
            options += ["{x}.median(0).values"] if 0 not in self.scope[x].stride() else []
        if d == 2:
            options += ["torch.einsum('ij,ij->i', {x}, {x})"] if 1 not in self.scope[x].shape else []  # whose intermediate results are without dimensions of size one
            options += ["{x} @ {x}.T", "{x} @ {x}.mT.clone()", "torch.mm({x}, {x}.t())", "{x}.tril()"]
        if d == 1:
            options += ["{x} @ {x}", "{x}.dot({x})", "torch.outer({x}, {x})"]
        return f"{self.fresh()} = " + self.rng.choice(options).format(x=x, y=y, i=self.any(0, 1), n=(*self.scope[x].shape, 1)[0])

    def in_place(self):
        x = self.pick(lambda t: t.dtype.is_floating_point and (not t.is_leaf or not t.requires_grad or self.rng.random() < 0.3))
        y, d, shape = self.like(x), self.scope[x].dim(), tuple(self.scope[x].shape)
        y = x if self.rng.random() < 0.08 else y
        if overlaps(self.scope[x]) or self.tangled(x, y):
            return self.view()
        options = ["{x}.add_(1)", "{x}.mul_(2)", "{x}.mul_({y})", "{x}.add_({y})", "{x}.sub_({y})", "{x}.add_({y}, alpha=2)", "{x}.sub_({y}, alpha=0.5)", "{x}.div_(2)", "{x}.sin_()", "{x}.tanh_()", "{x}.sigmoid_()", "{x}.relu_()",
                   "{x}.exp_()", "{x}.clamp_(min=0.1)", "{x}.copy_({y})", "{x}.copy_({y})", "{x}.zero_()", "{x}.fill_(0.5)", "{x}.fill_({y}.sum())", "{x}.pow_(2)", "{x}.neg_()", "{x}.square_()",
                   "{x} += 1", "{x} *= {y}", "{x} -= {y}", "{x} /= 2", "{x} **= 2", "{x}.addcmul_({y}, {y}, value=0.5)", "{x}.lerp_({y}, 0.3)", "{x}[...] = {y}", "torch.nn.functional.relu({x}, inplace=True)",
                   "Written.apply({x})", "{x}.detach().mul_(2)", "{x}.data.mul_(2)", "{x}.data.add_({y})", "{x}.view(-1)[0] = 3.0", "{x}.abs_()", "{x}[None].mul_(2)", "{x}.add_({x})", "{x}.mul_({x})",
                   "{x}.copy_(2 * {x})", "{x}.floor_()", "{x}.detach().copy_({y})", "{x}.detach_()",
                   "{x}.masked_fill_({x} > 0.1, 0.5)", "{x}.clamp_(-0.5, 0.5)", "{x}.round_()", "{x}.add_(1, alpha=2)", "{x}.where({x} > 0, {y}).mul_(2)"]
        options += ["{x}.masked_fill_({x}.detach() > 0, {y}.sum())", "{x}.clamp_max_(0.2)", "{x}.reciprocal_()", "torch.sin({y}, out={x})", "torch.add({y}, 1, out={x})", "torch.mul({y}, {y}, out={x})", "{x}.nan_to_num_()"]
        options += ["{x}.neg_()"]
        if not d:
            pass
        else:
            options += ["{x}[0] = {y}", "{x}[0] = 2.0", "{x}[..., 1:] *= 2", "{x}[1:] = {y}", "{x}[0] += {y}", *(["{x}[[0]] = {y}.sum()", "{x}[[0]] += 1"] if 0 not in self.scope[x].stride() else []), "{x}[-1] = {x}[0]", "{x}[0] = {y}.sum()", "{x}[:1].zero_()",
                         "{x}.cumsum_(0)", "{x}[0].copy_({x}[-1])", "{x}.cumprod_(0)",
                        "{x}.narrow(0, 0, 1).fill_(0.75)", "{x}.unbind(0)[0].mul_(2)", "{x}.select(0, 0).mul_({x}.select(0, -1))", "{x}[::2] = 0.5", "{x}[{x} > 0] = 0.1", "{x}[0:0] = 1.0"]
            options += ["{x}.index_fill_(0, torch.tensor([0]), 0.3)", "{x}.index_fill_(0, torch.tensor([0]), {y}.sum())", "{x}.index_add_(0, torch.tensor([0]), {x}[:1].clone())",
                        "{x}.index_copy_(0, torch.tensor([-1]) + {n}, {x}[:1].clone())", "{x}.scatter_(0, torch.zeros({x}[:1].shape, dtype=torch.int64), 0.7)", "{x}.scatter_(0, torch.zeros({x}[:1].shape, dtype=torch.int64), {x}[-1:].clone())",
                        "{x}.scatter_add_(0, torch.zeros({x}[:1].shape, dtype=torch.int64), {x}[-1:] * 2)", "{x}.index_put_((torch.tensor([0]),), {y}.sum())", "{x}.index_put_((torch.tensor([0, 0]),), {y}.sum(), accumulate=True)"]
        if d > 1:
            # the node of a leaf that is in use keeps the former shape in PyTorch
            options += ["{x}.t_()", "{x}.transpose_(0, 1)", "{x}.swapaxes_(0, 1)"] if not self.scope[x]._is_view() and not (self.scope[x].is_leaf and self.scope[x].requires_grad) else []
            options += ["{x}[:, 0] = {y}.sum()", "{x}.diagonal().mul_(2)", "{x}.T.mul_(2)", "{x}[0, 1] = 0.3"]
        options += ["{x}.unsqueeze_(0)", "{x}.squeeze_()", "{x}.squeeze_(0)", "{x}.resize_as_({x})", "{x}.as_strided_({s}, {t})", "{x}.resize_({s})", "{x}.unsqueeze_(-1)"] if self.rng.random() < 0.4 and not self.scope[x]._is_view() and not (self.scope[x].is_leaf and self.scope[x].requires_grad) else []
        return self.rng.choice(options).format(x=x, y=y, s=shape, t=tuple(self.scope[x].stride()), n=(*shape, 1)[0])

    def flags(self):
        x = self.pick(lambda t: t.requires_grad or not t._version)
        if not self.scope[x].is_inference() and self.scope[x]._version and not self.scope[x].requires_grad:  # views from before the write would belong to it
            return f"{x} = {x}.clone()"
        return self.rng.choice(["{x}.requires_grad_()", "{x}.requires_grad_()", "{x}.requires_grad_(False)", "{x}.requires_grad = True", "{x}.requires_grad = False", "{x}.detach_()", "{x}.detach_()", "{x} = {x}.detach()",
                                "{x}.retain_grad()", "{x}.retain_grad()", "{x}.retain_grad()", "del {x}" if len(self.tensors()) > 3 else "{x}.retain_grad()",
                                "{x} = {x}.detach().requires_grad_()", "{x} = {x}.clone()", "{new} = torch.tensor({x}.tolist(), dtype=torch.float64, requires_grad=True)", "{new} = {x}._base",
                                "{new} = {x}.clone().detach().requires_grad_()"]).format(x=x, y=self.like(x), new=self.fresh())

    def hooks(self):
        x = self.pick(lambda t: t.requires_grad)
        if self.scope[x]._is_view() and (not self.torch.is_grad_enabled() or self.scope[x]._version):  # PyTorch crashes where such a view has to be given a new history
            return self.mode_switch()
        self.handles += 1
        h = f"h{self.handles}"
        change = self.any("", "", "", ", lambda g: g * 2", ", lambda g: g + 1", ", lambda g: g.sum()", ", lambda g: 3")
        kept = self.any("", f"{h} = ")
        inside = self.any("", "", f", lambda g: [{x}.mul_(2)] and None", ", lambda g: g.mul_(2) if 0 not in g.stride() else None")
        old = [n for n in self.scope if re.fullmatch(r"h\d+", n)]
        options = [f"{kept}{x}.register_hook(noting('{h}'{change}))"] * 4 + [f"{kept}{x}.register_hook(noting('{h}'{inside}))"]
        options += [f"{kept}{x}.register_post_accumulate_grad_hook(noting('{h}'{self.any('', '', ', lambda t: None', ', lambda t: t.grad.mul_(2) and None', ', lambda t: 3')}))"] * 2
        options += [f"{kept}{x}.grad_fn.register_hook(noting('{h}'))", f"{kept}{x}.grad_fn.register_prehook(noting('{h}'))", f"{kept}{x}.grad_fn.register_prehook(noting('{h}', lambda gs: tuple(2 * g for g in gs)))",
                    f"{kept}{x}.grad_fn.register_hook(noting('{h}', lambda gs: tuple(None if g is None else 2 * g for g in gs)))"]
        options += [f"{self.rng.choice(old)}.remove()"] * 2 if old else []
        options += [f"{kept}{x}.register_hook(noting('{h}', lambda g: None if g.requires_grad else g.clone()))"]
        return self.rng.choice(options)

    def saved_hooks(self):
        pack, unpack = self.any(("lambda t: t", "lambda t: t"), ("noting('pack', lambda t: t)", "noting('unpack', lambda t: t)"), ("lambda t: t.clone()", "lambda t: t"), ("lambda t: t * 2", "lambda t: t / 2"),
                                ("lambda t: t.detach()", "lambda t: t"), ("lambda t: 3", "lambda t: t"), ("noting('pack', lambda t: t.detach().numpy().copy())", "lambda a: torch.tensor(a)"))
        inner = self.rng.choice([self.out_of_place, self.out_of_place, self.in_place, self.backward, self.gradient])()
        taken_apart = r"\[\[|gather|index_|sort|topk|> 0|scatter|cummax|cummin|median|max\(0|hypot|out=|prod|repeat_interleave|unique|create_graph"  # or saved in another order
        return f"with torch.autograd.graph.saved_tensors_hooks({pack}, {unpack}): {inner}" if not re.search(taken_apart, inner) else inner

    def options(self):
        "Arguments of backward and grad."
        out = ""
        if self.rng.random() < 0.5:
            out += ", retain_graph=True"
        if self.rng.random() < 0.2:
            out += ", create_graph=True"
        return out

    def start_for(self, x, alone=True, graph=False):
        t = self.scope[x]
        if t.numel() == 1 and self.rng.random() < 0.8:
            return self.any("", "", "torch.ones_like({x})").format(x=x)
        return self.rng.choice(["torch.ones_like({x})"] * 6 + ["{x}.detach().clone()", "{x}.detach() * 2", *(["torch.ones(5)", "torch.ones(1, dtype=torch.float64)", "{x}.detach().float()"] if alone else []), "",
                                "torch.ones_like({x}).expand({x}.shape)", "torch.ones((), dtype=torch.float64).expand({x}.shape)"] + ["{x}", "torch.full_like({x}, 2.0).requires_grad_()"] * (2 * graph)).format(x=x)

    def backward(self):
        x = self.pick(lambda t: t.requires_grad)
        if self.rng.random() < 0.12:
            y = self.pick(lambda t: t.requires_grad)
            start = self.any(f"[torch.ones_like({x}), torch.ones_like({y})]", "None", f"[None, torch.ones_like({y})]", f"[{self.start_for(x, False) or None}, {self.start_for(y, False) or None}]")
            return f"torch.autograd.backward([{x}, {y}], {start}{self.options()}{self.inputs()})"
        if self.scope[x].numel() > 1 and self.rng.random() < 0.4:
            return f"{x}.sum().backward({self.options().lstrip(', ')})"
        options = self.options()
        return f"{x}.backward({(self.start_for(x, graph='create' in options) + options + self.inputs()).lstrip(', ')})"

    def inputs(self):
        if self.rng.random() < 0.7:
            return ""
        names = [self.pick(lambda t: t.requires_grad) for _ in range(self.any(0, 1, 1, 1, 1, 2, 2))]
        return f", inputs=[{', '.join(names)}]" if len(names) != 1 or self.rng.random() < 0.7 else f", inputs={names[0]}"

    def gradient(self):
        x = self.pick(lambda t: t.requires_grad)
        names = [self.pick(lambda t: t.requires_grad) for _ in range(self.any(1, 1, 1, 2))]
        options = self.options()
        start = self.start_for(x, graph="create" in options)
        extra = ("" if not start else f", {start}" if self.rng.random() < 0.5 else f", grad_outputs={start}") + options
        extra += self.any("", ", allow_unused=True", ", allow_unused=True", ", materialize_grads=True", ", allow_unused=False") if self.rng.random() < 0.6 else ", allow_unused=True"
        target, outputs = f"[{', '.join(names)}]" if len(names) > 1 or self.rng.random() < 0.5 else names[0], x
        if self.scope[x].numel() > 1 and self.rng.random() < 0.3:
            outputs, extra = f"{x}.sum()", extra.replace(f", {start}", "").replace(f", grad_outputs={start}", "") if start else extra
        elif self.rng.random() < 0.1:
            y = self.pick(lambda t: t.requires_grad)
            outputs = f"[{x}, {y}]"
            extra = f", [{self.start_for(x, False) or None}, {self.start_for(y, False) or None}]" + (extra[extra.index(", allow"):] if ", allow" in extra else ", allow_unused=True")
        new = [self.fresh()]
        if len(names) > 1:
            new.append(next((n for n in NAMES if n not in self.scope and n not in new), "z"))
        return f"{', '.join(new)}{',' if len(new) == 1 else ''} = own(torch.autograd.grad({outputs}, {target}{extra}))"

    def dot_grad(self):
        x = self.pick(lambda t: t.is_leaf and t.grad is not None if self.rng.random() < 0.7 else t.requires_grad)
        y = self.like(x)
        return self.rng.choice(["{x}.grad = None", "{x}.grad = torch.ones_like({x})", *(["{x}.grad = {y}"] if not self.scope[y]._is_view() else []), "{x}.grad.mul_(2)", "{x}.grad.detach_()", "{new} = {x}.grad", "{new} = {x}.grad", "{x}.grad.requires_grad_()",
                                "{new} = {x}.grad * 2", "{x}.grad += 1", "del {x}.grad", "{x}.grad = {x}.detach().clone()", "{x}.grad = {x}", "{x}.grad = torch.ones(4)", "{x}.grad.data.mul_(2)", "{x}.grad = {x} * 2"]).format(x=x, y=y, new=self.fresh())

    def mode_switch(self):
        return self.any("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.set_grad_enabled(True)")

    def in_mode(self):
        head = self.any("torch.no_grad()", "torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.inference_mode()", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.inference_mode(False)",
                        "torch.no_grad(), torch.enable_grad()")
        kinds = [self.in_place, self.in_place, self.in_place, self.view, self.view, self.view, self.out_of_place, self.several, self.dot_grad]
        inner = self.rng.choice(kinds if "inference" in head else [*kinds, self.flags, self.backward, self.gradient])()
        return f"with {head}: {inner}"

    def copying(self):
        "Copies of leaves; pickles of what does not lie within other memory, whose place in it is nobody's promise."
        x, y = (self.pick(lambda t: t.is_leaf and not t._is_view() and not t.is_inference()) for _ in range(2))
        if any(self.scope[n]._is_view() or self.scope[n].storage_offset() or self.scope[n]._backward_hooks for n in (x, y)):
            return self.view()
        new = [self.fresh()]
        new.append(next((n for n in NAMES if n not in self.scope and n not in new), "z"))
        return self.any(f"{new[0]} = copy.deepcopy({x})", f"{new[0]}, {new[1]} = copy.deepcopy([{x}, {y}])", f"{new[0]}, {new[1]} = copy.deepcopy([{x}, {x}.detach()[...]])", f"{new[0]} = copy.copy({x})", f"{new[0]} = pickle.loads(pickle.dumps({x}))")

    def checkpointed(self):
        x = self.pick(lambda t: t.requires_grad)
        function = self.any("lambda v: v.sin() * 2", "lambda v: v * v", "lambda v: v.view(-1)", "lambda v: v.exp().detach() * v", f"lambda v: v * {self.like(x)}")
        return f"{self.fresh()} = torch.utils.checkpoint.checkpoint({function}, {x}, use_reentrant={self.any('False', 'False', 'True')})"

    def optimised(self):
        x = self.pick(lambda t: t.is_leaf and t.requires_grad and t.grad is not None)
        optimiser = self.any(f"torch.optim.SGD([{x}], lr=0.1)", f"torch.optim.SGD([{x}], lr=0.1, momentum=0.9)", f"torch.optim.Adam([{x}], lr=0.1)")
        return f"{optimiser}.{self.any('step()', 'step()', 'zero_grad()', 'zero_grad(set_to_none=False)')}"

    def indexed(self):
        "An index that may be overwritten."
        x = self.pick(lambda t: t.dim() and len(t))
        if "idx" not in self.scope or not self.scope[x].dim():
            return "idx = torch.tensor([0, 0])"
        return self.any("idx = torch.tensor([0])", "idx.zero_()", "idx.add_(0)", f"{self.fresh()} = {x}[idx]", f"{self.fresh()} = {x}.index_select(0, idx)", f"{self.fresh()} = {x}.index_add(0, idx, {x}[idx].detach())")

    def masked(self):
        "A mask that may be overwritten."
        x = self.pick(lambda t: t.dtype.is_floating_point)
        if "mask" not in self.scope or self.scope["mask"].shape != self.scope[x].shape:
            return f"mask = {x}.detach() > 0"
        return self.any("mask.logical_not_()", "mask.fill_(True)", f"{self.fresh()} = torch.where(mask, {x}, 0.5)", f"{self.fresh()} = {x}.masked_fill(mask, 0.5)", f"{self.fresh()} = {x}[mask]")

    KINDS = dict(leaf=4, view=16, several=5, out_of_place=18, in_place=22, flags=9, hooks=5, saved_hooks=2, backward=10, gradient=7, dot_grad=4, mode_switch=1, in_mode=14,
                 copying=2, checkpointed=2, optimised=2, indexed=3, masked=2)

    def statement(self):
        "The next one; to look at a view that lost its history, on the way to it, is an error."
        for _ in range(20):
            kind = self.rng.choices(list(self.KINDS), list(self.KINDS.values()))[0]
            try:
                return getattr(self, kind)()
            except RuntimeError:
                pass
        return self.leaf()


# Running -------------------------------------------------------------------------------------------------------


class Run:
    "A program under one library: `scope` holds its variables."

    def __init__(self, lib):
        self.lib = lib
        self.scope, self.born, self.inference = {"torch": lib, "nn": lib.nn, "F": lib.nn.functional, "np": np, "copy": copy, "pickle": pickle}, {}, False
        for prelude in PRELUDES:
            exec(_compiled(prelude), self.scope)

    def note_births(self, line):
        "Gradients may have been summed in place: their versions count from when they got a name."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in re.match(r"^((?:\w+, ?)*\w*) = |", line.rpartition(": ")[2]).group(0).replace("=", "").replace(",", " ").split():
                t = self.scope.get(name)
                if isinstance(t, self.lib.Tensor) and not t.is_inference():
                    self.born[name] = t, t._version

    def step(self, code, line):
        "Run one statement; its error (or None) and its warnings."
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                exec(code, self.scope)
                error = None
            except Exception as e:
                error = e
                e.__traceback__ = None
        if "grad" in line:
            self.note_births(line)
        return error, sorted({(w.category.__name__, str(w.message)[:50]) for w in caught if not re.search("reference cycle|attribute of a Tensor that is not a leaf|encountered in|`torch.jit", str(w.message))})

    def grown(self, name):
        "Whether a tensor shares memory with a gradient that may have been summed in place."
        place = self.scope[name].untyped_storage().data_ptr()
        return any(b.untyped_storage().data_ptr() == place for b, _ in self.born.values())

    def taken_for_leaf(self):
        "Whether there is a view that PyTorch takes for a leaf until somebody asks for its history, which it has since its base was written to."
        return any(t._is_view() and t.grad_fn is not None for name, t in self.scope.items() if name in NAMES and isinstance(t, self.lib.Tensor))

    def facts(self):
        "What can be seen of each variable, as {(name, fact): value}."
        out = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in NAMES:
                if name not in self.scope:
                    continue
                t = self.scope[name]
                if isinstance(t, self.lib.Tensor):
                    self.look(name, t, out)
                else:
                    out[name, "class"] = type(t).__name__
            for n, entry in enumerate(self.scope["log"]):
                out["log", n] = entry
        return out

    def look(self, name, t, out):
        for fact, ask in FACTS.items():
            try:
                out[name, fact] = ask(t)
            except Exception as e:
                out[name, fact] = words(e)
        version = next((v for b, v in self.born.values() if b is t), None)
        if version is not None and isinstance(out[name, "version"], int):
            out[name, "version"] -= version
        if version is not None:
            del out[name, "grad_fn"], out[name, "next"]
        if not t.numel():
            out[name, "offset"] = 0
        try:
            base = t._base
        except RuntimeError:
            return
        known = next((v for b, v in self.born.values() if b is base), None)
        if base is not None and known is not None and isinstance(out[name, "version"], int):
            out[name, "version"] -= known
        if base is None or known is not None:
            del out[name, "stride"]
        out[name, "_base"] = None if base is None else [n for n in NAMES if self.scope.get(n) is base] or "another"
        try:
            g = t.grad
        except Exception as e:
            out[name, "grad"] = words(e)
            return
        out[name, "grad"] = None if g is None else "a tensor"
        if g is not None:
            out[name, "grad.numbers"] = numbers(g)
            try:
                out[name, "grad.flags"] = g.requires_grad, g.is_leaf, str(g.dtype), g.grad_fn is None
            except RuntimeError as e:
                out[name, "grad.flags"] = words(e)


def fn_name(t):
    return None if t.grad_fn is None else t.grad_fn.name()


def numbers(t):
    try:
        t.tolist()
    except RuntimeError:  # PyTorch has zeros without memory
        return np.zeros(tuple(t.shape))
    return np.array(t.detach().tolist(), dtype=np.complex128 if t.is_complex() else np.float64)


FACTS = dict(shape=lambda t: tuple(t.shape), dtype=lambda t: str(t.dtype), stride=lambda t: t.numel() and tuple(s for s, n in zip(t.stride(), t.shape) if n > 1), requires_grad=lambda t: t.requires_grad, is_leaf=lambda t: t.is_leaf, grad_fn=fn_name, retains_grad=lambda t: t.retains_grad,
             is_view=lambda t: t._is_view(), output_nr=lambda t: t.output_nr, version=lambda t: t._version, inference=lambda t: t.is_inference(), offset=lambda t: t.storage_offset(), numbers=numbers,
             next=lambda t: None if t.grad_fn is None else [n is not None for n, i in t.grad_fn.next_functions])


def words(error):
    "An error as its type and the recognisable part of its message."
    text = str(error).strip()
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"dimension \d+ with size 0", "a dimension with size 0", text)  # PyTorch counts an Ellipsis
    return f"{type(error).__name__}: {text[:WORDS]}"


WORDS = 50
STALE = re.compile("is a view and its base or another view|and its base or another view of its base has been modified")  # of several things wrong at once, either may be reported


def alike(e, f):
    "Whether two values of a fact agree: numbers closely, everything else exactly."
    if isinstance(e, np.ndarray) and isinstance(f, np.ndarray):
        return e.shape == f.shape and np.allclose(e, f, rtol=RTOL, atol=ATOL, equal_nan=True)
    if isinstance(e, np.ndarray) or isinstance(f, np.ndarray):
        return False
    if isinstance(e, (tuple, list)) and type(e) is type(f):
        return len(e) == len(f) and all(map(alike, e, f))
    if isinstance(e, float) and isinstance(f, float):
        return e == f or (e != e and f != f) or abs(e - f) <= ATOL + RTOL * abs(e)
    return type(e) is type(f) and e == f


@functools.cache
def _compiled(prelude):
    return compile(prelude, "<prelude>", "exec")


PRELUDES = [PRELUDE]  # what programs are run after; who writes others may add to it


class Program:
    "Statements, and whether one looks at all variables after each of them, or at the end only (to look at a view may renew its history)."

    def __init__(self, lines, watched):
        self.lines, self.watched = lines, watched


class Difference:
    "Where two runs differ: after statement number `line`, in `fact`."

    def __init__(self, line, fact, expected, found):
        self.line, self.fact, self.expected, self.found = line, fact, expected, found

    @property
    def kind(self):
        return self.fact if isinstance(self.fact, str) else self.fact[1] if isinstance(self.fact[1], str) else "log"

    def __str__(self):
        return f"{self.fact}:\n  PyTorch: {self.expected}\n  ours:    {self.found}"


class Unheeded(Exception):
    "PyTorch takes a view for a leaf until somebody asks for its history: the program does not differ when one asks after each statement."


class Stop(Exception):
    "PyTorch has written to an inference tensor before it refused to, taken a view for the leaf that it was once, or broken down: from here on nothing can be compared."


def _laid_out(runs, name):
    "Whether what a tensor is a view of lies in memory in the same way under both libraries; the layout of a result is nobody's promise."
    bases = [t._base if t._is_view() else t for t in (r.scope[name] for r in runs)]
    return tuple(bases[0].stride()) == tuple(bases[1].stride())


def _compare(n, runs):
    facts = [r.facts() for r in runs]
    for r, found in zip(runs, facts):
        r.inference = r.inference or any(v is True for (name, fact), v in found.items() if fact == "inference")
    for r, other in (facts, facts[::-1]):  # the layout of a result is nobody's promise, and with it whether it shares a gradient's memory
        for key in [k for k in r if k not in other and k[1] == "stride"]:
            del r[key]
    if facts[0].keys() != facts[1].keys():
        return Difference(n, "variables", sorted(map(str, facts[0].keys() - facts[1].keys())), sorted(map(str, facts[1].keys() - facts[0].keys())))
    for key, e in facts[0].items():
        if not alike(e, facts[1][key]):
            if key[1] in ("stride", "offset") and not _laid_out(runs, key[0]):
                continue
            if key[1] == "version" and (runs[0].inference or runs[0].grown(key[0])):
                continue
            return Difference(n, key, e, facts[1][key])


def _step(n, runs, code, line):
    (e, ew), (f, fw) = runs[0].step(code, line), runs[1].step(code, line)
    if e is not None and f is None and "a leaf Variable that requires grad" in str(e) and runs[0].taken_for_leaf():
        raise Stop
    if e is not None and "INTERNAL ASSERT" in str(e):
        raise Stop
    if "storage that is not resizable" in str(f):  # what we refuse: memory that grows under other tensors
        raise Stop
    if (e is None) != (f is None) or e is not None and not words(f).startswith(words(e)) and not STALE.search(str(f)) and not STALE.search(str(e)):
        return Difference(n, "error", repr(e)[:600], repr(f)[:600])
    if e is not None and "to inference tensor outside" in str(e):
        raise Stop
    if ew != fw:
        return Difference(n, "warnings", ew, fw)


def difference(program, ours, torch, write=None, rng=None, length=0):
    "Where the runs of a program differ first, or None. With `write`, a function from PyTorch's scope to a statement, the program is written meanwhile."
    runs = Run(torch), Run(ours)
    with every_warning(torch, ours):
        try:
            for n in range(length or len(program.lines)):
                if write is not None:
                    program.lines.append(write(runs[0].scope))
                try:
                    code = compile(program.lines[n], "<program>", "exec")
                except SyntaxError:
                    return None
                found = _step(n, runs, code, program.lines[n]) or (_compare(n, runs) if program.watched else None)
                if found:
                    if found.fact == "error" and not program.watched and difference(Program(program.lines[:n + 1], True), ours, torch) is None:
                        raise Unheeded
                    return found
            found = _compare(len(program.lines) - 1, runs)
            # a view that nobody has looked at since its base was written to starts from what the base is when somebody does
            if found and found.kind == "next" and not program.watched and difference(Program(program.lines, True), ours, torch) is None:
                raise Unheeded
            return found
        except (Stop, Unheeded):
            return None
        finally:
            for lib in (torch, ours):
                lib.set_grad_enabled(True)


def write(seed, ours, torch, Writer=Writer):
    "A program for this seed, and where it differs, or None."
    rng = random.Random(seed)
    program = Program([], rng.random() < 0.5)
    length = rng.randrange(4, 16)
    made = []

    def next_statement(scope):
        if not made:
            made.append(Writer(rng, scope, torch))
        writer = made[0]
        if len(program.lines) < 2:
            return writer.leaf() if program.lines else writer.leaf().replace("64)", "64, requires_grad=True)")
        if not writer.tensors():
            return writer.leaf()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return writer.statement()

    return program, difference(program, ours, torch, next_statement, rng, length)


def written_by(Writer, prelude):
    "`write` with another writer, whose programs need more names."
    PRELUDES.append(prelude)
    return functools.partial(write, Writer=Writer)


# Making a program smaller --------------------------------------------------------------------------------------

SIMPLER = [(r"^with [^:]*: ", ""), (r", retain_graph=True", ""), (r", create_graph=True", ""), (r", allow_unused=\w+", ""), (r", materialize_grads=True", ""), (r", inputs=\[[^\]]*\]", ""), (r", inputs=\w+", ""), (r", alpha=[-\d.]+", ""),
           (r"^h\d+ = ", ""), (r", lambda g: [^)]*\)?\)\)$", "))"), (r"noting\('h\d+'\)", "lambda *g: None"), (r"\.view\(-1\)|\.reshape\(-1\)|\.flatten\(\)|\[None\]|\.contiguous\(\)|\.clone\(\)", ""), (r", value=[\d.]+", ""), (r"torch\.enable_grad\(\)", "torch.no_grad()"),
           (r"tensor\(\[\[.*\]\]", "tensor([[1.0, 2.0], [3.0, 4.0]]"), (r"tensor\(\[.*\]", "tensor([1.0, 2.0]"), (r"tensor\([-\d.\[\], ]+,", "tensor(1.0,"), (r"= (\w)\.\w+\(.*\)$", r"= \1 * 2"), (r"^(\w)\.\w+_\(.*\)$", r"\1.mul_(2)"),
           (r"= (\w)\.\w+\(.*\)$", r"= \1.view(-1)"), (r"= (\w)\.\w+\(.*\)(\[.*\])?$", r"= \1[0]"), (r"torch\.ones_like\((\w)\)", r"\1.detach()")]


def shrink(program, ours, torch, seconds=20.0):
    "A smaller program that still differs in the same kind of fact, and where."
    began = time.time()
    found = difference(program, ours, torch)
    if found is None:
        return program, None
    kind = found.kind

    def still(lines, watched):
        if time.time() - began > seconds:
            return None
        p = Program(lines, watched)
        try:
            d = difference(p, ours, torch)
        except Exception:
            return None
        return (Program(lines[:d.line + 1], watched), d) if d is not None and d.kind == kind else None

    best = still(program.lines[:found.line + 1], program.watched) or (program, found)
    changed = True
    while changed:
        changed = False
        if best[0].watched:
            better = still(best[0].lines, False)
            if better and better[1].line <= best[1].line:
                best, changed = better, True
        n = len(best[0].lines) - 1
        while n >= 0:
            lines = best[0].lines
            better = still(lines[:n] + lines[n + 1:], best[0].watched)
            if better:
                best, changed = better, True
            n = min(n, len(best[0].lines)) - 1
        for n in range(len(best[0].lines) - 1, -1, -1):
            for pattern, new in SIMPLER:
                if n >= len(best[0].lines):
                    break
                line = best[0].lines[n]
                simpler = re.sub(pattern, new, line, count=1)
                if simpler != line and len(simpler) <= len(line):
                    better = still([*best[0].lines[:n], simpler, *best[0].lines[n + 1:]], best[0].watched)
                    if better and len("".join(better[0].lines)) < len("".join(best[0].lines)):
                        best, changed = better, True
    return best


def text(program, found=None, seed=None):
    "A program as source."
    head = [] if seed is None else [f"# seed {seed}" + (", looked at after each statement" if program.watched else "")]
    used = "\n".join(program.lines)
    before = [b for prelude in PRELUDES for b in prelude.split("\n\n")]
    needed = [before[0], before[1], before[2]] if "noting" in used else []
    needed += [b for b in before[3:] if (m := re.match(r"(?:class|def) (\w+)", b)) is None or m.group(1) in used]
    return "\n".join([*head, *needed, *program.lines]) + ("" if found is None else f"\n# differs in {found}")


def main(write=write):
    import torch

    import autograd_nb as ours

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: from the clock)")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--show", type=int, default=20, help="how many differences to shrink and print")
    parser.add_argument("--more", action="store_true", help="also statements in which the libraries are known to differ")
    parser.add_argument("--raw", action="store_true", help="print programs as they are, not made smaller")
    options = parser.parse_args()
    Writer.more = options.more
    seed = int(time.time()) % 10**6 * 1000 if options.seed is None else options.seed
    print(f"seeds from {seed}", flush=True)
    began, differ, n, printed = time.time(), 0, 0, set()
    for n in range(options.count):
        program, found = write(seed + n, ours, torch)
        if found is not None:
            differ += 1
            if len(printed) < options.show:
                small, where = (program, found) if options.raw else shrink(program, ours, torch)
                if where is None:
                    print(f"# seed {seed + n}: not repeated\n{text(program, found)}\n")
                    continue
                key = where.kind, re.sub(r"\b[a-z]\b", "v", small.lines[where.line])
                if key not in printed:
                    printed.add(key)
                    print(text(small, where, seed + n), "\n", flush=True)
        if time.time() - began > options.seconds:
            break
    print(f"{differ} of {n + 1} programs differ ({time.time() - began:.0f} s)")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
