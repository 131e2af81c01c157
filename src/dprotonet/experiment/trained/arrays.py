"""Images as NumPy arrays: one or many, grey or colour, channels last, as other libraries hand them over."""

from collections.abc import Iterable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.trained.image_like import ImageLike, several


def as_images(given: object) -> list[ImageLike]:
    """Paths, PIL images, tensors or arrays, one or many, as a list of images.

    An array is uint8: (H, W) grey, (H, W, 3) colour, (H, W, 4) with transparency, or (N, …) of them.
    """
    if isinstance(given, np.ndarray) and given.dtype.kind not in "OUS":
        return [_picture(one) for one in _one_by_one(given)]
    if isinstance(given, np.ndarray):
        given = given.tolist()  # of paths
    found = several(given)  # type: ignore[arg-type]
    return [_picture(one) if isinstance(one, np.ndarray) else one for one in found]


def _one_by_one(array: np.ndarray) -> Iterable[np.ndarray]:
    if array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (3, 4)):
        return [array]
    if array.ndim in (3, 4):
        return array
    raise UserError(f"an array of images is (H, W), (H, W, 3), (N, H, W) or (N, H, W, 3), not {array.shape}")


def _picture(array: np.ndarray) -> Tensor | Image.Image:
    colour = array.ndim == 3 and array.shape[-1] in (3, 4)
    if array.dtype != np.uint8 or not (array.ndim == 2 or colour) or not array.size:
        raise UserError(
            f"an image array is uint8 from 0 to 255, (H, W) or (H, W, 3), not {array.dtype} {array.shape}"
        )
    if colour and array.shape[-1] == 3:
        return torch.from_numpy(np.ascontiguousarray(array)).permute(2, 0, 1)
    return Image.fromarray(array)
