"""Functions that read the ``X`` and ``y`` passed to an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gp_distributions.estimators._packed import refuse_packed_rows
from gp_distributions.measures import MixedInputs, PointClouds
from gp_distributions.measures.bag_columns import split_mixed
from gp_distributions.measures.bags import count_axes, double
from gp_distributions.measures.columns import entries, object_array
from gp_distributions.measures.inputs import Inputs, names_of
from gp_distributions.measures.kinds import KINDS, Distributions
from gp_distributions.measures.tables import is_table
from gp_distributions.models.targets import check_order
from gp_distributions.numerics.masks import refuse_mask
from gp_distributions.sharding import ShardedClouds

Samples: TypeAlias = Inputs | ArrayLike | Tensor
# The name of mixed inputs beside the kinds of distributions.
_MIXED = "mixed inputs"


class DistributionEstimator(BaseEstimator):
    """Base class of estimators whose samples are distributions.

    Attributes:
        n_features_in_: Dimension ``d`` of the distributions seen during ``fit``; for mixed inputs, the
            number of columns of the data frame, or of blocks.
        feature_names_in_: Names of the columns, if ``X`` was an array with names or a data frame with
            columns of bags beside others.
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

    def _read_training(self, X: Samples) -> Distributions:
        """Read the distributions passed to ``fit``, and remember their dimension and kind."""
        read = self._read_training_inputs(X)
        assert isinstance(read, Distributions)
        return read

    def _read_fitted(self, X: Samples) -> Distributions:
        """Read distributions of the dimension and kind seen during ``fit``."""
        read = self._read_fitted_inputs(X)
        assert isinstance(read, Distributions)
        return read

    def _read_training_inputs(self, X: Samples) -> Inputs:
        """Read the distributions or mixed inputs passed to ``fit``, and remember what they are."""
        read = self._read(X, reset=True)
        if len(read) < self._least_samples:
            raise ValueError(
                f"Found {len(read)} sample(s), while a minimum of {self._least_samples} is required "
                f"by {type(self).__name__}."
            )
        self.inputs_ = _kind(read)
        return read

    def _read_fitted_inputs(self, X: Samples) -> Inputs:
        """Read distributions of the dimension and kind seen during ``fit``, or mixed inputs."""
        check_is_fitted(self)
        read = self._read(X, reset=False)
        if _kind(read) != self.inputs_:
            raise ValueError(
                f"{type(self).__name__} was fitted on {self.inputs_}, got {_kind(read)}."
            )
        return read

    def _read(self, X: Samples, *, reset: bool) -> Inputs:
        if hasattr(type(X), "collect"):
            raise TypeError(f"Expected data in memory, got {type(X).__name__}. Pass X.collect().")
        if isinstance(X, ShardedClouds):
            raise TypeError(
                f"{type(self).__name__} takes distributions in memory, got ShardedClouds. Pass them to "
                "SparseDistributionGP or SparseClassificationGP and call gp_distributions.fit, or read "
                "some of them with sample(n) or piece(index)."
            )
        if self._takes_mixed and not reset and self.inputs_ == _MIXED and is_table(X):
            validate_data(self, X, reset=False, skip_check_array=True)  # its names and their order
        mixed = _read_mixed(X)
        if mixed is not None:
            return self._with_blocks(X, mixed, reset=reset)
        if not reset and self.inputs_ == _MIXED:
            raise ValueError(
                f"{type(self).__name__} was fitted on mixed inputs, got {type(X).__name__}. Pass a data "
                "frame with the same columns, or MixedInputs with the same blocks."
            )
        # If the estimator was fitted in one dimension, a list of numbers is a bag, not a matrix row.
        read = read_distributions(
            X, numbers=not reset and getattr(self, "n_features_in_", None) == 1
        )
        if read is None:
            try:
                array = validate_data(self, X, reset=reset, dtype=np.float64)
            except ValueError as error:
                if not is_table(X) or not str(error).startswith("could not convert"):
                    raise
                raise ValueError(
                    f"Expected a frame with a column of bags, or of numbers only: {error}. Read a long "
                    "table, with a row for each atom, with PointClouds.from_frame, and pass covariates "
                    "without bags as MixedInputs(covariates=frame)."
                ) from error
            # A kernel given by the user may select the columns of the atoms with active_dims.
            if reset and getattr(self, "kernel", None) is None:
                refuse_packed_rows(array)
            return PointClouds(array[:, None, :])
        if len(read.batch_shape) != 1:
            raise ValueError(
                "Expected distributions along one axis, got a batch of shape "
                f"{tuple(read.batch_shape)}. Reshape your data."
            )
        if reset:
            self._forget_names()
            self.n_features_in_ = read.dim
        elif read.dim != self.n_features_in_:
            raise ValueError(
                f"X has {read.dim} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return read

    def _with_blocks(self, X: Any, read: MixedInputs, *, reset: bool) -> MixedInputs:
        """Check mixed inputs, and remember their names."""
        if not self._takes_mixed:
            raise TypeError(
                f"{type(self).__name__} takes one bag for each sample, got mixed inputs with the blocks "
                f"{list(read.blocks)}. Pass one column of bags, or one block."
            )
        if reset:
            self._forget_names()
            if is_table(X):
                validate_data(self, X, skip_check_array=True)
            else:
                self.n_features_in_ = len(read.blocks)
        return read

    def _forget_names(self) -> None:
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


def _kind(read: Inputs) -> str:
    return _MIXED if isinstance(read, MixedInputs) else KINDS[type(read)]


def _read_mixed(X: Any) -> MixedInputs | None:
    """Read mixed inputs in double precision on the CPU, or return ``None`` for other data.

    Mixed inputs are :class:`MixedInputs`, a list of them, which cross-validation creates by indexing, or
    a data frame with several columns of which some hold bags.
    """
    if isinstance(X, list) and any(isinstance(item, MixedInputs) for item in X):
        if not all(isinstance(item, MixedInputs) for item in X):
            raise ValueError("Expected a list of mixed inputs only, got other objects among them.")
        X = MixedInputs.concatenate(X)
    if isinstance(X, MixedInputs):
        return X.to("cpu", torch.float64)
    split = None if isinstance(X, Distributions) or not is_table(X) else split_mixed(X)
    return None if split is None else MixedInputs._of(split)


def read_distributions(X: Samples, *, numbers: bool = False) -> Distributions | None:
    """Read distributions, or return ``None`` if ``X`` should be read as a 2-D array instead.

    Args:
        X: Distributions in one container, or a list of single distributions, which cross-validation
            creates by indexing a container; a list of ``n_i x d`` arrays, or of bags of ``n_i``
            numbers; or a ``T x n x d`` array. A column of a data frame with a bag in each entry is
            read as a list.
        numbers: Whether inner lists of equal length are bags of numbers rather than the rows of a
            matrix. Lists of unequal lengths and columns of lists are always read as bags.

    Returns:
        The distributions on the CPU, in double precision and without gradients, or ``None``.

    Raises:
        TypeError: If bags are sparse, or ``X`` is a dictionary.
        ValueError: If a list mixes distributions with other objects or could also be a matrix, if
            ``X`` is a masked array or a tensor of any shape but ``T x n x d``, or if the container
            refuses the data.
    """
    if isinstance(X, Distributions):
        return _unpacked(X, _rows(X), X.labels)
    if isinstance(X, Mapping) and not issparse(X):
        raise TypeError(
            "Expected distributions in a container or list, got a dictionary. Pass "
            "PointClouds.from_list(X), whose labels are its keys."
        )
    if isinstance(X, Tensor) and X.dim() != 3:
        raise ValueError(
            f"Expected a tensor of shape T x n x d, got {tuple(X.shape)}. Read packed rows with "
            "PointClouds.unpack(rows, dim), and points of one atom each with X[:, None]."
        )
    refuse_mask(X, "X", "give masked atoms weight 0 or leave them out")
    if isinstance(X, Tensor) or (isinstance(X, np.ndarray) and X.ndim == 3):
        return PointClouds(_plain(X, "X"))
    items = _bag_column(X)
    column = items is not None
    if items is None and isinstance(X, list | tuple):
        items = list(X)
    if not items:
        return None
    if any(isinstance(item, Distributions) for item in items):
        return _joined(items)
    if any(hasattr(item, "__geo_interface__") for item in items):
        raise TypeError(
            f"Expected distributions, got a list of {type(items[0]).__name__}. Read shapes with "
            "PointClouds.from_curves or PointClouds.from_meshes."
        )
    axes = {count_axes(item) for item in items}
    if axes == {1} and not numbers and not column and len({len(item) for item in items}) == 1:
        if all(isinstance(item, np.ndarray | Tensor) for item in items):
            raise ValueError(
                f"Expected bags as n_i x d arrays, but all have the shape {tuple(items[0].shape)}. "
                "Pass PointClouds.from_list(X) if each is a bag of numbers, and np.stack(X) if each "
                "is a cloud of one atom."
            )
        return None  # the rows of a matrix
    if axes == {0}:
        return None
    return PointClouds.from_list([_plain(bag, f"Bag {i}") for i, bag in enumerate(items)])


def _bag_column(X: Any) -> list[Any] | None:
    """Return the entries of a column of bags, such as a series of lists, or ``None`` for other data.

    Raises:
        ValueError: If ``X`` has several columns of bags.
    """
    if isinstance(X, np.ndarray):
        values = X if X.dtype == object else None
    elif getattr(X, "ndim", 2) == 2 and hasattr(X, "columns"):
        values = np.asarray(X) if len(X) else None
    else:
        values = entries(X)
        values = None if values is X else object_array(values)
    if values is None or not values.size:
        return None
    if values.ndim == 2 and count_axes(values.flat[0]):
        if values.shape[1] > 1:
            names = list(getattr(X, "columns", range(values.shape[1])))
            raise ValueError(
                f"Expected one column of bags, got the columns {names}. Select one of them, or pass "
                "a list with an n_i x d array for each bag."
            )
        values = values[:, 0]
    return list(values) if values.ndim == 1 else None


def check_samples(X: Samples, read: Inputs, y: Any) -> None:
    """Check that targets are in the order of the samples.

    Args:
        X: The samples as they were given: a pandas frame or series has an index.
        read: The samples as they were read.
        y: The targets, or anything else that a step of a pipeline is given.

    Raises:
        ValueError: If the index of ``y`` has the names of the samples in another order, or other names.
    """
    check_order(read if names_of(X) is None else X, y)


def read_targets(
    estimator: BaseEstimator, X: Samples, read: Inputs, y: ArrayLike | Tensor | None
) -> ArrayLike:
    """Read targets, converting tensors to arrays.

    Args:
        estimator: The estimator.
        X: The samples as they were given.
        read: The samples as they were read.
        y: The targets.

    Raises:
        TypeError: If ``y`` is a dictionary.
        ValueError: If ``y`` is ``None``, or the index of ``y`` has the names of the samples in another
            order, or other names; or ``y`` is a masked array.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    if isinstance(y, Mapping):
        raise TypeError(
            "Expected y as a list or array, got a dictionary. Pass [y[label] for label in "
            "clouds.labels]."
        )
    check_samples(X, read, y)
    refuse_mask(y, "y")
    return as_array(y)


def as_array(values: ArrayLike | Tensor) -> ArrayLike:
    """Convert a tensor to an array, and return other values unchanged."""
    return values.numpy(force=True) if isinstance(values, Tensor) else values


def _joined(items: list[Any]) -> Distributions:
    """Join single distributions of the same kind and dimension in one container."""
    first = items[0]
    alike = all(
        type(item) is type(first) and not item.batch_shape and item.dim == first.dim
        for item in items
    )
    if not isinstance(first, Distributions) or not alike:
        raise ValueError(
            "Expected a list of single distributions of one kind and dimension, or of arrays, got "
            f"{', '.join(dict.fromkeys(map(repr, items[:5])))}, ..."
        )
    # Rows are padded with zeros, which are atoms of weight zero.
    rows = torch.nn.utils.rnn.pad_sequence([_rows(item) for item in items], batch_first=True)
    labels = [item.labels for item in items]
    known = all(label is not None for label in labels)
    return _unpacked(first, rows, np.stack(labels) if known else None)


def _unpacked(like: Distributions, rows: Tensor, labels: Any) -> Distributions:
    """Return rows as distributions of the kind and dimension of others, with labels."""
    read = type(like).unpack(rows, like.dim)
    return read._unchecked(*read._tensors, labels=labels)


def _rows(distributions: Distributions) -> Tensor:
    return distributions.pack().detach().to("cpu", torch.float64)


def _plain(bag: Any, name: str) -> Tensor:
    """Convert a bag to double precision, on the CPU and without gradients."""
    return double(bag, name).detach().cpu()
