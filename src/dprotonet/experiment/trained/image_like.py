"""An image however a user has it: a path, a PIL image or a uint8 tensor."""

from collections.abc import Iterable
from os import PathLike

import torch
from PIL import Image
from torch import Tensor

from dprotonet.data.image import (
    contents,
    image_from_pil,
    picture_from_pil,
    probed_extent,
    read_image,
    read_picture,
    upright_extent,
)
from dprotonet.errors import UserError

ImageLike = str | PathLike[str] | Image.Image | Tensor


def square(image: ImageLike, *, size: int) -> Tensor:
    """As the network sees it, squashed to the square: uint8 (3, size, size)."""
    if isinstance(image, str | PathLike):
        return read_image(image, size=size)
    return image_from_pil(_picture(image), size=size)


def picture(image: ImageLike, *, longest: int) -> Tensor:
    """As people want to see it, with its proportions: uint8 (3, H, W), no edge longer than `longest`."""
    if isinstance(image, str | PathLike):
        return read_picture(image, longest=longest)
    return picture_from_pil(_picture(image), longest=longest)


def image_size(image: ImageLike) -> tuple[int, int]:
    """Height and width of the image itself, upright, before anything was squashed."""
    if isinstance(image, str | PathLike):
        return probed_extent(contents(image), name=str(image))[::-1]
    return upright_extent(_picture(image))[::-1]


def several(images: ImageLike | Iterable[ImageLike]) -> list[ImageLike]:
    """One image or many, as a list; what is no image is refused when it is read."""
    alone = isinstance(images, str | PathLike | Image.Image) or not isinstance(images, Iterable)
    if alone or (isinstance(images, Tensor) and images.ndim <= 3):
        return [images]  # type: ignore[list-item]
    return list(images)  # type: ignore[arg-type]


def squares(images: ImageLike | Iterable[ImageLike], *, size: int) -> Tensor:
    """One image or many as a network sees them: uint8 (B, 3, size, size)."""
    asked = several(images)
    if not asked:
        raise UserError("there are no images; give at least one")
    return torch.stack([square(image, size=size) for image in asked])


def name_of(image: ImageLike) -> str:
    """The path, if it has one."""
    return str(image) if isinstance(image, str | PathLike) else ""


def _picture(image: object) -> Image.Image:
    if isinstance(image, Image.Image):
        return image
    if not isinstance(image, Tensor):
        raise UserError(f"an image is a path, a PIL image or a uint8 tensor, not a {type(image).__name__}")
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3 or not image.numel():
        raise UserError(f"a tensor image must be uint8 (3, H, W), not {image.dtype} {tuple(image.shape)}")
    return Image.fromarray(image.permute(1, 2, 0).contiguous().cpu().numpy())
