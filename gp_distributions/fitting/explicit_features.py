"""Fitting of models whose kernels are inner products of features."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import scipy
import torch
from gpytorch.kernels import Kernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.models.collapsed import CollapsedSums, ExplicitFeatures
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.numerics.expected_kernels import multiply
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.rows.clouds import split_rows

# Range of the logarithm of the ratio of noise to signal, about that learned from a sample, and the
# precision to which it is found.
_BELOW, _ABOVE, _PRECISION = 6.0, 12.0, 0.1
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


def learn_common_lengthscale(model: SparseDistributionGP) -> None:
    """Multiply all lengthscales by the factor that is most likely, given features of a sample.

    Few clouds, from which the lengthscales are learned, do not tell how smooth the function is that
    features of many clouds can resolve. The kernel and the noise have their most likely scales.
    """
    kernel = model.covar_module
    parts = [part for part in kernel.modules() if isinstance(part, RBFKernel)]
    parts = [part for part in parts if part.raw_lengthscale.requires_grad]
    if not parts:
        return
    with torch.no_grad():
        rows, targets, _ = model.sample_rows(_SAMPLE)
        centred = (targets - model.means().unsqueeze(-2))[0, :, 0]
        start = [part.lengthscale.clone() for part in parts]

        def stretched(log_factor: float) -> None:
            for part, lengthscale in zip(parts, start, strict=True):
                part.lengthscale = lengthscale * math.exp(log_factor)

        def density(log_factor: float) -> float:
            """Return the negative log density at the most likely scales."""
            stretched(log_factor)
            phi = ExplicitFeatures(kernel)(rows)
            values, vectors = torch.linalg.eigh(phi @ phi.mT)
            values, squares = values.clamp_min(0), (vectors.mT @ centred).square()

            def at(log_ratio: float) -> float:
                shifted = values + math.exp(log_ratio)
                fit = len(values) * math.log(float((squares / shifted).sum()) / len(values))
                return 0.5 * (fit + float(shifted.log().sum()))

            top = math.log(float(values[-1]) + 1e-300)
            found = scipy.optimize.minimize_scalar(at, bounds=(top - 30, top), method="bounded")
            return float(found.fun)

        found = scipy.optimize.minimize_scalar(
            density, bounds=_FACTORS, method="bounded", options={"xatol": _PRECISION}
        )
        stretched(float(found.x) if found.fun < density(0.0) else 0.0)


def scaled_to_evidence(
    model: SparseDistributionGP, features: ExplicitFeatures, sums: CollapsedSums
) -> tuple[ExplicitFeatures, CollapsedSums]:
    r"""Set the scale of the kernel and the noise to their most likely values, given sums.

    With the ratio :math:`r` of noise to scale, :math:`A = I + \Phi^\top \Phi / r` and
    :math:`q = (|y|^2 - y^\top \Phi A^{-1} \Phi^\top y / r) / r`, the scale is :math:`q / T`, and the
    log marginal likelihood is :math:`-(T \log (r q / T) + \log |A|) / 2`, up to a constant.

    Args:
        model: A model with features and one output.
        features: The features.
        sums: Their sums over all clouds, at the current hyperparameters.

    Returns:
        The features and the sums at the new hyperparameters.
    """
    kernel, likelihood = model.covar_module, model.likelihood
    start = float(model.noise_scale().detach().log())
    free = likelihood.noise_covar.raw_noise.requires_grad
    with torch.no_grad():
        linear, squares = sums.centred(model.means())
        outer, right, square = sums.outer[0], linear[0], float(squares[0, 0])

        def scale_at(log_ratio: float) -> tuple[float, float]:
            """Return the most likely scale, and the negative log marginal likelihood there."""
            ratio = math.exp(log_ratio)
            precision = outer / ratio
            precision.diagonal().add_(1)
            factor = cholesky(precision)
            explained = torch.linalg.solve_triangular(factor, right, upper=False).square().sum()
            scale = max((square - float(explained) / ratio) / ratio, 1e-300) / sums.count
            logdet = 2 * float(factor.diagonal().log().sum())
            return scale, 0.5 * (sums.count * (log_ratio + math.log(scale)) + logdet)

        found = start
        if free:
            bounds = (start - _BELOW, start + _ABOVE)
            search = scipy.optimize.minimize_scalar(
                lambda log_ratio: scale_at(log_ratio)[1],
                bounds=bounds,
                method="bounded",
                options={"xatol": _PRECISION},
            )
            found = float(search.x)
        scale, _ = scale_at(found)
        if not free:
            scale = 1.0
        multiply(kernel.base_kernel, scale)
        if free:
            likelihood.noise = _within(likelihood, scale * math.exp(found))
    return features, sums.scaled(scale)


def _within(likelihood: GaussianLikelihood, noise: float) -> Tensor:
    """Return a noise variance within its constraint."""
    constraint: Any = likelihood.noise_covar.raw_noise_constraint
    low, high = float(constraint.lower_bound), float(constraint.upper_bound)
    return torch.tensor(min(max(noise, low * (1 + 1e-6)), high), dtype=torch.float64)
