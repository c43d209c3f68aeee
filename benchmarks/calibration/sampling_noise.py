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
from gpytorch.kernels import ScaleKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, main
from benchmarks.judging import Judge, Rows, Target, number
from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel, fit
from gp_distributions.calibration import calibration
from gp_distributions.datasets import Airfoils, load_airfoils

MIXED, ONE = (5, 10, 30, 100), 50
TRAIN, TEST = 100, 500  # numbers of bags
RESAMPLES = 20


@dataclass(frozen=True)
class Data:
    """Training bags with targets, and test bags with targets for each size."""

    clouds: PointClouds
    targets: Tensor
    tests: dict[int, tuple[PointClouds, Tensor]]
    profile: str = "matern52"

    def model(self, clouds: PointClouds | None = None, **options: bool) -> DistributionGP:
        """Fit a model to the training bags, or to ``clouds`` in their place."""
        kernel = ScaleKernel(SlicedWassersteinKernel(2, profile=self.profile))
        inputs = self.clouds if clouds is None else clouds
        return fit(DistributionGP(inputs, self.targets, kernel, **options))


def toy(
    kind: str, seed: int, train: Sequence[int], test: Sequence[int], numbers: tuple[int, int]
) -> Data:
    """Bags of points from Gaussians; training bags take the given sizes in turn."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)

    def distributions(num: int) -> tuple[Tensor, Tensor, Tensor]:
        mean = uniform(-1, 1, num, 2)
        if kind == "A":
            std = uniform(0.1, 0.5, num)
            return mean, std, (mean[:, 0] + 0.5 - (mean[:, 1] + 0.5).square()) / (1 + std)
        std = uniform(-1, 1, num).exp()
        return mean, std, std.log()

    def draw(mean: Tensor, std: Tensor, sizes: Sequence[int]) -> PointClouds:
        return PointClouds.from_list(
            m + s * torch.randn(size, 2, generator=generator, dtype=torch.float64)
            for m, s, size in zip(mean, std, sizes, strict=True)
        )

    num_train, num_test = numbers
    mean, std, targets = distributions(num_train)
    clouds = draw(mean, std, _in_turn(train, num_train))
    mean, std, test_targets = distributions(num_test)
    tests = {n: (draw(mean, std, [n] * num_test), test_targets) for n in test}
    return Data(clouds, targets, tests)


def airfoils(
    seed: int, train: Sequence[int], test: Sequence[int], numbers: tuple[int, int]
) -> Data:
    """Bags of points on the outlines of airfoils."""
    foils, outlines = _outlines()
    lift_to_drag = torch.from_numpy(foils.lift_to_drag)
    num_train, num_test = numbers
    train_indices, rest = map(torch.from_numpy, foils.split(num_train, seed=seed))
    generator = torch.Generator().manual_seed(seed)

    def draw(indices: Tensor, sizes: Sequence[int]) -> PointClouds:
        return PointClouds.from_list(
            outlines[i][torch.randperm(len(outlines[i]), generator=generator)[:size]]
            for i, size in zip(indices.tolist(), sizes, strict=True)
        )

    test_indices = rest[:num_test]
    return Data(
        draw(train_indices, _in_turn(train, num_train)),
        lift_to_drag[train_indices],
        {n: (draw(test_indices, [n] * num_test), lift_to_drag[test_indices]) for n in test},
        profile="exponential",
    )


@functools.cache
def _outlines() -> tuple[Airfoils, Tensor]:
    """Load the airfoils, and many points of each."""
    foils = load_airfoils()
    return foils, PointClouds.from_curves(foils.outlines, atoms=1024).normalize().points


def _in_turn(sizes: Sequence[int], number: int) -> list[int]:
    return [sizes[i % len(sizes)] for i in range(number)]


Prediction = tuple[Tensor, Tensor]


def refit(data: Data, size: int, seed: int) -> Prediction:
    """Predict bags of one size with a model fitted to training bags subsampled to it."""
    generator = torch.Generator().manual_seed(seed)
    points = [p[torch.randperm(len(p), generator=generator)[:size]] for p in data.clouds.points]
    return data.model(PointClouds.from_list(points)).predict(data.tests[size][0])


def excess(model: DistributionGP, data: Data, size: int, seed: int) -> Prediction:
    """Predict with the excess variance of the bootstrap."""
    clouds = data.tests[size][0]
    mean, std = model.predict(clouds)
    generator = torch.Generator().manual_seed(seed)
    resampled = torch.stack(
        [model.predict(clouds.resample(size, seed=generator))[0] for _ in range(RESAMPLES)]
    )
    more = size / (size - 1) * resampled.var(0) + (resampled.mean(0) - mean).square()
    return mean, (std.square() + more * max(0.0, 1 - size / ONE)).sqrt()


def compare(name: str, make: Callable[..., Data], options: Options) -> list[Row]:
    """Return the rows of one data set: mixed sizes, then one size."""
    rows: list[Row] = []
    numbers = (20, 20) if options.quick else (TRAIN, TEST)
    for train, test in ((MIXED, MIXED), ((ONE,), (5, 10, 25, ONE))):
        found: dict[tuple[int | str, str], list[dict[str, float]]] = {}
        label = f"{name}, trained on {', '.join(map(str, train))}"
        seeds = options.seeds if options.quick else 4 * options.seeds
        for seed in tqdm(range(seeds), desc=label, leave=False, disable=None):
            data = make(seed, train, test, numbers)
            plain, ours = data.model(), data.model(sampling_noise=True)
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
                found["all", way] = [_mean(results) for results in by_size]
        for (tested, way), results in found.items():
            width = _mean(results)["std"] / _mean(found[tested, "without"])["std"]
            rows.append(summary(label, tested, way, results, width))
    return rows


def scores(targets: Tensor, predicted: Prediction) -> dict[str, float]:
    """Measure the calibration on test bags of one size."""
    found = calibration(targets, *predicted)
    return {
        "coverage": float(found.coverage),
        "std": float(predicted[1].mean()),
        "nlpd": float(found.nlpd),
        "crps": float(found.crps),
    }


def summary(
    label: str, size: int | str, way: str, results: Sequence[dict[str, float]], width: float
) -> Row:
    """Return one row with means over seeds and their targets."""
    mean = _mean(results)
    return {
        "name": label,
        "tested on": str(size),
        "model": way,
        "coverage": mean["coverage"],
        "error": float(np.std([r["coverage"] for r in results]) / np.sqrt(len(results))),
        "width": width,
        "nlpd": mean["nlpd"],
        "crps": mean["crps"],
    }


def _mean(results: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([r[key] for r in results])) for key in results[0]}


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


def run(options: Options) -> list[Row]:
    """Measure both toys, then airfoils."""
    rows = compare("toy A", functools.partial(toy, "A"), options)
    if not options.quick:
        rows += compare("toy B", functools.partial(toy, "B"), options)
        rows += compare("airfoils", airfoils, options)
    return rows


if __name__ == "__main__":
    main(run)
