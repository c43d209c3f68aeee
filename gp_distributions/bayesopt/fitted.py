"""Fits of the models of a search, which a failed line search must not end."""

from __future__ import annotations

from collections.abc import Callable

from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.fitting import fit
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.models import DistributionGP
from gp_distributions.warnings import ConvergenceWarning, warn

MakeModel = Callable[[Tensor, Tensor], DistributionGP]


def fitted(make: MakeModel, X: Tensor, Y: Tensor, *, restarts: int, seed: int) -> DistributionGP:
    """Make a model and fit it; if the fit fails, return the model with initial hyperparameters.

    Args:
        make: The function that makes the model.
        X: The inputs, ``T x width``.
        Y: The outcomes, ``T x outcomes``.
        restarts: Number of additional starts.
        seed: Random seed for the starts.

    Warns:
        ConvergenceWarning: If the fit fails or does not converge.
    """
    try:
        return fit(make(X, Y), restarts=restarts, seed=seed, progress=False)
    except (NanError, NotPSDError) as error:
        warn(
            f"The fit to {len(X)} evaluations failed ({error}). The search goes on with the initial "
            "hyperparameters of the model.",
            ConvergenceWarning,
        )
    model = make(X, Y)
    start_at_medians(model)
    return model.eval()
