"""BoTorch's pathwise sampling: noise that depends on the size of bags, and models with members."""

from __future__ import annotations

from typing import Any

from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood

_update = GaussianUpdate.dispatch(ExactGP, GaussianLikelihood)


def _gaussian_update(
    model: ExactGP,
    likelihood: Any,
    *,
    points: Tensor | None = None,
    noise_covariance: Any = None,
    **kwargs: Any,
) -> GeneralizedLinearPath:
    """Call BoTorch's update, with the noise at the training rows if it depends on them."""
    if isinstance(model, DistributionGP) and model.mixture is not None:
        raise UnsupportedError(
            "Expected a model with one kernel for sample paths, got an equal mixture. Draw paths of "
            "each of model.members, or pass a kernel to the model."
        )
    if points is None:
        (points,) = get_train_inputs(model, transformed=True)
    if noise_covariance is None and isinstance(likelihood, SamplingNoiseLikelihood):
        noise_covariance = likelihood._shaped_noise_covar(points.shape[:-1], points)
    return _update(model, likelihood, points=points, noise_covariance=noise_covariance, **kwargs)


GaussianUpdate.add(((ExactGP, DistributionGP), SamplingNoiseLikelihood), _gaussian_update)
GaussianUpdate.add((DistributionGP, _GaussianLikelihoodBase), _gaussian_update)
