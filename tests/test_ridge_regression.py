"""The posterior mean is kernel ridge regression, and the variance the textbook formula."""

import numpy as np
import pytest
import scipy.linalg
import torch
from cases import KERNELS
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ZeroMean
from sklearn.kernel_ridge import KernelRidge

from gp_distributions import DistributionGP

# A root of the distance and a smooth function of it, with and without an embedding.
LARGE = ["sw2-gaussian", "sw1-exponential"]


def check_ridge(name: str, num_train: int) -> None:
    # Centred clouds of one atom would all coincide, where a root of a distance keeps half the digits.
    rows = KERNELS[name].inputs.rows(num_train + 20, sizes=(3, 12))
    train, test = rows[:num_train], rows[num_train:]
    targets = torch.sin(torch.arange(num_train, dtype=torch.float64))
    base = KERNELS[name]()
    base.lengthscale = float(base.distance.squared(train[:50]).median().sqrt())
    model = DistributionGP(
        train, targets, ScaleKernel(base), mean_module=ZeroMean(), outcome_transform=None
    )
    noise, outputscale = 0.05, 1.7
    # As tensors: GPyTorch takes plain numbers through single precision.
    model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    model.covar_module.outputscale = torch.tensor(outputscale, dtype=torch.float64)
    mean, std = model.predict(test, observation_noise=False)

    with torch.no_grad():
        within, across = base(train).to_dense().numpy(), base(test, train).to_dense().numpy()
        prior = outputscale * base(test, diag=True).numpy()
    # KernelRidge solves (K + alpha I) c = y: alpha is the papers' lambda T.
    ridge = KernelRidge(alpha=noise / outputscale, kernel="precomputed").fit(
        within, targets.numpy()
    )
    expected = ridge.predict(across)
    np.testing.assert_allclose(mean.numpy(), expected, rtol=0, atol=1e-8 * np.abs(expected).max())

    factor = scipy.linalg.cho_factor(outputscale * within + noise * np.eye(num_train))
    reduction = outputscale * across * scipy.linalg.cho_solve(factor, outputscale * across.T).T
    variance = prior - reduction.sum(1)
    np.testing.assert_allclose(std.square().numpy(), variance, rtol=0, atol=1e-8 * variance.max())
    _, observed = model.predict(test)
    np.testing.assert_allclose(
        observed.square().numpy(), variance + noise, rtol=0, atol=1e-8 * variance.max()
    )


@pytest.mark.parametrize("name", KERNELS)
def test_small(name: str) -> None:
    check_ridge(name, 50)


@pytest.mark.parametrize("name", LARGE)
def test_beyond_the_size_where_gpytorch_iterates(name: str) -> None:
    check_ridge(name, 850)
