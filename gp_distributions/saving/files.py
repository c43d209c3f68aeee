"""Save models to files and load them again, with predictions that agree to the last bit."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.nn import ModuleDict

from gp_distributions.context import setting
from gp_distributions.distances.base import Distance
from gp_distributions.distances.restoring import RESTORING
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures import MixedEncoding
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.collapsed import CollapsedSums, InducingFeatures
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.integrated_gp import IntegratedGP
from gp_distributions.models.mixture import MixtureModel
from gp_distributions.models.mixture_classifier import MixtureClassifier
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.saving.archive import SavedModelError, read_archive, write_archive
from gp_distributions.saving.description import ADVICE, Description, restore
from gp_distributions.saving.estimators import fitted_model, unwrapped, wrapped
from gp_distributions.saving.limits import array_of
from gp_distributions.saving.state import described_state, set_state
from gp_distributions.warnings import silenced

__all__ = ["SavedModelError", "load", "save"]

_LIBRARIES = (
    *("gp_distributions", "torch", "gpytorch", "botorch", "linear_operator", "numpy"),
    "scikit-learn",
)
_PARTS = ("covar_module", "likelihood", "mean_module", "outcome_transform", "input_transform")
# The models that can be saved, and the modules that each constructor takes as arguments.
Single: TypeAlias = DistributionGP | SparseDistributionGP
Mixture: TypeAlias = MixtureModel | MixtureClassifier
Saved: TypeAlias = Single | Mixture | IntegratedGP
_MIXTURES: dict[str, Any] = {cls.__name__: cls for cls in (MixtureModel, MixtureClassifier)}
_MODELS: dict[type[Single], tuple[str, ...]] = {
    DistributionGP: _PARTS,
    SharedKernelGP: _PARTS,
    ClassificationGP: ("covar_module", "input_transform"),
    SparseDistributionGP: _PARTS,
    SparseClassificationGP: _PARTS,
}
# State of classifiers that their constructors set; files of version 0.1.0 have no temperature.
_OF_LABELS = ("likelihood.alpha_epsilon", "likelihood.temperature")
_NAMED = {model.__name__: model for model in _MODELS}


def save(model: Saved | BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Save a model, or a fitted estimator, to a file from which :func:`load` restores it.

    The file contains the training data, the kernel with its parameters, directions and reference, the
    likelihood, the mean, the transforms and the versions of the software, but not the labels of
    clouds. Instead of the training data, the file of a :class:`SparseDistributionGP` contains the
    inducing clouds and sums. With the same versions, processor and number of threads, the loaded model
    makes the same predictions to the last bit. To ensure this, ``save`` clears the caches of the model.
    Cached results that were updated rather than computed from scratch, for example by
    ``condition_on_observations``, would differ by rounding errors.

    An existing file is replaced in one step after the new one has been written completely. Until then,
    the new file is named ``.NAME.unfinished``, in the same folder. If the process is killed, the next
    save to the same path reuses the unfinished file. Two processes may save to the same path at the
    same time: one waits for the other, and the last to finish wins.

    Args:
        model: A :class:`DistributionGP`, :class:`SharedKernelGP`, :class:`ClassificationGP`,
            :class:`SparseDistributionGP` or :class:`SparseClassificationGP`, or a
            :class:`MixtureModel`, :class:`MixtureClassifier` or :class:`IntegratedGP` of them. Its
            kernel may combine kernels of this package and of GPyTorch with ``ScaleKernel``, ``+`` and
            ``*``. Or a fitted
            :class:`DistributionGPRegressor` or :class:`DistributionGPClassifier`, or a pipeline of
            :class:`CloudScaler` and one of them. Its attribute ``model_`` alone would lack the scaler.
        path: Path to the file, with any suffix.

    Raises:
        TypeError: If part of the model belongs to a class that cannot be restored, such as one that
            you defined, or a pipeline has other steps. The message says how to save it instead. Nothing
            is written.
        sklearn.exceptions.NotFittedError: If an estimator is not fitted.
        OSError: If the path exists and is not a regular file, or if writing fails. An existing file is
            then unchanged.

    Example:
        >>> import os, tempfile
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, load, save
        >>> points = torch.randn(6, 9, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds = PointClouds(points)
        >>> model = DistributionGP(clouds, points.mean((1, 2)))
        >>> path = os.path.join(tempfile.mkdtemp(), "means.gp")
        >>> save(model, path)
        >>> torch.equal(load(path).predict(clouds)[0], model.predict(clouds)[0])
        True
    """
    estimator = model if isinstance(model, BaseEstimator) else None
    if estimator is not None:
        model = fitted_model(estimator)
    for single in _singles(model):
        if type(single) not in _MODELS:
            raise TypeError(
                f"Expected a {' or '.join(_NAMED)}, a mixture of them, or an estimator with one, got "
                f"{type(single).__name__}."
            )
    description = Description()
    header = {"model": _describe(model, description), "objects": description.objects}
    tensors = [tensor.cpu() for tensor in description.tensors]
    _check_restored(model, header, [tensor.clone() for tensor in tensors])
    if estimator is not None:
        header, tensors = wrapped(estimator, header, tensors)
        # An estimator that could not be restored is refused before anything is written.
        _restore(header, [tensor.clone() for tensor in tensors])
    write_archive(path, {"versions": _versions(), **header}, tensors)
    # Predictions are now computed from scratch, as they are by the loaded model.
    for single in _singles(model):
        if isinstance(single, DistributionGP):
            single.prediction_strategy = None
    for module in model.modules():
        if isinstance(module, Distance):
            module.clear_cache()


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model or an estimator from a file that :func:`save` wrote. Its tensors are on the CPU.

    Nothing in the file is executed. The file only names classes from a fixed list and their arguments,
    and arguments that would take far more memory than the file are refused. The digest in a file reveals
    accidents, not forgeries: what a file from someone else predicts is as trustworthy as they are.

    Args:
        path: Path to the file.

    Returns:
        The model, in training or evaluation mode as it was saved; or the estimator or pipeline.

    Raises:
        SavedModelError: If the file is damaged, truncated, in the format of a newer version, or was
            not written by :func:`save`. The message names the version that wrote it if that can still
            be read.
        OSError: If the file cannot be read.

    Example:
        >>> import os, tempfile
        >>> import torch
        >>> from gp_distributions import ClassificationGP, PointClouds, load, save
        >>> points = torch.randn(6, 9, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> path = os.path.join(tempfile.mkdtemp(), "classes.gp")
        >>> save(ClassificationGP(PointClouds(points), ["a", "b"] * 3), path)
        >>> load(path).classes_.tolist()
        ['a', 'b']
    """
    header, tensors = read_archive(path)
    try:
        return _restore(header, tensors)
    except Exception as error:
        raise SavedModelError(
            f"{path} is not damaged, but the model cannot be restored here: {error!r}. It was written "
            f"with {header.get('versions')}."
        ) from error


def _versions() -> dict[str, str]:
    libraries = {library: version(library) for library in _LIBRARIES}
    return {"python": platform.python_version(), **libraries}


def _singles(model: Any) -> list[Any]:
    """Return the models that a mixture, or a mixture of mixtures, consists of, and others as such."""
    if isinstance(model, Mixture):
        return [single for member in model.models for single in _singles(member)]
    if isinstance(model, IntegratedGP):
        return [model.model]
    return [model]


def _describe(model: Saved, description: Description) -> dict[str, Any]:
    """Describe a model as plain data: training data or sums, arguments of its constructor, and state."""
    if isinstance(model, Mixture):
        members: list[Any] = list(model.models)
        return {
            "class": type(model).__name__,
            "weights": description.of(model.weights),
            "training": model.training,
            "members": [_describe(member, description) for member in members],
        }
    if isinstance(model, IntegratedGP):
        return {
            "class": type(model).__name__,
            "model": _describe(model.model, description),
            "values": {name: description.of(value) for name, value in model.values.items()},
            "ratios": description.of(model.ratios),
            "log_prior": description.of(model.log_prior),
            "outputscales": description.of(model.outputscales),
            "training": model.training,
        }
    sparse = isinstance(model, SparseDistributionGP)
    return {
        "class": type(model).__name__,
        **(_sums(model, description) if sparse else _training_data(model, description)),
        "outputs": model.num_outputs,
        "training": model.training,
        "parts": {
            name: description.of(getattr(model, name, None)) for name in _MODELS[type(model)]
        },
        "labels": _labels(model, description),
        "state": described_state(model, description.of),
    }


def _training_data(model: DistributionGP, description: Description) -> dict[str, Any]:
    """Describe the training data of an exact model."""
    inputs, targets = model.train_inputs[0], model.train_targets
    if model._has_transformed_inputs:
        inputs = model._original_train_inputs
    if model.num_outputs > 1:
        targets = targets.transpose(-1, -2)
    elif not model._squeeze_output:
        targets = targets.unsqueeze(-1)
    return {
        "inputs": description.of(inputs),
        "targets": description.of(targets),
        "encoding": None if model.encoding is None else model.encoding.as_dict(),
        "output_axes": dict(model._subset_batch_dict),
    }


def _sums(model: SparseDistributionGP, description: Description) -> dict[str, Any]:
    """Describe the inducing clouds of a sparse model and the sums over its training clouds."""
    summed = model.summed()
    return {
        "inducing": description.of(summed.features.rows),
        "factor": description.of(summed.features.factor),
        "sums": {name: description.of(value) for name, value in vars(summed.sums).items()},
        "feature_dtype": str(summed.features.dtype).removeprefix("torch."),
        "num_inducing": model.num_inducing,
        "seed": model.seed,
        "squeeze_output": model._squeeze_output,
        "encoding": None if model.encoding is None else model.encoding.as_dict(),
    }


def _labels(model: Single, description: Description) -> dict[str, Any] | None:
    """Describe the labels of a classifier, from which its constructor computes the targets."""
    if not isinstance(model, ClassificationGP | SparseClassificationGP):
        return None
    classes = model.classes_
    if classes.dtype.kind not in "biufU":  # kinds that JSON can represent
        raise TypeError(
            "Expected labels that are strings, numbers or booleans, got an array of "
            f"{classes.dtype}. {ADVICE}"
        )
    return {
        "classes": classes.tolist(),
        "dtype": classes.dtype.str,
        "numbers": (
            description.of(model.likelihood.labels) if isinstance(model, ClassificationGP) else None
        ),
        "alpha_epsilon": model.alpha_epsilon,
        "temperature": model.temperature,
    }


def _label_options(labels: dict[str, Any]) -> dict[str, float]:
    """Return the options of a classifier; files of version 0.1.0 have no temperature."""
    return {
        "alpha_epsilon": labels["alpha_epsilon"],
        "temperature": labels.get("temperature", 1.0),
    }


def _restore(header: dict[str, Any], tensors: Sequence[Tensor]) -> Any:
    if "estimator" in header:
        count = header["tensors_of_model"]
        return unwrapped(header, tensors[count:], _restore(header["fitted"], tensors[:count]))
    # The warnings were raised when the model was first built.
    with silenced(), setting(RESTORING, True):
        return _restore_model(header["model"], restore(header["objects"], tensors))


def _restore_model(described: dict[str, Any], value_of: Callable[[Any], Any]) -> Saved:
    if described["class"] in _MIXTURES:
        members = [_restore_model(member, value_of) for member in described["members"]]
        mixture: Mixture = _MIXTURES[described["class"]](members, [1.0] * len(members))
        mixture.weights = value_of(described["weights"])
        mixture.training = described["training"]
        return mixture
    if described["class"] == IntegratedGP.__name__:
        base: Any = _restore_model(described["model"], value_of)
        values = {name: value_of(value) for name, value in described["values"].items()}
        quadrature = (value_of(described[name]) for name in ("ratios", "log_prior", "outputscales"))
        integrated = IntegratedGP(base, values, *quadrature)
        integrated.training = described["training"]
        return integrated
    cls = _NAMED[described["class"]]
    parts = {name: value_of(described["parts"][name]) for name in _MODELS[cls]}
    present = {name: part for name, part in parts.items() if part is not None}
    # If the modules have their state, the constructor does not set it from the data again.
    owned = {n: v for n, v in described["state"].items() if n.partition(".")[0] in present}
    set_state(ModuleDict(present), owned, value_of)
    if issubclass(cls, SparseDistributionGP):
        return _restore_sparse(cls, described, parts, value_of)
    return _restore_exact(cls, described, parts, value_of)


def _restore_sparse(
    cls: type[SparseDistributionGP],
    described: dict[str, Any],
    parts: dict[str, Any],
    value_of: Callable[[Any], Any],
) -> SparseDistributionGP:
    inducing, factor = value_of(described["inducing"]), value_of(described["factor"])
    dtype = getattr(torch, described["feature_dtype"])
    features = InducingFeatures(parts.pop("covar_module"), inducing, factor, dtype)
    sums = CollapsedSums(**{name: value_of(value) for name, value in described["sums"].items()})
    options = {name: described[name] for name in ("num_inducing", "seed", "squeeze_output")}
    if described.get("encoding") is not None:
        options["encoding"] = MixedEncoding.from_dict(described["encoding"])
    if (labels := described["labels"]) is not None:
        options["classes"] = array_of(labels["classes"], labels["dtype"])
        options |= _label_options(labels)
    model = cls.from_sums(features, sums, **parts, **options)
    return model.train(described["training"])


def _restore_exact(
    cls: type[DistributionGP],
    described: dict[str, Any],
    parts: dict[str, Any],
    value_of: Callable[[Any], Any],
) -> DistributionGP:
    # The file contains transformed targets, and the inputs repeated for each output.
    outcome_transform = parts.pop("outcome_transform", None)
    inputs, targets = value_of(described["inputs"]), value_of(described["targets"])
    rows = inputs.select(-3, 0) if described["outputs"] > 1 else inputs
    model = cls.__new__(cls)
    # BoTorch would warn of single precision again.
    model.__dict__["_validate_tensor_args"] = lambda *args, **kwargs: None
    if issubclass(cls, ClassificationGP):
        labels = described["labels"]
        classes = array_of(labels["classes"], labels["dtype"])
        given = classes[value_of(labels["numbers"]).numpy()]
        cls.__init__(model, rows, given, **_label_options(labels), **parts)
        model.set_train_data(targets=targets.transpose(-1, -2), strict=False)
    else:
        cls.__init__(model, rows, targets, outcome_transform=None, **parts)
        if model.train_targets.shape == targets.shape:
            model.train_targets = targets  # which models may share
    del model.__dict__["_validate_tensor_args"]
    if outcome_transform is not None:
        model.outcome_transform = outcome_transform
    if described.get("encoding") is not None:  # files of version 0.1.0 have none
        model.encoding = MixedEncoding.from_dict(described["encoding"])
    model.train_inputs = (inputs,)
    model._subset_batch_dict = described["output_axes"]
    # The constructor has converted all tensors to one dtype.
    state = {name: v for name, v in described["state"].items() if name not in _OF_LABELS}
    set_state(model, state, value_of, optional=_OF_LABELS)
    return model.train(described["training"])


def _check_restored(model: Saved, header: dict[str, Any], tensors: Sequence[Tensor]) -> None:
    """Raise an error if a model restored from ``header`` and ``tensors`` would differ from ``model``."""
    try:
        restored = _restore(header, tensors)
    except Exception as error:
        reason = str(error).removesuffix(".")
        raise TypeError(
            f"The model cannot be saved because it could not be restored: {reason}. {ADVICE}"
        ) from error
    found, expected = _anatomy(restored), _anatomy(model)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise TypeError(
                f"The model cannot be saved because {name} ({expected.get(name)}) would be restored "
                f"as something else ({found.get(name)}). {ADVICE}"
            )
    again = Description()
    new = [_describe(restored, again), *again.objects]
    old: list[dict[str, Any]] = [header["model"], *header["objects"]]
    for before, after in zip_longest(old, new, fillvalue=dict[str, Any]()):
        if json.dumps(before) != json.dumps(after):
            raise TypeError(
                f"The model cannot be saved because arguments of {before.get('class')} would not be "
                f"restored. {ADVICE}"
            )
    for before, after in zip(_singles(model), _singles(restored), strict=True):
        some = _some_rows(before)
        after.to(some.device).eval()
        if not np.array_equal(
            _covariances(after, some), _covariances(before, some), equal_nan=True
        ):
            raise TypeError(
                "The model cannot be saved because its kernel would change when it is restored. Check "
                f"that each class keeps the arguments of its constructor as attributes. {ADVICE}"
            )


def _some_rows(model: Single) -> Tensor:
    if isinstance(model, SparseDistributionGP):
        return model.summed().features.rows[:5]
    return model.train_inputs[0][..., :5, :]


def _covariances(model: Single, rows: Tensor) -> NDArray[Any]:
    with torch.no_grad(), silenced():
        return covariance(model.covar_module, rows).cpu().numpy()


def _anatomy(model: Saved) -> dict[str, Any]:
    """Return the classes of all modules and the functions to which priors apply, by name."""
    modules = model.named_modules(remove_duplicate=False)
    return {name: type(module) for name, module in modules} | {
        f"the function under {name} ({number})": getattr(closure, "__qualname__", closure)
        for number, single in enumerate(_singles(model))
        for name, _, _, closure, _ in single.named_priors()
    }
