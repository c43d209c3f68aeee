"""Pieces of long tables in Parquet files: each is a range of rows of one file."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.sharding.optional import needed
from gp_distributions.sharding.pieces import Contents, PieceError, cut
from gp_distributions.sharding.tables import Layout, bags, numbers, runs
from gp_distributions.sharding.targets import check_finite, joined, mapped_arrays, target_tensor

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

# Files whose bags are found at the same time; most of the time goes into waiting for the disk.
_FILES_AT_A_TIME = 8
_REPARTITION = (
    "Sort the table by bag and write each bag into one file, for example by\n"
    "    table.sort_by({bag!r})  # PyArrow, or frame.sort_values({bag!r}) in pandas\n"
    "    frame.set_index({bag!r})  # Dask, which also divides the files at bags"
)


@dataclass(frozen=True)
class ParquetFile:
    """A file, as it was when its bags were found.

    Attributes:
        path: Path to the file.
        filesystem: File system of PyArrow, or None for the local one.
        size: Size of the file in bytes.
        modified: Time of its last change, in nanoseconds; None if the file system keeps none.
    """

    path: str
    filesystem: Any
    size: int
    modified: int | None

    @classmethod
    def at(cls, path: str, filesystem: Any) -> ParquetFile:
        """Describe the file at a path."""
        from pyarrow import fs

        local = isinstance(filesystem, fs.LocalFileSystem)
        info = filesystem.get_file_info(path)
        return cls(path, None if local else filesystem, info.size or 0, info.mtime_ns)

    def opened(self) -> pyarrow.parquet.ParquetFile:
        """Open the file, if it is as it was.

        Raises:
            PieceError: If it is not, or cannot be read.
        """
        import pyarrow.parquet as pq
        from pyarrow import fs

        try:
            now = self.at(self.path, self.filesystem or fs.LocalFileSystem())
            if (now.size, now.modified) == (self.size, self.modified):
                return pq.ParquetFile(self.path, filesystem=self.filesystem, pre_buffer=True)
        except (OSError, ValueError) as error:  # PyArrow's errors are among them
            raise self.unreadable(error) from error
        raise PieceError(
            f"{self.path} has changed since ShardedClouds.from_parquet read it. Call it again."
        )

    def read(self, groups: tuple[int, int], rows: int, columns: Sequence[str]) -> pyarrow.Table:
        """Read columns of consecutive row groups.

        Args:
            groups: The first row group, and the one after the last.
            rows: Number of rows to read, of which some are in the last row group.
            columns: Names of the columns.

        Raises:
            PieceError: If the file cannot be read.
        """
        import pyarrow as pa

        with self.opened() as file:
            try:
                *whole, last = range(*groups)
                table = file.read_row_groups(whole, columns=list(columns), use_threads=False)
                # Mostly the end of a bag: what follows it in the row group is not decoded.
                batches = file.iter_batches(
                    rows - len(table), row_groups=[last], columns=list(columns), use_threads=False
                )
                parts = [table]
                while sum(map(len, parts)) < rows:
                    parts.append(pa.Table.from_batches([next(batches)]))
                return pa.concat_tables(parts)
            except (OSError, ValueError) as error:
                raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> PieceError:
        """Return the error to raise if the file cannot be read."""
        return PieceError(
            f"Cannot read {self.path}: {error}. Expected a Parquet file; write it again if it is "
            "damaged."
        )


@dataclass(frozen=True, eq=False)
class ParquetPiece:
    """Consecutive bags of a file.

    Attributes:
        file: The file.
        layout: Its columns.
        groups: The row groups that hold the rows, the first and the one after the last.
        start: First row of the piece, counted from the first row of these groups.
        rows: Number of rows.
        first: First row of the piece, counted from the first row of the file.
        count: Number of bags.
        given: Targets from another table, or None if they are in the file.
    """

    file: ParquetFile
    layout: Layout
    groups: tuple[int, int]
    start: int
    rows: int
    first: int
    count: int
    given: Tensor | None

    @property
    def name(self) -> str:
        """Where the piece lies."""
        return f"{self.file.path}, rows {self.first} to {self.first + self.rows - 1}"

    @property
    def dim(self) -> int:
        """Dimension of the atoms."""
        return len(self.layout.columns)

    def remote(self, client: Any) -> tuple[ParquetPiece, list[Any]]:
        """Return the piece itself, which any process can read."""
        return self, []

    def read(self, *inputs: Any) -> Contents:
        """Read the clouds and their targets."""
        clouds, targets = self.layout.clouds(self._table(self.layout.numbers))
        return clouds, targets if self.given is None else self.given

    def targets(self) -> Tensor | None:
        """Read the targets alone."""
        if self.given is not None or not self.layout.target:
            return self.given
        table = self._table(self.layout.target)
        return self.layout.targets(table, *bags(table[self.layout.bag], self.layout.bag))

    def labels(self) -> npt.NDArray[Any]:
        """Read the labels alone."""
        return bags(self._table([])[self.layout.bag], self.layout.bag)[1]

    def describe(self) -> Hashable:
        """Return the file without its folder, what was read of it, and the targets."""
        name = self.file.path.rpartition("/")[2]
        given = None if self.given is None else self.given.numpy().tobytes()
        read = self.layout, self.first, self.rows, given
        return name, self.file.size, self.file.modified, *read

    def _table(self, columns: Sequence[str]) -> pyarrow.Table:
        names = list(dict.fromkeys([self.layout.bag, *columns]))
        return self.file.read(self.groups, self.start + self.rows, names).slice(self.start)


def parquet_pieces(
    path: Any,
    layout: Layout,
    targets: Any,
    piece_atoms: int,
) -> Iterator[ParquetPiece]:
    """Find the bags of Parquet files and divide them into pieces.

    Of each file, this reads the column of bags alone.

    Args:
        path: A folder, a file, a list of files, or the address of one of them.
        layout: The columns.
        targets: A mapping from bags to targets, a data frame, or the path to a Parquet file; None if
            the files hold the targets, or there are none.
        piece_atoms: Largest number of atoms in a piece, padding included.

    Raises:
        PieceError: If a file cannot be read, or a bag is not in one place.
        ValueError: If there is no file, a column is missing, or a bag has no target.
    """
    needed("pyarrow", "arrow", "Parquet files")
    files = _files(path)
    lookup = None if targets is None else _Lookup.of(targets, layout)
    within = (
        layout if lookup is None else Layout(layout.bag, layout.columns, layout.weight, (), True)
    )
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        found = list(pool.map(lambda file: _find(file, within), files))
    _check_places(found, layout.bag)
    for bags_of_file in found:
        given = None if lookup is None else lookup(bags_of_file)
        yield from _divide(bags_of_file, within, given, piece_atoms)


@dataclass(frozen=True)
class _Bags:
    """The bags of a file: rows at which they begin, names, and rows at which row groups begin."""

    file: ParquetFile
    starts: npt.NDArray[np.int64]
    names: pyarrow.Array
    group_starts: npt.NDArray[np.int64]


def _files(path: Any) -> list[ParquetFile]:
    import pyarrow.dataset as ds

    paths = [str(p) for p in path] if isinstance(path, list | tuple) else str(path)
    try:
        data = ds.dataset(paths, format="parquet")
    except (OSError, ValueError) as error:
        raise PieceError(
            f"Cannot read {paths}: {error}. Expected a folder of Parquet files, one or several files."
        ) from error
    if not data.files:
        raise ValueError(f"Expected at least one Parquet file in {paths}, got none.")
    names = data.files if isinstance(paths, list) else sorted(data.files)
    return [ParquetFile.at(name, data.filesystem) for name in names]


def _find(file: ParquetFile, layout: Layout) -> _Bags:
    """Find where the bags of a file begin, one row group at a time."""
    import pyarrow as pa

    with file.opened() as opened:
        existing = opened.schema_arrow.names
        for name in [layout.bag, *layout.numbers]:
            if existing.count(name) != 1:
                raise ValueError(
                    f"{file.path}: expected a column {name!r}; columns: {', '.join(existing)}."
                )
        groups = [opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)]
        group_starts = np.cumsum([0, *groups])
        starts: list[npt.NDArray[np.int64]] = []
        names: list[pyarrow.Array] = []
        for group, first in enumerate(group_starts[:-1]):
            try:
                column = opened.read_row_group(group, columns=[layout.bag], use_threads=False)
                rows, values = runs(column[layout.bag], layout.bag)
            except (OSError, ValueError) as error:
                raise file.unreadable(error) from error
            # A bag may go on from the last row group into this one.
            goes_on = bool(names and len(values) and names[-1][-1] == values[0])
            if len(values) > goes_on:
                starts.append(rows[goes_on:] + first)
                names.append(values[goes_on:])
    if not names:
        kind = opened.schema_arrow.field(layout.bag).type
        return _Bags(file, np.zeros(0, dtype=np.int64), pa.array([], type=kind), group_starts)
    return _Bags(file, np.concatenate(starts), pa.concat_arrays(names), group_starts)


def _check_places(found: Sequence[_Bags], bag: str) -> None:
    """Check that all rows of a bag are next to each other, in one file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = [len(part.names) for part in found]
    if not sum(counts):
        raise ValueError(f"Expected rows in {found[0].file.path}, got none.")
    kinds = {part.names.type for part, count in zip(found, counts, strict=True) if count}
    if len(kinds) > 1:
        kind, other = sorted(map(str, kinds))[:2]
        raise ValueError(f"Column {bag!r}: expected one type in all files, got {kind} and {other}.")
    names = pa.chunked_array(
        [part.names for part, count in zip(found, counts, strict=True) if count]
    )
    if len(pc.unique(names)) == len(names):
        return
    encoded = names.combine_chunks().dictionary_encode()
    codes = pa.chunked_array([encoded] if isinstance(encoded, pa.Array) else encoded.chunks)
    code = codes.unify_dictionaries().combine_chunks()
    code = code.indices if isinstance(code, pa.Array) else code.chunk(0).indices
    index = code.to_numpy(zero_copy_only=False)
    repeated = int(np.flatnonzero(np.bincount(index) > 1)[0])
    ends = np.cumsum(counts)
    places = []
    for position in np.flatnonzero(index == repeated)[:2]:
        part = int(np.searchsorted(ends, position, side="right"))
        row = int(found[part].starts[position - (ends[part] - counts[part])])
        places.append(f"{found[part].file.path} from row {row}")
    raise PieceError(
        f"Bag {names[int(np.flatnonzero(index == repeated)[0])].as_py()!r}: expected all rows of a "
        f"bag next to each other in one file, got rows in {places[0]} and in {places[1]}. "
        + _REPARTITION.format(bag=bag)
    )


def _divide(
    found: _Bags, layout: Layout, given: npt.NDArray[np.float64] | None, piece_atoms: int
) -> Iterator[ParquetPiece]:
    """Divide the bags of a file into pieces, at row groups where these are small enough."""
    end = int(found.group_starts[-1])
    sizes = np.diff(np.append(found.starts, end))
    for low, high in _ranges(found, sizes, piece_atoms):
        first = int(found.starts[low])
        last = int(found.starts[high - 1] + sizes[high - 1])
        group = int(np.searchsorted(found.group_starts, first, side="right")) - 1
        after = int(np.searchsorted(found.group_starts, last, side="left"))
        yield ParquetPiece(
            file=found.file,
            layout=layout,
            groups=(group, after),
            start=first - int(found.group_starts[group]),
            rows=last - first,
            first=first,
            count=high - low,
            given=None if given is None else target_tensor(given[low:high], high - low),
        )


def _ranges(found: _Bags, sizes: npt.NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of bags: row groups as long as they fit together, and parts of larger ones.

    To read a part of a row group means to decode all of it.
    """
    group_ends = np.searchsorted(found.starts, found.group_starts[1:])
    low = high = 0
    for end in [*np.unique(group_ends), None]:
        if end is not None and (end - low) * sizes[low:end].max(initial=1) <= limit:
            high = int(end)
            continue
        for start, stop in cut(sizes[low:high], limit):
            yield low + start, low + stop
        if end is None:
            return
        low, high = high, int(end)


@dataclass(frozen=True)
class _Lookup:
    """Targets by bag, as a table of their own."""

    keys: pyarrow.Array
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, targets: Any, layout: Layout) -> _Lookup:
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(targets, Mapping) or (
            hasattr(targets, "to_dict") and hasattr(targets, "name")
        ):
            names, values = mapped_arrays(dict(targets))
            keys = pa.array(names)
        else:
            table = _table(targets)
            wanted = [layout.bag, *layout.target]
            if not layout.target or any(table.column_names.count(name) != 1 for name in wanted):
                raise ValueError(
                    f"targets: expected a table with a column {layout.bag!r} and those that target= "
                    f"names, {list(layout.target)}; columns: {', '.join(table.column_names)}."
                )
            keys = table[layout.bag].combine_chunks()
            keys = keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys
            columns = [numbers(table[name], name) for name in layout.target]
            values = joined(columns, layout.single)
        if pa.types.is_dictionary(keys.type):
            keys = keys.cast(keys.type.value_type)
        if len(pc.unique(keys)) != len(keys):
            twice = next(v["values"] for v in keys.value_counts().to_pylist() if v["counts"] > 1)
            raise ValueError(f"targets: expected one row for each bag, got more for bag {twice!r}.")
        return cls(keys, values)

    def __call__(self, found: _Bags) -> npt.NDArray[np.float64]:
        """Return the targets of the bags of a file, in order.

        Raises:
            ValueError: If a bag has no target.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            keys = self.keys.cast(found.names.type)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"targets: expected bags of type {found.names.type}, as in {found.file.path}, got "
                f"{self.keys.type}."
            ) from error
        places = pc.index_in(found.names, value_set=keys)
        if places.null_count:
            missing = int(np.flatnonzero(places.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(
                f"Bag {found.names[missing].as_py()!r} of {found.file.path}: expected a target, got "
                "none in targets. Leave out bags without a target."
            )
        values: npt.NDArray[np.float64] = self.values[places.to_numpy(zero_copy_only=False)]
        check_finite(
            values, found.names.to_pylist() if not np.isfinite(values).all() else None, "targets"
        )
        return values


def _table(targets: Any) -> pyarrow.Table:
    """Return a data frame, or the content of a Parquet file, as a table."""
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(targets, str | os.PathLike):
        return pq.read_table(targets)
    if isinstance(targets, pa.Table):
        return targets
    if hasattr(targets, "to_arrow"):  # Polars
        return targets.to_arrow()
    if hasattr(targets, "columns") and hasattr(targets, "dtypes"):
        return pa.Table.from_pandas(targets)
    raise TypeError(
        "targets: expected a mapping from bags to targets, a data frame or the path to a Parquet file, "
        f"got {type(targets).__name__}."
    )
