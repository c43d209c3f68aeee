"""The training objects that are closest to given objects, in the eyes of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.kernels.covariances import covariance
from gp_distributions.reporting.training import Model

# Number of training objects to compare at a time, which bounds memory.
_BATCH = 1024
# The typical distance is that of pairs of at most so many training objects.
_MOST_POOLED = 256


@dataclass(frozen=True)
class Neighbour:
    """A training object beside another object.

    Attributes:
        place: Number of the training object.
        distance: Prior standard deviation of the difference of the function at the two objects, divided
            by its root mean square over pairs of training objects: 0 if the two look the same to the
            model, about 1 for two training objects picked at random.
    """

    place: int
    distance: float


def nearest(
    model: Model, rows: Tensor, training: Tensor, own: npt.NDArray[np.int64], count: int
) -> list[list[Neighbour]]:
    """Find the nearest training objects of each row.

    Args:
        model: A fitted model.
        rows: An ``N x width`` tensor of rows.
        training: The rows of the training objects.
        own: Number of each object among the training objects, or -1; it is not its own neighbour.
        count: Number of training objects to find.

    Returns:
        The nearest training objects of each row, the nearest first.
    """
    model.eval()
    pooled = training[:: -(-len(training) // _MOST_POOLED)]
    with torch.no_grad():
        here, typical = model.transform_inputs(rows), model.transform_inputs(pooled)
        parts = [
            _squared(model, here, model.transform_inputs(part)) for part in training.split(_BATCH)
        ]
        pairs = _squared(model, typical, typical)
    size = len(pooled) * (len(pooled) - 1)
    unit = float(pairs.sum() / size) if size else 0.0
    distances = (torch.cat(parts, dim=-1) / (unit or 1.0)).sqrt().double().numpy(force=True)
    distances[own >= 0, own[own >= 0]] = np.inf
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return [
        [Neighbour(int(place), float(row[place])) for place in chosen if row[place] < np.inf]
        for row, chosen in zip(distances, order, strict=True)
    ]


def _squared(model: Model, x1: Tensor, x2: Tensor) -> Tensor:
    """Return squared distances, averaged over outputs with kernels of their own."""
    kernel = model.covar_module
    variances = [covariance(kernel, x, diag=True) for x in (x1, x2)]
    sums = variances[0].unsqueeze(-1) + variances[1].unsqueeze(-2)
    found = (sums - 2 * covariance(kernel, x1, x2)).clamp_min(0)
    return found.reshape(-1, *found.shape[-2:]).mean(0)
