"""Programs as lessons write them, models trained for a few steps and small questions about modules, loaders and functions: they print the same in both libraries."""

import pytest
from _compare import assert_same_output, programs

pytestmark = pytest.mark.needs("torch")
PROGRAMS = programs("lessons")


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_the_same(name):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)            # on a busy machine PyTorch's threads wait for each other
    try:
        assert assert_same_output(PROGRAMS[name]).strip()
    finally:
        torch.set_num_threads(threads)
