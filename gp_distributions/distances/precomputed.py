"""Distances known beforehand, between numbered objects."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.measures.arrays import (
    Data,
    common_device,
    common_dtype,
    real_array,
    to_tensor,
)
from gp_distributions.numerics.pairwise import zero_diagonal
from gp_distributions.warnings import NotHilbertianWarning


class PrecomputedDistance(Distance):
    r"""Squared Hilbert distances looked up in a matrix, for rows that are indices of it.

    For objects of any kind of which only distances are known: ``squared[i, j]`` is the squared
    distance of object ``i`` to object ``j``, and what a model is given are the numbers of objects, a
    ``batch_shape x N x 1`` tensor of whole floats from 0 to ``T - 1``. They have no gradient.

    Kernels are positive semi-definite at every lengthscale if and only if the distance is Hilbertian:
    if no eigenvalue of the Gram matrix about the mean, :math:`-\tfrac12 J D J` with
    :math:`J = I - 1 1^\top / T`, is negative. That is checked at construction.

    Args:
        squared: The ``T x T`` matrix :math:`D` of squared distances, a tensor or array.
        norms: The ``T`` squared distances to the origin of inner products, which the ``"linear"`` and
            ``"polynomial"`` profiles use. Default: those to the mean of the objects.
        tolerance: What counts as rounding: errors of the matrix relative to its largest entry, which
            are evened out, and :attr:`negative_part`. Default: the root of the spacing of the
            numbers, 1.5e-8 in double precision.

    Raises:
        ValueError: If the matrix is not square, finite, symmetric and non-negative with a diagonal of
            zeros, or shapes differ; on evaluation, if a row is not the number of an object.

    Warns:
        NotHilbertianWarning: If the distance is not Hilbertian.

    Source: Schoenberg 1935, theorem 1.
    """

    supported_inputs = ("indices",)

    def __init__(
        self, squared: Data, *, norms: Data | None = None, tolerance: float | None = None
    ) -> None:
        super().__init__(1, inputs="indices")
        matrix, rounding = _symmetric(squared, "squared", tolerance)
        largest = matrix.abs().max()
        diagonal = matrix.diagonal().diag_embed()
        _check(diagonal.abs() <= rounding * largest, matrix, "squared: expected a zero diagonal")
        _check(matrix >= -rounding * largest, matrix, "squared: expected squared distances >= 0")
        matrix = zero_diagonal(matrix.clamp_min(0))
        if norms is None:
            means = matrix.mean(-1)
            origin = means - means.mean() / 2
        else:
            origin = to_tensor(real_array(norms, "norms"), matrix.dtype, matrix.device).detach()
            if origin.shape != matrix.shape[:1]:
                raise ValueError(f"Expected {len(matrix)} norms, got shape {tuple(origin.shape)}.")
        self.matrix: Tensor
        self.norms: Tensor
        self.register_buffer("matrix", matrix)
        self.register_buffer("norms", origin)
        if self.negative_part > rounding:
            self._warn()

    @classmethod
    def from_gram(cls, gram: Data, *, tolerance: float | None = None) -> PrecomputedDistance:
        r"""The distance of a Gram matrix, :math:`G_{ii} + G_{jj} - 2 G_{ij}`, with its origin.

        With the ``"linear"`` profile and a lengthscale of 1 the kernel is the Gram matrix.

        Args:
            gram: A ``T x T`` tensor or array, symmetric and positive semi-definite.
            tolerance: As of the class.

        Returns:
            The distance.

        Raises:
            ValueError: If the matrix is not square, finite and symmetric, or
                :math:`2 G_{ij} > G_{ii} + G_{jj}` somewhere.

        Warns:
            NotHilbertianWarning: If the matrix is not positive semi-definite.
        """
        matrix, rounding = _symmetric(gram, "gram", tolerance)
        norms = matrix.diagonal()
        squared = norms.unsqueeze(-1) + norms - 2 * matrix
        possible = squared >= -rounding * matrix.abs().max()
        _check(possible, matrix, "gram: expected 2 G[i, j] <= G[i, i] + G[j, j]")
        return cls(squared.clamp_min(0), norms=norms, tolerance=rounding)

    @property
    def negative_part(self) -> float:
        """By how much the distance fails to be Hilbertian: 0 if it is, at most 1.

        The sum of the absolute values of the negative eigenvalues of the Gram matrix about the
        origin, over that of all.
        """
        eigenvalues = self._eigenvalues()
        total = eigenvalues.abs().sum().item()
        return -eigenvalues.clamp_max(0).sum().item() / total if total else 0.0

    @property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of the Gram matrix about the origin, in squared distances."""
        return self._eigenvalues()[0].item()

    def _eigenvalues(self) -> Tensor:
        gram = (self.norms.unsqueeze(-1) + self.norms - self.matrix) / 2
        return torch.linalg.eigvalsh(gram)

    def _warn(self) -> None:
        eigenvalues = self._eigenvalues()
        rounding = len(eigenvalues) * torch.finfo(eigenvalues.dtype).eps * eigenvalues.abs().max()
        warnings.warn(
            f"The distance is not Hilbertian: {int((eigenvalues < -rounding).sum())} of the "
            f"{len(eigenvalues)} eigenvalues of its Gram matrix are negative, {self.negative_part:.2g} "
            f"of all by absolute value (the smallest is {eigenvalues[0].item():.3g}, the largest "
            f"{eigenvalues[-1].item():.3g}). Kernels of it need not be positive semi-definite, so that "
            "factorisations may fail and variances be wrong. Check that the distances are squared; "
            "take a Hilbertian distance; or take squared ** beta, which is Hilbertian for a small "
            "enough beta > 0.",
            NotHilbertianWarning,
            stacklevel=3,
        )

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance of representations: it is not."""
        return False

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """The indices themselves, ``C x 1``."""
        return points.squeeze(-2)

    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        """Looks up squared distances, shapes as in :meth:`Distance.squared`."""
        first = self._indices(x1)
        second = first if x2 is None or x2 is x1 else self._indices(x2)
        if diag:
            return self.matrix[first, second].to(x1.dtype)
        return self.matrix[first.unsqueeze(-1), second.unsqueeze(-2)].to(x1.dtype)

    def squared_norms(self, rows: Tensor) -> Tensor:
        """Squared distances to the origin of inner products, ``batch_shape x N``."""
        return self.norms[self._indices(rows)].to(rows.dtype)

    def _indices(self, rows: Tensor) -> Tensor:
        """Checked indices, ``batch_shape x N``."""
        size = len(self.matrix)
        if rows.dim() < 2 or rows.shape[-1] != 1:
            raise ValueError(
                f"Expected rows of width 1, each the index of one of {size} objects, got a tensor of "
                f"shape {tuple(rows.shape)}."
            )
        index = rows.detach().squeeze(-1)
        valid = (index == index.round()) & (index >= 0) & (index < size)
        if not bool(valid.all()):
            row = tuple((~valid).nonzero()[0].tolist())
            raise ValueError(
                f"Expected the index of an object, a whole number from 0 to {size - 1}, but row "
                f"{row[0] if len(row) == 1 else row} is {index[row].item():g}."
            )
        return index.long()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The number of objects is that of the saved matrix.
        for name in ("matrix", "norms"):
            if (saved := state_dict.get(prefix + name)) is not None:
                setattr(self, name, getattr(self, name).new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """The number of objects, for printing."""
        return f"{len(self.matrix)} objects"


def _symmetric(value: Data, name: str, tolerance: float | None) -> tuple[Tensor, float]:
    """A finite matrix, symmetric to rounding and made so, and what is rounding."""
    array = real_array(value, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or 0 in array.shape:
        raise ValueError(f"{name}: expected a T x T matrix, got shape {tuple(array.shape)}.")
    matrix = to_tensor(array, common_dtype([array]), common_device([array])).detach()
    rounding = torch.finfo(matrix.dtype).eps ** 0.5 if tolerance is None else float(tolerance)
    if not 0 <= rounding < 1:
        raise ValueError(f"Expected 0 <= tolerance < 1, got {tolerance}.")
    _check(matrix.isfinite(), matrix, f"{name}: expected finite numbers")
    even = (matrix - matrix.T).abs() <= rounding * matrix.abs().max()
    _check(even, matrix, f"{name}: expected a symmetric matrix")
    return (matrix + matrix.T) / 2, rounding


def _check(entries: Tensor, matrix: Tensor, expected: str) -> None:
    """Raise for the first of the entries of a matrix that do not hold."""
    if not bool(entries.all()):
        i, j = (~entries).nonzero()[0].tolist()
        mirrored = f" and {matrix[j, i].item():g} at [{j}, {i}]" if i != j else ""
        raise ValueError(f"{expected}, got {matrix[i, j].item():g} at [{i}, {j}]{mirrored}.")
