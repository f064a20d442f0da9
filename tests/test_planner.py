"""The planner's choices fit their budget, cost the least, and predict what is then measured."""

import itertools
import random

import pytest

import autograd_nb as torch
from autograd_nb import nn
from autograd_nb.cpu import track_memory
from autograd_nb.utils.planner import Cost, _needs, choose, choose_nothing, plan_checkpoints


def every_choice(costs, budget):
    "The least extra time over all ways to cut the chain, by trying them."
    best = None
    for cuts in itertools.product([0, 1, 2], repeat=len(costs)):  # 0: kept, 1: begins a checkpoint, 2: goes on with it
        pieces = []
        for i, c in enumerate(cuts):
            if c == 2 and (not pieces or pieces[-1][2]):
                break
            if c == 2:
                pieces[-1] = (pieces[-1][0], i + 1, False)
            else:
                pieces.append((i, i + 1, c == 0))
        else:
            left = peak = 0
            for start, end, kept in pieces:
                most, leaves = _needs(costs, start, end, kept)
                peak, left = max(peak, left + most), left + leaves
            extra = sum(c.forward_time for s, e, k in pieces if not k for c in costs[s:e])
            if peak <= budget and (best is None or extra < best):
                best = extra
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_the_cheapest_that_fits(seed):
    rng = random.Random(seed)
    costs = [
        Cost(
            k := rng.randint(20, 60) * 1000,
            rng.randint(2, 8) * 1000,
            k + rng.randint(0, 9) * 1000,
            rng.randint(1, 20) * 1000,
            rng.random(),
            1.0,
        )
        for _ in range(6)
    ]
    for share in (0.4, 0.6, 0.8, 1.0):
        budget = int(share * choose_nothing(costs))
        found, best = choose(costs, budget), every_choice(costs, budget)
        if best is None:
            assert found is None
            continue
        tight = every_choice(costs, int(budget * 0.97))  # amounts are rounded up to steps of a 400th
        assert (
            found is None
            and tight is None
            or best <= found[2] + 1e-9
            and found[1] <= budget
            and (tight is None or found[2] <= tight + 1e-9)
        )


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(32, width), nn.Linear(width, 32)

    def forward(self, x):
        return x + self.down(self.up(x).tanh())


@pytest.mark.slow
def test_predictions_are_measured():
    blocks = [Block(w) for w in (32, 256, 64, 128, 256, 32, 64, 128)]
    x = torch.randn(128, 32)
    for budget in (0.75, 0.85):
        plan = plan_checkpoints(blocks, x, budget)
        plan(x).sum().backward()
        with track_memory() as trace:
            plan(x).sum().backward()
        assert 0.85 * plan.peak < trace.added < 1.05 * budget * plan.plain and "checkpoint(" in repr(plan)


def test_measuring_leaves_no_traces():
    block = Block(64)
    state = torch.get_rng_state()
    plan_checkpoints([block, nn.Dropout(0.5)], torch.randn(8, 32, generator=torch.Generator().manual_seed(0)), 1.0)
    assert block.up.weight.grad is None and torch.equal(state, torch.get_rng_state())


def test_an_impossible_budget_is_refused_with_what_is_possible():
    with pytest.raises(ValueError, match="the least is about"):
        plan_checkpoints([Block(64) for _ in range(3)], torch.randn(8, 32), 100)
