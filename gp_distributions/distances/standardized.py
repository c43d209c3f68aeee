"""A distance between distributions whose coordinates are measured in their spread."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.multiplied import MultipliedDistance
from gp_distributions.distances.rigid_sliced_wasserstein import RigidSlicedWasserstein
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.measures.arrays import integer, positive
from gp_distributions.rows.clouds import drop_padding
from gp_distributions.rows.layout import Block, check_weights, chunks

# Number of atoms that are averaged at a time.
_ATOMS = 2**18


class StandardizedDistance(MultipliedDistance):
    r"""A distance that measures each coordinate in its spread over the first clouds that it sees.

    With the standard deviations :math:`\sigma_1, \dots, \sigma_d` of the average of these clouds,
    usually the training clouds, in which each cloud counts once,

    .. math:: d_\sigma(P, P') = d(S P, S P'), \qquad
        S = \operatorname{diag}(1 / \sigma_1, \dots, 1 / \sigma_d).

    Distances thus do not depend on the units of coordinates: years and euros count alike. Nothing is
    learned. For Gaussians and mixtures, the spread includes the variances, and covariances are scaled
    along with means. A coordinate that is constant, up to rounding, stays as it is. Coordinates that
    rotate together, as in :class:`RigidSlicedWasserstein`, share one spread, the root mean square of
    theirs. The distance keeps its properties: ``embed``, and positive definiteness with every profile.

    It is the distance of the kernels that models make themselves. A reference measure is not scaled with
    the clouds.

    Args:
        distance: Distance that reads the standardised coordinates.
        geometric: Whether the coordinates are positions in a space, where lengths along different axes
            compare. They share one spread.
        num_normals: Number of columns at the end that hold unit normals. They have no unit, and are
            multiplied by ``normals_factor`` instead.
        normals_factor: Length of normals, in units of the spread of the positions.

    Attributes:
        spread: Standard deviation of each coordinate, of shape ``d`` and in units of the coordinates.
            NaN until the distance has seen clouds.
        scales: By how much each coordinate counts, of shape ``d`` and beyond its spread. Ones, unless
            :func:`fit` has learned them in a model without a kernel.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the atoms of the distance are labels or indices; ``num_normals`` is not an
            integer >= 0, leaves no other coordinate or includes one that rotates; or
            ``normals_factor`` is not positive and finite.

    Example:
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> from gp_distributions.distances import StandardizedDistance
        >>> points = [[[0.0, 5e3]], [[2.0, 5e3]], [[0.0, 9e3]], [[2.0, 9e3]]]
        >>> rows = PointClouds.from_list(points).pack()
        >>> distance = StandardizedDistance(SlicedWasserstein(2))
        >>> distance.adapt(rows)
        >>> distance.squared(rows[:1], rows).round(decimals=6)
        tensor([[0., 2., 2., 4.]], dtype=torch.float64)
        >>> distance.spread
        tensor([1.0000e+00, 2.0000e+03], dtype=torch.float64)
    """

    spread: Tensor
    scales: Tensor
    _normals_factor: Tensor

    def __init__(
        self,
        distance: Distance,
        *,
        geometric: bool = False,
        num_normals: int = 0,
        normals_factor: float = 3.0,
    ) -> None:
        super().__init__(distance)
        self.geometric = geometric
        self.num_normals = integer(num_normals, "num_normals", least=0)
        most = self.dim - max(self._turning, 1)
        if self.num_normals > most:
            raise ValueError(
                f"Expected num_normals <= {most}, because positions come before normals, got "
                f"{num_normals}."
            )
        unknown = torch.full((self.dim,), math.nan, dtype=torch.float64)
        self.register_buffer("spread", unknown)
        self.register_buffer("scales", torch.ones(self.dim, dtype=torch.float64))
        self.register_buffer("_normals_factor", torch.ones((), dtype=torch.float64))
        self.normals_factor = normals_factor

    @property
    def _turning(self) -> int:
        """Number of leading coordinates that rotate together."""
        return next(iter(self.rotating), 0)

    @property
    def normals_factor(self) -> Tensor:
        """Length of normals, in units of the spread of the positions.

        Raises:
            ValueError: On assignment, if the value is not positive and finite.
        """
        return self._normals_factor

    @normals_factor.setter
    def normals_factor(self, value: Tensor | float) -> None:
        self._normals_factor.fill_(positive(value, "normals_factor"))

    @property
    def any_pose(self) -> bool:
        """Whether shapes are compared in any pose, by a :class:`RigidSlicedWasserstein`.

        It can be set: to compare them in the pose that they have, a :class:`SlicedWasserstein` takes
        the place of that distance.
        """
        return isinstance(self.distance, RigidSlicedWasserstein)

    @any_pose.setter
    def any_pose(self, value: bool) -> None:
        if value != self.any_pose:
            rigid = partial(RigidSlicedWasserstein, normals=self.num_normals)
            made = rigid(self.dim) if value else SlicedWasserstein(self.dim)
            self.distance = made.to(self.spread.device)

    @property
    def multipliers(self) -> Tensor:
        """The factor of each coordinate, of shape ``d``: its scale, divided by its spread."""
        if bool(self.spread.isnan().any()):
            raise ValueError("Expected a spread: call adapt() with rows first.")
        positions, normals = self.spread.split([self.dim - self.num_normals, self.num_normals])
        together = len(positions) if self.geometric else self._turning
        joint = positions[:together].square().mean().sqrt().expand(together)
        units = torch.cat([joint, positions[together:]])
        units = torch.where(units > 0, units, 1.0)
        return torch.cat([1 / units, self.normals_factor.expand(len(normals))]) * self.scales

    @torch.no_grad()
    def adapt(self, rows: Tensor) -> None:
        """Choose the spread, and then the settings of the distance, if they are not known yet."""
        if not rows.numel() or not bool(self.spread.isnan().any()):
            return
        self.spread.copy_(coordinate_spread(self.block, rows))
        super().adapt(self._multiplied(rows))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if self.geometric and isinstance(self.distance, SlicedWasserstein | RigidSlicedWasserstein):
            self.any_pose = f"{prefix}distance.series" in state_dict  # of harmonics
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        known = not bool(self.spread.isnan().any())
        shown = [f"spread={[float(f'{s:.3g}') for s in self.spread.tolist()]}"] if known else []
        shown += ["geometric=True"] if self.geometric else []
        if not bool((self.scales == 1).all()):
            shown.append(f"scales={[round(scale, 3) for scale in self.scales.tolist()]}")
        if self.num_normals:
            shown.append(
                f"num_normals={self.num_normals}, normals_factor={self.normals_factor.item():.3g}"
            )
        return ", ".join(shown)


@torch.no_grad()
def coordinate_spread(block: Block, rows: Tensor) -> Tensor:
    """Compute the standard deviation of each coordinate in the average of distributions.

    Each counts once, regardless of its number of atoms. Offsets of coordinates do not matter.

    Args:
        block: The layout of the rows.
        rows: A ``batch_shape x N x width`` tensor.

    Returns:
        A tensor of length ``d``. It is exactly zero for coordinates that are constant up to rounding.

    Raises:
        ValueError: If a weight is negative or not finite, or all weights of a row are zero.
    """
    atoms, weights = block.split(rows)
    check_weights(weights)
    atoms, weights = atoms.flatten(0, -3), weights.flatten(0, -2)
    some, parts = atoms[0, weights[0].argmax()].clone(), []
    for chunk in chunks(weights, max(1, _ATOMS // weights.shape[-1]), by_atoms=True):
        points, shares = drop_padding(atoms[chunk], weights[chunk])
        shares = (shares / shares.sum(-1, keepdim=True)).unsqueeze(-1)
        parts.append((torch.where(shares > 0, points, some), shares))

    def average(of: Callable[[Tensor], Tensor]) -> Tensor:
        sums = [(shares * of(x)).sum((0, 1)) for x, shares in parts]
        return torch.stack(sums).sum(0) / len(weights)

    # Differences to some atom are exactly zero if a coordinate is constant.
    mean = average(lambda x: (x - some)[..., : block.dim])
    variance = average(lambda x: ((x - some)[..., : block.dim] - mean).square())
    if block.kind != "clouds":
        variance = variance + average(lambda x: x[..., block.dim :: block.dim + 1])
    largest = torch.stack([x[..., : block.dim].abs().amax((0, 1)) for x, _ in parts]).amax(0)
    spread, rounding = variance.sqrt(), 64 * torch.finfo(variance.dtype).eps * largest
    return torch.where(spread > rounding, spread, 0.0)
