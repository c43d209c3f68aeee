r"""How well are the energies of molecules predicted from the pairs of their atoms?

The targets are the atomisation energies at 0 K of QM9 in kcal/mol. The last 10,000 molecules of a fixed
permutation of all 130,831 are held out, and the first ones of it are for training. Every model has a
line in the numbers of H, C, N, O and F atoms, which is fitted to the training molecules, and a Gaussian
process of its residuals, with the profile Matern 5/2 and hyperparameters that maximise the marginal
likelihood.

- ``counts``: the line alone, with the standard deviation of its residuals.
- ``rigid``: ``RigidSlicedWasserstein`` on atoms, with the nuclear charge :math:`Z` as a mark.
- ``pairs``: ``SlicedWasserstein`` with 48 slices and 24 quantiles on clouds of pairs of atoms at
  distance :math:`r`, with the features :math:`3 \log r`, :math:`0.7 \sqrt{Z Z'}` and
  :math:`0.5 |Z - Z'|`.

Columns: ``mae`` is the mean absolute error on the molecules held out, ``coverage`` that of 95% intervals
and ``nlpd`` the mean negative log density of the energies. ``expected`` is the ``mae`` of a
straightforward implementation. ``seconds`` is the time from clouds of atoms to predictions for all
molecules held out.

    python -m benchmarks.molecules [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, main
from gp_distributions import (
    Distance,
    DistributionGP,
    DistributionKernel,
    PointClouds,
    RigidSlicedWasserstein,
    SlicedWasserstein,
    fit,
)
from gp_distributions.calibration import calibration
from gp_distributions.datasets import load_molecules

Floats = NDArray[np.float64]
# Means and standard deviations of predictions.
Predictions = tuple[Floats, Floats]

HARTREE = 627.5095  # kcal/mol
# Energies of the free atoms H, C, N, O and F in Hartree, from QM9.
FREE_ATOMS = np.array([-0.500273, -37.846772, -54.583861, -75.064579, -99.718730])
SEED = 0  # of the permutation
PENALTY = 1e-3  # of the line's squared coefficients
PIECE = 1000  # molecules that are predicted at a time
EXPECTED = {"counts, 3000": 20.2, "rigid, 3000": 10.9, "pairs, 1000": 8.4, "pairs, 3000": 6.4}


@dataclass(frozen=True)
class Split:
    """Clouds of atoms, their counts of elements and their energies, with the indices of both parts."""

    clouds: PointClouds
    counts: NDArray[np.int64]
    energies: Floats
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def splits(options: Options) -> Iterator[Split]:
    """Return growing training sets with the same molecules held out."""
    total, held_out, sizes = (150, 40, (30, 60)) if options.quick else (None, 10_000, (1000, 3000))
    molecules = load_molecules(total)
    energies = HARTREE * (molecules.properties["u0"] - molecules.counts @ FREE_ATOMS)
    order = np.random.default_rng(SEED).permutation(len(molecules))
    for size in sizes:
        yield Split(molecules.clouds, molecules.counts, energies, order[:size], order[-held_out:])


def line(split: Split) -> tuple[Floats, Floats]:
    """Fit the line to the training molecules; return its values at both parts."""
    fitted = Ridge(alpha=PENALTY).fit(split.counts[split.train], split.energies[split.train])
    return fitted.predict(split.counts[split.train]), fitted.predict(split.counts[split.test])


def features(first: Tensor, second: Tensor) -> Tensor:
    """Features of pairs of atoms, whose scales make log distances and charges comparable."""
    distance = (first[:, :3] - second[:, :3]).norm(dim=-1)
    charge, other = first[:, 3], second[:, 3]
    return torch.stack(
        [3 * distance.log(), 0.7 * (charge * other).sqrt(), 0.5 * (charge - other).abs()], dim=-1
    )


def pairs(clouds: PointClouds) -> PointClouds:
    """Clouds of pairs of atoms."""
    return clouds.pairs(features=features)


def gaussian_process(
    prepare: Callable[[PointClouds], PointClouds], distance: Distance, split: Split
) -> Predictions:
    """Predict by a line in the counts and an exact Gaussian process of its residuals."""
    known, new = line(split)
    residuals = torch.from_numpy(split.energies[split.train] - known)
    kernel = ScaleKernel(DistributionKernel(distance))
    model = fit(DistributionGP(prepare(split.clouds[split.train]), residuals, kernel))
    pieces = torch.from_numpy(split.test).split(PIECE)
    mean, std = zip(*(model.predict(prepare(split.clouds[part])) for part in pieces), strict=True)
    return new + torch.cat(mean).numpy(), torch.cat(std).numpy()


def counts(split: Split) -> Predictions:
    """Predict by the line in the counts alone."""
    known, new = line(split)
    return new, np.full(len(new), np.std(split.energies[split.train] - known))


def methods(quick: bool) -> dict[str, Callable[[Split], Predictions]]:
    """Each method by name."""
    rigid = RigidSlicedWasserstein(4, marks=1, num_slices=25 if quick else None)
    sliced = SlicedWasserstein(3, num_slices=48, num_quantiles=24)
    return {
        "counts": counts,
        "rigid": partial(gaussian_process, lambda clouds: clouds, rigid),
        "pairs": partial(gaussian_process, pairs, sliced),
    }


def run(options: Options) -> list[Row]:
    """Return one row per method and number of training molecules."""
    rows: list[Row] = []
    for split in tqdm(splits(options), desc="molecules", leave=False, disable=None):
        for name, predict in methods(options.quick).items():
            start = time.perf_counter()
            mean, std = predict(split)
            seconds = time.perf_counter() - start
            targets, label = split.energies[split.test], f"{name}, {len(split.train)}"
            scores = calibration(targets, mean, std)
            rows.append(
                {
                    "name": label,
                    "mae": float(np.abs(mean - targets).mean()),
                    "expected": EXPECTED.get(label),
                    "coverage": float(scores.coverage),
                    "nlpd": float(scores.nlpd),
                    "seconds": seconds,
                }
            )
    return rows


if __name__ == "__main__":
    main(__doc__, run)
