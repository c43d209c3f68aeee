"""Names that clouds, frames and targets share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold, cross_val_score

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
    compare,
)
from gp_distributions.measures.names import Naming, check_names, index_naming, row_index

CLOUDS = PointClouds.from_list({number: [[float(number)]] for number in (101, 103, 102)})
AGES = pd.DataFrame({"age": [50.0, 60.0, 70.0]}, index=pd.Index([101, 103, 102], name="patient"))


class TestIndexNames:
    @pytest.mark.parametrize(
        ("index", "naming"),
        [
            (pd.RangeIndex(2), Naming.COUNTED),
            (pd.Index([0, 2]), Naming.COUNTED),  # what a filter of rows leaves
            (pd.RangeIndex(2, name="row"), Naming.NUMBERED),
            (pd.Index([0, 2], name="patient"), Naming.NUMBERED),
            (pd.Index(["ann", "bob"]), Naming.NAMED),
            (pd.Index([0.0, 2.0]), Naming.NAMED),
        ],
    )
    def test_which_indices_name_rows(self, index: pd.Index, naming: Naming) -> None:
        series = pd.Series([1.0, 2.0], index=index)
        assert list(row_index(series)) == list(index)
        assert index_naming(index) == naming

    @pytest.mark.parametrize("data", [[1.0], np.ones(2), "text", None])
    def test_others_have_none(self, data: Any) -> None:
        assert row_index(data) is None


class TestCheckNames:
    @pytest.mark.parametrize(
        ("others", "message"),
        [
            (["a", "c", "b"], r"t in the order of X, but row 1 is named 'b' in X .*t\.loc\[clouds"),
            (["a", "b"], r"'c' is missing from t.*numpy\.isin\(clouds\.labels, t\.index\)"),
            (["a", "b", "c", "d"], r"'d' is missing from X.*t\.loc\[clouds\.labels\]"),
            (["a", "b", "c", "a"], "'a' occurs 1 times in X and 2 times in t. Keep one"),
            (["d", "e", "f"], r"none in common: .*'a' in X and 'd' in t.*reset_index\(drop=True"),
        ],
    )
    def test_messages(self, others: list[str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            check_names(["a", "b", "c"], others, "X", "t", table="t")

    def test_equal_names(self) -> None:
        check_names(["a", "b"], ["a", "b"], "X", "t")
        check_names([1, 2], [1.0, 2.0], "X", "t")

    def test_types(self) -> None:
        with pytest.raises(
            ValueError, match=r"7 of X is of type int and '7' of t of type str.*dtype"
        ):
            check_names([7, 8], ["8", "7"], "X", "t", naming=Naming.NUMBERED)

    def test_numbers_of_rows(self) -> None:
        check_names(["a", "b"], [0, 3], "X", "t", naming=Naming.NUMBERED)
        check_names(["0", "3"], [0, 3], "X", "t", naming=Naming.COUNTED)
        check_names([1, 2, 3], [0, 1, 2], "X", "t", naming=Naming.COUNTED)
        with pytest.raises(ValueError, match="in the order of X"):
            check_names([3, 0], [0, 3], "X", "t", naming=Naming.COUNTED)


class TestTables:
    """Numbers of patients that are integers in one table and text in the other."""

    def test_frames(self) -> None:
        assert len(MixedInputs(cells=CLOUDS, table=AGES)) == 3
        with pytest.raises(ValueError, match="101 of 'cells' is of type int and '101' of 'table'"):
            MixedInputs(cells=CLOUDS, table=AGES.set_axis(AGES.index.astype(str)))
        with pytest.raises(ValueError, match=r"none in common: the first is 101 .* and 'P101'"):
            MixedInputs(cells=CLOUDS, table=AGES.set_axis("P" + AGES.index.astype(str)))
        with pytest.raises(ValueError, match="'101' of the targets of type str"):
            DistributionGP(
                MixedInputs(cells=CLOUDS, table=AGES),
                AGES["age"].set_axis(AGES.index.astype(str)),
            )

    def test_one_row_more(self) -> None:
        more = pd.concat([AGES, AGES.set_axis([104, 105, 106])]).rename_axis("patient")
        with pytest.raises(ValueError, match="104 is missing from 'cells'"):
            MixedInputs(cells=CLOUDS, table=more)

    def test_rows_that_a_filter_kept(self) -> None:
        kept = AGES.set_axis([0, 2, 5])
        assert len(MixedInputs(cells=CLOUDS, table=kept)) == 3
        DistributionGP(CLOUDS, kept["age"])

    @pytest.mark.parametrize("model", [DistributionGP, ClassificationGP])
    def test_targets(self, model: Any) -> None:
        targets = AGES["age"].round(-1).astype(int)
        model(CLOUDS, targets)
        for index, message in (
            (targets.index.astype(str), "'101' of the targets"),
            (targets.index + 1, "101 is missing from the targets"),
            ("P" + targets.index.astype(str), "none in common: the first is 101 in the clouds"),
        ):
            with pytest.raises(ValueError, match=message):
                model(CLOUDS, targets.set_axis(index))

    def test_groups(self) -> None:
        groups = pd.Series([0, 1, 1], index=[103, 101, 102])
        with pytest.raises(ValueError, match="the groups in the order of the clouds"):
            compare({"sw": SlicedWassersteinKernel(1)}, CLOUDS, [1.0, 2.0, 3.0], groups=groups)


NAMES = [f"p{i}" for i in range(8)]
BAGS = [np.linspace(i, i + 1, 3)[:, None] for i in range(8)]
Y = np.arange(8.0)
FOLDS = KFold(2, shuffle=True, random_state=0)


class TestFolds:
    """In a fold, an index that counts rows is one of integers, which are not names."""

    @pytest.mark.parametrize("name", [None, "row"])
    @pytest.mark.parametrize("second", [{"age": Y}, {"other": BAGS}])
    def test_frames(self, second: Any, name: str | None) -> None:
        X = pd.DataFrame({"cells": BAGS, **second}).rename_axis(name)
        scores = cross_val_score(
            DistributionGPRegressor(restarts=0), X, pd.Series(Y, index=NAMES), cv=FOLDS
        )
        assert np.isfinite(scores).all()

    @pytest.mark.parametrize("name", [None, "row"])
    @pytest.mark.parametrize("labels", [NAMES, list(range(101, 109))])
    def test_clouds(self, labels: list[Any], name: str | None) -> None:
        clouds = PointClouds.from_list(dict(zip(labels, BAGS, strict=True)))
        table = pd.DataFrame({"age": Y}).rename_axis(name)
        for kept in (slice(None), [0, 3, 4], [5, 1]):
            part = table.iloc[kept]
            DistributionGP(clouds[kept], part["age"])
            for X in (
                MixedInputs(cells=clouds[kept], covariates=part),
                MixedInputs(covariates=part, cells=clouds[kept]),
                MixedInputs(cells=clouds, covariates=table)[kept],
            ):
                assert X.labels.tolist() == clouds[kept].labels.tolist()
                DistributionGP(X, Y[kept])
                DistributionGP(X, part["age"])
                DistributionGP(X, pd.Series(Y[kept], index=clouds[kept].labels))

    def test_rows_beside_numbers_of_patients(self) -> None:
        clouds = PointClouds.from_list(dict(zip(range(1, 9), BAGS, strict=True)))
        table = pd.DataFrame({"age": Y})
        for kept in (slice(None), [0, 1, 2, 4]):
            DistributionGP(
                MixedInputs(cells=clouds[kept], covariates=table.iloc[kept]),
                table["age"].iloc[kept],
            )

    @pytest.mark.parametrize("second", [{"age": Y}, {"other": BAGS}])
    def test_another_order_is_an_error(self, second: Any) -> None:
        X = pd.DataFrame({"cells": BAGS, **second}).iloc[[1, 0, *range(2, 8)]]
        with pytest.raises(ValueError, match="in the order of the clouds"):
            DistributionGPRegressor().fit(X, pd.Series(Y))

    def test_a_column_of_labels(self) -> None:
        X = pd.DataFrame({"labels": Y, "size": Y**2})
        DistributionGPRegressor(restarts=0).fit(X, pd.Series(Y, index=NAMES))
