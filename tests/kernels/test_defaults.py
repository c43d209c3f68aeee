"""Default kernels: which there are for which inputs, and what they share."""

import pytest
import torch
from cases import randn
from gpytorch.kernels import ScaleKernel

from gp_distributions import GaussianMixtures, Gaussians, MixedInputs, PointClouds
from gp_distributions.kernels import default_kernels
from gp_distributions.kernels.reading import check_kind, default_distances


def clouds(dim: int, num: int = 8, size: int = 6) -> PointClouds:
    return PointClouds(randn(num, size, dim, seed=dim))


def names(X: object) -> list[str]:
    return list(dict.fromkeys(name.rpartition(" ")[0] for name in default_kernels(X)))  # type: ignore[arg-type]


ALL = ["sw2", "sw1", "centred", "mmd", "mmd small", "energy", "transport"]


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_of_clouds(dim: int) -> None:
    X = clouds(dim)
    assert names(X) == ALL + (["rigid"] if dim in (2, 3) else [])
    for name, kernel in default_kernels(X).items():
        check_kind(X, kernel)
        assert isinstance(kernel, ScaleKernel)
        matrix = kernel(X.pack()).to_dense()
        assert bool(matrix.isfinite().all()), name
        assert torch.linalg.eigvalsh(matrix).min() > -1e-7, name


def test_of_shapes_with_normals() -> None:
    outlines = clouds(2, size=12).points
    X = PointClouds.from_curves(outlines, normals=True)
    assert names(X) == [*ALL, "rigid"]
    for name, kernel in default_kernels(X).items():
        check_kind(X, kernel)
        matrix = kernel(X.normalize().pack()).to_dense()
        assert torch.linalg.eigvalsh(matrix).min() > -1e-7, name
    assert names(PointClouds.from_curves(outlines, normals="unoriented")) == ALL


def test_of_other_distributions() -> None:
    gaussians = Gaussians.from_clouds(clouds(2))
    assert names(gaussians) == ["sw2", "sw1", "centred", "mmd", "mmd small", "rigid"]
    means, covariances = torch.randn(5, 3, 2).double(), torch.eye(2).double().expand(5, 3, 2, 2)
    mixtures = GaussianMixtures(means, covariances)
    assert names(mixtures) == ["mmd", "mmd small", "mmd large"]
    for X in (gaussians, mixtures):
        for kernel in default_kernels(X).values():
            check_kind(X, kernel)
            assert bool(kernel(X.pack()).to_dense().isfinite().all())


def test_of_mixed_inputs() -> None:
    X = MixedInputs(a=clouds(3), b=Gaussians.from_clouds(clouds(2)), c=[float(i) for i in range(8)])
    found = default_kernels(X)
    assert len(found) == 2 * 8 + 2
    for kernel in found.values():
        check_kind(X, kernel)
        assert kernel(X.pack()).to_dense().shape == (8, 8)
    numbers = MixedInputs(c=[float(i) for i in range(8)])
    assert list(default_kernels(numbers)) == ["product"]


def test_scales_are_those_of_scaled_coordinates() -> None:
    X, scales = clouds(3), torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64)
    standard = default_kernels(X)["sw2 matern52"].base_kernel.distance.multipliers
    scaled = PointClouds.from_list(list(X.points * standard * scales), geometric=True)
    found, same = default_kernels(X, scales=scales.tolist()), default_kernels(scaled)
    for name, kernel in found.items():
        if name.startswith("rigid"):
            assert bool((kernel.base_kernel.distance.scales == 1).all())
            continue
        squared = kernel.base_kernel.distance.squared(X.pack())
        other = same[name.replace("linear", "matern52")].base_kernel.distance.squared(scaled.pack())
        # One spread of all coordinates, which shapes are measured in, is a unit of the distance.
        unit = squared[0, 1] / other[0, 1]
        torch.testing.assert_close(squared, unit * other, rtol=1e-9, atol=1e-12)


def test_scales_must_fit_the_coordinates() -> None:
    for wrong in ([1.0], [1.0, 0.0], [1.0, float("nan")]):
        with pytest.raises(
            ValueError, match=r"positive, finite scale for each of 2 coordinates, got"
        ):
            default_kernels(clouds(2), scales=wrong)


def test_scales_of_mixed_inputs_follow_each_other() -> None:
    X = MixedInputs(a=clouds(2), b=clouds(3), c=torch.arange(8.0))
    scales = [1.0, 2.0, 3.0, 4.0, 5.0]
    for name, kernel in default_kernels(X, scales=scales).items():
        found = [each.scales / each.scales[0] for each in default_distances(kernel)]
        expected = [1.0] * 5 if "rigid" in name else [1.0, 2.0, 1.0, 4 / 3, 5 / 3]
        torch.testing.assert_close(torch.cat(found).tolist(), expected)


def test_clouds_of_one_atom_have_no_mean_shape() -> None:
    for X in (clouds(2, size=1), PointClouds(clouds(2, size=1).points.repeat(1, 3, 1))):
        found = default_kernels(X)
        assert "sw2 matern52" in found
        assert "transport matern52" not in found


def test_other_inputs_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Expected PointClouds, Gaussians.*got Tensor"):
        default_kernels(clouds(2).pack())  # type: ignore[arg-type]
