"""Exact Gaussian processes on distributions, and how they are fitted, learned and saved."""

from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.fit import fit
from gp_distributions.models.fit_reference import ReferenceFit, fit_reference
from gp_distributions.models.saving import SavedModelError, load, save

__all__ = [
    "DistributionGP",
    "ReferenceFit",
    "SavedModelError",
    "fit",
    "fit_reference",
    "load",
    "save",
]
