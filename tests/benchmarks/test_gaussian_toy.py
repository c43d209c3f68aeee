"""The Gaussian toy of Bachoc et al. 2023 and Allain et al. 2024: targets and spreads."""

import pytest
import torch

from benchmarks.papers.gaussian_toy import target, toy


def test_target_is_equation_12() -> None:
    mean = torch.tensor([[-0.5, 0.5, 1.5], [0.0, 0.1, 0.2]], dtype=torch.float64)
    deviation = torch.tensor([0.0, 1.0], dtype=torch.float64)
    expected = torch.tensor([-0.0 + 1.0 - 8.0, (-0.5 + 0.36 - 0.343) / 2], dtype=torch.float64)
    torch.testing.assert_close(target(mean, deviation), expected)


def test_target_in_two_dimensions_is_the_negative_of_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.rand(20, 2, generator=generator, dtype=torch.float64)
    sigma = torch.rand(20, generator=generator, dtype=torch.float64)
    sums = mean[:, 0] + 0.5 - (mean[:, 1] + 0.5) ** 2
    torch.testing.assert_close(target(mean, sigma), -sums / (1 + sigma))
    torch.testing.assert_close(target(mean, sigma, divided=False), -(sums / 1 + sigma))


@pytest.mark.parametrize(
    # The mean variance in units of 1e-4, if it is uniform in [1, 4] or its root is uniform in [1, 2].
    ("uniform", "expected"),
    [("variance", 2.5), ("deviation", 7 / 3)],
)
def test_spread_is_drawn_as_printed(uniform: str, expected: float) -> None:
    train, _, test, _ = toy(2, 0, count=4000, uniform=uniform)
    points = torch.cat([train.points, test.points])
    variances = points.var(-2).mean(-1) / 1e-4
    # The standard error of the mean is 1.0 / sqrt(4000) = .016; the two differ by .17.
    assert abs(float(variances.mean()) - expected) < 0.06
