"""Read Gaussians and mixtures of Gaussians from arrays, lists and rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from gp_distributions.measures._bags import pad_arrays
from gp_distributions.measures._validation import (
    Name,
    Wording,
    check_entries,
    equal_weights,
    validated,
    validated_covariance,
)
from gp_distributions.measures.arrays import (
    Data,
    dtype_and_device,
    integer,
    real_array,
    row_tensor,
    to_tensors,
)
from gp_distributions.rows.gaussians import split_gaussians, split_mixtures

_GAUSSIAN = Wording("Gaussian")


def read_gaussians(mean: Data, covariance: Data) -> tuple[Tensor, Tensor]:
    """Read Gaussians from arrays.

    Args:
        mean: A ``batch_shape x d`` array.
        covariance: A ``batch_shape x d x d`` array.

    Returns:
        The ``batch_shape x d`` means and the ``batch_shape x d x d`` covariances.
    """
    means, covariances = _read_arrays([mean, covariance], "d")
    return _validated_gaussians(means, covariances)


def read_gaussian_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor]:
    """Read Gaussians from ``batch_shape x (d+d*d)`` rows, as tensors like :func:`read_gaussians`."""
    return _validated_gaussians(*split_gaussians(row_tensor(rows), integer(dim, "dim")))


def read_mixtures(
    mean: Data, covariance: Data, weights: Data | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Read mixtures from arrays.

    Args:
        mean: A ``batch_shape x K x d`` array.
        covariance: A ``batch_shape x K x d x d`` array.
        weights: A ``batch_shape x K`` array; None for equal weights.

    Returns:
        The ``batch_shape x K x d`` means, the ``batch_shape x K x d x d`` covariances and the
        ``batch_shape x K`` normalised weights.
    """
    given = [mean, covariance] if weights is None else [mean, covariance, weights]
    means, covariances, *rest = _read_arrays(given, "K, d")
    return _validated_mixtures(means, covariances, rest[0] if rest else equal_weights(means))


def read_mixture_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Read mixtures from ``batch_shape x K*(d+d*d+1)`` rows, as tensors like :func:`read_mixtures`."""
    return _validated_mixtures(*split_mixtures(row_tensor(rows), integer(dim, "dim")))


def read_mixture_list(
    mixtures: Iterable[tuple[Data, Data, Data]],
) -> tuple[Tensor, Tensor, Tensor]:
    """Pad mixtures to the largest number of components, with components whose entries are all zero.

    Args:
        mixtures: For each mixture, a ``K_i x d`` array of means, a ``K_i x d x d`` array of
            covariances and ``K_i`` weights.

    Returns:
        The means, covariances and weights, as :func:`read_mixtures` returns them.

    Raises:
        ValueError: If there are no mixtures, or the shapes or dimensions are wrong.
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
    kind = dtype_and_device([tensor for mixture in read for tensor in mixture])
    mean, covariance, weights = (pad_arrays([*c], *kind)[0] for c in zip(*read, strict=True))
    return _validated_mixtures(mean, covariance, weights)


def _read_arrays(given: Sequence[Data], axes: str, prefix: str = "") -> list[Tensor]:
    """Convert a mean, a covariance and possibly weights of matching shapes to tensors."""
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
    return to_tensors(arrays)


def _validated_gaussians(
    mean: Tensor, covariance: Tensor, name: Name = _GAUSSIAN
) -> tuple[Tensor, Tensor]:
    check_entries(mean.isfinite(), mean, name, "a finite mean", " in coordinate {}")
    return mean, validated_covariance(covariance, name)


def _validated_mixtures(
    mean: Tensor, covariance: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    name = Wording("Mixture")

    def component(index: tuple[int, ...]) -> str:
        return f"{name(index[:-1])}, component {index[-1]}"

    _, covariance = _validated_gaussians(mean, covariance, component)
    mean, weights = validated(mean, weights, name)
    return mean, covariance, weights
