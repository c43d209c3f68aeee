"""Pieces of arrays, in memory or in ``.npy`` files: each is a range of bags."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.measures.arrays import real_array
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.sharding.pieces import Contents, PieceError, cut
from gp_distributions.sharding.targets import target_tensor

Result = TypeVar("Result")

# What is read of a piece in a file to tell it from another of the same name, size and time.
_SAMPLED_ENTRIES = 8
_SAMPLED_NUMBERS = 512


@dataclass(frozen=True, eq=False)
class Source:
    """Consecutive entries of an array, which are read when they are needed.

    Attributes:
        path: Path to the file that holds the array, or None for an array in memory.
        array: The entries themselves, if they are in memory.
        start: First entry, counted from the first of the file.
        count: Number of entries.
        shape: Shape of the whole array.
        dtype: Its type.
        offset: Byte of the file at which the array begins.
        fortran: Whether its first axis varies fastest.
        size: Size of the file in bytes.
        modified: Time of the last change of the file, in nanoseconds.
    """

    path: str | None
    array: npt.NDArray[Any] | None
    start: int
    count: int
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0
    fortran: bool = False
    size: int = 0
    modified: int = 0

    @classmethod
    def of(cls, value: Any, name: str) -> Source:
        """Describe an array, or one in a file.

        Args:
            value: The path to a ``.npy`` file, a memory map, an array or a tensor.
            name: Name of the array, for error messages.

        Raises:
            ValueError: If a file cannot be read, or does not hold numbers.
        """
        if isinstance(value, str | os.PathLike):
            path = os.fspath(value)
            try:
                _check_header(path)
                value = np.load(path, mmap_mode="r", allow_pickle=False)
            except Exception as error:  # NumPy evaluates the header as an expression of Python
                raise ValueError(
                    f"{name}: cannot read {path}: {error}. Expected a file that numpy.save wrote."
                ) from error
            name = _named(name, path)
        if not isinstance(value, np.memmap):
            value = real_array(value, name)
        array = value.numpy(force=True) if isinstance(value, Tensor) else value
        if array.dtype.kind not in "biuf" or array.ndim == 0:
            raise ValueError(
                f"{name}: expected an array of numbers, got shape {array.shape} and dtype "
                f"{array.dtype}."
            )
        shape, dtype = array.shape, array.dtype.str
        # The values of a part of a memory map are kept, as it does not know where in the file it begins,
        # and those of one that can be changed, as they may differ from the file.
        if (
            isinstance(array, np.memmap)
            and isinstance(array.base, mmap.mmap)
            and array.mode == "r"
            and array.filename
        ):
            path = os.path.abspath(array.filename)
            status = os.stat(path)
            fortran = array.flags.f_contiguous and not array.flags.c_contiguous
            where = array.offset, fortran, status.st_size, status.st_mtime_ns
            return cls(path, None, 0, shape[0], shape, dtype, *where)
        return cls(None, np.asarray(array), 0, shape[0], shape, dtype)

    def part(self, start: int, stop: int) -> Source:
        """Return the description of some of the entries of a whole array."""
        array = None if self.array is None else self.array[start:stop]
        where = self.offset, self.fortran, self.size, self.modified
        return Source(self.path, array, start, stop - start, self.shape, self.dtype, *where)

    def read(self) -> npt.NDArray[np.float64]:
        """Read the entries in double precision.

        Raises:
            PieceError: If the file cannot be read or has changed.
        """
        if self.array is not None:
            return np.array(self.array, dtype=np.float64)
        return self._from_file(lambda entries: np.array(entries, dtype=np.float64))

    def _from_file(self, read: Callable[[npt.NDArray[Any]], Result]) -> Result:
        """Return the result of a function of the entries in the file.

        Raises:
            PieceError: If the file cannot be read or has changed.
        """
        assert self.path is not None
        try:
            status = os.stat(self.path)
            if (status.st_size, status.st_mtime_ns) == (self.size, self.modified):
                whole = np.memmap(
                    self.path,
                    dtype=np.dtype(self.dtype),
                    mode="r",
                    offset=self.offset,
                    shape=self.shape,
                    order="F" if self.fortran else "C",
                )
                return read(whole[self.start : self.start + self.count])
        except (OSError, ValueError) as error:
            raise PieceError(f"Cannot read {self.path}: {error}.") from error
        raise PieceError(
            f"{self.path} has changed since ShardedClouds.from_arrays read it. Call it again."
        )

    def describe(self) -> Hashable:
        """Return the entries themselves, or the file without its folder and a sample of the entries.

        Raises:
            PieceError: If the file cannot be read or has changed.
        """
        if self.array is not None:
            return self.array.dtype.str, self.array.shape, self.array.tobytes()
        assert self.path is not None
        name = os.path.basename(self.path)
        described = self.shape, self.dtype, self.start, self.count, self._from_file(_sample)
        return name, self.size, self.modified, *described


def _sample(entries: npt.NDArray[Any]) -> bytes:
    """Return the first numbers of evenly spaced entries."""
    places = np.linspace(0, len(entries) - 1, _SAMPLED_ENTRIES).astype(int)
    return b"".join(
        entries[place : place + 1].flat[:_SAMPLED_NUMBERS].tobytes() for place in places
    )


@dataclass(frozen=True, eq=False)
class ArrayPiece:
    """Consecutive bags of arrays.

    Attributes:
        points: The ``B x n x d`` atoms, or the ``N x d`` atoms of all bags.
        offsets: The ``B + 1`` rows of these at which bags begin; None for bags of one size.
        weights: Their weights, or None.
        given: Targets of the bags, or None.
        names: Labels of the bags, or None.
        first: Number of the first bag.
        count: Number of bags.
    """

    points: Source
    offsets: npt.NDArray[np.int64] | None
    weights: Source | None
    given: Tensor | None
    names: npt.NDArray[Any] | None
    first: int
    count: int

    @property
    def name(self) -> str:
        """Where the piece lies."""
        weights = None if self.weights is None else self.weights.path
        files = " and ".join(path for path in (self.points.path, weights) if path)
        return f"{files or 'array'}, bags {self.first} to {self.first + self.count - 1}"

    @property
    def dim(self) -> int:
        """Dimension of the atoms."""
        return self.points.shape[-1]

    def remote(self, client: Any) -> tuple[ArrayPiece, list[Any]]:
        """Return the piece itself, which any process can read."""
        return self, []

    def read(self, *inputs: Any) -> Contents:
        """Read the clouds and their targets."""
        points = self.points.read()
        weights = None if self.weights is None else self.weights.read()
        offsets = self.offsets
        if offsets is None:
            size = points.shape[1]
            offsets = np.arange(self.count + 1) * size
            points = points.reshape(-1, points.shape[-1])
            weights = None if weights is None else weights.reshape(-1)
        return PointClouds.from_ragged(points, offsets, weights, self.names), self.given

    def targets(self) -> Tensor | None:
        """Return the targets."""
        return self.given

    def labels(self) -> npt.NDArray[Any] | None:
        """Return the labels."""
        return self.names

    def describe(self, *, first: bool = True) -> Hashable:
        """Return what identifies the content."""
        return (
            self.points.describe(),
            None if self.offsets is None else self.offsets.tobytes(),
            None if self.weights is None else self.weights.describe(),
            None if self.given is None else (self.given.shape, self.given.numpy().tobytes()),
        )


def array_pieces(
    points: Any,
    offsets: Any,
    weights: Any,
    targets: Any,
    labels: Any,
    piece_atoms: int,
) -> Iterator[ArrayPiece]:
    """Divide bags into pieces.

    Args:
        points: ``B x n x d`` atoms, or ``N x d`` atoms with offsets: an array, a memory map or a path.
        offsets: The ``B + 1`` rows at which bags begin, or None.
        weights: ``B x n`` or ``N`` weights, or None.
        targets: ``B`` or ``B x outputs`` targets, or None.
        labels: ``B`` labels, or None.
        piece_atoms: Largest number of atoms in a piece, padding included.

    Raises:
        ValueError: If shapes differ from these.
    """
    atoms = Source.of(points, "points")
    starts = None if offsets is None else _offsets(offsets, atoms)
    if starts is None and len(atoms.shape) != 3:
        raise ValueError(
            f"{_named('points', points)}: expected shape (bags, n, d), or (atoms, d) with offsets=, got "
            f"{atoms.shape}{'' if len(atoms.shape) != 2 else ' without offsets'}."
        )
    if 0 in atoms.shape:
        raise ValueError(
            f"{_named('points', points)}: expected at least one bag, atom and coordinate, got "
            f"{atoms.shape}."
        )
    sizes = np.diff(starts) if starts is not None else np.full(atoms.count, atoms.shape[1])
    masses = None if weights is None else Source.of(weights, "weights")
    if masses is not None and masses.shape != atoms.shape[:-1]:
        raise ValueError(
            f"{_named('weights', weights)}: expected shape {atoms.shape[:-1]}, one for each atom, got "
            f"{masses.shape}."
        )
    count = len(sizes)
    values = None
    if targets is not None:
        given = Source.of(targets, "targets").read()
        values = target_tensor(given, count, _named("targets", targets))
    names = None if labels is None else np.asarray(labels)
    if names is not None and names.shape != (count,):
        raise ValueError(f"labels: expected {count}, one for each bag, got shape {names.shape}.")
    for low, high in cut(sizes, piece_atoms):
        begin, end = (low, high) if starts is None else (int(starts[low]), int(starts[high]))
        yield ArrayPiece(
            points=atoms.part(begin, end),
            offsets=None if starts is None else starts[low : high + 1] - starts[low],
            weights=None if masses is None else masses.part(begin, end),
            given=None if values is None else values[low:high].clone(),
            names=None if names is None else names[low:high].copy(),
            first=low,
            count=high - low,
        )


def _offsets(offsets: Any, atoms: Source) -> npt.NDArray[np.int64]:
    """Read offsets into the atoms of all bags."""
    source = Source.of(offsets, "offsets")
    if len(atoms.shape) != 2 or len(source.shape) != 1 or np.dtype(source.dtype).kind not in "iu":
        raise ValueError(
            f"Expected {_named('points', atoms.path)} of shape (atoms, d) and "
            f"{_named('offsets', offsets)} of shape (bags + 1,), integers, got "
            f"{atoms.shape} and {source.shape}, {np.dtype(source.dtype)}."
        )
    starts = source.read().astype(np.int64)
    if (
        len(starts) < 2
        or starts[0] != 0
        or starts[-1] != atoms.count
        or (np.diff(starts) < 1).any()
    ):
        raise ValueError(
            f"{_named('offsets', offsets)}: expected integers that increase from 0 to the number of "
            f"{_named('atoms', atoms.path)}, {atoms.count}, got "
            f"{starts[:3].tolist()} ... {starts[-1:].tolist()}."
        )
    return starts


def _check_header(path: str) -> None:
    """Check the shape and the dtype of a file, for some of which NumPy divides by zero."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:  # version 3 is for names of fields
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"it has shape {shape} and dtype {dtype}")


def _named(name: str, value: Any) -> str:
    """Return the name of an argument, with the file that holds it."""
    return f"{name} ({os.fspath(value)})" if isinstance(value, str | os.PathLike) else name
