"""The distance that is blind to pose: the theorem, its options, and what it cannot tell apart."""

import math
from typing import Any

import pytest
import torch
from cases import randn
from torch import Tensor

from gp_distributions import Gaussians, PointClouds, RigidSlicedWasserstein, SlicedWasserstein
from gp_distributions.distances import Distance
from gp_distributions.numerics.linear_algebra import absolute_value
from gp_distributions.numerics.nearest import nearest_rotation
from gp_distributions.testing import DistanceTestCase


def rotation(angle: float) -> Tensor:
    cosine, sine = math.cos(angle), math.sin(angle)
    return torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64)


def rotations(num: int, dim: int, seed: int = 1) -> Tensor:
    orthogonal, upper = torch.linalg.qr(randn(num, dim, dim, seed=seed))
    orthogonal = orthogonal * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    orthogonal[:, :, 0] *= torch.linalg.det(orthogonal).unsqueeze(-1)
    return orthogonal


def small_rotations(num: int) -> Tensor:
    vectors = 0.1 * randn(num, 3, 3, seed=4)
    return torch.linalg.matrix_exp(vectors - vectors.mT)


def shapes(num: int, size: int, dim: int, seed: int = 0) -> Tensor:
    """Clouds without symmetry."""
    normal = randn(num, size, dim, seed=seed)
    return normal * torch.linspace(0.5, 2, dim).double() + 0.4 * normal.square().flip(-1)


def rows(points: Tensor) -> Tensor:
    return PointClouds(points).pack()


def difference(distance: Distance, first: Tensor, second: Tensor) -> float:
    """Median over clouds of the relative difference of features."""
    one, other = distance.embed(rows(first)), distance.embed(rows(second))
    return float(((one - other).norm(dim=-1) / one.norm(dim=-1)).median())


class TestPose:
    @pytest.mark.parametrize(("dim", "size", "tolerance"), [(2, 100, 1e-4), (3, 300, 1e-3)])
    def test_rotated_copies(self, dim: int, size: int, tolerance: float) -> None:
        clouds = shapes(12, size, dim)
        turned = clouds @ rotations(12, dim).mT + 3
        assert difference(RigidSlicedWasserstein(dim), clouds, turned) < tolerance
        assert difference(SlicedWasserstein(dim, center=True), clouds, turned) > 0.1

    @pytest.mark.parametrize("dim", [2, 3])
    def test_translation_changes_nothing(self, dim: int) -> None:
        clouds = shapes(6, 30, dim)
        distance = RigidSlicedWasserstein(dim, num_slices=30)
        assert difference(distance, clouds, clouds + 7) < 1e-13
        about_origin = RigidSlicedWasserstein(dim, num_slices=30, center=False)
        assert difference(about_origin, clouds, clouds + 7) > 0.1

    def test_mirror_images(self) -> None:
        clouds = shapes(6, 30, 2)
        mirrored = clouds * torch.tensor([-1.0, 1.0], dtype=torch.float64)
        assert difference(RigidSlicedWasserstein(2), clouds, mirrored) > 0.01
        assert difference(RigidSlicedWasserstein(2, reflections=True), clouds, mirrored) < 1e-12
        solids = shapes(6, 30, 3)
        mirrored = solids * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
        assert difference(RigidSlicedWasserstein(3), solids, mirrored) < 1e-12

    def test_size(self) -> None:
        small, large = (rows(factor * shapes(6, 30, 2)) for factor in (1, 5))
        for center in (True, False):
            blind = RigidSlicedWasserstein(2, scale=True, center=center)
            torch.testing.assert_close(blind.embed(small), blind.embed(large))
        seeing = RigidSlicedWasserstein(2)
        torch.testing.assert_close(5 * seeing.embed(small), seeing.embed(large))


class TestTheorem:
    """At most the root of two times the distance in the best pose; no bound from below."""

    def test_bound_in_the_plane(self) -> None:
        distance = RigidSlicedWasserstein(2, num_slices=60, max_degree=10)
        points, weights = shapes(20, 20, 2), 0.1 + randn(20, 20, seed=7).abs()
        weights[::3, 12:] = 0
        weights = weights / weights.sum(-1, keepdim=True)
        coefficients = distance.represent(points, weights)
        squared = distance.squared(PointClouds(points, weights).pack())
        # A rotation by an angle multiplies the coefficients of degree l by exp(-i l angle).
        cells = (8, 8)
        even, odd = coefficients.split([6 * 2 * cells[0], 5 * 2 * cells[1]], dim=-1)
        best = torch.full_like(squared, math.inf)
        for angle in torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64):
            total = torch.zeros_like(squared)
            for parity, part in enumerate((even, odd)):
                values = part.unflatten(-1, (-1, 2, 8))
                series = torch.complex(values[..., 0, :], values[..., 1, :])
                degrees = torch.arange(parity, 11, 2)
                turned = series * torch.exp(-1j * degrees * angle).unsqueeze(-1)
                counts = torch.where(degrees > 0, 2.0, 1.0).double()
                apart = (turned.unsqueeze(1) - series).abs().square().sum(-1)
                total += (apart * counts).sum(-1)
            best = torch.minimum(best, total)
        off = ~torch.eye(20, dtype=torch.bool)
        ratios = (squared / best)[off]
        assert float(ratios.max()) <= 2 + 1e-9
        assert 0.8 < float(ratios.median()) < 1.6

    def test_bound_in_space(self) -> None:
        """The best of many sampled rotations, improved by a search for the nearest one."""
        distance = RigidSlicedWasserstein(3, num_slices=169)
        first, second = shapes(3, 25, 3), shapes(3, 25, 3, seed=5)
        weights = 0.1 + randn(25, seed=7).abs()
        weights = weights / weights.sum()
        first, second = (x - (weights @ x).unsqueeze(-2) for x in (first, second))
        for one, other in zip(first, second, strict=True):
            near, _ = nearest_rotation(one, weights, other, weights)
            turns = torch.cat([rotations(300, 3), near @ small_rotations(100), near[None]])
            copies = torch.cat([one @ turns.mT, other[None]])
            uniform = weights.expand(len(copies), -1)
            coefficients = distance.represent(copies, uniform)
            sampled = (coefficients[:-1] - coefficients[-1]).square().sum(-1)
            features = distance.embed(PointClouds(copies, uniform).pack())
            squared = (features[:-1] - features[-1]).square().sum(-1)
            assert bool((squared <= 2 * sampled + 1e-12).all())
            # By the triangle inequality, for every pose of the first cloud with the smallest of all.
            between = (features[:-1] - features[-2]).norm(dim=-1).max()
            assert bool((squared.sqrt() <= (2 * sampled.min()).sqrt() + between).all())
            assert float(between) < 0.1 * float(squared.sqrt().median())
            assert float(sampled.min()) < 0.8 * float(sampled[:300].median())

    def test_phases_between_degrees_are_lost(self) -> None:
        """Nearly round blobs whose modes two and three are turned against each other."""
        angles = torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)[:-1]

        def blob(size: float, phase: float) -> Tensor:
            radius = 1 + size * (2 * angles).cos() + size * (3 * angles + phase).cos()
            return radius.unsqueeze(-1) * torch.stack([angles.cos(), angles.sin()], dim=-1)

        ratios = []
        for size in (0.1, 0.05, 0.025):
            one, other = blob(size, 0.0), blob(size, math.pi / 2)
            squared = RigidSlicedWasserstein(2).squared(rows(torch.stack([one, other])))[0, 1]
            turned = [one @ rotation(a) for a in torch.linspace(0, 2 * math.pi, 181).tolist()]
            sliced = SlicedWasserstein(2, center=True)
            best = sliced.squared(rows(torch.stack(turned)), rows(other[None])).min()
            ratios.append(float(squared / best))
        assert ratios[0] < 0.1
        assert ratios[1] < 0.3 * ratios[0]
        assert ratios[2] < 0.3 * ratios[1]


def test_a_single_cell_sees_the_distance_of_the_mean_from_the_origin() -> None:
    """The only coefficient that is not zero is that of degree one, which is half of the mean."""
    points = randn(5, 4, 2)
    norms = points.mean(-2).norm(dim=-1)
    found = RigidSlicedWasserstein(2, num_quantiles=1, center=False).squared(rows(points))
    torch.testing.assert_close(found, (norms[:, None] - norms).square() / 2)


@pytest.mark.parametrize("dim", [2, 3])
def test_degree_zero_is_the_mean_over_all_directions(dim: int) -> None:
    """Hence the distance between cells is that between their means, which pose does not change."""
    distance = RigidSlicedWasserstein(dim, max_degree=0, num_quantiles=2)
    points = shapes(4, 10, dim)
    # Of two centred cells, one is minus the other: a mean absolute projection.
    centred = points - points.mean(-2, keepdim=True)
    upper = (centred @ distance.directions.T).sort(dim=-2).values[:, 5:].mean(-2)
    sizes = upper @ distance.series[0]  # weights of the quadrature
    expected = (sizes[:, None] - sizes).square()
    torch.testing.assert_close(distance.squared(rows(points)), expected)


class TestMarks:
    @pytest.mark.parametrize("marks", [1, 2, 3])
    def test_slices_are_weighted_as_uniform_directions_in_all_coordinates(self, marks: int) -> None:
        """An angle between the parts has the density cos^(d-1) sin^(k-1)."""
        cosines, shares, *others = RigidSlicedWasserstein(3 + marks, marks=marks).slices.T
        sines = torch.stack(others).norm(dim=0)
        torch.testing.assert_close(cosines.square() + sines.square(), torch.ones_like(sines))
        expected = cosines**2 * sines ** (marks - 1)
        torch.testing.assert_close(shares.square(), expected / expected.sum())

    def test_single_atoms_at_the_origin_of_space(self) -> None:
        """Slices see only the mark times the sine, and the absolute value hides its sign."""
        values = torch.tensor([2.0, -0.5, 1.0], dtype=torch.float64)
        points = torch.cat([torch.zeros(3, 1, 2).double(), values[:, None, None]], dim=-1)
        distance = RigidSlicedWasserstein(3, marks=1, num_slices=10, max_degree=3)
        sines = 1 - distance.slices[:, 0].square()
        density = distance.slices[:, 0]  # the cosine, to the power of d - 1
        factor = (density * sines).sum() / density.sum()
        sizes = values.abs()
        expected = factor * (sizes[:, None] - sizes).square()
        torch.testing.assert_close(distance.squared(rows(points)), expected)

    def test_do_not_rotate(self) -> None:
        clouds, charges = shapes(8, 40, 2), randn(8, 40, 1, seed=3)
        turned = clouds @ rotations(8, 2).mT + 2
        distance = RigidSlicedWasserstein(3, marks=1)
        both = (torch.cat([points, charges], dim=-1) for points in (clouds, turned))
        assert difference(distance, *both) < 2e-4


def with_normals(points: Tensor, normals: Tensor) -> Tensor:
    return torch.cat([points, torch.nn.functional.normalize(normals, dim=-1)], dim=-1)


class TestNormals:
    @pytest.mark.parametrize(("dim", "size", "tolerance"), [(2, 100, 1e-4), (3, 300, 1e-3)])
    def test_turn_with_the_shape_and_do_not_move(
        self, dim: int, size: int, tolerance: float
    ) -> None:
        clouds, turns = shapes(8, size, dim), rotations(8, dim)
        normals = clouds + randn(8, size, dim, seed=3)
        distance = RigidSlicedWasserstein(2 * dim, normals=dim)
        here = with_normals(clouds, normals)
        turned = with_normals(clouds @ turns.mT + 3, normals @ turns.mT)
        assert difference(distance, here, turned) < tolerance
        assert difference(distance, here, with_normals(clouds @ turns.mT + 3, normals)) > 0.05

    def test_mirror_images(self) -> None:
        clouds, normals = shapes(6, 30, 2), randn(6, 30, 2, seed=3)
        mirror = torch.tensor([-1.0, 1.0], dtype=torch.float64)
        here, mirrored = (
            with_normals(clouds, normals),
            with_normals(clouds * mirror, normals * mirror),
        )
        assert difference(RigidSlicedWasserstein(4, normals=2), here, mirrored) > 0.01
        blind = RigidSlicedWasserstein(4, normals=2, reflections=True)
        assert difference(blind, here, mirrored) < 1e-12

    def test_and_marks(self) -> None:
        clouds, normals, turns = shapes(6, 80, 2), randn(6, 80, 2, seed=3), rotations(6, 2)
        charges = randn(6, 80, 1, seed=5)
        distance = RigidSlicedWasserstein(5, normals=2, marks=1)
        here, turned, other = (
            torch.cat([with_normals(clouds @ turn, normals @ turn), marks], dim=-1)
            for turn, marks in (
                (torch.eye(2).double(), charges),
                (turns.mT, charges),
                (turns.mT, charges.flip(1)),
            )
        )
        assert difference(distance, here, turned) < 2e-4
        assert difference(distance, here, other) > 0.01

    def test_size_is_that_of_positions(self) -> None:
        clouds, normals = shapes(6, 30, 2), randn(6, 30, 2, seed=3)
        here, large = (with_normals(factor * clouds, normals) for factor in (1, 5))
        blind = RigidSlicedWasserstein(4, normals=2, scale=True)
        assert difference(blind, here, large) < 1e-12


def test_gaussians_are_the_limit_of_their_samples() -> None:
    roots = randn(4, 2, 2)
    samples = randn(4, 20_000, 2, seed=2) @ roots.mT + 3
    gaussians = Gaussians(torch.full((4, 2), 3.0).double(), roots @ roots.mT)
    for center in (True, False):
        closed = RigidSlicedWasserstein(2, inputs="gaussians", center=center)
        sampled = RigidSlicedWasserstein(2, center=center)
        found, expected = closed.embed(gaussians.pack()), sampled.embed(rows(samples))
        error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
        # The coefficient of degree k of the quantile function of n normal samples, in normalised
        # Hermite polynomials, has variance 1 / ((k + 1) n): 3.4 / n in total for 16 cells, k < 16. The
        # absolute value is Lipschitz with constant sqrt(2), and sqrt(2 * 3.4) = 2.6; the rest is for
        # the largest of four.
        assert float(error.max()) < 4 / math.sqrt(20_000)


@pytest.mark.parametrize("center", [True, False])
def test_scaled_gaussians_have_unit_radius(center: bool) -> None:
    """The radius is the root of the mean squared distance to the centre, or to the origin."""
    roots, means = randn(4, 2, 2), randn(4, 2, seed=2)
    covariances = roots @ roots.mT
    squares = covariances.diagonal(dim1=-2, dim2=-1).sum(-1)
    squares = squares if center else squares + means.square().sum(-1)
    scaled = Gaussians(
        means / squares.sqrt().unsqueeze(-1), covariances / squares.reshape(-1, 1, 1)
    )
    options: dict[str, Any] = {"inputs": "gaussians", "center": center}
    found = RigidSlicedWasserstein(2, scale=True, **options).embed(
        Gaussians(means, covariances).pack()
    )
    expected = RigidSlicedWasserstein(2, **options).embed(scaled.pack())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(1, 4), (3, 4), (4, 4), (7, 4)])
def test_absolute_values(shape: tuple[int, int]) -> None:
    matrices = randn(5, *shape)
    values, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    root = (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT
    torch.testing.assert_close(absolute_value(matrices), root, rtol=1e-6, atol=1e-7)
    symmetric = randn(4, 4, seed=1)
    assert torch.autograd.gradcheck(
        lambda h: (absolute_value(h) * (symmetric + symmetric.T)).sum((-2, -1)),
        matrices.requires_grad_(),
    )
    zero = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(absolute_value(zero).sum(), zero)
    assert torch.equal(gradient, torch.zeros_like(zero))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 1}, "2 or 3 coordinates that rotate, got dim=1"),
        ({"dim": 4}, "align the clouds first"),
        ({"dim": 5, "normals": 2}, "as many normals as positions, got normals=2 after 3"),
        ({"dim": 4, "normals": 2, "inputs": "gaussians"}, 'inputs="clouds" with marks or normals'),
        ({"dim": 3, "marks": 2}, "got dim=3 with marks=2"),
        ({"dim": 3, "marks": -1}, "marks: expected an integer >= 0"),
        ({"dim": 3, "marks": 1, "inputs": "gaussians"}, 'inputs="clouds" with marks'),
        ({"dim": 2, "num_quantiles": 0}, "num_quantiles: expected an integer >= 1"),
        ({"dim": 2, "max_degree": -1}, "max_degree: expected an integer >= 0"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    dim = options.pop("dim")
    with pytest.raises(ValueError, match=message):
        RigidSlicedWasserstein(dim, **options)


class TestInSpace(DistanceTestCase):
    def create_distance(self, **kwargs: Any) -> Distance:
        return RigidSlicedWasserstein(3, num_slices=16, max_degree=3, num_quantiles=6, **kwargs)


class TestWithNormalsAndMarks(DistanceTestCase):
    def create_distance(self, **kwargs: Any) -> Distance:
        return RigidSlicedWasserstein(
            5, num_slices=12, max_degree=3, num_quantiles=6, normals=2, marks=1, **kwargs
        )
