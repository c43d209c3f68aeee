r"""Absolute values of matrices, :math:`|H| = (H^\top H)^{1/2}`, with gradients at any rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def absolute_value(matrices: Tensor) -> Tensor:
    r"""Absolute values of real matrices, from their singular values.

    With :math:`H = U s V^\top`, the absolute value is :math:`V s V^\top`. A square root of
    :math:`H^\top H` would lose half of the digits. The backward pass maps a symmetric gradient
    :math:`G` to :math:`2 H V [(V^\top G V)_{ij} / (s_i + s_j)] V^\top` with :math:`0 / 0 = 0`.

    Args:
        matrices: A ``batch_shape x M x N`` tensor.

    Returns:
        A ``batch_shape x N x N`` tensor of positive semi-definite matrices.
    """
    values: Tensor = _AbsoluteValue.apply(matrices)
    return values


class _AbsoluteValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        _, singular, rows = torch.linalg.svd(matrices, full_matrices=False)
        ctx.save_for_backward(matrices)
        return (rows.mT * singular.unsqueeze(-2)) @ rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (matrices,) = ctx.saved_tensors
        _, singular, rows = torch.linalg.svd(matrices, full_matrices=True)
        singular = torch.nn.functional.pad(singular, (0, rows.shape[-1] - singular.shape[-1]))
        gradient = (gradients[0] + gradients[0].mT) / 2
        sums = singular.unsqueeze(-1) + singular.unsqueeze(-2)
        inner = rows @ gradient @ rows.mT
        inner = torch.where(sums > 0, inner / torch.where(sums > 0, sums, 1.0), 0.0)
        return 2 * matrices @ rows.mT @ inner @ rows
