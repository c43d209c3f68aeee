"""Checks of what was observed of new clouds, and its conversion to tensors."""

from __future__ import annotations

from typing import Any, Literal

import torch
from botorch.models.utils.assorted import fantasize as fantasizing
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import to_tensor
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import as_numbers, check_order, label_of

_NOUNS = {"Y": "target", "noise": "noise variance"}


def observed(
    model: Any,
    X: Inputs | Tensor,
    rows: Tensor,
    given: Tensor | ArrayLike,
    name: Literal["Y", "noise"],
) -> Tensor:
    """Convert what was observed of new clouds to a tensor, with its gradients.

    Args:
        model: The model, an exact one.
        X: The new clouds, or their rows.
        rows: The rows of the new clouds, ``batch_shape x N x width``.
        given: The targets or their noise variances, ``batch_shape x N x outputs``. There may be more
            axes, as for fantasies.
        name: Which of the two.

    Returns:
        A tensor with an axis of outputs.

    Raises:
        ValueError: If the shape is another, a target is not finite, a variance is not positive and
            finite, or an index names the clouds in another order.
    """
    noun, outputs, like = _NOUNS[name], model.num_outputs, model.train_targets
    check_order(X, given, f"{noun}s")
    values = to_tensor(as_numbers(given), like.dtype, like.device)
    if model._squeeze_output and values.shape == rows.shape[:-1]:
        values = values.unsqueeze(-1)
    if values.shape[-2:] != (rows.shape[-2], outputs):
        raise ValueError(
            f"Expected a {noun} for each of {rows.shape[-2]} clouds and {outputs} outputs, got {name} "
            f"of shape {tuple(values.shape)}."
        )
    good = values.isfinite() & ((values > 0) | (name == "Y"))
    if not bool(good.all()):
        place = tuple((~good).any(-1).nonzero()[0].tolist())
        kind = "finite" if name == "Y" else "positive"
        raise ValueError(
            f"Expected {kind} {noun}s, but that of cloud {place[-1]}{label_of(given, place[-1])} is "
            f"{values[place].tolist()}."
        )
    return values


def check_noise_is_kept(noise: object, *, known: bool) -> None:
    """Check that a model can hold the noise variances of new targets.

    If it learns its noise, GPyTorch uses them for its caches only, and loses them with the next change
    of mode. BoTorch's fantasies, which do not last, may have them.

    Args:
        noise: The variances, or None.
        known: Whether the noise variances of the training targets are known.

    Raises:
        ValueError: If noise is given and the model learns its noise.
    """
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
