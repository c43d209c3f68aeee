"""Models that candidates of a comparison become, their fits, and predictions of what was left out."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from botorch.models.transforms.outcome import Standardize
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.fitting import fit
from gp_distributions.kernels.copies import as_kernel, copied
from gp_distributions.measures.arrays import described
from gp_distributions.measures.inputs import TrainingData
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.metrics.leave_one_out import left_out
from gp_distributions.metrics.predictions import ClassPredictions, NormalPredictions, Predictions
from gp_distributions.models import (
    ClassificationGP,
    CurveGP,
    DistributionGP,
    SharedKernelGP,
    SparseAggregateGP,
    SparseDistributionGP,
)
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.warnings import UndeterminedWarning, naming, silenced

# What a model is made of beside its data and its kernel, as attributes and as arguments.
_KEPT = (
    "alpha_epsilon",
    "feature_dtype",
    "input_transform",
    "likelihood",
    "mean_module",
    "num_inducing",
    "seed",
    "temperature",
)

Model: TypeAlias = DistributionGP | SparseDistributionGP
# The numbers of the training clouds and of those left out.
Split: TypeAlias = tuple[Tensor, Tensor]
Candidate: TypeAlias = Kernel | Distance | Model | Callable[[Any, Any], Model]


def make_model(candidate: Candidate, data: TrainingData, index: Tensor | None) -> Model:
    """Make the model of a candidate, which it takes as its own, on some of the data.

    Args:
        candidate: A kernel, a distance, a model or a function, whose modules the model may change.
        data: All data.
        index: The numbers of the training clouds, or None for all.

    Raises:
        TypeError: If the candidate is something else.
        ValueError: If the candidate does not fit the data.
    """
    part = data if index is None else data[index.to(data.targets.device)]
    if isinstance(candidate, Kernel | Distance):
        return _with_kernel(as_kernel(candidate), part)
    if isinstance(candidate, Model):
        return _on_data(candidate, data, part, index)
    if isinstance(candidate, type | torch.nn.Module) or not callable(candidate):
        raise TypeError(
            "Expected a kernel, a distance, a model with leave-one-out predictions, or a function that "
            "makes one, such as lambda X, y: DistributionGP(X, y), got "
            f"{described(candidate)}."
        )
    # Rows keep the encoding that all mixed inputs define.
    encoded = part is not data and isinstance(data.X, MixedInputs)
    model = candidate(part.rows if encoded else part.X, part.y)
    if not isinstance(model, Model):
        raise TypeError(
            "Expected a function that makes a DistributionGP, a SparseDistributionGP or a classifier, "
            f"got one that makes {type(model).__name__}."
        )
    return model


def _with_kernel(kernel: Kernel, data: TrainingData) -> Model:
    if data.classes is not None:
        return ClassificationGP(data, None, kernel)
    if data.targets.shape[-1] > 1 and not kernel.batch_shape:
        return SharedKernelGP(data, None, kernel)
    return DistributionGP(data, None, kernel)


def _on_data(model: Model, data: TrainingData, part: TrainingData, index: Tensor | None) -> Model:
    """Make a model like the given one, of its modules, on other data."""
    if isinstance(model, CurveGP | SparseAggregateGP):
        raise ValueError(
            f"Expected a function of X and y that makes a {type(model).__name__}, as its options depend "
            "on data, got one that is made."
        )
    kind: Any = type(model)
    taken = inspect.signature(kind.__init__).parameters
    options = {n: getattr(model, n) for n in _KEPT if n in taken and hasattr(model, n)}
    transform = model._outcome_transform
    if not isinstance(transform, Standardize | None):
        raise ValueError(
            f"Expected Standardize or None as outcome transform, got {type(transform).__name__}, under "
            "which predictions are not normal."
        )
    if "outcome_transform" in taken:
        options["outcome_transform"] = None if transform is None else DEFAULT
    variances = known_variances(model, data)
    if variances is not None:
        del options["likelihood"]
        part = replace(part, variances=variances if index is None else variances[index])
    return kind(part, None, model.covar_module, **options)


def known_variances(candidate: Candidate, data: TrainingData) -> Tensor | None:
    """Return the noise variances that a model was given for all targets, or None if they are learned.

    Returns:
        A ``T x outputs`` tensor in squared units of the targets.

    Raises:
        ValueError: If the model has another number of variances, or is sparse.
    """
    if not isinstance(candidate, Model) or isinstance(candidate, Classification):
        return None
    if not candidate.noise_is_known:
        return None
    noise = candidate.likelihood.noise
    if isinstance(candidate, SparseDistributionGP) or noise.shape[-1] != len(data):
        raise ValueError(
            f"Expected an exact model whose noise variances are those of the {len(data)} clouds. Pass "
            "a function of X and y that makes the model."
        )
    transform = candidate._outcome_transform
    unit = 1.0 if transform is None else transform.stdvs.squeeze(-2)
    return candidate.columns(noise).reshape(len(data), -1) * unit**2


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
