"""What a whole kind of statements leaves behind, under PyTorch and under autograd_nb: written as programs, one for each member of the kind."""

import gc

import _random_programs
import pytest

import autograd_nb as ours

try:
    import torch
except ImportError:
    torch = None
pytestmark = pytest.mark.needs("torch")

VECTOR = "torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)"
MATRIX = "torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)"


def agree(*lines):
    "Both libraries give the same after each statement, and at the end if nobody looked before."
    for watched in (False, True):
        found = _random_programs.difference(_random_programs.Program(list(lines), watched), ours, torch)
        assert found is None, "\n".join(lines) + f"\n# differs after statement {found.line + 1} in {found}"


# Another shape than the node knows -----------------------------------------------------------------------------

RESHAPES = "unsqueeze_(0) unsqueeze_(-1) squeeze_() t_() transpose_(0,1) swapaxes_(0,-1) as_strided_((2,),(1,))".split()
MAKERS = ["a * 2", "torch.lerp(a, a * 2, 0.3)", "torch.lerp(a, a * 2, a)", "a.exp()", "a[:1]", "a @ a", "torch.addcmul(a, a, a)", "torch.where(a > 0, a, a)", "a + a", "a.sum(0, keepdim=True)"]


@pytest.mark.parametrize("reshape", RESHAPES)
@pytest.mark.parametrize("maker", MAKERS)
def test_reshaped_while_nothing_is_recorded(maker, reshape):
    agree(f"a = {MATRIX}", f"c = {maker}", "d = c * 3", f"with torch.no_grad(): c.{reshape}", "c.backward(torch.ones_like(c), retain_graph=True)", "e = c * 2", "e.sum().backward(retain_graph=True)", "d.sum().backward(retain_graph=True)", "(c * c).sum().backward(create_graph=True)")


@pytest.mark.parametrize("call", ["torch.cat([a, a], out=c)", "torch.sum(a, 0, out=c)", "torch.stack([a, a], out=c)", "torch.outer(a, a, out=c)", "torch.mul(a, torch.ones(3, 1), out=c)"])
def test_results_of_another_size_put_into_the_graph(call):
    agree(f"a = {VECTOR}", "c = a * 2", "d = c * 3", f"with torch.no_grad(): {call}", "e = c * 2", "e.sum().backward()", "d.sum().backward()")


@pytest.mark.parametrize("data", ["torch.ones(3)", "torch.ones(1)", "torch.ones(3, 2)", "torch.ones(())"])
def test_data_of_another_size(data):
    agree(f"a = {VECTOR}", "c = a * 2", "d = c * 3", f"c.data = {data}.double()", "(c * 2).sum().backward()", "d.sum().backward()")


def test_a_node_that_is_gone_leaves_nothing_behind():
    from autograd_nb.layers.reshaped import RESHAPED

    a = ours.tensor([1.0, 2.0], requires_grad=True)
    c = a * 2
    with ours.no_grad(): c.unsqueeze_(0)
    assert RESHAPED.on
    (c * 3).sum().backward()
    del c
    gc.collect()  # errors of other tests know such nodes
    (a * 2).sum().backward()
    assert not RESHAPED.on and a.grad.tolist() == [8.0, 8.0]


# What a pass depends on ----------------------------------------------------------------------------------------

PLACES = "torch.tensor([[0, 1], [1, 0]])"
READS = dict(
    index_add="a.index_add(0, torch.tensor([0, 1]), s)", alpha="a.index_add(0, torch.tensor([0, 1]), s, alpha=2)", index_copy="a.index_copy(0, torch.tensor([0, 1]), s)", scatter=f"a.scatter(0, {PLACES}, s)", scatter_add=f"a.scatter_add(0, {PLACES}, s)", masked_scatter="a.masked_scatter(m, s)",
    index_put="a.index_put((torch.tensor([0, 1]),), s)", select_scatter="a.select_scatter(s[0], 0, 0)", slice_scatter="a.slice_scatter(s, 0, 0)", gather=f"s.gather(0, {PLACES})", take=f"s.take({PLACES})", take_along_dim=f"s.take_along_dim({PLACES}, 0)", masked_select="s.masked_select(m)", index_select="s.index_select(0, torch.tensor([0]))",
    index="s[torch.tensor([0])]", sort="s.sort(0).values", cummax="s.cummax(0).values", where="torch.where(m, s, a)", index_fill="s.index_fill(0, torch.tensor([0]), 0.5)",
)
OVERWRITES = ["s.detach().mul_(2)", "s.view(-1)[0] = 3.0", "with torch.no_grad(): s[0].add_(1)", "m.logical_not_()", "with torch.no_grad(): a.mul_(2)", "with torch.no_grad(): r.mul_(2)", "s.data.mul_(2)"]


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("overwrite", OVERWRITES)
def test_overwritten_before_the_pass(read, overwrite):
    agree(f"a = {MATRIX}", f"t = {MATRIX}", "s = t * 1", "m = torch.tensor([[True, False], [True, True]])", f"r = {read}", overwrite, "r.sum().backward()")


ACTIVATIONS = dict(elu="", celu="", selu="", leaky_relu=", 0.2", rrelu="", relu="", relu6="", hardtanh="", silu="", mish="", hardswish="", hardsigmoid="", threshold=", 0.1, 0.2")


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("then", ["c.sum().backward()", "c.mul_(2); c.sum().backward()", "d = c.sum(); c.mul_(2); d.backward()", "e, = torch.autograd.grad((c * c).sum(), a, create_graph=True); e.sum().backward()"])
def test_activations_in_place(name, then):
    agree("a = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)", "b = a * 1", f"c = torch.nn.functional.{name}(b{ACTIVATIONS[name]}, inplace=True)", *then.split("; "))


@pytest.mark.parametrize("call", ["leaky_relu(b, -0.2, inplace=True)", "elu(b, -0.5, inplace=True)", "celu(b, -0.5, inplace=True)", "rrelu(b, -0.5, -0.2, inplace=True)", "elu(b[:1], inplace=True)", "selu(b.view(-1), inplace=True)"])
def test_activations_that_do_not_tell_their_input(call):
    agree("a = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)", "b = a * 1", f"c = torch.nn.functional.{call}", "c.sum().backward()")


# What `out=` casts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool", "complex128"])
@pytest.mark.parametrize("call", ["clamp(a, max=0.3", "clamp(a, 0.1, 0.3", "clamp(a, a, a * 2", "clamp(a, a", "clamp(a.long(), 1, 2", "clamp(a.long(), 0.5", "clip(a, 0.5", "clamp_min(a, 0.5", "clamp_max(a, a", "clamp_max(a, 0.5"])
def test_limits_in_another_dtype(call, dtype):
    agree(f"a = {VECTOR}.detach()", f"c = torch.zeros(2, dtype=torch.{dtype})", f"d = torch.{call}, out=c)")


# Custom functions and checkpoints that return what they were given ----------------------------------------------


@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()"])
@pytest.mark.parametrize("call", ["Same.apply(x)", "Seen.apply(x)", "Written.apply(x)", "torch.utils.checkpoint.checkpoint(lambda v: v, x, use_reentrant=True)", "torch.utils.checkpoint.checkpoint(lambda v: v.view(-1), x, use_reentrant=True)", "torch.utils.checkpoint.checkpoint(lambda v: v, x, use_reentrant=False)"])
@pytest.mark.parametrize("given", ["a", "a * 2", "a[:1]", "a.detach()", "a.detach()[:1]"])
def test_inputs_returned(mode, call, given):
    agree(f"a = {MATRIX}", f"x = {given}", f"with {mode}: b = {call}", "c = b * 2", "b.mul_(2)", "x.mul_(2)", "d = b * 2", "d.sum().backward()")


# Others in the same memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.enable_grad()"])
@pytest.mark.parametrize("split", ["torch.unsafe_split(b, 1, 0)[0]", "torch.unsafe_chunk(b, 2, 0)[1]", "torch.unsafe_split_with_sizes(b, [1, 1], 0)[0]"])
@pytest.mark.parametrize("given", ["a", "a * 2", "a.detach()"])
def test_parts_that_are_no_views(given, split, mode):
    agree(f"a = {MATRIX}", f"b = {given}", f"with {mode}: d = {split}", "with torch.no_grad(): b.mul_(2)", "e = d * 2", "d.mul_(2)", "b.mul_(2)", "f = d * b[:1]", "f.sum().backward()")


@pytest.mark.parametrize("shared", ["c.detach()", "a.detach()", "a", "a.detach().view(-1)", "a.data"])
@pytest.mark.parametrize("trained", [True, False])
def test_views_of_memory_that_a_parameter_writes_to(shared, trained):
    agree(f"a = {MATRIX}", "with torch.no_grad(): c = a[0]", f"f = torch.nn.Parameter({shared}, requires_grad={trained})", "with torch.no_grad(): f.sin_()", "g = c * 2")


@pytest.mark.parametrize("call", ["torch.func.grad(lambda v: v.sum())(e)", "torch.func.vjp(torch.sin, e)[0]", "torch.func.vmap(lambda v: v.sum())(e)", "torch.func.jacrev(torch.sin)(e)", "e * 2"])
@pytest.mark.parametrize("view", ["b.chunk(2, 0)[0]", "b.unbind(0)[1]"])
def test_transforms_of_views_that_lost_their_history(view, call):
    agree(f"a = {MATRIX}", "b = a * 2", f"e = {view}", "with torch.no_grad(): e.mul_(2)", f"g = {call}")
