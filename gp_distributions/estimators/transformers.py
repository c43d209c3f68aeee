"""Transformers from distributions to features or Gram matrices for scikit-learn estimators."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from gp_distributions.distances.comparison import rounding_of
from gp_distributions.distances.inverse import invert_embedding
from gp_distributions.estimators._kernels import DistanceEstimator
from gp_distributions.estimators._samples import (
    Samples,
    as_array,
)
from gp_distributions.kernels import DistributionKernel, Profile
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures import PointClouds
from gp_distributions.numerics.sampling import median_apart

# Number of distributions whose features are computed at a time.
_PIECE = 1024


class _NumberedFeatures(ClassNamePrefixFeaturesOutMixin):
    """Names of features that do not depend on the names of inputs."""

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names of the features: the name of the class and the number of the feature.

        Args:
            input_features: Ignored. A column of bags has one name, however many coordinates the bags
                have.
        """
        return super().get_feature_names_out()


@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddingTransformer(_NumberedFeatures, TransformerMixin, DistanceEstimator):
    """Map distributions to features whose Euclidean distances are distances between distributions.

    A linear method on these features (principal components, k-means, a linear support vector machine or
    discriminant) is equivalent to the kernel method whose kernel has this distance and a linear
    profile. :meth:`inverse_transform` maps results of such a method back to clouds.

    Args:
        distance: ``"sliced_wasserstein"``, ``"rigid_sliced_wasserstein"``, ``"mmd"``, ``"fourier"``,
            ``"hellinger"``, ``"linear_transport"`` or ``"sinkhorn"``, or a :class:`Distance`, which is
            copied. The last two names use a reference measure that is placed according to the
            training clouds.
        options: Keyword options of the named distance and of :meth:`ReferenceMeasure.from_data`.
        dtype: Data type of the features. ``numpy.float32`` takes half of the memory; features are
            computed in the precision of the clouds and then rounded, so that the distance between
            features ``f`` and ``g`` changes by at most ``6e-8 (|f| + |g|)``.

    Attributes:
        distance_: The distance.
        n_features_in_: Dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance, or ``X`` is sparse.
        ValueError: On ``fit``, if the distance is invalid or has no finite number of features.

    Example:
        >>> import numpy as np
        >>> from sklearn.decomposition import PCA
        >>> from sklearn.pipeline import make_pipeline
        >>> from gp_distributions import EmbeddingTransformer
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(0, scale, size=(30, 2)) for scale in np.linspace(1, 3, 8)]
        >>> make_pipeline(EmbeddingTransformer(), PCA(2)).fit_transform(bags).shape
        (8, 2)
    """

    dtype: type[np.floating[Any]] = np.float64

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Choose references, bandwidths and landmarks from the training distributions."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Samples, y: Any = None, **params: Any) -> NDArray[np.floating[Any]]:
        """Fit the transformer, and return the features of the training distributions."""
        training = self._read_training(X)
        distance = self._make_distance(training)
        if not distance.euclidean:
            raise ValueError(
                f"{distance!r} has no finite number of features; use GramTransformer, or for MMD give "
                'options={"num_features": ...}.'
            )
        self.distance_ = distance
        features = self._features(training.pack())
        self._n_features_out = features.shape[1]
        return features

    def transform(self, X: Samples) -> NDArray[np.floating[Any]]:
        """Compute features.

        Args:
            X: ``N`` distributions.

        Returns:
            An ``N x D`` array.
        """
        return self._features(self._read_fitted(X).pack())

    def inverse_transform(self, X: ArrayLike | torch.Tensor, **options: Any) -> PointClouds:
        """Find clouds whose features are close to given features, with :func:`invert_embedding`.

        Args:
            X: An ``N x D`` array of features.
            **options: Options of :func:`invert_embedding`.

        Returns:
            The ``N`` clouds.

        Example:
            >>> import numpy as np
            >>> from gp_distributions import EmbeddingTransformer
            >>> embedding = EmbeddingTransformer(options={"num_slices": 20, "num_quantiles": 20})
            >>> features = embedding.fit_transform(np.random.default_rng(0).normal(size=(4, 10, 2)))
            >>> embedding.inverse_transform(features[:1], atoms=10)
            PointClouds(1 cloud, 10 atoms, d=2, float64)
        """
        check_is_fitted(self)
        features = torch.from_numpy(check_array(as_array(X), dtype=np.float64))
        return invert_embedding(self.distance_, features, **options).clouds

    def _features(self, rows: torch.Tensor) -> NDArray[np.floating[Any]]:
        with torch.no_grad():
            self.distance_.adapt(rows)  # to all rows, before the first of them are embedded
            parts = rows.split(_PIECE)
            first = self.distance_.embed(parts[0]).numpy()
            features = np.empty((len(rows), first.shape[1]), dtype=self.dtype)
            features[: len(first)] = first
            for i, part in enumerate(parts[1:], start=1):
                features[i * _PIECE : i * _PIECE + len(part)] = self.distance_.embed(part).numpy()
        return features


@dataclass(eq=False, repr=False, kw_only=True)
class GramTransformer(_NumberedFeatures, TransformerMixin, DistanceEstimator):
    """Compute Gram matrices of distributions for estimators with ``kernel="precomputed"``.

    In a pipeline before ``SVC``, ``KernelRidge`` or ``KernelPCA``, the transformer supports
    cross-validation and a search over its parameters, because each fold has its own Gram matrix.

    Args:
        distance: ``"sliced_wasserstein"``, ``"rigid_sliced_wasserstein"``, ``"mmd"``, ``"fourier"``,
            ``"hellinger"``, ``"total_variation"``, ``"chi_squared"``, ``"linear_transport"`` or
            ``"sinkhorn"``, or a :class:`Distance`, which is copied. The last two names use a reference
            measure that is placed according to the training clouds.
        options: Keyword options of the named distance and of :meth:`ReferenceMeasure.from_data`.
        profile: Profile or its name, as in :class:`DistributionKernel`.
        lengthscale: Lengthscale of the profile, in units of the distance, or ``"median"``: the median
            distance between training distributions that do not coincide.

    Attributes:
        kernel_: The :class:`DistributionKernel`.
        n_features_in_: Dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance, or ``X`` is sparse.
        ValueError: On ``fit``, if a parameter is invalid.

    Example:
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.svm import SVC
        >>> from gp_distributions import GramTransformer
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(0, scale, size=(30, 2)) for scale in [1, 3] * 6]
        >>> classifier = make_pipeline(GramTransformer("mmd"), SVC(kernel="precomputed"))
        >>> classifier.fit(bags, [1, 3] * 6).predict(bags[:4]).tolist()
        [1, 3, 1, 3]
    """

    profile: str | Profile = "matern52"
    lengthscale: float | str = "median"

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Make the kernel, and store the training distributions."""
        training = self._read_training(X)
        distance, rows = self._make_distance(training), training.pack()
        kernel = DistributionKernel(distance, copy.deepcopy(self.profile)).double()
        if self.lengthscale == "median":
            with torch.no_grad():
                squared = distance.squared(rows)
                median = median_apart(squared, rounding=rounding_of(distance, rows, squared)).sqrt()
            kernel.lengthscale = median.nan_to_num(1.0)
        elif isinstance(self.lengthscale, str) or not self.lengthscale > 0:
            raise ValueError(f'Expected lengthscale > 0 or "median", got {self.lengthscale!r}.')
        else:
            kernel.lengthscale = float(self.lengthscale)
        self.kernel_, self._rows = kernel, rows
        return self

    def fit_transform(self, X: Samples, y: Any = None, **params: Any) -> NDArray[np.float64]:
        """Fit the transformer, and return the ``T x T`` Gram matrix of the training distributions."""
        self.fit(X)
        with torch.no_grad():
            return covariance(self.kernel_, self._rows).numpy()

    def transform(self, X: Samples) -> NDArray[np.float64]:
        """Compute kernel values between distributions and the training distributions.

        Args:
            X: ``N`` distributions.

        Returns:
            An ``N x T`` array.
        """
        rows = self._read_fitted(X).pack()
        with torch.no_grad():
            return covariance(self.kernel_, rows, self._rows).numpy()

    @property
    def _n_features_out(self) -> int:
        return len(self._rows)
