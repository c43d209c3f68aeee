"""Division of targets by a known scale."""

from __future__ import annotations

from typing import Self

import torch
from botorch.models.transforms.outcome import Standardize


class ScaledTargets(Standardize):
    """Division of targets of one output by a known scale, which leaves zero where it is.

    Args:
        scale: The scale.
    """

    def __init__(self, scale: float) -> None:
        super().__init__(m=1)
        self.means = torch.zeros(1, 1, dtype=torch.float64)
        self.stdvs = torch.full((1, 1), scale, dtype=torch.float64)
        self._stdvs_sq = self.stdvs.square()
        self._is_trained = torch.tensor(True)
        self.eval()

    @property
    def scale(self) -> float:
        """The scale."""
        return float(self.stdvs)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, in which targets do not change the scale."""
        return super().train(False)
