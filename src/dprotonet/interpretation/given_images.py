"""Images as people have them, as the float tensor (N, C, H, W) that networks take.

A float tensor is what the model wants already; volumes (N, C, D, H, W) come as such. Pictures (PIL) and NumPy
arrays of whole numbers are scaled to [0, 1] by the range of their type, and normalised as a model of timm
says that it was trained; of other models nothing is known here, and that is said.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError

logger = logging.getLogger(__name__)

_CHANNELS = (1, 3, 4)
_MANY_CHANNELS = 16  # more in front, and 1, 3 or 4 behind: that is an image with its channels last
_RANGES = {"uint8": 255.0, "uint16": 65535.0}
_WANTED = (
    "give a float tensor (N, C, H, W) as the model wants it, NumPy images (N, H, W, C), PIL images, "
    "or a list of images"
)


class Wanted(NamedTuple):
    """What is known of the images that a model takes."""

    channels: int | None = None
    volumes: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def by(cls, model: object) -> "Wanted":
        """Its first convolution tells the axes and channels, timm's `pretrained_cfg` the normalisation."""
        modules = model.modules() if isinstance(model, nn.Module) else ()
        first = next((item for item in modules if isinstance(item, nn.Conv2d | nn.Conv3d)), None)
        volumes = isinstance(first, nn.Conv3d)
        channels = None if first is None or volumes else first.in_channels
        known = getattr(model, "pretrained_cfg", None)
        known = known if isinstance(known, Mapping) else {}
        mean, std = (tuple(known.get(key) or ()) for key in ("mean", "std"))
        told = len(mean) == len(std) > 0 and min(std) > 0
        return cls(channels, volumes, *((mean, std) if told else ()))


_ANY = Wanted()


def as_images(given: Any, wanted: Wanted = _ANY) -> Tensor:
    """Float images (N, C, H, W); one image alone is a batch of one. Grey ones get the model's channels.

    Tensors may be volumes (N, C, D, H, W); of a model that takes volumes, (C, D, H, W) is one of them.
    """
    if isinstance(given, Tensor):
        return _of_tensor(given, volumes=wanted.volumes)
    if isinstance(given, list | tuple):
        return _stacked([as_images(one, wanted) for one in given])
    if _is_picture(given):
        given = _array_of(given)
    if isinstance(given, np.ndarray):
        return _normalised(_grey_to(_of_array(given), wanted.channels), given.dtype, wanted)
    raise UserError(f"{type(given).__name__} is no image; {_WANTED}")


def _of_tensor(images: Tensor, *, volumes: bool) -> Tensor:
    shape = tuple(images.shape)
    if images.ndim == 5 or (volumes and images.ndim == 4):
        return _of_volumes(images)
    if volumes:
        raise UserError(f"the model takes volumes (N, C, D, H, W), and these are {shape}")
    if images.ndim not in (3, 4) or not images.is_floating_point():
        whole = "" if images.is_floating_point() else "; scale and normalise it as in training"
        raise UserError(
            "images must be a float tensor (N, C, H, W) as the model wants them, "
            f"not {images.dtype} {shape}{whole}"
        )
    if images.shape[-1] in _CHANNELS and min(shape[-3:-1]) > _MANY_CHANNELS:
        raise UserError(f"images {shape} have their channels last; give images.movedim(-1, -3)")
    return images.unsqueeze(0) if images.ndim == 3 else images


def _of_volumes(volumes: Tensor) -> Tensor:
    if not volumes.is_floating_point():
        raise UserError(
            "volumes must be a float tensor (N, C, D, H, W) as the model wants them, "
            f"not {volumes.dtype} {tuple(volumes.shape)}; scale and normalise it as in training"
        )
    return volumes.unsqueeze(0) if volumes.ndim == 4 else volumes


def _of_array(array: np.ndarray) -> Tensor:
    """NumPy images have their channels last, as OpenCV, Pillow and scikit-image give them, or first."""
    if (array.dtype.kind != "f" and array.dtype.name not in _RANGES) or not 2 <= array.ndim <= 4:
        if array.ndim == 5:
            shape = array.shape
            raise UserError(
                f"NumPy of shape {shape} is no image; give volumes as a float tensor (N, C, D, H, W)"
            )
        kinds = "floats, uint8 or uint16"
        raise UserError(f"a NumPy array of {array.dtype} {array.shape} is no image of {kinds}; {_WANTED}")
    if array.ndim == 2:
        array = array[..., None]
    if array.shape[-1] not in _CHANNELS and array.shape[-3] in _CHANNELS:
        array = np.moveaxis(array, -3, -1)
    if array.shape[-1] not in _CHANNELS:
        raise UserError(f"a NumPy array of shape {array.shape} has no axis of 1, 3 or 4 channels; {_WANTED}")
    batch = array if array.ndim == 4 else array[None]
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(_scaled(batch), -1, 1)))


def _scaled(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) / _RANGES.get(array.dtype.name, 1.0)


def _normalised(images: Tensor, kind: np.dtype, wanted: Wanted) -> Tensor:
    """Scaled whole numbers as the model wants them; floats are that already."""
    if kind.kind == "f":
        return images
    if len(wanted.mean) not in (1, images.shape[1]):
        logger.warning(
            "images of %s are scaled to [0, 1] and not normalised; if the model was trained on normalised "
            "images, give a float tensor prepared alike",
            kind,
        )
        return images
    logger.warning(
        "images of %s are scaled to [0, 1] and normalised by mean %s and deviation %s, as the model's "
        "pretrained_cfg says; if it was trained otherwise, give a float tensor prepared alike",
        kind,
        wanted.mean,
        wanted.std,
    )
    mean, std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (wanted.mean, wanted.std))
    return (images - mean) / std


def _is_picture(given: Any) -> bool:
    return type(given).__module__.startswith("PIL.") and hasattr(given, "mode")


def _array_of(picture: Any) -> np.ndarray:
    if picture.mode.startswith("I"):
        grey = np.asarray(picture)
        if grey.min() < 0 or grey.max() > _RANGES["uint16"]:
            raise UserError(
                f"a picture of mode {picture.mode} has values beyond 16 bits; give a float tensor"
            )
        return grey.astype(np.uint16)
    if picture.mode == "F":
        return np.asarray(picture)
    return np.asarray(picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB"))


def _grey_to(images: Tensor, channels: int | None) -> Tensor:
    return images.expand(-1, channels, -1, -1) if channels == 3 and images.shape[1] == 1 else images


def _stacked(images: list[Tensor]) -> Tensor:
    if not images:
        raise UserError(f"the list of images is empty; {_WANTED}")
    shapes = sorted({tuple(image.shape[1:]) for image in images})
    if len(shapes) > 1:
        shown = " and ".join(str(shape) for shape in shapes[:3])
        raise UserError(
            f"images of a call must have one size, not {shown}; resize or explain them one by one"
        )
    return torch.cat(images)
