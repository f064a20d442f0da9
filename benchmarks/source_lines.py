"""What it costs that every node remembers the line it was made on.

Usage: python benchmarks/source_lines.py [--quick] [--json FILE]

A chain of 200 operations on 8 numbers, forward and backward, with the operations as they are and with the same operations compiled without the two stores that note the caller's
code and position. Both run in turn, step by step and in alternating order; what is compared is the time that the least disturbed twentieth of the steps took.
"""
import argparse
import gc
import json
import sys
import time
from types import FunctionType

import run as bench

import autograd_nb as torch
from autograd_nb.layers.codegen import recording_source
from autograd_nb.graph.op import REGISTRY

RECORDING = 'f = getframe(1); n.code = f.f_code; n.lasti = f.f_lasti'
LIMIT = 0.05        # what the recording may cost on this chain


def compiled(name, recording):
    """The operation `name` as users call it, compiled anew (so that the interpreter has adapted neither variant to other uses), with or without the recording of source lines."""
    direct = REGISTRY[name].direct
    source = recording_source(REGISTRY[name], "function")
    if RECORDING not in source:
        raise SystemExit(f'the generated code of {name} has no line {RECORDING!r} to leave out')
    if not recording:
        source = '\n'.join(line for line in source.splitlines() if line.strip() != RECORDING)
    scope = dict(direct.__globals__)
    exec(source, scope)
    made = scope[name]
    function = FunctionType(made.__code__, scope, name, made.__defaults__)
    function.__kwdefaults__ = made.__kwdefaults__
    return function


def chains():
    """Two steps: {'with lines': …, 'without lines': …}."""
    x = torch.randn(8, requires_grad=True)
    names = ('mul', 'add', 'tanh')
    mul, add, tanh = (REGISTRY[name].direct for name in names)
    for result in tanh(add(mul(x, 0.999), 0.001)), x.sum():     # compiled at their first call
        result.sum().backward()
    kinds = {'with lines': [compiled(n, True) for n in names], 'without lines': [compiled(n, False) for n in names]}

    def step_of(mul, add, tanh):
        def step():
            y = x
            for _ in range(50):
                y = mul(tanh(add(mul(y, 0.999), 0.001)), 1.01)
            x.grad = None
            y.sum().backward()
        return step

    return {name: step_of(*functions) for name, functions in kinds.items()}


def overhead(quick=False):
    """The cost relative to the chain without lines, and the milliseconds of both, taken from the twentieth of the steps that other programs disturbed least."""
    steps, rounds = chains(), 1000 if quick else 5000
    taken, order = {name: [] for name in steps}, list(steps)
    for step in steps.values():
        for _ in range(50):
            step()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name in order:
            step, start = steps[name], time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - start)
        order.reverse()
    gc.enable()
    calm = {name: sorted(values)[rounds // 20] for name, values in taken.items()}
    return calm['with lines'] / calm['without lines'] - 1, {name: value * 1e3 for name, value in calm.items()}


def main(argv=None):
    """Run the benchmark; returns the exit status, 1 if the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true', help='a rough answer in a few seconds')
    parser.add_argument('--json', metavar='FILE', help='write the figures to a file')
    options = parser.parse_args(argv)
    cost, milliseconds = overhead(options.quick)
    print(f"chain of 200 ops: {milliseconds['without lines']:.4f} ms without source lines, {milliseconds['with lines']:.4f} ms with them: {cost:+.1%}; at most {LIMIT:.0%} is allowed")
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump({'machine': bench.machine(), 'overhead': cost, 'milliseconds': milliseconds}, file, indent=1)
    return int(cost > LIMIT)


if __name__ == '__main__':
    sys.exit(main())
