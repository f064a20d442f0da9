"""Run notebooks in a real kernel and keep outputs that are the same on every machine.

    python docs/execute.py                    run every notebook in nbs/ and store clean outputs
    python docs/execute.py nbs/book/01.ipynb  run some
    python docs/execute.py --clean            do not run, only remove what should not be stored
    python docs/execute.py --check            do not run, say which notebooks are not clean

The docs build uses `run` from here as well, and keeps the state of widgets, which the repository does not.
"""

import argparse
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# It only checks addresses in JSON schemas, which notebooks have none of, and takes two seconds to import.
sys.modules.setdefault("rfc3987_syntax", None)

import nbformat  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "nbs"
TIMEOUT = 600  # seconds for one cell
ATTEMPTS = 3  # to get a kernel that lives
WIDGET = "application/vnd.jupyter.widget-view+json"
STILL = "image/svg+xml"  # how a widget looks where none is drawn; autograd_nb.widgets.stills adds it

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
KEPT_CELL_METADATA = ("tags", "mystnb", "jupyter")  # jupyter: which cells are folded

# What differs from run to run or machine to machine in outputs, and what stands in its place.
TEMPORARY = re.escape(tempfile.gettempdir().rstrip("/\\"))
UNSTABLE = [
    (re.compile(r"(<[^<>\n]*?) at 0x[0-9a-fA-F]+(>)"), r"\1\2"),
    (re.compile(TEMPORARY + r"[\\/]ipykernel_\d+[\\/]\d+\.py"), "cell.py"),
    (re.compile(re.escape(str(ROOT)) + r"[\\/]"), ""),
    (re.compile(r"(?:[\w.~:-]*[\\/])+site-packages[\\/]"), ""),
    (re.compile(r"(?:[\w.~:-]*[\\/])+lib[\\/]python3\.\d+[\\/]"), ""),
]


def notebook_paths(paths=()):
    "The notebooks among `paths` and below them (default: all), skipping names that begin with a dot or an underscore."
    found = []
    for path in [Path(p) for p in paths] or [NOTEBOOKS]:
        if not path.exists():
            raise SystemExit(f"execute.py: {path} does not exist")
        candidates = [path] if path.is_file() else path.rglob("*.ipynb")
        found += [p for p in candidates if not any(part[0] in "._" for part in p.relative_to(ROOT).parts)]
    return sorted(set(found))


def directives(source: str) -> dict[str, str]:
    "nbdev's directives at the top of a cell: `#| export graph.node` gives {'export': 'graph.node'}."
    found = {}
    for line in source.splitlines():
        match = re.match(r"\s*#\|\s*([\w-]+):?[ \t]*(.*)", line)
        if match:
            found[match[1]] = match[2].strip()
        elif line.strip():
            break
    return found


def never_run(source: str) -> bool:
    return directives(source).get("eval", "").lower() == "false"


def environment() -> dict[str, str]:
    "The environment of a kernel under which every run gives the same outputs."
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's kernel, whatever the user installed elsewhere
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}  # the same last digits everywhere, and no cores held by spinning threads
    return {**threads, **os.environ, "PYTHONHASHSEED": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1", "MATPLOTLIBRC": str(ROOT / "docs" / "matplotlibrc"),
            "SOURCE_DATE_EPOCH": "0"}  # no date inside matplotlib's SVG


def plain(error: Exception) -> str:
    "The error's text; without colours where it will not be read on a terminal."
    return str(error) if sys.stderr.isatty() else re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def run(path: Path, widget_state: bool = False, imported_from: Path | None = None):
    """The notebook at `path` with fresh outputs. Raises `CellExecutionError` where a cell fails.

    With `imported_from`, a pair: the notebook, and the files below that folder that its kernel had imported at the end.
    """
    from kernels import Client

    for attempt in range(1, ATTEMPTS + 1):
        notebook = nbformat.read(path, 4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []
        notebook.metadata.pop("widgets", None)
        if imported_from:
            notebook.cells.append(nbformat.v4.new_code_cell(IMPORTED))
        client = Client(notebook, timeout=TIMEOUT, kernel_name="python3", store_widget_state=widget_state, record_timing=False,
                        extra_arguments=["--log-level=ERROR"], resources={"metadata": {"path": str(path.parent)}})
        try:
            client.execute(env=environment())
            break
        except RuntimeError:  # the kernel, not a cell: most often another program was quicker to take its port
            if attempt == ATTEMPTS:
                raise
    imported = {Path(file) for file in files_named(notebook.cells.pop())} if imported_from else set()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [stable(output) for output in joined(cell.outputs)]
    if not imported_from:
        return notebook
    return notebook, {file for file in imported if imported_from.resolve() in file.resolve().parents}


# What a kernel is asked at the end, in a way that no variable of the notebook can disturb.
IMPORTED = """import sys as _sys
__import__('builtins').print(*__import__('builtins').sorted({getattr(m, '__file__', None) or '' for m in [*_sys.modules.values()]}), sep='\\n')"""


def files_named(cell) -> list[str]:
    "What the last cell printed, line by line."
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
    return [line for line in text.splitlines() if line]


def joined(outputs):
    "The outputs without standard error, and with pieces of the same stream put together."
    result = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            if result and result[-1].output_type == "stream":
                result[-1].text += output.text
                continue
        result.append(output)
    return result


def stable(output):
    "The output with what would differ elsewhere replaced."
    if "execution_count" in output:
        output.execution_count = None
    if output.output_type == "stream":
        output.text = replaced(output.text)
    elif output.output_type == "error":
        output.traceback = [replaced(line) for line in output.traceback]
        output.evalue = replaced(output.evalue)
    else:
        for kind, data in output.data.items():
            if isinstance(data, str) and (kind.startswith("text/") or kind == "image/svg+xml"):
                output.data[kind] = replaced(data)
    return output


def replaced(text: str) -> str:
    for pattern, stand_in in UNSTABLE:
        text = pattern.sub(stand_in, text)
    return text


def still(output):
    "The output without a widget's view, which means nothing without its state: its still, or None where it has none."
    if WIDGET not in output.get("data", {}):
        return output
    if STILL not in output.data:
        return None
    output.data = nbformat.from_dict({STILL: output.data[STILL], "text/plain": output.data.get("text/plain", "")})
    return output


def clean(notebook):
    "Remove what does not belong in the repository: counts, widget views and state, editors' metadata, unstable text."
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA})
        cell.setdefault("id", f"cell-{number}")
        if cell.cell_type == "code":
            cell.execution_count = None
            kept = directives(cell.source).get("output") != "false"  # such a cell shows nothing, on any page
            outputs = [still(output) for output in joined(cell.outputs)] if kept else []
            cell.outputs = [stable(output) for output in outputs if output]
            for output in cell.outputs:
                if "metadata" in output:
                    output.metadata = nbformat.from_dict({})
    return notebook


def text_of(notebook) -> str:
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def store(path: Path) -> str | None:
    "Run the notebook in place. The error's text if a cell failed; then the file stays as it was."
    from kernels import CellExecutionError

    try:
        notebook = run(path)
    except CellExecutionError as error:
        return plain(error)
    write(path, text_of(clean(notebook)))
    return None


def write(path: Path, text: str) -> bool:
    "Write only a changed text, so that editors and caches see what really changed. Whether it had."
    if path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8", newline="\n")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    paths = notebook_paths([p.resolve() for p in options.paths])
    if not paths:
        print("No notebook found.", file=sys.stderr)
        return 1
    if options.clean or options.check:
        unclean = 0
        for path in paths:
            cleaned = text_of(clean(nbformat.read(path, 4)))
            if path.read_text(encoding="utf-8") != cleaned:
                unclean += 1
                print(f"  {'not clean' if options.check else 'cleaned'}: {path.relative_to(ROOT)}")
                if not options.check:
                    write(path, cleaned)
        print(f"{len(paths)} notebooks looked at, {unclean} {'not clean' if options.check else 'cleaned'}.")
        return 1 if options.check and unclean else 0
    failed = 0
    with ProcessPoolExecutor(min(2, len(paths))) as pool:
        for path, error in zip(paths, pool.map(store, paths)):
            print(f"  {'FAILED' if error else 'ran'}: {path.relative_to(ROOT)}", flush=True)
            if error:
                failed += 1
                print(error, file=sys.stderr)
    print(f"{len(paths) - failed} of {len(paths)} notebooks ran.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
