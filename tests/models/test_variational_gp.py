"""Counts, shares and numbers with outliers, by variational inference."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.exceptions.errors import UnsupportedError
from cases import reloaded
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, NegativeBinomialLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.variational import VariationalStrategy
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    MixedInputs,
    PointClouds,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    VariationalDistributionGP,
    fit,
)
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.models import PoissonRateLikelihood, variational_gp
from gp_distributions.models.choice import Choice
from gp_distributions.warnings import ConvergenceWarning

TRAIN, TEST = slice(0, 60), slice(60, 160)
ROUGH = {"ftol": 1e-4}


def bags(num: int = 160, seed: int = 0) -> tuple[PointClouds, Tensor, np.random.Generator]:
    """Bags of two sizes, and a smooth function of them."""
    rng = np.random.default_rng(seed)
    clouds = [rng.normal(rng.normal(size=2), 1, size=(9 + i % 2, 2)) for i in range(num)]
    latent = [np.sin(2 * cloud[:, 0].mean()) + 0.5 * cloud[:, 1].mean() for cloud in clouds]
    return PointClouds.from_list(clouds), torch.tensor(latent), rng


def problem(kind: str) -> tuple[PointClouds, Tensor, dict[str, Tensor]]:
    """Bags, targets, and what the likelihood is told about the bags."""
    X, latent, rng = bags()
    exposure = torch.tensor(rng.uniform(0.5, 4, len(X)))
    trials = torch.tensor(rng.integers(10, 200, len(X)).astype(float))
    if kind == "poisson":
        y = torch.tensor(rng.poisson(exposure * latent.exp())).double()
        return X, y, {"exposure": exposure}
    if kind == "binomial":
        return X, torch.tensor(rng.binomial(trials, latent.sigmoid())).double(), {"trials": trials}
    return X, 1e3 * (5 + latent + 0.1 * torch.tensor(rng.standard_t(2.5, len(X)))), {}


def of(part: slice, known: dict[str, Tensor]) -> dict[str, Any]:
    return {name: value[part] for name, value in known.items()}


@cache
def fitted(kind: str, **options: Any) -> VariationalDistributionGP:
    X, y, known = problem(kind)
    options = {"likelihood": kind, **of(TRAIN, known), **options}
    model = VariationalDistributionGP(X[TRAIN], y[TRAIN], **options)
    return fit(model, restarts=0, progress=False, options=ROUGH)


@pytest.mark.parametrize("kind", ["poisson", "binomial", "student_t"])
def test_intervals_cover_and_predictions_are_better_than_those_without_bags(kind: str) -> None:
    X, y, known = problem(kind)
    model = fitted(kind)
    lower, upper = model.interval(X[TEST], **of(TEST, known))
    assert ((lower <= y[TEST]) & (y[TEST] <= upper)).double().mean() >= 0.9
    mean, std = model.predict(X[TEST], **of(TEST, known))
    share = y / next(iter(known.values()), torch.ones(160))
    errors = share[TEST] - mean / next(iter(of(TEST, known).values()), torch.ones(100))
    assert errors.abs().median() < 0.7 * (share[TEST] - share[TRAIN].mean()).abs().median()
    _, certain = model.predict(X[TEST], observation_noise=False, **of(TEST, known))
    assert bool((certain < std).all())


@pytest.mark.parametrize("kind", ["poisson", "binomial", "student_t"])
def test_log_probabilities_are_those_of_the_predictive_distribution(kind: str) -> None:
    X, y, known = problem(kind)
    few = slice(60, 80)
    model, some = fitted(kind), of(few, known)
    found = model.log_prob(X[few], y[few], **some, batch_size=7)
    predictive = model.predictive(X[few], **some)
    torch.testing.assert_close(found, predictive.log_prob(y[few]), rtol=1e-5, atol=1e-5)
    if kind != "student_t":
        counts = torch.arange(3000.0, dtype=torch.float64).unsqueeze(-1)
        within = counts <= (some["trials"] if kind == "binomial" else 3000)
        masses = predictive.log_prob(counts).exp().where(within, 0)
        torch.testing.assert_close(masses.sum(0), torch.ones(20).double(), rtol=0, atol=1e-5)
        mean, std = model.predict(X[few], **some)
        torch.testing.assert_close((masses * counts).sum(0), mean)
        torch.testing.assert_close((masses * (counts - mean).square()).sum(0), std.square())


def test_gaussian_targets_have_the_exact_posterior_and_marginal_likelihood() -> None:
    """With Gaussian noise, the normal shape is no approximation."""
    X, latent, rng = bags()
    y = latent[TRAIN] + 0.3 * torch.tensor(rng.normal(size=60))
    kernel = ScaleKernel(SlicedWassersteinKernel(2))
    model = VariationalDistributionGP(X[TRAIN], y, kernel, likelihood=GaussianLikelihood())
    fit(model, restarts=0, progress=False, options={"ftol": 1e-12, "maxiter": 3000})
    exact = DistributionGP(X[TRAIN], y, model.covar_module, outcome_transform=None)
    model.mean_module.raw_constant.requires_grad_(False)  # as that of the variational model
    exact.mean_module, exact.likelihood = model.mean_module, model.likelihood
    with torch.no_grad():
        log_likelihood = exact.likelihood(exact.train()(*exact.train_inputs)).log_prob(y)
        elbo = VariationalELBO(model.likelihood, model, num_data=60)
        bound = 60 * elbo(model.train()(*model.train_inputs), y)
        assert bound.item() == pytest.approx(log_likelihood.item(), abs=1e-2)
        assert bound < log_likelihood
        one, other = (each.posterior(X[TEST]) for each in (model, exact))
        torch.testing.assert_close(one.mean, other.mean, rtol=0, atol=5e-3)
        torch.testing.assert_close(one.variance, other.variance, rtol=0.02, atol=1e-4)


@pytest.mark.parametrize("num_inducing", [20, 60])
def test_posterior_is_that_of_the_strategy_of_gpytorch(num_inducing: int) -> None:
    model = fitted("poisson", num_inducing=num_inducing, overdispersion=False)
    strategy = model.variational_strategy
    assert len(strategy.inducing_points) == num_inducing

    with torch.no_grad():  # the same jitter, relative to the variance of the prior
        variances = model.covar_module(strategy.inducing_points, diag=True)
    jitter = variational_gp._JITTER * variances.mean().item()

    class Bare(ApproximateGP):
        def __init__(self) -> None:
            q = strategy._variational_distribution
            bare = VariationalStrategy(
                *(self, strategy.inducing_points, q),
                learn_inducing_locations=False,
                jitter_val=jitter,
            )
            bare.variational_params_initialized.fill_(1)
            super().__init__(bare)

        def forward(self, x: Tensor) -> MultivariateNormal:
            return MultivariateNormal(model.mean_module(x), model.covar_module(x))

    rows = bags()[0][TEST].pack()
    with torch.no_grad(), settings.fast_computations(False, False, False):
        expected, found = Bare().eval()(rows), model(rows)
        torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-8)
        torch.testing.assert_close(
            found.covariance_matrix, expected.covariance_matrix, rtol=0, atol=1e-4
        )
        mean, variance = (each.squeeze(-1) for each in model.latent_marginals(EmbeddedRows(rows)))
        torch.testing.assert_close(mean, found.mean)
        torch.testing.assert_close(variance, found.variance, rtol=0, atol=1e-8)


def test_parameters_that_change_in_place_change_predictions() -> None:
    X, y, known = problem("poisson")
    model, some = fitted("poisson"), of(TEST, known)
    other = VariationalDistributionGP(X[TRAIN], y[TRAIN], **of(TRAIN, known))
    other.predict(X[TEST], **some)
    with torch.no_grad():
        for mine, its in zip(other.parameters(), model.parameters(), strict=True):
            mine.copy_(its)
    torch.testing.assert_close(other.predict(X[TEST], **some), model.predict(X[TEST], **some))


def test_effects_of_bags_widen_intervals_where_counts_vary_more() -> None:
    """A linear kernel cannot take the effects of bags for a rough function."""
    X, latent, rng = bags()
    rates = (3 + latent + 0.6 * torch.tensor(rng.normal(size=160))).exp()
    y, coverage = torch.tensor(rng.poisson(rates)).double(), {}
    for overdispersion in (False, True):
        kernel = DistributionKernel(SlicedWasserstein(2), "linear")
        model = VariationalDistributionGP(X[TRAIN], y[TRAIN], kernel, overdispersion=overdispersion)
        fit(model, restarts=0, progress=False, options=ROUGH)
        lower, upper = model.interval(X[TEST])
        coverage[overdispersion] = ((lower <= y[TEST]) & (y[TEST] <= upper)).double().mean()
    assert coverage[False] < 0.87
    assert coverage[True] > 0.9
    assert model.effect_variance > 0.1


@pytest.mark.parametrize("counts", [[0] * 12, [3] * 12, [3]], ids=str)
def test_counts_that_are_all_alike(counts: list[int]) -> None:
    """Link values then have no variance from which to start."""
    X, _, _ = bags(20)
    model = fit(VariationalDistributionGP(X[: len(counts)], counts))
    lower, upper = model.interval(X[12:])
    assert (lower <= counts[0]).all()
    assert (upper >= counts[0]).all()
    assert (upper < 10).all()


@pytest.mark.parametrize("likelihood", [NegativeBinomialLikelihood(), BernoulliLikelihood()])
def test_likelihoods_of_gpytorch_are_taken(likelihood: Any) -> None:
    X, y, _ = problem("poisson")
    y = (y > 1).double() if isinstance(likelihood, BernoulliLikelihood) else y
    model = VariationalDistributionGP(X[TRAIN], y[TRAIN], likelihood=likelihood, num_inducing=30)
    fit(model, restarts=0, progress=False)
    lower, upper = model.interval(X[TEST])
    assert ((lower <= y[TEST]) & (y[TEST] <= upper)).double().mean() > 0.88
    loaded = reloaded(model)
    assert torch.equal(loaded.log_prob(X[TEST], y[TEST]), model.log_prob(X[TEST], y[TEST]))


@pytest.mark.parametrize("kind", ["poisson", "binomial", "student_t"])
def test_loaded_models_predict_the_same_bits(kind: str) -> None:
    X, _, known = problem(kind)
    model, some = fitted(kind), of(TEST, known)
    loaded = reloaded(model)
    assert all(map(torch.equal, model.predict(X[TEST], **some), loaded.predict(X[TEST], **some)))
    assert "VariationalDistributionGP" in repr(loaded)
    with pytest.warns(ConvergenceWarning):
        fit(loaded, init="current", progress=False, options={"maxiter": 2, "ftol": 1e-12})


def test_the_default_is_one_kernel_with_a_linear_term() -> None:
    X, latent, rng = bags()
    y = torch.tensor(rng.binomial(5, latent.sigmoid())).double()
    model = VariationalDistributionGP(X[TRAIN], y[TRAIN], likelihood="binomial", trials=5)
    fit(model, restarts=0, progress=False, options=ROUGH)
    assert model.choice == reloaded(model).choice == Choice(linear=True)


def test_acquisition_functions_read_the_latent_value() -> None:
    model = fitted("poisson")
    rows = bags()[0][TEST].pack().unsqueeze(-2).requires_grad_()
    value = LogExpectedImprovement(model, best_f=0.5)(rows)
    (gradient,) = torch.autograd.grad(value.sum(), rows)
    assert bool(gradient.isfinite().all())
    with pytest.raises(UnsupportedError, match="latent values"):
        model.posterior(rows, observation_noise=True)
    with pytest.raises(UnsupportedError, match="leave-one-out"):
        model.leave_one_out()


def test_larger_bags_and_mixed_inputs_are_predicted() -> None:
    model, (X, y, _) = fitted("poisson"), problem("poisson")
    larger = PointClouds(X[TEST].points.repeat(1, 3, 1), X[TEST].weights.repeat(1, 3))
    torch.testing.assert_close(model.predict(larger)[0], model.predict(X[TEST])[0])
    mixed = MixedInputs(bags=X, age=np.arange(160.0))
    both = fit(VariationalDistributionGP(mixed[TRAIN], y[TRAIN]), restarts=0, progress=False)
    assert [len(both.predict(part)[0]) for part in (mixed[TEST], mixed[:0])] == [100, 0]


def test_an_axis_of_outputs_is_kept() -> None:
    X, y, _ = problem("poisson")
    model = VariationalDistributionGP(X[TRAIN], y[TRAIN, None])
    assert [each.shape for each in model.predict(X[TEST])] == 2 * [(100, 1)]
    assert [model.interval(part)[0].shape for part in (X[TEST], X[:0])] == [(100, 1), (0, 1)]


WRONG = {
    "Expected whole counts >= 0, but that of cloud 3 is 2.5": ({3: 2.5}, {}),
    "from 0 to the number of trials, but that of cloud 1 is 9 of 5 trials": (
        {1: 9.0},
        {"likelihood": "binomial", "trials": 5},
    ),
    "Expected trials, the number of trials": ({}, {"likelihood": "binomial"}),
    "Expected positive exposures, but that of cloud 2": (
        {},
        {"exposure": [1.0, 2.0, 0.0, *57 * [1.0]]},
    ),
    "Expected trials=None, which PoissonRateLikelihood does not take": ({}, {"trials": 5}),
    "Expected likelihood to be \"poisson\", .* got 'posson'": ({}, {"likelihood": "posson"}),
    "Expected targets in .*Boolean.* cloud 5 is 7": (
        {5: 7.0},
        {"likelihood": BernoulliLikelihood()},
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_data_are_named(message: str) -> None:
    changed, options = WRONG[message]
    y = torch.ones(60, dtype=torch.float64)
    for place, value in changed.items():
        y[place] = value
    with pytest.raises(ValueError, match=message):
        VariationalDistributionGP(bags()[0][TRAIN], y, **options)


def test_wrong_counts_have_the_names_of_their_clouds() -> None:
    X, counts = bags()[0][:3], pd.Series([1.0, 0.5, 2.0], index=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"cloud 1 \(named 'b'\) is 0.5"):
        VariationalDistributionGP(X, counts)
    model = VariationalDistributionGP(X, [1, 2, 3])
    with pytest.raises(ValueError, match=r"cloud 2 is 1.5"):
        model.log_prob(X, [1, 1, 1.5])
    with pytest.raises(ValueError, match="without a batch axis and one target"):
        VariationalDistributionGP(X, torch.ones(3, 2))


def test_expected_log_probabilities_are_those_of_a_quadrature() -> None:
    mean, std = torch.tensor([0.3, -1.0]).double(), torch.tensor([0.5, 1.5]).double()
    latent = MultivariateNormal(mean, torch.diag(std.square()))
    nodes = torch.linspace(-8, 8, 2001).double().unsqueeze(-1)
    weights = (-nodes.square() / 2).softmax(0)
    given = {"exposure": torch.tensor([2.0, 0.5]).double()}
    y, likelihood = torch.tensor([4.0, 0.0]).double(), PoissonRateLikelihood()
    expected = (weights * likelihood(mean + std * nodes, **given).log_prob(y)).sum(0)
    torch.testing.assert_close(likelihood.expected_log_prob(y, latent, **given), expected)


def test_learned_inducing_rows_are_refused_by_name() -> None:
    """GPyTorch's default moves inducing rows, whose weights are then no weights."""
    moved = bags()[0][:5].pack().sub(1).requires_grad_()
    with pytest.raises(ValueError, match="learn_inducing_locations=False"):
        SlicedWassersteinKernel(2)(moved).to_dense()
