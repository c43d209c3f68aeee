"""Columns that are read as categories although their values suggest numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold, cross_val_score

from gp_distributions import DistributionGPRegressor, MixedInputs

NAMES = [f"p{i}" for i in range(12)]
AGES = pd.Series(range(40, 52), index=NAMES, name="age")


def learn(values: Any) -> Any:
    return MixedInputs(table=pd.DataFrame({"age": values}, index=NAMES)).encoding


def test_decimal_commas() -> None:
    values = [f"{age},5" for age in AGES]
    with pytest.raises(
        ValueError, match=r"got '40,5' in row 'p0' of .* numbers as text\. Convert .*decimal=','"
    ):
        learn(values)
    values[3] = "unknown"
    with pytest.raises(ValueError, match="'unknown' in row 'p3' of a column of numbers"):
        learn(values)


@pytest.mark.parametrize("kind", [str, object])
def test_a_word_among_numbers(kind: Any) -> None:
    values = AGES.astype(kind)
    values["p7"] = "unknown"
    with pytest.raises(
        ValueError, match=r"'age' of block 'table'.*'unknown' in row 'p7' of a column"
    ):
        learn(values)
    learn(values.astype("category"))


def test_numbers_as_text() -> None:
    with pytest.raises(ValueError, match=r"got '40' in row 'p0' .* codes, declare 12 categories"):
        learn(AGES.astype(str))
    learn(AGES.astype(str).astype("category"))


def test_few_codes_are_categories() -> None:
    learn((AGES % 10).astype(str))
    learn(["1", "2", "3a", "unknown"] * 3)


def test_codes() -> None:
    codes = [*map(str, range(101, 111)), "A1", "A2"]
    with pytest.raises(ValueError, match=r"'A1' in row 'p10' of a column .* declare 12 categories"):
        learn(codes)
    learn(pd.Categorical(codes))


def test_folds_in_which_every_row_differs() -> None:
    frame = pd.DataFrame({"cells": [np.arange(3.0) + i for i in range(24)]})
    frame["site"] = [f"site{i}" for i in range(12)] * 2
    targets = np.random.default_rng(0).normal(size=24)
    model = DistributionGPRegressor(restarts=0)
    assert np.isfinite(cross_val_score(model, frame, targets, cv=KFold(2))).all()


def test_rows_of_arrays() -> None:
    with pytest.raises(ValueError, match="'many' in row 11 of a column of numbers"):
        _ = MixedInputs(dose=[*map(str, range(11)), "many"]).encoding


def test_new_inputs_may_differ_in_every_row() -> None:
    """The check belongs to training: a dozen new patients may well have a dozen different codes."""
    train = [f"c{i % 12}" for i in range(24)]
    encoding = MixedInputs(code=train).encoding
    assert MixedInputs(code=train[:12]).pack(encoding).shape == (12, 1)


def test_estimators() -> None:
    bags = [np.arange(3.0) + i for i in range(12)]
    frame = pd.DataFrame({"cells": bags, "age": AGES.astype(str).to_numpy()})
    with pytest.raises(ValueError, match=r"'age' of block 'covariates'.*numbers as text"):
        DistributionGPRegressor().fit(frame, range(12))
