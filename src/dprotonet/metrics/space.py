"""What hidden pixels become, and in which space: it changes the average drop threefold, so it is named.

A network sees normalised images. Zeros there are the mean colour of its training images; zeros in the space
of pixels are black, which normalised is (0 - mean) / std. That number is the caller's, who knows the network.
"""

from typing import Literal, get_args

from torch import Tensor

Space = Literal["normalised", "pixels"]
"""Where hiding a pixel makes it 0: `normalised`, as the network sees images, or `pixels`, that is black."""


def check_space(space: str) -> None:
    if space not in get_args(Space):
        raise ValueError(f"space is {space!r}; it must be one of {', '.join(get_args(Space))}")


def blank(images: Tensor, fill: Tensor | None) -> Tensor:
    """The images with everything hidden, (N, C, H, W) without memory of its own; zeros without a fill."""
    chosen = images.new_zeros(()) if fill is None else fill.to(images)
    try:
        return chosen.expand_as(images)
    except RuntimeError as error:
        shapes = f"fill {tuple(chosen.shape)} against images {tuple(images.shape)}"
        raise ValueError(f"{shapes}; it must broadcast, as (C, 1, 1) does") from error
