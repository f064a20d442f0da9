"""What packages written for PyTorch do besides computing: where they import names from, and what they ask. In processes of their own, since imports leave traces."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import autograd_nb
from autograd_nb.module_paths import ACCEPTED, DENIED, REFUSED, SAME

PRIVATE = {
    "distributions.utils": "_standard_normal _sum_rightmost",
    "distributions.multivariate_normal": "_precision_to_scale_tril",
    "serialization": "DEFAULT_PROTOCOL MAP_LOCATION add_safe_globals get_safe_globals clear_safe_globals safe_globals",
    "optim.optimizer": "ParamsT _use_grad_for_differentiable _default_to_fused_or_foreach _get_value _stack_if_compiling _view_as_real _get_scalar_dtype _to_scalar _disable_dynamo_if_unsupported"
    " _device_dtype_check_for_fused _get_capturable_supported_devices _params_doc _maximize_doc _foreach_doc _fused_doc _capturable_doc _differentiable_doc",
    "utils._pytree": "PyTree Context SUPPORTED_NODES PyTreeSpec FlattenFn _get_node_type _list_flatten _dict_unflatten _namedtuple_flatten_with_keys is_structseq_instance",
    "utils.weak": "WeakIdKeyDictionary WeakTensorKeyDictionary WeakIdRef TensorWeakRef",
    "nn.init": "_no_grad_uniform_ _no_grad_normal_ _no_grad_fill_",
    "library": "triton_op wrap_triton",
    "utils._foreach_utils": "_group_tensors_by_device_and_dtype _has_foreach_support _get_foreach_kernels_supported_devices _get_fused_kernels_supported_devices",
    "jit": "_overload _overload_method TracerWarning",
    "_jit_internal": "_copy_to_script_wrapper",
    "_C": "_log_api_usage_once _get_tracing_state _TensorMeta",
    "cuda": "FloatTensor LongTensor HalfTensor ByteTensor _initialized",
    "cuda.amp": "autocast GradScaler custom_fwd custom_bwd",
    "storage": "TypedStorage UntypedStorage",
    "_tensor": "Tensor",
    "utils.data.sampler": "Sampler BatchSampler SequentialSampler RandomSampler SubsetRandomSampler WeightedRandomSampler",
    "utils.data.dataset": "Dataset IterableDataset Subset TensorDataset ConcatDataset random_split",
    "utils.data.dataloader": "_DatasetKind DataLoader default_collate _BaseDataLoaderIter _SingleProcessDataLoaderIter _MultiProcessingDataLoaderIter",
    "nn.parameter": "UninitializedTensorMixin _ParameterMeta",
    "nn.modules.module": "_EXTRA_STATE_KEY_SUFFIX",
    "utils.data._utils.collate": "np_str_obj_array_pattern",
    "distributions.kl": "_KL_REGISTRY",
    "distributions.transforms": "_clipped_sigmoid",
    "_dynamo.eval_frame": "OptimizedModule is_dynamo_supported",
    "multiprocessing": "ProcessRaisedException ProcessExitedException",
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
    try: theirs = importlib.import_module(f"torch.{path}")
    except ModuleNotFoundError as error:
        assert (path, error.name) == ("utils.tensorboard", "tensorboard")  # which PyTorch asks for
        return
    names = " ".join((REFUSED[path][1], ACCEPTED.get(path, ""), DENIED.get(path, ""))).split()
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
assert torch.__name__ == torch.Tensor.__module__ == "torch" and torch.torch is torch and torch.Future is torch.futures.Future
from functorch import vmap
from torch.fx.experimental.proxy_tensor import get_proxy_mode
assert vmap is torch.vmap or vmap.__module__.startswith("autograd_nb") and get_proxy_mode() is None
assert torch.fx.Node and torch.sparse.mm and torch.ScriptModule is torch.jit.ScriptModule
try: torch.PyTorchFileReader("x")
except NotImplementedError as error: assert "torch.load" in str(error)
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


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", [
    "('cpu')", "(torch.float64)", "(torch.ones(2))", "('cpu', torch.float64, True, memory_format=torch.channels_last)", "(dtype=torch.half)", "('cpu', copy=True)", "('cpu', 'cpu')", "(device=None)",
])  # fmt: skip
def test_modules_with_a_to_of_their_own_ask_what_is_wanted(call):
    import torch

    def attempt(library):
        try:
            return str(eval(f"torch._C._nn._parse_to{call}", {"torch": library}))
        except (RuntimeError, TypeError) as error:
            return str(error).splitlines()[0]

    assert attempt(autograd_nb) == attempt(torch)


@pytest.mark.needs("torch")
def test_packages_derive_from_constraints_and_have_families_of_their_own():
    import torch

    def program(library):
        constraints, Distribution = library.distributions.constraints, library.distributions.Distribution

        class Softplus(type(constraints.positive)):
            def __init__(self):
                super().__init__(lower_bound=0.0)

        class Family: pass

        @library.distributions.register_kl(Family, Distribution)
        def kl(p, q): return "of a family"

        normal = library.distributions.Normal(library.zeros(()), library.ones(()))
        x = library.tensor([-1.0, 2.0])
        made = constraints.interval(lower_bound=0.0, upper_bound=1.0), constraints.greater_than(lower_bound=1.0), Softplus()
        for wrong in ((1.0, 2.0), ()):
            with pytest.raises(TypeError): constraints.greater_than(*wrong)
        return [c.check(x).tolist() for c in made], list(map(repr, made)), library.distributions.kl_divergence(Family(), normal)

    assert program(autograd_nb) == program(torch)


def test_walks_through_a_loader_have_one_base():
    from autograd_nb.utils.data.dataloader import DataLoader, _BaseDataLoaderIter, _SingleProcessDataLoaderIter

    walk = iter(DataLoader([1, 2, 3]))
    assert isinstance(walk, _BaseDataLoaderIter) and isinstance(walk, _SingleProcessDataLoaderIter)


def test_optimisers_around_another_run_hooks():
    class Around(autograd_nb.optim.Optimizer):
        def __init__(self, inner):
            self._patch_step_function()
            self.inner = inner

        param_groups = property(lambda self: self.inner.param_groups)

        def step(self, closure=None): return self.inner.step(closure)

    weight, steps = autograd_nb.ones(2, requires_grad=True), []
    around = Around(autograd_nb.optim.SGD([weight], lr=0.5))
    around.register_step_post_hook(lambda optimizer, args, kwargs: steps.append(1))
    weight.sum().backward()
    around.step()
    assert weight.tolist() == [0.5, 0.5] and steps == [1]


@pytest.mark.parametrize('use', (
    'w + 1', '1 - w', 'w @ x.t()', 'w.sum(0)', 'w.t()', 'w.view(6)', 'w[0]', 'w.exp()', 'w == w', 'w.unsqueeze(0)', 'x + w',
    'w.shape, w.stride(), w.dtype, w.numel()', 'torch.cat([w, w])', 'torch.where(w > 0, w, w)', 'C(torch.ones(2, 3).t()).stride()',
    'torch.Tensor._make_wrapper_subclass(C, (2, 3), dtype=torch.int32).dtype', 'w.numpy()', 'w.split(1)',
))
def test_wrappers_hold_their_numbers_elsewhere(use):
    "A tensor without numbers of its own: its class computes, and what passes it by fails."
    torch = pytest.importorskip('torch')

    def run(torch, tree_map):
        class C(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(
                    cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device)

            def __init__(self, inner): self.inner = inner

            def __repr__(self): return f'C({self.inner})'

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                called.append(str(func))
                bare = lambda v: v.inner if isinstance(v, C) else v
                result = func(*tree_map(bare, args), **tree_map(bare, kwargs or {}))
                return tree_map(lambda v: C(v) if isinstance(v, torch.Tensor) else v, result)

        called, x = [], torch.arange(6.0).reshape(2, 3)
        try: result = repr(eval(use, dict(torch=torch, C=C, x=x, w=C(x))))
        except RuntimeError as error: result = str(error)
        return result.replace('autograd_nb', 'torch'), called

    from autograd_nb.utils._pytree import tree_map
    assert run(autograd_nb, tree_map) == run(torch, torch.utils._pytree.tree_map)


def test_wrappers_never_answer_with_numbers_of_nobody():
    torch = autograd_nb

    class C(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None): raise AssertionError(func)

    w = torch.Tensor._make_wrapper_subclass(C, (1,))
    for read in (w.item, w.tolist, w.numpy, lambda: w.copy_(torch.ones(1))):
        with pytest.raises((RuntimeError, AssertionError)): read()
    with pytest.raises(RuntimeError, match='must define __torch_dispatch__'):
        torch.Tensor._make_wrapper_subclass(type('D', (torch.Tensor,), {}), (1,))


@pytest.mark.parametrize('name', 'zeros empty full arange eye linspace rand randint randperm normal tril_indices scalar_tensor tensor from_numpy manual_seed get_default_dtype'
                         ' zeros_like bernoulli multinomial add cat where'.split())
def test_functions_that_no_class_overrides(name):
    torch = pytest.importorskip('torch')
    overrides = importlib.import_module('autograd_nb.overrides'), importlib.import_module('torch.overrides')
    told, wanted = (getattr(library, name) in o.get_ignored_functions() for library, o in zip((autograd_nb, torch), overrides))
    assert told is wanted
    told, wanted = (getattr(library, name) in o.get_testing_overrides() for library, o in zip((autograd_nb, torch), overrides))
    assert told is wanted


@pytest.mark.parametrize('case', (
    'torch.all(x, 1, out=torch.empty(0, dtype=torch.uint8))', 'torch.any(x, 1, out=torch.empty(0, dtype=torch.uint8))',
    'torch.all(x, 1, out=torch.empty(0))', 'torch.testing.assert_close(x, x + 1, atol=0.01, rtol=0)', 'torch.testing.assert_close(3, 4, atol=0.5, rtol=0)',
    'torch.testing.assert_close(3, 4, atol=0, rtol=0)', 'next(torch.utils._pytree.tree_iter([1, [2]]))', 'torch.add(Refuses(), 1)', 'torch.cat([Refuses()])',
    'torch.exp(torch.ones(2).as_subclass(Refusing))', 'torch.exp in torch.overrides.get_overridable_functions()[torch]',
))
def test_words_and_answers_of_small_tools(case):
    torch = pytest.importorskip('torch')

    def run(torch):
        for name in ('overrides', 'utils._pytree', 'testing'): importlib.import_module(f'{torch.__name__}.{name}')
        refuse = classmethod(lambda cls, *args: NotImplemented)
        kinds = dict(Refuses=type('Refuses', (), dict(__torch_function__=refuse, __module__='m')), Refusing=type('Refusing', (torch.Tensor,), dict(__torch_function__=refuse, __module__='m')))
        try: result = repr(eval(case, dict(torch=torch, x=torch.arange(6.0).reshape(2, 3), **kinds)))
        except (RuntimeError, TypeError, AssertionError) as error: result = f'{type(error).__name__}: {error}'
        return result.replace('autograd_nb', 'torch')

    told, wanted = run(autograd_nb), run(torch).partition('\n\nFor more information')[0]
    assert told == wanted or 'Error: ' in wanted and told.startswith(wanted.rstrip('.'))


def test_the_namespace_of_pytorchs_own_operations_is_not_defined_anew():
    with pytest.raises(RuntimeError, match='Only a single TORCH_LIBRARY'): autograd_nb.library.Library('aten', 'DEF')


@pytest.mark.parametrize('path', (
    'utils.data', 'utils.data.dataset', 'utils.data.sampler', 'autograd.function', 'autograd.functional', 'autograd', 'nn', 'nn.functional', 'nn.modules', 'nn.modules.module', 'nn.init', 'nn.utils',
    'optim', 'optim.lr_scheduler', 'distributions', 'func', 'fft', 'library', 'utils.checkpoint',
))
def test_a_star_brings_what_the_module_has(path):
    torch = pytest.importorskip('torch')
    theirs, own = importlib.import_module(f'{torch.__name__}.{path}'), importlib.import_module(f'autograd_nb.{path}')
    brought = {}
    exec(f'from autograd_nb.{path} import *', brought)
    wanted = getattr(theirs, '__all__', None) or [n for n, f in vars(theirs).items() if n[0] != '_' and str(getattr(f, '__module__', '')).startswith('torch')]
    assert not {n for n in wanted if hasattr(own, n)} - set(brought)


def test_tensors_are_printed_and_compiled_under_the_name_of_torch():
    assert installed('''
import torch
class Mine(torch.Tensor): pass
x = torch.ones(2)
print(x, x.as_subclass(Mine), repr(torch.nn.Parameter(x)).split()[-2:])
@torch.compile(fullgraph=True)
def step(x):
    import torch
    return torch.sin(x) + 1
for _ in range(4): y = step(x)
print(torch.equal(y, x.sin() + 1), "1 kinds of calls are replayed" in torch._dynamo.explain(step))
try: x.add("a")
except TypeError as error: print(str(error).splitlines()[0])
''').splitlines() == ["tensor([1., 1.]) Mine([1., 1.]) ['1.],', 'requires_grad=True)']", "True True", "add(): argument must be Tensor, not str"]


def test_what_a_package_with_compiled_functions_does_on_import():
    "Its library cannot be loaded, and it goes on with what Python offers, as torchvision does."
    assert installed('''
import torch, torch._custom_ops, torch.onnx
from torch.hub import _get_torch_home, load_state_dict_from_url
from torch.utils.model_zoo import load_url, tqdm
from torch.jit.annotations import BroadcastingList2, List
from torch._dynamo.utils import is_compile_supported
from torch.onnx import symbolic_opset11
from torch.onnx.symbolic_helper import parse_args
from torch.nn.common_types import _size_2_t, _ratio_any_t
from torch.functional import einsum
try: torch.ops.load_library("vision.so"); loaded = True
except OSError as error: loaded = False; print(str(error).split(".")[0])
@torch.library.register_fake("vision::nms")
def fake(boxes): return boxes
@parse_args("v", "f")
def symbolic(g, x): return x
torch.onnx.register_custom_op_symbolic("vision::nms", symbolic, 11)
keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
@torch.jit._script_if_tracing
def area(boxes: torch.Tensor, size: BroadcastingList2[int] = (1, 1), node: "torch.fx.node.Target" = None): return boxes.sum()
print(loaded, symbolic(0, 3), keys, area(torch.ones(2)).item(), torch.functional.einsum is einsum is torch.einsum)
print(torch.ones(2).layout == torch.sparse_coo, is_compile_supported("cpu"), torch.fx.node.Target.__name__)
''').splitlines() == [
        "Could not load this library: vision", "False 3 DispatchKeySet(AutocastCPU, AutocastCUDA) 2.0 True", "False None Target",
    ]


def test_a_fake_of_nobodys_operation_is_refused_where_no_library_is_missing():
    assert installed('''
import torch
try: torch.library.register_fake("nobody::knows", print)
except AttributeError as error: print(error)
''') == "'_OpNamespace' 'nobody' object has no attribute 'knows'\n"


@pytest.mark.needs("torch")
def test_dictionaries_whose_keys_die():
    import copy
    import gc

    def told(torch):
        weak = importlib.import_module(f"{torch.__name__}.utils.weak")
        keys = [torch.ones(2) for _ in range(4)]
        d = weak.WeakTensorKeyDictionary({keys[0]: 0, keys[1]: 1})
        d[keys[2]] = [2]
        e, f = d | {keys[3]: 3}, copy.deepcopy(d)
        out = [len(d), len(e), d[keys[1]], d.get(torch.ones(2)), keys[0] in d, 3 in d, [*d.values()], f[keys[2]] is d[keys[2]], d.copy()[keys[2]] is d[keys[2]]]
        del d[keys[1]], keys[0]
        gc.collect()
        r, w = weak.WeakIdRef(keys[0]), weak.TensorWeakRef(keys[1])
        return [*out, len(d), [*d.values()], r() is keys[0], r == weak.WeakIdRef(keys[0]), r == weak.WeakIdRef(keys[1]), w() is keys[1], hash(r) == id(keys[0])]

    import torch

    assert told(autograd_nb) == told(torch)


OPTIMISER = """
import torch
from torch.optim.optimizer import Optimizer, _default_to_fused_or_foreach, _disable_dynamo_if_unsupported, _get_scalar_dtype, _get_value, _stack_if_compiling, _to_scalar, _use_grad_for_differentiable, _view_as_real

@_disable_dynamo_if_unsupported()
def heavy_ball(params, grads, moments, steps, *, lr, momentum, foreach=None):
    if foreach is None: _, foreach = _default_to_fused_or_foreach(params, False)
    _view_as_real(params, grads, moments)
    for p, g, m, k in zip(params, grads, moments, steps):
        k += 1
        m.mul_(momentum).add_(g)
        p.add_(m, alpha=-_get_value(_to_scalar(lr)) / _get_value(k) ** 0.5)

class HeavyBall(Optimizer):
    def __init__(self, params, lr=0.1, momentum=0.9, differentiable=False): super().__init__(params, dict(lr=lr, momentum=momentum, differentiable=differentiable))

    @_use_grad_for_differentiable
    def step(self, closure=None):
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            for p in ps:
                if not self.state[p]: self.state[p].update(step=torch.zeros((), dtype=_get_scalar_dtype()), moment=torch.zeros_like(p))
            states = [self.state[p] for p in ps]
            heavy_ball(ps, [p.grad for p in ps], [s["moment"] for s in states], [s["step"] for s in states], lr=group["lr"], momentum=group["momentum"])
        return torch.is_grad_enabled()

w, z = torch.tensor([1.0, -2.0], requires_grad=True), torch.tensor([1 + 2j], requires_grad=True)
o = HeavyBall([w, z], torch.tensor([0.1]))
for _ in range(3):
    o.zero_grad()
    ((w ** 2).sum() + z.abs().square().sum()).backward()
    o.step()
print([round(v, 5) for v in w.tolist()], [complex(round(v.real, 5), round(v.imag, 5)) for v in z.tolist()], o.state[w]["step"], o.step())
"""


@pytest.mark.needs("torch")
def test_an_optimiser_written_as_pytorchs_are():
    assert installed(OPTIMISER) == python(OPTIMISER)


DTYPES = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 complex32 chalf bit int1 int4 int7 uint1 uint4 uint7 bits1x8 bits8 bits16".split()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_that_no_tensor_has_can_be_named(name):
    import copy

    import torch

    def told(library):
        d = getattr(library, name)
        answers = [repr(d), d.itemsize, d.is_floating_point, d.is_complex, type(d) is library.dtype, copy.deepcopy(d) is d, library.ones(2).dtype == d, {d: 1}.get(d)]
        if "bit" not in name or name == "bit": answers.append(d.is_signed)
        if name == "float8_e5m2fnuz": answers.append(library.finfo(d).max)  # of which PyTorch tells half the distance from 1 to the next number
        elif "float8" in name or d.is_complex: answers += [repr(library.finfo(d)), library.finfo(d).bits]
        try: d.nothing
        except AttributeError as error: answers.append(str(error))
        for limits in (library.finfo, library.iinfo)[d.is_floating_point or d.is_complex:]:
            try: limits(d)
            except TypeError as error: answers.append(str(error).partition(" (")[0])
            except NotImplementedError: answers.append("torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'")
        return answers

    assert told(autograd_nb) == told(torch)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("use", (
    "t.ones(2, dtype=d)", "t.zeros(2).to(d)", "t.zeros(2).type(d)", "t.tensor([1.0], dtype=d)", "t.empty(2, dtype=d)", "t.full((2,), 1.0, dtype=d)", "t.zeros(2).view(d)", "t.zeros(2).sum(dtype=d)", "t.nn.Linear(2, 2).to(d)",
    "t.zeros(2).new_zeros(2, dtype=d)", "t.promote_types(d, t.float32)", "t.can_cast(d, t.float32)", "t.arange(3, dtype=d)", "t.rand(2, dtype=d)", "t.set_default_dtype(d)", "t.empty_like(t.ones(2), dtype=d)", "t.nn.Parameter(t.ones(2, dtype=d))",
))  # fmt: skip
def test_no_tensor_is_made_of_them(name, use):
    with pytest.raises((NotImplementedError, TypeError, RuntimeError), match="numbers of this kind are not offered|floating" if "Linear" in use or "set_default" in use or "rand" in use else "numbers of this kind are not offered"):
        eval(use, dict(t=autograd_nb, d=getattr(autograd_nb, name)))
    assert autograd_nb.get_default_dtype() is autograd_nb.float32


def test_an_index_of_one_number_is_looked_up_under_vmap():
    "Some packages say so with a mode of the compiler, which has nothing to do here."
    assert installed('''
import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
a = torch.arange(6.0).view(2, 3)
with TransformGetItemToIndex(): print(torch.vmap(torch.vmap(lambda i, j: a[i, j], (None, 0)), (0, None))(torch.tensor([0, 1]), torch.tensor([2, 0])).tolist())
''') == "[[2.0, 0.0], [5.0, 3.0]]\n"


@pytest.mark.needs("torch")
def test_placements_are_values():
    "Tables of them are made where a package is imported; only tensors that lie so are refused."
    program = '''
import copy, pickle, torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import Shard as S
plan = {"weight": Shard(0), "bias": Replicate(), "sum": Partial(), "mean": Partial("avg"), "last": Shard(-1)}
for name, p in plan.items(): print(name, repr(p), str(p), p.is_shard(), p.is_shard(0), p.is_replicate(), p.is_partial(), p == copy.deepcopy(p), isinstance(p, Placement), {p: 1}[pickle.loads(pickle.dumps(p))])
print(S is Shard, Shard(0) == Shard(1), Shard(0) == Replicate(), Partial() == Partial("avg"), Shard(3).dim, Partial("max").reduce_op, isinstance(torch.ones(2), DTensor), Partial().is_partial("avg"))
try: Shard(0).dim = 1
except AttributeError: print("frozen")
'''
    assert installed(program) == python(program)
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"): importlib.import_module("autograd_nb.distributed.tensor").distribute_tensor(autograd_nb.ones(2))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", (
    "x.new_ones(size=(2, 3))", "x.new_zeros(size=[2], dtype=t.int8)", "x.new_empty(size=(2, 3)).shape", "x.new_ones(size=())", "x.new_ones()", "x.expand(size=(2, 2))", "x.repeat(repeats=(2, 1))", "x.repeat()",
    "x.tile(dims=(2,))", "t.tile(input=x, dims=(2,))", "x.resize_(size=(2, 1))", "x.broadcast_to(size=(2, 2))", "t.broadcast_to(x, size=(2, 2))", "x.sum_to_size(size=(1, 1))",
    "t._check_with(RuntimeError, False, None)", "t._check_with(ValueError, False, lambda: 3)", "t._check_with(ValueError, t.tensor(True), None)", "t._check_with(KeyError, True, None)", "t._check_with(ValueError, False, 'a')",
    "t._check_tensor_all(t.tensor([True, False]))", "t._check_tensor_all(t.tensor([True]))", "t._check_tensor_all(t.ones(1))", "t._check_tensor_all_with(ValueError, t.tensor([False]), lambda: 'x')", "t._check_tensor_all(True)",
    "dynamo.mark_static_address(x)", "dynamo.mark_static_address(3)",
))  # fmt: skip
def test_sizes_by_name_and_demands(call):
    import torch

    def told(library):
        names = dict(t=library, x=library.ones(1, 2), dynamo=importlib.import_module(f"{library.__name__}._dynamo"))
        try: return repr(eval(call, names)).replace("Tensor(", "tensor(")
        except Exception as error: return type(error).__name__, str(error).replace(": lambda: 'what is wrong'", "")

    assert told(autograd_nb) == told(torch)


def test_parts_of_the_compiler_are_there_without_an_import_of_their_own():
    assert installed('''
import torch, torch._dynamo
print(torch._dynamo.eval_frame.OptimizedModule is torch._dynamo.OptimizedModule, hasattr(torch._dynamo, "nothing"), torch._dynamo.exc.Unsupported.__name__)
''') == "True False Unsupported\n"


@pytest.mark.needs("torch")
def test_an_optimiser_around_another_that_never_called_its_base():
    program = '''
import torch
class Around(torch.optim.Optimizer):
    def __init__(self, optimizer): self.optimizer = optimizer
    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)
    def step(self, closure=None): return self.optimizer.step(closure)
    def zero_grad(self, set_to_none=True): self.optimizer.zero_grad(set_to_none)
    def state_dict(self): return self.optimizer.state_dict()
w = torch.tensor([1.0, 2.0], requires_grad=True)
around, called = Around(torch.optim.SGD([w], lr=0.1, momentum=0.9)), []
around.optimizer.register_step_post_hook(lambda *given: called.append("own"))
from torch.optim.optimizer import register_optimizer_step_pre_hook
register_optimizer_step_pre_hook(lambda o, *given: called.append(type(o).__name__))
schedule = torch.optim.lr_scheduler.StepLR(around, 2, 0.5)
for _ in range(4): around.zero_grad(); w.square().sum().backward(); around.step(); schedule.step()
print([round(v, 5) for v in w.tolist()], called, around.param_groups[0]["lr"], schedule.get_last_lr())
try: around.register_step_pre_hook(print)
except Exception: print("none to register with")
'''
    assert installed(program) == python(program)


@pytest.mark.needs("torch")
def test_private_tools_of_minimisers_and_of_many_processes():
    import torch

    def told(library):
        find = lambda path: importlib.import_module(f"{library.__name__}.{path}")
        lbfgs, functional, utils, dataloader = find("optim.lbfgs"), find("autograd.functional"), find("_utils"), find("utils.data.dataloader")
        target = library.tensor([1.0, -2.0, 0.5])

        def evaluate(x, t, d):
            at = (x + t * d).requires_grad_()
            value = ((at - target) ** 4).sum() + at.pow(2).sum()
            return float(value.detach()), library.autograd.grad(value, at)[0]

        x = library.tensor([3.0, 0.0, 1.0])
        f, g = evaluate(x, 0, x)
        found = lbfgs._strong_wolfe(evaluate, x, 1.0, -g, f, g, -g.dot(g))
        numbers = [*map(float, (found[0], found[2], found[3])), *found[1].tolist()]
        three = [library.tensor(v) for v in (0.5, 2.0, -1.0, 1.5, 1.0, 0.5)]
        numbers += [float(lbfgs._cubic_interpolate(*three)), float(lbfgs._cubic_interpolate(*three, bounds=(0.6, 0.8)))]
        inner = (target.clone().requires_grad_() * 2,)
        kept = [functional._grad_postprocess((inner, inner), create)[0][0].requires_grad for create in (False, True)]
        nested = [len(functional._tuple_postprocess((inner * 2, inner * 2), both)) for both in ((True, True), (True, False), (False, True), (False, False))]
        flat = utils._flatten_dense_tensors([target, x.view(3, 1)])
        parts = [p.tolist() for p in utils._unflatten_dense_tensors(flat, [target, x.view(3, 1)])]
        kinds = [dataloader.DataLoader(data)._dataset_kind for data in ([1, 2], type("Walk", (find("utils.data").IterableDataset,), dict(__iter__=lambda self: iter(())))())]
        return [f"{v:.4f}" for v in numbers], kept, nested, flat.tolist(), parts, kinds

    assert told(autograd_nb) == told(torch)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", [float, int, complex, bool, str, 3])
def test_limits_of_pythons_types(kind):
    import torch

    def told(library):
        answers = []
        for limits in (library.finfo, library.iinfo):
            try: answers.append(repr(limits(kind)).partition("min=")[0])
            except TypeError as error: answers.append(str(error).partition(" (")[0])
        return answers

    assert told(autograd_nb) == told(torch)


@pytest.mark.needs("torch")
def test_a_module_tells_the_types_of_its_attributes():
    import typing

    import torch

    def told(library):
        hints = library.nn.Module().__annotations__
        typing.get_type_hints(library.nn.CrossEntropyLoss(), globalns=vars(library.nn), localns={})
        Own = type("Own", (library.nn.Module,), dict(__annotations__=dict(width=int)))
        return {name: hints.get(name) for name in ("training", "call_super_init", "dump_patches")}, Own().__annotations__["width"], isinstance(library.DeviceObjType, type)

    assert told(autograd_nb) == told(torch)


@pytest.mark.needs("torch")
def test_a_storage_of_a_file_counts_bytes_by_name(tmp_path):
    import torch

    (tmp_path / "a").write_bytes(bytes(range(12)))
    told = lambda library: [list(library.UntypedStorage.from_file(str(tmp_path / "a"), *given, **named)) for given, named in (((), dict(shared=False, nbytes=10)), ((False,), dict(nbytes=3)), ((False, 12), {}))]
    for library in (autograd_nb, torch):
        storage = library.UntypedStorage.from_file(str(tmp_path / "a"), nbytes=12)
        assert storage.untyped() is storage
        assert library.asarray(storage[4:12], dtype=library.uint8).view(library.int16).tolist() == [1284, 1798, 2312, 2826]  # as readers of safetensors do
    assert told(autograd_nb) == told(torch)


@pytest.mark.needs("torch")
def test_a_walk_for_a_loader_of_ones_own():
    "Some packages have data loaders of their own, and lend them PyTorch's walks."
    program = '''
import torch
from itertools import count
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter
class Lent:
    _IterableDataset_len_called, _auto_collation, drop_last, in_order, timeout, num_workers = None, False, False, True, 0, 0
    _index_sampler, generator, prefetch_factor, pin_memory, pin_memory_device, persistent_workers = count(), None, 2, False, "", False
    _dataset_kind, multiprocessing_context, worker_init_fn = _DatasetKind.Iterable, None, None
    def collate_fn(self, x): return x * 2
    def _get_shared_seed(self): return None
    def __init__(self): self.dataset = self
    def __iter__(self): return iter(torch.arange(6.0).split(2))
walk = _SingleProcessDataLoaderIter(Lent())
print([b.tolist() for b in walk], issubclass(torch.cuda.Stream, torch.Stream) or isinstance(torch.Stream, type), isinstance(torch.Event, type))
def later(x, stream: torch.Stream | None = None, event: "torch.Event" = None): return x
'''
    assert installed(program) == python(program)


@pytest.mark.needs("torch")
def test_what_a_compiler_tells_of_a_call():
    import torch

    def told(library):
        explain, nn = importlib.import_module(f"{library.__name__}._dynamo").explain, library.nn
        layer, x = nn.Linear(3, 2), library.ones(4, 3)
        return [(found.graph_count, found.graph_break_count, len(found.break_reasons)) for found in (explain(lambda x: (x * 2).sin().sum())(x), explain(layer)(x), explain(lambda x, n: x + n)(x, n=2))]

    assert told(autograd_nb) == told(torch)
    explain = importlib.import_module("autograd_nb._dynamo").explain
    found = explain(lambda x: print(x.item()) or x)(autograd_nb.ones(()))
    assert found.graph_break_count == 1 and found.break_reasons[0] in found and explain(max) == "it is not compiled"


WRAPPED = '''
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, CheckpointWrapper, apply_activation_checkpointing, checkpoint_wrapper, offload_wrapper
torch.manual_seed(0)
class Block(nn.Module):
    width = 3
    def __init__(self): super().__init__(); self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh()); self.shared = shared; self.calls = 0
    def forward(self, x, scale=1.0): self.calls += 1; return self.shared(self.inner(x)) * scale
shared = nn.Linear(3, 3)
for impl in CheckpointImpl:
    for wrap in (lambda m: checkpoint_wrapper(m, impl), offload_wrapper):
        plain, x = nn.Sequential(Block(), Block()), torch.ones(2, 3, requires_grad=True)
        state = {k: v.clone() for k, v in plain.state_dict().items()}
        apply_activation_checkpointing(plain, wrap, lambda m: isinstance(m, Block))
        out = plain[1](plain[0](x, scale=2.0), scale=x.sum())
        out.square().sum().backward()
        print(impl, type(plain[0]).__name__, [*plain.state_dict()] == [*state], [n for n, _ in plain.named_parameters()], plain[0].width, plain[0].calls, plain[1].calls, [f"{v:.4f}" for v in x.grad.flatten().tolist()])
        print(plain.load_state_dict(state), isinstance(plain[0], CheckpointWrapper), plain)
        x.grad = None
whole = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
apply_activation_checkpointing(whole)
print(whole, whole[1][1].weight.shape)
'''


@pytest.mark.needs("torch")
def test_wrappers_that_compute_again_keep_names():
    assert installed(WRAPPED) == python(WRAPPED)
