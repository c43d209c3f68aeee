"""Covariances evaluated at once, against GPyTorch's lazy evaluation of the same kernels."""

from collections.abc import Callable

import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from gp_distributions import DistributionKernel, SlicedWasserstein
from gp_distributions.kernels.covariances import covariance
from gp_distributions.rows.clouds import pad_rows

ROWS = as_rows(random_clouds(7, sizes=(3, 6)), atoms=6)
OTHERS = as_rows(random_clouds(7, seed=1, sizes=(3, 6)), atoms=6)
WIDTH = ROWS.shape[-1]
CLOUD, COLUMN = tuple(range(WIDTH)), (WIDTH,)
BATCH = torch.Size([2])


def mixed(rows: Tensor) -> Tensor:
    """Rows of a cloud and an ordinary column."""
    return torch.cat([rows, rows[..., :1].sin()], dim=-1)


def clouds(profile: str = "matern52", **options: object) -> DistributionKernel:
    kernel = DistributionKernel(SlicedWasserstein(2, num_slices=5), profile, **options)
    kernel.lengthscale = 1.3
    return kernel


def scaled(kernel: Kernel, **options: object) -> ScaleKernel:
    scale = ScaleKernel(kernel, **options)
    scale.outputscale = torch.linspace(2, 3, max(1, scale.batch_shape.numel())).reshape(
        scale.batch_shape
    )
    return scale


KERNELS: dict[str, Callable[[], Kernel]] = {
    "alone": lambda: clouds(active_dims=CLOUD),
    "inner products": lambda: clouds("polynomial", active_dims=CLOUD),
    "scaled": lambda: scaled(clouds(active_dims=CLOUD)),
    "scaled twice": lambda: scaled(scaled(clouds(active_dims=CLOUD))),
    "columns of a scaled kernel": lambda: ScaleKernel(clouds(), active_dims=CLOUD),
    "sum": lambda: clouds(active_dims=CLOUD) + scaled(RBFKernel(active_dims=COLUMN)),
    "product": lambda: scaled(clouds(active_dims=CLOUD)) * RBFKernel(active_dims=COLUMN),
    "sum of products": lambda: AdditiveKernel(
        ProductKernel(clouds(active_dims=CLOUD), PeriodicKernel(active_dims=COLUMN)),
        scaled(clouds("linear", active_dims=CLOUD)),
        LinearKernel(active_dims=COLUMN),
    ),
    "batch": lambda: scaled(clouds(active_dims=CLOUD, batch_shape=BATCH), batch_shape=BATCH),
    "batch of sums": lambda: (
        clouds("rational_quadratic", active_dims=CLOUD, batch_shape=BATCH)
        + scaled(RBFKernel(active_dims=COLUMN, batch_shape=BATCH), batch_shape=BATCH)
    ),
}


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return KERNELS[request.param]().double()


class TestAgreesWithGPyTorch:
    def test_of_rows(self, kernel: Kernel) -> None:
        x1, x2 = mixed(ROWS), mixed(OTHERS)
        assert torch.equal(covariance(kernel, x1, x2[:4]), kernel(x1, x2[:4]).to_dense())
        assert torch.equal(covariance(kernel, x1), kernel(x1).to_dense())
        assert torch.equal(covariance(kernel, x1, x1), kernel(x1).to_dense())
        assert torch.equal(covariance(kernel, x1, x2, diag=True), kernel(x1, x2, diag=True))
        assert torch.equal(covariance(kernel, x1, diag=True), kernel(x1, diag=True))

    def test_batches_of_rows(self, kernel: Kernel) -> None:
        x1 = torch.stack([mixed(ROWS), mixed(OTHERS)])
        x2 = x1.flip(0)[:, :3]
        torch.testing.assert_close(
            covariance(kernel, x1, x2), kernel(x1, x2).to_dense(), rtol=1e-12, atol=1e-12
        )

    def test_gradients(self, kernel: Kernel) -> None:
        x1, x2 = mixed(ROWS).requires_grad_(), mixed(OTHERS)
        inputs = [x1, *kernel.parameters()]
        results = (covariance(kernel, x1, x2), kernel(x1, x2).to_dense())
        actual, expected = (
            torch.autograd.grad(result.square().sum(), inputs, allow_unused=True)
            for result in results
        )
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


class Undiagonal(Kernel):
    """A kernel that ignores ``diag``, which GPyTorch allows."""

    def forward(self, x1: Tensor, x2: Tensor, **params: object) -> Tensor:
        return x1 @ x2.mT


def test_a_kernel_that_does_not_know_diag() -> None:
    kernel = Undiagonal()
    for x1, x2 in ((ROWS, OTHERS), (torch.stack([ROWS, OTHERS]), torch.stack([OTHERS, ROWS]))):
        expected = kernel(x1, x2, diag=True)
        assert expected.shape == x1.shape[:-1]
        assert torch.equal(covariance(kernel, x1, x2, diag=True), expected)


@pytest.mark.parametrize(
    "make",
    [
        clouds,
        lambda: scaled(clouds()),
        lambda: clouds() + scaled(clouds("linear")),
        lambda: clouds() * Undiagonal(),
    ],
)
@pytest.mark.parametrize("diag", [False, True])
def test_rows_of_different_widths(make: Callable[[], Kernel], diag: bool) -> None:
    kernel = make().double()
    padded, wide = (pad_rows(rows, 3 * WIDTH) for rows in (ROWS, OTHERS))
    for found, expected in (((ROWS, wide), (padded, wide)), ((wide, ROWS), (wide, padded))):
        torch.testing.assert_close(
            covariance(kernel, *found, diag=diag),
            covariance(kernel, *expected, diag=diag),
            rtol=1e-12,
            atol=1e-12,
        )


@pytest.mark.parametrize("name", [name for name in KERNELS if "twice" not in name])
def test_columns_need_one_width(name: str) -> None:
    wide = pad_rows(mixed(OTHERS), 3 * WIDTH + 3)
    message = rf"one width, got {WIDTH + 1} and {3 * WIDTH + 3}.*clouds\.pack\(atoms=\.\.\.\)"
    with pytest.raises(ValueError, match=message):
        covariance(KERNELS[name]().double(), mixed(ROWS), wide)
