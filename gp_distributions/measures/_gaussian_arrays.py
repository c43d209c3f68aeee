"""Validation of the means, covariances and weights of Gaussians and of their mixtures."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gp_distributions.measures._validation import (
    Name,
    Wording,
    check_entries,
    validated,
    validated_covariance,
)
from gp_distributions.measures.arrays import Data, real_array, to_tensors

_GAUSSIAN = Wording("Gaussian")
_MIXTURE = Wording("Mixture")


def moments(given: Sequence[Data], axes: str, prefix: str = "") -> list[Tensor]:
    """Convert a mean, a covariance and possibly weights of matching shapes to tensors.

    Args:
        given: The arrays.
        axes: The axes of the mean after the batch axes, ``"d"`` or ``"K, d"``.
        prefix: What the names of the arrays begin with in error messages.
    """
    names = [prefix + name for name in ("Mean", "Covariance", "Weights")[: len(given)]]
    arrays = [real_array(array, name) for array, name in zip(given, names, strict=True)]
    shape = tuple(arrays[0].shape)
    if len(shape) < len(axes.split(", ")) or 0 in shape:
        raise ValueError(
            f"{names[0]}: expected a non-empty array of shape (..., {axes}), got {shape}."
        )
    needed = (shape, (*shape, shape[-1]), shape[:-1])
    for array, name, expected in zip(arrays, names, needed, strict=False):
        if tuple(array.shape) != expected:
            variances = name.endswith("Covariance") and tuple(array.shape) == shape
            hint = "; did you mean torch.diag_embed(variances)?" if variances else "."
            raise ValueError(
                f"{name}: expected shape {expected} for a mean of shape {shape}, got "
                f"{tuple(array.shape)}{hint}"
            )
    return to_tensors(arrays)


def valid_gaussians(
    mean: Tensor, covariance: Tensor, name: Name = _GAUSSIAN
) -> tuple[Tensor, Tensor]:
    """Check ``batch_shape x d`` means and their covariances; return the means and symmetric parts."""
    check_entries(mean.isfinite(), mean, name, "a finite mean", " in coordinate {}")
    return mean, validated_covariance(covariance, name)


def valid_mixtures(
    mean: Tensor, covariance: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Check ``batch_shape x K x d`` means, their covariances and weights, and normalise the weights."""

    def component(index: tuple[int, ...]) -> str:
        return f"{_MIXTURE(index[:-1])}, component {index[-1]}"

    _, covariance = valid_gaussians(mean, covariance, component)
    mean, weights = validated(mean, weights, _MIXTURE)
    return mean, covariance, weights
