"""Nystrom features: mean embeddings projected onto the span of the kernel at a few landmarks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import EmbeddingKernel, EnergyKernel
from gp_distributions.numerics.kmeans import kmeans
from gp_distributions.numerics.mean_embeddings import inner_products


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
