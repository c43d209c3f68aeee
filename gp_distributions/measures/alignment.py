"""Align clouds in unknown pose, to draw them or to compare them atom by atom."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.measures.described import check_type
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.nearest import nearest_rotation


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
