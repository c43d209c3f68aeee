"""A fit as a list of stages, one after the other, over one state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.fitting.ascent import (
    Ascent,
    Maximum,
    ascending,
    climb,
    objective,
    set_values,
    values_of,
    warn_unless_converged,
)
from gp_distributions.fitting.geometry import choose_geometry
from gp_distributions.fitting.integration import can_integrate, integrated
from gp_distributions.fitting.lbfgs import Pair
from gp_distributions.fitting.members import FEWEST, chosen, give_members, kernels_of_shapes
from gp_distributions.fitting.sampling_noise import learn_sampling_noise
from gp_distributions.fitting.scales import (
    choose_scales,
    distances_to_scale,
    fixed_scales,
    learn_scales,
    learned_scales,
)
from gp_distributions.fitting.starts import make_smooth, median_distances, scatter, start_at_medians
from gp_distributions.kernels.reading import default_distances
from gp_distributions.measures.arrays import integer
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import CostWarning, JitterWarning, UnitsWarning, collected, warn

# A fit of more clouds is announced. It holds about as many matrices of all pairs of clouds.
_MANY, _MATRICES = 4000, 7

Init: TypeAlias = Literal["median", "current"]


@dataclass
class State:
    """What the stages of a fit share.

    Attributes:
        model: The model, in training mode.
        ascent: The maximisation of its marginal likelihood.
        init: Where hyperparameters start, as in :func:`fit`.
        restarts: Number of further starts.
        seed: Random seed.
        progress: Whether to show progress bars.
        best: The maximum found last.
    """

    model: Any
    ascent: Ascent
    init: Init = "median"
    restarts: int = 1
    seed: int = 0
    progress: bool = True
    best: Maximum | None = None
    #: Distances whose scales the marginal likelihood learns, as their kernel was passed.
    learned: list[ScaledDistance] = field(init=False)
    #: Whether another fit of the hyperparameters follows, so that the first may end early.
    goes_on: bool = False

    def __post_init__(self) -> None:
        self.learned = learned_scales(self.model)

    @property
    def pairs(self) -> Sequence[Pair]:
        """An estimate of the curvature of the marginal likelihood at the maximum found last."""
        return self.best.minimum.pairs if self.best else ()

    def climb(
        self, init: Init, restarts: int, pairs: Sequence[Pair] = (), *, loose: bool = False
    ) -> None:
        """Maximise the marginal likelihood from all starts, and leave the model at the best result."""
        model = self.model
        if init == "median":
            start_at_medians(model)
        else:
            median_distances(model)  # warns of clouds that coincide
        generator = torch.Generator().manual_seed(self.seed)
        starts = list(_starts(model, restarts, generator))
        options: dict[str, Any] = {"seed": self.seed, "with_first": init == "current"}
        with fixed_scales(self.learned):
            self.best = climb(self.ascent, starts, pairs=pairs, loose=loose, **options)


Stage: TypeAlias = Callable[[State], None]


def geometry(state: State) -> None:
    """Choose the pose of shapes and the factor of their normals, before anything is fitted."""
    if has_default_kernel(state.model):
        if state.init == "median":
            for distance in default_distances(state.model.covar_module):
                distance.scales = [1.0]
        choose_geometry(state.model, seed=state.seed, tick=state.ascent.tick)


def hyperparameters(state: State) -> None:
    """Fit lengthscales, outputscales, noise and mean, with the scales of coordinates fixed."""
    state.climb(state.init, state.restarts, loose=state.goes_on)


def scales(state: State) -> None:
    """Learn the scales of coordinates, and fit the hyperparameters again."""
    how: dict[str, Any] = {"seed": state.seed, "tick": state.ascent.tick}
    if chooses_scales(state.model) and choose_scales(state.model, **how):
        state.ascent.lowest = math.inf  # losses at other scales do not compare
        state.climb(state.init, state.restarts)
    else:
        passed_scales(state)


def passed_scales(state: State) -> None:
    """Learn the scales that the kernel was passed with, if any, and fit the hyperparameters again."""
    how: dict[str, Any] = {"seed": state.seed, "tick": state.ascent.tick}
    if state.learned and learn_scales(state.model, state.learned, **how):
        state.ascent.lowest = math.inf
        state.climb("current", 0)
    elif state.goes_on:
        state.climb("current", 0, state.pairs)


def sampling_noise(state: State) -> None:
    """Learn how much more noise smaller bags have."""
    learn_sampling_noise(state.model, seed=state.seed)


def members(state: State) -> None:
    """Give a model of many shapes further members, and integrate the hyperparameters of few units."""
    model = state.model
    if not has_default_kernel(model):
        return
    shapes, many = kernels_of_shapes(model), model.train_targets.shape[-1] >= FEWEST
    if many and shapes:
        how: dict[str, Any] = {"seed": state.seed, "progress": state.progress}
        give_members(model, shapes, **how, options=state.ascent.options)
    elif not many and can_integrate(model):
        model.ensemble = integrated(model, seed=state.seed)
    model.choice = chosen(model)


def has_default_kernel(model: Any) -> bool:
    """Whether a model was made without a kernel, so that its fit decides about it."""
    return isinstance(model, DistributionGP) and model.chooses_metric


def chooses_scales(model: Any) -> bool:
    """Whether a model was made without a kernel, and has enough bags to learn scales from."""
    return has_default_kernel(model) and bool(distances_to_scale(model))


#: The stages of an exact model, of one whose hyperparameters another model takes, and of a classifier at
#: one concentration.
EXACT: tuple[Stage, ...] = (geometry, hyperparameters, scales, sampling_noise, members)
SAMPLE: tuple[Stage, ...] = (geometry, hyperparameters, scales, sampling_noise)
CONCENTRATION: tuple[Stage, ...] = (hyperparameters, passed_scales)


@torch.inference_mode(False)
@torch.enable_grad()
def run(
    model: ExactGP,
    stages: Sequence[Stage],
    *,
    init: Init = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
    description: str = "Fitting",
) -> None:
    """Fit an exact model in place by some stages.

    Args:
        model: The model.
        stages: The stages.
        init: As in :func:`fit`, as are the others.
        restarts: Number of further starts.
        seed: Random seed.
        options: Options of L-BFGS.
        progress: Whether to show a progress bar.
        description: What the progress bar says.
    """
    check_init(init)
    restarts, seed = integer(restarts, "restarts", least=0), integer(seed, "seed", least=0)
    if isinstance(model, DistributionGP):
        model.ensemble = model.choice = None
    warn_of_units(model)
    _warn_of_cost(model)
    with ascending(model, description, options, progress=progress) as ascent:
        state = State(model, ascent, init, restarts, seed, progress)
        state.goes_on = bool(state.learned) or (scales in stages and chooses_scales(model))
        with collected(JitterWarning) as jitter:
            for stage in stages:
                stage(state)
        if jitter:  # warn of jitter only at the final hyperparameters, not in line searches
            model.train()
            with torch.no_grad():
                ascent.loss(objective(model))
    assert state.best is not None
    warn_unless_converged(state.best)


def check_init(init: str) -> None:
    """Check that ``init`` is one of its two values."""
    if init not in ("median", "current"):
        raise ValueError(f'Expected init="median" or init="current", got {init!r}.')


def warn_of_units(model: Any) -> None:
    """Warn, at the first fit of a model, of coordinates that decide distances alone."""
    for finding in getattr(model, "unit_findings", ()):
        warn(finding, UnitsWarning)
    model.unit_findings = ()


def _warn_of_cost(model: ExactGP) -> None:
    num_clouds, targets = model.train_targets.shape[-1], model.train_targets
    if num_clouds <= _MANY:
        return
    # Outputs that share a kernel share its covariance matrix.
    matrices = max(1, getattr(model, "_aug_batch_shape", targets.shape[:-1]).numel())
    gibibytes = matrices * _MATRICES * num_clouds**2 * targets.element_size() / 2**30
    warn(
        f"An exact fit of {num_clouds:,} clouds needs about {gibibytes:.1f} GiB of memory and takes "
        "long: memory grows with the square of the number of clouds, time with its cube. "
        "SparseDistributionGP takes any number of clouds.",
        CostWarning,
    )


def _starts(model: ExactGP, restarts: int, generator: torch.Generator) -> Iterator[list[Tensor]]:
    """Yield the values of all parameters at each start that differs from the first."""
    first = values_of(model)
    yield first
    for restart in range(restarts):
        set_values(model, first)
        if restart:
            scatter(model, generator)
        else:
            make_smooth(model)
        if not all(map(torch.equal, values_of(model), first)):
            yield values_of(model)
