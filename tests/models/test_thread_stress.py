"""Many threads that use one model at once, switching as often as Python can: results as in turn."""

import copy
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds
from library_settings import settings
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MixtureModel,
    MMDKernel,
    NormalizeClouds,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
    integrate_hyperparameters,
    load,
    save,
)
from gp_distributions.models import KernelRidgeClassifier, MixtureClassifier

THREADS = 4
CLOUDS = random_clouds(24, sizes=(3, 8))
TRAIN, NEW = as_rows(CLOUDS[:16]), as_rows(CLOUDS[16:])
WIDE = as_rows(random_clouds(3, seed=1, sizes=(12, 16)))
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])[:16]
OUTPUTS = torch.stack([TARGETS, TARGETS.sqrt()], dim=-1)
LABELS = (TARGETS.median() < TARGETS).long()


def kernel(**options: Any) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=6, num_quantiles=8, **options)


def normalised() -> DistributionGP:
    transform = NormalizeClouds.from_data(PointClouds.unpack(TRAIN, 2))
    return DistributionGP(TRAIN, TARGETS, kernel(), input_transform=transform)


def exact(**options: Any) -> DistributionGP:
    return DistributionGP(TRAIN, TARGETS, kernel(), **options)


def classifier() -> ClassificationGP:
    return ClassificationGP(TRAIN, LABELS, kernel())


MODELS: dict[str, Callable[[], Any]] = {
    "exact": exact,
    "normalised": normalised,
    "sampling noise": lambda: exact(sampling_noise=True),
    "known noise": lambda: exact(train_Yvar=torch.full_like(TARGETS, 0.1)),
    "sum": lambda: DistributionGP(TRAIN, TARGETS, kernel() + MMDKernel(2, bandwidth=1.0)),
    "outputs": lambda: DistributionGP(TRAIN, OUTPUTS, kernel(batch_shape=torch.Size([2]))),
    "shared": lambda: SharedKernelGP(TRAIN, OUTPUTS, kernel()),
    "sparse": lambda: SparseDistributionGP(TRAIN, TARGETS, kernel(), num_inducing=8),
    "mixture": lambda: MixtureModel([exact(), normalised()], [0.3, 0.7]),
    "integrated": lambda: integrate_hyperparameters(exact()),
    "classes": classifier,
    "sparse classes": lambda: SparseClassificationGP(TRAIN, LABELS, kernel(), num_inducing=8),
    "mixture of classes": lambda: MixtureClassifier([classifier(), classifier()], [0.4, 0.6]),
    "kernel ridge": lambda: KernelRidgeClassifier(TRAIN, LABELS, kernel(), ridge=1e-3),
}


def samples(model: Any, rows: Tensor, noise: bool) -> Tensor:
    posterior = model.posterior(rows, observation_noise=noise)
    shape = posterior.base_sample_shape
    base = torch.linspace(-1, 1, 2 * shape.numel(), dtype=torch.float64).reshape(2, *shape)
    return posterior.rsample_from_base_samples(torch.Size([2]), base)


def conditioned(model: Any, rows: Tensor) -> tuple[Tensor, ...]:
    targets = rows[:2, :1].repeat(1, model.num_outputs)
    noise = torch.full_like(targets, 0.2) if "FixedNoise" in repr(model) else None
    options = {} if noise is None else {"noise": noise}
    more = model.condition_on_observations(rows[:2], targets, **options)
    return more.predict(rows)


def saved(model: Any, path: Path) -> tuple[bytes]:
    save(model.eval(), path)
    return (b"".join(value.numpy().tobytes() for value in load(path).state_dict().values()),)


UNCONDITIONED = ClassificationGP, MixtureClassifier, SparseDistributionGP
Task = Callable[[Path], tuple[Any, ...]]


def tasks(model: Any) -> dict[str, Task]:
    """All that a model does, each for several inputs, by name."""
    found: dict[str, Task] = {}
    for name, rows in {"new": NEW, "wide": WIDE}.items():
        if hasattr(model, "scores"):
            found[f"scores {name}"] = lambda _, rows=rows: (model.scores(rows),)
        elif hasattr(model, "predict_proba"):
            found[f"predict {name}"] = lambda _, rows=rows: (model.predict_proba(rows),)
        else:
            for noise in (True, False):
                found[f"predict {name} {noise}"] = lambda _, rows=rows, noise=noise: model.predict(
                    rows, observation_noise=noise
                )
            noise = name == "wide"
            found[f"sample {name}"] = lambda _, rows=rows, noise=noise: (
                samples(model, rows, noise),
            )
    if hasattr(model, "posterior") and not isinstance(model, UNCONDITIONED):
        found["condition"] = lambda _: conditioned(model, WIDE)
    if hasattr(model, "leave_one_out"):
        found["leave one out"] = lambda _: _as_tuple(model.leave_one_out())
    if hasattr(model, "leave_one_out_proba"):
        found["leave one out"] = lambda _: (model.leave_one_out_proba(),)
    if not hasattr(model, "scores"):
        found["save"] = lambda path: saved(model, path)
    return found


def state_of(model: Any) -> list[Tensor]:
    if not isinstance(model, torch.nn.Module):
        return []
    inputs = [rows for m in model.modules() for rows in getattr(m, "train_inputs", None) or ()]
    return [tensor.detach().clone() for tensor in (*model.state_dict().values(), *inputs)]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether results are the same up to rounding, and what files hold to the last bit.

    What a distance remembers decides in which order it adds, but not what.
    """
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, Tensor):
            tolerance = 1e-10 * other.abs().max().item()
            if not torch.allclose(one, other, rtol=0, atol=tolerance):
                return False
        elif one != other:
            return False
    return True


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("name", MODELS)
def test_threads_get_what_one_thread_gets(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    if isinstance(model, torch.nn.Module):
        model.eval()
    expected = {task: do(tmp_path / "serial") for task, do in tasks(copy.deepcopy(model)).items()}
    shared, known, before = tasks(model), settings(), state_of(model)
    names, start = list(shared), Barrier(THREADS)

    def work(thread: int) -> list[str]:
        start.wait()
        wrong = []
        if name == "exact" and thread == 0:  # others predict meanwhile
            fit(exact(), restarts=0)
        for step in range(len(names)):
            task = names[(step + thread * 5) % len(names)]
            try:
                found = shared[task](tmp_path / f"{thread}")
            except Exception as error:
                wrong.append(f"{task}: {error!r}")
                continue
            if not same(found, expected[task]):
                wrong.append(task)
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [[]] * THREADS
    assert settings() == known
    # One wide cloud would widen the training rows for good.
    assert all(map(torch.equal, state_of(model), before))
