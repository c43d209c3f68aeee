"""Scores of predictions for clouds that a model has not seen, and the weights they give to models."""

from gp_distributions.scoring.entries import ComparisonEntry
from gp_distributions.scoring.leave_one_out import leave_one_out_weights, left_out
from gp_distributions.scoring.predictions import ClassPredictions, NormalPredictions, Predictions

__all__ = [
    "ClassPredictions",
    "ComparisonEntry",
    "NormalPredictions",
    "Predictions",
    "leave_one_out_weights",
    "left_out",
]
