"""Minimisation by L-BFGS-B from an estimate of the inverse Hessian matrix."""

import numpy as np
import pytest
import torch
from botorch.optim.closures import ForwardBackwardClosure
from scipy.optimize import LbfgsInvHessProduct

from gp_distributions.fitting.lbfgs import minimise


@pytest.mark.parametrize("definite", [True, False])
def test_a_metric_that_rounding_made_indefinite_is_left_out(definite: bool) -> None:
    x = torch.nn.Parameter(torch.tensor([3.0, -2.0]).double())
    closure = ForwardBackwardClosure(
        lambda: (x - 1) ** 2 @ torch.tensor([1.0, 9.0]).double(), {"x": x}
    )
    steps, changes = np.eye(2), np.diag([2.0, 18.0] if definite else [2.0, -18.0])
    metric = LbfgsInvHessProduct(steps, changes)
    found = minimise(closure, {"x": x}, metric=metric)
    assert found.converged
    torch.testing.assert_close(x.detach(), torch.ones(2).double(), rtol=0, atol=1e-5)
