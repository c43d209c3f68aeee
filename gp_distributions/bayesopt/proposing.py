"""Steps of every proposal: seeds, several candidates one after the other, and units of outcomes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.exceptions import UnsupportedError
from botorch.generation import gen_candidates_scipy
from torch import Tensor

from gp_distributions.models.arguments import standardize
from gp_distributions.warnings import PrecisionWarning, warn

FoundT = TypeVar("FoundT")

_LOCK = threading.RLock()
# GPyTorch raises variances to 1e-10, and BoTorch smooths constraints by 1e-3.
_SMALL = 1e-3


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of the CPU and ``device``, and restore their states afterwards.

    BoTorch draws from these generators when it chooses starting points. A lock admits one thread at a
    time, so that searches in several threads do not share random numbers. Unlike ``torch.manual_seed``,
    this function does not seed other devices.
    """
    on_gpu = device.type == "cuda"
    with _LOCK, torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield


def derived_seed(*entropy: int) -> int:
    """Return a seed that is determined by several numbers and differs where one of them does."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) % 2**31


def one_by_one(
    acquisition: AcquisitionFunction,
    q: int,
    find: Callable[[list[FoundT]], FoundT],
    inputs: Callable[[list[FoundT]], Tensor],
) -> list[FoundT]:
    """Return ``q`` candidates, each found with the previous ones as pending points.

    Args:
        acquisition: The acquisition function, whose pending points are restored afterwards.
        q: Number of candidates.
        find: Function that maximises the acquisition function, given the previous candidates.
        inputs: Function that converts candidates to inputs of the acquisition function.

    Raises:
        UnsupportedError: If the acquisition function is one-shot, or ``q > 1`` and it does not support
            pending points.
    """
    if isinstance(acquisition, OneShotAcquisitionFunction):
        raise UnsupportedError(
            "Expected an acquisition function that is not one-shot, got "
            f"{type(acquisition).__name__}. Use, for example, qLogNoisyExpectedImprovement."
        )
    before = getattr(acquisition, "X_pending", None)
    found: list[FoundT] = []
    try:
        for _ in range(q):
            if found:
                pending = inputs(found)
                pending = pending if before is None else torch.cat([before, pending.to(before)])
                acquisition.set_X_pending(pending)
            found.append(find(found))
    finally:
        if q > 1:
            acquisition.set_X_pending(before)
    return found


def climb(
    value: Callable[[Tensor], Tensor],
    states: Tensor,
    moving: Sequence[int],
    limits: Tensor,
    maxiter: int,
) -> tuple[Tensor, Tensor]:
    """Maximise a function from several starts by L-BFGS-B, in some columns with the others fixed.

    Args:
        value: Function of a ``b x 1 x columns`` tensor, such as an acquisition function.
        states: The starts, ``S x columns``, whose columns that move are clamped to their bounds.
        moving: Numbers of the columns that move.
        limits: Bounds of these columns, a ``2 x columns`` tensor.
        maxiter: Maximum number of iterations.

    Returns:
        The states that were reached, and their values.
    """
    bounds = states.new_zeros(2, states.shape[-1])
    bounds[:, moving] = limits
    starts = states.clone()
    starts[:, moving] = starts[:, moving].clamp(*limits)
    columns = set(range(states.shape[-1])).difference(moving)
    found, values = gen_candidates_scipy(
        starts.unsqueeze(-2),
        value,
        *bounds,
        # Each start is a problem of its own, also where BoTorch does not know SciPy's version.
        options={"maxiter": maxiter, "max_optimization_problem_aggregation_size": 1},
        fixed_features={column: states[:, [column]] for column in columns},
    )
    return found.squeeze(-2).detach(), values.detach()


def in_common_units(outcomes: Tensor) -> Tensor:
    """Scale outcomes to standard deviations between 1 and 2, by powers of two, which is exact.

    Args:
        outcomes: A ``T x outcomes`` tensor. Outcomes that are all equal stay as they are.
    """
    exponents = 1 - torch.frexp(_deviations(outcomes)).exponent
    return torch.ldexp(outcomes, exponents)


def check_units(outcomes: Tensor) -> None:
    """Warn if standard deviations are so small that bounds of BoTorch change acquisition functions."""
    smallest = _deviations(outcomes).min().item()
    if smallest < _SMALL:
        warn(
            f"An outcome has the standard deviation {smallest:.1e}. Acquisition functions of BoTorch "
            "raise variances to 1e-10 and smooth constraints by 1e-3, so that they lose the model's "
            "uncertainty and the constraints of small outcomes. Tell outcomes in a unit in which their "
            "standard deviations are about 1, or leave model and acquisition at their defaults.",
            PrecisionWarning,
        )


@torch.no_grad()
def _deviations(outcomes: Tensor) -> Tensor:
    """Return the standard deviations by which models divide; 1 for outcomes that are all equal."""
    transform = standardize(outcomes)
    transform(outcomes)
    return transform.stdvs.flatten()
