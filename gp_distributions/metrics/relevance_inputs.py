"""The inputs of a model: the blocks of its rows, and their coordinates or columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.reading import readers
from gp_distributions.measures.encoding import CovariateEncoding, MixedEncoding, Scaling
from gp_distributions.measures.inputs import AtomEncoding
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.rows.layout import Block, Columns, numbers_of

Names = Sequence[str] | Mapping[str, Sequence[str]]
# Blocks of distributions by name, with the distances or kernels that read each of them.
Distributions = dict[str, tuple[Block, list[torch.nn.Module]]]


@dataclass(frozen=True)
class Input:
    """A block of a row, or some coordinates of it.

    Attributes:
        block: Name of the block.
        coordinate: Name of the coordinates, or None for the whole block.
        columns: Columns of the block.
        layout: Layout of a distribution in these columns, or None for numbers or categories.
        axes: The coordinates, or None for the whole block.
        scale: Scale of the coordinates, or NaN.
        numeric: Whether the columns are numbers rather than categories.
    """

    block: str
    coordinate: str | None
    columns: Columns
    layout: Block | None = None
    axes: tuple[int, ...] | None = None
    scale: float = math.nan
    numeric: bool = True

    @property
    def is_continuous(self) -> bool:
        """Whether it has a sensitivity: it is a number, or one or more coordinates of clouds."""
        if self.layout is None:
            return self.numeric
        return self.layout.kind == "clouds" and (self.axes is not None or self.layout.dim == 1)

    def numbers(self, rows: Tensor) -> Tensor:
        """The numbers of the columns in rows."""
        return torch.tensor(numbers_of(self.columns, rows.shape[-1]), device=rows.device)


def inputs_of(model: DistributionGP | SparseDistributionGP, names: Names | None) -> Iterator[Input]:
    """Yield the blocks that the kernel reads, each followed by its coordinates or columns.

    Raises:
        ValueError: If the number of names is wrong, or they are not given by block although there are
            several.
    """
    found, encoding = distributions(model), _mixed(model)
    given = names_by_block(names, list(found)) or _own_names(model, found)
    for name in found if encoding is None else encoding.columns:
        if name in found:
            yield from _of_distribution(name, *found[name], given.get(name))
        elif encoding is not None:
            yield from _of_covariates(name, encoding)


def _mixed(model: DistributionGP | SparseDistributionGP) -> MixedEncoding | None:
    """Return the encoding of mixed inputs, if these are a model's.

    Raises:
        ValueError: If its atoms have kinds.
    """
    encoding = model.encoding
    if not isinstance(encoding, AtomEncoding):
        return encoding
    if encoding.kind_names or encoding.masses:
        raise ValueError(
            "Expected a model of atoms without kinds and masses. Use model.predict_atoms and "
            "model.contributions, which say what each atom adds."
        )
    return None


def _own_names(
    model: DistributionGP | SparseDistributionGP, blocks: Distributions
) -> Mapping[str, Sequence[str] | None]:
    """Return the names of the coordinates of the training clouds, by block, where they have names."""
    encoding = model.encoding
    if isinstance(encoding, MixedEncoding):
        return encoding.names
    columns = None if encoding is None else encoding.columns
    return {} if columns is None else dict.fromkeys(blocks, columns)


def distributions(model: DistributionGP | SparseDistributionGP) -> Distributions:
    """Return the blocks of distributions by name: ``"X"`` if a model of one block has no names."""
    kernels: dict[Block, list[torch.nn.Module]] = {}
    for kernel, block in readers(model.covar_module):
        reader = kernel.distance if isinstance(kernel, DistributionKernel) else kernel
        kernels.setdefault(block, []).append(reader)
    encoding = _mixed(model)
    if encoding is None:
        called = ["X"] if len(kernels) == 1 else [f"X{i}" for i in range(len(kernels))]
        return dict(zip(called, kernels.items(), strict=True))
    found = {}
    for name, columns in encoding.columns.items():
        kept = encoding.blocks[name]
        if isinstance(kept, Block):
            block = Block(kept.kind, kept.dim, columns)
            found[name] = (block, kernels.get(block, []))
    return found


def coordinate_names(name: str, block: Block, given: Sequence[str] | None) -> list[str]:
    """Return the names of the coordinates of a block: those given, or ``coordinate 0`` and so on."""
    called = [f"coordinate {i}" for i in range(block.dim)] if given is None else [*map(str, given)]
    if len(called) != block.dim:
        raise ValueError(
            f"Expected {block.dim} names of coordinates of block {name!r}, got {len(called)}."
        )
    return called


def _of_covariates(name: str, encoding: MixedEncoding) -> Iterator[Input]:
    kept, columns = encoding.blocks[name], encoding.columns[name]
    assert isinstance(kept, CovariateEncoding)
    numeric = [isinstance(kind, Scaling) for kind in kept.columns.values()]
    yield Input(name, None, columns, numeric=numeric == [True])
    if len(numeric) > 1:
        for number, column, is_number in zip(
            numbers_of(columns, 0), kept.columns, numeric, strict=True
        ):
            yield Input(name, column, (number,), numeric=is_number)


def names_by_block(names: Names | None, blocks: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the given names of coordinates by block of distributions."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        unknown = sorted(names.keys() - set(blocks))
        if unknown:
            raise ValueError(
                f"Expected names of coordinates of the blocks {list(blocks)}, got block {unknown[0]!r}."
            )
        return names
    if len(blocks) > 1:
        raise ValueError(
            f"Expected names of coordinates by block, {{name: [...], ...}}, for the blocks "
            f"{list(blocks)}, got {names!r}."
        )
    return dict.fromkeys(blocks, names)


def _of_distribution(
    name: str, block: Block, distances: list[torch.nn.Module], given: Sequence[str] | None
) -> Iterator[Input]:
    layout = Block(block.kind, block.dim)
    yield Input(name, None, block.columns, layout)
    if not all(getattr(distance, "reads_coordinates", False) for distance in distances):
        return
    called = coordinate_names(name, block, given)
    scaled = [each for each in distances if isinstance(each, ScaledDistance) and each.has_scales]
    scales = scaled[0].scales.tolist() if len(scaled) == 1 else [math.nan] * block.dim
    start = 0
    for size in max((getattr(distance, "rotating", ()) for distance in distances), default=()):
        axes = range(start, start + size)
        joined = ", ".join(called[axis] for axis in axes)
        yield Input(name, joined, block.columns, layout, tuple(axes), scales[start])
        start += size
    for axis in range(start, block.dim):
        if block.dim > 1:
            yield Input(name, called[axis], block.columns, layout, (axis,), scales[axis])
