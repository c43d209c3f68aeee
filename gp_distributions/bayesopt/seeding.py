"""Seeds for code that draws from the global random number generators of PyTorch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import torch

_LOCK = threading.RLock()


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
