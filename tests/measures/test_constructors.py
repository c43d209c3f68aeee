"""Reading lists, frames, images, curves and meshes."""

import numpy as np
import pandas as pd
import pytest
import torch
from cases import rand
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_distributions.measures import PointClouds
from gp_distributions.warnings import PrecisionWarning

few = settings(deadline=None, max_examples=20)


# Lists


def test_lists_are_padded_with_zero_weight_at_the_origin():
    bags = [np.array([[1.0, 2]]), [[3, 4], [5, 6]], torch.tensor([[7.0, 8]] * 3)]
    made = PointClouds.from_list(bags)
    assert made.points.shape == (3, 3, 2)
    assert made.sizes.tolist() == [1, 2, 3]
    assert made.points[0].tolist() == [[1, 2], [0, 0], [0, 0]]
    assert made.points[1].tolist() == [[3, 4], [5, 6], [0, 0]]
    assert made.weights[1].tolist() == [0.5, 0.5, 0]
    assert made.dtype == torch.float64
    weighted = PointClouds.from_list(bags, [[1], np.array([1, 3]), torch.ones(3)])
    assert weighted.weights[:2].tolist() == [[1, 0, 0], [0.25, 0.75, 0]]
    assert PointClouds.from_list(bag for bag in bags) == made


def test_single_clouds_keep_their_weights_in_a_list():
    bags = [np.random.default_rng(n).normal(size=(n, 2)) for n in (2, 4, 3)]
    clouds = PointClouds.from_list(bags, [np.arange(1.0, len(bag) + 1) for bag in bags])
    assert PointClouds.from_list([clouds[i] for i in range(3)]) == clouds
    assert PointClouds.from_list(clouds) == clouds
    mixed = PointClouds.from_list([clouds[1], bags[2], bags[0].tolist()])
    assert mixed[0] == clouds[1]
    assert mixed.weights[1:].tolist() == [[1 / 3] * 3 + [0], [0.5, 0.5, 0, 0]]
    single = [clouds.to(torch.float32)[0], bags[1].astype(np.float32)]
    with pytest.warns(PrecisionWarning):
        made = PointClouds.from_list(single)
    assert made.dtype == torch.float32


GOOD = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("bags", "weights", "message"),
    [
        ([], None, r"at least one bag, got an empty list"),
        ([GOOD, np.zeros((4, 2))], None, r"Bag 1: expected 3 columns as in bag 0, got 2"),
        ([GOOD, np.zeros(4)], None, r"Bag 1: .* write n numbers as an array of shape \(n, 1\)"),
        ([GOOD, np.zeros((0, 3))], None, r"Bag 1: expected a non-empty array .* \(0, 3\)"),
        ([GOOD, [[1, 2, 3], [1, 2]]], None, r"Bag 1: .* unequal lengths"),
        ([GOOD, GOOD], [[1, 1]], r"weights for each of 2 bags, got 1"),
        ([GOOD, GOOD], [[1, 1], [1]], r"Weights of bag 1: expected shape \(2,\), .* got \(1,\)"),
        ([GOOD, GOOD], [[1, 1], [0, 0]], r"Bag 1: expected weights with a positive, finite sum"),
        ([GOOD, PointClouds([GOOD])], None, r"Expected single clouds in a list, got PointClouds"),
        ([PointClouds(GOOD), GOOD], [[1, 1]] * 2, r"Expected no weights along with clouds"),
        ([PointClouds(GOOD), np.zeros((2, 2))], None, r"Bag 1: expected 3 columns as in bag 0"),
    ],
)
def test_bad_lists_are_refused(bags, weights, message):
    with pytest.raises(ValueError, match=message):
        PointClouds.from_list(bags, weights)


# Frames


def table(ids, seed=0):
    rng = np.random.default_rng(seed)
    count = len(ids)
    return pd.DataFrame(
        {"bag": ids, "x": rng.normal(size=count), "y": rng.integers(0, 9, count)}
    ).assign(w=rng.random(count) + 0.1)


IDS = np.random.default_rng(1).integers(0, 9, 200)


@pytest.mark.parametrize(
    "ids",
    [
        IDS,
        IDS.astype(str),
        pd.Categorical(IDS.astype(str), categories=[*map(str, range(12))]),
        pd.Timestamp("2020-01-01", tz="UTC") + pd.to_timedelta(IDS, "D"),
        pd.array(IDS, dtype="Int64"),
        np.array([i if i % 2 else str(i) for i in IDS], dtype=object),
    ],
    ids=lambda ids: str(getattr(ids, "dtype", "tuples")),
)
def test_frames_agree_with_groupby(ids):
    frame = table(ids)
    frame.index = frame.index[::-1]  # the index does not matter
    made = PointClouds.from_frame(frame, bag="bag", columns=["x", "y"], weight="w")
    groups = list(frame.groupby("bag", sort=False, observed=True))
    assert list(made.labels) == [label for label, _ in groups]
    assert made.points.shape == (len(groups), max(len(group) for _, group in groups), 2)
    expected = PointClouds.from_list(
        [group[["x", "y"]].to_numpy() for _, group in groups],
        [group["w"].to_numpy() for _, group in groups],
    )
    assert torch.equal(made.points, expected.points)
    assert torch.equal(made.weights, expected.weights)
    assert made != expected  # which has no labels


def test_frames_without_weights_and_with_one_column():
    frame = table(["b", "a", "b"])
    made = PointClouds.from_frame(frame, bag="bag", columns="x")
    assert made.points[0, :, 0].tolist() == frame["x"][[0, 2]].tolist()
    assert made.weights.tolist() == [[0.5, 0.5], [1, 0]]
    assert made.labels.tolist() == ["b", "a"]


def test_labels_follow_selections_and_conversions():
    made = PointClouds.from_frame(table(["b", "a", "c", "b"]), bag="bag", columns=["x", "y"])
    assert made[1:].labels.tolist() == ["a", "c"]
    assert made[::-1].labels.tolist() == ["c", "a", "b"]
    assert made[[2, 0]].labels.tolist() == ["c", "b"]
    assert made[torch.tensor([True, False, True])].labels.tolist() == ["b", "c"]
    assert made[made.labels == "a"] == made[[1]]
    assert made[1].labels == "a"
    assert made[1].labels.shape == ()
    for other in (made.to(torch.float32), made.resample(3), made.normalize()):
        assert other.labels.tolist() == ["b", "a", "c"]
    assert PointClouds.unpack(made.pack(), 2).labels is None
    with pytest.raises(ValueError, match="read-only"):
        made.labels[0] = "z"


@pytest.mark.parametrize(
    "ids",
    [
        ["a", None, "b"],
        pd.Series(["a", pd.NA, 3], dtype=object),
        pd.array([1, None, 2], dtype="Int64"),
        pd.Categorical(["a", None, "b"]),
    ],
)
def test_a_row_without_a_bag_is_named(ids):
    with pytest.raises(ValueError, match=r"Column 'bag': .* missing value in row 1 \(counted"):
        PointClouds.from_frame(table(ids), bag="bag", columns="x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bag": "nope", "columns": "x"}, r"'nope', got none; columns: \['bag', 'x', 'y', 'w'\]"),
        ({"bag": "bag", "columns": "x", "weight": "v"}, r"'v', got none"),
        ({"bag": "bag", "columns": []}, r"at least one column of coordinates"),
    ],
)
def test_bad_columns_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PointClouds.from_frame(table(["a", "b"]), **options)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["0.3", "<0.1", "?"], r"numbers, got '0\.3' in row 0 .*, of bag 'one'\. Convert text"),
        (pd.array([0, None, 1], dtype="boolean"), r"numbers, got <NA> in row 1 .*, of bag 'one'\."),
        ([[1.0, 2.0], [3.0], [4.0]], r"numbers, got \[1\.0, 2\.0\] in row 0"),
    ],
)
@pytest.mark.parametrize("weight", [None, "x"])
def test_entries_that_are_not_numbers_are_named_with_their_row(entries, message, weight):
    frame = pd.DataFrame({"bag": "one", "x": entries, "y": 1.0}, index=["a", "b", "c"])
    with pytest.raises(ValueError, match=message):
        PointClouds.from_frame(frame, bag="bag", columns="y" if weight else "x", weight=weight)


def test_bad_frames_name_the_label():
    frame = table(["wing", "tail", "wing"])
    options = {"bag": "bag", "columns": ["x", "y"], "weight": "w"}
    where = r"'x': expected finite numbers, got nan in row 1 .*, of bag 'tail'\. Convert"
    with pytest.raises(ValueError, match=where):
        PointClouds.from_frame(frame.assign(x=[0, np.nan, 0]), **options)
    with pytest.raises(ValueError, match=r"Bag 0 \(label wing\): expected finite weights >= 0"):
        PointClouds.from_frame(frame.assign(w=[1, 1, -1.0]), **options)
    with pytest.raises(ValueError, match=r"at least one row"):
        PointClouds.from_frame(frame[:0], **options)
    with pytest.raises(ValueError, match=r"Expected unique column names"):
        PointClouds.from_frame(frame[["bag", "x", "x", "y", "w"]], **options)


# Images


def test_pixels_lie_on_the_square_with_y_upward():
    image = np.array([[1.0, 2, 3], [0, 4, 10]])
    made = PointClouds.from_images(image)
    assert made.batch_shape == ()
    expected = [[-1, 1], [0, 1], [1, 1], [-1, -1], [0, -1], [1, -1]]
    assert made.points.tolist() == expected
    assert made.weights.tolist() == [0.05, 0.1, 0.15, 0, 0.2, 0.5]
    column = PointClouds.from_images(np.ones((3, 1)))
    assert column.points.tolist() == [[0, 1], [0, 0], [0, -1]]


def test_gradients_flow_to_pixels():
    images = rand(2, 3, 3)
    assert torch.autograd.gradcheck(
        lambda x: PointClouds.from_images(x).weights, images.requires_grad_()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (0, r"Image 2: expected intensities with a positive, finite sum, got 0\.0"),
        (-1, r"Image 2: expected finite intensities >= 0, got -1\.0"),
    ],
)
def test_bad_images_are_named(change, message):
    images = np.ones((4, 3, 3))
    images[2] = change
    with pytest.raises(ValueError, match=message):
        PointClouds.from_images(images)
    for shape in ((3,), (0, 3, 3), (2, 0, 3)):
        with pytest.raises(ValueError, match=r"non-empty array of shape \(\.\.\., H, W\), got"):
            PointClouds.from_images(np.ones(shape))


@pytest.mark.parametrize("shape", [(5, 8, 6, 3), (5, 8, 6, 4), (2, 5, 8, 6, 3)])
def test_colours_are_refused(shape):
    images = np.random.default_rng(0).random(shape)
    with pytest.raises(ValueError, match=r"one channel.* got shape \(.*images\[\.\.\., :3\]\.mean"):
        PointClouds.from_images(images)
    narrow = PointClouds.from_images(images.reshape(-1, *shape[-2:]))  # one batch axis
    assert narrow.points.shape[1:] == (6 * shape[-1], 2)


# Curves


def angles(count, seed=0):
    """Angles on the circle, dense on one side."""
    uniform = np.sort(np.random.default_rng(seed).random(count))
    return 2 * np.pi * uniform**2


def circle(count, seed=0):
    angle = angles(count, seed)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def test_arc_length_weights_integrate_over_an_uneven_circle():
    angle = angles(400)
    step = np.diff(angle, append=angle[0] + 2 * np.pi).max()
    made = PointClouds.from_curves([circle(400)])
    # The trapezoid rule for |f''| <= 2 gives h^2 / 6, and chords in place of arcs add h^2 / 12.
    error = abs((made.weights * made.points[..., 0] ** 2).sum().item() - 0.5)
    assert error <= step**2 / 4
    assert abs((made.points[..., 0] ** 2).mean().item() - 0.5) > step**2 / 4


def test_the_weight_of_a_vertex_is_half_of_both_segments():
    corner = np.array([[0.0, 0], [3, 0], [3, 4]])
    closed = PointClouds.from_curves([corner]).weights
    assert torch.allclose(closed, torch.tensor([[4.0, 3.5, 4.5]], dtype=torch.float64) / 12)


@few
@given(
    sizes=st.lists(st.integers(2, 6), min_size=1, max_size=4),
    closed=st.booleans(),
    atoms=st.sampled_from([None, 2, 7]),
)
def test_curves_do_not_depend_on_other_curves_or_padding(sizes, closed, atoms):
    curves = [np.random.default_rng(i).normal(size=(n, 3)) for i, n in enumerate(sizes)]
    made = PointClouds.from_curves(curves, closed=closed, atoms=atoms)
    for i, curve in enumerate(curves):
        single = PointClouds.from_curves([curve], closed=closed, atoms=atoms)
        width = single.points.shape[1]
        torch.testing.assert_close(made[i].points[:width], single.points[0])
        torch.testing.assert_close(made[i].weights[:width], single.weights[0])
        assert not made[i].weights[width:].any()


def test_a_repeated_first_vertex_does_not_count_twice():
    curve = circle(40)
    repeated = np.concatenate([curve, curve[:1]])
    plain, double = PointClouds.from_curves([curve]), PointClouds.from_curves([repeated])
    merged = double.weights[0, :-1].clone()
    merged[0] += double.weights[0, -1]
    torch.testing.assert_close(merged, plain.weights[0])
    even, same = (PointClouds.from_curves([c], atoms=16) for c in (curve, repeated))
    torch.testing.assert_close(even.points, same.points)


def test_points_at_equal_arc_length():
    square = np.array([[0.0, 0], [2, 0], [2, 2], [2, 2], [0, 2]])
    made = PointClouds.from_curves([square], atoms=8)
    expected = [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2], [1, 2], [0, 2], [0, 1]]
    torch.testing.assert_close(made.points, torch.tensor([expected], dtype=torch.float64))
    assert made.weights.unique().tolist() == [0.125]
    line = np.array([[0.0], [0], [1], [1], [4], [4]])
    opened = PointClouds.from_curves([line], closed=False, atoms=5)
    assert opened.points[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    single = PointClouds.from_curves([square], atoms=1)
    assert single.points.tolist() == [[[0, 0]]]


@pytest.mark.parametrize("atoms", [None, 5])
@pytest.mark.parametrize("closed", [True, False])
def test_gradients_flow_to_vertices(atoms, closed):
    curves = [
        torch.from_numpy(circle(n, seed=n)[:, :1] + circle(n)).requires_grad_() for n in (4, 6)
    ]

    def read(*curves):
        made = PointClouds.from_curves(curves, closed=closed, atoms=atoms)
        return made.points, made.weights

    assert torch.autograd.gradcheck(read, curves)


@pytest.mark.parametrize("atoms", [None, 5])
@pytest.mark.parametrize("closed", [True, False])
def test_curves_are_differentiable_at_coincident_vertices(atoms, closed):
    curve = torch.tensor([[0, 0], [0, 0], [3, 0], [3, 0], [2, 2.0]], dtype=torch.float64)
    curve.requires_grad_()
    made = PointClouds.from_curves([curve, curve[:3]], closed=closed, atoms=atoms)
    (made.points.square().sum() + made.weights.square().sum()).backward()
    assert curve.grad.isfinite().all()
    assert curve.grad.any()


@pytest.mark.parametrize("atoms", [None, 5])
def test_bad_curves_are_named(atoms):
    good = circle(5)
    for bad, message in [
        (np.ones((4, 2)), r"Curve 1: expected arc lengths with a positive, finite sum, got 0\.0"),
        (np.ones(4), r"Curve 1: .* of shape \(n, 1\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            PointClouds.from_curves([good, bad], atoms=atoms)
    with pytest.raises(ValueError, match="at least one curve"):
        PointClouds.from_curves([], atoms=atoms)
    with pytest.raises(ValueError, match="atoms: expected an integer >= 2, got 1"):
        PointClouds.from_curves([good], closed=False, atoms=1)


# Meshes

CORNERS = np.array([[x, y, z] for x in (-1.0, 1) for y in (-1.0, 1) for z in (-1.0, 1)])
FACES = np.array(
    [
        *([0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5]),
        *([0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6]),
        *([0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]),
    ]
)


def test_area_weights_integrate_linear_functions_exactly_in_any_dimension():
    rng = np.random.default_rng(0)
    for dim in (2, 3, 5):
        vertices = rng.normal(size=(7, dim))
        faces = np.array([[0, 1, 2], [3, 4, 5], [0, 4, 2]])
        made = PointClouds.from_meshes([(vertices, faces)])
        sides = vertices[faces[:, 1:]] - vertices[faces[:, :1]]
        areas = np.sqrt(np.linalg.det(sides @ sides.transpose(0, 2, 1)))
        centre = areas @ vertices[faces].mean(1) / areas.sum()
        np.testing.assert_allclose((made.weights @ made.points)[0, 0], centre, atol=1e-12)
        assert made.weights[0, 6] == 0
        assert made.sizes.tolist() == [6]


def test_thin_triangles_keep_their_area():
    height = 1e-9
    flat = np.array([[0.0, 0, 0], [1, 0, 0], [0.3, height, 0], [0, 0, 1e-9]])
    faces = np.array([[2, 0, 1], [0, 1, 3]])  # two areas of 5e-10
    weights = PointClouds.from_meshes([(flat, faces)]).weights[0]
    assert weights[2].item() == pytest.approx(1 / 6, rel=1e-6)


def test_points_are_uniform_in_area():
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 9], [3, 0, 9], [0, 1, 9]])
    faces = np.array([[0, 1, 2], [0, 0, 0], [3, 4, 5]])  # areas 1 : 0 : 3
    draws = 20_000
    made = PointClouds.from_meshes([(CORNERS, FACES), (vertices, faces)], atoms=draws, seed=4)
    assert made.weights.unique().tolist() == [1 / draws]
    assert made.points[0].abs().amax(-1).sub(1).abs().max() < 1e-12  # on the surface of the cube
    # The mean of a coordinate on it has variance 5/9 / draws.
    assert made.points[0].mean(0).abs().max() < 5 * (5 / 9 / draws) ** 0.5
    x, y, z = made.points[1].T
    upper = z > 4
    assert abs(upper.sum() - 0.75 * draws) <= 1  # one point from each of equal parts
    assert ((x >= 0) & (y >= 0) & (x / torch.where(upper, 3, 1) + y <= 1 + 1e-12)).all()
    # Barycentric coordinates of a uniform point have mean 1/3 and variance 1/18.
    assert abs(y.mean() - 1 / 3) < 5 * (1 / 18 / draws) ** 0.5
    assert abs(x[upper].mean() - 1) < 5 * (9 / 18 / (0.7 * draws)) ** 0.5


@pytest.mark.parametrize("atoms", [None, 5])
def test_meshes_are_differentiable(atoms):
    vertices = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3))).requires_grad_()
    faces = np.array([[0, 1, 2], [1, 2, 3]])

    def read(vertices, faces=faces):
        made = PointClouds.from_meshes([(vertices, faces)], atoms=atoms)
        return made.points, made.weights

    # The gradient holds the chosen triangles fixed.
    assert torch.autograd.gradcheck(read, vertices)
    points, weights = read(vertices, [[0, 0, 1], [0, 1, 2], [3, 3, 3]])  # two have no area
    (points.square().sum() + weights.square().sum()).backward()
    assert vertices.grad.isfinite().all()


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ((CORNERS, FACES + 1), r"Mesh 1: .* from 0 to 7, got \[5.0, 7.0, 8.0\] as face 2"),
        ((CORNERS, FACES / 2), r"Mesh 1: .* got \[0.0, 0.5, 1.5\] as face 0"),
        ((CORNERS, FACES[:, :2]), r"Mesh 1: .* faces of shape \(f, 3\) .* got shape \(12, 2\)"),
        ((CORNERS * 0, FACES), r"Mesh 1: expected areas with a positive, finite sum, got 0\.0"),
        (CORNERS, r"Mesh 1: expected a pair \(vertices, faces\)"),
    ],
)
def test_bad_meshes_are_named(mesh, message):
    for atoms in (None, 4):
        with pytest.raises(ValueError, match=message):
            PointClouds.from_meshes([(CORNERS, FACES), mesh], atoms=atoms)
        with pytest.raises(ValueError, match="at least one mesh"):
            PointClouds.from_meshes([], atoms=atoms)
