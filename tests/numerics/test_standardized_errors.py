"""Errors in units of standard deviations: the values, the precision and what is refused."""

import numpy as np
import pytest
import torch

from gp_distributions.numerics.predictions import standardized_errors


def test_values_in_the_highest_precision() -> None:
    mean = torch.zeros(2, requires_grad=True)
    z, std = standardized_errors(np.array([1.0, -3.0]), mean, [2.0, 4.0])
    assert z.tolist() == [0.5, -0.75]
    assert std.tolist() == [2.0, 4.0]
    assert z.dtype == std.dtype == torch.float64
    assert not z.requires_grad
    single = (torch.ones(2),) * 3
    assert standardized_errors(*single)[0].dtype == torch.float32


def test_refused() -> None:
    pair, single = torch.ones(3, 2), torch.ones(3)
    assert standardized_errors(pair, pair, pair, outputs=True)[0].shape == (3, 2)
    with pytest.raises(ValueError, match=r"of the same shape \(N,\), got \(3, 2\)"):
        standardized_errors(pair, pair, pair)
    with pytest.raises(ValueError, match="of the same shape"):
        standardized_errors(single, single, single[:2])
    zero = torch.tensor([1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"those of bag 1 are 1\.0, 1\.0 and 0\.0"):
        standardized_errors(single, single, zero)
