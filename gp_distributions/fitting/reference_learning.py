"""Learning of a reference measure by marginal likelihood, guarded by cross-validation."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.distances.transport import TransportDistance
from gp_distributions.fitting.reference_ascent import (
    Learner,
    drawn,
    reference_of,
    restarted,
    rows_seen,
)
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import ReferenceWarning, warn

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReferenceFit:
    """Result of :func:`fit_reference`.

    Attributes:
        mll: Log marginal likelihood per cloud, including priors, at the start and after each step. The
            values never decrease.
        points: An ``m x d`` tensor, the atoms of the chosen reference.
        weights: A tensor of ``m`` weights of these atoms.
        chosen: Which reference had the highest held-out log density and was kept: ``"start"`` (after no
            steps), ``"stopped"`` (before the last step) or ``"final"`` (after all steps). It is always
            ``"final"`` without a guard.
        path: A ``steps + 1 x m x d`` tensor, the atoms at the start and after each step.
        held_out: The mean log density of the held-out targets, in standardised units and with widened
            variances, by the number of steps; empty without a guard.
        widening: Factor by which the variances were multiplied after the last step; 1 without a guard.
        effective_rank: Effective rank (participation ratio) of the features of the training clouds.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, ReferenceMeasure
        >>> from gp_distributions import SinkhornKernel, fit_reference
        >>> generator = torch.Generator().manual_seed(0)
        >>> X = PointClouds(torch.rand(12, 5, 2, generator=generator, dtype=torch.float64))
        >>> kernel = SinkhornKernel(ReferenceMeasure.from_data(X, 3, method="ball"))
        >>> model = DistributionGP(X, X.points.mean((-2, -1)), kernel)
        >>> result = fit_reference(model, steps=2, guard=None, progress=False)
        >>> result.chosen, len(result.mll), tuple(result.path.shape)
        ('final', 3, (3, 3, 2))
    """

    mll: list[float]
    points: Tensor
    weights: Tensor
    chosen: Literal["start", "stopped", "final"]
    path: Tensor
    held_out: dict[int, float]
    widening: float
    effective_rank: float


@torch.inference_mode(False)
@torch.enable_grad()
def fit_reference(
    model: DistributionGP,
    *,
    steps: int = 50,
    guard: int | None = 5,
    starts: int = 1,
    learn_weights: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> ReferenceFit:
    r"""Learn the reference measure of a transport kernel jointly with the hyperparameters, in place.

    The function maximises the log marginal likelihood by L-BFGS. Without a guard this overfits: the
    reference has seen every target, so predictive variances become too small. With a guard, the
    reference is also learned once per fold without the targets of that fold. Let :math:`e_i` and
    :math:`v_i` be the errors and variances of the ``T`` held-out predictions after some number of
    steps. The variances are too small by a factor of about

    .. math::
        w = \max(1, \tfrac{1}{T} \sum_i e_i^2 / v_i),

    the factor that maximises the log density of the held-out targets. The function chooses the number
    of steps, possibly zero, with the highest held-out log density. It takes that many steps with all
    data and multiplies outputscale and noise by :math:`w`; predicted means do not change. The factor
    :math:`w` is 1 unless the kernel is a ``ScaleKernel``, the likelihood is a ``GaussianLikelihood``,
    and both outputscale and noise require a gradient.

    If the model with the first reference explains less than half of the variance of the targets
    (leaving out each cloud in turn), the likelihood is nearly flat in the reference. Learning then
    starts from other hyperparameters, and from up to four references drawn from the training clouds
    until one explains more; the result with the highest likelihood is kept. The model itself changes
    only at the end: if learning is interrupted, it stays as it was.

    Args:
        model: A :class:`DistributionGP` with one output whose kernel has one reference measure.
        steps: Maximum number of L-BFGS steps.
        guard: Number of folds; ``None`` takes all steps without cross-validation.
        starts: Number of references to start from. The first is that of the model; the others are drawn
            from the training clouds. The best is chosen by held-out log density, or by marginal
            likelihood without a guard.
        learn_weights: Whether to learn the weights.
        seed: Random seed for the folds and for drawing references.
        progress: Whether to show a progress bar.

    Returns:
        A :class:`ReferenceFit`, which describes the chosen reference and the steps to it. The model is
        left fitted and in evaluation mode, and its reference does not require a gradient.

    Raises:
        TypeError: If ``model`` is not a :class:`DistributionGP`.
        ValueError: If the kernel does not have exactly one reference measure, or has a
            :class:`ScaledDistance`; the model has several outputs, an input transform or, with a guard,
            a fixed noise for each cloud; or ``steps``, ``guard`` or ``starts`` is out of range.

    Warns:
        ReferenceWarning: If the chosen reference sees the clouds along one direction only.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, ReferenceMeasure
        >>> from gp_distributions import SinkhornKernel, fit_reference
        >>> generator = torch.Generator().manual_seed(0)
        >>> X = PointClouds(torch.rand(20, 5, 2, generator=generator, dtype=torch.float64))
        >>> kernel = SinkhornKernel(ReferenceMeasure.from_data(X, 4, method="ball"))
        >>> model = DistributionGP(X, X.points.mean((-2, -1)), kernel)
        >>> result = fit_reference(model, steps=3, guard=2, progress=False)
        >>> result.mll[-1] > result.mll[0]  # the marginal likelihood of all targets
        True
        >>> steps = len(result.mll) - 1  # those that were best for held-out targets
        >>> steps, result.held_out[steps] > result.held_out[0]
        (3, True)

    Source: Bachoc 2013 (cross-validation for the scale of variances).
    """
    if not isinstance(model, DistributionGP):
        raise TypeError(
            f"Expected a DistributionGP whose kernel has a reference, got {type(model).__name__}."
        )
    reference = reference_of(model)
    if any(isinstance(module, ScaledDistance) for module in model.covar_module.modules()):
        raise ValueError(
            "Expected a reference that is learned before it is scaled, got a kernel with a "
            "ScaledDistance. Learn the reference with a kernel of the distance inside it."
        )
    num_train = model.train_targets.shape[-1]
    if model.train_targets.dim() != 1:
        raise ValueError("Expected a model with one output.")
    if getattr(model, "input_transform", None) is not None:
        raise ValueError(
            "Expected a model without an input_transform. Learn the reference with a model on the "
            "transformed clouds, and pass the kernel of that model to this one."
        )
    if steps < 0 or starts < 1 or (guard is not None and not 2 <= guard <= num_train):
        raise ValueError(
            f"Expected steps >= 0, starts >= 1 and 2 <= guard <= {num_train} (the number of clouds), "
            f"got {steps}, {starts} and {guard}."
        )
    if guard is not None and model.noise_is_known:
        raise ValueError(
            "Expected a noise that all folds share, got one for each cloud. Pass guard=None, or learn "
            "the reference with a model without train_Yvar and pass its kernel to this one."
        )
    learned = ["raw_points"] + ["log_weights"] * learn_weights
    candidates = [copy.deepcopy(reference.state_dict())]
    candidates += [drawn(model, seed + i) for i in range(1, starts)]
    order = torch.randperm(num_train, generator=torch.Generator().manual_seed(seed))
    folds = [] if guard is None else order.tensor_split(guard)
    bar = tqdm(desc="Learning the reference", unit=" steps", disable=not progress)
    learner = Learner(learned, seed + starts, bar.update)
    with bar:
        choice = _Choice(0, steps, 1.0, {})
        if folds:
            choice = _choose(model, candidates, folds, steps, learner)
            candidates = [candidates[choice.start]]
        runs = [learner.learn(restarted(model, each), choice.steps) for each in candidates]
        run = max(runs, key=lambda r: r.trace[-1])
        widening, rank = _widen(run.model, choice.widening), _effective_rank(run.model)
    model.load_state_dict(run.model.state_dict())
    model.eval()
    if rank < 1.1 and reference.size > 1 and reference.dim > 1:
        warn(
            "The features of the training clouds on this reference lie almost on a line (effective rank "
            f"{rank:.2f}): the reference sees the clouds along one direction only, so do not trust the "
            "model. Start from a reference with more atoms, spread over the data: "
            'ReferenceMeasure.from_data(X, method="ball").',
            ReferenceWarning,
        )
    names: dict[int, Literal["start", "final"]] = {0: "start", steps: "final"}
    return ReferenceFit(
        mll=run.trace,
        points=reference.points.detach().clone(),
        weights=reference.weights.detach().clone(),
        chosen=names.get(choice.steps, "stopped"),
        path=torch.stack(run.path),
        held_out=choice.held_out,
        widening=widening,
        effective_rank=rank,
    )


@dataclass(frozen=True)
class _Choice:
    """Result of the cross-validation.

    Attributes:
        start: Index of the chosen starting reference.
        steps: Chosen number of steps.
        widening: Factor by which to multiply the variances.
        held_out: Held-out log densities of the chosen start, by the number of steps.
    """

    start: int
    steps: int
    widening: float
    held_out: dict[int, float]


def _choose(
    model: DistributionGP,
    candidates: Sequence[dict[str, Tensor]],
    folds: Sequence[Tensor],
    steps: int,
    learner: Learner,
) -> _Choice:
    """Choose the starting reference and the number of steps with the highest held-out log density."""
    (rows,), targets = model.train_inputs, model.train_targets
    checkpoints = [0]  # 1, 2, 3, then 1.5 times the previous number of steps
    while checkpoints[-1] < steps:
        checkpoints.append(min(steps, max(checkpoints[-1] + 1, int(checkpoints[-1] * 1.5))))
    choices = []
    for index, candidate in enumerate(candidates):
        runs = []
        for held in folds:
            start = restarted(model, candidate)
            kept = torch.ones(len(targets), dtype=torch.bool)
            kept[held] = False
            start.set_train_data(rows[kept], targets[kept], strict=False)
            runs.append(learner.learn(start, steps))
        widenings, densities = {}, {}
        for step in checkpoints:
            parts = []
            for run, held in zip(runs, folds, strict=True):
                run.model.load_state_dict(run.states[min(step, len(run.states) - 1)])
                parts.append(_errors(run.model, rows[held], targets[held]))
            errors, stds = torch.cat(parts, dim=-1)
            squares = (errors / stds).square()
            widenings[step] = max(1.0, squares.mean().item()) if _can_widen(model) else 1.0
            normal = torch.distributions.Normal(0.0, widenings[step] ** 0.5 * stds)
            densities[step] = normal.log_prob(errors).mean().item()
        best = max(checkpoints, key=densities.__getitem__)
        choices.append(_Choice(index, best, widenings[best], densities))
        _log.info("Start %d: held-out log density by number of steps: %s", index, densities)
    return max(choices, key=lambda choice: choice.held_out[choice.steps])


@torch.no_grad()
def _errors(model: DistributionGP, rows: Tensor, targets: Tensor) -> Tensor:
    """Return prediction errors and standard deviations in the model's units, a ``2 x N`` tensor."""
    mean, variance = model.eval().latent_marginals(rows, model.conditioned())
    stds = (variance + model.noise(rows)).sqrt()
    return torch.stack([targets - mean.squeeze(-1), stds.squeeze(-1)])


def _can_widen(model: DistributionGP) -> bool:
    return (
        isinstance(model.covar_module, ScaleKernel)
        and isinstance(model.likelihood, GaussianLikelihood)
        and model.covar_module.raw_outputscale.requires_grad
        and model.likelihood.raw_noise.requires_grad
    )


def _widen(model: DistributionGP, factor: float) -> float:
    """Multiply predictive variances by the largest valid factor up to ``factor``, and return it."""
    if factor <= 1:
        return 1.0
    scale, noise = model.covar_module, model.likelihood.noise_covar
    room = (
        (scale.raw_outputscale_constraint.upper_bound / scale.outputscale).min().item(),
        (noise.raw_noise_constraint.upper_bound / noise.noise).min().item(),
    )
    factor = max(1.0, min(factor, 0.999 * min(room)))  # strictly below the bounds
    scale.outputscale = factor * scale.outputscale.detach()
    noise.noise = factor * noise.noise.detach()
    return factor


def _effective_rank(model: DistributionGP) -> float:
    """Compute the participation ratio of the principal variances of the training clouds' features."""
    distances = [m for m in model.covar_module.modules() if isinstance(m, TransportDistance)]
    with torch.no_grad():
        features = distances[0].embed(rows_seen(model))
        variances = torch.linalg.svdvals(features - features.mean(-2, keepdim=True)).square()
    total = variances.sum()
    return float(total.square() / variances.square().sum()) if bool(total > 0) else 0.0
