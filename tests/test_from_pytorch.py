"The page 'From PyTorch to here': the stored names are PyTorch's own, and every missing one belongs to an area with a reason."

import importlib.util
from pathlib import Path

import pytest

import autograd_nb

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("torch_names", ROOT / "docs" / "torch_names.py")
torch_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torch_names)


def test_the_store_is_fresh():
    pytorch = pytest.importorskip("torch")
    store = torch_names.stored()
    if pytorch.__version__.split("+")[0] != store["torch"].split("+")[0]:
        pytest.skip(f"the names are stored for {store['torch']}")
    if pytorch.version.cuda:
        pytest.skip("the names are stored for the build without GPUs")
    now = torch_names.collected()["names"]
    late = {"torch": {"numa", "onnx", "testing", "distributed", "utils"}}  # modules that are there once somebody has imported them
    for place, names in store["names"].items():
        assert set(now[place]) ^ set(names) <= late.get(place, set()), "run: python docs/torch_names.py --write"


def test_missing_names_are_those_the_library_lacks():
    missing = torch_names.missing()
    assert "sparse_coo_tensor" in missing["torch"] and "matmul" not in missing["torch"]
    assert missing["torch.autograd"] == [] and missing["torch.nn.init"] == []
    for place, names in missing.items():
        here = torch_names.found(place, "autograd_nb")
        assert all(not hasattr(here, n) for n in names)
    assert autograd_nb.__name__ == "autograd_nb"


def test_every_missing_name_belongs_to_an_area():
    found = torch_names.by_area()
    assert "Other names" not in found, "give them an area in docs/torch_names.py, or add them to the library"
    assert sum(len(names) for _, names in found.values()) == sum(map(len, torch_names.missing().values()))
