"""Where a surface matters: derivatives of predictions with respect to displacements of its vertices."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.measures import MixedEncoding, MixedInputs
from gp_distributions.measures.arrays import Data, real_array
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.surfaces import Surface
from gp_distributions.metrics.relevance_inputs import distributions
from gp_distributions.metrics.sensitivities import gradients_at
from gp_distributions.models import DistributionGP
from gp_distributions.rows.clouds import split_rows
from gp_distributions.rows.layout import Block


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

    The vertices are read as the training shapes were: with normals if those had normals, and with as
    many points if all of them had so many of equal weight. Moving a vertex :math:`v` moves, turns and
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
    shape = torch.Size(real_array(vertices, "vertices").shape)
    name, block, marks = _block_of(model, shape[-1])
    surface = Surface.read(vertices, faces, shape[-1])
    rows = (
        model.train_inputs[0] if isinstance(model, DistributionGP) else model.summed().features.rows
    )
    weights = split_rows(block.select(rows), block.atom_dim)[1]
    equal = bool((weights == weights.flatten()[0]).all())
    places = surface.places.requires_grad_()
    cloud = surface.cloud(places, marks, weights.shape[-1] if equal else None).to(rows)
    X: Inputs = cloud
    if isinstance(model.encoding, MixedEncoding):
        if inputs is None or len(inputs) != 1:
            raise ValueError(f"Expected one MixedInputs as inputs, got {inputs}.")
        X = inputs.to(rows)._with({name: cloud})
    made = model.rows_of(X)
    found, _ = gradients_at(model, made)
    gradients = torch.stack(
        [torch.autograd.grad(made, places, each, retain_graph=True)[0] for each in found]
    )
    displacement = (gradients * surface.normals).sum(-1)
    sized = surface.shares > 0
    density = torch.where(sized, displacement / torch.where(sized, surface.shares, 1.0), 0.0)
    each = displacement[:, surface.index], density[:, surface.index], gradients[:, surface.index]
    return SurfaceSensitivity(*(part[0] if model._squeeze_output else part for part in each))


def _block_of(model: DistributionGP, dim: int) -> tuple[str, Block, int]:
    """Return the name and the block of the clouds of shapes, and their number of columns of normals."""
    found = []
    for name, (block, _) in distributions(model).items():
        marks = block.dim - dim
        if block.kind == "clouds" and marks in (0, dim, dim * (dim + 1) // 2):
            found.append((name, block, marks))
    if len(found) != 1:
        raise ValueError(
            f"Expected a model that reads one cloud of shapes with vertices of {dim} coordinates, got "
            f"{[name for name, *_ in found] or distributions(model)}."
        )
    return found[0]
