r"""Inner products of mean embeddings of weighted clouds, in blocks that bound memory.

.. math::
    \langle \mu_P, \mu_Q \rangle = \sum_{ij} w_i v_j \, k(x_i, y_j).

Inner products of mean embeddings of clouds that share their atoms, as images on one grid do.

With weights :math:`W` and the kernel matrix :math:`K` of the atoms, the inner products are
:math:`W K W^\top`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import (
    EmbeddingKernel,
    IsotropicKernel,
    PairFunction,
)
from gp_distributions.numerics.linear_algebra import matmul, recomputed
from gp_distributions.numerics.pairwise import mirrored
from gp_distributions.rows.clouds import Cloud, by_size
from gp_distributions.rows.tensors import is_tracked

# Number of entries of the kernel matrix that are computed at a time.
_STRIP = 2**22


def common_atoms(x1: Tensor, x2: Tensor) -> Tensor | None:
    """Return the atoms that all clouds share, if the clouds have the same atoms in the same order.

    Args:
        x1: A ``batch_shape x N x n x d`` tensor of atoms.
        x2: A ``batch_shape x M x m x d`` tensor of atoms.

    Returns:
        An ``n x d`` tensor without a gradient, or ``None`` if the clouds differ in their atoms.
    """
    first = x1.detach()[(0,) * (x1.dim() - 2)]
    last = x2.detach()[(-1,) * (x2.dim() - 2)]
    if not torch.equal(first, last):  # cheap test that rejects nearly all other clouds
        return None
    return first if bool((x1 == first).all() & (x2 == first).all()) else None


def common_inner_products(
    kernel: IsotropicKernel, support: Tensor, w1: Tensor, w2: Tensor
) -> Tensor:
    """Inner products of all pairs of mean embeddings of clouds on one support.

    Args:
        kernel: Kernel on the atoms.
        support: An ``n x d`` tensor, the atoms that all clouds share.
        w1: A ``batch_shape x N x n`` tensor of weights.
        w2: A ``batch_shape x M x n`` tensor of weights.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    flat = w1.flatten(0, -2)

    def embedded(flat: Tensor, columns: Tensor) -> Tensor:
        return matmul(flat, kernel.pairs(support, columns))

    parts = [
        recomputed(embedded, flat, columns)
        for columns in support.split(max(1, _STRIP // len(support)))
    ]
    return matmul(torch.cat(parts, dim=-1).unflatten(0, w1.shape[:-1]), w2.mT)


# How many numbers a block holds: it should fit the processor's cache, unless gradients are needed, as
# operations then have more overhead.
_BLOCK, _TRACKED_BLOCK = 2**17, 2**20


def inner_products(
    kernel: EmbeddingKernel,
    x1: Tensor,
    w1: Tensor,
    x2: Tensor,
    w2: Tensor,
    *,
    symmetric: bool = False,
) -> Tensor:
    """Inner products of all pairs of mean embeddings.

    The backward pass computes each block again, so that no values for pairs of atoms are stored.

    Args:
        kernel: Kernel on the atoms.
        x1: A ``batch_shape x N x n x d`` tensor of atoms.
        w1: A ``batch_shape x N x n`` tensor of weights.
        x2: A ``batch_shape x M x m x d`` tensor of atoms.
        w2: A ``batch_shape x M x m`` tensor of weights.
        symmetric: Whether the clouds on both sides are the same. If so, the result is exactly symmetric,
            and only one half of it is computed if there are no batch axes.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    batch_shape = torch.broadcast_shapes(x1.shape[:-3], x2.shape[:-3])
    # For one or two pairs, a kernel matrix on the shared support saves nothing.
    several = x1.shape[:-2].numel() * x2.shape[-3] > 2
    if isinstance(kernel, IsotropicKernel) and several and not is_tracked(x1, x2):
        support = common_atoms(x1, x2)
        if support is not None:
            products = common_inner_products(kernel, support, w1, w2)
            return mirrored(products) if symmetric else products
    x1, x2, pairs = kernel.prepare(x1, x2)
    clouds = (x1, w1, x2, w2)
    held = _TRACKED_BLOCK if is_tracked(*clouds) or not x1.is_cpu else _BLOCK
    size = held // kernel.workspace
    blocks = _Blocks(pairs, max(1, size))
    if x1.dim() == 3 and x2.dim() == 3:
        return blocks.all_pairs(*clouds, symmetric=symmetric)
    batches = [
        t.expand(*batch_shape, *t.shape[-k:]).reshape(-1, *t.shape[-k:])
        for t, k in zip(clouds, (3, 2, 3, 2), strict=True)
    ]
    count = size // (w1.shape[-2:].numel() * w2.shape[-2:].numel())
    if count:
        chunks = zip(*[t.split(count) for t in batches], strict=True)
        products = torch.cat([blocks.block(*chunk) for chunk in chunks])
        products = mirrored(products) if symmetric else products
    else:
        each = zip(*batches, strict=True)
        products = torch.stack([blocks.all_pairs(*one, symmetric=symmetric) for one in each])
    return products.unflatten(0, batch_shape)


@dataclass(frozen=True)
class _Blocks:
    """Compute inner products, one block at a time.

    Attributes:
        pairs: Function that evaluates the kernel at all pairs of points.
        size: Number of pairs of atoms in a block.
    """

    pairs: PairFunction
    size: int

    def all_pairs(
        self, x1: Tensor, w1: Tensor, x2: Tensor, w2: Tensor, *, symmetric: bool
    ) -> Tensor:
        """Compute inner products in strips of rows, which start at the diagonal if ``symmetric``."""
        height = math.isqrt(self.size)
        chunks1, back1 = by_size(x1, w1, height)
        # If the clouds do not fill the height of a block, the blocks are made wider instead.
        width = self.size // max(len(w) * min(w.shape[-1], height) for _, w in chunks1)
        chunks2, back2 = by_size(x2, w2, width)
        strips, first, skipped, done = [], 0, 0, 0
        for x, w in chunks1:
            while symmetric and skipped + len(chunks2[first][1]) <= done:
                skipped += len(chunks2[first][1])
                first += 1
            blocks = [self.by_atoms((x, w), other, height, width) for other in chunks2[first:]]
            strips.append(torch.nn.functional.pad(torch.cat(blocks, dim=-1), (skipped, 0)))
            done += len(w)
        products = torch.cat(strips)
        if symmetric:
            products = mirrored(products)
        products = products if back1 is None else products[back1]
        return products if back2 is None else products[:, back2]

    def by_atoms(self, one: Cloud, other: Cloud, height: int, width: int) -> Tensor:
        """Compute the inner products of two groups in one block, or as a sum over parts of clouds."""
        (x1, w1), (x2, w2) = one, other
        if w1.shape[-1] <= height and w2.shape[-1] <= width:
            return self.block(x1, w1, x2, w2)
        total = torch.zeros(())
        for i in range(0, w1.shape[-1], height):
            for j in range(0, w2.shape[-1], width):
                rows, columns = slice(i, i + height), slice(j, j + width)
                total = total + self.block(x1[:, rows], w1[:, rows], x2[:, columns], w2[:, columns])
        return total

    def block(self, x1: Tensor, w1: Tensor, x2: Tensor, w2: Tensor) -> Tensor:
        """Compute one block: the ``batch_shape x a x b`` inner products of two groups of clouds."""
        return recomputed(self._block, x1, w1, x2, w2)

    def _block(self, x1: Tensor, w1: Tensor, x2: Tensor, w2: Tensor) -> Tensor:
        values = self.pairs(x1.flatten(-3, -2), x2.flatten(-3, -2))
        # Evaluate the mean embeddings of the first clouds at the atoms of the second clouds.
        embedded = matmul(w1.unsqueeze(-2), values.unflatten(-2, w1.shape[-2:]))
        return (embedded.squeeze(-2).unflatten(-1, w2.shape[-2:]) * w2.unsqueeze(-3)).sum(-1)
