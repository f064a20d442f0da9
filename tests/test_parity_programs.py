"""Small programs as a course on PyTorch writes them: the same source, run with `torch` and with `autograd_nb as torch`, prints the same.

Each program starts with a line `### its name`. Available besides `torch` and `np`: `attempt(f)` prints what f() returns or how it fails (the
type and the first words of the message), `graph(t)` the nodes behind a tensor.
"""

import pytest
from _compare import assert_same_output


pytestmark = pytest.mark.needs("torch")

PROGRAMS = r'''
### linear regression by hand
x = torch.linspace(0, 1, 11); y = 3 * x + 2
w = torch.zeros(1, requires_grad=True); b = torch.zeros(1, requires_grad=True)
for step in range(50):
    loss = ((w * x + b - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.5 * w.grad
        b -= 0.5 * b.grad
        w.grad.zero_()
        b.grad.zero_()
print(w, b, loss.item(), w.grad)

### linear regression with data
w = torch.tensor([0.5, -1.0], requires_grad=True)
x = torch.tensor([[1., 2.], [3., 4.], [5., 6.]]); y = torch.tensor([1., 2., 3.])
for _ in range(5):
    loss = (x @ w - y).pow(2).sum()
    loss.backward()
    w.data -= 0.01 * w.grad.data
    w.grad = None
print(w, loss)

### first example
x = torch.tensor(2.0, requires_grad=True)
y = (3 * x + 2) ** 2
y.backward()
print(y, x.grad, y.grad_fn.name(), graph(y))

### micrograd expression
a = torch.tensor(-4.0, requires_grad=True); b = torch.tensor(2.0, requires_grad=True)
c = a + b; d = a * b + b ** 3
c = c + c + 1; c = c + 1 + c + (-a)
d = d + d * 2 + (b + a).relu(); d = d + 3 * d + (b - a).relu()
e = c - d; f = e ** 2
g = f / 2.0; g = g + 10.0 / f
g.backward()
print(g.item(), a.grad, b.grad); print(graph(g))

### neuron with tanh
x1 = torch.Tensor([2.0]).double(); x1.requires_grad = True
x2 = torch.Tensor([0.0]).double(); x2.requires_grad = True
w1 = torch.Tensor([-3.0]).double(); w1.requires_grad = True
w2 = torch.Tensor([1.0]).double(); w2.requires_grad = True
b = torch.Tensor([6.8813735870195432]).double(); b.requires_grad = True
n = x1 * w1 + x2 * w2 + b
o = torch.tanh(n)
print(o.data.item()); o.backward()
print(x2.grad.item(), w2.grad.item(), x1.grad.item(), w1.grad.item(), o, x1)

### mlp by hand
torch.manual_seed(1)
x = torch.randn(4, 3); t = torch.randn(4, 2)
W1 = torch.randn(3, 5, requires_grad=True); b1 = torch.zeros(5, requires_grad=True)
W2 = torch.randn(5, 2, requires_grad=True); b2 = torch.zeros(2, requires_grad=True)
for _ in range(3):
    h = torch.relu(x @ W1 + b1)
    out = h @ W2 + b2
    loss = ((out - t) ** 2).mean()
    for p in (W1, b1, W2, b2): p.grad = None
    loss.backward()
    with torch.no_grad():
        for p in (W1, b1, W2, b2): p -= 0.1 * p.grad
    print(loss)
print(W1.grad, b2.grad, graph(loss))

### mlp with clamp as in the tutorial
N, D_in, H, D_out = 4, 6, 5, 2
x = torch.randn(N, D_in); y = torch.randn(N, D_out)
w1 = torch.randn(D_in, H, requires_grad=True); w2 = torch.randn(H, D_out, requires_grad=True)
for t in range(4):
    y_pred = x.mm(w1).clamp(min=0).mm(w2)
    loss = (y_pred - y).pow(2).sum()
    print(t, loss.item())
    loss.backward()
    with torch.no_grad():
        w1 -= 1e-3 * w1.grad; w2 -= 1e-3 * w2.grad
        w1.grad.zero_(); w2.grad.zero_()
print(graph(loss))

### polynomial fit of sine
import math
x = torch.linspace(-math.pi, math.pi, 200, dtype=torch.float64); y = torch.sin(x)
a, b, c, d = (torch.full((), v, dtype=torch.float64, requires_grad=True) for v in (0.1, -.2, .3, .4))
for t in range(20):
    y_pred = a + b * x + c * x ** 2 + d * x ** 3
    loss = (y_pred - y).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= 1e-6 * p.grad
            p.grad = None
print(f'y = {a.item():.6f} + {b.item():.6f} x + {c.item():.6f} x^2 + {d.item():.6f} x^3')

### autograd basics of the tutorial
x = torch.ones(5); y = torch.zeros(3)
w = torch.randn(5, 3, requires_grad=True); b = torch.randn(3, requires_grad=True)
z = torch.matmul(x, w) + b
p = torch.sigmoid(z)
loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
print(f'Gradient function for z = {z.grad_fn.name()}', loss.grad_fn.name())
loss.backward(); print(w.grad); print(b.grad)
print(z.requires_grad)
with torch.no_grad(): z = torch.matmul(x, w) + b
print(z.requires_grad, z.detach().requires_grad)

### accumulation of jacobian products
inp = torch.eye(4, 5, requires_grad=True)
out = (inp + 1).pow(2).t()
out.backward(torch.ones_like(out), retain_graph=True); print(f'First call\n{inp.grad}')
out.backward(torch.ones_like(out), retain_graph=True); print(f'\nSecond call\n{inp.grad}')
inp.grad.zero_()
out.backward(torch.ones_like(out), retain_graph=True); print(f'\nCall after zeroing gradients\n{inp.grad}')

### ensemble example of the blitz tutorial
a = torch.tensor([2., 3.], requires_grad=True); b = torch.tensor([6., 4.], requires_grad=True)
Q = 3 * a ** 3 - b ** 2
print(Q); Q.backward(gradient=torch.tensor([1., 1.]))
print(9 * a ** 2 == a.grad); print(-2 * b == b.grad); print(graph(Q))

### doubling until large
torch.manual_seed(3)
x = torch.randn(3, requires_grad=True); y = x * 2
while y.data.norm() < 1000: y = y * 2
y.backward(torch.tensor([0.1, 1.0, 0.0001], dtype=torch.float)); print(y, x.grad)

### control flow
def f(x):
    if x.sum() > 0: return x * 2
    return x.abs().sqrt()
for v in (1.0, -4.0):
    x = torch.tensor([v], requires_grad=True); y = f(x); y.sum().backward(); print(y, x.grad)

### leaf facts
a = torch.ones(2, requires_grad=True); b = a * 2; c = b.detach(); d = torch.ones(2)
for t in (a, b, c, d): print(t.is_leaf, t.requires_grad, t.grad_fn is None, t.output_nr, t.retains_grad)
d.requires_grad_(); print(d.is_leaf, d.requires_grad, d); print(a.grad, b.grad)

### detach cuts
x = torch.tensor([1., 2.], requires_grad=True)
y = (x * 2).detach() * x; y.sum().backward(); print(y, x.grad)

### retain_grad
x = torch.tensor([1., 2.], requires_grad=True); y = x * 3; y.retain_grad(); y.retain_grad()
z = (y ** 2).sum(); z.backward(); print(y.grad, x.grad, y.retains_grad)
attempt(torch.ones(2).retain_grad)

### hooks change gradients
x = torch.tensor([1., 2., 3.], requires_grad=True); y = x ** 2
h = y.register_hook(lambda g: g * 10); log = []
x.register_hook(lambda g: log.append(g.clone()))
y.sum().backward(); print(x.grad, log); h.remove(); h.remove()
x.grad = None; (x ** 2).sum().backward(); print(x.grad, len(log))

### hook order and clipping
x = torch.tensor([1., 2.], requires_grad=True); order = []
x.register_hook(lambda g: order.append(('a', g.tolist())) or g + 1)
x.register_hook(lambda g: order.append(('b', g.tolist())) or g.clamp(max=2.5))
x.register_post_accumulate_grad_hook(lambda t: order.append(('post', t.grad.tolist())))
(x * 3).sum().backward(); print(order, x.grad)

### node hooks
x = torch.tensor([1., 2.], requires_grad=True); y = x * torch.tensor([3., 4.], requires_grad=True); log = []
y.grad_fn.register_hook(lambda gi, go: log.append((gi, go)))
y.grad_fn.register_prehook(lambda go: (go[0] * 2,))
y.sum().backward(); print(log, x.grad)

### hook errors
x = torch.ones(2)
attempt(x.register_hook, print)
y = torch.ones(2, requires_grad=True) * 2
y.register_hook(lambda g: 3)
attempt(lambda: y.sum().backward())
attempt(y.register_post_accumulate_grad_hook, print)

### accumulation without zero_grad
x = torch.tensor(3., requires_grad=True)
for _ in range(3): (x ** 2).backward(); print(x.grad)
x.grad.zero_(); print(x.grad); x.grad = None; print(x.grad)

### grad function
x = torch.tensor([1., 2.], requires_grad=True); y = torch.tensor([3., 4.], requires_grad=True)
out = (x * y).sum(); print(torch.autograd.grad(out, [x, y], retain_graph=True)); print(x.grad)
print(torch.autograd.grad(out, x)); attempt(torch.autograd.grad, out, x)

### grad of unused
x = torch.tensor([1., 2.], requires_grad=True); y = torch.tensor([3., 4.], requires_grad=True)
attempt(lambda: torch.autograd.grad((x * 2).sum(), [x, y]))
print(torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=True))
print(torch.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True))
attempt(lambda: torch.autograd.grad((x * 2).sum(), [x, y], allow_unused=False, materialize_grads=True))
attempt(lambda: torch.autograd.grad((x * 2).sum(), torch.ones(2)))
attempt(lambda: torch.autograd.grad(torch.ones(()), x))
attempt(lambda: torch.autograd.grad((x * 2).sum(), torch.ones(2), allow_unused=True))

### grad of intermediate
x = torch.tensor([1., 2.], requires_grad=True); y = x * 3; z = (y ** 2).sum()
print(torch.autograd.grad(z, y, retain_graph=True), torch.autograd.grad(z, (y, x)))

### several outputs and grad_outputs
x = torch.tensor([1., 2.], requires_grad=True)
print(torch.autograd.grad([x * 2, x * 3], x, [torch.ones(2), torch.tensor([1., 10.])]))
torch.autograd.backward([x.sum(), (x * 5).sum()]); print(x.grad)
torch.autograd.backward([x * 2, x.sum()], [torch.ones(2), None]); print(x.grad)

### batched grads
x = torch.tensor([1., 2., 3.], requires_grad=True); y = x ** 2
print(torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True))

### backward with inputs
x = torch.tensor(2., requires_grad=True); y = torch.tensor(3., requires_grad=True)
z = x * y; z.backward(inputs=[x]); print(x.grad, y.grad)
z = x * y; z.backward(inputs=y); print(x.grad, y.grad)
attempt(lambda: (x * y).backward(inputs=[]))

### second derivative
x = torch.tensor(3., requires_grad=True); y = x ** 3
g, = torch.autograd.grad(y, x, create_graph=True); print(g)
g2, = torch.autograd.grad(g, x, create_graph=True); print(g2)
print(torch.autograd.grad(g2, x))

### second derivative through backward
x = torch.tensor([1., 2.], requires_grad=True)
(x ** 3).sum().backward(create_graph=True); print(x.grad)
g = x.grad; x.grad = None
g.sum().backward(); print(x.grad)

### ten derivatives of sine
x = torch.tensor(0.5, dtype=torch.float64, requires_grad=True); y = torch.sin(x)
for _ in range(10):
    y, = torch.autograd.grad(y, x, create_graph=True); print(f'{y.item():.6f}')

### gradient penalty
x = torch.tensor([[1., 2.], [3., 4.]], requires_grad=True); w = torch.tensor([[1.], [2.]], requires_grad=True)
out = torch.sigmoid(x @ w)
g, = torch.autograd.grad(out.sum(), x, create_graph=True)
penalty = ((g.norm(2, dim=1) - 1) ** 2).mean(); penalty.backward(); print(g, penalty, w.grad)

### jacobian by a loop
x = torch.tensor([1., 2., 3.], requires_grad=True)
y = torch.stack([x[0] * x[1], x[1] * x[2], x.prod()])
J = torch.stack([torch.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(3)]); print(J)

### hessian by a loop
x = torch.tensor([1., 2., 3.], requires_grad=True)
f = (x ** 2).prod() + x.exp().sum()
g, = torch.autograd.grad(f, x, create_graph=True)
print(torch.stack([torch.autograd.grad(g[i], x, retain_graph=True)[0] for i in range(3)]))

### newton's method
x = torch.tensor(3.0, requires_grad=True)
for _ in range(6):
    f = x ** 4 - 3 * x ** 3 + 2
    g, = torch.autograd.grad(f, x, create_graph=True)
    h, = torch.autograd.grad(g, x)
    with torch.no_grad(): x -= g / h
print(x)

### hessian-vector product
x = torch.tensor([1., 2.], requires_grad=True); v = torch.tensor([1., -1.])
f = (x[0] ** 2 * x[1] + x[1].exp())
g, = torch.autograd.grad(f, x, create_graph=True)
print(torch.autograd.grad((g * v).sum(), x))

### meta-learning step
w = torch.tensor([1., 2.], requires_grad=True); x = torch.tensor([[1., 0.], [1., 1.]])
inner = ((x @ w) ** 2).mean()
g, = torch.autograd.grad(inner, w, create_graph=True)
fast = w - 0.1 * g
outer = ((x @ fast - 1) ** 2).mean(); outer.backward(); print(fast, outer, w.grad)

### no_grad decorator
@torch.no_grad()
def f(x): return x * 2
@torch.no_grad
def g(x): return x * 2
@torch.enable_grad()
def h(x): return x * 2
x = torch.ones(2, requires_grad=True); print(f(x), g(x), h(x))
with torch.no_grad():
    print(h(x), f(x), torch.is_grad_enabled())
    with torch.enable_grad(): print(x * 3)
print(torch.is_grad_enabled())

### set_grad_enabled
x = torch.ones(2, requires_grad=True)
with torch.set_grad_enabled(False): print((x * 2).requires_grad)
torch.set_grad_enabled(False); print((x * 2).requires_grad); torch.set_grad_enabled(True); print((x * 2).requires_grad)
@torch.set_grad_enabled(False)
def f(x): return x * 2
print(f(x).requires_grad, torch.is_grad_enabled())

### generators in no_grad
@torch.no_grad()
def numbers(x):
    for i in range(3): yield x * i
x = torch.ones(1, requires_grad=True)
for y in numbers(x): print(y, torch.is_grad_enabled(), (x * 2).requires_grad)

### inference mode
x = torch.ones(2, requires_grad=True)
with torch.inference_mode(): y = x * 2; print(y, torch.is_inference_mode_enabled(), y.is_inference())
attempt(lambda: y.requires_grad_())
attempt(lambda: y.clone().add_(1))
attempt(lambda: x * y)
print(y + 1, y.clone().is_inference()); attempt(lambda: y._version)

### no_grad leaf creation
with torch.no_grad():
    a = torch.ones(2, requires_grad=True); b = a * 2; c = torch.randn(2, requires_grad=True)
print(a.requires_grad, b.requires_grad, c.is_leaf)

### Function ReLU
class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)
    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input
x = torch.tensor([-1., 0., 2.], requires_grad=True); y = MyReLU.apply(x); y.sum().backward(); print(y, x.grad, graph(y))

### Function exp saves its result
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp(); ctx.save_for_backward(result); return result
    @staticmethod
    def backward(ctx, grad_output):
        result, = ctx.saved_tensors
        return grad_output * result
x = torch.tensor([0., 1.], requires_grad=True); y = Exp.apply(x)
g, = torch.autograd.grad(y.sum(), x, create_graph=True); print(y, g); print(torch.autograd.grad(g.sum(), x))

### Function straight through
class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return torch.round(x)
    @staticmethod
    def backward(ctx, g): return g
x = torch.tensor([0.4, 1.6], requires_grad=True); y = STE.apply(x) * 3; y.sum().backward(); print(y, x.grad)

### straight through by detach
x = torch.tensor([0.4, 1.6], requires_grad=True); y = x + (x.round() - x).detach(); (y * y).sum().backward(); print(y, x.grad)

### Function with several inputs and outputs
class MulAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, c, k=2.0):
        ctx.save_for_backward(a, b); ctx.k = k
        return a * b + c, a * k
    @staticmethod
    def backward(ctx, g1, g2):
        a, b = ctx.saved_tensors
        print(ctx.needs_input_grad)
        return g1 * b + g2 * ctx.k, g1 * a, g1, None
a, b = (torch.tensor([float(v)], requires_grad=True) for v in (2, 3)); c = torch.ones(1)
u, v = MulAdd.apply(a, b, c, 5.0); print(u, v, u.grad_fn is v.grad_fn, u.output_nr, v.output_nr)
(u * v).sum().backward(); print(a.grad, b.grad, c.grad)
u, v = MulAdd.apply(a, b, c); v.sum().backward(); print(a.grad, b.grad)

### Function with setup_context
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x): return x ** 3
    @staticmethod
    def setup_context(ctx, inputs, output):
        x, = inputs; ctx.save_for_backward(x)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 3 * x ** 2
x = torch.tensor([1., 2.], requires_grad=True); y = Cube.apply(x)
g, = torch.autograd.grad(y.sum(), x, create_graph=True); print(g); g.sum().backward(); print(x.grad)

### legendre polynomial of the tutorial
class P3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input ** 3 - 3 * input)
    @staticmethod
    def backward(ctx, grad_output):
        input, = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input ** 2 - 1)
x = torch.linspace(-1, 1, 5); a = torch.full((), 0.3, requires_grad=True); c = torch.full((), .2, requires_grad=True)
y = a + P3.apply(c + a * x); y.sum().backward(); print(y, a.grad, c.grad, graph(y))

### Function errors
class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b): return a * b
    @staticmethod
    def backward(ctx, g): return g
x = torch.ones(2, requires_grad=True)
attempt(lambda: Wrong.apply(x, x).sum().backward())
class Shape(Wrong):
    @staticmethod
    def backward(ctx, g): return torch.ones(3), None
attempt(lambda: Shape.apply(x, x).sum().backward())
class Kind(Wrong):
    @staticmethod
    def backward(ctx, g): return 1.0, None
attempt(lambda: Kind.apply(x, x).sum().backward())
class Extra(Wrong):
    @staticmethod
    def backward(ctx, g): return g, g
attempt(lambda: Extra.apply(x, 2.0).sum().backward())
class Empty(torch.autograd.Function): pass
attempt(lambda: Empty.apply(x))
class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a): return a * 2
attempt(lambda: NoBackward.apply(x).sum().backward())

### Function that marks
class Sort(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s, i = x.sort(); ctx.mark_non_differentiable(i); ctx.save_for_backward(i); return s, i
    @staticmethod
    def backward(ctx, g, gi):
        i, = ctx.saved_tensors; print(gi)
        return torch.zeros_like(g).scatter(0, i, g)
x = torch.tensor([3., 1., 2.], requires_grad=True); s, i = Sort.apply(x); print(s, i)
(s * torch.tensor([1., 2., 3.])).sum().backward(); print(x.grad)

### Function in place
class AddOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): x.add_(1); ctx.mark_dirty(x); return x
    @staticmethod
    def backward(ctx, g): return g * 7
a = torch.zeros(2, requires_grad=True); b = a * 1; c = AddOne.apply(b); print(c is b, c); c.sum().backward(); print(a.grad)
attempt(lambda: AddOne.apply(a))

### Function undefined gradients
class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.set_materialize_grads(False); return x * 1, x * 2
    @staticmethod
    def backward(ctx, a, b): print(a, b); return b * 2
x = torch.ones(2, requires_grad=True); a, b = Two.apply(x); b.sum().backward(); print(x.grad)

### once differentiable
from_torch = torch.autograd.function.once_differentiable
class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x ** 2
    @staticmethod
    @from_torch
    def backward(ctx, g): return g * 2 * ctx.saved_tensors[0]
x = torch.tensor([3.], requires_grad=True); g, = torch.autograd.grad(Once.apply(x), x, create_graph=True); print(g)
attempt(lambda: torch.autograd.grad(g, x))

### in place on a leaf
w = torch.ones(2, requires_grad=True)
attempt(lambda: w.add_(1)); attempt(lambda: w.zero_()); attempt(lambda: w.__setitem__(0, 1.)); attempt(lambda: w[0].mul_(2)); attempt(lambda: w.view(2, 1).add_(1))
with torch.no_grad(): w.add_(1); w[0] = 5.
print(w)
w += 1

### in place breaks saved values
x = torch.ones(2, requires_grad=True); y = x.exp(); y.add_(1)
attempt(lambda: y.sum().backward())
a = x * 2; b = a * a; a.add_(1); attempt(lambda: b.sum().backward())
a = x * 2; b = a + a; a.add_(1); b.sum().backward(); print(x.grad)
s = torch.sigmoid(x); s *= 2; attempt(lambda: s.sum().backward())

### in place that is fine
x = torch.tensor([1., 2.], requires_grad=True); y = x * 2; y.add_(1); y *= 3; y -= x; y /= 2
print(y, graph(y)); y.sum().backward(); print(x.grad)

### relu in place
x = torch.tensor([-1., 2.], requires_grad=True); y = x * 3; y.relu_(); y.sum().backward(); print(y, x.grad, y._version)

### versions
x = torch.zeros(3); print(x._version); x.add_(1); x[0] = 2; x.zero_(); print(x._version); v = x[1:]; v.add_(1); print(x._version, v._version, x.detach()._version, x.data._version, x)
y = x.clone(); print(y._version); x.copy_(y); x.fill_(3); print(x._version)

### views share memory
x = torch.arange(6.); v = x.view(2, 3); v[0, 0] = 10; x[5] = -1; print(x, v, v._base is x, x._base, v.T, v.T._base is x)
d = x.detach(); d[1] = 99; print(x); print(x.data_ptr() == d.data_ptr(), v.stride(), v.T.stride(), v[1].storage_offset(), v.T.is_contiguous())

### writing through a view of a non-leaf
x = torch.tensor([1., 2., 3., 4.], requires_grad=True); y = x * 1; v = y[1:3]; v.mul_(10); print(y, graph(y)); (y * y).sum().backward(); print(x.grad)

### writing into the base updates the view's history
x = torch.tensor([1., 2., 3.], requires_grad=True); y = x * 1; v = y[:2]; y.mul_(5); print(v); v.sum().backward(); print(x.grad)

### setitem with history
x = torch.tensor([1., 2., 3.], requires_grad=True); out = torch.zeros(3)
for i in range(3): out[i] = x[i] ** 2 * (i + 1)
print(out); out.sum().backward(); print(x.grad)

### filling a matrix in a loop
w = torch.tensor([1., 2.], requires_grad=True); m = torch.zeros(2, 2)
for i in range(2):
    for j in range(2): m[i, j] = w[i] * w[j]
m.trace().backward(); print(m, w.grad)

### setitem of many kinds
x = torch.zeros(3, 4)
x[0] = 1; x[1, 2] = 5.; x[:, 0] = torch.tensor([7., 8., 9.]); x[2, 1:] = 3; x[x > 6] = -1; x[[0, 1], [1, 1]] = torch.tensor([11., 12.]); x[..., -1] = 4; x[torch.tensor([0, 2])] *= 2; print(x)
x[1] += 1; x[:, 1:3] -= 1; print(x)
attempt(lambda: x.__setitem__(0, torch.ones(3))); attempt(lambda: x.__setitem__(5, 1)); attempt(lambda: x.__setitem__((0, 0, 0), 1))

### index reading
x = torch.arange(24).reshape(2, 3, 4)
print(x[0], x[0, 1], x[0, 1, 2], x[-1, ..., 0], x[:, None].shape, x[..., None, 2].shape, x[:, ::2, 1:3], x[[0, 1], [2, 0]], x[torch.tensor([True, False])], x[x % 5 == 0], x[1, [0, 2]], x[:, torch.tensor([[0, 1], [2, 2]])].shape)
print(x[0, 0, 0].item(), x[True].shape, x[False].shape, x[()].shape, x[[0]].shape)

### index errors
x = torch.zeros(3, 4)
for f in (lambda: x[3], lambda: x[0, 4], lambda: x[0, 0, 0], lambda: x[1.5], lambda: x['a'], lambda: x[torch.tensor([5])], lambda: x[torch.tensor([True, False])], lambda: x[::-1], lambda: x[[0, 1], [0, 1, 2]], lambda: torch.tensor(1.)[0], lambda: x[torch.tensor([1.])]): attempt(f)

### gradients of indexing
x = torch.arange(6., requires_grad=True)
(x[[0, 0, 5]] * torch.tensor([1., 10., 100.])).sum().backward(); print(x.grad); x.grad = None
y = x.view(2, 3)[:, 1:]; (y ** 2).sum().backward(); print(x.grad, graph(y)); x.grad = None
x[x > 2].sum().backward(); print(x.grad)
for t in (x[0], x[1:], x[[0]], x[None], x[...], x[x > 2], x.view(2, 3)[0, 1], x.view(2, 3)[:, 0]): print(graph(t))

### softmax regression
torch.manual_seed(2)
X = torch.randn(8, 3); y = torch.tensor([0, 1, 2, 1, 0, 2, 1, 0]); W = torch.zeros(3, 3, requires_grad=True)
for _ in range(5):
    logits = X @ W; logp = logits - logits.logsumexp(1, keepdim=True)
    loss = -logp[torch.arange(8), y].mean()
    loss.backward()
    with torch.no_grad(): W -= W.grad
    W.grad = None
print(loss, W, (logits.argmax(1) == y).float().mean())

### cross entropy from pieces
x = torch.tensor([[2., 1., 0.1], [0.5, 2.5, 0.3]], requires_grad=True); y = torch.tensor([0, 1])
p = torch.softmax(x, dim=1); print(p, p.sum(1)); loss = -torch.log(p[range(2), y]).mean(); loss.backward(); print(loss, x.grad, graph(loss))
x.grad = None; loss = -torch.log_softmax(x, -1).gather(1, y.unsqueeze(1)).squeeze(1).mean(); loss.backward(); print(loss, x.grad, graph(loss))

### bigram counts
words = ['emma', 'ava', 'mia']; chars = sorted(set(''.join(words))); stoi = {c: i + 1 for i, c in enumerate(chars)}; stoi['.'] = 0
N = torch.zeros((len(stoi), len(stoi)), dtype=torch.int32)
for w in words:
    cs = ['.'] + list(w) + ['.']
    for a, b in zip(cs, cs[1:]): N[stoi[a], stoi[b]] += 1
P = (N + 1).float(); P /= P.sum(1, keepdims=True); print(N, P, P[0].sum(), N.dtype)

### makemore neural bigram
xs = torch.tensor([0, 1, 2, 2, 1]); ys = torch.tensor([1, 2, 2, 1, 0]); g = torch.Generator().manual_seed(2147483647)
W = torch.randn((3, 3), generator=g, requires_grad=True)
for k in range(3):
    xenc = torch.eye(3)[xs]; logits = xenc @ W; counts = logits.exp(); probs = counts / counts.sum(1, keepdim=True)
    loss = -probs[torch.arange(5), ys].log().mean() + 0.01 * (W ** 2).mean(); print(loss.item())
    W.grad = None; loss.backward(); W.data += -50 * W.grad

### makemore mlp
g = torch.Generator().manual_seed(42)
C = torch.randn((5, 2), generator=g); W1 = torch.randn((6, 7), generator=g) * (5 / 3) / 6 ** 0.5; b1 = torch.randn(7, generator=g) * 0.01; W2 = torch.randn((7, 5), generator=g) * 0.1; b2 = torch.zeros(5)
parameters = [C, W1, b1, W2, b2]
for p in parameters: p.requires_grad = True
X = torch.randint(0, 5, (8, 3), generator=g); Y = torch.randint(0, 5, (8,), generator=g); print(X, Y, sum(p.nelement() for p in parameters))
for i in range(3):
    ix = torch.randint(0, X.shape[0], (4,), generator=g); emb = C[X[ix]]
    h = torch.tanh(emb.view(emb.shape[0], -1) @ W1 + b1); logits = h @ W2 + b2
    loss = -torch.log_softmax(logits, 1)[range(4), Y[ix]].mean()
    for p in parameters: p.grad = None
    loss.backward()
    for p in parameters: p.data += -0.1 * p.grad
    print(i, loss.item())
print(C.grad)

### batch norm by hand
x = torch.randn(6, 3, requires_grad=True); gain = torch.ones(1, 3, requires_grad=True); bias = torch.zeros(1, 3, requires_grad=True)
mean = x.mean(0, keepdim=True); std = x.std(0, keepdim=True); out = gain * (x - mean) / std + bias
(out * torch.arange(18.).view(6, 3)).sum().backward(); print(out, x.grad, gain.grad, bias.grad)
var = x.var(0, keepdim=True, unbiased=True); inv = (var + 1e-5) ** -0.5; print(((x - mean) * inv).sum())

### manual backprop checks
x = torch.randn(4, 3, requires_grad=True); w = torch.randn(3, 2, requires_grad=True); b = torch.randn(2, requires_grad=True)
h = x @ w + b; h.retain_grad(); t = torch.tanh(h); t.retain_grad(); loss = t.square().mean(); loss.backward()
dt = 2 * t / t.numel(); dh = dt * (1 - t ** 2)
for name, a, g in (('t', dt, t.grad), ('h', dh, h.grad), ('w', x.t() @ dh, w.grad), ('b', dh.sum(0), b.grad), ('x', dh @ w.T, x.grad)): print(name, torch.allclose(a, g), (a - g).abs().max().item() < 1e-6)

### attention by hand
B, T, C = 2, 4, 8; x = torch.randn(B, T, C, requires_grad=True); Wq, Wk, Wv = (torch.randn(C, 4, requires_grad=True) for _ in range(3))
q, k, v = x @ Wq, x @ Wk, x @ Wv
wei = q @ k.transpose(-2, -1) * 4 ** -0.5; tril = torch.tril(torch.ones(T, T)); wei = wei.masked_fill(tril == 0, float('-inf')); wei = torch.softmax(wei, dim=-1)
out = wei @ v; print(out.shape, wei[0]); out.sum().backward(); print(x.grad[0], Wq.grad.shape, Wv.grad)

### causal averages
x = torch.randn(2, 3, 2); wei = torch.tril(torch.ones(3, 3)); wei = wei / wei.sum(1, keepdim=True); print(wei, wei @ x, torch.allclose(wei @ x, x.cumsum(1) / torch.arange(1, 4).view(1, 3, 1)))

### tiny rnn
torch.manual_seed(5)
Wx = torch.randn(3, 4, requires_grad=True); Wh = torch.randn(4, 4, requires_grad=True); h = torch.zeros(2, 4); xs = torch.randn(5, 2, 3)
for x in xs: h = torch.tanh(x @ Wx + h @ Wh)
h.sum().backward(); print(h, Wx.grad, Wh.grad.norm())

### rnn with detach between chunks
w = torch.tensor(0.9, requires_grad=True); h = torch.tensor(1.0)
for t in range(6):
    h = torch.tanh(w * h + 0.1)
    if t % 3 == 2: h.backward(); print(w.grad); h = h.detach()

### lstm cell by hand
W = torch.randn(7, 16, requires_grad=True); x = torch.randn(2, 3); h = torch.zeros(2, 4); c = torch.zeros(2, 4)
for _ in range(3):
    i, f, g, o = (torch.cat([x, h], 1) @ W).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g); h = torch.sigmoid(o) * torch.tanh(c)
h.sum().backward(); print(h, W.grad[:, :3], graph(f))

### logsumexp
x = torch.tensor([[1000., 1000.], [-1000., 0.]], requires_grad=True); y = torch.logsumexp(x, dim=1); y.sum().backward(); print(y, x.grad, graph(y))
print(torch.logsumexp(torch.tensor([float('-inf')] * 2), 0), torch.tensor([1., 2.]).logsumexp(0, keepdim=True))

### einsum
a = torch.arange(6.).reshape(2, 3); b = torch.arange(12.).reshape(3, 4)
print(torch.einsum('ij,jk->ik', a, b), torch.einsum('ij->ji', a), torch.einsum('ij->', a), torch.einsum('ij,ij->i', a, a), torch.einsum('i,j->ij', a[0], b[0]), torch.einsum('ii->i', b[:, :3]), torch.einsum('...j,jk', a, b))
q = torch.randn(2, 3, 4, 5); k = torch.randn(2, 3, 6, 5); print(torch.allclose(torch.einsum('bhqd,bhkd->bhqk', q, k), q @ k.transpose(-1, -2), atol=1e-5)); print(torch.einsum('bij,bjk,bkl->bil', torch.ones(2, 2, 3), torch.ones(2, 3, 4), torch.ones(2, 4, 2)))

### broadcasting
a = torch.ones(3, 1, requires_grad=True); b = torch.arange(4., requires_grad=True); c = a * b; c.sum().backward(); print(c, a.grad, b.grad)
attempt(lambda: torch.ones(3) + torch.ones(4)); attempt(lambda: torch.ones(2, 3) * torch.ones(3, 2)); attempt(lambda: torch.ones(2, 3) @ torch.ones(2, 3)); attempt(lambda: torch.ones(2) @ torch.ones(3)); attempt(lambda: torch.ones(2, 3) @ torch.ones(2)); attempt(lambda: torch.tensor(1.) @ torch.ones(2)); attempt(lambda: torch.ones(2, 3, 4) @ torch.ones(3, 4, 5)); attempt(lambda: torch.ones(2, 3, 4) @ torch.ones(2, 3, 4))

### printing of floats
for v in ([1., 2.], [1.5, 2], [0.1], [1e-5], [1e5], [1e8], [1e9], [123456.789], [0.00012, 1000.], [1e-10, 1.], [float('nan'), 1], [float('inf'), -float('inf')], [-0.0], [1e30], [3.14159265] * 3, [], [[]], [[1.], [2.]], [0.5, 100000.], [1., 10000000.], [1e-3, 1e-4], [-1., 1.], [1.5, float('nan')], [2., float('inf')], [1e-45], [0.], [1e38, 1.]): print(torch.tensor(v))
for v in (1., 0.1, 1e-5, 1e10, 123456., float('nan'), float('inf'), -2.5, 3, True, 0.): print(torch.tensor(v), repr(torch.tensor(v)), f'{torch.tensor(v)}')

### printing of shapes
print(torch.zeros(2, 3, 2)); print(torch.arange(12).reshape(1, 2, 1, 6)); print(torch.zeros(0)); print(torch.zeros(2, 0)); print(torch.zeros(0, dtype=torch.int64)); print(torch.empty(0, 3, dtype=torch.float64, requires_grad=True)); print(torch.zeros(3, 3).shape, torch.zeros(3).size(), torch.Size([2]))

### printing of many numbers
print(torch.arange(100)); print(torch.arange(1001)); print(torch.arange(30.) / 7); print(torch.zeros(40, 40)); print(torch.arange(2000.).reshape(2, 1000)); print(torch.zeros(5, 300, 2)); print(torch.arange(1100.).reshape(11, 100) / 3)

### printing of dtypes
for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool): print(torch.tensor([1, 0, 2]).to(d), d, torch.ones((), dtype=d))
print(torch.tensor([True, False]), torch.tensor([1 + 2j, 3 - 1j]), torch.tensor([-100, 5, 12345]), torch.tensor([[-1.25, 3], [100.5, 2]]), torch.tensor(1 + 0.5j, dtype=torch.complex128))

### printing of requires grad
x = torch.tensor([1., 2.], requires_grad=True); print(x, x * 2, (x * 2).sum(), x.detach(), x.view(2, 1), x.t(), x[0], x.unbind()[1], x.double(), torch.tensor(1., requires_grad=True))
print(torch.arange(25., requires_grad=True) / 3); print(torch.zeros(4, 12, requires_grad=True) + 1e-3); print([x, x + 1], (x,), {'a': x})

### printoptions
torch.set_printoptions(precision=2); print(torch.tensor([3.14159, 2.71828])); torch.set_printoptions(sci_mode=True); print(torch.tensor([3.14159])); torch.set_printoptions(profile='default', sci_mode=False); print(torch.tensor([1e-7, 1.])); torch.set_printoptions(threshold=5, edgeitems=2, sci_mode=None); print(torch.arange(10)); torch.set_printoptions(linewidth=30, threshold=1000); print(torch.arange(20)); torch.set_printoptions(profile='default'); print(torch.arange(20)); torch.set_printoptions(threshold=5, edgeitems=0); print(torch.arange(9), torch.ones(3, 4, requires_grad=True), torch.ones(2)); torch.set_printoptions(profile='default')

### f-strings of tensors
x = torch.tensor(3.14159, requires_grad=True); print(f'{x:.2f} {x.item():.3f} {x}'); attempt(lambda: f'{torch.ones(2):.2f}'); print('%.3f' % torch.tensor(2.5), str(torch.ones(2)), format(torch.tensor(2), 'd'))

### errors of backward
x = torch.tensor([1., 2.], requires_grad=True)
attempt(lambda: (x * 2).backward()); attempt(lambda: torch.ones(1).backward()); y = (x * x).sum(); y.backward(); attempt(y.backward)
attempt(lambda: (x * 2).backward(torch.ones(3))); attempt(lambda: (x * 2).backward([1., 1.])); attempt(lambda: torch.tensor([1, 2], requires_grad=True)); attempt(lambda: torch.ones(2, dtype=torch.int64).requires_grad_()); attempt(lambda: (x * 2).requires_grad_(False)); attempt(lambda: (x > 1).sum().backward())

### second backward without saved values
x = torch.tensor([1., 2.], requires_grad=True); y = (x + 1).sum(); y.backward(); attempt(y.backward); print(x.grad)
y = (x * 2).sum(); y.backward(); attempt(y.backward); print(x.grad)

### shared subgraph freed
x = torch.tensor(2., requires_grad=True); h = x ** 2; a = h * 3; b = h * 4; a.backward(); attempt(b.backward); print(x.grad)

### errors of conversions
x = torch.tensor([1., 2.], requires_grad=True)
for f in (lambda: x.numpy(), lambda: x.item(), lambda: bool(x), lambda: float(x), lambda: len(torch.tensor(1)), lambda: np.array(x), lambda: int(torch.ones(2)), lambda: torch.tensor(2.).tolist(), lambda: x.tolist(), lambda: x.detach().numpy(), lambda: list(torch.tensor(1.)), lambda: bool(torch.tensor([])), lambda: range(torch.tensor(3)), lambda: [1, 2, 3][torch.tensor(1)], lambda: [1, 2][torch.tensor(1.)]): attempt(f)

### errors of creation
for f in (lambda: torch.tensor([[1, 2], [3]]), lambda: torch.tensor('a'), lambda: torch.tensor(['a']), lambda: torch.tensor(None), lambda: torch.zeros(-1), lambda: torch.zeros(2).reshape(3), lambda: torch.zeros(4).view(3, -1), lambda: torch.zeros(2, 3).t().view(6), lambda: torch.arange(0, 10, -1), lambda: torch.ones(2).cuda(), lambda: torch.zeros(2, device='banana'), lambda: torch.from_numpy([1]), lambda: torch.randint(5, 2, (2,))): attempt(f)

### errors of dims
x = torch.zeros(2, 3)
for f in (lambda: x.sum(2), lambda: x.sum(dim=(0, 0)), lambda: x.mean(dim=5), lambda: x.transpose(0, 2), lambda: x.permute(0), lambda: x.permute(0, 0), lambda: x.squeeze(3), lambda: x.unsqueeze(4), lambda: torch.cat([x, torch.zeros(3, 4)]), lambda: torch.cat([]), lambda: torch.stack([x, torch.zeros(3, 2)]), lambda: torch.softmax(x, 2), lambda: x.max(2), lambda: x.expand(3, 3), lambda: x.expand(3), lambda: x.view(5), lambda: x.chunk(0), lambda: x.split(-1), lambda: torch.cat(x, 0) if False else torch.cat((x, x), 3), lambda: torch.zeros(3, dtype=torch.int64).mean(), lambda: x.argmax(4), lambda: torch.stack([]), lambda: x.flatten(1, 0), lambda: x.narrow(0, 1, 5), lambda: x.select(0, 4), lambda: torch.zeros(0).max(), lambda: torch.zeros(2, 2, 2).t()): attempt(f)

### errors of types
x = torch.ones(2)
for f in (lambda: x + 'a', lambda: x + None, lambda: x + [1, 2], lambda: torch.exp(2.), lambda: torch.add(1, x), lambda: x @ 2, lambda: torch.matmul(x, [1., 2.]), lambda: torch.ones(2, 2) @ torch.ones(2, 2).double(), lambda: torch.cat([1, 2]), lambda: torch.stack([1, 2]), lambda: torch.where(torch.tensor([1, 0]), x, x), lambda: x.masked_fill(torch.tensor([1, 0]), 1.), lambda: torch.tensor([1]) ** -1, lambda: -torch.tensor([True]), lambda: torch.tensor([True]) - torch.tensor([False]), lambda: ~x, lambda: x.nonsense, lambda: torch.tensor([1, 2]).softmax(0), lambda: torch.tensor([1, 2]).add_(0.5), lambda: torch.tensor([1, 2]).div_(2), lambda: x.grad_fn.name()): attempt(f)

### grad attribute rules
x = torch.ones(2, requires_grad=True)
attempt(lambda: setattr(x, 'grad', 3)); attempt(lambda: setattr(x, 'grad', torch.ones(3))); attempt(lambda: setattr(x, 'grad', torch.ones(2).double())); x.grad = torch.ones(2); (x * 2).sum().backward(); print(x.grad)
y = x * 2; print(y.grad); x.requires_grad_(False); print(x.grad, x.requires_grad); attempt(lambda: setattr(x, 'grad', x))
attempt(lambda: setattr(y, 'requires_grad', False))

### dtype promotion
i, f, d, b, h, u = torch.tensor([1, 2]), torch.tensor([1., 2.]), torch.tensor([1., 2.], dtype=torch.float64), torch.tensor([True, False]), torch.tensor([1., 2.], dtype=torch.float16), torch.tensor([1, 2], dtype=torch.uint8)
ts = dict(i=i, f=f, d=d, b=b, h=h, u=u, s0=torch.tensor(1.5), d0=torch.tensor(1.5, dtype=torch.float64), i0=torch.tensor(3))
for n, x in ts.items(): print(n, [str((x + y).dtype)[6:] for y in ts.values()], [str((x / y).dtype)[6:] for y in ts.values()], [str((x * k).dtype)[6:] for k in (2, 2.5, True)], str((x / 2).dtype), str((x ** 2).dtype), str(x.sum().dtype), str(torch.exp(x).dtype))
print(i / i, i // 2, i % 2, 7 // i, 7 % i, -7 // i, i ** 2, 2 ** i, 2. ** i, i * 0.5, b + b, b * 3, u - 2, b & ~b, i & 3, i | 4, i ^ 1, torch.result_type(i, f), torch.promote_types(torch.int32, torch.float16))

### gradients keep dtype
for d in (torch.float16, torch.bfloat16, torch.float64):
    x = torch.tensor([1., 2.], dtype=d, requires_grad=True); y = x * torch.tensor([2., 3.]); y.sum().backward(); print(y.dtype, x.grad.dtype, x.grad)
    z = x.exp() * 2 + 1; print(z); z.to(torch.float32).sum().backward(); print(x.grad)

### casts in the graph
x = torch.tensor([1.5, 2.5], requires_grad=True); y = x.double() * 2; z = y.float().half(); print(y, z, graph(z)); y.sum().backward(); print(x.grad, x.long(), x.int().requires_grad, x.to(torch.float32) is x, x.float() is x)

### creation
print(torch.arange(5), torch.arange(1, 2, 0.25), torch.arange(5.), torch.arange(10, 0, -3), torch.linspace(0, 1, 5), torch.eye(2, 3), torch.full((2, 2), 7), torch.full((2,), 1.5), torch.zeros(2, dtype=torch.int32), torch.ones((2, 1)), torch.zeros(torch.Size([2])), torch.zeros(()), torch.logspace(0, 2, 3))
x = torch.tensor([[1, 2], [3, 4]]); print(torch.zeros_like(x), torch.ones_like(x, dtype=torch.float32), torch.full_like(x, 5), torch.empty_like(x).shape, x.new_zeros(2), x.new_tensor([1.5]), x.new_ones(1, 2), torch.tensor(x.tolist()), torch.tensor(np.float32(2.5)), torch.tensor(np.arange(3)), torch.tensor([np.float64(1.5)]), torch.tensor([1, 2.5, True]), torch.tensor([[True]]), torch.tensor(range(3)), torch.tensor((1, 2)), torch.tensor([torch.tensor(1.), torch.tensor(2.)]), torch.scalar_tensor(3), torch.tril_indices(2, 2), torch.Tensor([1, 2]), torch.Tensor(2, 1).shape, torch.FloatTensor([1]), torch.LongTensor([1]), torch.tensor(2 ** 40), torch.arange(3, dtype=torch.float64), torch.tensor(5, dtype=torch.float16))

### numpy bridge
a = np.arange(3.); t = torch.from_numpy(a); a[0] = 9; print(t, t.dtype, torch.as_tensor(a) + 1, torch.tensor(a).dtype, t.numpy() is not None, np.add(t, 1), t.numpy().dtype); t[1] = 7; print(a); n = torch.ones(2).numpy(); print(n, type(n).__name__, np.asarray(torch.tensor([1, 2])), np.sqrt(torch.tensor([4.])), torch.ones(2) * np.array([1., 2.]), torch.ones(2) * np.float64(2), np.float32(3) * torch.ones(2))

### manual seed numbers
for s in (0, 42, 1234567): torch.manual_seed(s); print(torch.rand(3), torch.randn(3), torch.randn(20), torch.randint(0, 10, (5,)), torch.randperm(6), torch.rand(2, 2, dtype=torch.float64), torch.randn(2, dtype=torch.float64), torch.randn(17, dtype=torch.float64), torch.rand_like(torch.ones(2)), torch.randn_like(torch.ones(2)), torch.randint(5, (2,)), torch.bernoulli(torch.full((5,), 0.5)), torch.normal(0., 1., (3,)), torch.normal(2., 3., size=(2, 2)))

### random in place
torch.manual_seed(7); x = torch.empty(4); print(x.uniform_(-1, 1), x.normal_(), x.normal_(2, 3), torch.empty(20).normal_(), x.bernoulli_(0.5), torch.empty(3).random_(0, 10), torch.empty(5).uniform_())
g = torch.Generator().manual_seed(3); print(torch.rand(2, generator=g), torch.randn(2, generator=g), torch.randperm(4, generator=g), torch.randint(0, 9, (3,), generator=g)); print(g.initial_seed(), torch.initial_seed())

### rng state
torch.manual_seed(1); s = torch.get_rng_state(); a = torch.rand(3); torch.set_rng_state(s); print(torch.equal(a, torch.rand(3)))

### multinomial
torch.manual_seed(0); p = torch.tensor([0.2, 0.5, 0.3]); print(torch.multinomial(p, 5, replacement=True)); g = torch.Generator().manual_seed(2147483647); p = torch.rand(3, generator=g); p = p / p.sum(); print(p, torch.multinomial(p, num_samples=10, replacement=True, generator=g), torch.multinomial(p, 1, generator=g), torch.multinomial(torch.ones(2, 4), 2))

### reductions
x = torch.tensor([[3., 1., 2.], [6., 5., 4.]])
print(x.sum(), x.sum(0), x.sum(1, keepdim=True), x.mean(-1), x.max(), x.max(1), x.min(0), x.argmax(), x.argmin(1), x.prod(), x.prod(0), x.std(), x.var(0), x.std(1, unbiased=False), x.norm(), x.norm(1), x.norm(dim=1), x.cumsum(1), x.cumprod(0), x.amax(1), x.any(), (x > 3).all(1), x.median(), x.median(1), x.sum((0, 1)), x.mean((0, 1), keepdim=True), torch.sum(x, dim=1), torch.max(x, 0)[0], torch.max(x, x.flip(0)), x.sum(axis=1), x.sum(dtype=torch.float64), x.numel(), torch.count_nonzero(x > 2), x.aminmax(), x.var(dim=1, correction=0), torch.var_mean(x, 1), x.std(dim=0, keepdim=True))
v, i = x.sort(descending=True); print(v, i, x.argsort(1), x.topk(2), torch.unique(torch.tensor([3, 1, 1])), torch.bincount(torch.tensor([0, 1, 1])), (x > 2).sum(), (x > 2).float().mean(), x.nonzero(as_tuple=True), (x > 4).nonzero(), torch.tensor(3.).sum(), torch.tensor([]).sum(), torch.tensor([1, 2]).sum(), torch.tensor([True, True]).sum())

### gradients of reductions
torch.manual_seed(1); x = torch.randn(3, 4, requires_grad=True)
for f in (lambda: x.sum(), lambda: x.mean(), lambda: x.sum(0).pow(2).sum(), lambda: x.mean(1, keepdim=True).exp().sum(), lambda: x.max(), lambda: x.max(1).values.sum(), lambda: x.min(0)[0].sum(), lambda: x.prod(), lambda: x.prod(1).sum(), lambda: x.std(), lambda: x.var(0).sum(), lambda: x.norm(), lambda: x.norm(dim=1).sum(), lambda: x.cumsum(1).pow(2).sum(), lambda: x.cumprod(1).sum(), lambda: x.logsumexp(1).sum(), lambda: x.amax(0).sum(), lambda: x.topk(2).values.sum(), lambda: x.sort().values[:, 0].sum(), lambda: x.median(), lambda: x.std(1, unbiased=False).sum(), lambda: x.sum((0, 1)), lambda: x.abs().sum(), lambda: x.softmax(1)[:, 0].sum()):
    y = f(); x.grad = None; y.backward(); print(graph(y), y, x.grad)

### ties
x = torch.tensor([2., 2., 1.], requires_grad=True)
for f in (lambda: x.max(), lambda: x.max(0).values, lambda: x.amax(0), lambda: torch.maximum(x, x.flip(0)).sum(), lambda: torch.maximum(x, torch.tensor([2., 1., 1.])).sum(), lambda: x.clamp(1., 2.).sum(), lambda: x.relu().sum(), lambda: (x - 2).relu().sum(), lambda: (x - 2).abs().sum(), lambda: x.clamp(min=2.).sum(), lambda: x.min(), lambda: x.median(), lambda: torch.clamp(x, min=torch.tensor(2.)).sum()): x.grad = None; f().backward(); print(x.grad)

### graph names
x = torch.rand(2, 3, requires_grad=True) + 0.5; y = torch.rand(2, 3, requires_grad=True) + .5; v = torch.rand(3, requires_grad=True)
for f in '+ - * /'.split(): print(f, graph(eval(f'x {f} y')), graph(eval(f'x {f} 2')), graph(eval(f'2 {f} x')))
for t in (x ** 2, x ** y, 2 ** x, x ** 0.5, -x, x @ y.T, x @ v, v @ v, x.sum(), x.sum(0), x.mean(), x.mean(0), x.exp(), x.log(), x.sqrt(), x.sin(), x.cos(), x.tanh(), x.sigmoid(), x.relu(), x.abs(), x.reshape(3, 2), x.view(6), x.T, x.t(), x.transpose(0, 1), x.permute(1, 0), x.unsqueeze(0), x.squeeze(), x.expand(2, 2, 3), x.flatten(), x.clamp(0, 1), x.clamp(min=0), x.max(), x.max(0)[0], x.min(), x.prod(), x.var(), x.std(), x.norm(), torch.cat([x, y]), torch.stack([x, y]), x.clone(), x.contiguous(), x.double(), x[0], x[:, 1], x[0, 1], x.log_softmax(1), x.softmax(1), torch.where(x > 1, x, y), x.masked_fill(x > 1, 0.), torch.maximum(x, y), x.cumsum(0), x.flip(0), x.tril(), x.diagonal(), x.gather(0, torch.zeros(1, 3, dtype=torch.int64)), x.index_select(0, torch.tensor([0])), x.repeat(2, 1), x.square(), x.reciprocal(), x.rsqrt(), x.logsumexp(0), torch.outer(v, v), x.mm(y.T), torch.addmm(torch.ones(2, 2), x, y.T), torch.bmm(x[None], y.T[None]), v.dot(v), x.matmul(v), x.mv(v), x.unbind()[0], x.split(1)[0], x.chunk(3, 1)[2], x.log1p(), x.expm1(), x.atan2(y), x.lerp(y, 0.5), x.sign(), x.round(), x.floor(), x.pow(3), x.neg(), x.roll(1), x.amax(1), x.argmax(1), x.erf(), x.tan(), x.masked_select(x > 0.6), x.narrow(1, 0, 2), x.mT, x.swapaxes(0, 1), x.movedim(0, 1), x.view_as(y), x.type(torch.float64), x.to(torch.float16), x.float(), x.diag() if False else None, torch.diag(v), x.addcmul(x, y), x.addcdiv(x, y), x.fmod(2), x % 2, x.logical_not(), x.ceil(), x.trunc(), x.asin(), x.sinh(), x.median(), x.sort()[0], x.topk(1)[0], x.var(0), x.std(0), x.all(), x.detach(), x.scatter_add(0, torch.zeros(1, 3, dtype=torch.int64), y)):
    print(None if t is None else graph(t))

### in-place graph names
x = torch.rand(2, 3, requires_grad=True)
def ip(f):
    y = x * 1; f(y); print(graph(y), y.shape)
for f in (lambda y: y.add_(1), lambda y: y.mul_(y), lambda y: y.exp_(), lambda y: y.zero_(), lambda y: y.copy_(x), lambda y: y[0].add_(1), lambda y: y.__setitem__(0, 1.), lambda y: y.__setitem__((0, 0), x[1, 1]), lambda y: y.__setitem__([0, 1], x), lambda y: y.clamp_(0, 1), lambda y: y.relu_(), lambda y: y.sub_(x), lambda y: y.div_(2), lambda y: y.pow_(2), lambda y: y.sqrt_(), lambda y: y.neg_(), lambda y: y.masked_fill_(y > 0.5, 0), lambda y: y.sigmoid_(), lambda y: y.tanh_()): ip(f)

### next_functions
a = torch.tensor(1., requires_grad=True); b = a * 2; c = b + a
for fn, i in c.grad_fn.next_functions: print(node_name(fn), i)
acc = b.grad_fn.next_functions[0][0]; print(acc.variable is a, acc.next_functions); print(b.grad_fn.next_functions[1], c.grad_fn.metadata)
u, v = torch.stack([a, b]).unbind(); print((u + v).grad_fn.next_functions[1][1], u.output_nr, v.output_nr)

### saved fields
a = torch.tensor([2.], requires_grad=True); b = torch.tensor([3.], requires_grad=True); y = a * b; print(y.grad_fn._saved_self, y.grad_fn._saved_other); z = y.exp(); print(z.grad_fn._saved_result, (z.grad_fn._saved_result == z).all()); p = a ** 3; print(p.grad_fn._saved_self, p.grad_fn._saved_exponent); z.backward(); attempt(lambda: z.grad_fn._saved_result); attempt(lambda: z.grad_fn._saved_banana)
print((a / b).grad_fn._saved_other, a.log().grad_fn._saved_self, (a @ b).grad_fn._saved_tensor)

### shapes
x = torch.arange(12.)
print(x.reshape(3, 4), x.view(2, -1).shape, x.reshape(3, 4).T.shape, x.reshape(3, 2, 2).permute(2, 0, 1).shape, x.reshape(1, 12, 1).squeeze().shape, x.unsqueeze(-1).shape, x.reshape(3, 4).flatten().shape, x.expand(2, 12).shape, x.repeat(2).shape, x.reshape(3, 4).repeat(2, 3).shape, x.chunk(5), x.split([5, 7])[1], x.reshape(3, 4).split(2, 1)[0], torch.cat([x[:2], x[-2:]]), torch.stack([x[:2], x[2:4]], 1), x.view(3, 4).flip(0), x.view(3, 4).roll(1, 1), x.view(3, 4).tril(), x.view(3, 4).triu(1), x.view(3, 4).diagonal(), torch.diag(x[:3]), x.view(3, 4).unbind(1)[2], x.view(3, 4).select(1, 2), x.narrow(0, 2, 3), torch.meshgrid(x[:2], x[:3], indexing='ij'), x.repeat_interleave(2)[:5], torch.vstack([x[:2], x[2:4]]), torch.hstack([x[:2], x[2:4]]), x.view(2, 6).unflatten(1, (2, 3)).shape, x.movedim(0, 0).shape, torch.broadcast_to(x[:2], (2, 2)), x.tile(2).shape, torch.tensor_split(x, 5)[1], x.view(3, 4).take_along_dim(torch.tensor([[0], [1], [2]]), 1), torch.atleast_2d(x).shape, x.view(2, 6).swapaxes(0, 1).shape)

### gradients of shapes
x = torch.arange(12., requires_grad=True); w = torch.arange(24.) + 1
for f in (lambda: x.view(3, 4).T.reshape(-1) * w[:12], lambda: x.repeat(2) * w, lambda: x.expand(2, 12).reshape(-1) * w, lambda: torch.cat([x, x.flip(0)]) * w, lambda: torch.stack([x, x * 2], 1).view(-1) * w, lambda: x.chunk(3)[1] * w[:4], lambda: x.view(3, 4).diagonal() * w[:3], lambda: torch.diag(x[:3]) * w[:9].view(3, 3), lambda: x.view(3, 4).tril().view(-1) * w[:12], lambda: x.roll(3) * w[:12], lambda: x.view(3, 4).gather(1, torch.tensor([[0, 0], [1, 3], [2, 2]])).view(-1) * w[:6], lambda: x.scatter(0, torch.tensor([1, 3]), torch.tensor([5., 6.])) * w[:12], lambda: x.index_select(0, torch.tensor([0, 0, 2])) * w[:3], lambda: x.masked_select(x > 5) * w[:6], lambda: x.take_along_dim(torch.tensor([3, 1]), 0) * w[:2], lambda: x.repeat_interleave(2) * w, lambda: x.index_add(0, torch.tensor([0, 0]), torch.ones(2)) * w[:12], lambda: x.unflatten(0, (3, 4)).movedim(0, 1).flatten() * w[:12]):
    x.grad = None; y = f(); y.sum().backward(); print(y, x.grad)

### where and masks
x = torch.tensor([-1., 0., 2.], requires_grad=True); y = torch.where(x > 0, x * 2, x * 3); y.sum().backward(); print(y, x.grad, torch.where(x > 0), torch.where(x > 0, 1., 0.), torch.where(x > 0, 1, 0), x.masked_fill(x < 0, -9.), torch.where(x > 0, x, torch.tensor(0.)))
x = torch.tensor([0., 4.], requires_grad=True); y = torch.where(x > 0, x.sqrt(), torch.zeros(2)); y.sum().backward(); print(x.grad)

### nan gradients
x = torch.tensor([0., 1.], requires_grad=True)
for f in (lambda: x.sqrt(), lambda: x.log(), lambda: 1 / x, lambda: x / x, lambda: x ** 0.5, lambda: x.pow(0), lambda: x.norm(), lambda: x * x.log(), lambda: (x - x).norm(), lambda: x ** x, lambda: 0 ** x, lambda: x.prod(), lambda: x.abs(), lambda: x.std(), lambda: x[:1].std(), lambda: x.rsqrt(), lambda: x.pow(-1), lambda: torch.pow(x, torch.tensor([0., 0.]))): x.grad = None; y = f(); y.sum().backward(); print(y, x.grad)

### activations
x = torch.tensor([-30., -2., -0.5, 0., 0.5, 2., 30.], requires_grad=True)
for f in (torch.sigmoid, torch.tanh, torch.relu, torch.exp, torch.erf, torch.sin, torch.cos, torch.abs, torch.square, torch.sign, torch.expm1, torch.atan, torch.neg, torch.floor, torch.round): x.grad = None; y = f(x); y.sum().backward(); print(y, x.grad)

### comparison and logic
x = torch.tensor([1., 2., 3.]); y = torch.tensor([3., 2., 1.])
print(x == y, x != y, x < y, x <= 2, 2 < x, (x > 1) & (y > 1), (x > 2) | (y > 2), ~(x > 1), torch.equal(x, y), torch.allclose(x, x + 1e-9), torch.isclose(x, y), torch.eq(x, 2), x.eq(y).any(), torch.logical_and(x > 1, y > 1), (x > 1).logical_not(), x.isnan(), torch.isinf(x), (x == y).all().item(), x in [x], 2 in x, torch.isfinite(x), (x > 1) ^ (y > 1), x is x, x == None, x != None)

### clone and contiguous
x = torch.tensor([[1., 2.], [3., 4.]], requires_grad=True); c = x.clone(); c[0, 0] = 100; print(x, c); c.sum().backward(); print(x.grad, x.T.contiguous().is_contiguous(), x.contiguous() is x, graph(c))

### copy and deepcopy
import copy
x = torch.tensor([1., 2.], requires_grad=True); x.grad = torch.ones(2); y = copy.deepcopy(x); y.data[0] = 9; print(x, y, y.grad, y.requires_grad); attempt(lambda: copy.deepcopy(x * 2)); print(copy.copy(torch.ones(1)))

### as_strided refuses what lies outside of the memory
x = torch.arange(6.)
for call in (lambda: x.as_strided((2,), (1,), -1), lambda: x.as_strided_((2,), (1,), -1), lambda: x.as_strided((-2,), (1,)), lambda: torch.empty(0).set_(x.untyped_storage(), -1, (2,), (1,)), lambda: x.requires_grad_().as_strided((2,), (1,), -1), lambda: torch.as_strided_scatter(x, torch.ones(7), (7,), (1,)),
             lambda: torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), -1), lambda: torch.as_strided_scatter(x, torch.ones(2), (2,), (-1,), 3), lambda: torch.as_strided_scatter(x, torch.ones(()), (2,), (1,)), lambda: torch.func.grad(lambda x: x.as_strided((2,), (1,), -1).sum())(torch.ones(3)),
             lambda: torch.ones(3).resize_(-1), lambda: torch.ones(3).resize_(2, -1), lambda: torch.empty_strided((-2, 2), (1, 1)), lambda: torch.empty_strided((2, 2), (-1, 2))): attempt(call)
print(x.detach()[1:].as_strided_scatter(torch.ones(2), (2,), (1,)), x.detach()[1:].as_strided_scatter(torch.ones(2), (2,), (1,), 0))

### as_strided counts in elements of its own dtype
x = torch.arange(6); y = x.view(torch.int32)[2:]; print(y.as_strided((3,), (1,), 0), y.as_strided((12,), (1,), 0)); attempt(lambda: y.as_strided((13,), (1,), 0))
z = torch.view_as_complex(torch.arange(12.).view(6, 2))[1:]; print(z.as_strided((6,), (1,), 0)); attempt(lambda: z.as_strided((7,), (1,), 0))
z = torch.complex(torch.arange(6.), torch.arange(6.)).requires_grad_(); y = torch.view_as_real(z)[1:].as_strided((4,), (1,), 0); y.sum().backward(); print(y, z.grad)
import numpy as np
x = torch.from_numpy(np.asfortranarray(np.arange(6.).reshape(2, 3))); z = x[1:].as_strided((6,), (1,), 0); z[1] = 9; print(x)

### the bytes of a storage, one by one
u = torch.arange(6, dtype=torch.uint8).untyped_storage(); v = u[1:4]; v[0] = 9; print(list(u), v.tolist(), len(v), u[-1], v.data_ptr() - u.data_ptr()); u[0] = 300; u[1:3] = -1; print(u, u.fill_(4).tolist(), v[2], u[4:2].size())
for call in (lambda: u[6], lambda: u['a'], lambda: u[1.5], lambda: u[True], lambda: u[::2], lambda: u.__setitem__(9, 1), lambda: u.__setitem__(1.5, 1), lambda: u.__setitem__(0, 1.5), lambda: u.__setitem__(0, 'a')): attempt(call)
x = torch.tensor([1., 2.]); x.untyped_storage()[4:8] = 0; print(x)

### sizes are not left out
x = torch.ones(2, 3)
for name in ('new_zeros', 'new_ones', 'new_empty', 'permute', 'expand', 'view', 'reshape', 'repeat'): attempt(lambda: getattr(x, name)()); attempt(lambda: getattr(torch.tensor(1.), name)())
for call in (lambda: x.new_full(2, 3), lambda: torch.permute(x), lambda: torch.reshape(x), lambda: torch.broadcast_to(x)): attempt(call)
t = torch.tensor(2.); print(t.view(()), t.view(size=()), t.reshape(()), t.expand(()), t.permute(()), t.repeat(()), t.new_zeros(()), t.new_full((), 3.), t.reshape(shape=()), t.permute(dims=()))
print(torch.autograd.functional.jacobian(lambda a: a ** 2, t), torch.autograd.functional.jacobian(lambda a: a ** 2, t, vectorize=True), torch.autograd.functional.jacobian(lambda a: a ** 2, t, vectorize=True, strategy='forward-mode'))

### copy and deepcopy of tensors in the same memory
import copy
x = torch.arange(6.); a, b, c, d = copy.deepcopy([x, x[2:], x.view(2, 3).t(), x.detach()]); a[3] = 9; print(b, c, d, b._is_view(), b.storage_offset(), c.stride(), a._version, b._version, d._version, copy.deepcopy(x[1:2]).untyped_storage().nbytes(), x)
x = torch.arange(3., requires_grad=True); d = copy.deepcopy({'b': x.detach(), 'a': x, 's': x.untyped_storage(), 'p': torch.nn.Parameter(x.detach())}); d['b'][0] = 7; print(d['a'], d['a']._version, d['b']._version, d['p'], d['s'].data_ptr() == d['a'].data_ptr(), copy.deepcopy(x.detach().expand(2, 3)).stride())
x = torch.arange(2); a, b = copy.deepcopy([x, x.view(torch.int32)]); b[0] = 4; print(a)

### pickle of tensors in the same memory
import pickle
x = torch.arange(3., requires_grad=True); a, b, c, d = pickle.loads(pickle.dumps([x, x.detach(), x[1:].detach(), x])); b[0] = 9; b[1] = 8; print(a, b, c, d is a)

### an index overwritten before the pass
x = torch.arange(6., requires_grad=True)
for read in (lambda i: x[i], lambda i: x[i, None], lambda i: x.index_select(0, i), lambda i: x.take(i), lambda i: x.index_copy(0, i, torch.ones(2)), lambda i: torch.zeros(6).index_add(0, i, x[:2]), lambda i: torch.zeros(6).index_put((i,), x[:2]), lambda i: torch.zeros(6).put(i, x[:2])):
    i = torch.tensor([0, 1]); y = read(i); i.add_(2); attempt(lambda: y.sum().backward())
i = torch.tensor([0, 1]); y = torch.zeros(6); y[i] = x[:2]; i.add_(2); attempt(lambda: y.sum().backward())
i = torch.tensor([0, 1]); y = (x * 1)[2:]; y[i] = 0; i.add_(1); attempt(lambda: y.sum().backward())
m = x.detach() > 2; y = x[m]; m.logical_not_(); attempt(lambda: y.sum().backward())
i = torch.tensor([0, 1]); y = torch.nn.functional.embedding(i, x.view(3, 2)); i.add_(1); attempt(lambda: y.sum().backward())
w = torch.tensor([1., 2.]); y = torch.nn.functional.nll_loss(x.view(3, 2), torch.tensor([0, 1, 0]), w); w.mul_(2); attempt(lambda: y.backward())
i = torch.tensor([[1, 0, 1]]); y = torch.take_along_dim(x.view(2, 3), i, 0); i.zero_(); y.sum().backward(); print(x.grad)

### derivatives of powers until nothing depends on the input
for power in (lambda x: x ** 1, lambda x: x ** 2, lambda x: x ** 3, lambda x: x.square(), lambda x: x ** 2.0, lambda x: x ** 2.5, lambda x: x.pow(0)):
    x = torch.tensor([2., 3.], dtype=torch.float64, requires_grad=True); y = power(x)
    for _ in range(5):
        if y.requires_grad: y, = torch.autograd.grad(y.sum(), x, create_graph=True); print(y)

### foreach writes to tensors in the same memory one after another
x = torch.ones(2); torch._foreach_mul_([x, x], 2.); print(x); torch._foreach_add_([x, x.detach()], [x, torch.ones(2)]); print(x); torch._foreach_addcmul_([x, x], [x, x], [x, torch.ones(2)], value=0.5); print(x)
x = torch.ones(4); torch._foreach_mul_([x[:3], x[1:]], [2., 3.]); print(x); torch._foreach_exp_([x[:3], x[1:]]); print(x)

### sizes and dtypes that making tensors refuses
for call in (lambda: torch.Tensor(-1), lambda: torch.Tensor(2, -1), lambda: torch.full((-1,), 1.), lambda: torch.rand(-1), lambda: torch.arange(2, dtype=torch.bool), lambda: torch.arange(2, dtype=torch.complex64), lambda: torch.arange(2**70), lambda: torch.arange(0, 1e30), lambda: torch.arange(0, 2**63),
             lambda: torch.zeros(2, dtype=torch.int64).masked_fill(torch.tensor([True, False]), 2**70), lambda: torch.full((2,), 2**70), lambda: torch.linspace(0, 1j, 3, dtype=torch.float32), lambda: torch.logspace(0, 1j, 3, dtype=torch.float64)): attempt(call)
print(torch.Tensor(torch.Size([2, 3])).shape, torch.Tensor(torch.Size([])).shape, torch.linspace(0, 1+1j, 3), torch.linspace(1j, 2, 4, dtype=torch.complex128), torch.logspace(1j, 2, 3, base=2, dtype=torch.complex128), torch.arange(0, 10, 3, dtype=torch.int32), torch.arange(5, 0, -2))
print(torch.Generator().manual_seed(-1).initial_seed())
try: torch.manual_seed(2**64)
except ValueError as error: print(str(error)[:33])

### arguments that functions refuse
x = torch.arange(6.).view(2, 3)
for call in (lambda: torch.add(x, x, alpha=1j), lambda: x.clone().sub_(x, alpha=1+0j), lambda: torch.einsum('ij,jk->ik', x, x, x), lambda: torch.einsum('ij,jk->ik', x), lambda: torch.nn.functional.linear(torch.ones(2), torch.tensor(1.)),
             lambda: torch.take_along_dim(x, torch.tensor([0]), 0), lambda: torch.take_along_dim(x, torch.tensor([[0, 0, 0]], dtype=torch.int32), 0)): attempt(call)
for call in (lambda: x.prod((0, 1)), lambda: torch.prod(x, dim=[0]), lambda: x.sum(0, 1), lambda: x.max(0, 1), lambda: x.amax(0, keepdim=1)):
    try: print(call())
    except TypeError: print("TypeError")
def assign(value): x[0] = value
for value in ([1.], 'a', None, (1.,)): attempt(lambda: assign(value))

### asarray
import numpy as np
x = torch.ones(2, requires_grad=True); a = np.ones(2)
print(torch.asarray(a, copy=True).data_ptr() == torch.from_numpy(a).data_ptr(), torch.asarray(a, copy=False).data_ptr() == torch.from_numpy(a).data_ptr(), torch.asarray([1., 2.], requires_grad=True), torch.asarray(x, requires_grad=True) is x)
y = torch.asarray(x * 2, copy=True, requires_grad=True); print(graph(y), torch.asarray(x, dtype=torch.float64, requires_grad=True).dtype, torch.asarray(x.detach(), copy=True, requires_grad=True).is_leaf, torch.asarray(x, requires_grad=False) is x, x.requires_grad)
for call in (lambda: torch.asarray([1, 2], copy=False), lambda: torch.asarray(x, dtype=torch.float64, copy=False, requires_grad=True), lambda: torch.asarray(a, dtype=torch.float32, copy=False)): attempt(call)

### tensors that swap their contents
x = torch.ones(2, requires_grad=True); y = torch.nn.Parameter(torch.zeros(3)); y.name_of = 'weight'; torch.utils.swap_tensors(x, y); print(x, y, type(x).__name__, x.name_of, hasattr(y, 'name_of')); x.sum().backward(); print(x.grad, y.grad)
import weakref
x = torch.ones(2); r = weakref.ref(x); attempt(lambda: torch.utils.swap_tensors(x, torch.zeros(3)))

### dlpack
from_dlpack, to_dlpack = torch.utils.dlpack.from_dlpack, torch.utils.dlpack.to_dlpack
x = torch.arange(3.); y = from_dlpack(to_dlpack(x)); y[0] = 5; print(x, from_dlpack(x).data_ptr() == x.data_ptr())

### a Function that writes to its input while nothing is recorded
class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): x.mul_(2); ctx.mark_dirty(x); return x
    @staticmethod
    def backward(ctx, g): return g * 2
for mode in (torch.no_grad, torch.inference_mode):
    for x in (torch.ones(2, requires_grad=True) * 1, torch.ones(2), torch.ones(2, requires_grad=True)):
        with mode(): y = Written.apply(x)
        print(y is x, y.requires_grad, y._is_view(), y.data_ptr() == x.data_ptr(), y._version, x)

### values that fill a part keep their history
x = torch.ones(2, 1, requires_grad=True); b = torch.zeros(2, 2); b[...] = x; print(graph(b)); c = torch.zeros(3, 2, 2); c[1:] = x; print(graph(c)); c.sum().backward(); print(x.grad)
x = torch.ones(2, 0, requires_grad=True) * 1
with torch.no_grad(): print(x.max(0).values.requires_grad, x.min(0).values.requires_grad)
print((torch.ones(2, requires_grad=True) * 2).expand(2, 2).flip(0).stride())

### views of a parameter that an optimiser has changed
for make in (lambda p: torch.optim.SGD([p], lr=0.5), lambda p: torch.optim.Adam([p], lr=0.5)):
    x = torch.tensor([1., 2.], requires_grad=True); x.grad = torch.ones(2); y = x[0]; z, w = x.split(1); make(x).step(); print(graph(y), y); attempt(lambda: graph(z))

### copies of views that nothing was recorded for
import copy, pickle
x = torch.ones(2, requires_grad=True)
with torch.no_grad(): y = x[0]
a, b = copy.deepcopy([x, y]); print(a, b, b.requires_grad, b.is_leaf, b.grad, copy.copy(x)._version, pickle.loads(pickle.dumps(x))._version, x._version)

### what running extremes keep
for name in ('cummax', 'cummin'):
    for shape in ((), (2,)):
        x = torch.ones(shape, requires_grad=True); c = x * 2; d = getattr(c, name)(0).values; c.exp_(); attempt(lambda: d.sum().backward())

### transposed numbers, and choices laid out as their conditions
x = torch.tensor(2., requires_grad=True); print(x.mT is x, x.mH, x.T, x.H); c = torch.ones(3, 2).t(); print(torch.where(c > 0, c, torch.zeros(2, 3)).stride())

### an expanded tensor copied onto itself
c = torch.ones((), requires_grad=True).expand(2, 3); d = c.detach(); d.copy_(d); d.copy_(c); print(d, d._version)
with torch.no_grad(): c[...] = c; c.copy_(c.view(2, 3))
print(c, c._version); attempt(lambda: d.copy_(torch.ones(2, 3))); attempt(lambda: d.copy_(d + 1))

### an expanded tensor as out of another size
x = torch.ones(2, 3)
for call in (lambda o: torch.sin(x, out=o), lambda o: torch.add(x, x, out=o), lambda o: torch.where(x > 0, x, x, out=o), lambda o: torch.pow(x, 2, out=o), lambda o: torch.mm(x, x.t(), out=o), lambda o: torch.cat([x, x], out=o)): attempt(lambda: call(torch.zeros(4).expand(5, 4)))

### pickle
import pickle
x = torch.tensor([1., 2.], requires_grad=True); y = pickle.loads(pickle.dumps(x)); print(y, y.requires_grad, pickle.loads(pickle.dumps(torch.arange(3))))

### item and python numbers
x = torch.tensor(2.5, requires_grad=True); print(x.item(), float(x), int(x), x.tolist(), torch.tensor([[7]]).item(), type(torch.tensor(True).item()).__name__, round(torch.tensor(2.567).item(), 2), torch.tensor(3).item() + 1, bool(torch.tensor(0)), abs(torch.tensor(-1.)), torch.tensor(5) // 2, divmod(torch.tensor(7), torch.tensor(2)), math if False else -torch.tensor(1), +torch.tensor(1), len(torch.zeros(3, 2)), [t.item() for t in torch.arange(3)], max(torch.tensor([1, 5, 2])), sum(torch.ones(3)), sorted([torch.tensor(2), torch.tensor(1)]), reversed(torch.arange(3)) if False else 0, hash(x) == hash(x), torch.tensor(1.) == 1, 3 - torch.tensor(1), 2 / torch.tensor(4.), 2 ** torch.tensor(3), 7 % torch.tensor(4))

### loss lists
losses = []; w = torch.tensor(1., requires_grad=True)
for i in range(3):
    loss = (w - i) ** 2; losses.append(loss);
total = sum(losses); total.backward(); print(total, w.grad, torch.stack(losses).mean(), torch.tensor(losses).mean(), torch.tensor([l.item() for l in losses]))

### weight decay and momentum by hand
w = torch.tensor([1., -2.], requires_grad=True); v = torch.zeros(2)
for _ in range(4):
    loss = (w ** 4).sum() + 0.1 * w.abs().sum(); loss.backward()
    with torch.no_grad(): v.mul_(0.9).add_(w.grad, alpha=-0.01); w += v; w.grad.zero_()
print(w, v)

### adam by hand
w = torch.tensor([1., -2.], requires_grad=True); m = torch.zeros_like(w); s = torch.zeros_like(w)
for t in range(1, 5):
    loss = (w ** 2).sum(); g, = torch.autograd.grad(loss, w)
    with torch.no_grad():
        m.mul_(0.9).add_(g, alpha=0.1); s.mul_(0.999).addcmul_(g, g, value=0.001)
        w.addcdiv_(m / (1 - 0.9 ** t), (s / (1 - 0.999 ** t)).sqrt().add_(1e-8), value=-0.1)
print(w, m, s)

### exponential moving average
a = torch.ones(3); b = torch.tensor([1., 2., 3.]); a.mul_(0.9).add_(b, alpha=0.1); a.lerp_(b, 0.5); print(a, a.lerp(b, torch.tensor([0., .5, 1.])), torch.lerp(a, b, 0.25)); a.copy_(b).sub_(1).div_(2).clamp_(0, 0.6); print(a, a.zero_(), a.fill_(7), a.add(1, alpha=3))

### frozen features
W1 = torch.ones(2, 2, requires_grad=True); W2 = torch.ones(2, 1, requires_grad=True); W1.requires_grad_(False); x = torch.ones(1, 2); y = x @ W1 @ W2; y.sum().backward(); print(W1.grad, W2.grad, y.requires_grad, graph(y))

### actor with log prob
torch.manual_seed(0); logits = torch.tensor([0.1, 0.2, 0.7], requires_grad=True); logp = torch.log_softmax(logits, 0); a = 2; loss = -logp[a] * 1.5; entropy = -(logp.exp() * logp).sum(); (loss - 0.01 * entropy).backward(); print(logits.grad, entropy)

### vae reparameterisation
torch.manual_seed(0); mu = torch.zeros(3, requires_grad=True); logvar = torch.zeros(3, requires_grad=True); z = mu + torch.randn(3) * torch.exp(0.5 * logvar); kl = -0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp()); ((z ** 2).sum() + kl).backward(); print(z, mu.grad, logvar.grad)

### physics informed residual
x = torch.linspace(0, 1, 5).reshape(-1, 1).requires_grad_(True); w = torch.tensor(2., requires_grad=True); u = torch.sin(w * x)
du, = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True); ddu, = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True); loss = ((ddu + u) ** 2).mean(); loss.backward(); print(du, ddu, loss, w.grad)

### convolution by unfolding
x = torch.arange(10., requires_grad=True); k = torch.tensor([1., 0., -1.], requires_grad=True); y = torch.stack([x[i:i + 8] for i in range(3)], 1) @ k; (y ** 2).sum().backward(); print(y, x.grad, k.grad)

### embedding by indexing
E = torch.arange(12., requires_grad=True).reshape(4, 3); E = E.detach().requires_grad_(); ids = torch.tensor([[1, 1], [3, 0]]); out = E[ids]; print(out.shape); (out * out).sum().backward(); print(E.grad)

### one hot
y = torch.tensor([0, 2, 1]); print(torch.eye(3)[y], torch.zeros(3, 3).scatter_(1, y.unsqueeze(1), 1), (y[:, None] == torch.arange(3)).float())

### scatter and gather in place
x = torch.zeros(3, 4); x.scatter_(1, torch.tensor([[0], [1], [2]]), 5.); print(x); x.scatter_add_(0, torch.tensor([[0, 0, 1, 1]]), torch.ones(1, 4)); print(x); x.index_add_(0, torch.tensor([2]), torch.ones(1, 4)); x.masked_fill_(x == 5, -1); print(x, x.gather(1, torch.tensor([[3], [0], [1]])))

### data attribute
x = torch.tensor([1., 2.], requires_grad=True); y = x * x; x.data[0] = 10; y.sum().backward(); print(x.grad, x.data.requires_grad); x.data = torch.tensor([5., 6., 7.]); print(x, x.shape, x.grad is not None)

### detach_ and requires_grad toggles
x = torch.ones(2, requires_grad=True); y = x * 2; y.detach_(); print(y, y.requires_grad, y.is_leaf); y.requires_grad_(); (y * x).sum().backward(); print(x.grad, y.grad); y.requires_grad = False; print(y)

### out arguments
o = torch.empty(2); torch.add(torch.ones(2), 2, out=o); print(o); torch.mul(o, o, out=o); print(o); r = torch.empty(2, 2); torch.matmul(torch.ones(2, 3), torch.ones(3, 2), out=r); print(r)

### complex gradients
z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True); y = (z * z.conj()).real.sum(); y.backward(); print(y, z.grad); z.grad = None; (z ** 2).abs().sum().backward(); print(z.grad); attempt(lambda: (z * 2).sum().backward())

### linear algebra shapes
A = torch.arange(6.).reshape(2, 3); v = torch.arange(3.); B = torch.arange(24.).reshape(2, 3, 4)
print(A @ v, v @ v, v @ A.T, A @ A.T, A @ B, (B.transpose(1, 2) @ A.T).shape, torch.matmul(B[None], torch.ones(4, 2)).shape, torch.bmm(B, B.transpose(1, 2)).shape, torch.dot(v, v), torch.outer(v, v), A.mm(A.t()), A.mv(v), torch.mm(A, A.T), torch.addmm(torch.ones(2, 2), A, A.T, beta=0.5, alpha=2), A.T.trace() if False else (A @ A.T).trace(), torch.ones(2, 1, 3) @ torch.ones(4, 3, 2) if False else 0, A.matmul(v))

### gradients of matmul ranks
torch.manual_seed(1)
for s, t in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 2)), ((2, 2, 3), (3, 2)), ((2, 2, 3), (3,)), ((3,), (2, 3, 2)), ((2, 1, 2, 3), (4, 3, 2)), ((2, 2, 3), (2, 3, 2))):
    a, b = torch.randn(s, requires_grad=True), torch.randn(t, requires_grad=True); y = a @ b; (y * y).sum().backward(); print(s, t, y.shape, a.grad, b.grad)

### empty tensors
x = torch.zeros(0, 3, requires_grad=True); print(x.sum(), x.sum(0), x.mean(), x * 2, (x @ torch.ones(3, 2)).shape, torch.cat([x, torch.ones(1, 3)]), x.prod()); x.sum().backward(); print(x.grad)

### expanded and overlapping writes
x = torch.ones(1).expand(3); attempt(lambda: x.add_(1)); attempt(lambda: x.__setitem__(0, 2.)); y = torch.ones(3); y[1:] += y[:-1]; print(y); z = torch.arange(4.); z[1:] = z[:-1]; print(z); z += z; print(z); m = torch.arange(4.).view(2, 2); m += m.T; print(m); m[0], m[1] = m[1].clone(), m[0].clone(); print(m)

### augmented assignment on slices
x = torch.tensor([1., 2., 3.], requires_grad=True); y = x.clone(); y[0] += 10; y[1:] *= y[:2]; print(y); y.sum().backward(); print(x.grad)

### pieces modified in place
u = torch.ones(4).unbind(0); u[0].add_(1); print(u)

### tensor attributes
x = torch.zeros(2, 3, requires_grad=True)
print(x.shape, x.size(), x.size(0), x.dim(), x.ndim, x.dtype, x.device, x.layout, x.numel(), x.nelement(), x.element_size(), x.is_floating_point(), x.stride(), x.is_contiguous(), x.type(), x.is_cuda, x.T.stride(), x.data.requires_grad, len(x), x.nbytes, x.itemsize, x.storage_offset(), torch.is_tensor(x), isinstance(x, torch.Tensor), torch.numel(x), x.shape[0] * 2, tuple(x.shape), x.shape == (2, 3), torch.Size([1, 2]) + (3,), x.shape.numel(), x.shape[1:], torch.float32.is_floating_point, torch.finfo(torch.float32).eps, torch.iinfo(torch.int8).max, torch.get_default_dtype())

### default dtype
torch.set_default_dtype(torch.float64); print(torch.tensor([1.5]), torch.zeros(1), torch.arange(2.), torch.tensor([1]) / 2, torch.tensor(1.5).dtype); torch.set_default_dtype(torch.float32); print(torch.tensor([1.5], dtype=torch.float64)); attempt(lambda: torch.set_default_dtype(torch.int64))

### iteration and unpacking
x = torch.arange(6., requires_grad=True).reshape(3, 2)
for row in x: print(row)
a, b, c = x; print((a * b).sum()); (a * b).sum().backward(); print([*x[0]], [i for i in enumerate(x[0].tolist())], list(zip(x[0], x[1]))[0])

### named tuples of results
m = torch.tensor([[1., 5.], [7., 2.]]).max(dim=1); print(m.values, m.indices, m); v, i = torch.tensor([3., 1.]).sort(); print(v, i); print(torch.tensor([1., 3.]).topk(1)); print(torch.tensor([[1., 2.]]).median(1))

### wave of updates on a grid
u = torch.zeros(5); u[2] = 1.
for _ in range(3): u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
print(u)

### gradient through a simulation
k = torch.tensor(2., requires_grad=True); x, v = torch.tensor(1.), torch.tensor(0.)
for _ in range(10): v = v - 0.1 * k * x; x = x + 0.1 * v
(x ** 2).backward(); print(x, k.grad)

### power iteration
A = torch.tensor([[2., 1.], [1., 3.]], requires_grad=True); v = torch.ones(2)
for _ in range(10): v = A @ v; v = v / v.norm()
lam = v @ A @ v; lam.backward(); print(lam, A.grad)

### distance matrix
x = torch.tensor([[0., 0.], [3., 4.], [1., 1.]], requires_grad=True); d = ((x[:, None] - x[None]) ** 2).sum(-1); print(d, (d + 1e-8).sqrt()); d.sum().backward(); print(x.grad)

### layer norm by hand
x = torch.randn(2, 5, requires_grad=True); mu = x.mean(-1, keepdim=True); var = ((x - mu) ** 2).mean(-1, keepdim=True); y = (x - mu) / torch.sqrt(var + 1e-5); (y * torch.arange(5.)).sum().backward(); print(y, x.grad)

### dropout by mask
torch.manual_seed(0); x = torch.ones(10, requires_grad=True); mask = (torch.rand(10) > 0.5).float() / 0.5; y = x * mask; y.sum().backward(); print(y, x.grad)

### hinge and huber
p = torch.tensor([0.3, -2., 1.5], requires_grad=True); t = torch.tensor([1., -1., 1.]); h = (1 - p * t).clamp(min=0).mean(); e = p - t; hub = torch.where(e.abs() < 1, 0.5 * e ** 2, e.abs() - 0.5).sum(); (h + hub).backward(); print(h, hub, p.grad)

### triple loops of saved graphs
x = torch.tensor(1.5, requires_grad=True); y = x.sin(); z = y * y
for _ in range(3): z.backward(retain_graph=True)
print(x.grad); y.backward(); attempt(z.backward)

### same tensor twice
x = torch.tensor([1., 2.], requires_grad=True); print(torch.autograd.grad((x * x).sum(), [x, x])); y = x + x; y.backward(torch.ones(2)); print(x.grad, graph(y)); z = torch.cat([x, x]); z.sum().backward(); print(x.grad)

### gradient argument forms
x = torch.tensor([1., 2.], requires_grad=True); y = x * 2; y.backward(torch.tensor([1., 0.1])); print(x.grad); (x * 2).backward(gradient=torch.ones(2, dtype=torch.float64)); print(x.grad, x.grad.dtype); (x * 2).sum().backward(torch.tensor(3.)); print(x.grad); attempt(lambda: (x.sum()).backward(torch.ones(1))); x[:1].backward(); print(x.grad)

### zero-dim and one-element
a = torch.tensor(2., requires_grad=True); b = torch.tensor([2.], requires_grad=True); c = a * b; print(c, c.shape); c.backward(); print(a.grad, b.grad); d = torch.ones(3) * a; d.sum().backward(); print(a.grad)

### large sum of small
x = torch.full((1000,), 0.1, requires_grad=True); y = x.sum(); y.backward(); print(y, x.grad[:3], x.mean(), (x * x).sum())

### bool and integer arithmetic
a = torch.tensor([5, -5, 3]); b = torch.tensor([2, 2, -2]); print(a // b, a % b, torch.div(a, b, rounding_mode='trunc'), torch.div(a, b, rounding_mode='floor'), a / b, torch.fmod(a, b), torch.remainder(a, b), a.float() // b, -a, a.abs(), a.sign(), a.clamp(0, 4), a.bitwise_and(b) if hasattr(a, 'bitwise_and') else None, a.pow(2), a ** b.abs(), a.float().round(), torch.tensor([0.5, 1.5, -2.5]).round(), torch.tensor([-1.5]).trunc(), torch.tensor([1.7]).int(), torch.tensor([300]).to(torch.uint8), torch.tensor([True]) + 1, torch.true_divide(a, b), torch.tensor([7.]) % 3, torch.tensor([-7.]) % 3, torch.tensor([1]) / 0, torch.tensor([-1., 0., 1.]) / 0)

### graph edges after detach in the middle
x = torch.ones(1, requires_grad=True); y = x * 2; z = y.detach() + y; print(graph(z)); z.backward(); print(x.grad)

### grad mode inside backward hook
x = torch.ones(1, requires_grad=True); y = x * 2; states = []
y.register_hook(lambda g: states.append((torch.is_grad_enabled(), g.requires_grad))); y.backward(create_graph=True); print(states, x.grad)
states.clear(); y = x * 2; y.register_hook(lambda g: states.append((torch.is_grad_enabled(), g.requires_grad))); y.backward(); print(states)

### backward inside hook
x = torch.ones(2, requires_grad=True); w = torch.ones(2, requires_grad=True)
def hook(g): (w * 3).sum().backward()
y = x * 2; y.register_hook(hook); y.sum().backward(); print(x.grad, w.grad)
'''


def programs():
    for part in PROGRAMS.split("\n### ")[1:]:
        name, _, source = part.partition("\n")
        yield pytest.param(source, id=name)


def test_names_of_programs_are_unique():
    names = [p.id for p in programs()]
    assert len(set(names)) == len(names) > 120


@pytest.mark.parametrize("source", programs())
def test_program(source):
    assert_same_output(source)
