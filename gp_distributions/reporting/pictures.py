"""The pictures of a report, as images that a page embeds."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gp_distributions.plotting import plot_calibration, plot_predictions, plot_relevance
from gp_distributions.relevances import Relevance
from gp_distributions.reporting.judging import Classification, Regression

Array = npt.NDArray[np.float64]
# The atoms of a cloud, and their weights.
Atoms = tuple[Array, Array]

# Pictures of more objects, and of clouds, are pixels rather than vectors.
_MOST_VECTORS = 500
# Clouds are drawn with at most so many random atoms.
MOST_ATOMS = 1000
# If ranges of two coordinates differ by a larger factor, their axes have scales of their own.
_MOST_UNEQUAL = 5.0
_BLUE, _RED = "#3182bd", "#b2182b"


def picture(
    draw: Callable[[Any], None], width: float, height: float, *, vectors: bool = True
) -> str:
    """Draw a figure and return it as a data URI, with the same bytes for the same figure.

    Args:
        draw: Function that draws on a figure.
        width: Width in inches.
        height: Height in inches.
        vectors: Whether to make an SVG rather than a PNG.
    """
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure)
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names may contain dollars
    file = io.BytesIO()
    if not vectors:
        figure.savefig(file, format="png", dpi=200, transparent=True, metadata={"Software": None})
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    # Names of parts are random unless a setting of the whole process says otherwise.
    names: dict[str, str] = {}
    drawn = re.sub(
        r"\b[a-z][0-9a-f]{10}\b",
        lambda match: names.setdefault(match[0], f"part{len(names)}"),
        file.getvalue().decode(),
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"


def predictions(output: Regression, label: str, level: float) -> str:
    """Draw predicted against measured values."""

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        plot_predictions(output.truth, output.mean, output.std, level=level, label=label, ax=ax)
        ax.set_xlabel(f"measured {label}".strip())
        handles, names = ax.get_legend_handles_labels()
        ax.get_legend().remove()
        figure.legend(
            handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=8
        )
        ax.spines[["top", "right"]].set_visible(False)

    return picture(draw, 4.8, 4.5, vectors=len(output.truth) <= _MOST_VECTORS)


def coverage(output: Regression) -> str:
    """Draw the observed against the nominal coverage of intervals."""

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        plot_calibration(output.truth, output.mean, output.std, label="this model", ax=ax)
        levels = np.linspace(0.01, 0.99, 99)
        hits = [output.coverage(level) for level in levels]
        low, high = ([getattr(h, side) / h.total for h in hits] for side in ("low", "high"))
        ax.fill_between(levels, low, high, color="0.85", label="explained by chance", zorder=0)
        ax.set(xlabel="probability of the intervals", ylabel="share that contains the measurement")
        ax.legend(frameon=False, fontsize=8)

    return picture(draw, 4.4, 4.4)


def probabilities(output: Classification) -> str:
    """Draw the probability that was predicted for the observed class of each object, by class."""

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        right = output.predicted == output.truth
        # Marks of a class are kept apart by a regular pattern.
        heights = output.truth + 0.5 * (np.arange(len(output.truth)) * 0.618034 % 1 - 0.5)
        for chosen, marker, color, name in (
            (right, "o", _BLUE, "most probable class is right"),
            (~right, "X", _RED, "most probable class is wrong"),
        ):
            style = {"s": 26, "alpha": 0.7, "linewidths": 0, "marker": marker, "color": color}
            ax.scatter(output.of_truth[chosen], heights[chosen], label=name, **style)
        ax.set_yticks(range(len(output.classes)), output.classes)
        ax.set(xlim=(-0.02, 1.02), xlabel="predicted probability of the observed class")
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)

    height = 1.2 + 0.55 * len(output.classes)
    return picture(draw, 4.8, height, vectors=len(output.truth) <= _MOST_VECTORS)


def reliability(output: Classification) -> str:
    """Draw how often the most probable class was right, against its probability."""

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        bins = output.bins()
        nominal, share = ([getattr(b, name) for b in bins] for name in ("nominal", "share"))
        low, high = ([getattr(b, side) / b.total for b in bins] for side in ("low", "high"))
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, label="calibrated")
        ax.vlines(nominal, low, high, color="0.8", linewidth=6, label="explained by chance")
        ax.plot(nominal, share, "o-", color="black", markersize=5, label="this model")
        start = max(0.0, min(*nominal, *share, *low) - 0.05)
        ax.set(xlim=(start, 1.01), ylim=(start, 1.01), aspect="equal")
        ax.set(xlabel="predicted probability", ylabel="share that was right")
        ax.legend(frameon=False, fontsize=8)

    return picture(draw, 4.4, 4.4)


def relevances(found: Relevance, block: str) -> str:
    """Draw how much each input matters, with another name of the only block if one is given."""

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        plot_relevance(found, ax=ax)
        names = [text.get_text() for text in ax.get_yticklabels()]
        ax.set_yticks(range(len(names)), [block or names[0], *names[1:]])
        ax.set_xlabel("what predictions lose without it (nats)")
        ax.spines[["top", "right"]].set_visible(False)

    return picture(draw, 4.8, 0.9 + 0.28 * len(found.entries))


def sensitivities(names: Sequence[str], values: Sequence[float], label: str) -> str:
    """Draw how far predictions move with each coordinate."""

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        ax.barh(range(len(names)), values, color="0.6")
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel(label)
        ax.spines[["top", "right"]].set_visible(False)

    return picture(draw, 4.8, 0.9 + 0.28 * len(names))


def clouds(found: Sequence[Atoms], coordinates: Sequence[str]) -> list[str]:
    """Draw clouds on the same scales, one picture for each, the first in another colour.

    Args:
        found: Atoms in one to three dimensions, and their weights.
        coordinates: Names of the coordinates.
    """
    dim = len(coordinates)
    together = np.concatenate([points for points, _ in found])
    spans = np.ptp(together, axis=0)
    equal = dim > 1 and spans.min() > 0 and spans.max() <= _MOST_UNEQUAL * spans.min()
    margins = 0.06 * np.where(spans > 0, spans, 1.0)
    limits = list(zip(together.min(0) - margins, together.max(0) + margins, strict=True))
    bins = np.linspace(*limits[0], 31)
    tallest = max(np.histogram(x[:, 0], bins, weights=w / w.sum())[0].max() for x, w in found)

    def draw(figure: Any, number: int) -> None:
        ax = figure.subplots(subplot_kw={"projection": "3d"} if dim == 3 else {})
        points, weights = found[number]
        color = _RED if number == 0 else "0.25"
        if dim == 1:
            ax.hist(points[:, 0], bins=bins, weights=weights / weights.sum(), color=color)
            ax.set(xlim=limits[0], ylim=(0, 1.05 * tallest), ylabel="share")
        else:
            points, weights = _thinned(points, weights)
            sizes = 3 + 40 * weights / weights.max() * min(1.0, 5 / np.sqrt(len(weights)))
            ax.scatter(*points.T, s=sizes, color=color, linewidths=0, alpha=0.7)
            ax.set(xlim=limits[0], ylim=limits[1], ylabel=coordinates[1])
        ax.set_xlabel(coordinates[0])
        if dim == 3:
            ax.set(zlim=limits[2], zlabel=coordinates[2])
            figure.set_layout_engine("none")  # it leaves wide margins around three axes
            ax.set_position([0.0, 0.03, 0.86, 0.97])
            ax.set_box_aspect(spans if equal else None, zoom=0.9)
            ax.tick_params(labelsize=7, pad=-3)
            ax.locator_params(nbins=3)
            for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
                axis.set_pane_color((0, 0, 0, 0))
                axis.labelpad = -8
                axis.label.set_size(8)
        else:
            ax.spines[["top", "right"]].set_visible(False)
            if equal:
                ax.set_aspect("equal")

    height = 2.2 if dim == 3 else 1.7 if dim == 1 else 2.0
    return [
        picture(partial(draw, number=number), 2.1, height, vectors=False)
        for number in range(len(found))
    ]


def _thinned(points: Array, weights: Array) -> Atoms:
    """Return at most ``MOST_ATOMS`` atoms, chosen at random."""
    if len(points) <= MOST_ATOMS:
        return points, weights
    chosen = np.random.default_rng(0).choice(len(points), MOST_ATOMS, replace=False)
    return points[chosen], weights[chosen]
