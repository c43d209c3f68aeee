"""A piece of a long table in Parquet files: a range of rows of one file."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from gp_distributions.sharding.pieces import Contents, PieceError
from gp_distributions.sharding.tables import Layout, bags

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

# The last bytes of every Parquet file; the length of its description precedes them.
_END = b"PAR1"


@dataclass(frozen=True)
class ParquetFile:
    """A file, as it was when its bags were found.

    Attributes:
        path: Path to the file.
        filesystem: File system of PyArrow, or None for the local one.
        size: Size of the file in bytes.
        modified: Time of its last change, in nanoseconds; None if the file system keeps none.
        footer: Digest of its end, which lists places, sizes and ranges of all columns.
    """

    path: str
    filesystem: Any
    size: int
    modified: int | None
    footer: str

    @classmethod
    def at(cls, path: str, filesystem: Any) -> ParquetFile:
        """Describe the file at a path.

        Raises:
            PieceError: If it cannot be read.
        """
        from pyarrow import fs

        local = isinstance(filesystem, fs.LocalFileSystem)
        try:
            size, modified = _state(path, filesystem)
            footer = hashlib.sha256(_footer(path, filesystem, size)).hexdigest()
        except OSError as error:
            raise unreadable(path, error) from error
        return cls(path, None if local else filesystem, size, modified, footer)

    def opened(self) -> pyarrow.parquet.ParquetFile:
        """Open the file, if it is as it was.

        Raises:
            PieceError: If it is not, or cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import fs

        try:
            now = _state(self.path, self.filesystem or fs.LocalFileSystem())
            if now == (self.size, self.modified):
                return pq.ParquetFile(
                    self.path,
                    filesystem=self.filesystem,
                    pre_buffer=True,
                    page_checksum_verification=True,
                )
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(self.path, error) from error
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
                parts = []
                if whole:  # PyArrow 19 does not read an empty list of row groups
                    parts = [file.read_row_groups(whole, columns=list(columns), use_threads=False)]
                left = rows - sum(map(len, parts))
                # Mostly the end of a bag: what follows it in the row group is not decoded.
                batches = file.iter_batches(
                    left, row_groups=[last], columns=list(columns), use_threads=False
                )
                while sum(map(len, parts)) < rows:
                    batch = next(batches, None)
                    if batch is None:
                        raise ValueError("there are fewer rows than its description says")
                    parts.append(pa.Table.from_batches([batch]))
                return pa.concat_tables(parts)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise unreadable(self.path, error) from error


def rows_of_groups(metadata: pyarrow.parquet.FileMetaData) -> list[int]:
    """Return the numbers of rows of the row groups of a file.

    PyArrow takes memory for the rows of a group before it looks at their values.

    Raises:
        ValueError: If they do not add up to the number of rows of the file.
    """
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if sum(groups) != metadata.num_rows:
        raise ValueError(
            f"row groups have {sum(groups)} rows, but the file has {metadata.num_rows}"
        )
    return groups


def read_table(path: str) -> pyarrow.Table:
    """Read the whole table of a file, or of a folder of files.

    Raises:
        PieceError: If it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    try:
        for fragment in ds.dataset(path, format="parquet").get_fragments():
            rows_of_groups(fragment.metadata)
        return pq.read_table(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> PieceError:
    """Return the error to raise if a file cannot be read."""
    return PieceError(
        f"Cannot read {path}: {error}. Expected a Parquet file; write it again if it is damaged."
    )


def _state(path: str, filesystem: Any) -> tuple[int, int | None]:
    """Return the size of a file and the time of its last change."""
    info = filesystem.get_file_info(path)
    return info.size or 0, info.mtime_ns


def _footer(path: str, filesystem: Any, size: int) -> bytes:
    """Return the description at the end of a Parquet file, or less of a file that is none."""
    with filesystem.open_input_file(path) as file:
        file.seek(max(0, size - len(_END) - 4))
        end: bytes = file.read()
        if end[4:] != _END:
            return end
        file.seek(max(0, size - len(end) - int.from_bytes(end[:4], "little")))
        content: bytes = file.read()
        return content


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

    def describe(self, *, first: bool = True) -> Hashable:
        """Return the file without its folder, what was read of it, and the targets."""
        name = self.file.path.rpartition("/")[2]
        given = None if self.given is None else (self.given.shape, self.given.numpy().tobytes())
        read = self.layout, self.first, self.rows, given
        return name, self.file.size, self.file.modified, self.file.footer, *read

    def _table(self, columns: Sequence[str]) -> pyarrow.Table:
        names = list(dict.fromkeys([self.layout.bag, *columns]))
        return self.file.read(self.groups, self.start + self.rows, names).slice(self.start)
