"""Names that clouds, frames and targets share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
    compare,
)
from gp_distributions.measures.names import check_names, index_names

CLOUDS = PointClouds.from_list({number: [[float(number)]] for number in (101, 103, 102)})
AGES = pd.DataFrame({"age": [50.0, 60.0, 70.0]}, index=pd.Index([101, 103, 102], name="patient"))


class TestIndexNames:
    @pytest.mark.parametrize(
        ("index", "known"),
        [
            (pd.RangeIndex(2), False),
            (pd.Index([0, 2]), False),  # what a filter of rows leaves
            (pd.Index([0, 2], name="patient"), True),
            (pd.Index(["ann", "bob"]), True),
            (pd.Index([0.0, 2.0]), True),
        ],
    )
    def test_which_indices_name_rows(self, index: pd.Index, known: bool) -> None:
        assert index_names(pd.Series([1.0, 2.0], index=index)) == (list(index), known)

    @pytest.mark.parametrize("data", [[1.0], np.ones(2), "text", None])
    def test_others_have_none(self, data: Any) -> None:
        assert index_names(data) is None


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
            check_names([7, 8], ["8", "7"], "X", "t", related=False)

    def test_numbers_of_rows(self) -> None:
        check_names(["a", "b"], [0, 3], "X", "t", related=False)


class TestTables:
    """Numbers of patients that are integers in one table and text in the other."""

    def test_frames(self) -> None:
        assert len(MixedInputs(cells=CLOUDS, table=AGES)) == 3
        with pytest.raises(ValueError, match="101 of 'cells' is of type int and '101' of 'table'"):
            MixedInputs(cells=CLOUDS, table=AGES.set_axis(AGES.index.astype(str)))
        with pytest.raises(ValueError, match=r"none in common: the first is 101 .* and 'P101'"):
            MixedInputs(cells=CLOUDS, table=AGES.set_axis("P" + AGES.index.astype(str)))

    def test_one_row_more(self) -> None:
        more = pd.concat([AGES, AGES.set_axis([104, 105, 106])])
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
            (targets.index + 100, "none in common: the first is 101 in the clouds"),
        ):
            with pytest.raises(ValueError, match=message):
                model(CLOUDS, targets.set_axis(index))

    def test_groups(self) -> None:
        groups = pd.Series([0, 1, 1], index=[103, 101, 102])
        with pytest.raises(ValueError, match="the groups in the order of the clouds"):
            compare({"sw": SlicedWassersteinKernel(1)}, CLOUDS, [1.0, 2.0, 3.0], groups=groups)
