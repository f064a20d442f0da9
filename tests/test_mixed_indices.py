"""Indices that mix tensors, lists, slices, integers, None and `...`, drawn at random, on tensors that lie in memory in any order: what is read, its strides, its node and its gradient are PyTorch's."""

import itertools
import math
import random

import numpy as np
import pytest

import autograd_nb

pytorch = pytest.importorskip("torch")


def entry(rng, places):
    "The source of one entry of an index that reads so many places at a time."
    kind = rng.choice(["number", "tensor", "tensor", "list", "slice", "slice", "all", "new"])
    row = str([rng.choice([0, -1]) for _ in range(places)])
    if kind == "slice":
        return rng.choice(["slice(0, 2)", "slice(0, None, 2)", "slice(1, 1)"])
    return dict(number="0", tensor=f"torch.tensor({row})", list=row, all="slice(None)", new="None, slice(None)")[kind]


def draw(seed):
    "The shape of a tensor, the order of its dimensions, and an index for it."
    rng = random.Random(seed)
    shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([1, 2, 3, 4]))]
    order = rng.sample(range(len(shape)), len(shape)) if rng.random() < 0.4 else list(range(len(shape)))
    places = rng.choice([1, 2, 3])
    entries = [entry(rng, places) for _ in shape]
    if rng.random() < 0.3:
        del entries[rng.randrange(1, len(entries) + 1) :]
    if rng.random() < 0.4:
        entries.insert(rng.randrange(len(entries) + 1), "...")
    return shape, order, f"({', '.join(entries)},)"


def read(torch, shape, order, index):
    x = torch.arange(float(math.prod(shape))).reshape(shape).permute(order).requires_grad_()
    try:
        y = x[eval(index, dict(torch=torch))]
    except IndexError as error:
        return str(error).split("\n")[0]
    steps = [step for step, places in zip(y.stride(), y.shape, strict=True) if places > 1 and y.numel()]
    found = tuple(y.shape), steps, y.tolist(), y.grad_fn.name() if y.grad_fn else None
    if y.numel():
        y.sum().backward()
    return *found, None if x.grad is None else x.grad.tolist()


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_as_in_pytorch(first):
    for seed in range(first, first + 100):
        drawn = draw(seed)
        assert read(autograd_nb, *drawn) == read(pytorch, *drawn), drawn


BASIC = 0, -1, 5, slice(None), slice(1, None), slice(0, 2), slice(None, None, 2), slice(5, 9), Ellipsis, None


def steps_of(torch, shape, index):
    "What is read, its strides, the nodes that lead to it, and the gradient."
    x = torch.arange(float(math.prod(shape))).reshape(shape).requires_grad_()
    try: y = (x * 1)[index]
    except IndexError as error: return str(error).split("\n")[0]
    nodes, node = [], y.grad_fn
    while node.next_functions: nodes, node = [*nodes, node.name()], node.next_functions[0][0]
    y.sum().backward()
    return tuple(y.shape), y.stride() if y.numel() else None, y.tolist(), nodes, x.grad.tolist()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)], ids=str)
def test_indices_without_tensors(shape):
    "Every index of up to three entries, each with the nodes of its steps."
    for count in range(4):
        for index in itertools.product(BASIC, repeat=count):
            if index.count(...) > 1: continue
            assert steps_of(autograd_nb, shape, index) == steps_of(pytorch, shape, index), index


BYTES = [np.array([1, 0, 1, 1], np.uint8), list(np.array([1, 0, 1, 1], np.uint8)), np.array([1, 0], np.uint8)]


@pytest.mark.parametrize("index", BYTES, ids=["array", "list", "too few"])
def test_bytes_of_numpy_are_masks(index):
    def read(torch):
        with pytest.warns(UserWarning, match="uint8 is now deprecated"):
            try:
                return torch.arange(4.0)[index].tolist()
            except IndexError as error:
                return str(error).split("\n")[0]

    assert read(autograd_nb) == read(pytorch)


@pytest.mark.parametrize("number", [1j, 2 + 0j])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_a_complex_number_at_a_mask(dtype, number):
    def written(torch):
        x = torch.ones(3, dtype=getattr(torch, dtype))
        try:
            x[torch.tensor([True, False, True])] = torch.tensor(number)
        except RuntimeError as error:
            return str(error).split("\n")[0]
        return x.tolist()

    assert written(autograd_nb) == written(pytorch)
