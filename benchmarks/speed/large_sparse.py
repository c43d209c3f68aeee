r"""What does a sparse model of a million clouds on disk cost, and how does it compare with its peers?

The clouds have 20 to 80 atoms in the plane: two clusters of a random distance, stretched, turned and
shifted at random. The signal depends on all of these, and targets have normal noise.

**Time, memory and error.** A process reads clouds from a folder of Parquet files, as many as the row
says; those of a row are among those of the next. ``embed_s`` is the time to read and embed them, with
the 10,002 default features of ``SlicedWasserstein(2)``, in single precision, and not kept. The kernel is
Matern 5/2 of 100 principal components of these features, which are not whitened and have one
lengthscale; their number was chosen with 20,000 clouds of another seed. ``fit_s`` is the time of
``fit(SparseDistributionGP(shards, num_inducing=1000, ...))`` from the files on, and ``predict_s`` that
of predictions for the same clouds. ``ratio`` is their sum over ``embed_s``. All three use the threads of
a pass over pieces, with one thread of BLAS in each. ``peak_mib`` is the peak memory of the process,
libraries included. Features are in single precision (``feature_dtype``). ``rmse`` is the error about the
signal of clouds held out; ``nlpd`` (mean negative log density) and ``coverage`` of 95% intervals are
those of their noisy targets. The noise has standard deviation 1, about that of the signal, so that a
million clouds can tell more than a hundred thousand; with a deviation of 0.2, the inducing clouds and
the sampling of atoms are the limit from 100,000 clouds on. The ratio at a million clouds has a budget of
4 in single precision, peak memory one of 2 GiB, and the error falls from each size to the next.

**A peer.** Both have the same 1026 features of clouds in memory (32 slices and 32 quantiles), the same
clouds and the same clouds held out. The noise has standard deviation 0.2, and ``rmse`` is that of noisy
targets.

- ``sparse``: ``SparseDistributionGP`` on clouds, from clouds to a fitted model.
- ``SVGP``: GPyTorch's, with as many inducing points, at first random training points, the same profile
  (Matern 5/2) and learned noise, by Adam on minibatches of 512. ``seconds`` is ten times that of
  ``sparse``, without the time to embed. The learning rate, 0.01, was the
  best of 0.01, 0.03 and 0.1 on another seed.

    python -m benchmarks.speed.large_sparse [--quick]
"""

from __future__ import annotations

import multiprocessing
import operator
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import Rows, Target, beside, find, limit, number
from benchmarks.regression import kernel_of, score_of
from gp_distributions.distances import PrincipalDistance
from gp_distributions.sharding.passes import run as run_pass

LONG = True
Floats = NDArray[np.float64]

SEED = 17  # of the clouds; settings were chosen on others
NOISE, PEERS_NOISE = 1.0, 0.2
SET, FILE = 1000, 10_000  # clouds that are drawn together, and in a file
CHUNK = 2048  # clouds whose features are in memory at a time
BATCH, RATE = 512, 0.01


@dataclass(frozen=True)
class Sizes:
    """Numbers of clouds on disk, in memory, held out and inducing."""

    sharded: tuple[int, ...] = (1000, 10_000, 100_000, 1_000_000)
    peers: int = 50_000
    held_out: int = 10_000
    inducing: int = 1000


QUICK = Sizes((60, 120), 100, 50, 20)


_MILLION = "10^6 clouds of 20 to 80 atoms in Parquet, M = 1000"
_REASON = "Embedding takes 92 s here, beside other work. Where it took 45 s, the ratio was 4.7."


def falls(rows: Rows) -> tuple[str, bool]:
    """Return the errors at growing numbers of clouds, and whether each is below the one before."""
    names = [f"Parquet, {count}, single precision" for count in Sizes.sharded]
    errors = [number(find(rows, name=name), "rmse") for name in names]
    return " ".join(f"{error:.4f}" for error in errors), errors == sorted(set(errors))[::-1]


TARGETS = (
    *(
        limit(
            f"{_MILLION}: {text}",
            target,
            column,
            name="Parquet, 1000000, single precision",
            asked=True,
            reason=_REASON if column == "ratio" else "",
        )
        for text, target, column in (
            ("fit and predict over embedding", "<= 4", "ratio"),
            ("peak memory", "<= 2048 MiB", "peak_mib"),
        )
    ),
    Target("clouds in Parquet, 10^3 to 10^6: RMSE", "falls throughout", falls),
    beside(
        "50,000 clouds: negative log density, beside SVGP in 10 x the time",
        "below it",
        "nlpd",
        ("sparse, 50000", "SVGP, 50000"),
        operator.lt,
        asked=True,
    ),
)


def draw(
    count: int, number: int, noise: float, seed: int = SEED
) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """Draw clouds: their atoms one after another, ``... x 2``, their sizes, signals and targets.

    Args:
        count: Number of clouds.
        number: Number of this set of clouds.
        noise: Standard deviation of the noise of targets.
        seed: Random seed of all sets.
    """
    rng = np.random.default_rng([seed, number])
    sizes = rng.integers(20, 81, count)
    spread = np.exp(0.5 * rng.normal(size=(count, 2)))
    centre, apart = rng.normal(size=(count, 2)), rng.uniform(0, 2, count)
    turn = rng.uniform(0, np.pi, count)
    signal = np.sin(2 * apart) + np.cos(2 * turn) * np.log(spread[:, 0] / spread[:, 1])
    signal += 0.3 * np.sin(centre[:, 0]) * centre[:, 1]
    bag = np.repeat(np.arange(count), sizes)
    atoms = rng.normal(size=(len(bag), 2)) * spread[bag]
    atoms[:, 0] += apart[bag] * rng.choice([-1.0, 1.0], len(bag))
    (x, y), cos, sin = atoms.T, np.cos(turn)[bag], np.sin(turn)[bag]
    points = np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1) + centre[bag]
    return points, sizes, signal, signal + noise * rng.normal(size=count)


def clouds(
    count: int, number: int, noise: float, seed: int = SEED
) -> tuple[gd.PointClouds, Floats, Floats]:
    """Draw clouds, signals and targets into memory."""
    points, sizes, signal, targets = draw(count, number, noise, seed)
    return gd.PointClouds.from_ragged(points, np.append(0, sizes.cumsum())), signal, targets


def write(folder: Path, count: int) -> list[str]:
    """Write clouds into Parquet files, one after another; return the paths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for first in progress(range(0, count, FILE), "files"):
        starts = range(first, min(first + FILE, count), SET)
        drawn = (draw(min(SET, count - start), 1 + start // SET, NOISE) for start in starts)
        points, sizes, _, targets = (np.concatenate(part) for part in zip(*drawn, strict=True))
        bag = np.repeat(np.arange(len(sizes)), sizes)
        table = {"bag": first + bag, "x": points[:, 0], "y": points[:, 1], "target": targets[bag]}
        paths.append(str(folder / f"{first:08d}.parquet"))
        pq.write_table(pa.table(table), paths[-1])
    return paths


class Embed:
    """Reads and embeds pieces, and keeps nothing."""

    def __init__(self) -> None:
        self.distance = gd.SlicedWasserstein(2)

    def __call__(self, number: int, X: gd.PointClouds, *rest: object) -> int:
        """Embed the clouds of a piece; return their number."""
        for start in range(0, len(X), CHUNK):
            self.distance.embed(X[start : start + CHUNK].pack().float())
        return len(X)


def scores(signal: Floats, targets: Floats, mean: Any, std: Any) -> Row:
    """Return errors about a signal, and densities of targets."""
    mean, std = np.asarray(mean), np.asarray(std)
    found, error = score_of(targets, mean, std), float(np.sqrt(np.mean((mean - signal) ** 2)))
    return {"rmse": error, "nlpd": found["nlpd"], "coverage": found["coverage"]}


def sharded(paths: Sequence[str], sizes: Sizes) -> Row:
    """Embed, fit and predict the clouds of some files, in the current process."""
    read = partial(
        gd.ShardedClouds.from_parquet, list(paths), bag="bag", columns=["x", "y"], target="target"
    )
    seconds: list[float] = []

    def timed(work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        return result

    def fitted() -> tuple[Any, Any]:
        distance = PrincipalDistance(gd.SlicedWasserstein(2), num_components=100, exponent=0.0)
        kernel = gd.DistributionKernel(distance, ard_num_dims=1)  # the model adds an outputscale
        shards, number = read(), sizes.inducing
        model = gd.SparseDistributionGP(
            shards, None, kernel, num_inducing=number, feature_dtype=torch.float32
        )
        return gd.fit(model, progress=False), shards

    count = timed(lambda: sum(run_pass(Embed(), read().pieces)))
    model, shards = timed(fitted)
    timed(lambda: model.predict(shards, progress=False))
    held_out, signal, targets = clouds(sizes.held_out, 0, NOISE)
    return {
        "name": f"Parquet, {count}, single precision",
        **dict(zip(("embed_s", "fit_s", "predict_s"), seconds, strict=True)),
        "ratio": sum(seconds[1:]) / seconds[0],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **scores(signal, targets, *model.predict(held_out)),
    }


def one_thread() -> None:
    """Limit BLAS and torch to one thread in each thread of a pass."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def new_processes(*, quick: bool) -> ProcessPoolExecutor:
    """Return a pool that works in a new process each time, whose peak memory is its own.

    Quick runs use one process, so that each peak is the largest so far.
    """
    context = multiprocessing.get_context("spawn")
    tasks = None if quick else 1
    return ProcessPoolExecutor(
        1, mp_context=context, initializer=one_thread, max_tasks_per_child=tasks
    )


def growth(sizes: Sizes, *, quick: bool = False) -> list[Row]:
    """Return one row per number of clouds."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, new_processes(quick=quick) as pool:
        paths = write(Path(folder), sizes.sharded[-1])
        for count in sizes.sharded:
            (own := Path(folder) / str(count)).mkdir()
            parts = paths[: count // FILE] if count >= FILE else write(own, count)
            rows.append(pool.submit(sharded, parts, sizes).result())
    return rows


class VariationalGP(gpytorch.models.ApproximateGP):
    """GPyTorch's sparse variational Gaussian process on features."""

    def __init__(self, inducing: Tensor, lengthscale: float) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, distribution))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))
        self.covar_module.base_kernel.lengthscale = lengthscale

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Return the prior at features."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def variational(
    features: Tensor, targets: Tensor, new: Tensor, inducing: int, budget: float, rate: float = RATE
) -> tuple[Floats, Floats, int]:
    """Train by Adam for so many seconds; return means, standard deviations and the number of steps."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(features), generator=generator)[:inducing]
    centre, scale = targets.mean(), targets.std()
    values = (targets - centre) / scale
    lengthscale = float(torch.cdist(features[chosen], features[chosen]).median())
    model = VariationalGP(features[chosen].clone(), lengthscale)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(features))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=rate)
    start, steps = time.perf_counter(), 0
    model.train()
    likelihood.train()
    while time.perf_counter() - start < budget:
        for batch in torch.randperm(len(features), generator=generator).split(BATCH):
            optimizer.zero_grad()
            loss = -objective(model(features[batch]), values[batch])
            loss.backward()
            optimizer.step()
            steps += 1
            if time.perf_counter() - start >= budget:
                break
    model.eval()
    likelihood.eval()
    found = []
    with torch.no_grad():
        for part in new.split(BATCH):
            predicted = likelihood(model(part))
            found.append(torch.stack([predicted.mean, predicted.variance.sqrt()]))
    mean, std = torch.cat(found, dim=-1).double()
    return (centre + scale * mean).numpy(), (scale * std).numpy(), steps


def peer(sizes: Sizes, *, quick: bool = False, seed: int = SEED) -> list[Row]:
    """Compare the sparse model with a variational one on the same features."""
    number = 8 if quick else 32
    distance = gd.SlicedWasserstein(2, num_slices=number, num_quantiles=number)
    X, _, targets = clouds(sizes.peers, 1_000_000, PEERS_NOISE, seed)
    new, _, held_out = clouds(sizes.held_out, 0, PEERS_NOISE, seed)
    scored = partial(scores, held_out, held_out)
    start = time.perf_counter()
    model = gd.SparseDistributionGP(X, targets, kernel_of(distance), num_inducing=sizes.inducing)
    gd.fit(model, progress=False)
    ours = time.perf_counter() - start
    rows = [{"name": f"sparse, {len(X)}", **scored(*model.predict(new)), "seconds": ours}]

    features, others = (distance.embed(c.pack()) for c in (X, new))
    halves = features.float(), torch.from_numpy(targets).float(), others.float()
    del features
    budget = 0.05 if quick else 10 * ours
    *predicted, steps = variational(*halves, sizes.inducing, budget)
    found = scored(*predicted) | {"seconds": budget, "steps": steps}
    return [*rows, {"name": f"SVGP, {len(X)}", **found}]


def run(options: Options) -> list[Row]:
    """Return one row per number of clouds on disk, and those beside a peer."""
    sizes = QUICK if options.quick else Sizes()
    return [*growth(sizes, quick=options.quick), *peer(sizes, quick=options.quick)]


if __name__ == "__main__":
    main(run)
