"""What the test of padding measures in another process."""

from pathlib import Path

import torch

from gp_distributions import PointClouds, SlicedWasserstein


def memory(name: str) -> float:
    """Return the memory of this process in MiB, on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def memory_of_one_large_bag() -> list[float]:
    """Return the peak of reading and comparing it, and what copies of smaller ones take."""
    bags = [torch.rand(1_000_000 if i == 3 else 20, 2).double() for i in range(10)]
    distance = SlicedWasserstein(2, num_slices=2, num_quantiles=10)
    PointClouds.from_list([bag[:20] for bag in bags]).pack()
    found = [-memory("VmHWM")]
    rows = PointClouds.from_list(bags).pack()
    distance.squared(rows)
    found[0] += memory("VmHWM")
    X = PointClouds.from_list([bag[:400_000] for bag in bags])
    for make in (lambda: X.pack(atoms=400_100), lambda: X[[0, 1, 2, 4, 5]]):
        before, _made = memory("VmRSS"), make()
        found.append(memory("VmRSS") - before)
    return found
