"""Files of scikit-learn estimators: their parameters and fitted attributes, around a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import Module

from gp_distributions.context import setting
from gp_distributions.distances.restoring import RESTORING
from gp_distributions.estimators import (
    CloudScaler,
    DistributionGPClassifier,
    DistributionGPRegressor,
)
from gp_distributions.saving.description import Description, restore
from gp_distributions.saving.limits import array_of
from gp_distributions.saving.state import described_state, set_state

_PREDICTORS = (DistributionGPRegressor, DistributionGPClassifier)
_NAMED: dict[str, type[BaseEstimator]] = {cls.__name__: cls for cls in (*_PREDICTORS, CloudScaler)}
# The fitted model, which is described apart from the rest of the estimator.
_MODEL = "model_"

_ADVICE = (
    "Save the whole estimator or pipeline with joblib.dump(estimator, path) instead, and load it with "
    "joblib.load(path) and the same versions of all libraries. Loading such a file can run any code, so "
    "load only files that you trust."
)


def fitted_model(estimator: BaseEstimator) -> Any:
    """Return the model of a fitted estimator, or of the last step of a pipeline.

    Raises:
        TypeError: If files cannot hold the estimator or a step; the message says what to do.
        sklearn.exceptions.NotFittedError: If the estimator is not fitted.
    """
    *transformers, (_, last) = _steps(estimator)
    if type(last) not in _PREDICTORS:
        raise TypeError(
            "Expected a DistributionGPRegressor, a DistributionGPClassifier, or a pipeline that ends "
            f"with one, got {type(last).__name__}. {_advice(last)}"
        )
    for name, step in transformers:
        if type(step) is not CloudScaler and step not in (None, "passthrough"):
            raise TypeError(
                f"Expected CloudScaler as the steps before the last, got {type(step).__name__} as step "
                f"{name!r}, which a file cannot hold. {_ADVICE}"
            )
    check_is_fitted(last)
    return getattr(last, _MODEL)


def wrapped(
    estimator: BaseEstimator, header: dict[str, Any], tensors: list[Tensor]
) -> tuple[dict[str, Any], list[Tensor]]:
    """Return the header and the tensors of an estimator, given those of its model.

    Raises:
        TypeError: If a parameter cannot be restored.
    """
    description = Description()
    whole = {
        "estimator": _describe(estimator, description),
        "objects": description.objects,
        "fitted": header,
        "tensors_of_model": len(tensors),
    }
    return whole, [*tensors, *(tensor.cpu() for tensor in description.tensors)]


def unwrapped(header: dict[str, Any], tensors: Sequence[Tensor], model: Any) -> BaseEstimator:
    """Return the estimator that :func:`wrapped` described, given its model and the further tensors."""
    with setting(RESTORING, True):
        return _restored(header["estimator"], restore(header["objects"], tensors), model)


def _steps(estimator: BaseEstimator) -> list[tuple[str, Any]]:
    return estimator.steps if isinstance(estimator, Pipeline) else [("", estimator)]


def _advice(estimator: Any) -> str:
    if hasattr(estimator, "best_estimator_"):
        return "Save its best_estimator_."
    return _ADVICE


def _describe(estimator: Any, description: Description) -> dict[str, Any]:
    if isinstance(estimator, Pipeline):
        steps = [[name, _describe(step, description)] for name, step in estimator.steps]
        # Those with their defaults are left out: not all versions of scikit-learn know them.
        defaults = Pipeline(estimator.steps).get_params(deep=False)
        others = {
            name: _described("Pipeline", name, value, description)
            for name, value in estimator.get_params(deep=False).items()
            if value is not defaults[name] and value != defaults[name]
        }
        return {"class": "Pipeline", "steps": steps, "parameters": others}
    if estimator is None or isinstance(estimator, str):  # a step that does nothing
        return {"class": None}
    parameters = estimator.get_params(deep=False)
    described: dict[str, Any] = {"class": type(estimator).__name__, "parameters": {}, "fitted": {}}
    for name, value in vars(estimator).items():
        kind = "parameters" if name in parameters else "fitted"
        if name == _MODEL:
            continue
        described[kind][name] = _described(type(estimator).__name__, name, value, description)
    return described


def _described(estimator: str, name: str, value: Any, description: Description) -> dict[str, Any]:
    """Describe a parameter or attribute of an estimator."""
    try:
        return _value(value, description)
    except TypeError as error:
        raise TypeError(
            f"{estimator} cannot be saved because of {name!r}: {str(error).split('. ')[0]}. {_ADVICE}"
        ) from error


def _restored(described: dict[str, Any], value_of: Any, model: Any) -> Any:
    if described["class"] == "Pipeline":
        steps = [(name, _restored(step, value_of, model)) for name, step in described["steps"]]
        others = described.get("parameters", {})  # files of earlier versions have none
        return Pipeline(steps, **{name: _read(value, value_of) for name, value in others.items()})
    if described["class"] is None:
        return "passthrough"
    cls = _NAMED[described["class"]]
    estimator = cls(**{n: _read(v, value_of) for n, v in described["parameters"].items()})
    for name, value in described["fitted"].items():
        setattr(estimator, name, _read(value, value_of))
    if cls in _PREDICTORS:
        setattr(estimator, _MODEL, model)
    return estimator


def _value(value: Any, description: Description) -> dict[str, Any]:
    """Describe a parameter or attribute; modules with their state."""
    if isinstance(value, dict):
        return {"mapping": {str(name): _value(item, description) for name, item in value.items()}}
    if isinstance(value, np.ndarray):
        return {"array": [value.dtype.str, value.tolist()]}
    if isinstance(value, Module):
        return {"module": [description.of(value), described_state(value, description.of)]}
    return {"plain": description.of(value)}


def _read(described: dict[str, Any], value_of: Any) -> Any:
    ((kind, content),) = described.items()
    if kind == "mapping":
        return {name: _read(item, value_of) for name, item in content.items()}
    if kind == "array":
        return array_of(content[1], content[0])
    if kind == "module":
        module = value_of(content[0])
        set_state(module, content[1], value_of)
        return module
    return value_of(content)
