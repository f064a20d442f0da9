"""What the stored benchmark results say: the page with table and plots, and the figures in README.md.

`python run.py bench --json benchmarks/results.json` makes the results; nothing below holds a figure of its own.
"""

import json
import math
import textwrap
from html import escape
from statistics import geometric_mean

from execute import ROOT

RESULTS = ROOT / "benchmarks" / "results.json"
OURS, CAPTURED, BASE = "autograd_nb", "autograd_nb, captured", "PyTorch"
STRANGERS = ROOT / "benchmarks" / "strangers.json"
COMMAND = "python run.py bench --json benchmarks/results.json"
MARK = "<!-- figures of the benchmarks -->"  # where README and start page show the summary


def load() -> dict | None:
    "The stored results; None where there are none."
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None


def times(ratio: float) -> str:
    "A ratio of times in words."
    if 0.95 <= ratio <= 1.05:
        return "as fast as"
    return f"{ratio:.1f} times as slow as" if ratio > 1 else f"{1 / ratio:.1f} times as fast as"


def compared(workloads: dict, name: str, ours: str = OURS) -> tuple[float, int] | None:
    "How long autograd_nb takes relative to another engine: geometric mean over the workloads that both ran, and their number."
    both = [rows[ours]["ms"] / rows[name]["ms"] for rows in workloads.values() if ours in rows and name in rows]
    return (geometric_mean(both), len(both)) if both else None


def milliseconds(ms: float) -> str:
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1000:.3g} s"


def where(machine: dict) -> str:
    "The machine in one line."
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())
    parts = [machine.get("processor"), f"{machine['cores']} cores" if "cores" in machine else "", f"{machine['threads']} threads" if "threads" in machine else "",
             machine.get("system"), f"Python {machine['python']}" if "python" in machine else "", versions]
    return ", ".join(part for part in parts if part)


def ranked(workloads: dict) -> list[tuple[str, float]]:
    "The workloads that PyTorch ran as well, with our ratio to it: where we lose most comes last."
    return sorted(((name, rows[OURS]["ratio"]) for name, rows in workloads.items() if "ratio" in rows.get(OURS, {})), key=lambda pair: pair[1])


def verdict(results: dict) -> str:
    "Two or three sentences: how we do beside each engine, and where we lose."
    workloads, sentences = results["workloads"], []
    found = {name: compared(workloads, name) for name in results["engines"] if name not in (OURS, CAPTURED)}
    means = [f"{times(mean)} {name} ({count} workload{'s' if count != 1 else ''})" for name, (mean, count) in ((n, f) for n, f in found.items() if f)]
    if means:
        sentences.append("Over the workloads that both can run (geometric mean), autograd_nb is " + ", ".join(means[:-1]) + (" and " if means[:-1] else "") + means[-1] + ".")
    against = ranked(workloads)
    if against:
        won = sum(ratio < 0.95 for _, ratio in against)
        (best, low), (worst, high) = against[0], against[-1]
        sentences.append(f"It is faster than PyTorch in {won} of {len(against)}." if won else f"It is faster than PyTorch in none of {len(against)}.")
        if low < 0.95:
            sentences.append(f"The best for us is *{best}* ({low:.2f} of PyTorch's time).")
        if high > 1.05:
            sentences.append(f"The worst for us is *{worst}*, where PyTorch is {high:.1f} times as fast.")
    captured = compared(workloads, BASE, CAPTURED)
    if captured:
        sentences.append(f"With their steps captured (recorded, and then replayed), the {captured[1]} workloads that allow it are {times(captured[0])} {BASE}.")
    return " ".join(sentences)


def table(results: dict, names=None) -> str:
    "Markdown: a row for each workload, a column for each engine."
    engines = [engine for engine in results["engines"] if any(engine in rows for name, rows in results["workloads"].items() if names is None or name in names)]
    lines = ["| workload | " + " | ".join(engines) + " |", "|---|" + "---:|" * len(engines)]
    for name, rows in results["workloads"].items():
        if names is None or name in names:
            lines.append(f"| {name} | " + " | ".join(figure(rows.get(engine), engine) for engine in engines) + " |")
    return "\n".join(lines) + "\n"


def figure(row: dict | None, engine: str) -> str:
    if row is None:
        return "–"
    text = milliseconds(row["ms"])
    if engine != BASE and "ratio" in row:
        bold = "**" if engine in (OURS, CAPTURED) else ""
        text += f" · {bold}{row['ratio']:.2f}{bold}"
    return text


def summary() -> str:
    "For README and the start page."
    results = load()
    if results is None:
        return f"No figures are stored yet: `{COMMAND}` measures them on your machine." + strangers_told()
    against = [name for name, _ in ranked(results["workloads"])]
    chosen = set(against if len(against) <= 6 else [against[round(k * (len(against) - 1) / 5)] for k in range(6)]) or None
    return (f"{verdict(results)}\n\n{'A choice of' if chosen and len(chosen) < len(results['workloads']) else 'All'} workloads, from the best for us to the worst; beside each time, "
            "the ratio to PyTorch's in the same run (below 1 is faster):\n\n"
            f"{table(ordered(results, against), chosen)}\nMeasured on: {where(results['machine'])}. `python run.py bench` measures on yours.{strangers_told()}")


def ordered(results: dict, names: list[str]) -> dict:
    "The results with the workloads in the order of `names`, the others behind."
    rest = [name for name in results["workloads"] if name not in names]
    return results | {"workloads": {name: results["workloads"][name] for name in [*names, *rest]}}


# Programs that nobody tuned the library for -----------------------------------------------------------------------


def strangers() -> dict | None:
    "The stored figures of the second set; None where there are none."
    return json.loads(STRANGERS.read_text(encoding="utf-8")) if STRANGERS.exists() else None


def against_pytorch(rows: dict, engine: str) -> str:
    "Geometric mean and worst of an engine's ratios to PyTorch, in words."
    found = [(row[engine]["ratio"], name) for name, row in rows.items() if "ratio" in row.get(engine, {})]
    mean, (ratio, name) = geometric_mean(ratio for ratio, _ in found), max(found)
    return f"{mean:.2f} of PyTorch's time ({len(found)} programs; the worst, *{name}*, {ratio:.2f})"


def strangers_told() -> str:
    "A paragraph on the second set for README and the start page; nothing if it was not measured."
    results = strangers()
    if results is None:
        return ""
    parts = []
    for threads, rows in results["threads"].items():
        count = f"{threads} thread{'s' if threads != '1' else ''}"
        parts.append(f"on {count} autograd_nb takes {against_pytorch(rows, OURS)}")
        if any("ratio" in row.get(CAPTURED, {}) for row in rows.values()):
            parts[-1] += f", captured {against_pytorch(rows, CAPTURED)}"
    text = "; ".join(parts)
    return ("\n\n**Programs that nobody tuned it for.** The workloads above were profiled while the library was written. A second set of "
            f"{max(map(len, results['threads'].values()))} programs, written as their authors would write them for PyTorch, is only measured (geometric mean): {text}. "
            f"Matrix products: {blas(results['machine'])}. `python run.py bench strangers` measures on yours.")


def blas(machine: dict) -> str:
    "The libraries behind matrix products, in words."
    return ", ".join(f"{library} under {package}" for package, library in machine.get("blas", {}).items())


def strangers_section() -> str:
    "The second set, program by program, for the page."
    results = strangers()
    if results is None:
        return ""
    engines = [engine for engine in results["engines"] if engine != BASE]
    columns = [(threads, engine) for threads in results["threads"] for engine in engines]
    lines = ["| program | " + " | ".join(f"{engine}, {threads} thread{'s' if threads != '1' else ''}" for threads, engine in columns) + " |",
             "|---|" + "---:|" * len(columns)]
    for name in next(iter(results["threads"].values())):
        rows = [results["threads"][threads].get(name, {}).get(engine) for threads, engine in columns]
        lines.append(f"| {name} | " + " | ".join(stranger_figure(row) for row in rows) + " |")
    return f"## Programs that nobody tuned it for{strangers_told().replace('**Programs that nobody tuned it for.** ', '')}\n\n" + "\n".join(lines) + "\n\n"


def stranger_figure(row: dict | None) -> str:
    "A program's time and its ratio to PyTorch's; a dash where the engine refused it."
    return "–" if row is None or "ms" not in row else figure(row, OURS)


# The plot ------------------------------------------------------------------------------------------------------

SHAPES = ('<circle cx="{x}" cy="{y}" r="6"/>', '<path d="M{x} {y}m-6 5 6-11 6 11z"/>', '<rect x="{x}" y="{y}" width="10" height="10" transform="translate(-5 -5)"/>',
          '<path d="M{x} {y}m0-7 6 7-6 7-6-7z"/>', '<path d="M{x} {y}m-5-5 10 10m0-10-10 10"/>', '<path d="M{x} {y}m-6-5 6 11 6-11z"/>')


def plot(results: dict, narrow: bool = False) -> str:
    """Ratios to PyTorch on a logarithmic scale as an SVG in the page's own colours: a mark for each engine, told apart by shape as well, and a bar for the middle half of the rounds.
    Names stand beside the marks, or, `narrow`, above them."""
    engines = [name for name in results["engines"] if name != BASE]
    rows = [(name, {engine: row for engine, row in found.items() if engine in engines and "ratio" in row}) for name, found in results["workloads"].items()]
    rows = [(name, found) for name, found in rows if found]
    if not rows:
        return ""
    values = [value for _, found in rows for row in found.values() for value in (row["low"], row["high"], row["ratio"])]
    low, high = min(0.5, *values) / 1.1, max(2, *values) * 1.1
    broad = max(330, round(7.6 * max(len(name) for name, _ in rows)) + 20)  # room for the longest name
    left, width, step = (24, 340, 44) if narrow else (broad, broad + 470, 26)
    widths = [32 + 7.2 * len(engine) for engine in engines]  # a mark, the name, a gap
    legend, line, x = [], 0, max(width - sum(widths), 0)
    for engine_width in widths:
        if x + engine_width > width + 12 and x > 0:
            line, x = line + 1, 0
        legend.append((x, 14 + 22 * line))
        x += engine_width
    top = 58 + 22 * line
    height = top + step * len(rows) + 30

    def place(ratio: float) -> float:
        return round(left + (width - left - 20) * math.log(ratio / low) / math.log(high / low), 1)

    ticks = [10.0**power * lead for power in range(-3, 5) for lead in (1, 2, 5) if low <= 10.0**power * lead <= high]
    if len(ticks) > 8:
        ticks = [tick for tick in ticks if round(math.log10(tick), 6).is_integer()]
    kind = "narrow" if narrow else "broad"
    parts = [f'<svg class="bench-plot {kind}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="bench-title-{kind} bench-words-{kind}" xmlns="http://www.w3.org/2000/svg">',
             f'<title id="bench-title-{kind}">Time relative to PyTorch, workload by workload</title>',
             f'<desc id="bench-words-{kind}">{escape(words(rows))}</desc>']
    for number, (engine, (x, y)) in enumerate(zip(engines, legend)):
        parts.append(f'<g class="engine-{number}">{SHAPES[number % len(SHAPES)].format(x=round(x + 8), y=y)}</g><text x="{x + 20:.0f}" y="{y + 5}">{escape(engine)}</text>')
    for tick in ticks:
        parts.append(f'<path class="{"one" if tick == 1 else "tick"}" d="M{place(tick)} {top - 8}V{height - 24}"/><text class="scale" x="{place(tick)}" y="{height - 8}">{tick:g}×</text>')
    faster = "faster" if narrow else "faster than PyTorch"
    parts.append(f'<text class="scale" x="{place(1) - 8}" y="{top - 14}" style="text-anchor:end">{faster}</text>'
                 f'<text class="scale" x="{place(1) + 8}" y="{top - 14}" style="text-anchor:start">slower</text>')
    for index, (name, found) in enumerate(rows):
        y = top + step * index + (32 if narrow else step / 2)
        lines = textwrap.wrap(name, 44) if narrow else [name]
        for above, line in zip(reversed(range(len(lines))), lines):
            at = f'x="2" y="{y - 13 - 13 * above:.0f}" style="text-anchor:start"' if narrow else f'x="{left - 14}" y="{y + 5:.0f}"'
            parts.append(f'<text class="name" {at}>{escape(line)}</text>')
        for number, engine in reversed(list(enumerate(engines))):  # ours on top
            if engine in found:
                row = found[engine]
                parts.append(f'<g class="engine-{number}"><path class="spread" d="M{place(row["low"])} {y}H{place(row["high"])}"/>'
                             f'{SHAPES[number % len(SHAPES)].format(x=place(row["ratio"]), y=round(y, 1))}'
                             f'<title>{escape(engine)}, {escape(name)}: {row["ratio"]:.2f} ({row["low"]:.2f} to {row["high"]:.2f})</title></g>')
    return "".join(parts) + "</svg>"


def words(rows) -> str:
    return "; ".join(f"{name}: " + ", ".join(f"{engine} {row['ratio']:.2f}" for engine, row in found.items()) for name, found in rows) + "."


PAGE = """# Benchmarks

One command times autograd_nb beside whichever engines are installed, on your machine:

```sh
python run.py bench
```

Every engine has a process of its own, where the waiting threads of the others cannot disturb it. The processes take turns, round after round in alternating order, so that a slow moment of the machine hits all of them. A figure is the median over the rounds.
Ratios are taken within a round and are relative to PyTorch: below 1 is faster, above 1 is slower.

"""


def page() -> str:
    "The page about speed, in Markdown."
    results = load()
    if results is None:
        return PAGE + f"No figures are stored with this copy of the project. This makes them, and this page shows them the next time it is built:\n\n```sh\n{COMMAND}\n```\n"
    text = PAGE + f"## In short\n\n{verdict(results)}\n\nMeasured on: {where(results['machine'])}.\n\n"
    drawn = plot(results)
    if drawn:
        text += ("## Relative to PyTorch\n\nMarks are medians, bars the middle half of the rounds; the scale is logarithmic. Left of the line is faster than PyTorch.\n\n"
                 f"```{{raw}} html\n<div class=\"bench-scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Plot: time relative to PyTorch\">{drawn}{plot(results, narrow=True)}</div>\n```\n\n")
    text += strangers_section()
    text += f"## All figures\n\nMedian time of one step; beside it the ratio to PyTorch in the same rounds.\n\n{table(results)}\n"
    if any("mib" in row for rows in results["workloads"].values() for row in rows.values()):
        text += f"## Peak memory\n\nWhat a process of its own needs for three steps, beyond what it held before; compiled loops bring their compiler along. A dash: not measured.\n\n{memory(results)}\n"
    return text + HONEST


def memory(results: dict) -> str:
    engines = results["engines"]
    lines = ["| workload | " + " | ".join(engines) + " |", "|---|" + "---:|" * len(engines)]
    for name, rows in results["workloads"].items():
        cells = [f"{rows[engine]['mib']:.0f} MiB" if rows.get(engine, {}).get("mib") is not None else "–" for engine in engines]
        if set(cells) != {"–"}:
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


HONEST = """## How to read this

- On **small tensors** time goes into recording: making a node, saving what backward needs, walking back. That is where an engine written in Python can keep up, because it does little per operation.
- On **large tensors** time goes into the kernels. Matrix products are NumPy's and so are as fast as its BLAS: where they are most of the step, nobody is far ahead. Convolutions, normalisations, attention and optimisers are compiled loops where numba is installed; without it, these are where we lose.
- A dash means that the engine has no natural way to run that workload.
- Figures of a shared machine move by several per cent from run to run. `python run.py bench --compare benchmarks/results.json` says which of your differences are larger than that.
"""
