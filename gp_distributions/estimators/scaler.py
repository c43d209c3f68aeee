"""Normalisation of distributions as a step of a pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from gp_distributions.estimators._samples import DistributionEstimator, Samples, read_distributions
from gp_distributions.measures import PointClouds
from gp_distributions.measures.kinds import Distributions


class CloudScaler(OneToOneFeatureMixin, TransformerMixin, DistributionEstimator):
    """Centre and scale each coordinate of distributions by those of the training distributions.

    :meth:`PointClouds.normalize` with the conventions of scikit-learn: the first step of a pipeline, so
    that in cross-validation no fold sees another. ``StandardScaler`` does the same to a ``T x d`` array.

    Attributes:
        centre_: The mean of each coordinate, ``d``.
        scale_: Its standard deviation, ``d``.
        n_features_in_: The dimension ``d`` of the distributions.

    Raises:
        ValueError: On ``fit``, if a coordinate has one value only.
    """

    _least_samples = 2

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Take centre and scale of the training distributions."""
        centre, scale = self._read_training(X)._centre_and_scale(None)
        self.centre_, self.scale_ = centre.numpy(), scale.numpy()
        return self

    def transform(self, X: Samples) -> Distributions | NDArray[np.float64]:
        """Normalise.

        Args:
            X: ``N`` distributions.

        Returns:
            The distributions in their container; for a ``T x d`` array, such an array.
        """
        read = read_distributions(X)
        scaled = self._read_fitted(X if read is None else read)._scaled(
            torch.from_numpy(self.centre_), torch.from_numpy(self.scale_)
        )
        if read is None:
            assert isinstance(scaled, PointClouds)  # of single atoms
            return scaled.points.squeeze(-2).numpy()
        return scaled
