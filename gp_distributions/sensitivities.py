"""Which atoms moved a prediction: gradients of posterior means and variances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures import PointClouds
from gp_distributions.models import DistributionGP
from gp_distributions.models.exact_inference import variances
from gp_distributions.rows.clouds import split_rows


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Gradients of predictions at clouds, of shape ``outputs x N x ...`` if the targets had outputs.

    A gradient in the weights says what more mass at an atom does, taken from all others in proportion;
    its mean under the weights is zero. Padding has gradients zero.

    Attributes:
        clouds: The ``N`` clouds.
        mean_points: Of the posterior mean in the atoms, ``N x n x d``: units of the targets by units of
            the coordinates.
        mean_weights: Of the posterior mean in the weights, ``N x n``: units of the targets.
        variance_points: Of the posterior variance of the function in the atoms, ``N x n x d``.
        variance_weights: Of the posterior variance in the weights, ``N x n``: squared units of the
            targets.
    """

    clouds: PointClouds
    mean_points: Tensor
    mean_weights: Tensor
    variance_points: Tensor
    variance_weights: Tensor


def sensitivity(model: DistributionGP, X: PointClouds, *, batch_size: int = 64) -> Sensitivity:
    r"""Differentiate the posterior mean and variance at clouds in their points and weights.

    With the posterior mean :math:`m` and variance :math:`v` of the function at the cloud
    :math:`P = \sum_i w_i \delta(x_i)`,

    .. math::
        \frac{\partial m}{\partial x_i}, \quad \frac{\partial m}{\partial w_i}, \quad
        \frac{\partial v}{\partial x_i}, \quad \frac{\partial v}{\partial w_i}.

    The first is an arrow at each atom: where it would have to go for a larger prediction.

    Args:
        model: A fitted model of clouds.
        X: The ``N`` clouds.
        batch_size: Clouds at a time, which bounds memory.

    Returns:
        The gradients, detached.

    Raises:
        TypeError: If ``X`` is not :class:`PointClouds`.
        ValueError: If ``X`` is a batch of several axes, the kernel reads other distributions, or
            ``batch_size < 1``.
    """
    if not isinstance(X, PointClouds):
        raise TypeError(f"Expected PointClouds, got {type(X).__name__}.")
    check_kind(X, model.covar_module)
    if len(X.batch_shape) != 1:
        raise ValueError(f"Expected clouds along one axis, got shape {tuple(X.batch_shape)}.")
    if batch_size < 1:
        raise ValueError(f"Expected batch_size >= 1, got {batch_size}.")
    parts = [_gradients(model, rows) for rows in X.pack().detach().split(batch_size)]
    means, spreads = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    if model._squeeze_output:
        means, spreads = means.squeeze(0), spreads.squeeze(0)
    occupied = X.weights.detach() > 0
    mean_points, mean_weights = split_rows(means, X.dim)
    variance_points, variance_weights = split_rows(spreads, X.dim)
    return Sensitivity(
        clouds=X,
        mean_points=mean_points * occupied.unsqueeze(-1),
        mean_weights=mean_weights * occupied,
        variance_points=variance_points * occupied.unsqueeze(-1),
        variance_weights=variance_weights * occupied,
    )


def _gradients(model: DistributionGP, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of means and of variances in rows, each ``outputs x N x width``."""
    model.eval()
    rows = rows.clone().requires_grad_()
    axes = [1] * len(model.batch_shape)
    # Each cloud is a batch of its own, so that sums over clouds have their gradients side by side.
    posterior = model.posterior(rows.unflatten(0, (-1, *axes, 1)), observation_noise=False)
    gradients = []
    for values in (posterior.mean, variances(posterior, model.smallest_variance)):
        outputs = values.flatten(0, -2).sum(0)
        found = [torch.autograd.grad(output, rows, retain_graph=True)[0] for output in outputs]
        gradients.append(torch.stack(found))
    return gradients[0], gradients[1]
