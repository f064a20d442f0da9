"""Times function transforms beside the Python loops that they replace.

Usage: python benchmarks/transforms.py [--quick] [--rounds N] [--json FILE]

`per-sample gradients`: the gradient of a network's loss for each of 64 examples, by `vmap(grad(loss))` and by a loop over the examples. `Hessian`: of a function of 50 variables, by `hessian` and by a loop of `grad` over the
entries of the gradient. Both ways take turns, round after round, with one thread. `times faster` is the ratio of the shortest times of each, which a busy machine disturbs least, and beside it the median of the rounds' ratios.
"""
import argparse
import json
import os
import statistics
import sys
import time

for _name in ('OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'):      # matrices are small here: on a busy machine one would measure how threads wait for each other
    os.environ.setdefault(_name, '1')

import autograd_nb as torch  # noqa: E402
from autograd_nb import nn  # noqa: E402
from autograd_nb.func import functional_call, grad, hessian, vmap  # noqa: E402
from autograd_nb.nn import functional as F  # noqa: E402


def per_sample(widths, batch=64):
    """Two ways to the gradients of each example's loss: (transform, loop)."""
    torch.manual_seed(0)
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.Tanh())]
    net = nn.Sequential(*layers[:-1])
    params = {name: p.detach() for name, p in net.named_parameters()}
    x, y = torch.randn(batch, widths[0]), torch.randint(0, widths[-1], (batch,))

    def loss(params, x, y):
        return F.cross_entropy(functional_call(net, params, (x[None],)), y[None])

    own = list(net.parameters())

    def loop():
        rows = [torch.autograd.grad(F.cross_entropy(net(x[i:i + 1]), y[i:i + 1]), own) for i in range(batch)]
        return [torch.stack(column) for column in zip(*rows)]

    at_once = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda: list(at_once(params, x, y).values()), loop


def second_derivatives(f, n=50):
    """Two ways to the Hessian of `f`: (transform, loop)."""
    torch.manual_seed(0)
    x = torch.randn(n)

    def loop():
        z = x.clone().requires_grad_()
        g, = torch.autograd.grad(f(z), z, create_graph=True)
        return [torch.stack([torch.autograd.grad(g[i], z, retain_graph=True)[0] for i in range(n)])]

    return lambda: [hessian(f)(x)], loop


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


torch.manual_seed(1)
WEIGHT = torch.randn(50, 50) / 7

WORKLOADS = {
    'per-sample gradients, MLP 64-64-10': lambda: per_sample((64, 64, 10)),
    'per-sample gradients, MLP 64-128-64-10': lambda: per_sample((64, 128, 64, 10)),
    'Hessian, Rosenbrock of 50': lambda: second_derivatives(rosenbrock),
    'Hessian, sines of a product, 50': lambda: second_derivatives(lambda x: (WEIGHT @ x.tanh()).sin().pow(2).sum()),
}


def compare(fast, slow, rounds):
    """Seconds of both in each round, taking turns, after checking that they agree."""
    for a, b in zip(fast(), slow()):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)
    taken = ([], [])
    for i in range(rounds):
        for k in (0, 1) if i % 2 else (1, 0):
            began = time.perf_counter()
            (fast, slow)[k]()
            taken[k].append(time.perf_counter() - began)
    return taken


def main(argv=None):
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true', help='few rounds')
    parser.add_argument('--rounds', type=int, default=0)
    parser.add_argument('--json', metavar='FILE', help='also write the figures there')
    options = parser.parse_args(argv)
    rounds, results = options.rounds or (7 if options.quick else 51), {}
    print(f'{"":<42}{"transform":>12}{"loop":>12}{"times faster":>20}')
    for name, make in WORKLOADS.items():
        fast, slow = compare(*make(), rounds)
        row = results[name] = {'transform': min(fast), 'loop': min(slow), 'ratio': min(slow) / min(fast), 'median': statistics.median(s / f for f, s in zip(fast, slow))}
        print(f'{name:<42}{row["transform"] * 1e3:>9.2f} ms{row["loop"] * 1e3:>9.2f} ms{row["ratio"]:>12.1f} ({row["median"]:.1f})')
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == '__main__':
    sys.exit(main())
