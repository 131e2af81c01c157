"""A radiograph in a DICOM file as a grey image, as a viewer would show it.

Stored numbers become values by rescale slope and intercept, values become grey by the window where the file
has one (DICOM PS3.3, C.11.2.1.2, linear) and by the bits in use where it has none; MONOCHROME1, in which the
smallest value is white, is inverted. Of several frames the first. Opening files is left to `image`.
"""

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from dprotonet.data.depth import eight_bits
from dprotonet.extras import import_extra

SUFFIX = ".dcm"


def dicom_image(data: bytes) -> Image.Image:
    """The bytes of a DICOM file as a PIL image; ValueError says why it cannot be one."""
    pydicom = import_extra("pydicom", extra="data", needed_for="reading DICOM")
    errors = import_extra("pydicom.errors", extra="data", needed_for="reading DICOM")
    try:
        dataset = pydicom.dcmread(BytesIO(data))
    except errors.InvalidDicomError:
        raise ValueError("not a DICOM file") from None
    if "PixelData" not in dataset:
        raise ValueError("a DICOM file without pixels")
    return Image.fromarray(_grey_or_colour(dataset))


def dicom_extent(data: bytes) -> tuple[int, int]:
    """Width, and height of all frames together, as the header states them: nothing is decoded."""
    header = dicom_header(data)
    return int(header.get("Columns", 0)), int(header.get("Rows", 0)) * frames_in(header)


def dicom_header(data: bytes) -> Any:
    """All that a DICOM file says but its pixels, as pydicom has it; ValueError where it is none."""
    pydicom = import_extra("pydicom", extra="data", needed_for="reading DICOM")
    errors = import_extra("pydicom.errors", extra="data", needed_for="reading DICOM")
    try:
        return pydicom.dcmread(BytesIO(data), stop_before_pixels=True)
    except errors.InvalidDicomError:
        raise ValueError("not a DICOM file") from None


def frames_in(header: Any) -> int:
    """How many frames there are; `dicom_image` shows the first."""
    return max(1, int(header.get("NumberOfFrames", 1) or 1))


def _grey_or_colour(dataset: Any) -> np.ndarray:
    pixels = dataset.pixel_array
    if frames_in(dataset) > 1:
        pixels = pixels[0]
    if int(dataset.get("SamplesPerPixel", 1)) == 3:
        return np.ascontiguousarray(pixels.astype(np.uint8))
    grey = _windowed(dataset, pixels.astype(np.float32))
    return 255 - grey if dataset.get("PhotometricInterpretation") == "MONOCHROME1" else grey


def _windowed(dataset: Any, stored: np.ndarray) -> np.ndarray:
    slope, intercept = (dataset.get(name) for name in ("RescaleSlope", "RescaleIntercept"))
    values = stored * float(slope or 1) + float(intercept or 0)
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is None or width is None or width < 1:
        return eight_bits(values)
    share = (values - (centre - 0.5)) / max(width - 1, 1e-6) + 0.5
    return (share.clip(0, 1) * 255).round().astype(np.uint8)


def _first(value: Any) -> float | None:
    """A window may be given several times; the first is the default one."""
    if value is None or value == "":
        return None
    try:
        return float(value)
    except TypeError:
        return float(value[0]) if len(value) else None
