"""The floors of the library, from the ground up. A module may import only from its own floor and those below.

`tests/test_floors.py` holds every import to this; the documentation lists the library in this order.
"""

from typing import NamedTuple


class Floor(NamedTuple):
    title: str
    what: str  # one sentence for readers
    packages: tuple[str, ...]  # dotted names below autograd_nb; a name covers what is inside it


FLOORS = (
    Floor("Arrays", "The only place that knows which array library is underneath: dtypes, promotion, random numbers, memory.",
          ("arrays", "cpu")),
    Floor("Graph", "Nodes, edges, saved values and the engine that walks them backward.", ("graph",)),
    Floor("Layers", "One concern in each room, plugged into the engine: hooks, devices, half precision, transforms.", ("layers", "transforms")),
    Floor("Operations", "Every operation once, with its derivative beside it.", ("ops",)),
    Floor("Tensor", "The object users hold: creation, views, printing, methods.", ("tensor", "checks", "refused", "module_paths", "forms", "printing", "functions", "creation", "linalg", "special", "fft", "foreach", "overrides", "__future__", "cuda", "backends", "accelerator", "random", "settings", "storage", "types", "copies", "outputs", "masked", "signal", "argument_types", "signatures")),
    Floor("Autograd", "What users call to get gradients, extend them and observe them.", ("autograd", "capturing", "_C", "profiler", "func", "testing", "utils.checkpoint", "library")),
    Floor("Training", "Modules, losses, optimisers and data: ordinary users of the floors below.",
          ("nn", "optim", "amp", "utils", "cuda_graphs", "futures", "distributed", "distributions", "serialization", "pt_files", "_functorch", "functorch", "jit", "compiler", "_dynamo", "multiprocessing", "return_types", "low_level", "hub")),
    Floor("Seeing", "Graphs, tables and widgets that show the floors below at work.", ("viz", "widgets")),
)
ROOMS = {  # what a room (a folder of notebooks) is for, where the notebook of its package does not say so
    "arrays": "NumPy and CuPy behind one namespace: dtypes and promotion, random numbers, memory.",
    "graph": "The plain core: operations, nodes, and the walk back over them.",
    "graph/errors": "PyTorch's words, then what happened, where, and what to write instead: one kind of error a notebook.",
    "viz/doctor": "What the doctor is made of: it watches a step, draws conclusions, and puts everything back.",
    "tensor": "The class `Tensor`: how tensors are made and printed, and PyTorch's vocabulary of functions.",
    "tensor/functions": "Functions of tensors, one family a notebook, with PyTorch's signatures.",
    "tensor/methods": "What a tensor can do, one topic a notebook: views, writing in place, indexing, its place in the graph.",
    "pytorch_names": "Modules that exist because PyTorch has one of their name.",
    "ops": "The operations: one cell each, with its function, its derivative and samples that test it.",
    "nn/modules": "The modules themselves: linear, convolutional, recurrent, attention, normalisation, losses, containers.",
}
FRONT_DOOR = len(FLOORS)  # autograd_nb/__init__.py, which may import from everywhere


def floor_of(name: str) -> int | None:
    """The floor of a module by its dotted name below autograd_nb ('graph.node'; '' is the package itself).

    The longest entry that covers the name decides; None if there is none.
    """
    if name == "":
        return FRONT_DOOR
    covers = [(len(package), number) for number, floor in enumerate(FLOORS) for package in floor.packages
              if name == package or name.startswith(package + ".")]
    return max(covers)[1] if covers else None
