"""Random features against the kernels, and BoTorch's sample paths from them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import LinearMCObjective
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.exceptions.errors import UnsupportedError
from botorch.models.kernels.categorical import CategoricalKernel
from botorch.sampling.pathwise import draw_matheron_paths, gen_kernel_features
from cases import DISTANCES, as_rows, halving, random_clouds
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    MixedInputs,
    PointClouds,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    integrate_hyperparameters,
    mixed_kernel,
)
from gp_distributions.kernels import PowerExponential, Profile, RationalQuadratic, StudentT
from gp_distributions.kernels.profiles import PROFILES
from gp_distributions.models import ensemble_of

# No padding, because finite differences would make its weights negative.
ROWS = as_rows(random_clouds(20, sizes=(8, 8)))
TRAIN, NEW = ROWS[:14], ROWS[14:]
TARGETS = TRAIN.unflatten(-1, (8, 3))[..., :2].square().mean((-2, -1))
TWO = torch.stack([TARGETS, TARGETS.sqrt()], dim=-1)

RADIAL: dict[str, Profile | str] = {name: name for name in PROFILES if PROFILES[name].radial}
RADIAL |= {
    "power_exponential-0.3": PowerExponential(0.3),
    "power_exponential-1": PowerExponential(1.0),
    "rational_quadratic-0.4": RationalQuadratic(0.4),
    "student_t-1.7": StudentT(1.7),
    "student_t-2": StudentT(2.0),
}


def make_kernel(profile: Profile | str = "matern52", **options: Any) -> DistributionKernel:
    distance = SlicedWasserstein(2, num_slices=5, num_quantiles=6)
    kernel = DistributionKernel(distance, profile, **options).double()
    kernel.lengthscale = 1.5
    return kernel


def make_model(targets: Tensor = TARGETS, **options: Any) -> DistributionGP:
    batch_shape = torch.Size([2] if targets.dim() > 1 else [])
    options.setdefault(
        "covar_module", ScaleKernel(make_kernel(batch_shape=batch_shape), batch_shape=batch_shape)
    )
    model = DistributionGP(TRAIN, targets, **options).eval()
    if options.get("train_Yvar") is None:
        model.likelihood.noise = 0.05
    return model


def gram(kernel: Kernel, count: int, rows: Tensor = ROWS) -> Tensor:
    features = gen_kernel_features(kernel, num_inputs=rows.shape[-1], num_outputs=count)(rows)
    return (features @ features.mT).detach()


@pytest.mark.parametrize("name", RADIAL)
def test_features_converge_to_the_kernel(name: str) -> None:
    """Inner products have the mean and the variance of an average of random cosines."""
    torch.manual_seed(0)
    draws, count = 200, 64
    kernel = make_kernel(RADIAL[name])
    squared = kernel.distance.squared(ROWS) / kernel.lengthscale.square()
    exact = kernel.profile(squared).detach()
    variance = (1 + kernel.profile(4 * squared).detach()) / 2 - exact.square()
    errors = torch.stack([gram(kernel, count) for _ in range(draws)]) - exact
    standard_error = (variance / (draws * count / 2)).sqrt()
    assert bool((errors.mean(0).abs() <= 5 * standard_error + 1e-9).all())
    ratio = errors.square().mean() / (variance.mean() / (count / 2))
    assert float(ratio) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("name", DISTANCES)
def test_every_distance_with_features_has_them(name: str) -> None:
    torch.manual_seed(0)
    case = DISTANCES[name]
    kernel = DistributionKernel(case(), "gaussian").double()
    rows = case.inputs.rows(6)
    if hasattr(kernel.distance, "embed"):
        exact = kernel(rows).to_dense().detach()
        # The standard deviation of an entry is at most 1 / sqrt(4096).
        assert float((gram(kernel, 8192, rows) - exact).abs().max()) < 5 / 64
    else:
        with pytest.raises(UnsupportedError, match=r"features \(embed\), but this .* has none"):
            gram(kernel, 16, rows)


def test_scales_batches_and_columns() -> None:
    torch.manual_seed(0)
    width = ROWS.shape[-1]
    wide = torch.cat([torch.ones(20, 1).double(), ROWS], dim=-1)
    batch_shape = torch.Size([3])
    base = make_kernel(
        "rational_quadratic", batch_shape=batch_shape, active_dims=range(1, 1 + width)
    )
    base.lengthscale = torch.tensor([1.0, 2.0, 4.0]).double().reshape(3, 1, 1)
    base.profile.alpha = torch.tensor([0.5, 1.0, 4.0]).double().reshape(3, 1, 1)
    kernel = ScaleKernel(base, batch_shape=batch_shape).double()
    kernel.outputscale = torch.tensor([0.5, 1.0, 2.0]).double()
    exact = kernel(wide).to_dense().detach()
    errors = (gram(kernel, 8192, wide) - exact) / kernel.outputscale.detach().reshape(3, 1, 1)
    assert float(errors.abs().max()) < 5 / 64


MODELS: dict[str, dict[str, Any]] = {
    "one output": {},
    "two outputs": {"targets": TWO},
    "known noise": {"train_Yvar": torch.linspace(0.01, 0.3, 14).double()},
    "transformed": {"input_transform": halving(ROWS.shape[-1])},
}


def check_moments(model: DistributionGP, new: Tensor = NEW, draws: int = 20) -> None:
    """Averaged over draws of features, paths have the mean and covariance of the posterior."""
    torch.manual_seed(0)
    several = model.num_outputs > 1
    paths = 32
    means, covariances = [], []
    with torch.no_grad():
        posterior = model.posterior(new)
        mean = posterior.mean.mT if several else posterior.mean.squeeze(-1)
        for _ in range(draws):
            path = draw_matheron_paths(model, torch.Size([paths]))
            values = path(new.unsqueeze(-3) if several else new) - mean
            means.append(values.mean(0))
            covariances.append(torch.einsum("s...i,s...j->...ij", values, values) / paths)
        covariance = posterior.distribution.covariance_matrix
    if several:
        size = len(new)
        covariance = torch.stack([covariance[:size, :size], covariance[size:, size:]])
    for estimates, expected in ((means, torch.zeros_like(mean)), (covariances, covariance)):
        found = torch.stack(estimates)
        standard_error = found.std(0) / math.sqrt(draws)
        assert bool(((found.mean(0) - expected).abs() <= 5 * standard_error).all())


@pytest.mark.parametrize("name", MODELS)
def test_paths_have_the_moments_of_the_posterior(name: str) -> None:
    check_moments(make_model(**MODELS[name]))


def test_products_of_clouds_numbers_and_categories() -> None:
    rng = np.random.default_rng(0)
    X = MixedInputs(
        cells=PointClouds(rng.normal(size=(14, 6, 2))),
        numbers={"age": rng.normal(size=14), "dose": rng.normal(size=14)},
        arms={"arm": list("abcabcabcabcab"), "sex": list("mmmmmmmffffffm")},
    )
    kernel = mixed_kernel(X, {"cells": SlicedWassersteinKernel(2, num_slices=8, num_quantiles=8)})
    kernel.double()
    categories = [part for part in kernel.modules() if isinstance(part, CategoricalKernel)]
    categories[0].lengthscale = torch.tensor([[0.3, 2.0]])
    rows = X.pack()
    errors = gram(kernel, 8192, rows) - kernel(rows).to_dense()
    assert float(errors.detach().abs().max()) < 5 / 64
    check_moments(DistributionGP(X[:10], TARGETS[:10], kernel), rows[10:])


def linear() -> DistributionGP:
    """A kernel linear in embeddings about the mean of some clouds, which has exact features."""
    distance = SlicedWasserstein(2, num_slices=5, num_quantiles=6)
    kernel = DistributionKernel(distance, "linear", origin=TRAIN[:4]).double()
    return make_model(covar_module=ScaleKernel(kernel))


def several() -> DistributionGP:
    exponential = make_model(covar_module=ScaleKernel(make_kernel("exponential")))
    return ensemble_of([linear(), make_model(), exponential], [0.2, 0.5, 0.3])


ENSEMBLES = {
    "linear": linear,
    "kernels": several,
    "hyperparameters": lambda: integrate_hyperparameters(make_model()),
    "outputs": lambda: ensemble_of([make_model(TWO), make_model(TWO)], [1, 2]),
}


@pytest.mark.parametrize("kind", ENSEMBLES)
def test_each_path_belongs_to_one_member(kind: str) -> None:
    check_moments(ENSEMBLES[kind](), draws=40)


def test_paths_of_ensembles_at_rows_of_their_own() -> None:
    model = several()
    acquisition = PathwiseThompsonSampling(model)
    assert acquisition(NEW.unsqueeze(-2)).shape == (6,)
    paths = draw_matheron_paths(model, torch.Size([2, 3]))
    values = paths(NEW)
    assert values.shape == (2, 3, 6)
    torch.testing.assert_close(paths(NEW.expand(2, 3, -1, -1)), values)
    own = NEW.reshape(2, 3, 1, -1)
    torch.testing.assert_close(
        paths(own).flatten(), values[[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], range(6)]
    )


def test_paths_know_the_noise_of_small_bags() -> None:
    rows = as_rows(random_clouds(20, sizes=(2, 8)), atoms=8)
    model = DistributionGP(
        rows[:14], TARGETS, ScaleKernel(make_kernel()), sampling_noise=True
    ).eval()
    model.likelihood.noise, model.likelihood.sampling_noise = 0.02, 4.0
    check_moments(model, rows[14:])


@pytest.mark.parametrize("outputs", [1, 2])
def test_thompson_sampling(outputs: int) -> None:
    torch.manual_seed(0)
    model = make_model(TARGETS if outputs == 1 else TWO)
    objective = None if outputs == 1 else LinearMCObjective(torch.ones(2).double())
    acquisition = PathwiseThompsonSampling(model, objective=objective)
    X = NEW.unflatten(0, (3, 2)).clone().requires_grad_()
    values = acquisition(X)
    assert values.shape == (3,)
    (gradient,) = torch.autograd.grad(values.sum(), X)
    step = 1e-6 * torch.randn_like(X)
    with torch.no_grad():
        slope = (acquisition(X + step) - acquisition(X - step)).sum() / 2
    assert float(slope) == pytest.approx(float((gradient * step).sum()), rel=1e-5)
    torch.testing.assert_close(acquisition(X), values)


def test_refuses_other_profiles() -> None:
    model = make_model(covar_module=ScaleKernel(make_kernel("polynomial")))
    with pytest.raises(UnsupportedError, match=r"no random features. Use Linear or .*Matern52"):
        draw_matheron_paths(model, torch.Size([1]))
