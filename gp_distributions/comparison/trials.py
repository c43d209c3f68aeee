"""Fits of candidates to all data and to folds, with their predictions for what was left out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gp_distributions.comparison.candidates import Candidate, known_variances, make_model
from gp_distributions.comparison.data import Split
from gp_distributions.fitting import fit
from gp_distributions.judging.leave_one_out import left_out
from gp_distributions.judging.predictions import ClassPredictions, NormalPredictions, Predictions
from gp_distributions.kernels.copies import copied
from gp_distributions.measures.training_data import TrainingData
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import UndeterminedWarning, naming, silenced


@dataclass(frozen=True, eq=False)
class Trial:
    """What became of a candidate on all data, or in one fold.

    Attributes:
        name: Name of the candidate.
        fold: Number of the fold, or None for all data.
        model: The model that was fitted to all data.
        predictions: The predictions for clouds that were left out.
        seconds: Time taken.
        message: What went wrong; empty if nothing did.
    """

    name: str
    fold: int | None
    model: Any = None
    predictions: Predictions | None = None
    seconds: float = 0.0
    message: str = ""


def run_trials(
    candidates: Mapping[str, Candidate],
    data: TrainingData,
    fold: int | None,
    split: Split | None,
    *,
    leave_one_out: bool,
    options: Mapping[str, Any],
) -> Iterator[Trial]:
    """Fit copies of candidates, in turn, to all data or to a fold.

    Args:
        candidates: The candidates, which stay as they are.
        data: All data.
        fold: Number of the fold, or None for all data.
        split: The fold, or None.
        leave_one_out: Whether models of all data predict each cloud from all others.
        options: Options of :func:`fit`.

    Yields:
        A trial of each candidate.
    """
    before: DistributionGP | None = None
    # Held-out log densities and coverage show what it warns of.
    with silenced(UndeterminedWarning):
        for name, candidate in copied(candidates).items():
            start = time.perf_counter()
            subject = repr(name) if fold is None else f"{name!r}, fold {fold}"
            try:
                with naming(subject):
                    model, predictions = _tried(
                        candidate, data, split, leave_one_out, options, before
                    )
            except Exception as error:  # a failure is a line of the table
                text = f"{type(error).__name__}: {error}"
                where = "" if fold is None else f"fold {fold}: "
                yield Trial(name, fold, message=where + text)
                continue
            seconds = time.perf_counter() - start
            before = model if isinstance(model, DistributionGP) else before
            kept = model if split is None else None
            yield Trial(name, fold, kept, predictions, seconds)


def _tried(
    candidate: Candidate,
    data: TrainingData,
    split: Split | None,
    leave_one_out: bool,
    options: Mapping[str, Any],
    before: DistributionGP | None,
) -> tuple[Any, Predictions | None]:
    model = make_model(candidate, data, None if split is None else split[0])
    if isinstance(model, DistributionGP) and before is not None:
        model.share_rows(before)
    if isinstance(model, Classification) != (data.classes is not None):
        kind = "regression" if data.classes is None else "classification"
        raise ValueError(f"Expected a model for {kind}, as the others, got {type(model).__name__}.")
    fit(model, **options)
    if split is None:
        return model, left_out(model, data.y) if leave_one_out else None
    return model, _predicted(model, data, split[1], known_variances(candidate, data))


def _predicted(
    model: Any, data: TrainingData, index: Tensor, variances: Tensor | None
) -> Predictions:
    """Predict the inputs of numbers ``index``.

    Args:
        model: A model fitted to other inputs.
        data: All data.
        index: The numbers.
        variances: Known noise variances of all targets, or None.
    """
    rows = data.rows[index.to(data.rows.device)]
    targets = data.targets[index.to(data.targets.device)]
    with torch.no_grad():
        if data.classes is not None:
            return ClassPredictions.of(targets, model.predict_proba(rows))
        if variances is None:
            _check_noise(model)
            return NormalPredictions.of(targets, *model.predict(rows))
        mean, std = model.predict(rows, observation_noise=False)
        noise = variances[index.to(variances.device)].reshape(std.shape)
        return NormalPredictions.of(targets, mean, (std.square() + noise).sqrt())


def _check_noise(model: Any) -> None:
    """Check that a model of a function, which knows variances of training targets, has only one."""
    if not model.noise_is_known:
        return
    noise = model.likelihood.noise
    if not torch.allclose(noise, noise[..., :1]):
        raise ValueError(
            "Expected known noise variances of the clouds that are left out, got a function that gives "
            "those of training clouds. Pass the model of all clouds itself, with its train_Yvar."
        )
