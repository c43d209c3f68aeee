"""The images of distributions under a finite group."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, JoinedRows, Rows
from gp_distributions.distances.recent_rows import RecentRows
from gp_distributions.numerics.rotations import checked_group
from gp_distributions.rows.clouds import drop_copies
from gp_distributions.rows.gaussians import join_gaussians, split_gaussians
from gp_distributions.rows.layout import Block


class Orbits(torch.nn.Module):
    """Maps distributions by all elements of a group, and holds the images of rows seen lately.

    Args:
        group: A ``G x d x d`` tensor of matrices that form a group.
        block: The layout of the rows.

    Raises:
        ValueError: If the matrices do not form a group, have another dimension than the
            distributions, or the rows hold indices, which cannot be mapped.
    """

    def __init__(self, group: Tensor, block: Block) -> None:
        super().__init__()
        if block.kind == "indices":
            raise ValueError("Expected distributions of points, got indices of objects.")
        self.group: Tensor
        self.register_buffer("group", checked_group(group))
        if self.group.shape[-1] != block.dim:
            raise ValueError(
                f"Expected matrices for {block.dim} dimensions, got {self.group.shape[-1]}. Normals "
                "turn with positions: torch.stack([torch.block_diag(g, g) for g in group])."
            )
        self.block = block
        self.recent = RecentRows()

    def held(self, rows: Rows) -> EmbeddedRows:
        """Return what holds rows: for rows seen lately, with their images."""
        if isinstance(rows, EmbeddedRows):
            return rows
        parts = self.recent.find(rows)
        return parts[0] if len(parts) == 1 else EmbeddedRows(rows)

    def remember(self, rows: Rows, held: EmbeddedRows) -> None:
        """Remember rows, and their images, until others have been compared with themselves."""
        if isinstance(rows, Tensor) and not rows.requires_grad:
            self.recent.remember(rows, held)

    def images(self, rows: EmbeddedRows) -> JoinedRows:
        """Return the images of rows, of which the first part is the rows themselves."""
        return rows.derived("images", lambda: self._joined(rows), by=self)

    def whole(self, rows: EmbeddedRows) -> EmbeddedRows:
        """Return the images of rows in one part."""
        return rows.derived("whole", lambda: EmbeddedRows(self.images(rows).rows), by=self)

    def _joined(self, rows: EmbeddedRows) -> JoinedRows:
        images = self(rows.rows).split(rows.rows.shape[-2], dim=-2)
        return JoinedRows([rows, *map(EmbeddedRows, images[1:])])

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
        images = self.block.join(mapped, weights.unsqueeze(-3).expand(mapped.shape[:-1]))
        return images.flatten(-3, -2).expand(*rows.shape[:-2], -1, -1)
