"""Support measure machines of Muandet et al. 2012: scikit-learn's SVC on our Gram matrices."""

import pytest

from benchmarks.support_measure_machines import accuracy


@pytest.mark.parametrize(("kernel", "reach"), [("linear", 97.0), ("gaussian", 99.0)])
def test_accuracy_is_near_that_of_bayes(kernel: str, reach: float) -> None:
    # Of 400 test Gaussians each, of which 1% are told wrong: a standard error of 0.16.
    assert sum(accuracy(kernel, kernel, 400, seed) for seed in range(10)) / 10 >= reach
