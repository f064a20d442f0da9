"""gradcheck and gradgradcheck: what passes, what fails and how the report reads, and that PyTorch gives the same verdicts."""

import re
import warnings

import numpy as np
import pytest

import autograd_nb
from autograd_nb.autograd.gradcheck import GradcheckError, analytical_jacobians, gradcheck, gradgradcheck, numerical_jacobians, report

torch = autograd_nb


def draw(*shape, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape)
    return torch.tensor((array + 1j * rng.standard_normal(shape) if dtype.is_complex else array).tolist(), dtype=dtype, requires_grad=True)


def rule(forward, backward, lib=torch, materialize=True):
    "A custom function of one input, from a formula and a backward(g, x)."

    class Custom(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, *g):
            return backward(*g, *ctx.saved_tensors)

    return Custom.apply


GOOD = {
    "elementwise": lambda x: x.sin() * x,
    "matrix product": lambda x: x @ x.mT if hasattr(x, "mT") else x @ x.transpose(0, 1),
    "number": lambda x: (x * x).sum(),
    "two outputs": lambda x: (x.exp(), x.sum(0)),
    "a list of outputs": lambda x: [x * 2, x * 3],
    "the input itself": lambda x: x,
    "an unused part": lambda x: x[0] * 2,
    "an output without gradient": lambda x: (x * 2, x.detach() * 3),
    "a view of the input": lambda x: x.t(),
    "written in place": lambda x: x.clone().mul_(x),
    "no differentiable output": lambda x: x.detach() * 0 + 1,
}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("function", GOOD.values(), ids=GOOD)
def test_right_derivatives_pass(function, fast):
    x = draw(2, 2)
    before = x.detach().numpy().copy()
    assert gradcheck(function, x, fast_mode=fast) is True
    assert (x.detach().numpy() == before).all(), "the inputs are as before"
    assert x.grad is None


def test_complex_inputs_and_outputs():
    z = draw(2, dtype=torch.complex128)
    assert gradcheck(lambda z: z * z, z)
    assert gradcheck(lambda z: (z * z.conj()).sum(), z)
    assert gradcheck(lambda z: z.abs(), z)
    assert gradcheck(lambda z, x: z * x, (z, draw(2)))
    assert gradgradcheck(lambda z: z.exp(), z)
    assert gradcheck(lambda z: z.exp(), z, fast_mode=True)


def test_the_part_of_a_complex_output_is_named():
    wrong = rule(lambda z: z * 2, lambda g, z: g * 3)
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex outputs only, Jacobian mismatch"):
        gradcheck(wrong, draw(2, dtype=torch.complex128))


def test_second_derivatives():
    assert gradgradcheck(lambda x: x.tanh(), draw(3))
    assert gradgradcheck(lambda x, y: (x * y, x / (y * y + 1)), (draw(2), draw(2, seed=1)), fast_mode=True)
    assert gradgradcheck(lambda x: x @ x, draw(2, 2), gen_non_contig_grad_outputs=True)
    assert gradgradcheck(lambda x: x**3, draw(3), draw(3, seed=5))
    forgets = rule(lambda x: x**3, lambda g, x: 3 * g * x.detach() ** 2)
    assert gradcheck(forgets, draw(3))
    assert gradgradcheck(forgets, draw(3), raise_exception=False) is False


def test_failure_is_raised_or_returned():
    wrong = rule(lambda x: x * 2, lambda g, x: g * 3)
    assert gradcheck(wrong, draw(3), raise_exception=False) is False
    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, draw(3))
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert (error.output, error.input) == (0, 0)
    np.testing.assert_allclose(error.numerical, 2 * np.eye(3), atol=1e-6)
    np.testing.assert_allclose(error.analytical, 3 * np.eye(3))
    assert "3 of 9 entries differ" in str(error) and "same factor, 1.5" in str(error)


def test_output_and_input_are_numbered():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * 2, b * 2

        @staticmethod
        def backward(ctx, g, h):
            return g * 2, h * 5

    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 1 with respect to input 1,"):
        gradcheck(Two.apply, (draw(2), draw(2)))
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 1 with respect to input 1,"):
        gradcheck(Two.apply, (draw(2), draw(2)), fast_mode=True)
    assert gradcheck(lambda a, b: Two.apply(a, b), (draw(2), draw(2).detach())), "inputs that do not require grad are left alone"


def test_report_names_the_worst_entry_and_shows_both():
    right, wrong = np.zeros((6, 2)), np.zeros((6, 2))
    right[:, 0], wrong[:, 0] = np.arange(6), np.arange(6)
    wrong[4, 0] = 9
    wrong[2, 1] = 1
    text = report(right, wrong, (2, 3), (2,), 1e-3, 1e-5, "x", "y")
    assert "2 of 12 entries differ. The worst: d y[0] / d x[1, 1] is 4 when measured, but 9 according to backward" in text
    line = next(line for line in text.splitlines() if line.startswith("[1, 1]"))
    assert line.split() == ["[1,", "1]", "4", "0", "|", "9*", "0"]
    assert next(line for line in text.splitlines() if line.startswith("[0, 2]")).split()[-1] == "1*"


def test_report_of_a_large_jacobian_is_small_and_around_the_worst():
    right = np.zeros((100, 80))
    wrong = right.copy()
    wrong[70, 33] = np.nan
    text = report(right, wrong, (100,), (80,), 1e-3, 1e-5)
    assert "d output[33] / d input[70] is 0 when measured, but nan" in text
    assert len(text.splitlines()) < 20 and "12 of 100 rows and 6 of 80 columns" in text


def test_fast_mode_recomputes_the_jacobians_for_the_report():
    with pytest.raises(GradcheckError, match="in fast mode") as caught:
        gradcheck(rule(lambda x: x * 2, lambda g, x: g * 3), draw(4), fast_mode=True)
    assert re.search(r"The max per-element difference \(slow mode\) is: (0\.9999|1\.0)", str(caught.value)) and "The worst:" in str(caught.value)


def test_jacobians_have_rows_for_inputs():
    x = draw(3)
    [[j]] = numerical_jacobians(lambda x: x[:2] * torch.tensor([2.0, 5.0], dtype=torch.float64), (x,), 1e-6)
    np.testing.assert_allclose(j, [[2, 0], [0, 5], [0, 0]], atol=1e-8)
    [a] = analytical_jacobians(x[:2] * 2, [x])
    np.testing.assert_allclose(a, [[2, 0], [0, 2], [0, 0]])


# Other faults --------------------------------------------------------------------------------------------------


def test_random_rules_are_found_out():
    rng = np.random.default_rng(0)
    noisy = rule(lambda x: x * 2, lambda g, x: g * (2 + 1e-7 * rng.standard_normal()))
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(noisy, draw(3))
    assert gradcheck(noisy, draw(3), nondet_tol=1e-5)


def test_a_gradient_that_ignores_the_incoming_one():
    constant = rule(lambda x: x.sum(), lambda g, x: torch.ones_like(x))
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(constant, draw(3))


def test_undefined_gradients():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 3

    with pytest.raises(TypeError):
        gradcheck(Two.apply, draw(2))

    class Careful(Two):
        @staticmethod
        def backward(ctx, g, h):
            total = None if g is None else g * 2
            return total if h is None else h * 3 if total is None else total + h * 3

    assert gradcheck(Careful.apply, draw(2))

    class Ones(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            if g is None or h is None:
                return torch.ones(2, dtype=torch.float64)
            return g * 2 + h * 3

    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0"):
        gradcheck(Ones.apply, draw(2))


def test_batched_gradients():
    assert gradcheck(lambda x: x * x, draw(3), check_batched_grad=True)
    calls = []

    def drifting(g, x):
        calls.append(1)
        return g * 2 if len(calls) < 9 else g * 4

    with pytest.raises(GradcheckError, match="testing batched gradient computation"):
        gradcheck(rule(lambda x: x * 2, drifting), draw(3), check_batched_grad=True, nondet_tol=10)


def test_a_constant_that_is_none():
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, draw(2))


def test_what_inputs_are_refused():
    with pytest.raises(ValueError, match="expects at least one input tensor to require gradient"):
        gradcheck(lambda x: x, torch.ones(2))
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x * 2, torch.ones(1, dtype=torch.float64).expand(3).detach().requires_grad_())
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
        gradcheck(lambda x: x * 2, torch.ones(2, requires_grad=True), atol=1e-1)
    with pytest.raises(AssertionError, match="Expected at least one of check_forward_ad or check_backward_ad"):
        gradcheck(lambda x: x, draw(1), check_backward_ad=False)
    with pytest.raises(AssertionError, match="check_batched_forward_grad=True requires"):
        gradcheck(lambda x: x, draw(1), check_batched_forward_grad=True)
    with pytest.raises(AssertionError, match="check_fwd_over_rev or check_rev_over_rev"):
        gradgradcheck(lambda x: x, draw(1), check_rev_over_rev=False, check_undefined_grad=False)


def test_an_error_inside_the_function_restores_the_input():
    x, calls = draw(2), []
    before = x.detach().numpy().copy()

    def failing(x):
        calls.append(1)
        if len(calls) > 3:
            raise KeyError("from inside")
        return x * 2

    with pytest.raises(KeyError):
        gradcheck(failing, x)
    assert (x.detach().numpy() == before).all()


def test_shape_that_depends_on_the_values():
    x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="same shape"):
        gradcheck(lambda x: x[x > 0], x)


# Forward mode --------------------------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    "Twice the input, with rules that can be made to fail; counts how often the forward rule runs."
    calls = 0

    @staticmethod
    def forward(ctx, x, forward_fails, backward_fails):
        ctx.forward_fails, ctx.backward_fails = forward_fails, backward_fails
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if ctx.backward_fails:
            raise RuntimeError("FAIL BWD")
        return g * 2, None, None

    @staticmethod
    def jvp(ctx, t, *_):
        Doubled.calls += 1
        if ctx.forward_fails:
            raise RuntimeError("FAIL FWD")
        return t * 2


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("function", [f for name, f in GOOD.items()], ids=list(GOOD))
def test_right_tangents_pass(function, fast):
    assert gradcheck(function, draw(2, 2), check_forward_ad=True, check_batched_forward_grad=True, check_batched_grad=True, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_forward_mode_with_complex_numbers(fast):
    z, w = draw(2, dtype=torch.complex128), draw(2, dtype=torch.complex128, seed=1)
    assert gradcheck(lambda z, w: (z * w.conj(), z.abs()), (z, w), check_forward_ad=True, fast_mode=fast)
    assert gradcheck(lambda z, x: z * x, (z, draw(2)), check_forward_ad=True, fast_mode=fast)
    assert gradcheck(lambda x: x * 1j, draw(2), check_forward_ad=True, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_wrong_tangents_are_found(fast):
    forward_ad = torch.autograd.forward_ad

    def bad(x, y):
        if forward_ad._current_level >= 0:
            primal, tangent = forward_ad.unpack_dual(y)
            y = forward_ad.make_dual(primal, tangent * 1.1)
        return x + y, y

    with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch for output 0 with respect to input 1") as caught:
        gradcheck(bad, (draw(2), draw(2)), check_forward_ad=True, fast_mode=fast)
    assert caught.value.comparison.forward and "according to forward mode" in str(caught.value)
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex inputs only, Jacobian computed with forward mode mismatch for output 0 with respect to input 1"):
        gradcheck(bad, (draw(2, dtype=torch.complex128), draw(2, dtype=torch.complex128)), check_forward_ad=True, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("backward_fails", [False, True])
@pytest.mark.parametrize("forward_fails", [False, True])
@pytest.mark.parametrize("modes", [(True, True), (True, False), (False, True)])
def test_only_the_chosen_mode_is_checked(modes, forward_fails, backward_fails, fast):
    forward, backward = modes
    check = dict(check_forward_ad=forward, check_backward_ad=backward, check_undefined_grad=backward, check_batched_grad=backward, fast_mode=fast)
    expected = "FAIL BWD" if backward and backward_fails else "FAIL FWD" if forward and forward_fails else None
    if expected is None:
        assert gradcheck(Doubled.apply, (draw(2), forward_fails, backward_fails), **check)
    else:
        with pytest.raises(RuntimeError, match=expected):
            gradcheck(Doubled.apply, (draw(2), forward_fails, backward_fails), **check)


def test_how_often_the_forward_rule_runs():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            assert not (torch.autograd.forward_ad._current_level >= 0 and (x.requires_grad or y.requires_grad)), "forward mode gets detached inputs"
            return x.clone(), y.clone()

        @staticmethod
        def jvp(ctx, s, t):
            counted.append(1)
            return s, t

    only_forward = dict(check_forward_ad=True, check_backward_ad=False)
    for y, expected in ((draw(1), (2, 6, 12)), (draw(1).detach(), (1, 2, 5))):
        for more, times in zip((dict(check_undefined_grad=False), {}, dict(check_batched_forward_grad=True)), expected):
            counted = []
            assert gradcheck(Both.apply, (draw(1), y), **only_forward, **more)
            assert len(counted) == times


def test_batches_of_tangents():
    assert gradcheck(lambda a, n: (a.clone(), a + n), (draw(2), 1), check_forward_ad=True, check_backward_ad=False, check_batched_forward_grad=True)
    assert gradcheck(lambda a, c: a.clone(), (draw(2), draw(2)), check_forward_ad=True, check_backward_ad=False, check_batched_forward_grad=True)

    class Random(Doubled):
        @staticmethod
        def jvp(ctx, t, *_):
            torch.randn_like(t)
            return t * 2

    with pytest.raises(RuntimeError, match="vmap: We do not yet support calling random operations inside of vmap"):
        gradcheck(Random.apply, (draw(2), False, False), check_forward_ad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize("fast", [False, True])
def test_second_derivatives_by_forward_mode(fast):
    check = dict(check_fwd_over_rev=True, fast_mode=fast)
    assert gradgradcheck(lambda x, y: ((x * y).sin(), x.exp()), (draw(2), draw(2, seed=1)), **check)
    assert gradgradcheck(lambda x: x @ x, draw(2, 2), check_rev_over_rev=False, check_undefined_grad=False, **check)
    assert gradgradcheck(lambda z: z * z * z.conj(), draw(2, dtype=torch.complex128), **check)
    assert gradgradcheck(lambda x, y: x * 2, (draw(2), draw(2)), **check), "a gradient that is missing"


def test_missing_gradients_are_announced():
    def needs_a_gradient(g, x):
        if g is None:
            raise RuntimeError("no gradient")
        return g * 2

    with pytest.warns(UserWarning, match="Backwards compatibility: New undefined gradient support checking feature"):
        with pytest.raises(GradcheckError, match="Expected backward function to handle undefined output grads"):
            gradcheck(rule(lambda x: x * 2, needs_a_gradient, materialize=False), draw(3))


def test_retired_functions():
    from autograd_nb.autograd.gradcheck import get_analytical_jacobian, get_numerical_jacobian

    a, b = draw(2, 2), draw(2, 2, seed=1)

    def fn(xs):
        return 2 * xs[0] + xs[1], xs[0] + 2 * xs[1]

    with pytest.warns(FutureWarning, match="`get_numerical_jacobian` was part of PyTorch's private API"):
        [measured] = get_numerical_jacobian(fn, (a, b), target=a, eps=1e-6)
    assert np.allclose(measured.numpy(), 2 * np.eye(4))
    with pytest.warns(FutureWarning, match="`get_analytical_jacobian` was part of PyTorch's private API"):
        jacobians, *good = get_analytical_jacobian((a, b), fn((a, b))[0])
    assert good == [True, True, True] and np.allclose(jacobians[1].numpy(), np.eye(4))
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="Expected grad_out to be 1.0"):
        get_numerical_jacobian(fn, (a, b), grad_out=2.0)


# PyTorch's verdicts --------------------------------------------------------------------------------------------

# name -> (make the function, given the library; shape; arguments of gradcheck)
VERDICTS = {
    "right": (lambda lib: lambda x: x.sin(), {}),
    "right, fast": (lambda lib: lambda x: x.sin(), dict(fast_mode=True)),
    "right, batched": (lambda lib: lambda x: x * 2, dict(check_batched_grad=True)),
    "wrong": (lambda lib: rule(lambda x: x * 2, lambda g, x: g * 3, lib), {}),
    "wrong, fast": (lambda lib: rule(lambda x: x * 2, lambda g, x: g * 3, lib), dict(fast_mode=True)),
    "slightly wrong": (lambda lib: rule(lambda x: x * 2, lambda g, x: g * (2 + 1e-3), lib), {}),
    "slightly wrong, tolerated": (lambda lib: rule(lambda x: x * 2, lambda g, x: g * (2 + 1e-3), lib), dict(atol=1e-2)),
    "ignores g": (lambda lib: rule(lambda x: x.sum(), lambda g, x: lib.ones_like(x), lib), {}),
    "constant": (lambda lib: lambda x: x.detach() * 2, {}),
    "wrong shape": (lambda lib: rule(lambda x: x.sum(), lambda g, x: g, lib), {}),
    "nothing to check": (lambda lib: lambda x: x * 2, dict(check_backward_ad=False)),
    "forward mode": (lambda lib: lambda x: x.sin(), dict(check_forward_ad=True, check_batched_forward_grad=True)),
    "forward mode, without a rule": (lambda lib: rule(lambda x: x * 2, lambda g, x: g * 2, lib), dict(check_forward_ad=True)),
    "batches of a mode that is not checked": (lambda lib: lambda x: x * 2, dict(check_batched_forward_grad=True)),
}


def verdict(lib, check, make, options):
    x = lib.tensor([0.5, -1.5], dtype=lib.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return check(make(lib), (x,), **options)
        except Exception as error:
            return type(error).__name__, str(error)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make, options", VERDICTS.values(), ids=VERDICTS)
def test_verdicts_are_pytorchs(make, options):
    import torch as reference

    ours, theirs = verdict(autograd_nb, gradcheck, make, options), verdict(reference, reference.autograd.gradcheck, make, options)
    if theirs is True or ours is True:
        assert ours is theirs
    else:
        assert ours[0] == theirs[0]
        assert ours[1][:60] == theirs[1][:60]


@pytest.mark.needs("torch")
def test_the_message_begins_with_pytorchs():
    import torch as reference

    make, _ = VERDICTS["wrong"]
    (_, ours), (_, theirs) = verdict(autograd_nb, gradcheck, make, {}), verdict(reference, reference.autograd.gradcheck, make, {})
    assert ours.startswith(theirs.rstrip())


def test_the_sentence_names_the_outlined_cell_and_numbers_that_differ():
    "Of a small entry that is far off and a large one that is off by more, both name the second."
    from autograd_nb.autograd.gradcheck import Comparison
    from autograd_nb.viz.jacobians import differences, jacobian_text, worst_of

    numerical = np.diag([0.01, 172.5, 3.0])
    claimed = numerical * np.diag([1.5, 1.0 + 2e-3, 1.0])
    c = Comparison(0, 0, numerical, claimed, (3,), (3,), "", False)
    said = jacobian_text(c, 1e-3, 1e-5).splitlines()[0]
    assert worst_of(c, differences(c, 1e-3, 1e-5)) == (1, 1) and "output 0[1] / d input 0[1]" in said
    assert "172.5 when measured, but 172.8 according" in said
    close = report(numerical, numerical * (1 + 1e-6), (3,), (3,), 1e-9, 1e-12).splitlines()[0]
    measured, backward = re.search(r"is (\S+) when measured, but (\S+) according", close).groups()
    assert measured != backward and "same factor" not in close
    assert "off by the same factor, 2" in report(numerical, numerical * 2, (3,), (3,), 1e-3, 1e-5).splitlines()[0]
