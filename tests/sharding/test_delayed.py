from typing import Any

import dask
import dask.bag
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
import torch

from gp_distributions import PieceError, PointClouds, ShardedClouds

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
    shards = ShardedClouds.from_delayed(indexed, bag="bag", columns="x", target="y")
    assert shards.dim == 1
    assert shards.labels().tolist() == ["a", "b", "c", "d"]
    assert shards.targets().tolist() == [1.0, 2.0, 3.0, 4.0]
    clouds, _ = shards.piece(0)
    assert clouds.points[0].flatten().sort().values.tolist() == [0.0, 1.0, 2.0]
    apart = dask.dataframe.from_pandas(frame.iloc[[0, 3, 1]], npartitions=1, sort=False)
    shards = ShardedClouds.from_delayed(apart, bag="bag", columns="x")
    with pytest.raises(PieceError, match=r"frompandas.*Bag 'a': expected all rows"):
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
    with pytest.raises(ValueError, match="at least one"):
        ShardedClouds.from_delayed([])
    with pytest.raises(TypeError, match="got an entry of type ndarray"):
        ShardedClouds.from_delayed([POINTS])
    with pytest.raises(ValueError, match="both bag= and columns="):
        ShardedClouds.from_delayed([dask.delayed(POINTS)], bag="bag")


def test_digests_follow_the_first_piece() -> None:
    def shards(points: Any) -> ShardedClouds:
        return ShardedClouds.from_delayed([dask.delayed(points), dask.delayed(POINTS)])

    assert shards(POINTS).digest() == shards(POINTS.copy()).digest()
    assert shards(POINTS).digest() != shards(POINTS + 1).digest()
