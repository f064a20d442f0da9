"""The examples in the docstrings of the PyTorch that is installed, statement by statement in both libraries: what is computed, said, printed and refused.

They are read from PyTorch when the test runs, a sample of them each time (`AUTOGRAD_NB_EXHAUSTIVE=1`: all, in some minutes).
"""

import ast
import contextlib
import importlib
import io
import random
import re
import signal
import types
import warnings

import numpy as np
import pytest
from _compare import every_warning
from _sampled import some
from test_stranger_programs import plain, same

import autograd_nb
import autograd_nb.refused

pytestmark = [pytest.mark.needs("torch"), pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="examples that hang are ended by a timer")]
HOMES = """nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize nn.utils.parametrizations nn.utils.prune nn.utils.stateless optim optim.lr_scheduler
optim.swa_utils distributions autograd autograd.functional autograd.forward_ad autograd.graph func linalg fft special signal.windows random masked testing utils.data
utils.checkpoint utils.dlpack"""

# what an example is about or calls -> why it is left out
LEFT_OUT = {
    r"cuda|nccl|xpu|mtia|\bmps\b|Stream|Event|accelerator|emit_": "devices that are not here",
    r"distributed|DataLoader\(|multiprocess|mp\.spawn": "several processes",
    r"sparse|nested|quantiz|MaskedTensor|masked\._ops|hash_tensor|from_file|PrivateUse|thread_safe": "not offered",
    r"torch\.(compile|jit|export|fx|package|hub|library)|make_fx|linearize|_dynamo|storage\(\)|TypedStorage": "internals of the compiler, of libraries and of storages",
    r"\bempty\w*\(|new_empty|skip_init|\.seed\(\)": "numbers that nobody chose",
    r"profile|record_function|benchmark|threading|Future": "times and threads",
    r"is_conj|is_neg|resolve_(conj|neg)|conj\(\)": "conjugates are computed at once",
    r"chain_matmul|index_reduce_|ldexp|triangular_solve|qr\(|svd|lstsq|hfft|eigh|RankOne|Wishart|matrix_exp": "signs that LAPACK is free to choose, signs of zeros, and rounding near singular matrices",
    r"flush_denormal|set_default_(dtype|tensor_type)|flop|overrides|memory_budget|to_dlpack|complex32|_autoload|_powsum": "settings of the machine, and what belongs to PyTorch's own process",
    r"unpack_sequence|unpad_sequence|pad_packed|nonzero_static": "results that share memory here, and lie otherwise",
    r"LSTM|GRU|RNN": "names of nodes of recurrent cells, which depend on the kernel",
    r"matplotlib|\d{3}, \d{3}": "pictures, and too many numbers",
    r"X @ |X, B|A @": "rounding, which decides what `allclose` says",
    r"x\.sort\(\)|enforce_grad_layout|post_accumulate|MaxUnpool|save_for_forward|get_swap": "an order that is not promised, and words about hooks",
}


def documented():
    "{name: docstring} of all that has an example and is not left out."
    import torch

    found = {}
    for home in [torch, torch.Tensor, *(importlib.import_module(f"torch.{h}") for h in HOMES.split())]:
        for name in sorted(n for n in dir(home) if not n.startswith("_")):
            try:
                words = inspect_doc(getattr(home, name))
            except (AttributeError, RuntimeError):
                continue
            if ">>>" in words and words not in found.values() and not any(re.search(p, words.split(">>>", 1)[1] + name) for p in LEFT_OUT):
                found[f"{home.__name__}.{name}"] = words
    return found


def inspect_doc(thing):
    words = "" if isinstance(thing, types.ModuleType) else getattr(thing, "__doc__", None)
    return words if isinstance(words, str) else ""


def statements(words):
    "The statements of a docstring's examples, as text."
    lines, going = [], False
    for line in words.split("\n"):
        match = re.match(r"\s*(>>>|\.\.\.) ?(.*)$", line)
        going = bool(match) and (match[1] == ">>>" or going)
        if going: lines.append(match[2])
    text = "\n".join(lines)
    try:
        return [ast.get_source_segment(text, node) for node in ast.parse(text).body if not getattr(node, "decorator_list", None)]
    except SyntaxError:
        return []


def names_for(library):
    found = dict(torch=library, np=np, nn=library.nn, F=library.nn.functional, optim=library.optim, autograd=library.autograd, distributions=library.distributions, __name__="example")
    return found | {name: getattr(library.distributions, name) for name in library.distributions.__all__ if name not in found}


def facts(value, numbers, depth=0):
    "What a value says of itself, as text; the numbers of tensors go into a list."
    import torch

    for library in (torch, autograd_nb):
        if isinstance(value, library.Tensor):
            node = "" if value.grad_fn is None else value.grad_fn.name()
            numbers.append(value.detach().cpu())
            return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.requires_grad} {node}"
        if isinstance(value, library.nn.Module): return f"{value} {[(k, tuple(v.shape)) for k, v in value.state_dict().items()]}" if "Lazy" not in str(value) else str(value)
    if isinstance(value, dict) and depth < 3: return str({str(k): facts(v, numbers, depth + 1) for k, v in value.items()})
    if isinstance(value, (list, tuple)) and depth < 3: return type(value).__name__ + str([facts(v, numbers, depth + 1) for v in value[:20]])
    if isinstance(value, (bool, int, float, complex, str, type(None), np.ndarray)): return str(value)
    return type(value).__name__ if not callable(value) else "callable"


class Late(Exception):
    "An example takes too long."


def too_late(number, frame): raise Late()


def step(library, text, names):
    "What a statement yields, prints, warns about and raises, as lines, and the numbers in it; None if it takes too long."
    if library is autograd_nb:
        text = re.sub(r"^(\s*)import torch$", r"\1import autograd_nb as torch", text, flags=re.MULTILINE)
        text = re.sub(r"\b(from|import) torch(?=[. ])", r"\1 autograd_nb", text)
    printed, lines, numbers, before = io.StringIO(), [], [], dict(names)
    earlier = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        with warnings.catch_warnings(record=True) as said, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            try:
                alone = isinstance(ast.parse(text).body[0], ast.Expr)
                value = eval(text, names) if alone else exec(text, names)
                lines = [facts(value, numbers)] if alone else []
                lines += [f"{k}: {facts(v, numbers)}" for k, v in sorted(names.items()) if v is not before.get(k) and not k.startswith("__")]
            except Late:
                return None
            except Exception as error:
                lines = [f"!! {type(error).__name__}: {str(error).strip()}".split("\n")[0]]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    warned = sorted(f"W {w.category.__name__} {w.message}".split("\n")[0] for w in said if w.category is not RuntimeWarning and "torch.jit" not in str(w.message))
    return lines + warned + printed.getvalue().split("\n"), [n.resolve_conj().resolve_neg().double().numpy() if not n.is_complex() else n.resolve_conj().numpy() for n in numbers]


def differences(words):
    "The statements of an example that differ."
    import torch

    both, found = (torch, autograd_nb), []
    names = [names_for(library) for library in both]
    for library in both: library.manual_seed(0)
    for text in statements(words):
        state = random.getstate(), np.random.get_state()
        expected = step(torch, text, names[0])
        random.setstate(state[0])
        np.random.set_state(state[1])
        if expected is None: break
        mine = step(autograd_nb, text, names[1])
        if mine is None: break
        (expected, theirs), (mine, ours) = expected, mine
        alike = len(expected) == len(mine) and all(map(same, expected, mine)) and all(np.allclose(a, b, 1e-3, 2e-4, equal_nan=True) for a, b in zip(theirs, ours))
        if not alike: found.append("\n".join([text, *map(plain, expected), "--- and here", *map(plain, mine)])[:3000])
    return found


def test_examples_of_pytorchs_documentation(tmp_path, monkeypatch):
    import torch

    importlib.import_module("torch._dynamo")  # which takes seconds, and may not be broken off
    monkeypatch.chdir(tmp_path)
    examples, found = documented(), []
    assert len(examples) > 400
    chosen = some(examples.items(), 150)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with every_warning(torch, autograd_nb):
            for name, words in chosen:
                found += [f"{name}: {d}" for d in differences(words)]
    finally:
        torch.set_num_threads(threads)
    assert not found, f"{len(found)} statements of {len(chosen)} examples differ\n\n" + "\n\n".join(found)
