"""Plots show their data."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator
from matplotlib.colors import to_rgb
from matplotlib.transforms import Bbox

from gp_distributions import PointClouds, ReferenceMeasure, SinkhornPotential
from gp_distributions.metrics import (
    ComparisonEntry,
    Relevance,
    RelevanceEntry,
    Sensitivity,
    reliability,
)
from gp_distributions.plotting import (
    plot_calibration,
    plot_cloud,
    plot_clouds,
    plot_comparison,
    plot_gram,
    plot_plan,
    plot_predictions,
    plot_reference_path,
    plot_relevance,
    plot_sensitivity,
    plot_traces,
)
from gp_distributions.plotting.clouds import is_outline
from gp_distributions.plotting.drawing import line_style


def entries(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_predictions_name_the_target() -> None:
    truth = torch.tensor([0.0, 1.0, 2.0, 3.0])
    ax = plot_predictions(truth, truth, 0.1 * torch.ones(4), label="drag", ax=plt.figure().gca())
    assert ax.get_xlabel() == "true drag"


def test_predictions_without_truth_are_refused() -> None:
    with pytest.raises(ValueError, match=r"those of bag 1 are nan, 0\.5 and 1\.0"):
        plot_predictions([0.0, np.nan], [0.5, 0.5], [1.0, 1.0])


def test_interval_has_the_level() -> None:
    ax = plot_predictions([0.0], [0.0], [1.0], level=0.6826894921370859)
    segment = ax.containers[0].lines[2][0].get_segments()[0]
    np.testing.assert_allclose(segment[:, 1], [-1.0, 1.0], rtol=1e-9)


@pytest.mark.parametrize("outline", [True, False])
def test_gallery_has_one_axes_for_each_cloud(outline: bool) -> None:
    clouds = [np.random.default_rng(i).normal(size=(5, 2)) for i in range(6)]
    axes = plot_clouds(clouds, titles=[str(i) for i in range(6)], columns=4, outline=outline)
    assert [ax.get_title() for ax in axes] == [str(i) for i in range(6)]
    assert plot_clouds(clouds, axes=axes) == axes


def test_gallery_of_clouds_leaves_padding_out() -> None:
    bags = [np.random.default_rng(n).normal(size=(n, 2)) for n in (3, 7)]
    for ax, bag in zip(plot_clouds(PointClouds.from_list(bags), outline=False), bags, strict=True):
        np.testing.assert_array_equal(ax.collections[0].get_offsets(), bag)
    solid = np.random.default_rng(0).normal(size=(2, 5, 3))
    for clouds, message in (
        (PointClouds(bags[0]), "one axis"),
        ([], "at least one cloud, got none"),
        (PointClouds(solid), r"in the plane.*PointClouds\(clouds.points\[\.\.\., :2\]"),
        ([bags[0], solid[1]], r"Cloud 1: .* n x 2 .*got shape \(5, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_clouds(clouds)


def test_normals_are_strokes_from_their_atoms() -> None:
    square = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]
    clouds = PointClouds.from_curves([square, square[:3]], normals=True)
    axes = plot_clouds(clouds, aligned=True)
    assert [len(ax.lines) for ax in axes] == [4, 3]
    strokes = np.array([line.get_xydata() for line in axes[0].lines])
    middles = [[0.0, 1.0], [1.0, 0.0], [1.0, 2.0], [2.0, 1.0]]  # which alignment turns
    starts = sorted(strokes[:, 0].round(1).tolist())
    np.testing.assert_allclose(starts, middles, atol=0.02)
    outward = np.sign((strokes[:, 0] - 1).round(9))
    np.testing.assert_array_equal(np.sign((strokes[:, 1] - strokes[:, 0]).round(9)), outward)
    unoriented = PointClouds.from_curves([square], normals="unoriented")
    assert not plot_clouds(unoriented)[0].lines
    assert len(plot_cloud(clouds[0]).collections[0].get_offsets()) == 4


def test_outlines_of_many_points() -> None:
    """Comparing all edges would take minutes."""
    angles = np.linspace(0, 2 * np.pi, 200_001, endpoint=False)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    assert is_outline(points)
    assert not is_outline(np.random.default_rng(0).permutation(points))


def test_gallery_draws_outlines_as_curves_and_measurements_as_dots() -> None:
    rng = np.random.default_rng(0)
    angles = np.linspace(0, 2 * np.pi, 30)  # the first vertex is also the last
    outlines = [(1 + 0.3 * np.cos(3 * angles)) * [np.cos(angles), np.sin(angles)] for _ in range(2)]
    bags = [rng.normal(size=(n, 2)) for n in (3, 4, 8, 30)]
    images = PointClouds.from_images(rng.random((2, 6, 6)))
    meshes = PointClouds.from_meshes([(np.array([[0, 0], [2, 0], [0, 1]]), [[0, 1, 2]])], atoms=30)
    curves = [each.T for each in outlines]
    for clouds in (curves, PointClouds.from_curves(curves), [*curves, bags[3]]):  # one way for all
        assert all(ax.patches for ax in plot_clouds(clouds))
    for clouds in (bags, PointClouds.from_list(bags), images, meshes, bags[:1]):
        assert not any(ax.patches for ax in plot_clouds(clouds))


@pytest.mark.parametrize("outline", [True, False])
def test_gallery_can_be_aligned(outline: bool) -> None:
    first = np.random.default_rng(0).normal(size=(9, 2)) * [3, 1]
    turned = first @ [[0.6, 0.8], [-0.8, 0.6]] + 4
    for clouds in ([first, turned], PointClouds([first, turned])):
        one, other = plot_clouds(clouds, outline=outline, aligned=True)
        drawn = [
            ax.patches[0].get_xy()[:9] if outline else ax.collections[0].get_offsets()
            for ax in (one, other)
        ]
        np.testing.assert_allclose(drawn[0], first, atol=1e-2)
        np.testing.assert_allclose(drawn[1], first, atol=5e-2)
    apart = plot_clouds([first, turned], outline=outline)[1]
    np.testing.assert_allclose(apart.dataLim.get_points()[0], turned.min(0))


def test_cloud_shows_weights_of_its_atoms() -> None:
    points = np.random.default_rng(0).normal(size=(2, 5, 2))
    weights = np.array([[1.0, 3.0, 0.0, 2.0, 2.0], np.ones(5)])
    ax = plot_cloud(PointClouds(points, weights)[0])
    kept = weights[0] > 0
    (marks,) = ax.collections
    np.testing.assert_array_equal(marks.get_offsets(), points[0, kept])
    np.testing.assert_allclose(marks.get_array(), weights[0, kept] / 8)
    assert marks.get_clim() == (0.0, 3 / 8)
    areas = marks.get_sizes() - 3
    np.testing.assert_allclose(areas / areas.max(), weights[0, kept] / 3)
    assert ax.figure.axes[1].get_ylabel() == "weight"


def test_cloud_tells_signs_apart_by_markers() -> None:
    cloud = PointClouds(np.random.default_rng(0).normal(size=(4, 2)))
    values = torch.tensor([0.5, -2.0, 1.0, -1.0], requires_grad=True)
    ax = plot_cloud(cloud, values, label="gradient")
    above, below = ax.collections
    np.testing.assert_allclose(above.get_array(), [0.5, 1.0])
    np.testing.assert_allclose(below.get_array(), [-2.0, -1.0])
    assert len(above.get_paths()[0].vertices) != len(below.get_paths()[0].vertices)
    assert above.get_clim() == below.get_clim() == (-2.0, 2.0)
    assert ax.figure.axes[1].get_ylabel() == "gradient"
    assert len(plot_cloud(cloud, -np.ones(4)).collections) == 1
    assert len(plot_cloud(cloud, np.zeros(4)).collections) == 1


@pytest.mark.parametrize(
    ("shape", "values", "message"),
    [
        ((3, 4, 2), None, "single cloud"),
        ((4, 3), None, "in the plane"),
        ((4, 2), np.zeros(3), "each of 4 atoms"),
    ],
)
def test_cloud_refuses_others(shape: tuple[int, ...], values: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_cloud(PointClouds(np.zeros(shape)), values)


def test_gram_matrix_is_ordered_by_target() -> None:
    targets = torch.tensor([3.0, 1.0, 2.0])
    matrix = torch.outer(targets, targets).requires_grad_()
    ax = plot_gram(matrix, targets, label="drag")
    np.testing.assert_array_equal(ax.images[0].get_array(), np.outer([1, 2, 3], [1, 2, 3]))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "3"]
    assert ax.get_xlabel() == "cloud, by drag"
    lazy = plot_gram(to_linear_operator(matrix), ax=plt.figure().gca())
    np.testing.assert_array_equal(lazy.images[0].get_array(), matrix.detach())
    with pytest.raises(ValueError, match="each of 3 rows"):
        plot_gram(matrix, targets[:2])


def test_traces_are_the_best_so_far() -> None:
    runs = np.array([[1.0, 0.0, 3.0, 2.0], [0.0, 2.0, 1.0, 4.0], [0.0, 1.0, 1.0, 1.0]])
    ax = plot_traces(
        {"one": [np.nan, 2.0, 1.0, 5.0], "many": runs}, initial=2, optimum=6.0, label="drag"
    )
    optimum, one, many = ax.lines
    np.testing.assert_array_equal(optimum.get_ydata(), [6.0, 6.0])
    np.testing.assert_array_equal(one.get_xdata(), [1, 2, 3, 4])
    np.testing.assert_array_equal(one.get_ydata(), [np.nan, 2, 2, 5])
    np.testing.assert_array_equal(many.get_ydata(), [0, 1, 2, 3])
    band = ax.collections[0].get_paths()[0].vertices
    for evaluation, low, high in ((1, 0, 1), (2, 1, 2), (3, 1, 3), (4, 1, 4)):
        heights = band[band[:, 0] == evaluation, 1]
        assert (heights.min(), heights.max()) == (low, high)
    assert ax.patches[0].get_extents().transformed(ax.transData.inverted()).x1 == pytest.approx(2.5)
    assert entries(ax) == ["random start", "optimum", "one", "many (median of 3 runs)"]
    assert ax.get_ylabel() == "best drag so far"


def test_calibration_curve_is_the_reliability() -> None:
    rng = np.random.default_rng(0)
    truth, mean, std = rng.normal(size=50), rng.normal(size=50), np.full(50, 1.2)
    levels = (0.2, 0.5, 0.9)
    ax = plot_calibration(truth, mean, std, levels=levels, label="one")
    diagonal, line = ax.lines
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(line.get_xdata(), levels)
    np.testing.assert_array_equal(line.get_ydata(), reliability(truth, mean, std, levels=levels))
    sizes = [5] * 20 + [10] * 30
    assert plot_calibration(truth, mean, std, groups=sizes, label="bags of", ax=ax) is ax
    assert entries(ax) == ["calibrated", "one", "95% range of chance", "bags of 5", "bags of 10"]
    assert len({line.get_marker() for line in ax.lines[1:]}) == 3
    within = np.abs(truth[:20] - mean[:20]) <= 1.2 * 1.6448536269514722
    assert ax.lines[2].get_ydata()[-2] == pytest.approx(within.mean())  # at the level 0.9


def test_calibrated_predictions_lie_within_the_band() -> None:
    rng, levels = np.random.default_rng(0), (0.8, 0.3, 0.5)
    ax = plot_calibration(np.zeros(30), np.zeros(30), np.ones(30), levels=levels)
    corners = ax.collections[0].get_paths()[0].vertices
    for level in levels:
        heights = corners[np.isclose(corners[:, 0], level), 1]
        inside = rng.binomial(30, level, size=2000) / 30
        share = np.mean((inside >= heights.min()) & (inside <= heights.max()))
        assert 0.93 < share < 0.99
    assert (corners.min(), corners.max()) == (0, 1)
    few = plot_calibration(np.zeros(90), np.zeros(90), np.ones(90), groups=[0] * 10 + [1] * 80)
    wide, narrow = (np.ptp(band.get_paths()[0].vertices @ [-1, 1]) for band in few.collections)
    assert narrow < wide / 2


def test_lines_differ_without_colour() -> None:
    styles = [line_style(number) for number in range(6)]
    assert len({(str(s["linestyle"]), s["marker"]) for s in styles}) == 6
    lightness = [np.dot(to_rgb(s["color"]), [0.299, 0.587, 0.114]) for s in styles]
    assert np.abs(np.diff(lightness[:4])).min() > 0.1
    assert line_style(6) == styles[0]


def test_path_joins_start_and_end() -> None:
    path = np.random.default_rng(0).normal(size=(4, 3, 2))
    ax = plot_reference_path(path, clouds=PointClouds(path))
    assert len(ax.lines) == 3
    np.testing.assert_allclose(ax.lines[1].get_xydata(), path[:, 1])
    assert entries(ax) == ["data", "start", "learned"]


def test_plan_has_a_line_for_each_visible_mass() -> None:
    """The lines end where the transport plan has mass; padding has none."""
    cloud = PointClouds.from_list([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0]] * 5])[0]
    reference = ReferenceMeasure([[0.0, 0.1], [1.0, 0.5]], weights=[1, 2])
    distance = SinkhornPotential(reference, epsilon=0.01)
    ax = plot_plan(distance, cloud)
    found = {tuple(map(tuple, line)) for line in ax.collections[0].get_segments()}
    circles = reference.points.tolist()
    atoms = cloud.points.tolist()
    assert found == {(tuple(atoms[i]), tuple(circles[j])) for i, j in ((0, 0), (1, 1), (2, 1))}
    assert [len(c.get_offsets()) for c in ax.collections[1:]] == [3, 2]
    assert entries(ax) == ["cloud", "reference"]
    with pytest.raises(ValueError, match="a single cloud in the plane"):
        plot_plan(distance, PointClouds(torch.zeros(2, 3, 2).double()))


def test_arrows_of_sensitivities_are_within_the_axes() -> None:
    cloud = PointClouds(np.array([[[0.0, 0.0], [1.0, 0.0]]]))
    gradient = torch.tensor([[[0.0, 3.0], [0.0, -1.0]]])
    zeros = torch.zeros(1, 2)
    ax = plot_sensitivity(Sensitivity(cloud, gradient, zeros, gradient, zeros))
    low, high = ax.get_ylim()
    assert low < -0.2 / 3
    assert high > 0.2


def test_comparison_has_a_point_for_each_model() -> None:
    entries = [
        ComparisonEntry("best", difference=0.0, error=0.0, weight=0.9),
        ComparisonEntry("other", difference=-0.4, error=0.1, weight=0.001),
        ComparisonEntry("broken", message="ValueError: no"),
    ]
    ax = plot_comparison(entries)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["best", "other", "broken"]
    assert [text.get_text() for text in ax.texts] == ["0.90"]
    bars = [container.lines[2][0].get_segments()[0][:, 0] for container in ax.containers]
    assert [list(bar) for bar in bars] == [[0.0, 0.0], [-0.5, pytest.approx(-0.3)]]
    sizes = [container.lines[0].get_markersize() for container in ax.containers]
    assert sizes[0] > 2 * sizes[1]
    assert plot_comparison(entries, ax=ax) is ax


def test_weights_of_a_comparison_are_within_the_frame() -> None:
    entries = [
        ComparisonEntry("best", difference=0.0, error=0.0, weight=0.43),
        ComparisonEntry("other", difference=-0.011, error=0.063, weight=0.32),
        ComparisonEntry("last", difference=-0.047, error=0.093, weight=0.25),
    ]
    ax = plot_comparison(entries, ax=plt.subplots(figsize=(6, 2.4))[1])
    ax.figure.canvas.draw()
    assert len(ax.texts) == 3
    frame = ax.get_window_extent().padded(1)
    for text in ax.texts:
        place = text.get_window_extent()
        assert Bbox.intersection(place, frame).bounds == pytest.approx(place.bounds)


def test_relevance_has_a_bar_for_each_input() -> None:
    entries = (
        RelevanceEntry("cells", None, 2.0, 0.1),
        RelevanceEntry("cells", "CD3", 0.2, 0.1, scale=0.5),
        RelevanceEntry("cells", "CD4", 1.5, 0.1, scale=1.4),
        RelevanceEntry("age", None, 0.7, 0.1),
    )
    ax = plot_relevance(Relevance(entries))
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["cells", "CD4", "CD3", "age"]
    widths = [patch.get_width() for patch in ax.patches]
    assert widths == [2.0, 1.5, 0.2, 0.7]
    assert [text.get_text() for text in ax.texts] == ["scale 1.4", "scale 0.5"]
    fewer = plot_relevance(Relevance(entries), num=1, sort=False)
    labels = [label.get_text() for label in fewer.get_yticklabels()]
    assert labels == ["cells", "CD4", "age"]
