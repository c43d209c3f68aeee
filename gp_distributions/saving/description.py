"""Modules as plain data: the names of their classes, and the arguments that make them anew.

Only classes of a closed list are described and made: a name from a file is looked up in it, never
imported.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log, Standardize
from gpytorch import constraints, likelihoods, means, priors
from gpytorch import kernels as gpytorch_kernels
from gpytorch.kernels import Kernel
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor
from torch.nn import Module

from gp_distributions import distances, kernels, measures
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.models.normalization import NormalizeClouds
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise

_OWN_CLASSES = (
    vars(package)[name] for package in (distances, kernels, measures) for name in package.__all__
)
_CLASSES: tuple[type[Any], ...] = (
    *(cls for cls in _OWN_CLASSES if isinstance(cls, type) and issubclass(cls, Module)),
    gpytorch_kernels.AdditiveKernel,
    gpytorch_kernels.ConstantKernel,
    gpytorch_kernels.LinearKernel,
    gpytorch_kernels.MaternKernel,
    gpytorch_kernels.PeriodicKernel,
    gpytorch_kernels.ProductKernel,
    gpytorch_kernels.RBFKernel,
    gpytorch_kernels.RQKernel,
    gpytorch_kernels.ScaleKernel,
    means.ConstantMean,
    means.ZeroMean,
    likelihoods.FixedNoiseGaussianLikelihood,
    likelihoods.GaussianLikelihood,
    NormalizeClouds,
    SamplingNoiseLikelihood,
    SharedNoise,
    constraints.GreaterThan,
    constraints.Interval,
    constraints.LessThan,
    constraints.Positive,
    priors.GammaPrior,
    priors.HalfCauchyPrior,
    priors.HalfNormalPrior,
    priors.LogNormalPrior,
    priors.NormalPrior,
    ChainedOutcomeTransform,
    Log,
    Normalize,
    Standardize,
    torch.nn.Softplus,
)
# By name, with the library that a class is from: "gpytorch.ScaleKernel".
_NAMED: dict[str, type[Any]] = {
    f"{cls.__module__.partition('.')[0]}.{cls.__name__}": cls for cls in _CLASSES
}
_NAMES = {cls: name for name, cls in _NAMED.items()}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": torch.exp,
    "log": torch.log,
    "sigmoid": torch.sigmoid,
    "inv_sigmoid": inv_sigmoid,
    "inv_softplus": inv_softplus,
}

_MISSING: Any = object()

ADVICE = (
    "Save model.state_dict() with torch.save instead, and load it into a model that your code makes "
    "of the same data."
)

# Arguments that are kept neither under their name nor as _name or raw_name, or as something else.
_KEPT_ELSEWHERE: dict[tuple[type, str], Callable[[Any], Any]] = {
    (Kernel, "batch_shape"): lambda kernel: kernel._batch_shape,
    (constraints.Interval, "initial_value"): lambda constraint: (
        None if constraint.initial_value is None else constraint.transform(constraint.initial_value)
    ),
    (means.ConstantMean, "constant_prior"): lambda mean: getattr(mean, "mean_prior", None),
    (likelihoods.GaussianLikelihood, "noise_prior"): lambda likelihood: getattr(
        likelihood.noise_covar, "noise_prior", None
    ),
    (likelihoods.GaussianLikelihood, "noise_constraint"): lambda likelihood: (
        likelihood.noise_covar.raw_noise_constraint
    ),
    (likelihoods.GaussianLikelihood, "batch_shape"): lambda likelihood: likelihood.raw_noise.shape[
        :-1
    ],
    (likelihoods.FixedNoiseGaussianLikelihood, "noise"): lambda likelihood: (
        likelihood.noise_covar.noise
    ),
    (likelihoods.FixedNoiseGaussianLikelihood, "learn_additional_noise"): lambda likelihood: (
        likelihood.second_noise_covar is not None
    ),
    (likelihoods.FixedNoiseGaussianLikelihood, "batch_shape"): lambda likelihood: (
        likelihood.noise_covar.noise.shape[:-1]
    ),
    (distances.Fourier, "measure"): lambda fourier: (
        _MISSING if fourier.measure == "given" else fourier.measure
    ),
    (distances.Fourier, "frequencies"): lambda fourier: (
        fourier.frequencies if fourier.measure == "given" else None
    ),
    (distances.PrecomputedDistance, "squared"): lambda precomputed: precomputed.matrix,
    (ChainedOutcomeTransform, "transforms"): lambda chain: dict(chain.items()),
    (Normalize, "bounds"): lambda transform: (
        None if transform.learn_coefficients else transform.bounds
    ),
    (Normalize, "indices"): lambda transform: getattr(transform, "indices", None),
    (Normalize, "learn_bounds"): lambda transform: transform.learn_coefficients,
}


class Description:
    """Modules as plain data, which refers to tensors and to objects by number.

    Attributes:
        objects: The class and the arguments of each module, after the modules it is made of.
        tensors: The tensors, each once.
    """

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # as long as it lives, no other object has its id

    def of(self, value: Any) -> Any:
        """The description of a module, a tensor or a plain value.

        Raises:
            TypeError: If it is, or contains, something that cannot be made anew.
        """
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            return float(value)
        if isinstance(value, torch.Size):
            return {"size": list(value)}
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
            f"A model with a {name} cannot be saved: what a file holds is made of this package's "
            f"classes and common ones of GPyTorch and BoTorch. {ADVICE}"
        )

    def _number(self, value: Any, add: Callable[[Any], int]) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = add(value)
            self._kept.append(value)
        return self._numbers[id(value)]

    def _add_tensor(self, tensor: Tensor) -> int:
        # Copies along an expanded axis stay copies: they are not computed with one by one.
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
            elif parameter.kind is parameter.VAR_KEYWORD:
                named |= {name: self.of(item) for name, item in value.items()}
            elif value is not _MISSING:
                named[parameter.name] = self.of(value)
        self.objects.append(
            {"class": _NAMES[type(module)], "positional": positional, "named": named}
        )
        return len(self.objects) - 1


def restore(objects: Sequence[dict[str, Any]], tensors: Sequence[Tensor]) -> Callable[[Any], Any]:
    """Make all objects of a description, and return what turns a description into its value."""
    made: list[Module] = []

    def value_of(description: Any) -> Any:
        if isinstance(description, list):
            return [value_of(item) for item in description]
        if not isinstance(description, dict):
            return description
        ((kind, content),) = description.items()
        match kind:
            case "size":
                return torch.Size(content)
            case "tuple":
                return tuple(value_of(item) for item in content)
            case "tensor":
                return tensors[content]
            case "expanded":
                return tensors[content[0]].expand(content[1])
            case "object":
                return made[content]
            case "function":
                return _FUNCTIONS[content]
        raise ValueError(f"unknown kind of value {kind!r}")

    for entry in objects:
        cls = _NAMED[entry["class"]]
        positional = [value_of(item) for item in entry["positional"]]
        named = {name: value_of(item) for name, item in entry["named"].items()}
        made.append(_make(cls, *positional, **named))
    return value_of


def _make(cls: Any, *positional: Any, **named: Any) -> Any:
    if _constructor(cls) is cls:
        return cls(*positional, **named)
    module = cls.__new__(cls)
    _constructor(cls).__init__(module, *positional, **named)
    return module


def _constructor(cls: type[Any]) -> type[Any]:
    """The class whose constructor serves: the named kernels are made of a distance, like others."""
    return DistributionKernel if issubclass(cls, DistributionKernel) else cls


def _parameters(cls: type[Any]) -> Iterator[inspect.Parameter]:
    """The parameters of the constructor; those that it passes on to ``Kernel`` included."""
    for parameter in inspect.signature(_constructor(cls)).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD or (cls, parameter.name) in _KEPT_ELSEWHERE:
            yield parameter
        elif issubclass(cls, Kernel) and cls is not Kernel:
            yield from _parameters(Kernel)


def _argument(module: Module, parameter: inspect.Parameter) -> Any:
    """The argument that the constructor is to be given, or ``_MISSING`` if it needs none."""
    for base in type(module).__mro__:
        if (base, parameter.name) in _KEPT_ELSEWHERE:
            return _KEPT_ELSEWHERE[base, parameter.name](module)
    is_needed = parameter.default is parameter.empty
    for name in (parameter.name, f"_{parameter.name}", f"raw_{parameter.name}"):
        value = getattr(module, name, _MISSING)
        if value is _MISSING or inspect.ismethod(value):
            continue
        if not is_needed and (value is None is parameter.default or isinstance(value, Tensor)):
            return _MISSING  # the state restores tensors
        return value
    if is_needed:
        raise TypeError(
            f"A model with a {type(module).__qualname__} cannot be saved: it does not keep the "
            f"argument {parameter.name!r} that it was made with. {ADVICE}"
        )
    return _MISSING  # such as a seed: what it decides is in the state
