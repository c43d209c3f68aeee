"""Clouds in unknown pose: described by the surroundings of their atoms, or aligned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.measures.arrays import check_type, integer, positive
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.nearest import nearest_rotation
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
    like: PointClouds | None = None,
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
        like: Clouds whose kinds to describe, such as those of training. Default: those of ``clouds``.

    Returns:
        Clouds with these kinds and the same masses and labels, in ``K num_distances + K (K + 1) / 2
        num_angles`` dimensions, for ``K`` kinds. They are ``geometric``, since all coordinates have one
        unit. Gradients flow through points and masses.

    Raises:
        TypeError: If ``clouds`` are not :class:`PointClouds`.
        ValueError: If clouds have normals or an atom of a kind that ``like`` lacks, or a radius or
            number is not positive.

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
    if like is not None:
        clouds = clouds._with_kind_names(like.kind_names)
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
    return clouds._alike(described, clouds.weights, clouds.mass, geometric=True, columns=None)


@dataclass(frozen=True)
class Neighbourhoods:
    r"""Sums over neighbours and over pairs of neighbours.

    With the cutoff :math:`c_R(r) = (1 + \cos(\pi r / R)) / 2`, the description of an atom :math:`a` is,
    for each kind of neighbours :math:`b` of mass :math:`m_b` at the distances :math:`r_b`,

    .. math:: \sum_b m_b\, c_R(r_b)\, e^{-(r_b - \mu_i)^2 / (2 w^2)},

    and for each pair of kinds of neighbours, with :math:`\theta_{bc}` the angle between them,

    .. math::
        0.7 \sum_{b, c} m_b m_c\, c_{R'}(r_b)\, c_{R'}(r_c)\,
        e^{-(\cos \theta_{bc} - \nu_j)^2 / (2 v^2)}.

    Attributes:
        num_kinds: Number of kinds of atoms.
        radius: The radius :math:`R` of neighbours.
        angle_radius: The radius :math:`R'` of neighbours between which there are angles.
        num_distances: Number of centres :math:`\mu_i`, from ``0.16 R`` to ``R``, of width ``R / 25``.
        num_angles: Number of centres :math:`\nu_j`, from -1 to 1, of width ``2.5 / num_angles``.
    """

    num_kinds: int
    radius: float
    angle_radius: float
    num_distances: int
    num_angles: int

    def __call__(self, points: Tensor, kinds: Tensor, masses: Tensor) -> Tensor:
        """Describe the atoms of clouds.

        Args:
            points: A ``C x n x d`` tensor of atoms.
            kinds: A ``C x n`` tensor of the numbers of their kinds.
            masses: A ``C x n`` tensor of masses; atoms of mass zero are padding.

        Returns:
            A ``C x n x D`` tensor. Atoms in the same place as an atom are not its neighbours.
        """
        shape, kinds = points.shape[:2], kinds.flatten()
        present = masses > 0
        squares = (points.unsqueeze(-2) - points.unsqueeze(-3)).detach().square().sum(-1)
        near = (squares > 0) & (squares < self.radius**2)
        near &= present.unsqueeze(-1) & present.unsqueeze(-2)
        cloud, first, second = near.nonzero(as_tuple=True)
        atom, other = cloud * shape[1] + first, cloud * shape[1] + second
        vectors = points.flatten(0, 1)[other] - points.flatten(0, 1)[atom]
        lengths = vectors.square().sum(-1).sqrt()
        mass = masses.flatten()[other]
        centres = torch.linspace(
            0.16 * self.radius, self.radius, self.num_distances, dtype=torch.float64
        )
        heights = _bumps(lengths, centres, self.radius / 25)
        heights = heights * (mass * _cutoff(lengths, self.radius)).unsqueeze(-1)
        found = [_summed(heights, atom, kinds[other], len(kinds), self.num_kinds)]
        if self.num_angles:
            close = lengths.detach() < self.angle_radius
            weights = mass[close] * _cutoff(lengths[close], self.angle_radius)
            around = vectors[close], lengths[close]
            found.append(
                self._angles(atom[close], kinds[other[close]], weights, around, len(kinds))
            )
        return torch.cat(found, dim=-1).unflatten(0, shape)

    def _angles(
        self,
        atom: Tensor,
        kind: Tensor,
        weights: Tensor,
        around: tuple[Tensor, Tensor],
        count: int,
    ) -> Tensor:
        vectors, lengths = around
        # Neighbours of an atom follow each other: each makes a pair with those after it.
        place = torch.arange(len(atom), device=atom.device)
        later = torch.bincount(atom, minlength=count).cumsum(0)[atom] - place - 1
        one = place.repeat_interleave(later)
        two = one + 1 + torch.arange(len(one), device=atom.device) - (later.cumsum(0) - later)[one]
        apart = (vectors[one] != vectors[two]).any(-1)  # no parts of one atom
        one, two = one[apart], two[apart]
        cosines = (vectors[one] * vectors[two]).sum(-1) / (lengths[one] * lengths[two])
        both = 0.7 * weights[one] * weights[two]
        nodes = torch.linspace(-1, 1, self.num_angles, dtype=torch.float64)
        heights = _bumps(cosines, nodes, 2.5 / self.num_angles) * both.unsqueeze(-1)
        low, high = torch.stack([kind[one], kind[two]]).sort(dim=0).values
        pair = high * (high + 1) // 2 + low
        return _summed(heights, atom[one], pair, count, self.num_kinds * (self.num_kinds + 1) // 2)


def _cutoff(lengths: Tensor, radius: float) -> Tensor:
    return (torch.cos(lengths * (math.pi / radius)) + 1) / 2


def _bumps(values: Tensor, centres: Tensor, width: float) -> Tensor:
    scaled = (values.unsqueeze(-1) - centres.to(values)) / width
    return torch.exp(-0.5 * scaled.square())


def _summed(heights: Tensor, atom: Tensor, group: Tensor, count: int, groups: int) -> Tensor:
    """Sum heights by atom and group: a ``count x (groups * centres)`` tensor."""
    sums = heights.new_zeros(count * groups, heights.shape[-1])
    return sums.index_add(0, atom * groups + group, heights).view(count, -1)


def align(
    clouds: PointClouds, template: PointClouds | None = None, *, reflections: bool = False
) -> PointClouds:
    r"""Move clouds by rotations and translations so that they lie as close to a template as possible.

    Each cloud :math:`P` is moved to the mean of the template :math:`T` and turned about it by the
    rotation :math:`g` that attains

    .. math::
        \min_g SW_2^2(g P, T).

    Atoms need neither correspond nor be equal in number, and padding, the order of atoms and the
    splitting of atoms do not matter. In the plane, all angles are searched. In space, the search
    starts from all ways to map the principal axes of the cloud onto those of the template, and may
    end in a local minimum.

    Aligned clouds are for pictures and for methods that compare atoms. For a kernel, use
    :class:`RigidSlicedWasserstein`, which needs no alignment: the best rotation jumps where two poses
    are equally close, and kernels of aligned distances are not positive definite in general.

    Args:
        clouds: The clouds, in two or three dimensions. Normals that follow positions turn with them,
            and do not enter the search.
        template: A single cloud, or clouds of which the first counts. Default: the first cloud.
        reflections: Whether to use the mirror image of a cloud where it is closer to the template.

    Returns:
        The moved clouds, detached, with the same weights and labels.

    Raises:
        TypeError: If ``clouds`` are not :class:`PointClouds`.
        ValueError: If there are no clouds, they are not in two or three dimensions, the template is of
            another dimension, or normals have no orientation.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.measures import align
        >>> triangle = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        >>> turned = triangle @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64) + 5
        >>> aligned = align(PointClouds(torch.stack([triangle, turned])))
        >>> torch.allclose(aligned[1].points, triangle, atol=1e-2)
        True

    Source: Bonneel et al. 2015 (sliced Wasserstein distances of point sets).
    """
    check_type(clouds, PointClouds)
    template = clouds if template is None else template
    here, there = clouds.positions, template.positions
    dim = here.shape[-1]
    if dim not in (2, 3) or there.shape[-1] != dim or not clouds.batch_shape.numel():
        raise ValueError(
            "Expected at least one cloud, and clouds and a template in two or in three dimensions, got "
            f"{clouds} and {template}. Choose the coordinates to align, such as "
            "PointClouds(clouds.points[..., :2], clouds.weights)."
        )
    if clouds.num_normals not in (0, dim):
        raise ValueError(f"Expected normals with an orientation to turn, got {clouds}.")
    points = here.detach().double().reshape(-1, *here.shape[-2:])
    weights = clouds.weights.detach().double().reshape(-1, here.shape[-2])
    target = there.detach().to(points).reshape(-1, *there.shape[-2:])[0]
    masses = template.weights.detach().to(points).reshape(-1, len(target))[0]
    centre = masses @ target
    target, masses = (target - centre)[masses > 0], masses[masses > 0]
    centred = points - weights.unsqueeze(-2) @ points
    turns = torch.stack(
        [
            _turn(x[w > 0], w[w > 0], target, masses, reflections=reflections)
            for x, w in zip(centred, weights, strict=True)
        ]
    )
    parts = [centred @ turns.mT + centre]
    if clouds.normals is not None:
        parts.append(clouds.normals.detach().to(points).reshape(points.shape) @ turns.mT)
    atoms = torch.cat(parts, dim=-1).reshape(clouds.points.shape).to(clouds.dtype)
    return clouds._alike(atoms, clouds.weights.detach(), clouds.mass.detach())


def _turn(
    points: Tensor, weights: Tensor, target: Tensor, masses: Tensor, *, reflections: bool
) -> Tensor:
    """Find the matrix that turns a centred cloud, after a reflection if that is closer, to a target."""
    straight = torch.eye(points.shape[-1], dtype=points.dtype, device=points.device)
    mirror = straight.clone()
    mirror[0, 0] = -1
    found = [
        (nearest_rotation(points @ image, weights, target, masses), image)
        for image in ([straight, mirror] if reflections else [straight])
    ]
    (rotation, _), image = min(found, key=lambda pair: pair[0][1])
    return rotation @ image
