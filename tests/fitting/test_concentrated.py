"""The marginal likelihood at the best mean and outputscale, against that of all parameters."""

import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from linear_operator.utils.errors import NanError

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    PrincipalDistance,
    SlicedWasserstein,
    fit,
)
from gp_distributions.distances import Distance
from gp_distributions.fitting.ascent import objective
from gp_distributions.fitting.concentrated import ConcentratedLikelihood, has_concentrated
from gp_distributions.kernels.covariances import covariance
from gp_distributions.warnings import UndeterminedWarning

CLOUDS = random_clouds(20, sizes=(5, 20))
TARGETS = torch.stack([points.square().sum().sqrt() for points, _ in CLOUDS])
SW = SlicedWasserstein(2, num_slices=4, num_quantiles=10)
KERNELS = pytest.mark.parametrize(
    ("distance", "profile"),
    [
        (SW, "matern52"),
        (SW, "linear"),
        (SW, "rational_quadratic"),
        (PrincipalDistance(SW, num_components=6), "matern52"),
    ],
)


def model_of(
    distance: Distance = SW, profile: str = "matern52", **options: object
) -> DistributionGP:
    """Return a model in training mode."""
    kernel = ScaleKernel(DistributionKernel(distance, profile))
    return DistributionGP(as_rows(CLOUDS), TARGETS, kernel, **options).train()  # type: ignore[arg-type]


def elsewhere(model: DistributionGP) -> ConcentratedLikelihood:
    """Return the likelihood of a model, with its parameters at random places."""
    concentrated = ConcentratedLikelihood(model)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in concentrated.parameters.values():
            parameter += 0.3 * torch.randn_like(parameter)
    return concentrated


@pytest.mark.parametrize("noise", ["prior", "free", "bags", "zero mean"])
@KERNELS
def test_is_the_likelihood_at_its_maximum(distance: Distance, profile: str, noise: str) -> None:
    likelihood = GaussianLikelihood() if noise == "free" else None
    mean = ZeroMean() if noise == "zero mean" else None
    bags = noise == "bags" or None
    model = model_of(
        distance, profile, likelihood=likelihood, mean_module=mean, sampling_noise=bags
    )
    assert has_concentrated(model)
    concentrated = elsewhere(model)
    found = concentrated()
    expected = objective(model)(model(*model.train_inputs), model.train_targets)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)

    kernel, likelihood = model.covar_module, model.likelihood
    rest = [name for name in concentrated.parameters if name != "log_ratio"]
    solved = [(kernel.outputscale, kernel.raw_outputscale)]
    solved += [(likelihood.noise, likelihood.noise_covar.raw_noise)]
    if bags:
        solved += [(likelihood.sampling_noise, likelihood.raw_sampling_noise)]
    others = [model.get_parameter(name) for name in rest]
    raw = [parameter for _, parameter in solved]
    in_scale, *slopes = torch.autograd.grad(expected, [*raw, *others], retain_graph=True)
    in_noise, others_in = slopes[: len(raw) - 1], slopes[len(raw) - 1 :]
    growth = [torch.autograd.grad(value.log().sum(), own)[0] for value, own in solved]
    in_scale = in_scale / growth[0]
    in_noise = [slope / each for slope, each in zip(in_noise, growth[1:], strict=True)]
    # For given ratios, all noise is proportional to the outputscale.
    assert (in_scale + sum(in_noise)).item() == pytest.approx(0, abs=1e-10)
    # The outputscale is what remains of the variance of the function.
    unit = covariance(kernel.base_kernel, as_rows(CLOUDS)).diagonal().mean().log()
    in_unit = torch.autograd.grad(unit, others, allow_unused=True, materialize_grads=True)
    others = [slope - in_scale * change for slope, change in zip(others_in, in_unit, strict=True)]
    parameters = [concentrated.parameters[name] for name in ("log_ratio", *rest)]
    expected_gradients = [torch.cat(in_noise), *others]
    for pair in zip(torch.autograd.grad(found, parameters), expected_gradients, strict=True):
        torch.testing.assert_close(*pair, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("profile", ["matern52", "rational_quadratic", "linear"])
def test_curvature_is_expected_where_the_outputscale_is_free(profile: str) -> None:
    model = model_of(profile=profile)
    concentrated = ConcentratedLikelihood(model)
    pairs = concentrated.curvature()
    if profile != "matern52":  # of a learned profile, or without a lengthscale for distances
        assert not pairs
        return
    steps, changes = (torch.stack(each) for each in zip(*pairs, strict=True))
    found = torch.linalg.solve(steps, changes)
    kernel = model.covar_module.base_kernel
    squared = kernel.distance.squared(model.train_inputs[0])

    def matrix(values: torch.Tensor) -> torch.Tensor:
        lengthscale = kernel.raw_lengthscale_constraint.transform(values[1])
        covariances = kernel.profile(squared / lengthscale.square())
        return values[2].exp() * (covariances + values[0].exp() * torch.eye(len(squared)))

    raw = kernel.raw_lengthscale.detach().flatten()
    at = torch.cat([concentrated.parameters["log_ratio"].detach().view(1), raw, 0 * raw])
    slopes = torch.autograd.functional.jacobian(matrix, at).movedim(-1, 0)
    parts = torch.linalg.solve(matrix(at), slopes)
    full = torch.einsum("iab,jba->ij", parts, parts) / (2 * len(squared))
    expected = full[:2, :2] - torch.outer(full[:2, 2], full[2, :2]) / full[2, 2]
    values, vectors = torch.linalg.eigh(expected)
    expected = vectors * values.clamp_min(0.01) @ vectors.mT  # flatter ones are raised
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


@KERNELS
def test_outputs_add_their_likelihoods(distance: Distance, profile: str) -> None:
    outputs = torch.stack([TARGETS, TARGETS.square() + TARGETS.sin()])
    shape = torch.Size([2])
    kernel = ScaleKernel(
        DistributionKernel(distance, profile, batch_shape=shape), batch_shape=shape
    )
    together = DistributionGP(as_rows(CLOUDS), outputs.mT, kernel).train()
    assert has_concentrated(together)
    found = (both := elsewhere(together))()
    slopes = torch.autograd.grad(found, list(both.parameters.values()))
    totals, directions = [], []
    for number, targets in enumerate(outputs):
        kernel = ScaleKernel(DistributionKernel(distance, profile))
        model = DistributionGP(as_rows(CLOUDS), targets, kernel).train()
        single = ConcentratedLikelihood(model)
        with torch.no_grad():
            for name, value in single.parameters.items():
                value.copy_(both.parameters[name][number].view_as(value))
        totals.append(single())
        gradients = torch.autograd.grad(totals[-1], list(single.parameters.values()))
        for slope, gradient in zip(slopes, gradients, strict=True):
            torch.testing.assert_close(slope[number].view_as(gradient), gradient)
        solved = together.covar_module.outputscale[number], together.mean_module.constant[number]
        torch.testing.assert_close(solved, (kernel.outputscale, model.mean_module.constant))
        for pair in single.curvature():
            directions.append(torch.zeros(2, 2, 2, dtype=torch.float64))
            directions[-1][..., number] = torch.stack(pair)
    torch.testing.assert_close(found, sum(totals))
    for pair, expected in zip(both.curvature(), directions, strict=True):
        step = torch.stack(pair).view_as(expected)
        torch.testing.assert_close(step * (step * expected).sum().sign(), expected)


def test_is_for_freely_learned_outputscale_and_noise() -> None:
    rows = as_rows(CLOUDS)
    outputs = torch.stack([TARGETS, -TARGETS], dim=-1)
    fixed = model_of()
    fixed.covar_module.raw_outputscale.requires_grad_(False)
    known_mean = model_of()
    known_mean.mean_module.requires_grad_(False)
    for other in (
        DistributionGP(rows, outputs, ScaleKernel(DistributionKernel(SW))),
        model_of(train_Yvar=torch.full_like(TARGETS, 0.1)),
        fixed,
        known_mean,
    ):
        assert not has_concentrated(other)


def test_curvature_is_none_for_a_kernel_of_gpytorch() -> None:
    model = DistributionGP(as_rows(CLOUDS), TARGETS, ScaleKernel(MaternKernel())).train()
    assert not ConcentratedLikelihood(model).curvature()


def test_noise_stays_within_its_bound() -> None:
    model = model_of(likelihood=GaussianLikelihood(noise_constraint=GreaterThan(0.1)))
    concentrated = ConcentratedLikelihood(model)
    log_ratio = concentrated.parameters["log_ratio"]

    def evaluate(value: float) -> tuple[float, float, float]:
        with torch.no_grad():
            log_ratio.fill_(value)
        found = concentrated()
        (gradient,) = torch.autograd.grad(found, log_ratio)
        return found.item(), gradient.item(), model.likelihood.noise.item()

    noises, step = [], 1e-5
    for value in (-4.0, -2.0, 0.0, 2.0):
        slope = (evaluate(value + step)[0] - evaluate(value - step)[0]) / (2 * step)
        _, gradient, noise = evaluate(value)
        assert gradient == pytest.approx(slope, rel=1e-6)
        noises.append(noise)
    assert noises[0] == pytest.approx(0.1, rel=1e-6)
    assert noises[-1] > 0.2


@pytest.mark.filterwarnings("error")
def test_lengthscales_too_small_for_squares_are_avoided() -> None:
    model = model_of(PrincipalDistance(SW, num_components=6))
    model.covar_module.base_kernel.lengthscale = 1e-200
    with pytest.raises(NanError):
        ConcentratedLikelihood(model)()


@pytest.mark.parametrize("targets", [torch.ones(20), torch.zeros(20), TARGETS[:1].expand(20)])
def test_equal_targets_leave_hyperparameters_at_their_start(targets: torch.Tensor) -> None:
    kernel = ScaleKernel(DistributionKernel(SW))
    model = DistributionGP(as_rows(CLOUDS), targets.double(), kernel, outcome_transform=None)
    start = kernel.outputscale.item()
    with pytest.warns(UndeterminedWarning, match="All 20 targets are equal"):
        mean, _ = fit(model).predict(as_rows(CLOUDS))
    torch.testing.assert_close(torch.as_tensor(mean).squeeze(), targets.double())
    assert kernel.outputscale.item() == start
