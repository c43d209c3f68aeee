"""Base class of distances between weights on a shared support, which looks up atoms in the support."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.measures.arrays import Data, given_points
from gp_distributions.rows.clouds import drop_copies, same_tensor

_ADVICE = (
    "Bin the data to a common grid, pass the whole support as support=, or use SlicedWasserstein or "
    "MMD, which do not need a shared support."
)


class SharedSupportDistance(Distance):
    """Base class of distances between weights on the same points, such as the pixels of images.

    The coordinates of atoms are labels: they must equal those of the support exactly, and their gradient
    is zero. The origin of inner products is the zero measure, at squared distance 1/2 from every
    distribution.
    """

    reads_coordinates = False
    _resized = ("support",)

    def __init__(self, dim: int, *, support: Data | None = None) -> None:
        super().__init__(dim)
        atoms = torch.empty(0, self.dim, dtype=torch.float64)  # empty until it is learned
        if support is not None:
            atoms, _ = distinct(given_points(support, "support", ("S", self.dim)))
        self.support: Tensor
        self.register_buffer("support", atoms)

    def adapt(self, rows: Tensor) -> None:
        """Take the support from these rows, unless it is already known."""
        if not len(self.support) and rows.numel():
            self.support = self._learn([rows])

    def forward(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Learn the support from both sets if it is not known yet, and compute squared distances."""
        if not (len(self.support) or x2 is None):
            first, second = rows_of(x1), rows_of(x2)
            if 0 not in (first.numel(), second.numel()):
                same = same_tensor(first, second)
                self.support = self._learn([first] if same else [first, second])
        return super().forward(x1, x2, diag=diag)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return half the weights that each cloud has on the atoms of the support, ``C x S``."""
        # If all clouds list the same atoms, as images do, one look-up is enough.
        listed_alike = len(points) > 0 and bool((points == points[:1]).all())
        index, found = self._find(points[:1] if listed_alike else points)
        if not bool((found | (weights == 0)).all()):
            raise _UnknownAtomError
        halves = weights.masked_fill(~found, 0) / 2
        none = weights.new_zeros(len(weights), len(self.support))
        if listed_alike:
            return none.index_add(1, index[0], halves)
        return none.scatter_add(1, index, halves)

    def _find(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return each atom's index in the support (zero if missing), and whether it is there."""
        # Coordinates of different precision are compared in the lower precision.
        dtype = min(points.dtype, self.support.dtype, key=lambda dtype: torch.finfo(dtype).bits)
        support, flat = self.support.to(points.device, dtype), points.detach().flatten(0, -2)
        atoms, place = distinct(torch.cat([support, flat.to(dtype)]))
        index = place.new_full((len(atoms),), -1)
        index[place[: len(support)]] = torch.arange(len(support), device=place.device)
        if int((index >= 0).sum()) < len(support):
            raise ValueError(
                f"Expected distinct atoms, but some of the {len(support)} atoms of the support coincide "
                f"in {dtype}. Use double precision, or cell numbers as coordinates."
            )
        index = index[place[len(support) :]].view(points.shape[:-1])
        return index.clamp_min(0), index >= 0

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows, or raise an error that names the first atom outside the support."""
        try:
            return super().represent_rows(rows, factors)
        except _UnknownAtomError:
            points, weights = self.block.split(rows.detach())
            missing = ~self._find(points)[1] & (weights > 0)
            *row, atom = missing.nonzero()[0].tolist()
            raise ValueError(
                f"{type(self).__name__} compares weights on a shared support, but row "
                f"{row[0] if len(row) == 1 else tuple(row)} has weight at its atom {atom}, "
                f"{points[(*row, atom)].tolist()}, which is not one of the {len(self.support)} atoms "
                f"of the support. {_ADVICE}"
            ) from None

    @torch.no_grad()
    def _learn(self, sets: list[Tensor]) -> Tensor:
        """Return the atoms of positive weight, or all atoms if all clouds list the same ones."""
        split = [self.block.split(drop_copies(rows)) for rows in sets]
        points = [p.flatten(0, -3) for p, _ in split]
        first = points[0][0]
        if all(p.shape[1:] == first.shape and bool((p == first).all()) for p in points):
            return distinct(first)[0]
        present = [(w > 0).flatten(0, -2) for _, w in split]
        sizes = torch.cat([p.sum(-1) for p in present])
        owners = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
        support, place = distinct(torch.cat([p[w] for p, w in zip(points, present, strict=True)]))
        holdings = (
            owners * len(support) + place
        ).unique()  # lists each pair of a cloud and an atom once
        common = (holdings % len(support)).bincount(minlength=len(support)) > 1
        met = torch.zeros_like(sizes).index_add(0, owners, common[place].to(sizes)) > 0
        alone = (sizes > 0) & ~met
        if bool(alone.any()):
            raise ValueError(
                f"{type(self).__name__} compares weights on a shared support, but {int(alone.sum())} of "
                f"the first {len(sizes)} clouds share no atom with any other (the first is cloud "
                f"{int(alone.nonzero()[0])}), as is typical of continuous data. {_ADVICE}"
            )
        return support

    def squared_norms(self, rows: Rows) -> Tensor:
        """Return the squared distances to the zero measure, 1/2: ``batch_shape x N``."""
        return rows_of(rows).new_full(rows_of(rows).shape[:-1], 0.5)

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        count = len(self.support)
        return f"dim={self.dim}, support: {f'{count} atoms' if count else 'not known yet'}"


class _UnknownAtomError(ValueError):
    """Raised if an atom of positive weight is not in the support."""


def distinct(points: Tensor) -> tuple[Tensor, Tensor]:
    """Find the distinct points of a set, in lexicographic order.

    The result is that of ``points.unique(dim=0, return_inverse=True)``. This function is many times
    faster, since it sorts one coordinate at a time.

    Args:
        points: An ``n x d`` tensor.

    Returns:
        A ``k x d`` tensor of the distinct points, and a tensor of ``n`` indices, which map each point
        to its row in that tensor.
    """
    place = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    for coordinate in points.unbind(-1):
        values, rank = coordinate.unique(return_inverse=True)
        codes, place = (place * len(values) + rank).unique(return_inverse=True)
    atoms = points.new_empty(len(codes), points.shape[-1])
    atoms[place] = points
    return atoms, place
