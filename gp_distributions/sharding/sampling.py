"""A uniform sample of clouds from pieces, in one pass and with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.sharding.pieces import check_alike


@dataclass(frozen=True)
class Draw:
    """The clouds of a piece that may be in the sample: a task for a pass over pieces.

    Each cloud has a random key, which depends on the seed, its piece and its place therein. The sample
    is the ``n`` clouds with the smallest keys.

    Attributes:
        n: Number of clouds to draw.
        seed: Random seed of the keys.
        largest: Largest key in the sample, if it is known.
    """

    n: int
    seed: int
    largest: float = np.inf

    def __call__(self, number: int, clouds: PointClouds, targets: Tensor | None) -> Drawn:
        """Return the clouds with the smallest keys."""
        keys = _keys(self.seed, number, len(clouds))
        return Drawn(keys, clouds, targets).smallest(self.n, self.largest)


@dataclass(frozen=True)
class Drawn:
    """Clouds with their keys and targets."""

    keys: npt.NDArray[np.float64]
    clouds: PointClouds
    targets: Tensor | None

    def smallest(self, n: int, largest: float = np.inf) -> Drawn:
        """Return the ``n`` clouds with the smallest keys, in order, as far as keys are <= largest."""
        kept = np.flatnonzero(self.keys <= min(largest, _nth(self.keys, n)))
        if len(kept) == len(self.keys):
            return self
        places = torch.from_numpy(kept)
        targets = None if self.targets is None else self.targets[places]
        return Drawn(self.keys[kept], self.clouds[places], targets)


def needed_pieces(counts: Sequence[int | None], n: int, seed: int) -> tuple[list[int], float]:
    """Return the pieces that hold clouds of the sample, and the largest key in it.

    Args:
        counts: Numbers of clouds in the pieces. If one is None, all pieces are needed.
        n: Number of clouds to draw.
        seed: Random seed of the keys.
    """
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return list(range(len(counts))), np.inf
    keys = [_keys(seed, number, count) for number, count in enumerate(known)]
    largest = _nth(np.concatenate(keys), n)
    return [number for number, own in enumerate(keys) if (own <= largest).any()], largest


def drawn_sample(
    parts: Iterable[Drawn], names: Iterable[str], n: int
) -> tuple[PointClouds, Tensor | None]:
    """Return the sample, given the clouds that may be in it and the name of their piece, in order.

    Raises:
        PieceError: If only some of the pieces have targets, or labels.
    """
    held: list[Drawn] = []
    first: Drawn | None = None
    for part, name in zip(parts, names, strict=True):
        first = part if first is None else first
        check_alike(part.targets, first.targets, name, "targets")
        check_alike(part.clouds.labels, first.clouds.labels, name, "labels")
        held.append(part)
        largest = _nth(np.concatenate([other.keys for other in held]), n)
        held = [other.smallest(n, largest) for other in held if (other.keys <= largest).any()]
    targets = [part.targets for part in held if part.targets is not None]
    return joined([part.clouds for part in held]), torch.cat(targets) if targets else None


def joined(parts: Sequence[PointClouds]) -> PointClouds:
    """Concatenate clouds of several widths along their one batch axis."""
    if len(parts) == 1:
        return parts[0]
    masks = [part.weights > 0 for part in parts]
    points = torch.cat([part.points[mask] for part, mask in zip(parts, masks, strict=True)])
    weights = torch.cat([part.weights[mask] for part, mask in zip(parts, masks, strict=True)])
    sizes = torch.cat([mask.sum(-1) for mask in masks])
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    labels = [part.labels for part in parts if part.labels is not None]
    return PointClouds.from_ragged(
        points, offsets, weights, np.concatenate(labels) if labels else None
    )


def _keys(seed: int, number: int, count: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng([seed, number]).random(count)


def _nth(keys: npt.NDArray[np.float64], n: int) -> float:
    """Return the ``n``-th smallest key, or infinity if there are no more."""
    return float(np.partition(keys, n - 1)[n - 1]) if n < len(keys) else np.inf
