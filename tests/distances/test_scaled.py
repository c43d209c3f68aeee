"""What ScaledDistance adds to the shared tests: scales, units, normals, sizes and pose."""

import copy

import pytest
import torch
from cases import GRID, randn
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from gp_distributions import (
    MMD,
    DistributionGP,
    DistributionKernel,
    GaussianMixtures,
    Gaussians,
    Hellinger,
    PointClouds,
    ReferenceMeasure,
    RigidSlicedWasserstein,
    ScaledDistance,
    SinkhornPotential,
    SlicedWasserstein,
    fit_reference,
)
from gp_distributions.distances import Distance
from gp_distributions.kernels import default_distance, default_kernels
from gp_distributions.measures.gaussians import Distributions

SCALES = torch.tensor([3.0, 1.0, 0.5], dtype=torch.float64)
RELATIVE = SCALES / SCALES.square().mean().sqrt()


def clouds(num: int = 6, dim: int = 3, seed: int = 0) -> PointClouds:
    return PointClouds(randn(num, 10, dim, seed=seed))


@pytest.mark.parametrize("p", [1, 2])
def test_it_is_the_distance_of_scaled_clouds(p: int) -> None:
    X, distance = clouds(), SlicedWasserstein(3, p=p)
    scaled = ScaledDistance(distance, standardize=False, scales=SCALES)
    expected = distance.squared(PointClouds(X.points * RELATIVE).pack())
    torch.testing.assert_close(scaled.squared(X.pack()), expected, rtol=1e-12, atol=1e-12)
    assert hasattr(scaled, "embed") == (p == 2)


@pytest.mark.parametrize(
    ("kind", "inputs", "shape"),
    [(Gaussians, "gaussians", (4,)), (GaussianMixtures, "mixtures", (4, 2))],
)
def test_means_and_covariances_are_scaled(kind: type, inputs: str, shape: tuple[int, ...]) -> None:
    factor = torch.randn(*shape, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    mean, covariance = factor[..., 0], factor @ factor.mT
    X = kind(mean, covariance)
    Z = kind(RELATIVE * mean, torch.outer(RELATIVE, RELATIVE) * covariance)
    distance = MMD(3, inputs=inputs, bandwidth=1.0)
    scaled = ScaledDistance(distance, standardize=False, scales=SCALES)
    expected = distance.squared(Z.pack())
    torch.testing.assert_close(scaled.squared(X.pack()), expected, rtol=1e-12, atol=1e-12)
    norms = distance.squared_norms(Z.pack())
    torch.testing.assert_close(scaled.squared_norms(X.pack()), norms, rtol=1e-12, atol=1e-12)


def test_only_ratios_of_scales_matter() -> None:
    first, second = (
        ScaledDistance(SlicedWasserstein(3), standardize=False, scales=scales)
        for scales in ([3.0, 1.0, 0.5], [30.0, 10.0, 5.0])
    )
    torch.testing.assert_close(first.scales, second.scales)
    torch.testing.assert_close(first.scales.square().mean().item(), 1.0)
    outer = ScaledDistance(first, standardize=False, scales=[1.0, 1.0, 2.0])
    rows = clouds().pack()
    product = first.scales * outer.scales
    expected = SlicedWasserstein(3).squared(PointClouds(clouds().points * product.detach()).pack())
    torch.testing.assert_close(outer.squared(rows), expected)


def test_rotating_coordinates_have_one_scale_and_marks_their_own() -> None:
    options = {"num_slices": 20, "max_degree": 4}
    rigid = RigidSlicedWasserstein(4, marks=2, **options)  # type: ignore[arg-type]
    distance = ScaledDistance(rigid, standardize=False)
    assert distance.raw_scales.shape == (3,)
    distance.scales = [2.0, 2.0, 1.0, 0.5]
    turn = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    X = clouds(3, 4)
    points = X.points.clone()
    points[..., :2] @= turn.mT
    apart = distance.squared(X.pack(), PointClouds(points).pack(), diag=True)
    assert bool((apart < 1e-3 * distance.squared(X.pack()).max()).all())
    with pytest.raises(ValueError, match="equal for coordinates that rotate together"):
        distance.scales = [2.0, 1.0, 1.0, 1.0]
    alone = ScaledDistance(RigidSlicedWasserstein(2, **options))  # type: ignore[arg-type]
    assert alone.scales.tolist() == [1.0, 1.0]
    assert not alone.raw_scales.requires_grad


def test_the_default_prior_is_symmetric_about_equal_scales() -> None:
    """One is its median, and a scale is as likely as its inverse in units of the logarithm."""
    prior = ScaledDistance(SlicedWasserstein(3)).scales_prior
    assert prior.cdf(torch.ones(())).item() == 0.5
    assert prior.scale.item() ** 2 == pytest.approx(3)


def test_the_marginal_likelihood_adds_the_prior() -> None:
    X = clouds()
    values = {}
    for learn in (False, True):
        distance = ScaledDistance(SlicedWasserstein(3), learn=learn)
        model = DistributionGP(X, X.points.mean((1, 2)), ScaleKernel(DistributionKernel(distance)))
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        values[learn] = mll(model(*model.train_inputs), model.train_targets).item()
    expected = distance.scales_prior.log_prob(torch.ones(3)).sum().item() / len(X)
    assert values[True] - values[False] == pytest.approx(expected)


def test_references_are_learned_before_scales() -> None:
    X = clouds(dim=2)
    scaled = ScaledDistance(SinkhornPotential(ReferenceMeasure(GRID[:5]), epsilon=1.0))
    model = DistributionGP(X, X.points.mean((1, 2)), ScaleKernel(DistributionKernel(scaled)))
    with pytest.raises(ValueError, match="before it is scaled"):
        fit_reference(model)


UNITS = torch.tensor([1e-3, 2.0, 5e4], dtype=torch.float64)


def unlike(num: int = 8, dim: int = 3, seed: int = 0) -> PointClouds:
    generator = torch.Generator().manual_seed(seed)
    points = [torch.randn(3 + i, dim, generator=generator).double() + i for i in range(num)]
    return PointClouds.from_list([UNITS[:dim] * x for x in points])


def adapted(distance: Distance, rows: torch.Tensor, **options: object) -> ScaledDistance:
    found = ScaledDistance(distance, learn=False, **options)  # type: ignore[arg-type]
    found.adapt(rows)
    return found


def test_it_is_the_distance_of_normalised_unlike() -> None:
    X = unlike()
    found = ScaledDistance(SlicedWasserstein(3), learn=False).squared(X.pack())
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
    found = ScaledDistance(distance, learn=False).squared(centred.pack())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_positions_share_a_spread_and_normals_have_no_unit() -> None:
    X = unlike()
    spread = adapted(SlicedWasserstein(3), X.pack()).spread
    joint = adapted(SlicedWasserstein(3), X.pack(), geometric=True)
    torch.testing.assert_close(joint.multipliers, (1 / spread.square().mean().sqrt()).expand(3))
    marked = adapted(SlicedWasserstein(3), X.pack(), geometric=True, num_normals=1)
    expected = 1 / spread[:2].square().mean().sqrt()
    torch.testing.assert_close(marked.multipliers[:2], expected.expand(2))
    assert marked.multipliers[2] == 3.0
    marked.normals_factor = 3.5
    assert marked.multipliers[2] == 3.5


def test_coordinates_that_rotate_share_a_spread() -> None:
    X = unlike()
    rigid = RigidSlicedWasserstein(3, marks=1, num_slices=20, max_degree=2)
    distance = adapted(rigid, X.pack())
    spread = distance.spread
    torch.testing.assert_close(1 / distance.multipliers[0], spread[:2].square().mean().sqrt())
    torch.testing.assert_close(
        1 / distance.multipliers[1:], torch.stack([1 / distance.multipliers[0], spread[2]])
    )


def test_offsets_do_not_matter_and_constants_stay() -> None:
    X = unlike()
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
    X = unlike()
    distance = ScaledDistance(MMD(3), learn=False)
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
    loaded = ScaledDistance(MMD(3), learn=False)
    loaded.load_state_dict(copy.deepcopy(distance.state_dict()))
    assert torch.equal(loaded.squared(7.0 * X.pack()), distance.squared(7.0 * X.pack()))


def bags(num: int, *, seed: int = 0) -> PointClouds:
    """Bags of 3 to 30 atoms of one distribution."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 31, (num,), generator=generator).tolist()
    return PointClouds.from_list([randn(n, 2, seed=generator) for n in sizes])


def test_squared_distances_and_log_sizes_add_up() -> None:
    X, plain = bags(12), SlicedWasserstein(2)
    distance = ScaledDistance(plain, standardize=False, learn=False, sizes=True)
    distance.adapt(X.pack())
    logs = X.sizes.double().log()
    apart = (logs.unsqueeze(-1) - logs).square()
    expected = plain.squared(X.pack())
    unit = expected.sum() / apart.sum()
    torch.testing.assert_close(distance.squared(X.pack()), expected + 0.09 * unit * apart)


def test_equal_sizes_add_nothing() -> None:
    points = torch.randn(6, 4, 2, generator=torch.Generator().manual_seed(0)).double()
    rows = PointClouds(points).pack()
    distance = ScaledDistance(SlicedWasserstein(2), standardize=False, learn=False, sizes=True)
    distance.adapt(rows)
    torch.testing.assert_close(distance.squared(rows), distance.distance.squared(rows))


@pytest.mark.parametrize(
    ("X", "sees"),
    [
        (bags(5), True),
        (PointClouds(bags(5).points), False),
        (PointClouds(bags(5).points, bags(5).weights, geometric=True), False),
        (Gaussians(torch.zeros(3, 2).double(), torch.eye(2).double().expand(3, 2, 2)), False),
    ],
)
def test_defaults_see_sizes_of_bags_that_vary(X: Distributions, sees: bool) -> None:
    distances = [default_distance(X)]
    distances += [
        kernel.base_kernel.distance for kernel in default_kernels(bags(5)).values()
    ] * sees
    for distance in distances:
        assert isinstance(distance, ScaledDistance)
        assert distance.sizes == sees


def test_the_pose_selects_the_distance() -> None:
    X = clouds(dim=2)
    posed, rigid = SlicedWasserstein(2), RigidSlicedWasserstein(2, num_slices=20, max_degree=4)
    distance = ScaledDistance(posed, standardize=False, learn=False, unposed=rigid)
    assert torch.equal(distance.squared(X.pack()), posed.squared(X.pack()))
    distance.any_pose = True
    assert torch.equal(distance.squared(X.pack()), rigid.squared(X.pack()))
    loaded = ScaledDistance(posed, standardize=False, learn=False, unposed=rigid)
    loaded.load_state_dict(distance.state_dict())
    assert loaded.any_pose
    with pytest.raises(ValueError, match="unposed="):
        ScaledDistance(posed).any_pose = True


def test_the_same_distance_that_learns() -> None:
    X = unlike()
    distance = adapted(SlicedWasserstein(3), X.pack(), sizes=True, scales=[3.0, 1.0, 1.0])
    learning = distance.learning()
    torch.testing.assert_close(learning.squared(X.pack()).detach(), distance.squared(X.pack()))
    assert learning.raw_scales.requires_grad
    assert not distance.raw_scales.requires_grad
    assert learning.distance is distance.distance


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="Expected a Distance, got int"):
        ScaledDistance(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reads coordinates, got Hellinger"):
        ScaledDistance(Hellinger(2, support=GRID))
    distance = ScaledDistance(SlicedWasserstein(3))
    for bad in ([1.0, 0.0, 1.0], [1.0, float("nan"), 1.0]):
        with pytest.raises(ValueError, match="positive, finite scales"):
            distance.scales = bad
    for number in (-1, 3):
        with pytest.raises(ValueError, match="num_normals"):
            ScaledDistance(SlicedWasserstein(3), num_normals=number)
    rigid = RigidSlicedWasserstein(3, marks=1, num_slices=20, max_degree=2)
    with pytest.raises(ValueError, match="Expected num_normals <= 1"):
        ScaledDistance(rigid, num_normals=2)
    with pytest.raises(ValueError, match="normals_factor > 0"):
        distance.normals_factor = 0.0
    with pytest.raises(ValueError, match='inputs="clouds" with sizes'):
        ScaledDistance(SlicedWasserstein(2, inputs="gaussians"), sizes=True)


def test_distances_of_one_set_are_symmetric_bit_by_bit() -> None:
    """SciPy's squareform takes no others."""
    rows = torch.randn(10, 6, generator=torch.Generator().manual_seed(0)).double()
    rows[:, 2::3] = 1
    found = ScaledDistance(SlicedWasserstein(2, num_slices=20)).squared(
        rows * 30, rows.clone() * 30
    )
    assert torch.equal(found, found.mT)
