"""Normals of curves, meshes and points, and what clouds know of themselves."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gp_distributions import AggregateGP, MixedInputs, PointClouds
from gp_distributions.warnings import CostWarning

ANGLES = torch.arange(40, dtype=torch.float64) * (2 * math.pi / 40)
CIRCLE = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=-1)
SQUARE = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]
HOLE = [[0.5, 0.5], [1.5, 0.5], [1.5, 1.5], [0.5, 1.5]]
CORNERS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
FACES = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]


def normals_of(clouds: PointClouds) -> Tensor:
    assert clouds.normals is not None
    return clouds.normals


@pytest.mark.parametrize("atoms", [None, 40])
@pytest.mark.parametrize("outline", [CIRCLE, CIRCLE.flip(0)])
def test_normals_of_a_circle_point_outward(outline: Tensor, atoms: int | None) -> None:
    clouds = PointClouds.from_curves([3 * outline + 7], atoms=atoms, normals=True)
    radial = torch.nn.functional.normalize(clouds.positions - 7, dim=-1)
    assert (normals_of(clouds) * radial).sum(-1).min() > math.cos(
        0.08
    )  # half an angle between vertices
    assert (clouds.num_normals, clouds.dim, clouds.geometric) == (2, 4, True)


def test_atoms_are_the_middles_of_segments_and_triangles() -> None:
    triangle = [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]
    (curve,) = (PointClouds.from_curves([triangle], normals=True),)
    expected = [[1.5, 0.0, 0.0, -1.0], [3.0, 2.0, 1.0, 0.0], [1.5, 2.0, -0.8, 0.6]]
    torch.testing.assert_close(curve.points[0], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(curve.weights[0] * 12, torch.tensor([3.0, 4.0, 5.0]).double())
    mesh = PointClouds.from_meshes([(CORNERS, FACES)], normals=True)
    corners = torch.tensor(CORNERS, dtype=torch.float64)[torch.tensor(FACES)]
    torch.testing.assert_close(mesh.positions[0], corners.mean(1))
    torch.testing.assert_close(mesh.weights.sum(), torch.ones(()).double())


def test_repeated_vertices_change_nothing() -> None:
    plain = PointClouds.from_curves([SQUARE], normals=True)
    repeated = PointClouds.from_curves([[*SQUARE[:2], *SQUARE[1:], SQUARE[0]]], normals=True)
    kept = repeated.weights[0] > 0
    torch.testing.assert_close(repeated.points[0][kept], plain.points[0])
    torch.testing.assert_close(repeated.weights[0][kept], plain.weights[0])
    spaced = PointClouds.from_curves([[SQUARE[0], *SQUARE]], atoms=8, normals=True)
    torch.testing.assert_close(
        normals_of(spaced).norm(dim=-1), torch.ones(1, 8, dtype=torch.float64)
    )


@pytest.mark.parametrize("turned", [False, True])
def test_normals_of_a_hole_point_into_it(turned: bool) -> None:
    rings = [[*ring, ring[0]] for ring in (SQUARE, HOLE[::-1] if turned else HOLE)]
    polygon = {"type": "Polygon", "coordinates": rings}
    clouds = PointClouds.from_curves([polygon], normals=True)
    outward = ((clouds.positions - 1) * normals_of(clouds)).sum(-1)[0]
    assert (outward[:4] > 0).all()
    assert (outward[4:] < 0).all()


@pytest.mark.parametrize("atoms", [None, 25])
@pytest.mark.parametrize("turned", [False, True])
def test_normals_of_a_closed_mesh_point_outward(turned: bool, atoms: int | None) -> None:
    faces = np.array(FACES)[:, ::-1] if turned else np.array(FACES)
    clouds = PointClouds.from_meshes([(CORNERS, faces.copy())], atoms=atoms, normals=True)
    assert (normals_of(clouds) * (clouds.positions - 0.25)).sum(-1).min() > 0


def test_open_mesh_keeps_the_orientation_of_its_faces() -> None:
    for faces, side in (([[0, 1, 2]], 1.0), ([[0, 2, 1]], -1.0)):
        clouds = PointClouds.from_meshes([(CORNERS, faces)], normals=True)
        assert normals_of(clouds)[0].tolist() == [[0.0, 0.0, side]]


SOUP = np.array(CORNERS)[np.array(FACES)].reshape(-1, 3)
BESIDE = np.array(CORNERS) - [0, 1, 1]  # touches the other along the edge from 0 to 1
INSIDE = np.array(CORNERS) / 4 + 0.1


@pytest.mark.parametrize(
    ("vertices", "faces", "volume"),
    [
        (SOUP, np.arange(12).reshape(4, 3), 1.0),
        (SOUP, np.arange(12)[::-1].reshape(4, 3).copy(), 1.0),
        ([*CORNERS, [9.0, 9.0, 9.0]], FACES, 1.0),
        (CORNERS, [*FACES, [3, 3, 1]], 1.0),
        ([*CORNERS, *BESIDE.tolist()], np.vstack([FACES, np.array(FACES) + 4]), 2.0),
        ([*CORNERS, *INSIDE], np.vstack([FACES, np.array(FACES)[:, ::-1] + 4]), 1 - 1 / 64),
    ],
    ids=["repeated", "repeated, turned", "not used", "no area", "touching", "cavity"],
)
def test_degenerate_meshes_have_outward_normals(vertices: Any, faces: Any, volume: float) -> None:
    """The flux of positions through the surface is three times the volume, here in tetrahedra."""
    clouds = PointClouds.from_meshes([(vertices, faces)], normals=True)
    flux = clouds.weights * (clouds.positions * normals_of(clouds)).sum(-1)
    assert (flux.sum() * clouds.mass).item() == pytest.approx(volume / 2, rel=1e-12)


def test_unoriented_normals_are_those_of_either_direction() -> None:
    products = [
        normals_of(PointClouds.from_curves([curve], closed=False, normals="unoriented"))[0]
        for curve in (CIRCLE, CIRCLE.flip(0))
    ]
    torch.testing.assert_close(products[0][:-1], products[1][:-1].flip(0))
    first = CIRCLE[1] - CIRCLE[0]
    normal = torch.stack([first[1], -first[0]]) / first.norm()
    expected = torch.stack([normal[0] ** 2, normal[1] ** 2, math.sqrt(2) * normal[0] * normal[1]])
    torch.testing.assert_close(products[0][0], expected)
    messy = [[0, 2, 1], [0, 1, 3], [0, 2, 3]]
    mesh = PointClouds.from_meshes([(CORNERS, messy)], normals="unoriented")
    assert mesh.num_normals == 6
    torch.testing.assert_close(normals_of(mesh)[..., :3].sum(-1), torch.ones(1, 3).double())


EIGHT = [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
TWICE = [[0, 1, 2], [0, 1, 3]]
FLAT = [[0, 1, 2], [2, 1, 0]]
TURNED = [[0, 1, 2], [5, 4, 3], [6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda n: PointClouds.from_curves([CIRCLE, EIGHT], normals=n), "Curve 1: .*area of 0"),
        (
            lambda n: PointClouds.from_curves({"a": CIRCLE}, closed=False, normals=n),
            r"Curve 0 \(label a\): .*closed outline.*unoriented",
        ),
        (
            lambda n: PointClouds.from_meshes([(CORNERS, TWICE)], normals=n),
            r"Mesh 0.*edge \(0, 1\) 2",
        ),
        (lambda n: PointClouds.from_meshes([(CORNERS, FLAT)], normals=n), "Mesh 0: .*volume of 0"),
        (
            lambda n: PointClouds.from_meshes([(SOUP, TURNED)], normals=n),
            r"Mesh 0: .*edge \(3, 5\) 2",
        ),
    ],
)
def test_shapes_without_orientation(read: Callable[[Any], PointClouds], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(True)
    assert read("unoriented").num_normals in (3, 6)


def test_normals_need_the_plane_or_space() -> None:
    with pytest.raises(ValueError, match=r"Curve 0: .*got 3 coordinates"):
        PointClouds.from_curves([CORNERS], normals=True)
    with pytest.raises(ValueError, match=r"Mesh 0: .*got 2 coordinates"):
        PointClouds.from_meshes([(SQUARE, [[0, 1, 2]])], normals="unoriented")


def test_self_crossing_outline_with_area() -> None:
    loop = torch.stack(
        [ANGLES.cos() * (1 + 2 * ANGLES.cos()), ANGLES.sin() * (1 + 2 * ANGLES.cos())], -1
    )
    assert PointClouds.from_curves([loop], normals=True).num_normals == 2


def test_given_normals() -> None:
    clouds = PointClouds.from_curves([CIRCLE, SQUARE], normals=[CIRCLE, [[0.6, 0.8]] * 4])
    torch.testing.assert_close(normals_of(clouds)[0], CIRCLE)
    assert normals_of(clouds)[1, :5].tolist() == [[0.6, 0.8]] * 4 + [[0.0, 0.0]]
    longer = [[0.6, 0.8]] * 3 + [[0.6, 0.81]]
    for normals, atoms, message in (
        ([CIRCLE, longer], None, r"Curve 1: expected normals of length 1, got 1.008.* in atom 3"),
        ([CIRCLE, longer[1:]], None, r"Curve 1: expected normals of shape \(4, 2\)"),
        ([CIRCLE], None, "each of 2 curves, got 1"),
        ([CIRCLE, CIRCLE], 5, "atoms="),
        ("outward", None, "'outward'"),
    ):
        with pytest.raises(ValueError, match=message):
            PointClouds.from_curves([CIRCLE, SQUARE], atoms=atoms, normals=normals)


@pytest.mark.parametrize("normals", [True, "unoriented"])
def test_gradients_of_normals(normals: Any) -> None:
    outline = CIRCLE[::5].clone().requires_grad_()
    corners = torch.tensor(CORNERS, dtype=torch.float64, requires_grad=True)

    def curve(vertices: Tensor) -> Tensor:
        return normals_of(PointClouds.from_curves([vertices], normals=normals))

    def mesh(vertices: Tensor) -> Tensor:
        return normals_of(PointClouds.from_meshes([(vertices, FACES)], normals=normals))

    assert torch.autograd.gradcheck(curve, outline)
    assert torch.autograd.gradcheck(mesh, corners)
    degenerate = torch.tensor([SQUARE[0], *SQUARE], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(curve(degenerate).square().sum(), degenerate)
    assert gradient.isfinite().all()


def test_estimated_normals() -> None:
    rng = np.random.default_rng(0)
    sphere = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(400, 3))), dim=-1)
    clouds = PointClouds.from_list([2 * sphere, sphere[:50]]).estimate_normals()
    assert (clouds.dim, clouds.num_normals) == (9, 6)
    along = normals_of(clouds)[0]
    matrices = torch.diag_embed(along[:, :3])
    row, column = torch.triu_indices(3, 3, offset=1)
    matrices[:, row, column] = math.sqrt(2) * along[:, 3:]  # counts both halves of a quadratic form
    cosines = torch.einsum("ni,nij,nj->n", sphere, matrices, sphere)
    assert cosines.median() > 0.98
    assert (normals_of(clouds)[1, 50:] == 0).all()
    with pytest.raises(ValueError, match="Bag 1: expected at least 4 atoms"):
        PointClouds.from_list([sphere, sphere[:3]]).estimate_normals()
    with pytest.raises(ValueError, match="without normals"):
        clouds.estimate_normals()


@pytest.fixture
def shapes() -> PointClouds:
    return PointClouds.from_curves([CIRCLE, SQUARE], normals=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c[1:],
        lambda c: c[0],
        lambda c: c[[0, 1]],
        lambda c: c.to(torch.float64),
        lambda c: copy.deepcopy(c),
        lambda c: pickle.loads(pickle.dumps(c)),
        lambda c: c.normalize(),
        lambda c: c.resample(7),
        lambda c: PointClouds._concatenate([c, c]),
        lambda c: PointClouds.from_list([c[0], c[1]]),
        lambda c: MixedInputs(shapes=c, age=[1.0, 2.0])[:1].blocks["shapes"],
        lambda c: MixedInputs.concatenate([MixedInputs(shapes=c)] * 2).blocks["shapes"],
    ],
)
def test_metadata_travels(
    shapes: PointClouds, change: Callable[[PointClouds], PointClouds]
) -> None:
    changed = change(shapes)
    assert (changed.num_normals, changed.geometric) == (2, True)
    assert "d=4, num_normals=2, geometric, float64" in repr(changed)


def test_metadata_is_lost_where_parts_differ(shapes: PointClouds) -> None:
    bare = PointClouds(shapes.points, shapes.weights)
    assert PointClouds._concatenate([shapes, bare]).num_normals == 0
    assert not bare.geometric
    assert bare != shapes


def test_explicit_metadata(shapes: PointClouds) -> None:
    assert PointClouds([[0.0, 1.0]], geometric=True).geometric
    assert PointClouds.from_list([[[0.0, 1.0]]], geometric=True).geometric
    assert PointClouds.from_images([[[1.0, 2.0]]]).geometric
    again = PointClouds(shapes.points, shapes.weights, num_normals=2)
    assert again == shapes
    with pytest.raises(ValueError, match="num_normals=1 of 4 columns"):
        PointClouds(shapes.points, shapes.weights, num_normals=1)
    with pytest.raises(ValueError, match=r"normals of length 1, got 5.0 in atom 0"):
        PointClouds.from_list([[[0.0, 0.0, 3.0, 4.0]]], num_normals=2)


def test_normalize_keeps_normals(shapes: PointClouds) -> None:
    scaled = shapes.normalize()
    torch.testing.assert_close(scaled.normals, shapes.normals)
    weights = scaled.weights.unsqueeze(-1) / len(scaled)
    torch.testing.assert_close((weights * scaled.positions).sum((0, 1)), torch.zeros(2).double())
    assert (weights * scaled.positions.square()).sum().item() == pytest.approx(2)
    ratio = (shapes.positions[0, 1] - shapes.positions[0, 0]) / (
        scaled.positions[0, 1] - scaled.positions[0, 0]
    )
    assert ratio[0].item() == pytest.approx(ratio[1].item())
    assert torch.equal(
        shapes.normalize(scale=[3.0, 3.0]).pack(), shapes.normalize(scale=3.0).pack()
    )
    with pytest.raises(ValueError, match="other normals"):
        shapes.normalize(scale=[1.0, 2.0])
    with pytest.raises(TypeError, match="with normals"):
        shapes.normalize(like=PointClouds(shapes.points, shapes.weights))


def test_many_atoms_warn_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gp_distributions.measures._shapes._MANY", 5)
    monkeypatch.setattr("gp_distributions.kernels.aggregates._COSTLY", 5)
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    with pytest.warns(CostWarning, match="8 vertices .* Pass atoms="):
        clouds = PointClouds.from_curves([square] * 2)
    with pytest.warns(CostWarning, match="8 vertices"):
        PointClouds.from_meshes([(square, [[0, 1, 2]])] * 2)
    with pytest.warns(CostWarning, match="8 atoms .* Pass a smaller num_features="):
        AggregateGP(clouds, [0.0, 1.0], aggregate="sum")
    PointClouds.from_curves([square] * 2, atoms=3)
