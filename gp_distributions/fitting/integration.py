"""Integration over hyperparameters, for intervals that few clouds justify."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from botorch.models.kernels.categorical import CategoricalKernel
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.fitting.starts import median_distances
from gp_distributions.kernels.batching import batched
from gp_distributions.kernels.block_kernel import BlockKernel
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.kernels.reading import inside_blocks
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.integrated_gp import IntegratedGP, regression, training_covariances
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.numerics.densities import truncated, untruncated
from gp_distributions.numerics.quadrature import grid, importance_points, narrowed

# A grid has so many points for each hyperparameter and for the ratio of noise to outputscale; more
# hyperparameters than _GRID are integrated by importance sampling with _POINTS points.
_LENGTHSCALES, _RATIOS, _GRID, _POINTS = 16, 10, 2, 128
# If the prior of a logarithm has deviation 1, the grid reaches from a tenth to twenty times its centre.
_LOWEST, _HIGHEST = math.log(0.1), math.log(20.0)
# The prior of the noise variance over the variance among clouds is log-normal around _RATIO, between
# these bounds.
_RATIO, _RATIO_SPREAD, _RATIO_BOUNDS = 0.06, 1.5, (1e-4, 10.0)
# Known noise: the variance among clouds over that of the targets lies between these bounds.
_SCALE_BOUNDS, _SCALES = (0.03, 100.0), 16
_LIKELIHOODS = (
    *(GaussianLikelihood, FixedNoiseGaussianLikelihood),
    *(SamplingNoiseLikelihood, SharedNoise),
)
# A kernel that varies among clouds by less than this share of its variance is constant.
_CONSTANT = 1e-6
# Points of importance sampling that together weigh less than this are left out.
_NEGLIGIBLE = 1e-3


def integrate_hyperparameters(model: DistributionGP, *, seed: int = 0) -> IntegratedGP:
    r"""Return the mixture of a model over its hyperparameters, for intervals from few clouds.

    Ten or thirty clouds do not determine a lengthscale. The hyperparameters that :func:`fit` finds are
    then one choice of many that are about as likely, and intervals of the fitted model are too short.
    The mixture weights all of them by their posterior probabilities,

    .. math::
        p(y_* \mid y) = \int p(y_* \mid y, \theta, r)\, p(\theta, r \mid y)\, d\theta\, dr,

    where :math:`\theta` are the hyperparameters of the kernel and :math:`r` is the ratio of noise to
    outputscale. The constant mean, with a flat prior, and the outputscale, with one that is flat in its
    logarithm, are integrated in closed form, so that members are Student's t processes with
    :math:`T - 1` degrees of freedom.

    The prior of the ratio refers to the variance of the function among the training clouds, which the
    outputscale alone does not determine: a function with a long lengthscale hardly varies. For the
    covariances :math:`K_\theta` of the training clouds with outputscale one, the expectation of their
    sample variance is

    .. math:: u_\theta = \bigl(\operatorname{tr} K_\theta - 1^\top K_\theta 1 / T\bigr) / (T - 1).

    The priors are:

    - a lengthscale of a :class:`DistributionKernel`: log-normal around the median distance between the
      training clouds, with deviation 1 of the logarithm;
    - the ratio of noise to that variance, :math:`r / u_\theta`: log-normal around 0.06, with deviation
      1.5, between 1e-4 and 10;
    - lengthscales of numbers and categories of :class:`MixedInputs`: log-normal around the root of how
      many numbers there are, with deviation :math:`\sqrt 3`, and around 1, with deviation 1;
    - parameters of profiles, and outputscales of the further terms of a sum relative to the first:
      log-normal around 1, with deviation 1;
    - any other positive parameter of the kernel: log-normal around its current value, with deviation 1.

    A prior that is registered with the kernel, such as ``lengthscale_prior``, replaces its default, and
    bounds of a constraint truncate priors. Parameters that do not require a gradient stay as they are,
    and so do those of distances, and the ratios between the noise variances of bags under sampling
    noise. The outputscale of the kernel, or of each term of a sum, can neither be fixed nor have a
    prior. If noise variances are known, or the noise is fixed, the outputscale is integrated on a grid,
    with a prior that is flat in its logarithm where the variance among the clouds is between 0.03 and
    100 times the variance of the targets, and the members are normal.

    Up to two hyperparameters are integrated on a grid, and more by importance sampling around the mode
    of their posterior density. The model need not be fitted; a fit only helps to find the mode, and to
    learn scales of coordinates or sampling noise.

    Args:
        model: A :class:`DistributionGP` of one output with Gaussian noise, sampling noise or known noise
            variances, and a constant or zero mean. It is not changed.
        seed: Random seed of importance sampling.

    Returns:
        A BoTorch model: predictions, quantiles of its ``posterior``, acquisition functions and
        ``condition_on_observations`` as for :class:`MixtureModel`. :func:`save` stores it.

    Raises:
        TypeError: If ``model`` is not a :class:`DistributionGP`, is a classifier, or has an
            :class:`ExpectedKernel`.
        ValueError: If it has several outputs or a batch of training data, a mixture of kernels that
            :func:`fit` chose, fewer than four clouds, targets that are all equal, or another likelihood,
            mean or outcome transform; or if its kernel has a parameter that may be negative, or an
            outputscale that is fixed or has a prior.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, integrate_hyperparameters
        >>> points = torch.randn(12, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> model = integrate_hyperparameters(DistributionGP(clouds[:10], targets[:10]))
        >>> mean, std = model.predict(clouds[10:])
        >>> posterior = model.posterior(clouds[10:], observation_noise=True)
        >>> low, high = posterior.quantile(torch.tensor([0.025, 0.975]))
        >>> bool(((low < targets[10:, None]) & (targets[10:, None] < high)).all())
        True

    Source: Handcock and Stein 1993; Rue, Martino and Chopin 2009, section 3 (integration of
    hyperparameters on a grid).
    """
    _check(model)
    data = (*model.train_inputs, model.train_targets)
    model = copy.deepcopy(model, {id(tensor): tensor for tensor in data}).train()
    with torch.no_grad():
        coordinates = list(_coordinates(model))
        evidence = _Evidence(model.eval(), coordinates)
        points, log_prior, axis = _quadrature(evidence, seed)
        ratios, outputscales = evidence.members(evidence.covariances(points), axis)
        log_priors = log_prior[:, None] + evidence.log_ratios(axis)
        return IntegratedGP(model, evidence.values(points), ratios, log_priors, outputscales)


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


class _Evidence:
    """The marginal likelihood of a model as a function of its hyperparameters.

    Args:
        model: The model, in evaluation mode.
        coordinates: The hyperparameters of its kernel.
    """

    def __init__(self, model: DistributionGP, coordinates: list[_Coordinate]) -> None:
        self.model = model
        self.coordinates = coordinates
        self.sizes = [coordinate.like.numel() for coordinate in coordinates]
        noise = model.likelihood.noise_covar
        self.known = model.noise_is_known or not noise.raw_noise.requires_grad
        bounds, number = (_SCALE_BOUNDS, _SCALES) if self.known else (_RATIO_BOUNDS, _RATIOS)
        low, high = map(math.log, bounds)
        self.axis = torch.linspace(low, high, number).to(model.train_targets)

    def values(self, points: Tensor) -> dict[str, Tensor]:
        """Return the raw parameters of the kernel at ``n x p`` points."""
        return {each.name: each.raw(part) for each, part in self._parts(points)}

    def covariances(self, points: Tensor) -> Tensor:
        """Return the covariances of the training clouds at ``n x p`` points, ``n x T x T``."""
        kernel = batched(self.model.covar_module, self.values(points))
        return training_covariances(self.model, kernel)

    def members(self, covariances: Tensor, axis: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the ratios of noise to outputscale, and the outputscales if noise is known.

        Args:
            covariances: Covariances of the training clouds, ``n x T x T``.
            axis: The ``J`` points of the last axis.

        Returns:
            Two ``n x J`` tensors, or one and None.
        """
        # The expected sample variances of functions at the clouds.
        size = covariances.shape[-1]
        traces = torch.linalg.diagonal(covariances).sum(-1)
        among = (traces - covariances.sum((-2, -1)) / size) / (size - 1)
        unit = among.clamp_min(_CONSTANT * traces / size).unsqueeze(-1)
        if not self.known:
            return unit * axis.exp(), None
        scales = self.model.train_targets.var() * axis.exp() / unit
        return self.model.likelihood.noise.mean() / scales, scales

    def log_ratios(self, axis: Tensor) -> Tensor:
        """Return the log prior at points of the last axis."""
        if self.known:
            return torch.zeros_like(axis)
        return -0.5 * ((axis - math.log(_RATIO)) / _RATIO_SPREAD).square()

    def log_prior(self, points: Tensor) -> Tensor:
        """Return the log prior at ``n x p`` points."""
        return sum((c.log_prior(p) for c, p in self._parts(points)), points.new_zeros(len(points)))

    def _parts(self, points: Tensor) -> Iterator[tuple[_Coordinate, Tensor]]:
        return zip(self.coordinates, points.split(self.sizes, dim=-1), strict=True)

    def joint(self, points: Tensor, axis: Tensor) -> Tensor:
        """Return log posterior densities, up to a constant, ``n x J``."""
        covariances = self.covariances(points)
        found = regression(self.model, covariances, *self.members(covariances, axis)).log_evidence
        return found + self.log_prior(points)[:, None] + self.log_ratios(axis)

    def marginal(self, points: Tensor) -> Tensor:
        """Return log posterior densities of the hyperparameters of the kernel."""
        return self.joint(points, self.axis).logsumexp(-1)

    def start(self) -> Tensor:
        """Return points from which to find the mode: the centre of the prior, and current values."""
        current = torch.cat([coordinate.current() for coordinate in self.coordinates])
        return torch.stack([torch.zeros_like(current), current]).to(self.axis)


def _quadrature(evidence: _Evidence, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Choose values of the hyperparameters.

    Returns:
        An ``L x p`` tensor of coordinates of those of the kernel, the log prior at each times its
        quadrature weight, and the points of the last axis.
    """
    if sum(evidence.sizes) > _GRID:
        start = evidence.start()
        points, weights, densities = importance_points(evidence.marginal, start, _POINTS, seed=seed)
        order = weights.argsort(descending=True)
        total = weights[order].exp().cumsum(0)
        order = order[: int((total < 1 - _NEGLIGIBLE).sum()) + 1]
        points, log_proposal = points[order], (densities - weights)[order]
        joint = evidence.joint(points, evidence.axis) - log_proposal[:, None]
        axis = narrowed(evidence.axis, joint.logsumexp(0))
        return points, evidence.log_prior(points) - log_proposal, axis
    axes = [torch.linspace(_LOWEST, _HIGHEST, _LENGTHSCALES).to(evidence.axis)] * sum(
        evidence.sizes
    )
    sizes = [*map(len, axes), len(evidence.axis)]
    joint = evidence.joint(_grid(evidence, axes), evidence.axis).reshape(sizes)
    *axes, last = (
        narrowed(axis, joint.movedim(place, 0).reshape(len(axis), -1).logsumexp(1))
        for place, axis in enumerate([*axes, evidence.axis])
    )
    points = _grid(evidence, axes)
    return points, evidence.log_prior(points), last


def _grid(evidence: _Evidence, axes: list[Tensor]) -> Tensor:
    return grid(axes) if axes else evidence.axis.new_zeros(1, 0)


def _coordinates(model: DistributionGP) -> Iterator[_Coordinate]:
    """Yield the hyperparameters of the kernel of a model in training mode."""
    kernel = model.covar_module
    medians, outputscales = median_distances(model), _outputscales(kernel)
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
        elif raw == "raw_lengthscale" and isinstance(owner, DistributionKernel):
            centre = medians[owner].log().item() if owner in medians else centre
        elif raw == "raw_lengthscale" and isinstance(owner, CategoricalKernel):
            centre = 0.0
        elif raw == "raw_lengthscale" and owner in inside:
            centre, spread = math.log(parameter.shape[-1]) / 2, math.sqrt(3.0)
        elif owner in outputscales:  # relative to the first, which stays as it is
            centre = outputscales[0].outputscale.log().mean().item()
        elif raw in ("raw_outputscale", "raw_alpha", "raw_offset"):
            centre = 0.0
        yield _Coordinate(name, parameter.detach(), constraint, centre, spread, prior)


def _hyperparameters(kernel: Kernel) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the names and modules of the raw parameters of a kernel that are integrated numerically."""
    outputscales = _outputscales(kernel)
    names = {parameter: name for name, parameter in kernel.named_parameters()}
    for part in outputscales:
        name = names[part.raw_outputscale].replace("raw_", "")
        if not part.raw_outputscale.requires_grad:
            raise ValueError(
                f"Expected outputscales that are not fixed, got a fixed {name}: they are integrated, "
                "together with the noise. Let raw_outputscale require a gradient."
            )
        if any(owner is part for _, owner, *_ in part.named_priors()):
            raise ValueError(
                f"Expected outputscales without a prior, got one of {name}: they are integrated with a "
                "prior that is flat in the logarithm. Make the kernel without it."
            )
    fixed = {
        p for part in kernel.modules() if isinstance(part, Distance) for p in part.parameters()
    }
    fixed |= {part.raw_outputscale for part in outputscales[:1]}  # integrated in closed form
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
    if model.mixture is not None:
        raise ValueError(
            f"Expected a model with one kernel, got the mixture of {len(model.members)} that fit chose. "
            "Integrate its isotropic one, integrate_hyperparameters(model.members[0])."
        )
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
    if size < 4:
        raise ValueError(
            f"Expected at least 4 clouds, got {size}: a Student's t distribution with fewer than 3 "
            "degrees of freedom has no finite variance."
        )
    targets = model.train_targets
    if not bool((targets != targets[:1]).any()):
        raise ValueError(
            f"Expected targets that differ, got {len(targets)} times the same: they do not determine "
            "an outputscale."
        )
