"""Searches over several parts: what they find, the rows they make, and how candidates are stored."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    PosteriorMean,
    qLogExpectedImprovement,
)
from botorch.sampling import SobolQMCNormalSampler
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    Gaussians,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
    mixed_kernel,
)
from gp_distributions.bayesopt import (
    Decoder,
    DesignSearch,
    FreeSearch,
    MixedSearch,
    PoolSearch,
    ShapeOptimizer,
    covariate_lengthscale_priors,
)
from gp_distributions.bayesopt import mixed_search as module
from gp_distributions.bayesopt.alternation import Alternation

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:A not p.d., added jitter"),
]

ANGLES = torch.arange(8, dtype=torch.float64) * (2 * torch.pi / 8) + 0.1
CIRCLE = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=-1)
SIZES = torch.linspace(0.2, 1.0, 30, dtype=torch.float64)
CLOUDS = PointClouds(SIZES[:, None, None] * CIRCLE)
BOX = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)


def pool_search(**options: Any) -> MixedSearch:
    return MixedSearch(
        shape=PoolSearch(CLOUDS), angle=(-1.0, 3.0), material=["oak", "ash"], **options
    )


def outcome(candidate: dict[str, Any]) -> float:
    """Largest at the size 0.7, the angle 1.4, and ash."""
    size, angle = SIZES[candidate["shape"]].item(), candidate["angle"]
    return (
        -((size - 0.7) ** 2) - (angle / 4 - size / 2) ** 2 - 0.1 * (candidate["material"] == "oak")
    )


def model_of(search: MixedSearch) -> Callable[[Tensor, Tensor], DistributionGP]:
    def make(X: Tensor, Y: Tensor) -> DistributionGP:
        shape = torch.Size([Y.shape[-1]] if Y.shape[-1] > 1 else [])
        kernels = {
            name: SlicedWassersteinKernel(2, num_slices=8, num_quantiles=8, batch_shape=shape)
            for name in search.encoding.blocks
            if name.startswith("shape")
        }
        kernel = mixed_kernel(search.encoding, kernels, batch_shape=shape)
        kernel = covariate_lengthscale_priors(kernel)
        return DistributionGP(X, Y, kernel, input_transform=search.input_transform)

    return make


def optimizer_of(search: MixedSearch, **options: Any) -> ShapeOptimizer:
    settings = {"initial": 5, "restarts": 0, "model": model_of(search), "seed": 2} | options
    return ShapeOptimizer(search, **settings)


def fitted(
    search: MixedSearch, count: int = 8
) -> tuple[DistributionGP, list[dict[str, Any]], list[float]]:
    """A model, not fitted but with sensible hyperparameters, of the first candidates of a search."""
    candidates = search.initial(count, 0)
    values = [outcome(search.show(candidate)) for candidate in candidates]
    model = model_of(search)(search.inputs(candidates), torch.tensor(values).double()[:, None])
    for part in model.modules():
        if isinstance(part, SlicedWassersteinKernel):
            part.lengthscale = 0.5
    model.likelihood.noise = 1e-3
    return model.eval(), candidates, values


class TestOptimum:
    def test_acquisition_is_maximised_over_all_parts(self) -> None:
        search = pool_search(raw_samples=16)
        model, candidates, values = fitted(search)
        acquisition = LogExpectedImprovement(model, best_f=max(values))
        best = sorted(candidates, key=lambda c: -outcome(c))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            (found,) = search.optimize(acquisition, 1, candidates, best, 0)
        grid = [
            {"shape": s, "angle": a, "material": m}
            for s, a, m in itertools.product(range(30), np.linspace(-1, 3, 81), ["oak", "ash"])
        ]
        with torch.no_grad():
            on_grid = acquisition(search.inputs(grid).unsqueeze(-2))
            value = acquisition(search.inputs([found]).unsqueeze(-2))
        assert value >= on_grid.max()

    def test_search_finds_the_best_candidate(self) -> None:
        optimizer = optimizer_of(pool_search(raw_samples=8, num_restarts=2)).run(
            outcome, 12, progress=False
        )
        candidate, value = optimizer.best
        assert value > -0.01
        assert candidate["material"] == "ash"
        assert len({e.key for e in optimizer.evaluations}) == 12

    def test_default_model(self) -> None:
        optimizer = ShapeOptimizer(
            pool_search(raw_samples=8, num_restarts=2), initial=4, restarts=0
        )
        (candidate,) = optimizer.run(outcome, 5, progress=False).ask()
        assert candidate.keys() == {"shape", "angle", "material"}

    def test_gradients_with_and_without_look_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The search reaches the same candidate whether distances are looked up or computed."""
        found: list[Any] = []
        for use in (True, False):
            if not use:
                monkeypatch.setattr(PoolSearch, "look_up", lambda *_: None)
            search = pool_search(raw_samples=8, num_restarts=2)
            model, candidates, values = fitted(search)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                acquisition = LogExpectedImprovement(model, best_f=max(values))
                found += search.optimize(acquisition, 1, candidates, candidates, 0)
        assert found[0]["shape"] == found[1]["shape"]
        assert found[0]["angle"] == pytest.approx(found[1]["angle"], abs=1e-4)

    def test_distances_of_the_pool_are_looked_up_in_gradients(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither pool nor evaluated shapes are represented while only the angle moves."""
        search = pool_search(raw_samples=8)
        model, candidates, _ = fitted(search)
        acquisition = PosteriorMean(model)
        represented: list[int] = []
        original = Alternation._move

        def move(self: Alternation, *args: Any) -> Any:
            distance = next(
                part.distance
                for part in model.modules()
                if isinstance(part, SlicedWassersteinKernel)
            )
            represent = type(distance).represent

            def count(self: Any, points: Tensor, weights: Tensor) -> Tensor:
                represented.append(len(points))
                return represent(self, points, weights)

            with monkeypatch.context() as patch:
                patch.setattr(type(distance), "represent", count)
                return original(self, *args)

        monkeypatch.setattr(Alternation, "_move", move)
        search.optimize(acquisition, 1, candidates, candidates, 0)
        assert sum(represented) == 0

    def test_several_candidates_differ(self) -> None:
        search = pool_search(raw_samples=4, num_restarts=1)
        model, candidates, values = fitted(search)
        sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
        acquisition = qLogExpectedImprovement(model, best_f=max(values), sampler=sampler)
        found = search.optimize(acquisition, 2, candidates, candidates, 0)
        assert len({json.dumps(candidate) for candidate in found}) == 2
        assert acquisition.X_pending is None


class TestParts:
    def test_only_intervals(self) -> None:
        search = MixedSearch(x=(0.0, 1.0), y=(-2.0, 2.0), raw_samples=8, num_restarts=2)
        optimizer = optimizer_of(search)
        optimizer.run(lambda c: -((c["x"] - 0.3) ** 2) - (c["y"] - 1) ** 2, 10, progress=False)
        assert optimizer.best[1] > -0.02

    def test_only_categories_are_all_evaluated_once(self) -> None:
        search = MixedSearch(a=["x", "y", "z"], b=[True, False], raw_samples=8)
        optimizer = optimizer_of(search, initial=3)
        optimizer.run(lambda c: "xyz".index(c["a"]) + 3.0 * c["b"], 6, progress=False)
        assert len({e.key for e in optimizer.evaluations}) == 6
        assert optimizer.best == ({"a": "z", "b": True}, 5.0)
        with pytest.raises(ValueError, match="Expected a candidate that is left"):
            optimizer.ask()

    def test_designs_free_shapes_and_gaussians(self) -> None:
        generator = torch.Generator().manual_seed(0)
        clouds = PointClouds(torch.rand(6, 3, 2, generator=generator, dtype=torch.float64))
        variances = torch.arange(1, 5, dtype=torch.float64).reshape(4, 1, 1)
        gaussians = Gaussians(torch.zeros(4, 1, dtype=torch.float64), variances)
        bounds = torch.tensor([[0.2], [1.0]], dtype=torch.float64)
        search = MixedSearch(
            shape_free=FreeSearch(clouds, BOX, maxiter=5),
            angle=(0.0, 4.0),
            shape_design=DesignSearch(Decoder(lambda x: x.unsqueeze(-1) * CIRCLE), bounds, dim=2),
            numbers=DesignSearch(None, torch.tensor([[0.0, 0.0], [2.0, 4.0]])),
            blood=PoolSearch(gaussians),
            raw_samples=8,
            num_restarts=2,
        )
        optimizer = optimizer_of(search, initial=4)

        def value(c: dict[str, Any]) -> float:
            return (
                -float(c["shape_free"].points.square().mean() + c["shape_design"].sum())
                + c["angle"]
            )

        optimizer.run(value, 6, progress=False)
        candidates = [search.show(e.candidate) for e in optimizer.evaluations]
        X = search.inputs([e.candidate for e in optimizer.evaluations])
        assert search.input_transform is not None
        free = [c["shape_free"] for c in candidates]
        inputs = MixedInputs(
            shape_free=PointClouds(
                torch.stack([c.points for c in free]), torch.stack([c.weights for c in free])
            ),
            angle=[c["angle"] for c in candidates],
            shape_design=PointClouds(
                torch.stack([c["shape_design"][:, None] * CIRCLE for c in candidates])
            ),
            numbers={str(i): [float(c["numbers"][i]) for c in candidates] for i in range(2)},
            blood=gaussians[[c["blood"] for c in candidates]],
        )
        rows = inputs.pack(search.encoding)
        # Weights may differ by their total.
        read, expected = (
            search.encoding.decode(r) for r in (search.input_transform.transform(X), rows)
        )
        assert MixedInputs(**read).blocks["angle"].columns.keys() == {"angle"}
        for name, part in expected.items():
            for ours, theirs in zip(*map(_tensors, (read[name], part)), strict=True):
                torch.testing.assert_close(ours, theirs)

    def test_penalty_of_free_shapes_counts(self) -> None:
        starts = PointClouds(0.5 * CIRCLE.expand(2, 8, 2) * torch.tensor([[[1.0]], [[1.1]]]))

        def far(rows: Tensor) -> Tensor:
            return PointClouds.unpack(rows[..., 0, :], 2).points.square().mean((-2, -1))

        found = []
        for weight in (0.0, 1e3):
            free = FreeSearch(starts, BOX, penalty=far, penalty_weight=weight, maxiter=10)
            search = MixedSearch(shape=free, angle=(0.0, 1.0), raw_samples=4, num_restarts=2)
            X = search.inputs(search.initial(3, 0))
            Y = X[:, 1:].abs().sum(-1, keepdim=True)
            acquisition = PosteriorMean(model_of(search)(X, Y).eval())
            (candidate,) = search.optimize(acquisition, 1, [], search.initial(2, 0), 0)
            found.append(search.show(candidate)["shape"].points.square().mean().item())
        assert found[1] < 0.05 < found[0]


class TestCandidates:
    def test_initial_has_no_repetitions_and_is_complete(self) -> None:
        search = MixedSearch(a=["x", "y", "z"], shape=PoolSearch(CLOUDS[:4]))
        found = search.initial(20, 3)
        assert len({json.dumps(c) for c in found}) == len(found) == 12
        assert search.initial(5, 3) == found[:5]
        assert len(pool_search().initial(100, 0)) == 100

    def test_intervals_fill_the_square(self) -> None:
        search = MixedSearch(x=(0.0, 1.0), y=(0.0, 8.0))
        cells = {(int(4 * c["x"]), int(c["y"] / 2)) for c in search.initial(16, 0)}
        assert len(cells) == 16  # a Sobol sequence visits each cell once

    def test_inputs_of_a_pool_are_rows_of_mixed_inputs(self) -> None:
        search = pool_search()
        candidates = [search.plain({"shape": 3, "angle": 1, "material": "ash"})]
        expected = MixedInputs(shape=CLOUDS[[3]], angle=[1.0], material=["ash"]).pack(
            search.encoding
        )
        assert search.input_transform is None
        assert torch.equal(search.inputs(candidates), expected)

    def test_bounds_are_exact(self) -> None:
        search = MixedSearch(x=(0.1, 0.7))
        assert search.parts["x"].read_inputs(torch.tensor([[1.0], [0.0]])) == [0.7, 0.1]  # type: ignore[attr-defined]
        assert search.inputs([{"x": 0.7}, {"x": 0.1}]).tolist() == [[1.0], [0.0]]

    @pytest.mark.parametrize(
        "candidate",
        [
            3,
            {"shape": 3, "angle": 1.0},
            {"shape": 30, "angle": 1.0, "material": "oak"},
            {"shape": 3, "angle": 3.1, "material": "oak"},
            {"shape": 3, "angle": "steep", "material": "oak"},
            {"shape": 3, "angle": 1.0, "material": "elm"},
        ],
    )
    def test_invalid_candidates(self, candidate: Any) -> None:
        with pytest.raises(ValueError, match="Expected"):
            pool_search().plain(candidate)

    @pytest.mark.parametrize(
        ("parts", "error", "message"),
        [
            ({}, TypeError, "at least one part"),
            ({"shape": CLOUDS}, TypeError, "use PoolSearch"),
            ({"angle": [0.0, 10.0]}, ValueError, "interval as a tuple"),
            ({"angle": (1.0, 0.0)}, ValueError, "lower below the upper"),
            ({"angle": (0.0, float("inf"))}, ValueError, "finite bounds"),
            ({"material": ["oak"]}, ValueError, "two different categories"),
            ({"material": ["oak", "oak"]}, ValueError, "two different categories"),
            ({"material": "oak"}, TypeError, "list of categories"),
            ({"material": ["oak", None]}, TypeError, "as text"),
            ({"shape": PoolSearch(CLOUDS.pack())}, ValueError, "instead of rows"),
        ],
    )
    def test_invalid_parts(self, parts: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            MixedSearch(**parts)


class TestOptimizer:
    def test_a_resumed_search_asks_for_the_same_candidates(self, tmp_path: Path) -> None:
        def optimizer(path: Path | None) -> ShapeOptimizer:
            return optimizer_of(pool_search(raw_samples=8, num_restarts=2), path=path)

        whole = optimizer(None).run(outcome, 7, progress=False)
        path = tmp_path / "search.jsonl"
        optimizer(path).run(outcome, 6, progress=False)
        resumed = optimizer(path).run(outcome, 7, progress=False)
        assert resumed.evaluations == whole.evaluations
        record = json.loads(path.read_text().splitlines()[1])
        assert list(record["candidate"]) == ["shape", "angle", "material"]

    def test_constraints_failures_and_several_candidates(self) -> None:
        def both(candidate: dict[str, Any]) -> tuple[float, float]:
            if candidate["shape"] == 0:
                raise RuntimeError("too small")
            return outcome(candidate), candidate["angle"] - 1.0

        search = pool_search(raw_samples=4, num_restarts=1)
        optimizer = optimizer_of(search, constraints=1)
        optimizer.tell_failure({"shape": 0, "angle": 0.0, "material": "ash"}, "too small")
        optimizer.run(both, 8, q=2, progress=False)
        candidate, _ = optimizer.best
        assert candidate["angle"] <= 1.0

    def test_several_objectives(self) -> None:
        optimizer = optimizer_of(
            pool_search(raw_samples=8, num_restarts=2), objectives=2, initial=4
        )
        optimizer.run(lambda c: (outcome(c), -c["angle"]), 6, progress=False)
        assert len(optimizer.pareto) >= 1


def test_one_shot_acquisition_functions_are_refused() -> None:
    from botorch.acquisition import qKnowledgeGradient
    from botorch.exceptions import UnsupportedError

    search = pool_search()
    model, candidates, _ = fitted(search)
    acquisition: AcquisitionFunction = qKnowledgeGradient(model, num_fantasies=2)
    with pytest.raises(UnsupportedError, match="not one-shot"):
        search.optimize(acquisition, 1, [], candidates, 0)


def test_seeds_differ() -> None:
    assert module._seed(0, 1) != module._seed(1, 0)


def _tensors(part: Any) -> list[Tensor]:
    if isinstance(part, PointClouds):
        kept = part.weights > 0
        return [part.points[kept], (part.weights / part.weights.sum(-1, keepdim=True))[kept]]
    if isinstance(part, Gaussians):
        return [part.mean, part.covariance]
    return [torch.as_tensor(v) for v in part.columns.values()]
