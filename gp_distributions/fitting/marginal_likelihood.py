"""Fitting of hyperparameters by maximum marginal likelihood, from starts that suit the data."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Literal

import torch
from gpytorch.models import ExactGP

from gp_distributions.fitting.ascent import stays_at_start
from gp_distributions.fitting.stages import EXACT, run
from gp_distributions.measures.arrays import described
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.warnings import UndeterminedWarning, warn

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
    its isotropic kernel and an equal mixture of kernels, of which mixed inputs have none; and, by
    leave-one-out log densities, the pose of shapes and the factor of normals. ``model.choice`` says
    what was chosen.

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
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> model = fit(DistributionGP(clouds, targets), restarts=0)
        >>> mean, std = model.predict(clouds)
        >>> bool(((mean - targets).abs() < 2 * std).all())
        True
    """
    if not (isinstance(model, ExactGP) and hasattr(model, "covar_module")):
        raise TypeError(
            "Expected a DistributionGP or another ExactGP of GPyTorch with a covar_module, got "
            f"{described(model)}. Make one with DistributionGP(X, Y); fit the models of a list one "
            "by one, and other models with botorch.fit_gpytorch_mll."
        )
    how: dict[str, Any] = {"init": init, "restarts": restarts, "seed": seed, "options": options}
    run(model, EXACT, **how, progress=progress, **more)
    _warn_of_what_is_undetermined(model)
    return model


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
