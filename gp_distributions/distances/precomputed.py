"""Numbered objects of any kind: a matrix of distances between them, and a kernel between atoms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.measures.arrays import Data, real_array, to_tensor, to_tensors
from gp_distributions.numerics.embedding_kernels import PointKernel
from gp_distributions.numerics.pairwise import zero_diagonal
from gp_distributions.warnings import NotHilbertianWarning, warn


class PrecomputedDistance(Distance):
    r"""Squared Hilbert distances from a matrix, for rows that are indices into it.

    Use this class for objects of any kind whose pairwise distances are known: ``squared[i, j]`` is the
    squared distance between the objects ``i`` and ``j``. The rows of a model are the indices of
    objects: a ``batch_shape x N x 1`` tensor of integers from 0 to ``T - 1``, stored as floats. Rows
    have no gradient.

    Kernels are positive semi-definite at every lengthscale if and only if the distance is Hilbertian,
    that is, if the centred Gram matrix :math:`-\tfrac12 J D J` with :math:`J = I - 1 1^\top / T` has no
    negative eigenvalue. The constructor checks this condition.

    Args:
        squared: The ``T x T`` matrix :math:`D` of squared distances, a tensor or array.
        norms: The ``T`` squared distances to the origin of inner products, which the ``"linear"`` and
            ``"polynomial"`` profiles use. Default: the squared distances to the mean of the objects.
        tolerance: Tolerance for rounding errors. It applies to the entries of the matrix, relative to
            the largest one, whose errors are corrected, and to :attr:`negative_part`. Default: the
            square root of the machine precision, 1.5e-8 in double precision.

    Raises:
        ValueError: If the matrix is not square, finite, symmetric and non-negative with a zero
            diagonal, or ``norms`` has the wrong shape; on evaluation, if a row is not the index of an
            object.

    Warns:
        NotHilbertianWarning: If the distance is not Hilbertian.

    Example:
        >>> import torch
        >>> from gp_distributions import PrecomputedDistance
        >>> distance = PrecomputedDistance([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])
        >>> distance.squared(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [2.0]]))
        tensor([[1., 4.],
                [1., 0.]])

    Source: Schoenberg 1935, theorem 1.
    """

    supported_inputs = ("indices",)
    reads_coordinates = False
    euclidean = False
    _resized = ("matrix", "norms")

    def __init__(
        self, squared: Data, *, norms: Data | None = None, tolerance: float | None = None
    ) -> None:
        super().__init__(1, inputs="indices")
        matrix, rounding = symmetric_matrix(squared, "squared", tolerance)
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
        eigenvalues = self._eigenvalues()
        negative = _negative_part(eigenvalues)
        # Why fits of kernels may fail, or nothing.
        self.finding = ""
        if negative > rounding:
            zero = len(matrix) * torch.finfo(matrix.dtype).eps * eigenvalues.abs().max()
            self.finding = (
                f"The distance is not Hilbertian: {int((eigenvalues < -zero).sum())} of the "
                f"{len(matrix)} eigenvalues of its Gram matrix are negative, a fraction {negative:.2g} "
                f"of the sum of absolute values (the smallest is {eigenvalues[0].item():.3g}, the "
                f"largest {eigenvalues[-1].item():.3g}). Its kernels may not be positive "
                "semi-definite, so that factorisations fail or variances are wrong. Check that the "
                "distances are squared; or use a Hilbertian distance; or use squared ** beta, which is "
                "Hilbertian for small enough beta > 0."
            )
            warn(self.finding, NotHilbertianWarning)

    @classmethod
    def from_gram(cls, gram: Data, *, tolerance: float | None = None) -> PrecomputedDistance:
        r"""Create the distance that a Gram matrix :math:`G` of inner products induces.

        Squared distances are :math:`G_{ii} + G_{jj} - 2 G_{ij}`, and squared norms are :math:`G_{ii}`.
        The kernel with the ``"linear"`` profile and a lengthscale of 1 is the Gram matrix.

        Args:
            gram: A symmetric, positive semi-definite ``T x T`` tensor or array.
            tolerance: Tolerance for rounding errors, as in the constructor.

        Returns:
            The distance.

        Raises:
            ValueError: If the matrix is not square, finite and symmetric, or
                :math:`2 G_{ij} > G_{ii} + G_{jj}` for some entry.

        Warns:
            NotHilbertianWarning: If the matrix is not positive semi-definite.

        Example:
            >>> import torch
            >>> from gp_distributions import PrecomputedDistance
            >>> distance = PrecomputedDistance.from_gram([[2.0, 1.0], [1.0, 5.0]])
            >>> rows = torch.tensor([[0.0], [1.0]])
            >>> distance.squared(rows)
            tensor([[0., 5.],
                    [5., 0.]])
            >>> distance.squared_norms(rows)
            tensor([2., 5.])
        """
        matrix, rounding = symmetric_matrix(gram, "gram", tolerance)
        norms = matrix.diagonal()
        squared = norms.unsqueeze(-1) + norms - 2 * matrix
        possible = squared >= -rounding * matrix.abs().max()
        _check(possible, matrix, "gram: expected 2 G[i, j] <= G[i, i] + G[j, j]")
        return cls(squared.clamp_min(0), norms=norms, tolerance=rounding)

    @property
    def negative_part(self) -> float:
        """Degree to which the distance fails to be Hilbertian, from 0 (Hilbertian) to 1.

        This is the sum of the absolute values of the negative eigenvalues of the Gram matrix about the
        origin, divided by the sum of the absolute values of all its eigenvalues.
        """
        return _negative_part(self._eigenvalues())

    @property
    def smallest_eigenvalue(self) -> float:
        """Smallest eigenvalue of the Gram matrix about the origin, in units of squared distance."""
        return self._eigenvalues()[0].item()

    def _eigenvalues(self) -> Tensor:
        gram = (self.norms.unsqueeze(-1) + self.norms - self.matrix) / 2
        return torch.linalg.eigvalsh(gram)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return the indices of the objects, ``C x 1``."""
        return points.squeeze(-2)

    def forward(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Look up squared distances, with shapes as in :meth:`Distance.squared`."""
        rows = rows_of(x1)
        first = self._indices(rows)
        second = first if x2 is None or x2 is x1 else self._indices(rows_of(x2))
        if diag:
            return self.matrix[first, second].to(rows.dtype)
        return self.matrix[first.unsqueeze(-1), second.unsqueeze(-2)].to(rows.dtype)

    def squared_norms(self, rows: Rows) -> Tensor:
        """Look up the squared norms of the objects, ``batch_shape x N``."""
        return self.norms[self._indices(rows_of(rows))].to(rows_of(rows).dtype)

    def _indices(self, rows: Tensor) -> Tensor:
        """Check rows, and return the indices of their objects, ``batch_shape x N``."""
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
                f"Expected indices of objects, integers from 0 to {size - 1}, but row "
                f"{row[0] if len(row) == 1 else row} is {index[row].item():g}."
            )
        return index.long()

    def extra_repr(self) -> str:
        """Return the number of objects, for printing."""
        return f"{len(self.matrix)} objects"


def _negative_part(eigenvalues: Tensor) -> float:
    total = eigenvalues.abs().sum().item()
    return -eigenvalues.clamp_max(0).sum().item() / total if total else 0.0


def symmetric_matrix(
    value: Data, name: str, tolerance: float | None = None
) -> tuple[Tensor, float]:
    """Check a matrix, and return it made exactly symmetric, with the tolerance for rounding errors."""
    array = real_array(value, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or 0 in array.shape:
        raise ValueError(f"{name}: expected a T x T matrix, got shape {tuple(array.shape)}.")
    matrix = to_tensors([array])[0].detach()
    rounding = torch.finfo(matrix.dtype).eps ** 0.5 if tolerance is None else float(tolerance)
    if not 0 <= rounding < 1:
        raise ValueError(f"Expected 0 <= tolerance < 1, got {tolerance}.")
    _check(matrix.isfinite(), matrix, f"{name}: expected finite numbers")
    even = (matrix - matrix.T).abs() <= rounding * matrix.abs().max()
    _check(even, matrix, f"{name}: expected a symmetric matrix")
    return (matrix + matrix.T) / 2, rounding


def _check(valid: Tensor, matrix: Tensor, expected: str) -> None:
    """Raise an error that names the first entry of a matrix that is not as expected."""
    if not bool(valid.all()):
        i, j = (~valid).nonzero()[0].tolist()
        mirrored = f" and {matrix[j, i].item():g} at [{j}, {i}]" if i != j else ""
        raise ValueError(f"{expected}, got {matrix[i, j].item():g} at [{i}, {j}]{mirrored}.")


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
