#!/usr/bin/env python3
"""One command for everything a reader or a contributor of this project does.

    python run.py tutorial      open the book in JupyterLab, or any notebook: tutorial book/03_chain_rule.ipynb
    python run.py test          pass the tests of every day; --all: every test
    python run.py docs          build the documentation site
    python run.py book          make the book as an EPUB, and as a PDF where Chromium is
    python run.py bench         measure speed beside other libraries
    python run.py export        write the package and README.md from the notebooks
    python run.py notebooks     run notebooks and store clean outputs
    python run.py lint          check the style of all code
    python run.py hooks         let git merge notebooks and check commits
    python run.py clean         remove what was built

It needs Python alone: the first command makes an environment in `.venv` and installs the versions that
constraints.txt names; later ones start at once. CONTRIBUTING.md says more.
"""
# This file runs before anything is installed, so it imports the standard library only. Its syntax is kept to
# what Python 2.7 can parse, so that an old Python prints one clear line instead of a syntax error.
from __future__ import print_function

import os
import re
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))


def minimum_python():
    "The oldest Python that works, as settings.ini states it."
    try:
        with open(os.path.join(ROOT, "settings.ini")) as file:
            found = re.search(r"^min_python *= *(\d+)\.(\d+)", file.read(), re.M)
    except (IOError, OSError):
        found = None
    return (int(found.group(1)), int(found.group(2))) if found else (3, 11)


if sys.version_info < minimum_python():
    sys.exit(
        "run.py: this is Python %d.%d, and autograd_nb needs Python %d.%d or newer. Install one from python.org "
        "(or your system's packages) and start run.py with it, for example: python%d.%d run.py tutorial"
        % (sys.version_info[:2] + minimum_python() + minimum_python())
    )

import argparse  # noqa: E402
import errno  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import secrets  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import urllib.request  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(ROOT)
VENV = ROOT / ".venv"
STAMP = VENV / "run-stamp"  # holds the fingerprint of what is installed; absent while an installation is under way
BEGUN = VENV / "run-begun"  # says that run.py made this environment, finished or not
LOG = VENV / "install.log"
SERVER_LOG = VENV / "jupyter.log"
WINDOWS = os.name == "nt"
BIN = VENV / ("Scripts" if WINDOWS else "bin")
PYTHON = BIN / ("python.exe" if WINDOWS else "python")
DISK_NEEDED = 1500 * 2**20  # bytes; the installed environment takes about 1.1 GB


class Problem(Exception):
    "Something the user can mend; its text is the one line they read."


# Speaking ------------------------------------------------------------------------------------------------------


def is_terminal(stream):
    return hasattr(stream, "isatty") and stream.isatty()


def say(text, style="1"):
    "Print a line of run.py's own, set apart from the programs' output; in colour only on a terminal."
    if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") and not WINDOWS:
        text = "\033[{}m{}\033[0m".format(style, text)
    print(text, flush=True)


class Progress:
    "What an installation is doing: one line that is rewritten on a terminal, an occasional line elsewhere."

    def __init__(self, total):
        self.total, self.count, self.shown = total, 0, time.time()
        self.live = is_terminal(sys.stdout)

    def read(self, line):
        "Take one line of pip's output."
        found = re.match(r"\s*(Collecting|Requirement already satisfied:|Installing collected packages|Building)\s*([\w.-]*)", line)
        if not found:
            return
        action, name = found.groups()
        if action == "Installing collected packages":
            self.show("unpacking {} packages (the longest part)".format(line.count(",") + 1), now=True)
        elif action == "Collecting":
            self.count += 1
            self.show("{} of about {}: {}".format(self.count, max(self.total, self.count), name))

    def show(self, text, now=False):
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + "  {}".format(text)[:width].ljust(width), end="", flush=True)
        elif now or time.time() - self.shown > 10:
            self.shown = time.time()
            print("  " + text, flush=True)

    def finish(self):
        if self.live:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", flush=True)


# The environment -----------------------------------------------------------------------------------------------


def check_clone():
    for name in ("settings.ini", "setup.py", "constraints.txt", "nbs"):
        if not (ROOT / name).exists():
            raise Problem("{} is missing beside run.py: run.py works inside a clone of the whole project, so clone it again "
                          "(git clone) and start run.py there.".format(name))


def fingerprint():
    "Changes when the environment has to be made anew: other requirements, another Python, another folder."
    digest = hashlib.sha256()
    for name in ("settings.ini", "setup.py", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    digest.update("{} {}.{}".format(ROOT, *sys.version_info[:2]).encode())
    return digest.hexdigest()


def environment():
    "Make the environment in `.venv`, or bring it up to date, unless it already is; then return at once."
    check_clone()
    wanted = fingerprint()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        return
    half_made = BEGUN.exists() and not STAMP.exists()
    if not PYTHON.exists() or half_made or not right_python():
        if VENV.exists() and not BEGUN.exists() and any(VENV.iterdir()):
            raise Problem("{} exists, was not made by run.py and does not work with this Python: rename or delete that folder "
                          "and try again.".format(VENV))
        make_environment(repairing=VENV.exists())
    else:
        say("Bringing the environment up to date.")
    BEGUN.touch()
    if STAMP.exists():
        STAMP.unlink()
    install()
    quiet_jupyter()
    STAMP.write_text(wanted)


def right_python():
    "Whether `.venv` holds the same Python version as the one running now."
    code = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
    try:
        done = subprocess.run([str(PYTHON), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.decode().strip() == "{}.{}".format(*sys.version_info[:2])


def make_environment(repairing):
    free = shutil.disk_usage(str(ROOT)).free
    if free < DISK_NEEDED:
        raise Problem("the disk has {:.1f} GB free and the environment needs about {:.1f} GB: make room and try again."
                      .format(free / 1e9, DISK_NEEDED / 1e9))
    if repairing:
        say("The environment in .venv is incomplete or out of date: making it anew.")
        shutil.rmtree(str(VENV))
    else:
        say("Making the environment in .venv (about a minute and a half, once).")
    VENV.mkdir()
    BEGUN.touch()
    done = subprocess.run([sys.executable, "-m", "venv", str(VENV)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return
    if re.search(r"ensurepip|No module named '?\"?venv", text):
        raise Problem("this Python came without its `venv` module: install it (on Debian and Ubuntu: sudo apt install "
                      "python{}.{}-venv), or use the Python from python.org, and try again.".format(*sys.version_info[:2]))
    raise Problem(explain(text) or "making the environment failed: " + last_line(text))


def install():
    "pip install the package (editable) and everything development needs, in the locked versions."
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
               "-c", str(ROOT / "constraints.txt"), "-e", str(ROOT) + "[dev]"]
    lock = (ROOT / "constraints.txt").read_text()
    progress = Progress(total=len(re.findall(r"^[\w.-]+==", lock, re.M)))
    with open(str(LOG), "w", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, cwd=str(ROOT), env=environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        try:
            for raw in process.stdout:
                line = raw.decode(errors="replace")
                log.write(line)
                progress.read(line)
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            progress.finish()
    if process.returncode:
        text = LOG.read_text(encoding="utf-8", errors="replace")
        raise Problem(explain(text) or "installing failed: {} (all of pip's output: {})".format(last_line(text), LOG))


def explain(text):
    "The line that tells a user what pip's or venv's output `text` means, for the usual causes; None for others."
    causes = [
        (r"No space left on device|Errno 28|not enough space on the disk|Disk quota exceeded",
         "the disk is full: the environment needs about {:.1f} GB. Make room and try again.".format(DISK_NEEDED / 1e9)),
        (r"Name or service not known|name resolution|NameResolutionError|getaddrinfo failed|nodename nor servname|NewConnectionError"
         r"|Connection refused|ConnectTimeout|ReadTimeout|Network is unreachable|ProxyError|SSLError|CERTIFICATE_VERIFY_FAILED"
         r"|Connection (aborted|reset|broken)|Cannot connect to proxy|IncompleteRead|requirement setuptools\S* \(from versions: none\)",
         "the package index cannot be reached: check the network connection (and proxy settings), then try again."),
        (r"Read-only file system|Permission denied|Errno 13|WinError 5\b",
         "no permission to write in {}: clone the project into a folder of your own and try again.".format(ROOT)),
        (r"No matching distribution found for|Could not find a version that satisfies|Requires-Python",
         "a package has no version for Python {}.{} on this system ({}): try Python {}.{}. All of pip's output: {}".format(
             *(sys.version_info[:2] + (first_error(text),) + minimum_python() + (LOG,)))),
    ]
    for pattern, meaning in causes:
        if re.search(pattern, text):
            return meaning
    return None


def first_error(text):
    found = re.search(r"ERROR: (.*)", text)
    return found.group(1).strip() if found else last_line(text)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no message"])[-1]


def quiet_jupyter():
    "In this environment only: JupyterLab does not ask about news, nor look for updates."
    folder = VENV / "share" / "jupyter" / "lab" / "settings"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    (folder / "overrides.json").write_text(json.dumps(settings, indent=2))


def environ(**more):
    "The environment variables that make a program see `.venv` as an activated environment."
    env = dict(os.environ, VIRTUAL_ENV=str(VENV), PYTHONUTF8="1", PYDEVD_DISABLE_FILE_VALIDATION="1", **more)
    env["PATH"] = str(BIN) + os.pathsep + env.get("PATH", "")
    for name in ("PYTHONHOME", "__PYVENV_LAUNCHER__", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV"):
        env.pop(name, None)
    return env


def python(*arguments, **options):
    "Run the environment's Python in the project's folder and return its exit status."
    process = subprocess.Popen([str(PYTHON)] + [str(a) for a in arguments], cwd=str(options.get("cwd", ROOT)),
                               env=environ(**options.get("env", {})))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            pass  # the terminal sent it to the program as well, which ends in its own way


# tutorial ------------------------------------------------------------------------------------------------------


def tutorial(options):
    notebook = chosen_notebook(options.notebook)
    environment()
    folder = ROOT / "nbs" if options.edit else working_copy()
    port = choose_port(options.port)
    token = secrets.token_hex(16)
    address = "http://127.0.0.1:{}".format(port)
    link = "{}/lab/tree/{}?token={}".format(address, notebook or first_chapter(), token)
    trust_notebooks(folder)
    command = [str(PYTHON), "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port={}".format(port),
               "--ServerApp.port_retries=0", "--ServerApp.root_dir={}".format(folder),
               "--NotebookNotary.data_dir={}".format(trust_folder())]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    # A process group of its own: Ctrl+C reaches run.py alone, which then ends the server in an orderly way.
    group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if WINDOWS else {"start_new_session": True}
    with open(str(SERVER_LOG), "wb") as log:
        server = subprocess.Popen(command, env=environ(JUPYTER_TOKEN=token), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **group)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        wait_for_server(server, address)
        if options.no_browser or not open_browser(link):
            say("The tutorial is served at this address:")
            print("  " + link, flush=True)
        else:
            say("The tutorial is open in your browser; should it not be, its address is:")
            print("  " + link, flush=True)
        if not options.edit:
            say("You read copies, in {}: whatever you change or run there stays yours, and the clone as it was.".format(folder), style="2")
        say("Leave this running while you read; Ctrl+C ends it.", style="2")
        return server.wait()
    except KeyboardInterrupt:
        say("\nThe tutorial has ended.")
        return 0
    finally:
        stop(server)


def choose_port(wanted):
    "The port asked for, or else the first free one from 8888 up."
    if wanted is not None and not 0 < wanted < 65536:
        raise Problem("{} is no port: choose a number between 1 and 65535.".format(wanted))
    for port in [wanted] if wanted else range(8888, 8988):
        with socket.socket() as trial:
            try:
                if not WINDOWS:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(("127.0.0.1", port))
                return port
            except OverflowError:
                break
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM):
                    raise Problem("port {} may not be used by ordinary users: choose one above 1023 with --port.".format(port))
    if wanted:
        raise Problem("port {} is taken by another program: choose another one with --port, or leave --port out.".format(wanted))
    raise Problem("the ports 8888 to 8987 are all taken: choose a free one with --port.")


def first_chapter():
    chapters = sorted((ROOT / "nbs" / "book").glob("[!._]*.ipynb"))
    return "book/" + chapters[0].name if chapters else "index.ipynb"


def chosen_notebook(name):
    "The notebook asked for, from nbs/ on; None if none was. It may be named from nbs/, from the clone, or by its file name alone."
    if name is None:
        return None
    nbs = ROOT / "nbs"
    found = [path for path in (nbs / name, ROOT / name, Path(name).resolve()) if path.is_file() and nbs in path.resolve().parents]
    found = found or [path for path in notebook_paths() if Path(name).name in (path.name, path.stem)]
    if not found:
        raise Problem("there is no notebook {} in nbs/: the chapters are in nbs/book.".format(name))
    return found[0].resolve().relative_to(nbs).as_posix()


def working_copy():
    """The folder with the reader's copies of the notebooks, made or brought up to date.

    JupyterLab saves by itself while one reads. A copy that the reader never saved follows the original; one that was
    changed stays as it is, and a line says so when the original has moved on.
    """
    nbs, folder = ROOT / "nbs", ROOT / "my_notebooks"
    record = folder / ".copied.json"
    copied = json.loads(record.read_text()) if record.exists() else {}
    kept = []
    for path in sorted(nbs.rglob("*")):
        if not path.is_file() or any(part.startswith((".", "_")) for part in path.relative_to(nbs).parts):
            continue
        name = path.relative_to(nbs).as_posix()
        original, copy = digest_of(path), folder / name
        here = digest_of(copy) if copy.exists() else None
        if here is None or here == copied.get(name):
            if here != original:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(path), str(copy))
            copied[name] = original
        elif copied.get(name) != original and here != original:
            kept.append(name)
    folder.mkdir(exist_ok=True)
    for name in [n for n in copied if not (nbs / n).exists()]:  # renamed or gone: what the reader never changed goes too
        copy = folder / name
        if copy.exists() and digest_of(copy) == copied[name]:
            copy.unlink()
        del copied[name]
    record.write_text(json.dumps(copied, indent=0, sort_keys=True))
    if kept:
        say("Newer than your copies, which stay as you left them: {}. Delete a copy to read the new text.".format(", ".join(kept)), style="33")
    return folder


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def trust_folder():
    return VENV / "share" / "autograd_nb" / "trust"


def trust_notebooks(folder):
    "Sign the project's notebooks, so that JupyterLab shows their stored pictures before anything is run."
    code = ("import sys, pathlib, nbformat, nbformat.sign\n"
            "notary = nbformat.sign.NotebookNotary(data_dir=sys.argv[1])\n"
            "for path in pathlib.Path(sys.argv[2]).rglob('[!._]*.ipynb'):\n"
            "    try: notary.sign(nbformat.read(path, 4))\n"
            "    except Exception: pass  # JupyterLab will say what is wrong with it\n")
    trust_folder().mkdir(parents=True, exist_ok=True)
    subprocess.run([str(PYTHON), "-c", code, str(trust_folder()), str(folder)], env=environ())


def wait_for_server(server, address, seconds=120):
    for _ in range(seconds * 5):
        if server.poll() is not None:
            raise Problem("JupyterLab could not start: {} (all of its output: {}). `python run.py clean --env` before another try "
                          "makes everything anew.".format(last_line(SERVER_LOG.read_text(errors="replace")), SERVER_LOG))
        try:
            # The server answers "forbidden" to a request without the token; that it answers is what matters.
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address + "/api", timeout=2).close()
            return
        except urllib.request.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise Problem("JupyterLab did not answer at {} within {} seconds.".format(address, seconds))


def open_browser(link):
    "Open `link`; False, with one line that says so, where this machine has no browser."
    import webbrowser

    try:
        if not (os.environ.get("SSH_CONNECTION") and not os.environ.get("DISPLAY")) and webbrowser.open(link):
            return True
    except Exception:
        pass  # whatever went wrong, the address can be opened by hand
    say("No browser could be started here: open the address yourself.", style="33")
    return False


def stop(process, seconds=10):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# test, docs, bench, lint ---------------------------------------------------------------------------------------


def test(options):
    environment()
    arguments = list(options.arguments)
    if not any(a in ("--pdb", "--trace") or a.startswith(("-n", "--numprocesses")) for a in arguments):
        arguments = ["-n", str(min(os.cpu_count() or 1, 8)), "--dist", "loadgroup"] + arguments
    return python("-m", "pytest", *arguments)


def docs(options):
    environment()
    status = python(ROOT / "docs" / "build.py", *options.arguments)
    if status == 0 and not {"--only", "--watch"} & {a.split("=")[0] for a in options.arguments}:
        page = ROOT / "_docs" / "index.html"
        say("The site is in {}".format(page))
        if options.open:
            open_browser(page.as_uri())
    return status


def book(options):
    environment()
    return python(ROOT / "docs" / "book.py", *options.arguments)


def bench(options):
    environment()
    arguments = list(options.arguments)
    scripts = {path.stem: path for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ("workloads", "programs")}
    name = arguments.pop(0) if arguments and arguments[0] in scripts else "run"
    if name not in scripts:
        raise Problem("{} is missing: the clone is incomplete.".format(ROOT / "benchmarks" / "run.py"))
    return python(scripts[name], *arguments)


def lint(options):
    environment()
    return python("-m", "ruff", "check", *(options.arguments or [ROOT]))


# export --------------------------------------------------------------------------------------------------------


def export(options):
    "Write autograd_nb/ and README.md as the notebooks say; with --check only compare."
    environment()
    check_targets()
    with tempfile.TemporaryDirectory(prefix="autograd_nb-export-") as folder:
        fresh = export_copy(Path(folder))
        stale = [p for p in sorted(set(fresh) | set(current_export())) if fresh.get(p) != current_export().get(p)]
    if options.check:
        for path in stale:
            print("  {} {}".format("stale:  " if path in fresh else "orphan: ", path))
        if stale:
            raise Problem("{} not what the notebooks say: run `python run.py export`.".format(
                "1 file is" if len(stale) == 1 else "{} files are".format(len(stale))))
        say("The package and README.md are what the notebooks say.")
        return 0
    for path in stale:
        target = ROOT / path
        if path in fresh:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(fresh[path])
        elif b"AUTOGENERATED! DO NOT EDIT!" in target.read_bytes() or not target.read_bytes().strip():
            target.unlink()
        else:
            raise Problem("{} was written by hand: the package comes from notebooks, so move the file's content into one.".format(path))
        print("  {} {}".format("wrote  " if path in fresh else "removed", path))
    say("Exported." if stale else "Nothing to export: all is as the notebooks say.")
    return 0


def check_targets():
    "Refuse two notebooks that write the same module: the later one would silently win."
    seen = {}
    for path in notebook_paths():
        for cell in read_json(path)["cells"]:
            found = re.match(r"#\| *default_exp +(\S+)", "".join(cell["source"]).lstrip())
            if cell["cell_type"] == "code" and found:
                if found.group(1) in seen:
                    raise Problem("{} and {} both export the module {}: one of them has to name another.".format(
                        seen[found.group(1)], path.relative_to(ROOT), found.group(1)))
                seen[found.group(1)] = path.relative_to(ROOT)


def notebook_paths():
    "The project's notebooks, by nbdev's rule: no name on the way begins with a dot or an underscore."
    paths = (ROOT / "nbs").rglob("*.ipynb")
    return sorted(p for p in paths if not any(part[0] in "._" for part in p.relative_to(ROOT).parts))


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Problem("{} is not a notebook that can be read ({}): repair it, or take it from git again.".format(
            path.relative_to(ROOT), error))


def export_copy(folder):
    "Export into an empty copy, so that nothing old can linger, and return {relative path: content}."
    shutil.copy(str(ROOT / "settings.ini"), str(folder))
    for path in notebook_paths():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(path), str(target))
    helper(["-c", "from nbdev.doclinks import nbdev_export; nbdev_export()"], cwd=folder)
    helper([ROOT / "docs" / "readme.py", folder / "README.md"], cwd=folder)
    return read_tree(folder)


def current_export():
    return read_tree(ROOT)


def read_tree(folder):
    files = sorted((folder / "autograd_nb").rglob("*.py")) + [folder / "README.md"]
    # Git may check text out with other line ends; they are no difference.
    return {p.relative_to(folder).as_posix(): p.read_bytes().replace(b"\r\n", b"\n") for p in files if p.exists()}


def helper(arguments, cwd):
    done = subprocess.run([str(PYTHON)] + [str(a) for a in arguments], cwd=str(cwd), env=environ(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        text = done.stdout.decode(errors="replace")
        print(text, file=sys.stderr)
        raise Problem("exporting failed: " + last_line(text))


# notebooks, hooks, clean ---------------------------------------------------------------------------------------


def notebooks(options):
    environment()
    flags = [flag for flag in ("check", "clean") if getattr(options, flag)]
    return python(ROOT / "docs" / "execute.py", *(["--" + f for f in flags] + [Path(p).resolve() for p in options.paths]))


def hooks(options):
    "Install nbdev's merge driver for notebooks and the commit checks of .pre-commit-config.yaml."
    environment()
    if not (ROOT / ".git").exists():
        raise Problem("this folder is no git clone, so there is nothing to install hooks into.")
    driver = (BIN / ("nbdev_merge.exe" if WINDOWS else "nbdev_merge")).as_posix()
    for key, value in (("merge.nbdev-merge.name", "merge notebooks cell by cell"),
                       ("merge.nbdev-merge.driver", "'{}' %O %A %B %P".format(driver))):
        if subprocess.call(["git", "config", "--local", key, value], cwd=str(ROOT)):
            raise Problem("git could not store its settings: is git installed, and may you write in {}?".format(ROOT / ".git"))
    return python("-m", "pre_commit", "install")


def clean(options):
    check_clone()
    paths = [ROOT / name for name in ("_book", "_docs", "_docs_src", "_proc", ".cache", "build", "dist", "autograd_nb.egg-info", ".pytest_cache",
                                      ".ruff_cache", ".hypothesis")]
    if options.env:
        paths = [VENV] + [p for p in paths if p.suffix != ".egg-info"] + [ROOT / "autograd_nb.egg-info"]
    else:
        paths = [p for p in paths if p.suffix != ".egg-info"]  # the environment's editable installation reads it
    for folder in ("autograd_nb", "tests", "docs", "benchmarks", "nbs"):
        paths += sorted((ROOT / folder).rglob("__pycache__")) + sorted((ROOT / folder).rglob(".ipynb_checkpoints"))
    for path in paths:
        if path.exists():
            shutil.rmtree(str(path))
            print("  removed {}".format(path.relative_to(ROOT)))
    say("Clean.")
    return 0


# The command line ----------------------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(prog="run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="command")

    def command(function, text, passes_on=False):
        sub = commands.add_parser(function.__name__, help=text, description=text, add_help=not passes_on)
        sub.set_defaults(function=function, arguments=[])
        return sub

    sub = command(tutorial, "Open the book in JupyterLab.")
    sub.add_argument("notebook", nargs="?", help="the notebook to open (default: the first chapter)")
    sub.add_argument("--edit", action="store_true", help="open the project's own notebooks, to change the project; otherwise copies in my_notebooks")
    sub.add_argument("--no-browser", action="store_true", help="print the address instead of opening it")
    sub.add_argument("--port", type=int, help="serve at this port (default: the first free one from 8888 up)")
    command(test, "Pass the tests: of exhaustive ones a sample, and with --all everything. All arguments go to pytest.", passes_on=True)
    sub = command(docs, "Build the documentation site in _docs; with --only PAGE one page, in seconds, and with --watch PAGE again whenever it is saved. Further arguments go to docs/build.py.")
    sub.add_argument("--open", action="store_true", help="open it in the browser when it is built")
    command(book, "Make the book printable: an EPUB, and a PDF where Chromium is. All arguments go to docs/book.py.", passes_on=True)
    command(bench, "Measure speed. All arguments go to benchmarks/run.py; a first one such as 'scale' names another script there.", passes_on=True)
    sub = command(export, "Write the package and README.md from the notebooks.")
    sub.add_argument("--check", action="store_true", help="change nothing; fail if something is not fresh")
    sub = command(notebooks, "Run notebooks in place (default: all) and store clean outputs.")
    sub.add_argument("--clean", action="store_true", help="do not run: only remove what should not be stored")
    sub.add_argument("--check", action="store_true", help="do not run and change nothing; fail if something should not be stored")
    sub.add_argument("paths", nargs="*", help="notebooks or folders")
    command(lint, "Check the style of all code with ruff.", passes_on=True)
    command(hooks, "Let git merge notebooks cell by cell and check each commit.")
    sub = command(clean, "Remove what was built.")
    sub.add_argument("--env", action="store_true", help="remove the environment in .venv too")

    # test, book, bench and lint hand every argument on as it is, options included.
    passing = ("test", "book", "bench", "lint")
    options, rest = parser.parse_known_args(arguments[:1] if arguments[:1] and arguments[0] in passing else arguments)
    if options.command is None:
        parser.print_help()
        sys.exit(2)
    if options.command in passing:
        rest = arguments[1:]
    elif rest and options.command != "docs":
        parser.error("unknown argument: " + rest[0])
    options.arguments = rest
    return options


def main(arguments):
    options = parse(arguments)
    try:
        return options.function(options)
    except Problem as problem:
        message = str(problem)
    except KeyboardInterrupt:
        print("\nrun.py: interrupted. Start the same command again to carry on.", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", -1)):
            message = "the disk is full: make room (the environment needs about {:.1f} GB) and try again.".format(DISK_NEEDED / 1e9)
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            message = "no permission to write {}: clone the project into a folder of your own and try again.".format(error.filename or ROOT)
        else:
            message = "{}".format(error)
    sys.stdout.flush()
    print("run.py: " + message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
