"""Plots of Gram matrices, sorted by target."""

from __future__ import annotations

import numpy as np
from linear_operator import LinearOperator

from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new


def plot_gram(
    matrix: Values | LinearOperator,
    targets: Values | None = None,
    *,
    label: str = "target",
    ax: Axes | None = None,
) -> Axes:
    """Plot a Gram matrix with rows and columns sorted by target.

    Large covariances are dark. If the kernel assigns large covariances to clouds with similar targets,
    dark entries lie along the diagonal.

    Args:
        matrix: The ``T x T`` covariance matrix, such as ``kernel(clouds.pack())``.
        targets: The ``T`` targets. Default: the clouds keep their order.
        label: Name and unit of the targets.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes. The figure also contains the axes of the colour bar.

    Raises:
        ValueError: If the matrix is not square, or the number of targets differs from the number of
            its rows.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds, SlicedWassersteinKernel
        >>> from gp_distributions.plotting import plot_gram
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(6, 10, 2)))
        >>> means = clouds.points[..., 0].mean(-1)
        >>> ax = plot_gram(SlicedWassersteinKernel(2)(clouds.pack()), means, label="mean")
        >>> ax.get_xlabel()
        'cloud, by mean'
    """
    values = as_array(matrix.to_dense() if isinstance(matrix, LinearOperator) else matrix)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"Expected a square matrix, got shape {values.shape}.")
    ax = given_or_new(ax)
    ax.set_xlabel("cloud" if targets is None else f"cloud, by {label}")
    if targets is not None:
        known = as_array(targets)
        if known.shape != values.shape[:1]:
            raise ValueError(
                f"Expected a target for each of {len(values)} rows, got shape {known.shape}."
            )
        order = np.argsort(known, kind="stable")
        values = values[np.ix_(order, order)]
        ticks = np.unique(np.linspace(0, len(order) - 1, num=5).round().astype(int))
        names = [f"{value:.3g}" for value in known[order][ticks]]
        ax.set_xticks(ticks, names)
        ax.set_yticks(ticks, names)
    image = ax.imshow(values, cmap="Greys", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="covariance", shrink=0.8)
    return ax
