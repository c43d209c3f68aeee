"""Coordinates that decide a distance alone are found where a user chose the kernel, and only there."""

import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel

import gp_distributions as gd
from gp_distributions.distances import Distance
from gp_distributions.kernels.default import unit_findings
from gp_distributions.warnings import UnitsWarning

UNITS = torch.tensor([1.0, 30.0, 0.0], dtype=torch.float64)
POINTS = torch.randn(12, 5, 3, generator=torch.Generator().manual_seed(0)).double()
X = gd.PointClouds(UNITS * POINTS)
Y = POINTS.mean((1, 2))


def kernel(dim: int = 3) -> Kernel:
    return gd.SlicedWassersteinKernel(dim, num_slices=5, num_quantiles=5)


def findings(distance: Distance, clouds: gd.PointClouds = X) -> tuple[str, ...]:
    return unit_findings(gd.DistributionKernel(distance), clouds, clouds.pack())


def test_fits_warn_once_of_the_coordinate() -> None:
    model = gd.DistributionGP(X, Y, kernel())
    with pytest.warns(UnitsWarning, match="Coordinate 1 has more than 99%") as found:
        gd.fit(model, restarts=0)
    assert len(found) == 1
    gd.fit(model, restarts=0)  # a warning would be an error
    for other in (
        gd.ClassificationGP(X, Y > 0, kernel()),
        gd.SparseDistributionGP(X, Y, kernel(), num_inducing=4),
    ):
        with pytest.warns(UnitsWarning) as found:
            gd.fit(other, restarts=0)
        assert [w.category for w in found].count(UnitsWarning) == 1


def test_fits_of_default_kernels_and_normalised_clouds_do_not_warn() -> None:
    two = gd.PointClouds(X.points[..., :2])
    gd.fit(gd.DistributionGP(two, Y), restarts=0)  # a warning would be an error
    gd.fit(gd.DistributionGP(two.normalize(), Y, kernel(2)), restarts=0)


def test_only_distances_that_add_coordinates_in_their_units() -> None:
    sliced = gd.SlicedWasserstein(3, num_slices=5, num_quantiles=5)
    assert len(findings(sliced)) == 1
    assert not findings(gd.ScaledDistance(sliced))
    assert not findings(gd.Hellinger(3, support=X.points[0]))
    assert unit_findings(gd.MMDKernel(3), X, X.pack())
    assert not unit_findings(gd.MMDKernel(3, kernel=RBFKernel(ard_num_dims=3)), X, X.pack())
    assert not unit_findings(kernel(), X.pack(), X.pack())


def test_several_coordinates_must_vary_and_one_carry_nearly_all() -> None:
    sliced = gd.SlicedWasserstein(3, num_slices=5, num_quantiles=5)
    assert not findings(sliced, gd.PointClouds(POINTS))
    assert not findings(sliced, gd.PointClouds(POINTS * torch.tensor([0.0, 30.0, 0.0])))


def test_blocks_and_gaussians_are_named() -> None:
    covariance = torch.diag(UNITS.square() + 0.1).expand(12, 3, 3)
    inputs = gd.MixedInputs(
        cells=gd.PointClouds(POINTS), income=gd.Gaussians(POINTS[:, 0], covariance)
    )
    income = gd.SlicedWassersteinKernel(3, inputs="gaussians", num_slices=5)
    given = gd.mixed_kernel(inputs, {"cells": kernel(), "income": income})
    (found,) = unit_findings(given, inputs, inputs.pack())
    assert found.startswith("Coordinate 1 of block 'income' has more than 99%")


def test_diagnoses_report_it() -> None:
    assert any(text.startswith("Coordinate 1 has") for text in gd.diagnose(kernel(), X).findings)
