"""The samples of PyTorch's own table of operations on a device, by the stand-in of `strict_arrays.py`: results, dtypes, flags and first gradients are those of the CPU, and they live on the device."""

import warnings

import _op_samples
import pytest
from test_device import device, stand_in  # noqa: F401  (fixtures)

import autograd_nb as torch

pytestmark = [pytest.mark.needs("torch")]

NOT_COMPARED = {
    **dict.fromkeys(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"), "shows uninitialised memory"),
    "to": "the samples name the CPU",
    "histogramdd": "NumPy's function for it does not know other arrays",
    "linalg.lstsq": "LAPACK's drivers are refused on devices, and the samples ask for them",
    "linalg.lstsq:grad_oriented": "LAPACK's drivers are refused on devices, and the samples ask for them",
}
PARTS = 12
# How far two orders of adding up may be apart, of a number and of the largest one; numbers of sixteen bits are rounded between the steps, too.
TOLERANCE = {"float64": (1e-6, 1e-7), "complex128": (1e-6, 1e-7), "bfloat16": (0.03, 0.01)}


def there(value, memo):
    "Arguments on the device; the same tensor becomes the same tensor."

    def sent(t):
        if id(t) not in memo:
            memo[id(t)] = t.detach().to("cuda").requires_grad_(t.requires_grad), t
        return memo[id(t)][0]

    return _op_samples.mapped(value, torch.Tensor, sent)


def operations(part, dtype):
    "Every twelfth of the operations that we have for a dtype, without those that draw numbers: title, entry of the table, our function."
    import torch as original

    for title, info in [*_op_samples.table().items()][part::PARTS]:
        if title in NOT_COMPARED or getattr(original, dtype) not in info.dtypes or _op_samples.draws(info.op):
            continue
        try:
            yield title, info, _op_samples.counterpart(info, torch)
        except AttributeError:
            continue


def chosen(info, dtype):
    "The first, the middle and the last of an operation's samples, of dtypes other than float64 the middle one alone, as arguments of ours."
    import torch as original

    dtype = getattr(original, dtype)
    original.manual_seed(1)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)))
    for i in sorted({0, len(samples) // 2, len(samples) - 1} if dtype is original.float64 else {len(samples) // 2}) if samples else ():
        convert, kwargs = _op_samples.Converter(torch), samples[i].kwargs
        if kwargs.get("device") is not None:
            continue  # says itself where the result shall live
        try:
            yield convert([samples[i].input, *samples[i].args]), convert(kwargs)
        except NotImplementedError:  # a layout that we do not have
            continue


class Placed(_op_samples.Observed):
    "As `Observed`; `hosts`: what does not live on the device."

    def __init__(self, *args):
        self.hosts = []
        super().__init__(torch, *args, second=False)

    def note(self, what, value):
        if isinstance(value, torch.Tensor) and value.device.type != "cuda":
            self.hosts.append(what)
        super().note(what, value)


def difference(function, args, kwargs, dtype):
    "What is otherwise on the device: a line, or None. `NotImplemented`: the CPU refuses this call."
    torch.manual_seed(0)
    expected = Placed(function, args, kwargs)
    if any(isinstance(value, Exception) for _, value in expected.facts):
        return NotImplemented
    memo = {}
    given = there(args, memo), there(kwargs, memo)
    torch.manual_seed(0)
    found = Placed(function, *given)
    line = _op_samples.first_difference(expected, found, *TOLERANCE.get(dtype, (0.0, 0.0)))
    return line or (memo and found.hosts and f"{', '.join(found.hosts)}: on the host" or None)


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "complex128", "bfloat16"])
@pytest.mark.parametrize("part", range(PARTS))
def test_as_on_the_cpu(part, dtype, device):  # noqa: F811
    compared, wrong = 0, []
    with warnings.catch_warnings(action="ignore"):
        for title, info, function in operations(part, dtype):
            for args, kwargs in chosen(info, dtype):
                line = difference(function, args, kwargs, dtype)
                if line is NotImplemented:
                    continue
                compared += 1
                if line is not None:
                    wrong.append(f"{title}: {line}")
    assert not wrong, "\n".join(wrong)
    assert compared > 10, "the table has samples for each part and dtype"
