"""Support measure machines of Muandet et al. 2012: scikit-learn's SVC on our Gram matrices."""

from functools import partial

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from benchmarks.papers import machines
from benchmarks.papers import support_measure_machines as smm
from benchmarks.papers.machines import PENALTIES, cross_validate


@pytest.mark.parametrize(("kernel", "reach"), [("linear", 97.0), ("gaussian", 99.0)])
def test_accuracy_is_near_that_of_bayes(
    kernel: str, reach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Coarser grids select as well.
    monkeypatch.setattr(smm, "candidates", partial(smm.candidates, gammas=smm.GAMMAS[::2]))
    monkeypatch.setattr(machines, "PENALTIES", PENALTIES[::2])
    # In %: the standard error for 3000 test Gaussians with 1% errors is 0.18.
    assert (
        smm.accuracy(kernel, kernel, smm.Protocol(train=300, test=3000, selection=40), 0) >= reach
    )


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
