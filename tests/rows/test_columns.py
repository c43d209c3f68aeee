"""Columns that repeat to the end of a row, and their selection."""

import pytest
import torch

from gp_distributions.rows.layout import Slots, numbers_of, select_columns

ROWS = torch.arange(2 * 11, dtype=torch.float64).reshape(2, 11)  # 2 columns, 3 slots of 3
FIRST, SECOND, WHOLE = Slots(2, 3, 0, 1), Slots(2, 3, 1, 2), Slots(2, 3, 0, 3)


class TestSlots:
    def test_selects_what_their_numbers_say(self) -> None:
        for slots in (FIRST, SECOND, WHOLE):
            for width in (5, 8, 11):
                rows = ROWS[:, :width]
                expected = rows[:, list(slots.numbers(width))]
                assert torch.equal(slots.select(rows), expected)
        assert SECOND.numbers(8) == (3, 4, 6, 7)

    def test_gradients(self) -> None:
        rows = ROWS.clone().requires_grad_()
        SECOND.select(rows).sum().backward()
        assert rows.grad is not None
        assert rows.grad[0].tolist() == [0, 0] + 3 * [0, 1, 1]

    @pytest.mark.parametrize("width", [2, 1, 4, 10])
    def test_refuses_parts_of_slots(self, width: int) -> None:
        with pytest.raises(ValueError, match="slots of 3 columns each, got rows of"):
            FIRST.select(ROWS[:, :width])


class TestSelection:
    def test_columns(self) -> None:
        assert select_columns(ROWS, None) is ROWS
        assert torch.equal(select_columns(ROWS, (4, 1)), ROWS[:, [4, 1]])
        assert select_columns(ROWS, (4, 5)).data_ptr() == ROWS[:, 4:].data_ptr()
        assert numbers_of(None, 3) == (0, 1, 2)
        assert numbers_of((2, 0), 3) == (2, 0)
