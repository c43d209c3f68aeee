"""The mixture of Gaussian processes over hyperparameters, as a BoTorch model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.posteriors import Posterior
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.batching import batched
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.arguments import check_batch_size
from gp_distributions.models.conformal import ConformalCorrection, check_conformal, rescaled
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.fantasies import FantasizingModel
from gp_distributions.models.mixture_posterior import MixturePosterior
from gp_distributions.models.observations import check_noise_is_kept
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.together import held
from gp_distributions.numerics.densities import Mixture
from gp_distributions.numerics.spectral_regression import SpectralRegression

# Covariances within larger sets of clouds are computed only if samples are drawn.
_JOINT_CLOUDS = 16


class IntegratedGP(FantasizingModel):
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

    def positive_values(self) -> dict[str, Tensor]:
        """Return the values of the parameters of the kernel, by name, with a leading axis."""
        kernel = self.covar_module
        return {
            name: kernel.constraint_for_parameter_name(name).transform(value)
            for name, value in self.values.items()
        }

    def squared_scales_left_out(self) -> Tensor:
        """Return squared scales of each member's predictions of training targets from all others.

        Unlike those in :meth:`leave_one_out`, they are for known means and outputscales, such as those
        of a single model.

        Returns:
            An ``L x J x T`` tensor, in units of the transformed targets.
        """
        return self._regression.left_out()

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
    def num_outputs(self) -> int:
        """Number of outputs: one."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the training data, which is empty unless the model is a fantasy."""
        return torch.broadcast_shapes(
            self.model.train_inputs[0].shape[:-2], self.model.train_targets.shape[:-1]
        )

    def posterior(
        self,
        X: Inputs | Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Compute the mixture of the joint posteriors at clouds, with gradients.

        Args:
            X: Clouds, or a ``batch_shape x q x m*(d+1)`` tensor of rows, of any width.
            output_indices: ``None`` or ``[0]``, since there is one output.
            observation_noise: Whether to add the noise of each member, or a ``batch_shape x q x 1``
                tensor of noise variances, in units of the transformed targets, to add instead.
            posterior_transform: BoTorch transform of the posterior.

        Returns:
            A :class:`MixturePosterior` of shape ``batch_shape x q x 1``, in the units of ``train_Y``.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor.
            ValueError: If the width of the rows does not fit the kernel, or there is no such output.
        """
        if output_indices not in (None, [0], [-1]):
            raise ValueError(f"Expected output_indices=None or [0], got {output_indices}.")
        self.eval()
        rows = self.model._rows_of(X)
        joint = rows.shape[-2] <= _JOINT_CLOUDS
        posterior = self._mixture(rows, observation_noise, joint=joint)
        if posterior_transform is not None:
            return posterior_transform(posterior=posterior, X=self.model.transform_inputs(rows))
        return posterior

    def _mixture(
        self, rows: Tensor, observation_noise: bool | Tensor, *, joint: bool
    ) -> MixturePosterior:
        """Compute the posterior; ``joint`` says that covariances within the rows are needed."""
        rows = self.model.transform_inputs(rows)
        x, kernel, regression = (
            _with_members(rows),
            self.covar_module,
            self._regression,
        )
        across = covariance(kernel, x, _of_members(self.model))
        within = covariance(kernel, x) if joint else None
        variances = (
            covariance(kernel, x, diag=True)
            if within is None
            else within.diagonal(dim1=-2, dim2=-1)
        )
        location, squared = regression.predict(across, variances)
        noise = self._noise(rows, observation_noise)  # ... x L x J x q
        offset, factor = self._units()

        def scale_matrices(members: Tensor) -> Tensor:
            prior = covariance(kernel, x) if within is None else within
            found = regression.covariance(across, prior, members)
            if noise is not None:
                found = found + torch.diag_embed(noise.flatten(-3, -2)[..., members, :])
            return factor**2 * found.unsqueeze(-3)

        if noise is not None:
            squared = squared + noise
        moments = (part.flatten(-3, -2).unsqueeze(-1) for part in (location, squared))
        mean, variance = torch.broadcast_tensors(*moments)
        return MixturePosterior(
            offset + factor * mean,
            factor**2 * variance.clamp_min(0),
            scale_matrices,
            self.weights.flatten(-2).unsqueeze(-1),
            mean.new_full(mean.shape[-3:-2], regression.degrees),
        )

    def predict(
        self,
        X: Inputs | Tensor,
        *,
        observation_noise: bool = True,
        batch_size: int = 256,
        conformal: ConformalCorrection | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Predict means and standard deviations of the mixture at clouds, without gradients.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows, of any width.
            observation_noise: Whether to return the standard deviation of a noisy observation rather
                than that of the function.
            batch_size: Number of clouds to process at a time, which bounds memory.
            conformal: Correction of the standard deviations, whose intervals then hold held-out targets
                at the level of the correction. Default: no correction.

        Returns:
            The means and the standard deviations in the units of ``train_Y``, two tensors of shape
            ``... x N``, or ``... x N x 1`` if ``train_Y`` has an axis of outputs.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor.
            ValueError: If the width of the rows does not fit the kernel, ``batch_size < 1``, or
                ``conformal`` meets ``observation_noise=False`` or another number of outputs.
        """
        check_batch_size(batch_size)
        check_conformal(conformal, observation_noise, self.num_outputs)
        self.eval()
        rows = self.model._rows_of(X)
        paired = len(self.batch_shape) > 0
        found = []
        with torch.no_grad():
            for part in (rows if paired else rows.flatten(0, -2)).split(batch_size, dim=-2):
                posterior = self._mixture(part, observation_noise, joint=False)
                found.append((posterior.mean, posterior.variance))
        mean, variance = (torch.cat(parts, dim=-2) for parts in zip(*found, strict=True))
        if not paired:
            mean, variance = (m.unflatten(-2, rows.shape[:-1]) for m in (mean, variance))
        std = variance.clamp_min(self.model.smallest_variance).sqrt()
        if self.model._squeeze_output:
            mean, std = mean.squeeze(-1), std.squeeze(-1)
        return mean, rescaled(std, conformal)

    def leave_one_out(self, *, observation_noise: bool = True) -> tuple[Tensor, Tensor]:
        r"""Predict each training cloud from all others, with the members weighted anew for each.

        Let :math:`w_k` be the weights of the members, and :math:`p_k` their densities. Without target
        ``i``, the weights are

        .. math:: w_{-i, k} \propto \frac{w_k}{p_k(y_i \mid y_{-i})}.

        Each member predicts target ``i`` in closed form, with its mean and its outputscale integrated
        over the other targets. The quadrature points, the priors, which refer to the distances between
        all training clouds, and the scale of the outcome transform stay the same.

        Args:
            observation_noise: Whether to return the standard deviation of the target rather than that
                of the function.

        Returns:
            The means and standard deviations, detached, of the shape and in the units of ``train_Y``.
            With four clouds, whose members have two degrees of freedom without one, the standard
            deviations are infinite.

        Example:
            >>> import torch
            >>> from gp_distributions import DistributionGP, PointClouds, integrate_hyperparameters
            >>> points = torch.randn(9, 20, 2, generator=torch.Generator().manual_seed(0)).double()
            >>> single = DistributionGP(PointClouds(points), points.mean((-2, -1)))
            >>> mean, std = integrate_hyperparameters(single).leave_one_out()
            >>> mean.shape, bool((std > 0).all())
            (torch.Size([9]), True)

        Source: Gelfand, Dey and Chang 1992 (the weights).
        """
        self.eval()
        with torch.no_grad():
            regression = self._regression
            left = regression.leave_one_out()
            log_weights = (regression.log_evidence + self.log_prior).unsqueeze(-1)
            weights = (log_weights - left.log_density).flatten(-3, -2).softmax(-2)
            squared = left.squared
            if not observation_noise:
                (rows,) = self.model.train_inputs
                relative = _relative_noise(
                    self.model, rows, self.ratios, self.outputscales, training=True
                )
                noise = self.ratios.unsqueeze(-1) * relative[..., None, None, :]
                squared = squared - left.outputscales * noise
            mixture = Mixture(
                weights.mT,
                (self.model.train_targets[..., None, None, :] - left.errors).flatten(-3, -2).mT,
                squared.clamp_min(0).sqrt().flatten(-3, -2).mT,
                squared.new_full(weights.shape[-2:-1], regression.degrees - 1),
            )
            offset, factor = self._units()
            mean = offset + factor * mixture.mean()
            variance = factor**2 * mixture.variance()
        std = variance.clamp_min(self.model.smallest_variance).sqrt()
        return (mean, std) if self.model._squeeze_output else (mean[..., None], std[..., None])

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
        model = copy.copy(self.model)
        likelihood = model.likelihood
        check_noise_is_kept(noise, likelihood)
        rows, targets, variances = model._observations(X, Y, noise)
        transform = getattr(model, "outcome_transform", None)
        if transform is not None:
            targets = transform(targets)[0]
        targets = targets.squeeze(-1)
        rows = model._widen_training(rows)
        if model._has_transformed_inputs:
            model._original_train_inputs = _joined(model._original_train_inputs, rows, -2)
        inputs = _joined(model.train_inputs[0], model.transform_inputs(rows), -2)
        if variances is not None:
            model.__dict__["_modules"] = dict(model._modules)  # which the copy shares
            model.likelihood = FixedNoiseGaussianLikelihood(
                _joined(likelihood.noise, variances.squeeze(-1), -1)
            )
        model.train_inputs = (inputs,)
        model.train_targets = _joined(model.train_targets, targets, -1)
        model.prediction_strategy = None
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
        transform = getattr(self.model, "outcome_transform", None)
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
    if rows.dim() == 2:
        return train
    return train.derived("members", lambda: EmbeddedRows(rows.unsqueeze(-3)))


def _with_members(rows: Tensor) -> EmbeddedRows:
    """Return test rows with an axis of members."""
    return held(rows).derived("members", lambda: EmbeddedRows(rows.unsqueeze(-3)))


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
    if isinstance(likelihood, SamplingNoiseLikelihood):
        noise = likelihood._shaped_noise_covar(rows.shape[:-1], rows).diagonal()
        return noise / likelihood.noise
    if outputscales is not None:
        relative = likelihood.noise / (ratios * outputscales).flatten()[0]
        return relative if training else relative.mean(-1, keepdim=True).expand(rows.shape[:-1])
    return torch.ones_like(rows[..., 0])


def _joined(first: Tensor, second: Tensor, axis: int) -> Tensor:
    """Join tensors along an axis from the end after broadcasting the axes before it."""
    shape = torch.broadcast_shapes(first.shape[:axis], second.shape[:axis])
    parts = (part.expand(*shape, *part.shape[axis:]) for part in (first, second))
    return torch.cat(list(parts), dim=axis)
