"""Seeds for code that draws from the global random number generators of PyTorch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

_LOCK = threading.RLock()


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of the CPU and ``device``, and restore their states afterwards.

    BoTorch draws from them when it chooses where to start. One thread at a time is let in, so that
    searches in several threads do not share random numbers. Other devices are left alone, unlike by
    ``torch.manual_seed``.
    """
    on_gpu = device.type == "cuda"
    with _LOCK, torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield
