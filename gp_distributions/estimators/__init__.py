"""Scikit-learn estimators and transformers whose samples are distributions.

Each estimator takes distributions as a list or column (``pandas.Series``) of ``n_i x d`` arrays, as
:class:`PointClouds`, :class:`Gaussians` or :class:`GaussianMixtures`, as a ``T x n x d`` array of clouds
of the same size, or as a ``T x d`` array in which each row is a cloud of a single atom. The estimators
of Gaussian processes also take :class:`MixedInputs`, and data frames in which columns of bags stand
beside numbers and categories. All results are in double precision and carry no gradients.
"""

from gp_distributions.estimators.processes import (
    DistributionGPClassifier,
    DistributionGPRegressor,
)
from gp_distributions.estimators.transformers import EmbeddingTransformer, GramTransformer

__all__ = [
    "DistributionGPClassifier",
    "DistributionGPRegressor",
    "EmbeddingTransformer",
    "GramTransformer",
]
