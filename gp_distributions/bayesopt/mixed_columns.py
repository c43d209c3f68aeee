"""The inputs of a mixed search: the columns of each part, and the scales of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gp_distributions.bayesopt.mixed_rows import JoinParts
from gp_distributions.bayesopt.search import ContinuousPart, Part, Plain
from gp_distributions.measures.encoding import CovariateEncoding, MixedEncoding, Scaling
from gp_distributions.rows.columns import Slots
from gp_distributions.rows.layout import Block


class PartColumns:
    """Where the inputs of a search hold each of its parts.

    Numbers are scaled as the encoding of their block says. Inputs have the dtype and device of the
    clouds; candidates that are read from them are rounded to the precision of their own part.

    Args:
        parts: The parts by name.

    Attributes:
        encoding: The layout of the rows that the kernel sees.
        input_transform: Input transform from the inputs to these rows, or ``None`` if they are the same.
        places: The columns of each part in the inputs. Those of clouds and mixtures come last.
        like: Inputs of no candidates.

    Raises:
        ValueError: If the kind of the distributions of a part is not known, or clouds differ in dtype
            or device.

    Example:
        >>> from gp_distributions import PointClouds, PoolSearch
        >>> from gp_distributions.bayesopt import Interval
        >>> from gp_distributions.bayesopt.mixed_columns import PartColumns
        >>> shape = PoolSearch(PointClouds([[[0.0]], [[1.0]]]))
        >>> columns = PartColumns({"shape": shape, "angle": Interval(0.0, 10.0)})
        >>> columns.inputs([{"shape": 1, "angle": 2.5}])  # angle, coordinate, weight
        tensor([[0.2500, 1.0000, 1.0000]], dtype=torch.float64)
    """

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self.parts = dict(parts)
        self.encoding = MixedEncoding({n: _block(part, n) for n, part in self.parts.items()})
        decoders = {n: t for n, part in self.parts.items() if (t := part.input_transform)}
        repeated = [n for n, place in self.encoding.columns.items() if isinstance(place, Slots)]
        firsts = {name: part.inputs(part.initial(1, 0)) for name, part in self.parts.items()}
        self.places: dict[str, slice] = {}
        start = 0
        for name in sorted(self.parts, key=repeated.__contains__):
            stop = start + firsts[name].shape[-1]
            self.places[name] = slice(start, stop)
            start = stop
        self.like = self._like(firsts, decoders).new_empty(0, start)
        # Rows of means and scales.
        self._scales = {
            name: firsts[name].new_tensor(_scales(block)).T
            for name, block in self.encoding.blocks.items()
            if isinstance(block, CovariateEncoding)
        }
        self.input_transform = (
            JoinParts(self.places, self.encoding, decoders)
            if decoders or len(repeated) > 1
            else None
        )

    def _like(self, firsts: Mapping[str, Tensor], decoders: Mapping[str, Any]) -> Tensor:
        """Returns inputs of the dtype and device that all parts take."""
        shapes = [n for n, block in self.encoding.blocks.items() if isinstance(block, Block)]
        given = [name for name in shapes if name not in decoders]
        kinds = {name: (firsts[name].dtype, firsts[name].device) for name in given}
        if len(set(kinds.values())) > 1:
            raise ValueError(
                f"Expected distributions of one dtype and on one device, got {kinds}. Convert them "
                "with .to(...)."
            )
        return firsts[next(iter([*given, *shapes, *firsts]))]

    def inputs(self, candidates: Plain) -> Tensor:
        """Converts candidates, given as dictionaries of plain data, to one row of inputs each."""
        if not candidates:
            return self.like
        columns = [
            self._scaled(name, self.parts[name].inputs([c[name] for c in candidates]))
            for name in self.places
        ]
        return torch.cat([column.to(self.like) for column in columns], dim=-1)

    def limits(self, name: str, part: ContinuousPart) -> Tensor:
        """Returns the bounds of the columns of a part that move."""
        return self._scaled(name, part.limits, part.moving).to(self.like)

    def read(self, name: str, part: ContinuousPart, inputs: Tensor) -> list[Any]:
        """Reads the candidates of a part from inputs."""
        columns = inputs[:, self.places[name]]
        if name in self._scales:
            mean, scale = self._scales[name]
            columns = columns.to(mean) * scale + mean
        return part.read_inputs(columns)

    def _scaled(self, name: str, columns: Tensor, chosen: list[int] | None = None) -> Tensor:
        if name not in self._scales:
            return columns
        mean, scale = self._scales[name] if chosen is None else self._scales[name][:, chosen]
        return (columns - mean) / scale


def _scales(block: CovariateEncoding) -> list[tuple[float, float]]:
    """Returns the mean and the scale of each column."""
    kinds = block.columns.values()
    return [(k.mean, k.scale) if isinstance(k, Scaling) else (0.0, 1.0) for k in kinds]


def _block(part: Part, name: str) -> Block | CovariateEncoding:
    block = part.block(name)
    if block is None:
        raise ValueError(
            f"Part {name!r}: expected the kind and dimension of its distributions to be known, got "
            f"{type(part).__name__} without them. Give a PoolSearch PointClouds instead of rows, and a "
            "DesignSearch dim=."
        )
    return block
