"""An image that came over the network: checked before it is decoded, and decoded as files are.

Only formats that Pillow decodes by itself are tried (some others start programs), and DICOM. The size that
the header states is checked first, so that a small file cannot become an image that fills the memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from dprotonet.data.codestream import webp_extent
from dprotonet.data.dicom import dicom_extent, dicom_image
from dprotonet.data.image import image_from_pil, picture_from_pil
from dprotonet.data.image_memory import TooMuchMemory, check_image, open_image
from dprotonet.errors import UserError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
_FIRST = 1 << 16  # bytes of a file
_LONGEST = 640  # edge of a picture for people


class TooLarge(UserError):
    """An image of more bytes or pixels than are accepted."""


@dataclass(frozen=True)
class UploadLimits:
    """How large an image may be that is sent to us."""

    megabytes: float = 20.0
    megapixels: float = 50.0

    @property
    def bytes(self) -> int:
        return round(self.megabytes * 1e6)

    def check(self, width: int, height: int) -> None:
        if width * height > self.megapixels * 1e6:
            raise TooLarge(
                f"the image has {width} × {height} pixels, more than {self.megapixels:g} million; "
                "send a smaller one"
            )


@dataclass(frozen=True, eq=False)
class Upload:
    """An image as the network sees it (3, S, S), and for people in its own proportions (3, H, W); uint8."""

    pixels: Tensor
    picture: Tensor


def read_upload(data: bytes, *, size: int, limits: UploadLimits) -> Upload:
    """The image in some bytes; an error in plain words where there is none."""
    if len(data) > limits.bytes:
        raise TooLarge(f"the file is larger than {limits.megabytes:g} MB; send a smaller one")
    if not data:
        raise UserError("the file is empty; choose an image")
    with _opened(data, limits) as image:
        image.draft(None, (size, size))
        check_image(image, data)
        pixels = image_from_pil(image, size=size)
    with _opened(data, limits) as image:
        image.draft(None, (_LONGEST, _LONGEST))
        check_image(image, data)
        return Upload(pixels, picture_from_pil(image, longest=_LONGEST))


def stated_pixels(data: bytes) -> int | None:
    """How many pixels an image has, by the first bytes of its file; None where these do not say.

    It takes no time: what stands in a long header is not looked at, so DICOM files say nothing; and of WebP,
    for whose canvas Pillow makes room on opening, only the header is.
    """
    width, height = webp_extent(data)
    if width:
        return width * height
    try:
        with Image.open(BytesIO(data[:_FIRST]), formats=FORMATS) as image:
            return image.width * image.height
    except Exception:  # it will be said when the image is read
        return None


@contextmanager
def _opened(data: bytes, limits: UploadLimits) -> Iterator[Image.Image]:
    try:
        with _dicom(data, limits) if _is_dicom(data) else open_image(data, FORMATS) as image:
            limits.check(*image.size)
            yield image
    except UserError:
        raise
    except TooMuchMemory as error:
        raise TooLarge(str(error)) from None
    except Image.DecompressionBombError:
        raise TooLarge("the image has far too many pixels; send a smaller one") from None
    except UnidentifiedImageError:
        kinds = "PNG, JPEG, WebP, GIF, BMP, TIFF or DICOM"
        raise UserError(f"this file is no image that can be read here; send {kinds}") from None
    except Exception as error:  # a broken file makes decoders raise almost anything
        raise UserError(f"the image is damaged ({error or type(error).__name__}); send it again") from error


def _is_dicom(data: bytes) -> bool:
    return data[128:132] == b"DICM"


def _dicom(data: bytes, limits: UploadLimits) -> Image.Image:
    width, height = dicom_extent(data)
    limits.check(width, height)
    return dicom_image(data)
