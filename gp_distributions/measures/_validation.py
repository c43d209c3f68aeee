"""What clouds are made of: finite coordinates, weights >= 0 that are not all zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Naming:
    """What error messages call a cloud and its weights.

    Attributes:
        noun: What the caller gave: a bag, an image, a curve, a mesh.
        weights: What is normalised to one: weights, intensities, arc lengths, areas.
        labels: The labels of the clouds, of shape ``batch_shape``, if they have any.
    """

    noun: str = "Bag"
    weights: str = "weights"
    labels: npt.NDArray[Any] | None = None

    def __call__(self, index: tuple[int, ...]) -> str:
        """Name the cloud at an index into the batch axes."""
        if not index:
            return f"The {self.noun.lower()}"
        label = "" if self.labels is None else f" (label {self.labels[index]})"
        return f"{self.noun} {index[0] if len(index) == 1 else index}{label}"


def validated(points: Tensor, weights: Tensor, naming: Naming) -> tuple[Tensor, Tensor]:
    """Check atoms and weights, and divide the weights of each cloud by their sum.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        naming: What error messages call the clouds.

    Returns:
        The points as they are, and weights that sum to one, differentiable in ``weights``.

    Raises:
        ValueError: If a coordinate is not finite, a weight is negative or not finite, or the
            weights of a cloud are all zero.
    """
    _check_points(points, naming)
    _check_weights(weights, naming)
    # The order of a sum depends on the strides: contiguous, equal weights stay equal.
    total = weights.contiguous().sum(-1, keepdim=True)
    bad = ~(total.isfinite() & (total > 0)).squeeze(-1)
    if bad.any():
        cloud = tuple(_first(bad))
        raise ValueError(
            f"{naming(cloud)}: expected {naming.weights} with a positive, finite sum, got the sum "
            f"{total[cloud].item()}."
        )
    # A sum within rounding of one counts as one, so that normalising twice changes nothing.
    rounding = 32 * torch.finfo(weights.dtype).eps
    error = torch.where((total - 1).abs() <= rounding, total - 1, 0.0).detach()
    return points, weights / (total - error)


def equal_weights(points: Tensor) -> Tensor:
    """Weights ``1 / n`` for a ``batch_shape x n x d`` tensor of atoms."""
    return points.new_full(points.shape[:-1], 1 / points.shape[-2])


def _check_points(points: Tensor, naming: Naming) -> None:
    finite = points.isfinite()
    if not finite.all():
        *cloud, atom, coordinate = _first(~finite)
        raise ValueError(
            f"{naming(tuple(cloud))}: expected finite coordinates, got "
            f"{points[(*cloud, atom, coordinate)].item()} in atom {atom}, coordinate {coordinate}."
        )


def _check_weights(weights: Tensor, naming: Naming) -> None:
    bad = ~(weights.isfinite() & (weights >= 0))
    if bad.any():
        *cloud, atom = _first(bad)
        raise ValueError(
            f"{naming(tuple(cloud))}: expected finite {naming.weights} >= 0, got "
            f"{weights[(*cloud, atom)].item()} in atom {atom}."
        )


def _first(mask: Tensor) -> list[int]:
    return mask.nonzero()[0].tolist()
