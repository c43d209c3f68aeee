"""Relevance: what predictions lose if an input is exchanged between objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.fitting.starts import noise_of, training_rows
from gp_distributions.fitting.thinning import thinned
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.arrays import described, integer
from gp_distributions.metrics.relevance_inputs import Input, Names, inputs_of
from gp_distributions.metrics.relevance_results import Relevance, RelevanceEntry
from gp_distributions.metrics.sensitivities import gradients_at
from gp_distributions.models import ClassificationGP, DistributionGP, SparseDistributionGP
from gp_distributions.models.exact_inference import Conditioned
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.numerics.sampling import random_partners
from gp_distributions.rows.clouds import drop_copies

_FOLDS = 10
# Largest number of objects at which sensitivities are computed.
_MOST_OBJECTS = 100


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
    it is the mean over outputs; of a classifier, :math:`p` is the probability of the label. The values
    of a coordinate of a bag are exchanged as a whole: location, spread, shape, and dependence on the
    other coordinates. Coordinates that carry the same information can replace one another only as far as
    the model has learned that; each of them may show a loss.

    The sensitivity of a coordinate summarises the gradients :math:`g` of :func:`sensitivity`:
    :math:`\sqrt{\operatorname{mean}_i \sum_a g_{ia}^2 / w_{ia}}` times the standard deviation of the
    coordinate over all atoms, with :math:`w` the weights of the atoms. With several outputs, it is the
    root mean square over outputs of this value in standard deviations of the targets. Predictions of a
    classifier are logarithms of odds: of the second of two classes, or of each class beside the mean of
    all. The mean is over at most 100 random objects. If the model has an ``input_transform``, the
    coordinates are those after the transform, which the kernel reads; normalising them does not change
    the result.

    Args:
        model: A fitted model. Of one with several members, all numbers are weighted means over them.
        names: Names of the coordinates, or such names by block if there are several blocks of
            distributions. Default: those of the training clouds, or ``"coordinate 0"`` and so on.
        repeats: Number of random exchanges over which losses are averaged.
        atoms: Largest number of atoms. To bound the time, predictions are made from random subsets of
            larger bags.
        seed: Random seed.

    Returns:
        The relevance of each block, and of each coordinate or column of a block. A block with a single
        column has one entry. Coordinates that rotate together, as in :class:`RigidSlicedWasserstein`,
        count as one.

    Raises:
        TypeError: If ``model`` is not a :class:`DistributionGP`.
        ValueError: If ``repeats`` or ``atoms`` is less than one, there are fewer than four objects, the
            number of names is wrong, or they are not given by block although there are several.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, fit, relevance
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(9, 5, 2)))
        >>> model = fit(DistributionGP(clouds, clouds.points[..., 0].mean(-1)))
        >>> along, across = relevance(model, names=["along", "across"]).coordinates
        >>> along.loss > 1 > across.loss
        True

    Source: Breiman 2001, section 10 (permutation importance).
    """
    if not isinstance(model, DistributionGP):
        raise TypeError(
            f"Expected a DistributionGP or a ClassificationGP, got {described(model)}. Pass the model "
            "of an estimator, estimator.model_."
        )
    repeats, atoms = integer(repeats, "repeats"), integer(atoms, "atoms")
    training = model.training
    model.eval()  # never training mode, in which other threads would predict from the prior
    try:
        each = _entries_of(model.members, names, repeats, atoms, seed)
    finally:
        model.train(training)
    weights = model.weights.tolist()
    return Relevance(tuple(_averaged(found, weights) for found in zip(*each, strict=True)))


def _entries_of(
    members: Sequence[DistributionGP], names: Names | None, repeats: int, atoms: int, seed: int
) -> list[list[RelevanceEntry]]:
    """Return the entries of each member, models of one kernel that share the representation of rows."""
    first = members[0]
    with torch.no_grad():
        rows = drop_copies(training_rows(first).detach())
        if rows.dim() != 2 or len(rows) < 4:
            raise ValueError(f"Expected at least four objects, got rows {tuple(rows.shape)}.")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        folds = order.tensor_split(min(_FOLDS, len(rows) // 2))
        few = thinned(rows, first.covar_module, atoms, seed=seed)
        held = EmbeddedRows(rows), EmbeddedRows(few)
        exchanges = [_Exchange(member, *held, folds) for member in members]
        inputs = list(inputs_of(first, names))
        losses = [_losses(exchanges, few, each, folds, repeats, seed) for each in inputs]
    chosen = order[:_MOST_OBJECTS].sort().values.to(few.device)
    moving = EmbeddedRows(few[chosen].requires_grad_())
    found: list[list[RelevanceEntry]] = []
    for number, exchange in enumerate(exchanges):
        gradients = exchange.gradients(moving)
        steps = [sensitivity_to(each, few, chosen, gradients) for each in inputs]
        if isinstance(first, ClassificationGP) and first.num_outputs > 2:
            steps = [(size, math.nan) for size, _ in steps]  # no class is the positive one
        entries = [
            RelevanceEntry(
                each.block,
                each.coordinate,
                loss[number].mean().item(),
                loss[number].std().item() / math.sqrt(len(rows)),
                *step,
                each.scale,
            )
            for each, loss, step in zip(inputs, losses, steps, strict=True)
        ]
        found.append(entries)
    return found


def _losses(
    exchanges: Sequence[_Exchange],
    rows: Tensor,
    each: Input,
    folds: Sequence[Tensor],
    repeats: int,
    seed: int,
) -> Tensor:
    """Return the loss in log density of each target, averaged over random exchanges, ``K x N``."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(len(exchanges), len(rows), dtype=rows.dtype, device=rows.device)
    for _ in range(repeats):
        giver = torch.empty(len(rows), dtype=torch.long)
        for fold in folds:  # a random cycle: no object keeps its own input
            order = fold[torch.randperm(len(fold), generator=generator)]
            giver[order] = order.roll(1)
        exchanged = EmbeddedRows(_exchanged(rows, each, giver.to(rows.device), generator))
        for sums, exchange in zip(total, exchanges, strict=True):
            sums += exchange.before - exchange.densities(exchanged)
    return total / repeats


def _averaged(entries: Sequence[RelevanceEntry], weights: Sequence[float]) -> RelevanceEntry:
    """Return the entry of an input whose numbers are weighted means over members."""
    numbers = ("loss", "error", "sensitivity", "direction")
    pairs = list(zip(weights, entries, strict=True))
    means = {n: sum(weight * getattr(entry, n) for weight, entry in pairs) for n in numbers}
    return replace(entries[0], **means)


class _Exchange:
    """Predictions in cross-validation from inputs that are exchanged between objects of a fold.

    All rows are those that the kernel reads, after the input transform of the model.
    """

    def __init__(
        self,
        model: DistributionGP,
        train: EmbeddedRows,
        rows: EmbeddedRows,
        folds: Sequence[Tensor],
    ) -> None:
        self.model, self.train, self.folds = model, train, folds
        errors, level = model.train_targets - model.mean_module(train.rows), model.integrates_level
        self.noise = noise_of(model, train)
        noisy = covariance(model.covar_module, train) + torch.diag_embed(self.noise)
        every = torch.arange(errors.shape[-1])
        self.kept = [~torch.isin(every, fold).to(errors.device) for fold in folds]
        self.given = [
            Conditioned(cholesky(noisy[..., k, :][..., k]), errors[..., k], level=level)
            for k in self.kept
        ]
        self.solved = Conditioned(cholesky(noisy), errors, level=level).mean_cache.unsqueeze(-1)
        self.before = self.densities(rows)

    def densities(self, rows: EmbeddedRows) -> Tensor:
        """Compute the log density of each target, given its row and the data of the other folds."""
        model = self.model
        across = covariance(model.covar_module, self.train, rows)
        variances = covariance(model.covar_module, rows, diag=True)
        means = model.mean_module(rows.rows)
        densities = rows.rows.new_empty(rows.rows.shape[-2])
        for fold, kept, given in zip(self.folds, self.kept, self.given, strict=True):
            fitted, explained = given.marginals(across[..., kept, :][..., fold].mT)
            densities[fold] = model.log_densities(
                model.columns(means[..., fold] + fitted),
                model.columns((variances[..., fold] - explained).clamp_min(0)),
                model.columns(self.noise[..., fold]),
                fold,
            )
        return densities

    def gradients(self, rows: EmbeddedRows) -> Tensor:
        """Differentiate the predictions of all data with respect to rows, ``outputs x N x width``.

        The unit of predictions is that of the targets; if there are several outputs, the standard
        deviation of each; and nats of log odds for labels.
        """
        model = self.model
        transform = model._outcome_transform

        def in_units(values: Tensor) -> Tensor:
            values = values.reshape(-1, values.shape[-1])
            return values if transform is None else transform.untransform(values.mT)[0].mT

        with torch.enable_grad():
            across = covariance(model.covar_module, rows, self.train)
            means = in_units(model.mean_module(rows.rows) + (across @ self.solved).squeeze(-1))
            # Distances between objects that are only numbered do not depend on their rows.
            options: Any = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
            found = [torch.autograd.grad(m.sum(), rows.rows, **options)[0] for m in means]
        gradients = torch.stack(found)
        if isinstance(model, ClassificationGP):
            beside_mean = gradients - gradients.mean(0)
            odds = beside_mean if len(gradients) > 2 else 2 * beside_mean[1:]
            return odds / model.temperature
        if len(gradients) == 1:
            return gradients
        units = in_units(model.train_targets).std(-1)
        return gradients / torch.where(units > 0, units, 1.0)[:, None, None]


def _exchanged(rows: Tensor, each: Input, giver: Tensor, generator: torch.Generator) -> Tensor:
    """Give each row the input of another row."""
    new, numbers, layout = rows.clone(), each.numbers(rows), each.layout
    if layout is None or each.axes is None:
        new[:, numbers] = rows[giver][:, numbers]
        return new
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
    new[:, numbers] = layout.join(changed, weights)
    return new


def sensitivities(
    model: DistributionGP | SparseDistributionGP, rows: Tensor, units: Tensor, names: Names | None
) -> Relevance:
    """Compute sensitivities in place of losses, for models whose relevance cannot be computed.

    Args:
        model: A fitted model.
        rows: The rows of objects, ``N x width``, of which at most 100 are looked at.
        units: The unit of each output.
        names: Names of coordinates, as for :func:`relevance`.

    Returns:
        Entries whose ``loss`` is the sensitivity; none if the model transforms its inputs.
    """
    if model._input_transform is not None:
        return Relevance(())
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    chosen = order[:_MOST_OBJECTS].sort().values.to(rows.device)
    gradients = gradients_at(model, rows[chosen])[0] / units.to(rows)[:, None, None]
    found = [(e, sensitivity_to(e, rows, chosen, gradients)[0]) for e in inputs_of(model, names)]
    return Relevance(tuple(RelevanceEntry(e.block, e.coordinate, s, 0.0) for e, s in found))


def sensitivity_to(
    each: Input, rows: Tensor, chosen: Tensor, gradients: Tensor
) -> tuple[float, float]:
    r"""Compute the change of predictions for a step of one standard deviation.

    With the gradients :math:`g` at atoms of weights :math:`w`, the root mean square change is
    :math:`\sqrt{\operatorname{mean}_i \sum_a g_{ia}^2 / w_{ia}}`, and the mean change if all atoms move
    alike :math:`\operatorname{mean}_i \sum_a g_{ia}`, times the standard deviation of the coordinate
    over all atoms.

    Args:
        each: An input.
        rows: The rows of all objects, ``N x width``, to which the standard deviation refers.
        chosen: Indices of some objects.
        gradients: Gradients of predictions at the chosen rows, ``outputs x chosen x width``.

    Returns:
        Both changes; NaN for whole blocks of several coordinates, categories, Gaussians and mixtures,
        and the mean change of coordinates that rotate together.
    """
    if not each.is_continuous:
        return math.nan, math.nan
    columns, layout = each.numbers(rows), each.layout
    gradients, values = gradients[..., columns], rows[:, columns]
    if layout is None:
        step = values.std(correction=0).item()
        return gradients.square().mean().sqrt().item() * step, gradients.mean().item() * step
    points, weights = layout.split(values)
    weights = weights / weights.sum(-1, keepdim=True)
    axes = list(each.axes or (0,))
    slopes = layout.split(gradients)[0][..., axes]
    own = weights[chosen]
    squares = (slopes.square().sum(-1) / own.clamp_min(1e-300)).masked_fill(own == 0, 0)
    pooled = (weights / len(weights)).unsqueeze(-1)
    centred = points[..., axes] - (pooled * points[..., axes]).sum((0, 1))
    spread = (pooled * centred.square()).sum((0, 1)).mean().sqrt()
    mean = slopes.sum((-2, -1)).mean() * spread if len(axes) == 1 else math.nan
    return (squares.sum(-1).mean().sqrt() * spread).item(), float(mean)
