"""Meshes of trimesh, and files that it reads."""

from pathlib import Path

import numpy as np
import pytest
import trimesh

from gp_distributions import PointClouds


def meshes():
    box = trimesh.creation.box(extents=(1, 2, 3))
    ball = trimesh.creation.icosphere(subdivisions=2)
    return {"box": box, "ball": ball}


def test_objects_of_trimesh():
    made = PointClouds.from_meshes(meshes())
    assert made.labels.tolist() == ["box", "ball"]
    pairs = [(np.array(m.vertices), np.array(m.faces)) for m in meshes().values()]
    plain = PointClouds.from_meshes(pairs)
    assert made.points.equal(plain.points)
    assert made.weights.equal(plain.weights)
    # trimesh shares out the area of faces in another way, but the centre of the area is the same.
    for cloud, mesh in zip(made, meshes().values(), strict=True):
        mean = (cloud.weights.unsqueeze(-1) * cloud.points).sum(0)
        np.testing.assert_allclose(mean, mesh.centroid, atol=1e-12)


@pytest.mark.parametrize(("ending", "kind"), [("stl", str), ("ply", Path), ("glb", Path)])
def test_files(ending, kind, tmp_path: Path):
    paths = []
    for name, mesh in meshes().items():
        paths.append(kind(tmp_path / f"{name}.{ending}"))
        mesh.export(paths[-1])
    made = PointClouds.from_meshes(paths)
    expected = PointClouds.from_meshes(meshes())
    assert made.sizes.tolist() == expected.sizes.tolist()
    for cloud, same in zip(made, expected, strict=True):
        for moment in (1, 2):
            np.testing.assert_allclose(
                cloud.weights @ cloud.points**moment,
                same.weights @ same.points**moment,
                atol=1e-5,  # files hold single precision
            )


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    good = tmp_path / "good.stl"
    trimesh.creation.box().export(good)
    text = tmp_path / "text.stl"
    text.write_text("no mesh")
    for bad in (tmp_path / "missing.stl", text, tmp_path / "unknown.xyzw"):
        with pytest.raises(ValueError, match=rf"Mesh 1 .*{bad.name}.* as a mesh"):
            PointClouds.from_meshes([good, bad])


def test_lists_that_are_none(tmp_path: Path):
    with pytest.raises(ValueError, match=r"different names.*a\.stl' and 'b/a\.ply"):
        PointClouds.from_meshes([tmp_path / "a.stl", "b/a.ply"])
