"""The posterior of a weighted mixture of normal and Student's t predictions, for BoTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import torch
from botorch.posteriors import Posterior
from botorch.sampling.get_sampler import GetSampler
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from gp_distributions.numerics.densities import Mixture, variance_factors
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.numerics.student_t import stretches
from gp_distributions.warnings import JitterWarning, silenced

# The first base samples of each output choose the member and stretch its normal samples.
_CHOICES = 2
_ONE = torch.Size([1])


class MixturePosterior(Posterior):
    r"""Posterior that is a weighted mixture of multivariate normal and Student's t distributions.

    .. math:: p(y) = \sum_k w_k\, t_{\nu_k}(y \mid m_k, S_k), \qquad t_\infty = \mathcal N

    The mean and the variance are those of the mixture, and quantiles invert its distribution function,
    so intervals are right for skewed mixtures and heavy tails. Samples are drawn jointly for ``q``
    points. BoTorch's samplers of normal base samples apply, such as ``SobolQMCNormalSampler``: two
    further base samples of each output choose the member and, for Student's t distributions, stretch
    the sample.

    Args:
        mean: Locations :math:`m_k` of the members, a ``batch_shape x K x q x outputs`` tensor.
        variance: Diagonals of the scale matrices :math:`S_k`, in the same shape. The variance of a
            Student's t distribution is :math:`\nu / (\nu - 2)` times as large.
        covariance: Function of ``n`` indices of members that returns their scale matrices, a
            ``batch_shape x n x (q * outputs) x (q * outputs)`` tensor; the outputs of a point are next
            to each other.
        weights: Weights :math:`w_k`, which sum to one over ``K``, a tensor that broadcasts with
            ``batch_shape x K``.
        degrees: Degrees of freedom :math:`\nu_k`, a tensor of shape ``K``. Default: all infinite, for
            normal distributions.

    Example:
        >>> import torch
        >>> from gp_distributions.models.mixture_posterior import MixturePosterior
        >>> mean = torch.tensor([[[0.0]], [[4.0]]])  # two members, one point, one output
        >>> variance, weights = torch.ones(2, 1, 1), torch.tensor([0.75, 0.25])
        >>> posterior = MixturePosterior(mean, variance, lambda k: variance[k], weights)
        >>> posterior.mean, posterior.variance
        (tensor([[1.]]), tensor([[4.]]))
    """

    def __init__(
        self,
        mean: Tensor,
        variance: Tensor,
        covariance: Callable[[Tensor], Tensor],
        weights: Tensor,
        degrees: Tensor | None = None,
    ) -> None:
        self.member_mean = mean
        self.member_variance = variance
        self.member_covariance = covariance
        self.weights = weights
        self.degrees = mean.new_full(mean.shape[-3:-2], torch.inf) if degrees is None else degrees

    @property
    def device(self) -> torch.device:
        """The device of the posterior."""
        return self.member_mean.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the posterior."""
        return self.member_mean.dtype

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape."""
        return self.member_mean.shape[:-3]

    @property
    def mixture(self) -> Mixture:
        """The marginal distribution of each value, of shape ``batch_shape x q x outputs``."""
        mean, tiny = self.member_mean, torch.finfo(self.dtype).tiny
        scale = self.member_variance.clamp_min(tiny).sqrt()
        weights = self.weights[..., None, None, :]  # the axes of q and of outputs
        return Mixture(weights, mean.movedim(-3, -1), scale.movedim(-3, -1), self.degrees)

    @property
    def distribution(self) -> NoReturn:
        """Not available, as a mixture is not one normal distribution."""
        raise AttributeError(
            "A mixture is not one normal distribution. Use an acquisition function of samples, means or "
            "variances, such as qLogNoisyExpectedImprovement, or a model with fitted hyperparameters."
        )

    mvn = distribution

    @property
    def mean(self) -> Tensor:
        """The mean of the mixture, ``batch_shape x q x outputs``."""
        return (self.weights[..., None, None] * self.member_mean).sum(-3)

    @property
    def variance(self) -> Tensor:
        """The variance of the mixture, that within members and that between them."""
        within = self.member_variance * variance_factors(self.degrees)[:, None, None]
        between = (self.member_mean - self.mean.unsqueeze(-3)).square()
        return (self.weights[..., None, None] * (within + between)).sum(-3)

    def quantile(self, value: Tensor) -> Tensor:
        """Compute quantiles of the marginal distributions.

        Args:
            value: Levels in (0, 1): one, or a tensor of ``L`` of them.

        Returns:
            A ``batch_shape x q x outputs`` tensor, with a leading axis if there are several levels.

        Raises:
            ValueError: If a level is not in (0, 1).
        """
        levels = torch.as_tensor(value)
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"Expected levels in (0, 1), got {levels.tolist()}.")
        mixture = self.mixture
        found = [mixture.quantile(level) for level in levels.double().flatten().tolist()]
        return torch.stack(found) if len(found) > 1 else found[0]

    def density(self, value: Tensor) -> Tensor:
        """Compute densities of the marginal distributions.

        Args:
            value: One value, or a tensor of ``L`` of them.

        Returns:
            A ``batch_shape x q x outputs`` tensor, with a leading axis if there are several values.
        """
        found = [self.log_density(one).exp() for one in torch.as_tensor(value).flatten()]
        return torch.stack(found) if len(found) > 1 else found[0]

    def log_density(self, value: Tensor) -> Tensor:
        """Compute log densities of the marginal distributions.

        Args:
            value: A value for each point and output, ``batch_shape x q x outputs``.

        Returns:
            A ``batch_shape x q x outputs`` tensor.
        """
        return self.mixture.log_density(value.to(self.member_mean))

    @property
    def base_sample_shape(self) -> torch.Size:
        """The shape of a base sample, ``batch_shape x (q + 2) x outputs``."""
        q, outputs = self.member_mean.shape[-2:]
        return torch.Size([*self.batch_shape, q + _CHOICES, outputs])

    @property
    def batch_range(self) -> tuple[int, int]:
        """The axes of a base sample over which base samples are the same."""
        return (0, -2)

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return torch.Size([*sample_shape, *self.batch_shape, *self.member_mean.shape[-2:]])

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        """Draw samples with gradients, a ``sample_shape x batch_shape x q x outputs`` tensor."""
        sample_shape = _ONE if sample_shape is None else sample_shape
        shape = (*sample_shape, *self.base_sample_shape)
        base_samples = torch.randn(shape, dtype=self.dtype, device=self.device)
        return self.rsample_from_base_samples(sample_shape, base_samples)

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        """Convert normal base samples to samples, which are smooth functions of the members.

        Args:
            sample_shape: The shape of the set of samples.
            base_samples: A ``sample_shape x base_sample_shape`` tensor of normal variables.

        Returns:
            A ``sample_shape x batch_shape x q x outputs`` tensor.
        """
        base_samples = base_samples.expand(*sample_shape, *self.base_sample_shape)
        choice, stretch = base_samples[..., :_CHOICES, 0].unbind(-1)
        normals = base_samples[..., _CHOICES:, :].flatten(-2)
        bounds = self.weights.cumsum(-1)[..., :-1]
        index = (torch.special.ndtr(choice).unsqueeze(-1) > bounds).sum(-1)
        members, places = torch.unique(index, return_inverse=True)
        mean = self.member_mean[..., members, :, :].flatten(-2)
        root = _root(self.member_covariance(members))
        root = root.expand(*self.batch_shape, *root.shape[-3:])
        # The position of the chosen member in all batch elements.
        axes = [torch.arange(size, device=self.device) for size in self.batch_shape]
        at = (*(torch.meshgrid(*axes, indexing="ij") if axes else ()), places)
        drawn = (root[at] @ normals.unsqueeze(-1)).squeeze(-1)
        samples = mean[at] + stretches(stretch, self.degrees[index]).unsqueeze(-1) * drawn
        return samples.unflatten(-1, self.member_mean.shape[-2:])


def _root(matrices: Tensor) -> Tensor:
    """Return lower roots of matrices that may be singular, such as those at known points."""
    diagonal = torch.linalg.diagonal(matrices)
    tiny = torch.finfo(matrices.dtype).tiny
    if matrices.shape[-1] == 1:
        return matrices.clamp_min(tiny).sqrt()
    unit = diagonal.detach().amax(-1).clamp_min(tiny)[..., None, None]
    # The jitter is relative to the variances, so that it does not matter to samples.
    with silenced(JitterWarning):
        return cholesky(matrices / unit) * unit.sqrt()


def mixed(posteriors: Sequence[MixturePosterior], weights: Tensor) -> MixturePosterior:
    """Return the mixture of mixtures that have the same points and outputs.

    Args:
        posteriors: The mixtures.
        weights: The weight of each, which sum to one.

    Returns:
        The mixture of all their members.
    """
    shape = torch.broadcast_shapes(*(posterior.batch_shape for posterior in posteriors))
    sizes = [posterior.member_mean.shape[-3] for posterior in posteriors]
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()

    def covariance(members: Tensor) -> Tensor:
        found: list[Tensor] = []
        places: list[Tensor] = []
        for posterior, start, size in zip(posteriors, starts, sizes, strict=False):
            (own,) = ((members >= start) & (members < start + size)).nonzero(as_tuple=True)
            if len(own):
                matrices = posterior.member_covariance(members[own] - start)
                found.append(matrices.expand(*shape, *matrices.shape[-3:]))
                places.append(own)
        return torch.cat(found, dim=-3).index_select(-3, torch.cat(places).argsort())

    def joined(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.expand(*shape, *part.shape[-3:]) for part in values], dim=-3)

    each = [w * posterior.weights for w, posterior in zip(weights, posteriors, strict=True)]
    return MixturePosterior(
        joined([posterior.member_mean for posterior in posteriors]),
        joined([posterior.member_variance for posterior in posteriors]),
        covariance,
        torch.cat([part.expand(*shape, -1) for part in each], dim=-1),
        torch.cat([posterior.degrees for posterior in posteriors]),
    )


# The sampler is that of normal posteriors of as many values.
GetSampler.register(MixturePosterior)(GetSampler.dispatch(MultivariateNormal))
