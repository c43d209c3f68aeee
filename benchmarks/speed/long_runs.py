"""Does memory stay flat, and does each step take the same time, in long runs of one process?

- ``predictions``: 10,000 calls of ``predict`` of one model of 60 clouds, each for 5 to 19 clouds
  of 5 to 19 points.
- ``fits``: 500 models of 30 clouds, each made of other data and fitted with ``restarts=0``.
- ``search steps``: 40 searches of 50 evaluations each, with ``initial=5`` and ``restarts=0``, in one
  pool of 200 clouds and each with a checkpoint. Short searches, since a single one of 2,000 steps takes
  hours: its model grows with each evaluation.
- ``conditioned models``: 40 chains of 25 calls of ``condition_on_observations``, each from one model of
  100 clouds; only the last model of a chain is kept. Memory that a chain keeps until it ends leaves no
  slope here.
- ``one chain``: a single chain of 200 such calls, of which only the last model is kept. It leaves a
  slope if models keep what came before them. The last model itself grows, from 100 to 300 clouds: each
  of its matrices by 0.4 MiB in the second half.

The work of each is divided into 100 parts (40 for searches and chains), which are equal but for the
data and the size of the last model of the one chain. After each part, garbage is collected, and the
resident memory and the number of objects that Python tracks are noted. All columns refer to the
second half of the run: ``growth_mib`` is the slope of the resident memory times the length of this
half, ``noise_mib`` the range of what the line leaves, ``beyond_mib`` the growth less the noise,
``objects`` the growth of the number of objects, and ``slowdown`` the median seconds of a part of
the last quarter over that of the quarter before it. Seconds are those of the processor, which other
processes do not change much.

    python -m benchmarks.speed.long_runs [--quick]
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Options, Row, main
from benchmarks.judging import limit
from gp_distributions import DistributionGP, PointClouds, PoolSearch, ShapeOptimizer, fit
from gp_distributions.warnings import UndeterminedWarning, silenced

LONG = True

# Works by name: parts, and steps in each.
_PARTS = {
    "predictions": (100, 100),
    "fits": (100, 5),
    "search steps": (40, 50),
    "conditioned models": (40, 25),
    "one chain": (40, 5),
}
_QUICK = {
    "predictions": (4, 3),
    "fits": (4, 1),
    "search steps": (4, 6),
    "conditioned models": (4, 2),
    "one chain": (4, 1),
}


def random_clouds(count: int, seed: int, atoms: int = 20) -> PointClouds:
    """Clouds around random centres."""
    rng = np.random.default_rng(seed)
    return PointClouds(rng.normal(size=(count, 1, 2)) + rng.normal(size=(count, atoms, 2)))


def height(clouds: PointClouds) -> torch.Tensor:
    """A function of clouds."""
    means = clouds.points.mean(-2)
    return torch.sin(2 * means[:, 0]) + means[:, 1] / 2


def predictions(steps: int) -> Generator[None, None, None]:
    """Predict clouds of other sizes with one model."""
    train = random_clouds(60, 0)
    model = fit(DistributionGP(train, height(train)), restarts=0)
    sizes = np.random.default_rng(1).integers(5, 20, size=(997, 2))
    count = 0
    while True:
        for _ in range(steps):
            clouds, atoms = sizes[count % len(sizes)]
            model.predict(random_clouds(int(clouds), count, int(atoms)))
            count += 1
        yield


def fits(steps: int) -> Generator[None, None, None]:
    """Make and fit models of other data."""
    count = 0
    while True:
        for _ in range(steps):
            clouds = random_clouds(30, count)
            with silenced(UndeterminedWarning):
                fit(DistributionGP(clouds, height(clouds)), restarts=0)
            count += 1
        yield


def searches(steps: int) -> Generator[None, None, None]:
    """Search one pool several times."""
    pool = random_clouds(200, 0)
    values = height(pool)
    space, seed = PoolSearch(pool), 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            path = Path(folder) / f"{seed}.jsonl"
            optimizer = ShapeOptimizer(space, initial=5, restarts=0, path=path, seed=seed)
            with silenced(UndeterminedWarning):
                optimizer.run(lambda index: float(values[index]), steps, progress=False)
            seed += 1
            yield


def conditioned(steps: int) -> Generator[None, None, None]:
    """Condition a model on one cloud after the other, several times."""
    clouds = random_clouds(100 + steps, 0)
    values = height(clouds)
    first = fit(DistributionGP(clouds[:100], values[:100]), restarts=0)
    while True:
        model = first
        for step in range(100, 100 + steps):
            model = model.condition_on_observations(
                clouds[step : step + 1], values[step : step + 1]
            )
            model.predict(clouds[:5])
        yield


def chained(steps: int) -> Generator[None, None, None]:
    """Condition one model on one cloud after the other, as long as the work goes on."""
    first = random_clouds(100, 0)
    model, count = fit(DistributionGP(first, height(first)), restarts=0), 0
    while True:
        for _ in range(steps):
            cloud = random_clouds(1, 1 + count)
            model = model.condition_on_observations(cloud, height(cloud))
            model.predict(first[:5])
            count += 1
        yield


_WORKS: dict[str, Callable[[int], Generator[None, None, None]]] = {
    "predictions": predictions,
    "fits": fits,
    "search steps": searches,
    "conditioned models": conditioned,
    "one chain": chained,
}


def resident() -> float:
    """Return the resident memory of this process in MiB; NaN except on Linux."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    return int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024


def measure(name: str, parts: int, steps: int) -> Row:
    """Do the work of one name, and describe the second half."""
    work = _WORKS[name](steps)
    seconds, memory, objects = np.empty(parts), np.empty(parts), np.empty(parts)
    for part in range(parts):
        start = time.process_time()
        next(work)
        seconds[part] = time.process_time() - start
        gc.collect()
        memory[part], objects[part] = resident(), len(gc.get_objects())
    work.close()
    half, quarter = parts // 2, parts // 4
    slope, start_level = np.polyfit(np.arange(half), memory[-half:], 1)
    rest = memory[-half:] - slope * np.arange(half) - start_level
    growth, noise = slope * half, float(np.ptp(rest))
    return {
        "name": name,
        "steps": parts * steps,
        "ms_per_step": 1000 * float(statistics.median(seconds[-half:])) / steps,
        "resident_mib": float(memory[-1]),
        "growth_mib": float(growth),
        "noise_mib": noise,
        "beyond_mib": float(growth) - noise,
        "objects": float(np.polyfit(np.arange(half), objects[-half:], 1)[0] * half),
        "slowdown": float(np.median(seconds[-quarter:]) / np.median(seconds[-half:-quarter])),
    }


TARGETS = tuple(
    limit(
        f"{text}, second half: {figure}",
        target,
        column,
        name=name,
        asked=column == "beyond_mib" and name == "predictions",
    )
    for name, text in (
        ("predictions", "10,000 predictions"),
        ("fits", "500 fits"),
        ("search steps", "2,000 search steps"),
        ("conditioned models", "1,000 conditioned models"),
    )
    for figure, target, column in (
        ("growth of memory beyond its noise", "<= 1 MiB", "beyond_mib"),
        ("more objects", "<= 100", "objects"),
        ("time of a step, last quarter over the one before", "<= 1.15", "slowdown"),
    )
)


def run(options: Options) -> list[Row]:
    """Return one row for each kind of work."""
    if options.quick:
        return [measure(name, *sizes) for name, sizes in _QUICK.items()]
    rows = []
    context = multiprocessing.get_context(
        "spawn"
    )  # what one leaves behind is not counted for another
    for name, sizes in _PARTS.items():
        with context.Pool(1) as pool:
            rows.append(pool.apply(measure, (name, *sizes)))
    return rows


if __name__ == "__main__":
    main(run)
