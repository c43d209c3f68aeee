"""Weights of mixtures of models and of classifiers."""

import torch
from cases import as_rows, random_clouds

from gp_distributions import ClassificationGP, SlicedWassersteinKernel
from gp_distributions.models import MixtureClassifier

ROWS = as_rows(random_clouds(6, sizes=(3, 9)))


def test_weights_of_classifiers_are_equal_unless_given() -> None:
    kernels = [SlicedWassersteinKernel(2, profile=profile) for profile in ("gaussian", "matern52")]
    first, second = (ClassificationGP(ROWS, ["a", "b"] * 3, kernel) for kernel in kernels)
    found = MixtureClassifier([first, second]).predict_proba(ROWS)
    expected = (first.predict_proba(ROWS) + second.predict_proba(ROWS)) / 2
    torch.testing.assert_close(found, expected)
