"""Classifiers fitted, with the concentration that predicts the labels best."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.models.classification import ClassificationGP


def fit_classification(
    model: ClassificationGP,
    *,
    alpha_epsilons: Sequence[float] = (0.1, 0.01, 0.001),
    **options: Any,
) -> ClassificationGP:
    """Fit a classifier in place, with the concentration that predicts the labels best.

    Marginal likelihoods of different concentrations are of different targets and cannot be compared.
    For each, :func:`gp_distributions.fit` maximises the marginal likelihood; the one with the largest
    mean log probability of the labels, each left out, is kept. Where labels are noisy a large
    concentration is right, where classes are apart a small one; with the wrong one probabilities are far
    from calibrated.

    Args:
        model: The classifier.
        alpha_epsilons: The concentrations tried.
        **options: Those of :func:`gp_distributions.fit`.

    Returns:
        The model, fitted, in evaluation mode.

    Raises:
        TypeError: If it is no :class:`ClassificationGP`.
        ValueError: If there is no concentration to try, one is not positive, or as ``fit`` does.
    """
    if not isinstance(model, ClassificationGP):
        raise TypeError(
            f"Expected a ClassificationGP, got {type(model).__name__}. Make one with "
            "ClassificationGP(X, labels); other models are fitted by fit(model)."
        )
    if not alpha_epsilons:
        raise ValueError("Expected one concentration or more in alpha_epsilons.")
    found = []
    for alpha_epsilon in alpha_epsilons:
        model.alpha_epsilon = alpha_epsilon
        fit(model, **options)
        state = copy.deepcopy(model.state_dict())
        found.append((float(model.leave_one_out().mean()), alpha_epsilon, state))
    _, model.alpha_epsilon, best = max(found, key=itemgetter(0))
    model.load_state_dict(best)
    return model
