"""Sparse Gaussian process regression on many distributions, as a BoTorch model."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Self

import gpytorch
import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from linear_operator import to_linear_operator
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, state_of
from gp_distributions.hosts import DefaultType
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.inputs import Encoding, Inputs
from gp_distributions.models.arguments import (
    SamplingNoise,
    adapt_kernel,
    check_noise,
    chooses_metric,
    gaussian_noise,
    kernel_for,
    noise_for,
    standardize,
)
from gp_distributions.models.choice import Choice
from gp_distributions.models.collapsed import CollapsedPosterior, CollapsedSums, Features, bound
from gp_distributions.models.exact_inference import ExactMultivariateNormal, Moments
from gp_distributions.models.inducing import FEATURE_DTYPES, choose_features
from gp_distributions.models.passes import (
    LeftOut,
    PieceSums,
    PredictedPieces,
    Reader,
    chunks,
    sums_over_pieces,
)
from gp_distributions.models.pieces import Pieces, SampledPieces
from gp_distributions.models.regression import Regression
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood, relative_noise
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.sharded_clouds import ShardedClouds


@dataclass(frozen=True, eq=False)
class Summed:
    """Features and sums, with the key of what they depend on besides the data."""

    key: Hashable
    features: Features
    sums: CollapsedSums


class SparseDistributionGP(Regression, gpytorch.Module):
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
            :class:`Gaussians` is that of :class:`DistributionGP`, and for :class:`MixedInputs` it is
            ``mixed_kernel(train_X)``.
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
        sampling_noise: Whether smaller bags have more noise, as in :class:`DistributionGP`. The typical
            size is that of 1000 clouds of the sample.
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

    batch_shape = torch.Size()
    data: SampledPieces | None
    choice: Choice | None = None
    chooses_metric: bool = False
    _summed: Summed | None
    _current: tuple[Hashable, CollapsedPosterior] | None

    def __init__(
        self,
        train_X: Inputs | Tensor | Pieces | SampledPieces,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        num_inducing: int = 1000,
        likelihood: GaussianLikelihood | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        train_Yvar: Tensor | ArrayLike | None = None,
        input_transform: InputTransform | None = None,
        sampling_noise: SamplingNoise = None,
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
        self.data = data = SampledPieces.read(
            train_X,
            train_Y,
            train_Yvar,
            num_inducing=num_inducing,
            seed=seed,
            client=client,
            progress=progress,
        )
        self.encoding = data.encoding
        X, sample_Y, *_ = data.adapted
        self.chooses_metric = chooses_metric(X, covar_module)
        targets, _ = self.adapted_to()  # as they are, without a transform
        self.covar_module = kernel_for(X, covar_module, input_transform, shared=True)
        several = targets.shape[-1] > 1
        squeeze = np.ndim(sample_Y) == 1 if data.memory is None else data.memory.squeeze
        self._squeeze_output = squeeze and not several
        self.mean_module = ConstantMean(batch_shape=targets.shape[-1:] if several else torch.Size())
        if isinstance(outcome_transform, DefaultType):
            outcome_transform = standardize(targets)
        if outcome_transform is not None:
            outcome_transform(targets)
            self.outcome_transform = outcome_transform.eval()
        if input_transform is not None:
            self.input_transform = input_transform
        self.likelihood = self._make_likelihood(X, likelihood, sampling_noise)
        self.to(device=X.device, dtype=torch.float64)
        with torch.no_grad():
            clouds = self._reader().rows(X)
            self.unit_findings = adapt_kernel(self.covar_module, X, clouds)
            if likelihood is None and isinstance(self.likelihood, SamplingNoiseLikelihood):
                self.likelihood.adapt(clouds)
        self._summed = self._current = None

    def _make_likelihood(
        self,
        X: Inputs,
        likelihood: GaussianLikelihood | None,
        sampling_noise: SamplingNoise,
    ) -> GaussianLikelihood | FixedNoiseGaussianLikelihood:
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
        _, known = self.adapted_to()
        if known is not None:
            noise = known.mean(0, keepdim=True)
            return FixedNoiseGaussianLikelihood(noise.mT if self.num_outputs > 1 else noise[0])
        found = noise_for(self.covar_module, X, torch.float64, sampling_noise)
        if self.num_outputs > 1 and not isinstance(found, SamplingNoiseLikelihood):
            return SharedNoise(**gaussian_noise(torch.float64))
        return found

    def training_data(self) -> SampledPieces:
        """Return the training data in pieces.

        Raises:
            ValueError: If the model has only sums over them.
        """
        if self.data is None:
            raise ValueError(
                "Expected a model with its training data, but files and subset_output keep only sums "
                "over them. Make the model from the data again, or keep its hyperparameters."
            )
        return self.data

    def adapted_to(self) -> tuple[Tensor, Tensor | None]:
        """Return the targets and noise variances of all clouds in memory, or of 1000 of the sample."""
        data = self.training_data()
        content = data.adapted if data.memory is None else data.memory.content
        return self._reader().targets(*content)

    def sample_rows(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return some clouds of the sample as one part of a piece; see :func:`chunks`."""
        with torch.no_grad():
            return next(chunks(self._reader(), *self.training_data().part(size), size=size))

    def choose_features(self) -> Features:
        """Choose inducing clouds at the current hyperparameters, and factorise their covariance."""
        with torch.no_grad():
            return choose_features(
                self.covar_module,
                self._reader().rows(self.training_data().content[0]),
                self.num_inducing,
                noise=float(self.likelihood.noise.min()),
                dtype=self.feature_dtype,
                seed=self.seed,
            )

    def piece_sums(self, features: Features) -> PieceSums:
        """Return the task that sums over pieces."""
        return PieceSums(features, self._reader())

    def take_sums(self, features: Features, sums: CollapsedSums) -> None:
        """Use sums that were formed at the current hyperparameters."""
        self._summed = Summed(self._key(), features, sums)
        self._current = None

    def summed(self, *, client: Any = None, progress: bool = True) -> Summed:
        """Return the features and the sums, and form them if what they depend on has changed."""
        key, summed = self._key(), self._summed
        if summed is None or summed.key != key:
            pieces = self.training_data().pieces
            with torch.inference_mode(False):  # autograd cannot use tensors made in that mode
                features = self.choose_features()
                task = self.piece_sums(features)
                sums = sums_over_pieces(task, pieces, client=client, progress=progress)
            summed = self._summed = Summed(key, features, sums)
        return summed

    def conditioned(self, *, client: Any = None, progress: bool = True) -> CollapsedPosterior:
        """Return the posterior of the weights of the features at the current hyperparameters."""
        summed = self.summed(client=client, progress=progress)
        key = summed.key, state_of(self.likelihood), state_of(self.mean_module)
        current = self._current
        if current is None or current[0] != key:
            with torch.inference_mode(False), torch.no_grad():
                posterior = CollapsedPosterior.from_sums(
                    summed.features, summed.sums, self.noise_scale(), self.means()
                )
            current = self._current = key, posterior
        return current[1]

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self.mean_module.constant.numel()

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters and the predictions; all computations are in double precision."""
        return self.mean_module.constant.dtype

    def latent(self, rows: EmbeddedRows, outputs: list[int]) -> list[MultivariateNormal]:
        """Return the joint posterior of each of some outputs at ``... x q x width`` rows."""
        current = self.conditioned(progress=False)
        within = covariance(self.covar_module, rows)
        phi = current.features(rows)
        centred, covariances = current.moments(phi, within, outputs)
        means = (centred + self.means().detach().flatten()[outputs]).to(self.dtype)
        return [
            ExactMultivariateNormal(mean, to_linear_operator(each.to(self.dtype)))
            for mean, each in zip(means.unbind(-1), covariances, strict=True)
        ]

    def latent_marginals(self, rows: EmbeddedRows, given: CollapsedPosterior) -> Moments:
        """Return means and variances at ``N x width`` rows, ``N x outputs``."""
        means, spread, left = given.marginals(rows)
        return means + self.means().flatten(), (left + spread).mT.expand(means.shape)

    def latent_left_out(
        self, *, client: Any = None, progress: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, variances and noise variances, ``T x outputs``, without each cloud."""
        pieces = self.training_data().pieces
        current = self.conditioned(client=client, progress=progress)
        noise, mean = self.noise_scale().detach(), self.means().detach()
        task, label = LeftOut(self._reader(), current, noise, mean), "Pieces" if progress else None
        parts = zip(*run(task, pieces, client=client, progress=label), strict=True)
        means, variances, noises = map(torch.cat, parts)
        return means, variances, noises

    def noise(self, rows: EmbeddedRows) -> Tensor:
        """Return noise variances at rows; if those of the training clouds are known, their mean."""
        noise: Tensor = self.likelihood.noise
        if self.noise_is_known:
            return noise.reshape(1, -1)
        each = (noise * relative_noise(self.likelihood, rows)).unsqueeze(-1)
        return each.expand(*each.shape[:-1], self.num_outputs)

    def in_batches(
        self, X: Any, method: str, *, client: Any = None, progress: bool = True, **arguments: Any
    ) -> tuple[Tensor, ...]:
        """Return what a method returns for inputs, those in shards piece by piece."""
        shards = isinstance(X, ShardedClouds)
        if client is not None and not shards:
            raise ValueError("Expected ShardedClouds to predict with a client.")
        self.eval()
        self.conditioned(client=client, progress=progress)
        if not shards:
            return super().in_batches(X, method, **arguments)
        model = copy.copy(self)
        model.data = None  # which workers do not need
        task = PredictedPieces(model, method, arguments)
        label = "Predicting" if progress else None
        parts = run(task, X.pieces, client=client, progress=label)
        return tuple(map(torch.cat, zip(*parts, strict=True)))

    def noise_scale(self) -> Tensor:
        """Return the noise variance of clouds with the relative noise 1."""
        if self.noise_is_known:
            return torch.ones_like(self.likelihood.noise.flatten()[:1])
        return self.likelihood.noise

    def means(self) -> Tensor:
        """Return the constant means, ``P x R``; see :class:`CollapsedSums`."""
        mean = self.mean_module.constant.reshape(-1)
        return mean.unsqueeze(-1 if self.noise_is_known else 0)

    def _reader(self) -> Reader:
        """Return the transforms in evaluation mode, which do not adapt to what they transform."""
        inputs, outcomes = (
            None if transform is None else copy.deepcopy(transform).eval()
            for transform in (self._input_transform, self._outcome_transform)
        )
        labelling = None if self.data is None else self.data.labelling
        return Reader(getattr(self, "likelihood", None), inputs, outcomes, self.encoding, labelling)

    def _key(self) -> Hashable:
        """Return a key of all on which the sums depend, besides the data."""
        parts = [self.covar_module, self._input_transform, self._outcome_transform]
        # The scale of homoskedastic noise does not enter the sums.
        if self.noise_is_known or isinstance(self.likelihood, SamplingNoiseLikelihood):
            parts.append(self.likelihood)
        return tuple(map(state_of, parts))

    @property
    def _computed_in(self) -> torch.dtype:
        return torch.float64

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
            (self.covar_module, self.likelihood, self._input_transform)
        )
        transform = self._outcome_transform
        if self.noise_is_known:
            noise = likelihood.noise.reshape(self.num_outputs, 1)[index]
            likelihood = FixedNoiseGaussianLikelihood(noise if several else noise[0])
        return SparseDistributionGP.from_sums(
            replace(summed.features, covar_module=kernel),
            summed.sums.of_outputs(index),
            self.encoding,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=None if transform is None else transform.subset_output(kept),
            input_transform=inputs,
            num_inducing=self.num_inducing,
            seed=self.seed,
            _squeeze_output=False,
        )

    @classmethod
    def from_sums(
        cls, features: Features, sums: CollapsedSums, encoding: Encoding | None, **attributes: Any
    ) -> Self:
        """Make a model that has sums over training clouds, but not the training clouds.

        Args:
            features: The features, with the kernel.
            sums: The sums at the hyperparameters of the kernel and the likelihood.
            encoding: Encoding of mixed inputs or of atoms, or ``None``.
            **attributes: All other attributes of a model; transforms may be ``None``.
        """
        model = cls.__new__(cls)
        super(SparseDistributionGP, model).__init__()
        model.data, model.encoding = None, encoding
        model.covar_module, model.feature_dtype = features.covar_module, features.dtype
        for name, value in attributes.items():
            if value is not None:
                setattr(model, name, value)
        model.take_sums(features, sums)
        return model

    def _set_transformed_inputs(self) -> None:
        """Do nothing: training inputs are transformed piece by piece."""

    def _revert_to_original_inputs(self) -> None:
        """Do nothing: training inputs are transformed piece by piece."""
