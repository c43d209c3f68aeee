"""Images as weights on the grid of their pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.measures._validation import Wording, validated
from gp_distributions.measures.arrays import Data, real_array, to_tensors


def read_images(images: Data) -> tuple[Tensor, Tensor]:
    """Read the intensities of images as weights on the grid of their pixels.

    Args:
        images: A ``batch_shape x H x W`` array.

    Returns:
        A ``batch_shape x H*W x 2`` tensor of points, which takes the memory of one grid because all
        images share it, and a ``batch_shape x H*W`` tensor of normalised weights.

    Raises:
        ValueError: If an intensity is negative or not finite, an image is all zero, or the last axis
            looks like colour channels.
    """
    array = real_array(images, "Images")
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(
            f"Images: expected a non-empty array of shape (..., H, W), got shape "
            f"{tuple(array.shape)}."
        )
    # Colour images have three channels, or four with opacity.
    if array.ndim > 3 and array.shape[-1] in (3, 4) and array.shape[-2] > array.shape[-1]:
        raise ValueError(
            "Images: expected one channel, an array of shape (..., H, W), got shape "
            f"{tuple(array.shape)}, whose last axis looks like colour channels. Select one channel or "
            "average them, images[..., :3].mean(-1). If the images are this narrow, flatten their "
            "batch axes."
        )
    values = to_tensors([array])[0]
    grid, weights = validated(
        _pixel_grid(values), values.flatten(-2), Wording("Image", "intensities")
    )
    return grid.expand(*weights.shape, 2), weights


def _pixel_grid(images: Tensor) -> Tensor:
    """Return the centres of the pixels in row-major order, an ``H*W x 2`` tensor on [-1, 1]^2."""
    height, width = (
        torch.linspace(-1, 1, count, dtype=images.dtype, device=images.device)
        if count > 1
        else images.new_zeros(1)
        for count in images.shape[-2:]
    )
    y, x = torch.meshgrid(height.flip(0), width, indexing="ij")
    return torch.stack([x, y], dim=-1).flatten(0, 1)
