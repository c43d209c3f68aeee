"""Displacements of surfaces: they agree with finite differences of predictions, and are outward."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gp_distributions import DistributionGP, MixedInputs, PointClouds
from gp_distributions.metrics import surface_sensitivity
from gp_distributions.plotting import plot_surface

Floats = NDArray[np.float64]
FACES = np.array(
    [[0, 2, 1], [0, 1, 3], [0, 3, 4], [0, 4, 2], [5, 1, 2], [5, 3, 1], [5, 4, 3], [5, 2, 4]]
)
CORNERS = np.array(
    [[0, 0, -1], [1, 0, 0], [0, 1, 0], [0, -1, 0], [-1, 0, 0], [0, 0, 1]], dtype=float
)
RNG = np.random.default_rng(0)
ANGLES = np.arange(12) * (2 * np.pi / 12)


def solids() -> list[Floats]:
    """Octahedra, each face of which points outward, with corners moved a little."""
    return [CORNERS * [1.0, 1.3, 1.7] * (1 + 0.2 * RNG.uniform(-1, 1, (6, 1))) for _ in range(12)]


def read(shapes: list[Floats], faces: Any, **options: Any) -> PointClouds:
    if faces is None:
        return PointClouds.from_curves(shapes, **options)
    return PointClouds.from_meshes([(shape, faces) for shape in shapes], **options)


@pytest.mark.parametrize("normals", [False, True, "unoriented"])
@pytest.mark.parametrize("kind", ["mesh", "outline", "outline of points", "mixed"])
def test_finite_differences(kind: str, normals: Any) -> None:
    faces = None if kind.startswith("outline") else FACES
    shapes = solids()
    if faces is None:
        radii = 1 + 0.2 * RNG.uniform(-1, 1, (12, 12, 1))
        shapes = [r * np.stack([1.5 * np.cos(ANGLES), np.sin(ANGLES)], 1) for r in radii]
    options: dict[str, Any] = {"normals": normals}
    if kind == "outline of points":
        options["atoms"] = 30
    clouds = read(shapes, faces, **options)
    speed = np.linspace(1.0, 2.0, 12)
    size = np.array([np.abs(shape).prod(1).sum() + np.abs(shape).sum() for shape in shapes])
    X: Any = MixedInputs(part=clouds, speed=speed) if kind == "mixed" else clouds
    model = DistributionGP(X, np.stack([size * speed, size], 1)).eval()

    def predict(vertices: Floats) -> torch.Tensor:
        cloud: Any = read([vertices], faces, **options)
        return model.predict(MixedInputs(part=cloud, speed=[1.3]) if kind == "mixed" else cloud)[0][
            0
        ]

    inputs = MixedInputs(part=clouds[:1], speed=[1.3]) if kind == "mixed" else None
    found = surface_sensitivity(model, shapes[3], faces, inputs=inputs)
    step = 1e-6
    for vertex, place in enumerate(shapes[3]):
        numeric = []
        for axis in np.eye(len(place)):
            ends = [
                shapes[3] + sign * step * (np.arange(len(shapes[3])) == vertex)[:, None] * axis
                for sign in (1, -1)
            ]
            numeric.append((predict(ends[0]) - predict(ends[1])) / (2 * step))
        expected = torch.stack(numeric, -1)
        torch.testing.assert_close(
            found.gradient[:, vertex],
            expected,
            rtol=1e-4,
            atol=1e-5 * float(found.gradient.abs().max()),
        )
    if faces is not None:
        corners = shapes[3][faces]  # whose triangles are counterclockwise seen from outside
        vectors = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2
        near = [(faces == vertex).any(1) for vertex in range(6)]
        normal = np.stack([vectors[each].sum(0) for each in near])
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        area = np.array([np.linalg.norm(vectors[each], axis=1).sum() / 3 for each in near])
        along = (found.gradient * torch.from_numpy(normal)).sum(-1)
        torch.testing.assert_close(found.displacement, along)
        torch.testing.assert_close(found.density, along / torch.from_numpy(area))


@pytest.fixture(scope="module")
def model() -> tuple[DistributionGP, list[Floats]]:
    shapes = solids()
    clouds = read(shapes, FACES, normals=True)
    return DistributionGP(clouds, np.array([np.abs(s).sum() for s in shapes])).eval(), shapes


def test_files_of_separate_or_inward_triangles_mean_the_same(model: Any) -> None:
    gp, shapes = model
    expected = surface_sensitivity(gp, shapes[0], FACES).displacement
    apart = shapes[0][FACES].reshape(-1, 3)
    inward = np.arange(len(apart)).reshape(-1, 3)[:, ::-1]
    found = surface_sensitivity(gp, apart, inward).displacement
    torch.testing.assert_close(found.reshape(-1, 3), expected[torch.from_numpy(FACES)])


def test_open_and_wrong_surfaces(model: Any) -> None:
    gp, shapes = model
    top = surface_sensitivity(gp, shapes[0], FACES[4:])
    assert not top.displacement[0]  # a vertex without triangles does not move anything
    assert not top.density[0]
    turned = surface_sensitivity(gp, shapes[0], FACES[4:, ::-1].copy())
    assert not torch.allclose(
        turned.displacement, top.displacement
    )  # the side from which they turn left
    mixed_up = FACES.copy()
    mixed_up[0] = mixed_up[0, ::-1]
    with pytest.raises(ValueError, match=r"opposite directions.*fix_normals"):
        surface_sensitivity(gp, shapes[0], mixed_up)
    with pytest.raises(ValueError, match="one cloud of shapes with vertices of 2 coordinates"):
        surface_sensitivity(gp, np.ones((5, 2)))


def test_plot_and_file(model: Any, tmp_path: Path) -> None:
    gp, shapes = model
    values = surface_sensitivity(gp, shapes[0], FACES).density
    path = tmp_path / "part.ply"
    ax = plot_surface(shapes[0], FACES, values, label="per mm", path=path)
    assert ax.figure.axes[1].get_ylabel() == "per mm"
    trimesh = pytest.importorskip("trimesh")
    mesh = trimesh.load_mesh(path, process=False)
    np.testing.assert_allclose(mesh.vertices, shapes[0], rtol=1e-6)
    np.testing.assert_array_equal(mesh.faces, FACES)
    colours = np.asarray(mesh.visual.vertex_colors)[:, :3].astype(int)
    assert len(np.unique(colours, axis=0)) > 3
    with pytest.raises(ValueError, match="each of 6 vertices"):
        plot_surface(shapes[0], FACES, values[:3])
