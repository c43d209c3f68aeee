"""Fits and predictions over pieces: in this process and on workers, killed, interrupted and poisoned."""

import itertools
import os
import queue
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from sharding_tasks import Dies, given

from gp_distributions import (
    PointClouds,
    ShardedClouds,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
)
from gp_distributions.models import passes
from gp_distributions.sharding import PieceError
from gp_distributions.sharding.parquet import ParquetPiece
from gp_distributions.sharding.passes import run

COUNT = 60
IMPORTED = ["distributed", "gp_distributions.saving", "torch.fx.experimental.symbolic_shapes"]


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of bags, atoms of all bags, and targets."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(4, 9, COUNT)
    centres = rng.normal(size=(COUNT, 2))
    atoms = np.repeat(centres, sizes, axis=0) + rng.normal(size=(sizes.sum(), 2)) / 3
    return sizes, atoms, np.sin(2 * centres[:, 0]) + centres[:, 1]


def clouds() -> PointClouds:
    sizes, atoms, _ = data()
    return PointClouds.from_ragged(atoms, np.append(0, sizes.cumsum()))


def write(folder: Path) -> Path:
    """Write the data as Parquet files of 15 bags."""
    folder.mkdir()
    sizes, atoms, targets = data()
    bag = np.repeat(np.arange(COUNT), sizes)
    columns = {"bag": bag, "x": atoms[:, 0], "y": atoms[:, 1], "target": targets[bag]}
    table = pa.table(columns)
    for number in range(4):
        rows = np.flatnonzero(bag // 15 == number)
        pq.write_table(table.slice(rows[0], len(rows)), folder / f"part-{number}.parquet")
    return folder


def shards(folder: Path) -> ShardedClouds:
    return ShardedClouds.from_parquet(
        folder, bag="bag", columns=["x", "y"], target="target", piece_atoms=40
    )


def fitted(data: ShardedClouds, **options: Any) -> SparseDistributionGP:
    model = SparseDistributionGP(data, num_inducing=20)
    return fit(model, restarts=0, **options)


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether results have the same bits, as they have if this process runs on one thread, too."""
    if torch.get_num_threads() == 1:
        return torch.equal(first, second)
    return torch.allclose(first, second, rtol=1e-8, atol=1e-10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "data")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Workers, which are forked from one process that has imported all once."""
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    options |= {"dashboard_address": "127.0.0.1:0", "local_directory": tmp_path_factory.mktemp("d")}
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(IMPORTED)
        with LocalCluster(**options) as cluster:
            yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


def test_pieces_give_the_model_of_data_in_memory_and_predictions_in_order(folder: Path) -> None:
    model, rows = fitted(shards(folder)), clouds()
    found, expected = model.predict(rows), fitted_in_memory(model).predict(rows)
    for first, second, pieces in zip(found, expected, model.predict(shards(folder)), strict=True):
        assert torch.allclose(first, second, rtol=1e-7, atol=1e-9)
        assert torch.allclose(pieces, first, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="Expected ShardedClouds to predict with a client"):
        model.predict(rows, client=object())


def fitted_in_memory(model: SparseDistributionGP) -> SparseDistributionGP:
    """The model of data in memory with the hyperparameters and inducing clouds of another."""
    other = SparseDistributionGP(
        clouds(), data()[2], num_inducing=20, outcome_transform=model.outcome_transform
    )
    other.load_state_dict(model.state_dict())
    features = model.summed().features
    task, pieces = other.piece_sums(features), other.training_data().pieces
    other.take_sums(features, passes.sums_over_pieces(task, pieces))
    return other.eval()


def test_a_fit_reads_each_piece_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read = ParquetPiece.read

    def noted(self: ParquetPiece) -> Any:
        reads.append(self.name)
        return read(self)

    monkeypatch.setattr(ParquetPiece, "read", noted)
    data = shards(folder)
    model = SparseDistributionGP(data, num_inducing=20)
    assert sorted(reads) == sorted(piece.name for piece in data.pieces)
    fit(model, restarts=0)
    model.predict(clouds())
    assert len(reads) == 2 * data.num_pieces


def test_workers_read_the_pieces(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, labels = shards(folder).select(range(3)), labelled(folder).select(range(3))
    model = SparseDistributionGP(data, num_inducing=20)
    expected = model.predict(clouds())
    left_out = model.leave_one_out()
    classifier = SparseClassificationGP(labels, num_inducing=20)
    classes, densities = classifier.predict(data), classifier.leave_one_out()

    def here(self: ParquetPiece) -> None:
        raise AssertionError("The piece was read in this process.")

    monkeypatch.setattr(ParquetPiece, "read", here)
    model = SparseDistributionGP(data, num_inducing=20, client=client)
    assert all(map(same, model.leave_one_out(client=client), left_out))
    assert all(map(same, model.predict(clouds()), expected))
    fit(model, restarts=0, client=client)
    model = SparseClassificationGP(labels, num_inducing=20, client=client)
    assert model.predict(data, client=client).tolist() == classes.tolist()
    assert same(model.leave_one_out(client=client), densities)


def labelled(folder: Path) -> ShardedClouds:
    """The pieces with the signs of the targets as labels."""
    labels = dict(enumerate((data()[2] > 0).astype(float)))
    names: Any = {"bag": "bag", "columns": ["x", "y"], "targets": labels, "piece_atoms": 40}
    return ShardedClouds.from_parquet(folder, **names)


def test_empty_pieces_add_nothing() -> None:
    targets = data()[2][:, None]

    def model(*bounds: int) -> SparseDistributionGP:
        parts = [
            partial(given, (clouds()[low:high], targets[low:high]))
            for low, high in itertools.pairwise(bounds)
        ]
        return SparseDistributionGP(ShardedClouds.from_pieces(parts), num_inducing=300)

    found, expected = model(0, 0, 50, 50, COUNT), model(0, 50, COUNT)
    torch.testing.assert_close(
        found.predict(clouds()), expected.predict(clouds()), rtol=1e-6, atol=1e-6
    )
    assert found.leave_one_out()[0].shape == (COUNT, 1)
    assert found.predict(found.data.source)[0].shape == (COUNT, 1)


def test_two_workers_give_the_bits_of_one_process_though_one_is_killed(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fitted(shards(folder))
    together = fitted(shards(folder), client=client)
    victim = next(iter(client.run(os.getpid).values()))

    def killing(*arguments: Any, **options: Any) -> Iterator[Any]:
        results = run(*arguments, **options)
        yield from itertools.islice(results, 2)
        os.kill(victim, signal.SIGKILL)
        yield from results

    with monkeypatch.context() as patch:
        patch.setattr(passes, "run", killing)
        survived = fitted(shards(folder), client=client)
    # The scheduler may still list the worker that is dead, which does not answer.
    assert victim not in client.run(os.getpid, on_error="ignore").values()
    expected = alone.predict(shards(folder))
    for model in (together, survived):
        assert torch.equal(model.summed().sums.gram, together.summed().sums.gram)
        assert same(model.summed().sums.gram, alone.summed().sums.gram)
        for found in (model.predict(shards(folder)), model.predict(shards(folder), client=client)):
            assert all(map(same, found, expected))


def test_a_poisoned_piece_raises_and_names_its_file(folder: Path, client: Client) -> None:
    data = shards(folder)
    model = fitted(data)
    poison(folder / "part-2.parquet")
    for where in (client, None):
        error = outcome(lambda where=where: model.predict(data, client=where))
        assert isinstance(error, PieceError)
        assert "part-2.parquet" in str(error)


def test_a_piece_that_kills_its_workers_is_named(
    folder: Path, cluster: LocalCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    data = shards(folder)
    victim = data.num_pieces - 1
    # The tasks that wait on the same worker count as suspicious, too.
    order = [data.pieces[victim], *data.pieces[:victim]]
    error = outcome(lambda: list(run(Dies(0), order, client=client)))
    assert isinstance(error, PieceError)
    assert re.search(r"part-3\.parquet, rows .*: KilledWorker: ", str(error))


def poison(path: Path) -> None:
    """Damage the values in a file, but not their description at its end; keep its times."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[200:-2000] = bytes(255 - byte for byte in content[200:-2000])
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def outcome(call: Callable[[], Any], seconds: float = 300) -> Any:
    """What a call returns or raises; fails if it hangs."""
    found: queue.Queue[Any] = queue.Queue()

    def target() -> None:
        try:
            found.put(call())
        except Exception as error:
            found.put(error)

    threading.Thread(target=target, daemon=True).start()
    return found.get(timeout=seconds)
