"""The tasks of ``calibration_ledger``: real data that packages carry, then toys with known truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor

import gp_distributions as gd
from benchmarks import shapes
from benchmarks.data import textures
from benchmarks.data.cells import load_cells
from benchmarks.data.molecules import load_molecules
from benchmarks.data.patients import random_patients
from benchmarks.data.solids import random_solids
from benchmarks.papers import entropy_regression, mode_counting
from benchmarks.prediction import molecules, scaled_distance

Array = NDArray[np.float64]
Inputs = gd.PointClouds | gd.MixedInputs
Data = tuple[Inputs, Any]  # inputs and targets or labels
# Data of so many objects, of which the last, so many, are for testing, from a seed.
Make = Callable[[int, int, int], Data]
# Largest number of objects of a data set that are read.
MOST = 2200


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        make: Function of the number of objects, the number of those for testing, and the seed.
        pool: Number of objects that there are, if it is limited.
        pose: Whether the pose of shapes is unknown, so that distances have to be blind to it.
        samples: Whether bags are samples of different sizes. Sampling noise is the same for bags of one
            size, so that a model with it is then the default model.
        needs: Package whose files are read, if it is not a dependency.
    """

    make: Make
    pool: int | None = None
    pose: bool = False
    samples: bool = False
    needs: str = ""

    @property
    def available(self) -> bool:
        """Whether the data are installed."""
        return not self.needs or find_spec(self.needs) is not None


def drawn_from(load: Callable[[], Data], size: int, needs: str = "", **more: bool) -> Task:
    """Return a task that draws from a data set of so many objects."""

    def make(number: int, test: int, seed: int) -> Data:
        X, y = load()
        order = np.random.default_rng(seed).permutation(len(y))[:number]
        return X[torch.from_numpy(order)], y[order]

    return Task(make, size, needs=needs, **more)


# Real data


@cache
def foils() -> tuple[gd.PointClouds, dict[str, Tensor]]:
    """Outlines of airfoils, with their coefficients at an angle of attack of 4 degrees."""
    found, clouds, ratios = shapes.airfoil_clouds(None, 64)
    flow = shapes.flow(shapes.kulfan_parameters(found), 4.0)
    values = {name: torch.from_numpy(np.array(flow[name])) for name in ("CL", "CD", "CM")}
    return clouds, values | {"CL/CD": ratios}


def in_pose(clouds: gd.PointClouds) -> gd.PointClouds:
    """Turn outlines at random."""
    return gd.PointClouds(shapes.turned(clouds.points, 0), clouds.weights)


@cache
def cells() -> tuple[gd.PointClouds, Tensor]:
    """Outlines of cells and their circularity."""
    outlines = load_cells().outlines
    return gd.PointClouds.from_curves(outlines, atoms=64), shapes.circularity(outlines).log()


@cache
def some_molecules(what: str) -> Data:
    """Pairs of atoms, and what a line in the counts leaves of energies, or others."""
    found = load_molecules(MOST, seed=0)
    clouds, energies = molecules.pairs(found.clouds), molecules.atomisation(found)
    if what == "dipole":
        return clouds, torch.from_numpy(found.properties["mu"])
    if what == "counts":
        X = gd.MixedInputs(pairs=clouds, counts=found.counts.astype(np.float64))
        return X, torch.from_numpy(energies)
    return clouds, torch.from_numpy(energies - molecules.line(found.counts, energies, slice(None)))


@cache
def digit_images() -> tuple[gd.PointClouds, Tensor]:
    """Images of digits and their total intensity."""
    images = load_digits().images
    return gd.PointClouds.from_images(images), torch.from_numpy(images.sum((1, 2)))


@cache
def texture_patches() -> tuple[gd.PointClouds, Tensor, NDArray[np.str_]]:
    """Co-occurrence matrices of relit patches of textures, their contrasts, and the textures."""
    parts = [textures.patches(each, textures.SIDE) for each in textures.photographs()]
    relit, contrast = textures.relit(np.concatenate(parts), np.random.default_rng(0))
    matrices = textures.cooccurrence(relit, 16)
    labels = np.repeat(textures.TEXTURES, [len(part) for part in parts])
    return gd.PointClouds.from_images(matrices), torch.from_numpy(contrast.flatten()), labels


# Toys


def random_bags(
    number: int,
    test: int,
    seed: int,
    *,
    noise: str = "normal",
    sizes: tuple[int, int] = (50, 50),
    test_sizes: tuple[int, int] | None = None,
    beyond: bool = False,
) -> Data:
    r"""Draw bags of N(m, s^2 I) in the plane and targets about :math:`f = \log s + m_1 - m_2^2`."""
    rng = np.random.default_rng(seed)
    last = np.arange(number) >= number - test
    spreads = np.exp(rng.uniform(math.log(0.2), math.log(0.8), number))
    spreads = np.where(last & beyond, 0.8 * spreads / 0.2, spreads)
    means = rng.uniform(-1, 1, (number, 2))
    pairs = zip(sizes, test_sizes or sizes, strict=True)
    low, high = (np.where(last, math.log(b), math.log(a)) for a, b in pairs)
    counts = np.exp(rng.uniform(low, high)).round().astype(int)
    bags = [
        mean + spread * rng.standard_normal((count, 2))
        for mean, spread, count in zip(means, spreads, counts, strict=True)
    ]
    f = np.log(spreads) + means[:, 0] - means[:, 1] ** 2
    return gd.PointClouds.from_list(bags), torch.from_numpy(_NOISE[noise](f, rng))


_NOISE: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "normal": lambda f, rng: f + 0.1 * rng.standard_normal(len(f)),
    "heavy": lambda f, rng: f + 0.1 * rng.standard_t(2, len(f)),
    "contaminated": lambda f, rng: (
        f + np.where(rng.random(len(f)) < 0.05, 5.0, 0.1) * rng.standard_normal(len(f))
    ),
    "heteroscedastic": lambda f, rng: f + 0.2 * np.exp(f + 1) * rng.standard_normal(len(f)),
    "counts": lambda f, rng: rng.poisson(np.exp(f + 2)).astype(float),
    "binary": lambda f, rng: (rng.random(len(f)) < 1 / (1 + np.exp(-4 * (f + 1)))).astype(float),
    "none": lambda f, rng: f,
}


def patients(number: int, test: int, seed: int) -> Data:
    """Bags of cells beside age, sex and arm, and a response."""
    found = random_patients(number, dim=4, sizes=(50, 200), seed=seed)
    return found.inputs, torch.from_numpy(found.response)


def solids(number: int, test: int, seed: int) -> Data:
    """Solids in random pose."""
    found = random_solids(number, num_points=100, seed=seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(number))
    return gd.PointClouds(found.turned)[order], torch.from_numpy(found.targets)[order]


def markers(number: int, test: int, seed: int) -> Data:
    """Bags of 12 markers, of which 3 matter."""
    clouds, y = scaled_distance.marker_bags(seed)
    return clouds[:number], y[:number]


def entropy(number: int, test: int, seed: int) -> Data:
    """Bags of 100 points of rotated normal distributions and the entropies of a marginal."""
    points, y = entropy_regression.experiment(100, seed)
    return gd.PointClouds(points[:number]), y[:number]


def modes(number: int, test: int, seed: int) -> Data:
    """Bags of Gaussian mixtures and their numbers of components."""
    return mode_counting.counted(number, 50, 10, 2, seed, kept=number)


def toy(pool: int | None = None, *, samples: bool = False, **options: Any) -> Task:
    """Return a toy, of which at most ``pool`` bags are drawn at a time."""
    return Task(partial(random_bags, **options), pool, samples=samples)


def _airfoils(name: str) -> Task:
    return drawn_from(lambda: (foils()[0], foils()[1][name]), 1874, "aerosandbox")


def _molecules(what: str) -> Task:
    return drawn_from(partial(some_molecules, what), MOST, "qm9pack")


REGRESSION = {
    **{f"airfoils, {name}": _airfoils(name) for name in ("CL/CD", "CL", "CD", "CM")},
    "turned airfoils, CL/CD": drawn_from(
        cache(lambda: (in_pose(foils()[0]), foils()[1]["CL/CD"])), 1874, "aerosandbox", pose=True
    ),
    "cells, circularity": drawn_from(cells, 650, "geomstats", pose=True),
    "molecules, energy": _molecules("energy"),
    "molecules, dipole": _molecules("dipole"),
    "molecules and counts": _molecules("counts"),
    "digits, ink": drawn_from(digit_images, 1797),
    "textures, contrast": drawn_from(lambda: texture_patches()[:2], 768, "skimage"),
    "patients": Task(patients),
    "solids": Task(solids, pose=True),
    "markers": Task(markers, 410, samples=True),
    "entropy": Task(entropy, 100),
    "normal noise": toy(),
    "normal noise, bags of 5 to 500": toy(sizes=(5, 500), samples=True),
    "no noise, bags of 5": toy(noise="none", sizes=(5, 5)),
    "no noise, bags of 5000": toy(180, noise="none", sizes=(5000, 5000)),
    "no noise, bags of 5 to 5000": toy(500, noise="none", sizes=(5, 5000), samples=True),
    "heavy tails": toy(noise="heavy"),
    "contaminated": toy(noise="contaminated"),
    "heteroscedastic": toy(noise="heteroscedastic"),
    "counts": toy(noise="counts"),
    "zeros and ones": toy(noise="binary"),
    "modes": Task(modes),
    "shifted: wider bags": toy(beyond=True),
    "shifted: bags of 5 after 500": toy(sizes=(500, 500), test_sizes=(5, 5), samples=True),
}
LABELS = {
    "cells, line": drawn_from(
        lambda: (cells()[0], load_cells().lines), 650, "geomstats", pose=True
    ),
    "cells, treatment": drawn_from(
        lambda: (cells()[0], load_cells().treatments), 650, "geomstats", pose=True
    ),
    "digits": drawn_from(lambda: (digit_images()[0], load_digits().target.astype(str)), 1797),
    "textures": drawn_from(lambda: texture_patches()[::2], 768, "skimage"),
}
