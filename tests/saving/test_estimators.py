"""Files of estimators and pipelines: the same predictions, and refusals that say what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases import reloaded
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from gp_distributions import (
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    MixedInputs,
    SlicedWasserstein,
    mixed_kernel,
    save,
)
from gp_distributions.kernels import profiles

pytestmark = pytest.mark.usefixtures("short_fits")

RNG = np.random.default_rng(1)
LEVEL = RNG.normal(size=20)
FRAME = pd.DataFrame(
    {
        "cells": [9 * (m + RNG.normal(size=(RNG.integers(4, 9), 2))) for m in LEVEL],
        "arm": ["drug", "none"] * 10,
    }
)
CELLS = FRAME["cells"]
SMALL = {"num_slices": 5, "num_quantiles": 8}
FAST: dict[str, Any] = {"options": SMALL, "restarts": 0}
RATIO = profiles.RationalQuadratic()

CASES: dict[str, tuple[Any, Any]] = {
    "regressor": (DistributionGPRegressor(**FAST), CELLS),
    "frame": (DistributionGPRegressor(**FAST), FRAME),
    "sparse": (DistributionGPRegressor(**FAST, num_inducing=9), FRAME),
    "objects": (
        DistributionGPRegressor(SlicedWasserstein(2, **SMALL), profile=RATIO, restarts=0),
        FRAME,
    ),
    "kernel": (
        DistributionGPRegressor(kernel=mixed_kernel(MixedInputs.from_frame(FRAME)), restarts=0),
        FRAME,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_predictions_and_parameters(name: str) -> None:
    estimator, X = CASES[name]
    expected = estimator.fit(X, LEVEL).predict(X)
    loaded = reloaded(estimator)
    assert type(loaded) is type(estimator)
    np.testing.assert_array_equal(loaded.predict(X), expected)
    assert repr(loaded) == repr(estimator)
    # Parameters are whole: a new fit is the same fit.
    np.testing.assert_array_equal(clone(loaded).fit(X, LEVEL).predict(X), expected)


@pytest.mark.parametrize("labels", [LEVEL > 0, np.where(LEVEL > 0, "high", "low")])
def test_classifiers(labels: Any) -> None:
    estimator = DistributionGPClassifier(options=SMALL)
    expected = estimator.fit(FRAME, labels).predict_proba(FRAME)
    loaded = reloaded(estimator)
    np.testing.assert_array_equal(loaded.predict_proba(FRAME), expected)
    assert loaded.predict(FRAME).tolist() == estimator.predict(FRAME).tolist()
    assert loaded.classes_.dtype == labels.dtype


def test_kernels_keep_their_hyperparameters() -> None:
    kernel = mixed_kernel(MixedInputs.from_frame(FRAME)).double()
    kernel.outputscale = 3.25
    kernel.requires_grad_(False)  # a fit leaves it as it is
    estimator = DistributionGPRegressor(kernel=kernel, restarts=0).fit(FRAME, LEVEL)
    loaded = reloaded(estimator)
    assert loaded.kernel.outputscale.item() == 3.25
    assert not any(parameter.requires_grad for parameter in loaded.kernel.parameters())


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "file"
    embedding = make_pipeline(EmbeddingTransformer(options=SMALL), Ridge()).fit(CELLS, LEVEL)
    with pytest.raises(TypeError, match=r"Pipeline cannot be saved.*joblib\.dump"):
        save(embedding, path)
    search = GridSearchCV(DistributionGPRegressor(**FAST), {"seed": [0]}, cv=2).fit(CELLS, LEVEL)
    with pytest.raises(TypeError, match=r"GridSearchCV cannot be saved.*save best_estimator_;"):
        save(search, path)
    assert not path.exists()
