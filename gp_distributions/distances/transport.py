"""Distances of what entropic transport to a reference gives: potentials, and transported means."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Hashable, Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.measures.reference import ReferenceMeasure
from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials
from gp_distributions.numerics.semi_dual import TransportOutcome
from gp_distributions.warnings import ConvergenceWarning, warn

# Outcomes of the chunks of one set of rows.
_outcomes: ContextVar[list[TransportOutcome] | None] = ContextVar("outcomes", default=None)
_warm_starts: ContextVar[dict[Hashable, Tensor] | None] = ContextVar("warm_starts", default=None)


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Start the potentials of a learnable reference from those of the evaluation before.

    For an optimiser that moves the reference by small steps, within this context and thread.
    """
    token = _warm_starts.set({})
    try:
        yield
    finally:
        _warm_starts.reset(token)


class TransportDistance(Distance):
    """What both share: the reference, epsilon, the solver and its warnings."""

    def __init__(self, reference: ReferenceMeasure, *, epsilon: float | None = None) -> None:
        if not isinstance(reference, ReferenceMeasure):
            raise TypeError(f"Expected a ReferenceMeasure, got {type(reference).__name__}.")
        super().__init__(reference.dim)
        value = _default_epsilon(reference) if epsilon is None else float(epsilon)
        if not 0 < value < float("inf"):
            raise ValueError(f"Expected epsilon > 0 and finite, got {epsilon}.")
        self.reference = reference
        self.epsilon: Tensor
        self.register_buffer("epsilon", torch.tensor(value, dtype=torch.float64))

    @abstractmethod
    def _features(self, points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
        """The features of ``C`` clouds, ``C x D``."""

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """The features of clouds, in double precision inside."""
        x, a = points.to(torch.float64), weights.to(torch.float64)
        a = a / a.sum(-1, keepdim=True)  # a sum of one in single precision is none in double
        target = self._target()
        learning = torch.is_grad_enabled() and any(t.requires_grad for t in target)
        # A last undamped step squares the error: steps on the way to a reference need no more.
        tolerance = 1e-6 if learning else 1e-10
        started = _warm_starts.get() if learning else None
        key = (len(x), self.reference.size, x.device)
        initial = None if started is None else started.get(key)
        potentials, outcome = transport_potentials(
            x, a, *target, tolerance=tolerance, initial=initial
        )
        if started is not None:
            started[key] = potentials.detach()
        if (outcomes := _outcomes.get()) is not None:
            outcomes.append(outcome)
        return self._features(x, a, potentials).to(points.dtype)

    def _target(self) -> tuple[Tensor, Tensor, Tensor]:
        """Atoms and weights of the reference, and epsilon, in double precision."""
        reference = self.reference
        log_weights = reference.log_weights.to(torch.float64)
        return (
            reference.points.to(torch.float64),
            log_weights.softmax(-1),
            self.epsilon.to(torch.float64),
        )

    def chunk_size(self, num_atoms: int) -> int:
        """How many clouds of ``num_atoms`` atoms are represented at a time."""
        size = self.reference.size
        return max(1, 8 * self.chunk_elements // (size * max(num_atoms, size)))

    def represent_rows(self, rows: Tensor) -> Tensor:
        """Represents all rows, and warns of all clouds together whose potentials are inexact."""
        outcomes: list[TransportOutcome] = []
        token = _outcomes.set(outcomes)
        try:
            representation = super().represent_rows(rows)
        finally:
            _outcomes.reset(token)
        self._warn(outcomes)
        return representation

    def _warn(self, outcomes: list[TransportOutcome]) -> None:
        for name, message in (
            ("converged", "the solver missed its tolerance, so that their features are inexact"),
            (
                "determined",
                "epsilon is so small that the potentials are not determined in floating point, so "
                "that equal clouds may have different features",
            ),
        ):
            missed = ~torch.cat([getattr(outcome, name) for outcome in outcomes])
            if bool(missed.any()):
                errors = torch.cat([outcome.marginal_error for outcome in outcomes])
                clouds = missed.nonzero().flatten().tolist()
                shown = ", ".join(map(str, clouds[:5])) + (", ..." if len(clouds) > 5 else "")
                warn(
                    f"Entropic transport with epsilon {self.epsilon.item():.3g}: for {len(clouds)} of "
                    f"{len(missed)} clouds ({shown}) {message} (largest marginal error "
                    f"{errors[missed].max().item():.1e}). Use a larger epsilon.",
                    ConvergenceWarning,
                )

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"epsilon={self.epsilon.item():.3g}"


class SinkhornPotential(TransportDistance):
    r"""The distance of entropic potentials on a reference, in :math:`L^2` of the reference.

    With :math:`g_P` the potential on the reference :math:`U = \sum_j b_j \delta(u_j)` of the entropic
    transport of :math:`P` to :math:`U` with cost :math:`|x - u|^2`, centred to mean zero,

    .. math::
        d^2(P, P') = \sum_j b_j (g_P(u_j) - g_{P'}(u_j))^2.

    The rounding of marginals is multiplied by epsilon: where that is far larger than the squared
    diameter ``D^2`` of clouds and reference, potentials hold to about ``1e-16 epsilon / D^2`` of the
    largest.

    Args:
        reference: The reference measure; learnable.
        epsilon: The regularisation, in squared units of the points. Default: 0.05 times the mean
            squared distance between two atoms of the reference, fixed at construction.

    Raises:
        TypeError: If ``reference`` is no :class:`ReferenceMeasure`.
        ValueError: If ``epsilon`` is not positive and finite.

    Warns:
        ConvergenceWarning: Where the tolerance is missed or the potentials are not determined.

    Source: Bachoc et al. 2023, section 3; Allain et al. 2024.
    """

    def _features(self, points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
        _, masses, _ = self._target()
        return masses.sqrt() * potentials


class LinearTransport(TransportDistance):
    r"""The distance of barycentric transport maps from a reference, in :math:`L^2` of the reference.

    With :math:`P_{ij}` the entropic plan between a cloud and the reference, the map sends
    :math:`u_j` to the mean of the atoms that it is transported to,

    .. math::
        t_P(u_j) = \frac{1}{b_j} \sum_i P_{ij} x_i, \qquad
        d^2(P, P') = \sum_j b_j |t_P(u_j) - t_{P'}(u_j)|^2.

    For small epsilon and a dense reference it approximates linearised :math:`W_2`; for epsilon to
    infinity only the mean is left.

    The means of atoms are rounded like the coordinates: of clouds of spread ``s`` at a distance ``R``
    from the origin, squared distances hold to about ``1e-15 R / s`` of the largest.
    :meth:`PointClouds.normalize` moves clouds to the origin.

    Args:
        reference: The reference measure; learnable.
        epsilon: The regularisation, in squared units of the points. Default: 0.05 times the mean
            squared distance between two atoms of the reference, fixed at construction.

    Raises:
        TypeError: If ``reference`` is no :class:`ReferenceMeasure`.
        ValueError: If ``epsilon`` is not positive and finite.

    Warns:
        ConvergenceWarning: Where the tolerance is missed.

    Source: Wang et al. 2013 (linear optimal transport), with an entropic plan.
    """

    def _features(self, points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
        support, masses, epsilon = self._target()
        conditional = conditional_plan(points, support, masses, epsilon, potentials)
        moved = (weights.unsqueeze(-1) * conditional).transpose(-1, -2) @ points
        return (moved / masses.sqrt().unsqueeze(-1)).flatten(-2)


def _default_epsilon(reference: ReferenceMeasure) -> float:
    if reference.size == 1:
        return 1.0  # the potential of one atom is zero at every epsilon
    mean_square = torch.pdist(reference.points.detach()).square().mean().item()
    if mean_square == 0:
        raise ValueError("All atoms of the reference coincide: give epsilon, or other atoms.")
    return 0.05 * mean_square
