"""Times autograd_nb beside whichever engines are installed, in one run.

Usage: python benchmarks/run.py [--quick] [--only WORD ...] [--threads N] [--json FILE]

Every workload is run by all engines in turn, round after round, in alternating order, so that a slow moment of the machine hits all of them. A figure is the
median over the rounds of (engine's time / PyTorch's time in the same round); below 1 is faster than PyTorch. The spread is the middle half of the rounds.
"""
import argparse
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import sys
import time


# ---------------------------------------------------------------- engines

class TorchLike:
    """An engine that is imported under PyTorch's names: PyTorch itself, and autograd_nb."""

    def __init__(self, name, module):
        self.name, self.torch = name, module

    def array(self, values, grad=False):
        return self.torch.tensor(values, requires_grad=grad)

    def gradient(self, loss, *inputs):
        for x in inputs:
            x.grad = None
        loss(*inputs).backward()

    tanh = staticmethod(lambda x: x.tanh())
    sum = staticmethod(lambda x: x.sum())


class Hips:
    """HIPS autograd: gradients of functions of NumPy arrays."""

    name = 'HIPS autograd'

    def __init__(self):
        import autograd
        import autograd.numpy as anp
        self.grad, self.anp = autograd.grad, anp

    def array(self, values, grad=False):
        return values

    def gradient(self, loss, *inputs):
        self.grad(loss, tuple(range(len(inputs))))(*inputs)

    def tanh(self, x):
        return self.anp.tanh(x)

    def sum(self, x):
        return self.anp.sum(x)


class MyGrad(TorchLike):
    """MyGrad: tensors on NumPy."""

    def __init__(self):
        import mygrad
        self.name, self.mygrad = 'MyGrad', mygrad

    def array(self, values, grad=False):
        return self.mygrad.tensor(values, constant=not grad)

    def gradient(self, loss, *inputs):
        loss(*inputs).backward()
        for x in inputs:
            x.null_grad()

    def tanh(self, x):
        return self.mygrad.tanh(x)


def installed(module):
    """Whether `module` can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def engines(threads):
    """The engines at hand, autograd_nb first, and the names of those that are missing."""
    import autograd_nb
    found, missing = [TorchLike('autograd_nb', autograd_nb)], []
    if installed('torch'):
        import torch
        torch.set_num_threads(threads)
        found.append(TorchLike('PyTorch', torch))
    else:
        missing.append('PyTorch (torch)')
    for module, cls, title in (('autograd', Hips, 'HIPS autograd (autograd)'), ('mygrad', MyGrad, 'MyGrad (mygrad)')):
        if installed(module):
            found.append(cls())
        else:
            missing.append(title)
    return found, missing


# ---------------------------------------------------------------- workloads

def chain(shape):
    """Forward and backward through 200 small operations and a sum."""

    def build(engine):
        import numpy as np
        x = engine.array(np.random.default_rng(0).standard_normal(shape).astype(np.float32), grad=True)
        tanh, total = engine.tanh, engine.sum

        def loss(y):
            for _ in range(50):
                y = tanh(y * 0.999 + 0.001) * 1.01
            return total(y)

        return lambda: engine.gradient(loss, x)

    return build


def mlp(sizes, batch):
    """One training step (forward, backward, Adam) of a multi-layer perceptron; engines with torch's modules only."""

    def build(engine):
        if type(engine) is not TorchLike:
            return None
        torch = engine.torch
        nn, optim = torch.nn, torch.optim
        torch.manual_seed(0)
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        model, loss_of = nn.Sequential(*layers[:-1]), nn.CrossEntropyLoss()
        optimizer = optim.Adam(model.parameters())
        x, y = torch.randn(batch, sizes[0]), torch.randint(0, sizes[-1], (batch,))

        def step():
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()

        return step

    return build


def inference(mode):
    """Forward through 200 small operations under a mode."""

    def build(engine):
        if type(engine) is not TorchLike:
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


WORKLOADS = {
    'chain of 200 ops, shape ()': chain(()),
    'chain of 200 ops, shape (8,)': chain((8,)),
    'chain of 200 ops, shape (64, 64)': chain((64, 64)),
    'MLP 64-64-10, batch 32, Adam step': mlp((64, 64, 10), 32),
    'MLP 784-256-128-10, batch 64, Adam step': mlp((784, 256, 128, 10), 64),
    'forward of 200 ops, recording': inference(None),
    'forward of 200 ops, no_grad': inference('no_grad'),
    'forward of 200 ops, inference_mode': inference('inference_mode'),
}


# ---------------------------------------------------------------- measuring

def seconds(step, times):
    """Mean seconds of `times` calls."""
    start = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - start) / times


def measure(steps, rounds, budget):
    """Seconds of each step in each round: {engine: [seconds, ...]}, interleaved in alternating order."""
    times = {}
    for name, step in steps.items():
        step()                                              # warm up: caches, lazily compiled operations
        times[name] = max(1, int(budget / rounds / max(seconds(step, 3), 1e-7)))
    order, taken = list(steps), {name: [] for name in steps}
    gc.collect()
    for _ in range(rounds):
        for name in order:
            taken[name].append(seconds(steps[name], times[name]))
        order.reverse()
    return taken


def quartiles(values):
    """Lower quartile, median, upper quartile."""
    return tuple(statistics.quantiles(values, n=4)) if len(values) > 1 else (values[0],) * 3


def summary(taken, base):
    """Median milliseconds and ratio to `base` (with its middle half) of every engine."""
    out = {}
    for name, values in taken.items():
        row = {'milliseconds': statistics.median(values) * 1e3}
        if base in taken:
            low, middle, high = quartiles([a / b for a, b in zip(values, taken[base])])
            row.update(ratio=middle, low=low, high=high)
        out[name] = row
    return out


def machine():
    """What the figures were taken on."""
    versions = {}
    for package in ('autograd_nb', 'numpy', 'torch', 'autograd', 'mygrad'):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {'python': platform.python_version(), 'system': platform.system(), 'processor': platform.machine(), 'cores': os.cpu_count(), 'versions': versions}


def table(results, names):
    """The results as lines of text."""
    width = max(map(len, results))
    lines = [' ' * width + ''.join(f'{n:>26}' for n in names)]
    for workload, rows in results.items():
        cells = []
        for n in names:
            row = rows.get(n)
            if row is None:
                cells.append('-')
            elif 'ratio' in row:
                cells.append(f"{row['milliseconds']:.3g} ms  {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})")
            else:
                cells.append(f"{row['milliseconds']:.3g} ms")
        lines.append(f'{workload:<{width}}' + ''.join(f'{c:>26}' for c in cells))
    return '\n'.join(lines)


def main(argv=None):
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true', help='a rough answer in under a minute')
    parser.add_argument('--only', nargs='+', metavar='WORD', default=[], help='workloads whose name contains one of these words')
    parser.add_argument('--threads', type=int, default=os.cpu_count() or 1, help="PyTorch's threads (default: all cores)")
    parser.add_argument('--json', metavar='FILE', help='write the figures to a file')
    options = parser.parse_args(argv)

    found, missing = engines(options.threads)
    chosen = {k: w for k, w in WORKLOADS.items() if not options.only or any(word in k for word in options.only)}
    if not chosen:
        print(f'no workload contains {options.only}. There are: ' + '; '.join(WORKLOADS), file=sys.stderr)
        return 2
    for name in missing:
        print(f'left out, because it is not installed: {name}')
    rounds, budget = (11, 1.0) if options.quick else (31, 6.0)
    try:
        from tqdm import tqdm as progress
    except ImportError:
        def progress(items, **_):
            return items
    results = {}
    for name in progress(chosen, desc='benchmark', disable=not sys.stderr.isatty()):
        steps = {e.name: step for e in found if (step := chosen[name](e)) is not None}
        results[name] = summary(measure(steps, rounds, budget / len(steps)), 'PyTorch')
    print('median time of one step; beside it the time relative to PyTorch in the same round, with the middle half of the rounds\n')
    print(table(results, [e.name for e in found]))
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump({'machine': {**machine(), 'threads': options.threads}, 'results': results}, file, indent=1)
        print(f'\nwritten to {options.json}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
