"""The distance that sees sizes, and where defaults have it."""

import pytest
import torch

from gp_distributions import DistributionGP, Gaussians, PointClouds, SlicedWasserstein, fit
from gp_distributions.distances import SizedDistance, StandardizedDistance
from gp_distributions.kernels import default_distance, default_kernels
from gp_distributions.measures.kinds import Distributions

pytestmark = pytest.mark.usefixtures("short_fits")


def bags(num: int, *, seed: int = 0) -> PointClouds:
    """Bags of 3 to 30 atoms of one distribution."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 31, (num,), generator=generator).tolist()
    return PointClouds.from_list(
        [torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in sizes]
    )


def test_squared_distances_and_log_sizes_add_up() -> None:
    X, plain = bags(12), SlicedWasserstein(2)
    distance = SizedDistance(plain, factor=0.5)
    distance.adapt(X.pack())
    logs = X.sizes.double().log()
    apart = (logs.unsqueeze(-1) - logs).square()
    expected = plain.squared(X.pack())
    unit = expected.sum() / apart.sum()
    torch.testing.assert_close(distance.squared(X.pack()), expected + 0.25 * unit * apart)


def test_equal_sizes_add_nothing() -> None:
    points = torch.randn(6, 4, 2, generator=torch.Generator().manual_seed(0)).double()
    rows = PointClouds(points).pack()
    distance = SizedDistance(SlicedWasserstein(2))
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
        assert isinstance(distance, StandardizedDistance)
        assert isinstance(distance.distance, SizedDistance) == sees


def test_sizes_tell() -> None:
    X, new = bags(60), bags(60, seed=1)
    model = fit(DistributionGP(X, X.sizes.double().log()), progress=False)
    error = model.predict(new)[0] - new.sizes.double().log()
    assert error.square().mean() < 0.2 * new.sizes.double().log().var()


def test_it_reads_clouds() -> None:
    with pytest.raises(ValueError, match='inputs="clouds" for SizedDistance'):
        SizedDistance(SlicedWasserstein(2, inputs="gaussians"))
    with pytest.raises(ValueError, match="factor > 0"):
        SizedDistance(SlicedWasserstein(2), factor=0.0)
