"""Pieces of long tables in Parquet files: each is a range of rows of one file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.sharding.pieces import BagPiece, Contents, PieceError, cut, named
from gp_distributions.sharding.tables import (
    Layout,
    arrow_table,
    numbers,
    plain,
    repeated,
    runs,
    target_tensor,
)

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

# Size of a file, and time of its last change if the file system keeps it.
Stamp: TypeAlias = tuple[int, int | None]

# Files whose bags are found at the same time; most of the time goes into waiting for the disk.
_FILES_AT_A_TIME = 8


@dataclass(frozen=True, eq=False)
class ParquetPiece(BagPiece):
    """Consecutive bags of a file.

    Attributes:
        fragment: The row groups that hold the rows.
        stamp: Size of the file, and time of its last change, when its bags were found.
        layout: Its columns.
        start: First row of the piece, counted from the first row of these groups.
        first: First row of the piece, counted from the first row of the file.
    """

    fragment: pyarrow.dataset.ParquetFileFragment
    stamp: Stamp
    layout: Layout
    start: int
    first: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """Where the piece lies."""
        return f"{self.fragment.path}, rows {self.first} to {self.first + self.offsets[-1] - 1}"

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Dimension of the atoms."""
        return len(self.layout.columns)

    def read(self, *inputs: Any) -> Contents:
        """Read the clouds and their targets."""
        table, layout = self._table(self.layout.needed[1:]), self.layout
        clouds, targets = layout.contents(table, self.offsets, self.names)
        return clouds, targets if self.given is None else self.given

    def targets(self) -> Tensor | None:
        """Read the targets alone."""
        if self.given is not None or not self.layout.target:
            return self.given
        table = self._table(list(self.layout.target))
        return self.layout.targets(table, self.offsets, self.names)

    def describe(self, *, first: bool = True) -> Any:
        """Return the file without its folder, what was read of it, and the targets."""
        name = self.fragment.path.rpartition("/")[2]
        return name, self.stamp, vars(self.layout), self.first, self.offsets, self.given

    def _table(self, columns: list[str]) -> pyarrow.Table:
        if _stamp(self.fragment) != self.stamp:
            raise PieceError(
                f"{self.fragment.path} has changed since ShardedClouds.from_parquet read it. Call it "
                "again."
            )
        table = self.fragment.to_table(columns=columns, **_scan_options())
        return table.slice(self.start, self.offsets[-1])


def _stamp(fragment: pyarrow.dataset.ParquetFileFragment) -> Stamp:
    info = fragment.filesystem.get_file_info(fragment.path)
    return info.size or 0, info.mtime_ns


def _scan_options() -> dict[str, Any]:
    import pyarrow.dataset as ds

    options = ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
    return {"use_threads": False, "fragment_scan_options": options}


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
        names = [plain(schema.empty_table()[layout.bag])]
        for batch in fragment.to_batches(columns=[layout.bag], **_scan_options()):
            with named(f"{path}, rows from {first}"):
                rows, values = runs(pa.chunked_array(batch.columns), layout.bag)
            # A bag may go on from the last batch into this one.
            goes_on = bool(len(names[-1]) and len(values) and names[-1][-1] == values[0])
            if len(values) > goes_on:
                starts.append(rows[goes_on:] + first)
                names.append(values[goes_on:])
            first += len(batch)
        group_starts = np.cumsum([0, *(group.num_rows for group in fragment.row_groups)])
        return _Bags(fragment, stamp, np.concatenate(starts), pa.concat_arrays(names), group_starts)


def _check_distinct(names: pyarrow.ChunkedArray, found: Sequence[_Bags], bag: str) -> None:
    """Check that the rows of each bag are next to each other, in one file."""
    if (twice := repeated(names)) is None:
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
    """Return the targets of bags from a mapping, a series, a data frame or a Parquet file.

    Raises:
        PieceError: If they cannot be read, or a bag has none, or several.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = isinstance(targets, str | os.PathLike)
    name = f"targets ({os.fspath(targets)})" if path else "targets"
    with named(name):
        if path:
            targets = pq.read_table(os.fspath(targets))
        if hasattr(targets, "items") and not hasattr(targets, "columns"):
            each, given = zip(*targets.items(), strict=True)
            keys, values = pa.chunked_array([pa.array(each)]), np.array(given, dtype=np.float64)
        else:
            if not layout.target:
                raise ValueError("expected target= to name the columns of targets of a table.")
            table = arrow_table(targets, [layout.bag, *layout.target])
            keys = table[layout.bag]
            columns = [numbers(table, each) for each in layout.target]
            values = columns[0] if layout.single else np.stack(columns, axis=-1)
        keys = plain(keys).cast(bags.type)
        if (twice := repeated(keys)) is not None:
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
            offsets=np.append(starts[low:high], last) - first,
            names=found.names[low:high].to_numpy(zero_copy_only=False),
            given=None if given is None else given[low:high].clone(),
            fragment=found.fragment.subset(row_group_ids=range(group, after)),
            stamp=found.stamp,
            layout=layout,
            start=first - int(groups[group]),
            first=first,
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
        for start, stop in cut(sizes[low:high], limit):
            yield low + start, low + stop
        if end is not None:
            low, high = high, int(end)
