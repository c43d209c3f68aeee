"""Functions that read the ``X`` and ``y`` passed to an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gp_distributions.measures import MixedInputs, PointClouds
from gp_distributions.measures.arrays import count_axes, double
from gp_distributions.measures.gaussians import KINDS, Distributions
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.mixed_inputs import bag_columns, read_column
from gp_distributions.measures.tables import Columns, cells, in_order, is_table, names_of, table
from gp_distributions.measures.targets import check_apart, check_order
from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.sharding import ShardedClouds

Samples: TypeAlias = Inputs | ArrayLike | Tensor
# The name of mixed inputs beside the kinds of distributions.
_MIXED = "mixed inputs"


class DistributionEstimator(BaseEstimator):
    """Base class of estimators whose samples are distributions.

    Attributes:
        n_features_in_: Dimension ``d`` of the distributions seen during ``fit``; for mixed inputs, the
            number of columns of the data frame, or of blocks.
        feature_names_in_: Names of the columns, if ``X`` was an array with names, a data frame with
            columns of bags beside others, or distributions read from frames.
        inputs_: Kind of these distributions: ``"clouds"``, ``"gaussians"`` or ``"mixtures"``; or
            ``"mixed inputs"``.
    """

    # Smallest number of training distributions that fit accepts.
    _least_samples = 1
    # Whether fit accepts mixed inputs.
    _takes_mixed = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _read_training(self, X: Samples, y: Any = None) -> Any:
        """Read the distributions or mixed inputs passed to ``fit``, and remember what they are.

        Raises:
            ValueError: If there are too few, or the index of ``y`` has the names of the samples in
                another order, or other names.
        """
        read = self._read(X, reset=True)
        if len(read) < self._least_samples:
            raise ValueError(
                f"Found {len(read)} sample(s), while a minimum of {self._least_samples} is required "
                f"by {type(self).__name__}."
            )
        check_order(read if names_of(X) is None else X, y)  # a frame or series has an index
        check_apart(read, y)
        self.inputs_ = _kind(read)
        return read

    def _read_fitted(self, X: Samples) -> Any:
        """Read distributions of the dimension and kind seen during ``fit``, or mixed inputs."""
        check_is_fitted(self)
        read = self._read(X, reset=False)
        if _kind(read) != self.inputs_:
            raise ValueError(
                f"{type(self).__name__} was fitted on {self.inputs_}, got {_kind(read)}."
            )
        return read

    def _read(self, X: Samples, *, reset: bool) -> Inputs:
        if is_table(X) and not reset and self.inputs_ == _MIXED:
            validate_data(self, X, reset=False, skip_check_array=True)  # its names and their order
        # If the estimator was fitted in one dimension, a list of numbers is a bag, not a matrix row.
        read = read_inputs(X, numbers=not reset and getattr(self, "n_features_in_", None) == 1)
        if read is None:  # the rows of a matrix are clouds of one atom
            array = validate_data(self, X, reset=reset, dtype=np.float64)
            return PointClouds(array[:, None, :])
        if isinstance(read, MixedInputs):
            if not self._takes_mixed:
                raise TypeError(
                    f"{type(self).__name__} takes one bag for each sample, got mixed inputs with the "
                    f"blocks {list(read.blocks)}. Pass one column of bags, or one block."
                )
            if reset and is_table(X):
                validate_data(self, X, skip_check_array=True)
            elif reset:
                self._remember(len(read.blocks))
            return read
        if len(read.batch_shape) != 1:
            raise ValueError(
                "Expected distributions along one axis, got a batch of shape "
                f"{tuple(read.batch_shape)}. Reshape your data."
            )
        if reset:
            self._remember(read.dim, read.columns)
            return read
        read = in_order(read, tuple(getattr(self, "feature_names_in_", ())) or None, "X")
        if read.dim != self.n_features_in_ and self.inputs_ != _MIXED:
            raise ValueError(
                f"X has {read.dim} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return read

    def _remember(self, features: int, names: Columns = None) -> None:
        """Remember the number of features, and their names."""
        self.n_features_in_ = features
        self.__dict__.pop("feature_names_in_", None)
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)


def _kind(read: Inputs) -> str:
    return _MIXED if isinstance(read, MixedInputs) else KINDS[type(read)]


def read_inputs(X: Samples, *, numbers: bool = False) -> Inputs | None:
    """Read distributions or mixed inputs, or return ``None`` if ``X`` should be read as a 2-D array.

    Args:
        X: Inputs in one container, or a list of single ones, which cross-validation creates by indexing
            a container; a list of ``n_i x d`` arrays, or of bags of ``n_i`` numbers; a ``T x n x d``
            array; or a data frame with columns of bags. A column of a data frame with a bag in each
            entry is read as a list.
        numbers: Whether inner lists of equal length are bags of numbers rather than the rows of a
            matrix. Lists of unequal lengths and columns of lists are always read as bags.

    Returns:
        The inputs on the CPU, in double precision; distributions without gradients; or ``None``.

    Raises:
        TypeError: If ``X`` is a dictionary or not in memory.
        ValueError: If a list mixes distributions with other objects or could also be a matrix, if
            ``X`` is a masked array or a tensor of any shape but ``T x n x d``, or if the container
            refuses the data.
    """
    if isinstance(X, Mapping | ShardedClouds) or hasattr(type(X), "collect"):
        raise TypeError(
            f"Expected distributions in memory, in a container or a list, got {type(X).__name__}. Pass "
            "PointClouds.from_list(X) for a dictionary, X.collect() for a lazy frame, and give "
            "ShardedClouds to SparseDistributionGP or SparseClassificationGP."
        )
    if is_table(X):
        frame = table(X)
        bags = bag_columns(frame)
        if bags and len(frame.columns) > 1:
            return MixedInputs._from_table(frame, bags)
        return next(map(read_column, bags.values()), None)
    if isinstance(X, list) and any(isinstance(item, MixedInputs | Distributions) for item in X):
        X = _joined(X)
    if isinstance(X, MixedInputs):
        return X.to("cpu", torch.float64)
    if isinstance(X, Distributions):
        tensors = [tensor.detach().to("cpu", torch.float64) for tensor in X._tensors]
        return X._alike(*tensors, labels=X.labels)
    refuse_mask(X, "X", "give masked atoms weight 0 or leave them out")
    if isinstance(X, Tensor) or (isinstance(X, np.ndarray) and X.ndim == 3):
        if X.ndim != 3:
            raise ValueError(
                f"Expected a tensor of shape T x n x d, got {tuple(X.shape)}. Read packed rows with "
                "PointClouds.unpack(rows, dim), and points of one atom each with X[:, None]."
            )
        return PointClouds(double(X, "X"))
    column = cells(X)
    if isinstance(X, np.ndarray) and X.dtype == object and X.squeeze().ndim == 1:
        column = list(X.squeeze())
    items = list(X) if column is None and isinstance(X, list | tuple) else column or []
    if isinstance(X, list) and not X:
        raise ValueError("Expected at least one sample, got an empty list.")
    axes = {count_axes(item) for item in items}
    if axes <= {0}:
        return None
    if axes == {1} and column is None and not numbers and len({len(item) for item in items}) == 1:
        if all(isinstance(item, np.ndarray | Tensor) for item in items):
            raise ValueError(
                f"Expected bags as n_i x d arrays, but all have the shape {tuple(items[0].shape)}. "
                "Pass PointClouds.from_list(X) if each is a bag of numbers, and np.stack(X) if each "
                "is a cloud of one atom."
            )
        return None  # the rows of a matrix
    return read_column(items)


def _joined(items: list[Any]) -> Inputs:
    """Join mixed inputs, or single distributions of one kind and dimension, in one container."""
    if all(isinstance(item, MixedInputs) for item in items):
        return MixedInputs.concatenate(items)
    found = {
        (type(item), getattr(item, "dim", 0), getattr(item, "batch_shape", None)) for item in items
    }
    if len(found) > 1 or items[0].batch_shape:
        raise ValueError(
            "Expected a list of single distributions of one kind and dimension, or of arrays, got "
            f"{', '.join(dict.fromkeys(map(repr, items[:5])))}, ..."
        )
    parts: list[Any] = []
    for item in items:
        label = None if item.labels is None else item.labels[None]
        parts.append(item._alike(*(tensor[None] for tensor in item._tensors), labels=label))
    return type(items[0])._concatenate(parts)


def as_array(values: ArrayLike | Tensor) -> ArrayLike:
    """Convert a tensor to an array, and return other values unchanged."""
    return values.numpy(force=True) if isinstance(values, Tensor) else values
