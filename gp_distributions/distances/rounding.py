"""How large squared distances between clouds that coincide may be, because of rounding errors."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.rows.clouds import drop_copies

# Number of clouds whose rounding errors are computed.
_CLOUDS = 8
# No rounding error is as large as this distance, and as this share of the largest coordinate.
_FAR, _FAR_SHARE = 1e-6, 1e-10
# How many rounding errors coordinates, or squared norms, may differ by between clouds that coincide.
_ERRORS = 10


@torch.no_grad()
def rounding_of(distance: Distance, rows: Tensor, squared: Tensor) -> Tensor:
    r"""Largest squared distance between clouds that coincide up to rounding errors.

    It is the squared distance by which clouds move if their coordinates change by ten rounding errors.
    A distance that is not Euclidean may also be a difference of squared norms :math:`s`, whose rounding
    errors are :math:`10 \varepsilon s` for the machine epsilon :math:`\varepsilon`.

    Args:
        distance: Distance that reads the rows.
        rows: A ``batch_shape x N x width`` tensor of the columns that the distance reads.
        squared: The ``batch_shape x N x N`` squared distances between the rows.

    Returns:
        A scalar tensor; zero if the distance does not read coordinates, or if the largest squared
        distance is so large that none of this matters.
    """
    rows = drop_copies(rows).flatten(0, -2)[:_CLOUDS]  # all would cost too much
    precision = torch.finfo(rows.dtype).eps / torch.finfo(torch.float64).eps
    far = max(_FAR * precision**0.5, _FAR_SHARE * precision * rows.abs().max().item())
    if not distance.reads_coordinates or squared.max().sqrt() > far:
        return rows.new_zeros(())
    error = _ERRORS * torch.finfo(rows.dtype).eps
    moved = distance.represent_rows(_moved(distance, rows, error))
    rounding = distance.compare_paired(distance.represent_rows(rows), moved).max()
    return rounding if distance.euclidean else rounding + error * distance.squared_norms(rows).max()


def _moved(distance: Distance, rows: Tensor, error: float) -> Tensor:
    """Change coordinates by a relative error, those of every other atom in the other direction."""
    atoms, weights = distance.block.split(rows)
    signs = torch.ones(atoms.shape[-2], 1, dtype=rows.dtype, device=rows.device)
    signs[1::2] = -1
    atoms = atoms * (1 + error * signs)
    return distance.block.join(atoms, weights)
