"""The marginal likelihood of a model with one distribution kernel, with its gradient in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from linear_operator.utils.errors import NanError
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.fitting.starts import noise_of
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.profiles import Profile
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.numerics.linear_algebra import log_densities
from gp_distributions.numerics.pairwise import squared_euclidean

# Of more clouds, the factor of their matrix takes most of the time, and other matrices memory.
_MOST = 1000
# Squares of larger features would overflow.
_LARGEST = 1e150


def closed_form(model: Any) -> Callable[[], Tensor] | None:
    """Return the marginal likelihood of a model in training mode as a function, if its form is known.

    It is for one output and a scaled :class:`DistributionKernel` whose distance and profile are fixed.
    What they read of the clouds is then computed once, and gradients take few products of matrices. The
    function has no arguments, and returns the log marginal likelihood plus the log densities of the
    priors for each cloud.
    """
    if not _is_known(model):
        return None
    kernel: DistributionKernel = model.covar_module.base_kernel
    rows = model.embedded_rows(model.train_inputs[0])
    priors = [(prior, closure, module) for _, module, prior, closure, _ in model.named_priors()]
    with torch.no_grad():
        fixed = kernel.features(rows) if kernel.is_ard else kernel.unscaled(rows, rows)

    def evaluate() -> Tensor:
        scales = kernel.lengthscale, model.covar_module.outputscale
        covariance = _Covariance.apply(fixed, *scales, kernel.profile)
        errors = model.train_targets - model.mean_module(rows.rows)
        total = log_densities(errors.unsqueeze(-1), covariance, noise_of(model, rows)).sum()
        for prior, closure, module in priors:
            total = total + prior.log_prob(closure(module)).sum()
        return total / len(errors)

    return evaluate


def _is_known(model: Any) -> bool:
    kernel = model.covar_module
    base = getattr(kernel, "base_kernel", None)
    return (
        isinstance(model, DistributionGP)
        and model.train_targets.dim() == 1
        and len(model.train_targets) <= _MOST
        and type(kernel) is ScaleKernel
        and isinstance(base, DistributionKernel)
        and type(base).forward is DistributionKernel.forward
        and kernel.active_dims is None
        and not kernel.batch_shape
        and not hasattr(model, "input_transform")
        and not any(
            p.requires_grad for p in (*base.distance.parameters(), *base.profile.parameters())
        )
    )


class _Covariance(torch.autograd.Function):
    r"""A profile times an outputscale.

    Squared distances or inner products, ``T x T``, are divided by the squared lengthscale; features,
    ``T x D``, by a lengthscale each. With :math:`W` the gradient with respect to the squared distances
    of scaled features :math:`F`, that with respect to :math:`\ell_k` is

    .. math:: -\frac{4}{\ell_k} \sum_i F_{ik} \bigl( F_{ik} (W 1)_i - (W F)_{ik} \bigr).
    """

    @staticmethod
    def forward(
        ctx: Any, fixed: Tensor, lengthscale: Tensor, outputscale: Tensor, profile: Profile
    ) -> Tensor:
        ctx.features = fixed / lengthscale if lengthscale.numel() > 1 else None
        if ctx.features is None:
            scaled = fixed / lengthscale.square()
        elif not bool((ctx.features.abs() < _LARGEST).all()):
            raise NanError("Expected finite squared distances, got features too large for them.")
        else:
            scaled = squared_euclidean(ctx.features, ctx.features)
        with torch.enable_grad():
            ctx.profiled = profile(scaled.requires_grad_())
        ctx.save_for_backward(scaled, lengthscale, outputscale)
        return ctx.profiled.detach() * outputscale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scaled, lengthscale, outputscale = ctx.saved_tensors
        (weights,) = torch.autograd.grad(ctx.profiled, scaled, gradient * outputscale)
        if ctx.features is None:
            found = -2 * (weights * scaled).sum() / lengthscale
        else:
            sums = ctx.features * weights.sum(-1, keepdim=True) - weights @ ctx.features
            found = -4 * (ctx.features * sums).sum(0) / lengthscale
        return None, found, (gradient * ctx.profiled).sum(), None
