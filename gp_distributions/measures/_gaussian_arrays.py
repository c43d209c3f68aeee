"""Gaussians and their mixtures, given as arrays, as lists or as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gp_distributions.measures._covariances import check_finite, validated_covariance
from gp_distributions.measures._ragged import pad
from gp_distributions.measures._validation import Naming, equal_weights, validated
from gp_distributions.measures.arrays import (
    Data,
    common_device,
    common_dtype,
    concatenate,
    integer,
    real_array,
    to_tensor,
)
from gp_distributions.rows.gaussians import split_gaussians, split_mixtures

_GAUSSIAN = Naming("Gaussian")
_MIXTURE = Naming("Mixture")


def read_gaussians(mean: Data, covariance: Data) -> tuple[Tensor, Tensor]:
    """Read Gaussians from arrays.

    Args:
        mean: A ``batch_shape x d`` array.
        covariance: A ``batch_shape x d x d`` array.

    Returns:
        Means, ``batch_shape x d``, and covariances, ``batch_shape x d x d``.
    """
    return _validated_gaussians(*_read_arrays([mean, covariance], "d"))


def read_gaussian_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor]:
    """Read Gaussians from ``batch_shape x (d+d*d)`` rows, as :func:`read_gaussians` returns them."""
    return _validated_gaussians(*split_gaussians(_read_rows(rows), integer(dim, "dim")))


def read_mixtures(
    mean: Data, covariance: Data, weights: Data | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Read mixtures from arrays.

    Args:
        mean: A ``batch_shape x K x d`` array.
        covariance: A ``batch_shape x K x d x d`` array.
        weights: A ``batch_shape x K`` array; None: equal weights.

    Returns:
        Means, ``batch_shape x K x d``, covariances, ``batch_shape x K x d x d``, and normalised
        weights, ``batch_shape x K``.
    """
    given = [mean, covariance] if weights is None else [mean, covariance, weights]
    means, covariances, *rest = _read_arrays(given, "K, d")
    return _validated_mixtures(means, covariances, rest[0] if rest else equal_weights(means))


def read_mixture_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Read ``batch_shape x K*(d+d*d+1)`` rows, as :func:`read_mixtures` returns them."""
    return _validated_mixtures(*split_mixtures(_read_rows(rows), integer(dim, "dim")))


def read_mixture_list(
    mixtures: Iterable[tuple[Data, Data, Data]],
) -> tuple[Tensor, Tensor, Tensor]:
    """Pad mixtures to the largest number of components, with components of zeros.

    Args:
        mixtures: For each mixture, a ``K_i x d`` array of means, a ``K_i x d x d`` array of
            covariances and ``K_i`` weights.

    Returns:
        Tensors as :func:`read_mixtures` returns them.

    Raises:
        ValueError: If there is no mixture, or shapes or dimensions do not fit.
    """
    read = [_read_arrays(m, "K, d", prefix=f"Mixture {i}: ") for i, m in enumerate(mixtures)]
    if not read:
        raise ValueError("Expected at least one mixture, got an empty list.")
    dim = read[0][0].shape[-1]
    for i, (mean, *_) in enumerate(read):
        if mean.dim() != 2 or mean.shape[1] != dim:
            raise ValueError(
                f"Mixture {i}: expected means of shape (K, {dim}), got {tuple(mean.shape)}."
            )
    tensors = [tensor for mixture in read for tensor in mixture]
    dtype, device = common_dtype(tensors), common_device(tensors)
    sizes = torch.tensor([len(mean) for mean, *_ in read], device=device)
    columns = [list(column) for column in zip(*read, strict=True)]
    mean, covariance, weights = (pad(concatenate([*c], dtype, device), sizes) for c in columns)
    return _validated_mixtures(mean, covariance, weights)


def _read_arrays(given: Sequence[Data], axes: str, prefix: str = "") -> list[Tensor]:
    """Take a mean, a covariance and perhaps weights, whose shapes must fit, as tensors."""
    names = [prefix + name for name in ("Mean", "Covariance", "Weights")[: len(given)]]
    arrays = [real_array(array, name) for array, name in zip(given, names, strict=True)]
    shape = tuple(arrays[0].shape)
    if len(shape) < len(axes.split(", ")) or 0 in shape:
        raise ValueError(
            f"{names[0]}: expected a non-empty array of shape (..., {axes}), got {shape}."
        )
    needed = (shape, (*shape, shape[-1]), shape[:-1])[: len(given)]
    for array, name, expected in zip(arrays, names, needed, strict=True):
        if tuple(array.shape) != expected:
            variances = name.endswith("Covariance") and tuple(array.shape) == shape
            hint = "; did you mean torch.diag_embed(variances)?" if variances else "."
            raise ValueError(
                f"{name}: expected shape {expected} for a mean of shape {shape}, got "
                f"{tuple(array.shape)}{hint}"
            )
    dtype, device = common_dtype(arrays), common_device(arrays)
    return [to_tensor(array, dtype, device) for array in arrays]


def _read_rows(rows: Data) -> Tensor:
    array = real_array(rows, "Rows")
    if 0 in array.shape[:-1]:
        raise ValueError(f"Rows: expected at least one row, got shape {tuple(array.shape)}.")
    return to_tensor(array, common_dtype([array]), common_device([array]))


def _validated_gaussians(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    check_finite(mean, "mean", _GAUSSIAN, axes=1)
    return mean, validated_covariance(covariance, _GAUSSIAN)


def _validated_mixtures(
    mean: Tensor, covariance: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    check_finite(mean, "mean", _component, axes=1)
    covariance = validated_covariance(covariance, _component)
    mean, weights = validated(mean, weights, _MIXTURE)
    return mean, covariance, weights


def _component(index: tuple[int, ...]) -> str:
    return f"{_MIXTURE(index[:-1])}, component {index[-1]}"
