"""What a fit of a classifier tells its user."""

from typing import Any

import numpy as np
import pytest

from gp_distributions import ClassificationGP, PointClouds, fit
from gp_distributions.fitting import marginal_likelihood


def test_the_progress_bars_name_the_concentrations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(marginal_likelihood, "_PATIENCE", 0.0)
    rng = np.random.default_rng(0)
    clouds = PointClouds(rng.normal(size=(6, 8, 1)) + np.arange(6)[:, None, None] % 2)
    model = ClassificationGP(clouds, ["left", "right"] * 3)
    options: dict[str, Any] = {"restarts": 0}
    fit(model, alpha_epsilons=(0.1, 0.01), **options)
    shown = capsys.readouterr().err
    assert "Fitting alpha_epsilon=0.1, 1 of 2: " in shown
    assert "Fitting alpha_epsilon=0.01, 2 of 2: " in shown
    fit(model, **options, progress=False)
    assert not capsys.readouterr().err
