"""Results of all kinds of models on fixed data, which agree between versions and numbers of threads.

``python -m tests.agreement`` writes them to ``agreement.json``, which ``test_agreement.py`` reads.
"""

import json
import math
from pathlib import Path

import torch
from torch import Tensor

import gp_distributions as gd
from gp_distributions.distances import ChiSquared, Distance

FILE = Path(__file__).with_name("agreement.json")


def waves(*shape: int, step: float) -> Tensor:
    """Numbers between -1 and 1 without a generator, whose stream may change with a version."""
    return (
        (step * torch.arange(1, 1 + math.prod(shape), dtype=torch.float64) ** 1.5).sin().view(shape)
    )


POINTS = waves(24, 9, 2, step=0.83) * (1 + waves(24, 1, 1, step=0.61) / 2)
WEIGHTS = 1.1 + waves(24, 9, step=1.27)
CLOUDS = gd.PointClouds(POINTS, WEIGHTS)
TRAIN, TEST = CLOUDS[:20], CLOUDS[20:]
TARGETS = POINTS[:20].square().mean((-2, -1)) + 0.01 * waves(20, step=0.37)


def kernel(distance: Distance | None = None) -> gd.DistributionKernel:
    """Return a kernel with a fixed lengthscale."""
    chosen = gd.DistributionKernel(distance or gd.SlicedWasserstein(2, num_slices=20)).double()
    chosen.lengthscale = 0.8
    return chosen


def model_of(cls: type = gd.DistributionGP, **options: object) -> gd.DistributionGP:
    """Return a model with fixed hyperparameters."""
    model: gd.DistributionGP = cls(TRAIN, TARGETS, kernel(), **options)
    model.likelihood.noise = 0.01
    return model.eval()


def distances() -> dict[str, float]:
    """Return a squared distance of each kind."""
    reference = gd.ReferenceMeasure(1.5 * waves(6, 2, step=1.9))
    grid = waves(9, 1, step=0.29)
    histograms = gd.PointClouds(grid.expand(24, 9, 1), WEIGHTS).pack()
    root = waves(24, 2, 2, step=0.47)
    normals = gd.Gaussians(POINTS[:, 0], root @ root.mT + 0.1 * torch.eye(2)).pack()
    kinds: dict[str, tuple[Distance, Tensor]] = {
        "SW2": (gd.SlicedWasserstein(2), CLOUDS.pack()),
        "SW1": (gd.SlicedWasserstein(2, p=1), CLOUDS.pack()),
        "SW2 of Gaussians": (gd.SlicedWasserstein(2, inputs="gaussians"), normals),
        "MMD": (gd.MMD(2, bandwidth=0.7), CLOUDS.pack()),
        "MMD, Laplace": (gd.MMD(2, kernel="laplace", bandwidth=0.7), CLOUDS.pack()),
        "Fourier": (gd.Fourier(2, frequencies=waves(8, 2, step=0.9)), CLOUDS.pack()),
        "rigid": (gd.RigidSlicedWasserstein(2), CLOUDS.pack()),
        "Sinkhorn": (gd.SinkhornPotential(reference, epsilon=0.1), CLOUDS.pack()),
        "scaled": (gd.ScaledDistance(gd.SlicedWasserstein(2), standardize=False), CLOUDS.pack()),
        "Hellinger": (gd.Hellinger(1, support=grid), histograms),
        "total variation": (gd.TotalVariation(1, support=grid), histograms),
        "chi-squared": (ChiSquared(1, support=grid), histograms),
    }
    with torch.no_grad():
        found = {name: distance.squared(rows)[1, 2] for name, (distance, rows) in kinds.items()}
    return {f"distance: {name}": value.item() for name, value in found.items()}


def models() -> dict[str, float]:
    """Return predictions and likelihoods of models with fixed hyperparameters."""
    found: dict[str, float] = {}
    exact, noisy = model_of(), model_of(sampling_noise=True)
    noisy.likelihood.sampling_noise = 0.3
    sparse = model_of(gd.SparseDistributionGP, num_inducing=8)
    kinds = {"exact": exact, "sparse": sparse, "sampling noise": noisy}
    for name, model in kinds.items():
        mean, std = model.predict(TEST)
        found |= {f"{name}: mean": mean[0].item(), f"{name}: std": std[0].item()}
    mean, std = exact.leave_one_out()
    found |= {"leave-one-out: mean": mean[0].item(), "leave-one-out: std": std[0].item()}
    labels = TARGETS.gt(TARGETS.median()).long()
    classes = gd.ClassificationGP(TRAIN, labels, kernel()).predict_proba(TEST)
    found["classification: probability"] = classes[0, 1].item()
    return found


def fits() -> dict[str, float]:
    """Return what depends on optimisers, which stop at a tolerance."""
    model = gd.fit(gd.DistributionGP(TRAIN, TARGETS, kernel()))
    mean, std = model.predict(TEST)
    mixture = gd.integrate_hyperparameters(model_of())
    integrated, spread = mixture.predict(TEST)
    return {
        "fit: mean": mean[0].item(),
        "fit: std": std[0].item(),
        "integrated: mean": integrated[0].item(),
        "integrated: std": spread[0].item(),
    }


if __name__ == "__main__":
    values = {"exact": distances() | models(), "optimised": fits()}
    FILE.write_text(json.dumps(values, indent=1) + "\n")
