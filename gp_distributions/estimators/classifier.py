"""Gaussian process classification of distributions as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from gp_distributions.distances import Distance
from gp_distributions.estimators._kernels import Options
from gp_distributions.estimators._processes import ProcessEstimator
from gp_distributions.estimators._samples import Samples, as_rows, read_targets
from gp_distributions.fitting import fit_classification
from gp_distributions.kernels import Profile
from gp_distributions.models.classification import ClassificationGP


class DistributionGPClassifier(ClassifierMixin, ProcessEstimator):
    """Gaussian process classification of distributions, fitted by marginal likelihood.

    :class:`ClassificationGP` and :func:`fit_classification` with the conventions of scikit-learn.

    Args:
        distance: The name of a distance, see :class:`GramTransformer`, or a :class:`Distance`, which is
            copied.
        options: Keyword options of the named distance, and of :meth:`ReferenceMeasure.from_data`.
        profile: A profile or its name, see :class:`DistributionKernel`.
        kernel: A GPyTorch kernel on rows, which is copied, in place of the scaled kernel that
            ``distance``, ``options`` and ``profile`` describe.
        alpha_epsilon: The concentration of classes that were not seen at a distribution; smaller values
            make probabilities more confident. Default: chosen by leave-one-out, see
            :func:`fit_classification`.
        restarts: Further starts of the fit.
        seed: Of the random starts.

    Attributes:
        model_: The fitted :class:`ClassificationGP`.
        classes_: The distinct labels, in order.
        n_features_in_: The dimension ``d`` of the distributions.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance.
        ValueError: On ``fit``, if a parameter is none of those above, numbers of distributions and
            labels differ, or there are fewer than two classes.
    """

    def __init__(
        self,
        distance: str | Distance = "sliced_wasserstein",
        *,
        options: Options = None,
        profile: str | Profile = "matern52",
        kernel: Kernel | None = None,
        alpha_epsilon: float | None = None,
        restarts: int = 0,
        seed: int = 0,
    ) -> None:
        self.distance = distance
        self.options = options
        self.profile = profile
        self.kernel = kernel
        self.alpha_epsilon = alpha_epsilon
        self.restarts = restarts
        self.seed = seed

    def fit(self, X: Samples, y: ArrayLike) -> Self:
        """Fit the hyperparameters.

        Args:
            X: ``T`` distributions.
            y: The ``T`` labels.

        Returns:
            The estimator.
        """
        training = self._read_training(X)
        labels = column_or_1d(read_targets(self, y), warn=True)
        assert_all_finite(labels, input_name="y")
        check_consistent_length(training, labels)
        model = ClassificationGP(training, labels, self._make_kernel(training))
        check_classification_targets(
            labels
        )  # after missing labels are named, which it stumbles over
        self.classes_ = model.classes_
        options: dict[str, Any] = {"restarts": self.restarts, "seed": self.seed}
        if self.alpha_epsilon is not None:
            options["alpha_epsilons"] = [self.alpha_epsilon]
        self.model_ = fit_classification(model, **options)
        return self

    def predict_proba(self, X: Samples) -> NDArray[np.float64]:
        """The probabilities of all classes, ``N x C``, in the order of ``classes_``."""
        rows = as_rows(self._read_fitted(X))
        return self.model_.predict_proba(rows).numpy()

    def predict(self, X: Samples) -> NDArray[Any]:
        """The most probable labels."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]
