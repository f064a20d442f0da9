"""Build the documentation site from the notebooks: `python run.py docs`.

    notebooks -> executed in a real kernel, widgets kept     (executed.py; cached in .cache/docs by content)
              -> pages: hidden cells out, API entries, links  (pages.py)
              -> _docs_src -> Sphinx with MyST-NB -> _docs
              -> formulas set, icons and scripts cut down          (mathematics.py, light.py)

`--only PAGE` makes one page below .cache/docs/preview, in seconds and without links to others; `--watch PAGE` does so
again whenever the notebook, or what it imports, is saved.
"""

import argparse
import gc
import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import execute
import executed
import light
import mathematics
import nbformat
import own
import pages
import speed
from execute import NOTEBOOKS, ROOT
from executed import CACHE, DOCS
from floors import FLOORS, FRONT_DOOR, ROOMS, floor_of

SOURCE, SITE = ROOT / "_docs_src", ROOT / "_docs"
STAMP = SITE / ".fingerprint"  # of what the site was made of


# Executing ------------------------------------------------------------------------------------------------------


def execute_all(paths: list[Path], jobs: int):
    "Run what has changed. Exits with the errors if a notebook fails."
    todo = [path for path in paths if not executed.is_fresh(path)]
    print(f"{len(paths)} notebooks, {len(todo)} to run.", flush=True)
    errors = {}
    with ProcessPoolExecutor(max(1, min(jobs, len(todo)))) as pool:
        for path, error in zip(todo, pool.map(executed.ensure, todo)):
            print(f"  {'FAILED' if error else 'ran'} {path.relative_to(ROOT)}", flush=True)
            if error:
                errors[path] = error
    for path, error in errors.items():
        print(f"\n{path.relative_to(ROOT)}:\n{error}", file=sys.stderr)
    if errors:
        raise SystemExit(1)


# The source folder for Sphinx ----------------------------------------------------------------------------------


class Source:
    "Writes _docs_src: only files that changed, so that Sphinx builds only those pages, and removes what is gone."

    def __init__(self, folder: Path = SOURCE):
        self.folder, self.written = folder, set()

    def write(self, name: str, content: str | bytes):
        target = self.folder / name
        self.written.add(target)
        content = content.encode() if isinstance(content, str) else content
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def finish(self):
        removed = [path for path in self.folder.rglob("*") if path.is_file() and path not in self.written]
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
    "Learn": ["book/index", "yours", "gallery", "mistakes", "glossary"],
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


def room_of(notebook: pages.Notebook) -> str:
    "The folder of a notebook below nbs/; '' at its top."
    return notebook.document.rpartition("/")[0]


def parts_of(notebook: pages.Notebook, notebooks: list[pages.Notebook]) -> list[pages.Notebook]:
    "The notebooks of another room whose modules stand in the package that `notebook` puts together."
    return [n for n in notebooks if n.module and n.module.rpartition(".")[0] == notebook.module and notebook.module and room_of(n) != room_of(notebook)]


def front_door(found: list[pages.Notebook], notebooks: list[pages.Notebook]) -> list[pages.Notebook]:
    "The notebook that puts the notebooks of a room together, inside of it or elsewhere. None or one."
    inside = [n for n in found if n.path.stem.endswith("_package")]
    return inside or [n for n in notebooks if found[0] in parts_of(n, notebooks)]


def with_parts(cells: list, parts: list[pages.Notebook]) -> list:
    "The cells of a front door, with a list of its parts behind the introduction."
    if len(parts) < 2:
        return cells
    place = next((i for i, cell in enumerate(cells) if i and cell.cell_type == "markdown" and cell.source.startswith("## ")), len(cells))
    return [*cells[:place], nbformat.v4.new_markdown_cell("## Its parts\n\n" + listing(parts), id="parts"), *cells[place:]]


def purpose(room: str, found: list[pages.Notebook], notebooks: list[pages.Notebook] = ()) -> str:
    "What a room is for: the sentence of docs/floors.py, or that of its front door, or, where it has one notebook, that one's."
    package = [n.summary for n in front_door(found, notebooks)]
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", ROOMS.get(room) or (package or [found[0].summary])[0]).rstrip(".") + "."


def library_page(library: dict[int, list[pages.Notebook]]) -> str:
    "The floors from the ground up: what each is for, and its rooms, each with a sentence."
    parts, floors = [], []
    everywhere = [n for members in library.values() for n in members]
    for number, members in library.items():
        name, _ = floor_page(number, members)
        floors.append(name)
        title, what = ("The package", "What `import autograd_nb as torch` brings in, from all floors.") if number == FRONT_DOOR else FLOORS[number][:2]
        rooms: dict[str, list[pages.Notebook]] = {}
        for notebook in members:
            rooms.setdefault(room_of(notebook), []).append(notebook)
        alone = rooms.pop("", [])
        lines = [f"- [`{room}`](/{found[0].document}.ipynb) ({len(found)} notebook{'s' * (len(found) > 1)}): {purpose(room, found, everywhere)}" for room, found in sorted(rooms.items())]
        lines += [f"- [{n.title}](/{n.document}.ipynb): {purpose('', [n])}" for n in alone]
        parts.append(f"## [{title}](/{name}.md)\n\n{what}\n\n" + "\n".join(lines) + "\n")
    return ("# The library\n\nThe notebooks below are the source of the package, floor by floor from the ground up; an import only ever points down. "
            "Each page holds the reasons, the code and the API entries together; the {ref}`index <genindex>` lists every name.\n\n"
            + "\n".join(parts) + "\n" + contents(["/" + name for name in floors]))


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


def write_page(source: Source, notebook: pages.Notebook, page, files: dict[str, str]):
    source.write(notebook.document + ".ipynb", nbformat.writes(page))
    for name, text in files.items():
        source.write(name, text)


def write_static(source: Source):
    "The configuration, and what all pages share."
    from autograd_nb.viz.large import LARGE_SCRIPT  # own.py put the package on the path

    source.write("conf.py", (DOCS / "conf.py").read_bytes())
    for path in (DOCS / "_static").rglob("*"):
        if path.is_file():
            source.write(f"_static/{path.relative_to(DOCS / '_static').as_posix()}", path.read_bytes())
    source.write("_static/graph.js", LARGE_SCRIPT)
    for name, content in own.files().items():
        source.write(name, content)


def write_source(notebooks: list[pages.Notebook]):
    import reference
    import social

    source = Source()
    names = pages.Names(notebooks)
    chapters, library = book_and_library(notebooks)

    floors = [floor_page(number, members) for number, members in library.items()]
    for name, text in floors:
        source.write(name + ".md", text)
    source.write("book/index.md", book_page(chapters))
    source.write("library/index.md", library_page(library))
    source.write("mistakes.md", subprocess.run([sys.executable, str(DOCS / "mistakes.py")], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout)
    source.write("benchmarks.md", speed.page())
    source.write("yours.md", own.page('<span id="run-it"></span>'))
    for name in ("cheatsheet.md", "glossary.md"):
        source.write(name, (DOCS / name).read_bytes())
    for name, text in reference.Reference(names.full).pages().items():
        source.write(name + ".md", text)
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        source.write(name.lower(), (ROOT / name).read_text(encoding="utf-8"))

    for notebook in notebooks:
        page, files = pages.page(executed.notebook(notebook.path), notebook, names)
        page.cells = with_parts(page.cells, parts_of(notebook, notebooks))
        if notebook.document == "index":
            toc = "\n".join(contents(documents, caption=caption) for caption, documents in SIDEBAR.items())
            page.cells.append(nbformat.v4.new_markdown_cell(toc, id="contents"))
        write_page(source, notebook, page, files)
        source.write(f"extra/notebooks/{notebook.document}.ipynb", notebook.path.read_bytes())
    for path in NOTEBOOKS.rglob("*"):
        if path.suffix in (".svg", ".png", ".jpg", ".gif", ".csv") and ".ipynb_checkpoints" not in path.parts:
            source.write(path.relative_to(NOTEBOOKS).as_posix(), path.read_bytes())

    write_static(source)
    source.write("_static/social.png", social.picture())
    for chapter in chapters:
        source.write(f"_static/cards/{chapter.path.stem}.png", social.card(chapter.title))
    source.finish()


def sphinx(jobs: int, strict: bool, source: Path = SOURCE, site: Path = SITE, doctrees: Path = CACHE / "doctrees", more: tuple = ()) -> int:
    "Let Sphinx write the pages that changed, then set their formulas and leave out what they do not need."
    from sphinx.cmd.build import main as build

    os.environ |= {"AUTOGRAD_NB_ROOT": str(ROOT), "AUTOGRAD_NB_REPOSITORY": pages.REPOSITORY}
    status = build(["-b", "html", "-q", "-j", str(jobs), "-d", str(doctrees), *(["-W", "--keep-going"] if strict else []), *more, str(source), str(site)])
    written = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # those of earlier builds too: what is done to them may have changed
    setter = mathematics.Setter()
    if setter.ready:
        setter.pages(written)
    light.lighten(site, written)
    return status


def fingerprint() -> str:
    "Of all that the site is made of."
    digest = hashlib.sha256(executed.package_fingerprint() + pages.REPOSITORY.encode())
    files = [path for folder in (DOCS, NOTEBOOKS) for path in sorted(folder.rglob("*"))
             if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)]
    for path in [*files, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "settings.ini", *sorted((ROOT / "benchmarks").glob("*.json"))]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def is_fresh() -> bool:
    "Whether the site in _docs is what a build would make now."
    return STAMP.exists() and STAMP.read_text() == fingerprint()


# One page --------------------------------------------------------------------------------------------------------

PREVIEW = CACHE / "preview"


def chosen(name: str) -> Path:
    "The notebook called `name`: its path, from nbs/ on or from here, or the file's name alone."
    paths = execute.notebook_paths()
    asked = Path(name)
    found = [path for path in (NOTEBOOKS / asked, NOTEBOOKS / f"{name}.ipynb", asked.resolve()) if path in paths]
    found = found or [path for path in paths if asked.name in (path.name, path.stem)]
    if len(found) != 1:
        near = [path.relative_to(NOTEBOOKS).with_suffix("").as_posix() for path in found or paths if found or asked.stem.lower() in path.stem.lower()]
        raise SystemExit(f"{name} is {'the name of several notebooks' if found else 'no notebook in nbs/'}" + (f": say which of {', '.join(near)}." if near else "."))
    return found[0]


def all_notebooks() -> list[pages.Notebook]:
    "What pages need to know of every notebook, read again only where a file has changed."
    kept = CACHE / "notebooks.pickle"
    try:
        known = pickle.loads(kept.read_bytes())
    except (OSError, EOFError, AttributeError, pickle.UnpicklingError, ModuleNotFoundError):
        known = {}
    found = {}
    for path in execute.notebook_paths():
        stamp = path.stat().st_mtime_ns, path.stat().st_size, (DOCS / "pages.py").stat().st_mtime_ns
        found[path] = known[path] if path in known and known[path][0] == stamp else (stamp, pages.read(path))
    if found != known:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
    return [notebook for _, notebook in found.values()]


def write_static_once(source: Source):
    "`write_static`, unless nothing that it is made of has been saved since; then without loading the package."
    made_of = [path for folder in (DOCS, ROOT / executed.PACKAGE) for path in folder.rglob("*") if path.suffix not in (".pyc", "")]
    stamp = [[path.as_posix(), path.stat().st_mtime_ns] for path in sorted(made_of)]
    kept = PREVIEW / "static.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get("stamp") == stamp and all((source.folder / name).exists() for name in known["names"]):
        source.written |= {source.folder / name for name in known["names"]}
        return
    before = set(source.written)
    write_static(source)
    kept.write_text(json.dumps({"stamp": stamp, "names": sorted(path.relative_to(source.folder).as_posix() for path in source.written - before)}))


def preview(path: Path) -> tuple[int, Path]:
    "Build the page of one notebook; the status, and the page."
    error = executed.ensure(path)
    if error:
        print(f"\n{path.relative_to(ROOT)}:\n{error}", file=sys.stderr)
        return 1, path
    notebooks = all_notebooks()
    notebook = next(n for n in notebooks if n.path == path)
    source = Source(PREVIEW / "source")
    page, files = pages.page(executed.notebook(path), notebook, pages.Names(notebooks))
    write_page(source, notebook, page, files)
    write_static_once(source)
    for near in path.parent.rglob("*"):
        if near.suffix in (".svg", ".png", ".jpg", ".gif"):
            source.write(near.relative_to(NOTEBOOKS).as_posix(), near.read_bytes())
    for old in (PREVIEW / "source").rglob("*"):
        if old.is_file() and old not in source.written:
            old.unlink()
    site = PREVIEW / "site"
    quiet = "suppress_warnings=mystnb.unknown_mime_type,myst.xref_missing,toc.not_included,image.not_readable,ref.term,ref.ref,ref.doc"
    status = sphinx(1, False, source.folder, site, PREVIEW / "doctrees", ("-D", f"root_doc={notebook.document}", "-D", "html_use_index=0", "-D", quiet))
    return status, site / f"{notebook.document}.html"


def watch(path: Path):
    "Build the page whenever its notebook, or something that it imports, is saved; until Ctrl+C."
    seen = None
    while True:
        used = executed.copy_of(path).with_suffix(".json")
        files = [path, *(ROOT / name for name in (json.loads(used.read_text()) if used.exists() else ()))]
        now = [file.stat().st_mtime_ns for file in files if file.exists()]
        if now != seen:
            began = time.time()
            status, page = preview(path)
            print(f"{page if status == 0 else 'not built'} ({time.time() - began:.1f} s). Save the notebook, reload the page; Ctrl+C ends.", flush=True)
            used = executed.copy_of(path).with_suffix(".json")
            files = [path, *(ROOT / name for name in (json.loads(used.read_text()) if used.exists() else ()))]
            now = [file.stat().st_mtime_ns for file in files if file.exists()]
            gc.collect()
        seen = now
        time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="fail on any warning of Sphinx")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="processes to use")
    parser.add_argument("--only", metavar="PAGE", help="build one notebook's page alone, to look at it")
    parser.add_argument("--watch", metavar="PAGE", help="build one notebook's page, and again whenever it is saved")
    options = parser.parse_args()
    if options.only or options.watch:
        gc.disable()  # one page leaves little, and looking for it among all syntax trees takes a second
    if options.watch:
        try:
            watch(chosen(options.watch))
        except KeyboardInterrupt:
            return 0
    if options.only:
        status, page = preview(chosen(options.only))
        if status == 0:
            print(f"The page is {page}")
        return status
    now = fingerprint()
    if not STAMP.exists():  # what an interrupted build left would be taken for whole
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.rmtree(CACHE / "doctrees", ignore_errors=True)
    STAMP.unlink(missing_ok=True)
    paths = execute.notebook_paths()
    notebooks = [pages.read(path) for path in paths]
    execute_all(paths, options.jobs)
    executed.tidy(paths)
    write_source(notebooks)
    status = sphinx(options.jobs, options.strict)
    if status == 0:
        STAMP.write_text(now)
    return status


if __name__ == "__main__":
    sys.exit(main())
