"""Origins of the inner products between distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.measures.kinds import Distributions, as_rows, kind_of


class Origin(torch.nn.Module):
    r"""The mean, in the Hilbert space of a distance, of one or more distributions.

    The squared distance of a distribution to the mean of :math:`P_1, \dots, P_K` is

    .. math::
        \frac1K \sum_k d^2(P, P_k) - \frac{1}{2 K^2} \sum_{kl} d^2(P_k, P_l).

    Args:
        distributions: The distributions, or their ``K x width`` tensor of rows.
        distance: Distance that will compare them with others.

    Raises:
        TypeError: If ``distributions`` are neither distributions nor a tensor of floating-point numbers.
        ValueError: If there are none, or the distance does not read them.
    """

    def __init__(self, distributions: Distributions | Tensor, distance: Distance) -> None:
        super().__init__()
        rows, kind = as_rows(distributions).detach(), kind_of(distributions)
        if rows.dim() != 2 or not rows.numel():
            raise ValueError(
                "Expected an origin of one or more distributions, as a tensor of shape (K, width), got "
                f"shape {tuple(rows.shape)}."
            )
        if kind not in (None, distance.inputs):
            raise ValueError(f"Expected an origin of {distance.inputs}, got {kind}.")
        distance.block.split(rows)  # refuses rows of another width
        self.rows: Tensor
        self.register_buffer("rows", rows.clone())

    def extra_repr(self) -> str:
        """Return the number of distributions, for printing."""
        return f"mean of {len(self.rows)}"

    def squared_norms(self, distance: Distance, rows: Rows) -> Tensor:
        """Compute the squared distances of rows to the origin, ``batch_shape x N``."""
        origin = self.rows.to(rows_of(rows))
        # The distance remembers distances within a set, and so represents these rows once.
        within = distance.forward(origin).mean((-2, -1))
        return distance.forward(rows, origin).mean(-1) - within / 2
