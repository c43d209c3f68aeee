"""Sparse Gaussian process regression on many distributions, as a BoTorch model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import Posterior
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.arguments import (
    adapt_distances,
    check_batch_size,
    check_modules,
    check_noise,
    check_transform,
    counted_rows,
    default_kernel,
    gaussian_noise,
    keeps_clouds,
    noise_floor,
    sampled_columns,
)
from gp_distributions.models.collapsed import (
    CollapsedSums,
    InducingFeatures,
    bound,
    relative_noise,
)
from gp_distributions.models.conformal import ConformalCorrection, check_conformal, rescaled
from gp_distributions.models.exact_inference import (
    ExactMultivariateNormal,
    check_normal,
    joint_posterior,
    marginal_moments,
    moments_of_targets,
    smallest_variance,
)
from gp_distributions.models.inducing import FEATURE_DTYPES, num_candidates
from gp_distributions.models.leave_one_out import left_out
from gp_distributions.models.observations import noise_of_outputs
from gp_distributions.models.passes import MethodOnPieces
from gp_distributions.models.pieces import MemoryPieces, Pieces, Sample, as_pieces
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.models.sparse_inference import SparseInference
from gp_distributions.models.targets import standardize
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.sharded_clouds import ShardedClouds


class SparseDistributionGP(SparseInference):
    r"""Sparse Gaussian process regression on distributions, for up to millions of clouds.

    Let :math:`Z` be ``M`` inducing clouds out of the training clouds, :math:`L L^\top = K_{ZZ}` and
    :math:`\phi(P) = L^{-1} k(Z, P)`. With targets :math:`y`, constant mean :math:`\mu` and noise
    variances :math:`s_i^2`, the posterior has the mean and the variance

    .. math::
        m(P) = \mu + \phi(P)^\top B^{-1} \sum_i \frac{\phi_i (y_i - \mu)}{s_i^2}, \qquad
        v(P) = k(P, P) - |\phi(P)|^2 + \phi(P)^\top B^{-1} \phi(P), \qquad
        B = I + \sum_i \frac{\phi_i \phi_i^\top}{s_i^2}.

    If all training clouds are inducing, this is the posterior of :class:`DistributionGP`. The training
    clouds enter through sums, which are computed in one pass over pieces of the data: time grows
    linearly with the number of clouds, and memory does not grow.

    The constructor draws a random sample of ``4 M`` clouds, at least 2000, and keeps it. From data in
    pieces, it reads each piece that holds one of them, once.
    :func:`gp_distributions.fit` learns the hyperparameters from the sample, chooses the inducing clouds
    out of it, and forms the sums in one pass over all clouds. Before that, the first prediction does the
    latter two at the current hyperparameters, and so does the first prediction after a hyperparameter,
    the kernel or a transform has been changed. The inducing clouds are drawn by randomly pivoted
    Cholesky factorisation. The jitter on the diagonal of :math:`K_{ZZ}` is :math:`10^{-8}` of the noise
    variance, but at least :math:`10^{-12}` and at most :math:`10^{-6}` of the mean prior variance.

    All computations are in double precision, and so are the parameters and the predictions;
    ``model.to(torch.float32)`` predicts in single precision until the next fit. With
    ``feature_dtype=torch.float32``, clouds are embedded and compared with the inducing clouds in single
    precision, which takes less time; all else stays in double precision. The squared distances then err
    by at most about
    :math:`10^{-5} (|P| + |Q|)^2`, where :math:`|P|` is the norm of the embedding of :math:`P`. For
    :class:`SlicedWasserstein` in ``d`` dimensions, this is the root mean square distance of the atoms
    from the origin, divided by :math:`\sqrt d`, so move clouds to the origin with
    :meth:`PointClouds.normalize`. The jitter is at least :math:`10^{-7}` of the mean prior variance.
    Where covariances err by at most a share :math:`\epsilon` of that variance, :math:`\phi` errs by at
    most :math:`\epsilon \sqrt{10^7 M}` prior standard deviations.

    The model is a BoTorch model with ``posterior`` and ``subset_output``, which acquisition functions
    use; ``condition_on_observations`` and ``fantasize``
    are not available. Several outputs share the kernel and the noise, as in :class:`SharedKernelGP`,
    and one set of sums.

    Args:
        train_X: The ``T`` training clouds or mixed inputs, as for :class:`DistributionGP` but without
            batch axes; or data in pieces: :class:`ShardedClouds`, or an object with ``num_pieces``,
            ``piece`` and ``sample``.
        train_Y: The targets, ``T`` or ``T x outputs``. ``None`` if the pieces carry their targets.
        covar_module: A kernel on rows, without a batch axis. The default for :class:`PointClouds` and
            :class:`Gaussians` is a scaled ``SlicedWassersteinKernel(dim, profile="matern52")``, and for
            :class:`MixedInputs` it is ``mixed_kernel(train_X)``.
        num_inducing: Number ``M`` of inducing clouds. If there are at most ``M`` clouds, all of them are
            inducing; if there are more, fewer than ``M`` are where fewer differ.
        likelihood: A ``GaussianLikelihood`` or a :class:`SamplingNoiseLikelihood`, in units of the
            transformed targets. The default is that of :class:`DistributionGP`.
        outcome_transform: The transform of the targets. The default is BoTorch's ``Standardize`` with
            the mean and the standard deviation of all targets, or, for data in pieces, of the targets
            of 1000 clouds of the sample; ``None`` leaves the targets as they are.
        train_Yvar: Known noise variances of the targets, used in place of a likelihood. They have the
            shape of ``train_Y`` and its squared units. The noise variance at new clouds is then their
            mean. Several outputs need one set of sums each.
        input_transform: A transform from the model's inputs to rows.
        sampling_noise: Whether smaller bags have more noise, as in :class:`DistributionGP`. The size of
            the largest bag is that of 1000 clouds of the sample.
        feature_dtype: Precision of the features of clouds, ``torch.float64`` or ``torch.float32``.
        seed: Random seed for the sample and for the choice of the inducing clouds.
        client: A client of ``dask.distributed``, whose workers read the pieces of
            :class:`ShardedClouds` from which the sample is drawn.
        progress: Whether to show a progress bar if that takes more than a few seconds.

    Raises:
        TypeError: As for :class:`DistributionGP`, or if ``likelihood`` is of another class.
        ValueError: As for :class:`DistributionGP`; if ``train_X``, ``covar_module`` or ``likelihood``
            has a batch axis; if targets are missing, or given for pieces that carry theirs; or if
            ``num_inducing < 1`` or ``feature_dtype`` is another type. Clouds, targets and variances that
            are not in the sample are checked when the sums are formed.
        PieceError: If a piece cannot be read; the message names its file.

    Warns:
        TiesWarning: As for :class:`DistributionGP`, of 1000 clouds of the sample.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SparseDistributionGP, fit
        >>> points = torch.randn(60, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> model = SparseDistributionGP(clouds[:50], targets[:50], num_inducing=30)
        >>> mean, std = fit(model, restarts=0).predict(clouds[50:])
        >>> bool(((mean - targets[50:]).abs() < 4 * std).all())
        True

    Sources: Titsias 2009; Chen, Epperly, Tropp and Webber 2025 (choice of inducing points).
    """

    def __init__(
        self,
        train_X: Inputs | Tensor | Pieces,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        num_inducing: int = 1000,
        likelihood: GaussianLikelihood | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        train_Yvar: Tensor | ArrayLike | None = None,
        input_transform: InputTransform | None = None,
        sampling_noise: bool | Literal["ties"] = False,
        feature_dtype: torch.dtype = torch.float64,
        seed: int = 0,
        client: Any = None,
        progress: bool = True,
    ) -> None:
        super().__init__()
        if feature_dtype not in FEATURE_DTYPES:
            raise ValueError(
                f"Expected feature_dtype to be torch.float64 or torch.float32, got {feature_dtype}."
            )
        check_noise(likelihood, train_Yvar, sampling_noise)
        self.num_inducing = integer(num_inducing, "num_inducing")
        self.seed = seed
        self.feature_dtype = feature_dtype
        self.data, self._squeeze_output = as_pieces(train_X, train_Y, train_Yvar)
        self.encoding = getattr(self.data, "encoding", None)
        self._sample = Sample.draw(
            self.data, num_candidates(self.num_inducing), seed, client=client, progress=progress
        )
        X, sample_Y, *given = self.sample()
        if sample_Y is None:
            raise ValueError("Expected pieces that carry targets, got targets of None.")
        if covar_module is None:
            covar_module = default_kernel(X)
        rows = counted_rows(X, self.encoding).detach().double()
        check_modules(covar_module, None, rows.shape[-2])
        check_transform(input_transform, X)
        if getattr(covar_module, "batch_shape", None):
            raise ValueError(
                "Expected one kernel for all outputs, got a batch of shape "
                f"{tuple(covar_module.batch_shape)}. Fit one model for each output."
            )
        if keeps_clouds(input_transform):
            check_kind(X, covar_module)
        # The transforms are not there yet.
        targets, known = self._reader().targets(X, sample_Y, *given)
        if not isinstance(self.data, MemoryPieces):
            self._squeeze_output = np.ndim(sample_Y) == 1 and targets.shape[-1] == 1
        self._num_outputs = targets.shape[-1]
        if isinstance(outcome_transform, _DefaultType):
            every = self.data.targets if isinstance(self.data, MemoryPieces) else targets
            outcome_transform = standardize(every)
            outcome_transform(every)
        elif outcome_transform is not None:
            outcome_transform(targets)
        self.covar_module = covar_module
        self.mean_module = ConstantMean(
            batch_shape=targets.shape[-1:] if self._num_outputs > 1 else torch.Size()
        )
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform.eval()
        if input_transform is not None:
            self.input_transform = input_transform
        self.to(device=rows.device, dtype=torch.float64)
        self.likelihood = self._make_likelihood(likelihood, sampling_noise, targets, known)
        self.to(device=rows.device, dtype=torch.float64)
        with torch.no_grad():
            clouds = self._reader().rows(X)
            adapt_distances(self.covar_module, clouds)
            if sampling_noise and isinstance(self.likelihood, SamplingNoiseLikelihood):
                self.likelihood.adapt(clouds)
        self._summed = None
        self._current = None

    def _make_likelihood(
        self,
        likelihood: GaussianLikelihood | None,
        sampling_noise: bool | Literal["ties"],
        targets: Tensor,
        known: Tensor | None,
    ) -> GaussianLikelihood | FixedNoiseGaussianLikelihood:
        floor = noise_floor(torch.float64)
        if likelihood is not None:
            if not isinstance(likelihood, GaussianLikelihood):
                raise TypeError(
                    "Expected a GaussianLikelihood or a SamplingNoiseLikelihood, got "
                    f"{type(likelihood).__name__}. Pass known variances as train_Yvar."
                )
            if likelihood.noise.numel() > 1:
                raise ValueError(
                    "Expected a likelihood with one noise variance, which all outputs share, got "
                    f"{likelihood.noise.numel()}. Fit one model for each output."
                )
            return likelihood
        if known is not None:
            every = self.data.variances if isinstance(self.data, MemoryPieces) else known
            assert every is not None
            _, noise = self._reader().transformed(targets[:1], every.mean(0, keepdim=True))
            assert noise is not None
            return FixedNoiseGaussianLikelihood(noise.mT if self._num_outputs > 1 else noise[0])
        if sampling_noise:
            return SamplingNoiseLikelihood(
                **sampled_columns(self.covar_module),
                **gaussian_noise(floor),
                merge=sampling_noise != "ties",
            )
        if self._num_outputs > 1:
            return SharedNoise(floor)
        return GaussianLikelihood(**gaussian_noise(floor))

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self._num_outputs

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters and the predictions; all computations are in double precision."""
        dtype: torch.dtype = self.mean_module.constant.dtype
        return dtype

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the model, which is empty."""
        return torch.Size()

    def posterior(
        self,
        X: Inputs | Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Compute the joint posterior at clouds, with gradients, as BoTorch's ``SingleTaskGP`` does.

        Args:
            X: Clouds, or a ``batch_shape x q x m*(d+1)`` tensor of rows, of any width. They are
                converted to double precision.
            output_indices: Indices of the outputs to predict. The default is all outputs.
            observation_noise: Whether to add the noise of the likelihood, or a
                ``batch_shape x q x outputs`` tensor of noise variances to add instead.
            posterior_transform: BoTorch transform of the posterior.

        Returns:
            The joint posterior of ``q`` clouds, a ``batch_shape x q x outputs`` distribution in the
            units of ``train_Y``.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor.
            ValueError: If the width of the rows does not fit the kernel.

        Example:
            >>> import torch
            >>> from gp_distributions import PointClouds, SparseDistributionGP
            >>> points = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(0)).double()
            >>> model = SparseDistributionGP(PointClouds(points), points.mean((-2, -1)))
            >>> posterior = model.posterior(PointClouds(points[:3]))
            >>> posterior.mean.shape, posterior.rsample(torch.Size([5])).shape
            (torch.Size([3, 1]), torch.Size([5, 3, 1]))
        """
        self.eval()
        every = range(self.num_outputs)
        outputs = list(every) if output_indices is None else [every[i] for i in output_indices]
        inputs = self._rows_of(X)
        current = self.collapsed(progress=False)
        rows = self.transform_inputs(inputs)
        held = EmbeddedRows(rows)
        within = covariance(self.covar_module, held)
        phi = current.features(held)
        centred, covariances = current.moments(phi, within, outputs)
        means = centred + self.means().detach().flatten()[outputs]
        noise = self._noise_at(rows, observation_noise)
        normals = []
        for mean, within_o, o in zip(means.unbind(-1), covariances, outputs, strict=True):
            if noise is not None:
                within_o = within_o + torch.diag_embed(noise[..., o].expand(mean.shape))
            mean, within_o = mean.to(self.dtype), within_o.to(self.dtype)
            normals.append(ExactMultivariateNormal(mean, to_linear_operator(within_o)))
        transform: OutcomeTransform | None = getattr(self, "outcome_transform", None)
        if transform is not None and output_indices is not None:
            transform = transform.subset_output(outputs)
        return joint_posterior(normals, rows, transform, posterior_transform)

    def predict(
        self,
        X: Inputs | Tensor | ShardedClouds,
        *,
        observation_noise: bool = True,
        batch_size: int = 1024,
        conformal: ConformalCorrection | None = None,
        client: Any = None,
        progress: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Predict means and standard deviations at clouds, without gradients.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows, of any width;
                or :class:`ShardedClouds`, which are read and predicted piece by piece.
            observation_noise: Whether to return the standard deviation of a noisy observation rather
                than that of the function.
            batch_size: Number of clouds to process at a time, which bounds memory.
            conformal: Correction of the standard deviations, whose intervals then hold held-out targets
                at the level of the correction. Default: no correction.
            client: A client of ``dask.distributed``, whose workers predict :class:`ShardedClouds`, and
                first form the sums if the model has none at its hyperparameters.
            progress: Whether to show a progress bar if a pass over data takes more than a few seconds.

        Returns:
            The means and the standard deviations in the units of ``train_Y``, two tensors of shape
            ``... x N``, or ``... x N x outputs`` if ``train_Y`` has an axis of outputs.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor.
            ValueError: If the width of the rows does not fit the kernel, ``batch_size < 1``, there is a
                client but no :class:`ShardedClouds`, or ``conformal`` meets ``observation_noise=False``
                or another number of outputs.
            PieceError: If a piece cannot be read; the message names its file.

        Example:
            >>> from gp_distributions import PointClouds, SparseDistributionGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = SparseDistributionGP(clouds, [0.0, 1.0, 2.0]).predict(clouds[:2])
            >>> mean.shape, bool(mean[0] < mean[1])
            (torch.Size([2]), True)
        """
        check_batch_size(batch_size)
        check_conformal(conformal, observation_noise, self.num_outputs)
        self.check_client(X, client)
        if isinstance(X, ShardedClouds):
            self.collapsed(client=client, progress=progress)
            options = {"observation_noise": observation_noise, "batch_size": batch_size}
            parts = self.over_shards("predict", X, client=client, progress=progress, **options)
            means, stds = map(torch.cat, zip(*parts, strict=True))
            return means, rescaled(stds, conformal)
        rows = self._rows_of(X)
        self.collapsed(progress=progress)
        none = rows.new_empty(0, self.num_outputs)
        found = [(none, none)]
        with torch.no_grad():
            for part in rows.flatten(0, -2).split(batch_size) if rows.numel() else ():
                posterior = self._marginals(part, observation_noise)
                found.append(marginal_moments(posterior, self.smallest_variance))
        joined = map(torch.cat, zip(*found, strict=True))
        mean, variance = (moment.unflatten(0, rows.shape[:-1]) for moment in joined)
        if self._squeeze_output:
            mean, variance = mean.squeeze(-1), variance.squeeze(-1)
        return mean.to(self.dtype), rescaled(variance.sqrt().to(self.dtype), conformal)

    def _marginals(self, rows: Tensor, observation_noise: bool) -> Posterior:
        """Return the posterior at ``N x width`` rows, as if the clouds were independent."""
        rows = self.transform_inputs(rows)
        means, spread, left = self.collapsed(progress=False).marginals(rows)
        means = means + self.means().flatten()
        variance = (left + spread).mT.expand(means.shape)
        noise = self._noise_at(rows, observation_noise)
        variance = variance if noise is None else variance + noise
        normals = [
            ExactMultivariateNormal(mean, DiagLinearOperator(each))
            for mean, each in zip(means.unbind(-1), variance.unbind(-1), strict=True)
        ]
        return joint_posterior(normals, rows, getattr(self, "outcome_transform", None), None)

    def check_client(self, X: object, client: Any) -> None:
        """Check that there is no client, unless clouds to predict are in pieces.

        Raises:
            ValueError: If there is one.
        """
        if client is not None and not isinstance(X, ShardedClouds):
            raise ValueError("Expected ShardedClouds to predict with a client.")

    def over_shards(
        self, method: str, X: ShardedClouds, *, client: Any, progress: bool, **options: Any
    ) -> Iterator[Any]:
        """Yield the result of a method of this model for the clouds of each piece, in order.

        Args:
            method: Name of the method.
            X: Clouds in pieces.
            client: A client of ``dask.distributed``, whose workers call the method, or ``None``.
            progress: Whether to show a progress bar if this takes more than a few seconds.
            **options: Further arguments of the method.
        """
        task = MethodOnPieces(self.without_data(), method, options)
        return run(task, X.pieces, client=client, progress="Predicting" if progress else None)

    def bound(self) -> Tensor:
        """Compute the lower bound of the log marginal likelihood of the transformed targets.

        If all clouds are inducing, it is the log marginal likelihood, up to the jitter.

        Returns:
            A scalar tensor, the sum over the outputs.

        Example:
            >>> from gp_distributions import PointClouds, SparseDistributionGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> exact = SparseDistributionGP(clouds, [0.0, 1.0, 2.0])
            >>> sparse = SparseDistributionGP(clouds, [0.0, 1.0, 2.0], num_inducing=1)
            >>> bool(sparse.bound() < exact.bound())
            True

        Source: Titsias 2009, eq. 9.
        """
        with torch.no_grad():
            return bound(self.summed(progress=False).sums, self.noise_scale(), self.means())

    def leave_one_out(
        self, *, observation_noise: bool = True, client: Any = None, progress: bool = True
    ) -> tuple[Tensor, Tensor]:
        r"""Predict each training cloud from all others, at the current hyperparameters.

        Leaving out cloud ``i`` subtracts one term from each sum. With :math:`h = \phi_i^\top B^{-1}
        \phi_i` and the posterior mean :math:`m_i`, the mean and variance are

        .. math::
            y_i - \frac{y_i - m_i}{1 - h / s_i^2}, \qquad
            k(P_i, P_i) - |\phi_i|^2 + \frac{h}{1 - h / s_i^2}.

        The inducing clouds stay the same. This takes a second pass over the data.

        Args:
            observation_noise: Whether to return the standard deviation of the target rather than that
                of the function.
            client: A client of ``dask.distributed`` whose workers predict the clouds.
            progress: Whether to show a progress bar if a pass over data takes more than a few seconds.

        Returns:
            The means and standard deviations, of the shape and in the units of ``train_Y``.

        Raises:
            ValueError: If the model was loaded, without its training data, the outcome transform is
                not a ``Standardize``, or the noise of a cloud is so small that :math:`1 - h / s_i^2` is
                lost in rounding errors.

        Example:
            >>> from gp_distributions import PointClouds, SparseDistributionGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = SparseDistributionGP(clouds, [0.0, 1.0, 2.0]).leave_one_out()
            >>> mean.shape
            torch.Size([3])
        """
        transform = getattr(self, "outcome_transform", None)
        check_normal(transform)
        options: Any = {"client": client, "progress": progress}
        parts = self.left_out(left_out, observation_noise=observation_noise, **options)
        mean, variance = map(torch.cat, zip(*parts, strict=True))
        moments = moments_of_targets(mean, variance, transform, self.smallest_variance)
        mean, std = (moment.to(self.dtype) for moment in moments)
        return (mean.squeeze(-1), std.squeeze(-1)) if self._squeeze_output else (mean, std)

    def subset_output(self, idcs: list[int]) -> SparseDistributionGP:
        """Return a model of some of the outputs, with the same hyperparameters, as in BoTorch.

        The model has the sums of these outputs but not the training data. Its modules are copies.
        """
        kept = [range(self.num_outputs)[i] for i in idcs]
        summed, several = self.summed(), len(kept) > 1
        index = torch.tensor(kept, device=summed.sums.gram.device)
        constant = self.means().detach().flatten()[index]
        mean_module = ConstantMean(batch_shape=torch.Size([len(kept)] if several else []))
        mean_module.to(constant).constant = constant if several else constant.squeeze(0)
        kernel, likelihood, inputs = copy.deepcopy(
            (self.covar_module, self.likelihood, getattr(self, "input_transform", None))
        )
        transform = getattr(self, "outcome_transform", None)
        if isinstance(likelihood, FixedNoiseGaussianLikelihood):
            noise = likelihood.noise.reshape(self.num_outputs, 1)[index]
            likelihood = FixedNoiseGaussianLikelihood(noise if several else noise[0])
        return SparseDistributionGP.from_sums(
            replace(summed.features, covar_module=kernel),
            summed.sums.of_outputs(index),
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=None if transform is None else transform.subset_output(kept),
            input_transform=inputs,
            num_inducing=self.num_inducing,
            seed=self.seed,
            squeeze_output=False,
            encoding=self.encoding,
        )

    @classmethod
    def from_sums(
        cls,
        features: InducingFeatures,
        sums: CollapsedSums,
        *,
        likelihood: GaussianLikelihood | FixedNoiseGaussianLikelihood,
        mean_module: ConstantMean,
        outcome_transform: OutcomeTransform | None,
        input_transform: InputTransform | None,
        num_inducing: int,
        seed: int,
        squeeze_output: bool,
        encoding: MixedEncoding | None = None,
    ) -> Self:
        """Make a model that has sums over training clouds, but not the training clouds.

        Args:
            features: The features, with the kernel.
            sums: The sums at the hyperparameters of the kernel and the likelihood.
            likelihood: As the attribute of a model.
            mean_module: The constant mean of each output.
            outcome_transform: As the attribute of a model, or ``None``.
            input_transform: As the attribute of a model, or ``None``.
            num_inducing: As for the constructor.
            seed: As for the constructor.
            squeeze_output: Whether predictions have no axis of outputs.
            encoding: Encoding of mixed inputs, or ``None``.

        Returns:
            The model.
        """
        model = cls.__new__(cls)
        super(SparseDistributionGP, model).__init__()
        model.num_inducing, model.seed = num_inducing, seed
        model.data = model._sample = None
        model._squeeze_output, model.feature_dtype = squeeze_output, features.dtype
        model.encoding = encoding
        model._num_outputs = mean_module.constant.numel()
        model.covar_module, model.likelihood = features.covar_module, likelihood
        model.mean_module = mean_module
        if outcome_transform is not None:
            model.outcome_transform = outcome_transform
        if input_transform is not None:
            model.input_transform = input_transform
        model.take_sums(features, sums)
        return model

    def _noise_at(self, rows: Tensor, observation_noise: bool | Tensor) -> Tensor | None:
        """Return noise variances at new clouds, ``... x q x outputs``."""
        if isinstance(observation_noise, Tensor):
            return noise_of_outputs(observation_noise, self.num_outputs)
        if not observation_noise:
            return None
        noise = self.likelihood.noise
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            return noise.reshape(1, -1)
        each = noise * relative_noise(self.likelihood, rows)
        return each.unsqueeze(-1).expand(*each.shape, self.num_outputs)

    def _rows_of(self, X: Inputs | Tensor) -> Tensor:
        if keeps_clouds(getattr(self, "input_transform", None)):
            check_kind(X, self.covar_module, self.encoding)
        return counted_rows(X, self.encoding).double()

    @property
    def smallest_variance(self) -> float:
        """Lower bound of predicted variances, in the units of the original targets."""
        return smallest_variance(getattr(self, "outcome_transform", None), torch.float64)

    def _set_transformed_inputs(self) -> None:
        """Do nothing: training inputs are transformed piece by piece."""

    def _revert_to_original_inputs(self) -> None:
        """Do nothing: training inputs are transformed piece by piece."""
