"""Columns that are read as categories although their values suggest numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from gp_distributions import MixedInputs

NAMES = [f"p{i}" for i in range(12)]
AGES = pd.Series(range(40, 52), index=NAMES, name="age")


def learn(values: Any) -> Any:
    return MixedInputs(table=pd.DataFrame({"age": values}, index=NAMES)).encoding


def test_decimal_commas() -> None:
    values = [f"{age},5" for age in AGES]
    with pytest.raises(
        ValueError, match=r"got '40,5' in a column of numbers as text\. Convert .*decimal=','"
    ):
        learn(values)
    values[3] = "unknown"
    with pytest.raises(ValueError, match="'unknown' in a column of numbers"):
        learn(values)


@pytest.mark.parametrize("kind", [str, object])
def test_a_word_among_numbers(kind: Any) -> None:
    values = AGES.astype(kind)
    values["p7"] = "unknown"
    with pytest.raises(ValueError, match=r"'age' of block 'table'.*'unknown' in a column"):
        learn(values)
    learn(values.astype("category"))


def test_numbers_as_text() -> None:
    with pytest.raises(ValueError, match=r"got '40' in .* codes, declare categories"):
        learn(AGES.astype(str))
    learn(AGES.astype(str).astype("category"))


def test_few_codes_are_categories() -> None:
    learn((AGES % 10).astype(str))
    learn(["1", "2", "3a", "unknown"] * 3)


def test_codes() -> None:
    codes = [*map(str, range(101, 111)), "A1", "A2"]
    with pytest.raises(ValueError, match=r"'A1' in a column .* declare categories"):
        learn(codes)
    learn(pd.Categorical(codes))


def test_rows_of_arrays() -> None:
    with pytest.raises(ValueError, match="'many' in a column of numbers"):
        _ = MixedInputs(dose=[*map(str, range(11)), "many"]).encoding


def test_new_inputs_may_differ_in_every_row() -> None:
    """The check belongs to training: a dozen new patients may well have a dozen different codes."""
    train = [f"c{i % 12}" for i in range(24)]
    encoding = MixedInputs(code=train).encoding
    assert MixedInputs(code=train[:12]).pack(encoding).shape == (12, 1)
