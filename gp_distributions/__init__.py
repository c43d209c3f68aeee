"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from gp_distributions.distances import (
    MMD,
    Distance,
    Fourier,
    Hellinger,
    LinearTransport,
    PrecomputedDistance,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
)
from gp_distributions.estimators import (
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    GramTransformer,
)
from gp_distributions.inverse import Inversion, invert_embedding
from gp_distributions.kernels import (
    Diagnosis,
    DistributionKernel,
    MMDKernel,
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
    ClassificationGP,
    DistributionGP,
    KernelRidgeClassifier,
    ReferenceFit,
    SavedModelError,
    SharedKernelGP,
    fit,
    fit_classification,
    fit_reference,
    load,
    save,
)
from gp_distributions.sensitivity import Sensitivity, sensitivity

__version__ = "0.1.0"

__all__ = [
    "MMD",
    "ClassificationGP",
    "Diagnosis",
    "Distance",
    "DistributionGP",
    "DistributionGPClassifier",
    "DistributionGPRegressor",
    "DistributionKernel",
    "EmbeddingTransformer",
    "Fourier",
    "GaussianMixtures",
    "Gaussians",
    "GramTransformer",
    "Hellinger",
    "Inversion",
    "KernelRidgeClassifier",
    "LinearTransport",
    "MMDKernel",
    "PointClouds",
    "PrecomputedDistance",
    "Profile",
    "ReferenceFit",
    "ReferenceMeasure",
    "SavedModelError",
    "Sensitivity",
    "SharedKernelGP",
    "SinkhornKernel",
    "SinkhornPotential",
    "SlicedWasserstein",
    "SlicedWassersteinKernel",
    "TotalVariation",
    "diagnose",
    "fit",
    "fit_classification",
    "fit_reference",
    "invert_embedding",
    "load",
    "save",
    "sensitivity",
]
