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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import limit
from gp_distributions.warnings import UndeterminedWarning, silenced

LONG = True
# Does the steps of the part with a number.
Part = Callable[[int], None]


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


def random_clouds(count: int, seed: int, atoms: int = 20) -> gd.PointClouds:
    """Clouds around random centres."""
    rng = np.random.default_rng(seed)
    return gd.PointClouds(rng.normal(size=(count, 1, 2)) + rng.normal(size=(count, atoms, 2)))


def height(clouds: gd.PointClouds) -> torch.Tensor:
    """A function of clouds."""
    means = clouds.points.mean(-2)
    return torch.sin(2 * means[:, 0]) + means[:, 1] / 2


def fitted(count: int, seed: int) -> gd.DistributionGP:
    """Make and fit a model of random clouds."""
    clouds = random_clouds(count, seed)
    with silenced(UndeterminedWarning):
        return gd.fit(gd.DistributionGP(clouds, height(clouds)), restarts=0)


def predictions(steps: int) -> Part:
    """Predict clouds of other sizes with one model."""
    model = fitted(60, 0)
    sizes = np.random.default_rng(1).integers(5, 20, size=(997, 2))

    def part(number: int) -> None:
        for count in range(number * steps, (number + 1) * steps):
            clouds, atoms = sizes[count % len(sizes)]
            model.predict(random_clouds(int(clouds), count, int(atoms)))

    return part


def fits(steps: int) -> Part:
    """Make and fit models of other data."""

    def part(number: int) -> None:
        for count in range(number * steps, (number + 1) * steps):
            fitted(30, count)

    return part


def searches(steps: int) -> Part:
    """Search one pool several times."""
    pool = random_clouds(200, 0)
    values, space = height(pool), gd.PoolSearch(pool)

    def part(number: int) -> None:
        with tempfile.TemporaryDirectory() as folder, silenced(UndeterminedWarning):
            path = Path(folder) / "search.jsonl"
            optimizer = gd.ShapeOptimizer(space, initial=5, restarts=0, path=path, seed=number)
            optimizer.run(lambda index: float(values[index]), steps, progress=False)

    return part


def conditioned(steps: int) -> Part:
    """Condition a model on one cloud after the other, several times."""
    more, first = random_clouds(100 + steps, 0)[100:], fitted(100, 0)
    values = height(more)

    def part(number: int) -> None:
        model = first
        for step in range(steps):
            chosen = slice(step, step + 1)
            model = model.condition_on_observations(more[chosen], values[chosen])
            model.predict(more[:5])

    return part


def chained(steps: int) -> Part:
    """Condition one model on one cloud after the other, as long as the work goes on."""
    model, first = fitted(100, 0), random_clouds(5, 0)

    def part(number: int) -> None:
        nonlocal model
        for count in range(number * steps, (number + 1) * steps):
            cloud = random_clouds(1, 1 + count)
            model = model.condition_on_observations(cloud, height(cloud))
            model.predict(first)

    return part


# What makes the parts of a work, their number, and the steps of each; the same for quick runs.
WORKS: dict[str, tuple[Callable[[int], Part], tuple[int, int], tuple[int, int]]] = {
    "predictions": (predictions, (100, 100), (4, 3)),
    "fits": (fits, (100, 5), (4, 1)),
    "search steps": (searches, (40, 50), (4, 6)),
    "conditioned models": (conditioned, (40, 25), (4, 2)),
    "one chain": (chained, (40, 5), (4, 1)),
}


def measure(name: str, parts: int, steps: int) -> Row:
    """Do the work of one name, and describe the second half."""
    work, status = WORKS[name][0](steps), Path("/proc/self/status")
    seconds, memory, objects = np.empty(parts), np.full(parts, np.nan), np.empty(parts)
    for part in range(parts):
        start = time.process_time()
        work(part)
        seconds[part] = time.process_time() - start
        gc.collect()
        objects[part] = len(gc.get_objects())
        if status.exists():  # only on Linux
            memory[part] = int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024
    half, quarter = parts // 2, parts // 4
    slope, start_level = np.polyfit(np.arange(half), memory[-half:], 1)
    rest = memory[-half:] - slope * np.arange(half) - start_level
    growth, noise = float(slope * half), float(np.ptp(rest))
    return {
        "name": name,
        "steps": parts * steps,
        "ms_per_step": 1000 * float(statistics.median(seconds[-half:])) / steps,
        "resident_mib": float(memory[-1]),
        "growth_mib": growth,
        "noise_mib": noise,
        "beyond_mib": growth - noise,
        "objects": float(np.polyfit(np.arange(half), objects[-half:], 1)[0] * half),
        "slowdown": float(np.median(seconds[-quarter:]) / np.median(seconds[-half:-quarter])),
    }


def run(options: Options) -> list[Row]:
    """Return one row for each kind of work."""
    if options.quick:
        return [measure(name, *quick) for name, (*_, quick) in WORKS.items()]
    rows = []
    context = multiprocessing.get_context("spawn")  # what one leaves does not count for another
    for name, (_, sizes, _) in WORKS.items():
        with context.Pool(1) as pool:
            rows.append(pool.apply(measure, (name, *sizes)))
    return rows


if __name__ == "__main__":
    main(run)
