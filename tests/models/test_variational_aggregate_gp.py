"""Rates of atoms from counts and shares of regions."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from cases import reloaded
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Binomial, Poisson

from gp_distributions import PointClouds, VariationalAggregateGP, fit
from gp_distributions.fitting.aggregates import log_evidence, settle

pytestmark = pytest.mark.usefixtures("short_fits")


def precincts(
    num: int = 60, seed: int = 0, *, slope: float = 0.0, kinds: bool = False
) -> tuple[PointClouds, Tensor, Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """Precincts of two groups: their clouds, votes, people, and people and votes of each group."""
    rng = np.random.default_rng(seed)
    people = rng.integers(100, 2000, num)
    first = rng.binomial(people, rng.beta(1.5, 1.5, num)).clip(1, people - 1)
    groups = np.stack([first, people - first], -1)
    shares = groups / people[:, None]
    logits = np.array([-1.0, 1.0]) + slope * (shares[:, :1] - shares[:, 0].mean())
    votes = rng.binomial(groups, 1 / (1 + np.exp(-logits - 0.3 * rng.normal(size=(num, 1)))))
    if kinds:
        names = np.broadcast_to(["a", "b"], (num, 2))
        X = PointClouds(np.zeros((num, 2, 1)), shares, kinds=names)
    else:
        X = PointClouds(np.broadcast_to(np.eye(2), (num, 2, 2)).copy(), shares)
    return X, torch.tensor(votes.sum(1)), torch.tensor(people), groups, votes


@cache
def fitted(slope: float, kinds: bool, context: float = 1.0) -> VariationalAggregateGP:
    X, y, people, _, _ = precincts(40, slope=slope, kinds=kinds)
    return fit(VariationalAggregateGP(X, y, trials=people, context=context, num_features=16))


@pytest.mark.parametrize(("slope", "kinds"), [(0.0, False), (1.0, True)])
def test_intervals_of_groups_cover_within_what_arithmetic_allows(slope: float, kinds: bool) -> None:
    _, y, people, groups, votes = precincts(40, slope=slope, kinds=kinds)
    model = fitted(slope, kinds)
    found, truth = model.group_shares(), torch.tensor(votes.sum(0) / groups.sum(0))
    assert bool(((found.lower < truth) & (truth < found.upper)).all())
    regions = model.group_shares(each=True)
    for shares, true in ((found, truth), (regions, torch.tensor(votes / groups))):
        assert bool(((shares.least <= true + 1e-9) & (true <= shares.most + 1e-9)).all())
        order = torch.stack([shares.least, shares.lower, shares.mean, shares.upper, shares.most])
        assert bool((order.diff(dim=0) >= -1e-9).all())
        assert bool(((shares.mean >= 0) & (shares.mean <= 1)).all())
    share = groups[:, 0] / people.numpy()  # the bounds of Duncan and Davis, by hand
    outcome = (y / people).numpy()
    least = np.maximum(0, (outcome - (1 - share)) / share)
    most = np.minimum(1, outcome / share)
    assert np.allclose(regions.least[:, 0], least)
    assert np.allclose(regions.most[:, 0], most)
    total = np.average(least, weights=groups[:, 0])
    assert math.isclose(found.least[0].item(), total, rel_tol=1e-6)


def test_context_widens_intervals() -> None:
    widths = []
    for context in (0.0, 1.0):
        shares = fitted(0.0, False, context).group_shares()
        widths.append((shares.upper - shares.lower).max())
    assert widths[1] > 2 * widths[0]


def test_counts_are_shared_out() -> None:
    """Counts of two groups and their intervals, where nothing but Poisson noise hides them."""
    rng = np.random.default_rng(0)
    share = rng.uniform(0.05, 0.95, 80)
    shares = np.stack([share, 1 - share], -1)
    exposure = rng.uniform(100, 300, 80)
    counts = rng.poisson(exposure[:, None] * shares * np.array([0.5, 2.0]))
    X = PointClouds(np.broadcast_to(np.eye(2), (80, 2, 2)).copy(), shares)
    options: Any = {"likelihood": "poisson", "exposure": exposure}
    y = torch.tensor(counts.sum(1))
    model = fit(VariationalAggregateGP(X, y, context=0.0, **options))
    rates, people = model.group_shares(), torch.tensor(exposure @ shares)
    truth = torch.tensor(counts.sum(0)) / people
    assert bool(((rates.lower < truth) & (truth < rates.upper)).all())
    assert bool((rates.upper - rates.lower < 0.2).all())
    assert math.isclose((rates.mean * people).sum(), y.sum(), rel_tol=5e-3)
    atoms, _ = model.predict_atoms(np.eye(2))
    assert torch.allclose(atoms, torch.tensor([0.5, 2.0]).double(), atol=0.1)


def test_predictions_are_those_of_targets() -> None:
    X, y, people, _, _ = precincts(80)
    model = fit(VariationalAggregateGP(X[:40], y[:40], trials=people[:40], num_features=16))
    X, y, people = X[40:], y[40:], people[40:]
    mean, std = model.predict(X, trials=people)
    lower, upper = model.interval(X, trials=people)
    assert ((lower <= y) & (y <= upper)).double().mean() > 0.85
    assert bool((model.predict(X, observation_noise=False, trials=people)[1] < std).all())
    assert ((mean - y) / people).abs().mean() < 0.08
    assert model.log_prob(X, y, trials=people).isfinite().all()
    probability, error = model.predict_atoms(np.eye(2))
    assert bool(((probability > 0) & (probability < 1) & (error > 0)).all())


@pytest.mark.parametrize("likelihood", ["binomial", "poisson"])
def test_mode_and_gradients_of_the_evidence(likelihood: Any) -> None:
    """Derivatives of the evidence, through the mode as well, agree with differences."""
    X, y, people, _, _ = precincts(12)
    known: Any = {"trials": people} if likelihood == "binomial" else {"exposure": people}
    model = VariationalAggregateGP(X, y, likelihood=likelihood, num_features=8, **known)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def evidence() -> Tensor:
        settle(model, 0)
        return log_evidence(model)

    gradients = torch.autograd.grad(evidence(), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        step, moved = 1e-4, []
        for sign in (1, -1, 1):
            moved.append(evidence().item())
            with torch.no_grad():
                parameter.add_(sign * step if len(moved) != 2 else -2 * step)
        assert math.isclose(gradient.sum().item(), (moved[1] - moved[2]) / (2 * step), abs_tol=2e-3)


@pytest.mark.parametrize("likelihood", ["binomial", "poisson"])
def test_links_are_those_of_mean_rates(likelihood: Any) -> None:
    X, y, people, _, _ = precincts(5)
    known: Any = {"trials": people} if likelihood == "binomial" else {"exposure": people}
    model = VariationalAggregateGP(X, y, likelihood=likelihood, num_features=8, **known)
    latent = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    links, slopes = model._link(latent, X.weights)
    rates = latent.sigmoid() if likelihood == "binomial" else latent.exp()
    mean = (X.weights * rates).sum(-1)
    expected = Binomial(people, mean) if likelihood == "binomial" else Poisson(people * mean)
    found = model.likelihood(links, **known)
    assert torch.allclose(found.mean, expected.mean)
    (gradient,) = torch.autograd.grad(links.sum(), latent)
    assert torch.allclose(slopes, gradient)


@pytest.mark.parametrize("kinds", [False, True])
def test_saved_models_predict_the_same(kinds: bool) -> None:
    X, y, people, _, _ = precincts(20, kinds=kinds)
    model = VariationalAggregateGP(X, y, trials=people, context=0.5, num_features=8).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    model.place.normal_(std=0.1)
    loaded = reloaded(model)
    assert all(map(torch.equal, model.group_shares(), loaded.group_shares()))
    assert all(map(torch.equal, model.predict(X), loaded.predict(X)))


def test_groups_of_other_atoms() -> None:
    """Groups may be functions of atoms, which need not be groups themselves."""
    rng = np.random.default_rng(0)
    X = PointClouds(rng.normal(rng.normal(size=(30, 1, 1)), 1, size=(30, 40, 1)))
    y = (X.points > 0).sum((1, 2))
    model = fit(VariationalAggregateGP(X, y, trials=40, num_features=16))
    with pytest.raises(ValueError, match="Expected coordinates of 0 and 1"):
        model.group_shares()
    shares = model.group_shares(lambda atoms: torch.cat([atoms > 0, atoms <= 0], -1))
    assert shares.mean[0] > 0.8 > 0.2 > shares.mean[1]


def test_bad_arguments() -> None:
    X, y, people, _, _ = precincts(5)
    with pytest.raises(
        ValueError, match=r'"binomial" or "poisson" and context >= 0, got \'normal\''
    ):
        VariationalAggregateGP(X, y, likelihood="normal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected trials, the number of trials of each cloud"):
        VariationalAggregateGP(X, y)
    with pytest.raises(ValueError, match="successes from 0 to the number of trials"):
        VariationalAggregateGP(X, people + 1, trials=people)
    model = VariationalAggregateGP(X, y, trials=people, num_features=8)
    with pytest.raises(UnsupportedError, match="no normal posterior"):
        model.posterior(X)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.group_shares(level=95)
