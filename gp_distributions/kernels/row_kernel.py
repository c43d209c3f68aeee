"""The base class of kernels that read rows of any width."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor


class RowKernel(Kernel):
    """Kernel whose ``forward`` reads rows of different widths and returns a tensor."""

    def __call__(self, x1: Any, x2: Any = None, *args: Any, **params: Any) -> Any:
        """Evaluate the kernel as GPyTorch does, on rows.

        Raises:
            TypeError: If the inputs are not tensors.
        """
        for x in (x1, x2):
            if not isinstance(x, Tensor | None):
                raise TypeError(
                    f"Expected rows as a tensor, got {type(x).__name__}. Pass clouds.pack()."
                )
        return super().__call__(x1, x2, *args, **params)
