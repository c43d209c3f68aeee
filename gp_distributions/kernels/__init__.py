"""GPyTorch kernels on distributions, each made of a distance and a profile."""

import gp_distributions.kernels.random_features  # noqa: F401, registers with BoTorch
from gp_distributions.kernels.aggregates import aggregate_kernel
from gp_distributions.kernels.covariances import BlockKernel
from gp_distributions.kernels.default import default_distance, default_kernel
from gp_distributions.kernels.defaults import default_kernels
from gp_distributions.kernels.diagnosis import Diagnosis, diagnose
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.kernels.mixed import mixed_kernel
from gp_distributions.kernels.named import MMDKernel, SinkhornKernel, SlicedWassersteinKernel
from gp_distributions.kernels.profiles import (
    Cauchy,
    Exponential,
    Gaussian,
    InverseMultiquadric,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    PowerExponential,
    Profile,
    RationalQuadratic,
    StudentT,
)

__all__ = [
    "BlockKernel",
    "Cauchy",
    "Diagnosis",
    "DistributionKernel",
    "ExpectedKernel",
    "Exponential",
    "Gaussian",
    "InverseMultiquadric",
    "Linear",
    "MMDKernel",
    "Matern32",
    "Matern52",
    "Polynomial",
    "PowerExponential",
    "Profile",
    "RationalQuadratic",
    "SinkhornKernel",
    "SlicedWassersteinKernel",
    "StudentT",
    "aggregate_kernel",
    "default_distance",
    "default_kernel",
    "default_kernels",
    "diagnose",
    "mixed_kernel",
]
