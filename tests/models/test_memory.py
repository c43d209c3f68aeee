"""Models keep only what their predictions need, and nothing outlives them."""

import copy
import gc
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cases import MODELS, NEW_ROWS, NEW_TARGETS
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    PointClouds,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    compare,
    fit,
)
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels import default_kernels

OUTPUTS = torch.stack([NEW_TARGETS, NEW_TARGETS.sqrt()], dim=-1)
NAMES = [name for name in MODELS if not any(k in name for k in ("class", "sparse", "ridge"))]


def conditioned(model: Any, rows: Tensor, targets: Tensor) -> Any:
    fixed = any("FixedNoise" in type(part).__name__ for part in model.modules())
    options = {"noise": torch.full_like(targets, 0.1)} if fixed else {}
    return model.condition_on_observations(rows, targets, **options)


def caches(model: Any) -> list[Tensor]:
    """The factors and weights from which a model predicts."""
    found = [part.conditioned() for part in model.parts]
    return [v for each in found for v in vars(each).values() if isinstance(v, Tensor)]


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    """Python's garbage collector counts objects and not bytes, so loops could fill the memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_fits_and_comparisons_leave_no_features() -> None:
    X, y = PointClouds.unpack(NEW_ROWS[:12], 2), NEW_TARGETS[:12]
    kernels = {"linear": default_kernels(X)["mmd linear"], "sw2": SlicedWassersteinKernel(2)}
    before = {id(each) for each in gc.get_objects() if type(each) is EmbeddedRows}
    fit(DistributionGP(X, y), restarts=0).predict(X)
    fit(ClassificationGP(X, y > y.mean()), restarts=0).predict_proba(X)
    compare(kernels, X, y, restarts=0).model().predict(X)
    after = {id(each) for each in gc.get_objects() if type(each) is EmbeddedRows}
    assert after <= before


def test_a_copy_without_data_carries_none_to_workers() -> None:
    model = copy.copy(SparseDistributionGP(NEW_ROWS, NEW_TARGETS, SlicedWassersteinKernel(2)))
    model.data = None
    assert b"SampledPieces" not in pickle.dumps(model)


@pytest.mark.parametrize("name", NAMES)
def test_ancestors_are_forgotten(name: str) -> None:
    model = MODELS[name]()
    model.predict(NEW_ROWS[:2])
    known: list[list[weakref.ref[Any]]] = []
    for step in range(4):
        known.append([weakref.ref(part) for part in (model, *caches(model))])
        row, targets = NEW_ROWS[step : step + 1], OUTPUTS[step : step + 1, : model.num_outputs]
        model = conditioned(model, row, targets)
        model.predict(NEW_ROWS[:2])
    assert [part() for parts in known for part in parts if part() is not None] == []
    assert all(cache.grad_fn is None for cache in caches(model))


def test_gradients_of_new_clouds_and_targets_stay() -> None:
    """The knowledge gradient differentiates predictions of fantasies with respect to their clouds."""
    model, clouds = MODELS["exact"]().eval(), PointClouds.unpack(NEW_ROWS[:2], 2)

    def mean(points: Tensor, targets: Tensor) -> Tensor:
        rows = PointClouds(points, clouds.weights).pack()
        return model.condition_on_observations(rows, targets).posterior(NEW_ROWS[4:6]).mean

    arguments = clouds.points.clone().requires_grad_(), NEW_TARGETS[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(mean, arguments, atol=1e-7, rtol=1e-5)
