"""Thinned rows hold subsets of the atoms, in rows of clouds and of mixed inputs."""

import torch
from cases import rand, randn

from gp_distributions import (
    DistributionGP,
    GaussianMixtures,
    MixedInputs,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
    mixed_kernel,
)
from gp_distributions.fitting.thinning import thinned, thinned_along
from gp_distributions.rows.clouds import join_rows, split_rows


def ragged() -> PointClouds:
    generator = torch.Generator().manual_seed(0)
    return PointClouds.from_list([randn(n, 2, seed=generator) for n in (3, 8, 40, 25)])


def test_atoms_are_a_subset_of_the_given_size() -> None:
    X = ragged()
    thin = PointClouds.unpack(thinned(X.pack(), SlicedWassersteinKernel(2), 10), dim=2)
    assert thin.sizes.tolist() == [3, 8, 10, 10]
    for before, after in zip(X, thin, strict=True):
        atoms = {tuple(p) for p in before.points[before.weights > 0].tolist()}
        chosen = [tuple(p) for p in after.points[after.weights > 0].tolist()]
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= atoms
    assert torch.equal(thin.weights[2], torch.full((10,), 0.1, dtype=torch.float64))


def test_atoms_are_drawn_by_weight() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0]).double().expand(4000, 3)
    X = PointClouds(torch.arange(3.0).double().reshape(3, 1).expand(4000, 3, 1), weights)
    thin = PointClouds.unpack(thinned(X.pack(), SlicedWassersteinKernel(1), 1), dim=1)
    shares = thin.points.flatten().long().bincount()
    # The standard deviation of a share is at most .008.
    torch.testing.assert_close(
        shares / 4000, torch.tensor([1 / 6, 1 / 3, 1 / 2]), rtol=0, atol=0.035
    )


def test_heavy_atoms_keep_their_weight() -> None:
    """One atom at 10 of weight .9, and 150 at zero: the mean is 9, or one draw of 100 away from it."""
    points = torch.zeros(5, 151, 1).double()
    points[:, 0] = 10.0
    weights = torch.full((5, 151), 0.1 / 150).double()
    weights[:, 0] = 0.9
    X = PointClouds(points, weights)
    thin = PointClouds.unpack(thinned(X.pack(), SlicedWassersteinKernel(1), 100), dim=1)
    mean = (thin.weights.unsqueeze(-2) @ thin.points).flatten()
    torch.testing.assert_close(mean, torch.full_like(mean, 9.0), rtol=0, atol=0.1 + 1e-9)


def test_mixed_rows_keep_other_blocks() -> None:
    X = ragged()
    means = torch.arange(16.0).double().reshape(4, 2, 2)
    other = GaussianMixtures(means, torch.eye(2).double().expand(4, 2, 2, 2))
    inputs = MixedInputs(age=[1.0, 2.0, 3.0, 5.0], cells=X, modes=other)
    model = DistributionGP(inputs, [0.0, 1.0, 2.0, 3.0], mixed_kernel(inputs))
    rows = thinned(inputs.pack(), model.covar_module, 10)
    back = MixedInputs.unpack(rows, inputs.encoding)
    assert back.blocks["cells"].sizes.tolist() == [3, 8, 10, 10]
    torch.testing.assert_close(
        back.blocks["age"].columns["age"], inputs.blocks["age"].columns["age"]
    )
    assert torch.equal(back.blocks["modes"].mean[:, :2], means)
    fixed = MMDKernel(2, active_dims=torch.arange(6))
    assert torch.equal(thinned(X.pack(), fixed, 10), X.pack())


def test_along_a_coordinate_its_quantiles_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    points = randn(3, 101, 2, seed=generator)
    weights = rand(3, 101, seed=generator)
    weights[:, 90:] = 0  # padding
    few, even = split_rows(thinned_along(join_rows(points, weights), 2, 1, 20), 2)
    assert bool((even == 1 / 20).all())
    middle = torch.linspace(0.5, 19.5, 20, dtype=torch.float64) / 20
    for cloud, weight, found in zip(points, weights, few, strict=True):
        order = cloud[:, 1].argsort()
        index = torch.searchsorted(weight[order].cumsum(0) / weight.sum(), middle)
        torch.testing.assert_close(found, cloud[order[index]])
    small = join_rows(points[:, :20], weights[:, :20])
    assert torch.equal(thinned_along(small, 2, 0, 20), small)
