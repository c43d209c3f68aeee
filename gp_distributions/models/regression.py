"""Regression, whatever the way of inference: what all members predict, in the units of the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.inputs import Encoding, Inputs, counted_rows
from gp_distributions.models.ensemble import Ensemble, joined, mixed_normal
from gp_distributions.models.exact_inference import (
    ExactMultivariateNormal,
    Moments,
    marginal_moments,
)
from gp_distributions.models.observations import noise_of_outputs, observed
from gp_distributions.numerics.densities import Mixture
from gp_distributions.sharding.sharded_clouds import ShardedClouds


class Regression(Model):
    """Posteriors and predictions of numbers.

    A model predicts with ``members`` and their ``weights``: one kernel is one member, and an ensemble
    has several. The members are held in parts, each of which is a model of one member or of a batch of
    members. A way of inference provides the following, of its own kernel alone and in units of the
    transformed targets. Results of a batch have an axis of members in front of that of rows.

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
    noise: Callable[[EmbeddedRows], Tensor]

    #: The parts of an ensemble; absent from a model that is its only part.
    ensemble: Ensemble | None
    #: Whether the kernel is that of a batch of members.
    is_batch = False

    @property
    def parts(self) -> list[Any]:
        """The models that predict, each of one member or of a batch of members."""
        ensemble = self._modules.get("ensemble")
        return [self] if ensemble is None else list(ensemble.parts)

    @property
    def part_weights(self) -> Tensor:
        """The weights of the parts, which sum to one."""
        ensemble = self._modules.get("ensemble")
        return _one() if ensemble is None else ensemble.weights

    @property
    def members(self) -> list[Any]:
        """The models of one kernel each with which the model predicts; one kernel is its only member."""
        return [member for part in self.parts for member in part.unbatched()]

    @property
    def weights(self) -> Tensor:
        """The weights of the members, which sum to one, ``batch_shape x K``.

        Posterior probabilities of hyperparameters follow the training data; other weights stay.
        """
        pairs = zip(self.parts, self.part_weights, strict=True)
        weights = [weight * part.member_weights().to(weight) for part, weight in pairs]
        shape = torch.broadcast_shapes(*(each.shape[:-1] for each in weights))
        return torch.cat([each.expand(*shape, -1) for each in weights], dim=-1)

    def unbatched(self) -> list[Any]:
        """Return the members of this part as a model each."""
        return [self]

    def member_weights(self) -> Tensor:
        """Return the weights of the members of this part, ``batch_shape x K``."""
        return _one()

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
            units of ``train_Y``; of several members, a normal one with the mean and the covariance of
            their mixture.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor.
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
        rows = EmbeddedRows(self.rows_of(X))
        found = self.joint(rows, output_indices, observation_noise)
        if posterior_transform is None:
            return found
        return posterior_transform(posterior=found, X=self.transformed(rows).rows)

    def predict(
        self,
        X: Inputs | Tensor | ShardedClouds,
        *,
        observation_noise: bool = True,
        batch_size: int = 1024,
        **options: Any,
    ) -> Moments:
        """Predict means and standard deviations at clouds, without gradients.

        Those of several members are of their mixture. Intervals of the mean and a multiple of the
        standard deviation are those of a normal distribution; :meth:`interval` has those of the mixture.

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

    def interval(
        self,
        X: Inputs | Tensor | ShardedClouds,
        level: float = 0.95,
        *,
        observation_noise: bool = True,
        batch_size: int = 1024,
        **options: Any,
    ) -> Moments:
        """Predict central intervals: quantiles of the mixture of all members.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`.
            level: The probability of the intervals.
            observation_noise: Whether the intervals are those of a noisy observation rather than those
                of the function.
            batch_size: Number of clouds to process at a time, which bounds memory.
            **options: As for :meth:`predict`.

        Returns:
            The lower and the upper ends, in the shapes of :meth:`predict`.

        Raises:
            ValueError: As for :meth:`predict`, or the level is not between 0 and 1.

        Example:
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> lower, upper = DistributionGP(clouds, [0.0, 1.0, 2.0]).interval(clouds[:2], 0.9)
            >>> bool((lower < upper).all())
            True
        """
        levels = tails(level)
        options |= {"observation_noise": observation_noise, "batch_size": batch_size}
        lower, upper = self.in_batches(X, "quantiles", levels=levels, **options)
        return (lower.squeeze(-1), upper.squeeze(-1)) if self._squeeze_output else (lower, upper)

    def log_prob(
        self, X: Inputs | Tensor, Y: Tensor | ArrayLike, *, batch_size: int = 1024
    ) -> Tensor:
        """Compute log densities of the targets of clouds under the mixture of all members.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`.
            Y: Their targets, as ``train_Y``.
            batch_size: Number of clouds to process at a time, which bounds memory.

        Returns:
            A tensor of shape ``... x N``, summed over outputs.

        Raises:
            ValueError: As for :meth:`predict`, or if ``Y`` are not finite numbers of the shape of the
                predictions.

        Example:
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> DistributionGP(clouds, [0.0, 1.0, 2.0]).log_prob(clouds[:2], [0.0, 1.0]).shape
            torch.Size([2])
        """
        rows = self.rows_of(X)
        targets = observed(self, X, rows, Y, "Y").detach()
        found = self.in_batches(rows, "log_densities_at", batch_size=batch_size, beside=targets)
        return found[0].squeeze(-1)

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
        and the scale of the outcome transform stay those that were found with all clouds. Weights of
        members that are posterior probabilities are those without the cloud,
        :math:`w_{-i, k} \propto w_k / p_k(y_i \mid y_{-i})`; other weights stay.

        Args:
            observation_noise: Whether to return the standard deviation of the target rather than that
                of the function.
            **options: ``client`` and ``progress`` of sparse models, as for :meth:`predict`.

        Returns:
            The means and standard deviations, detached, of the shape and in the units of ``train_Y``.

        Raises:
            UnsupportedError: If the model is a :class:`VariationalDistributionGP`.
            ValueError: If the outcome transform is not linear; or a sparse model was loaded, without its
                training data, or the noise of a cloud is so small that :math:`1 - h / \sigma_i^2` is
                lost in rounding errors.

        Example:
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = DistributionGP(clouds, [0.0, 1.0, 2.0]).leave_one_out()
            >>> mean.shape, bool(mean[0] > 0)
            (torch.Size([3]), True)

        Sources: Sundararajan and Keerthi 2001; Rasmussen and Williams 2006, eq. 5.12; Gelfand, Dey and
        Chang 1992 (the weights).
        """
        found = self.mixture_left_out(observation_noise=observation_noise, **options)
        return self._deviations(found.mean(), found.variance())

    def rows_of(self, X: Inputs | Tensor) -> Tensor:
        """Check new inputs, and return them as rows in the precision of the model."""
        if self._input_transform is None:
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

    def transformed(self, rows: EmbeddedRows) -> EmbeddedRows:
        """Return rows after the input transform."""
        transform = self._input_transform
        if transform is None:
            return rows
        return rows.derived(
            "transformed", lambda: EmbeddedRows(self.transform_inputs(rows.rows)), by=transform
        )

    def joint(
        self, rows: EmbeddedRows, output_indices: list[int] | None, observation_noise: bool | Tensor
    ) -> Posterior:
        """Return the joint posterior at rows, in the units of the targets."""
        outputs = list(range(self.num_outputs)) if output_indices is None else output_indices
        each = zip(*self.member_normals(rows, outputs, observation_noise), strict=True)
        batched, weights = [part.is_batch for part in self.parts], self.weights
        normals = [mixed_normal(found, batched, weights) for found in each]
        return self._of_outputs(normals, self.transformed(rows).rows, output_indices)

    def member_posterior(
        self,
        X: Inputs | Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
    ) -> Posterior:
        """Compute the joint posterior of each member, ``batch_shape x K x q x outputs``.

        Args:
            X: As for :meth:`posterior`, as are the others.
            output_indices: Indices of the outputs to predict.
            observation_noise: Whether to add noise.
        """
        self.eval()
        rows = EmbeddedRows(self.rows_of(X))
        outputs = list(range(self.num_outputs)) if output_indices is None else output_indices
        batched = [part.is_batch for part in self.parts]
        normals: list[MultivariateNormal] = []
        for found in zip(*self.member_normals(rows, outputs, observation_noise), strict=True):
            dense = [normal.lazy_covariance_matrix.to_dense() for normal in found]
            mean = joined([normal.mean for normal in found], batched, -2)
            covariances = to_linear_operator(joined(dense, batched, -3))
            normals.append(ExactMultivariateNormal(mean, covariances))
        x = self.transformed(rows).rows.unsqueeze(-3)
        return self._of_outputs(normals, x, output_indices)

    def _of_outputs(
        self, normals: list[MultivariateNormal], rows: Tensor, output_indices: list[int] | None
    ) -> Posterior:
        """Return the posterior of some outputs in their units."""
        transform = self._outcome_transform
        if transform is not None and output_indices is not None:
            transform = transform.subset_output(output_indices)
        return _in_units(normals, rows, transform)

    def member_normals(
        self, rows: EmbeddedRows, outputs: list[int], observation_noise: bool | Tensor
    ) -> list[list[MultivariateNormal]]:
        """Return the joint posteriors of some outputs for each part, in transformed units."""
        found = []
        for part in self.parts:
            x = part.seen(rows)
            normals, noise = part.latent(x, outputs), part.noise_at(x, observation_noise)
            if noise is not None:
                normals = [_noisy(n, noise[..., o]) for n, o in zip(normals, outputs, strict=True)]
            if (units := self._units_of(part)) is not None:
                pairs = zip(normals, outputs, strict=True)
                normals = [_scaled(normal, *(unit[o] for unit in units)) for normal, o in pairs]
            found.append(normals)
        return found

    def member_marginals(
        self, rows: EmbeddedRows, given: Sequence[Any], observation_noise: bool | Tensor
    ) -> Mixture:
        """Return the mixture of the members at each row and output, in transformed units.

        Args:
            rows: A ``... x N x width`` tensor of rows.
            given: What each part returned from ``conditioned``.
            observation_noise: Whether the distributions are those of targets.
        """
        found = []
        for part, known in zip(self.parts, given, strict=True):
            x = part.seen(rows)
            mean, variance = part.latent_marginals(x, known)
            noise = part.noise_at(x, observation_noise)
            found.append((mean, variance if noise is None else variance + noise))
        return self._mixture(found, self.weights.unsqueeze(-2).unsqueeze(-2))

    def members_left_out(self, *, observation_noise: bool, **options: Any) -> Mixture:
        """Return the mixture of the members at each training cloud and output, given all others."""
        found, weights = [], []
        for part, share in zip(self.parts, self.part_weights, strict=True):
            mean, variance, noise = part.latent_left_out(**options)
            found.append((mean, variance + noise if observation_noise else variance))
            own = part.member_weights()
            if part.is_batch:
                errors = part.columns(part.train_targets) - mean
                squares = errors.square() / (variance + noise) + (variance + noise).log()
                own = (own[..., None, None, :].log() + squares.movedim(-3, -1) / 2).softmax(-1)
            weights.append(share * own.to(share))
        shape = torch.broadcast_shapes(*(each.shape[:-1] for each in weights))
        return self._mixture(found, torch.cat([w.expand(*shape, -1) for w in weights], dim=-1))

    def _mixture(self, moments: Sequence[Moments], weights: Tensor) -> Mixture:
        """Return the mixture of the means and variances of parts, with members in the last axis."""
        batched = [part.is_batch for part in self.parts]
        units = [self._units_of(part) or (0.0, 1.0) for part in self.parts]
        pairs = list(zip(moments, units, strict=True))
        means = joined([shift + scale * mean for (mean, _), (shift, scale) in pairs], batched, -3)
        variances = joined(
            [scale**2 * variance for (_, variance), (_, scale) in pairs], batched, -3
        )
        means, variances = torch.broadcast_tensors(means, variances)
        scales = variances.clamp_min(0).sqrt()
        return Mixture(weights.to(means), means.movedim(-3, -1), scales.movedim(-3, -1))

    def marginals(
        self, rows: EmbeddedRows, given: Sequence[Any], observation_noise: bool
    ) -> Moments:
        """Return means and variances at rows, ``... x N x outputs``, in the units of the targets."""
        found = self.member_marginals(rows, given, observation_noise)
        pairs = zip(found.mean().unbind(-1), found.variance().unbind(-1), strict=True)
        normals = [ExactMultivariateNormal(m, DiagLinearOperator(v)) for m, v in pairs]
        posterior = _in_units(normals, self.transformed(rows).rows, self._outcome_transform)
        return marginal_moments(posterior, self.smallest_variance)

    def quantiles(
        self,
        rows: EmbeddedRows,
        given: Sequence[Any],
        levels: Sequence[float],
        observation_noise: bool,
    ) -> tuple[Tensor, ...]:
        """Return quantiles at rows, ``... x N x outputs`` each, in the units of the targets."""
        found = self.member_marginals(rows, given, observation_noise)
        transform, values = self._outcome_transform, map(found.quantile, levels)
        return tuple(v if transform is None else transform.untransform(v)[0] for v in values)

    def log_densities_at(
        self, rows: EmbeddedRows, given: Sequence[Any], beside: Tensor
    ) -> tuple[Tensor]:
        """Return log densities of targets beside rows, ``... x N x 1``, in the units of the targets."""
        found = self.member_marginals(rows, given, observation_noise=True)
        if (transform := self._outcome_transform) is None:
            return (found.log_density(beside).sum(-1, keepdim=True),)
        with torch.enable_grad():
            targets = beside.clone().requires_grad_()
            values = transform(targets)[0]
            (slopes,) = torch.autograd.grad(values.sum(), targets)
        densities = found.log_density(values.detach()) + slopes.log()
        return (densities.sum(-1, keepdim=True),)

    def in_batches(
        self,
        X: Any,
        method: str,
        *,
        batch_size: int,
        beside: Tensor | None = None,
        **arguments: Any,
    ) -> tuple[Tensor, ...]:
        """Return what a method returns for inputs, of which it gets a fixed number at a time.

        Args:
            X: The inputs.
            method: Name of a method of rows and of what each part returned from ``conditioned``, like
                :meth:`marginals`.
            batch_size: The number.
            beside: A ``... x N x outputs`` tensor of which the method gets the part of its rows.
            **arguments: Further arguments of the method.
        """
        self.eval()
        rows, size = self.rows_of(X), integer(batch_size, "batch_size")
        # If train_X has a batch axis, X may have one as well, with the clouds of each model.
        paired = len(self.batch_shape) > 0
        pieces: list[dict[str, Tensor]] = [{"rows": part} for part in _split(rows, size, paired)]
        if beside is not None:
            for piece, part in zip(pieces, _split(beside, size, paired), strict=True):
                piece["beside"] = part
        with torch.no_grad():
            given = [part.conditioned() for part in self.parts]
            found = [
                getattr(self, method)(EmbeddedRows(piece.pop("rows")), given, **piece, **arguments)
                for piece in pieces
            ]
        joined = (torch.cat(parts, dim=-2).to(self.dtype) for parts in zip(*found, strict=True))
        return tuple(part if paired else part.unflatten(0, rows.shape[:-1]) for part in joined)

    def moments(self, X: Any, *, observation_noise: bool, **options: Any) -> Moments:
        """Return means and variances of predictions, ``... x N x outputs``."""
        mean, variance = self.in_batches(
            X, "marginals", observation_noise=observation_noise, **options
        )
        return mean, variance

    def mixture(
        self,
        X: Inputs | Tensor | ShardedClouds,
        *,
        observation_noise: bool = True,
        batch_size: int = 1024,
        **options: Any,
    ) -> Mixture:
        """Return the mixture of all members, ``... x N x outputs``, in the units of the targets.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`, as are the others.
            observation_noise: Whether the distributions are those of noisy observations.
            batch_size: Number of clouds to process at a time, which bounds memory.
            **options: As for :meth:`predict`.

        Raises:
            ValueError: As for :meth:`predict`, or if the outcome transform is not linear.
        """
        options |= {"observation_noise": observation_noise, "batch_size": batch_size}
        found = self.in_batches(X, "member_moments", **options)
        location, scale = (part.unflatten(-1, (self.num_outputs, -1)) for part in found)
        return self._of_targets(Mixture(self.weights.unsqueeze(-2).unsqueeze(-2), location, scale))

    def member_moments(
        self, rows: EmbeddedRows, given: Sequence[Any], observation_noise: bool
    ) -> Moments:
        """Return means and deviations of members, ``... x N x (outputs * K)``, in transformed units."""
        found = self.member_marginals(rows, given, observation_noise)
        return found.location.flatten(-2), found.scale.flatten(-2)

    def mixture_left_out(self, *, observation_noise: bool = True, **options: Any) -> Mixture:
        """Return the mixture of leave-one-out predictions, as :meth:`mixture` does."""
        self.eval()
        with torch.no_grad():
            return self._of_targets(
                self.members_left_out(observation_noise=observation_noise, **options)
            )

    def _of_targets(self, found: Mixture) -> Mixture:
        """Convert mixtures from transformed units to those of the targets."""
        transform = self._outcome_transform
        if transform is not None and not transform._is_linear:
            raise ValueError(
                f"Expected a linear outcome transform, got {type(transform).__name__}, under which "
                "predictions are not normal. Transform the targets before they are passed to the model."
            )
        mean, variance = found.location.movedim(-1, 0), found.scale.movedim(-1, 0).square()
        if transform is not None:
            mean, variance = transform.untransform(mean, variance)
        moments = mean, variance.clamp_min(self.smallest_variance).sqrt()
        location, scale = (part.movedim(0, -1).to(self.dtype) for part in moments)
        return Mixture(found.weights.to(location), location, scale)

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

    def seen(self, rows: EmbeddedRows) -> EmbeddedRows:
        """Return transformed rows as this part sees them, for a batch with an axis of members."""
        rows = self.transformed(rows)
        if not self.is_batch or rows.rows.dim() == 2:
            return rows
        return rows.derived("members", lambda: EmbeddedRows(rows.rows.unsqueeze(-3)))

    def _units_of(self, part: Any) -> tuple[Tensor, Tensor] | None:
        """Return zero and the unit of transformed targets of a part, in those of this model.

        They are tensors of the length of the outputs; None if both are the same.
        """
        own, other = self._outcome_transform, part._outcome_transform
        if own is other:
            return None
        ends = part.train_targets.new_tensor([[0.0], [1.0]]).expand(-1, self.num_outputs)
        if other is not None:
            ends = other.untransform(ends)[0]
        zero, one = ends if own is None else own(ends)[0]
        return zero, one - zero

    def noise_at(self, rows: EmbeddedRows, observation_noise: bool | Tensor) -> Tensor | None:
        """Return noise variances at transformed rows, if there is noise to add."""
        if isinstance(observation_noise, Tensor):
            noise = noise_of_outputs(observation_noise, self.num_outputs)
            return noise.unsqueeze(-3) if self.is_batch else noise
        return self.noise(rows) if observation_noise else None

    def _deviations(self, mean: Tensor, variance: Tensor) -> Moments:
        """Return means and standard deviations, without an axis of outputs if the targets have none."""
        std = variance.sqrt()
        return (mean.squeeze(-1), std.squeeze(-1)) if self._squeeze_output else (mean, std)


def _one() -> Tensor:
    """Return the weight of a single member, whatever the default device."""
    return torch.ones(1, dtype=torch.float64, device="cpu")


def tails(level: float) -> tuple[float, float]:
    """Return the probabilities below the ends of a central interval.

    Raises:
        ValueError: If the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"Expected a level between 0 and 1, got {level!r}.")
    return (1 - level) / 2, (1 + level) / 2


def _split(values: Tensor, size: int, paired: bool) -> tuple[Tensor, ...]:
    return (values if paired else values.flatten(0, -2)).split(size, dim=-2)


def _noisy(normal: MultivariateNormal, noise: Tensor) -> MultivariateNormal:
    mean = normal.mean
    added = DiagLinearOperator(noise.expand(mean.shape).to(mean))
    return type(normal)(mean, normal.lazy_covariance_matrix + added)


def _scaled(normal: MultivariateNormal, shift: Tensor, scale: Tensor) -> MultivariateNormal:
    return type(normal)(shift + scale * normal.mean, normal.lazy_covariance_matrix * scale**2)


def _in_units(
    normals: list[MultivariateNormal], rows: Tensor, transform: OutcomeTransform | None
) -> Posterior:
    """Return the posterior of independent outputs in the units of the targets."""
    several = MultitaskMultivariateNormal.from_independent_mvns
    posterior = GPyTorchPosterior(normals[0] if len(normals) == 1 else several(normals))
    return posterior if transform is None else transform.untransform_posterior(posterior, X=rows)
