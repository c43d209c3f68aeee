"""The total variation distance on a shared support."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.distances.shared_support import SharedSupportDistance
from gp_distributions.numerics.pairwise import manhattan


class TotalVariation(SharedSupportDistance):
    r"""The root of the total variation between weights on one support.

    The *squared* Hilbert distance is the total variation itself,

    .. math::
        d^2(P, P') = TV(P, P') = \frac{1}{2} \sum_s |w_s - w'_s| = 1 - \sum_s \min(w_s, w'_s),

    between 0 and 1. The coordinates of the atoms are labels: how far two atoms lie apart does not
    matter, and gradients in them are zero. The gradient in a weight where two are equal is 0. The
    origin of inner products is the measure zero, at squared distance 1/2 from all others: the
    ``"linear"`` profile is half the intersection kernel, :math:`\sum_s \min(w_s, w'_s) / 2`.

    Args:
        dim: The dimension ``d`` of the atoms.
        support: The ``S x d`` points that atoms can have, as a tensor or array; kept in
            lexicographic order, each once. Default: the atoms of the first clouds seen, which are the
            training clouds of a :class:`DistributionGP`; where all of them list the same atoms, as
            images do, also those without weight.

    Raises:
        ValueError: If ``support`` has another shape or is not finite; on evaluation, if an atom of
            positive weight is not in the support, or if the support is taken from clouds of which
            one shares no atom with any other.

    Source: Hein and Bousquet 2005.
    """

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Half the weights on the support."""
        return self.masses(points, weights) / 2

    @property
    def euclidean(self) -> bool:
        """Whether distances are the Euclidean ones of the representations: they are not."""
        return False

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Total variations of all pairs of representations."""
        return manhattan(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Total variations of corresponding representations."""
        return (r1 - r2).abs().sum(-1)

    def squared_norms(self, rows: Tensor) -> Tensor:
        """Squared distances to the measure zero, 1/2: ``batch_shape x N``."""
        return rows.new_full(rows.shape[:-1], 0.5)
