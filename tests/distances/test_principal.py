"""What PrincipalDistance adds to the shared tests: components, what they explain, and states."""

import pytest
import torch
from cases import randn
from sklearn.decomposition import PCA

from gp_distributions import (
    MMD,
    PointClouds,
    ScaledDistance,
    SlicedWasserstein,
)
from gp_distributions.distances import Distance, PrincipalDistance
from gp_distributions.rows.clouds import random_order


def clouds(num: int, *, atoms: int = 12, seed: int = 0) -> PointClouds:
    return PointClouds(randn(num, atoms, 2, seed=seed))


def sliced() -> SlicedWasserstein:
    return SlicedWasserstein(2, num_slices=10, num_quantiles=12)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_components_are_those_of_scikit_learn(exponent: float) -> None:
    train, new = clouds(40).pack(), clouds(5, seed=1).pack()
    distance = PrincipalDistance(sliced(), num_components=6, exponent=exponent)
    distance.adapt(train)
    expected = PCA(6).fit(sliced().embed(train).numpy())
    deviations = torch.from_numpy(expected.explained_variance_).sqrt()
    scales = deviations[0] ** (1 - exponent) * deviations**exponent
    parts = [
        torch.from_numpy(expected.transform(sliced().embed(X).numpy())) / scales
        for X in (new, train)
    ]
    found = distance.squared(new, train)
    torch.testing.assert_close(found, torch.cdist(*parts).square(), rtol=1e-9, atol=1e-12)
    share = expected.explained_variance_ratio_.sum()
    torch.testing.assert_close(distance.explained.item(), share, rtol=1e-9, atol=0)


def test_distances_are_exact_if_clouds_are_fewer_than_components() -> None:
    train, new = clouds(9).pack(), clouds(4, seed=1).pack()
    distance = PrincipalDistance(sliced(), num_components=20, exponent=0.0)
    distance.adapt(train)
    largest = PCA(1).fit(sliced().embed(train).numpy()).explained_variance_.item()
    torch.testing.assert_close(
        largest * distance.squared(train), sliced().squared(train), rtol=1e-9, atol=1e-12
    )
    assert distance.components.shape[-1] == 8  # nine points span eight directions
    assert distance.embed(train).shape[-1] == 20
    assert (largest * distance.squared(new, train) <= sliced().squared(new, train) + 1e-12).all()


def test_the_first_clouds_decide() -> None:
    first, second = clouds(30).pack(), clouds(30, seed=1).pack()
    distance = PrincipalDistance(sliced(), num_components=3)
    before = distance.squared(first)
    distance.squared(second)
    distance.clear_cache()
    assert torch.equal(distance.squared(first), before)


def test_a_few_clouds_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gp_distributions.distances.principal._CLOUDS", 10)
    rows = clouds(40).pack()
    distance, few = (PrincipalDistance(sliced(), num_components=3) for _ in range(2))
    distance.adapt(rows)
    few.adapt(rows[random_order(rows)[::4]])
    assert torch.equal(distance.components, few.components)


def test_scales_apply_before_components() -> None:
    X = clouds(20)
    distance = ScaledDistance(PrincipalDistance(sliced(), num_components=30), standardize=False)
    distance.scales = [2.0, 1.0]
    factors = distance.scales.detach()
    rows = PointClouds(X.points * factors).pack()
    distance.adapt(X.pack())
    with torch.no_grad():
        found = distance.squared(X.pack())
    inner = distance.distance
    assert isinstance(inner, Distance)
    torch.testing.assert_close(found, inner.squared(rows), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("distance", "message"),
    [
        (SlicedWasserstein(2, p=1), "Expected a distance with features"),
        (MMD(2, bandwidth=1.0), "Expected a distance with features"),
        (ScaledDistance(sliced()), "parameters to learn"),
    ],
)
def test_distances_without_fixed_features_are_refused(distance: Distance, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrincipalDistance(distance)


def test_it_has_at_least_one_component() -> None:
    with pytest.raises(ValueError, match="num_components"):
        PrincipalDistance(sliced(), num_components=0)


def test_features_must_not_depend_on_sizes() -> None:
    distance = PrincipalDistance(SlicedWasserstein(2, num_slices=5, num_quantiles=None))
    distance.adapt(clouds(5, atoms=6).pack())
    with pytest.raises(ValueError, match="must not depend on the size of a cloud"):
        distance.embed(clouds(5, atoms=7).pack())
