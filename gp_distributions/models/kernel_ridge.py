"""Kernel ridge regression on indicators of classes."""

from __future__ import annotations

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
from gp_distributions.measures.kinds import Distributions, as_rows
from gp_distributions.models.targets import check_order

Labels = NDArray[Any]


class KernelRidgeClassifier:
    r"""Kernel ridge regression on indicators of classes.

    With the indicators :math:`Y`, ``T x C``, and the frequencies :math:`\bar y` of the classes, a cloud
    is of the class whose score is largest:

    .. math::
        s(P) = \bar y + k(P)^\top (K + \lambda T I)^{-1} (Y - 1 \bar y^\top).

    With equally frequent classes centring changes no prediction, and this is the classifier of
    Meunier, Pontil and Ciliberto (2022, section 6).

    Args:
        train_X: The ``T`` clouds, or a ``T x m*(d+1)`` tensor of rows.
        train_Y: The ``T`` labels: strings, integers or whatever NumPy sorts.
        covar_module: A kernel on rows, which is used as it is.
        ridge: The regularisation :math:`\lambda`.

    Attributes:
        classes_: The ``C`` distinct labels in order, as an array.

    Raises:
        TypeError: If ``train_X`` is neither clouds nor a tensor.
        ValueError: If numbers of clouds and labels differ, there are fewer than two classes,
            ``ridge`` is not positive, or the kernel reads other distributions.
    """

    def __init__(
        self,
        train_X: Distributions | Tensor,
        train_Y: Tensor | ArrayLike,
        covar_module: Kernel,
        *,
        ridge: float,
    ) -> None:
        check_kind(train_X, covar_module)
        self.covar_module = covar_module
        self._rows = as_rows(train_X)
        check_order(train_X, train_Y)
        self.classes_, labels = read_labels(train_Y, len(self._rows))
        labels = labels.to(self._rows.device)
        with torch.no_grad():
            prior = covariance(covar_module, self._rows)
        self._weights, self._frequencies = ridge_weights(prior, labels, ridge)

    def scores(self, X: Distributions | Tensor) -> Tensor:
        """The scores of all classes, an ``N x C`` tensor, detached."""
        check_kind(X, self.covar_module)
        with torch.no_grad():
            to_train = covariance(self.covar_module, as_rows(X), self._rows)
        return self._frequencies + to_train @ self._weights

    def predict(self, X: Distributions | Tensor) -> Labels:
        """The labels of the largest scores, an array of shape ``N``."""
        return self.classes_[self.scores(X).argmax(-1).cpu().numpy()]


def ridge_weights(covariance: Tensor, labels: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The weights of clouds and the frequencies of classes of :class:`KernelRidgeClassifier`.

    Args:
        covariance: A ``T x T`` tensor.
        labels: ``T`` numbers of classes from 0.
        ridge: The regularisation, which is multiplied by ``T``.

    Returns:
        A ``T x C`` and a ``C`` tensor.

    Raises:
        ValueError: If ``ridge`` is not positive.
    """
    if not ridge > 0:
        raise ValueError(f"Expected ridge > 0, got {ridge}.")
    indicators = torch.nn.functional.one_hot(labels).to(covariance)
    frequencies = indicators.mean(0)
    noisy = covariance.clone()
    noisy.diagonal().add_(ridge * len(labels))
    factor = psd_safe_cholesky(noisy)
    return torch.cholesky_solve(indicators - frequencies, factor), frequencies


def read_labels(labels: Tensor | ArrayLike, count: int) -> tuple[Labels, Tensor]:
    """The distinct labels in order, and the number of each label among them.

    Args:
        labels: ``T`` labels.
        count: What ``T`` should be.

    Returns:
        An array of ``C`` labels, and a ``T`` tensor of integers.

    Raises:
        ValueError: If there are not ``count`` labels, a label is missing (None, NaN), they have no
            order, or there are fewer than two classes.
    """
    values = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if values.shape != (count,):
        raise ValueError(
            f"Expected one label for each of {count} clouds, got labels of shape {values.shape}."
        )
    given = values.tolist()
    for cloud, value in enumerate(given):
        if is_missing(value):
            raise ValueError(
                f"Expected a label for each cloud, but that of cloud {cloud} is {value!r}. Leave out "
                "clouds without a label."
            )
    if all(isinstance(value, str) for value in given):
        values = np.array(given, dtype=str)  # data frames give objects, which no file keeps
    try:
        classes, index = np.unique(values, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in given}))
        raise ValueError(f"Expected labels of one kind, got a mixture of {kinds}.") from error
    if len(classes) < 2:
        raise ValueError(f"Expected two classes or more, got {classes.tolist()}.")
    return classes, torch.from_numpy(index)
