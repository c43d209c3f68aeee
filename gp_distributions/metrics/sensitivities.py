"""Gradients of posterior means and variances with respect to atoms and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures import MixedEncoding, MixedInputs, PointClouds
from gp_distributions.measures.arrays import check_type, integer
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.exact_inference import marginal_moments
from gp_distributions.rows.clouds import split_rows
from gp_distributions.rows.layout import select_columns


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Gradients of predictions at clouds.

    If the training targets had several outputs, all gradients have a leading axis of outputs. The
    gradient with respect to a weight is the effect of moving mass to this atom from all other atoms in
    proportion to their weights; the weighted mean of these gradients is zero. Gradients at padding are
    zero.

    Attributes:
        clouds: The ``N`` clouds.
        mean_points: Gradient of the posterior mean with respect to the atoms, ``N x n x d``, in units of
            the targets per unit of the coordinates.
        mean_weights: Gradient of the posterior mean with respect to the weights, ``N x n``, in units of
            the targets.
        variance_points: Gradient of the posterior variance of the function with respect to the atoms,
            ``N x n x d``.
        variance_weights: Gradient of this variance with respect to the weights, ``N x n``.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, sensitivity
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(9, 5, 2)))
        >>> model = DistributionGP(clouds, clouds.points[..., 0].mean(-1))
        >>> found = sensitivity(model, clouds[:3])
        >>> tuple(found.mean_points.shape), tuple(found.mean_weights.shape)
        ((3, 5, 2), (3, 5))
    """

    clouds: PointClouds
    mean_points: Tensor
    mean_weights: Tensor
    variance_points: Tensor
    variance_weights: Tensor


@overload
def sensitivity(
    model: DistributionGP | SparseDistributionGP, X: PointClouds, *, batch_size: int = 64
) -> Sensitivity: ...


@overload
def sensitivity(
    model: DistributionGP | SparseDistributionGP, X: MixedInputs, *, batch_size: int = 64
) -> dict[str, Sensitivity]: ...


def sensitivity(
    model: DistributionGP | SparseDistributionGP,
    X: PointClouds | MixedInputs,
    *,
    batch_size: int = 64,
) -> Sensitivity | dict[str, Sensitivity]:
    r"""Differentiate the posterior mean and variance at clouds with respect to their atoms and weights.

    For the posterior mean :math:`m` and variance :math:`v` of the function at the cloud
    :math:`P = \sum_i w_i \delta(x_i)`, these are

    .. math::
        \frac{\partial m}{\partial x_i}, \quad \frac{\partial m}{\partial w_i}, \quad
        \frac{\partial v}{\partial x_i}, \quad \frac{\partial v}{\partial w_i}.

    The first gradient is a vector at each atom that points in the direction in which moving the atom
    increases the prediction most.

    Args:
        model: A fitted model of clouds or of mixed inputs.
        X: The ``N`` clouds, or mixed inputs with a block of clouds.
        batch_size: Number of clouds to differentiate at a time, which bounds memory.

    Returns:
        The gradients, detached. For :class:`MixedInputs`, the gradients with respect to each block of
        clouds at the given other blocks, by the name of the block.

    Raises:
        TypeError: If ``X`` is neither :class:`PointClouds` nor :class:`MixedInputs`.
        ValueError: If ``X`` does not have exactly one batch axis or has no block of clouds, the kernel
            reads other inputs, or ``batch_size < 1``.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, fit, sensitivity
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(12, 5, 2)))
        >>> model = fit(DistributionGP(clouds, clouds.points[..., 0].mean(-1)))
        >>> along, across = sensitivity(model, clouds).mean_points.abs().mean((0, 1))
        >>> bool(along > 10 * across)  # the target is the mean of the first coordinate
        True
    """
    check_type(X, PointClouds, MixedInputs)
    check_kind(X, model.covar_module, model.encoding)
    size = integer(batch_size, "batch_size")
    if isinstance(X, MixedInputs):
        clouds = {name: b for name, b in X.blocks.items() if isinstance(b, PointClouds)}
        if not clouds:
            raise ValueError(f"Expected a block of PointClouds, got {X}.")
        assert isinstance(model.encoding, MixedEncoding)  # check_kind has checked the kernel
        gradients = gradients_at(model, X.pack(model.encoding), size)
        columns = model.encoding.columns
        return {
            name: _read(model, block, select_columns(gradients, columns[name]))
            for name, block in clouds.items()
        }
    if len(X.batch_shape) != 1:
        raise ValueError(f"Expected clouds along one axis, got shape {tuple(X.batch_shape)}.")
    return _read(model, X, gradients_at(model, X.pack(), size))


def gradients_at(
    model: DistributionGP | SparseDistributionGP, rows: Tensor, batch_size: int = 64
) -> Tensor:
    """Return the gradients of means and variances at rows, a ``2 x outputs x N x width`` tensor.

    Args:
        model: A fitted model.
        rows: An ``N x width`` tensor of rows.
        batch_size: Number of rows to differentiate at a time, which bounds memory.
    """
    batches = rows.detach().split(batch_size)
    return torch.cat([_row_gradients(model, batch) for batch in batches], dim=-2)


def _read(
    model: DistributionGP | SparseDistributionGP, X: PointClouds, gradients: Tensor
) -> Sensitivity:
    """Read gradients with respect to the rows of clouds, which may be padded further."""
    if model._squeeze_output:
        gradients = gradients.squeeze(1)
    points, weights = split_rows(gradients, X.dim)
    points, weights = points[..., : X.weights.shape[-1], :], weights[..., : X.weights.shape[-1]]
    occupied = X.weights.detach() > 0
    mean_points, variance_points = points * occupied.unsqueeze(-1)
    mean_weights, variance_weights = weights * occupied
    return Sensitivity(X, mean_points, mean_weights, variance_points, variance_weights)


def _row_gradients(model: DistributionGP | SparseDistributionGP, rows: Tensor) -> Tensor:
    """Differentiate posterior means and variances at rows, a ``2 x outputs x N x width`` tensor."""
    model.eval()
    rows = rows.clone().requires_grad_()
    axes = [1] * len(model.batch_shape)
    # Each cloud is its own batch element, so the gradient of a sum over clouds contains the gradient at
    # each of them.
    posterior = model.posterior(rows.unflatten(0, (-1, *axes, 1)), observation_noise=False)
    outputs = marginal_moments(posterior, model.smallest_variance)
    totals = [total for values in outputs for total in values.flatten(0, -2).sum(0)]
    # Some distances do not depend on the coordinates in their rows.
    options: Any = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    found = [torch.autograd.grad(total, rows, **options)[0] for total in totals]
    return torch.stack(found).unflatten(0, (2, -1))
