"""What StandardizedDistance adds to the shared tests: its units, and when they are chosen."""

import copy

import pytest
import torch
from cases import GRID

from gp_distributions import (
    MMD,
    GaussianMixtures,
    Gaussians,
    Hellinger,
    PointClouds,
    RigidSlicedWasserstein,
    ScaledDistance,
    SlicedWasserstein,
)
from gp_distributions.distances import Distance, StandardizedDistance

UNITS = torch.tensor([1e-3, 2.0, 5e4], dtype=torch.float64)


def clouds(num: int = 8, dim: int = 3, seed: int = 0) -> PointClouds:
    generator = torch.Generator().manual_seed(seed)
    points = [torch.randn(3 + i, dim, generator=generator).double() + i for i in range(num)]
    return PointClouds.from_list([UNITS[:dim] * x for x in points])


def adapted(distance: Distance, rows: torch.Tensor, **options: object) -> StandardizedDistance:
    found = StandardizedDistance(distance, **options)  # type: ignore[arg-type]
    found.adapt(rows)
    return found


def test_it_is_the_distance_of_normalised_clouds() -> None:
    X = clouds()
    found = StandardizedDistance(SlicedWasserstein(3)).squared(X.pack())
    expected = SlicedWasserstein(3).squared(X.normalize().pack())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [Gaussians, GaussianMixtures])
def test_spread_includes_variances_which_are_scaled(kind: type) -> None:
    factor = torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    factor = UNITS.unsqueeze(-1) * factor
    mean, covariance = factor[..., 0], factor @ factor.mT
    X = kind(mean[:, 0], covariance[:, 0]) if kind is Gaussians else kind(mean, covariance)
    distance = MMD(3, kernel="polynomial2", inputs="gaussians" if kind is Gaussians else "mixtures")
    expected = distance.squared(X.normalize().pack())
    # The origin matters to moments of second order: the clouds are moved, then scaled.
    centred = X.normalize(scale=1.0)
    found = StandardizedDistance(distance).squared(centred.pack())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_positions_share_a_spread_and_normals_have_no_unit() -> None:
    X = clouds()
    spread = adapted(SlicedWasserstein(3), X.pack()).spread
    joint = adapted(SlicedWasserstein(3), X.pack(), geometric=True)
    torch.testing.assert_close(joint.multipliers, (1 / spread.square().mean().sqrt()).expand(3))
    options = {"num_normals": 1, "normals_factor": 2.5}
    marked = adapted(SlicedWasserstein(3), X.pack(), geometric=True, **options)
    expected = 1 / spread[:2].square().mean().sqrt()
    torch.testing.assert_close(marked.multipliers[:2], expected.expand(2))
    assert marked.multipliers[2] == 2.5
    marked.normals_factor = 3.5
    assert marked.multipliers[2] == 3.5


def test_coordinates_that_rotate_share_a_spread() -> None:
    X = clouds()
    rigid = RigidSlicedWasserstein(3, marks=1, num_slices=20, max_degree=2)
    distance = adapted(rigid, X.pack())
    spread = distance.spread
    torch.testing.assert_close(1 / distance.multipliers[0], spread[:2].square().mean().sqrt())
    torch.testing.assert_close(
        1 / distance.multipliers[1:], torch.stack([1 / distance.multipliers[0], spread[2]])
    )


def test_offsets_do_not_matter_and_constants_stay() -> None:
    X = clouds()
    expected = adapted(SlicedWasserstein(3), X.pack()).spread
    moved = X.points + 1e9 * UNITS
    found = adapted(SlicedWasserstein(3), PointClouds(moved, X.weights).pack()).spread
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0.0)
    points = X.points.clone()
    points[..., 0] = 0.3
    points[::2, :, 0] += 1e-16  # rounding
    constant = adapted(SlicedWasserstein(3), PointClouds(points, X.weights).pack())
    assert constant.spread[0] == 0.0
    assert constant.multipliers[0] == 1.0


def test_the_first_rows_set_the_spread_and_the_bandwidth_in_its_units() -> None:
    X = clouds()
    distance = StandardizedDistance(MMD(3))
    with pytest.raises(ValueError, match="Expected a spread"):
        _ = distance.multipliers
    distance.adapt(X.pack()[:0])
    assert bool(distance.spread.isnan().all())
    distance.squared_norms(X.pack())
    median = MMD(3)
    median.adapt(X.normalize().pack())
    assert distance.distance.bandwidth == pytest.approx(median.bandwidth)
    spread = distance.spread.clone()
    distance.adapt(7.0 * X.pack())
    assert torch.equal(distance.spread, spread)
    loaded = StandardizedDistance(MMD(3))
    loaded.load_state_dict(copy.deepcopy(distance.state_dict()))
    assert torch.equal(loaded.squared(7.0 * X.pack()), distance.squared(7.0 * X.pack()))


def test_scales_are_learned_of_standardised_coordinates() -> None:
    X = clouds()
    distance = ScaledDistance(StandardizedDistance(SlicedWasserstein(3)))
    distance.scales = [3.0, 1.0, 0.5]
    inner = ScaledDistance(SlicedWasserstein(3))
    inner.scales = [3.0, 1.0, 0.5]
    expected = inner.squared(X.normalize().pack())
    torch.testing.assert_close(distance.squared(X.pack()), expected, rtol=1e-10, atol=1e-12)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="reads coordinates, got Hellinger"):
        StandardizedDistance(Hellinger(2, support=GRID))
    for bad in (-1, 3):
        with pytest.raises(ValueError, match="num_normals"):
            StandardizedDistance(SlicedWasserstein(3), num_normals=bad)
    rigid = RigidSlicedWasserstein(3, marks=1, num_slices=20, max_degree=2)
    with pytest.raises(ValueError, match="Expected num_normals <= 1"):
        StandardizedDistance(rigid, num_normals=2)
    with pytest.raises(ValueError, match="normals_factor > 0"):
        StandardizedDistance(SlicedWasserstein(3), normals_factor=0.0)
