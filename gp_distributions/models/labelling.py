"""Models that predict labels, and labels of data in pieces as regression targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import Labels
from gp_distributions.models.dirichlet import dirichlet_targets


class Labelling:
    """Models that predict labels."""

    classes_: Labels
    # Function of inputs that returns scores of all classes, ``... x N x C``.
    _scores: Callable[..., Tensor]

    def predict(self, X: Inputs | Tensor, **options: Any) -> Labels:
        """Predict the labels of clouds: the classes with the largest scores or probabilities.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows.
            **options: As for ``predict_proba``, of models that have it.

        Returns:
            An array of labels of shape ``... x N``.

        Example:
            >>> from gp_distributions import ClassificationGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = ClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> model.predict(clouds[1:3]).tolist()
            ['left', 'right']
        """
        return self.classes_[self._scores(X, **options).argmax(-1).cpu().numpy()]


@dataclass(frozen=True, eq=False)
class LabelTargets:
    """A function of labels that returns the targets and noise variances of a classifier.

    Args:
        classes: The distinct labels in sorted order, as the data have them.
        alpha_epsilon: The concentration of the classes that are not the label.
    """

    classes: Labels
    alpha_epsilon: float

    def __call__(self, labels: Any) -> tuple[Tensor, Tensor]:
        """Return the targets and noise variances, two ``N x C`` tensors.

        Raises:
            ValueError: If a label is not one of the classes, or the concentration is not positive.
        """
        members = torch.nn.functional.one_hot(self.index_of(labels), len(self.classes))
        return dirichlet_targets(members.double(), self.alpha_epsilon)

    def index_of(self, labels: Any) -> Tensor:
        """Return the class indices of labels.

        Raises:
            ValueError: If a label is not one of the classes.
        """
        values = as_labels(labels)
        index = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        strange = np.flatnonzero(self.classes[index] != values)
        if len(strange):
            raise ValueError(
                f"Expected one of the labels {self.classes.tolist()}, but that of cloud {strange[0]} is "
                f"{values[strange[0]]!r}."
            )
        return torch.from_numpy(index)


def as_labels(labels: Any) -> Labels:
    """Return the labels of a piece as an array.

    Raises:
        ValueError: If the piece has none.
    """
    if labels is None:
        raise ValueError("Expected pieces that carry labels, got labels of None.")
    return np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)


def distinct_labels(number: int, X: Any, labels: Any, *rest: Any) -> Labels:
    """Return the distinct labels of a piece in sorted order."""
    return np.unique(as_labels(labels))
