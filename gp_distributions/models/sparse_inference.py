"""Sums over the training clouds of a sparse model, formed when they are needed."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from linear_operator import to_linear_operator
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.covariances import covariance
from gp_distributions.models.collapsed import CollapsedPosterior, CollapsedSums, Features
from gp_distributions.models.exact_inference import ExactMultivariateNormal
from gp_distributions.models.inducing import choose_features
from gp_distributions.models.passes import (
    LeftOut,
    PieceSums,
    PredictedPieces,
    Reader,
    chunks,
    sums_over_pieces,
)
from gp_distributions.models.pieces import SampledPieces
from gp_distributions.models.regression import Regression
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood, relative_noise
from gp_distributions.rows.fingerprint import fingerprint
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.sharded_clouds import ShardedClouds

#: Number of sampled clouds to which distances, sampling noise and, for shards, the targets' scale adapt.
ADAPTED = 1000


@dataclass(frozen=True, eq=False)
class Summed:
    """Features and sums, with the key of what they depend on besides the data."""

    key: Hashable
    features: Features
    sums: CollapsedSums


class SparseInference(Regression, gpytorch.Module):
    """What fits and predictions of sparse models need: the sample, the inducing clouds and the sums.

    Attributes:
        data: The training data in pieces, or ``None`` if the model has only sums over them.
        num_inducing: Largest number of inducing clouds.
        feature_dtype: Precision of the features.
        seed: Random seed for the choice of the inducing clouds.
    """

    data: SampledPieces | None
    num_inducing: int
    feature_dtype: torch.dtype
    seed: int
    _num_outputs: int
    _summed: Summed | None
    _current: tuple[Hashable, CollapsedPosterior] | None

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
        content = data.part(ADAPTED) if data.memory is None else data.memory.content
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
        key = self._posterior_key(summed.key)
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
        return self._num_outputs

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters and the predictions; all computations are in double precision."""
        return self.mean_module.constant.dtype

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the model, which is empty."""
        return torch.Size()

    def latent(self, rows: Tensor, outputs: list[int]) -> list[MultivariateNormal]:
        """Return the joint posterior of each of some outputs at ``... x q x width`` rows."""
        current = self.conditioned(progress=False)
        held = EmbeddedRows(rows)
        within = covariance(self.covar_module, held)
        phi = current.features(held)
        centred, covariances = current.moments(phi, within, outputs)
        means = (centred + self.means().detach().flatten()[outputs]).to(self.dtype)
        return [
            ExactMultivariateNormal(mean, to_linear_operator(each.to(self.dtype)))
            for mean, each in zip(means.unbind(-1), covariances, strict=True)
        ]

    def latent_marginals(self, rows: Tensor, given: CollapsedPosterior) -> tuple[Tensor, Tensor]:
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

    def noise(self, rows: Tensor) -> Tensor:
        """Return noise variances at rows; if those of the training clouds are known, their mean."""
        noise: Tensor = self.likelihood.noise
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
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
        task = PredictedPieces(self.without_data(), method, arguments)
        label = "Predicting" if progress else None
        parts = run(task, X.pieces, client=client, progress=label)
        return tuple(map(torch.cat, zip(*parts, strict=True)))

    def noise_scale(self) -> Tensor:
        """Return the noise variance of clouds with the relative noise 1."""
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            return torch.ones_like(self.likelihood.noise.flatten()[:1])
        return self.likelihood.noise

    def means(self) -> Tensor:
        """Return the constant means, ``P x R``; see :class:`CollapsedSums`."""
        mean = self.mean_module.constant.reshape(-1)
        fixed = isinstance(self.likelihood, FixedNoiseGaussianLikelihood)
        return mean.unsqueeze(-1) if fixed else mean.unsqueeze(0)

    def _reader(self) -> Reader:
        """Return the transforms in evaluation mode, which do not adapt to what they transform."""
        known = isinstance(getattr(self, "likelihood", None), FixedNoiseGaussianLikelihood)
        inputs, outcomes = (
            None if transform is None else copy.deepcopy(transform).eval()
            for transform in (
                getattr(self, "input_transform", None),
                getattr(self, "outcome_transform", None),
            )
        )
        likelihood = None if known else getattr(self, "likelihood", None)
        labelling = None if self.data is None else self.data.labelling
        return Reader(likelihood, inputs, outcomes, self.encoding, labelling)

    def _key(self) -> Hashable:
        """Return a key of all on which the sums depend, besides the data."""
        parts = [self.covar_module]
        parts += [getattr(self, name, None) for name in ("input_transform", "outcome_transform")]
        # The scale of homoskedastic noise does not enter the sums.
        if isinstance(self.likelihood, SamplingNoiseLikelihood | FixedNoiseGaussianLikelihood):
            parts.append(self.likelihood)
        return tuple(None if part is None else fingerprint(part) for part in parts)

    def _posterior_key(self, key: Hashable) -> Hashable:
        """Return a key of all on which the posterior depends, given that of the sums."""
        parts = self.likelihood, self.mean_module
        return key, *(fingerprint(part) for part in parts)

    @property
    def _computed_in(self) -> torch.dtype:
        return torch.float64

    def without_data(self) -> Self:
        """Return a model that shares all but the training data, to be sent to workers."""
        model = copy.copy(self)
        model.data = None
        return model
