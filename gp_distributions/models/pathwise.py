"""BoTorch's pathwise sampling for models whose noise depends on the size of bags."""

from __future__ import annotations

from typing import Any

from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood

_update = GaussianUpdate.dispatch(ExactGP, GaussianLikelihood)


def _gaussian_update(
    model: ExactGP,
    likelihood: SamplingNoiseLikelihood,
    *,
    points: Tensor | None = None,
    noise_covariance: Any = None,
    **kwargs: Any,
) -> GeneralizedLinearPath:
    """Call BoTorch's update with the noise at the training rows, which BoTorch itself omits."""
    if points is None:
        (points,) = get_train_inputs(model, transformed=True)
    if noise_covariance is None:
        noise_covariance = likelihood._shaped_noise_covar(points.shape[:-1], points)
    return _update(model, likelihood, points=points, noise_covariance=noise_covariance, **kwargs)


GaussianUpdate.add((ExactGP, SamplingNoiseLikelihood), _gaussian_update)
