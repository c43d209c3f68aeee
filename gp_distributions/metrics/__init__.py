"""How good predictions are, and what they depend on: scores, intervals, relevance, sensitivity."""

from gp_distributions.metrics.entries import ComparisonEntry
from gp_distributions.metrics.intervals import (
    Calibration,
    calibration,
    coverage,
    crps,
    nlpd,
    reliability,
)
from gp_distributions.metrics.leave_one_out import leave_one_out_weights, left_out
from gp_distributions.metrics.predictions import ClassPredictions, NormalPredictions, Predictions
from gp_distributions.metrics.relevance_results import Relevance, RelevanceEntry
from gp_distributions.metrics.relevances import relevance
from gp_distributions.metrics.sensitivities import Sensitivity, sensitivity
from gp_distributions.metrics.surfaces import SurfaceSensitivity, surface_sensitivity

__all__ = [
    "Calibration",
    "ClassPredictions",
    "ComparisonEntry",
    "NormalPredictions",
    "Predictions",
    "Relevance",
    "RelevanceEntry",
    "Sensitivity",
    "SurfaceSensitivity",
    "calibration",
    "coverage",
    "crps",
    "leave_one_out_weights",
    "left_out",
    "nlpd",
    "relevance",
    "reliability",
    "sensitivity",
    "surface_sensitivity",
]
