"""Random programs of all that an engine can be asked at once: transforms, custom functions, checkpoints, forward mode, optimisers, `out=`, new memory behind a tensor, shapes changed in place, edges of graphs.

They are written, run, compared and made smaller as those of `_random_programs.py`, whose statements they contain. As a script: `python tests/_wide_programs.py --count 20000`."""

import re
import sys

import _random_programs
from _random_programs import NAMES, Writer, overlaps

PRELUDE = '''
F = torch.nn.functional
forward_ad = torch.autograd.forward_ad
graph = torch.autograd.graph
checkpoint = torch.utils.checkpoint.checkpoint

class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g): return ctx.saved_tensors[0].cos() * g

class Marked(torch.autograd.Function):
    "A result with a gradient and one without; gradients that are missing are None."
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        places = x > 0
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return x * 3, places, x + 1
    @staticmethod
    def backward(ctx, g, h, k):
        log.append(('Marked', g is None, h is None, k is None))
        places, = ctx.saved_tensors
        return (0 if g is None else 3 * g) + (0 if k is None else places * k)

class Result(torch.autograd.Function):
    "Saves its result."
    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out
    @staticmethod
    def backward(ctx, g): return g * ctx.saved_tensors[0]

class SetUp(torch.autograd.Function):
    "In two steps, with rules for transforms."
    generate_vmap_rule = True
    @staticmethod
    def forward(x, y): return x * y, x - y
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h, g * x - h
    @staticmethod
    def jvp(ctx, s, t):
        x, y = ctx.saved_tensors
        return s * y + x * t, s - t

class Both(torch.autograd.Function):
    "Writes to its first input and returns both."
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        return x, y
    @staticmethod
    def backward(ctx, g, h): return g, g + h

class Nested(torch.autograd.Function):
    "A pass within forward, and one within backward."
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.out = (ctx.x ** 2).sin()
        return ctx.out.detach()
    @staticmethod
    def backward(ctx, g):
        return torch.autograd.grad(ctx.out, ctx.x, g, retain_graph=True)[0]

class Parts(torch.autograd.Function):
    "Two views of its input."
    @staticmethod
    def forward(ctx, x): return x.view(-1), x[None]
    @staticmethod
    def backward(ctx, g, h): return g.view(h.shape[1:]) + h[0]

def gradients(values):
    "Values in memory of their own, whose nodes are nobody's promise."
    values = values if isinstance(values, (list, tuple)) else [values]
    values = [v for w in values for v in (w if isinstance(w, (list, tuple)) else [w])]
    return [v.contiguous() * 1 if isinstance(v, torch.Tensor) else v for v in values]
'''.strip()


class Wide(Writer):
    "Also these kinds of statements."

    def pairs(self):
        x = self.pick(lambda t: t.dtype.is_floating_point)
        return x, self.like(x)

    def news(self, n):
        names = [self.fresh()]
        while len(names) < n:
            names.append(next((v for v in NAMES if v not in self.scope and v not in names), "z"))
        return names

    def function(self, y):
        "A function of one tensor, which may capture a variable."
        return self.any("lambda v: (v * v).sum()", "lambda v: v.sin() * 2", f"lambda v: v * {y}", f"lambda v: (v * {y}.detach()).sum()", "lambda v: v.clone().mul_(v)", "lambda v: v.detach() * v", "lambda v: v.view(-1)", "lambda v: v.exp().sum()",
                        "lambda v: torch.stack([v, v * 2])", "lambda v: v.view(-1)[0] * v", "lambda v: v.sum() ** 2", "lambda v: v.view(-1).clone().add_(v.view(-1))", "lambda v: v.new_zeros(v.shape).copy_(v) * 3", "lambda v: v.masked_fill(v > 0, 0.5)",
                        "lambda v: torch.where(v > 0, v, 0.0)", "lambda v: v.softmax(0).sum()", "lambda v: SetUp.apply(v, v)[0]", "lambda v: v.cumsum(0)", "lambda v: v.relu().mean()", "lambda v: torch.zeros_like(v)", "lambda v: v.prod()")

    def transform(self):
        x, y = self.pairs()
        f, seen = self.function(y), self.any("", "", ".detach()")
        scalar = self.any("lambda v: (v * v).sum()", f"lambda v: (v * {y}).sum()", "lambda v: v.sin().sum()", "lambda v: (v.detach() * v).sum()", "lambda v: v.clone().mul_(v).sum()", "lambda v: (v ** 3).mean()", "lambda v: v.exp().sum().sin()")
        call = self.any(f"torch.func.grad({scalar})({x}{seen})", f"torch.func.grad_and_value({scalar})({x}{seen})", f"torch.func.vjp({f}, {x}{seen})[0]", f"(lambda out, back: back(torch.ones_like(out)))(*torch.func.vjp({f}, {x}{seen}))",
                        f"torch.func.jvp({f}, ({x}{seen},), ({x}.detach() * 2,))", f"torch.vmap({f})({x}{seen})", f"torch.vmap({f}, in_dims=-1, out_dims=-1)({x}{seen})", f"torch.func.jacrev({f})({x}.detach()).detach()", f"torch.func.jacfwd({f})({x}.detach()).detach()",
                        f"torch.func.hessian({scalar})({x}.detach()).detach()", f"torch.vmap(torch.func.grad({scalar}))({x}{seen})", f"torch.func.grad(lambda v: torch.func.grad({scalar})(v).sum())({x}{seen})", f"torch.vmap(lambda v, w: v * w)({x}{seen}, {x})",
                        f"torch.func.functionalize({f.replace('SetUp', 'Pair')})({x}{seen})")
        return f"{self.fresh()}, *_ = gradients({call})"

    def functional(self):
        x, y = self.pairs()
        f = self.function(y)
        scalar = self.any("lambda v: (v * v).sum()", f"lambda v: (v * {y}).sum()", "lambda v: v.sin().sum()")
        graph = self.any("", "", ", create_graph=True", ", strict=True", ", create_graph=True, strict=True")
        call = self.any(f"jacobian({f}, {x}{graph})", f"hessian({scalar}, {x}{graph})", f"vhp({scalar}, {x}, {x}.detach(){graph})", f"hvp({scalar}, {x}, {x}.detach(){graph})", f"vjp({scalar}, {x}{graph})", f"jvp({f}, {x}, {x}.detach(){graph})", f"vjp({f}, {x}, {x}{graph})",
                        f"jacobian({f}, {x}, vectorize=True)")
        return f"{self.fresh()}, *_ = gradients(torch.autograd.functional.{call})"

    def forward_mode(self):
        x, y = self.pairs()
        tangent = self.any(f"{x}.detach()", f"{x}.detach()", f"torch.ones_like({x})", "torch.ones(7)")
        f = self.function(y)
        call = self.any(f"({f})(forward_ad.make_dual({x}, {tangent}))", f"forward_ad.make_dual({x}, {tangent})", f"forward_ad.make_dual({x}.clone(), {tangent}).mul_({y})", f"{y} * forward_ad.make_dual({x}, {tangent})", f"{x}.detach().clone().copy_(forward_ad.make_dual({x}, {tangent}))",
                        f"forward_ad.make_dual({x}, {tangent}).detach()", f"SetUp.apply(forward_ad.make_dual({x}, {tangent}), {x})[1]")
        return f"with forward_ad.dual_level(): {self.fresh()}, *_ = gradients(list(forward_ad.unpack_dual({call})))"

    def custom(self):
        x, y = self.pairs()
        two, three = self.news(2), self.news(3)
        return self.any(f"{two[0]} = Once.apply({x})", f"{', '.join(three)} = Marked.apply({x})", f"{two[0]} = Result.apply({x})", f"{', '.join(two)} = SetUp.apply({x}, {y})", f"{two[0]} = Nested.apply({x})", f"{', '.join(two)} = Parts.apply({x})",
                        *([f"{', '.join(two)} = Both.apply({x}, {y})", f"Both.apply({x}.view(-1), {y}.view(-1))"] if not self.tangled(x, y) and x != y else []), f"{two[0]} = Once.apply({x}.view(-1))", f"{two[0]}, _ = Pair.apply({x}, {x})")

    def set_data(self):
        x, y = self.pairs()
        if self.scope[x].is_inference() or self.scope[y].is_inference():
            return self.view()
        return self.any(f"{x}.data = {x}.detach().clone()", f"{x}.data = {x}.detach() * 2", f"{x}.data = {y}.detach().clone()", f"{x}.data = {x}.data.float()", f"{x}.data = {x}.data", f"{x}.data.fill_(0.25)", f"{x}.data.view(-1)[:1] = 2.0")

    def out(self):
        x, y = self.pairs()
        if overlaps(self.scope[x]) or self.scope[x].untyped_storage().data_ptr() == self.scope[y].untyped_storage().data_ptr():
            return self.view()  # what is left in memory that is read and written depends on the order
        target = self.any(x, x, f"{x}[0]", f"{x}.view(-1)", f"{x}[..., :1]", f"{x}.detach()", f"{x}.data", "torch.empty(0, dtype=torch.float64)", f"{x}.T" if self.scope[x].dim() == 2 else x, f"{x}.clone()")
        call = self.any(f"torch.mul({y}, 2, out={target})", f"torch.exp({y}, out={target})", f"torch.sum({y}, 0, out={target})", f"torch.cat([{y}, {y}], out={target})", f"torch.stack([{y}, {y}], out={target})", f"torch.cumsum({y}, 0, out={target})", f"torch.add({y}, {y}, alpha=2, out={target})",
                        f"torch.clamp({y}, max=0.3, out={target})", f"torch.where({y} > 0, {y}, {y}, out={target})", f"torch.matmul({y}, {y}, out={target})", f"torch.mean({y}, 0, out={target})", f"torch.neg({y}, out={target})", f"torch.addcmul({y}, {y}, {y}, out={target})")
        return self.any(f"with torch.no_grad(): {call}", f"with torch.no_grad(): {call}", call, f"with torch.no_grad(): {self.fresh()} = {call}")

    def reshaped_in_place(self):
        x = self.pick(lambda t: not (t.is_leaf and t.requires_grad))
        t = self.scope[x]
        if t.is_leaf and t.requires_grad or t.is_inference():
            return self.view()
        call = self.any(f"{x}.unsqueeze_(0)", f"{x}.unsqueeze_(-1)", f"{x}.squeeze_()", f"{x}.squeeze_(0)", f"{x}.t_()", f"{x}.transpose_(0, -1)", f"{x}.swapdims_(0, -1)", f"{x}.swapaxes_(-1, 0)")
        return self.any(f"with torch.no_grad(): {call}", call, f"{self.fresh()} = {call}")

    def deep_write(self):
        x, y = self.pairs()
        t = self.scope[x]
        if overlaps(t) or self.tangled(x, y):
            return self.view()
        head = self.rng.choice([".view(-1)", "[None]", "[...]", ".unsqueeze(-1)", *([".select(0, 0)", "[:1]", ".transpose(0, -1)", "[-1:]", ".narrow(0, 0, 1)", ".unbind(0)[0]", ".split(1)[0]"] if t.dim() else [])])
        more = self.any("", "[...]", "[None]", ".unsqueeze(0)", ".view_as({v})", ".detach()", ".squeeze()", "[..., :1]", ".expand_as({v})", "[0]").replace("{v}", f"{x}{head}")
        return f"{x}{head}{more}" + self.any(".mul_(2)", ".add_(1)", f".mul_({y}.sum())", f".copy_({y}.sum())", ".zero_()", ".exp_()", f".add_({y}.sum(), alpha=2)", ".requires_grad_()", ".detach_()", ".clamp_(max=0.3)", "[0] = 0.125", ".fill_(0.5)", f".masked_fill_(torch.tensor(True), {y}.sum())")

    def wider_hooks(self):
        x, y = (self.pick(lambda t: t.requires_grad and not t.is_leaf) for _ in range(2))
        if x == y or any(not self.holds(lambda t: not t.is_leaf and not (t._is_view() and (not self.torch.is_grad_enabled() or t._version)), n) for n in (x, y)):
            return self.mode_switch()
        self.handles += 1
        h = f"h{self.handles}"
        return self.any(f"{h} = graph.register_multi_grad_hook(({x}, {y}), noting('{h}'))", f"{h} = graph.register_multi_grad_hook(({x}, {y}), noting('{h}'), mode='any')", f"{h} = {x}.grad_fn.next_functions[0][0].register_hook(noting('{h}'))",
                        f"{h} = {x}.grad_fn.next_functions[0][0].register_prehook(noting('{h}'))", f"{h} = {x}.register_hook(lambda g: log.append(seen(g)) or {h}.remove())", f"{h} = {x}.register_hook(lambda g: {y}.detach().add_(1) and None)", f"{h} = {x}.register_hook(lambda g: {x}.detach().mul_(2))",
                        f"{h} = {x}.register_hook(lambda g: g.clone().mul_(2))", f"{h} = {x}.register_hook(lambda g: {x}.register_hook(noting('{h}')) and None)", f"{h} = {x}.register_hook(lambda g: torch.autograd.grad((g.detach().requires_grad_() * 2).sum(), {x}, allow_unused=True) and None)",
                        f"{h} = {x}.register_hook(lambda g: g * {y}.detach().sum())", f"{h} = {x}.register_post_accumulate_grad_hook(lambda t: t.detach().sub_(t.grad, alpha=0.1) and None)", f"{h} = {x}.register_post_accumulate_grad_hook(lambda t: setattr(t, 'grad', None))",
                        f"{h} = {x}.register_hook(noting('{h}', lambda g: g.float()))", f"{h} = {x}.register_hook(noting('{h}', lambda g: g[None]))", f"{h} = {x}.register_hook(lambda g: torch.is_grad_enabled() and None or g.detach())")

    def edges(self):
        x, y = (self.pick(lambda t: t.requires_grad) for _ in range(2))
        if self.scope[x]._is_view() or self.scope[y]._is_view() or x == y:
            return self.gradient()
        e = "graph.get_gradient_edge"
        return self.any(f"{self.fresh()}, = own(torch.autograd.grad({x}.sum(), {e}({y}), allow_unused=True, retain_graph=True))", f"torch.autograd.backward({e}({x}), torch.ones_like({x}))", f"torch.autograd.backward({x}.sum(), inputs=[{e}({y})], retain_graph=True)",
                        f"{self.fresh()}, = own(torch.autograd.grad([{e}({x})], {y}, [torch.ones_like({x})], allow_unused=True))", f"{self.fresh()}, = own(torch.autograd.grad({x}, {y}, torch.stack([torch.ones_like({x}), {x}.detach()]), is_grads_batched=True, allow_unused=True, retain_graph=True))",
                        f"{self.fresh()} = {x}.grad_fn.metadata == {{}}", f"{self.fresh()} = [type(n).__name__ for n, i in {x}.grad_fn.next_functions if n is not None]", f"{x}.sum().backward(retain_graph=True); {x}.sum().backward()")

    def mutation(self):
        x, y = (self.pick(lambda t: t.requires_grad) for _ in range(2))
        f = self.any(f"{x} * {y}", f"({x} * {x}).sin()", f"{x}.exp() * {y}.sum()", f"Twice.apply({x})")
        return f"with graph.allow_mutation_on_saved_tensors(): q = {f}; {x}.detach().mul_(2); {self.any('q.sum().backward()', f'r = torch.autograd.grad(q.sum(), {x}, allow_unused=True)', 'q.mul_(q)', f'{y}.detach().zero_(); q.sum().backward()')}"

    def wider_checkpoint(self):
        x, y = self.pairs()
        mode = f"use_reentrant={self.any('False', 'False', 'True')}"
        f = self.function(y)
        return self.any(f"{self.fresh()} = checkpoint({f}, {x}, {mode})", f"{', '.join(self.news(2))} = checkpoint(lambda v, w: (v * w, v + w), {x}, {y}, {mode})", f"{self.fresh()} = checkpoint(lambda v: checkpoint({f}, v, use_reentrant=False) * 2, {x}, {mode})",
                        f"{self.fresh()} = checkpoint(lambda v: v.clone().mul_(2).sin(), {x}, {mode})", f"{self.fresh()} = checkpoint(lambda v: v.detach(), {x}, {mode})", f"{self.fresh()} = checkpoint(lambda v: v.mul_(2), {x}.clone(), {mode})", f"{self.fresh()} = checkpoint({f}, {x}, {mode}, preserve_rng_state=False, determinism_check='none')".replace(", determinism_check='none'", "" if "True" in mode else ", determinism_check='none'"),
                        f"{self.fresh()} = torch.utils.checkpoint.checkpoint_sequential([{f}, lambda v: v * 2, lambda v: v.sin()], 2, {x}, {mode})")

    def optimiser(self):
        known = [n for n in self.scope if re.fullmatch(r"opt\d+", n)]
        if known and self.rng.random() < 0.7:
            o = self.rng.choice(known)
            return self.any(f"{o}.step()", f"{o}.step()", f"{o}.step()", f"{o}.zero_grad()", f"{o}.zero_grad(set_to_none=False)", f"{o}.load_state_dict({o}.state_dict())", f"{o}.param_groups[0]['lr'] = 0.2")
        x, y = (self.pick(lambda t: t.is_leaf and t.requires_grad) for _ in range(2))
        kind = self.any("SGD", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Rprop", "Adamax", "ASGD")
        extra = self.any("", "", ", momentum=0.9", ", momentum=0.9, nesterov=True") if kind == "SGD" else self.any("", "", ", amsgrad=True") if kind in ("Adam", "AdamW") else ""
        extra += self.any("", "", "", ", maximize=True", ", foreach=True", ", foreach=False", ", weight_decay=0.1" if kind != "Rprop" else "", ", differentiable=True")
        return f"opt{len(known)} = torch.optim.{kind}([{x}{self.any('', f', {y}') if x != y else ''}], lr=0.1{extra})"

    def several_at_once(self):
        x, y = self.pairs()
        if overlaps(self.scope[x]) or overlaps(self.scope[y]) or self.tangled(x, y) or x == y:
            return self.view()
        return self.any(f"with torch.no_grad(): torch._foreach_add_([{x}, {y}], 1)", f"with torch.no_grad(): torch._foreach_mul_([{x}, {y}], 2.0)", f"torch._foreach_sub_([{x}, {y}], [{y}, {y}])", f"{', '.join(self.news(2))} = gradients(torch._foreach_mul([{x}, {x}], [{y}, {y}]))", f"torch._foreach_zero_([{x}])", f"torch._foreach_lerp_([{x}], [{y}], 0.5)",
                        f"{self.fresh()}, _ = gradients(torch._foreach_exp([{x}, {x}]))", f"torch._foreach_addcmul_([{x}], [{y}], [{y}], 0.5)", f"torch.nn.utils.clip_grad_norm_([{x}, {y}], 0.5)", f"torch.nn.utils.clip_grad_value_([{x}], 0.1)", f"{self.fresh()} = torch.nn.utils.parameters_to_vector([{x}, {y}])",
                        f"torch.nn.utils.vector_to_parameters(torch.zeros(12, dtype=torch.float64), [{x}, {y}])")

    def layers(self):
        x, y = self.pairs()
        d = self.scope[x].dim()
        options = ["F.gelu({x})", "F.softplus({x})", "F.leaky_relu({x}, 0.2)", "F.leaky_relu({x}, 0.2, inplace=True)", "F.elu({x})", "F.elu_({x})", "F.silu({x})", "F.silu({x}, inplace=True)", "F.hardtanh({x})", "F.mse_loss({x}, {y})", "F.l1_loss({x}, {y})", "F.smooth_l1_loss({x}, {y})", "F.dropout({x}, 0.0)",
                   "F.dropout({x}, 1.0)", "F.dropout({x}, 0.5, training=False)", "F.huber_loss({x}, {y}, reduction='none')", "F.logsigmoid({x})", "F.threshold({x}, 0.1, 0.2)", "F.relu6({x})", "F.binary_cross_entropy_with_logits({x}, {y}.detach().sigmoid())", "F.softsign({x})", "F.mish({x})", "F.celu({x})", "F.selu({x})",
                   "F.hardsigmoid({x})", "F.tanhshrink({x})"]
        if d:
            options += ["F.softmax({x}, -1)", "F.log_softmax({x}, 0)", "F.layer_norm({x}, {x}.shape[-1:])", "F.normalize({x}, dim=0)", "F.pad({x}, (1, 0))", "F.cosine_similarity({x}, {x}, dim=0)", "F.glu(torch.cat([{x}, {x}], -1))", "F.softmin({x}, 0)", "F.rms_norm({x}, {x}.shape[-1:])", "F.pad({x}, (-1, 1))"]
        if d == 2:
            options += ["F.linear({x}, {x})", "F.linear({x}, {x}, {x}[:, 0])", "F.cross_entropy({x}, torch.zeros(len({x}), dtype=torch.int64))", "F.nll_loss({x}, torch.zeros(len({x}), dtype=torch.int64), reduction='sum')", "F.embedding(torch.tensor([0, 1, 0]), {x})", "F.batch_norm({x}, None, None, training=True)",
                        "F.conv1d({x}[None], {x}[None, :, :1])", "F.avg_pool1d({x}[None], 1) * 1", "F.max_pool1d({x}[None], 1) * 1", "F.group_norm({x}[None], 1) * 1"]
        return f"{self.fresh()} = " + self.rng.choice(options).format(x=x, y=y)

    def fallback(self):
        "In other modes, and with errors on the way."
        inner = self.rng.choice([self.backward, self.gradient, self.out_of_place, self.in_place])()
        return f"with {self.any('torch.autograd.set_detect_anomaly(True)', 'graph.save_on_cpu()', 'torch.autograd.grad_mode.set_multithreading_enabled(False)', 'graph.disable_saved_tensors_hooks(chr(110))', 'torch.autograd.forward_ad._set_fwd_grad_enabled(False)', 'torch.autograd._force_original_view_tracking(True)', 'torch.autograd._unsafe_preserve_version_counter(' + self.pick() + ')')}: {inner}"

    KINDS = {**Writer.KINDS, "transform": 4, "functional": 2, "forward_mode": 3, "custom": 5, "set_data": 2, "out": 4, "reshaped_in_place": 3, "deep_write": 6, "wider_hooks": 5, "edges": 4, "mutation": 1, "wider_checkpoint": 3, "optimiser": 4,
             "several_at_once": 3, "layers": 4, "fallback": 3}


write = _random_programs.written_by(Wide, PRELUDE)


if __name__ == "__main__":
    sys.exit(_random_programs.main(write))
