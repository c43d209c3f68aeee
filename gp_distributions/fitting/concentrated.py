"""The restricted likelihood at the best outputscale for given lengthscales and ratios of noise."""

from __future__ import annotations

import math
from typing import Any

import torch
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.constraints import Positive
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError
from scipy.special import wrightomega
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.fitting.lbfgs import Pair
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.priors import LogarithmPrior
from gp_distributions.kernels.profiles import Profile
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
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
# Likelihoods whose variances are profiled out.
_LIKELIHOODS = GaussianLikelihood, SamplingNoiseLikelihood
# Squares of larger features would overflow.
_LARGEST = 1e150


class ConcentratedLikelihood:
    r"""The log marginal likelihood of a model for each cloud, at its best outputscale.

    The level is integrated, so that this is the restricted likelihood, of contrasts of targets. Let
    :math:`s C` be the covariances of ``T`` clouds, whose variances have the mean :math:`s`; :math:`r_j`
    the ratios of noise variances to it, of which that of sampling is multiplied by the typical size over
    that of a bag, in :math:`N`; and :math:`M = C + N`. For given :math:`C` and :math:`r`,

    .. math::
        m = \frac{1^\top M^{-1} y}{1^\top M^{-1} 1}, \qquad
        s = \arg\max_s\; -\frac{T - 1}2 \log s - \frac q{2 s} + \sum_j \log p_j(r_j s), \qquad
        q = (y - m 1)^\top M^{-1} (y - m 1),

    where :math:`p_j` are the priors of the noise, and of the outputscale, whose ratio is one over the
    mean of the variances without it. With a mean of zero, :math:`m = 0` and :math:`T` takes the place of
    :math:`T - 1`. If they are log-normal with locations :math:`\mu_j` and scales
    :math:`\sigma_j`, then :math:`u = \log s` solves :math:`a + b u = q e^{-u} / 2` with

    .. math::
        a = \frac{T - 1}2 + \sum_j \Bigl(\iota_j + \frac{\log r_j - \mu_j}{\sigma_j^2}\Bigr), \qquad
        b = \sum_j \sigma_j^{-2},

    where :math:`\iota_j` is 1 if the density is that of the variance, and 0 if of its logarithm. In
    terms of Wright's function, :math:`u = \omega(a / b + \log(q / 2 b)) - a / b`. The noise stays
    within its bound. The likelihood is a function of :math:`\log r` and of what :math:`C` depends on,
    and takes about half as many evaluations to maximise as one of all parameters. Outputs with
    hyperparameters of their own add their likelihoods.

    Args:
        model: A model in training mode that :func:`has_concentrated`. Each evaluation sets its mean,
            outputscale and noise.

    Attributes:
        parameters: What the likelihood is a function of, by name.
        bounds: Lower and upper bounds.

    Sources: Rasmussen and Williams 2006, section 2.7 (the level); Santner, Williams and Notz 2003,
    section 3.3 (the outputscale).
    """

    def __init__(self, model: DistributionGP) -> None:
        kernel, likelihood = model.covar_module, model.likelihood
        noise = likelihood.noise_covar
        self._model, self._noise, self._base = model, noise, kernel.base_kernel
        self._rows = model.compared_rows
        self._fixed = FixedCovariance(self._base, self._rows)
        targets = model.train_targets.double()
        self._has_level = model.integrates_level
        # Number of contrasts of targets that do not depend on the level.
        self._contrasts = targets.shape[-1] - self._has_level
        self._columns = torch.stack([targets, torch.ones_like(targets)], dim=-1)
        self._samples = isinstance(likelihood, SamplingNoiseLikelihood)
        shares = [torch.ones_like(targets)]
        values = [noise.noise]
        own = [(kernel, "outputscale_prior"), (noise, "noise_prior")]
        if self._samples:
            with torch.no_grad():
                shares.append(likelihood.ratios(model.compared_rows).double().expand_as(targets))
            values.append(likelihood.sampling_noise)
            own.append((likelihood, "sampling_noise_prior"))
        # The variances of noise at clouds, relative to each of its parts, ... x parts x T.
        self._shares = torch.stack(shares, dim=-2)
        # Priors of the outputscale and of each part of the noise, or None.
        self._scale_priors = [getattr(module, name, None) for module, name in own]
        solved = [module for module, _ in own]
        self._priors = [(p, c, m) for _, m, p, c, _ in model.named_priors() if m not in solved]
        lowest = float(noise.raw_noise_constraint.lower_bound)
        # The raw parameter of a value on a bound may be infinite.
        self._lowest = math.log(lowest * (1 + 1e-9)) if lowest > 0 else -math.inf
        with torch.no_grad():
            variances = covariance(kernel, self._rows, diag=True).mean(-1, keepdim=True)
            ratios = torch.cat(values, dim=-1).double() / variances
            least = math.log(_RATIOS[variances.dtype])
            self._log_ratio = ratios.log().clamp_min(least).requires_grad_()
        parameters, self.bounds = get_parameters_and_bounds(model, requires_grad=True)
        solved_by = [kernel.raw_outputscale, noise.raw_noise]
        solved_by += [model.mean_module.raw_constant] if self._has_level else []
        solved_by += [likelihood.raw_sampling_noise] if self._samples else []
        self.parameters = {"log_ratio": self._log_ratio} | {
            name: value
            for name, value in parameters.items()
            if not any(value is each for each in solved_by)
        }
        self.bounds["log_ratio"] = least, None

    def __call__(self) -> Tensor:
        """Return the likelihood plus the log densities of the priors, divided by ``T``."""
        covariances, unit = self._covariances()
        noise = (self._log_ratio.exp().unsqueeze(-1) * self._shares).sum(-2)
        forms, logdet = quadratic_forms(self._columns, covariances, noise)
        errors = forms[..., 0, 0]
        if self._has_level:
            level = forms[..., 0, 1] / forms[..., 1, 1]
            errors = errors - forms[..., 0, 1] * level
            self._set_level(level)
        # Logarithms of the outputscale and of the parts of the noise, for s = 1.
        logs = torch.cat([-unit.log().unsqueeze(-1), self._log_ratio], dim=-1)
        log_scale = self._log_scale(errors, logs.detach())
        values = (log_scale.unsqueeze(-1) + logs).exp()
        self._set(values)
        normal = self._contrasts * (log_scale + math.log(2 * math.pi))
        normal = normal + errors * (-log_scale).exp() + logdet
        if self._has_level:
            normal = normal + forms[..., 1, 1].log()
        total = -0.5 * normal.sum()
        for prior, value in zip(self._scale_priors, values.unbind(-1), strict=True):
            if prior is not None:
                total = total + prior.log_prob(value).sum()
        for prior, closure, module in self._priors:
            total = total + prior.log_prob(closure(module)).sum()
        return total / self._columns.shape[-2]

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
        argument, inner = self._fixed.argument, self._fixed.products
        if argument is None or kernel.is_ard or not kernel.profile.radial:
            return []
        outputs = self._log_ratio[..., 0].numel()
        own = [kernel.raw_lengthscale, *([kernel.raw_linear_variance] if kernel.linear else [])]
        learned = list(self.parameters.values())[1:]
        if len(learned) != len(own) or any(
            each is not raw or raw.numel() != outputs
            for each, raw in zip(learned, own, strict=True)
        ):
            return []
        with torch.enable_grad():
            logarithm = kernel.lengthscale.log().sum()
            (growth,) = torch.autograd.grad(logarithm, kernel.raw_lengthscale)
            scaled = (argument / kernel.lengthscale.detach().square()).requires_grad_()
            profiles = kernel.profile(scaled)
            (slopes,) = torch.autograd.grad(profiles.sum(), scaled)
        covariances, unit = self._covariances()
        size = covariances.shape[-1]
        noise = self._log_ratio.exp().unsqueeze(-1) * self._shares
        noisy = covariances.double()
        torch.linalg.diagonal(noisy).add_(noise.sum(-2))
        inverse = torch.cholesky_inverse(cholesky(noisy))
        changes = [-2 * growth * scaled * slopes]
        if inner is not None:
            changes.append(kernel.linear_variance * inner)
        columns = [inverse * each.unsqueeze(-2) for each in noise.unbind(-2)]
        columns += [inverse @ (each / unit[..., None, None]).double() for each in changes]
        every = torch.stack(columns, dim=-3)
        traces = torch.linalg.diagonal(every).sum(-1)
        products = torch.einsum("...aij,...bji->...ab", every, every) / (2 * size)
        information = products - traces.unsqueeze(-1) * traces.unsqueeze(-2) / (2 * size**2)
        values, vectors = torch.linalg.eigh(
            information.view(outputs, *information.shape[-2:]).cpu()
        )
        parts = self._log_ratio.shape[-1]
        # A direction moves the ratios, the lengthscale and the linear term of one output.
        which = torch.eye(outputs, dtype=values.dtype)
        pairs: list[Pair] = []
        for output in range(outputs):
            for value, vector in zip(values[output], vectors[output].mT, strict=True):
                ratios = torch.outer(which[output], vector[:parts]).flatten()
                rest = torch.outer(vector[parts:], which[output]).flatten()
                direction = torch.cat([ratios, rest])
                pairs.append((direction, value.clamp_min(_LEAST) * direction))
        return pairs

    def _covariances(self) -> tuple[Tensor, Tensor]:
        """Return covariances of mean variance one, and the mean variances for outputscale one."""
        found = self._fixed()
        unit = torch.linalg.diagonal(found).mean(-1)
        return found / unit[..., None, None], unit

    def _log_scale(self, errors: Tensor, logs: Tensor) -> Tensor:
        """Return the best logarithm of ``s``, with a gradient of zero, or that of the bound."""
        size, log_ratio = self._columns.shape[-2], self._log_ratio[..., 0]
        least = errors.detach().clamp_min(_ERROR * size)
        if not bool((least.unsqueeze(-1) + logs).isfinite().all()):
            raise NanError(
                f"Expected finite squared errors, got {errors.tolist()} at ratios of logarithms "
                f"{logs.tolist()}."
            )
        precision, linear = torch.zeros_like(least), torch.full_like(least, self._contrasts / 2)
        for prior, log in zip(self._scale_priors, logs.unbind(-1), strict=True):
            if prior is not None:
                location, variance = prior.loc.to(log), prior.scale.to(log).square()
                precision = precision + 1 / variance
                of_values = not isinstance(prior, LogarithmPrior)  # rather than of their logarithms
                linear = linear + of_values + (log - location) / variance
        if not any(self._scale_priors):
            best = (least / max(self._contrasts, 1)).log()
        else:
            power = linear / precision
            omega = wrightomega((power + (0.5 * least / precision).log()).numpy(force=True))
            best = torch.as_tensor(omega).to(power) - power
        return torch.where(best + log_ratio.detach() < self._lowest, self._lowest - log_ratio, best)

    @torch.no_grad()
    def _set_level(self, level: Tensor) -> None:
        self._model.mean_module.raw_constant.copy_(level)

    @torch.no_grad()
    def _set(self, values: Tensor) -> None:
        kernel, own = self._model.covar_module, self._noise
        outputscale, noise, *rest = values.unbind(-1)
        kernel.raw_outputscale.copy_(
            kernel.raw_outputscale_constraint.inverse_transform(outputscale)
        )
        raw = own.raw_noise_constraint.inverse_transform(noise)
        own.raw_noise.copy_(raw.view_as(own.raw_noise))
        for value in rest:
            self._model.likelihood.sampling_noise = value.unsqueeze(-1)


def has_concentrated(model: Any) -> bool:
    """Whether each output learns an outputscale and its noise freely, and its mean too or not at all."""
    if not isinstance(model, DistributionGP) or type(model.likelihood) not in _LIKELIHOODS:
        return False
    kernel, mean, likelihood = model.covar_module, model.mean_module, model.likelihood
    if type(kernel) is not ScaleKernel or not (model.integrates_level or type(mean) is ZeroMean):
        return False
    noise = likelihood.noise_covar
    free = [kernel.raw_outputscale, noise.raw_noise, *mean.parameters()]
    own = [getattr(kernel, "outputscale_prior", None), getattr(noise, "noise_prior", None)]
    if isinstance(likelihood, SamplingNoiseLikelihood):
        free.append(likelihood.raw_sampling_noise)
        own.append(likelihood.sampling_noise_prior)
    transform = getattr(model, "input_transform", torch.nn.Identity())
    shape = model.train_targets.shape[:-1]
    return (
        kernel.base_kernel.batch_shape == shape
        and not any(parameter.requires_grad for parameter in transform.parameters())
        and all(
            parameter.requires_grad and parameter.numel() == shape.numel() for parameter in free
        )
        and not hasattr(mean, "raw_constant_constraint")
        and math.isinf(noise.raw_noise_constraint.upper_bound)
        and type(kernel.raw_outputscale_constraint) is Positive
        and all(
            prior is None
            or (type(prior) in (LogNormalPrior, LogarithmPrior) and prior.loc.numel() == 1)
            for prior in own
        )
    )


class FixedCovariance:
    """Covariances of clouds, whose squared distances are computed once if they do not change.

    Args:
        kernel: A kernel, whose hyperparameters change.
        rows: The clouds.

    Attributes:
        argument: What the profile of the kernel reads of few clouds, or None.
        products: The inner products of a linear term, or None.
    """

    def __init__(self, kernel: Any, rows: EmbeddedRows) -> None:
        self.kernel, self.rows = kernel, rows
        self.argument: Tensor | None = None
        self.products: Tensor | None = None
        if type(kernel).forward is not DistributionKernel.forward or kernel.active_dims is not None:
            return
        parts = kernel.distance, kernel.profile
        changes = any(parameter.requires_grad for part in parts for parameter in part.parameters())
        if changes or rows.rows.shape[-2] > _MOST:
            return
        with torch.no_grad():
            self.argument = kernel.features(rows) if kernel.is_ard else kernel.unscaled(rows, rows)
            if kernel.linear:
                self.products = kernel.inner_products(rows, rows, self.argument)

    def __call__(self) -> Tensor:
        """Return the covariances, with closed-form gradients."""
        kernel = self.kernel
        if self.argument is None:
            return covariance(kernel, self.rows)
        found: Tensor = _Profiled.apply(self.argument, kernel.lengthscale, kernel.profile)
        return found if self.products is None else found + kernel.linear_variance * self.products


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
