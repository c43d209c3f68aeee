"""Support measure machines of Muandet et al. 2012: scikit-learn's SVC on our Gram matrices."""

import pytest

from benchmarks.support_measure_machines import accuracy


@pytest.mark.parametrize(("kernel", "reach"), [("linear", 97.0), ("gaussian", 99.0)])
def test_accuracy_is_near_that_of_bayes(kernel: str, reach: float) -> None:
    # In %: the standard error for 10 x 400 test Gaussians with 1% errors is 0.16.
    assert sum(accuracy(kernel, kernel, 400, seed) for seed in range(10)) / 10 >= reach
