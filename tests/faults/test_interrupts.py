"""Interrupts at any evaluation: models stay usable, and searches go on."""

import copy
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, random_clouds
from fault_tasks import AtLine, Children, interrupt, optimizer, value
from gpytorch.mlls import ExactMarginalLogLikelihood
from library_settings import settings

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    PointClouds,
    ReferenceMeasure,
    ScaledDistance,
    SinkhornKernel,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    fit,
    fit_reference,
    integrate_hyperparameters,
)
from gp_distributions.bayesopt import ShapeOptimizer
from gp_distributions.fitting import starts
from gp_distributions.kernels import DistributionKernel
from gp_distributions.warnings import UndeterminedWarning, silenced

CLOUDS = random_clouds(16, sizes=(6, 9))
ROWS = as_rows(CLOUDS)
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])


def kernel(**options: Any) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=4, num_quantiles=6, **options)


def exact(covar_module: Any = None, **options: Any) -> DistributionGP:
    return DistributionGP(ROWS[:12], TARGETS[:12], covar_module or kernel(), **options)


def of_reference() -> DistributionGP:
    reference = ReferenceMeasure.from_data(PointClouds.unpack(ROWS[:12], 2), 3, method="ball")
    return exact(SinkhornKernel(reference))


def scaled() -> DistributionGP:
    return exact(
        DistributionKernel(ScaledDistance(SlicedWasserstein(2, num_slices=4, num_quantiles=4)))
    )


def fast(model: Any) -> Any:
    with silenced(UndeterminedWarning):
        return fit(model, restarts=0, progress=False)


def learn_reference(model: Any) -> Any:
    return fit_reference(model, steps=2, guard=2, progress=False)


# By name: the model, what is interrupted, and whether it leaves the model as it was.
FITS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], bool]] = {
    "fit": (exact, fast, False),
    "sampling noise": (lambda: exact(sampling_noise=True), fast, False),
    "scales": (scaled, fast, False),
    "classes": (
        lambda: ClassificationGP(
            ROWS[:12], (TARGETS[:12] > TARGETS[:12].median()).long(), kernel()
        ),
        lambda model: fit(model, alpha_epsilons=(0.1, 0.01), restarts=0),
        False,
    ),
    "sparse": (
        lambda: SparseDistributionGP(ROWS[:12], TARGETS[:12], kernel(), num_inducing=6),
        *(fast, False),
    ),
    "reference": (of_reference, learn_reference, True),
    "integration": (exact, integrate_hyperparameters, True),
}


class Counter:
    """Counts factorisations, of which every evaluation has one, and interrupts at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at: float = math.inf) -> None:
        self.count, self.at = 0, at
        for name in ("cholesky", "cholesky_ex", "eigh"):
            patch.setattr(torch.linalg, name, self.counted(getattr(torch.linalg, name)))

    def counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                interrupt()
            return original(*arguments, **options)

        return call


def flags(model: Any) -> dict[str, bool]:
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


def likelihood(model: Any) -> float:
    model = copy.deepcopy(model).train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with torch.no_grad():
        return float(mll(model(*model.train_inputs), model.train_targets).sum())


@pytest.mark.filterwarnings("ignore::gp_distributions.warnings.DistributionWarning")
@pytest.mark.parametrize("name", FITS)
def test_models_stay_usable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, work, unchanged = FITS[name]
    with monkeypatch.context() as patch:
        whole = Counter(patch)
        work(make())
    assert whole.count > 1
    some = 1 if name in ("scales", "reference") else 3  # these take long
    places = np.random.default_rng(0).integers(1, whole.count + 1, size=some)
    for at in (1, *places.tolist(), whole.count):
        model, known = make(), settings()
        before, mode, start = flags(model), model.training, copy.deepcopy(model.state_dict())
        exact_model = isinstance(model, DistributionGP) and not isinstance(model, ClassificationGP)
        initial = likelihood(model) if exact_model else -math.inf
        with monkeypatch.context() as patch:
            Counter(patch, at)
            with pytest.raises(KeyboardInterrupt):
                work(model)
        assert model.training is (mode if unchanged else False)
        assert flags(model) == before
        assert torch.is_grad_enabled()
        assert settings() == known
        if unchanged:
            after = model.state_dict()
            assert all(torch.equal(after[key], start[key]) for key in start)
        elif exact_model and name != "scales":  # the likelihood of other scales is not compared
            assert likelihood(model) >= initial - 1e-9
        if isinstance(model, ClassificationGP):
            assert model.predict_proba(ROWS[12:]).isfinite().all()
        else:
            mean, std = model.predict(ROWS[12:])
            assert mean.isfinite().all()
            assert (std > 0).all()


def test_the_best_concentration_so_far_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    make, _, _ = FITS["classes"]
    first = fit(make(), alpha_epsilons=(0.1,), restarts=0)
    with monkeypatch.context() as patch:
        counter = Counter(patch)
        fit(make(), alpha_epsilons=(0.1,), restarts=0)
    model = make()
    with monkeypatch.context() as patch:
        Counter(patch, counter.count + 5)
        with pytest.raises(KeyboardInterrupt):
            fit(model, alpha_epsilons=(0.1, 0.001), restarts=0)
    assert model.alpha_epsilon == 0.1
    assert torch.equal(model.predict_proba(ROWS[12:]), first.predict_proba(ROWS[12:]))


# A file whose variable the interrupt takes away is closed by Python, with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("line", range(1, 60, 6))
def test_records_and_memory_agree_after_an_interrupt(line: int, tmp_path: Path) -> None:
    """Whichever line that writes them is interrupted, the search goes on as if nothing had happened."""
    expected = optimizer("random", None).run(value, 6, progress=False).evaluations
    path = str(tmp_path / "search.jsonl")
    made = optimizer("random", path)
    at = AtLine(line, interrupt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShapeOptimizer, "tell", at.within(ShapeOptimizer.tell))
        try:
            made.run(value, 6, progress=False)
        except KeyboardInterrupt:
            assert optimizer("random", path).evaluations == made.evaluations
            made.run(value, 6, progress=False)
    assert at.count >= line
    assert made.evaluations == expected
    assert optimizer("random", path).evaluations == expected


def test_a_real_signal(children: Children, tmp_path: Path) -> None:
    ready, result = tmp_path / "ready", tmp_path / "result"
    process = children.start("fit_until_interrupted", ready, result)
    last = time.monotonic() + 120
    while not ready.exists():
        assert time.monotonic() < last, "the process has ended"
        time.sleep(0.005)
    os.kill(process, signal.SIGINT)
    assert children.end(process) == 0
    assert result.read_text() == "interrupted, False, True"


def test_models_predict_after_an_interrupt_that_leaves_a_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(ExitStack):
        def __exit__(self, *details: object) -> bool:
            raise KeyboardInterrupt

    X = PointClouds(torch.randn(12, 5, 2, generator=torch.Generator().manual_seed(0)).double())
    model = DistributionGP(X, X.points.mean((1, 2)))
    monkeypatch.setattr(starts, "ExitStack", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(model, progress=False)
    assert bool(model.predict(X[:3])[0].isfinite().all())
