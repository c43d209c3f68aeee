"""Axes, arrays and line styles shared by all plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

if TYPE_CHECKING:
    import matplotlib.axes

Values: TypeAlias = Tensor | ArrayLike
Axes: TypeAlias = "matplotlib.axes.Axes"  # imported only when something is drawn

# Each style has its own dashes, marker and colour, and the colours differ in lightness.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "#b2182b", "linestyle": "--", "marker": "s"},
    {"color": "#4393c3", "linestyle": "-.", "marker": "^"},
    {"color": "0.7", "linestyle": ":", "marker": "D"},
    {"color": "#1b7837", "linestyle": (0, (6, 2)), "marker": "v"},
    {"color": "#fdae61", "linestyle": (0, (3, 1, 1, 1)), "marker": "x"},
)


def given_or_new(ax: Axes | None, *, height: float = 5.2) -> Any:
    """Return ``ax``, or the axes of a new figure if ``ax`` is ``None``."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5.2, height), layout="constrained")[1]


def as_array(values: Any) -> NDArray[np.float64]:
    """Convert values to an array of floats; tensors are detached and moved to the CPU."""
    if isinstance(values, Tensor):
        values = values.numpy(force=True)
    return np.asarray(values, dtype=float)


def line_style(number: int) -> dict[str, Any]:
    """Return the style of line ``number`` of a plot; styles repeat after six lines."""
    return _STYLES[number % len(_STYLES)]


def write_beside(ax: Axes, text: str, reach: float, place: int) -> None:
    """Write small text to the right of a bar or point in a row of a plot."""
    ax.annotate(text, (reach, place), (6, 0), textcoords="offset points", va="center", fontsize=7)


def name_rows(ax: Axes, names: Sequence[str], label: str) -> None:
    """Name the rows of a plot, from the top, and draw the line of zero."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_xlabel(label)
