"""Virtual examples: images that are scaled, rotated and shifted."""

import math

import torch

from benchmarks.papers.virtual_examples import move


def _image() -> torch.Tensor:
    image = torch.zeros(1, 16, 16, dtype=torch.float64)
    image[0, 5:10, 6:9] = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)).double()
    return image


def _moved(
    scale: tuple[float, float] = (1, 1), angle: float = 0, shift: tuple[float, float] = (0, 0)
) -> torch.Tensor:
    numbers = (torch.tensor([value], dtype=torch.float64) for value in (scale, angle, shift))
    return move(_image(), *numbers)


def test_shift_is_in_pixels_along_x_and_y() -> None:
    torch.testing.assert_close(_moved(shift=(2, 3)), _image().roll((3, 2), (1, 2)))


def test_rotation_is_from_x_towards_y() -> None:
    # Rows count downwards, so that x towards y is clockwise.
    torch.testing.assert_close(_moved(angle=math.pi / 2), _image().rot90(-1, (1, 2)))
