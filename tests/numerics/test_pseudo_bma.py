"""Pseudo-BMA+ weights are averages of softmax over Bayesian bootstraps of sums of log densities."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from gp_distributions.numerics.predictions import pseudo_bma_weights


def densities(count: int, models: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, models, generator=generator, dtype=torch.float64)


def test_two_targets_agree_with_the_integral() -> None:
    """With two targets, the share of the first is uniform."""
    found = torch.tensor([[0.3, -0.9, 0.1], [-0.4, 1.1, 0.2]], dtype=torch.float64)

    def weight(share: float, k: int) -> float:
        sums = 2 * (share * found[0] + (1 - share) * found[1])
        return float(sums.softmax(-1)[k])

    expected = [quad(weight, 0, 1, args=(k,))[0] for k in range(3)]
    weights = pseudo_bma_weights(found, samples=20_000)
    # Values in [0, 1] have a standard deviation of at most 1/2.
    np.testing.assert_allclose(weights, expected, rtol=0, atol=5 * 0.5 / math.sqrt(20_000))


def test_what_all_models_share_does_not_matter() -> None:
    found = densities(30, 5)
    shifted = found + 100 * densities(30, 1, seed=1)
    weights = pseudo_bma_weights(found)
    torch.testing.assert_close(pseudo_bma_weights(shifted), weights, rtol=1e-9, atol=1e-12)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert torch.equal(weights, pseudo_bma_weights(found))


def test_equal_models_share_and_worse_ones_vanish() -> None:
    found = densities(50, 1).repeat(1, 3)
    weights = pseudo_bma_weights(found)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3))
    found[:, 2] -= 1.0  # 50 nats in all, without uncertainty
    weights = pseudo_bma_weights(found)
    torch.testing.assert_close(weights[:2], weights.new_tensor([0.5, 0.5]))
    assert weights[2] < math.exp(-49)


def test_uncertain_differences_leave_weights_spread() -> None:
    """A sum that one target decides has less influence than one to which all contribute."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(20, generator=generator, dtype=torch.float64)
    even = torch.stack([torch.full((20,), 0.2), torch.zeros(20)], dim=-1).double()
    uneven = even.clone()
    uneven[:, 0] += 2 * (noise - noise.mean())  # the sums are the same
    assert pseudo_bma_weights(even)[0] > 0.97 > 0.8 > pseudo_bma_weights(uneven)[0] > 0.5
