"""Exact inference by Cholesky factors, for any number of clouds and any GPyTorch settings.

While GPyTorch and BoTorch predict, they change settings of the whole process. If several threads predict
at the same time, the settings could stay changed. This module does not change any settings.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TypeAlias

import torch
from botorch.posteriors import Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import LinearOperator
from linear_operator.operators import (
    AddedDiagLinearOperator,
    DiagLinearOperator,
    RootLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.utils.errors import CachingError
from linear_operator.utils.memoize import add_to_cache, get_from_cache
from torch import Tensor

from gp_distributions.numerics.linear_algebra import cholesky, log_densities

# Means and variances.
Moments: TypeAlias = tuple[Tensor, Tensor]

_ONE_SAMPLE = torch.Size()


class ExactMultivariateNormal(MultivariateNormal):
    """Multivariate normal distribution that computes densities and samples from Cholesky factors."""

    def log_prob(self, value: Tensor, *, level: bool = False) -> Tensor:
        """Return the log density of ``value``, with an unknown level integrated or not."""
        covariance, noise = without_noise(self.lazy_covariance_matrix)
        difference = value - self.loc
        batch_shape = torch.broadcast_shapes(
            difference.shape[:-1], covariance.shape[:-2], noise.shape[:-1]
        )
        difference = difference.expand(*batch_shape, -1)
        samples = len(batch_shape) - (covariance.dim() - 2)
        columns = difference.flatten(0, samples - 1) if samples else difference.unsqueeze(0)
        covariance = covariance.expand(*batch_shape[samples:], -1, -1)
        noise = noise.expand(*batch_shape[samples:], -1)
        densities = log_densities(columns.movedim(0, -1), covariance, noise, level=level)
        return densities.movedim(-1, 0).reshape(batch_shape)

    def rsample(
        self, sample_shape: torch.Size = _ONE_SAMPLE, base_samples: Tensor | None = None
    ) -> Tensor:
        """Draw reparametrised samples, a ``sample_shape x batch_shape x N`` tensor."""
        covariance = self.lazy_covariance_matrix
        try:
            get_from_cache(covariance, "root_decomposition")
        except CachingError:
            dense = covariance.to_dense()
            # A single variance that rounding made negative becomes 0 and needs no jitter.
            factor = dense.clamp_min(0).sqrt() if dense.shape[-1] == 1 else cholesky(dense)
            add_to_cache(covariance, "root_decomposition", _root(factor))
        if base_samples is None:
            base_samples = self.get_base_samples(sample_shape)
        return super().rsample(sample_shape, base_samples)


class Conditioned:
    r"""A prior conditioned on training targets, by one Cholesky factor.

    With covariances :math:`C = L L^\top` of the targets, noise included, and their errors :math:`e`, the
    differences from prior means, predictions need :math:`C^{-1} e` and :math:`L^{-\top}`. A level
    :math:`\mu` with a flat prior beside the prior mean is integrated: with :math:`b = C^{-1} 1`,

    .. math::
        \hat\mu = \frac{b^\top e}{1^\top b}, \qquad
        m(P) = \hat\mu + k^\top C^{-1} (e - \hat\mu 1), \qquad
        v(P) = k(P, P) - k^\top C^{-1} k + \frac{(1 - k^\top b)^2}{1^\top b}.

    Args:
        factor: The factor :math:`L`, a ``batch_shape x T x T`` tensor.
        errors: The errors :math:`e`, ``batch_shape x T``.
        level: Whether there is a level to integrate.
        inverse: The inverse root :math:`L^{-\top}`. Default: computed.
        key: Key of the modules and hyperparameters from which the factor was computed.

    Attributes:
        mean_cache: The weights of the training clouds in predicted means, ``batch_shape x T``.
        level: The estimated level, ``batch_shape x 1``, or 0.

    Source: Rasmussen and Williams 2006, section 2.7 (the level).
    """

    def __init__(
        self,
        factor: Tensor,
        errors: Tensor,
        *,
        level: bool = False,
        inverse: Tensor | None = None,
        key: Hashable = None,
    ) -> None:
        if inverse is None:
            identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
            inverse = torch.linalg.solve_triangular(factor, identity, upper=False).mT
        self.factor, self.errors, self.inverse, self.key = factor, errors, inverse, key
        self.integrates_level = level
        self.level: Tensor | float = 0.0
        if level:
            basis = inverse.sum(-2).unsqueeze(-2) @ inverse.mT  # b, ... x 1 x T
            self._basis = basis / basis.sum(-1, keepdim=True).sqrt()
            self.level = (basis.squeeze(-2) * errors).sum(-1, keepdim=True) / basis.sum(-1)
        self._residuals = errors - self.level
        self.mean_cache = _solved(factor, self._residuals)

    def is_of(self, key: Hashable) -> bool:
        """Whether this belongs to modules and values, and can be used in this mode."""
        usable = torch.is_inference_mode_enabled() or not self.mean_cache.is_inference()
        return usable and self.key == key

    @property
    def precision(self) -> Tensor:
        """The diagonal of the inverse covariance matrix of the targets, ``batch_shape x T``."""
        diagonal = self.inverse.square().sum(-1)
        return diagonal - self._basis.squeeze(-2).square() if self.integrates_level else diagonal

    @property
    def log_evidence(self) -> Tensor:
        """The log marginal likelihood of the targets, of shape ``batch_shape``."""
        size = self.factor.shape[-1]
        determinant = 2 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if self.integrates_level:
            size, determinant = size - 1, determinant + self._total.log()
        fit = (self._residuals * self.mean_cache).sum(-1)
        return -0.5 * (fit + determinant + size * math.log(2 * math.pi))

    @property
    def _total(self) -> Tensor:
        """The sum of b, of shape ``batch_shape``."""
        return self._basis.sum((-2, -1)).square()

    def marginals(self, to_train: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the training clouds add to prior means and take from prior variances.

        Args:
            to_train: Prior covariances with the training clouds, ``batch_shape x N x T``.
        """
        fitted, root = self._projected(to_train)
        explained = root.square().sum(-1)
        if self.integrates_level:
            explained = explained - self._free(to_train).square().squeeze(-1)
        return fitted, explained

    def joint(self, to_train: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same with covariances, ``batch_shape x N x N``, in place of variances."""
        fitted, root = self._projected(to_train)
        explained = root @ root.mT
        if self.integrates_level:
            free = self._free(to_train)
            explained = explained - free @ free.mT
        return fitted, explained

    def weights_of(self, index: Tensor, to_train: Tensor) -> Tensor:
        """Return the weight of the error of one training target in each predicted mean, ``... x N``.

        Args:
            index: The number of the training cloud for each of the ``N`` others.
            to_train: As for :meth:`marginals`.
        """
        found = ((to_train @ self.inverse) * self.inverse[..., index, :]).sum(-1)
        if self.integrates_level:
            found = found + (self._free(to_train) * self._basis[..., index].mT).squeeze(-1)
        return found

    def of_errors(self, errors: Tensor) -> Conditioned:
        """Return the same prior conditioned on other targets, ``... x T``."""
        return Conditioned(
            self.factor, errors, level=self.integrates_level, inverse=self.inverse, key=self.key
        )

    def extended(
        self, to_train: Tensor, within: Tensor, errors: Tensor, *, key: Hashable
    ) -> Conditioned:
        """Return this prior conditioned on further targets, by a Cholesky factor of their size.

        Args:
            to_train: Prior covariances of the new clouds with the training clouds, ``... x N x T``.
            within: Covariances of the new targets, noise included, ``... x N x N``.
            errors: Differences of all targets from their prior means, ``... x (T + N)``.
            key: As for the class.
        """
        root = to_train @ self.inverse
        corner = cholesky(within - root @ root.mT)
        shape = torch.broadcast_shapes(corner.shape[:-2], errors.shape[:-1])
        identity = torch.eye(corner.shape[-1], dtype=corner.dtype, device=corner.device)
        inverse = torch.linalg.solve_triangular(corner, identity, upper=False).mT
        across = -self.inverse @ root.mT @ inverse
        zero = root.new_zeros(())
        factor, inverse = (
            part.expand(*shape, *part.shape[-2:])
            for part in (
                _blocks(self.factor, zero, root, corner),
                _blocks(self.inverse, across, zero, inverse),
            )
        )
        return Conditioned(factor, errors, level=self.integrates_level, inverse=inverse, key=key)

    def _projected(self, to_train: Tensor) -> tuple[Tensor, Tensor]:
        fitted = (to_train @ self.mean_cache.unsqueeze(-1)).squeeze(-1)
        return fitted + self.level, to_train @ self.inverse

    def _free(self, to_train: Tensor) -> Tensor:
        """Return a root of what the unknown level adds to covariances, ``... x N x 1``."""
        return self._total.rsqrt()[..., None, None] - to_train @ self._basis.mT


def _solved(factor: Tensor, values: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(factor.shape[:-2], values.shape[:-1])
    columns = values.expand(*shape, -1).unsqueeze(-1)
    return torch.cholesky_solve(columns, factor).squeeze(-1)


def _blocks(first: Tensor, upper: Tensor, lower: Tensor, last: Tensor) -> Tensor:
    """Return matrices of four blocks, whose batch axes broadcast; a scalar fills its block."""
    size, more = first.shape[-1], last.shape[-1]
    shapes = [part.shape[:-2] for part in (first, upper, lower, last)]
    whole = last.new_zeros(*torch.broadcast_shapes(*shapes), size + more, size + more)
    whole[..., :size, :size] = first
    whole[..., :size, size:] = upper
    whole[..., size:, :size] = lower
    whole[..., size:, size:] = last
    return whole


def without_noise(operator: LinearOperator) -> tuple[Tensor, Tensor]:
    """Return a dense matrix and a diagonal, whose sum is the matrix that an operator stands for.

    If the operator is a sum of a matrix and a diagonal, they are its terms, so that a large matrix need
    not be copied to add noise.

    Args:
        operator: A ``batch_shape x N x N`` linear operator.

    Returns:
        A ``batch_shape x N x N`` tensor and a ``batch_shape x N`` tensor.
    """
    if type(operator) is AddedDiagLinearOperator:
        first, second = operator.linear_ops
        if isinstance(second, DiagLinearOperator):
            return first.to_dense(), second.diagonal()
    dense = operator.to_dense()
    return dense, dense.new_zeros(dense.shape[:-1])


def marginal_moments(posterior: Posterior, smallest: float) -> Moments:
    """Return the means and the marginal variances of a posterior.

    ``posterior.variance`` of GPyTorch has the same lower bound for targets in any unit. This function
    takes the bound as an argument.

    Args:
        posterior: The posterior of a model.
        smallest: Lower bound of the variances. It applies only to multivariate normal posteriors.

    Returns:
        Two ``batch_shape x q x outputs`` tensors.

    Raises:
        ValueError: If the outcome transform of the model has no moments in closed form.
    """
    try:
        mean = posterior.mean
    except NotImplementedError as error:  # of BoTorch's TransformedPosterior
        raise ValueError(
            "Expected an outcome transform under which means are known, such as Standardize, Log or a "
            "chain of them. Draw samples from posterior(X), or transform the targets beforehand."
        ) from error
    distribution = getattr(posterior, "distribution", None)
    if not isinstance(distribution, MultivariateNormal):
        return mean, posterior.variance
    diagonal = distribution.lazy_covariance_matrix.diagonal()
    if isinstance(distribution, MultitaskMultivariateNormal):
        values, outputs = distribution.event_shape
        shape = (values, outputs) if distribution._interleaved else (outputs, values)
        diagonal = diagonal.unflatten(-1, shape)
        diagonal = diagonal if distribution._interleaved else diagonal.mT
    else:
        diagonal = diagonal.unsqueeze(-1)
    return mean, diagonal.clamp_min(smallest).expand(mean.shape)


def _root(factor: Tensor) -> RootLinearOperator:
    return RootLinearOperator(TriangularLinearOperator(factor))
