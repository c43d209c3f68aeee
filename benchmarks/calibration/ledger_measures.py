"""Models of ``calibration_ledger``, and the rows that it measures with them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from scipy.stats import kurtosis
from torch import Tensor

import gp_distributions as gd
from benchmarks.calibration import ledger_tasks
from benchmarks.calibration.ledger_tasks import Inputs, Task
from benchmarks.harness import Row, means
from benchmarks.regression import kernel_of, mean_of
from gp_distributions.distances import Distance
from gp_distributions.numerics.densities import Mixture
from gp_distributions.warnings import silenced

LEVELS = (0.5, 0.8, 0.95)
TEST, HELD_OUT, FEWEST = 200, 100, 20

Labels = NDArray[np.str_]
# Results of one draw.
Score = dict[str, Any]


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


def distance_of(task: Task, X: gd.PointClouds) -> Distance:
    """Return the default distance of a task on clouds."""
    return gd.RigidSlicedWasserstein(X.dim) if task.pose else gd.SlicedWasserstein(X.dim)


def default_kernel(task: Task, X: Inputs) -> Kernel:
    """Return the default kernel of a task."""
    if isinstance(X, gd.MixedInputs):
        return gd.mixed_kernel(X)
    return kernel_of(distance_of(task, X))


def fitted(task: Task, X: Inputs, y: Tensor, **options: Any) -> gd.DistributionGP:
    """Return the default model."""
    return gd.fit(gd.DistributionGP(X, y, default_kernel(task, X), **options), progress=False)


def integrated(task: Task, X: Inputs, y: Tensor) -> gd.DistributionGP:
    """Return a mixture over hyperparameters."""
    return gd.integrate_hyperparameters(gd.DistributionGP(X, y, default_kernel(task, X)))


def sparse(task: Task, X: Inputs, y: Tensor) -> gd.SparseDistributionGP:
    """Return a sparse model."""
    number = min(100, max(20, len(y) // 5))
    model = gd.SparseDistributionGP(X, y, default_kernel(task, X), num_inducing=number)
    return gd.fit(model, progress=False)


def scaled(task: Task, X: Any, y: Tensor) -> gd.DistributionGP:
    """Return a model with learned scales of coordinates."""
    kernel = kernel_of(gd.ScaledDistance(gd.SlicedWasserstein(X.dim), standardize=False))
    return gd.fit(gd.DistributionGP(X, y, kernel), progress=False)


MODELS: dict[str, Callable[[Task, Any, Tensor], Any]] = {
    "fit": fitted,
    "integrate": integrated,
    "sparse": sparse,
    "sampling noise": lambda task, X, y: fitted(task, X, y, sampling_noise=True),
    "scaled": scaled,
}


def serves(model: str, task: Task, X: Inputs) -> bool:
    """Return whether a model can serve a task."""
    if not isinstance(X, gd.PointClouds):
        return model not in ("sampling noise", "scaled")
    if model == "sampling noise":
        return task.samples
    return model != "scaled" or not task.pose


def predicted(model: Any, X: Any) -> Mixture:
    """Return the predictive distributions of targets."""
    with torch.no_grad():
        found = model.mixture(X)
    return Mixture(found.weights.flatten(), found.location.squeeze(-2), found.scale.squeeze(-2))


def score(model: Any, draw: Draw) -> Score:
    """Score the predictions of test targets."""
    (X, y), known = draw.test, draw.train[1]
    center, deviation = known.mean(), known.std()
    mixture = predicted(model, X)
    depth = 2 * (mixture.cdf(y) - 0.5).abs()
    constant = torch.distributions.Normal(center, deviation).log_prob(y).mean()
    above, below = ((1 + sign * LEVELS[-1]) / 2 for sign in (1, -1))
    width = (mixture.quantile(above) - mixture.quantile(below)).mean()
    widest = 2 * 1.96 * deviation
    mean, std = model.predict(X)
    density = mixture.log_density(y).mean()
    held_out, targets = draw.held_out
    found: Score = {
        "inside": torch.stack([(depth <= level).double() for level in LEVELS]),
        "log_density": density.item(),
        "gain": (density - constant).item(),
        "width": (width / widest).item(),
        "rmse": ((y - mean).square().mean() / (y - center).square().mean()).sqrt().item(),
        "errors": (y - mean) / std,
        "conformal": None,
        "conformal_width": None,
        "held_out": len(targets),
        "jackknife": None,
    }
    if len(targets) >= FEWEST:
        wider = gd.models.ConformalCorrection(targets, *model.predict(held_out)).rescale(std)
        found["conformal"] = within(y, mean, wider)
        found["conformal_width"] = (wider.mean() * 2 * 1.96 / widest).item()
    exact = gd.DistributionGP | gd.SparseDistributionGP
    if isinstance(model, exact) and len(known) >= FEWEST:
        wider = gd.models.ConformalCorrection(known, *model.leave_one_out()).rescale(std)
        found["jackknife"] = within(y, mean, wider)
    return found


def within(y: Tensor, mean: Tensor, std: Tensor) -> float:
    """Return the share of targets in 95% intervals."""
    half = torch.special.ndtri(torch.tensor((1 + LEVELS[-1]) / 2, dtype=torch.float64))
    return ((y - mean).abs() / std <= half).double().mean().item()


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
            found.append(score(MODELS[entry.model](task, *draw.train), draw))
    seconds = (time.perf_counter() - begin) / len(found)
    inside = torch.cat([one["inside"] for one in found], dim=-1)
    targets, cover = inside.shape[-1], inside.mean(-1).tolist()
    shares = [one["inside"][-1].mean().item() for one in found]
    # One target more, half of it inside: a share of 0 or 1 has an error, too.
    smoothed = (cover[-1] * targets + 0.5) / (targets + 1)
    mean = {key: mean_of([one[key] for one in found]) for key in found[0] if key in _AVERAGED}
    return {
        "task": entry.task,
        "model": entry.model,
        "T": entry.train,
        "draws": len(found),
        "targets": targets,
        **{f"cover{100 * level:.0f}": share for level, share in zip(LEVELS, cover, strict=True)},
        "error": standard_error(smoothed * (1 - smoothed) / targets, shares),
        **mean,
        "kurtosis": float(kurtosis(torch.cat([one["errors"] for one in found]).numpy())),
        "conformal_error": corrected_error(found),
        "seconds": seconds,
    }


_AVERAGED = ("log_density", "gain", "width", "rmse", "conformal", "conformal_width", "jackknife")


def standard_error(variance: float, shares: Sequence[float]) -> float:
    """Return the standard error of a share: that of draws, but at least that of independent targets."""
    if len(shares) < 2:
        return math.sqrt(variance)
    return max(math.sqrt(variance), statistics.stdev(shares) / math.sqrt(len(shares)))


def corrected_error(found: list[Score]) -> float | None:
    """Return the standard error of coverage with corrections, which vary with the held-out objects."""
    shares = [one["conformal"] for one in found if one["conformal"] is not None]
    if not shares:
        return None
    # The coverage of one correction follows a beta distribution.
    counts = 1 / found[0]["inside"].shape[-1] + 1 / (found[0]["held_out"] + 2)
    return standard_error(LEVELS[-1] * (1 - LEVELS[-1]) * counts / len(shares), shares)


def classified(entry: Entry, task: Task, draw: Draw) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return the largest probabilities of test objects and hits, and scores, of one draw."""
    (X, labels), (new, truth) = draw.train, draw.test
    with silenced():
        model, bare_model = (classifier(entry.model, task, X, labels, t) for t in (None, 1.0))
        found, bare = (each.predict_proba(new) for each in (model, bare_model))
    # Labels that no training object has cannot be predicted.
    known = np.isin(truth, model.classes_)
    index = torch.from_numpy(np.searchsorted(model.classes_, truth[known]))
    found, bare = (part[torch.from_numpy(known)] for part in (found, bare))
    shares = torch.from_numpy(np.mean(labels[:, None] == model.classes_, axis=0))
    log_score, bare_score = (
        part.gather(-1, index.unsqueeze(-1)).log().mean().item() for part in (found, bare)
    )
    objects = {
        "top": found.amax(-1),
        "right": (found.argmax(-1) == index).double(),
        "bare_top": bare.amax(-1),
    }
    return objects, {
        "base": shares.max().item(),
        "log_score": log_score,
        "base_score": shares[index].log().mean().item(),
        "log_score_bare": bare_score,
    }


def classification(entry: Entry, seed: int, *, quick: bool) -> Row | None:
    """Measure one row of classification."""
    task = ledger_tasks.LABELS[entry.task]
    found = []
    begin = time.perf_counter()
    for number in range(seed, seed + entry.draws):
        draw = split(task, entry.train, number, quick=quick)
        if draw is None:
            return None
        found.append(classified(entry, task, draw))
    objects, scores = zip(*found, strict=True)
    top, right, bare_top = (torch.cat([part[key] for part in objects]) for key in objects[0])
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
        **means(scores),
        "confidence": top.mean().item(),
        "ece": calibration_error(top, right),
        "ece_bare": calibration_error(bare_top, right),
        "ece_exact": exact.mean().item(),
        "ece_exact_95": exact.quantile(0.95).item(),
        "seconds": (time.perf_counter() - begin) / entry.draws,
    }


def classifier(name: str, task: Task, X: Inputs, labels: Labels, temperature: float | None) -> Any:
    """Return a classifier; without a temperature, ``fit`` chooses one."""
    kernel = default_kernel(task, X)
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
    return (classification if entry.labels else regression)(entry, seed, quick=quick)
