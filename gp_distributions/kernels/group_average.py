"""Kernels averaged over a finite group of linear maps of the clouds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, JoinedRows, Rows, rows_of
from gp_distributions.distances.joint_motions import unchanged_by
from gp_distributions.kernels.block_kernel import BlockKernel
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.orbits import Orbits
from gp_distributions.kernels.row_kernel import RowKernel
from gp_distributions.numerics.linear_algebra import square_root
from gp_distributions.rows.clouds import expand_batches, same_tensor


class GroupAverageKernel(RowKernel):
    r"""Average of a kernel over a finite group of linear maps, such as rotations and reflections.

    Let :math:`G` be a finite group of matrices, and :math:`gP` the distribution of :math:`g x` for
    :math:`x` from :math:`P`. The average of a kernel :math:`k` over the group,

    .. math::
        k_G(P, P') = \frac{1}{|G|^2} \sum_{g, h \in G} k(g P, h P'),

    is positive definite, and does not change when either distribution is mapped by an element of the
    group. If :math:`k` does not change when both distributions are mapped together, the average over
    one side, :math:`\frac{1}{|G|} \sum_g k(g P, P')`, is equal to it. It is used, because it needs
    :math:`|G|` times fewer distances, if it is known to be equal: if ``base_kernel`` consists of scales,
    sums and products of :class:`DistributionKernel` without an ``origin``, with these distances:

    - :class:`SlicedWasserstein`, if the matrices are orthogonal and permute the directions of the slices
      up to their signs. In the plane, these are rotations by multiples of :math:`2 \pi / n` where ``n``
      divides ``2 * num_slices``, and reflections at the axes;
    - :class:`MMD` with a named embedding kernel and without features, if the matrices are orthogonal.

    For all other kernels, both sides are averaged. The average is normalised,
    :math:`k_G(P, P') / \sqrt{k_G(P, P) k_G(P', P')}`, where :math:`k_G(P, P)` is positive.

    Matrices act about the origin, and on normals by a second block: ``torch.block_diag(g, g)``. To
    compare shapes in any position, give the distance ``center=True``. Without a gradient, distances
    between the training clouds and their images are computed once.

    Args:
        base_kernel: A kernel on rows that contains at least one :class:`DistributionKernel`. All of them
            read the same columns. To set the variance, put a ``ScaleKernel`` around the average. In a
            kernel of :class:`MixedInputs`, average the kernel of a block and not the whole kernel:
            ``mixed_kernel(X, {name: GroupAverageKernel(kernel, group)})``.
        group: A ``|G| x d x d`` tensor of matrices that contains the identity and all products, such as
            :func:`planar_rotations`.
        normalize: Whether to normalise the average.
        active_dims: Columns of the rows that the kernel reads. Default: all.

    Raises:
        TypeError: If ``base_kernel`` does not contain a :class:`DistributionKernel`, or ``group`` is not
            a tensor.
        ValueError: If the matrices do not form a group or have another dimension than the clouds, the
            distribution kernels read different columns or kinds of distributions, or ``base_kernel``
            contains a :class:`BlockKernel`.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.kernels import GroupAverageKernel, planar_rotations
        >>> from gp_distributions import SlicedWassersteinKernel
        >>> triangle = torch.tensor([[-1.0, 0.0], [3.0, 0.0], [-2.0, 1.0]], dtype=torch.float64)
        >>> turned = triangle @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
        >>> rows = PointClouds(torch.stack([triangle, turned, 2 * triangle])).pack()
        >>> base = SlicedWassersteinKernel(dim=2, num_slices=16)
        >>> kernel = GroupAverageKernel(base, planar_rotations(8))
        >>> kernel(rows).to_dense().detach().round(decimals=3)
        tensor([[1.0000, 1.0000, 0.3460],
                [1.0000, 1.0000, 0.3460],
                [0.3460, 0.3460, 1.0000]], dtype=torch.float64)

    Source: Haasdonk and Burkhardt 2007 (Haar integration of kernels).
    """

    def __init__(
        self,
        base_kernel: Kernel,
        group: Tensor,
        *,
        normalize: bool = True,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        if not isinstance(group, Tensor):
            raise TypeError(f"Expected matrices as a tensor, got {type(group).__name__}.")
        parts = list(_distribution_kernels(base_kernel))
        distances = {part.distance for part in parts}
        blocks = {distance.block for distance in distances}
        if len(blocks) > 1:
            raise ValueError(
                f"Expected distances between one kind of distributions, got {sorted(map(str, blocks))}."
                " Average each kernel, and then add or multiply the averages."
            )
        super().__init__(active_dims=active_dims)
        self.base_kernel = base_kernel
        self.normalize = normalize
        # Kernels of a batch slice their own buffers, but not those of other modules.
        self.orbits = Orbits(group, blocks.pop())

    @property
    def group(self) -> Tensor:
        """The ``|G| x d x d`` matrices, the identity first."""
        return self.orbits.group

    @property
    def both_sides(self) -> bool:
        """Whether the average over one side is not known to be the average over both."""
        return not self._moves_together(self.base_kernel)

    def _moves_together(self, kernel: Kernel) -> bool:
        """Return whether a kernel is known not to change when both distributions are mapped."""
        if type(kernel) is ScaleKernel:
            return self._moves_together(kernel.base_kernel)
        if type(kernel) in (AdditiveKernel, ProductKernel):
            return all(map(self._moves_together, kernel.kernels))
        plain = type(kernel).forward is DistributionKernel.forward
        plain = plain and kernel.origin is None  # which the maps may move
        return plain and unchanged_by(kernel.distance, self.group)

    def forward(self, x1: Rows, x2: Rows, diag: bool = False, **params: Any) -> Tensor:
        """Compute covariances of rows: ``batch_shape x N x M``, or ``batch_shape x N`` with ``diag``."""
        first = self.orbits.held(x1)
        second = first if x2 is x1 else self.orbits.held(x2)
        average = self._average(first, second, diag=diag)
        if self.normalize:
            if first is second or _same_constants(first.rows, second.rows):
                norms1 = norms2 = average if diag else average.diagonal(dim1=-1, dim2=-2)
            else:
                norms1, norms2 = (self._average(x, x, diag=True) for x in (first, second))
            scales1, scales2 = (1 / square_root(norms, at_zero=1.0) for norms in (norms1, norms2))
            scales = scales1 * scales2 if diag else scales1.unsqueeze(-1) * scales2.unsqueeze(-2)
            average = average * scales
        if x2 is x1:
            self.orbits.remember(x1, first)
        return expand_batches(average, rows_of(x1), rows_of(x2), diag=diag)

    def _average(self, x1: EmbeddedRows, x2: EmbeddedRows, *, diag: bool) -> Tensor:
        size, num1, num2 = len(self.group), x1.rows.shape[-2], x2.rows.shape[-2]
        both_sides = x1.derived("both sides", lambda: self.both_sides, by=self)
        images1 = self.orbits.images(x1)
        if diag:
            others = self.orbits.images(x2).parts if both_sides else [x2]
            pairs = [
                covariance(self.base_kernel, images1, JoinedRows([other] * size), diag=True)
                for other in others
            ]
            return torch.stack(pairs).unflatten(-1, (size, -1)).mean((0, -2))
        if not both_sides:
            values = covariance(self.base_kernel, images1, x2)
            return values.unflatten(-2, (size, num1)).mean(-3)
        values = covariance(self.base_kernel, self.orbits.whole(x1), self.orbits.whole(x2))
        return values.unflatten(-2, (size, num1)).unflatten(-1, (size, num2)).mean((-4, -2))

    # The group and its memory have no batch axes: all kernels of a batch share them.

    def __getitem__(self, index: Any) -> GroupAverageKernel:
        """Index a batch of kernels; the result shares the group with this kernel."""
        kernel = super().__getitem__(index)
        if kernel is not self:
            kernel.orbits = self.orbits
            kernel.batch_shape = torch.Size()  # that of the base kernel remains
        return kernel

    def expand_batch(self, *sizes: Any) -> GroupAverageKernel:
        """Expand the parameters to a batch shape; the result shares the group with this kernel."""
        kernel = super().expand_batch(*sizes)
        if kernel is not self:
            kernel.orbits = self.orbits
        return kernel


def closest_images(squared: Tensor, num: int) -> Tensor:
    """Reduce squared distances between the images of ``num`` clouds to the smallest for each pair.

    Args:
        squared: A ``batch_shape x A*num x B*num`` tensor, as distances within a
            :class:`GroupAverageKernel` return it. In other kernels, ``A = B = 1``.
        num: Number ``N`` of clouds.

    Returns:
        A ``batch_shape x N x N`` tensor.
    """
    return squared.unflatten(-2, (-1, num)).unflatten(-1, (-1, num)).amin((-4, -2))


def _distribution_kernels(base_kernel: Kernel) -> Iterator[DistributionKernel]:
    found = False
    for part in base_kernel.modules():
        if isinstance(part, BlockKernel):
            raise ValueError(
                "Expected a base_kernel of distributions alone, got a BlockKernel, as in a kernel of "
                "mixed inputs. Average the kernel inside the block: mixed_kernel(X, "
                "{name: GroupAverageKernel(kernel, group)})."
            )
        if isinstance(part, Kernel) and part.active_dims is not None:
            raise ValueError(
                "Expected a base_kernel that reads all columns (active_dims=None). Give active_dims to "
                "the average instead."
            )
        if isinstance(part, DistributionKernel):
            found = True
            yield part
    if not found:
        raise TypeError(
            "Expected a base_kernel that contains a DistributionKernel, got "
            f"{type(base_kernel).__name__}."
        )


def _same_constants(x1: Tensor, x2: Tensor) -> bool:
    return not (x1.requires_grad or x2.requires_grad) and same_tensor(x1, x2)
