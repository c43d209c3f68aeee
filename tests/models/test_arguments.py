"""Errors for arguments that models do not accept, and the advice they give."""

from typing import Any

import numpy as np
import pytest
import torch
from botorch.models.transforms.outcome import Power
from cases import as_rows, random_clouds
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, MultitaskGaussianLikelihood

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    Gaussians,
    PointClouds,
    PrecomputedDistance,
    SharedKernelGP,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    diagnose,
)

CLOUDS = PointClouds.unpack(as_rows(random_clouds(8, sizes=(3, 6))), 2)
TARGETS = torch.arange(8.0, dtype=torch.float64)
BAGS = [np.zeros((4, 2)), np.ones((3, 2))]


@pytest.mark.parametrize("given", [BAGS, BAGS[0], None], ids=["list", "array", "none"])
@pytest.mark.parametrize("method", ["predict", "posterior", "condition_on_observations"])
def test_bags_are_made_clouds_first(method: str, given: Any) -> None:
    model = DistributionGP(CLOUDS, TARGETS)
    arguments = (given, TARGETS[:2]) if method == "condition_on_observations" else (given,)
    with pytest.raises(TypeError, match=r"PointClouds\.from_list"):
        getattr(model, method)(*arguments)
    with pytest.raises(TypeError, match=r"PointClouds\.from_list"):
        DistributionGP(given, TARGETS)


@pytest.mark.parametrize("model", [DistributionGP, SharedKernelGP])
@pytest.mark.parametrize("covar_module", [SlicedWasserstein(2), "mmd"])
def test_a_distance_is_no_kernel(model: Any, covar_module: Any) -> None:
    with pytest.raises(TypeError, match=r"DistributionKernel\(distance\)"):
        model(CLOUDS, TARGETS, covar_module)


def test_kernels_of_columns_are_for_rows() -> None:
    kernel = ScaleKernel(RBFKernel())
    with pytest.raises(ValueError, match="got a ScaleKernel, which would compare the columns"):
        DistributionGP(CLOUDS, TARGETS, kernel)
    DistributionGP(CLOUDS.pack(), TARGETS, kernel)


@pytest.mark.parametrize("model", [DistributionGP, SharedKernelGP, SparseDistributionGP])
def test_kernels_of_other_inputs_are_refused(model: Any) -> None:
    """The width of rows of Gaussians in d dimensions is that of clouds of d atoms."""
    gaussians, kernel = Gaussians.from_clouds(CLOUDS), SlicedWassersteinKernel(2)
    message = r'clouds of dimension 2.*got Gaussians of dimension 2.*dim=2 and inputs="gaussians"'
    for use in (lambda: model(gaussians, TARGETS, kernel), lambda: diagnose(kernel, gaussians)):
        with pytest.raises(ValueError, match=message):
            use()


def test_one_cloud_needs_an_axis() -> None:
    indices = DistributionKernel(PrecomputedDistance(torch.zeros(8, 8)))
    with pytest.raises(ValueError, match=r"got a single one\. Pass X\[:1\] instead of X\[0\]"):
        DistributionGP(CLOUDS[0], TARGETS[:1])
    with pytest.raises(ValueError, match=r"X\[:1\] instead of X\[0\]"):
        DistributionGP(CLOUDS, TARGETS).predict(CLOUDS[0].pack())
    with pytest.raises(TypeError, match=r"torch\.int64\. Pass rows\.double\(\)"):
        DistributionGP(torch.arange(8).unsqueeze(-1), TARGETS, indices)


def test_fixed_noise_of_another_length() -> None:
    likelihood = FixedNoiseGaussianLikelihood(torch.ones(7, dtype=torch.float64))
    with pytest.raises(ValueError, match="for each of 8 clouds, got 7"):
        DistributionGP(CLOUDS, TARGETS, likelihood=likelihood)


def test_likelihoods_whose_predictions_would_be_wrong() -> None:
    noise = torch.ones(8, dtype=torch.float64)
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)
    with pytest.raises(ValueError, match="without learn_additional_noise"):
        DistributionGP(CLOUDS, TARGETS, likelihood=likelihood)
    outputs = torch.stack([TARGETS, -TARGETS], dim=-1)
    with pytest.raises(TypeError, match="independent outputs, got MultitaskGaussianLikelihood"):
        DistributionGP(CLOUDS, outputs, likelihood=MultitaskGaussianLikelihood(num_tasks=2))


def test_models_of_gpytorch_are_called_with_rows() -> None:
    model = DistributionGP(CLOUDS, TARGETS)
    for mode in (True, False):
        model.train(mode)
        for call in (model, model.set_train_data):
            with pytest.raises(TypeError, match=r"rows .*, got PointClouds\. Pass X\.pack\(\)"):
                call(CLOUDS)


@pytest.mark.parametrize("model", [DistributionGP, SparseDistributionGP])
def test_outcome_transforms_whose_means_are_unknown(model: Any) -> None:
    made = model(CLOUDS, TARGETS + 1, outcome_transform=Power(0.5))
    with pytest.raises(ValueError, match=r"means are known.* Draw samples from posterior\(X\)"):
        made.predict(CLOUDS)
    assert made.posterior(CLOUDS).rsample().isfinite().all()
