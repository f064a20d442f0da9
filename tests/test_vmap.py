"""vmap: programs beside PyTorch, and every registered operation batched in every way against a loop over the examples."""

import numpy as np
import pytest
from _transforms import check, programs

import autograd_nb as torch
from autograd_nb.func import grad, vjp, vmap
from autograd_nb.layers.observers import observe
from autograd_nb.graph.op import REGISTRY, N

PROGRAMS = programs("""
r=vmap(lambda x:vmap(lambda y:x*y)(R(3)))(R(2))

r=vmap(torch.mul,in_dims=(0,None),out_dims=1)(R(3),R(2))

r=vmap(torch.sum,in_dims=-1)(R(3,2)), vmap(torch.sum,in_dims=1)(R(3,2))

r=vmap(lambda x:(x,x.sum()),out_dims=(1,0))(R(3,2))

r=vmap(lambda x:(x,x.sum()),out_dims=-1)(R(3,2))

r=vmap(lambda d:d['a']+d['b'],in_dims=({'a':0,'b':None},))({'a':R(3),'b':R()})

r=vmap(lambda x,s:x*s,in_dims=(0,None))(R(3),2.)

r=vmap(lambda x:torch.ones(2))(R(3))

r=vmap(lambda x,*,k:x*k)(R(3),k=3.)

r=vmap(torch.sin,chunk_size=2)(R(5,2)), vmap(lambda x:(x,x.sum()),chunk_size=2,out_dims=(1,0))(R(5,2))

r=vmap(lambda x: x.sum())(R(0,3))

r=vmap(lambda x,y: x)(R(2,3),R(3,3))

r=vmap(grad(lambda x: (y:=x*1, y.reshape(-1).mul_(torch.arange(6.)), (y**3).sum())[2]))(R(2,3,2).mT)

r=vmap(grad(lambda x: (y:=x*1, y.split(1)[0].mul_(2), y.sum())[2]))(R(2,3,2))

r=vmap(grad(lambda x: (y:=x*1, y.unbind(-1)[1].mul_(2), y.sum())[2]))(R(2,3,2))

r=vmap(grad(lambda x: (y:=x*1, y.split(1)[0][0].mul_(2), y.sum())[2]))(R(2,3,2))

r=vmap(lambda x: (y:=x*1, y.split(1)[0].mul_(2), y)[2])(R(2,3,2))

r=vmap(grad(lambda x: (y:=x.clone(), y.flatten().exp_(), (y**3).sum())[2]),1)(R(3,2,2).transpose(0,2))

r=vmap(grad(lambda x: (y:=x*1, y.reshape(-1).mul_(torch.arange(6.)), (y**3).sum())[2]))(R(2,3,2))

r=vmap(lambda: 1)()

r=vmap(lambda x:x)(1)

r=vmap(lambda x:x,in_dims=(None,))(R(3))

x=R(3,2); vmap(lambda x:x.add_(1))(x); r=x

x=R(3,2); vmap(lambda x:x.mul_(2),in_dims=1)(x); r=x

c=R(3)
def f(x):
    c.copy_(x); return (x*c).sum()
r=vmap(f)(R(2,3))

r=vmap(lambda x: x.item())(R(3))

r=vmap(lambda x: x if x>0 else -x)(R(3))

r=vmap(lambda x: float(x))(R(3))

r=vmap(lambda x: torch.nonzero(x))(R(3,2))

r=vmap(lambda x: x[x>0])(R(3,2))

r=vmap(lambda x: torch.masked_select(x,x>0))(R(3,2))

r=vmap(lambda x: torch.unique(x))(R(3,2))

r=vmap(lambda x: torch.allclose(x,x))(R(3,2))

r=vmap(lambda x: x.tolist())(R(3,2))

r=vmap(lambda x: x.numpy())(R(3,2))

r=vmap(lambda x: x.data)(R(3,2))

r=vmap(lambda x: torch.rand(2))(R(3))

r=vmap(lambda x:x+torch.randn(2,dtype=torch.float64),randomness='same')(R(3,2)).shape

torch.manual_seed(0); r=vmap(lambda x:torch.randn(2),randomness='different')(R(3))

torch.manual_seed(0); r=vmap(lambda x:torch.rand(2,3),randomness='same')(R(3))

torch.manual_seed(0); r=vmap(lambda x:x.normal_(),randomness='different')(R(3,2))

torch.manual_seed(0); r=vmap(lambda x:x.normal_(),randomness='same')(R(3,2))

torch.manual_seed(0); r=vmap(lambda x:torch.zeros(2).uniform_(),randomness='different')(R(3,2))

torch.manual_seed(0); r=vmap(lambda x:torch.zeros(2).uniform_(),randomness='error')(R(3,2))

torch.manual_seed(0); r=vmap(lambda x:F.dropout(x),randomness='different')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:F.dropout(x),randomness='same')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:F.dropout(x),randomness='error')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:torch.bernoulli(x),randomness='different')(torch.full((3,20),.5))

torch.manual_seed(0); r=vmap(lambda x:torch.randint(0,10,(5,)),randomness='different')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:torch.randperm(5),randomness='different')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:torch.rand_like(x),randomness='different')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:torch.normal(x,1.),randomness='different')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:torch.multinomial(x,3),randomness='different')(torch.ones(3,20)).shape

r=vmap(lambda x:x.sum() if x.shape==(2,) and x.ndim==1 and x.dtype==torch.float64 and x.dim()==1 and x.size(0)==2 and len(x)==2 and x.numel()==2 and x.is_floating_point() else None)(R(3,2))

r=vmap(lambda x: torch.stack([a*2 for a in x]))(R(3,2))

a,b=None,None
def f(x):
    a,b=x; return a+b
r=vmap(f)(R(3,2))

r=vmap(lambda x,y: torch.where(x>0,x,y))(R(3,2),R(3,2,seed=1))

r=vmap(lambda x: x.__repr__())(R(3))

print(vmap(lambda x:(print(x),x)[1])(R(2,2))); r=0

r=torch.vmap(torch.sin)(R(3))

r=vmap(lambda x,y:x@y)(R(3,2,2),R(3,2)),vmap(lambda x,y:x@y,in_dims=(0,None))(R(3,2,2),R(2)),vmap(lambda x,y:x@y,in_dims=(None,0))(R(2,2),R(3,2)),vmap(torch.mm,in_dims=(None,0))(R(2,2),R(3,2,2))

torch.manual_seed(0); r=vmap(lambda x:torch.bernoulli(x),randomness='same')(torch.full((3,20),.5))

torch.manual_seed(0); r=vmap(lambda x:torch.normal(x,1.),randomness='same')(torch.ones(3,20))

torch.manual_seed(0); r=vmap(lambda x:torch.bernoulli(torch.full((20,),.5)),randomness='different')(torch.full((3,20),.5))

r=vmap(lambda x: F.cross_entropy(x,torch.tensor(1)))(R(3,4)), vmap(lambda x,y: F.cross_entropy(x,y))(R(3,4),torch.tensor([0,1,3]))

r=vmap(lambda x: x.mean().sqrt() if False else x.var())(R(3,4)), vmap(lambda w,i:w[i],in_dims=(None,0))(R(5,2),torch.tensor([3,1]))

r=vmap(lambda x,y: x.masked_fill(y,0.))(R(2,3),R(2,3)>0), vmap(lambda x,i:x.index_fill(0,i,1.))(R(2,3),torch.tensor([[0],[1]]))

def f(x,y):
    x[y>0]=0; return x
r=vmap(f)(R(2,3),R(2,3))

r=vmap(lambda x,i: x.scatter_(0,i,1.))(R(2,3),torch.tensor([[0],[1]])), vmap(lambda x: x.fill_(2))(R(2,3)),vmap(lambda x: x.zero_())(R(2,3)),vmap(lambda x,y: x.copy_(y))(R(2,3),R(2,1)), vmap(lambda x,y: x.fill_(y))(R(2,3),R(2))

r=vmap(torch.nn.functional.layer_norm,in_dims=(0,None))(R(2,3,4),(4,))

r=vmap(vmap(vmap(lambda x,y:x*y,in_dims=(0,None)),in_dims=(None,0)))(R(2,3),R(2,4))

r=vmap(lambda x: torch.tensor(1.)*x)(R(3)), vmap(lambda x: torch.arange(3)*x)(R(3)), vmap(lambda x: [x, {'a':x}])(R(3))

r=vmap(lambda x: None)(R(3))

r=vmap(lambda x: 'a')(R(3))

r=vmap(lambda x: x, out_dims=3)(R(3))

r=vmap(lambda x: (x,x), out_dims=(0,))(R(3))

r=vmap(lambda x: x, in_dims=5)(R(3))

r=vmap(lambda x,y: x, in_dims=[0,0])(R(3),R(3))

r=vmap(lambda x: x, in_dims=-2)(R(3))

r=vmap(lambda x: x, in_dims=-1)(R(3,2))

r=vmap(lambda x: x.sum(-1).shape[0]*x)(R(3,2,4))

x=R(3,4); r=vmap(lambda a: a.T@a)(R(2,3,4)), torch.func.vmap(lambda a:a.to(torch.float32))(x), vmap(lambda a: a.type(torch.float32))(x), vmap(lambda a:a.cpu())(x), vmap(lambda a:a.contiguous())(x)

r=vmap(vjp(torch.sin,R(3))[1])(R(2,3))

x=R(3,2); r=vmap(lambda a:a.stride())(x) if False else vmap(lambda a: a.new_empty(2).zero_())(x), vmap(lambda a: a.new_zeros(2,3))(x), vmap(lambda a: a.new_tensor([1.,2.]))(x)

r=vmap(lambda x: x.unfold(0,2,1))(R(3,4)), vmap(lambda x:x.diag_embed())(R(2,3)), vmap(lambda x: torch.trace(x))(R(2,3,3)), vmap(torch.slogdet)(R(2,3,3))

r=vmap(lambda x: x.ravel())(R(2,3,4)), vmap(lambda x:x.T)(R(2,3,4)), vmap(lambda x: x.numpy_T if False else x.mT)(R(2,3,4))

r=vmap(lambda x: x.tensor_split(2))(R(2,5)), vmap(lambda x: x.split([2,3]))(R(2,5)), vmap(lambda x:x.chunk(3,-1))(R(2,5)), vmap(lambda x: x.unbind())(R(2,3))

r=vmap(torch.stack)( (R(2,3),R(2,3)) ), vmap(lambda *x: torch.cat(x))(R(2,3),R(2,4)), vmap(lambda x,y: torch.cat([x,y]),in_dims=(0,None))(R(2,3),R(4))

r=vmap(lambda x: x.sum(()).shape == () and x.mean([0,1]))(R(2,3,4)), vmap(lambda x: x.argmax(-1))(R(2,3,4)), vmap(lambda x:x.logsumexp(-1))(R(2,3,4))

r=vmap(lambda x: x.expand(3,*x.shape))(R(2,3)), vmap(lambda x,y: x.expand_as(y))(R(2,1),R(2,3)), vmap(lambda x,y:x.view_as(y))(R(2,4),R(2,2,2)), vmap(lambda x,y:x.reshape_as(y))(R(2,4),R(2,2,2))

r=vmap(lambda x: torch.full_like(x,2.))(R(2,3)), vmap(lambda x: torch.empty_like(x).fill_(1))(R(2,3)), vmap(lambda x: torch.ones(x.shape,dtype=x.dtype)*x)(R(2,3))

r=vmap(torch.nn.functional.conv2d,in_dims=(0,None))(R(2,1,3,5,5),R(4,3,3,3)), vmap(torch.nn.functional.conv2d,in_dims=(None,0))(R(1,3,5,5),R(2,4,3,3,3)), vmap(lambda x,w,b: F.conv2d(x,w,b,padding=1,stride=2))(R(2,1,3,5,5),R(2,4,3,3,3),R(2,4))

r=vmap(lambda x: F.max_pool2d(x,2))(R(2,1,3,4,4)), vmap(lambda x: F.avg_pool2d(x,2))(R(2,1,3,4,4)), vmap(lambda x:F.adaptive_avg_pool2d(x,1))(R(2,1,3,4,4))

m=torch.nn.BatchNorm1d(3).double(); r=vmap(lambda x: m(x))(R(2,4,3))

from collections import OrderedDict
r=vmap(lambda d: OrderedDict((k,v*2) for k,v in d.items()))(OrderedDict(a=R(2),b=R(2)))

r=vmap(lambda x: [x,(x,{'a':x})], out_dims=[0,(0,{'a':-1})])(R(2,3))

r=vmap(lambda x: (x,[x,x]), out_dims=(0,1))(R(2,3))

r=vmap(lambda x,y: x+y, in_dims=(0,0), chunk_size=3)(R(7,2),R(7,2)), vmap(lambda x,y: x+y, in_dims=(1,None), out_dims=1, chunk_size=2)(R(2,5),R(2))

r=vmap(torch.sin, in_dims=0, out_dims=0, randomness='nope')(R(2))

r=vmap(lambda x: x[0], in_dims=(0,))([R(2)])

r=vmap(lambda x: x[0], in_dims=([0],))([R(2)])

r=vmap(lambda x,y: x, in_dims=(0,'a'))(R(2),R(2))

m=torch.nn.BatchNorm1d(3).double(); r=vmap(lambda x: m(x))(R(2,4,3))

r=vmap(lambda x: torch.histc(x,3,0.,1.))(torch.rand(2,5).double()*0+.5)

r=vmap(lambda x: x.cummax(0)[0])(R(2,4)), vmap(lambda x: x.renorm(2,0,1.))(R(2,3,4)), vmap(lambda x:x.index_copy(0,torch.tensor([1]),x[:1]))(R(2,3))

r=vmap(torch.outer)(R(2,3),R(2,4)), vmap(torch.addr)(R(2,3,4),R(2,3),R(2,4)), vmap(torch.cross)(R(2,3),R(2,3)), vmap(torch.kron)(R(2,2),R(2,3))

r=vmap(lambda x,y: torch.equal(x,y))(R(2,3),R(2,3))

r=vmap(lambda x: int(x))(R(2))

r=vmap(lambda x: x.sum().tolist())(R(2,3))

r=vmap(lambda x: 1 if x else 2)(R(2))

r=vmap(lambda x: x in [1,2])(R(2))

r=vmap(lambda x: torch.tensor([x,x]))(R(2))

r=vmap(lambda x: torch.arange(x))(torch.tensor([1,2]))

r=vmap(lambda x: range(x))(torch.tensor([1,2]))

r=vmap(lambda x,y: x[:y])(R(2,3),torch.tensor([1,2]))

r=vmap(lambda x: np.sin(x))(R(2))

r=vmap(lambda x: np.asarray(x))(R(2))

r=[t.shape for t in vmap(lambda x: list(x))(R(2,3))], vmap(lambda x: sum(x))(R(2,3)), vmap(lambda x: x.tolist if False else x+len(x))(R(2,3))

r=vmap(lambda x: torch.as_tensor(x))(R(2)), vmap(lambda x: x.new_tensor(3.))(R(2)), vmap(lambda x: torch.scalar_tensor(2.)*x)(R(2))

r=torch.func.vmap(lambda x,y: (x,y), in_dims=(0,None), out_dims=(0,None))(R(2),R(2))

x=torch.arange(6.).reshape(2,3); r=vmap(lambda a: a.sum(), in_dims=1)(x), torch.vmap(lambda a: a*2, 1, 1)(x)

r=vmap(lambda a: a.half().float())(R(2).float()), vmap(lambda a: torch.sin(a.bfloat16()).float())(R(2,3).float())

# nothing in a matrix, or in a vector
r = [vmap(torch.matmul, dims)(torch.zeros(a), torch.zeros(b)).shape for dims, a, b in (((0, None), (3, 0, 0), (5, 0, 0)), ((0, 0), (3, 0, 2), (3, 5, 2, 0)), ((0, None), (3, 5, 0, 0), (0, 0)))]

x = torch.zeros(3, 2, 0, 0)
r = [vmap(f)(x) for f in (torch.linalg.inv, torch.linalg.cholesky, torch.cholesky_inverse, torch.linalg.qr)]
r = r + [vmap(lambda x, f=f: vjp(f, x)[1](x))(x) for f in (torch.linalg.inv, torch.linalg.cholesky, torch.linalg.eigvalsh, torch.linalg.svdvals)]

x = R(3, 2, 2)
r = [vmap(lambda a, b: torch.cat([a, b], 1), dims)(a, x) for dims, a in (((0, 0), torch.zeros(3, 0)), ((None, 0), torch.zeros(0)))] + [vmap(grad(lambda x: torch.cat([torch.zeros(0), x], 1).sum()))(x)]

# numbers that differ between examples decide
r = [vmap(lambda i: torch.unravel_index(i, (7, 6)))(torch.tensor([[1, 41], [83, -5]])), vmap(lambda x: torch.nonzero_static(x, size=3))(torch.tensor([[1, 0, 2], [0, 0, 3]]))]

a = torch.tensor([[3, 5], [0, 7]], dtype=torch.uint8)
r = [vmap(lambda a, b: torch.isclose(a, b, atol=3.0))(a, a.flip(0)), vmap(torch.isclose)(a > 3, a > 4)]

x = torch.stack([torch.eye(3) * 2, -torch.eye(3), torch.ones(3, 3)]).double()
r = [vmap(f)(x)[-1] if f is not torch.linalg.cholesky_ex else vmap(f)(x)[1] for f in (torch.linalg.cholesky_ex, torch.linalg.inv_ex)]

r = [t.shape for t in (vmap(lambda x: torch.multinomial(x, 3), randomness="different")(torch.ones(2, 4, 5)), vmap(vmap(lambda x: torch.multinomial(x, 3)), randomness="different")(torch.ones(2, 4, 5)))]

vmap(lambda x: torch.multinomial(x, 3), randomness="different")(torch.ones(2, 4, 5, 6))

r = vmap(lambda x: vjp(lambda x: x.bernoulli(), x)[1](x), randomness="different")(R(3, 2) * 0 + 0.5)

w, i = R(2, 3, 4), torch.tensor([0, 2])
r = [vmap(lambda i, w: F.embedding(i, w.clone(), max_norm=1.0, norm_type=p), (None, 0))(i, w) for p in (2.0, 1.0)] + [vmap(lambda i, w: F.embedding(i, w.clone(), max_norm=1.0))(i[:, None], w)]

def tracked(x, mean, variance):
    out = F.instance_norm(x, mean, variance, momentum=0.3)
    return out, mean, variance
r = vmap(tracked)(R(2, 3, 4, 5), torch.zeros(2, 4).double(), torch.ones(2, 4).double())

p = R(2, 5, 1, 3).log_softmax(-1)
r = vmap(F.ctc_loss)(p, torch.tensor([[[1, 2]], [[2, 1]]]), torch.tensor([[5], [4]]), torch.tensor([[1], [2]]))

r = vmap(lambda d, n: torch.segment_reduce(d, "sum", lengths=n))(R(2, 4), torch.tensor([[1, 3], [2, 2]]))

x = R(3, 2)
r = [vmap(lambda x, n: vjp(torch.special.chebyshev_polynomial_t, x, n)[1](x))(x, x.abs()), vmap(torch.special.hermite_polynomial_h)(x, x.abs() * 3)]

x, n = torch.tensor([[[3, 1, 3], [0, 2, 2]], [[1, 1, 1], [2, 2, 0]]]), torch.tensor([[[2, 0, 1], [1, 1, 1]], [[3, 0, 0], [0, 1, 2]]])
r = [vmap(vmap(f))(x) for f in (lambda x: torch.bincount(x, minlength=4), lambda x: torch.nonzero_static(x, size=2), lambda x: torch.histc(x.double(), 3))] + [vmap(vmap(f))(x, n) for f in (lambda x, n: torch.repeat_interleave(x, n, output_size=3), lambda x, i: torch.index_reduce(x, 0, i.clamp(max=2), x, "amax"))]

r = [vmap(vmap(torch.linalg.matrix_rank))(R(2, 3, 2, 2)), vmap(vmap(torch.quantile))(R(2, 3, 4), R(2, 3).sigmoid()), vmap(lambda x, a: torch.linalg.pinv(x, atol=a))(R(2, 3, 3), torch.tensor([0.0, 1.0]).double())]
""")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_as_pytorch(program):
    check(program)


# Every operation ------------------------------------------------------------------------------------------------


class Case:
    "One sample of an operation, drawn for three examples."

    def __init__(self, op, number, sample):
        self.op, self.id = op, f"{op.name}-{number}"
        self.statics = {**op.statics, **(sample[-1] if isinstance(sample[-1], dict) else {})}
        self.inputs = [s for s in sample if not isinstance(s, dict)]
        self.rows = [[s(rng) for s in self.inputs] for rng in map(np.random.default_rng, range(3))]
        self.floating = [i for i, s in enumerate(self.inputs) if isinstance(s, N) and (op.variadic or i in op.rules)]

    def outputs(self, *tensors):
        "The results with gradients first in mind: a tuple."
        out = self.op.general(*tensors, **self.statics)
        return out if isinstance(out, tuple) else (out,)

    def differentiable(self, *tensors):
        chosen = self.op.differentiable
        return tuple(o for i, o in enumerate(self.outputs(*tensors)) if (chosen is None or i in chosen) and o.dtype.category in ("float", "complex"))

    def masks(self):
        "Which inputs are batched: all of them, or one alone."
        n = len(self.inputs)
        return [(True,) * n] + [tuple(i == j for i in range(n)) for j in range(n) if n > 1]

    def batch(self, mask):
        return [torch.from_numpy(np.stack([r[i] for r in self.rows]) if m else np.array(self.rows[0][i])) for i, m in enumerate(mask)]

    def example(self, k, mask):
        return [torch.from_numpy(np.array(self.rows[k if m else 0][i])) for i, m in enumerate(mask)]


CASES = [Case(op, k, s) for op in REGISTRY.values() for k, s in enumerate(op.samples)]
DIFFERENTIABLE = [c for c in CASES if c.floating and c.op.rules]


def agree(found, expected):
    "A batched result and a list of single ones."
    np.testing.assert_allclose(found.detach().numpy(), np.stack([e.detach().numpy() for e in expected]), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_operation_over_a_batch_is_a_loop(case):
    for mask in case.masks():
        found = vmap(case.outputs, in_dims=tuple(0 if m else None for m in mask))(*case.batch(mask))
        expected = [case.outputs(*case.example(k, mask)) for k in range(3)]
        for j, f in enumerate(found):
            agree(f, [e[j] for e in expected])


def pulled(case):
    "The gradients of all floating inputs, as a function of all inputs."

    def gradients(*tensors):
        def chosen(*some):
            everything = list(tensors)
            for i, x in zip(case.floating, some):
                everything[i] = x
            return case.differentiable(*everything)

        outs, pull = vjp(chosen, *[tensors[i] for i in case.floating])
        return pull(tuple(torch.ones_like(o) * 1.5 for o in outs))

    return gradients


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda c: c.id)
def test_gradient_of_each_example(case):
    mask = case.masks()[0]
    found = vmap(pulled(case))(*case.batch(mask))
    expected = [pulled(case)(*case.example(k, mask)) for k in range(3)]
    for j, f in enumerate(found):
        agree(f, [e[j] for e in expected])


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda c: c.id)
def test_several_starting_gradients_at_once(case):
    xs = case.example(0, case.masks()[0])
    outs, pull = vjp(lambda *some: case.differentiable(*[some[case.floating.index(i)] if i in case.floating else x for i, x in enumerate(xs)]), *[xs[i] for i in case.floating])
    starts = tuple(torch.ones_like(o) for o in outs)
    found = vmap(lambda *s: pull(s))(*[torch.stack([s, s * 2]) for s in starts])
    expected = [pull(starts), pull(tuple(s * 2 for s in starts))]
    for j, f in enumerate(found):
        agree(f, [e[j] for e in expected])


# Ours alone -----------------------------------------------------------------------------------------------------


def test_an_escaped_example_explains_itself():
    kept = []
    vmap(lambda x: kept.append(x) or x)(torch.ones(2))
    with pytest.raises(RuntimeError, match="may have escaped from inside a function being vmapped.*Return it from the function"):
        kept[0] + 1


def test_a_function_that_looks_at_numbers_runs_example_by_example_and_says_so():
    x = torch.tensor([[1.0, 2.0, 2.0], [0.0, 0.0, 3.0]])
    with pytest.warns(UserWarning, match="performance drop"):
        found = vmap(lambda v: torch.histc(v, 3, 0, 3))(x)
    assert found.tolist() == [[0.0, 1.0, 2.0], [2.0, 0.0, 1.0]]


def test_shared_weights_stay_unbatched_going_forward():
    "A product of each example with one matrix is one matrix product."
    seen, w, x = [], torch.ones(4, 3), torch.ones(5, 3)
    with observe(lambda applied: seen.append([tuple(t.shape) for t in applied.inputs if t is not None])):
        vmap(lambda v: torch.nn.functional.linear(v, w))(x)
    assert [(5, 3), (4, 3)] in seen


def test_memory_returns_without_the_garbage_collector():
    import gc
    import weakref

    gc.collect()
    gc.disable()
    try:
        x = torch.ones(3, 4)
        ref = weakref.ref(x)
        grad(lambda v: vmap(lambda r: (r * r).sum())(v).sum())(x)
        vmap(grad(lambda r: (r * r).sum()))(x)
        del x
        assert ref() is None
    finally:
        gc.enable()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("size, stride, start", [((2,), (1,), None), ((2, 3), (4, 1), 0), ((2, 2), (1, 4), 1), ((2, 2), (5, 3), 1), ((), (), 3), ((4,), (3,), 2), ((3, 2, 2), (4, 2, 1), None)])
@pytest.mark.parametrize("turned", [False, True])
def test_writes_through_strides_reach_each_example(size, stride, start, turned):
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        x = lib.arange(1.0, 25.0, dtype=lib.float64).reshape(2, 3, 4)
        if turned:
            x = x.mT.contiguous().mT

        def written(x):
            y = x * 1
            y.as_strided(size, stride, start).mul_(3)
            return y

        def loss(x):
            return (written(x) ** 2).sum()

        vmap, grad, jvp = (getattr(lib.func, name) for name in ("vmap", "grad", "jvp"))
        pushed = vmap(lambda x, jvp=jvp: jvp(written, (x,), (x * 2,))[1])(x)
        found.append([v.tolist() for v in (vmap(written)(x), vmap(vmap(written))(lib.stack([x, x])), vmap(grad(loss))(x), pushed)])
    assert found[0] == found[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("have", [(2, 3, 1), (2, 1, 4)])
@pytest.mark.parametrize("size, stride", [((2,), (1,)), ((2,), (2,)), ((2, 2), (0, 1)), ((), ())])
def test_strides_of_an_expanded_example_count_its_memory(have, size, stride):
    "Which holds once what the example repeats."
    import torch as theirs

    found = []
    for lib in (theirs, torch):
        x = lib.arange(1.0, 1 + np.prod(have), dtype=lib.float64).reshape(have)

        def loss(x):
            return (x.expand(3, 4).as_strided(size, stride) ** 2).sum()

        shown = lib.func.vmap(lambda x: x.as_strided(size, stride))(x.expand(2, 3, 4))
        found.append([shown.tolist(), lib.func.vmap(lib.func.grad(loss))(x).tolist()])
    assert found[0] == found[1]


READ = {
    "quantile": (lambda t, f: lambda x, q: t.quantile(x, q), "x q"), "its parts, one row": (lambda t, f: lambda x, q: t.nanquantile(x, q, interpolation="lower"), "x q"),
    "along a dimension": (lambda t, f: lambda x, q: t.quantile(x.reshape(2, 2), q, dim=0).sum(), "x q"), "products": (lambda t, f: lambda x, q: (t.quantile(x * x, q) * x).sum(), "x q"),
    "repeats": (lambda t, f: lambda x, n: (x.repeat_interleave(n, output_size=4) ** 2).sum(), "x n"), "largest at places": (lambda t, f: lambda x, i: x.index_reduce(0, i, t.full((2,), 3.0), "amax").sum(), "x i"),
    "segments": (lambda t, f: lambda x, l: t.segment_reduce(x, "sum", lengths=l).pow(2).sum(), "x l"), "labels": (lambda t, f: lambda x, y: f.multilabel_margin_loss(x, y), "x y"),
}  # fmt: skip


def followed_and_read(lib, kind):
    "The derivatives of one of the functions above, for each example."
    make, names = READ[kind]
    function, f = make(lib, lib.nn.functional), lib.func
    given = dict(
        x=lib.arange(12.0).reshape(3, 4).sin(), q=lib.tensor([0.1, 0.5, 0.9]), n=lib.tensor([[1, 2, 0, 1], [0, 0, 4, 0], [1, 1, 1, 1]]), i=lib.tensor([[0, 1], [1, 1], [2, 3]]),
        l=lib.tensor([[1, 3], [2, 2], [4, 0]]), y=lib.tensor([[1, -1, 0, 0], [0, 2, -1, 0], [3, 1, 2, -1]]),
    )  # fmt: skip
    x, r = (given[n] for n in names.split())
    found = [f.vmap(f.grad(function))(x, r), f.vmap(lambda r: f.grad(lambda x: function(x[1], r))(x))(r), f.vmap(f.jacrev(function))(x, r)]
    if kind not in ("segments", "labels", "largest at places"):  # there PyTorch has no forward derivative
        found += [*f.vmap(lambda x, r: f.jvp(lambda x: function(x, r), (x,), (x.cos(),)))(x, r), f.vmap(f.vmap(f.grad(function), (None, 0)), (0, None))(x, r)]
    if kind == "products":
        found.append(f.vmap(f.hessian(function))(x, r))
    return found


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", READ)
def test_what_is_read_for_each_example_below_an_inner_derivative(kind):
    "The function runs for the argument of each example, whichever derivative follows the others."
    import torch as theirs

    for a, b in zip(followed_and_read(theirs, kind), followed_and_read(torch, kind)):
        np.testing.assert_allclose(np.array(b.tolist()), np.array(a.tolist()), atol=1e-5)


def test_gradients_of_examples_have_memory_of_their_own():
    "What does not depend on the example is a gradient for each of them all the same: one may be written to without the others."
    import autograd_nb.nn.functional as F

    weight, bias, x = torch.randn(3, 4), torch.randn(3), torch.randn(5, 4)
    loss = lambda weight, bias, x: F.linear(x[None], weight, bias).sum()
    of_weight, of_bias = vmap(grad(loss, (0, 1)), (None, None, 0))(weight, bias, x)
    of_bias[0] += 1
    assert of_bias[:, 0].tolist() == [2, 1, 1, 1, 1]
    of_sum = vmap(grad(lambda x: (x[None] * 2).sum()))(x)
    of_sum[0] = 0
    assert of_sum[1:].eq(2).all()
    with pytest.raises(ValueError, match="can not return a BatchedTensor when out_dim is None"):
        vmap(grad(loss, 1), (None, None, 0), out_dims=None)(weight, bias, x)
