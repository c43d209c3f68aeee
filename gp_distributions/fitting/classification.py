"""Fitting of classifiers and selection of their Dirichlet concentration."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.rows.memory import unchanging_rows


def fit_classification(
    model: ClassificationGP,
    *,
    alpha_epsilons: Sequence[float] = (0.1, 0.01, 0.001),
    **options: Any,
) -> ClassificationGP:
    """Fit a classifier in place and select its concentration ``alpha_epsilon``.

    Marginal likelihoods at different concentrations cannot be compared, because the targets differ.
    This function therefore calls :func:`gp_distributions.fit` once for each concentration, and keeps
    the one with the largest mean leave-one-out log probability of the labels. Noisy labels need a large
    concentration and well-separated classes need a small one; an unsuitable concentration gives poorly
    calibrated probabilities. All fits start from the hyperparameters that the model has at the call, so
    that the order of the concentrations does not matter.

    Args:
        model: The classifier.
        alpha_epsilons: Concentrations to try.
        **options: Options of :func:`gp_distributions.fit`.

    Returns:
        The fitted model, in evaluation mode.

    Raises:
        TypeError: If ``model`` is not a :class:`ClassificationGP`.
        ValueError: If ``alpha_epsilons`` is empty or contains a value that is not positive, or if
            :func:`gp_distributions.fit` raises it.

    Example:
        >>> from gp_distributions import ClassificationGP, PointClouds, fit_classification
        >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
        >>> model = ClassificationGP(clouds, ["left", "left", "right", "right"])
        >>> fit_classification(model, alpha_epsilons=(0.1, 0.01), restarts=0).alpha_epsilon
        0.01
    """
    if not isinstance(model, ClassificationGP):
        raise TypeError(
            f"Expected a ClassificationGP, got {type(model).__name__}. Create one with "
            "ClassificationGP(X, labels), or fit other models with fit(model)."
        )
    if not alpha_epsilons:
        raise ValueError("Expected at least one concentration in alpha_epsilons.")
    start, found = copy.deepcopy(model.state_dict()), []
    with unchanging_rows():
        for alpha_epsilon in alpha_epsilons:
            model.load_state_dict(start)
            model.alpha_epsilon = alpha_epsilon
            fit(model, **options)
            state = copy.deepcopy(model.state_dict())
            found.append((float(model.leave_one_out().mean()), alpha_epsilon, state))
    _, model.alpha_epsilon, best = max(found, key=itemgetter(0))
    model.load_state_dict(best)
    return model
