"""Distances between weights on a shared support, compared bin by bin."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.measures.arrays import Data, given_points
from gp_distributions.numerics.linear_algebra import square_root
from gp_distributions.numerics.pairwise import chi_squared, manhattan, pairs_in_strips
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


class Hellinger(SharedSupportDistance):
    r"""The Hellinger distance between weights on a shared support.

    .. math::
        d^2(P, P') = \frac{1}{2} \sum_s \left(\sqrt{w_s} - \sqrt{w'_s}\right)^2
        = 1 - \sum_s \sqrt{w_s w'_s},

    which is one minus the Bhattacharyya coefficient, and lies between 0 and 1. The coordinates of the
    atoms are labels: the distance between two atoms does not matter, and gradients with respect to
    coordinates are zero. The gradient with respect to a weight of zero would be infinite, and is set to
    zero. The origin of inner products is the zero measure, at squared distance 1/2 from every
    distribution, so that the ``"linear"`` profile is half the Bhattacharyya coefficient.

    Args:
        dim: Dimension ``d`` of the atoms.
        support: The ``S x d`` possible locations of atoms, as a tensor or array. They are sorted, and
            duplicates are removed. Default: the atoms of positive weight in the first clouds, which
            are the training clouds of a :class:`DistributionGP`; or all atoms, if every cloud has the
            same atoms, as is the case for images.

    Raises:
        ValueError: If ``support`` has the wrong shape or is not finite; on evaluation, if an atom of
            positive weight is not in the support, or if the support is taken from clouds and one of
            them shares no atom with any other.

    Example:
        >>> import torch
        >>> from gp_distributions import Hellinger, PointClouds
        >>> pixels = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
        >>> clouds = PointClouds(pixels.expand(2, 3, 1), weights)
        >>> Hellinger(1, support=pixels).squared(clouds.pack())
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]], dtype=torch.float64)

    Source: Hein and Bousquet 2005.
    """

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        r"""Return :math:`\sqrt{w / 2}` for the weights :math:`w` on the support."""
        return square_root(super().represent(points, weights))


class TotalVariation(SharedSupportDistance):
    r"""The square root of the total variation between weights on a shared support.

    The *squared* Hilbert distance is the total variation itself,

    .. math::
        d^2(P, P') = TV(P, P') = \frac{1}{2} \sum_s |w_s - w'_s| = 1 - \sum_s \min(w_s, w'_s),

    between 0 and 1. The coordinates of the atoms are labels: the distance between two atoms does not
    matter, and gradients with respect to coordinates are zero. Where two weights are equal,
    their gradient is zero. The origin of inner products is the zero measure, at squared distance 1/2
    from every distribution, so that the ``"linear"`` profile is half the intersection kernel,
    :math:`\sum_s \min(w_s, w'_s) / 2`.

    Args:
        dim: Dimension ``d`` of the atoms.
        support: The ``S x d`` possible locations of atoms, as a tensor or array. They are sorted, and
            duplicates are removed. Default: the atoms of positive weight in the first clouds, which
            are the training clouds of a :class:`DistributionGP`; or all atoms, if every cloud has the
            same atoms, as is the case for images.

    Raises:
        ValueError: If ``support`` has the wrong shape or is not finite; on evaluation, if an atom of
            positive weight is not in the support, or if the support is taken from clouds and one of
            them shares no atom with any other.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, TotalVariation
        >>> pixels = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
        >>> clouds = PointClouds(pixels.expand(2, 3, 1), weights)
        >>> TotalVariation(1, support=pixels).squared(clouds.pack())
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]], dtype=torch.float64)

    Source: Hein and Bousquet 2005.
    """

    euclidean = False

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the total variation between all pairs of representations."""
        return manhattan(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the total variation between corresponding representations."""
        return (r1 - r2).abs().sum(-1)


class ChiSquared(SharedSupportDistance):
    r"""The chi-squared distance between weights on a shared support.

    The *squared* Hilbert distance is half the symmetric chi-squared statistic, which is also called
    triangular discrimination,

    .. math::
        d^2(P, P') = \frac{1}{2} \sum_s \frac{(w_s - w'_s)^2}{w_s + w'_s}
        = 1 - 2 \sum_s \frac{w_s w'_s}{w_s + w'_s},

    between 0 and 1, where bins that are empty in both distributions contribute zero. It is Hilbertian,
    since :math:`w w' / (w + w') = \int_0^\infty w e^{-t w} \, w' e^{-t w'} \, dt` is positive definite.
    Pearson's statistic, which divides by :math:`w'_s` alone, is not symmetric and is not offered. With
    the ``"gaussian"`` profile, the kernel is that of :func:`sklearn.metrics.pairwise.chi2_kernel` for
    :math:`\gamma = 1 / (4 \ell^2)`.

    The distance lies between that of Hellinger :math:`H` and the total variation,
    :math:`H^2 \le d^2 \le \min(2 H^2, TV)`. The coordinates of the atoms are labels: the distance
    between two atoms does not matter, and gradients with respect to coordinates are zero. Gradients with
    respect to weights are finite, also for a bin that is empty in one distribution; for a bin that is
    empty in both, the gradient is set to zero. The origin of inner products is the zero measure, at
    squared distance 1/2 from every distribution, so that the ``"linear"`` profile is
    :math:`\sum_s w_s w'_s / (w_s + w'_s)`.

    Args:
        dim: Dimension ``d`` of the atoms.
        support: The ``S x d`` possible locations of atoms, as a tensor or array. They are sorted, and
            duplicates are removed. Default: the atoms of positive weight in the first clouds, which
            are the training clouds of a :class:`DistributionGP`; or all atoms, if every cloud has the
            same atoms, as is the case for images.

    Raises:
        ValueError: If ``support`` has the wrong shape or is not finite; on evaluation, if an atom of
            positive weight is not in the support, or if the support is taken from clouds and one of
            them shares no atom with any other.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.distances import ChiSquared
        >>> pixels = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
        >>> clouds = PointClouds(pixels.expand(2, 3, 1), weights)
        >>> ChiSquared(1, support=pixels).squared(clouds.pack())
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]], dtype=torch.float64)

    Source: Hein and Bousquet 2005; Vedaldi and Zisserman 2012 (the kernel of the inner products).
    """

    euclidean = False

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations."""
        return pairs_in_strips(chi_squared, r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations."""
        return chi_squared(r1, r2)
