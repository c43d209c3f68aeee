"""Weighted mixtures of the class probabilities of several classifiers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.kernel_ridge import Labels
from gp_distributions.models.mixture_weights import normalized_weights
from gp_distributions.models.sparse_classification import SparseClassificationGP

Classifier = ClassificationGP | SparseClassificationGP


class MixtureClassifier(torch.nn.Module):
    r"""Mixture of the class probabilities of several classifiers, with a weight for each.

    .. math::
        p(c) = \sum_k w_k\, p_k(c)

    Args:
        models: Fitted classifiers of the same classes.
        weights: A non-negative weight for each classifier; they are divided by their sum. Default: equal
            weights.

    Attributes:
        classes_: The ``C`` distinct labels in sorted order, as an array.

    Raises:
        TypeError: If a model is not a classifier.
        ValueError: If there are no models, their classes differ, or the weights are not one finite,
            non-negative number for each of them with a positive sum.

    Example:
        >>> from gp_distributions import ClassificationGP, MMDKernel, PointClouds
        >>> from gp_distributions.models import MixtureClassifier
        >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
        >>> labels = ["left", "left", "right", "right"]
        >>> models = [ClassificationGP(clouds, labels, k) for k in (None, MMDKernel(1))]
        >>> MixtureClassifier(models, [0.7, 0.3]).predict(clouds[1:3]).tolist()
        ['left', 'right']
    """

    weights: Tensor

    def __init__(
        self, models: Sequence[Classifier], weights: Tensor | ArrayLike | None = None
    ) -> None:
        super().__init__()
        if not models:
            raise ValueError("Expected at least one classifier, got none.")
        for model in models:
            if not isinstance(model, Classifier):
                raise TypeError(f"Expected classifiers, got {type(model).__name__}.")
            if not np.array_equal(model.classes_, models[0].classes_):
                raise ValueError(
                    f"Expected the same classes, got {models[0].classes_.tolist()} and "
                    f"{model.classes_.tolist()}."
                )
        self.models = torch.nn.ModuleList(models)
        self.register_buffer("weights", normalized_weights(weights, len(models)))
        self.eval()

    @property
    def classes_(self) -> Labels:
        """The distinct labels in sorted order."""
        return self.models[0].classes_  # type: ignore[return-value]

    def predict_proba(self, X: Inputs | Tensor, *, batch_size: int = 1024) -> Tensor:
        """Predict class probabilities of clouds.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows.
            batch_size: Number of clouds to process at a time, which bounds memory.

        Returns:
            A detached ``... x N x C`` tensor, with columns in the order of :attr:`classes_`.
        """
        parts = [
            weight * model.predict_proba(X, batch_size=batch_size)  # type: ignore[operator]
            for model, weight in zip(self.models, self.weights.tolist(), strict=True)
            if weight > 0
        ]
        return torch.stack(parts).sum(0)

    def predict(self, X: Inputs | Tensor, *, batch_size: int = 1024) -> Labels:
        """Predict the labels of clouds: the classes with the largest :meth:`predict_proba`.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows.
            batch_size: Number of clouds to process at a time, which bounds memory.

        Returns:
            An array of labels of shape ``... x N``.
        """
        return self.classes_[self.predict_proba(X, batch_size=batch_size).argmax(-1).cpu().numpy()]
