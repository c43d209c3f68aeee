"""Fitting of hyperparameters by maximum marginal likelihood, from starts that suit the data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, Literal

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.fitting.ascent import (
    Ascent,
    Maximum,
    ascending,
    climb,
    objective,
    set_values,
    stays_at_start,
    values_of,
    warn_unless_converged,
)
from gp_distributions.fitting.choosing import choose_metric
from gp_distributions.fitting.geometry import choose_geometry
from gp_distributions.fitting.lbfgs import Pair
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
from gp_distributions.measures.described import described
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import (
    CostWarning,
    JitterWarning,
    UndeterminedWarning,
    UnitsWarning,
    collected,
    warn,
)

# A fit of more clouds is announced. It holds about as many matrices of all pairs of clouds.
_MANY, _MATRICES = 4000, 7
# Fits to so many clouds warn of leave-one-out errors of so many standard deviations.
_FEWEST, _FEW, _SHORT = 10, 100, 2.0


@singledispatch
def fit(
    model: Any,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
    **more: Any,
) -> Any:
    r"""Fit the hyperparameters of a model in place by maximising its marginal likelihood.

    The objective is the log marginal likelihood plus the log densities of the priors. It is computed
    by Cholesky factors for any number of clouds and maximised by L-BFGS, where possible at the best
    mean and outputscale for the other hyperparameters. Distances whose parameters do not require a
    gradient are computed only once. If the likelihood is a :class:`SamplingNoiseLikelihood`, ``fit``
    then calls :func:`learn_sampling_noise`. Hyperparameters that do not require a gradient stay as
    they are, and all starts satisfy the constraints. Scales of a :class:`ScaledDistance` that require
    a gradient are fixed at first. ``fit`` then learns them by :func:`learn_scales`, and fits the other
    hyperparameters again if they have changed.

    A model without a kernel then chooses, by five folds of its clouds, scales of coordinates and between
    its isotropic kernel and an equal mixture of kernels, of which mixed inputs have none; and the factor
    of normals by marginal likelihood. ``model.choice`` says what was chosen.

    A :class:`DistributionGP` of more than 1,000 clouds whose distances are fixed is first fitted to a
    random subset of 500 clouds from all starts, and then to all clouds from the maxima found. This
    applies if the likelihood has one noise variance for each output, or is a
    :class:`SamplingNoiseLikelihood`. An interrupted fit keeps the best hyperparameters found so far.

    A classifier is fitted at each of a few concentrations :math:`\alpha_\epsilon`. The one is kept, with
    the temperature :math:`\tau`, that maximises

    .. math::
        \sum_{i=1}^T \log p(y_i \mid \text{all other labels}; \alpha_\epsilon, \tau)
        - \frac12 \left(\frac{\log \tau}{0.35}\right)^2,

    because marginal likelihoods at different concentrations cannot be compared. Noisy labels need a
    large concentration, and well-separated classes a small one. The one lengthscale of a kernel of atoms
    is chosen likewise, from multiples of the median distance between atoms. A sparse classifier takes
    two passes over the data for each.

    Args:
        model: A :class:`DistributionGP`, or any GPyTorch ``ExactGP`` with a ``covar_module`` and a
            ``likelihood``; or a :class:`SparseDistributionGP`, whose hyperparameters come from an exact
            model of 1000 random clouds; or a classifier; or a :class:`VariationalDistributionGP`, of
            which the lower bound is maximised.
        init: With ``"median"``, the lengthscale of every :class:`DistributionKernel` starts at the
            median distance between the training clouds, so that units do not matter. With
            ``"current"``, all hyperparameters start at their current values. Scales always do.
        restarts: Number of further starts; the best result is kept. The likelihood often has one
            maximum where all clouds are unrelated and another where the function is smooth. The first
            further start is smooth: lengthscales are multiplied by 10, outputscales by 100 and the noise
            by 10. The others multiply lengthscales and noise by random factors between 1/5 and 5.
        seed: Random seed for the starts, for the subset of a large model, and for the subsets from which
            sampling noise is learned.
        options: Options of L-BFGS: ``maxiter``; ``ftol``, the smallest relative improvement; and
            ``gtol``, the largest gradient at a maximum.
        progress: Whether to show a progress bar if the fit takes more than a few seconds.
        **more: Of sparse models, ``client``, a client of ``dask.distributed`` whose workers form the
            sums, added in a fixed order. Of classifiers, ``alpha_epsilons``, the concentrations to try,
            (0.1, 0.01, 0.001) by default; and ``temperature``, the temperature of the probabilities,
            which ``fit`` chooses by default.

    Returns:
        The fitted model, in evaluation mode.

    Raises:
        TypeError: If ``model`` is none of these, or there is no option of a name in ``options``.
        ValueError: If ``init`` is neither ``"median"`` nor ``"current"``, or ``restarts`` or ``seed`` is
            negative.
        NotPSDError: If every start leads to a covariance matrix that cannot be factorised.

    Warns:
        CostWarning: If there are more than 4,000 clouds, before the fit starts.
        ConvergenceWarning: If the optimisation from the best start did not converge.
        JitterWarning: If the covariance matrix at the fitted hyperparameters is not positive definite.
        UndeterminedWarning: If there are 10 to 100 clouds, and the root mean square of the standardised
            leave-one-out errors is at least 2: intervals are too short. Use
            :func:`integrate_hyperparameters`. Or if all training clouds coincide for a kernel, or all
            targets are equal: hyperparameters then stay at their start.
        UnitsWarning: If a kernel that was passed reads a coordinate that has more than 99% of the
            variance of all coordinates, once for each model.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, fit
        >>> points = torch.randn(9, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> model = DistributionGP(PointClouds(points), points.mean((-2, -1)))
        >>> model = fit(model, restarts=0)
        >>> bool(model.likelihood.noise < 0.01)
        True
    """
    pairs = maximise_likelihood(
        model,
        init=init,
        restarts=restarts,
        seed=seed,
        options=options,
        progress=progress,
        **more,
    )
    if isinstance(model, DistributionGP) and model.chooses_metric:
        choose_metric(model, seed=seed, options=options, progress=progress, pairs=pairs)
    _warn_of_what_is_undetermined(model)
    return model


@torch.inference_mode(False)
@torch.enable_grad()
def maximise_likelihood(
    model: Any,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
    description: str = "Fitting",
) -> list[Pair]:
    """Fit an exact model as :func:`fit` does, with a description for the progress bar.

    Returns:
        An estimate of the curvature of the marginal likelihood at its maximum.
    """
    if not isinstance(model, ExactGP):
        raise TypeError(
            "Expected a DistributionGP or another ExactGP of GPyTorch, got "
            f"{described(model)}. Make one with DistributionGP(X, Y); fit the models of a list one "
            "by one."
        )
    check_init(init)
    restarts, seed = integer(restarts, "restarts", least=0), integer(seed, "seed", least=0)
    if isinstance(model, DistributionGP):
        model.ensemble = model.choice = None
    warn_of_units(model)
    _warn_of_cost(model)
    scaled = learned_scales(model)
    with ascending(model, description, options, progress=progress) as ascent:
        with fixed_scales(scaled), collected(JitterWarning) as jitter:
            # A classifier chooses itself, for all concentrations.
            chooses = (
                isinstance(model, DistributionGP)
                and model.chooses_metric
                and not isinstance(model, ClassificationGP)
            )
            if chooses and init == "median":
                for distance in default_distances(model.covar_module):
                    distance.scales = [1.0]
            if chooses:
                choose_geometry(model, seed=seed, tick=ascent.tick)
            again = bool(scaled or (chooses and distances_to_scale(model)))
            best = _best(ascent, init, restarts, seed, loose=again)
            pairs = best.minimum.pairs
            if chooses and choose_scales(model, seed=seed, tick=ascent.tick):
                ascent.lowest = math.inf  # losses at other scales do not compare
                best = _best(ascent, init, restarts, seed)
            elif scaled and learn_scales(model, scaled, seed=seed, tick=ascent.tick):
                ascent.lowest = math.inf
                best = _best(ascent, "current", 0, seed)
            elif again:
                best = _best(ascent, "current", 0, seed, pairs=pairs)
        if jitter:  # warn of jitter only at the final hyperparameters, not in line searches
            with torch.no_grad():
                ascent.loss(objective(model))
        learn_sampling_noise(model, seed=seed)
    warn_unless_converged(best)
    return best.minimum.pairs


def _best(
    ascent: Ascent,
    init: str,
    restarts: int,
    seed: int,
    *,
    pairs: Sequence[Pair] = (),
    loose: bool = False,
) -> Maximum:
    """Maximise the marginal likelihood from all starts, and leave the model at the best result."""
    model = ascent.model
    if init == "median":
        start_at_medians(model)
    else:
        median_distances(model)  # warns of clouds that coincide
    starts = list(_starts(model, restarts, torch.Generator().manual_seed(seed)))
    first = init == "current"
    return climb(ascent, starts, seed=seed, with_first=first, pairs=pairs, loose=loose)


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


def _warn_of_what_is_undetermined(model: ExactGP) -> None:
    size = model.train_targets.shape[-1]
    if size > 1 and stays_at_start(model):
        warn(
            f"All {size} targets are equal, so they do not determine the hyperparameters, which stay "
            "at their start. Check the targets.",
            UndeterminedWarning,
        )
        return
    if not (isinstance(model, DistributionGP) and _FEWEST <= size <= _FEW):
        return
    with torch.no_grad():
        found = model.members_left_out(observation_noise=True)
        errors = model.columns(model.train_targets) - found.mean()
        ratio = (errors.square() / found.variance()).mean().sqrt().item()
    if ratio >= _SHORT:
        warn(
            f"{size} clouds do not determine the hyperparameters, and intervals are too short: errors "
            f"of leave-one-out predictions are {ratio:.1f} times as large as their standard deviations. "
            "Use integrate_hyperparameters(model) for predictions.",
            UndeterminedWarning,
        )


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
