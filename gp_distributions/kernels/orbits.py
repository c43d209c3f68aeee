"""The images of distributions under a finite group, and the distances between them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.evaluation import looking_up
from gp_distributions.distances.joint_motions import unchanged_by
from gp_distributions.numerics.groups import checked_group
from gp_distributions.rows.clouds import drop_copies, join_rows
from gp_distributions.rows.gaussians import join_gaussians, split_gaussians
from gp_distributions.rows.layout import Block
from gp_distributions.rows.memory import Memory, fingerprint, same_tensor


class Orbits(torch.nn.Module):
    """Maps distributions by all elements of a group, and remembers distances between fixed ones.

    Args:
        group: A ``G x d x d`` tensor of matrices that form a group.
        block: The layout of the rows.
        num_distances: Number of distances to remember for each set of distributions.

    Raises:
        ValueError: If the matrices do not form a group, have another dimension than the
            distributions, or the rows hold indices, which cannot be mapped.
    """

    def __init__(self, group: Tensor, block: Block, *, num_distances: int) -> None:
        super().__init__()
        if block.kind == "indices":
            raise ValueError("Expected distributions of points, got indices of objects.")
        self.group: Tensor
        self.register_buffer("group", checked_group(group))
        if self.group.shape[-1] != block.dim:
            raise ValueError(
                f"Expected matrices for {block.dim} dimensions, got {self.group.shape[-1]}."
            )
        self.block = block
        self.pairs = Memory(2 * num_distances)
        self.all_pairs = Memory(2 * num_distances)
        self.unchanged = Memory(num_distances)

    def leave_unchanged(self, distance: Distance) -> bool:
        """Return whether a distance is known not to change when both distributions are mapped."""
        key = fingerprint(distance)
        found: bool | None = self.unchanged.recall(key, self.group)
        if found is None:
            found = unchanged_by(distance, self.group)
            self.unchanged.remember(key, self.group, found)
        return found

    def forward(self, rows: Tensor) -> Tensor:
        """Return the images of rows, element by element, the rows themselves first.

        Args:
            rows: A ``batch_shape x N x width`` tensor.

        Returns:
            A ``batch_shape x G*N x width`` tensor.
        """
        atoms, weights = self.block.split(drop_copies(rows))
        atoms = atoms.unsqueeze(-4)
        group = self.group.to(rows).unsqueeze(1)  # G x 1 x d x d, for N clouds of m atoms
        if self.block.atom_dim == self.block.dim:
            mapped = atoms @ group.mT
        else:
            mean, covariance = split_gaussians(atoms, self.block.dim)
            each = group.unsqueeze(1)
            mapped = join_gaussians(mean @ group.mT, each @ covariance @ each.mT)
        if self.block.atom_columns is None:
            images = mapped.flatten(-2)
        else:
            images = join_rows(mapped, weights.unsqueeze(-3).expand(mapped.shape[:-1]))
        return images.flatten(-3, -2).expand(*rows.shape[:-2], -1, -1)


class OrbitLookUp:
    """Computes distances between the images of one set and another set, and remembers them.

    The distances between the sets themselves are those that the distance remembers, and the
    distances between the images of a set and the set are remembered here.

    Args:
        orbits: The group.
        x1: A ``batch_shape x N x width`` tensor of rows.
        x2: A ``batch_shape x M x width'`` tensor of rows.
        images: The images of ``x1``, the first argument of the distance.
        others: The second argument of the distance: ``x2``, or for the diagonal, a copy of it for each
            element of the group.
    """

    def __init__(
        self, orbits: Orbits, x1: Tensor, x2: Tensor, images: Tensor, others: Tensor
    ) -> None:
        self._orbits = orbits
        self._arguments = images, others
        self._sets = x1, x2
        self._images = images[..., x1.shape[-2] :, :]  # the first are x1 itself
        self._fixed = False
        once = drop_copies(x1)
        if once.dim() == 2 and (x1 is x2 or same_tensor(once, drop_copies(x2))):
            self._fixed = True
            self._sets = once, once
            self._images = drop_copies(self._images)

    def __call__(self, distance: Any, images: Tensor, others: Tensor, diag: bool) -> Tensor | None:
        """Return squared distances without a gradient; ``None`` if they need one."""
        if images is not self._arguments[0] or others is not self._arguments[1]:
            return None
        tensors = images, others, *distance.parameters()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return None
        with looking_up(None):
            if not self._fixed:
                return self._squared(distance, diag)
            memory = self._orbits.pairs if diag else self._orbits.all_pairs
            key, rows = (fingerprint(distance), fingerprint(self._orbits)), self._sets[0]
            squared = memory.recall(key, rows)
            if squared is None:
                squared = self._squared(distance, diag)
                memory.remember(key, rows, squared)
        batch_shape = torch.broadcast_shapes(images.shape[:-2], others.shape[:-2])
        return squared.expand(*batch_shape, *squared.shape).clone()

    def _squared(self, distance: Any, diag: bool) -> Tensor:
        x1, x2 = self._sets
        first = distance.squared(x1, x2, diag=diag)
        if not diag:
            return torch.cat([first, distance.squared(self._images, x2)], dim=-2)
        parts = self._images.split(x1.shape[-2], dim=-2)
        return torch.cat([first, *(distance.squared(part, x2, diag=True) for part in parts)], -1)
