"""Labels, and models that predict them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gp_distributions.measures.arrays import is_missing
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.targets import label_of
from gp_distributions.numerics.predictions import refuse_mask

Labels = NDArray[Any]
# More different numbers than these are taken for targets, unless all are integers.
_MANY = 10


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
