"""Distances between all pairs of feature vectors."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """Squared Euclidean distances between rows, never negative.

    Args:
        x1: A ``batch_shape x N x D`` tensor.
        x2: A ``batch_shape x M x D`` tensor; ``x1`` itself gives a symmetric result with an exactly
            zero diagonal at half the cost.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    # What all rows share cancels in the distance; taken off first, it costs no digits.
    centre = x2.detach().mean(dim=-2, keepdim=True)
    centred2 = x2 - centre
    centred1 = centred2 if x1 is x2 else x1 - centre
    inner = _inner_products(centred1, centred2)
    if x1 is x2:
        squares = inner.diagonal(dim1=-2, dim2=-1)
        distances = squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * inner
        return zero_diagonal(distances.clamp_min(0))
    squares1, squares2 = _squared_norms(centred1), _squared_norms(centred2)
    distances = squares1.unsqueeze(-1) + squares2.unsqueeze(-2) - 2 * inner
    return distances.clamp_min(0)


def manhattan(x1: Tensor, x2: Tensor) -> Tensor:
    """Sums of absolute differences between rows, shapes as in :func:`squared_euclidean`.

    The subgradient of the absolute value at zero is zero.
    """
    if x1 is x2 and x1.dim() == 2:
        return _symmetric_manhattan(x1)
    if x2.dim() == 2:  # cdist would copy x2 for every batch of x1
        return torch.cdist(x1.flatten(0, -2), x2, p=1.0).unflatten(0, x1.shape[:-1])
    distances = torch.cdist(x1, x2, p=1.0)
    return zero_diagonal(distances) if x1 is x2 else distances


def _symmetric_manhattan(x: Tensor, block: int = 128) -> Tensor:
    """One half is computed, the other mirrored."""
    strips = [
        torch.nn.functional.pad(torch.cdist(x[i : i + block], x[i:], p=1.0), (i, 0))
        for i in range(0, len(x), block)
    ]
    upper = torch.cat(strips).triu(1)
    return upper + upper.T


def zero_diagonal(matrix: Tensor) -> Tensor:
    """A square matrix with its diagonal replaced by exact zeros."""
    size = matrix.shape[-1]
    return matrix.masked_fill(torch.eye(size, dtype=torch.bool, device=matrix.device), 0)


def _squared_norms(x: Tensor) -> Tensor:
    return torch.einsum("...d,...d->...", x, x)  # several times faster than squaring and summing


def _inner_products(x1: Tensor, x2: Tensor) -> Tensor:
    tracked = torch.is_grad_enabled() and (x1.requires_grad or x2.requires_grad)
    if x1.device.type != "cpu" or tracked or x2.dim() != 2:
        return x1 @ x2.transpose(-1, -2)
    # NumPy sees that F F' is symmetric and computes one half.
    left, right = x1.detach().flatten(0, -2).numpy(), x2.detach().numpy()
    return torch.from_numpy(left @ right.T).unflatten(0, x1.shape[:-1])
