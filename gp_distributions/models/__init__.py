"""Exact Gaussian processes on distributions."""

from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.conformal import ConformalCorrection
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.integrated_gp import IntegratedGP
from gp_distributions.models.kernel_ridge import KernelRidgeClassifier
from gp_distributions.models.mixture import MixtureModel
from gp_distributions.models.mixture_classifier import MixtureClassifier
from gp_distributions.models.mixture_posterior import MixturePosterior
from gp_distributions.models.normalization import NormalizeClouds
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP

__all__ = [
    "ClassificationGP",
    "ConformalCorrection",
    "DistributionGP",
    "IntegratedGP",
    "KernelRidgeClassifier",
    "MixtureClassifier",
    "MixtureModel",
    "MixturePosterior",
    "NormalizeClouds",
    "SamplingNoiseLikelihood",
    "SharedKernelGP",
    "SparseClassificationGP",
    "SparseDistributionGP",
]
