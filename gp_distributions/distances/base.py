"""The base class of distances, which represent each cloud by a vector and compare these vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from gp_distributions.distances import evaluation
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, rows_of
from gp_distributions.distances.recent_rows import RecentRows
from gp_distributions.measures.arrays import integer
from gp_distributions.numerics.pairwise import squared_euclidean
from gp_distributions.rows.clouds import drop_copies
from gp_distributions.rows.layout import Block


class Distance(torch.nn.Module, ABC):
    r"""Base class of Hilbertian distances between distributions.

    A subclass implements :meth:`represent`, which is called once for each cloud. If the distance is
    not the Euclidean distance between representations, the subclass also overrides
    :meth:`compare_all`, :meth:`compare_paired` and :attr:`euclidean`. The subclass stores constructor
    arguments as attributes of the same name, and tensors as parameters or buffers.

    Distances between fixed clouds are computed once: models hold the representations of their rows, and
    the distance remembers the sets of rows that it last compared with themselves.

    Args:
        dim: Dimension ``d`` of the atoms.
        inputs: What the rows hold: ``"clouds"``; ``"gaussians"``, each a mean and a row-major
            covariance; or ``"mixtures"`` of Gaussians, each component a mean, a row-major covariance
            and a weight.

    Attributes:
        supported_inputs: Accepted values of ``inputs``.
        reads_coordinates: Whether distances depend on the coordinates of atoms as numbers. If not, atoms
            are labels or indices, and may have any scale.
        ard_num_dims: Number of lengthscales of a kernel; ``None`` for one for all features.
        rotating: Sizes of the leading groups of coordinates that rotate together, with one scale each.
        trims_padding: Whether :meth:`represent` does not depend on padding. If so, it gets clouds of
            similar size together, without padding, which is faster.
        chunk_elements: Largest number of floats in the intermediate results for a chunk of clouds,
            which is chosen so that a chunk fits into the processor's cache.
        block_rows: Number of rows that are compared at a time if a set of rows is large.

    Raises:
        ValueError: If ``dim`` is not an integer >= 1, or if the distance does not accept ``inputs``.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.distances import Distance
        >>> class Means(Distance):
        ...     def represent(self, points, weights):
        ...         return (weights.unsqueeze(-2) @ points).squeeze(-2)
        >>> clouds = PointClouds.from_list([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 3.0]]])
        >>> Means(2).squared(clouds.pack())
        tensor([[0., 9.],
                [9., 0.]], dtype=torch.float64)
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds",)
    reads_coordinates: bool = True
    ard_num_dims: int | None = None
    rotating: tuple[int, ...] = ()
    trims_padding: bool = False
    chunk_elements: int = 2**18
    block_rows: int = 2048
    # Buffers that are set from data, so that saved ones may have another shape.
    _resized: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dim: int, *, inputs: str = "clouds") -> None:
        super().__init__()
        if inputs not in self.supported_inputs:
            supported = " or ".join(f'"{name}"' for name in self.supported_inputs)
            raise ValueError(
                f"Expected inputs={supported} for {type(self).__name__}, got {inputs!r}."
            )
        self.dim = integer(dim, "dim")
        self.inputs = inputs
        self.recent = RecentRows()

    @abstractmethod
    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent each cloud by one vector.

        Args:
            points: A ``C x n x atom_dim`` tensor of atoms. A Gaussian is a single atom.
            weights: A ``C x n`` tensor of weights that sum to one in each cloud.

        Returns:
            A ``C x D`` tensor.
        """

    def adapt(self, rows: Tensor) -> None:
        """Choose the settings that depend on the data. The base class has no such settings.

        Args:
            rows: A ``batch_shape x N x width`` tensor: the first rows that the distance sees. In a
                :class:`DistributionGP`, these are the training rows.
        """

    @property
    def block(self) -> Block:
        """The layout of the rows that the distance reads."""
        return Block(self.inputs, self.dim)

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance between representations."""
        return True

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations.

        Args:
            r1: A ``batch_shape x N x D`` tensor.
            r2: A ``batch_shape x M x D`` tensor, which may be ``r1`` itself.

        Returns:
            A ``batch_shape x N x M`` tensor.
        """
        return squared_euclidean(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations, ``batch_shape x N``."""
        return (r1 - r2).square().sum(-1)

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        return max(1, self.chunk_elements // (num_atoms * (self.block.atom_dim + 1)))

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent rows as ``batch_shape x N x D``, whose atoms are multiplied by ``factors`` first."""
        return evaluation.represent_rows(self, rows, factors)

    def represent_held(self, rows: EmbeddedRows) -> Tensor:
        """Represent rows, perhaps from what they hold; without gradients also without expanded axes."""
        every = rows.rows  # copies of a row have gradients of their own
        return self.represent_rows(every if every.requires_grad else drop_copies(every))

    def forward(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Return :meth:`squared` for rows, or for what holds them; the caller must not change it."""
        return evaluation.squared(self, x1, x1 if x2 is None else x2, diag=diag)

    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        """Compute squared Hilbert distances between clouds.

        Args:
            x1: A ``batch_shape x N x m*(d+1)`` tensor of rows.
            x2: A ``batch_shape x M x m'*(d+1)`` tensor of rows. Default: ``x1``.
            diag: Whether to compute only the distances of corresponding clouds, with ``M = N``.

        Returns:
            A ``batch_shape x N x M`` tensor, or ``batch_shape x N`` with ``diag``. Values are
            non-negative. Within one set, they are exactly zero between a cloud and itself.

        Raises:
            ValueError: If the width of the rows does not match ``dim``, a weight is negative or not
                finite, or all weights of a row are zero.
        """
        found = self.forward(x1, x2, diag=diag)
        return found if found.requires_grad else found.clone()

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """A function that computes features whose Euclidean distances are the distances between clouds.

        The function maps a ``batch_shape x N x m*(d+1)`` tensor of rows to a ``batch_shape x N x D``
        tensor of features. If the distance is not :attr:`euclidean`, then
        ``hasattr(distance, "embed")`` is ``False``.
        """
        if not self.euclidean:
            raise AttributeError(f"{self!r} has no finite number of features: use squared().")
        return self._embed

    def _embed(self, rows: Tensor) -> Tensor:
        return evaluation.embedding(self, rows)

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute squared distances to the origin of inner products, which is a point mass at zero.

        Args:
            rows: A ``batch_shape x N x m*(d+1)`` tensor.

        Returns:
            A ``batch_shape x N`` tensor.
        """
        zero = torch.zeros_like(rows_of(rows).detach().reshape(-1, rows_of(rows).shape[-1])[:1])
        points, weights = self.block.split(zero)
        zero = self.block.join(points, torch.ones_like(weights))
        return self.forward(rows, zero).squeeze(-1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self._resized:
            if (saved := state_dict.get(prefix + name)) is not None:
                setattr(self, name, getattr(self, name).new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def clear_cache(self) -> None:
        """Forget all clouds that the distance remembers."""
        self.recent.clear()
