"""Exact Gaussian process regression on distributions, as a BoTorch model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Self, TypeVar

import botorch
import gpytorch
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils import add_output_dim
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from linear_operator import LinearOperator, to_linear_operator
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Normal
from torch.nn import Module

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, state_of
from gp_distributions.hosts import DefaultType
from gp_distributions.kernels.copies import taken
from gp_distributions.kernels.covariances import LazyCovariance, covariance
from gp_distributions.measures.inputs import Inputs, TrainingData
from gp_distributions.models.arguments import (
    SamplingNoise,
    adapt_kernel,
    bags_of_unlike_sizes,
    check_likelihood,
    check_noise,
    chooses_metric,
    kernel_for,
    noise_for,
    standardize,
)
from gp_distributions.models.choice import Choice
from gp_distributions.models.ensemble import mixed_normal
from gp_distributions.models.exact_inference import Conditioned, ExactMultivariateNormal, Moments
from gp_distributions.models.observations import check_noise_is_kept, mean_noise, observed
from gp_distributions.models.regression import Regression
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.rows.clouds import pad_rows, rows_at, same_tensor
from gp_distributions.rows.tensors import check_content

ModuleT = TypeVar("ModuleT", bound=Module)


class DistributionGP(Regression, SingleTaskGP):
    r"""Exact Gaussian process regression on distributions.

    With targets :math:`y`, covariances :math:`K`, constant mean :math:`\mu` and noise variance
    :math:`\sigma^2`, the posterior has the mean and the variance

    .. math::
        m(P) = \mu + k(P)^\top (K + \sigma^2 I)^{-1} (y - \mu), \qquad
        v(P) = k(P, P) - k(P)^\top (K + \sigma^2 I)^{-1} k(P).

    With a zero mean and without an outcome transform, :math:`m` is kernel ridge regression with
    :math:`\lambda T = \sigma^2 /` outputscale. All computations use Cholesky factors, for any number of
    clouds and any GPyTorch settings.

    The model is a BoTorch model: ``posterior``, acquisition functions, ``condition_on_observations``,
    ``fantasize`` and ``subset_output`` work as for ``SingleTaskGP``. Several outputs are modelled
    independently on the same clouds.

    Args:
        train_X: The ``T`` training clouds, as :class:`PointClouds`, :class:`Gaussians`,
            :class:`GaussianMixtures`, :class:`MixedInputs` or a ``batch_shape x T x m*(d+1)`` tensor of
            rows; or a tensor of designs with an ``input_transform`` that maps them to rows. Training
            data are detached from the graph, and their dtype becomes the dtype of the model.
        train_Y: The targets, ``T`` or ``T x outputs``, as a tensor or an array.
        covar_module: A kernel on rows. The default for :class:`PointClouds` and :class:`Gaussians` is a
            scaled Matern 5/2 kernel of ``SlicedWasserstein`` for each output, inside a
            :class:`ScaledDistance`, which measures each coordinate in its spread over the training
            atoms, and sees the sizes of bags if they vary. For :class:`MixedInputs` it is
            ``mixed_kernel(train_X)``. A kernel that is passed reads coordinates in their own units. If
            it has no outputscale, the model puts it into a ``ScaleKernel``, whose outputscale is one
            before a fit; to fix it, pass ``ScaleKernel(kernel)`` with
            ``raw_outputscale.requires_grad_(False)``.
        likelihood: The likelihood. Its noise is in units of the transformed targets, which are
            standardised by default. The default is Gaussian noise with BoTorch's log-normal prior and,
            in double precision, a lower bound of 1e-8 instead of 1e-4.
        mean_module: The mean. The default is a constant.
        outcome_transform: The transform of the targets. The default is BoTorch's ``Standardize``,
            adapted to targets in any unit; ``None`` leaves the targets as they are.
        train_Yvar: Known noise variances of the targets, used in place of a likelihood. They have the
            shape of ``train_Y`` and its squared units. The noise variance at new clouds is then the mean
            of ``train_Yvar``, as in BoTorch.
        input_transform: A transform from the model's inputs to rows: a :class:`Decoder`, or another
            BoTorch transform.
        sampling_noise: Whether smaller bags have more noise, that of a
            :class:`SamplingNoiseLikelihood`, whose coefficient :func:`fit` learns. Default: whether the
            inputs are bags of samples that vary in size, without a likelihood or known variances. With
            ``True``, :func:`fit` learns it even if all training bags have one size, from subsets of
            their atoms. Of :class:`MixedInputs` with several bags, the name of the block whose bags are
            the samples.

    Raises:
        TypeError: If ``train_X`` is neither distributions nor a dense tensor, ``covar_module`` is not
            a kernel, or ``input_transform`` is not a transform of BoTorch.
        ValueError: If the numbers of clouds and targets differ; a target is not finite; a variance is
            not positive; the index of ``train_Y`` names the clouds in another order; ``covar_module`` is
            needed but not given, or does not read the distributions in ``train_X``; the length of a
            fixed noise is not ``T``; more than one of ``likelihood``, ``train_Yvar`` and
            ``sampling_noise`` is given;
            or ``sampling_noise`` names no block, or is combined with a kernel that does not read each
            row as one cloud.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, fit
        >>> points = torch.randn(11, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> model = fit(DistributionGP(clouds[:9], targets[:9]), restarts=0)
        >>> mean, std = model.predict(clouds[9:])
        >>> bool(((mean - targets[9:]).abs() < 3 * std).all())
        True
    """

    train_inputs: tuple[Tensor, ...]
    prediction_strategy: Conditioned | None
    choice: Choice | None
    chooses_metric: bool
    log_importance: Tensor
    _shares_kernel: ClassVar[bool] = False
    # The class that represents the prior distribution.
    _normal: ClassVar[type[ExactMultivariateNormal]] = ExactMultivariateNormal
    _original_train_inputs: Tensor
    # The training rows, the state of their transform, and what holds what was computed.
    _held: tuple[Tensor, Hashable, EmbeddedRows] | None

    def __init__(
        self,
        train_X: Inputs | Tensor | TrainingData,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        train_Yvar: Tensor | ArrayLike | None = None,
        input_transform: InputTransform | None = None,
        sampling_noise: SamplingNoise = None,
    ) -> None:
        data = TrainingData.read(train_X, train_Y, train_Yvar)
        check_noise(likelihood, data.variances, sampling_noise)
        rows, targets = data.rows, data.targets.to(data.rows)
        variances = None if data.variances is None else data.variances.to(rows)
        batch_shape = self.get_batch_dimensions(rows, targets)[1]
        chooses = chooses_metric(data.X, covar_module)
        covar_module = kernel_for(
            data.X, covar_module, input_transform, batch_shape, shared=self._shares_kernel
        )
        adapts = False
        if likelihood is not None:
            check_likelihood(likelihood, rows.shape[-2])
        elif variances is None:
            likelihood = noise_for(covar_module, data.X, rows.dtype, sampling_noise, batch_shape)
            adapts = isinstance(likelihood, SamplingNoiseLikelihood)
        if isinstance(outcome_transform, DefaultType):
            outcome_transform = standardize(targets)
        super().__init__(
            rows,
            targets,
            variances,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        with torch.no_grad():
            clouds = self.transform_inputs(rows)
            self.unit_findings = adapt_kernel(self.covar_module, data.X, clouds)
            if adapts:
                self.likelihood.adapt(clouds)
        self.encoding = data.encoding
        self._held = None
        self.ensemble = None
        self.choice = None
        self.chooses_metric = chooses
        self.unlike_bags = tuple(bags_of_unlike_sizes(data.X))
        self._squeeze_output = data.squeeze
        self._subset_batch_dict = _output_axes(self, batch_shape) if targets.shape[-1] > 1 else {}

    def with_kernel(self, covar_module: Kernel) -> Self:
        """Return a model of the same data with another kernel, and copies of the noise and the mean."""
        other = _copied(self)
        other.covar_module, other.ensemble, other.choice = covar_module, None, None
        other.likelihood = copy.deepcopy(self.likelihood)
        other.mean_module = copy.deepcopy(self.mean_module)
        other.prediction_strategy = None
        return other

    def subset(self, index: Tensor) -> Self:
        """Return a model of some of the training clouds that shares all parameters with this one.

        Args:
            index: Numbers of the clouds.

        Returns:
            A model whose targets are in the same units. Both models are in training mode.
        """
        (rows,) = self.train_inputs
        whole = self.embedded_rows(rows)
        # Outputs share their rows, which are expanded, so only those of the first are copied.
        shared = rows.narrow(-3, 0, 1) if rows.dim() > 2 and rows.stride(-3) == 0 else rows
        chosen = rows_at(shared, index).expand(*rows.shape[:-2], len(index), rows.shape[-1])
        part = _copied(self)
        part.ensemble = None
        part.likelihood = self._likelihood_of(index)
        part.set_train_data(chosen, self.train_targets[..., index], strict=False)
        if self._input_transform is None and part.train_inputs[0] is chosen:
            part._held = chosen, None, whole.take(index, chosen)
        return part

    def _likelihood_of(self, index: Tensor) -> Likelihood:
        """Return the likelihood of some training clouds, which shares parameters with that of all."""
        if not self.noise_is_known:
            return self.likelihood
        part = copy.deepcopy(self.likelihood)
        part.noise_covar.noise = self.likelihood.noise_covar.noise[..., index]
        return part

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at the rows ``x``, a ``batch_shape x N x m*(d+1)`` tensor."""
        if self.training:
            return self._prior(x)
        # The kernel stays lazy: GPyTorch needs only a part of the covariances of training clouds
        # and fantasies.
        whole = EmbeddedRows(x)
        rows = self._compared(whole).rows
        return self._prior_at(whole, LazyCovariance(rows, rows, kernel=self.covar_module))

    def _prior(self, rows: Tensor) -> ExactMultivariateNormal:
        """Return the prior at the training rows."""
        train = self.embedded_rows(rows)
        return self._prior_at(train, covariance(self.covar_module, self._compared(train)))

    def _prior_at(
        self, rows: EmbeddedRows, covariances: Tensor | LinearOperator
    ) -> ExactMultivariateNormal:
        prior = self._normal(self.mean_module(rows.rows), to_linear_operator(covariances))
        prior.rows = rows
        return prior

    def _compared(self, rows: EmbeddedRows) -> EmbeddedRows:
        """Return the rows on which the kernel is evaluated: here, the rows of all outputs."""
        return rows

    def embedded_rows(self, rows: Tensor) -> EmbeddedRows:
        """Return rows, transformed in training mode, with what was computed from the training rows."""
        transform = self._input_transform if self.training else None
        key = state_of(transform)
        if self._held is not None and self._held[0] is rows and self._held[1] == key:
            return self._held[2]
        found = EmbeddedRows(self.transform_inputs(rows) if self.training else rows)
        if rows is self.train_inputs[0] and not found.rows.requires_grad:
            self._held = rows, key, found
        return found

    @property
    def compared_rows(self) -> EmbeddedRows:
        """The training rows, transformed, on which the kernel is evaluated."""
        return self._compared(self.embedded_rows(self.train_inputs[0]))

    def share_rows(self, other: DistributionGP) -> None:
        """Use what another model has computed from training rows, if they are the same.

        Args:
            other: A model whose kernel may have distances in common with the kernel of this one.
        """
        (own,), (rows,) = self.train_inputs, other.train_inputs
        if self._held is None and self._input_transform is None and same_tensor(own, rows):
            self._held = own, None, other.embedded_rows(rows)

    def __call__(self, *args: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the prior in training mode and the posterior in evaluation mode, as in GPyTorch."""
        if self.training and args[0] is self.train_inputs[0]:
            return self.forward(*args)  # avoids GPyTorch's comparison of all rows
        for rows in args:
            check_content(rows)
        if self.training or gpytorch.settings.prior_mode.on() or self.train_inputs is None:
            return super().__call__(*args, **kwargs)
        held = EmbeddedRows(args[0])
        normals = [part.latent_at(held) for part in self.parts]
        return mixed_normal(normals, [part.is_batch for part in self.parts], self.weights)

    def latent_at(self, rows: EmbeddedRows) -> ExactMultivariateNormal:
        """Return the joint posterior of this kernel at transformed rows, an axis of outputs included."""
        # Training clouds are represented first, for their own covariances, and not anew beside others.
        given = DistributionGP.conditioned(self)
        to_train, within = self._covariances_at(rows)
        fitted, explained = given.joint(to_train)
        mean, covariances = self.mean_module(rows.rows) + fitted, within - explained
        batch_shape = torch.broadcast_shapes(mean.shape[:-1], covariances.shape[:-2])
        posterior = ExactMultivariateNormal(
            mean.expand(*batch_shape, -1),
            to_linear_operator(covariances.expand(*batch_shape, -1, -1)),
        )
        posterior.rows = rows.rows
        return posterior

    def set_train_data(
        self,
        inputs: Tensor | Iterable[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the training data, as in GPyTorch; hyperparameters and transforms stay as they are.

        Args:
            inputs: New training inputs in the shape of ``train_inputs`` and, in evaluation mode too, as
                they are before the input transform.
            targets: New transformed targets, in the shape of ``train_targets``.
            strict: Whether the new data must have the shape, dtype and device of the old.

        Raises:
            RuntimeError: If ``strict`` and they do not.
            TypeError: If ``inputs`` are not tensors.
        """
        if inputs is not None:
            inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
            for rows in inputs:
                check_content(rows)
        transformed = self._has_transformed_inputs
        self._revert_to_original_inputs()
        try:
            super().set_train_data(inputs, targets, strict)
            for part in self.parts:
                if part is not self:
                    part.set_train_data(inputs, targets, strict)
        finally:
            if transformed:
                self._set_transformed_inputs()

    def _key(self) -> Hashable:
        """Return a key of all from which caches are computed, beside the training data."""
        modules = self.covar_module, self.mean_module, self.likelihood
        return self.integrates_level, *map(state_of, modules)

    def _covariances_at(self, rows: EmbeddedRows, *, diag: bool = False) -> tuple[Tensor, Tensor]:
        """Return covariances of rows with the training rows, and within the rows."""
        compared = self._compared(rows)
        to_train = covariance(self.covar_module, compared, self.compared_rows)
        return to_train, covariance(self.covar_module, compared, diag=diag)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model."""
        return self.train_targets.dtype

    def conditioned(self) -> Any:
        """Return what predictions need of the training data, and keep it until the model changes."""
        known, key = self.prediction_strategy, self._key()
        if known is not None and known.is_of(key):
            return known
        (rows,) = self.train_inputs
        with torch.set_grad_enabled(torch.is_grad_enabled() and _caches_tracked()):
            prior = self._prior(rows)
            noisy = self.likelihood(prior, [rows]).lazy_covariance_matrix.to_dense()
            errors = self.train_targets - prior.loc
            found = Conditioned(cholesky(noisy), errors, level=self.integrates_level, key=key)
        # What tracks gradients serves one backward pass, so it is not kept.
        if not found.mean_cache.requires_grad:
            self.prediction_strategy = found
        return found

    def latent(self, rows: EmbeddedRows, outputs: list[int]) -> list[MultivariateNormal]:
        """Return the joint posterior of each of some outputs at ``... x q x width`` rows."""
        if self.num_outputs == 1:
            return [self.latent_at(rows)]
        axis = len(torch.broadcast_shapes(rows.rows.shape[:-2], self._input_batch_shape))
        distribution = self.latent_at(self._of_each_output(rows))
        return [distribution[(slice(None),) * axis + (output,)] for output in outputs]

    def latent_marginals(self, rows: EmbeddedRows, given: Any) -> Moments:
        """Return means and variances at ``... x N x width`` rows, ``... x N x outputs``."""
        rows = self._of_each_output(rows)
        to_train, prior = self._covariances_at(rows, diag=True)
        fitted, explained = given.marginals(to_train)
        moments = torch.broadcast_tensors(self.mean_module(rows.rows) + fitted, prior - explained)
        mean, variance = map(self.columns, moments)
        return mean, variance

    def latent_left_out(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, variances and noise variances, ``... x T x outputs``, without each cloud."""
        given, targets = self.conditioned(), self.train_targets
        noise = self._noise_of(self.train_inputs[0], targets.shape)
        mean = targets - given.mean_cache / given.precision
        moments = torch.broadcast_tensors(mean, 1 / given.precision - noise, noise)
        mean, variance, noise = map(self.columns, moments)
        return mean, variance, noise

    def noise(self, rows: EmbeddedRows) -> Tensor:
        """Return noise variances at rows; if those of the training clouds are known, their mean."""
        if self.noise_is_known:
            return mean_noise(self.likelihood.noise, rows.rows, self.num_outputs)
        rows = self._of_each_output(rows)
        shape = torch.broadcast_shapes(rows.rows.shape[:-1], (*self.train_targets.shape[:-1], 1))
        return self.columns(self._noise_of(rows, shape))

    def log_densities(self, mean: Tensor, variance: Tensor, noise: Tensor, index: Tensor) -> Tensor:
        """Return log densities of training targets, averaged over outputs, a tensor of length ``N``.

        Args:
            mean: Means of the function at ``N`` training clouds, ``N x outputs``.
            variance: Variances of the function, as ``mean``.
            noise: Noise variances, as ``mean``.
            index: Numbers of the clouds.
        """
        targets = self.columns(self.train_targets[..., index])
        normal = Normal(mean, (variance + noise).sqrt(), validate_args=False)
        return normal.log_prob(targets).movedim(-2, -1).flatten(0, -2).mean(0)

    def _noise_of(self, rows: Rows, shape: torch.Size) -> Tensor:
        return self.likelihood._shaped_noise_covar(shape, rows).diagonal()

    def _of_each_output(self, rows: EmbeddedRows) -> EmbeddedRows:
        """Return rows with an axis of outputs in front of the clouds, if there are several."""
        if self.num_outputs == 1:
            return rows
        shape = self._input_batch_shape
        key = "outputs", self.num_outputs, shape
        return rows.derived(key, lambda: EmbeddedRows(add_output_dim(rows.rows, shape)[0]))

    def columns(self, values: Tensor) -> Tensor:
        """Return ``... x outputs x N`` values as ``... x N x outputs``; one output has no axis."""
        return values.mT if self.num_outputs > 1 else values.unsqueeze(-1)

    def condition_on_observations(
        self,
        X: Inputs | Tensor,
        Y: Tensor | ArrayLike,
        noise: Tensor | ArrayLike | None = None,
        **kwargs: Any,
    ) -> DistributionGP:
        """Return a copy of the model with further training clouds and targets, as in BoTorch.

        Args:
            X: The ``N`` new clouds, or a ``batch_shape x N x m*(d+1)`` tensor of rows, of any width.
                They are converted to the dtype of the model.
            Y: The targets of the new clouds, ``batch_shape x N x outputs``, or ``N`` if ``train_Y`` has
                no axis of outputs.
            noise: Noise variances of the new targets, in the shape of ``Y`` and, as in BoTorch, in units
                of the transformed targets, if noise variances are known. Default: the mean of the known
                ones, or the noise that was learned.
            **kwargs: Options of GPyTorch.

        Returns:
            A new model with the same hyperparameters.

        Raises:
            ValueError: If ``Y`` or ``noise`` are not numbers of this shape, a target is not finite, a
                variance is not positive and finite, an index names the clouds in another order, or
                ``noise`` is given although noise variances are not known.

        Example:
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> model = DistributionGP(clouds[:2], [0.0, 1.0])
            >>> more = model.condition_on_observations(clouds[2:], [2.0])
            >>> bool(more.predict(clouds[2:])[1] < model.predict(clouds[2:])[1])
            True
        """
        check_noise_is_kept(noise, known=self.noise_is_known)
        rows = self.rows_of(X)
        Y = observed(self, X, rows, Y, "Y")
        if noise is not None:
            noise = observed(self, X, rows, noise, "noise")
        self.eval()
        return self._with_observations(rows, Y, noise, **kwargs)

    def _with_observations(
        self, rows: Tensor, Y: Tensor, noise: Tensor | None, **kwargs: Any
    ) -> DistributionGP:
        """Condition all parts on rows that are not transformed, and targets in their own units."""
        alone = _copied(self)
        alone.ensemble = None
        wide = alone._widen_training(rows)
        if noise is not None:
            kwargs["noise"] = noise
        elif self.noise_is_known:
            known = self.likelihood.noise_covar.noise  # a likelihood adds what it has learned
            kwargs["noise"] = mean_noise(known, rows, self.num_outputs)
        more = super(DistributionGP, alone).condition_on_observations(wide, Y, **kwargs)

        def condition(part: DistributionGP) -> DistributionGP:
            if not part.is_batch:
                return part._with_observations(rows, Y, noise)
            given = noise if noise is None else noise.unsqueeze(-3)
            return part._with_observations(rows.unsqueeze(-3), Y.unsqueeze(-3), given)

        more.ensemble = self.ensemble and self.ensemble.map(condition)
        return more

    def get_fantasy_model(
        self, inputs: Tensor | Sequence[Tensor], targets: Tensor, noise: Tensor | None = None
    ) -> DistributionGP:
        """Return a copy of the model with further training clouds and targets, as in GPyTorch.

        Args:
            inputs: A ``batch_shape x N x width`` tensor of transformed rows.
            targets: Transformed targets, ``batch_shape x N``, with the axis of outputs in front of
                ``N`` if there are several; there may be more batch axes than in ``inputs``.
            noise: Their noise variances, in the shape of ``targets``, if they are known.

        Returns:
            A new model with the same hyperparameters, in which each member has the new targets.
        """
        new = inputs if isinstance(inputs, Tensor) else inputs[0]
        (train,), given = self.train_inputs, self.conditioned
        tracked = _caches_tracked() or any(
            each is not None and each.requires_grad
            for each in (new, targets, noise, train, self.train_targets)
        )
        with torch.set_grad_enabled(torch.is_grad_enabled() and tracked):
            known, rows = given(), EmbeddedRows(new)
            to_train, within = self._covariances_at(rows)
            prior = self._prior_at(rows, within)
            options = {} if noise is None else {"noise": noise}
            within = self.likelihood(prior, [new], **options).covariance_matrix
            inner = torch.broadcast_shapes(new.shape[:-2], train.shape[:-2])
            shapes = inner, targets.shape[:-1], known.errors.shape[:-1], within.shape[:-2]
            outer = torch.broadcast_shapes(*shapes)
            errors = [known.errors, targets - prior.mean]
            more = self._without_data()
            more.likelihood = _copied(self.likelihood).get_fantasy_likelihood(**options)
            both = torch.cat([each.expand(*inner, -1, -1) for each in (train, new)], dim=-2)
            more.train_inputs = (both.expand(*targets.shape[:-1], -1, -1),)
            more.train_targets = _joined([self.train_targets, targets], outer)
            more.prediction_strategy = known.extended(
                to_train, within, _joined(errors, outer), key=more._key()
            )
        more.ensemble = self.ensemble and self.ensemble.map(
            lambda part: part.get_fantasy_model(inputs, targets, noise)
        )
        return more

    def _without_data(self) -> Self:
        """Return a copy with modules of its own, whose training data are still to be set."""
        shallow = _copied(self)
        shallow.__dict__.update(train_inputs=None, train_targets=None, prediction_strategy=None)
        shallow.ensemble, shallow.likelihood, shallow._held = None, None, None
        originals = self.__dict__.get("_original_train_inputs")
        return copy.deepcopy(shallow, {id(originals): originals})

    def batch_of(
        self, covar_module: Kernel, likelihood: Likelihood, log_importance: Tensor
    ) -> Self:
        """Return a batch of members with the training data of this model, as a part of an ensemble.

        Args:
            covar_module: The kernels, of batch shape ``K``.
            likelihood: Their likelihoods, with the same axis of members.
            log_importance: Logarithms of the prior densities of the members, divided by those from
                which they were drawn, of length ``K``. With the marginal likelihood, their weights.
        """
        part = self.with_kernel(covar_module)
        part.likelihood, part.is_batch = likelihood, True
        part.register_buffer("log_importance", log_importance)
        part._input_batch_shape = part._aug_batch_shape = log_importance.shape
        return part.eval()

    @property
    def integrates_level(self) -> bool:
        """Whether the mean is a constant that is learned without a prior, and so integrated."""
        mean = self.mean_module
        free = isinstance(mean, ConstantMean) and mean.raw_constant.requires_grad
        return free and not any(True for _ in mean.named_priors())

    def member_weights(self) -> Tensor:
        """Return the weights of the members of this part, ``batch_shape x K``."""
        if not self.is_batch:
            return super().member_weights()
        with torch.no_grad():
            return (self.conditioned().log_evidence + self.log_importance).softmax(-1)

    def unbatched(self) -> list[Any]:
        """Return the members of this part as a model each."""
        if not self.is_batch:
            return [self]
        return [self._member(place) for place in range(len(self.log_importance))]

    def some_members(self, places: Tensor) -> Self:
        """Return a batch of some of the members of this part, of equal weights."""
        kernel, likelihood = taken(self.covar_module, places), taken(self.likelihood, places)
        return self.batch_of(kernel, likelihood, self.log_importance[places])

    def _member(self, place: int) -> Self:
        member = self.with_kernel(taken(self.covar_module, place))
        member.likelihood, member.is_batch = taken(self.likelihood, place), False
        del member.log_importance
        (rows,) = self.train_inputs
        member.train_inputs = (rows if rows.dim() == 2 else rows.select(-3, 0),)
        if self.train_targets.dim() > 1:
            member.train_targets = self.train_targets.select(-2, place)
        shape = member.train_targets.shape[:-1]
        member._input_batch_shape = member._aug_batch_shape = shape
        return member.eval()

    def transform_inputs(self, X: Tensor, input_transform: Module | None = None) -> Tensor:
        """Transform inputs to rows; if all outputs share the inputs, transform them only once."""
        transform = self._input_transform if input_transform is None else input_transform
        if transform is None:
            return X
        return self._transformed(X, input_transform)

    def _transformed(self, X: Tensor, input_transform: Module | None) -> Tensor:
        shared = X.dim() > 2 and X.stride(-3) == 0
        rows = super().transform_inputs(X.narrow(-3, 0, 1) if shared else X, input_transform)
        return rows.expand(*X.shape[:-2], *rows.shape[-2:]) if shared else rows

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if any(key.startswith(f"{prefix}ensemble.") for key in state_dict) and not self.ensemble:
            raise ValueError(
                "Expected the state of a model with one kernel, got that of several members, which "
                "were made from the training data. Keep the model itself, by gp_distributions.save or "
                "copy.deepcopy, or pass a kernel to the model."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        if self._has_transformed_inputs:
            self._original_train_inputs = fn(self._original_train_inputs)
        return super()._apply(fn)

    # BoTorch changes the training inputs and then the flag that says so. Here they change in one step:
    # neither a second thread nor an interrupt finds only one of them changed.

    def _set_transformed_inputs(self) -> None:
        """Replace the training inputs by their transforms."""
        now = dict(self.__dict__)
        transform = self._input_transform
        if transform is None or now.get("_has_transformed_inputs"):
            return
        (original,) = now["train_inputs"]
        with torch.no_grad():
            rows = transform.preprocess_transform(original)
        self.__dict__.update(
            train_inputs=(rows,),
            _original_train_inputs=original,
            _has_transformed_inputs=True,
            prediction_strategy=None,
        )

    def _revert_to_original_inputs(self) -> None:
        """Replace transforms of the training inputs by the inputs themselves."""
        if self._has_transformed_inputs:
            self.__dict__.update(
                train_inputs=(self._original_train_inputs,),
                _has_transformed_inputs=False,
                prediction_strategy=None,
            )

    def _widen_training(self, rows: Tensor) -> Tensor:
        """Pad training rows (in place) and new rows to a common width, and return the new rows."""
        if self._input_transform is not None:
            return rows
        (train,) = self.train_inputs
        width = max(rows.shape[-1], train.shape[-1])
        if train.shape[-1] < width:
            self.train_inputs = (pad_rows(train, width),)
            self.prediction_strategy = None
            if self._has_transformed_inputs:
                self._original_train_inputs = pad_rows(self._original_train_inputs, width)
        return pad_rows(rows, width)


def _copied(module: ModuleT) -> ModuleT:
    """Return a copy of a module that shares its parts, of which each can be replaced."""
    shallow = copy.copy(module)
    shallow.__dict__.update(_modules=dict(module._modules), _buffers=dict(module._buffers))
    return shallow


def _joined(values: Sequence[Tensor], batch_shape: torch.Size) -> Tensor:
    return torch.cat([each.expand(*batch_shape, -1) for each in values], dim=-1)


def _caches_tracked() -> bool:
    """Whether the settings say that caches of the training data have gradients."""
    return botorch.settings.propagate_grads.on() or (gpytorch.settings.detach_test_caches.off())


def _output_axes(model: torch.nn.Module, batch_shape: torch.Size) -> dict[str, int]:
    """Map the name of each parameter to its axis of outputs, for BoTorch's ``subset_output``."""
    size = len(batch_shape)
    # Parameters of distances have no axis of outputs, even if their shapes look as if they had.
    distances = (module for module in model.modules() if isinstance(module, Distance))
    shared = {parameter for distance in distances for parameter in distance.parameters()}
    return {
        name: size - 1 - parameter.dim()
        for name, parameter in model.named_parameters()
        if parameter.shape[:size] == batch_shape and parameter not in shared
    }
