"""Random programs with still more in them: custom functions of every shape, hooks of modules, modes as decorators, batched gradients, complex numbers, threads, copies, several views at once, optimisers with groups, what nodes saved, nested transforms.

They are written, run, compared and made smaller as those of `_wide_programs.py`, whose statements they contain. As a script: `python tests/_wider_programs.py --count 20000`; `--more` adds statements that PyTorch refuses, whose words are compared."""

import re
import sys

import _random_programs
from _random_programs import overlaps
from _wide_programs import Wide

PRELUDE = '''
import threading
nn = torch.nn

class Halved(torch.autograd.Function):
    "Writes to its input, in two steps, and saves its result."
    @staticmethod
    def forward(x): return x.mul_(0.5)
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g):
        log.append(('Halved', seen(ctx.saved_tensors)))
        return g * 0.5

class Several(torch.autograd.Function):
    "A number, a tensor without a gradient, one twice and None among the results; an argument that is none."
    @staticmethod
    def forward(ctx, x, n, y=None):
        out, whole = x * n, (x * 10).long()
        ctx.n, ctx.given = n, y is not None
        ctx.save_for_backward(x, None, out)
        return out, n, whole, None, x.detach() * 2
    @staticmethod
    def backward(ctx, g, *rest):
        log.append(('Several', [seen(r) for r in rest], [None if t is None else t.requires_grad for t in ctx.saved_tensors], ctx.needs_input_grad))
        return (g * ctx.n, None, None) if ctx.given else (g * ctx.n, None)

class Apart(torch.autograd.Function):
    "Saves something in between, and can be differentiated twice."
    @staticmethod
    def forward(ctx, x):
        e = x.exp()
        ctx.mark_non_differentiable(e)
        ctx.save_for_backward(x, e)
        return e * x, e
    @staticmethod
    def backward(ctx, g, h):
        x, e = ctx.saved_tensors
        log.append(('Apart', seen(h)))
        return g * (x.exp() * x + e)

class Wrong(torch.autograd.Function):
    "Returns what it must not."
    @staticmethod
    def forward(ctx, x, kind):
        ctx.kind = kind
        return x * 2
    @staticmethod
    def backward(ctx, g):
        kind = ctx.kind
        if kind == 0: return g
        if kind == 1: return g, g
        if kind == 2: return g[None].expand(3, *g.shape).reshape(-1), None
        if kind == 3: return 3.0, None
        if kind == 4: return g, None, g
        if kind == 5: return g.float(), None
        if kind == 6: raise ValueError('wrong')
        if kind == 7: return None, None
        return g.sum(), None

class Inside(torch.autograd.Function):
    "Transforms within backward."
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        d = torch.func.jvp(lambda v: v ** 3, (x,), (torch.ones_like(x),))[1]
        e = torch.func.grad(lambda v: (v ** 3).sum())(x)
        with forward_ad.dual_level():
            t = forward_ad.unpack_dual(forward_ad.make_dual(x.detach(), g.detach()) ** 3).tangent
        log.append(('Inside', seen(t), torch.is_grad_enabled()))
        return g * (d + e) / 2

def layer(n):
    "A linear layer of which every number is known."
    m = nn.Linear(n, 2, dtype=torch.float64)
    with torch.no_grad():
        m.weight.copy_(torch.arange(2.0 * n).view(2, n) / 10 - 0.1)
        m.bias.fill_(0.25)
    return m

def in_thread(f):
    "What `f()` returns, or raises, in another thread."
    found = []
    def run():
        try: found.append((f(), None))
        except Exception as e: found.append((None, e))
    t = threading.Thread(target=run)
    t.start()
    t.join()
    if found[0][1] is not None: raise found[0][1]
    return found[0][0]
'''.strip()


class Wider(Wide):
    "Also these kinds of statements."

    def custom_more(self):
        x, y = self.pairs()
        a, b = self.news(2)
        options = [f"Halved.apply({x})", f"{a} = Halved.apply({x}.clone())", f"{a}, _, {b}, *_ = Several.apply({x}, 2)", f"{a}, *_, {b} = Several.apply({x}, 3, {y})", f"{a}, {b} = Apart.apply({x})", f"{a} = Wrong.apply({x}, {self.rng.randrange(9)})",
                   f"Wrong.apply({x}, {self.rng.randrange(9)}).sum().backward()", f"{a} = Inside.apply({x})", f"{a} = Several.apply({x}, n=2)[0]", f"with torch.no_grad(): {a}, {b} = Apart.apply({x})", f"with torch.no_grad(): {a} = Same.apply({x})", f"with torch.no_grad(): {a} = Seen.apply({x})",
                   f"with torch.inference_mode(): {a} = Seen.apply({x})", f"with torch.no_grad(): {a}, {b} = Parts.apply({x})", f"{a} = Halved.apply({x}.view(-1))", f"{a} = Twice.apply({x}).grad_fn.saved_tensors[0]", f"{a} = Twice.apply(Twice.apply({x}))", f"{a} = Wrong.apply({x}.detach(), 0)"]
        return self.rng.choice(options)

    def layer_hooks(self):
        known = [n for n in self.scope if re.fullmatch(r"m\d+", n)]
        x = self.pick(lambda t: t.dim() == 2)
        n = self.scope[x].shape[-1] if self.scope[x].dim() else 2
        if not known or self.rng.random() < 0.2:
            return f"m{len(known)} = layer({n})"
        m = self.rng.choice(known)
        self.handles += 1
        h = f"h{self.handles}"
        def note(change=""):
            return f"lambda m, *given: log.append(('{h}', seen(given), torch.is_grad_enabled())){change}"
        return self.any(f"{self.fresh()} = {m}({x})", f"{self.fresh()} = {m}({x})", f"{self.fresh()} = {m}({x})", f"{h} = {m}.register_forward_pre_hook({note()})", f"{h} = {m}.register_forward_hook({note()})", f"{h} = {m}.register_full_backward_hook({note()})",
                        f"{h} = {m}.register_full_backward_pre_hook({note()})", f"{h} = {m}.register_forward_hook(lambda m, a, o: o * 2)", f"{h} = {m}.register_forward_pre_hook(lambda m, a: (a[0] * 2,))", f"{h} = {m}.register_full_backward_hook(lambda m, i, o: tuple(None if g is None else g * 2 for g in i))",
                        f"{h} = {m}.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,))", f"{m}.requires_grad_({self.any(True, False)})", f"{m}.zero_grad({self.any('', 'set_to_none=False')})", f"{self.fresh()} = {m}.weight", f"{self.fresh()} = {m}.bias.grad", f"{self.fresh()} = torch.func.functional_call({m}, dict(weight={x}.detach()[:1].expand(2, {n}) * 1), {x})",
                        f"{m}.weight.data.mul_(2)", f"{m}.weight.register_hook(noting('{h}'))", f"{m}.bias.register_post_accumulate_grad_hook(noting('{h}'))", f"{m}({x}).sum().backward()", f"log.append(seen({m}.weight.grad))", f"torch.nn.utils.clip_grad_norm_({m}.parameters(), 0.5)",
                        f"{self.fresh()} = copy.deepcopy({m})({x})", f"{self.fresh()} = checkpoint({m}, {x}, use_reentrant={self.any(True, False)})", f"{h} = {m}.register_full_backward_hook(lambda m, i, o: 3)", f"{h} = {m}.register_full_backward_hook(lambda m, i, o: ())", f"log.append([k for k, v in {m}.named_parameters() if v.grad is not None])",
                        f"{m}.weight = nn.Parameter({m}.weight.detach() * 2)", f"{m}.load_state_dict({m}.state_dict())", f"{m}.weight.grad = None", f"torch.optim.SGD({m}.parameters(), lr=0.1).step()")

    def decorated(self):
        x, y = self.pairs()
        mode = self.any("torch.no_grad()", "torch.enable_grad()", "torch.inference_mode()", "torch.inference_mode(False)", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.no_grad", "torch.inference_mode", "torch.enable_grad")
        f = self.any("lambda v: v * 2", "lambda v: v[...]", "lambda v: v.view(-1)", "lambda v: v", f"lambda v: v * {y}", "lambda v: v.clone().requires_grad_()", "lambda v: v.detach()", "lambda v: v.mul_(2)", "lambda v: v.unbind(0)[0]", "lambda v: torch.zeros(2, requires_grad=True).double()", "lambda v: 3 if torch.is_grad_enabled() else v.sum()")
        return f"{self.fresh()} = {mode}({f})({x})"

    def batched_gradient(self):
        x, y = (self.pick(lambda t: t.requires_grad) for _ in range(2))
        start = self.any(f"torch.stack([torch.ones_like({x}), {x}.detach()])", f"torch.ones(3, *{x}.shape, dtype=torch.float64)", f"torch.ones_like({x})", f"torch.eye(max(1, {x}.numel()), dtype=torch.float64).view(-1, *{x}.shape)", "torch.ones(2)", "None")
        extra = self.any("", ", allow_unused=True", ", materialize_grads=True", ", allow_unused=True, create_graph=True", ", retain_graph=True, allow_unused=True")
        return f"{self.fresh()}, *_ = own(torch.autograd.grad({x}, {self.any(y, f'[{y}]', f'[{x}, {y}]')}, {start}, is_grads_batched=True{extra}))"

    def complexes(self):
        x = self.pick(lambda t: t.is_complex() or t.dtype.is_floating_point)
        z = self.pick(lambda t: t.is_complex())
        if not self.scope[z].is_complex():
            new = self.fresh()
            return self.any(f"{new} = torch.complex({x}, {x} * 2)", f"{new} = {x} * 1j", f"{new} = torch.view_as_complex(torch.stack([{x}, {x}], -1))", f"{new} = torch.polar({x}, {x})", f"{new} = torch.tensor([1 + 2j, 0.5 - 1j], requires_grad=True)", f"{new} = {x}.to(torch.complex128)", f"{new} = {x} + 2j", f"{new} = torch.fft.fft({x})", f"{new} = torch.fft.rfft({x})")
        if overlaps(self.scope[z]): return self.view()
        a = self.fresh()
        return self.any(f"{a} = {z}.conj()", f"{a} = {z}.real", f"{a} = {z}.imag", f"{a} = {z}.abs()", f"{a} = {z}.angle()", f"{a} = torch.view_as_real({z})", f"{a} = {z} * {z}", f"{a} = {z}.conj() * {z}", f"{a} = {z}.exp()", f"{a} = ({z} * {z}.conj()).real", f"{z}.real.mul_(2)", f"{z}.imag.zero_()", f"{z}.mul_(1j)", f"{z}.mul_(2)",
                        f"{z}.real = {z}.imag", f"{a} = {z}.resolve_conj()", f"{a} = {z}.abs().sum().backward()", f"{z}.sum().backward()", f"{z}.backward(torch.ones_like({z}))", f"{z}.real.sum().backward()", f"{a} = {z}.sum()", f"{a} = {z} * {x}", f"{a} = {x} * {z}", f"{a} = {z} / 2", f"{a} = {z}.reciprocal()", f"{a} = {z}.sgn()", f"{a} = {z} ** 2",
                        f"{z}.add_({x})", f"{x}.add_({z})", f"{z}.copy_({x})", f"{x}.copy_({z}.real)", f"{a} = {z}.clone()", f"{a} = {z}.detach()", f"{a} = {z}.conj_physical()", f"{z}.conj_physical_()", f"torch.view_as_real({z}).mul_(2)", f"{z}.conj().mul_(2)", f"{a} = {z}[...]", f"{a} = {z}.cfloat()", f"{a}, = own(torch.autograd.grad({z}.abs().sum(), {x}, allow_unused=True, retain_graph=True))",
                        f"{a} = torch.fft.ifft({z})", f"{a} = {z}.is_conj()", f"{a} = {z}.mean()", f"{a} = {z}.cumsum(0)", f"{a} = torch.where({z}.real > 0, {z}, {z} * 2)", f"{a} = {z}.sqrt()", f"{a} = {z}.log()", f"{a} = torch.vdot({z}, {z})", f"{z}.sub_({z})", f"{a} = {z}.masked_fill({z}.real > 0, 0.5)", f"{a} = {z}.relu()", f"{a} = {z} > 0", f"{a} = {z}.requires_grad_()",
                        f"{z}.grad = None", f"{a} = {z}.grad", f"h = {z}.register_hook(noting('z'))", f"{a} = {z}.neg().conj()", f"{a} = {z}.tanh()", f"{a} = {z}.sin()", f"{a} = {z}.prod()", f"{z}.detach().mul_(2)", f"{a} = torch.stack([{z}, {z}])", f"{a} = {z} @ {z}", f"{a} = {z}.adjoint()", f"{a} = {z}.H", f"{a} = {z}.var()", f"{a} = {z}.square()", f"{a} = {z}.addcmul({z}, {z}, value=2)")

    def threaded(self):
        x, y = (self.pick(lambda t: t.requires_grad) for _ in range(2))
        inner = self.any(f"{x}.sum().backward()", f"{x}.sum().backward(retain_graph=True)", f"own(torch.autograd.grad({x}.sum(), {y}, allow_unused=True, retain_graph=True))[0]", f"{x} * 2", "torch.is_grad_enabled()", "torch.is_inference_mode_enabled()", f"{x}.detach().mul_(2)", f"({x} * 2).requires_grad", f"{x}.mul_(2)", f"[{x}[...], torch.set_grad_enabled(False)][0]", f"({x} * {y}).sum().backward()")
        head = self.any("", "", "", "with torch.no_grad(): ", "with torch.inference_mode(): ", "with graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t): ")
        return f"{head}{self.fresh()} = in_thread(lambda: {inner})"

    def copies(self):
        x = self.pick()
        if self.scope[x]._backward_hooks or self.scope[x].is_inference(): return self.view()
        a, b = self.news(2)
        return self.any(f"{a} = copy.deepcopy({x})", f"{a} = copy.copy({x})", f"{a} = pickle.loads(pickle.dumps({x}))", f"{a} = copy.deepcopy({x}.detach())", f"{a} = copy.deepcopy({x}.detach().clone().requires_grad_())", f"{a} = copy.deepcopy([{x}.detach(), {x}.detach()])[1]", f"{a} = nn.Parameter({x})", f"{a} = nn.Parameter({x}.detach(), requires_grad=False)", f"{a} = copy.deepcopy(nn.Parameter({x}.detach()))",
                        f"{a} = torch.empty_like({x}, requires_grad=True).detach().zero_()", f"{a} = torch.as_tensor({x})", f"{a} = torch.asarray({x})", f"{a} = {x}.new_tensor([1.0, 2.0])", f"{a} = {x}.new_ones(2, requires_grad=True)", f"{a} = torch.tensor({x})", f"{a} = {x}.to(torch.float64, copy=True)", f"{a} = {x}.type_as({x})", f"{a} = {x}.type(torch.float32)", f"{a} = {x}.cpu()", f"{a} = {x}.clone(memory_format=torch.contiguous_format)",
                        f"{a} = torch.from_numpy({x}.numpy())", f"{a} = torch.from_numpy({x}.detach().numpy())", f"{a} = {x}.numpy().sum()", f"{a} = float({x})", f"{a} = {x}.item()", f"{a} = {x}.tolist()", f"{a} = bool({x})", f"{a} = torch.Tensor({x})", f"{a} = {x}.__deepcopy__({{}})", f"{a} = {x}.set_({x})", f"{a} = {x}.set_({x}.detach())")

    def multi_views(self):
        x = self.pick(lambda t: t.dim() and t.shape[0] > 1)
        t = self.scope[x]
        if overlaps(t): return self.view()
        dim = self.any(0, -1)
        call = self.any(f"{x}.unbind({dim})", f"{x}.split(1, {dim})", f"{x}.chunk(2, {dim})", f"{x}.tensor_split(2, {dim})", f"{x}.hsplit(1)", f"{x}.vsplit(1)", f"{x}.split([1, 1], {dim})", f"torch.unsafe_split({x}, 1, {dim})", f"torch.unsafe_chunk({x}, 2, {dim})", f"torch.split_with_sizes({x}, [1, 1])", f"tuple({x})", f"{x}.split(5)", f"torch.broadcast_tensors({x}, {x})", f"torch.atleast_2d({x}, {x})", f"torch.meshgrid({x}.view(-1), {x}.view(-1), indexing='ij')")
        after = self.any("", "", ".view(-1)", "[...]", "[None]", ".detach()", ".unsqueeze(0)", "[:1]", ".squeeze()", ".data")
        write = self.any("", "", ".mul_(2)", ".zero_()", ".add_(1)", f".copy_({x}.detach())", ".requires_grad_()", ".detach_()", ".retain_grad()", "[0] = 2.0", ".sum().backward()", ".unsqueeze_(0)")
        head = self.any("", "", "", "with torch.no_grad(): ", "with torch.inference_mode(): ")
        if write.startswith("[0]"): return f"{head}{call}[{self.any(0, -1)}]{after}{write}"
        return f"{head}{self.fresh()} = {call}[{self.any(0, -1)}]{after}{write}"

    def groups(self):
        known = [n for n in self.scope if re.fullmatch(r"grp\d+", n)]
        x, y = (self.pick(lambda t: t.is_leaf and t.requires_grad) for _ in range(2))
        if known and self.rng.random() < 0.75:
            o = self.rng.choice(known)
            return self.any(f"{o}.step()", f"{o}.step()", f"{o}.step()", f"{o}.zero_grad()", f"{o}.zero_grad(set_to_none=False)", f"{o}.add_param_group(dict(params=[{x}], lr=0.3))", f"{o}.step(lambda: ({x} * {x}).sum())", f"{o}.register_step_pre_hook(lambda o, a, k: log.append('pre'))", f"{o}.register_step_post_hook(lambda o, a, k: log.append('post'))", f"{o}.load_state_dict(copy.deepcopy({o}.state_dict()))", f"log.append([sorted(s) for s in {o}.state_dict()['state'].values()])",
                            f"log.append([sorted(k for k in g if k != 'params') for g in {o}.param_groups])", f"{o}.param_groups[0]['lr'] *= 2", f"{o}.add_param_group(dict(params=[{x}, {x}]))", f"{o}.step(); {o}.zero_grad()", f"{o}.add_param_group([{x}])", f"{self.fresh()} = torch.optim.lr_scheduler.StepLR({o}, 1); {o}.step()", f"log.append(seen([v for s in {o}.state.values() for v in s.values() if isinstance(v, torch.Tensor)]))")
        kind = self.any("SGD", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Rprop")
        extra = self.any("", "", ", foreach=True", ", foreach=False", ", maximize=True", ", fused=True" if kind in ("SGD", "Adam", "AdamW") else "")
        return f"grp{len(known)} = torch.optim.{kind}([dict(params=[{x}]), dict(params={y}, lr=0.5)], lr=0.1{extra})" if x != y or self.rng.random() < 0.1 else f"grp{len(known)} = torch.optim.{kind}({self.any(f'[{x}]', f'[{x}, {x}]', f'[{chr(34)}p{chr(34)}]', '[]', x, f'{{1: {x}}}.values()', f'[({chr(34)}n{chr(34)}, {x})]')}, lr={self.any(0.1, 0.1, -1)}{extra})"

    def saved_values(self):
        x, y = (self.pick(lambda t: t.requires_grad and not t.is_leaf) for _ in range(2))
        if self.scope[x]._is_view() and (not self.torch.is_grad_enabled() or self.scope[x]._version): return self.view()
        fn, a = f"{x}.grad_fn", self.fresh()
        return self.any(f"{a} = {fn}._saved_self", f"{a} = {fn}._saved_other", f"{a} = {fn}._saved_result", f"{a} = {fn}.saved_tensors", f"{fn}._raw_saved_self.register_hooks(lambda t: t, lambda t: t)", f"{fn}._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t / 2)", f"{fn}._raw_saved_result.register_hooks(lambda t: 3, lambda t: t)", f"{a} = {fn}.next_functions[0][0].variable", f"{a} = {fn}._sequence_nr() > 0", f"{a} = {fn}({x}.detach())",
                        f"{a} = {fn}.name()", f"{a} = {fn}.next_functions[0][1]", f"{a} = {fn} is {x}.grad_fn", f"{fn}.metadata['k'] = 3; log.append({fn}.metadata)", f"log.append([type(n).__name__ for n, i in {fn}.next_functions])", f"{a} = sorted(k for k in dir({fn}) if k.startswith('_saved'))", f"graph.increment_version({x})", f"{a} = {x}.grad_fn == {y}.grad_fn", f"{a} = {fn}._input_metadata[0].shape", f"{a} = graph.get_gradient_edge({x}).output_nr",
                        f"{a} = {fn}.next_functions[0][0].next_functions", f"{a} = isinstance({fn}, graph.Node)")

    def transforms_more(self):
        x, y = self.pairs()
        a = self.fresh()
        call = self.any(f"torch.func.vmap(torch.func.grad(lambda v: v.sin().sum()))({x})", f"torch.func.grad(lambda v: torch.autograd.grad((v * v * 1).sum(), v, create_graph=True)[0].sum())({x})", f"torch.func.jvp(torch.func.grad(lambda v: (v ** 3).sum()), ({x},), ({x}.detach(),))", f"torch.func.vjp(lambda v: torch.func.jvp(torch.sin, (v,), (v,))[1], {x})[0]", f"torch.func.linearize(torch.sin, {x})[1]({x})",
                        f"torch.func.grad(lambda v: (v.detach() * {y}).sum())({x})", f"torch.func.vmap(lambda v: v.add_(1))({x})", f"torch.func.vmap(lambda v: v.clone().add_(1).sum())({x})", f"torch.func.vmap(lambda v: v.sum(), in_dims=1)({x})", f"torch.func.vmap(lambda v: v.item())({x})", f"torch.func.vmap(lambda v: torch.zeros(2).double().add_(v.sum()))({x})", f"torch.func.grad(lambda v: v)({x})", f"torch.func.grad(lambda v: (v * v).sum().item())({x})", f"torch.func.grad(lambda v: v.sum(), argnums=1)({x})", f"torch.func.grad(lambda v, w: (v * w).sum(), argnums=(0, 1))({x}, {x})",
                        f"torch.func.grad(lambda v: ((v * 2).sum(), v), has_aux=True)({x})", f"torch.func.grad(lambda v: ({x} * v).sum())({x})", f"torch.func.vjp(lambda v: (v, v * 2), {x})[1]((torch.ones_like({x}), {x}))", f"torch.func.jacrev(lambda v: v * v, chunk_size=1)({x}.detach()).detach()", f"torch.func.grad(Twice.apply)({x})", f"torch.func.grad(lambda v: Inside.apply(v).sum())({x})", f"torch.func.vmap(SetUp.apply)({x}, {x})[0]", f"torch.func.grad(lambda v: SetUp.apply(v, v)[0].sum())({x})", f"torch.func.vmap(Once.apply)({x})",
                        f"torch.func.grad(lambda v: checkpoint(torch.sin, v, use_reentrant=False).sum())({x})", f"torch.func.vmap(lambda v: v, randomness='wrong')({x})", f"torch.func.jvp(torch.sin, ({x},), ({x}.detach().float(),))", f"torch.func.jvp(torch.sin, {x}, {x})", f"torch.func.vmap(lambda v, w: v * w, in_dims=(0, None))({x}, {y})", f"torch.func.vmap(lambda v: v.sum())({x}[0])", f"torch.func.grad(lambda v: v.requires_grad_().sum())({x})", f"torch.func.grad(lambda v: v.mul_(2).sum())({x}.detach().clone())",
                        f"torch.func.grad(lambda v: {y}.mul_(v.detach()).sum())({x})", f"torch.func.hessian(lambda v: (v ** 3).sum())({x}.detach())", f"torch.func.grad(lambda v: v.backward())({x})", f"torch.func.grad(lambda v: torch.no_grad()(lambda u: u * 2)(v).sum())({x})", f"torch.func.vjp(lambda v: v.view(-1), {x})[0]", f"torch.func.grad(lambda v: v.view(-1)[0])({x})", f"torch.func.functional_call(layer(2), {{}}, ({x},))")
        return f"{a}, *_ = gradients({call})"

    def mistakes(self):
        "What both refuse, in the same words."
        x, y = self.pick(), self.pick()
        a = self.fresh()
        return self.any(f"{a} = {x} @ torch.ones(7, 7, dtype=torch.float64)", f"{a} = {x} + torch.ones(5, 7)", f"{a} = torch.cat([{x}, torch.ones(1, 1, 1)])", f"{a} = torch.stack([{x}, torch.ones(7)])", f"{a} = {x}.view(7)", f"{a} = {x}.reshape(7, -1)", f"{a} = {x}.sum(5)", f"{a} = {x}[9]", f"{a} = {x}[0, 0, 0]", f"{a} = {x}[:, 5]", f"{a} = {x}.gather(0, torch.tensor([9]))", f"{a} = {x}.index_select(0, torch.tensor([9]))", f"{a} = {x}.expand(7)", f"{a} = {x}.permute(1)", f"{a} = {x}.transpose(0, 5)", f"{a} = {x}.unsqueeze(9)", f"{a} = {x}.squeeze(9)",
                        f"{a} = {x}.softmax(9)", f"{a} = torch.mm({x}, {y})", f"{a} = {x}.dot({y})", f"{a} = torch.where({x}, {x}, {x})", f"{a} = {x}.masked_fill({x}, 0)", f"{a} = {x}.masked_select({x})", f"{a} = {x}[torch.tensor([0.5])]", f"{x}[9] = 1", f"{x}[0] = torch.ones(7)", f"{x}.copy_(torch.ones(7))", f"{x}.add_(torch.ones(3, 3, 3))", f"{x}.mul_('a')", f"{a} = {x} * 'a'", f"{a} = {x} + None", f"{a} = {x}.add()", f"{a} = {x}.add(1, 2, 3)", f"{a} = {x}.nothing", f"{a} = {x}.sum(dtype=3)", f"{a} = {x}.narrow(0, 0, 9)", f"{a} = {x}.select(0, 9)", f"{a} = {x}.split(0)", f"{a} = {x}.chunk(0)", f"{a} = {x}.unbind(5)", f"{a} = {x}.topk(9)", f"{a} = {x}.kthvalue(9)", f"{a} = {x}.sort(5)", f"{a} = {x}.cumsum(5)", f"{a} = {x}.diagonal()", f"{a} = {x}.tril()", f"{a} = {x}.t()",
                        f"{a} = {x}.repeat(2)", f"{a} = {x}.unfold(0, 9, 1)", f"{a} = {x}.as_strided((9,), (9,))", f"{a} = torch.einsum('ijk->i', {x})", f"{a} = {x}.matmul({y})", f"{a} = torch.linalg.inv({x})", f"{a} = torch.linalg.det({x})", f"{a} = {x}.inverse()", f"{x}.backward(1)", f"{x}.backward('a')", f"{x}.backward(gradient=[1])", f"{x}.backward(inputs=[])", f"{x}.backward(inputs=3)", f"torch.autograd.grad({x}, 3)", f"torch.autograd.grad({x}.sum(), [])", f"torch.autograd.grad({x}.sum(), {y})", f"torch.autograd.grad(3, {x})", "torch.autograd.backward([])", f"torch.autograd.backward({x}, inputs=())", f"torch.autograd.grad([{x}, {y}], [{x}], [None])", f"{x}.register_hook(3)", f"{x}.requires_grad = 3", f"{x}.requires_grad_('a')",
                        f"{x}.grad = 3", f"{x}.grad = torch.ones(9)", f"{x}.grad = {x}.float()", f"{x}.data = 3", f"{x}.data = torch.ones(2, dtype=torch.int64)", f"{x}.long().requires_grad_()", f"{a} = torch.tensor([1, 2], requires_grad=True)", f"{x}.register_post_accumulate_grad_hook(3)", "with torch.no_grad(3): pass", "torch.set_grad_enabled()", "torch.set_grad_enabled('a')", "graph.saved_tensors_hooks(3)", f"{a} = {x}.long() @ {x}", f"{a} = {x}.float() @ {x}", f"{a} = torch.addmm({x}, {x}, {y}.float())", f"{a} = {x}.index_add(0, torch.tensor([0]), {x}.float())", f"{a} = {x}.scatter(0, torch.tensor([9]), 1.0)",
                        f"{a} = {x}.item()", f"{a} = len({x})", f"{a} = int({x})", f"{a} = {x} if {x} else {x}", f"{a} = {x}.numpy()", f"{a} = {x}.bool() - {x}.bool()", f"{a} = -{x}.bool()", f"{a} = {x}.long() ** -1", f"{x}.long().div_(2)", f"{x}.bool().add_(1.5)", f"{a} = {x}.mean(dtype=torch.int64)", f"{a} = {x}.long().mean()", f"{a} = {x}.norm('a')", f"{a} = {x}.clamp()", f"{a} = {x}.flip(5)", f"{a} = {x}.roll(1, 7)", f"{a} = {x}.movedim(0, 7)", f"{a} = {x}.flatten(3)", f"{a} = {x}.unflatten(0, (7, 7))", f"{a} = torch.tensor([[1.0], [1.0, 2.0]])", f"{a} = torch.zeros(-1)", f"{a} = torch.zeros('a')", f"{a} = torch.arange(0, 1, 0)", f"{a} = torch.ones(2).double().expand(-1, 3)", f"{a} = F.linear({x}, torch.ones(7, 7))", f"{a} = F.conv1d({x}, torch.ones(1, 1, 1))", f"{a} = F.mse_loss({x}, torch.ones(7))", f"{a} = F.cross_entropy({x}, {x})", f"{a} = F.nll_loss({x}, torch.tensor([9]))", f"{a} = F.embedding({x}, {x})", f"{a} = F.dropout({x}, 2)", f"{a} = F.layer_norm({x}, (7,))", f"{a} = F.batch_norm({x}, None, None)", f"{a} = F.max_pool1d({x}, 9)", f"{a} = F.one_hot({x})", f"{a} = F.pad({x}, (1,))", f"{a} = F.softmax({x}, 9)", f"{a} = nn.Linear(2, 2)({x})")

    KINDS = {**Wide.KINDS, "custom_more": 6, "layer_hooks": 8, "decorated": 4, "batched_gradient": 4, "complexes": 8, "threaded": 3, "copies": 5, "multi_views": 7, "groups": 5, "saved_values": 4, "transforms_more": 6}

    def statement(self):
        "Now and then also what both refuse, where it was asked for."
        mistaken = self.more and self.rng.random() < 8 / (8 + sum(self.KINDS.values()))
        return self.mistakes() if mistaken else super().statement()


write = _random_programs.written_by(Wider, PRELUDE)


if __name__ == "__main__":
    sys.exit(_random_programs.main(write))
