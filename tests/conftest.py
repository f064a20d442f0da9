"""What tests share: the things a machine may lack, a browser, the built site, and notebooks served live."""

import gc
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import _changed
import _sampling
import pytest
from _pace import worked
from filelock import FileLock
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# It only checks addresses in JSON schemas, which notebooks have none of, and takes two seconds to import.
sys.modules.setdefault("rfc3987_syntax", None)

# Workers of pytest-xdist share the cores: threads of the BLAS that wait for each other by spinning would hold all of them up.
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# The same examples on every machine, however slow it is at the moment.
hypothesis_settings.register_profile("suite", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                      "--disable-component-update", "--disable-sync")


# What a machine may lack ---------------------------------------------------------------------------------------


@cache
def chromium() -> str | None:
    "The path of a Chromium or a relative of it; AUTOGRAD_NB_CHROMIUM may name one."
    named = os.environ.get("AUTOGRAD_NB_CHROMIUM")
    places = ["/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium",
              r"C:\Program Files\Google\Chrome\Application\chrome.exe", r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe"]
    found = [named] if named else [shutil.which(name) for name in CHROMIUM_NAMES] + places
    return next((path for path in found if path and os.path.exists(path)), None)


@cache
def nvrtc() -> Path | None:
    "NVIDIA's runtime compiler, from its Python package."
    found = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in found.submodule_search_locations] if found else []
    return next((path for place in places for pattern in ("cuda_nvrtc/lib/libnvrtc.so.*", "cu1*/lib/libnvrtc.so.*") for path in sorted(place.glob(pattern)) if ".alt." not in path.name), None)


FAULTS = pytest.StashKey[list]()
LEFT_OUT = pytest.StashKey[dict]()
CHANGED = pytest.StashKey[dict]()
BEGUN = pytest.StashKey[tuple]()  # when a test began, in seconds of processor time and of the clock
CHOSE = pytest.StashKey[bool]()  # whether the command line chooses tests, by naming files or tests, with -k or with -m

# name -> (is it here?, what is then left out, the remedy)
def mpiexec():
    beside = Path(sys.executable).parent / "mpiexec"
    return beside if beside.exists() else shutil.which("mpiexec")


NEEDS = {
    "torch": (lambda: importlib.util.find_spec("torch"), "comparison with PyTorch", "pip install torch==2.13.0 in the environment"),
    "browser": (lambda: chromium() and importlib.util.find_spec("playwright"), "tests in a browser", "install Chromium"),
    "dot": (lambda: shutil.which("dot"), "tests of the `dot` program", "install Graphviz"),
    "nvrtc": (lambda: nvrtc() and importlib.util.find_spec("cupy"), "kernels for the GPU compiled by NVIDIA's compiler", "pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12"),
    "mpi": (lambda: importlib.util.find_spec("mpi4py") and mpiexec(), "programs in several processes", "pip install mpich mpi4py"),
    "npm": (lambda: shutil.which("npm"), "a site that needs no network", "install Node.js"),
}


def here(need: str) -> bool:
    return bool(NEEDS[need][0]())


def needs_of(item) -> set[str]:
    "What a test says it needs."
    names = {name for mark in item.iter_markers("needs") for name in mark.args}
    if "browser_page" in getattr(item, "fixturenames", ()):
        names.add("browser")
    return names


def required() -> set[str]:
    "The needs that have to be met, from AUTOGRAD_NB_REQUIRE."
    names = {name.strip() for name in os.environ.get("AUTOGRAD_NB_REQUIRE", "").split(",")} - {""}
    known = {*NEEDS, "notebooks"}
    if names - known:
        raise pytest.UsageError(f"AUTOGRAD_NB_REQUIRE knows {', '.join(sorted(known))}, not {', '.join(sorted(names - known))}")
    return names


def pytest_addoption(parser):
    group = parser.getgroup("autograd_nb")
    group.addoption("--all", "--slow", action="store_true", dest="all", help="leave nothing out: all cases of every matrix, and the slow tests")
    group.addoption("--sample", type=int, metavar="SEED", help="the seed that chooses the sample of a run without --all (default: another one each time)")
    group.addoption("--note-durations", action="store_true", help="keep how long each test took in tests/durations.json, from which samples are chosen")
    group.addoption("--random-order", type=int, metavar="SEED", help="run the files, and the tests in each, in an order drawn with this seed")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(name): skip where torch, browser, dot, nvrtc, mpi or npm is missing")
    required()
    given = getattr(config, "workerinput", {})  # a worker of pytest-xdist takes the sample that all take
    if config.option.sample is None:
        config.option.sample = given.get("sample", random.SystemRandom().randrange(10**6))
    config.stash[CHOSE] = bool(config.option.keyword or config.option.markexpr or all(".py" in arg for arg in config.args))
    sampled = not (config.option.all or config.stash[CHOSE])
    config.stash[CHANGED] = given["changed"] if "changed" in given else _changed.changes(ROOT) if sampled else {}
    if not given:
        config.pluginmanager.register(Durations(config), "durations")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["sample"] = node.config.option.sample
    node.workerinput["changed"] = node.config.stash[CHANGED]


def pytest_report_header(config):
    missing = [f"{left_out} ({need} is missing: {remedy})" for need, (_, left_out, remedy) in NEEDS.items() if not here(need)]
    lines = ["left out: " + "; ".join(missing)] if missing else []
    if config.option.random_order is not None:
        lines.append(f"order: --random-order {config.option.random_order}")
    if not config.option.all:
        changed = len(config.stash[CHANGED])
        first = f", first what concerns {changed} changed file{'s' * (changed > 1)}" if changed else ""
        what = "slow tests are left out" if config.stash[CHOSE] else f"a sample, --sample {config.option.sample}{first}"
        lines.append(f"tests: {what}; --all leaves out nothing")
    return lines


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        names = needs_of(item)
        for name in sorted(names):
            if name not in NEEDS:
                raise pytest.UsageError(f"{item.nodeid} needs {name!r}, but only {', '.join(NEEDS)} are known")
            if not here(name) and name not in required():
                item.add_marker(pytest.mark.skip(reason=f"{name} is missing: {NEEDS[name][2]}"))
    if not config.option.all:
        leave_out(config, items)
    if config.option.random_order is not None:
        items[:] = _sampling.shuffled(items, config.option.random_order)
    # What takes minutes comes first: begun last, it would leave the other workers without work.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def leave_out(config, items):
    "Of a run without --all: slow tests, and what the sample does not take of matrices. Nothing that AUTOGRAD_NB_REQUIRE asks for."
    named = tuple(arg for arg in config.args if "::" in arg)

    def stays(item):
        return needs_of(item) & required() or item.nodeid.startswith(named)

    slow = {item.nodeid for item in items if item.get_closest_marker("slow") and not stays(item) and "slow" not in config.option.markexpr}
    site = set() if config.stash[CHOSE] or site_is_built() else {item.nodeid for item in items if of_the_site(item) and not stays(item)} - slow
    quick = [item for item in items if item.nodeid not in slow | site]
    if config.stash[CHOSE]:
        sample = {item.nodeid for item in quick}
    else:
        sample = _sampling.chosen(quick, config.option.sample, _sampling.BUDGET, concerned=_changed.Concerns(config.stash[CHANGED], ROOT))
    kept = [item for item in quick if item.nodeid in sample or stays(item)]
    config.stash[LEFT_OUT] = {"slow": len(slow), "site": len(site), "cases": len(quick) - len(kept)}
    if len(kept) < len(items):
        staying = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in staying])
        items[:] = kept


def of_the_site(item) -> bool:
    return "built_site" in getattr(item, "fixturenames", ())


@cache
def site_is_built() -> bool:
    "Whether the site in _docs is what it would be if it were built now."
    if not (ROOT / "_docs" / ".fingerprint").exists():
        return False
    sys.path.insert(0, str(ROOT / "docs"))
    import build

    return build.is_fresh()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    "A worker of pytest-xdist has ended: what it left out is what the run left out."
    node.config.stash.setdefault(LEFT_OUT, getattr(node, "workeroutput", {}).get("left out", {}))


# How long tests take ---------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[BEGUN] = worked(), time.monotonic()


class Durations:
    "Takes from the reports of all workers how long their tests took, and keeps it when the run ends."

    def __init__(self, config):
        self.config, self.seconds, self.passed = config, {}, set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        for name, seconds in report.user_properties:
            if name == "seconds" and report.when == "teardown" and report.nodeid in self.passed:
                self.seconds.setdefault(_sampling.test_of(report), []).append(seconds)

    def pytest_sessionfinish(self):
        if self.config.option.note_durations:
            _sampling.note(self.seconds, keep=self.config.stash[CHOSE] or not self.config.option.all)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Under AUTOGRAD_NB_REQUIRE no test may skip itself because a required thing is missing, and no browser test at all.

    Other skips stand: a test that has PyTorch may find that PyTorch does not know some case.
    """
    if call.when == "teardown":
        # Browsers and servers are waited for when the run ends; until then only the clock knows of them.
        took, passed = (now - then for now, then in zip((worked(), time.monotonic()), item.stash[BEGUN]))
        item.user_properties.append(("seconds", passed if "browser" in needs_of(item) or of_the_site(item) else took))
    report = yield
    names = needs_of(item)
    faults = {name for name in names & required() if name == "browser" or not here(name)}
    if report.skipped and not hasattr(report, "wasxfail") and faults:
        report.outcome = "failed"
        report.longrepr = f"skipped although {', '.join(sorted(faults))} is required: {report.longrepr}"
    return report


def pytest_sessionfinish(session):
    "Under AUTOGRAD_NB_REQUIRE fail when whole kinds of tests did not take place: counted in what ran, not believed."
    if hasattr(session.config, "workerinput"):  # a worker of pytest-xdist; the main process counts
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, {})
        return
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    ran = [report.nodeid for kind in ("passed", "failed") for report in stats.get(kind, ())]
    faults = []
    if "notebooks" in required():
        there = len([p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts])
        run = len({node for node in ran if "test_notebook_runs[" in node})
        if run != there or not there:
            faults.append(f"{run} of {there} notebooks were run")
    if "browser" in required():
        faults += [f"no test of {name} was run" for name in ("test_site.py", "test_lab.py") if not any(name in node for node in ran)]
    if faults:
        session.config.stash[FAULTS] = faults
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    left_out = config.stash.get(LEFT_OUT, {})
    what = {"cases": f"tests and cases that sample {config.option.sample} did not take", "slow": "slow tests", "site": "tests of the site, which is not built"}
    parts = [f"{left_out[kind]:,} {words}" for kind, words in what.items() if left_out.get(kind)]
    if parts:
        terminalreporter.write_line(f"left out: {', '.join(parts)}; --all runs them")
        if not terminalreporter.stats.get("deselected"):  # counted in pytest's last line; workers of pytest-xdist do not say it
            terminalreporter.stats["deselected"] = [SimpleNamespace()] * sum(left_out.values())
    for fault in config.stash.get(FAULTS, ()):
        terminalreporter.write_line(f"REQUIRED: {fault}", red=True)


# What one test leaves to the next --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def checked_distributions():
    "PyTorch's distributions check their arguments, as they do until its compiler has run once in the process."
    if "torch.distributions" in sys.modules:
        sys.modules["torch.distributions"].Distribution.set_default_validate_args(True)


# Memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_heap():
    """The tests of a file that ask the garbage collector who holds what see only what they made themselves.

    What hundreds of other tests left in the process is neither looked through, which takes minutes there, nor freed in the middle of a measurement.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def nothing_is_compiled():
    "Loops that earlier tests asked for are there: compiling them in the background takes memory, which is counted with everybody's."
    from autograd_nb.ops.kernels.compiler import workshop

    workshop.wait(120)


# A browser -----------------------------------------------------------------------------------------------------


class Page:
    """A browser page that remembers what went wrong on it.

    `page` is Playwright's page; `errors` holds console errors, uncaught exceptions and failed requests.
    """

    def __init__(self, context):
        self.page = context.new_page()
        self.errors = []
        self.requests = []
        self.page.on("console", self.note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("requestfailed", self.fail)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def fail(self, request):
        if request.failure != "net::ERR_ABORTED":  # the page was left while this was on its way
            self.errors.append(f"failed: {request.url}")

    def note(self, message):
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def __getattr__(self, name):
        return getattr(self.page, name)


@pytest.fixture(scope="session")
def browser():
    "Chromium, started once."
    from playwright.sync_api import sync_playwright

    assert chromium(), "no Chromium found"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def browser_page(browser):
    "A fresh `Page`, 1280 pixels wide, light."
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, color_scheme="light")
    context.set_default_timeout(60_000)
    yield Page(context)
    context.close()


# Servers -------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


def wait_until_served(url: str, process: subprocess.Popen, log: Path, seconds: float = 90):
    "Return when `url` answers; fail with the server's log when the process ends or time is up."
    end = time.time() + seconds
    while time.time() < end and process.poll() is None:
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer:\n{log.read_text(errors='replace')[-3000:]}")


class Server:
    "A program that serves at `url` as long as the `with` block lasts."

    def __init__(self, command: list[str], url: str, log: Path, ready: str = "", cwd: Path = ROOT, env: dict | None = None):
        self.command, self.url, self.log, self.ready, self.cwd, self.env = command, url, log, ready, cwd, env or {}

    def __enter__(self):
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self.command, cwd=self.cwd, env=dict(os.environ, **self.env), stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_served(self.url + self.ready, self.process, self.log)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def built_site() -> Path:
    "The folder of the documentation site: as it is, or built now (only what changed since the last time)."
    (ROOT / ".cache").mkdir(exist_ok=True)
    with FileLock(ROOT / ".cache" / "site.lock"):  # several workers may ask at once: one builds
        site_is_built.cache_clear()
        if not site_is_built():
            done = subprocess.run([sys.executable, str(ROOT / "docs" / "build.py"), "--strict"], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "_docs"


@pytest.fixture(scope="session")
def site(built_site, tmp_path_factory) -> str:
    "The address of the built site, served without a kernel anywhere."
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(built_site)]
    with Server(command, url, tmp_path_factory.mktemp("site") / "log"):
        yield url


@pytest.fixture
def voila(tmp_path):
    """Serve a notebook live: `url = voila("widgets/01_stepper.ipynb")`, a path below nbs/ or a full one.

    Voilà runs the notebook in a kernel of its own for each visit.
    """
    servers = []

    def serve(notebook: str | Path) -> str:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "voila", "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1", str(ROOT / "nbs" / notebook)]
        folders = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
        server = Server(command, url, tmp_path / f"voila-{port}.log", ready="/voila/static/voila.js", env=folders)
        servers.append(server.__enter__())
        return url

    yield serve
    for server in servers:
        server.__exit__()


@pytest.fixture
def lab(tmp_path):
    "The address of a JupyterLab over a copy of nbs/, with settings of its own and no token."
    shutil.copytree(ROOT / "nbs", tmp_path / "nbs", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1",
               "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True", "--LabApp.expose_app_in_browser=True",
               "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None",
               f"--ServerApp.root_dir={tmp_path / 'nbs'}"]
    folders = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
                                                       "JUPYTERLAB_WORKSPACES_DIR")}
    with Server(command, url, tmp_path / "lab.log", ready="/api/status", env=folders):
        yield url
