"""Single calls, right and wrong ones, as PyTorch's own tests make them: result, or error and its first words, are PyTorch's."""

import warnings

import numpy as np
import pytest
from _compare import every_warning

import autograd_nb

pytestmark = pytest.mark.needs("torch")

# x: two rows of three; w: five rows of three; i: places; bag: indices
CREATED = """
t.zeros()
t.ones()
t.rand()
t.Tensor()
t.FloatTensor().shape
x.new().shape
t.zeros(True)
t.zeros("a", 2)
t.zeros(2, layout="strided")
t.full((2,), 1.0, layout=5)
t.rand(2, layout="a")
t.arange(3, layout="a")
t.eye(2, layout=t.strided)
t.linspace(0, 1, 3, layout=t.strided)
t.full((2,), t.tensor([3.0]))
t.full((2,), "a")
t.arange(end=3)
t.arange(t.tensor([3]))
t.arange(1, 2, 3, 4)
t.range(2, 0)
t.linspace(0, 1, 3, dtype=t.bool)
t.eye(2.0)
t.empty(2, memory_format=t.preserve_format)
t.randint(high=5, size=(2,)).shape
t.randint(low=5, size=(2,))
t.randint(2.5, (2,))
t.randint(0, 2.5, (2,))
t.randint(True, (2,))
t.randint(5, 2)
t.randint(5)
t.randint(0, 300, (2,), dtype=t.uint8)
t.randint(-1, 3, (2,), dtype=t.uint8)
t.randint(-200, 2, (2,), dtype=t.int8)
t.randint(0, 2**40, (2,), dtype=t.int32)
t.randint(0, 3, (2,), dtype=t.bool)
t.randint(0, 3, (2,), dtype=t.complex64)
t.randint(0, 2**63, (2,))
t.randperm(300, dtype=t.uint8)
t.randperm(256, dtype=t.uint8).sum()
t.randperm(3, dtype=t.bool)
t.randperm(3.0)
t.tril_indices(-1, 3)
t.tril_indices(2, 2, dtype=t.float32)
t.hann_window(3, dtype=t.int)
t.hann_window(4.0)
t.kaiser_window(3, beta=-1)
t.vander(x)
t.vander(i, N=-1)
t.cartesian_prod(x)
t.meshgrid()
t.frombuffer(bytearray(8), dtype=t.float32, offset=8)
t.frombuffer(bytearray(8), dtype=t.float32, offset=2)
t.frombuffer(bytearray(8), dtype=t.float32, count=3)
t.frombuffer(bytearray(0), dtype=t.float32)
t.frombuffer([1], dtype=t.float32)
t.tensor([np.ones(2), np.ones(2)])
t.tensor([np.ones(2, np.float32)])
"""

FUNCTIONS = """
x[None].squeeze((0, 0))
x.view(size=(3, 2))
x.view(dtype=t.int32).dtype
x.permute(dims=(1, 0))
x.gather(1, t.tensor([[0], [1]]), sparse_grad=True)
(1,) + x.shape
float(t.tensor(1 + 0j))
int(t.tensor(1j))
t.lerp(x, x, x.double())
t.lerp(x, x, t.tensor(0.5))
t.einsum("ij,kj->ik", x, x.double())
t.einsum("ij,ij->ij", x, x.double()).dtype
t.trapezoid(x, t.arange(2.0))
t.cumulative_trapezoid(x, t.arange(2.0))
t.cdist(x, x, compute_mode="abc")
t.iinfo(t.bool)
t.broadcast_shapes((2.0,), (1,))
t.broadcast_shapes(2.0)
t.broadcast_shapes((-1,), (2,))
t.broadcast_shapes(None)
t.broadcast_shapes(t.Size([2, 3, 4]), t.Size([7]))
t.broadcast_shapes((5, 1), (1, 6), (7,))
t.broadcast_shapes([2, 3], (1, 2, 3), 1)
t.nn.functional.binary_cross_entropy(t.ones(3, 4), t.ones(3, 4), t.ones(7))
t.nn.functional.binary_cross_entropy(t.tensor(1.0), t.tensor(1.0), t.ones(7))
t.nn.functional.binary_cross_entropy_with_logits(t.ones(3, 4), t.ones(3, 4), t.ones(7))
t.nn.functional.binary_cross_entropy_with_logits(t.tensor(1.0), t.tensor(1.0), t.ones(7))
t.nn.functional.binary_cross_entropy_with_logits(t.tensor(1.0), t.tensor(1.0), pos_weight=t.ones(1))
t.nn.functional.multilabel_soft_margin_loss(t.tensor(1.0), t.tensor(1.0))
t.nn.functional.local_response_norm(t.ones(2, 3), 2, 1e-4, 0.75, 1.0)
t.nn.CrossMapLRN2d(2)(t.ones(2, 3))
t.nn.RMSNorm((4, 5))(t.ones(5))
t.nn.RMSNorm(5)(t.tensor(1.0))
t.nn.FeatureAlphaDropout()(t.ones(3))
t.nn.FeatureAlphaDropout().eval()(t.ones(3))
t.nn.FeatureAlphaDropout(0.0)(t.ones(3))
t.nn.Dropout3d()(t.tensor(1.0))
t.nn.Dropout3d().eval()(t.tensor(1.0))
t.nn.Fold(2, 2)(t.ones(4, 1, dtype=t.int64))
t.nn.FractionalMaxPool2d(2, output_size=2)(t.ones(1, 1, 1, 4, 4))
t.nn.FractionalMaxPool3d(2, output_size=2)(t.ones(1, 1, 1, 4, 4, 4))
t.nn.Bilinear(3, 3, 2)(t.tensor(1.0), t.tensor(1.0))
t.tensor(1.0).unflatten(1, (2, 2))
t.linalg.lstsq(t.eye(3), t.ones(3, 2)).solution.stride()
t.linalg.lstsq(t.eye(3).expand(2, 3, 3), t.ones(2, 3, 4), driver="gelsd").solution.stride()
t.linalg.matrix_rank(t.ones(2, 3), hermitian=True)
t.linalg.matrix_rank(t.ones(2, 0), hermitian=True)
t.linalg.inv_ex(t.ones(2, 3))
t.linalg.cholesky_ex(t.ones(3))
t.tensordot(t.ones(2, 3), t.ones(2, 3), 1)
t.tensordot(t.ones(2, 3), t.ones(2, 3), ([0, -1], [-1, 0]))
t.tensordot(t.ones(2, 2), t.ones(2, 2), ([0, -2], [0, 1]))
t.tensordot(t.tensor(1.0), t.ones(2), ([0], [0]))
t.chain_matmul(t.ones(2, 2), None)
t.ormqr(t.ones(2, 2, dtype=t.float16), t.ones(2, dtype=t.float16), t.ones(2, 2, dtype=t.float16))
t.ormqr(t.ones(2, 2, dtype=t.int64), t.ones(2, dtype=t.int64), t.ones(2, 2, dtype=t.int64))
t.tensor(1.0).unflatten(0, ())
t.ones(4).unflatten(2, ())
w.index_reduce(0, i.float(), w[:2], "mean")
w.index_reduce(0, i.short(), w[:2], "mean")
w.index_reduce(0, i, w[:2].double(), "mean")
w.index_reduce(0, i[:1], w[:2], "mean")
w.index_reduce(0, i + 9, w[:2], "mean")
w.index_reduce(0, -i, w[:2], "mean")
w.index_reduce(0, i, w[:2, :1], "mean")
w.index_reduce(0, i[None], w[:2], "mean")
F.linear(x, w, t.zeros(5).double())
F.linear(x, w, t.zeros(5).long())
F.linear(x, w, 1.0)
F.linear(x, w[0])
F.embedding_bag(bag, w, t.tensor([0, 2]), include_last_offset=None)
F.embedding_bag(bag, w, t.tensor([0.0, 2.0]))
F.embedding_bag(bag[None], w.long())
F.embedding_bag(bag[None], w, mode="sum", per_sample_weights=t.ones(1, 3).double())
"""

# what PyTorch's functions of Python hand on as it comes: None is no truth value
FLAGS = """
F.dropout(x, 0.5, None)
F.alpha_dropout(x, 0.5, None)
F.feature_alpha_dropout(x, 0.5, None)
F.dropout1d(x[None], 0.5, None)
F.dropout2d(x[None, None], 0.5, None)
F.dropout2d(x[None, None], 0.5, 1)
F.dropout3d(x[None, None, None], 0.5, None)
F.rrelu(x, 0.1, 0.3, None)
F.batch_norm(x, t.zeros(3), t.ones(3), training=None)
F.instance_norm(x[None], use_input_stats=None)
F.max_pool1d(x, 2, ceil_mode=None)
F.max_pool2d(x[None], 2, ceil_mode=None)
F.avg_pool2d(x[None], 2, ceil_mode=None)
F.embedding(i, w, scale_grad_by_freq=None)
F.embedding(i, w, sparse=None)
F.scaled_dot_product_attention(x, x, x, is_causal=None)
F.scaled_dot_product_attention(x, x, x, enable_gqa=None)
F.kl_div(x, x, log_target=None)
F.poisson_nll_loss(x, x, log_input=None)
F.poisson_nll_loss(x, x, full=None)
F.triplet_margin_loss(x, x, x, swap=None)
F.gumbel_softmax(x, 1.0, None).shape
F.relu(x, None)
F.max_pool2d(x[None], 2, return_indices=None)
"""

ATTENTION = """
attention(q.double(), q, q)
attention(q.double(), q.double(), q.double())
attention(q.half(), q.half(), q.half())
packed(q, q, q, 4, 2, p, t.zeros(12).double(), None, None, False, 0.0, o, None)
packed(q, q, q, 4, 2, p, None, None, None, False, 0.0, o, t.zeros(4).double())
"""


# written straight into memory where nothing is shared, and by the operation where something is
WRITTEN = """
x.scatter_(1, t.tensor([[0, 2], [1, 1]]), w[:2, :2])
x.scatter_(1, t.tensor([[0, 2], [1, 1]]), 0.5)._version
x.scatter_(1, t.tensor([[0, 2], [1, 0]], dtype=t.int32), 0.5)
x.scatter_(1, t.tensor([[0, 2], [1, 3]]), 1.0)
x.scatter_(1, t.tensor([[0, 2], [1, -1]]), 1.0)
x.scatter_(1, t.tensor([[0, 2], [1, 1]]), 1e39)
x.scatter_(1, t.tensor([[0, 1], [0, 1]]), x[:, :2])
x.scatter_(1, t.tensor([[0, 2], [1, 1]]), w[:2, :1])
x.scatter_(-1, t.tensor([[0, 2], [1, 0]]), w.double()[:2, :2])
x.t().scatter_(0, t.tensor([[0, 2], [1, 0]]), w[:2, :2])
x.scatter_(0, t.tensor([[1, 0]]), w[:1, :2].requires_grad_()).requires_grad
i.scatter_(0, t.tensor([1]), 1.5)
i.scatter_(0, i, i)
x.scatter_add_(1, t.tensor([[0, 2], [1, 1]]), w[:2, :2])
x.scatter_add_(0, t.tensor([[1, 1, 1], [1, 1, 1]]), w[3:])
x.scatter_add_(1, t.tensor([[0, 2], [1, 1]]), w[:2, :2].double())
x.scatter_add_(1, t.tensor([[0, 2], [1, 3]]), w[:2, :2])
x.scatter_add_(1, t.tensor([[0, 2], [1, 1]]), 1.0)
x.index_add_(0, i, w[:2])
w.index_add_(0, i, x)._version
w.index_add_(0, t.tensor([1, 1]), x, alpha=2)
w.index_add_(1, i, w[:, :2].clone())
w.index_add_(0, i, w[:2])
w.index_put_((i,), x)
w.index_put_((i,), x[0])._version
w.index_put_((i - 3,), x)
w.index_put_((i + 3,), x)
w.index_put_((i,), w)
w.index_put_((i,), x.double())
w.index_put_((i, i), x[0, :2], accumulate=True)
w.masked_fill_(w > 0.5, -float("inf"))
1 / w.masked_fill_(w > 0.5, -0.0)
w.masked_fill_(w > 0.5, 1e39)
w.masked_fill_(w[0] > 0.1, 2)._version
w.masked_fill_(w[:2] > 0.1, 2)
w[0].masked_fill_(w > 0.1, 2)
w.masked_fill_(w > 0.5, t.tensor(3.0))
w.masked_fill_(w > 0.5, x[0])
w.masked_fill_(i > 0, 1.5)
i.masked_fill_(i > 0, 1.5)
t.zeros(5, 2).fill_diagonal_(1)
t.zeros(5, 2).fill_diagonal_(1, wrap=True)
t.zeros(2, 5).fill_diagonal_(1, wrap=True)
t.zeros(2, 2, 2).fill_diagonal_(1)
t.zeros(3).fill_diagonal_(1)
1 / t.nan_to_num(t.tensor([0.0, -0.0, 1.0]))
t.nan_to_num(t.tensor([-0.0, float("nan"), -float("inf")]), neginf=1.0)
t.triu_indices(3, 4, -2)
t.tril_indices(2, 3, 5)
F.max_pool1d(t.tensor([[0.0, -0.0, 1.0, float("nan"), -1.0]]), 2, 1, return_indices=True)
F.max_pool2d(x[None], 2, 1, 1, return_indices=True)
F.max_pool3d(-q[None], 2, 1, 1, return_indices=True)
F.max_pool3d(q[None] * 0, 2, return_indices=True)
"""


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def outcome(t, expression):
    "What an expression gives: its text, or the error."
    t.manual_seed(0)
    q = t.arange(24.0).reshape(3, 2, 4) / 24
    names = dict(
        t=t, np=np, F=t.nn.functional, x=t.arange(6.0).reshape(2, 3) / 6, w=t.arange(15.0).reshape(5, 3) / 15, i=t.tensor([0, 2]), bag=t.tensor([1, 2, 4]),
        q=q, attention=t.nn.MultiheadAttention(4, 2), packed=t.nn.functional.multi_head_attention_forward, p=t.ones(12, 4), o=t.ones(4, 4),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return repr(eval(expression, names)).replace("autograd_nb", "torch")
        except Exception as error:
            return error


@pytest.mark.parametrize("expression", lines(CREATED + FUNCTIONS + FLAGS + ATTENTION + WRITTEN))
def test_single_calls(expression):
    import torch

    expected, found = (outcome(lib, expression) for lib in (torch, autograd_nb))
    if not isinstance(expected, Exception):
        assert found == expected
        return
    assert isinstance(found, Exception), f"{expected!r} and {found}"
    assert type(found).__name__ == type(expected).__name__, f"{expected!r} and {found!r}"
    assert str(found)[:18] == str(expected)[:18], f"{expected!r} and {found!r}"


ALONE = "neg exp log sqrt sin tanh sigmoid relu abs sign floor round square rsqrt reciprocal frac erf sinc trunc logical_not deg2rad".split()
WRITTEN_INTO = """
t.rand(3)
t.rand(2, 3, dtype=t.float64)
t.tensor(0.5)
t.rand(0)
t.rand(3).bfloat16()
t.rand(3).half()
t.arange(3)
t.tensor([True, False])
t.rand(3) + 1j
t.rand(2, 3).T
t.rand(4)[::2]
t.rand(3)[:2].detach()
t.rand(1).expand(3)
t.rand(3, requires_grad=True)
t.rand(3, requires_grad=True)[:2]
t.rand(3, requires_grad=True) * 2
t.rand(3, requires_grad=True).detach()
"""


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("made", lines(WRITTEN_INTO))
def test_functions_of_one_tensor_written_into_it(made, recording):
    "Numbers, what is written behind a view, versions and errors are PyTorch's."
    import torch

    for name in ALONE:
        found = []
        for lib in (torch, autograd_nb):
            lib.manual_seed(3)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x = eval(made, {"t": lib})
                base = x if x._base is None else x._base
                try:
                    with lib.set_grad_enabled(recording): same = getattr(x, name + "_")() is x
                    shown = x.detach().cdouble().numpy(), base.detach().cdouble().numpy()
                    found.append((same, x._version, str(x.dtype).split(".")[-1], x.requires_grad, shown))
                except (RuntimeError, NotImplementedError) as error: found.append(str(error)[:18])
        if isinstance(found[0], str) or isinstance(found[1], str): assert found[0] == found[1], name
        else:
            assert found[0][:4] == found[1][:4], name
            for theirs, ours in zip(found[0][4], found[1][4]): np.testing.assert_allclose(ours, theirs, **(dict(rtol=1e-2) if "half" in made or "bfloat16" in made else dict(rtol=1e-5, atol=1e-6)), err_msg=name)


def test_arrays_in_a_list_are_warned_of():
    with every_warning(autograd_nb), pytest.warns(UserWarning, match="Creating a tensor from a list of numpy.ndarrays is extremely slow") as seen:
        autograd_nb.tensor([np.ones(2), np.ones(2)])
    assert seen[0].filename == __file__


MODULES = "MaxPool2d(2) AvgPool2d(2) AdaptiveAvgPool2d(1) LPPool2d(2,2) ReflectionPad2d(1) Upsample(scale_factor=2) PixelShuffle(1) Unfold(2) CELU() ReLU()".split()


@pytest.mark.parametrize("made", MODULES)
def test_modules_take_their_input_by_name_and_nothing_else(made):
    module, x = eval(f"autograd_nb.nn.{made}"), autograd_nb.rand(1, 1, 4, 4)
    assert autograd_nb.equal(module(input=x), module(x))
    for wrong, words in ((lambda: module(x, other=1), "got an unexpected keyword argument 'other'"), (module, "missing 1 required positional argument: 'input'")):
        with pytest.raises(TypeError, match=rf"\w+\.forward\(\) {words}"):
            wrong()


TYPES = """
scaled(x, 1.5)
scaled(x, "a")
scaled(x, 1j)
scaled(x, 2, b="a")
scaled(x, 2, b=None)
scaled(x, 2, l=[1.5])
scaled(x, 2, l=3)
scaled(x, 2, l=(1, 2))
scaled(x, 2, n=2.5)
scaled(x, 2, n=True)
scaled(x, 2, o=5)
scaled(x, 2, y=1)
scaled(x, 2, d="a")
scaled(1.0, 2)
scaled([1.0], 2)
scaled(x, 2, True, 3, 4)
"""


@pytest.mark.parametrize("expression", lines(TYPES))
def test_arguments_of_operations_of_ones_own(expression):
    import torch

    found = []
    for lib in (torch, autograd_nb):
        home = lib.library.Library("small_calls", "FRAGMENT")
        if not hasattr(lib.ops.small_calls, "scaled"):
            home.define('scaled(Tensor x, float s, bool b=True, *, int[] l=[1], int n=2, str o="a", Tensor? y=None, ScalarType? d=None) -> Tensor')
            home.impl("scaled", lambda x, s, b=True, **more: x * s, "CompositeExplicitAutograd")
        _KEPT.append(home)
        found.append(outcome_of(lambda lib=lib: eval(expression, dict(scaled=lib.ops.small_calls.scaled, x=lib.ones(2)))))
    assert found[1] == found[0]


_KEPT = []  # a library's operations go with it


def outcome_of(function):
    try:
        return repr(function())
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:40]}"


def test_hooks_are_called_around_every_optimisers_step():
    from autograd_nb import optim

    for kind in (optim.SGD, optim.Adam, optim.Adafactor, optim.Muon, optim.LBFGS):
        p, seen = autograd_nb.ones(2, 2, requires_grad=True), []
        optimizer = kind([p], lr=0.1)
        optimizer.register_step_pre_hook(lambda *a, seen=seen: seen.append("before"))
        optimizer.register_step_post_hook(lambda *a, seen=seen: seen.append("after"))
        loss = lambda p=p: (p**2).sum()
        loss().backward()
        optimizer.step(loss)
        assert seen == ["before", "after"], kind


def test_states_that_are_older_than_an_option():
    "What a state does not say was switched off when it was saved; a count may be a number."
    for lib in (__import__("torch"), autograd_nb):
        for kind in (lib.optim.Adam, lib.optim.SGD):
            p = lib.ones(2, 2, requires_grad=True)
            optimizer = kind([p], lr=0.1, maximize=True)
            p.grad = lib.ones(2, 2)
            optimizer.step()
            state = optimizer.state_dict()
            del state["param_groups"][0]["maximize"]
            for held in state["state"].values():
                if "step" in held: held["step"] = 1.0
            optimizer.load_state_dict(state)
            assert optimizer.param_groups[0]["maximize"] is False
            assert all(lib.is_tensor(held["step"]) for held in optimizer.state.values() if "step" in held)
            before = p.detach().clone()
            optimizer.step()
            assert (p < before).all()
