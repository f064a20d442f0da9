"""CUDA graphs on the stand-in, which records calls as CUDA records kernels: nothing is done during a capture, and no number may enter or leave the device."""

import gc

import numpy as np
import pytest
import strict_arrays as strict
from test_device import stand_in, use  # noqa: F401

import autograd_nb as torch
from autograd_nb import nn

F = nn.functional
pytestmark = pytest.mark.usefixtures("stand_in")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Dropout(0.3), nn.Linear(6, 3)).cuda()


def batches():
    torch.manual_seed(5)
    return [(torch.randn(5, 4).cuda(), torch.randint(0, 3, (5,)).cuda()) for _ in range(4)]


OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01, capturable=True), "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.01, capturable=True),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, capturable=True), "NAdam": lambda ps: torch.optim.NAdam(ps, lr=0.01, capturable=True),
}  # fmt: skip


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=pytest.mark.skipif(strict.COMPILER is None, reason="no C++ compiler to build the kernels for the CPU"))])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_replays_are_the_steps(name, fused):
    "Whole training steps, with dropout that draws other numbers each time and a rate that a schedule changes: a replay does what the step would have done."

    def trained(captured):
        model = network()
        optimizer, losses, data = OPTIMIZERS[name](model.parameters()), [], batches()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        torch.cuda.manual_seed(1)
        x, y = (t.clone() for t in data[0])

        def step():
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(2):  # CUDA wants to be warm
                optimizer.zero_grad()
                step()
        optimizer.zero_grad()
        if captured:
            g = torch.cuda.CUDAGraph()
            before = [p.detach().clone() for p in model.parameters()]
            with torch.cuda.graph(g):
                assert torch.cuda.is_current_stream_capturing()
                loss = step()
            assert not torch.cuda.is_current_stream_capturing() and all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        for here, there in data:
            x.copy_(here), y.copy_(there)
            if captured:
                g.replay()
            else:
                optimizer.zero_grad()
                loss = step()
            losses.append(loss.item())
            schedule.step()
        return losses, [p.tolist() for p in model.parameters()], torch.cuda.get_rng_state().tolist()

    use(strict.library, fused, 1)
    try:
        assert trained(False) == trained(True)
    finally:
        use(strict.library, False, 1)


def test_what_cannot_be_recorded():
    g, words = torch.cuda.CUDAGraph(), "operation not permitted when stream is capturing"
    one = torch.ones(2, device="cuda")
    for wrong in (lambda: one.sum().item(), lambda: one.cpu(), lambda: print(one), lambda: bool(one[0]), lambda: torch.nonzero(one), lambda: one[one > 0], lambda: torch.linalg.inv(torch.eye(2, device="cuda")), torch.cuda.synchronize):
        with pytest.raises(RuntimeError, match=words) as caught, torch.cuda.graph(g):
            wrong()
        assert "instead:" in str(caught.value)
    with pytest.raises(RuntimeError, match="Cannot copy between CPU and CUDA tensors during CUDA graph capture"), torch.cuda.graph(g):
        torch.ones(2).cuda()
    with pytest.raises(ZeroDivisionError), torch.cuda.graph(g):
        1 / 0
    for wrong, words in ((g.replay, "without a preceding successful capture"), (g.capture_begin, "must be captured on a non-default stream"), (g.capture_end, "called before capture_begin"), (g.pool, "without a preceding"), (lambda: g.capture_begin(capture_error_mode="odd"), "Unknown capture error mode")):
        with pytest.raises(RuntimeError, match=words):
            wrong()
    p = nn.Parameter(one.clone())
    p.sum().backward()
    optimizer = torch.optim.Adam([p])
    optimizer.step()
    with pytest.raises(RuntimeError, match="capture of step\\(\\) for an instance of Adam but param_groups' capturable is False"), torch.cuda.graph(g):
        optimizer.step()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() and one.sum().item() == 2.0


def test_memory_and_reuse(tmp_path):
    "The memory of a graph stays its own, may be shared with another graph, and comes back."
    gc.collect()
    before = torch.cuda.memory_allocated()
    x, g = torch.zeros(1000, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = (x + 1) * 2
    assert torch.cuda.memory_allocated() >= before + 8000
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=g.pool()):
        z = y + 1
    x.fill_(3.0), g.replay(), other.replay()
    assert z.sum().item() == 9000.0 and other.pool() is g.pool()
    with pytest.raises(RuntimeError, match="already owns a captured graph"), torch.cuda.graph(g):
        pass
    g.debug_dump(tmp_path / "g.dot")
    assert (tmp_path / "g.dot").read_text().startswith("digraph")
    g.reset(), other.reset()
    del x, y, z
    assert torch.cuda.memory_allocated() == before


def test_graphed_callables():
    "Modules with recorded passes take part in an ordinary loop."
    plain, parts = network().eval(), network().eval()
    first, second = parts[:3].eval(), parts[3:].eval()
    sample, middle = torch.randn(5, 4, device="cuda"), torch.randn(5, 6, device="cuda", requires_grad=True)
    first, second = torch.cuda.make_graphed_callables((first, second), ((sample,), (middle,)))
    for x, y in batches():
        a, b = F.cross_entropy(plain(x), y), F.cross_entropy(second(first(x)), y)
        a.backward(), b.backward()
        assert a.item() == b.item()
    for p, q in zip(plain.parameters(), parts.parameters(), strict=True):
        np.testing.assert_allclose(q.grad.tolist(), p.grad.tolist(), rtol=1e-6)
    function = torch.cuda.make_graphed_callables(lambda x: (x.sin(), x.detach() * 2), (torch.randn(3, device="cuda", requires_grad=True),))
    x = torch.ones(3, device="cuda", requires_grad=True)
    out, still = function(x)
    out.sum().backward()
    assert not still.requires_grad and torch.allclose(x.grad, x.detach().cos())
    first.train()
    assert first(sample).grad_fn.name() != "GraphedBackward"
    with pytest.raises(TypeError, match="must contain only Tensors"):
        torch.cuda.make_graphed_callables(lambda x: x, (3,))
    hooked = nn.Linear(2, 2).cuda()
    hooked.register_forward_hook(lambda *args: None)
    with pytest.raises(AssertionError, match="must not have hooks"):
        torch.cuda.make_graphed_callables(hooked, (torch.ones(1, 2, device="cuda"),))


def test_what_a_replay_is_given_has_memory_of_its_own(monkeypatch):
    "A replay begins by writing the optimiser's numbers and the places of random numbers: where an earlier line of the graph kept something, they would be overwritten before they are read."
    from autograd_nb.arrays import cupy_backend as backend

    made = []
    init = backend.Capture.__init__
    monkeypatch.setattr(backend.Capture, "__init__", lambda self, *args: init(self, *args) or made.append(self))
    numbers = backend.Capture.numbers
    monkeypatch.setattr(backend.Capture, "numbers", lambda self, *args: given.append(numbers(self, *args)) or given[-1])
    given = []
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).to("cuda"), torch.ones(2, 3, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, capturable=True)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        model(x).sum().backward()
        optimizer.step()
    (capture,) = made
    given += [place[2] for place in capture.chance.values()]
    assert len(given) >= 2 and all(a.data.mem.pool is strict.pool for a in given)
    assert capture.pool is not strict.pool and capture.pool.used_bytes()
