"""What all pictures share: axes, arrays, and lines that differ in print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Tensor | ArrayLike

# Told apart by dashes and markers; the colours differ in lightness too.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "#b2182b", "linestyle": "--", "marker": "s"},
    {"color": "#4393c3", "linestyle": "-.", "marker": "^"},
    {"color": "0.7", "linestyle": ":", "marker": "D"},
    {"color": "#1b7837", "linestyle": (0, (6, 2)), "marker": "v"},
    {"color": "#fdae61", "linestyle": (0, (3, 1, 1, 1)), "marker": "x"},
)


def given_or_new(ax: Axes | None, *, width: float = 5.2, height: float = 5.2) -> Any:
    """The axes that were given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def as_array(values: Any) -> NDArray[np.float64]:
    """Values as an array of floats; tensors are detached and come to the CPU."""
    if isinstance(values, Tensor):
        values = values.numpy(force=True)
    return np.asarray(values, dtype=float)


def line_style(number: int) -> dict[str, Any]:
    """How the line of that number is drawn; they repeat after six."""
    return _STYLES[number % len(_STYLES)]
