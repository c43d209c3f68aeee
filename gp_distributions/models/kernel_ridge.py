"""Classification by kernel ridge regression on class indicators."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures.arrays import positive
from gp_distributions.measures.inputs import Inputs, TrainingData, input_rows
from gp_distributions.models.dirichlet_classification import Labelling


class KernelRidgeClassifier(Labelling):
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
        data = TrainingData.read(train_X, train_Y, classify=True)
        check_kind(data.X, covar_module)
        self.covar_module, self.classes_ = covar_module, data.known_classes
        self._rows, self._encoding, labels = data.rows, data.encoding, data.targets
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

    _scores = scores


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
    indicators = torch.nn.functional.one_hot(labels).to(covariance)
    frequencies = indicators.mean(0)
    noisy = covariance.clone()
    noisy.diagonal().add_(positive(ridge, "ridge") * len(labels))
    factor = psd_safe_cholesky(noisy)
    return torch.cholesky_solve(indicators - frequencies, factor), frequencies
