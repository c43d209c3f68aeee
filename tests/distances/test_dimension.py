"""The dimension argument of distances."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gp_distributions import (
    MMD,
    Fourier,
    Hellinger,
    MMDKernel,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    TotalVariation,
)
from gp_distributions.distances import ChiSquared, Distance

MADE = [MMD, Fourier, SlicedWasserstein, Hellinger, TotalVariation, ChiSquared]


@pytest.mark.parametrize("make", [*MADE, SlicedWassersteinKernel, MMDKernel])
def test_is_a_whole_number(make: Callable[[object], object]) -> None:
    for dim in (2.0, "2", None, True, [2], np.ones((3, 2)), 0, -1):
        with pytest.raises(ValueError, match="dim: expected an integer >= 1, got"):
            make(dim)


@pytest.mark.parametrize("make", MADE)
def test_of_any_type_is_kept_as_an_integer(make: Callable[[object], Distance]) -> None:
    for dim in (np.int64(2), torch.tensor(2)):
        assert type(make(dim).dim) is int
