"""Plots of the effect of one of several inputs on a prediction, at given values of the others."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.measures import Covariates, MixedInputs
from gp_distributions.models import ClassificationGP, DistributionGP, SparseDistributionGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.plotting._varied import (
    Part,
    Place,
    entry_name,
    is_label,
    place_of,
    typical,
    varied,
    with_value,
)
from gp_distributions.plotting.drawing import Axes, as_array, given_or_new, line_style


def plot_effect(
    model: DistributionGP | SparseDistributionGP,
    X: MixedInputs,
    block: str,
    values: Any = None,
    *,
    at: Mapping[str, Any] | None = None,
    path: bool = False,
    level: float = 0.95,
    observation_noise: bool = False,
    output: int = 0,
    label: str = "prediction",
    name: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot predictions at values of one block or covariate, while all others stay at given values.

    Numbers give a line with a band of central intervals, and marks at the bottom show the values in
    ``X``. Categories and clouds give one interval each. A classifier gives the probability of each
    class, without intervals. The picture shows what the model has learned, which is not
    necessarily a causal effect.

    Args:
        model: A fitted model of mixed inputs.
        X: The training inputs, which define the default values.
        block: Name of a column of covariates, or of a block of distributions.
        values: The values to show: numbers, categories, or a container of distributions, whose labels
            name them. Default: 100 numbers over the range in ``X``; the categories in ``X``; or the
            distributions in ``X`` with the smallest and the largest predicted mean and three in between.
        at: Values of other columns and blocks, by name; for a block of distributions, one distribution
            or one of the labels of ``X``. Default: the median of a number, the most frequent category,
            and the first distribution.
        path: Whether to join clouds by a path of mixtures: from each cloud to the next, the share of
            atoms from the latter grows from 0 to 1.
        level: Nominal probability of the intervals.
        observation_noise: Whether the intervals are those of a noisy observation rather than of the
            function.
        output: Index of the output, if the model has several.
        label: Name and unit of the prediction.
        name: Name of this line in a legend, to compare several effects on the same axes.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes. Their title lists the values of the other inputs, unless ``name`` is given.

    Raises:
        TypeError: If ``X`` is not :class:`MixedInputs`, or a value is of another kind than the block.
        ValueError: If there is no such block, column or output, a category did not occur in training,
            ``level`` is not between 0 and 1, or ``path`` is given for other inputs than clouds.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, MixedInputs, PointClouds
        >>> from gp_distributions.plotting import plot_effect
        >>> cells = PointClouds(np.random.default_rng(0).normal(size=(12, 5, 2)))
        >>> X = MixedInputs(cells=cells, age=np.linspace(20, 80, 12), arm=["drug", "placebo"] * 6)
        >>> model = DistributionGP(X, np.linspace(20, 80, 12))
        >>> ax = plot_effect(model, X, "age", at={"arm": "placebo"}, label="response")
        >>> ax.get_xlabel(), ax.get_ylabel(), ax.get_title()
        ('age', 'response', 'at cells = number 0, arm = placebo')
    """
    if not isinstance(X, MixedInputs):
        raise TypeError(f"Expected MixedInputs, got {type(X).__name__}.")
    if not 0 < level < 1:
        raise ValueError(f"Expected a level between 0 and 1, such as 0.95, got {level}.")
    chosen, column = place = place_of(X, block)
    others = {name: typical(part) for name, part in X.blocks.items()}
    names = dict.fromkeys(others, entry_name(X, 0))
    for key, value in (at or {}).items():
        given = place_of(X, key)
        if given == place:
            raise ValueError(f"Expected values of inputs other than {block!r} as at=.")
        others[given[0]] = with_value(X, others[given[0]], given, value)
        names[given[0]] = str(value) if is_label(value) else "given"

    def predict(inputs: MixedInputs) -> NDArray[np.float64]:
        return _curves(model, inputs, level, observation_noise, output)[0][1]

    inputs, positions, ticks = varied(X, others, place, values, path, predict)
    ax = given_or_new(ax, height=3.8)
    continuous = path or ticks is None
    for legend, mean, half in _curves(model, inputs, level, observation_noise, output):
        _draw(ax, positions, mean, half, continuous, " ".join(filter(None, [name, legend])), level)
    if ticks is not None:
        long = sum(map(len, ticks)) > 40
        style: dict[str, Any] = {"rotation": 30, "ha": "right"} if long else {}
        ax.set_xticks(range(len(ticks)), ticks, **style)
        ax.margins(x=0.05 if path else 0.15)
    elif column is not None:
        marks = as_array(X.blocks[chosen].columns[column])  # type: ignore[union-attr]
        rug: dict[str, Any] = {"s": 20, "color": "0.5", "marker": "|", "linewidths": 0.7}
        ax.scatter(marks, 0 * marks + 0.02, transform=ax.get_xaxis_transform(), **rug)
    ax.set(xlabel=column or chosen, ylabel=label)
    ax.legend(frameon=False, fontsize=8)
    if not name:
        fixed = _described(others, names, place)
        ax.set_title(textwrap.fill(fixed, 60), fontsize=9)
    return ax


def _curves(
    model: DistributionGP | SparseDistributionGP,
    inputs: MixedInputs,
    level: float,
    observation_noise: bool,
    output: int,
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64] | None]]:
    """Return a name, the means and half the widths of the intervals of each curve."""
    from scipy.stats import norm

    if isinstance(model, ClassificationGP | SparseClassificationGP):
        probabilities = as_array(model.predict_proba(inputs))
        return [(str(c), probabilities[:, i], None) for i, c in enumerate(model.classes_)]
    moments = model.predict(inputs, observation_noise=observation_noise)
    means, stds = (as_array(moment).reshape(len(inputs), -1) for moment in moments)
    if not 0 <= output < means.shape[1]:
        raise ValueError(
            f"Expected the index of one of {means.shape[1]} outputs, from 0, got {output}."
        )
    mean, std = means[:, output], stds[:, output]
    return [("", mean, norm.ppf(0.5 + level / 2) * std)]


def _draw(
    ax: Axes,
    x: NDArray[np.float64],
    mean: NDArray[np.float64],
    half: NDArray[np.float64] | None,
    continuous: bool,
    name: str,
    level: float,
) -> None:
    number = len(ax.lines)
    style = line_style(number)
    if continuous:
        ax.plot(x, mean, color=style["color"], linestyle=style["linestyle"], label=name or "mean")
        if half is not None:
            band: dict[str, Any] = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
            ax.fill_between(
                x, mean - half, mean + half, **band, label=None if name else f"{level:.0%} interval"
            )
        return
    options = {
        "color": style["color"],
        "marker": style["marker"],
        "label": name or f"mean, {level:.0%} interval",
    }
    ax.errorbar(x + 0.08 * number, mean, yerr=half, linestyle="none", markersize=5, **options)


def _described(others: Mapping[str, Part], names: Mapping[str, str], place: Place) -> str:
    found = []
    for block, part in others.items():
        if isinstance(part, Covariates):
            for column, value in part.columns.items():
                if (block, column) != place:
                    only = value[0]
                    text = f"{only.item():.3g}" if isinstance(only, Tensor) else str(only)
                    found.append(f"{column} = {text}")
        elif block != place[0]:
            found.append(f"{block} = {names[block]}")
    return f"at {', '.join(found)}" if found else ""
