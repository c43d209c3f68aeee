"""Dictionaries, bags of numbers, and stand-ins for objects of other libraries."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from gp_distributions import PointClouds

RNG = np.random.default_rng(0)
BAGS = {"ann": RNG.normal(size=(3, 2)), "bob": RNG.normal(size=(1, 2)), ("c", 1): [[0, 1], [2, 3]]}


# Lists


def test_keys_of_dictionaries_become_labels():
    made = PointClouds.from_list(BAGS)
    assert made.labels.tolist() == list(BAGS)
    plain = PointClouds.from_list(list(BAGS.values()))
    assert torch.equal(made.points, plain.points)
    weights = {("c", 1): [1, 3], "bob": [2], "ann": [1, 1, 2]}
    made = PointClouds.from_list(BAGS, weights)
    assert made.weights.tolist() == [[0.25, 0.25, 0.5], [1, 0, 0], [0.25, 0.75, 0]]
    clouds = PointClouds.from_list({"one": made[2], "two": BAGS["bob"]})
    assert clouds.labels.tolist() == ["one", "two"]
    assert clouds.weights.tolist() == [[0.25, 0.75, 0], [1, 0, 0]]
    series = pd.Series([[1.0, 2.0], [3.0]], index=["x", "y"])
    assert PointClouds.from_list(dict(series)).labels.tolist() == ["x", "y"]


def test_labels_of_a_list():
    table = pd.DataFrame({"id": ["a", "b"], "x": [[1.0, 2.0], [3.0]]})
    expected = PointClouds.from_list(dict(zip(table["id"], table["x"], strict=True)))
    for labels in (table["id"], pa.table(table)["id"], ["a", "b"], np.array(["a", "b"])):
        assert PointClouds.from_list(table["x"], labels=labels) == expected
    with pytest.raises(ValueError, match="a label for each bag, 2, got 1"):
        PointClouds.from_list(table["x"], labels=["a"])


def test_dictionaries_of_curves_and_meshes():
    curve = np.array([[0.0, 0], [1, 0], [0, 1]])
    made = PointClouds.from_curves({"a": curve, "b": curve[::-1]}, atoms=4)
    assert made.labels.tolist() == ["a", "b"]
    assert PointClouds.from_meshes({"m": (curve, [[0, 1, 2]])}).labels.tolist() == ["m"]
    with pytest.raises(ValueError, match=r"Mesh 0 \(label m\): expected triangles"):
        PointClouds.from_meshes({"m": (curve, [[0, 1, 3]])})


@pytest.mark.parametrize(
    "bags",
    [
        [[1.2, 3.4], [0.5]],
        [np.array([1.2, 3.4]), torch.tensor([0.5], dtype=torch.float64)],
        pd.Series([[1.2, 3.4], [0.5]]),
        iter([[1.2, 3.4], [0.5]]),
    ],
)
def test_lists_of_numbers_are_bags_in_one_dimension(bags):
    made = PointClouds.from_list(bags)
    assert made.points.tolist() == [[[1.2], [3.4]], [[0.5], [0]]]
    assert made.weights.tolist() == [[0.5, 0.5], [1, 0]]


@pytest.mark.parametrize(
    ("bags", "weights", "error", "message"),
    [
        ({"a": [1.0], "b": []}, None, ValueError, r"Bag 1 \(label b\): expected a non-empty"),
        ([[1.0], None], None, ValueError, r"Bag 1: expected real numbers, got None at \(\)\."),
        ([[1.0], [2.0, "x"]], None, ValueError, r"Bag 1: expected real numbers, got 'x' at \(1,\)"),
        (
            pd.DataFrame({"x": [1]}),
            None,
            TypeError,
            r"got DataFrame\. .*Read a long table with .*_frame",
        ),
        ("parts", None, TypeError, r"got str\. Pass a single bag in a list, \[bag\]"),
        (
            {"a": [1.0]},
            {"b": [1]},
            ValueError,
            r"keys of the bags, \['a'\], got weights with keys \['b'\]",
        ),
    ],
)
def test_bad_dictionaries_and_numbers_are_refused(bags, weights, error, message):
    with pytest.raises(error, match=message):
        PointClouds.from_list(bags, weights)


# Single cells


def annotated(matrix, **changes):
    """Behaves like ``anndata.AnnData``."""
    count, genes = 12, 5
    given = {
        "obs": pd.DataFrame({"donor": pd.Categorical(list("bab" * 4), categories=list("abc"))}),
        "obsm": {"X_pca": np.arange(24, dtype=np.float32).reshape(12, 2)},
        "var_names": pd.Index([f"g{i}" for i in range(genes)]),
        "X": matrix,
        "layers": {"counts": np.ones((count, genes))},
    }
    return SimpleNamespace(**(given | changes))


DENSE = RNG.poisson(0.7, size=(12, 5)).astype(np.float32)
DONORS = np.array(list("bab" * 4))


def test_cells_of_a_donor_are_one_cloud():
    made = PointClouds.from_anndata(annotated(None), sample="donor")
    assert made.labels.tolist() == ["b", "a"]
    assert made.dtype == torch.float64
    expected = np.arange(24.0).reshape(12, 2)
    for i, donor in enumerate("ba"):
        cells = expected[donor == DONORS]
        assert made[i].points[: len(cells)].tolist() == cells.tolist()
    assert made.sizes.tolist() == [8, 4]


@pytest.mark.parametrize(
    "matrix",
    [DENSE, sparse.csr_matrix(DENSE), sparse.csr_array(DENSE), sparse.csc_array(DENSE)],
    ids=["dense", "csr_matrix", "csr_array", "csc_array"],
)
@pytest.mark.parametrize("piece", [None, 7, 1])
def test_genes_are_read_from_any_matrix_in_pieces(matrix, piece, monkeypatch):
    if piece:
        monkeypatch.setattr("gp_distributions.measures._anndata._PIECE", piece)
    for rep, columns in (("X", slice(None)), (["g3", "g0"], [3, 0]), ("g1", [1])):
        made = PointClouds.from_anndata(annotated(matrix), sample="donor", rep=rep)
        for i, donor in enumerate("ba"):
            cells = DENSE[donor == DONORS][:, columns]
            assert made[i].points[: len(cells)].tolist() == cells.tolist()
    made = PointClouds.from_anndata(annotated(matrix), sample="donor", rep="g1", layer="counts")
    assert made.points[0].unique().tolist() == [1]


def test_coordinates_of_cells_in_a_frame():
    frame = pd.DataFrame(DENSE[:, :2], columns=["u", "v"])
    made = PointClouds.from_anndata(annotated(None, obsm={"X_pca": frame}), sample="donor")
    assert made.points[1].tolist()[:4] == DENSE[DONORS == "a", :2].tolist()


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"sample": "patient"}, r"one column 'patient', got none; columns: \['donor'\]"),
        ({}, {"rep": "X_umap"}, r"key of adata\.obsm, 'X' or genes .* 'X_umap'; .* \['X_pca'\]"),
        ({"var_names": ["g"] * 5}, {"rep": ["g"]}, r"genes that occur once .* got 'g'"),
        ({}, {"layer": "counts"}, r"no layer along with 'X_pca'"),
        ({"X": None}, {"rep": "g0"}, r"matrix in adata\.X for rep='g0', got None"),
        (
            {"X": np.where(np.arange(12)[:, None] == 4, np.nan, DENSE)},
            {"rep": ["g2"]},
            r"Sample 1 \(label a\): expected finite coordinates, got nan in atom 1, coordinate 0",
        ),
    ],
)
def test_bad_annotations_are_named(changes, options, message):
    with pytest.raises(ValueError, match=message):
        PointClouds.from_anndata(annotated(DENSE, **changes), **({"sample": "donor"} | options))


def test_other_objects_are_not_annotated_matrices():
    with pytest.raises(TypeError, match="Expected an AnnData object, got DataFrame"):
        PointClouds.from_anndata(pd.DataFrame(), sample="donor")


# Shapes


def shape(kind, coordinates):
    """Behaves like a geometry of shapely."""
    return SimpleNamespace(__geo_interface__={"type": kind, "coordinates": coordinates})


OUTER = [(0.0, 0), (4, 0), (4, 4), (0, 4), (0, 0)]
HOLE = [(1.0, 1), (1, 3), (3, 3), (3, 1), (1, 1)]
LINE = [(0.0, 0), (3, 4)]


def test_boundaries_of_holes_belong_to_a_polygon():
    made = PointClouds.from_curves([shape("Polygon", [OUTER, HOLE])])
    assert made.points[0].tolist() == np.array([OUTER[:-1], HOLE[:-1]]).reshape(-1, 2).tolist()
    expected = np.repeat([4, 2], 4) / 24  # in proportion to the sides
    np.testing.assert_allclose(made.weights[0], expected, rtol=1e-15)
    even = PointClouds.from_curves([shape("Polygon", [OUTER, HOLE])], atoms=12)
    ring = [(0, 0), (2, 0), (4, 0), (4, 2), (4, 4), (2, 4), (0, 4), (0, 2)]
    np.testing.assert_allclose(even.points[0, :8], ring, atol=1e-14)
    assert even.points[0, 8].tolist() == [0, 0]  # where the outline ends
    np.testing.assert_allclose(even.points[0, 9:], [(1, 3), (3, 3), (3, 1)], atol=1e-14)


def test_shapes_are_like_their_arrays():
    square = np.array(OUTER[:-1])
    shapes = [
        shape("Polygon", [OUTER]),
        shape("LinearRing", OUTER),
        shape("MultiPolygon", [[OUTER]]),
        shape("Feature", None),
        square,
    ]
    shapes[3].__geo_interface__["geometry"] = shapes[0].__geo_interface__
    shapes.append(shapes[0].__geo_interface__)  # GeoJSON
    for atoms in (None, 5):
        expected = PointClouds.from_curves([square], atoms=atoms)
        made = PointClouds.from_curves(shapes, atoms=atoms)
        assert all(cloud == expected[0] for cloud in made)
        line = PointClouds.from_curves([shape("LineString", LINE)], atoms=atoms)
        assert line == PointClouds.from_curves([LINE], closed=False, atoms=atoms)
    # Those that are closed and those that are open in one call.
    both = PointClouds.from_curves([square, shape("MultiLineString", [LINE, LINE])], atoms=5)
    assert both[0] == PointClouds.from_curves([square], atoms=5)[0]
    expected = [(0, 0), (1.5, 2), (3, 4), (1.5, 2), (3, 4)]
    np.testing.assert_allclose(both[1].points, expected, atol=1e-14)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (shape("Point", (0, 0)), r"Curve 1: .* types LineString, .*, got Point"),
        (shape("Polygon", ()), r"Curve 1: expected a non-empty geometry .* got Polygon"),
        (shape("GeometryCollection", ()), r"got GeometryCollection\. .* shapely\.get_parts"),
        ("POLYGON ((0 0, 1 0, 0 1, 0 0))", r"Curve 1: expected real numbers, .*'POLYGON"),
    ],
)
def test_bad_shapes_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        PointClouds.from_curves([shape("Polygon", [OUTER]), given])


# Meshes


def test_objects_with_vertices_and_faces_are_meshes():
    class Tracked(np.ndarray):
        """A subclass of arrays, as in trimesh."""

    vertices, faces = np.array(OUTER[:-1]), np.array([[0, 1, 2], [0, 2, 3]])
    expected = PointClouds.from_meshes([(vertices, faces)])
    for mesh in (
        SimpleNamespace(vertices=vertices.view(Tracked), faces=faces.view(Tracked)),
        SimpleNamespace(vertices=vertices.tolist(), faces=faces.tolist()),
        SimpleNamespace(vertices=torch.from_numpy(vertices), faces=torch.from_numpy(faces)),
    ):
        assert PointClouds.from_meshes([mesh]) == expected
    with pytest.raises(TypeError, match=r"each mesh, got SimpleNamespace\. Pass .* \[mesh\]"):
        PointClouds.from_meshes(mesh)


@pytest.mark.parametrize(
    ("mesh", "package", "message"),
    [
        ("part.stl", "trimesh", r"Mesh 0 \(label part\): reading it needs trimesh"),
        (shape("Polygon", [OUTER]), "shapely", r"Mesh 0: reading it needs shapely"),
    ],
)
def test_packages_that_are_needed_are_named(mesh, package, message, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        PointClouds.from_meshes([mesh])


def test_a_folder_is_not_a_list_of_meshes():
    for folder in ("parts", Path("parts")):
        with pytest.raises(TypeError, match=r"sorted\(Path\(folder\)\.glob\('\*\.stl'\)\)"):
            PointClouds.from_meshes(folder)
