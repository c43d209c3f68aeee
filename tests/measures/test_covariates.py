"""Columns beside distributions: categories, and values that are missing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cases import reloaded

from gp_distributions import (
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    PointClouds,
    fit,
    relevance,
)
from gp_distributions.warnings import MissingWarning

NAMES = [f"p{i}" for i in range(12)]
AGES = pd.Series(range(40, 52), index=NAMES, name="age")


def learn(values: Any) -> Any:
    return MixedInputs(table=pd.DataFrame({"age": values}, index=NAMES)).encoding


WORD = AGES.astype(object)
WORD["p7"] = "unknown"
COMMAS = [f"{age},5" for age in AGES]
CODES = [*map(str, range(101, 111)), "A1", "A2"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (COMMAS, r"got '40,5' in a column of numbers as text\. Convert .*decimal=','"),
        ([*COMMAS[:3], "unknown", *COMMAS[4:]], "'unknown' in a column of numbers"),
        (WORD, r"'age' of block 'table'.*'unknown' in a column"),
        (WORD.astype(str), r"'age' of block 'table'.*'unknown' in a column"),
        (AGES.astype(str), r"got '40' in .* codes, declare categories"),
        (CODES, r"'A1' in a column .* declare categories"),
    ],
)
def test_numbers_as_text_are_no_categories_unless_declared(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn(values)
    learn(pd.Categorical(values))


def test_few_codes_are_categories() -> None:
    learn((AGES % 10).astype(str))
    learn(["1", "2", "3a", "unknown"] * 3)


def test_new_inputs_may_differ_in_every_row() -> None:
    """The check belongs to training: a dozen new patients may well have a dozen different codes."""
    train = [f"c{i % 12}" for i in range(24)]
    encoding = MixedInputs(code=train).encoding
    assert MixedInputs(code=train[:12]).pack(encoding).shape == (12, 1)


pytestmark = pytest.mark.usefixtures("short_fits")
NAN = float("nan")


def patients(
    num: int = 60, seed: int = 0
) -> tuple[PointClouds, pd.DataFrame, np.ndarray[Any, Any]]:
    """Bags beside an age that is unknown for the sickest, and an arm."""
    rng = np.random.default_rng(seed)
    cells = PointClouds(rng.normal(size=(num, 8, 1)))
    age, arm = rng.normal(60, 10, num), rng.choice(["drug", "placebo"], num)
    gone = rng.random(num) < 0.3
    y = age / 10 + 5.0 * gone + 0.1 * rng.normal(size=num)
    frame = pd.DataFrame({"age": np.where(gone, NAN, age), "arm": arm})
    frame.loc[[3, 5], "arm"] = None
    return cells, frame, y


def test_gaps_are_the_mean_and_a_column_that_says_so() -> None:
    X = MixedInputs(missing="indicator", age=[50.0, None, 70.0], arm=["drug", None, "drug"])
    assert list(X.encoding.blocks["age"].columns) == ["age", "age missing"]
    assert X.pack(X.encoding)[:, :2].tolist() == [[-1, 0], [0, 1], [1, 0]]
    assert X.blocks["arm"].columns["arm"].tolist() == ["drug", "missing", "drug"]
    later = MixedInputs(missing="indicator", age=[NAN, 60.0], arm=["missing", "drug"])
    assert later.pack(X.encoding)[:, :2].tolist() == [[0, 1], [0, 0]]
    back = MixedInputs.unpack(X.pack(), X.encoding).blocks["age"].columns["age"]
    assert torch.equal(back.isnan(), torch.tensor([False, True, False]))


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0, NAN, 3.0]),
        torch.tensor([1.0, NAN, 3.0]),
        pd.Series([1, None, 3], dtype="Int64"),
        [1, None, 3],
        pd.DataFrame({"x": [1.0, NAN, 3.0]}),
        {"x": [1, None, 3]},
    ],
    ids=lambda values: type(values).__module__.partition(".")[0],
)
def test_gaps_are_known_in_all_formats(values: Any) -> None:
    (column,) = MixedInputs(missing="indicator", x=values).blocks["x"].columns.values()
    assert column.tolist()[::2] == [1, 3]
    assert torch.as_tensor(column)[1].isnan()
    with pytest.raises(ValueError, match=r'missing="indicator"'):
        MixedInputs(x=values)


def test_gaps_of_declared_categories_are_a_level() -> None:
    arms = pd.Categorical(["a", None, "b"], categories=["b", "a"])
    X = MixedInputs(missing="indicator", arm=pd.Series(arms))
    assert X.encoding.blocks["arm"].columns["arm"].values == ("b", "a", "missing")


def test_models_learn_from_gaps() -> None:
    cells, frame, y = patients()
    train, test = slice(0, 45), slice(45, 60)
    X = MixedInputs(missing="indicator", cells=cells, covariates=frame)
    model = fit(DistributionGP(X[train], y[train]), progress=False)
    errors = (model.predict(X[test])[0] - torch.tensor(y[test])).abs()
    gone = torch.tensor(frame["age"].isna().to_numpy()[test])
    assert errors[~gone].max() < 1
    assert errors[gone].mean() < 1.5  # the age itself, in tens
    assert torch.equal(reloaded(model).predict(X[test])[0], model.predict(X[test])[0])
    assert "age missing" in str(relevance(model))
    estimator = DistributionGPRegressor().fit(X[train], y[train])
    assert np.abs(estimator.predict(X[test]) - y[test])[~gone.numpy()].max() < 1


def test_frames_with_bags_may_have_gaps() -> None:
    frame = pd.DataFrame({"cells": [[[0.0], [2.0]], [[1.0]]], "age": [50.0, NAN]})
    X = MixedInputs.from_frame(frame, missing="indicator")
    assert list(X.encoding.blocks["covariates"].columns) == ["age", "age missing"]


def test_gaps_that_training_data_lack_are_named() -> None:
    known = MixedInputs(age=[50.0, 60.0])
    later = MixedInputs(missing="indicator", age=[50.0, NAN])
    with pytest.raises(ValueError, match=r"Column 'age' of block 'age': .* nan in row 1"):
        later.pack(known.encoding)
    with pytest.raises(ValueError, match="missing to be None"):
        MixedInputs(missing="mean", age=[1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite numbers, got inf"):
        MixedInputs(missing="indicator", age=[1.0, np.inf])


def test_atoms_with_gaps_are_dropped_with_a_warning() -> None:
    frame = pd.DataFrame(
        {"patient": list("aabbc"), "x": [1.0, NAN, 3.0, 4.0, NAN], "w": [1.0, 1.0, 2.0, 0.5, 1.0]}
    )
    options: dict[str, Any] = {"bag": "patient", "columns": "x", "weight": "w"}
    with pytest.warns(MissingWarning, match=r"2 of 5 atoms .* of the bags \['c'\]"):
        X = PointClouds.from_frame(frame, **options, missing="drop")
    assert X.labels is not None
    assert X.labels.tolist() == ["a", "b"]
    assert PointClouds.from_frame(frame.dropna(), **options) == X
    with pytest.raises(ValueError, match='None or "drop"'):
        PointClouds.from_frame(frame, **options, missing="mean")
    with warnings.catch_warnings(action="error"):
        PointClouds.from_frame(frame.dropna(), **options, missing="drop")
