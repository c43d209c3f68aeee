"""How models and estimators are taken apart into what a file can hold, and put together again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn.base import BaseEstimator

from gp_distributions.estimators import DistributionGPClassifier, DistributionGPRegressor
from gp_distributions.models.aggregate_gp import AggregateGP
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.curve_gp import CurveGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.ensemble import Ensemble
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.models.sparse_aggregate_gp import SparseAggregateGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.models.variational_aggregate_gp import VariationalAggregateGP
from gp_distributions.models.variational_gp import VariationalDistributionGP

_PARTS = ("covar_module", "likelihood", "mean_module", "outcome_transform", "input_transform")


def _model(model: Any) -> dict[str, Any]:
    """Return the modules of a model, its labels and its encoding."""
    classifier = isinstance(model, ClassificationGP | SparseClassificationGP)
    exact = isinstance(model, ClassificationGP)
    parts = ("covar_module", "input_transform") if exact else _PARTS
    found = {name: getattr(model, name, None) for name in parts}
    labels = ("alpha_epsilon", "temperature")
    return {
        "parts": found,
        "classes": model.classes_ if classifier else None,
        "labels": {name: getattr(model, name) for name in labels} if classifier else {},
        "encoding": model.encoding,
    }


def _exact(model: DistributionGP) -> dict[str, Any]:
    inputs, targets = model.train_inputs[0], model.train_targets
    if model._has_transformed_inputs:
        inputs = model._original_train_inputs
    if model.num_outputs > 1:
        targets = targets.transpose(-1, -2)
    elif not model._squeeze_output:
        targets = targets.unsqueeze(-1)
    numbers = model.likelihood.labels if isinstance(model, ClassificationGP) else None
    return _model(model) | {
        "inputs": inputs,
        "targets": targets,
        "numbers": numbers,
        "members": [] if model.ensemble is None else list(model.ensemble.parts),
        "weights": None if model.ensemble is None else model.ensemble.weights,
        "log_importance": model.log_importance if model.is_batch else None,
        "choice": model.choice,
        "chooses_metric": model.chooses_metric,
        "outputs": model.num_outputs,
        "output_axes": model._subset_batch_dict,
    }


def _make_exact(cls: type[DistributionGP], described: dict[str, Any]) -> DistributionGP:
    # There are transformed targets, and the inputs repeated for each output.
    parts = {name: part for name, part in described["parts"].items() if part is not None}
    outcome_transform = parts.pop("outcome_transform", None)
    inputs, targets = described["inputs"], described["targets"]
    rows = inputs.select(-3, 0) if described["outputs"] > 1 else inputs
    model = cls.__new__(cls)
    # BoTorch would warn of single precision again.
    model.__dict__["_validate_tensor_args"] = lambda *args, **kwargs: None
    if issubclass(cls, ClassificationGP):
        labels = described["classes"][described["numbers"].numpy()]
        cls.__init__(model, rows, labels, **described["labels"], **parts)
        model.set_train_data(targets=targets.transpose(-1, -2), strict=False)
    else:
        cls.__init__(model, rows, targets, outcome_transform=None, **parts)
        if model.train_targets.shape == targets.shape:
            model.train_targets = targets  # which models may share
    del model.__dict__["_validate_tensor_args"]
    if outcome_transform is not None:
        model.outcome_transform = outcome_transform
    if described["encoding"] is not None:
        model.encoding = described["encoding"]
    if described["members"]:
        model.ensemble = Ensemble(described["members"], described["weights"])
    if described["log_importance"] is not None:
        model = model.batch_of(model.covar_module, model.likelihood, described["log_importance"])
    model.choice = described["choice"]
    model.chooses_metric = described["chooses_metric"]
    model.train_inputs = (inputs,)
    model._subset_batch_dict = described["output_axes"]
    return model


def _curves(model: CurveGP) -> dict[str, Any]:
    state = ("output_covar_module", "output_factor", "output_noise")
    return _model(model) | {
        "data": [model.train_inputs[0].select(-3, 0), model.train_targets],
        "missing": model.missing,
        "options": {name: getattr(model, name) for name in ("positions", "rank")},
        "state": {name: getattr(model, name) for name in state},
    }


def _make_curves(cls: Any, described: dict[str, Any]) -> CurveGP:
    parts, (rows, targets) = described["parts"], described["data"]
    curves = targets.mT.masked_fill(described["missing"], torch.nan)
    model = cls(rows, curves, parts["covar_module"], **described["options"])
    for name in ("likelihood", "mean_module", "outcome_transform"):
        setattr(model, name, parts[name])
    for name, value in described["state"].items():
        setattr(model, name, value)
    model.train_targets, model.encoding = targets, described["encoding"]
    return model


def _sparse(model: SparseDistributionGP) -> dict[str, Any]:
    return _model(model) | {
        "features": model.summed().features,
        "sums": model.summed().sums,
        "num_inducing": model.num_inducing,
        "seed": model.seed,
        "squeeze_output": model._squeeze_output,
        "choice": model.choice,
    }


def _make_sparse(cls: type[SparseDistributionGP], described: dict[str, Any]) -> Any:
    parts, labels = described.pop("parts"), described.pop("labels")
    del parts["covar_module"]  # of which the features are
    attributes = {f"_{name}": value for name, value in labels.items()}
    attributes["_squeeze_output"] = described.pop("squeeze_output")
    return cls.from_sums(**parts, **attributes, classes_=described.pop("classes"), **described)


_AFTER = ("encoding", "choice", "chooses_metric")


def _variational(model: VariationalDistributionGP) -> dict[str, Any]:
    targets = model.train_targets
    options = ("covar_module", "likelihood", "mean_module", "num_inducing", "seed")
    return {
        "data": [model.train_rows, targets if model._squeeze_output else targets.unsqueeze(-1)],
        "options": {name: getattr(model, name) for name in options} | model.train_known,
        "overdispersion": model.raw_effect_variance is not None,
        "after": {name: getattr(model, name) for name in _AFTER},
    }


def _make_variational(cls: Any, described: dict[str, Any]) -> Any:
    options = described["options"] | {"overdispersion": described["overdispersion"]}
    model = cls(*described["data"], **options)
    vars(model).update(described["after"])
    return model


def _rates(model: VariationalAggregateGP) -> dict[str, Any]:
    targets = model.train_targets
    return {
        "data": [model.train_rows, targets if model._squeeze_output else targets.unsqueeze(-1)],
        "likelihood": {"trials": "binomial", "exposure": "poisson"}[model.likelihood.argument],
        "options": {"covar_module": model.covar_module, "context": model.context}
        | {model.likelihood.argument: model.train_argument},
        "encoding": model.encoding,
    }


def _make_rates(cls: Any, described: dict[str, Any]) -> Any:
    model = cls(*described["data"], likelihood=described["likelihood"], **described["options"])
    model.encoding = described["encoding"]
    return model


def _estimator(estimator: BaseEstimator) -> dict[str, Any]:
    parameters = estimator.get_params(deep=False)
    fitted = {name: value for name, value in vars(estimator).items() if name not in parameters}
    return {"parameters": parameters, "fitted": fitted}


def _make_estimator(cls: Any, described: dict[str, Any]) -> Any:
    estimator = cls(**described["parameters"])
    vars(estimator).update(described["fitted"])
    return estimator


_Pair = tuple[Callable[[Any], dict[str, Any]], Callable[[Any, dict[str, Any]], Any]]
_EXACT: _Pair = (_exact, _make_exact)
_SPARSE: _Pair = (_sparse, _make_sparse)
_ESTIMATOR: _Pair = (_estimator, _make_estimator)

#: Of each class: a function that takes an object apart, and one that makes it of its class and parts.
TAKEN_APART: dict[type[Any], _Pair] = {
    AggregateGP: _EXACT,
    DistributionGP: _EXACT,
    SharedKernelGP: _EXACT,
    CurveGP: (_curves, _make_curves),
    ClassificationGP: _EXACT,
    SparseDistributionGP: _SPARSE,
    SparseAggregateGP: _SPARSE,
    SparseClassificationGP: _SPARSE,
    VariationalAggregateGP: (_rates, _make_rates),
    VariationalDistributionGP: (_variational, _make_variational),
    DistributionGPRegressor: _ESTIMATOR,
    DistributionGPClassifier: _ESTIMATOR,
}
