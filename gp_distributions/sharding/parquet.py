"""Pieces of long tables in Parquet files: each is a range of rows of one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.measures.arrays import Labels
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import table
from gp_distributions.sharding.pieces import Contents, Piece, PieceError, named, target_tensor

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

# Size of a file, and time of its last change if the file system keeps it.
Stamp: TypeAlias = tuple[int, int | None]

# Files whose bags are found at the same time; most of the time goes into waiting for the disk.
_FILES_AT_A_TIME = 8


@dataclass(frozen=True)
class Layout:
    """Which columns of a long table hold what.

    Attributes:
        bag: Name of the column that names the bag of each row.
        columns: Names of the columns of coordinates.
        weight: Name of the column of weights, or None for equal weights.
        target: Names of the columns of targets, which are constant within each bag.
        single: Whether there is one output without an axis of its own.
    """

    bag: str
    columns: tuple[str, ...]
    weight: str | None
    target: tuple[str, ...]
    single: bool

    @property
    def needed(self) -> list[str]:
        """Names of all columns, each once."""
        weight = [] if self.weight is None else [self.weight]
        return list(dict.fromkeys([self.bag, *self.columns, *weight, *self.target]))


@dataclass(frozen=True, eq=False)
class ParquetPiece(Piece):
    """Consecutive bags of a file.

    Attributes:
        fragment: The row groups that hold the rows.
        stamp: Size of the file, and time of its last change, when its bags were found.
        layout: Its columns.
        start: First row of the piece, counted from the first row of these groups.
        first: First row of the piece, counted from the first row of the file.
        offsets: The ``B + 1`` rows of the piece at which bags begin, and their number.
        bags: Labels of the bags.
        given: Targets of the bags, or None if they are in the file or nowhere.
    """

    fragment: pyarrow.dataset.ParquetFileFragment
    stamp: Stamp
    layout: Layout
    start: int
    first: int
    offsets: npt.NDArray[np.int64]
    bags: Labels
    given: Tensor | None

    @property
    def name(self) -> str:  # type: ignore[override]
        """Where the piece lies."""
        return f"{self.fragment.path}, rows {self.first} to {self.first + self.offsets[-1] - 1}"

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of bags."""
        return len(self.bags)

    def read(self) -> Contents:
        """Read the clouds and their targets."""
        table, layout = self._table(self.layout.needed[1:]), self.layout
        points = np.stack([numbers(table, name) for name in layout.columns], axis=-1)
        weights = None if layout.weight is None else numbers(table, layout.weight)
        clouds = PointClouds.from_ragged(points, self.offsets, weights, self.bags)
        return clouds, self._targets(table)

    def targets(self) -> Tensor | None:
        """Read the targets alone."""
        names = list(self.layout.target)
        return self._targets(self._table(names)) if self.given is None and names else self.given

    def labels(self) -> Labels:
        """Return the labels."""
        return self.bags

    def _table(self, columns: list[str]) -> pyarrow.Table:
        if _stamp(self.fragment) != self.stamp:
            raise PieceError(
                f"{self.fragment.path} has changed since ShardedClouds.from_parquet read it. Call it "
                "again."
            )
        table = self.fragment.to_table(columns=columns, **_scan_options())
        return table.slice(self.start, self.offsets[-1])

    def _targets(self, table: pyarrow.Table) -> Tensor | None:
        """Return the targets of bags, ``B`` or ``B x outputs``, or None if there are none.

        Raises:
            ValueError: If a target is not finite, or not constant within a bag.
        """
        if self.given is not None or not self.layout.target:
            return self.given
        values = np.stack([numbers(table, name) for name in self.layout.target], axis=-1)
        first = values[self.offsets[:-1]]
        name = f"column {', '.join(self.layout.target)}"
        each = first[:, 0] if self.layout.single else first
        targets = target_tensor(each, self.count, self.bags, name)
        wrong = (values != np.repeat(first, np.diff(self.offsets), axis=0)).any(-1).nonzero()[0]
        if len(wrong):
            bag = int(np.searchsorted(self.offsets, wrong[0], side="right")) - 1
            raise ValueError(
                f"Bag {self.bags[bag]!r}: expected one value of {name} in all rows of the bag, got "
                f"{first[bag].tolist()} and {values[wrong[0]].tolist()}. A target belongs to a bag; "
                "choose one, or pass a table with one row for each bag as targets=."
            )
        return targets


def _stamp(fragment: pyarrow.dataset.ParquetFileFragment) -> Stamp:
    info = fragment.filesystem.get_file_info(fragment.path)
    return info.size or 0, info.mtime_ns


def _scan_options() -> dict[str, Any]:
    import pyarrow.dataset as ds

    options = ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
    return {"use_threads": False, "fragment_scan_options": options}


def numbers(table: pyarrow.Table, name: str) -> npt.NDArray[np.float64]:
    """Return a column as numbers in double precision, in which missing values are NaN.

    Raises:
        PieceError: If the column does not hold numbers.
    """
    with named(f"column {name!r}"):
        return table[name].cast("float64").to_numpy()


@dataclass(frozen=True)
class _Bags:
    """The bags of a file: rows at which they begin, names, and rows at which row groups begin."""

    fragment: pyarrow.dataset.ParquetFileFragment
    stamp: Stamp
    starts: npt.NDArray[np.int64]
    names: pyarrow.Array
    group_starts: npt.NDArray[np.int64]


def parquet_pieces(
    path: Any, layout: Layout, targets: Any, piece_atoms: int
) -> Iterator[ParquetPiece]:
    """Find the bags of Parquet files and divide them into pieces.

    Of each file, this reads the column of bags alone. The arguments are those of
    :meth:`ShardedClouds.from_parquet`.

    Raises:
        PieceError: If a file cannot be read, or a bag is not in one place.
        ValueError: If there is no file or row, or a bag has no target.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    paths = [str(p) for p in path] if isinstance(path, list | tuple) else str(path)
    with named(f"Cannot read {paths}"):
        data = ds.dataset(paths, format="parquet")
    files = list(data.get_fragments())
    if isinstance(paths, str):
        files.sort(key=lambda file: file.path)
    within = layout if targets is None else replace(layout, target=())
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        found = list(pool.map(lambda file: _bags_of(file, within), files))
    found = [part for part in found if len(part.names)]
    if not found:
        raise ValueError(f"Expected rows in Parquet files at {paths}, got none.")
    with named(found[0].fragment.path):
        names = pa.chunked_array([part.names for part in found])
    _check_distinct(names, found, layout.bag)
    given = None if targets is None else _looked_up(targets, layout, names)
    low = 0
    for part in found:
        high = low + len(part.names)
        yield from _divided(part, within, None if given is None else given[low:high], piece_atoms)
        low = high


def _bags_of(fragment: pyarrow.dataset.ParquetFileFragment, layout: Layout) -> _Bags:
    """Find where the bags of a file begin, a few rows at a time."""
    import pyarrow as pa

    stamp, path = _stamp(fragment), fragment.path
    with named(path):
        schema = fragment.physical_schema
        for name in layout.needed:
            if schema.names.count(name) != 1:
                raise ValueError(f"expected a column {name!r}; columns: {', '.join(schema.names)}.")
        first, starts = 0, [np.zeros(0, dtype=np.int64)]
        names = [_plain(schema.empty_table()[layout.bag])]
        for batch in fragment.to_batches(columns=[layout.bag], **_scan_options()):
            with named(f"{path}, rows from {first}"):
                rows, values = _runs(pa.chunked_array(batch.columns), layout.bag)
            # A bag may go on from the last batch into this one.
            goes_on = bool(len(names[-1]) and len(values) and names[-1][-1] == values[0])
            if len(values) > goes_on:
                starts.append(rows[goes_on:] + first)
                names.append(values[goes_on:])
            first += len(batch)
        group_starts = np.cumsum([0, *(group.num_rows for group in fragment.row_groups)])
        return _Bags(fragment, stamp, np.concatenate(starts), pa.concat_arrays(names), group_starts)


def _runs(column: pyarrow.ChunkedArray, name: str) -> tuple[npt.NDArray[np.int64], pyarrow.Array]:
    """Return the rows at which the value of a column changes, the first included, and the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = _plain(column)
    row = pc.index(pc.is_null(values, nan_is_null=True), pa.scalar(True)).as_py()
    if row >= 0:
        raise ValueError(
            f"Column {name!r}: expected a bag for each row, got a missing value in row {row} "
            "(counted from 0)."
        )
    found = pc.run_end_encode(values, pa.int64())
    ends = found.run_ends.to_numpy()
    return np.append(0, ends)[: len(ends)], found.values


def _plain(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    """Return a column as one array, of a type that PyArrow can compare."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string_view(kind):  # of Polars
        kind = pa.large_string()
    return pa.concat_arrays([pa.array([], kind), *column.cast(kind).chunks])


def _repeated(values: pyarrow.Array | pyarrow.ChunkedArray) -> Any:
    """Return a value that occurs more than once, or None if there is none."""
    import pyarrow.compute as pc

    if len(pc.unique(values)) == len(values):
        return None
    return next(v["values"] for v in values.value_counts().to_pylist() if v["counts"] > 1)


def _check_distinct(names: pyarrow.ChunkedArray, found: Sequence[_Bags], bag: str) -> None:
    """Check that the rows of each bag are next to each other, in one file."""
    if (twice := _repeated(names)) is None:
        return
    places = [
        f"{part.fragment.path} from row {start}"
        for part in found
        for start in part.starts[[name == twice for name in part.names.to_pylist()]]
    ]
    raise PieceError(
        f"Bag {twice!r}: expected all rows of a bag next to each other in one file, got rows in "
        f"{places[0]} and in {places[1]}. Sort the table by bag, for example with "
        f"table.sort_by({bag!r}) of PyArrow or frame.set_index({bag!r}) of Dask, and write each bag "
        "into one file."
    )


def _looked_up(targets: Any, layout: Layout, bags: pyarrow.ChunkedArray) -> Tensor:
    """Return the targets of bags from a mapping, a series or a data frame.

    Raises:
        PieceError: If a bag has none, or several.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    with named("targets"):
        if hasattr(targets, "items") and not hasattr(targets, "columns"):
            each, given = zip(*targets.items(), strict=True)
            keys, values = pa.chunked_array([pa.array(each)]), np.array(given, dtype=np.float64)
        else:
            if not layout.target:
                raise ValueError("expected target= to name the columns of targets of a table.")
            needed = [layout.bag, *layout.target]
            if getattr(getattr(targets, "index", None), "name", None) == layout.bag:
                targets = targets.reset_index()
            rows = table(targets, needed).select(needed).to_arrow()
            keys = rows[layout.bag]
            columns = [numbers(rows, each) for each in layout.target]
            values = columns[0] if layout.single else np.stack(columns, axis=-1)
        keys = _plain(keys).cast(bags.type)
        if (twice := _repeated(keys)) is not None:
            raise ValueError(f"expected one row for each bag, got more for bag {twice!r}.")
        places = pc.index_in(bags, value_set=keys)
        if places.null_count:
            missing = bags[pc.index(places.is_null(), True).as_py()].as_py()
            raise ValueError(
                f"Bag {missing!r}: expected a target, got none. Leave out bags without a target."
            )
        return target_tensor(values[places.to_numpy()], len(bags), bags.to_numpy())


def _divided(
    found: _Bags, layout: Layout, given: Tensor | None, piece_atoms: int
) -> Iterator[ParquetPiece]:
    """Divide the bags of a file into pieces, at row groups where these are small enough."""
    starts, groups = found.starts, found.group_starts
    ends = np.append(starts[1:], groups[-1])
    for low, high in _ranges(found, ends - starts, piece_atoms):
        first, last = int(starts[low]), int(ends[high - 1])
        group = int(np.searchsorted(groups, first, side="right")) - 1
        after = int(np.searchsorted(groups, last, side="left"))
        yield ParquetPiece(
            fragment=found.fragment.subset(row_group_ids=range(group, after)),
            stamp=found.stamp,
            layout=layout,
            start=first - int(groups[group]),
            first=first,
            offsets=np.append(starts[low:high], last) - first,
            bags=found.names[low:high].to_numpy(zero_copy_only=False),
            given=None if given is None else given[low:high].clone(),
        )


def _ranges(found: _Bags, sizes: npt.NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of bags: row groups as long as they fit together, and parts of larger ones.

    To read a part of a row group means to decode all of it.
    """
    low = high = 0
    for end in [*np.unique(np.searchsorted(found.starts, found.group_starts[1:])), None]:
        if end is not None and (end - low) * sizes[low:end].max(initial=1) <= limit:
            high = int(end)
            continue
        for start, stop in _cut(sizes[low:high], limit):
            yield low + start, low + stop
        if end is not None:
            low, high = high, int(end)


def _cut(sizes: npt.NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Divide bags into consecutive ranges of at most ``limit`` atoms, padding included.

    A bag of more atoms is alone.

    Args:
        sizes: Numbers of atoms of the ``B`` bags.
        limit: Largest number of bags times largest bag in a range.

    Yields:
        The first bag of a range, and the one after its last.
    """
    start = 0
    while start < len(sizes):
        window = sizes[start : start + 1 + limit // max(1, int(sizes[start]))]
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        count = max(1, int(np.searchsorted(padded, limit, side="right")))
        yield start, start + count
        start += count
