"""Support measure machines of Muandet et al. 2012: scikit-learn's SVC on our Gram matrices."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from benchmarks.papers.machines import PENALTIES, cross_validate


@pytest.mark.parametrize("distance", [0.5, 5.0])
def test_cross_validation_is_that_of_scikit_learn(distance: float) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    points = rng.normal(size=(60, 2)) + distance * labels[:, None]
    gram = points @ points.T / 20  # so that all solvers converge
    folds = list(StratifiedKFold(10).split(gram, labels))
    search = GridSearchCV(SVC(kernel="precomputed"), {"C": PENALTIES}, cv=folds).fit(gram, labels)
    penalty, score = cross_validate(gram, labels, folds)
    assert penalty == search.best_params_["C"]
    assert score == pytest.approx(search.best_score_)
