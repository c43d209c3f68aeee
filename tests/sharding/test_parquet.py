import os
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError

SIZES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def table(sizes: list[int] = SIZES, seed: int = 0) -> pd.DataFrame:
    """Bags p0, p1, ... of the given sizes, with weights and two targets."""
    rng = np.random.default_rng(seed)
    bag = np.repeat([f"p{i}" for i in range(len(sizes))], sizes)
    frame = pd.DataFrame(rng.normal(size=(sum(sizes), 2)), columns=["x", "y"])
    frame.insert(0, "bag", bag)
    frame["mass"] = rng.uniform(1, 2, size=len(frame))
    frame["lift"] = np.repeat(np.arange(len(sizes)) / 2, sizes)
    frame["drag"] = np.repeat(np.arange(len(sizes)) ** 2, sizes)
    return frame


def write(frame: pd.DataFrame, path: Path, **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, **options)
    return path


def whole(frame: pd.DataFrame, **options: Any) -> PointClouds:
    return PointClouds.from_frame(frame, bag="bag", columns=["x", "y"], **options)


def check(shards: ShardedClouds, clouds: PointClouds, targets: torch.Tensor | None) -> None:
    """Check that pieces put together are the clouds."""
    start = 0
    for i in range(shards.num_pieces):
        found, values = shards.piece(i)
        expected = clouds[start : start + len(found)]
        atoms = int(expected.sizes.max())
        assert torch.equal(found.pack(), expected.pack(atoms))
        assert np.array_equal(found.labels, expected.labels)
        if targets is None:
            assert values is None
        else:
            assert torch.equal(values, targets[start : start + len(found)])
        start += len(found)
    assert start == len(shards) == len(clouds)
    assert np.array_equal(shards.labels(), clouds.labels)
    assert targets is None or torch.equal(shards.targets(), targets)


@pytest.mark.parametrize("piece_atoms", [1, 12, 10_000])
@pytest.mark.parametrize("row_group_size", [1, 7, 1000])
def test_pieces_are_the_clouds_of_the_table(
    tmp_path: Path, piece_atoms: int, row_group_size: int
) -> None:
    frame = table()
    write(frame, tmp_path / "all.parquet", row_group_size=row_group_size)
    shards = ShardedClouds.from_parquet(
        tmp_path,
        bag="bag",
        columns=["x", "y"],
        weight="mass",
        target="lift",
        piece_atoms=piece_atoms,
    )
    check(shards, whole(frame, weight="mass"), torch.arange(10).double() / 2)
    for i in range(shards.num_pieces):
        clouds, _ = shards.piece(i)
        assert clouds.points.shape[:2].numel() <= piece_atoms or len(clouds) == 1
    if piece_atoms == 10_000:
        assert shards.num_pieces == 1


def test_pieces_follow_row_groups_where_these_are_small_enough(tmp_path: Path) -> None:
    frame = table([5] * 12)
    write(frame, tmp_path / "all.parquet", row_group_size=20)  # four bags each
    shards = ShardedClouds.from_parquet(tmp_path, bag="bag", columns="x", piece_atoms=25)
    assert [len(shards.piece(i)[0]) for i in range(shards.num_pieces)] == [4, 4, 4]


def test_files_are_read_in_order_and_several_outputs(tmp_path: Path) -> None:
    frame = table()
    cut = frame["bag"].searchsorted("p4")
    write(frame[cut:], tmp_path / "b.parquet")
    write(frame[:0], tmp_path / "aa.parquet")
    write(frame[:cut], tmp_path / "a.parquet")
    options: dict[str, Any] = {"bag": "bag", "columns": ["x", "y"], "target": ["lift", "drag"]}
    shards = ShardedClouds.from_parquet(tmp_path, **options)
    targets = torch.stack([torch.arange(10) / 2, torch.arange(10) ** 2], -1).double()
    check(shards, whole(frame), targets)
    listed = [tmp_path / "b.parquet", str(tmp_path / "a.parquet")]
    assert list(ShardedClouds.from_parquet(listed, **options).labels()) == [
        *(f"p{i}" for i in range(4, 10)),
        *(f"p{i}" for i in range(4)),
    ]


@pytest.mark.parametrize(
    "names",
    [
        lambda bag: bag,
        lambda bag: bag.astype("category"),
        lambda bag: bag.str[1:].astype(int),
        lambda bag: pd.Timestamp("2026-01-01") + pd.to_timedelta(bag.str[1:].astype(int), "D"),
        lambda bag: bag.str[1:].astype(int).map(Decimal),
    ],
    ids=["strings", "categories", "integers", "times", "decimals"],
)
def test_names_of_bags_may_be_of_any_type(tmp_path: Path, names: Callable[..., pd.Series]) -> None:
    frame = table()
    frame["bag"] = names(frame["bag"])
    write(frame, tmp_path / "all.parquet", row_group_size=3)
    shards = ShardedClouds.from_parquet(tmp_path, bag="bag", columns=["x", "y"], piece_atoms=12)
    labels = shards.labels()
    assert labels is not None
    assert pd.Series(labels).tolist() == frame["bag"].drop_duplicates().tolist()


@pytest.mark.parametrize("kind", ["mapping", "series", "index", "arrow", "dask"])
def test_targets_may_lie_in_a_table_of_their_own(tmp_path: Path, kind: str) -> None:
    frame = table()
    write(frame.drop(columns=["lift", "drag"]), tmp_path / "data" / "all.parquet")
    second = frame[["bag", "lift"]].drop_duplicates().sample(frac=1, random_state=0)
    given: Any = {
        "mapping": dict(zip(second["bag"], second["lift"], strict=True)),
        "series": second.set_index("bag")["lift"],
        "index": second.set_index("bag"),
        "dask": dask.dataframe.from_pandas(second, npartitions=2),
        "arrow": pa.Table.from_pandas(second),
    }[kind]
    options: dict[str, Any] = {"bag": "bag", "columns": ["x", "y"], "piece_atoms": 20}
    target = None if kind in ("mapping", "series") else "lift"
    shards = ShardedClouds.from_parquet(tmp_path / "data", **options, target=target, targets=given)
    check(shards, whole(frame), torch.arange(10).double() / 2)


def test_bags_without_a_target_or_with_several_are_named(tmp_path: Path) -> None:
    path = write(table(), tmp_path / "all.parquet")
    given = {f"p{i}": float(i) for i in range(10) if i != 3}
    options: dict[str, Any] = {"bag": "bag", "columns": ["x", "y"]}
    series = pd.Series([1.0, 2.0], index=["p0", "p0"])
    for target, targets, message in (
        (None, given, "Bag 'p3': expected a target"),
        (None, given | {"p3": np.nan}, "Bag 'p3'.*finite"),
        (None, series, "one row for each bag, got more for bag 'p0'"),
        (None, table(), "expected target= to name the columns"),
        ("fare", table(), "Expected one column 'fare', got none"),
    ):
        with pytest.raises(ValueError, match=f"targets: .*{message}"):
            ShardedClouds.from_parquet(path, **options, target=target, targets=targets)


def test_bags_are_distinct_after_conversion_to_their_type(tmp_path: Path) -> None:
    frame = table()
    frame["bag"] = frame["bag"].str[1:].astype(int)
    path = write(frame, tmp_path / "all.parquet")
    options: dict[str, Any] = {"bag": "bag", "columns": ["x", "y"]}
    given = {str(i): float(i) for i in range(10)}
    shards = ShardedClouds.from_parquet(path, **options, targets=given)
    assert shards.targets().tolist() == list(range(10))
    with pytest.raises(ValueError, match="one row for each bag, got more for bag 1"):
        ShardedClouds.from_parquet(path, **options, targets=given | {"01": 20.0})


def test_targets_that_differ_within_a_bag_are_refused(tmp_path: Path) -> None:
    frame = table()
    frame.loc[6, "lift"] = 7.0  # in p2, which has rows 4 to 7
    shards = ShardedClouds.from_parquet(
        write(frame, tmp_path / "all.parquet"), bag="bag", columns="x", target="lift"
    )
    with pytest.raises(
        PieceError, match=r"all\.parquet.*Bag 'p2'.*lift.*got \[1\.0\] and \[7\.0\]"
    ):
        shards.piece(0)


def test_a_bag_in_two_files_is_refused(tmp_path: Path) -> None:
    frame = table()
    write(frame[:6], tmp_path / "a.parquet")
    write(frame[6:], tmp_path / "b.parquet")
    with pytest.raises(PieceError, match=r"Bag 'p2'.*a\.parquet from row 4.*b\.parquet from row 0"):
        ShardedClouds.from_parquet(tmp_path, bag="bag", columns="x")


@pytest.mark.parametrize("row_group_size", [2, 1000])
def test_rows_of_a_bag_apart_from_each_other_are_refused(
    tmp_path: Path, row_group_size: int
) -> None:
    frame = pd.concat([table(), table()[4:8]])
    path = write(frame, tmp_path / "all.parquet", row_group_size=row_group_size)
    with pytest.raises(PieceError, match=r"Bag 'p2'.*row 4 .*row 39.*sort_by\('bag'\)"):
        ShardedClouds.from_parquet(path, bag="bag", columns="x")


def test_errors_name_the_file(tmp_path: Path) -> None:
    options: dict[str, Any] = {"bag": "bag", "columns": ["x", "y"]}
    good = write(table(), tmp_path / "data" / "good.parquet")
    with pytest.raises(ValueError, match=r"good\.parquet: expected a column 'z'; columns: bag, x"):
        ShardedClouds.from_parquet(good, bag="bag", columns="z")
    with pytest.raises(ValueError, match=r"Cannot read .*nowhere"):
        ShardedClouds.from_parquet(tmp_path / "nowhere", **options)
    (tmp_path / "data" / "bad.parquet").write_bytes(b"PAR1 no such thing PAR1")
    with pytest.raises(PieceError, match=r"bad\.parquet"):
        ShardedClouds.from_parquet(tmp_path / "data", **options)
    frame = table()
    frame.loc[6, "y"] = np.inf
    shards = ShardedClouds.from_parquet(write(frame, tmp_path / "inf.parquet"), **options)
    with pytest.raises(PieceError, match=r"inf\.parquet, rows 0 to 38: Bag 2 \(label p2\).* inf"):
        shards.piece(0)
    frame = table()
    frame.loc[6, "bag"] = None
    with pytest.raises(ValueError, match=r"none\.parquet, rows from 0: .*value in row 6"):
        ShardedClouds.from_parquet(write(frame, tmp_path / "none.parquet"), **options)
    with pytest.raises(ValueError, match="Expected rows in"):
        ShardedClouds.from_parquet(write(frame[:0], tmp_path / "empty.parquet"), **options)


def test_a_damaged_or_changed_file_is_not_read(tmp_path: Path) -> None:
    path = write(table(), tmp_path / "all.parquet", compression="NONE")
    shards = ShardedClouds.from_parquet(path, bag="bag", columns=["x", "y"])
    write(table(seed=1), path)
    with pytest.raises(PieceError, match=r"all\.parquet has changed"):
        shards.piece(0)
    path.unlink()
    with pytest.raises(PieceError, match=r"all\.parquet"):
        shards.piece(0)


def test_values_that_do_not_match_their_checksum_are_not_read(tmp_path: Path) -> None:
    frame = table([4] * 500)
    path = write(
        frame,
        tmp_path / "all.parquet",
        compression="NONE",
        use_dictionary=["bag"],
        write_page_checksum=True,
    )
    shards = ShardedClouds.from_parquet(path, bag="bag", columns=["x", "y"])
    content, status = bytearray(path.read_bytes()), path.stat()
    content[content.find(frame["x"].to_numpy()[1000].tobytes()) + 6] ^= 3
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(PieceError, match=r"all\.parquet, rows 0 to 1999: .*"):
        shards.piece(0)


def test_descriptions_are_small(tmp_path: Path) -> None:
    path = write(table([3] * 3000), tmp_path / "all.parquet")
    options: dict[str, Any] = {"bag": "bag", "columns": ["x", "y"]}
    shards = ShardedClouds.from_parquet(path, **options)
    sent = pickle.dumps(shards)
    assert len(sent) < 60_000  # numbers and labels of the bags
    copy = pickle.loads(sent)
    assert torch.equal(copy.piece(0)[0].points, shards.piece(0)[0].points)
