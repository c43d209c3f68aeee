"""Parts of the benchmarks behind the findings agree with independent computations."""

import torch

from benchmarks.draws import Draws
from benchmarks.papers import slices_and_quantiles
from benchmarks.prediction import sliced_or_mmd


def test_random_slices_estimate_the_distance() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(4, 60, 3, generator=generator).double()
    points += torch.arange(4)[:, None, None]
    random = slices_and_quantiles.random(points, 400, 300, 0)
    even = slices_and_quantiles.even(points, 100, 60, 0)
    pairs = torch.triu(torch.ones(4, 4), 1).bool()
    # The standard error of a mean over 400 slices of a distance that is mostly that of the means.
    torch.testing.assert_close(random[pairs], even[pairs], rtol=4 * 2 / 400**0.5, atol=0)


class TestFamilies:
    def test_shifted_clouds_have_the_covariance_of_their_target(self) -> None:
        points, targets = sliced_or_mmd.shift(3, 20000, 4.0, Draws(0))
        for cloud, target in zip(points, targets, strict=True):
            values = torch.linalg.eigvalsh(cloud.T.cov())
            expected = (2 * target * torch.tensor([-1.0, 1.0])).exp().double()
            # The relative standard error of a variance of n points is sqrt(2 / n) = .01.
            torch.testing.assert_close(values, expected, rtol=0.05, atol=0)

    def test_waves_have_the_amplitude_of_their_target(self) -> None:
        points, targets = sliced_or_mmd.waves(3, 40000, 4.0, Draws(0))
        means = torch.cos(2 * torch.pi * 4 * points[..., 0]).mean(-1)
        # The standard error of the mean of a cosine is at most sqrt(1 / n) = .005.
        torch.testing.assert_close(2 * means, targets, rtol=0, atol=0.05)
