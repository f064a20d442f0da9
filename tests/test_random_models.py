"""Random models, trained for a few steps in one of many ways, under both libraries; see `_random_models.py`."""

import pytest
from _random_models import Model, difference

pytestmark = pytest.mark.needs("torch")


@pytest.mark.parametrize("seed", range(150))
def test_same_as_pytorch(seed):
    text = Model(seed).write()
    found = difference(text)
    assert found is None, f"{found}\n\n{text}"
