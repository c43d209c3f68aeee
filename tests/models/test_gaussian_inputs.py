"""A Gaussian process on Gaussians and on mixtures of them."""

import pytest
import torch
from cases import randn

from gp_distributions import (
    DistributionGP,
    Gaussians,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    diagnose,
    fit,
)

pytestmark = pytest.mark.usefixtures("short_fits")


def gaussians(count: int, seed: int) -> tuple[Gaussians, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = randn(count, 2, seed=generator)
    factor = 0.3 * randn(count, 2, 2, seed=generator)
    covariance = factor @ factor.mT
    targets = mean[:, 0] + covariance.diagonal(dim1=-2, dim2=-1).sum(-1).sqrt()
    return Gaussians(mean, covariance), targets


def test_predicts_from_means_and_covariances() -> None:
    train, y = gaussians(60, 0)
    test, truth = gaussians(40, 1)
    model = fit(DistributionGP(train, y))
    mean, std = model.predict(test)
    assert float((truth - mean).square().mean()) <= 0.02 * float(truth.var())
    assert bool((std > 0).all())
    with pytest.raises(ValueError, match=r"gaussians of dimension 2.*got PointClouds"):
        model.posterior(PointClouds(train.mean.unsqueeze(-2)))


@pytest.mark.parametrize("model", [DistributionGP, SharedKernelGP, SparseDistributionGP])
def test_kernels_of_other_inputs_are_refused(
    model: type[DistributionGP | SparseDistributionGP],
) -> None:
    """The width of rows of Gaussians in d dimensions is that of clouds of d atoms."""
    train, y = gaussians(20, 0)
    message = r'clouds of dimension 2.*got Gaussians of dimension 2.*dim=2 and inputs="gaussians"'
    with pytest.raises(ValueError, match=message):
        model(train, y, SlicedWassersteinKernel(2))
    with pytest.raises(ValueError, match=message):
        diagnose(SlicedWassersteinKernel(2), train)
    clouds = PointClouds(torch.randn(20, 6, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"clouds of dimension 2.*got PointClouds of dimension 3"):
        model(clouds, y, SlicedWassersteinKernel(2))
