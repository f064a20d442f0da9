"""Forward mode: dual tensors beside PyTorch's, nested levels, and every operation's rule against differences."""

import pytest
from _transforms import check, programs

import autograd_nb as torch
from autograd_nb.autograd import forward_ad as fw

PROGRAMS = programs("""
def run():
    x=R(2); t=R(2,seed=1)
    with fw.dual_level():
        d=fw.make_dual(x,t); y=d.sin()*2
        return fw.unpack_dual(y)
p,t=run(); r=p,t

with fw.dual_level() as l: r=l

r=fw.make_dual(R(2),R(2))

x=R(2)
with fw.dual_level():
    d=fw.make_dual(x,R(2,seed=1)); x.add_(1); r=(fw.unpack_dual(d)[0]==x).all(), fw.unpack_dual(d)[1] is not None

foo,bar=R(2),R(2,seed=1)
with fw.dual_level():
    d=fw.make_dual(foo,bar); d*=2; r=(fw.unpack_dual(foo)[1],bar,fw.unpack_dual(d)[1],foo)

foo,bar=R(2),R(2,seed=1)
with fw.dual_level():
    d=fw.make_dual(foo,bar); v=d.narrow(0,0,1); v*=2; r=fw.unpack_dual(foo)[1],fw.unpack_dual(d)[1],fw.unpack_dual(v)[1]

with fw.dual_level():
    d=fw.make_dual(R(2),R(2,seed=1)); baz=R(2,seed=3); baz+=d; r=fw.unpack_dual(baz)[1]

baz=R(2,seed=3)
with fw.dual_level():
    d=fw.make_dual(R(2),R(2,seed=1)); baz[0]=d[0]; r=fw.unpack_dual(baz)[1]
r=r,baz

baz=R(2,seed=3)
with fw.dual_level():
    d=fw.make_dual(R(2),R(2,seed=1)); v=baz.detach(); v+=d; r=fw.unpack_dual(baz)[1],fw.unpack_dual(v)[1]

foo,bar=R(2).requires_grad_(),R(2,seed=1).requires_grad_()
with fw.dual_level():
    d=fw.make_dual(foo,bar); p,t=fw.unpack_dual(d)
    r=torch.autograd.grad(p.sum(),(foo,bar),retain_graph=True,allow_unused=True),torch.autograd.grad(t.sum(),(foo,bar),retain_graph=True,allow_unused=True)

foo,bar=R(2).requires_grad_(),R(2,seed=1).requires_grad_()
with fw.dual_level():
    d=fw.make_dual(foo,bar); p,t=fw.unpack_dual(d.detach()); r=p,t

foo,bar=R(2).requires_grad_(),R(2,seed=1).requires_grad_()
with fw.dual_level():
    d=fw.make_dual(foo,bar)
    with torch.no_grad(): o=d*3
    p,t=fw.unpack_dual(o); r=p,t

foo,bar=R(2).requires_grad_(),R(2,seed=1)
with fw.dual_level():
    d=fw.make_dual(foo,bar); y=(d**3).sum(); g,=torch.autograd.grad(y,d); r=fw.unpack_dual(g)

foo,bar=R(2).requires_grad_(),R(2,seed=1)
with fw.dual_level():
    d=fw.make_dual(foo,bar); y=(d**3).sum(); g,=torch.autograd.grad(y,foo,create_graph=True); r=fw.unpack_dual(g)

foo,bar=R(2).requires_grad_(),R(2,seed=1)
with fw.dual_level():
    d=fw.make_dual(foo,bar); y=(d**3).sum(); y.backward(); r=fw.unpack_dual(foo.grad)

foo=R(2)
with fw.dual_level():
    d=fw.make_dual(foo,R(2,seed=1)); g=grad(lambda x:(x**3).sum())(d); r=fw.unpack_dual(g)

with fw.dual_level():
    d=fw.make_dual(R(2),R(2,seed=1)); r=fw.unpack_dual(torch.stack([d,d*2]).sum(0))

with fw.dual_level():
    d=fw.make_dual(R(2),R(2,seed=1)); y=d.long(); r=fw.unpack_dual(y)[1], fw.unpack_dual(d>0)[1]

with fw.dual_level():
    x=R(2); d=fw.make_dual(x,R(2,seed=1)); print(d, d*2); r=str(d)

with fw.dual_level():
    d=fw.make_dual(R(2),R(2,seed=1))
    with fw._set_fwd_grad_enabled(False): y=d*2
    r=fw.unpack_dual(y)[1], fw.unpack_dual(d*2)[1]

fw.enter_dual_level(); d=fw.make_dual(R(2),R(2,seed=1)); fw.exit_dual_level(); r=fw.unpack_dual(d)

with fw.dual_level(): r=fw.make_dual(R(2),R(3))

with fw.dual_level(): r=fw.make_dual(R(2).long(),R(2))

with fw.dual_level(): r=fw.make_dual(fw.make_dual(R(2),R(2)),R(2))

with fw.dual_level(): r=fw.make_dual(R(2),fw.make_dual(R(2),R(2)))

r=fw.exit_dual_level()

with fw.dual_level():
    d=fw.make_dual(R(2,2),R(2,2,seed=1)); r=[fw.unpack_dual(q) for q in (d.view(-1),d.T,d[0],d.unsqueeze(0),d.clone(),d.sum(),d.max(),d@d, torch.linalg.det(d), d.reshape(4), d.expand(2,2,2))]

with fw.dual_level():
    d=fw.make_dual(R(3),R(3,seed=1)); r=fw.unpack_dual(torch.nn.functional.linear(d,R(2,3))), fw.unpack_dual(d.sort()[0]), fw.unpack_dual(torch.where(d>0,d,0.))

with fw.dual_level():
    d=fw.make_dual(R(3),R(3,seed=1)); a,b=d.split([1,2]); r=fw.unpack_dual(b)

m=torch.nn.Linear(3,2).double()
with torch.no_grad():
    for q in m.parameters(): q.fill_(.5)
with fw.dual_level():
    for n,q in list(m.named_parameters()):
        delattr(m,n); setattr(m,n,fw.make_dual(q,torch.ones_like(q)))
    r=fw.unpack_dual(m(R(3)))

with fw.dual_level():
    d=fw.make_dual(R(3).float(),R(3,seed=1).float()); r=fw.unpack_dual(d.double()), fw.unpack_dual(d+R(3))

with fw.dual_level():
    c=torch.complex(R(2),R(2,seed=1)); d=fw.make_dual(c,torch.complex(R(2,seed=2),R(2,seed=3))); r=[fw.unpack_dual(q) for q in (d*d,d.abs(),d.real,d.conj().resolve_conj(),d.exp())]

with fw.dual_level():
    d=fw.make_dual(torch.complex(R(3,2),R(3,2,seed=1)),torch.complex(R(3,2,seed=2),R(3,2,seed=3)))
    r=[fw.unpack_dual(q) for f in (torch.var,torch.std,torch.var_mean,torch.std_mean) for a in ({},dict(dim=1,keepdim=True)) for q in (lambda y: y if isinstance(y,tuple) else (y,))(f(d,**a))]

with torch.inference_mode():
    with fw.dual_level():
        d=fw.make_dual(R(3),R(3,seed=1)); r=fw.unpack_dual(d.sin()); r=(r[0].clone()==0).any().item(), r[1] is None
""")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_as_pytorch(program):
    check(program)


def test_levels_do_not_nest():
    "The tangent of a tangent comes from `jvp` of `jvp`: the second derivative of x ** 3 at 2."
    x, one = torch.tensor(2.0), torch.tensor(1.0)
    with fw.dual_level() as outer:
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"), fw.dual_level():
            pass
        assert outer == 0 and fw.unpack_dual(fw.make_dual(x, one) ** 3).tangent.item() == 12.0
    first = lambda v: torch.func.jvp(lambda u: u**3, (v,), (one,))[1]
    assert torch.func.jvp(first, (x,), (one,))[1].item() == 12.0


def test_a_tensor_written_into_is_itself_again_after_the_level():
    x = torch.zeros(3)
    view = x[1:]
    with fw.dual_level():
        x[0] = fw.make_dual(torch.tensor(1.0), torch.tensor(5.0))
        view.mul_(2)
        view[0] = fw.make_dual(torch.tensor(2.0), torch.tensor(7.0))
        assert fw.unpack_dual(x).tangent.tolist() == [5.0, 7.0, 0.0]
        assert fw.unpack_dual(view).tangent.tolist() == [7.0, 0.0]
    assert type(x) is torch.Tensor and type(view) is torch.Tensor
    assert x.tolist() == [1.0, 2.0, 0.0] and view.tolist() == [2.0, 0.0]
    x.add_(1)
    assert view.tolist() == [3.0, 1.0]


def test_a_dual_tensor_outlives_its_level_without_its_tangent():
    with fw.dual_level():
        d = fw.make_dual(torch.ones(2), torch.ones(2)) * 3
    assert (d + 1).tolist() == [4.0, 4.0]
    assert repr(d) == repr(torch.full((2,), 3.0))
    with fw.dual_level():
        assert fw.unpack_dual(d).tangent is None


def test_forward_over_reverse():
    x, v = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, -1.0])
    with fw.dual_level():
        d = fw.make_dual(x, v)
        (g,) = torch.autograd.grad((d**3).sum(), x)
        assert fw.unpack_dual(g).tangent.tolist() == [6.0, -12.0]


CONSTANTS = """
t.where(m, x, -inf)
t.where(m, -inf, x)
t.cat([x, -inf])
t.stack([inf, x])[1]
t.softmax(t.where(m, x, -inf), 0)
t.masked.log_softmax(x, 0, mask=m)
t.masked.logaddexp(x, x + 1, input_mask=m, other_mask=~m)
t.nn.functional.layer_norm(inf, (4,), x, None)
t.div(x, x + 1, rounding_mode='trunc')
t.div(x, 3, rounding_mode='floor')
t.addmm(inf, x[None], t.eye(4))[0]
t.nn.functional.linear(x, t.eye(4), inf)
t.prod(x * 1e30)
t.prod(x * 1e30, 0, keepdim=True)
t.angle(x * inf)
inf.scatter_reduce(0, t.tensor([1, 1, 2]), x, 'sum')
x.scatter_reduce(0, t.tensor([1, 1, 2]), inf, 'sum', include_self=False)
x.scatter_reduce(0, t.tensor([1, 1, 2]), inf, 'mean')
inf.scatter_reduce(0, t.tensor([1, 1, 2]), x, 'mean', include_self=False)
inf.scatter_reduce(0, t.tensor([1, 1, 2, 2]), x, 'amin', include_self=False)
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("line", CONSTANTS.strip().splitlines())
def test_what_is_constant_has_a_tangent_of_zero_whatever_its_value(line):
    import torch as theirs

    found = []
    for t in (theirs, torch):
        level = t.autograd.forward_ad
        with level.dual_level():
            x = level.make_dual(t.tensor([1.0, -2.0, 0.5, 3.0]), t.tensor([1.0, 2.0, 3.0, 4.0]))
            names = dict(t=t, x=x, m=t.tensor([True, False, True, True]), inf=t.full((4,), float("inf")))
            made = level.unpack_dual(eval(line, names)).tangent
            found.append(made.tolist())
    assert found[1] == pytest.approx(found[0], nan_ok=True)


def test_a_product_has_a_gradient_where_its_first_factor_is_infinite():
    x = torch.tensor([float("inf"), 2.0, 3.0], requires_grad=True)
    (g,) = torch.autograd.grad(x.prod(), x)
    assert g.tolist() == [6.0, float("inf"), float("inf")]


@pytest.mark.parametrize("function", [torch.diag, lambda x: torch.nn.functional.pixel_shuffle(x[None], 1)])
def test_copies_are_copies_in_forward_mode_too(function):
    x = torch.ones(2, 2)
    with fw.dual_level():
        made = function(fw.make_dual(x, torch.ones(2, 2)))
        made.zero_()
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


LAYOUTS = ["x, x * 2", "x.t(), x.t().contiguous()", "x.t(), (x * 2).t()", "x[0], torch.zeros(3)", "torch.zeros(3), x[0]", "x[0], (x * 2)[1]", "x[0, 0], torch.zeros(())", "x, torch.zeros(1, 1).expand(2, 3)", "x[:, 0], (x * 2)[:, 0]", "torch.zeros(1, 3), torch.zeros(3, 1).t()"]


@pytest.mark.parametrize("pair", LAYOUTS)
def test_a_tangent_that_lies_otherwise_in_memory_is_copied(pair):
    "So that a write to the dual tensor does not reach, through its tangent, what else lies there."
    pytorch = pytest.importorskip("torch")

    def tried(lib):
        fw = lib.autograd.forward_ad
        x = lib.arange(6.0).view(2, 3)
        primal, tangent = eval(pair, dict(torch=lib, x=x))
        with fw.dual_level():
            dual = fw.make_dual(primal, tangent)
            found = fw.unpack_dual(dual).tangent
            shared = found.untyped_storage().data_ptr() == tangent.untyped_storage().data_ptr()
            dual.mul_(3)
            return shared, tuple(found.stride()), found.tolist(), tangent.tolist(), x.tolist()

    assert tried(torch) == tried(pytorch)


@pytest.mark.needs("torch")
def test_a_tangent_depends_on_what_it_is_made_of_alone():
    "What stands still contributes zeros that know nothing of it."
    import torch as theirs

    def asked(torch):
        F, w, b, x = torch.nn.functional, torch.ones(3, 4), torch.ones(3, requires_grad=True), torch.ones(2, 4)
        functions = [
            lambda x: F.linear(x, w, b), lambda x: torch.addmm(b, x, w.t()), lambda x: torch.addmm(b, x, w.t() * b[:1, None]), lambda x: torch.cat([x, b.expand(2, 3)], 1), lambda x: torch.stack([x[0, :3], b]),
            lambda x: torch.where(x > 0, x, b[0]), lambda x: F.linear(x, w * b[0]), lambda x: torch.baddbmm(b, x[None], w.t()[None]), lambda x: x.fill_(2), lambda x: x.scatter_add(0, torch.zeros(1, 3).long(), b[None]),
        ]
        return [torch.func.jvp(f, (x.clone(),), (torch.ones_like(x),))[1].requires_grad for f in functions]

    assert asked(torch) == asked(theirs)
