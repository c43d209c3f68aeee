"""Passes over pieces of data: order, checkpoints and progress bars."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from gp_distributions.measures.training_data import TrainingData
from gp_distributions.models.passes import results_of_pieces, sums_over_pieces
from gp_distributions.sharding.checkpoint import Checkpoint

ROWS = torch.rand(300, 4, generator=torch.Generator().manual_seed(0)).double()
TARGETS = ROWS.sum(-1)
DATA = TrainingData(ROWS, TARGETS.unsqueeze(-1))


@pytest.fixture(autouse=True)
def pieces_of_seventy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gp_distributions.measures.training_data._PIECE", 70)


@dataclass(frozen=True)
class Total:
    value: torch.Tensor

    def __add__(self, other: "Total") -> "Total":
        return Total(self.value + other.value)


def total(state: float, X: Any, y: torch.Tensor) -> Total:
    return Total(state * y.sum())


def test_sums_are_added_in_order() -> None:
    options: dict[str, Any] = {"progress": False}
    found = sums_over_pieces(lambda state, X, y: [state * float(y.sum())], 2.0, DATA, **options)
    expected = [2.0 * float(part.sum()) for part in TARGETS.split(70)]
    assert found == expected
    each = list(results_of_pieces(total, 2.0, DATA, **options))
    assert [float(part.value) for part in each] == expected


def test_interrupted_sums_are_continued(tmp_path: Path) -> None:
    options: dict[str, Any] = {"kind": Total, "progress": False}

    def interrupted(state: float, X: Any, y: torch.Tensor) -> Total:
        if len(y) < 70:
            raise KeyboardInterrupt
        return total(state, X, y)

    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    with pytest.raises(KeyboardInterrupt):
        sums_over_pieces(interrupted, 2.0, DATA, checkpoint=checkpoint, **options)
    checkpoint = Checkpoint(tmp_path, "sums", "digest")
    assert checkpoint.read()[0] == 4
    found = sums_over_pieces(total, 2.0, DATA, checkpoint=checkpoint, **options)
    assert float(found.value) == float(sums_over_pieces(total, 2.0, DATA, progress=False).value)
