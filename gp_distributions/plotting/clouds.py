"""Plots of clouds, the plans and references of transport, sensitivities at atoms, and Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from linear_operator import LinearOperator
from numpy.typing import NDArray

from gp_distributions.distances.transport import TransportDistance
from gp_distributions.measures import PointClouds, align
from gp_distributions.metrics import Sensitivity
from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new

_STROKE = 0.06  # length of the strokes of normals, relative to the extent of a cloud
_FEWEST = 8  # the closed line through fewer random points is often simple
_MOST = 1000  # each edge is compared with all others


def plot_cloud(
    cloud: PointClouds,
    values: Values | None = None,
    *,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a cloud in the plane, with its atoms coloured by weight or by other values.

    Marker areas grow with the absolute values. Negative values are drawn as triangles that point down,
    and the colour scale is then symmetric about zero.

    Args:
        cloud: A single cloud, such as ``clouds[0]``.
        values: Values of the ``n`` atoms of the cloud, including padding, such as
            ``sensitivity(model, X).mean_weights[0]``. Default: the weights.
        label: Name and unit of the values.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes. The figure also contains the axes of the colour bar.

    Raises:
        ValueError: If ``cloud`` is not a single cloud in the plane, or the number of values differs from
            the number of atoms.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.plotting import plot_cloud
        >>> points = np.random.default_rng(0).normal(size=(20, 2))
        >>> ax = plot_cloud(PointClouds(points, weights=np.arange(20.0)))
        >>> len(ax.collections[0].get_offsets())  # atoms of weight zero are not drawn
        19
    """
    if cloud.batch_shape or cloud.positions.shape[-1] != 2:
        raise ValueError(f"Expected a single cloud in the plane, got {cloud}.")
    weights = as_array(cloud.weights)
    shown = weights if values is None else as_array(values)
    if shown.shape != weights.shape:
        raise ValueError(
            f"Expected a value for each of {len(weights)} atoms, got an array of shape {shown.shape}."
        )
    label = ("weight" if values is None else "") if label is None else label
    atoms, shown = as_array(cloud.positions)[weights > 0], shown[weights > 0]
    largest = float(np.abs(shown).max())
    signed = (shown < 0).any()
    ax = given_or_new(ax)
    style: dict[str, Any] = {"cmap": "cividis_r", "vmin": 0.0, "vmax": largest}
    if signed:
        style |= {"cmap": "PuOr", "vmin": -largest}
    style |= {"edgecolors": "black", "linewidths": 0.3}
    for chosen, marker in ((shown >= 0, "o"), (shown < 0, "v")):
        if chosen.any():
            values = shown[chosen]
            sizes = 3 + 60 * np.abs(values) / (largest or 1.0)
            x, y = atoms[chosen].T
            marks = ax.scatter(x, y, c=values, s=sizes, marker=marker, **style)
    ax.figure.colorbar(marks, ax=ax, label=label, shrink=0.8)
    ax.margins(0.1)
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def plot_clouds(
    clouds: PointClouds | Sequence[Values],
    *,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    outline: bool | None = None,
    aligned: bool = False,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Plot a gallery of clouds or outlines in the plane, each on its own axes, with equal scales.

    Normals are drawn as short strokes from their atoms; those without orientation are not drawn.

    Args:
        clouds: Clouds, or ``n_i x 2`` arrays of atoms.
        titles: Title of each cloud.
        columns: Number of columns of the gallery.
        outline: Whether to draw the atoms as a filled closed curve rather than as dots. Default: as a
            curve if, for more than half of the clouds, the closed line through the atoms in their order
            does not cross itself and has at least eight atoms. This holds for outlines, and rarely for
            measurements.
        aligned: Whether to draw the clouds turned and moved to the pose of the first. For another
            template, pass ``align(clouds, template)`` as ``clouds``.
        axes: Axes to draw on, one for each cloud. Default: axes of a new figure.

    Returns:
        The axes, one for each cloud.

    Raises:
        ValueError: If there are no clouds, they are not in the plane, or there are fewer axes or titles
            than clouds.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.plotting import plot_clouds
        >>> angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        >>> circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> axes = plot_clouds([circle, circle * [2, 1]], titles=["circle", "ellipse"], columns=2)
        >>> [ax.get_title() for ax in axes]
        ['circle', 'ellipse']

        Measurements, whose order has no meaning, are drawn as dots:

        >>> bags = [np.random.default_rng(seed).normal(size=(30, 2)) for seed in range(2)]
        >>> axes = plot_clouds(bags, columns=2)
        >>> [len(ax.patches) for ax in axes], len(axes[0].collections[0].get_offsets())
        ([0, 0], 30)
    """
    arrays, normals = _atoms(clouds)
    if outline is None:
        outline = 2 * sum(map(is_outline, arrays)) > len(arrays)
    if aligned:
        if not isinstance(clouds, PointClouds):
            read = PointClouds.from_curves if outline else PointClouds.from_list
            clouds = read(arrays)
        arrays, normals = _atoms(align(clouds))
    for name, given in (("axes", axes), ("titles", titles)):
        if given is not None and len(given) < len(arrays):
            raise ValueError(f"Expected {name} for {len(arrays)} clouds, got {len(given)}.")
    if axes is None:
        import matplotlib.pyplot as plt

        rows = -(-len(arrays) // columns)
        figure = plt.figure(figsize=(2.6 * columns, 1.1 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for spare in axes[len(arrays) :]:
            spare.set_axis_off()
    drawn = list(axes)
    for index, (ax, points) in enumerate(zip(drawn, arrays, strict=False)):
        if outline:
            ax.fill(*points.T, facecolor="0.88", edgecolor="black", linewidth=1)
        else:
            ax.scatter(points[:, 0], points[:, 1], s=4, color="black", linewidths=0)
        if normals:
            reach = _STROKE * np.ptp(points, axis=0).max()
            x, y = np.stack([points, points + reach * normals[index]]).transpose(2, 0, 1)
            ax.plot(x, y, color="black", linewidth=0.6)
        ax.set_aspect("equal")
        ax.set_axis_off()
        if titles is not None:
            ax.set_title(titles[index], fontsize=8)
    return drawn[: len(arrays)]


def _atoms(
    clouds: PointClouds | Sequence[Values],
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return the positions of each cloud, without padding, and the normals if they have directions."""
    normals = []
    if isinstance(clouds, PointClouds):
        if len(clouds.batch_shape) != 1:
            raise ValueError(f"Expected clouds along one axis, got {clouds}.")
        if clouds.normals is not None and clouds.num_normals == clouds.positions.shape[-1]:
            pairs = zip(clouds.normals, clouds.weights, strict=True)
            normals = [as_array(n[w > 0]) for n, w in pairs]
        clouds = [x[w > 0] for x, w in zip(clouds.positions, clouds.weights, strict=True)]
    arrays = [as_array(cloud) for cloud in clouds]
    if not arrays:
        raise ValueError("Expected at least one cloud, got none.")
    for index, points in enumerate(arrays):
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(
                f"Cloud {index}: expected an n x 2 array of atoms in the plane, got shape "
                f"{points.shape}. Choose two coordinates to draw, such as "
                "PointClouds(clouds.points[..., :2], clouds.weights)."
            )
    return arrays, normals


def is_outline(points: NDArray[np.float64]) -> bool:
    """Whether the closed line through points in the plane, in their order, does not cross itself.

    Edges that only touch do not cross. Fewer than eight points do not count as an outline, since every
    order of three points, and many an order of few more, gives such a line. More points in random order
    rarely do. Of more than 1000 points, so many at equal steps are looked at.

    Args:
        points: The points, an ``n x 2`` array.
    """
    if len(points) < _FEWEST:
        return False
    points = points[:: -(-len(points) // _MOST)]
    x, y = points.T
    dx, dy = np.roll(points, -1, axis=0).T - points.T
    # The side of the line through each edge on which each point lies: 1, -1, or 0 on it.
    side = np.sign(dx[:, None] * (y - y[:, None]) - dy[:, None] * (x - x[:, None]))
    apart = side * np.roll(side, -1, axis=1) < 0
    return not (apart & apart.T).any()


# Lines of less than this share of the largest mass would not be visible.
_VISIBLE = 0.02


def plot_plan(distance: TransportDistance, cloud: PointClouds, *, ax: Axes | None = None) -> Axes:
    """Plot the transport plan between a cloud in the plane and the reference of a distance.

    Each line joins an atom of the cloud, a black dot, with an atom of the reference, a circle whose area
    grows with its weight. The darker the line, the more mass it carries; lines with less than 2% of the
    largest mass are left out. So the lines at a circle show what this atom of the reference sees.

    Args:
        distance: A :class:`SinkhornPotential` or :class:`LinearTransport`.
        cloud: A single cloud, such as ``clouds[0]``.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If ``cloud`` is not a single cloud in the plane.

    Example:
        >>> from gp_distributions import PointClouds, ReferenceMeasure, SinkhornPotential
        >>> from gp_distributions.plotting import plot_plan
        >>> cloud = PointClouds([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
        >>> reference = ReferenceMeasure([[0.0, 0.1], [1.0, 0.5]], weights=[1, 2])
        >>> ax = plot_plan(SinkhornPotential(reference, epsilon=0.01), cloud)
        >>> len(ax.collections[0].get_segments())  # two atoms are sent to the second circle
        3

    Source: Allain, Gousset and Heurtin 2024, whose figure 2 has plans between two distributions.
    """
    if cloud.batch_shape or cloud.dim != 2:
        raise ValueError(f"Expected a single cloud in the plane, got {cloud}.")
    from matplotlib.collections import LineCollection

    masses = as_array(distance.plan(cloud.pack().unsqueeze(0))[0])
    atoms, circles = as_array(cloud.points), as_array(distance.reference.points)
    weights = as_array(distance.reference.weights)
    shares = masses / masses.max()
    rows, columns = (shares > _VISIBLE).nonzero()
    order = shares[rows, columns].argsort()  # dark lines are drawn last
    rows, columns = rows[order], columns[order]
    ax = given_or_new(ax)
    shades = [str(0.9 - 0.9 * share) for share in shares[rows, columns]]
    lines = list(zip(atoms[rows], circles[columns], strict=True))
    ax.add_collection(LineCollection(lines, colors=shades, linewidths=0.8, zorder=1))
    used = as_array(cloud.weights) > 0
    x, y = atoms[used].T
    ax.scatter(x, y, s=8, color="black", linewidths=0, zorder=2, label="cloud")
    sizes = 20 + 80 * weights / weights.max()
    x, y = circles.T
    ax.scatter(
        x,
        y,
        s=sizes,
        facecolor="white",
        edgecolor="#b2182b",
        linewidths=1.5,
        zorder=3,
        label="reference",
    )
    ax.margins(0.1)
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(frameon=False)
    return ax


def plot_reference_path(
    path: Values, *, clouds: PointClouds | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the paths of the atoms of a reference during learning, in the first two coordinates.

    Empty circles are the atoms at the start, filled circles those at the end, and lines join the steps
    between. The atoms of ``clouds``, if given, are grey dots.

    Args:
        path: The atoms before the first step and after each step, ``(steps + 1) x m x d``, such as
            ``fit_reference(...).path``.
        clouds: Clouds to draw in the background.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.plotting import plot_reference_path
        >>> steps = 0.1 * np.random.default_rng(0).normal(size=(10, 5, 2))
        >>> ax = plot_reference_path(steps.cumsum(axis=0))
        >>> len(ax.lines)  # a path for each of 5 atoms
        5
    """
    steps = as_array(path)
    ax = given_or_new(ax)
    if clouds is not None:
        x, y = as_array(clouds.points[clouds.weights > 0])[:, :2].T
        ax.scatter(x, y, s=2, color="0.8", linewidths=0, label="data")
    ax.plot(steps[:, :, 0], steps[:, :, 1], color="black", linewidth=0.8)
    for (x, y), face, name in (
        (steps[0, :, :2].T, "white", "start"),
        (steps[-1, :, :2].T, "black", "learned"),
    ):
        ax.scatter(x, y, s=30, facecolor=face, edgecolor="black", zorder=3, label=name)
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
