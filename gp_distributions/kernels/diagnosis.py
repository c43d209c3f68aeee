"""Diagnose a kernel on given distributions, in figures and in words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.comparison import rounding_of
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.default import unit_findings
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.orientation import LEVEL, axes_p_value, sees_random_poses
from gp_distributions.kernels.reading import check_kind, distribution_kernels
from gp_distributions.measures.arrays import described
from gp_distributions.measures.inputs import Inputs, encoding_of, input_rows
from gp_distributions.numerics.sampling import apart
from gp_distributions.rows.layout import Block, numbers_of

# All clouds look unlike if the correlation at the median distance is below the first value, and alike
# if it is above the second.
_UNLIKE, _ALIKE = 0.01, 0.99
# Distances are uninformative if nearly all lie this close to their median.
_EQUAL = 0.05


@dataclass(frozen=True, repr=False)
class DistanceDiagnosis:
    """Diagnosis of one :class:`DistributionKernel` within a kernel.

    Attributes:
        name: Expression that gives this kernel, such as ``kernel.base_kernel``.
        distance: Name of the distance class.
        profile: Name of the profile class.
        median_distance: Median Hilbert distance between clouds that do not coincide. NaN if all clouds
            coincide.
        distance_range: 5% and 95% quantiles of the distances between clouds that do not coincide.
        lengthscale: Current lengthscale, in units of the distance.
        correlation: Correlation between two clouds at the median distance. NaN for profiles that are
            not functions of the distance.
        axes_p_value: p-value of Bingham's test that the principal axes of the clouds are uniform over
            all directions. Clouds count if one variance along their principal axes differs from the
            next by a factor of at least 1.5 and their number of atoms determines that axis. NaN
            if fewer than 20 clouds, or fewer than half of them, count, or the atoms do not lie in two
            or three dimensions.
        random_poses: Whether the test does not reject uniform axes at the level 1%, and rotations
            change the distance.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SlicedWassersteinKernel, diagnose
        >>> clouds = PointClouds(torch.tensor([0.0, 1.0, 3.0]).double().reshape(3, 1, 1))
        >>> (found,) = diagnose(SlicedWassersteinKernel(dim=1), clouds).distances
        >>> round(found.median_distance, 3)
        2.0
    """

    name: str
    distance: str
    profile: str
    median_distance: float
    distance_range: tuple[float, float]
    lengthscale: float
    correlation: float
    axes_p_value: float
    random_poses: bool

    @property
    def suggested_lengthscale(self) -> float:
        """Suggested initial lengthscale: the median distance."""
        return self.median_distance

    def __repr__(self) -> str:
        low, high = self.distance_range
        return (
            f"{self.name}, {self.profile} of {self.distance}: lengthscale {self.lengthscale:.3g}, "
            f"median distance {self.median_distance:.3g} (90% between {low:.3g} and {high:.3g})."
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """Problems with the distances or the lengthscale, each with advice; empty if there are none."""
        ratio = self.lengthscale / self.median_distance
        start = (
            f"Let fit start at the median distance, or set {self.name}.lengthscale = "
            f"{self.suggested_lengthscale:.3g}."
        )
        low, high = self.distance_range
        if math.isnan(self.median_distance):
            return (f"{self.name}: all clouds coincide for {self.distance}. Use another distance.",)
        found = []
        if self.correlation < _UNLIKE:
            found.append(
                f"{self.name}: the lengthscale is {ratio:.3g} of the median distance. Clouds are nearly "
                f"uncorrelated (correlation {self.correlation:.1g}), so predictions revert to the mean. "
                f"{start}"
            )
        if self.correlation > _ALIKE:
            found.append(
                f"{self.name}: the lengthscale is {ratio:.3g} times the median distance. All clouds "
                f"look alike (correlation {self.correlation:.4g}), which only suits functions that "
                f"hardly vary. {start}"
            )
        if high - low < _EQUAL * self.median_distance:
            found.append(
                f"{self.name}: nearly all distances lie between {low:.3g} and {high:.3g}, so "
                f"{self.distance} says little about which clouds are similar. Use coarser bins, a "
                "larger bandwidth or another distance."
            )
        if self.random_poses:
            found.append(
                f"{self.name}: the clouds look randomly oriented: their principal axes are spread over "
                "all directions (Bingham's test does not reject uniform axes at the level "
                f"{LEVEL:.0%}, p = {self.axes_p_value:.2g}), and for {self.distance} turned copies of "
                "a cloud are far apart. If orientation carries no meaning, use RigidSlicedWasserstein, "
                "which is invariant to rotations. If it does, as for an arrow of wind, ignore this."
            )
        return tuple(found)


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Result of :func:`diagnose`. Print it to see the figures and findings in words.

    Attributes:
        size: Number ``T`` of clouds.
        smallest_eigenvalue: Smallest eigenvalue of the ``T x T`` covariance matrix.
        largest_eigenvalue: Largest eigenvalue of the covariance matrix.
        precision: Machine epsilon of the dtype of the rows.
        effective_rank: Exponential of the entropy of the eigenvalues (Roy and Vetterli 2007): 1 if all
            clouds look alike, ``T`` if they are uncorrelated.
        duplicates: Pairs of clouds that no distance in the kernel tells apart, and whose covariates are
            equal if there are any. Each cloud that coincides with earlier ones is paired with the first
            of them.
        distances: Diagnosis of each :class:`DistributionKernel`.
        units: Coordinates that decide a distance alone because of their units, each with advice.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SlicedWassersteinKernel, diagnose
        >>> clouds = PointClouds(torch.tensor([0.0, 1.0, 3.0, 1.0]).double().reshape(4, 1, 1))
        >>> found = diagnose(SlicedWassersteinKernel(dim=1), clouds)
        >>> found.duplicates
        ((1, 3),)
        >>> print(found.findings[1])
        1 pair of clouds coincides: (1, 3). ...
    """

    size: int
    smallest_eigenvalue: float
    largest_eigenvalue: float
    precision: float
    effective_rank: float
    duplicates: tuple[tuple[int, int], ...]
    distances: tuple[DistanceDiagnosis, ...]
    units: tuple[str, ...] = ()

    @property
    def condition(self) -> float:
        """Ratio of the largest to the smallest eigenvalue; infinite if the latter is not positive."""
        positive = self.smallest_eigenvalue > 0
        return self.largest_eigenvalue / self.smallest_eigenvalue if positive else math.inf

    @property
    def findings(self) -> tuple[str, ...]:
        """Problems with the kernel, each with advice; empty if there are none."""
        found = []
        # Rounding errors of small squared distances grow to this size under a square root. Noise of this
        # variance hides them.
        small = math.sqrt(self.precision) * self.largest_eigenvalue
        if self.smallest_eigenvalue < -small:
            found.append(
                "The covariance matrix is not positive semi-definite: its smallest eigenvalue is "
                f"{self.smallest_eigenvalue:.3g}, the largest {self.largest_eigenvalue:.3g}. A distance "
                "in the kernel is not Hilbertian: use another."
            )
        elif self.smallest_eigenvalue <= self.size * self.precision * self.largest_eigenvalue:
            found.append(
                "The covariance matrix is numerically singular. This is harmless with a noise variance "
                f"of at least {small:.1g}; without noise, remove clouds that are nearly equal, shorten "
                "the lengthscale or use a rougher profile."
            )
        if self.duplicates:
            count = len(self.duplicates)
            shown = ", ".join(map(str, self.duplicates[:5])) + (", ..." if count > 5 else "")
            found.append(
                f"{count} pair{'s' * (count > 1)} of clouds coincide{'s' * (count == 1)}: {shown}. No "
                "distance in the kernel tells them apart. Remove copies, keep repeated measurements "
                "with noise, or use a distance that sees how they differ."
            )
        found.extend(self.units)
        return (*found, *(text for distance in self.distances for text in distance.findings))

    def __repr__(self) -> str:
        summary = (
            f"{self.size} clouds: eigenvalues of the covariance matrix from "
            f"{self.smallest_eigenvalue:.2g} to {self.largest_eigenvalue:.2g}, condition "
            f"{self.condition:.1g}, effective rank {self.effective_rank:.1f}."
        )
        findings = self.findings or (
            "No problems found. compare() tells which kernel predicts targets best.",
        )
        return "\n".join([summary, *map(str, self.distances), *findings])


def diagnose(kernel: Kernel, X: Inputs | Tensor) -> Diagnosis:
    """Check a kernel on clouds, before fitting a model or when a model predicts poorly.

    ``print(diagnose(kernel, X))`` reports whether clouds coincide, whether the lengthscale fits the
    distances, whether the covariance matrix is well conditioned, whether a coordinate decides a distance
    alone because of its unit, and whether clouds in two or three dimensions look randomly oriented to a
    distance that is not invariant to rotations. (All coordinates count, except normals: of clouds with
    marks, diagnose the coordinates that rotate by themselves.) It computes one covariance matrix. A
    distance that sets its bandwidth from the first rows it sees sets it from ``X``. A diagnosis needs no
    targets; :func:`gp_distributions.compare` tells which kernel predicts targets best.

    Args:
        kernel: Kernel that contains at least one :class:`DistributionKernel`, which may be scaled,
            added, multiplied, or combined with kernels on other columns. If it is a batch, pass one of
            its kernels, such as ``kernel[0]``.
        X: The ``T`` clouds, as a container or a ``T x width`` tensor of rows; or the training inputs
            as :class:`MixedInputs`, whose distributions are diagnosed. (Other mixed inputs as rows,
            ``X.pack(model.encoding)``.)

    Returns:
        The diagnosis.

    Raises:
        TypeError: If ``kernel`` is not a kernel that contains a distribution kernel.
        ValueError: If ``kernel`` or ``X`` has batch axes, there are fewer than two clouds, or the
            kernel reads another kind of distributions.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SlicedWassersteinKernel, diagnose
        >>> clouds = PointClouds(torch.tensor([0.0, 10.0, 30.0]).double().reshape(3, 1, 1))
        >>> kernel = SlicedWassersteinKernel(dim=1)
        >>> kernel.lengthscale = 0.1
        >>> print(diagnose(kernel, clouds).findings[0])
        kernel: the lengthscale is 0.005 of the median distance. ...
    """
    if not isinstance(kernel, Kernel):
        advice = " Pass its kernel, model.covar_module." * hasattr(kernel, "covar_module")
        raise TypeError(f"Expected a GPyTorch kernel, got {described(kernel)}.{advice}")
    parts = {
        name: module
        for name, module in kernel.named_modules()
        if isinstance(module, DistributionKernel)
    }
    if not parts:
        raise TypeError(
            f"Expected a kernel that contains a DistributionKernel, got {type(kernel).__name__}."
        )
    check_kind(X, kernel)
    rows = input_rows(X, encoding_of(X))
    if rows.dim() != 2 or len(rows) < 2:
        raise ValueError(f"Expected at least two clouds, T x width, got shape {tuple(rows.shape)}.")
    if kernel.batch_shape:
        raise ValueError(
            f"Expected one kernel, got a batch of shape {tuple(kernel.batch_shape)}: pass kernel[0]."
        )
    readers = distribution_kernels(kernel)
    read = dict(readers)
    spreads: dict[Distance, list[tuple[float, float, float]]] = {}
    same = torch.ones(len(rows), len(rows), dtype=torch.bool, device=rows.device).triu(1)

    def look(distance: Distance, inputs: tuple[Rows, ...], squared: Tensor) -> None:
        rounding = rounding_of(distance, rows_of(inputs[0]), squared)
        different = apart(squared, rounding=rounding)
        same.logical_and_(~different)
        pairs = squared[different.triu(1)].sort().values.sqrt()
        ranks = [round(share * (len(pairs) - 1)) for share in (0.05, 0.95)]
        low, high = pairs[ranks].tolist() if len(pairs) else (math.nan, math.nan)
        median = squared[different].median().sqrt().item()
        spreads.setdefault(distance, []).append((low, median, high))

    hooks = [d.register_forward_hook(look) for d in {part.distance for part in parts.values()}]
    try:
        with torch.no_grad():
            covariances = covariance(kernel, rows)
            eigenvalues = torch.linalg.eigvalsh(covariances)
    finally:
        for hook in hooks:
            hook.remove()
    spectrum = eigenvalues.clamp_min(0)
    spectrum = spectrum / spectrum.sum()
    blocks = [block for _, block in readers]
    first, second = same.nonzero(as_tuple=True)
    same[first, second] = _same_beside(rows, blocks, covariances, first, second)
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
            _diagnose_distance(
                name,
                part,
                spreads[part.distance],
                read[part].select(rows),
                getattr(X, "num_normals", 0),
            )
            for name, part in parts.items()
        ),
        units=unit_findings(kernel, X, rows),
    )


def _same_beside(
    rows: Tensor, blocks: list[Block], covariances: Tensor, first: Tensor, second: Tensor
) -> Tensor:
    """Return which pairs of rows agree beside blocks too, or have the correlation one."""
    width = rows.shape[-1]
    read = {column for block in blocks for column in numbers_of(block.columns, width)}
    others = rows[:, [column for column in range(width) if column not in read]]
    equal = (others[first] == others[second]).all(-1)
    variances = covariances.diagonal()
    correlations = covariances[first, second] / (variances[first] * variances[second]).sqrt()
    return equal | (correlations >= 1 - math.sqrt(torch.finfo(rows.dtype).eps))


def _diagnose_distance(
    path: str,
    part: DistributionKernel,
    spreads: list[tuple[float, float, float]],
    rows: Tensor,
    normals: int,
) -> DistanceDiagnosis:
    # If several kernels share a distance, each of them called it in turn, so there is a spread for each.
    low, median, high = spreads.pop(0) if len(spreads) > 1 else spreads[0]
    lengthscale = part.lengthscale.item()
    correlation = math.nan
    if part.profile.radial:
        scaled = part.lengthscale.new_tensor([[0.0], [(median / lengthscale) ** 2]])
        none, there = part.profile(scaled).flatten().tolist()
        correlation = there / none
    with torch.no_grad():
        p_value = axes_p_value(part.distance, rows, normals)
        seen = p_value >= LEVEL
        random = seen and sees_random_poses(part.distance, rows, normals)
    return DistanceDiagnosis(
        name=re.sub(r"\.(\d+)", r"[\1]", f"kernel.{path}" if path else "kernel"),
        distance=type(part.distance).__name__,
        profile=type(part.profile).__name__,
        median_distance=median,
        distance_range=(low, high),
        lengthscale=lengthscale,
        correlation=correlation,
        axes_p_value=p_value,
        random_poses=random,
    )
