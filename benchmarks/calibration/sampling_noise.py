"""Do intervals keep their coverage for bags of other sizes than the model was trained on?

The benchmark compares 95% intervals of ``DistributionGP(..., sampling_noise=True)`` after ``fit``
with those of the same model without sampling noise. The 100 training bags have 5, 10, 30 and 100
points in equal parts, tested at each of these sizes, or all have 50 points, tested at that size and
at smaller ones. There are 500 test bags of each size; results are means over seeds.

Toys: Gaussians N(m, s^2 I) with m uniform on [-1, 1]^2. Toy A has s uniform on [0.1, 0.5] and the
target (m1 + 0.5 - (m2 + 0.5)^2) / (1 + s) of Bachoc et al. 2023, here with spreads for which sampling
matters. Toy B has log s uniform on [-1, 1] and the target log s. Airfoils: lift-to-drag ratios from
points drawn from the outline, uniform in arc length, with standardised coordinates; airfoils not used
for training are candidates for testing.

For bags of one size, two alternatives need no parameter of sampling noise. ``refit`` fits a model to
training bags subsampled to the test size. ``excess`` adds the excess variance of the bootstrap to the
predicted variance, (n / (n - 1) var + bias^2) (1 - n / 50) of the posterior mean over 20 resamples.

Each of ``--seeds`` stands for four seeds, 20 in total by default.

Columns: coverage with its standard error over seeds, and its target; the mean standard deviation
relative to the model without sampling noise; log densities in nats.

    python -m benchmarks.calibration.sampling_noise [--quick] [--seeds 5]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import Judge, Rows, Target, number
from benchmarks.regression import Scores, kernel_of
from benchmarks.shapes import airfoil_clouds
from gp_distributions.datasets import Airfoils
from gp_distributions.metrics import calibration

MIXED, ONE = (5, 10, 30, 100), 50
TRAIN, TEST = 100, 500  # numbers of bags
RESAMPLES = 20


def judged(name: str, tested: str, low: float, high: float) -> Judge:
    """Return a judge of coverage at one size or ``"each"``, or of the width at trained sizes."""
    column = "width" if tested in ("all", str(ONE)) else "coverage"

    def judge(rows: Rows) -> tuple[str, bool]:
        mine = [r for r in rows if r.get("name") == name and r.get("model") == "sampling noise"]
        sizes = [*map(str, MIXED)] if tested == "each" else [tested]
        values = [number(row, column) for row in mine if str(row["tested on"]) in sizes]
        if not values:
            raise LookupError(name)
        return " ".join(f"{v:.3f}" for v in values), all(low <= v <= high for v in values)

    return judge


_WIDTH = ("width at the same sizes", "width <= 1.03", 0.0, 1.03)
TARGETS = tuple(
    Target(
        f"sampling noise, {data}, trained on {text}: {figure}",
        target,
        judged(f"{data}, trained on {sizes}", tested, low, high),
        "From bags of several sizes, the marginal likelihood learns a variance of c / n, that of "
        "averages; what these targets lose by few points, a bias included, grows faster.",
        asked=data == "airfoils" and tested in ("each", "5"),
    )
    for data in ("toy A", "toy B", "airfoils")
    for sizes, text, tested, (figure, target, low, high) in (
        (
            "5, 10, 30, 100",
            "mixed sizes",
            "each",
            ("coverage at each size", ".92 to .97", 0.92, 0.97),
        ),
        ("5, 10, 30, 100", "mixed sizes", "all", _WIDTH),
        ("50", "50 points", "5", ("coverage at 5 points", ".91 to .98", 0.91, 0.98)),
        ("50", "50 points", "50", _WIDTH),
    )
)


@dataclass(frozen=True)
class Data:
    """Training bags with targets, and test bags with targets for each size."""

    clouds: gd.PointClouds
    targets: Tensor
    tests: dict[int, tuple[gd.PointClouds, Tensor]]
    profile: str = "matern52"

    def model(self, clouds: gd.PointClouds | None = None, **options: bool) -> gd.DistributionGP:
        """Fit a model to the training bags, or to ``clouds`` in their place."""
        kernel = kernel_of(gd.SlicedWasserstein(2), self.profile)
        inputs = self.clouds if clouds is None else clouds
        return gd.fit(gd.DistributionGP(inputs, self.targets, kernel, **options))


def toy(
    kind: str, seed: int, train: Sequence[int], test: Sequence[int], numbers: tuple[int, int]
) -> Data:
    """Bags of points from Gaussians; training bags take the given sizes in turn."""
    draws = Draws(seed)

    def distributions(num: int) -> tuple[Tensor, Tensor, Tensor]:
        mean = draws.uniform(num, 2, low=-1, high=1)
        if kind == "A":
            std = draws.uniform(num, low=0.1, high=0.5)
            return mean, std, (mean[:, 0] + 0.5 - (mean[:, 1] + 0.5).square()) / (1 + std)
        std = draws.uniform(num, low=-1, high=1).exp()
        return mean, std, std.log()

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


def refit(data: Data, size: int, seed: int) -> Prediction:
    """Predict bags of one size with a model fitted to training bags subsampled to it."""
    generator = torch.Generator().manual_seed(seed)
    points = [p[torch.randperm(len(p), generator=generator)[:size]] for p in data.clouds.points]
    return data.model(gd.PointClouds.from_list(points)).predict(data.tests[size][0])


def excess(model: gd.DistributionGP, data: Data, size: int, seed: int) -> Prediction:
    """Predict with the excess variance of the bootstrap."""
    clouds = data.tests[size][0]
    mean, std = model.predict(clouds)
    generator = torch.Generator().manual_seed(seed)
    resampled = torch.stack(
        [model.predict(clouds.resample(size, seed=generator))[0] for _ in range(RESAMPLES)]
    )
    more = size / (size - 1) * resampled.var(0) + (resampled.mean(0) - mean).square()
    return mean, (std.square() + more * max(0.0, 1 - size / ONE)).sqrt()


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
                if train == (ONE,) and size == 5:
                    ways["refit"] = refit(data, size, seed)
                    ways["excess"] = excess(plain, data, size, seed)
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


def run(options: Options) -> list[Row]:
    """Measure both toys, then airfoils."""
    rows = compare("toy A", functools.partial(toy, "A"), options)
    if not options.quick:
        rows += compare("toy B", functools.partial(toy, "B"), options)
        rows += compare("airfoils", airfoils, options)
    return rows


if __name__ == "__main__":
    main(run)
