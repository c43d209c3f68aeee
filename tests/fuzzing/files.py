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


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes:
        write: Function that writes the file, given its folder, and returns its path.
        read: Function that reads it and returns numbers.
        sealed: Whether a digest covers the file, so that no accident changes the numbers.
        forgeable: Whether it is a file of ``gp_distributions.save``, whose header can be forged.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], list[Any]]
    sealed: bool = True
    forgeable: bool = False


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

    return Subject(write, lambda path: predictions(load(path)), forgeable=True)


def _search(path: Path) -> ShapeOptimizer:
    return ShapeOptimizer(PoolSearch(CLOUDS), path=path, initial=5)


def _write_records(folder: Path) -> Path:
    optimizer = _search(folder / "search.jsonl")
    for index in optimizer.ask(3):
        optimizer.tell(index, TARGETS[index])
    optimizer.tell_failure(8, "no mesh")
    return folder / "search.jsonl"


def _read_records(path: Path) -> list[Any]:
    optimizer = _search(path)
    return [repr(optimizer.evaluations), optimizer.ask(1)]


def _sparse() -> SparseDistributionGP:
    return SparseDistributionGP(CLOUDS, TARGETS, _kernel(), num_inducing=4)


def _checkpoint(name: str) -> Subject:
    def write(folder: Path) -> Path:
        fit(_sparse(), restarts=0, checkpoint=folder, progress=False, options={"maxiter": 3})
        return folder / f"{name}.checkpoint"

    def read(path: Path) -> list[Any]:
        fitted = fit(
            _sparse(), restarts=0, checkpoint=path.parent, progress=False, options={"maxiter": 3}
        )
        return list(fitted.predict(TEST))

    return Subject(write, read)


def _write_parquet(folder: Path) -> Path:
    table = pa.Table.from_pandas(LONG)
    pq.write_table(table, folder / "atoms.parquet", row_group_size=11, write_page_checksum=True)
    return folder / "atoms.parquet"


def _read_parquet(path: Path) -> list[Any]:
    shards = ShardedClouds.from_parquet(
        path, bag="bag", columns=["x", "y"], target="target", piece_atoms=20
    )
    return [part for i in range(shards.num_pieces) for part in _contents(shards, i)]


def _write_array(folder: Path) -> Path:
    np.save(folder / "atoms.npy", CLOUDS.points.numpy())
    return folder / "atoms.npy"


def _read_array(path: Path) -> list[Any]:
    shards = ShardedClouds.from_arrays(path, piece_atoms=20)
    return [_contents(shards, i)[0] for i in range(shards.num_pieces)]


def _contents(shards: ShardedClouds, index: int) -> list[Any]:
    clouds, targets = shards.piece(index)
    return [clouds.points, targets]


SUBJECTS: dict[str, Subject] = {
    **{name: _model(name) for name in MODELS},
    "records": Subject(_write_records, _read_records, sealed=False),
    "start": _checkpoint("start"),
    "sums": _checkpoint("sums"),
    "parquet": Subject(_write_parquet, _read_parquet, sealed=False),
    "array": Subject(_write_array, _read_array, sealed=False),
}


def bits(values: list[Any]) -> list[Any]:
    """Values that can be compared bit for bit."""
    return [np.asarray(v).tobytes() if hasattr(v, "__array__") else repr(v) for v in values]


def examined(subject: Subject, path: Path, expected: list[Any]) -> str:
    """What becomes of a changed file: an outcome, or what is wrong, which begins with ``WRONG``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = bits(subject.read(path))
        except ValueError as error:
            named = str(path) in str(error) or str(path.parent) in str(error)
            return "refused" if named else f"WRONG: no path in {error!r}"
        except Exception as error:
            return f"WRONG: {error!r}"
    if found == expected:
        return "same"
    return "WRONG: other values" if subject.sealed else "other values"


def examined_forgery(path: Path) -> str:
    """What becomes of a forged model: it is refused, or it is data with which anything can happen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = load(path)
        except ValueError as error:
            text = str(error)
            if str(path) not in text:
                return f"WRONG: no path in {error!r}"
            if "allocate" in text or "MemoryError" in text:
                return f"WRONG: more memory than the file holds: {error!r}"
            return "refused"
        except Exception as error:
            return f"WRONG: {error!r}"
        try:
            predictions(model)
        except Exception as error:
            return f"loads, then {type(error).__name__}"
    return "predicts"
