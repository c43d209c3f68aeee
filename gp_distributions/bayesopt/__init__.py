"""Bayesian optimisation over shapes: pools, designs, free atoms, mixtures of these, and recipes."""

from gp_distributions.bayesopt.acquisitions import (
    AveragedAcquisition,
    Observations,
    default_acquisition,
)
from gp_distributions.bayesopt.decoder import Decoder
from gp_distributions.bayesopt.free_shapes import DataPenalty, optimize_free_shapes
from gp_distributions.bayesopt.mixed_search import MixedSearch
from gp_distributions.bayesopt.parts import (
    Categories,
    ContinuousPart,
    FinitePart,
    Interval,
    Search,
)
from gp_distributions.bayesopt.pool import Pool, optimize_over_pool
from gp_distributions.bayesopt.priors import median_lengthscale_prior
from gp_distributions.bayesopt.recipe_search import RecipeSearch
from gp_distributions.bayesopt.records import CheckpointError, Evaluation
from gp_distributions.bayesopt.searches import Context, DesignSearch, FreeSearch, PoolSearch
from gp_distributions.bayesopt.shape_optimizer import ShapeOptimizer

__all__ = [
    "AveragedAcquisition",
    "Categories",
    "CheckpointError",
    "Context",
    "ContinuousPart",
    "DataPenalty",
    "Decoder",
    "DesignSearch",
    "Evaluation",
    "FinitePart",
    "FreeSearch",
    "Interval",
    "MixedSearch",
    "Observations",
    "Pool",
    "PoolSearch",
    "RecipeSearch",
    "Search",
    "ShapeOptimizer",
    "default_acquisition",
    "median_lengthscale_prior",
    "optimize_free_shapes",
    "optimize_over_pool",
]
