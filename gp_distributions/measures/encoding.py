"""How mixed inputs become rows: the place of each block, the levels of categories, scales of numbers."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from gp_distributions.measures.arrays import integer, object_array
from gp_distributions.measures.covariates import Covariates, Level
from gp_distributions.measures.gaussians import KINDS, GaussianMixtures, Gaussians
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import Columns, in_order
from gp_distributions.rows.layout import Block, Slots, select_columns

# Up to this many levels, text is taken for categories without question.
_FEW = 10

Part: TypeAlias = PointClouds | Gaussians | GaussianMixtures | Covariates


@dataclass(frozen=True)
class Scaling:
    """Encoding of a column of numbers as ``(x - mean) / scale``."""

    mean: float
    scale: float


@dataclass(frozen=True)
class Levels:
    """Encoding of a column of categories as their positions in ``values``."""

    values: tuple[Level, ...]


@dataclass(frozen=True)
class Gaps:
    """Encoding of which numbers of the column ``of`` are missing, as 0 or 1."""

    of: str


@dataclass(frozen=True)
class CovariateEncoding:
    """Encoding of a block of covariates, as one column of the row for each.

    Attributes:
        columns: The encoding of each column, by its name.
    """

    columns: Mapping[str, Scaling | Levels | Gaps]

    @classmethod
    def learn(cls, part: Covariates, block: str) -> Self:
        """Learn the scales of numbers and the levels of categories.

        Raises:
            ValueError: If text with more than ten different values, which no type declares as
                categories, is mostly numbers: one word among numbers makes all of them text.
        """
        columns: dict[str, Scaling | Levels | Gaps] = {}
        for name, values in part.columns.items():
            if isinstance(values, Tensor):
                gaps = values.isnan()
                numbers = values.detach().double()[~gaps]
                varies = (numbers != numbers[0]).any()
                scale = numbers.std(correction=0).item() if varies else 1.0
                columns[name] = Scaling(numbers.mean().item(), scale)
                if gaps.any():
                    columns[f"{name} missing"] = Gaps(name)
                continue
            columns[name] = Levels(part.levels_of(name))
            texts = [value for value in values.tolist() if isinstance(value, str)]
            words = [text for text in texts if not _is_number(text)]
            undeclared = name not in part.levels and len(part.levels_of(name)) > _FEW
            if undeclared and texts and 2 * len(words) < len(values):
                raise ValueError(
                    f"Column {name!r} of block {block!r}: expected numbers or categories, got "
                    f"{(words or texts)[0]!r} in a column of numbers as text. Convert the "
                    "column to numbers when the file is read, such as with decimal=',' or "
                    "na_values=[...] in pandas.read_csv; or, if they are codes, declare categories: "
                    f'frame[{name!r}].astype("category") in pandas, pl.Enum in Polars.'
                )
        return cls(columns)

    @property
    def numbers(self) -> list[int]:
        """Positions of the columns of numbers in the block."""
        return [i for i, k in enumerate(self.columns.values()) if isinstance(k, Scaling)]

    @property
    def categories(self) -> list[int]:
        """Positions of the columns of categories in the block."""
        return [i for i, k in enumerate(self.columns.values()) if isinstance(k, Levels | Gaps)]

    def encode(self, part: Covariates, block: str) -> Tensor:
        """Write covariates as columns, in double precision.

        Raises:
            ValueError: If the columns or their kinds are others, or a category is not known.
        """
        given = [name for name, kind in self.columns.items() if not isinstance(kind, Gaps)]
        if set(part.columns) != set(given):
            raise ValueError(
                f"Block {block!r}: expected the columns {given}, as in the training data, got "
                f"{list(part.columns)}."
            )
        known = {kind.of for kind in self.columns.values() if isinstance(kind, Gaps)}
        columns: list[Tensor] = []
        for name, kind in self.columns.items():
            if isinstance(kind, Gaps):
                columns.append(torch.as_tensor(part.columns[kind.of]).isnan().double())
                continue
            values, where = part.columns[name], f"Column {name!r} of block {block!r}"
            if isinstance(values, Tensor) != isinstance(kind, Scaling):
                expected = "numbers" if isinstance(kind, Scaling) else "categories"
                raise ValueError(
                    f"{where}: expected {expected}, as in the training data, got "
                    f"{values.tolist()[0]!r}."
                )
            if isinstance(kind, Scaling):
                numbers = (torch.as_tensor(values).double() - kind.mean) / kind.scale
                if name not in known and numbers.isnan().any():
                    raise ValueError(
                        f"{where}: expected numbers, none of which the training data lack, got "
                        f"nan in row {int(numbers.isnan().nonzero()[0])}. Fill in the value."
                    )
                columns.append(numbers.nan_to_num(0.0, torch.inf, -torch.inf))
                continue
            codes = {level: float(code) for code, level in enumerate(kind.values)}
            for row, value in enumerate(values.tolist()):
                if value not in codes:
                    place = row if part.labels is None else repr(part.labels.tolist()[row])
                    raise ValueError(
                        f"{where}: expected a level of the training data, {reprlib.repr(kind.values)}, "
                        f"got {value!r} in row {place}. Leave the row out, or declare all levels in "
                        "the training data: pandas.Categorical(values, categories=[...])."
                    )
            columns.append(torch.tensor([codes[value] for value in values.tolist()]).double())
        return torch.stack(columns, dim=-1)

    def decode(self, rows: Tensor, block: str) -> Covariates:
        """Read covariates from columns: the inverse of :meth:`encode`."""
        read: dict[str, Any] = {}
        for (name, kind), column in zip(self.columns.items(), rows.unbind(-1), strict=True):
            if isinstance(kind, Scaling):
                read[name] = column * kind.scale + kind.mean
                continue
            if isinstance(kind, Gaps):
                read[kind.of] = read[kind.of].masked_fill(column > 0.5, torch.nan)
                continue
            codes = column.round().tolist()
            if not set(codes) <= {*range(len(kind.values))}:
                raise ValueError(
                    f"Column {name!r} of block {block!r}: expected codes of levels from 0 to "
                    f"{len(kind.values) - 1}, got {column.tolist()}."
                )
            read[name] = object_array([kind.values[int(code)] for code in codes])
        levels = {n: k.values for n, k in self.columns.items() if isinstance(k, Levels)}
        return Covariates(read, levels)


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
        names: For each block of distributions by name, the names of its coordinates, or None.

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
    names: Mapping[str, Columns] = field(default_factory=dict)

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
        return cls(
            {
                name: CovariateEncoding.learn(part, name)
                if isinstance(part, Covariates)
                else _block(part)
                for name, part in parts.items()
            },
            {n: part.columns for n, part in parts.items() if not isinstance(part, Covariates)},
        )

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
        rows: dict[str, Tensor] = {}
        for name, block in self.blocks.items():
            part = in_order(parts[name], self.names.get(name), f"Block {name!r}")
            if isinstance(block, CovariateEncoding) and isinstance(part, Covariates):
                rows[name] = block.encode(part, name).to(device, dtype)
            elif isinstance(part, Covariates) or _block(part) != block:
                expected = "covariates"
                if isinstance(block, Block):
                    expected = f"{block.kind} of dimension {block.dim}"
                raise ValueError(
                    f"Block {name!r}: expected {expected}, as in the training data, got {part}."
                )
            else:
                rows[name] = part.pack() if isinstance(part, Gaussians) else part.pack(atoms)
        return self.join(rows)

    def join(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Join the rows of blocks, ``... x width`` each, in which clouds may have unequal sizes."""
        places = self.columns.items()
        fixed = [rows[name] for name, place in places if not isinstance(place, Slots)]
        slots = [
            rows[name].unflatten(-1, (-1, place.size))
            for name, place in places
            if isinstance(place, Slots)
        ]
        if slots:
            most = max(part.shape[-2] for part in slots)
            padded = [pad(part, (0, 0, 0, most - part.shape[-2])) for part in slots]
            fixed.append(torch.cat(padded, dim=-1).flatten(-2))
        return torch.cat(fixed, dim=-1)

    def decode(self, rows: Tensor) -> dict[str, Part]:
        """Read blocks from an ``N x width`` tensor of rows: the inverse of :meth:`encode`."""
        readers = {kind: container.unpack for container, kind in KINDS.items()}
        parts: dict[str, Part] = {}
        for name, columns in self.columns.items():
            block = self.blocks[name]
            chosen = select_columns(rows, columns)
            if isinstance(block, CovariateEncoding):
                parts[name] = block.decode(chosen, name)
            else:
                parts[name] = readers[block.kind](chosen, block.dim)
        return parts


def common_dtype_and_device(parts: Mapping[str, Part]) -> tuple[torch.dtype, torch.device]:
    """Return the dtype and device of rows: those of distributions, else those of numbers."""
    found = [(p.dtype, p.device) for p in parts.values() if not isinstance(p, Covariates)]
    columns = [v for p in parts.values() if isinstance(p, Covariates) for v in p.columns.values()]
    found += [(v.dtype, v.device) for v in columns if isinstance(v, Tensor)]
    return found[0] if found else (torch.float64, torch.device("cpu"))


def _block(part: PointClouds | Gaussians | GaussianMixtures) -> Block:
    if isinstance(part, PointClouds) and part.kind_names:
        raise ValueError(f"Expected clouds without kinds in a block of mixed inputs, got {part}.")
    return Block(KINDS[type(part)], part.dim)


def _is_number(text: str) -> bool:
    """Return whether text reads as a number, with a decimal point or comma."""
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
