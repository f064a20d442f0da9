"""Measures what checkpoints cost and save on a transformer.

Usage: python benchmarks/memory.py [--quick] [--layers N] [--width N] [--rounds N] [--cpu-time] [--json FILE]

One training step (forward and backward) of a transformer with layer norm, attention and a GELU network in each block is run with nothing checkpointed, with a checkpoint per block, with
evenly placed ones, and as the planner chooses for a given budget. `peak` is the most bytes of array data that were there at once above what the model itself needs (parameters and their
gradients), counted exactly; `time` is the median over the rounds of the ratio to the plain step of the same round, the variants taking turns.
"""
import argparse
import json
import math
import statistics
import time

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.cpu import track_memory
from autograd_nb.nn import functional as F
from autograd_nb.utils.checkpoint import checkpoint, checkpoint_sequential
from autograd_nb.utils.planner import plan_checkpoints


class Block(nn.Module):
    """Attention and a GELU network, each behind a layer norm and beside a shortcut."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.reshape(b, t, self.heads, d // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer(layers, width, heads=4):
    """A list of blocks with seeded weights."""
    torch.manual_seed(0)
    return nn.ModuleList([Block(width, heads) for _ in range(layers)])


def plain(blocks, x):
    for block in blocks:
        x = block(x)
    return x


def per_block(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def evenly(blocks, x):
    """About the square root of the number of blocks in each segment."""
    return checkpoint_sequential(list(blocks), max(1, round(math.sqrt(len(blocks)))), x, use_reentrant=False)


def step(run, blocks, x):
    """Forward and backward; the gradients stay, as an optimiser needs them."""
    run(blocks, x).pow(2).mean().backward()


def peak(run, blocks, x):
    """The most bytes above the start that a step holds at once, when the parameters have their gradients already."""
    step(run, blocks, x)
    with track_memory() as trace:
        step(run, blocks, x)
    return trace.added


def compare(variants, blocks, x, rounds, clock=time.perf_counter):
    """name -> (peak in bytes, median of the time ratios to the first variant, seconds)."""
    peaks = {name: peak(run, blocks, x) for name, run in variants.items()}
    times = {name: [] for name in variants}
    for i in range(rounds):
        for name in list(variants)[::1 if i % 2 else -1]:
            began = clock()
            step(variants[name], blocks, x)
            times[name].append(clock() - began)
    first = next(iter(variants))
    ratio = {name: statistics.median(t / base for t, base in zip(times[name], times[first])) for name in variants}
    return {name: (peaks[name], ratio[name], statistics.median(times[name])) for name in variants}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--quick', action='store_true', help='a small model, few rounds')
    parser.add_argument('--layers', type=int, default=12)
    parser.add_argument('--width', type=int, default=0)
    parser.add_argument('--rounds', type=int, default=0)
    parser.add_argument('--cpu-time', action='store_true', help='compare processor time instead of elapsed time, for machines that are busy with other things')
    parser.add_argument('--json', metavar='FILE', help='also write the figures there')
    options = parser.parse_args(argv)
    width, batch, length = (options.width or 64, 4, 32) if options.quick else (options.width or 256, 8, 128)
    rounds = options.rounds or (3 if options.quick else 15)
    blocks = transformer(options.layers, width)
    x = torch.randn(batch, length, width)
    plan = plan_checkpoints(blocks, x, budget=0.5)
    variants = {'plain': plain, 'a checkpoint per block': per_block, 'evenly placed': evenly, 'planned for half': lambda _, x: plan.run(x)}
    results = compare(variants, blocks, x, rounds, time.process_time if options.cpu_time else time.perf_counter)
    base = results['plain'][0]
    print(f'{options.layers} layers of width {width}, batch {batch} x {length}, {rounds} rounds\n')
    print(f'{"":<24}{"peak MiB":>10}{"saved":>8}{"time":>8}{"ms":>9}')
    for name, (bytes_, ratio, seconds) in results.items():
        print(f'{name:<24}{bytes_ / 2**20:>10.2f}{1 - bytes_ / base:>8.0%}{ratio:>8.2f}{seconds * 1000:>9.1f}')
    print(f'\nThe planner predicted {plan.peak / 2**20:.2f} MiB and {plan.time:.2f} times the time.')
    depths = (4, 9, 16) if options.quick else (4, 9, 16, 25, 36)
    growth = {}
    for n in depths:
        some = transformer(n, 64)
        y = torch.randn(4, 32, 64)
        growth[n] = {'plain': peak(plain, some, y), 'per block': peak(per_block, some, y), 'evenly': peak(evenly, some, y)}
    print(f'\n{"layers":<8}{"plain":>12}{"per block":>12}{"evenly":>12}{"evenly / sqrt(layers)":>24}   (KiB)')
    for n, row in growth.items():
        print(f'{n:<8}' + ''.join(f'{v / 1024:>12.0f}' for v in row.values()) + f'{row["evenly"] / 1024 / math.sqrt(n):>24.0f}')
    if options.json:
        with open(options.json, 'w') as f:
            json.dump({'results': results, 'growth': growth, 'planned': [plan.peak, plan.time]}, f, indent=1)


if __name__ == '__main__':
    main()
