"""Plots of the effect of one of several inputs on a prediction, at given values of the others."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.measures import Covariates, MixedInputs, PointClouds
from gp_distributions.measures.arrays import object_array
from gp_distributions.measures.described import check_type
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.mixture_classifier import Classifier
from gp_distributions.plotting.drawing import Axes, as_array, given_or_new, line_style

# A block, and a column if the block holds covariates.
Place: TypeAlias = tuple[str, str | None]

# Numbers of values of a number, of clouds, and of steps from one cloud of a path to the next.
_GRID, _CLOUDS, _STEPS = 100, 5, 20


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
    check_type(X, MixedInputs)
    if not 0 < level < 1:
        raise ValueError(f"Expected a level between 0 and 1, such as 0.95, got {level}.")
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
        return _curves(model, inputs, level, observation_noise, output)

    part, ticks = X.blocks[chosen], None
    if path and not isinstance(part, PointClouds):
        raise ValueError(f"Expected a block of clouds for path=True, got {part}.")
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
    if path:
        values, positions = _mixtures(values)
    ax = given_or_new(ax, height=3.8)
    for legend, mean, half in curves(values):
        called = " ".join(filter(None, [name, legend]))
        _draw(ax, positions, mean, half, path or ticks is None, called, level)
    if ticks is not None:
        long = sum(map(len, ticks)) > 40
        ax.set_xticks(
            range(len(ticks)), ticks, rotation=30 if long else 0, ha="right" if long else "center"
        )
        ax.margins(x=0.05 if path else 0.15)
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


def _mixtures(clouds: PointClouds) -> tuple[PointClouds, NDArray[np.float64]]:
    """Return mixtures from each cloud to the next, and their positions."""
    positions = np.linspace(0, len(clouds) - 1, _STEPS * (len(clouds) - 1) + 1)
    before = np.minimum(positions.astype(int), max(len(clouds) - 2, 0))
    share = torch.from_numpy(positions - before).to(clouds.weights)[:, None]
    first, second = clouds[before], clouds[np.minimum(before + 1, len(clouds) - 1)]
    weights = torch.cat([first.weights * (1 - share), second.weights * share], -1)
    return PointClouds(torch.cat([first.points, second.points], -2), weights), positions


def _curves(
    model: DistributionGP | SparseDistributionGP,
    inputs: MixedInputs,
    level: float,
    observation_noise: bool,
    output: int,
) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64] | None]]:
    """Return a name, the means and half the widths of the intervals of each curve."""
    from scipy.stats import norm

    if isinstance(model, Classifier):
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
    number, interval = len(ax.lines), f"{level:.0%} interval"
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
