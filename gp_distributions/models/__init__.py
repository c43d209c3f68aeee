"""Gaussian processes on distributions, and how they are fitted."""

from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.fit import fit
from gp_distributions.models.fit_reference import ReferenceFit, fit_reference

__all__ = ["DistributionGP", "ReferenceFit", "fit", "fit_reference"]
