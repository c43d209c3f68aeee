"""The distance wrapper that weighs coordinates: units, learned scales, normals, sizes and pose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gpytorch
import torch
from gpytorch.constraints import Positive
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from gp_distributions.distances.base import Distance, DistanceWrapper
from gp_distributions.distances.comparison import in_mode
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, embedded, rows_of
from gp_distributions.measures.arrays import integer, positive
from gp_distributions.numerics.sampling import effective_sizes
from gp_distributions.rows.clouds import drop_copies, drop_padding, random_order
from gp_distributions.rows.layout import Block, check_weights, chunks

# Deviation of log sizes, relative to that of clouds.
_SIZES = 0.3
# Length of normals before a fit, in units of the positions.
_NORMALS = 3.0
# Largest number of clouds from which the unit of sizes is computed, evenly spaced in the data.
_CLOUDS = 256
# Number of atoms that are averaged at a time.
_ATOMS = 2**18


class ScaledDistance(DistanceWrapper, gpytorch.Module):
    r"""A distance between distributions whose coordinates are multiplied by factors.

    Each coordinate is measured in its unit :math:`u_j`, the standard deviation of the average of the
    first clouds that the distance sees, usually the training clouds, in which each cloud counts once,
    and multiplied by its scale :math:`s_j`, which tells how much it matters:

    .. math:: d_s(P, P') = d(S P, S P'), \qquad
        S = \operatorname{diag}(s_1 / u_1, \dots, s_d / u_d), \qquad \frac{1}{d} \sum_j s_j^2 = 1.

    Distances thus do not depend on the units of coordinates: years and euros count alike. Scales are
    relative, because the lengthscale of the kernel is the overall scale; a scale close to zero means
    that the coordinate does not matter. They are one at construction, and :func:`fit` learns them by
    marginal likelihood, with a guard against overfitting. Intervals are too narrow if scales are learned
    from few clouds; :func:`integrate_hyperparameters` of the fitted model keeps the scales and makes
    intervals wider.

    The means of Gaussians and mixtures are multiplied by ``S``, and their covariances become
    :math:`S \Sigma S`; their spread includes the variances. A coordinate that is constant, up to
    rounding, has the unit one. Coordinates that rotate together, as in :class:`RigidSlicedWasserstein`,
    share one unit, the root mean square of theirs, and one scale. The distance keeps its properties:
    ``embed``, and positive definiteness with every profile. A reference measure is not multiplied with
    the clouds.

    With ``learn=False`` it is the distance of the kernels that models make themselves.

    Args:
        distance: Distance that reads the multiplied coordinates.
        standardize: Whether coordinates are measured in their spread, or as they are.
        scales: Scales at construction, ``d`` positive numbers of which only the ratios matter. Default:
            ones.
        learn: Whether :func:`fit` learns the scales, under the prior
            :math:`\operatorname{LogNormal}(0, \sqrt 3)` of each before they are normalised, which
            shrinks all to one. ``distance.raw_scales.requires_grad_(False)`` fixes them later.
        geometric: Whether coordinates are positions in a space, where lengths along different axes
            compare, so that they share one unit and one scale.
        num_normals: Number of columns at the end that hold unit normals, which have no unit and are
            multiplied by :attr:`normals_factor`.
        sizes: Whether bags with unlike numbers of atoms differ. With the effective sizes :math:`n`, in
            which equal atoms count as one (Kish 1965), this adds :math:`c^2 (\log n - \log n')^2` to the
            squared distance, which is .09 of it on average over the first clouds.
        unposed: Distance that takes the place of ``distance`` while :attr:`any_pose` is true, such as a
            :class:`RigidSlicedWasserstein`, for which shapes are alike in any pose.

    Attributes:
        spread: Standard deviation of each coordinate, of shape ``d`` and in units of the coordinates.
            NaN until the distance has seen clouds; ones without ``standardize``.
        decision: Whether the last fit changed the scales, and why, in words.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the atoms of the distance are labels or indices, which have no scale;
            ``num_normals`` is not an integer >= 0, leaves no other coordinate or includes one that
            rotates; ``sizes`` is true and the distance does not read clouds; or scales are not positive
            and finite, or unequal for coordinates that share one.

    Example:
        >>> from gp_distributions import PointClouds, ScaledDistance, SlicedWasserstein
        >>> points = [[[0.0, 5e3]], [[2.0, 5e3]], [[0.0, 9e3]], [[2.0, 9e3]]]
        >>> rows = PointClouds.from_list(points).pack()
        >>> distance = ScaledDistance(SlicedWasserstein(2), scales=[3.0, 1.0])
        >>> distance.adapt(rows)
        >>> distance.spread
        tensor([1.0000e+00, 2.0000e+03], dtype=torch.float64)
        >>> distance.scales.detach().square()
        tensor([1.8000, 0.2000], dtype=torch.float64)
        >>> distance.squared(rows[:1], rows).detach().round(decimals=6)
        tensor([[0.0000, 3.6000, 0.4000, 4.0000]], dtype=torch.float64)

    Source: Neal 1996, section 1.2.3 (automatic relevance determination).
    """

    decision: str = "scales not learned"
    raw_scales: torch.nn.Parameter
    raw_scales_constraint: Positive
    spread: Tensor
    _normals_factor: Tensor
    _size_unit: Tensor
    _any_pose: Tensor

    def __init__(
        self,
        distance: Distance,
        *,
        standardize: bool = True,
        scales: Tensor | Sequence[float] | None = None,
        learn: bool = True,
        geometric: bool = False,
        num_normals: int = 0,
        sizes: bool = False,
        unposed: Distance | None = None,
    ) -> None:
        super().__init__(distance)
        for each in (distance, unposed):
            if each is not None and not each.reads_coordinates:
                raise ValueError(
                    f"Expected a distance that reads coordinates, got {type(each).__name__}, whose "
                    "atoms are labels or indices."
                )
        if sizes and self.inputs != "clouds":
            raise ValueError(f'Expected inputs="clouds" with sizes=True, got {self.inputs!r}.')
        self.standardize, self.learn = standardize, learn
        self.geometric, self.sizes = geometric, sizes
        self.unposed = unposed
        self.num_normals = integer(num_normals, "num_normals", least=0)
        rotating = distance.rotating
        most = self.dim - max(next(iter(rotating), 0), 1)
        if self.num_normals > most:
            raise ValueError(
                f"Expected num_normals <= {most}, because positions come before normals, got "
                f"{num_normals}."
            )
        positions = self.dim - self.num_normals
        sharing = (
            [positions, *[self.num_normals] * (positions < self.dim)] if geometric else rotating
        )
        self._groups = [*sharing, *[1] * (self.dim - sum(sharing))]
        nan = math.nan
        self.register_buffer("spread", torch.full((self.dim,), nan, dtype=torch.float64))
        self.register_buffer("_normals_factor", torch.tensor(_NORMALS, dtype=torch.float64))
        self.register_buffer("_size_unit", torch.tensor(nan if sizes else 0.0, dtype=torch.float64))
        self.register_buffer("_any_pose", torch.tensor(False))
        # A single scale is always one: there is nothing to learn.
        learned = learn and len(self._groups) > 1
        raw = torch.zeros(len(self._groups), dtype=torch.float64)
        self.register_parameter("raw_scales", torch.nn.Parameter(raw, requires_grad=learned))
        module: Any = self  # GPyTorch has no types
        module.register_constraint("raw_scales", Positive(torch.exp, torch.log))
        if learn:
            prior = LogNormalPrior(0.0, math.sqrt(3.0))
            module.register_prior("scales_prior", prior, _for_prior, _set_scales)
        if scales is not None:
            self.scales = scales

    # GPyTorch's __call__ would not call forward hooks.
    __call__ = torch.nn.Module.__call__

    @property
    def inner(self) -> Distance:
        """The distance that reads the multiplied coordinates, in the pose that shapes have or in any."""
        return self.unposed if self.unposed is not None and self.any_pose else self.distance

    @property
    def any_pose(self) -> bool:
        """Whether shapes are compared in any pose, by ``unposed``. It can be set."""
        return bool(self._any_pose)

    @any_pose.setter
    def any_pose(self, value: bool) -> None:
        if value and self.unposed is None:
            raise ValueError("Expected a distance for shapes in any pose. Pass unposed=.")
        self._any_pose.fill_(value)

    @property
    def normals_factor(self) -> Tensor:
        """Length of normals, in units of the positions: 3 before a fit. It can be set.

        Raises:
            ValueError: On assignment, if the value is not positive and finite.
        """
        return self._normals_factor

    @normals_factor.setter
    def normals_factor(self, value: Tensor | float) -> None:
        self._normals_factor.fill_(positive(value, "normals_factor"))

    @property
    def scales(self) -> Tensor:
        """The scale of each coordinate, of shape ``d``, with mean square one.

        They can be set to ``d`` positive numbers, of which only the ratios matter.
        """
        values = _positive(self)
        return self._of_coordinates(values / self._size(values))

    @scales.setter
    def scales(self, values: Tensor | Sequence[float]) -> None:
        raw = self.raw_scales
        given = torch.as_tensor(values, dtype=raw.dtype, device=raw.device).expand(self.dim)
        own = torch.stack([group[0] for group in given.split(self._groups)])
        alike = torch.equal(self._of_coordinates(own), given)
        if not bool(((given > 0) & given.isfinite()).all()) or not alike:
            raise ValueError(
                "Expected positive, finite scales, equal for coordinates that rotate together, got "
                f"{given.tolist()}."
            )
        _set_scales(self, own / self._size(own))

    @property
    def has_scales(self) -> bool:
        """Whether a coordinate counts for more than another, or may after a fit."""
        return self.learn or bool((self.raw_scales != self.raw_scales[0]).any())

    def _size(self, values: Tensor) -> Tensor:
        """Return the root mean square over coordinates."""
        return self._of_coordinates(values).square().mean().sqrt()

    def _of_coordinates(self, values: Tensor) -> Tensor:
        """Return the value of each coordinate, given those of the groups that share one."""
        return values.repeat_interleave(torch.tensor(self._groups, device=values.device))

    @property
    def multipliers(self) -> Tensor:
        """The factor of each coordinate, of shape ``d``: its scale, divided by its unit."""
        if self.standardize and bool(self.spread.isnan().any()):
            raise ValueError("Expected a spread: call adapt() with rows first.")
        positions, normals = self.spread.split([self.dim - self.num_normals, self.num_normals])
        together = len(positions) if self.geometric else next(iter(self.rotating), 0)
        joint = positions[:together].square().mean().sqrt().expand(together)
        units = torch.cat([joint, positions[together:]])
        units = torch.where(units > 0, units, 1.0)
        return torch.cat([1 / units, self.normals_factor.expand(len(normals))]) * self.scales

    @property
    def _factors(self) -> Tensor:
        """Factors of the columns of an atom; for Gaussians also of the entries of the covariance."""
        factors = self.multipliers
        if self.inputs == "clouds":
            return factors
        return torch.cat([factors, torch.outer(factors, factors).flatten()])

    @torch.no_grad()
    def adapt(self, rows: Tensor) -> None:
        """Choose the spread, then the settings of the distances, and the unit of sizes, once each."""
        if not rows.numel() or not bool(self.spread.isnan().any()):
            return
        if self.standardize:
            self.spread.copy_(coordinate_spread(self.block, rows))
        else:
            self.spread.fill_(1.0)
        multiplied = self._multiplied(rows)
        for each in (self.distance, self.unposed):
            if each is not None:
                each.adapt(multiplied)
        if self.sizes:
            self._size_unit.copy_(self._unit_of_sizes(multiplied))

    def _unit_of_sizes(self, rows: Tensor) -> Tensor:
        """Return the number ``c``, given multiplied rows; it is zero if all have one size."""
        rows = drop_copies(rows).flatten(0, -2)
        rows = rows[random_order(rows)[:_CLOUDS]]
        sizes = self._in_chunks(rows, _log_sizes).squeeze(-1)
        spread = (sizes.unsqueeze(-1) - sizes).square().sum()
        ratio = self.distance(EmbeddedRows(rows)).sum() / spread
        return torch.where(spread > 0, _SIZES * ratio.sqrt(), 0.0)

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows as the distance does for multiplied coordinates, and their log sizes."""
        own = self._factors.to(rows)
        found = self.inner.represent_rows(rows, own if factors is None else own * factors)
        if not self.sizes:
            return found
        return torch.cat([found, self._in_chunks(rows, self._sizes)], dim=-1)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent clouds as the distance does for multiplied coordinates, and their log sizes."""
        found = self.inner.represent(points * self._factors.to(points), weights)
        return torch.cat([found, self._sizes(points, weights)], dim=-1) if self.sizes else found

    def _sizes(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return log sizes in their unit, ``C x 1``."""
        return self._size_unit.to(points) * _log_sizes(points, weights)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations."""
        if not self.sizes or self.euclidean:
            return self.inner.compare_all(r1, r2)
        first = r1[..., :-1]
        found = self.inner.compare_all(first, first if r2 is r1 else r2[..., :-1])
        return found + (r1[..., -1:] - r2[..., -1:].mT).square()

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations, ``batch_shape x N``."""
        if not self.sizes:
            return self.inner.compare_paired(r1, r2)
        found = self.inner.compare_paired(r1[..., :-1], r2[..., :-1])
        return found + (r1[..., -1] - r2[..., -1]).square()

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute squared distances to the origin of inner products of the distance.

        With sizes, it is a point mass at zero, of size one.
        """
        self._adapt(rows_of(rows))
        if self.sizes:
            return super().squared_norms(rows)
        constant = in_mode(self)
        if any(each.requires_grad for each in (rows_of(rows), *constant.parameters())):
            return self.inner.squared_norms(constant._multiplied(rows_of(rows)))

        def norms() -> Tensor:
            # The distance represents these rows as this one represents those that it was given.
            multiplied = EmbeddedRows(constant._multiplied(rows_of(rows)))
            known = self.represented(rows)
            multiplied.derived("representation", lambda: known, by=self.inner)
            return self.inner.squared_norms(multiplied).unsqueeze(-1)

        return embedded(rows).derived("norms", norms, by=self).squeeze(-1)

    def _multiplied(self, rows: Tensor) -> Tensor:
        """Return the rows that the distance reads."""
        return self.block.join(*self.block.split(rows), self._factors.to(rows))

    @torch.no_grad()
    def learning(self) -> ScaledDistance:
        """Return the same distance, around the same parts, but with scales that are learned."""
        found = ScaledDistance(
            self.distance,
            standardize=self.standardize,
            geometric=self.geometric,
            num_normals=self.num_normals,
            sizes=self.sizes,
            unposed=self.unposed,
        ).to(self.spread.device)
        own, others = ((each.raw_scales, *each.buffers(recurse=False)) for each in (found, self))
        for value, other in zip(own, others, strict=True):
            value.copy_(other)
        return found

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        shown = []
        if self.standardize and not bool(self.spread.isnan().any()):
            shown.append(f"spread={[float(f'{s:.3g}') for s in self.spread.tolist()]}")
        if self.has_scales:
            shown.append(f"scales={[round(scale, 3) for scale in self.scales.tolist()]}")
        shown += ["geometric=True"] if self.geometric else []
        if self.num_normals:
            factor = f"normals_factor={self.normals_factor.item():.3g}"
            shown.append(f"num_normals={self.num_normals}, {factor}")
        shown += ["sizes=True"] if self.sizes else []
        shown += ["any_pose=True"] if self.any_pose else []
        return ", ".join([*shown, *[self.decision] * self.learn])


def _positive(distance: ScaledDistance) -> Tensor:
    """Return the scales before they are normalised."""
    values: Tensor = distance.raw_scales_constraint.transform(distance.raw_scales)
    return values


def _for_prior(distance: ScaledDistance) -> Tensor:
    """Return these scales with axes over which GPyTorch sums the prior, for any batch of models."""
    return _positive(distance)[None, None]


def _set_scales(distance: Any, values: Any) -> None:
    values = torch.as_tensor(values).to(distance.raw_scales).flatten()
    distance.initialize(raw_scales=distance.raw_scales_constraint.inverse_transform(values))


def _log_sizes(points: Tensor, weights: Tensor) -> Tensor:
    """Return the logarithms of effective sizes, ``C x 1``."""
    return effective_sizes(points, weights).log().unsqueeze(-1)


@torch.no_grad()
def coordinate_spread(block: Block, rows: Tensor) -> Tensor:
    """Compute the standard deviation of each coordinate in the average of distributions.

    Each counts once, regardless of its number of atoms. Offsets of coordinates do not matter.

    Args:
        block: The layout of the rows.
        rows: A ``batch_shape x N x width`` tensor.

    Returns:
        A tensor of length ``d``. It is exactly zero for coordinates that are constant up to rounding.

    Raises:
        ValueError: If a weight is negative or not finite, or all weights of a row are zero.
    """
    atoms, weights = block.split(rows)
    check_weights(weights)
    atoms, weights = atoms.flatten(0, -3), weights.flatten(0, -2)
    some, parts = atoms[0, weights[0].argmax()].clone(), []
    for chunk in chunks(weights, max(1, _ATOMS // weights.shape[-1]), by_atoms=True):
        points, shares = drop_padding(atoms[chunk], weights[chunk])
        shares = (shares / shares.sum(-1, keepdim=True)).unsqueeze(-1)
        parts.append((torch.where(shares > 0, points, some), shares))

    def average(of: Callable[[Tensor], Tensor]) -> Tensor:
        sums = [(shares * of(x)).sum((0, 1)) for x, shares in parts]
        return torch.stack(sums).sum(0) / len(weights)

    # Differences to some atom are exactly zero if a coordinate is constant.
    mean = average(lambda x: (x - some)[..., : block.dim])
    variance = average(lambda x: ((x - some)[..., : block.dim] - mean).square())
    if block.kind != "clouds":
        variance = variance + average(lambda x: x[..., block.dim :: block.dim + 1])
    largest = torch.stack([x[..., : block.dim].abs().amax((0, 1)) for x, _ in parts]).amax(0)
    spread, rounding = variance.sqrt(), 64 * torch.finfo(variance.dtype).eps * largest
    return torch.where(spread > rounding, spread, 0.0)
