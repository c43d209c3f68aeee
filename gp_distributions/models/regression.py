"""Regression, whatever the way of inference: posteriors and predictions in the units of the targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.inputs import Encoding, Inputs
from gp_distributions.measures.training_data import counted_rows
from gp_distributions.models.arguments import keeps_clouds
from gp_distributions.models.exact_inference import (
    ExactMultivariateNormal,
    Moments,
    marginal_moments,
)
from gp_distributions.models.observations import noise_of_outputs
from gp_distributions.sharding.sharded_clouds import ShardedClouds


class Regression(Model):
    """Posteriors and predictions of numbers.

    A way of inference provides the following, in units of the transformed targets.

    Attributes:
        conditioned: Function that returns what predictions need of the training clouds.
        latent: Function of ``... x q x width`` rows and indices of outputs that returns the joint
            posterior of the latent function of each of them.
        latent_marginals: Function of ``... x N x width`` rows and of what ``conditioned`` returns, that
            returns the means and variances of the latent functions, ``... x N x outputs``.
        latent_left_out: Function that returns the same for each training cloud, given all others, and
            the noise variances.
        noise: Function of rows that returns noise variances, ``... x N x outputs`` or broadcasting.
    """

    covar_module: Kernel
    likelihood: Likelihood
    encoding: Encoding | None
    _squeeze_output: bool

    conditioned: Callable[..., Any]
    latent: Callable[..., list[MultivariateNormal]]
    latent_marginals: Callable[..., Moments]
    latent_left_out: Callable[..., tuple[Tensor, Tensor, Tensor]]
    noise: Callable[[Tensor], Tensor]

    def _register_load_state_dict_pre_hook(self, hook: Any, with_module: bool = False) -> Any:
        # GPyTorch registers a method of the module, which reshapes its own parameters. Models have
        # none to reshape, and with this reference to themselves, all that they hold would stay in
        # memory until the garbage collector runs, which counts objects and not bytes.
        if getattr(hook, "__self__", None) is self:
            return None
        return super()._register_load_state_dict_pre_hook(hook, with_module)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the predictions."""
        raise NotImplementedError

    def posterior(
        self,
        X: Inputs | Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Compute the joint posterior at clouds, with gradients, as BoTorch's ``SingleTaskGP`` does.

        Gradients with respect to the clouds are complete. As in GPyTorch, those with respect to
        hyperparameters leave out the training data, and parameters of distances get none, unless the
        posterior of an exact model is computed within
        ``gpytorch.settings.detach_test_caches(False)``.

        Args:
            X: Clouds, or a ``batch_shape x q x m*(d+1)`` tensor of rows, of any width. They are
                converted to the dtype of the model.
            output_indices: Indices of the outputs to predict. The default is all outputs.
            observation_noise: Whether to add the noise of the likelihood, or a
                ``batch_shape x q x outputs`` tensor of noise variances to add instead, in units of the
                transformed targets.
            posterior_transform: BoTorch transform of the posterior.

        Returns:
            The joint posterior of ``q`` clouds, a ``batch_shape x q x outputs`` distribution in the
            units of ``train_Y``; of mixtures, a :class:`MixturePosterior`.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor, or the posterior of a
                member of a mixture is neither normal nor a mixture, for example because of an outcome
                transform that is not linear.
            ValueError: If the width of the rows does not fit the kernel, or an output does not exist.

        Example:
            >>> import torch
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> points = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(0)).double()
            >>> model = DistributionGP(PointClouds(points), points.mean((-2, -1)))
            >>> posterior = model.posterior(PointClouds(points[:3]))
            >>> posterior.mean.shape, posterior.rsample(torch.Size([5])).shape
            (torch.Size([3, 1]), torch.Size([5, 3, 1]))
        """
        self.eval()
        if output_indices is not None:
            number = self.num_outputs
            if not all(-number <= index < number for index in output_indices):
                raise ValueError(
                    f"Expected output_indices from 0 to {number - 1}, got {output_indices}."
                )
            output_indices = [index % number for index in output_indices]
        rows = self.transform_inputs(self.rows_of(X))
        found = self.joint(rows, output_indices, observation_noise)
        return (
            found if posterior_transform is None else posterior_transform(posterior=found, X=rows)
        )

    def predict(
        self,
        X: Inputs | Tensor | ShardedClouds,
        *,
        observation_noise: bool = True,
        batch_size: int = 1024,
        **options: Any,
    ) -> Moments:
        """Predict means and standard deviations at clouds, without gradients.

        Those of a mixture over models or hyperparameters are of the mixture. Intervals of the mean and
        a multiple of the standard deviation are those of a normal distribution; the quantiles of
        ``posterior`` are those of the mixture.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows, of any width. They are
                converted to the dtype of the model, which is that of ``train_X``. A batch of models
                takes the clouds of each model, or the same clouds for all. A sparse model also takes
                :class:`ShardedClouds`, which are read and predicted piece by piece.
            observation_noise: Whether to return the standard deviation of a noisy observation rather
                than that of the function.
            batch_size: Number of clouds to process at a time, which bounds memory.
            **options: Of sparse models: ``client``, a client of ``dask.distributed`` whose workers
                predict :class:`ShardedClouds`, and first form the sums if the model has none at its
                hyperparameters; and ``progress``, whether to show a progress bar if a pass over data
                takes more than a few seconds, which is the default. Of models of counts and shares:
                ``exposure`` or ``trials`` of the clouds, 1 by default. Without ``observation_noise``,
                their standard deviation is that of the expectation, such as a rate times the exposure.

        Returns:
            The means and the standard deviations in the units of ``train_Y``, two tensors of shape
            ``... x N``, or ``... x N x outputs`` if ``train_Y`` has an axis of outputs.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor.
            ValueError: If the width of the rows does not fit the kernel, ``batch_size < 1``, or there
                is a client but no :class:`ShardedClouds`.
            PieceError: If a piece cannot be read; the message names its file.

        Example:
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = DistributionGP(clouds, [0.0, 1.0, 2.0]).predict(clouds[:2])
            >>> mean.shape, bool(mean[0] < mean[1])
            (torch.Size([2]), True)
        """
        options |= {"observation_noise": observation_noise, "batch_size": batch_size}
        return self._deviations(*self.moments(X, **options))

    def leave_one_out(self, *, observation_noise: bool = True, **options: Any) -> Moments:
        r"""Predict each training cloud from all others, at the current hyperparameters.

        With :math:`C = K + \Sigma` the covariance matrix of the targets, :math:`\Sigma` the diagonal
        matrix of their noise variances :math:`\sigma_i^2`, and :math:`\mu` the prior mean, the mean and
        variance of the function at cloud ``i``, given the targets of all other clouds, are

        .. math::
            y_i - \frac{[C^{-1} (y - \mu)]_i}{[C^{-1}]_{ii}}, \qquad
            \frac{1}{[C^{-1}]_{ii}} - \sigma_i^2.

        One Cholesky factor and its inverse serve all clouds. In a sparse model, leaving out a cloud
        subtracts one term from each sum: with :math:`h = \phi_i^\top B^{-1} \phi_i` and the posterior
        mean :math:`m_i`, the mean and variance are

        .. math::
            y_i - \frac{y_i - m_i}{1 - h / \sigma_i^2}, \qquad
            k(P_i, P_i) - |\phi_i|^2 + \frac{h}{1 - h / \sigma_i^2},

        which takes a second pass over the data. The hyperparameters, the inducing clouds, and the mean
        and the scale of the outcome transform stay those that were found with all clouds, and so do the
        weights of a :class:`MixtureModel`. The members of an :class:`IntegratedGP` are weighted anew
        without each cloud, :math:`w_{-i, k} \propto w_k / p_k(y_i \mid y_{-i})`.

        Args:
            observation_noise: Whether to return the standard deviation of the target rather than that
                of the function.
            **options: ``client`` and ``progress`` of sparse models, as for :meth:`predict`.

        Returns:
            The means and standard deviations, detached, of the shape and in the units of ``train_Y``.
            With four clouds, those of an :class:`IntegratedGP` are infinite.

        Raises:
            TypeError: If a member of a mixture is no model of this package.
            UnsupportedError: If the model, or a member, is a :class:`VariationalDistributionGP`.
            ValueError: If the outcome transform is not linear; a sparse model was loaded, without its
                training data, or the noise of a cloud is so small that :math:`1 - h / \sigma_i^2` is
                lost in rounding errors; or members of a mixture have other training targets, or the
                same ones in another order.

        Example:
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = DistributionGP(clouds, [0.0, 1.0, 2.0]).leave_one_out()
            >>> mean.shape, bool(mean[0] > 0)
            (torch.Size([3]), True)

        Sources: Sundararajan and Keerthi 2001; Rasmussen and Williams 2006, eq. 5.12; Gelfand, Dey and
        Chang 1992 (the weights).
        """
        return self._deviations(
            *self.moments_left_out(observation_noise=observation_noise, **options)
        )

    def rows_of(self, X: Inputs | Tensor) -> Tensor:
        """Check new inputs, and return them as rows in the precision of the model."""
        if keeps_clouds(self._input_transform):
            check_kind(X, self.covar_module, self.encoding)
        return counted_rows(X, self.encoding).to(self._computed_in)

    @property
    def smallest_variance(self) -> float:
        """Lower bound of predicted variances, in the units of the original targets.

        The bound is ``gpytorch.settings.min_variance``, converted from standardised units if necessary.
        """
        smallest: float = gpytorch.settings.min_variance.value(self._computed_in)
        transform = self._outcome_transform
        if isinstance(transform, Standardize):
            smallest *= transform.stdvs.min().item() ** 2
        return smallest

    def joint(
        self, rows: Tensor, output_indices: list[int] | None, observation_noise: bool | Tensor
    ) -> Posterior:
        """Return the joint posterior at transformed rows, in the units of the targets."""
        outputs = list(range(self.num_outputs)) if output_indices is None else output_indices
        normals, noise = self.latent(rows, outputs), self._noise_at(rows, observation_noise)
        if noise is not None:
            normals = [_noisy(n, noise[..., o]) for n, o in zip(normals, outputs, strict=True)]
        transform = self._outcome_transform
        if transform is not None and output_indices is not None:
            transform = transform.subset_output(outputs)
        return _in_units(normals, rows, transform)

    def marginals(self, rows: Tensor, given: Any, observation_noise: bool) -> Moments:
        """Return means and variances at transformed rows, ``... x N x outputs``, in those units."""
        mean, variance = self.latent_marginals(rows, given)
        noise = self._noise_at(rows, observation_noise)
        variance = variance if noise is None else variance + noise
        pairs = zip(mean.unbind(-1), variance.unbind(-1), strict=True)
        normals = [ExactMultivariateNormal(m, DiagLinearOperator(v)) for m, v in pairs]
        posterior = _in_units(normals, rows, self._outcome_transform)
        return marginal_moments(posterior, self.smallest_variance)

    def in_batches(
        self, X: Any, method: str, *, batch_size: int, **arguments: Any
    ) -> tuple[Tensor, ...]:
        """Return what a method returns for inputs, of which it gets a fixed number at a time.

        Args:
            X: The inputs.
            method: Name of a method of transformed rows, like :meth:`marginals`.
            batch_size: The number.
            **arguments: Further arguments of the method.
        """
        self.eval()
        rows, size = self.rows_of(X), integer(batch_size, "batch_size")
        # If train_X has a batch axis, X may have one as well, with the clouds of each model.
        paired = len(self.batch_shape) > 0
        with torch.no_grad():
            given = self.conditioned()
            found = [
                getattr(self, method)(self.transform_inputs(part), given, **arguments)
                for part in (rows if paired else rows.flatten(0, -2)).split(size, dim=-2)
            ]
        joined = (torch.cat(parts, dim=-2).to(self.dtype) for parts in zip(*found, strict=True))
        return tuple(part if paired else part.unflatten(0, rows.shape[:-1]) for part in joined)

    def moments(self, X: Any, *, observation_noise: bool, **options: Any) -> Moments:
        """Return means and variances of predictions, ``... x N x outputs``."""
        mean, variance = self.in_batches(
            X, "marginals", observation_noise=observation_noise, **options
        )
        return mean, variance

    def moments_left_out(self, *, observation_noise: bool, **options: Any) -> Moments:
        """Return means and variances of leave-one-out predictions, ``... x T x outputs``."""
        transform = self._outcome_transform
        if transform is not None and not transform._is_linear:
            raise ValueError(
                f"Expected a linear outcome transform, got {type(transform).__name__}, under which "
                "predictions are not normal. Transform the targets before they are passed to the model."
            )
        self.eval()
        with torch.no_grad():
            mean, variance, noise = self.latent_left_out(**options)
            variance = variance + noise if observation_noise else variance
            if transform is not None:
                mean, variance = transform.untransform(mean, variance)
            return mean.to(self.dtype), variance.clamp_min(self.smallest_variance).to(self.dtype)

    @property
    def noise_is_known(self) -> bool:
        """Whether noise variances of the training targets are known, rather than learned."""
        return isinstance(self.likelihood, FixedNoiseGaussianLikelihood)

    @property
    def _computed_in(self) -> torch.dtype:
        """Precision of the computations."""
        return self.dtype

    @property
    def _input_transform(self) -> Any:
        return getattr(self, "input_transform", None)

    @property
    def _outcome_transform(self) -> OutcomeTransform | None:
        return getattr(self, "outcome_transform", None)

    def _noise_at(self, rows: Tensor, observation_noise: bool | Tensor) -> Tensor | None:
        if isinstance(observation_noise, Tensor):
            return noise_of_outputs(observation_noise, self.num_outputs)
        return self.noise(rows) if observation_noise else None

    def _deviations(self, mean: Tensor, variance: Tensor) -> Moments:
        """Return means and standard deviations, without an axis of outputs if the targets have none."""
        std = variance.sqrt()
        return (mean.squeeze(-1), std.squeeze(-1)) if self._squeeze_output else (mean, std)


def _noisy(normal: MultivariateNormal, noise: Tensor) -> MultivariateNormal:
    mean = normal.mean
    added = DiagLinearOperator(noise.expand(mean.shape).to(mean))
    return type(normal)(mean, normal.lazy_covariance_matrix + added)


def _in_units(
    normals: list[MultivariateNormal], rows: Tensor, transform: OutcomeTransform | None
) -> Posterior:
    """Return the posterior of independent outputs in the units of the targets."""
    several = MultitaskMultivariateNormal.from_independent_mvns
    posterior = GPyTorchPosterior(normals[0] if len(normals) == 1 else several(normals))
    return posterior if transform is None else transform.untransform_posterior(posterior, X=rows)
