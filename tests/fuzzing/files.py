"""Files under attack: models, estimators, records of searches, checkpoints of fits, and shards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from fuzzing import forgeries
from gpytorch.kernels import ScaleKernel
from sklearn.pipeline import make_pipeline
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    CloudScaler,
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    MixtureModel,
    MMDKernel,
    PointClouds,
    PoolSearch,
    ReferenceMeasure,
    ShapeOptimizer,
    ShardedClouds,
    SharedKernelGP,
    SinkhornKernel,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    fit,
    integrate_hyperparameters,
    load,
    save,
)
from gp_distributions.testing.clouds import random_clouds

BAGS = [points for points, _ in random_clouds(12, dim=3, sizes=(2, 4))]
CLOUDS = PointClouds.from_list(BAGS)
TARGETS = torch.stack([points.mean() for points in BAGS])
TRAIN, TEST = CLOUDS[:9], CLOUDS[9:]
LONG = pd.DataFrame(
    {
        "bag": np.repeat(np.arange(12), CLOUDS.sizes.numpy()),
        "x": torch.cat(BAGS)[:, 0].numpy(),
        "y": torch.cat(BAGS)[:, 1].numpy(),
        "target": np.repeat(TARGETS.numpy(), CLOUDS.sizes.numpy()),
    }
)


def _itself(found: Any) -> Any:
    return found


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes:
        write: Function that writes the file, given its folder, and returns its path.
        read: Function that reads it.
        forge: Function that returns another well-formed file, sealed if such files are.
        use: Function of what was read that returns numbers.
        sealed: Whether a digest covers the file, so that no accident changes the numbers.
        usable: Whether the numbers are finite, also those of a forged file that is not refused.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    forge: forgeries.Forge
    use: Callable[[Any], list[Any]] = _itself
    sealed: bool = True
    usable: bool = False


def _kernel(**options: Any) -> ScaleKernel:
    kernel = SlicedWassersteinKernel(3, num_slices=4, num_quantiles=3, **options)
    return ScaleKernel(kernel, batch_shape=options.get("batch_shape", torch.Size()))


def _outputs() -> Tensor:
    return torch.stack([TARGETS, TARGETS.square()], -1)[:9]


def _mixed() -> MixedInputs:
    ages = pd.DataFrame({"age": np.arange(12.0), "arm": list("ababab" * 2)})
    return MixedInputs(cells=CLOUDS, covariates=ages)


def _mixture() -> MixtureModel:
    kernel = SinkhornKernel(ReferenceMeasure(BAGS[0][:2]), epsilon=1.0)
    first = DistributionGP(TRAIN, TARGETS[:9], ScaleKernel(kernel))
    return MixtureModel([first, DistributionGP(TRAIN, TARGETS[:9], _kernel(profile="cauchy"))])


def _estimator() -> Any:
    regressor = DistributionGPRegressor(options={"num_slices": 4}, restarts=0)
    return make_pipeline(CloudScaler(), regressor).fit(BAGS[:9], TARGETS[:9].numpy())


MODELS: dict[str, Callable[[], Any]] = {
    "exact": lambda: DistributionGP(TRAIN, TARGETS[:9], _kernel()),
    "noise": lambda: DistributionGP(
        *(
            TRAIN,
            TARGETS[:9],
            MMDKernel(3, num_features=6) + MMDKernel(3, profile="linear", origin=TRAIN[:2]),
        ),
        sampling_noise=True,
    ),
    "outputs": lambda: DistributionGP(TRAIN, _outputs(), _kernel(batch_shape=torch.Size([2]))),
    "shared": lambda: SharedKernelGP(TRAIN, _outputs(), _kernel()),
    "classes": lambda: ClassificationGP(TRAIN, ["a", "b", "b"] * 3, _kernel()),
    "sparse": lambda: SparseDistributionGP(TRAIN, TARGETS[:9], _kernel(), num_inducing=4),
    "mixture": _mixture,
    "integrated": lambda: integrate_hyperparameters(DistributionGP(TRAIN, TARGETS[:9], _kernel())),
    "mixed": lambda: DistributionGP(_mixed()[:9], TARGETS[:9]),
    "estimator": _estimator,
}


def predictions(model: Any) -> list[Any]:
    """What a model or an estimator predicts."""
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(TEST)]
    if not isinstance(model, torch.nn.Module):
        return list(model.predict(BAGS[9:], return_std=True))
    return list(model.predict(_mixed()[9:] if getattr(model, "encoding", None) else TEST))


def _model(name: str) -> Subject:
    def write(folder: Path) -> Path:
        save(MODELS[name](), folder / "model.gpd")
        return folder / "model.gpd"

    return Subject(write, load, forgeries.model, predictions)


def _search(path: Path) -> ShapeOptimizer:
    def make_model(X: Tensor, Y: Tensor) -> DistributionGP:
        return DistributionGP(X, Y, _kernel(batch_shape=torch.Size([2])))

    search = PoolSearch(CLOUDS)
    return ShapeOptimizer(search, path=path, model=make_model, constraints=1, initial=3, restarts=0)


def _write_records(folder: Path) -> Path:
    optimizer = _search(folder / "search.jsonl")
    for index in optimizer.ask(3):
        optimizer.tell(index, [TARGETS[index], -1.0 * index])
    optimizer.tell_failure(8, "no mesh")
    return folder / "search.jsonl"


def _asked(optimizer: ShapeOptimizer) -> list[Any]:
    return [repr(optimizer.evaluations), optimizer.ask(1)]


def _sparse() -> SparseDistributionGP:
    arrays = {"weights": CLOUDS.weights.numpy(), "targets": TARGETS}
    shards = ShardedClouds.from_arrays(CLOUDS.points.numpy(), **arrays, piece_atoms=20)
    return SparseDistributionGP(shards, None, _kernel(), num_inducing=4)


def _fitted(folder: Path) -> SparseDistributionGP:
    options: dict[str, Any] = {"progress": False, "options": {"maxiter": 3}}
    return fit(_sparse(), restarts=0, checkpoint=folder, **options)


def _checkpoint(name: str) -> Subject:
    def write(folder: Path) -> Path:
        _fitted(folder)
        return folder / f"{name}.checkpoint"

    def read(path: Path) -> SparseDistributionGP:
        if name == "start":  # the sums would not belong to a forged one
            (path.parent / "sums.checkpoint").unlink(missing_ok=True)
        return _fitted(path.parent)

    return Subject(write, read, forgeries.checkpoint, predictions, usable=True)


def _write_parquet(folder: Path) -> Path:
    table = pa.Table.from_pandas(LONG)
    pq.write_table(table, folder / "atoms.parquet", row_group_size=11, write_page_checksum=True)
    return folder / "atoms.parquet"


def _read_parquet(path: Path) -> list[Any]:
    return _contents(
        ShardedClouds.from_parquet(
            path, bag="bag", columns=["x", "y"], target="target", piece_atoms=20
        )
    )


def _write_table(folder: Path) -> Path:
    _write_parquet(folder)
    pq.write_table(
        pa.table({"bag": np.arange(12), "value": TARGETS.numpy()}), folder / "table.parquet"
    )
    return folder / "table.parquet"


def _read_table(path: Path) -> list[Any]:
    atoms = path.with_name("atoms.parquet")
    layout: dict[str, Any] = {"bag": "bag", "columns": "x", "target": "value", "targets": path}
    return _contents(ShardedClouds.from_parquet(atoms, **layout, piece_atoms=20))


def _array(name: str) -> Subject:
    """One of the files of bags one after another; ``points`` are those of bags of one size."""
    points = CLOUDS.points.numpy()
    arrays = {
        "points": points,
        "atoms": points.reshape(-1, points.shape[-1]),
        "offsets": np.arange(len(points) + 1) * points.shape[1],
        "weights": CLOUDS.weights.numpy().reshape(-1),
        "targets": TARGETS.numpy(),
    }

    def write(folder: Path) -> Path:
        for each, array in arrays.items():
            np.save(folder / f"{each}.npy", array)
        return folder / f"{name}.npy"

    def read(path: Path) -> list[Any]:
        if name == "points":
            return _contents(ShardedClouds.from_arrays(path, piece_atoms=20))
        atoms, *others = (path.with_name(f"{each}.npy") for each in list(arrays)[1:])
        named = dict(zip(["offsets", "weights", "targets"], others, strict=True))
        return _contents(ShardedClouds.from_arrays(atoms, **named, piece_atoms=20))

    return Subject(write, read, forgeries.array, sealed=False)


def _contents(shards: ShardedClouds) -> list[Any]:
    found: list[Any] = []
    for index in range(shards.num_pieces):
        clouds, targets = shards.piece(index)
        found += [clouds.points, clouds.weights, targets]
    return found


SUBJECTS: dict[str, Subject] = {
    **{name: _model(name) for name in MODELS},
    "records": Subject(_write_records, _search, forgeries.records, _asked, sealed=False),
    "start": _checkpoint("start"),
    "sums": _checkpoint("sums"),
    "parquet": Subject(_write_parquet, _read_parquet, forgeries.parquet, sealed=False),
    "table": Subject(_write_table, _read_table, forgeries.parquet, sealed=False),
    **{name: _array(name) for name in ("points", "atoms", "offsets", "weights", "targets")},
}


def bits(values: list[Any]) -> list[Any]:
    """Values that can be compared bit for bit."""
    return [np.asarray(v).tobytes() if hasattr(v, "__array__") else repr(v) for v in values]


def examined(subject: Subject, path: Path, expected: list[Any]) -> str:
    """What becomes of a changed file: an outcome, or what is wrong, which begins with ``WRONG``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = bits(subject.use(subject.read(path)))
        except ValueError as error:
            named = str(path) in str(error) or str(path.parent) in str(error)
            return "refused" if named else f"WRONG: no path in {error!r}"
        except Exception as error:
            return f"WRONG: {error!r}"
    if found == expected:
        return "same"
    return "WRONG: other values" if subject.sealed else "other values"


def examined_forgery(subject: Subject, path: Path) -> str:
    """What becomes of a forged file: it is refused, or it is data with which anything can happen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = subject.read(path)
        except ValueError as error:
            text = str(error)
            if str(path) not in text:
                return f"WRONG: no path in {error!r}"
            if any(word in text for word in ("allocate", "malloc", "MemoryError")):
                return f"WRONG: more memory than the file holds: {error!r}"
            return "refused"
        except Exception as error:
            return f"WRONG: {error!r}"
        try:
            numbers = subject.use(found)
        except Exception as error:
            outcome = f"loads, then {type(error).__name__}"
            return f"WRONG: {outcome}: {error!r}" if subject.usable else outcome
    if subject.usable and not all(np.isfinite(np.asarray(part)).all() for part in numbers):
        return f"WRONG: not finite: {numbers}"
    return "data"
