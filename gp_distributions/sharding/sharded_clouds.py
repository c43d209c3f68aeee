"""Point clouds in pieces, on disk or on a cluster, of which only a few are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels, integer
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.padding import filled
from gp_distributions.sharding.arrays import array_pieces
from gp_distributions.sharding.checkpoint import digest
from gp_distributions.sharding.delayed import delayed_pieces
from gp_distributions.sharding.parquet import parquet_pieces
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.pieces import (
    PIECE_ATOMS,
    Contents,
    Piece,
    check_alike,
    descriptions,
    named,
)
from gp_distributions.sharding.tables import Layout

Part = TypeVar("Part", Tensor, Labels)


@dataclass(frozen=True, eq=False, repr=False)
class ShardedClouds:
    """Point clouds in pieces: a description of data that need not fit in memory.

    Make one with :meth:`from_parquet`, :meth:`from_arrays` or :meth:`from_delayed`, and pass it to a
    :class:`SparseDistributionGP` as ``train_X``, or to its ``predict``. Clouds are read piece by piece,
    in double precision, where and when they are needed, and checked as in :class:`PointClouds`. The
    object itself holds paths, and of each bag its place and its label, so it can be pickled and sent to
    other machines, where the same paths must exist.

    ``len(shards)`` is the number of clouds, where it is known.

    Args:
        pieces: The pieces, in order.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import ShardedClouds
        >>> points = np.random.default_rng(0).normal(size=(100, 30, 2))
        >>> shards = ShardedClouds.from_arrays(
        ...     points, targets=points.mean((1, 2)), piece_atoms=1200
        ... )
        >>> shards
        ShardedClouds(100 clouds in 3 pieces, d=2)
        >>> clouds, targets = shards.piece(0)
        >>> clouds, targets.shape
        (PointClouds(40 clouds, 30 atoms, d=2, float64), torch.Size([40]))
    """

    pieces: tuple[Piece, ...]

    @classmethod
    def from_parquet(
        cls,
        path: Any,
        *,
        bag: str,
        columns: str | Sequence[str],
        weight: str | None = None,
        target: str | Sequence[str] | None = None,
        targets: Any = None,
        piece_atoms: int = PIECE_ATOMS,
    ) -> ShardedClouds:
        """Describe a long table in Parquet files, with one row for each atom.

        All rows of a bag must lie next to each other in one file. This is checked: the column of bags
        of every file is read once, and nothing else. A piece consists of whole row groups, except that a
        bag that goes on in the next row group is kept whole and a row group of more than ``piece_atoms``
        is divided.

        Args:
            path: Path to a folder of Parquet files or to one file, a list of files, or an address that
                PyArrow reads, such as ``"s3://bucket/folder"``. The files of a folder are read in the
                order of their names.
            bag: Name of the column that identifies the bag of each row. Its values become the labels.
            columns: Name or names of the columns of coordinates.
            weight: Name of the column of weights >= 0. Default: equal weights.
            target: Name of the column of targets, or names of columns for several outputs. A target has
                the same value in all rows of a bag. Default: no targets, or those of a mapping.
            targets: Targets by bag, if they are not in the files: a mapping, a series of pandas whose
                index names the bags, or a data frame or path to a Parquet file with one row for each bag
                and the columns ``bag`` and ``target``.
            piece_atoms: Largest number of atoms in a piece, including padding to the size of its largest
                bag. A bag of more atoms is a piece of its own.

        Returns:
            The clouds, in the order of the files and of the rows in them.

        Raises:
            ImportError: If PyArrow is not installed (extra ``arrow``).
            PieceError: If a file cannot be read, or the rows of a bag are in several files or apart from
                each other; the message names the file.
            ValueError: If there are no rows, a column is missing, or a bag has no target.

        Example:
            >>> import tempfile
            >>> import pyarrow as pa, pyarrow.parquet as pq
            >>> from gp_distributions import ShardedClouds
            >>> folder = tempfile.TemporaryDirectory()
            >>> atoms = {"patient": ["a", "a", "b"], "dose": [1.0, 2.0, 3.0], "age": [61, 61, 47]}
            >>> pq.write_table(pa.table(atoms), f"{folder.name}/visits.parquet")
            >>> ShardedClouds.from_parquet(
            ...     folder.name, bag="patient", columns="dose", target="age"
            ... )
            ShardedClouds(2 clouds in 1 piece, d=1)
            >>> folder.cleanup()
        """
        layout = Layout.of(bag, columns, weight, target)
        atoms = integer(piece_atoms, "piece_atoms")
        return cls(tuple(parquet_pieces(path, layout, targets, atoms)))

    @classmethod
    def from_arrays(
        cls,
        points: Any,
        *,
        offsets: Any = None,
        weights: Any = None,
        targets: Any = None,
        labels: Any = None,
        piece_atoms: int = PIECE_ATOMS,
    ) -> ShardedClouds:
        """Describe arrays on disk or in memory.

        Each argument is the path to a ``.npy`` file, a memory map, an array or a tensor. Files are read
        where they are needed; of arrays and memory maps, pieces are sent there.
        Offsets, targets and labels are read at once.

        Args:
            points: Atoms of ``B`` bags of one size, ``B x n x d``, or of bags of any sizes one after
                another, ``N x d``.
            offsets: For bags of any sizes, the ``B + 1`` integers ``0 = o_0 < ... < o_B = N``: bag ``i``
                holds the atoms ``o_i`` to ``o_(i+1) - 1``.
            weights: Weights >= 0, ``B x n`` or ``N``. Default: equal weights.
            targets: Targets, ``B`` or ``B x outputs``. Default: no targets.
            labels: Names of the bags. Default: no labels.
            piece_atoms: As for :meth:`from_parquet`.

        Returns:
            The clouds, in order.

        Raises:
            ValueError: If a file cannot be read, or shapes or offsets are wrong.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from gp_distributions import ShardedClouds
            >>> folder = tempfile.TemporaryDirectory()
            >>> np.save(f"{folder.name}/atoms.npy", np.zeros((5, 3)))
            >>> ShardedClouds.from_arrays(f"{folder.name}/atoms.npy", offsets=[0, 2, 5])
            ShardedClouds(2 clouds in 1 piece, d=3)
            >>> folder.cleanup()
        """
        atoms = integer(piece_atoms, "piece_atoms")
        return cls(tuple(array_pieces(points, offsets, weights, targets, labels, atoms)))

    @classmethod
    def from_delayed(
        cls,
        pieces: Any,
        *,
        bag: str | None = None,
        columns: str | Sequence[str] | None = None,
        weight: str | None = None,
        target: str | Sequence[str] | None = None,
    ) -> ShardedClouds:
        """Describe pieces that Dask computes.

        Args:
            pieces: A list of delayed values, or a collection of Dask, each of whose partitions is a
                piece. The value of a piece is ``(clouds, targets)`` or ``clouds``, where ``clouds`` is a
                :class:`PointClouds`, a list of arrays of shape ``n_i x d``, or an array of shape
                ``B x n x d``; or a data frame in the layout of :meth:`from_parquet`. All rows of a bag
                must be in one partition, next to each other, as they are after
                ``frame.set_index(bag).persist()``; within a partition this is checked. A value must not
                change when it is computed again. A pass over the data computes a few pieces at a time:
                without ``persist``, each piece of a shuffled frame computes the whole shuffle.
            bag: Name of the column that identifies the bag of each row, if the pieces are data frames.
            columns: Name or names of the columns of coordinates, if the pieces are data frames.
            weight: As for :meth:`from_parquet`.
            target: As for :meth:`from_parquet`.

        Returns:
            The clouds. Their number is unknown, so ``len`` raises a ``TypeError``.

        Raises:
            ImportError: If Dask is not installed (extra ``dask``).
            TypeError: If an entry is not a delayed value.
            ValueError: If there are no pieces, or only one of ``bag`` and ``columns`` is given.

        Warns:
            CostWarning: If the pieces depend on common tasks, as after a shuffle.

        Example:
            >>> import dask
            >>> import numpy as np
            >>> from gp_distributions import ShardedClouds
            >>> @dask.delayed
            ... def simulation(seed):
            ...     points = np.random.default_rng(seed).normal(size=(10, 50, 3))
            ...     return points, points.mean((1, 2))
            >>> ShardedClouds.from_delayed([simulation(seed) for seed in range(4)])
            ShardedClouds(4 pieces)
        """
        if (bag is None) != (columns is None):
            raise ValueError("Expected both bag= and columns= for pieces that are data frames.")
        layout = None
        if bag is not None and columns is not None:
            layout = Layout.of(bag, columns, weight, target)
        return cls(tuple(delayed_pieces(pieces, layout)))

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    @cached_property
    def dim(self) -> int:
        """Dimension ``d`` of the atoms. Of delayed clouds, the first piece is computed to find it."""
        known = self.pieces[0].dim
        return self.piece(0)[0].dim if known is None else known

    def piece(self, index: int) -> Contents:
        """Read a piece.

        Args:
            index: Number of the piece.

        Returns:
            Its clouds, and their targets as a ``B`` or ``B x outputs`` tensor in double precision, or
            None if there are no targets.

        Raises:
            PieceError: If the piece cannot be read; the message names it and its file.
        """
        with named(self.pieces[index].name):
            clouds, targets = self.pieces[index].read()
        return clouds, targets

    def labels(self, index: int | None = None) -> Labels | None:
        """Read the labels of the clouds of a piece, or of all pieces, or None if there are none.

        Raises:
            PieceError: If a piece cannot be read, or only some pieces have labels.
        """
        found = self._of_pieces(lambda piece: piece.labels(), "labels", index)
        return None if found is None else np.concatenate(found)

    def targets(self, index: int | None = None) -> Tensor | None:
        """Read the targets of a piece, or of all pieces, or None if there are none.

        Of Parquet files, only the columns of bags and targets are read.

        Raises:
            PieceError: If a piece cannot be read, or only some pieces have targets.
        """
        found = self._of_pieces(lambda piece: piece.targets(), "targets", index)
        return None if found is None else torch.cat(found)

    def select(self, indices: Iterable[int]) -> ShardedClouds:
        """Return some of the pieces, for example to hold others out.

        Args:
            indices: Numbers of the pieces.

        Returns:
            The pieces, in this order.

        Raises:
            ValueError: If there are none.
        """
        chosen = tuple(self.pieces[index] for index in indices)
        if not chosen:
            raise ValueError("Expected at least one piece, got none.")
        return ShardedClouds(chosen)

    def sample(
        self, n: int, seed: int = 0, *, client: Any = None, progress: bool = False
    ) -> tuple[PointClouds, Tensor | None]:
        """Draw clouds uniformly, without replacement.

        Each cloud has a random number that depends on the seed, its piece and its place therein. The
        clouds with the smallest numbers are drawn: memory does not grow with the data, and numbers of
        clouds need not be known. Every piece that holds a drawn cloud is read.

        Args:
            n: Number of clouds. If there are fewer, all are returned.
            seed: Random seed.
            client: A client of ``dask.distributed``, whose workers read the pieces.
            progress: Whether to show a progress bar if this takes more than a few seconds.

        Returns:
            The clouds in the order of the pieces, and their targets, or None if there are none.

        Raises:
            PieceError: If a piece cannot be read, or only some pieces have targets or labels.

        Example:
            >>> import numpy as np
            >>> from gp_distributions import ShardedClouds
            >>> shards = ShardedClouds.from_arrays(np.zeros((1000, 5, 2)), targets=np.arange(1000))
            >>> clouds, targets = shards.sample(10, seed=0)
            >>> len(clouds), len(targets.unique())
            (10, 10)
        """
        wanted = integer(n, "n")
        numbers, bound = list(range(len(self.pieces))), np.inf
        counts = [piece.count for piece in self.pieces]
        if None not in counts:  # the clouds drawn are known before a piece is read
            keys = [_keys(seed, i, count) for i, count in enumerate(counts) if count is not None]
            bound = _nth(np.concatenate(keys), wanted)
            numbers = [number for number in numbers if (keys[number] <= bound).any()]
        draw = partial(drawn, wanted, seed, bound)
        label = "Sampling" if progress else None
        held: list[Drawn] = []
        first: Drawn | None = None
        for part, number in zip(
            run(draw, self.pieces, numbers, client=client, progress=label), numbers, strict=True
        ):
            first, name = first or part, self.pieces[number].name
            check_alike(part.targets, first.targets, name, "targets")
            check_alike(part.clouds.labels, first.clouds.labels, name, "labels")
            held = [each for each in (*held, part) if len(each.keys) or each is first]
            bound = _nth(np.concatenate([each.keys for each in held]), wanted)
            held = [each.up_to(bound) for each in held]
        clouds = PointClouds._concatenate([each.clouds for each in held])
        width = max(1, filled(clouds.weights.mT))
        atoms = clouds.points[:, :width], clouds.weights[:, :width], clouds.mass
        targets = [each.targets for each in held if each.targets is not None]
        return clouds._alike(*atoms), torch.cat(targets) if targets else None

    def digest(self) -> str:
        """Return a digest of the data, the same in every process.

        Files are recognised by name, size and time of the last change; delayed pieces by their numbers
        and the content of the first, which is computed.
        """
        return digest(descriptions(self.pieces))

    def _of_pieces(
        self, read: Callable[[Piece], Part | None], what: str, index: int | None
    ) -> list[Part] | None:
        """Read targets or labels of a piece, or of all pieces; None if there are none."""
        found: list[Part | None] = []
        for piece in self.pieces if index is None else (self.pieces[index],):
            with named(piece.name):
                found.append(read(piece))
            check_alike(found[-1], found[0], piece.name, what)
        parts = [part for part in found if part is not None]
        return parts or None

    def __len__(self) -> int:
        counts = [piece.count for piece in self.pieces]
        if None in counts:
            raise TypeError("The number of clouds in delayed pieces is unknown.")
        return sum(count for count in counts if count is not None)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        number = f"{self.num_pieces} piece{'s' * (self.num_pieces != 1)}"
        if any(piece.count is None for piece in self.pieces):
            return f"ShardedClouds({number})"  # to find the dimension would mean to compute a piece
        count = len(self)
        return f"ShardedClouds({count} cloud{'s' * (count != 1)} in {number}, d={self.dim})"


@dataclass(frozen=True)
class Drawn:
    """Clouds with their keys and targets."""

    keys: npt.NDArray[np.float64]
    clouds: PointClouds
    targets: Tensor | None

    def up_to(self, bound: float) -> Drawn:
        """Return the clouds with keys up to a bound."""
        places = torch.from_numpy(np.flatnonzero(self.keys <= bound))
        if len(places) == len(self.keys):
            return self
        targets = None if self.targets is None else self.targets[places]
        return Drawn(self.keys[places.numpy()], self.clouds[places], targets)


def drawn(
    n: int, seed: int, bound: float, number: int, clouds: PointClouds, targets: Tensor | None
) -> Drawn:
    """Return the clouds of a piece that may be in a sample, those with the smallest keys.

    Args:
        n: Number of clouds to draw.
        seed: Random seed of the keys.
        bound: Largest key in the sample, or infinity.
        number: Number of the piece.
        clouds: Its clouds.
        targets: Their targets.
    """
    keys = _keys(seed, number, len(clouds))
    return Drawn(keys, clouds, targets).up_to(min(bound, _nth(keys, n)))


def _keys(seed: int, number: int, count: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng([seed, number]).random(count)


def _nth(keys: npt.NDArray[np.float64], n: int) -> float:
    """Return the ``n``-th smallest key, or infinity if there are no more."""
    return float(np.partition(keys, n - 1)[n - 1]) if n < len(keys) else np.inf
