"""Turn an executed notebook into a page of the documentation: what nbdev's directives mean for a reader.

Hidden cells go, exported source is folded below an entry for the API reference (not in the rooms that are read through, where
it is the story), and `names` in prose become links.
Everything here is read from the notebooks' text; nothing of the package is imported.
"""

import ast
import functools
import json
import re
import subprocess
from configparser import ConfigParser
from dataclasses import dataclass, field
from pathlib import Path

import mathematics
import nbformat
import players
import speed
from execute import NOTEBOOKS, ROOT, directives
from nbformat.v4 import new_markdown_cell

parser = ConfigParser(delimiters=["="])
parser.read(ROOT / "settings.ini", encoding="utf-8")
settings = parser["DEFAULT"]
PACKAGE = settings["lib_name"]
BRANCH = settings["branch"]


def repository(origin: str, settings=settings) -> str:
    """Where the project can be found, for links to the source, to Binder and to Colab.

    That is where git's `origin` lies if it lies on GitHub, so that the site of a fork leads to the fork; else the `git_url` of settings.ini. Empty if `user` is empty there: the site then leaves such links out.
    """
    found = re.match(r"(?:https://|ssh://git@|git@)github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", origin.strip())
    return f"https://github.com/{found[1]}" if found else settings["git_url"] if settings["user"] else ""


def origin() -> str:
    "The address of git's remote `origin`; empty where there is none."
    try:
        return subprocess.run(["git", "-C", str(ROOT), "remote", "get-url", "origin"], capture_output=True, text=True).stdout
    except OSError:
        return ""


REPOSITORY = repository(origin())
EVERYDAY = {"extra", "tensor", "undo", "value", "number", "where", "fill", "apply", "size", "report", "check", "rules", "lines", "wrap", "walk", "graph", "round"}  # as names only with () or a dot
OF_TORCH = set(json.loads((ROOT / "docs" / "torch_names.json").read_text(encoding="utf-8"))["names"]["torch"])  # what PyTorch calls `torch.…`
GLOSSARY = ROOT / "docs" / "glossary.md"
PLURALS = {"leaf": ("leaves",), "Hessian": ("Hessian matrix", "Hessian matrices"), "activation memory": ()}
# Words that everyday English uses as well ("that leaves", "sharp edges", "another view"): what has to stand on the line for them to be the term.
COMPANIONS = {"leaves": r"\b(?:the|its|of|to|all|are|no|two|four) leaves\b",
              **dict.fromkeys(("edge", "edges"), r"\bnodes?\b"), **dict.fromkeys(("view", "views"), r"\b(?:storage|memory)\b")}
READ_THROUGH = ("graph/", "layers/")  # the core: its code is what these pages tell
HIDDEN = {"hide", "default_exp"}
EXPORTED = {"export", "exports", "exporti"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class Defined:
    "What links need to know of a definition: the cell that has it, and its methods, all and those with a docstring."

    source: str
    methods: tuple[str, ...] = ()
    documented: tuple[str, ...] = ()


@dataclass
class Notebook:
    "What the other pages and the tables of contents need to know of a notebook."

    path: Path
    title: str
    summary: str
    module: str | None  # dotted name below the package that it exports to; '' for the package itself
    definitions: dict[str, "Defined"] = field(default_factory=dict)  # exported, with an entry

    @functools.cached_property
    def variables(self) -> set[str]:
        "What its cells call something of their own; only the page itself asks for it."
        cells = [cell.source for cell in nbformat.read(self.path, 4).cells if cell.cell_type == "code"]
        names = (variables_in(source, defined=not exporting(source)) for source in cells)
        return set().union(*names) - set(self.definitions)

    @functools.cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        "The classes of its exported cells by their names, also those that have no entry."
        sources = (cell.source for cell in nbformat.read(self.path, 4).cells if cell.cell_type == "code" and EXPORTED & set(directives(cell.source)))
        return {node.name: node for source in sources for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}

    @property
    def document(self) -> str:
        "The page's name for Sphinx: its path without the ending."
        return self.path.relative_to(NOTEBOOKS).with_suffix("").as_posix()

    @property
    def dotted(self) -> str:
        return f"{PACKAGE}.{self.module}" if self.module else PACKAGE


def read(path: Path) -> Notebook:
    "Read title, summary and exported definitions."
    cells = nbformat.read(path, 4).cells
    text = "\n".join(cell.source for cell in cells[:2] if cell.cell_type == "markdown")
    title = re.search(r"^# +(.+)$", text, re.M)
    summary = re.search(r"^> +(.+)$", text, re.M)
    module, definitions = None, {}
    for cell in cells:
        if cell.cell_type != "code":
            continue
        found = directives(cell.source)
        if "default_exp" in found:
            module = re.sub(r"(^|\.)__init__$", "", found["default_exp"])
        if exporting(cell.source):
            definitions |= {node.name: defined(node, cell.source) for node in definitions_in(cell.source)}
    return Notebook(path, title[1] if title else path.stem, summary[1] if summary else promise(text), module, definitions)


def exporting(source: str) -> bool:
    "Whether the names that a cell defines are exported, and have entries."
    return bool((EXPORTED - {"exporti"}) & set(directives(source)))


def defined(node: Definition, source: str) -> Defined:
    if not isinstance(node, ast.ClassDef):
        return Defined(source)
    methods = (m.name for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef))
    return Defined(source, tuple(methods), tuple(m.name for m in documented_methods(node)))


def promise(text: str) -> str:
    "The first sentences below the title, some 160 letters of them, for a notebook without a summary."
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if part.strip() and not re.match(r"\s*([#>|!<-]|```)", part)]
    shown = ""
    for sentence in re.split(r"(?<=[.!?]) +", " ".join(paragraphs[0].split())) if paragraphs else ():
        shown = f"{shown} {sentence}".strip()
        if len(shown) > 110 and shown.count("`") % 2 == shown.count("$") % 2 == shown.count("**") % 2 == 0:
            break
    return shown


def definitions_in(source: str) -> list[Definition]:
    "The public functions and classes a cell defines."
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a cell with IPython magics defines nothing that is exported
        return []
    return [node for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")]


def variables_in(source: str, defined: bool = False) -> set[str]:
    "Names that a cell gives to something: variables, parameters, keywords of calls, attributes; functions, classes and methods where `defined` asks for them."
    try:
        tree = ast.parse(re.sub(r"^[ \t]*[%!].*$", "pass", source, flags=re.M))
    except SyntaxError:
        return set()
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    found |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg | ast.keyword) and n.arg}
    if defined:
        found |= {n.name for n in ast.walk(tree) if isinstance(n, Definition)}
    return found | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}


class Names:
    "Every public name of the package, to link from prose."

    def __init__(self, notebooks: list[Notebook]):
        self.targets: dict[str, set[str]] = {}  # a way of writing it -> the full dotted names that could be meant
        self.full: set[str] = set()
        self.methods: set[str] = set()
        self.notebooks = [n for n in notebooks if n.module is not None]
        for notebook in self.notebooks:
            for name, found in notebook.definitions.items():
                self.add(notebook, name)
                self.methods.update(found.methods)
                for method in found.documented:
                    self.add(notebook, f"{name}.{method}")

    def add(self, notebook: Notebook, name: str):
        full = f"{notebook.dotted}.{name}"
        self.full.add(full)
        for written in {name, full, f"{notebook.module.rpartition('.')[2]}.{name}"}:
            self.targets.setdefault(written, set()).add(full)

    def find(self, written: str, here: Notebook) -> str | None:
        "The full name meant by `written` on the page `here`; None if no name or several could be."
        written = re.sub(r"^(torch|autograd_nb)\.", "", written) if written not in self.targets else written
        found = self.targets.get(written, set())
        local = {name for name in found if name.startswith(here.dotted + ".")} if here.module is not None else set()
        for candidates in (local, found):
            if len(candidates) == 1:
                return next(iter(candidates))
        return None

    def definition(self, name: str) -> tuple[Notebook, Definition] | None:
        "Where a top-level `name` is defined, for an explicit `show_doc(name)`."
        for notebook in self.notebooks:
            if name in notebook.definitions:
                return notebook, next(node for node in definitions_in(notebook.definitions[name].source) if node.name == name)
        return None


# Prose ---------------------------------------------------------------------------------------------------------

# Where no term is looked for: code, formulas, links, roles, HTML.
LINKED = r"!?\[[^\]]*\]\([^)]*\)"
PROTECTED = re.compile(rf"(`[^`]*`|\$[^$]*\$|{LINKED}|\{{[^}}]*\}}|<[^>]*>)")


def terms() -> dict[str, str]:
    "What the glossary explains: each way of writing it, in small letters -> the term."
    found = {}
    inside = False
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line.startswith("```{glossary}")
        elif inside and line and not line.startswith((" ", ":")):
            for written in (line, line + "s", *PLURALS.get(line, ())):
                found[written.lower()] = line
    return found


def explained(line: str, unexplained: dict[str, str]) -> str:
    "The line with the first mention of each term made a link to the glossary; `unexplained` shrinks by those terms."
    parts = PROTECTED.split(line)
    for number in range(0, len(parts), 2):
        if not unexplained:
            break
        pattern = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, sorted(unexplained, key=len, reverse=True))) + r")(?![\w-])", re.I)

        def link(found: re.Match) -> str:
            term = unexplained.get(found[1].lower())
            companion = COMPANIONS.get(found[1].lower())
            if term is None or companion and not re.search(companion, line, re.I):  # linked a moment ago, or an everyday word
                return found[1]
            for written in [w for w, t in unexplained.items() if t == term]:
                del unexplained[written]
            return f"{{term}}`{found[1]} <{term}>`"

        parts[number] = pattern.sub(link, parts[number])
    return "".join(parts)

BACKTICKED = re.compile(rf"{LINKED}|(?<![`\w\]}}])`([A-Za-z_][\w.]*)(\(\))?`(?!`)")
LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)\s#]+)")


def linked(text: str, names: Names, here: Notebook, unexplained: dict[str, str] | None = None) -> str:
    "Markdown with backticked names of the package, and terms of the glossary, turned into links; code blocks, formulas and headings stay as they are."
    lines, in_fence, in_formula = [], False, False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~", ":::")):
            in_fence ^= not line.lstrip().startswith(":::")
        elif not in_fence and not line.startswith(("    ", "#")):
            line = BACKTICKED.sub(lambda found: role(found, names, here), line)
            if unexplained and not in_formula and "$$" not in line and not line.lstrip().startswith("<"):
                line = explained(line, unexplained)
        in_formula ^= not in_fence and line.count("$$") % 2
        lines.append(line)
    return "\n".join(lines)


def role(found: re.Match, names: Names, here: Notebook) -> str:
    if not found[1]:  # a link already
        return found[0]
    word, call = found[1], found[2]
    # A word that the page uses for something of its own, or that is no more than an English word, is not the name.
    own = not call and (word in here.variables or word in EVERYDAY)
    # Nor is one that is a method of some class and no function of `torch`, as `state_dict()` is: whose it is, only the sentence knows.
    method = word in names.methods and word not in OF_TORCH
    elsewhere = "." not in word and word not in here.definitions and (own or method)
    full = None if elsewhere else names.find(word, here)
    return f"{{py:obj}}`{word}{call or ''} <{full}>`" if full else found[0]


def moved_links(text: str, here: Notebook) -> str:
    "Markdown whose links to folders and to files outside of nbs/ point to the pages made for them."

    def target(found: re.Match) -> str:
        place = (here.path.parent / found[2]).resolve()
        if place.is_dir() and NOTEBOOKS in place.parents:
            return f"{found[1]}{found[2].rstrip('/')}/index.md"
        if place.name in ("CONTRIBUTING.md", "CHANGELOG.md"):
            up = "../" * here.document.count("/")
            return f"{found[1]}{up}{place.name.lower()}"
        if REPOSITORY and ROOT in place.parents and NOTEBOOKS not in place.parents:
            return f"{found[1]}{REPOSITORY}/blob/{BRANCH}/{place.relative_to(ROOT).as_posix()}"
        return found[0]

    return LINK.sub(target, text)


# The API reference ---------------------------------------------------------------------------------------------


def documented_methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)
            and not m.name.startswith("_") and ast.get_docstring(m)]


def decorators(node: Definition) -> set[str]:
    return {ast.unparse(d).split("(")[0].rpartition(".")[2] for d in node.decorator_list}


def signature(node: Definition, drop_first: bool = False) -> str:
    "The argument list as its author wrote it."
    arguments = node.args
    if drop_first and (arguments.posonlyargs or arguments.args):
        first = arguments.posonlyargs or arguments.args
        first = first[0]
        arguments = ast.arguments(**{name: getattr(arguments, name) for name in arguments._fields})
        arguments.posonlyargs = [a for a in arguments.posonlyargs if a is not first]
        arguments.args = [a for a in arguments.args if a is not first]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def maker(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef | None:
    "The `__init__` of a class: its own, or the nearest above it among `classes`."
    own = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    above = (classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes)
    return own or next(filter(None, (maker(base, classes) for base in above)), None)


def entry(node: Definition, home: Notebook, text_of, index: bool = True) -> str:
    """A function or class of the notebook `home` as an object of Sphinx's Python domain, in MyST.

    `text_of` turns a docstring into Markdown. With `index=False` the entry is shown but is not what links lead to.
    """
    options = [f":module: {home.dotted}"] + ([] if index else [":no-index:"])
    if not isinstance(node, ast.ClassDef):
        return directive("py:function", node.name + signature(node), options, text_of(ast.get_docstring(node) or ""), fence=8)
    init = maker(node, home.classes)
    parts = [text_of(ast.get_docstring(node) or "")]
    for method in documented_methods(node):
        marks = decorators(method)
        text = text_of(ast.get_docstring(method))
        if marks & {"property", "cached_property"}:
            parts.append(directive("py:property", method.name, options[1:], text, fence=6))
        else:
            kinds = [f":{kind}:" for kind in ("classmethod", "staticmethod") if kind in marks]
            head = method.name + signature(method, drop_first="staticmethod" not in marks)
            parts.append(directive("py:method", head, options[1:] + kinds, text, fence=6))
    head = node.name + (signature(init, drop_first=True) if init else "")
    return directive("py:class", head, options, "\n\n".join(parts), fence=8)


def directive(name: str, argument: str, options: list[str], body: str, fence: int) -> str:
    lines = ["`" * fence + "{" + name + "} " + argument, *options, "", body, "`" * fence]
    return "\n".join(lines)


# Cells ---------------------------------------------------------------------------------------------------------


def page(executed, here: Notebook, names: Names) -> tuple:
    "The notebook as the site shows it, and the files beside it that its demos need. `executed` is taken over and changed."

    unexplained = terms() if here.document.startswith("book/") else {}

    def text_of(markdown: str) -> str:
        return linked(moved_links(markdown, here), names, here, unexplained)

    style = hoisted(executed)
    cells = []
    for number, cell in enumerate(executed.cells):
        if "readme" in cell.metadata.get("tags", ()):
            continue
        if here.document == "index" and cell.cell_type == "markdown":
            cell.source = cell.source.replace(speed.MARK, speed.summary() + "\n\n[All figures](/benchmarks.md)")
        elif number == 0 and cell.cell_type == "markdown":
            cell.source = TITLE.sub(lambda found: f"{found[0]}\n\n{live_links(here)}\n", cell.source, count=1)
        if cell.cell_type == "markdown":
            cell.source = text_of(cell.source)
            cells.append(cell)
        elif cell.cell_type == "code":
            cells += shown(cell, here, names, text_of)
        else:
            cells.append(cell)
    executed.cells = cells
    if style:
        cells.insert(1, new_markdown_cell(f"```{{raw}} html\n{style}\n```"))  # before all rules of single pictures, which it must not overrule
    files = played(cells, here, executed.metadata.pop("widgets", {}).get(STATE, {}).get("state", {}))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # new cells get random ones, and a page that seems to have changed is built again
    return executed, files


TITLE = re.compile(r"\A# .+(\n+> .+)*")


def live_links(here: Notebook, address: str = REPOSITORY) -> str:
    "How to run the notebook: in JupyterLab, on Binder, in Colab, or by taking the file along."
    place = here.path.relative_to(ROOT).as_posix()
    up = "../" * here.document.count("/")
    command = f"python run.py tutorial {here.path.relative_to(NOTEBOOKS).as_posix()}"
    elsewhere = ""
    if address:
        name = address.removeprefix("https://github.com/")
        elsewhere = (f'<a href="https://mybinder.org/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{place}">Binder</a>'
                     f'<details><summary>Colab</summary><div><a href="https://colab.research.google.com/github/{name}/blob/{BRANCH}/{place}">Open in Colab</a> and run this first:'
                     f"<pre>%pip install git+{address}@{BRANCH}</pre></div></details>")
    return ("```{raw} html\n"
            '<div class="open-live" id="run-it"><span>Run it:</span>'
            f'<details><summary>JupyterLab</summary><div>In a clone of the project:<pre>{command}</pre></div></details>{elsewhere}'
            f'<a href="{up}notebooks/{here.document}.ipynb" download>Download</a></div>\n```')


STATE = "application/vnd.jupyter.widget-state+json"


def played(cells, here: Notebook, state: dict) -> dict[str, str]:
    "Put plain HTML in place of the widgets in `cells`, and return what their demos fetch: name -> text."
    files = {}
    for cell in cells:
        for output in cell.get("outputs", ()):
            view = output.get("data", {}).pop(players.WIDGET, None)
            if view is None:
                page = output.get("data", {}).get("text/html")
                if isinstance(page, str) and "ag-quiz" in page:
                    output.data["text/html"] = mathematics.marked(page)
                continue
            output.data.pop("image/svg+xml", None)  # the still of where nothing moves
            output.data.pop("text/plain", None)
            demo = players.Demo(f"{here.document}/{len(files)}", view["model_id"], state)
            if demo.numbers:
                files[f"extra/demos/{demo.name}.js"] = demo.data
            output.data["text/html"] = demo.html.replace(" data-demo=", " data-autoplay data-demo=", 1) if here.document == "index" else demo.html
    return files


THEME = re.compile(r"<style>\.agnb(?:\{--ag-ink| \.ag-caption).*?</style>", re.S)  # never the rules of a single frame


def hoisted(executed) -> str:
    "Our pictures and players each bring the same rules for colours and captions along; take them out of `executed`, and return them to be written once."
    found = {}

    def without(text: str) -> str:
        for style in THEME.findall(text):
            found.setdefault(style)
        return THEME.sub("", text)

    for cell in executed.cells:
        for output in cell.get("outputs", ()):
            if isinstance(output.get("data", {}).get("text/html"), str):
                output.data["text/html"] = without(output.data["text/html"])
    for model in executed.metadata.get("widgets", {}).get(STATE, {}).get("state", {}).values():
        if model["model_name"] == "HTMLModel":
            model["state"]["value"] = without(model["state"].get("value", ""))
    return "".join(found)


def shown(cell, here: Notebook, names: Names, text_of) -> list:
    "What a reader sees of a code cell: nothing, the cell, or an API entry with the source folded below (or as the source itself, see `places`)."
    found = directives(cell.source)
    if HIDDEN & set(found) or found.get("include") == "false":
        return []
    requested = re.fullmatch(r"\s*show_doc\(([\w.]+).*\)\s*", cell.source, re.S)
    if requested:
        place = names.definition(requested[1].rpartition(".")[2]) or names.definition(requested[1])
        return [new_markdown_cell(entry(place[1], place[0], text_of, index=place[0] is not here))] if place else []
    before = []
    tags = set(cell.metadata.get("tags", []))
    if EXPORTED & set(found):
        definitions = definitions_in(cell.source)
        open_source = here.document.startswith(READ_THROUGH)
        if "exporti" not in found and definitions:
            before = [places(definitions, here)] if open_source else [new_markdown_cell(entry(node, here, text_of)) for node in definitions]
        if imports_only(cell.source) and not cell.outputs:
            return before
        if not open_source:
            tags.add("hide-input")
            prompt(cell, "the source")
    if "solution" in tags:
        tags.add("hide-input")
        prompt(cell, "the solution")
    if "check" in tags:
        prompt(cell, "the check")
    if "quiz" in tags:  # its options unfold by themselves; the call is for those who read the notebook
        tags.add("remove-input")
    if found.get("echo") == "false" or "hide_input" in found:
        tags.add("remove-input")
    if found.get("output") == "false" or "hide_output" in found:
        tags.add("remove-output")
        cell.outputs = []  # or the state of widgets that nobody sees would go along
    cell.source = re.sub(r"^\s*#\|.*\n?", "", cell.source, flags=re.M)
    cell.source = re.sub(r"^.*#\| *hide_line *\n?", "", cell.source, flags=re.M).rstrip()
    if not cell.source and not cell.outputs:
        return before
    if tags:
        cell.metadata["tags"] = sorted(tags)
    return [*before, cell]


def places(definitions: list[Definition], here: Notebook):
    "Entries that only links and the index lead to: signature and sentence stand in the code below."
    entries = "\n\n".join(entry(node, here, lambda text: "") for node in definitions)
    return new_markdown_cell(directive("container", "in-code", [], entries, fence=10))


def prompt(cell, what: str):
    "Label the folded cell, unless its author did."
    label = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
    cell.metadata["mystnb"] = label | cell.metadata.get("mystnb", {})


def imports_only(source: str) -> bool:
    try:
        return all(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.parse(source).body)
    except SyntaxError:
        return False
