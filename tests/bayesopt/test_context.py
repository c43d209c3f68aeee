"""Parts that are fixed for a proposal, bags that any proposal may have, and pools beside conditions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement

from gp_distributions import (
    DistributionGP,
    MixedInputs,
    MixedSearch,
    PointClouds,
    fit,
    mixed_kernel,
)
from gp_distributions.bayesopt import (
    Context,
    Observations,
    Pool,
    PoolSearch,
    ShapeOptimizer,
    default_acquisition,
    optimize_over_pool,
)

pytestmark = pytest.mark.filterwarnings("ignore:Optimization failed", "ignore:A not p.d.")

RNG = np.random.default_rng(0)
FEEDS = [RNG.normal(RNG.normal(), 1, (int(RNG.integers(3, 9)), 1)) for _ in range(12)]
LARGE = np.linspace(0, 1, 20)[:, None]  # more atoms than any bag before


def search(**parts: Any) -> MixedSearch:
    feed = Context(PointClouds.from_list(FEEDS[:4]))
    parts |= {"temperature": (50.0, 90.0), "raw_samples": 32, "num_restarts": 3}
    return MixedSearch(feed=feed, **parts)


def value(candidate: dict[str, Any]) -> float:
    """Largest at a temperature that the feed decides, with a level that the feed decides, too."""
    mean = float(candidate["feed"].points.mean())
    return 10 * mean - ((candidate["temperature"] - 70 - 8 * mean) / 10) ** 2


def run(optimizer: ShapeOptimizer, feeds: list[Any], **fixed: Any) -> list[dict[str, Any]]:
    asked = []
    for feed in feeds:
        (candidate,) = optimizer.ask(fixed={"feed": feed, **fixed})
        optimizer.tell(candidate, value(candidate))
        asked.append(candidate)
    return asked


def test_a_search_goes_on_with_any_bag(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    optimizer = ShapeOptimizer(search(), initial=5, restarts=0, path=path)
    first = run(optimizer, FEEDS[:5])
    for candidate, feed in zip(first, FEEDS, strict=False):
        np.testing.assert_array_equal(candidate["feed"].points, feed)
    # The first candidates of unlike feeds are those of one sequence.
    temperatures = [c["temperature"] for c in first]
    assert temperatures == [c["temperature"] for c in search().initial(5, 0)]
    run(optimizer, FEEDS[5:8])
    again = ShapeOptimizer(search(), initial=5, restarts=0, path=path)
    assert again.evaluations == optimizer.evaluations
    asked = [other.ask(2, fixed={"feed": LARGE}) for other in (again, optimizer)]
    temperatures = [[c["temperature"] for c in candidates] for candidates in asked]
    assert temperatures[0] == pytest.approx(temperatures[1], rel=1e-12)
    assert asked[0][0]["temperature"] != asked[0][1]["temperature"]
    best = optimizer.recommend({"feed": LARGE})
    assert abs(best["temperature"] - 74) < 8


def test_improvement_is_that_over_the_largest_mean_at_the_fixed_parts() -> None:
    seen: list[Observations] = []

    def acquisition(model: Any, data: Observations) -> AcquisitionFunction:
        seen.append(data)
        grid = data.X[:1].repeat(41, 1)  # the temperature, and the place of the bag
        grid[:, 0] = torch.linspace(0, 1, 41)
        assert data.Y.max() >= model.posterior(grid).mean.max() - 1e-6 * data.Y.abs().max()
        torch.testing.assert_close(data.Y, model.posterior(data.X).mean)
        return default_acquisition(model, data)

    optimizer = ShapeOptimizer(search(), initial=5, restarts=0, acquisition=acquisition)
    run(optimizer, FEEDS[:6])
    asked = [optimizer.ask(fixed={"feed": feed})[0] for feed in FEEDS[8:10]]  # which wait
    seen.clear()
    optimizer.ask(fixed={"feed": LARGE})
    (data,) = seen
    expected = optimizer.search.inputs([optimizer.search.plain(candidate) for candidate in asked])
    torch.testing.assert_close(data.X_pending, expected)
    # What was seen of a rich feed, whose values are large, is not to be exceeded by a poor one.
    assert len(data.X[:, -1].unique()) == 1


def test_fixed_numbers_may_lie_outside_and_stay() -> None:
    two = search(speed=(0.0, 1.0), kind=["a", "b"])
    fixed: dict[str, Any] = {"temperature": 95.5, "kind": "b"}
    optimizer = ShapeOptimizer(two, initial=3, restarts=0)
    for feed in FEEDS[:5]:
        (candidate,) = optimizer.ask(fixed=fixed | {"feed": feed})
        assert (candidate["temperature"], candidate["kind"]) == (95.5, "b")
        assert 0 <= candidate["speed"] <= 1
        optimizer.tell(candidate, -((candidate["speed"] - 0.3) ** 2))
    # Without it, temperatures are within their bounds again.
    assert optimizer.ask(fixed={"feed": FEEDS[1]})[0]["temperature"] <= 90


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        (None, "with every context"),
        ({"feed": FEEDS[0], "tempo": 1.0}, "some of the parts"),
        ({"feed": np.ones((3, 2))}, "Part 'feed': Expected a bag of dimension 1"),
        ({"feed": FEEDS[0], "temperature": "hot"}, "Part 'temperature': Expected a finite number"),
    ],
)
def test_wrong_parts(fixed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShapeOptimizer(search()).ask(fixed=fixed)
    with pytest.raises(ValueError, match=r"fixed parts .* of a MixedSearch, got a PoolSearch"):
        ShapeOptimizer(PoolSearch(PointClouds(np.ones((3, 2, 1))))).ask(fixed={"a": 1})


def parts() -> MixedInputs:
    """Clouds, each with a speed and a material of its own."""
    points = np.random.default_rng(1).normal(size=(40, 5, 2))
    speed = np.linspace(1.0, 2.0, 40)
    return MixedInputs(part=PointClouds(points), speed=speed, material=["oak", "ash"] * 20)


@pytest.mark.parametrize("columns", ["part", "parts of two blocks"])
def test_a_pool_of_mixed_inputs_has_the_values_of_botorch(columns: str) -> None:
    X = parts()
    if columns != "part":
        X = X._with({"other": PointClouds(np.random.default_rng(2).normal(size=(40, 4, 2)))})
    model = fit(DistributionGP(X[:9], np.arange(9.0), mixed_kernel(X)), progress=False)
    acquisition = LogExpectedImprovement(model, best_f=8.0)
    rows = X.pack(model.encoding)
    expected = acquisition(rows.unsqueeze(-2)).detach()
    (index,), (found,) = optimize_over_pool(acquisition, X)
    assert int(index) == int(expected.argmax())
    torch.testing.assert_close(found, expected.max())
    assert torch.equal(Pool(X, encoding=model.encoding).rows, rows)


def test_search_of_a_pool_of_mixed_inputs(tmp_path: Path) -> None:
    X = parts()
    speed = np.linspace(1.0, 2.0, 40)
    clouds = X.blocks["part"]
    assert isinstance(clouds, PointClouds)
    means = clouds.points.mean((1, 2)).numpy()

    def measure(index: int) -> tuple[float, float]:
        if index == 20:
            raise RuntimeError("broken")
        return -(means[index] ** 2) - (speed[index] - 1.6) ** 2, speed[index] - 1.8

    path = tmp_path / "pool.jsonl"
    for count in (8, 16):  # the second continues
        optimizer = ShapeOptimizer(PoolSearch(X), constraints=1, initial=6, path=path, restarts=0)
        optimizer.tell_failure(20, "broken") if count == 8 else None
        optimizer.run(measure, count, progress=False)
    feasible = [i for i in range(40) if speed[i] <= 1.8 and i != 20]
    assert optimizer.best[0] in sorted(feasible, key=measure)[-3:]
    kinds = [
        type(k).__name__
        for k in optimizer.model().covar_module.modules()
        if getattr(k, "has_lengthscale", False)
    ]
    assert kinds == ["DistributionKernel", "MaternKernel", "CategoricalKernel"]
