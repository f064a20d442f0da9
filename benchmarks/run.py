"""Times autograd_nb beside whichever engines are installed, in one run.

Usage: python benchmarks/run.py [--device cuda] [--quick] [--only WORD ...] [--without ENGINE ...] [--threads N] [--no-memory] [--json FILE] [--compare FILE]

Every engine lives in a process of its own: in one process, the threads of one engine that still wait for work slow down the next by a factor of two or more. The processes take turns, round
after round, in alternating order, so that a slow moment of the machine hits all of them. A figure is the median over the rounds of (engine's time / PyTorch's time in the same round); below
1 is faster than PyTorch. The spread is the middle half of the rounds. Peak memory is what a further process needs for three steps, beyond what it held before it built the workload.
"""
import argparse
import functools
import gc
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

from workloads import CAPTURED, ON_GPU, PEERS, SLOW, STEPS, WORKLOADS, engine, installed

OURS, BASE = 'autograd_nb', 'PyTorch'


# ---------------------------------------------------------------- time

class Here:
    """An engine in this process, and the steps it has built."""

    workloads = WORKLOADS | ON_GPU

    def __init__(self, name, threads, device='cpu'):
        self.engine, self.on_gpu, self.steps, self.took = engine(name, threads), device == 'cuda', {}, {}
        why = self.engine.place(device) if self.on_gpu else None
        if why is not None:
            raise RuntimeError(why)

    def build(self, workload):
        """Make the step of a workload and carry it out once. Returns whether the engine has a natural way to do it."""
        step = self.workloads[workload](self.engine)
        if step is None:
            return False
        self.steps[workload] = step = self.engine.ready(step)
        for _ in range(4):                                  # caches, lazily compiled operations, two recordings of what is captured
            start = time.perf_counter()
            step()
            self.took[workload] = time.perf_counter() - start
        gc.collect()
        return True

    def seconds(self, workload, times):
        """Mean seconds of `times` steps."""
        step = self.steps[workload]
        if self.took[workload] < .25:
            step()                                          # another process has had the caches
        self.took[workload] = (self._seconds_on_gpu if self.on_gpu else self._seconds)(step, times)
        return self.took[workload]

    def _seconds(self, step, times):
        start = time.perf_counter()
        for _ in range(times):
            step()
        return (time.perf_counter() - start) / times

    def _seconds_on_gpu(self, step, times):
        """As `_seconds`, for work on a GPU: the time between two events in the stream, which the GPU itself stamps."""
        cuda = self.engine.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        start.record()
        for _ in range(times):
            step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / times

    def peak_on_gpu(self, workload):
        """Peak MiB that three steps need on the GPU, beyond what was held before them."""
        cuda = self.engine.torch.cuda
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        for _ in range(3):
            self.steps[workload]()
        cuda.synchronize()
        return round((cuda.max_memory_allocated() - before) / 2**20, 3)

    def drop(self, workload):
        """Forget the step of a workload."""
        self.steps.pop(workload, None)
        gc.collect()
        if self.on_gpu:
            self.engine.torch.cuda.empty_cache()

    def gpu(self):
        """The name of the GPU."""
        return self.engine.torch.cuda.get_device_name()

    def leave(self):
        """The work is over."""


class Alone:
    """An engine in a process of its own; it is asked as `Here` is."""

    script = __file__

    def __init__(self, name, threads, device='cpu'):
        command = [sys.executable, self.script, '--threads', str(threads), '--serve', name, device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self._answer()

    def __getattr__(self, method):
        def ask(*arguments):
            self.process.stdin.write(json.dumps([method, *arguments]) + '\n')
            self.process.stdin.flush()
            return self._answer()
        return ask

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f'its process ended with status {self.process.wait()}')
        told = json.loads(line)
        if 'error' in told:
            raise RuntimeError(told['error'])
        return told['result']

    def leave(self):
        self.process.stdin.close()
        self.process.wait()


def serve(name, threads, device, here=Here):
    """The other end of `Alone`: answers one question after another, until there are no more."""
    answers = os.fdopen(os.dup(1), 'w', encoding='utf-8')
    os.dup2(2, 1)                                           # whatever an engine prints is no answer

    def answer(function, *arguments):
        try:
            told = {'result': function(*arguments)}
        except Exception as error:  # the other process tells it
            told = {'error': f'{type(error).__name__}: {error}'}
        print(json.dumps(told), file=answers, flush=True)

    worker = None

    def start():
        nonlocal worker
        worker = here(name, threads, device)

    answer(start)
    for line in sys.stdin if worker else ():
        method, *arguments = json.loads(line)
        answer(getattr(worker, method), *arguments)


def measure(clocks, rounds, budget):
    """Seconds of each step in each round: {engine: [seconds, ...]}, interleaved in alternating order. `clocks`: engine -> function of how many steps to take that returns the mean seconds of one. A step too slow for the budget takes part in the first rounds only, in three at least."""
    times, limit = {}, {}
    for name, clock in clocks.items():
        one = max(clock(1), 1e-7)
        times[name] = max(1, int(budget / rounds / one))
        limit[name] = min(rounds, max(3, int(budget / one)))
    order, taken = list(clocks), {name: [] for name in clocks}
    for k in range(rounds):
        for name in order:
            if k < limit[name]:
                taken[name].append(clocks[name](times[name]))
        order.reverse()
    return taken


def quartiles(values):
    """Lower quartile, median, upper quartile."""
    return tuple(statistics.quantiles(values, n=4)) if len(values) > 1 else (values[0],) * 3


def summary(taken, base=BASE):
    """Median milliseconds (`ms`) and `ratio` to `base` of every engine, with the middle half of the rounds (`low` to `high`)."""
    out = {}
    for name, values in taken.items():
        row = {'ms': round(statistics.median(values) * 1e3, 4)}
        ratios = [a / b for a, b in zip(values, taken.get(base, []))]
        if ratios:
            row.update(zip(('low', 'ratio', 'high'), (round(q, 3) for q in quartiles(ratios))))
        out[name] = row
    return out


# ---------------------------------------------------------------- memory

def resident(field):
    """MiB of this process's memory: 'VmRSS' now, 'VmHWM' at most so far; None where the system does not tell."""
    try:
        with open('/proc/self/status', encoding='ascii') as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))
    except (OSError, StopIteration):
        return None


def peak_here(workload, name, threads):
    """Peak MiB of three steps, measured in this process."""
    e = engine(name, threads)
    before = resident('VmRSS')
    if before is None:
        return None
    step = e.ready(WORKLOADS[workload](e))
    for _ in range(1 if workload in SLOW else 3):
        step()
    return max(0, resident('VmHWM') - before)


def peak(workload, name, threads):
    """Peak MiB of three steps in a process of its own, or None if it cannot be had."""
    if not sys.platform.startswith('linux'):
        return None
    command = [sys.executable, __file__, '--threads', str(threads), '--peak', workload, name]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return round(float(found.stdout.split()[-1]), 1) if found.returncode == 0 else None


# ---------------------------------------------------------------- reports

def machine(threads):
    """What the figures were taken on."""
    versions = {}
    for package in ('autograd_nb', 'numpy', 'numba', *PEERS.values()):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {'python': platform.python_version(), 'system': platform.system(),
            'processor': processor(), 'cores': os.cpu_count(), 'threads': threads,
            'blas': libraries(), 'versions': versions}


def libraries():
    """The libraries behind matrix products: {package: name and version}."""
    import numpy
    found = numpy.show_config('dicts')['Build Dependencies']['blas']
    out = {'numpy': f"{found['name']} {found['version']}"}
    if installed('torch'):
        import torch
        kind = re.search(r'Math Kernel Library Version ([\w.-]+)', torch.__config__.show())
        name = re.search(r'BLAS_INFO=(\w+)', torch.__config__.show())
        out['torch'] = f'MKL {kind[1]}' if kind else name[1] if name else 'unknown'
    return out


def processor():
    """The processor's name, or its architecture where the system does not tell."""
    try:
        with open('/proc/cpuinfo', encoding='utf-8') as file:
            return next(line.split(':', 1)[1].strip() for line in file if line.startswith('model name'))
    except (OSError, StopIteration):
        return platform.machine()


def cell(row):
    """One figure of the table."""
    if row is None or 'ms' not in row:
        return '-'
    text = f"{row['ms']:.3g} ms"
    if 'ratio' in row:
        text += f"  {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
    return text + (f"  {row['mib']:.0f} MiB" if row.get('mib') is not None else '')


def table(results, names):
    """The results as lines of text."""
    rows = [['', *names]] + [[workload, *(cell(found.get(n)) for n in names)] for workload, found in results.items()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return '\n'.join('  '.join(text.ljust(width) if k == 0 else text.rjust(width) for k, (text, width) in enumerate(zip(row, widths))) for row in rows)


def clock_of(worker, workload):
    """How `measure` times the step of a workload."""
    return functools.partial(worker.seconds, workload)


def modes_beside_default(worker, rounds, budget):
    """{mode: median of (time under the mode / time of the default) in the same round} for 200 small operations forward."""
    names = {name.rpartition(' ')[2]: name for name in WORKLOADS if name.startswith('forward of 200 ops')}
    for name in names.values():
        worker.build(name)
    taken = measure({mode: clock_of(worker, name) for mode, name in names.items()}, rounds, budget)
    return {mode: row['ratio'] for mode, row in summary(taken, 'recording').items() if mode != 'recording'}


def mean_ratio(results, name, base=OURS):
    """Geometric mean of (`base`'s time / `name`'s time) over the workloads that both ran, or None."""
    both = [rows[base]['ms'] / rows[name]['ms'] for rows in results.values() if name in rows and base in rows]
    return statistics.geometric_mean(both) if both else None


def compared(results, before):
    """How the ratios to PyTorch differ from those of an earlier run, as lines of text."""
    lines = []
    for workload, rows in results.items():
        new, old = rows.get(OURS, {}), before['workloads'].get(workload, {}).get(OURS, {})
        if 'ratio' in new and 'ratio' in old:
            apart = '  slower' if new['low'] > old['high'] else '  faster' if new['high'] < old['low'] else ''
            lines.append(f"{workload:<50}{old['ratio']:8.2f} -> {new['ratio']:.2f}{apart}")
    return '\n'.join(lines)


def limit_threads(threads):
    """What libraries read when they are imported, which is later."""
    for library in ('OMP', 'OPENBLAS', 'MKL', 'NUMBA', 'VECLIB'):
        os.environ[f'{library}_NUM_THREADS'] = str(threads)


def main(argv=None, hire=Alone):
    """Run the benchmark; returns the exit status. `hire`: where an engine works."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu', help='cuda: autograd_nb and PyTorch on the same GPU, timed by events')
    parser.add_argument('--quick', action='store_true', help='a rough answer in about a minute, without the large workloads')
    parser.add_argument('--only', nargs='+', metavar='WORD', default=[], help='workloads whose name contains one of these words')
    parser.add_argument('--without', nargs='+', metavar='ENGINE', default=[], help='engines to leave out')
    parser.add_argument('--threads', type=int, default=os.cpu_count() or 1, help='threads of every engine (default: all cores)')
    parser.add_argument('--no-memory', action='store_true', help='leave out peak memory')
    parser.add_argument('--json', metavar='FILE', help='write the figures to a file')
    parser.add_argument('--compare', metavar='FILE', help='compare with the figures of an earlier run')
    parser.add_argument('--peak', nargs=2, metavar=('WORKLOAD', 'ENGINE'), help=argparse.SUPPRESS)
    parser.add_argument('--serve', nargs=2, metavar=('ENGINE', 'DEVICE'), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    limit_threads(options.threads)
    if options.peak:
        print(peak_here(*options.peak, options.threads))
        return 0
    if options.serve:
        serve(options.serve[0], options.threads, options.serve[1])
        return 0

    on_gpu = options.device == 'cuda'
    if on_gpu:
        from autograd_nb.arrays.cupy_backend import find
        if why := find():
            print(f'--device cuda: {why}', file=sys.stderr)
            return 2
    chosen = [k for k in (*WORKLOADS, *(ON_GPU if on_gpu else ())) if not (options.quick and k in SLOW) and (not options.only or any(word in k for word in options.only))]
    if not chosen:
        print(f'no workload contains {options.only}. There are: ' + '; '.join(WORKLOADS), file=sys.stderr)
        return 2
    names = [OURS] + [BASE] * (installed(PEERS[BASE]) and BASE not in options.without) if on_gpu else [OURS] + [CAPTURED] * (CAPTURED not in options.without) + [name for name, module in PEERS.items() if installed(module) and name not in options.without]
    for name, module in PEERS.items():
        if not installed(module) and not on_gpu:
            print(f'left out, because it is not installed: {name} ({module})')
    workers = {}
    for name in list(names):
        try:
            workers[name] = hire(name, options.threads, options.device)
        except Exception as error:  # a peer that is installed and cannot start here
            print(f'left out, because it does not start: {name} ({error})')
            names.remove(name)
    if OURS not in workers:
        return 1
    rounds, budget = (11, 1.0) if options.quick else (21, 8.0)
    try:
        from tqdm import tqdm as progress
    except ImportError:
        def progress(items, **_):
            return items
    results = {}
    for workload in progress(chosen, desc='benchmark', disable=not sys.stderr.isatty()):
        able = {}
        for name, worker in workers.items():
            if name == CAPTURED and workload not in STEPS:
                continue
            try:
                if worker.build(workload):
                    able[name] = worker
            except RuntimeError as error:
                if name == OURS:
                    raise
                print(f'{name} cannot run {workload}: {error}')
        large = workload in SLOW
        results[workload] = summary(measure({name: clock_of(worker, workload) for name, worker in able.items()}, 7 if large else rounds, (4 if large else 1) * budget / len(able)))
        for name, worker in able.items():
            if on_gpu:
                results[workload][name]['mib'] = worker.peak_on_gpu(workload)
            worker.drop(workload)
        if not (options.quick or options.no_memory or on_gpu):
            for name, row in results[workload].items():
                row['mib'] = peak(workload, name, options.threads)
    print('median time of one step; beside it the time relative to PyTorch in the same round, with the middle half of the rounds; peak memory\n')
    print(table(results, names))
    print()
    for name in names:
        if name not in (OURS, CAPTURED) and (ratio := mean_ratio(results, name)) is not None:
            print(f'{OURS} takes {ratio:.2f} times as long as {name} (geometric mean over what both ran)')
    if (ratio := mean_ratio({k: rows for k, rows in results.items() if CAPTURED in rows}, BASE, CAPTURED)) is not None:
        print(f'with its steps captured it takes {ratio:.2f} times as long as {BASE} (geometric mean over what can be captured)')
    if not on_gpu and any(name.startswith('forward') for name in results):
        for mode, ratio in modes_beside_default(workers[OURS], 3 * rounds, budget / 4).items():
            print(f'under {mode}, {OURS} takes {ratio:.2f} times as long as by default')
    gpu = {'gpu': workers[OURS].gpu()} if on_gpu else {}
    for worker in workers.values():
        worker.leave()
    if gpu:
        print('on', gpu['gpu'])
    if options.compare:
        with open(options.compare, encoding='utf-8') as file:
            print(f'\nratio to PyTorch, then and now:\n{compared(results, json.load(file))}')
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump({'machine': machine(options.threads) | gpu, 'engines': names, 'workloads': results}, file, indent=1)
            file.write('\n')
        print(f'\nwritten to {options.json}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
