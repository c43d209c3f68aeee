"""Stacking weights maximise the log density of the mixture on the simplex."""

import numpy as np
import pytest
import torch
from torch import Tensor

from gp_distributions.numerics.predictions import stacking_weights


def densities(count: int, models: int, spread: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, models, generator=generator, dtype=torch.float64)
    skill = torch.rand(models, generator=generator, dtype=torch.float64)
    return spread * (noise - skill) + 5 * noise[:, :1]


def objective(log_densities: Tensor, weights: Tensor) -> float:
    return (log_densities + weights.log()).logsumexp(-1).mean().item()


@pytest.mark.parametrize(("count", "models"), [(5, 3), (40, 16), (300, 8)])
@pytest.mark.parametrize("spread", [0.05, 1.0, 20.0])
def test_no_model_could_gain(count: int, models: int, spread: float) -> None:
    """The objective is concave, so no mixture is better by more than the largest derivative."""
    found = densities(count, models, spread)
    weights = stacking_weights(found)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert bool((weights >= 0).all())
    mixture = (found + weights.log()).logsumexp(-1, keepdim=True)
    derivatives = (found - mixture).exp().mean(0) - 1
    assert derivatives.max().item() < 1e-5
    assert bool((derivatives[weights > 0].abs() < 1e-5).all())


@pytest.mark.parametrize("prior", [0.01, 0.5])
@pytest.mark.parametrize(
    ("count", "models", "spread"), [(5, 3, 20.0), (40, 16, 1.0), (300, 8, 5.0)]
)
def test_prior_keeps_every_model(prior: float, count: int, models: int, spread: float) -> None:
    """The derivatives of the penalised objective along the simplex vanish."""
    found = densities(count, models, spread)
    weights = stacking_weights(found, prior=prior)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert weights.min().item() >= (1 - 1e-6) * prior / (count + models * prior)
    mixture = (found + weights.log()).logsumexp(-1, keepdim=True)
    derivatives = (found - mixture).exp().sum(0) + prior / weights
    expected = torch.full_like(derivatives, count + models * prior)
    torch.testing.assert_close(derivatives, expected, rtol=2e-3, atol=0)


def test_units_of_targets_do_not_matter() -> None:
    found = densities(20, 4, 1.0)
    shifted = found + torch.linspace(-1e4, 1e4, 20).double().unsqueeze(-1)
    torch.testing.assert_close(
        stacking_weights(shifted), stacking_weights(found), atol=1e-5, rtol=0
    )


def test_density_may_be_zero_under_some_models() -> None:
    found = densities(10, 3, 1.0)
    found[0, 0] = found[1, 1] = -torch.inf
    weights = stacking_weights(found)
    assert np.isfinite(objective(found, weights))
    assert stacking_weights(found[:, :1].clamp_min(-1e5)).tolist() == [1.0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_other_values_are_refused(bad: float) -> None:
    found = densities(10, 3, 1.0)
    found[4, 1] = bad
    with pytest.raises(ValueError, match="log density of target 4"):
        stacking_weights(found)
    found[4] = -torch.inf
    with pytest.raises(ValueError, match="log density of target 4"):
        stacking_weights(found)
