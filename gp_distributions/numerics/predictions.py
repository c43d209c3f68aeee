"""Statistics of predictions: errors, class probabilities, and weights of mixtures of models."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


def refuse_mask(
    value: object, name: str, remedy: str = "leave out the masked entries, and pass the others"
) -> None:
    """Refuse a masked array.

    Args:
        value: What the caller passed.
        name: Its name in error messages.
        remedy: What to do.

    Raises:
        ValueError: If the value is a masked array.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name}: expected an array, got a masked array, whose mask would be lost; {remedy}."
        )


Values = Tensor | ArrayLike


def standardized_errors(
    y: Values, mean: Values, std: Values, *, outputs: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute ``(y - mean) / std`` in the highest precision of the three.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations.
        outputs: Whether the three may have a second axis, of outputs.

    Returns:
        The errors and the standard deviations, detached, on the device of ``std``.

    Raises:
        ValueError: If shapes differ or have other axes, a value is masked, complex or not finite, or a
            standard deviation is not positive.
    """
    names = ("Targets", "Means", "Standard deviations")
    values = [_tensor(v, name) for v, name in zip((y, mean, std), names, strict=True)]
    dtype = functools.reduce(torch.promote_types, [v.dtype for v in values])
    target, centre, std = (v.to(values[-1].device, dtype) for v in values)
    if not target.shape == centre.shape == std.shape or std.dim() not in (1, 1 + outputs):
        single = not outputs and std.dim() == 2
        advice = " Pass one output at a time: y[:, 0], mean[:, 0] and std[:, 0]." * single
        raise ValueError(
            "Expected targets, means and standard deviations of the same shape "
            f"{'(N,) or (N, outputs)' if outputs else '(N,)'}, got "
            f"{tuple(target.shape)}, {tuple(centre.shape)} and {tuple(std.shape)}.{advice}"
        )
    bad = (~(target.isfinite() & centre.isfinite() & std.isfinite() & (std > 0))).nonzero()
    if len(bad):
        first = tuple(bad[0].tolist())
        raise ValueError(
            "Expected finite targets and means, and standard deviations > 0, but those of bag "
            f"{first[0]} are {float(target[first])}, {float(centre[first])} and {float(std[first])}."
        )
    return (target - centre) / std, std


def _tensor(values: Values, name: str) -> Tensor:
    """Convert values to a tensor, copying arrays because columns of data frames are read-only."""
    refuse_mask(values, name)
    tensor = values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    if tensor.is_complex():
        raise ValueError(f"{name}: expected real numbers, got {tensor.dtype}.")
    return tensor if tensor.is_floating_point() else tensor.double()


# Number of softmaxes at a time, so that what they need stays in the cache.
_PART = 64


def expected_softmax(mean: Tensor, std: Tensor) -> Tensor:
    r"""Expectation of the softmax of independent normal variables.

    For independent standard exponential variables :math:`E_c`, the probability that
    :math:`E_c e^{-f_c}` is the smallest over all classes is :math:`\mathrm{softmax}_c(f)`. Hence, with
    :math:`L_c(u) = \mathbb{E} \exp(-e^{f_c + u})`,

    .. math::
        \mathbb{E} \, \mathrm{softmax}_c(f) = - \int L_c'(u) \prod_{j \ne c} L_j(u) \, du.

    Both this integral and the normal expectation are computed by the trapezoidal rule, whose error
    decays exponentially for such functions. The error is below 1e-6 for standard deviations up to 4.
    Where one exceeds 12, the softmax is close to one at the largest variable, whichever the unit, and
    all variables are scaled down.

    Args:
        mean: A ``... x C`` tensor of means.
        std: A ``... x C`` tensor of standard deviations.

    Returns:
        A ``... x C`` tensor of probabilities.
    """
    flat = (each.reshape(-1, each.shape[-1]).double().split(_PART) for each in (mean, std))
    found = torch.cat([_expected_softmax(*part) for part in zip(*flat, strict=True)])
    return found.view(mean.shape).to(mean.dtype)


def _expected_softmax(mean: Tensor, std: Tensor) -> Tensor:
    """Compute :func:`expected_softmax` of ``N x C`` tensors in double precision."""
    reach, tail, largest = 6.0, 16.0, 80.0
    unit = (std.amax(-1, keepdim=True) / 12).clamp_min(1)
    mean, std = mean / unit, std / unit
    low = -tail - (mean + (std.square() / 2).minimum(reach * std)).logsumexp(-1)
    high = 3.5 + (reach * std - mean).amin(-1)
    steps = torch.linspace(0, 1, 128, dtype=mean.dtype, device=mean.device)
    u = (low + (high - low) * steps.unsqueeze(-1)).unsqueeze(-1)
    nodes = torch.linspace(-reach, reach, 64, dtype=mean.dtype, device=mean.device)
    # From node to node, the exponential grows by the same factor.
    exponential = (u + mean - reach * std).clamp_max(largest).exp()
    growth = (std * (nodes[1] - nodes[0]).item()).exp()
    value, slope = torch.zeros_like(u + mean), torch.zeros_like(u + mean)
    for weight in torch.softmax(-nodes.square() / 2, 0).tolist():
        part = (-exponential).exp()
        value.add_(part, alpha=weight)
        slope.addcmul_(exponential, part, value=weight)
        # Infinity times zero would be no number.
        exponential = (exponential * growth).clamp_max(math.exp(largest))
    logs = value.clamp_min(torch.finfo(mean.dtype).tiny).log()
    density = slope * (logs.sum(-1, keepdim=True) - logs).exp()
    integral = density.sum(0)
    return integral / integral.sum(-1, keepdim=True)


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    r"""Raise probabilities to the power :math:`1 / \tau`, and divide them by their sum.

    .. math::
        q_c = \frac{p_c^{1 / \tau}}{\sum_j p_j^{1 / \tau}}

    Args:
        probabilities: A ``... x C`` tensor of probabilities :math:`p`.
        temperature: The temperature :math:`\tau > 0`. Below 1, large probabilities become larger.

    Returns:
        A ``... x C`` tensor; ``probabilities`` itself if the temperature is 1.

    Source: Guo, Pleiss, Sun and Weinberger 2017, eq. 9.
    """
    if temperature == 1:
        return probabilities
    return (probabilities.log() / temperature).softmax(-1)


def log_probabilities(
    probabilities: Tensor, labels: Tensor, temperatures: Sequence[float]
) -> Tensor:
    """Return the log probabilities of labels at several temperatures.

    Args:
        probabilities: An ``N x C`` tensor.
        labels: The ``N`` class indices.
        temperatures: The ``K`` temperatures.

    Returns:
        An ``N x K`` tensor.
    """
    logs, index = probabilities.log(), labels.unsqueeze(-1)
    each = [(logs / t).log_softmax(-1).gather(-1, index) for t in temperatures]
    return torch.cat(each, dim=-1)


# Weights below this are rounding errors of the optimiser.
_NONE = 1e-7
# Log densities further below the largest of their row do not change the weights.
_LOWEST = -700.0


def stacking_weights(log_densities: Tensor, *, prior: float = 0.0) -> Tensor:
    r"""Compute the weights that maximise the held-out log density of a mixture.

    With :math:`p_{ik}` the density of target ``i`` under model ``k``, which has not seen it, the weights
    solve the convex problem

    .. math::
        \max_{w \ge 0,\ \sum_k w_k = 1}
        \sum_i \log \sum_k w_k\, p_{ik} + \lambda \sum_k \log w_k.

    The second term is the logarithm of a Dirichlet density with the concentrations
    :math:`1 + \lambda`. With :math:`\lambda > 0`, every model keeps a small weight, of at least
    :math:`\lambda / (T + K \lambda)`: a hedge against targets that the models of large weight deem
    impossible, since few held-out targets show no such target. The constraint :math:`\sum_k w_k = 1` is
    replaced by the penalty :math:`-(T + K \lambda) \sum_k w_k`, under which it holds at the maximum.

    Args:
        log_densities: The logarithms of :math:`p_{ik}`, a ``T x K`` tensor. A density may be zero.
        prior: The number :math:`\lambda` of targets, beside the ``T`` that were observed, that each
            model alone predicts.

    Returns:
        The weights, a tensor of length ``K`` in double precision. With ``prior=0``, the weights of
        models that do not improve the mixture are exactly zero.

    Raises:
        ValueError: If a log density is NaN or infinite above zero, or every density of a target is zero.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.predictions import stacking_weights
        >>> densities = torch.tensor([[0.9, 0.1, 0.2], [0.9, 0.1, 0.2], [0.1, 0.9, 0.2]])
        >>> stacking_weights(densities.log()).round(decimals=3)
        tensor([0.7080, 0.2920, 0.0000], dtype=torch.float64)

    Sources: Yao, Vehtari, Simpson and Gelman 2018, eq. 4; Kim, Carbonetto, Stephens and Anitescu 2020
    (the penalty).
    """
    values = log_densities.detach().double().cpu().numpy()
    largest = values.max(-1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(largest[:, 0]))  # the largest is NaN if any is
    if len(bad):
        row = int(bad[0])
        raise ValueError(
            f"Expected a finite log density of target {row} under some model, got "
            f"{values[row].tolist()}."
        )
    # A model of density zero keeps a small one, so that the logarithm stays finite on the way.
    densities = np.exp(np.maximum(values - largest, _LOWEST))
    targets, count = values.shape
    share, total = prior / targets, 1 + count * prior / targets
    least = share / total

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        mixture = np.maximum(densities @ weights, math.exp(_LOWEST))
        value = total * weights.sum() - np.log(mixture).mean()
        gradient = total - densities.T @ (1 / mixture) / targets
        if share:
            value -= share * np.log(weights).sum()
            gradient -= share / weights
        return float(value), gradient

    found = scipy.optimize.minimize(
        loss,
        np.full(count, 1 / count),
        jac=True,
        method="L-BFGS-B",
        bounds=[(least, None)] * count,
        options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30},
    )
    weights = found.x if share else np.where(found.x > _NONE, found.x, 0.0)
    return torch.from_numpy(weights / weights.sum()).to(log_densities.device)
