"""Learning a reference from where it is: L-BFGS steps on the marginal likelihood."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim.closures.model_closures import get_loss_closure_with_grads
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from gp_distributions.distances.transport import TransportDistance
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.starts import give_signal
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure
from gp_distributions.models.distribution_gp import DistributionGP

# A model that explains less than this share of the variance of left-out targets sees nothing in the
# clouds. Learning from there is tried again from so many references drawn from the training clouds.
_USELESS, _RETRIES = 0.5, 4
# How far the logarithms of weights may go beyond where they start: a factor of 10^4.
_WEIGHTLESS = 9.2


@dataclass(frozen=True)
class Run:
    """Where learning led: log likelihoods and atoms on the way, and what was seen after steps."""

    model: DistributionGP
    trace: list[float]
    path: list[Tensor]
    seen: dict[int, Tensor]


def learn(
    model: DistributionGP,
    *,
    learned: Sequence[str],
    steps: int,
    seed: int,
    bar: Any,
    observe: Callable[[DistributionGP], Tensor] | None = None,
) -> Run:
    """Fit the hyperparameters, then them and the reference, from where that can lead to something."""
    fit(model)
    before = {} if observe is None else {0: observe(model)}
    if not steps or _explained(model) >= _USELESS:
        runs = [_ascend(model, learned, steps, bar, observe)]
    else:
        runs = []
        for retry in range(1 + _RETRIES * ("raw_points" in learned)):
            candidate = drawn(model, seed + retry) if retry else reference_of(model).state_dict()
            start = restarted(model, candidate)
            give_signal(start)
            bar.total += steps * (retry > 0)
            runs.append(_ascend(start, learned, steps, bar, observe))
            if _explained(runs[-1].model) >= _USELESS:
                break
    best = max(runs, key=lambda run: run.trace[-1])
    return replace(best, seen=best.seen | before)


def _explained(model: DistributionGP) -> float:
    """The share of the variance of the targets that is predicted with each left out in turn."""
    model.train()
    with torch.no_grad():
        marginal = model.likelihood(model(*model.train_inputs))
        inverse = torch.cholesky_inverse(psd_safe_cholesky(marginal.covariance_matrix))
        errors = inverse @ (model.train_targets - marginal.mean) / inverse.diagonal()
    return 1 - float(errors.square().mean() / model.train_targets.var(correction=0))


def _ascend(
    model: DistributionGP,
    learned: Sequence[str],
    steps: int,
    bar: Any,
    observe: Callable[[DistributionGP], Tensor] | None,
) -> Run:
    """Some L-BFGS steps on hyperparameters and reference."""
    reference = reference_of(model)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    with torch.no_grad():
        trace = [mll(model(*model.train_inputs), model.train_targets).item()]
    path = [reference.points.detach().clone()]
    seen: dict[int, Tensor] = {}
    checkpoints = set(checkpoints_of(steps))

    def callback(parameters: dict[str, Tensor], result: Any) -> None:
        bar.update()
        trace.append(-float(result.fval))
        path.append(reference.points.detach().clone())
        if observe is not None and result.step in checkpoints:
            seen[result.step] = observe(model)

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
                    closure=_remembering(mll),
                    callback=callback,
                    options={"maxiter": steps},
                )
        finally:
            reference.requires_grad_(False)
    bar.update(steps + 1 - len(trace))
    return Run(model, trace, path, seen)


def _remembering(
    mll: ExactMarginalLogLikelihood,
) -> Callable[[], tuple[Tensor, Sequence[Tensor | None]]]:
    """The loss and its gradient, not computed again where they were last: callbacks ask for that."""
    parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
    compute = get_loss_closure_with_grads(mll, parameters)
    known: list[Tensor] = []
    last: tuple[Tensor, Sequence[Tensor | None]]

    def closure() -> tuple[Tensor, Sequence[Tensor | None]]:
        nonlocal known, last
        here = [parameter.detach().clone() for parameter in parameters.values()]
        if not known or not all(map(torch.equal, here, known)):
            last, known = compute(), here
        return last

    return closure


def _bounds(
    mll: ExactMarginalLogLikelihood, model: DistributionGP, reference: ReferenceMeasure
) -> dict[str, tuple[float, float]]:
    """A box for the atoms, twice as wide as what data and reference fill, and one for the weights.

    Far away all clouds look alike but for their means, and entropic transport is ill-conditioned. An
    atom that weighs nothing is not seen, and its logarithm falls without end.
    """
    clouds = PointClouds.unpack(rows_seen(model), reference.dim)
    atoms = clouds.points[clouds.weights > 0].to(reference.raw_points)
    data = (atoms - reference.centre) / reference.scale
    limit = 2 * max(data.abs().max().item(), reference.raw_points.detach().abs().max().item())
    weights = reference.log_weights.detach()
    boxes = {
        reference.raw_points: (-limit, limit),
        reference.log_weights: (
            weights.min().item() - _WEIGHTLESS,
            weights.max().item() + _WEIGHTLESS,
        ),
    }
    return {name: boxes[p] for name, p in mll.named_parameters() if p in boxes}


def reference_of(model: DistributionGP) -> ReferenceMeasure:
    """The one reference of a model's kernel."""
    found = [m for m in model.covar_module.modules() if isinstance(m, ReferenceMeasure)]
    if len(found) != 1:
        raise ValueError(f"Expected a kernel with one reference measure, got {len(found)}.")
    return found[0]


def rows_seen(model: DistributionGP) -> Tensor:
    """The training rows as the distance with the reference reads them."""
    (rows,) = model.train_inputs
    columns = next(
        columns
        for kernel, columns in distribution_kernels(model.covar_module)
        if isinstance(kernel.distance, TransportDistance)
    )
    return rows.detach() if columns is None else rows.detach().index_select(-1, columns)


def drawn(model: DistributionGP, seed: int) -> dict[str, Tensor]:
    """A reference of atoms drawn from the training clouds, with the weights of that of the model."""
    reference = reference_of(model)
    clouds = PointClouds.unpack(rows_seen(model), reference.dim)
    atoms = ReferenceMeasure.from_data(clouds, reference.size, method="sample", seed=seed)
    state = atoms.to(reference.raw_points).state_dict()
    return {**state, "log_weights": reference.log_weights.detach().clone()}


def restarted(model: DistributionGP, candidate: dict[str, Tensor]) -> DistributionGP:
    """A copy of a model with another reference."""
    run = copy.deepcopy(model)
    reference_of(run).load_state_dict(candidate)
    return run


def checkpoints_of(steps: int) -> Iterator[int]:
    """The numbers of steps to choose from: all small ones, then each half as large again."""
    yield 0
    step = 1
    while step < steps:
        yield step
        step = max(step + 1, int(step * 1.5))
    if steps:
        yield steps
