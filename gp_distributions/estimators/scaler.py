"""Normalisation of distributions as a step of a pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gp_distributions.estimators._samples import DistributionEstimator, Samples, read_inputs
from gp_distributions.measures import MixedInputs
from gp_distributions.measures.inputs import Inputs, distributions_of


class CloudScaler(  # type: ignore[call-arg]
    OneToOneFeatureMixin, TransformerMixin, DistributionEstimator, auto_wrap_output_keys=None
):
    """Standardise coordinates by the mean and standard deviation of the training distributions.

    Wraps :meth:`PointClouds.normalize` as a scikit-learn transformer. As the first step of a pipeline,
    it is fitted on the training folds only. On a ``T x d`` array, it is equivalent to
    ``StandardScaler``. In mixed inputs and data frames with columns of bags, it scales each block of
    distributions by itself, and leaves numbers and categories to the model. The setting
    ``transform_output`` of scikit-learn does not change what it returns, which models read.

    Attributes:
        centre_: Mean of each of the ``d`` coordinates; for mixed inputs, by the name of the block.
        scale_: Standard deviation of each of the ``d`` coordinates, likewise.
        n_features_in_: Dimension ``d`` of the distributions; for mixed inputs, the number of columns of
            the data frame, or of blocks.

    Raises:
        TypeError: On ``fit``, if ``X`` is sparse.
        ValueError: On ``fit``, if a coordinate is constant.

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

    centre_: NDArray[np.float64] | dict[str, NDArray[np.float64]]
    scale_: NDArray[np.float64] | dict[str, NDArray[np.float64]]
    _least_samples = 2
    _takes_mixed = True

    def fit(self, X: Samples, y: Any = None) -> Self:
        """Compute the centre and the scale of the training distributions."""
        training = self._read_training(X, y)  # the scaled distributions may have no names
        with torch.no_grad():
            found = {
                name: [moment.numpy() for moment in block._centre_and_scale(None)]
                for name, block in distributions_of(training).items()
            }
        self.centre_, self.scale_ = ({n: pair[i] for n, pair in found.items()} for i in (0, 1))
        if not isinstance(training, MixedInputs):
            self.centre_, self.scale_ = found[""]
        return self

    def transform(self, X: Samples) -> Inputs | NDArray[np.float64]:
        """Centre and scale distributions.

        Args:
            X: ``N`` distributions, or mixed inputs.

        Returns:
            The scaled distributions, in the same container; an ``N x d`` array if ``X`` is such an
            array; or :class:`MixedInputs`.
        """
        check_is_fitted(self)
        given = X if isinstance(self.centre_, dict) else read_inputs(X)
        read = self._read_fitted(X if given is None else given)
        moments: list[Any] = [self.centre_, self.scale_]
        if not isinstance(read, MixedInputs):
            scaled = read._scaled(*map(torch.from_numpy, moments))
            # The rows of a matrix are single atoms.
            return scaled if given is not None else scaled.points.squeeze(-2).numpy()
        return read._with(
            {
                name: block._scaled(*(torch.from_numpy(moment[name]) for moment in moments))
                for name, block in distributions_of(read).items()
            }
        )

    def set_output(self, *, transform: str | None = None) -> Self:
        """Return the scaler unchanged, as in a pipeline whose other steps return frames.

        Args:
            transform: Ignored, since frames do not hold containers.
        """
        return self

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names of the inputs.

        Args:
            input_features: Names of the columns. Default: those seen during ``fit``, or ``"x0"``,
                ``"x1"``, ... A column of bags has one name, however many coordinates the bags have.
        """
        check_is_fitted(self)
        if input_features is not None and not hasattr(self, "feature_names_in_"):
            names = np.asarray(input_features, dtype=object)
            if len(names) == 1:
                return names
        return super().get_feature_names_out(input_features)
