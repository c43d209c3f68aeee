"""MMD in every form against double loops, closed forms and the error bounds of approximations."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, rand, randn, random_clouds
from torch import Tensor

from gp_distributions import Gaussians
from gp_distributions.distances.mmd import MMD
from gp_distributions.numerics import random_features
from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS
from gp_distributions.rows.clouds import join_rows, split_rows
from gp_distributions.rows.layout import join_gaussians, join_mixtures

Cloud = tuple[Tensor, Tensor]
BANDWIDTH = 1.3

# Kernels of two points, with explicit bandwidth.
FORMULAS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "gaussian": lambda x, y: math.exp(-((x - y) @ (x - y)) / (2 * BANDWIDTH**2)),
    "laplace": lambda x, y: math.exp(-np.linalg.norm(x - y) / BANDWIDTH),
    "matern32": lambda x, y: _matern32(math.sqrt(3) * np.linalg.norm(x - y) / BANDWIDTH),
    "matern52": lambda x, y: _matern52(math.sqrt(5) * np.linalg.norm(x - y) / BANDWIDTH),
    "inverse_multiquadric": lambda x, y: (1 + (x - y) @ (x - y) / BANDWIDTH**2) ** -0.5,
    "energy": lambda x, y: np.linalg.norm(x) + np.linalg.norm(y) - np.linalg.norm(x - y),
    "linear": lambda x, y: x @ y,
    "polynomial2": lambda x, y: (x @ y + 1) ** 2,
    "polynomial3": lambda x, y: (x @ y + 1) ** 3,
}
ISOTROPIC = ["gaussian", "laplace", "matern32", "matern52", "inverse_multiquadric"]
CLOSED = ["gaussian", "linear", "polynomial2", "polynomial3"]


def _matern32(a: float) -> float:
    return (1 + a) * math.exp(-a)


def _matern52(a: float) -> float:
    return (1 + a + a * a / 3) * math.exp(-a)


def make(kernel: str, **options: Any) -> MMD:
    if kernel in ISOTROPIC:
        options.setdefault("bandwidth", BANDWIDTH)
    return MMD(2, kernel=kernel, **options)


def products_by_loops(kernel: str, clouds: list[Cloud]) -> Tensor:
    """Inner products of all pairs of mean embeddings, atom by atom."""
    k = FORMULAS[kernel]

    def one(p: Cloud, q: Cloud) -> float:
        (x, w), (y, v) = ([t.numpy() for t in cloud] for cloud in (p, q))
        return sum(w[i] * v[j] * k(x[i], y[j]) for i in range(len(w)) for j in range(len(v)))

    return torch.tensor([[one(p, q) for q in clouds] for p in clouds], dtype=torch.float64)


def from_products(products: Tensor) -> Tensor:
    squares = products.diagonal()
    return squares.unsqueeze(-1) + squares - 2 * products


@pytest.fixture(scope="module")
def clouds() -> list[Cloud]:
    return random_clouds(6, sizes=(1, 8))


@pytest.mark.parametrize("kernel", FORMULAS)
class TestExact:
    def test_loops(self, kernel: str, clouds: list[Cloud]) -> None:
        products = products_by_loops(kernel, clouds)
        expected = from_products(products)
        rows, atol = as_rows(clouds), 1e-12 * float(expected.max())
        distance = make(kernel)
        torch.testing.assert_close(distance.squared(rows), expected, rtol=0, atol=atol)
        across = distance.squared(rows, as_rows(clouds[:4], atoms=9))
        torch.testing.assert_close(across, expected[:, :4], rtol=0, atol=atol)
        paired = distance.squared(rows, rows.roll(-1, 0), diag=True)
        target = expected[range(6), [1, 2, 3, 4, 5, 0]]
        torch.testing.assert_close(paired, target, rtol=0, atol=atol)
        norms = distance.squared_norms(rows.unflatten(0, (2, 3))).flatten()
        atol = 1e-12 * float(products.max())
        torch.testing.assert_close(norms, products.diagonal(), rtol=0, atol=atol)

    def test_normalised(self, kernel: str, clouds: list[Cloud]) -> None:
        if kernel == "energy":
            return  # refused, see below
        products = products_by_loops(kernel, clouds)
        root = products.diagonal().sqrt()
        distance = make(kernel, normalize=True)
        expected = 2 - 2 * products / (root.unsqueeze(-1) * root)
        actual = distance.squared(as_rows(clouds))
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
        norms = distance.squared_norms(as_rows(clouds))
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kernel", ["polynomial2", "polynomial3"])
@pytest.mark.parametrize("inputs", ["clouds", "gaussians"])
def test_polynomials_in_many_dimensions(kernel: str, inputs: str) -> None:
    """Beyond 10,000 moments, pairs of atoms are compared instead, with the same result."""
    dim = 101 if kernel == "polynomial2" else 22
    points = 0.1 * randn(4, 3, dim)
    if inputs == "clouds":
        rows = as_rows([(x, torch.ones(3).double()) for x in points])
    else:
        rows = Gaussians(points[:, 0], points.mT @ points).pack()
    distance = MMD(dim, kernel=kernel, inputs=inputs)
    assert not distance.euclidean
    fewer = copy.deepcopy(distance)
    fewer._max_moments = dim**3  # type: ignore[assignment]
    assert fewer.euclidean
    expected = fewer.squared(rows)
    atol = 1e-12 * float(fewer.squared_norms(rows).max())
    torch.testing.assert_close(distance.squared(rows), expected, rtol=0, atol=atol)
    torch.testing.assert_close(distance.squared_norms(rows), fewer.squared_norms(rows))


class TestBandwidth:
    def rows(self) -> Tensor:
        return as_rows(random_clouds(20))

    def test_is_the_median_distance_of_pooled_atoms(self) -> None:
        rows, distance = self.rows(), MMD(2)
        assert distance.bandwidth is None
        distance.squared(rows)
        points, weights = split_rows(rows, 2)
        rng = np.random.default_rng(0)
        drawn = []
        for _ in range(4000):
            i = rng.integers(20)
            w = weights[i].numpy()
            drawn.append(points[i, rng.choice(len(w), p=w / w.sum())])
        expected = torch.pdist(torch.stack(drawn)).median()
        assert distance.bandwidth is not None
        # The median of a thousand draws, whose pairs are dependent.
        assert abs(float(distance.bandwidth / expected) - 1) < 0.1

    @pytest.mark.parametrize("num_clouds", [20, 300])
    def test_depends_neither_on_padding_nor_on_the_order_of_atoms(self, num_clouds: int) -> None:
        points, weights = split_rows(as_rows(random_clouds(num_clouds)), 2)
        one, other = (MMD(2, num_features=5, features="landmarks") for _ in range(2))
        one.adapt(join_rows(points, weights))
        zeros = torch.zeros(num_clouds, 3)
        points = torch.cat([points, torch.ones(num_clouds, 3, 2)], -2).flip(-2)
        other.adapt(join_rows(points, torch.cat([weights, zeros], -1).flip(-1)))
        assert torch.equal(one.bandwidth, other.bandwidth)
        assert torch.equal(one.landmarks, other.landmarks)

    def test_is_that_of_the_first_rows(self) -> None:
        rows, distance = self.rows(), MMD(2)
        distance.adapt(rows)
        first = distance.bandwidth
        distance.squared(100 * rows)
        assert first is not None
        assert torch.equal(distance.bandwidth, first)

    def test_coincident_atoms_have_none(self) -> None:
        with pytest.raises(ValueError, match="give bandwidth="):
            MMD(2).squared(self.rows()[:1, :3].repeat(2, 1), self.rows()[:1, :3])
        distance = MMD(2)
        with pytest.raises(ValueError, match="all atoms coincide"):
            distance.adapt(torch.ones(3, 6).double())
        assert distance.bandwidth is None


class TestFourier:
    @pytest.mark.parametrize("kernel", ISOTROPIC)
    @pytest.mark.parametrize("features", ["orthogonal", "quasi_random"])
    def test_error_falls(self, kernel: str, features: str) -> None:
        """At least as fast as the inverse square root: 16 times as many give a quarter of the error."""
        rows = as_rows(random_clouds(12))
        exact = make(kernel).squared(rows)
        errors = []
        for count in (64, 1024):
            each = [
                make(kernel, num_features=count, features=features, seed=seed).squared(rows) - exact
                for seed in range(8)
            ]
            errors.append(float(torch.stack(each).square().mean().sqrt()))
        assert errors[0] < 0.1
        assert errors[1] <= errors[0] / 4 * 1.5  # a mean of eight squares

    def test_are_of_blocks_of_atoms_without_padding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = as_rows([*random_clouds(5, sizes=(3, 8)), *random_clouds(1, sizes=(90, 90))])
        expected, sizes = MMD(2, num_features=8, bandwidth=1.0).squared(rows), []
        monkeypatch.setattr(random_features, "_BLOCK", 80)
        monkeypatch.setattr(torch.Tensor, "cos", lambda x: sizes.append(x.shape) or torch.cos(x))
        monkeypatch.setattr(MMD, "chunk_elements", 1)
        torch.testing.assert_close(MMD(2, num_features=8, bandwidth=1.0).squared(rows), expected)
        assert 9 < len(sizes) < 20


class TestLandmarks:
    def make(self, count: int, **options: Any) -> MMD:
        return make("gaussian", num_features=count, features="landmarks", **options)

    def test_are_those_of_the_first_rows(self) -> None:
        one, two = as_rows(random_clouds(20)), as_rows(random_clouds(20, seed=1))
        distance = self.make(5)
        assert bool(distance.landmarks.isnan().all())
        distance.squared(one)
        chosen = distance.landmarks.clone()
        distance.squared(two)
        assert torch.equal(distance.landmarks, chosen)

    def test_of_gaussians(self) -> None:
        points, _ = split_rows(as_rows(random_clouds(9, sizes=(6, 6))), 2)
        centred = points - points.mean(1, keepdim=True)
        rows = Gaussians(points.mean(1), centred.mT @ centred / 6).pack()
        exact = make("gaussian", inputs="gaussians").squared(rows)
        error = exact - self.make(40, inputs="gaussians").squared(rows)
        assert float(error.min()) >= -1e-9
        assert float(error.max()) < 1e-2 * float(exact.max())


def random_mixtures(dim: int, num: int = 5, size: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = randn(num, size, dim, seed=generator)
    root = 0.5 * randn(num, size, dim, dim, seed=generator)
    weights = rand(num, size, seed=generator)
    return mean, root @ root.mT, weights / weights.sum(-1, keepdim=True)


# Kernel and options of every form for Gaussians.
FORMS: list[tuple[str, dict[str, Any]]] = [
    *[(kernel, {}) for kernel in CLOSED],
    *[(kernel, {"num_features": 16}) for kernel in ISOTROPIC],
    ("gaussian", {"normalize": True}),
]


class TestGaussians:
    @pytest.mark.parametrize(("kernel", "options"), FORMS)
    def test_without_spread_they_are_clouds(self, kernel: str, options: dict[str, Any]) -> None:
        mean, covariance, weights = random_mixtures(2)
        mixtures = make(kernel, inputs="mixtures", **options)
        clouds = make(kernel, **options)
        rows = join_mixtures(mean, 0 * covariance, weights)
        points = as_rows(list(zip(mean, weights, strict=True)))
        expected = clouds.squared(points)
        atol = 1e-12 * float(expected.max())
        torch.testing.assert_close(mixtures.squared(rows), expected, rtol=0, atol=atol)
        torch.testing.assert_close(mixtures.squared_norms(rows), clouds.squared_norms(points))

    @pytest.mark.parametrize(("kernel", "options"), FORMS)
    def test_gaussian_is_a_mixture_of_one(self, kernel: str, options: dict[str, Any]) -> None:
        mean, covariance, weights = random_mixtures(2, size=1)
        mixtures = make(kernel, inputs="mixtures", **options)
        gaussians = make(kernel, inputs="gaussians", **options)
        expected = mixtures.squared(join_mixtures(mean, covariance, weights))
        actual = gaussians.squared(join_gaussians(mean, covariance).squeeze(1))
        torch.testing.assert_close(actual, expected)

    def test_asymmetric_covariances_count_as_their_symmetric_parts(self) -> None:
        mean, covariance, weights = random_mixtures(2)
        skewed = covariance + 0.1 * torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
        distance = make("gaussian", inputs="mixtures")
        expected = distance.squared(join_mixtures(mean, covariance, weights))
        torch.testing.assert_close(distance.squared(join_mixtures(mean, skewed, weights)), expected)


class TestRefuses:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"kernel": "matern"}, "choose from gaussian, laplace, matern32, matern52"),
            ({"kernel": "energy", "bandwidth": 1.0}, "energy kernel has no bandwidth"),
            ({"bandwidth": 0.0}, "bandwidth > 0"),
            ({"bandwidth": math.nan}, "bandwidth > 0"),
            ({"features": "random"}, "orthogonal"),
            ({"num_features": 7}, "even"),
            ({"features": "landmarks"}, "number of landmarks"),
            ({"kernel": "energy", "num_features": 8}, "no Fourier features"),
            ({"kernel": "energy", "normalize": True}, "cannot be normalised"),
            ({"kernel": "laplace", "inputs": "gaussians"}, "set num_features"),
            ({"kernel": "energy", "inputs": "mixtures"}, "no closed form"),
            ({"inputs": "images"}, "clouds"),
        ],
    )
    def test_what_does_not_exist(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            MMD(2, **options)

    def test_unit_length_of_nothing(self) -> None:
        rows = as_rows(
            [(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double(), torch.ones(2).double())] * 2
        )
        rows[1, 0] = 5
        with pytest.raises(ValueError, match="positive length"):
            MMD(2, kernel="linear", normalize=True).squared(rows)


def test_all_kernels_are_tested() -> None:
    assert set(FORMULAS) == set(EMBEDDING_KERNELS)
