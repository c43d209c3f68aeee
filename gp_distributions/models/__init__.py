"""Gaussian processes on distributions: exact, sparse and variational ones, and ensembles."""

import gp_distributions.models.pathwise  # noqa: F401, registers with BoTorch
from gp_distributions.models.aggregate_gp import AggregateGP
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.conformal import ConformalCorrection
from gp_distributions.models.curve_gp import CurveGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.draw_noise import DrawNoiseLikelihood
from gp_distributions.models.kernel_ridge import KernelRidgeClassifier
from gp_distributions.models.likelihoods import (
    BinomialLikelihood,
    PoissonRateLikelihood,
    ScaledStudentTLikelihood,
)
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.models.sparse_aggregate_gp import SparseAggregateGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.models.training import ensemble_of
from gp_distributions.models.variational_aggregate_gp import VariationalAggregateGP
from gp_distributions.models.variational_gp import VariationalDistributionGP

__all__ = [
    "AggregateGP",
    "BinomialLikelihood",
    "ClassificationGP",
    "ConformalCorrection",
    "CurveGP",
    "DistributionGP",
    "DrawNoiseLikelihood",
    "KernelRidgeClassifier",
    "PoissonRateLikelihood",
    "SamplingNoiseLikelihood",
    "ScaledStudentTLikelihood",
    "SharedKernelGP",
    "SparseAggregateGP",
    "SparseClassificationGP",
    "SparseDistributionGP",
    "VariationalAggregateGP",
    "VariationalDistributionGP",
    "ensemble_of",
]
