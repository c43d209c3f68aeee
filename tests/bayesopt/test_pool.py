"""Pool search gives the candidates and values of BoTorch on rows, and embeds candidates once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from botorch.sampling import SobolQMCNormalSampler
from cases import DISTANCES, as_rows, random_clouds
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    PrincipalDistance,
    SlicedWasserstein,
)
from gp_distributions.bayesopt import Pool, optimize_over_pool
from gp_distributions.distances import Distance

CLOUDS = random_clouds(40, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])
TRAIN = [3, 7, 8, 20, 21, 30]
PENDING = [1, 2]
TAKEN = [*TRAIN, *PENDING]
REST = [i for i in range(40) if i not in TAKEN]


def distance() -> SlicedWasserstein:
    return SlicedWasserstein(2, num_slices=10, num_quantiles=20)


def principal() -> PrincipalDistance:
    """A distance whose features have a lengthscale each."""
    found = PrincipalDistance(distance(), num_components=6)
    found.adapt(ROWS)
    return found


def make_model(rows: Tensor = ROWS[TRAIN], outputs: int = 1, **options: Any) -> DistributionGP:
    batch_shape = torch.Size([outputs] if outputs > 1 else [])
    kernel = DistributionKernel(
        options.pop("distance", distance()), "matern52", batch_shape=batch_shape
    )
    kernel.lengthscale = 1.5
    targets = torch.stack([TARGETS, TARGETS.sin()], -1)[TRAIN, :outputs]
    return DistributionGP(rows, targets, ScaleKernel(kernel, batch_shape=batch_shape), **options)


def sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([16]), seed=0)


def noisy(model: DistributionGP) -> AcquisitionFunction:
    return qLogNoisyExpectedImprovement(model, ROWS[TRAIN], sampler(), prune_baseline=False)


ACQUISITIONS: dict[str, Callable[[DistributionGP], AcquisitionFunction]] = {
    "LogEI": lambda model: LogExpectedImprovement(model, TARGETS[TRAIN].max()),
    "qLogEI": lambda model: qLogExpectedImprovement(model, TARGETS[TRAIN].max(), sampler()),
    "qLogEI, pending": lambda model: qLogExpectedImprovement(
        model, TARGETS[TRAIN].max(), sampler(), X_pending=ROWS[PENDING]
    ),
    "qLogNEI": noisy,
}


@pytest.mark.parametrize("make", [distance, principal])
@pytest.mark.parametrize("batch_size", [7, 100])
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_agrees_with_botorch_on_rows(
    name: str, batch_size: int, make: Callable[[], Distance]
) -> None:
    acquisition = ACQUISITIONS[name](make_model(distance=make()))
    values = acquisition(ROWS[REST].unsqueeze(-2)).detach()
    index, value = optimize_over_pool(acquisition, Pool(ROWS), exclude=TAKEN, batch_size=batch_size)
    assert index.tolist() == [REST[int(values.argmax())]]
    torch.testing.assert_close(value, values.max().reshape(1), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["qLogEI", "qLogEI, pending", "qLogNEI"])
def test_several_candidates_are_those_of_botorch(name: str) -> None:
    acquisition = ACQUISITIONS[name](make_model())
    pending = acquisition.X_pending
    expected, expected_values = optimize_acqf_discrete(acquisition, 4, ROWS[REST])
    indices, values = optimize_over_pool(acquisition, ROWS, 4, exclude=torch.tensor(TAKEN))
    assert torch.equal(ROWS[indices], expected)
    torch.testing.assert_close(values, expected_values, rtol=1e-7, atol=1e-7)
    assert len(set(indices.tolist())) == 4
    after = acquisition.X_pending
    assert after is pending is None or torch.equal(after, pending)


# linear_operator makes sparse tensors in a way that torch warns of.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_several_objectives() -> None:
    def acquisition() -> AcquisitionFunction:  # one that remembers no pending points
        return qLogNoisyExpectedHypervolumeImprovement(
            make_model(outputs=2), torch.zeros(2), ROWS[TRAIN], sampler(), prune_baseline=False
        )

    expected, expected_values = optimize_acqf_discrete(acquisition(), 2, ROWS[REST])
    indices, values = optimize_over_pool(acquisition(), Pool(ROWS), 2, exclude=TAKEN)
    assert torch.equal(ROWS[indices], expected)
    torch.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("memory", [0, 2**31])
@pytest.mark.parametrize("name", ["sw2", "sw1", "sinkhorn", "linear-transport", "hellinger"])
def test_any_distance(name: str, memory: float) -> None:
    case = DISTANCES[name]
    rows = case.inputs.rows(15)
    targets = torch.arange(5, dtype=torch.float64).cos()
    model = DistributionGP(rows[:5], targets, ScaleKernel(DistributionKernel(case())))
    acquisition = LogExpectedImprovement(model, 0.5)
    values = acquisition(rows.unsqueeze(-2)).detach()
    index, value = optimize_over_pool(acquisition, Pool(rows, memory=memory), exclude=range(5))
    assert int(index) == 5 + int(values[5:].argmax())
    torch.testing.assert_close(value[0], values[5:].max(), rtol=1e-7, atol=1e-7)


def test_columns_beside_rows() -> None:
    width = ROWS.shape[-1]
    X = torch.cat([ROWS, TARGETS[:, None].cos()], dim=-1)
    clouds = DistributionKernel(distance(), active_dims=range(width))
    for model in (
        DistributionGP(X[TRAIN], TARGETS[TRAIN], clouds * RBFKernel(active_dims=[width])),
        SingleTaskGP(X[TRAIN], TARGETS[TRAIN, None], covar_module=ScaleKernel(clouds)),
    ):
        acquisition = LogExpectedImprovement(model, 3.0)
        values = acquisition(X[REST].unsqueeze(-2)).detach()
        pool = Pool(X)
        index, value = optimize_over_pool(acquisition, pool, exclude=TAKEN)
        assert int(index) == REST[int(values.argmax())]
        torch.testing.assert_close(value[0], values.max(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("train", "pool"), [(20, 30), (30, 20)])
def test_rows_of_other_widths(train: int, pool: int) -> None:
    expected = optimize_over_pool(ACQUISITIONS["qLogEI"](make_model()), ROWS, 2, exclude=TAKEN)
    model = make_model(as_rows(CLOUDS, atoms=train)[TRAIN])
    wide = Pool(as_rows(CLOUDS, atoms=pool))
    for _ in range(2):
        found = optimize_over_pool(ACQUISITIONS["qLogEI"](model), wide, 2, exclude=TAKEN)
        assert torch.equal(found[0], expected[0])
        torch.testing.assert_close(found[1], expected[1])


def test_candidates_with_the_same_cloud_are_told_apart() -> None:
    rows = torch.cat([ROWS, ROWS])
    acquisition = ACQUISITIONS["LogEI"](make_model())
    best, _ = optimize_over_pool(acquisition, ROWS, exclude=TAKEN)
    twins = [*TAKEN, *[i + 40 for i in TAKEN]]
    assert optimize_over_pool(acquisition, rows, exclude=twins)[0].tolist() == best.tolist()
    found, _ = optimize_over_pool(acquisition, rows, exclude=[*twins, int(best)])
    assert found.tolist() == [int(best) + 40]


def test_candidates_are_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, represent = Pool(ROWS), SlicedWasserstein.represent
    represented: list[int] = []

    def counted(self: SlicedWasserstein, points: Tensor, weights: Tensor) -> Tensor:
        represented.append(len(points))
        return represent(self, points, weights)

    monkeypatch.setattr(SlicedWasserstein, "represent", counted)
    counts = []
    for _ in range(2):
        # Another model each time, whose distance is equal and no more.
        optimize_over_pool(ACQUISITIONS["LogEI"](make_model()), pool)
        counts.append(sum(represented))
        represented.clear()
    assert counts[0] >= len(ROWS)
    assert counts[1] <= 2 * len(TRAIN)  # the training clouds only


def test_the_model_is_as_it_was() -> None:
    model = make_model()
    before = model.covar_module.base_kernel.distance
    with pytest.raises(RuntimeError, match="stop"):
        optimize_over_pool(Failing(model), ROWS)
    assert model.covar_module.base_kernel.distance is before


class Failing(AcquisitionFunction):
    def forward(self, X: Tensor) -> Tensor:
        raise RuntimeError("stop")


class Constant(AcquisitionFunction):
    value = torch.nan

    def forward(self, X: Tensor) -> Tensor:
        return torch.full(X.shape[:1], self.value)


class TestErrors:
    def test_numbers(self) -> None:
        acquisition = ACQUISITIONS["qLogEI"](make_model())
        with pytest.raises(ValueError, match="left, 32 of 40, got 33"):
            optimize_over_pool(acquisition, ROWS, 33, exclude=TAKEN)
        with pytest.raises(ValueError, match="left, 0 of 40, got 1"):
            optimize_over_pool(acquisition, ROWS, exclude=range(40))
        with pytest.raises(IndexError, match="index 40 is out of bounds"):
            optimize_over_pool(acquisition, ROWS, exclude=[1, 40])
        with pytest.raises(ValueError, match="truth values"):
            optimize_over_pool(acquisition, ROWS, exclude=torch.ones(40, dtype=torch.bool))

    def test_acquisition_functions(self) -> None:
        model = make_model()
        with pytest.raises(UnsupportedError, match="one-shot"):
            optimize_over_pool(qKnowledgeGradient(model, num_fantasies=2), ROWS)
        with pytest.raises(UnsupportedError, match="X_pending"):
            optimize_over_pool(ACQUISITIONS["LogEI"](model), ROWS, 2)
        with pytest.raises(ValueError, match="not NaN"):
            optimize_over_pool(Constant(model), ROWS)
