"""Class probabilities of independent normal scores."""

from __future__ import annotations

import torch
from torch import Tensor


def expected_softmax(mean: Tensor, std: Tensor) -> Tensor:
    r"""Expectation of the softmax of independent normal variables.

    For independent standard exponential variables :math:`E_c`, the probability that
    :math:`E_c e^{-f_c}` is the smallest over all classes is :math:`\mathrm{softmax}_c(f)`. Hence, with
    :math:`L_c(u) = \mathbb{E} \exp(-e^{f_c + u})`,

    .. math::
        \mathbb{E} \, \mathrm{softmax}_c(f) = - \int L_c'(u) \prod_{j \ne c} L_j(u) \, du.

    Both this integral and the normal expectation are computed by the trapezoidal rule, whose error
    decays exponentially for such functions. The error is below 1e-6 for standard deviations up to 4.

    Args:
        mean: A ``... x C`` tensor of means.
        std: A ``... x C`` tensor of standard deviations.

    Returns:
        A ``... x C`` tensor of probabilities.
    """
    reach, tail = 6.0, 16.0
    low = -tail - (mean + std.square() / 2).logsumexp(-1)
    high = 3.5 + (reach * std - mean).amin(-1)
    steps = torch.linspace(0, 1, 128, dtype=mean.dtype, device=mean.device)
    u = (low + (high - low) * steps.view(-1, *[1] * low.dim())).unsqueeze(-1)
    nodes = torch.linspace(-reach, reach, 64, dtype=mean.dtype, device=mean.device)
    weights = torch.softmax(-nodes.square() / 2, 0)
    value, slope = torch.zeros_like(u + mean), torch.zeros_like(u + mean)
    for node, weight in zip(nodes, weights, strict=True):
        exponential = (u + mean + std * node).exp()
        part = weight * (-exponential).exp()
        value += part
        slope += exponential * part
    logs = value.clamp_min(torch.finfo(mean.dtype).tiny).log()
    density = slope * (logs.sum(-1, keepdim=True) - logs).exp()
    integral = density.sum(0)
    return integral / integral.sum(-1, keepdim=True)
