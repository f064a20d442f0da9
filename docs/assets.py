"""The JavaScript of other projects that the site needs: fetched with npm when it is built, never committed.

With it the site works without a network. Where npm is missing or cannot reach its registry, formulas are set by a
public copy of MathJax, and inputs of demos stay switched off.
"""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path

# package -> {files in it: the folders that get them}
MATHJAX = {"mathjax@3.2.2": {f"es5/{inside}*.js": [f"es5/{inside}".rstrip("/")] for inside in
                             ("", "input/", "input/tex/extensions/", "output/", "output/svg/", "output/svg/fonts/", "adaptors/", "util/")}}
PYTHON = {
    "pyodide@0.28.3": {name: ["."] for name in ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")},
    "@viz-js/viz@3.31.0": {"dist/viz-global.js": ["."]},
}
MISSED = "without it formulas on the site need a network connection, demos compute nothing of the reader's own, and some tests are left out."
CHECKER = {"axe-core@4.10.3": {"axe.min.js": ["."]}}  # what the tests look for barriers with


def fetch(cache: Path, packages: dict) -> Path | None:
    "The folder with the files of `packages`, filled on the first call; None where npm cannot fill it. `cache` is for these packages alone."
    folder = cache / hashlib.sha256(repr(packages).encode()).hexdigest()[:12]
    if (folder / "complete").exists():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        print(f"npm is not installed: {MISSED}")
        return None
    shutil.rmtree(cache, ignore_errors=True)
    folder.mkdir(parents=True)
    for package, files in packages.items():
        with tempfile.TemporaryDirectory() as work:
            done = subprocess.run([npm, "pack", package, "--silent"], cwd=work, capture_output=True, text=True)
            archives = list(Path(work).glob("*.tgz"))
            if done.returncode or not archives:
                print(f"npm could not fetch {package}: {MISSED}")
                return None
            with tarfile.open(archives[0]) as archive:
                for member in archive:
                    for pattern, targets in files.items():
                        if fnmatch(member.name, "package/" + pattern):
                            place(archive.extractfile(member).read(), folder, targets, Path(member.name).name)
    (folder / "complete").touch()
    return folder


def place(content: bytes, folder: Path, targets: list[str], name: str):
    for target in targets:
        (folder / target).mkdir(parents=True, exist_ok=True)
        (folder / target / name).write_bytes(content)
