"""Plots of the sensitivity of a prediction to the atoms of a cloud."""

from __future__ import annotations

import numpy as np

from gp_distributions.judging import Sensitivity
from gp_distributions.plotting.drawing import Axes, as_array, given_or_new


def plot_sensitivity(
    result: Sensitivity,
    index: int = 0,
    *,
    of: str = "mean",
    by: str = "points",
    ax: Axes | None = None,
) -> Axes:
    """Plot the sensitivity of a prediction to the atoms of a cloud in the plane.

    Marker areas grow with the sensitivity. For points, arrows show the gradients: moving an atom along
    its arrow increases the mean or variance. The length of the longest arrow is a fifth of the extent of
    the cloud. For weights, more mass at a filled atom increases the mean or variance, and more mass at
    an empty atom decreases it.

    Args:
        result: Sensitivities of one output.
        index: Index of the cloud.
        of: The differentiated quantity, ``"mean"`` or ``"variance"``.
        by: The variables of the gradient, ``"points"`` or ``"weights"``.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If ``of`` or ``by`` has another value, or the atoms are not in the plane.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, sensitivity
        >>> from gp_distributions.plotting import plot_sensitivity
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(12, 5, 2)))
        >>> model = DistributionGP(clouds, clouds.points[..., 0].mean(-1))
        >>> ax = plot_sensitivity(sensitivity(model, clouds[:2]), index=1)
        >>> len(ax.collections[1].U)  # an arrow for each atom
        5
    """
    if of not in ("mean", "variance") or by not in ("points", "weights"):
        raise ValueError(
            f'Expected of="mean" or "variance" and by="points" or "weights", got {of!r}, {by!r}.'
        )
    if result.clouds.dim != 2:
        raise ValueError(f"Expected atoms in the plane, got dimension {result.clouds.dim}.")
    if result.mean_weights.dim() > 2:
        raise ValueError(
            "Expected the sensitivity of one output, got gradients with a leading axis of outputs. Take "
            "one of each with dataclasses.replace."
        )
    cloud = result.clouds[index]
    occupied = (cloud.weights > 0).numpy(force=True)
    atoms = as_array(cloud.points)[occupied]
    gradient = as_array(getattr(result, f"{of}_{by}")[index])[occupied]
    strength = np.abs(gradient) if by == "weights" else np.linalg.norm(gradient, axis=-1)
    largest = strength.max()
    shares = strength / largest if largest > 0 else strength
    ax = given_or_new(ax)
    x, y = atoms.T
    colors = np.where(gradient > 0, "0.35", "white") if by == "weights" else "0.35"
    ax.scatter(x, y, s=4 + 60 * shares, facecolors=colors, edgecolors="black", linewidths=0.5)
    if by == "points" and largest > 0:
        reach = 0.2 * np.ptp(atoms, axis=0).max() or 1.0
        arrows = gradient * (reach / largest)
        axes = {"angles": "xy", "scale_units": "xy"}
        ax.quiver(x, y, *arrows.T, scale=1, width=0.004, color="#b2182b", **axes)
        ax.update_datalim(atoms + arrows)
        ax.autoscale_view()
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f"{of} by {by}, at most {largest:.3g}", fontsize=9)
    return ax
