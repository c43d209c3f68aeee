"""Scales of coordinates, learned by marginal likelihood and guarded by cross-validation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.kernels import Kernel
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from linear_operator.operators import AddedDiagLinearOperator, DiagLinearOperator
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.distributions import Normal

from gp_distributions.distances.base import Distance, DistanceWrapper
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.fitting.ascent import stays_at_start
from gp_distributions.fitting.lbfgs import LOOSE, Pair, minimise
from gp_distributions.fitting.starts import make_smooth, noise_of, training_rows
from gp_distributions.fitting.thinning import thinned, thinned_along
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.reading import default_distances, with_distances
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.exact_inference import Conditioned, ExactMultivariateNormal
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.numerics.predictions import expected_softmax, log_probabilities
from gp_distributions.rows.clouds import drop_copies, random_order

# Values of all parameters, by name.
Values: TypeAlias = dict[str, Tensor]

# Scales are learned from at most so many bags, or labels, which tell less than numbers.
_BAGS, _LABELS = 256, 512
_FOLDS = 5
# Number of quantiles of a coordinate that stand for it where it counts alone.
_LEVELS = 32
# Largest number of L-BFGS steps with sums over coordinates: from each start, and from the best for a
# fold; with scales; and with the other hyperparameters alone.
_SCREENING, _FOLD, _STEPS, _OTHERS = 10, 4, 2, 5
# Number of coordinates that are emphasised in a start, and by which power of e.
_STARTS, _EMPHASIS = 2, 1.5
# The last start has shorter lengthscales by this factor, and must gain so many nats for each target.
_ROUGHER, _CLEARLY = 10.0, 0.15
# Smallest gain in log density for each target for which scales are changed.
_LEAST = 0.01
# The logarithms of scales stay within the first distance of zero, and those of other parameters within
# the second: the lengthscale of a category that does not matter would otherwise overflow.
_FARTHEST, _LARGEST = 7.0, 30.0
# A model without a kernel learns the scales of at most so many coordinates, from at least so many bags,
# or labels.
_COORDINATES, _FEWEST, _FEWEST_LABELS = 50, 100, 200
# Logarithm of a scale at which a coordinate does not count.
_NOTHING = -30.0
# Labels whose probability is too small for a number count as the smallest.
_TINY = 1e-30


def learned_scales(model: ExactGP) -> list[ScaledDistance]:
    """Return the distances of a model whose scales require a gradient."""
    return [
        module
        for module in model.modules()
        if isinstance(module, ScaledDistance) and module.raw_scales.requires_grad
    ]


@contextmanager
def fixed_scales(distances: list[ScaledDistance]) -> Iterator[None]:
    """Fix the scales of distances within a ``with`` block, and let them be learned again after it."""
    for distance in distances:
        distance.raw_scales.requires_grad_(False)
    try:
        yield
    finally:
        for distance in distances:
            distance.raw_scales.requires_grad_(True)


def learn_scales(
    model: ExactGP,
    distances: list[ScaledDistance],
    *,
    atoms: int = 128,
    errors: float = 1.0,
    rougher: bool = True,
    seed: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> bool:
    r"""Learn the scales of coordinates of a fitted model, in place.

    The scales and all hyperparameters maximise the marginal likelihood jointly, by L-BFGS. It has many
    maxima, of which the nearest to equal scales is often poor, and its gradient takes an evaluation
    of all clouds. Scales are therefore learned with a stand-in,

    .. math:: d_s^2(P, P') \approx \sum_j s_j^2\, d_j^2(P, P'),

    where :math:`d_j` is the distance if only coordinate :math:`j` counts: from the scales of the model,
    from scales that emphasise one of the 2 coordinates which explain most when they are emphasised, and
    from the best of these with shorter lengthscales.
    In a model of bags alone, 32 of its quantiles in each bag represent a coordinate there. Two steps
    with the distance itself follow from the best.

    Without a guard, learned scales can overfit. Therefore they are also learned once for each of 5 folds
    without its targets, with the stand-in and from what is best on all bags. The scales of the
    model change only if the held-out targets are more likely, given the distance itself, with learned
    scales than without: if the mean gain in log density, or in log probability of labels, exceeds 0.01
    and ``errors`` of its standard errors. The ``decision`` of each distance says so.

    At most 256 random bags are used, or 512 if they have labels. :func:`fit` then fits the other
    hyperparameters again, to all data with the new scales.

    Args:
        model: A fitted model.
        distances: Distances of the model whose scales are learned.
        atoms: Number of random atoms of each bag.
        errors: Number of standard errors that the gain must exceed.
        rougher: Whether starts that emphasise a coordinate have shorter lengthscales, too. A model of
            all coordinates may be nearly linear, and one of few is not found from there.
        seed: Random seed for the bags, atoms and folds.
        tick: Function that is called at each evaluation of the marginal likelihood.

    Returns:
        Whether the scales have changed. They stay as they are if there are fewer than 10 bags, of which
        a fold would hold only one.
    """
    most = _LABELS if isinstance(model, ClassificationGP) else _BAGS
    bags = random_order(training_rows(model), seed=seed)[:most]
    if len(bags) < 2 * _FOLDS:
        for distance in distances:
            distance.decision = f"scales kept as they were: fewer than {2 * _FOLDS} bags"
        return False
    fold = torch.arange(len(bags), device=model.train_targets.device) % _FOLDS
    ascent = _Ascent(model, distances, bags, atoms, seed, tick)
    everything = torch.ones_like(fold, dtype=torch.bool)
    best, pairs = ascent.screen(everything, rougher=rougher)
    others = [fold != number for number in range(_FOLDS)]
    gains = torch.zeros(len(bags), dtype=torch.float64)
    before: list[Pair] = []
    for kept in others:  # in a row, so that distances at these scales are computed once
        densities, before = ascent.held_out(ascent.start, kept, before)
        gains[~kept.cpu()] = -densities
    after: list[Pair] = []
    for kept in others:
        learned, _ = ascent.learn(best, kept, _FOLD, pairs)
        densities, after = ascent.held_out(learned, kept, after)
        gains[~kept.cpu()] += densities
    gain, error = gains.mean().item(), gains.std().item() / math.sqrt(len(gains))
    changed = gain > max(errors * error, _LEAST)
    for distance in distances:
        distance.decision = (
            f"scales {'learned' if changed else 'kept as they were'}: for held-out targets, learned "
            f"scales gain {gain:.2g} nats of log density each, with the standard error {error:.1g}"
        )
    if changed:
        ascent.climb(best, everything, _STEPS, pairs)
        model.load_state_dict(ascent.model.state_dict())
    return changed


def choose_scales(
    model: DistributionGP, *, seed: int = 0, tick: Callable[[], object] = lambda: None
) -> bool:
    """Choose the scales of the coordinates of the isotropic default, in place, by :func:`learn_scales`.

    Nobody asked for them, so the gain must exceed two standard errors. Scales learned from fewer than
    100 bags, or 200 labels, would make intervals too short.

    Args:
        model: A fitted model in training mode, whose kernel is the default one. The scales of shapes,
            whose axes compare, stay, and so do those of more than 50 coordinates of a block.
        seed: Random seed, as for :func:`learn_scales`.
        tick: Function that is called at each evaluation of the marginal likelihood.

    Returns:
        Whether the scales have changed, so that the other hyperparameters must be fitted again.
    """
    learned = {each: each.learning() for each in distances_to_scale(model)}
    if not learned:
        return False
    other = model.with_kernel(with_distances(model.covar_module, learned)).train()
    # From rougher starts, the default predicts alike: R^2 .894 in place of .893 for 3 markers among 12.
    how: dict[str, Any] = {"errors": 2.0, "rougher": False, "seed": seed, "tick": tick}
    if not learn_scales(other, [*learned.values()], **how):
        return False
    with torch.no_grad():
        for distance, other_distance in learned.items():
            distance.raw_scales.copy_(other_distance.raw_scales)
    return True


def distances_to_scale(model: DistributionGP) -> list[ScaledDistance]:
    """Return the distances of a default kernel whose scales :func:`choose_scales` chooses."""
    least = _FEWEST_LABELS if isinstance(model, ClassificationGP) else _FEWEST
    if stays_at_start(model) or model.train_targets.shape[-1] < least:
        return []
    return [
        distance
        for distance in default_distances(model.covar_module)
        if 1 < distance.dim <= _COORDINATES and not distance.geometric
    ]


class AdditiveDistance(DistanceWrapper):
    r"""A stand-in for the distance between scaled clouds: a sum over their coordinates.

    Let :math:`d_j` be a distance if only coordinate :math:`j` counts, with scale one. With scales
    :math:`s` the stand-in is

    .. math:: d_s^2(P, P') \approx \sum_j s_j^2\, d_j^2(P, P'),

    where coordinates that share a scale are one term. It is Hilbertian, too. The distances :math:`d_j`
    within a set of clouds are computed once, so that scales can be tried out in the time of a sum of
    matrices.

    Args:
        distance: The distance, with which it shares its scales. Its scales and the directions of its
            slices change while :math:`d_j` are computed.
    """

    distance: ScaledDistance

    def __init__(self, distance: ScaledDistance) -> None:
        super().__init__(distance)
        self._terms: dict[tuple[EmbeddedRows, EmbeddedRows], Tensor] = {}

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent clouds as the distance does."""
        return self.distance.represent(points, weights)

    def forward(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Return the squared distances of clouds that hold what was computed; others are exact."""
        x2 = x1 if x2 is None else x2
        if diag or not (isinstance(x1, EmbeddedRows) and isinstance(x2, EmbeddedRows)):
            return self.distance(x1, x2, diag=diag)
        if (x1, x2) not in self._terms:
            rows, others = (drop_copies(each.rows) for each in (x1, x2))
            self._terms[x1, x2] = self._computed(rows, rows if x1 is x2 else others)
        terms = self._terms[x1, x2]
        squares = self.distance.scales[-len(terms) :].square()
        squared = torch.tensordot(squares, terms, dims=1)
        return squared.expand(*x1.rows.shape[:-1], -1)

    @torch.no_grad()
    def _computed(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the squared distances of each coordinate alone, for scale one."""
        raw, block = self.distance.raw_scales, self.block
        base: Distance = self.distance
        alone = len(raw) == block.dim and block.columns is None and block.kind == "clouds"
        while isinstance(base, DistanceWrapper):
            base = base.inner
        sliced = base if isinstance(base, SlicedWasserstein) and base.levels is None else None
        before, terms = raw.clone(), []
        for j in range(len(raw)):
            raw.fill_(_NOTHING)
            raw[j] = 0.0
            few, far = (
                thinned_along(each, block.dim, j, _LEVELS) if alone else each
                for each in (rows, others)
            )
            if sliced is not None:  # all slices of one coordinate are alike
                slices, sliced.directions = sliced.directions, sliced.along(j)
            found = self.distance(few) if others is rows else self.distance(few, far)
            terms.append(found / self.distance.scales[j - len(raw)].square())
            if sliced is not None:
                sliced.directions = slices
        raw.copy_(before)
        return torch.stack(terms)


def _logarithms(model: ExactGP) -> dict[str, Tensor]:
    """Return the parameters that are logarithms of what they stand for, except scales."""
    far = torch.tensor(1e3, dtype=torch.float64)
    return {
        name: parameter
        for name, parameter, constraint in model.named_parameters_and_constraints()
        if constraint is not None
        and not name.endswith("raw_scales")
        and bool(constraint.transform(far.to(parameter)).isinf())
    }


class _Ascent:
    """Joint maximisation of the marginal likelihood of some bags over scales and hyperparameters."""

    def __init__(
        self,
        model: ExactGP,
        distances: list[ScaledDistance],
        bags: Tensor,
        atoms: int,
        seed: int,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self.tick = tick
        data = (*model.train_inputs, model.train_targets)
        self.model = copy.deepcopy(model, {id(tensor): tensor for tensor in data})
        places = {module: name for name, module in model.named_modules()}
        self.distances = [self.model.get_submodule(places[d]) for d in distances]
        for distance in self.distances:  # which a fit holds fixed meanwhile
            distance.raw_scales.requires_grad_(True)
        self.logarithms = _logarithms(self.model)
        with torch.no_grad():
            for parameter in self.logarithms.values():
                parameter.clamp_(-_LARGEST, _LARGEST)
        self.start = self._values()
        # The kernel of the model, and one with sums over coordinates for distances, and its parameters.
        self.kernel = self.model.covar_module
        additive = {distance: AdditiveDistance(distance) for distance in self.distances}
        self.additive = with_distances(self.kernel, additive, parameters=self.model.parameters())
        self.bags = bags.to(model.train_targets.device)
        self.targets = model.train_targets[..., self.bags]
        with torch.no_grad():
            every = drop_copies(training_rows(model).detach())
            some = every.index_select(-2, self.bags)
            self.all_rows = EmbeddedRows(every)
            self.rows = EmbeddedRows(thinned(some, model.covar_module, atoms, seed=seed))

    def _values(self) -> Values:
        return copy.deepcopy(self.model.state_dict())

    def screen(self, kept: Tensor, *, rougher: bool) -> tuple[Values, list[Pair]]:
        """Find the best result of :meth:`learn` from several starts.

        The marginal likelihood of scales has many maxima. Starts are where the model is, and scales that
        emphasise the coordinates which explain most when each is emphasised alone. While all coordinates
        count, functions seem smooth; once few do, a start at a shorter lengthscale may end far higher.
        """

        def loss_of(values: Values) -> float:
            self.model.load_state_dict(values)
            try:
                with torch.no_grad():
                    return self._loss(kept, self.additive).nan_to_num(math.inf).item()
            except (NanError, NotPSDError):
                return math.inf

        starts = []
        for distance in self.distances:
            for j in range(len(distance.raw_scales)):
                self.model.load_state_dict(self.start)
                with torch.no_grad():
                    distance.raw_scales -= _EMPHASIS
                    distance.raw_scales[j] += _EMPHASIS
                    if rougher:
                        make_smooth(self.model, 1 / _ROUGHER)
                starts.append(self._values())
        starts = [self.start, *sorted(starts, key=loss_of)[:_STARTS]]
        found = [self.learn(start, kept, _SCREENING) for start in starts]
        best = min(found, key=lambda each: loss_of(each[0]))
        self.model.load_state_dict(best[0])
        with torch.no_grad():
            make_smooth(self.model, 1 / _ROUGHER)
        last = self.learn(self._values(), kept, _SCREENING)
        return last if loss_of(last[0]) < loss_of(best[0]) - _CLEARLY else best

    def learn(
        self, start: Values, kept: Tensor, steps: int, pairs: Sequence[Pair] = ()
    ) -> tuple[Values, list[Pair]]:
        """Fit scales and hyperparameters to the bags ``kept``, as :meth:`climb`, with sums as distances.

        Returns:
            The values, and an estimate of the curvature there.
        """
        pairs = self.climb(start, kept, steps, pairs, self.additive)
        return self._values(), pairs

    def held_out(
        self, values: Values, kept: Tensor, pairs: Sequence[Pair]
    ) -> tuple[Tensor, list[Pair]]:
        """Compute the log densities of the targets of other bags, given those of the bags ``kept``.

        Scales are those in ``values``, to which the other hyperparameters are fitted. Densities are
        means over the outputs; those of labels are log probabilities.

        Args:
            values: Values at the start.
            kept: Which of the bags are given.
            pairs: Estimate of the curvature in the other hyperparameters at the start.

        Returns:
            The densities, and an estimate of the curvature.
        """
        with fixed_scales(self.distances):
            found = self.climb(values, kept, _OTHERS, pairs)
        with torch.no_grad():
            errors, covariances, noise = self._prior(self.kernel)
            noisy = covariances[..., kept, :][..., kept] + torch.diag_embed(noise[..., kept])
            level = getattr(self.model, "integrates_level", False)
            given = Conditioned(cholesky(noisy), errors[..., kept], level=level)
            fitted, explained = given.marginals(covariances[..., ~kept, :][..., kept])
            variance = (torch.linalg.diagonal(covariances)[..., ~kept] - explained).clamp_min(0)
            errors = errors[..., ~kept] - fitted
            if isinstance(self.model, ClassificationGP):
                labels = self.model.likelihood.labels[self.bags[~kept]]
                latent = (self.targets[..., ~kept] - errors).mT
                chances = expected_softmax(latent, variance.sqrt().mT).clamp_min(_TINY)
                densities = log_probabilities(chances, labels, [1.0]).mT
            else:
                # A fold may fail: a gain that is NaN keeps the scales.
                deviation = (variance + noise[..., ~kept]).sqrt()
                densities = Normal(0.0, deviation, validate_args=False).log_prob(errors)
            return densities.reshape(-1, densities.shape[-1]).mean(0).double().cpu(), found

    def climb(
        self,
        values: Values,
        kept: Tensor,
        steps: int,
        pairs: Sequence[Pair] = (),
        kernel: Kernel | None = None,
    ) -> list[Pair]:
        """Fit scales and hyperparameters to the bags ``kept``, and return the curvature there.

        Args:
            values: Values at the start.
            kept: Which of the bags count.
            steps: Largest number of steps.
            pairs: Estimate of the curvature at the start.
            kernel: The kernel, or that with sums over coordinates. Default: the kernel.
        """
        kernel = self.kernel if kernel is None else kernel
        self.model.load_state_dict(values)
        parameters, bounds = get_parameters_and_bounds(self.model, requires_grad=True)
        boxes = dict.fromkeys(self.logarithms, (-_LARGEST, _LARGEST))
        scales = {distance.raw_scales for distance in self.distances}
        for name, logs in parameters.items():
            if logs in scales:  # whose current values satisfy the bounds
                boxes[name] = min(-_FARTHEST, logs.min().item()), max(_FARTHEST, logs.max().item())
        try:
            return minimise(
                lambda: self._loss(kept, kernel),
                parameters,
                bounds | boxes,
                pairs=pairs,
                maxiter=steps,
                **LOOSE,
            ).pairs
        except (NanError, NotPSDError):
            return []  # the start stays

    def _loss(self, kept: Tensor, kernel: Kernel) -> Tensor:
        """Compute the negative log marginal likelihood of some bags, with priors, for each target."""
        self.tick()
        # Gradients of a selection by numbers are faster than those by a mask.
        index = kept.nonzero().squeeze(-1)
        errors, covariances, noise = (part.index_select(-1, index) for part in self._prior(kernel))
        normal = ExactMultivariateNormal(
            torch.zeros_like(errors),
            AddedDiagLinearOperator(
                to_linear_operator(covariances.index_select(-2, index)), DiagLinearOperator(noise)
            ),
        )
        total = normal.log_prob(errors).sum()
        for _, module, prior, closure, _ in self.model.named_priors():
            total = total + prior.log_prob(closure(module)).sum()
        return -total / errors.numel()

    def _prior(self, kernel: Kernel) -> tuple[Tensor, Tensor, Tensor]:
        """Return errors of the mean and covariances of the bags, and the noise variances."""
        model = self.model
        noise = noise_of(model, self.all_rows)[..., self.bags]
        errors = self.targets - model.mean_module(self.rows.rows)
        return errors, covariance(kernel, self.rows), noise
