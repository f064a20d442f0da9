"""Stores beside PyTorch's, and over processes."""

import json
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autograd_nb.distributed as dist

KEYS, VALUES = st.sampled_from(["a", "b", "c"]), st.binary(max_size=4)
NUMBERS = st.integers(-5, 5)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES), st.tuples(st.just("append"), KEYS, VALUES), st.tuples(st.just("delete_key"), KEYS), st.tuples(st.just("check"), st.lists(KEYS, max_size=2)),
    st.tuples(st.just("num_keys")), st.tuples(st.just("compare_set"), KEYS, VALUES, VALUES), st.tuples(st.just("add"), st.sampled_from(["n", "m"]), NUMBERS),
    st.tuples(st.just("list_keys")), st.tuples(st.just("queue_push"), st.just("q"), VALUES), st.tuples(st.just("queue_len"), st.just("q")), st.tuples(st.just("multi_get"), st.just(["n"])),
)


def transcript(store, steps):
    store.set("n", "1")
    out = []
    for name, *arguments in steps:
        result = getattr(store, name)(*arguments)
        out.append(sorted(result) if name == "list_keys" else result)
    return out


@pytest.mark.needs("torch")
@given(st.lists(STEPS, max_size=12))
def test_does_what_pytorch_does(steps):
    import torch.distributed as theirs

    assert transcript(dist.HashStore(), steps) == transcript(theirs.HashStore(), steps)


@given(steps=st.lists(STEPS, max_size=12))
def test_all_stores_are_alike(tmp_path_factory, steps):
    server = dist.TCPStore("localhost", 0, is_master=True)
    file = tmp_path_factory.mktemp("store") / "table"
    expected = transcript(dist.HashStore(), steps)
    assert transcript(dist.TCPStore("localhost", server.port), steps) == expected
    assert transcript(dist.FileStore(file, 1), steps) == expected
    other = dist.HashStore()
    assert transcript(dist.PrefixStore("x", other), [s for s in steps if s[0] not in ("num_keys", "list_keys")]) == transcript(dist.HashStore(), [s for s in steps if s[0] not in ("num_keys", "list_keys")])
    assert all(key.startswith("x/") for key in other.list_keys())


def test_waits_for_others():
    store = dist.TCPStore("localhost", 0, is_master=True)
    threading.Timer(0.1, lambda: dist.TCPStore("localhost", store.port).set("late", "now")).start()
    assert store.get("late") == b"now"
    with pytest.raises(dist.DistStoreError, match="wait timeout after 50ms, keys: never"):
        store.wait(["never"], timedelta(seconds=0.05))
    with pytest.raises(dist.DistStoreError, match="trying to connect"):
        dist.TCPStore("localhost", 1, timeout=timedelta(seconds=0.1))


def test_processes_count_together(tmp_path):
    "Eight processes at a file and at a socket: no step is lost."
    server = dist.TCPStore("localhost", 0, is_master=True)
    source = f"""
import sys, autograd_nb.distributed as d
for store in (d.FileStore({str(tmp_path / "table")!r}), d.TCPStore("localhost", {server.port})):
    for _ in range(25): store.add("n", 1)
    store.barrier("end", 4)
"""
    running = [subprocess.Popen([sys.executable, "-c", source]) for _ in range(4)]
    assert [p.wait(100) for p in running] == [0] * 4
    assert dist.FileStore(tmp_path / "table").get("n") == server.get("n") == b"100"


def test_answers_only_its_own_questions():
    "Whoever connects can take the table's steps and nothing else; nonsense ends no server."
    server = dist.TCPStore("localhost", 0, is_master=True)
    with socket.create_connection(("localhost", server.port)) as connection:
        answers = connection.makefile("rb")
        for question in (b"nonsense\n", b'["__class__"]\n', b'["__init__"]\n', b'["fetch"]\n', b'{"put": 1}\n', b"\xff\xfe\n"):
            connection.sendall(question)
            assert "error" in json.loads(answers.readline())
    assert server.num_keys() == 0 and server.add("n", 1) == 1
    with pytest.raises(TypeError, match="str or bytes"):
        server.set("a", 3)
