"""Data frames of Polars, PyArrow and narwhals, and their columns of lists."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch

from gp_distributions import (
    DistributionGPRegressor,
    EmbeddingTransformer,
    MixedInputs,
    PointClouds,
)

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
nw = pytest.importorskip("narwhals")
pq = pytest.importorskip("pyarrow.parquet")

COUNT = 60
RNG = np.random.default_rng(0)
BAGS = RNG.integers(0, 7, COUNT)
COLUMNS = {
    "bag": [f"bag {i}" for i in BAGS],
    "x": RNG.normal(size=COUNT),
    "y": RNG.integers(0, 9, COUNT),
    "w": RNG.random(COUNT) + 0.1,
    "unused": ["text"] * COUNT,
}
PANDAS = pd.DataFrame(COLUMNS)
KINDS = {
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "narwhals": lambda columns: nw.from_native(pl.DataFrame(columns)),
    "narwhals lazy": lambda columns: nw.from_native(pl.LazyFrame(columns)),
    "arrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "several chunks": lambda columns: pa.concat_tables(
        [pa.table(columns).slice(0, 3), pa.table(columns).slice(3)]
    ),
    "pandas of arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
}
READ = {"bag": "bag", "columns": ["x", "y"], "weight": "w"}


@pytest.mark.parametrize("kind", KINDS)
def test_frames_agree_with_pandas(kind):
    frame = KINDS[kind](COLUMNS)
    made = PointClouds.from_frame(frame, **READ)
    assert made == PointClouds.from_frame(PANDAS, **READ)
    with pytest.raises(ValueError, match=r"Expected one column 'z', got none; columns: \['bag', "):
        PointClouds.from_frame(frame, bag="bag", columns="z")
    with pytest.raises(
        ValueError, match=r"'unused': expected finite numbers, got 'text' in row 0 "
    ):
        PointClouds.from_frame(frame, bag="bag", columns="unused")
    with pytest.raises(ValueError, match="at least one row"):
        PointClouds.from_frame(frame.head(0) if "lazy" in kind else frame[:0], **READ)


IDS = {
    "integers": BAGS.tolist(),
    "floats": (BAGS / 2).tolist(),
    "booleans": (BAGS > 3).tolist(),
    "dates": [datetime.date(2020, 1, 1 + i) for i in BAGS],
    "times": [datetime.datetime(2020, 1, 1, i) for i in BAGS],
}


def test_structs_are_no_bags() -> None:
    frame = pl.DataFrame({"cell": [{"x": 1.0, "y": 2.0}] * 3, "age": [1.0, 2.0, 3.0]})
    for read in (MixedInputs.from_frame, lambda table: MixedInputs(table=table)):
        with pytest.raises(ValueError, match="got a struct of several"):
            read(frame)
    assert len(MixedInputs.from_frame(frame.unnest("cell"))) == 3


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("kind", [pl.DataFrame, pa.table])
def test_labels_of_all_types(kind, ids):
    columns = {"bag": ids, "x": COLUMNS["x"]}
    made, expected = (
        PointClouds.from_frame(make(columns), bag="bag", columns="x")
        for make in (kind, pd.DataFrame)
    )
    assert made.points.equal(expected.points)
    assert [str(label) for label in made.labels] == [
        str(np.array(value)[()] if "time" not in str(type(value)) else np.datetime64(value))
        for value in dict.fromkeys(ids)
    ]


def test_categories_and_decimals():
    frame = pl.DataFrame({"bag": ["b", "a", "b"], "x": [1, 2, 3]}).with_columns(
        pl.col("bag").cast(pl.Categorical), pl.col("x").cast(pl.Decimal(10, 2))
    )
    for given in (frame, frame.to_arrow()):
        made = PointClouds.from_frame(given, bag="bag", columns="x")
        assert made.labels.tolist() == ["b", "a"]
        assert made.points.flatten().tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("kind", [pl.DataFrame, pa.table])
def test_missing_values_are_named(kind):
    frame = kind(
        {"bag": ["a", "b", None], "x": [1.0, None, 2.0], "n": [1, None, 2], "k": [1, 1, 1]}
    )
    with pytest.raises(ValueError, match=r"Column 'bag': .* missing value in row 2"):
        PointClouds.from_frame(frame, bag="bag", columns="k")
    for column in ("x", "n"):
        with pytest.raises(
            ValueError, match=rf"'{column}': expected finite .* got nan in row 1 .*, of bag 'b'\."
        ):
            PointClouds.from_frame(frame[:2], bag="bag", columns=column)
    with pytest.raises(ValueError, match=r"Column 'n': expected a bag for each row, .* in row 1"):
        PointClouds.from_frame(frame, bag="n", columns="k")
    text = kind({"bag": ["a"], "x": ["1.5"]})
    with pytest.raises(
        ValueError, match=r"got '1\.5' in row 0 .*, of bag 'a'\. Convert text to num"
    ):
        PointClouds.from_frame(text, bag="bag", columns="x")
    for ids in ([["a"]], [{"a": 1}]):
        with pytest.raises((TypeError, ValueError), match=r"unhashable|got a struct"):
            PointClouds.from_frame(kind({"bag": ids, "x": [1.0]}), bag="bag", columns="x")


NUMBERS = [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]
PLANE = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]


@pytest.mark.parametrize("kind", [pl.DataFrame, pa.table, pd.DataFrame])
def test_columns_of_bags(kind):
    for bags in (NUMBERS, PLANE):
        frame = kind({"bags": bags})
        expected = PointClouds.from_list(bags)
        assert PointClouds.from_list(frame["bags"]) == expected
        for given in (frame["bags"], frame):
            transformer = EmbeddingTransformer()
            found = transformer.fit_transform(given)
            assert transformer.n_features_in_ == expected.dim
            np.testing.assert_array_equal(found, EmbeddingTransformer().fit_transform(expected))
    equal = kind({"bags": [[1.0, 2.0], [3.0, 4.0]]})["bags"]
    assert EmbeddingTransformer().fit(equal).n_features_in_ == 1
    with pytest.raises(ValueError, match=r"Bag 1: expected real numbers, got None"):
        EmbeddingTransformer().fit(kind({"bags": [[1.0], None]})["bags"])


PATIENTS = {
    "cells": [RNG.normal(size=(n, 2)).tolist() for n in (3, 5, 4, 6)],
    "age": [50.0, 60.0, 30.0, 40.0],
    "arm": ["drug", "none", "drug", "none"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_bags_beside_others(kind):
    frame = KINDS[kind](PATIENTS)
    expected = MixedInputs.from_frame(pd.DataFrame(PATIENTS))
    assert MixedInputs.from_frame(frame) == expected
    assert MixedInputs.from_frame(frame, labels="arm").labels.tolist() == PATIENTS["arm"]
    if "lazy" not in kind:
        targets = [1.0, 2.0, 3.0, 4.0]
        found = DistributionGPRegressor(restarts=0).fit(frame, targets)
        same = DistributionGPRegressor(restarts=0).fit(expected, targets).predict(expected)
        np.testing.assert_array_equal(found.predict(frame), same)


def test_columns_of_arrays_of_one_length():
    frame = pl.DataFrame({"age": [1.0, 2.0]}).with_columns(
        cells=pl.Series([[1.0, 2.0], [3.0, 4.0]], dtype=pl.Array(pl.Float64, 2))
    )
    cells = MixedInputs.from_frame(frame).blocks["cells"]
    assert torch.equal(cells.points[..., 0], torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double())
