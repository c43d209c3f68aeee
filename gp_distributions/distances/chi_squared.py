"""The chi-squared distance on a shared support."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.distances.shared_support import SharedSupportDistance
from gp_distributions.numerics.pairwise import chi_squared, pairs_in_strips


class ChiSquared(SharedSupportDistance):
    r"""The chi-squared distance between weights on a shared support.

    The *squared* Hilbert distance is half the symmetric chi-squared statistic, which is also called
    triangular discrimination,

    .. math::
        d^2(P, P') = \frac{1}{2} \sum_s \frac{(w_s - w'_s)^2}{w_s + w'_s}
        = 1 - 2 \sum_s \frac{w_s w'_s}{w_s + w'_s},

    between 0 and 1, where bins that are empty in both distributions contribute zero. It is Hilbertian,
    since :math:`w w' / (w + w') = \int_0^\infty w e^{-t w} \, w' e^{-t w'} \, dt` is positive definite.
    Pearson's statistic, which divides by :math:`w'_s` alone, is not symmetric and is not offered. With
    the ``"gaussian"`` profile, the kernel is that of :func:`sklearn.metrics.pairwise.chi2_kernel` for
    :math:`\gamma = 1 / (4 \ell^2)`.

    The distance lies between that of Hellinger :math:`H` and the total variation,
    :math:`H^2 \le d^2 \le \min(2 H^2, TV)`. The coordinates of the atoms are labels: the distance
    between two atoms does not matter, and gradients with respect to coordinates are zero. Gradients with
    respect to weights are finite, also for a bin that is empty in one distribution; for a bin that is
    empty in both, the gradient is set to zero. The origin of inner products is the zero measure, at
    squared distance 1/2 from every distribution, so that the ``"linear"`` profile is
    :math:`\sum_s w_s w'_s / (w_s + w'_s)`.

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
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.distances import ChiSquared
        >>> pixels = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
        >>> weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
        >>> clouds = PointClouds(pixels.expand(2, 3, 1), weights)
        >>> ChiSquared(1, support=pixels).squared(clouds.pack())
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]], dtype=torch.float64)

    Source: Hein and Bousquet 2005; Vedaldi and Zisserman 2012 (the kernel of the inner products).
    """

    euclidean = False

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations."""
        return pairs_in_strips(chi_squared, r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations."""
        return chi_squared(r1, r2)
