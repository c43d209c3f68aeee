"""Fitting: its starts, that it finds a maximum, and its warnings."""

import warnings
from typing import Any, Literal

import gpytorch
import pytest
import torch
from botorch.models import MultiTaskGP
from cases import as_rows, rand, randn, random_clouds
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    PointClouds,
    PrecomputedDistance,
    ReferenceMeasure,
    SharedKernelGP,
    SinkhornKernel,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.fitting import ascent
from gp_distributions.fitting.lbfgs import Minimum
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.warnings import ConvergenceWarning, UndeterminedWarning, silenced

CLOUDS = random_clouds(40, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
TARGETS = torch.stack([points.square().sum().sqrt() for points, _ in CLOUDS])


def make_model(
    rows: Tensor = ROWS[:30], profile: str = "matern52", targets: Tensor = TARGETS[:30]
) -> DistributionGP:
    kernel = SlicedWassersteinKernel(2, num_slices=10, num_quantiles=20, profile=profile)
    return DistributionGP(rows, targets, ScaleKernel(kernel))


def objective(model: gpytorch.models.ExactGP) -> Tensor:
    model.train()
    return ExactMarginalLogLikelihood(model.likelihood, model)(
        model(*model.train_inputs), model.train_targets
    )


def restricted(model: DistributionGP) -> Tensor:
    """The objective of fits, with the level integrated."""
    mll: Tensor = ascent.objective(model.train())(model(*model.train_inputs), model.train_targets)
    return mll


@pytest.mark.parametrize("profile", ["gaussian", "linear"])
def test_starts_at_the_median_distance(profile: str) -> None:
    model = make_model(profile=profile)
    start_at_medians(model)
    squared = model.covar_module.base_kernel.distance.squared(ROWS[:30])
    upper = squared[torch.ones(30, 30).triu(1).bool()]
    expected = upper.sqrt().median().reshape(1, 1)
    torch.testing.assert_close(model.covar_module.base_kernel.lengthscale.detach(), expected)


@pytest.mark.parametrize("init", ["median", "current"])
def test_what_requires_no_gradient_stays(init: Literal["median", "current"]) -> None:
    model = make_model()
    model.likelihood.noise = 1e-3
    kernel = model.covar_module
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, 3.0
    names = [name for name, _ in model.named_parameters() if "mean" not in name]
    for name in names:
        model.get_parameter(name).requires_grad_(False)
    before = {name: model.get_parameter(name).clone() for name in names}
    assert len(before) == 3
    fit(model, init=init, restarts=3)
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())


@pytest.mark.parametrize("outputs", [1, 2])
def test_fixed_hyperparameters_leave_nothing_to_fit(outputs: int) -> None:
    targets = torch.stack([TARGETS[:30], -TARGETS[:30]], dim=-1)[:, :outputs]
    model = SharedKernelGP(ROWS[:30], targets, SlicedWassersteinKernel(2)).requires_grad_(False)
    before = [parameter.clone() for parameter in model.parameters()]
    assert not fit(model, init="current", restarts=1).training
    assert all(map(torch.equal, model.parameters(), before))


@pytest.mark.parametrize("noise", [Interval(1e-6, 1e-2), GreaterThan(0.5)])
@pytest.mark.parametrize("lengthscale", [Interval(0.01, 0.5), GreaterThan(50.0), Interval(30, 90)])
def test_starts_are_within_constraints(noise: Interval, lengthscale: Interval) -> None:
    kernel = SlicedWassersteinKernel(2, num_slices=10, lengthscale_constraint=lengthscale)
    model = DistributionGP(
        *(ROWS[:30], TARGETS[:30], ScaleKernel(kernel)),
        likelihood=GaussianLikelihood(noise_constraint=noise),
    )
    fit(model, restarts=4)
    assert noise.lower_bound <= model.likelihood.noise <= noise.upper_bound
    assert lengthscale.lower_bound <= kernel.lengthscale <= lengthscale.upper_bound


def test_ends_at_a_maximum() -> None:
    model = make_model()
    before = restricted(model)
    assert fit(model) is model
    assert not model.training
    after = restricted(model)
    assert bool(after > before)
    hyperparameters = [
        p for name, p in model.named_parameters() if name != "mean_module.raw_constant"
    ]
    gradients = torch.autograd.grad(after, hyperparameters)
    assert max(float(g.abs().max()) for g in gradients) < 1e-3


def test_goes_on_from_where_it_is() -> None:
    model = fit(make_model())
    lengthscale = model.covar_module.base_kernel.lengthscale.detach().clone()
    fit(model, init="current")
    torch.testing.assert_close(
        model.covar_module.base_kernel.lengthscale.detach(), lengthscale, rtol=1e-2, atol=0
    )


def test_restarts_are_reproducible_and_keep_the_best() -> None:
    state = torch.get_rng_state()
    models = [fit(make_model(), restarts=restarts, seed=1) for restarts in (0, 3, 3)]
    assert torch.equal(torch.get_rng_state(), state)
    values = [float(objective(model).detach()) for model in models]
    assert values[1] >= values[0]
    assert values[1] == values[2]


def test_says_that_it_did_not_converge() -> None:
    with pytest.warns(ConvergenceWarning, match=r"restarts=5, or .*fit\(model, init=.current.\)"):
        fit(make_model(), options={"maxiter": 1})


def test_goes_on_where_a_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fit(make_model(), restarts=2).state_dict()
    fails: list[int] = []

    def strays(loss: Any, parameters: dict[str, Tensor], *args: Any, **kwargs: Any) -> Minimum:
        fails[0] -= 1
        if fails[0] < 0:
            return minimise(loss, parameters, *args, **kwargs)
        for parameter in parameters.values():
            parameter.data += 30
        raise NotPSDError("not positive definite")

    minimise = ascent.minimise
    monkeypatch.setattr(ascent, "minimise", strays)
    fails[:] = [1]
    found = fit(make_model(), restarts=2).state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-2, atol=1e-2)
    fails[:] = [3]
    model = make_model()
    before = {name: value.clone() for name, value in model.named_parameters()}
    with pytest.raises(NotPSDError):
        fit(model, restarts=2, init="current")
    assert all(torch.equal(before[name], value) for name, value in model.named_parameters())


def test_intervals_that_are_too_short() -> None:
    """Targets that the clouds do not explain, by hyperparameters that claim to be free of noise."""
    model = make_model(targets=torch.tensor([1.0, -1.0, 1.0]).double().repeat(10))
    model.covar_module.base_kernel.lengthscale = 3.0
    model.likelihood.noise = 1e-3
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.warns(UndeterminedWarning, match=r"30 clouds .* errors .* times as large"):
        fit(model, init="current", restarts=0)


@pytest.mark.parametrize("init", ["median", "current"])
def test_clouds_that_coincide(init: Literal["median", "current"]) -> None:
    model = make_model(ROWS[:1].expand(30, -1))
    with silenced(UndeterminedWarning), warnings.catch_warnings(action="error"):
        fit(model, init=init, restarts=0)
    with pytest.warns(UndeterminedWarning, match="All 30 training clouds coincide for Sliced"):
        fit(model, init=init, restarts=0)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match='init="median"'):
        fit(make_model(), init="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="restarts: expected an integer >= 0"):
        fit(make_model(), restarts=-1)
    with pytest.raises(TypeError, match=r"from \(maxiter, ftol, gtol\), got 'maxcor'"):
        fit(make_model(), options={"maxcor": 20})


def test_distances_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    represent, represented = SlicedWasserstein.represent, []

    def counted(self: SlicedWasserstein, points: Tensor, weights: Tensor) -> Tensor:
        represented.append(len(points))
        return represent(self, points, weights)

    monkeypatch.setattr(SlicedWasserstein, "represent", counted)
    model = fit(make_model(), restarts=1)
    assert sum(represented) == 30
    model.predict(ROWS[30:])
    assert sum(represented) == 40


def test_a_bare_gpytorch_model_with_a_composed_kernel() -> None:
    width = ROWS.shape[-1]

    class Bare(gpytorch.models.ExactGP):
        def __init__(self, x: Tensor, y: Tensor) -> None:
            super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = SlicedWassersteinKernel(2, num_slices=10, active_dims=range(width))
            self.covar_module = ScaleKernel(kernel) + ScaleKernel(RBFKernel(active_dims=[width]))

        def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    column = rand(30, 1)
    X = torch.cat([ROWS[:30], column], dim=-1)
    model = Bare(X, TARGETS[:30] + column.squeeze(-1)).double()
    before = float(objective(model).detach())
    fit(model)
    assert float(objective(model).detach()) > before


def test_finds_the_smooth_maximum_too() -> None:
    """A fit from the median distance alone ends where all clouds are unrelated."""
    generator = torch.Generator().manual_seed(1)

    def uniform(*shape: int) -> Tensor:
        return rand(*shape, seed=generator)

    def normal(*shape: int) -> Tensor:
        return randn(*shape, seed=generator)

    means, stds = 0.6 * uniform(100, 6) - 0.3, 0.01 + 0.01 * uniform(100)
    clouds = PointClouds(means[:50, None] + stds[:50, None, None] * normal(100, 30, 6)[:50])
    targets = (means[:50, 0] + 0.5 - (means[:50, 1] + 0.5).square()) / (1 + stds[:50])
    generator.manual_seed(101)
    reference = ReferenceMeasure(0.1**0.5 * normal(10, 6))
    values = []
    for restarts in (0, 1):
        kernel = ScaleKernel(SinkhornKernel(reference, profile="gaussian", epsilon=0.05))
        model = DistributionGP(clouds, targets, kernel)
        # With a learned mean or none the likelihood is concentrated, and one start gets there, too.
        model.mean_module.requires_grad_(False)
        fit(model, restarts=restarts)
        values.append(float(objective(model).detach()))
    assert values[1] > values[0] + 1


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_model_of_tasks() -> None:
    X = rand(12, 2)
    X[:, 1] = torch.arange(12) % 2
    model = MultiTaskGP(X, X[:, :1].sin(), task_feature=-1)
    noise = model.likelihood.noise.clone()
    assert not torch.equal(fit(model, restarts=0).likelihood.noise, noise)


def test_a_failed_fit_repeats_why() -> None:
    points = rand(30, 30)
    with silenced():
        distance = PrecomputedDistance((points + points.T).fill_diagonal_(0))
    kernel = DistributionKernel(distance, "gaussian")
    rows = torch.arange(30, dtype=torch.float64).unsqueeze(-1)
    with pytest.raises(
        NotPSDError, match=r"got one that is not, .* not Hilbertian: \d+ .* \*\* beta"
    ):
        fit(DistributionGP(rows, points[0], kernel), restarts=0)
