"""Leave-one-out predictions of models that are already made, and the weights they give to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.targets import as_targets, label_of, read_labels
from gp_distributions.metrics.predictions import ClassPredictions, NormalPredictions, Predictions
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.models.training import equal_targets, training_targets
from gp_distributions.numerics.predictions import stacking_weights

# Number of targets, beside those observed, that each model alone predicts; see stacking_weights.
PRIOR = 0.02


def left_out(model: Any, y: Tensor | ArrayLike) -> Predictions:
    """Predict each training cloud from all others in closed form, at the current hyperparameters.

    Args:
        model: A :class:`DistributionGP`, a :class:`SparseDistributionGP` or a classifier, with its
            training data.
        y: Its targets or labels.

    Returns:
        The predictions, with their scores.

    Raises:
        TypeError: If ``model`` is of another class.
        ValueError: If predictions of the model are not normal, or ``y`` are not the finite targets or
            the labels that the model was trained on. A model that does not keep them in memory cannot
            tell other targets of the same shape.

    Example:
        >>> from gp_distributions import DistributionGP, PointClouds
        >>> from gp_distributions.metrics import left_out
        >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
        >>> model = DistributionGP(clouds, [0.0, 1.0, 2.0])
        >>> left_out(model, [0.0, 1.0, 2.0]).log_density.shape
        torch.Size([3])
    """
    if isinstance(model, Classification):
        probabilities = model.leave_one_out_proba()
        classes, labels = read_labels(y, len(probabilities))
        if not np.array_equal(classes, model.classes_):
            raise ValueError(
                f"Expected labels of the classes {model.classes_.tolist()} of the model, got "
                f"{classes.tolist()}."
            )
        known = training_targets(model)
        if known is not None:
            own = known.squeeze(-1).cpu()
            _check_same(labels.cpu() == own, y, classes[labels.cpu()], classes[own], "labels")
        return ClassPredictions.of(labels, probabilities)
    if isinstance(model, DistributionGP | SparseDistributionGP):
        found = model.mixture_left_out()
        columns = found.location[..., 0].double()
        targets, _ = as_targets(y, columns)
        if targets.shape != columns.shape:
            raise ValueError(
                f"Expected {columns.shape[-1]} targets for each cloud, got y of shape "
                f"{tuple(np.shape(y))}."
            )
        known = training_targets(model)
        if known is not None:
            # Targets that were rounded on their way are the same.
            same = equal_targets(known, targets.float()).all(-1)
            _check_same(same, y, targets, known, "targets")
        return NormalPredictions.of_members(targets.to(columns), found)
    raise TypeError(
        f"Expected a DistributionGP, a SparseDistributionGP or a classifier, got {type(model).__name__}."
    )


def _check_same(same: Tensor, y: Any, given: Any, known: Any, noun: str) -> None:
    """Check that targets or labels are those that a model was trained on."""
    different = (~same).nonzero().flatten().tolist()
    if different:
        first = different[0]
        raise ValueError(
            f"Expected the {noun} that the model was trained on, in their order and units, but that of "
            f"cloud {first}{label_of(y, first)} is {given[first].tolist()} in y and "
            f"{known[first].tolist()} in the model. Pass the training {noun} as y, and make all models "
            "from them."
        )


def leave_one_out_weights(
    models: Sequence[Any], y: Tensor | ArrayLike, *, prior: float = PRIOR
) -> Tensor:
    """Compute the stacking weights of models from their leave-one-out log densities.

    This takes one Cholesky factor of a ``T x T`` matrix, and its inverse, for each exact model.

    Args:
        models: Models of the same targets, as for :func:`left_out`.
        y: The targets or labels.
        prior: Number of targets, beside the ``T`` observed, that each model alone predicts. With 0, the
            weights of models that do not improve the mixture are zero.

    Returns:
        The weights, which sum to one.

    Raises:
        TypeError: As for :func:`left_out`.
        ValueError: As for :func:`left_out`, or if there are no models or a log density is not finite.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, MMDKernel, PointClouds, fit
        >>> from gp_distributions.metrics import leave_one_out_weights
        >>> points = torch.randn(9, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, y = PointClouds(points), points.mean((-2, -1))
        >>> kernels = [None, MMDKernel(2, bandwidth=0.1)]
        >>> models = [fit(DistributionGP(clouds, y, kernel), restarts=0) for kernel in kernels]
        >>> bool(leave_one_out_weights(models, y)[0] > 0.5)
        True

    Source: Yao, Vehtari, Simpson and Gelman 2018.
    """
    if not models:
        raise ValueError("Expected at least one model, got none.")
    densities = torch.stack([left_out(model, y).log_density for model in models], dim=-1)
    return stacking_weights(densities, prior=prior)
