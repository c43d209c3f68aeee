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
    """Standardise coordinates by the mean and standard deviation of the training distributions.

    Wraps :meth:`PointClouds.normalize` as a scikit-learn transformer. As the first step of a pipeline,
    it is fitted on the training folds only. On a ``T x d`` array, it is equivalent to
    ``StandardScaler``.

    Attributes:
        centre_: Mean of each of the ``d`` coordinates.
        scale_: Standard deviation of each of the ``d`` coordinates.
        n_features_in_: Dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``X`` is sparse.
        ValueError: On ``fit``, if a coordinate is constant, or ``X`` looks like packed rows.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import CloudScaler
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(5, 2, size=(n, 2)) for n in (20, 30)]
        >>> scaler = CloudScaler().fit(bags)
        >>> scaler.centre_.round().tolist()
        [5.0, 5.0]
        >>> scaler.transform(bags)
        PointClouds(2 clouds, 20-30 atoms, d=2, float64)
    """

    _least_samples = 2

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Compute the centre and the scale of the training distributions."""
        centre, scale = self._read_training(X)._centre_and_scale(None)
        self.centre_, self.scale_ = centre.numpy(), scale.numpy()
        return self

    def transform(self, X: Samples) -> Distributions | NDArray[np.float64]:
        """Centre and scale distributions.

        Args:
            X: ``N`` distributions.

        Returns:
            The scaled distributions, in the same container; an ``N x d`` array if ``X`` is such an
            array.
        """
        read = read_distributions(X)
        scaled = self._read_fitted(X if read is None else read)._scaled(
            torch.from_numpy(self.centre_), torch.from_numpy(self.scale_)
        )
        if read is None:
            assert isinstance(scaled, PointClouds)  # of single atoms
            return scaled.points.squeeze(-2).numpy()
        return scaled
