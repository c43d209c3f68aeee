"""Classification by kernel ridge regression on class indicators."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures.arrays import is_missing
from gp_distributions.measures.inputs import Inputs, encoding_of, input_rows
from gp_distributions.models.targets import check_order, label_of
from gp_distributions.numerics.predictions import refuse_mask

Labels = NDArray[Any]
# More different numbers than these are taken for targets, unless all are integers.
_MANY = 10


class KernelRidgeClassifier:
    r"""Classification by kernel ridge regression on class indicators.

    With the ``T x C`` indicators :math:`Y` and the class frequencies :math:`\bar y`, the prediction for
    a cloud is the class with the largest score:

    .. math::
        s(P) = \bar y + k(P)^\top (K + \lambda T I)^{-1} (Y - 1 \bar y^\top).

    If all classes are equally frequent, centring does not change the predictions, and this is the
    classifier of Meunier, Pontil and Ciliberto (2022, section 6).

    Args:
        train_X: The ``T`` training clouds, or a ``T x m*(d+1)`` tensor of rows.
        train_Y: The ``T`` labels: strings, integers or other values that NumPy can sort.
        covar_module: A kernel on rows. Its hyperparameters are not changed.
        ridge: The regularisation :math:`\lambda`.

    Attributes:
        classes_: The ``C`` distinct labels in sorted order, as an array.

    Raises:
        TypeError: If ``train_X`` is neither clouds nor a tensor.
        ValueError: If the numbers of clouds and labels differ, there are fewer than two classes,
            ``ridge`` is not positive, or the kernel is for other distributions.

    Example:
        >>> from gp_distributions import PointClouds, SlicedWassersteinKernel
        >>> from gp_distributions.models import KernelRidgeClassifier
        >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
        >>> labels = ["left", "left", "right", "right"]
        >>> model = KernelRidgeClassifier(clouds, labels, SlicedWassersteinKernel(1), ridge=1e-3)
        >>> model.predict(PointClouds([[[0.4], [0.0]], [[5.5], [4.9]]])).tolist()
        ['left', 'right']
    """

    def __init__(
        self,
        train_X: Inputs | Tensor,
        train_Y: Tensor | ArrayLike,
        covar_module: Kernel,
        *,
        ridge: float,
    ) -> None:
        check_kind(train_X, covar_module)
        self.covar_module = covar_module
        self._encoding = encoding_of(train_X)
        self._rows = input_rows(train_X, self._encoding)
        check_order(train_X, train_Y)
        self.classes_, labels = read_labels(train_Y, len(self._rows))
        labels = labels.to(self._rows.device)
        with torch.no_grad():
            prior = covariance(covar_module, self._rows)
        self._weights, self._frequencies = ridge_weights(prior, labels, ridge)

    def scores(self, X: Inputs | Tensor) -> Tensor:
        """Compute the scores of all classes for each cloud.

        Args:
            X: The ``N`` clouds, or an ``N x m*(d+1)`` tensor of rows.

        Returns:
            A detached ``N x C`` tensor, with columns in the order of :attr:`classes_`.

        Raises:
            ValueError: If the kernel is for other distributions.
        """
        check_kind(X, self.covar_module, self._encoding)
        with torch.no_grad():
            rows = input_rows(X, self._encoding)
            to_train = covariance(self.covar_module, rows, self._rows)
        return self._frequencies + to_train @ self._weights

    def predict(self, X: Inputs | Tensor) -> Labels:
        """Predict the labels with the largest scores.

        Args:
            X: The ``N`` clouds, or an ``N x m*(d+1)`` tensor of rows.

        Returns:
            An array of ``N`` labels.

        Raises:
            ValueError: If the kernel is for other distributions.
        """
        return self.classes_[self.scores(X).argmax(-1).cpu().numpy()]


def ridge_weights(covariance: Tensor, labels: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Compute the regression weights and class frequencies of :class:`KernelRidgeClassifier`.

    Args:
        covariance: The ``T x T`` covariance matrix of the training clouds.
        labels: The ``T`` class indices.
        ridge: The regularisation; ``ridge * T`` is added to the diagonal of ``covariance``.

    Returns:
        The ``T x C`` weights and a tensor of ``C`` class frequencies.

    Raises:
        ValueError: If ``ridge`` is not positive.
    """
    if not isinstance(ridge, numbers.Real) or not ridge > 0:
        raise ValueError(f"Expected ridge > 0, got {ridge!r}.")
    indicators = torch.nn.functional.one_hot(labels).to(covariance)
    frequencies = indicators.mean(0)
    noisy = covariance.clone()
    noisy.diagonal().add_(ridge * len(labels))
    factor = psd_safe_cholesky(noisy)
    return torch.cholesky_solve(indicators - frequencies, factor), frequencies


def read_labels(labels: Tensor | ArrayLike, count: int) -> tuple[Labels, Tensor]:
    """Find the distinct labels in sorted order, and the class index of each label.

    Args:
        labels: The ``T`` labels.
        count: The expected number of labels.

    Returns:
        An array of the ``C`` distinct labels, and a tensor of ``T`` class indices.

    Raises:
        TypeError: If the labels are a dictionary.
        ValueError: If the number of labels is not ``count``, a label is missing (None, NaN, masked),
            there are more than ten different numbers that are not all integers, or fewer than two
            classes, or the labels cannot be sorted.
    """
    if isinstance(labels, Mapping):
        raise TypeError(
            "Expected a list or array of labels, got a dictionary. Pass [labels[name] for name in "
            "clouds.labels]."
        )
    refuse_mask(labels, "Labels")
    values = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if values.shape != (count,):
        raise ValueError(
            f"Expected one label for each of {count} clouds, got labels of shape {values.shape}."
        )
    given = values.tolist()
    for cloud, value in enumerate(given):
        if is_missing(value):
            raise ValueError(
                f"Expected a label for each cloud, but that of cloud {cloud}{label_of(labels, cloud)} "
                f"is {value!r}. Leave out clouds without a label."
            )
    broken = [value for value in given if isinstance(value, float) and not value.is_integer()]
    if broken and len(set(given)) > _MANY:
        raise ValueError(
            f"Expected labels, got continuous numbers, such as {broken[0]!r}. Use DistributionGP for "
            "numbers, or pass numbers that are labels as text."
        )
    if all(isinstance(value, str) for value in given):
        values = np.array(
            given, dtype=str
        )  # arrays of objects, as from data frames, cannot be saved
    try:
        classes, index = np.unique(values, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in given}))
        raise ValueError(f"Expected labels of one kind, got a mixture of {kinds}.") from error
    if len(classes) < 2:
        raise ValueError(f"Expected at least two classes, got {classes.tolist()}.")
    return classes, torch.from_numpy(index)
