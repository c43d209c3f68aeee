"""The acquisition function that a search uses by default, averaged over the members of its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.cached_cholesky import supports_cache_root
from botorch.acquisition.factory import get_acquisition_function
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import LinearMCObjective, PosteriorTransform
from botorch.exceptions import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior, Posterior
from botorch.sampling.get_sampler import GetSampler
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from gp_distributions.models.regression import Regression

# Random features of the prior of a sample path: half of BoTorch's default, as most time goes into them.
_NUM_FEATURES = 512


@dataclass(frozen=True, eq=False)
class Observations:
    """The evaluations from which an acquisition function is built.

    Args:
        X: A ``T x width`` tensor of the evaluated inputs of the model. With fixed parts, these are in
            the place of those of each candidate, and the best predicted candidate is added.
        Y: A ``T x outcomes`` tensor of the outcomes of these inputs: the objectives, which are
            maximised, followed by the constraints. A constraint is met if its value is at most zero.
            With fixed parts, they are posterior means.
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


MakeAcquisition: TypeAlias = Callable[[Model, Observations], AcquisitionFunction]


def default_acquisition(model: Model, data: Observations) -> AcquisitionFunction:
    """Make the variant of log expected improvement that the problem needs.

    For one objective without constraints, one candidate and no pending inputs, this is
    ``LogExpectedImprovement``. Otherwise, one objective needs ``qLogExpectedImprovement``, with the
    constraints if there are any, and several objectives need
    ``qLogNoisyExpectedHypervolumeImprovement``, with the reference point that BoTorch infers from the
    feasible outcomes. As long as the model predicts that no evaluated input is feasible,
    ``qLogProbabilityOfFeasibility`` is used instead.

    Of a model with several members, values are averaged over them by :class:`AveragedAcquisition`, or
    samples are those of their mixture, instead of a normal distribution with its moments.

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
    if not has_several_members(model) or isinstance(acquisition.model, MixtureView):
        return acquisition
    return AveragedAcquisition(acquisition, model)


def thompson_sampling(model: Model, data: Observations) -> AcquisitionFunction:
    """Make :class:`ThompsonSampling` with a path for each candidate of a proposal.

    Args:
        model: A fitted model of one objective.
        data: The evaluations to which the model was fitted.

    Raises:
        UnsupportedError: If there are constraints, or several objectives.
    """
    if data.Y.shape[-1] > 1:
        raise UnsupportedError(
            f"Expected one objective without constraints for Thompson sampling, got {data.Y.shape[-1]} "
            "outcomes. Leave acquisition at its default."
        )
    return ThompsonSampling(model, data.q, data.X_pending)


class ThompsonSampling(AcquisitionFunction):
    """A sample path of the posterior for each candidate of a batch, which maximises it.

    The paths of an ensemble follow one member each. Candidates are found one after the other: the path
    is that of the number of inputs that have become pending since.

    Args:
        model: A fitted model of one outcome.
        q: Number of paths.
        X_pending: Inputs whose evaluation is pending at the start.

    Source: Wilson et al. 2020 (paths by Matheron's rule); Kandasamy et al. 2018 (batches).
    """

    def __init__(self, model: Model, q: int, X_pending: Tensor | None = None) -> None:
        super().__init__(model)
        prior = partial(draw_kernel_feature_paths, num_features=_NUM_FEATURES)
        self.paths = draw_matheron_paths(model, torch.Size([q]), prior_sampler=prior)
        self._before = 0 if X_pending is None else len(X_pending)
        self.set_X_pending(X_pending)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[untyped-decorator]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the path at ``batch_shape x 1 x width`` inputs, a ``batch_shape`` tensor."""
        pending = self.X_pending
        place = (0 if pending is None else len(pending)) - self._before
        return self.values(X)[..., place]

    def values(self, X: Tensor) -> Tensor:
        """Evaluate all paths at ``batch_shape x 1 x width`` inputs, ``batch_shape x q``."""
        found: Tensor = self.paths(X.reshape(-1, X.shape[-1]))  # one matrix, the same for all paths
        return found.mT.reshape(*X.shape[:-2], -1)


def has_several_members(model: Model) -> bool:
    """Whether a model is an ensemble of this package."""
    return isinstance(model, Regression) and len(model.weights) > 1


class AveragedAcquisition(AcquisitionFunction):
    r"""Average of an acquisition function over the members of a model.

    An expectation under a mixture is the weighted mean of the expectations under its members. With
    :math:`\alpha_k` the acquisition function of member ``k``, of weight :math:`w_k`,

    .. math::
        \alpha(x) = \sum_k w_k\, \alpha_k(x), \qquad
        \log \alpha(x) = \log \sum_k w_k \exp \log \alpha_k(x),

    the second if its values are logarithms. All members are evaluated at once.

    Args:
        acquisition: An acquisition function of the model, analytic or of samples of single inputs. It
            becomes one of the members.
        model: The model, a :class:`DistributionGP` or a similar model with several members.

    Example:
        >>> import torch
        >>> from botorch.acquisition import LogExpectedImprovement
        >>> from gp_distributions import DistributionGP, PointClouds, integrate_hyperparameters
        >>> from gp_distributions.bayesopt import AveragedAcquisition
        >>> points = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> X, y = PointClouds(points), points.mean((-2, -1))
        >>> model = integrate_hyperparameters(DistributionGP(X, y))
        >>> acquisition = AveragedAcquisition(LogExpectedImprovement(model, y.max()), model)
        >>> acquisition(X.pack().unsqueeze(-2)).shape
        torch.Size([6])
    """

    def __init__(self, acquisition: AcquisitionFunction, model: Regression) -> None:
        super().__init__(model)
        acquisition.model = MemberView(model)
        self.acquisition = acquisition
        self._log = acquisition._log

    @property
    def X_pending(self) -> Tensor | None:  # noqa: N802, the name in BoTorch
        """Inputs whose evaluation is pending."""
        return getattr(self.acquisition, "X_pending", None)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:  # noqa: N802
        """Set inputs whose evaluation is pending, as in BoTorch."""
        self.acquisition.set_X_pending(X_pending)

    @t_batch_mode_transform()  # type: ignore[untyped-decorator]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the average at ``batch_shape x q x width`` inputs, a ``batch_shape`` tensor."""
        values = self.acquisition(X.unsqueeze(-3))
        weights = self.model.weights.to(values)
        if self._log:
            return (values + weights.log()).logsumexp(-1)
        return values @ weights


class PredictedValue(AcquisitionFunction):
    """The posterior mean of the first objective, less a hundredfold of what violates constraints.

    Args:
        model: A fitted model of all outcomes.
        objectives: Number of objectives, which the constraints follow.
    """

    def __init__(self, model: Model, objectives: int) -> None:
        super().__init__(model)
        self.objectives = objectives

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate it at ``batch_shape x 1 x width`` inputs, a ``batch_shape`` tensor."""
        mean = self.model.posterior(X).mean.squeeze(-2)
        return mean[..., 0] - 100 * mean[..., self.objectives :].clamp_min(0).sum(-1)


class MemberView(Model):
    """The members of a model as a batch, for acquisition functions.

    Args:
        model: A model with members.
    """

    def __init__(self, model: Regression) -> None:
        super().__init__()
        self.model = model

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self.model.num_outputs

    @property
    def batch_shape(self) -> torch.Size:
        """The number of members, behind the batch shape of the model."""
        return torch.Size([*self.model.batch_shape, len(self.model.weights)])

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Compute the joint posterior of each member at ``batch_shape x 1 x q x width`` inputs."""
        found = self.model.member_posterior(X.select(-3, 0), output_indices, observation_noise)
        return found if posterior_transform is None else posterior_transform(found, X=X)


class MixtureView(MemberView):
    """A model whose posterior has samples of the mixture of members."""

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the model."""
        return self.model.batch_shape

    def posterior(self, X: Tensor, *arguments: Any, **options: Any) -> Posterior:
        """Compute the joint posterior at ``batch_shape x q x width`` inputs."""
        members = super().posterior(X.unsqueeze(-3), *arguments, **options)
        return MixtureSamples(members, self.model.weights.to(X))


class MixtureSamples(Posterior):
    """Joint samples of a mixture of normal distributions, of which each member has its share.

    Args:
        members: The posteriors of the members, ``batch_shape x K x q x outputs``.
        weights: Their weights, a tensor of length ``K``.
    """

    def __init__(self, members: GPyTorchPosterior, weights: Tensor) -> None:
        self.members = members
        self.weights = weights

    @property
    def device(self) -> torch.device:
        """The device of the posterior."""
        return self.members.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the posterior."""
        return self.members.dtype

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the posterior."""
        return self.base_sample_shape[:-2]

    @property
    def base_sample_shape(self) -> torch.Size:
        """The shape of a base sample, ``batch_shape x q x outputs``."""
        *batch_shape, _, q, outputs = self.members._extended_shape()
        return torch.Size([*batch_shape, q, outputs])

    @property
    def batch_range(self) -> tuple[int, int]:
        """The axes of a base sample over which base samples are the same."""
        return (0, -2)

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return torch.Size([*sample_shape, *self.base_sample_shape])

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        """Draw samples with gradients, a ``sample_shape x batch_shape x q x outputs`` tensor."""
        sample_shape = torch.Size([1]) if sample_shape is None else sample_shape
        base_samples = self.weights.new_empty(*sample_shape, *self.base_sample_shape).normal_()
        return self.rsample_from_base_samples(sample_shape, base_samples)

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        """Convert normal base samples to samples, the first of which belong to the first member."""
        base_samples = base_samples.expand(*sample_shape, *self.base_sample_shape)
        each = base_samples.unsqueeze(-3).expand(*sample_shape, *self.members._extended_shape())
        number = sample_shape.numel()
        middles = (torch.arange(number).to(self.weights) + 0.5) / number
        chosen = torch.searchsorted(self.weights.cumsum(-1)[:-1].contiguous(), middles)
        drawn = self.members.rsample_from_base_samples(sample_shape, each)
        index = chosen.reshape(*sample_shape, *[1] * (drawn.dim() - len(sample_shape)))
        return drawn.take_along_dim(index, dim=-3).squeeze(-3)


# The sampler is that of normal posteriors of as many values.
GetSampler.register(MixtureSamples)(GetSampler.dispatch(MultivariateNormal))


def _log_improvement(model: Model, data: Observations) -> AcquisitionFunction:
    outcomes = data.Y.shape[-1]
    if outcomes == 1 and data.q == 1 and data.X_pending is None:
        return LogExpectedImprovement(model, best_f=data.Y.max())
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
        if has_several_members(model):
            model = MixtureView(model)
        options["cache_root"] = supports_cache_root(model)
    return get_acquisition_function(name, model, objective, data.X, mc_samples=128, **options)


@torch.no_grad()
def _believes_in_one(model: Model, data: Observations) -> bool:
    """Returns whether the model predicts that at least one evaluated input is feasible."""
    mean = model.posterior(data.X).mean
    return bool((mean[..., data.objectives :] <= 0).all(-1).any())
