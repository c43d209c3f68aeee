"""Plots of effects show predictions at the values that they name."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from gp_distributions import ClassificationGP, DistributionGP, Gaussians, MixedInputs, PointClouds
from gp_distributions.plotting import plot_effect

RNG = np.random.default_rng(2)
N = 15
CELLS = PointClouds.from_list(
    {f"p{i}": RNG.normal(size=2) + RNG.normal(size=(int(n), 2)) for i, n in enumerate(range(3, 18))}
)
AGE = RNG.uniform(20, 80, N)
ARM = np.array(["drug", "none", "none"] * 5)
X = MixedInputs(cells=CELLS, patient={"age": AGE, "arm": ARM}, flag=[True] * 9 + [False] * 6)
Y = torch.from_numpy(AGE / 20) + CELLS.points[:, 0, 0]
MODEL = DistributionGP(X, Y)


def predict(cells: PointClouds, age: Any, arm: Any, flag: Any) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = MixedInputs(cells=cells, patient={"age": age, "arm": arm}, flag=flag)
    return MODEL.predict(inputs, observation_noise=False)


def band(ax: plt.Axes) -> Any:
    return ax.collections[0].get_paths()[0].vertices


def test_numbers() -> None:
    ax = plot_effect(MODEL, X, "age", [30.0, 40.0, 70.0], label="response [mm]")
    copies = CELLS[[0, 0, 0]]
    mean, std = predict(copies, [30.0, 40.0, 70.0], ["none"] * 3, [True] * 3)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [30.0, 40.0, 70.0])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean, rtol=1e-9)
    low = band(ax)[:, 1].min()
    np.testing.assert_allclose(low, (mean - 1.959964 * std).min(), rtol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "response [mm]")
    assert ax.get_title() == "at cells = p0, arm = none, flag = True"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["mean", "95% interval"]
    marks = ax.collections[1].get_offsets()
    np.testing.assert_allclose(marks[:, 0], AGE)


def test_given_values_of_the_others() -> None:
    at = {"arm": "drug", "flag": False, "cells": "p4"}
    ax = plot_effect(MODEL, X, "age", [50.0], at=at)
    mean, _ = predict(CELLS[[4]], [50.0], ["drug"], [False])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean, rtol=1e-9)
    assert ax.get_title() == "at cells = p4, arm = drug, flag = False"
    same = plot_effect(MODEL, X, "age", [50.0], at=at | {"cells": CELLS[4]})
    np.testing.assert_allclose(same.lines[0].get_ydata(), mean, rtol=1e-9)
    assert "cells = given" in same.get_title()
    older = plot_effect(MODEL, X, "arm", at={"age": 75.0})
    found = predict(CELLS[[0, 0]], [75.0, 75.0], ["drug", "none"], [True, True])[0]
    np.testing.assert_allclose(older.lines[0].get_ydata(), found, rtol=1e-9)


def test_labels_that_are_numbers() -> None:
    numbered = PointClouds.from_list({100 + i: CELLS.points[i] for i in range(6)})
    inputs = MixedInputs(cells=numbered, age=AGE[:6])
    model = DistributionGP(inputs, AGE[:6])
    for label in (103, np.int64(103)):
        ax = plot_effect(model, inputs, "age", at={"cells": label})
        assert ax.get_title() == "at cells = 103"
    x = ax.lines[0].get_xdata()
    assert (x[0], x[-1], len(x)) == (AGE[:6].min(), AGE[:6].max(), 100)


def test_categories() -> None:
    ax = plot_effect(MODEL, X, "arm")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["drug", "none"]
    age = float(np.median(AGE))
    mean, std = predict(CELLS[[0, 0]], [age, age], ["drug", "none"], [True, True])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean, rtol=1e-9)
    segment = ax.collections[0].get_segments()[1]
    half = 1.959964 * std[1].item()
    np.testing.assert_allclose(segment[:, 1], mean[1].item() + np.array([-half, half]), rtol=1e-6)
    assert f"age = {age:.3g}" in ax.get_title()


def test_clouds() -> None:
    ax = plot_effect(MODEL, X, "cells", CELLS[[2, 9]])
    age = [float(np.median(AGE))] * 2
    mean, _ = predict(CELLS[[2, 9]], age, ["none"] * 2, [True] * 2)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean, rtol=1e-9)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["p2", "p9"]
    default = plot_effect(MODEL, X, "cells")
    heights = default.lines[0].get_ydata()
    assert len(heights) == 5
    assert (np.diff(heights) >= 0).all()
    every = predict(CELLS, age[:1] * N, ["none"] * N, [True] * N)[0]
    np.testing.assert_allclose(heights[[0, -1]], [every.min(), every.max()], rtol=1e-9)
    names = [t.get_text() for t in default.get_xticklabels()]
    assert names[-1] == f"p{int(every.argmax())}"


def test_several_lines_on_the_same_axes() -> None:
    ax = plot_effect(MODEL, X, "age", at={"arm": "drug"}, name="drug")
    plot_effect(MODEL, X, "age", at={"arm": "none"}, name="none", ax=ax)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["drug", "none"]
    assert ax.lines[0].get_linestyle() != ax.lines[1].get_linestyle()
    assert ax.get_title() == ""


def test_classifiers() -> None:
    model = ClassificationGP(X, np.where(AGE > 50, "old", "young"))
    ax = plot_effect(model, X, "age")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["old", "young"]
    total = np.sum([line.get_ydata() for line in ax.lines], axis=0)
    np.testing.assert_allclose(total, 1, atol=1e-6)
    assert len(plot_effect(model, X, "cells").lines) == 2


def test_without_labels_and_with_gaussians() -> None:
    blood = Gaussians.from_clouds(PointClouds(RNG.normal(size=(8, 9, 2))))
    inputs = MixedInputs(blood=blood, age=AGE[:8])
    model = DistributionGP(inputs, AGE[:8])
    assert plot_effect(model, inputs, "age").get_title() == "at blood = number 0"
    ticks = plot_effect(model, inputs, "blood").get_xticklabels()
    assert ticks[0].get_text().startswith("number ")
    several = DistributionGP(inputs, torch.stack([Y[:8], -Y[:8]], -1))
    with pytest.raises(ValueError, match="a model of one output, got one of 2"):
        plot_effect(several, inputs, "age")


@pytest.mark.parametrize(
    ("inputs", "block", "options", "message"),
    [
        (CELLS, "cells", {}, "Expected MixedInputs"),
        (X, "patient", {}, r"\['cells', 'age', 'arm', 'flag'\], got 'patient'"),
        (X, "age", {"at": {"age": 50}}, "other than 'age'"),
        (X, "age", {"at": {"arm": "other"}}, "got 'other'"),
        (X, "cells", {"values": [1, 2]}, "Expected PointClouds as values of 'cells'"),
        (X, "age", {"at": {"cells": "p99"}}, "label of X as the value of 'cells', got 'p99'"),
    ],
)
def test_bad_arguments(inputs: Any, block: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plot_effect(MODEL, inputs, block, **options)
