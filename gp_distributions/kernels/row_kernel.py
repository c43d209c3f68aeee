"""The base class of kernels that read rows of any width."""

from __future__ import annotations

from gpytorch.kernels import Kernel


class RowKernel(Kernel):
    """Kernel whose ``forward`` reads rows of different widths and returns a tensor."""
