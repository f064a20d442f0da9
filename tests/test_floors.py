"""An import may only point down: docs/floors.py says which package is on which floor."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
from floors import FLOORS, FRONT_DOOR, floor_of  # noqa: E402

PACKAGE = "autograd_nb"
MODULES = sorted((ROOT / PACKAGE).rglob("*.py"))


def dotted(path: Path) -> str:
    "'graph.node' for autograd_nb/graph/node.py; '' for the package itself."
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {dotted(path) for path in MODULES}


def imported(source: str, package: str) -> list[tuple[int, str]]:
    """The modules of this package that `source` imports anywhere, functions included, as (line, dotted name).

    `package` is the dotted name of the package the source lies in, which relative imports start from.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE]
        elif isinstance(node, ast.ImportFrom):
            names = from_import(node, package)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            first = node.args[0] if node.args else None
            value = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
            names = [value] if value.split(".")[0] == PACKAGE else []
        else:
            continue
        found += [(node.lineno, name.removeprefix(PACKAGE).lstrip(".")) for name in names]
    return found


def from_import(node: ast.ImportFrom, package: str) -> list[str]:
    "Full names of the modules that a `from … import …` reaches."
    if node.level:
        above = [PACKAGE, *package.split(".")] if package else [PACKAGE]
        base = ".".join(above[: len(above) - node.level + 1] + ([node.module] if node.module else []))
    else:
        base = node.module
    if base.split(".")[0] != PACKAGE:
        return []
    # `from autograd_nb import nn` reaches the module nn, `from autograd_nb.tensor import Tensor` the module tensor.
    full = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name.removeprefix(PACKAGE + ".") in KNOWN else base for name in full]


def upward(source: str, module: str, package: str) -> list[str]:
    "What the module imports from a floor above its own."
    own = floor_of(module)
    faults = []
    for line, target in imported(source, package):
        floor = floor_of(target)
        if floor is None or floor > own:
            faults.append(f"line {line}: {module or PACKAGE} (floor {own}) imports {target or PACKAGE} (floor {floor})")
    return faults


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_down(path):
    module = dotted(path)
    if module == "_modidx":
        return  # nbdev's table of names imports nothing
    assert floor_of(module) is not None, f"docs/floors.py names no floor for {module}"
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    faults = upward(path.read_text(encoding="utf-8"), module, package)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("source", [
    "from autograd_nb.tensor import Tensor",
    "from ..tensor import Tensor",
    "from .. import tensor",
    "import autograd_nb.tensor",
    "import autograd_nb as torch",
    "def f():\n    from ..tensor import Tensor",
    "import importlib\nimportlib.import_module('autograd_nb.tensor')",
])
def test_an_import_that_points_up_is_seen(source, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "KNOWN", KNOWN | {"tensor"})
    assert upward(source, module="graph.node", package="graph")


@pytest.mark.parametrize("source", [
    "import numpy as np", "from .op import op", "from ..arrays import dtypes", "from autograd_nb.arrays.dtypes import promote",
])
def test_an_import_that_points_down_is_allowed(source):
    assert not upward(source, module="graph.node", package="graph")


def test_floors_are_told_apart():
    assert floor_of("graph.engine") == 1 and floor_of("utils.checkpoint") == 5 and floor_of("utils.data") == 6
    assert floor_of("") == FRONT_DOOR and floor_of("nowhere") is None
    names = [package for floor in FLOORS for package in floor.packages]
    assert len(names) == len(set(names))


def test_arrays_know_no_operation_and_no_optimiser():
    "The lowest floor computes for whoever asks: what is done for one operation or optimiser alone stands beside it."
    import numpy as np

    import autograd_nb as torch
    from autograd_nb.graph.op import REGISTRY

    numpys = {*dir(np), *dir(np.linalg), *dir(np.ndarray)}
    theirs = {*REGISTRY, *(name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type))} - numpys
    assert {"gelu", "softmax", "Adam", "SGD"} <= theirs
    for path in (ROOT / PACKAGE / "arrays").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        listed = {id(n) for a in tree.body if isinstance(a, ast.Assign) and ast.unparse(a.targets[0]) == "__all__" for n in ast.walk(a)}
        named = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in listed}
        assert not named & theirs, (path.name, named & theirs)


def test_the_graph_has_no_table_of_operations():
    "What is known of single operations is said where they are, by their traits."
    from autograd_nb.graph.op import REGISTRY

    for path in (ROOT / PACKAGE / "graph").glob("*.py"):
        for line in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(line, ast.Assign) or ast.unparse(line.targets[0]) in ("__all__", "_NO_DERIVATIVE"): continue  # the latter: names in a program's text
            words = [w for n in ast.walk(line.value) if isinstance(n, ast.Constant) and isinstance(n.value, str) for w in n.value.split()]
            words += [n.arg for n in ast.walk(line.value) if isinstance(n, ast.keyword)]
            assert len({*words} & {*REGISTRY}) < 3, (path.name, ast.unparse(line)[:80])


def taken(path: Path) -> list[str]:
    "What a module reads from another of this package, as `F.name`, that is not there."
    package = dotted(path) if path.name == "__init__.py" else dotted(path).rpartition(".")[0]
    tree, modules = ast.parse(path.read_text(encoding="utf-8")), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.partition(".")[0] == PACKAGE):
            home = importlib.import_module(importlib.util.resolve_name("." * node.level + (node.module or ""), f"{PACKAGE}.{package}".rstrip(".")))
            modules |= {a.asname or a.name: getattr(home, a.name) for a in node.names if isinstance(getattr(home, a.name, None), ModuleType)}
    return [
        f"line {node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)
        and node.value.id in modules and not hasattr(modules[node.value.id], node.attr)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_read_from_another_module_is_there(path):
    "A name that a module only imports is nobody else's: it goes when the module no longer needs it."
    assert not taken(path)
