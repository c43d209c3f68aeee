"""Distributions as features or as similarities, for the machines of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from gp_distributions.distances import Distance
from gp_distributions.estimators._kernels import Options, make_distance, make_kernel
from gp_distributions.estimators._samples import DistributionEstimator, Samples, as_rows
from gp_distributions.inverse import invert_embedding
from gp_distributions.kernels import Profile
from gp_distributions.measures import PointClouds
from gp_distributions.rows.clouds import pad_rows


class EmbeddingTransformer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DistributionEstimator
):
    """Features of distributions whose Euclidean distance is a distance between distributions.

    Linear machines on these features are the kernel machines of the distance with a linear profile:
    principal components, k-means, linear support vector machines and discriminants; and what they
    find has an inverse image, :meth:`inverse_transform`.

    Args:
        distance: ``"sliced_wasserstein"``, ``"mmd"``, ``"fourier"``, ``"hellinger"``,
            ``"linear_transport"`` or ``"sinkhorn"``, the last two to a reference that is placed by the
            training clouds; or a :class:`Distance`, which is copied.
        options: Keyword options of the named distance, and of :meth:`ReferenceMeasure.from_data`.

    Attributes:
        distance_: The distance.
        n_features_in_: The dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance.
        ValueError: On ``fit``, if the distance has no finite number of features, or does not fit.
    """

    def __init__(
        self, distance: str | Distance = "sliced_wasserstein", *, options: Options = None
    ) -> None:
        self.distance = distance
        self.options = options

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Place what depends on the training distributions: references, bandwidths, landmarks."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Samples, y: Any = None, **params: Any) -> NDArray[np.float64]:
        """Fit, and the features of the training distributions."""
        training = self._read_training(X)
        distance = make_distance(self.distance, self.options, training, self.inputs_)
        if not distance.euclidean:
            raise ValueError(
                f"{distance!r} has no finite number of features; use GramTransformer, or for MMD give "
                'options={"num_features": ...}.'
            )
        self.distance_ = distance
        features = self._features(as_rows(training))
        self._n_features_out = features.shape[1]
        return features

    def transform(self, X: Samples) -> NDArray[np.float64]:
        """Features.

        Args:
            X: ``N`` distributions.

        Returns:
            An ``N x D`` array.
        """
        return self._features(as_rows(self._read_fitted(X)))

    def inverse_transform(self, X: ArrayLike, **options: Any) -> PointClouds:
        """Clouds whose features are near those given; see :func:`invert_embedding`.

        Args:
            X: An ``N x D`` array of features.
            **options: Options of :func:`invert_embedding`.

        Returns:
            The ``N`` clouds.
        """
        check_is_fitted(self)
        features = torch.from_numpy(check_array(X, dtype=np.float64))
        return invert_embedding(self.distance_, features, **options).clouds

    def _features(self, rows: torch.Tensor) -> NDArray[np.float64]:
        with torch.no_grad():
            return self.distance_.embed(rows).numpy()


class GramTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DistributionEstimator):
    """Kernels between distributions and the training distributions, for ``kernel="precomputed"``.

    In a pipeline before ``SVC``, ``KernelRidge`` or ``KernelPCA`` with ``kernel="precomputed"``, it can
    be searched over and cross-validated like any other step: rows and columns are split together.

    Args:
        distance: ``"sliced_wasserstein"``, ``"mmd"``, ``"fourier"``, ``"hellinger"``,
            ``"total_variation"``, ``"linear_transport"`` or ``"sinkhorn"``, the last two to a reference
            that is placed by the training clouds; or a :class:`Distance`, which is copied.
        options: Keyword options of the named distance, and of :meth:`ReferenceMeasure.from_data`.
        profile: A profile or its name, see :class:`DistributionKernel`.
        lengthscale: The lengthscale of the profile, in units of the distance; ``"median"`` is the median
            distance between training distributions.

    Attributes:
        kernel_: The kernel, a :class:`DistributionKernel`.
        n_features_in_: The dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance.
        ValueError: On ``fit``, if a parameter is none of those above.
    """

    def __init__(
        self,
        distance: str | Distance = "sliced_wasserstein",
        *,
        options: Options = None,
        profile: str | Profile = "matern52",
        lengthscale: float | str = "median",
    ) -> None:
        self.distance = distance
        self.options = options
        self.profile = profile
        self.lengthscale = lengthscale

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Keep the training distributions."""
        training = self._read_training(X)
        distance = make_distance(self.distance, self.options, training, self.inputs_)
        self.kernel_ = make_kernel(distance, self.profile, self.lengthscale, training)
        self._rows = as_rows(training)
        return self

    def fit_transform(self, X: Samples, y: Any = None, **params: Any) -> NDArray[np.float64]:
        """Fit, and the ``T x T`` Gram matrix of the training distributions."""
        self.fit(X)
        with torch.no_grad():
            return self.kernel_(self._rows).to_dense().numpy()

    def transform(self, X: Samples) -> NDArray[np.float64]:
        """Kernels to the training distributions.

        Args:
            X: ``N`` distributions.

        Returns:
            An ``N x T`` array.
        """
        rows = as_rows(self._read_fitted(X))
        width = max(rows.shape[-1], self._rows.shape[-1])  # GPyTorch asks for one width
        with torch.no_grad():
            covariance = self.kernel_(pad_rows(rows, width), pad_rows(self._rows, width))
            return covariance.to_dense().numpy()

    @property
    def _n_features_out(self) -> int:
        return len(self._rows)
