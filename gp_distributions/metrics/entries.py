"""The lines of a table of models."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ComparisonEntry:
    """Scores of one model for targets that it has not seen.

    Attributes:
        name: Name of the model.
        log_density: Mean log density of a cloud's targets, or mean log probability of its label, in
            nats.
        difference: ``log_density`` minus that of the best model.
        error: Standard error of ``difference``.
        rmse: Root mean square error of the means, in the units of the targets; NaN for classifiers, as
            the next two.
        r2: Coefficient of determination, averaged over the outputs.
        coverage: Fraction of targets inside the central 95% intervals.
        accuracy: Fraction of labels that are the most probable class; NaN for regression.
        weight: Stacking weight.
        seconds: Time of the fit to all clouds, and of its leave-one-out predictions.
        message: What went wrong; empty if nothing did. If a model failed, its scores are NaN.

    Example:
        >>> from gp_distributions.metrics import ComparisonEntry
        >>> ComparisonEntry("sw2", log_density=-1.2, difference=0.0, error=0.0).failed
        False
    """

    name: str
    log_density: float = math.nan
    difference: float = math.nan
    error: float = math.nan
    rmse: float = math.nan
    r2: float = math.nan
    coverage: float = math.nan
    accuracy: float = math.nan
    weight: float = 0.0
    seconds: float = math.nan
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether there are no scores."""
        return bool(self.message)
