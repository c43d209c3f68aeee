"""Probability distributions as data: validated once, padded once, and frozen."""

from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure

__all__ = ["PointClouds", "ReferenceMeasure"]
