"""Mixed inputs that differ in one block or covariate, while all others stay at given values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.measures import Covariates, MixedInputs, PointClouds
from gp_distributions.measures.arrays import object_array
from gp_distributions.measures.kinds import Distributions

Part: TypeAlias = Distributions | Covariates
# A block, and a column if the block holds covariates.
Place: TypeAlias = tuple[str, str | None]

# Numbers of values of a number, of clouds, and of steps from one cloud of a path to the next.
_GRID, _CLOUDS, _STEPS = 100, 5, 20


def place_of(X: MixedInputs, name: str) -> Place:
    """Return the block of a name, and its column if the block holds covariates."""
    places: list[Place] = [
        (block, column)
        for block, part in X.blocks.items()
        for column in (part.columns if isinstance(part, Covariates) else [None])
    ]
    whole = [place for place in places if place[0] == name]
    found = whole if len(whole) == 1 else [place for place in places if place[1] == name]
    if len(found) != 1:
        known = [column or block for block, column in places]
        raise ValueError(f"Expected the name of one block or column from {known}, got {name!r}.")
    return found[0]


def typical(part: Part) -> Part:
    """Return one entry: medians, most frequent categories, or the first distribution."""
    if not isinstance(part, Covariates):
        return _without_labels(part[:1])
    columns: dict[str, Any] = {}
    for name, values in part.columns.items():
        found = values.tolist()
        columns[name] = (
            values.detach().double().quantile(0.5).reshape(1)
            if isinstance(values, Tensor)
            else object_array([max(part.levels_of(name), key=found.count)])
        )
    return Covariates(columns, part.levels)


def with_value(X: MixedInputs, part: Part, place: Place, value: Any) -> Part:
    """Return one entry with another value."""
    block, column = place
    if isinstance(part, Covariates):
        assert column is not None
        return _with_column(part, column, [value])
    if isinstance(value, type(part)):
        one = value if value.batch_shape else type(part).unpack(value.pack()[None], value.dim)
        if len(one) == 1:
            return _without_labels(one)
    labels = [] if X.labels is None else X.labels.tolist()
    if is_label(value) and value in labels:
        original = X.blocks[block]
        assert not isinstance(original, Covariates)
        return _without_labels(original[[labels.index(value)]])
    raise TypeError(
        f"Expected one of {type(part).__name__} or a label of X as the value of {block!r}, got "
        f"{value!r}."
    )


def is_label(value: Any) -> bool:
    """Return whether a value may be a label of distributions, and not one of them."""
    return isinstance(value, str | int | np.integer)


def _with_column(part: Covariates, column: str, values: Sequence[Any]) -> Covariates:
    """Return covariates with the given values in a column, and the one value of each other column."""
    columns = dict(part[torch.zeros(len(values), dtype=torch.int64)].columns)
    old = columns[column]
    columns[column] = (
        torch.as_tensor(np.asarray(values, dtype=np.float64)).to(old)
        if isinstance(old, Tensor)
        else object_array(list(values))
    )
    return Covariates(columns, part.levels)


def varied(
    X: MixedInputs,
    others: Mapping[str, Part],
    place: Place,
    values: Any,
    path: bool,
    predict: Callable[[MixedInputs], NDArray[np.float64]],
) -> tuple[MixedInputs, NDArray[np.float64], list[str] | None]:
    """Return inputs that differ in one place, their positions, and names unless these are numbers.

    Args:
        X: The inputs that define default values.
        others: One entry of each block.
        place: The block and column to vary.
        values: The values there, or ``None`` for the default.
        path: Whether clouds are joined by mixtures.
        predict: A function whose range of values the default distributions show.
    """
    block, column = place
    part = X.blocks[block]
    if path and not isinstance(part, PointClouds):
        raise ValueError(f"Expected a block of clouds for path=True, got {part}.")
    if isinstance(part, Covariates):
        shown, positions, names = _covariates(part, others[block], column, values)
        return repeated(others, len(shown), block, shown), positions, names
    if values is None:
        every = repeated(others, len(X), block, _without_labels(part))
        ranks = np.linspace(0, len(X) - 1, min(_CLOUDS, len(X))).round().astype(int)
        order = predict(every).argsort()[ranks]
        names = [entry_name(X, i) for i in order]
        values = part[torch.from_numpy(order)]
    elif not isinstance(values, type(part)) or len(values.batch_shape) != 1:
        raise TypeError(f"Expected {type(part).__name__} as values of {block!r}, got {values!r}.")
    else:
        names = [str(n) for n in (range(len(values)) if values.labels is None else values.labels)]
    found, positions = _without_labels(values), np.arange(len(values), dtype=float)
    if path:
        found, positions = _mixtures(values)
    return repeated(others, len(found), block, found), positions, names


def repeated(others: Mapping[str, Part], count: int, block: str, part: Part) -> MixedInputs:
    """Return inputs with the same entry in all blocks but one."""
    copies = torch.zeros(count, dtype=torch.int64)
    return MixedInputs(**({name: value[copies] for name, value in others.items()} | {block: part}))


def entry_name(X: MixedInputs, index: int) -> str:
    """Return the label of an entry, or its number."""
    return f"number {index}" if X.labels is None else str(X.labels[index])


def _covariates(
    part: Covariates, other: Any, column: str | None, values: Any
) -> tuple[Covariates, NDArray[np.float64], list[str] | None]:
    assert column is not None
    known = part.columns[column]
    if isinstance(known, Tensor):
        ends = known.min().item(), known.max().item()
        numbers = np.linspace(*ends, _GRID) if values is None else np.ravel(values).astype(float)
        return _with_column(other, column, numbers.tolist()), numbers, None
    if values is None:
        values = [level for level in part.levels_of(column) if level in known.tolist()]
    found = _with_column(other, column, values)
    return found, np.arange(len(found), dtype=float), list(map(str, values))


def _mixtures(clouds: PointClouds) -> tuple[PointClouds, NDArray[np.float64]]:
    """Return mixtures from each cloud to the next, and their positions."""
    positions = np.linspace(0, len(clouds) - 1, _STEPS * (len(clouds) - 1) + 1)
    before = np.minimum(positions.astype(int), max(len(clouds) - 2, 0))
    share = torch.from_numpy(positions - before).to(clouds.weights)[:, None]
    first, second = clouds[before], clouds[np.minimum(before + 1, len(clouds) - 1)]
    points = torch.cat([first.points, second.points], -2)
    return PointClouds(
        points, torch.cat([first.weights * (1 - share), second.weights * share], -1)
    ), positions


def _without_labels(part: Distributions) -> Distributions:
    return type(part).unpack(part.pack(), part.dim)
