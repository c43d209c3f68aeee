"""Learning the reference measure by marginal likelihood, guarded by cross-validation."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances.transport import TransportDistance
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure
from gp_distributions.models._exact import exact_computations, jitter_explained
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.fit import fit, start_at_medians
from gp_distributions.warnings import ReferenceWarning

_log = logging.getLogger(__name__)

# A model whose noise is more than this share of the variance of the targets has no use of clouds.
_NOISY = 0.3
# A reference that sees clouds in fewer directions than this sees little of them.
_COLLINEAR = 1.1


@dataclass(frozen=True)
class ReferenceFit:
    """What :func:`fit_reference` did.

    Attributes:
        mll: The log marginal likelihood per cloud, priors included, where learning starts and after
            each step; it never falls. Where the fit on the first reference explained the targets by
            noise, learning starts from other hyperparameters than that fit's.
        points: The ``m x d`` atoms of the chosen reference.
        weights: Its ``m`` weights.
        chosen: ``"start"``, ``"stopped"`` early or ``"final"``, by held-out log density; always
            ``"final"`` without a guard.
        path: The ``steps + 1 x m x d`` atoms along the way.
        held_out: For each number of steps tried, the mean log density of held-out targets in
            standardised units; empty without a guard.
        effective_rank: Of the features of the training clouds on the chosen reference.
    """

    mll: list[float]
    points: Tensor
    weights: Tensor
    chosen: Literal["start", "stopped", "final"]
    path: Tensor
    held_out: dict[int, float]
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

    Maximises the log marginal likelihood by L-BFGS. Unguarded that overfits: the reference has seen
    every target. The guard therefore chooses the number of steps: in each of ``guard`` folds the
    reference is learned without the fold, and the number of steps whose models give the held-out
    targets the highest log density is then taken with all data. Zero steps, the reference as it
    was, is one of the choices.

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
        ValueError: If the model has no reference, several, or several outputs, or a number is out of
            range.

    Warns:
        ReferenceWarning: If the chosen reference sees the clouds along one direction only.
    """
    reference = _reference(model)
    num_train = model.train_targets.shape[-1]
    if model.train_targets.dim() != 1:
        raise ValueError("Expected a model with one output.")
    if steps < 0 or starts < 1 or (guard is not None and not 2 <= guard <= num_train):
        raise ValueError(
            f"Expected steps >= 0, starts >= 1 and 2 <= guard <= {num_train}, got {steps}, {starts} "
            f"and {guard}."
        )
    learned = [
        name
        for name, wanted in (("raw_points", learn_points), ("log_weights", learn_weights))
        if wanted
    ]
    candidates = [copy.deepcopy(reference.state_dict())]
    candidates += [_drawn(model, reference, seed + i) for i in range(1, starts)]
    folds = [] if guard is None else _folds(num_train, guard, seed)

    bar = tqdm(
        total=len(candidates) * (len(folds) + 1) * steps,
        desc="Learning the reference",
        disable=not progress,
    )
    with bar, exact_computations(), jitter_explained():
        start, number = 0, steps
        held_out: dict[int, float] = {}
        if folds:
            start, number, held_out = _choose(model, candidates, folds, learned, steps, bar)
        tried = [start] if folds else range(len(candidates))
        runs = []
        for index in tried:
            run = copy.deepcopy(model)
            _reference(run).load_state_dict(candidates[index])
            fit(run)
            runs.append((run, *_ascend(run, learned, number, bar)))
        run, trace, path = max(runs, key=lambda r: r[1][-1])
        model.load_state_dict(run.state_dict())
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
        mll=trace,
        points=reference.points.detach().clone(),
        weights=reference.weights.detach().clone(),
        chosen=kind,
        path=torch.stack(path),
        held_out=held_out,
        effective_rank=rank,
    )


def _reference(model: DistributionGP) -> ReferenceMeasure:
    found = [m for m in model.covar_module.modules() if isinstance(m, ReferenceMeasure)]
    if len(found) != 1:
        raise ValueError(f"Expected a kernel with one reference measure, got {len(found)}.")
    return found[0]


def _drawn(model: DistributionGP, reference: ReferenceMeasure, seed: int) -> dict[str, Tensor]:
    clouds = PointClouds.unpack(model.train_inputs[0].detach(), reference.dim)
    drawn = ReferenceMeasure.from_data(clouds, reference.size, method="sample", seed=seed)
    return drawn.to(reference.raw_points).state_dict()


def _folds(num_train: int, folds: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randperm(num_train, generator=generator).tensor_split(folds))


def _choose(
    model: DistributionGP,
    candidates: Sequence[dict[str, Tensor]],
    folds: Sequence[Tensor],
    learned: Sequence[str],
    steps: int,
    bar: Any,
) -> tuple[int, int, dict[int, float]]:
    """The start and the number of steps of the highest held-out log density."""
    checkpoints = list(_checkpoints(steps))
    scores = torch.zeros(len(candidates), len(checkpoints), dtype=torch.float64)
    for i, candidate in enumerate(candidates):
        for held in folds:
            run = copy.deepcopy(model)
            _reference(run).load_state_dict(candidate)
            (rows,), targets = run.train_inputs, run.train_targets
            kept = torch.ones(len(targets), dtype=torch.bool)
            kept[held] = False
            run.set_train_data(rows[kept], targets[kept], strict=False)
            fit(run)
            at: dict[int, float] = {}

            def record(
                step: int,
                run: DistributionGP = run,
                at: dict[int, float] = at,
                rows: Tensor = rows[held],
                targets: Tensor = targets[held],
            ) -> None:
                if step in checkpoints:
                    at[step] = _log_density(run, rows, targets)

            _ascend(run, learned, steps, bar, record)
            # A run that converged before a checkpoint stays where it is.
            value = at[0]
            for j, step in enumerate(checkpoints):
                value = at.get(step, value)
                scores[i, j] += value * len(held)
    scores /= sum(map(len, folds))
    best = int(scores.argmax())
    start, column = divmod(best, len(checkpoints))
    _log.info("held-out log density by start and steps %s: %s", checkpoints, scores.tolist())
    return start, checkpoints[column], dict(zip(checkpoints, scores[start].tolist(), strict=True))


def _checkpoints(steps: int) -> Iterator[int]:
    yield 0
    step = 1
    while step < steps:
        yield step
        step = max(step + 1, int(step * 1.5))
    if steps:
        yield steps


def _log_density(model: DistributionGP, rows: Tensor, targets: Tensor) -> float:
    """The mean log density of targets, in the model's units, one by one."""
    training = model.training
    model.eval()
    with torch.no_grad():
        marginal = model.likelihood(model(rows.unsqueeze(-2)))
        normal = torch.distributions.Normal(marginal.mean, marginal.variance.sqrt())
        density = normal.log_prob(targets.unsqueeze(-1)).mean().item()
    model.train(training)
    return density


def _ascend(
    model: DistributionGP,
    learned: Sequence[str],
    steps: int,
    bar: Any,
    record: Callable[[int], None] | None = None,
) -> tuple[list[float], list[Tensor]]:
    """Some L-BFGS steps on hyperparameters and reference: log likelihoods and atoms on the way."""
    reference = _reference(model)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    if record is not None:
        record(0)
    if steps:
        _leave_noise(model)
    with torch.no_grad():
        trace = [mll(model(*model.train_inputs), model.train_targets).item()]
    path = [reference.points.detach().clone()]
    done = 0

    def callback(parameters: dict[str, Tensor], result: Any) -> None:
        nonlocal done
        done += 1
        bar.update()
        trace.append(-float(result.fval))
        path.append(reference.points.detach().clone())
        if record is not None:
            record(done)

    if steps:
        for name in learned:
            getattr(reference, name).requires_grad_()
        try:
            with warnings.catch_warnings():
                # Running out of steps is what they are for.
                warnings.simplefilter("ignore", OptimizationWarning)
                fit_gpytorch_mll_scipy(
                    mll,
                    bounds=_bounds(mll, model, reference),
                    callback=callback,
                    options={"maxiter": steps},
                )
        finally:
            reference.requires_grad_(False)
    bar.update(steps - done)
    return trace, path


def _leave_noise(model: DistributionGP) -> None:
    """Where the fit on the first reference explains the targets by noise, start from a signal.

    At such hyperparameters the likelihood hardly depends on the reference.
    """
    variance = model.train_targets.var()
    if isinstance(model.likelihood, GaussianLikelihood) and bool(
        model.likelihood.noise.mean() > _NOISY * variance
    ):
        start_at_medians(model)
        model.likelihood.noise = 0.01 * variance
        for kernel in model.covar_module.modules():
            if isinstance(kernel, ScaleKernel):
                kernel.outputscale = variance


def _bounds(
    mll: ExactMarginalLogLikelihood, model: DistributionGP, reference: ReferenceMeasure
) -> dict[str, tuple[float, float]]:
    """A box for the atoms, twice as wide as what data and reference fill.

    Far away all clouds look alike but for their means, and entropic transport is ill-conditioned.
    """
    clouds = PointClouds.unpack(model.train_inputs[0].detach(), reference.dim)
    atoms = clouds.points[clouds.weights > 0].to(reference.raw_points)
    data = (atoms - reference.centre) / reference.scale
    limit = 2 * max(data.abs().max().item(), reference.raw_points.detach().abs().max().item())
    return {
        name: (-limit, limit)
        for name, parameter in mll.named_parameters()
        if parameter is reference.raw_points
    }


def _effective_rank(model: DistributionGP) -> float:
    """The participation ratio of the principal variances of the training clouds' features."""
    distances = [m for m in model.covar_module.modules() if isinstance(m, TransportDistance)]
    with torch.no_grad():
        features = distances[0].embed(model.train_inputs[0])
        variances = torch.linalg.svdvals(features - features.mean(-2, keepdim=True)).square()
    total = variances.sum()
    return float(total.square() / variances.square().sum()) if bool(total > 0) else 0.0
