"""The acquisition function that a search uses by default, among those of BoTorch and of mixtures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.acquisition.factory import get_acquisition_function
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import LinearMCObjective
from botorch.models.model import Model
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from gp_distributions.models import DistributionGP, MixtureModel
from gp_distributions.models.together import together


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

    Improvements are averaged over the members of a :class:`DistributionGP` that predicts with several,
    and not taken under the Gaussian with their moments.

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
    if isinstance(model, DistributionGP) and model.mixture is not None:
        model = MixtureModel(model.members)
    acquisition = _log_improvement(model, data)
    if not hasattr(model, "train_inputs") and not hasattr(acquisition, "X_baseline"):
        # Around these, BoTorch draws starts; it finds them in models that are no mixtures.
        acquisition.X_baseline = data.X
    return acquisition


class MixtureLogExpectedImprovement(AnalyticAcquisitionFunction):
    r"""Logarithm of the expected improvement under a mixture of models.

    An expectation under a mixture is the weighted mean of the expectations under its members. With
    :math:`\mathrm{EI}_k` the expected improvement under member ``k``,

    .. math::
        \log \mathrm{EI}(x) = \log \sum_k w_k \exp \log \mathrm{EI}_k(x).

    ``LogExpectedImprovement`` of a :class:`MixtureModel` would replace the mixture by a normal
    distribution with the same mean and variance.

    Args:
        model: The mixture of models of one output whose posteriors are normal. Members may be mixtures.
        best_f: The best outcome so far.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, MixtureModel, MMDKernel, PointClouds
        >>> from gp_distributions.bayesopt import MixtureLogExpectedImprovement
        >>> points = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> X, y = PointClouds(points), points.mean((-2, -1))
        >>> mixture = MixtureModel([DistributionGP(X, y), DistributionGP(X, y, MMDKernel(2))])
        >>> acquisition = MixtureLogExpectedImprovement(mixture, best_f=y.max())
        >>> acquisition(X.pack().unsqueeze(-2)).shape
        torch.Size([6])
    """

    def __init__(self, model: MixtureModel, best_f: float | Tensor) -> None:
        super().__init__(model)
        used = [i for i, weight in enumerate(model.weights.tolist()) if weight > 0]
        self.parts = torch.nn.ModuleList(
            log_expected_improvement(model.models[i], best_f) for i in used
        )
        self.register_buffer("log_weights", model.weights[used].log())

    @t_batch_mode_transform(expected_q=1)  # type: ignore[untyped-decorator]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the logarithm of the expected improvement.

        Args:
            X: A ``batch_shape x 1 x width`` tensor of inputs.

        Returns:
            A ``batch_shape`` tensor.
        """
        with together():
            values = torch.stack([part(X) for part in self.parts], dim=-1)
        return (values + self.log_weights.to(values)).logsumexp(-1)


def log_expected_improvement(model: Model, best_f: float | Tensor) -> AnalyticAcquisitionFunction:
    """Make the exact logarithm of the expected improvement of a model or a mixture of models.

    Args:
        model: A model of one output.
        best_f: The best outcome so far.
    """
    if isinstance(model, MixtureModel):
        return MixtureLogExpectedImprovement(model, best_f)
    return LogExpectedImprovement(model, best_f=best_f)


def _log_improvement(model: Model, data: Observations) -> AcquisitionFunction:
    outcomes = data.Y.shape[-1]
    if outcomes == 1 and data.q == 1 and data.X_pending is None:
        return log_expected_improvement(model, data.Y.max())
    last = range(data.objectives, outcomes)
    constraints = [partial(torch.select, dim=-1, index=index) for index in last] or None
    options = {"X_pending": data.X_pending, "constraints": constraints, "seed": data.seed}
    if constraints is not None and not _believes_in_one(model, data):
        name, objective = "qLogPF", None
    elif data.objectives == 1:
        weights = data.Y.new_tensor([1.0] + [0.0] * (outcomes - 1))
        name, objective = "qLogEI", LinearMCObjective(weights)
    else:
        indices = list(range(data.objectives))
        name, objective = "qLogNEHVI", IdentityMCMultiOutputObjective(outcomes=indices)
        objectives = data.Y[:, : data.objectives]
        feasible = objectives[data.feasible] if data.feasible.any() else objectives
        options["ref_point"] = infer_reference_point(feasible[is_non_dominated(feasible)])
        options["cache_root"] = supports_cache_root(model)
    return get_acquisition_function(name, model, objective, data.X, mc_samples=128, **options)


@torch.no_grad()
def _believes_in_one(model: Model, data: Observations) -> bool:
    """Returns whether the model predicts that at least one evaluated input is feasible."""
    mean = model.posterior(data.X).mean
    return bool((mean[..., data.objectives :] <= 0).all(-1).any())
