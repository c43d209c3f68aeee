"""The layout of rows: joined, split, padded and narrowed."""

import pytest
import torch
from torch import Tensor

from gp_distributions.rows.clouds import (
    drop_padding,
    equal_rows,
    join_rows,
    pad_rows,
)


def clouds(*shape: int, dim: int = 2) -> tuple[Tensor, Tensor]:
    """Points and weights of clouds of ``shape[-1]`` atoms."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, dim, generator=generator), torch.rand(*shape, generator=generator)


class TestPad:
    def test_copies_stay_copies(self) -> None:
        padded = pad_rows(join_rows(*clouds(3, 4)).expand(5, 2, 3, 12), 15)
        assert padded.shape == (5, 2, 3, 15)
        assert padded.stride()[:2] == (0, 0)

    def test_gradient_is_that_of_the_old_atoms(self) -> None:
        rows = join_rows(*clouds(2, 3, 4)).requires_grad_()
        (gradient,) = torch.autograd.grad(pad_rows(rows, 15).sum(), rows)
        assert torch.equal(gradient, torch.ones_like(rows))


class TestDropPadding:
    def test_wherever_it_stands(self) -> None:
        points = torch.arange(10.0).reshape(2, 5, 1)
        weights = torch.tensor([[0, 0.4, 0, 0.6, 0], [0.2, 0, 0.3, 0, 0.5]])
        narrow, weights = drop_padding(points, weights)
        # The order of the atoms stays; the smaller cloud keeps what padding it needs.
        assert weights.tolist() == torch.tensor([[0.4, 0.6, 0], [0.2, 0.3, 0.5]]).tolist()
        assert narrow[0, :2, 0].tolist() == [1, 3]
        assert narrow[1, :, 0].tolist() == [5, 7, 9]

    def test_gradient_in_points(self) -> None:
        points, weights = clouds(2, 5)
        weights[:, 1] = 0
        points.requires_grad_()
        (gradient,) = torch.autograd.grad(drop_padding(points, weights)[0].sum(), points)
        assert torch.equal(gradient.sum(-1), 2 * (weights > 0).float())


class TestEqualRows:
    @pytest.mark.parametrize(
        ("shape1", "shape2"), [((), ()), ((2, 3), ()), ((), (2, 3)), ((2, 1), (3,))]
    )
    @pytest.mark.parametrize("first", [0.0, 1.0])
    def test_against_a_look_at_every_pair(
        self, shape1: tuple[int, ...], shape2: tuple[int, ...], first: float
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        x1, x2 = (
            torch.randint(2, (*shape, num, 3), generator=generator).double()
            for shape, num in ((shape1, 4), (shape2, 5))
        )
        x1[..., 0] *= first  # where it is zero, nothing is told by the first column alone
        expected = (x1.unsqueeze(-2) == x2.unsqueeze(-3)).all(-1)
        assert expected.any()
        actual = equal_rows(x1.requires_grad_(), x2).expand(expected.shape)
        assert torch.equal(actual, expected)

    def test_other_widths_and_no_numbers_are_not_equal(self) -> None:
        x = torch.rand(3, 4)
        assert not bool(equal_rows(x, torch.nn.functional.pad(x, (0, 2))).any())
        assert not bool(equal_rows(x * torch.nan, x * torch.nan).any())
