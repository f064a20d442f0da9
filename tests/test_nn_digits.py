"""The main job on real input: scikit-learn's handwritten digits, learnt to 97 % of the test images."""


import numpy as np
import pytest
from _pace import within

import autograd_nb as torch
from autograd_nb import nn, optim
from autograd_nb.utils.data import DataLoader, TensorDataset


def digits(seed=0):
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    x, y = torch.from_numpy((images[order] / 16).astype(np.float32)), torch.from_numpy(labels[order].astype(np.int64))
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_digits_are_learnt(seed):
    train, (x, y) = digits(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    loss_fn, optimizer = nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=3e-3)
    first = last = None
    with within(60):
        for _ in range(40):
            for xb, yb in DataLoader(TensorDataset(*train), batch_size=32, shuffle=True):
                optimizer.zero_grad()
                loss = loss_fn(model(xb), yb)
                loss.backward()
                optimizer.step()
                first = loss.item() if first is None else first
            last = loss.item()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    assert accuracy >= 0.965 and last < first / 10


def test_a_model_without_gradients_learns_nothing():
    "The same loop without backward(): the check above can fail."
    train, (x, y) = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    for _ in DataLoader(TensorDataset(*train), batch_size=32):
        optimizer.step()
    with torch.no_grad():
        assert (model(x).argmax(1) == y).float().mean().item() < 0.5
