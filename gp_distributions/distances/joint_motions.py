"""Which distances do not change when both distributions are mapped in the same way."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.numerics.rotations import is_orthogonal, permutes_axes


def unchanged_by(distance: Distance, group: Tensor) -> bool:
    """Return whether ``distance`` is known not to change when both distributions are mapped together.

    Args:
        distance: A distance. Only the classes themselves are known, not their subclasses.
        group: A ``G x d x d`` tensor of matrices that map the atoms.

    Returns:
        Whether the distance is the same, up to rounding, between two distributions and between their
        images under any of the maps:

        - :class:`SlicedWasserstein`, if the maps are orthogonal and permute the directions of the
          slices, which have no levels of their own;
        - :class:`MMD` without features, if the maps are orthogonal, because its named embedding kernels
          are functions of distances and inner products.
    """
    if type(distance) not in (SlicedWasserstein, MMD) or not is_orthogonal(group):
        return False
    if isinstance(distance, SlicedWasserstein):
        return distance.levels is None and permutes_axes(group, distance.directions)
    exact = isinstance(distance, MMD) and distance.num_features is None
    return exact and isinstance(distance.kernel, str)
