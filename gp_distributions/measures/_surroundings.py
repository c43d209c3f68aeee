"""Clouds whose atoms are described by their surroundings."""

from __future__ import annotations

import torch

from gp_distributions.measures.arrays import integer, positive
from gp_distributions.measures.described import check_type
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.neighbourhoods import Neighbourhoods
from gp_distributions.rows.tensors import filled

# Number of clouds that are described at a time.
_CHUNK = 256


def surroundings(
    clouds: PointClouds,
    radius: float = 5.0,
    *,
    angle_radius: float | None = None,
    num_distances: int = 24,
    num_angles: int = 10,
) -> PointClouds:
    r"""Replace the position of each atom by a description of its neighbourhood.

    The description does not change if a cloud is moved, rotated or reflected, or its atoms are listed in
    another order. For each kind of neighbours, it counts those at about each of some distances, and for
    each pair of kinds, the pairs of neighbours at about each of some angles, with a smooth cutoff:

    .. math::
        \sum_b m_b\, c_R(r_b)\, e^{-(r_b - \mu_i)^2 / (2 w^2)}, \qquad
        0.7 \sum_{b, c} m_b m_c\, c_{R'}(r_b)\, c_{R'}(r_c)\,
        e^{-(\cos \theta_{bc} - \nu_j)^2 / (2 v^2)}, \qquad
        c_R(r) = (1 + \cos(\pi r / R)) / 2.

    Neighbours count by their masses. Atoms in the same place are not neighbours, so that dividing the
    mass of an atom changes nothing.

    Args:
        clouds: Clouds of points, such as molecules, cells in tissue or players on a pitch, with or
            without kinds.
        radius: The radius :math:`R` within which atoms are neighbours, in the units of the points. The
            default suits molecules in Å.
        angle_radius: The radius :math:`R'` for angles. Default: ``0.6 * radius``.
        num_distances: Number of distances :math:`\mu_i`, from ``0.16 * radius`` to ``radius``; the width
            :math:`w` is ``radius / 25``.
        num_angles: Number of cosines :math:`\nu_j` of angles, from -1 to 1; the width :math:`v` is
            ``2.5 / num_angles``. Zero for no angles.

    Returns:
        Clouds with the same kinds, masses and labels, in ``K num_distances + K (K + 1) / 2 num_angles``
        dimensions, for ``K`` kinds. They are ``geometric``, since all coordinates have one unit.
        Gradients flow through points and masses.

    Raises:
        TypeError: If ``clouds`` are not :class:`PointClouds`.
        ValueError: If clouds have normals, or a radius or number is not positive.

    Example:
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.measures import surroundings
        >>> water = PointClouds([[[0.0, 0.0], [0.96, 0.0], [-0.24, 0.93]]], kinds=[["O", "H", "H"]])
        >>> surroundings(water).positions.shape
        torch.Size([1, 3, 78])

    Source: Behler 2011, whose sums over neighbours and pairs of neighbours these resemble.
    """
    check_type(clouds, PointClouds)
    if clouds.num_normals:
        raise ValueError(f"Expected clouds without normals to describe surroundings, got {clouds}.")
    describe = Neighbourhoods(
        max(1, len(clouds.kind_names)),
        float(positive(radius, "radius")),
        float(positive(0.6 * radius if angle_radius is None else angle_radius, "angle_radius")),
        integer(num_distances, "num_distances"),
        integer(num_angles, "num_angles", least=0),
    )
    shape = clouds.weights.shape
    flat = [
        part.reshape(-1, *part.shape[len(shape) - 1 :]) for part in (clouds.points, clouds.masses)
    ]
    size, parts = clouds.positions.shape[-1], []
    for points, masses in zip(*(part.split(_CHUNK) for part in flat), strict=True):
        width = max(1, filled(masses.mT))
        atoms, present = points[:, :width], masses[:, :width]
        kept = atoms[..., :size]
        kinds = (
            atoms[..., -1].detach().long()
            if clouds.kind_names
            else torch.zeros_like(present).long()
        )
        found = torch.cat([describe(kept, kinds, present), atoms[..., size:]], dim=-1)
        found = torch.nn.functional.pad(found, (0, 0, 0, shape[-1] - width))
        parts.append(found)
    described = torch.cat(parts).reshape(*shape, -1)
    return clouds._alike(described, clouds.weights, clouds.mass, geometric=True)
