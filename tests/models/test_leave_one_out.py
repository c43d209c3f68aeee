"""Closed-form leave-one-out predictions are those of models without the cloud."""

import copy
from typing import Any

import pytest
import torch
from botorch.models.transforms.outcome import Log
from cases import as_rows, random_clouds
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
)
from gp_distributions.kernels.covariances import covariance

NUM = 14
CLOUDS = random_clouds(NUM, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
ONE = torch.stack([points.square().sum() for points, _ in CLOUDS])
SEVERAL = torch.stack([ONE, ONE.sin(), 100 * ROWS[:, 0] + 7], dim=-1)
VARIANCES = torch.linspace(0.1, 2.0, NUM).double()


def make_kernel(outputs: int = 0) -> ScaleKernel:
    shape = torch.Size([outputs] if outputs else [])
    kernel = SlicedWassersteinKernel(2, num_slices=10, num_quantiles=20, batch_shape=shape)
    kernel.lengthscale = 1.0 + torch.arange(max(1, outputs)).double().reshape(*shape, 1, 1)
    return ScaleKernel(kernel, batch_shape=shape)


def without(model: DistributionGP, index: int) -> DistributionGP:
    """The model of all other clouds, with the same hyperparameters and outcome transform."""
    rest = [i for i in range(NUM) if i != index]
    other = copy.deepcopy(model)
    (rows,) = model.train_inputs
    noise = getattr(other.likelihood.noise_covar, "noise", None)
    if noise is not None and noise.shape[-1] == NUM:
        other.likelihood.noise_covar.noise = noise[..., rest]
    other.set_train_data(rows[..., rest, :], model.train_targets[..., rest], strict=False)
    return other.eval()


@pytest.mark.parametrize("observation_noise", [False, True])
@pytest.mark.parametrize(
    ("kind", "targets", "options"),
    [
        (DistributionGP, ONE, {}),
        (DistributionGP, ONE.unsqueeze(-1), {"outcome_transform": None}),
        (DistributionGP, ONE, {"sampling_noise": True}),
        (DistributionGP, ONE, {"train_Yvar": VARIANCES}),
        (DistributionGP, SEVERAL, {}),
        (SharedKernelGP, SEVERAL, {}),
    ],
)
def test_is_leaving_out(
    kind: type[DistributionGP], targets: Tensor, options: dict[str, Any], observation_noise: bool
) -> None:
    outputs = targets.shape[-1] if kind is DistributionGP and targets.shape[-1] == 3 else 0
    model = kind(ROWS, targets, make_kernel(outputs), **options)
    if options.get("sampling_noise"):
        model.likelihood.sampling_noise = 0.5
    mean, std = model.leave_one_out(observation_noise=observation_noise)
    assert mean.shape == std.shape == targets.shape
    assert not mean.requires_grad
    for index in (0, 5, NUM - 1):
        noise: Any = observation_noise
        if noise and "train_Yvar" in options:  # a new cloud would have the mean of the variances
            noise = model.likelihood.noise[index].reshape(1, 1)
        posterior = without(model, index).posterior(ROWS[[index]], observation_noise=noise)
        torch.testing.assert_close(mean[index].flatten(), posterior.mean.flatten())
        torch.testing.assert_close(std[index].flatten(), posterior.variance.sqrt().flatten())


def test_little_noise() -> None:
    variances = VARIANCES.clone()
    variances[5] = 1e-8
    options: dict[str, Any] = {"train_Yvar": variances, "outcome_transform": None}
    model = SparseDistributionGP(ROWS, ONE, make_kernel(), **options)
    mean, std = model.leave_one_out()
    with torch.no_grad():
        matrix = covariance(model.covar_module, ROWS) + variances.diag()
        inverse = torch.linalg.inv(matrix)
        errors = inverse @ (ONE - model.mean_module.constant) / inverse.diagonal()
    # The share that is left when cloud 5 is left out, about 1e-8, has rounding errors of about 1e-14.
    torch.testing.assert_close(mean, ONE - errors, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(std, inverse.diagonal().rsqrt(), rtol=1e-5, atol=1e-5)


def test_noise_that_is_lost_in_rounding_errors_is_refused() -> None:
    variances = torch.full((NUM,), 0.1, dtype=torch.float64)
    variances[[5, 7]] = 1e-16
    model = SparseDistributionGP(
        ROWS, ONE, make_kernel(), train_Yvar=variances, outcome_transform=None
    )
    with pytest.raises(ValueError, match=r"^Cloud 5: .*noise variance.*rounding errors.*got 1e-16"):
        model.leave_one_out()


def test_predictions_that_are_not_normal_are_refused() -> None:
    model = DistributionGP(ROWS, ONE, make_kernel(), outcome_transform=Log())
    with pytest.raises(ValueError, match="a linear outcome transform, got Log"):
        model.leave_one_out()
