"""The benchmark of recipes: what it keeps, and how it cuts BoTorch's proposals."""

from pathlib import Path

import pytest
import torch

from benchmarks.search import recipe_search
from benchmarks.search.searches import Outcome


def test_searches_are_kept_as_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def way(seed: int) -> Outcome:
        ran.append(seed)
        return {"value": 2.0 * seed}

    monkeypatch.setattr(recipe_search, "KEPT", tmp_path / "lines.jsonl")
    for version in ("1", "1", "2"):  # which searches anew, but for the peer
        monkeypatch.setattr("gp_distributions.__version__", version)
        found = [recipe_search.kept("a", way, 1), recipe_search.kept("a: BoTorch", way, 2)]
    assert [line["value"] for line in found] == [2.0, 4.0]
    assert ran == [1, 2, 1]


def test_proposals_are_cut_to_their_largest_fractions() -> None:
    fractions = torch.tensor([[0.3, 0.1, 0.2, 0.1, 0.05, 0.15, 0.1]], dtype=torch.float64)
    found = recipe_search.cut(fractions)
    assert (found > 0).sum() == recipe_search.MOST
    torch.testing.assert_close(found[0, [0, 2, 5]], fractions[0, [0, 2, 5]] / 0.85)
    assert found.sum().item() == pytest.approx(1, abs=1e-15)
