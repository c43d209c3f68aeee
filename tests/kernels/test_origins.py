"""Inner products about templates and means."""

from typing import Any

import numpy as np
import ot
import pytest
import torch
from cases import DISTANCES, as_rows, random_clouds
from gpytorch.kernels import Kernel
from sklearn.preprocessing import KernelCenterer
from torch import Tensor

from gp_distributions import (
    MMD,
    DistributionKernel,
    Gaussians,
    PointClouds,
    ScaledDistance,
    SlicedWasserstein,
    SlicedWassersteinKernel,
)
from gp_distributions.rows.clouds import pad_rows

ROWS = as_rows(random_clouds(7, sizes=(3, 8)), atoms=8)
OTHERS = as_rows(random_clouds(5, seed=1, sizes=(3, 8)), atoms=8)
# Templates are narrower than the rows they are compared with.
ORIGINS = as_rows(random_clouds(4, seed=2, sizes=(2, 4)))
GAUSSIAN = Gaussians(torch.zeros(1, 2).double(), torch.eye(2).double()[None])
EUCLIDEAN = ("sw2", "sw2-centred", "rigid", "linear-transport", "sinkhorn", "mmd-polynomial")


def dense(kernel: Kernel, *rows: Tensor) -> Tensor:
    return kernel(*rows).to_dense().detach()


def linear(distance: Any, origin: Any, **options: Any) -> DistributionKernel:
    return DistributionKernel(distance, "linear", origin=origin, **options).double()


class TestInnerProducts:
    @pytest.mark.parametrize("count", [1, 4])
    @pytest.mark.parametrize("name", EUCLIDEAN)
    def test_are_those_of_features(self, name: str, count: int) -> None:
        distance = DISTANCES[name].make()
        kernel = linear(distance, ORIGINS[:count])
        centre = distance.embed(ORIGINS[:count]).mean(0)
        left, right = distance.embed(ROWS) - centre, distance.embed(OTHERS) - centre
        # Differences of squares have errors relative to the largest square.
        largest = max(float(distance.embed(x).square().sum(-1).max()) for x in (ROWS, OTHERS))
        options = {"rtol": 1e-9, "atol": 1e-11 * largest}
        torch.testing.assert_close(dense(kernel, ROWS, OTHERS), left @ right.T, **options)
        torch.testing.assert_close(dense(kernel, ROWS), left @ left.T, **options)
        diagonal = kernel(ROWS[:5], OTHERS, diag=True).detach()
        torch.testing.assert_close(diagonal, (left[:5] * right).sum(-1), **options)

    def test_of_exact_mean_embeddings(self) -> None:
        """The mean of embeddings of clouds is the embedding of their mixture."""
        x, y = (torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
        x, y = x.double(), y.double()
        mixture = y.flatten(0, 1)

        def embedded(a: Tensor, b: Tensor) -> Tensor:
            return torch.exp(-torch.cdist(a, b).square() / 2).mean((-2, -1))

        def inner(a: Tensor, b: Tensor) -> Tensor:
            about = embedded(a, mixture) + embedded(mixture, b) - embedded(mixture, mixture)
            return embedded(a, b) - about

        expected = torch.stack([torch.stack([inner(a, b) for b in x]) for a in x])
        kernel = linear(MMD(2, bandwidth=1.0), PointClouds(y))
        torch.testing.assert_close(dense(kernel, PointClouds(x).pack()), expected)

    def test_of_optimal_transport_by_pot(self) -> None:
        """About a template in one dimension, with distances computed by another library."""
        x = np.random.default_rng(0).normal(size=(12, 6))
        template = x[:, :1]

        def squared(a: Any, b: Any) -> Any:
            return ot.wasserstein_1d(a, np.broadcast_to(b, a.shape), p=2)

        norms = squared(x, template)
        between = np.stack([squared(x, x[:, [j]]) for j in range(6)])
        expected = (norms[:, None] + norms - between) / 2
        clouds = PointClouds(x.T[..., None])
        kernel = linear(SlicedWasserstein(1, num_quantiles=12), clouds[:1])
        np.testing.assert_allclose(dense(kernel, clouds.pack()), expected, atol=1e-12)

    @pytest.mark.parametrize(
        "name", ["sw1", "sw1-gaussians", "mmd", "total-variation", "hellinger"]
    )
    def test_about_the_mean_are_those_of_a_centred_gram_matrix(self, name: str) -> None:
        case = DISTANCES[name]
        rows = case.inputs.rows(6)
        gram = dense(linear(case.make(), None), rows).numpy()
        centred = KernelCenterer().fit_transform(gram.copy())
        actual = dense(linear(case.make(), rows), rows)
        np.testing.assert_allclose(actual, centred, atol=1e-12 * np.abs(gram).max())

    def test_of_learned_scales(self) -> None:
        """The origin is scaled like all other clouds, and gradients reach the scales."""
        distance = ScaledDistance(MMD(2, kernel="linear"), standardize=False)
        distance.scales = [3.0, 1.0]
        kernel = linear(distance, ORIGINS)
        features = distance.embed(ROWS) - distance.embed(ORIGINS).mean(0)
        covariances = kernel(ROWS, OTHERS).to_dense()
        other = distance.embed(OTHERS) - distance.embed(ORIGINS).mean(0)
        torch.testing.assert_close(covariances, features @ other.mT)
        factors = torch.linspace(-1, 2, covariances.numel()).double().view_as(covariances)
        gradients = [
            torch.autograd.grad((factors * values).sum(), distance.raw_scales)[0]
            for values in (covariances, features @ other.mT)
        ]
        torch.testing.assert_close(*gradients)
        assert float(gradients[0].abs().max()) > 1e-3

    @pytest.mark.parametrize("count", [1, 4])
    def test_have_gradients_even_at_the_origin(self, count: int) -> None:
        kernel = linear(DISTANCES["sw1"].make(), ORIGINS[:count])
        rows = torch.cat([pad_rows(ORIGINS[:count], OTHERS.shape[-1]), OTHERS]).requires_grad_()
        (gradient,) = torch.autograd.grad(kernel(rows).to_dense().sum(), rows)
        assert bool(gradient.isfinite().all())
        smooth = linear(DISTANCES["mmd"].make(), ORIGINS[:count])
        single = OTHERS[:2, :6].clone().requires_grad_()  # without padding, whose weights are zero
        assert torch.autograd.gradcheck(lambda x: smooth(x, ROWS[:3, :6]).to_dense(), single)

    def test_of_batches(self) -> None:
        kernel = linear(DISTANCES["sw2"].make(), ORIGINS, batch_shape=torch.Size([2]))
        kernel.lengthscale = torch.tensor([1.0, 2.0]).double().reshape(2, 1, 1)
        single = dense(linear(DISTANCES["sw2"].make(), ORIGINS), ROWS)
        batched = ROWS.expand(3, 2, *ROWS.shape)
        expected = torch.stack([single, single / 4]).expand(3, 2, *single.shape)
        torch.testing.assert_close(dense(kernel, batched), expected)
        torch.testing.assert_close(dense(kernel[1], ROWS), single / 4)
        wide = kernel.expand_batch(torch.Size([3, 2]))
        torch.testing.assert_close(dense(wide, batched), expected)


class TestErrors:
    def test_profiles_of_the_distance_have_none(self) -> None:
        with pytest.raises(ValueError, match="origin=None for the profile Matern52"):
            SlicedWassersteinKernel(2, origin=ORIGINS)

    @pytest.mark.parametrize(
        ("origin", "message"),
        [
            (ORIGINS[0], r"shape \(K, width\)"),
            (ORIGINS[:0], r"shape \(K, width\)"),
            (ORIGINS[:, 1:], "width"),
            (GAUSSIAN, "origin of clouds, got gaussians"),
        ],
    )
    def test_the_distance_must_read_it(self, origin: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            linear(SlicedWasserstein(2), origin)
