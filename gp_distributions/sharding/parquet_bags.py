"""The bags of Parquet files: where they begin, whether each is in one place, and how to divide them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gp_distributions.sharding.optional import needed
from gp_distributions.sharding.parquet import (
    ParquetFile,
    ParquetPiece,
    rows_of_groups,
    unreadable,
)
from gp_distributions.sharding.pieces import PieceError, cut
from gp_distributions.sharding.tables import Layout, repeated, runs
from gp_distributions.sharding.targets import target_tensor
from gp_distributions.sharding.targets_by_bag import TargetsByBag

if TYPE_CHECKING:
    import pyarrow

# Files whose bags are found at the same time; most of the time goes into waiting for the disk.
_FILES_AT_A_TIME = 8
_REPARTITION = (
    "Sort the table by bag and write each bag into one file, for example by\n"
    "    table.sort_by({bag!r})  # PyArrow, or frame.sort_values({bag!r}) in pandas\n"
    "    frame.set_index({bag!r})  # Dask, which also divides the files at bags"
)


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
    names, filesystem = _files(path)
    lookup = None if targets is None else TargetsByBag.of(targets, layout)
    within = (
        layout if lookup is None else Layout(layout.bag, layout.columns, layout.weight, (), True)
    )
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        found = list(pool.map(lambda name: _find(ParquetFile.at(name, filesystem), within), names))
    found = [bags_of_file for bags_of_file in found if len(bags_of_file.names)]
    bags = _joined_names(found, names, layout.bag)
    given = None if lookup is None else lookup(bags, [part.file.path for part in found])
    ends = np.cumsum([len(part.names) for part in found])
    for part, end in zip(found, ends, strict=True):
        own = None if given is None else given[end - len(part.names) : end]
        yield from _divide(part, within, own, piece_atoms)


@dataclass(frozen=True)
class BagsOfFile:
    """The bags of a file: rows at which they begin, names, and rows at which row groups begin."""

    file: ParquetFile
    starts: npt.NDArray[np.int64]
    names: pyarrow.Array
    group_starts: npt.NDArray[np.int64]


def _files(path: Any) -> tuple[list[str], Any]:
    """Return the paths of files, and their file system."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    paths = [str(p) for p in path] if isinstance(path, list | tuple) else str(path)
    try:
        data = ds.dataset(paths, format="parquet")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PieceError(
            f"Cannot read {paths}: {error}. Expected a folder of Parquet files, one or several files."
        ) from error
    if not data.files:
        raise ValueError(f"Expected at least one Parquet file in {paths}, got none.")
    return data.files if isinstance(paths, list) else sorted(data.files), data.filesystem


def _find(file: ParquetFile, layout: Layout) -> BagsOfFile:
    """Find where the bags of a file begin, one row group at a time."""
    import pyarrow as pa

    with file.opened() as opened:
        existing = opened.schema_arrow.names
        for name in [layout.bag, *layout.numbers]:
            if existing.count(name) != 1:
                raise ValueError(
                    f"{file.path}: expected a column {name!r}; columns: {', '.join(existing)}."
                )
        try:
            groups = rows_of_groups(opened.metadata)
        except ValueError as error:
            raise unreadable(file.path, error) from error
        group_starts = np.cumsum([0, *groups])
        starts: list[npt.NDArray[np.int64]] = []
        names: list[pyarrow.Array] = []
        for group, first in enumerate(group_starts[:-1]):
            try:
                column = opened.read_row_group(group, columns=[layout.bag], use_threads=False)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise unreadable(file.path, error) from error
            try:
                rows, values = runs(column[layout.bag], layout.bag)
            except ValueError as error:
                raise PieceError(f"{file.path}, rows from {first}: {error}") from error
            # A bag may go on from the last row group into this one.
            goes_on = bool(names and len(values) and names[-1][-1] == values[0])
            if len(values) > goes_on:
                starts.append(rows[goes_on:] + first)
                names.append(values[goes_on:])
    if not names:
        kind = opened.schema_arrow.field(layout.bag).type
        return BagsOfFile(file, np.zeros(0, dtype=np.int64), pa.array([], type=kind), group_starts)
    return BagsOfFile(file, np.concatenate(starts), pa.concat_arrays(names), group_starts)


def _joined_names(
    found: Sequence[BagsOfFile], paths: Sequence[str], bag: str
) -> pyarrow.ChunkedArray:
    """Return the names of all bags, one chunk for each file that has rows.

    Raises:
        PieceError: If the rows of a bag are not next to each other, in one file.
        ValueError: If no file has rows, or bags are of different types.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not found:
        raise ValueError(f"Expected rows in {paths[0]}, got none.")
    kinds = {part.names.type for part in found}
    if len(kinds) > 1:
        kind, other = sorted(map(str, kinds))[:2]
        raise ValueError(f"Column {bag!r}: expected one type in all files, got {kind} and {other}.")
    names = pa.chunked_array([part.names for part in found])
    twice = repeated(names)
    if twice is None:
        return names
    counts = [len(part.names) for part in found]
    ends = np.cumsum(counts)
    equal = pc.equal(names, pa.scalar(twice, names.type)).to_numpy()
    places = []
    for position in np.flatnonzero(equal)[:2]:
        part = int(np.searchsorted(ends, position, side="right"))
        row = int(found[part].starts[position - (ends[part] - counts[part])])
        places.append(f"{found[part].file.path} from row {row}")
    raise PieceError(
        f"Bag {twice!r}: expected all rows of a bag next to each other in one file, got rows in "
        f"{places[0]} and in {places[1]}. " + _REPARTITION.format(bag=bag)
    )


def _divide(
    found: BagsOfFile, layout: Layout, given: npt.NDArray[np.float64] | None, piece_atoms: int
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


def _ranges(
    found: BagsOfFile, sizes: npt.NDArray[np.int64], limit: int
) -> Iterator[tuple[int, int]]:
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
