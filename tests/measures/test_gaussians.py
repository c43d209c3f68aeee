"""Gaussians and their mixtures: validation, rows, labels, samples and normalisation."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gp_distributions.measures import PointClouds
from gp_distributions.measures.gaussians import GaussianMixtures, Gaussians

few = settings(deadline=None, max_examples=30)


def parameters(*shape, seed=0, rank=None):
    """Means of the given shape and covariances of the given rank."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(*shape, shape[-1] if rank is None else rank))
    return rng.normal(size=shape), factor @ np.swapaxes(factor, -1, -2)


def gaussians(*batch_shape, dim=2, seed=0):
    return Gaussians(*parameters(*batch_shape, dim, seed=seed))


def mixtures(*batch_shape, components=3, dim=2, seed=0):
    weights = np.random.default_rng(seed).random((*batch_shape, components)) + 0.1
    return GaussianMixtures(*parameters(*batch_shape, components, dim, seed=seed), weights)


def ragged(seed=0):
    """Mixtures of one to three components in two dimensions."""
    rng = np.random.default_rng(seed)
    return [(*parameters(k, 2, seed=seed + k), rng.random(k) + 0.1) for k in (1, 3, 2)]


either = pytest.mark.parametrize("make", [gaussians, mixtures])


# Construction


def test_asymmetry_within_rounding_is_accepted_and_the_symmetric_part_kept():
    mean, covariance = parameters(4, 3)
    rounded = covariance.copy()
    rounded[..., 0, 1] *= 1 + 1e-15
    made = Gaussians(mean, rounded)
    assert torch.equal(made.covariance, made.covariance.mT)
    assert torch.equal(made.covariance, torch.from_numpy((rounded + rounded.swapaxes(1, 2)) / 2))
    assert torch.equal(made.covariance[:, 1:, 1:], torch.from_numpy(covariance[:, 1:, 1:]))


def test_from_list_pads_with_components_of_weight_zero():
    made = GaussianMixtures.from_list(ragged())
    assert made.sizes.tolist() == [1, 3, 2]
    assert made.mean.shape == (3, 3, 2)
    for mixture, (mean, covariance, weights), size in zip(made, ragged(), (1, 3, 2), strict=True):
        assert mixture.mean[:size].tolist() == mean.tolist()
        assert mixture.covariance[:size].tolist() == covariance.tolist()
        assert mixture.weights[:size].tolist() == pytest.approx(weights / weights.sum())
        assert not mixture.mean[size:].any()
        assert not mixture.covariance[size:].any()
        assert not mixture.weights[size:].any()


def test_from_clouds_takes_weighted_moments():
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(n, 3)) for n in (1, 5, 9)]
    weights = [rng.random(len(bag)) + 0.1 for bag in bags]
    made = Gaussians.from_clouds(PointClouds.from_list(bags, weights))
    for one, bag, w in zip(made, bags, weights, strict=True):
        expected = np.cov(bag.T, aweights=w, ddof=0) if len(bag) > 1 else np.zeros((3, 3))
        np.testing.assert_allclose(one.mean, np.average(bag, axis=0, weights=w), rtol=1e-13)
        np.testing.assert_allclose(one.covariance, expected, rtol=1e-12, atol=1e-14)
    # The results are valid Gaussians: symmetric, and semi-definite within rounding.
    assert Gaussians(made.mean, made.covariance) == made


def test_labels_follow():
    points = np.random.default_rng(0).normal(size=(3, 2, 2))
    made = Gaussians.from_clouds(PointClouds.from_list(dict(zip("abc", points, strict=True))))
    assert made.labels.tolist() == ["a", "b", "c"]
    for other in (made.as_mixtures(), made.normalize(), made.to("cpu"), made.sample(3)):
        assert other[[2, 0]].labels.tolist() == ["c", "a"]


# Validation


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_entries_that_are_not_finite_are_named(value):
    mean, covariance = parameters(4, 3)
    bad = mean.copy()
    bad[2, 1] = value
    with pytest.raises(ValueError, match=rf"Gaussian 2: .* mean, got {value} in coordinate 1\."):
        Gaussians(bad, covariance)
    covariance[2, 1, 0] = covariance[2, 0, 1] = value
    message = rf"expected a finite covariance, got {value} in entry \(0, 1\)\."
    with pytest.raises(ValueError, match=f"Gaussian 2: {message}"):
        Gaussians(mean, covariance)
    with pytest.raises(ValueError, match=rf"Gaussian \(1, 2\): {message}"):
        Gaussians(np.stack([mean] * 2), np.stack([0 * np.nan_to_num(covariance), covariance]))
    with pytest.raises(ValueError, match=f"The mixture, component 2: {message}"):
        GaussianMixtures(mean, covariance)


def test_asymmetric_covariances_are_named():
    mean, covariance = parameters(4, 3)
    covariance[2, 1, 0] = 7
    message = r"symmetric covariance, with differences of 0, got -?[\d.]+ in entry \(0, 1\)\."
    with pytest.raises(ValueError, match=f"Gaussian 2: expected a {message}"):
        Gaussians(mean, covariance)


def test_indefinite_covariances_are_named():
    mean, covariance = parameters(4, 2)
    covariance[2] = [[1, 2], [2, 1]]
    message = r"definite covariance, whose eigenvalues are >= 0, got -1\.0\d*\."
    with pytest.raises(ValueError, match=f"Gaussian 2: expected a positive semi-{message}"):
        Gaussians(mean, covariance)
    covariance[2] = [[-1e-9, 0], [0, -1e-9]]  # small, but nothing is larger
    with pytest.raises(ValueError, match="Gaussian 2: expected a positive semi-definite"):
        Gaussians(mean, covariance)
    with pytest.raises(ValueError, match="Mixture 1, component 0: expected a positive semi-"):
        GaussianMixtures(mean.reshape(2, 2, 2), covariance.reshape(2, 2, 2, 2))


def test_the_tolerance_is_relative_to_each_covariance():
    large = np.diag([1e20, 1.0])
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    Gaussians(np.zeros(2), rotation @ large @ rotation.T)
    small = np.stack([large, np.diag([1e-20, -1e-20])])
    with pytest.raises(ValueError, match="Gaussian 1: expected a positive semi-definite"):
        Gaussians(np.zeros((2, 2)), small)


MEAN, COVARIANCE = parameters(4, 3, 2)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Gaussians, (1.0, np.eye(1)), r"Mean: .* array of shape \(\.\.\., d\), got \(\)"),
        (Gaussians, (MEAN[:0, 0], COVARIANCE[:0, 0]), r"Mean: .* a non-empty .* got \(0, 2\)"),
        (Gaussians, (MEAN[0], np.eye(2)), r"Covariance: .* shape \(3, 2, 2\) .* got \(2, 2\)\."),
        (Gaussians, (MEAN[0], np.ones((3, 2))), r"torch\.diag_embed\(variances\)"),
        (GaussianMixtures, (MEAN[0, 0], COVARIANCE[0, 0]), r"\(\.\.\., K, d\), got \(2,\)"),
        (GaussianMixtures, (MEAN, COVARIANCE, np.ones((4, 2))), r"\(4, 3\) .* got \(4, 2\)"),
        (GaussianMixtures.from_list, ([],), "at least one mixture, got an empty list"),
    ],
)
def test_mismatched_shapes_are_refused(kind, given, message):
    with pytest.raises(ValueError, match=message):
        kind(*given)


def test_mixtures_in_lists_are_named():
    mean, covariance = MEAN, COVARIANCE
    with pytest.raises(ValueError, match=r"Mixture 1: Covariance: expected shape \(3, 2, 2\)"):
        GaussianMixtures.from_list([ragged()[0], (mean[0], covariance[0, :2], np.ones(3))])
    with pytest.raises(ValueError, match=r"Mixture 1: expected means of .* \(K, 2\), got \(3, 1\)"):
        GaussianMixtures.from_list([ragged()[0], (*parameters(3, 1), np.ones(3))])


# Gradients


def test_gradients_flow_through_means_covariances_and_weights():
    rng = np.random.default_rng(0)
    mean, factor, weights = (
        torch.from_numpy(rng.normal(size=shape)).requires_grad_()
        for shape in ((2, 3, 2), (2, 3, 2, 2), (2, 3))
    )

    def of_gaussians(mean: Tensor, factor: Tensor) -> tuple[Tensor, ...]:
        made = Gaussians(mean, factor @ factor.mT)
        return made[[1, 0]].pack(), made.normalize().pack(), made.normalize(scale=2.0).pack()

    def of_mixtures(mean: Tensor, factor: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        made = GaussianMixtures(mean, factor @ factor.mT, weights.square())
        return made[[1, 0]].pack(components=4), made.normalize().pack()

    def of_clouds(points: Tensor, weights: Tensor) -> Tensor:
        return Gaussians.from_clouds(PointClouds(points, weights.square())).pack()

    assert torch.autograd.gradcheck(of_gaussians, (mean, factor))
    assert torch.autograd.gradcheck(of_mixtures, (mean, factor, weights))
    assert torch.autograd.gradcheck(of_clouds, (mean, weights))


def test_the_gradient_in_a_covariance_is_symmetric():
    mean, covariance = (torch.from_numpy(a) for a in parameters(3, 2))
    slope = torch.arange(18.0, dtype=torch.float64).reshape(3, 6)
    (Gaussians(mean, covariance.requires_grad_()).pack() * slope).sum().backward()
    expected = slope[:, 2:].unflatten(-1, (2, 2))
    assert torch.equal(covariance.grad, (expected + expected.mT) / 2)


# Rows


@few
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    components=st.integers(1, 4),
    more=st.integers(0, 2),
    seed=st.integers(0, 100),
)
def test_unpack_inverts_pack_exactly(shape, components, more, seed):
    *batch_shape, dim = shape
    made = gaussians(*batch_shape, dim=dim, seed=seed)
    assert made.pack().shape == (*batch_shape, dim + dim * dim)
    assert Gaussians.unpack(made.pack(), dim) == made
    mixed = mixtures(*batch_shape, components=components, dim=dim, seed=seed)
    assert mixed.pack().shape == (*batch_shape, components * (dim + dim * dim + 1))
    assert GaussianMixtures.unpack(mixed.pack(), dim) == mixed
    wide = GaussianMixtures.unpack(mixed.pack(components=components + more), dim)
    assert torch.equal(wide.mean[..., :components, :], mixed.mean)
    assert torch.equal(wide.covariance[..., :components, :, :], mixed.covariance)
    assert torch.equal(wide.weights[..., :components], mixed.weights)
    assert not wide.weights[..., components:].any()


@pytest.mark.parametrize(
    ("kind", "rows", "dim", "message"),
    [
        (Gaussians, np.ones((2, 7)), 2, r"width dim \+ dim\^2 = 6 .* \(2, 7\)"),
        (GaussianMixtures, np.ones((2, 6)), 2, r"dim \+ dim\^2 \+ 1 = 7 .* \(2, 6\)"),
        (GaussianMixtures, [[0, 1, 1, 0, 1, -1.0]], 1, r"Mixture 0: expected finite weights >= 0"),
    ],
)
def test_rows_are_validated(kind, rows, dim, message):
    with pytest.raises(ValueError, match=message):
        kind.unpack(rows, dim)


# Samples


def test_samples_have_the_moments_of_the_gaussian():
    """Sample means and covariances are normal about the true ones, with known variances."""
    mean, covariance = parameters(4, 3, rank=2)
    covariance[0] = 0
    made, count = Gaussians(mean, covariance), 20_000
    drawn = made.sample(count, seed=1)
    assert drawn.points.shape == (4, count, 3)
    assert drawn.weights.unique().tolist() == [1 / count]
    assert torch.equal(drawn.points[0], made.mean[0].expand(count, 3))
    again = Gaussians.from_clouds(drawn)
    variance = made.covariance.diagonal(dim1=-2, dim2=-1)
    # Entry (i, j) of a sample covariance has the variance (S_ii S_jj + S_ij^2) / n.
    spread = variance.unsqueeze(-1) * variance.unsqueeze(-2) + made.covariance.square()
    assert ((again.mean - made.mean).abs() <= 5 * (variance / count).sqrt() + 1e-12).all()
    error = (again.covariance - made.covariance).abs()
    assert (error <= 5 * (spread / count).sqrt() + 1e-12).all()
    # Samples leave the plane of a flat Gaussian by no more than the root of rounding.
    low = torch.linalg.eigvalsh(again.covariance[1:])[:, 0]
    assert (low.abs() <= 1e-12).all()


def test_samples_take_components_by_weight():
    weights = np.array([0.1, 0, 0.6, 0.3])
    apart = GaussianMixtures(10.0 * np.arange(4)[:, None], np.full((4, 1, 1), 0.25), weights)
    count = 20_000
    points = apart.sample(count, seed=1).points[:, 0]
    nearest = (points / 10).round().long()  # the next is twenty standard deviations away
    share = torch.bincount(nearest, minlength=4) / count
    assert share[1] == 0
    assert (share - apart.weights).abs().max() <= 5 * 0.5 / count**0.5
    noise = points - 10.0 * nearest
    assert abs(float(noise.mean())) <= 5 * 0.5 / count**0.5
    assert float(noise.square().mean()) == pytest.approx(0.25, abs=5 * 0.25 * (2 / count) ** 0.5)
    # The noise of a draw does not depend on its component.
    assert abs(float(torch.corrcoef(torch.stack([noise, nearest.double()]))[0, 1])) < 5 / count**0.5


@either
def test_samples_are_seeded_and_keep_batch_axes(make):
    made = make(3, 4)
    assert made.sample(7).points.shape == (3, 4, 7, 2)
    assert made.sample(7, seed=1) == made.sample(7, seed=1)
    assert made.sample(7, seed=1) != made.sample(7, seed=2)
    generator = torch.Generator().manual_seed(3)
    first, second = made.sample(9, seed=generator), made.sample(9, seed=generator)
    assert first == made.sample(9, seed=3)
    assert first != second
    assert made[0][0].sample(5).points.shape == (5, 2)
    made.mean.requires_grad_()
    assert not made.sample(2).points.requires_grad


# Normalisation


def assert_close(one, other):
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.covariance, other.covariance, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [None, 3.0, [2.0, 0.5]])
def test_normalize_agrees_with_that_of_clouds(scale):
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(n, 2)) * [3, 0.1] + rng.normal(size=2) for n in (4, 9, 5)]
    weights = [rng.random(len(bag)) + 0.1 for bag in bags]
    train, test = PointClouds.from_list(bags, weights), PointClouds.from_list(bags[1:])
    expected = Gaussians.from_clouds(test.normalize(train, scale=scale))
    actual = Gaussians.from_clouds(test).normalize(Gaussians.from_clouds(train), scale=scale)
    assert_close(actual, expected)
    alone = Gaussians.from_clouds(train).normalize(scale=scale)
    assert_close(alone, Gaussians.from_clouds(train.normalize(scale=scale)))


def test_normalize_of_mixtures_pools_their_components():
    made = GaussianMixtures.from_list(ragged())
    normal = made.normalize()
    weights = normal.weights.unsqueeze(-1)
    mean = (weights * normal.mean).sum(-2).mean(0)
    squares = normal.covariance.diagonal(dim1=-2, dim2=-1) + normal.mean.square()
    torch.testing.assert_close(mean, torch.zeros(2).double(), rtol=0, atol=1e-14)
    torch.testing.assert_close((weights * squares).sum(-2).mean(0), torch.ones(2).double())
    correlations = [
        c.covariance[..., 0, 1] / c.covariance.diagonal(dim1=-2, dim2=-1).prod(-1).sqrt()
        for c in (made[1], normal[1])
    ]
    torch.testing.assert_close(*correlations)
    padded = GaussianMixtures.unpack(made.pack(components=5), 2)
    assert torch.equal(made.normalize(padded).mean, normal.mean)
    assert made[:1].normalize(made).pack().shape == (1, 21)


def test_normalize_refuses_constant_coordinates():
    mean, covariance = parameters(3, 2)
    mean[:, 1], covariance[:, 1], covariance[:, :, 1] = 0.1, 0, 0
    made = Gaussians(mean, covariance)
    with pytest.raises(ValueError, match=r"Coordinate 1: .* got one value everywhere"):
        made.normalize()
    padded = GaussianMixtures(mean[None], covariance[None]).pack(components=4)
    with pytest.raises(ValueError, match=r"Coordinate 1: .*"):  # padding does not count as spread
        GaussianMixtures.unpack(padded, 2).normalize()
    covariance[0, 1, 1] = 1e-30
    Gaussians(mean, covariance).normalize()


@pytest.mark.parametrize("form", [pd.Series, np.array, torch.DoubleTensor, list])
def test_numbers_with_errors_are_gaussians_in_one_dimension(form: Any) -> None:
    found = Gaussians.from_mean_std(form([1.0, 2.0, 3.0]), form([0.1, 0.2, 0.3]))
    assert found == Gaussians.from_mean_std([[1.0], [2.0], [3.0]], [[0.1], [0.2], [0.3]])
