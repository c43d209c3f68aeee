"""Containers of probability distributions, validated once and immutable, and reference measures."""

from gp_distributions.measures.covariates import Covariates
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.gaussians import GaussianMixtures, Gaussians
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.poses import align, surroundings
from gp_distributions.measures.reference import ReferenceMeasure

__all__ = [
    "Covariates",
    "GaussianMixtures",
    "Gaussians",
    "MixedEncoding",
    "MixedInputs",
    "PointClouds",
    "ReferenceMeasure",
    "align",
    "surroundings",
]
