"""The clouds in the rows of a model, to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.models.arguments import keeps_clouds
from gp_distributions.relevances.inputs import (
    Names,
    coordinate_names,
    distributions,
    names_by_block,
    num_rotating,
)
from gp_distributions.reporting.training import Model
from gp_distributions.rows.layout import Block

# How much coordinates matter, by the names of block and coordinate.
Importance = Mapping[tuple[str, str | None], float]

# Coordinates to draw at most; of more, two.
_MOST_DRAWN = 3


@dataclass(frozen=True)
class CloudBlock:
    """A block of clouds in the rows of a model.

    Attributes:
        name: Name of the block, or ``""`` if the model has only one.
        block: Its kind, dimension and columns.
        coordinates: Names of the coordinates.
        rotating: Number of leading coordinates that rotate together.
    """

    name: str
    block: Block
    coordinates: list[str]
    rotating: int

    def atoms(self, row: Tensor) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the atoms in a row and their weights, without padding."""
        layout = Block(self.block.kind, self.block.dim)
        points, weights = layout.split(self.block.select(row[None]))
        kept = weights[0] > 0
        return tuple(x[0][kept].double().numpy(force=True) for x in (points, weights))  # type: ignore[return-value]

    def sizes(self, rows: Tensor) -> Tensor:
        """Return the number of atoms in each of ``N x width`` rows."""
        weights = Block(self.block.kind, self.block.dim).split(self.block.select(rows))[1]
        return (weights > 0).sum(-1)

    def is_ranked(self, importance: Importance) -> bool:
        """Return whether it is known how much each coordinate matters."""
        return importance.keys() >= set(self._keys)

    def drawn(self, importance: Importance) -> list[int]:
        """Return the coordinates to draw: all, the two that matter most, or else the first two.

        Args:
            importance: How much coordinates matter.
        """
        if self.rotating:
            return list(range(self.rotating))
        if self.block.dim <= _MOST_DRAWN:
            return list(range(self.block.dim))
        if not self.is_ranked(importance):
            return [0, 1]
        order = sorted(range(self.block.dim), key=lambda i: -importance[self._keys[i]])
        return sorted(order[:2])

    @property
    def _keys(self) -> list[tuple[str, str]]:
        return [(self.name or "X", coordinate) for coordinate in self.coordinates]


def cloud_blocks(model: Model, names: Names | None) -> list[CloudBlock]:
    """Return the blocks of clouds that the kernel reads.

    Raises:
        ValueError: If the number of names of coordinates is wrong, or they are not given by block
            although there are several.
    """
    found = distributions(model)
    given = names_by_block(names, list(found))
    alone = model.encoding is None and len(found) == 1
    return [
        CloudBlock(
            "" if alone else name,
            block,
            coordinate_names(name, block, given.get(name)),
            num_rotating(distances),
        )
        for name, (block, distances) in found.items()
        if block.kind == "clouds" and distances
    ]


def drawn_rows(model: Model, rows: Tensor) -> Tensor:
    """Return the rows that hold the clouds: those given, unless the model makes them of other inputs."""
    if keeps_clouds(getattr(model, "input_transform", None)):
        return rows
    with torch.no_grad():
        model.eval()
        return model.transform_inputs(rows)
