"""Point clouds in pieces, on disk or on a cluster, of which only a few are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels, integer
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.tensors import filled
from gp_distributions.sharding.parquet import Layout, parquet_pieces
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.pieces import Contents, FunctionPiece, Piece, PieceError, named

#: Largest number of atoms in a piece, padding included, unless a single bag has more.
PIECE_ATOMS = 2**21

Part = TypeVar("Part", Tensor, Labels)


@dataclass(frozen=True, eq=False, repr=False)
class ShardedClouds:
    """Point clouds in pieces: a description of data that need not fit in memory.

    Make one with :meth:`from_parquet` or :meth:`from_pieces`, and pass it to a
    :class:`SparseDistributionGP` as ``train_X``, or to its ``predict``. Clouds are read piece by piece,
    in double precision, where and when they are needed, and checked as in :class:`PointClouds`. The
    object itself holds paths, and of each bag its place and its label, or functions, so it can be
    pickled and sent to other machines, where the same paths must exist.

    ``len(shards)`` is the number of clouds, where it is known.

    Args:
        pieces: The pieces, in order.

    Example:
        >>> from functools import partial
        >>> import numpy as np
        >>> from gp_distributions import PointClouds, ShardedClouds
        >>> points = np.random.default_rng(0).normal(size=(100, 30, 2))
        >>> def piece(start):
        ...     part = points[start : start + 40]
        ...     return PointClouds(part), part.mean((1, 2))
        >>> shards = ShardedClouds.from_pieces([partial(piece, start) for start in (0, 40, 80)])
        >>> shards
        ShardedClouds(3 pieces)
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
                index names the bags, or a data frame with one row for each bag and the columns ``bag``
                and ``target``.
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
            ShardedClouds(2 clouds in 1 piece)
            >>> folder.cleanup()
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names:
            raise ValueError("Expected at least one column of coordinates, got none.")
        single = target is None or isinstance(target, str)
        outputs = (target,) if isinstance(target, str) else tuple(target or ())
        layout = Layout(bag, names, weight, outputs, single)
        atoms = integer(piece_atoms, "piece_atoms")
        return cls(tuple(parquet_pieces(path, layout, targets, atoms)))

    @classmethod
    def from_pieces(cls, functions: Iterable[Callable[[], Any]]) -> ShardedClouds:
        """Describe pieces that functions read or simulate.

        Args:
            functions: Functions without arguments, one for each piece. Each returns ``clouds`` or
                ``(clouds, targets)``: :class:`PointClouds` with one batch axis, and ``B`` or
                ``B x outputs`` targets. It is called anew in each pass over the data, in any order and
                in any process, and must return the same each time. The workers of Dask get the
                functions by pickle.

        Returns:
            The clouds. Their number is unknown, so ``len`` raises a ``TypeError``.

        Raises:
            ValueError: If there are no functions.

        Example:
            >>> from functools import partial
            >>> import numpy as np
            >>> from gp_distributions import PointClouds, ShardedClouds
            >>> def simulated(seed):
            ...     points = np.random.default_rng(seed).normal(size=(10, 50, 3))
            ...     return PointClouds(points), points.mean((1, 2))
            >>> ShardedClouds.from_pieces([partial(simulated, seed) for seed in range(4)])
            ShardedClouds(4 pieces)
        """
        pieces = [FunctionPiece(each, f"piece {number}") for number, each in enumerate(functions)]
        if not pieces:
            raise ValueError("Expected at least one piece, got none.")
        return cls(tuple(pieces))

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

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

    def labels(self) -> Labels | None:
        """Read the labels of the clouds, or None if there are none.

        Raises:
            PieceError: If a piece cannot be read, or only some pieces have labels.
        """
        found = self._of_pieces(lambda piece: piece.labels(), "labels")
        return None if found is None else np.concatenate(found)

    def targets(self) -> Tensor | None:
        """Read the targets of the clouds, or None if there are none.

        Of Parquet files, only the columns of bags and targets are read.

        Raises:
            PieceError: If a piece cannot be read, or only some pieces have targets.
        """
        found = self._of_pieces(lambda piece: piece.targets(), "targets")
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
        clouds need not be known. Every piece is read.

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
            >>> import torch
            >>> from gp_distributions import PointClouds, ShardedClouds
            >>> data = PointClouds(torch.zeros(1000, 5, 2).double()), torch.arange(1000)
            >>> shards = ShardedClouds.from_pieces([lambda: data])
            >>> clouds, targets = shards.sample(10, seed=0)
            >>> len(clouds), len(targets.unique())
            (10, 10)
        """
        wanted = integer(n, "n")
        label = "Sampling" if progress else None
        results = run(partial(drawn, wanted, seed), self.pieces, client=client, progress=label)
        held: list[Drawn] = []
        first: Drawn | None = None
        for part, piece in zip(results, self.pieces, strict=True):
            first = first or part
            _check_alike(part.targets, first.targets, piece.name, "targets")
            _check_alike(part.clouds.labels, first.clouds.labels, piece.name, "labels")
            held = [each for each in (*held, part) if len(each.keys) or each is first]
            bound = _nth(np.concatenate([each.keys for each in held]), wanted)
            held = [each.up_to(bound) for each in held]
        clouds = PointClouds._concatenate([each.clouds for each in held])
        width = max(1, filled(clouds.weights.mT))
        atoms = clouds.points[:, :width], clouds.weights[:, :width], clouds.mass
        targets = [each.targets for each in held if each.targets is not None]
        return clouds._alike(*atoms), torch.cat(targets) if targets else None

    def _of_pieces(self, read: Callable[[Piece], Part | None], what: str) -> list[Part] | None:
        """Read targets or labels of all pieces; None if there are none."""
        found: list[Part] = []
        for number, piece in enumerate(self.pieces):
            with named(piece.name):
                part = read(piece)
            if number:
                _check_alike(part, found or None, piece.name, what)
            found += [] if part is None else [part]
        return found or None

    def __len__(self) -> int:
        counts = [piece.count for piece in self.pieces]
        if None in counts:
            raise TypeError("The number of clouds in pieces of functions is unknown.")
        return sum(count for count in counts if count is not None)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        number = f"{self.num_pieces} piece{'s' * (self.num_pieces != 1)}"
        if any(piece.count is None for piece in self.pieces):
            return f"ShardedClouds({number})"
        return f"ShardedClouds({len(self)} cloud{'s' * (len(self) != 1)} in {number})"


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


def drawn(n: int, seed: int, number: int, clouds: PointClouds, targets: Tensor | None) -> Drawn:
    """Return the clouds of a piece that may be in a sample, those with the smallest keys.

    Args:
        n: Number of clouds to draw.
        seed: Random seed of the keys.
        number: Number of the piece.
        clouds: Its clouds.
        targets: Their targets.
    """
    keys = np.random.default_rng([seed, number]).random(len(clouds))
    return Drawn(keys, clouds, targets).up_to(_nth(keys, n))


def _nth(keys: npt.NDArray[np.float64], n: int) -> float:
    """Return the ``n``-th smallest key, or infinity if there are no more."""
    return float(np.partition(keys, n - 1)[n - 1]) if n < len(keys) else np.inf


def _check_alike(part: object, first: object, name: str, what: str) -> None:
    """Check that a piece has targets, or labels, if and only if the first piece has them.

    Raises:
        PieceError: If only one of the two pieces has them.
    """
    if (part is None) != (first is None):
        found, expected = ("no ", "") if part is None else ("", "no ")
        raise PieceError(
            f"{name}: expected {expected}{what}, as in the first piece, got {found}{what}. Give {what} "
            "to all pieces or to none."
        )
