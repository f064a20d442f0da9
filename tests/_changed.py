"""Which tests concern what was changed: since this branch left main, or on main since the last commit.

A test concerns a change when its file was changed or names a changed file as one it imports or runs, or when its name, its code or the
identifier of its case names a function, a class or a notebook that was changed.
"""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

from _sampling import file_of, labels, test_of

ROOT = Path(__file__).resolve().parent.parent
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.M)


def git(root: Path, *arguments: str) -> str:
    "What git prints; nothing where it fails, or where there is no git."
    try:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, encoding="utf-8").stdout
    except OSError:
        return ""


def base(root: Path) -> str:
    "The commit that changes count from: where this branch left main."
    for main in ("origin/HEAD", "origin/main", "main"):
        found = git(root, "merge-base", "HEAD", main).strip()
        if found:
            return found
    return "HEAD"


def changes(root: Path = ROOT) -> dict[str, list[str]]:
    "The changed files, each with the names of the functions and classes in it that changed."
    found, since = {}, base(root)
    for path in git(root, "ls-files", "--others", "--exclude-standard").splitlines():
        found[path] = []
    for path in git(root, "diff", "--name-only", "--relative", since).splitlines():
        text = git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", since, "--", path) if path.endswith(".py") else ""
        lines = {int(start) + k for start, count in HUNK.findall(text) for k in range(int(count or 1) or 1)}
        found[path] = sorted(names_at(root / path, lines))
    return found


def names_at(path: Path, lines: set[int]) -> set[str]:
    "The functions and classes that have one of these lines: those of the file, and those of its classes."
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError):
        return set()
    found = set()
    for node in [*body, *(method for outer in body if isinstance(outer, ast.ClassDef) for method in outer.body)]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if lines & set(range(first, node.end_lineno + 1)):
                found.add(node.name)
    return found


def naming(path: str) -> re.Pattern | None:
    "How a test file names the file that it imports or runs; None for what is no program."
    *folders, file = path.split("/")
    stem, _, kind = file.rpartition(".")
    if kind != "py" or stem == "__init__":
        return None
    if folders[:1] == ["autograd_nb"]:
        inside = ".".join(folders[1:])
        dotted = re.escape(".".join([*folders[1:], stem]))
        package = re.escape("autograd_nb" + (f".{inside}" if inside else ""))
        return re.compile(rf"\b(autograd_nb|torch)\.{dotted}\b|from {package} import [^\n]*\b{stem}\b")
    return re.compile(rf"^\s*(from|import) {stem}\b|\b{stem}\.py\b|programs\(\"{stem}\"\)", re.M)


@cache
def words(code) -> frozenset[str]:
    "The names that code uses, attributes and those of functions inside it among them."
    inner = [words(const) for const in code.co_consts if hasattr(const, "co_names")]
    return frozenset(code.co_names).union(*inner)


class Concerns:
    "Says of a test whether it concerns the changes."

    def __init__(self, changed: dict[str, list[str]], root: Path = ROOT):
        self.files = set(changed)
        self.names = {name for names in changed.values() for name in names if not name.startswith("__")}
        self.notebooks = {name for path in changed if path.endswith(".ipynb") for name in (path.removeprefix("nbs/"), Path(path).stem)}
        self.patterns = [pattern for path in changed if (pattern := naming(path))]
        self.root, self.texts = root, {}

    def __call__(self, item) -> bool:
        return bool(self.files) and (self.file(file_of(item)) or self.case(item))

    def file(self, path: str) -> bool:
        if path not in self.texts:
            file = self.root / path
            text = file.read_text(encoding="utf-8") if self.patterns and file.exists() else ""
            self.texts[path] = path in self.files or any(pattern.search(text) for pattern in self.patterns)
        return self.texts[path]

    def case(self, item) -> bool:
        if not (self.names or self.notebooks):
            return False
        test = test_of(item).rpartition("::")[2].removeprefix("test_")
        code = getattr(getattr(item, "function", None), "__code__", None)
        return bool(not (self.names | self.notebooks).isdisjoint(labels(item)) or (code and not self.names.isdisjoint(words(code)))
                    or any(f"_{name}_" in f"_{test}_" for name in self.names))
