r"""Random Fourier features: frequencies of isotropic kernels, and features of mean embeddings.

The kernels are scale mixtures of the Gaussian kernel, :math:`k = \mathrm E \exp(-\tau^2 s / 2)`. Hence
:math:`k(x, y) = \mathrm E \cos \langle \omega, x - y \rangle` with :math:`\omega = \tau z` and standard
normal :math:`z`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import IsotropicKernel


def orthogonal_frequencies(
    kernel: IsotropicKernel, dim: int, count: int, *, seed: int = 0
) -> Tensor:
    """Draw frequencies in blocks of ``dim`` orthogonal vectors.

    The norms have the distribution of those of independent frequencies. They are stratified: one norm
    falls into each of ``count`` intervals of equal probability.

    Args:
        kernel: Isotropic kernel, in units of its bandwidth.
        dim: Dimension ``d``.
        count: Number ``K`` of frequencies.
        seed: Random seed for rotations and norms.

    Returns:
        A ``K x d`` tensor in double precision.

    Source: Yu et al. 2016, section 3.
    """
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((-(-count // dim), dim, dim))
    # The signs of the columns are not random, but the kernel does not depend on them.
    directions = np.linalg.qr(normal)[0].swapaxes(-1, -2).reshape(-1, dim)[:count]
    norms = np.sqrt(2 * gammaincinv(dim / 2, _stratified(rng, count)))
    norms *= kernel.mixing(_stratified(rng, count))
    return torch.from_numpy(directions * norms[:, None])


def quasi_random_frequencies(
    kernel: IsotropicKernel, dim: int, count: int, *, seed: int = 0
) -> Tensor:
    """Compute frequencies from the points of a scrambled Sobol sequence.

    Args:
        kernel: Isotropic kernel, in units of its bandwidth.
        dim: Dimension ``d``.
        count: Number ``K`` of frequencies.
        seed: Random seed for the scrambling.

    Returns:
        A ``K x d`` tensor in double precision.

    Source: Avron et al. 2016.
    """
    engine = torch.quasirandom.SobolEngine(dim + 1, scramble=True, seed=seed)
    # The points are multiples of 2^-30 and may be zero, so they are moved by half a step.
    uniform = engine.draw(count, dtype=torch.float64).numpy() + 2.0**-31
    return torch.from_numpy(ndtri(uniform[:, 1:]) * kernel.mixing(uniform[:, 0])[:, None])


def _stratified(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw one number from each of ``count`` equal intervals of (0, 1), in random order."""
    uniform = (rng.permutation(count) + rng.random(count)) / count
    return np.clip(uniform, 2.0**-40, 1 - 2.0**-40)  # quantile functions may be infinite at 0 and 1


def fourier_features(
    points: Tensor, weights: Tensor, frequencies: Tensor, covariance: Tensor | None = None
) -> Tensor:
    r"""Approximate mean embeddings by the means of cosines and sines.

    For a Gaussian, :math:`\mathrm E e^{i \langle \omega, X \rangle} = e^{i \langle \omega, m \rangle -
    \omega^\top S \omega / 2}`.

    Args:
        points: A ``C x n x d`` tensor of atoms, or of the means of Gaussian components.
        weights: A ``C x n`` tensor of weights that sum to one.
        frequencies: A ``K x d`` tensor.
        covariance: A ``C x n x d x d`` tensor, the covariances of Gaussian components.

    Returns:
        A ``C x 2K`` tensor of features.
    """
    angles = points @ frequencies.T
    amplitudes = weights.unsqueeze(-1) / math.sqrt(len(frequencies))
    if covariance is not None:
        squares = (frequencies.unsqueeze(-1) * frequencies.unsqueeze(-2)).flatten(-2)
        amplitudes = amplitudes * torch.exp(-0.5 * covariance.flatten(-2) @ squares.T)
    return torch.cat(
        [(amplitudes * angles.cos()).sum(-2), (amplitudes * angles.sin()).sum(-2)], dim=-1
    )
