"""The training objects of a model, as far as the model keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.models import (
    ClassificationGP,
    DistributionGP,
    IntegratedGP,
    MixtureModel,
    SparseClassificationGP,
    SparseDistributionGP,
)
from gp_distributions.models.training import memory_of, training_rows, training_targets

Model: TypeAlias = DistributionGP | SparseDistributionGP
Classifier: TypeAlias = ClassificationGP | SparseClassificationGP
Mixed: TypeAlias = MixtureModel | IntegratedGP


@dataclass(frozen=True, eq=False)
class Training:
    """The training objects of a model.

    Attributes:
        rows: A ``T x width`` tensor of rows, before the input transform of the model.
        values: Targets in their own units, or indices of classes, a ``T x outputs`` array.
        labels: Names of the objects, or None.
    """

    rows: Tensor
    values: npt.NDArray[np.float64]
    labels: npt.NDArray[Any] | None

    def places(self, rows: Tensor, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Find given objects among the training objects.

        An object counts as found if both its row, up to padding, and its values are those of a training
        object. Repeated measurements of the training inputs are thus new objects.

        Args:
            rows: An ``N x width`` tensor of rows.
            values: Their values, an ``N x outputs`` array.

        Returns:
            The number of each object among the training objects, or -1.
        """
        known: dict[bytes, list[int]] = {}
        for place, key in enumerate(_contents(self.rows)):
            known.setdefault(key, []).append(place)
        precision = torch.finfo(self.rows.dtype).eps
        tolerance = np.sqrt(precision) * np.abs(self.values - self.values.mean(0)).max(0)
        found = np.full(len(rows), -1)
        for number, key in enumerate(_contents(rows)):
            for place in known.get(key, []):
                if (np.abs(self.values[place] - values[number]) <= tolerance).all():
                    found[number] = place
                    break
        return found


def _contents(rows: Tensor) -> list[bytes]:
    """Return what identifies each row, up to padding at its end."""
    return [np.trim_zeros(row, "b").tobytes() for row in rows.numpy(force=True)]


def check_shared(
    model: Model | Mixed,
    rows: Tensor,
    values: npt.NDArray[np.float64],
    places: npt.NDArray[np.int64],
) -> None:
    """Check that all members of a mixture have the same objects among their training objects.

    Args:
        model: The model.
        rows: The ``N x width`` rows of the objects.
        values: Their values, an ``N x outputs`` array.
        places: Number of each object among the training objects of one member, or -1.

    Raises:
        ValueError: If a member has others among its own.
    """
    for member in _members(model):
        training = training_of(member)
        if training is not None and (training.places(rows, values) != places).any():
            raise ValueError(
                "Expected objects that none of the members of the mixture has seen, or members with the "
                "same training objects and values. Report on held-out objects, or on one member."
            )


def _members(model: Any) -> Iterator[Model]:
    """Yield the single models of which the predictions of a mixture consist."""
    if isinstance(model, MixtureModel):
        for member, weight in zip(model.models, model.weights.tolist(), strict=True):
            if weight > 0:
                yield from _members(member)
    elif isinstance(model, IntegratedGP):
        yield model.model
    elif isinstance(model, DistributionGP | SparseDistributionGP):
        yield model


def training_of(model: Model, labels: npt.NDArray[Any] | None = None) -> Training | None:
    """Return the training objects of a model, or None if it has them in pieces or not at all.

    Args:
        model: A fitted model.
        labels: Names of the training objects. The default is what the model knows of them.

    Raises:
        ValueError: If the model is a batch of models, or the number of names is wrong.
    """
    rows, values = training_rows(model), training_targets(model)
    if rows is None or values is None:
        return None
    memory = memory_of(model) if isinstance(model, SparseDistributionGP) else None
    if labels is None and memory is not None:
        labels = getattr(memory.X, "labels", None)
    if rows.dim() != 2:
        raise ValueError(f"Expected a single model, got a batch of shape {tuple(rows.shape[:-2])}.")
    if labels is not None and len(labels) != len(rows):
        raise ValueError(
            f"Expected a name for each of {len(rows)} training objects, got {len(labels)}."
        )
    return Training(rows.detach(), values.detach().double().numpy(force=True), labels)
