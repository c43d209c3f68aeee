"""Models of ``calibration_ledger``, and the rows that it measures with them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from scipy.stats import kurtosis
from torch import Tensor

import gp_distributions as gd
from benchmarks.calibration import ledger_tasks
from benchmarks.calibration.ledger_tasks import Inputs, Task
from benchmarks.harness import Row
from gp_distributions.models import IntegratedGP
from gp_distributions.numerics.densities import Mixture
from gp_distributions.warnings import silenced

LEVELS = (0.5, 0.8, 0.95)
TEST, HELD_OUT, FEWEST = 200, 100, 20

Labels = NDArray[np.str_]


@dataclass(frozen=True)
class Entry:
    """One row to measure: a task, a model, the number of training objects and that of draws."""

    task: str
    model: str
    train: int
    draws: int
    labels: bool = False


@dataclass(frozen=True)
class Draw:
    """Objects for training, held out for corrections, and for testing."""

    train: tuple[Inputs, Any]
    held_out: tuple[Inputs, Any]
    test: tuple[Inputs, Any]


@dataclass(frozen=True)
class Score:
    """Results of one draw."""

    inside: Tensor
    log_density: float
    constant: float
    width: float
    rmse: float
    errors: Tensor
    conformal: float | None
    conformal_width: float | None
    held_out: int
    jackknife: float | None


def split(task: Task, train: int, seed: int, *, quick: bool) -> Draw | None:
    """Draw objects, or return ``None`` if there are too few."""
    held_out, test = (FEWEST, 20) if quick else (HELD_OUT, TEST)
    if task.pool is not None:
        left = task.pool - train
        if left < FEWEST + 10:
            return None
        held_out = min(held_out, max(FEWEST, left // 3))
        test = min(test, left - held_out)
    X, y = task.make(train + held_out + test, test, seed)
    known, last = train, train + held_out
    return Draw((X[:known], y[:known]), (X[known:last], y[known:last]), (X[last:], y[last:]))


def kernel_of(task: Task, X: Inputs) -> Kernel:
    """Return the default kernel of a task."""
    if isinstance(X, gd.MixedInputs):
        return gd.mixed_kernel(X)
    distance = gd.RigidSlicedWasserstein(X.dim) if task.pose else gd.SlicedWasserstein(X.dim)
    return ScaleKernel(gd.DistributionKernel(distance))


def fitted(task: Task, X: Inputs, y: Tensor) -> gd.DistributionGP:
    """Return the default model."""
    return gd.fit(gd.DistributionGP(X, y, kernel_of(task, X)), progress=False)


def integrated(task: Task, X: Inputs, y: Tensor) -> IntegratedGP:
    """Return a mixture over hyperparameters."""
    return gd.integrate_hyperparameters(gd.DistributionGP(X, y, kernel_of(task, X)))


def sparse(task: Task, X: Inputs, y: Tensor) -> gd.SparseDistributionGP:
    """Return a sparse model."""
    number = min(100, max(20, len(y) // 5))
    model = gd.SparseDistributionGP(X, y, kernel_of(task, X), num_inducing=number)
    return gd.fit(model, progress=False)


def sampled(task: Task, X: Inputs, y: Tensor) -> gd.DistributionGP:
    """Return a model with sampling noise."""
    model = gd.DistributionGP(X, y, kernel_of(task, X), sampling_noise=True)
    return gd.fit(model, progress=False)


def referenced(task: Task, X: Inputs, y: Tensor) -> gd.DistributionGP:
    """Return a model with a learned reference."""
    assert isinstance(X, gd.PointClouds)
    kernel = ScaleKernel(gd.SinkhornKernel(gd.ReferenceMeasure.from_data(X, 8)))
    model = gd.DistributionGP(X, y, kernel)
    gd.fit_reference(model, steps=10, progress=False)
    return model


def scaled(task: Task, X: Inputs, y: Tensor) -> gd.DistributionGP:
    """Return a model with learned scales of coordinates."""
    assert isinstance(X, gd.PointClouds)
    kernel = ScaleKernel(gd.DistributionKernel(gd.ScaledDistance(gd.SlicedWasserstein(X.dim))))
    return gd.fit(gd.DistributionGP(X, y, kernel), progress=False)


def stacked(task: Task, X: Inputs, y: Tensor) -> Any:
    """Return a stacked mixture of three kernels."""
    kernels: dict[str, Kernel] = {"default": kernel_of(task, X)}
    if isinstance(X, gd.PointClouds):
        distance = gd.RigidSlicedWasserstein(X.dim) if task.pose else gd.SlicedWasserstein(X.dim)
        kernels["exponential"] = gd.DistributionKernel(distance, "exponential")
        kernels["mmd"] = gd.MMDKernel(X.dim, num_features=200)
    else:
        kernels["sum"] = gd.mixed_kernel(X, structure="sum")
    return gd.compare(kernels, X, y, progress=False).model()


MODELS: dict[str, Callable[[Task, Inputs, Tensor], Any]] = {
    "fit": fitted,
    "integrate": integrated,
    "sparse": sparse,
    "sampling noise": sampled,
    "reference": referenced,
    "scaled": scaled,
    "stacked": stacked,
}


def serves(model: str, task: Task, X: Inputs) -> bool:
    """Return whether a model can serve a task."""
    if not isinstance(X, gd.PointClouds):
        return model not in ("sampling noise", "reference", "scaled")
    if model == "sampling noise":
        return task.samples
    if model == "reference":
        return not task.pose and X.dim <= 4 and X.points.shape[-2] <= 100
    return model != "scaled" or not task.pose


def predicted(model: Any, X: Inputs) -> Mixture:
    """Return the predictive distributions of targets."""
    with torch.no_grad():
        if isinstance(model, IntegratedGP | gd.MixtureModel):
            found = model.posterior(X, observation_noise=True).mixture
            parts = found.location.squeeze(-2), found.scale.squeeze(-2)
            return Mixture(found.weights.flatten(), *parts, found.degrees)
        mean, std = (part.unsqueeze(-1) for part in model.predict(X))
    return Mixture(torch.ones(1).double(), mean, std, torch.full((1,), math.inf).double())


def score(model: Any, draw: Draw) -> Score:
    """Score the predictions of test targets."""
    X, y = draw.test
    known = draw.train[1]
    center, deviation = known.mean(), known.std()
    mixture = predicted(model, X)
    depth = 2 * (mixture.cdf(y) - 0.5).abs()
    constant = torch.distributions.Normal(center, deviation).log_prob(y).mean()
    above, below = ((1 + sign * LEVELS[-1]) / 2 for sign in (1, -1))
    width = (mixture.quantile(above) - mixture.quantile(below)).mean()
    widest = 2 * 1.96 * deviation
    mean, std = model.predict(X)
    held_out, targets = draw.held_out
    conformal = jackknife = ratio = None
    if len(targets) >= FEWEST:
        correction = gd.ConformalCorrection(targets, *model.predict(held_out))
        conformal, ratio = within(y, mean, correction.rescale(std), 2 * 1.96 / widest)
    if isinstance(model, gd.DistributionGP | gd.SparseDistributionGP) and len(known) >= FEWEST:
        correction = gd.ConformalCorrection(known, *model.leave_one_out())
        jackknife, _ = within(y, mean, correction.rescale(std), 1.0)
    return Score(
        torch.stack([(depth <= level).double() for level in LEVELS]),
        mixture.log_density(y).mean().item(),
        constant.item(),
        (width / widest).item(),
        ((y - mean).square().mean() / (y - center).square().mean()).sqrt().item(),
        (y - mean) / std,
        conformal,
        ratio,
        len(targets),
        jackknife,
    )


def within(y: Tensor, mean: Tensor, std: Tensor, scale: Any) -> tuple[float, float]:
    """Return the share of targets in 95% intervals, and the mean deviation times a scale."""
    z = (y - mean).abs() / std
    half = torch.special.ndtri(torch.tensor((1 + LEVELS[-1]) / 2, dtype=torch.float64))
    return (z <= half).double().mean().item(), (std.mean() * scale).item()


def regression(entry: Entry, seed: int, *, quick: bool) -> Row | None:
    """Measure one row of regression."""
    task = ledger_tasks.REGRESSION[entry.task]
    found: list[Score] = []
    begin = time.perf_counter()
    for number in range(seed, seed + entry.draws):
        draw = split(task, entry.train, number, quick=quick)
        if draw is None or not serves(entry.model, task, draw.train[0]):
            return None
        torch.manual_seed(number)
        with silenced():
            model = MODELS[entry.model](task, *draw.train)
            found.append(score(model, draw))
    seconds = (time.perf_counter() - begin) / len(found)
    inside = torch.cat([one.inside for one in found], dim=-1)
    cover = inside.mean(-1).tolist()
    shares = [one.inside[-1].mean().item() for one in found]
    return {
        "task": entry.task,
        "model": entry.model,
        "T": entry.train,
        "draws": len(found),
        "targets": inside.shape[-1],
        **{f"cover{100 * level:.0f}": share for level, share in zip(LEVELS, cover, strict=True)},
        "cover95_by_draw": " ".join(f"{share:.3f}" for share in shares),
        "error": standard_error(cover[-1], inside.shape[-1], shares),
        "log_density": mean_of(one.log_density for one in found),
        "gain": mean_of(one.log_density - one.constant for one in found),
        "width": mean_of(one.width for one in found),
        "rmse": mean_of(one.rmse for one in found),
        "kurtosis": float(kurtosis(torch.cat([one.errors for one in found]).numpy())),
        "conformal": mean_of(one.conformal for one in found),
        "conformal_error": corrected_error(found),
        "conformal_width": mean_of(one.conformal_width for one in found),
        "jackknife": mean_of(one.jackknife for one in found),
        "seconds": seconds,
    }


def mean_of(values: Iterator[float | None]) -> float | None:
    """Return the mean of values, or ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def standard_error(share: float, number: int, shares: list[float]) -> float:
    """Return the standard error of a share: that of draws, but at least that of independent targets."""
    # One target more, half of it inside: a share of 0 or 1 has an error, too.
    smoothed = (share * number + 0.5) / (number + 1)
    independent = math.sqrt(smoothed * (1 - smoothed) / number)
    if len(shares) < 2:
        return independent
    return max(independent, statistics.stdev(shares) / math.sqrt(len(shares)))


def corrected_error(found: list[Score]) -> float | None:
    """Return the standard error of coverage with corrections, which vary with the held-out objects."""
    shares = [one.conformal for one in found if one.conformal is not None]
    if not shares:
        return None
    number, held_out = found[0].inside.shape[-1], found[0].held_out
    # The coverage of one correction follows a beta distribution.
    counts = 1 / number + 1 / (held_out + 2)
    independent = math.sqrt(LEVELS[-1] * (1 - LEVELS[-1]) * counts / len(shares))
    if len(shares) < 2:
        return independent
    return max(independent, statistics.stdev(shares) / math.sqrt(len(shares)))


def classification(entry: Entry, seed: int, *, quick: bool) -> Row | None:
    """Measure one row of classification."""
    task = ledger_tasks.LABELS[entry.task]
    probabilities: list[Tensor] = []
    hits: list[Tensor] = []
    bare_tops: list[Tensor] = []
    scores: list[float] = []
    bare_scores: list[float] = []
    bases: list[float] = []
    shares: list[float] = []
    begin = time.perf_counter()
    for number in range(seed, seed + entry.draws):
        draw = split(task, entry.train, number, quick=quick)
        if draw is None:
            return None
        X, labels = draw.train
        with silenced():
            model, bare_model = (classifier(entry.model, task, X, labels, t) for t in (None, 1.0))
            found, bare = (each.predict_proba(draw.test[0]) for each in (model, bare_model))
        # Labels that no training object has cannot be predicted.
        known = np.isin(draw.test[1], model.classes_)
        index = torch.from_numpy(np.searchsorted(model.classes_, draw.test[1][known]))
        found, bare = (part[torch.from_numpy(known)] for part in (found, bare))
        frequencies = torch.from_numpy(np.mean(labels[:, None] == model.classes_, axis=0))
        hits.append(found.argmax(-1) == index)
        probabilities.append(found)
        bare_tops.append(bare.amax(-1))
        for part, means in ((found, scores), (bare, bare_scores)):
            means.append(part.gather(-1, index.unsqueeze(-1)).log().mean().item())
        bases.append(frequencies[index].log().mean().item())
        shares.append(frequencies.max().item())
    top = torch.cat([part.amax(-1) for part in probabilities])
    right = torch.cat(hits).double()
    random = torch.Generator().manual_seed(0)
    drawn = [(torch.rand(len(top), generator=random) < top).double() for _ in range(200)]
    exact = torch.tensor([calibration_error(top, one) for one in drawn])
    return {
        "task": entry.task,
        "model": f"{entry.model} classifier",
        "T": entry.train,
        "draws": entry.draws,
        "targets": len(right),
        "accuracy": right.mean().item(),
        "base": statistics.fmean(shares),
        "log_score": statistics.fmean(scores),
        "base_score": statistics.fmean(bases),
        "confidence": top.mean().item(),
        "ece": calibration_error(top, right),
        "log_score_bare": statistics.fmean(bare_scores),
        "ece_bare": calibration_error(torch.cat(bare_tops), right),
        "ece_exact": exact.mean().item(),
        "ece_exact_95": exact.quantile(0.95).item(),
        "seconds": (time.perf_counter() - begin) / entry.draws,
    }


def classifier(name: str, task: Task, X: Inputs, labels: Labels, temperature: float | None) -> Any:
    """Return a classifier; without a temperature, ``fit`` chooses one."""
    kernel = kernel_of(task, X)
    model: Any = (
        gd.ClassificationGP(X, labels, kernel)
        if name == "exact"
        else gd.SparseClassificationGP(X, labels, kernel, num_inducing=40)
    )
    return gd.fit(model, temperature=temperature, restarts=0, progress=False)


def calibration_error(top: Tensor, right: Tensor) -> float:
    """Return the expected calibration error over ten bins of equal counts."""
    order = top.argsort()
    bins = zip(top[order].tensor_split(10), right[order].tensor_split(10), strict=True)
    gaps = [(part.mean() - hit.mean()).abs() * len(part) for part, hit in bins if len(part)]
    return (torch.stack(gaps).sum() / len(top)).item()


def measured(entry: Entry, seed: int, *, quick: bool) -> Row | None:
    """Measure one row, or return ``None`` if the model cannot serve the task."""
    measure = classification if entry.labels else regression
    return measure(entry, seed, quick=quick)
