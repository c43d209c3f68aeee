"""What BoTorch asks of a mixture over hyperparameters."""

import torch
from cases import as_rows, random_clouds

from gp_distributions import DistributionGP, SlicedWassersteinKernel, integrate_hyperparameters


def test_batch_shape_is_empty_unless_the_model_is_a_fantasy() -> None:
    rows = as_rows(random_clouds(12, sizes=(2, 9)))
    targets = rows[:, 0].sin()
    kernel = SlicedWassersteinKernel(2, num_slices=5)
    model = integrate_hyperparameters(DistributionGP(rows[:8], targets[:8], kernel))
    assert model.batch_shape == torch.Size([])
    fantasy = model.condition_on_observations(rows[8:, None], targets[8:, None, None])
    assert fantasy.batch_shape == torch.Size([4])
    assert fantasy.posterior(rows[:3]).mean.shape == (4, 3, 1)
