"""Conditional densities are ratios of joint densities."""

import torch
from torch.distributions import MultivariateNormal, Normal

from gp_distributions.numerics.densities import conditional_moments


def test_agree_with_ratios_of_joint_densities() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, 7, 7, generator=generator, dtype=torch.float64)
    covariance = root @ root.mT
    noise = 0.1 + torch.rand(2, 7, generator=generator, dtype=torch.float64)
    errors = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    noisy = covariance + torch.diag_embed(noise)
    mean, variance = conditional_moments(
        covariance[:, :4, 4:],
        covariance.diagonal(dim1=-2, dim2=-1)[:, 4:],
        given=errors[:, :4],
        factor=torch.linalg.cholesky(noisy[:, :4, :4]),
    )
    found = Normal(mean, (variance + noise[:, 4:]).sqrt()).log_prob(errors[:, 4:])
    zeros = torch.zeros(2, 7, dtype=torch.float64)

    def joint(some: list[int]) -> torch.Tensor:
        normal = MultivariateNormal(zeros[:, some], noisy[:, some][:, :, some])
        return normal.log_prob(errors[:, some])

    given = list(range(4))
    expected = [joint([*given, i]) - joint(given) for i in range(4, 7)]
    torch.testing.assert_close(found, torch.stack(expected, -1))
