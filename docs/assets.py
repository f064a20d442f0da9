"""The JavaScript of other projects that pages need: fetched with npm when the site is built, never committed.

With it the site works without a network. Where npm is missing or cannot reach its registry, pages name the public
copies that Sphinx and MyST-NB know by default, and need a network to show widgets and formulas.
"""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path

# package -> {files in it: the folders of the site that get them}. Widgets are drawn by html-manager, which require.js
# loads; html-manager looks for its icon font in two places.
PACKAGES = {
    "requirejs@2.3.8": {"require.js": ["."]},
    "@jupyter-widgets/html-manager@1.0.15": {
        "dist/embed-amd.js": ["."],
        "dist/*.woff2": ["@jupyter-widgets", "@jupyter-widgets/html-manager/dist"],
    },
    "mathjax@3.2.2": {"es5/tex-svg.js": ["."]},
}
MISSED = "without it widgets and formulas on the site need a network connection, and some tests are left out."
CHECKER = {"axe-core@4.10.3": {"axe.min.js": ["."]}}  # what the tests look for barriers with


def fetch(cache: Path, packages: dict = PACKAGES) -> Path | None:
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
