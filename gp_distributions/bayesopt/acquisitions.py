"""Which of BoTorch's acquisition functions a search uses unless it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.factory import get_acquisition_function
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import LinearMCObjective
from botorch.models.model import Model
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

_SAMPLES = 128


@dataclass(frozen=True, eq=False)
class Observations:
    """What an acquisition function is made from.

    Args:
        X: The inputs of the model that were evaluated, a ``T x width`` tensor.
        Y: Their outcomes, a ``T x outcomes`` tensor: objectives, to be maximised, and then constraints,
            which hold where they are at most zero.
        objectives: The number of objectives.
        X_pending: Inputs that wait for their outcomes, or have failed; ``None`` if there are none.
        q: The number of candidates that are asked for.
        seed: Of what is random.
    """

    X: Tensor
    Y: Tensor
    objectives: int
    X_pending: Tensor | None
    q: int
    seed: int

    @property
    def feasible(self) -> Tensor:
        """Which of the ``T`` meet all constraints."""
        return (self.Y[:, self.objectives :] <= 0).all(-1)


MakeAcquisition = Callable[[Model, Observations], AcquisitionFunction]


def default_acquisition(model: Model, data: Observations) -> AcquisitionFunction:
    """Log expected improvement, of its kind that the problem needs.

    One objective without constraints, one candidate and nothing pending: ``LogExpectedImprovement``.
    Otherwise ``qLogExpectedImprovement``, with constraints if there are any; for several objectives
    ``qLogNoisyExpectedHypervolumeImprovement`` beyond the reference point that BoTorch infers from the
    feasible outcomes. As long as the model holds no evaluated candidate for feasible, the probability of
    feasibility takes its place, ``qLogProbabilityOfFeasibility``.

    Args:
        model: A fitted model of all outcomes.
        data: The evaluations.

    Returns:
        The acquisition function.
    """
    outcomes = data.Y.shape[-1]
    if outcomes == 1 and data.q == 1 and data.X_pending is None:
        return LogExpectedImprovement(model, best_f=data.Y.max())
    constraints = [partial(_outcome, index=i) for i in range(data.objectives, outcomes)] or None
    common = {"X_pending": data.X_pending, "constraints": constraints, "seed": data.seed}
    if constraints is not None and not _believed_feasible(model, data):
        return get_acquisition_function(
            "qLogPF", model, None, data.X, mc_samples=_SAMPLES, **common
        )
    if data.objectives == 1:
        objective = LinearMCObjective(data.Y.new_tensor([1.0] + [0.0] * (outcomes - 1)))
        return get_acquisition_function(
            "qLogEI", model, objective, data.X, mc_samples=_SAMPLES, **common
        )
    return get_acquisition_function(
        "qLogNEHVI",
        model,
        IdentityMCMultiOutputObjective(outcomes=list(range(data.objectives))),
        data.X,
        ref_point=_reference_point(data),
        mc_samples=_SAMPLES,
        **common,
    )


def _believed_feasible(model: Model, data: Observations) -> bool:
    with torch.no_grad():
        mean = model.posterior(data.X).mean
    return bool((mean[..., data.objectives :] <= 0).all(-1).any())


def _reference_point(data: Observations) -> Tensor:
    objectives = data.Y[:, : data.objectives]
    feasible = objectives[data.feasible] if bool(data.feasible.any()) else objectives
    return infer_reference_point(feasible[is_non_dominated(feasible)])


def _outcome(samples: Tensor, index: int) -> Tensor:
    return torch.select(samples, -1, index)
