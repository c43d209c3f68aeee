"""Whether the content of tensors can be read, and whether autograd records what is made of it."""

from __future__ import annotations

import torch
from torch import Tensor


def check_content(values: Tensor) -> None:
    """Check that rows are a tensor whose content can be read.

    Raises:
        TypeError: If they are something else, such as distributions or a sparse tensor, or are within
            a transform of ``torch.func``, which hides their content.
    """
    if not isinstance(values, Tensor):
        raise TypeError(
            f"Expected rows as a tensor, got {type(values).__name__}. Pass X.pack(), or call "
            "posterior(X) or predict(X)."
        )
    if values.layout != torch.strided:
        raise TypeError(
            f"Expected rows as a dense tensor, got layout {values.layout}. Pass rows.to_dense()."
        )
    try:
        values.data_ptr()
    except RuntimeError as error:  # of a wrapper
        raise TypeError(
            "Clouds, distances and models look at the content of rows, which the transforms of "
            "torch.func (vmap, grad) do not allow. Pass all rows at once, as a tensor with batch axes, "
            "and differentiate with torch.autograd."
        ) from error


def is_tracked(*tensors: Tensor) -> bool:
    """Whether autograd records what is computed from tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
