"""How much each block of inputs, and each coordinate of a block, matters: results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "{:<24} {:>8} {:>8} {:>12} {:>10} {:>7}"
_COLUMNS = ("loss", "error", "sensitivity", "direction", "scale")


@dataclass(frozen=True)
class RelevanceEntry:
    """How much one block, or one coordinate or column of a block, matters.

    Attributes:
        block: Name of the block; ``"X"`` if the model has only one.
        coordinate: Name of the coordinate or column, or None for the whole block.
        loss: What the mean log density of left-out targets, or log probability of labels, loses if the
            input is exchanged between objects at random, in nats for each target. It is about zero if
            the input does not matter.
        error: Standard error of ``loss``.
        sensitivity: Root mean square change of predictions, to first order, if a number changes by its
            standard deviation; or if the atoms of a cloud move along a coordinate by its standard
            deviation, in root mean square over atoms, and in the directions that change the prediction
            most. The unit is that of the targets; if there are several outputs, the standard deviation
            of each; nats of log odds for labels. NaN for whole blocks of several coordinates,
            categories, Gaussians and mixtures.
        direction: Mean change of predictions, with its sign, if a number, or a coordinate of all atoms
            of a cloud, grows by its standard deviation, to first order. NaN where ``sensitivity`` is,
            for coordinates that rotate together, and for more than two classes.
        scale: Scale of a :class:`ScaledDistance`; NaN if there is none.

    Example:
        >>> from gp_distributions.metrics import RelevanceEntry
        >>> RelevanceEntry("cells", "CD4", loss=1.2, error=0.1).name
        'cells: CD4'
    """

    block: str
    coordinate: str | None
    loss: float
    error: float
    sensitivity: float = math.nan
    direction: float = math.nan
    scale: float = math.nan

    @property
    def name(self) -> str:
        """Name of the block, and of the coordinate if there is one."""
        return self.block if self.coordinate is None else f"{self.block}: {self.coordinate}"


@dataclass(frozen=True, repr=False)
class Relevance:
    """Result of :func:`relevance`: entries for blocks, each followed by those of its coordinates.

    Attributes:
        entries: The entries.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, fit, relevance
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(9, 5, 2)))
        >>> model = fit(DistributionGP(clouds, clouds.points[..., 0].mean(-1)))
        >>> [entry.name for entry in relevance(model).entries]
        ['X', 'X: coordinate 0', 'X: coordinate 1']
    """

    entries: tuple[RelevanceEntry, ...]

    @property
    def blocks(self) -> tuple[RelevanceEntry, ...]:
        """The entries of whole blocks."""
        return tuple(entry for entry in self.entries if entry.coordinate is None)

    @property
    def coordinates(self) -> tuple[RelevanceEntry, ...]:
        """The entries of coordinates and columns."""
        return tuple(entry for entry in self.entries if entry.coordinate is not None)

    def to_frame(self) -> pd.DataFrame:
        """Return the entries as a pandas data frame, with one row for each."""
        import pandas as pd

        columns = ("block", "coordinate", *_COLUMNS)
        rows = [[getattr(entry, column) for column in columns] for entry in self.entries]
        names = [entry.name for entry in self.entries]
        return pd.DataFrame(rows, columns=list(columns), index=names)

    def __repr__(self) -> str:
        lines = [_FORMAT.format("Relevance", *_COLUMNS)]
        for entry in self.entries:
            indented = entry.name if entry.coordinate is None else f"  {entry.coordinate}"
            numbers = [getattr(entry, column) for column in _COLUMNS]
            cells = ["" if math.isnan(value) else f"{value:.3g}" for value in numbers]
            lines.append(_FORMAT.format(indented, *cells).rstrip())
        return "\n".join(lines)
