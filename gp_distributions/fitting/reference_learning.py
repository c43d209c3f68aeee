"""Learning of a reference measure by marginal likelihood, guarded by cross-validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from botorch.optim.utils import get_parameters_and_bounds
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.distances.transport import TransportDistance
from gp_distributions.fitting.ascent import objective
from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.starts import give_signal
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import ReferenceWarning, warn

# A model that explains less than the share _USELESS of the variance of left-out targets has found no
# signal. Learning is then repeated from up to _RETRIES references drawn from the training clouds.
_USELESS, _RETRIES = 0.5, 4
# Log weights may leave the range of their initial values by this much: a factor of 10^4 in weight.
_WEIGHTLESS = 9.2


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
    if any(
        isinstance(part, ScaledDistance) and part.learn for part in model.covar_module.modules()
    ):
        raise ValueError(
            "Expected a reference that is learned before it is scaled, got a kernel with a "
            "ScaledDistance. Learn the reference with a kernel of the distance inside it."
        )
    num_train = model.train_targets.shape[-1]
    if model.train_targets.dim() != 1:
        raise ValueError("Expected a model with one output.")
    if model._input_transform is not None:
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
        choice = _Choice(candidates[0], steps, 1.0, {})
        if folds:
            choice = _choose(model, candidates, folds, steps, learner)
            candidates = [choice.start]
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
        start: State dict of the chosen starting reference.
        steps: Chosen number of steps.
        widening: Factor by which to multiply the variances.
        held_out: Held-out log densities of the chosen start, by the number of steps.
    """

    start: dict[str, Tensor]
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
    widens = (
        isinstance(model.covar_module, ScaleKernel)
        and isinstance(model.likelihood, GaussianLikelihood)
        and model.covar_module.raw_outputscale.requires_grad
        and model.likelihood.raw_noise.requires_grad
    )
    checkpoints = [0]  # 1, 2, 3, then 1.5 times the previous number of steps
    while checkpoints[-1] < steps:
        checkpoints.append(min(steps, max(checkpoints[-1] + 1, int(checkpoints[-1] * 1.5))))
    choices = []
    for candidate in candidates:
        runs = []
        for held in folds:
            start = restarted(model, candidate)
            kept = torch.ones(len(targets), dtype=torch.bool)
            kept[held] = False
            start.set_train_data(rows[kept], targets[kept], strict=False)
            runs.append(learner.learn(start, steps))
        widenings, densities = {}, {}
        for step in checkpoints:
            found = []
            for run, held in zip(runs, folds, strict=True):
                part = run.model.eval()
                part.load_state_dict(run.states[min(step, len(run.states) - 1)])
                with torch.no_grad():
                    mean, variance = part.latent_marginals(
                        EmbeddedRows(rows[held]), part.conditioned()
                    )
                    noisy = variance + part.noise(EmbeddedRows(rows[held]))
                found.append(torch.cat([targets[held, None] - mean, noisy.sqrt()], dim=-1))
            errors, stds = torch.cat(found).unbind(-1)
            squares = (errors / stds).square()
            widenings[step] = max(1.0, squares.mean().item()) if widens else 1.0
            normal = torch.distributions.Normal(0.0, widenings[step] ** 0.5 * stds)
            densities[step] = normal.log_prob(errors).mean().item()
        best = max(checkpoints, key=densities.__getitem__)
        choices.append(_Choice(candidate, best, widenings[best], densities))
    return max(choices, key=lambda choice: choice.held_out[choice.steps])


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


@dataclass(frozen=True)
class Run:
    """Result of :meth:`Learner.learn`.

    Attributes:
        model: The model after learning.
        trace: The log marginal likelihood per cloud at the start and after each step.
        path: The atoms of the reference at the start and after each step.
        states: The state dict of the model whose hyperparameters alone were fitted, and after each step.
    """

    model: DistributionGP
    trace: list[float]
    path: list[Tensor]
    states: list[dict[str, Tensor]]


@dataclass(frozen=True, eq=False)
class Learner:
    """Maximisation over hyperparameters and reference.

    Args:
        learned: Names of the parameters of the reference to learn.
        seed: Random seed for drawing references.
        tick: Function that is called at each step.
        warm_starts: Potentials of earlier runs, from which transport starts.
    """

    learned: Sequence[str]
    seed: int
    tick: Callable[[], object]
    warm_starts: dict[Hashable, Tensor] = field(default_factory=dict)

    def learn(self, model: DistributionGP, steps: int) -> Run:
        """Fit the hyperparameters, then fit them and the reference jointly.

        If the fitted hyperparameters explain too little of the variance of the targets, the joint fit
        starts from hyperparameters that explain most of it as signal. It is then repeated from other
        references until one run explains enough.

        Args:
            model: The model, which is fitted in place. Runs from other starts use copies.
            steps: Maximum number of L-BFGS steps.

        Returns:
            The run with the highest likelihood.
        """
        fit(model, progress=False)
        fitted = copy.deepcopy(model.state_dict())
        if not steps or _explained(model) >= _USELESS:
            runs = [self._ascend(model, steps)]
        else:
            runs = []
            candidate = reference_of(model).state_dict()
            for retry in range(1 + _RETRIES):
                start = restarted(model, candidate)
                give_signal(start)
                runs.append(self._ascend(start, steps))
                if _explained(runs[-1].model) >= _USELESS:
                    break
                candidate = drawn(model, self.seed + retry + 1)
        best = max(runs, key=lambda run: run.trace[-1])
        return replace(best, states=[fitted, *best.states])

    def _ascend(self, model: DistributionGP, steps: int) -> Run:
        """Take up to ``steps`` L-BFGS steps on the hyperparameters and the reference, in place."""
        reference, mll = reference_of(model), objective(model.train())
        (rows,), targets = model.train_inputs, model.train_targets

        def loss() -> Tensor:
            return -mll(model(rows), targets)

        with torch.no_grad():
            trace = [-loss().item()]
        path = [reference.points.detach().clone()]
        states: list[dict[str, Tensor]] = []

        def callback(loss: float) -> None:
            self.tick()
            trace.append(-loss)
            path.append(reference.points.detach().clone())
            states.append(copy.deepcopy(model.state_dict()))

        for name in self.learned:
            getattr(reference, name).requires_grad_()
        for module in model.modules():
            if isinstance(module, TransportDistance):
                module.warm_starts = self.warm_starts
        parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
        bounds |= _bounds(mll, model, reference)
        if steps:
            minimise(loss, parameters, bounds, callback=callback, maxiter=steps)
        return Run(model, trace, path, states)


@torch.no_grad()
def _explained(model: DistributionGP) -> float:
    """Compute the share of the variance of the targets that leave-one-out predictions explain."""
    errors = model.train_targets - model.eval().latent_left_out()[0].squeeze(-1)
    return 1 - float(errors.square().mean() / model.train_targets.var(correction=0))


def _bounds(
    mll: ExactMarginalLogLikelihood, model: DistributionGP, reference: ReferenceMeasure
) -> dict[str, tuple[float, float]]:
    """Return bounds of the atoms, twice as wide as the data and the reference, and of the log weights.

    Far from the data, entropic transport is ill-conditioned and sees only the means of clouds. Without
    bounds, the log weight of an atom that lowers the likelihood would decrease for ever.
    """
    clouds = PointClouds.unpack(rows_seen(model), reference.dim)
    atoms = clouds.points[clouds.weights > 0].to(reference.raw_points)
    data = (atoms - reference.centre) / reference.scale
    limit = 2 * max(data.abs().max().item(), reference.raw_points.detach().abs().max().item())
    lowest, highest = (bound.item() for bound in reference.log_weights.detach().aminmax())
    boxes = {
        reference.raw_points: (-limit, limit),
        reference.log_weights: (lowest - _WEIGHTLESS, highest + _WEIGHTLESS),
    }
    return {name: boxes[p] for name, p in mll.named_parameters() if p in boxes}


def reference_of(model: DistributionGP) -> ReferenceMeasure:
    """Returns the reference measure of a model's kernel.

    Raises:
        ValueError: If the kernel does not have exactly one reference measure.
    """
    found = [m for m in model.covar_module.modules() if isinstance(m, ReferenceMeasure)]
    if len(found) != 1:
        raise ValueError(f"Expected a kernel with one reference measure, got {len(found)}.")
    return found[0]


def rows_seen(model: DistributionGP) -> Tensor:
    """Returns those columns of the training rows that the distance to the reference measure reads."""
    (rows,) = model.train_inputs
    block = next(
        block
        for kernel, block in distribution_kernels(model.covar_module)
        if isinstance(kernel.distance, TransportDistance)
    )
    return block.select(rows.detach())


def drawn(model: DistributionGP, seed: int) -> dict[str, Tensor]:
    """Draws new atoms for the reference from the training clouds and keeps its weights.

    The model itself is not changed.

    Returns:
        The state dict of the new reference measure.
    """
    reference = reference_of(model)
    clouds = PointClouds.unpack(rows_seen(model), reference.dim)
    atoms = ReferenceMeasure.from_data(clouds, reference.size, method="sample", seed=seed)
    state = atoms.to(reference.raw_points).state_dict()
    return {**state, "log_weights": reference.log_weights.detach().clone()}


def restarted(model: DistributionGP, candidate: dict[str, Tensor]) -> DistributionGP:
    """Returns a copy of a model with the reference measure of the state dict ``candidate``."""
    run = copy.deepcopy(model)
    reference_of(run).load_state_dict(candidate)
    return run
