"""Student's t distribution; the normal distribution is the one of infinitely many degrees of freedom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor


def log_density(z: Tensor, degrees: Tensor) -> Tensor:
    """Compute log densities of standard Student's t distributions.

    Args:
        z: A tensor of any shape.
        degrees: Degrees of freedom, which broadcast with ``z``; infinity for the normal distribution.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.student_t import log_density
        >>> log_density(torch.zeros(2), torch.tensor([1.0, torch.inf])).exp()  # 1 / pi, 1 / sqrt(2 pi)
        tensor([0.3183, 0.3989])
    """
    normal = degrees.isinf()
    nu = degrees.masked_fill(normal, 1.0)
    constant = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - (math.pi * nu).log() / 2
    heavy = constant - (nu + 1) / 2 * torch.log1p(z.square() / nu)
    return torch.where(normal, -(z.square() + math.log(2 * math.pi)) / 2, heavy)


def cdf(z: Tensor, degrees: Tensor) -> Tensor:
    """Compute distribution functions of standard Student's t distributions, with gradients in ``z``.

    Args:
        z: A tensor of any shape.
        degrees: Degrees of freedom, which broadcast with ``z``; infinity for the normal distribution.

    Returns:
        A tensor of the broadcast shape.
    """
    return _Cdf.apply(*torch.broadcast_tensors(z, degrees))


class _Cdf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, degrees: Tensor) -> Tensor:
        ctx.save_for_backward(z, degrees)
        values = torch.erfc(-z / math.sqrt(2)) / 2  # precise in the tail, unlike ndtr
        heavy = degrees.isfinite()
        if bool(heavy.any()):
            found = scipy.special.stdtr(
                *(part[heavy].double().cpu().numpy() for part in (degrees, z))
            )
            values[heavy] = torch.as_tensor(found).to(values)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * log_density(*ctx.saved_tensors).exp(), None


def quantile(level: float, degrees: Tensor) -> Tensor:
    """Compute quantiles of standard Student's t distributions.

    Args:
        level: A probability in (0, 1).
        degrees: Degrees of freedom, a tensor of any shape; infinity for the normal distribution.

    Returns:
        A tensor of the shape of ``degrees``.
    """
    numbers = degrees.double().cpu().numpy()
    return torch.as_tensor(scipy.special.stdtrit(numbers, level)).to(degrees)


def stretches(normals: Tensor, degrees: Tensor) -> Tensor:
    r"""Compute factors that turn normal vectors into vectors with Student's t distribution.

    The factor is :math:`\sqrt{\nu / c}`, where :math:`c` has the chi-squared distribution with
    :math:`\nu` degrees of freedom. It is the quantile of :math:`c` at the level of a normal variable.

    Args:
        normals: Standard normal variables, a tensor of any shape.
        degrees: Degrees of freedom :math:`\nu`, which broadcast with ``normals``; infinity for the
            normal distribution, whose factor is one.

    Returns:
        A tensor of the broadcast shape, without gradients.
    """
    normals, degrees = torch.broadcast_tensors(normals.detach(), degrees)
    factors = torch.ones_like(normals)
    heavy = degrees.isfinite()
    if bool(heavy.any()):
        z, nu = (part[heavy].double().cpu().numpy() for part in (normals, degrees))
        # The inverse of the nearer tail, which is never rounded to 0 or 1.
        tail = scipy.special.ndtr(-abs(z))
        inverse = np.where(
            z < 0, scipy.special.gammaincinv(nu / 2, tail), scipy.special.gammainccinv(nu / 2, tail)
        )
        factors[heavy] = torch.as_tensor(np.sqrt(nu / (2 * inverse))).to(factors)
    return factors
