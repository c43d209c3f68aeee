"""Weighted mixtures of the class probabilities of several classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.models.mixture import MixtureModel
from gp_distributions.models.sparse_classification import SparseClassificationGP

Classifier = ClassificationGP | SparseClassificationGP


class MixtureClassifier(Classification, MixtureModel):  # type: ignore[misc]
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

    temperature = 1.0

    @property
    def classes_(self) -> Labels:  # type: ignore[override]
        """The distinct labels in sorted order."""
        return self._members[0].classes_

    def probabilities(self, X: Any, **options: Any) -> Tensor:
        """Return the mixture of class probabilities, ``... x N x C``."""
        return self._averaged([model.predict_proba(X, **options) for model in self._counting()[0]])

    def probabilities_left_out(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Return the mixture of class probabilities of training clouds, and the class indices."""
        counting, _ = self._counting()
        found = [model.leave_one_out_proba(**options) for model in counting]
        self._check_objects([len(part) for part in found])
        return self._averaged(found), counting[0].probabilities_left_out(**options)[1]

    def _averaged(self, found: list[Tensor]) -> Tensor:
        weights = self._counting()[1].tolist()
        return torch.stack([w * part for w, part in zip(weights, found, strict=True)]).sum(0)

    @staticmethod
    def _check(models: list[Any]) -> None:
        for model in models:
            if not isinstance(model, Classifier):
                raise TypeError(f"Expected classifiers, got {type(model).__name__}.")
            if not np.array_equal(model.classes_, models[0].classes_):
                raise ValueError(
                    f"Expected the same classes, got {models[0].classes_.tolist()} and "
                    f"{model.classes_.tolist()}."
                )
