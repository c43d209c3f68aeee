"""What the Gaussian process estimators share: their parameters and their kernel."""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel, ScaleKernel

from gp_distributions.distances import Distance
from gp_distributions.estimators._kernels import Options, make_distance, refuse_indices
from gp_distributions.estimators._samples import DistributionEstimator
from gp_distributions.kernels import DistributionKernel, Profile
from gp_distributions.measures.kinds import Distributions


class ProcessEstimator(DistributionEstimator):
    """An estimator that fits a Gaussian process."""

    _least_samples = 2

    distance: str | Distance
    options: Options
    profile: str | Profile
    kernel: Kernel | None

    def _make_kernel(self, training: Distributions, *, outputs: tuple[int, ...] = ()) -> Kernel:
        """The kernel, with one set of parameters for each of several outputs."""
        if self.kernel is not None:
            refuse_indices(self.kernel)
            return copy.deepcopy(self.kernel)
        distance = make_distance(self.distance, self.options, training, self.inputs_)
        batch_shape = torch.Size(size for size in outputs if size > 1)
        profile = copy.deepcopy(self.profile)
        base = DistributionKernel(distance, profile, batch_shape=batch_shape)
        return ScaleKernel(base, batch_shape=batch_shape)
