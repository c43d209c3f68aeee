"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from gp_distributions.distances import Distance, SlicedWasserstein
from gp_distributions.kernels import DistributionKernel, Profile, SlicedWassersteinKernel
from gp_distributions.measures import PointClouds
from gp_distributions.models import DistributionGP, fit

__version__ = "0.1.0"

__all__ = [
    "Distance",
    "DistributionGP",
    "DistributionKernel",
    "PointClouds",
    "Profile",
    "SlicedWasserstein",
    "SlicedWassersteinKernel",
    "fit",
]
