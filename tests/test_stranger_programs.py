"""Programs and single calls as strangers write them, right and wrong: values, names, words of errors and warnings are PyTorch's.

`programs/strangers.txt` and `programs/teaching.txt`, those of courses, hold programs, each below a line `### its name`; `programs/stranger_calls.txt` calls, one a line, in groups headed by such a
line and the lines up to `---` that prepare them. What an error says begins with PyTorch's first sentence; what follows it here is the remedy.
"""

import contextlib
import inspect
import io
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from _compare import NUMBER, every_warning

import autograd_nb
import autograd_nb.refused

pytestmark = pytest.mark.needs("torch")
LEAST = 60  # so many characters of a long error message have to be PyTorch's


def parts(name):
    "The parts of a file of programs by their names."
    text = (Path(__file__).parent / "programs" / name).read_text()
    return dict(part.split("\n", 1) for part in text.removeprefix("### ").split("\n### "))


PROGRAMS, CALLS = parts("strangers.txt") | parts("teaching.txt"), parts("stranger_calls.txt")


def attempt(function, *args, **kwargs):
    "Print what `function` returns or how it fails, and return the former."
    try:
        result = function(*args, **kwargs)
        print("->", result)
        return result
    except Exception as error:
        print("!!", type(error).__name__ + ":", str(error).strip().split("\n")[0])


def warned(function, *args, **kwargs):
    "Call `function` and print what was warned about, but for NumPy's warnings, which the package silences."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    for w in said:
        if w.category is not RuntimeWarning:
            print("W", w.category.__name__, str(w.message).split(" (Triggered")[0].split("\n")[0])
    return result


def numbers(library, *shape, seed=0, rg=False, dtype=np.float32):
    "A tensor of normal numbers."
    return library.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype), requires_grad=rg)


def names_for(torch):
    "What a program finds besides what it imports."
    made = dict(torch=torch, np=np, nn=torch.nn, F=torch.nn.functional, attempt=attempt, warned=warned, warnings=warnings, __name__="program")
    return made | {"T": lambda *shape, **options: numbers(torch, *shape, **options)}


def run(torch, source, body):
    "The lines that `body(names)` prints after `source` has run."
    source = re.sub(r"\b(from|import) torch(?=[. ])", rf"\1 {torch.__name__}", source)
    names, printed = names_for(torch), io.StringIO()
    torch.manual_seed(0)
    np.random.seed(0)
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(source, "program", "exec"), names)
            body(names)
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_printoptions(profile="default")
    return printed.getvalue().split("\n")


def run_both(source, body=lambda names: None):
    "What both libraries print."
    import torch

    with every_warning(torch, autograd_nb):
        return run(torch, source, body), run(autograd_nb, source, body)


def plain(line):
    "A line without what belongs to the process: addresses, and the module that a class comes from."
    line = re.sub(r"(<class '|<function |<bound method |<)(?:\w+\.)+(\w+)", r"\1\2", line.replace("autograd_nb", "torch"))
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+", "0x", line))


def same(expected, found):
    "Whether two lines say the same."
    a, b = plain(expected), plain(found)
    if a == b:
        return True
    for mark in ("!! ", "W "):
        if a.startswith(mark) and b.startswith(mark):
            kind = len(re.split(r"[: ]", a[len(mark):])[0]) + len(mark) + 1
            common = len(os.path.commonprefix([a, b])) - kind
            return common >= min(LEAST, (len(a) - kind) / 2)
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    return all(abs(float(x) - float(y)) <= 2e-4 * max(1, abs(float(x))) for x, y in zip(NUMBER.findall(a), NUMBER.findall(b)))


def differences(expected, found):
    "The lines that differ, as text; empty if none do."
    if len(expected) != len(found):
        return "\n".join(["PyTorch:", *expected, "autograd_nb:", *found])
    return "\n".join(f"PyTorch:     {a}\nautograd_nb: {b}" for a, b in zip(expected, found) if not same(a, b))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    assert not differences(*run_both(PROGRAMS[name]))


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    setup, calls = CALLS[name].split("---\n", 1)

    def body(names):
        for call in calls.strip().split("\n"):
            print("#", call)
            warned(attempt, eval, call, names)

    assert not differences(*run_both(setup, body))


# names that are not offered ------------------------------------------------------------------------------------------------------------------------

NAMES = sorted(autograd_nb.refused.REMEDIES)


def test_refused_names_say_what_to_write_instead():
    for name in NAMES:
        with pytest.raises(NotImplementedError, match=f"has no attribute '{name}': .*[.] (torch|[A-Z]).*[.]$"):
            getattr(autograd_nb, name)
        assert not hasattr(autograd_nb, name)  # a program that asks first goes on
    with pytest.raises(AttributeError, match="^module 'autograd_nb' has no attribute 'nothing_of_this_name'$"):
        autograd_nb.nothing_of_this_name


def test_every_refused_name_is_pytorchs():
    import torch

    assert [name for name in NAMES if not hasattr(torch, name)] == []
    assert [name for name in autograd_nb.refused.METHODS if not hasattr(torch.Tensor, name)] == []


@pytest.mark.parametrize("name", autograd_nb.refused.METHODS)
def test_refused_methods(name):
    with pytest.raises(NotImplementedError, match=name):
        getattr(autograd_nb.ones(2), name)()


@pytest.mark.parametrize("name", autograd_nb.refused.REMOVED)
def test_functions_that_pytorch_has_removed(name):
    import torch

    said = []
    for library in (torch, autograd_nb):
        with pytest.raises(RuntimeError) as error:
            getattr(library, name)(library.eye(2), *[library.eye(2)] * (name in ("solve", "lstsq")))
        said.append(str(error.value)[:LEAST])
    assert said[0] == said[1] and "torch.linalg." in str(error.value)


# what layers take ----------------------------------------------------------------------------------------------------------------------------------

def taken(layer):
    "The names and defaults that `help` shows."
    try:
        return [(p.name, p.default) for p in inspect.signature(layer).parameters.values()]
    except ValueError:
        return None


def test_layers_say_what_they_take():
    import torch

    for name in set(dir(torch.nn)) & set(dir(autograd_nb.nn)):
        theirs, ours = getattr(torch.nn, name), getattr(autograd_nb.nn, name)
        if inspect.isclass(theirs) and issubclass(theirs, torch.nn.Module) and not re.match("Lazy|SyncBatchNorm|Transformer", name):
            if [n for n, _ in taken(theirs)] == ["args", "kwargs"]: continue
            assert [n for n, _ in taken(ours)] == [n for n, _ in taken(theirs)], name
            assert [str(d) for _, d in taken(ours) if not callable(d)] == [str(d) for _, d in taken(theirs) if not callable(d)], name


@pytest.mark.parametrize("call", ["w + 1", "w.mean()", "torch.relu(w)", "w.numel()", "w * w"])
def test_parameters_of_lazy_layers_wait_for_the_first_call(call):
    import torch

    for library in (torch, autograd_nb):
        layer = library.nn.LazyLinear(2)
        with pytest.raises(ValueError, match="^Attempted to use an uninitialized parameter in "):
            eval(call, {"torch": library, "w": layer.weight})
        layer(library.ones(1, 3))
        assert layer.weight.numel() == 6


PADDINGS = [[[0, 0, 1], [0, 1, 1]], [[0, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]]]


# without a check PyTorch trusts a mask to end, and reads what lies beyond: not for the last
@pytest.mark.parametrize(
    "options, padding",
    [(o, p) for o in ({}, {"enable_nested_tensor": False}) for p in PADDINGS] + [({"mask_check": False}, p) for p in PADDINGS[:2]],
)
@pytest.mark.parametrize("grad", [False, True])
def test_padding_that_an_encoder_leaves_out_comes_out_as_zeros(options, grad, padding):
    import torch

    found = []
    for library in (torch, autograd_nb):
        layer = library.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        model = library.nn.TransformerEncoder(layer, 2, norm=library.nn.LayerNorm(4), **options).eval()
        with library.no_grad():
            for i, p in enumerate(model.parameters()): p.copy_(numbers(library, *p.shape, seed=i) * 0.5)
        mask = library.tensor(padding, dtype=library.bool)
        with library.set_grad_enabled(grad), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(model(numbers(library, 2, 3, 4), src_key_padding_mask=mask).detach().numpy())
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)


def test_masks_given_by_hand_add_to_earlier_pruning():
    import torch

    found = []
    for library in (torch, autograd_nb):
        prune = __import__(f"{library.__name__}.nn.utils.prune", fromlist=["prune"])
        layer = library.nn.Linear(3, 2)
        layer.weight.data.copy_(numbers(library, 2, 3))
        prune.l1_unstructured(layer, "weight", amount=2)
        prune.custom_from_mask(layer, "weight", library.eye(2, 3))
        prune.ln_structured(layer, "weight", amount=1, n=2, dim=1)
        found.append(layer.weight_mask.numpy())
    np.testing.assert_array_equal(found[1], found[0])
