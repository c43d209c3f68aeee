"""The jitter of the covariance matrix of inducing clouds."""

import pytest
import torch
from cases import as_rows, random_clouds

from gp_distributions import SlicedWassersteinKernel
from gp_distributions.models.inducing import choose_features

ROWS = as_rows(random_clouds(12, sizes=(2, 20)))


@pytest.mark.parametrize(
    ("noise", "dtype", "expected"),
    [
        (1.0, torch.float64, 1e-8),
        (1e-2, torch.float64, 1e-10),
        (1e-9, torch.float64, 1e-12),
        (1e9, torch.float64, 1e-6),
        (1e-9, torch.float32, 1e-7),
    ],
)
@pytest.mark.parametrize("count", [6, 12])
@torch.no_grad()
def test_jitter_is_a_share_of_the_noise_within_bounds(
    noise: float, dtype: torch.dtype, expected: float, count: int
) -> None:
    kernel = SlicedWassersteinKernel(2, num_slices=10).double()
    kernel.lengthscale = 2.0
    features = choose_features(kernel, ROWS, count, noise=noise, dtype=dtype, seed=0)
    assert len(features.rows) == count
    matrix = kernel(features.rows).to_dense().detach()
    added = (features.factor @ features.factor.mT - matrix).detach()
    # The kernel is one on the diagonal, where a Cholesky factor has errors of a few 1e-16.
    jitter = torch.full((count,), expected).double()
    torch.testing.assert_close(added.diagonal(), jitter, rtol=1e-6, atol=3e-15)
    assert float((added - torch.diag(added.diagonal())).abs().max()) < 3e-15
