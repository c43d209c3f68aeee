"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from importlib import import_module as _import_module
from typing import Any
from warnings import warn as _warn

from gp_distributions.bayesopt import (
    Decoder,
    DesignSearch,
    FreeSearch,
    MixedSearch,
    PoolSearch,
    ShapeOptimizer,
    optimize_free_shapes,
    optimize_over_pool,
)
from gp_distributions.comparison import compare
from gp_distributions.distances import (
    MMD,
    Fourier,
    Hellinger,
    LinearTransport,
    PrecomputedDistance,
    RigidSlicedWasserstein,
    ScaledDistance,
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
from gp_distributions.fitting import (
    fit,
    fit_reference,
    integrate_hyperparameters,
)
from gp_distributions.kernels import (
    DistributionKernel,
    MMDKernel,
    SinkhornKernel,
    SlicedWassersteinKernel,
    diagnose,
    mixed_kernel,
)
from gp_distributions.measures import (
    GaussianMixtures,
    Gaussians,
    MixedInputs,
    PointClouds,
    ReferenceMeasure,
)
from gp_distributions.models import (
    ClassificationGP,
    ConformalCorrection,
    DistributionGP,
    MixtureModel,
    NormalizeClouds,
    SharedKernelGP,
    SparseClassificationGP,
    SparseDistributionGP,
)
from gp_distributions.relevances import relevance
from gp_distributions.reporting import report
from gp_distributions.saving import load, save
from gp_distributions.sensitivities import sensitivity
from gp_distributions.sharding import ShardedClouds

__version__ = "0.2.0"

__all__ = [
    "MMD",
    "ClassificationGP",
    "CloudScaler",
    "ConformalCorrection",
    "Decoder",
    "DesignSearch",
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
    "LinearTransport",
    "MMDKernel",
    "MixedInputs",
    "MixedSearch",
    "MixtureModel",
    "NormalizeClouds",
    "PointClouds",
    "PoolSearch",
    "PrecomputedDistance",
    "ReferenceMeasure",
    "RigidSlicedWasserstein",
    "ScaledDistance",
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
    "compare",
    "diagnose",
    "fit",
    "fit_reference",
    "integrate_hyperparameters",
    "load",
    "mixed_kernel",
    "optimize_free_shapes",
    "optimize_over_pool",
    "relevance",
    "report",
    "save",
    "sensitivity",
]

# Names that were here in version 0.2.0, with the modules of this package that have them now.
_MOVED = {
    "BlockKernel": "kernels",
    "ChiSquared": "distances",
    "Comparison": "comparison",
    "CompressedDistance": "distances",
    "Diagnosis": "kernels",
    "Distance": "distances",
    "GroupAverageKernel": "kernels",
    "InUseError": "locking",
    "IntegratedGP": "models",
    "InterruptedComparison": "comparison",
    "Inversion": "inverse",
    "KernelRidgeClassifier": "models",
    "MixtureClassifier": "models",
    "PieceError": "sharding",
    "Pool": "bayesopt",
    "Profile": "kernels",
    "ReferenceFit": "fitting",
    "Relevance": "relevances",
    "RelevanceEntry": "relevances",
    "SamplingNoiseLikelihood": "models",
    "SavedModelError": "saving",
    "Sensitivity": "sensitivities",
    "align": "measures",
    "default_kernels": "kernels",
    "fit_classification": "fitting",
    "invert_embedding": "inverse",
    "planar_rotations": "kernels",
}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}.{_MOVED[name]}"
    _warn(
        f"{__name__}.{name} has moved, and will be gone in the next version: use "
        f"from {home} import {name}.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(_import_module(home), name)
