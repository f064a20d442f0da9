"""Times programs that nobody tuned the library for, beside PyTorch.

Usage: python run.py bench strangers [--only WORD ...] [--without ENGINE ...] [--threads N ...]
                                     [--rounds N] [--seconds S] [--json FILE] [--compare FILE]

The programs (benchmarks/programs.py) are written as their authors would write them for PyTorch.
Each engine lives in a process of its own, the processes take turns, and a figure is the median over
the rounds, on one thread and on all cores. With `--json`, figures of programs that are not measured
this time stay in the file, so that a long measurement can be made in parts.
"""
import argparse
import functools
import json
import os
import statistics
import sys
import warnings
from pathlib import Path

import run
from programs import PROGRAMS
from workloads import CAPTURED, installed

ROOT = Path(__file__).resolve().parent.parent

OURS, BASE, COMPILED = run.OURS, run.BASE, 'torch.compile'
ENGINES = (OURS, CAPTURED, BASE, COMPILED)


class Here(run.Here):
    """An engine in this process, for programs of strangers."""

    def __init__(self, name, threads, device='cpu'):
        warnings.simplefilter('ignore')
        super().__init__(BASE if name == COMPILED else name, threads, device)
        if name == COMPILED:
            self.engine.ready = self.engine.torch.compile

    def build(self, program):
        self.engine.torch.manual_seed(0)
        return super().build(program)

    @property
    def workloads(self):
        def built(program):
            return lambda engine: PROGRAMS[program](engine.torch)
        return {program: built(program) for program in PROGRAMS}


class Alone(run.Alone):
    """An engine in a process of its own."""

    script = __file__


def mean(rows, engine=OURS):
    """Geometric mean of an engine's ratios to PyTorch, and the worst (ratio, program)."""
    found = [(row[engine]['ratio'], name) for name, row in rows.items()
             if 'ratio' in row.get(engine, {})]
    if not found:
        return None
    return statistics.geometric_mean(ratio for ratio, _ in found), max(found), len(found)


def told(threads, rows):
    """The figures of a run as lines of text."""
    lines = [f'{threads} thread{"s" * (threads > 1)}', run.table(rows, ENGINES)]
    for engine in ENGINES:
        if engine != BASE and (found := mean(rows, engine)):
            average, (ratio, name), count = found
            lines.append(f'{engine}: {average:.3f} of {BASE}\'s time (geometric mean of {count}), '
                         f'worst {ratio:.2f} ({name})')
    return '\n'.join(lines)


def told_anywhere(error):
    "The beginning of what an error says, with no path of this machine in it."
    return str(error).splitlines()[0].replace(str(ROOT) + os.sep, '')[:200]


def measured(programs, names, threads, rounds, seconds, hire=Alone):
    """{program: {engine: figures}} on so many threads."""
    workers, rows = {}, {}
    for name in names:
        try:
            workers[name] = hire(name, threads)
        except RuntimeError as error:
            print(f'left out, because it does not start: {name} ({error})')
    for program in programs:
        able, refused = {}, {}
        for name, worker in workers.items():
            try:
                worker.build(program)
                able[name] = functools.partial(worker.seconds, program)
            except RuntimeError as error:
                if name == OURS:
                    raise
                refused[name] = {'refused': told_anywhere(error)}
        rows[program] = run.summary(run.measure(able, rounds, seconds / len(able)))
        rows[program] |= refused
        for worker in workers.values():
            worker.drop(program)
    for worker in workers.values():
        worker.leave()
    return rows


def stored(file):
    """The figures in a file, by threads; nothing if there are none."""
    if not file or not os.path.exists(file):
        return {}
    with open(file, encoding='utf-8') as opened:
        return json.load(opened)['threads']


def write(file, names, runs):
    """Store the figures, in the order of the programs."""
    before, out = stored(file), {}
    for threads in sorted({*before, *runs}, key=int, reverse=True):
        rows = before.get(threads, {}) | runs.get(threads, {})
        out[threads] = {program: rows[program] for program in PROGRAMS if program in rows}
    machine = run.machine(max(map(int, out)))
    with open(file, 'w', encoding='utf-8') as opened:
        json.dump({'machine': machine, 'engines': list(names), 'threads': out}, opened, indent=1)
        opened.write('\n')
    print(f'written to {file}')


def parse(argv):
    """The command line."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--only', nargs='+', metavar='WORD', default=[], help='programs whose name contains one')
    add('--without', nargs='+', metavar='ENGINE', default=[COMPILED],
        help=f'engines to leave out (default: {COMPILED}, which takes minutes to compile)')
    add('--threads', nargs='+', type=int, default=sorted({1, cores}, reverse=True),
        help='numbers of threads to measure with')
    add('--rounds', type=int, default=11)
    add('--seconds', type=float, default=2.0, help='time for a program on all engines')
    add('--json', metavar='FILE', help='store the figures; others in the file stay')
    add('--compare', metavar='FILE', help='compare with figures stored earlier')
    add('--serve', nargs=2, metavar=('ENGINE', 'DEVICE'), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    """Run the benchmark; returns the exit status."""
    options = parse(argv)
    if options.serve:
        run.limit_threads(options.threads[0])
        run.serve(options.serve[0], options.threads[0], options.serve[1], Here)
        return 0
    programs = [name for name in PROGRAMS
                if not options.only or any(word in name for word in options.only)]
    if not programs:
        print(f'no program contains {options.only}. There are: ' + '; '.join(PROGRAMS),
              file=sys.stderr)
        return 2
    names = [name for name in ENGINES if name not in options.without]
    if not installed('torch'):
        names = [OURS, CAPTURED]
    runs = {}
    for threads in options.threads:
        runs[str(threads)] = rows = measured(programs, names, threads, options.rounds,
                                             options.seconds)
        print(told(threads, rows), flush=True)
        before = stored(options.compare).get(str(threads))
        if before:
            print('ratio to PyTorch, then and now:\n' + run.compared(rows, {'workloads': before}))
        if options.json:
            write(options.json, names, runs)
    return 0


if __name__ == '__main__':
    sys.exit(main())
