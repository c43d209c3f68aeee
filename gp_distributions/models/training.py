"""The training data that models keep, and ensembles of models that share theirs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.inputs import TrainingData, input_rows
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.ensemble import Ensemble
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


def ensemble_of(models: Sequence[Any], weights: Tensor | ArrayLike | None = None) -> Any:
    """Make a model that predicts with several models of the same training clouds and targets.

    Args:
        models: Fitted :class:`DistributionGP` models, or classifiers, which may have other kernels,
            transforms and likelihoods. They are kept, not copied; the members of one become members.
        weights: A non-negative weight for each; they are divided by their sum. Models of weight zero are
            left out. Default: equal weights.

    Returns:
        A model of the class of that of largest weight, whose kernel it shows.

    Raises:
        TypeError: If there is another model, or only some are classifiers.
        ValueError: If there are no models; they have other training targets, outputs or classes, or the
            same ones in another order; or weights are not one finite, non-negative number for each with
            a positive sum.

    Example:
        >>> from gp_distributions import DistributionGP, MMDKernel, PointClouds
        >>> from gp_distributions.models import ensemble_of
        >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
        >>> models = [DistributionGP(clouds, [0.0, 1.0, 2.0], k) for k in (None, MMDKernel(1))]
        >>> ensemble_of(models, [3, 1]).weights.tolist()
        [0.75, 0.25]
    """
    if not models:
        raise ValueError("Expected at least one model, got none.")
    first = models[0]
    for place, model in enumerate(models):
        if not isinstance(model, DistributionGP):
            raise TypeError(f"Expected exact models, got {type(model).__name__}.")
        if isinstance(model, ClassificationGP) is not isinstance(first, ClassificationGP):
            raise TypeError("Expected models of numbers or classifiers, got some of each.")
        if not _share_targets(first, model):
            raise ValueError(
                "Expected models of the same training clouds in the same order, but the clouds and "
                f"targets of models 0 and {place} differ."
            )
    ensemble = Ensemble(models, weights)
    largest = 0 if weights is None else int(torch.as_tensor(weights).argmax())
    found = copy.copy(models[largest])
    found.__dict__["_modules"] = dict(found._modules)
    found.ensemble = ensemble
    return found.eval()


def _share_targets(first: DistributionGP, second: DistributionGP) -> bool:
    one, other = training_targets(first), training_targets(second)
    classes = [getattr(each, "classes_", np.empty(0)) for each in (first, second)]
    assert one is not None  # exact models keep theirs
    assert other is not None
    if not np.array_equal(classes[0], classes[1]):
        return False
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
