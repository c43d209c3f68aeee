"""What a kernel makes of given distributions, in figures and in words to act on."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.reading import check_kind
from gp_distributions.measures.kinds import Distributions, as_rows

# Squared distances below this many roundings of the largest one are those of equal clouds.
_COINCIDENT = 100
# Correlations at the median distance at which clouds all look unlike, or all look alike.
_UNLIKE, _ALIKE = 0.01, 0.99
# Distances that all lie this close to their median tell nothing.
_EQUAL = 0.05


@dataclass(frozen=True)
class DistanceDiagnosis:
    """One :class:`DistributionKernel` of a kernel, and its distances between the clouds.

    Attributes:
        name: Where it is in the kernel, as an expression.
        distance: The class of the distance.
        profile: The class of the profile.
        median_distance: The median Hilbert distance of clouds that do not coincide; NaN if all do.
        distance_range: The range of the middle nine tenths of these distances.
        lengthscale: The present lengthscale, in units of the distance.
        correlation: The profile at the median distance, as a correlation; NaN for profiles that are
            no function of the distance.
    """

    name: str
    distance: str
    profile: str
    median_distance: float
    distance_range: tuple[float, float]
    lengthscale: float
    correlation: float

    @property
    def suggested_lengthscale(self) -> float:
        """A lengthscale to start from: the median distance."""
        return self.median_distance

    def __str__(self) -> str:
        low, high = self.distance_range
        return (
            f"{self.name}, {self.profile} of {self.distance}: lengthscale {self.lengthscale:.3g}, "
            f"median distance {self.median_distance:.3g} (nine in ten from {low:.3g} to {high:.3g})."
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong with the distances or the lengthscale, in sentences."""
        ratio = self.lengthscale / self.median_distance
        start = (
            f"Let fit start at the median, or set {self.name}.lengthscale = "
            f"{self.suggested_lengthscale:.3g}."
        )
        low, high = self.distance_range
        if math.isnan(self.median_distance):
            return (
                f"{self.name}: all clouds coincide for {self.distance}. Take another distance.",
            )
        found = []
        if self.correlation < _UNLIKE:
            found.append(
                f"{self.name}: the lengthscale is {ratio:.3g} of the median distance: every cloud looks "
                f"unlike every other (correlation {self.correlation:.1g}), and predictions fall back "
                f"to the mean. {start}"
            )
        if self.correlation > _ALIKE:
            found.append(
                f"{self.name}: the lengthscale is {ratio:.3g} times the median distance: all clouds "
                f"look alike (correlation {self.correlation:.4g}), which suits functions that hardly "
                f"vary. {start}"
            )
        if high - low < _EQUAL * self.median_distance:
            found.append(
                f"{self.name}: nearly all distances lie between {low:.3g} and {high:.3g}: every cloud "
                f"is about as far from every other, so that {self.distance} tells little about them. "
                "Take coarser bins, a larger bandwidth, or another distance."
            )
        return tuple(found)


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` found; ``str`` puts it in words.

    Attributes:
        size: The number ``T`` of clouds.
        smallest_eigenvalue: Of the ``T x T`` covariance matrix.
        largest_eigenvalue: Of the covariance matrix.
        precision: The spacing of the numbers that the rows are in.
        effective_rank: The exponential of the entropy of the eigenvalues: 1 if all clouds look alike,
            ``T`` if every cloud looks unlike every other (Roy and Vetterli 2007).
        duplicates: Pairs of clouds that no distance in the kernel tells apart: each cloud that
            coincides with an earlier one, after the first such.
        distances: One entry for each :class:`DistributionKernel`.
    """

    size: int
    smallest_eigenvalue: float
    largest_eigenvalue: float
    precision: float
    effective_rank: float
    duplicates: tuple[tuple[int, int], ...]
    distances: tuple[DistanceDiagnosis, ...]

    @property
    def condition(self) -> float:
        """The ratio of the largest eigenvalue to the smallest, infinite where that is not positive."""
        positive = self.smallest_eigenvalue > 0
        return self.largest_eigenvalue / self.smallest_eigenvalue if positive else math.inf

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong and what to do about it, in sentences; empty if nothing is."""
        found = []
        # Up to this, rounding of small distances shows after a root, and noise hides it.
        small = math.sqrt(self.precision) * self.largest_eigenvalue
        if self.smallest_eigenvalue < -small:
            found.append(
                "The covariance matrix is not positive semi-definite: its smallest eigenvalue is "
                f"{self.smallest_eigenvalue:.3g}, the largest {self.largest_eigenvalue:.3g}. A distance "
                "in the kernel is not Hilbertian: take another."
            )
        elif self.smallest_eigenvalue <= self.size * self.precision * self.largest_eigenvalue:
            found.append(
                "The covariance matrix is singular to rounding. That does no harm with a noise variance "
                f"of at least {small:.1g}; without noise, leave out clouds that are nearly equal, "
                "shorten the lengthscale or take a rougher profile."
            )
        if self.duplicates:
            count = len(self.duplicates)
            shown = ", ".join(map(str, self.duplicates[:5])) + (", ..." if count > 5 else "")
            found.append(
                f"{count} pair{'s' * (count > 1)} of clouds coincide{'s' * (count == 1)}: {shown}. No "
                "distance in the kernel tells them apart. Leave out copies, keep repeated measurements "
                "with noise, or take a distance that sees what they differ in."
            )
        return (*found, *(text for distance in self.distances for text in distance.findings))

    def __str__(self) -> str:
        summary = (
            f"{self.size} clouds: eigenvalues of the covariance matrix from "
            f"{self.smallest_eigenvalue:.2g} to {self.largest_eigenvalue:.2g}, condition "
            f"{self.condition:.1g}, effective rank {self.effective_rank:.1f}."
        )
        findings = self.findings or ("Nothing stands out.",)
        return "\n".join([summary, *map(str, self.distances), *findings])


def diagnose(kernel: Kernel, X: Distributions | Tensor) -> Diagnosis:
    """Say what a kernel makes of clouds, before a model is fitted or when one disappoints.

    ``print(diagnose(kernel, X))`` says whether clouds coincide, the lengthscale fits the distances,
    and the covariance matrix is well conditioned. One covariance matrix is computed. What a distance
    left open at construction is set from ``X``, as by any first rows.

    Args:
        kernel: A kernel with a :class:`DistributionKernel` in it, or several: scaled, added,
            multiplied, beside kernels on other columns. Of a batch of kernels, give one: ``kernel[0]``.
        X: The ``T`` clouds as a container of them, or a ``T x width`` tensor of rows.

    Returns:
        The diagnosis.

    Raises:
        TypeError: If there is no distribution kernel in ``kernel``.
        ValueError: If ``kernel`` or ``X`` has batch axes, there are fewer than two clouds, or the kernel
            reads other distributions.
    """
    parts = {
        name: module
        for name, module in kernel.named_modules()
        if isinstance(module, DistributionKernel)
    }
    if not parts:
        raise TypeError(
            f"Expected a kernel with a DistributionKernel in it, got {type(kernel).__name__}."
        )
    check_kind(X, kernel)
    rows = as_rows(X)
    if rows.dim() != 2 or len(rows) < 2:
        raise ValueError(f"Expected two clouds or more, T x width, got shape {tuple(rows.shape)}.")
    if kernel.batch_shape:
        raise ValueError(
            f"Expected one kernel, got a batch of shape {tuple(kernel.batch_shape)}: give kernel[0]."
        )
    spreads: dict[Distance, list[Tensor]] = {}
    same = torch.ones(len(rows), len(rows), dtype=torch.bool, device=rows.device).triu(1)

    def look(distance: Distance, _: Any, squared: Tensor) -> None:
        rounding = _COINCIDENT * torch.finfo(squared.dtype).eps * squared.max()
        same.logical_and_(squared <= rounding)
        apart = squared[(squared > rounding).triu(1)].sort().values.sqrt()
        ranks = torch.tensor([0.05, 0.5, 0.95], device=squared.device) * (len(apart) - 1)
        spread = apart[ranks.round().long()] if len(apart) else squared.new_full((3,), math.nan)
        spreads.setdefault(distance, []).append(spread)

    hooks = [d.register_forward_hook(look) for d in {part.distance for part in parts.values()}]
    try:
        with torch.no_grad():
            eigenvalues = torch.linalg.eigvalsh(kernel(rows).to_dense())
    finally:
        for hook in hooks:
            hook.remove()
    spectrum = eigenvalues.clamp_min(0)
    spectrum = spectrum / spectrum.sum()
    later = same.any(0).nonzero().flatten()
    earlier = same[:, later].to(torch.uint8).argmax(0)
    return Diagnosis(
        size=len(rows),
        smallest_eigenvalue=eigenvalues[0].item(),
        largest_eigenvalue=eigenvalues[-1].item(),
        precision=torch.finfo(rows.dtype).eps,
        effective_rank=torch.special.entr(spectrum).sum().exp().item(),
        duplicates=tuple(zip(earlier.tolist(), later.tolist(), strict=True)),
        distances=tuple(
            _diagnose_distance(name, part, spreads[part.distance]) for name, part in parts.items()
        ),
    )


def _diagnose_distance(
    path: str, part: DistributionKernel, spreads: list[Tensor]
) -> DistanceDiagnosis:
    # A distance that several kernels share was asked by each in turn.
    low, median, high = (spreads.pop(0) if len(spreads) > 1 else spreads[0]).tolist()
    lengthscale = part.lengthscale.item()
    correlation = math.nan
    if part.profile.radial:
        scaled = part.lengthscale.new_tensor([[0.0], [(median / lengthscale) ** 2]])
        none, there = part.profile(scaled).flatten().tolist()
        correlation = there / none
    return DistanceDiagnosis(
        name=re.sub(r"\.(\d+)", r"[\1]", f"kernel.{path}" if path else "kernel"),
        distance=type(part.distance).__name__,
        profile=type(part.profile).__name__,
        median_distance=median,
        distance_range=(low, high),
        lengthscale=lengthscale,
        correlation=correlation,
    )
