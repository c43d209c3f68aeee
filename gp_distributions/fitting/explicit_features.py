"""Fitting of models whose kernels are inner products of features."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import scipy
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel
from torch import Tensor

from gp_distributions.fitting.starts import start_at
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.models.collapsed import CollapsedSums, ExplicitFeatures
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.numerics.expected_kernels import multiply, scales_of
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.rows.clouds import split_rows

# How far the logarithm of the ratio of noise to scale may be from that of a sample, and the precision of
# logarithms that are searched.
_WIDTH, _PRECISION = 4.0, 0.1
# The least mean squared error of targets of variance one, which the mean may explain entirely.
_ERROR = 1e-20
# Range of the logarithm of the factor of lengthscales, and the number of clouds that tell it.
_FACTORS, _SAMPLE = (-1.5, 2.5), 1000
# Pairs of more atoms take longer than so many features.
_MOST_ATOMS, _FEW_FEATURES = 8000, 256


@contextlib.contextmanager
def cheapest_covariances(kernel: Kernel, rows: Tensor) -> Iterator[None]:
    """Compute covariances from all pairs of atoms for a while, or from few features if faster."""
    if not isinstance(kernel, ExpectedKernel) or kernel.num_features is None:
        yield
        return
    kept = kernel.num_features
    few = int((split_rows(rows, kernel.dim)[1] > 0).sum()) <= _MOST_ATOMS
    kernel.num_features = None if few else min(kept, _FEW_FEATURES)
    try:
        yield
    finally:
        kernel.num_features = kept


def has_one_lengthscale(kernel: Kernel) -> bool:
    """Whether a kernel has one lengthscale, and only a constant kernel beside it."""
    parts = list(kernel.modules())
    lengthscales = [part.lengthscale.numel() for part in parts if isinstance(part, RBFKernel)]
    more = any(
        isinstance(part, LinearKernel) or getattr(part, "correlated", False) for part in parts
    )
    return lengthscales == [1] and not more


def learn_from_sample(model: SparseDistributionGP) -> None:
    """Multiply all lengthscales by their most likely common factor, given features of a sample.

    Few clouds, from which the lengthscales are learned, do not tell how smooth the function is that
    features of many clouds can resolve. The kernel and the noise get their most likely scales.
    """
    kernel = model.covar_module
    parts = [
        part
        for part in kernel.modules()
        if isinstance(part, RBFKernel) and part.raw_lengthscale.requires_grad
    ]
    with torch.no_grad():
        rows, targets, _ = model.sample_rows(_SAMPLE)
        centred = (targets - model.means().unsqueeze(-2))[0, :, 0]
        start = [part.lengthscale.clone() for part in parts]

        def stretch(log_factor: float) -> None:
            for part, lengthscale in zip(parts, start, strict=True):
                part.lengthscale = lengthscale * math.exp(log_factor)

        def evidence(log_factor: float) -> _Evidence:
            stretch(log_factor)
            phi = ExplicitFeatures(kernel)(rows)
            values, vectors = torch.linalg.eigh(phi @ phi.mT)
            values, squares = values.clamp_min(0), (vectors.mT @ centred).square()

            def at(log_ratio: float) -> _Evidence:
                shifted = values + math.exp(log_ratio)
                quadratic = float((squares / shifted).sum())
                return _Evidence.of(quadratic, float(shifted.log().sum()), len(values), log_ratio)

            top = math.log(float(values[-1]) + 1e-300)
            return _most_likely(at, top - 30, top)

        try:
            found = _most_likely(evidence, *_FACTORS) if parts else evidence(0.0)
        except BaseException:  # an interrupt
            stretch(0.0)
            raise
        stretch(found.place)
        _set_scales(model, found)


def scaled_to_evidence(model: SparseDistributionGP, sums: CollapsedSums) -> CollapsedSums:
    r"""Set the scale of the kernel and the noise to their most likely values, given sums.

    With the ratio :math:`r` of noise to scale, :math:`A = I + \Phi^\top \Phi / r` and
    :math:`q = (|y|^2 - y^\top \Phi A^{-1} \Phi^\top y / r) / r`, the scale is :math:`q / T`, and the
    log marginal likelihood is :math:`-(T \log (r q / T) + \log |A|) / 2`, up to a constant.

    Args:
        model: A model with explicit features and one output.
        sums: The sums over all clouds, at the current hyperparameters.

    Returns:
        The sums at the new hyperparameters.
    """
    if not _scales_are_free(model):
        return sums
    start = float(model.noise_scale().detach().log())
    with torch.no_grad():
        linear, squares = sums.centred(model.means())
        outer, right, square = sums.outer[0], linear[0], float(squares[0, 0])

        def at(log_ratio: float) -> _Evidence:
            ratio = math.exp(log_ratio)
            precision = outer / ratio
            precision.diagonal().add_(1)
            factor = cholesky(precision)
            explained = torch.linalg.solve_triangular(factor, right, upper=False).square().sum()
            quadratic = max(square - float(explained) / ratio, 0.0) / ratio
            logdet = sums.count * log_ratio + 2 * float(factor.diagonal().log().sum())
            return _Evidence.of(quadratic, logdet, sums.count, log_ratio)

        return sums.scaled(_set_scales(model, _most_likely(at, start - _WIDTH, start + _WIDTH)))


class _Evidence(NamedTuple):
    """The negative log marginal likelihood at some place, with the most likely scale of the kernel.

    Attributes:
        value: The negative log marginal likelihood, up to a constant.
        scale: The scale of the kernel.
        log_ratio: The logarithm of the ratio of noise to scale.
        place: Where it is.
    """

    value: float
    scale: float
    log_ratio: float
    place: float = math.nan

    @classmethod
    def of(cls, quadratic: float, logdet: float, count: int, log_ratio: float) -> _Evidence:
        """Return the evidence, given the squares of targets and the determinant at scale one."""
        scale = max(quadratic / count, _ERROR)
        return cls(0.5 * (count * math.log(scale) + logdet), scale, log_ratio)


def _most_likely(at: Callable[[float], _Evidence], low: float, high: float) -> _Evidence:
    """Return the evidence where it is largest in an interval."""
    found: list[_Evidence] = []

    def value(place: float) -> float:
        found.append(at(place)._replace(place=place))
        return found[-1].value

    options = {"xatol": _PRECISION}
    scipy.optimize.minimize_scalar(value, bounds=(low, high), method="bounded", options=options)
    return min(found)


def _scales_are_free(model: SparseDistributionGP) -> bool:
    """Whether the noise and all scales of the kernel may be learned."""
    noise = model.likelihood.noise_covar.raw_noise
    return all(each.requires_grad for each in (noise, *scales_of(model.covar_module)))


def _set_scales(model: SparseDistributionGP, found: _Evidence) -> float:
    """Multiply the kernel by its most likely scale, set the noise, and return the scale."""
    if not _scales_are_free(model):
        return 1.0
    multiply(model.covar_module.base_kernel, found.scale)
    noise = model.likelihood.noise_covar
    start_at(noise, "noise", noise.raw_noise.new_tensor([found.scale * math.exp(found.log_ratio)]))
    return found.scale
