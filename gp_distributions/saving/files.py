"""Models in files: one file each, from which predictions come back to the last bit."""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import zip_longest
from operator import itemgetter
from typing import Any

import botorch
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module, ModuleDict, Parameter

from gp_distributions.distances.base import Distance
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.saving.archive import SavedModelError, read_archive, write_archive
from gp_distributions.saving.description import ADVICE, Description, restore

__all__ = ["SavedModelError", "load", "save"]

_LIBRARIES = ("gp_distributions", "torch", "gpytorch", "botorch", "linear_operator", "numpy")
_PARTS = ("covar_module", "likelihood", "mean_module", "outcome_transform", "input_transform")
# Models that can be saved, and the parts that their constructors take.
_MODELS: dict[type[DistributionGP], tuple[str, ...]] = {
    DistributionGP: _PARTS,
    SharedKernelGP: _PARTS,
    ClassificationGP: ("covar_module", "input_transform"),
}
_NAMED = {model.__name__: model for model in _MODELS}
# The kinds of NumPy's labels that JSON keeps: truth values, integers, floats and strings.
_LABELS = "biufU"
# Training inputs on which the restored kernel is compared with the one saved.
_CHECKED_ROWS = 5


def save(model: DistributionGP, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, from which :func:`load` makes it anew.

    The file holds the training data, the kernel with its parameters, directions and reference, the
    likelihood, the mean, the transforms, and the versions of the software; not the labels of clouds.
    With the same versions on the same processor and as many threads, the loaded model predicts the
    same to the last bit. What a model has cached is not in the file, and ``save`` drops it from the
    model too: what was updated instead of computed anew, as by ``condition_on_observations``, would
    differ by rounding.

    The file is written beside an older one of that name, which it then replaces.

    Args:
        model: A :class:`DistributionGP`, :class:`SharedKernelGP` or :class:`ClassificationGP` of this
            package's kernels, alone or composed by ``ScaleKernel``, ``+`` and ``*`` with each other or
            with common kernels of GPyTorch.
        path: Of the file; there is no rule for its suffix.

    Raises:
        TypeError: If part of the model is of a class that cannot be restored, such as one of your
            own. Nothing is written then.
        OSError: If the file cannot be written; an older one is then as it was.
    """
    if type(model) not in _MODELS:
        raise TypeError(f"Expected a {' or '.join(_NAMED)}, got {type(model).__name__}.")
    description = Description()
    header = {
        "versions": {"python": platform.python_version()}
        | {library: version(library) for library in _LIBRARIES},
        "model": _describe(model, description),
        "objects": description.objects,
    }
    tensors = [tensor.cpu() for tensor in description.tensors]
    _check_restored(model, header, [tensor.clone() for tensor in tensors])
    write_archive(path, header, tensors)
    # What is computed now is computed as in the loaded model: nothing is left of other ways.
    model.prediction_strategy = None
    for module in model.modules():
        if isinstance(module, Distance):
            module.clear_cache()


def load(path: str | os.PathLike[str]) -> DistributionGP:
    """Read a model that :func:`save` wrote, on the CPU.

    Nothing in the file is executed: it names classes of a closed list, and their arguments. A file
    that someone forged can mislead, and waste time and memory, but not run code.

    Args:
        path: Of the file.

    Returns:
        The model, in training or evaluation mode as it was saved.

    Raises:
        SavedModelError: If the file is damaged, cut off, in the format of a newer version, or none
            that :func:`save` wrote.
        OSError: If the file cannot be read.
    """
    header, tensors = read_archive(path)
    try:
        return _restore(header, tensors)
    except Exception as error:
        raise SavedModelError(
            f"{path} is undamaged, but no model can be made of it here: {error!r}. It was written "
            f"with {header.get('versions')}."
        ) from error


def _describe(model: DistributionGP, description: Description) -> dict[str, Any]:
    """The model as plain data: data as its constructor takes them, parts, and their state."""
    inputs, targets = model.train_inputs[0], model.train_targets
    if model._has_transformed_inputs:
        inputs = model._original_train_inputs
    if model.num_outputs > 1:
        targets = targets.transpose(-1, -2)
    elif not model._squeeze_output:
        targets = targets.unsqueeze(-1)
    return {
        "class": type(model).__name__,
        "inputs": description.of(inputs),
        "targets": description.of(targets),
        "outputs": model.num_outputs,
        "output_axes": dict(model._subset_batch_dict),
        "training": model.training,
        "parts": {
            name: description.of(getattr(model, name, None)) for name in _MODELS[type(model)]
        },
        "labels": _labels(model, description),
        "state": {
            name: {
                "value": description.of(value),
                "requires_grad": isinstance(value, Parameter) and value.requires_grad,
            }
            for name, _, _, value in sorted(_state(model), key=itemgetter(0))
        },
    }


def _labels(model: DistributionGP, description: Description) -> dict[str, Any] | None:
    """What the targets of a classifier are made of."""
    if not isinstance(model, ClassificationGP):
        return None
    classes = model.classes_
    if classes.dtype.kind not in _LABELS:
        raise TypeError(
            "Expected labels that are strings, numbers or truth values, got an array of "
            f"{classes.dtype}. {ADVICE}"
        )
    return {
        "classes": classes.tolist(),
        "dtype": classes.dtype.str,
        "numbers": description.of(model.likelihood.labels),
        "alpha_epsilon": model.alpha_epsilon,
    }


def _restore(header: dict[str, Any], tensors: Sequence[Tensor]) -> DistributionGP:
    described = header["model"]
    # Warnings about data and distances were given when the model was first made.
    with warnings.catch_warnings(), botorch.settings.validate_input_scaling(False):
        warnings.simplefilter("ignore")
        value_of = restore(header["objects"], tensors)
        cls = _NAMED[described["class"]]
        parts = {name: value_of(described["parts"][name]) for name in _MODELS[cls]}
        present = {name: part for name, part in parts.items() if part is not None}
        # What is set, the model does not learn from its data.
        owned = {n: v for n, v in described["state"].items() if n.partition(".")[0] in present}
        _set_state(ModuleDict(present), owned, value_of)
        # Data are stored as the model has them: targets transformed, inputs once for each output.
        outcome_transform = parts.pop("outcome_transform", None)
        inputs, targets = value_of(described["inputs"]), value_of(described["targets"])
        rows = inputs.select(-3, 0) if described["outputs"] > 1 else inputs
        if issubclass(cls, ClassificationGP):
            labels = described["labels"]
            classes = np.array(labels["classes"], dtype=labels["dtype"])
            given = classes[value_of(labels["numbers"]).numpy()]
            model = cls(rows, given, alpha_epsilon=labels["alpha_epsilon"], **parts)
            model.set_train_data(targets=targets.transpose(-1, -2), strict=False)
        else:
            model = cls(rows, targets, outcome_transform=None, **parts)
    if outcome_transform is not None:
        model.outcome_transform = outcome_transform
    model.train_inputs = (inputs,)
    model._subset_batch_dict = described["output_axes"]
    _set_state(model, described["state"], value_of)  # the constructor gave all one dtype
    return model.train(described["training"])


def _state(model: Module) -> Iterator[tuple[str, Module, str, Tensor | None]]:
    """All parameters and buffers: the full name, the module, the name there, and the value."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for values in (module._parameters, module._buffers):
            for name, value in values.items():
                yield f"{prefix}.{name}", module, name, value


def _set_state(model: Module, state: dict[str, Any], value_of: Callable[[Any], Any]) -> None:
    """Give the modules their parameters and buffers, of whatever shape; those shared stay shared."""
    places = list(_state(model))
    differing = {name for name, *_ in places} ^ set(state)
    if differing:
        raise ValueError(f"the state differs in {', '.join(sorted(differing))}")
    parameters: dict[int, Parameter] = {}
    for full_name, module, name, _ in places:
        value = value_of(state[full_name]["value"])
        if name not in module._parameters:
            module._buffers[name] = value
        elif value is None:
            module._parameters[name] = None
        else:
            parameter = Parameter(value, requires_grad=state[full_name]["requires_grad"])
            module._parameters[name] = parameters.setdefault(id(value), parameter)


def _check_restored(
    model: DistributionGP, header: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Refuse to save what would not come back."""
    try:
        restored = _restore(header, tensors)
    except Exception as error:
        reason = str(error).removesuffix(".")
        raise TypeError(
            f"The model cannot be saved, as it could not be restored: {reason}. {ADVICE}"
        ) from error
    found, expected = _anatomy(restored), _anatomy(model)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise TypeError(
                f"The model cannot be saved, as {name} ({expected.get(name)}) is not what would be "
                f"restored ({found.get(name)}). {ADVICE}"
            )
    again = Description()
    new = [_describe(restored, again), *again.objects]
    old: list[dict[str, Any]] = [header["model"], *header["objects"]]
    for before, after in zip_longest(old, new, fillvalue=dict[str, Any]()):
        if json.dumps(before) != json.dumps(after):
            raise TypeError(
                f"The model cannot be saved, as arguments of {before.get('class')} "
                f"would not be restored. {ADVICE}"
            )
    restored.to(model.train_targets.device).eval()
    some = restored.train_inputs[0][..., :_CHECKED_ROWS, :]
    if not np.array_equal(_covariances(restored, some), _covariances(model, some), equal_nan=True):
        raise TypeError(
            "The model cannot be saved, as the restored kernel differs from it: does a class not "
            f"keep an argument that it was made with? {ADVICE}"
        )


def _covariances(model: DistributionGP, rows: Tensor) -> NDArray[Any]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        covariances: NDArray[Any] = model.covar_module(rows).to_dense().cpu().numpy()
    return covariances


def _anatomy(model: DistributionGP) -> dict[str, Any]:
    """The classes of all modules, and what priors are put on, by name."""
    modules = model.named_modules(remove_duplicate=False)
    return {name: type(module) for name, module in modules} | {
        f"the function under {name}": getattr(closure, "__qualname__", closure)
        for name, _, _, closure, _ in model.named_priors()
    }
