"""What type checkers see: the public names, which are imported when they are used."""

from gp_distributions.bayesopt import (
    Decoder,
    DesignSearch,
    FreeSearch,
    MixedSearch,
    PoolSearch,
    RecipeSearch,
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
    PrincipalDistance,
    RigidSlicedWasserstein,
    ScaledDistance,
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
from gp_distributions.metrics import relevance, sensitivity
from gp_distributions.models import (
    AggregateGP,
    ClassificationGP,
    CurveGP,
    DistributionGP,
    SharedKernelGP,
    SparseAggregateGP,
    SparseClassificationGP,
    SparseDistributionGP,
    VariationalAggregateGP,
    VariationalDistributionGP,
)
from gp_distributions.saving import load, save
from gp_distributions.sharding import ShardedClouds

__version__: str

__all__ = [
    "MMD",
    "AggregateGP",
    "ClassificationGP",
    "CurveGP",
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
    "PointClouds",
    "PoolSearch",
    "PrecomputedDistance",
    "PrincipalDistance",
    "RecipeSearch",
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
    "SparseAggregateGP",
    "SparseClassificationGP",
    "SparseDistributionGP",
    "TotalVariation",
    "VariationalAggregateGP",
    "VariationalDistributionGP",
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
    "save",
    "sensitivity",
]
