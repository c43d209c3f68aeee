"""Gaussian process regression of distributions as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length

from gp_distributions.distances import Distance
from gp_distributions.estimators._kernels import Options
from gp_distributions.estimators._processes import ProcessEstimator
from gp_distributions.estimators._samples import Samples, as_rows, read_targets
from gp_distributions.fitting import fit
from gp_distributions.kernels import Profile
from gp_distributions.models import DistributionGP

Array = NDArray[np.float64]


class DistributionGPRegressor(RegressorMixin, ProcessEstimator):
    """Gaussian process regression of distributions, fitted by marginal likelihood.

    :class:`DistributionGP` and :func:`gp_distributions.fit` with the conventions of scikit-learn.

    Args:
        distance: The name of a distance, see :class:`GramTransformer`, or a :class:`Distance`, which is
            copied.
        options: Keyword options of the named distance, and of :meth:`ReferenceMeasure.from_data`.
        profile: A profile or its name, see :class:`DistributionKernel`.
        kernel: A GPyTorch kernel on rows, which is copied, in place of the scaled kernel that
            ``distance``, ``options`` and ``profile`` describe.
        sampling_noise: Whether noise is larger at smaller bags, see :class:`DistributionGP`.
        restarts: Further starts of the fit.
        seed: Of the random starts.

    Attributes:
        model_: The fitted :class:`DistributionGP`.
        n_features_in_: The dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance.
        ValueError: On ``fit``, if a parameter is none of those above, or numbers of distributions and
            targets differ.
    """

    def __init__(
        self,
        distance: str | Distance = "sliced_wasserstein",
        *,
        options: Options = None,
        profile: str | Profile = "matern52",
        kernel: Kernel | None = None,
        sampling_noise: bool | Literal["ties"] = False,
        restarts: int = 1,
        seed: int = 0,
    ) -> None:
        self.distance = distance
        self.options = options
        self.profile = profile
        self.kernel = kernel
        self.sampling_noise = sampling_noise
        self.restarts = restarts
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Samples, y: ArrayLike) -> Self:
        """Fit the hyperparameters.

        Args:
            X: ``T`` distributions.
            y: The targets, ``T`` or ``T x outputs``.

        Returns:
            The estimator.
        """
        training = self._read_training(X)
        targets = check_array(
            read_targets(self, y), dtype=np.float64, ensure_2d=False, input_name="y"
        )
        check_consistent_length(training, targets)
        model = DistributionGP(
            training,
            targets,
            self._make_kernel(training, outputs=targets.shape[1:]),
            sampling_noise=self.sampling_noise,
        )
        self.model_ = fit(model, restarts=self.restarts, seed=self.seed)
        return self

    def predict(self, X: Samples, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Means, and on request standard deviations.

        Args:
            X: ``N`` distributions.
            return_std: Whether to return the standard deviations of observations, noise included.

        Returns:
            The mean, ``N`` or ``N x outputs`` like the training targets, or mean and standard deviation,
            in the units of the targets.
        """
        rows = as_rows(self._read_fitted(X))
        mean, std = self.model_.predict(rows)
        return (mean.numpy(), std.numpy()) if return_std else mean.numpy()
