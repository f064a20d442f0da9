"""The executed copies of notebooks, which the site is made of.

A notebook runs once for what its code and the modules it imports say. Its copy is kept below `.cache/docs` under a
name that changes with its code cells, and beside it a list of the package's files that the run had imported, each with
the digest of its content: the copy holds as long as these are what they were. So a change of prose runs nothing, and a
changed line of the package runs the notebooks that import it, at whatever distance. The tests look for notebooks that
fail here too (tests/test_notebooks.py), so that none runs twice, whoever comes first.
"""

import functools
import hashlib
import json
import os
import re
import sys
from pathlib import Path

import execute
import nbformat
from execute import ROOT

DOCS = ROOT / "docs"
CACHE = ROOT / ".cache" / "docs"
FOLDER = CACHE / "executed"
PACKAGE = "autograd_nb"
ALSO = re.compile(rf"\b{PACKAGE}(?:\.\w+)+")  # modules that a cell names, for programs it starts elsewhere


@functools.cache
def machine_fingerprint() -> bytes:
    "What every notebook's outputs depend on whatever it imports: how notebooks are run, and the installed versions."
    digest = hashlib.sha256(sys.version.encode())
    for path in (DOCS / "execute.py", DOCS / "matplotlibrc", ROOT / "constraints.txt"):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.digest()


def package_fingerprint() -> bytes:
    "Of all of the package, for what the site says of it without running anything."
    digest = hashlib.sha256(machine_fingerprint())
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.digest()


def copy_of(path: Path) -> Path:
    "Where the executed copy of the notebook is kept; another name as soon as any of its code changes."
    digest = hashlib.sha256(machine_fingerprint() + os.path.relpath(path, ROOT).encode())
    for cell in code_cells(nbformat.read(path, 4)):
        digest.update(f"{cell.source}\0{sorted(cell.metadata.get('tags', ()))}\0".encode())
    return FOLDER / f"{path.stem}-{digest.hexdigest()[:20]}.ipynb"


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20] if file.exists() else ""


def is_fresh(path: Path) -> bool:
    "Whether the notebook has run as it is now, with what it imports as that is now."
    copy = copy_of(path)
    used = copy.with_suffix(".json")
    if not copy.exists() or not used.exists():
        return False
    return all(digest_of(ROOT / name) == digest for name, digest in json.loads(used.read_text()).items())


def ensure(path: Path) -> str | None:
    "Run the notebook into its copy, unless that holds. The error's text if a cell fails."
    if is_fresh(path):
        return None
    from kernels import CellExecutionError

    copy = copy_of(path)
    try:
        notebook, imported = execute.run(path, widget_state=True, imported_from=ROOT / PACKAGE)
    except CellExecutionError as error:
        return execute.plain(error)
    for name in ALSO.findall("\n".join(cell.source for cell in code_cells(notebook))):
        place = ROOT / name.replace(".", "/")
        imported |= {file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    used = {file.relative_to(ROOT).as_posix(): digest_of(file) for file in sorted(imported)}
    replace(copy.with_suffix(".json"), json.dumps(used, indent=0))
    replace(copy, nbformat.writes(notebook))
    return None


def replace(path: Path, text: str):
    "Write the file in one step, so that nobody ever reads half of it."
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def notebook(path: Path):
    "The notebook as it is now, with the outputs of its run."
    now, ran = nbformat.read(path, 4), nbformat.read(copy_of(path), 4)
    for cell, done in zip(code_cells(now), code_cells(ran), strict=True):
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    now.metadata.pop("widgets", None)
    if "widgets" in ran.metadata:
        now.metadata.widgets = ran.metadata.widgets
    return now


def tidy(paths: list[Path]):
    "Remove copies that none of the notebooks can use any more."
    kept = {copy_of(path).stem for path in paths}
    for old in FOLDER.glob("*"):
        if old.stem not in kept:
            old.unlink(missing_ok=True)
