"""Evaluate kernels without lazy tensors, even between rows of different widths."""

from __future__ import annotations

from functools import reduce
from operator import add, mul

from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from linear_operator import to_dense
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, rows_of, selected
from gp_distributions.kernels.block_kernel import BlockKernel
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.row_kernel import RowKernel
from gp_distributions.rows.clouds import pad_rows


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
