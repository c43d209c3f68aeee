"""The total variation distance on a shared support."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.distances.shared_support import SharedSupportDistance
from gp_distributions.numerics.pairwise import manhattan


class TotalVariation(SharedSupportDistance):
    r"""The square root of the total variation between weights on a shared support.

    The *squared* Hilbert distance is the total variation itself,

    .. math::
        d^2(P, P') = TV(P, P') = \frac{1}{2} \sum_s |w_s - w'_s| = 1 - \sum_s \min(w_s, w'_s),

    between 0 and 1. The coordinates of the atoms are labels: the distance between two atoms does not
    matter, and gradients with respect to coordinates are zero. Where two weights are equal,
    their gradient is zero. The origin of inner products is the zero measure, at squared distance 1/2
    from every distribution, so that the ``"linear"`` profile is half the intersection kernel,
    :math:`\sum_s \min(w_s, w'_s) / 2`.

    Args:
        dim: Dimension ``d`` of the atoms.
        support: The ``S x d`` possible locations of atoms, as a tensor or array. They are sorted, and
            duplicates are removed. Default: the atoms of positive weight in the first clouds, which
            are the training clouds of a :class:`DistributionGP`; or all atoms, if every cloud has the
            same atoms, as is the case for images.

    Raises:
        ValueError: If ``support`` has the wrong shape or is not finite; on evaluation, if an atom of
            positive weight is not in the support, or if the support is taken from clouds and one of
            them shares no atom with any other.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, TotalVariation
        >>> pixels = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
        >>> clouds = PointClouds(pixels.expand(2, 3, 1), weights)
        >>> TotalVariation(1, support=pixels).squared(clouds.pack())
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]], dtype=torch.float64)

    Source: Hein and Bousquet 2005.
    """

    euclidean = False

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the total variation between all pairs of representations."""
        return manhattan(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the total variation between corresponding representations."""
        return (r1 - r2).abs().sum(-1)
