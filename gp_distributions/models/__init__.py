"""Gaussian processes on distributions, and how they are fitted."""

from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.fit import fit

__all__ = ["DistributionGP", "fit"]
