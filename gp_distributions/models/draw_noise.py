"""Noise of targets that belong to one draw from an input, whose place in the input is not known."""

from __future__ import annotations

import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor

from gp_distributions.distances.embedded_rows import Rows
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.models.sampling_noise import RowNoiseLikelihood

_NO_BATCH = torch.Size()


class DrawNoiseLikelihood(RowNoiseLikelihood):
    r"""Gaussian noise, and the variance of the function within each input.

    If a target is :math:`f(x) + \epsilon` at a draw :math:`x \sim P` that was not observed, then, given
    only :math:`P`, its variance about the mean :math:`\int f\, dP` is

    .. math::
        \sigma^2 + \mathrm E\, k(x, x) - \mathrm E\, k(x, x'),

    with :math:`x` and :math:`x'` independent draws from :math:`P`: no more than :math:`\sigma^2` if
    :math:`P` is a point.

    Args:
        kernel: Kernel of the distributions, which the model has as well.
        noise_prior: Prior of :math:`\sigma^2`.
        noise_constraint: Constraint of :math:`\sigma^2`. GPyTorch's default is a lower bound of 1e-4.
        batch_shape: Batch shape of :math:`\sigma^2`.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from gp_distributions import Gaussians
        >>> from gp_distributions.kernels import ExpectedKernel
        >>> from gp_distributions.models import DrawNoiseLikelihood
        >>> kernel = ExpectedKernel(RBFKernel(), dim=1, inputs="gaussians")
        >>> rows = Gaussians([[0.0], [0.0]], [[[0.0]], [[1.0]]]).pack()
        >>> DrawNoiseLikelihood(kernel).within(rows).detach()[0]
        tensor(0., dtype=torch.float64)

    Source: Girard et al. 2003.
    """

    def __init__(
        self,
        kernel: ExpectedKernel,
        *,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        batch_shape: torch.Size = _NO_BATCH,
    ) -> None:
        super().__init__(
            noise_prior=noise_prior, noise_constraint=noise_constraint, batch_shape=batch_shape
        )
        self.kernel = kernel

    def within(self, rows: Rows) -> Tensor:
        """Compute the prior variance of the function within each row, ``batch_shape x N``."""
        within = self.kernel.variances(rows) - self.kernel.forward(rows, rows, diag=True)
        return within.clamp_min(0)

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variance of each row."""
        return self.noise + self.within(rows)
