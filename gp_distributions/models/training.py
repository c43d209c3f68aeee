"""The training data of a model, as far as the model keeps them, and whether two models share theirs."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from gp_distributions.measures.inputs import input_rows
from gp_distributions.measures.training_data import TrainingData
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.rows.clouds import drop_copies

Single: TypeAlias = DistributionGP | SparseDistributionGP

# Rounding errors of targets that were standardised and converted back, in machine epsilons.
_ROUNDING = 64


def memory_of(model: SparseDistributionGP) -> TrainingData | None:
    """Return the training data of a sparse model, or None if they are not in memory."""
    return None if model.data is None else model.data.memory


def training_rows(model: Single) -> Tensor | None:
    """Return the training rows of a model before its input transform, ``batch_shape x T x width``.

    The rows of a model that does not keep them in memory are None.
    """
    if isinstance(model, SparseDistributionGP):
        memory = memory_of(model)
        return None if memory is None else input_rows(memory.X, model.encoding).detach().double()
    original = not model.training and model._has_transformed_inputs
    return drop_copies(model._original_train_inputs if original else model.train_inputs[0])


def training_targets(model: Single) -> Tensor | None:
    """Return the targets of a model in their own units, or indices of classes.

    Returns:
        A ``batch_shape x T x outputs`` tensor; None for a model that does not keep them in memory.
    """
    if isinstance(model, SparseDistributionGP):
        memory = memory_of(model)
        values = None if memory is None else memory.targets
        return values.unsqueeze(-1) if values is not None and values.dim() == 1 else values
    if isinstance(model, ClassificationGP):
        labels: Tensor = model.likelihood.labels
        return labels.unsqueeze(-1)
    targets = model.columns(model.train_targets)
    transform = model._outcome_transform
    return targets if transform is None else transform.untransform(targets)[0]


def share_objects(first: Any, second: Any) -> bool:
    """Return whether two models were trained on the same targets in the same order, up to rounding.

    Models of other classes, and models that do not keep their training data in memory, may share any.
    """
    if not (isinstance(first, Single) and isinstance(second, Single)):
        return True
    one, other = training_targets(first), training_targets(second)
    if one is None or other is None:
        return True
    return one.shape == other.shape and bool(equal_targets(one, other).all())


def equal_targets(first: Tensor, second: Tensor) -> Tensor:
    """Return which targets are equal up to rounding in the less precise dtype.

    Args:
        first: Targets in their own units, ``batch_shape x T x outputs``.
        second: Targets of the same shape.

    Returns:
        A Boolean tensor of the same shape on the CPU.
    """
    known = [each for each in (first, second) if each.is_floating_point()]
    precision = max((torch.finfo(each.dtype).eps for each in known), default=0.0)
    one, other = (each.detach().cpu().double() for each in (first, second))
    spread = (one - one.mean(-2, keepdim=True)).abs().amax(-2, keepdim=True)
    largest = one.abs().amax(-2, keepdim=True)
    return (one - other).abs() <= precision**0.5 * spread + _ROUNDING * precision * largest
