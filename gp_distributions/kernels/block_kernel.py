"""A kernel on one block of rows that hold several inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from torch import Tensor

from gp_distributions.rows.columns import Columns, Slots, select_columns


class BlockKernel(Kernel):
    r"""Kernel that evaluates another kernel on one block of its rows.

    .. math:: k(x, x') = k_b(x_b, x'_b)

    It differs from ``active_dims`` in that a block of clouds reaches to the end of the row, however wide
    the row is, so that models can predict for larger clouds than they were trained on.
    :func:`mixed_kernel` makes the block kernels of :class:`MixedInputs`.

    Args:
        base_kernel: Kernel :math:`k_b` on the columns of the block.
        columns: The columns of the block, as ``encoding.columns[name]`` returns them for the
            :class:`MixedEncoding` of the rows: numbers of columns, or columns of each slot.

    Example:
        >>> from gp_distributions import MixedInputs, PointClouds, SlicedWassersteinKernel
        >>> from gp_distributions.kernels import BlockKernel
        >>> cells = PointClouds.from_list([[[0.0], [2.0]], [[1.0]], [[3.0]]])
        >>> X = MixedInputs(cells=cells, age=[50.0, 60.0, 70.0])
        >>> kernel = BlockKernel(SlicedWassersteinKernel(1), X.encoding.columns["cells"])
        >>> kernel(X.pack()).to_dense().shape
        torch.Size([3, 3])
    """

    def __init__(self, base_kernel: Kernel, columns: Sequence[int] | Slots) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.columns: Columns = columns if isinstance(columns, Slots) else tuple(columns)

    @property
    def is_stationary(self) -> bool:
        """Whether the base kernel is stationary."""
        stationary: bool = self.base_kernel.is_stationary
        return stationary

    def select(self, rows: Tensor) -> Tensor:
        """Select the columns of the block, for rows of any width."""
        return select_columns(rows, self.columns)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """Compute covariances of rows: ``batch_shape x N x M``, or ``batch_shape x N`` with ``diag``."""
        first = self.select(x1)
        second = first if x2 is x1 else self.select(x2)
        covariances: Tensor | LinearOperator = self.base_kernel(first, second, diag=diag, **params)
        return covariances
