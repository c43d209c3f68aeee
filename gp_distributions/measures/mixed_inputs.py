"""Several inputs for each object: bags, Gaussians, numbers and categories, as named blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures._container import Container, Index, resolve
from gp_distributions.measures.arrays import Labels, Wording, count_axes, double, is_missing
from gp_distributions.measures.covariates import Covariates
from gp_distributions.measures.encoding import MixedEncoding, Part, common_dtype_and_device
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import (
    Names,
    Table,
    cells,
    check_names,
    column,
    in_one_order,
    index_names,
    table,
)

Missing: TypeAlias = Literal["indicator"]


class MixedInputs:
    """Several inputs for each object, as named blocks of one length: a patient's cells, age and arm.

    The data are validated once, at construction. Blocks can be indexed together, ``inputs[:10]``, where
    an integer selects inputs of length one, and concatenated. :meth:`from_frame` reads a data frame
    whose cells hold bags. A :class:`DistributionGP` takes mixed inputs as they are; :func:`mixed_kernel`
    makes other kernels on them than the default. The levels of categories and the scales of numbers are
    learned from the training data, and the model keeps them.

    Args:
        missing: What to do where a covariate is missing: ``"indicator"`` takes the mean of the training
            data for a number, and adds a column that says so for each column of numbers that has gaps
            there; a missing category is the level ``"missing"``. Default: an error that names the row.
        **blocks: The ``N`` inputs of each block: :class:`PointClouds`, :class:`Gaussians`,
            :class:`GaussianMixtures`; an array, tensor or list of ``N`` numbers or categories or of
            ``N`` rows of numbers; a dictionary of columns; or a data frame of pandas, Polars or
            PyArrow, or of another library that narwhals reads. Strings, booleans and categorical types
            are categories; convert integer codes with ``astype("category")``.

    Attributes:
        blocks: The blocks by name; arrays and frames become :class:`Covariates`.
        labels: Names of the objects: the labels of the first distributions that have labels, or the
            index of the first pandas frame unless it counts the rows from zero, or None.

    Raises:
        TypeError: If there are no blocks.
        ValueError: If the lengths of blocks differ; the labels of clouds and the index of a frame differ
            in their names, in the types of these or in their order, where integers without a name may
            count rows; a value is missing; a number is not finite; a column is neither of numbers nor
            of categories; or distributions have further batch axes.

    Example:
        >>> import pandas as pd
        >>> from gp_distributions import MixedInputs, PointClouds
        >>> cells = PointClouds.from_list({"ann": [[0.0], [2.0]], "bob": [[1.0]]})
        >>> covariates = pd.DataFrame(
        ...     {"age": [50.0, 60.0], "arm": ["drug", "placebo"]}, index=["ann", "bob"]
        ... )
        >>> X = MixedInputs(cells=cells, covariates=covariates)
        >>> X
        MixedInputs(2, cells=PointClouds(2 clouds, 1-2 atoms, d=1, float64), \
covariates=Covariates(2, age, arm: 2 levels))
        >>> X[1:].labels.tolist()
        ['bob']
    """

    def __init__(self, /, *, missing: Missing | None = None, **blocks: Any) -> None:
        if not blocks:
            raise TypeError("Expected at least one block, such as cells=clouds, got none.")
        gaps = _allows_gaps(missing)
        parts = {name: _read(block, name, gaps) for name, block in blocks.items()}
        self._blocks, self._names = parts, _common_names(blocks, parts)
        lengths = {name: len(block) for name, block in parts.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"Expected blocks of one length, got {lengths}. Repeat a cloud for each row of a frame "
                "that names it: clouds[frame[column]]."
            )
        kinds = {(p.dtype, p.device) for p in parts.values() if not isinstance(p, Covariates)}
        if len(kinds) > 1:
            raise ValueError(
                f"Expected distributions of one dtype and on one device, got {kinds}. Convert them with "
                ".to(...)."
            )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        covariates: str = "covariates",
        labels: str | None = None,
        missing: Missing | None = None,
    ) -> MixedInputs:
        """Read a data frame with one row for each object: columns of bags beside ordinary columns.

        A column holds bags if its first value is an array or list of shape ``(n,)`` or ``(n, d)``; sizes
        may differ. It becomes a block of :class:`PointClouds` in double precision. The other columns
        form one block.

        Args:
            frame: A data frame of pandas, Polars or PyArrow, or of another library that narwhals reads.
            covariates: Name of the block of the columns that do not hold bags.
            labels: Name of the column that names the objects. Default: the index of a pandas frame,
                unless it is one of integers without a name, which may count rows.
            missing: As for the class; a bag must not be missing.

        Returns:
            The inputs.

        Raises:
            TypeError: If ``frame`` is not a data frame.
            ValueError: If a bag or another value is missing or invalid; the message names the column.

        Example:
            >>> import pandas as pd
            >>> from gp_distributions import MixedInputs
            >>> frame = pd.DataFrame({"cells": [[[0.0], [2.0]], [[1.0]]], "age": [50.0, 60.0]})
            >>> MixedInputs.from_frame(frame)
            MixedInputs(2, cells=PointClouds(2 clouds, 1-2 atoms, d=1, float64), \
covariates=Covariates(2, age))
        """
        read = table(frame)
        gaps = _allows_gaps(missing)
        return cls._from_table(read, bag_columns(read), covariates, labels, gaps=gaps)

    @classmethod
    def _from_table(
        cls,
        frame: Table,
        bags: Mapping[Any, list[Any]],
        covariates: str = "covariates",
        labels: str | None = None,
        *,
        gaps: bool = False,
    ) -> MixedInputs:
        """Read a frame, given the cells of its columns of bags."""
        names = index_names(frame.to_native())
        if labels is not None:
            names = Names(np.asarray(column(frame, labels)))
        blocks: dict[str, Part] = {}
        for name, entries in bags.items():
            if str(name) in {covariates, *blocks}:
                raise ValueError(
                    f"Column {name!r}: expected columns of bags whose names differ as text, also from "
                    f"the block of covariates, {covariates!r}. Rename it, or pass another covariates=."
                )
            try:
                blocks[str(name)] = read_column(entries, names)
            except ValueError as error:
                raise ValueError(f"Column {name!r}: {error}") from error
        others = {n: column(frame, n) for n in frame.columns if n not in bags and n != labels}
        if others:
            blocks[covariates] = Covariates.of(others, covariates, names, gaps=gaps)
        return cls._made(blocks, names)

    @classmethod
    def _made(cls, blocks: Mapping[str, Part], names: Names | None) -> MixedInputs:
        made = cls.__new__(cls)
        made._blocks, made._names = dict(blocks), names
        return made

    def _with(self, blocks: Mapping[str, Part]) -> MixedInputs:
        """Return the same objects with other values of some blocks."""
        return self._made({**self._blocks, **blocks}, self._names)

    @property
    def blocks(self) -> dict[str, Part]:
        """The blocks by name."""
        return dict(self._blocks)

    @property
    def labels(self) -> Labels | None:
        """Names of the objects, or None."""
        return None if self._names is None else self._names.labels

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows."""
        return common_dtype_and_device(self._blocks)[0]

    @property
    def device(self) -> torch.device:
        """Device of the rows."""
        return common_dtype_and_device(self._blocks)[1]

    @property
    def encoding(self) -> MixedEncoding:
        """The encoding that these inputs define if they are the training data."""
        return MixedEncoding.learn(self._blocks)

    def pack(self, encoding: MixedEncoding | None = None, *, atoms: int | None = None) -> Tensor:
        """Write the inputs as rows, as models and kernels see them.

        Args:
            encoding: Layout and encoding of the rows: ``model.encoding`` for the rows of a model.
                Default: the encoding that these inputs define.
            atoms: Number of atoms or components in a row. Default: the largest stored number.

        Returns:
            An ``N x width`` tensor: first covariates and Gaussians, then one atom of each other block in
            turn.

        Raises:
            ValueError: If the blocks do not fit the encoding, and the message names a category that did
                not occur in the training data, and its row; if ``atoms`` is not an integer >= 1 or too
                small; or if there are no objects and no encoding is given.

        Example:
            >>> from gp_distributions import MixedInputs, PointClouds
            >>> X = MixedInputs(cells=PointClouds([[[5.0]], [[6.0]]]), age=[50.0, 60.0])
            >>> X.pack()
            tensor([[-1.,  5.,  1.],
                    [ 1.,  6.,  1.]], dtype=torch.float64)
        """
        return (self.encoding if encoding is None else encoding).encode(self._blocks, atoms)

    @classmethod
    def unpack(cls, rows: Tensor, encoding: MixedEncoding) -> MixedInputs:
        """Read inputs from rows: the inverse of ``pack``, except that rows do not hold labels.

        Args:
            rows: An ``N x width`` tensor.
            encoding: The encoding with which the rows were written.

        Returns:
            The inputs.

        Raises:
            ValueError: If the rows do not fit the encoding.

        Example:
            >>> from gp_distributions import MixedInputs, PointClouds
            >>> X = MixedInputs(cells=PointClouds([[[5.0]], [[6.0]]]), arm=["drug", "placebo"])
            >>> MixedInputs.unpack(X.pack(), X.encoding).blocks["arm"].columns["arm"].tolist()
            ['drug', 'placebo']
        """
        return cls._made(encoding.decode(rows), None)

    @classmethod
    def concatenate(cls, inputs: Sequence[MixedInputs]) -> MixedInputs:
        """Concatenate inputs with the same blocks; smaller clouds are padded.

        Args:
            inputs: The inputs.

        Returns:
            The inputs in order, with labels if all of them have labels.

        Raises:
            ValueError: If there are no inputs, or their blocks differ.

        Example:
            >>> from gp_distributions import MixedInputs
            >>> first, second = MixedInputs(age=[50.0]), MixedInputs(age=[60.0, 70.0])
            >>> len(MixedInputs.concatenate([first, second]))
            3
        """
        names = [list(given._blocks) for given in inputs]
        if not names or any(set(found) != set(names[0]) for found in names):
            raise ValueError(f"Expected inputs with the same blocks, got {names}.")
        blocks = {n: _joined([given._blocks[n] for given in inputs], n) for n in names[0]}
        named = [given._names for given in inputs]
        joined = None
        if None not in named:
            values = np.concatenate([n.values.astype(object) for n in named])  # type: ignore[union-attr]
            joined = Names(values, any(n.counted for n in named))  # type: ignore[union-attr]
        return cls._made(blocks, joined)

    def to(self, *args: Any, **kwargs: Any) -> MixedInputs:
        """Convert the dtype or device of the tensors, with the arguments of ``torch.Tensor.to``."""
        blocks = {name: block.to(*args, **kwargs) for name, block in self._blocks.items()}
        return self._with(blocks)

    def __len__(self) -> int:
        return len(next(iter(self._blocks.values())))

    def __getitem__(self, index: Index) -> MixedInputs:
        key = resolve(index, len(self), self.labels)
        if not isinstance(key, slice):
            key = key.reshape(-1)  # one object is inputs of length one
        blocks = {name: block[key] for name, block in self._blocks.items()}
        return self._made(blocks, None if self._names is None else self._names[key])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MixedInputs):
            return NotImplemented
        return self._blocks == other._blocks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        blocks = [f"{name}={block!r}" for name, block in self._blocks.items()]
        return f"MixedInputs({', '.join([str(len(self)), *blocks])})"


def _allows_gaps(missing: object) -> bool:
    if missing not in (None, "indicator"):
        raise ValueError(f'Expected missing to be None or "indicator", got {missing!r}.')
    return missing is not None


def _read(block: Any, name: str, gaps: bool) -> Part:
    if isinstance(block, Covariates):
        return block
    if not isinstance(block, Container):
        return Covariates.read(block, name, gaps=gaps)
    if len(block.batch_shape) != 1:
        raise ValueError(
            f"Block {name!r}: expected N distributions, got {block}, of batch shape "
            f"{tuple(block.batch_shape)}."
        )
    return block  # type: ignore[return-value]


def _common_names(blocks: Mapping[str, Any], parts: Mapping[str, Part]) -> Names | None:
    """Check that the frames, series and labels of blocks name the objects alike; return the names."""
    known = []
    for name, part in parts.items():
        labels = None if part.labels is None else Names(part.labels)
        names = index_names(blocks[name]) or labels
        if names is not None:
            known.append((name, names))
    known.sort(key=lambda entry: entry[1].counted)
    for other, found in known[1:]:
        check_names(known[0][1], found, repr(known[0][0]), repr(other))
    return known[0][1] if known else None


def read_column(entries: list[Any], names: Names | None = None) -> PointClouds:
    """Read the entries of a column of bags, in double precision."""
    entries, columns = in_one_order(entries, Wording())
    bags = [double(entry, f"Bag {i}") for i, entry in enumerate(entries)]
    clouds = PointClouds.from_list(bags, labels=None if names is None else names.labels)
    return clouds._alike(*clouds._tensors, columns=columns)


def bag_columns(frame: Table) -> dict[Any, list[Any]]:
    """Return the cells of the columns of bags in a frame, by the name of the column.

    A column holds bags if its first value is an array, a list, a tuple or a tensor with one or two axes.

    Raises:
        ValueError: If the frame has no rows, which would show whether a column holds bags.
    """
    if not len(frame):
        raise ValueError("Expected at least one row, got an empty frame.")
    found = {}
    for name, dtype in frame.schema.items():
        if dtype in (nw.List, nw.Array, nw.Object):
            entries = cells(column(frame, name)) or []
            if count_axes(next((e for e in entries if not is_missing(e)), None)) in (1, 2):
                found[name] = entries
    return found


def _joined(parts: Sequence[Any], name: str) -> Part:
    kinds = {(type(part), getattr(part, "dim", None)) for part in parts}
    if len(kinds) > 1:
        raise ValueError(f"Block {name!r}: expected one kind and dimension, got {[*parts]}.")
    if isinstance(parts[0], Covariates):
        return Covariates.concatenate(parts)
    return type(parts[0])._concatenate(parts)
