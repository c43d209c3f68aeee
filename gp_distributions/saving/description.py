"""Conversion of models, modules and estimators to plain data and tensors, and back.

Only classes in a fixed list are supported. A name in a file is looked up in that list, never imported.
"""

from __future__ import annotations

import inspect
import itertools
import numbers
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import gpytorch
import numpy as np
import torch
from botorch.models.kernels.categorical import CategoricalKernel
from botorch.models.transforms.input import ChainedInputTransform, Normalize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log, Standardize
from gpytorch import constraints, likelihoods, means, priors
from gpytorch import kernels as gpytorch_kernels
from gpytorch.kernels import Kernel
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor
from torch.nn import Module, Parameter

from gp_distributions import distances, kernels, measures
from gp_distributions.kernels.priors import LogarithmPrior
from gp_distributions.measures.encoding import (
    CovariateEncoding,
    Gaps,
    Levels,
    MixedEncoding,
    Scaling,
)
from gp_distributions.measures.inputs import AtomEncoding
from gp_distributions.models.atoms import ScaledTargets
from gp_distributions.models.choice import Choice
from gp_distributions.models.collapsed import CollapsedSums, ExplicitFeatures, InducingFeatures
from gp_distributions.models.draw_noise import AddedNoiseLikelihood, DrawNoiseLikelihood
from gp_distributions.models.likelihoods import (
    BinomialLikelihood,
    PoissonRateLikelihood,
    ScaledStudentTLikelihood,
)
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.rows.layout import Block, Slots
from gp_distributions.saving.objects import TAKEN_APART

_PACKAGES = (distances, kernels, measures, constraints, gpytorch_kernels, means, priors)
_PUBLIC = (getattr(package, name) for package in _PACKAGES for name in package.__all__)
_CLASSES: tuple[type[Any], ...] = (
    *(cls for cls in _PUBLIC if isinstance(cls, type) and issubclass(cls, Module)),
    likelihoods.BernoulliLikelihood,
    likelihoods.FixedNoiseGaussianLikelihood,
    likelihoods.GaussianLikelihood,
    likelihoods.LaplaceLikelihood,
    likelihoods.NegativeBinomialLikelihood,
    likelihoods.PoissonLikelihood,
    likelihoods.StudentTLikelihood,
    BinomialLikelihood,
    PoissonRateLikelihood,
    ScaledStudentTLikelihood,
    CategoricalKernel,
    AddedNoiseLikelihood,
    DrawNoiseLikelihood,
    ChainedInputTransform,
    LogarithmPrior,
    SamplingNoiseLikelihood,
    ScaledTargets,
    SharedNoise,
    ChainedOutcomeTransform,
    Log,
    Normalize,
    Standardize,
    torch.nn.Softplus,
    *(AtomEncoding, MixedEncoding, CovariateEncoding, Scaling, Levels, Gaps, Block, Slots),
    *(Choice, CollapsedSums, ExplicitFeatures, InducingFeatures),
    *TAKEN_APART,
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
    "Of a model, save model.state_dict() with torch.save instead, and load it into one that your code "
    "builds from the same data. Of a search of scikit-learn, save best_estimator_; other estimators and "
    "pipelines with joblib.dump, whose files can run any code when they are loaded."
)

# How to read constructor arguments that modules keep under another name or in another form.
_KEPT_ELSEWHERE: dict[str, Callable[[Any], Any]] = {
    "ard_num_dims": lambda kernel: getattr(
        kernel, "num_lengthscales", kernel.ard_num_dims or _MISSING
    ),
    "bounds": lambda normalize: None if normalize.learn_bounds else normalize.bounds,
    "distance": lambda module: module.distance,  # whose own distance has the same name
    "constant_prior": lambda mean: getattr(mean, "mean_prior", None),
    "frequencies": lambda fourier: fourier.frequencies if fourier.measure == "given" else None,
    "initial_value": lambda constraint: (
        None if constraint.initial_value is None else constraint.transform(constraint.initial_value)
    ),
    "learn_additional_noise": lambda likelihood: likelihood.second_noise_covar is not None,
    "linear_variance_prior": lambda kernel: getattr(kernel, "linear_variance_prior", None),
    "origin": lambda kernel: kernel.origin,
    "squared": lambda precomputed: precomputed.matrix,
}


class Description:
    """Description of objects as plain data that refers to tensors and other objects by number.

    Attributes:
        objects: The class, the parts and the state of each object. It comes after its parts.
        tensors: All tensors of the objects. Each tensor occurs once, even if objects share it.
        described: The objects themselves.
    """

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []
        self.described: list[Any] = []
        # Maps what identifies an object to its number and to the object, which keeps that unique.
        self._numbered: dict[Hashable, tuple[int, Any]] = {}

    def of(self, value: Any, where: str = "") -> Any:
        """Describe an object, a tensor or a plain value.

        Args:
            value: The value.
            where: What it is, for the error.

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
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, tuple):
            return {"tuple": [self.of(item, where) for item in value]}
        if isinstance(value, list | torch.nn.ModuleList):
            return [self.of(item, where) for item in value]
        if type(value) is dict:
            items = [[self.of(key, where), self.of(item, where)] for key, item in value.items()]
            return {"items": items}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufUO":
            return {"array": [value.dtype.str, value.tolist()]}
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
            f"A {name}{where and ' as '}{where} cannot be saved. Files support only classes of this "
            f"package and common ones of GPyTorch and BoTorch. {ADVICE}"
        )

    def _number(self, value: Any, add: Callable[[Any], int]) -> int:
        key = _identity(value)
        if key not in self._numbered:
            self._numbered[key] = add(value), value
        return self._numbered[key][0]

    def _add_tensor(self, tensor: Tensor) -> int:
        # Store one element of an expanded axis; restore() expands it, so computations stay shared.
        once = [slice(1) if stride == 0 else slice(None) for stride in tensor.stride()]
        self.tensors.append(tensor.detach()[tuple(once) if tensor.numel() else ...])
        return len(self.tensors) - 1

    def _add_object(self, value: Any) -> int:
        cls = type(value)
        parts = TAKEN_APART[cls][0](value) if cls in TAKEN_APART else _arguments(value)
        entry: dict[str, Any] = {"class": _NAMES[cls]}
        entry["parts"] = {
            name: self.of(part, f"{cls.__name__}.{name}") for name, part in parts.items()
        }
        if isinstance(value, gpytorch.Module):
            entry["priors"] = {
                name: closure.__qualname__ for name, _, _, closure, _ in value.named_priors()
            }
        if isinstance(value, Module):
            entry["training"] = value.training if cls in TAKEN_APART else True
            entry["modules"] = {
                name: type(module).__qualname__
                for name, module in value.named_modules(remove_duplicate=False)
            }
            entry["state"] = {
                name: [self.of(each), each is not None and each.requires_grad]
                for name, _, _, each in sorted(_state(value), key=itemgetter(0))
            }
        self.objects.append(entry)
        self.described.append(value)
        return len(self.objects) - 1


def _identity(value: Any) -> Hashable:
    """Return what tells objects apart; of tensors, their place in memory.

    Transforms of BoTorch replace their buffers by views of these whenever they are called, also by
    another thread.
    """
    if not isinstance(value, Tensor) or not value.numel():
        return id(value)
    return value.data_ptr(), value.dtype, value.device, tuple(value.shape), value.stride()


def restore(objects: Sequence[dict[str, Any]], tensors: Sequence[Tensor]) -> list[Any]:
    """Make all described objects."""
    made: list[Any] = []
    expanded: dict[tuple[int, ...], Tensor] = {}  # which several models may share

    def value_of(description: Any) -> Any:
        if isinstance(description, list):
            return [value_of(item) for item in description]
        if not isinstance(description, dict):
            return description
        ((kind, content),) = description.items()
        match kind:
            case "size":
                return torch.Size(content)
            case "dtype":
                return _dtype(content)
            case "tuple":
                return tuple(value_of(content))
            case "items":
                return {value_of(key): value_of(item) for key, item in content}
            case "array":
                return np.array(content[1], dtype=content[0])
            case "tensor":
                return tensors[content]
            case "expanded":
                number, shape = content
                return expanded.setdefault((number, *shape), tensors[number].expand(shape))
            case "object":
                return made[content]
            case "function":
                return _FUNCTIONS[content]
        raise ValueError(f"unknown kind of value {kind!r}")

    for entry in objects:
        cls = _NAMED[entry["class"]]
        parts = {name: value_of(part) for name, part in entry["parts"].items()}
        if cls in TAKEN_APART:
            value = TAKEN_APART[cls][1](cls, parts)
        else:
            value = cls(*parts.pop("*", ()), **parts)
        if isinstance(value, Module):
            _set_state(value, {name: (value_of(v), g) for name, (v, g) in entry["state"].items()})
            value.train(entry["training"])
        made.append(value)
    return made


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"expected a dtype, got {name!r}")
    return found


def _state(model: Module) -> Iterator[tuple[str, Module, str, Tensor | None]]:
    """Yield each parameter and buffer: full name, module, name within the module, and value."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for values in (module._parameters, module._buffers):
            for name, value in values.items():
                yield f"{prefix}.{name}", module, name, value


def _set_state(model: Module, state: Mapping[str, tuple[Tensor | None, bool]]) -> None:
    """Set parameters and buffers, whose shapes may change; parameters that were shared stay shared."""
    places = list(_state(model))
    if differing := {name for name, *_ in places} ^ set(state):
        raise ValueError(f"the state differs in {', '.join(sorted(differing))}")
    parameters: dict[int, Parameter] = {}
    for full_name, module, name, _ in places:
        value, requires_grad = state[full_name]
        if name not in module._parameters:
            module._buffers[name] = value
        elif value is None:
            module._parameters[name] = None
        else:
            parameter = Parameter(value, requires_grad=requires_grad)
            module._parameters[name] = parameters.setdefault(id(value), parameter)


def _arguments(module: Module) -> dict[str, Any]:
    """Return the arguments of the constructor of a module, the positional ones as ``*``."""
    if isinstance(module, torch.nn.ModuleDict):
        return dict(module.items())
    found = {}
    for parameter in _parameters(type(module)):
        value = _argument(module, parameter)
        if value is not _MISSING:
            positional = parameter.kind is parameter.VAR_POSITIONAL
            found["*" if positional else parameter.name] = value
    return found


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
    keepers = ("noise_covar", "second_noise_covar", "distance")
    parts = [getattr(module, part, None) for part in keepers]
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
