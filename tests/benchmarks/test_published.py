"""Parts of the benchmarks on published experiments agree with independent computations."""

import math

import numpy as np
import pytest
import torch

from benchmarks.data import textures
from benchmarks.papers import image_embeddings, published_images
from benchmarks.papers.image_protocol import Counts, as_clouds
from gp_distributions import MMD, PointClouds, TotalVariation


class TestImages:
    def test_mmd_on_the_grid_is_that_of_clouds(self) -> None:
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(3, 5, 7, generator=generator, dtype=torch.float64)
        images[images < 0.4] = 0
        distance = MMD(2, bandwidth=0.3)
        expected = distance.squared(as_clouds(images, fill=True).pack())
        found = published_images.squared_mmd(images, 1 / (2 * 0.3**2), 2)
        torch.testing.assert_close(found, expected[:, :2], rtol=1e-10, atol=1e-14)

    def test_the_first_best_candidate_on_validation_images_is_selected(self) -> None:
        found = torch.tensor([[[0.5, 0.9], [0.8, 0.1]], [[0.8, 0.7], [0.2, 1.0]]])
        assert published_images.selected(found) == pytest.approx(0.1)

    @pytest.mark.parametrize("power", [1, -0.2])
    def test_ridge_regression_is_that_of_each_ridge(self, power: float) -> None:
        """Also for matrices with negative eigenvalues."""
        generator = torch.Generator().manual_seed(0)
        points, targets = (torch.randn(9, 3, generator=generator).double() for _ in range(2))
        matrix = points @ points.T + power * torch.eye(9)
        ridges = torch.logspace(-3, 1, 5).double()
        found = published_images.ridge_solutions(matrix, targets, ridges)
        for ridge, weights in zip(ridges, found, strict=True):
            expected = torch.linalg.solve(matrix + ridge * torch.eye(9).double(), targets)
            torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-10)

    def test_kernel_of_squared_total_variation_is_not_positive_definite(self) -> None:
        """The six distributions that are uniform on two of four points."""
        points = torch.arange(4.0, dtype=torch.float64)
        pairs = torch.combinations(points).unsqueeze(-1)
        total = TotalVariation(1).squared(PointClouds(pairs).pack())
        smallest = torch.linalg.eigvalsh(torch.exp(-total.square()))[0]
        expected = 1 + math.exp(-1) - 2 * math.exp(-1 / 4)
        assert float(smallest) == pytest.approx(expected)
        assert expected == pytest.approx(-0.19, abs=0.005)
        for power in (0.5, 1.0):
            assert float(torch.linalg.eigvalsh(torch.exp(-(total**power)))[0]) > 0


class TestTextures:
    def test_cooccurrences_are_counted_in_both_orders(self) -> None:
        image = np.array([[0.0, 0.4, 1.0], [0.4, 0.4, 0.4]])
        expected = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8
        np.testing.assert_allclose(textures.cooccurrence(image[None], 3)[0], expected)

    def test_parts_of_a_run_are_disjoint(self) -> None:
        numbered = [np.arange(20.0).reshape(10, 1, 2) + 100 * k for k in range(3)]
        parts, labels = image_embeddings.drawn(numbered, Counts(4, 2, 3), np.random.default_rng(0))
        assert [len(part) for part in parts] == [12, 6, 9]
        assert len(np.unique(np.concatenate(parts))) == 2 * 27
        for part, label in zip(parts, labels, strict=True):
            np.testing.assert_array_equal(part[:, 0, 0] // 100, label)
