"""Containers of probability distributions, validated once and immutable, and reference measures."""

from gp_distributions.measures.alignment import align
from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure

__all__ = ["GaussianMixtures", "Gaussians", "PointClouds", "ReferenceMeasure", "align"]
