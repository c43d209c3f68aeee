"""Regressor and classifier: Gaussian processes on distributions as estimators of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from gp_distributions.estimators._kernels import ProcessEstimator
from gp_distributions.estimators._samples import Samples
from gp_distributions.fitting import fit
from gp_distributions.measures.targets import check_order
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.arguments import SamplingNoise
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.sparse_classification import SparseClassificationGP

Array = NDArray[np.float64]


class _Scored:
    """Scores of targets in the order of the samples."""

    def score(self: Any, X: Samples, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination, or the accuracy of labels, of predictions.

        Args:
            X: ``N`` distributions, or mixed inputs.
            y: Their targets or labels.
            sample_weight: Weights of the samples. Default: equal weights.

        Raises:
            ValueError: If the index of ``y`` has the names of the samples in another order.
        """
        check_order(X, y)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]


@dataclass(eq=False, repr=False, kw_only=True)
class DistributionGPRegressor(_Scored, MultiOutputMixin, RegressorMixin, ProcessEstimator):
    """Gaussian process regression on distributions, fitted by marginal likelihood.

    Wraps :class:`DistributionGP` (or :class:`SparseDistributionGP`) and :func:`gp_distributions.fit` as
    a scikit-learn estimator. Besides distributions, it takes :class:`MixedInputs`, and data frames of
    which some columns hold bags, as :meth:`MixedInputs.from_frame` does.

    Args:
        distance: Name of a distance (:class:`GramTransformer` lists the names), inside a
            :class:`ScaledDistance`; or a :class:`Distance`, which is copied as it is. Default: the
            default of the model, whose metric :func:`fit` chooses.
        options: Keyword options of the named distance and of :meth:`ReferenceMeasure.from_data`.
            Lengths, such as a bandwidth, are in units of the spread of the coordinates.
        profile: Profile or its name, as in :class:`DistributionKernel`.
        kernel: GPyTorch kernel on rows, which is copied. It replaces the scaled kernel that
            ``distance``, ``options`` and ``profile`` describe. For mixed inputs, make it with
            ``mixed_kernel(MixedInputs.from_frame(frame), ...)``.
        structure: How :func:`mixed_kernel` combines the blocks of mixed inputs: ``"product"``,
            ``"sum"`` or ``"sum+product"``. The distance and the profile are those of each block of
            distributions.
        sampling_noise: Whether smaller bags have larger noise, as in :class:`DistributionGP`.
        num_inducing: Number of inducing distributions of a :class:`SparseDistributionGP`, for tens of
            thousands of distributions and more. Several outputs then share the kernel. Default: an exact
            model.
        restarts: Number of further starts of the fit, as in :func:`fit`.
        seed: Random seed for these starts, and for the choice of the inducing distributions.

    Attributes:
        model_: The fitted :class:`DistributionGP` or :class:`SparseDistributionGP`.
        n_features_in_: Dimension ``d`` of the distributions; for mixed inputs, the number of columns of
            the data frame, or of blocks.
        feature_names_in_: Names of the columns of such a data frame.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance, or ``X`` is sparse.
        ValueError: On ``fit``, if a parameter is invalid, the numbers of distributions and targets
            differ, or there are fewer than two distributions.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> scales = np.linspace(1, 3, 9)
        >>> bags = [rng.normal(0, scale, size=(rng.integers(100, 200), 2)) for scale in scales]
        >>> regressor = DistributionGPRegressor().fit(bags, scales)
        >>> mean, std = regressor.predict([rng.normal(0, 2, size=(40, 2))], return_std=True)
        >>> bool(abs(mean[0] - 2) < 0.5)
        True
    """

    sampling_noise: SamplingNoise = None
    num_inducing: int | None = None
    restarts: int = 1

    def fit(self, X: Samples, y: ArrayLike) -> Self:
        """Fit the hyperparameters.

        Args:
            X: The ``T`` training distributions, or mixed inputs.
            y: The targets, of shape ``T`` or ``T x outputs``.

        Returns:
            The fitted estimator.
        """
        training = self._read_training(X, y)
        given = self._read_targets(y)
        targets = check_array(given, dtype=np.float64, ensure_2d=False, input_name="y")
        model: DistributionGP | SparseDistributionGP
        if self.num_inducing is None:
            kernel = self._make_kernel(training, outputs=targets.shape[1:])
            model = DistributionGP(training, targets, kernel, sampling_noise=self.sampling_noise)
        else:
            model = SparseDistributionGP(
                training,
                targets,
                self._make_kernel(training),
                num_inducing=self.num_inducing,
                sampling_noise=self.sampling_noise,
                seed=self.seed,
            )
        self.model_ = fit(model, restarts=self.restarts, seed=self.seed, progress=False)
        return self

    def predict(self, X: Samples, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict means and, on request, standard deviations.

        Args:
            X: ``N`` distributions, or mixed inputs.
            return_std: Whether to return the standard deviations of observations, including noise.

        Returns:
            The mean, of shape ``N`` or ``N x outputs`` like the training targets, or the mean and the
            standard deviation, in the units of the targets.
        """
        read = self._read_fitted(X)
        mean, std = self.model_.predict(read)
        return (mean.numpy(), std.numpy()) if return_std else mean.numpy()


@dataclass(eq=False, repr=False, kw_only=True)
class DistributionGPClassifier(_Scored, ClassifierMixin, ProcessEstimator):
    """Gaussian process classifier of distributions, fitted by marginal likelihood.

    Wraps :class:`ClassificationGP` (or :class:`SparseClassificationGP`) and :func:`fit`
    as a scikit-learn estimator. Besides distributions, it takes :class:`MixedInputs`, and data frames of
    which some columns hold bags, as :meth:`MixedInputs.from_frame` does.

    Args:
        distance: Name of a distance (:class:`GramTransformer` lists the names), inside a
            :class:`ScaledDistance`; or a :class:`Distance`, which is copied as it is. Default: the
            default of the model, whose metric :func:`fit` chooses.
        options: Keyword options of the named distance and of :meth:`ReferenceMeasure.from_data`.
            Lengths, such as a bandwidth, are in units of the spread of the coordinates.
        profile: Profile or its name, as in :class:`DistributionKernel`.
        kernel: GPyTorch kernel on rows, which is copied. It replaces the scaled kernel that
            ``distance``, ``options`` and ``profile`` describe. For mixed inputs, make it with
            ``mixed_kernel(MixedInputs.from_frame(frame), ...)``.
        structure: How :func:`mixed_kernel` combines the blocks of mixed inputs: ``"product"``,
            ``"sum"`` or ``"sum+product"``. The distance and the profile are those of each block of
            distributions.
        alpha_epsilon: Concentration of the classes not observed at a distribution. Smaller values make
            probabilities more confident. Default: :func:`fit` chooses the value by
            leave-one-out cross-validation.
        temperature: Temperature of the probabilities. Smaller values make probabilities more confident;
            1 leaves them as they are. Default: :func:`fit` chooses the value.
        num_inducing: Number of inducing distributions of a :class:`SparseClassificationGP`, for tens of
            thousands of distributions and more. Default: an exact model.
        restarts: Number of further starts of the fit, as in :func:`fit`.
        seed: Random seed for these starts, and for the choice of the inducing distributions.

    Attributes:
        model_: The fitted :class:`ClassificationGP` or :class:`SparseClassificationGP`.
        classes_: The distinct labels, sorted.
        n_features_in_: Dimension ``d`` of the distributions; for mixed inputs, the number of columns of
            the data frame, or of blocks.
        feature_names_in_: Names of the columns of such a data frame.

    Raises:
        TypeError: On ``fit``, if ``distance`` is neither a name nor a distance, or ``X`` is sparse.
        ValueError: On ``fit``, if a parameter is invalid, the numbers of distributions and labels
            differ, or there are fewer than two classes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGPClassifier
        >>> rng = np.random.default_rng(0)
        >>> bags = [rng.normal(0, scale, size=(30, 2)) for scale in [1, 3] * 4]
        >>> classifier = DistributionGPClassifier().fit(bags, ["narrow", "wide"] * 4)
        >>> classifier.predict([rng.normal(0, 3, size=(25, 2))]).tolist()
        ['wide']
    """

    alpha_epsilon: float | None = None
    temperature: float | None = None
    num_inducing: int | None = None
    restarts: int = 0

    def fit(self, X: Samples, y: ArrayLike) -> Self:
        """Fit the hyperparameters.

        Args:
            X: The ``T`` training distributions, or mixed inputs.
            y: The ``T`` labels.

        Returns:
            The fitted estimator.
        """
        training = self._read_training(X, y)
        labels = column_or_1d(self._read_targets(y), warn=True)
        if labels.dtype != object:  # the model names the cloud whose label is missing
            assert_all_finite(labels, input_name="y")
        kernel = self._make_kernel(training)
        model: ClassificationGP | SparseClassificationGP
        if self.num_inducing is None:
            model = ClassificationGP(training, labels, kernel)
        else:
            model = SparseClassificationGP(
                training, labels, kernel, num_inducing=self.num_inducing, seed=self.seed
            )
        check_classification_targets(labels)
        self.classes_ = model.classes_
        options: dict[str, Any] = {
            name: getattr(self, name) for name in ("restarts", "seed", "temperature")
        }
        if self.alpha_epsilon is not None:
            options["alpha_epsilons"] = [self.alpha_epsilon]
        if self.num_inducing is not None:
            options["progress"] = False
        self.model_ = fit(model, **options)
        return self

    def predict_proba(self, X: Samples) -> NDArray[np.float64]:
        """Predict class probabilities.

        Args:
            X: ``N`` distributions, or mixed inputs.

        Returns:
            An ``N x C`` array with columns in the order of ``classes_``.
        """
        read = self._read_fitted(X)
        return self.model_.predict_proba(read).numpy()

    def predict(self, X: Samples) -> NDArray[Any]:
        """Predict the most probable labels of ``N`` distributions."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]
