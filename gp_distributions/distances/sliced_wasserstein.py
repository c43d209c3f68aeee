"""The sliced Wasserstein distance of order one and two."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.numerics.directions import sphere_directions
from gp_distributions.numerics.normals import (
    MEAN_ABSOLUTE,
    normal_wasserstein,
    normal_wasserstein_all,
    projected_deviations,
)
from gp_distributions.numerics.pairwise import manhattan, without_rounding
from gp_distributions.numerics.quantiles import uniform_cell_quantiles, weighted_cell_quantiles
from gp_distributions.numerics.single_thread import concatenate, matmul
from gp_distributions.rows.clouds import drop_padding
from gp_distributions.rows.gaussians import split_gaussians

_ONLY_ONE_SIZE = (
    "num_quantiles=None is exact for clouds of one size with equal weights, but these clouds differ "
    "in size or have weights. Give a number of quantiles, for example num_quantiles=100."
)


class SlicedWasserstein(Distance):
    r"""Sliced Wasserstein distance, as a Hilbert distance.

    With :math:`Q_\theta` the quantile function of a cloud projected on the direction
    :math:`\theta` of the unit sphere,

    .. math::
        SW_p^p(P, P') = \int_{S^{d-1}} \int_0^1 |Q_\theta(t) - Q'_\theta(t)|^p \, dt \, d\theta.

    :math:`SW_2` is a Hilbert distance, and so is :math:`SW_1^{1/2}`: the *squared* Hilbert distance
    is :math:`SW_2^2` for ``p = 2`` and :math:`SW_1` itself for ``p = 1``. Both stay so when the
    sphere is sampled and the quantile functions are averaged over cells; averaging never
    overestimates.

    For ``p = 2`` the means are taken exactly, :math:`|m - m'|^2 / d`, and only the centred clouds
    are sliced. The directions are spread evenly over the projective sphere, fixed at construction
    and saved with the state.

    Gaussians need no quantile functions: a slice of :math:`N(m, S)` is the normal distribution of mean
    :math:`a = \theta^\top m` and variance :math:`s^2 = \theta^\top S \theta`. Between two such, each
    slice contributes :math:`(s - s')^2` for ``p = 2``, next to the exact term of the means, and
    :math:`\mathbb{E} |a - a' + (s - s') Z|` with a standard normal :math:`Z` for ``p = 1``.

    Means are rounded like the coordinates: of clouds of spread ``s`` at a distance ``R`` from the
    origin, squared distances hold to about ``1e-15 R / s`` of the largest in double precision.
    :meth:`PointClouds.normalize` moves clouds to the origin.

    Args:
        dim: The dimension ``d`` of the atoms.
        inputs: ``"clouds"`` or ``"gaussians"``.
        p: The order, 1 or 2.
        num_slices: The number ``L`` of directions; in one dimension there is one.
        num_quantiles: The number ``N`` of equal cells over which quantile functions are averaged.
            Exact for clouds of equal weights whose size divides it. ``None``: no averaging, exact
            for clouds of one size and equal weights, and for no others. Not used for Gaussians.
        center: Whether distributions are centred at their means first, which makes the distance blind to
            translations.
        seed: Of the directions in three and more dimensions.

    Raises:
        ValueError: If ``p`` is neither 1 nor 2, a number is less than one, or the inputs are others;
            on evaluation with ``num_quantiles=None``, if sizes differ or weights are not equal, and
            with Gaussians, if a covariance is not positive semi-definite.

    Sources: Kolouri, Zou and Rohde 2016, eq. 14 and theorem 5; Meunier, Pontil and Ciliberto 2022,
    section 3 and proposition 5.
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
        seed: int = 0,
    ) -> None:
        super().__init__(dim, inputs=inputs)
        if p not in (1, 2):
            raise ValueError(f"Expected p = 1 or p = 2, the orders with a kernel, got p={p!r}.")
        if num_quantiles is not None and num_quantiles < 1:
            raise ValueError(f"Expected num_quantiles >= 1 or None, got {num_quantiles}.")
        self.p = p
        self.num_quantiles = num_quantiles
        self.center = center
        self.directions: Tensor
        self.register_buffer("directions", sphere_directions(self.dim, num_slices, seed=seed))

    @property
    def num_slices(self) -> int:
        """The number ``L`` of directions."""
        return len(self.directions)

    @property
    def euclidean(self) -> bool:
        """Whether distances are the Euclidean ones of the representations: for ``p = 2``."""
        return self.p == 2

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Scaled quantiles of all slices in turn; for ``p = 2`` then the scaled mean.

        Of Gaussians, for ``p = 2`` scaled deviations of all slices, then the scaled mean; for ``p = 1``
        scaled means of all slices, then scaled deviations.
        """
        if self.inputs == "gaussians":
            return self._represent_gaussians(points.squeeze(-2))
        tracked = weights.requires_grad and torch.is_grad_enabled()
        if self.num_quantiles is None or not tracked:
            points, weights = drop_padding(points, weights)
        mean = (weights.unsqueeze(-2) @ points).squeeze(-2)
        # Scaled directions give scaled quantiles: sums over them are then means.
        count = self.num_slices * (self.num_quantiles or points.shape[-2])
        directions = self.directions.to(points) * count ** (-1 / self.p)
        projected = matmul(directions, (points - mean.unsqueeze(-2)).transpose(-1, -2))
        quantiles = self._quantiles(projected, weights)
        if self.p == 1 and not self.center:
            quantiles = quantiles + (mean @ directions.T).unsqueeze(-1)
        if self.p == 1 or self.center:
            return quantiles.flatten(-2)
        return concatenate(quantiles.flatten(-2), mean / math.sqrt(self.dim))

    def _represent_gaussians(self, rows: Tensor) -> Tensor:
        mean, covariance = split_gaussians(rows, self.dim)
        directions = self.directions.to(rows)
        scale = self.num_slices ** (-1 / self.p)
        deviations = scale * projected_deviations(covariance, directions)
        if self.center:
            # Between centred normal distributions the distance of order one is E|Z| |s - s'|.
            return deviations if self.p == 2 else MEAN_ABSOLUTE * deviations
        if self.p == 2:
            return concatenate(deviations, mean / math.sqrt(self.dim))
        return concatenate(scale * (mean @ directions.T), deviations)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Squared Hilbert distances of all pairs of representations."""
        self._check_sizes(r1, r2)
        if self.p == 2:
            return super().compare_all(r1, r2)
        compare = normal_wasserstein_all if self._compares_normals else manhattan
        return without_rounding(compare(r1, r2), r1.unsqueeze(-2), r2.unsqueeze(-3))

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Squared Hilbert distances of corresponding representations."""
        self._check_sizes(r1, r2)
        if self.p == 2:
            return super().compare_paired(r1, r2)
        squared = normal_wasserstein(r1, r2) if self._compares_normals else (r1 - r2).abs().sum(-1)
        return without_rounding(squared, r1, r2)

    def chunk_size(self, num_atoms: int) -> int:
        """How many clouds of ``num_atoms`` atoms are represented at a time."""
        if self.inputs == "gaussians":
            return max(1, self.chunk_elements // max(self.num_slices, self.block.atom_dim))
        per_cloud = self.num_slices * max(num_atoms, self.num_quantiles or 1)
        return max(1, self.chunk_elements // per_cloud)

    @property
    def _compares_normals(self) -> bool:
        return self.inputs == "gaussians" and self.p == 1 and not self.center

    def _quantiles(self, projected: Tensor, weights: Tensor) -> Tensor:
        """Cell averages of all slices, ``C x L x N``."""
        uniform = bool((weights == weights[:1, :1]).all())
        if self.num_quantiles is None and not uniform:
            raise ValueError(_ONLY_ONE_SIZE)
        num_quantiles = self.num_quantiles or projected.shape[-1]
        if uniform and not (weights.requires_grad and torch.is_grad_enabled()):
            return uniform_cell_quantiles(projected, num_quantiles)
        return weighted_cell_quantiles(projected, weights.unsqueeze(-2), num_quantiles)

    def _check_sizes(self, r1: Tensor, r2: Tensor) -> None:
        if self.num_quantiles is None and r1.shape[-1] != r2.shape[-1]:
            raise ValueError(_ONLY_ONE_SIZE)

    def extra_repr(self) -> str:
        """The settings, for printing."""
        settings: dict[str, Any] = {
            "dim": self.dim,
            "p": self.p,
            "num_slices": self.num_slices,
            "num_quantiles": self.num_quantiles,
            "center": self.center,
        }
        if self.inputs == "gaussians":
            del settings["num_quantiles"]
            settings["inputs"] = self.inputs
        return ", ".join(f"{name}={value}" for name, value in settings.items())
