"""Starts of fits of many clouds: the maxima on a random subset of them, a surrogate that is quicker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.fitting.ascent import Ascent, Maximum, set_values
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise

#: Models of more clouds are fitted to a random subset first, of this size.
LARGE, SUBSET = 1000, 500
# Maxima on the subset are the same if their likelihoods per cloud differ by less than _SAME. On all
# clouds, their likelihoods grow by less than _GAIN: by a few parameters over the size of the subset.
_SAME, _GAIN = 1e-4, 0.015
_LOSS = attrgetter("loss")
# Likelihoods whose parameters do not depend on the number of clouds.
_LIKELIHOODS = (GaussianLikelihood, SamplingNoiseLikelihood, SharedNoise)


def has_subsets(model: ExactGP) -> bool:
    """Whether there are many clouds, of which a subset has a likelihood with about the same maxima.

    It has for the regression models of this package with fixed distances and learned noise.
    """
    return (
        model.train_targets.shape[-1] > LARGE
        and isinstance(model, DistributionGP)
        and type(model.likelihood) in _LIKELIHOODS
        and not any(
            parameter.requires_grad
            for kernel, _ in distribution_kernels(model.covar_module)
            for parameter in kernel.distance.parameters()
        )
    )


def climb(
    ascent: Ascent, starts: Sequence[list[Tensor]], *, seed: int, with_first: bool = False
) -> Maximum:
    """Maximise the marginal likelihood from all starts, and leave the model at the best result.

    Args:
        ascent: The maximisation.
        starts: Values of all parameters.
        seed: Random seed of the subset from which a fit of many clouds starts.
        with_first: Whether the first start is a start of all clouds as well.
    """
    if has_subsets(ascent.model):
        best = _from_subset(ascent, starts, seed=seed, with_first=with_first)
    else:
        best = min(ascent.maxima(ascent.model, starts), key=_LOSS)
    set_values(ascent.model, best.values)
    return best


def _from_subset(
    ascent: Ascent, starts: Sequence[list[Tensor]], *, seed: int, with_first: bool
) -> Maximum:
    """Maximise the marginal likelihood of all clouds from the maxima on a subset of them.

    The most likely candidate on all clouds comes first. Others follow unless they are the same maximum,
    or too far below the best to reach it. If the likelihood grows much more than it should, or no
    candidate leads to a maximum, the fit goes on from all starts.
    """
    model, outputs = ascent.model, max(1, ascent.model.train_targets.shape[:-1].numel())
    smaller = on_subset(model, seed=seed)
    candidates = [(found.values, found.minimum.pairs) for found in ascent.maxima(smaller, starts)]
    ascent.lowest = math.inf  # losses on the subset do not compare with those on all clouds
    if with_first:
        candidates.append((starts[0], []))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    losses: list[float] = []
    for values, _ in candidates:
        set_values(model, values)
        try:
            with torch.no_grad():
                losses.append(ascent.loss(mll).item())
        except (NanError, NotPSDError):
            losses.append(math.inf)
    found: list[Maximum] = []
    last = -math.inf
    for loss, (values, pairs) in sorted(zip(losses, candidates, strict=True), key=lambda x: x[0]):
        reachable = not found or (
            loss - last > _SAME * outputs and loss - min(found, key=_LOSS).loss < _GAIN * outputs
        )
        if math.isfinite(loss) and reachable:
            try:
                found += ascent.maxima(model, [values], pairs=pairs)
            except (NanError, NotPSDError):
                continue
            if loss - found[-1].loss > _GAIN * outputs:
                # The subset was a poor guide, so all clouds may have maxima that it lacks.
                return min([*found, *ascent.maxima(model, starts)], key=_LOSS)
        last = loss
    return min(found or ascent.maxima(model, starts), key=_LOSS)


def on_subset(model: DistributionGP, *, seed: int) -> DistributionGP:
    """Return a model of a random subset of many clouds that shares all parameters with ``model``.

    A model of few clouds is returned as it is.
    """
    size = model.train_targets.shape[-1]
    if size <= LARGE:
        return model
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return model.subset(order[:SUBSET].sort().values.to(model.train_targets.device))
