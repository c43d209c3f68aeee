"""Symmetric products."""

import pytest
import torch

from gp_distributions.numerics.pairwise import column_products


@pytest.mark.parametrize("shape", [(40, 7), (3, 9), (1, 1), (0, 4)])
def test_column_products(shape: tuple[int, int], device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(shape, generator=generator, dtype=torch.float64).to(device)
    for given in (columns, columns.mT.contiguous().mT):
        found = column_products(given)
        assert torch.equal(found, found.T)
        torch.testing.assert_close(found, columns.T @ columns)
