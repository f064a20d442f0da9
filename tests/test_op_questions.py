"""What PyTorch's own tests ask of every operation in its table (see `_op_questions`), asked of both libraries.

A fixed number of operations and samples runs always (AUTOGRAD_NB_SEED=… or =fresh takes others); AUTOGRAD_NB_EXHAUSTIVE=1 asks every operation everything."""

import itertools
import re
import warnings

import _op_questions
import _op_samples
import numpy as np
import pytest
from _sampled import EXHAUSTIVE, generator
from test_operator_table import operations, values_differ

import autograd_nb as ours

pytestmark = pytest.mark.needs("torch")
OPERATIONS, SAMPLES = 16, 2
RANDOM = "rand rrelu normal dropout bernoulli multinomial uniform geometric exponential cauchy poisson fractional svd_lowrank pca_lowrank multi_head scaled_dot".split()
BY_PYTORCH_ALONE = {  # (question, operation): what PyTorch gets wrong, or does with other numbers each time
    ("out .*", "lu_unpack|nn.functional.*pool.*"): "writes beyond memory",
    ("reverse over forward", "linalg.solve(_ex)?|linalg.tensorsolve"): "differs from differences of its own tangents",
    ("reverse over forward", "native_batch_norm|native_layer_norm|nn.functional.(batch|layer|instance)_norm"): "differs from differences of its own tangents",
    (".*", "linalg.(eig|eigh|svd|lstsq.*)|svd|(linalg.)?cholesky(_ex)?|cholesky_inverse|cholesky_solve|resize_.*"): "determined up to a factor, or of what a failure leaves",
    (".* expanded", "kthvalue|mode|median|masked.median|native_group_norm|linalg.*"): "ties, singular matrices, and memory that is read as if it had no gaps",
    ("left alone .*", "(nn.functional.|native_)(batch|instance)_norm"): "does not count what it writes to running statistics",
    ("forward.*|vmap of (jvp|tangents)", "(linalg.)?cholesky(_ex)?"): "takes tangents for symmetric",
    ("vmap.*", "roll"): "moves the examples where each is a single number",
    ("in place on repeated", "index_put"): "adds to one number several times",
    ("out with gaps", "narrow_copy"): "writes into the gaps",
    ("out .*", "fft.ihfft[2n]"): "writes nothing",
    ("layout expanded", "repeat_interleave"): "refuses numbers of repeats that are one number seen several times",
    ("vmap of tangents", "triangular_solve"): "differs from differences of its own results",
}

OPEN = {  # (question, operation): what is left
    ("vmap.*", "as_strided.*"): "memory between the elements of an example is refused",
    ("vmap.*", "nn.functional.instance_norm|resize_.*|linspace.*|logspace.*|arange"): "running statistics of each example, other sizes in place, several ends",
    ("vmap of (grad|jvp|tangents)", ".*quantile"): "parts that differ between examples, within a derivative",
    ("out (of recorded inputs|recorded)", ".*_copy|diff|diag.*|conj_physical|special.*|native_batch_norm"): "PyTorch has no derivative to give up",
    ("out .*", "cross|cholesky.*|mode|arange|linalg.inv.*|kthvalue|geqrf"): "memory of another shape with room enough, and the words of the warning",
    ("vmap.*", "_segment_reduce:.*"): "its lengths are looked at",
    ("vmap in vmap", "index_reduce:.*"): "its places are looked at",
    ("views", "(nan)?quantile|linalg.lu_factor"): "one of several results is a view of them",
    ("out of recorded inputs|views", "linalg.cond"): "PyTorch composes it of several functions",
    ("out of recorded inputs", "(nan)?quantile"): "PyTorch composes it of several functions",
    ("out complex", "nanmean"): "PyTorch sums no complex numbers here",
    ("in place on of one element", "index_put"): "has two mistakes: the other error comes first",
    ("(conjugate|negative) in name only", "fft.*"): "whether a result is conjugate or negative in name only",
    ("negative in name only", "as_strided_copy"): "PyTorch settles it before it looks at the memory",
    ("vmap.*", "nn.functional.ctc_loss"): "its lengths are looked at",
    ("in place on repeated", "baddbmm"): "PyTorch adds to one number several times",
    ("out .*", "nn.functional.linear"): "PyTorch writes one row for a vector",
    ("in place on repeated", "conj_physical"): "PyTorch counts a write that changes nothing",
    ("views", "nn.functional.adaptive_avg_pool1d"): "PyTorch sees the result of two dimensions in another shape",
    ("in place on a view of a leaf", "ne"): "of another size: the other error comes first",
    ("out (whole|truth)", "nansum"): "the dtype of the result is told first",
    (".*", "special.bessel_[jy][01]"): "digits near a zero",
}


def excused(question, title):
    return any(re.fullmatch(q, question) and re.fullmatch(t, title) for q, t in (*BY_PYTORCH_ALONE, *OPEN))


def chosen(question):
    "The operations that are asked: title, OpInfo, our function."
    found = [(title, *rest) for title, *rest in operations() if not any(word in title for word in RANDOM) and not excused(question, title)]
    if EXHAUSTIVE:
        return found
    return generator(question).sample(found, min(OPERATIONS, len(found)))


def variants(question, info, function):
    "What is called under PyTorch and under our library; None where there is no such variant."
    if question.startswith("out") and not info.supports_out:
        return None
    if not question.startswith(("in place", "forward in place", "method")):
        return info.op, function
    theirs = info.method_variant if question == "method" else info.inplace_variant
    mine = getattr(ours.Tensor, getattr(theirs, "__name__", "?"), None)
    return None if mine is None else (theirs, mine)


def differ(expected, found):
    import torch

    if isinstance(expected, Exception) and isinstance(found, type(expected)):  # their words are compared elsewhere
        return None
    if isinstance(expected, (Exception, torch.Tensor)) or isinstance(found, (Exception, ours.Tensor)):
        line = values_differ(expected, found)
        return line or (isinstance(expected, torch.Tensor) and expected.requires_grad != found.requires_grad and "requires_grad") or None
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return f"{expected}  |  {found}"
        return next(filter(None, map(differ, expected, found)), None)
    return None if expected == found else f"{expected}  |  {found}"


def differences(question, dtype="float64"):
    import torch

    kind, ask = getattr(torch, dtype), _op_questions.QUESTIONS[question]
    for title, info, function in chosen(question):
        called = variants(question, info, function)
        if called is None or kind not in info.dtypes:
            continue
        torch.manual_seed(3)
        np.random.seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(itertools.islice(info.sample_inputs("cpu", kind, requires_grad=info.supports_autograd and kind.is_floating_point), 24))
        for number in range(0, len(samples), 1 if EXHAUSTIVE else max(1, len(samples) // SAMPLES)):
            sample, convert = samples[number], _op_samples.Converter(ours)
            if not isinstance(sample.input, torch.Tensor) and called[0] is not info.op:
                continue
            try:
                args, kwargs = _op_samples.fresh([[sample.input, *sample.args], sample.kwargs], {})
                our_args, our_kwargs = convert([args, kwargs])
            except NotImplementedError:  # as in `test_op_samples`
                continue
            expected = _op_questions.answer(ask, torch, called[0], args, kwargs)
            if question.startswith(("forward", "reverse", "vmap")) and isinstance(expected, Exception):
                continue
            line = differ(expected, _op_questions.answer(ask, ours, called[1], our_args, our_kwargs))
            if line:
                yield f"{title}, sample {number}: {line}"


@pytest.mark.parametrize("question", _op_questions.QUESTIONS)
def test_questions(question):
    found = list(differences(question))
    assert not found, "\n".join(found)


LOOPED = """
vmap(lambda x, q: torch.quantile(x, q, 0))(x, q)
vmap(lambda x, q: torch.nanquantile(x, q))(x, q)
vmap(lambda x: torch.geqrf(x))(squares)
vmap(lambda x, i: F.max_unpool1d(x, i, 2))(*F.max_pool1d(planes, 2, return_indices=True))
vmap(lambda x, w: F.binary_cross_entropy_with_logits(x, x.sigmoid(), w))(x, x * x)
vmap(lambda x, w: F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=w))(x, x * x)
vmap(lambda x, t: F.multilabel_margin_loss(x, t))(x, torch.tensor([[0, -1, 0, 0, 0], [1, 2, -1, 0, 0], [4, -1, 0, 0, 0]]))
vmap(lambda x, w, t: F.cross_entropy(x, t, weight=w))(x, x * x, torch.tensor([0, 1, 2]))
vmap(lambda x, n: torch.special.hermite_polynomial_h(x, n))(x, torch.tensor([1.0, 2.0, 3.0]))
vmap(lambda o: F.embedding_bag(torch.tensor([0, 1, 2, 1]), x, o))(torch.tensor([[0, 1], [0, 2]]))
vmap(lambda x: torch.linspace(x, 2, 3, dtype=torch.float64))(x[:, 0])
vmap(lambda x: torch.argwhere(x))(x)
vmap(lambda x, i: x.index_select(0, i))(x[:, 0], torch.zeros(3, 1, dtype=torch.int64))
vmap(lambda x, s: x.scatter(0, torch.tensor(0), s))(x[:, 0], x[:, 1])
vmap(lambda x, s: x.scatter_add(0, torch.tensor(0), s))(x[:, 0], x[:, 1])
vmap(lambda x, s: x.scatter_reduce(0, torch.tensor(0), s, 'prod'))(x[:, 0], x[:, 1])
vmap(lambda x: x.gather(0, torch.tensor(0)))(x[:, 0])
vmap(lambda i: torch.tensor(4.0).gather(0, i))(torch.zeros(3, 2, dtype=torch.int64))
vmap(vmap(lambda x, i: x.gather(0, i)))(x, torch.zeros(3, 5, dtype=torch.int64))
vmap(vmap(lambda x, i: x.gather(0, i)))(x, torch.zeros(3, 5, 1, dtype=torch.int64))
vmap(vmap(torch.func.grad(lambda x, i: x.gather(0, i))))(x, torch.zeros(3, 5, dtype=torch.int64))
vmap(lambda x, i: x.index_reduce(0, i, x * 2, 'prod'))(x, torch.tensor([[0, 1, 2, 3, 4], [1, 1, 1, 1, 1], [4, 3, 2, 2, 0]]))
vmap(lambda x, n: x.repeat_interleave(n))(x, torch.tensor([[0, 1, 2, 3, 4], [2, 2, 2, 2, 2], [4, 3, 2, 1, 0]]))
vmap(lambda x: x.as_strided((2, 2), (9, 1)), 1)(squares)
vmap(lambda x: x.as_strided((2, 2), (9, 3), 3), 2)(squares)
vmap(lambda x: (x * 2).T.as_strided((2, 2), (1, 9)), 1)(squares)
vmap(lambda x: x[1].as_strided((2,), (1,)))(squares)
vmap(vmap(lambda x: x.as_strided((2, 2), (1, 1))), 1)(squares)
vmap(torch.func.grad(lambda x: x.as_strided((2, 2), (9, 1)).prod()), 1)(squares)
vmap(lambda x, y: torch.complex(x, y))(squares, squares[:, 0])
vmap(lambda x, y: torch.complex(x, y), (0, None))(x, x[0])
"""


@pytest.mark.parametrize("line", LOOPED.strip().splitlines())
def test_numbers_that_differ_between_examples(line):
    import torch

    answers = []
    for lib in (torch, ours):
        x, squares, planes = (lib.from_numpy(np.random.default_rng(0).standard_normal(shape)) for shape in ((3, 5), (3, 3, 3), (2, 2, 6)))
        names = dict(torch=lib, F=lib.nn.functional, vmap=lib.vmap, x=x, q=lib.tensor([0.1, 0.2, 0.3], dtype=lib.float64), squares=squares, planes=planes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers.append(eval(line, names))
    assert values_differ(*answers) is None


@pytest.mark.parametrize("name", ["lu", "lu_factor", "lu_factor_ex", "inv_ex", "inv", "solve_ex", "qr", "svd", "eigh", "cholesky_ex", "det", "slogdet"])
def test_matrices_in_columns_are_left_alone(name):
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((8, 8)))
    a = np.asfortranarray(a @ a.T + np.eye(8))
    x, more = ours.from_numpy(a.copy(order="F")), (ours.ones(8, dtype=ours.float64),) if name == "solve_ex" else ()
    getattr(ours.linalg, name)(x, *more)
    assert np.array_equal(x.numpy(), a)


@pytest.mark.parametrize("line", ["F.avg_pool1d(x, 2)", "F.max_pool1d(x, 2)", "F.leaky_relu(x)", "F.relu(x)", "F.conv1d(x, w, b)", "F.cross_entropy(x, x.softmax(1))"])
def test_gradients_of_transforms_have_no_graph(line):
    x, w, b = ours.randn(2, 2, 3, 4), ours.randn(2, 3, 2), ours.randn(2)
    slope = ours.func.grad(lambda x, w, b: eval(line, dict(F=ours.nn.functional, x=x, w=w, b=b)).sum(), argnums=(0, 1, 2))
    for g in (*ours.vmap(slope, (0, None, None))(x, w, b), *ours.func.jvp(lambda x: slope(x, w, b)[0], (x[0],), (x[0],))):
        assert g.grad_fn is None and not g.requires_grad


def test_memory_between_the_elements_of_an_example():
    "What `as_strided` cannot show under `vmap` is refused."
    x = ours.arange(24.0).reshape(2, 3, 4)
    with pytest.raises(RuntimeError, match="between the elements of an example"):
        ours.vmap(lambda x: x.as_strided((2, 2), (1, 4)), 1)(x)
    with pytest.raises(RuntimeError, match="can access memory outside of `tensor`"):
        ours.vmap(lambda x: x[1].as_strided((2,), (1,), 0))(x)
    assert ours.vmap(lambda x: x.contiguous().as_strided((2,), (4,)), 1)(x).tolist() == [[0.0, 12.0], [4.0, 16.0], [8.0, 20.0]]
