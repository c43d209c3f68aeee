"""Check that the content of tensors can be read."""

from __future__ import annotations

from torch import Tensor


def check_content(values: Tensor) -> None:
    """Check that a dense tensor is not within a transform of ``torch.func``, which hides its content.

    Raises:
        TypeError: If it is.
    """
    try:
        values.data_ptr()
    except RuntimeError as error:  # of a wrapper
        raise TypeError(
            "Clouds, distances and models look at the content of rows, which the transforms of "
            "torch.func (vmap, grad) do not allow. Pass all rows at once, as a tensor with batch axes, "
            "and differentiate with torch.autograd."
        ) from error
