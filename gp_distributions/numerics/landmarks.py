"""Nystrom features: mean embeddings projected on the span of the kernel at a few landmarks."""

from __future__ import annotations

import warnings

import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import EmbeddingKernel, EnergyKernel
from gp_distributions.numerics.mean_embeddings import inner_products

# Relative to the mean of the diagonal: inner products are off by so much at most, and the smallest
# eigenvalues of a thousand landmarks still stand out of rounding.
_JITTER = 1e-10


def spread_landmarks(atoms: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Points that represent atoms: the centres of k-means, or all atoms where they are not more.

    Args:
        atoms: A ``M x d`` tensor of atoms, repeated by weight.
        count: The number ``D`` of points.
        seed: Of the start of k-means.

    Returns:
        A ``D x d`` tensor in double precision; points are repeated if there are fewer atoms.
    """
    atoms = atoms.to(device="cpu", dtype=torch.float64)
    distinct = atoms.unique(dim=0)
    if len(distinct) <= count:
        return distinct[torch.arange(count) % len(distinct)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty cluster keeps its centre
        centres, _ = kmeans2(atoms.numpy(), count, minit="++", rng=seed)
    return torch.from_numpy(centres)


def landmark_features(
    kernel: EmbeddingKernel, landmarks: Tensor, points: Tensor, weights: Tensor
) -> Tensor:
    r"""Features :math:`L^{-1} \sum_i w_i k(Z, x_i)`, with :math:`L L^\top = k(Z, Z)` and a jitter.

    Distances between them are never more than those between the mean embeddings, but for the jitter.

    Args:
        kernel: The kernel on the atoms.
        landmarks: A ``D x d`` tensor, the landmarks ``Z``.
        points: A ``C x n x d`` tensor of atoms.
        weights: A ``C x n`` tensor of weights that sum to one.

    Returns:
        A ``C x D`` tensor.

    Source: Williams and Seeger 2001.
    """
    dtype = points.dtype
    landmarks, points, weights = landmarks.double(), points.double(), weights.double()
    single = torch.ones_like(landmarks[:, :1])
    gram = kernel.matrix(landmarks, landmarks)
    products = inner_products(kernel, landmarks.unsqueeze(-2), single, points, weights)
    if isinstance(kernel, EnergyKernel):
        # Positive definite about an origin x0: |x - x0| + |y - x0| - |x - y|.
        origin = landmarks.mean(0, keepdim=True)
        to_origin = kernel.matrix(landmarks, origin)
        gram = gram - to_origin - to_origin.T
        at_origin = inner_products(kernel, origin.unsqueeze(-2), single[:1], points, weights)
        products = products - to_origin - at_origin
    jitter = _JITTER * gram.detach().diagonal().mean()
    factor = torch.linalg.cholesky(gram + jitter * torch.eye(len(gram)).to(gram))
    return torch.linalg.solve_triangular(factor, products, upper=False).T.to(dtype)
