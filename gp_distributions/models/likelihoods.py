"""Likelihoods of counts, shares and numbers with outliers, given the latent value of a cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood, PoissonLikelihood, StudentTLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor
from torch.distributions import Binomial, Poisson, StudentT

from gp_distributions.hosts import OneDimensionalLikelihood
from gp_distributions.measures.targets import label_of

# Targets farther from the median, in units of the spread, count as outliers in a start.
_FARTHEST = 5.0


class PoissonRateLikelihood(PoissonLikelihood):
    r"""Poisson likelihood with a logarithmic link: :math:`y \sim \mathrm{Poisson}(e \exp f)`.

    GPyTorch's :class:`PoissonLikelihood` has the rate :math:`\log(1 + \exp f)`. With a logarithmic link,
    effects multiply the rate, whatever the exposure :math:`e`.

    Example:
        >>> import torch
        >>> from gp_distributions.models import PoissonRateLikelihood
        >>> PoissonRateLikelihood()(torch.zeros(2), exposure=torch.tensor([1.0, 3.0])).mean
        tensor([1., 3.])
    """

    argument = "exposure"
    expected = "whole counts >= 0"

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Poisson:
        """Return the distribution of counts, given latent values and ``exposure``, 1 by default."""
        rate = kwargs.get("exposure", 1.0) * function_samples.exp()
        return Poisson(rate, validate_args=False)

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Return expected log probabilities in closed form, where GPyTorch has a quadrature."""
        mean, exposure = function_dist.mean, torch.as_tensor(kwargs.get("exposure", 1.0))
        rate = exposure * (mean + function_dist.variance / 2).exp()
        return observations * (mean + exposure.log()) - rate - torch.lgamma(observations + 1)

    def link(self, targets: Tensor, exposure: Tensor) -> tuple[Tensor, Tensor]:
        """Return latent values that would explain targets, and the variances of their errors."""
        return ((targets + 0.5) / exposure).log(), 1 / (targets + 0.5)


class BinomialLikelihood(OneDimensionalLikelihood):
    r"""Binomial likelihood with a logistic link: :math:`y \sim \mathrm{Binomial}(n, 1 / (1 + e^{-f}))`.

    Example:
        >>> import torch
        >>> from gp_distributions.models import BinomialLikelihood
        >>> BinomialLikelihood()(torch.zeros(2), trials=torch.tensor([1.0, 3.0])).mean
        tensor([0.5000, 1.5000])
    """

    argument = "trials"
    expected = "whole numbers of successes from 0 to the number of trials"

    def __init__(self) -> None:
        super().__init__()

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Binomial:
        """Return the distribution of successes, given latent values and ``trials``, 1 by default."""
        trials = torch.as_tensor(kwargs.get("trials", 1.0)).to(function_samples)
        return Binomial(trials, logits=function_samples, validate_args=False)

    def link(self, targets: Tensor, trials: Tensor) -> tuple[Tensor, Tensor]:
        """Return latent values that would explain targets, and the variances of their errors."""
        yes, no = targets + 0.5, trials - targets + 0.5
        return (yes / no).log(), 1 / yes + 1 / no


class ScaledStudentTLikelihood(StudentTLikelihood):
    r"""Student's t likelihood of targets in any unit: :math:`(y - c) / s \sim f + \sigma t_\nu`.

    The degrees of freedom :math:`\nu` have a Gamma(2, 0.1) prior and the noise :math:`\sigma^2` the
    log-normal one of default Gaussian noise: without it, noise would vanish where a rough function
    meets all targets.

    Args:
        centre: The location :math:`c` of the targets.
        unit: Their scale :math:`s`.

    Example:
        >>> import torch
        >>> from gp_distributions.models import ScaledStudentTLikelihood
        >>> ScaledStudentTLikelihood(torch.tensor(5.0), torch.tensor(2.0))(torch.ones(2)).mean
        tensor([7., 7.])

    Source: Juárez and Steel 2010 (the first prior).
    """

    argument = None
    expected = "numbers"

    def __init__(self, centre: Tensor, unit: Tensor) -> None:
        super().__init__(
            deg_free_prior=GammaPrior(2.0, 0.1), noise_prior=LogNormalPrior(loc=-4.0, scale=1.0)
        )
        self.centre: Tensor
        self.unit: Tensor
        self.register_buffer("centre", centre)
        self.register_buffer("unit", unit)

    @classmethod
    def of(cls, targets: Tensor) -> ScaledStudentTLikelihood:
        """Make the likelihood of targets, whose scale outliers do not change."""
        centre = targets.median()
        apart = (targets - centre).abs()
        unit = apart.median() if bool(apart.median() > 0) else apart.mean()
        likelihood = cls(centre, 1.4826 * unit if bool(unit > 0) else torch.ones_like(unit))
        likelihood.to(targets).noise = 0.1
        return likelihood

    def link(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return latent values that would explain targets but outliers, and the variances of errors."""
        values = (targets - self.centre) / self.unit
        return values.clamp(-_FARTHEST, _FARTHEST), self.noise * torch.ones_like(values)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> StudentT:
        """Return the distribution of targets, given latent values."""
        location, scale = self.centre + self.unit * function_samples, self.unit * self.noise.sqrt()
        return StudentT(self.deg_free, location, scale, validate_args=False)


def likelihood_for(likelihood: str | Likelihood, targets: Tensor) -> Likelihood:
    """Return a likelihood of this package by its name, or that of GPyTorch which was passed.

    Raises:
        ValueError: If it is neither a likelihood nor the name of one.
    """
    if isinstance(likelihood, Likelihood):
        return likelihood
    match likelihood:
        case "poisson":
            return PoissonRateLikelihood()
        case "binomial":
            return BinomialLikelihood()
        case "student_t":
            return ScaledStudentTLikelihood.of(targets)
    names = '"poisson", "binomial", "student_t" or a likelihood of GPyTorch'
    raise ValueError(f"Expected likelihood to be {names}, got {likelihood!r}.")


def check_targets(
    targets: Tensor, likelihood: Likelihood, known: Mapping[str, Tensor], given: object
) -> None:
    """Check that a likelihood gives each target a probability.

    Args:
        targets: The targets.
        likelihood: The likelihood.
        known: Its arguments: exposures or numbers of trials.
        given: The targets as they were passed, whose index names the clouds.

    Raises:
        ValueError: If a target is not in the support.
    """
    support = likelihood(torch.zeros_like(targets), **known).support
    good = support.check(targets) & torch.ones_like(targets, dtype=torch.bool)
    if not bool(good.all()):
        place = int((~good).nonzero()[0, -1])
        of = "".join(f" of {value[place].item():g} {name}" for name, value in known.items())
        raise ValueError(
            f"Expected {getattr(likelihood, 'expected', f'targets in {support}')}, but that of cloud "
            f"{place}{label_of(given, place)} is {targets[..., place].flatten()[0].item():g}{of}."
        )
