"""The workloads and the engines that benchmarks/run.py times.

A workload is a function of an engine that returns a step to be timed (a function without arguments), or None where the engine has no natural way to do it. Engines of PyTorch's
kind run programs written for PyTorch; the others get the same model written in array functions, for which each engine has a small adapter (`matmul`, `train`, …).
"""
import functools
import importlib.util
import math


# ---------------------------------------------------------------- engines

class Torch:
    """An engine that is imported under PyTorch's names: PyTorch itself, and autograd_nb."""

    def __init__(self, name, module):
        self.name, self.torch = name, module

    def place(self, device):
        """Make tensors on `device` from now on. Returns why that cannot be, or None."""
        if device == 'cuda' and not self.torch.cuda.is_available():
            return 'it finds no GPU'
        self.torch.set_default_device(device)

    def ready(self, step):
        """The step as this engine runs it."""
        return step

    def array(self, values, grad=False):
        return self.torch.tensor(values, requires_grad=grad)

    def gradient(self, loss, *inputs):
        def step():
            for x in inputs:
                x.grad = None
            loss(*inputs).backward()
        return step

    tanh, exp, log, sqrt, sin = (staticmethod(lambda x, name=name: getattr(x, name)()) for name in ('tanh', 'exp', 'log', 'sqrt', 'sin'))
    sum = staticmethod(lambda x: x.sum())


class Captured(Torch):
    """autograd_nb with each step captured: recorded, and then replayed."""

    def ready(self, step):
        from autograd_nb.utils.capture import capture
        return capture(step)


class Arrays:
    """An engine of array functions. Its adapters give: array, gradient, train, and the functions of `self.np`."""

    functions = ('tanh', 'exp', 'log', 'sqrt', 'sin', 'matmul', 'maximum', 'reshape', 'transpose')
    ready = Torch.ready

    def __init__(self, np):
        for name in self.functions:
            setattr(self, name, getattr(np, name))

    def sum(self, x, axis=None):
        return self.np.sum(x) if axis is None else self.np.sum(x, axis=axis, keepdims=True)

    def max(self, x):
        return self.np.max(x, axis=-1, keepdims=True)

    def relu(self, x):
        return self.maximum(x, 0.)

    def rows(self, table, index):
        return table[index]

    conv = pool = None


class NumPyAdam:
    """Adam, in place, for engines that bring no optimiser."""

    def __init__(self, values):
        import numpy as np
        self.np, self.values, self.step_count = np, values, 0
        self.first, self.second = [np.zeros_like(v) for v in values], [np.zeros_like(v) for v in values]

    def step(self, gradients):
        self.step_count += 1
        for p, g, m, v in zip(self.values, gradients, self.first, self.second):
            m *= .9
            m += .1 * g
            v *= .999
            v += .001 * (g * g)
            p -= 1e-3 / (1 - .9 ** self.step_count) * m / (self.np.sqrt(v / (1 - .999 ** self.step_count)) + 1e-8)


class Hips(Arrays):
    """HIPS autograd: gradients of functions of NumPy arrays."""

    name = 'HIPS autograd'

    def __init__(self):
        import autograd
        import autograd.numpy as np
        self.autograd, self.np = autograd, np
        super().__init__(np)

    def array(self, values, grad=False):
        return values

    def gradient(self, loss, *inputs):
        derivative = self.autograd.grad(loss, tuple(range(len(inputs))))
        return lambda: derivative(*inputs)

    def train(self, loss, parameters):
        derivative, adam = self.autograd.grad(loss), NumPyAdam(parameters)
        return lambda: adam.step(derivative(parameters))

    def max(self, x):
        return self.autograd.extend.primitive(lambda x: x.max(-1, keepdims=True))(getattr(x, '_value', x))       # only a shift against overflow: no gradient


class MyGrad(Arrays):
    """MyGrad: tensors on NumPy."""

    name = 'MyGrad'

    def __init__(self):
        import mygrad
        self.np = mygrad
        super().__init__(mygrad)

    def array(self, values, grad=False):
        return self.np.tensor(values, constant=not grad)

    def gradient(self, loss, *inputs):
        def step():
            loss(*inputs).backward()
            for x in inputs:
                x.null_grad()
        return step

    def train(self, loss, parameters):
        tensors, adam = [self.array(p, grad=True) for p in parameters], NumPyAdam(parameters)

        def step():
            loss(tensors).backward()
            adam.step([t.grad for t in tensors])
            for t, p in zip(tensors, parameters):
                t.null_grad()
                t.data[...] = p
        return step

    def relu(self, x):
        from mygrad.nnet import relu
        return relu(x)

    def conv(self, x, w):
        from mygrad.nnet import conv_nd
        return conv_nd(x, w, stride=1, padding=1)

    def pool(self, x):
        from mygrad.nnet import max_pool
        return max_pool(x, (2, 2), 2)


class Jax(Arrays):
    """JAX, every step compiled whole by jax.jit."""

    name = 'jax.jit'

    def __init__(self):
        import jax
        self.jax, self.np = jax, jax.numpy
        super().__init__(jax.numpy)

    def array(self, values, grad=False):
        return self.np.asarray(values)

    def gradient(self, loss, *inputs):
        derivative = self.jax.jit(self.jax.grad(loss, tuple(range(len(inputs)))))
        return lambda: self.jax.block_until_ready(derivative(*inputs))

    def train(self, loss, parameters):
        jax, np = self.jax, self.np
        parameters = [np.asarray(p) for p in parameters]
        state = [parameters, [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters], np.asarray(0.)]

        @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
        def update(parameters, first, second, t):
            t = t + 1
            gradients = jax.grad(loss)(parameters)
            first = [.9 * m + .1 * g for m, g in zip(first, gradients)]
            second = [.999 * v + .001 * g * g for v, g in zip(second, gradients)]
            parameters = [p - 1e-3 / (1 - .9 ** t) * m / (np.sqrt(v / (1 - .999 ** t)) + 1e-8) for p, m, v in zip(parameters, first, second)]
            return parameters, first, second, t

        def step():
            state[:] = jax.block_until_ready(update(*state))
        return step

    def conv(self, x, w):
        return self.jax.lax.conv(x, w, (1, 1), 'SAME')

    def pool(self, x):
        return self.jax.lax.reduce_window(x, -self.np.inf, self.jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID')


class Tinygrad(Arrays):
    """tinygrad, every step compiled by its TinyJit."""

    name = 'tinygrad'
    functions = ()

    def __init__(self):
        import tinygrad
        self.tinygrad, self.np = tinygrad, None
        for name in ('tanh', 'exp', 'log', 'sqrt', 'sin', 'relu'):
            setattr(self, name, lambda x, name=name: getattr(x, name)())
        super().__init__(None)

    def array(self, values, grad=False):
        return self.tinygrad.Tensor(values).realize()

    def gradient(self, loss, *inputs):
        @self.tinygrad.TinyJit
        def derivative():
            found = loss(*inputs).gradient(*inputs)
            self.tinygrad.Tensor.realize(*found)
            return found
        return lambda: derivative()[0].numpy()

    def train(self, loss, parameters):
        tensors = [self.array(p, grad=True) for p in parameters]
        optimizer = self.tinygrad.nn.optim.Adam(tensors)

        @self.tinygrad.TinyJit
        def update():
            optimizer.zero_grad()
            out = loss(tensors)
            out.backward()
            return out.realize(*optimizer.schedule_step())

        def step():
            with self.tinygrad.Context(TRAINING=1):
                update().item()
        return step

    matmul = staticmethod(lambda a, b: a @ b)
    reshape = staticmethod(lambda x, shape: x.reshape(shape))
    transpose = staticmethod(lambda x, axes: x.permute(axes))
    max = staticmethod(lambda x: x.max(-1, keepdim=True))
    conv = staticmethod(lambda x, w: x.conv2d(w, padding=1))
    pool = staticmethod(lambda x: x.max_pool2d((2, 2)))

    def sum(self, x, axis=None):
        return x.sum() if axis is None else x.sum(axis, keepdim=True)

    def rows(self, table, index):
        return table[self.array(index)]


def installed(module):
    """Whether `module` can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


CAPTURED = 'autograd_nb, captured'
PEERS = {'PyTorch': 'torch', 'HIPS autograd': 'autograd', 'MyGrad': 'mygrad', 'tinygrad': 'tinygrad', 'jax.jit': 'jax'}
ADAPTERS = {'HIPS autograd': Hips, 'MyGrad': MyGrad, 'tinygrad': Tinygrad, 'jax.jit': Jax}


def engine(name, threads):
    """The engine called `name`, on so many threads."""
    if name in ('autograd_nb', CAPTURED):
        import autograd_nb
        return (Torch if name == 'autograd_nb' else Captured)(name, autograd_nb)
    if name == 'PyTorch':
        import torch
        torch.set_num_threads(threads)
        return Torch(name, torch)
    return ADAPTERS[name]()


# ---------------------------------------------------------------- small operations

def numbers(*shape, seed=0):
    """Normal float32 numbers."""
    import numpy as np
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(shape, length=200):
    """Forward and backward through a chain of small operations and a sum."""

    def build(engine):
        tanh, total = engine.tanh, engine.sum

        def loss(y):
            for _ in range(length // 4):
                y = tanh(y * 0.999 + 0.001) * 1.01
            return total(y)

        if not isinstance(engine, Torch) and (length > 1000 or engine.name == 'tinygrad'):
            return None                                     # minutes of compilation, or more stack than there is
        return engine.gradient(loss, engine.array(numbers(*shape), grad=True))

    return build


def pointwise(size):
    """Forward and backward through ten pointwise operations on large arrays."""

    def build(engine):
        exp, tanh, total = engine.exp, engine.tanh, engine.sum

        def loss(x, y):
            z = x * y + x
            z = tanh(z) * 0.5 + y
            z = exp(z * 0.1) - x
            return total(z * z)

        return engine.gradient(loss, engine.array(numbers(size), grad=True), engine.array(numbers(size, seed=1), grad=True))

    return build


def inference(mode):
    """Forward through 200 small operations under a mode."""

    def build(engine):
        if not isinstance(engine, Torch):
            return None
        torch = engine.torch
        x = torch.ones(8, requires_grad=True)

        def run():
            y = x
            for _ in range(50):
                y = (y * 0.999 + 0.001).tanh() * 1.01

        if mode is None:
            return run
        context = getattr(torch, mode)

        def step():
            with context():
                run()

        return step

    return build


# ---------------------------------------------------------------- training steps

def torch_step(torch, model, optimizer, loss):
    """A training step as PyTorch programs write it."""
    def step():
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    return step


def cross_entropy(e, logits, one_hot):
    """Mean cross-entropy in array functions."""
    shifted = logits - e.max(logits)
    return e.sum((e.log(e.sum(e.exp(shifted), -1)) - e.sum(shifted * one_hot, -1))) * (1 / math.prod(one_hot.shape[:-1]))


def one_hot(classes, n):
    """Rows of zeros with a one each."""
    import numpy as np
    return np.eye(n, dtype=np.float32)[classes]


def classes(n, *shape):
    """Random class numbers."""
    import numpy as np
    return np.random.default_rng(2).integers(0, n, shape)


def weights(*shape):
    """Initial weights."""
    return numbers(*shape) / math.sqrt(math.prod(shape[1:]))


def mlp(sizes, batch):
    """One training step of a multi-layer perceptron with Adam."""

    def build(engine):
        x, y = numbers(batch, sizes[0]), classes(sizes[-1], batch)
        if isinstance(engine, Torch):
            torch = engine.torch
            nn = torch.nn
            torch.manual_seed(0)
            layers = []
            for a, b in zip(sizes, sizes[1:]):
                layers += [nn.Linear(a, b), nn.ReLU()]
            model, criterion = nn.Sequential(*layers[:-1]), nn.CrossEntropyLoss()
            x, y = torch.tensor(x), torch.tensor(y)
            return torch_step(torch, model, torch.optim.Adam(model.parameters()), lambda model: criterion(model(x), y))
        e, n = engine, len(sizes) - 1
        x, target = e.array(x), e.array(one_hot(y, sizes[-1]))

        def loss(p):
            h = x
            for k in range(n):
                h = e.matmul(h, p[2 * k]) + p[2 * k + 1]
                if k < n - 1:
                    h = e.relu(h)
            return cross_entropy(e, h, target)

        return e.train(loss, [v for a, b in zip(sizes, sizes[1:]) for v in (weights(b, a).T.copy(), numbers(b) * 0)])

    return build


def gpt_model(torch, layers, d, T, vocabulary, heads=4, checkpointed=False):
    """A small GPT as PyTorch programs write it."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x):
            B, T, d = x.shape
            q, k, v = (t.view(B, T, heads, d // heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(d, dim=2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(B, T, d))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, d), nn.Embedding(T, d)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary)

        def forward(self, index):
            x = self.tokens(index) + self.places(torch.arange(index.shape[1]))
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
            return self.head(self.norm(x))

    return GPT()


def gpt(layers, d, T, B, vocabulary=65, heads=4, checkpointed=False):
    """One training step of a small GPT with AdamW."""

    def build(engine):
        index, target = classes(vocabulary, B, T), classes(vocabulary, B, T)
        if isinstance(engine, Torch):
            torch = engine.torch
            if checkpointed:
                import importlib
                importlib.import_module(torch.__name__ + '.utils.checkpoint')
            torch.manual_seed(0)
            model = gpt_model(torch, layers, d, T, vocabulary, heads, checkpointed)
            index, target = torch.tensor(index), torch.tensor(target)
            criterion = torch.nn.functional.cross_entropy
            return torch_step(torch, model, torch.optim.AdamW(model.parameters()), lambda model: criterion(model(index).view(-1, vocabulary), target.view(-1)))
        if checkpointed:
            return None
        e = engine
        import numpy as np
        hidden = e.array(np.triu(np.full((T, T), -1e9, np.float32), 1))
        wanted = e.array(one_hot(target.reshape(-1), vocabulary))

        def norm(x, w, b):
            c = x - e.sum(x, -1) * (1 / d)
            return c / e.sqrt(e.sum(c * c, -1) * (1 / d) + 1e-5) * w + b

        def gelu(x):
            return x * 0.5 * (e.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.)

        def heads_first(x):
            return e.transpose(e.reshape(x, (B, T, heads, d // heads)), (0, 2, 1, 3))

        def loss(p):
            tokens, places, *rest, w, b, out, bias = p
            x = e.reshape(e.rows(tokens, index.reshape(-1)), (B, T, d)) + places
            x = e.reshape(x, (B * T, d))
            for k in range(layers):
                w1, b1, *qkv, proj, pb, w2, b2, up, ub, down, db = rest[16 * k:16 * k + 16]
                h = norm(x, w1, b1)
                query, key, value = (heads_first(e.matmul(h, qkv[2 * j]) + qkv[2 * j + 1]) for j in range(3))
                scores = e.matmul(query, e.transpose(key, (0, 1, 3, 2))) * (1 / math.sqrt(d // heads)) + hidden
                scores = e.exp(scores - e.max(scores))
                a = e.matmul(scores / e.sum(scores, -1), value)
                x = x + e.matmul(e.reshape(e.transpose(a, (0, 2, 1, 3)), (B * T, d)), proj) + pb
                x = x + e.matmul(gelu(e.matmul(norm(x, w2, b2), up) + ub), down) + db
            return cross_entropy(e, e.matmul(norm(x, w, b), out) + bias, wanted)

        def affine(a, b):
            return [weights(b, a).T.copy(), numbers(b) * 0]

        scale = [numbers(d) * 0 + 1, numbers(d) * 0]
        block = [*scale, *affine(d, d), *affine(d, d), *affine(d, d), *affine(d, d), *scale, *affine(d, 4 * d), *affine(4 * d, d)]
        return e.train(loss, [v.copy() for v in (numbers(vocabulary, d), numbers(T, d), *block * layers, *scale, *affine(d, vocabulary))])

    return build


def cnn(batch=64):
    """One training step of a convolutional network on images of 28 x 28 with Adam."""

    def build(engine):
        x, y = numbers(batch, 1, 28, 28), classes(10, batch)
        if isinstance(engine, Torch):
            torch = engine.torch
            nn = torch.nn
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
            criterion = nn.CrossEntropyLoss()
            x, y = torch.tensor(x), torch.tensor(y)
            return torch_step(torch, model, torch.optim.Adam(model.parameters()), lambda model: criterion(model(x), y))
        e = engine
        if e.conv is None:
            return None
        x, target = e.array(x), e.array(one_hot(y, 10))

        def loss(p):
            w1, b1, w2, b2, w, b = p
            h = e.pool(e.relu(e.conv(x, w1) + b1))
            h = e.pool(e.relu(e.conv(h, w2) + b2))
            return cross_entropy(e, e.matmul(e.reshape(h, (batch, 32 * 7 * 7)), w) + b, target)

        return e.train(loss, [weights(16, 1, 3, 3), numbers(16, 1, 1) * 0, weights(32, 16, 3, 3), numbers(32, 1, 1) * 0, weights(10, 32 * 7 * 7).T.copy(), numbers(10) * 0])

    return build


# ---------------------------------------------------------------- transforms

def per_sample(d=64, batch=128):
    """The gradient of each example's own loss, for a perceptron."""

    def build(engine):
        x, y, w, v = numbers(batch, d), numbers(batch, seed=1), weights(d, d), weights(d)
        if isinstance(engine, Torch):
            torch = engine.torch
            x, y, w, v = (torch.tensor(a) for a in (x, y, w, v))
            gradients = torch.func.vmap(torch.func.grad(lambda w, v, x, y: ((x @ w).tanh() @ v - y) ** 2, argnums=(0, 1)), in_dims=(None, None, 0, 0))
            return lambda: gradients(w, v, x, y)
        if engine.name == 'jax.jit':
            jax, np = engine.jax, engine.np
            gradients = jax.jit(jax.vmap(jax.grad(lambda w, v, x, y: (np.tanh(x @ w) @ v - y) ** 2, argnums=(0, 1)), in_axes=(None, None, 0, 0)))
            return lambda: jax.block_until_ready(gradients(w, v, x, y))
        return None

    return build


def hessian(n=64):
    """The Hessian of a function of n numbers."""

    def build(engine):
        a, x = numbers(n, n), numbers(n, seed=1)
        if isinstance(engine, Torch):
            torch = engine.torch
            a, x = torch.tensor(a), torch.tensor(x)
            second = torch.func.hessian(lambda x: ((a @ x).tanh() ** 2).sum())
            return lambda: second(x)
        if engine.name == 'jax.jit':
            jax, np = engine.jax, engine.np
            second = jax.jit(jax.hessian(lambda x: (np.tanh(a @ x) ** 2).sum()))
            return lambda: jax.block_until_ready(second(x))
        if engine.name == 'HIPS autograd':
            np = engine.np
            second = engine.autograd.hessian(lambda x: np.sum(np.tanh(np.matmul(a, x)) ** 2))
            return lambda: second(x)
        return None

    return build


WORKLOADS = {
    'chain of 200 ops, shape ()': chain(()),
    'chain of 200 ops, shape (8,)': chain((8,)),
    'chain of 200 ops, shape (64, 64)': chain((64, 64)),
    'MLP 64-64-10, batch 32, Adam': mlp((64, 64, 10), 32),
    'MLP 784-256-128-10, batch 64, Adam': mlp((784, 256, 128, 10), 64),
    'MLP 1024-2048-2048-1024-10, batch 256, Adam': mlp((1024, 2048, 2048, 1024, 10), 256),
    'GPT 2 layers, d=64, T=64, B=8, AdamW': gpt(2, 64, 64, 8),
    'GPT 4 layers, d=256, T=128, B=8, AdamW': gpt(4, 256, 128, 8),
    'CNN 28x28, batch 64, Adam': cnn(),
    'ten pointwise ops on 10^6': pointwise(10 ** 6),
    'ten pointwise ops on 10^7': pointwise(10 ** 7),
    'chain of 10^6 ops': chain((), 10 ** 6),
    'forward of 200 ops, recording': inference(None),
    'forward of 200 ops, no_grad': inference('no_grad'),
    'forward of 200 ops, inference_mode': inference('inference_mode'),
    'per-sample gradients, batch 128': per_sample(),
    'Hessian of 64 numbers': hessian(),
    'transformer of 12 layers, d=128': gpt(12, 128, 64, 8),
    'transformer of 12 layers, d=128, checkpointed': gpt(12, 128, 64, 8, checkpointed=True),
}
ON_GPU = {              # what a GPU is for
    'MLP 4096-8192-8192-10, batch 4096, Adam': mlp((4096, 8192, 8192, 10), 4096),
    'GPT 8 layers, d=768, T=512, B=8, AdamW': gpt(8, 768, 512, 8),
    'ten pointwise ops on 10^8': pointwise(10 ** 8),
}
SLOW = {*ON_GPU, 'MLP 1024-2048-2048-1024-10, batch 256, Adam', 'GPT 4 layers, d=256, T=128, B=8, AdamW', 'ten pointwise ops on 10^7', 'chain of 10^6 ops', 'transformer of 12 layers, d=128', 'transformer of 12 layers, d=128, checkpointed'}
STEPS = {name for name in WORKLOADS if name.startswith(('MLP', 'GPT', 'CNN', 'ten', 'chain of 200', 'transformer'))}       # what can be captured
