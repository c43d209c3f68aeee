"""How much each block of inputs, and each coordinate of a block, matters to a fitted model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.fitting.starts import training_rows
from gp_distributions.fitting.thinning import thinned
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.arrays import integer
from gp_distributions.models import ClassificationGP, DistributionGP
from gp_distributions.models.exact_inference import ExactMultivariateNormal
from gp_distributions.numerics.cholesky import cholesky
from gp_distributions.numerics.conditionals import conditional_log_densities
from gp_distributions.numerics.partners import random_partners
from gp_distributions.rows.clouds import drop_copies
from gp_distributions.rows.columns import Columns, numbers_of
from gp_distributions.rows.layout import Block

if TYPE_CHECKING:
    import pandas as pd

Names = Sequence[str] | Mapping[str, Sequence[str]]

_FOLDS = 10
# Largest number of objects at which sensitivities are computed.
_MOST_OBJECTS = 100
_FORMAT = "{:<24} {:>8} {:>8} {:>12} {:>7}"


@dataclass(frozen=True)
class RelevanceEntry:
    """How much one block, or one coordinate or column of a block, matters.

    Attributes:
        block: Name of the block; ``"X"`` if the model has only one.
        coordinate: Name of the coordinate or column, or None for the whole block.
        loss: What the mean log density of left-out targets loses if the input is exchanged between
            objects at random, in nats for each target. It is about zero if the input does not matter.
        error: Standard error of ``loss``.
        sensitivity: Root mean square change of predictions, to first order, if a number changes by its
            standard deviation; or if the atoms of a cloud move along a coordinate by its standard
            deviation, in root mean square over atoms, and in the directions that change the prediction
            most. The unit is that of the targets; if there are several outputs, the standard deviation
            of each. NaN for whole blocks of several coordinates, categories, Gaussians and mixtures.
        scale: Scale of a :class:`ScaledDistance`; NaN if there is none.

    Example:
        >>> from gp_distributions import RelevanceEntry
        >>> RelevanceEntry("cells", "CD4", loss=1.2, error=0.1).name
        'cells: CD4'
    """

    block: str
    coordinate: str | None
    loss: float
    error: float
    sensitivity: float = math.nan
    scale: float = math.nan

    @property
    def name(self) -> str:
        """Name of the block, and of the coordinate if there is one."""
        return self.block if self.coordinate is None else f"{self.block}: {self.coordinate}"


@dataclass(frozen=True, repr=False)
class Relevance:
    """Result of :func:`relevance`: entries for blocks, each followed by those of its coordinates.

    Attributes:
        entries: The entries.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, fit, relevance
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(20, 5, 2)))
        >>> model = fit(DistributionGP(clouds, clouds.points[..., 0].mean(-1)))
        >>> [entry.name for entry in relevance(model).entries]
        ['X', 'X: 0', 'X: 1']
    """

    entries: tuple[RelevanceEntry, ...]

    @property
    def blocks(self) -> tuple[RelevanceEntry, ...]:
        """The entries of whole blocks."""
        return tuple(entry for entry in self.entries if entry.coordinate is None)

    @property
    def coordinates(self) -> tuple[RelevanceEntry, ...]:
        """The entries of coordinates and columns."""
        return tuple(entry for entry in self.entries if entry.coordinate is not None)

    def to_frame(self) -> pd.DataFrame:
        """Return the entries as a pandas data frame, with one row for each."""
        import pandas as pd

        columns = ("block", "coordinate", "loss", "error", "sensitivity", "scale")
        rows = [[getattr(entry, column) for column in columns] for entry in self.entries]
        names = [entry.name for entry in self.entries]
        return pd.DataFrame(rows, columns=list(columns), index=names)

    def __repr__(self) -> str:
        lines = [_FORMAT.format("Relevance", "loss", "error", "sensitivity", "scale")]
        for entry in self.entries:
            indented = entry.name if entry.coordinate is None else f"  {entry.coordinate}"
            numbers = (entry.loss, entry.error, entry.sensitivity, entry.scale)
            cells = ["" if math.isnan(value) else f"{value:.3g}" for value in numbers]
            lines.append(_FORMAT.format(indented, *cells).rstrip())
        return "\n".join(lines)


def relevance(
    model: DistributionGP,
    *,
    names: Names | None = None,
    repeats: int = 3,
    atoms: int = 256,
    seed: int = 0,
) -> Relevance:
    r"""Measure how much each block of inputs, and each coordinate of a block, matters.

    The training targets are predicted in cross-validation, at the hyperparameters of the model. One
    input is then exchanged: object :math:`i` gets the block, or the coordinate, of a random other object
    :math:`\pi(i)` of its fold. With :math:`D_{-i}` the data of the other folds, the relevance is the
    loss in log density,

    .. math::
        \frac{1}{T} \sum_i \log p(y_i \mid x_i, D_{-i}) - \log p(y_i \mid x_i^{\pi(i)}, D_{-i}).

    It has the same unit, nats for each target, for bags, numbers and categories. With several outputs,
    it is the mean over outputs. The values of a coordinate of a bag are exchanged as a whole: location,
    spread, shape, and dependence on the other coordinates. Coordinates that carry the same information
    can replace one another only as far as the model has learned that; each of them may show a loss.

    The sensitivity of a coordinate summarises the gradients :math:`g` of :func:`sensitivity`:
    :math:`\sqrt{\operatorname{mean}_i \sum_a g_{ia}^2 / w_{ia}}` times the standard deviation of the
    coordinate over all atoms, with :math:`w` the weights of the atoms. With several outputs, it is the
    root mean square over outputs of this value in standard deviations of the targets. The mean is over
    at most 100 random objects. If the model has an ``input_transform``, the coordinates are those after
    the transform, which the kernel reads; normalising them does not change the result.

    Args:
        model: A fitted model.
        names: Names of the coordinates, or such names by block if there are several blocks of
            distributions. Default: numbers from zero.
        repeats: Number of random exchanges over which losses are averaged.
        atoms: Largest number of atoms. To bound the time, predictions are made from random subsets of
            larger bags.
        seed: Random seed.

    Returns:
        The relevance of each block, and of each coordinate or column of a block. A block with a single
        column has one entry. Coordinates that rotate together, as in :class:`RigidSlicedWasserstein`,
        count as one.

    Raises:
        TypeError: If ``model`` is not a :class:`DistributionGP`, or is a classifier.
        ValueError: If ``repeats`` or ``atoms`` is less than one, there are fewer than four objects, the
            number of names is wrong, or they are not given by block although there are several.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, fit, relevance
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(20, 5, 2)))
        >>> model = fit(DistributionGP(clouds, clouds.points[..., 0].mean(-1)))
        >>> along, across = relevance(model, names=["along", "across"]).coordinates
        >>> along.loss > 1 > across.loss
        True

    Source: Breiman 2001, section 10 (permutation importance).
    """
    if not isinstance(model, DistributionGP) or isinstance(model, ClassificationGP):
        raise TypeError(f"Expected a DistributionGP for regression, got {type(model).__name__}.")
    repeats, atoms = integer(repeats, "repeats"), integer(atoms, "atoms")
    training = model.training
    model.train()
    try:
        with torch.no_grad():
            rows = drop_copies(training_rows(model).detach())
            if rows.dim() != 2 or len(rows) < 4:
                raise ValueError(f"Expected at least four objects, got rows {tuple(rows.shape)}.")
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
            folds = order.tensor_split(min(_FOLDS, len(rows) // 2))
            few = thinned(rows, model.covar_module, atoms, seed=seed)
            found = _Exchange(model, rows, few, folds)
            inputs = list(_inputs(model, names))
            losses = [found.losses(each, repeats, seed) for each in inputs]
        chosen = order[:_MOST_OBJECTS].sort().values.to(few.device)
        gradients = found.gradients(few[chosen])
        sensitivities = [_sensitivity(few, chosen, gradients, each) for each in inputs]
    finally:
        model.train(training)
    entries = [
        RelevanceEntry(
            each.block,
            each.coordinate,
            loss.mean().item(),
            loss.std().item() / math.sqrt(len(loss)),
            sensitivity,
            each.scale,
        )
        for each, loss, sensitivity in zip(inputs, losses, sensitivities, strict=True)
    ]
    return Relevance(tuple(entries))


@dataclass(frozen=True)
class _Input:
    """A block of a row, or some coordinates of it.

    Attributes:
        block: Name of the block.
        coordinate: Name of the coordinates, or None for the whole block.
        columns: Columns of the block.
        layout: Layout of a distribution, or None for a column of numbers or categories.
        axes: The coordinates, or None for the whole block.
        scale: Scale of the coordinates, or NaN.
        numeric: Whether the columns are numbers rather than categories.
    """

    block: str
    coordinate: str | None
    columns: Columns
    layout: Block | None = None
    axes: tuple[int, ...] | None = None
    scale: float = math.nan
    numeric: bool = True


def _inputs(model: DistributionGP, names: Names | None) -> Iterator[_Input]:
    """Yield the blocks that the kernel reads, and their coordinates."""
    kernels: dict[Block, list[torch.nn.Module]] = {}
    for kernel, block in distribution_kernels(model.covar_module):
        kernels.setdefault(block, []).append(kernel.distance)
    encoding = model.encoding
    if encoding is None:
        called = ["X"] if len(kernels) == 1 else [f"X{i}" for i in range(len(kernels))]
        given = _names_by_block(names, called)
        for name, (block, distances) in zip(called, kernels.items(), strict=True):
            yield from _of_distribution(name, block, distances, given.get(name))
        return
    given = _names_by_block(names, [n for n, b in encoding.blocks.items() if isinstance(b, Block)])
    for name, columns in encoding.columns.items():
        kept = encoding.blocks[name]
        if isinstance(kept, Block):
            block = Block(kept.kind, kept.dim, columns)
            yield from _of_distribution(name, block, kernels.get(block, []), given.get(name))
            continue
        numeric = [i in kept.numbers for i in range(len(kept.columns))]
        numbers = numbers_of(columns, 0) if isinstance(columns, tuple) else ()
        yield _Input(name, None, columns, numeric=all(numeric) and len(numeric) == 1)
        if len(numeric) > 1:
            for i, column in enumerate(kept.columns):
                yield _Input(name, column, (numbers[i],), numeric=numeric[i])


def _names_by_block(names: Names | None, blocks: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the given names of coordinates by block of distributions."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        unknown = sorted(names.keys() - set(blocks))
        if unknown:
            raise ValueError(
                f"Expected names of coordinates of the blocks {list(blocks)}, got block {unknown[0]!r}."
            )
        return names
    if len(blocks) > 1:
        raise ValueError(
            f"Expected names of coordinates by block, {{name: [...], ...}}, for the blocks "
            f"{list(blocks)}, got {names!r}."
        )
    return dict.fromkeys(blocks, names)


def _of_distribution(
    name: str, block: Block, distances: list[torch.nn.Module], given: Sequence[str] | None
) -> Iterator[_Input]:
    yield _Input(name, None, block.columns, block)
    if not all(getattr(distance, "reads_coordinates", False) for distance in distances):
        return
    called = list(map(str, range(block.dim))) if given is None else list(map(str, given))
    if len(called) != block.dim:
        raise ValueError(
            f"Expected {block.dim} names of coordinates of block {name!r}, got {len(called)}."
        )
    scaled = [distance for distance in distances if isinstance(distance, ScaledDistance)]
    scales = scaled[0].scales.tolist() if len(scaled) == 1 else [math.nan] * block.dim
    rotating = max((int(getattr(d, "num_rotating", 0)) for d in distances), default=0)
    if rotating:
        joined = ", ".join(called[:rotating])
        yield _Input(name, joined, block.columns, block, tuple(range(rotating)), scales[0])
    for axis in range(rotating, block.dim):
        if block.dim > 1:
            yield _Input(name, called[axis], block.columns, block, (axis,), scales[axis])


class _Exchange:
    """Predictions in cross-validation from inputs that are exchanged between objects of a fold.

    All rows are those that the kernel reads, after the input transform of the model.
    """

    def __init__(
        self, model: DistributionGP, train: Tensor, rows: Tensor, folds: Sequence[Tensor]
    ) -> None:
        self.model, self.train, self.rows, self.folds = model, train, rows, folds
        self.targets = model.train_targets
        self.errors = self.targets - model.mean_module(train)
        zeros = torch.zeros_like(self.targets)
        nothing = ExactMultivariateNormal(zeros, DiagLinearOperator(zeros))
        nothing.rows = train
        self.noise = model.likelihood(nothing).lazy_covariance_matrix.diagonal(dim1=-2, dim2=-1)
        noisy = covariance(model.covar_module, train) + torch.diag_embed(self.noise)
        kept = [
            torch.ones(len(train), dtype=torch.bool).index_fill(0, fold, False) for fold in folds
        ]
        self.kept = [each.to(train.device) for each in kept]
        self.factors = [cholesky(noisy[..., each, :][..., each]) for each in self.kept]
        self.solved = torch.cholesky_solve(self.errors.unsqueeze(-1), cholesky(noisy))
        self.before = self.densities(rows)

    def densities(self, rows: Tensor) -> Tensor:
        """Compute the log density of each target, given its row and the data of the other folds.

        Log densities are averaged over outputs.
        """
        model = self.model
        across = covariance(model.covar_module, self.train, rows)
        variances = covariance(model.covar_module, rows, diag=True)
        errors = self.targets - model.mean_module(rows)
        densities = torch.empty(len(rows), dtype=rows.dtype, device=rows.device)
        for fold, kept, factor in zip(self.folds, self.kept, self.factors, strict=True):
            found = conditional_log_densities(
                errors[..., fold],
                across[..., kept, :][..., fold],
                variances[..., fold],
                self.noise[..., fold],
                given=self.errors[..., kept],
                factor=factor,
            )
            densities[fold] = found.reshape(-1, len(fold)).mean(0)
        return densities

    def gradients(self, rows: Tensor) -> Tensor:
        """Differentiate the predictions of all data with respect to rows, ``outputs x N x width``.

        The unit of predictions is that of the targets; if there are several outputs, the standard
        deviation of each.
        """
        model = self.model
        transform = getattr(model, "outcome_transform", None)

        def in_units(values: Tensor) -> Tensor:
            values = values.reshape(-1, values.shape[-1])
            return values if transform is None else transform.untransform(values.mT)[0].mT

        with torch.enable_grad():
            rows = rows.clone().requires_grad_()
            across = covariance(model.covar_module, rows, self.train)
            means = in_units(model.mean_module(rows) + (across @ self.solved).squeeze(-1))
            # Distances between objects that are only numbered do not depend on their rows.
            options: Any = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
            found = [torch.autograd.grad(m.sum(), rows, **options)[0] for m in means]
        gradients = torch.stack(found)
        if len(gradients) == 1:
            return gradients
        units = in_units(self.targets).std(-1)
        return gradients / torch.where(units > 0, units, 1.0)[:, None, None]

    def losses(self, each: _Input, repeats: int, seed: int) -> Tensor:
        """Compute the loss in log density of each target, averaged over random exchanges."""
        generator = torch.Generator().manual_seed(seed)
        total = torch.zeros_like(self.before)
        for _ in range(repeats):
            giver = torch.empty(len(self.rows), dtype=torch.long)
            for fold in self.folds:  # a random cycle: no object keeps its own input
                order = fold[torch.randperm(len(fold), generator=generator)]
                giver[order] = order.roll(1)
            exchanged = _exchanged(self.rows, each, giver.to(self.rows.device), generator)
            total += self.before - self.densities(exchanged)
        return total / repeats


def _exchanged(rows: Tensor, each: _Input, giver: Tensor, generator: torch.Generator) -> Tensor:
    """Give each row the input of another row."""
    numbers = torch.tensor(numbers_of(each.columns, rows.shape[-1]), device=rows.device)
    new = rows.clone()
    if each.layout is None or each.axes is None:
        new[:, numbers] = rows[giver][:, numbers]
        return new
    layout = Block(each.layout.kind, each.layout.dim)
    atoms, weights = layout.split(rows[:, numbers])
    chosen = random_partners(weights, weights[giver], generator)
    given = atoms[giver].gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, atoms.shape[-1]))
    changed = atoms.clone()
    axes = list(each.axes)
    changed[..., axes] = given[..., axes]
    if layout.atom_dim > layout.dim:  # covariances: these coordinates become independent of others
        shape = (layout.dim, layout.dim)
        own, other = (x[..., layout.dim :].unflatten(-1, shape) for x in (changed, given))
        inside = torch.zeros(layout.dim, dtype=torch.bool, device=rows.device)
        inside[axes] = True
        both, neither = inside[:, None] & inside, ~inside[:, None] & ~inside
        mixed = torch.where(both, other, torch.where(neither, own, 0))
        changed = torch.cat([changed[..., : layout.dim], mixed.flatten(-2)], dim=-1)
    if layout.atom_columns is not None:
        changed = torch.cat([changed, weights.unsqueeze(-1)], dim=-1)
    new[:, numbers] = changed.flatten(-2)
    return new


def _sensitivity(few: Tensor, chosen: Tensor, gradients: Tensor, each: _Input) -> float:
    """Compute the root mean square change of predictions for a step of one standard deviation.

    Args:
        few: The rows of all objects.
        chosen: Indices of some objects.
        gradients: Gradients of predictions with respect to their rows.
        each: An input.
    """
    whole = each.layout is not None and each.axes is None and each.layout.dim > 1
    if whole or not each.numeric or (each.layout is None and len(numbers_of(each.columns, 0)) > 1):
        return math.nan
    columns = torch.tensor(numbers_of(each.columns, few.shape[-1]), device=few.device)
    gradients, values = gradients[..., columns], few[:, columns]
    if each.layout is None:
        return gradients.square().mean().sqrt().item() * values.std(correction=0).item()
    layout = Block(each.layout.kind, each.layout.dim)
    if layout.kind != "clouds":
        return math.nan
    points, weights = layout.split(values)
    weights = weights / weights.sum(-1, keepdim=True)
    axes = list(each.axes or (0,))
    slopes = layout.split(gradients)[0][..., axes]
    own = weights[chosen]
    squares = (slopes.square().sum(-1) / own.clamp_min(1e-300)).masked_fill(own == 0, 0)
    pooled = (weights / len(weights)).unsqueeze(-1)
    centred = points[..., axes] - (pooled * points[..., axes]).sum((0, 1))
    spread = (pooled * centred.square()).sum((0, 1)).mean().sqrt()
    return (squares.sum(-1).mean().sqrt() * spread).item()
