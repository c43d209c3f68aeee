"""The marginal likelihood at the best mean and outputscale for given lengthscales and ratio of noise."""

from __future__ import annotations

import math
from typing import Any

import torch
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.constraints import Positive
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError
from scipy.special import wrightomega
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.fitting.lbfgs import Pair
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.profiles import Profile
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.numerics.linear_algebra import cholesky, quadratic_forms
from gp_distributions.numerics.pairwise import squared_euclidean

# The smallest ratio of noise to the variance of the function, at which Cholesky factors keep digits.
_RATIOS = {torch.float64: 1e-8, torch.float32: 1e-5}
# The least mean squared error of targets of variance one, which the mean may explain entirely.
_ERROR = 1e-20
# Of more clouds, the factor of their matrix takes most of the time, and other matrices memory.
_MOST = 1000
# Where the likelihood hardly curves, in nats per cloud, steps would be too long.
_LEAST = 0.01
# Squares of larger features would overflow.
_LARGEST = 1e150


class ConcentratedLikelihood:
    r"""The log marginal likelihood of a model for each cloud, at its best mean and outputscale.

    Let :math:`s C` be the covariances of ``T`` clouds, whose variances have the mean :math:`s`;
    :math:`r` the ratio of the noise variance to it; and :math:`M = C + r I`. For given :math:`C` and
    :math:`r`,

    .. math::
        m = \frac{1^\top M^{-1} y}{1^\top M^{-1} 1}, \qquad
        s = \arg\max_s\; -\frac T2 \log s - \frac q{2 s} + \log p(r s), \qquad
        q = (y - m 1)^\top M^{-1} (y - m 1),

    where :math:`p` is the prior of the noise. If it is log-normal with location :math:`\mu` and scale
    :math:`\sigma`, then :math:`u = \log s` solves :math:`a + u / \sigma^2 = q e^{-u} / 2` with
    :math:`a = T / 2 + 1 + (\log r - \mu) / \sigma^2`. In terms of Wright's function, :math:`u =
    \omega(\sigma^2 a + \log(\sigma^2 q / 2)) - \sigma^2 a`. The noise stays within its bound. The
    likelihood is a function of :math:`\log r` and of what :math:`C` depends on, and takes about half as
    many evaluations to maximise as one of all parameters. Outputs with hyperparameters of their own add
    their likelihoods.

    Args:
        model: A model in training mode that :func:`has_concentrated`. Each evaluation sets its mean,
            outputscale and noise.

    Attributes:
        parameters: What the likelihood is a function of, by name.
        bounds: Lower and upper bounds.

    Sources: Rasmussen and Williams 2006, section 2.7 (the mean); Santner, Williams and Notz 2003,
    section 3.3 (the outputscale).
    """

    def __init__(self, model: DistributionGP) -> None:
        kernel, noise = model.covar_module, model.likelihood.noise_covar
        self._model, self._noise, self._base = model, noise, kernel.base_kernel
        self._rows = model.compared_rows
        self._fixed = fixed_argument(self._base, self._rows)
        targets = model.train_targets.double()
        self._columns = torch.stack([targets, torch.ones_like(targets)], dim=-1)
        self._prior = getattr(noise, "noise_prior", None)
        self._priors = [(p, c, m) for _, m, p, c, _ in model.named_priors() if m is not noise]
        lowest = float(noise.raw_noise_constraint.lower_bound)
        # The raw parameter of a value on a bound may be infinite.
        self._lowest = math.log(lowest * (1 + 1e-9)) if lowest > 0 else -math.inf
        with torch.no_grad():
            variances = covariance(kernel, self._rows, diag=True)
            ratio = noise.noise.squeeze(-1).double() / variances.mean(-1)
            least = math.log(_RATIOS[variances.dtype])
            self._log_ratio = ratio.log().clamp_min(least).requires_grad_()
        parameters, self.bounds = get_parameters_and_bounds(model, requires_grad=True)
        solved = (kernel.raw_outputscale, noise.raw_noise, model.mean_module.raw_constant)
        self.parameters = {"log_ratio": self._log_ratio} | {
            name: value
            for name, value in parameters.items()
            if not any(value is each for each in solved)
        }
        self.bounds["log_ratio"] = least, None

    def __call__(self) -> Tensor:
        """Return the likelihood plus the log densities of the priors, divided by ``T``."""
        covariances, unit = self._covariances()
        size = covariances.shape[-1]
        noise = self._log_ratio.exp().unsqueeze(-1).expand(self._columns.shape[:-1])
        forms, logdet = quadratic_forms(self._columns, covariances, noise)
        mean = forms[..., 0, 1] / forms[..., 1, 1]
        errors = forms[..., 0, 0] - forms[..., 0, 1] * mean
        log_scale = self._log_outputscale(errors)
        log_noise = log_scale + self._log_ratio
        self._set(mean, log_scale.exp() / unit, log_noise.exp())
        normal = size * (log_scale + math.log(2 * math.pi)) + errors * (-log_scale).exp() + logdet
        total = -0.5 * normal.sum()
        if self._prior is not None:
            total = total + self._prior.log_prob(log_noise.exp()).sum()
        for prior, closure, module in self._priors:
            total = total + prior.log_prob(closure(module)).sum()
        return total / size

    @torch.no_grad()
    def curvature(self) -> list[Pair]:
        r"""Return the expected curvature at the current values, the Fisher information divided by ``T``.

        With :math:`A_i = M^{-1} \partial_i M` and the outputscale at its best,

        .. math:: F_{ij} = \frac{1}{2 T} \operatorname{tr}(A_i A_j)
            - \frac{1}{2 T^2} \operatorname{tr}(A_i) \operatorname{tr}(A_j).

        There is none unless each output has one lengthscale, of a fixed distance.

        Source: Mardia and Marshall 1984.
        """
        kernel = self._base
        if self._fixed is None or kernel.is_ard or not kernel.profile.radial:
            return []
        outputs = self._log_ratio.numel()
        sizes = [parameter.numel() for parameter in self.parameters.values()]
        if sizes != [outputs, outputs]:  # ratios and lengthscales
            return []
        with torch.enable_grad():
            logarithm = kernel.lengthscale.log().sum()
            (growth,) = torch.autograd.grad(logarithm, kernel.raw_lengthscale)
            scaled = (self._fixed / kernel.lengthscale.detach().square()).requires_grad_()
            covariances = kernel.profile(scaled)
            (slopes,) = torch.autograd.grad(covariances.sum(), scaled)
        ratio, size = self._log_ratio.exp()[..., None, None], covariances.shape[-1]
        noisy = covariances.detach().double()
        torch.linalg.diagonal(noisy).add_(ratio.squeeze(-1))
        inverse = torch.cholesky_inverse(cholesky(noisy))
        of_raw = inverse @ (-2 * growth * scaled * slopes).double()
        both = torch.stack([inverse * ratio, of_raw], dim=-3)
        traces = torch.linalg.diagonal(both).sum(-1)
        products = torch.einsum("...aij,...bji->...ab", both, both) / (2 * size)
        information = products - traces.unsqueeze(-1) * traces.unsqueeze(-2) / (2 * size**2)
        values, vectors = torch.linalg.eigh(information.view(-1, 2, 2).cpu())
        # Each direction moves the ratio and the lengthscale of one output.
        which = torch.eye(outputs, dtype=values.dtype)[:, None, None]
        directions = (vectors.mT.unsqueeze(-1) * which).flatten(-2).flatten(0, 1)
        changes = values.clamp_min(_LEAST).view(-1, 1) * directions
        return list(zip(directions, changes, strict=True))

    def _covariances(self) -> tuple[Tensor, Tensor | float]:
        """Return covariances of mean variance one, and the mean variances for outputscale one."""
        if self._fixed is None:
            found = covariance(self._base, self._rows)
        else:
            found = profiled(self._fixed, self._base)
            if self._base.profile.radial:
                return found, 1.0
        unit = torch.linalg.diagonal(found).mean(-1)
        return found / unit[..., None, None], unit

    def _log_outputscale(self, errors: Tensor) -> Tensor:
        """Return the best logarithms of outputscales, with gradients of zero, or those of the bound."""
        size = self._columns.shape[-2]
        least, log_ratio = errors.detach().clamp_min(_ERROR * size), self._log_ratio.detach()
        if not bool((least + log_ratio).isfinite().all()):
            raise NanError(
                f"Expected finite squared errors, got {errors.tolist()} at ratios of logarithms "
                f"{log_ratio.tolist()}."
            )
        if self._prior is None:
            best = (least / size).log()
        else:
            location, variance = self._prior.loc.item(), self._prior.scale.item() ** 2
            power = variance * (0.5 * size + 1) + log_ratio - location
            omega = wrightomega((power + (0.5 * variance * least).log()).numpy(force=True))
            best = torch.as_tensor(omega).to(power) - power
        return torch.where(best + log_ratio < self._lowest, self._lowest - self._log_ratio, best)

    @torch.no_grad()
    def _set(self, mean: Tensor, outputscale: Tensor, noise: Tensor) -> None:
        kernel, own = self._model.covar_module, self._noise
        self._model.mean_module.raw_constant.copy_(mean)
        kernel.raw_outputscale.copy_(
            kernel.raw_outputscale_constraint.inverse_transform(outputscale)
        )
        raw = own.raw_noise_constraint.inverse_transform(noise)
        own.raw_noise.copy_(raw.view_as(own.raw_noise))


def has_concentrated(model: Any) -> bool:
    """Whether each output of a model learns a mean, an outputscale and a noise variance freely."""
    if not isinstance(model, DistributionGP) or type(model.likelihood) is not GaussianLikelihood:
        return False
    kernel, mean, noise = model.covar_module, model.mean_module, model.likelihood.noise_covar
    if type(kernel) is not ScaleKernel or type(mean) is not ConstantMean:
        return False
    free = kernel.raw_outputscale, mean.raw_constant, noise.raw_noise
    transform = getattr(model, "input_transform", torch.nn.Identity())
    with_prior = {id(module) for _, module, *_ in model.named_priors()}
    prior, shape = getattr(noise, "noise_prior", None), model.train_targets.shape[:-1]
    return (
        kernel.base_kernel.batch_shape == shape
        and not any(parameter.requires_grad for parameter in transform.parameters())
        and all(
            parameter.requires_grad and parameter.numel() == shape.numel() for parameter in free
        )
        and not with_prior & {id(kernel), id(mean)}
        and not hasattr(mean, "raw_constant_constraint")
        and math.isinf(noise.raw_noise_constraint.upper_bound)
        and type(kernel.raw_outputscale_constraint) is Positive
        and (prior is None or (type(prior) is LogNormalPrior and prior.loc.numel() == 1))
    )


def fixed_argument(kernel: Any, rows: EmbeddedRows) -> Tensor | None:
    """Return what the profile of a kernel reads of few clouds, if it does not change, or None."""
    if type(kernel).forward is not DistributionKernel.forward or kernel.active_dims is not None:
        return None
    parts = kernel.distance, kernel.profile
    changes = any(parameter.requires_grad for part in parts for parameter in part.parameters())
    if changes or rows.rows.shape[-2] > _MOST:
        return None
    with torch.no_grad():
        return kernel.features(rows) if kernel.is_ard else kernel.unscaled(rows, rows)


def profiled(fixed: Tensor, kernel: DistributionKernel) -> Tensor:
    """Return the covariances that follow from :func:`fixed_argument`, with closed-form gradients."""
    found: Tensor = _Profiled.apply(fixed, kernel.lengthscale, kernel.profile)
    return found


class _Profiled(torch.autograd.Function):
    r"""A profile of scaled distances.

    Squared distances or inner products, ``... x T x T``, are divided by the squared lengthscale;
    features, ``... x T x D``, by a lengthscale each. With :math:`W` the gradient with respect to the
    squared distances of scaled features :math:`F`, that with respect to :math:`\ell_k` is

    .. math:: -\frac{4}{\ell_k} \sum_i F_{ik} \bigl( F_{ik} (W 1)_i - (W F)_{ik} \bigr).
    """

    @staticmethod
    def forward(ctx: Any, fixed: Tensor, lengthscale: Tensor, profile: Profile) -> Tensor:
        ctx.features = fixed / lengthscale if lengthscale.shape[-1] > 1 else None
        if ctx.features is None:
            scaled = fixed / lengthscale.square()
        elif not bool((ctx.features.abs() < _LARGEST).all()):
            raise NanError("Expected finite squared distances, got features too large for them.")
        else:
            scaled = squared_euclidean(ctx.features, ctx.features)
        with torch.enable_grad():
            ctx.profiled = profile(scaled.requires_grad_())
        ctx.save_for_backward(scaled, lengthscale)
        return ctx.profiled.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scaled, lengthscale = ctx.saved_tensors
        (weights,) = torch.autograd.grad(ctx.profiled, scaled, gradient)
        if ctx.features is None:
            found = -2 * (weights * scaled).sum((-2, -1), keepdim=True) / lengthscale
        else:
            sums = ctx.features * weights.sum(-1, keepdim=True) - weights @ ctx.features
            found = -4 * (ctx.features * sums).sum(-2, keepdim=True) / lengthscale
        return None, found, None
