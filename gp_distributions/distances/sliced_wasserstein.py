"""Sliced Wasserstein distances of orders one and two."""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.measures.arrays import integer
from gp_distributions.numerics.directions import random_directions, random_levels, sphere_directions
from gp_distributions.numerics.linear_algebra import concatenate, matmul
from gp_distributions.numerics.pairwise import manhattan, pairs_in_strips, without_rounding
from gp_distributions.numerics.quantiles import (
    MEAN_ABSOLUTE,
    cell_quantiles,
    equally_weighted,
    normal_wasserstein,
    projected_deviations,
    quantiles_at,
)
from gp_distributions.rows.clouds import drop_padding
from gp_distributions.rows.layout import split_gaussians
from gp_distributions.rows.tensors import is_tracked

_SAMPLINGS = {"even": sphere_directions, "random": random_directions}
_ONLY_ONE_SIZE = (
    "num_quantiles=None needs clouds of one size with equal weights, but these clouds differ in size "
    "or have unequal weights. Set a number of quantiles, for example num_quantiles=100."
)


class SlicedWasserstein(Distance):
    r"""Sliced Wasserstein distance of order one or two, as a Hilbert distance.

    With :math:`Q_\theta` the quantile function of a cloud projected onto the direction
    :math:`\theta` on the unit sphere,

    .. math::
        SW_p^p(P, P') = \int_{S^{d-1}} \int_0^1 |Q_\theta(t) - Q'_\theta(t)|^p \, dt \, d\theta.

    :math:`SW_2` is a Hilbert distance, and so is :math:`SW_1^{1/2}`: the *squared* Hilbert distance
    is :math:`SW_2^2` for ``p = 2`` and :math:`SW_1` itself for ``p = 1``. Both remain Hilbert
    distances when the integral is approximated by a finite number of directions and the quantile
    functions by averages over cells; averaging never increases the distance.

    For ``p = 2``, the contribution of the means is computed exactly, as :math:`|m - m'|^2 / d`, and
    only the centred clouds are sliced. The directions are spread evenly over the projective sphere,
    fixed at construction and saved with the state.

    With ``sampling="random"``, directions and levels are independent uniform draws instead, the ``N``
    levels :math:`t_{lk}` anew for each direction, and the means are sliced like the rest:

    .. math::
        SW_p^p(P, P') \approx \frac{1}{L N} \sum_{l=1}^{L} \sum_{k=1}^{N}
        |Q_{\theta_l}(t_{lk}) - Q'_{\theta_l}(t_{lk})|^p,

    as in algorithm 1 of Meunier et al. 2022. The error is then of order :math:`L^{-1/2}`, many times
    larger, and gradients with respect to weights are zero, as quantiles are atoms. The draws are
    fixed at construction and saved, too.

    For Gaussians no quantile functions are needed: the projection of :math:`N(m, S)` is normal with
    mean :math:`a = \theta^\top m` and variance :math:`s^2 = \theta^\top S \theta`. Each direction
    contributes :math:`(s - s')^2` for ``p = 2``, in addition to the exact contribution of the means,
    and :math:`\mathbb{E} |a - a' + (s - s') Z|` with a standard normal :math:`Z` for ``p = 1``.

    In double precision, squared distances between clouds of spread ``s`` at a distance ``R`` from the
    origin are accurate to about ``1e-15 R / s`` times the largest one, since means are rounded like
    coordinates. :meth:`PointClouds.normalize` moves clouds to the origin.

    Args:
        dim: Dimension ``d`` of the atoms.
        inputs: What the rows hold: ``"clouds"`` or ``"gaussians"``.
        p: Order of the distance, 1 or 2.
        num_slices: Number ``L`` of directions. In one dimension there is only one.
        num_quantiles: Number ``N`` of equal cells over which quantile functions are averaged. The
            average is exact for equally weighted clouds whose size divides ``N``. If ``None``, there is
            no averaging, and all clouds must have the same size and equal weights. Not used for
            Gaussians. With random sampling, the number of levels of each direction; if ``None``,
            levels are not drawn.
        center: Whether to centre distributions at their means first, which makes the distance invariant
            to translations.
        sampling: How to choose directions and levels: ``"even"`` or ``"random"``.
        seed: Random seed for the directions, if they are random or in three and more dimensions, and
            for random levels.

    Raises:
        ValueError: If ``p`` is not 1 or 2, ``sampling`` is unknown, a number is less than one, or the
            inputs are not supported; on evaluation, if ``num_quantiles=None`` and sizes differ or
            weights are not equal, or if a covariance is not positive semi-definite.

    Example:
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> clouds = PointClouds.from_list([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 3.0], [3.0, 3.0]]])
        >>> SlicedWasserstein(2).squared(clouds.pack()).round(decimals=6)  # shifted by (1, 3)
        tensor([[0., 5.],
                [5., 0.]], dtype=torch.float64)
        >>> SlicedWasserstein(2, num_slices=10, num_quantiles=20).embed(clouds.pack()).shape
        torch.Size([2, 202])

    Sources: Kolouri, Zou and Rohde 2016, eq. 7 (definition), 13 (embedding) and 15 (pairs), theorem 5,
    for densities; Meunier, Pontil and Ciliberto 2022, eq. 13 and 14, propositions 5, 6 and 17, for bags,
    and algorithm 1 (random directions and levels); Carriere, Cuturi and Oudot 2017 (order one).
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds", "gaussians")
    trims_padding = True

    def __init__(
        self,
        dim: int,
        *,
        inputs: str = "clouds",
        p: int = 2,
        num_slices: int = 100,
        num_quantiles: int | None = 100,
        center: bool = False,
        sampling: str = "even",
        seed: int = 0,
    ) -> None:
        super().__init__(dim, inputs=inputs)
        if p not in (1, 2):
            raise ValueError(f"Expected p = 1 or p = 2, the Hilbertian orders, got p={p!r}.")
        if sampling not in _SAMPLINGS:
            names = ", ".join(_SAMPLINGS)
            raise ValueError(f"There is no sampling {sampling!r}; choose from {names}.")
        self.p = p
        self.num_quantiles = (
            None if num_quantiles is None else integer(num_quantiles, "num_quantiles")
        )
        self.center = center
        self.sampling = sampling
        self.directions: Tensor
        count = integer(num_slices, "num_slices")
        self.register_buffer("directions", _SAMPLINGS[sampling](self.dim, count, seed=seed))
        levels = None
        if sampling == "random" and inputs == "clouds" and self.num_quantiles is not None:
            levels = random_levels(self.num_slices, self.num_quantiles, seed=seed)
        self.levels: Tensor | None
        self.register_buffer("levels", levels)

    @property
    def num_slices(self) -> int:
        """Number ``L`` of directions."""
        return len(self.directions)

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance between representations: true for ``p = 2``."""
        return self.p == 2

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return the scaled quantiles of all slices, and the scaled mean if it is not sliced.

        For Gaussians, return the scaled standard deviations of all slices instead. The scaled mean
        follows them, or the scaled means of all slices precede them if means are sliced, as they are for
        ``p = 1`` and random directions. If ``center`` is set, means are left out.
        """
        if self.inputs == "gaussians":
            return self._represent_gaussians(points.squeeze(-2))
        if self.num_quantiles is None:
            points, weights = drop_padding(points, weights)
        mean = (weights.unsqueeze(-2) @ points).squeeze(-2)
        # Scaled directions give scaled quantiles, so that a sum over scaled quantiles is an average.
        count = self.num_slices * (self.num_quantiles or points.shape[-2])
        directions = self.directions.to(points) * count ** (-1 / self.p)
        quantiles = self._quantiles(directions, points - mean.unsqueeze(-2), weights)
        if self.slices_means and not self.center:
            quantiles = quantiles + (mean @ directions.T).unsqueeze(-1)
        if self.slices_means or self.center:
            return quantiles.flatten(-2)
        return concatenate(quantiles.flatten(-2), mean / math.sqrt(self.dim))

    def _represent_gaussians(self, rows: Tensor) -> Tensor:
        mean, covariance = split_gaussians(rows, self.dim)
        directions = self.directions.to(rows)
        scale = self.num_slices ** (-1 / self.p)
        deviations = scale * projected_deviations(covariance, directions)
        if self.center:
            # Between centred normal distributions, the distance of order one is E|Z| |s - s'|.
            return deviations if self.p == 2 else MEAN_ABSOLUTE * deviations
        if not self.slices_means:
            return concatenate(deviations, mean / math.sqrt(self.dim))
        return concatenate(scale * (mean @ directions.T), deviations)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared Hilbert distances between all pairs of representations."""
        self._check_sizes(r1, r2)
        if self.p == 2:
            return super().compare_all(r1, r2)
        normal = partial(pairs_in_strips, normal_wasserstein)
        compare = normal if self._compares_normals else manhattan
        return without_rounding(compare(r1, r2), r1.unsqueeze(-2), r2.unsqueeze(-3))

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared Hilbert distances between corresponding representations."""
        self._check_sizes(r1, r2)
        if self.p == 2:
            return super().compare_paired(r1, r2)
        squared = normal_wasserstein(r1, r2) if self._compares_normals else (r1 - r2).abs().sum(-1)
        return without_rounding(squared, r1, r2)

    def along(self, coordinate: int) -> Tensor:
        """Return the one direction that has the distance where only one coordinate is not zero."""
        size = self.directions[:, coordinate].abs().pow(self.p).mean() ** (1 / self.p)
        return size * torch.eye(self.dim).to(size)[coordinate].unsqueeze(0)

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        per_cloud = self.num_slices * max(num_atoms, self.num_quantiles or 1)
        if self.inputs == "gaussians":
            per_cloud = max(self.num_slices, self.block.atom_dim)
        return max(1, self.chunk_elements // per_cloud)

    @property
    def slices_means(self) -> bool:
        """Whether means are sliced with the rest, instead of compared exactly."""
        return self.p == 1 or self.sampling == "random"

    @property
    def _compares_normals(self) -> bool:
        return self.inputs == "gaussians" and self.p == 1 and not self.center

    def _quantiles(self, directions: Tensor, points: Tensor, weights: Tensor) -> Tensor:
        """Compute cell averages or random values of the quantile functions, ``C x L x N``."""
        if self.num_quantiles is None and not equally_weighted(weights):
            raise ValueError(_ONLY_ONE_SIZE)
        num_quantiles = self.num_quantiles or points.shape[-2]
        levels = None if self.levels is None else self.levels[:, :num_quantiles].to(points)

        def sliced(few: slice) -> Tensor:
            projected = matmul(directions[few], points.transpose(-1, -2))
            if levels is not None:
                return quantiles_at(projected, weights, levels[few])
            return cell_quantiles(projected, weights, num_quantiles)

        # A large cloud is sliced in a few directions at a time, to bound memory.
        count = max(1, self.chunk_elements // max(1, weights.numel()))
        if is_tracked(points, weights) or count >= len(directions):
            return sliced(slice(None))
        starts = range(0, len(directions), count)
        return torch.cat([sliced(slice(start, start + count)) for start in starts], dim=-2)

    def _check_sizes(self, r1: Tensor, r2: Tensor) -> None:
        if self.num_quantiles is None and r1.shape[-1] != r2.shape[-1]:
            raise ValueError(_ONLY_ONE_SIZE)

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        shown = f"dim={self.dim}, p={self.p}, num_slices={self.num_slices}"
        if self.sampling != "even":
            shown += f", sampling={self.sampling}"
        if self.inputs == "gaussians":
            return f"{shown}, center={self.center}, inputs={self.inputs}"
        return f"{shown}, num_quantiles={self.num_quantiles}, center={self.center}"
