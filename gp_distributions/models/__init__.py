"""Exact Gaussian processes on distributions, and how they are fitted, learned and saved."""

from gp_distributions.models.classification import ClassificationGP, fit_classification
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.fit import fit
from gp_distributions.models.fit_reference import ReferenceFit, fit_reference
from gp_distributions.models.kernel_ridge import KernelRidgeClassifier
from gp_distributions.models.normalization import NormalizeClouds
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.saving import SavedModelError, load, save
from gp_distributions.models.shared_kernel import SharedKernelGP

__all__ = [
    "ClassificationGP",
    "DistributionGP",
    "KernelRidgeClassifier",
    "NormalizeClouds",
    "ReferenceFit",
    "SamplingNoiseLikelihood",
    "SavedModelError",
    "SharedKernelGP",
    "fit",
    "fit_classification",
    "fit_reference",
    "load",
    "save",
]
