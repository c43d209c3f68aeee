"""A model in words: what it compares and how, its noise, and what it learned from."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

from gp_distributions.kernels.block_kernel import BlockKernel
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.encoding import CovariateEncoding, Levels
from gp_distributions.models import IntegratedGP, SamplingNoiseLikelihood, SparseDistributionGP
from gp_distributions.reporting.clouds import CloudBlock, drawn_rows
from gp_distributions.reporting.training import Classifier, Mixed, Model, Training

_DISTANCES: Mapping[str, str] = {
    "SlicedWasserstein": "location, spread and shape, along many directions",
    "RigidSlicedWasserstein": "shape, whatever the position and the rotation",
    "MMD": "all differences on the scale of the bandwidth",
    "Fourier": "all differences at chosen frequencies",
    "Hellinger": "the weights of bins",
    "TotalVariation": "the weights of bins",
    "ChiSquared": "the weights of bins",
    "SinkhornPotential": "the way in which points are transported to a reference",
    "LinearTransport": "the way in which points are transported to a reference",
    "PrecomputedDistance": "a given table of distances",
    "ScaledDistance": "coordinates in learned scales",
}
_MINUS = "\N{MINUS SIGN}"
# Numbers with more places after the point are written with a power of ten.
_MOST_PLACES = 6
_PACKAGES = ("gpytorch", "botorch", "torch", "numpy", "matplotlib")


def number(value: float) -> str:
    """Write a number with three significant digits, or all of them before the point."""
    if not np.isfinite(value):
        return "not defined"
    text = f"{value:.3g}"
    if "e" in text and abs(value) >= 1 and abs(value) < 1e9:
        text = f"{value:.0f}"
    return text.replace("-", _MINUS)


def writer(unit: float) -> Callable[[float], str]:
    """Return a function that writes numbers with two significant digits of a typical size."""
    places = 1 - math.floor(math.log10(unit)) if unit > 0 and math.isfinite(unit) else 3
    if places > _MOST_PLACES:
        return number

    def write(value: float) -> str:
        text = f"{value:.{max(places, 0)}f}"
        return (text.removeprefix("-") if float(text) == 0 else text).replace("-", _MINUS)

    return write


def percent(share: float) -> str:
    """Write a share as a percentage, with a decimal only where it matters."""
    text = f"{share:.1%}" if 0.99 < share < 1 or 0 < share < 0.01 else f"{share:.0%}"
    return text.replace(".0%", "%")


def percent_level(level: float) -> str:
    """Write a level that was chosen as a percentage, with all of its digits."""
    return f"{100 * level:g}%"


def described(
    model: Model, blocks: list[CloudBlock], training: Training | None, labels: list[str]
) -> list[tuple[str, str]]:
    """Describe a model as pairs of a term and a sentence."""
    lines = [("Model", _kind(model)), ("Training data", _data(model, blocks, training))]
    for kernel, block in distribution_kernels(model.covar_module):
        names = [found.name for found in blocks if found.block == block and found.name]
        distance = type(kernel.distance).__name__
        read = _DISTANCES.get(distance)
        inner = getattr(kernel.distance, "distance", None)
        if inner is not None:
            read = f"{read}; {_DISTANCES.get(type(inner).__name__, type(inner).__name__)}"
            distance = f"{distance} of {type(inner).__name__}"
        lines.append(
            (
                f"Comparison of {names[0]}" if names else "Comparison",
                f"{read + ' ' if read else ''}({distance}), profile {type(kernel.profile).__name__}, "
                f"lengthscale {_values(kernel)}",
            )
        )
    called = {} if model.encoding is None else {c: n for n, c in model.encoding.columns.items()}
    for part in model.covar_module.modules():
        if isinstance(part, BlockKernel) and part.columns in called:
            lines += [
                (
                    f"Comparison of {called[part.columns]}",
                    f"{type(kernel).__name__}, lengthscale {_values(kernel)}",
                )
                for kernel in part.modules()
                if isinstance(kernel, Kernel)
                and kernel.has_lengthscale
                and not isinstance(kernel, DistributionKernel)
            ]
    lines.append(("Noise", _noise(model, labels)))
    return lines


def weighted(model: Model | Mixed) -> list[tuple[str, str]]:
    """Say what is averaged, if a model is a mixture."""
    if not isinstance(model, Mixed):
        return []
    weights = model.weights.flatten()
    what = "settings of one model" if isinstance(model, IntegratedGP) else "models"
    return [
        (
            "Average",
            f"predictions average {int((weights > 0).sum())} {what}, by how well they explain the data; "
            f"the one that counts most, with a weight of {percent(float(weights.max()))}, is described "
            "here, and what matters and which objects are alike is told by it",
        )
    ]


def versions() -> str:
    """Name the versions of the packages that made the predictions."""
    from gp_distributions import __version__

    found = [f"{name} {version(name)}" for name in _PACKAGES]
    return ", ".join(
        [f"gp_distributions {__version__}", *found, f"Python {platform.python_version()}"]
    )


def _values(kernel: Kernel) -> str:
    return ", ".join(map(number, kernel.lengthscale.detach().flatten().tolist()))


def _kind(model: Model) -> str:
    task = "classification" if isinstance(model, Classifier) else "regression"
    if isinstance(model, SparseDistributionGP):
        count = model.summed().features.rows.shape[-2]
        return (
            f"Gaussian process {task}, approximated by {count} inducing objects "
            f"({type(model).__name__})"
        )
    return f"Gaussian process {task} ({type(model).__name__})"


def _data(model: Model, blocks: list[CloudBlock], training: Training | None) -> str:
    parts = []
    for found in blocks:
        text = f"points in {found.block.dim} dimension{'s' * (found.block.dim > 1)}"
        if training is not None:
            sizes = found.sizes(drawn_rows(model, training.rows))
            low, high = int(sizes.min()), int(sizes.max())
            text = f"{low if low == high else f'{low} to {high}'} {text}"
        parts.append(f"{found.name or 'a bag'}: {text}")
    if model.encoding is not None:
        for block in model.encoding.blocks.values():
            if isinstance(block, CovariateEncoding):
                parts += [
                    f"{name}: {len(kind.values)} categories"
                    if isinstance(kind, Levels)
                    else f"{name}: a number"
                    for name, kind in block.columns.items()
                ]
    count = "objects" if training is None else f"{len(training.rows)} objects"
    return "; ".join([count, *parts])


def _noise(model: Model, labels: list[str]) -> str:
    likelihood = model.likelihood
    if isinstance(model, Classifier):
        return (
            f"labels may be wrong or ambiguous: alpha_epsilon = {number(model.alpha_epsilon)}, "
            f"temperature = {number(model.temperature)}"
        )
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        return "given for each measurement"
    if not isinstance(likelihood, GaussianLikelihood):
        return type(likelihood).__name__
    transform = getattr(model, "outcome_transform", None)
    stds = likelihood.noise.detach().sqrt().flatten()
    units = stds.new_ones(1) if transform is None else transform.stdvs.detach().flatten()
    each = (stds * units).expand(len(labels)).tolist()
    named = [
        f"{number(std)} ({label})" if label else number(std)
        for std, label in zip(each, labels, strict=True)
    ]
    text = f"measurements scatter with a standard deviation of {', '.join(named)}"
    if isinstance(likelihood, SamplingNoiseLikelihood):
        text += " for the largest bags, and more for smaller ones"
    return text
