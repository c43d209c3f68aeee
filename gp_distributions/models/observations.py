"""Checks of what was observed of new clouds, and its conversion to tensors."""

from __future__ import annotations

import torch
from botorch.models.utils.assorted import fantasize as fantasizing
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import to_tensor
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import as_numbers, check_order, label_of


def as_observations(
    X: Inputs | Tensor,
    rows: Tensor,
    Y: Tensor | ArrayLike,
    noise: Tensor | ArrayLike | None,
    *,
    like: Tensor,
    outputs: int,
    squeeze: bool,
) -> tuple[Tensor, Tensor | None]:
    """Convert the targets of new clouds and their noise variances to tensors, with their gradients.

    Args:
        X: The new clouds, or their rows.
        rows: The rows of the new clouds, ``batch_shape x N x width``.
        Y: The targets, ``batch_shape x N x outputs``. There may be more axes, as for fantasies.
        noise: The noise variances of the targets, or None.
        like: A tensor with the dtype and on the device of the result.
        outputs: Number of outputs of the model.
        squeeze: Whether the axis of outputs may be missing.

    Returns:
        The targets and the noise variances, with an axis of outputs.

    Raises:
        ValueError: If the shapes are others, a target is not finite, a variance is not positive and
            finite, or an index names the clouds in another order.
    """
    check_order(X, Y)
    targets = _of_clouds(Y, "Y", "target", rows, like, outputs, squeeze=squeeze)
    finite = targets.isfinite()
    if not bool(finite.all()):
        place = _first(~finite)
        raise ValueError(
            f"Expected finite targets, but that of cloud {place[-1]}{label_of(Y, place[-1])} is "
            f"{targets[place].tolist()}. Leave out clouds without a target."
        )
    if noise is None:
        return targets, None
    check_order(X, noise, "noise variances")
    variances = _of_clouds(noise, "noise", "noise variance", rows, like, outputs, squeeze=squeeze)
    positive = (variances > 0) & variances.isfinite()
    if not bool(positive.all()):
        place = _first(~positive)
        raise ValueError(
            f"Expected positive noise variances, but that of cloud {place[-1]} is "
            f"{variances[place].tolist()}."
        )
    return targets, variances


def check_noise_is_kept(noise: object, likelihood: Likelihood) -> None:
    """Check that a likelihood can hold the noise variances of new targets.

    If it learns its noise, GPyTorch uses them for its caches only, and loses them with the next change
    of mode. BoTorch's fantasies, which do not last, may have them.

    Raises:
        ValueError: If noise is given and the likelihood learns its noise.
    """
    known = isinstance(likelihood, FixedNoiseGaussianLikelihood)
    if noise is not None and not known and not fantasizing.on():
        raise ValueError(
            "Expected noise=None, since this model knows no noise variances of training targets. "
            "Make the model with train_Yvar to give the noise of each target."
        )


def noise_of_outputs(noise: Tensor, outputs: int) -> Tensor:
    """Return given noise variances with an axis of outputs, which models of one output may leave out.

    Raises:
        ValueError: If the last axis does not count the outputs.
    """
    if outputs == 1 and noise.shape[-1:] != (1,):
        noise = noise.unsqueeze(-1)
    if noise.shape[-1:] != (outputs,):
        raise ValueError(
            f"Expected noise variances of {outputs} outputs in the last axis, got shape "
            f"{tuple(noise.shape)}."
        )
    return noise


def mean_noise(known: Tensor, rows: Tensor, outputs: int) -> Tensor:
    """Return the mean of known noise variances for each of some rows.

    Args:
        known: Noise variances of training clouds, ``batch_shape x outputs x T``, without the axis of
            outputs if there is one.
        rows: The rows of other clouds, ``batch_shape x N x width``.
        outputs: Number of outputs.

    Returns:
        A ``batch_shape x N x outputs`` tensor.
    """
    mean = known.mean(-1, keepdim=True)
    mean = mean.mT if outputs > 1 else mean.unsqueeze(-1)
    return mean.expand(torch.broadcast_shapes(mean.shape, (*rows.shape[:-1], outputs)))


def _of_clouds(
    given: Tensor | ArrayLike,
    name: str,
    noun: str,
    rows: Tensor,
    like: Tensor,
    outputs: int,
    *,
    squeeze: bool,
) -> Tensor:
    """Convert values of clouds to a tensor with an axis of outputs."""
    values = to_tensor(as_numbers(given), like.dtype, like.device)
    if squeeze and values.shape == rows.shape[:-1]:
        values = values.unsqueeze(-1)
    if values.shape[-2:] != (rows.shape[-2], outputs):
        raise ValueError(
            f"Expected a {noun} for each of {rows.shape[-2]} clouds and {outputs} outputs, got {name} "
            f"of shape {tuple(values.shape)}."
        )
    return values


def _first(bad: Tensor) -> tuple[int, ...]:
    """Return the place of the first cloud with a bad value."""
    return tuple(bad.any(-1).nonzero()[0].tolist())
