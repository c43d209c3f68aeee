"""Pieces of arrays, in memory or in ``.npy`` files: each is a range of bags."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.measures.arrays import real_array
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.sharding.pieces import BagPiece, Contents, PieceError, cut, named
from gp_distributions.sharding.tables import target_tensor


@dataclass(frozen=True, eq=False)
class Entries:
    """Consecutive entries of an array.

    Attributes:
        array: The entries, if they are in memory.
        path: Path to the ``.npy`` file that holds the array, if they are not.
        stamp: Size and time of the last change of the file.
        start: First entry in the file.
        stop: The one after the last. Default: all.
    """

    array: npt.NDArray[Any] | None
    path: Path | None = None
    stamp: tuple[int, int] = (0, 0)
    start: int = 0
    stop: int | None = None

    def part(self, start: int, stop: int) -> Entries:
        """Return some of the entries of a whole array."""
        if self.array is not None:
            return Entries(self.array[start:stop])
        return replace(self, start=start, stop=stop)

    def read(self) -> npt.NDArray[np.float64]:
        """Read the entries in double precision.

        Raises:
            PieceError: If the file has changed.
        """
        if self.path is None:
            return np.array(self.array, dtype=np.float64)
        if _stamp(self.path) != self.stamp:
            raise PieceError(
                f"{self.path} has changed since ShardedClouds.from_arrays read it. Call it again."
            )
        return np.array(np.load(self.path, mmap_mode="r")[self.start : self.stop], dtype=np.float64)

    def describe(self) -> Any:
        """Return the entries themselves, or the file without its folder."""
        if self.path is None:
            return self.array
        return self.path.name, self.stamp, self.start, self.stop


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _entries(value: Any, name: str) -> tuple[Entries, npt.NDArray[Any], str]:
    """Return the entries of an argument, the array or memory map, and its name for messages.

    Raises:
        ValueError: If a file cannot be read, or does not hold numbers.
    """
    path = None
    if isinstance(value, str | os.PathLike):
        path, name = Path(value).absolute(), f"{name} ({value})"
        with named(name):
            value = np.load(path, mmap_mode="r")
    array = real_array(value, name)
    array = array.numpy(force=True) if isinstance(array, Tensor) else array
    return Entries(array) if path is None else Entries(None, path, _stamp(path)), array, name


@dataclass(frozen=True, eq=False)
class ArrayPiece(BagPiece):
    """Consecutive bags of arrays.

    Attributes:
        points: The ``B x n x d`` atoms, or the ``N x d`` atoms of all bags.
        weights: Their weights, or None.
        first: Number of the first bag.
        dim: Dimension of the atoms.
    """

    points: Entries
    weights: Entries | None
    first: int
    dim: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """Where the piece lies."""
        files = [part.path for part in (self.points, self.weights) if part and part.path]
        where = " and ".join(map(str, files)) or "array"
        return f"{where}, bags {self.first} to {self.first + self.count - 1}"

    def read(self, *inputs: Any) -> Contents:
        """Read the clouds and their targets."""
        points = self.points.read().reshape(-1, self.dim)
        weights = None if self.weights is None else self.weights.read().reshape(-1)
        return PointClouds.from_ragged(points, self.offsets, weights, self.names), self.given

    def describe(self, *, first: bool = True) -> Any:
        """Return what identifies the content."""
        weights = None if self.weights is None else self.weights.describe()
        return self.points.describe(), self.offsets, weights, self.given


def array_pieces(
    points: Any, offsets: Any, weights: Any, targets: Any, labels: Any, piece_atoms: int
) -> Iterator[ArrayPiece]:
    """Divide bags into pieces, given the arguments of :meth:`ShardedClouds.from_arrays`.

    Raises:
        ValueError: If shapes differ from those.
    """
    atoms, array, name = _entries(points, "points")
    axes = 3 if offsets is None else 2
    if array.ndim != axes or 0 in array.shape:
        raise ValueError(
            f"{name}: expected shape (bags, n, d), or (atoms, d) with offsets=, and at least one of "
            f"each, got {array.shape}{' without offsets' if offsets is None else ' with offsets'}."
        )
    starts = np.arange(len(array) + 1)
    if offsets is not None:
        starts = _offsets(offsets, len(array))
    each = 1 if offsets is not None else array.shape[1]
    masses = None
    if weights is not None:
        masses, found, name = _entries(weights, "weights")
        if found.shape != array.shape[:-1]:
            raise ValueError(
                f"{name}: expected shape {array.shape[:-1]}, one for each atom, got {found.shape}."
            )
    count = len(starts) - 1
    values = None
    if targets is not None:
        given, _, name = _entries(targets, "targets")
        values = target_tensor(given.read(), count, name=name)
    names = None if labels is None else np.asarray(labels)
    if names is not None and names.shape != (count,):
        raise ValueError(f"labels: expected {count}, one for each bag, got shape {names.shape}.")
    for low, high in cut(each * np.diff(starts), piece_atoms):
        begin, end = int(starts[low]), int(starts[high])
        yield ArrayPiece(
            offsets=each * (starts[low : high + 1] - begin),
            names=None if names is None else names[low:high].copy(),
            given=None if values is None else values[low:high].clone(),
            points=atoms.part(begin, end),
            weights=None if masses is None else masses.part(begin, end),
            first=low,
            dim=array.shape[-1],
        )


def _offsets(offsets: Any, atoms: int) -> npt.NDArray[np.int64]:
    """Read offsets into the atoms of all bags."""
    _, array, name = _entries(offsets, "offsets")
    starts = np.array(array)
    integers = starts.dtype.kind in "iu" and starts.ndim == 1 and len(starts) > 1
    if not integers or starts[0] != 0 or starts[-1] != atoms or (np.diff(starts) < 1).any():
        raise ValueError(
            f"{name}: expected integers that increase from 0 to the number of atoms, {atoms}, got "
            f"{starts[:3].tolist()} ... {starts[-1:].tolist()}."
        )
    return starts.astype(np.int64)
