"""Tasks of tests of passes over pieces, in a module that worker processes can import."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gp_distributions import PointClouds, ShardedClouds


def in_pieces(clouds: PointClouds, targets: Tensor, *, size: int) -> ShardedClouds:
    """Clouds in memory as pieces of a number of clouds."""
    starts = range(0, len(clouds), size)
    parts = [(clouds[i : i + size], targets[i : i + size]) for i in starts]
    return ShardedClouds.from_pieces([partial(given, part) for part in parts])


def given(part: tuple[PointClouds, Tensor]) -> tuple[PointClouds, Tensor]:
    """What a piece returns."""
    return part


@dataclass(frozen=True)
class Sums:
    """A product of matrices, whose bits depend on the order in which its terms are added.

    Attributes:
        folder: Where a file for each call is left, or None.
    """

    folder: Path | None = None

    def __call__(self, number: int, clouds: PointClouds, targets: Tensor | None) -> Tensor:
        if self.folder is not None:
            (self.folder / f"{number}-{time.time_ns()}").touch()
        assert targets is not None
        phi = torch.cat(
            [(clouds.weights.unsqueeze(-1) * clouds.points).sum(-2), targets[:, None]], -1
        )
        return phi.exp().mT @ phi.exp()


@dataclass(frozen=True)
class Dies:
    """A task that kills its process.

    Attributes:
        number: Number of the piece at which it does.
    """

    number: int

    def __call__(self, number: int, *content: Any) -> None:
        if number == self.number:
            os._exit(1)


def calls(folder: Path) -> list[int]:
    """Numbers of the pieces that were computed, once for each call."""
    return sorted(int(path.name.partition("-")[0]) for path in folder.glob("*-*"))
