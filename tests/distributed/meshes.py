"""Meshes of four processes. Runs under PyTorch and under autograd_nb: what it prints has to be the same. Arguments: as for collectives.py."""

import importlib
import sys

torch = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
mesh = importlib.import_module(sys.argv[1] + ".distributed.device_mesh")
rank, size = int(sys.argv[2]), int(sys.argv[3])
where = {"init_method": f"file://{sys.argv[4]}", "rank": rank, "world_size": size} if sys.argv[1] == "torch" else {}
dist.init_process_group("gloo", **where)


def show(name, function):
    try:
        out = function()
    except Exception as error:
        out = f"{type(error).__name__}: {str(error.args[0])[:38]}"
    print(name, "->", out, flush=True)


m = mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
show("mesh", lambda: (m, m.mesh, m.shape, m.ndim, m.size(), m.size(0), m.mesh_dim_names, m.device_type))
show("place", lambda: (m.get_rank(), m.get_local_rank("copies"), m.get_local_rank(1), m.get_coordinate()))
show("row", lambda: (m["parts"], m["parts"].mesh, m["parts"].get_local_rank(), m["parts"].get_coordinate()))
show("column", lambda: (m["copies"], m["copies"].mesh, m["copies"].get_local_rank()))
show("all", lambda: m["copies", "parts"] is m)
show("groups", lambda: [dist.get_process_group_ranks(g) for g in (m.get_group("copies"), m.get_group(1), m["parts"].get_group())])
show("equal", lambda: m == mesh.DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("copies", "parts")))
show("nameless", lambda: mesh.DeviceMesh("cpu", [0, 1, 2, 3]))
show("no such name", lambda: m["x"])
show("another order", lambda: m["parts", "copies"])
show("which group", lambda: m.get_group())
show("slice of a nameless one", lambda: mesh.DeviceMesh("cpu", [0, 1, 2, 3])["x"])
show("too large", lambda: mesh.init_device_mesh("cpu", (4, 2)))
show("a name twice", lambda: mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "a")))
show("names missing", lambda: mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a",)))
show("a device with a number", lambda: mesh.init_device_mesh("cpu:0", (2, 2)))
for name in ("copies", "parts"):
    x = torch.ones(1) * rank
    dist.all_reduce(x, group=m.get_group(name))
    show(f"sum over {name}", lambda: x.tolist())  # noqa: B023 (called where it is made)
dist.barrier()
dist.destroy_process_group()
