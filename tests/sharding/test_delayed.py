from typing import Any

import dask
import dask.bag
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError
from gp_distributions.warnings import CostWarning

POINTS = np.random.default_rng(0).normal(size=(6, 4, 2))


@pytest.mark.parametrize("kind", ["clouds", "arrays", "array"])
@pytest.mark.parametrize("targets", [None, [0.0, 1.0]])
def test_values_of_all_kinds(kind: str, targets: list[float] | None) -> None:
    def piece(i: int) -> Any:
        part = POINTS[2 * i : 2 * i + 2]
        clouds = {"clouds": PointClouds(part), "arrays": list(part), "array": part}[kind]
        return clouds if targets is None else (clouds, targets)

    shards = ShardedClouds.from_delayed([dask.delayed(piece)(i) for i in range(3)])
    clouds, values = shards.piece(1)
    assert clouds == PointClouds(POINTS[2:4])
    assert (
        values is None
        if targets is None
        else torch.equal(values, torch.tensor([0.0, 1.0]).double())
    )
    assert shards.num_pieces == 3
    assert shards.dim == 2
    with pytest.raises(TypeError, match="unknown"):
        len(shards)
    assert repr(shards) == "ShardedClouds(3 pieces)"


def test_data_frames_of_dask() -> None:
    frame = pd.DataFrame(
        {
            "bag": np.repeat(["a", "b", "c", "d"], 3),
            "x": np.arange(12.0),
            "y": np.repeat([1.0, 2.0, 3.0, 4.0], 3),
        }
    )
    shuffled = dask.dataframe.from_pandas(frame.sample(frac=1, random_state=0), npartitions=3)
    indexed = shuffled.set_index("bag", npartitions=2)
    options: dict[str, Any] = {"bag": "bag", "columns": "x", "target": "y"}
    with pytest.warns(CostWarning, match=r"Each of 2 pieces depends on .* Call \.persist\(\)"):
        ShardedClouds.from_delayed(indexed, **options)
    shards = ShardedClouds.from_delayed(indexed.persist(), **options)
    assert shards.dim == 1
    assert shards.labels().tolist() == ["a", "b", "c", "d"]
    assert shards.targets().tolist() == [1.0, 2.0, 3.0, 4.0]
    clouds, _ = shards.piece(0)
    assert clouds.points[0].flatten().sort().values.tolist() == [0.0, 1.0, 2.0]
    apart = dask.dataframe.from_pandas(frame.iloc[[0, 3, 1]], npartitions=1, sort=False)
    shards = ShardedClouds.from_delayed(apart, bag="bag", columns="x")
    with pytest.raises(PieceError, match=r"frompandas.*Bag 'a': expected all rows"):
        shards.piece(0)


def test_a_table_that_all_pieces_look_up_costs_little() -> None:
    shared = dask.delayed(lambda: POINTS)()
    pieces = [dask.delayed(lambda table, i: table[i : i + 1])(shared, i) for i in range(2)]
    assert ShardedClouds.from_delayed(pieces).num_pieces == 2


@pytest.mark.parametrize("kind", ["arrow", "index"])
def test_data_frames_of_other_libraries(kind: str) -> None:
    frame = pd.DataFrame({"bag": ["b", "b", "a"], "x": [1.0, 2.0, 3.0], "y": [5.0, 5.0, 7.0]})
    frame["cells"] = [object(), 1, "z"]  # which PyArrow cannot hold, and which is not needed
    value: Any = {
        "arrow": pa.table({name: frame[name] for name in ("y", "bag", "x")}),
        "index": frame.set_index("bag"),
    }[kind]
    part = dask.delayed(lambda: value)()
    shards = ShardedClouds.from_delayed([part], bag="bag", columns="x", target="y")
    clouds, targets = shards.piece(0)
    assert clouds.labels is not None
    assert clouds.labels.tolist() == ["b", "a"]
    assert clouds.sizes.tolist() == [2, 1]
    assert targets is not None
    assert targets.tolist() == [5.0, 7.0]
    shards = ShardedClouds.from_delayed([part], bag="bag", columns="z")
    with pytest.raises(PieceError, match="Expected one column 'z', got none"):
        shards.piece(0)


def test_bags_and_arrays_of_dask() -> None:
    bag = dask.bag.from_sequence(list(POINTS), npartitions=3)
    assert ShardedClouds.from_delayed(bag).piece(2)[0] == PointClouds(POINTS[4:])
    array = dask.array.from_array(POINTS, chunks=(2, 4, 2))
    assert ShardedClouds.from_delayed(array).piece(2)[0] == PointClouds(POINTS[4:])


def test_errors_name_the_piece() -> None:
    def fails(i: int) -> Any:
        raise OSError("the disk is full")

    shards = ShardedClouds.from_delayed([dask.delayed(fails)(0, dask_key_name="night-7")])
    with pytest.raises(PieceError, match="night-7: OSError: the disk is full"):
        shards.piece(0)
    values = [(POINTS, [1.0]), (POINTS, None, None), POINTS[None], POINTS[0], "nothing"]
    messages = ["expected shape", "got a tuple of 3", "one batch axis", "one batch axis", "list"]
    for value, message in zip(values, messages, strict=True):
        with pytest.raises(PieceError, match=message):
            ShardedClouds.from_delayed([dask.delayed(value)]).piece(0)
    with pytest.raises(ValueError, match="both bag= and columns="):
        ShardedClouds.from_delayed([dask.delayed(POINTS)], bag="bag")


def test_digests_of_selections_follow_their_first_piece() -> None:
    computed: list[int] = []

    def shards(shift: float) -> ShardedClouds:
        def piece(i: int) -> Any:
            computed.append(i)
            return POINTS + shift * (i + 1)

        return ShardedClouds.from_delayed([dask.delayed(piece)(i) for i in range(4)])

    first, second = shards(1), shards(2)
    assert first.digest() != second.digest()
    computed.clear()
    assert first.select([1, 2]).digest() == shards(1).select([1, 2]).digest()
    assert computed == [1, 1]  # the others are not computed
    assert first.select([1, 2]).digest() != second.select([1, 2]).digest()
    assert first.select([1, 2]).digest() != first.select([1, 3]).digest()
    assert first.select([1, 2]).digest() != first.select([1]).digest()


def test_digests_follow_the_columns() -> None:
    frame = pd.DataFrame({"bag": ["a", "b"], "x": [1.0, 1.0], "y": [1.0, 1.0]})
    part = dask.delayed(frame)
    first, second = (
        ShardedClouds.from_delayed([part, part], bag="bag", columns=name) for name in "xy"
    )
    assert first.digest() != second.digest()
