import functools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
import torch
from distributed import Client, LocalCluster
from fault_tasks import Children
from sharding_tasks import Sums, calls, digested, values

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError
from gp_distributions.sharding.checkpoint import Checkpoint, digest
from gp_distributions.sharding.passes import run

RNG = np.random.default_rng(0)
SHARDS = ShardedClouds.from_arrays(
    RNG.normal(size=(50, 4, 2)), targets=RNG.normal(size=50), piece_atoms=20
)


def numbers(number: int, clouds: PointClouds, targets: torch.Tensor | None) -> int:
    time.sleep(0.02 * (number % 2 == 0))  # every other piece is late
    return number


def test_results_come_in_order_and_once(tmp_path: Path) -> None:
    assert list(run(numbers, SHARDS.pieces)) == list(range(10))
    assert list(run(numbers, SHARDS.pieces, [7, 3, 4])) == [7, 3, 4]
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

    with pytest.raises(PieceError, match="array, bags 15 to 19: MemoryError"):
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

    parts = [dask.delayed(reads)(i, dask_key_name=f"night-{i}") for i in range(2)]
    shards = ShardedClouds.from_delayed(parts)
    results = run(Sums(), shards.pieces, client=client)
    next(results)
    with pytest.raises(PieceError, match=r"^delayed piece night-1: OSError: the disk is full$"):
        next(results)

    def fails(number: int, *content: Any) -> None:
        raise MemoryError

    with pytest.raises(PieceError, match=r"^array, bags 0 to 4: MemoryError: MemoryError$"):
        list(run(fails, SHARDS.pieces, client=client))


def test_tasks_are_tried_again_and_what_the_cluster_lost_is_made_again(client: Client) -> None:
    tries: list[int] = []

    def fails_once(number: int, *content: Any) -> int:
        tries.append(number)
        if tries == [1]:
            raise OSError("the network is slow")
        return number

    assert list(run(fails_once, SHARDS.pieces, [1, 2], client=client)) == [1, 2]
    results = run(Sums(), SHARDS.pieces, client=client)
    found = [next(results)]
    client.cluster.scale(0)
    client.cluster.scale(1)
    found += results
    assert all(map(torch.equal, found, run(Sums(), SHARDS.pieces)))


def test_digests_are_of_content() -> None:
    a = torch.nn.Linear(2, 3)
    b = torch.nn.Linear(2, 3)
    b.load_state_dict(a.state_dict())
    assert digest(a, {"x": 1, "y": (2.0, None)}) == digest(b, {"y": (2.0, None), "x": 1})
    assert digest(a) == digest(pickle.loads(pickle.dumps(a)))
    with torch.no_grad():
        b.bias += 1e-6
    assert digest(a) != digest(b)
    assert digest("ab", "c") != digest("a", "bc")


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (lambda base: functools.partial(int, base=base), 2, 3),
        (lambda value: pd.DataFrame({"x": [value]}), "a", "b"),
        (lambda kind: kind([1, 2]), list, tuple),
        (lambda nested: nested, [1, [2]], [[1], 2]),
        (lambda shape: np.zeros(shape), 2, (2, 1)),
        (lambda dtype: np.zeros(2, dtype), np.float64, np.float32),
        (lambda dtype: torch.tensor([1.0, 2.0], dtype=dtype), torch.bfloat16, torch.float32),
        (lambda value: {"a": torch.tensor([value])}, 1, 2),
        (lambda function: function, calls, digest),
    ],
)
def test_digests_of_objects(make: Callable[[Any], Any], first: Any, second: Any) -> None:
    assert digest(make(first)) == digest(make(first))
    assert digest(make(first)) != digest(make(second))


def test_digests_are_the_same_in_every_process(children: Children) -> None:
    """The order of a set of strings depends on the seed of their hashes, which is another there."""
    assert children.call(digested) == digest(values())


def test_checkpoints_are_whole_and_belong_to_their_data(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    folder.mkdir(parents=True)
    checkpoint = Checkpoint(folder, "sums", "digest")
    assert checkpoint.read() == (0, {})
    checkpoint.write(3, {"a": torch.arange(3), "n": 7})
    done, values = Checkpoint(folder, "sums", "digest").read()
    assert (done, values["n"]) == (3, 7)
    assert torch.equal(values["a"], torch.arange(3))
    assert [path.name for path in folder.iterdir()] == ["sums.checkpoint"]
    with pytest.raises(ValueError, match=r"got .*sums\.checkpoint.*all files .* in .*folder"):
        Checkpoint(folder, "sums", "other").read()
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"Cannot read the checkpoint .*Delete all"):
        checkpoint.read()


def test_an_interrupted_write_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    checkpoint.write(3, {"n": 7}, now=True)

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(4, {"n": 8}, now=True)
    assert checkpoint.read() == (3, {"n": 7})
    assert len(list(tmp_path.iterdir())) == 1
