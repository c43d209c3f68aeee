r"""How well is the entropy of a marginal learned from bags of a rotated normal distribution?

This is a task of Szabo et al. 2015, whose main paper has no parameters of it: they are after the longer
version (Journal of Machine Learning Research 2016), not checked against the supplement. Each experiment
draws a matrix :math:`A` with entries uniform on [0, 1], and 100 angles :math:`\beta` uniform on [0, pi].
A bag has ``n`` points from :math:`N(0, R_\beta A A^\top R_\beta^\top)`, where :math:`R_\beta` is the
rotation by :math:`\beta`. Its target, observed without noise, is the entropy
:math:`\frac12 \log(2 \pi e \sigma^2)` of the first coordinate, which has variance :math:`\sigma^2`.
There are 25 bags for training, 25 for validation and 50 for testing. Like these numbers, n = 500 and 25
experiments are after the longer version; here each seed has 5 experiments. If :math:`A` is nearly
singular, the entropy has a deep and narrow minimum, so errors vary widely between experiments.

Columns are root mean squared errors on test bags in nats, medians over experiments:

- ``constant``: predicts the mean of the training targets; ``plug_in``: the entropy for the variance
  of the first coordinates of a bag, which uses the formula of the target;
- ``linear`` to ``inverse_multiquadric``: kernel ridge regression on mean embeddings (Gaussian, 300
  Fourier features) with the kernels ``K`` of Szabo et al. 2015, Table 1: the set kernel, and profiles
  of the MMD (``student_t`` with t = 1). The error on validation bags selects the bandwidth, 1/4 to 4
  median distances between points; the lengthscale, 1/2 to 16 median distances between bags; and one
  of 19 ridges from 1e-12 to 1e-3;
- ``gp_mmd``: a Gaussian process with a Matern profile of the MMD at the median bandwidth; ``gp``: the
  same with SW2. Their hyperparameters maximise the marginal likelihood of the training bags.
  ``gp_all``: as ``gp``, trained on the validation bags too;
- ``coverage``: of the 95% intervals of ``gp``; ``worst``: its largest error over experiments;
  ``worst_krr``: that of ridge regression with the ``gaussian`` profile.

    python -m benchmarks.papers.entropy_regression [--quick] [--seeds 5]
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.draws import Draws, rotations
from benchmarks.harness import Options, Row, main, progress
from benchmarks.regression import Scores, fitted, score
from gp_distributions.distances import Distance
from gp_distributions.kernels.profiles import make_profile

SIZES = (20, 50, 100, 500)
TRAIN, VALIDATION, TEST = 25, 25, 50
EXPERIMENTS = 5  # of a seed
FEATURES = 300
PROFILES = ("gaussian", "exponential", "cauchy", "student_t", "inverse_multiquadric")
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
LENGTHSCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
RIDGES = torch.logspace(-12, -3, 19).double()


def experiment(points: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points of all bags, ``100 x n x 2``, and their targets."""
    draws, count = Draws(seed), TRAIN + VALIDATION + TEST
    factor = draws.uniform(2, 2)
    factors = rotations(math.pi * draws.uniform(count)) @ factor
    noise = draws.normal(count, points, 2)
    return noise @ factors.mT, entropy(factors[:, 0].square().sum(-1))


def entropy(variance: Tensor) -> Tensor:
    """The entropy of a normal distribution."""
    return 0.5 * (2 * math.pi * math.e * variance).log()


def mean_embeddings() -> gd.MMD:
    """Distance between mean embeddings, with the median bandwidth of the first rows seen."""
    return gd.MMD(2, num_features=FEATURES, features="quasi_random")


def covariances(rows: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each profile and the covariances of all bags, for each lengthscale."""
    for factor in BANDWIDTHS:
        distance = mean_embeddings()
        distance.adapt(rows[:TRAIN])
        bandwidth = distance.bandwidth
        assert bandwidth is not None
        distance.bandwidth = factor * bandwidth
        embedded = distance.embed(rows)
        yield "linear", embedded @ embedded.T
        squared = distance.squared(rows)
        median = squared[:TRAIN, :TRAIN][~torch.eye(TRAIN, dtype=torch.bool)].median()
        for name in PROFILES:
            profile = make_profile(name)
            for lengthscale in LENGTHSCALES:
                yield name, profile(squared / (lengthscale**2 * median))


def ridge_errors(rows: Tensor, targets: Tensor) -> Scores:
    """Test error of ridge regression for each profile, selected on validation bags."""
    mean = targets[:TRAIN].mean()
    best: Scores = {}
    error: Scores = {}
    for name, covariance in covariances(rows):
        values, vectors = torch.linalg.eigh(covariance[:TRAIN, :TRAIN])
        weights = (vectors.T @ (targets[:TRAIN] - mean)) / (values + TRAIN * RIDGES.unsqueeze(-1))
        guesses = mean + weights @ (covariance[TRAIN:, :TRAIN] @ vectors).T
        squares = (guesses - targets[TRAIN:]).square()
        validation, which = squares[:, :VALIDATION].mean(-1).min(0)
        if validation < best.get(name, math.inf):
            best[name] = float(validation)
            error[name] = float(squares[which, VALIDATION:].mean().sqrt())
    return error


def scores(points: int, seed: int) -> Scores:
    """All errors in one experiment."""
    bags, targets = experiment(points, seed)
    rows, test = gd.PointClouds(bags).pack(), targets[-TEST:]

    def gp(distance: Distance, train: int = TRAIN) -> Scores:
        return score(fitted(distance, rows[:train], targets[:train]), rows[-TEST:], test)

    def rmse(guesses: Tensor) -> float:
        return float((test - guesses).square().mean().sqrt())

    sliced = gd.SlicedWasserstein(2)
    found = gp(sliced)
    return {
        "constant": rmse(targets[:TRAIN].mean()),
        "plug_in": rmse(entropy(bags[-TEST:, :, 0].square().mean(-1))),
        **ridge_errors(rows, targets),
        "gp_mmd": gp(mean_embeddings())["rmse"],
        "gp": found["rmse"],
        "gp_all": gp(sliced, TRAIN + VALIDATION)["rmse"],
        "coverage": found["coverage"],
    }


def run(options: Options) -> list[Row]:
    """Return one row per bag size."""
    sizes, experiments = (SIZES[:1], 1) if options.quick else (SIZES, EXPERIMENTS)
    rows: list[Row] = []
    for points in sizes:
        seeds = progress(range(experiments * options.seeds), f"n = {points}")
        found = [scores(points, seed) for seed in seeds]
        columns = {key: [one[key] for one in found] for key in found[0]}
        coverage = statistics.fmean(columns.pop("coverage"))
        row: Row = {key: statistics.median(values) for key, values in columns.items()}
        worst = {"worst": max(columns["gp"]), "worst_krr": max(columns["gaussian"])}
        rows.append({"n": points, **row, "coverage": coverage, **worst})
    return rows


if __name__ == "__main__":
    main(run)
