"""Covariances of rows: kernels of a block, and evaluation without the lazy tensors of GPyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, mul
from typing import Any

from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.lazy.lazy_evaluated_kernel_tensor import recall_grad_state
from linear_operator import LinearOperator, to_dense, to_linear_operator
from linear_operator.utils.memoize import cached
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, rows_of, selected
from gp_distributions.kernels.distribution_kernel import DistributionKernel, RowKernel
from gp_distributions.rows.clouds import pad_rows
from gp_distributions.rows.layout import Columns, Slots, select_columns


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


def covariance(kernel: Kernel, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
    """Evaluate a kernel without the lazy tensors of GPyTorch.

    Lazy tensors change process-wide settings and attributes of the kernel while they are evaluated,
    which is not safe in threads. They also require rows of equal width, so that a single large cloud
    would widen all rows.

    Args:
        kernel: A kernel on rows.
        x1: A ``batch_shape x N x width`` tensor of rows.
        x2: A ``batch_shape x M x width'`` tensor of rows. Default: ``x1``. The widths may differ if
            each row is one cloud, or if kernels select their columns as a :class:`BlockKernel`.
        diag: Whether to compute only the covariances of corresponding rows, with ``M = N``.

    Returns:
        A ``batch_shape x N x M`` tensor, or ``batch_shape x N`` with ``diag``.

    Raises:
        ValueError: If the widths differ and the kernel reads only some of the columns.
    """
    x2 = x1 if x2 is None else x2
    if kernel.active_dims is None:
        return _evaluate(kernel, x1, x2, diag=diag)
    widths = [rows_of(x).shape[-1] for x in (x1, x2)]
    if widths[0] != widths[1]:
        raise ValueError(
            f"Expected rows of one width, got {widths[0]} and {widths[1]}: the kernel reads only "
            "some of the columns (active_dims). Pack all clouds with the same number of atoms: "
            "clouds.pack(atoms=...)."
        )
    first = _copied(x1, kernel.active_dims)
    second = first if x2 is x1 else _copied(x2, kernel.active_dims)
    return _evaluate(kernel, first, second, diag=diag)


def _copied(x: Rows, columns: Tensor) -> Rows:
    """Return a copy of some columns, whose bits do not depend on where the rows lie in memory."""
    if isinstance(x, Tensor):
        return x.index_select(-1, columns)
    key = "copy", *columns.tolist()
    return x.derived(key, lambda: EmbeddedRows(x.rows.index_select(-1, columns)))


def _evaluate(kernel: Kernel, x1: Rows, x2: Rows, *, diag: bool) -> Tensor:
    """Evaluate a kernel on rows whose columns have already been selected."""
    if type(kernel) is ScaleKernel:  # it has already selected the columns of its base kernel
        base, scale = kernel.base_kernel, kernel.outputscale[..., None, None]
        if type(base).forward is DistributionKernel.forward:
            return base.scaled(x1, x2, scale, diag=diag)
        return _evaluate(base, x1, x2, diag=diag) * (scale.squeeze(-1) if diag else scale)
    if type(kernel) in (AdditiveKernel, ProductKernel):
        terms = (covariance(part, x1, x2, diag=diag) for part in kernel.kernels)
        return reduce(add if type(kernel) is AdditiveKernel else mul, terms)
    if isinstance(kernel, BlockKernel):
        first = selected(x1, kernel.columns)
        second = first if x2 is x1 else selected(x2, kernel.columns)
        return covariance(kernel.base_kernel, first, second, diag=diag)
    if isinstance(kernel, RowKernel):
        return kernel.forward(x1, x2, diag=diag)
    x1, x2 = rows_of(x1), rows_of(x2)
    width = max(x1.shape[-1], x2.shape[-1])
    x1, x2 = pad_rows(x1, width), pad_rows(x2, width)
    covariances = to_dense(kernel.forward(x1, x2, diag=diag))
    if diag and covariances.dim() == x1.dim() and covariances.shape[-2:] == 2 * x1.shape[-2:-1]:
        return covariances.diagonal(dim1=-1, dim2=-2)  # the kernel ignores diag
    return covariances


class LazyCovariance(LazyEvaluatedKernelTensor):
    """Covariances of rows under a kernel, evaluated by :func:`covariance`.

    While the lazy tensors of GPyTorch are evaluated, they change a setting of the process and an
    attribute of the kernel. A second thread, or an interrupt, can leave either changed for good.

    Args:
        x1: A ``batch_shape x N x width`` tensor of rows, with all columns.
        x2: A ``batch_shape x M x width`` tensor of rows.
        kernel: The kernel.
    """

    @cached(name="kernel_eval")  # type: ignore[untyped-decorator]
    @recall_grad_state  # type: ignore[untyped-decorator]
    def evaluate_kernel(self) -> LinearOperator:
        """Return the covariances as an operator that is no longer lazy."""
        return to_linear_operator(covariance(self.kernel, self.x1, self.x2))

    @cached(name="kernel_diag")  # type: ignore[untyped-decorator]
    @recall_grad_state  # type: ignore[untyped-decorator]
    def _diagonal(self) -> Tensor:
        return covariance(self.kernel, self.x1, self.x2, diag=True).expand(self.shape[:-1])
