"""Kernels of atoms, averaged over distributions: pairs of atoms, closed forms, random features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    LinearKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.numerics.embedding_kernels import GaussianKernel, expected_gaussian
from gp_distributions.numerics.random_features import orthogonal_frequencies

Term: TypeAlias = tuple[Tensor, RBFKernel | LinearKernel | ConstantKernel, list[int] | slice]
Gaussians: TypeAlias = tuple[Tensor, Tensor]


def terms_of(kernel: Kernel) -> list[Term]:
    """Take a sum of scaled kernels apart.

    Returns:
        The factor, the RBF, linear or constant kernel, and the columns of points that it reads, of each
        term.

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
    if isinstance(kernel, RBFKernel | LinearKernel | ConstantKernel):
        return [(torch.ones((), dtype=torch.float64), kernel, columns)]
    raise ValueError(
        "Expected a sum of RBFKernel, LinearKernel and ConstantKernel, scaled or not, got a "
        f"{type(kernel).__name__}. Others have neither a closed form under Gaussians nor random "
        "features here: average them over all pairs of atoms of clouds, such as Gaussians.sample(n)."
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
        kernel: A GPyTorch kernel of points: a sum of RBF, linear and constant kernels.
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
        elif isinstance(part, ConstantKernel):
            found.append(factor * part.constant * torch.ones_like(m1[..., :1] @ m2[..., :1].mT))
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
            level = part.constant if isinstance(part, ConstantKernel) else 1.0
            found.append(factor * level * torch.ones_like(m[..., 0]))
    return sum(found[1:], found[0])


def feature_map(
    kernel: Kernel, dim: int, num_features: int, *, seed: int = 0
) -> Callable[[Tensor, Tensor], Tensor]:
    r"""Make a function that computes features of which a kernel's expectations are about inner products.

    The features of a cloud are :math:`\sum_a w_a \phi(x_a)`, with :math:`\phi` the coordinates for a
    linear kernel, one for a constant kernel, and cosines and sines at orthogonal random frequencies for
    an RBF kernel. They are still to be multiplied by :func:`feature_scales`.

    Args:
        kernel: A GPyTorch kernel of points: a sum of RBF, linear and constant kernels.
        dim: Dimension ``d`` of the atoms.
        num_features: Number of cosines and sines for each RBF kernel.
        seed: Random seed of the frequencies.

    Returns:
        A function of a ``C x n x d`` tensor of atoms and a ``C x K x n`` tensor of ``K`` weights of each
        atom, which returns a ``C x K x D`` tensor.

    Source: Rahimi and Recht 2007; Yu et al. 2016 (orthogonal frequencies).
    """
    parts = []
    half = -(-num_features // 2)
    for _, part, columns in terms_of(kernel):
        frequencies = None
        if isinstance(part, RBFKernel):
            size = dim if isinstance(columns, slice) else len(columns)
            unit = orthogonal_frequencies(GaussianKernel(), size, half, seed=seed)
            frequencies = unit.to(part.lengthscale) / part.lengthscale
        parts.append((part, columns, frequencies))

    def features(points: Tensor, weights: Tensor) -> Tensor:
        found = []
        for part, columns, frequencies in parts:
            chosen = points[..., columns]
            if frequencies is not None:
                found.append(_cosines_and_sines(chosen, weights, frequencies.to(chosen)))
            elif isinstance(part, LinearKernel):
                found.append(weights @ chosen)
            else:
                found.append(weights.sum(-1, keepdim=True))
        return torch.cat(found, dim=-1)

    return features


def feature_scales(kernel: Kernel, dim: int, num_features: int) -> Tensor:
    """Compute the factor of each feature of :func:`feature_map`, a tensor of length ``D``."""
    found = []
    for factor, part, columns in terms_of(kernel):
        if isinstance(part, RBFKernel):
            found.append(factor.sqrt().to(part.lengthscale).expand(2 * -(-num_features // 2)))
        elif isinstance(part, LinearKernel):
            size = dim if isinstance(columns, slice) else len(columns)
            found.append((factor * part.variance.squeeze(-2)).sqrt().expand(size))
        else:
            found.append((factor * part.constant).sqrt().reshape(1))
    return torch.cat(found)


def keeps_slopes(points: Tensor, weights: Tensor) -> bool:
    """Whether sums of atoms are smaller than what derivatives by frequencies need of each atom."""
    return weights.shape[-2] * (points.shape[-1] + 1) <= 4 * weights.shape[-1]


def _cosines_and_sines(points: Tensor, weights: Tensor, frequencies: Tensor) -> Tensor:
    only = frequencies.requires_grad and not (points.requires_grad or weights.requires_grad)
    if only and keeps_slopes(points, weights):
        return _FourierFeatures.apply(points, weights, frequencies)
    angles = points @ frequencies.T
    weights = weights / math.sqrt(len(frequencies))
    return torch.cat([weights @ angles.cos(), weights @ angles.sin()], dim=-1)


class _FourierFeatures(torch.autograd.Function):
    r"""Cosines and sines, with derivatives by frequencies only.

    They are computed with the features, from the same cosines and sines:

    .. math::
        \frac{\partial}{\partial \omega} \sum_a w_a e^{i \langle \omega, x_a \rangle} =
        i \sum_a w_a e^{i \langle \omega, x_a \rangle} x_a
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, weights: Tensor, frequencies: Tensor) -> Tensor:
        angles = points @ frequencies.T
        # The weight itself is one more coordinate.
        padded = torch.nn.functional.pad(points, (0, 1), value=1.0).mT
        terms = weights.unsqueeze(-2) * padded.unsqueeze(-3) / math.sqrt(len(frequencies))
        shape, terms = terms.shape[-3:-1], terms.flatten(-3, -2)
        cosines, sines = (  # C x K x (d+1) x F
            (terms @ waves).unflatten(-2, shape) for waves in (angles.cos(), angles.sin())
        )
        ctx.save_for_backward(torch.cat([-sines[..., :-1, :], cosines[..., :-1, :]], dim=-1))
        return torch.cat([cosines[..., -1, :], sines[..., -1, :]], dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        (slopes,) = ctx.saved_tensors
        both = (gradient.unsqueeze(-2) * slopes).sum((0, 1))  # d x 2F
        return None, None, sum(both.mT.chunk(2))


def scales_of(kernel: Kernel) -> list[Tensor]:
    """Return the parameters that :func:`multiply` changes."""
    names = ("raw_outputscale", "raw_variance", "raw_constant")
    return [p for name, p in kernel.named_parameters() if name.rpartition(".")[-1] in names]


def multiply(kernel: Kernel, factor: float) -> None:
    """Multiply a sum of scaled RBF, linear and constant kernels by a factor, in place."""
    if type(kernel) is AdditiveKernel:
        for part in kernel.kernels:
            multiply(part, factor)
    elif type(kernel) is ScaleKernel:
        kernel.outputscale = kernel.outputscale * factor
    elif isinstance(kernel, LinearKernel):
        kernel.variance = kernel.variance * factor
    elif isinstance(kernel, ConstantKernel):
        kernel.constant = kernel.constant * factor
    else:
        raise ValueError(f"Expected a kernel with a scale, got a {type(kernel).__name__}.")


def _marginal(mean: Tensor, covariance: Tensor, columns: list[int] | slice) -> Gaussians:
    return mean[..., columns], covariance[..., columns, :][..., columns]
