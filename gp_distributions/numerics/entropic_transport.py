"""Entropic optimal transport of many clouds to one reference, differentiable through the solution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.numerics.semi_dual import SINGULAR, TransportOutcome, solve_semi_dual
from gp_distributions.rows.tensors import is_tracked


def transport_potentials(
    points: Tensor,
    weights: Tensor,
    support: Tensor,
    masses: Tensor,
    epsilon: Tensor,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    initial: Tensor | None = None,
) -> tuple[Tensor, TransportOutcome]:
    """Compute the potentials on the reference, differentiably.

    Gradients with respect to all tensors follow from the implicit function theorem, so the memory that
    they need does not depend on the number of iterations.

    Args:
        points: A ``C x n x d`` tensor of atoms.
        weights: A ``C x n`` tensor of weights that sum to one in each cloud; they may be zero.
        support: An ``m x d`` tensor, the atoms of the reference.
        masses: The ``m`` positive weights of the reference, which sum to one.
        epsilon: Regularisation, a positive scalar in squared units of the points.
        tolerance: Largest L1 marginal error at which a cloud counts as solved.
        max_iterations: Maximum number of Newton steps in total, over the decreasing values of epsilon.
        initial: ``C x m`` potentials of a similar problem. Those of each cloud are used as its start if
            their marginal error is small enough.

    Returns:
        The ``C x m`` potentials, with mean zero under ``masses``, and the outcome of the solver.

    Source: Cuturi and Peyre 2018 (semi-dual); Eisenberger et al. 2022 (implicit gradient).
    """
    inputs = (points, weights, support, masses, epsilon)
    with torch.no_grad():
        solution, outcome = solve_semi_dual(
            *inputs, tolerance=tolerance, max_iterations=max_iterations, initial=initial
        )
    if not is_tracked(*inputs):
        return solution, outcome
    # One sweep g = T(g) at the solution; the backward pass converts the gradient of the sweep into the
    # gradient of the solution.
    conditional = conditional_plan(points, support, masses, epsilon, solution)
    marginal = (weights.unsqueeze(-2) @ conditional).squeeze(-2)
    present = marginal >= _least(marginal)
    ratio = torch.where(present, masses / torch.where(present, marginal, 1.0), 1.0)
    swept = solution + epsilon * ratio.log()
    potentials = _FixedPoint.apply(swept, conditional, weights, outcome.determined)
    return potentials - (potentials @ masses).unsqueeze(-1), outcome


def conditional_plan(
    points: Tensor, support: Tensor, masses: Tensor, epsilon: Tensor, potentials: Tensor
) -> Tensor:
    """Compute the probability that each atom is sent to each reference atom.

    These probabilities are the transport plan divided by the weights of the clouds.

    Args:
        points: A ``C x n x d`` tensor of atoms.
        support: An ``m x d`` tensor, the atoms of the reference.
        masses: The ``m`` positive weights of the reference.
        epsilon: Regularisation, a positive scalar in squared units of the points.
        potentials: A ``C x m`` tensor of potentials on the reference.

    Returns:
        A ``C x n x m`` tensor.
    """
    # Centring reduces rounding. The centre is the mean of the support, as the points contain padding.
    # The squared norms of the points cancel in the softmax.
    centre = support.detach().mean(-2)
    u = support - centre
    cost = u.square().sum(-1).unsqueeze(-1) - 2 * u @ (points - centre).transpose(-1, -2)
    logits = (potentials.unsqueeze(-1) - cost) / epsilon + masses.log().unsqueeze(-1)
    return torch.softmax(logits, dim=-2).transpose(-1, -2)  # faster than over the last axis


def _least(marginal: Tensor) -> float:
    """Return the smallest accurate marginal; an atom that receives less mass has no gradient."""
    info = torch.finfo(marginal.dtype)
    return info.tiny / info.eps


class _FixedPoint(torch.autograd.Function):
    r"""Identity whose backward pass converts the gradient of a sweep into that of the fixed point.

    The sweep is :math:`g = T(g)`, and the potentials are its fixed point.

    With :math:`J = \partial T / \partial g = \mathrm{diag}(1/s) P^\top R`, the gradient is multiplied
    by :math:`(I - J)^{-\top}` on the complement of the constants. If the Hessian does not determine the
    potentials, the pseudo-inverse is used.
    """

    @staticmethod
    def forward(
        ctx: Any, swept: Tensor, conditional: Tensor, weights: Tensor, determined: Tensor
    ) -> Tensor:
        ctx.save_for_backward(conditional, weights, determined)
        return swept.clone()

    @staticmethod
    @once_differentiable  # the saved tensors have no graph
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        conditional, weights, determined = ctx.saved_tensors
        marginal = (weights.unsqueeze(-2) @ conditional).squeeze(-2)
        marginal = marginal.clamp_min(_least(marginal))
        roots = marginal.sqrt()
        hessian = -(weights.unsqueeze(-1) * conditional).transpose(-1, -2) @ conditional
        hessian.diagonal(dim1=-2, dim2=-1).add_(marginal)
        outer = roots.unsqueeze(-1) * roots.unsqueeze(-2)
        system = hessian / outer + outer
        scaled = (grad / roots).unsqueeze(-1)
        factor, failed = torch.linalg.cholesky_ex(system)
        solved = torch.cholesky_solve(scaled, factor)
        loose = ~determined | (failed != 0)
        if bool(loose.any()):
            values, vectors = torch.linalg.eigh(system[loose])
            inverse = torch.where(values > SINGULAR, 1 / values, 0.0).unsqueeze(-1)
            solved[loose] = vectors @ (inverse * (vectors.transpose(-1, -2) @ scaled[loose]))
        return solved.squeeze(-1) * roots, None, None, None
