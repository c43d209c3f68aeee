"""What do fits of exact models cost, compared with those of bare computations?

**Precomputed distances.** Ours: ``fit(model, restarts=0)`` of a ``DistributionGP`` with
``ScaleKernel(SlicedWassersteinKernel(2, profile="gaussian"))``. It embeds the clouds, compares them,
starts at the median distance, and maximises the marginal likelihood. Its memory is empty at first.
The reference:
BoTorch's ``SingleTaskGP`` whose inputs are the numbers of the clouds. Its kernel holds
the matrix of squared distances, computed beforehand and not timed, and returns exp(-d^2 / (2 l^2)).
In training it uses the matrix without copying or indexing. ``fit_gpytorch_mll_scipy`` fits it, started
at the median distance. All sides have the same likelihood, mean, outcome transform and starting values.
The script fails unless all reach the same marginal likelihood, 1e-5 per cloud.

**Factorisations.** ``fit(DistributionGP(clouds, targets, kernel))`` for T Gaussian clouds of 40 points
in the plane with noisy targets, and the scaled kernel of the sliced Wasserstein distance. It includes
the distances; the clouds are in memory. ``without a kernel``, ``fit`` chooses one. ``/ Cholesky and
inverse`` divides its time by that of one Cholesky factor and one inverse of a T x T matrix, timed in
turn with the fits. ``gain`` is what the fit reaches in log marginal likelihood per cloud, beyond one
that takes all clouds from the start, not a subset of 500; ``all_s`` is the time of that fit.

    python -m benchmarks.speed.fit_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import copy
import time
import warnings
from functools import partial
from typing import Any
from unittest import mock

import gpytorch
import numpy as np
import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, Work, compare, interleave, main
from benchmarks.judging import Rows, Target, limit, number
from benchmarks.regression import numbers
from benchmarks.speed.clouds import fixed
from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel, fit
from gp_distributions.fitting import ascent
from gp_distributions.warnings import CostWarning

SEEDS = 3


def least_gain(rows: Rows) -> tuple[str, bool]:
    """Return the least gain in log marginal likelihood over seeds."""
    gains = [number(row, "gain") for row in rows if row.get("gain") is not None]
    if not gains:
        raise LookupError("no gains")
    return f"{min(gains):.1g}", min(gains) >= -1e-4


TARGETS = (
    limit(
        "marginal-likelihood fit, T = 500, over one on precomputed distances",
        "<= 0.6",
        "ratio",
        name="fit / fit on precomputed distances, T=500 n=50 d=2",
        reason="Runs vary (.61, .70, .71, .90). More than half is the time of the distances, "
        "which the reference is given. Where the reference took .67 s, the ratio was .54.",
    ),
    limit(
        "exact fit, T = 2000, n = 40, d = 2, over one Cholesky factor and inverse",
        "<= 45",
        "ratio",
        name="fit / Cholesky and inverse, T=2000",
    ),
    limit(
        "exact fit without a kernel, T = 5000, n = 40, d = 2",
        "<= 240 s",
        "ours_s",
        name="fit without a kernel / Cholesky and inverse, T=5000",
        asked=True,
    ),
    Target(
        "exact fit, T = 2000: log marginal likelihood per cloud over a fit of all clouds from the start",
        ">= -1e-4",
        least_gain,
    ),
)


class PrecomputedKernel(Kernel):
    """exp(-d^2 / (2 l^2)) of precomputed squared distances between numbered objects."""

    has_lengthscale = True

    def __init__(self, squared: Tensor) -> None:
        super().__init__(
            lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log)
        )
        self.squared = squared

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariances between two columns of object numbers."""
        if diag:
            squared = self.squared[x1[..., 0].long(), x2[..., 0].long()]
            return torch.exp(-0.5 * (squared / self.lengthscale.square().squeeze(-1)))
        return torch.exp(-0.5 * (self.squared / self.lengthscale.square()))


def data(clouds: int, atoms: int) -> tuple[Tensor, Tensor]:
    """Gaussian clouds as rows, and noisy targets that depend on their means and spreads."""
    normal = Draws(0).normal
    spread = 0.2 + normal(clouds, 1, 1).abs()
    points = spread * normal(clouds, atoms, 2) + normal(clouds, 1, 2)
    targets = (2 * points[..., 0].mean(-1)).sin() + spread.flatten() + 0.1 * normal(clouds)
    return PointClouds(points).pack(), targets.unsqueeze(-1)


def single_task(inputs: Tensor, targets: Tensor, likelihood: Any, kernel: Kernel) -> SingleTaskGP:
    """Return BoTorch's model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch advises to scale inputs; these are numbers
        return SingleTaskGP(
            *(inputs, targets),
            likelihood=copy.deepcopy(likelihood),
            covar_module=kernel,
            mean_module=ZeroMean(),
        )


def fit_ours(model: DistributionGP) -> None:
    """Fit with the package."""
    fit(model, restarts=0)


def fit_others(model: SingleTaskGP) -> None:
    """Fit in the same way without the package."""
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        warnings.simplefilter("ignore", OptimizationWarning)
        fit_gpytorch_mll_scipy(mll)
    model.eval()


def loss(model: SingleTaskGP) -> float:
    """The negative marginal likelihood per cloud, by Cholesky factors."""
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        return -float(mll(model(*model.train_inputs), model.train_targets))


def compare_fits(clouds: int, atoms: int, repeats: int) -> Row:
    """Time a fit of both models."""
    rows, targets = data(clouds, atoms)
    kernel = ScaleKernel(SlicedWassersteinKernel(2, profile="gaussian"))
    model = DistributionGP(rows, targets, kernel, mean_module=ZeroMean())
    likelihood, squared = model.likelihood, kernel.base_kernel.distance.squared(rows)
    precomputed = ScaleKernel(PrecomputedKernel(squared))
    reference = single_task(numbers(clouds), targets, likelihood, precomputed)
    median = squared[*torch.triu_indices(clouds, clouds, 1)].sqrt().median()
    reference.covar_module.base_kernel.lengthscale = median
    sides = {
        "ours": (model, fit_ours),
        "reference": (reference, fit_others),
    }
    losses = []
    for side, fitting in sides.values():
        fitted = copy.deepcopy(side)
        fitting(fitted)
        losses.append(loss(fitted))
    difference = max(losses) - min(losses)
    if difference > 1e-5:
        raise RuntimeError(f"The sides did not do the same work: losses {losses}.")

    def prepare(name: str) -> Work:
        side, fitting = sides[name]
        return partial(fitting, copy.deepcopy(side))  # the distance, not what it remembers

    timings = interleave(
        {name: partial(prepare, name) for name in sides},
        repeats=repeats,
        label=f"fit, T={clouds}",
    )
    return compare(
        f"fit / fit on precomputed distances, T={clouds} n={atoms} d=2",
        *timings.values(),
        difference=difference,
    )


def model_of(clouds: int, seed: int, *, chosen: bool = False) -> DistributionGP:
    """Model Gaussian clouds, and noisy targets that depend on their means and spreads."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(clouds, 1, 2))
    spreads = np.exp(0.5 * rng.normal(size=(clouds, 1, 2)))
    points = means + spreads * rng.normal(size=(clouds, 40, 2))
    signal = np.sin(2 * means[:, 0, 0]) + np.log(spreads[:, 0, 1]) * means[:, 0, 1]
    kernel = None if chosen else ScaleKernel(SlicedWassersteinKernel(2))
    return DistributionGP(PointClouds(points), signal + 0.1 * rng.normal(size=clouds), kernel)


def fitted(model: DistributionGP) -> DistributionGP:
    """Fit a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostWarning)
        return fit(model, progress=False)


def gain(clouds: int, seed: int) -> Row:
    """Compare the fit with one that takes all clouds from the start."""
    model = model_of(clouds, seed)
    general = copy.deepcopy(model)
    start = time.perf_counter()
    with mock.patch.object(ascent, "LARGE", clouds):
        fitted(general)
    seconds = time.perf_counter() - start
    more = loss(general) - loss(fitted(model))
    return {"name": f"fit, T={clouds}, seed {seed}", "gain": more, "all_s": seconds}


def beside_factors(clouds: int, repeats: int, *, chosen: bool = False) -> Row:
    """Time fits of one size beside a factorisation."""
    model = model_of(clouds, 0, chosen=chosen)
    half = Draws(0).normal(clouds, 50)
    matrix = half @ half.T + torch.eye(clouds)

    def fits() -> Work:
        return partial(fitted, copy.deepcopy(model))  # the distance, not what it remembers

    def factorise() -> Tensor:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrix))

    sides = {"fit": fits, "pair": fixed(factorise)}
    label = f"fit{' without a kernel' * chosen}"
    timings = interleave(sides, repeats=repeats, warmup=repeats > 1, label=f"{label}, T={clouds}")
    return compare(f"{label} / Cholesky and inverse, T={clouds}", *timings.values())


def run(options: Options) -> list[Row]:
    """Return the rows of each comparison."""
    repeats, few = options.repeats, min(options.repeats, 5)
    if options.quick:
        return [
            compare_fits(30, 20, repeats),
            beside_factors(20, few, chosen=True),
            gain(20, 0),
        ]
    return [
        *(compare_fits(size, 50, repeats) for size in (500, 100, 1000)),
        beside_factors(500, few),
        beside_factors(2000, few),
        *(gain(2000, seed) for seed in range(options.seeds)),
        beside_factors(500, few, chosen=True),
        beside_factors(2000, 1, chosen=True),
        beside_factors(5000, 1, chosen=True),
    ]


if __name__ == "__main__":
    main(run)
