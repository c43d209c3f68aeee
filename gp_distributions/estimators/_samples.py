"""What scikit-learn gives an estimator as ``X``, read as distributions."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gp_distributions.measures import GaussianMixtures, Gaussians, PointClouds
from gp_distributions.measures.kinds import KINDS, Distributions

Samples: TypeAlias = Distributions | ArrayLike | Tensor


class DistributionEstimator(BaseEstimator):
    """An estimator whose samples are distributions.

    Attributes:
        n_features_in_: The dimension ``d`` of the distributions seen in ``fit``.
        inputs_: What they are: ``"clouds"``, ``"gaussians"`` or ``"mixtures"``.
    """

    # Fewer distributions than these cannot be fitted.
    _least_samples = 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _read_training(self, X: Samples) -> Distributions:
        """The distributions that ``fit`` is given, whose dimension and kind are kept."""
        read = self._read(X, reset=True)
        if len(read) < self._least_samples:
            raise ValueError(
                f"Found {len(read)} sample(s), while a minimum of {self._least_samples} is required "
                f"by {type(self).__name__}."
            )
        self.inputs_ = KINDS[type(read)]
        return read

    def _read_fitted(self, X: Samples) -> Distributions:
        """Distributions of the dimension and kind that ``fit`` has seen."""
        check_is_fitted(self)
        read = self._read(X, reset=False)
        if KINDS[type(read)] != self.inputs_:
            raise ValueError(
                f"{type(self).__name__} was fitted on {self.inputs_}, got {KINDS[type(read)]}."
            )
        return read

    def _read(self, X: Samples, *, reset: bool) -> Distributions:
        read = read_distributions(X)
        if read is None:
            array = validate_data(self, X, reset=reset, dtype=np.float64)
            return PointClouds(array[:, None, :])
        if len(read.batch_shape) != 1:
            raise ValueError(
                "Expected distributions along one axis, got a batch of shape "
                f"{tuple(read.batch_shape)}. Reshape your data."
            )
        if reset:
            self.n_features_in_ = read.dim
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif read.dim != self.n_features_in_:
            raise ValueError(
                f"X has {read.dim} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return read


def read_distributions(X: Samples) -> Distributions | None:
    """Read distributions; ``None`` where ``X`` is anything else, which should then be a 2-D array.

    Args:
        X: Distributions in one container or in a list of single ones, as indexing in
            cross-validation makes of it; a list of ``n_i x d`` arrays; a ``T x n x d`` array. A column
            of a data frame is read as a list.

    Returns:
        The distributions, in double precision, without gradient.

    Raises:
        ValueError: If a list holds both distributions and other things, or one-dimensional arrays; if
            ``X`` is a tensor that is not ``T x n x d``; or as the containers do.
    """
    if isinstance(X, PointClouds | Gaussians | GaussianMixtures):
        return _frozen(X)
    if isinstance(X, Tensor):
        if X.dim() != 3:
            raise ValueError(
                f"Expected a tensor of shape T x n x d, got {tuple(X.shape)}. Rows are read by "
                "PointClouds.unpack(rows, dim), points of one atom each by X[:, None]."
            )
        return _frozen(PointClouds(X))
    if hasattr(X, "to_numpy") and getattr(X, "ndim", None) == 1:
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.ndim == 3:
        return PointClouds(_double(X))
    if isinstance(X, np.ndarray) and X.dtype != object:
        return None
    if not (isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.ndim == 1)) or not len(
        X
    ):
        return None
    if any(isinstance(item, tuple(KINDS)) for item in X):
        return _joined(list(X))
    if all(isinstance(item, np.ndarray | Tensor) and item.ndim == 1 for item in X):
        raise ValueError(
            f"Expected bags as n_i x d arrays, but bag 0 has shape {tuple(X[0].shape)}. Numbers are "
            "points in one dimension as array[:, None]; clouds of one atom each are one T x d array."
        )
    if _axes(X[0]) != 2:
        return None
    return _frozen(PointClouds.from_list([_double(bag) for bag in X]))


def as_rows(distributions: Distributions) -> Tensor:
    """Distributions as rows, on the CPU."""
    return distributions.pack()


def read_targets(estimator: BaseEstimator, y: ArrayLike | None) -> ArrayLike:
    """Targets that are there.

    Raises:
        ValueError: If they are not.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    return y


def _joined(items: list[Any]) -> Distributions:
    """Single distributions of one kind and dimension as one container."""
    kind = type(items[0])
    alike = all(
        type(item) is kind and not item.batch_shape and item.dim == items[0].dim for item in items
    )
    if kind not in KINDS or not alike:
        raise ValueError(
            "Expected a list of single distributions of one kind and dimension, or of arrays, got "
            f"{', '.join(dict.fromkeys(map(repr, items[:5])))}, ..."
        )
    rows = [item.pack() for item in items]
    joined = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # zeros are padding
    return _frozen(kind.unpack(joined, items[0].dim))


def _frozen(read: Distributions) -> Distributions:
    """In double precision on the CPU, outside of any graph."""
    rows = read.pack().detach().to("cpu", torch.float64)
    return type(read).unpack(rows, read.dim)


def _double(bag: Any) -> Any:
    """A bag in double precision; what is no array of numbers is left to raise an error."""
    if isinstance(bag, Tensor):
        return bag.detach().to("cpu", torch.float64)
    array: NDArray[Any] = np.asarray(bag)
    if array.dtype == object:
        array = np.array(array.tolist())  # of numbers alone, it has their dtype
    return array.astype(np.float64) if array.dtype.kind in "biuf" else array


def _axes(item: Any) -> int:
    try:
        return int(item.ndim) if hasattr(item, "ndim") else np.ndim(item)
    except ValueError:  # ragged
        return 0
