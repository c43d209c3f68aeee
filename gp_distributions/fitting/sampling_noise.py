"""Learning of sampling noise from subsamples of the training bags."""

from __future__ import annotations

import math

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.starts import compared_rows, training_rows
from gp_distributions.kernels.covariances import covariance
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.rows.clouds import drop_copies, join_rows, split_rows
from gp_distributions.rows.layout import numbers_of

# The smallest subsamples have this many atoms, the next twice as many, and so on, up to the bag size.
_SMALLEST_SUBSAMPLE = 5
# Maximum number of bags to subsample, which is enough to learn two numbers.
_MAX_BAGS = 256
# Bounds of the terms c e and b e^2 at the largest excess e, as shares of the variance of the targets.
_SHARES = (1e-6, 1e2)


def learn_sampling_noise(*models: ExactGP, seed: int = 0) -> None:
    r"""Learn the sampling noise of fitted models in place, from subsamples of their training bags.

    A random subset of the atoms of a bag is distributed like a smaller bag of the same distribution.
    Let :math:`S` be the training bags and subsets of 5, 10, 20, ... of their atoms, :math:`m_{-i}` and
    :math:`v_{-i}` the posterior mean and variance without bag :math:`i`, and :math:`e` the excess of
    :class:`SamplingNoiseLikelihood`. Then

    .. math:: c, b = \arg\max_{c, b \ge 0} \sum_{(i, P) \in S}
        \log N\big(y_i;\; m_{-i}(P),\; v_{-i}(P) + \sigma^2 + c\, e(P) + b\, e(P)^2\big).

    This criterion determines :math:`c` and :math:`b` even if all training bags have the same size and
    the marginal likelihood does not depend on them. In that case, predictions for bags of that size do
    not change. No other parameter changes. The function leaves :math:`c` and :math:`b` as they are if
    :math:`c` does not require a gradient, if all targets are equal, or if there are no subsets because
    all bags have the same size of at most 5 atoms.

    Args:
        *models: Models of the same bags, which are left as they are without a
            :class:`SamplingNoiseLikelihood`. At most 256 bags, drawn at random, are subsampled.
        seed: Random seed for the subsets.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds
        >>> from gp_distributions.fitting.sampling_noise import learn_sampling_noise
        >>> points = torch.randn(12, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> model = DistributionGP(PointClouds(points), points.mean((-2, -1)), sampling_noise=True)
        >>> before = model.likelihood.sampling_noise.item()
        >>> learn_sampling_noise(model)
        >>> model.likelihood.sampling_noise.item() != before
        True
    """
    learning = [
        model
        for model in models
        if isinstance(model.likelihood, SamplingNoiseLikelihood)
        and model.likelihood.raw_sampling_noise.requires_grad
    ]
    if not learning:
        return
    with torch.no_grad():
        first = learning[0]
        subsets = _subsets(first.likelihood, training_rows(first).detach(), seed)
        for model in learning:
            density, likelihood = _LeaveOneOut(model, *subsets), model.likelihood
            if density.excess.any() and len(density.targets.unique()) > 1:
                likelihood.sampling_noise, bias = _maximise(density, likelihood.sampling_noise)
                likelihood.sampling_bias.copy_(bias)


class _LeaveOneOut:
    """Leave-one-out log density of targets as a function of ``c`` and ``b``.

    Each target is predicted from a subset of the atoms of its bag, by a posterior without that bag.
    """

    def __init__(self, model: ExactGP, bag: Tensor, subsets: EmbeddedRows) -> None:
        self.bag, rows = bag, compared_rows(model)
        self.noise = model.likelihood.noise
        self.train_excess = model.likelihood.excess(rows)
        self.excess = model.likelihood.excess(subsets)
        self.targets = model.train_targets
        self.mean, self.subset_mean = map(model.mean_module, (rows.rows, subsets.rows))
        self.train_train = covariance(model.covar_module, rows)
        self.subset_train = covariance(model.covar_module, subsets, rows)
        self.variance = covariance(model.covar_module, subsets, diag=True)
        # If all bags have the same size, the posteriors depend neither on c nor on b.
        self.fixed = None if bool(self.train_excess.any()) else self._posterior(self.noise)

    def __call__(self, c: Tensor, b: Tensor) -> Tensor:
        """Return the mean log density, ``batch_shape x 1``, for ``c`` and ``b`` of the same shape."""
        mean, variance = self.fixed or self._posterior(
            self.noise + (c + b * self.train_excess) * self.train_excess
        )
        variance = variance + self.noise + (c + b * self.excess) * self.excess
        error = self.targets[..., self.bag] - mean
        return -0.5 * (variance.log() + error.square() / variance).mean(-1, keepdim=True)

    def _posterior(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at all subsets, each given all bags but its own."""
        noisy = self.train_train + torch.diag_embed(noise.expand(self.targets.shape))
        inverse = torch.cholesky_inverse(cholesky(noisy))
        alpha = (inverse @ (self.targets - self.mean).unsqueeze(-1)).squeeze(-1)
        # Leaving out bag i subtracts the outer product of column i of the inverse over its diagonal.
        column = (self.subset_train * inverse[..., self.bag, :]).sum(-1)
        diagonal = torch.linalg.diagonal(inverse)[..., self.bag]
        mean = (self.subset_train @ alpha.unsqueeze(-1)).squeeze(-1)
        mean = self.subset_mean + mean - column * alpha[..., self.bag] / diagonal
        explained = (self.subset_train @ inverse * self.subset_train).sum(-1)
        variance = self.variance - explained + column.square() / diagonal
        return mean, variance.clamp_min(0)


def _subsets(
    likelihood: SamplingNoiseLikelihood, rows: Tensor, seed: int
) -> tuple[Tensor, EmbeddedRows]:
    """Draw random subsets of the atoms of bags.

    Returns:
        The index of the bag of each row, and the rows of the bags and of their subsets.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = drop_copies(rows)
    bags = torch.randperm(rows.shape[-2], generator=generator)[:_MAX_BAGS].to(rows.device)
    columns = list(numbers_of(likelihood.active_dims, rows.shape[-1]))
    points, weights = split_rows(rows[..., columns], likelihood.dim)
    sizes = (weights > 0).sum(-1).reshape(-1, rows.shape[-2]).amax(0)
    which, subsets = [bags], [rows[..., bags, :]]
    size = _SMALLEST_SUBSAMPLE
    while bool((sizes[bags] > size).any()):
        bags = bags[sizes[bags] > size]
        keys = torch.rand(weights[..., bags, :].shape, generator=generator).to(weights.device)
        keys[weights[..., bags, :] == 0] = 1  # so that padding comes last
        chosen = keys.argsort(dim=-1)[..., :size]
        kept = torch.zeros_like(keys, dtype=torch.bool).scatter(-1, chosen, True)
        part = rows[..., bags, :]
        part[..., columns] = join_rows(points[..., bags, :, :], weights[..., bags, :] * kept)
        which.append(bags)
        subsets.append(part)
        size *= 2
    return torch.cat(which), EmbeddedRows(torch.cat(subsets, dim=-2))


def _maximise(density: _LeaveOneOut, like: Tensor) -> tuple[Tensor, Tensor]:
    """Maximise the density over ``c`` and ``b``, by L-BFGS on their logarithms."""
    most = density.excess.max()
    scale = (density.targets.var() / torch.stack([most, most.square()])).log()
    logs, bounds = {}, {}
    for name, unit in zip(("c", "b"), scale.tolist(), strict=True):
        bounds[name] = low, high = tuple(unit + math.log(share) for share in _SHARES)
        logs[name] = torch.full_like(like, (low + high) / 2).requires_grad_()
    with torch.enable_grad():
        minimise(lambda: -density(logs["c"].exp(), logs["b"].exp()).sum(), logs, bounds)
    return logs["c"].detach().exp(), logs["b"].detach().exp()
