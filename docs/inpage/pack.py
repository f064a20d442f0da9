"""The archive of Python modules that a page loads to compute the reader's own function, made from the package.

    python docs/inpage/pack.py FOLDER      write them as files, to try them out

The modules that record and draw are the package's, word for word. Below them stand empty doors, where a notebook has
the library's own engine, and number.py in place of NumPy.
"""

import ast
import functools
import io
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "autograd_nb"
DRAWING = ("style", "records", "repeats", "steps", "svg", "layout", "formulas", "scalar", "expressions", "captions")
WHOLE = ("arrays/topics", *(f"viz/{name}" for name in DRAWING))  # the first puts the classes of the others together
# what parse_expression makes of a number
STAND_INS = {"autograd_nb/creation.py": "def tensor(x):\n    from autograd_nb.viz.scalar import value\n\n    return value(x)\n"}
DOOR = '"A page has the engine of chapter 8 alone: nothing here is ever called."\n'


def doors(sources: list[str]) -> dict[str, str]:
    "Modules of the package that are not whole here, empty but for the names that `sources`, which stand in viz, import from them."
    wanted = {}
    for node in (n for source in sources for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)):
        module = node.module if node.level == 2 else (node.module or "").removeprefix("autograd_nb.") if not node.level and (node.module or "").startswith("autograd_nb.") else None
        if module and not module.startswith("viz.") and module.replace(".", "/") not in WHOLE:
            wanted.setdefault(module, set()).update(alias.name for alias in node.names)
    found = {"autograd_nb/__init__.py": ""} | {f"autograd_nb/{name.rpartition('/')[0]}/__init__.py": "" for name in WHOLE}
    for module, names in sorted(wanted.items()):
        *rooms, _ = parts = module.split(".")
        found |= {"/".join(("autograd_nb", *rooms[: k + 1], "__init__.py")): "" for k in range(len(rooms))}
        found["/".join(("autograd_nb", *parts)) + ".py"] = DOOR + " = ".join((*sorted(names), "None")) + "\n"
    return found


@functools.cache
def files() -> dict[str, str]:
    "name -> text of everything a page needs."
    found = {f"autograd_nb/{name}.py": (PACKAGE / f"{name}.py").read_text(encoding="utf-8") for name in WHOLE}
    found |= doors(list(found.values())) | STAND_INS
    for name, there in (("page", "page"), ("number", "numpy")):  # here it is not called numpy, so that nobody imports it by mistake
        found[f"{there}.py"] = (HERE / f"{name}.py").read_text(encoding="utf-8")
    return found


def archive() -> bytes:
    "The same as a ZIP file that is the same for the same modules."
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as into:
        for name, text in sorted(files().items()):
            into.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def write(folder: Path):
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
