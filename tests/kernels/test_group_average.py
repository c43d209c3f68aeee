"""Averages over groups: both definitions by a loop, invariance, batches, gradients, memory, saving."""

import copy
from pathlib import Path

import pytest
import torch
from cases import GAUSSIANS, MIXTURES, random_rows
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

import gp_distributions as gd
from gp_distributions.kernels import GroupAverageKernel, planar_rotations
from gp_distributions.kernels.covariances import covariance

GROUP = planar_rotations(3, reflections=True)


def sliced(num_slices: int = 12, **options: object) -> gd.DistributionKernel:
    distance = gd.SlicedWasserstein(2, num_slices=num_slices, num_quantiles=10)
    return gd.DistributionKernel(distance, **options).double()  # type: ignore[arg-type]


def sinkhorn() -> Kernel:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.5], [-0.5, 2.0]], dtype=torch.float64)
    return gd.SinkhornKernel(gd.ReferenceMeasure(points), epsilon=0.5).requires_grad_(False)


# Base kernels, and whether they are known not to change when both clouds are mapped.
BASES = {
    "permuted slices": (sliced, True),
    "slices between": (lambda: sliced(13), False),
    "sw1": (lambda: gd.DistributionKernel(gd.SlicedWasserstein(2, p=1, num_slices=12)), True),
    "linear": (lambda: sliced(profile="linear"), True),
    "root": (lambda: sliced(profile="exponential"), True),
    "mmd": (lambda: gd.DistributionKernel(gd.MMD(2, bandwidth=1.0), "linear"), True),
    "features": (lambda: gd.DistributionKernel(gd.MMD(2, bandwidth=1.0, num_features=8)), False),
    "sum": (lambda: ScaleKernel(sliced()) + ScaleKernel(sliced(24)) * sliced(), True),
    "sum with slices between": (lambda: ScaleKernel(sliced()) + sliced(13), False),
    "subclass": (lambda: Doubled(gd.SlicedWasserstein(2, num_slices=12)), False),
    "sinkhorn": (sinkhorn, False),
    # Maps of both clouds leave distances unchanged, but not an origin that stays behind.
    "origin": (lambda: sliced(profile="linear", origin=random_rows(1, seed=2)), False),
}


class Doubled(gd.DistributionKernel):
    """A kernel whose forward may be anything."""

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        return 2 * super().forward(*args, **kwargs)  # type: ignore[arg-type]


def images(rows: Tensor, matrix: Tensor) -> Tensor:
    atoms = rows.unflatten(-1, (-1, 3))
    return torch.cat([atoms[..., :2] @ matrix.mT, atoms[..., 2:]], -1).flatten(-2)


@pytest.mark.parametrize("name", BASES)
def test_agrees_with_the_average_over_both_sides(name: str) -> None:
    make, one_sided = BASES[name]
    kernel = GroupAverageKernel(make().double(), GROUP)
    assert kernel.both_sides != one_sided
    x, y = random_rows(5), random_rows(4, seed=1, sizes=[2, 7, 9, 3])
    with torch.no_grad():
        moved = [torch.cat([images(rows, g) for g in GROUP]) for rows in (x, y)]
        expected = {}
        for i, j in ((0, 1), (0, 0), (1, 1)):
            values = covariance(kernel.base_kernel, moved[i], moved[j])
            parts = values.unflatten(0, (len(GROUP), -1)).unflatten(2, (len(GROUP), -1))
            expected[(x, y)[i], (x, y)[j]] = parts.mean((0, 2))
        norms = [expected[pair].diagonal() for pair in ((x, x), (y, y))]
        cosines = expected[x, y] / (norms[0][:, None] * norms[1]).sqrt()
        # The exponential profile takes a root of rounding errors where images coincide.
        near = {"rtol": 1e-7 if name == "root" else 1e-11, "atol": 1e-12}
        torch.testing.assert_close(covariance(kernel, x, y), cosines, **near)
        ones = torch.ones(5, dtype=torch.float64)
        torch.testing.assert_close(covariance(kernel, x).diagonal(), ones, **near)
        torch.testing.assert_close(covariance(kernel, x, diag=True), ones, **near)
        paired = covariance(kernel, x[:4], y, diag=True)
        torch.testing.assert_close(paired, cosines.diagonal(), **near)
        kernel.normalize = False
        for (left, right), values in expected.items():
            torch.testing.assert_close(covariance(kernel, left, right), values, **near)
        values = expected[x, x].diagonal()
        torch.testing.assert_close(covariance(kernel, x, diag=True), values, **near)


@pytest.mark.parametrize("name", ["permuted slices", "slices between", "mmd"])
def test_does_not_see_the_group(name: str) -> None:
    kernel = GroupAverageKernel(BASES[name][0](), GROUP)
    x, y = random_rows(5), random_rows(4, seed=1)
    with torch.no_grad():
        plain, base = covariance(kernel, x, y), covariance(kernel.base_kernel, x, y)
        for matrix in GROUP:
            moved = covariance(kernel, images(x, matrix), y)
            torch.testing.assert_close(moved, plain, rtol=1e-10, atol=1e-12)
        assert (covariance(kernel.base_kernel, images(x, GROUP[4]), y) - base).abs().max() > 0.01


@pytest.mark.parametrize("inputs", [GAUSSIANS, MIXTURES], ids=["gaussians", "mixtures"])
def test_maps_gaussians_and_mixtures(inputs: object) -> None:
    mixtures = inputs is MIXTURES
    dim, kind = (1, "mixtures") if mixtures else (2, "gaussians")
    group = torch.tensor([[[1.0]], [[-1.0]]]).double() if mixtures else GROUP
    distance = gd.MMD(dim, bandwidth=1.0, inputs=kind)
    kernel = GroupAverageKernel(gd.DistributionKernel(distance).double(), group)
    rows = inputs.rows(5)  # type: ignore[attr-defined]
    size = dim + dim**2
    atoms = rows.unflatten(-1, (-1, size + mixtures))
    matrix = group[1]
    mean, cov = atoms[..., :dim], atoms[..., dim:size].unflatten(-1, (dim, dim))
    parts = [mean @ matrix.T, (matrix @ cov @ matrix.T).flatten(-2), atoms[..., size:]]
    moved = torch.cat(parts, -1).flatten(-2)
    with torch.no_grad():
        torch.testing.assert_close(covariance(kernel, moved, rows), covariance(kernel, rows))
        assert (covariance(kernel.base_kernel, moved, rows).diagonal() < 0.999).any()


@pytest.mark.parametrize("name", ["permuted slices", "slices between"])
def test_batches_agree_with_their_parts(name: str) -> None:
    kernel = GroupAverageKernel(BASES[name][0](), GROUP[:3])
    x, y = random_rows(12).unflatten(0, (3, 4)), random_rows(5, seed=1)
    with torch.no_grad():
        for args in (
            (x, y),
            (x, x),
            (y.expand(3, -1, -1), x),
            (y.expand(3, -1, -1),) * 2,
            (y, y.expand(3, -1, -1)),
        ):
            parts = [
                covariance(kernel, *(arg[i] if arg.dim() > 2 else arg for arg in args))
                for i in range(3)
            ]
            torch.testing.assert_close(covariance(kernel, *args), torch.stack(parts))
        base = copy.deepcopy(BASES[name][0]()).expand_batch(torch.Size([3]))
        base.raw_lengthscale.data = torch.tensor([-1.0, 0.0, 1.0]).double().reshape(3, 1, 1)
        batch = GroupAverageKernel(base, GROUP)
        found = covariance(batch, y)
        assert found.shape == (3, 5, 5)
        assert batch.batch_shape == (3,)
        for i in range(3):
            torch.testing.assert_close(covariance(batch[i], y), found[i])
            torch.testing.assert_close(covariance(batch, x, y)[i], covariance(batch[i], x[i], y))
        expanded = covariance(kernel.expand_batch(torch.Size([2])), y)
        torch.testing.assert_close(expanded, covariance(kernel, y).expand(2, 5, 5))


@pytest.mark.parametrize("name", ["permuted slices", "slices between", "mmd"])
def test_gradients(name: str) -> None:
    kernel = GroupAverageKernel(BASES[name][0]().double(), planar_rotations(3))
    x, y = (random_rows(2, seed=seed, sizes=[4, 4]).requires_grad_() for seed in (0, 1))
    torch.autograd.gradcheck(lambda a, b: covariance(kernel, a, b), (x, y), fast_mode=True)
    torch.autograd.gradcheck(lambda a: covariance(kernel, a), (x,), fast_mode=True)
    covariance(kernel, x.detach(), y.detach()).sum().backward()
    lengthscale = next(kernel.base_kernel.parameters())
    assert lengthscale.grad is not None
    # The covariance has unit variance, in which the lengthscale of the linear profile cancels.
    assert bool(lengthscale.grad.abs() > 1e-3) == (name != "mmd")


def test_gradients_are_finite_at_symmetric_clouds() -> None:
    square = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]).double()
    rows = gd.PointClouds(torch.stack([square, 2 * square])).pack().requires_grad_()
    kernel = GroupAverageKernel(sliced(profile="exponential"), planar_rotations(4))
    covariance(kernel, rows).sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_fit_predict_diagnose_and_save(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.rand(30, 2, generator=generator, dtype=torch.float64) + 0.2
    points = torch.randn(30, 20, 2, generator=generator, dtype=torch.float64) * sizes[:, None]
    angles = torch.randint(3, (30,), generator=generator)
    turned = points @ planar_rotations(3)[angles].mT
    targets = sizes[:, 0] * sizes[:, 1]
    train, new = gd.PointClouds(turned[:24]), gd.PointClouds(turned[24:])
    kernel = ScaleKernel(GroupAverageKernel(sliced(), planar_rotations(3)))
    model = gd.fit(gd.DistributionGP(train, targets[:24], kernel), restarts=0)
    mean, std = model.predict(new)
    again, spread = model.predict(gd.PointClouds(points[24:]))
    torch.testing.assert_close(again, mean)
    torch.testing.assert_close(spread, std)

    found = gd.diagnose(kernel, gd.PointClouds(torch.cat([turned[:5], points[:1]])))
    assert found.duplicates == ((0, 5),)
    base = kernel.base_kernel.base_kernel
    with torch.no_grad():
        copies = torch.stack(
            [base.distance.squared(images(train.pack(), g), train.pack()) for g in GROUP[:3]]
        )
    closest = copies.amin(0)[torch.ones(24, 24).triu(1) > 0].sqrt().median().item()
    report = gd.diagnose(kernel, train)
    assert report.distances[0].median_distance == pytest.approx(closest)

    gd.save(model, tmp_path / "model.gpd")
    loaded = gd.load(tmp_path / "model.gpd")
    assert torch.equal(loaded.predict(new)[0], mean)
    assert torch.equal(loaded.covar_module.base_kernel.group, planar_rotations(3))


def test_normalises_only_where_it_can() -> None:
    kernel = GroupAverageKernel(sliced(profile="linear"), planar_rotations(4))
    points = torch.zeros(2, 3, 2, dtype=torch.float64)
    points[1, 0] = 1.0
    rows = gd.PointClouds(points).pack().requires_grad_()  # all mass at the origin: k(x, x) = 0
    values = covariance(kernel, rows)
    torch.testing.assert_close(values.detach(), torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double())
    values.sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_rejects_bad_arguments() -> None:
    base = sliced()
    with pytest.raises(ValueError, match=r"for 2 dimensions, got 3.*block_diag"):
        GroupAverageKernel(base, torch.eye(3)[None])
    with pytest.raises(ValueError, match="Give active_dims to the average"):
        GroupAverageKernel(sliced(active_dims=[0, 1, 2]), GROUP)
    with pytest.raises(ValueError, match="Average each kernel"):
        GroupAverageKernel(base + gd.DistributionKernel(gd.MMD(3)), GROUP)
    inputs = gd.MixedInputs(shape=gd.PointClouds(torch.eye(2)[:, None].double()), age=[1.0, 2.0])
    with pytest.raises(ValueError, match="Average the kernel inside the block"):
        GroupAverageKernel(gd.mixed_kernel(inputs), GROUP)
    with pytest.raises(ValueError, match="got indices"):
        GroupAverageKernel(gd.DistributionKernel(gd.PrecomputedDistance(torch.zeros(2, 2))), GROUP)
