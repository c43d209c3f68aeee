"""The blocks of columns that kernels read."""

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gp_distributions import (
    DistributionGP,
    MixedInputs,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
)
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.rows.layout import Block


class TestDistributionKernels:
    def test_blocks_follow_from_active_dims(self) -> None:
        clouds = SlicedWassersteinKernel(1, num_slices=1, active_dims=range(2, 6))
        gaussians = MMDKernel(1, inputs="gaussians", bandwidth=1.0, active_dims=[1, 0])
        kernel = ScaleKernel(clouds * RBFKernel(active_dims=[6])) + ScaleKernel(gaussians)
        assert distribution_kernels(kernel) == [
            (clouds, Block("clouds", 1, (2, 3, 4, 5))),
            (gaussians, Block("gaussians", 1, (1, 0))),
        ]

    def test_a_kernel_in_two_places(self) -> None:
        kernel = SlicedWassersteinKernel(1, num_slices=1)
        left, right = ScaleKernel(kernel), ScaleKernel(kernel)
        left.active_dims, right.active_dims = torch.tensor([0, 1]), torch.tensor([2, 3])
        found = distribution_kernels(left + right)
        assert found == [(kernel, Block("clouds", 1, (0, 1))), (kernel, Block("clouds", 1, (2, 3)))]


class TestMixedInputs:
    """Models read mixed inputs by the encoding of the training data."""

    @staticmethod
    def model() -> tuple[DistributionGP, MixedInputs]:
        points = torch.randn(8, 3, 2, generator=torch.Generator().manual_seed(0)).double()
        X = MixedInputs(cells=PointClouds(points), age=points[:, 0, 0], table=points[:, 1])
        return DistributionGP(X, points.mean((1, 2))), X

    def test_blocks_in_another_order(self) -> None:
        model, X = self.model()
        blocks = X.blocks
        other = MixedInputs(table=blocks["table"], age=blocks["age"], cells=blocks["cells"])
        for found, expected in zip(model.predict(other), model.predict(X), strict=True):
            assert torch.equal(found, expected)
