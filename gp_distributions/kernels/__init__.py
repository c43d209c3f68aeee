"""GPyTorch kernels on distributions, each made of a distance and a profile."""

from gp_distributions.kernels.block_kernel import BlockKernel
from gp_distributions.kernels.defaults import default_kernels
from gp_distributions.kernels.diagnosis import Diagnosis, diagnose
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.group_average import GroupAverageKernel
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
from gp_distributions.numerics.rotations import planar_rotations

__all__ = [
    "BlockKernel",
    "Cauchy",
    "Diagnosis",
    "DistributionKernel",
    "Exponential",
    "Gaussian",
    "GroupAverageKernel",
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
    "default_kernels",
    "diagnose",
    "mixed_kernel",
    "planar_rotations",
]
