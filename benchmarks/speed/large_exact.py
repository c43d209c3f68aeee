"""How close does an exact fit of thousands of clouds come to the cost of its factorisations?

Ours: ``fit(DistributionGP(clouds, targets))`` with default options, for T Gaussian clouds of 40 points
in the plane with noisy targets. It includes the distances; the clouds are in memory.

- ``/ Cholesky and inverse`` divides its time by that of one Cholesky factor and one inverse of a T x T
  matrix, timed in turn with the fits. ``evaluations`` of the marginal likelihood of all clouds count.
- ``/ automatic gradients``, timed in turn, divides it by the time of a fit of the same model without a
  subset of the clouds, whose gradients PyTorch computes by differentiating the Cholesky factor. All fits
  of earlier versions went that way.
- ``gain`` is what the fit reaches in log marginal likelihood per cloud, beyond a fit of the same model
  without a subset: its likelihood is a subclass, for which ``fit`` takes all clouds from the start.
  ``all_s`` is the time of that fit.

Budgets are 45 pairs of factor and inverse for T = 2000, four minutes for T = 5000, a gain of no less
than -1e-4, and no more time than with automatic gradients for T = 500.

    python -m benchmarks.speed.large_exact [--quick] [--repeats 9]
"""

from __future__ import annotations

import copy
import time
import warnings
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, Work, compare, interleave, main
from benchmarks.judging import Rows, Target, limit, number
from benchmarks.speed.clouds import fixed
from gp_distributions import DistributionGP, PointClouds, fit
from gp_distributions.fitting.ascent import Ascent
from gp_distributions.warnings import CostWarning

SLOW = 5000


def least_gain(rows: Rows) -> tuple[str, bool]:
    """Return the least gain in log marginal likelihood over seeds."""
    gains = [number(row, "gain") for row in rows if row.get("gain") is not None]
    if not gains:
        raise LookupError("no gains")
    return f"{min(gains):.1g}", min(gains) >= -1e-4


TARGETS = (
    limit(
        "exact fit, T = 2000, n = 40, d = 2, over one Cholesky factor and inverse",
        "<= 45",
        "ratio",
        name="fit / Cholesky and inverse, T=2000 n=40 d=2",
    ),
    limit(
        "exact fit, T = 5000, n = 40, d = 2",
        "<= 240 s",
        "ours_s",
        name="fit / Cholesky and inverse, T=5000 n=40 d=2",
        asked=True,
    ),
    limit(
        "exact fit, T = 500, n = 40, d = 2, over one with automatic gradients",
        "<= 1",
        "ratio",
        name="fit / automatic gradients, T=500 n=40 d=2",
    ),
    Target(
        "exact fit, T = 2000: log marginal likelihood per cloud over a fit of all clouds from the start",
        ">= -1e-4",
        least_gain,
    ),
)


class OtherLikelihood(GaussianLikelihood):
    """A Gaussian likelihood under another name."""


def model_of(clouds: int, seed: int) -> DistributionGP:
    """Model Gaussian clouds, and noisy targets that depend on their means and spreads."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(clouds, 1, 2))
    spreads = np.exp(0.5 * rng.normal(size=(clouds, 1, 2)))
    points = means + spreads * rng.normal(size=(clouds, 40, 2))
    signal = np.sin(2 * means[:, 0, 0]) + np.log(spreads[:, 0, 1]) * means[:, 0, 1]
    return DistributionGP(PointClouds(points), signal + 0.1 * rng.normal(size=clouds))


def likelihood_of(model: DistributionGP) -> float:
    """Return the log marginal likelihood per cloud."""
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with torch.no_grad():
        return float(mll(model(*model.train_inputs), model.train_targets))


def fitted(model: DistributionGP) -> DistributionGP:
    """Fit a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostWarning)
        return fit(model, progress=False)


def evaluations(model: DistributionGP) -> int:
    """Fit, and count the evaluations of the marginal likelihood of all clouds."""
    sizes: list[int] = []
    loss = Ascent.loss

    def counted(ascent: Ascent, mll: Any, *known: Any) -> Tensor:
        sizes.append(len(mll.model.train_targets))
        return loss(ascent, mll, *known)

    with mock.patch.object(Ascent, "loss", counted):
        fitted(model)
    return sizes.count(len(model.train_targets))


def on_all(model: DistributionGP) -> DistributionGP:
    """Return a copy that ``fit`` does not fit to a subset first."""
    general = copy.deepcopy(model)
    general.likelihood.__class__ = OtherLikelihood
    return general


def gain(clouds: int, seed: int) -> Row:
    """Compare the fit with one that takes all clouds from the start."""
    model = model_of(clouds, seed)
    general = on_all(model)
    start = time.perf_counter()
    fitted(general)
    seconds = time.perf_counter() - start
    more = likelihood_of(fitted(model)) - likelihood_of(general)
    return {"name": f"fit, T={clouds}, seed {seed}", "gain": more, "all_s": seconds}


def by_autograd(columns: Tensor, covariance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Compute quadratic forms and a log determinant in steps that PyTorch differentiates."""
    factor = torch.linalg.cholesky(covariance + torch.diag_embed(noise))
    solved = torch.linalg.solve_triangular(factor, columns, upper=False)
    logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return solved.mT @ solved, logdet


def compare_fits(clouds: int, repeats: int) -> Row:
    """Time fits of one size beside a factorisation."""
    model = model_of(clouds, 0)
    half = Draws(0).normal(clouds, 50)
    matrix = half @ half.T + torch.eye(clouds)

    def fits() -> Work:
        return partial(fitted, copy.deepcopy(model))  # the distance, not what it remembers

    def factorise() -> Tensor:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrix))

    sides = {"fit": fits, "pair": fixed(factorise)}
    slow = clouds == SLOW
    timings = interleave(sides, repeats=repeats, warmup=not slow, label=f"fit, T={clouds}")
    name = f"fit / Cholesky and inverse, T={clouds} n=40 d=2"
    count = None if slow else evaluations(copy.deepcopy(model))
    return compare(name, *timings.values(), evaluations=count)


def compare_gradients(clouds: int, repeats: int) -> Row:
    """Time a fit beside one with automatic gradients."""
    model = model_of(clouds, 0)

    def differentiate(mine: DistributionGP) -> DistributionGP:
        with mock.patch("gp_distributions.fitting.concentrated.quadratic_forms", by_autograd):
            return fitted(mine)

    sides = {
        "fit": lambda: partial(fitted, copy.deepcopy(model)),
        "automatic": lambda: partial(differentiate, copy.deepcopy(model)),
    }
    timings = interleave(sides, repeats=repeats, label=f"automatic gradients, T={clouds}")
    medians = (timing.median for timing in timings.values())
    return compare(f"fit / automatic gradients, T={clouds} n=40 d=2", *medians)


def run(options: Options) -> list[Row]:
    """Return the rows of each number of clouds."""
    repeats = options.repeats
    if options.quick:
        return [compare_fits(20, repeats), gain(20, 0), compare_gradients(20, repeats)]
    return [
        compare_fits(2000, min(repeats, 5)),
        *(gain(2000, seed) for seed in range(options.seeds)),
        compare_fits(500, repeats),
        compare_gradients(500, repeats),
        compare_fits(SLOW, 1),
    ]


if __name__ == "__main__":
    main(run)
