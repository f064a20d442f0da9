"""What packages written for PyTorch do besides computing: where they import names from, and what they ask. In processes of their own, since imports leave traces."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import autograd_nb
from autograd_nb.module_paths import ACCEPTED, REFUSED, SAME

PRIVATE = {
    "distributions.utils": "_standard_normal _sum_rightmost",
    "distributions.multivariate_normal": "_precision_to_scale_tril",
    "serialization": "MAP_LOCATION add_safe_globals get_safe_globals clear_safe_globals safe_globals",
    "optim.optimizer": "ParamsT",
    "utils._pytree": "PyTree Context",
    "utils._foreach_utils": "_group_tensors_by_device_and_dtype _has_foreach_support _get_foreach_kernels_supported_devices _get_fused_kernels_supported_devices",
    "jit": "_overload _overload_method TracerWarning",
    "_jit_internal": "_copy_to_script_wrapper",
    "_C": "_log_api_usage_once _get_tracing_state",
    "cuda": "FloatTensor LongTensor HalfTensor ByteTensor _initialized",
    "cuda.amp": "autocast GradScaler custom_fwd custom_bwd",
    "storage": "TypedStorage UntypedStorage",
    "_tensor": "Tensor",
    "utils.data.sampler": "Sampler BatchSampler SequentialSampler RandomSampler SubsetRandomSampler WeightedRandomSampler",
    "utils.data.dataset": "Dataset IterableDataset Subset TensorDataset ConcatDataset random_split",
    "utils.data.dataloader": "DataLoader default_collate",
    "utils.data.distributed": "DistributedSampler",
    "distributed.constants": "default_pg_timeout",
}


def python(program, **environment):
    "What a program prints in a process of its own."
    path = os.pathsep.join(filter(None, (str(Path(autograd_nb.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | dict(PYTHONPATH=path) | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(program): return python("from autograd_nb.module_paths import install_as_torch\ninstall_as_torch()\n" + program)


def test_every_path_of_the_tables_can_be_imported():
    python("\n".join(f"import autograd_nb.{path}" for path in (*SAME, *REFUSED)))
    installed("\n".join(f"import torch.{path}" for path in (*SAME, *REFUSED)))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("path", REFUSED)
def test_stand_ins_have_names_of_pytorch(path):
    theirs = importlib.import_module(f"torch.{path}")
    names = (REFUSED[path][1] + " " + ACCEPTED.get(path, "")).split()
    assert [name for name in names if not hasattr(theirs, name)] == []


@pytest.mark.needs("torch")
@pytest.mark.parametrize("path", PRIVATE)
def test_names_that_packages_import(path):
    theirs, ours = (importlib.import_module(f"{library}.{path}") for library in ("torch", "autograd_nb"))
    for name in PRIVATE[path].split():
        assert hasattr(theirs, name) and hasattr(ours, name), name


def test_a_stand_in_refuses_at_use_only():
    assert installed('''
import torch
from torch.fx import GraphModule, Tracer, symbolic_trace, wrap

@wrap
def double(x: GraphModule): return 2 * x

class Mine(Tracer): pass

assert double(2) == 4 and not isinstance(double, GraphModule)
for use in (lambda: symbolic_trace(double), Mine, lambda: GraphModule.forward, lambda: torch.fx.subgraph):
    try: use()
    except NotImplementedError as error: print("torch.compile" in str(error))
try: from torch.fx import nothing
except ImportError: print("no such name")
''').split("\n") == ["True"] * 4 + ["no such name", ""]


def test_packages_that_import_torch_find_this_library():
    assert installed('''
import torch, torch.nn as nn, torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
import torch.backends.cudnn as cudnn
import autograd_nb
assert torch is autograd_nb and nn is autograd_nb.nn and F is nn.functional and not cudnn.is_available()
install_as_torch()                          # a second time changes nothing
try: import torch.no_such_module
except ModuleNotFoundError: print(torch.__version__)
''').startswith("2.13.0+autograd.nb.")


def test_pytorch_that_was_imported_stays():
    assert "imported already" in python('''
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
from autograd_nb.module_paths import install_as_torch
try: install_as_torch()
except RuntimeError as error: print(error)
''')


@pytest.mark.needs("torch")
def test_tensors_in_groups():
    import torch

    def grouped(library):
        group = importlib.import_module(f"{library.__name__}.utils._foreach_utils")._group_tensors_by_device_and_dtype
        a, b = library.ones(2), library.zeros(3, dtype=library.float64)
        return {(str(device), str(dtype)): ([[t.tolist() for t in ts] for ts in lists], indices) for (device, dtype), (lists, indices) in group([[a, b, a], [b, a, b], []], with_indices=True).items()}

    assert grouped(autograd_nb) == grouped(torch)


def test_allowed_classes_are_kept():
    from autograd_nb import serialization

    with serialization.safe_globals([dict]):
        serialization.add_safe_globals([set])
        assert serialization.get_safe_globals() == [dict, set]
    assert serialization.get_safe_globals() == []


@pytest.mark.parametrize("name", "Float Double Half BFloat16 Long Int Short Char Byte Bool".split())
def test_old_types_of_gpu_tensors(name):
    kind, x = getattr(autograd_nb.cuda, f"{name}Tensor"), autograd_nb.ones(2)
    assert not isinstance(x.to(kind.dtype), kind)
    assert isinstance(x.to(kind.dtype), getattr(autograd_nb, f"{name}Tensor"))
    if not autograd_nb.cuda.is_available():
        for use in (lambda: kind([1]), lambda: x.type(kind)):
            with pytest.raises((RuntimeError, AssertionError), match="CUDA"): use()
