"""Searches over several parts: what they find, the rows they make, and how candidates are stored."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, PosteriorMean
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    Gaussians,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
)
from gp_distributions.bayesopt import (
    Categories,
    Decoder,
    DesignSearch,
    FreeSearch,
    MixedSearch,
    PoolSearch,
    ShapeOptimizer,
)

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
        kernel = search.kernel(kernels, batch_shape=shape)
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
    def test_versions_of_scipy_that_botorch_does_not_know(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search = pool_search(raw_samples=8, num_restarts=3)
        model, candidates, values = fitted(search)
        acquisition = LogExpectedImprovement(model, best_f=max(values))
        (known,) = search.optimize(acquisition, 1, candidates, candidates, 0)
        reasons = "botorch.generation.gen.get_reasons_against_fast_path"
        monkeypatch.setattr(reasons, lambda **_: ["SciPy is too new"])
        (unknown,) = search.optimize(acquisition, 1, candidates, candidates, 0)
        assert unknown == known | {"angle": pytest.approx(known["angle"], abs=1e-4)}

    def test_acquisition_is_maximised_over_all_parts(self) -> None:
        search = pool_search(raw_samples=16)
        model, candidates, values = fitted(search)
        acquisition = LogExpectedImprovement(model, best_f=max(values))
        best = sorted(candidates, key=lambda c: -outcome(c))
        (found,) = search.optimize(acquisition, 1, candidates, best, 0)
        grid = [
            {"shape": s, "angle": a, "material": m}
            for s, a, m in itertools.product(range(30), np.linspace(-1, 3, 81), ["oak", "ash"])
        ]
        with torch.no_grad():
            on_grid = acquisition(search.inputs(grid).unsqueeze(-2))
            value = acquisition(search.inputs([found]).unsqueeze(-2))
        assert value >= on_grid.max()

    def test_default_model(self) -> None:
        """It has a kernel for each part and a prior for each lengthscale, and finds good candidates."""
        search = pool_search(raw_samples=8, num_restarts=1)
        optimizer = ShapeOptimizer(search, initial=6, restarts=0).run(outcome, 9, progress=False)
        modules = optimizer.model().covar_module.modules()
        kernels = [k for k in modules if getattr(k, "has_lengthscale", False)]
        assert [type(k).__name__ for k in kernels] == [
            "DistributionKernel",
            "MaternKernel",
            "CategoricalKernel",
        ]
        assert all(hasattr(kernel, "lengthscale_prior") for kernel in kernels)
        first = max(outcome(e.candidate) for e in optimizer.evaluations[:6])
        assert optimizer.best[1] > max(-0.02, first)


class TestParts:
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
            shape_design=DesignSearch(Decoder(lambda x: x.unsqueeze(-1) * CIRCLE), bounds),
            numbers=DesignSearch(None, torch.tensor([[0.0, 0.0], [2.0, 4.0]])),
            blood=PoolSearch(gaussians),
            raw_samples=8,
            num_restarts=2,
        )
        optimizer = optimizer_of(search, initial=4)
        optimizer.run(lambda c: c["angle"] - float(c["shape_design"].sum()), 6, progress=False)
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
        for name, part in expected.items():
            torch.testing.assert_close(*map(_tensors, (read[name], part)))

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

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("shape", 30),
            ("angle", float("nan")),
            ("material", "elm"),
            ("design", "x"),
            ("free", CLOUDS[0].points),
        ],
    )
    def test_invalid_candidates_name_their_part(self, name: str, value: Any) -> None:
        search = MixedSearch(
            shape=PoolSearch(CLOUDS),
            angle=(-1.0, 3.0),
            material=["oak", "ash"],
            design=DesignSearch(None, torch.tensor([[0.0], [1.0]])),
            free=FreeSearch(CLOUDS, BOX),
        )
        candidate = search.show(search.initial(1, 0)[0])
        search.plain(candidate)
        with pytest.raises(ValueError, match=f"Part '{name}': Expected"):
            search.plain(candidate | {name: value})

    @pytest.mark.parametrize(
        "levels",
        [
            np.unique(["oak", "ash"]),
            np.array([1.5, 2.5, 3.5], dtype=np.float32),
            pd.Series(["oak", "ash"], dtype="category"),
            Categories([1, 2]),
            (True, False),
        ],
    )
    def test_categories_of_any_kind(self, levels: Any) -> None:
        """Candidates survive the round trip through what users see, and through a file."""
        search = MixedSearch(m=levels, angle=(0.0, 1.0))
        for candidate in search.initial(4, 0):
            assert type(candidate["m"]) in (str, bool, int, float)
            assert search.plain(search.show(candidate)) == candidate
            assert search.plain(json.loads(json.dumps(candidate))) == candidate
        given = levels.levels if isinstance(levels, Categories) else levels
        for position, level in enumerate(given):
            assert search.inputs([search.plain({"m": level, "angle": 0.0})])[0, 0] == position

    @pytest.mark.parametrize(
        ("parts", "error", "message"),
        [
            ({}, TypeError, "at least one part"),
            ({"shape": CLOUDS}, TypeError, "use PoolSearch"),
            ({"angle": [0.0, 10.0]}, ValueError, "interval as a tuple"),
            ({"angle": (1.0, 0.0)}, ValueError, "Part 'angle'.* lower ones below"),
            ({"material": ["oak", "oak"]}, ValueError, "two different categories"),
            ({"material": ["oak", None]}, TypeError, "Part 'material'.*as text"),
            ({"coats": np.array([1, 2])}, ValueError, r"Use \(1, 2\).*or Categories\(\[1, 2\]\)"),
            ({"shape": PoolSearch(CLOUDS.pack())}, ValueError, "instead of rows"),
        ],
    )
    def test_invalid_parts(self, parts: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            MixedSearch(**parts)


def _tensors(part: Any) -> list[Tensor]:
    if isinstance(part, PointClouds):
        kept = part.weights > 0
        return [part.points[kept], (part.weights / part.weights.sum(-1, keepdim=True))[kept]]
    if isinstance(part, Gaussians):
        return [part.mean, part.covariance]
    return [torch.as_tensor(v) for v in part.columns.values()]
