"""Kernels between atoms of any kind, for clouds whose atoms are numbers of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.precomputed import symmetric_matrix
from gp_distributions.numerics.embedding_kernels import PointKernel


class AtomKernel(PointKernel):
    """A kernel between the objects of a list, for points that are indices into this list.

    It keeps the matrix of the kernel. When the list has become longer, a function is called for each
    pair with a new object. Copies share the list and the matrix.

    Args:
        kernel: The symmetric, positive semi-definite kernel: its matrix, or a function of two objects,
            which is called once for each pair.
        atoms: The objects, to which others may be appended if the kernel is a function. Default: those
            of the matrix, which needs no list.

    Raises:
        TypeError: If ``kernel`` is neither a matrix nor a function, or a function has no list.
        ValueError: If the matrix is not square, finite, symmetric and positive semi-definite, or not of
            the size of the list.
    """

    def __init__(self, kernel: Any, atoms: Sequence[Any] | None) -> None:
        if isinstance(kernel, str) or (callable(kernel) and atoms is None):
            raise TypeError(
                f"Expected a matrix, or a function of two atoms with a list of atoms, got {kernel!r}."
            )
        self.function: Any = kernel if callable(kernel) else None
        self.atoms = atoms
        self.values = torch.empty(0, 0, dtype=torch.float64)
        if callable(kernel):
            self._extend()
            return
        matrix, _ = symmetric_matrix(kernel, "kernel")
        if atoms is not None and len(atoms) != len(matrix):
            raise ValueError(f"Expected {len(matrix)} atoms for this matrix, got {len(atoms)}.")
        self.values = _checked(matrix.double().cpu())

    def _extend(self) -> None:
        """Evaluate the function for all pairs with objects that are new in the list."""
        atoms, known = self.atoms or (), len(self.values)
        values = self.values.new_zeros(len(atoms), len(atoms))
        values[:known, :known] = self.values
        for i in range(known, len(atoms)):
            for j in range(i + 1):
                values[i, j] = values[j, i] = float(self.function(atoms[i], atoms[j]))
        self.values = _checked(values)

    def indices(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return points with indices of objects in place of those of padding.

        Args:
            points: A ``... x n x 1`` tensor.
            weights: A ``... x n`` tensor.

        Raises:
            ValueError: If a point of positive weight is not the index of an object.
        """
        used = (weights > 0).unsqueeze(-1)
        if self.function is not None and len(self.atoms or ()) > len(self.values):
            self._extend()
        last = len(self.values) - 1
        nearest = points.detach().round().clamp(0, last)
        wrong = used & (points != nearest)
        if bool(wrong.any()):
            raise ValueError(
                f"Expected indices of atoms, integers from 0 to {last}, got "
                f"{points[wrong][0].item():g}."
            )
        return torch.where(used, points, nearest)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Look the kernel up at all pairs of indices, with gradients of zero."""
        values = self.values.to(x)
        first, second = (points.detach().squeeze(-1).long() for points in (x, y))
        return values[first.unsqueeze(-1), second.unsqueeze(-2)] + 0 * (x + y.mT)

    def __deepcopy__(self, memo: dict[int, Any]) -> AtomKernel:
        """Return the kernel itself, so that copies know the objects that are appended to the list."""
        return self

    def __repr__(self) -> str:
        """Return the name of the function, or the size of the matrix."""
        if self.function is None:
            return f"{len(self.values)} x {len(self.values)} matrix"
        return super().__repr__()


def _checked(matrix: Tensor) -> Tensor:
    """Return a symmetric kernel matrix if it is finite and positive semi-definite."""
    if not len(matrix):
        return matrix
    if not bool(matrix.isfinite().all()):
        raise ValueError("Expected a finite kernel between atoms.")
    rounding = torch.finfo(matrix.dtype).eps ** 0.5 * matrix.abs().max()
    smallest = torch.linalg.eigvalsh(matrix).min()
    if smallest < -len(matrix) * rounding:
        raise ValueError(
            "Expected a positive semi-definite kernel between atoms, but the smallest eigenvalue of its "
            f"{len(matrix)} x {len(matrix)} matrix is {smallest.item():.3g}. Its clouds would have "
            "negative squared distances."
        )
    return matrix
