"""Searches among airfoils and designs, and summaries of what they find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Row, progress
from benchmarks.judging import Judge, Rows, find, number
from benchmarks.search.designs import BOUNDS

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


def paired(found: list[float], peer: list[float]) -> Row:
    """Return the mean difference between searches from the same seeds, and its standard error."""
    gaps = np.array(found) - np.array(peer)
    return {"difference": gaps.mean(), "se": gaps.std() / max(len(gaps) - 1, 1) ** 0.5}


def level(name: str, sign: int, prefix: str = "") -> Judge:
    """Return a judge of whether a paired difference is not on the wrong side by a standard error."""

    def judge(rows: Rows) -> tuple[str, bool]:
        row = find(rows, name=name)
        gap, error = (number(row, f"{prefix}{column}") for column in ("difference", "se"))
        return f"{gap:+.1f} ± {error:.1f}", sign * gap >= -error

    return judge
