"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from gp_distributions.distances import (
    Distance,
    Fourier,
    Hellinger,
    LinearTransport,
    PrecomputedDistance,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
)
from gp_distributions.kernels import (
    Diagnosis,
    DistributionKernel,
    Profile,
    SinkhornKernel,
    SlicedWassersteinKernel,
    diagnose,
)
from gp_distributions.measures import (
    GaussianMixtures,
    Gaussians,
    PointClouds,
    ReferenceMeasure,
)
from gp_distributions.models import (
    DistributionGP,
    ReferenceFit,
    SavedModelError,
    fit,
    fit_reference,
    load,
    save,
)

__version__ = "0.1.0"

__all__ = [
    "Diagnosis",
    "Distance",
    "DistributionGP",
    "DistributionKernel",
    "Fourier",
    "GaussianMixtures",
    "Gaussians",
    "Hellinger",
    "LinearTransport",
    "PointClouds",
    "PrecomputedDistance",
    "Profile",
    "ReferenceFit",
    "ReferenceMeasure",
    "SavedModelError",
    "SinkhornKernel",
    "SinkhornPotential",
    "SlicedWasserstein",
    "SlicedWassersteinKernel",
    "TotalVariation",
    "diagnose",
    "fit",
    "fit_reference",
    "load",
    "save",
]
