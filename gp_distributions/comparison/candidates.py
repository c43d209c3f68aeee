"""Candidates of a comparison, and the models that they become on given data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from botorch.models.transforms.outcome import Standardize
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.kernels.copies import as_kernel
from gp_distributions.measures.described import described
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.training_data import TrainingData
from gp_distributions.models import (
    ClassificationGP,
    CurveGP,
    DistributionGP,
    SharedKernelGP,
    SparseAggregateGP,
    SparseDistributionGP,
)
from gp_distributions.models.dirichlet_classification import Classification

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
    if isinstance(candidate, type) or not callable(candidate):
        raise TypeError(
            "Expected a kernel, a distance, a model, or a function of X and y that makes a model, got "
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
