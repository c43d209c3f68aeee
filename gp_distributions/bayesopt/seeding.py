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
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index])
    with _LOCK:
        states = [generator.get_state() for generator in generators]
        try:
            for generator in generators:
                generator.manual_seed(seed)
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
