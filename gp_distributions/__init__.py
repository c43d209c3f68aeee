"""Gaussian processes whose inputs are probability distributions, for GPyTorch and BoTorch."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

__version__ = "0.4.0"

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
        "DistributionGPClassifier",
        "DistributionGPRegressor",
        "EmbeddingTransformer",
        "GramTransformer",
    ),
    "fitting": ("fit", "fit_reference", "integrate_hyperparameters"),
    "metrics": ("relevance", "sensitivity"),
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
        "SharedKernelGP",
        "SparseAggregateGP",
        "SparseClassificationGP",
        "SparseDistributionGP",
        "VariationalAggregateGP",
        "VariationalDistributionGP",
    ),
    "saving": ("load", "save"),
    "sharding": ("ShardedClouds",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        if find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
