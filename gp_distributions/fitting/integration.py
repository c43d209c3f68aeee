"""Integration over hyperparameters, for intervals that few clouds justify."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from botorch.models.kernels.categorical import CategoricalKernel
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.fitting.starts import median_distances, set_priors
from gp_distributions.kernels.copies import batched, repeated
from gp_distributions.kernels.covariances import BlockKernel, covariance
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.kernels.priors import LENGTHSCALE, LINEAR, LogarithmPrior
from gp_distributions.kernels.reading import inside_blocks
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.ensemble import Ensemble
from gp_distributions.models.exact_inference import Conditioned
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.numerics.densities import (
    truncated,
    untruncated,
)
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.numerics.quadrature import importance_points

# Number of draws of each proposal.
_DRAWS = 64
# The prior of the variance among clouds, over that of the targets, is log-normal: its centre, and the
# deviation of the logarithm.
_VARIANCE = 1.0, 1.5
# Without a prior, noise is around this share of the variance of the targets.
_NOISE = 0.05
# Locations and scales of priors of logarithms, relative to the median distance, to which power.
_RELATIVE = {
    "raw_lengthscale": (LENGTHSCALE, 1.0),
    "raw_linear_variance": (LINEAR, -2.0),
}
_LIKELIHOODS = (
    *(GaussianLikelihood, FixedNoiseGaussianLikelihood),
    *(SamplingNoiseLikelihood, SharedNoise),
)
# A kernel that varies among clouds by less than this share of its variance is constant.
_CONSTANT = 1e-6
# A member among others with more hyperparameters of its kernel is not integrated.
_MANY = 8
# A fitted value farther from the centre of its prior, in deviations, is no start.
_FARTHEST = 5.0
# Draws that together weigh less than this are left out.
_NEGLIGIBLE = 1e-3


def integrate_hyperparameters(model: DistributionGP, *, seed: int = 0) -> DistributionGP:
    r"""Return a model whose members have all likely hyperparameters, for intervals from few clouds.

    Ten or thirty clouds do not determine a lengthscale. The hyperparameters that :func:`fit` finds are
    then one choice of many that are about as likely, and intervals of the fitted model are too short.
    The members of the model that is returned are weighted by their posterior probabilities,

    .. math::
        p(y_* \mid y) = \int p(y_* \mid y, \theta)\, p(\theta \mid y)\, d\theta,

    where :math:`\theta` are the hyperparameters of the kernel and the noise. A constant mean that is
    learned is integrated in closed form, with a flat prior. The members are draws around the mode of
    :math:`p(\theta \mid y)` by importance sampling. They are one batched kernel, whose distances are
    computed once.

    The prior of the outputscale :math:`s^2` is that of the variance of the function among the training
    clouds, :math:`s^2 u_\theta`, which the outputscale alone does not
    determine: a function with a long lengthscale hardly varies. For the covariances :math:`K_\theta` of
    the training clouds with outputscale one,

    .. math:: u_\theta = \bigl(\operatorname{tr} K_\theta - 1^\top K_\theta 1 / T\bigr) / (T - 1).

    The priors are log-normal:

    - a lengthscale of a :class:`DistributionKernel`, and the variance of its linear term: as
      :func:`fit` has them in a model without a kernel
      (:class:`~gp_distributions.kernels.priors.LogarithmPrior`);
    - the variance among the clouds: around the variance of the targets, with deviation 1.5;
    - the noise variances: the priors of the likelihood, or around .05 of the variance of the targets,
      with deviation 2;
    - lengthscales of numbers and categories of :class:`MixedInputs`: around the root of how many numbers
      there are, with deviation :math:`\sqrt 3`, and around 1, with deviation 1;
    - parameters of profiles, and outputscales of the further terms of a sum relative to the first:
      around 1, with deviation 1;
    - any other positive parameter of the kernel: around its current value, with deviation 1.

    A prior that is registered with the kernel, such as ``lengthscale_prior``, replaces its default, and
    bounds of a constraint truncate priors. Parameters that do not require a gradient stay as they are,
    and so do those of distances and known noise variances. The members of a model that has several are
    integrated one by one; a member of more than eight hyperparameters, such as one for each principal
    component, stays as it is.

    Args:
        model: A :class:`DistributionGP` of one output with Gaussian noise, sampling noise or known noise
            variances, and a constant or zero mean. It is not changed, and need not be fitted; a fit
            learns scales of coordinates and sampling noise.
        seed: Random seed of the draws.

    Returns:
        A model of the same class, with further ``members``. ``condition_on_observations`` and
        leave-one-out predictions weight them anew.

    Raises:
        TypeError: If ``model`` is not a :class:`DistributionGP`, is a classifier, or has an
            :class:`ExpectedKernel`.
        ValueError: If it has several outputs or a batch of training data, fewer than three clouds,
            targets that are all equal, or another likelihood, mean or outcome transform; or if its
            kernel has a parameter that may be negative, or an outputscale with a prior.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, integrate_hyperparameters
        >>> points = torch.randn(12, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> model = integrate_hyperparameters(DistributionGP(clouds[:10], targets[:10]))
        >>> low, high = model.interval(clouds[10:])
        >>> bool(((low < targets[10:]) & (targets[10:] < high)).all())
        True

    Source: Rue, Martino and Chopin 2009, section 3; Cornuet, Marin, Mira and Robert 2012.
    """
    _check(model)
    with torch.no_grad():
        data = (*model.train_inputs, model.train_targets)
        found = copy.deepcopy(model, {id(tensor): tensor for tensor in data}).eval()
        integrated = any(part.is_batch for part in found.parts)
        parts, weights = ([found], None) if integrated else (found.parts, found.part_weights)
        few = [len(parts) == 1 or _number(part.covar_module) <= _MANY for part in parts]
        batches = [_batch(p, seed) if each else p for p, each in zip(parts, few, strict=True)]
        found.ensemble = Ensemble(batches, weights)
    return found


def can_integrate(model: DistributionGP) -> bool:
    """Whether :func:`integrate_hyperparameters` takes a model."""
    try:
        _check(model)
    except (TypeError, ValueError):
        return False
    return True


@torch.no_grad()
def integrated(model: DistributionGP, *, seed: int = 0) -> Ensemble:
    """Return the ensemble of a model of one kernel, with all likely hyperparameters."""
    return Ensemble([_batch(model, seed)])


def _number(kernel: Kernel) -> int:
    return sum(kernel.get_parameter(name).numel() for name, _ in _hyperparameters(kernel))


def _batch(model: DistributionGP, seed: int) -> DistributionGP:
    """Return a batch of members with draws of the hyperparameters of a model."""
    kernel = copy.deepcopy(model.covar_module)
    if not _outputscales(kernel):  # of all terms of a sum
        kernel = ScaleKernel(kernel).to(model.train_targets)
        kernel.outputscale = 1.0
    alone = model.with_kernel(kernel).eval()
    posterior = _Posterior(alone)
    points, weights, _ = importance_points(posterior, posterior.starts(), _DRAWS, seed=seed)
    order = weights.argsort(descending=True)
    total = weights[order].exp().cumsum(0)
    kept = order[: int((total < 1 - _NEGLIGIBLE).sum()) + 1]
    points, weights = points[kept], weights[kept]
    members = posterior.members(points)
    evidence = posterior.log_evidence(*members)
    return alone.batch_of(*posterior.modules(points, members[1]), weights - evidence)


@dataclass(frozen=True)
class _Coordinate:
    """One raw parameter of a kernel, as standardised logarithms of its entries.

    Bounds of the parameter truncate its prior: coordinates are standard normal variables, which
    :func:`truncated` maps to the logarithms.

    Attributes:
        name: Name of the parameter.
        like: Its current raw value.
        constraint: Constraint whose transform gives the positive values, or None.
        centre: Logarithm of the value at coordinate zero, without bounds.
        spread: Difference of logarithms that one coordinate stands for, without bounds.
        prior: Registered prior of the values, or None for a standard normal prior of coordinates.
    """

    name: str
    like: Tensor
    constraint: Any
    centre: float
    spread: float
    prior: Any

    def positive(self, points: Tensor) -> Tensor:
        """Return positive values for ``n x size`` coordinates, with the shape of the parameter."""
        values = (self.centre + self.spread * truncated(points, *self._ends)).exp()
        values = values.unflatten(-1, self._shape)
        # The raw parameter of a value on a bound would be infinite.
        lower, upper = (bound.to(values) for bound in self._bounds)
        return values.clamp(lower * (1 + 1e-6), upper * (1 - 1e-6))

    def raw(self, points: Tensor) -> Tensor:
        """Return raw values, with a leading axis of length ``n``."""
        values = self.constraint.inverse_transform(self.positive(points))
        return values.reshape(-1, *self.like.shape).to(self.like)

    def log_prior(self, points: Tensor) -> Tensor:
        """Return the log densities of the prior of ``n x size`` coordinates."""
        if self.prior is None:
            return -0.5 * points.square().sum(-1)
        densities = self.prior.log_prob(self.positive(points)).reshape(len(points), -1)
        logs = truncated(points, *self._ends)
        # The logarithm of the derivative of a value by its coordinate, up to a constant.
        slopes = self.spread * logs + (logs.square() - points.square()) / 2
        return densities.sum(-1) + slopes.sum(-1)

    def current(self) -> Tensor:
        """Return the coordinates of the current value."""
        value = self.constraint.transform(self.like).flatten()
        logs = (value.clamp_min(1e-300).log() - self.centre) / self.spread
        return untruncated(logs, *self._ends)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.like.shape) or (1,)

    @property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        return self.constraint.lower_bound.clamp_min(0), self.constraint.upper_bound

    @property
    def _ends(self) -> list[Tensor]:
        """Standardised logarithms of the bounds of each entry."""
        logs = ((bound.to(self.like).log() - self.centre) / self.spread for bound in self._bounds)
        return [each.expand(self._shape).flatten() for each in logs]


class _Posterior:
    """The posterior density of the hyperparameters of a model, up to a constant.

    Its arguments are ``n x p`` points, whose columns are standard normal under the prior: those of the
    parameters of the kernel and of the noise, and the logarithm of the variance among the clouds, unless
    the outputscale is fixed.

    Args:
        model: The model, in evaluation mode.
    """

    def __init__(self, model: DistributionGP) -> None:
        self.model = model
        self.kernel, self.noise = list(_of_kernel(model)), list(_of_noise(model))
        self.sizes = [coordinate.like.numel() for coordinate in self.coordinates]
        scales = _outputscales(model.covar_module)
        self.scale_is_fixed = not all(part.raw_outputscale.requires_grad for part in scales)
        (rows,) = model.train_inputs
        self.errors = model.train_targets - model.mean_module(rows)
        self.spread = self.errors.var()

    @property
    def coordinates(self) -> list[_Coordinate]:
        """The parameters of the kernel, and those of the noise."""
        return [*self.kernel, *self.noise]

    def __call__(self, points: Tensor) -> Tensor:
        """Return log densities."""
        found = self.log_evidence(*self.members(points)) - 0.5 * self._rest(points).square().sum(-1)
        for coordinate, part in zip(self.coordinates, self._parts(points), strict=True):
            found = found + coordinate.log_prior(part)
        return found

    def members(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return covariances, ``n x T x T``, factors of outputscales, ``n``, and noise, ``n x T``."""
        rows = self.model.compared_rows
        covariances = covariance(self._kernel(points), rows)
        size = covariances.shape[-1]
        traces = torch.linalg.diagonal(covariances).sum(-1)
        # The expected sample variances of functions at the clouds.
        among = (traces - covariances.sum((-2, -1)) / size) / (size - 1)
        among = among.clamp_min(_CONSTANT * traces / size)
        variance = among
        if not self.scale_is_fixed:
            variance = self.spread * _log_normal(self._rest(points)[:, 0], *_VARIANCE)
        likelihood = self._likelihood(points)
        noise = likelihood._shaped_noise_covar(covariances.shape[:-1], *self.model.train_inputs)
        return covariances, variance / among, noise.diagonal()

    def log_evidence(self, covariances: Tensor, scales: Tensor, noise: Tensor) -> Tensor:
        """Return log marginal likelihoods of members."""
        noisy = scales[:, None, None] * covariances + torch.diag_embed(noise)
        level = self.model.integrates_level
        return Conditioned(cholesky(noisy), self.errors, level=level).log_evidence

    def modules(self, points: Tensor, scales: Tensor) -> tuple[Kernel, Likelihood]:
        """Return the batched kernel and the batched likelihood of members."""
        kernel = self._kernel(points)
        for part in _outputscales(kernel):
            value = part.outputscale * scales
            part.raw_outputscale.data = part.raw_outputscale_constraint.inverse_transform(value)
        return kernel, self._likelihood(points)

    def starts(self) -> Tensor:
        """Return points from which to find the mode: the centre of the prior, and current values."""
        current = [each.current().clamp(-_FARTHEST, _FARTHEST) for each in self.coordinates]
        rest = self.errors.new_zeros(int(not self.scale_is_fixed))
        points = torch.cat([*current, rest]).to(self.errors)
        return torch.stack([torch.zeros_like(points), points])

    def _kernel(self, points: Tensor) -> Kernel:
        values = zip(self.kernel, self._parts(points), strict=False)
        raw = {each.name: each.raw(part) for each, part in values}
        return batched(self.model.covar_module, raw, len(points))

    def _likelihood(self, points: Tensor) -> Likelihood:
        if not self.noise:
            return self.model.likelihood
        found = repeated(self.model.likelihood, len(points))
        values = self._parts(points)[len(self.kernel) :]
        for each, part in zip(self.noise, values, strict=True):
            found.get_parameter(each.name).data = each.raw(part)
        return found

    def _parts(self, points: Tensor) -> Sequence[Tensor]:
        return points[:, : sum(self.sizes)].split(self.sizes, dim=-1)

    def _rest(self, points: Tensor) -> Tensor:
        """Return the columns beside those of parameters."""
        return points[:, sum(self.sizes) :]


def _log_normal(points: Tensor, centre: float, spread: float) -> Tensor:
    return centre * (spread * points).exp()


def _of_noise(model: DistributionGP) -> Iterator[_Coordinate]:
    """Yield the parameters of the noise that is learned."""
    likelihood = model.likelihood
    owners: list[tuple[str, Any, str]] = [
        ("noise_covar.raw_noise", getattr(likelihood, "noise_covar", None), "noise_prior"),
        ("raw_sampling_noise", likelihood, "sampling_noise_prior"),
    ]
    for name, owner, named in owners:
        raw = name.rpartition(".")[-1]
        parameter = getattr(owner, raw, None)
        if model.noise_is_known or parameter is None or not parameter.requires_grad:
            continue
        prior = getattr(owner, named, None)
        centre, spread = (_NOISE * model.train_targets.var()).log().item(), 2.0
        if isinstance(prior, LogNormalPrior):
            centre, spread = prior.loc.mean().item(), prior.scale.mean().item()
        prior = None if isinstance(prior, LogarithmPrior) else prior
        constraint = owner.constraint_for_parameter_name(raw)
        yield _Coordinate(name, parameter.detach(), constraint, centre, spread, prior)


def _of_kernel(model: DistributionGP) -> Iterator[_Coordinate]:
    """Yield the hyperparameters of the kernel of a model."""
    kernel = model.covar_module
    medians, outputscales = median_distances(model), _outputscales(kernel)
    for part, median in medians.items():
        set_priors(part, median)
    priors = {name: prior for name, _, prior, _, _ in kernel.named_priors()}
    inside = inside_blocks(kernel)
    for name, owner in _hyperparameters(kernel):
        raw = name.rpartition(".")[-1]
        parameter, constraint = getattr(owner, raw), kernel.constraint_for_parameter_name(name)
        value = constraint.transform(parameter).detach()
        prior = priors.get(name.replace("raw_", "") + "_prior")
        centre, spread = value.log().mean().item(), 1.0
        if isinstance(prior, LogNormalPrior):
            centre, spread = prior.loc.mean().item(), prior.scale.mean().item()
        elif raw in _RELATIVE and owner in medians:
            (location, spread), power = _RELATIVE[raw]
            centre = location + power * medians[owner].log().item()
        elif raw == "raw_lengthscale" and isinstance(owner, CategoricalKernel):
            centre = 0.0
        elif raw == "raw_lengthscale" and owner in inside:
            centre, spread = math.log(parameter.shape[-1]) / 2, math.sqrt(3.0)
        elif owner in outputscales:  # relative to the first, which stays as it is
            centre = outputscales[0].outputscale.log().mean().item()
        elif raw in ("raw_outputscale", "raw_alpha", "raw_offset"):
            centre = 0.0
        prior = None if isinstance(prior, LogarithmPrior) else prior
        yield _Coordinate(name, parameter.detach(), constraint, centre, spread, prior)


def _hyperparameters(kernel: Kernel) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the names and modules of the raw parameters of a kernel that are integrated numerically."""
    outputscales = _outputscales(kernel)
    names = {parameter: name for name, parameter in kernel.named_parameters()}
    for part in outputscales:
        name = names[part.raw_outputscale].replace("raw_", "")
        if any(owner is part for _, owner, *_ in part.named_priors()):
            raise ValueError(
                f"Expected outputscales without a prior, got one of {name}: their prior is that of "
                "the variance among the clouds. Make the kernel without it."
            )
    fixed = {
        p for part in kernel.modules() if isinstance(part, Distance) for p in part.parameters()
    }
    # The first outputscale follows from the variance among the clouds.
    fixed |= {part.raw_outputscale for part in outputscales[:1]}
    for parameter, name in names.items():
        if parameter in fixed or not parameter.requires_grad:
            continue
        constraint = kernel.constraint_for_parameter_name(name)
        if constraint is None or not bool((constraint.lower_bound >= 0).all()):
            raise ValueError(
                f"Expected positive hyperparameters, got {name}, which may be negative. Fix it: "
                f"model.covar_module.get_parameter({name!r}).requires_grad_(False)."
            )
        yield name, kernel.get_submodule(name.rpartition(".")[0])


def _outputscales(kernel: Kernel) -> list[ScaleKernel]:
    """Return the kernels whose outputscales together multiply a kernel.

    Returns:
        One kernel, or one of each term of a sum, or none if part of the kernel has no outputscale.
    """
    if isinstance(kernel, ScaleKernel):
        return [kernel]
    if isinstance(kernel, BlockKernel):
        return _outputscales(kernel.base_kernel)
    if not isinstance(kernel, ProductKernel | AdditiveKernel):
        return []
    parts = [_outputscales(part) for part in kernel.kernels]
    if isinstance(kernel, ProductKernel):
        return next(filter(None, parts), [])
    return list(chain(*parts)) if all(parts) else []


def _check(model: Any) -> None:
    if not isinstance(model, DistributionGP) or isinstance(model, ClassificationGP):
        raise TypeError(f"Expected a DistributionGP, got {type(model).__name__}.")
    if model.num_outputs > 1:
        raise ValueError(
            f"Expected a model of one output, got {model.num_outputs}. Integrate each of them: "
            "botorch.models.ModelList(*(integrate_hyperparameters(model.subset_output([i])) for i in "
            f"range({model.num_outputs})))."
        )
    if model.train_inputs[0].dim() > 2 or model.train_targets.dim() > 1:
        raise ValueError(
            "Expected one set of training clouds, got a batch of shape "
            f"{tuple(model.train_targets.shape[:-1])}."
        )
    if any(isinstance(part, ExpectedKernel) for part in model.covar_module.modules()):
        raise TypeError(
            "Expected kernels of distances, got an ExpectedKernel, whose hyperparameters cannot be "
            "integrated. Predict with the fitted model."
        )
    if not isinstance(model.mean_module, ConstantMean | ZeroMean):
        kind = type(model.mean_module).__name__
        raise ValueError(f"Expected a constant or zero mean, got a {kind}.")
    if type(model.likelihood) not in _LIKELIHOODS:
        kind = type(model.likelihood).__name__
        raise ValueError(f"Expected a Gaussian likelihood, got a {kind}.")
    transform = model._outcome_transform
    if transform is not None and not transform._is_linear:
        raise ValueError(
            f"Expected a linear outcome transform, got {type(transform).__name__}. Transform the "
            "targets before they are passed to the model."
        )
    size = model.train_targets.shape[-1]
    if size < 3:
        raise ValueError(f"Expected at least 3 clouds, got {size}.")
    targets = model.train_targets
    if not bool((targets != targets[:1]).any()):
        raise ValueError(
            f"Expected targets that differ, got {len(targets)} times the same: they do not determine "
            "an outputscale."
        )
