"""Random patients: sizes, names, and what their response depends on."""

import numpy as np
import pytest

from benchmarks.data.patients import random_patients


def test_sizes_and_names() -> None:
    patients = random_patients(40, dim=4, sizes=(5, 30), seed=1)
    sizes = patients.cells.sizes
    assert patients.cells.dim == 4
    assert 5 <= int(sizes.min()) < int(sizes.max()) <= 30
    assert patients.inputs.labels is not None
    assert patients.inputs.labels[:2].tolist() == ["patient 0", "patient 1"]
    assert set(patients.covariates["arm"]) == {"placebo", "low dose", "high dose"}
    again = random_patients(40, dim=4, sizes=(5, 30), seed=1)
    assert again.inputs == patients.inputs
    assert np.array_equal(again.response, patients.response)


def test_effects_have_unit_variance_and_add_up() -> None:
    options = {"num": 4000, "dim": 3, "sizes": (1, 2), "seed": 2}
    zero = {"cells": 0.0, "covariates": 0.0, "noise": 0.0}
    parts = {
        name: random_patients(**options | zero | {name: 1.0}).signal  # type: ignore[arg-type]
        for name in ("cells", "covariates", "interaction")
    }
    for signal in parts.values():
        assert signal.std() == pytest.approx(1.0, abs=0.05)
    whole = random_patients(**options, interaction=1.0)  # type: ignore[arg-type]
    np.testing.assert_allclose(whole.signal, sum(parts.values()), atol=1e-12)
    assert (whole.response - whole.signal).std() == pytest.approx(0.3, abs=0.02)


def test_cells_matter_through_three_markers() -> None:
    patients = random_patients(300, dim=5, sizes=(400, 500), covariates=0.0, noise=0.0, seed=3)
    points, weights = patients.cells.points, patients.cells.weights.unsqueeze(-1)
    mean = (weights * points).sum(-2)
    spread = (weights * (points - mean.unsqueeze(-2)).square()).sum(-2).log()
    known = np.concatenate([mean, spread], axis=-1)
    known = (known - known.mean(0)) / known.std(0)
    slopes = np.linalg.lstsq(known, patients.signal, rcond=None)[0]
    matters = np.zeros(10, dtype=bool)
    matters[[0, 1, 7]] = True  # the means of two markers and the spread of the third
    assert (np.abs(slopes[matters]) > 0.5).all()
    assert (np.abs(slopes[~matters]) < 0.05).all()
