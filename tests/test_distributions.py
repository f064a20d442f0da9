"""Distributions: draws, probabilities, moments, gradients, words and shapes of PyTorch's."""

import re

import numpy as np
import pytest

import autograd_nb

pytestmark = pytest.mark.needs("torch")

FAMILIES = r"""
Normal(0., 1.)
Normal(a, b)
Normal(torch.zeros(3), 2.)
Laplace(a, b)
Cauchy(a, b)
Uniform(a, a + b)
Uniform(-1., 2.)
Exponential(b)
Exponential(0.5)
Poisson(b * 3)
Bernoulli(0.3)
Bernoulli(probs=p)
Bernoulli(logits=a)
Geometric(probs=p)
Geometric(logits=a)
Categorical(probs=m)
Categorical(logits=l)
Categorical(torch.tensor([1., 1., 2.]))
OneHotCategorical(probs=m)
OneHotCategorical(logits=l)
OneHotCategoricalStraightThrough(logits=l)
Multinomial(5, probs=m)
Multinomial(3, logits=l)
Independent(Normal(a, b), 1)
Independent(Bernoulli(p), 2)
MultivariateNormal(v, covariance_matrix=c)
MultivariateNormal(v, precision_matrix=c)
MultivariateNormal(torch.zeros(4, 3), scale_tril=torch.linalg.cholesky(c))
LogNormal(a, b)
HalfNormal(b)
Gumbel(a, b)
TransformedDistribution(Normal(a, b), [AffineTransform(1., 2.), SigmoidTransform()])
TransformedDistribution(Normal(a, b), [TanhTransform()])
TransformedDistribution(Uniform(torch.zeros(2, 3), torch.ones(2, 3)), [SigmoidTransform().inv, AffineTransform(a, b)])
TransformedDistribution(Exponential(b), [PowerTransform(torch.tensor(0.5)), SoftplusTransform().inv])
TransformedDistribution(Independent(Normal(a, b), 1), AffineTransform(0., 3., event_dim=1))
Gamma(b * 2, b)
Gamma(0.3, 2.)
Chi2(b * 4)
Beta(b, b + 1)
Beta(0.5, 2.)
Dirichlet(torch.exp(l))
StudentT(b * 6)
StudentT(torch.tensor([0.5, 1.5, 3.]), 1., 2.)
Binomial(20, p)
Binomial(torch.tensor([3., 40., 200.]), logits=a)
Pareto(b, b + 2)
Pareto(1., 0.5)
Weibull(b, b + 1)
InverseGamma(b + 3, b)
InverseGamma(0.5, 2.)
FisherSnedecor(b + 3, b * 9)
GeneralizedPareto(a, b, torch.tensor([-0.4, 0., 0.3]))
NegativeBinomial(5, probs=p)
NegativeBinomial(b * 4, logits=a)
ContinuousBernoulli(p)
ContinuousBernoulli(logits=torch.tensor([-3., 0., 1e-4, 2.]))
VonMises(a, b * 3)
VonMises(torch.tensor(1., dtype=torch.float64), 10.)
LogisticNormal(a, b)
LogisticNormal(0., 1.)
LowRankMultivariateNormal(v, l.T[:3], b[0])
LowRankMultivariateNormal(torch.zeros(2, 3), torch.ones(3, 1), torch.ones(3))
LKJCholesky(3, 0.5)
LKJCholesky(4, torch.tensor([1., 2.]))
Wishart(5., c)
Wishart(torch.tensor([5., 7.]), precision_matrix=c)
Wishart(4., scale_tril=torch.linalg.cholesky(c))
Kumaraswamy(b, b + 1)
TransformedDistribution(Normal(a, b), [StickBreakingTransform()])
TransformedDistribution(Normal(torch.zeros(3), 1.), [CorrCholeskyTransform()])
TransformedDistribution(Independent(Normal(a, b), 2), [ReshapeTransform((2, 3), (6,))])
TransformedDistribution(Normal(a, b), [IndependentTransform(ExpTransform(), 1)])
TransformedDistribution(Normal(a, b), [CatTransform([ExpTransform(), AffineTransform(0., 2.)], dim=-1, lengths=[1, 2])])
"""
DIFFERENT_MODE = ("Kumaraswamy",)  # PyTorch's formula gives nan for every distribution with a mode


def lines(text):
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def setting(t, grad=False):
    t.manual_seed(0)
    numbers = dict(a=t.randn(2, 3), b=t.rand(2, 3) + 0.5, p=t.rand(2, 3) * 0.8 + 0.1, l=t.randn(2, 4), v=t.randn(3))
    numbers["m"] = t.softmax(t.randn(2, 4), -1)
    f = t.randn(3, 3)
    numbers["c"] = f @ f.T + t.eye(3)
    if grad:
        for x in numbers.values():
            x.requires_grad_()
    return {**vars(t.distributions), "torch": t, **numbers}


def both():
    import torch

    return torch, autograd_nb


def same(found, expected, rtol=2e-4, atol=2e-5):
    assert tuple(found.shape) == tuple(expected.shape) and str(found.dtype) == str(expected.dtype)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("make", lines(FAMILIES))
def test_draws(make):
    "The same numbers under the same seed."
    drawn = []
    for t in both():
        d = eval(make, setting(t))
        t.manual_seed(3)
        draws = [d.sample(), d.sample((4,)), d.sample(t.Size([2, 3]))]
        if d.has_rsample:
            draws += [d.rsample(), d.rsample((5,))]
        drawn.append((draws, d.has_rsample, repr(d), d.batch_shape, d.event_shape))
    theirs, ours = drawn
    assert ours[1:] == theirs[1:]
    for x, y in zip(ours[0], theirs[0]):
        same(x, y)


@pytest.mark.parametrize("make", lines(FAMILIES))
def test_probabilities_and_moments(make):
    import torch

    theirs, ours = eval(make, setting(torch)), eval(make, setting(autograd_nb))
    torch.manual_seed(1)
    x = theirs.sample((6,))
    y = autograd_nb.tensor(x.tolist(), dtype=getattr(autograd_nb, str(x.dtype).split(".")[1]))
    same(ours.log_prob(y), theirs.log_prob(x))
    for what in ("mean", "variance", "stddev", "mode")[: 3 if make.startswith(DIFFERENT_MODE) else 4]:
        try:
            expected = getattr(theirs, what)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(ours, what)
        else:
            same(getattr(ours, what), expected)
    for what in ("entropy", "perplexity"):
        try:
            expected = getattr(theirs, what)()
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(ours, what)()
        else:
            same(getattr(ours, what)(), expected)
    u = torch.rand(6, *theirs.batch_shape, *theirs.event_shape)
    for what, at in (("cdf", x), ("icdf", u)):
        try:
            expected = getattr(theirs, what)(at)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(ours, what)(autograd_nb.tensor(at.tolist()))
        else:
            same(getattr(ours, what)(autograd_nb.tensor(at.tolist())), expected, rtol=1e-3)
    assert repr(ours.support) == repr(theirs.support) and ours.support.event_dim == theirs.support.event_dim and ours.support.is_discrete == theirs.support.is_discrete
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    if theirs.has_enumerate_support:
        for expand in (True, False):
            try:
                expected = theirs.enumerate_support(expand)
            except NotImplementedError:
                with pytest.raises(NotImplementedError):
                    ours.enumerate_support(expand)
            else:
                same(ours.enumerate_support(expand), expected)


@pytest.mark.parametrize("make", lines(FAMILIES))
def test_expand(make):
    for t in both():
        d = eval(make, setting(t))
        shape = t.Size([5, *d.batch_shape])
        e = d.expand(shape)
        assert e.batch_shape == shape and e.event_shape == d.event_shape and type(e) is type(d)
        x = e.sample()
        assert x.shape == shape + d.event_shape
        np.testing.assert_allclose(e.log_prob(x).detach().numpy(), d.log_prob(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [m for m in lines(FAMILIES) if any(n in m for n in ("a", "b", "p", "m)", "l)"))])
def test_gradients(make):
    if make.startswith("Wishart"):
        return test_wishart_gradients(make)
    found = []
    for t in both():
        names = setting(t, grad=True)
        d = eval(make, names)
        t.manual_seed(2)
        x = d.sample((3,))
        leaves = [names[k] for k in "abplvmc"]
        total = d.log_prob(x).sum()
        if d.has_rsample:
            t.manual_seed(2)
            total = total + (d.rsample((3,)) ** 2).sum() * 0.1
        try:
            total = total + d.entropy().sum()
        except NotImplementedError:
            pass
        if not total.requires_grad:
            found.append(None)
            continue
        found.append([None if g is None else g.numpy() for g in t.autograd.grad(total, leaves, allow_unused=True)])
    if found[0] is None:
        assert found[1] is None
        return
    for x, y in zip(*found):
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_allclose(y, x, rtol=2e-3, atol=2e-4)


def test_wishart_gradients(make="Wishart(5., c)"):
    "PyTorch's own draws cannot be differentiated: they are changed in place."
    found = []
    for t in both():
        names = setting(t, grad=True)
        d = eval(make, names)
        t.manual_seed(2)
        x = d.sample((3,))
        found.append(t.autograd.grad(d.log_prob(x).sum() + d.entropy().sum(), names["c"])[0].numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=2e-3, atol=2e-4)
    names = setting(autograd_nb, grad=True)
    autograd_nb.manual_seed(0)
    average = eval(make, names).rsample((20000,)).mean((0, *range(1, d.df.dim() + 1)))[0, 1]
    expected = eval(make, names).mean.reshape(-1, 3, 3).mean(0)[0, 1]
    found, wanted = (autograd_nb.autograd.grad(v, names["c"])[0].numpy() for v in (average, expected))
    np.testing.assert_allclose(found + found.T, wanted + wanted.T, atol=0.15 * abs(wanted).max())


PAIRS = r"""
Wishart(torch.tensor(4.), torch.eye(2)); Wishart(torch.tensor(5.), 2 * torch.eye(2))
Wishart(torch.tensor([5., 6.]), c); Wishart(torch.tensor([4., 9.]), precision_matrix=c)
Normal(a, b); Normal(b, b + 1)
Laplace(a, b); Laplace(b, b + 1)
Exponential(b); Exponential(b + 1)
Poisson(b); Poisson(b + 1)
Uniform(a, a + b); Uniform(a - 1, a + b + 1)
Uniform(a, a + b); Uniform(a, a + b / 2)
Uniform(a, a + b); Normal(a, b)
Bernoulli(p); Bernoulli(logits=a)
Bernoulli(torch.tensor([0., 1., 0.5])); Bernoulli(torch.tensor([0.5, 0.5, 1.]))
Geometric(p); Geometric(p / 2)
Categorical(m); Categorical(logits=l)
Categorical(torch.tensor([0., 0.5, 0.5])); Categorical(torch.tensor([0.5, 0.5, 0.]))
OneHotCategorical(m); OneHotCategorical(logits=l)
Independent(Normal(a, b), 1); Independent(Normal(b, b), 1)
MultivariateNormal(v, c); MultivariateNormal(v + 1, c * 2)
MultivariateNormal(v, c); MultivariateNormal(torch.zeros(2, 3), c + torch.eye(3))
LogNormal(a, b); LogNormal(b, b)
HalfNormal(b); HalfNormal(b + 1)
TransformedDistribution(Normal(a, b), [ExpTransform()]); TransformedDistribution(Normal(b, b), [ExpTransform()])
Binomial(7, p); Binomial(7, logits=a)
Binomial(9, p); Binomial(7, logits=a)
Pareto(b + 1, b); Pareto(b, b + 1)
Pareto(b, b); Pareto(b + 1, b + 1)
Cauchy(a, b); Cauchy(b, b + 1)
LowRankMultivariateNormal(v, l.T[:3], b[0]); MultivariateNormal(v + 1, c)
MultivariateNormal(v, c); LowRankMultivariateNormal(v + 1, l.T[:3], b[0])
LowRankMultivariateNormal(v, l.T[:3], b[0]); LowRankMultivariateNormal(a, l.T[:3] * 2, b[1])
Uniform(-b, b); Pareto(b, b)
Uniform(b + 3, b + 4); Pareto(b, b)
Uniform(b - 0.6, b + 1); Beta(b, b)
Uniform(-b, b); Gamma(b, b)
Uniform(p / 2, p); ContinuousBernoulli(p)
Beta(b, b); Uniform(b - 1.5, b + 1)
Beta(b, b); Uniform(b, b + 1)
"""
NAMED = {
    "Bernoulli": "Bernoulli(p)", "Poisson": "Poisson(b)", "Beta": "Beta(b, b + 1)", "ContinuousBernoulli": "ContinuousBernoulli(p)", "Exponential": "Exponential(b)", "Gamma": "Gamma(b, b + 1)", "Gumbel": "Gumbel(a, b)",
    "Laplace": "Laplace(a, b)", "Normal": "Normal(a, b)", "Pareto": "Pareto(b, b + 2)", "Uniform": "Uniform(p / 2, p)", "Binomial": "Binomial(5, p)",
}  # fmt: skip


def test_every_pair_of_families():
    "Wherever PyTorch has a divergence of two of these families, it is here too."
    from torch.distributions.kl import _KL_REGISTRY

    from autograd_nb.distributions.kl import _KL_REGISTRY as ours

    def pairs(rules):
        return {(p.__name__, q.__name__) for p, q in rules}

    assert not pairs(_KL_REGISTRY) - pairs(ours)
    for p, q in sorted(pairs(_KL_REGISTRY)):
        if p in NAMED and q in NAMED:
            found = [t.distributions.kl_divergence(eval(NAMED[p], setting(t)), eval(NAMED[q], setting(t))) for t in both()]
            np.testing.assert_allclose(found[1].numpy(), found[0].numpy(), rtol=2e-4, atol=2e-5, err_msg=f"{p}, {q}")


FAMILIES = {
    "Normal": ((0.3, 1.2), (1.0, 0.4)), "Exponential": ((0.4,), (2.0,)), "Bernoulli": ((0.4,), (0.7,)), "ContinuousBernoulli": ((0.4,), (0.7,)),
    "Gamma": ((0.4, 2.0), (0.7, 0.3)), "Poisson": ((0.4,), (2.0,)), "Beta": ((0.4, 2.0), (0.7, 0.3)), "Dirichlet": (([0.4, 2.0],), ([0.7, 0.3],)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_exponential_families_agree_with_their_own_formulas(name):
    "What follows from natural parameters is what the family's own entropy and divergence say."
    import autograd_nb as torch
    from autograd_nb.distributions.kl import _kl_expfamily_expfamily

    p, q = (getattr(torch.distributions, name)(*map(torch.tensor, given)) for given in FAMILIES[name])
    np.testing.assert_allclose(_kl_expfamily_expfamily(p, q).detach().numpy(), torch.distributions.kl_divergence(p, q).numpy(), 1e-4, 1e-5)
    if name not in ("Poisson", "Beta", "Dirichlet"):  # their carrier has no mean in closed form
        np.testing.assert_allclose(torch.distributions.ExponentialFamily.entropy(p).detach().numpy(), p.entropy().numpy(), 1e-4, 1e-5)


TRANSFORMS = r"""
StickBreakingTransform(); l
SoftmaxTransform(); l
LowerCholeskyTransform(); c
PositiveDefiniteTransform(); c
CorrCholeskyTransform(); a
ReshapeTransform((3,), (3, 1)); a
CumulativeDistributionTransform(Normal(0., 2.)); a
IndependentTransform(ExpTransform(), 1); a
CatTransform([ExpTransform(), AffineTransform(1., -2.)], dim=1, lengths=[1, 2]); a
CatTransform([IndependentTransform(ExpTransform(), 1), StickBreakingTransform().inv.inv], dim=0); a
StackTransform([ExpTransform(), TanhTransform()], dim=0); a
ComposeTransform([AffineTransform(1., 2.), StickBreakingTransform()]); a
biject_to(constraints.positive); a
biject_to(constraints.greater_than(2.)); a
biject_to(constraints.less_than(torch.ones(3))); a
biject_to(constraints.interval(-1., 3.)); a
biject_to(constraints.half_open_interval(0., 1.)); a
biject_to(constraints.simplex); a
transform_to(constraints.simplex); a
transform_to(constraints.lower_cholesky); c
transform_to(constraints.positive_definite); c
transform_to(constraints.corr_cholesky); a
transform_to(constraints.independent(constraints.positive, 1)); a
transform_to(constraints.cat([constraints.real, constraints.positive], 1, [2, 1])); a
transform_to(constraints.stack([constraints.real, constraints.unit_interval])); a
transform_to(Dirichlet(torch.ones(3)).arg_constraints['concentration']); a
"""


QUESTIONS = lines(r"""
f(x)
f.inv(f(x))
f.log_abs_det_jacobian(x, f(x))
f.with_cache()(x)
f.forward_shape(x.shape)
f.inverse_shape(f(x).shape)
f.domain.event_dim, f.codomain.event_dim, f.bijective
f.codomain.check(f(x)).tolist()
f.sign
repr(f.domain)
repr(f.codomain)
""")


@pytest.mark.parametrize("line", lines(TRANSFORMS))
def test_transforms(line):
    "There, back, and how much they stretch."
    found = []
    for t in both():
        names = setting(t)
        f, x = (eval(part, names) for part in line.split(";"))
        got = []
        for what in QUESTIONS:
            try:
                got.append(eval(what, {"f": f, "x": x}))
            except Exception as error:
                got.append(type(error).__name__)
        found.append(got)
    for ours, theirs in zip(found[1], found[0], strict=True):
        if hasattr(theirs, "numpy"):
            same(ours, theirs)
        else:
            assert ours == theirs


REMEMBERING = lines(r"""
AffineTransform(1., 2., event_dim=1)
PowerTransform(torch.tensor(2.))
ComposeTransform([ExpTransform(), AffineTransform(1., 2.)])
IndependentTransform(ExpTransform(), 1)
ReshapeTransform((2, 3), (6,))
CumulativeDistributionTransform(Normal(0., 1.))
CatTransform([ExpTransform(), AffineTransform(1., 2.)], dim=1, lengths=[1, 2])
StackTransform([ExpTransform(), TanhTransform()], dim=-1)
ExpTransform()
StickBreakingTransform()
TanhTransform().inv
type('Doubled', (AffineTransform,), {'__init__': lambda self: AffineTransform.__init__(self, 0., 2.)})()
type('Own', (Transform,), {'__init__': lambda self, c: Transform.__init__(self)})(3)
type('Plain', (Transform,), {})()
""")


@pytest.mark.parametrize("line", REMEMBERING)
def test_with_cache_keeps_the_arguments(line):
    "The same transform, of the same class as PyTorch's, with or without a memory; a class of one's own with arguments is refused."
    found = []
    for t in both():
        f = eval(line, setting(t))
        try:
            g = f.with_cache()
            found.append((type(g).__name__, repr(g), f == g, g.with_cache() is g or type(f).__name__ == "_InverseTransform", g.with_cache(0) is g, f._cache_size))
        except NotImplementedError as error:
            found.append(re.sub("<class.*>", "", str(error)))
    assert found[0] == found[1]


def test_transforms_of_ones_own():
    "A class with `_call`, `_inverse` and `log_abs_det_jacobian`, as flows define them."
    found = []
    for t in both():

        class Cubic(t.distributions.transforms.Transform):
            domain = codomain = t.distributions.constraints.real
            bijective, sign = True, +1

            def _call(self, x):
                return x**3 + x

            def _inverse(self, y):
                x = y / 2
                for _ in range(60):
                    x = x - (x**3 + x - y) / (3 * x**2 + 1)
                return x

            def log_abs_det_jacobian(self, x, y):
                return (3 * x**2 + 1).log()

        t.manual_seed(0)
        flow = t.distributions.TransformedDistribution(t.distributions.Normal(t.zeros(3), 1.0), [Cubic(cache_size=1), t.distributions.AffineTransform(1.0, 2.0)])
        x = flow.rsample((4,))
        found.append((x, flow.log_prob(x), flow.cdf(x), flow.icdf(flow.cdf(x))))
    for theirs, ours in zip(*found):
        same(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize("pair", lines(PAIRS))
def test_divergences(pair):
    found = []
    for t in both():
        names = setting(t)
        p, q = (eval(part, names) for part in pair.split(";"))
        found.append(t.distributions.kl_divergence(p, q))
    same(found[1], found[0])


REFUSED = r"""
Normal(0., 1.).sample(3)
Gamma(b, b).rsample(2)
Wishart(torch.tensor(4.), torch.eye(2)).sample(1)
biject_to(constraints.positive_definite)
biject_to(constraints.positive_semidefinite)
Normal(0., -1.)
Normal(torch.tensor([0., float('nan')]), 1.)
Normal(a, 'wide')
Normal(a, b).log_prob(3.)
Normal(a, b).log_prob(torch.ones(5))
Normal(a, b).log_prob(torch.tensor(float('nan')))
Uniform(1., 0.)
Uniform(0., 1.).log_prob(torch.tensor(2.))
Bernoulli(0.5, 0.5)
Bernoulli()
Bernoulli(1.5)
Bernoulli(p).log_prob(torch.tensor(0.5))
Categorical()
Categorical(torch.tensor(1.))
Categorical(torch.tensor([-1., 2.]))
Categorical(m).log_prob(torch.tensor(4))
Categorical(m).log_prob(torch.tensor(0.5))
Exponential(0.)
Exponential(b).log_prob(torch.tensor(-1.))
Geometric(torch.tensor([0.5, 0.]))
Multinomial(torch.ones(2), m)
Multinomial(2, m).log_prob(torch.ones(4))
OneHotCategorical(m).log_prob(torch.ones(4))
Independent(Normal(a, b), 3)
Independent(Bernoulli(p), 1).enumerate_support()
Independent(Normal(a, b), 1).log_prob(torch.ones(2))
MultivariateNormal(v)
MultivariateNormal(torch.tensor(1.), c)
MultivariateNormal(v, torch.ones(3))
MultivariateNormal(v, -c)
MultivariateNormal(v, scale_tril=torch.ones(3, 3))
LogNormal(a, b).log_prob(torch.tensor(-1.))
TransformedDistribution(Normal(a, b), 3)
TransformedDistribution(Normal(a, b), [3])
kl_divergence(Normal(a, b), Categorical(m))
ExpTransform(cache_size=3)
Binomial(5, 0.5, 0.5)
NegativeBinomial(5)
NegativeBinomial(5, 1.)
NegativeBinomial(-1., 0.5)
ContinuousBernoulli()
LKJCholesky(1)
LowRankMultivariateNormal(torch.tensor(1.), c, b)
LowRankMultivariateNormal(v, v, v)
LowRankMultivariateNormal(v, torch.ones(2, 1), torch.ones(3))
LowRankMultivariateNormal(v, torch.ones(3, 1), torch.ones(2))
Wishart(1., c)
Wishart(5.)
ReshapeTransform((2,), (3,))
StickBreakingTransform().forward_shape(())
CorrCholeskyTransform().inverse_shape((2, 3))
transform_to(constraints.boolean)
biject_to.register(3, lambda c: c)
Pareto(b, b).log_prob(b - 1)
kl_divergence(Binomial(3, p), Binomial(4, p))
torch.poisson(torch.tensor([-1.]))
torch.poisson(torch.tensor([1]))
torch.binomial(torch.tensor([1]), torch.tensor([0.5]))
"""


@pytest.mark.parametrize("line", lines(REFUSED))
def test_refused(line):
    said = []
    for t in both():
        try:
            eval(line, setting(t))
        except Exception as error:
            said.append((type(error).__name__, str(error)))
        else:
            said.append(None)
    assert said[0] is not None and said[1] == said[0]


def test_checks_can_be_switched_off():
    d = autograd_nb.distributions
    t = autograd_nb
    d.Normal(0.0, -1.0, validate_args=False)
    assert d.Uniform(0.0, 1.0, validate_args=False).log_prob(t.tensor(2.0)).item() == -float("inf")
    d.Distribution.set_default_validate_args(False)
    try:
        d.Normal(0.0, -1.0)
    finally:
        d.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        d.Distribution.set_default_validate_args(3)


@pytest.mark.parametrize("name", ["HalfNormal", "HalfCauchy"])
def test_halves_of_symmetric_families_below_zero_and_at_other_dtypes(name):
    found = []
    for t in both():
        d = getattr(t.distributions, name)(t.tensor([1.0, 2.0, 0.5, 3.0]), validate_args=False)
        x = t.tensor([-1.0, 0.0, 2.0, float("nan")], dtype=t.float64, requires_grad=True)
        p = d.log_prob(x)
        p.sum().backward()
        found.append((p, x.grad, p.grad_fn.name()))
    (theirs, by_theirs, node), (ours, by_ours, own_node) = found
    assert own_node == node
    same(ours, theirs)
    same(by_ours, by_theirs)


def test_families_of_ones_own():
    "A subclass with its own constructor says so when it is expanded; a rule for it may be registered."
    t, d = autograd_nb, autograd_nb.distributions

    class Coin(d.Bernoulli):
        def __init__(self):
            super().__init__(0.5)

    with pytest.raises(NotImplementedError, match="Subclass Coin of Bernoulli that defines a custom __init__ method must also define a custom .expand"):
        Coin().expand((2,))
    assert d.kl_divergence(Coin(), d.Bernoulli(0.25)).item() == pytest.approx(d.kl_divergence(d.Bernoulli(0.5), d.Bernoulli(0.25)).item())

    @d.register_kl(Coin, Coin)
    def always_nothing(p, q):
        return t.tensor(0.0)

    assert d.kl_divergence(Coin(), Coin()).item() == 0


def test_policy_gradient():
    "The gradient of `log_prob` teaches a policy to choose what pays."
    t, d = autograd_nb, autograd_nb.distributions
    t.manual_seed(0)
    logits = t.zeros(3, requires_grad=True)
    optimizer = t.optim.Adam([logits], lr=0.1)
    for _ in range(150):
        policy = d.Categorical(logits=logits)
        choice = policy.sample((16,))
        reward = (choice == 2).float()
        optimizer.zero_grad()
        (-(policy.log_prob(choice) * (reward - reward.mean())).mean()).backward()
        optimizer.step()
    assert d.Categorical(logits=logits).probs[2].item() > 0.95


@pytest.mark.parametrize("pair", ["Gamma(b, b); Gamma(b + 1, b * 2)", "Beta(b, b); Beta(b + 1, b * 2)", "Dirichlet(torch.exp(l)); Dirichlet(torch.exp(-l))", "Chi2(b); Chi2(b + 1)"])
def test_gamma_divergences(pair):
    test_divergences(pair)


def test_slope_of_gamma_draws():
    import torch

    from autograd_nb.distributions.gamma import beta_slope, gamma_slope

    a = np.repeat([0.05, 0.3, 1.0, 2.5, 10.0, 200.0], 50)
    z = torch._standard_gamma(torch.tensor(a), torch.Generator().manual_seed(0)).numpy()
    expected = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(z)).numpy()
    np.testing.assert_allclose(gamma_slope(a, z), expected, rtol=2e-3, atol=1e-7)
    a, b = (v.reshape(-1) for v in np.meshgrid([0.1, 0.7, 2.0, 9.0], [0.2, 1.0, 4.0, 30.0]))
    x = np.random.default_rng(0).beta(a, b).clip(1e-6, 1 - 1e-6)
    np.testing.assert_allclose(beta_slope(x, a, b), torch._dirichlet_grad(*map(torch.tensor, (x, a, a + b))).numpy(), rtol=3e-3)
    c = autograd_nb.tensor([0.7, 1.5, 3.0], requires_grad=True)
    p = autograd_nb.distributions.Dirichlet(c).rsample((30000,))
    p[:, 0].mean().backward()
    total = c.detach().sum()
    wanted = (autograd_nb.tensor([1.0, 0.0, 0.0]) * total - c.detach()[0]) / total**2
    np.testing.assert_allclose(c.grad.numpy(), wanted.numpy(), atol=0.01)


def test_probabilities_of_grey_values_are_kept_inside():
    "ContinuousBernoulli moves what is not between 0 and 1 there, unless it is asked to check."
    for given in (1.2, -0.5, 1.0, 0.3):
        found = [t.distributions.ContinuousBernoulli(given).probs.item() for t in both()]
        assert found[0] == found[1] and 0 < found[1] < 1
    for t in both():
        with pytest.raises(ValueError):
            t.distributions.ContinuousBernoulli(1.2, validate_args=True)


@pytest.mark.parametrize("make", ["Wishart(torch.tensor(5.0), torch.eye(3)).expand((4,))", "Wishart(torch.tensor([5.0, 6.0]), torch.eye(3))", "LKJCholesky(3, torch.tensor([0.5, 2.0]))", "MultivariateNormal(torch.zeros(2, 3), torch.eye(3))"])
def test_one_value_beside_a_batch_of_matrices(make):
    found = []
    for t in both():
        made = eval(make, {"torch": t, **vars(t.distributions)})
        one = t.linalg.cholesky(0.5 * t.eye(3) + 0.5) if "LKJ" in make else t.eye(3)[0] if "Normal" in make else 2 * t.eye(3) + 0.1
        found.append([made.log_prob(one).tolist(), made.log_prob(one.expand(5, *made.batch_shape, *one.shape)).shape])
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    assert len(found[1][0]) > 1 and tuple(found[0][1]) == tuple(found[1][1])


MIXTURES = {
    "intervals": lambda D, t: D.Uniform(t.tensor([0.0, 2.0]), t.tensor([3.0, 4.0])), "whole numbers": lambda D, t: D.Binomial(t.tensor([2.0, 4.0]), t.tensor([0.3, 0.6])), "numbers": lambda D, t: D.Normal(t.zeros(2), 1.0),
    "batches": lambda D, t: D.Uniform(t.zeros(3, 2), t.arange(1.0, 7.0).reshape(3, 2)), "events": lambda D, t: D.Independent(D.Uniform(t.zeros(2, 3), t.tensor([[3.0], [4.0]]).expand(2, 3)), 1),
}  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", MIXTURES)
def test_values_of_mixtures_fit_every_component(kind):
    found = []
    for lib in both():
        d = lib.distributions
        parts = MIXTURES[kind](d, lib)
        mixture = d.MixtureSameFamily(d.Categorical(lib.ones(2)), parts)
        c = mixture.support
        said = [repr(c), c.is_discrete, c.event_dim, repr(c.base_constraint)]
        for value in (lib.tensor(2.5), lib.tensor([2.5, 1.0, 5.0]), lib.tensor([1.0, 3.0]), lib.zeros(4, 3), lib.tensor([[1.0], [3.0]]).expand(2, 3)):
            for ask in (c.check, mixture.log_prob):
                try:
                    said.append(np.round(ask(value).double().numpy(), 4).tolist())
                except (ValueError, IndexError, RuntimeError) as error:
                    said.append(type(error).__name__)
        found.append(said)
    assert [str(x) for x in found[0]] == [str(x) for x in found[1]]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dim", [-2, -1, 0, 1])
@pytest.mark.parametrize("parts", ["positive real", "simplex simplex", "real simplex"])
def test_events_of_stacked_constraints(dim, parts):
    c, mine = ([getattr(lib.distributions.constraints, n) for n in parts.split()] for lib in both())
    theirs, ours = (lib.distributions.constraints.stack(c, dim).event_dim for lib, c in zip(both(), (c, mine)))
    assert theirs == ours
