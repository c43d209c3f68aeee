"""Thompson sampling: each candidate maximises a path of its own, in pools, designs and batches."""

import pytest
import torch
from botorch.exceptions import UnsupportedError
from cases import ellipse_value, ellipses

from gp_distributions import (
    DesignSearch,
    DistributionGP,
    PointClouds,
    PoolSearch,
    ShapeOptimizer,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.bayesopt import Decoder, Pool, optimize_over_pool
from gp_distributions.bayesopt.acquisitions import ThompsonSampling
from gp_distributions.fitting.members import give_members

POINTS = torch.randn(40, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CLOUDS = PointClouds(POINTS + POINTS[:, :1], geometric=True)
VALUES = CLOUDS.points.mean((-2, -1))


@pytest.fixture(scope="module")
def model() -> DistributionGP:
    """A model of three members."""
    found = fit(DistributionGP(CLOUDS[:12], VALUES[:12], sampling_noise=False), restarts=0)
    give_members(found, [found.covar_module.base_kernel])
    assert len(found.members) == 3
    return found


def test_candidates_of_a_pool_maximise_the_paths(model: DistributionGP) -> None:
    torch.manual_seed(0)
    acquisition = ThompsonSampling(model, 8)
    pool = Pool(CLOUDS)
    indices, values = optimize_over_pool(acquisition, pool, 8, exclude=range(12))
    with torch.no_grad():
        paths = acquisition.paths(pool.rows)  # without distances that are looked up
    left = torch.ones(40, dtype=torch.bool)
    left[:12] = False
    for path, index, value in zip(paths, indices, values, strict=True):
        expected = torch.where(left, path, -torch.inf).argmax()
        assert index == expected
        torch.testing.assert_close(value, path[index], rtol=1e-8, atol=1e-8)
        left[index] = False


def test_candidates_that_all_fold_are_as_good_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = torch.tensor([[0.1, 0.1], [1.0, 1.0]], dtype=torch.float64)
    search = DesignSearch(Decoder(ellipses), bounds)
    monkeypatch.setattr(search, "_folds", lambda designs: torch.ones(len(designs)).bool())
    designs = search.inputs(search.initial(8, 0))
    of_designs = DistributionGP(
        designs,
        torch.arange(8.0).double(),
        SlicedWassersteinKernel(2),
        input_transform=search.input_transform,
    )
    found = search.optimize(ThompsonSampling(of_designs, 2), 2, [], designs.tolist(), 0)
    assert len(found) == 2


def test_paths_have_the_moments_of_the_posterior(model: DistributionGP) -> None:
    torch.manual_seed(0)
    acquisition = ThompsonSampling(model, 4096)
    rows = CLOUDS[12:16].pack()
    with torch.no_grad():
        values = acquisition.values(rows.unsqueeze(-2)).mT
    mean, std = model.predict(CLOUDS[12:16], observation_noise=False)
    # Up to sampling errors, and those of random features.
    torch.testing.assert_close(values.mean(0), mean, rtol=0, atol=0.1 * float(std.max()))
    torch.testing.assert_close(values.std(0), std, rtol=0.15, atol=0)


def test_designs_maximise_the_paths() -> None:
    bounds = torch.tensor([[0.1, 0.1], [1.0, 1.0]], dtype=torch.float64)
    search = DesignSearch(Decoder(ellipses), bounds)
    designs = search.inputs(search.initial(8, 0))
    values = torch.tensor([ellipse_value(design) for design in designs], dtype=torch.float64)
    kernel = SlicedWassersteinKernel(2)
    model = DistributionGP(designs, values, kernel, input_transform=search.input_transform)
    fit(model, restarts=0)
    torch.manual_seed(0)
    acquisition = ThompsonSampling(model, 3)
    found = search.inputs(search.optimize(acquisition, 3, [], designs.tolist(), 0))
    grid = torch.cartesian_prod(*torch.linspace(0.1, 1.0, 41, dtype=torch.float64).expand(2, -1))
    with torch.no_grad():
        best = acquisition.values(found.unsqueeze(-2)).diagonal()
        low, high = acquisition.values(grid.unsqueeze(-2)).aminmax(dim=0)
    assert ((bounds[0] <= found) & (found <= bounds[1])).all()
    # The largest of several maxima may not be the one above the best of random designs.
    assert (best >= high - 0.01 * (high - low)).all()


def test_searches() -> None:
    pool = ShapeOptimizer(PoolSearch(CLOUDS), acquisition="thompson", initial=8, restarts=0)
    pool.run(lambda index: float(VALUES[index]), 12, progress=False)
    asked = pool.ask(5)
    assert len(set(asked)) == 5
    assert not set(asked) & set(pool.ask(5))


def test_other_names_are_refused() -> None:
    with pytest.raises(TypeError, match='Expected acquisition as "thompson" or a function'):
        ShapeOptimizer(PoolSearch(CLOUDS), acquisition="ucb")  # type: ignore[arg-type]


def test_one_objective_without_constraints() -> None:
    optimizer = ShapeOptimizer(
        PoolSearch(CLOUDS), acquisition="thompson", constraints=1, initial=3, restarts=0
    )
    optimizer.run(lambda index: (float(VALUES[index]), -1.0), 3, progress=False)
    with pytest.raises(UnsupportedError, match="without constraints for Thompson sampling, got 2"):
        optimizer.ask()
