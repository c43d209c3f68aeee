"""Blocks of columns that hold a distribution, chunks of clouds, and checks of weights."""

import math

import pytest
import torch
from cases import rand
from torch import Tensor

from gp_distributions.rows.layout import Block, check_weights, chunks, normalized


class TestBlock:
    def test_selects_columns(self) -> None:
        rows = rand(2, 4, 6)
        assert Block("clouds", 1).select(rows) is rows
        selected = Block("clouds", 1, (5, 0)).select(rows)
        assert torch.equal(selected, rows[..., [5, 0]])
        view = Block("clouds", 1, (2, 3)).select(rows)
        assert torch.equal(view, rows[..., 2:4])
        assert view.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr()
        with pytest.raises(RuntimeError):
            Block("clouds", 1, (5, 6)).select(rows)

    def test_atoms_are_views(self) -> None:
        for kind, width in (("clouds", 6), ("gaussians", 6), ("mixtures", 14), ("indices", 2)):
            rows = rand(4, width)
            assert Block(kind, 2).split(rows)[0].data_ptr() == rows.data_ptr()

    @pytest.mark.parametrize(
        ("kind", "width", "message"),
        [
            ("clouds", 7, r"multiple of dim \+ 1 = 3"),
            ("mixtures", 8, "multiple of dim"),
            ("gaussians", 7, r"width 6 \(a mean and a row-major covariance each\).*\(4, 7\)"),
            ("gaussians", 12, "width 6"),
            ("indices", 1, r"width 2 \(an index each\).*\(4, 1\)"),
        ],
    )
    def test_refuses_other_widths(self, kind: str, width: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Block(kind, 2).split(rand(4, width))
        with pytest.raises(ValueError, match=r"shape \(\)"):
            Block(kind, 2).split(torch.tensor(1.0))


def ragged(*sizes: int) -> Tensor:
    """Weights of clouds of the given sizes, padded with zeros."""
    weights = torch.zeros(len(sizes), max(sizes))
    for weight, size in zip(weights, sizes, strict=True):
        weight[:size] = 1 / size
    return weights


def test_chunks_of_similar_sizes_need_less_padding() -> None:
    weights = ragged(9, 1, 8, 2)
    pairs = [sorted(i.tolist()) for i in chunks(weights, 2, by_atoms=True)]
    assert pairs == [[1, 3], [0, 2]]


class TestWeights:
    def test_sum_to_one(self) -> None:
        weights = rand(2, 3, 4)
        torch.testing.assert_close(normalized(weights).sum(-1), torch.ones(2, 3).double())

    @pytest.mark.parametrize("bad", [[-1.0, 2.0], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
    def test_names_the_first_row_with_invalid_ones(self, bad: list[float]) -> None:
        weights = torch.ones(2, 3, 2)
        weights[1, 2] = torch.tensor(bad)
        for check in (check_weights, normalized):
            with pytest.raises(ValueError, match=r"row \(1, 2\) has the weights"):
                check(weights)
            with pytest.raises(ValueError, match="row 2 has the weights"):
                check(weights[1])
