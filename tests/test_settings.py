"""Work that users may do in threads enters no setting of the process, not even for a while."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, random_clouds, reloaded
from library_settings import settings_entered

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    MMDKernel,
    PointClouds,
    PoolSearch,
    ReferenceMeasure,
    ScaledDistance,
    ShapeOptimizer,
    ShardedClouds,
    SharedKernelGP,
    SinkhornKernel,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    compare,
    diagnose,
    fit,
    fit_reference,
    integrate_hyperparameters,
    relevance,
    sensitivity,
)
from gp_distributions.models import KernelRidgeClassifier

pytestmark = pytest.mark.usefixtures("short_fits")

CLOUDS = random_clouds(24, sizes=(3, 8))
ROWS = as_rows(CLOUDS)
X = PointClouds.unpack(ROWS, 2)
Y = torch.stack([points.square().sum() for points, _ in CLOUDS])
OUTPUTS = torch.stack([Y, Y.sqrt()], dim=-1)
LABELS = (Y.median() < Y).long()
FAST: dict[str, Any] = {"restarts": 0, "progress": False}


def kernel(**options: Any) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=6, num_quantiles=8, **options)


def exact(**options: Any) -> DistributionGP:
    return DistributionGP(ROWS[:16], Y[:16], kernel(), **options)


def fitted() -> DistributionGP:
    return fit(exact(), **FAST)


def of_reference() -> DistributionGP:
    reference = ReferenceMeasure.from_data(X[:16], 3, method="ball")
    return DistributionGP(ROWS[:16], Y[:16], SinkhornKernel(reference))


def of_scales() -> DistributionGP:
    distance = ScaledDistance(
        SlicedWasserstein(2, num_slices=4, num_quantiles=4), standardize=False
    )
    return DistributionGP(ROWS[:16], Y[:16], DistributionKernel(distance))


def in_pieces() -> SparseDistributionGP:
    points = np.random.default_rng(0).normal(size=(40, 4, 2))
    parts = [(PointClouds(p), p.sum((1, 2))) for p in np.split(points, 4)]
    data = ShardedClouds.from_pieces([partial(tuple, part) for part in parts])
    model = SparseDistributionGP(data, covar_module=kernel(), num_inducing=8, progress=False)
    return fit(model, **FAST)


def compared(targets: torch.Tensor) -> Any:
    candidates = {"sw2": kernel(), "mmd": MMDKernel(2, bandwidth=1.0)}
    return compare(candidates, X[:16], targets[:16], **FAST).model()


def searched() -> ShapeOptimizer:
    optimizer = ShapeOptimizer(PoolSearch(X), initial=3, restarts=0)
    return optimizer.run(lambda index: float(Y[index]), 5, progress=False)


WORK: dict[str, Callable[[], Any]] = {
    "fit": lambda: fit(exact(), progress=False),
    "sampling noise": lambda: fit(exact(sampling_noise=True), **FAST),
    "outputs": lambda: fit(
        DistributionGP(ROWS, OUTPUTS, kernel(batch_shape=torch.Size([2]))), **FAST
    ),
    "shared": lambda: fit(SharedKernelGP(ROWS, OUTPUTS, kernel()), **FAST),
    "sparse": lambda: fit(SparseDistributionGP(ROWS, Y, kernel(), num_inducing=8), **FAST),
    "pieces": in_pieces,
    "classes": lambda: fit(ClassificationGP(ROWS, LABELS, kernel()), **FAST),
    "sparse classes": lambda: fit(
        SparseClassificationGP(ROWS, LABELS, kernel(), num_inducing=8), **FAST
    ),
    "kernel ridge": lambda: KernelRidgeClassifier(ROWS, LABELS, kernel(), ridge=1e-3),
    "reference": lambda: fit_reference(of_reference(), steps=3, guard=2, progress=False),
    "scales": lambda: fit(of_scales(), **FAST),
    "integration": lambda: integrate_hyperparameters(exact()),
    "comparison": lambda: compared(Y),
    "comparison of classifiers": lambda: compared(LABELS),
    "sensitivity": lambda: sensitivity(exact(), X[16:]),
    "relevance": lambda: relevance(fitted()),
    "diagnosis": lambda: diagnose(kernel(), X),
    "files": lambda: reloaded(exact().eval()).predict(X[16:]),
    "search": lambda: searched(),
}


@pytest.mark.filterwarnings("ignore::gp_distributions.warnings.DistributionWarning")
@pytest.mark.parametrize("name", WORK)
def test_no_setting_is_entered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = settings_entered(monkeypatch)
    WORK[name]()
    assert not entered


@pytest.mark.parametrize(
    "ask",
    [
        relevance,
        integrate_hyperparameters,
        lambda model: sensitivity(model, X[16:]),
        lambda model: model.predict(X[16:]),
        lambda model: model.leave_one_out(),
    ],
)
def test_a_fitted_model_never_returns_to_training_mode(
    ask: Callable[[DistributionGP], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In which another thread would predict from the prior."""
    model = fitted()
    modes: list[bool] = []
    original = torch.nn.Module.train

    def train(self: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
        if self is model:
            modes.append(mode)
        return original(self, mode)

    monkeypatch.setattr(torch.nn.Module, "train", train)
    ask(model)
    assert not any(modes)
