"""Estimates of the cost of exact fits, for a message before a long one starts."""

from __future__ import annotations

import time

import torch
from gpytorch.models import ExactGP

from gp_distributions.warnings import CostWarning, warn

# Models of more clouds get a message.
_MANY = 4000
# Number of clouds at which an evaluation is timed.
_TIMED = 500
# A fit takes about as long as this many pairs of a Cholesky factor and an inverse, and holds about as
# many matrices as there are clouds squared.
_PAIRS, _MATRICES = 30, 7


def warn_of_cost(model: ExactGP) -> None:
    """Warn of the time and memory of a fit of many clouds.

    Args:
        model: A model with training data.

    Warns:
        CostWarning: If there are more than 4,000 clouds.
    """
    targets = model.train_targets
    num_clouds = targets.shape[-1]
    if num_clouds <= _MANY:
        return
    # Outputs that share a kernel share its covariance matrix.
    matrices = max(1, getattr(model, "_aug_batch_shape", targets.shape[:-1]).numel())
    minutes = matrices * _PAIRS * _seconds(num_clouds, targets.device) / 60
    gibibytes = matrices * _MATRICES * num_clouds**2 * targets.element_size() / 2**30
    time_needed = f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.0f} hours"
    warn(
        f"An exact fit of {num_clouds:,} clouds takes about {time_needed} and {gibibytes:.1f} GiB of "
        "memory here: time grows with the cube of the number of clouds, memory with its square. "
        "SparseDistributionGP takes any number of clouds.",
        CostWarning,
    )


def _seconds(num_clouds: int, device: torch.device) -> float:
    """Estimate the time of a Cholesky factor and an inverse from those of a smaller matrix."""
    matrix = torch.eye(_TIMED, dtype=torch.float64, device=device)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        torch.cholesky_inverse(torch.linalg.cholesky(matrix)).sum().item()  # waits for a GPU
        seconds.append(time.perf_counter() - start)
    return min(seconds) * (num_clouds / _TIMED) ** 3
