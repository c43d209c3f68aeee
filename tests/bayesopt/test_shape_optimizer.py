"""Ask-and-tell searches: what they find, what they keep on the disk, and how they treat failures."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from cases import ellipse_value as value
from cases import ellipses
from gpytorch.kernels import ScaleKernel
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from gp_distributions import DistributionGP, PointClouds, PrincipalDistance, SlicedWassersteinKernel
from gp_distributions.bayesopt import (
    CheckpointError,
    Decoder,
    DesignSearch,
    FreeSearch,
    Observations,
    PoolSearch,
    Search,
    ShapeOptimizer,
    default_acquisition,
    shape_optimizer,
)
from gp_distributions.kernels.default import default_distance
from gp_distributions.warnings import ConvergenceWarning

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:A not p.d., added jitter"),
]

BOUNDS = torch.tensor([[0.1, 0.1], [1.0, 1.0]], dtype=torch.float64)
BOX = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)


def designs(num: int = 60) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.1 + 0.9 * torch.rand(num, 2, dtype=torch.float64, generator=generator)


CLOUDS = PointClouds(ellipses(designs()))
NAMED = PoolSearch(PointClouds.from_list({"cube": [[0.0]], "ball": [[1.0]]}))


def of_index(index: int) -> float:
    return value(designs()[index])


def of_cloud(cloud: PointClouds) -> float:
    return value(cloud.points.abs().amax(-2))


def small_model(X: Tensor, Y: Tensor, decoder: Decoder | None = None) -> DistributionGP:
    batch_shape = torch.Size([Y.shape[-1]] if Y.shape[-1] > 1 else [])
    kernel = SlicedWassersteinKernel(
        2, profile="matern52", num_slices=8, num_quantiles=12, batch_shape=batch_shape
    )
    return DistributionGP(
        X, Y, ScaleKernel(kernel, batch_shape=batch_shape), input_transform=decoder
    )


def with_decoder(X: Tensor, Y: Tensor) -> DistributionGP:
    return small_model(X, Y, Decoder(ellipses))


def outlines(points: torch.Tensor) -> PointClouds:
    return PointClouds.from_curves(list(points), atoms=16, normals=True)


def outlined(designs: torch.Tensor) -> PointClouds:
    return outlines(ellipses(designs))


def pool_optimizer(search: Search | None = None, **options: Any) -> ShapeOptimizer:
    return ShapeOptimizer(
        search or PoolSearch(CLOUDS),
        **{"initial": 5, "restarts": 0, "model": small_model, "seed": 3} | options,
    )


def design_optimizer(**options: Any) -> ShapeOptimizer:
    search = DesignSearch(Decoder(ellipses), BOUNDS, num_restarts=1, raw_samples=16)
    return ShapeOptimizer(search, **{"initial": 5, "restarts": 0, "model": with_decoder} | options)


def default_optimizer(**options: Any) -> ShapeOptimizer:
    return pool_optimizer(model=None, **options)


def keys(optimizer: ShapeOptimizer) -> list[str]:
    return [e.key for e in optimizer.evaluations]


def test_a_pool_is_searched() -> None:
    optimizer = pool_optimizer().run(of_index, 13, progress=False)
    values = [of_index(i) for i in range(60)]
    assert optimizer.best == (values.index(max(values)), max(values))
    assert len(set(keys(optimizer))) == 13
    trace = optimizer.trace
    assert trace == sorted(trace)
    assert trace[-1] == max(values)


class TestDefaultModel:
    @pytest.mark.parametrize(
        "search", [PoolSearch(outlines(CLOUDS.points)), DesignSearch(Decoder(outlined), BOUNDS)]
    )
    def test_components_are_those_of_all_shapes(self, search: Search) -> None:
        optimizer = ShapeOptimizer(search, restarts=0)
        for number, candidate in enumerate(optimizer.ask(6)):
            optimizer.tell(candidate, float(number % 4))
        clouds = search.clouds
        assert isinstance(clouds, PointClouds)
        assert clouds.num_normals == 2
        model = optimizer.model()
        base = default_distance(clouds)
        base.adapt(clouds.pack())
        for member, exponent in zip(model.members[1:], (0.5, 1.0), strict=True):
            found = member.covar_module.base_kernel.distance
            expected = PrincipalDistance(
                base, num_components=found.num_components, exponent=exponent
            )
            expected.adapt(clouds.pack())
            torch.testing.assert_close(found.components, expected.components)
        assert str(found.distance) == str(base)  # with its spread and normals

    @pytest.mark.parametrize(
        "search",
        [
            DesignSearch(Decoder(ellipses), BOUNDS, dim=2, num_restarts=1, raw_samples=16),
            FreeSearch(CLOUDS[:20], BOX, num_restarts=2, maxiter=5),
        ],
    )
    def test_designs_and_free_shapes(self, search: Search) -> None:
        function: Any = value if isinstance(search, DesignSearch) else of_cloud
        optimizer = ShapeOptimizer(search, initial=5, restarts=0)
        optimizer.run(function, 7, progress=False)
        assert optimizer.trace[-1] > optimizer.trace[4]
        assert len(optimizer.model().members) == 3


@pytest.mark.usefixtures("shortest_fits")
class TestAskAndTell:
    def test_what_is_asked_for_is_not_asked_for_again(self) -> None:
        for optimizer in (pool_optimizer(), design_optimizer()):
            asked = [c for q in (2, 4) for c in optimizer.ask(q)]
            for candidate in asked[:4]:
                optimizer.tell(
                    candidate,
                    of_index(candidate) if isinstance(candidate, int) else value(candidate),
                )
            asked += optimizer.ask() + optimizer.ask(2)
            plain = [json.dumps(optimizer.search.plain(candidate)) for candidate in asked]
            assert len(set(plain)) == 9

    def test_global_random_state_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seeds: list[int] = []
        monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
        optimizer = design_optimizer().run(value, 6, progress=False)
        torch.manual_seed(0)
        expected = torch.rand(1)
        torch.manual_seed(0)
        optimizer.ask()
        assert torch.equal(torch.rand(1), expected)
        assert not any(seeds)  # the search does not use the generators of CUDA

    def test_searches_in_several_threads_draw_as_each_does_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shape_optimizer, "fit", lambda model, **_: model.eval())

        def draws(seed: int) -> list[float]:
            drawn: list[float] = []

            def acquisition(model: DistributionGP, data: Observations) -> AcquisitionFunction:
                for _ in range(3):
                    drawn.append(torch.rand(()).item())
                    time.sleep(0.01)
                raise InterruptedError

            optimizer = pool_optimizer(acquisition=acquisition, seed=seed)
            for index in range(6):
                optimizer.tell(index, of_index(index))
            with pytest.raises(InterruptedError):
                optimizer.ask()
            return drawn

        state = torch.get_rng_state()
        with ThreadPoolExecutor(3) as threads:
            together = list(threads.map(draws, range(3)))
        assert together == [draws(seed) for seed in range(3)]
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: pool_optimizer(initial=1), ValueError, "initial: expected an integer >= 2"),
        (lambda: ShapeOptimizer(CLOUDS), TypeError, r"PoolSearch\(clouds\)"),  # type: ignore[arg-type]
        (
            lambda: ShapeOptimizer(PoolSearch(CLOUDS), model=SlicedWassersteinKernel(2)),
            TypeError,
            r"model as a function (.|\n)* lambda X, Y",
        ),
        (lambda: PoolSearch([CLOUDS.points[0]]), TypeError, r"PointClouds\.from_list"),  # type: ignore[arg-type]
        (lambda: DesignSearch(ellipses, BOUNDS), TypeError, r"Decoder\(function\)"),  # type: ignore[arg-type]
        (lambda: DesignSearch(None, [[1.0], [0.0]]), ValueError, "bounds as a 2 x 1 tensor"),
        (
            lambda: ShapeOptimizer(DesignSearch(Decoder(ellipses), BOUNDS, dim=3)),
            ValueError,
            "dim=3, but decode returns atoms of dimension 2",
        ),
        (lambda: ShapeOptimizer(PoolSearch(CLOUDS.pack())), ValueError, "Expected a model"),
        (lambda: pool_optimizer().best, ValueError, r"None of 0 evaluations .* constraints\.$"),
        (
            lambda: pool_optimizer().run(lambda i: i / 0, 2).best,
            ValueError,
            "2 .*failed: ZeroDivision",
        ),
        (lambda: pool_optimizer().model(), ValueError, "at least two successful"),
        (lambda: pool_optimizer().tell(60, 0.0), ValueError, "index from 0 to 59"),
        (lambda: pool_optimizer().tell(7, [1.0, 2.0]), ValueError, "to be 1, got 2"),
        (lambda: pool_optimizer().tell(7, None), ValueError, r"call tell_failure\("),  # type: ignore[arg-type]
        (lambda: design_optimizer().tell(torch.tensor([0.0, 0.5]), 1.0), ValueError, "within"),
        (lambda: ShapeOptimizer(NAMED).tell("ball", 1.0), ValueError, "from 0 to 1, got 'ball'"),
    ],
)
def test_errors(make: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


@pytest.mark.usefixtures("shortest_fits")
class TestOutcomes:
    def test_failures_are_recorded_and_the_search_goes_on(self, tmp_path: Path) -> None:
        def evaluate(index: int) -> float:
            if index % 3 == 0:
                raise RuntimeError(f"no flow at {index}")
            return float("nan") if index % 3 == 1 else of_index(index)

        path = tmp_path / "search.jsonl"
        optimizer = pool_optimizer(path=path).run(evaluate, 18, progress=False)
        failures = [e for e in optimizer.evaluations if e.failure is not None]
        assert len(optimizer.evaluations) == 18
        assert len(set(keys(optimizer))) == 18
        for e in failures:
            assert e.outcomes is None
            raised = f"RuntimeError: no flow at {e.candidate}"
            assert e.failure == (raised if e.candidate % 3 == 0 else "outcome 0 is nan")
        assert len(failures) > 3
        successes = [e.candidate for e in optimizer.evaluations if e.failure is None]
        assert len(successes) > 3
        assert optimizer.best[0] == max(successes, key=of_index)
        assert pool_optimizer(path=path).evaluations == optimizer.evaluations
        shown = f"ShapeOptimizer(PoolSearch, 18 evaluations, {len(failures)} failed)"
        assert repr(optimizer) == shown

    @pytest.mark.parametrize("broken", ["points", "raises"])
    def test_failed_designs_that_cannot_be_decoded_are_not_pending(self, broken: str) -> None:
        lost: list[Tensor] = []
        seen: list[Observations] = []

        def decode(axes: Tensor) -> Tensor:
            wrong = torch.stack([(axes == design).all(-1) for design in lost]).any(0)
            if broken == "raises" and bool(wrong.any()):
                raise ArithmeticError("no such shape")
            points = ellipses(axes)
            points[wrong] = torch.nan
            return points

        def acquisition(model: DistributionGP, data: Observations) -> AcquisitionFunction:
            seen.append(data)
            return default_acquisition(model, data)

        optimizer = design_optimizer(
            model=lambda X, Y: small_model(X, Y, Decoder(decode)), acquisition=acquisition
        )
        first, second, third, *others = optimizer.ask(5)
        lost += [first, third]
        for design in (first, second, third):
            optimizer.tell_failure(design, "no flow")
        for design in others:
            optimizer.tell(design, value(design))
        asked = [*optimizer.ask(), *optimizer.ask(2)]
        pending = [data.X_pending for data in seen]
        torch.testing.assert_close(pending[0], second.unsqueeze(0))
        torch.testing.assert_close(pending[1], torch.stack([second, asked[0]]))
        assert len({json.dumps(d.tolist()) for d in (first, second, third, *others, *asked)}) == 8

    def test_after_an_interrupt_the_same_candidates_are_asked_for(self) -> None:
        def interrupted(index: int) -> float:
            if len(optimizer.evaluations) == 7:
                raise KeyboardInterrupt
            return of_index(index)

        optimizer = pool_optimizer()
        with pytest.raises(KeyboardInterrupt):
            optimizer.run(interrupted, 11, q=3, progress=False)
        assert len(optimizer.evaluations) == 7
        optimizer.run(of_index, 11, q=3, progress=False)
        other = pool_optimizer().run(of_index, 7, q=3, progress=False)
        assert keys(optimizer) == keys(other.run(of_index, 11, q=3, progress=False))

    def test_failed_fits_do_not_end_a_search(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise NotPSDError("too far")

        monkeypatch.setattr(shape_optimizer, "fit", fail)
        optimizer = pool_optimizer().run(of_index, 5, progress=False)
        with pytest.warns(ConvergenceWarning, match=r"fit to 5 evaluations failed \(too far\)"):
            optimizer.ask()

    def test_constraints(self) -> None:
        def evaluate(index: int) -> list[float]:
            axes = designs()[index]
            return [value(axes), float(axes[0]) - 0.5]

        optimizer = pool_optimizer(constraints=1).run(evaluate, 12, progress=False)
        allowed = [i for i in range(60) if evaluate(i)[1] <= 0]
        best = max(allowed, key=of_index)
        assert optimizer.best == (best, of_index(best))

    def test_several_objectives(self) -> None:
        def evaluate(index: int) -> Tensor:
            axes = designs()[index]
            return torch.stack([axes[0], -axes.square().sum()])

        optimizer = pool_optimizer(objectives=2).run(evaluate, 8, progress=False)
        told = {e.candidate: e.outcomes for e in optimizer.evaluations}
        pareto = {
            i
            for i, (a, b) in told.items()  # type: ignore[misc]
            if not any(c >= a and d >= b and (c > a or d > b) for c, d in told.values())  # type: ignore[misc]
        }
        assert {i for i, _ in optimizer.pareto} == pareto
        assert all(told[i] == outcomes for i, outcomes in optimizer.pareto)
        with pytest.raises(ValueError, match="Use pareto"):
            _ = optimizer.best

    # Powers of two scale without rounding errors, so that candidates are equal on every processor.
    @pytest.mark.parametrize(
        ("unit", "options"),
        [(2.0**-30, {"constraints": 1}), (2.0**30, {"objectives": 2})],
    )
    def test_units_of_outcomes_do_not_matter(self, unit: float, options: Any) -> None:
        def evaluate(index: int) -> list[float]:
            axes = designs()[index]
            return [value(axes), float(axes[0]) - 0.5][: 1 + len(options)]

        both = []
        for factor in (1.0, unit):
            optimizer = pool_optimizer(model=None, **options)
            for index in range(8):
                optimizer.tell(index, [factor * outcome for outcome in evaluate(index)])
            both.append(optimizer.ask(3))
        assert both[0] == both[1]


@pytest.mark.usefixtures("shortest_fits")
class TestCheckpoint:
    @pytest.mark.parametrize("make", [pool_optimizer, default_optimizer, design_optimizer])
    def test_resumed_searches_go_on_as_if_never_stopped(self, make: Any, tmp_path: Path) -> None:
        function = value if make is design_optimizer else of_index
        whole = make().run(function, 7, progress=False)
        path = tmp_path / "search.jsonl"
        make(path=path).run(function, 3, progress=False)
        make(path=path).run(function, 6, progress=False)
        resumed = make(path=path)
        resumed.ask()
        resumed = make(path=path).run(function, 7, progress=False)
        assert keys(resumed) == keys(whole)
        assert resumed.evaluations == whole.evaluations

    def test_an_unfinished_line_is_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "search.jsonl"
        whole = pool_optimizer(path=path).run(of_index, 4, progress=False)
        content = path.read_bytes()
        ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
        for size in range(len(content)):
            path.write_bytes(content[:size])
            found = pool_optimizer(path=path).evaluations
            complete = sum(end <= size for end in ends)
            assert found == whole.evaluations[: max(0, complete - 1)]
            assert path.read_bytes() == content[: ends[max(complete, 1) - 1]]

    def test_other_searches_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "search.jsonl"
        pool_optimizer(path=path).run(of_index, 4, progress=False)
        content = path.read_bytes()
        for other in (
            lambda: pool_optimizer(path=path, seed=4),
            lambda: pool_optimizer(path=path, constraints=1),
            lambda: design_optimizer(path=path),
            lambda: pool_optimizer(PoolSearch(CLOUDS[:50]), path=path),
        ):
            with pytest.raises(CheckpointError, match="belongs to another search"):
                other()
        assert path.read_bytes() == content
