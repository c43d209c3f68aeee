"""Kernels of atoms, averaged over distributions: pairs of atoms, closed forms, random features."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.numerics.embedding_kernels import GaussianKernel, expected_gaussian
from gp_distributions.numerics.random_features import fourier_features, orthogonal_frequencies

Term: TypeAlias = tuple[Tensor, RBFKernel | LinearKernel, list[int] | slice]
Gaussians: TypeAlias = tuple[Tensor, Tensor]


def terms_of(kernel: Kernel) -> list[Term]:
    """Take a sum of scaled kernels apart.

    Returns:
        The factor, the RBF or linear kernel, and the columns of points that it reads, of each term.

    Raises:
        ValueError: If there is another kernel.
    """
    columns = slice(None) if kernel.active_dims is None else kernel.active_dims.tolist()
    if type(kernel) is AdditiveKernel:
        return [
            (factor, part, _within(columns, chosen))
            for each in kernel.kernels
            for factor, part, chosen in terms_of(each)
        ]
    if type(kernel) is ScaleKernel:  # it has already selected the columns of its base kernel
        scale = kernel.outputscale
        return [(scale * factor, *rest) for factor, *rest in terms_of(kernel.base_kernel)]
    if isinstance(kernel, RBFKernel | LinearKernel):
        return [(torch.ones(()), kernel, columns)]
    raise ValueError(
        f"Expected a sum of RBFKernel and LinearKernel, scaled or not, got a {type(kernel).__name__}. "
        "Others have neither a closed form under Gaussians nor random features here: average them over "
        "all pairs of atoms of clouds, such as Gaussians.sample(n)."
    )


def has_terms(kernel: Kernel) -> bool:
    """Whether :func:`terms_of` takes a kernel apart."""
    try:
        return bool(terms_of(kernel))
    except ValueError:
        return False


def _within(outer: list[int] | slice, inner: list[int] | slice) -> list[int] | slice:
    """Return the columns that are the columns ``inner`` of the columns ``outer``."""
    if isinstance(inner, slice):
        return outer
    return inner if isinstance(outer, slice) else [outer[i] for i in inner]


def between_gaussians(kernel: Kernel, first: Gaussians, second: Gaussians) -> Tensor:
    r"""Compute the expectation of a kernel over two independent draws, for all pairs of Gaussians.

    With :math:`\Lambda` the diagonal matrix of squared lengthscales and :math:`V` that of variances,

    .. math::
        \mathrm E\, e^{-|x - x'|^2_{\Lambda^{-1}} / 2} = |I + \Lambda^{-1} (S + S')|^{-1/2}
        e^{-\delta^\top (\Lambda + S + S')^{-1} \delta / 2}, \qquad
        \mathrm E\, x^\top V x' = m^\top V m',

    where :math:`\delta = m - m'`.

    Args:
        kernel: A GPyTorch kernel of points: a sum of RBF and linear kernels.
        first: Means, ``batch_shape x N x d``, and covariances, ``batch_shape x N x d x d``.
        second: The same for ``M`` Gaussians.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    found = []
    for factor, part, columns in terms_of(kernel):
        (m1, s1), (m2, s2) = _marginal(*first, columns), _marginal(*second, columns)
        if isinstance(part, LinearKernel):
            found.append(factor * ((m1 * part.variance) @ m2.mT))
        else:
            scale = part.lengthscale
            both = scale.mT * scale
            found.append(factor * expected_gaussian(m1 / scale, s1 / both, m2 / scale, s2 / both))
    return sum(found[1:], found[0])


def within_gaussians(kernel: Kernel, mean: Tensor, covariance: Tensor) -> Tensor:
    r"""Compute :math:`\mathrm E\, k(x, x)` for each Gaussian, ``batch_shape x N``."""
    found = []
    for factor, part, columns in terms_of(kernel):
        m, s = _marginal(mean, covariance, columns)
        if isinstance(part, LinearKernel):
            squares = m.square() + s.diagonal(dim1=-2, dim2=-1)
            found.append(factor * (squares * part.variance).sum(-1))
        else:
            found.append(factor * torch.ones_like(m[..., 0]))
    return sum(found[1:], found[0])


def mean_features(
    kernel: Kernel, points: Tensor, weights: Tensor, num_features: int, *, seed: int = 0
) -> Tensor:
    r"""Compute features of clouds whose inner products are about the expectations of a kernel.

    They are :math:`\sum_a w_a \phi(x_a)`, with :math:`\phi` the coordinates for a linear kernel, and
    cosines and sines at orthogonal random frequencies for an RBF kernel.

    Args:
        kernel: A GPyTorch kernel of points: a sum of RBF and linear kernels.
        points: A ``C x n x d`` tensor of atoms.
        weights: A ``C x n`` tensor of weights.
        num_features: Number of cosines and sines for each RBF kernel.
        seed: Random seed of the frequencies.

    Returns:
        A ``C x D`` tensor.

    Source: Rahimi and Recht 2007; Yu et al. 2016 (orthogonal frequencies).
    """
    found = []
    for factor, part, columns in terms_of(kernel):
        chosen = points[..., columns]
        if isinstance(part, LinearKernel):
            means = (weights.unsqueeze(-2) @ chosen).squeeze(-2)
            features = means * part.variance.squeeze(-2).sqrt()
        else:
            half = -(-num_features // 2)
            unit = orthogonal_frequencies(GaussianKernel(), chosen.shape[-1], half, seed=seed)
            frequencies = unit.to(chosen) / part.lengthscale
            if chosen.requires_grad or weights.requires_grad:
                features = fourier_features(chosen, weights, frequencies)
            else:
                features = _FourierFeatures.apply(chosen, weights, frequencies)
        found.append(factor.sqrt() * features)
    return torch.cat(found, dim=-1)


class _FourierFeatures(torch.autograd.Function):
    r"""Features as :func:`fourier_features` returns them, with derivatives by frequencies only.

    They are computed with the features, from the same cosines and sines:

    .. math::
        \frac{\partial}{\partial \omega} \sum_a w_a e^{i \langle \omega, x_a \rangle} =
        i \sum_a w_a e^{i \langle \omega, x_a \rangle} x_a
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, weights: Tensor, frequencies: Tensor) -> Tensor:
        angles = points @ frequencies.T
        # The weight itself is one more coordinate.
        terms = weights.unsqueeze(-1) * torch.nn.functional.pad(points, (0, 1), value=1.0)
        terms = terms.mT / math.sqrt(len(frequencies))
        cosines, sines = terms @ angles.cos(), terms @ angles.sin()  # C x (d+1) x K
        slopes = torch.cat([-sines[..., :-1, :], cosines[..., :-1, :]], dim=-1)
        ctx.save_for_backward(slopes)
        return torch.cat([cosines[..., -1, :], sines[..., -1, :]], dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        (slopes,) = ctx.saved_tensors
        both = (gradient.unsqueeze(-2) * slopes).sum(0)  # d x 2K
        return None, None, sum(both.mT.chunk(2))


def _marginal(mean: Tensor, covariance: Tensor, columns: list[int] | slice) -> Gaussians:
    return mean[..., columns], covariance[..., columns, :][..., columns]
