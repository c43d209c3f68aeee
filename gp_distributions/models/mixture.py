"""Weighted mixtures of the predictions of several models, as a BoTorch model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import gpytorch
import torch
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior, Posterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.distributions import MultitaskMultivariateNormal
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.models.equal_mixture import mixed_moments
from gp_distributions.models.exact_inference import Moments, marginal_moments
from gp_distributions.models.integrated_gp import FantasizingModel, IntegratedGP
from gp_distributions.models.mixture_posterior import MixturePosterior, mixed
from gp_distributions.models.regression import Regression
from gp_distributions.models.together import together
from gp_distributions.models.training import share_objects


class MixtureModel(FantasizingModel, Regression):
    r"""Mixture of the predictive distributions of several models, with a weight for each.

    .. math::
        p(y) = \sum_k w_k\, p_k(y), \qquad
        m = \sum_k w_k m_k, \qquad v = \sum_k w_k \bigl(v_k + (m_k - m)^2\bigr)

    The weights may be those of stacking, or posterior probabilities of the models. The variance has two
    parts: that within the models and that between them. The mixture is a BoTorch model. Monte Carlo
    acquisition functions take its samples, which are drawn jointly for ``q`` clouds and are
    deterministic for fixed base samples. Analytic ones, such as ``LogExpectedImprovement``, take its
    mean and variance, as if the mixture were normal. Quantiles of ``posterior(X)`` invert the
    distribution function of the mixture.

    Models of weight zero are not evaluated. :func:`integrate_hyperparameters` makes mixtures over the
    hyperparameters of one model, which can themselves be members.

    Args:
        models: Fitted models of the same outputs: models of this package, other BoTorch models whose
            posterior is a ``GPyTorchPosterior``, or mixtures. They may have different kernels, training
            data and transforms.
        weights: A non-negative weight for each model; they are divided by their sum. Default: equal
            weights.

    Raises:
        TypeError: If a member is not a BoTorch model, or is a classifier.
        ValueError: If there are no models, they have different numbers of outputs, the number of weights
            differs from that of models, or weights are negative, not finite or all zero.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, MixtureModel, MMDKernel, PointClouds, fit
        >>> points = torch.randn(11, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> sliced = fit(DistributionGP(clouds[:9], targets[:9]), restarts=0)
        >>> mmd = fit(DistributionGP(clouds[:9], targets[:9], MMDKernel(2)), restarts=0)
        >>> model = MixtureModel([sliced, mmd], weights=[0.75, 0.25])
        >>> mean, std = model.predict(clouds[9:])
        >>> posterior = model.posterior(clouds[9:], observation_noise=True)
        >>> low, high = posterior.quantile(torch.tensor([0.025, 0.975]))
        >>> bool(((low < targets[9:, None]) & (targets[9:, None] < high)).all())
        True
    """

    weights: Tensor

    def __init__(self, models: Sequence[Model], weights: Tensor | ArrayLike | None = None) -> None:
        super().__init__()
        models = list(models)
        if not models:
            raise ValueError("Expected at least one model, got none.")
        self._check(models)
        self.models = torch.nn.ModuleList(models)
        self.register_buffer("weights", normalized_weights(weights, len(models)))
        self.eval()

    @property
    def num_outputs(self) -> int:
        """Number of outputs of each model."""
        return self._members[0].num_outputs

    @property
    def batch_shape(self) -> torch.Size:
        """Common batch shape of the models."""
        return torch.broadcast_shapes(*(model.batch_shape for model in self._members))

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return self.weights.dtype

    @property
    def _squeeze_output(self) -> bool:  # type: ignore[override]
        return all(getattr(model, "_squeeze_output", False) for model in self._counting()[0])

    def rows_of(self, X: Inputs | Tensor) -> Any:
        """Return inputs as they are, since each model reads them on its own."""
        return X

    def joint(
        self, rows: Any, output_indices: list[int] | None, observation_noise: bool | Tensor
    ) -> MixturePosterior:
        """Return the mixture of the joint posteriors of all models."""
        counting, weights = self._counting()
        with together():
            found = [
                _as_mixture(model.posterior(rows, output_indices, observation_noise), model)
                for model in counting
            ]
        return mixed(found, weights.to(found[0].member_mean))

    def moments(self, X: Any, *, observation_noise: bool, **options: Any) -> Moments:
        """Return means and variances of predictions, ``... x N x outputs``."""
        counting, weights = self._counting()
        found = []
        for model in counting:
            if isinstance(model, Regression):
                found.append(model.moments(X, observation_noise=observation_noise, **options))
            else:
                with torch.no_grad():
                    posterior = model.posterior(X, observation_noise=observation_noise)
                    mixture = _as_mixture(posterior, model)
                    found.append((mixture.mean, mixture.variance))
        return mixed_moments(found, weights)

    def moments_left_out(self, **options: Any) -> Moments:
        """Return means and variances of leave-one-out predictions, ``T x outputs``."""
        counting, weights = self._counting()
        for model in counting:
            if not isinstance(model, Regression):
                raise TypeError(
                    "Expected models of this package, which leave out training clouds, got "
                    f"{type(model).__name__}."
                )
        found = [model.moments_left_out(**options) for model in counting]
        self._check_objects([len(mean) for mean, _ in found])
        return mixed_moments(found, weights)

    def _check_objects(self, numbers: list[int]) -> None:
        """Check that models of positive weight were trained on the same objects in the same order."""
        if len(set(numbers)) > 1:
            raise ValueError(
                f"Expected members with the same training clouds, got {numbers} of them."
            )
        counting, _ = self._counting()
        places = self.weights.nonzero().flatten().tolist()
        for place, model in zip(places, counting, strict=True):
            if not share_objects(_single(counting[0]), _single(model)):
                raise ValueError(
                    "Expected members with the same training clouds in the same order, but the clouds "
                    f"and targets of members {places[0]} and {place} differ."
                )

    def condition_on_observations(
        self, X: Inputs | Tensor, Y: Tensor | ArrayLike, **kwargs: Any
    ) -> Self:
        """Return a mixture of the models with further training clouds and targets, as in BoTorch.

        The weights stay as they are; only members that are mixtures over hyperparameters weight theirs
        anew. Members of weight zero are left out.

        Args:
            X: The ``N`` new clouds, or a ``batch_shape x N x m*(d+1)`` tensor of rows.
            Y: The targets of the new clouds, as each model takes them.
            **kwargs: Options of the models, such as ``noise``.
        """
        counting, weights = self._counting()
        models = [model.condition_on_observations(X, Y, **kwargs) for model in counting]
        return type(self)(models, weights)

    def subset_output(self, idcs: list[int]) -> Self:
        """Return the mixture of some outputs."""
        return type(self)([model.subset_output(idcs) for model in self._members], self.weights)

    @staticmethod
    def _check(models: list[Any]) -> None:
        for model in models:
            if not isinstance(model, Model):
                raise TypeError(f"Expected BoTorch models, got {type(model).__name__}.")
            if isinstance(model, Classification):
                raise TypeError(
                    f"Expected models of numbers, got {type(model).__name__}. Use MixtureClassifier, "
                    "which averages predict_proba."
                )
        outputs = [model.num_outputs for model in models]
        if len(set(outputs)) > 1:
            raise ValueError(f"Expected models of the same outputs, got {outputs} of them.")

    @property
    def _members(self) -> list[Any]:
        return list(self.models)

    def _counting(self) -> tuple[list[Any], Tensor]:
        """Return the models with a positive weight, and their weights."""
        positive = self.weights > 0
        counting = [model for model, counts in zip(self._members, positive, strict=True) if counts]
        return counting, self.weights[positive]


def _single(model: Any) -> Any:
    """Return a model that is no mixture, and has the training data of a model."""
    if isinstance(model, MixtureModel):
        return _single(model._counting()[0][0])
    return model.model if isinstance(model, IntegratedGP) else model


def _as_mixture(posterior: Posterior, model: Any) -> MixturePosterior:
    """Return the posterior of a member as a mixture, often one of a single normal distribution."""
    if isinstance(posterior, MixturePosterior):
        return posterior
    if not isinstance(posterior, GPyTorchPosterior):
        raise TypeError(
            f"Expected members with a normal posterior, got {type(posterior).__name__} from "
            f"{type(model).__name__}. Leave out outcome transforms that are not linear."
        )
    smallest = getattr(model, "smallest_variance", None)
    if smallest is None:
        smallest = gpytorch.settings.min_variance.value(posterior.dtype)
    moments = marginal_moments(posterior, smallest)
    # Models with sampled hyperparameters already have an axis of members.
    several = isinstance(posterior, GaussianMixturePosterior)
    mean, variance = moments if several else (part.unsqueeze(-3) for part in moments)
    number = mean.shape[-3]

    def covariance(members: Tensor) -> Tensor:
        dense = _joint_covariance(posterior)
        return (dense if several else dense.unsqueeze(-3)).index_select(-3, members)

    return MixturePosterior(mean, variance, covariance, mean.new_full((number,), 1 / number))


def _joint_covariance(posterior: GPyTorchPosterior) -> Tensor:
    """Return the covariance of all values, whose outputs are in the last axis, behind ``q``."""
    distribution = posterior.distribution
    dense: Tensor = distribution.lazy_covariance_matrix.to_dense()
    if isinstance(distribution, MultitaskMultivariateNormal) and not distribution._interleaved:
        q, outputs = distribution.event_shape
        parts = dense.unflatten(-2, (outputs, q)).unflatten(-1, (outputs, q))
        return parts.transpose(-4, -3).transpose(-2, -1).flatten(-4, -3).flatten(-2)
    return dense


def normalized_weights(weights: Tensor | ArrayLike | None, number: int) -> Tensor:
    """Divide weights by their sum.

    Args:
        weights: A weight for each member. Default: equal weights.
        number: Number of members.

    Returns:
        A detached tensor of shape ``number`` in double precision.

    Raises:
        ValueError: If the number of weights differs from that of members, or weights are negative, not
            finite or all zero.

    Example:
        >>> from gp_distributions.models.mixture import normalized_weights
        >>> normalized_weights([1, 3], 2).tolist()
        [0.25, 0.75]
    """
    given = torch.ones(number) if weights is None else torch.as_tensor(weights).detach()
    given = given.double()
    if given.shape != (number,):
        raise ValueError(
            f"Expected one weight for each of {number} models, got weights of shape "
            f"{tuple(given.shape)}."
        )
    total = given.sum()
    if not bool((given >= 0).all() & total.isfinite() & (total > 0)):
        raise ValueError(
            "Expected finite weights that are not negative, with a positive sum, got "
            f"{given.tolist()}."
        )
    return given / total
