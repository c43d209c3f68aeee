"""How mixed inputs become rows: the place of each block, the levels of categories, scales of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gp_distributions.measures.arrays import integer, object_array, shown
from gp_distributions.measures.covariates import Covariates, Level
from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.kinds import KINDS
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.columns import Slots, select_columns
from gp_distributions.rows.layout import Block
from gp_distributions.rows.padding import copy_filled, is_tracked, is_wide, untouched_zeros

Part: TypeAlias = PointClouds | Gaussians | GaussianMixtures | Covariates


@dataclass(frozen=True)
class Scaling:
    """Encoding of a column of numbers as ``(x - mean) / scale``."""

    mean: float
    scale: float

    def standardised(self, values: Tensor) -> Tensor:
        """Encode values, in double precision."""
        return (values.double() - self.mean) / self.scale


@dataclass(frozen=True)
class Levels:
    """Encoding of a column of categories as their positions in ``values``."""

    values: tuple[Level, ...]


@dataclass(frozen=True)
class CovariateEncoding:
    """Encoding of a block of covariates, as one column of the row for each.

    Attributes:
        columns: The encoding of each column, by its name.
    """

    columns: Mapping[str, Scaling | Levels]

    @property
    def numbers(self) -> list[int]:
        """Positions of the columns of numbers in the block."""
        kinds = list(self.columns.values())
        return [i for i, kind in enumerate(kinds) if isinstance(kind, Scaling)]

    @property
    def categories(self) -> list[int]:
        """Positions of the columns of categories in the block."""
        return [i for i in range(len(self.columns)) if i not in self.numbers]


@dataclass(frozen=True)
class MixedEncoding:
    """The layout of rows of :class:`MixedInputs`, and how their numbers and categories are encoded.

    It is learned from training data, and a model keeps it: ``model.encoding``. New inputs are encoded in
    the same way, ``X.pack(model.encoding)``. A row begins with the covariates and Gaussians; each number
    takes a column, in which the training data have mean 0 and variance 1, and each category takes a
    column that holds the position of its level. Then come slots, each with one atom or component, and
    its weight, of each block of clouds or mixtures. Zeros at the end of a row are thus padding of all of
    them.

    Attributes:
        blocks: For each block by name, its kind and dimension, or how its covariates are encoded.

    Example:
        >>> from gp_distributions import MixedInputs, PointClouds
        >>> cells = PointClouds.from_list([[[0.0], [2.0]], [[1.0]]])
        >>> encoding = MixedInputs(cells=cells, age=[50.0, 60.0], arm=["drug", "placebo"]).encoding
        >>> encoding.columns["age"], encoding.columns["arm"], encoding.columns["cells"]
        ((0,), (1,), Slots(start=2, width=2, offset=0, size=2))
        >>> encoding.blocks["arm"].columns["arm"].values
        ('drug', 'placebo')
    """

    blocks: Mapping[str, Block | CovariateEncoding]

    @classmethod
    def learn(cls, parts: Mapping[str, Part]) -> MixedEncoding:
        """Learn the encoding from the blocks of training data.

        Raises:
            ValueError: If the blocks are empty, or text with more than ten different values, which no
                type declares as categories, is mostly numbers.
        """
        if not all(map(len, parts.values())):
            raise ValueError(
                "Expected at least one object from which to learn an encoding, got none. Pass the "
                "encoding of the training data: X.pack(model.encoding)."
            )
        return cls({name: _learned(part, name) for name, part in parts.items()})

    @property
    def columns(self) -> dict[str, tuple[int, ...] | Slots]:
        """The columns of a row that hold each block."""
        tail = {
            name: block.atom_columns
            for name, block in self.blocks.items()
            if isinstance(block, Block) and block.atom_columns is not None
        }
        found: dict[str, tuple[int, ...] | Slots] = {}
        start = offset = 0
        for name, block in self.blocks.items():
            if name not in tail:
                size = block.atom_dim if isinstance(block, Block) else len(block.columns)
                found[name] = tuple(range(start, start + size))
                start += size
        for name, size in tail.items():
            found[name] = Slots(start, sum(tail.values()), offset, size)
            offset += size
        return {name: found[name] for name in self.blocks}

    def encode(self, parts: Mapping[str, Part], atoms: int | None = None) -> Tensor:
        """Write blocks as rows.

        Args:
            parts: The blocks by name.
            atoms: Number of slots. Default: as many as the largest stored cloud or mixture has atoms.
                Not used if there are no clouds and mixtures.

        Returns:
            An ``N x width`` tensor.

        Raises:
            ValueError: If blocks, kinds, dimensions or columns are not those of the training data, a
                category did not occur there, or ``atoms`` is not an integer >= 1 or too small.
        """
        atoms = None if atoms is None else integer(atoms, "atoms")
        if set(parts) != set(self.blocks):
            raise ValueError(f"Expected the blocks {list(self.blocks)}, got {list(parts)}.")
        dtype, device = common_dtype_and_device(parts)
        fixed: list[Tensor] = []
        tail: list[PointClouds | GaussianMixtures] = []
        for name, block in self.blocks.items():
            part = parts[name]
            if isinstance(block, CovariateEncoding) and isinstance(part, Covariates):
                fixed.append(_encoded(part, block, name, device).to(dtype))
            elif isinstance(part, Covariates) or _block(part) != block:
                expected = "covariates"
                if isinstance(block, Block):
                    expected = f"{block.kind} of dimension {block.dim}"
                raise ValueError(
                    f"Block {name!r}: expected {expected}, as in the training data, got {part}."
                )
            elif isinstance(part, Gaussians):
                fixed.append(part.pack())
            else:
                tail.append(part)
        if not tail:
            return torch.cat(fixed, dim=-1)
        most = max(part.weights.shape[-1] for part in tail) if atoms is None else atoms
        slots = [part.pack(most).unflatten(-1, (most, -1)) for part in tail]
        wide = any(is_wide(each.flatten(-2)) for each in slots)
        if wide and not is_tracked(*fixed, *slots):
            return _side_by_side(fixed, slots)
        return torch.cat([*fixed, torch.cat(slots, dim=-1).flatten(-2)], dim=-1)

    def decode(self, rows: Tensor) -> dict[str, Part]:
        """Read blocks from an ``N x width`` tensor of rows: the inverse of :meth:`encode`."""
        readers = {kind: container.unpack for container, kind in KINDS.items()}
        parts: dict[str, Part] = {}
        for name, columns in self.columns.items():
            block = self.blocks[name]
            chosen = select_columns(rows, columns)
            if isinstance(block, CovariateEncoding):
                parts[name] = _decoded(chosen, block, name)
            else:
                parts[name] = readers[block.kind](chosen, block.dim)
        return parts

    def as_dict(self) -> dict[str, Any]:
        """Return the encoding as plain data that JSON can hold."""
        return {
            name: {"kind": block.kind, "dim": block.dim}
            if isinstance(block, Block)
            else [
                [column, "levels", list(kind.values)]
                if isinstance(kind, Levels)
                else [column, "scaling", [kind.mean, kind.scale]]
                for column, kind in block.columns.items()
            ]
            for name, block in self.blocks.items()
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> MixedEncoding:
        """Read an encoding from plain data: the inverse of :meth:`as_dict`."""
        return cls(
            {
                name: Block(block["kind"], block["dim"])
                if isinstance(block, dict)
                else CovariateEncoding(
                    {
                        column: Levels(tuple(values)) if kind == "levels" else Scaling(*values)
                        for column, kind, values in block
                    }
                )
                for name, block in plain.items()
            }
        )


def common_dtype_and_device(parts: Mapping[str, Part]) -> tuple[torch.dtype, torch.device]:
    """Return the dtype and device of rows: those of distributions, else those of numbers.

    Raises:
        ValueError: If the distributions differ in either.
    """
    tensors = {n: (p.dtype, p.device) for n, p in parts.items() if not isinstance(p, Covariates)}
    if len(set(tensors.values())) > 1:
        raise ValueError(
            f"Expected distributions of one dtype and on one device, got {tensors}. Convert them with "
            ".to(...)."
        )
    numbers = [
        (v.dtype, v.device)
        for part in parts.values()
        if isinstance(part, Covariates)
        for v in part.columns.values()
        if isinstance(v, Tensor)
    ]
    fallback = (torch.float64, torch.device("cpu"))
    return next(iter([*tensors.values(), *numbers]), fallback)


def _block(part: PointClouds | Gaussians | GaussianMixtures) -> Block:
    return Block(KINDS[type(part)], part.dim)


def _learned(part: Part, block: str) -> Block | CovariateEncoding:
    if not isinstance(part, Covariates):
        return _block(part)
    part.check_categories(block)
    columns: dict[str, Scaling | Levels] = {}
    for name, values in part.columns.items():
        if not isinstance(values, Tensor):
            columns[name] = Levels(part.levels_of(name))
            continue
        numbers = values.detach().double()
        spread = numbers.std(correction=0).item()
        varies = spread > 0 and bool((numbers != numbers[0]).any())
        columns[name] = Scaling(numbers.mean().item(), spread if varies else 1.0)
    return CovariateEncoding(columns)


def _side_by_side(fixed: list[Tensor], slots: list[Tensor]) -> Tensor:
    """Join the columns ``N x ...`` of a row and its slots ``N x m x ...``, without writing padding."""
    start, width = sum(each.shape[-1] for each in fixed), sum(each.shape[-1] for each in slots)
    num, most = slots[0].shape[:2]
    rows = untouched_zeros((num, start + most * width), slots[0])
    if fixed:
        rows[:, :start] = torch.cat(fixed, dim=-1)
    places = (
        rows[:, start:].unflatten(-1, (most, width)).split([s.shape[-1] for s in slots], dim=-1)
    )
    for each, place in zip(slots, places, strict=True):
        copy_filled(each, place, axes=2)
    return rows


def _encoded(
    part: Covariates, encoding: CovariateEncoding, block: str, device: torch.device
) -> Tensor:
    if set(part.columns) != set(encoding.columns):
        raise ValueError(
            f"Block {block!r}: expected the columns {list(encoding.columns)}, as in the training "
            f"data, got {list(part.columns)}."
        )
    columns: list[Tensor] = []
    for name, kind in encoding.columns.items():
        values, where = part.columns[name], f"Column {name!r} of block {block!r}"
        if isinstance(values, Tensor) != isinstance(kind, Scaling):
            expected, got = ("numbers", "categories")[:: 1 if isinstance(kind, Scaling) else -1]
            raise ValueError(
                f"{where}: expected {expected}, as in the training data, got {got}, such as "
                f"{values.tolist()[0]!r}."
            )
        if isinstance(kind, Scaling):
            columns.append(kind.standardised(torch.as_tensor(values)))
            continue
        codes = {level: code for code, level in enumerate(kind.values)}
        for row, value in enumerate(values.tolist()):
            if value not in codes:
                place = row if part.labels is None else repr(part.labels.tolist()[row])
                raise ValueError(
                    f"{where}: expected a level of the training data, {shown(kind.values)}, got "
                    f"{value!r} in row {place}. Leave the row out, or declare all levels in the "
                    "training data: pandas.Categorical(values, categories=[...])."
                )
        found = [codes[value] for value in values.tolist()]
        columns.append(torch.tensor(found, dtype=torch.float64))
    return torch.stack([column.to(device) for column in columns], dim=-1)


def _decoded(columns: Tensor, encoding: CovariateEncoding, block: str) -> Covariates:
    read: dict[str, Any] = {}
    levels: dict[str, tuple[Level, ...]] = {}
    for i, (name, kind) in enumerate(encoding.columns.items()):
        if isinstance(kind, Scaling):
            read[name] = columns[..., i] * kind.scale + kind.mean
            continue
        levels[name] = kind.values
        codes = columns[..., i].detach()
        bad = (~((codes >= 0) & (codes.round() < len(kind.values)))).nonzero()
        if len(bad):
            row = int(bad[0])
            raise ValueError(
                f"Column {name!r} of block {block!r}: expected codes of levels from 0 to "
                f"{len(kind.values) - 1}, got {codes[row].item()} in row {row}."
            )
        read[name] = object_array([kind.values[round(code)] for code in codes.tolist()])
    return Covariates(read, levels)
