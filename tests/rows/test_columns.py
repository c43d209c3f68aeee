"""Columns that repeat to the end of a row, and selections that are made once."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from gp_distributions.rows.memory import unchanging_rows

from gp_distributions.distances.evaluation import sharing
from gp_distributions.rows.columns import Slots, numbers_of, select_columns, selecting_once

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

    def test_a_block_of_whole_slots_is_a_view(self) -> None:
        assert WHOLE.select(ROWS).data_ptr() == ROWS[:, 2:].data_ptr()

    def test_expanded_axes_are_not_copied(self) -> None:
        chosen = SECOND.select(ROWS.expand(50, 4, 2, 11))
        assert chosen.shape == (50, 4, 2, 6)
        assert chosen.stride()[:2] == (0, 0)

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

    def test_is_made_once_in_a_context(self) -> None:
        assert select_columns(ROWS, SECOND) is not select_columns(ROWS, SECOND)
        with selecting_once():
            first = select_columns(ROWS, SECOND)
            assert select_columns(ROWS, SECOND) is first
            assert select_columns(ROWS[:], SECOND) is first  # the same memory
            assert select_columns(ROWS, FIRST) is not first
            with selecting_once():
                assert select_columns(ROWS, SECOND) is first
        assert select_columns(ROWS, SECOND) is not first

    def test_changes_are_noticed(self) -> None:
        rows = ROWS.clone()
        with selecting_once():
            first = select_columns(rows, SECOND)
            rows += 1
            assert torch.equal(select_columns(rows, SECOND), first + 1)

    def test_gradients_belong_to_their_rows(self) -> None:
        rows = ROWS.clone().requires_grad_()
        with selecting_once():
            fixed = select_columns(rows.detach(), SECOND)
            tracked = select_columns(rows, SECOND)
            assert not fixed.requires_grad
            assert tracked.requires_grad
            assert select_columns(rows, SECOND) is tracked
            with torch.no_grad():
                assert not select_columns(rows, SECOND).requires_grad

    def test_inference_mode(self) -> None:
        with torch.inference_mode(), selecting_once():
            rows = ROWS * 2
            assert torch.equal(select_columns(rows, FIRST), rows[:, 2::3])

    @pytest.mark.parametrize("context", [unchanging_rows, sharing])
    def test_fits_and_posteriors_select_once(
        self, context: Callable[[], AbstractContextManager[None]]
    ) -> None:
        with context():
            assert select_columns(ROWS, SECOND) is select_columns(ROWS, SECOND)
