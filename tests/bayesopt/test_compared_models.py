"""Searches that compare kernels: weights, what they fit, and that they continue as they would have."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.models import ModelList
from botorch.models.transforms.input import ChainedInputTransform
from cases import ellipse_value, ellipses
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions import (
    MMD,
    DistributionGP,
    DistributionKernel,
    MixtureModel,
    PointClouds,
    ScaledDistance,
    SlicedWasserstein,
    fit,
)
from gp_distributions.bayesopt import (
    Decoder,
    DesignSearch,
    FreeSearch,
    MixedSearch,
    Pool,
    PoolSearch,
    Search,
    ShapeOptimizer,
    compared_models,
    median_lengthscale_prior,
)
from gp_distributions.bayesopt.compared_models import default_candidates
from gp_distributions.judging import left_out
from gp_distributions.numerics.predictions import pseudo_bma_weights
from gp_distributions.warnings import ConvergenceWarning

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:A not p.d., added jitter"),
]

BOUNDS = torch.tensor([[0.1, 0.1], [1.0, 1.0]], dtype=torch.float64)
AXES = 0.1 + 0.9 * torch.rand(
    40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
)


CLOUDS = PointClouds(ellipses(AXES))


def of_index(index: int) -> float:
    return ellipse_value(AXES[index])


def kernels() -> dict[str, Any]:
    distance = SlicedWasserstein(2, num_slices=8, num_quantiles=12)
    return {
        "rough": DistributionKernel(distance, "exponential"),
        "smooth": ScaleKernel(DistributionKernel(distance, "gaussian")),
        "mmd": MMD(2, bandwidth=0.3),
        "sw1": SlicedWasserstein(2, p=1, num_slices=8, num_quantiles=12),
    }


def pool_optimizer(**options: Any) -> ShapeOptimizer:
    return ShapeOptimizer(
        PoolSearch(CLOUDS), **{"initial": 5, "model": kernels(), "seed": 3} | options
    )


def design_search(**options: Any) -> DesignSearch:
    return DesignSearch(
        Decoder(ellipses), BOUNDS, **{"dim": 2, "num_restarts": 1, "raw_samples": 16} | options
    )


def told(optimizer: ShapeOptimizer, count: int) -> ShapeOptimizer:
    for index in range(count):
        optimizer.tell(index, of_index(index))
    return optimizer


def keys(optimizer: ShapeOptimizer) -> list[str]:
    return [e.key for e in optimizer.evaluations]


def mixture(optimizer: ShapeOptimizer) -> MixtureModel:
    model = optimizer.model()
    assert isinstance(model, MixtureModel)
    return model


def _transform(model: DistributionGP) -> dict[str, Tensor]:
    state = model.state_dict()
    return {name: value for name, value in state.items() if name.startswith("outcome_transform")}


class TestMixture:
    def test_members_are_fits_and_weights_come_from_what_they_leave_out(self) -> None:
        given = kernels()
        before = copy.deepcopy({n: k.state_dict() for n, k in given.items()})
        found = mixture(told(pool_optimizer(model=given), 12))
        X, y = CLOUDS[:12].pack(), torch.tensor([[of_index(i)] for i in range(12)]).double()
        densities = []
        # After 12 evaluations, fits take turns of two.
        for size, (name, member) in zip(
            [12, 11, 12, 11], zip(given, found.models, strict=True), strict=True
        ):
            kernel = kernels()[name]
            kernel = kernel if isinstance(kernel, Kernel) else DistributionKernel(kernel)
            first = DistributionGP(X[:size], y[:size], kernel)
            first = fit(median_lengthscale_prior(first), restarts=0, seed=3)
            model = DistributionGP(X, y, copy.deepcopy(kernel))
            model.load_state_dict(first.state_dict() | _transform(model))
            for (one, p), (two, q) in zip(
                model.named_parameters(), member.named_parameters(), strict=True
            ):
                assert one == two
                torch.testing.assert_close(p, q)
            densities.append(left_out(model, y).log_density)
        weights = pseudo_bma_weights(torch.stack(densities, dim=-1), seed=3)
        weights = weights.where(weights >= 0.01, 0.0)
        torch.testing.assert_close(found.weights, weights / weights.sum())
        for name, kernel in given.items():
            for key, tensor in kernel.state_dict().items():
                assert torch.equal(tensor, before[name][key])

    @pytest.mark.parametrize(
        ("error", "message"), [(NotPSDError, "too close"), (NanError, "density of an evaluation")]
    )
    def test_a_candidate_that_fails_is_left_out(
        self, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails_for(*wrong: int) -> None:
            calls = iter(range(100))

            def predict(model: Any, y: Any) -> Any:
                found = left_out(model, y)
                if next(calls) not in wrong:
                    return found
                if error is NotPSDError:
                    raise NotPSDError(message)
                return replace(found, std=0 * found.std)

            monkeypatch.setattr(compared_models, "left_out", predict)

        optimizer = told(pool_optimizer(model=kernels() | {"mmd": MMD(2, bandwidth=1.0)}), 8)
        fails_for(1)
        with pytest.warns(ConvergenceWarning, match=f"'smooth' is left out.*{message}"):
            assert len(mixture(optimizer).models) == 3
        fails_for(0, 1, 2, 3)
        with pytest.raises(error), pytest.warns(ConvergenceWarning, match="left out"):
            optimizer.model()


@pytest.mark.usefixtures("shortest_fits")
class TestSharedDistances:
    """A fit of one member must not change what another has learned."""

    @staticmethod
    def candidates(distance: Any) -> dict[str, Any]:
        return {p: DistributionKernel(distance, p) for p in ("matern52", "exponential")}

    @pytest.mark.parametrize(
        "make",
        [
            lambda: MMD(2),  # its bandwidth is set from the first clouds that it sees
            lambda: ScaledDistance(SlicedWasserstein(2, num_slices=4, num_quantiles=6)),
        ],
    )
    def test_whole_and_resumed_searches_agree(self, make: Any) -> None:
        whole, resumed = (pool_optimizer(model=self.candidates(make())) for _ in range(2))
        for index in range(12):
            if index > 10:
                whole.model()
            for optimizer in (whole, resumed):
                optimizer.tell(index, -5 * float(AXES[index, 0] - 0.7) ** 2)
        first, second = mixture(whole), mixture(resumed)
        assert torch.equal(first.weights, second.weights)
        for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
            assert torch.equal(one, other), name


class TestSearches:
    def test_constraints_and_objectives(self) -> None:
        two = {name: kernels()[name] for name in ("rough", "mmd")}
        optimizer = pool_optimizer(model=two, constraints=1)
        optimizer.run(lambda i: [of_index(i), float(AXES[i, 0]) - 0.6], 8, q=2, progress=False)
        assert AXES[optimizer.best[0], 0] <= 0.6
        assert isinstance(optimizer.model(), ModelList)
        optimizer = pool_optimizer(model=two, objectives=2, constraints=1)
        optimizer.run(
            lambda i: [of_index(i), float(AXES[i, 1]), float(AXES[i, 0]) - 0.6], 7, progress=False
        )
        assert len(set(keys(optimizer))) == 7
        assert optimizer.model().posterior(CLOUDS[:3].pack()).mean.shape == (3, 3)


class TestDefaults:
    def test_kernels_by_search(self) -> None:
        names = list(default_candidates(PoolSearch(CLOUDS), 0))
        assert names[:2] == ["sw2 matern52", "sw2 exponential"]
        box = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)
        assert list(default_candidates(FreeSearch(CLOUDS, box), 0)) == names
        assert list(default_candidates(PoolSearch(Pool(CLOUDS)), 0)) == names
        names = list(default_candidates(design_search(), 0))
        assert names[:1] == ["sw2 matern52"]
        assert names[-2:] == ["designs gaussian", "designs matern52"]
        found = default_candidates(DesignSearch(None, BOUNDS), 0)
        assert list(found) == ["designs gaussian", "designs matern52"]
        assert [type(k) for k in found.values()] == [RBFKernel, MaternKernel]

    @pytest.mark.parametrize(
        "search",
        [
            PoolSearch(CLOUDS.pack()),
            DesignSearch(ChainedInputTransform(shape=Decoder(ellipses)), BOUNDS),
            MixedSearch(shape=PoolSearch(CLOUDS), angle=(0.0, 1.0)),
        ],
    )
    def test_unknown_kinds(self, search: Search) -> None:
        with pytest.raises(ValueError, match=r'Expected a .* for model="compare"'):
            ShapeOptimizer(search, model="compare")


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        ({}, ValueError, "at least one kernel"),
        ("comparison", TypeError, 'a function, "compare", or a list'),
        (MaternKernel(), TypeError, "Pass a single kernel in a list"),
        ({"a": MaternKernel(), "b": 3}, TypeError, r"model\['b'\] as a kernel.* got int"),
        ([MaternKernel(batch_shape=torch.Size([2]))], ValueError, "without a batch shape"),
    ],
)
def test_errors(model: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ShapeOptimizer(PoolSearch(CLOUDS), model=model)
