"""Where a surface matters: derivatives of predictions with respect to displacements of its vertices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures import MixedEncoding, MixedInputs, PointClouds
from gp_distributions.measures.arrays import Data, given_points
from gp_distributions.measures.inputs import Inputs
from gp_distributions.metrics.relevance_inputs import distributions
from gp_distributions.metrics.sensitivities import gradients_at
from gp_distributions.models import DistributionGP
from gp_distributions.rows.clouds import split_rows


@dataclass(frozen=True, eq=False)
class SurfaceSensitivity:
    """How the predicted mean changes when a surface is displaced, to first order.

    If the training targets had several outputs, all tensors have a leading axis of outputs. Vertices at
    one place move together, and each of them has the values of the place. A small displacement
    :math:`h` of all places along their normals changes the prediction by the sum over places of
    ``displacement`` times :math:`h`, which is the integral of ``density`` times :math:`h` over the
    surface.

    Attributes:
        displacement: The change for a unit displacement of each vertex along its outward normal, ``n``,
            in units of the targets per unit of the coordinates.
        density: The same divided by the area that the vertex represents, a third of its triangles; of
            outlines, by half of the lengths of its segments. Zero where there is no area.
        gradient: The gradient with respect to each vertex, ``n x d``.
    """

    displacement: Tensor
    density: Tensor
    gradient: Tensor


def surface_sensitivity(
    model: DistributionGP,
    vertices: Data,
    faces: Data | None = None,
    *,
    inputs: MixedInputs | None = None,
) -> SurfaceSensitivity:
    r"""Differentiate the posterior mean with respect to displacements of the surface of a shape.

    The vertices are read as the training shapes were: with normals if those had normals, and outlines
    with as many points if all of them had so many of equal weight. Meshes are read without ``atoms``,
    since points that are drawn do not tell how areas change. Moving a vertex :math:`v` moves, turns and
    stretches the adjacent triangles, and so changes positions, normals and areas:

    .. math::
        g_v = \frac{\partial m}{\partial v}, \qquad
        \frac{\partial m}{\partial h_v} = n_v \cdot g_v,

    with the outward unit normal :math:`n_v`, the mean of those of adjacent triangles, weighted by area.
    Outward is as in :meth:`PointClouds.from_meshes`, whatever the order of vertices in the file; of an
    open mesh, it is the side from which the vertices of a triangle are counterclockwise.

    Args:
        model: A fitted model of clouds read from meshes or closed outlines, alone or in mixed inputs.
        vertices: An ``n x d`` tensor or array of vertices, in the coordinates of the training shapes.
        faces: An ``f x 3`` tensor or array of the vertices of triangles. Default: the vertices are a
            closed outline in the plane.
        inputs: One :class:`MixedInputs`, of a model of these: its cloud is replaced by the shape.

    Returns:
        The derivatives, detached.

    Raises:
        ValueError: If the model does not read clouds with these coordinates, or the inputs do not fit;
            or the shape can have no outward normals: two triangles traverse an edge in one direction, or
            a closed mesh or an outline has no inside.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, fit
        >>> from gp_distributions.metrics import surface_sensitivity
        >>> angles = torch.linspace(0, 2 * torch.pi, 25, dtype=torch.float64)[:-1]
        >>> circle = torch.stack([angles.cos(), angles.sin()], dim=-1)
        >>> radii = torch.linspace(1, 2, 10, dtype=torch.float64)
        >>> outlines = PointClouds.from_curves([r * circle for r in radii], normals=True)
        >>> model = fit(DistributionGP(outlines, radii**2))
        >>> found = surface_sensitivity(model, 1.5 * circle)
        >>> round(found.displacement.sum().item(), 1)  # of r^2, at r = 1.5
        3.0
    """
    dim = np.shape(vertices)[-1]
    known = distributions(model)
    blocks = {
        name: block
        for name, (block, _) in known.items()
        if block.kind == "clouds" and block.dim - dim in (0, dim, dim * (dim + 1) // 2)
    }
    if len(blocks) != 1:
        raise ValueError(
            f"Expected a model that reads one cloud of shapes with vertices of {dim} coordinates, got "
            f"the blocks {list(known)}."
        )
    ((name, block),) = blocks.items()
    points = given_points(vertices, "vertices", ("n", dim)).cpu()

    def read(points: Tensor, **options: Any) -> PointClouds:
        if faces is None:
            return PointClouds.from_curves([points], **options)
        return PointClouds.from_meshes([(points, faces)], **options)

    # Vertices at one place are one, since some files repeat them for each triangle.
    places, index = points.unique(dim=0, return_inverse=True)
    parts = read(points, normals=True)
    if faces is None:
        first = torch.arange(len(points))
        ends = torch.stack([first, first.roll(-1)], dim=-1)
    else:
        ends = torch.from_numpy(np.array(faces, dtype=np.int64))
    vectors = torch.as_tensor(parts.normals)[0] * parts.masses[0].unsqueeze(-1)
    each = vectors.repeat_interleave(ends.shape[1], dim=0)
    sums = torch.zeros_like(places).index_add(0, index[ends].flatten(), each)
    shares = places.new_zeros(len(places)).index_add(0, index, read(points).masses[0])
    (rows,) = model.train_inputs
    weights = split_rows(block.select(rows), block.atom_dim)[1]
    places.requires_grad_()
    equal = faces is None and (weights == weights.flatten()[0]).all()
    cloud = read(
        places[index],
        atoms=weights.shape[-1] if equal else None,
        normals="unoriented" if block.dim > 2 * dim else block.dim > dim,
    ).to(rows)
    X: Inputs = cloud
    if isinstance(model.encoding, MixedEncoding):
        if inputs is None or len(inputs) != 1:
            raise ValueError(f"Expected one MixedInputs as inputs, got {inputs}.")
        X = inputs.to(rows)._with({name: cloud})
    made = model.rows_of(X)
    gradients = torch.stack(
        [
            torch.autograd.grad(made, places, of, retain_graph=True)[0]
            for of in gradients_at(model, made)[0]
        ]
    )
    displacement = (gradients * torch.nn.functional.normalize(sums, dim=-1)).sum(-1)
    density = (displacement / shares).nan_to_num(0.0)
    found = (displacement[:, index], density[:, index], gradients[:, index])
    return SurfaceSensitivity(*(part[0] if model._squeeze_output else part for part in found))
