"""Measures how time and memory grow with the graph: long chains, wide fan-in, and the picture of a large graph.

Usage: python benchmarks/scale.py [--most N] [--json FILE]

A chain is `y = y * 1.0`, over and over. Times are microseconds per node (the best of three runs), for recording, for the backward pass, for letting a used graph go, and for dropping one that never
ran backward; linear time means that a column stays level. Bytes per node are what a recorded node and its edge occupy, counted by tracemalloc; saved arrays come on top. PyTorch, if it is
installed, runs the same chains.
"""
import argparse
import gc
import importlib.util
import json
import time
import tracemalloc

import autograd_nb


def chain(torch, n, x):
    for _ in range(n):
        x = x * 1.0
    return x


def timed(action):
    """Seconds that `action()` takes, and what it returns."""
    start = time.perf_counter()
    out = action()
    return time.perf_counter() - start, out


def chain_times(torch, n, runs=3):
    """Microseconds per node of a chain of `n` nodes, by phase."""
    best = dict.fromkeys(('record', 'backward', 'free', 'drop'), float('inf'))
    for _ in range(runs):
        x = torch.tensor(1.0, requires_grad=True)
        held, taken = [], {}
        gc.collect()
        taken['record'], y = timed(lambda x=x: chain(torch, n, x))
        held.append(y)
        del y
        taken['backward'], _ = timed(held[0].backward)
        taken['free'], _ = timed(held.clear)
        held.append(chain(torch, n, x))
        taken['drop'], _ = timed(held.clear)
        for phase, seconds in taken.items():
            best[phase] = min(best[phase], seconds / n * 1e6)
    return best


def fan_in_times(torch, n):
    """Seconds to record, and to run backward, `n` edges into one node and `n` edges out of another."""
    x = torch.ones(1, requires_grad=True)
    h = x * 1
    forward, total = timed(lambda: torch.stack([h * 2 for _ in range(n)]).sum())
    backward, _ = timed(total.backward)
    assert x.grad.item() == 2 * n
    return {'forward': forward, 'backward': backward}


NODES = {
    'x * 1.0, shape ()': ((), lambda y, w: y * 1.0),
    'x + 1.0, shape (8,)': ((8,), lambda y, w: y + 1.0),
    'x * w, shape (8,)': ((8,), lambda y, w: y * w),
    'w + x, shape (8,)': ((8,), lambda y, w: w + y),
}


def bytes_per_node(torch, shape, step, n):
    """Bytes that one node of a chain of `step` occupies; what it saves belongs to `w`, which exists once."""
    x, w = torch.ones(shape, requires_grad=True), torch.ones(shape)
    y = step(x, w)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(n):
        y = step(y, w)
    size = (tracemalloc.get_traced_memory()[0] - before) / n
    tracemalloc.stop()
    return size


def picture_seconds(n):
    """Seconds to summarise and draw a chain of `n` nodes."""
    from autograd_nb import viz

    y = chain(autograd_nb, n, autograd_nb.tensor([1.0, 2.0], requires_grad=True))
    seconds, picture = timed(lambda: viz.draw(y)._repr_html_())
    assert f'{n:,}'[:-4] in picture or n < 10_000
    return seconds


def main(argv=None):
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--most', type=int, default=1_000_000, metavar='N', help='nodes of the longest chain (default: 1,000,000)')
    parser.add_argument('--json', metavar='FILE', help='write the figures to a file')
    options = parser.parse_args(argv)
    sizes = [n for n in (1_000, 10_000, 100_000) if n < options.most] + [options.most]
    libraries = {'autograd_nb': autograd_nb}
    if importlib.util.find_spec('torch') is not None:
        import torch

        torch.set_num_threads(1)
        libraries['PyTorch'] = torch

    results = {'chain': {}, 'fan-in': {}, 'bytes per node': {}, 'picture': {}}
    print(f'microseconds per node{"record":>16}{"backward":>12}{"free":>12}{"drop":>12}')
    for name, library in libraries.items():
        for n in sizes:
            times = results['chain'].setdefault(name, {})[n] = chain_times(library, n)
            print(f'{name:<13}{n:>11,}' + ''.join(f'{v:>12.2f}' for v in times.values()))
    width = max(1, options.most // 10)
    for name, library in libraries.items():
        times = results['fan-in'][name] = fan_in_times(library, width)
        print(f'{name}: {width:,} edges into one node and out of another: forward {times["forward"]:.2f} s, backward {times["backward"]:.2f} s')
    for name, (shape, step) in NODES.items():
        size = results['bytes per node'][name] = bytes_per_node(autograd_nb, shape, step, 20_000)
        print(f'{name}: {size:.0f} bytes per node')
    results['picture'][sizes[-1]] = seconds = picture_seconds(sizes[-1])
    print(f'a picture that sums up {sizes[-1]:,} nodes: {seconds:.1f} s')
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump(results, file, indent=1)
        print(f'\nwritten to {options.json}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
