"""Do published scores of Sinkhorn kernels reproduce, and what does learning the reference gain?

The toy is that of ``gaussian_toy``, with the target of Allain et al. 2024, equation 12. As printed
there, the reference has 6 points of N(0, 0.1 I), epsilon is 0.01, the profile is Gaussian, and kernel
ridge regression predicts the targets of 50 clouds. The score is explained variance.

**Grids.** Cross-validation on the training clouds selects the lengthscale and the ridge. The report
prints no grid. The public notebook of its authors has one: scikit-learn's ``KernelRidge(kernel="rbf")``
with ``alpha`` and ``gamma`` each of .01, .1, .5 and 1, and five folds, on potentials in their own units
(times the root of the number of points, by which ``embed`` divides). ``theirs`` has the mean score with
this grid over 30 draws of clouds and reference, with the standard deviation over draws, the lowest and
the highest. ``ours`` has the mean with lengthscales of 1/2 to 8 median distances and ridges of 1e-10 to
1e-2 on the same draws. ``published`` is one draw: the printed scores of the three references, and for
``eq. 12`` what the panels of the notebook show. Its code centres the reference and applies tanh
(``reparametrize_mu``), so that the far one is not far there; here it is where the report has it.

With their grid the three printed scores reproduce. That of the narrow reference, .627 in the report and
.467 in the notebook, depends on the draw, and it is not a property of the reference: its potentials vary
by thousandths, so that with ``gamma`` <= 1 all clouds look nearly equal, and ``alpha`` >= .01 hides what
is left. Both are selected at the end of the grid. Our grid, finer and in units of the median distance,
gives .9996 in the mean.

**Models.** ``gp`` is a Gaussian process with hyperparameters by marginal likelihood, and
``coverage`` is that of its 95% intervals; scores are means over seeds, with the lowest. Bachoc et al.
draw the deviation uniformly instead of the variance, and their code divides the target by 1 and then
adds sigma; both have a row.

**Dimensions.** Rows ``eq. 12`` keep all other parameters. The text of Allain et al. says that scores
diminish greatly with the dimension, and are still good in three. ``gp`` is as above; ``far`` is ``gp``
with the far reference. ``learned`` is ``gp`` with the reference of 6 points after ``fit_reference``,
guarded by 5 folds. ``more`` is ``gp`` with 20 points of N(0, 0.1 I) and epsilon 0.05. All settings were
fixed on other seeds. In two dimensions, the published score of a Gaussian process whose reference is
learned is 0.997 (Bachoc et al., with a slightly different reference), to be compared with ``learned``. A
reference of m points gives at most m - 1 features, so that 6 points cannot determine a mean in more than
five dimensions.

**Epsilon.** Figure 5 has epsilon from 0 to 49.5 and is nearly level, about 1, up to 6. ``theirs`` is
with their grid in two dimensions; ``d=2``, ``d=4`` and ``d=8`` are with ours; means over seeds, with the
lowest. Zero, for which there is no entropic transport, is here .001.

**Learning.** Rows ``fixed``, ``learned, no guard`` and ``learned`` start from the same reference, which
is kept, or learned in 50 steps without and with the guard of 5 folds; ``steps`` are those taken for each
seed. ``toy d=2`` has deviations uniform in [0.01, 0.02], as in the code of Bachoc et al., the target (m1
+ 0.5 - (m2 + 0.5)^2) / (1 + s), and 6 atoms of N(0, 0.1 I). Their notebooks print root mean squared
errors of .02898, nearly all of it a constant offset (6 learned points, epsilon 0.1), and .00548 (5
points, epsilon 0.01, 40 clouds for training and 60 for testing). ``airfoils``: 200 outlines of 128
points for training and the others for testing, 20 atoms placed by k-means, Matern 5/2 and the default
epsilon. All choices are fixed in advance, and the guard sees training data only.

**Time.** Figure 6 is one run of potentials and grid search, 1.23 to 1.37 s by dimension. Here:
milliseconds to compute the potentials of all 100 clouds, and to select and fit kernel ridge regression
with their grid, medians in one process, beside other work on the machine.

    python -m benchmarks.papers.sinkhorn_toy [--quick] [--seeds 5]
"""

from __future__ import annotations

import copy
import operator
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import explained_variance_score
from sklearn.model_selection import GridSearchCV

import gp_distributions as gd
from benchmarks.harness import Options, Row, Side, Work, drawing, interleave, main, means, progress
from benchmarks.judging import beside, limit
from benchmarks.papers.gaussian_toy import Data, paired_toy, reference, toy
from benchmarks.regression import Scores, kernel_of, score
from benchmarks.shapes import airfoil_clouds
from gp_distributions.warnings import DistributionWarning

LONG = True

EPSILON = 0.01
EPSILONS = (1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 12.5, 25.0, 37.5, 49.5)
DRAWS = 30  # for ridge regression, whose scores vary widely
# Published scores: by reference in two dimensions, and by dimension for equation 12.
REFERENCES = {"normal": 0.998, "far": 0.997, "narrow": 0.627}
DIMENSIONS = {2: 0.993, 3: 0.990, 4: 0.969, 6: 0.940, 8: 0.012}
TIMED = (2, 3, 4, 6, 8, 16, 32, 64)
THEIRS = {"alpha": [0.01, 0.1, 0.5, 1.0], "gamma": [0.01, 0.1, 0.5, 1.0]}
LENGTHSCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)

Array = NDArray[np.float64]


TARGETS = (
    *(
        limit(
            f"Sinkhorn toy, d = 2, {kind} reference, grid of the authors: explained variance",
            reach,
            "theirs",
            name=f"d=2, {kind} reference",
            published=REFERENCES[kind],
        )
        for kind, reach in (("normal", ">= 0.996"), ("far", ">= 0.996"), ("narrow", "0.43 to 0.59"))
    ),
    limit("airfoils, learned reference: R²", ">= 0.86", "r2", name="airfoils: learned"),
    beside(
        "airfoils, learned beside fixed: R²",
        "not below fixed",
        "r2",
        ("airfoils: learned", "airfoils: fixed"),
        operator.ge,
    ),
)


def grid(features: Array) -> dict[str, list[float]]:
    """Return our candidates, in units of the median distance."""
    squared = (np.square(features[:, None] - features)).sum(-1)
    median = float(np.median(squared[np.triu_indices(len(features), 1)]))
    return {
        "gamma": [0.5 / (scale**2 * median) for scale in LENGTHSCALES],
        "alpha": [len(features) * ridge for ridge in RIDGES],
    }


def select(features: Array, targets: Array, candidates: dict[str, list[float]]) -> GridSearchCV:
    """Fit kernel ridge regression on features, with parameters by cross-validation."""
    return GridSearchCV(KernelRidge(kernel="rbf"), candidates, cv=5).fit(features, targets)


def potentials(distance: gd.SinkhornPotential, data: Data) -> tuple[Array, Array]:
    """Compute the features of training and test clouds."""
    with torch.no_grad():
        return distance.embed(data[0].pack()).numpy(), distance.embed(data[2].pack()).numpy()


def krr(data: Data, distance: gd.SinkhornPotential) -> dict[str, float]:
    """Explained variance of kernel ridge regression on potentials with the grid of each side."""
    train, test = potentials(distance, data)
    targets = (data[1] - data[1].mean()).numpy()
    unit = len(distance.reference.points) ** 0.5
    sides = {"theirs": (unit, THEIRS), "ours": (1.0, grid(train))}
    scores = {}
    for side, (factor, candidates) in sides.items():
        fitted = select(factor * train, targets, candidates)
        found = explained_variance_score(data[3], fitted.predict(factor * test))
        scores[side] = float(found)
    return scores


def process(
    name: str, data: Data, distance: gd.SinkhornPotential, steps: int = 0
) -> dict[str, float]:
    """Explained variance and coverage of a Gaussian process, after some steps of the reference."""
    model = gd.DistributionGP(data[0], data[1], kernel_of(distance, "gaussian"))
    if steps:
        gd.fit_reference(model, steps=steps, progress=False)
    else:
        gd.fit(model, progress=False)
    found = score(model, data[2], data[3])
    return {name: found["evs"], f"{name}_coverage": found["coverage"]}


def potential(
    kind: str, dim: int, seed: int, size: int = 6, epsilon: float = EPSILON
) -> gd.SinkhornPotential:
    """The distance for a reference."""
    return gd.SinkhornPotential(reference(kind, dim, seed, size), epsilon=epsilon)


def summary(name: str, scores: Sequence[dict[str, float]], *least: str) -> Row:
    """Return the means of scores, and the lowest of some."""
    lowest = {f"{key}_least": min(one[key] for one in scores) for key in least}
    return {"name": name, **means(scores), **lowest}


def grids(dims: Sequence[int], draws: int) -> list[Row]:
    """Return one row per reference in two dimensions, and one per dimension for equation 12."""
    cases: list[tuple[str, str, int, float]] = [
        *((f"d=2, {kind} reference", kind, 2, score) for kind, score in REFERENCES.items()),
        *((f"eq. 12, d={dim}", "normal", dim, DIMENSIONS[dim]) for dim in dims),
    ]
    rows: list[Row] = []
    for name, kind, dim, published in progress(cases, "grids"):
        scores = [krr(toy(dim, seed), potential(kind, dim, seed)) for seed in range(draws)]
        theirs = [one["theirs"] for one in scores]
        row: Row = {"name": name, "published": published, "theirs": statistics.fmean(theirs)}
        row |= {"sd": statistics.stdev(theirs), "lowest": min(theirs), "highest": max(theirs)}
        ours = [one["ours"] for one in scores]
        rows.append(row | {"ours": statistics.fmean(ours), "ours_lowest": min(ours)})
    return rows


def two_dimensions(seeds: Sequence[int]) -> list[Row]:
    """Return one row per reference, and one per protocol of the code of Bachoc et al."""
    cases: list[tuple[str, str, dict[str, Any]]] = [
        *((f"{kind} reference", kind, {}) for kind in REFERENCES),
        ("deviation uniform", "normal", {"uniform": "deviation"}),
        ("divided by 1, plus sigma", "normal", {"divided": False}),
    ]
    rows: list[Row] = []
    for name, kind, options in cases:
        scores = [
            process("gp", toy(2, seed, **options), potential(kind, 2, seed)) for seed in seeds
        ]
        row = summary(f"d=2, {name}", scores, "gp")
        rows.append(row | {"coverage": row.pop("gp_coverage")})
    return rows


def by_dimension(dims: Sequence[int], seeds: Sequence[int], steps: int) -> list[Row]:
    """Return one row per dimension for equation 12."""
    rows: list[Row] = []
    for dim in progress(dims, "dimensions"):
        scores = []
        for seed in seeds:
            data = toy(dim, seed)
            scores.append(
                process("gp", data, potential("normal", dim, seed))
                | process("far", data, potential("far", dim, seed))
                | process("learned", data, potential("normal", dim, seed), steps)
                | process("more", data, potential("normal", dim, seed, 20, 0.05))
            )
        rows.append(summary(f"eq. 12, d={dim}", scores, "learned", "more"))
    return rows


def by_epsilon(epsilons: Sequence[float], dims: Sequence[int], seeds: Sequence[int]) -> list[Row]:
    """Return one row per epsilon, with their grid in two dimensions and a column per dimension."""
    rows: list[Row] = []
    for epsilon in progress(epsilons, "epsilon"):
        scores = []
        for seed in seeds:
            found = {
                dim: krr(toy(dim, seed), potential("normal", dim, seed, epsilon=epsilon))
                for dim in dims
            }
            ours = {f"d={dim}": one["ours"] for dim, one in found.items()}
            scores.append({"theirs": found[2]["theirs"], **ours})
        row = summary(f"figure 5, epsilon {epsilon:g}", scores, *scores[0])
        rows.append(row | {"epsilon": epsilon})
    return rows


def by_time(dims: Sequence[int], repeats: int) -> list[Row]:
    """Return one row per dimension, with the median time of each part."""

    def sides(dim: int) -> dict[str, Side]:
        data, distance = toy(dim, 0), potential("normal", dim, 0)
        train, _ = potentials(distance, data)

        def embed() -> Work:
            distance.clear_cache()
            return lambda: potentials(distance, data)

        def regress() -> Work:
            return lambda: select(6**0.5 * train, data[1].numpy(), THEIRS)

        return {f"{dim} potentials": embed, f"{dim} ridge": regress}

    every = {name: side for dim in dims for name, side in sides(dim).items()}
    timings = interleave(every, repeats=repeats, label="time by dimension")
    return [
        {"name": f"figure 6, d={dim}"}
        | {f"{p}_ms": 1000 * timings[f"{dim} {p}"].median for p in ("potentials", "ridge")}
        for dim in dims
    ]


def ways(
    name: str,
    data: Sequence[Data],
    start: Callable[[int], gd.SinkhornPotential],
    profile: str,
    steps: int,
) -> list[Row]:
    """Compare a fixed reference with one learned without and with guard, from the same start."""
    rows: list[Row] = []
    for way, guard in {"fixed": 0, "learned, no guard": None, "learned": 5}.items():
        scores: list[Scores] = []
        taken: list[str] = []
        for seed, one in enumerate(progress(data, f"{name}: {way}")):
            kernel = kernel_of(copy.deepcopy(start(seed)), profile)
            model = gd.DistributionGP(one[0], one[1], kernel)
            begin = time.perf_counter()
            if way == "fixed":
                gd.fit(model)
            else:
                result = gd.fit_reference(model, steps=steps, guard=guard, progress=False)
                taken.append(str(len(result.path) - 1))
            seconds = time.perf_counter() - begin
            scores.append(score(model, one[2], one[3]) | {"seconds": seconds})
        smallest = min(one["evs"] for one in scores)
        mean: Row = {key: value for key, value in means(scores).items() if key != "nlpd"}
        row: Row = {"name": f"{name}: {way}", "smallest": smallest, **mean}
        rows.append(row | {"steps": " ".join(taken)})
    return rows


def learning(seeds: Sequence[int]) -> list[Row]:
    """Compare fixed and learned references on the toy and on airfoils."""
    foils, clouds, targets = airfoil_clouds(None, 128)
    indices = [foils.split(200, seed=seed) for seed in seeds]
    data = [(clouds[a], targets[a], clouds[b], targets[b]) for a, b in indices]

    def placed(seed: int) -> gd.SinkhornPotential:
        return gd.SinkhornPotential(gd.ReferenceMeasure.from_data(data[seed][0], 20, seed=seed))

    toys = [paired_toy(2, seed) for seed in seeds]
    normal = partial(potential, "normal", 2)
    return [
        *ways("toy d=2", toys, normal, "gaussian", 50),
        *ways("airfoils", data, placed, "matern52", 50),
    ]


def draw(sweep: list[Row], times: list[Row], options: Options) -> None:
    """Draw figures 5 and 6."""
    with drawing("sinkhorn_toy", options, 2, figsize=(9, 3.6)) as axes:
        labels = {"theirs": "d=2, their grid"} | {f"d={dim}": f"d={dim}" for dim in (2, 4, 8)}
        for name, label in labels.items():
            if name in sweep[0]:
                axes[0].plot(
                    [r["epsilon"] for r in sweep], [r[name] for r in sweep], ".-", label=label
                )
        axes[0].set(xscale="log", xlabel="epsilon", ylabel="explained variance", ylim=(None, 1.02))
        axes[0].legend()
        dims = [int(str(row["name"]).rpartition("=")[2]) for row in times]
        for part, label in (("potentials_ms", "potentials"), ("ridge_ms", "ridge regression")):
            axes[1].plot(dims, [row[part] for row in times], ".-", label=label)
        axes[1].set(xscale="log", yscale="log", xlabel="dimension", ylabel="milliseconds")
        axes[1].set_xticks(dims, [str(dim) for dim in dims])
        axes[1].set_xticks([], minor=True)
        axes[1].legend()


def run(options: Options) -> list[Row]:
    """Measure scores in two dimensions, by dimension and by epsilon, and times."""
    seeds = range(options.seeds)
    dims = (2,) if options.quick else tuple(DIMENSIONS)
    with warnings.catch_warnings():
        # A distant reference does not determine all potentials, and two atoms may see one direction.
        warnings.simplefilter("ignore", DistributionWarning)
        rows = grids(dims, 2 if options.quick else DRAWS)
        rows += [] if options.quick else two_dimensions(seeds) + learning(seeds)
        rows += by_dimension(dims, seeds, 2 if options.quick else 50)
        sweep = by_epsilon(EPSILONS[::11] if options.quick else EPSILONS, dims[::2], seeds)
        times = by_time(TIMED[:2] if options.quick else TIMED, options.repeats)
    draw(sweep, times, options)
    return rows + sweep + times


if __name__ == "__main__":
    main(run)
