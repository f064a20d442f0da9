"""Build the documentation site from the notebooks: `python run.py docs`.

    notebooks -> executed in a real kernel, widgets kept     (execute.py; cached in .cache/docs by content)
              -> pages: hidden cells out, API entries, links  (pages.py)
              -> _docs_src -> Sphinx with MyST-NB -> _docs
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import assets
import execute
import nbformat
import pages
import reference
import social
import speed
from execute import NOTEBOOKS, ROOT
from floors import FLOORS, FRONT_DOOR, floor_of

DOCS = ROOT / "docs"
SOURCE, SITE = ROOT / "_docs_src", ROOT / "_docs"
CACHE = ROOT / ".cache" / "docs"


# Executing, with a cache ---------------------------------------------------------------------------------------


def shared_fingerprint() -> bytes:
    "What every notebook's outputs depend on: the package, how notebooks are run, and the installed versions."
    digest = hashlib.sha256(sys.version.encode())
    files = [*sorted((ROOT / "autograd_nb").rglob("*.py")), DOCS / "execute.py", DOCS / "matplotlibrc", ROOT / "constraints.txt"]
    for path in files:
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.digest()


def cached_copy(path: Path, shared: bytes) -> Path:
    "Where the executed copy of the notebook is kept; another name as soon as any of its cells changes."
    digest = hashlib.sha256(shared + str(path.relative_to(ROOT)).encode())
    for cell in nbformat.read(path, 4).cells:
        digest.update(f"{cell.id}\0{cell.cell_type}\0{cell.source}\0".encode())
    return CACHE / "executed" / f"{path.stem}-{digest.hexdigest()[:20]}.ipynb"


def execute_one(path: Path, copy: Path) -> str | None:
    "Run the notebook into its cached copy. The error's text if a cell fails."
    try:
        notebook = execute.run(path, widget_state=True)
    except execute.CellExecutionError as error:
        return execute.plain(error)
    part = copy.with_suffix(".part")
    nbformat.write(notebook, part)
    part.replace(copy)
    return None


def execute_all(paths: list[Path], jobs: int) -> dict[Path, Path]:
    "The executed copy of every notebook. Exits with the errors if one fails."
    shared = shared_fingerprint()
    copies = {path: cached_copy(path, shared) for path in paths}
    todo = [path for path in paths if not copies[path].exists()]
    folder = CACHE / "executed"
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.iterdir()) - set(copies.values()):
        old.unlink()
    print(f"{len(paths)} notebooks, {len(todo)} to run.", flush=True)
    errors = {}
    with ProcessPoolExecutor(max(1, min(jobs, len(todo)))) as pool:
        for path, error in zip(todo, pool.map(execute_one, todo, [copies[p] for p in todo])):
            print(f"  {'FAILED' if error else 'ran'} {path.relative_to(ROOT)}", flush=True)
            if error:
                errors[path] = error
    for path, error in errors.items():
        print(f"\n{path.relative_to(ROOT)}:\n{error}", file=sys.stderr)
    if errors:
        raise SystemExit(1)
    return copies


# The source folder for Sphinx ----------------------------------------------------------------------------------


class Source:
    "Writes _docs_src: only files that changed, so that Sphinx builds only those pages, and removes what is gone."

    def __init__(self):
        self.written = set()

    def write(self, name: str, content: str | bytes):
        target = SOURCE / name
        self.written.add(target)
        content = content.encode() if isinstance(content, str) else content
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def finish(self):
        removed = [path for path in SOURCE.rglob("*") if path.is_file() and path not in self.written]
        for path in removed:
            path.unlink()
        if removed:  # their pages should go too, and nothing tells which those are
            shutil.rmtree(SITE, ignore_errors=True)


def book_and_library(notebooks: list[pages.Notebook]):
    "The chapters in order, and the library's notebooks by floor (the front door last)."
    chapters = [n for n in notebooks if n.document.startswith("book/")]
    library: dict[int, list[pages.Notebook]] = {}
    for notebook in notebooks:
        if notebook in chapters or notebook.document in ALONE:
            continue
        place = notebook.module if notebook.module is not None else notebook.document.rpartition("/")[0].replace("/", ".")
        floor = floor_of(place)
        if floor is None:
            raise SystemExit(f"docs/floors.py names no floor for {notebook.path.relative_to(ROOT)}: add its package there.")
        library.setdefault(floor, []).append(notebook)
    return chapters, dict(sorted(library.items()))


ALONE = ("index", "gallery")  # notebooks outside of the folders that have a place of their own
LIFTED = ("ops/99_table",)  # of the library, but listed beside the reference
SIDEBAR = {
    "Learn": ["book/index", "gallery", "mistakes", "glossary"],
    "Look up": ["reference/index", "cheatsheet", "ops/99_table", "benchmarks"],
    "Inside": ["library/index", "contributing", "changelog"],
}


def contents(documents: list[str], hidden: bool = True, caption: str = "") -> str:
    "A table of contents for Sphinx."
    options = ":hidden:\n" if hidden else ":maxdepth: 1\n"
    if caption:
        options += f":caption: {caption}\n"
    return "```{toctree}\n" + options + "\n" + "\n".join(documents) + "\n```\n"


def listing(notebooks: list[pages.Notebook], between: str = ": ") -> str:
    "The notebooks as a list with their summaries."
    return "\n".join(f"- [{n.title}](/{n.document}.ipynb)" + (between + re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", n.summary) if n.summary else "") for n in notebooks) + "\n"


def floor_page(number: int, notebooks: list[pages.Notebook]) -> tuple[str, str]:
    "Name and text of the page that lists one floor of the library."
    if number == FRONT_DOOR:
        title, what = "The package", "What `import autograd_nb as torch` brings in, from all floors."
    else:
        title, what, _ = FLOORS[number]
    text = f"# {title}\n\n{what}\n\n{listing(notebooks)}\n{contents(['/' + n.document for n in notebooks if n.document not in LIFTED])}"
    return f"library/{title.lower().replace(' ', '-')}", text


def book_page(chapters: list[pages.Notebook]) -> str:
    "The list of chapters: those with a number in reading order, then what stands beside them."
    numbered = [n for n in chapters if n.path.name[0].isdigit()]
    beside = [n for n in chapters if n not in numbered]
    text = ("# The book\n\nEach chapter starts from a question, asks for your prediction, runs the smallest experiment that decides it, and ends with something new you can do. "
            "Read in order, or begin where your question is.\n\n"
            "{.chapters}\n" + listing(numbered, " "))
    if beside:
        text += "\n## Beside the chapters\n\n{.chapters}\n" + listing(beside, " ")
    return text + "\n" + contents(["/" + n.document for n in numbered + beside])


def write_source(notebooks: list[pages.Notebook], copies: dict[Path, Path]):
    source = Source()
    names = pages.Names(notebooks)
    chapters, library = book_and_library(notebooks)

    floors = [floor_page(number, members) for number, members in library.items()]
    for name, text in floors:
        source.write(name + ".md", text)
    source.write("book/index.md", book_page(chapters))
    source.write("library/index.md", "# The library\n\nThe notebooks below are the source of the package, floor by floor from the ground "
                 "up; an import only ever points down. Each page holds the reasons, the code and the API entries together; "
                 "the {ref}`index <genindex>` lists every name.\n\n"
                 f"{contents(['/' + name for name, _ in floors], hidden=False)}")
    source.write("mistakes.md", subprocess.run([sys.executable, str(DOCS / "mistakes.py")], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout)
    source.write("benchmarks.md", speed.page())
    for name in ("cheatsheet.md", "glossary.md"):
        source.write(name, (DOCS / name).read_bytes())
    for name, text in reference.Reference(names.full).pages().items():
        source.write(name + ".md", text)
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        source.write(name.lower(), (ROOT / name).read_text(encoding="utf-8"))

    for notebook in notebooks:
        page = pages.page(nbformat.read(copies[notebook.path], 4), notebook, names)
        if notebook.document == "index":
            toc = "\n".join(contents(documents, caption=caption) for caption, documents in SIDEBAR.items())
            page.cells.append(nbformat.v4.new_markdown_cell(toc, id="contents"))
        source.write(notebook.document + ".ipynb", nbformat.writes(page))
        source.write(f"extra/notebooks/{notebook.document}.ipynb", notebook.path.read_bytes())
    for path in NOTEBOOKS.rglob("*"):
        if path.suffix in (".svg", ".png", ".jpg", ".gif", ".csv") and ".ipynb_checkpoints" not in path.parts:
            source.write(path.relative_to(NOTEBOOKS).as_posix(), path.read_bytes())

    source.write("conf.py", (DOCS / "conf.py").read_bytes())
    source.write("_static/social.png", social.picture())
    for folder in (DOCS / "_static", assets.fetch(CACHE / "npm")):
        for path in folder.rglob("*") if folder else ():
            if path.is_file() and path.name != "complete":
                source.write(f"_static/{path.relative_to(folder).as_posix()}", path.read_bytes())
    source.finish()


def sphinx(jobs: int, strict: bool) -> int:
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-j", str(jobs), "-d", str(CACHE / "doctrees"),
               *(["-W", "--keep-going"] if strict else []), str(SOURCE), str(SITE)]
    return subprocess.call(command, env=dict(os.environ, AUTOGRAD_NB_ROOT=str(ROOT), AUTOGRAD_NB_REPOSITORY=pages.REPOSITORY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="fail on any warning of Sphinx")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="processes to use")
    options = parser.parse_args()
    paths = execute.notebook_paths()
    notebooks = [pages.read(path) for path in paths]
    write_source(notebooks, execute_all(paths, options.jobs))
    return sphinx(options.jobs, options.strict)


if __name__ == "__main__":
    sys.exit(main())
