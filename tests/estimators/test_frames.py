"""Estimators of data frames that hold bags beside numbers and categories."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.compose import ColumnTransformer

from gp_distributions import (
    DistributionGP,
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    GramTransformer,
    MixedInputs,
    PointClouds,
    fit,
    mixed_kernel,
)

pytestmark = pytest.mark.usefixtures("short_fits")

N = 30
RNG = np.random.default_rng(5)
LEVEL = RNG.normal(size=N)
BAGS = [3 * (m + 0.3 * RNG.normal(size=(RNG.integers(5, 12), 2))) + 7 for m in LEVEL]
AGE, ARM = RNG.uniform(20, 80, N), RNG.choice(["drug", "none"], N)
FRAME = pd.DataFrame({"age": AGE, "cells": BAGS, "arm": ARM}, index=[f"p{i}" for i in range(N)])
Y = LEVEL + (AGE - 50) / 20 + (ARM == "drug")
SMALL = {"num_slices": 5, "num_quantiles": 8}
INPUTS = MixedInputs(cells=PointClouds.from_list(BAGS), covariates={"age": AGE, "arm": ARM})


def regressor(**options: Any) -> DistributionGPRegressor:
    return DistributionGPRegressor(**{"options": SMALL, "restarts": 0} | options)


class TestFrames:
    def test_are_mixed_inputs(self) -> None:
        read = MixedInputs.from_frame(FRAME)
        assert read.labels is not None
        assert read.labels.tolist() == list(FRAME.index)
        assert torch.equal(read.pack(), INPUTS.pack())
        other = MixedInputs.from_frame(FRAME, covariates="patient")
        assert list(other.blocks) == ["cells", "patient"]
        with pytest.raises(ValueError, match=r"'cells': .* pass another covariates="):
            MixedInputs.from_frame(FRAME, covariates="cells")
        for name, block in (("cells", "cells"), ("age", "covariates")):
            assert list(MixedInputs.from_frame(FRAME[[name]]).blocks) == [block]
        # The index of the frame stays writable.
        assert FRAME.index.to_numpy().base is not read.labels

    def test_a_frame_without_rows(self) -> None:
        model = regressor().fit(FRAME, Y)
        for use in (MixedInputs.from_frame, model.predict):
            with pytest.raises(ValueError, match="Expected at least one row"):
                use(FRAME[:0])

    def test_of_every_form(self) -> None:
        lists = [bag.tolist() for bag in BAGS]
        nested = pa.table({"cells": lists}).to_pandas()["cells"]  # what pandas reads from Parquet
        assert nested[0].dtype == object
        expected = regressor().fit(FRAME, Y).predict(FRAME)
        for frame in (
            FRAME.assign(cells=lists),
            FRAME.assign(cells=[torch.from_numpy(bag) for bag in BAGS]),
            FRAME.reset_index().assign(cells=nested)[["age", "cells", "arm"]],
            pa.table({"age": AGE, "cells": lists, "arm": ARM}),
        ):
            assert torch.equal(MixedInputs.from_frame(frame).pack(), INPUTS.pack())
            np.testing.assert_array_equal(regressor().fit(frame, Y).predict(frame), expected)

    @pytest.mark.parametrize(
        ("cell", "message"),
        [
            (None, "Column 'cells': Bag 3: expected real numbers, got None"),
            (1.5, r"Column 'cells': Bag 3 \(label p3\): expected a non-empty"),
            (np.zeros((2, 3)), "'cells': Bag 3 .label p3.: expected 2 columns"),
        ],
    )
    def test_bad_bags(self, cell: Any, message: str) -> None:
        cells = pd.Series([*BAGS[:3], cell, *BAGS[4:]], index=FRAME.index)
        with pytest.raises(ValueError, match=message):
            regressor().fit(FRAME.assign(cells=cells), Y)

    def test_lazy_frames(self) -> None:
        class LazyFrame:
            def collect(self) -> None:
                raise AssertionError

        with pytest.raises(TypeError, match=r"got LazyFrame\. .*X\.collect\(\)"):
            regressor().fit(LazyFrame(), Y)  # type: ignore[arg-type]


class TestEstimators:
    def test_are_the_model(self) -> None:
        found = regressor(restarts=1).fit(FRAME[:20], Y[:20])
        made = regressor()._make_kernel(INPUTS[:20])
        model = fit(DistributionGP(INPUTS[:20], Y[:20], made), restarts=1, seed=0)
        assert made.base_kernel.kernels[0].base_kernel.distance.distance.num_slices == 5
        mean, std = found.predict(FRAME[20:], return_std=True)
        expected = model.predict(INPUTS[20:])
        np.testing.assert_allclose(mean, expected[0], rtol=1e-9)
        np.testing.assert_allclose(std, expected[1], rtol=1e-9)
        assert found.score(FRAME[20:], Y[20:]) > 0.9

    def test_names_and_order_of_columns(self) -> None:
        fitted = regressor().fit(FRAME, Y)
        assert fitted.feature_names_in_.tolist() == ["age", "cells", "arm"]
        assert (fitted.n_features_in_, fitted.inputs_) == (3, "mixed inputs")
        for columns, message in (
            (["cells", "age", "arm"], "must be in the same order"),
            (["age", "arm"], r"(?s)now missing.*cells"),
        ):
            with pytest.raises(ValueError, match=message):
                fitted.predict(FRAME[columns])
        with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*more"):
            fitted.predict(FRAME.assign(more=1))
        for given in (BAGS, INPUTS.blocks["cells"], FRAME["cells"]):
            with pytest.raises(ValueError, match="was fitted on mixed inputs, got"):
                fitted.predict(given)
        np.testing.assert_array_equal(fitted.predict(INPUTS), fitted.predict(FRAME))
        fitted.fit(BAGS, Y)
        assert not hasattr(fitted, "feature_names_in_")
        with pytest.raises(ValueError, match="was fitted on clouds, got mixed inputs"):
            fitted.predict(FRAME)

    @pytest.mark.parametrize("num_inducing", [None, 15])
    def test_classes(self, num_inducing: int | None) -> None:
        labels = np.where(Y > 0.5, "yes", "no")
        classifier = DistributionGPClassifier(options=SMALL, num_inducing=num_inducing)
        assert classifier.fit(FRAME[:20], labels[:20]).score(FRAME[20:], labels[20:]) >= 0.7

    def test_kernels(self) -> None:
        kernel = mixed_kernel(MixedInputs.from_frame(FRAME), structure="sum")
        found = regressor(kernel=kernel, options=None).fit(FRAME, Y).predict(FRAME[:3])
        expected = regressor(structure="sum", options=None).fit(FRAME, Y).predict(FRAME[:3])
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    def test_other_estimators_refuse(self) -> None:
        for given in (FRAME, INPUTS, list(INPUTS)):
            with pytest.raises(TypeError, match=r"one bag for each sample.*'cells', 'covariates'"):
                EmbeddingTransformer().fit(given)


@pytest.mark.parametrize("column", ["cells", ["cells"]], ids=["name", "list"])
def test_names_of_features_in_a_column_transformer(column: Any) -> None:
    options = {"num_slices": 2, "num_quantiles": 3}
    embedding = EmbeddingTransformer(options=options)
    steps = {
        "embedding": embedding,
        "gram": GramTransformer(),
    }
    columns = ColumnTransformer(
        [(name, step, column) for name, step in steps.items()] + [("age", "passthrough", ["age"])]
    )
    # Frames of pipelines without the index of the input can be joined if it counts rows.
    table = columns.set_output(transform="pandas").fit_transform(FRAME.reset_index(drop=True))
    prefixes = {
        "embedding__embeddingtransformer": embedding.fit_transform(BAGS).shape[1],
        "gram__gramtransformer": N,
    }
    names = [f"{prefix}{i}" for prefix, count in prefixes.items() for i in range(count)]
    assert columns.get_feature_names_out().tolist() == [*names, "age__age"]
    assert table.columns.tolist() == [*names, "age__age"]
