"""Files: what is saved comes back, PyTorch's library reads and writes them too, and nothing in them is ever run."""

import io
import json
import mmap
import os
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import autograd_nb as torch_nb
from autograd_nb import nn
from autograd_nb.nn.parameter import Parameter

t = torch_nb
DTYPES = "float16 bfloat16 float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()


def there_and_back(obj, format="safetensors", **options):
    file = io.BytesIO()
    t.save(obj, file, format=format)
    file.seek(0)
    return t.load(file, **options)


def same(a, b):
    if isinstance(a, t.Tensor):
        assert type(a) is type(b) and a.dtype is b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        np.testing.assert_array_equal(a.detach().view(t.uint8 if a.dtype is t.bool else a.dtype).tolist(), b.detach().tolist())
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for k in a:
            same(a[k], b[k])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert type(a) is type(b) and (a == b or a != a and b != b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_every_dtype(dtype, shape, tmp_path):
    a = t.arange(int(np.prod(shape))).reshape(shape).to(getattr(t, dtype))
    path = tmp_path / "a.safetensors"
    t.save(a, path)
    for back in (t.load(path), t.load(str(path), mmap=True), there_and_back(a), there_and_back({"x": [a]})["x"][0]):
        same(a, back)
        back.fill_(1)  # what is loaded can be written into


def test_structures():
    shared = t.randn(2)
    obj = {
        "model": OrderedDict(a=shared, b=Parameter(t.ones(2))),
        "optimizer": {"state": {0: {"step": t.tensor(3.0), "exp_avg": t.zeros(2)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1], "fused": None, "nested": [[(1,)], {}]}]},
        "epoch": 3, "best": float("inf"), "worst": float("nan"), "note": "text – ü", "flag": True, 7: "seven", (1, 2): "pair", None: 0,
        "c": 1 + 2j, "bytes": b"\x00\xff", "set": {1, 2}, "size": t.Size([2, 3]), "dtype": t.bfloat16, "array": np.arange(3), "number": np.float32(2.5), "odd": {"!": "tensor"}, "wants": t.ones(1, requires_grad=True),
    }
    back = there_and_back(obj)
    assert back["set"] == {1, 2} and back["dtype"] is t.bfloat16
    for left in (obj, back):
        del left["set"], left["dtype"]
    same(obj, back)
    for plain in (3, None, "x", [], {}, (), 2.5):
        same(plain, there_and_back(plain))


def test_memory_is_shared_again():
    w = t.randn(4, 3)
    back = there_and_back({"a": w, "b": w, "row": w[1], "T": w.T, "part": w[1:, :2], "other": t.randn(2)})
    assert back["a"] is back["b"]
    back["a"][1, 0] = 7.0
    assert back["row"][0].item() == 7 and back["T"][0, 1].item() == 7 and back["part"][0, 0].item() == 7
    same(there_and_back(w[:, 1]), w[:, 1])
    same(there_and_back(w.T), w.T)


def test_tied_weights_stay_tied_and_others_find_both(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    path = tmp_path / "tied.safetensors"
    t.save(Tied().state_dict(), path)
    state = t.load(path)
    model = Tied()
    model.load_state_dict(state)
    assert model.head.weight is model.embedding.weight
    state["embedding.weight"][0, 0] = 5.0
    assert state["head.weight"][0, 0].item() == 5
    import safetensors.numpy

    assert set(safetensors.numpy.load_file(path)) == {"embedding.weight", "head.weight"}


def test_training_goes_on(tmp_path):
    def fresh():
        t.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = t.optim.Adam(model.parameters(), lr=0.05)
        return model, optimizer, t.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    x = t.randn(8, 3)

    def train(model, optimizer, schedule, steps):
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return losses

    whole = train(*fresh(), 10)
    parts = fresh()
    first = train(*parts, 4)
    t.save([p.state_dict() for p in parts], tmp_path / "c")
    resumed = fresh()
    for p, state in zip(resumed, t.load(tmp_path / "c", weights_only=True)):
        p.load_state_dict(state)
    assert first + train(*resumed, 6) == whole


def test_several_in_one_file():
    file = io.BytesIO()
    t.save({"a": t.ones(2)}, file, format="safetensors")
    t.save([t.zeros(3), 5], file, format="safetensors")
    file.seek(0)
    same(t.load(file), {"a": t.ones(2)})
    same(t.load(file), [t.zeros(3), 5])


@pytest.mark.needs("torch")
def test_pytorch_reads_and_writes_them(tmp_path):
    import safetensors.torch as other
    import torch

    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    ours = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    other.save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours.load_state_dict(t.load(tmp_path / "theirs.safetensors"))
    x = torch.randn(5, 4)
    np.testing.assert_allclose(ours(t.tensor(x.tolist())).tolist(), theirs(x).tolist(), rtol=1e-5, atol=1e-6)
    for p in ours.parameters():
        p.data.mul_(2)
    t.save(ours.state_dict(), tmp_path / "ours.safetensors")
    theirs.load_state_dict(other.load_file(tmp_path / "ours.safetensors"))
    np.testing.assert_allclose(ours(t.tensor(x.tolist())).tolist(), theirs(x).tolist(), rtol=1e-5, atol=1e-6)
    everything = {d: torch.arange(4).to(getattr(torch, d)) for d in DTYPES if d != "complex128"}
    other.save_file(everything, tmp_path / "all")
    for d, a in t.load(tmp_path / "all").items():
        assert str(a.dtype) == f"torch.{d}" and a.tolist() == everything[d].tolist()
    t.save({d: t.arange(4).to(getattr(t, d)) for d in everything}, tmp_path / "all")
    for d, a in other.load_file(tmp_path / "all").items():
        assert str(a.dtype) == f"torch.{d}" and a.tolist() == everything[d].tolist()


class Evil:
    def __reduce__(self):
        return os.system, ("echo run > was_run",)


@pytest.mark.parametrize("weights_only", [True, False])
def test_pickles_are_refused_and_not_run(tmp_path, monkeypatch, weights_only):
    monkeypatch.chdir(tmp_path)
    for protocol in (0, 2, 4):
        with open("evil", "wb") as f:
            pickle.dump(Evil(), f, protocol)
        with pytest.raises((RuntimeError, pickle.UnpicklingError), match="not a safetensors file|module posix is blocked"):
            t.load("evil", weights_only=weights_only)
    assert not os.path.exists("was_run")


def bent(change):
    file = io.BytesIO()
    t.save({"a": t.ones(4), "b": t.zeros(2)}, file, format="safetensors")
    raw = file.getvalue()
    n = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + n])
    data = change(table, raw[8 + n :])
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head + data


BROKEN = {
    "empty": lambda: b"",
    "short": lambda: b"\x01\x02",
    "text": lambda: b"hello, this is not what you want",
    "table cut off": lambda: bent(lambda table, data: data)[:50],
    "numbers cut off": lambda: bent(lambda table, data: data[:-1]),
    "overlap": lambda: bent(lambda table, data: (table["b"].update(data_offsets=[0, 8]), data)[1]),
    "beyond": lambda: bent(lambda table, data: (table["a"].update(shape=[10**9], data_offsets=[0, 4 * 10**9]), data)[1]),
    "negative": lambda: bent(lambda table, data: (table["a"].update(shape=[-4]), data)[1]),
    "unknown dtype": lambda: bent(lambda table, data: (table["a"].update(dtype="F8_E4M3"), data)[1]),
    "list": lambda: (4).to_bytes(8, "little") + b"[1] ",
    "huge": lambda: (10**15).to_bytes(8, "little") + b"{}",
    "strides": lambda: bent(lambda table, data: (table["__metadata__"].update(autograd_nb=json.dumps({"shape": {"!": "tensor", "name": "b"}, "views": {"b": ["a", 3, [5]]}})), data)[1]),
    "unknown kind": lambda: bent(lambda table, data: (table["__metadata__"].update(autograd_nb=json.dumps({"shape": {"!": "call", "name": "os.system"}, "views": {}})), data)[1]),
    "unknown name": lambda: bent(lambda table, data: (table["__metadata__"].update(autograd_nb=json.dumps({"shape": {"!": "tensor", "name": "z"}, "views": {}})), data)[1]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_files_are_refused(how, tmp_path):
    raw = BROKEN[how]()
    with pytest.raises(RuntimeError, match="not a safetensors file"):
        t.load(io.BytesIO(raw))
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(RuntimeError, match="not a safetensors file"):
        t.load(tmp_path / "f", mmap=True)


def test_what_cannot_be_saved():
    for obj, said in ((nn.Linear(1, 1), "Save its state_dict"), (object(), "objects of type object"), ({"a": [lambda: 0]}, "at a.0"), (t.optim.SGD([t.ones(1, requires_grad=True)]), "state_dict")):
        with pytest.raises(TypeError, match=said):
            t.save(obj, io.BytesIO(), format="safetensors")
    with pytest.raises(AttributeError, match="expected 'f' to be string, path, or a file-like object"):
        t.save(t.ones(1), 3)
    with pytest.raises(FileNotFoundError):
        t.load("there is no such file")
    with pytest.raises(ValueError, match="mmap"):
        t.load(io.BytesIO(), mmap=True)


def test_map_location(tmp_path):
    a = t.ones(2)
    for where in ("cpu", t.device("cpu"), {"cuda:0": "cpu"}, lambda tensor, location: tensor):
        same(there_and_back(a, map_location=where), a)
    assert there_and_back(a, map_location=lambda tensor, location: tensor + 1).tolist() == [2, 2]


def test_mapped_numbers_stay_in_the_file(tmp_path):
    path = tmp_path / "big"
    t.save({"w": t.zeros(1000)}, path)
    w = t.load(path, mmap=True)["w"]
    w[0] = 1.0
    assert t.load(path)["w"][0].item() == 0 and w[0].item() == 1


@pytest.mark.parametrize("name", ["big", "big.pt"])
def test_writes_to_mapped_numbers_may_go_into_the_file(name, tmp_path):
    path = tmp_path / name
    t.save({"w": t.zeros(1000)}, path)
    with t.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        w = t.load(path, mmap=True)["w"]
    w[0] = 1.0
    del w
    w = t.load(path, mmap=True)["w"]
    w[1] = 1.0
    assert t.load(path, mmap=True)["w"][:2].tolist() == [1, 0]  # a checksum would no longer hold


def test_order_of_bytes_where_a_file_does_not_say_it(tmp_path):
    "An archive without its record of the order, whose numbers stand in the other one."
    path, other = tmp_path / "a.pt", tmp_path / "b.pt"
    t.save(t.arange(3, dtype=t.int32), path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("/data/0"):
                data = np.frombuffer(data, "<i4").astype(">i4").tobytes()
            if not name.endswith("byteorder"):
                new.writestr(name, data)
    orders = t.serialization.LoadEndianness
    try:
        t.serialization.set_default_load_endianness(orders.BIG)
        assert t.load(other).tolist() == [0, 1, 2]
    finally:
        t.serialization.set_default_load_endianness(None)
    assert t.load(other).tolist() == [0, 1 << 24, 2 << 24] and t.load(path).tolist() == [0, 1, 2]


def test_every_length_of_table_is_read():
    "One file in 32 begins with the byte of a pickle: the length of its table."
    for k in range(0, 300, 3):
        file = io.BytesIO()
        t.save({"a" * (k + 1): t.ones(2)}, file)
        file.seek(0)
        assert list(t.load(file)) == ["a" * (k + 1)]


def test_arguments_that_are_refused_and_what_comes_back():
    file = io.BytesIO()
    for protocol, error in ((pickle.HIGHEST_PROTOCOL + 1, ValueError), ("a", TypeError)):
        with pytest.raises(error): torch_nb.save(torch_nb.ones(1), file, pickle_protocol=protocol)
    torch_nb.save([bytearray(b"ab"), b"ab"], file)
    raw = file.getvalue()
    assert [type(x) for x in torch_nb.load(io.BytesIO(raw))] == [bytearray, bytes]
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        torch_nb.load(io.BytesIO(raw), weights_only=False, other=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'errors'"):
        with pytest.warns(UserWarning, match="pickle_load_args"):
            torch_nb.load(io.BytesIO(raw), weights_only=True, errors="strict")


@pytest.mark.parametrize("format", ["pt", "safetensors"])
def test_places_that_are_none_and_hooks_that_are_lost(format):
    file, w = io.BytesIO(), torch_nb.ones(2, requires_grad=True)
    w.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="backward hook .* on tensor will not be serialized"):
        torch_nb.save(w, file, format=format)
    raw = file.getvalue()
    for place in (3, lambda storage, location: 3):
        with pytest.raises(TypeError): torch_nb.load(io.BytesIO(raw), map_location=place)
    for place in (lambda storage, location: None, lambda storage, location: storage):
        assert torch_nb.load(io.BytesIO(raw), map_location=place).tolist() == [1, 1]


SHARED_MEMORY = """
[x[:2], x[2:]]
{"a": x[1:], "b": x[:0]}
[x.t(), x[None].expand(2, 4)]
[c.conj(), c]
[c.conj().imag]
[torch.nn.Parameter(x), x]
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("call", SHARED_MEMORY.strip().splitlines())
def test_an_open_file_holds_what_pytorch_writes(call):
    "Whoever reads it, PyTorch or this library, finds the same memory under the tensors."
    import torch

    def facts(lib, raw):
        found = lib.load(io.BytesIO(raw))
        found = list(found.values()) if isinstance(found, dict) else found
        first = found[0].untyped_storage().data_ptr()
        return [(x.tolist(), x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), x.is_conj(), x.is_neg(), x.untyped_storage().data_ptr() == first) for x in found]

    raws = []
    for lib in (torch, t):
        file = io.BytesIO()
        lib.save(eval(call, {"torch": lib, "x": lib.arange(4.0), "c": lib.tensor([1 + 2j, 3j])}), file)
        raws.append(file.getvalue())
    expected = facts(torch, raws[0])
    assert facts(torch, raws[1]) == facts(t, raws[0]) == facts(t, raws[1]) == expected
