"""How clouds become rows for kernels that read the kinds or the masses of atoms."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gp_distributions.measures._atom_kinds import KindNames
from gp_distributions.measures.point_clouds import PointClouds


@dataclass(frozen=True)
class AtomEncoding:
    """The kinds of atoms in the order of training clouds, and whether weights are masses.

    Attributes:
        kind_names: The kinds, whose places the last coordinates of atoms hold; empty if there are none.
        masses: Whether rows hold masses in place of weights that sum to one.
    """

    kind_names: KindNames = ()
    masses: bool = False

    def rows(self, X: PointClouds) -> Tensor:
        """Return the rows of clouds, ``batch_shape x m*(d+1)``.

        Raises:
            ValueError: If the clouds have no kinds, or an atom has another kind.
        """
        clouds = X._with_kind_names(self.kind_names)
        if self.masses:
            clouds = PointClouds._unchecked(clouds.points, clouds.masses)
        return clouds.pack()
