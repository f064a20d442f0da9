"""`torch.hub`: files from an address, here one of a server in this process, and models that a folder builds."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

import autograd_nb as torch
from autograd_nb import hub


class Quiet(SimpleHTTPRequestHandler):
    "Serves a folder, and counts what it is asked for."
    asked = []

    def log_message(self, *args): pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def offered(tmp_path, monkeypatch):
    "A folder whose files have addresses: (folder, function from a name to its address)."
    folder = tmp_path / "offered"
    folder.mkdir()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(Quiet, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, lambda name: f"http://127.0.0.1:{server.server_port}/{name}"
    server.shutdown()
    thread.join()
    server.server_close()


def weights(path):
    torch.manual_seed(0)
    state = torch.nn.Linear(3, 2).state_dict()
    torch.save(state, path, format="pt")
    return state


def test_weights_are_fetched_once(offered, tmp_path, capsys):
    folder, address = offered
    state = weights(folder / "line.pth")
    for _ in range(2):
        found = hub.load_state_dict_from_url(address("line.pth"), progress=False)
        assert all(torch.equal(found[k], v) for k, v in state.items())
    assert Quiet.asked == ["/line.pth"] and capsys.readouterr().err.startswith('Downloading: "http')
    assert (tmp_path / "home" / "hub" / "checkpoints" / "line.pth").exists()
    own = hub.load_state_dict_from_url(address("line.pth"), model_dir=tmp_path / "own", file_name="other.pth", map_location="cpu", progress=False)
    assert torch.equal(own["bias"], state["bias"]) and (tmp_path / "own" / "other.pth").exists()


def test_a_file_that_is_not_what_its_name_says_is_not_kept(offered, tmp_path):
    folder, address = offered
    weights(folder / "plain.pth")
    data = (folder / "plain.pth").read_bytes()
    right = f"line-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    (folder / right).write_bytes(data)
    (folder / "line-00000000.pth").write_bytes(data)
    assert "bias" in hub.load_state_dict_from_url(address(right), check_hash=True, progress=False)
    with pytest.raises(RuntimeError, match=r'^invalid hash value \(expected "00000000", got "'):
        hub.load_state_dict_from_url(address("line-00000000.pth"), check_hash=True, progress=False)
    assert [p.name for p in (tmp_path / "home" / "hub" / "checkpoints").iterdir()] == [right]
    with pytest.raises(OSError, match="404"): hub.download_url_to_file(address("missing"), tmp_path / "missing", progress=False)
    assert not list(tmp_path.glob("missing")) and not list(tmp_path.glob("tmp*"))


def test_the_folder_is_pytorchs(monkeypatch, tmp_path):
    theirs = pytest.importorskip("torch.hub")
    for variables in ({}, {"XDG_CACHE_HOME": str(tmp_path)}, {"TORCH_HOME": str(tmp_path / "torch")}):
        for name in ("TORCH_HOME", "XDG_CACHE_HOME"): monkeypatch.delenv(name, raising=False)
        for name, value in variables.items(): monkeypatch.setenv(name, value)
        assert hub.get_dir() == theirs.get_dir()
    monkeypatch.setattr(hub, "_chosen", None)
    hub.set_dir(tmp_path)
    assert hub.get_dir() == str(tmp_path)


@pytest.mark.parametrize("call", (
    "hub.load(here, 'nothing', source='local')", "hub.load(here, 3, source='local')", "hub.load(here, 'line', source='elsewhere')",
    "hub.load(here, 'line', source='local')(torch.ones(2)).shape", "hub.load(here, 'line', 5, source='local')(torch.ones(5)).shape", "hub.load(needy, 'line', source='local')",
))
def test_models_of_a_folder(call, tmp_path):
    theirs = pytest.importorskip("torch")
    importlib_hub = pytest.importorskip("torch.hub")

    def told(torch, hub):
        here, needy = tmp_path / torch.__name__, tmp_path / f"{torch.__name__}_needy"
        for folder, needs in ((here, "numpy"), (needy, "no_such_package")):
            folder.mkdir(exist_ok=True)
            (folder / "hubconf.py").write_text(
                f"from {torch.__name__} import nn\ndependencies = [{needs!r}]\n_hidden = 3\ndef line(n=2):\n    'A line.'\n    return nn.Linear(n, 1)\n"
            )
        try: return str(eval(call, dict(torch=torch, hub=hub, here=str(here), needy=str(needy))))
        except Exception as error: return f"{type(error).__name__}: {error}"

    assert told(torch, hub) == told(theirs, importlib_hub)


def test_programs_are_not_fetched(tmp_path):
    with pytest.raises(NotImplementedError, match="Clone 'somebody/models' yourself"): hub.load("somebody/models", "line")
    (tmp_path / "hubconf.py").write_text("def b(): 'Two.'\ndef a(): pass\ndef _c(): pass\n")
    assert hub.list(tmp_path, source="local") == ["a", "b"] and hub.help(tmp_path, "b", source="local") == "Two."
