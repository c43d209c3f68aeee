"""Choice of inducing inputs: randomly pivoted Cholesky factorisation of a covariance matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Largest number of pivots that are proposed together, so that most of the work is matrix products.
_BLOCK = 128


def choose_pivots(
    covariances: Callable[[Tensor | None, Tensor], Tensor],
    variances: Tensor,
    count: int,
    *,
    tolerance: float,
    seed: int = 0,
) -> Tensor:
    r"""Choose inputs whose span under a kernel is close to all inputs.

    Let :math:`K` be the covariance matrix of ``N`` inputs and
    :math:`K_{\cdot Z} K_{ZZ}^{-1} K_{Z \cdot}` its approximation from the inputs :math:`Z` chosen so
    far. The next input is drawn with a probability proportional to its residual variance, the diagonal
    of the difference. Inputs are proposed in blocks, and a proposal is rejected with a probability
    equal to the share of its residual variance that the block has explained already. This draws from
    the same distribution as one proposal at a time.

    Args:
        covariances: Function of two tensors of indices that returns the covariances between the inputs
            with these indices; ``None`` stands for all inputs.
        variances: The ``N`` prior variances, in double precision.
        count: Largest number of inputs to choose.
        tolerance: Residual variance below which an input is not chosen.
        seed: Random seed.

    Returns:
        Indices of the chosen inputs, in the order of choice. There are fewer than ``count`` if no other
        input has a residual variance above ``tolerance``.

    Source: Chen, Epperly, Tropp and Webber 2025 (randomly pivoted Cholesky); Epperly, Tropp and Webber
    2024 (algorithm 2.2, blocks with rejection).
    """
    generator = torch.Generator().manual_seed(seed)
    residual = variances.clone()
    factor = variances.new_empty(min(count, len(variances)), len(variances))
    chosen = torch.empty(0, dtype=torch.long, device=variances.device)
    while len(chosen) < count:
        residual[residual <= tolerance] = 0
        if not bool(residual.any()):
            break
        size = min(_BLOCK, count - len(chosen))
        proposed = torch.multinomial(
            residual.cpu(), size, replacement=True, generator=generator
        ).to(residual.device)
        known = factor[: len(chosen)]
        within = covariances(proposed, proposed) - known[:, proposed].mT @ known[:, proposed]
        thresholds = torch.rand(size, generator=generator, dtype=torch.float64)
        thresholds = residual[proposed].cpu() * thresholds
        places = _accepted(within.cpu(), proposed.tolist(), thresholds, tolerance).to(proposed)
        pivots = proposed[places]
        left = covariances(None, pivots) - known.mT @ known[:, pivots]
        # Rounding errors of distances are not small beside a tiny lengthscale: two evaluations of one
        # covariance can differ, and only this one has been checked.
        left[pivots] = within[places][:, places]
        root = torch.linalg.cholesky(left[pivots])
        new = torch.linalg.solve_triangular(root, left.mT, upper=False)
        factor[len(chosen) : len(chosen) + len(pivots)] = new
        residual -= new.square().sum(0)
        residual[pivots] = 0
        chosen = torch.cat([chosen, pivots])
    return chosen


def _accepted(
    within: Tensor, proposed: Sequence[int], thresholds: Tensor, tolerance: float
) -> Tensor:
    """Return the places of the proposals that are accepted, each input at most once.

    They have a residual variance above a threshold, given those accepted before them.
    """
    places: list[int] = []
    taken: set[int] = set()
    for i, index in enumerate(proposed):
        pivot = within[i, i]
        if index not in taken and pivot > max(float(thresholds[i]), tolerance):
            places.append(i)
            taken.add(index)
            within = within - torch.outer(within[:, i], within[i]) / pivot
    return torch.tensor(places, dtype=torch.long)
