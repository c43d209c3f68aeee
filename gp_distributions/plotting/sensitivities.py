"""Which atoms moved a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gp_distributions.plotting.drawing import as_array, given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gp_distributions.sensitivities import Sensitivity


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
    atoms = as_array(cloud.points)[occupied]
    gradient = as_array(getattr(result, f"{of}_{by}")[index])[occupied]
    strength = np.abs(gradient) if by == "weights" else np.linalg.norm(gradient, axis=-1)
    largest = strength.max()
    shares = strength / largest if largest > 0 else strength
    raises = gradient > 0 if by == "weights" else np.ones(len(atoms), dtype=bool)
    ax = given_or_new(ax)
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
        ax.update_datalim(atoms + arrows)
        ax.autoscale_view()
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f"{of} by {by}, at most {largest:.3g}", fontsize=9)
    return ax
