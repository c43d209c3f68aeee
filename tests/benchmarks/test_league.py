"""The league gives all methods the same folds, goes on where it was stopped, and ranks among peers."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import Options
from benchmarks.league import measuring, networks, scores, standings
from benchmarks.league.sets import DEVELOPMENT, ONCE, Task
from benchmarks.league.tables import summary

TOY = standings.toy(labelled=False)


def test_a_stopped_run_goes_on_with_the_same_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def method(fold: scores.Fold) -> scores.Prediction:
        seen.append(fold.test.y.tolist())
        if len(seen) == 3:
            raise KeyboardInterrupt
        return scores.normal(np.full(len(fold.test.y), fold.y.mean()), np.ones(len(fold.test.y)))

    monkeypatch.setattr(measuring, "METHODS", {"a": method, "b": method})
    file = tmp_path / "lines.jsonl"
    options = {"methods": ("a", "b"), "repetitions": 1, "most": 2}
    with pytest.raises(KeyboardInterrupt):
        measuring.measure("toy", lambda: TOY, file, **options)
    measuring.measure("toy", lambda: TOY, file, **options)
    assert seen[0] == seen[1] != seen[2] == seen[3] == seen[4]
    assert [line["at"] for line in measuring.kept(file)] == [[0, 0], [0, 0], [0, 1], [0, 1]]
    file.write_text(json.dumps({"version": "of old"}) + "\n")
    assert measuring.kept(file) == []


@pytest.mark.parametrize(
    ("method", "labelled"), [("GP", True), ("random features", False), ("attention", False)]
)
def test_peers_learn(method: str, labelled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_EPOCHS", 10)
    monkeypatch.setattr(networks, "_NETWORKS", 2)
    monkeypatch.setattr(networks, "_RATE", 0.03)
    task = standings.toy(labelled=labelled)
    fold = next(measuring.folds(task, 0))
    found = scores.scored(measuring.METHODS[method](fold), fold, 1.0 if labelled else task.y.std())
    assert found["skill"] > (0.6 if labelled else 0.3)


def test_peers_see_columns_in_units_of_the_training_atoms() -> None:
    fold = scores.Fold(TOY[np.arange(20)], TOY[np.arange(20, 30)], 0)
    train, test = fold.bags()
    atoms = np.concatenate(train)
    np.testing.assert_allclose([atoms.mean(0), atoms.std(0)], [[0, 0], [1, 1]], atol=1e-12)
    assert [len(bag) for bag in train + test] == TOY.clouds.sizes.tolist()
    assert len(summary(train[0])) == 7 * 2 + 1 + 1


def test_scores() -> None:
    y = np.array([0.0, 1.0, 4.0])
    fold = scores.Fold(TOY, Task(TOY.clouds[:3], y), 0)
    found = scores.conformal(np.zeros(3), np.arange(-10.0, 11))
    assert found.half.tolist() == [10.0] * 3
    assert scores.conformal(np.zeros(1), np.arange(100.0)).half == 95.0
    close = scores.Moments(np.zeros(3), np.ones(3), np.full(3, 2.0))
    got = scores.scored(close, fold, 2.0)
    assert got["skill"] == pytest.approx(1 - 17 / 12)
    assert got["coverage"] == pytest.approx(2 / 3)
    assert got["loss"] == pytest.approx(0.5 * np.log(2 * np.pi / 4) + 17 / 6)
    labels = Task(TOY.clouds[:2], np.array(["a", "b"]))
    certain = scores.Probabilities(np.array([[1.0, 0.0], [1.0, 0.0]]))
    got = scores.scored(certain, scores.Fold(labels, labels, 0), 1.0)
    assert (got["skill"], got["loss"]) == (0.5, pytest.approx(-0.5 * np.log(1e-4), rel=1e-2))


def test_ranks_are_among_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    skills = {"default": 0.8, "comparison": 0.9, "SVM": 0.85, "GP": 0.8, "boosting": 0.7}
    lines = [
        {"set": "toy classes", "method": m, "at": [0, k], "scores": more}
        for m, skill in skills.items()
        for k in range(2)
        for more in [{"skill": skill + 0.01 * k, "loss": 1 - skill, "seconds": 1.0}]
    ]
    found = standings.means(lines)
    assert standings.rank("default", "skill", found["toy classes"]) == 2.5
    assert standings.rank("comparison", "loss", found["toy classes"]) == 1
    rows = standings.report(lines, Options(quick=True))
    assert rows[0]["rank_error"] == 2.5
    assert rows[-1]["best peer"] == "SVM"
    assert rows[-1]["default gap"] == pytest.approx(-0.05)
    assert rows[-1]["why"] == "unknown"


def test_sets_that_are_looked_at_once_are_not_for_development() -> None:
    assert len(DEVELOPMENT) == 21
    assert not DEVELOPMENT.keys() & ONCE.keys()
    assert set(ONCE) == {"breast cancer", "dogs", "ArrowHead", "lecturers", "A-levels"}
