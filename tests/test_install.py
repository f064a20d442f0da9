"""The package installs by itself: what is in the archives, and that `pip install .` is enough to use it."""

import os
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    "The source distribution and the wheel made from it."
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.mark.slow
def test_archives_hold_the_package_and_the_readme(archives):
    source, wheel = archives
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "autograd_nb").rglob("*.py")}
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert modules | {"README.md", "LICENSE", "settings.ini", "setup.py"} <= names
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert modules <= names and any(name.endswith("LICENSE") for name in names)
    assert not [name for name in names if name.split("/")[0] not in ("autograd_nb",) and ".dist-info/" not in name], "only the package"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.splitlines()[-1] in metadata and "Requires-Python: >=3.11" in metadata and "Apache-2.0" in metadata


PROGRAM = """
import autograd_nb as torch
x = torch.tensor(2.0, requires_grad=True)
y = (3 * x + 2) ** 2
y.backward()
print(torch.__version__, y.item(), x.grad.item())
"""


@pytest.mark.slow
def test_pip_install_alone_is_enough(tmp_path):
    python = tmp_path / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    done = subprocess.run([str(python), "-m", "pip", "install", "-q", str(ROOT)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(python), "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split()[1:] == ["64.0", "48.0"], done.stdout + done.stderr
