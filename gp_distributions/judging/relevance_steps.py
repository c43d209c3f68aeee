"""How much predictions change, to first order, with a step of one standard deviation of an input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.judging.relevance_inputs import Input, Names, inputs_of
from gp_distributions.judging.relevance_results import Relevance, RelevanceEntry
from gp_distributions.judging.sensitivities import gradients_at
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.arguments import keeps_clouds
from gp_distributions.rows.columns import numbers_of
from gp_distributions.rows.layout import Block

# Largest number of objects at which sensitivities are computed.
MOST_OBJECTS = 100


def sensitivities(
    model: DistributionGP | SparseDistributionGP, rows: Tensor, units: Tensor, names: Names | None
) -> Relevance:
    """Compute sensitivities in place of losses, for models whose relevance cannot be computed.

    Args:
        model: A fitted model.
        rows: The rows of objects, ``N x width``, of which at most 100 are looked at.
        units: The unit of each output.
        names: Names of coordinates, as for :func:`relevance`.

    Returns:
        Entries whose ``loss`` is the sensitivity; none if the model transforms its inputs.
    """
    if not keeps_clouds(getattr(model, "input_transform", None)):
        return Relevance(())
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    chosen = order[:MOST_OBJECTS].sort().values.to(rows.device)
    gradients = gradients_at(model, rows[chosen])[0] / units.to(rows)[:, None, None]
    found = [(e, sensitivity_to(e, rows, chosen, gradients)[0]) for e in inputs_of(model, names)]
    return Relevance(tuple(RelevanceEntry(e.block, e.coordinate, s, 0.0) for e, s in found))


def sensitivity_to(
    each: Input, rows: Tensor, chosen: Tensor, gradients: Tensor
) -> tuple[float, float]:
    r"""Compute the change of predictions for a step of one standard deviation.

    With the gradients :math:`g` at atoms of weights :math:`w`, the root mean square change is
    :math:`\sqrt{\operatorname{mean}_i \sum_a g_{ia}^2 / w_{ia}}`, and the mean change if all atoms move
    alike :math:`\operatorname{mean}_i \sum_a g_{ia}`, times the standard deviation of the coordinate
    over all atoms.

    Args:
        each: An input.
        rows: The rows of all objects, ``N x width``, to which the standard deviation refers.
        chosen: Indices of some objects.
        gradients: Gradients of predictions at the chosen rows, ``outputs x chosen x width``.

    Returns:
        Both changes; NaN for whole blocks of several coordinates, categories, Gaussians and mixtures,
        and the mean change of coordinates that rotate together.
    """
    if not each.is_continuous:
        return math.nan, math.nan
    columns = torch.tensor(numbers_of(each.columns, rows.shape[-1]), device=rows.device)
    gradients, values = gradients[..., columns], rows[:, columns]
    if each.layout is None:
        step = values.std(correction=0).item()
        return gradients.square().mean().sqrt().item() * step, gradients.mean().item() * step
    layout = Block(each.layout.kind, each.layout.dim)
    points, weights = layout.split(values)
    weights = weights / weights.sum(-1, keepdim=True)
    axes = list(each.axes or (0,))
    slopes = layout.split(gradients)[0][..., axes]
    own = weights[chosen]
    squares = (slopes.square().sum(-1) / own.clamp_min(1e-300)).masked_fill(own == 0, 0)
    pooled = (weights / len(weights)).unsqueeze(-1)
    centred = points[..., axes] - (pooled * points[..., axes]).sum((0, 1))
    spread = (pooled * centred.square()).sum((0, 1)).mean().sqrt()
    mean = slopes.sum((-2, -1)).mean() * spread if len(axes) == 1 else math.nan
    return (squares.sum(-1).mean().sqrt() * spread).item(), float(mean)
