"""The mixture of Gaussian processes over hyperparameters, as a BoTorch model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import torch
from botorch.models.model import Model
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize as fantasizing
from botorch.sampling.base import MCSampler
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import Module

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.batching import batched
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.exact_inference import Moments
from gp_distributions.models.mixture_posterior import MixturePosterior
from gp_distributions.models.regression import Regression
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood, relative_noise
from gp_distributions.models.together import held
from gp_distributions.numerics.densities import Mixture, variance_factors
from gp_distributions.numerics.spectral_regression import SpectralRegression

# Covariances within larger sets of clouds are computed only if samples are drawn.
_JOINT_CLOUDS = 16


class FantasizingModel(Model):
    """BoTorch model without a likelihood of its own that is conditioned on samples of its posterior.

    BoTorch's ``FantasizeMixin`` asks for a ``likelihood`` and sets a flag of the whole process.
    """

    def fantasize(self, X: Tensor, sampler: MCSampler, **kwargs: Any) -> Self:
        """Condition the model on samples of its noisy posterior at ``X``, as in BoTorch.

        Args:
            X: A ``batch_shape x N x m*(d+1)`` tensor of rows.
            sampler: Sampler of the noisy posterior at ``X``.
            **kwargs: Options of ``condition_on_observations``.
        """
        with fantasizing():
            if X.shape[-2] > 0:
                samples = sampler(self.posterior(X, observation_noise=True))
            else:  # as in BoTorch: samplers do not take posteriors at no clouds
                batch_shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
                samples = X.new_empty(*sampler.sample_shape, *batch_shape, 0, self.num_outputs)
            return self.condition_on_observations(X, samples, **kwargs)


class IntegratedGP(FantasizingModel, Regression):
    r"""Mixture of Gaussian processes over hyperparameters, each weighted by its posterior probability.

    :func:`integrate_hyperparameters` makes it. The members have the kernels of given hyperparameters and
    given ratios of noise to outputscale. Their constant mean and their outputscale are integrated in
    closed form, so each is a Student's t process with one degree of freedom less than there are clouds.
    The squared distances are computed once for all members, and one eigendecomposition for each kernel
    serves all ratios.

    The model is a BoTorch model like :class:`MixtureModel`: ``posterior`` has the mean, the variance and
    the quantiles of the mixture, and samples for Monte Carlo acquisition functions.
    ``condition_on_observations`` weights the members anew.

    Args:
        model: A :class:`DistributionGP` of one output, with the training data, the kernel, the
            likelihood and the transforms. It is kept, not copied.
        values: Values of the raw parameters of the kernel, by name, ``L`` of each, with a leading axis.
        ratios: The ratios of noise to outputscale, an ``L x J`` tensor.
        log_prior: Log prior probabilities, times quadrature weights, an ``L x J`` tensor.
        outputscales: The outputscales, an ``L x J`` tensor, if the noise variances are known and
            outputscales are not integrated in closed form. The members are then normal.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, integrate_hyperparameters
        >>> points = torch.randn(9, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> single = DistributionGP(PointClouds(points), points.mean((-2, -1)))
        >>> model = integrate_hyperparameters(single)
        >>> model.weights.shape  # lengthscales x ratios
        torch.Size([16, 10])
    """

    num_outputs = 1
    ratios: Tensor
    log_prior: Tensor
    outputscales: Tensor | None

    def __init__(
        self,
        model: DistributionGP,
        values: Mapping[str, Tensor],
        ratios: Tensor,
        log_prior: Tensor,
        outputscales: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.covar_module = batched(model.covar_module, values)
        self._names = tuple(values)
        self.register_buffer("ratios", ratios)
        self.register_buffer("log_prior", log_prior)
        self.register_buffer("outputscales", outputscales)
        self.register_load_state_dict_post_hook(_solve_again)
        self._solve()

    @property
    def values(self) -> dict[str, Tensor]:
        """Values of the raw parameters of the kernel, by name, with a leading axis of length ``L``."""
        return {name: self.covar_module.get_parameter(name).detach() for name in self._names}

    @property
    def weights(self) -> Tensor:
        """Posterior probabilities of the members, a ``batch_shape x L x J`` tensor."""
        return (
            (self._regression.log_evidence + self.log_prior)
            .flatten(-2)
            .softmax(-1)
            .unflatten(-1, self.log_prior.shape)
        )

    def member(self, place: int) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        """Return the hyperparameters of a member of a model without batch axes.

        Args:
            place: Number of the member in the flattened ``weights``.

        Returns:
            The values of the raw parameters of the kernel; the factor of the kernel, estimated or
            known; the ratio of noise to it; and the estimated mean, in transformed units.
        """
        first, second = divmod(place, self.ratios.shape[-1])
        values = {name: value[first] for name, value in self.values.items()}
        found = self._regression
        return (
            values,
            found.scales[first, second],
            self.ratios[first, second],
            found.mean[first, second],
        )

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the training data, which is empty unless the model is a fantasy."""
        return torch.broadcast_shapes(
            self.model.train_inputs[0].shape[:-2], self.model.train_targets.shape[:-1]
        )

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model."""
        return self.model.dtype

    def rows_of(self, X: Inputs | Tensor) -> Tensor:
        """Check new inputs, and return them as rows in the precision of the model."""
        return self.model.rows_of(X)

    def transform_inputs(self, X: Tensor, input_transform: Module | None = None) -> Tensor:
        """Transform inputs to rows."""
        return self.model.transform_inputs(X, input_transform)

    @property
    def _outcome_transform(self) -> OutcomeTransform | None:
        return self.model._outcome_transform

    @property
    def _squeeze_output(self) -> bool:  # type: ignore[override]
        return self.model._squeeze_output

    def conditioned(self) -> SpectralRegression:
        """Return the regression on the training clouds."""
        return self._regression

    def joint(
        self, rows: Tensor, output_indices: list[int] | None, observation_noise: bool | Tensor
    ) -> MixturePosterior:
        """Return the joint posterior at transformed rows, in the units of the targets."""
        if output_indices not in (None, [0]):
            raise ValueError(f"Expected output_indices=None or [0], got {output_indices}.")
        return self._mixture(rows, observation_noise, joint=rows.shape[-2] <= _JOINT_CLOUDS)

    def marginals(self, rows: Tensor, given: Any, observation_noise: bool) -> Moments:
        """Return means and variances at transformed rows, ``... x N x 1``, in those units."""
        found = self._mixture(rows, observation_noise, joint=False)
        return found.mean, found.variance.clamp_min(self.smallest_variance)

    def _mixture(
        self, rows: Tensor, observation_noise: bool | Tensor, *, joint: bool
    ) -> MixturePosterior:
        """Compute the posterior; ``joint`` says that covariances within the rows are needed."""
        x, kernel, regression = _with_members(held(rows)), self.covar_module, self._regression
        across = covariance(kernel, x, _of_members(self.model))
        if joint:
            within = covariance(kernel, x)
            variances = torch.linalg.diagonal(within)
        else:
            within, variances = None, covariance(kernel, x, diag=True)
        location, squared = regression.predict(across, variances)
        noise = self._noise(rows, observation_noise)  # ... x L x J x q
        offset, factor = self._units()

        def scale_matrices(members: Tensor) -> Tensor:
            prior = covariance(kernel, x) if within is None else within
            found = regression.covariance(across, prior, members)
            if noise is not None:
                found = found + torch.diag_embed(noise.flatten(-3, -2)[..., members, :])
            return factor**2 * found

        if noise is not None:
            squared = squared + noise
        moments = (part.flatten(-3, -2).unsqueeze(-1) for part in (location, squared))
        mean, variance = torch.broadcast_tensors(*moments)
        return MixturePosterior(
            offset + factor * mean,
            factor**2 * variance.clamp_min(0),
            scale_matrices,
            self.weights.flatten(-2),
            mean.new_full(mean.shape[-3:-2], regression.degrees),
        )

    def latent_left_out(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, variances and noise variances without each cloud, with new weights for each."""
        regression = self._regression
        left = regression.leave_one_out()
        log_weights = (regression.log_evidence + self.log_prior).unsqueeze(-1)
        weights = (log_weights - left.log_density).flatten(-3, -2).softmax(-2)
        (rows,) = self.model.train_inputs
        relative = _relative_noise(self.model, rows, self.ratios, self.outputscales, training=True)
        noise = left.outputscales * self.ratios.unsqueeze(-1) * relative[..., None, None, :]
        errors = self.model.train_targets[..., None, None, :] - left.errors
        squared = (left.squared - noise).clamp_min(0)
        scales = squared.sqrt().flatten(-3, -2).mT
        degrees = squared.new_full(weights.shape[-2:-1], regression.degrees - 1)
        mixture = Mixture(weights.mT, errors.flatten(-3, -2).mT, scales, degrees)
        factors = variance_factors(degrees).unsqueeze(-1)
        noise = (weights * factors * noise.flatten(-3, -2)).sum(-2)
        found = mixture.mean(), mixture.variance(), noise
        mean, variance, noise = (part.unsqueeze(-1) for part in found)
        return mean, variance, noise

    def condition_on_observations(
        self,
        X: Inputs | Tensor,
        Y: Tensor | ArrayLike,
        noise: Tensor | ArrayLike | None = None,
    ) -> IntegratedGP:
        """Return a model with further training clouds and targets, whose members are weighted anew.

        Args:
            X: The ``N`` new clouds, or a ``batch_shape x N x m*(d+1)`` tensor of rows, of any width.
            Y: The targets of the new clouds, ``batch_shape x N x 1``, or ``N`` if ``train_Y`` has no
                axis of outputs.
            noise: Noise variances of the new targets, in the shape of ``Y`` and in units of the
                transformed targets, if noise variances are known. Default: the mean of the known ones.

        Raises:
            ValueError: If ``Y`` or ``noise`` are not numbers of this shape, a target is not finite, a
                variance is not positive and finite, an index names the clouds in another order, or
                ``noise`` is given although noise variances are not known.
        """
        self.eval()
        model = self.model.condition_on_observations(X, Y, noise)
        return IntegratedGP(model, self.values, self.ratios, self.log_prior, self.outputscales)

    def subset_output(self, idcs: list[int]) -> IntegratedGP:
        """Return a copy of the model, whose only output is 0, as in BoTorch."""
        if [range(1)[index] for index in idcs] != [0]:
            raise ValueError(f"Expected the only output, [0], got {idcs}.")
        return copy.deepcopy(self)

    def _solve(self) -> None:
        """Factorise the covariances of the training clouds."""
        self.eval()
        with torch.inference_mode(False):  # autograd cannot use tensors made in that mode
            covariances = training_covariances(self.model, self.covar_module)
            self._regression = regression(self.model, covariances, self.ratios, self.outputscales)

    def _apply(self, fn: Any, recurse: bool = True) -> IntegratedGP:
        moved = super()._apply(fn, recurse)
        self._solve()
        return moved

    def _noise(self, rows: Tensor, observation_noise: bool | Tensor) -> Tensor | None:
        """Return squared scales of the noise, which broadcast with ``... x L x J x q``, or None."""
        if isinstance(observation_noise, Tensor):
            # The variance of a Student's t variable is larger than its squared scale.
            nu = self._regression.degrees
            share = 1.0 if nu == float("inf") else (nu - 2) / nu
            return share * observation_noise.squeeze(-1)[..., None, None, :]
        if not observation_noise:
            return None
        relative = _relative_noise(self.model, rows, self.ratios, self.outputscales)
        relative = relative[..., None, None, :]
        return self._regression.scales.unsqueeze(-1) * self.ratios.unsqueeze(-1) * relative

    def _units(self) -> tuple[Tensor, Tensor]:
        """Return the value of a transformed target of zero, and the unit of transformed targets."""
        transform = self._outcome_transform
        ends = self.model.train_targets.new_tensor([[0.0], [1.0]])
        if transform is not None:
            ends = transform.untransform(ends)[0]
        zero, one = ends.reshape(2)
        return zero, one - zero


def _solve_again(model: IntegratedGP, _: Any) -> None:
    model._solve()


def training_covariances(model: DistributionGP, kernel: Kernel) -> Tensor:
    """Return the covariances of a batch of kernels, ``batch_shape x L x T x T``."""
    with torch.no_grad():
        covariances = covariance(kernel, _of_members(model))
    return covariances.unsqueeze(0) if covariances.dim() == 2 else covariances


def _of_members(model: DistributionGP) -> EmbeddedRows:
    """Return the training rows, with an axis of members behind the batch axes of fantasies."""
    (rows,) = model.train_inputs
    train = model.embedded_rows(rows)
    return train if rows.dim() == 2 else _with_members(train)


def _with_members(rows: EmbeddedRows) -> EmbeddedRows:
    """Return rows with an axis of members."""
    return rows.derived("members", lambda: EmbeddedRows(rows.rows.unsqueeze(-3)))


def regression(
    model: DistributionGP, covariances: Tensor, ratios: Tensor, outputscales: Tensor | None = None
) -> SpectralRegression:
    """Return the regression on the training data of a model, for several covariances and ratios.

    Args:
        model: A model in evaluation mode, with one output.
        covariances: Covariances of the training clouds, a ``batch_shape x L x T x T`` tensor.
        ratios: Ratios of noise to outputscale, an ``L x J`` tensor.
        outputscales: Outputscales, an ``L x J`` tensor, if noise variances are known.
    """
    (rows,) = model.train_inputs
    mean = model.mean_module
    with torch.no_grad():
        free = isinstance(mean, ConstantMean) and mean.raw_constant.requires_grad
        targets = model.train_targets
        return SpectralRegression(
            covariances,
            targets if free else targets - mean(rows),
            ratios,
            noise=_relative_noise(model, rows, ratios, outputscales, training=True),
            outputscales=outputscales,
            constant=free,
        )


def _relative_noise(
    model: DistributionGP,
    rows: Tensor,
    ratios: Tensor,
    outputscales: Tensor | None,
    *,
    training: bool = False,
) -> Tensor:
    """Return the noise variances of rows relative to that to which ratios refer, ``batch_shape x N``."""
    likelihood = model.likelihood
    if outputscales is None or isinstance(likelihood, SamplingNoiseLikelihood):
        return relative_noise(likelihood, rows)
    relative = likelihood.noise / (ratios * outputscales).flatten()[0]
    return relative if training else relative.mean(-1, keepdim=True).expand(rows.shape[:-1])
