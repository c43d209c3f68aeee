"""Labels of data in pieces as the regression targets of a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.models.classification import dirichlet_targets
from gp_distributions.models.labels import Labels


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
        if labels is None:
            raise ValueError("Expected pieces that carry labels, got labels of None.")
        values = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
        index = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        strange = np.flatnonzero(self.classes[index] != values)
        if len(strange):
            raise ValueError(
                f"Expected one of the labels {self.classes.tolist()}, but that of cloud {strange[0]} is "
                f"{values[strange[0]]!r}."
            )
        return torch.from_numpy(index)


@dataclass(frozen=True)
class DistinctLabels:
    """A task that finds the distinct labels of a piece."""

    def __call__(self, number: int, X: Any, labels: Any, *rest: Any) -> Labels | None:
        """Return the distinct labels in sorted order, or None if the piece has none."""
        if labels is None:
            return None
        return np.unique(np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels))
