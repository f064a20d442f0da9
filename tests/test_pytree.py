"Nested containers: paths, written specs, dataclasses and constants, beside PyTorch where it is installed."

import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest

import autograd_nb as torch
import autograd_nb.utils._pytree as pytree

Point = namedtuple("Point", "x y")
TREES = [
    {"a": [1, (2, 3)], "b": Point(1, 2)},
    (),
    [None, 1],
    5,
    deque([1, 2], maxlen=3),
    defaultdict(int, {1: 2}),
    OrderedDict(x=1, y=[2]),
    [1, {"k": (2,)}],
]


def described(lib, size):
    "What a library says of the trees above."
    lines = []
    for tree in [*TREES, size]:
        spec = lib.tree_structure(tree)
        lines += [repr(spec), lib.treespec_pprint(spec), repr(lib.tree_flatten_with_path(tree)), [lib.keystr(k) for k, _ in lib.tree_leaves_with_path(tree)]]
        lines.append(repr(lib.tree_map_with_path(lambda k, v, w: (lib.keystr(k), v, w), tree, tree)))
        if not isinstance(tree, dict) or "b" not in tree:
            lines += [lib.treespec_dumps(spec), lib.treespec_loads(lib.treespec_dumps(spec)) == spec]
    lines += [repr(lib.treespec_tuple([lib.treespec_leaf(), lib.tree_structure([1])])), repr(lib.treespec_dict(a=lib.treespec_leaf()))]
    lines += [lib.tree_map_only(int | float, lambda v: -v, [1, "a", 2.0]), lib.arg_tree_leaves([1], a=2), lib.tree_structure([1, 2]).flatten_up_to([(1,), [2]])]
    return lines


def complaints(lib):
    "The errors that a library raises."
    spec, found = lib.tree_structure([1, 2]), []
    for wrong in (
        lambda: lib.tree_map(lambda x, y: 0, [1, 2], [1]),
        lambda: lib.tree_map(lambda x, y: 0, {"a": 1}, {"b": 1}),
        lambda: lib.tree_map(lambda x, y: 0, [1], (1,)),
        lambda: lib.tree_unflatten([1], spec),
        lambda: lib.tree_unflatten([1], 3),
        lambda: lib.tree_map_only(3, abs, [1]),
        lambda: lib.treespec_dumps(3),
        lambda: lib.treespec_dumps(spec, -1),
        lambda: lib.treespec_loads(json.dumps([1, {"type": "unheard.of", "context": "null", "children_spec": []}])),
        lambda: lib.register_pytree_node(list, None, None),
    ):
        try:
            wrong()
            found.append("nothing")
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def test_trees_are_described_as_in_pytorch():
    theirs = pytest.importorskip("torch")
    import torch.utils._pytree as other

    assert described(pytree, torch.Size([2, 3])) == described(other, theirs.Size([2, 3]))
    assert complaints(pytree) == complaints(other)


def test_paths_lead_to_the_leaves():
    for tree in TREES:
        for path, leaf in pytree.tree_leaves_with_path(tree):
            assert pytree.key_get(tree, path) is leaf
    assert pytree.keystr(pytree.tree_leaves_with_path({"a": [Point(1, 2)]})[1][0]) == "['a'][0].y"


def test_dataclasses_and_constants():
    @dataclass
    class Pair:
        left: int
        right: int = None

    @dataclass(frozen=True)
    class Name:
        text: str

    pytree.register_dataclass(Pair)
    pytree.register_constant(Name)
    assert pytree.tree_map(lambda v: v + 1, Pair(1, 2)) == Pair(2, 3) and pytree.tree_map(lambda v: v + 1, Pair(1)) == Pair(2)
    assert pytree.tree_leaves([Name("a"), 1]) == [1] and pytree.tree_map(lambda v: -v, [Name("a"), 1]) == [Name("a"), -1]
    assert pytree.tree_structure(Name("a")) != pytree.tree_structure(Name("b")) and pytree.is_constant_class(Name)
    with pytest.raises(TypeError, match="non-default `__eq__`"):
        pytree.register_constant(type("Plain", (), {}))
    with pytest.raises(ValueError, match="already registered"):
        pytree.register_dataclass(Pair)


def test_named_tuples_are_written_down_under_their_registered_name():
    Local = namedtuple("Local", "x")
    with pytest.raises(NotImplementedError, match="namedtuple"):
        pytree.treespec_dumps(pytree.tree_structure(Local(1)))
    pytree._register_namedtuple(Local, serialized_type_name="test.Local")
    spec = pytree.tree_structure([Local(1), 2])
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_containers_without_keys_say_so():
    class Box:
        def __init__(self, v):
            self.v = v

    pytree.register_pytree_node(Box, lambda b: ([b.v], None), lambda v, c: Box(*v))
    assert pytree.tree_leaves([Box([1, 2])]) == [1, 2]
    with pytest.raises(ValueError, match="Did not find a flatten_with_keys_fn"):
        pytree.tree_flatten_with_path(Box(1))
    with pytest.raises(NotImplementedError, match="No registered serialization name"):
        pytree.treespec_dumps(pytree.tree_structure(Box(1)))
