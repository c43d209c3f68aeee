"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from gp_distributions.distances import (
    Distance,
    LinearTransport,
    SinkhornPotential,
    SlicedWasserstein,
)
from gp_distributions.kernels import (
    DistributionKernel,
    Profile,
    SinkhornKernel,
    SlicedWassersteinKernel,
)
from gp_distributions.measures import (
    GaussianMixtures,
    Gaussians,
    PointClouds,
    ReferenceMeasure,
)
from gp_distributions.models import DistributionGP, ReferenceFit, fit, fit_reference

__version__ = "0.1.0"

__all__ = [
    "Distance",
    "DistributionGP",
    "DistributionKernel",
    "GaussianMixtures",
    "Gaussians",
    "LinearTransport",
    "PointClouds",
    "Profile",
    "ReferenceFit",
    "ReferenceMeasure",
    "SinkhornKernel",
    "SinkhornPotential",
    "SlicedWasserstein",
    "SlicedWassersteinKernel",
    "fit",
    "fit_reference",
]
