"""What it costs that every node remembers the line it was made on.

Usage: python benchmarks/source_lines.py [--quick] [--json FILE]

A chain of 200 operations on 8 numbers, forward and backward, with the operations as they are and with the same operations compiled without the two stores that note the caller's
code and position. Both run in turn, in alternating order, in processor time; the figure is the median over the rounds of the difference, relative to the time without, with the middle half of the rounds.
"""
import argparse
import gc
import json
import statistics
import sys
import time
from types import FunctionType

import run as bench

import autograd_nb as torch
from autograd_nb.graph.op import REGISTRY, _function

RECORDING = 'f = getframe(1); n.code = f.f_code; n.lasti = f.f_lasti'
LIMIT = 0.05        # what the recording may cost on this chain


def without_lines(name):
    """The operation `name` as users call it, compiled without the recording of source lines."""
    direct = REGISTRY[name].direct
    source = '\n'.join(_function(REGISTRY[name], True))
    if RECORDING not in source:
        raise SystemExit(f'the generated code of {name} has no line {RECORDING!r} to leave out')
    lines = [line for line in source.splitlines() if line.strip() != RECORDING]
    scope = dict(direct.__globals__)
    exec('\n'.join(lines), scope)
    made = scope[name]
    function = FunctionType(made.__code__, scope, name, made.__defaults__)
    function.__kwdefaults__ = made.__kwdefaults__
    return function


def chains():
    """Two steps: {'with lines': …, 'without lines': …}."""
    x = torch.randn(8, requires_grad=True)
    names = ('mul', 'add', 'tanh')
    for operation in (x * 0.999 + 0.001).tanh(), x.sum():     # compiled at their first call
        operation.sum().backward()
    kinds = {'with lines': [REGISTRY[n].direct for n in names], 'without lines': [without_lines(n) for n in names]}

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
    """The cost relative to the chain without lines: (lower quartile, median, upper quartile), and the milliseconds of both.

    Processor time of this process is measured, in many short turns: other programs on the machine disturb it least."""
    steps, rounds, times = chains(), 150 if quick else 800, 8
    taken, order = {name: [] for name in steps}, list(steps)
    for step in steps.values():
        for _ in range(20):
            step()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name in order:
            step, start = steps[name], time.process_time()
            for _ in range(times):
                step()
            taken[name].append((time.process_time() - start) / times)
        order.reverse()
    gc.enable()
    ratios = [a / b - 1 for a, b in zip(taken['with lines'], taken['without lines'])]
    return bench.quartiles(ratios), {name: statistics.median(values) * 1e3 for name, values in taken.items()}


def main(argv=None):
    """Run the benchmark; returns the exit status, 1 if the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true', help='a rough answer in a few seconds')
    parser.add_argument('--json', metavar='FILE', help='write the figures to a file')
    options = parser.parse_args(argv)
    (low, middle, high), milliseconds = overhead(options.quick)
    print(f"chain of 200 ops: {milliseconds['without lines']:.3f} ms without source lines, {milliseconds['with lines']:.3f} ms with them: "
          f'{middle:+.1%} (middle half {low:+.1%} to {high:+.1%}); at most {LIMIT:.0%} is allowed')
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump({'machine': bench.machine(), 'overhead': {'low': low, 'median': middle, 'high': high}, 'milliseconds': milliseconds}, file, indent=1)
    return int(middle > LIMIT)


if __name__ == '__main__':
    sys.exit(main())
