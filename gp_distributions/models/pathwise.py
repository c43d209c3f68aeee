"""BoTorch's pathwise sampling: a member for each path, levels, and noise that depends on bags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from botorch.sampling.pathwise.features.maps import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath, SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import (
    get_input_transform,
    get_train_inputs,
    get_train_targets,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.hosts import GaussianBase
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood

_draw_of_one = DrawMatheronPaths.dispatch(ExactGP)
_update = GaussianUpdate.dispatch(ExactGP, GaussianLikelihood)


def _draw(model: DistributionGP, *, sample_shape: torch.Size, **options: Any) -> SamplePath:
    """Draw paths of which each belongs to one member, chosen with its weight."""
    parts = model.parts
    if parts == [model] and not model.is_batch:
        return _draw_of_one(model, sample_shape=sample_shape, **options)
    number = sample_shape.numel()
    # Systematic sampling: each member has its share of the paths, rounded up or down.
    places = (torch.arange(number) + torch.rand(())) / number
    ends = model.weights.cumsum(-1)[:-1].to(places)
    chosen = torch.searchsorted(ends, places)[torch.randperm(number)]
    first, paths, owned = 0, [], []
    for part in parts:
        last = first + part.member_weights().shape[-1]
        own = ((first <= chosen) & (chosen < last)).nonzero().flatten()
        if len(own):
            owned.append(own)
            if part.is_batch:  # one batch element for each path
                some = part.some_members(chosen[own] - first)
                paths.append(_draw_of_one(some, sample_shape=torch.Size(), **options))
            else:
                paths.append(_draw_of_one(part, sample_shape=own.shape, **options))
        first = last
    return _EnsemblePath(paths, owned, sample_shape, several=model.num_outputs > 1)


class _EnsemblePath(SamplePath):
    """Paths of the parts of an ensemble.

    Args:
        paths: The paths of each part.
        owned: The numbers of these paths among all.
        sample_shape: The shape of all paths.
        several: Whether there is an axis of outputs behind those of paths.
    """

    def __init__(
        self,
        paths: Sequence[SamplePath],
        owned: Sequence[Tensor],
        sample_shape: torch.Size,
        *,
        several: bool,
    ) -> None:
        super().__init__()
        self.paths = torch.nn.ModuleList(paths)
        self.owned = list(owned)
        self.sample_shape = sample_shape
        self._axis = -3 if several else -2

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """Evaluate the paths at rows, or each path at rows of its own, as in BoTorch."""
        # Axes of paths in x stand in front of that of rows, and of that of outputs.
        first, last = self._axis - len(self.sample_shape), self._axis - 1
        each = x.dim() >= -first and any(size != 1 for size in x.shape[first : self._axis])
        if each:
            x = x.expand(*x.shape[:first], *self.sample_shape, *x.shape[self._axis :])
            x = x.flatten(first, last)
        found = [
            path(x.index_select(last, own.to(x.device)) if each else x, **kwargs)
            for path, own in zip(self.paths, self.owned, strict=True)
        ]
        order = torch.cat(self.owned).argsort().to(x.device)
        values = torch.cat(found, dim=self._axis).index_select(self._axis, order)
        return values.unflatten(self._axis, self.sample_shape or (1,))

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Do nothing: members are no axis of these paths."""


class _Level(torch.nn.Module):
    """The level of each path beside the prior mean.

    Args:
        level: The levels, ``sample_shape x batch_shape x 1``.
    """

    def __init__(self, level: Tensor) -> None:
        super().__init__()
        self.level: Tensor
        self.register_buffer("level", level)

    def forward(self, x: Tensor) -> Tensor:
        """Return the levels, whatever the inputs."""
        return self.level


def _gaussian_update(
    model: ExactGP,
    likelihood: Any,
    *,
    sample_values: Tensor,
    target_values: Tensor | None = None,
    points: Tensor | None = None,
    noise_covariance: Any = None,
    **kwargs: Any,
) -> GeneralizedLinearPath:
    """Call BoTorch's update, with the noise at the training rows if it depends on them.

    A level that is integrated is that of the residuals of each path.
    """
    if points is None:
        (points,) = get_train_inputs(model, transformed=True)
    if target_values is None:
        target_values = get_train_targets(model, transformed=True)
    if noise_covariance is None and isinstance(likelihood, SamplingNoiseLikelihood):
        noise_covariance = likelihood._shaped_noise_covar(points.shape[:-1], points)
    known = {"sample_values": sample_values, "target_values": target_values, "points": points}
    if not getattr(model, "integrates_level", False):
        return _update(model, likelihood, noise_covariance=noise_covariance, **known, **kwargs)
    if noise_covariance is None:
        noise_covariance = likelihood.noise_covar(shape=points.shape[:-1])
    noise = noise_covariance.diagonal().sqrt() * torch.randn_like(sample_values)
    residuals = model.conditioned().of_errors(target_values - sample_values - noise)
    feature_map = KernelEvaluationMap(
        model.covar_module, points, input_transform=get_input_transform(model)
    )
    return GeneralizedLinearPath(
        feature_map, residuals.mean_cache, bias_module=_Level(residuals.level)
    )


DrawMatheronPaths.add((DistributionGP,), _draw)
GaussianUpdate.add(((ExactGP, DistributionGP), SamplingNoiseLikelihood), _gaussian_update)
GaussianUpdate.add((DistributionGP, GaussianBase), _gaussian_update)
