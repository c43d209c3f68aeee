"""Distances that compare the potentials or the maps of entropic transport to a reference measure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.comparison import in_mode
from gp_distributions.measures.arrays import positive
from gp_distributions.measures.reference import ReferenceMeasure
from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials
from gp_distributions.numerics.semi_dual import TransportOutcome
from gp_distributions.rows.tensors import is_tracked
from gp_distributions.warnings import ConvergenceWarning, warn

# Computes a tensor of ``C`` clouds from their atoms, weights and potentials.
Reader = Callable[[Tensor, Tensor, Tensor], Tensor]

_MISSED = {
    "converged": "the solver missed its tolerance, so that features are inexact",
    "determined": "epsilon is too small to determine the potentials in floating point, so that equal "
    "clouds may have different features",
}


class TransportDistance(Distance):
    """Base class of transport distances, which holds the reference and epsilon and runs the solver.

    Attributes:
        warm_starts: The last potentials, from which an optimiser that moves the reference in small steps
            lets the solver start; ``None`` for a cold start.
    """

    warm_starts: dict[Hashable, Tensor] | None = None

    def __init__(self, reference: ReferenceMeasure, *, epsilon: float | None = None) -> None:
        if not isinstance(reference, ReferenceMeasure):
            raise TypeError(f"Expected a ReferenceMeasure, got {type(reference).__name__}.")
        super().__init__(reference.dim)
        value = _default_epsilon(reference) if epsilon is None else positive(epsilon, "epsilon")
        self.reference = reference
        self.epsilon: Tensor
        self.register_buffer("epsilon", torch.tensor(value, dtype=torch.float64))

    @abstractmethod
    def _features(self, points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
        """Compute the features of ``C`` clouds from their potentials, a ``C x D`` tensor."""

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Compute the features of clouds, internally in double precision."""
        return self._solved(points, weights)[0]

    def plan(self, rows: Tensor) -> Tensor:
        r"""Compute the entropic transport plans from clouds to the reference.

        With the atoms :math:`x_i` and weights :math:`a_i` of a cloud, :math:`u_j` and :math:`b_j` of the
        reference and the potentials :math:`f, g`, the plan is

        .. math::
            P_{ij} = a_i b_j \exp\bigl((f_i + g_j - |x_i - u_j|^2) / \varepsilon\bigr),
            \qquad \sum_j P_{ij} = a_i, \qquad \sum_i P_{ij} = b_j.

        It shows what each atom of the reference sees of a cloud:
        :func:`gp_distributions.plotting.plot_plan` draws it.

        Args:
            rows: A ``batch_shape x N x m*(d+1)`` tensor, such as ``clouds.pack()``.

        Returns:
            A ``batch_shape x N x m x r`` tensor without gradient, for ``m`` atoms of the clouds, with
            padding, and ``r`` atoms of the reference.

        Raises:
            ValueError: If the width of the rows does not match, or weights are invalid.

        Warns:
            ConvergenceWarning: If the solver misses its tolerance, so that columns do not sum to the
                weights of the reference.

        Example:
            >>> import torch
            >>> from gp_distributions import PointClouds, ReferenceMeasure, SinkhornPotential
            >>> reference = ReferenceMeasure(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
            >>> clouds = PointClouds.from_list([[[0.0], [1.0]], [[0.0], [2.0], [2.0]]])
            >>> SinkhornPotential(reference, epsilon=0.01).plan(clouds.pack())[1].round(decimals=3)
            tensor([[0.3330, 0.0000],
                    [0.0830, 0.2500],
                    [0.0830, 0.2500]], dtype=torch.float64)

        Source: Allain, Gousset and Heurtin 2024, whose figure 2 has plans between two distributions.
        """
        self.check_rows(rows)

        def read(points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
            conditional = conditional_plan(points, *self._target(), potentials)
            return (weights.unsqueeze(-1) * conditional).flatten(-2)

        with torch.no_grad():
            flat = self._read_rows(rows, None, read)
        return flat.unflatten(-1, (-1, self.reference.size))

    def _solved(
        self, points: Tensor, weights: Tensor, read: Reader | None = None
    ) -> tuple[Tensor, TransportOutcome]:
        """Solve, and read features, or what else ``read`` computes, off the potentials."""
        x, a = points.to(torch.float64), weights.to(torch.float64)
        a = a / a.sum(-1, keepdim=True)  # weights in single precision sum to one only approximately
        target = self._target()
        learning = is_tracked(*target)
        # A final undamped step squares the error, so a larger tolerance suffices to learn a reference.
        tolerance = 1e-6 if learning else 1e-10
        started = self.warm_starts if learning else None
        key = (len(x), self.reference.size, x.device)
        initial = None if started is None else started.get(key)
        potentials, outcome = transport_potentials(
            x, a, *target, tolerance=tolerance, initial=initial
        )
        if started is not None:
            started[key] = potentials.detach()
        read = self._features if read is None else read
        return read(x, a, potentials).to(points.dtype), outcome

    def _target(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the atoms and weights of the reference, and epsilon, in double precision."""
        reference = self.reference
        weights = reference.log_weights.double().softmax(-1)
        return reference.points.double(), weights, self.epsilon.double()

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        size = self.reference.size
        return max(1, 8 * self.chunk_elements // (size * max(num_atoms, size)))

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows, and issue one warning for all clouds whose potentials are inexact."""
        return self._read_rows(rows, factors, None)

    def _read_rows(self, rows: Tensor, factors: Tensor | None, read: Reader | None) -> Tensor:
        outcomes: list[TransportOutcome] = []
        current = in_mode(self)

        def represent(points: Tensor, weights: Tensor) -> Tensor:
            features, outcome = current._solved(points, weights, read)
            outcomes.append(outcome)
            return features

        representation = self._in_chunks(rows, represent, factors)
        # Plans are determined even where potentials are not.
        self._warn(outcomes, ("converged", "determined") if read is None else ("converged",))
        return representation

    def _warn(self, outcomes: list[TransportOutcome], names: Sequence[str]) -> None:
        for name in names:
            missed = ~torch.cat([getattr(outcome, name) for outcome in outcomes])
            if bool(missed.any()):
                errors = torch.cat([outcome.marginal_error for outcome in outcomes])
                clouds = missed.nonzero().flatten().tolist()
                shown = ", ".join(map(str, clouds[:5])) + (", ..." if len(clouds) > 5 else "")
                warn(
                    f"Entropic transport with epsilon={self.epsilon.item():.3g}: for {len(clouds)} of "
                    f"{len(missed)} clouds ({shown}) {_MISSED[name]} (largest marginal error "
                    f"{errors[missed].max().item():.1e}). Use a larger epsilon.",
                    ConvergenceWarning,
                )

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        return f"epsilon={self.epsilon.item():.3g}"


class SinkhornPotential(TransportDistance):
    r"""The :math:`L^2` distance between entropic potentials on a reference measure.

    Let :math:`g_P` be the potential of entropic transport from :math:`P` to the reference
    :math:`U = \sum_j b_j \delta(u_j)` with cost :math:`|x - u|^2`, evaluated at the atoms of :math:`U`
    and centred to mean zero. Then

    .. math::
        d^2(P, P') = \sum_j b_j (g_P(u_j) - g_{P'}(u_j))^2.

    If epsilon is far larger than the squared diameter ``D^2`` of the clouds and the reference,
    potentials are accurate to about ``1e-16 epsilon / D^2`` times the largest one, since epsilon
    multiplies the rounding errors of marginals.

    Args:
        reference: Reference measure, which can be learned.
        epsilon: Entropic regularisation, in squared units of the points. Default: 0.05 times the mean
            squared distance between two atoms of the reference at construction.

    Raises:
        TypeError: If ``reference`` is not a :class:`ReferenceMeasure`.
        ValueError: If ``epsilon`` is not positive and finite.

    Warns:
        ConvergenceWarning: If the solver misses its tolerance or the potentials are not determined.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, ReferenceMeasure, SinkhornPotential
        >>> reference = ReferenceMeasure(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
        >>> distance = SinkhornPotential(reference, epsilon=0.1)
        >>> clouds = PointClouds.from_list([[[0.0], [1.0]], [[0.0], [2.0]], [[1.0], [2.0]]])
        >>> distance.squared(clouds.pack())
        tensor([[0.0000, 0.2500, 1.0000],
                [0.2500, 0.0000, 0.2500],
                [1.0000, 0.2500, 0.0000]], dtype=torch.float64)

    Sources: Bachoc et al. 2023; Allain, Gousset and Heurtin 2024, theorem 4.
    """

    def _features(self, points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
        _, masses, _ = self._target()
        return masses.sqrt() * potentials


class LinearTransport(TransportDistance):
    r"""The :math:`L^2` distance between barycentric transport maps from a reference measure.

    Let :math:`P_{ij}` be the entropic plan between a cloud with atoms :math:`x_i` and the reference
    with atoms :math:`u_j` and weights :math:`b_j`. The map sends :math:`u_j` to the mean of the atoms
    to which its mass is transported,

    .. math::
        t_P(u_j) = \frac{1}{b_j} \sum_i P_{ij} x_i, \qquad
        d^2(P, P') = \sum_j b_j |t_P(u_j) - t_{P'}(u_j)|^2.

    For small epsilon and a dense reference, the distance approximates linearised :math:`W_2`. As
    epsilon goes to infinity, it becomes the distance between means.

    Squared distances between clouds of spread ``s`` at a distance ``R`` from the origin are accurate to
    about ``1e-15 R / s`` times the largest one, since means are rounded like coordinates.
    :meth:`PointClouds.normalize` moves clouds to the origin.

    Args:
        reference: Reference measure, which can be learned.
        epsilon: Entropic regularisation, in squared units of the points. Default: 0.05 times the mean
            squared distance between two atoms of the reference at construction.

    Raises:
        TypeError: If ``reference`` is not a :class:`ReferenceMeasure`.
        ValueError: If ``epsilon`` is not positive and finite.

    Warns:
        ConvergenceWarning: If the solver misses its tolerance or the potentials are not determined.

    Example:
        >>> import torch
        >>> from gp_distributions import LinearTransport, PointClouds, ReferenceMeasure
        >>> reference = ReferenceMeasure(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
        >>> distance = LinearTransport(reference, epsilon=0.1)
        >>> clouds = PointClouds.from_list([[[0.0], [1.0]], [[0.0], [2.0]], [[1.0], [2.0]]])
        >>> distance.squared(clouds.pack())
        tensor([[0.0000, 0.5000, 1.0000],
                [0.5000, 0.0000, 0.5000],
                [1.0000, 0.5000, 0.0000]], dtype=torch.float64)

    Source: Wang et al. 2013 (linear optimal transport), with an entropic plan.
    """

    def _features(self, points: Tensor, weights: Tensor, potentials: Tensor) -> Tensor:
        support, masses, epsilon = self._target()
        conditional = conditional_plan(points, support, masses, epsilon, potentials)
        moved = (weights.unsqueeze(-1) * conditional).transpose(-1, -2) @ points
        return (moved / masses.sqrt().unsqueeze(-1)).flatten(-2)


def _default_epsilon(reference: ReferenceMeasure) -> float:
    if reference.size == 1:
        return 1.0  # the potential of a single atom is zero for every epsilon
    mean_square = torch.pdist(reference.points.detach()).square().mean().item()
    if mean_square == 0:
        raise ValueError(
            "All atoms of the reference coincide: give epsilon, or use distinct atoms."
        )
    return 0.05 * mean_square
