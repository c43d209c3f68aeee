"""Probability distributions as data: validated once, padded once, and frozen."""

from gp_distributions.measures.point_clouds import PointClouds

__all__ = ["PointClouds"]
