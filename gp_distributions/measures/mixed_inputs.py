"""Several inputs for each object: bags, Gaussians, numbers and categories, as named blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._container import Container, WeightedContainer
from gp_distributions.measures._indexing import Index, resolve
from gp_distributions.measures.bag_columns import Split, split_frame
from gp_distributions.measures.covariates import Covariates
from gp_distributions.measures.encoding import MixedEncoding, Part, common_dtype_and_device
from gp_distributions.measures.names import Names, Naming, check_names, index_names, naming_of
from gp_distributions.rows.padding import joined


class MixedInputs:
    """Several inputs for each object, as named blocks of one length: a patient's cells, age and arm.

    The data are validated once, at construction. Blocks can be indexed together, ``inputs[:10]``, where
    an integer selects inputs of length one, and concatenated. :meth:`from_frame` reads a data frame
    whose cells hold bags. A :class:`DistributionGP` takes mixed inputs as they are; :func:`mixed_kernel`
    makes other kernels on them than the default. The levels of categories and the scales of numbers are
    learned from the training data, and the model keeps them.

    Args:
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

    def __init__(self, /, **blocks: Any) -> None:
        if not blocks:
            raise TypeError("Expected at least one block, such as cells=clouds, got none.")
        parts = {name: _read(block, name) for name, block in blocks.items()}
        named = {name: index_names(blocks[name]) or _names(part) for name, part in parts.items()}
        self._hold(parts, _common_names({n: found for n, found in named.items() if found}))
        _check_lengths(parts)
        common_dtype_and_device(parts)

    @classmethod
    def from_frame(cls, frame: Any, *, covariates: str = "covariates") -> MixedInputs:
        """Read a data frame with one row for each object: columns of bags beside ordinary columns.

        A column holds bags if its first value is an array or list of shape ``(n,)`` or ``(n, d)``; sizes
        may differ. It becomes a block of :class:`PointClouds` in double precision. The other columns
        form one block.

        Args:
            frame: A data frame of pandas, Polars or PyArrow, or of another library that narwhals reads.
            covariates: Name of the block of the columns that do not hold bags.

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
        return cls._of(split_frame(frame, covariates))

    @classmethod
    def _of(cls, split: Split) -> MixedInputs:
        blocks, names = split
        return cls.__new__(cls)._hold(cls(**blocks)._blocks, names)

    def _hold(self, blocks: Mapping[str, Part], names: Names | None) -> MixedInputs:
        self._blocks, self._names = dict(blocks), names
        return self

    def _with(self, blocks: Mapping[str, Part]) -> MixedInputs:
        """Return the same objects with other values of some blocks."""
        return type(self).__new__(type(self))._hold({**self._blocks, **blocks}, self._names)

    @property
    def blocks(self) -> dict[str, Part]:
        """The blocks by name."""
        return dict(self._blocks)

    @property
    def labels(self) -> npt.NDArray[Any] | None:
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
        return cls.__new__(cls)._hold(encoding.decode(rows), None)

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
        return cls.__new__(cls)._hold(blocks, Names.concatenate([g._names for g in inputs]))

    def to(self, *args: Any, **kwargs: Any) -> MixedInputs:
        """Convert the dtype or device of the tensors, with the arguments of ``torch.Tensor.to``."""
        blocks = {name: block.to(*args, **kwargs) for name, block in self._blocks.items()}
        return self._with(blocks)

    def __len__(self) -> int:
        return len(next(iter(self._blocks.values())))

    def __getitem__(self, index: Index) -> MixedInputs:
        key = resolve(index, len(self))
        if isinstance(key, Tensor) and key.dim() > 1:
            raise TypeError(
                f"Expected an integer, a slice, a mask or a list as index, got {index!r}."
            )
        if isinstance(key, Tensor):
            key = key.reshape(-1)  # one object is inputs of length one
        blocks = {name: block[key] for name, block in self._blocks.items()}
        names = None
        if self._names is not None:
            names = self._names[key.numpy(force=True) if isinstance(key, Tensor) else key]
        return type(self).__new__(type(self))._hold(blocks, names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MixedInputs):
            return NotImplemented
        return self._blocks == other._blocks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        blocks = [f"{name}={block!r}" for name, block in self._blocks.items()]
        return f"MixedInputs({', '.join([str(len(self)), *blocks])})"


def _read(block: Any, name: str) -> Part:
    if isinstance(block, Covariates):
        return block
    if not isinstance(block, Container):
        return Covariates.read(block, name)
    if len(block.batch_shape) != 1:
        raise ValueError(
            f"Block {name!r}: expected N distributions, got {block}, of batch shape "
            f"{tuple(block.batch_shape)}."
        )
    return block  # type: ignore[return-value]


def _check_lengths(blocks: Mapping[str, Part]) -> None:
    lengths = {name: len(block) for name, block in blocks.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected blocks of one length, got {lengths}.")


def _names(part: Part) -> Names | None:
    """Return the labels of a block as names: those of distributions are, others may count rows."""
    if part.labels is None or part.labels.ndim != 1:
        return None
    return Names(part.labels, *([naming_of(part.labels)] if isinstance(part, Covariates) else []))


def _common_names(named: Mapping[str, Names]) -> Names | None:
    """Check that blocks name the objects alike, and return the names that most certainly are names."""
    if not named:
        return None
    (block, names), *others = sorted(named.items(), key=lambda entry: -entry[1].naming)
    for other, found in others:
        if names.naming > Naming.COUNTED and found.labels is None:
            continue  # the rows of this table are only counted
        check_names(names, found, repr(block), repr(other))
    return names


def _joined(parts: Sequence[Any], name: str) -> Part:
    kinds = {type(part) for part in parts}
    if len(kinds) > 1:
        raise ValueError(f"Block {name!r}: expected one kind, got {sorted(map(str, kinds))}.")
    if isinstance(parts[0], Covariates):
        return Covariates.concatenate(parts)
    dims = sorted({part.dim for part in parts})
    if len(dims) > 1:
        raise ValueError(f"Block {name!r}: expected one dimension, got {dims}.")
    tensors = []
    for attribute in parts[0]._axes:
        pieces = [getattr(part, attribute) for part in parts]
        tensors.append(
            joined(pieces) if isinstance(parts[0], WeightedContainer) else torch.cat(pieces)
        )
    labels = [part.labels for part in parts]
    known = all(given is not None for given in labels)
    whole: Part = parts[0]._unchecked(*tensors, labels=np.concatenate(labels) if known else None)
    return whole
