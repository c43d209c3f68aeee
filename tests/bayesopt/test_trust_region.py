"""Trust regions: the rules of TuRBO, from the evaluations alone."""

import math
from pathlib import Path

import pytest
import torch
from cases import ellipse_value, ellipses
from torch import Tensor

from gp_distributions import DesignSearch, MixedSearch, ShapeOptimizer
from gp_distributions.bayesopt import Decoder
from gp_distributions.bayesopt.trust_region import region, side_after

BOUNDS = torch.tensor([[0.1, 0.1], [1.0, 1.0]], dtype=torch.float64)


def search(**options: object) -> DesignSearch:
    return DesignSearch(Decoder(ellipses), BOUNDS, num_restarts=2, raw_samples=16, **options)  # type: ignore[arg-type]


def test_sides_follow_successes_and_failures() -> None:
    rising = [float(i) for i in range(30)]
    assert side_after(rising[:5], 5, 1, 6) == 0.8
    assert [side_after(rising[:n], 5, 1, 6) for n in (14, 15, 25)] == [0.8, 1.6, 1.6]
    flat = [1.0] * 60
    # Six parameters: six evaluations in a row, or two rounds of three.
    assert [side_after(flat[:n], 5, 1, 6) for n in (10, 11, 17)] == [0.8, 0.4, 0.2]
    assert [side_after(flat[:n], 5, 3, 6) for n in (8, 11, 17)] == [0.8, 0.4, 0.2]
    # A gain of less than a thousandth is none; a region that would vanish starts anew.
    assert side_after([1.0] * 5 + [1.0 + 1e-4 * i for i in range(6)], 5, 1, 6) == 0.4
    assert side_after(flat[: 5 + 42], 5, 1, 6) == 0.8
    assert side_after([-math.inf] * 6, 2, 1, 3) == 0.4


def test_region_is_within_bounds() -> None:
    found = region(BOUNDS, torch.tensor([0.2, 0.5]).double(), 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.275], [0.425, 0.725]]).double())


def test_a_search_stays_near_the_best_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    optimizer = ShapeOptimizer(search(trust_region=True), initial=4, restarts=0, path=path)
    optimizer.run(ellipse_value_of, 9, progress=False)
    values = [e.outcomes[0] for e in optimizer.evaluations if e.outcomes]
    designs = [e.candidate for e in optimizer.evaluations]
    for place in range(4, 9):
        best = designs[max(range(place), key=values.__getitem__)]
        side = side_after(values[:place], 4, 1, 2)
        low, high = region(BOUNDS, torch.tensor(best).double(), side)
        design = torch.tensor(designs[place]).double()
        assert bool(((low <= design + 1e-12) & (design <= high + 1e-12)).all())
    again = ShapeOptimizer(search(trust_region=True), initial=4, restarts=0, path=path)
    torch.testing.assert_close(again.ask(), optimizer.ask(), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="one objective with a trust region, got 2"):
        ShapeOptimizer(search(trust_region=True), objectives=2)
    with pytest.raises(ValueError, match="Part 'shape': expected a search without a trust region"):
        MixedSearch(shape=search(trust_region=True), speed=(1.0, 2.0))


def ellipse_value_of(design: Tensor) -> float:
    return ellipse_value(design)
