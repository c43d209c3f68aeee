"""Learning of sampling noise from subsets of training bags that all have one size."""

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
from gp_distributions.rows.clouds import drop_copies, join_rows, random_order, split_rows
from gp_distributions.rows.layout import numbers_of

# The smallest subsamples have this many atoms, the next twice as many, and so on, up to the bag size.
_SMALLEST_SUBSAMPLE = 5
# Ratios of equal sizes differ from one by rounding errors.
_ROUNDING = 1e-9
# Maximum number of bags to subsample, which is enough to learn two numbers.
_MAX_BAGS = 256
# Bounds of the share of the noise that is due to sampling, and of the power with which it grows: a
# variance of order 1 / n, up to more than the square of a bias.
_SHARES, _POWERS = (1e-6, 1 - 1e-6), (1.0, 3.0)


def learn_sampling_noise(model: ExactGP, *, seed: int = 0) -> None:
    r"""Learn the sampling noise of a fitted model whose bags all have one size, in place.

    The marginal likelihood knows the sum :math:`\sigma^2 + c` of the parts of the noise of a
    :class:`SamplingNoiseLikelihood`, but not :math:`c`. A random subset of the atoms of a bag is
    distributed like a smaller bag of the same distribution. Let :math:`S` be the training bags and
    subsets of 5, 10, 20, ... of their atoms, :math:`m_{-i}` and :math:`v_{-i}` the posterior mean and
    variance without bag :math:`i`, and :math:`r` the typical size over that of a subset. Then

    .. math:: c, p = \arg\max_{c, p} \sum_{(i, P) \in S}
        \log N\big(y_i;\; m_{-i}(P),\; v_{-i}(P) + (\sigma^2 + c) + c\, (r(P)^p - 1)\big).

    The sum stays, and so do predictions for bags of that size. The model is left as it is if its bags
    have several sizes, of which the marginal likelihood has learned; if :math:`c` does not require a
    gradient; if all targets are equal; or if all bags have at most 5 atoms.

    Args:
        model: The model. At most 256 bags, drawn at random, are subsampled.
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
    likelihood = model.likelihood
    if not (
        isinstance(likelihood, SamplingNoiseLikelihood)
        and likelihood.raw_sampling_noise.requires_grad
    ):
        return
    with torch.no_grad():
        rows, targets = compared_rows(model), model.train_targets
        unlike = (likelihood.ratios(rows) - 1).abs() > _ROUNDING
        if bool(unlike.any()) or len(targets.unique()) < 2:
            return
        bag, subsets = _subsets(likelihood, training_rows(model).detach(), seed)
        likelihood.power.fill_(1)
        ratios = likelihood.ratios(subsets)
        if not (ratios > 1 + _ROUNDING).any():
            return
        errors, variance = _left_out(model, rows, bag, subsets)
        total = likelihood.noise + likelihood.sampling_noise
    logs = {
        "share": torch.full_like(total, math.log(0.5)).requires_grad_(),
        "power": torch.full_like(total, math.log(1.5)).requires_grad_(),
    }

    def loss() -> Tensor:
        excess = ratios ** logs["power"].exp() - 1
        each = variance + total * (1 + logs["share"].exp() * excess)
        return 0.5 * (each.log() + errors.square() / each).mean(-1).sum()

    ends = {"share": _SHARES, "power": _POWERS}
    with torch.enable_grad():
        minimise(
            loss, logs, {n: (math.log(low), math.log(high)) for n, (low, high) in ends.items()}
        )
    likelihood.power.copy_(logs["power"].detach().exp())
    share = logs["share"].detach().exp()
    likelihood.sampling_noise = share * total
    least = likelihood.noise_covar.raw_noise_constraint.lower_bound
    likelihood.noise = ((1 - share) * total).maximum(least * (1 + 1e-9))


def _left_out(
    model: ExactGP, rows: EmbeddedRows, bag: Tensor, subsets: EmbeddedRows
) -> tuple[Tensor, Tensor]:
    """Return errors and variances of posteriors at subsets, each given all bags but its own."""
    given, kernel = model.conditioned(), model.covar_module
    to_train = covariance(kernel, subsets, rows)
    fitted, explained = given.marginals(to_train)
    weights = given.weights_of(bag, to_train)
    precision = given.precision[..., bag]
    mean = model.mean_module(subsets.rows) + fitted
    mean = mean - weights * given.mean_cache[..., bag] / precision
    variance = covariance(kernel, subsets, diag=True) - explained
    variance = variance + weights.square() / precision
    return model.train_targets[..., bag] - mean, variance.clamp_min(0)


def _subsets(
    likelihood: SamplingNoiseLikelihood, rows: Tensor, seed: int
) -> tuple[Tensor, EmbeddedRows]:
    """Draw random subsets of the atoms of bags.

    Returns:
        The index of the bag of each row, and the rows of the bags and of their subsets.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = drop_copies(rows)
    bags = random_order(rows, seed=seed)[:_MAX_BAGS]
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
