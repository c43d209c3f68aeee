r"""Features of mean embeddings: random Fourier features, landmarks and moments.

Random Fourier features: frequencies of isotropic kernels, and features of mean embeddings.

The kernels are scale mixtures of the Gaussian kernel, :math:`k = \mathrm E \exp(-\tau^2 s / 2)`. Hence
:math:`k(x, y) = \mathrm E \cos \langle \omega, x - y \rangle` with :math:`\omega = \tau z` and standard
normal :math:`z`.

Moments up to order three as features of the mean embeddings of polynomial kernels.

The inner products of these features equal those of the mean embeddings:

.. math::
    \mathrm E (\langle X, Y \rangle + 1)^p = \sum_{k=0}^p \binom p k
    \langle \mathrm E X^{\otimes k}, \mathrm E Y^{\otimes k} \rangle.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import (
    EmbeddingKernel,
    EnergyKernel,
    IsotropicKernel,
)
from gp_distributions.numerics.mean_embeddings import inner_products

# Number of angles that are computed at a time.
_BLOCK = 2**18


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
    norms = np.sqrt(2 * scipy.special.gammaincinv(dim / 2, _stratified(rng, count)))
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
    return torch.from_numpy(
        scipy.special.ndtri(uniform[:, 1:]) * kernel.mixing(uniform[:, 0])[:, None]
    )


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
    # Blocks of atoms whose waves fit into the cache.
    size = max(1, _BLOCK // max(1, len(points) * len(frequencies)))
    total = weights.new_zeros(())
    for start in range(0, points.shape[1], size):
        block = slice(start, start + size)
        angles = points[:, block] @ frequencies.T
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        if covariance is not None:
            squares = (frequencies.unsqueeze(-1) * frequencies.unsqueeze(-2)).flatten(-2)
            damping = torch.exp(-0.5 * covariance[:, block].flatten(-2) @ squares.T)
            waves = waves * damping.repeat(1, 1, 2)
        total = total + (weights[:, block].unsqueeze(-2) @ waves).squeeze(-2)
    return total / math.sqrt(len(frequencies))


def kmeans(
    atoms: NDArray[np.float64], count: int, rng: np.random.Generator, *, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Cluster atoms by k-means from a k-means++ start.

    The result equals that of ``scipy.cluster.vq.kmeans2``, but without its warning about empty
    clusters, which keep their centres.

    Args:
        atoms: An ``M x d`` array.
        count: Number of clusters. There are fewer if fewer atoms are distinct.
        rng: Random number generator for the start.
        steps: Number of steps of k-means, at least one.

    Returns:
        The ``K x d`` centres, and for each centre the number of atoms nearest to it, which may be zero.
    """
    chosen = [int(rng.integers(len(atoms)))]
    squares = scipy.spatial.distance.cdist(atoms[chosen], atoms, "sqeuclidean")[0]
    while len(chosen) < count and squares.any():
        chosen.append(int(rng.choice(len(atoms), p=squares / squares.sum())))
        squares = np.minimum(
            squares, scipy.spatial.distance.cdist(atoms[chosen[-1:]], atoms, "sqeuclidean")[0]
        )
    centres = atoms[chosen]
    for _ in range(steps):
        nearest, _ = scipy.cluster.vq.vq(atoms, centres)
        sizes = np.bincount(nearest, minlength=len(centres))
        sums = [np.bincount(nearest, column, len(centres)) for column in atoms.T]
        means = np.stack(sums, axis=-1) / np.maximum(sizes, 1)[:, None]
        centres = np.where(sizes[:, None] > 0, means, centres)
    return centres, sizes


def spread_landmarks(atoms: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Choose landmarks that represent atoms: the centres of k-means, or all atoms if there are few.

    Args:
        atoms: An ``M x d`` tensor of atoms, which may be repeated.
        count: Number ``D`` of landmarks.
        seed: Random seed for the start of k-means.

    Returns:
        A ``D x d`` tensor in double precision. Atoms are repeated if fewer than ``D`` are distinct.
    """
    atoms = atoms.to(device="cpu", dtype=torch.float64)
    distinct = atoms.unique(dim=0)
    if len(distinct) <= count:
        return distinct[torch.arange(count) % len(distinct)]
    centres, _ = kmeans(atoms.numpy(), count, np.random.default_rng(seed), steps=10)
    return torch.from_numpy(centres)


def landmark_features(
    kernel: EmbeddingKernel, landmarks: Tensor, points: Tensor, weights: Tensor
) -> Tensor:
    r"""Compute the features :math:`L^{-1} \sum_i w_i k(Z, x_i)`.

    Here :math:`L L^\top` is :math:`k(Z, Z)` plus a jitter. Up to the jitter, distances between features
    never exceed distances between the mean embeddings.

    Args:
        kernel: Kernel on the atoms.
        landmarks: A ``D x d`` tensor of landmarks ``Z``.
        points: A ``C x n x d`` tensor of atoms.
        weights: A ``C x n`` tensor of weights that sum to one.

    Returns:
        A ``C x D`` tensor of features.

    Source: Williams and Seeger 2001.
    """
    dtype = points.dtype
    landmarks, points, weights = landmarks.double(), points.double(), weights.double()
    single = torch.ones_like(landmarks[:, :1])
    gram = kernel.matrix(landmarks, landmarks)
    products = inner_products(kernel, landmarks.unsqueeze(-2), single, points, weights)
    if isinstance(kernel, EnergyKernel):
        # The kernel |x - x0| + |y - x0| - |x - y| about an origin x0 is positive definite.
        origin = landmarks.mean(0, keepdim=True)
        to_origin = kernel.matrix(landmarks, origin)
        gram = gram - to_origin - to_origin.T
        at_origin = inner_products(kernel, origin.unsqueeze(-2), single[:1], points, weights)
        products = products - to_origin - at_origin
    # The jitter bounds the error of inner products, and keeps the smallest eigenvalues of the Gram
    # matrix of a thousand landmarks above rounding.
    jitter = 1e-10 * gram.detach().diagonal().mean()
    factor = torch.linalg.cholesky(gram + jitter * torch.eye(len(gram)).to(gram))
    return torch.linalg.solve_triangular(factor, products, upper=False).T.to(dtype)


def moment_features(
    points: Tensor, weights: Tensor, degree: int, covariance: Tensor | None = None
) -> Tensor:
    """Compute the mean embeddings of a polynomial kernel as vectors of moments.

    Args:
        points: A ``C x n x d`` tensor of atoms, or of the means of Gaussian components.
        weights: A ``C x n`` tensor of weights that sum to one.
        degree: 1 for the linear kernel ``<x, y>``; 2 or 3 for ``(<x, y> + 1)^degree``.
        covariance: A ``C x n x d x d`` tensor, the covariances of Gaussian components.

    Returns:
        A ``C x d`` tensor for degree 1, otherwise a ``C x (1 + d + ... + d^degree)`` tensor.
    """
    weighted = weights.unsqueeze(-1) * points
    mean = weighted.sum(-2)
    if degree == 1:
        return mean
    second = points.unsqueeze(-1) * points.unsqueeze(-2)
    if covariance is not None:
        second = second + covariance
    moments = [torch.ones_like(mean[..., :1]), mean]
    moments.append(torch.einsum("cn,cnab->cab", weights, second).flatten(-2))
    if degree == 3:
        third = torch.einsum("cna,cnbe->cabe", weighted, second)
        if covariance is not None:  # E X_a X_b X_c has a term m_a S_bc for each of a, b and c
            product = torch.einsum("cna,cnbe->cabe", weighted, covariance)
            third = third + product.permute(0, 2, 1, 3) + product.permute(0, 2, 3, 1)
        moments.append(third.flatten(-3))
    roots = [math.sqrt(math.comb(degree, k)) for k in range(degree + 1)]
    return torch.cat([root * moment for root, moment in zip(roots, moments, strict=True)], dim=-1)
