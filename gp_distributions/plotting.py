"""Pictures of clouds and of predictions. Needs the extra ``plot`` (matplotlib).

Every function takes and returns ``Axes`` and is readable in greyscale print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gp_distributions.sensitivity import Sensitivity


def plot_predictions(
    truth: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    level: float = 0.95,
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Predicted against true values, with central intervals of a normal distribution.

    Intervals that miss the truth are drawn darker.

    Args:
        truth: The ``N`` true values.
        mean: The ``N`` predictive means.
        std: The ``N`` predictive standard deviations, of an observation.
        level: The probability of the intervals.
        label: What is predicted, with its unit.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.
    """
    from scipy.stats import norm

    y, m, s = (np.asarray(values, dtype=float).ravel() for values in (truth, mean, std))
    half = norm.ppf(0.5 + level / 2) * s
    missed = np.abs(y - m) > half
    ax = _axes(ax)
    limits = [min(y.min(), m.min()), max(y.max(), m.max())]
    ax.plot(limits, limits, color="0.4", linewidth=1, linestyle="--", zorder=3)
    for outside, color, name in (
        (False, "#9ecae1", f"{level:.0%} interval"),
        (True, "#b2182b", f"misses the truth ({missed.mean():.1%})"),
    ):
        chosen = missed == outside
        ax.errorbar(
            y[chosen],
            m[chosen],
            yerr=half[chosen],
            fmt="none",
            ecolor=color,
            elinewidth=0.8,
            alpha=0.6,
            label=name,
        )
    ax.scatter(y, m, s=6, color="black", linewidths=0, zorder=4, label="predictive mean")
    ax.set_xlabel(f"true {label}".strip())
    ax.set_ylabel(f"predicted {label}".strip())
    ax.legend(loc="upper left", frameon=False)
    return ax


def plot_clouds(
    clouds: Sequence[ArrayLike],
    *,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    outline: bool = True,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """A gallery of clouds or outlines in the plane, one to an axes, all on one scale.

    Args:
        clouds: Arrays of ``n_i x 2`` atoms.
        titles: One for each.
        columns: Of the gallery.
        outline: Whether atoms are joined and filled as a closed curve rather than dotted.
        axes: Where to draw, one for each. Default: a new figure.

    Returns:
        The axes, one for each cloud.
    """
    arrays = [np.asarray(cloud, dtype=float) for cloud in clouds]
    if axes is None:
        import matplotlib.pyplot as plt

        rows = -(-len(arrays) // columns)
        _, grid = plt.subplots(
            rows,
            columns,
            figsize=(2.6 * columns, 1.1 * rows),
            squeeze=False,
            sharex=True,
            sharey=True,
            layout="constrained",
        )
        drawn = list(grid.flat)
        for spare in drawn[len(arrays) :]:
            spare.set_axis_off()
    else:
        drawn = list(axes)
    for index, (ax, points) in enumerate(zip(drawn, arrays, strict=False)):
        if outline:
            ax.fill(points[:, 0], points[:, 1], facecolor="0.88", edgecolor="black", linewidth=1)
        else:
            ax.scatter(points[:, 0], points[:, 1], s=4, color="black", linewidths=0)
        ax.set_aspect("equal")
        ax.set_axis_off()
        if titles is not None:
            ax.set_title(titles[index], fontsize=8)
    return drawn[: len(arrays)]


def plot_reference_path(path: ArrayLike, *, clouds: Any = None, ax: Axes | None = None) -> Axes:
    """How the atoms of a reference moved while it was learned, in the first two coordinates.

    Args:
        path: The ``steps + 1 x m x d`` atoms, as ``fit_reference(...).path``.
        clouds: :class:`PointClouds` to draw behind.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.
    """
    steps = np.asarray(path, dtype=float)
    ax = _axes(ax)
    if clouds is not None:
        atoms = clouds.points[clouds.weights > 0].detach().cpu().numpy()
        ax.scatter(atoms[:, 0], atoms[:, 1], s=2, color="0.8", linewidths=0, label="data")
    ax.plot(steps[:, :, 0], steps[:, :, 1], color="black", linewidth=0.8)
    for index, marker, face, name in ((0, "o", "white", "start"), (-1, "o", "black", "learned")):
        ax.scatter(
            steps[index, :, 0],
            steps[index, :, 1],
            s=30,
            marker=marker,
            facecolor=face,
            edgecolor="black",
            zorder=3,
            label=name,
        )
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(frameon=False)
    return ax


def plot_sensitivity(
    result: Sensitivity,
    index: int = 0,
    *,
    of: str = "mean",
    by: str = "points",
    ax: Axes | None = None,
) -> Axes:
    """Which atoms of a cloud in the plane moved its prediction.

    Atoms are the larger the stronger their influence is. For points, arrows show where each would have
    to go for a larger value, the longest a fifth of the extent of the cloud; for weights, filled atoms
    raise the value with more mass at them, empty ones lower it.

    Args:
        result: The sensitivities, of one output.
        index: Of the cloud.
        of: ``"mean"`` or ``"variance"``.
        by: ``"points"`` or ``"weights"``.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If ``of`` or ``by`` is none of these, or the atoms are not in the plane.
    """
    if of not in ("mean", "variance") or by not in ("points", "weights"):
        raise ValueError(
            f'Expected of="mean" or "variance" and by="points" or "weights", got {of!r}, {by!r}.'
        )
    if result.clouds.dim != 2:
        raise ValueError(f"Expected atoms in the plane, got dimension {result.clouds.dim}.")
    cloud = result.clouds[index]
    occupied = (cloud.weights > 0).numpy(force=True)
    atoms = cloud.points.numpy(force=True)[occupied]
    gradient = getattr(result, f"{of}_{by}")[index].numpy(force=True)[occupied]
    strength = np.abs(gradient) if by == "weights" else np.linalg.norm(gradient, axis=-1)
    largest = strength.max()
    shares = strength / largest if largest > 0 else strength
    raises = gradient > 0 if by == "weights" else np.ones(len(atoms), dtype=bool)
    ax = _axes(ax)
    ax.scatter(
        atoms[:, 0],
        atoms[:, 1],
        s=4 + 60 * shares,
        facecolors=np.where(raises, "0.35", "white"),
        edgecolors="black",
        linewidths=0.5,
    )
    if by == "points" and largest > 0:
        reach = 0.2 * np.ptp(atoms, axis=0).max() or 1.0
        arrows = gradient * (reach / largest)
        ax.quiver(
            *atoms.T,
            *arrows.T,
            angles="xy",
            scale_units="xy",
            scale=1,
            width=0.004,
            color="#b2182b",
        )
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f"{of} by {by}, at most {largest:.3g}", fontsize=9)
    return ax


def _axes(ax: Axes | None) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5.2, 5.2), layout="constrained")[1]
