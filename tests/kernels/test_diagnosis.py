"""Every sentence of a diagnosis, and its figures against NumPy."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from sklearn.datasets import load_digits
from torch import Tensor

from gp_distributions import (
    MMD,
    DistributionKernel,
    MixedInputs,
    PointClouds,
    RigidSlicedWasserstein,
    SlicedWasserstein,
    mixed_kernel,
)
from gp_distributions.datasets import load_airfoils
from gp_distributions.distances import Distance
from gp_distributions.distances.precomputed import PrecomputedDistance
from gp_distributions.kernels import BlockKernel
from gp_distributions.kernels.diagnosis import diagnose

# Longer along the first coordinate, so that the clouds do not look randomly oriented.
STRETCH = torch.tensor([1.5, 0.3], dtype=torch.float64)
CLOUDS = [(points * STRETCH, weights) for points, weights in random_clouds(30)]
ROWS = as_rows(CLOUDS)
MEDIAN = float(SlicedWasserstein(2).squared(ROWS)[tuple(np.triu_indices(30, 1))].sqrt().median())


def kernel_of(lengthscale: float = 1.0, profile: str = "matern52", **options: Any) -> Kernel:
    kernel = DistributionKernel(SlicedWasserstein(2, **options), profile).double()
    kernel.lengthscale = torch.tensor(lengthscale).double()
    return kernel


def with_copies() -> Tensor:
    rows = ROWS.clone()
    rows[5] = rows[9] = rows[0]
    rows[8] = rows[7]
    return rows


class TestFigures:
    def test_of_eigenvalues(self) -> None:
        kernel = ScaleKernel(kernel_of(0.7)).double()
        kernel.outputscale = torch.tensor(3.0).double()
        found = diagnose(kernel, ROWS)
        eigenvalues = np.linalg.eigvalsh(kernel(ROWS).to_dense().detach().numpy())
        assert found.size == 30
        assert found.smallest_eigenvalue == pytest.approx(eigenvalues[0])
        assert found.largest_eigenvalue == pytest.approx(eigenvalues[-1])
        assert found.condition == pytest.approx(eigenvalues[-1] / eigenvalues[0])
        shares = eigenvalues / eigenvalues.sum()
        assert found.effective_rank == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))

    def test_of_distances(self) -> None:
        rows = with_copies()
        kernel = kernel_of(0.7)
        (found,) = diagnose(kernel, rows).distances
        squared = kernel.distance.squared(rows).numpy()[np.triu_indices(30, 1)]
        apart = np.sqrt(squared[squared > 1e-12])
        assert len(apart) == 30 * 29 // 2 - 4  # of three copies, three pairs, and one pair
        low, median, high = np.quantile(apart, [0.05, 0.5, 0.95], method="nearest")
        assert found.median_distance == found.suggested_lengthscale == pytest.approx(median)
        assert found.distance_range == pytest.approx((low, high))
        assert found.lengthscale == pytest.approx(0.7)
        ratio = math.sqrt(5) * median / 0.7
        assert found.correlation == pytest.approx((1 + ratio + ratio**2 / 3) * math.exp(-ratio))

    def test_each_cloud_is_paired_with_its_first_copy(self) -> None:
        assert diagnose(kernel_of(), ROWS).duplicates == ()
        assert diagnose(kernel_of(), with_copies()).duplicates == ((0, 5), (7, 8), (0, 9))
        assert diagnose(kernel_of(), with_copies().float()).duplicates == ((0, 5), (7, 8), (0, 9))

    def test_distances_below_rounding_are_those_of_copies(self) -> None:
        points = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
        for step, expected in ((1e-8, ((0, 4), (2, 5))), (1e-6, ())):
            squared = torch.cdist(points, points).square()
            for i, j in ((0, 4), (2, 5)):
                squared[:, j], squared[j] = squared[:, i], squared[i]
                squared[i, j] = squared[j, i] = step**2
                squared[j, j] = 0
            kernel = DistributionKernel(PrecomputedDistance(squared))
            assert diagnose(kernel, torch.arange(6.0).double()[:, None]).duplicates == expected

    def test_pairs_are_those_that_no_distance_tells_apart(self) -> None:
        moved = torch.cat(
            [ROWS[:3], as_rows([(CLOUDS[1][0] + 1.0, CLOUDS[1][1])], atoms=ROWS.shape[1] // 3)]
        )
        assert diagnose(kernel_of(center=True), moved).duplicates == ((1, 3),)
        assert diagnose(kernel_of(center=True) + kernel_of(), moved).duplicates == ()
        assert diagnose(kernel_of() * kernel_of(center=True), moved).duplicates == ()

    def test_covariates_tell_clouds_apart(self) -> None:
        shapes = torch.randn(4, 10, 2, generator=torch.Generator().manual_seed(0)).double()
        shape, angle = PointClouds(shapes.repeat_interleave(3, 0)), [0.0, 5.0, 10.0] * 4
        arm = ["on", "on", "off"] * 4
        for covariates in ({"angle": angle}, {"arm": arm}):
            X = MixedInputs(shape=shape, **covariates)
            expected = ((0, 1), (3, 4), (6, 7), (9, 10)) if "arm" in covariates else ()
            assert diagnose(mixed_kernel(X), X).duplicates == expected
        X = MixedInputs(shape=shape, angle=angle)
        alone = BlockKernel(kernel_of(), X.encoding.columns["shape"])  # does not read the angles
        assert len(diagnose(alone, X).duplicates) == 8
        beside = kernel_of() * RBFKernel(active_dims=[30]).double()
        beside.kernels[0].active_dims = torch.arange(30)
        rows = torch.cat([shape.pack(), torch.tensor(angle)[:, None].double()], -1)
        assert diagnose(beside, rows).duplicates == ()


class TestSentences:
    def test_sentences_name_what_to_set(self) -> None:
        """The expression in a finding is valid and repairs the kernel."""
        second = kernel_of(100.0 * MEDIAN, p=1)
        kernel = ScaleKernel(kernel_of(0.01 * MEDIAN)) + ScaleKernel(second) * RBFKernel()
        short, long = diagnose(kernel, ROWS).findings
        for sentence, name in (
            (short, "kernel.kernels[0].base_kernel"),
            (long, "kernel.kernels[1].kernels[0].base_kernel"),
        ):
            assert sentence.startswith(f"{name}: the lengthscale is ")
            setting = sentence[sentence.index(f"{name}.lengthscale = ") :].rstrip(".")
            exec(setting, {"kernel": kernel})
        assert diagnose(kernel, ROWS).findings == ()

    def test_singular_matrix(self) -> None:
        points = as_rows([(points[:1], weights[:1]) for points, weights in CLOUDS])  # rank 2
        for kernel in (kernel_of(1.0, "linear"), kernel_of(1000 * MEDIAN, "gaussian")):
            found = diagnose(kernel, points)
            assert abs(found.smallest_eigenvalue) < 1e-14 * found.largest_eigenvalue
            sentence = found.findings[0]
            assert sentence.startswith("The covariance matrix is numerically singular.")
            noise = float(sentence.split("at least ")[1].split(";")[0])
            assert noise == pytest.approx(1.5e-8 * found.largest_eigenvalue, rel=0.5)
            # With this noise, the Cholesky factor exists.
            covariance = kernel(points).to_dense().detach()
            torch.linalg.cholesky(covariance + noise * torch.eye(30).double())

    def test_indefinite_matrix(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            distance = PrecomputedDistance(SlicedWasserstein(2, p=1).squared(ROWS).square())
        kernel = DistributionKernel(distance, "gaussian")
        found = diagnose(kernel, torch.arange(30.0).double()[:, None])
        assert found.smallest_eigenvalue < -0.01
        assert found.condition == math.inf
        (sentence,) = found.findings
        assert sentence.startswith("The covariance matrix is not positive semi-definite")
        assert f"smallest eigenvalue is {found.smallest_eigenvalue:.3g}" in sentence
        assert "not Hilbertian" in sentence

    def test_all_clouds_coincide(self) -> None:
        found = diagnose(kernel_of(), ROWS[:1].repeat(3, 1))
        assert found.findings[-1].startswith("kernel: all clouds coincide for SlicedWasserstein.")
        assert math.isnan(found.distances[0].median_distance)
        assert "2 pairs of clouds coincide: (0, 1), (0, 2)." in str(found)


def turned(clouds: PointClouds, seed: int = 0) -> PointClouds:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(clouds), clouds.dim, clouds.dim)
    rotations = torch.linalg.qr(torch.randn(shape, generator=generator).double()).Q
    return PointClouds(clouds.points @ rotations, clouds.weights)


def rods(num: int, dim: int = 2, *, size: int = 40, seed: int = 3) -> PointClouds:
    """Clouds of different length along the first coordinate."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(num, size, dim, generator=generator).double()
    points[..., 0] *= 3 + torch.rand(num, 1, generator=generator).double()
    return PointClouds(points)


class TestOrientation:
    @pytest.mark.parametrize("dim", [2, 3])
    def test_random_poses(self, dim: int) -> None:
        clouds = turned(rods(40, dim))
        kernel = DistributionKernel(SlicedWasserstein(dim, num_slices=20))
        found = diagnose(kernel, clouds)
        assert found.distances[0].random_poses
        assert found.distances[0].axes_p_value > 0.01
        sentence = found.findings[-1]
        assert sentence.startswith("kernel: the clouds look randomly oriented")
        assert f"p = {found.distances[0].axes_p_value:.2g})" in sentence
        assert "use RigidSlicedWasserstein" in sentence
        (rigid,) = diagnose(DistributionKernel(RigidSlicedWasserstein(dim)), clouds).distances
        assert rigid.axes_p_value > 0.01
        assert not rigid.random_poses

    @pytest.mark.parametrize("distance", [SlicedWasserstein(2, center=True), MMD(2)])
    def test_location_does_not_hide_them(self, distance: Distance) -> None:
        clouds = turned(rods(40))
        far = PointClouds(clouds.points + 50 * clouds.points[:, :1], clouds.weights)
        assert diagnose(DistributionKernel(distance), far).distances[0].random_poses

    def test_isotropic_clouds_are_fine(self) -> None:
        points = torch.randn(60, 5, 2, generator=torch.Generator().manual_seed(0)).double()
        (found,) = diagnose(kernel_of(), PointClouds(points)).distances
        assert math.isnan(found.axes_p_value)
        assert not found.random_poses

    def test_real_shapes_and_images_are_fine(self) -> None:
        outlines = load_airfoils().outlines[::20]
        images, digits = load_digits().images, load_digits().target
        for clouds in (
            PointClouds.from_curves(outlines, atoms=40),
            PointClouds.from_images(images[:80]),
            PointClouds.from_images(images[:200][digits[:200] == 1]),
        ):
            assert not diagnose(kernel_of(num_slices=20), clouds).distances[0].random_poses
        airfoils = turned(PointClouds.from_curves(outlines, atoms=40))
        assert diagnose(kernel_of(num_slices=20), airfoils).distances[0].random_poses

    def test_normals_turn_with_positions(self) -> None:
        outlines = load_airfoils().outlines[::20]
        angles = 2 * math.pi * torch.rand(len(outlines), generator=torch.Generator().manual_seed(0))
        turns = [torch.tensor([[c.cos(), c.sin()], [-c.sin(), c.cos()]]).double() for c in angles]
        posed = [torch.from_numpy(o) @ turn for o, turn in zip(outlines, turns, strict=True)]
        for curves, random in ((outlines, False), (posed, True)):
            clouds = PointClouds.from_curves(curves, atoms=40, normals=True)
            (found,) = diagnose(
                DistributionKernel(SlicedWasserstein(clouds.dim, num_slices=20)), clouds
            ).distances
            assert (found.axes_p_value > 0.01, found.random_poses) == (random, random)
        rigid = DistributionKernel(RigidSlicedWasserstein(4, normals=2))
        assert not diagnose(rigid, clouds).distances[0].random_poses


class TestRefuses:
    def test_kernels_without_distributions(self) -> None:
        with pytest.raises(TypeError, match="contains a DistributionKernel, got RBFKernel"):
            diagnose(RBFKernel(), ROWS)

    def test_batches(self) -> None:
        kernel = DistributionKernel(SlicedWasserstein(2), batch_shape=torch.Size([2]))
        with pytest.raises(ValueError, match=r"pass kernel\[0\]"):
            diagnose(kernel, ROWS)
        assert diagnose(kernel[0], ROWS).size == 30
        with pytest.raises(ValueError, match="at least two clouds"):
            diagnose(kernel_of(), ROWS.reshape(2, 15, -1))
