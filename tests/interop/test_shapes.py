"""Polygons and lines of shapely."""

import numpy as np
import pytest

from gp_distributions import PointClouds

shapely = pytest.importorskip("shapely")

HOLED = shapely.Polygon([(0, 0), (4, 0), (4, 4), (0, 4)], [[(1, 1), (3, 1), (3, 3), (1, 3)]])
BOX = shapely.box(10, 10, 11, 12)


def test_polygons_are_read_as_their_boundaries():
    shapes = [HOLED, BOX, shapely.MultiPolygon([HOLED, BOX]), shapely.Point(0, 0).buffer(1)]
    made = PointClouds.from_curves(shapes)
    for cloud, shape in zip(made, shapes, strict=True):
        size = cloud.sizes.item()
        assert shapely.get_coordinates(shape.boundary).shape[0] == size + len(
            getattr(shape.boundary, "geoms", [0])
        )
        mean = (cloud.weights.unsqueeze(-1) * cloud.points).sum(0)
        np.testing.assert_allclose(
            mean, shapely.get_coordinates(shape.boundary.centroid)[0], atol=1e-12
        )
    even = PointClouds.from_curves(shapes, atoms=400)
    for cloud, shape in zip(even, shapes, strict=True):
        distances = shapely.distance(shape.boundary, shapely.points(cloud.points.numpy()))
        assert distances.max() < 1e-12
        centre = shapely.get_coordinates(shape.boundary.centroid)[0]
        np.testing.assert_allclose(cloud.points.mean(0), centre, atol=0.1)


def test_lines_of_shapely_are_open():
    line = shapely.LineString([(0, 0), (1, 0), (4, 0)])
    made = PointClouds.from_curves([line, shapely.LinearRing([(0, 0), (1, 0), (4, 0)])])
    assert made.weights[0].tolist() == [0.125, 0.5, 0.375]
    assert made.weights[1].tolist() == [0.3125, 0.25, 0.4375]  # back from 4 to 0: sides 1, 3, 4
    several = shapely.MultiLineString([line, line])
    np.testing.assert_allclose(
        PointClouds.from_curves([several]).weights[0], np.array([1, 4, 3] * 2) / 16
    )


def test_areas_of_polygons_leave_out_holes():
    shapes = {"holed": HOLED, "both": shapely.MultiPolygon([HOLED, BOX])}
    made = PointClouds.from_meshes(shapes)
    assert made.labels.tolist() == list(shapes)
    for cloud, shape in zip(made, shapes.values(), strict=True):
        mean = (cloud.weights.unsqueeze(-1) * cloud.points).sum(0)
        np.testing.assert_allclose(mean, shapely.get_coordinates(shape.centroid)[0], atol=1e-12)
    drawn = PointClouds.from_meshes(shapes, atoms=500)
    for cloud, shape in zip(drawn, shapes.values(), strict=True):
        points = shapely.points(cloud.points.numpy())
        assert shapely.distance(shape, points).max() < 1e-12
        inner = shapely.intersects(shape.buffer(-0.4), points).mean()
        share = shape.buffer(-0.4).area / shape.area
        assert abs(inner - share) < 5 * (share * (1 - share) / 500) ** 0.5


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (shapely.Point(0, 0), "Point"),
        (shapely.Polygon(), "Polygon"),
        (shapely.GeometryCollection([BOX]), "GeometryCollection"),
    ],
)
def test_other_geometries_are_refused(shape, message):
    with pytest.raises(ValueError, match=rf"Curve 1: .* types LineString, .*, got {message}\."):
        PointClouds.from_curves([BOX, shape])
    with pytest.raises(
        ValueError, match=rf"Mesh 1: .* types Polygon, MultiPolygon, got {message}\."
    ):
        PointClouds.from_meshes([BOX, shape])
