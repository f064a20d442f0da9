"""run.py: every way it can go wrong ends in one clear line, and both commands work in a fresh clone."""

import ast
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from _pace import within
from conftest import ROOT

sys.path.insert(0, str(ROOT))
import run  # noqa: E402

BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)


@pytest.fixture
def project(tmp_path, monkeypatch):
    "A small project in a folder of its own, with run.py's paths pointing into it."
    for name in ("run.py", "settings.ini", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "nbs").mkdir()
    venv = tmp_path / ".venv"
    folder = venv / ("Scripts" if os.name == "nt" else "bin")
    paths = dict(ROOT=tmp_path, VENV=venv, STAMP=venv / "run-stamp", BEGUN=venv / "run-begun", LOG=venv / "install.log", BIN=folder,
                 PYTHON=folder / run.PYTHON.name)
    for name, value in paths.items():
        monkeypatch.setattr(run, name, value)
    return tmp_path


def one_line(capsys) -> str:
    "What run.py said on standard error: one line, no traceback."
    text = capsys.readouterr().err.strip()
    assert len(text.splitlines()) == 1 and text.startswith("run.py: "), text
    return text


# Old Pythons ---------------------------------------------------------------------------------------------------


def test_an_old_python_is_told_what_to_do():
    code = f"import sys; sys.version_info = (3, 6, 15, 'final', 0); exec(compile(open({str(ROOT / 'run.py')!r}).read(), 'run.py', 'exec'))"
    done = subprocess.run([sys.executable, "-c", "__file__ = " + repr(str(ROOT / "run.py")) + "\n" + code], capture_output=True, text=True)
    assert done.returncode == 1 and not done.stdout
    assert re.fullmatch(r"run\.py: this is Python 3\.6, and autograd_nb needs Python 3\.11 or newer\. [^\n]+\n", done.stderr)


def test_the_file_can_be_parsed_by_old_pythons():
    "No syntax that Python 2.7 or 3.6 would stop at before the version is looked at."
    tree = ast.parse((ROOT / "run.py").read_text(encoding="utf-8"))
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.AsyncFunctionDef, ast.Await, ast.YieldFrom, ast.Match)
    for node in ast.walk(tree):
        assert not isinstance(node, newer), f"line {node.lineno}: {type(node).__name__}"
        if isinstance(node, ast.arguments):
            assert not node.kwonlyargs and not node.posonlyargs
            assert not any(a.annotation for a in node.args)
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None
        if isinstance(node, ast.Raise):
            assert node.cause is None, f"line {node.lineno}: raise … from …"
        if isinstance(node, ast.ClassDef):
            assert not node.keywords
        if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store):
            assert not any(isinstance(part, ast.Starred) for part in node.elts)
    for old in ("python2.7", "python3.6"):
        if shutil.which(old):
            done = subprocess.run([old, str(ROOT / "run.py"), "test"], capture_output=True, text=True)
            assert "needs Python" in done.stderr or "not found" in done.stderr, done.stderr


# The environment -----------------------------------------------------------------------------------------------


def test_outside_of_a_clone(tmp_path):
    shutil.copy(ROOT / "run.py", tmp_path)
    done = subprocess.run([sys.executable, str(tmp_path / "run.py"), "test"], capture_output=True, text=True)
    assert done.returncode == 1 and "settings.ini is missing" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_without_a_network(project):
    "A package index that refuses connections stands in for a missing network."
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    env |= dict(PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", PIP_NO_CACHE_DIR="1")
    done = subprocess.run([BASE_PYTHON, str(project / "run.py"), "test"], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    assert re.fullmatch(r"run\.py: the package index cannot be reached: [^\n]+\n", done.stderr), done.stderr
    # The next run knows that this environment is half made.
    assert (project / ".venv" / "run-begun").exists() and not (project / ".venv" / "run-stamp").exists()


@pytest.mark.slow
def test_a_half_made_environment_is_made_anew_and_a_finished_one_kept(project, monkeypatch, capsys):
    (project / ".venv").mkdir()
    (project / ".venv" / "run-begun").touch()
    (project / ".venv" / "leftover").touch()
    installed = []
    monkeypatch.setattr(run, "install", lambda: installed.append(True))
    run.environment()
    assert run.PYTHON.exists() and not (project / ".venv" / "leftover").exists() and installed == [True]
    assert "incomplete" in capsys.readouterr().out
    with within(1):
        run.environment()
    assert installed == [True]
    # Other requirements: install again, without making the environment anew.
    (project / ".venv" / "kept").touch()
    (project / "constraints.txt").write_text("numpy==2.4.6\n")
    run.environment()
    assert installed == [True, True] and (project / ".venv" / "kept").exists()
    # A Python that is gone: anew.
    run.PYTHON.unlink()
    run.environment()
    assert len(installed) == 3 and not (project / ".venv" / "kept").exists()


def test_an_interrupted_installation_leaves_no_stamp(project, monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "install", interrupt)
    assert run.main(["lint"]) == 130
    assert run.BEGUN.exists() and not run.STAMP.exists()
    assert "Traceback" not in capsys.readouterr().err


def test_an_environment_of_somebody_else_is_not_deleted(project, capsys):
    (project / ".venv").mkdir()
    (project / ".venv" / "precious").touch()
    assert run.main(["test"]) == 1
    assert "was not made by run.py" in one_line(capsys)
    assert (project / ".venv" / "precious").exists()


def test_a_python_without_venv(project, monkeypatch, capsys):
    def no_venv(*_, **__):
        return subprocess.CompletedProcess([], 1, stdout=b"not created successfully because ensurepip is not available.")

    monkeypatch.setattr(run.subprocess, "run", no_venv)
    assert run.main(["test"]) == 1
    assert "without its `venv` module" in one_line(capsys)


def test_a_disk_that_is_nearly_full(project, monkeypatch, capsys):
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: type("usage", (), {"free": 2**20}))
    assert run.main(["tutorial"]) == 1
    assert "make room" in one_line(capsys)


@pytest.mark.parametrize("code, words", [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "no permission to write"),
                                         (errno.EACCES, "no permission to write")])
def test_a_file_that_cannot_be_written(project, monkeypatch, capsys, code, words):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code), str(run.VENV))

    monkeypatch.setattr(run.Path, "mkdir", refuse)
    assert run.main(["docs"]) == 1
    assert words in one_line(capsys)


@pytest.mark.parametrize("output, words", [
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
    ("WARNING: Retrying … NewConnectionError: Failed to establish a new connection: [Errno -2] Name or service not known\n"
     "ERROR: No matching distribution found for setuptools>=77", "cannot be reached"),
    ("ERROR: Could not find a version that satisfies the requirement scipy==1.17.1", "no version for Python"),
    ("ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'", "no permission"),
])
def test_pips_troubles_are_explained(output, words):
    assert words in run.explain(output) and "\n" not in run.explain(output)


@pytest.mark.slow
def test_an_unknown_trouble_of_pip_points_to_the_log(project, monkeypatch, capsys):
    monkeypatch.setattr(run, "PYTHON", Path(sys.executable))
    run.VENV.mkdir()
    (project / "setup.py").write_text("raise SystemExit('broken on purpose')")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    monkeypatch.setattr(run, "environment", run.install)
    assert run.main(["lint"]) == 1
    assert "install.log" in one_line(capsys)
    assert "broken on purpose" in run.LOG.read_text()


# The commands --------------------------------------------------------------------------------------------------


def test_ports(capsys, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(run, "environment", lambda: None)
        assert run.main(["tutorial", "--port", str(port)]) == 1
        assert "port {} is taken".format(port) in one_line(capsys)
        assert run.choose_port(None) != port
    assert run.choose_port(port) == port
    assert run.main(["tutorial", "--port", "70000"]) == 1
    assert "no port" in one_line(capsys)


def test_arguments_go_where_they_belong(monkeypatch):
    monkeypatch.setattr(run, "environment", lambda: None)
    calls = []
    monkeypatch.setattr(run, "python", lambda *a, **_: calls.append([str(part) for part in a]) or 0)
    assert run.main(["test", "-k", "floors", "--co"]) == 0 and calls[-1][-3:] == ["-k", "floors", "--co"]
    assert "-n" in calls[-1]
    assert run.main(["test", "--pdb"]) == 0 and "-n" not in calls[-1]
    assert run.main(["docs", "--strict"]) == 0 and calls[-1][-1] == "--strict"
    with pytest.raises(SystemExit) as stop:
        run.main(["tutorial", "--nonsense"])
    assert stop.value.code == 2


def test_colour_only_on_a_terminal(capsys):
    run.say("hello")
    assert capsys.readouterr().out == "hello\n"


def test_without_a_browser(monkeypatch, capsys):
    import webbrowser

    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert run.open_browser("http://127.0.0.1:1/") is False
    assert "open the address yourself" in capsys.readouterr().out


def test_a_broken_notebook_is_named(project, capsys, monkeypatch):
    monkeypatch.setattr(run, "environment", lambda: None)
    (project / "nbs" / "broken.ipynb").write_text("{")
    assert run.main(["export"]) == 1
    assert "broken.ipynb" in one_line(capsys)


@pytest.mark.slow
def test_both_commands_in_a_fresh_clone(tmp_path):
    "What a newcomer does: clone, open the tutorial, end it, run tests. The second command starts in seconds."
    clone = tmp_path / "a clone with spaces"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    log = tmp_path / "tutorial.log"
    with open(log, "w") as file:
        tutorial = subprocess.Popen([BASE_PYTHON, str(clone / "run.py"), "tutorial", "--no-browser"], cwd=tmp_path, stdout=file,
                                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=heeding_interrupts)
    try:
        link = wait_for_link(log, tutorial)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(link, timeout=30) as answer:
            assert answer.status == 200 and b"JupyterLab" in answer.read()
    finally:
        tutorial.send_signal(signal.SIGINT)
        try:
            status = tutorial.wait(120)
        except subprocess.TimeoutExpired:
            tutorial.kill()
            raise
    assert status == 0 and "Traceback" not in log.read_text()

    env = {k: v for k, v in os.environ.items() if k != "AUTOGRAD_NB_REQUIRE"}  # what was required of this run is not of that one
    with within(60):
        done = subprocess.run([BASE_PYTHON, str(clone / "run.py"), "test", "tests/test_floors.py", "-k", "told_apart"], cwd=tmp_path, env=env,
                              capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def heeding_interrupts():
    "A shell that runs the tests in the background has everything in them ignore SIGINT."
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_link(log: Path, process: subprocess.Popen) -> str:
    for _ in range(900):
        found = re.search(r"http://\S+/lab/tree/\S+", log.read_text())
        if found:
            return found[0]
        assert process.poll() is None, log.read_text()
        time.sleep(1)
    raise AssertionError(log.read_text())


# The reader's copies -------------------------------------------------------------------------------------------------


def test_reading_does_not_change_the_clone(project, capsys):
    "Copies follow their originals until the reader changes them; then they stay, and a line says when the original is newer."
    book = project / "nbs" / "book"
    book.mkdir()
    (book / "01.ipynb").write_text("one")
    (book / "02.ipynb").write_text("two")
    (project / "nbs" / "images").mkdir()
    (project / "nbs" / "images" / "a.svg").write_text("<svg/>")
    folder = run.working_copy()
    assert folder == project / "my_notebooks" and (folder / "book" / "01.ipynb").read_text() == "one" and (folder / "images" / "a.svg").exists()
    (folder / "book" / "01.ipynb").write_text("one, and what the reader wrote")
    (folder / "book" / "mine.ipynb").write_text("the reader's own")
    (book / "01.ipynb").write_text("one, second edition")
    (book / "02.ipynb").write_text("two, second edition")
    capsys.readouterr()
    run.working_copy()
    said = capsys.readouterr().out
    assert "book/01.ipynb" in said and "02" not in said
    assert (folder / "book" / "01.ipynb").read_text() == "one, and what the reader wrote" and (folder / "book" / "02.ipynb").read_text() == "two, second edition"
    (book / "02.ipynb").rename(book / "03.ipynb")
    run.working_copy()
    assert not (folder / "book" / "02.ipynb").exists() and (folder / "book" / "03.ipynb").exists() and (folder / "book" / "mine.ipynb").exists()
    assert sorted(path.name for path in book.iterdir()) == ["01.ipynb", "03.ipynb"] and (book / "01.ipynb").read_text() == "one, second edition"
