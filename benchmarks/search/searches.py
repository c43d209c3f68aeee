"""Searches among airfoils and designs, and summaries of what they find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Row, progress
from benchmarks.judging import Judge, Rows, find
from benchmarks.search.designs import BOUNDS, decode, gated_ratio
from benchmarks.shapes import ordinates, some_airfoils
from gp_distributions.bayesopt import Decoder, DesignSearch, Pool, median_lengthscale_prior

ATOMS = 128
# What a search from a seed finds, by the name of a column.
Outcome = dict[str, Any]
Way = Callable[[int], Outcome]


def by_hand(X: Tensor, Y: Tensor) -> gd.DistributionGP:
    """A GP that was selected for airfoils: a kernel on centred shapes, and a linear one on means."""
    shape = gd.SlicedWassersteinKernel(
        2, profile="matern52", center=True, num_slices=50, num_quantiles=64
    )
    mean = gd.MMDKernel(2, kernel="linear", profile="linear")
    return gd.DistributionGP(X, Y, ScaleKernel(shape) + mean)


def scaled(clouds: gd.PointClouds) -> gd.PointClouds:
    """Normalise clouds, stretching the vertical axis because airfoils are thin."""
    return clouds.normalize(scale=[1.0, 0.5])


def matern(X: Tensor, Y: Tensor, *, ard: bool = False) -> gd.DistributionGP:
    """A GP on vectors; with ``ard``, each coordinate has its own lengthscale."""
    width = X.shape[-1]
    plain = MaternKernel(nu=2.5, ard_num_dims=width if ard else None)
    # A single lengthscale starts near the median distance, as for kernels of distances.
    with torch.no_grad():
        plain.lengthscale = X.std(0) * width**0.5 if ard else torch.pdist(X).median()
    return gd.DistributionGP(X, Y, ScaleKernel(plain))


def on_designs(X: Tensor, Y: Tensor) -> gd.DistributionGP:
    """A GP on designs with a lengthscale for each weight."""
    return matern(X, Y, ard=True)


def with_priors(X: Tensor, Y: Tensor) -> gd.DistributionGP:
    """A GP on designs with BoTorch's default kernel."""
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=X.shape[-1])
    return gd.DistributionGP(X, Y, kernel, input_transform=Normalize(X.shape[-1], bounds=BOUNDS))


DECODER = Decoder(decode)


def on_shapes(X: Tensor, Y: Tensor, *, scaled: bool = True) -> gd.DistributionGP:
    """A GP on decoded outlines with normals."""
    kernel: Kernel = gd.SlicedWassersteinKernel(
        4, profile="matern52", num_slices=50, num_quantiles=64
    )
    kernel = ScaleKernel(kernel) if scaled else kernel
    return median_lengthscale_prior(gd.DistributionGP(X, Y, kernel, input_transform=DECODER))


def design_search(model: Any, transform: Decoder | None, evaluations: int, seed: int) -> Outcome:
    """Search the designs; the best value found."""
    optimizer = gd.ShapeOptimizer(DesignSearch(transform, BOUNDS), model=model, seed=seed)
    return {"value": optimizer.run(gated_ratio, evaluations, progress=False).best[1]}


class AirfoilPool:
    """Airfoils to search for the best lift to drag in so many evaluations."""

    def __init__(self, size: int | None, evaluations: int) -> None:
        foils = some_airfoils(size)
        self.targets, self.evaluations = foils.lift_to_drag, evaluations
        self.rank = np.argsort(np.argsort(-self.targets))
        self.outlines = gd.PointClouds.from_curves(foils.outlines, atoms=ATOMS)
        self.clouds = Pool(scaled(self.outlines))
        self.ordinates = Pool(ordinates(foils.outlines))

    def search(self, pool: Pool, model: Any, seed: int) -> Outcome:
        """Search a pool with a model, or at random."""
        place = gd.PoolSearch(pool)
        if model == "random":
            return self.outcome(place.initial(self.evaluations, seed))
        optimizer = gd.ShapeOptimizer(place, model=model, initial=10, seed=seed)
        optimizer.run(lambda i: float(self.targets[i]), self.evaluations, progress=False)
        return self.outcome([evaluation.candidate for evaluation in optimizer.evaluations])

    def outcome(self, order: list[int]) -> Outcome:
        """Return when the top hundredth and the best were found, and the best value."""
        ranks, hundredth = self.rank[order], round(len(self.targets) / 100)
        hits = {"top": ranks < hundredth, "best": ranks == 0}
        found = {
            name: int(hit.argmax()) + 1 if hit.any() else self.evaluations
            for name, hit in hits.items()
        }
        value = float(self.targets[order].max())
        return {**found, "found": bool(hits["best"].any()), "value": value}


def searched(
    task: str, ways: Mapping[str, Way], seeds: range
) -> Iterator[tuple[str, list[Outcome], float]]:
    """Search by each way from all seeds; yield its name, outcomes and seconds per search."""
    for name, way in ways.items():
        start = time.perf_counter()
        found = [way(seed) for seed in progress(seeds, name)]
        seconds = (time.perf_counter() - start) / len(seeds)
        yield f"{task}seeds {seeds[0]}-{seeds[-1]}: {name}", found, seconds


def column(found: list[Outcome], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return one figure of all searches."""
    return np.array([outcome[name] for outcome in found], dtype=float)


def pool_rows(task: str, ways: Mapping[str, Way], seeds: range) -> list[Row]:
    """Return a row for each way to search a pool."""
    rows: list[Row] = []
    for name, found, seconds in searched(task, ways, seeds):
        top, best, value = (column(found, key) for key in ("top", "best", "value"))
        rows.append(
            {
                "name": name,
                "top_1pct_at": float(top.mean()),
                "top_1pct_by_20": f"{sum(top <= 20)} of {len(seeds)}",
                "best_at": float(best.mean()),
                "best_found": f"{sum(outcome['found'] for outcome in found)} of {len(seeds)}",
                "top_1pct_each": " ".join(f"{each:.0f}" for each in top),
                "best_each": " ".join(f"{each:.0f}" for each in best),
                "value": float(value.mean()),
                "value_std": float(value.std()),
                "seconds": seconds,
            }
        )
    return rows


def count_of(column: str, least: int, name: str) -> Judge:
    """Return a judge of the number of searches that succeeded."""

    def judge(rows: Rows) -> tuple[str, bool]:
        figure = str(find(rows, name=name)[column])
        return figure, int(figure.split(" of ")[0]) >= least

    return judge
