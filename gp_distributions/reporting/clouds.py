"""The clouds in the rows of a model, to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.models.arguments import keeps_clouds
from gp_distributions.reporting.training import Model
from gp_distributions.rows.columns import Columns
from gp_distributions.rows.layout import Block

Names = Sequence[str] | Mapping[str, Sequence[str]]

# Coordinates to draw at most; of more, the first that matter most.
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

    def drawn(self, importance: Mapping[tuple[str, str], float]) -> list[int]:
        """Return the coordinates to draw: all, or the two that matter most.

        Args:
            importance: How much coordinates matter, by the names of block and coordinate.
        """
        if self.rotating:
            return list(range(self.rotating))
        if self.block.dim <= _MOST_DRAWN:
            return list(range(self.block.dim))
        keys = [(self.name or "X", coordinate) for coordinate in self.coordinates]
        order = sorted(range(self.block.dim), key=lambda i: -importance.get(keys[i], 0.0))
        return sorted(order[:2])


def cloud_blocks(model: Model, names: Names | None) -> list[CloudBlock]:
    """Return the blocks of clouds that the kernel reads.

    Raises:
        ValueError: If the number of names of coordinates is wrong.
    """
    found: dict[Block, int] = {}
    for kernel, block in distribution_kernels(model.covar_module):
        if block.kind == "clouds":
            rotating = int(getattr(kernel.distance, "num_rotating", 0))
            found[block] = max(found.get(block, 0), rotating)
    encoded = {} if model.encoding is None else model.encoding.columns
    called: dict[Columns, str] = {columns: name for name, columns in encoded.items()}
    blocks = []
    for number, (block, rotating) in enumerate(found.items()):
        name = called.get(block.columns, "" if len(found) == 1 else f"X{number}")
        given = names.get(name or "X") if isinstance(names, Mapping) else names
        default = [f"coordinate {i}" for i in range(block.dim)]
        coordinates = default if given is None else list(map(str, given))
        if len(coordinates) != block.dim:
            raise ValueError(
                f"Expected {block.dim} names of coordinates of block {name!r}, got {len(coordinates)}."
            )
        blocks.append(CloudBlock(name, block, coordinates, rotating))
    return blocks


def drawn_rows(model: Model, rows: Tensor) -> Tensor:
    """Return the rows that hold the clouds: those given, unless the model makes them of other inputs."""
    if keeps_clouds(getattr(model, "input_transform", None)):
        return rows
    with torch.no_grad():
        model.eval()
        return model.transform_inputs(rows)
