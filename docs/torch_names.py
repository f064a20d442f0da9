"""The public names of PyTorch, stored, so that the page 'From PyTorch to here' can say which of them are missing without PyTorch installed.

    python docs/torch_names.py --write     collect them anew (PyTorch must be installed)
"""

import argparse
import importlib
import json
import sys
import types
from pathlib import Path

STORE = Path(__file__).with_suffix(".json")
PLACES = ("torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler", "torch.autograd", "torch.autograd.functional", "torch.autograd.forward_ad",
          "torch.func", "torch.linalg", "torch.fft", "torch.special", "torch.amp", "torch.utils.data", "torch.utils.checkpoint", "torch.distributions", "torch.cuda")


def found(place: str, library: str):
    "The module or class at `place` of the library of that name, or None."
    path = place.split(".")[1:]
    here = importlib.import_module(library)
    for i, name in enumerate(path):
        if not hasattr(here, name):
            try:
                importlib.import_module(".".join([library, *path[: i + 1]]))
            except ImportError:
                return None
        here = getattr(here, name, None)
        if here is None:
            return None
    return here


def counts(home, name: str) -> bool:
    "Whether a name is PyTorch's own and meant for users: neither an import from elsewhere nor a type of its C++ parts."
    thing = getattr(home, name, None)
    if isinstance(thing, types.ModuleType):
        return thing.__name__.startswith("torch.")
    if isinstance(thing, (bool, tuple, list, dict, str, int)) or type(thing).__name__ in ("pybind11_type", "_Classes", "_lru_cache_wrapper"):
        return False
    module = getattr(thing, "__module__", None) or ""
    return module.split(".")[0] in ("torch", "") and not module.startswith(("torch._utils_internal", "torch._jit_internal", "torch.overrides", "torch.types"))


def public(home) -> list[str]:
    "The public names of a module or class."
    names = {n for n in dir(home) if not n.startswith("_")}
    declared = getattr(home, "__all__", None)
    if isinstance(home, types.ModuleType) and declared and home.__name__ != "torch":
        names = {n for n in declared if hasattr(home, n)}
    return sorted(n for n in names if isinstance(home, type) or counts(home, n))


def collected() -> dict:
    "PyTorch's version and, by place, its public names."
    import torch

    return {"torch": torch.__version__, "names": {place: public(found(place, "torch")) for place in PLACES}}


def stored() -> dict:
    return json.loads(STORE.read_text(encoding="utf-8"))


def missing(library: str = "autograd_nb") -> dict[str, list[str]]:
    "By place, the names that the library lacks."
    out = {}
    for place, names in stored()["names"].items():
        here = found(place, library)
        out[place] = [n for n in names if here is None or not hasattr(here, n)]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="collect PyTorch's names")
    if parser.parse_args().write:
        STORE.write_text(json.dumps(collected(), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    sys.path.insert(0, str(STORE.parent.parent))
    for place, names in missing().items():
        print(f"{place}: {len(names)} missing\n  {' '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
