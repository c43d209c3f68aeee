"""Learning the reference measure by marginal likelihood, guarded by cross-validation."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances.transport import TransportDistance, warm_starts
from gp_distributions.fitting.reference_ascent import (
    Run,
    checkpoints_of,
    drawn,
    learn,
    reference_of,
    restarted,
    rows_seen,
)
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import ReferenceWarning

_log = logging.getLogger(__name__)

# Widened variances stay below their bounds by this factor.
_WITHIN = 0.999
# A reference that sees clouds in fewer directions than this sees little of them.
_COLLINEAR = 1.1


@dataclass(frozen=True)
class ReferenceFit:
    """What :func:`fit_reference` did.

    Attributes:
        mll: The log marginal likelihood per cloud, priors included, where learning starts and after
            each step; it never falls.
        points: The ``m x d`` atoms of the chosen reference.
        weights: Its ``m`` weights.
        chosen: ``"start"``, ``"stopped"`` early or ``"final"``, by held-out log density; always
            ``"final"`` without a guard.
        path: The ``steps + 1 x m x d`` atoms along the way.
        held_out: For each number of steps tried, the mean log density of held-out targets in
            standardised units, with variances widened as described; empty without a guard.
        widening: What variances were multiplied by after the last step; 1 without a guard.
        effective_rank: Of the features of the training clouds on the chosen reference.
    """

    mll: list[float]
    points: Tensor
    weights: Tensor
    chosen: Literal["start", "stopped", "final"]
    path: Tensor
    held_out: dict[int, float]
    widening: float
    effective_rank: float


def fit_reference(
    model: DistributionGP,
    *,
    steps: int = 50,
    guard: int | None = 5,
    starts: int = 1,
    learn_points: bool = True,
    learn_weights: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> ReferenceFit:
    r"""Learn the reference of a transport kernel, jointly with the hyperparameters, in place.

    Maximises the log marginal likelihood by L-BFGS. Unguarded that overfits, the variances first:
    the reference has seen every target. The guard therefore learns the reference in each of
    ``guard`` folds without the fold. With errors :math:`e_i` and variances :math:`v_i` of held-out
    targets after some number of steps, the variances are too small by about

    .. math::
        w = \max(1, \tfrac{1}{T} \sum_i e_i^2 / v_i),

    the factor that gives these targets the highest log density. The number of steps with the highest
    is then taken with all data, and outputscale and noise are multiplied by its ``w``, which leaves
    predicted means as they are. Zero steps, the reference as it was, is one of the choices. Other
    kernels than a ``ScaleKernel``, other likelihoods than Gaussian ones, and those whose outputscale or
    noise requires no gradient keep ``w = 1``.

    Where the fit on the first reference does not explain the targets (leaving out each cloud in turn,
    less than half of their variance), the likelihood is nearly flat in the reference. Learning then
    starts from other hyperparameters, and as long as it does not end better, again from up to four
    references drawn from the training clouds; the likeliest is kept.

    Args:
        model: A :class:`DistributionGP` with one output whose kernel has one reference.
        steps: The largest number of L-BFGS steps.
        guard: The number of folds; ``None``: no guard, all steps are taken.
        starts: How many references to start from; those after the first are drawn from the training
            clouds. The best is chosen by held-out log density, or, without a guard, by marginal
            likelihood.
        learn_points: Whether the atoms move.
        learn_weights: Whether the weights change.
        seed: Of the folds and of further starts.
        progress: Whether to show a progress bar.

    Returns:
        The trace, the reference and how it was chosen. The model is left fitted, in evaluation mode;
        its reference requires no gradient.

    Raises:
        TypeError: If it is no :class:`DistributionGP`.
        ValueError: If the model has no reference, several, several outputs or an input transform, with a
            guard also a noise for each cloud, or if a number is out of range.

    Warns:
        ReferenceWarning: If the chosen reference sees the clouds along one direction only.

    Source: Bachoc 2013 (cross-validation for the scale of variances).
    """
    if not isinstance(model, DistributionGP):
        raise TypeError(
            f"Expected a DistributionGP whose kernel has a reference, got {type(model).__name__}."
        )
    reference = reference_of(model)
    num_train = model.train_targets.shape[-1]
    if model.train_targets.dim() != 1:
        raise ValueError("Expected a model with one output.")
    if getattr(model, "input_transform", None) is not None:
        raise ValueError(
            "Expected a model on rows, without input_transform. Learn the reference with a model of the "
            "clouds that the transform makes, and give the kernel of that."
        )
    if steps < 0 or starts < 1 or (guard is not None and not 2 <= guard <= num_train):
        raise ValueError(
            f"Expected steps >= 0, starts >= 1 and 2 <= guard <= {num_train}, got {steps}, {starts} "
            f"and {guard}."
        )
    if guard is not None and isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        raise ValueError(
            "Expected a noise that folds can share, got one for each cloud. Learn the reference with a "
            "model of another likelihood and give its kernel, or give guard=None."
        )
    learned = [
        name
        for name, wanted in (("raw_points", learn_points), ("log_weights", learn_weights))
        if wanted
    ]
    candidates = [copy.deepcopy(reference.state_dict())]
    candidates += [drawn(model, seed + i) for i in range(1, starts)]
    folds = [] if guard is None else _folds(num_train, guard, seed)

    bar = tqdm(
        total=len(candidates) * (len(folds) + 1) * steps,
        desc="Learning the reference",
        disable=not progress,
    )
    ascend = partial(learn, learned=learned, seed=seed + starts, bar=bar)
    with bar, warm_starts():
        choice, widening = None, 1.0
        if folds:
            choice = _choose(model, candidates, folds, steps, ascend)
            candidates, number = [candidates[choice.start]], choice.steps
        else:
            number = steps
        runs = [ascend(restarted(model, candidate), steps=number) for candidate in candidates]
        run = max(runs, key=lambda r: r.trace[-1])
        model.load_state_dict(run.model.state_dict())
        if choice is not None:
            widening = _widen(model, choice.widening)
    model.eval()
    rank = _effective_rank(model)
    if rank < _COLLINEAR and reference.size > 1 and reference.dim > 1:
        warnings.warn(
            f"On this reference the features of the training clouds lie almost on a line (effective "
            f"rank {rank:.2f}): it sees the clouds along one direction only, so do not trust the "
            "model beyond it. Start from another reference, with more atoms and spread over the "
            'data: ReferenceMeasure.from_data(X, method="ball").',
            ReferenceWarning,
            stacklevel=2,
        )
    kind: Literal["start", "stopped", "final"] = "stopped"
    if guard is None or number == steps:
        kind = "final"
    elif number == 0:
        kind = "start"
    return ReferenceFit(
        mll=run.trace,
        points=reference.points.detach().clone(),
        weights=reference.weights.detach().clone(),
        chosen=kind,
        path=torch.stack(run.path),
        held_out={} if choice is None else choice.held_out,
        widening=widening,
        effective_rank=rank,
    )


def _folds(num_train: int, folds: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randperm(num_train, generator=generator).tensor_split(folds))


@dataclass(frozen=True)
class _Choice:
    """The index of a start, a number of steps, and what held-out targets say of them."""

    start: int
    steps: int
    widening: float
    held_out: dict[int, float]


def _choose(
    model: DistributionGP,
    candidates: Sequence[dict[str, Tensor]],
    folds: Sequence[Tensor],
    steps: int,
    ascend: Callable[..., Run],
) -> _Choice:
    """The start and the number of steps of the highest held-out log density."""
    (rows,), targets = model.train_inputs, model.train_targets
    checkpoints = list(checkpoints_of(steps))
    choices = []
    for index, candidate in enumerate(candidates):
        held_out: dict[int, list[Tensor]] = {step: [] for step in checkpoints}
        for held in folds:
            run = restarted(model, candidate)
            kept = torch.ones(len(targets), dtype=torch.bool)
            kept[held] = False
            run.set_train_data(rows[kept], targets[kept], strict=False)
            observe = partial(_errors, rows=rows[held], targets=targets[held])
            seen = ascend(run, steps=steps, observe=observe).seen
            # A run that converged before a checkpoint stays where it is.
            for step in checkpoints:
                held_out[step].append(seen[max(s for s in seen if s <= step)])
        widenings, densities = {}, {}
        for step, parts in held_out.items():
            errors, stds = torch.cat(parts, dim=-1)
            squares = (errors / stds).square()
            widenings[step] = max(1.0, squares.mean().item()) if _can_widen(model) else 1.0
            variances = widenings[step] * stds.square()
            log_densities = -0.5 * ((2 * torch.pi * variances).log() + squares / widenings[step])
            densities[step] = log_densities.mean().item()
        best = max(checkpoints, key=densities.__getitem__)
        choices.append(_Choice(index, best, widenings[best], densities))
        _log.info("start %d: held-out log density by number of steps %s", index, densities)
    return max(choices, key=lambda choice: choice.held_out[choice.steps])


def _errors(model: DistributionGP, rows: Tensor, targets: Tensor) -> Tensor:
    """Errors of predictions and their standard deviations in the model's units, ``2 x N``."""
    training = model.training
    model.eval()
    with torch.no_grad():
        marginal = model.likelihood(model(rows.unsqueeze(-2)))
        errors = targets - marginal.mean.squeeze(-1)
        stds = marginal.variance.sqrt().squeeze(-1)
    model.train(training)
    return torch.stack([errors, stds])


def _can_widen(model: DistributionGP) -> bool:
    return (
        isinstance(model.covar_module, ScaleKernel)
        and isinstance(model.likelihood, GaussianLikelihood)
        and model.covar_module.raw_outputscale.requires_grad
        and model.likelihood.raw_noise.requires_grad
    )


def _widen(model: DistributionGP, factor: float) -> float:
    """Multiply all predictive variances, as far as constraints allow; the means stay."""
    if factor <= 1:
        return 1.0
    scale, noise = model.covar_module, model.likelihood.noise_covar
    room = (
        (scale.raw_outputscale_constraint.upper_bound / scale.outputscale).min().item(),
        (noise.raw_noise_constraint.upper_bound / noise.noise).min().item(),
    )
    factor = max(1.0, min(factor, _WITHIN * min(room)))
    scale.outputscale = factor * scale.outputscale.detach()
    noise.noise = factor * noise.noise.detach()
    return factor


def _effective_rank(model: DistributionGP) -> float:
    """The participation ratio of the principal variances of the training clouds' features."""
    distances = [m for m in model.covar_module.modules() if isinstance(m, TransportDistance)]
    with torch.no_grad():
        features = distances[0].embed(rows_seen(model))
        variances = torch.linalg.svdvals(features - features.mean(-2, keepdim=True)).square()
    total = variances.sum()
    return float(total.square() / variances.square().sum()) if bool(total > 0) else 0.0
