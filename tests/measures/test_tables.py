"""Names of objects: labels and indices agree, or errors say where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.model_selection import KFold, cross_val_score

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionGPRegressor,
    EmbeddingTransformer,
    Gaussians,
    MixedInputs,
    PointClouds,
    SparseDistributionGP,
)
from gp_distributions.measures.arrays import object_array
from gp_distributions.measures.tables import Names, check_names
from gp_distributions.warnings import OrderWarning

pytestmark = pytest.mark.usefixtures("short_fits")
CLOUDS = PointClouds.from_list({number: [[float(number)]] for number in (101, 103, 102)})
AGES = pd.DataFrame({"age": [50.0, 60.0, 70.0]}, index=pd.Index([101, 103, 102], name="patient"))


def check(names: list[Any], others: list[Any], *, counted: bool = False) -> None:
    first, second = (Names(object_array(values)) for values in (names, others))
    check_names(first, replace(second, counted=counted), "X", "t")


@pytest.mark.parametrize(
    ("names", "others", "counted", "message"),
    [
        ("abc", "abc", False, None),
        ([1, 2], [1.0, 2.0], False, None),
        ([1, 2, 3], [0, 1, 2], True, None),
        ([3, 0], [0, 3], True, r"t in the order of X, but row 0 is named 3 in X and 0 in t"),
        ("abc", "acb", False, r"but row 1 is named 'b' in X .*frame\.loc\[clouds\.labels\]"),
        ("abc", "ab", False, r"'c' occurs 1 times in X and 0 times in t"),
        ("abc", "abca", False, r"'a' occurs 1 times in X and 2 times in t"),
        ("abc", "abcd", False, r"'d' occurs 0 times in X and 1 times in t"),
        ([7, 8], "87", False, r"7 occurs 1 times in X and 0 times in t.*reset_index\(drop=True"),
        (["a", "b"], ["b", None], False, r"'a' occurs 1 times in X and 0 times in t"),
    ],
)
def test_names_of_two_tables(names: Any, others: Any, counted: bool, message: str | None) -> None:
    if message is None:
        check([*names], [*others], counted=counted)
    else:
        with pytest.raises(ValueError, match=message):
            check([*names], [*others], counted=counted)


class TestTables:
    """Numbers of patients that are integers in one table and text in the other."""

    def test_frames(self) -> None:
        assert len(MixedInputs(cells=CLOUDS, table=AGES)) == 3
        with pytest.raises(
            ValueError, match="101 occurs 1 times in 'cells' and 0 times in 'table'"
        ):
            MixedInputs(cells=CLOUDS, table=AGES.set_axis(AGES.index.astype(str)))

    @pytest.mark.parametrize("model", [DistributionGP, ClassificationGP])
    def test_targets(self, model: Any) -> None:
        targets = AGES["age"].round(-1).astype(int)
        model(CLOUDS, targets)
        for index in (targets.index.astype(str), targets.index + 1):
            with pytest.raises(ValueError, match="101 occurs 1 times in the clouds and 0 times"):
                model(CLOUDS, targets.set_axis(index))

    @pytest.mark.parametrize("model", [DistributionGP, SparseDistributionGP])
    def test_variances(self, model: Any) -> None:
        options = {} if model is DistributionGP else {"num_inducing": 2}
        variances = AGES["age"] / 100
        model(CLOUDS, AGES["age"], train_Yvar=variances, **options)
        with pytest.raises(ValueError, match="the variances in the order of the clouds"):
            model(CLOUDS, AGES["age"], train_Yvar=variances[::-1], **options)

    def test_two_blocks_of_numbered_clouds(self) -> None:
        """The labels of clouds are names, in one block or in two, also in a part and after ``to``."""
        ages = AGES["age"].set_axis(AGES.index + 1)
        for X in (CLOUDS, MixedInputs(a=CLOUDS), MixedInputs(a=CLOUDS, b=CLOUDS)):
            for kept in (X, X[1:], X.to(torch.float64)):
                with pytest.raises(ValueError, match="and 0 times in the targets"):
                    DistributionGP(kept, ages[-len(kept) :])

    def test_a_frame_of_bags_with_a_numbered_index(self) -> None:
        bags = [np.full((2, 1), i) for i in range(3)]
        X = MixedInputs.from_frame(pd.DataFrame({"a": bags, "b": bags}, index=AGES.index))
        DistributionGP(X, AGES["age"].reset_index(drop=True))
        targets = AGES["age"].loc[[102, 103, 101]]
        for kept in (X, X[[0, 2, 1]], MixedInputs.concatenate([X[:2], X[2:]])):
            with pytest.raises(ValueError, match="103 occurs 1 times in the clouds and 0"):
                DistributionGP(kept, targets.rename({103: 104}))
            with pytest.raises(ValueError, match="in the order of the clouds"):
                DistributionGP(kept, targets)


def test_dates() -> None:
    """Arrays of nanoseconds are listed as integers by NumPy."""
    days = pd.date_range("2020-01-01", periods=3)
    for unit in ("s", "ns"):
        long = pd.DataFrame({"day": days.astype(f"datetime64[{unit}]").repeat(2), "v": range(6)})
        clouds = PointClouds.from_frame(long, bag="day", columns="v")
        for X in (clouds, PointClouds.from_list({day: [[1.0]] for day in days})):
            targets = pd.Series([1.0, 2.0, 4.0], index=days.astype("datetime64[us]"))
            DistributionGP(X, targets)
            with pytest.raises(ValueError, match="in the order of the clouds"):
                DistributionGP(X, targets[::-1])


NAMES = [f"p{i}" for i in range(8)]
BAGS = [np.linspace(i, i + 1, 3)[:, None] for i in range(8)]
Y = np.arange(8.0)
FOLDS = KFold(2, shuffle=True, random_state=0)


def test_numbered_targets_beside_names() -> None:
    clouds = PointClouds.from_list(dict(zip(NAMES, BAGS, strict=True)))
    with pytest.warns(OrderWarning, match=rf"such as '{NAMES[0]}': the targets are taken to be in"):
        DistributionGP(clouds, pd.Series(Y))
    DistributionGP(clouds, pd.Series(Y, index=NAMES))
    DistributionGP(clouds, Y)


class TestFolds:
    """In a fold, an index that counts rows is one of integers, which are not names."""

    @pytest.mark.filterwarnings("ignore::gp_distributions.warnings.OrderWarning")
    @pytest.mark.parametrize("labels", [NAMES, list(range(101, 109)), list(range(1, 9))])
    def test_clouds(self, labels: list[Any]) -> None:
        clouds = PointClouds.from_list(dict(zip(labels, BAGS, strict=True)))
        table = pd.DataFrame({"age": Y})
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
                DistributionGP(X, part["age"].rename("next age"))
                DistributionGP(X, pd.Series(Y[kept], index=clouds[kept].labels))

    @pytest.mark.parametrize("second", [{"age": Y}, {"other": BAGS}])
    def test_a_default_index_in_another_order(self, second: Any) -> None:
        X = pd.DataFrame({"cells": BAGS, **second})
        for given in (X, X.iloc[::-1], X.iloc[2:6]):
            read = MixedInputs.from_frame(given)
            targets = X.index.to_series().astype(float).loc[given.index]
            DistributionGP(read, targets)
            DistributionGP(read, targets.reset_index(drop=True) if given is X else targets)
            DistributionGP(read, targets.set_axis([f"p{i}" for i in given.index]))
            with pytest.raises(ValueError, match="in the order of the clouds"):
                DistributionGP(read, targets[::-1])
        assert MixedInputs.from_frame(X).labels is None
        assert MixedInputs.from_frame(X)[[3, 1]].labels is None

    def test_two_tables_with_default_indices(self) -> None:
        table = pd.DataFrame({"age": Y})
        assert MixedInputs(a=table, b=table).labels is None
        with pytest.raises(ValueError, match="'b' in the order of 'a'"):
            MixedInputs(a=table, b=table[::-1])

    @pytest.mark.usefixtures("shortest_fits")
    @pytest.mark.parametrize("form", ["clouds", "column", "mixed", "numbers"])
    def test_estimators(self, form: str) -> None:
        labelled = PointClouds.from_list(dict(zip(NAMES, BAGS, strict=True)))
        frame = pd.DataFrame({"cells": BAGS}, index=NAMES)
        X: Any = {
            "clouds": labelled,
            "column": frame["cells"],
            "mixed": frame.assign(age=Y),
            "numbers": pd.DataFrame({"a": Y, "b": Y**2}, index=NAMES),
        }[form]
        y = pd.Series(Y, index=NAMES)
        model = DistributionGPRegressor(restarts=0)
        with pytest.raises(ValueError, match="targets in the order of the clouds"):
            model.fit(X, y[::-1])
        for given in (y, pd.Series(Y)):
            assert np.isfinite(cross_val_score(model, X, given, cv=FOLDS)).all()


class TestColumns:
    """Coordinates that frames name in unlike orders."""

    FRAMES: ClassVar[list[pd.DataFrame]] = [
        pd.DataFrame(np.random.default_rng(seed).normal(size=(4, 2)) * [1, 30], columns=["x", "y"])
        for seed in range(6)
    ]
    SWAPPED: ClassVar[list[pd.DataFrame]] = [frame[["y", "x"]] for frame in FRAMES]
    MADE: ClassVar[dict[str, Any]] = {
        "list": PointClouds.from_list,
        "curves": PointClouds.from_curves,
        "meshes": lambda frames: PointClouds.from_meshes([(f, [[0, 1, 2]]) for f in frames]),
        "long": lambda frames: PointClouds.from_frame(
            pd.concat(
                [*map(as_pandas, frames)], keys=range(len(frames)), names=["bag", "row"]
            ).reset_index(),
            bag="bag",
            columns=[*as_pandas(frames[0]).columns],
        ),
        "gaussians": lambda frames: Gaussians.from_mean_std(frames[0], as_pandas(frames[0]) ** 2),
        "mixed": lambda frames: MixedInputs(cells=PointClouds.from_list(frames)),
        "cells": lambda frames: MixedInputs.from_frame(pd.DataFrame({"cells": [*frames]})),
    }

    @pytest.mark.parametrize("library", [lambda frame: frame, pa.Table.from_pandas])
    @pytest.mark.parametrize("made", MADE)
    def test_take_the_order_of_training(self, made: str, library: Any) -> None:
        X, new = (self.MADE[made]([*map(library, f)]) for f in (self.FRAMES, self.SWAPPED))
        model = DistributionGP(X, np.arange(len(X)))
        assert torch.equal(model.predict(new)[0], model.predict(X)[0])

    @pytest.mark.parametrize("library", [lambda frame: frame, pa.Table.from_pandas])
    @pytest.mark.parametrize("read", [PointClouds.from_list, PointClouds.from_curves])
    def test_of_a_list_take_the_order_of_the_first(self, read: Any, library: Any) -> None:
        both = [*map(library, (self.FRAMES[0], self.SWAPPED[0]))]
        clouds = read(both)
        assert torch.equal(clouds.points[0], clouds.points[1])
        assert clouds[:1].normalize(like=read(both[::-1])) == clouds[:1].normalize(like=clouds)
        assert read(both[::-1])._concatenate([clouds, read(both[::-1])]).columns == ("x", "y")
        spread = Gaussians.from_mean_std(both[0], library(self.SWAPPED[0].abs()))
        assert torch.equal(spread.covariance[0].diagonal(), spread.mean[0].square())
        other = library(self.FRAMES[1].rename(columns={"x": "z"}))
        with pytest.raises(ValueError, match=r"1.*: expected the columns \['x', 'y'\], got \['z'"):
            read([both[0], other])

    @pytest.mark.usefixtures("shortest_fits")
    def test_of_estimators(self) -> None:
        y = np.arange(6.0)
        for estimator in (DistributionGPRegressor(restarts=0), EmbeddingTransformer()):
            fitted = estimator.fit(self.FRAMES, y)
            assert fitted.feature_names_in_.tolist() == ["x", "y"]
            use = getattr(fitted, "predict", None) or fitted.transform
            np.testing.assert_array_equal(use(self.SWAPPED), use(self.FRAMES))
            with pytest.raises(
                ValueError, match=r"X: expected the columns \['x', 'y'\], got \['x'"
            ):
                use([frame.rename(columns={"y": "z"}) for frame in self.FRAMES])
            assert not hasattr(
                estimator.fit([f.to_numpy() for f in self.FRAMES], y), "feature_names_in_"
            )

    def test_of_clouds_with_normals_keep_their_order(self) -> None:
        square = pd.DataFrame([[0, 0], [2, 0], [2, 1]], columns=["x", "y"])
        model = DistributionGP(PointClouds.from_curves([square] * 2, normals=True), [0.0, 1.0])
        with pytest.raises(
            ValueError, match=r"expected the columns \['x', 'y'\], got \['y', 'x'\]"
        ):
            model.predict(PointClouds.from_curves([square[["y", "x"]]], normals=True))


def as_pandas(frame: Any) -> pd.DataFrame:
    return frame.to_pandas() if isinstance(frame, pa.Table) else frame


def test_targets_among_inputs_are_refused() -> None:
    frame = pd.DataFrame({"bags": [[1.0], [2.0, 3.0]], "y": [1, 2]})
    for use in (
        lambda y: DistributionGPRegressor().fit(frame, y),
        lambda y: DistributionGP(MixedInputs.from_frame(frame), y),
    ):
        with pytest.raises(ValueError, match=r"without the targets, got their column 'y'"):
            use(frame["y"])
    DistributionGP(MixedInputs.from_frame(frame), frame["y"].shift(-1, fill_value=0))


def test_scores_take_targets_in_the_order_of_the_clouds() -> None:
    y = pd.Series([1.0, 3.0, 2.0], index=CLOUDS.labels)
    regressor = DistributionGPRegressor(restarts=0).fit(CLOUDS, y)
    assert regressor.score(CLOUDS, y) == regressor.score(CLOUDS, y.to_numpy())
    with pytest.raises(ValueError, match="targets in the order of the clouds, but row 1"):
        regressor.score(CLOUDS, y.iloc[[0, 2, 1]])


def test_known_variances_are_copied() -> None:
    variances = torch.ones(3, dtype=torch.float64)
    model = DistributionGP(CLOUDS, [1.0, 3.0, 2.0], train_Yvar=variances, outcome_transform=None)
    before = model.predict(CLOUDS)[0]
    variances *= 100
    assert torch.equal(model.predict(CLOUDS)[0], before)
