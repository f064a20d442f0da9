"""The names of function transforms from before they moved to `func`, and what custom functions and random operations are told inside `vmap`."""

import pytest
from _transforms import check

pytestmark = pytest.mark.needs("torch")

NAMES = """
import importlib, sys
modules = importlib.import_module(torch.__name__ + "._functorch.make_functional")
inner = importlib.import_module(torch.__name__ + "._functorch.eager_transforms")
core = importlib.import_module(torch.__name__ + "._C._functorch")
nn = torch.nn
torch.manual_seed(0)
"""

PROGRAMS = """
m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)); x = torch.randn(4, 2); f, p = modules.make_functional(m); r = f(p, x), grad(lambda p: f(p, x).square().sum())(p), [q.requires_grad for q in p], f.param_names, f.names_map

m = nn.BatchNorm1d(3); f, p, b = modules.make_functional_with_buffers(m, disable_autograd_tracking=True); x = torch.randn(5, 3); r = f(p, b, x), [q.requires_grad for q in p], b, m.running_mean, f.buffer_names

r = modules.make_functional(nn.BatchNorm1d(3))

m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)); m[2].weight = m[0].weight; f, p = modules.make_functional(m); x = torch.randn(2, 3); r = len(p), f(p, x), m(x), f.names_map

ms = [nn.Linear(2, 3) for _ in range(4)]; x = torch.randn(5, 2); f, p, b = modules.combine_state_for_ensemble(ms); r = vmap(f, (0, 0, None))(p, b, x), [q.requires_grad for q in p], b

r = modules.combine_state_for_ensemble([])

r = modules.combine_state_for_ensemble([nn.Linear(2, 2), nn.ReLU()])

w, f, names = modules.functional_init(nn.Linear, (3,))(2, 4); r = [t.shape for t in w], vmap(f)(w, (torch.randn(3, 5, 2),)).shape, names

w, f, names = modules.functional_init(nn.Linear)(2, 4); r = f(w, (torch.ones(5, 2),)), names

m = nn.Linear(2, 3); x = torch.randn(4, 2); y = m(x); w, f, names = modules.make_functional_deprecated_v1(m); r = f(w, (x,)), y, modules.load_state(m, w, names)(x)

r = inner._slice_argnums((1, 2, 3), (0, -1)), inner._slice_argnums((1, 2), 1), inner._slice_argnums((1, 2), 1, as_tuple=False)

r = inner._slice_argnums((1, 2), (0, -2))

x = R(2, 3, 4); r = [core.reshape_dim_into(a, b, x) for a, b in ((0, 0), (0, 1), (1, 1), (0, -2), (2, 0))], core.reshape_dim_outof(2, 2, x), core.reshape_dim_outof(-1, 4, x)

def f(x): print(core.is_batchedtensor(x), core.is_gradtrackingtensor(x), core.maybe_get_level(x)); return x.sum()
r = vmap(f)(R(2, 3)), vmap(grad(f))(R(2, 3))

kept = []
grad(lambda x: kept.append(x.sin()) or kept[0])(R()); r = core.dlevel(kept[0])

r = vmap(vmap(lambda x: print(x) or x, in_dims=0), in_dims=1)(R(2, 3))

class Id(torch.autograd.Function):
    @staticmethod
    def forward(x, y): pass
    @staticmethod
    def setup_context(ctx, inputs, output): pass
    @staticmethod
    def vmap(info, in_dims, x, y): print(in_dims, x.shape); return (x, y), in_dims
r = vmap(Id.apply, in_dims=(1, 0))(R(2, 3), [R(3), R(3, 2)])

class Same(torch.autograd.Function):
    @staticmethod
    def forward(x): return x
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g): return g
r = Same.apply(R())

class Named(torch.autograd.Function):
    @staticmethod
    def forward(x): return x.clone()
    @staticmethod
    def setup_context(ctx, inputs, output): pass
    @staticmethod
    def backward(ctx, g): return g
def f(x):
    y = Named.apply(x); print(type(y.grad_fn).__name__); return y
r = grad(f)(R())

class Off(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): print(torch.autograd.forward_ad._is_fwd_grad_enabled()); return x * 2
    @staticmethod
    def backward(ctx, g): return g
r = Off.apply(R(2).requires_grad_())

r = vmap(lambda x: x.clone(memory_format=torch.channels_last))(R(2, 1, 2, 3, 4))

r = vmap(lambda x: x.contiguous(memory_format=torch.channels_last))(R(2, 1, 2, 3, 4))

r = vmap(lambda x: torch.randn(3, out=torch.ones(3)), randomness="same")(R(2))

r = vmap(torch.clamp_min_, (None, 0))(R(3), R(2, 3))

r = vmap(lambda x: x.new_full((2,), 3.))(R(3)), vmap(lambda x: x.new_empty_strided((2, 3), (3, 1)).shape[0] * x)(R(2))

r = vmap(lambda x, g: F.grid_sample(x, g, align_corners=False))(R(2, 1, 2, 4, 4), R(2, 1, 3, 3, 2).clamp(-1, 1))

a = R(4, 2).requires_grad_(); u, s, v = torch.linalg.svd(a); r = torch.autograd.grad((u[:, :2] @ torch.diag(s.exp()) @ v).sin().sum(), a)

x = R(3, 4); r = x.cumsum(axis=1), torch.cumprod(x, axis=0), x.softmax(axis=-1), torch.max(x, axis=1, keepdims=True), x.std(axis=0, keepdims=True), torch.stack([x, x], axis=1), x.unsqueeze(axis=0), torch.logsumexp(x, axis=1), x.argsort(axis=0), torch.count_nonzero(x, axis=0), torch.topk(x, 2, axis=0), x.chunk(2, axis=1), torch.quantile(x, .5, axis=1)

x = R(2, 3, 4).permute(2, 0, 1); r = torch.cat([x, x], 1).stride(), torch.cat([x, x], 0).view(-1)
""".strip().split("\n\n")


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_as_pytorch(program):
    check(NAMES + program)


def test_old_names_say_where_they_went():
    import autograd_nb
    from autograd_nb import functorch

    with pytest.warns(FutureWarning, match="Please use `torch.func.grad`"):
        assert functorch.grad(autograd_nb.sin)(autograd_nb.tensor(0.0)) == 1
    with pytest.warns(FutureWarning, match="Please use `torch.vmap`"):
        functorch.vmap(autograd_nb.sin)


def test_scripts_stay_functions():
    import autograd_nb as torch

    @torch.jit.script
    def double(x):
        return x * 2

    x = torch.ones(2, requires_grad=True)
    torch.jit.trace(double, x)(x).sum().backward()
    assert x.grad.tolist() == [2, 2] and not torch.jit.is_scripting() and not torch.compiler.is_compiling()
    with pytest.raises(RuntimeError, match="state_dict"):
        torch.jit.save(double, "model.pt")
