"""Data sets, samplers and the loader: PyTorch's order of examples and random numbers, batches and errors."""

import random
import warnings

import numpy as np
import pytest
from _compare import assert_same_output
from hypothesis import given
from hypothesis import strategies as st

import autograd_nb
from autograd_nb.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, Subset, TensorDataset, default_collate, random_split

PROGRAMS = r'''
### shuffled batches
D = torch.utils.data; ds = D.TensorDataset(torch.arange(10.), torch.arange(10) * 2)
for epoch in range(2):
    for x, y in D.DataLoader(ds, batch_size=3, shuffle=True): print(x, y)
print(torch.rand(2))

### layout of batches
D = torch.utils.data; x = torch.arange(96.).view(3, 2, 4, 4).to(memory_format=torch.channels_last)
for batch, turned in D.DataLoader(D.TensorDataset(x, x.transpose(1, 3)), batch_size=2): print(batch.stride(), turned.stride(), batch.sum())

### a generator
D = torch.utils.data; g = torch.Generator().manual_seed(7); loader = D.DataLoader(list(range(11)), batch_size=4, shuffle=True, generator=g, drop_last=True)
print([b.tolist() for b in loader], [b.tolist() for b in loader], len(loader), torch.rand(1))

### in order
D = torch.utils.data
print([b.tolist() for b in D.DataLoader(range(5), batch_size=2)], [b.tolist() for b in D.DataLoader(range(5), batch_size=2, drop_last=True)], [b for b in D.DataLoader(range(3), batch_size=None)], torch.rand(1))

### splits
D = torch.utils.data; ds = D.TensorDataset(torch.arange(10.))
a, b = D.random_split(ds, [7, 3]); print(a.indices, b.indices, len(a), a[0], a[[0, 1]])
a, b, c = D.random_split(range(10), [0.5, 0.25, 0.25], generator=torch.Generator().manual_seed(1)); print(list(a), list(b), list(c))
for batch in D.DataLoader(a, batch_size=2, shuffle=True): print(batch)
attempt(lambda: D.random_split(ds, [1, 2])); attempt(lambda: D.random_split(ds, [0.5, -0.5, 1.0]))

### samplers
D = torch.utils.data
print(list(D.RandomSampler(range(8))), list(D.RandomSampler(range(4), replacement=True, num_samples=40)), list(D.RandomSampler(range(4), num_samples=10)), list(D.SequentialSampler(range(3))), list(D.SubsetRandomSampler([3, 5, 9])))
print(list(D.BatchSampler(D.SequentialSampler(range(7)), 3, False)), len(D.BatchSampler(D.SequentialSampler(range(7)), 3, True)))
print([b.tolist() for b in D.DataLoader(range(6), batch_sampler=D.BatchSampler(D.RandomSampler(range(6)), 2, False))], [b.tolist() for b in D.DataLoader(range(6), sampler=D.SubsetRandomSampler([1, 3, 5]), batch_size=2)])

### collating
D = torch.utils.data; c = D.default_collate
from collections import namedtuple
P = namedtuple('P', 'a b')
print(c([1, 2]), c([1., 2.]), c([True, False]), c(['a', 'b']), c([torch.ones(2), torch.zeros(2)]), c([np.ones(2), np.zeros(2)]), c([np.float32(1), np.float32(2)]))
print(c([(1, 2.), (3, 4.)]), c([[1, 2], [3, 4]]), c([{'a': 1, 'b': torch.ones(1)}, {'a': 2, 'b': torch.zeros(1)}]), c([P(1, 2.), P(3, 4.)]), c([((1, 2), 'x'), ((3, 4), 'y')]), c([torch.tensor(1), torch.tensor(2)]))
attempt(lambda: c([object(), object()])); attempt(lambda: c([torch.ones(1), torch.ones(2)])); attempt(lambda: c([[1], [1, 2]]))

### a data set of one's own
D = torch.utils.data
class Squares(D.Dataset):
    def __len__(self): return 6
    def __getitem__(self, i): return torch.tensor([float(i)]), i * i
for x, y in D.DataLoader(Squares(), batch_size=4): print(x, y)
both = Squares() + Squares(); print(len(both), both[7], both[-1]); attempt(lambda: both[-99])
print(next(iter(D.DataLoader(Squares(), batch_size=3, collate_fn=lambda batch: len(batch)))), D.Subset(Squares(), [4, 2])[1])
class Stream(D.IterableDataset):
    def __iter__(self): return iter(range(5))
print([b.tolist() for b in D.DataLoader(Stream(), batch_size=2)], [b.tolist() for b in D.DataLoader(Stream(), batch_size=2, drop_last=True)])

### collating in one's own way
from torch.utils.data._utils.collate import collate
D = torch.utils.data
print(collate([1, 2], collate_fn_map={int: lambda b, collate_fn_map=None: sum(b)}), collate([(1, [2.]), (3, [4.])], collate_fn_map={(int, float): lambda b, collate_fn_map=None: max(b)}), collate([{'a': True}, {'a': False}], collate_fn_map={int: lambda b, collate_fn_map=None: list(b)}))
attempt(lambda: collate([1, 2])); print(D.default_collate([np.str_('a'), np.str_('b')]), D.default_collate([np.float64(1), np.float64(2)]), D.default_collate([torch.nn.Parameter(torch.ones(1))] * 2).shape)
attempt(D.IterableDataset)

### bad arguments
D = torch.utils.data; r = range(4)
for f in (lambda: D.DataLoader(r, batch_size=0), lambda: D.DataLoader(r, batch_size=2.5), lambda: D.DataLoader(r, shuffle=True, sampler=D.SequentialSampler(r)), lambda: D.DataLoader(r, batch_size=2, batch_sampler=D.BatchSampler(D.SequentialSampler(r), 2, False)),
          lambda: D.DataLoader(r, num_workers=-1), lambda: D.DataLoader(r, batch_size=None, drop_last=True), lambda: D.RandomSampler(r, replacement=1), lambda: D.RandomSampler(r, num_samples=0), lambda: D.DataLoader([], shuffle=True),
          lambda: D.TensorDataset(torch.ones(2), torch.ones(3)), lambda: D.Dataset()[0], lambda: D.BatchSampler(D.SequentialSampler(r), 2, 1)): attempt(f)

### a whole training run
D = torch.utils.data; x = torch.randn(50, 4); y = (x.sum(1) > 0).long(); train, test = D.random_split(D.TensorDataset(x, y), [40, 10])
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2)); opt = torch.optim.AdamW(net.parameters(), lr=0.02); sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, epochs=4, steps_per_epoch=5)
for epoch in range(4):
    total = 0.
    for xb, yb in D.DataLoader(train, batch_size=8, shuffle=True):
        opt.zero_grad(); loss = torch.nn.functional.cross_entropy(net(xb), yb); loss.backward(); opt.step(); sched.step(); total += loss.item()
    print(total)
net.eval()
with torch.no_grad(): print(sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in D.DataLoader(test, batch_size=4)) / len(test))
'''


def programs(text):
    for part in text.split("### ")[1:]:
        name, _, source = part.partition("\n")
        yield pytest.param(source, id=name.replace(" ", "-"))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("source", list(programs(PROGRAMS)))
def test_program_prints_the_same(source):
    import torch.utils.data  # noqa: F401

    assert_same_output(source)


@given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.booleans())
def test_every_example_comes_once(n, size, shuffle, drop_last):
    loader = DataLoader(range(n), batch_size=size, shuffle=shuffle, drop_last=drop_last)
    batches = [b.tolist() for b in loader]
    assert len(batches) == len(loader)
    seen = [i for b in batches for i in b]
    assert len(seen) == len(set(seen)) == (n // size * size if drop_last else n)
    assert all(len(b) == size for b in batches[:-1])


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 9))
def test_cutting_batches_at_once_changes_nothing(n, size, seed):
    "A set of tensors is cut by index lists; any other set example by example. Both give the same batches."

    class Slow(Dataset):
        def __init__(self, inner):
            self.inner = inner

        def __len__(self):
            return len(self.inner)

        def __getitem__(self, i):
            return self.inner[i]

    tensors = TensorDataset(autograd_nb.arange(2.0 * n).reshape(n, 2), autograd_nb.arange(n))
    for ds in (tensors, Subset(tensors, list(range(n))[::-1])):
        runs = []
        for source in (ds, Slow(ds)):
            autograd_nb.manual_seed(seed)
            runs.append([[t.tolist() for t in batch] for batch in DataLoader(source, batch_size=size, shuffle=True)])
        assert runs[0] == runs[1]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 9))
def test_split_is_a_partition(lengths, seed):
    n = sum(lengths)
    parts = random_split(range(n), lengths, generator=autograd_nb.Generator().manual_seed(seed))
    assert [len(p) for p in parts] == lengths
    assert sorted(i for p in parts for i in p) == list(range(n))


def test_batches_do_not_share_memory_with_the_data():
    x = autograd_nb.zeros(4, 2)
    batch = next(iter(DataLoader(TensorDataset(x), batch_size=4)))[0]
    batch += 1
    assert not x.any()


def test_workers_are_accepted():
    loader = DataLoader(range(4), batch_size=2, num_workers=2, pin_memory=False, persistent_workers=True, prefetch_factor=2)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]]


def test_imports_as_in_pytorch():
    from autograd_nb import nn, optim  # noqa: F401
    from autograd_nb.optim.lr_scheduler import StepLR  # noqa: F401


def test_samplers_have_lengths():
    assert len(RandomSampler(range(5))) == len(SequentialSampler(range(5))) == 5
    assert len(BatchSampler(SequentialSampler(range(5)), 2, True)) == 2


def test_collating_arrays_keeps_their_dtype():
    assert default_collate([np.ones(2, np.float32)] * 3).dtype is autograd_nb.float32


class Numbers(autograd_nb.utils.data.Dataset):
    "Example i knows its worker and draws a random number there."

    def __init__(self, n=10, fail=None):
        self.n, self.fail = n, fail

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == self.fail:
            raise ValueError(f"example {i} is broken")
        info = autograd_nb.utils.data.get_worker_info()
        return i, -1 if info is None else info.id, autograd_nb.rand(1).item()


class Stream(autograd_nb.utils.data.IterableDataset):
    "Divides its numbers among the workers."

    def __init__(self, n=10):
        self.n = n

    def __iter__(self):
        info = autograd_nb.utils.data.get_worker_info()
        return iter(range(self.n)) if info is None else iter(range(info.id, self.n, info.num_workers))


def loaded(*args, **options):
    return list(autograd_nb.utils.data.DataLoader(*args, **options))


def test_workers_load_the_same_batches():
    for options in (dict(batch_size=3), dict(batch_size=3, shuffle=True), dict(batch_size=4, drop_last=True), dict(batch_size=None)):
        autograd_nb.manual_seed(5)
        alone = loaded(Numbers(), **options)
        autograd_nb.manual_seed(5)
        together = loaded(Numbers(), num_workers=2, **options)
        first = [np.asarray(b[0]).tolist() for b in alone]
        assert [np.asarray(b[0]).tolist() for b in together] == first
        assert {w for b in together for w in np.atleast_1d(np.asarray(b[1])).tolist()} == {0, 1}


def test_workers_have_seeds_of_their_own():
    autograd_nb.manual_seed(1)
    a = loaded(Numbers(4), num_workers=2)
    autograd_nb.manual_seed(1)
    b = loaded(Numbers(4), num_workers=2)
    drawn = [x[2].item() for x in a]
    assert drawn == [x[2].item() for x in b] and len(set(drawn)) == 4


@pytest.mark.needs("torch")
def test_workers_draw_what_pytorchs_draw():
    "The seeds of the workers are PyTorch's, too."
    import torch

    class Draw(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.rand(1).item()

    torch.manual_seed(7)
    theirs = [b.item() for b in torch.utils.data.DataLoader(Draw(), num_workers=2)]
    autograd_nb.manual_seed(7)
    assert [b[2].item() for b in loaded(Numbers(4), num_workers=2)] == theirs


@pytest.mark.needs("torch")
def test_workers_draw_what_pytorchs_draw_with_numpy_and_random():
    import torch

    def drawn(torch):
        class Draw(torch.utils.data.Dataset):
            def __len__(self): return 4

            def __getitem__(self, i): return torch.tensor([np.random.rand(), random.random()], dtype=torch.float64)

        torch.manual_seed(2**40 + 7)
        return [b.tolist() for b in torch.utils.data.DataLoader(Draw(), num_workers=2)]

    assert drawn(autograd_nb) == drawn(torch)


def test_streams_are_shared_out():
    assert sorted(x for b in loaded(Stream(), batch_size=2, num_workers=2) for x in b.tolist()) == list(range(10))
    assert [b.tolist() for b in loaded(Stream(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    d = autograd_nb.utils.data
    both = Stream(2) + Stream(3)
    assert isinstance(both, d.ChainDataset) and [x.item() for x in loaded(both)] == [0, 1, 0, 1, 2]


def test_persistent_and_unordered_workers():
    loader = autograd_nb.utils.data.DataLoader(Numbers(7), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=1)
    epochs = [[b[0].tolist() for b in loader] for _ in range(3)]
    assert epochs == [[[0, 1], [2, 3], [4, 5], [6]]] * 3
    assert len(loader._workers.processes) == 2
    found = loaded(Numbers(9), batch_size=2, num_workers=3, in_order=False)
    assert sorted(x for b in found for x in b[0].tolist()) == list(range(9))
    iterator = iter(autograd_nb.utils.data.DataLoader(Numbers(50), num_workers=2))
    next(iterator)  # an epoch may be broken off
    processes = iterator.processes
    del iterator
    assert not any(p.is_alive() for p in processes)


def test_workers_errors_are_told():
    with pytest.raises(ValueError, match=r"(?s)Caught ValueError in DataLoader worker process \d\.\nOriginal Traceback.*example 3 is broken"):
        loaded(Numbers(fail=3), num_workers=2)

    def init(number):
        raise KeyError("no such file")

    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker process") as caught:
        loaded(Numbers(), num_workers=1, worker_init_fn=init)
    assert "\nOriginal Traceback" in str(caught.value)  # line by line, though errors of keys show representations

    class Gone(Numbers):
        def __getitem__(self, i):
            import os

            os._exit(3)

    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"):
        loaded(Gone(), num_workers=1)

    class Slow(Numbers):
        def __getitem__(self, i):
            import time

            time.sleep(30)

    with pytest.raises(RuntimeError, match="DataLoader timed out after 1 seconds"):
        loaded(Slow(), num_workers=1, timeout=1)


@pytest.mark.needs("torch")
def test_loaders_options_are_checked():
    import torch

    lines = """
        DataLoader([1], num_workers=-1)
        DataLoader([1], timeout=-1)
        DataLoader([1], prefetch_factor=2)
        DataLoader([1], persistent_workers=True)
        DataLoader([1], num_workers=1, prefetch_factor=-1)
        DataLoader([1], multiprocessing_context='fork')
        DataLoader([1], num_workers=1, multiprocessing_context='x')
        DataLoader([1], num_workers=1, multiprocessing_context=3)
        DataLoader([1], sampler=[0], shuffle=True)
        DataLoader([1], batch_sampler=[[0]], batch_size=2)
        DataLoader([1], batch_size=None, drop_last=True)
        DataLoader([1], batch_size=0)
        DataLoader([], shuffle=True)
        DataLoader(ChainDataset([]), shuffle=True)
        DataLoader(ChainDataset([]), sampler=[1])
        setattr(DataLoader([1]), 'batch_size', 3)
        list(ChainDataset([[1]]))
        ConcatDataset([])
        ConcatDataset([ChainDataset([])])
        StackDataset()
        StackDataset([1], [1, 2])
        StackDataset([1], a=[1])
        TensorDataset(torch.ones(2), torch.ones(3))
        random_split([1, 2], [3])
        random_split([1, 2], [0.5, 0.7])
        BatchSampler([1], 0, False)
        BatchSampler([1], 1, 0)
        RandomSampler([1], replacement=0)
        RandomSampler([1], num_samples=-1)
        WeightedRandomSampler([1.], 0)
        WeightedRandomSampler([[1.]], 1)
        DistributedSampler([1, 2], 2, 3)
        default_collate([object()])
        default_collate([[1], [1, 2]])
        Dataset()[0]
    """
    for line in filter(None, map(str.strip, lines.splitlines())):
        said = []
        for t in (torch, autograd_nb):
            try:
                eval(line, {"torch": t, **vars(t.utils.data)})
            except Exception as error:
                said.append((type(error).__name__, str(error)))
            else:
                said.append(None)
        assert (said[0] is None) == (said[1] is None), line
        if said[0]:
            assert said[1][0] == said[0][0] and said[1][1][:40] == said[0][1][:40], (line, said)


@pytest.mark.needs("torch")
def test_shares_of_processes_that_train_together():
    import torch

    for options in (dict(), dict(shuffle=False), dict(drop_last=True), dict(seed=4)):
        for n in (10, 3, 1):
            for rank in range(3):
                found = []
                for t in (torch, autograd_nb):
                    sampler = t.utils.data.DistributedSampler(range(n), num_replicas=3, rank=rank, **options)
                    sampler.set_epoch(2)
                    found.append((list(sampler), len(sampler)))
                assert found[0] == found[1]


def test_examples_one_by_one_become_tensors():
    d = autograd_nb.utils.data
    one = loaded([{"a": np.ones(2), "b": ("x", np.float32(3))}], batch_size=None)[0]
    assert isinstance(one["a"], autograd_nb.Tensor) and one["b"][0] == "x" and isinstance(one["b"][1], autograd_nb.Tensor)
    assert d.default_convert([np.arange(2), "text", 3])[1:] == ["text", 3]


@pytest.mark.needs("torch")
def test_walks_and_subsets_as_in_pytorch():
    "A walk knows its length, a subset fetches several examples at once, and waiting needs workers."
    import torch as theirs

    for T in (autograd_nb, theirs):
        data = T.utils.data
        walk = iter(data.DataLoader(range(5), batch_size=2))
        assert len(walk) == 3 and iter(walk) is walk and next(walk).tolist() == [0, 1] and len(list(walk)) == 2
        part = data.Subset(data.TensorDataset(T.arange(7)), [3, 1, 2])
        assert [x.item() for (x,) in part.__getitems__([0, 2])] == [3, 2]

        class Many(list):
            def __getitems__(self, indices):
                return [10 * i for i in indices]

        batches = list(data.DataLoader(data.Subset(Many(range(9)), [4, 2, 1]), batch_size=2))
        assert [b.tolist() for b in batches] == [[40, 20], [10]]
        with pytest.raises(AssertionError, match="requires timeout == 0"):
            list(data.DataLoader(range(3), timeout=2))


@pytest.mark.needs("torch")
def test_a_data_set_that_is_longer_than_it_says():
    import torch as theirs

    said = []
    for T in (autograd_nb, theirs):

        class Longer(T.utils.data.IterableDataset):
            def __len__(self):
                return 2

            def __iter__(self):
                return iter(range(4))

            def __repr__(self):
                return "Longer()"

        loader = T.utils.data.DataLoader(Longer(), batch_size=None)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            list(loader)
            assert len(loader) == 2 and not found
            list(loader)
        said.append([str(w.message) for w in found])
    assert said[0] == said[1] and len(said[0]) == 2


def test_more_workers_than_processors():
    "The warning comes when the loader is made; no worker is started."
    import torch

    said = []
    for T in (torch, autograd_nb):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            T.utils.data.DataLoader([1, 2], num_workers=1)
            assert not found
            T.utils.data.DataLoader([1, 2], num_workers=100_000)
        said.append([(w.category, str(w.message)) for w in found])
    assert said[0] == said[1] and len(said[0]) == 1


@pytest.mark.needs("torch")
@pytest.mark.parametrize("options", [dict(batch_size=2), dict(batch_size=2, drop_last=True), dict(batch_size=None), dict(batch_size=2, num_workers=2), dict(batch_size=0), dict(batch_size=2.0)], ids=str)
def test_the_order_of_a_set_that_has_no_indices(options):
    import torch as theirs

    def made(T):
        class Walk(T.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(5))

        try:
            loader = T.utils.data.DataLoader(Walk(), **options)
        except ValueError as error:
            return str(error)
        own = loader.batch_sampler is not None and (type(loader.batch_sampler).__name__, loader.batch_sampler.batch_size, loader.batch_sampler.drop_last)
        return type(loader.sampler).__name__, own, loader.collate_fn.__name__, [b.tolist() if isinstance(b, T.Tensor) else b for b in loader]

    assert made(autograd_nb) == made(theirs)
