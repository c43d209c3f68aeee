"""Ensembles: members with weights, whose predictions are mixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.models.exact_inference import ExactMultivariateNormal


class Ensemble(torch.nn.Module):
    """The parts of a model that predicts with several members, and the weight of each part.

    A part is a model of its own: of one member, or of a batch of members that differ only in their
    hyperparameters, whose distances are computed once. A batch weights its members by their posterior
    probabilities, which change with the data; the weights of parts stay.

    Args:
        parts: The models. Those that are ensembles themselves are taken apart.
        weights: A non-negative weight for each; they are divided by their sum. Default: equal weights.

    Raises:
        ValueError: If the number of weights differs from that of parts, or weights are negative, not
            finite or all zero.
    """

    weights: Tensor

    def __init__(self, parts: Sequence[Any], weights: Tensor | ArrayLike | None = None) -> None:
        super().__init__()
        flat = [
            (part, weight * own)
            for model, weight in zip(parts, _normalized(weights, len(parts)), strict=True)
            if weight > 0
            for part, own in zip(model.parts, model.part_weights, strict=True)
        ]
        self.parts = torch.nn.ModuleList(part for part, _ in flat)
        self.register_buffer("weights", torch.stack([weight for _, weight in flat]))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return the ensemble of what a function returns for each part, with the same weights."""
        return type(self)([function(part) for part in self.parts], self.weights)


def _normalized(weights: Tensor | ArrayLike | None, number: int) -> Tensor:
    values = [1.0] * number if weights is None else weights
    given = torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()
    if given.shape != (number,):
        raise ValueError(
            f"Expected one weight for each of {number} models, got weights of shape "
            f"{tuple(given.shape)}."
        )
    total = given.sum()
    if not bool((given >= 0).all() & total.isfinite() & (total > 0)):
        raise ValueError(
            "Expected finite weights that are not negative, with a positive sum, got "
            f"{given.tolist()}."
        )
    return given / total


def mixed_normal(
    normals: Sequence[MultivariateNormal], batched: Sequence[bool], weights: Tensor
) -> MultivariateNormal:
    r"""Return the normal distribution with the mean and the covariance of a mixture.

    With members :math:`N(m_k, C_k)` of weights :math:`w_k`,

    .. math::
        m = \sum_k w_k m_k, \qquad C = \sum_k w_k \bigl(C_k + (m_k - m)(m_k - m)^\top\bigr).

    Args:
        normals: The distributions of each part, ``batch_shape x N``, or ``batch_shape x K x N`` of a
            batch of ``K`` members.
        batched: Whether each part is a batch.
        weights: Weights of all members, which broadcast with ``batch_shape x K``.
    """
    if len(normals) == 1 and not batched[0]:
        return normals[0]
    means = joined([normal.mean for normal in normals], batched, -2)
    dense = [normal.lazy_covariance_matrix.to_dense() for normal in normals]
    shares = weights.to(means).unsqueeze(-1)
    mean = (shares * means).sum(-2)
    apart = (shares.sqrt() * (means - mean.unsqueeze(-2))).mT
    within = (shares.unsqueeze(-1) * joined(dense, batched, -3)).sum(-3)
    return ExactMultivariateNormal(mean, to_linear_operator(within + apart @ apart.mT))


def joined(values: Sequence[Tensor], batched: Sequence[bool], axis: int) -> Tensor:
    """Join what belongs to members along their axis, which parts of one member lack.

    Args:
        values: A tensor for each part, whose other axes broadcast.
        batched: Whether each has an axis of members.
        axis: The place of that axis, counted from the end.
    """
    values = [v if many else v.unsqueeze(axis) for v, many in zip(values, batched, strict=True)]
    if len(values) == 1:
        return values[0]
    moved = [value.movedim(axis, 0) for value in values]
    shape = torch.broadcast_shapes(*(value.shape[1:] for value in moved))
    aligned = (v.reshape(len(v), *[1] * (len(shape) - v.dim() + 1), *v.shape[1:]) for v in moved)
    return torch.cat([value.expand(-1, *shape) for value in aligned]).movedim(0, axis)
