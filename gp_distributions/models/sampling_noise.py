"""Noise of bags that are samples: the smaller a bag, the less it tells of its distribution."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from botorch.models.model import Model as BoTorchModel
from gpytorch.constraints import Interval, Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.priors import Prior
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gp_distributions.distances._cache import same_tensor
from gp_distributions.models._exact import exact_computations, jitter_explained
from gp_distributions.numerics.rows import drop_copies, join_rows, split_rows
from gp_distributions.warnings import TiesWarning

# Subsamples have so many atoms, twice as many, and so on, up to the size of their bag.
_SMALLEST_SUBSAMPLE = 5
# Bags that are subsampled, at most: enough for a single number.
_MAX_BAGS = 256
# What either term of the largest excess noise can be, as a share of the variance of the targets.
_SHARES = (1e-6, 1e2)

_NO_BATCH = torch.Size()


def effective_sizes(points: Tensor, weights: Tensor, *, merge: bool = True) -> Tensor:
    r"""Effective sample sizes of weighted clouds.

    With the weights :math:`w_i` of atoms, by default those of equal atoms added up,

    .. math:: n_\mathrm{eff} = \frac{(\sum_i w_i)^2}{\sum_i w_i^2},

    which is the number of atoms where weights are equal.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        merge: Whether equal atoms are copies of one, rather than measurements that came out alike.

    Returns:
        A ``batch_shape`` tensor.

    Source: Kish 1965, Survey Sampling.
    """
    weights = weights / weights.sum(-1, keepdim=True)
    if not merge:
        return 1 / weights.square().sum(-1)
    order = torch.arange(weights.shape[-1], device=weights.device).expand(weights.shape)
    for axis in reversed(range(points.shape[-1])):  # equal atoms come to lie side by side
        keys = points[..., axis].detach().gather(-1, order)
        order = order.gather(-1, keys.argsort(dim=-1, stable=True))
    points = points.gather(-2, order.unsqueeze(-1).expand(points.shape))
    differs = (points[..., 1:, :] != points[..., :-1, :]).any(-1)
    atom = torch.nn.functional.pad(differs.cumsum(-1), (1, 0))
    weights = weights.gather(-1, order)
    return 1 / torch.zeros_like(weights).scatter_add(-1, atom, weights).square().sum(-1)


class SamplingNoiseLikelihood(GaussianLikelihood):
    r"""Gaussian noise that is larger at smaller bags.

    For a bag whose effective sample size is :math:`n_\mathrm{eff}`, see :func:`effective_sizes`, the
    variance of an observation about the function is

    .. math::
        \sigma^2 + c\, e + b\, e^2, \qquad
        e = \left(\frac{1}{n_\mathrm{eff}} - \frac{1}{n_\mathrm{max}}\right)_+ .

    With :math:`b = 0` that is a constant plus :math:`c / n_\mathrm{eff}` up to bags of
    :math:`n_\mathrm{max}`, whose noise is :math:`\sigma^2`, and no less noise beyond. Errors of
    estimates from samples have a variance of the order :math:`1 / n`, the first term, and a squared bias
    of the order :math:`1 / n^2`, the second. Only for bags of independent samples: the weights of pixels
    and of pieces of a curve are no samples.

    It is called with the clouds, as GPyTorch's other likelihoods may be:
    ``likelihood(distribution, rows)``. A distribution that a :class:`DistributionGP` returns knows
    its clouds. Given only values of a function, the clouds are those of the last call.

    Args:
        dim: The dimension ``d`` of the atoms.
        largest: :math:`n_\mathrm{max}`, the effective size of the largest training bag.
        active_dims: The columns of a row that hold the cloud. Default: all.
        merge: Whether equal atoms are copies of one, see :func:`effective_sizes`.
        noise_prior: Of :math:`\sigma^2`.
        noise_constraint: Of :math:`\sigma^2`; GPyTorch's default is at least 1e-4.
        batch_shape: Of the parameters ``noise``, :math:`\sigma^2`, ``sampling_noise``, :math:`c`, and
            ``sampling_bias``, :math:`b`, all in squared units of the targets that the model sees,
            standardised by default. :math:`b` is 0 and requires no gradient;
            :func:`learn_sampling_noise` sets it.
    """

    def __init__(
        self,
        dim: int,
        *,
        largest: float = math.inf,
        active_dims: Sequence[int] | None = None,
        merge: bool = True,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        batch_shape: torch.Size = _NO_BATCH,
    ) -> None:
        super().__init__(
            noise_prior=noise_prior, noise_constraint=noise_constraint, batch_shape=batch_shape
        )
        self.dim = dim
        self._largest: Tensor
        self.register_buffer("_largest", torch.tensor(largest, dtype=torch.float64))
        self.active_dims = None if active_dims is None else tuple(map(int, active_dims))
        self.merge = merge
        self.register_parameter(
            "raw_sampling_noise", torch.nn.Parameter(torch.zeros(*batch_shape, 1))
        )
        # On a logarithmic scale, as c may be of any size.
        self.register_constraint(
            "raw_sampling_noise", Positive(transform=torch.exp, inv_transform=torch.log)
        )
        self.sampling_bias = torch.nn.Parameter(torch.zeros(*batch_shape, 1), requires_grad=False)
        self._last: tuple[Tensor, Tensor, float] | None = None

    @property
    def largest(self) -> float:
        """The effective size of the largest training bag."""
        return self._largest.item()

    @largest.setter
    def largest(self, value: float) -> None:
        self._largest.fill_(value)

    @property
    def sampling_noise(self) -> Tensor:
        """The noise ``c`` of a bag of one atom, ``batch_shape x 1``."""
        return self.raw_sampling_noise_constraint.transform(self.raw_sampling_noise)

    @sampling_noise.setter
    def sampling_noise(self, value: Tensor | float) -> None:
        value = torch.as_tensor(value).to(self.raw_sampling_noise)
        self.initialize(
            raw_sampling_noise=self.raw_sampling_noise_constraint.inverse_transform(value)
        )

    def adapt(self, rows: Tensor) -> None:
        """Set the largest size to that of training rows, ``c`` to what would be all of its noise.

        Warns:
            TiesWarning: If equal atoms, taken for copies, leave a bag less than half of its size.
        """
        with torch.no_grad():
            rows = rows.detach()
            sizes = self._sizes(rows)
            self.largest = sizes.max().item()
            self.sampling_noise = self.noise * self.largest
            if self.merge:
                _warn_of_ties(sizes, self._sizes(rows, merge=False))
        self._last = None

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """The distribution of observations, given that of the function."""
        rows = getattr(function_dist, "rows", None)
        if rows is not None:
            params = (rows,)
        return super().marginal(function_dist, *params, **kwargs)

    def excess(self, rows: Tensor) -> Tensor:
        """The excess ``e`` of one over the size, for each of ``batch_shape x N x m*(d+1)`` rows."""
        rows = drop_copies(rows)
        tracked = torch.is_grad_enabled() and rows.requires_grad
        last = self._last
        largest = self.largest
        if last is not None and not tracked and last[2] == largest and same_tensor(last[0], rows):
            return last[1]
        excess = (1 / self._sizes(rows) - 1 / largest).clamp_min(0)
        if not torch.is_inference_mode_enabled():  # such tensors cannot serve autograd later
            self._last = rows.detach().clone(), excess.detach(), largest
        return excess

    def _sizes(self, rows: Tensor, *, merge: bool | None = None) -> Tensor:
        clouds = rows if self.active_dims is None else rows[..., list(self.active_dims)]
        merge = self.merge if merge is None else merge
        return effective_sizes(*split_rows(clouds, self.dim), merge=merge)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, **kwargs: Any
    ) -> DiagLinearOperator:
        if kwargs.get("noise") is not None:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        if params:
            rows = params[0] if isinstance(params[0], Tensor) else params[0][0]
        elif self._last is not None and self._last[1].shape[-1] == base_shape[-1]:
            rows = self._last[0]
        else:
            raise ValueError(
                "Expected the clouds, on whose sizes the noise depends: call the likelihood as "
                "likelihood(distribution, rows)."
            )
        excess = self.excess(rows)
        noise = self.noise + (self.sampling_noise + self.sampling_bias * excess) * excess
        return DiagLinearOperator(noise.expand(torch.broadcast_shapes(noise.shape, base_shape)))


def _warn_of_ties(sizes: Tensor, counted: Tensor) -> None:
    """Warn where sizes after merging equal atoms are much smaller than those that were counted."""
    tied = 2 * sizes < counted
    if bool(tied.any()):
        first = tuple(tied.nonzero()[0].tolist())
        warnings.warn(
            f"Equal atoms are taken for copies of one, which leaves {int(tied.sum())} of "
            f"{tied.numel()} bags less than half of their size: bag {first[-1]} counts as "
            f"{sizes[first].item():.1f} measurements instead of {counted[first].item():.1f}. If each "
            "atom is a measurement of its own (rounded values, counts, answers on a scale), give "
            'sampling_noise="ties".',
            TiesWarning,
            stacklevel=4,
        )


def learn_sampling_noise(model: ExactGP, *, seed: int = 0) -> None:
    r"""Set the sampling noise of a fitted model, in place, by subsamples of its training bags.

    A random subset of a bag's atoms is what a smaller bag of the same distribution would have been.
    With :math:`S` the training bags and subsets of 5, 10, 20, ... atoms of them, :math:`m_{-i}` and
    :math:`v_{-i}` the posterior without bag :math:`i`, and :math:`e` as in
    :class:`SamplingNoiseLikelihood`,

    .. math:: c, b = \arg\max_{c, b \ge 0} \sum_{(i, P) \in S}
        \log N\big(y_i;\; m_{-i}(P),\; v_{-i}(P) + \sigma^2 + c\, e(P) + b\, e(P)^2\big).

    This determines both also where all training bags are of one size, on which the marginal
    likelihood then does not depend, and leaves predictions for such bags as they are. All else stays
    as it is. Without subsets, as where all bags are smaller than 6 atoms and of one size, both stay
    too; and where :math:`c` requires no gradient.

    Args:
        model: A model with a :class:`SamplingNoiseLikelihood`. At most 256 of its bags, drawn at
            random, are subsampled.
        seed: Of the subsets.

    Raises:
        TypeError: If the likelihood is another.
    """
    likelihood = model.likelihood
    if not isinstance(likelihood, SamplingNoiseLikelihood):
        raise TypeError(f"Expected a SamplingNoiseLikelihood, got {type(likelihood).__name__}.")
    if not likelihood.raw_sampling_noise.requires_grad:
        return
    training = model.training
    model.train()
    (rows,) = model.train_inputs
    if isinstance(model, BoTorchModel):
        rows = model.transform_inputs(rows)
    with torch.no_grad(), exact_computations(), jitter_explained():
        density = _LeaveOneOut(model, rows.detach(), seed)
        if bool(density.excess.any()):
            likelihood.sampling_noise, bias = _maximise(density, likelihood.sampling_noise)
            likelihood.sampling_bias.copy_(bias)
    model.prediction_strategy = None
    model.train(training)


class _LeaveOneOut:
    """The mean log density of targets at subsets of their bags, without these bags."""

    def __init__(self, model: ExactGP, rows: Tensor, seed: int) -> None:
        self.bag, subsets = _subsets(model.likelihood, rows, seed)
        self.noise = model.likelihood.noise
        self.train_excess = model.likelihood.excess(rows)
        self.excess = model.likelihood.excess(subsets)
        self.targets = model.train_targets
        self.mean, self.subset_mean = model.mean_module(rows), model.mean_module(subsets)
        self.train_train = model.covar_module(rows).to_dense()
        self.subset_train = model.covar_module(subsets, rows).to_dense()
        self.variance = model.covar_module(subsets, diag=True)
        # Where all bags are of one size, posteriors do not depend on c.
        self.fixed = None if bool(self.train_excess.any()) else self._posterior(self.noise)

    def __call__(self, c: Tensor, b: Tensor) -> Tensor:
        """The density for each batch of ``c`` and ``b``, both ``batch_shape x 1``."""
        mean, variance = self.fixed or self._posterior(
            self.noise + (c + b * self.train_excess) * self.train_excess
        )
        variance = variance + self.noise + (c + b * self.excess) * self.excess
        error = self.targets[..., self.bag] - mean
        return -0.5 * (variance.log() + error.square() / variance).mean(-1, keepdim=True)

    def _posterior(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances at subsets by all other bags, given the noise of bags."""
        noisy = self.train_train + torch.diag_embed(noise.expand(self.targets.shape))
        inverse = torch.cholesky_inverse(psd_safe_cholesky(noisy))
        alpha = (inverse @ (self.targets - self.mean).unsqueeze(-1)).squeeze(-1)
        # Without bag i, the inverse is less by its column i times itself over the diagonal.
        column = (self.subset_train * inverse[..., self.bag, :]).sum(-1)
        diagonal = inverse.diagonal(dim1=-2, dim2=-1)[..., self.bag]
        mean = (self.subset_train @ alpha.unsqueeze(-1)).squeeze(-1)
        mean = self.subset_mean + mean - column * alpha[..., self.bag] / diagonal
        explained = (self.subset_train @ inverse * self.subset_train).sum(-1)
        variance = self.variance - explained + column.square() / diagonal
        return mean, variance.clamp_min(0)


def _subsets(likelihood: SamplingNoiseLikelihood, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The bags that rows are of, and the rows: bags and random subsets of their atoms."""
    generator = torch.Generator().manual_seed(seed)
    rows = drop_copies(rows)
    bags = torch.randperm(rows.shape[-2], generator=generator)[:_MAX_BAGS].to(rows.device)
    dims = likelihood.active_dims
    columns = slice(None) if dims is None else list(dims)
    points, weights = split_rows(rows[..., columns], likelihood.dim)
    sizes = (weights > 0).sum(-1).reshape(-1, rows.shape[-2]).amax(0)
    which, subsets = [bags], [rows[..., bags, :]]
    size = _SMALLEST_SUBSAMPLE
    while bool((sizes[bags] > size).any()):
        bags = bags[sizes[bags] > size]
        keys = torch.rand(weights[..., bags, :].shape, generator=generator).to(weights.device)
        keys[weights[..., bags, :] == 0] = 1  # padding comes last
        chosen = keys.argsort(dim=-1)[..., :size]
        kept = torch.zeros_like(keys, dtype=torch.bool).scatter(-1, chosen, True)
        part = rows[..., bags, :]
        part[..., columns] = join_rows(points[..., bags, :, :], weights[..., bags, :] * kept)
        which.append(bags)
        subsets.append(part)
        size *= 2
    return torch.cat(which), torch.cat(subsets, dim=-2)


def _maximise(density: _LeaveOneOut, like: Tensor) -> tuple[Tensor, Tensor]:
    """The ``c`` and ``b`` of the highest density, by L-BFGS on their logarithms."""
    most = density.excess.max()
    scale = (density.targets.var() / torch.stack([most, most.square()])).log()
    low, high = ((scale + math.log(share)).repeat(like.numel(), 1) for share in _SHARES)

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        c, b = x.reshape(*like.shape, 2).exp().unbind(-1)
        return c, b

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        x = torch.from_numpy(values).to(like).requires_grad_()
        with torch.enable_grad():
            value = -density(*both(x)).sum()
        (gradient,) = torch.autograd.grad(value, x)
        return value.item(), gradient.double().cpu().numpy()

    bounds = torch.stack([low, high], dim=-1).reshape(-1, 2).double().cpu().numpy()
    found = minimize(loss, bounds.mean(-1), jac=True, method="L-BFGS-B", bounds=bounds)
    return both(torch.from_numpy(found.x).to(like))
