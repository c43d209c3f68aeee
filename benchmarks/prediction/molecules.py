r"""How well are the energies of molecules predicted from the pairs of their atoms?

The targets are the atomisation energies at 0 K of QM9 in kcal/mol. The last 10,000 molecules of a fixed
permutation of all 130,831 are held out, and the first ones of it are for training. Every model has a
line in the numbers of H, C, N, O and F atoms, which is fitted to the training molecules, and a Gaussian
process of its residuals, with the profile Matern 5/2.

- ``counts``: the line alone, with the standard deviation of its residuals.
- ``rigid``: ``RigidSlicedWasserstein`` on atoms, with the nuclear charge :math:`Z` as a mark.
- ``pairs``: ``SlicedWasserstein`` with 48 slices and 24 quantiles on clouds of pairs of atoms at
  distance :math:`r`, with the features :math:`3 \log r`, :math:`0.7 \sqrt{Z Z'}` and
  :math:`0.5 |Z - Z'|`.

Models of 1000 and 3000 molecules are exact; those of more, ``pairs, M=...``, are sparse, with ``M``
inducing molecules. Pairs are made for some thousand molecules at a time, so that memory does not grow
with the number of molecules.

Columns: ``mae`` is the mean absolute error on the molecules held out, ``coverage`` that of 95% intervals
and ``nlpd`` the mean negative log density of the energies. ``seconds`` is the time from atoms to
predictions for all molecules held out. The first rows are the times to load all molecules, and to make
and embed all pairs; ``peak_mib`` is the memory that this takes.

    python -m benchmarks.prediction.molecules [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from torch import Tensor

import gp_distributions as gd
from benchmarks.data.molecules import Molecules, load_molecules
from benchmarks.harness import Options, Row, main, peak_memory, progress
from benchmarks.judging import Rows, Target, find, limit, number
from benchmarks.regression import kernel_of, score_of
from gp_distributions.distances import Distance

LONG = True
ALONE = True

Floats = NDArray[np.float64]
# Means and standard deviations of predictions.
Predictions = tuple[Floats, Floats]
Prepare = Callable[[gd.PointClouds], gd.PointClouds]

HARTREE = 627.5095  # kcal/mol
# Energies of the free atoms H, C, N, O and F in Hartree, from QM9.
FREE_ATOMS = np.array([-0.500273, -37.846772, -54.583861, -75.064579, -99.718730])
SEED = 0  # of the permutation
PENALTY = 1e-3  # of the line's squared coefficients
PIECE = 2048  # molecules whose pairs are in memory at a time


@dataclass(frozen=True)
class Sizes:
    """Numbers of molecules to train on, by exact and by sparse models, and to hold out."""

    exact: tuple[int, ...] = (1000, 3000)
    sparse: tuple[int, ...] = (10_000, 40_000, 120_831)
    inducing: tuple[int, ...] = (1000, 4000)
    held_out: int = 10_000


QUICK = Sizes((30, 60), (90,), (40,), 40)


@dataclass(frozen=True)
class Split:
    """Clouds of atoms, their counts of elements and their energies, with the indices of both parts."""

    clouds: gd.PointClouds
    counts: NDArray[np.int64]
    energies: Floats
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def atomisation(molecules: Molecules) -> Floats:
    """Return atomisation energies in kcal/mol."""
    return HARTREE * (molecules.properties["u0"] - molecules.counts @ FREE_ATOMS)


def split_of(molecules: Molecules, size: int, held_out: int) -> Split:
    """Take the first molecules of the permutation for training, and hold out the last ones."""
    order = np.random.default_rng(SEED).permutation(len(molecules))
    train, test = order[:size], order[-held_out:]
    return Split(molecules.clouds, molecules.counts, atomisation(molecules), train, test)


def line(counts: NDArray[np.int64], energies: Floats, train: NDArray[np.int64] | slice) -> Floats:
    """Fit the line to the training molecules; return its values at all."""
    return Ridge(alpha=PENALTY).fit(counts[train], energies[train]).predict(counts)


def features(first: Tensor, second: Tensor) -> Tensor:
    """Features of pairs of atoms, whose scales make log distances and charges comparable."""
    distance = (first[:, :3] - second[:, :3]).norm(dim=-1)
    charge, other = first[:, 3], second[:, 3]
    return torch.stack(
        [3 * distance.log(), 0.7 * (charge * other).sqrt(), 0.5 * (charge - other).abs()], dim=-1
    )


def pairs(clouds: gd.PointClouds) -> gd.PointClouds:
    """Clouds of pairs of atoms."""
    return clouds.pairs(features=features)


@dataclass(frozen=True, eq=False)
class MoleculePieces:
    """Inputs made of clouds of atoms, and targets, a piece at a time: data for sparse models."""

    atoms: gd.PointClouds
    targets: Tensor
    prepare: Prepare

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return -(-len(self.targets) // PIECE)

    def piece(self, index: int) -> tuple[gd.PointClouds, Tensor]:
        """Return the inputs and the targets of a piece."""
        part = slice(index * PIECE, (index + 1) * PIECE)
        return self.prepare(self.atoms[part]), self.targets[part]

    def sample(self, n: int, seed: int) -> tuple[gd.PointClouds, Tensor]:
        """Return the inputs and the targets of a random sample."""
        order = np.random.default_rng(seed).permutation(len(self.targets))
        chosen = torch.from_numpy(np.sort(order[:n]))
        return self.prepare(self.atoms[chosen]), self.targets[chosen]


def sliced() -> gd.SlicedWasserstein:
    """The distance between clouds of pairs."""
    return gd.SlicedWasserstein(3, num_slices=48, num_quantiles=24)


def predicted(
    split: Split, make: Callable[[gd.PointClouds, Tensor], Any], prepare: Prepare
) -> Predictions:
    """Predict by the line in the counts and a model of its residuals.

    Args:
        split: The molecules.
        make: Makes the model of the training molecules' clouds of atoms and residuals.
        prepare: Maps clouds of atoms to the inputs of the model.
    """
    along = line(split.counts, split.energies, split.train)
    residuals = torch.from_numpy((split.energies - along)[split.train])
    model = gd.fit(make(split.clouds[torch.from_numpy(split.train)], residuals))
    pieces = torch.from_numpy(split.test).split(PIECE)
    mean, std = zip(*(model.predict(prepare(split.clouds[part])) for part in pieces), strict=True)
    return along[split.test] + torch.cat(mean).numpy(), torch.cat(std).numpy()


def counts(split: Split) -> Predictions:
    """Predict by the line in the counts alone."""
    along = line(split.counts, split.energies, split.train)
    deviation = np.std((split.energies - along)[split.train])
    return along[split.test], np.full(len(split.test), deviation)


def exact(split: Split, distance: Distance, prepare: Prepare) -> Predictions:
    """Predict by an exact Gaussian process."""

    def make(atoms: gd.PointClouds, residuals: Tensor) -> gd.DistributionGP:
        return gd.DistributionGP(prepare(atoms), residuals, kernel_of(distance))

    return predicted(split, make, prepare)


def sparse(split: Split, num_inducing: int) -> Predictions:
    """Predict by a sparse Gaussian process on pairs."""

    def make(atoms: gd.PointClouds, residuals: Tensor) -> gd.SparseDistributionGP:
        data, kernel = MoleculePieces(atoms, residuals, pairs), kernel_of(sliced())
        return gd.SparseDistributionGP(data, covar_module=kernel, num_inducing=num_inducing)

    return predicted(split, make, pairs)


def methods(sizes: Sizes, quick: bool) -> Iterator[tuple[str, int, Callable[[Split], Predictions]]]:
    """Yield the name, the number of training molecules and the predictions of each model."""
    rigid = gd.RigidSlicedWasserstein(4, marks=1, num_slices=25 if quick else None)
    for size in sizes.exact:
        yield "counts", size, counts
        yield "rigid", size, partial(exact, distance=rigid, prepare=lambda atoms: atoms)
        yield "pairs", size, partial(exact, distance=sliced(), prepare=pairs)
    for size in sizes.sparse:
        yield "counts", size, counts
        for inducing in sizes.inducing:
            yield f"pairs, M={inducing}", size, partial(sparse, num_inducing=inducing)


def embed_all(clouds: gd.PointClouds) -> None:
    """Make and embed all pairs, and keep none."""
    distance = sliced()
    for start in range(0, len(clouds), PIECE):
        distance.embed(pairs(clouds[start : start + PIECE]).pack())


_MOST = {"name": "pairs, M=4000, 120831"}
_TASK = "QM9, 120,831 molecules, M = 4000"


def minutes(rows: Rows) -> tuple[str, bool]:
    """Return the time from the files of molecules to predictions."""
    seconds = sum(number(find(rows, name=name), "seconds") for name in ("load", _MOST["name"]))
    return f"{seconds / 60:.1f} min", seconds <= 720


TARGETS = (
    limit(f"{_TASK}: mean error, kcal/mol", "<= 4.5", "mae", asked=False, **_MOST),
    limit(f"{_TASK}: coverage of 95% intervals", "0.92 to 0.98", "coverage", asked=False, **_MOST),
    Target(f"{_TASK}: time from files to predictions", "<= 12 min", minutes),
)


def run(options: Options) -> list[Row]:
    """Return one row per model and number of training molecules, after those of data and pairs."""
    sizes = QUICK if options.quick else Sizes()
    start = time.perf_counter()
    molecules = load_molecules(150 if options.quick else None)
    loaded = time.perf_counter()
    embed_all(molecules.clouds)
    embedded = time.perf_counter()
    peak = peak_memory(partial(embed_all, molecules.clouds))
    rows: list[Row] = [
        {"name": "load", "seconds": loaded - start},
        {"name": "make and embed pairs", "seconds": embedded - loaded, "peak_mib": peak},
    ]
    for name, size, predict in progress(list(methods(sizes, options.quick)), "molecules"):
        split = split_of(molecules, size, sizes.held_out)
        start = time.perf_counter()
        mean, std = predict(split)
        seconds = time.perf_counter() - start
        targets = split.energies[split.test]
        found = score_of(targets, mean, std)
        row: Row = {"name": f"{name}, {size}", "mae": float(np.abs(mean - targets).mean())}
        row |= {key: found[key] for key in ("coverage", "nlpd")}
        rows.append(row | {"seconds": seconds})
    return rows


if __name__ == "__main__":
    main(run)
