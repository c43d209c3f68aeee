"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any
from warnings import warn

__version__ = "0.3.1"

# The public names by the module that has them, which is imported when one is used.
_NAMES = {
    "bayesopt": (
        "Decoder",
        "DesignSearch",
        "FreeSearch",
        "MixedSearch",
        "PoolSearch",
        "RecipeSearch",
        "ShapeOptimizer",
        "optimize_free_shapes",
        "optimize_over_pool",
    ),
    "comparison": ("compare",),
    "distances": (
        "MMD",
        "Fourier",
        "Hellinger",
        "LinearTransport",
        "PrecomputedDistance",
        "PrincipalDistance",
        "RigidSlicedWasserstein",
        "ScaledDistance",
        "SinkhornPotential",
        "SlicedWasserstein",
        "TotalVariation",
    ),
    "estimators": (
        "CloudScaler",
        "DistributionGPClassifier",
        "DistributionGPRegressor",
        "EmbeddingTransformer",
        "GramTransformer",
    ),
    "fitting": ("fit", "fit_reference", "integrate_hyperparameters"),
    "judging": ("relevance", "sensitivity"),
    "kernels": (
        "DistributionKernel",
        "MMDKernel",
        "SinkhornKernel",
        "SlicedWassersteinKernel",
        "diagnose",
        "mixed_kernel",
    ),
    "measures": (
        "GaussianMixtures",
        "Gaussians",
        "MixedInputs",
        "PointClouds",
        "ReferenceMeasure",
    ),
    "models": (
        "AggregateGP",
        "ClassificationGP",
        "CurveGP",
        "DistributionGP",
        "MixtureModel",
        "SharedKernelGP",
        "SparseAggregateGP",
        "SparseClassificationGP",
        "SparseDistributionGP",
        "VariationalDistributionGP",
    ),
    "saving": ("load", "save"),
    "sharding": ("ShardedClouds",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = list(_HOMES)

# Names that were here in version 0.2.0, with the modules of this package that have them now.
_MOVED = {
    "BlockKernel": "kernels",
    "ChiSquared": "distances",
    "Comparison": "comparison",
    "ConformalCorrection": "models",
    "Diagnosis": "kernels",
    "Distance": "distances",
    "IntegratedGP": "models",
    "Inversion": "distances",
    "KernelRidgeClassifier": "models",
    "MixtureClassifier": "models",
    "NormalizeClouds": "models",
    "PieceError": "sharding",
    "Pool": "bayesopt",
    "Profile": "kernels",
    "ReferenceFit": "fitting",
    "Relevance": "judging",
    "RelevanceEntry": "judging",
    "SamplingNoiseLikelihood": "models",
    "SavedModelError": "saving",
    "Sensitivity": "judging",
    "align": "measures",
    "default_kernels": "kernels",
    "fit_classification": "fitting",
    "invert_embedding": "distances",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or _MOVED.get(name)
    if home is None:
        if find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
    if name in _MOVED:
        warn(
            f"{__name__}.{name} has moved, and will be gone in the next version: use "
            f"from {__name__}.{home} import {name}.",
            DeprecationWarning,
            stacklevel=2,
        )
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
