import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distributed import Client, LocalCluster
from sharding_tasks import Sums, calls, in_pieces

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError
from gp_distributions.sharding.passes import run

RNG = np.random.default_rng(0)
TARGETS = torch.from_numpy(RNG.normal(size=50))
SHARDS = in_pieces(PointClouds(RNG.normal(size=(50, 4, 2))), TARGETS, size=5)


def numbers(number: int, clouds: PointClouds, targets: torch.Tensor | None) -> int:
    time.sleep(0.02 * (number % 2 == 0))  # every other piece is late
    return number


def test_results_come_in_order_and_once(tmp_path: Path) -> None:
    assert list(run(numbers, SHARDS.pieces)) == list(range(10))
    list(run(Sums(tmp_path), SHARDS.pieces))
    assert calls(tmp_path) == list(range(10))


def test_only_two_pieces_are_in_progress(tmp_path: Path) -> None:
    others = set(threading.enumerate())  # an earlier test may have left a pass that it interrupted
    found = run(Sums(tmp_path), SHARDS.pieces)
    next(found)
    time.sleep(0.3)
    assert len(calls(tmp_path)) <= 3
    assert [t for t in threading.enumerate() if t.name.startswith("piece") and t not in others]
    found.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("piece") and t not in others]
    assert len(calls(tmp_path)) <= 3


def test_errors_name_the_piece() -> None:
    def fails(number: int, clouds: PointClouds, targets: torch.Tensor | None) -> None:
        if number == 3:
            raise MemoryError

    with pytest.raises(PieceError, match="piece 3: MemoryError"):
        list(run(fails, SHARDS.pieces))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    options |= {"dashboard_address": "127.0.0.1:0", "local_directory": str(tmp_path / "dask")}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def test_errors_on_a_cluster_name_the_piece_once(client: Client) -> None:
    def reads(i: int) -> Any:
        if i:
            raise OSError("the disk is full")
        return SHARDS.piece(0)

    shards = ShardedClouds.from_pieces([lambda: reads(0), lambda: reads(1)])
    results = run(Sums(), shards.pieces, client=client)
    next(results)
    with pytest.raises(PieceError, match=r"^piece 1: OSError: the disk is full$"):
        next(results)

    def fails(number: int, *content: Any) -> None:
        raise MemoryError

    with pytest.raises(PieceError, match=r"^piece 0: MemoryError: MemoryError$"):
        list(run(fails, SHARDS.pieces, client=client))


def test_tasks_are_tried_again_and_what_the_cluster_lost_is_made_again(client: Client) -> None:
    tries: list[int] = []

    def fails_once(number: int, *content: Any) -> int:
        tries.append(number)
        if tries == [0]:
            raise OSError("the network is slow")
        return number

    assert list(run(fails_once, SHARDS.pieces[:2], client=client)) == [0, 1]
    results = run(Sums(), SHARDS.pieces, client=client)
    found = [next(results)]
    client.cluster.scale(0)
    client.cluster.scale(1)
    found += results
    assert all(map(torch.equal, found, run(Sums(), SHARDS.pieces)))
