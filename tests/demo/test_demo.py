"""The demo runs on fewer airfoils than by default."""

from pathlib import Path

import pytest

from gp_distributions.demo import main


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--splits", "1", "--train", "100", "--searches", "1", "--evaluations", "12"]
    (split,), (run,) = main(["--quiet", *options, "--folder", str(tmp_path)])
    # With half the default number of training airfoils; predicting the mean would score 0.
    assert split.r2 > 0.6
    assert 0.8 < split.coverage <= 1
    assert len(set(run)) == len(run) == 12
    printed = capsys.readouterr().out
    for words in (
        "PointClouds(1874 clouds, 128 atoms, d=4, num_normals=2, geometric, float64)",
        "R^2",
        "coverage",
        "at evaluation",
        "done in",
    ):
        assert words in printed
    for name in ("predictions", "gallery", "search", "best"):
        assert (tmp_path / f"airfoils_{name}.png").stat().st_size > 10_000
