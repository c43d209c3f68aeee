"""Plots of how much each of several inputs matters, and of the effect of one of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.measures import Covariates, MixedInputs
from gp_distributions.measures.arrays import check_type, object_array
from gp_distributions.metrics import Relevance
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.plotting.drawing import (
    Axes,
    as_array,
    given_or_new,
    line_style,
    name_rows,
    write_beside,
)

# A block, and a column if the block holds covariates.
Place: TypeAlias = tuple[str, str | None]

# Numbers of values of a number, and of clouds.
_GRID, _CLOUDS = 100, 5
# Half the width of central 95% intervals, in standard deviations.
_WIDTH = 1.959964


def plot_effect(
    model: DistributionGP | SparseDistributionGP,
    X: MixedInputs,
    block: str,
    values: Any = None,
    *,
    at: Mapping[str, Any] | None = None,
    label: str = "prediction",
    name: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot predictions at values of one block or covariate, while all others stay at given values.

    Numbers give a line with a band of 95% intervals of the function; marks at the bottom show the
    values in ``X``. Categories and clouds give one interval each. A classifier gives the probability of
    each class, without intervals. The picture shows what the model has learned, which is not
    necessarily a causal effect.

    Args:
        model: A fitted model of mixed inputs, with one output.
        X: The training inputs, which define the default values.
        block: Name of a column of covariates, or of a block of distributions.
        values: The values to show: numbers, categories, or a container of distributions, whose labels
            name them. Default: 100 numbers over the range in ``X``; the categories in ``X``; or the
            distributions in ``X`` with the smallest and the largest predicted mean and three in between.
        at: Values of other columns and blocks, by name; for a block of distributions, one distribution
            or one of the labels of ``X``. Default: the median of a number, the most frequent category,
            and the first distribution.
        label: Name and unit of the prediction.
        name: Name of this line in a legend, to compare several effects on the same axes.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes. Their title lists the values of the other inputs, unless ``name`` is given.

    Raises:
        TypeError: If ``X`` is not :class:`MixedInputs`, or a value is of another kind than the block.
        ValueError: If there is no such block or column, a category did not occur in training, or the
            model has several outputs.

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
    check_type(X, MixedInputs)
    chosen, column = place = _place(X, block)
    places = _places(X)
    fixed = {other: _typical(X, *other) for other in places if other[1] is not None}
    for key, value in (at or {}).items():
        if _place(X, key) == place:
            raise ValueError(f"Expected values of inputs other than {block!r} as at=.")
        fixed[_place(X, key)] = value
    names, others = dict.fromkeys(places, _name(X, 0)), X[:1]
    for other, value in fixed.items():
        named = other[1] is not None or isinstance(value, str | int | np.integer)
        names[other] = _text(value) if named else "given"
        others = _with(others, other, [value] if other[1] else _distribution(X, other[0], value))

    def curves(shown: Any) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64] | None]]:
        inputs = _with(others[[0] * len(shown)], place, shown)
        return _curves(model, inputs)

    part, ticks = X.blocks[chosen], None
    if isinstance(part, Covariates):
        known = part.columns[str(column)]
        if isinstance(known, Tensor):
            ends = known.min().item(), known.max().item()
            values = np.linspace(*ends, _GRID) if values is None else np.ravel(values).astype(float)
        else:
            if values is None:
                values = [v for v in part.levels_of(str(column)) if v in known.tolist()]
            ticks = list(map(str, values))
    elif values is None:
        order = curves(part)[0][1].argsort()
        order = order[np.linspace(0, len(X) - 1, min(_CLOUDS, len(X))).round().astype(int)]
        values, ticks = part[torch.from_numpy(order)], [_name(X, i) for i in order]
    elif not isinstance(values, type(part)) or len(values.batch_shape) != 1:
        raise TypeError(f"Expected {type(part).__name__} as values of {chosen!r}, got {values!r}.")
    else:
        ticks = [str(n) for n in (range(len(values)) if values.labels is None else values.labels)]
    positions = np.arange(len(values), dtype=float) if ticks is not None else values
    ax = given_or_new(ax, height=3.8)
    for legend, mean, half in curves(values):
        called = " ".join(filter(None, [name, legend]))
        _draw(ax, positions, mean, half, ticks is None, called)
    if ticks is not None:
        long = sum(map(len, ticks)) > 40
        ax.set_xticks(
            range(len(ticks)), ticks, rotation=30 if long else 0, ha="right" if long else "center"
        )
        ax.margins(x=0.15)
    else:
        marks = as_array(known)
        ax.scatter(
            marks,
            0 * marks + 0.02,
            s=20,
            color="0.5",
            marker="|",
            linewidths=0.7,
            transform=ax.get_xaxis_transform(),
        )
    ax.set(xlabel=column or chosen, ylabel=label)
    ax.legend(frameon=False, fontsize=8)
    if not name:
        told = [f"{of or name} = {names[name, of]}" for name, of in places if (name, of) != place]
        ax.set_title(textwrap.fill(f"at {', '.join(told)}" if told else "", 60), fontsize=9)
    return ax


def _places(X: MixedInputs) -> list[Place]:
    return [
        (block, column)
        for block, part in X.blocks.items()
        for column in (part.columns if isinstance(part, Covariates) else [None])
    ]


def _place(X: MixedInputs, name: str) -> Place:
    """Return the block of a name, and its column if the block holds covariates."""
    places = _places(X)
    whole = [place for place in places if place[0] == name]
    found = whole if len(whole) == 1 else [place for place in places if place[1] == name]
    if len(found) != 1:
        known = [column or block for block, column in places]
        raise ValueError(f"Expected the name of one block or column from {known}, got {name!r}.")
    return found[0]


def _name(X: MixedInputs, index: int) -> str:
    return f"number {index}" if X.labels is None else str(X.labels[index])


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _typical(X: MixedInputs, block: str, column: str | None) -> Any:
    """Return the median of a column, or its most frequent category."""
    part: Any = X.blocks[block]
    values = part.columns[column]
    if isinstance(values, Tensor):
        return values.detach().double().quantile(0.5).item()
    return max(part.levels_of(column), key=values.tolist().count)


def _distribution(X: MixedInputs, block: str, value: Any) -> Any:
    """Return one distribution along an axis: the given one, or that of a label of ``X``."""
    part: Any = X.blocks[block]
    if isinstance(value, type(part)):
        one = value if value.batch_shape else type(part).unpack(value.pack()[None], value.dim)
        if len(one) == 1:
            return one
    labels = [] if X.labels is None else X.labels.tolist()
    if isinstance(value, str | int | np.integer) and value in labels:
        return part[[labels.index(value)]]
    raise TypeError(
        f"Expected one of {type(part).__name__} or a label of X as the value of {block!r}, got "
        f"{value!r}."
    )


def _with(X: MixedInputs, place: Place, values: Any) -> MixedInputs:
    """Return the inputs with other values of a block or column."""
    block, column = place
    if column is None:
        return X._with({block: values})
    part: Any = X.blocks[block]
    known, listed = part.columns[column], list(values)
    numeric = isinstance(known, Tensor)
    found = known.new_tensor(np.array(listed, float)) if numeric else object_array(listed)
    return X._with({block: Covariates({**part.columns, column: found}, part.levels)})


def _curves(
    model: DistributionGP | SparseDistributionGP,
    inputs: MixedInputs,
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64] | None]]:
    """Return a name, the means and half the widths of the intervals of each curve."""
    if isinstance(model, Classification):
        probabilities = as_array(model.predict_proba(inputs))
        return [(str(c), probabilities[:, i], None) for i, c in enumerate(model.classes_)]
    mean, std = map(as_array, model.predict(inputs, observation_noise=False))
    if mean.ndim > 1:
        raise ValueError(
            f"Expected a model of one output, got one of {mean.shape[-1]}. Fit each on its own."
        )
    return [("", mean, _WIDTH * std)]


def _draw(
    ax: Axes,
    x: NDArray[np.float64],
    mean: NDArray[np.float64],
    half: NDArray[np.float64] | None,
    continuous: bool,
    name: str,
) -> None:
    number, interval = len(ax.lines), "95% interval"
    style = line_style(number)
    if not continuous:
        style = style | {"linestyle": "none", "label": name or f"mean, {interval}"}
        ax.errorbar(x + 0.08 * number, mean, yerr=half, markersize=5, **style)
        return
    ax.plot(x, mean, label=name or "mean", **style | {"marker": ""})
    if half is not None:
        ax.fill_between(
            x,
            mean - half,
            mean + half,
            color=style["color"],
            alpha=0.15,
            linewidth=0,
            label=None if name else interval,
        )


def plot_relevance(
    result: Relevance, *, num: int | None = None, sort: bool = True, ax: Axes | None = None
) -> Axes:
    """Plot how much each block and each coordinate matters, as a bar with its standard error.

    Dark bars are whole blocks, light bars their coordinates. The learned scale of a coordinate, if there
    is one, stands beside its bar.

    Args:
        result: Relevance of the inputs of a model.
        num: Number of coordinates to show for each block: those that matter most. Default: all.
        sort: Whether to sort the coordinates of each block by relevance.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, relevance
        >>> from gp_distributions.plotting import plot_relevance
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(12, 5, 2)))
        >>> model = DistributionGP(clouds, clouds.points[..., 0].mean(-1))
        >>> ax = plot_relevance(relevance(model))
        >>> len(ax.patches)  # a bar for the clouds and one for each coordinate
        3
    """
    shown = []
    for block in result.blocks:
        parts = [entry for entry in result.coordinates if entry.block == block.block]
        most = sorted(parts, key=lambda entry: -entry.loss)[:num]
        shown += [block, *(most if sort else [entry for entry in parts if entry in most])]
    ax = given_or_new(ax, height=0.8 + 0.25 * len(shown))
    for place, entry in enumerate(shown):
        whole = entry.coordinate is None
        ax.barh(
            place,
            entry.loss,
            xerr=entry.error,
            color="0.25" if whole else "0.7",
            error_kw={"ecolor": "#b2182b", "elinewidth": 1.2, "capsize": 2},
        )
        if not math.isnan(entry.scale):
            reach = max(entry.loss, 0.0) + entry.error
            write_beside(ax, f"scale {entry.scale:.2g}", reach, place)
    names = [entry.coordinate or entry.block for entry in shown]
    name_rows(ax, names, "loss in held-out log density (nats per target)")
    return ax
