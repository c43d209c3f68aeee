r"""Entropic optimal transport of many clouds to one small reference, by Newton's method.

With cost :math:`C_{ij} = |x_i - u_j|^2`, cloud weights :math:`a` and reference weights :math:`b`,
the potential :math:`g` on the reference maximises the concave semi-dual

.. math::
    \sum_j b_j g_j - \varepsilon \sum_i a_i \log \sum_j b_j \exp((g_j - C_{ij}) / \varepsilon).

With :math:`R_{ij} = \mathrm{softmax}_j((g_j - C_{ij}) / \varepsilon + \log b_j)` and
:math:`s_j = \sum_i a_i R_{ij}`, its gradient is :math:`b - s` and its Hessian
:math:`-(\mathrm{diag}(s) - R^\top \mathrm{diag}(a) R) / \varepsilon`, of the size of the reference
only. At the optimum :math:`s = b`, and :math:`P_{ij} = a_i R_{ij}` is the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Epsilon is lowered by _FACTOR whenever the marginal error is at most _LOOSE.
_FACTOR, _LOOSE = 1.5, 0.1
# Damping of Newton's method in units of the marginal error: its start, what a refused step multiplies
# and an accepted one divides it by, its least value, and the value at which a cloud is given up.
_DAMPING, _UP, _DOWN, _LEAST, _STALLED = 1e-2, 8.0, 3.0, 1e-5, 1e10
# An initial guess with a larger marginal error than this is not used.
_USELESS = 0.5
# An eigenvalue of the scaled Hessian, whose largest are near one, below this is rounding.
_SINGULAR = 1e-11


@dataclass(frozen=True)
class TransportOutcome:
    """How the solver fared, for each of ``C`` clouds.

    Attributes:
        converged: Whether the marginal error is at most the tolerance.
        marginal_error: The L1 distance of the plan's marginal on the reference from its weights.
        iterations: The number of Newton steps tried.
        determined: Whether the Hessian determines the potentials. Where it does not (partial sums
            of the weights coincide and epsilon is tiny) the plan is right, but the potentials are
            one choice of many.
    """

    converged: Tensor
    marginal_error: Tensor
    iterations: Tensor
    determined: Tensor


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
    """Potentials on the reference, with gradients through the solution.

    Gradients in all tensors are those of the implicit function theorem: their memory does not depend
    on the number of iterations.

    Args:
        points: A ``C x n x d`` tensor of atoms.
        weights: A ``C x n`` tensor of weights that sum to one in each cloud; they may be zero.
        support: An ``m x d`` tensor, the atoms of the reference.
        masses: The ``m`` positive weights of the reference, of sum one.
        epsilon: The regularisation, a positive scalar, in squared units of the points.
        tolerance: Of the L1 marginal error.
        max_iterations: Of Newton's method, over all values of epsilon on the way down.
        initial: ``C x m`` potentials of a similar problem to start from, where they are any good.

    Returns:
        Potentials, ``C x m``, of mean zero under ``masses``, and the outcome.

    Source: Cuturi and Peyre 2018 (semi-dual); the implicit gradient is that of Eisenberger et al. 2022.
    """
    with torch.no_grad():
        solution = _solve(
            points, weights, support, masses, epsilon, tolerance, max_iterations, initial
        )
    # One sweep of the fixed point g = T(g) at the solution; the backward pass completes its gradient.
    conditional = conditional_plan(points, support, masses, epsilon, solution.potentials)
    marginal = (weights.unsqueeze(-2) @ conditional).squeeze(-2)
    smallest = torch.finfo(marginal.dtype).tiny
    swept = solution.potentials + epsilon * (masses.log() - marginal.clamp_min(smallest).log())
    potentials = _FixedPoint.apply(
        swept, conditional.detach(), weights.detach(), solution.outcome.determined
    )
    potentials = potentials - (potentials @ masses).unsqueeze(-1)
    return potentials, solution.outcome


def conditional_plan(
    points: Tensor, support: Tensor, masses: Tensor, epsilon: Tensor, potentials: Tensor
) -> Tensor:
    """Where each atom of a cloud goes on the reference: ``C x n x m`` probabilities, the plan ``P / a``.

    Args:
        points: A ``C x n x d`` tensor of atoms.
        support: An ``m x d`` tensor, the atoms of the reference.
        masses: The ``m`` positive weights of the reference.
        epsilon: The regularisation.
        potentials: The ``C x m`` potentials.
    """
    # A common shift keeps digits; the squared norm of x would cancel in the softmax.
    centre = points.detach().mean(-2, keepdim=True)
    u = support - centre
    cost = u.square().sum(-1).unsqueeze(-2) - 2 * (points - centre) @ u.transpose(-1, -2)
    return torch.softmax((potentials.unsqueeze(-2) - cost) / epsilon + masses.log(), dim=-1)


@dataclass(frozen=True)
class _Solution:
    potentials: Tensor
    outcome: TransportOutcome


@dataclass(frozen=True)
class _Iterate:
    """The clouds still at work, and their plan at the present potentials."""

    index: Tensor
    inner: Tensor
    weights: Tensor
    potentials: Tensor
    epsilon: Tensor
    damping: Tensor
    conditional: Tensor
    residual: Tensor
    error: Tensor

    def select(self, keep: Tensor) -> _Iterate:
        return replace(self, **{name: value[keep] for name, value in vars(self).items()})


def _solve(
    points: Tensor,
    weights: Tensor,
    support: Tensor,
    masses: Tensor,
    epsilon: Tensor,
    tolerance: float,
    max_iterations: int,
    initial: Tensor | None,
) -> _Solution:
    # Centred, the cost is -2 <x, u> up to terms of i alone, which the softmax drops, and of j alone,
    # which the potentials take up.
    centre = (weights.unsqueeze(-2) @ points).squeeze(-2)
    offset = support.square().sum(-1) - 2 * centre @ support.T
    inner = 2 * (points - centre.unsqueeze(-2)) @ (support - masses @ support).T
    log_masses, roots = masses.log(), masses.sqrt()
    num_clouds = len(points)

    def at(state: _Iterate, potentials: Tensor, epsilon: Tensor) -> _Iterate:
        logits = (state.inner + potentials.unsqueeze(-2)) / epsilon[:, None, None] + log_masses
        conditional = torch.softmax(logits, dim=-1)
        residual = masses - (state.weights.unsqueeze(-2) @ conditional).squeeze(-2)
        return replace(
            state,
            potentials=potentials,
            epsilon=epsilon,
            conditional=conditional,
            residual=residual,
            error=residual.abs().sum(-1),
        )

    target = epsilon.to(inner)
    largest = inner.abs().amax((-2, -1))
    start = offset.new_zeros(offset.shape) if initial is None else initial - offset
    blank = inner.new_empty(num_clouds)
    state = _Iterate(
        index=torch.arange(num_clouds, device=inner.device),
        inner=inner,
        weights=weights,
        potentials=start,
        epsilon=blank,
        damping=torch.full_like(blank, _DAMPING),
        conditional=blank,
        residual=blank,
        error=blank,
    )
    first = torch.maximum(largest, target)
    if initial is not None:
        useful = at(state, start, target.expand(num_clouds)).error <= _USELESS
        start = torch.where(useful.unsqueeze(-1), start, 0.0)
        first = torch.where(useful, target, first)
    state = at(state, start, first)
    found = start.clone()
    errors, iterations = torch.full_like(blank, torch.inf), torch.zeros_like(state.index)

    for iteration in range(max_iterations + 1):
        lower = (state.error <= _LOOSE) & (state.epsilon > target)
        if bool(lower.any()):
            lowered = torch.maximum(state.epsilon / _FACTOR, target)
            state = at(state, state.potentials, torch.where(lower, lowered, state.epsilon))
        last = iteration == max_iterations
        stalled = state.damping > _STALLED
        done = ((state.epsilon <= target) & (state.error <= tolerance)) | stalled | last
        if bool(done.any()):
            # One more step, without damping, takes the error from the tolerance to rounding.
            polished = _newton_step(
                replace(state.select(done), damping=blank.new_zeros(())), roots, at
            )
            where = polished.index
            found[where], errors[where] = polished.potentials, polished.error
            iterations[where] = iteration
            state = state.select(~done)
            if not len(state.index):
                break
        state = _newton_step(state, roots, at)

    potentials = found + offset
    outcome = TransportOutcome(
        converged=errors <= tolerance,
        marginal_error=errors,
        iterations=iterations,
        determined=_determined(found, inner, weights, target, masses),
    )
    return _Solution(potentials - (potentials @ masses).unsqueeze(-1), outcome)


def _scaled_hessian(conditional: Tensor, weights: Tensor, roots: Tensor) -> Tensor:
    """``diag(b)^-1/2 (diag(s) - R' diag(a) R) diag(b)^-1/2``, with eigenvalue one for constants."""
    hessian = -(weights.unsqueeze(-1) * conditional).transpose(-1, -2) @ conditional
    marginal = (weights.unsqueeze(-2) @ conditional).squeeze(-2)
    hessian.diagonal(dim1=-2, dim2=-1).add_(marginal)
    outer = torch.outer(roots, roots)
    return hessian / outer + outer


def _newton_step(state: _Iterate, roots: Tensor, at: Any) -> _Iterate:
    """One damped step, or more damping if it neither ascends to the end nor lowers the residual."""
    system = _scaled_hessian(state.conditional, state.weights, roots)
    system.diagonal(dim1=-2, dim2=-1).add_((state.damping * state.error).unsqueeze(-1) + 1e-15)
    factor, failed = torch.linalg.cholesky_ex(system)
    scaled = torch.cholesky_solve((state.residual / roots).unsqueeze(-1), factor).squeeze(-1)
    step = state.epsilon.unsqueeze(-1) * scaled / roots
    trial = at(state, state.potentials + step, state.epsilon)
    ascends = (trial.residual * step).sum(-1) >= 0
    accept = ((trial.error < state.error) | ascends) & (failed == 0)

    def chosen(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(accept.reshape(-1, *[1] * (new.dim() - 1)), new, old)

    return replace(
        state,
        potentials=chosen(trial.potentials, state.potentials),
        conditional=chosen(trial.conditional, state.conditional),
        residual=chosen(trial.residual, state.residual),
        error=chosen(trial.error, state.error),
        damping=torch.where(accept, (state.damping / _DOWN).clamp_min(_LEAST), state.damping * _UP),
    )


def _determined(
    potentials: Tensor, inner: Tensor, weights: Tensor, epsilon: Tensor, masses: Tensor
) -> Tensor:
    logits = (inner + potentials.unsqueeze(-2)) / epsilon + masses.log()
    system = _scaled_hessian(torch.softmax(logits, dim=-1), weights, masses.sqrt())
    # A shifted matrix has a Cholesky factor if and only if all eigenvalues exceed the shift.
    system.diagonal(dim1=-2, dim2=-1).sub_(_SINGULAR)
    return torch.linalg.cholesky_ex(system).info == 0


class _FixedPoint(torch.autograd.Function):
    r"""The identity, whose gradient makes that of one sweep :math:`g = T(g)` that of its solution.

    With :math:`J = \partial T / \partial g = \mathrm{diag}(1/s) P^\top R`, the gradient is multiplied
    by :math:`(I - J)^{-\top}` on the complement of the constants. Where the Hessian does not determine
    the potentials, by the pseudo-inverse.
    """

    @staticmethod
    def forward(
        ctx: Any, swept: Tensor, conditional: Tensor, weights: Tensor, determined: Tensor
    ) -> Tensor:
        ctx.save_for_backward(conditional, weights, determined)
        return swept.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        conditional, weights, determined = ctx.saved_tensors
        marginal = (weights.unsqueeze(-2) @ conditional).squeeze(-2)
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
            inverse = torch.where(values > _SINGULAR, 1 / values, 0.0).unsqueeze(-1)
            solved[loose] = vectors @ (inverse * (vectors.transpose(-1, -2) @ scaled[loose]))
        return solved.squeeze(-1) * roots, None, None, None
