"""Covariances that are evaluated when they are needed, and only the part that is needed."""

from __future__ import annotations

from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.lazy.lazy_evaluated_kernel_tensor import recall_grad_state
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.utils.memoize import cached
from torch import Tensor

from gp_distributions.kernels.covariances import covariance


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
