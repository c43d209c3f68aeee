"""Refusal of masked arrays, whose masks other arrays and tensors do not keep."""

from __future__ import annotations

import numpy as np


def refuse_mask(
    value: object, name: str, remedy: str = "leave out the masked entries, and pass the others"
) -> None:
    """Refuse a masked array.

    Args:
        value: What the caller passed.
        name: Its name in error messages.
        remedy: What to do.

    Raises:
        ValueError: If the value is a masked array.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name}: expected an array, got a masked array, whose mask would be lost; {remedy}."
        )
