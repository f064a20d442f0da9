"""How much a program makes of rounding: what its numbers do when PyTorch rounds every result to a neighbour now and then.

Another processor, another number of threads or another library adds in another order, and a program may amplify that: twenty steps of Adam
divide by gradients that are nearly zero. So training runs are not held to a fixed tolerance. Where the tight one fails, the same program runs
in PyTorch a few more times, each time with the last digit of every result shaken by chance, and is given the room that those runs take.
"""

import numpy as np

RUNS = 4
ROOM = 12  # so many times the spread of the shaken runs; on the processor on which this was chosen no program takes more than twice the spread
CHAOS = 0.02  # a number whose spread is more than this part of it says nothing
POWER = 0.25  # at least this part of a curve has to say something

# Operations whose results are exact, or choose: a neighbour of theirs would be another program.
EXACT = {"alias", "arange", "argmax", "argmin", "as_strided", "bernoulli", "bernoulli_", "ceil", "clone", "copy_", "detach", "detach_", "empty", "empty_like", "eye", "fill_", "floor", "full",
         "full_like", "lift_fresh", "masked_fill_", "new_empty", "new_full", "new_ones", "new_zeros", "normal_", "ones", "ones_like", "rand", "randn", "randint", "random_", "resize_", "round", "scalar_tensor",
         "set_", "sgn", "sign", "_to_copy", "to", "trunc", "uniform_", "zero_", "zeros", "zeros_like", "_local_scalar_dense", "sort", "topk", "max", "min", "gather", "index", "index_select", "embedding", "cat",
         "stack", "floor_divide", "_unsafe_view", "where", "one_hot", "_foreach_copy_", "_foreach_zero_"}


def shaken(run, seed: int):
    "What `run()` returns when each result of an operation in PyTorch may be rounded to its neighbour."
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    rng, noise, choices = np.random.default_rng(seed), {}, {}

    def shake(tensor):
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
            return
        if 0 in tensor.stride() and any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
            return
        count, dtype = tensor.numel(), tensor.dtype
        if dtype not in noise or noise[dtype].numel() < 2 * count:
            factors = 1 + torch.finfo(dtype).eps * rng.integers(-1, 2, max(2 * count, 100_003))
            noise[dtype] = torch.from_numpy(factors).to(dtype.to_real())
        start = int(rng.integers(noise[dtype].numel() - count + 1))
        tensor.mul_(noise[dtype][start : start + count].view(tensor.shape))

    class Shaking(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            if function not in choices:
                choices[function] = function.overloadpacket.__name__ not in EXACT and not function.is_view
            if choices[function]:
                for tensor in tree_leaves(found) or tree_leaves(args[:1]):  # an operation of many tensors in place returns nothing
                    shake(tensor)
            return found

    with Shaking():
        return run()


def spread(run, expected: list[np.ndarray]) -> list[np.ndarray]:
    "How far each number of `run()`, a list of arrays, strays from `expected` when rounding is shaken."
    found = [[np.asarray(a, np.float64) for a in shaken(run, seed)] for seed in range(RUNS)]
    with np.errstate(invalid="ignore"):
        return [np.max([np.abs(other[i] - np.asarray(a, np.float64)) for other in found], 0) for i, a in enumerate(expected)]


def assert_same_numbers(found, expected, run, rtol=1e-4, atol=1e-7, err_msg=""):
    """Assert that the numbers of a curve agree: to `rtol` and `atol`, or as far as rounding lets them.

    `run()` gives `expected` once more, in PyTorch. What strays once stays astray, so the room of a number is the largest so far. A program all of
    whose numbers are noise fails: it is too long to compare.
    """
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape, f"{err_msg}: shapes {found.shape} and {expected.shape}"
    if np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True):
        return
    strays = np.maximum.accumulate(spread(lambda: [run()], [expected])[0], 0)
    says_something = strays <= CHAOS * np.abs(expected) + atol
    assert says_something.mean() >= POWER, f"{err_msg}: rounding alone decides all but {says_something.mean():.0%} of these numbers"
    room = np.maximum(ROOM * strays, rtol * np.abs(expected) + atol)
    wrong = ~(np.abs(found - expected) <= room) & says_something & ~(np.isnan(found) & np.isnan(expected))
    assert not wrong.any(), f"{err_msg}: {wrong.sum()} numbers differ by more than rounding explains:\nfound    {found[wrong][:8]}\nexpected {expected[wrong][:8]}\nroom     {room[wrong][:8]}"


def assert_same_arrays(found: dict, expected: dict, run, rtol=2e-3, atol=2e-4):
    "Assert that arrays by name agree, such as the parameters of a trained model; all numbers of one array have the room of its widest. `run()` gives `expected` once more."
    far = [name for name in expected if not np.allclose(found[name], expected[name], rtol=rtol, atol=atol, equal_nan=True)]
    if not far:
        return
    strays = spread(lambda: [run()[name] for name in far], [expected[name] for name in far])
    for name, stray in zip(far, strays):
        np.testing.assert_allclose(found[name], expected[name], rtol=rtol, atol=max(atol, ROOM * stray.max()), err_msg=name)
