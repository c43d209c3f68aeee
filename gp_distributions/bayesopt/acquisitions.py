"""The acquisition function that a search uses by default, chosen among those of BoTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.acquisition.factory import get_acquisition_function
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import LinearMCObjective
from botorch.models.model import Model
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from gp_distributions.bayesopt.mixture_improvement import log_expected_improvement


@dataclass(frozen=True, eq=False)
class Observations:
    """The evaluations from which an acquisition function is built.

    Args:
        X: A ``T x width`` tensor of the evaluated inputs of the model.
        Y: A ``T x outcomes`` tensor of the outcomes of these inputs: the objectives, which are
            maximised, followed by the constraints. A constraint is met if its value is at most zero.
        objectives: Number of objectives.
        X_pending: Inputs whose evaluation is pending or has failed; ``None`` if there are none.
        q: Number of candidates to propose.
        seed: Random seed for the acquisition function.

    Example:
        >>> import torch
        >>> from gp_distributions.bayesopt import Observations
        >>> X, Y = torch.eye(2), torch.tensor([[3.0, -1.0], [5.0, 1.0]])
        >>> data = Observations(X, Y, objectives=1, X_pending=None, q=1, seed=0)
        >>> data.feasible  # the second column of Y is a constraint
        tensor([ True, False])
    """

    X: Tensor
    Y: Tensor
    objectives: int
    X_pending: Tensor | None
    q: int
    seed: int

    @property
    def feasible(self) -> Tensor:
        """A boolean tensor of length ``T`` that is true for inputs that meet all constraints."""
        return (self.Y[:, self.objectives :] <= 0).all(-1)


MakeAcquisition = Callable[[Model, Observations], AcquisitionFunction]


def default_acquisition(model: Model, data: Observations) -> AcquisitionFunction:
    """Make the variant of log expected improvement that the problem needs.

    For one objective without constraints, one candidate and no pending inputs, this is
    ``LogExpectedImprovement``, or :class:`MixtureLogExpectedImprovement` for a mixture of models.
    Otherwise, one objective needs ``qLogExpectedImprovement``, with the constraints if there are any,
    and several objectives need ``qLogNoisyExpectedHypervolumeImprovement``, with the reference point
    that BoTorch infers from the feasible outcomes. As long as the model predicts that no evaluated input
    is feasible, ``qLogProbabilityOfFeasibility`` is used instead.

    Args:
        model: A fitted model of all outcomes.
        data: The evaluations to which the model was fitted.

    Returns:
        The acquisition function.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel
        >>> from gp_distributions.bayesopt import Observations, default_acquisition
        >>> X = PointClouds(torch.arange(10, dtype=torch.float64).reshape(5, 2, 1))
        >>> Y = X.points.mean(-2)
        >>> model = DistributionGP(X, Y, SlicedWassersteinKernel(1))
        >>> data = Observations(X.pack(), Y, objectives=1, X_pending=None, q=1, seed=0)
        >>> type(default_acquisition(model, data)).__name__
        'LogExpectedImprovement'
    """
    acquisition = _log_improvement(model, data)
    if not hasattr(model, "train_inputs") and not hasattr(acquisition, "X_baseline"):
        # Around these, BoTorch draws starts; it finds them in models that are no mixtures.
        acquisition.X_baseline = data.X
    return acquisition


def _log_improvement(model: Model, data: Observations) -> AcquisitionFunction:
    outcomes = data.Y.shape[-1]
    if outcomes == 1 and data.q == 1 and data.X_pending is None:
        return log_expected_improvement(model, data.Y.max())
    last = range(data.objectives, outcomes)
    constraints = [partial(torch.select, dim=-1, index=index) for index in last] or None
    options = {"X_pending": data.X_pending, "constraints": constraints, "seed": data.seed}
    if constraints is not None and not _believed_feasible(model, data):
        name, objective = "qLogPF", None
    elif data.objectives == 1:
        weights = data.Y.new_tensor([1.0] + [0.0] * (outcomes - 1))
        name, objective = "qLogEI", LinearMCObjective(weights)
    else:
        indices = list(range(data.objectives))
        name, objective = "qLogNEHVI", IdentityMCMultiOutputObjective(outcomes=indices)
        options["ref_point"] = _reference_point(data)
        options["cache_root"] = supports_cache_root(model)
    return get_acquisition_function(name, model, objective, data.X, mc_samples=128, **options)


def _believed_feasible(model: Model, data: Observations) -> bool:
    """Returns whether the model predicts that at least one evaluated input is feasible."""
    with torch.no_grad():
        mean = model.posterior(data.X).mean
    return bool((mean[..., data.objectives :] <= 0).all(-1).any())


def _reference_point(data: Observations) -> Tensor:
    objectives = data.Y[:, : data.objectives]
    feasible = objectives[data.feasible] if bool(data.feasible.any()) else objectives
    return infer_reference_point(feasible[is_non_dominated(feasible)])
