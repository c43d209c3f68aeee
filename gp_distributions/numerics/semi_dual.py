r"""Newton's method on the semi-dual of entropic transport, for many clouds at once.

For the cost :math:`C_{ij} = |x_i - u_j|^2`, cloud weights :math:`a` and reference weights :math:`b`,
the potential :math:`g` on the reference maximises the concave semi-dual

.. math::
    \sum_j b_j g_j - \varepsilon \sum_i a_i \log \sum_j b_j \exp((g_j - C_{ij}) / \varepsilon).

With :math:`R_{ij} = \mathrm{softmax}_j((g_j - C_{ij}) / \varepsilon + \log b_j)` and
:math:`s_j = \sum_i a_i R_{ij}`, its gradient is :math:`b - s` and its Hessian
:math:`-(\mathrm{diag}(s) - R^\top \mathrm{diag}(a) R) / \varepsilon`, whose size is that of the
reference. At the optimum :math:`s = b`, and :math:`P_{ij} = a_i R_{ij}` is the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Epsilon is divided by _FACTOR whenever the marginal error is at most _LOOSE.
_FACTOR, _LOOSE = 1.5, 0.03
# Damping of Newton's method in units of the marginal error: its initial value, the factor by which it
# grows after a rejected step, the factor by which it shrinks after an accepted step, its minimum, and
# the value at which the solver gives a cloud up.
_DAMPING, _UP, _DOWN, _LEAST, _STALLED = 1e-2, 8.0, 3.0, 1e-5, 1e10
# Initial potentials with a larger marginal error are not used.
_USELESS = 0.5
# Logarithm of the smallest entry of a plan; and the total change of the logarithms, summed over steps,
# after which a plan is evaluated from scratch instead of updated.
_LEAST_LOG, _FAR = -200.0, 30.0
# Eigenvalues of the scaled Hessian below this are rounding errors; the largest are close to one.
SINGULAR = 1e-11


@dataclass(frozen=True)
class TransportOutcome:
    """Outcome of the solver for each of ``C`` clouds.

    Attributes:
        converged: Whether the marginal error is at most the tolerance.
        marginal_error: L1 distance between the plan's marginal on the reference and the weights of
            the reference.
        iterations: Number of Newton steps tried.
        determined: Whether the Hessian determines the potentials. If not (partial sums of the weights
            coincide and epsilon is tiny), the plan is correct, but the potentials are not unique.
    """

    converged: Tensor
    marginal_error: Tensor
    iterations: Tensor
    determined: Tensor


@dataclass(frozen=True)
class _Iterate:
    """The clouds that are not solved yet, with the damping of their next step, potentials and plan.

    The conditional plan is ``C x m x n``, because a softmax is faster over an axis that is not the last.
    """

    index: Tensor
    inner: Tensor
    weights: Tensor
    damping: Tensor
    potentials: Tensor
    epsilon: Tensor
    conditional: Tensor
    drift: Tensor
    residual: Tensor
    error: Tensor

    def select(self, keep: Tensor) -> _Iterate:
        return replace(self, **{name: value[keep] for name, value in vars(self).items()})


class _SemiDual:
    """Semi-dual problems of all clouds, up to shifts of the cost that do not change the plan."""

    def __init__(
        self, points: Tensor, weights: Tensor, support: Tensor, masses: Tensor, epsilon: Tensor
    ) -> None:
        # After centring, the cost is -2 <x, u> plus terms in i only, which cancel in the softmax, and
        # terms in j only, which the potentials absorb. The latter are relative to the middle of the
        # reference, as squared distances to a far cloud would round off the differences between clouds.
        centre, middle = weights.unsqueeze(-2) @ points, masses @ support
        self.offset = ((support - middle) * ((support - centre) + (middle - centre))).sum(-1)
        self.inner = 2 * (support - middle) @ (points - centre).mT
        self.weights = weights
        self.masses, self.log_masses = masses, masses.log()
        self.roots = masses.sqrt()
        self.epsilon = epsilon.to(self.inner)

    def start(self, potentials: Tensor, epsilon: Tensor) -> _Iterate:
        """Return the iterate of all clouds at the given potentials."""
        index = torch.arange(len(self.inner), device=self.inner.device)
        damping = self.inner.new_full(index.shape, _DAMPING)
        plan = self.inner, damping, potentials, damping  # replaced by those of the potentials
        clouds = index, self.inner, self.weights, damping
        return self.at(_Iterate(*clouds, potentials, epsilon, *plan), potentials, epsilon)

    def at(self, state: _Iterate, potentials: Tensor, epsilon: Tensor) -> _Iterate:
        """Evaluate the plan at new potentials and a new epsilon, and return the iterate."""
        shift = potentials / epsilon.unsqueeze(-1) + self.log_masses
        logits = (state.inner * epsilon.reciprocal()[:, None, None]).add_(shift.unsqueeze(-1))
        logits = logits.sub_(logits.amax(-2, keepdim=True))
        # Smaller entries are negligible, but they could be denormal numbers, whose arithmetic is slow.
        conditional = logits.clamp_min_(_LEAST_LOG).exp_()
        conditional = conditional.div_(conditional.sum(-2, keepdim=True))
        return self._with_plan(state, potentials, epsilon, conditional)

    def moved(self, state: _Iterate, scaled_step: Tensor) -> _Iterate:
        """Return the iterate whose potentials are moved by epsilon times ``scaled_step``."""
        potentials = state.potentials + state.epsilon.unsqueeze(-1) * scaled_step
        drift = state.drift + scaled_step.abs().amax(-1)
        if bool((drift > _FAR).any()):
            return self.at(state, potentials, state.epsilon)
        # Updating the plan by multiplication takes a third of the time of new exponentials.
        conditional = state.conditional * scaled_step.exp().unsqueeze(-1)
        conditional = conditional.div_(conditional.sum(-2, keepdim=True))
        return replace(self._with_plan(state, potentials, state.epsilon, conditional), drift=drift)

    def _with_plan(
        self, state: _Iterate, potentials: Tensor, epsilon: Tensor, conditional: Tensor
    ) -> _Iterate:
        """Return the iterate of a given plan, which counts as evaluated from scratch."""
        marginal = (conditional @ state.weights.unsqueeze(-1)).squeeze(-1)
        residual = self.masses - marginal
        return replace(
            state,
            potentials=potentials,
            epsilon=epsilon,
            conditional=conditional,
            drift=torch.zeros_like(epsilon),
            residual=residual,
            error=residual.abs().sum(-1),
        )

    def newton_step(self, state: _Iterate) -> _Iterate:
        """Take one damped Newton step, or reject it and raise the damping.

        A step is accepted if it lowers the marginal error or if the objective still rises at its end.
        """
        step, solved, _ = self.solve(state, (state.damping * state.error).unsqueeze(-1) + 1e-15)
        trial = self.moved(state, step)
        ascends = (trial.residual * step).sum(-1) >= 0
        accept = ((trial.error < state.error) | ascends) & solved
        eased = (state.damping / _DOWN).clamp_min(_LEAST)
        damping = torch.where(accept, eased, state.damping * _UP)
        return replace(_chosen(accept, trial, state), damping=damping)

    def polished(self, state: _Iterate) -> tuple[_Iterate, Tensor]:
        """Take a final undamped Newton step; also return which solutions are unique.

        The step reduces the marginal error to the size of rounding errors.
        """
        step, solved, system = self.solve(state)
        trial = self.at(state, state.potentials + state.epsilon.unsqueeze(-1) * step, state.epsilon)
        # The shifted matrix has a Cholesky factor if and only if all eigenvalues exceed the shift.
        system.diagonal(dim1=-2, dim2=-1).sub_(SINGULAR)
        determined = torch.linalg.cholesky_ex(system).info == 0
        return _chosen((trial.error < state.error) & solved, trial, state), determined

    def solve(
        self, state: _Iterate, damping: Tensor | float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        r"""Return the Newton step divided by epsilon, whether it exists, and the matrix solved for.

        With :math:`U = \mathrm{diag}(a)^{1/2} R \,\mathrm{diag}(b)^{-1/2}`, the scaled Hessian is
        :math:`D - U^\top U` for the diagonal matrix :math:`D` of :math:`s_j / b_j` plus the damping. A
        reference with more atoms than the clouds needs :math:`I - U D^{-1} U^\top` instead, by
        Woodbury's identity. Constant potentials have the eigenvalue one instead of zero.
        """
        diagonal = 1 - state.residual / self.masses + damping
        right = (state.residual / self.roots).unsqueeze(-1)
        if self.inner.shape[-2] <= self.inner.shape[-1]:
            hessian = (state.weights.unsqueeze(-2) * state.conditional) @ state.conditional.mT
            scale = torch.outer(self.roots, self.roots)
            system = torch.addcdiv(scale, hessian, scale, value=-1)
            system.diagonal(dim1=-2, dim2=-1).add_(diagonal)
            factor, failed = torch.linalg.cholesky_ex(system)
            scaled = torch.cholesky_solve(right, factor)
        else:
            roots, diagonal = state.weights.sqrt().unsqueeze(-1), diagonal.unsqueeze(-1)
            columns = state.conditional * roots.mT / self.roots.unsqueeze(-1)  # of U', C x m x n
            system = roots @ roots.mT - columns.mT @ (columns / diagonal)
            system.diagonal(dim1=-2, dim2=-1).add_(1.0)
            factor, failed = torch.linalg.cholesky_ex(system)
            inner = torch.cholesky_solve(columns.mT @ (right / diagonal), factor)
            scaled = (right + columns @ inner) / diagonal
        return scaled.squeeze(-1) / self.roots, failed == 0, system


def _chosen(accept: Tensor, new: _Iterate, old: _Iterate) -> _Iterate:
    """Return the new iterate for the clouds that accept it, and the old one for the others."""
    if bool(accept.all()):
        return new

    def chosen(name: str) -> Tensor:
        values = getattr(new, name), getattr(old, name)
        return torch.where(accept.reshape(-1, *[1] * (values[0].dim() - 1)), *values)

    names = ("potentials", "conditional", "drift", "residual", "error")
    return replace(old, **{name: chosen(name) for name in names})


def solve_semi_dual(
    points: Tensor,
    weights: Tensor,
    support: Tensor,
    masses: Tensor,
    epsilon: Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    initial: Tensor | None = None,
) -> tuple[Tensor, TransportOutcome]:
    """Solve for the potentials on the reference.

    The time of a step is cubic in the number of atoms of the clouds or of the reference, whichever is
    smaller.

    Args:
        points: A ``C x n x d`` tensor of atoms.
        weights: A ``C x n`` tensor of weights that sum to one in each cloud; they may be zero.
        support: An ``m x d`` tensor, the atoms of the reference.
        masses: The ``m`` positive weights of the reference, which sum to one.
        epsilon: Regularisation, a positive scalar.
        tolerance: Largest L1 marginal error on the reference at which a cloud counts as solved.
        max_iterations: Maximum number of Newton steps in total, over the decreasing values of epsilon.
        initial: ``C x m`` potentials of a similar problem. Those of each cloud are used as its start if
            their marginal error is small enough.

    Returns:
        The ``C x m`` potentials, with mean zero under ``masses``, and the outcome of the solver.
    """
    problem = _SemiDual(points, weights, support, masses, epsilon)
    start = None if initial is None else initial - problem.offset
    found, iterations = _ascend(problem, start, tolerance, max_iterations)
    target = problem.epsilon.expand(len(points))
    final, determined = problem.polished(problem.start(found, target))
    potentials = final.potentials + problem.offset
    outcome = TransportOutcome(
        converged=final.error <= tolerance,
        marginal_error=final.error,
        iterations=iterations,
        determined=determined,
    )
    return potentials - (potentials @ masses).unsqueeze(-1), outcome


def _ascend(
    problem: _SemiDual, start: Tensor | None, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor]:
    """Maximise the semi-dual; return the potentials and the number of steps tried for each cloud."""
    target = problem.epsilon
    first = torch.maximum(problem.inner.abs().amax((-2, -1)), target)
    if start is None:
        start = torch.zeros_like(problem.offset)
    else:
        useful = problem.start(start, target.expand(len(start))).error <= _USELESS
        start = torch.where(useful.unsqueeze(-1), start, 0.0)
        first = torch.where(useful, target, first)
    state = problem.start(start, first)
    found, iterations = torch.empty_like(start), torch.zeros_like(state.index)
    for iteration in range(max_iterations + 1):
        lower = (state.error <= _LOOSE) & (state.epsilon > target)
        if bool(lower.any()):
            lowered = torch.maximum(state.epsilon / _FACTOR, target)
            state = problem.at(state, state.potentials, torch.where(lower, lowered, state.epsilon))
        last = iteration == max_iterations
        stalled = state.damping > _STALLED
        done = ((state.epsilon <= target) & (state.error <= tolerance)) | stalled | last
        if bool(done.any()):
            where = state.index[done]
            found[where], iterations[where] = state.potentials[done], iteration
            state = state.select(~done)
            if not len(state.index):
                break
        state = problem.newton_step(state)
    return found, iterations
