"""Numbers as text, and a model in words: what it compares and how, its noise, and its data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from gp_distributions.files import versions
from gp_distributions.kernels.block_kernel import BlockKernel
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.models import IntegratedGP, MixtureModel, SparseDistributionGP
from gp_distributions.models.mixture_classifier import Classifier
from gp_distributions.plotting.reports.judging import Model


def number(value: float) -> str:
    """Write a number with three significant digits, or all of them before the point."""
    if not math.isfinite(value):
        return "not defined"
    text = f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    return text.replace("-", "\N{MINUS SIGN}")


def writer(unit: float) -> Callable[[float], str]:
    """Return a function that writes numbers with two significant digits of a typical size."""
    places = max(1 - math.floor(math.log10(unit)), 0)
    return lambda value: f"{value:z.{places}f}".replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """Write a share as a percentage with three digits."""
    return f"{100 * share:.3g}%"


def described(model: Any, single: Model, labels: list[str]) -> list[tuple[str, str]]:
    """Describe a model, or the member ``single`` of a mixture, as pairs of a term and a sentence."""
    lines = []
    if isinstance(model, MixtureModel | IntegratedGP):
        what = "models" if isinstance(model, MixtureModel) else "settings of one model"
        most = percent(float(model.weights.max()))
        told = f"predictions average {int((model.weights > 0).sum())} {what}; the one that counts most, "
        told += (
            f"with a weight of {most}, is described here and says what matters and what is alike"
        )
        lines.append(("Average", told))
    kind = f"Gaussian process ({type(single).__name__})"
    if isinstance(single, SparseDistributionGP):
        kind += f" with {single.summed().sums.num_features} features"
    lines.append(("Model", kind))
    columns, name = getattr(single.encoding, "columns", {}), ""
    for part in single.covar_module.modules():
        if isinstance(part, BlockKernel):
            name = next((f" of {n}" for n, c in columns.items() if c == part.columns), "")
        elif isinstance(part, Kernel) and part.has_lengthscale:
            text = type(part).__name__
            if isinstance(part, DistributionKernel):
                summary = str(inspect.getdoc(type(part.distance))).partition("\n")[0]
                text = f"{part.distance} ({summary}) with profile {part.profile}"
            scales = ", ".join(map(number, part.lengthscale.flatten().tolist()))
            lines.append((f"Comparison{name}", f"{text}, lengthscale {scales}"))
    software = ", ".join(f"{library} {found}" for library, found in versions().items())
    return [*lines, ("Noise", _noise(single, labels)), ("Software", software)]


def _noise(model: Model, labels: list[str]) -> str:
    if isinstance(model, Classifier):
        return f"labels may be wrong or ambiguous: alpha_epsilon = {number(model.alpha_epsilon)}"
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        return "given for each measurement"
    transform = getattr(model, "outcome_transform", None)
    stds = model.likelihood.noise.detach().sqrt().flatten()
    stds = stds if transform is None else stds * transform.stdvs.detach().flatten()
    each = zip(map(number, stds.expand(len(labels)).tolist()), labels, strict=True)
    named = ", ".join(f"{std} ({label})" if label else std for std, label in each)
    return f"measurements scatter with a standard deviation of {named}"
