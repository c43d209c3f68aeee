"""Priors on lengthscales around the median distance."""

import math

import pytest
import torch
from cases import random_rows
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from scipy.stats import lognorm
from torch import Tensor

from gp_distributions import DistributionGP, SlicedWassersteinKernel
from gp_distributions.bayesopt import median_lengthscale_prior

ROWS = random_rows(20)
TARGETS = ROWS.sin().sum(-1)
NONE = torch.Size()


def make_kernel(batch_shape: torch.Size = NONE) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=10, num_quantiles=20, batch_shape=batch_shape)


def median(kernel: SlicedWassersteinKernel) -> Tensor:
    squared = kernel.distance.squared(ROWS)
    return squared[torch.ones_like(squared, dtype=torch.bool).triu(1)].sqrt().median()


@pytest.mark.parametrize("outputs", [1, 2])
def test_is_log_normal_about_the_median(outputs: int) -> None:
    shape = torch.Size([2]) if outputs == 2 else NONE
    kernel = make_kernel(shape)
    model = DistributionGP(
        ROWS, torch.stack([TARGETS] * outputs, -1), ScaleKernel(kernel, batch_shape=shape)
    )
    assert median_lengthscale_prior(model, factor=2.0, scale=0.7) is model
    torch.testing.assert_close(kernel.lengthscale.detach(), median(kernel).expand(*shape, 1, 1))
    at = torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
    expected = lognorm(0.7, scale=2 * float(median(kernel))).logpdf(at.numpy())
    torch.testing.assert_close(kernel.lengthscale_prior.log_prob(at), torch.from_numpy(expected))


def test_leaves_what_is_set() -> None:
    frozen, given, free = make_kernel(), make_kernel(), make_kernel()
    frozen.lengthscale = given.lengthscale = 3.0
    frozen.raw_lengthscale.requires_grad_(False)
    prior = GammaPrior(2.0, 1.0)
    given.register_prior("lengthscale_prior", prior, "lengthscale")
    plain = RBFKernel()
    model = DistributionGP(ROWS, TARGETS, ScaleKernel(frozen) + given + free + plain)
    median_lengthscale_prior(model)
    assert frozen.lengthscale.item() == pytest.approx(3.0)
    assert not hasattr(frozen, "lengthscale_prior")
    assert given.lengthscale_prior is prior
    assert math.exp(float(free.lengthscale_prior.loc)) == pytest.approx(float(median(free)))
    assert not hasattr(plain, "lengthscale_prior")


@pytest.mark.filterwarnings("ignore:All . training clouds coincide")
def test_no_prior_where_all_clouds_coincide() -> None:
    kernel = make_kernel()
    median_lengthscale_prior(DistributionGP(ROWS[:1].expand(5, -1), TARGETS[:5], kernel))
    assert not hasattr(kernel, "lengthscale_prior")
