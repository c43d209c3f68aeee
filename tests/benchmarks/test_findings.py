"""Parts of the benchmarks behind the findings agree with independent computations."""

import torch

from benchmarks.draws import Draws
from benchmarks.prediction import sliced_or_mmd


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
