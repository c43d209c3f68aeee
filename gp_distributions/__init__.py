"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from gp_distributions.bayesopt import (
    Decoder,
    DesignSearch,
    FreeSearch,
    Pool,
    PoolSearch,
    ShapeOptimizer,
    optimize_free_shapes,
    optimize_over_pool,
)
from gp_distributions.distances import (
    MMD,
    Distance,
    Fourier,
    Hellinger,
    LinearTransport,
    PrecomputedDistance,
    RigidSlicedWasserstein,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
)
from gp_distributions.estimators import (
    CloudScaler,
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    GramTransformer,
)
from gp_distributions.fitting import ReferenceFit, fit, fit_classification, fit_reference
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
    NormalizeClouds,
    SamplingNoiseLikelihood,
    SharedKernelGP,
    SparseClassificationGP,
    SparseDistributionGP,
)
from gp_distributions.saving import SavedModelError, load, save
from gp_distributions.sensitivities import Sensitivity, sensitivity
from gp_distributions.sharding import PieceError, ShardedClouds

__version__ = "0.1.0"

__all__ = [
    "MMD",
    "ClassificationGP",
    "CloudScaler",
    "Decoder",
    "DesignSearch",
    "Diagnosis",
    "Distance",
    "DistributionGP",
    "DistributionGPClassifier",
    "DistributionGPRegressor",
    "DistributionKernel",
    "EmbeddingTransformer",
    "Fourier",
    "FreeSearch",
    "GaussianMixtures",
    "Gaussians",
    "GramTransformer",
    "Hellinger",
    "Inversion",
    "KernelRidgeClassifier",
    "LinearTransport",
    "MMDKernel",
    "NormalizeClouds",
    "PieceError",
    "PointClouds",
    "Pool",
    "PoolSearch",
    "PrecomputedDistance",
    "Profile",
    "ReferenceFit",
    "ReferenceMeasure",
    "RigidSlicedWasserstein",
    "SamplingNoiseLikelihood",
    "SavedModelError",
    "Sensitivity",
    "ShapeOptimizer",
    "ShardedClouds",
    "SharedKernelGP",
    "SinkhornKernel",
    "SinkhornPotential",
    "SlicedWasserstein",
    "SlicedWassersteinKernel",
    "SparseClassificationGP",
    "SparseDistributionGP",
    "TotalVariation",
    "diagnose",
    "fit",
    "fit_classification",
    "fit_reference",
    "invert_embedding",
    "load",
    "optimize_free_shapes",
    "optimize_over_pool",
    "save",
    "sensitivity",
]
