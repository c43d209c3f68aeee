"""What BoTorch asks of a mixture over hyperparameters."""

from typing import Any

import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from cases import as_rows, random_clouds
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    MixtureModel,
    SlicedWassersteinKernel,
    integrate_hyperparameters,
)
from gp_distributions.models import IntegratedGP

ROWS = as_rows(random_clouds(12, sizes=(2, 9)))
TARGETS = ROWS[:, 0].sin()


def integrated(**options: Any) -> IntegratedGP:
    kernel = SlicedWassersteinKernel(2, num_slices=5)
    return integrate_hyperparameters(DistributionGP(ROWS[:8], TARGETS[:8], kernel, **options))


def test_batch_shape_is_empty_unless_the_model_is_a_fantasy() -> None:
    model = integrated()
    assert model.batch_shape == torch.Size([])
    fantasy = model.condition_on_observations(ROWS[8:, None], TARGETS[8:, None, None])
    assert fantasy.batch_shape == torch.Size([4])
    assert fantasy.posterior(ROWS[:3]).mean.shape == (4, 3, 1)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_fantasies_at_no_clouds(batch_shape: tuple[int, ...]) -> None:
    """BoTorch asks for them where it fantasises at pending clouds, of which there may be none."""
    model, sampler = integrated(), SobolQMCNormalSampler(torch.Size([3]), seed=0)
    none = ROWS[:0].expand(*batch_shape, 0, -1)
    expected = model.posterior(ROWS[8:])
    for each in (model, MixtureModel([model])):
        found = each.fantasize(none, sampler).posterior(ROWS[8:])
        assert found.mean.shape == (3, *batch_shape, 4, 1)
        torch.testing.assert_close(found.mean, expected.mean.expand(found.mean.shape))
        torch.testing.assert_close(found.variance, expected.variance.expand(found.mean.shape))


@pytest.mark.parametrize("known", [None, torch.full((8,), 0.1)])
def test_given_noise_adds_to_the_variance(known: Tensor | None) -> None:
    model = integrated(train_Yvar=known)
    noise = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).unsqueeze(-1)
    found = model.posterior(ROWS[8:], observation_noise=noise).variance
    unit = model.model.outcome_transform.stdvs.square()
    torch.testing.assert_close(found - model.posterior(ROWS[8:]).variance, noise * unit)
