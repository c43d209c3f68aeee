"""Normal priors of logarithms, also in units of the median distance between training clouds."""

from __future__ import annotations

import math

import torch
from gpytorch.priors import LogNormalPrior
from torch import Tensor

#: Location and scale of the logarithm of a lengthscale over the median distance :math:`m`, and of the
#: variance :math:`v` of a linear term times :math:`m^2`.
LENGTHSCALE, LINEAR = (0.25, 0.7), (math.log(2.0) - 1.0, 1.5)


class LogarithmPrior(LogNormalPrior):
    r"""Normal prior of the logarithm of a hyperparameter, with the density of the logarithm.

    .. math:: \log x \sim N(\text{location} + p \log m,\; \text{scale}^2)

    GPyTorch's ``LogNormalPrior`` has the density of :math:`x`. Its mode, which a fit would find where
    data say nothing, is below the median, by a factor of :math:`\exp(\text{scale}^2)`: 55 for a scale of
    2. The mode of this density is the median. Powers of the median distance :math:`m` between training
    clouds make the prior independent of units; a fit sets :math:`m`, which is 1 before.

    Kernels that models make themselves have :math:`\log (\ell / m) \sim N(0.25, 0.7^2)`: a short
    lengthscale explains noise as well as noise does, and 50 clouds cannot tell them apart, so the prior
    says that it is noise. The variance of a linear term has :math:`\log (v m^2 / 2) \sim N(-1, 1.5^2)`.

    Args:
        location: Mean of the logarithm for a median distance of 1.
        scale: Standard deviation of the logarithm.
        power: The power :math:`p` of distances that the hyperparameter is.

    Example:
        >>> from gp_distributions.kernels.priors import LogarithmPrior
        >>> prior = LogarithmPrior(0.0, 1.0, power=1.0)
        >>> prior.set_distance(20.0)
        >>> round(prior.loc.exp().item(), 3)
        20.0
    """

    def __init__(self, location: float, scale: float, power: float = 0.0) -> None:
        super().__init__(location, scale)
        self.location, self.power = float(location), float(power)

    def set_distance(self, median: Tensor | float) -> None:
        """Set the median distance between training clouds."""
        loc = self.location + self.power * math.log(float(median))
        self.loc = torch.full_like(self.scale, loc)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log density of the logarithm."""
        found: Tensor = super().log_prob(x) + x.log()
        return found
