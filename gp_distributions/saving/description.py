"""Conversion of modules to plain data and back: class names and arguments of constructors.

Only classes in a fixed list are supported. A name in a file is looked up in that list, never imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from botorch.models.kernels.categorical import CategoricalKernel
from botorch.models.transforms.input import ChainedInputTransform, Normalize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log, Standardize
from gpytorch import constraints, likelihoods, means, priors
from gpytorch import kernels as gpytorch_kernels
from gpytorch.kernels import Kernel
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor
from torch.nn import Module

from gp_distributions import distances, kernels, measures
from gp_distributions.models.normalization import NormalizeClouds
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.rows.columns import Slots
from gp_distributions.saving.limits import Limits

_PACKAGES = (distances, kernels, measures, constraints, gpytorch_kernels, means, priors)
_PUBLIC = (getattr(package, name) for package in _PACKAGES for name in package.__all__)
_CLASSES: tuple[type[Any], ...] = (
    *(cls for cls in _PUBLIC if isinstance(cls, type) and issubclass(cls, Module)),
    likelihoods.FixedNoiseGaussianLikelihood,
    likelihoods.GaussianLikelihood,
    CategoricalKernel,
    ChainedInputTransform,
    NormalizeClouds,
    SamplingNoiseLikelihood,
    SharedNoise,
    ChainedOutcomeTransform,
    Log,
    Normalize,
    Standardize,
    torch.nn.Softplus,
)
# Names start with the library that defines the class: "gpytorch.ScaleKernel".
_NAMED: dict[str, type[Any]] = {
    f"{cls.__module__.partition('.')[0]}.{cls.__name__}": cls for cls in _CLASSES
}
_NAMES = {cls: name for name, cls in _NAMED.items()}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (torch.exp, torch.log, torch.sigmoid, inv_sigmoid, inv_softplus)
}

_MISSING: Any = object()

ADVICE = (
    "Save model.state_dict() with torch.save instead, and load it into a model that your code builds "
    "from the same data."
)

# How to read constructor arguments that modules keep under another name or in another form.
_KEPT_ELSEWHERE: dict[str, Callable[[Any], Any]] = {
    "bounds": lambda normalize: None if normalize.learn_bounds else normalize.bounds,
    "distance": lambda module: module.distance,  # whose own distance has the same name
    "constant_prior": lambda mean: getattr(mean, "mean_prior", None),
    "frequencies": lambda fourier: fourier.frequencies if fourier.measure == "given" else None,
    "initial_value": lambda constraint: (
        None if constraint.initial_value is None else constraint.transform(constraint.initial_value)
    ),
    "learn_additional_noise": lambda likelihood: likelihood.second_noise_covar is not None,
    "origin": lambda kernel: kernel.origin,
    "squared": lambda precomputed: precomputed.matrix,
}


class Description:
    """Description of modules as plain data that refers to tensors and other modules by number.

    Attributes:
        objects: The class and the constructor arguments of each module. A module comes after the modules
            that it contains.
        tensors: All tensors of the modules. Each tensor occurs once, even if modules share it.
    """

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []
        # Maps the id of an object to its number and to the object, which keeps the id unique.
        self._numbered: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> Any:
        """Describe a module, a tensor or a plain value.

        Raises:
            TypeError: If the value is, or contains, something that cannot be restored.
        """
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            return float(value)
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, Slots):
            return {"slots": list(dataclasses.astuple(value))}
        if isinstance(value, tuple):
            return {"tuple": [self.of(item) for item in value]}
        if isinstance(value, list | torch.nn.ModuleList):
            return [self.of(item) for item in value]
        if isinstance(value, Tensor):
            number = self._number(value, self._add_tensor)
            if self.tensors[number].shape == value.shape:
                return {"tensor": number}
            return {"expanded": [number, list(value.shape)]}
        if type(value) in _NAMES:
            return {"object": self._number(value, self._add_object)}
        for name, function in _FUNCTIONS.items():
            if value is function:
                return {"function": name}
        name = getattr(value, "__qualname__", type(value).__qualname__)
        raise TypeError(
            f"A model with a {name} cannot be saved. Files support only classes of this package and "
            f"common ones of GPyTorch and BoTorch. {ADVICE}"
        )

    def _number(self, value: Any, add: Callable[[Any], int]) -> int:
        if id(value) not in self._numbered:
            self._numbered[id(value)] = add(value), value
        return self._numbered[id(value)][0]

    def _add_tensor(self, tensor: Tensor) -> int:
        # Store one element of an expanded axis; restore() expands it, so computations stay shared.
        once = [slice(1) if stride == 0 else slice(None) for stride in tensor.stride()]
        self.tensors.append(tensor.detach()[tuple(once)])
        return len(self.tensors) - 1

    def _add_object(self, module: Module) -> int:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in _parameters(type(module)):
            value = _argument(module, parameter)
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional = self.of(value)
            elif value is not _MISSING:
                named[parameter.name] = self.of(value)
        if isinstance(module, torch.nn.ModuleDict):
            named = {name: self.of(item) for name, item in module.items()}
        self.objects.append(
            {"class": _NAMES[type(module)], "positional": positional, "named": named}
        )
        return len(self.objects) - 1


def restore(objects: Sequence[dict[str, Any]], tensors: Sequence[Tensor]) -> Callable[[Any], Any]:
    """Build all described modules, and return a function that converts a description to its value.

    Raises:
        ValueError: If the description asks for far more than the tensors and modules that there are.
    """
    made: list[Module] = []
    expanded: dict[tuple[int, ...], Tensor] = {}  # which several models may share
    limits = Limits(tensors)

    def value_of(description: Any) -> Any:
        if isinstance(description, list):
            return [value_of(item) for item in description]
        if not isinstance(description, dict):
            return description
        ((kind, content),) = description.items()
        match kind:
            case "size":
                return torch.Size(content)
            case "slots":
                return Slots(*content)
            case "tuple":
                return tuple(value_of(item) for item in content)
            case "tensor":
                return tensors[content]
            case "expanded":
                number, shape = content
                limits.check_expanded(shape)
                return expanded.setdefault((number, *shape), tensors[number].expand(shape))
            case "object":
                return made[content]
            case "function":
                return _FUNCTIONS[content]
        raise ValueError(f"unknown kind of value {kind!r}")

    for entry in objects:
        limits.add_module(entry)
        positional = [value_of(item) for item in entry["positional"]]
        named = {name: value_of(item) for name, item in entry["named"].items()}
        made.append(_NAMED[entry["class"]](*positional, **named))
    return value_of


def _parameters(cls: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a constructor, including those that a kernel passes on to ``Kernel``."""
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter
        elif issubclass(cls, Kernel) and cls is not Kernel:
            yield from _parameters(Kernel)


def _argument(module: Any, parameter: inspect.Parameter) -> Any:
    """Read a constructor argument from a module; ``_MISSING`` if the constructor does not need it."""
    name, default = parameter.name, parameter.default
    if name in _KEPT_ELSEWHERE:
        return _KEPT_ELSEWHERE[name](module)
    # Likelihoods pass arguments on to their noise, and named kernels to their distance.
    parts = [getattr(module, part, None) for part in ("noise_covar", "distance")]
    for keeper, kept in itertools.product([*parts, module], (name, f"_{name}", f"raw_{name}")):
        value = getattr(keeper, kept, _MISSING)
        if value is _MISSING or inspect.ismethod(value):
            continue
        # Floating-point tensors are restored with the state, unless the constructor requires them.
        in_state = isinstance(value, Tensor) and value.is_floating_point()
        if default is not parameter.empty and (in_state or value is None is default):
            return _MISSING
        return value
    if default is parameter.empty:
        raise TypeError(
            f"A model with a {type(module).__qualname__} cannot be saved: it does not keep the "
            f"argument {name!r} of its constructor. {ADVICE}"
        )
    return _MISSING  # for example a seed, whose effects the state contains
