r"""Are predicted curves as accurate as their values, and are intervals of their integrals right?

Velocities at the edge of the boundary layer of an airfoil, NeuralFoil's ``upper_bl_ue/vinf_i`` and
``lower_bl_ue/vinf_i`` at 32 stations each, an angle of attack of 4 degrees and a Reynolds number of 1e6:
64 values that move together. Of 1,874 airfoils, 200 train and the others test; the inputs are 100 points
of each outline, the kernel of all models is ``SlicedWassersteinKernel``. Seeds 0 and 1 were used while
models were built, seeds 3000 to 3004 were run once.

- ``CurveGP``: a learned covariance of outputs;
- ``CurveGP, 30% missing``: the same where 30% of the values of the training curves, at random, are NaN;
- ``CurveGP, stretches missing``: the same where each training curve lacks 20 stations in a row;
- ``SharedKernelGP``: independent outputs with one kernel and one noise;
- ``principal components``: a GP for each of 16 components of the standardised curves, and independent
  noise of what they leave.

Columns, means over seeds: R^2 of the values (mean over outputs) and the coverage of their 95% intervals;
the coverage of intervals of three sums: the mean upper less the mean lower velocity (``lift``), the
mean upper one (``upper``) and that of 8 stations of the upper surface (``stretch``); the joint negative
log density of a curve, per value (``nlpd``), and the seconds of a fit over those of ``SharedKernelGP``
(``cost``).

    python -m benchmarks.prediction.curves [--quick] [--seeds 5]
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import limit
from benchmarks.regression import Scores
from benchmarks.shapes import airfoil_clouds, flow, kulfan_parameters

FIRST, TRAIN, STATIONS, COMPONENTS, LEVEL = 3000, 200, 32, 16, 1.959964
# Share of missing values, and stations in a row that are missing.
SHARE, STRETCH = 0.3, 20
SUMS = ("lift", "upper", "stretch")
TARGETS = (
    limit("R^2 of 64 velocities from 200 airfoils", ">= 0.955", "r2", model="CurveGP"),
    limit("velocities: coverage of values", "0.92 to 0.98", "coverage", model="CurveGP"),
    limit("velocities: coverage of the lift sum", "0.92 to 0.98", "lift", model="CurveGP"),
    limit("velocities: seconds over those of independent outputs", "<= 3", "cost", model="CurveGP"),
)
# Means, N x M, and covariances, N x M x M, of curves.
Predictions = tuple[Tensor, Tensor]
Model = Callable[[gd.PointClouds, Tensor, gd.PointClouds], tuple[float, Predictions]]


def weights() -> Tensor:
    """Return the weights of the three sums."""
    upper, stretch = torch.zeros(2, 2 * STATIONS).double()
    upper[:STATIONS], stretch[8:16] = 1 / STATIONS, 1 / 8
    return torch.stack([upper - upper.roll(STATIONS), upper, stretch])


def with_covariance(
    X: gd.PointClouds, Y: Tensor, test: gd.PointClouds
) -> tuple[float, Predictions]:
    """Predict by a covariance of outputs."""
    start = time.perf_counter()
    model = gd.fit(gd.CurveGP(X, Y, gd.SlicedWassersteinKernel(2)), progress=False)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        found = model.posterior(test.pack().unsqueeze(-2), observation_noise=True)
    return seconds, (found.mean.squeeze(-2), found.distribution.covariance_matrix)


def some_missing(X: gd.PointClouds, Y: Tensor, test: gd.PointClouds) -> tuple[float, Predictions]:
    """Predict by a covariance of outputs, where values at random are missing."""
    missing = torch.from_numpy(np.random.default_rng(FIRST).random(Y.shape) < SHARE)
    return with_covariance(X, Y.masked_fill(missing, torch.nan), test)


def stretches_missing(
    X: gd.PointClouds, Y: Tensor, test: gd.PointClouds
) -> tuple[float, Predictions]:
    """Predict by a covariance of outputs, where each curve lacks stations in a row."""
    first = np.random.default_rng(FIRST).integers(Y.shape[1] - STRETCH + 1, size=(len(Y), 1))
    after = torch.arange(Y.shape[1]) - torch.from_numpy(first)
    missing = (after >= 0) & (after < STRETCH)
    return with_covariance(X, Y.masked_fill(missing, torch.nan), test)


def independent(X: gd.PointClouds, Y: Tensor, test: gd.PointClouds) -> tuple[float, Predictions]:
    """Predict each output by itself."""
    start = time.perf_counter()
    model = gd.fit(gd.SharedKernelGP(X, Y, gd.SlicedWassersteinKernel(2)), progress=False)
    seconds = time.perf_counter() - start
    mean, std = model.predict(test)
    return seconds, (mean, torch.diag_embed(std.square()))


def components(X: gd.PointClouds, Y: Tensor, test: gd.PointClouds) -> tuple[float, Predictions]:
    """Predict each principal component by itself."""
    start = time.perf_counter()
    centre, spread = Y.mean(0), Y.std(0)
    Z = (Y - centre) / spread
    axes = torch.linalg.svd(Z, full_matrices=False).Vh[:COMPONENTS]
    scores, left = Z @ axes.mT, (Z - Z @ axes.mT @ axes).var(0)
    found = []
    for score in scores.unbind(-1):
        model = gd.DistributionGP(X, score, gd.SlicedWassersteinKernel(2))
        found.append(gd.fit(model, progress=False).predict(test))
    seconds = time.perf_counter() - start
    mean, std = (torch.stack(part, -1) for part in zip(*found, strict=True))
    covariance = (axes.mT * std.square().unsqueeze(-2)) @ axes + left.diag()
    return seconds, (centre + spread * (mean @ axes), covariance * spread * spread.unsqueeze(-1))


MODELS: dict[str, Model] = {
    "CurveGP": with_covariance,
    "CurveGP, 30% missing": some_missing,
    "CurveGP, stretches missing": stretches_missing,
    "SharedKernelGP": independent,
    "principal components": components,
}


def scored(truth: Tensor, mean: Tensor, covariance: Tensor) -> Scores:
    """Return the scores of predicted curves."""
    errors, functionals = truth - mean, weights()
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    of_sums = (functionals @ covariance @ functionals.mT).diagonal(dim1=-2, dim2=-1)
    inside = (errors.abs() <= LEVEL * variance.sqrt()).double().mean().item()
    sums = ((errors @ functionals.mT).abs() <= LEVEL * of_sums.sqrt()).double().mean(0)
    normal = torch.distributions.MultivariateNormal(mean, covariance)
    share = errors.square().sum(0) / (truth - truth.mean(0)).square().sum(0)
    return {
        "r2": (1 - share).mean().item(),
        "coverage": inside,
        **dict(zip(SUMS, sums.tolist(), strict=True)),
        "nlpd": -normal.log_prob(truth).mean().item() / truth.shape[-1],
    }


def run(options: Options) -> list[Row]:
    """Return one row per model."""
    foils, clouds, _ = airfoil_clouds(50 if options.quick else None, 100)
    train = 20 if options.quick else TRAIN
    found = flow(kulfan_parameters(foils), 4.0)
    keys = [f"{side}_bl_ue/vinf_{i}" for side in ("upper", "lower") for i in range(STATIONS)]
    velocities = torch.stack([torch.as_tensor(found[key]).double() for key in keys], -1)
    runs: dict[str, list[Scores]] = {name: [] for name in MODELS}
    for seed in progress(range(FIRST, FIRST + options.seeds)):
        chosen, rest = (torch.from_numpy(part) for part in foils.split(train, seed=seed))
        for name, model in MODELS.items():
            data = clouds[chosen], velocities[chosen], clouds[rest]
            seconds, predictions = model(*data)
            runs[name].append({**scored(velocities[rest], *predictions), "seconds": seconds})
    mean = {name: means(scores) for name, scores in runs.items()}
    unit = mean["SharedKernelGP"]["seconds"]
    return [{"model": name, **row, "cost": row["seconds"] / unit} for name, row in mean.items()]


if __name__ == "__main__":
    main(run)
