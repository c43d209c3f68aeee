import collections
import functools
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
import torch
from distributed import Client, Future, LocalCluster
from sharding_tasks import Sums, calls, values

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError
from gp_distributions.sharding.checkpoint import Checkpoint
from gp_distributions.sharding.digests import digest
from gp_distributions.sharding.held import HeldPiece
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.pieces import descriptions

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


def test_tasks_run_without_gradients() -> None:
    def grads(number: int, clouds: PointClouds, targets: torch.Tensor | None) -> bool:
        return torch.is_grad_enabled()

    assert not any(run(grads, SHARDS.pieces))
    assert torch.is_grad_enabled()


def test_errors_name_the_piece() -> None:
    def fails(number: int, clouds: PointClouds, targets: torch.Tensor | None) -> None:
        if number == 3:
            raise MemoryError

    with pytest.raises(PieceError, match="array, bags 15 to 19: MemoryError"):
        list(run(fails, SHARDS.pieces))


def test_errors_that_name_the_piece_are_raised_as_they_are() -> None:
    found = PieceError("array, bags 0 to 4: unusable")

    def fails(number: int, clouds: PointClouds, targets: torch.Tensor | None) -> None:
        raise found

    with pytest.raises(PieceError) as caught:
        list(run(fails, SHARDS.pieces))
    assert caught.value is found
    assert found.__cause__ is None


@dataclass(frozen=True)
class Disk:
    """Data in pieces, which cannot be read."""

    num_pieces: int = 2

    def piece(self, index: int) -> Any:
        raise OSError("the disk is full")


@pytest.mark.parametrize(
    "use", [lambda p: p.remote(None), lambda p: p.targets(), lambda p: p.labels(), descriptions]
)
def test_errors_of_objects_that_return_pieces_name_the_piece(use: Callable[[Any], Any]) -> None:
    piece = HeldPiece(Disk(), 1, "piece 1")
    with pytest.raises(PieceError, match=r"^piece 1: OSError: the disk is full$"):
        use([piece] if use is descriptions else piece)
    unnamed = HeldPiece(Disk(), 1)
    with pytest.raises(OSError, match=r"^the disk is full$"):
        use([unnamed] if use is descriptions else unnamed)


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


def test_data_that_a_cluster_lost_are_sent_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Future] = []
    original = Client.scatter

    def scatter(self: Client, *args: Any, **options: Any) -> Future:
        sent.append(original(self, *args, **options))
        return sent[-1]

    monkeypatch.setattr(Client, "scatter", scatter)
    results = run(Sums(), SHARDS.pieces, client=client)
    found = [next(results)]
    client.cancel(sent[0], force=True)
    found += results
    assert len(sent) == 2
    assert all(map(torch.equal, found, run(Sums(), SHARDS.pieces)))


def test_a_client_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"distributed\.Client, got str"):
        list(run(numbers, SHARDS.pieces, client="tcp://"))  # type: ignore[arg-type]


def test_a_cluster_without_workers_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waited: list[int] = []
    original = Client.wait_for_workers

    def wait_for_workers(self: Client, count: int) -> None:
        waited.append(len(self.nthreads()))
        self.cluster.scale(1)
        original(self, count)

    options: dict[str, Any] = {"n_workers": 0, "threads_per_worker": 1, "processes": False}
    options |= {"dashboard_address": "127.0.0.1:0", "local_directory": str(tmp_path / "dask")}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        monkeypatch.setattr(Client, "wait_for_workers", wait_for_workers)
        assert list(run(numbers, SHARDS.pieces, [3, 1], client=client)) == [3, 1]
    assert waited == [0]
    assert "Waiting for workers" in caplog.text


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
    assert digest([1, [2]]) != digest([[1], 2])
    assert digest(np.zeros(2)) != digest(np.zeros((2, 1))) != digest(np.zeros(2, dtype=np.float32))
    half = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert digest(half) == digest(half.clone()) != digest(half.float())


def shifted(by: int) -> Callable[[int], int]:
    return lambda value: value + by


class Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.itself = self

    def read(self) -> str:
        return self.path


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (lambda base: functools.partial(int, base=base), 2, 3),
        (shifted, 1, 2),
        (lambda value: pd.DataFrame({"x": [value]}), 1, 2),
        (lambda value: pd.DataFrame({"x": [value]}), "a", "b"),
        (lambda path: Reader(path).read, "a", "b"),
        (lambda text: text.upper, "a", "b"),
        (lambda kind: kind([1, 2]), list, tuple),
        (lambda kind: kind([1, 2]), list, collections.deque),
        (lambda mask: np.ma.masked_array([1, 2], mask), [True, False], [False, True]),
        (lambda value: np.array([{"a": value}], dtype=object), 1, 2),
        (lambda value: collections.OrderedDict(a=value), 1, 2),
        (lambda function: function, len, max),
        (lambda function: function, calls, digest),
        (np.random.default_rng, 0, 1),
    ],
)
def test_digests_of_objects(make: Callable[[Any], Any], first: Any, second: Any) -> None:
    assert digest(make(first)) == digest(make(first))
    assert digest(make(first)) != digest(make(second))


def test_digests_of_functions_follow_their_code() -> None:
    assert digest(lambda value: value + 1) != digest(lambda value: value + 2)
    assert digest(lambda value: value.a) != digest(lambda value: value.b)
    assert digest(lambda value=1: value) != digest(lambda value=2: value)
    with pytest.raises(TypeError, match="cannot pickle 'generator'"):
        digest(value for value in range(3))


def test_digests_are_the_same_in_every_process() -> None:
    program = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parents[1])!r})
    from gp_distributions.sharding.digests import digest
    from sharding_tasks import values
    print(digest(values()))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    # The order of a set of strings depends on the seed of their hashes.
    seed = str(int(os.environ.get("PYTHONHASHSEED", "random") == "0"))
    found = subprocess.check_output(command, env=os.environ | {"PYTHONHASHSEED": seed}, text=True)
    assert found.strip() == digest(values())


def test_checkpoints_are_whole_and_belong_to_their_data(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
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
    with pytest.raises(ValueError, match="to be a folder"):
        Checkpoint(checkpoint.path, "sums", "digest")


def test_no_change_of_a_checkpoint_goes_unnoticed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    checkpoint.write(3, {"a": torch.zeros(50)})
    content = checkpoint.path.read_bytes()
    for place in range(0, len(content), 7):
        flipped = bytes([content[place] ^ 1])
        checkpoint.path.write_bytes(content[:place] + flipped + content[place + 1 :])
        with pytest.raises(ValueError, match=r"Cannot read .*sums\.checkpoint: .*Delete all"):
            checkpoint.read()
    checkpoint.path.write_bytes(content)
    assert checkpoint.read()[0] == 3


def test_a_forged_checkpoint_takes_no_memory(tmp_path: Path) -> None:
    """The pickles that PyTorch reads as harmless may name an array of bytes of any length."""
    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    written, forged = BytesIO(), BytesIO()
    torch.save({}, written)
    size = (10**9).to_bytes(4, "little")
    program = b"\x80\x02c__builtin__\nbytearray\nJ" + size + b"\x85R."
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            new.writestr(name, program if name.endswith("data.pkl") else old.read(name))
    content = forged.getvalue()
    checkpoint.path.write_bytes(content + hashlib.sha256(content).digest())
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"Cannot read the checkpoint .*sums\.checkpoint"):
            checkpoint.read()
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("done", [-1, 1.0, True, "1", None, [1]])
def test_numbers_of_pieces_are_checked(tmp_path: Path, done: Any) -> None:
    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    checkpoint.write(done, {"n": 7}, now=True)
    with pytest.raises(ValueError, match=r"Cannot read .*sums\.checkpoint: expected a number of"):
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


def test_a_write_that_was_killed_leaves_nothing_after_the_next_one(tmp_path: Path) -> None:
    program = """
    import os, signal, sys
    from gp_distributions.sharding.checkpoint import Checkpoint
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    Checkpoint(sys.argv[1], "sums", "digest").write(4, {"n": 8}, now=True)
    """
    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    checkpoint.write(3, {"n": 7}, now=True)
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert checkpoint.read() == (3, {"n": 7})
    assert len(list(tmp_path.iterdir())) == 2
    checkpoint.write(5, {"n": 9}, now=True)
    assert checkpoint.read() == (5, {"n": 9})
    assert [path.name for path in tmp_path.iterdir()] == ["sums.checkpoint"]


def test_two_writers_in_one_folder_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(0.005))

    def write(number: int) -> None:
        checkpoint = Checkpoint(tmp_path, "sums", "digest")
        checkpoint.write(number, {"n": torch.full((1000 * number,), number)}, now=True)
        done, values = checkpoint.read()
        assert values["n"].unique().tolist() == [done]
        assert len(values["n"]) == 1000 * done

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 21)))
    assert [path.name for path in tmp_path.iterdir()] == ["sums.checkpoint"]
