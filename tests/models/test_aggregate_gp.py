"""Targets that are means or draws of a function of atoms."""

from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from cases import reloaded, with_known_level
from gpytorch.kernels import RBFKernel
from torch import Tensor

from gp_distributions import (
    AggregateGP,
    ClassificationGP,
    Gaussians,
    PointClouds,
    SparseAggregateGP,
    fit,
    integrate_hyperparameters,
    relevance,
)
from gp_distributions.kernels import ExpectedKernel, aggregate_kernel
from gp_distributions.models.draw_noise import variance_within

pytestmark = pytest.mark.usefixtures("short_fits")


def bags(num: int = 30, seed: int = 0) -> tuple[PointClouds, Tensor]:
    """Ragged bags whose targets are means of a function of their atoms."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(rng.normal(), 1, size=(rng.integers(2, 9), 2)) for _ in range(num)]
    targets = [np.mean(np.sin(x[:, 0]) + x[:, 1]) for x in X]
    return PointClouds.from_list(X), torch.tensor(targets)


def noisy_inputs(num: int = 120, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Points that were measured with known errors, and targets at the points."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, (num, 1))
    std = rng.choice([0.02, 0.6], (num, 1))
    y = np.sin(3 * x[:, 0]) + 0.05 * rng.normal(size=num)
    mean = x + std * rng.normal(size=x.shape)
    return torch.tensor(mean), torch.tensor(std), torch.tensor(y)


def test_posterior_is_that_of_a_function_of_atoms() -> None:
    """The joint normal distribution of the function at all atoms, of which targets are averages."""
    X, y = bags(8)
    base = RBFKernel().double()
    model = AggregateGP(X, y, base, outcome_transform=None, sampling_noise=False)
    model = with_known_level(model)
    atoms, weights = X.points.flatten(0, 1), X.weights
    averages = torch.block_diag(*weights)
    with torch.no_grad():
        prior = base(atoms).to_dense()
        mean, noise = model.mean_module.constant, model.likelihood.noise
        cross = prior @ averages.mT
        gain = torch.linalg.solve(averages @ cross + noise * torch.eye(8), cross.mT).mT
        expected = mean + gain @ (y - mean)
        std = (prior - gain @ cross.mT).diagonal().sqrt()
    used = weights.flatten() > 0
    found = model.predict_atoms(atoms[used])
    assert torch.allclose(found[0], expected[used], rtol=1e-9)
    assert torch.allclose(found[1], std[used], rtol=1e-7)


@pytest.mark.parametrize("num_features", [None, 16])
def test_contributions_sum_to_the_prediction(num_features: int | None) -> None:
    X, y = bags()
    model = AggregateGP(X[:20], y[:20], num_features=num_features)
    mean, std = model.contributions(X[20:])
    predicted = model.predict(X[20:])[0]
    assert (mean.sum(-1) - predicted).abs().max() < 1e-10
    assert bool(((std > 0) == (X.weights[20:] > 0)).all())
    one = PointClouds(X.points[20:, :1])
    atoms = model.predict_atoms(X.points[20:, 0])
    found = model.predict(one, observation_noise=False)
    torch.testing.assert_close(found, atoms, rtol=1e-10, atol=1e-8)


def test_fit_finds_the_function_in_any_units() -> None:
    X, y = bags(60)
    grid = torch.linspace(-1, 1, 9).double()
    atoms = torch.stack([grid, -grid], -1)
    truth = atoms[:, 0].sin() + atoms[:, 1]
    mean, std = fit(AggregateGP(X, y)).predict_atoms(atoms)
    assert bool(((mean - truth).abs() < 4 * std + 0.01).all())
    assert (mean - truth).abs().max() < 0.1
    units = torch.tensor([1e4, 1e-3]).double()
    scaled = PointClouds(X.points * units, X.weights)
    other = fit(AggregateGP(scaled, 1e3 * y)).predict_atoms(atoms * units)[0]
    assert torch.allclose(other / 1e3, mean, rtol=1e-4, atol=1e-4)


def test_draws_of_points_have_no_further_noise() -> None:
    mean, std, y = noisy_inputs(20)
    X = Gaussians.from_mean_std(mean, 0 * std)
    one, other = (AggregateGP(X, y, aggregate=kind) for kind in ("draw", "mean"))  # type: ignore[arg-type]
    torch.testing.assert_close(one.predict(X), other.predict(X), rtol=1e-9, atol=1e-8)
    # The same noise and kernel on the diagonal, computed by hand.
    wide = Gaussians.from_mean_std(mean, std).pack()
    kernel = ExpectedKernel(RBFKernel().double(), 1, inputs="gaussians")
    inside = 1 - (1 + 2 * std[:, 0].square() / kernel.base_kernel.lengthscale.item() ** 2) ** -0.5
    assert torch.allclose(variance_within(kernel, wide), inside, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("known", [None, 0.01])
@pytest.mark.parametrize("inputs", ["gaussians", "clouds"])
def test_variances_at_uncertain_inputs_are_those_of_draws(inputs: str, known: float | None) -> None:
    """The law of total variance, by draws from the inputs and predictions at points."""
    mean, std, y = noisy_inputs(60)
    X = Gaussians.from_mean_std(mean, std)
    variances = None if known is None else np.full(60, known)
    at: Any = X if inputs == "gaussians" else X.sample(50)
    model = AggregateGP(at, y, aggregate="draw", train_Yvar=variances)
    new: Any = Gaussians.from_mean_std(np.linspace(-1, 1, 10)[:, None], np.full((10, 1), 0.5))
    draws = new.sample(4000 if inputs == "gaussians" else 30)
    new = new if inputs == "gaussians" else draws
    found = model.predict(new, observation_noise=False)[1]
    atoms = model.predict_atoms(draws.points.flatten(0, 1))
    m, s = (each.reshape(10, -1) for each in atoms)
    expected = s.square().mean(-1) + m.var(-1, correction=0)
    assert torch.allclose(found.square(), expected, rtol=0.1 if inputs == "gaussians" else 1e-8)
    learned: Any = model.likelihood
    noise = learned.noise if known is None else learned.second_noise + learned.noise_covar.noise[:1]
    noisy = found.square() + noise * model.outcome_transform.stdvs.item() ** 2
    assert torch.allclose(model.predict(new)[1].square(), noisy, rtol=1e-9)
    posterior = model.posterior(new, observation_noise=True)
    assert torch.allclose(posterior.variance.squeeze(-1), noisy, rtol=1e-9)


@pytest.mark.parametrize("aggregate", ["mean", "draw"])
def test_leave_one_out_is_that_of_a_model_without_the_cloud(aggregate: Any) -> None:
    mean, std, y = noisy_inputs(12)
    X = Gaussians.from_mean_std(mean, 0 * std if aggregate == "draw" else std)
    known = 0.1 + y.square()  # differs between the targets
    known[5] = known[[i for i in range(12) if i != 5]].mean()  # that of a new target
    options: Any = {"aggregate": aggregate, "outcome_transform": None}
    model = AggregateGP(X, y, train_Yvar=known, **options)
    rest = [i for i in range(12) if i != 5]
    kernel: Any = model.covar_module
    without = AggregateGP(X[rest], y[rest], kernel, train_Yvar=known[rest], **options)
    for all_of_them, one in zip(model.leave_one_out(), without.predict(X[5:6]), strict=True):
        assert torch.allclose(all_of_them[5], one[0], rtol=1e-8)
    more = without.condition_on_observations(X[5:6], y[5:6])
    torch.testing.assert_close(more.predict(X), model.predict(X), rtol=1e-8, atol=1e-8)


def test_noise_is_learned_beside_known_variances() -> None:
    """With one known variance, the model is that of the sum, and the rest of the sum is learned."""
    X, y = bags(20)
    plain = AggregateGP(X, y, outcome_transform=None, sampling_noise=False)
    kernel: Any = plain.covar_module
    model = AggregateGP(X, y, kernel, outcome_transform=None, train_Yvar=np.full(20, 0.05))
    plain.likelihood.noise = model.likelihood.second_noise.item() + 0.05
    pairs = [(each.predict(X), each.leave_one_out()) for each in (plain, model)]
    torch.testing.assert_close(*pairs, rtol=1e-9, atol=1e-8)
    before = model.likelihood.second_noise.item()
    assert fit(model, restarts=0).likelihood.second_noise.item() != before


def test_slopes_survive_errors_of_measurement() -> None:
    """The slope of a line whose inputs were measured with errors as large as their spread."""
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, error = rng.normal(size=(100, 1)), np.full((100, 1), 0.7)
        measured, y = x + error * rng.normal(size=x.shape), 2 * x[:, 0] + 0.1 * rng.normal(size=100)
        recorded = Gaussians.from_mean_std(measured, error)
        X = Gaussians.from_mean_std(measured, error, population=recorded)
        model = fit(AggregateGP(X, y, aggregate="draw"), restarts=0)
        line = model.posterior(Gaussians([[-1.0], [1.0]], torch.zeros(2, 1, 1))).distribution
        across = line.covariance_matrix[..., 0, 0] + line.covariance_matrix[..., 1, 1]
        error_of_slope = (across - 2 * line.covariance_matrix[..., 0, 1]).sqrt() / 2
        slope = (line.mean[..., 1] - line.mean[..., 0]) / 2
        found.append(((slope - 2) / error_of_slope).item())
    assert max(map(abs, found)) < 2.5


@pytest.mark.parametrize("aggregate", ["mean", "draw"])
def test_saved_models_predict_the_same(aggregate: Any) -> None:
    mean, std, y = noisy_inputs(30)
    X = Gaussians.from_mean_std(mean, std)
    known = 0.1 + y.square()
    model = fit(AggregateGP(X, y, aggregate=aggregate, train_Yvar=known), restarts=0)
    loaded = reloaded(model)
    assert loaded.aggregate == aggregate
    assert all(map(torch.equal, model.predict(X), loaded.predict(X)))


def test_is_a_model_of_botorch() -> None:
    X, y = bags(12)
    model = AggregateGP(X, y)
    rows = X[:4].pack().unsqueeze(-2).requires_grad_()
    value = LogExpectedImprovement(model, best_f=y.max())(rows)
    assert value.shape == (4,)
    (gradient,) = torch.autograd.grad(value.sum(), rows)
    assert bool(gradient.isfinite().all())
    assert bool((gradient != 0).any())
    more = model.condition_on_observations(X[:2], y[:2])
    assert more.train_targets.shape == (14,)


def test_labels() -> None:
    X, y = bags(40)
    labels = y > y.median()
    model = fit(ClassificationGP(X, labels, aggregate_kernel(X)))
    assert (model.predict_proba(X).argmax(-1) == labels).double().mean() > 0.8
    moved = PointClouds(X.points * torch.tensor([1e3, 1e-3]) + 5.0, X.weights)
    again = fit(ClassificationGP(moved, labels, aggregate_kernel(moved)))
    assert torch.allclose(again.predict_proba(moved), model.predict_proba(X), atol=1e-3)


def test_labels_that_are_left_out_choose_the_lengthscale_of_atoms() -> None:
    rng = np.random.default_rng(1)
    X = PointClouds(np.repeat(rng.normal(size=(60, 6, 1)), 31, axis=-1))
    labels = (3 * X.points[..., 0]).sin().mean(-1) > 0

    def density(model: ClassificationGP) -> float:
        return model.leave_one_out_proba()[torch.arange(60), labels.long()].log().sum().item()

    model = fit(
        ClassificationGP(X, labels, aggregate_kernel(X)), alpha_epsilons=[0.1], temperature=1.0
    )
    chosen = model.covar_module.base_kernel.kernels[0].base_kernel
    assert chosen.raw_lengthscale.requires_grad
    for factor in (0.5, 0.5**0.5, 2**0.5, 2.0):
        kernel = aggregate_kernel(X)
        smooth = kernel.base_kernel.kernels[0].base_kernel
        smooth.lengthscale = factor * chosen.lengthscale.detach()
        smooth.raw_lengthscale.requires_grad_(False)
        fixed = ClassificationGP(X, labels, kernel)
        assert density(fit(fixed, alpha_epsilons=[0.1], temperature=1.0)) < density(model)


def test_fewer_than_ten_clouds_for_each_coordinate_share_a_lengthscale() -> None:
    rng = np.random.default_rng(0)
    X = PointClouds(rng.normal(size=(19, 4, 2)))
    assert aggregate_kernel(X).base_kernel.kernels[0].base_kernel.lengthscale.shape == (1, 1)
    many = PointClouds(rng.normal(size=(20, 4, 2)))
    assert aggregate_kernel(many).base_kernel.kernels[0].base_kernel.lengthscale.shape == (1, 2)


def test_coordinates_that_are_constant_but_for_rounding_do_not_count() -> None:
    X, y = bags(12)
    same = PointClouds(X.points @ torch.eye(2, 3, dtype=torch.float64) + 0.1, X.weights)
    moved = PointClouds(same.points + torch.tensor([0.0, 0.0, 1e-3]), X.weights)
    found, expected = (AggregateGP(same, y).predict(X) for X in (moved, same))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-2)


def test_bad_arguments() -> None:
    X, y = bags(6)
    G = Gaussians.from_clouds(X)
    with pytest.raises(ValueError, match='"mean", "sum" or "draw", got \'total\''):
        AggregateGP(X, y, aggregate="total")  # type: ignore[arg-type]
    for kind in (AggregateGP, SparseAggregateGP):
        with pytest.raises(ValueError, match="Expected one output, got 2"):
            kind(X, torch.stack([y, y], -1))
    with pytest.raises(ValueError, match=r"no likelihood or sampling_noise"):
        AggregateGP(G, y, aggregate="draw", sampling_noise=True)
    with pytest.raises(TypeError, match="Expected PointClouds or Gaussians as train_X"):
        AggregateGP(G.as_mixtures(), y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected clouds of dimension 2, which the kernel reads"):
        AggregateGP(X, y).predict(PointClouds(X.points[..., :1]))
    with pytest.raises(TypeError, match="Expected PointClouds, whose atoms contribute"):
        AggregateGP(G, y).contributions(G)  # type: ignore[arg-type]


def test_tools_for_models() -> None:
    X = bags()[0]
    model = fit(AggregateGP(X, X.points[..., 0].mul(X.weights).sum(-1)), restarts=0)
    first, second = relevance(model).coordinates
    assert first.loss > 10 * abs(second.loss)
    with pytest.raises(TypeError, match="Expected kernels of distances, got an ExpectedKernel"):
        integrate_hyperparameters(model)
